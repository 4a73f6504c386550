//! The SQL of retain over Ebb's own schema; [`rows`] has what is sent to users' tables.

mod graph;
pub(crate) mod late;
mod policies;
mod report;
pub(crate) mod rows;
pub(crate) mod snapshots;
mod subjects;
mod suspects;
pub(crate) mod triggers;
pub(crate) mod warnings;
mod written;

pub(crate) use graph::{KeyRow, TableRow, graph_aside, graph_keys, graph_leaves, graph_tables, overlap, partition_of};
pub(crate) use policies::{
    DueIf, PutRetain, any_open, approve_tree, approved, due_again, due_among, due_if, due_sooner, floor_agreed,
    floor_history, installed, override_history, overrides, policies_of_one_table, put_override, put_retain,
    remove_override, renew_due, renewed, renews, subject_policies,
};
pub use policies::{Override, is_admin};
pub(crate) use report::{
    count_premature, note_premature, note_review, note_storage, past_erasures, replay_subject, report_asked,
    report_below_default, report_deleted, report_erased, report_premature, report_records, report_span,
    report_swept_early, review_due, review_slice, table_size,
};
pub(crate) use subjects::{
    Backlog, backlog, call, deletion_of, explain_end, history_of, hold_of, list_holds, list_open, list_waiting,
    look_subject, retry_subject, retry_warning,
};
pub use subjects::{Deletion, Happened, HeldSubject, Hold, OpenDeletion, OpenFilter, Unmarked};
pub(crate) use suspects::{meant_by_name, suspects};
pub(crate) use written::{WrittenColumn, kept_as, written_column};

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use super::tree::Tree;
use crate::audit::{Hash, Moment};
use crate::pg::catalog::Table;
use crate::{Result, sql};

/// Why a deletion waits whose row somebody else deleted: there is nobody to warn, and it ends when it is due.
pub(crate) const GONE: &str = "its row is gone";

/// A deletion that may be due.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Candidate {
    pub(crate) id: Uuid,
    pub(crate) subject_id: String,
    pub(crate) due_at: Moment,
    /// What the status column said before it, as JSON; read where deletions are locked to be closed.
    #[sqlx(default)]
    pub(crate) former: Option<String>,
}

/// How far a run has come among the due deletions.
pub(crate) type Place = Option<(Moment, Uuid)>;

pub(crate) async fn candidates(
    connection: &mut PgConnection,
    policy: &str,
    after: Place,
    limit: u64,
    open_at: Moment,
) -> Result<Vec<Candidate>> {
    Ok(sql!("candidates" as Candidate)
        .bind(policy)
        .bind(after.map(|(due_at, _)| due_at))
        .bind(after.map(|(_, id)| id))
        .bind(limit.min(i64::MAX as u64) as i64)
        .bind(open_at)
        .bind(GONE)
        .fetch_all(connection)
        .await?)
}

/// Who changed rows of a subject that do not say so by their values: transactions, by what rows have of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Writers {
    /// Those that did everything that was to be done to their rows.
    pub(crate) whole: BTreeSet<i64>,
    /// Those after which it was done for these edges, where others lead to the same table.
    pub(crate) partly: BTreeMap<i64, BTreeSet<String>>,
}

impl<'r> sqlx::FromRow<'r, PgRow> for Writers {
    fn from_row(row: &'r PgRow) -> sqlx::Result<Self> {
        let (whole, Json(partly)): (Vec<i64>, _) = (row.try_get("whole")?, row.try_get("partly")?);
        Ok(Self { whole: whole.into_iter().collect(), partly })
    }
}

impl Writers {
    pub(crate) fn join(&mut self, other: &Self) {
        self.whole.extend(&other.whole);
        self.partly.extend(other.partly.clone());
    }
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
    /// What was only unlinked before, by table.
    pub(crate) unlinked: Value,
    #[sqlx(flatten)]
    pub(crate) writers: Writers,
    pub(crate) warned_at: Option<Moment>,
    /// Why it counts as unwarned, where its policy warns.
    pub(crate) unwarned: Option<String>,
    pub(crate) now: Moment,
}

