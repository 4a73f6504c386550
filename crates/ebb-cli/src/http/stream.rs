//! `/v1/stream`: live progress as server-sent events. One look a second serves every listener of a node, and none is
//! made while nobody listens. Invariant: a stream ends when its token does, and with the node.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::request::Parts;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use ebb::Engine;
use ebb::audit::Moment;
use ebb::spine::Shutdown;
use ebb::view;
use futures_util::Stream;
use futures_util::stream;
use tokio::sync::broadcast::{Receiver, Sender, channel, error::RecvError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Surface;
use super::auth::{self, By, Read};
use super::problem::Problem;

/// How often a node looks for its listeners.
const LOOK: Duration = Duration::from_secs(1);
/// What a listener may fall behind before it misses something.
const BACKLOG: usize = 256;

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new().routes(routes!(listen))
}

/// One thing that happened.
#[derive(Debug, Clone)]
struct Told {
    event: &'static str,
    data: Arc<str>,
}

/// Looks for everybody who listens.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    sender: Sender<Told>,
    shutdown: Shutdown,
}

impl Stage {
    pub(crate) fn new(engine: Engine, shutdown: Shutdown) -> Self {
        let (sender, _) = channel(BACKLOG);
        tokio::spawn(look(engine, sender.clone(), shutdown.clone()));
        Self { sender, shutdown }
    }
}

async fn look(engine: Engine, sender: Sender<Told>, shutdown: Shutdown) {
    let (mut since, mut seen, mut change) = (None, Vec::new(), None);
    while !shutdown.sleep(LOOK).await {
        if sender.receiver_count() == 0 {
            (since, change) = (None, None);
            continue;
        }
        match glance(&engine, since).await {
            Ok((now, runs, changed)) => {
                for run in runs.iter().filter(|run| !seen.contains(*run)) {
                    tell(&sender, "run", run);
                }
                if change.is_some_and(|before| before != changed) {
                    tell(&sender, "change", &serde_json::json!({ "at": now }));
                }
                (since, seen, change) = (Some(now), runs, Some(changed));
            }
            Err(error) => tracing::debug!(error = %error, "Could not look for the stream"),
        }
    }
}

async fn glance(engine: &Engine, since: Option<Moment>) -> ebb::Result<(Moment, Vec<view::Run>, i64)> {
    let mut tx = engine.database().read().await?;
    let (now, runs) = view::activity(&mut tx, since).await?;
    let changed = view::changes(&mut tx).await?;
    tx.commit().await?;
    Ok((now, runs, changed))
}

fn tell(sender: &Sender<Told>, event: &'static str, data: &impl serde::Serialize) {
    let data = serde_json::to_string(data).unwrap_or_default().into();
    // Nobody is left to hear it.
    let _ = sender.send(Told { event, data });
}

/// What happens, as it happens
///
/// Server-sent events: `run` (a run began, went on or ended) and `change` (a policy, pause or brake did).
#[utoipa::path(
    get, path = "/v1/stream", tag = "operations",
    responses((status = 200, description = "A stream that ends with the token or the node", body = String, content_type = "text/event-stream")),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn listen(
    _by: By<Read>,
    State(surface): State<Surface>,
    parts: Parts,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let listener = Listener { heard: surface.stage.sender.subscribe(), surface, parts };
    let hello = stream::once(async { Ok(Event::default().comment("listening")) });
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok(event), listener))
    });
    Ok(Sse::new(futures_util::StreamExt::chain(hello, events))
        .keep_alive(KeepAlive::new().interval(Duration::from_secs(15))))
}

struct Listener {
    heard: Receiver<Told>,
    surface: Surface,
    parts: Parts,
}

impl Listener {
    /// The next event; nothing when the stream is over.
    async fn next(&mut self) -> Option<Event> {
        loop {
            tokio::select! {
                () = self.surface.stage.shutdown.stopping() => return None,
                told = self.heard.recv() => match told {
                    Ok(told) => return Some(Event::default().event(told.event).data(&*told.data)),
                    // Slower than what happens: whoever shows something looks at it again.
                    Err(RecvError::Lagged(_)) => return Some(Event::default().event("change").data("{}")),
                    Err(RecvError::Closed) => return None,
                },
                () = tokio::time::sleep(LOOK) => {
                    if !self.may_stay().await {
                        return None;
                    }
                }
            }
        }
    }

    async fn may_stay(&mut self) -> bool {
        auth::still_in(&self.parts, &self.surface).await
    }
}
