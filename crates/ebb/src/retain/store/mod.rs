//! The SQL of retain over Ebb's own schema; [`rows`] has what is sent to users' tables.

pub(crate) mod late;
pub(crate) mod rows;
pub(crate) mod snapshots;
pub(crate) mod triggers;
pub(crate) mod warnings;

use serde_json::Value;
use sqlx::postgres::types::PgInterval;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::graph::GraphIndex;
use super::tree::Shape;
use crate::audit::{Hash, Moment};
use crate::{Error, Result, sql};

#[derive(sqlx::FromRow)]
pub(crate) struct TableRow {
    pub(crate) oid: i64,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) inherited: bool,
    pub(crate) columns: Vec<String>,
    pub(crate) types: Vec<String>,
    pub(crate) not_null: Vec<bool>,
    pub(crate) delete_triggers: Vec<String>,
    pub(crate) update_triggers: Vec<String>,
}

#[derive(sqlx::FromRow)]
pub(crate) struct KeyRow {
    pub(crate) name: String,
    pub(crate) child: i64,
    pub(crate) parent: i64,
    pub(crate) child_partition: Option<String>,
    pub(crate) parent_partition: Option<String>,
    pub(crate) on_delete: String,
    pub(crate) deferrable: bool,
    pub(crate) child_columns: Vec<String>,
    pub(crate) parent_columns: Vec<String>,
    pub(crate) set_columns: Vec<String>,
}

#[derive(sqlx::FromRow)]
pub(crate) struct LeafRow {
    pub(crate) tab: i64,
    pub(crate) leaf: String,
    pub(crate) bytes: i64,
    pub(crate) tuples: f64,
    pub(crate) indexes: Json<Vec<GraphIndex>>,
}

pub(crate) async fn graph_tables(connection: &mut PgConnection, seeds: &[u32]) -> Result<Vec<TableRow>> {
    let seeds: Vec<i64> = seeds.iter().map(|oid| i64::from(*oid)).collect();
    Ok(sql!("graph_tables" as TableRow).bind(seeds).fetch_all(connection).await?)
}

pub(crate) async fn graph_keys(connection: &mut PgConnection, tables: &[i64]) -> Result<Vec<KeyRow>> {
    Ok(sql!("graph_keys" as KeyRow).bind(tables).fetch_all(connection).await?)
}

pub(crate) async fn graph_leaves(connection: &mut PgConnection, tables: &[i64]) -> Result<Vec<LeafRow>> {
    Ok(sql!("graph_leaves" as LeafRow).bind(tables).fetch_all(connection).await?)
}

/// A deletion that may be due.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Candidate {
    pub(crate) id: Uuid,
    pub(crate) subject_id: String,
    pub(crate) due_at: Moment,
}

/// How far a run has come among the due deletions.
pub(crate) type Place = Option<(Moment, Uuid)>;

pub(crate) async fn candidates(
    connection: &mut PgConnection,
    policy: &str,
    after: Place,
    limit: u64,
) -> Result<Vec<Candidate>> {
    Ok(sql!("candidates" as Candidate)
        .bind(policy)
        .bind(after.map(|(due_at, _)| due_at))
        .bind(after.map(|(_, id)| id))
        .bind(limit.min(i64::MAX as u64) as i64)
        .fetch_all(connection)
        .await?)
}

/// What a second look under the locks says of a deletion.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Look {
    pub(crate) id: Uuid,
    pub(crate) state: String,
    pub(crate) tenant_now: Option<String>,
    pub(crate) deleted_at: Moment,
    pub(crate) due_at: Moment,
    pub(crate) expedited: bool,
    pub(crate) held: Option<String>,
    /// What went before, by table, where it goes in parts.
    pub(crate) parts: Value,
    pub(crate) warned_at: Option<Moment>,
    /// Why it counts as unwarned, where its policy warns.
    pub(crate) unwarned: Option<String>,
    pub(crate) now: Moment,
}

pub(crate) async fn recheck(
    connection: &mut PgConnection,
    ids: &[Uuid],
    deleted_at: &[Option<Moment>],
    tenants: &[Option<String>],
) -> Result<Vec<Look>> {
    Ok(sql!("recheck" as Look).bind(ids).bind(deleted_at).bind(tenants).fetch_all(connection).await?)
}