impl Look {
    /// It is erased already, in parts, and cannot be restored any more.
    pub(crate) fn is_claimed(&self) -> bool {
        self.state == "erasing"
    }
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

/// The next subjects whom closed deletions, or holds that are over, still name.
pub(crate) async fn former_subjects(connection: &mut PgConnection, policy: &str, most: i64) -> Result<Vec<String>> {
    Ok(sql!("former_subjects" scalar String).bind(policy).bind(most).fetch_all(connection).await?)
}

/// Lets nothing that is closed name subjects who are not there any more; how much did.
pub(crate) async fn forget_former(connection: &mut PgConnection, policy: &str, ids: &[&str]) -> Result<i64> {
    Ok(sql!("forget_former" scalar i64).bind(policy).bind(ids).fetch_one(connection).await?)
}

pub(crate) async fn close_erased(
    connection: &mut PgConnection,
    ids: &[Uuid],
    rows: &[i64],
    writers: &Writers,
) -> Result<()> {
    if !ids.is_empty() {
        sql!("close_erased")
            .bind(ids)
            .bind(rows)
            .bind(Vec::from_iter(writers.whole.iter().copied()))
            .bind(Json(&writers.partly))
            .execute(connection)
            .await?;
    }
    Ok(())
}

pub(crate) async fn claim_large(
    connection: &mut PgConnection,
    (version, table): (i64, &str),
    (run, node): (i64, &str),
    ids: &[Uuid],
) -> Result<()> {
    if !ids.is_empty() {
        sql!("claim_large").bind(ids).bind(version).bind(table).bind(run).bind(node).execute(connection).await?;
    }
    Ok(())
}

/// The tenants of deletions, as they were when their subjects' rows were last seen.
pub(crate) async fn tenants_of(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Option<String>>> {
    Ok(sql!("tenants_of" scalar Option<String>).bind(ids).fetch_all(connection).await?)
}

pub(crate) async fn claimed(
    connection: &mut PgConnection,
    policy: &str,
    after: Option<Uuid>,
    limit: u64,
) -> Result<Vec<Candidate>> {
    let query = sql!("claimed" as Candidate).bind(policy).bind(after);
    Ok(query.bind(limit.min(i64::MAX as u64) as i64).fetch_all(connection).await?)
}

pub(crate) async fn add_rows(
    connection: &mut PgConnection,
    id: Uuid,
    parts: &Value,
    unlinked: &Value,
    writers: &Writers,
) -> Result<()> {
    sql!("add_rows")
        .bind(id)
        .bind(parts)
        .bind(unlinked)
        .bind(Vec::from_iter(writers.whole.iter().copied()))
        .bind(Json(&writers.partly))
        .execute(connection)
        .await?;
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
    /// An object of JSON.
    pub(crate) details: String,
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
    let details: Vec<&str> = erasures.iter().map(|erasure| erasure.details.as_str()).collect();
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

/// Deletions that are open of these subjects.
pub(crate) async fn open_among(connection: &mut PgConnection, policy: &str, ids: &[&str]) -> Result<Vec<Candidate>> {
    Ok(sql!("open_among" as Candidate).bind(policy).bind(ids).fetch_all(connection).await?)
}

/// The other table whose subjects a policy still has something open about.
pub(crate) async fn still_about(connection: &mut PgConnection, policy: &str, table: &Table) -> Result<Option<String>> {
    let query = sql!("still_about" scalar String).bind(policy).bind(table.relation.label()).bind(i64::from(table.oid));
    Ok(query.fetch_optional(connection).await?)
}

/// What fires when rows of a tree's tables go, as one word, what policies keep rows, and when that was so.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Fences {
    pub(crate) word: String,
    /// The policies that may keep rows, as one word.
    pub(crate) kept_by: String,
    /// Those over tables of the tree, and their versions.
    pub(crate) keepers: Vec<String>,
    versions: Vec<i64>,
    pub(crate) at: Moment,
    /// A partition is on its way out, and nobody sees its rows until it is.
    pub(crate) leaves: bool,
}

pub(crate) async fn fences(connection: &mut PgConnection, tree: &Tree) -> Result<Fences> {
    let doomed = tree.nodes.iter().filter(|node| node.doomed);
    let tables: Vec<String> = doomed.map(|node| node.relation.to_string()).collect();
    Ok(sql!("fences" as Fences).bind(tables).fetch_one(connection).await?)
}

/// Whether the policies that may keep rows, and the columns they count from, are those of these fences, and stay so until the
/// transaction ends.
pub(crate) async fn still_kept(connection: &mut PgConnection, fences: &Fences) -> Result<bool> {
    let query = sql!("still_kept" scalar bool).bind(&fences.keepers).bind(&fences.versions).bind(&fences.kept_by);
    Ok(query.fetch_one(connection).await?)
}

/// Positions of the subjects whose soft delete has no open deletion, and the deletion of an earlier one that is open.
pub(crate) async fn not_open(
    connection: &mut PgConnection,
    policy: &str,
    ids: &[String],
    since: &[Moment],
) -> Result<Vec<(i32, Option<Uuid>)>> {
    let query = sql!("not_open" as (i32, Option<Uuid>)).bind(policy).bind(ids).bind(since);
    Ok(query.fetch_all(connection).await?)
}

/// Locks open deletions, passing by those that somebody holds, and reads them again.
pub(crate) async fn lock_open(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Candidate>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    Ok(sql!("lock_open" as Candidate).bind(ids).fetch_all(connection).await?)
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
        .bind(&seen.former)
        .fetch_all(connection)
        .await?)
}

/// An open deletion, and whether it was opened since a moment.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Opened {
    #[sqlx(flatten)]
    pub(crate) candidate: Candidate,
    pub(crate) tenant: Option<String>,
    pub(crate) since: bool,
    /// Its row was not there when it was last looked for.
    pub(crate) gone: bool,
}

