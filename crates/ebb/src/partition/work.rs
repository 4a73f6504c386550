//! partition as the spine sees it: one [`Work`] for each policy, leased by one node at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sqlx::PgConnection;

use super::store::Look;
use super::upkeep::{Step, Upkeep};
use super::{Partitioned, partitioned, store};
use crate::Result;
use crate::gate;
use crate::pg::Database;
use crate::policy::{Expire, Mode, Partition, Period, Stored, human};
use crate::spine::pacing::Pacer;
use crate::spine::unit::{ChoreKind, Unit};
use crate::spine::work::{Prepared, Status, Summary, Work};
use crate::spine::{brake, metrics};
use crate::words::{plural, there_are};

const DAY: u64 = 86_400;

/// How long the partitions last.
fn seconds_left(look: &Look) -> u64 {
    look.runway_until.to_jiff().as_second().saturating_sub(look.now.to_jiff().as_second()).max(0) as u64
}

/// Whether they end so soon that others may have to wait for the next one: within a week, as the alarm has it, or a day.
fn is_short(look: &Look, by: Period) -> bool {
    seconds_left(look) < if by == Period::Day { DAY } else { 7 * DAY }
}

/// The upkeep of one policy's table.
pub(crate) struct PartitionWork {
    unit: Unit,
    policy: Arc<Partition>,
    stored: Stored,
    on: Partitioned,
    database: Database,
    /// For an expire policy: only lets go what is due as a whole; what is ahead is somebody else's.
    drops_only: bool,
}

impl PartitionWork {
    /// Looks the table up; an error of configuration when the policy cannot be about it.
    pub(crate) async fn find(database: &Database, policy: Partition, stored: &Stored) -> Result<Self> {
        let mut tx = database.read().await?;
        let on = partitioned(&mut tx, &policy).await?;
        tx.commit().await?;
        let leaf = on.table.relation.label();
        let unit = Unit { chore: ChoreKind::Partition, policy: policy.name.to_string(), leaf };
        Ok(Self {
            unit,
            policy: policy.into(),
            stored: stored.clone(),
            on,
            database: database.clone(),
            drops_only: false,
        })
    }

    /// For an expire policy over a table that is partitioned by the policy's own column: a partition that is due as a
    /// whole goes as one. `None` where rows must be looked at one by one: a filter, a record a row, columns to set.
    pub(crate) async fn of_expire(
        connection: &mut PgConnection,
        database: &Database,
        expire: &Expire,
        stored: &Stored,
    ) -> Result<Option<Self>> {
        let Some(policy) = Partition::of_expire(expire) else { return Ok(None) };
        let on = match partitioned(connection, &policy).await {
            Ok(on) => on,
            Err(error) if error.is_config() => return Ok(None),
            Err(error) => return Err(error),
        };
        // Whoever may only delete rows goes on deleting rows.
        if !store::may_drop(connection, on.table.oid, policy.role.as_deref()).await? {
            return Ok(None);
        }
        let unit = Unit { chore: ChoreKind::Expire, policy: expire.name.to_string(), leaf: on.table.relation.label() };
        let (policy, stored, database) = (policy.into(), stored.clone(), database.clone());
        Ok(Some(Self { unit, policy, stored, on, database, drops_only: true }))
    }

    /// The partitions that are due as a whole now, or on their way out: no row of theirs is worth a look.
    pub(crate) async fn whole(&self, connection: &mut PgConnection) -> Result<Vec<u32>> {
        let look = store::look(connection, &self.policy, &self.on).await?;
        let held = gate::look(connection, &self.unit.policy).await?;
        let mut whole = Vec::new();
        for oid in look.expired {
            // One that a hold keeps is gone through row by row, like those that are not due as a whole.
            if let Some(place) = store::place(connection, oid).await?
                && !gate::may_be_held(connection, &held, &place.relation()).await?
            {
                whole.push(oid);
            }
        }
        let whole = store::beneath(connection, &whole).await?;
        Ok(whole.into_iter().map(|oid| oid as u32).collect())
    }

