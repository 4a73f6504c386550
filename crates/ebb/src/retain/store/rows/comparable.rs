//! What two types have in common: an operator.

use sqlx::{AssertSqlSafe, PgConnection};

use crate::pg::Operators;
use crate::{Error, Result};

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
