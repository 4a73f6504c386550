//! Root rows by the page, and the columns of theirs that mirror a deletion.

use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::session::{end_savepoint, savepoint};
use super::{Doomed, Root, SoftDelete, bind, id_sql, join};
use crate::Result;
use crate::audit::Moment;
use crate::pg::{Ident, Literal, Operators, beyond};
use crate::retain::tree::Column;

/// Subjects that were read together, and the place of the last, from which to go on.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) ids: Vec<String>,
    /// Since when each may be soft-deleted.
    pub(crate) since: Vec<Moment>,
    pub(crate) last: Option<Vec<String>>,
}

/// Rows that the application soft-deleted, as they are under a lock.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) ids: Vec<String>,
    pub(crate) deleted_at: Vec<Moment>,
    pub(crate) tenants: Vec<Option<String>>,
    /// What the status column of each said, as JSON, where its deletion replaces it.
    pub(crate) former: Vec<Option<String>>,
}

/// The next soft-deleted rows in the order of the key or, where an index helps, of the soft delete.
pub(crate) async fn soft_deleted(
    connection: &mut PgConnection,
    root: &Root,
    by_time: bool,
    after: Option<&[String]>,
    limit: u64,
) -> Result<Page> {
    let mut order: Vec<(String, String, Operators)> = place(&root.key);
    if by_time {
        let sql_type = match root.time {
            SoftDelete::TimestampTz => "timestamptz",
            SoftDelete::Timestamp => "timestamp",
            SoftDelete::Date => "date",
        };
        order.insert(0, (format!("n.{}", root.deleted_at), sql_type.to_owned(), Operators::built_in()));
    }
    let place = order.iter().map(|(column, ..)| column.as_str()).collect::<Vec<_>>().join(", ");
    let beyond = after.map_or(String::new(), |after| format!("AND {}", behind(&order, after)));
    let texts: Vec<String> = order.iter().map(|(column, ..)| format!("{column}::text")).collect();
    let sql = format!(
        "SELECT {id}, ARRAY[{texts}], {since} FROM {relation} AS n \
         WHERE n.{deleted_at} OPERATOR(pg_catalog.>) '-infinity' AND n.{deleted_at} OPERATOR(pg_catalog.<) '9999-01-01' {beyond} \
         ORDER BY {place} LIMIT {limit}",
        id = id_sql(&root.key, "n"),
        since = root.time.earliest(&format!("n.{}", root.deleted_at), &root.zone),
        texts = texts.join(", "),
        relation = root.relation,
        deleted_at = root.deleted_at,
    );
    let mut seen = Page::default();
    for row in sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await? {
        seen.ids.push(row.try_get(0)?);
        seen.last = Some(row.try_get(1)?);
        seen.since.push(row.try_get(2)?);
    }
    Ok(seen)
}

/// The columns of a key, their types, and by what they are compared.
fn place(key: &[Column]) -> Vec<(String, String, Operators)> {
    let column = |column: &Column| (format!("n.{}", column.name), column.sql_type.clone(), column.operators.clone());
    key.iter().map(column).collect()
}

/// What is true of rows behind the one with these values.
fn behind(order: &[(String, String, Operators)], values: &[String]) -> String {
    let columns: Vec<(String, Operators)> =
        order.iter().map(|(column, _, operators)| (column.clone(), operators.clone())).collect();
    let values: Vec<String> =
        values.iter().zip(order).map(|(value, (_, sql_type, _))| format!("{}::{sql_type}", Literal(value))).collect();
    beyond(&columns, &values)
}

/// Subjects of the root table, soft-deleted or not, and the place of the last, from which to go on.
pub(crate) struct Everybody {
    /// Ids, and since when each is soft-deleted.
    pub(crate) found: Vec<(String, Option<Moment>)>,
    pub(crate) last: Option<Vec<String>>,
}

/// The next subjects of the root table, in the order of the key.
pub(crate) async fn everybody(
    connection: &mut PgConnection,
    root: &Root,
    after: Option<&[String]>,
    limit: u64,
) -> Result<Everybody> {
    let order = place(&root.key);
    let place = order.iter().map(|(column, ..)| column.as_str()).collect::<Vec<_>>().join(", ");
    let beyond = after.map_or(String::new(), |after| format!("WHERE {}", behind(&order, after)));
    let texts: Vec<String> = root.key.iter().map(|column| format!("n.{}::text", column.name)).collect();
    let deleted_at = format!("n.{}", root.deleted_at);
    let sql = format!(
        "SELECT {}, ARRAY[{}], CASE WHEN pg_catalog.isfinite({deleted_at}) AND {deleted_at} OPERATOR(pg_catalog.<) '9999-01-01' THEN {} END \
         FROM {} AS n {beyond} ORDER BY {place} LIMIT {limit}",
        id_sql(&root.key, "n"),
        texts.join(", "),
        root.time.moment(&deleted_at, &root.zone),
        root.relation
    );
    let mut seen = Everybody { found: Vec::new(), last: None };
    for row in sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await? {
        seen.found.push((row.try_get(0)?, row.try_get(2)?));
        seen.last = Some(row.try_get(1)?);
    }
    Ok(seen)
}

