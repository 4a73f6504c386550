//! The sweep's SQL over users' tables, composed from quoted names, checked expressions and constants only.
//! Invariants: every DELETE and UPDATE carries the whole condition itself; ctids are used with ONLY, leaf by leaf.

use sqlx::{AssertSqlSafe, PgConnection};

use super::due::Due;
use crate::audit::Moment;
use crate::pg::expression::{Change, Expression};
use crate::pg::{Ident, Literal, Relation};
use crate::{Result, sql};

/// What happens to a due row.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Delete,
    /// `SET` list.
    Set(Vec<(Ident, Change)>),
}

/// One leaf made ready: everything a statement over it needs.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) leaf: Relation,
    pub(crate) due: Due,
    pub(crate) filter: Option<Expression>,
    pub(crate) act: Act,
    /// Statements run under this role.
    pub(crate) role: Option<Ident>,
    /// The columns that name a row in the audit, when each row is recorded; empty when it has no key.
    pub(crate) key: Option<Vec<Ident>>,
}

/// Where in a leaf a batch looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Range {
    /// Pages from (inclusive) to (exclusive).
    Pages { from: u64, to: u64 },
    /// Physical order after a row address, at most so many rows.
    Rows { after: String, limit: u64 },
    /// Column order from a value on (inclusive; none: the bottom) to another (inclusive), at most so many rows.
    Keys { from: Option<String>, to: Option<String>, limit: u64 },
}

/// What one batch did.
#[derive(Debug, Clone, Default, sqlx::FromRow)]
pub(crate) struct Swept {
    /// Rows found due in the range, for those ranges that are bounded in rows.
    pub(crate) picked: i64,
    /// Rows changed.
    pub(crate) rows: i64,
    /// The oldest and newest due time among the rows, where finding them costs nothing.
    pub(crate) due_from: Option<Moment>,
    pub(crate) due_to: Option<Moment>,
    /// The last address or value that was looked at.
    pub(crate) last: Option<String>,
    /// With row records: each row's key and due time.
    pub(crate) keys: Option<Vec<String>>,
    pub(crate) dues: Option<Vec<Option<Moment>>>,
    /// Rows that are due after the change as before.
    pub(crate) again: i64,
}

impl Target {
    /// The whole condition that makes a row go, now and at the moment it goes.
    pub(crate) fn condition(&self) -> String {
        let mut condition = self.due.condition();
        if let Some(filter) = &self.filter {
            condition = format!("{condition} AND {filter}");
        }
        if let Act::Set(changes) = &self.act {
            // The time of a change is no reason to change a row again.
            let lasting = changes.iter().filter(|(_, change)| !change.moves);
            let changed: Vec<String> = lasting.map(|(_, change)| change.differs.to_string()).collect();
            if !changed.is_empty() {
                condition = format!("{condition} AND ({})", changed.join(" OR "));
            }
        }
        condition
    }

    fn verb(&self) -> String {
        match &self.act {
            Act::Delete => format!("DELETE FROM ONLY {}", self.leaf),
            Act::Set(changes) => {
                let list: Vec<String> =
                    changes.iter().map(|(column, change)| format!("{column} = {}", change.value)).collect();
                format!("UPDATE ONLY {} SET {}", self.leaf, list.join(", "))
            }
        }
    }

    /// The plain statement: everything due where `place` says, waiting for rows that others hold.
    fn plain(&self, place: &str) -> String {
        format!("{} WHERE {place} AND {}", self.verb(), self.condition())
    }

    /// Whether a batch may be one plain statement: nothing has to be told about each row.
    fn is_plain(&self) -> bool {
        self.key.is_none() && matches!(self.act, Act::Delete)
    }

