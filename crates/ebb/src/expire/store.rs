//! What a sweep does on a connection: looks that bound a batch, the statement that changes rows (directly, or through the
//! owner's sandbox), counts, the brake's row, VACUUM. The statements themselves are composed in `statement.rs`.

use sqlx::{AssertSqlSafe, PgConnection};

pub(crate) use super::statement::{Act, Place, Range, Target};
use crate::audit::Moment;
use crate::gate::Held;
use crate::pg::{Ident, Relation};
use crate::{Error, Result, sql};

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
            sweep_pages(connection, target, *from, *to).await?
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
async fn sweep_pages(connection: &mut PgConnection, target: &Target, from: u64, to: u64) -> Result<Swept> {
    let (column, place) = (&target.due.column, Place::Pages { from, to });
    let look = format!(
        "SELECT count(*), {}, {} FROM ONLY {} WHERE {} AND {}",
        target.due.due_at(&format!("min({column})")),
        target.due.due_at(&format!("max({column})")),
        target.leaf,
        target.place(&place),
        target.condition(),
    );
    let (picked, due_from, due_to): (i64, Option<Moment>, Option<Moment>) =
        sqlx::query_as(AssertSqlSafe(look)).persistent(false).fetch_one(&mut *connection).await?;
    if picked == 0 {
        return Ok(Swept::default());
    }
    let rows = plain(connection, target, &place).await?;
    Ok(Swept { picked, rows, due_from, due_to, ..Swept::default() })
}

/// Looks how far the next rows reach in the column's order, then takes that range. Rows that share the value after the
/// last one stay for the next batch, so that a batch is bounded; where one value fills it, addresses bound it instead.
async fn sweep_keys(connection: &mut PgConnection, target: &Target, from: Option<&str>, limit: u64) -> Result<Swept> {
    let (first, due_from) = match edge(connection, target, from, 0).await?.into_iter().next() {
        Some(first) => first,
        None => return Ok(Swept::default()),
    };
    // The last row of this batch and the first of the next one, when there is a next one.
    let edge = edge(connection, target, Some(&first), limit.saturating_sub(1)).await?;
    let (place, next, due_to) = match edge.as_slice() {
        [(last, _), (next, _)] if first == *last && last == next => {
            let range = Range::Keys { from: Some(first), to: Some(last.clone()), limit };
            return careful(connection, target, &range, false).await;
        }
        [(last, due_to), (next, _)] if last != next => {
            (Place::Values { from: first, to: Some(last.clone()), before: None }, Some(next.clone()), *due_to)
        }
        [_, (next, _)] => {
            let place = Place::Values { from: first, to: None, before: Some(next.clone()) };
            let due_to = newest(connection, target, &place).await?;
            (place, Some(next.clone()), due_to)
        }
        _ => {
            let place = Place::Values { from: first, to: None, before: None };
            let due_to = newest(connection, target, &place).await?;
            (place, None, due_to)
        }
    };
    let rows = plain(connection, target, &place).await?;
    let picked = if next.is_some() { limit as i64 } else { rows };
    Ok(Swept { picked, rows, due_from, due_to, last: next, ..Swept::default() })
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
async fn newest(connection: &mut PgConnection, target: &Target, place: &Place) -> Result<Option<Moment>> {
    let sql = format!(
        "SELECT {} FROM ONLY {} WHERE {} AND {}",
        target.due.due_at(&format!("max({})", target.due.column)),
        target.leaf,
        target.place(place),
        target.condition(),
    );
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?)
}

/// The plain statement, or the sandbox that has it.
async fn plain(connection: &mut PgConnection, target: &Target, place: &Place) -> Result<i64> {
    if let Some(sandbox) = &target.sandbox {
        return Ok(called(connection, sandbox.plain(target, place)).await?.rows);
    }
    let done = sqlx::query(AssertSqlSafe(target.plain(place))).persistent(false).execute(connection).await?;
    Ok(done.rows_affected() as i64)
}

/// The careful statement, or the sandbox that has it.
async fn careful(connection: &mut PgConnection, target: &Target, range: &Range, skip_locked: bool) -> Result<Swept> {
    if let Some(sandbox) = &target.sandbox {
        return called(connection, sandbox.careful(target, range, skip_locked)).await;
    }
    let sql = target.careful(range, skip_locked);
    Ok(sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?)
}

/// Calls a sandbox. Whatever a trigger in it may have set, names mean the same again before anything else is sent.
async fn called(connection: &mut PgConnection, sql: String) -> Result<Swept> {
    let swept = sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *connection).await?;
    sqlx::raw_sql("SET LOCAL search_path = pg_catalog").execute(connection).await?;
    Ok(swept)
}

/// Rows of a batch that could not go by themselves.
#[derive(Debug, Default)]
pub(crate) struct Stayed {
    /// Why, where somebody refers to one.
    pub(crate) referenced: Option<String>,
    /// How many raise an error, and why, and where, one does.
    pub(crate) raised: u64,
    pub(crate) raises: Option<String>,
}

