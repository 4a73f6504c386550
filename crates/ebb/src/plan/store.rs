//! What plan reads: sizes, speeds of earlier runs, next times, and how fast this server reads a table.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::audit::Moment;
use crate::expire::store::{Target, as_role, back_from_role};
use crate::pg::{Database, Relation};
use crate::{Result, sql};

/// How many pages are read to measure how fast pages are read.
const MEASURED_PAGES: u64 = 1_000;

pub(crate) async fn total_bytes(connection: &mut PgConnection, leaf: u32) -> Result<u64> {
    let bytes: Option<i64> = sql!("total_bytes" scalar Option<i64>).bind(i64::from(leaf)).fetch_one(connection).await?;
    Ok(bytes.unwrap_or(0).max(0) as u64)
}

/// Rows a second, by policy, of the last runs that were large enough to tell.
pub(crate) async fn rates(connection: &mut PgConnection) -> Result<HashMap<String, f64>> {
    Ok(sql!("rates" as (String, f64)).fetch_all(connection).await?.into_iter().collect())
}

/// What the database knows of a policy besides its keys.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Known {
    pub(crate) policy: String,
    pub(crate) next_at: Option<Moment>,
    pub(crate) allow_rows: Option<i64>,
    pub(crate) paused: Option<String>,
}

pub(crate) async fn known(connection: &mut PgConnection) -> Result<Vec<Known>> {
    Ok(sql!("known" as Known).fetch_all(connection).await?)
}

/// The time that cutoffs go by; the server's where there is no `ebb` schema.
pub(crate) async fn now(connection: &mut PgConnection, migrated: bool) -> Result<Moment> {
    let query = if migrated { "SELECT ebb.now()" } else { "SELECT now()" };
    Ok(sqlx::query_scalar(query).persistent(false).fetch_one(connection).await?)
}

/// How long one pass over a leaf takes, from the time its first pages take.
pub(crate) async fn scan_time(connection: &mut PgConnection, target: &Target, pages: u64) -> Result<Duration> {
    let measured = pages.min(MEASURED_PAGES);
    if measured == 0 {
        return Ok(Duration::ZERO);
    }
    let sql = format!(
        "SELECT count(*) FROM ONLY {} WHERE ctid < '({measured},0)'::tid AND {}",
        target.leaf,
        target.condition()
    );
    as_role(connection, target.role.as_ref()).await?;
    let began = Instant::now();
    sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(&mut *connection).await?;
    let took = began.elapsed();
    back_from_role(connection, target.role.as_ref()).await?;
    Ok(took.mul_f64(pages as f64 / measured as f64))
}

/// What is due at one cutoff and was not at an earlier one, as a condition that an index serves.
pub(crate) fn between(target: &Target, before: Option<&Target>) -> String {
    match before {
        None => target.condition(),
        Some(before) => {
            let earlier = before.due.condition_at(before.due.cutoff_constant());
            format!("{} AND NOT ({earlier})", target.condition())
        }
    }
}

/// What is due by the whole condition of one sweep and not by that of another.
pub(crate) fn beyond(target: &Target, before: Option<&Target>) -> String {
    match before {
        None => target.condition(),
        Some(before) => format!("{} AND ({}) IS NOT TRUE", target.condition(), before.condition()),
    }
}

/// Begins a look that takes no long statement and leaves nothing behind.
pub(crate) async fn begin_look(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("SAVEPOINT ebb_look; SET LOCAL statement_timeout = '2s'").execute(connection).await?;
    Ok(())
}

/// Ends it, whatever became of it.
pub(crate) async fn end_look(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("ROLLBACK TO SAVEPOINT ebb_look; RELEASE SAVEPOINT ebb_look").execute(connection).await?;
    Ok(())
}

/// Counts rows of a table with all its leaves along an index, no further than `limit`.
pub(crate) async fn count_where(
    connection: &mut PgConnection,
    table: &Relation,
    target: &Target,
    condition: &str,
    limit: u64,
) -> Result<u64> {
    as_role(connection, target.role.as_ref()).await?;
    sqlx::raw_sql("SET LOCAL enable_seqscan = off; SET LOCAL jit = off").execute(&mut *connection).await?;
    let sql = format!("SELECT count(*) FROM (SELECT FROM {table} WHERE {condition} LIMIT {limit}) AS due");
    let rows: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *connection).await?;
    back_from_role(connection, target.role.as_ref()).await?;
    Ok(rows as u64)
}

/// The planner's idea of how many such rows a leaf has: statistics, no reading.
pub(crate) async fn planned_where(connection: &mut PgConnection, target: &Target, condition: &str) -> Result<f64> {
    let sql = format!("EXPLAIN (FORMAT JSON) SELECT FROM ONLY {} WHERE {condition}", target.leaf);
    let plan: serde_json::Value =
        sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?;
    Ok(plan[0]["Plan"]["Plan Rows"].as_f64().unwrap_or(0.0))
}

/// In a transaction of the usual bounds: whoever holds the table for long is not waited for.
pub(crate) async fn create_column(database: &Database, statement: &str) -> Result<()> {
    let mut tx = database.read().await?;
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}

/// On a session of its own: CONCURRENTLY is no part of a transaction, and takes its time.
pub(crate) async fn create_index(database: &Database, statement: &str) -> Result<()> {
    let mut session = database.session("ebb/cli").await?;
    sqlx::raw_sql("SET statement_timeout = 0; SET lock_timeout = 0").execute(&mut session).await?;
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut session).await?;
    let _ = session.close().await;
    Ok(())
}
