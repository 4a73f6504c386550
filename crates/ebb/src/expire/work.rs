//! expire as the spine sees it: one [`Work`] per leaf of a policy's table.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sqlx::PgConnection;

use super::brake::{self, Verdict};
use super::{Sweep, store};
use crate::audit::{self, SubjectKey};
use crate::gate::{self, Above};
use crate::pg::Database;
use crate::pg::catalog::{self, Leaf, Table};
use crate::policy::anchor;
use crate::policy::{AuditDetail, Cadence, Expire, Mode, Stored, human};
use crate::spine::unit::Unit;
use crate::spine::work::{Prepared, Status, Summary, Work};
use crate::words::there_are;
use crate::{Error, Result, spine};

/// One look at the brake counts for all leaves of a table that start within this time, once for each.
const BRAKE_COUNTS_FOR: Duration = Duration::from_secs(30);
/// How often, and how far apart, the count of VACUUMs is looked at after one.
const VACUUM_LOOKS: u32 = 10;
const VACUUM_LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Rows per pass that the plain interval is meant for; more than that, and the next pass comes sooner.
const ROWS_PER_INTERVAL: f64 = 10_000.0;

/// What all leaves of one policy share.
pub(crate) struct Shared {
    pub(crate) policy: Arc<Expire>,
    /// As it is in the database; none for Ebb's own tables.
    pub(crate) stored: Option<Stored>,
    pub(crate) table: Table,
    pub(crate) subject_key: Option<Arc<SubjectKey>>,
    /// The latest look at the brake, and the leaves that it was used for.
    pub(crate) last_verdict: Mutex<Option<(Instant, Verdict, Vec<u32>)>>,
}

/// One leaf of a policy's table.
pub(crate) struct ExpireWork {
    pub(crate) unit: Unit,
    pub(crate) leaf: Leaf,
    pub(crate) shared: Arc<Shared>,
}

impl ExpireWork {
    fn policy(&self) -> &Arc<Expire> {
        &self.shared.policy
    }

    async fn start(&self, connection: &mut PgConnection) -> Result<Prepared> {
        let Some((table, leaf)) = self.still_there(connection).await? else { return Ok(Prepared::Idle) };
        let policy = self.policy();
        let mut apart_from = None;
        if let Some(stored) = &self.shared.stored {
            anchor::holds(connection, &stored.policy()?).await?;
            apart_from = Some(gate::takes_nothing_kept(connection, stored, table.oid).await?);
            gate::follow_one(connection, &stored.name, &policy.table).await?;
        }
        let key = self.shared.subject_key.clone();
        if policy.audit == AuditDetail::Rows && key.is_none() {
            // Another node may have it: this run fails, the policy goes on.
            return Err(Error::refused(format!(
                "policy {} records rows, and this node has no subject key",
                policy.name
            ))
            .with_hint("set subject_key in [audit] to the key that the other nodes have"));
        }
        if let Some(key) = key.as_ref().filter(|_| policy.audit == AuditDetail::Rows) {
            audit::use_subject_key(connection, key).await?;
        }
        let mut sweep = Sweep::prepare(connection, policy.clone(), &table, &leaf, key).await?;
        if let Some(apart_from) = apart_from {
            let above = Above::of(connection, leaf.oid).await?;
            above.none_strayed(connection).await?;
            sweep = sweep.gated(above, apart_from);
        }
        if policy.mode == Mode::Observe {
            let due = store::count_due_in_leaf(connection, sweep.target(), i64::MAX as u64).await?;
            let note = format!("{} due; mode = \"observe\" deletes nothing", there_are(due, "row"));
            return Ok(Prepared::Ended { status: Status::Observed, due, note });
        }
        let mut due = None;
        if self.shared.stored.is_some() {
            let verdict = self.brake(connection, &table, sweep.target()).await?;
            if let Some(limit) = &verdict.exceeded {
                return self.braked(connection, &table, &verdict, limit, sweep).await;
            }
            due = Some(verdict.due);
        }
        let pacer = sweep.pacer();
        Ok(Prepared::Go { chore: Box::new(sweep), pacer, due })
    }

