//! How a node is told what to do, and what one pass of it came to.

use std::time::Duration;

use super::Status;
use super::unit::Unit;
use super::work::Summary;
use crate::{Error, Result};

/// Which units a node works on: a policy, perhaps one chore of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The policy's name.
    pub policy: String,
    /// The chore's name.
    pub chore: Option<String>,
}

impl std::str::FromStr for Selector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (policy, chore) = match text.split_once(':') {
            Some((policy, chore)) => (policy, Some(chore.to_owned())),
            None => (text, None),
        };
        if policy.is_empty() || chore.as_deref() == Some("") {
            return Err(Error::usage(format!("{text:?} names no policy")).with_hint("write NAME or NAME:CHORE"));
        }
        Ok(Self { policy: policy.to_owned(), chore })
    }
}

impl Selector {
    pub(super) fn matches(&self, unit: &Unit) -> bool {
        self.policy == unit.policy && self.chore.as_deref().is_none_or(|chore| chore == unit.chore.as_str())
    }
}

/// How a node behaves.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Its name in leases, logs and `application_name`.
    pub name: String,
    /// How long a lease lasts without a heartbeat.
    pub lease: Duration,
    /// How long the current batches have when the node is told to stop.
    pub stop_within: Duration,
    /// How often policies and catalog are read again when nothing says that they changed: new partitions, dropped tables.
    pub poll: Duration,
    /// Only these units; all when empty.
    pub only: Vec<Selector>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            name: format!("node-{}", std::process::id()),
            lease: Duration::from_secs(60),
            stop_within: Duration::from_secs(5),
            poll: Duration::from_secs(60),
            only: Vec::new(),
        }
    }
}

/// What `run --once` came to.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Finished {
    /// Every run, in the order they ended.
    pub runs: Vec<Summary>,
    /// Units that somebody else held until the end of the wait: (unit, node).
    pub held: Vec<(String, String)>,
    /// Policies that were not run, and why: paused, or outside their window.
    pub resting: Vec<(String, String)>,
    /// Policies that were stopped, now or before, and why: nobody runs them until they are mended and applied.
    pub stopped: Vec<(String, String)>,
}

impl Finished {
    /// Whether any run failed or was stopped by its brake, or any policy is not run at all.
    pub fn has_failed(&self) -> bool {
        !self.stopped.is_empty() || self.runs.iter().any(|run| matches!(run.status, Status::Failed | Status::Braked))
    }
}