    /// The careful statement: picks rows (passing by held ones with `skip_locked`), changes them by address under the
    /// whole condition, and tells about each. A fifth to a half slower than the plain one.
    fn careful(&self, range: &Range, skip_locked: bool) -> String {
        let (leaf, column) = (&self.leaf, &self.due.column);
        let condition = self.condition();
        let lock = if skip_locked { "FOR UPDATE SKIP LOCKED" } else { "" };
        let (place, last) = match range {
            Range::Pages { from, to } => (format!("{} AND {condition}", pages(*from, *to)), "max(value)"),
            // IS TRUE keeps indexes out: only in physical order is the last address a place to go on from.
            Range::Rows { after, limit } => {
                (format!("ctid > {}::tid AND ({condition}) IS TRUE LIMIT {limit}", Literal(after)), "max(place)")
            }
            // By position: the table may have a column called place or value.
            Range::Keys { from, to, limit } => {
                let between = self.between(from.as_deref(), to.as_deref());
                (format!("{between} AND {condition} ORDER BY 2 LIMIT {limit}"), "max(value)")
            }
        };
        let (keys, dues) = match &self.key {
            Some(_) => ("array_agg(key)".to_owned(), format!("array_agg({})", self.due.due_at("due"))),
            None => ("NULL::text[]".to_owned(), "NULL::timestamptz[]".to_owned()),
        };
        format!(
            "WITH pick AS MATERIALIZED (SELECT ctid AS place, {column} AS value FROM ONLY {leaf} WHERE {place} {lock}), \
             gone AS ({verb} WHERE ctid = ANY(ARRAY(SELECT place FROM pick)) AND {condition} {returning}) \
             SELECT (SELECT count(*) FROM pick) AS picked, count(*) AS rows, {due_from} AS due_from, \
                 {due_to} AS due_to, (SELECT {last}::text FROM pick) AS last, {keys} AS keys, {dues} AS dues, \
                 count(*) FILTER (WHERE again) AS again FROM gone",
            verb = self.verb(),
            returning = self.returning(),
            due_from = self.due.due_at("min(due)"),
            due_to = self.due.due_at("max(due)"),
        )
    }

    fn returning(&self) -> String {
        let (column, key) = (&self.due.column, self.key_sql());
        match &self.act {
            Act::Delete => format!("RETURNING {column} AS due, false AS again{key}"),
            // What the column was is gone when it is set itself.
            Act::Set(changes) if changes.iter().any(|(set, _)| set == column) => {
                format!("RETURNING NULL::{} AS due, {} AS again{key}", self.due.sql_type(), self.condition())
            }
            Act::Set(_) => format!("RETURNING {column} AS due, {} AS again{key}", self.condition()),
        }
    }

    /// Column order, both ends inclusive, as a condition.
    fn between(&self, from: Option<&str>, to: Option<&str>) -> String {
        let column = &self.due.column;
        let from = from.map(|from| format!("{column} >= {}", self.due.constant(from)));
        let to = to.map(|to| format!("{column} <= {}", self.due.constant(to)));
        match from.into_iter().chain(to).collect::<Vec<_>>() {
            parts if parts.is_empty() => "true".to_owned(),
            parts => parts.join(" AND "),
        }
    }

    fn key_sql(&self) -> String {
        match self.key.as_deref() {
            None => String::new(),
            Some([]) => ", ctid::text AS key".to_owned(),
            Some(columns) => {
                let list: Vec<String> = columns.iter().map(Ident::to_string).collect();
                format!(", jsonb_build_array({})::text AS key", list.join(", "))
            }
        }
    }
}

fn pages(from: u64, to: u64) -> String {
    format!("ctid >= '({from},0)'::tid AND ctid < '({to},0)'::tid")
}

/// Changes what is due in a range, under the policy's role. With `skip_locked` rows that others hold are passed by.
pub(crate) async fn sweep(
    connection: &mut PgConnection,
    target: &Target,
    range: &Range,
    skip_locked: bool,
) -> Result<Swept> {
    as_role(connection, target.role.as_ref()).await?;
    let swept = match range {
        Range::Pages { from, to } if !skip_locked && target.is_plain() => {
            sweep_pages(connection, target, &pages(*from, *to)).await?
        }
        Range::Keys { from, limit, .. } if !skip_locked && target.is_plain() => {
            sweep_keys(connection, target, from.as_deref(), *limit).await?
        }
        _ => careful(connection, target, range, skip_locked).await?,
    };
    back_from_role(connection, target.role.as_ref()).await?;
    Ok(swept)
}

/// Looks at what is due in the pages, for the record, then takes it.
async fn sweep_pages(connection: &mut PgConnection, target: &Target, pages: &str) -> Result<Swept> {
    let column = &target.due.column;
    let look = format!(
        "SELECT count(*), {}, {} FROM ONLY {} WHERE {pages} AND {}",
        target.due.due_at(&format!("min({column})")),
        target.due.due_at(&format!("max({column})")),
        target.leaf,
        target.condition(),
    );
    let (picked, due_from, due_to): (i64, Option<Moment>, Option<Moment>) =
        sqlx::query_as(AssertSqlSafe(look)).persistent(false).fetch_one(&mut *connection).await?;
    if picked == 0 {
        return Ok(Swept::default());
    }
    let rows = execute(connection, target.plain(pages)).await?;
    Ok(Swept { picked, rows, due_from, due_to, ..Swept::default() })
}

