//! Open to everybody: is it alive, is it ready, its metrics. Invariants: what is served here says nothing about anybody's data;
//! a scrape waits for no rendering that takes long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
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
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], surface.metrics.text())
}

/// What is longer takes too long to render while somebody waits: it is rendered aside, and shown as it was then.
const LONG: usize = 200_000;
/// How old it is then at most, and for how long after the last scrape it is kept up.
const RENDER_EVERY: Duration = Duration::from_secs(5);
const KEPT_UP: Duration = Duration::from_secs(300);

/// The metrics as text.
pub(crate) struct Exposition {
    handle: PrometheusHandle,
    prefix: String,
    kept: Mutex<Option<Kept>>,
}

struct Kept {
    text: Bytes,
    asked: Instant,
}

impl Exposition {
    pub(crate) fn new(handle: PrometheusHandle, prefix: &str) -> Self {
        Self { handle, prefix: prefix.to_owned(), kept: Mutex::default() }
    }

    fn text(self: &Arc<Self>) -> Bytes {
        if let Some(kept) = &mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner) {
            kept.asked = Instant::now();
            return kept.text.clone();
        }
        let text = self.render();
        if text.len() > LONG {
            let kept = Kept { text: text.clone(), asked: Instant::now() };
            let before = self.kept.lock().unwrap_or_else(PoisonError::into_inner).replace(kept);
            if before.is_none() {
                tokio::spawn(self.clone().keep_up());
            }
        }
        text
    }

    /// Renders again and again, as long as somebody asks.
    async fn keep_up(self: Arc<Self>) {
        loop {
            tokio::time::sleep(RENDER_EVERY).await;
            let renders = self.clone();
            let Ok(text) = tokio::task::spawn_blocking(move || renders.render()).await else { break };
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            match &mut *kept {
                Some(kept) if kept.asked.elapsed() < KEPT_UP => kept.text = text,
                _ => break,
            }
        }
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn render(&self) -> Bytes {
        self.handle.run_upkeep();
        let text = self.handle.render();
        if self.prefix == "ebb" { text.into() } else { with_prefix(&text, &self.prefix).into() }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_long_is_rendered_aside_and_kept_up() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let exposition = Arc::new(Exposition::new(recorder.handle(), "other"));
        let count = |name: String| metrics::with_local_recorder(&recorder, || metrics::counter!(name).increment(1));
        let has = |name: &str| String::from_utf8_lossy(&exposition.text()).contains(name);
        count("ebb_first".into());
        assert!(has("other_first"));
        count("ebb_second".into());
        assert!(has("other_second"), "a short text is as it is now");
        (0..10_000).for_each(|n| count(format!("ebb_one_of_many_{n}")));
        assert!(has("other_one_of_many_9999"));
        count("ebb_late".into());
        assert!(!has("other_late"), "a long one is as it was");
        ebb_testkit::eventually(Duration::from_secs(60), || async { has("other_late") }).await;
    }
}