pub(crate) async fn note_waiting(
    connection: &mut PgConnection,
    ids: &[Uuid],
    why: &[Option<String>],
    due_at: &[Option<Moment>],
) -> Result<()> {
    if !ids.is_empty() {
        sql!("note_waiting").bind(ids).bind(why).bind(due_at).execute(connection).await?;
    }
    Ok(())
}

pub(crate) async fn close_restored(connection: &mut PgConnection, ids: &[Uuid]) -> Result<()> {
    if !ids.is_empty() {
        sql!("close_restored").bind(ids).execute(connection).await?;
    }
    Ok(())
}

pub(crate) async fn close_erased(connection: &mut PgConnection, ids: &[Uuid], rows: &[i64]) -> Result<()> {
    if !ids.is_empty() {
        sql!("close_erased").bind(ids).bind(rows).execute(connection).await?;
    }
    Ok(())
}

pub(crate) async fn claim_large(connection: &mut PgConnection, id: Uuid) -> Result<()> {
    sql!("claim_large").bind(id).execute(connection).await?;
    Ok(())
}

pub(crate) async fn claimed(
    connection: &mut PgConnection,
    policy: &str,
    after: Option<Uuid>,
) -> Result<Option<Candidate>> {
    Ok(sql!("claimed" as Candidate).bind(policy).bind(after).fetch_optional(connection).await?)
}

pub(crate) async fn add_rows(connection: &mut PgConnection, id: Uuid, rows: i64, parts: &Value) -> Result<()> {
    sql!("add_rows").bind(id).bind(rows).bind(parts).execute(connection).await?;
    Ok(())
}

/// Returns whether that was the last attempt.
pub(crate) async fn note_failure(connection: &mut PgConnection, id: Uuid, error: &str, attempts: i32) -> Result<bool> {
    let failed =
        sql!("note_failure" scalar bool).bind(id).bind(error).bind(attempts).fetch_optional(connection).await?;
    Ok(failed.unwrap_or(false))
}

/// What the audit keeps of an erased subject.
#[derive(Debug, Clone)]
pub(crate) struct Erasure {
    pub(crate) subject: Hash,
    pub(crate) rows: i64,
    pub(crate) due_at: Moment,
    pub(crate) details: Value,
}

pub(crate) async fn record_erasures(
    connection: &mut PgConnection,
    (policy, version, table): (&str, i64, &str),
    (run, node): (i64, &str),
    erasures: &[Erasure],
) -> Result<()> {
    if erasures.is_empty() {
        return Ok(());
    }
    let subjects: Vec<&[u8]> = erasures.iter().map(|erasure| erasure.subject.as_slice()).collect();
    let rows: Vec<i64> = erasures.iter().map(|erasure| erasure.rows).collect();
    let due: Vec<Moment> = erasures.iter().map(|erasure| erasure.due_at).collect();
    let details: Vec<&Value> = erasures.iter().map(|erasure| &erasure.details).collect();
    sql!("record_erasures")
        .bind(policy)
        .bind(version)
        .bind(table)
        .bind(run)
        .bind(node)
        .bind(subjects)
        .bind(rows)
        .bind(due)
        .bind(details)
        .execute(connection)
        .await?;
    Ok(())
}

pub(crate) async fn any_held(connection: &mut PgConnection, policy: &str, ids: &[String]) -> Result<bool> {
    Ok(sql!("any_held" scalar bool).bind(policy).bind(ids).fetch_one(connection).await?)
}

/// Positions of the subjects that have no open deletion.
pub(crate) async fn not_open(connection: &mut PgConnection, policy: &str, ids: &[String]) -> Result<Vec<i32>> {
    Ok(sql!("not_open" scalar i32).bind(policy).bind(ids).fetch_all(connection).await?)
}

/// Returns (deletion, subject, due) of what was opened.
pub(crate) async fn open_deletions(
    connection: &mut PgConnection,
    policy: &str,
    seen: &rows::Seen,
) -> Result<Vec<Candidate>> {
    Ok(sql!("open_deletions" as Candidate)
        .bind(policy)
        .bind(&seen.ids)
        .bind(&seen.deleted_at)
        .bind(&seen.tenants)
        .fetch_all(connection)
        .await?)
}

