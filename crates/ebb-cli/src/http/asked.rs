//! What a request that changes something says besides its path: after the question mark, and in a body. Invariant: nothing there is
//! passed over: a `dry_run` that is written otherwise, or elsewhere, would not be a rehearsal.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::{OpenApi, PathItem, RefOr};

use super::problem::{Problem, Sort};
use super::{Surface, auth, extract};

/// What each operation reads, by its path and method; all that change something are here.
pub(crate) struct Known(BTreeMap<(String, Method), Reads>);

struct Reads {
    /// The keys that it knows after the question mark.
    keys: Vec<String>,
    body: bool,
}

impl Known {
    /// As the API describes itself.
    pub(crate) fn of(document: &OpenApi) -> Arc<Self> {
        let changing = |item: &PathItem| {
            let operations = [(Method::POST, &item.post), (Method::PUT, &item.put), (Method::DELETE, &item.delete)];
            operations.map(|(method, operation)| Some((method, Reads::of(operation.as_ref()?))))
        };
        let all = document.paths.paths.iter().flat_map(|(path, item)| {
            changing(item).into_iter().flatten().map(|(method, reads)| ((path.clone(), method), reads))
        });
        Arc::new(Self(all.collect()))
    }

    fn reads(&self, request: &Request) -> Option<&Reads> {
        let path = request.extensions().get::<MatchedPath>()?.as_str().to_owned();
        self.0.get(&(path, request.method().clone()))
    }
}

impl Reads {
    fn of(operation: &Operation) -> Self {
        let in_query = |parameter: &RefOr<Parameter>| match parameter {
            RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.clone()),
            _ => None,
        };
        let keys = operation.parameters.iter().flatten().filter_map(in_query).collect();
        Self { keys, body: operation.request_body.is_some() }
    }

    fn unknown_key(&self, request: &Request) -> Option<Problem> {
        let query = request.uri().query().filter(|query| !query.is_empty())?;
        let typed = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
        let stranger = typed.into_iter().find(|key| !self.keys.iter().any(|known| known == key))?;
        let problem = Problem::new(Sort::Malformed, format!("nothing here is called {stranger:?}; nothing was done"));
        Some(match self.keys.as_slice() {
            [] => problem.hint("it takes nothing after the question mark"),
            known => problem.hint(format!("it takes {}", known.join(", "))),
        })
    }

    /// The request, unless it has a body that nobody would read; one that says nothing does no harm.
    async fn unread_body(&self, surface: &Surface, request: Request) -> Result<Request, Problem> {
        if self.body || request.body().is_end_stream() {
            return Ok(request);
        }
        let (mut parts, body) = request.into_parts();
        // Whoever may not come in is told that, and not listened to.
        auth::caller(&mut parts, surface).await?;
        let body = extract::body(body).await?;
        let said: String = String::from_utf8_lossy(&body).split_whitespace().collect();
        if matches!(said.as_str(), "" | "{}" | "null") {
            return Ok(Request::from_parts(parts, Body::from(body)));
        }
        let problem = Problem::invalid("nothing here reads a body; nothing was done");
        Err(match self.keys.iter().any(|key| key == "dry_run") {
            true => problem.hint("what it takes follows the question mark: ?dry_run=true changes nothing"),
            false => problem.hint("send it without a body"),
        })
    }
}

pub(crate) async fn known_only(
    State((surface, known)): State<(Surface, Arc<Known>)>,
    request: Request,
    next: Next,
) -> Response {
    let Some(reads) = known.reads(&request) else { return next.run(request).await };
    if let Some(problem) = reads.unknown_key(&request) {
        return problem.into_response();
    }
    match reads.unread_body(&surface, request).await {
        Ok(request) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}
