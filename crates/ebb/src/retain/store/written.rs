//! What can be written to the columns of a root table.

use sqlx::{AssertSqlSafe, PgConnection};

use super::rows;
use crate::pg::Literal;
use crate::{Error, Result, sql};

/// A column that a policy writes.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct WrittenColumn {
    pub(crate) name: String,
    /// With its length.
    pub(crate) sql_type: String,
    /// It cannot be null.
    pub(crate) wants_value: bool,
    /// The server writes it itself.
    pub(crate) is_own: bool,
}

pub(crate) async fn written_column(connection: &mut PgConnection, table: u32, name: &str) -> Result<WrittenColumn> {
    Ok(sql!("written_column" as WrittenColumn).bind(i64::from(table)).bind(name).fetch_one(connection).await?)
}

/// A text as a column would have it; none where it cannot.
pub(crate) async fn kept_as(
    connection: &mut PgConnection,
    value: &str,
    column: &WrittenColumn,
) -> Result<Option<String>> {
    let sql = format!("SELECT (CAST({} AS {}))::text", Literal(value), column.sql_type);
    rows::savepoint(connection).await?;
    let kept = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *connection).await;
    rows::end_savepoint(connection, false).await?;
    match kept.map_err(Error::from) {
        Ok(kept) => Ok(kept),
        Err(error) if error.is_of_a_row() => Ok(None),
        Err(error) => Err(error),
    }
}
