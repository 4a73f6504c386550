//! The SQL of views.

use std::time::Duration;

use sqlx::PgConnection;

use crate::audit::Moment;
use crate::pg::{Database, Guard};
use crate::{Error, Result, sql};

/// A run that is kept.
#[derive(Debug, Clone, PartialEq, serde::Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Run {
    /// Its number.
    pub run: i64,
    /// For which policy.
    pub policy: String,
    /// Which version of it.
    pub policy_version: i64,
    /// What was done.
    pub chore: String,
    /// To which table.
    pub table_name: String,
    /// By which node.
    pub node: String,
    /// `running`, `success`, `failed`, `stopped`, `braked`, `observed` or `abandoned`.
    pub status: String,
    /// Rows changed.
    pub rows: i64,
    /// Batches committed.
    pub batches: i64,
    /// Due rows that others held.
    pub skipped: i64,
    /// Rows found due at the start, where that was looked at.
    pub due: Option<i64>,
    /// Why it failed or stopped.
    pub error: Option<String>,
    /// When it began.
    pub started_at: Moment,
    /// When it ended.
    pub finished_at: Option<Moment>,
    /// How long it took, or has taken so far.
    pub seconds: f64,
    /// How fast it went.
    pub rows_per_second: Option<f64>,
}

/// Which runs to list.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Only of this policy.
    pub policy: Option<String>,
    /// Only with this status.
    pub status: Option<String>,
    /// At most so many; 100 when absent.
    pub limit: Option<i64>,
    /// The number of the last run of the page before.
    pub after: Option<i64>,
}

/// Lists runs, newest first.
pub async fn runs(tx: &mut PgConnection, filter: &RunFilter) -> Result<Vec<Run>> {
    Ok(sql!("runs" as Run)
        .bind(&filter.policy)
        .bind(&filter.status)
        .bind(filter.limit.unwrap_or(100))
        .bind(filter.after)
        .fetch_all(tx)
        .await?)
}

/// The runs that go on or ended since a moment (just now, when there is none), and the moment to ask from the next time.
pub async fn activity(tx: &mut PgConnection, since: Option<Moment>) -> Result<(Moment, Vec<Run>)> {
    let (_, now) = crate::status::clocks(tx).await?;
    let runs = sql!("activity" as Run).bind(since).fetch_all(tx).await?;
    Ok((now, runs))
}

/// A number that changes when a policy, a pause or a brake does.
pub async fn changes(tx: &mut PgConnection) -> Result<i64> {
    Ok(sql!("changes" scalar i64).fetch_one(tx).await?)
}

/// A value of a metric at a time, over all labels.
#[derive(Debug, Clone, Copy, PartialEq, sqlx::FromRow)]
pub struct Sample {
    /// When.
    pub at: Moment,
    /// How much.
    pub value: f64,
}

/// A metric over the last hours, in so many steps; of a policy, or of all together.
pub async fn samples(
    tx: &mut PgConnection,
    metric: &str,
    policy: Option<&str>,
    hours: i32,
    steps: i32,
) -> Result<Vec<Sample>> {
    Ok(sql!("samples" as Sample).bind(metric).bind(policy).bind(hours).bind(steps).fetch_all(tx).await?)
}

/// What runs did in one hour.
#[derive(Debug, Clone, Copy, PartialEq, sqlx::FromRow)]
pub struct Hour {
    /// When it began.
    pub at: Moment,
    /// Rows changed.
    pub rows: i64,
    /// Runs that ended well.
    pub succeeded: i64,
    /// Runs that failed, or whose node died.
    pub failed: i64,
}

/// The last hours, oldest first, those without a run included.
pub async fn hours(tx: &mut PgConnection, policy: Option<&str>, hours: i32) -> Result<Vec<Hour>> {
    Ok(sql!("hours" as Hour).bind(policy).bind(hours).fetch_all(tx).await?)
}

/// How long runs rested in one hour, for one reason.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Rest {
    /// When the hour began.
    pub at: Moment,
    /// Why, in a word: the one of `ebb_throttle_seconds_total`.
    pub reason: String,
    /// How long, over all runs of all nodes.
    pub seconds: f64,
}

/// How long runs rested over the last hours, and why, oldest first.
pub async fn rests(tx: &mut PgConnection, hours: i32) -> Result<Vec<Rest>> {
    Ok(sql!("rests" as Rest).bind(hours).fetch_all(tx).await?)
}

/// What falls due on each of the days that follow a moment, besides rows of tables: (day, `subjects` or `events`, how
/// many); nothing where that takes too long to count.
pub async fn upcoming(database: &Database, from: Moment, days: u32) -> Result<Vec<(i32, String, i64)>> {
    let mut tx = database.begin(Guard { statement: Duration::from_secs(5), ..Guard::default() }).await?;
    let days = i32::try_from(days).unwrap_or(i32::MAX);
    let counted = sql!("upcoming" as (i32, String, i64)).bind(from).bind(days).fetch_all(&mut *tx).await;
    match counted.map_err(Error::from) {
        Err(error) if error.sqlstate().as_deref() == Some("57014") => Ok(Vec::new()),
        counted => {
            tx.commit().await?;
            counted
        }
    }
}
