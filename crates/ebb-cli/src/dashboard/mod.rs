//! The dashboard: pages made here, served from the binary, without a fetch from anywhere else. A file a page.
//! Invariants: whoever is not let in sees only the way in; every form proves that it was ours; every action shows first
//! what it would do, and is in the audit with who did it.

mod assets;
mod audit;
mod chart;
mod docs;
mod events;
mod frame;
mod overview;
mod partitions;
mod policies;
mod policy;
mod report;
mod resources;
mod session;
mod subject;
mod subjects;
mod text;
mod tree;
mod upcoming;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};

use crate::http::Surface;

pub(crate) use upcoming::Upcoming;

/// Styles and scripts are files of ours, nothing else is loaded, nobody frames a page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

pub(crate) fn router(document: &utoipa::openapi::OpenApi) -> Router<Surface> {
    Router::new()
        .route("/", get(overview::page))
        .route("/policies", get(policies::page))
        .route("/policies/{name}", get(policy::page))
        .route("/policies/{name}/run", get(policy::ask_run).post(|v, s, p, f| policy::Act::Run.carry_out(v, s, p, f)))
        .route("/policies/{name}/pause", post(|v, s, p, f| policy::Act::Pause.carry_out(v, s, p, f)))
        .route("/policies/{name}/resume", post(|v, s, p, f| policy::Act::Resume.carry_out(v, s, p, f)))
        .route("/policies/{name}/edit", get(policy::edit).post(policy::save))
        .route("/events", get(events::page))
        .route("/events/retry", get(events::ask_retry_all).post(events::retry_all))
        .route("/events/{id}", get(events::one))
        .route("/events/{id}/retry", get(events::ask_retry).post(events::retry))
        .route("/events/{id}/cancel", get(events::ask_cancel).post(events::cancel))
        .route("/subjects", get(subjects::page))
        .route("/subjects/{policy}/{id}", get(subject::page))
        .route("/subjects/{policy}/{id}/{act}", get(subject::ask).post(subject::act))
        .route("/partitions", get(partitions::page))
        .route("/resources", get(resources::page))
        .route("/resources/{policy}/sweep", get(resources::ask_confirm).post(resources::confirm))
        .route("/resources/{policy}/{name}/drop", get(resources::ask_drop).post(resources::drop_now))
        .route("/audit", get(audit::page))
        .route("/audit/report", get(report::page))
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
