//! The duty as a node sees it: a service that every node runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::watch;

use super::desk::Desk;
use super::sink::Surroundings;
use super::{Handlers, POLICY};
use crate::Result;
use crate::policy::{self, Events, Stored, Term};
use crate::spine::service::{Service, Station};
use crate::spine::unit::{ChoreKind, Unit};
use crate::spine::work::Summary;

/// What the policies say about events.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) sinks: Vec<(policy::Sink, Stored)>,
    /// Events, as some will be, that a sink (by its name) must have words for.
    pub(crate) samples: HashMap<String, Vec<Value>>,
    pub(crate) events: Events,
    /// How long history is kept.
    pub(crate) keep: Term,
}

/// Delivers events on one node.
pub(crate) struct Dispatch {
    unit: Unit,
    setup: watch::Sender<Option<Setup>>,
    handlers: Arc<Handlers>,
    surroundings: Arc<Surroundings>,
}

impl Dispatch {
    pub(crate) fn new(handlers: Arc<Handlers>, surroundings: Arc<Surroundings>) -> Self {
        let unit = Unit { chore: ChoreKind::Schedule, policy: POLICY.into(), leaf: "ebb.event".into() };
        Self { unit, setup: watch::channel(None).0, handlers, surroundings }
    }

    /// The policies were read.
    pub(crate) fn follow(&self, setup: Setup) {
        self.setup.send_replace(Some(setup));
    }

    fn desk(&self, station: Station, once: bool) -> Desk {
        Desk::new(station, self.setup.subscribe(), self.handlers.clone(), self.surroundings.clone(), once)
    }
}

impl Service for Dispatch {
    fn unit(&self) -> &Unit {
        &self.unit
    }

    fn channel(&self) -> &'static str {
        "ebb_events"
    }

    fn run(self: Arc<Self>, station: Station) -> BoxFuture<'static, ()> {
        async move {
            if let Err(error) = self.desk(station, false).work().await {
                tracing::error!(error = %error, "The dispatcher of events has ended");
            }
        }
        .boxed()
    }

    fn run_once(self: Arc<Self>, station: Station) -> BoxFuture<'static, Result<Summary>> {
        async move {
            let started = Instant::now();
            let tally = self.desk(station, true).work().await?;
            Ok(Summary {
                unit: self.unit.to_string(),
                policy: self.unit.policy.clone(),
                table: self.unit.leaf.clone(),
                status: tally.status(),
                rows: tally.counts().done,
                batches: tally.claims(),
                skipped: tally.counts().skipped,
                failed: 0,
                due: None,
                took: started.elapsed(),
                note: tally.note(),
            })
        }
        .boxed()
    }
}