pub(crate) async fn open_page(
    connection: &mut PgConnection,
    policy: &str,
    after: Option<&str>,
    limit: u64,
    since: Moment,
) -> Result<Vec<Opened>> {
    let query = sql!("open_page" as Opened).bind(policy).bind(after).bind(limit as i64).bind(since);
    Ok(query.bind(GONE).fetch_all(connection).await?)
}

/// Deletions whose subjects are of other tenants by now, as they are due by the terms of these.
pub(crate) async fn move_tenants(
    connection: &mut PgConnection,
    ids: &[Uuid],
    tenants: &[Option<String>],
) -> Result<Vec<Candidate>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    Ok(sql!("move_tenants" as Candidate).bind(ids).bind(tenants).fetch_all(connection).await?)
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

/// Runs a definition made by [`super::function`].
pub(crate) async fn define(connection: &mut PgConnection, definition: String) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(definition)).execute(connection).await?;
    Ok(())
}

/// What a function that was made by a definition does.
pub(crate) async fn generated(connection: &mut PgConnection, name: &str) -> Result<Option<String>> {
    Ok(sql!("generated" scalar String).bind(name).fetch_optional(connection).await?)
}

/// The roles without whose rights a function of the ebb schema cannot be made anew.
pub(crate) async fn lacks_to_define(connection: &mut PgConnection, name: &str) -> Result<Vec<String>> {
    Ok(sql!("lacks_to_define" scalar String).bind(name).fetch_all(connection).await?)
}