pub(crate) async fn open_page(
    connection: &mut PgConnection,
    policy: &str,
    after: Option<Uuid>,
    limit: u64,
) -> Result<Vec<Candidate>> {
    Ok(sql!("open_page" as Candidate).bind(policy).bind(after).bind(limit as i64).fetch_all(connection).await?)
}

/// A policy as functions and nodes need it.
#[derive(Debug)]
pub(crate) struct PutRetain<'a> {
    pub(crate) policy: &'a str,
    pub(crate) relation: String,
    pub(crate) subjects: bool,
    pub(crate) grace: PgInterval,
    pub(crate) floor: PgInterval,
    pub(crate) zone: &'a str,
    pub(crate) tenant_override: bool,
    pub(crate) subject_call: Option<String>,
    pub(crate) tree: Option<&'a Shape>,
    pub(crate) by: &'a str,
    pub(crate) warn_before: Vec<PgInterval>,
    pub(crate) proceed: bool,
}

pub(crate) async fn put_retain(connection: &mut PgConnection, put: PutRetain<'_>) -> Result<()> {
    let tables: Vec<&str> =
        put.tree.map(|tree| tree.tables.iter().map(|table| table.table.as_str()).collect()).unwrap_or_default();
    sql!("put_retain")
        .bind(put.policy)
        .bind(put.relation)
        .bind(put.subjects)
        .bind(put.grace)
        .bind(put.floor)
        .bind(put.zone)
        .bind(put.tenant_override)
        .bind(put.subject_call)
        .bind(put.tree.map(Json))
        .bind(tables)
        .bind(put.by)
        .bind(put.warn_before)
        .bind(put.proceed)
        .execute(connection)
        .await?;
    Ok(())
}

/// Open deletions follow a changed policy. Returns how many moved.
pub(crate) async fn due_again(connection: &mut PgConnection, policy: &str) -> Result<u64> {
    Ok(sql!("due_again").bind(policy).execute(connection).await?.rows_affected())
}

pub(crate) async fn approved(connection: &mut PgConnection, policy: &str) -> Result<Option<Shape>> {
    let found = sql!("approved" scalar Option<Json<Shape>>).bind(policy).fetch_optional(connection).await?;
    Ok(found.flatten().map(|Json(shape)| shape))
}

/// (day after the moment, deletions that fall due on it); day 0: due by then.
pub(crate) async fn due_by_day(
    connection: &mut PgConnection,
    policy: &str,
    from: Moment,
    days: u32,
) -> Result<Vec<(i32, i64)>> {
    let query = sql!("due_by_day" as (i32, i64)).bind(policy).bind(from).bind(days.min(36_500) as i32);
    Ok(query.fetch_all(connection).await?)
}

pub(crate) async fn count_due(connection: &mut PgConnection, policy: &str) -> Result<u64> {
    let due = sql!("count_due" scalar i64).bind(policy).fetch_one(connection).await?;
    Ok(due.unsigned_abs())
}

/// How many open deletions are due now, and how many would be with another grace and floor, or without warnings.
pub(crate) async fn due_if(
    connection: &mut PgConnection,
    policy: &str,
    (grace, floor): (PgInterval, PgInterval),
    (warns, proceeds): (bool, bool),
) -> Result<(u64, u64)> {
    let query = sql!("due_if" as (i64, i64)).bind(policy).bind(grace).bind(floor).bind(warns).bind(proceeds);
    let (now, then) = query.fetch_one(connection).await?;
    Ok((now.unsigned_abs(), then.unsigned_abs()))
}

/// A tenant's own terms.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
pub struct Override {
    /// Whose.
    pub tenant: String,
    #[serde(skip)]
    #[allow(missing_docs)]
    pub retention: Option<PgInterval>,
    /// The keys as they were set.
    pub spec: Value,
    /// Whether anything of the tenant is erased.
    pub enabled: bool,
    /// When.
    pub changed_at: Moment,
    /// By whom, as they said.
    pub changed_by: String,
}

