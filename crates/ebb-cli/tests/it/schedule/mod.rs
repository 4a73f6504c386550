//! Events through the binary: commands, and what goes wrong in the life of a node, against a receiver that counts.

mod commands;
mod faults;
mod kills;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use ebb::config::{Config, Env};
use ebb::policy::Wanted;
use ebb::{Engine, Keys};
use ebb_testkit::{Node, TestDatabase};
use tokio::sync::watch;

/// Long enough for a busy machine, short enough to notice.
const SOON: Duration = Duration::from_secs(180);

/// What posts events to, and what it got.
#[derive(Clone)]
struct Receiver {
    url: String,
    got: Arc<Mutex<HashMap<String, usize>>>,
    held: Arc<watch::Sender<bool>>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let receiver = Self { url, got: Arc::default(), held: Arc::new(watch::channel(false).0) };
        let app = Router::new().route("/hook", post(receive)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        receiver
    }

    /// From now on answers wait, or go out.
    fn hold(&self, hold: bool) {
        self.held.send_replace(hold);
    }

    /// How many different events came, and how many calls beyond the first of each.
    fn counts(&self) -> (usize, usize) {
        let got = self.got.lock().unwrap();
        (got.len(), got.values().map(|times| times - 1).sum())
    }
}

async fn receive(State(receiver): State<Receiver>, headers: HeaderMap) -> StatusCode {
    let id = headers["webhook-id"].to_str().unwrap().to_owned();
    assert_eq!(headers["idempotency-key"].to_str().unwrap(), id);
    let first = {
        let mut got = receiver.got.lock().unwrap();
        *got.entry(id).and_modify(|times| *times += 1).or_insert(1) == 1
    };
    // Only the first call of an event is held, so that a repeat gets through.
    if first {
        let _ = receiver.held.subscribe().wait_for(|hold| !hold).await;
    }
    StatusCode::NO_CONTENT
}

/// Applies a sink `hook` that posts to the receiver.
async fn apply(db: &TestDatabase, receiver: &Receiver, more: &str) {
    let waits = vec!["\"100ms\""; 60].join(", ");
    let config = format!(
        "[sinks.hook]\ntype = \"webhook\"\nurl = \"{}\"\nallow_private = true\ntimeout = \"2s\"\nbreaker = \"off\"\nretry = [{waits}]\n{more}",
        receiver.url
    );
    let config = Config::from_str(&config, "ebb.toml", &Env::default()).unwrap();
    let wanted: Vec<Wanted> = config
        .policies
        .into_iter()
        .map(|p| Wanted { kind: p.kind, name: p.name, spec: p.spec, policy: p.policy })
        .collect();
    let engine = Engine::new(db.open(), Keys::default());
    engine.apply(&wanted, true, "test").await.unwrap();
    engine.database().close().await;
}

async fn schedule(db: &TestDatabase, events: usize) {
    db.execute(&format!(
        "SELECT count(*) FROM ebb.schedule_many((SELECT jsonb_agg(jsonb_build_object('sink', 'hook', 'due_at', now(),
             'payload', jsonb_build_object('n', n))) FROM generate_series(1, {events}) AS n))"
    ))
    .await;
}

async fn done(db: &TestDatabase) -> i64 {
    db.scalar("SELECT count(*) FROM ebb.event_history WHERE state = 'done'").await
}

/// `ebb run` under a name; only events, so that nothing else is in the way.
fn node(name: &str, url: &str) -> Node {
    let config = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\n[node]\nname = \"{name}\"\nlease = \"3s\"\n[log]\nlevel = \"info,sqlx=warn\"\nformat = \"json\"\n"
    );
    Node::spawn(Path::new(env!("CARGO_BIN_EXE_ebb")), url, &config, &["run", "--only", "events"])
}

/// SIGTERM, and a clean end in time.
async fn stop(mut node: Node) {
    node.term();
    let status = node.wait_within(SOON).await;
    assert!(status.success(), "{status}:\n{}", node.output());
}
