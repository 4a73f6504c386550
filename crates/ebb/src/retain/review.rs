//! The review: once a week the audit is asked whether anything went before its time, and what the rows of each policy
//! and tenant take is written down. Invariants: the question shares nothing with the code that erases; what was found once
//! is never forgotten; of the audit a batch sees so many records and the next goes on where it ended, in this run or in a
//! later one, with what was committed behind it meanwhile; a large table is sampled, so that a review costs no more than a look.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use sqlx::PgConnection;

use super::report::Span;
use super::store::{self, rows};
use crate::audit::Entry;
use crate::pg::{Database, Ident, catalog};
use crate::policy::{At, Policy, Stored};
use crate::spine::batch::Batch;
use crate::spine::pacing::Pacer;
use crate::spine::unit::{ChoreKind, Unit};
use crate::spine::work::{Prepared, Status, Summary, Work};
use crate::spine::{Chore, Outcome, metrics};
use crate::{Error, Result, policy};

const WEEK: Duration = Duration::from_secs(7 * 86_400);
/// So many records of the audit are looked at in a batch, and whatever was not committed yet when its place was passed.
const RECORDS: i64 = 10_000;
/// Of larger tables so many pages are sampled.
const SAMPLE_PAGES: u64 = 8_192;
/// Of what a batch finds so many are logged one by one; `ebb.premature` has all of them.
const LOGGED: usize = 100;
/// Of more tenants than this the largest are kept.
const MOST_TENANTS: usize = 1_000;

/// The weekly review.
pub(crate) struct ReviewWork {
    unit: Unit,
    table: u32,
    at: At,
}

impl ReviewWork {
    pub(crate) fn new(table: u32, at: At) -> Self {
        let unit = Unit { chore: ChoreKind::Audit, policy: "audit".into(), leaf: "ebb.audit".into() };
        Self { unit, table, at }
    }
}

impl Work for ReviewWork {
    fn unit(&self) -> &Unit {
        &self.unit
    }

    fn policy_version(&self) -> i64 {
        0
    }

    fn leaf(&self) -> u32 {
        self.table
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(45)
    }

    fn interval(&self) -> Duration {
        WEEK
    }

    fn closed_until(&self, _: Timestamp) -> Option<Timestamp> {
        None
    }

    fn next_at(&self, now: Timestamp, _: u64) -> Timestamp {
        self.at.next_after(now, &TimeZone::UTC)
    }

    fn first_at(&self, now: Timestamp) -> Option<Timestamp> {
        Some(self.next_at(now, 0))
    }

    fn prepare<'a>(&'a self, connection: &'a mut PgConnection) -> BoxFuture<'a, Result<Prepared>> {
        async move {
            // Also `run --once`, which asks every unit, reviews no more than once a week.
            let (waits, now, triggered) = store::review_due(connection, &self.unit.to_string()).await?;
            let due = match (waits.timestamp(), now.timestamp()) {
                (Some(waits), Some(now)) => self.next_at(waits, 0) <= now,
                _ => true,
            };
            if !due && !triggered {
                return Ok(Prepared::Idle);
            }
            let stored = policy::store::all(connection).await?;
            let mut steps = VecDeque::from([Step::Review]);
            steps.extend(stored.into_iter().filter(Stored::is_active).map(|stored| Step::Measure(Box::new(stored))));
            let chore = Box::new(Review { steps });
            Ok(Prepared::Go { chore, pacer: Pacer::fixed(1, Duration::ZERO), due: None })
        }
        .boxed()
    }

    fn after_run<'a>(&'a self, _: &'a Database, _: &'a Summary) -> BoxFuture<'a, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn stop_policy<'a>(&'a self, _: &'a Database, _: &'a str, _: &'a Error) -> BoxFuture<'a, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn report(&self, summary: &Summary) {
        match summary.status {
            Status::Failed => tracing::error!(error = summary.note, "Could not review the audit"),
            _ => tracing::info!(status = summary.status.as_str(), "Reviewed the audit"),
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Asks the audit about records that no review has seen.
    Review,
    /// Measures the table of a policy.
    Measure(Box<Stored>),
}

struct Review {
    steps: VecDeque<Step>,
}

impl Review {
    async fn step(&mut self, batch: &mut Batch) -> Result<Outcome> {
        let more = match self.steps.front().cloned() {
            Some(Step::Review) => review(batch).await?,
            Some(Step::Measure(stored)) => {
                measure(batch.connection(), &stored).await?;
                false
            }
            None => false,
        };
        self.steps.pop_front();
        if more {
            self.steps.push_front(Step::Review);
        }
        Ok(Outcome { changed: 0, more: !self.steps.is_empty() })
    }
}