/// Changes what is due in a range row by row where it must be: rows that others refer to, or over which a trigger raises an
/// error, stay. Everything at once, then halves of what cannot go as a whole, until those that cannot go are alone.
pub(crate) async fn sweep_around(
    connection: &mut PgConnection,
    target: &Target,
    range: &Range,
    skip_locked: bool,
) -> Result<(Swept, Stayed)> {
    // Whose a row is may be beyond the rights with which it goes: then rows are picked before those are taken on.
    let picked_first = !target.held.is_empty() && target.borrows_rights();
    let acting = if picked_first { &target.without_holds() } else { target };
    let picked = if picked_first { Some(addresses(connection, target, range).await?) } else { None };
    as_role(connection, target.role.as_ref()).await?;
    // A constraint that is checked at the end of the transaction would say too late which row it is about.
    sqlx::raw_sql("SET CONSTRAINTS ALL IMMEDIATE").execute(&mut *connection).await?;
    let (places, last) = match picked {
        Some(picked) => picked,
        None => addresses(connection, target, range).await?,
    };
    let mut all = Swept { picked: places.len() as i64, last, ..Swept::default() };
    let (mut parts, mut stayed) = (vec![places], Stayed::default());
    while let Some(mut places) = parts.pop().filter(|places| !places.is_empty()) {
        sqlx::raw_sql("SAVEPOINT ebb_part").execute(&mut *connection).await?;
        match careful(connection, acting, &Range::At { places: places.clone() }, skip_locked).await {
            Ok(part) => {
                sqlx::raw_sql("RELEASE SAVEPOINT ebb_part").execute(&mut *connection).await?;
                all.add(part);
            }
            Err(error) if is_referenced(&error) || error.is_for_a_row() => {
                sqlx::raw_sql("ROLLBACK TO SAVEPOINT ebb_part; RELEASE SAVEPOINT ebb_part")
                    .execute(&mut *connection)
                    .await?;
                match places.as_slice() {
                    [_] if is_referenced(&error) => stayed.referenced = Some(error.to_string()),
                    [place] => {
                        stayed.raised += 1;
                        // What the server says may quote the row; where it lies tells nobody whose it is.
                        let code = error.sqlstate().unwrap_or_default();
                        stayed.raises.get_or_insert_with(|| format!("SQLSTATE {code}, for instance at ctid {place}"));
                    }
                    _ => {
                        parts.push(places.split_off(places.len() / 2));
                        parts.push(places);
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    back_from_role(connection, target.role.as_ref()).await?;
    Ok((all, stayed))
}

/// Where the due rows of a range are, and how far that reaches.
async fn addresses(
    connection: &mut PgConnection,
    target: &Target,
    range: &Range,
) -> Result<(Vec<String>, Option<String>)> {
    let sql = target.addresses(range);
    Ok(sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?)
}

/// Somebody's foreign key refers to the row: NO ACTION, or RESTRICT.
pub(crate) fn is_referenced(error: &Error) -> bool {
    matches!(error.sqlstate().as_deref(), Some("23503" | "23001"))
}

impl Stayed {
    pub(crate) fn any(&self) -> bool {
        self.referenced.is_some() || self.raises.is_some()
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.referenced = more.referenced.or(self.referenced.take());
        self.raises = self.raises.take().or(more.raises);
        self.raised += more.raised;
    }
}

impl Swept {
    /// Adds what a part of the same batch did.
    fn add(&mut self, part: Swept) {
        self.rows += part.rows;
        self.again += part.again;
        self.due_from = self.due_from.into_iter().chain(part.due_from).min();
        self.due_to = self.due_to.into_iter().chain(part.due_to).max();
        if let Some(more) = part.keys {
            self.keys.get_or_insert_default().extend(more);
        }
        if let Some(more) = part.dues {
            self.dues.get_or_insert_default().extend(more);
        }
    }
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
    let target = if target.borrows_rights() { &target.without_holds() } else { target };
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

/// Counts due rows that belong to subjects on hold, no further than `limit`.
pub(crate) async fn count_held(
    connection: &mut PgConnection,
    table: &Relation,
    target: &Target,
    held: &[Held],
    limit: u64,
) -> Result<u64> {
    let conditions: Vec<String> = held.iter().flat_map(|held| held.conditions(&table.name)).collect();
    let sql = format!(
        "SELECT count(*) FROM (SELECT FROM {table} WHERE {} AND ({}) LIMIT {limit}) AS held",
        target.condition(),
        conditions.join(" OR ")
    );
    let rows: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?;
    Ok(rows.unsigned_abs())
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

pub(crate) async fn may_vacuum(connection: &mut PgConnection, leaf: u32) -> Result<bool> {
    Ok(sql!("may_vacuum" scalar Option<bool>).bind(i64::from(leaf)).fetch_one(connection).await?.unwrap_or(false))
}

/// How often a leaf was vacuumed by hand; none where the server does not count.
pub(crate) async fn vacuums(connection: &mut PgConnection, leaf: u32) -> Result<Option<i64>> {
    Ok(sql!("vacuums" scalar Option<i64>).bind(i64::from(leaf)).fetch_one(connection).await?)
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
