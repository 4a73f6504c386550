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

/// Triggers of a table with what they name without a schema and would find in `left_out` alone, not in `path`.
pub(crate) async fn unseen_names(
    connection: &mut PgConnection,
    table: u32,
    left_out: &[&str],
    path: &[&str],
) -> Result<Vec<(String, Vec<String>)>> {
    let query = sql!("unseen_names" as (String, Vec<String>)).bind(i64::from(table)).bind(left_out).bind(path);
    Ok(query.fetch_all(connection).await?)
}

pub(crate) async fn exists(connection: &mut PgConnection, name: &str) -> Result<bool> {
    Ok(sql!("trigger_exists" scalar bool).bind(name).fetch_one(connection).await?)
}
