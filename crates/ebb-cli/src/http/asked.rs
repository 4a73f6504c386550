//! What follows the question mark of a request that changes something. Invariant: nothing there is passed over: a `dry_run` that is
//! written otherwise would not be a rehearsal.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{OpenApi, PathItem, RefOr};

use super::problem::{Problem, Sort};

/// The keys that each operation knows, by its path and method; all that change something are here.
pub(crate) struct Known(BTreeMap<(String, Method), Vec<String>>);

impl Known {
    /// As the API describes itself.
    pub(crate) fn of(document: &OpenApi) -> Arc<Self> {
        let changing = |item: &PathItem| {
            let operations = [(Method::POST, &item.post), (Method::PUT, &item.put), (Method::DELETE, &item.delete)];
            operations.map(|(method, operation)| Some((method, keys(operation.as_ref()?))))
        };
        let all = document.paths.paths.iter().flat_map(|(path, item)| {
            changing(item).into_iter().flatten().map(|(method, keys)| ((path.clone(), method), keys))
        });
        Arc::new(Self(all.collect()))
    }

    fn unknown(&self, request: &Request) -> Option<Problem> {
        let query = request.uri().query().filter(|query| !query.is_empty())?;
        let path = request.extensions().get::<MatchedPath>()?.as_str().to_owned();
        let known = self.0.get(&(path, request.method().clone()))?;
        let typed = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
        let stranger = typed.into_iter().find(|key| !known.iter().any(|known| known == key))?;
        let problem = Problem::new(Sort::Malformed, format!("nothing here is called {stranger:?}; nothing was done"));
        Some(match known.as_slice() {
            [] => problem.hint("it takes nothing after the question mark"),
            known => problem.hint(format!("it takes {}", known.join(", "))),
        })
    }
}

fn keys(operation: &Operation) -> Vec<String> {
    let in_query = |parameter: &RefOr<Parameter>| match parameter {
        RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.clone()),
        _ => None,
    };
    operation.parameters.iter().flatten().filter_map(in_query).collect()
}

pub(crate) async fn known_only(State(known): State<Arc<Known>>, request: Request, next: Next) -> Response {
    match known.unknown(&request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}