/// Looks at what was erased since the last review, as far as one batch can, and remembers what should not have been.
/// Returns whether there is more.
async fn review(batch: &mut Batch) -> Result<bool> {
    let (run, node) = (batch.run, batch.claim.node.clone());
    let connection = batch.connection();
    let slice = store::review_slice(connection, RECORDS).await?;
    let span = Span::among((slice.reached, slice.upto), &slice.late);
    let premature = store::report_premature(connection, span).await?;
    let swept_early = store::report_swept_early(connection, span).await?;
    let stuck: i64 =
        store::stuck(connection, super::erase::ATTEMPTS, None).await?.iter().map(|(_, count, _)| count).sum();
    let subjects = premature.iter().map(|found| (found.record, found.policy.as_str()));
    let rows = swept_early.iter().map(|found| (found.record, found.policy.as_str()));
    let early: Vec<(i64, &str)> = subjects.chain(rows).collect();
    let new: HashSet<i64> = store::note_premature(connection, &early).await?.into_iter().collect();
    store::note_review(connection, &slice, new.len() as i64, stuck).await?;
    for found in premature.iter().filter(|found| new.contains(&found.record)).take(LOGGED) {
        tracing::error!(policy = found.policy, record = found.record, erased_at = %found.erased_at,
            not_before = %found.not_before, "A subject was erased before its time");
    }
    for found in swept_early.iter().filter(|found| new.contains(&found.record)).take(LOGGED) {
        tracing::error!(policy = found.policy, record = found.record, rows = found.rows, deleted_at = %found.deleted_at,
            not_before = %found.not_before, "Rows were deleted before their time");
    }
    let mut entry = Entry::new("review", "ebb");
    (entry.run, entry.node) = (Some(run), Some(node));
    entry.details = serde_json::json!({
        "since": slice.since, "until": slice.until, "reached": slice.upto, "erased": slice.erased, "premature": new.len(),
        "stuck": stuck,
    });
    entry.insert(connection).await?;
    metrics::premature(store::count_premature(connection).await?);
    Ok(slice.more)
}

/// Writes down what the rows of a policy take; one whose table cannot be looked at is passed by.
async fn measure(connection: &mut PgConnection, stored: &Stored) -> Result<()> {
    let (table, tenant, role) = match stored.policy() {
        Ok(Policy::Retain(policy)) => (policy.table, policy.tenant, policy.role),
        Ok(Policy::Expire(policy)) => (policy.table, None, policy.role),
        Ok(Policy::Partition(policy)) => (policy.table, None, policy.role),
        _ => return Ok(()),
    };
    let (tenant, role) = (tenant.map(Ident::new), role.map(Ident::new));
    rows::savepoint(connection).await?;
    let measured = async {
        let table = catalog::table(connection, &table).await?;
        let (pages, bytes) = store::table_size(connection, table.oid).await?;
        let share = (SAMPLE_PAGES as f64 / pages.max(1) as f64).min(1.0);
        rows::as_role(connection, role.as_ref()).await?;
        let counted = rows::count_by(connection, &table.relation, tenant.as_ref(), share).await?;
        rows::back_from_role(connection, role.as_ref()).await?;
        Ok::<_, Error>((counted, bytes, share))
    }
    .await;
    rows::end_savepoint(connection, measured.is_ok()).await?;
    let (mut counted, bytes, share) = match measured {
        Ok(measured) => measured,
        Err(error) if error.is_unavailable() => return Err(error),
        Err(error) => {
            tracing::debug!(policy = stored.name, error = error.for_log(), "Its rows could not be measured");
            return Ok(());
        }
    };
    let seen: i64 = counted.iter().map(|(_, rows)| rows).sum();
    counted.truncate(MOST_TENANTS);
    let whole = |rows: i64| (rows as f64 / share).round() as i64;
    let part = |rows: i64| (bytes as f64 * rows as f64 / seen.max(1) as f64) as i64;
    let mut measured = vec![(String::new(), whole(seen), bytes)];
    let named = counted.into_iter().filter_map(|(tenant, rows)| Some((tenant.filter(|name| !name.is_empty())?, rows)));
    measured.extend(named.map(|(tenant, rows)| (tenant, whole(rows), part(rows))));
    store::note_storage(connection, &stored.name, &measured, share >= 1.0).await
}

impl Chore for Review {
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>> {
        self.step(batch).boxed()
    }

    // It changes no row of a user's table.
    fn rows_in(&self, _size: u64) -> u64 {
        0
    }

    fn cutoff(&self) -> Option<Timestamp> {
        None
    }

    fn shape(&self) -> Option<String> {
        None
    }
}

/// For how long the audit has not been reviewed to its end.
pub(crate) async fn review_waits(connection: &mut PgConnection) -> Result<Duration> {
    let (waits, now, _) = store::review_due(connection, "").await?;
    Ok(crate::status::since(waits, now))
}

/// Keeps the gauges fresh: subjects that are stuck, erasures before their time.
pub(crate) async fn observe(database: &Database) -> Result<()> {
    let mut tx = database.read().await?;
    let stuck = store::stuck(&mut tx, super::erase::ATTEMPTS, None).await?;
    for policy in store::subject_policies(&mut tx).await? {
        let count = stuck.iter().find(|(name, ..)| *name == policy).map_or(0, |(_, count, _)| *count);
        metrics::stuck(&policy, count.unsigned_abs());
    }
    metrics::premature(store::count_premature(&mut tx).await?);
    tx.commit().await?;
    Ok(())
}