    async fn start(&self, connection: &mut PgConnection) -> Result<Prepared> {
        let on = partitioned(connection, &self.policy).await?;
        gate::follow_one(connection, &self.unit.policy, &self.policy.table).await?;
        let look = store::look(connection, &self.policy, &on).await?;
        let mut steps = VecDeque::new();
        if !self.drops_only {
            self.show_runway(connection, &look).await?;
            steps.extend(std::iter::repeat_n(Step::Add, look.missing.max(0) as usize));
            store::inherit(connection, self.policy.name.as_str(), &on.table.relation).await?;
        }
        let missing = store::settle(connection, self.policy.name.as_str()).await?;
        steps.extend(missing.into_iter().map(Step::Missing));
        let leaving = store::leaving(connection, &self.policy, &on).await?;
        let known = |oid: &i64| leaving.iter().any(|leaving| leaving.oid == *oid);
        let expired: Vec<i64> = look.expired.iter().copied().filter(|oid| !known(oid)).collect();
        if self.policy.mode == Mode::Observe {
            return Ok(self.observed(&look, on, steps, expired.len()));
        }
        // A detach that somebody else began and lost keeps all others from leaving, and its period without a partition that
        // takes rows: it is ended, whoever began it, and a partition for its period made.
        let lost = look.pending.iter().copied().filter(|oid| !known(oid) && !expired.contains(oid));
        for oid in lost {
            steps.push_back(Step::Finalize { oid, is_ours: false });
            if !self.drops_only {
                steps.push_back(Step::Add);
            }
        }
        // While one is on its way out no other can begin to leave: it goes first.
        let (ending, others): (Vec<_>, Vec<_>) = leaving.iter().partition(|one| one.pending);
        for one in ending.into_iter().chain(others) {
            match (one.state.as_str(), one.name()) {
                // What was decided before a crash is decided again: `keep` may be longer by now.
                ("detaching", Some(_)) if !one.pending && one.attached => steps.push_back(Step::Decide(one.oid)),
                ("detaching", _) => {
                    if one.pending {
                        steps.push_back(Step::Finalize { oid: one.oid, is_ours: true });
                    }
                    steps.push_back(Step::Detach(one.oid));
                }
                (_, None) => steps.push_back(Step::Drop(one.oid)),
                _ if one.due => steps.push_back(Step::Drop(one.oid)),
                _ => {}
            }
        }
        let mut due = None;
        if !expired.is_empty() {
            let (rows, share) = store::weigh(connection, &on, &expired).await?;
            due = Some(rows);
            let total = if share > 0.0 { rows as f64 / share } else { rows as f64 };
            if let Some(limit) = brake::exceeded(&self.policy.brake, rows as f64, total, "rows") {
                let allowed = brake::allowance(connection, &self.unit.policy).await?;
                if allowed.is_none_or(|allowed| allowed < rows) {
                    brake::trip(connection, &self.unit.policy, rows, &limit).await?;
                    return Ok(self.braked(&look, on, steps, rows, &limit));
                }
            } else {
                brake::release(connection, &self.unit.policy).await?;
            }
            let (ending, others): (Vec<_>, Vec<_>) = expired.into_iter().partition(|oid| look.pending.contains(oid));
            steps.extend(ending.into_iter().chain(others).map(Step::Decide));
        }
        if steps.is_empty() {
            return Ok(Prepared::Idle);
        }
        Ok(self.go(&look, on, steps, due))
    }

    fn go(&self, look: &Look, on: Partitioned, steps: VecDeque<Step>, due: Option<u64>) -> Prepared {
        let (policy, stored, database) = (self.policy.clone(), self.stored.clone(), self.database.clone());
        let chore = Box::new(Upkeep {
            policy,
            stored,
            on,
            database,
            steps,
            is_urgent: is_short(look, self.policy.by),
            tries: 0,
            failed: None,
            is_over: false,
            made: 0,
            dropped: 0,
            kept: 0,
            kept_by: None,
            ended: Vec::new(),
            stuck: Vec::new(),
            missing: Vec::new(),
        });
        Prepared::Go { chore, pacer: Pacer::fixed(1, Duration::ZERO), due }
    }

    /// Observing deletes nothing; what is missing ahead is made all the same.
    fn observed(&self, look: &Look, on: Partitioned, steps: VecDeque<Step>, expired: usize) -> Prepared {
        if !steps.is_empty() {
            return self.go(look, on, steps, None);
        }
        if expired == 0 {
            return Prepared::Idle;
        }
        let note = format!("{} expired; mode = \"observe\" drops nothing", there_are(expired, "partition"));
        Prepared::Ended { status: Status::Observed, due: expired as u64, note }
    }

