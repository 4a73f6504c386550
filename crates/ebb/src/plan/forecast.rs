//! The forecast: how many rows of each policy fall due, day by day. Invariants: it goes by the same condition as a run,
//! with the cutoff of that day; where an index leads to the rows they are counted while there is time, and otherwise the
//! planner's estimate stands, said to be one. No look takes longer than its patience, whatever the table.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use sqlx::PgConnection;

use super::{Swept, retained, store, survey, to_be_active};
use crate::audit::Moment;
use crate::expire::due::Clock;
use crate::expire::store::Target;
use crate::pg::Guard;
use crate::pg::catalog::{self, Leaf, Table};
use crate::policy::{Expire, Retain, Wanted};
use crate::retain::{OwnTerms, Surroundings};
use crate::{Engine, Result, expire, retain};

/// All counting of one forecast takes no longer than about this.
const COUNT_FOR: Duration = Duration::from_secs(10);
/// One count.
const PATIENCE: Guard = Guard { statement: Duration::from_millis(1_000), lock: Duration::from_millis(100) };
/// Rows of a day are counted no further; beyond it an estimate says as much.
const COUNTED_ROWS: u64 = 1_000_000;

/// A table is counted without an index, too, while it has no more pages.
const SMALL_PAGES: u64 = 128;

/// What falls due on one day.
#[derive(Debug, Clone, Serialize)]
pub struct Day {
    /// Its end: what is due by then and was not a day before.
    pub until: Moment,
    /// Rows.
    pub rows: u64,
    /// Their share of what the table takes on disk.
    pub bytes: u64,
    /// Whether they were counted; estimated otherwise.
    pub exact: bool,
}

/// What falls due of one policy.
#[derive(Debug, Clone, Serialize)]
pub struct Forecast {
    /// The policy.
    pub policy: String,
    /// Its table.
    pub table: String,
    /// Due at the start already.
    pub due_rows: Option<u64>,
    /// Day by day.
    pub days: Vec<Day>,
    /// Why there is none.
    pub problem: Option<String>,
}

impl Engine {
    /// How many rows fall due on each of the days that follow a moment.
    pub async fn forecast(&self, wanted: &[Wanted], from: Timestamp, days: u32) -> Result<Vec<Forecast>> {
        let mut tx = self.database().read().await?;
        let version = crate::pg::schema_version(&mut tx).await?;
        let migrated = version == Some(crate::pg::latest_version());
        let stored = match version {
            Some(_) => crate::policy::store::all(&mut tx).await?,
            None => Vec::new(),
        };
        tx.commit().await?;
        let installed = !stored.is_empty();
        let until = Instant::now() + COUNT_FOR;
        let mut forecasts = Vec::new();
        for sweep in to_be_active(wanted, &stored) {
            let (policy, _) = self.sweep(&sweep, installed).await?;
            let mut forecast = Forecast {
                policy: policy.name.to_string(),
                table: policy.table.clone(),
                due_rows: None,
                days: Vec::new(),
                problem: None,
            };
            let own_terms = match &sweep {
                Swept::ByAge(by_age) if installed => by_age.own_terms(&mut *self.database().read().await?).await.ok(),
                _ => None,
            };
            let ahead = Ahead { policy, own_terms: own_terms.flatten() };
            match self.look_ahead(&ahead, from, days, until, &mut forecast).await {
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => forecast.problem = Some(error.to_string()),
                Ok(()) => {}
            }
            forecasts.push(forecast);
        }
        let planned = retained(wanted, &stored);
        let among = Surroundings { installed: migrated, planned: &planned };
        let stopped = |name: &str| stored.iter().any(|stored| stored.name == name && stored.stopped.is_some());
        let runs = |policy: &&Retain| policy.enabled && policy.subjects().is_some() && !stopped(policy.name.as_str());
        for policy in planned.iter().filter(runs) {
            forecasts.push(self.subjects_ahead(policy, from, days, among).await?);
        }
        Ok(forecasts)
    }

    /// Subjects fall due by their deletions and, where nobody has opened one yet, by their soft delete; each is a row of the
    /// root table.
    async fn subjects_ahead(
        &self,
        policy: &Retain,
        from: Timestamp,
        days: u32,
        among: Surroundings<'_>,
    ) -> Result<Forecast> {
        let mut tx = self.database().read().await?;
        let (due, complete) = retain::forecast(&mut tx, policy, (from.into(), days), among).await?;
        // A table that is gone has rows of no size.
        let bytes_per_row = retain::bytes_per_row(&mut tx, policy).await.unwrap_or(0.0);
        tx.rollback().await?;
        let day = |(at, rows): (usize, &u64)| {
            let end = from.saturating_add(SignedDuration::from_hours(24 * (at as i64 + 1))).unwrap_or(Timestamp::MAX);
            Day { until: end.into(), rows: *rows, bytes: (*rows as f64 * bytes_per_row) as u64, exact: complete }
        };
        Ok(Forecast {
            policy: policy.name.to_string(),
            table: policy.table.clone(),
            due_rows: due.first().copied(),
            days: due.iter().skip(1).enumerate().map(day).collect(),
            problem: None,
        })
    }

