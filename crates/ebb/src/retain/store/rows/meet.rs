//! What two things have in common: policies over one table, of rows; types, of an operator.

use sqlx::{AssertSqlSafe, PgConnection};

use crate::pg::{Operators, Relation};
use crate::{Error, Result};

/// Whether a row may satisfy both conditions. None can where the server proves it (`provable`: not by which partitions there
/// are today), or where rows of each are there and none of both. Takes no longer than two seconds, for which it sets the
/// transaction's time-out.
pub(crate) async fn meet(
    connection: &mut PgConnection,
    relation: &Relation,
    provable: bool,
    (one, other): (&str, &str),
) -> Result<bool> {
    sqlx::raw_sql(
        "SET LOCAL statement_timeout = '2s'; SET LOCAL row_security = off; SET LOCAL constraint_exclusion = on",
    )
    .execute(&mut *connection)
    .await?;
    if provable {
        let explain = format!("EXPLAIN (COSTS OFF) SELECT FROM {relation} WHERE ({one}) AND ({other})");
        let plan: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(explain)).persistent(false).fetch_all(&mut *connection).await?;
        if plan.iter().any(|line| line.trim() == "One-Time Filter: false") {
            return Ok(false);
        }
    }
    let some = |condition: &str| format!("EXISTS (SELECT FROM {relation} WHERE {condition} LIMIT 1)");
    let both = some(&format!("({one}) AND ({other})"));
    let sql = format!("SELECT {both} OR NOT ({} AND {})", some(one), some(other));
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?)
}

/// Whether values of two types can be compared.
pub(crate) async fn comparable(
    connection: &mut PgConnection,
    operators: &Operators,
    (one, other): (&str, &str),
) -> Result<bool> {
    let sql = format!("SELECT {}", operators.same(&format!("NULL::{one}"), &format!("NULL::{other}")));
    super::savepoint(connection).await?;
    let asked = sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(&mut *connection).await;
    super::end_savepoint(connection, false).await?;
    match asked.map_err(Error::from) {
        Ok(_) => Ok(true),
        // No such operator, or none that is meant before others.
        Err(error) if matches!(error.sqlstate().as_deref(), Some("42883" | "42725")) => Ok(false),
        Err(error) => Err(error),
    }
}