/// Looks how far the next rows reach in the column's order, then takes that range. Rows that share the value after the
/// last one stay for the next batch, so that a batch is bounded; where one value fills it, addresses bound it instead.
async fn sweep_keys(connection: &mut PgConnection, target: &Target, from: Option<&str>, limit: u64) -> Result<Swept> {
    let column = &target.due.column;
    let (first, due_from) = match edge(connection, target, from, 0).await?.into_iter().next() {
        Some(first) => first,
        None => return Ok(Swept::default()),
    };
    // The last row of this batch and the first of the next one, when there is a next one.
    let edge = edge(connection, target, Some(&first), limit.saturating_sub(1)).await?;
    let (place, last, due_to) = match edge.as_slice() {
        [(last, _), (next, _)] if first == *last && last == next => {
            let range = Range::Keys { from: Some(first), to: Some(last.clone()), limit };
            return careful(connection, target, &range, false).await;
        }
        [(last, due_to), (next, _)] if last != next => {
            (target.between(Some(&first), Some(last)), Some(next.clone()), *due_to)
        }
        [_, (next, _)] => {
            let place = format!("{} AND {column} < {}", target.between(Some(&first), None), target.due.constant(next));
            let due_to = newest(connection, target, &place).await?;
            (place, Some(next.clone()), due_to)
        }
        _ => {
            let place = target.between(Some(&first), None);
            let due_to = newest(connection, target, &place).await?;
            (place, None, due_to)
        }
    };
    let rows = execute(connection, target.plain(&place)).await?;
    let picked = if last.is_some() { limit as i64 } else { rows };
    Ok(Swept { picked, rows, due_from, due_to, last, ..Swept::default() })
}

/// The values at a distance from a place in the column's order, and the one after it, with their due times.
async fn edge(
    connection: &mut PgConnection,
    target: &Target,
    from: Option<&str>,
    distance: u64,
) -> Result<Vec<(String, Option<Moment>)>> {
    let sql = format!(
        "SELECT value::text, {} FROM (SELECT {} AS value FROM ONLY {} WHERE {} AND {} \
         ORDER BY 1 OFFSET {distance} LIMIT 2) AS edge",
        target.due.due_at("value"),
        target.due.column,
        target.leaf,
        target.between(from, None),
        target.condition(),
    );
    Ok(sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await?)
}

/// The newest due time in a place.
async fn newest(connection: &mut PgConnection, target: &Target, place: &str) -> Result<Option<Moment>> {
    let sql = format!(
        "SELECT {} FROM ONLY {} WHERE {place} AND {}",
        target.due.due_at(&format!("max({})", target.due.column)),
        target.leaf,
        target.condition(),
    );
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?)
}

async fn careful(connection: &mut PgConnection, target: &Target, range: &Range, skip_locked: bool) -> Result<Swept> {
    let sql = target.careful(range, skip_locked);
    Ok(sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?)
}

async fn execute(connection: &mut PgConnection, sql: String) -> Result<i64> {
    let done = sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(connection).await?;
    Ok(done.rows_affected() as i64)
}

/// For the rest of the transaction: lock waits are short; the commit need not wait for the disk, since a sweep that is
/// lost with its record is derived again; a scan starts at the first page; stale statistics cannot turn a bounded range into a pass over the table.
pub(crate) async fn bound(connection: &mut PgConnection, lock_wait: std::time::Duration) -> Result<()> {
    let sql = format!(
        "SET LOCAL lock_timeout = {}; SET LOCAL synchronous_commit = off; SET LOCAL enable_seqscan = off; \
         SET LOCAL synchronize_seqscans = off; SET LOCAL jit = off",
        lock_wait.as_millis()
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}

pub(crate) async fn as_role(connection: &mut PgConnection, role: Option<&Ident>) -> Result<()> {
    if let Some(role) = role {
        sqlx::raw_sql(AssertSqlSafe(format!("SET LOCAL ROLE {role}"))).execute(connection).await?;
    }
    Ok(())
}

pub(crate) async fn back_from_role(connection: &mut PgConnection, role: Option<&Ident>) -> Result<()> {
    if role.is_some() {
        sqlx::raw_sql("SET LOCAL ROLE NONE").execute(connection).await?;
    }
    Ok(())
}

/// Rows and due rows of a table with all its leaves, by looking at about `sample_pages` pages, or at all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Count {
    pub(crate) total: f64,
    pub(crate) due: f64,
    /// Counted, not estimated.
    pub(crate) exact: bool,
}