    /// The table as it is now; `None` when this leaf is no longer part of it.
    async fn still_there(&self, connection: &mut PgConnection) -> Result<Option<(Table, Leaf)>> {
        let table = match self.shared.stored {
            Some(_) => catalog::table(connection, &self.policy().table).await?,
            None => self.shared.table.clone(),
        };
        let leaves = catalog::leaves(connection, table.oid).await?;
        Ok(leaves.into_iter().find(|leaf| leaf.oid == self.leaf.oid).map(|leaf| (table, leaf)))
    }

    async fn brake(&self, connection: &mut PgConnection, table: &Table, target: &store::Target) -> Result<Verdict> {
        if let Some((at, verdict, used_for)) =
            &mut *self.shared.last_verdict.lock().unwrap_or_else(PoisonError::into_inner)
            && at.elapsed() < BRAKE_COUNTS_FOR
            && verdict.exceeded.is_none()
            && !used_for.contains(&self.leaf.oid)
        {
            used_for.push(self.leaf.oid);
            return Ok(verdict.clone());
        }
        let mut pages = 0;
        for leaf in catalog::leaves(connection, table.oid).await? {
            pages += store::pages_now(connection, leaf.oid).await?;
        }
        let verdict = brake::check(connection, &self.policy().brake, &table.relation, target, pages).await?;
        if verdict.exceeded.is_none() {
            spine::brake::release(connection, &self.unit.policy).await?;
        }
        *self.shared.last_verdict.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), verdict.clone(), vec![self.leaf.oid]));
        Ok(verdict)
    }

    /// Over the limit: with a large enough allowance it goes on, otherwise it asks.
    async fn braked(
        &self,
        connection: &mut PgConnection,
        table: &Table,
        verdict: &Verdict,
        limit: &str,
        sweep: Sweep,
    ) -> Result<Prepared> {
        let allowed = spine::brake::allowance(connection, &self.unit.policy).await?;
        let mut due = verdict.due;
        // What was allowed was an estimate, and the next estimate is another: count before saying no again.
        if let Some(rows) = allowed
            && !verdict.exact
        {
            due = store::count_due(connection, &table.relation, sweep.target(), rows + 1).await?.max(1);
        }
        if allowed.is_some_and(|rows| rows >= due) {
            let pacer = sweep.pacer();
            return Ok(Prepared::Go { chore: Box::new(sweep), pacer, due: Some(due) });
        }
        let due = verdict.due.max(due);
        spine::brake::trip(connection, &self.unit.policy, due, limit).await?;
        Ok(spine::brake::asks(&self.unit.policy, due, limit, &format!("about {due} rows")))
    }

    async fn look_after(&self, database: &Database, summary: &Summary) -> Result<()> {
        if summary.rows == 0 {
            return Ok(());
        }
        if self.shared.stored.is_some() {
            let mut tx = database.read().await?;
            spine::brake::spend(&mut tx, &self.unit.policy, summary.rows).await?;
            tx.commit().await?;
        }
        // A tenth of the table is gone: the space and the statistics are worth a pass.
        if summary.rows.saturating_mul(10) < self.leaf.rows || summary.rows < 1_000 {
            return Ok(());
        }
        let mut tx = database.read().await?;
        let permitted = store::may_vacuum(&mut tx, self.leaf.oid).await?;
        let before = store::vacuums(&mut tx, self.leaf.oid).await?;
        tx.commit().await?;
        let result = match permitted {
            true => {
                let mut session = database.session("ebb/vacuum").await?;
                store::vacuum(&mut session, &self.leaf.relation).await?;
                match self.was_vacuumed(database, before).await? {
                    true => "done".to_owned(),
                    false => "skipped: somebody held the table; autovacuum or the next purge does it".to_owned(),
                }
            }
            false => format!("not permitted: VACUUM needs the owner ({}) or MAINTAIN", self.shared.table.owner),
        };
        let mut tx = database.read().await?;
        store::note_vacuum(&mut tx, &self.unit.to_string(), &result).await?;
        tx.commit().await?;
        Ok(())
    }
}

