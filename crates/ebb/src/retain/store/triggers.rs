//! Where the triggers of policies are.

use sqlx::PgConnection;

use crate::{Result, sql};

/// Whether a trigger with this function is on a table for these columns, and whether one is anywhere else.
pub(crate) async fn placed(
    connection: &mut PgConnection,
    name: &str,
    table: u32,
    columns: &[&str],
) -> Result<(bool, bool)> {
    let query = sql!("trigger_placed" as (bool, bool, bool)).bind(name).bind(i64::from(table)).bind(columns);
    let (there, elsewhere, _) = query.fetch_one(connection).await?;
    Ok((there, elsewhere))
}

/// Whether it is there and fires.
pub(crate) async fn fires(connection: &mut PgConnection, name: &str, table: u32, columns: &[&str]) -> Result<bool> {
    let query = sql!("trigger_placed" as (bool, bool, bool)).bind(name).bind(i64::from(table)).bind(columns);
    let (.., fires) = query.fetch_one(connection).await?;
    Ok(fires)
}

pub(crate) async fn exists(connection: &mut PgConnection, name: &str) -> Result<bool> {
    Ok(sql!("trigger_exists" scalar bool).bind(name).fetch_one(connection).await?)
}
