//! HTTP of a node: liveness, readiness and metrics. Invariant: what is served here without a token says nothing about
//! anybody's data.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use ebb::Engine;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// What the handlers need.
#[derive(Clone)]
pub(crate) struct Surface {
    engine: Engine,
    metrics: PrometheusHandle,
    prefix: String,
}

impl Surface {
    pub(crate) fn new(engine: Engine, metrics: PrometheusHandle, prefix: String) -> Self {
        Self { engine, metrics, prefix }
    }
}

/// Installs the recorder that `/metrics` prints.
pub(crate) fn recorder() -> ebb::Result<PrometheusHandle> {
    let seconds = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 3600.0];
    PrometheusBuilder::new()
        .set_buckets(&seconds)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| ebb::Error::failed(format!("cannot set up metrics: {error}")))
}

/// The routes.
pub(crate) fn app(surface: Surface) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(surface)
}

/// Binds the listener; port 0 picks a free one.
pub(crate) async fn bind(address: SocketAddr) -> ebb::Result<tokio::net::TcpListener> {
    if !address.ip().is_loopback() {
        return Err(ebb::Error::config(format!(
            "[http] listen = \"{address}\" is not loopback, and there is no token yet"
        ))
        .with_hint("listen on 127.0.0.1 and put a proxy in front"));
    }
    tokio::net::TcpListener::bind(address).await.map_err(|error| {
        ebb::Error::failed(format!("cannot listen on {address}: {error}"))
            .with_hint("another node may be running here; set [http] listen, port 0 picks a free one")
    })
}

/// Ready when the database answers and its schema is understood.
async fn readyz(State(surface): State<Surface>) -> impl IntoResponse {
    match surface.engine.ready().await {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {error}\n")),
    }
}

async fn metrics(State(surface): State<Surface>) -> impl IntoResponse {
    surface.metrics.run_upkeep();
    let mut text = surface.metrics.render();
    if surface.prefix != "ebb" {
        text = with_prefix(&text, &surface.prefix);
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

/// Every metric is called `ebb_…` inside; another prefix is put on as it leaves.
fn with_prefix(text: &str, prefix: &str) -> String {
    text.lines()
        .map(|line| match line.strip_prefix("ebb_") {
            Some(rest) => format!("{prefix}_{rest}\n"),
            None => format!("{}\n", line.replacen("# TYPE ebb_", &format!("# TYPE {prefix}_"), 1)),
        })
        .collect()
}
