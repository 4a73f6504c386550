//! Which way through a leaf is fastest. Keyset on the due column when the heap is in its order or few rows are due;
//! otherwise physical order, which costs one pass over the table whatever its layout. Status says which, and why.

use std::fmt;
use std::time::Duration;

use sqlx::PgConnection;

use super::store::{self, Target};
use crate::pg::catalog::{self, ColumnIndex, Leaf};
use crate::policy::{Cadence, Expire};
use crate::{Error, Result};

/// Heap order follows the column closely enough.
const ORDERED: f64 = 0.9;
/// Below this share of due rows an index pays even when the heap is not in order.
const FEW: f64 = 0.15;
/// Above this share it does not where every page has a due row: the index leads to each page again and again, at some five
/// microseconds a row, and a pass in order looks at a row in a quarter of one.
const FEW_ON_FULL_PAGES: f64 = 0.06;
/// More equal values than this, and an index walk meets its own dead tuples again and again.
const MANY_EQUAL: f64 = 20_000.0;
/// What a sequential pass is assumed to manage, for the warning about a missing index.
const SCAN_BYTES_PER_SECOND: u64 = 200 << 20;

/// The way, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Oldest first along an index.
    Keyset { index: String, why: &'static str },
    /// Page after page.
    Physical { why: String },
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Keyset { index, why } => write!(f, "oldest first by {index}: {why}"),
            Shape::Physical { why } => write!(f, "physical order: {why}"),
        }
    }
}

/// Chooses, and refuses where a scan without an index would take longer than the policy's interval.
pub(crate) async fn choose(
    connection: &mut PgConnection,
    policy: &Expire,
    target: &Target,
    leaf: &Leaf,
    pages: u64,
) -> Result<Shape> {
    let column = catalog::column(connection, &leaf.relation, leaf.oid, &policy.column).await?;
    let index = catalog::column_index(connection, leaf, &column.name).await?;
    let Some(name) = index.index_name.clone() else {
        refuse_long_scan(policy, target, pages)?;
        return Ok(Shape::Physical { why: format!("no index starts with {}", column.name) });
    };
    let due = store::planned_rows(connection, target).await?;
    Ok(decide(name, &index, leaf.rows.max(1) as f64, pages as f64, due))
}

fn decide(index: String, statistics: &ColumnIndex, rows: f64, pages: f64, due: f64) -> Shape {
    let Some(correlation) = statistics.correlation else {
        return Shape::Keyset { index, why: "no statistics yet" };
    };
    let distinct = match statistics.distinct_values {
        Some(share) if share < 0.0 => -share * rows,
        Some(count) if count > 0.0 => count,
        _ => rows,
    };
    let share = due / rows;
    if rows / distinct.max(1.0) > MANY_EQUAL && share > 0.01 {
        Shape::Physical { why: "many rows share one due time".into() }
    } else if correlation.abs() >= ORDERED {
        Shape::Keyset { index, why: "the table is in time order" }
    } else if share <= if due >= pages { FEW_ON_FULL_PAGES } else { FEW } {
        Shape::Keyset { index, why: "few rows are due" }
    } else {
        Shape::Physical { why: format!("about {:.0} % is due and the table is not in time order", share * 100.0) }
    }
}

fn refuse_long_scan(policy: &Expire, target: &Target, pages: u64) -> Result<()> {
    let Cadence::Every(every) = policy.cadence else { return Ok(()) };
    let scan = scan_time(pages);
    if scan <= every {
        return Ok(());
    }
    Err(Error::config(format!(
        "column {} of {} has no index that starts with it, and reading the whole table takes about {} every {}",
        target.due.column,
        target.leaf.label(),
        crate::policy::human(Duration::from_secs(scan.as_secs().max(1))),
        crate::policy::human(every),
    ))
    .with_hint(format!("create one: {}", index_statement(target)))
    .at_key("column"))
}

/// How long a pass over so many pages is assumed to take.
pub(crate) fn scan_time(pages: u64) -> Duration {
    Duration::from_secs_f64(pages as f64 * 8192.0 / SCAN_BYTES_PER_SECOND as f64)
}

/// The statement that gives the column its index without blocking writers.
pub(crate) fn index_statement(target: &Target) -> String {
    format!("CREATE INDEX CONCURRENTLY ON {} ({})", target.leaf, target.due.column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(correlation: Option<f64>, distinct: f64) -> ColumnIndex {
        ColumnIndex { index_name: None, correlation, distinct_values: Some(distinct), null_share: None }
    }

    #[test]
    fn the_way_follows_the_layout() {
        let over =
            |pages, statistics, due| matches!(decide("i".into(), &statistics, 1e6, pages, due), Shape::Keyset { .. });
        let keyset = |statistics, due| over(1e4, statistics, due);
        assert!(keyset(statistics(Some(0.99), -1.0), 5e5), "in order");
        assert!(keyset(statistics(Some(-0.99), -1.0), 5e5), "in reverse order");
        assert!(!keyset(statistics(Some(0.01), -1.0), 5e5), "half of a shuffled table");
        assert!(keyset(statistics(Some(0.01), -1.0), 1e3), "a little of a shuffled table");
        assert!(!keyset(statistics(Some(0.01), -1.0), 1e5), "a tenth of it, ten rows on every page");
        assert!(over(1e6, statistics(Some(0.01), -1.0), 1e5), "a tenth of it, a page for each row");
        assert!(!keyset(statistics(Some(0.99), 10.0), 5e5), "a date column with whole days due");
        assert!(keyset(statistics(None, -1.0), 5e5), "never analyzed");
    }
}