    /// Too much would go: it asks first. What is missing ahead is made all the same.
    fn braked(&self, look: &Look, on: Partitioned, steps: VecDeque<Step>, rows: u64, limit: &str) -> Prepared {
        if !steps.is_empty() {
            return self.go(look, on, steps, Some(rows));
        }
        brake::asks(&self.unit.policy, rows, limit, &format!("{rows} rows of expired partitions"))
    }

    async fn show_runway(&self, connection: &mut PgConnection, look: &Look) -> Result<()> {
        let (until, seconds) = (look.runway_until.to_jiff(), seconds_left(look));
        metrics::runway(&self.unit.leaf, seconds);
        let whole_days = Duration::from_secs(seconds / DAY * DAY);
        let words = format!(
            "{}, the last one ahead ends {} ({} from now)",
            plural(look.partitions, "partition"),
            until.strftime("%Y-%m-%d"),
            human(whole_days)
        );
        store::note_runway(connection, &self.unit.to_string(), &words).await
    }

    async fn look_after(&self, database: &Database, summary: &Summary) -> Result<()> {
        let mut tx = database.read().await?;
        if summary.rows > 0 {
            brake::spend(&mut tx, &self.unit.policy, summary.rows).await?;
        }
        let look = store::look(&mut tx, &self.policy, &self.on).await?;
        if !self.drops_only {
            self.show_runway(&mut tx, &look).await?;
            if look.missing > 0 {
                let until = look.runway_until.to_jiff().to_string();
                tracing::error!(policy = %self.policy.name, table = self.unit.leaf, missing = look.missing, until,
                    "Partitions are missing ahead; inserts fail when the last one ends");
            }
        }
        if summary.status == Status::Failed {
            let mut tables = look.expired;
            tables.push(i64::from(self.on.table.oid));
            if let Some(who) = store::in_the_way(&mut tx, &tables).await? {
                tracing::warn!(policy = %self.policy.name, table = self.unit.leaf, who, "Perhaps in the way");
            }
        }
        tx.commit().await?;
        Ok(())
    }
}

impl Work for PartitionWork {
    fn unit(&self) -> &Unit {
        &self.unit
    }

    fn stored(&self) -> Option<&Stored> {
        Some(&self.stored)
    }

    fn leaf(&self) -> u32 {
        self.on.table.oid
    }

    fn timeout(&self) -> Duration {
        self.policy.batch_timeout
    }

    fn interval(&self) -> Duration {
        self.policy.cadence.interval()
    }

    fn closed_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.policy.window.as_ref()?.closed_until(now, self.policy.zone.rules())
    }

    fn next_at(&self, now: Timestamp, _: u64) -> Timestamp {
        let next = self.policy.cadence.next_after(now, self.policy.zone.rules());
        self.closed_until(next).unwrap_or(next)
    }

    fn prepare<'a>(&'a self, connection: &'a mut PgConnection) -> BoxFuture<'a, Result<Prepared>> {
        self.start(connection).boxed()
    }

    fn after_run<'a>(&'a self, database: &'a Database, summary: &'a Summary) -> BoxFuture<'a, Result<()>> {
        self.look_after(database, summary).boxed()
    }

    fn report(&self, summary: &Summary) {
        let (policy, table, status) = (&summary.policy, &summary.table, summary.status.as_str());
        let duration = human(Duration::from_millis(summary.took.as_millis() as u64));
        let note = summary.note.as_deref().unwrap_or_default();
        match summary.status {
            Status::Success | Status::Stopped => {
                tracing::info!(
                    policy,
                    table,
                    rows_dropped = summary.rows,
                    steps = summary.batches,
                    duration,
                    status,
                    reason = note,
                    "Looked after partitions"
                );
            }
            Status::Failed => {
                tracing::error!(
                    policy,
                    table,
                    error = note,
                    steps = summary.batches,
                    status,
                    "Failed to look after partitions"
                );
            }
            Status::Braked => {
                tracing::warn!(policy, table, due = summary.due, status, reason = note, "Stopped by the brake")
            }
            Status::Observed => tracing::info!(policy, table, status, reason = note, "Observed what is expired"),
        }
    }
}
