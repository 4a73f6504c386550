//! What doctor reads, and the few statements that it may run.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::audit::Moment;
use crate::pg::Database;
use crate::{Result, sql};

#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct ClockFunctions {
    pub(super) now_body: Option<String>,
    pub(super) clock_body: Option<String>,
    pub(super) ahead_s: Option<f64>,
}

pub(super) async fn clock_functions(connection: &mut PgConnection) -> Result<ClockFunctions> {
    Ok(sql!("clock_functions" as ClockFunctions).fetch_one(connection).await?)
}

pub(super) async fn newest_migration(connection: &mut PgConnection) -> Result<Option<(i32, String)>> {
    Ok(sql!("newest_migration" as (i32, String)).fetch_optional(connection).await?)
}

pub(super) async fn open_schemas(connection: &mut PgConnection, schemas: &[String]) -> Result<Vec<String>> {
    Ok(sql!("open_schemas" scalar String).bind(schemas).fetch_all(connection).await?)
}

pub(super) async fn clock(connection: &mut PgConnection) -> Result<Moment> {
    Ok(sqlx::query_scalar("SELECT clock_timestamp()").persistent(false).fetch_one(connection).await?)
}

/// How a leaf is looked after.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct LeafCare {
    pub(super) live: i64,
    pub(super) dead: i64,
    pub(super) inserted: i64,
    pub(super) deleted: i64,
    pub(super) vacuumed_at: Option<Moment>,
    pub(super) analyzed: bool,
    pub(super) is_partition: bool,
    pub(super) autovacuum_off: bool,
    pub(super) autovacuum_off_everywhere: bool,
    pub(super) invalid_index: Option<String>,
}

pub(super) async fn leaf(connection: &mut PgConnection, oid: u32, column: &str) -> Result<LeafCare> {
    Ok(sql!("leaf" as LeafCare).bind(i64::from(oid)).bind(column).fetch_one(connection).await?)
}

/// How fast rows become due.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct Arrivals {
    pub(super) policy: String,
    pub(super) runs: i64,
    pub(super) seconds: Option<f64>,
    pub(super) per_second: Option<f64>,
}

pub(super) async fn arrivals(connection: &mut PgConnection) -> Result<HashMap<String, Arrivals>> {
    let rows = sql!("arrivals" as Arrivals).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|row| (row.policy.clone(), row)).collect())
}

/// A role, as far as rights of a node go.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct Role {
    pub(super) name: String,
    pub(super) superuser: bool,
    pub(super) bypasses_rls: bool,
    pub(super) reads_all_stats: bool,
    pub(super) may_create_temp: bool,
    pub(super) has_ebb_node: bool,
    pub(super) has_ebb_owner: bool,
    pub(super) is_ebb_node: bool,
    pub(super) owns_schema: bool,
    pub(super) database: String,
    pub(super) server_version: i32,
}

pub(super) async fn default_role(connection: &mut PgConnection) -> Result<String> {
    Ok(sql!("default_role" scalar String).fetch_one(connection).await?)
}

pub(super) async fn role(connection: &mut PgConnection, name: &str) -> Result<Option<Role>> {
    Ok(sql!("role" as Role).bind(name).fetch_optional(connection).await?)
}

pub(super) async fn own_rights(connection: &mut PgConnection, role: &str) -> Result<Vec<String>> {
    Ok(sql!("own_rights" scalar String).bind(role).fetch_all(connection).await?)
}

/// What a role may do with a relation.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct Rights {
    pub(super) schema_usage: bool,
    pub(super) may_select: bool,
    pub(super) may_delete: bool,
    pub(super) may_lock: bool,
    pub(super) updatable: Vec<String>,
    pub(super) owns: bool,
    pub(super) may_vacuum: bool,
    pub(super) rls: bool,
    pub(super) owner: String,
}

pub(super) async fn rights(connection: &mut PgConnection, role: &str, relation: u32) -> Result<Rights> {
    Ok(sql!("rights" as Rights).bind(role).bind(i64::from(relation)).fetch_one(connection).await?)
}

pub(super) async fn may_become(connection: &mut PgConnection, role: &str, other: &str) -> Result<Option<bool>> {
    Ok(sql!("may_become" scalar Option<bool>).bind(role).bind(other).fetch_one(connection).await?)
}

/// Who keeps old row versions alive, how long, and the statement that ends it.
pub(super) async fn snapshots(connection: &mut PgConnection) -> Result<Vec<(String, Option<f64>, String)>> {
    Ok(sql!("snapshots" as (String, Option<f64>, String)).fetch_all(connection).await?)
}

/// Runs statements one by one on a connection of their own: what cannot run in a transaction, and what may take long.
pub(super) async fn run_alone(database: &Database, statements: &[String]) -> Result<()> {
    let mut session = database.session("ebb/cli/doctor").await?;
    sqlx::raw_sql("SET statement_timeout = 0; SET lock_timeout = 0").execute(&mut session).await?;
    for statement in statements {
        sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut session).await?;
    }
    let _ = session.close().await;
    Ok(())
}

/// Runs statements together, all or nothing.
pub(super) async fn run_together(connection: &mut PgConnection, statements: &[String]) -> Result<()> {
    for statement in statements {
        sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Something that was begun on a table and not ended.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Unfinished {
    pub(super) relation: String,
    pub(super) what: String,
    pub(super) state: String,
    pub(super) refuses_from: Option<String>,
    /// Whether that moment is near; of a split, whether it is every writer's business already.
    pub(super) near: bool,
}

/// Partitions that were taken out to be dropped: by which policy, and of which table.
pub(super) async fn out(connection: &mut PgConnection) -> Result<Vec<(String, String, String)>> {
    Ok(sql!("out" as (String, String, String)).fetch_all(connection).await?)
}

pub(super) async fn unfinished(connection: &mut PgConnection) -> Result<Vec<Unfinished>> {
    Ok(sql!("unfinished" as Unfinished).fetch_all(connection).await?)
}
