//! Whether a tenant is there at all.

use sqlx::{AssertSqlSafe, PgConnection};

use super::session::{end_savepoint, savepoint};
use crate::Result;
use crate::pg::{Ident, Relation};

/// Whether any row is of a tenant; none where that cannot be said within two seconds.
pub(crate) async fn has_tenant(
    connection: &mut PgConnection,
    relation: &Relation,
    column: &Ident,
    tenant: &str,
) -> Result<Option<bool>> {
    savepoint(connection).await?;
    sqlx::raw_sql("SET LOCAL statement_timeout = '2s'").execute(&mut *connection).await?;
    let sql = format!("SELECT EXISTS (SELECT FROM {relation} AS n WHERE n.{column}::text = $1)");
    let found = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).bind(tenant).fetch_one(&mut *connection).await;
    end_savepoint(connection, false).await?;
    match found.map_err(crate::Error::from) {
        Err(error) if error.is_unavailable() => Err(error),
        found => Ok(found.ok()),
    }
}