/// The schemas where a table's triggers look things up, each with whoever else may create there: with the rights of the
/// table's owner nothing is looked up in one that has anybody.
pub(crate) async fn path_schemas(connection: &mut PgConnection, table: u32) -> Result<Vec<(String, Vec<String>)>> {
    Ok(sql!("path_schemas" as (String, Vec<String>)).bind(i64::from(table)).fetch_all(connection).await?)
}

/// Whether a B-tree starts with a column and has every row where it is not null.
pub(crate) async fn leads_by(connection: &mut PgConnection, table: u32, column: &str) -> Result<bool> {
    Ok(sql!("leads_by" scalar bool).bind(i64::from(table)).bind(column).fetch_one(connection).await?)
}

/// How many subjects are due and would go, and how many are due and on hold.
pub(crate) async fn plan_due(connection: &mut PgConnection, policy: &str) -> Result<(u64, u64)> {
    let (due, held) = sql!("plan_due" as (i64, i64)).bind(policy).fetch_one(connection).await?;
    Ok((due.unsigned_abs(), held.unsigned_abs()))
}

pub(crate) async fn due_ids(connection: &mut PgConnection, policy: &str, limit: u64) -> Result<Vec<String>> {
    Ok(sql!("due_ids" scalar String).bind(policy).bind(limit as i64).fetch_all(connection).await?)
}

/// Policies with subjects that are stuck, of a tenant or of all: how many, and the last error.
pub(crate) async fn stuck(
    connection: &mut PgConnection,
    attempts: i32,
    tenant: Option<&str>,
) -> Result<Vec<(String, i64, Option<String>)>> {
    Ok(sql!("stuck" as (String, i64, Option<String>)).bind(attempts).bind(tenant).fetch_all(connection).await?)
}

/// Policies that are not followed any more and have open deletions, or holds in force: how many of each.
pub(crate) async fn stranded(connection: &mut PgConnection) -> Result<Vec<(String, i64, i64)>> {
    Ok(sql!("stranded" as (String, i64, i64)).fetch_all(connection).await?)
}

/// Returns, for each subject that had events, its position and how many were cancelled.
pub(crate) async fn forget_events(
    connection: &mut PgConnection,
    policy: &str,
    ids: &[&str],
) -> Result<Vec<(i32, i64)>> {
    Ok(sql!("forget_events" as (i32, i64)).bind(policy).bind(ids).fetch_all(connection).await?)
}

/// Subjects of another policy who went as rows of others.
pub(crate) struct Along<'a> {
    pub(crate) policy: &'a str,
    pub(crate) table: String,
    pub(crate) ids: Vec<String>,
    pub(crate) pseudonyms: Vec<Hash>,
    /// The deletion that each went with, where it is known.
    pub(crate) deletions: Vec<Option<Uuid>>,
}

/// Forgets them, but for a record of each that says by which policy they went.
pub(crate) async fn forget_along(connection: &mut PgConnection, by: &str, along: &Along<'_>) -> Result<()> {
    let ids: Vec<&str> = along.ids.iter().map(String::as_str).collect();
    forget_events(connection, along.policy, &ids).await?;
    let pseudonyms: Vec<&[u8]> = along.pseudonyms.iter().map(|pseudonym| pseudonym.as_slice()).collect();
    let query = sql!("forget_along").bind(along.policy).bind(ids).bind(pseudonyms).bind(by);
    query.bind(&along.deletions).bind(&along.table).execute(connection).await?;
    Ok(())
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

/// Subjects on hold, at most so many.
pub(crate) async fn held_ids(connection: &mut PgConnection, policy: &str, most: i64) -> Result<Vec<String>> {
    Ok(sql!("held_ids" scalar String).bind(policy).bind(most).fetch_all(connection).await?)
}

/// Subjects with an open deletion, at most so many.
pub(crate) async fn open_ids(connection: &mut PgConnection, policy: &str, most: i64) -> Result<Vec<String>> {
    Ok(sql!("open_ids" scalar String).bind(policy).bind(most).fetch_all(connection).await?)
}