    async fn look_ahead(
        &self,
        ahead: &Ahead,
        from: Timestamp,
        days: u32,
        until: Instant,
        forecast: &mut Forecast,
    ) -> Result<()> {
        let mut tx = self.database().read().await?;
        let survey = survey::survey(&mut tx, &ahead.at(from), Clock::At(from)).await?;
        tx.rollback().await?;
        forecast.table = survey.table.relation.label();
        let total: u64 = survey.leaves.iter().map(|leaf| leaf.leaf.rows).sum();
        let bytes_per_row = survey.bytes() as f64 / total.max(1) as f64;
        let indexed = survey.leaves.iter().all(|leaf| leaf.index.is_some() || leaf.pages <= SMALL_PAGES);
        let (due_rows, _) = self.due_between(ahead, None, from, indexed, until).await?;
        forecast.due_rows = Some(due_rows);
        let mut begin = from;
        for day in 1..=i64::from(days) {
            let end = from.saturating_add(SignedDuration::from_hours(24 * day)).unwrap_or(Timestamp::MAX);
            let (rows, exact) = self.due_between(ahead, Some(begin), end, indexed, until).await?;
            let bytes = (rows as f64 * bytes_per_row) as u64;
            forecast.days.push(Day { until: end.into(), rows, bytes, exact });
            begin = end;
        }
        Ok(())
    }

    /// How many rows are due by a moment and were not by another, over all leaves: counted, or estimated.
    async fn due_between(
        &self,
        ahead: &Ahead,
        after: Option<Timestamp>,
        by: Timestamp,
        indexed: bool,
        until: Instant,
    ) -> Result<(u64, bool)> {
        if indexed && Instant::now() < until {
            let mut tx = self.database().begin(PATIENCE).await?;
            let counted = count(&mut tx, ahead, after, by).await;
            tx.rollback().await?;
            match counted {
                Ok(rows) if rows < COUNTED_ROWS => return Ok((rows, true)),
                Ok(_) => {}
                Err(error) if error.sqlstate().as_deref() == Some("57014") => {}
                Err(error) => return Err(error),
            }
        }
        let mut tx = self.database().read().await?;
        let table = catalog::table(&mut tx, &ahead.policy.table).await?;
        let mut rows = 0.0;
        for leaf in catalog::leaves(&mut tx, table.oid).await? {
            let (target, condition) = targets(&mut tx, ahead, &table, &leaf, after, by).await?;
            rows += store::planned_where(&mut tx, &target, &condition).await?;
        }
        tx.rollback().await?;
        Ok((rows as u64, false))
    }
}

/// A sweep at moments to come.
struct Ahead {
    policy: Expire,
    /// Terms of tenants, which count from each of these moments.
    own_terms: Option<OwnTerms>,
}

impl Ahead {
    fn at(&self, moment: Timestamp) -> Expire {
        match &self.own_terms {
            Some(own) => own.at(Some(moment)),
            None => self.policy.clone(),
        }
    }
}

async fn count(connection: &mut PgConnection, ahead: &Ahead, after: Option<Timestamp>, by: Timestamp) -> Result<u64> {
    let table = catalog::table(connection, &ahead.policy.table).await?;
    let leaves = catalog::leaves(connection, table.oid).await?;
    let Some(first) = leaves.first() else { return Ok(0) };
    let (target, condition) = targets(connection, ahead, &table, first, after, by).await?;
    store::count_where(connection, &table.relation, &target, &condition, COUNTED_ROWS).await
}

/// A leaf at the later moment, and what is due then and was not at the earlier one.
async fn targets(
    connection: &mut PgConnection,
    ahead: &Ahead,
    table: &Table,
    leaf: &Leaf,
    after: Option<Timestamp>,
    by: Timestamp,
) -> Result<(Target, String)> {
    let target = expire::target_by(connection, &ahead.at(by), table, leaf, Clock::At(by)).await?;
    let before = match after {
        Some(after) => Some(expire::target_by(connection, &ahead.at(after), table, leaf, Clock::At(after)).await?),
        None => None,
    };
    let condition = match ahead.own_terms {
        Some(_) => store::beyond(&target, before.as_ref()),
        None => store::between(&target, before.as_ref()),
    };
    Ok((target, condition))
}
