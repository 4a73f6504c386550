//! Looking at a database before anything is configured: which tables have a column that says when a row is over.
//! Invariant: it only reads, and never for longer than a moment a table.

use std::time::Duration;

use super::catalog::{self, Leaf};
use super::{Database, Guard, Ident, Relation};
use crate::{Result, sql};

/// No look at a table takes longer.
const PATIENCE: Guard = Guard { statement: Duration::from_secs(2), lock: Duration::from_millis(200) };
/// Rows are counted no further.
const COUNT_UP_TO: i64 = 1_000_000;

/// A table whose rows seem to end by themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The table.
    pub table: Relation,
    /// The column that says when.
    pub column: String,
    /// Its type.
    pub column_type: String,
    /// Other columns that look like it.
    pub others: Vec<String>,
    /// How many tables hold its rows: more than one where it is partitioned.
    pub leaves: usize,
    /// Rows by the statistics, or counted where there are none; `None` where that took too long.
    pub rows: Option<u64>,
    /// Rows that are past their time, counted up to a million; `None` where that took too long.
    pub due: Option<u64>,
    /// Whether every leaf has an index that starts with the column.
    pub indexed: bool,
}

#[derive(sqlx::FromRow)]
struct Row {
    oid: i64,
    schema: String,
    name: String,
    columns: Vec<String>,
    types: Vec<String>,
}

/// Every such table, by name.
pub async fn candidates(database: &Database) -> Result<Vec<Candidate>> {
    let mut tx = database.read().await?;
    let rows = sql!("survey" as Row).fetch_all(&mut *tx).await?;
    tx.commit().await?;
    let mut found = Vec::new();
    for row in rows {
        // One that cannot be looked at (no right, dropped meanwhile, foreign partitions) is not worth proposing.
        if let Some(candidate) = look(database, row).await? {
            found.push(candidate);
        }
    }
    Ok(found)
}

async fn look(database: &Database, row: Row) -> Result<Option<Candidate>> {
    let (Some(column), Some(column_type)) = (row.columns.first(), row.types.first()) else { return Ok(None) };
    let table = Relation::new(&row.schema, &row.name);
    let mut tx = database.begin(PATIENCE).await?;
    let Ok(leaves) = catalog::leaves(&mut tx, row.oid as u32).await else { return Ok(None) };
    let wanted = Ident::new(column);
    let mut indexed = !leaves.is_empty();
    for leaf in &leaves {
        let Ok(index) = catalog::column_index(&mut tx, leaf, &wanted).await else { return Ok(None) };
        indexed &= index.index_name.is_some();
    }
    tx.commit().await?;
    let estimated = leaves.iter().map(|leaf: &Leaf| leaf.rows).sum::<u64>();
    let rows = if estimated > 0 { Some(estimated) } else { count(database, &table, "").await };
    let due = count(database, &table, &format!("WHERE {wanted} <= pg_catalog.now()")).await;
    Ok(Some(Candidate {
        table,
        column: column.clone(),
        column_type: column_type.clone(),
        others: row.columns[1..].to_vec(),
        leaves: leaves.len(),
        rows,
        due,
        indexed,
    }))
}

async fn count(database: &Database, table: &Relation, filter: &str) -> Option<u64> {
    let sql = format!("SELECT count(*) FROM (SELECT FROM {table} {filter} LIMIT {COUNT_UP_TO}) AS counted");
    let mut tx = database.begin(PATIENCE).await.ok()?;
    let rows: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *tx).await.ok()?;
    Some(rows.max(0) as u64)
}
