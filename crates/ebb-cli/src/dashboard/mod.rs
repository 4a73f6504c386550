//! The dashboard: pages made here, served from the binary, without a fetch from anywhere else. A file a page.
//! Invariants: whoever is not let in sees only the way in; every form proves that it was ours; every action shows first
//! what it would do, and is in the audit with who did it.

mod assets;
mod audit;
mod chart;
mod docs;
mod frame;
mod overview;
mod policies;
mod policy;
mod session;
mod text;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};

use crate::http::Surface;

/// Styles and scripts are files of ours, nothing else is loaded, nobody frames a page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(crate) fn router(document: &utoipa::openapi::OpenApi) -> Router<Surface> {
    Router::new()
        .route("/", get(overview::page))
        .route("/policies", get(policies::page))
        .route("/policies/{name}", get(policy::page))
        .route("/policies/{name}/run", get(policy::ask_run).post(policy::run))
        .route("/policies/{name}/pause", post(policy::pause))
        .route("/policies/{name}/resume", post(policy::resume))
        .route("/policies/{name}/edit", get(policy::edit).post(policy::save))
        .route("/audit", get(audit::page))
        .route("/login", get(session::page).post(session::login))
        .route("/logout", post(session::logout))
        .merge(docs::router(document))
        .merge(assets::router())
        .layer(middleware::from_fn(strict))
}

async fn strict(request: axum::extract::Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}
