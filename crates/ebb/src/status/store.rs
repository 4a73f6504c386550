//! What status reads: units with leases and runs, nodes, and a bounded look at the users' tables themselves.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::audit::Moment;
use crate::expire::store::{Target, as_role, back_from_role};
use crate::pg::{Database, Guard};
use crate::{Result, sql};

/// Tables up to so many pages are counted; of larger ones this many pages are sampled.
const COUNTED_PAGES: u64 = 2_000;
/// Due rows are counted no further than this where an index leads to them; beyond it the sample speaks.
const COUNTED_ROWS: i64 = 100_000;
/// No look at a table takes longer.
const PATIENCE: Guard = Guard { statement: Duration::from_millis(1_000), lock: Duration::from_millis(100) };

/// A unit as it stands.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct UnitRow {
    pub(crate) unit: String,
    pub(crate) chore: String,
    pub(crate) policy: String,
    pub(crate) leaf: String,
    pub(crate) next_at: Moment,
    pub(crate) triggered: bool,
    pub(crate) failures: i32,
    pub(crate) last_success_at: Option<Moment>,
    pub(crate) shape: Option<String>,
    pub(crate) throttle: Option<String>,
    pub(crate) vacuum: Option<String>,
    pub(crate) pending: Option<i64>,
    pub(crate) oldest_due: Option<Moment>,
    pub(crate) counted_at: Option<Moment>,
    pub(crate) held_by: Option<String>,
    pub(crate) run: Option<i64>,
    pub(crate) status: Option<String>,
    pub(crate) rows: Option<i64>,
    pub(crate) batches: Option<i64>,
    pub(crate) skipped: Option<i64>,
    pub(crate) failed: Option<i64>,
    pub(crate) error: Option<String>,
    pub(crate) started_at: Option<Moment>,
    pub(crate) finished_at: Option<Moment>,
    pub(crate) seconds: Option<f64>,
    pub(crate) rows_per_second: Option<f64>,
    pub(crate) orphaned: bool,
}

pub(crate) async fn units(connection: &mut PgConnection) -> Result<Vec<UnitRow>> {
    Ok(sql!("units" as UnitRow).fetch_all(connection).await?)
}

/// A policy as `ebb.v_policies` shows it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct PolicyRow {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) remedy: Option<String>,
    pub(crate) version: i64,
    pub(crate) changed_at: Moment,
    pub(crate) changed_by: String,
    pub(crate) spec: Value,
    pub(crate) next_event: Option<Moment>,
}

pub(crate) async fn policies(connection: &mut PgConnection) -> Result<Vec<PolicyRow>> {
    Ok(sql!("policies" as PolicyRow).fetch_all(connection).await?)
}

/// A node that was seen lately.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// The release it runs.
    pub version: String,
    /// When it started.
    pub started_at: Moment,
    /// When it last said that it is there.
    pub seen_at: Moment,
    /// Whether it hears what happens at once; otherwise it looks for itself.
    pub listens: bool,
    /// Whether that was just now.
    pub alive: bool,
    /// Whether it has been there for a while.
    #[serde(skip)]
    pub(crate) steady: bool,
}

pub(crate) async fn nodes(connection: &mut PgConnection) -> Result<Vec<NodeStatus>> {
    Ok(sql!("nodes" as NodeStatus).fetch_all(connection).await?)
}

/// Two clocks: the one cutoffs go by, and the plain one.
pub(crate) async fn clocks(connection: &mut PgConnection) -> Result<(Moment, Moment)> {
    Ok(sql!("clocks" as (Moment, Moment)).fetch_one(connection).await?)
}

/// What a look at a leaf found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) total: u64,
    pub(crate) due: u64,
    pub(crate) oldest_due: Option<Moment>,
    pub(crate) newest: Option<Moment>,
    /// Whether `due` was counted.
    pub(crate) exact: bool,
}

/// Looks at a leaf within bounds of time: all of it when it is small, a sample and both ends of the index otherwise.
pub(crate) async fn look(database: &Database, target: &Target, pages: u64, has_index: bool) -> Result<Look> {
    let share = COUNTED_PAGES as f64 / pages.max(1) as f64;
    if share >= 1.0 {
        return Ok(part(database, target, None).await?.into_look(1.0, true));
    }
    let mut look = part(database, target, Some(share * 100.0)).await?.into_look(share, false);
    // The sample knows neither the last few rows nor the very oldest; the index does, unless that takes too long.
    if has_index && let Ok((due, oldest_due, newest)) = ends(database, target).await {
        if due <= COUNTED_ROWS {
            (look.due, look.exact) = (due as u64, true);
        }
        (look.oldest_due, look.newest) = (oldest_due, newest);
    }
    Ok(look)
}