pub(crate) async fn overrides(connection: &mut PgConnection, policy: &str) -> Result<Vec<Override>> {
    Ok(sql!("overrides" as Override).bind(policy).fetch_all(connection).await?)
}

pub(crate) async fn put_override(
    connection: &mut PgConnection,
    (policy, tenant): (&str, &str),
    (retention, warn_before): (Option<PgInterval>, Option<Vec<PgInterval>>),
    spec: &Value,
    enabled: bool,
    by: &str,
) -> Result<()> {
    sql!("put_override")
        .bind(policy)
        .bind(tenant)
        .bind(retention)
        .bind(spec)
        .bind(enabled)
        .bind(by)
        .bind(warn_before)
        .execute(connection)
        .await?;
    Ok(())
}

pub(crate) async fn remove_override(connection: &mut PgConnection, policy: &str, tenant: &str) -> Result<bool> {
    Ok(sql!("remove_override").bind(policy).bind(tenant).execute(connection).await?.rows_affected() > 0)
}

/// A deletion as people see it.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[expect(missing_docs, reason = "the columns of ebb.v_deletions")]
pub struct Deletion {
    pub deletion: Uuid,
    pub subject_id: Option<String>,
    pub tenant: Option<String>,
    pub state: String,
    pub deleted_at: Moment,
    pub due_at: Moment,
    pub expedited: bool,
    pub on_hold: bool,
    pub hold_reason: Option<String>,
    pub hold_until: Option<Moment>,
    pub warning: Option<String>,
    pub warned_at: Option<Moment>,
    pub warning_error: Option<String>,
    pub blocked: Option<String>,
    pub attempts: i32,
    pub next_try_at: Option<Moment>,
    pub error: Option<String>,
    pub rows: Option<i64>,
    pub opened_at: Moment,
    pub closed_at: Option<Moment>,
}

/// An open deletion in a list.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
pub struct OpenDeletion {
    /// Whose policy it is.
    pub policy: String,
    /// How it stands.
    #[serde(flatten)]
    #[sqlx(flatten)]
    pub deletion: Deletion,
}

pub(crate) async fn list_open(
    connection: &mut PgConnection,
    policy: Option<&str>,
    limit: i64,
) -> Result<Vec<OpenDeletion>> {
    Ok(sql!("list_open" as OpenDeletion).bind(policy).bind(limit).fetch_all(connection).await?)
}

pub(crate) async fn deletion_of(connection: &mut PgConnection, policy: &str, id: &str) -> Result<Option<Deletion>> {
    Ok(sql!("deletion_of" as Deletion).bind(policy).bind(id).fetch_optional(connection).await?)
}

/// A hold that is in force.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hold {
    /// Why.
    pub reason: String,
    /// Until when; none: until it is lifted.
    pub until: Option<Moment>,
    /// Since when.
    pub placed_at: Moment,
    /// By whom, as they said.
    pub placed_by: String,
    /// Other policies that leave its rows alone meanwhile.
    pub binds: Vec<String>,
}

pub(crate) async fn hold_of(connection: &mut PgConnection, policy: &str, id: &str) -> Result<Option<Hold>> {
    Ok(sql!("hold_of" as Hold).bind(policy).bind(id).fetch_optional(connection).await?)
}

pub(crate) async fn retry_subject(connection: &mut PgConnection, policy: &str, id: &str) -> Result<Option<Uuid>> {
    Ok(sql!("retry_subject" scalar Uuid).bind(policy).bind(id).fetch_optional(connection).await?)
}

/// Calls one of the functions that everybody uses: the same rules whoever asks.
pub(crate) async fn call<T>(connection: &mut PgConnection, sql: &'static str, arguments: &[Option<&str>]) -> Result<T>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
{
    let query = sqlx::query_scalar::<_, T>(sql).persistent(false);
    let query = arguments.iter().fold(query, |query, argument| query.bind(*argument));
    query.fetch_one(connection).await.map_err(explain)
}

/// What the functions refuse is a mistake of the caller's.
fn explain(error: sqlx::Error) -> Error {
    let Some(database) = error.as_database_error() else { return error.into() };
    let hint = database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().and_then(|error| error.hint());
    let told = match database.code().as_deref() {
        Some("P0002" | "42704") => Error::unknown(database.message()),
        Some("22P02" | "22023" | "22007" | "22008") => Error::usage(database.message()),
        _ => return error.into(),
    };
    match hint {
        Some(hint) => told.with_hint(hint),
        None => told,
    }
}

/// Runs a definition made by [`super::function`].
pub(crate) async fn define(connection: &mut PgConnection, definition: String) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(definition)).execute(connection).await?;
    Ok(())
}