/// What a statement takes of each subject, as arrays in the order in which [`own`] counts them.
#[derive(Default)]
struct OfEach<'a> {
    moments: Vec<&'a [Moment]>,
    texts: Option<&'a [Option<String>]>,
}

/// Sets columns of the subjects' own rows, some to a value of each.
async fn update(
    connection: &mut PgConnection,
    root: &Root,
    ids: &Doomed,
    set: &[String],
    of_each: &OfEach<'_>,
) -> Result<()> {
    if set.is_empty() || ids.is_empty() {
        return Ok(());
    }
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let join = join(&key, &root.key, 1);
    let sql = format!("UPDATE {} AS n SET {} FROM {} WHERE {}", root.relation, set.join(", "), join.from, join.on);
    let sql = match root.path.opened() {
        opened if opened.is_empty() => sql,
        opened => format!("WITH done AS ({sql} RETURNING 1) SELECT FROM done{opened}"),
    };
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    let query = bind(sqlx::query(AssertSqlSafe(sql)).persistent(false), &values, &ids.subjects);
    let query = of_each.moments.iter().fold(query, |query, moments| query.bind(*moments));
    of_each.texts.into_iter().fold(query, |query, texts| query.bind(texts)).execute(&mut *connection).await?;
    root.path.close(connection).await
}

/// How a statement over many rows meets one that its table refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// It fails as a whole: nothing is lost, and it is the faster way.
    None,
    /// That row is found and left as it is.
    RowByRow,
}

/// Rows that a constraint or a trigger of their table left as they were.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    pub(crate) rows: u64,
    pub(crate) sqlstate: Option<String>,
}

/// Sets columns of the subjects' own rows with care: where that fails over what a row holds, it is halved until the row is alone.
async fn update_with(
    care: Care,
    connection: &mut PgConnection,
    root: &Root,
    ids: &Doomed,
    set: &[String],
    of_each: OfEach<'_>,
) -> Result<Refused> {
    let mut refused = Refused::default();
    if care == Care::None {
        update(connection, root, ids, set, &of_each).await?;
        return Ok(refused);
    }
    let mut parts = vec![ids.clone()];
    while let Some(mut some) = parts.pop() {
        savepoint(connection).await?;
        let mut updated = update(connection, root, &some, set, &of_each).await;
        if updated.is_ok() {
            updated = root.path.settle(connection).await;
        }
        if updated.is_ok() {
            updated = end_savepoint(connection, true).await;
        }
        if updated.is_err() {
            end_savepoint(connection, false).await?;
        }
        match updated {
            Err(error) if !error.is_of_a_row() => return Err(error),
            Err(_) if some.len() > 1 => {
                let rest = some.tail(some.len() / 2);
                some.truncate(some.len() / 2);
                parts.extend([rest, some]);
            }
            Err(error) => refused = Refused { rows: refused.rows + 1, sqlstate: error.sqlstate() },
            Ok(()) => {}
        }
    }
    Ok(refused)
}

/// The value of each subject out of the array at a position.
fn own(root: &Root, at: usize, sql_type: &str) -> String {
    format!("(${}::{sql_type}[])[p.\"ebb:s\" + 1]", root.key.len() + 2 + at)
}

/// A moment that needs no right on the clock: a policy's role has none.
fn literal(moment: Moment) -> String {
    format!("{}::timestamptz", Literal(&moment.to_string()))
}

/// Sets a mirror column of subjects.
pub(crate) async fn set_mirror(
    connection: &mut PgConnection,
    root: &Root,
    column: &Ident,
    moment: Moment,
    ids: &Doomed,
) -> Result<()> {
    update(connection, root, ids, &[format!("{column} = {}", literal(moment))], &OfEach::default()).await
}

