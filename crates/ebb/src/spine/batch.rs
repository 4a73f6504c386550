//! One transaction of a unit. Invariants: it begins by locking the lease it belongs to (no row, no batch); rows, time
//! and lock wait are bounded; what it changed and the record of it commit together or not at all; it ends under the terms
//! that it began with, or changes nothing.

use std::pin::pin;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Transaction};
use tokio::sync::{Barrier, watch};
use uuid::Uuid;

use super::store;
use super::unit::Unit;
use crate::pg::{Database, Guard};
use crate::{Error, Result};

/// What a run is known by: every statement on its behalf names these.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) unit: Unit,
    pub(crate) holder: Uuid,
    pub(crate) node: String,
    pub(crate) generation: i64,
    pub(crate) policy_version: i64,
}

/// The server process that a batch is in, and what the batch's transaction is called there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) pid: i32,
    pub(crate) name: String,
}

/// A transaction that holds the lease's row until it ends.
pub(crate) struct Batch {
    tx: Transaction<'static, Postgres>,
    pub(crate) claim: Claim,
    pub(crate) run: i64,
    /// How much to do, in the chore's own measure (rows or pages).
    pub(crate) size: u64,
    /// The server ends it when it hears nothing for so long.
    idle: Duration,
}

impl Batch {
    /// Begins the transaction and takes the fence; an error that `is_fenced` when the lease is somebody else's, one
    /// that `is_superseded` when the policy has changed: what it said when the run began does not count.
    pub(crate) async fn begin(
        database: &Database,
        claim: &Claim,
        run: i64,
        size: u64,
        timeout: Duration,
        backends: &watch::Sender<Vec<Backend>>,
    ) -> Result<Batch> {
        let guard = Guard { statement: timeout, ..Guard::default() };
        let mut tx = database.begin(guard).await?;
        let name = crate::pg::Literal(&application_name(&claim.node, &claim.unit)).to_string();
        sqlx::raw_sql(AssertSqlSafe(format!("SET LOCAL application_name = {name}"))).execute(&mut *tx).await?;
        let (backend, current) = store::fence(&mut tx, claim, run != 0).await?.ok_or_else(|| fenced(claim))?;
        if !current {
            return Err(superseded(claim));
        }
        backends.send_modify(|backends| backends.push(backend));
        Ok(Batch { tx, claim: claim.clone(), run, size, idle: guard.idle() })
    }

    /// The connection to act on.
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    /// Takes everything back, and has let go of its locks when it returns: what is tried again would else be passed by.
    pub(crate) async fn roll_back(self) {
        if let Err(error) = self.tx.rollback().await {
            tracing::debug!(unit = %self.claim.unit, error = %error, "Could not roll back; the connection's end does");
        }
    }

    /// Commits what came before the first batch.
    pub(crate) async fn commit_plain(self) -> Result<()> {
        self.tx.commit().await?;
        Ok(())
    }

    /// Counts the batch and commits; an error that `is_superseded` when the policy was changed meanwhile, or is just being, or
    /// goes by a column that took the name of another.
    pub(crate) async fn commit(mut self, rows: u64, cutoff: Option<Timestamp>, shape: Option<&str>) -> Result<()> {
        let counted = (self.run, rows);
        if store::progress(&mut self.tx, &self.claim, counted, cutoff, shape).await? {
            return Ok(self.tx.commit().await?);
        }
        let superseded = superseded(&self.claim);
        self.roll_back().await;
        Err(superseded)
    }
}

/// Work in each of two transactions at a time. Whichever is done first stays awake until the other is, too: a node that does not run
/// any more says nothing, and loses both.
pub(crate) async fn side_by_side<A, B>(
    (one, first): (&mut Batch, impl AsyncFnOnce(&mut Batch) -> Result<A>),
    (other, second): (&mut Batch, impl AsyncFnOnce(&mut Batch) -> Result<B>),
) -> (Result<A>, Result<B>) {
    let both = Barrier::new(2);
    tokio::join!(beside(one, first, &both), beside(other, second, &both))
}

async fn beside<T>(batch: &mut Batch, work: impl AsyncFnOnce(&mut Batch) -> Result<T>, both: &Barrier) -> Result<T> {
    let done = work(&mut *batch).await;
    let mut both = pin!(both.wait());
    loop {
        tokio::select! {
            _ = &mut both => return done,
            () = tokio::time::sleep(batch.idle / 3), if done.is_ok() => {
                sqlx::raw_sql("SELECT").execute(batch.connection()).await?;
            }
        }
    }
}

/// Ends a transaction in which there is nothing to do: it would only wait.
pub(crate) async fn let_go(batch: &mut Option<Batch>) {
    if let Some(batch) = batch.take() {
        batch.roll_back().await;
    }
}

/// Begins a transaction for what is written about a run: under the same fence as its batches, whatever the policy.
pub(crate) async fn under_lease(database: &Database, claim: &Claim) -> Result<Transaction<'static, Postgres>> {
    let mut tx = database.read().await?;
    store::fence(&mut tx, claim, false).await?.ok_or_else(|| fenced(claim))?;
    Ok(tx)
}

/// `ebb/<node>/<unit>`, within PostgreSQL's 63 bytes.
pub(crate) fn application_name(node: &str, unit: &Unit) -> String {
    let mut name = format!("ebb/{node}/{unit}");
    while name.len() > 63 {
        name.pop();
    }
    name
}

fn superseded(claim: &Claim) -> Error {
    Error::superseded(format!("policy {} was changed", claim.unit.policy))
}

fn fenced(claim: &Claim) -> Error {
    Error::fenced(format!("unit {} belongs to another holder by now", claim.unit))
}
