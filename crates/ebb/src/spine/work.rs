//! What the spine asks of a duty: which units there are, how a run of one starts, when it is due again, what to say
//! about it. The spine knows no duty by name; the engine hands it a [`Roster`].

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sqlx::PgConnection;

use super::Chore;
use super::pacing::Pacer;
use super::service::Service;
use super::unit::Unit;
use crate::pg::Database;
use crate::policy::{self, Pacing, Stored};
use crate::{Error, Result};

/// How a run starts.
pub(crate) enum Prepared {
    /// There is nothing to do, and nothing to say about it.
    Idle,
    /// It ends before its first batch: observed, or stopped by the brake.
    Ended { status: Status, due: u64, note: String },
    /// Batches until there is no more.
    Go { chore: Box<dyn Chore>, pacer: Pacer, due: Option<u64> },
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Everything due is done.
    Success,
    /// It failed and will be tried again.
    Failed,
    /// It was told to stop: a shutdown, a closed window.
    Stopped,
    /// The brake stopped it before its first batch.
    Braked,
    /// It only looked.
    Observed,
}

impl Status {
    /// Its name in `ebb.run` and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Success => "success",
            Status::Failed => "failed",
            Status::Stopped => "stopped",
            Status::Braked => "braked",
            Status::Observed => "observed",
        }
    }
}

/// What a run came to.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Summary {
    /// `chore/policy/table`.
    pub unit: String,
    /// The policy's name.
    pub policy: String,
    /// The table.
    pub table: String,
    /// How it ended.
    pub status: Status,
    /// Rows changed.
    pub rows: u64,
    /// Batches committed.
    pub batches: u64,
    /// Due rows, or subjects, that others held.
    pub skipped: u64,
    /// Due subjects that could not be erased.
    pub failed: u64,
    /// Rows found due at the start, where that was looked at.
    pub due: Option<u64>,
    /// How long it took.
    #[serde(serialize_with = "as_text")]
    pub took: Duration,
    /// Why it failed or stopped.
    pub note: Option<String>,
}

fn as_text<S: serde::Serializer>(took: &Duration, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&crate::policy::human(*took))
}

/// One unit, and everything the runner needs to know about it.
pub(crate) trait Work: Send + Sync {
    fn unit(&self) -> &Unit;
    /// The policy as it is in the database; none where the unit is Ebb's own.
    fn stored(&self) -> Option<&Stored> {
        None
    }
    fn policy_version(&self) -> i64 {
        self.stored().map_or(0, |stored| stored.version)
    }
    /// The leaf's oid, for signals about its table.
    fn leaf(&self) -> u32;
    /// The longest any statement of a batch may run.
    fn timeout(&self) -> Duration;
    /// The interval, as far as there is a fixed one: no retry comes later.
    fn interval(&self) -> Duration;
    /// When batches may start again; `None` when they may now.
    fn closed_until(&self, _now: Timestamp) -> Option<Timestamp> {
        None
    }
    /// When the unit is due again after a run that found so many rows.
    fn next_at(&self, now: Timestamp, found: u64) -> Timestamp;
    /// When a unit that has never run is due first, where that is not at once.
    fn first_at(&self, _now: Timestamp) -> Option<Timestamp> {
        None
    }
    /// Whether each run gets a line in the run history.
    fn keeps_history(&self) -> bool {
        true
    }
    /// Starts a run inside a fenced transaction.
    fn prepare<'a>(&'a self, connection: &'a mut PgConnection) -> BoxFuture<'a, Result<Prepared>>;
    /// Looks after the table once a run is over: statistics, dead tuples.
    fn after_run<'a>(&'a self, _database: &'a Database, _summary: &'a Summary) -> BoxFuture<'a, Result<()>> {
        async { Ok(()) }.boxed()
    }
    /// The policy itself is at fault (its table is gone, say): it stops, and nothing else does.
    fn stop_policy<'a>(&'a self, database: &'a Database, node: &'a str, error: &'a Error) -> BoxFuture<'a, Result<()>> {
        async move {
            match self.stored() {
                Some(stored) => stop(database, stored, node, error).await,
                None => Ok(()),
            }
        }
        .boxed()
    }
    /// Says in the log what the run came to.
    fn report(&self, summary: &Summary);
}

/// Stops a policy that cannot go on, and says so.
pub(crate) async fn stop(database: &Database, stored: &Stored, node: &str, error: &Error) -> Result<()> {
    let reason = match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    tracing::error!(policy = %stored.name, error = %error, hint = error.hint(),
        "Policy stopped; mend it and run `ebb apply`");
    let mut tx = database.read().await?;
    policy::store::stop(&mut tx, stored, &reason, node).await?;
    Ok(tx.commit().await?)
}

/// Everything there is to do at the moment.
pub(crate) struct Agenda {
    pub(crate) works: Vec<std::sync::Arc<dyn Work>>,
    pub(crate) pacing: Pacing,
}

/// Where the agenda comes from: the policies in the database.
pub(crate) trait Roster: Send + Sync {
    fn agenda<'a>(&'a self, database: &'a Database, node: &'a str) -> BoxFuture<'a, Result<Agenda>>;
    /// Looks at the backlog about once a minute, for gauges and samples; changes nothing that work depends on.
    fn observe<'a>(&'a self, database: &'a Database) -> BoxFuture<'a, Result<()>>;
    /// What the node runs beside its units.
    fn services(&self) -> Vec<std::sync::Arc<dyn Service>> {
        Vec::new()
    }
}