/// Which of these soft-deleted subjects have another due time in the column that mirrors it. A second is what the column
/// may have rounded.
pub(crate) async fn out_of_step(
    connection: &mut PgConnection,
    root: &Root,
    column: &Ident,
    ids: &Doomed,
    due: &[Moment],
) -> Result<Vec<i32>> {
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let join = join(&key, &root.key, 1);
    let due_at = format!("(${}::timestamptz[])[p.\"ebb:s\" + 1]", join.arrays + 2);
    let sql = format!(
        "SELECT p.\"ebb:s\" FROM {relation} AS n JOIN {from} ON {on} WHERE n.{deleted_at} IS NOT NULL AND (n.{column} IS NULL \
         OR n.{column}::timestamptz NOT BETWEEN {due_at} - interval '1 second' AND {due_at} + interval '1 second')",
        relation = root.relation,
        from = join.from,
        on = join.on,
        deleted_at = root.deleted_at,
    );
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    let query = bind(sqlx::query(AssertSqlSafe(sql)).persistent(false), &values, &ids.subjects).bind(due);
    query.fetch_all(connection).await?.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Soft-deletes subjects whose soft delete somebody took back.
pub(crate) async fn hide(connection: &mut PgConnection, root: &Root, now: Moment, ids: &Doomed) -> Result<()> {
    let set = format!("{} = {}", root.deleted_at, root.time.value(&literal(now), &root.zone));
    update(connection, root, ids, &[set], &OfEach::default()).await
}

/// Brings the columns that mirror a deletion up to date: the due time of each subject, the status, and what is said of an
/// earlier deletion.
pub(crate) async fn mirror(
    care: Care,
    connection: &mut PgConnection,
    root: &Root,
    ids: &Doomed,
    due: Option<(&Ident, &[Moment])>,
    status: Option<(&Ident, &str)>,
    cleared: &[Ident],
) -> Result<Refused> {
    let mut set: Vec<String> =
        due.iter().map(|(column, _)| format!("{column} = {}", own(root, 0, "timestamptz"))).collect();
    set.extend(status.map(|(column, value)| format!("{column} = {}", Literal(value))));
    set.extend(cleared.iter().map(|column| format!("{column} = NULL")));
    let moments: Vec<&[Moment]> = due.iter().map(|(_, due)| *due).collect();
    update_with(care, connection, root, ids, &set, OfEach { moments, texts: None }).await
}

/// The column that says whether a subject is deleted, and what it says.
#[derive(Debug, Clone)]
pub(crate) struct Standing {
    pub(crate) column: Ident,
    pub(crate) sql_type: String,
    pub(crate) deleted: String,
    pub(crate) active: String,
}

impl Standing {
    /// Whoever lives again is what they were before (SQL that gives the JSON of that, or null where nobody knows: active),
    /// unless the application says something else of them.
    pub(crate) fn revived(&self, former: &str) -> String {
        let Self { column, sql_type, deleted, active } = self;
        let (deleted, active) = (Literal(deleted), Literal(active));
        format!(
            "{column} = CASE WHEN n.{column}::text OPERATOR(pg_catalog.=) {deleted} THEN CASE WHEN {former} IS NULL THEN {active} \
             ELSE ({former}::jsonb OPERATOR(pg_catalog.#>>) '{{}}')::{sql_type} END ELSE n.{column} END"
        )
    }

    /// What a deletion replaces of a row `n`, as SQL that gives JSON; null where the row says itself that it is deleted.
    pub(crate) fn former(&self) -> String {
        let Self { column, deleted, .. } = self;
        let deleted = Literal(deleted);
        format!(
            "CASE WHEN n.{column}::text OPERATOR(pg_catalog.=) {deleted} THEN NULL \
             ELSE COALESCE(pg_catalog.to_jsonb(n.{column}::text)::text, 'null') END"
        )
    }
}

/// Lets the columns of subjects who live say nothing of a deletion; the status of each is what it was (`former`).
pub(crate) async fn unmirror(
    care: Care,
    connection: &mut PgConnection,
    root: &Root,
    ids: &Doomed,
    former: &[Option<String>],
    cleared: &[Ident],
) -> Result<Refused> {
    let mut set: Vec<String> = root.status.iter().map(|status| status.revived(&own(root, 0, "text"))).collect();
    set.extend(cleared.iter().map(|column| format!("{column} = NULL")));
    let texts = root.status.as_ref().map(|_| former);
    update_with(care, connection, root, ids, &set, OfEach { moments: Vec::new(), texts }).await
}

/// Columns that say how a warning stands.
#[derive(Debug, Clone)]
pub(crate) struct Mirrored {
    pub(crate) notified: Option<Ident>,
    pub(crate) due: Option<Ident>,
    pub(crate) touched: Option<Ident>,
}

/// Brings the columns that mirror a warning up to date: when each subject is due, and when it was warned.
pub(crate) async fn mirror_warning(
    care: Care,
    connection: &mut PgConnection,
    root: &Root,
    mirrored: &Mirrored,
    ids: &Doomed,
    (due, warned): (&[Moment], &[Moment]),
    now: Moment,
) -> Result<Refused> {
    let (mut set, mut moments) = (Vec::new(), Vec::new());
    for (column, of_each) in [(&mirrored.due, due), (&mirrored.notified, warned)] {
        if let Some(column) = column {
            set.push(format!("{column} = {}", own(root, moments.len(), "timestamptz")));
            moments.push(of_each);
        }
    }
    if !set.is_empty() {
        set.extend(mirrored.touched.iter().map(|column| format!("{column} = {}", literal(now))));
    }
    update_with(care, connection, root, ids, &set, OfEach { moments, texts: None }).await
}