impl ExpireWork {
    /// Whether the count of VACUUMs has grown: one that is skipped is only a warning. Before 15 it grows with a delay.
    async fn was_vacuumed(&self, database: &Database, before: Option<i64>) -> Result<bool> {
        for look in 0..VACUUM_LOOKS {
            if look > 0 {
                tokio::time::sleep(VACUUM_LOOK_AGAIN).await;
            }
            let mut tx = database.read().await?;
            let now = store::vacuums(&mut tx, self.leaf.oid).await?;
            tx.commit().await?;
            if now.is_none() || now > before {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Work for ExpireWork {
    fn unit(&self) -> &Unit {
        &self.unit
    }

    fn stored(&self) -> Option<&Stored> {
        self.shared.stored.as_ref()
    }

    fn leaf(&self) -> u32 {
        self.leaf.oid
    }

    fn timeout(&self) -> Duration {
        self.policy().batch_timeout
    }

    fn interval(&self) -> Duration {
        self.policy().cadence.interval()
    }

    fn closed_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.policy().window.as_ref()?.closed_until(now, self.policy().zone.rules())
    }

    fn next_at(&self, now: Timestamp, found: u64) -> Timestamp {
        let policy = self.policy();
        let next = match policy.cadence {
            Cadence::Every(every) => now.saturating_add(sooner(every, found)).unwrap_or(Timestamp::MAX),
            Cadence::At(_) => policy.cadence.next_after(now, policy.zone.rules()),
        };
        self.closed_until(next).unwrap_or(next)
    }

    fn first_at(&self, now: Timestamp) -> Option<Timestamp> {
        matches!(self.policy().cadence, Cadence::At(_)).then(|| self.next_at(now, 0))
    }

    fn prepare<'a>(&'a self, connection: &'a mut PgConnection) -> BoxFuture<'a, Result<Prepared>> {
        self.start(connection).boxed()
    }

    fn after_run<'a>(&'a self, database: &'a Database, summary: &'a Summary) -> BoxFuture<'a, Result<()>> {
        self.look_after(database, summary).boxed()
    }

    fn report(&self, summary: &Summary) {
        report(summary);
    }
}

/// A backlog that grows is swept sooner, up to six times.
fn sooner(every: Duration, found: u64) -> Duration {
    let factor = (ROWS_PER_INTERVAL / found.max(1) as f64).clamp(1.0 / 6.0, 1.0);
    every.mul_f64(factor)
}

fn report(summary: &Summary) {
    let (policy, table, status) = (&summary.policy, &summary.table, summary.status.as_str());
    let duration = human(Duration::from_millis(summary.took.as_millis() as u64));
    let note = summary.note.as_deref().unwrap_or_default();
    match summary.status {
        Status::Success if summary.rows == 0 => {
            tracing::debug!(
                policy,
                table,
                rows_deleted = 0,
                batches_completed = summary.batches,
                duration,
                status,
                "Cleaned up expired rows"
            );
        }
        Status::Success => {
            tracing::info!(
                policy,
                table,
                rows_deleted = summary.rows,
                batches_completed = summary.batches,
                skipped = summary.skipped,
                duration,
                status,
                note = summary.note,
                "Cleaned up expired rows"
            );
        }
        Status::Failed => {
            tracing::error!(
                policy,
                table,
                error = note,
                rows_deleted_before_error = summary.rows,
                batches_completed = summary.batches,
                status,
                "Failed to clean up expired rows"
            );
        }
        Status::Stopped => {
            tracing::info!(
                policy,
                table,
                rows_deleted = summary.rows,
                batches_completed = summary.batches,
                duration,
                status,
                reason = note,
                "Stopped before the end; the rest goes next time"
            );
        }
        Status::Braked => {
            tracing::warn!(policy, table, due = summary.due, status, reason = note, "Stopped by the brake")
        }
        Status::Observed => tracing::info!(policy, table, due = summary.due, status, "Observed what is due"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_backlog_is_swept_sooner_within_bounds() {
        let hour = Duration::from_secs(3600);
        assert_eq!(sooner(hour, 0), hour);
        assert_eq!(sooner(hour, 10_000), hour);
        assert_eq!(sooner(hour, 20_000), hour / 2);
        assert_eq!(sooner(hour, 10_000_000), hour / 6);
    }
}
