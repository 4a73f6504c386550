//! The brake: a run that would take far more than it should stops before its first batch and asks.
//! Invariant: it looks at the rows themselves (all of them, or sampled pages), because statistics do not know yet
//! what went wrong a minute ago.

use sqlx::PgConnection;

use super::store::{self, Count, Target};
use crate::pg::Relation;
use crate::policy::Brake;
use crate::{Result, spine};

/// Tables up to so many pages are counted; of larger ones this many pages are sampled.
const SAMPLE_PAGES: u64 = 2_000;
/// How far a sampled share may be off.
const SAMPLE_ERROR: f64 = 0.08;

/// What the brake says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    /// Rows that are due.
    pub(crate) due: u64,
    /// Counted, not estimated.
    pub(crate) exact: bool,
    /// The limit that the run would exceed, in words.
    pub(crate) exceeded: Option<String>,
}

/// Looks at the whole table, since an old partition is rightly due as a whole.
pub(crate) async fn check(
    connection: &mut PgConnection,
    brake: &Brake,
    table: &Relation,
    target: &Target,
    pages: u64,
) -> Result<Verdict> {
    let count = store::estimate(connection, table, target, pages, SAMPLE_PAGES).await?;
    judge(connection, brake, table, target, count).await
}

/// Judges what was found; a sample that is too near to a limit is counted.
pub(crate) async fn judge(
    connection: &mut PgConnection,
    brake: &Brake,
    table: &Relation,
    target: &Target,
    mut count: Count,
) -> Result<Verdict> {
    let sampled = !count.exact;
    if sampled && near_a_limit(brake, &count) {
        let most = limit_rows(brake, &count).min(count.total) as u64 + 1;
        let due = store::count_due(connection, table, target, most).await?;
        count = Count { due: due as f64, exact: true, ..count };
    }
    // A count near a limit goes no further than the limit: enough to say no, not what to allow.
    let exact = count.exact && !sampled;
    Ok(Verdict { due: count.due as u64, exact, exceeded: exceeded(brake, &count) })
}

fn limit_rows(brake: &Brake, count: &Count) -> f64 {
    let by_rows = brake.rows.map_or(f64::INFINITY, |rows| rows as f64);
    let by_share = brake.share.map_or(f64::INFINITY, |share| share * count.total);
    by_rows.min(by_share)
}

fn near_a_limit(brake: &Brake, count: &Count) -> bool {
    let limit = limit_rows(brake, count);
    limit.is_finite() && (count.due - limit).abs() <= SAMPLE_ERROR * count.total
}

fn exceeded(brake: &Brake, count: &Count) -> Option<String> {
    spine::brake::exceeded(brake, count.due, count.total, "rows")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(total: f64, due: f64) -> Count {
        Count { total, due, exact: true }
    }

    #[test]
    fn a_written_brake_holds_as_written_and_the_default_leaves_small_runs_alone() {
        let default = Brake { rows: None, share: Some(0.5), explicit: false };
        assert_eq!(exceeded(&default, &count(100.0, 100.0)), None);
        assert!(exceeded(&default, &count(30_000.0, 20_000.0)).is_some());
        assert_eq!(exceeded(&default, &count(40_000.0, 20_000.0)), None);
        let written = Brake { rows: Some(10), share: Some(0.5), explicit: false };
        assert!(exceeded(&written, &count(100.0, 11.0)).is_some());
        assert_eq!(exceeded(&written, &count(100.0, 10.0)), None);
    }
}
