//! HTTP of a node: the API, its documentation, the dashboard. A file a resource; this one puts them together.
//! Invariants: [`app`] needs no socket; whatever happens to a request, it is answered, and an error is a problem
//! document.

mod asked;
mod audit;
pub(crate) mod auth;
mod control;
mod events;
pub(crate) mod extract;
mod guard;
mod health;
mod idempotency;
mod limit;
mod lineage;
mod once;
mod openapi;
mod paging;
mod partitions;
mod peer;
mod policies;
mod problem;
mod resources;
mod restore;
mod serve;
mod status;
mod stream;
mod subjects;
mod tenants;
mod trust;

use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::middleware;
use ebb::Engine;
use ebb::config::{Config, Network};
use ebb::spine::Shutdown;
use metrics_exporter_prometheus::PrometheusHandle;
use tower_http::compression::CompressionLayer;
use tower_http::decompression::RequestDecompressionLayer;
use utoipa_axum::router::OpenApiRouter;

use crate::dashboard;

pub(crate) use audit::{Verified, verified as verify};
pub(crate) use control::{find as find_policy, lift_pause, put_pause, trigger};
pub(crate) use events::{cancel_event, retry_event};
pub(crate) use extract::{Path, Query};
pub(crate) use health::recorder;
pub(crate) use partitions::{Looked, look as look_at_partitions, names as partition_policies};
pub(crate) use peer::Peer;
pub(crate) use policies::{KeyChange, preview as preview_policy};
pub(crate) use problem::{Problem, Sort};
pub(crate) use serve::{acceptor, bind, may_listen, serve};
pub(crate) use subjects::{restore_subject, retry_subject};

/// No body is larger, unpacked.
const BODY_LIMIT: usize = 1 << 20;
/// Connections to the database that serve requests, beside those of the node's work.
const CONNECTIONS: u32 = 16;

/// What the handlers need. Every layer and handler has one of its own, for every request.
#[derive(Clone)]
pub(crate) struct Surface(Arc<Inside>);

/// What is behind it.
pub(crate) struct Inside {
    pub(crate) engine: Engine,
    metrics: Arc<health::Exposition>,
    pub(crate) gate: Arc<auth::Gate>,
    trusted_proxies: Vec<Network>,
    trust: Option<Arc<trust::Trust>>,
    stage: stream::Stage,
    pub(crate) upcoming: Arc<dashboard::Upcoming>,
    claims: ebb::once::Shared,
}

impl Deref for Surface {
    type Target = Inside;

    fn deref(&self) -> &Inside {
        &self.0
    }
}

impl Surface {
    pub(crate) fn new(engine: &Engine, metrics: PrometheusHandle, config: &Config, shutdown: &Shutdown) -> Self {
        let engine = engine.beside(CONNECTIONS, "ebb/http");
        let claims = ebb::once::Shared::new(engine.database().clone());
        let gate = auth::Gate::new(engine.database().clone(), config.http.rate_limit);
        Self(Arc::new(Inside {
            stage: stream::Stage::new(engine.clone(), shutdown.clone()),
            trust: trust::Trust::new(&config.audit).map(Arc::new),
            engine,
            metrics: Arc::new(health::Exposition::new(metrics, &config.metrics.prefix)),
            gate: Arc::new(gate),
            trusted_proxies: config.http.trusted_proxies.clone(),
            upcoming: Arc::default(),
            claims,
        }))
    }
}

/// Everything that is served.
pub(crate) fn app(surface: Surface) -> Router {
    let (api, document) = api();
    let api = api
        .layer(middleware::from_fn_with_state(surface.clone(), idempotency::once))
        .layer(middleware::from_fn_with_state((surface.clone(), asked::Known::of(&document)), asked::known_only));
    Router::new()
        .merge(api)
        .merge(health::router())
        .merge(openapi::router(&document))
        .merge(restore::router())
        .merge(dashboard::router(&document))
        .fallback(guard::not_found)
        .method_not_allowed_fallback(guard::wrong_method)
        .layer(RequestDecompressionLayer::new())
        .layer(middleware::from_fn_with_state(surface.clone(), guard::guard))
        .layer(CompressionLayer::new())
        .with_state(surface)
}

/// What wants a token, and its description.
fn api() -> (Router<Surface>, utoipa::openapi::OpenApi) {
    let (router, mut document) = OpenApiRouter::with_openapi(openapi::document())
        .merge(once::router())
        .merge(lineage::router())
        .merge(events::router())
        .merge(subjects::router())
        .merge(resources::router())
        .merge(partitions::router())
        .merge(policies::router())
        .merge(tenants::router())
        .merge(status::router())
        .merge(control::router())
        .merge(audit::router())
        .merge(stream::router())
        .split_for_parts();
    openapi::complete(&mut document);
    (router, document)
}
