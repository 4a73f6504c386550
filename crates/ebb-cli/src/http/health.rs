//! Open to everybody: is it alive, is it ready, its metrics. Invariant: what is served here says nothing about
//! anybody's data.

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use super::Surface;
use super::problem::{Problem, Sort};

pub(super) fn router() -> Router<Surface> {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
}

/// Installs the recorder that `/metrics` prints.
pub(crate) fn recorder() -> ebb::Result<PrometheusHandle> {
    let seconds = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 3600.0];
    PrometheusBuilder::new()
        .set_buckets(&seconds)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| ebb::Error::failed(format!("cannot set up metrics: {error}")))
}

/// Ready when the database answers and its schema is understood.
async fn readyz(State(surface): State<Surface>) -> Result<&'static str, Problem> {
    match surface.engine.ready().await {
        Ok(()) => Ok("ready\n"),
        Err(error) => {
            tracing::debug!(error = %error, "Not ready");
            Err(Problem::new(Sort::Unavailable, "not ready: the database is away, or its schema is not understood"))
        }
    }
}

async fn metrics(State(surface): State<Surface>) -> impl IntoResponse {
    surface.metrics.run_upkeep();
    let mut text = surface.metrics.render();
    if &*surface.prefix != "ebb" {
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
