//! Events on a real server: never early, never lost, never twice by a node that lives, in order, however late.

mod calendar;
mod catch_up;
mod deliver;
mod wake;
mod write;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebb::Engine;
use ebb::schedule::sink::{Delivery, Sink, Verdict};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use uuid::Uuid;

use crate::harness::{Ebb, Running, run_once};

/// A sink of the test: remembers what it got and answers as it was told.
#[derive(Clone, Default)]
pub(super) struct Ledger {
    got: Arc<Mutex<Vec<Delivery>>>,
    answers: Arc<Mutex<Vec<Verdict>>>,
    takes: Arc<Mutex<Duration>>,
}

impl Ledger {
    pub(super) fn got(&self) -> Vec<Delivery> {
        self.got.lock().unwrap().clone()
    }

    pub(super) fn count(&self) -> usize {
        self.got.lock().unwrap().len()
    }

    /// The payloads' numbers `n`, as they came.
    pub(super) fn numbers(&self) -> Vec<i64> {
        let number = |delivery: &Delivery| {
            let payload: serde_json::Value = serde_json::from_str(delivery.payload.get()).unwrap();
            payload["n"].as_i64().unwrap()
        };
        self.got().iter().map(number).collect()
    }

    /// What it answers next, in turn; afterwards it takes everything.
    pub(super) fn answer(&self, verdicts: impl IntoIterator<Item = Verdict>) {
        self.answers.lock().unwrap().extend(verdicts);
    }

    /// From now on it takes everything.
    pub(super) fn recover(&self) {
        self.answers.lock().unwrap().clear();
    }

    /// How long each call takes.
    pub(super) fn take(&self, time: Duration) {
        *self.takes.lock().unwrap() = time;
    }
}

impl Sink for Ledger {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Verdict> {
        async move {
            self.got.lock().unwrap().push(delivery.clone());
            let takes = *self.takes.lock().unwrap();
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
            let mut answers = self.answers.lock().unwrap();
            if answers.is_empty() { Verdict::Delivered { response: None } } else { answers.remove(0) }
        }
        .boxed()
    }
}

/// An engine whose sink `h` is a ledger.
pub(super) struct Desk {
    pub(super) ebb: Ebb,
    pub(super) engine: Engine,
    pub(super) ledger: Ledger,
}

impl Desk {
    pub(super) async fn new() -> Self {
        Self::with("").await
    }

    /// With more in ebb.toml; keys of the sink come first.
    pub(super) async fn with(more: &str) -> Self {
        let ebb = Ebb::new().await;
        ebb.apply(&format!("[sinks.h]\ntype = \"handler\"\n{more}")).await;
        let ledger = Ledger::default();
        let engine = ebb.engine.clone().on("h", ledger.clone());
        Self { ebb, engine, ledger }
    }

    /// Another engine on the same database, with a ledger of its own, as another process would have it.
    pub(super) fn another(&self) -> (Engine, Ledger) {
        let ledger = Ledger::default();
        (self.ebb.another(self.ebb.db.open()).on("h", ledger.clone()), ledger)
    }

    /// Schedules through SQL.
    pub(super) async fn schedule(&self, due: &str, n: i64, more: &str) -> Uuid {
        self.ebb.db.scalar(&format!("SELECT ebb.schedule('h', {due}, '{{\"n\": {n}}}'{more})")).await
    }

    /// Delivers what is due, as `ebb run --once --only events`.
    pub(super) async fn once(&self) {
        run_once(&self.engine, &["events"]).await.unwrap();
    }

    pub(super) fn start(&self) -> Running {
        Running::new(&self.engine, &["events"])
    }

    pub(super) async fn state(&self, id: Uuid) -> String {
        self.ebb.db.scalar(&format!("SELECT string_agg(state, ',') FROM ebb.v_events WHERE occurrence = '{id}'")).await
    }

    pub(super) async fn count(&self, sql: &str) -> i64 {
        self.ebb.db.scalar(&format!("SELECT count(*) FROM {sql}")).await
    }
}