/// Estimates by sampling whole pages; statistics are not asked, because what must be noticed is new to them.
pub(crate) async fn estimate(
    connection: &mut PgConnection,
    table: &Relation,
    target: &Target,
    table_pages: u64,
    sample_pages: u64,
) -> Result<Count> {
    as_role(connection, target.role.as_ref()).await?;
    let share = sample_pages as f64 / table_pages.max(1) as f64;
    let sample = if share >= 0.5 { String::new() } else { format!("TABLESAMPLE SYSTEM ({})", share * 100.0) };
    let sql = format!("SELECT count(*), count(*) FILTER (WHERE {}) FROM {table} {sample}", target.condition());
    let (total, due): (i64, i64) =
        sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *connection).await?;
    back_from_role(connection, target.role.as_ref()).await?;
    let scale = if share >= 0.5 { 1.0 } else { share };
    Ok(Count { total: total as f64 / scale, due: due as f64 / scale, exact: share >= 0.5 })
}

/// Counts due rows of a table with all its leaves, no further than `limit`.
pub(crate) async fn count_due(
    connection: &mut PgConnection,
    table: &Relation,
    target: &Target,
    limit: u64,
) -> Result<u64> {
    as_role(connection, target.role.as_ref()).await?;
    let sql = format!("SELECT count(*) FROM (SELECT FROM {table} WHERE {} LIMIT {limit}) AS due", target.condition());
    let due: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *connection).await?;
    back_from_role(connection, target.role.as_ref()).await?;
    Ok(due as u64)
}

/// The same over one leaf alone.
pub(crate) async fn count_due_in_leaf(connection: &mut PgConnection, target: &Target, limit: u64) -> Result<u64> {
    as_role(connection, target.role.as_ref()).await?;
    let sql = format!(
        "SELECT count(*) FROM (SELECT FROM ONLY {} WHERE {} LIMIT {limit}) AS due",
        target.leaf,
        target.condition()
    );
    let due: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *connection).await?;
    back_from_role(connection, target.role.as_ref()).await?;
    Ok(due as u64)
}

/// Pages of a leaf's file at the moment.
pub(crate) async fn pages_now(connection: &mut PgConnection, leaf: u32) -> Result<u64> {
    let pages: i64 = sql!("pages_now" scalar i64).bind(i64::from(leaf)).fetch_one(connection).await?;
    Ok(pages as u64)
}

/// The planner's idea of how many rows of a leaf are due: statistics, no reading.
pub(crate) async fn planned_rows(connection: &mut PgConnection, target: &Target) -> Result<f64> {
    let sql = format!("EXPLAIN (FORMAT JSON) SELECT FROM ONLY {} WHERE {}", target.leaf, target.condition());
    let plan: serde_json::Value =
        sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?;
    Ok(plan[0]["Plan"]["Plan Rows"].as_f64().unwrap_or(0.0))
}

/// The primary key's columns of a leaf; empty when it has none.
pub(crate) async fn key_columns(connection: &mut PgConnection, leaf: u32) -> Result<Vec<Ident>> {
    let names: Vec<String> = sql!("key_columns" scalar String).bind(i64::from(leaf)).fetch_all(connection).await?;
    Ok(names.into_iter().map(Ident::new).collect())
}

/// An allowance, or the mark of a brake that tripped.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct BrakeRow {
    pub(crate) allow_rows: Option<i64>,
}

pub(crate) async fn brake(connection: &mut PgConnection, policy: &str) -> Result<Option<BrakeRow>> {
    Ok(sql!("brake" as BrakeRow).bind(policy).fetch_optional(connection).await?)
}

pub(crate) async fn trip_brake(connection: &mut PgConnection, policy: &str, due: u64, limit: &str) -> Result<()> {
    sql!("trip_brake").bind(policy).bind(due as i64).bind(limit).execute(connection).await?;
    Ok(())
}

pub(crate) async fn release_brake(connection: &mut PgConnection, policy: &str) -> Result<()> {
    sql!("release_brake").bind(policy).execute(connection).await?;
    Ok(())
}

pub(crate) async fn use_allowance(connection: &mut PgConnection, policy: &str, rows: u64) -> Result<()> {
    sql!("use_allowance").bind(policy).bind(rows as i64).execute(connection).await?;
    Ok(())
}

pub(crate) async fn may_vacuum(connection: &mut PgConnection, leaf: u32) -> Result<bool> {
    Ok(sql!("may_vacuum" scalar Option<bool>).bind(i64::from(leaf)).fetch_one(connection).await?.unwrap_or(false))
}

/// VACUUM (ANALYZE), stepping aside for whoever holds the table. Not in a transaction: it is idempotent.
pub(crate) async fn vacuum(session: &mut PgConnection, leaf: &Relation) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(format!("VACUUM (ANALYZE, SKIP_LOCKED) {leaf}"))).execute(session).await?;
    Ok(())
}

pub(crate) async fn note_vacuum(connection: &mut PgConnection, unit: &str, words: &str) -> Result<()> {
    sql!("note_vacuum").bind(unit).bind(words).execute(connection).await?;
    Ok(())
}