/// Whether a B-tree starts with a column and has every row where it is not null.
pub(crate) async fn leads_by(connection: &mut PgConnection, table: u32, column: &str) -> Result<bool> {
    Ok(sql!("leads_by" scalar bool).bind(i64::from(table)).bind(column).fetch_one(connection).await?)
}

/// How much somebody allowed past the brake.
pub(crate) async fn is_admin(connection: &mut PgConnection) -> Result<bool> {
    Ok(sql!("is_admin" scalar bool).fetch_one(connection).await?)
}

pub(crate) async fn due_ids(connection: &mut PgConnection, policy: &str, limit: u64) -> Result<Vec<String>> {
    Ok(sql!("due_ids" scalar String).bind(policy).bind(limit as i64).fetch_all(connection).await?)
}

pub(crate) async fn suspects(
    connection: &mut PgConnection,
    root: u32,
    known: &[String],
) -> Result<Vec<(String, String)>> {
    Ok(sql!("suspects" as (String, String)).bind(i64::from(root)).bind(known).fetch_all(connection).await?)
}

/// Policies with subjects that are stuck: how many, and the last error.
pub(crate) async fn stuck(connection: &mut PgConnection, attempts: i32) -> Result<Vec<(String, i64, Option<String>)>> {
    Ok(sql!("stuck" as (String, i64, Option<String>)).bind(attempts).fetch_all(connection).await?)
}

pub(crate) async fn subject_policies(connection: &mut PgConnection) -> Result<Vec<String>> {
    Ok(sql!("subject_policies" scalar String).fetch_all(connection).await?)
}

/// Returns, for each subject that had events, its position and how many were cancelled.
pub(crate) async fn forget_events(
    connection: &mut PgConnection,
    policy: &str,
    ids: &[&str],
) -> Result<Vec<(i32, i64)>> {
    Ok(sql!("forget_events" as (i32, i64)).bind(policy).bind(ids).fetch_all(connection).await?)
}

/// Returns how many were forgotten; fewer than asked for when none is left.
pub(crate) async fn forget_some_events(
    connection: &mut PgConnection,
    policy: &str,
    id: &str,
    most: u64,
) -> Result<u64> {
    let query = sql!("forget_some_events" scalar i64).bind(policy).bind(id).bind(most as i64);
    Ok(query.fetch_one(connection).await?.unsigned_abs())
}

pub(crate) async fn count_events(connection: &mut PgConnection, policy: &str, ids: &[&str], most: u64) -> Result<u64> {
    let query = sql!("count_events" scalar i64).bind(policy).bind(ids).bind(most as i64);
    Ok(query.fetch_one(connection).await?.unsigned_abs())
}

/// Since when a review waits, what time it is, and whether somebody asked for one.
pub(crate) async fn review_due(connection: &mut PgConnection, unit: &str) -> Result<(Moment, Moment, bool)> {
    Ok(sql!("review_due" as (Moment, Moment, bool)).bind(unit).fetch_one(connection).await?)
}

pub(crate) async fn review_since(connection: &mut PgConnection) -> Result<(Moment, Moment)> {
    Ok(sql!("review_since" as (Moment, Moment)).fetch_one(connection).await?)
}

pub(crate) async fn note_premature(connection: &mut PgConnection, found: &[super::report::Premature]) -> Result<()> {
    let (records, policies): (Vec<i64>, Vec<&str>) =
        found.iter().map(|found| (found.record, found.policy.as_str())).unzip();
    sql!("note_premature").bind(records).bind(policies).execute(connection).await?;
    Ok(())
}