#[derive(sqlx::FromRow)]
struct Part {
    total: i64,
    due: i64,
    oldest_due: Option<Moment>,
    newest: Option<Moment>,
}

impl Part {
    fn into_look(self, share: f64, exact: bool) -> Look {
        let whole = |rows: i64| (rows as f64 / share).round() as u64;
        let (oldest_due, newest) = (self.oldest_due, self.newest);
        Look { total: whole(self.total), due: whole(self.due), oldest_due, newest, exact }
    }
}

async fn part(database: &Database, target: &Target, percent: Option<f64>) -> Result<Part> {
    let (leaf, column, condition) = (&target.leaf, &target.due.column, target.condition());
    let sample = percent.map(|percent| format!("TABLESAMPLE SYSTEM ({percent})")).unwrap_or_default();
    let sql = format!(
        "SELECT total, due, {} AS oldest_due, {} AS newest FROM ( \
             SELECT count(*) AS total, count(*) FILTER (WHERE {condition}) AS due, \
                    min({column}) FILTER (WHERE {condition}) AS first, max({column}) AS last FROM ONLY {leaf} {sample} \
         ) AS found",
        target.due.due_at("first"),
        target.due.due_at("last"),
    );
    let mut tx = database.begin(PATIENCE).await?;
    as_role(&mut tx, target.role.as_ref()).await?;
    let found = sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *tx).await?;
    tx.rollback().await?;
    Ok(found)
}

async fn ends(database: &Database, target: &Target) -> Result<(i64, Option<Moment>, Option<Moment>)> {
    let (leaf, column, condition) = (&target.leaf, &target.due.column, target.condition());
    let sql = format!(
        "SELECT due, {} AS oldest_due, {} AS newest FROM ( \
             SELECT (SELECT count(*) FROM (SELECT FROM ONLY {leaf} WHERE {condition} LIMIT {}) AS few) AS due, \
                    (SELECT min({column}) FROM ONLY {leaf} WHERE {condition}) AS first, \
                    (SELECT max({column}) FROM ONLY {leaf}) AS last \
         ) AS found",
        target.due.due_at("first"),
        target.due.due_at("last"),
        COUNTED_ROWS + 1,
    );
    let mut tx = database.begin(PATIENCE).await?;
    as_role(&mut tx, target.role.as_ref()).await?;
    let found = sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *tx).await?;
    back_from_role(&mut tx, target.role.as_ref()).await?;
    tx.rollback().await?;
    Ok(found)
}

pub(crate) async fn note_backlog(connection: &mut PgConnection, unit: &str, look: &Look) -> Result<()> {
    sql!("note_backlog").bind(unit).bind(look.due as i64).bind(look.oldest_due).execute(connection).await?;
    Ok(())
}

pub(crate) async fn sample(connection: &mut PgConnection) -> Result<u64> {
    Ok(sql!("sample").execute(connection).await?.rows_affected())
}

/// What a table with all its leaves takes.
#[derive(Debug, Clone, Copy, Default, sqlx::FromRow)]
pub(crate) struct Sizes {
    root: i64,
    pub(crate) leaves: i64,
    pub(crate) rows: i64,
    pub(crate) table_bytes: i64,
    pub(crate) index_bytes: i64,
}

pub(crate) async fn tenant_storage(connection: &mut PgConnection) -> Result<Vec<super::TenantStorage>> {
    Ok(sql!("tenant_storage" as super::TenantStorage).fetch_all(connection).await?)
}

/// What each of these tables takes.
pub(crate) async fn storage(connection: &mut PgConnection, tables: &[u32]) -> Result<HashMap<u32, Sizes>> {
    let tables: Vec<i64> = tables.iter().map(|oid| i64::from(*oid)).collect();
    let found = sql!("storage" as Sizes).bind(tables).fetch_all(connection).await?;
    Ok(found.into_iter().map(|sizes| (sizes.root as u32, sizes)).collect())
}