pub(crate) async fn note_review(
    connection: &mut PgConnection,
    (since, until): (Moment, Moment),
    erased: i64,
    premature: i64,
    stuck: i64,
) -> Result<()> {
    let query = sql!("note_review").bind(since).bind(until).bind(erased).bind(premature).bind(stuck);
    query.execute(connection).await?;
    Ok(())
}

pub(crate) async fn count_premature(connection: &mut PgConnection) -> Result<u64> {
    Ok(sql!("count_premature" scalar i64).fetch_one(connection).await?.unsigned_abs())
}

/// Pages and bytes of a table, with partitions and indexes.
pub(crate) async fn table_size(connection: &mut PgConnection, table: u32) -> Result<(u64, i64)> {
    let (pages, bytes) = sql!("table_size" as (i64, i64)).bind(i64::from(table)).fetch_one(connection).await?;
    Ok((pages.unsigned_abs(), bytes))
}

/// Replaces what was measured of a policy: (tenant, rows, bytes).
pub(crate) async fn note_storage(
    connection: &mut PgConnection,
    policy: &str,
    measured: &[(String, i64, i64)],
    exact: bool,
) -> Result<()> {
    sql!("forget_storage").bind(policy).execute(&mut *connection).await?;
    let tenants: Vec<&str> = measured.iter().map(|(tenant, ..)| tenant.as_str()).collect();
    let rows: Vec<i64> = measured.iter().map(|(_, rows, _)| *rows).collect();
    let bytes: Vec<i64> = measured.iter().map(|(.., bytes)| *bytes).collect();
    let query = sql!("note_storage").bind(policy).bind(tenants).bind(rows).bind(bytes).bind(exact);
    query.execute(connection).await?;
    Ok(())
}

pub(crate) async fn report_span(
    connection: &mut PgConnection,
    since: Option<Moment>,
    until: Option<Moment>,
) -> Result<(Moment, Moment)> {
    Ok(sql!("report_span" as (Moment, Moment)).bind(since).bind(until).fetch_one(connection).await?)
}

pub(crate) async fn report_deleted(
    connection: &mut PgConnection,
    since: Moment,
    until: Moment,
    tenant: Option<&str>,
) -> Result<Vec<super::report::Deleted>> {
    Ok(sql!("report_deleted" as super::report::Deleted)
        .bind(since)
        .bind(until)
        .bind(tenant)
        .fetch_all(connection)
        .await?)
}

pub(crate) async fn report_erased(
    connection: &mut PgConnection,
    since: Moment,
    until: Moment,
    tenant: Option<&str>,
) -> Result<Vec<super::report::Erased>> {
    Ok(sql!("report_erased" as super::report::Erased)
        .bind(since)
        .bind(until)
        .bind(tenant)
        .fetch_all(connection)
        .await?)
}

pub(crate) async fn report_premature(
    connection: &mut PgConnection,
    since: Moment,
    until: Moment,
    tenant: Option<&str>,
) -> Result<Vec<super::report::Premature>> {
    let query = sql!("report_premature" as super::report::Premature);
    Ok(query.bind(since).bind(until).bind(tenant).fetch_all(connection).await?)
}

pub(crate) async fn report_asked(
    connection: &mut PgConnection,
    since: Moment,
    until: Moment,
) -> Result<Vec<(String, i64)>> {
    Ok(sql!("report_asked" as (String, i64)).bind(since).bind(until).fetch_all(connection).await?)
}

pub(crate) async fn report_below_default(connection: &mut PgConnection) -> Result<Vec<(String, String, String)>> {
    Ok(sql!("report_below_default" as (String, String, String)).fetch_all(connection).await?)
}

pub(crate) async fn past_erasures(connection: &mut PgConnection) -> Result<Vec<(String, Vec<u8>, Moment)>> {
    Ok(sql!("past_erasures" as (String, Vec<u8>, Moment)).fetch_all(connection).await?)
}

pub(crate) async fn replay_subject(
    connection: &mut PgConnection,
    policy: &str,
    id: &str,
    moment: Moment,
    by: &str,
) -> Result<()> {
    sql!("replay_subject").bind(policy).bind(id).bind(moment).bind(by).execute(connection).await?;
    Ok(())
}
