//! SQL over users' tables, composed from quoted names, types of the catalog and checked expressions only. Values travel
//! as arrays of text and are cast back to the column's own type. Invariants: rows are found through the edges of the
//! tree and nothing else; every statement tells whose rows it took, so that counts add up to what went.

use std::collections::HashMap;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row};

use crate::audit::Moment;
use crate::pg::expression::Change;
use crate::pg::{Ident, Literal, Relation};
use crate::policy::Zone;
use crate::retain::tree::{Column, Edge, Tree};
use crate::{Error, Result};

/// Rows that will go, column by column, each with the position of its subject in the batch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doomed {
    pub(crate) columns: Vec<Vec<Option<String>>>,
    pub(crate) subjects: Vec<i32>,
}

impl Doomed {
    pub(crate) fn with(columns: usize) -> Self {
        Self { columns: vec![Vec::new(); columns], subjects: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.subjects.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.subjects.is_empty()
    }

    pub(crate) fn push(&mut self, values: Vec<Option<String>>, subject: i32) {
        debug_assert_eq!(values.len(), self.columns.len(), "a row has every column that is read");
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(value);
        }
        self.subjects.push(subject);
    }

    pub(crate) fn row(&self, at: usize) -> Vec<Option<String>> {
        self.columns.iter().map(|column| column[at].clone()).collect()
    }

    pub(crate) fn tail(&self, from: usize) -> Doomed {
        Doomed {
            columns: self.columns.iter().map(|column| column[from..].to_vec()).collect(),
            subjects: self.subjects[from..].to_vec(),
        }
    }
}

/// The root table and the columns of it that a deletion is about.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) relation: Relation,
    pub(crate) key: Vec<Column>,
    pub(crate) deleted_at: Ident,
    pub(crate) time: SoftDelete,
    pub(crate) zone: Zone,
    pub(crate) tenant: Option<Ident>,
    pub(crate) attempted: Option<Ident>,
    /// The definition of a view that says of every row whether `unless` holds; its last column.
    pub(crate) unless: Option<String>,
}

/// What a soft-delete column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SoftDelete {
    TimestampTz,
    Timestamp,
    Date,
}

impl SoftDelete {
    pub(crate) fn of(base_type: &str, name: &str) -> Result<Self> {
        match base_type {
            "timestamp with time zone" => Ok(Self::TimestampTz),
            "timestamp without time zone" => Ok(Self::Timestamp),
            "date" => Ok(Self::Date),
            other => Err(Error::config(format!("column {name} is {other}, which is no time"))
                .with_hint("a soft-delete column is a timestamptz, timestamp or date")),
        }
    }

    /// The moment that a value stands for: a day when it has ended.
    pub(crate) fn moment(self, value: &str, zone: &Zone) -> String {
        let zone = Literal(zone.name());
        match self {
            Self::TimestampTz => value.to_owned(),
            Self::Timestamp => format!("({value} AT TIME ZONE {zone})"),
            Self::Date => format!("(({value} + 1)::timestamp AT TIME ZONE {zone})"),
        }
    }

    /// A moment as a value of the column.
    pub(crate) fn value(self, moment: &str, zone: &Zone) -> String {
        let zone = Literal(zone.name());
        match self {
            Self::TimestampTz => moment.to_owned(),
            Self::Timestamp => format!("({moment} AT TIME ZONE {zone})"),
            Self::Date => format!("({moment} AT TIME ZONE {zone})::date"),
        }
    }
}

/// A subject's own row, locked.
#[derive(Debug, Clone)]
pub(crate) struct RootRow {
    pub(crate) subject: i32,
    pub(crate) values: Vec<Option<String>>,
    /// Null: the application has taken its soft delete back.
    pub(crate) deleted_at: Option<Moment>,
    pub(crate) tenant: Option<String>,
}

/// The values of some columns, column by column.
type Values<'a> = Vec<&'a [Option<String>]>;

/// `unnest` over the values of these columns, and the join of `n` with it.
struct Join {
    from: String,
    on: String,
    arrays: usize,
}

fn join(of: &[Ident], values: &[Column], first: usize) -> Join {
    debug_assert_eq!(of.len(), values.len(), "a link pairs its columns");
    let arrays: Vec<String> =
        values.iter().enumerate().map(|(at, value)| format!("${}::text[]::{}[]", first + at, value.sql_type)).collect();
    let names: Vec<String> = (0..values.len()).map(|at| format!("\"ebb:{at}\"")).collect();
    let on: Vec<String> = of.iter().enumerate().map(|(at, column)| format!("n.{column} = p.\"ebb:{at}\"")).collect();
    Join {
        from: format!(
            "unnest({}, ${}::int[]) AS p ({}, \"ebb:s\")",
            arrays.join(", "),
            first + values.len(),
            names.join(", ")
        ),
        on: on.join(" AND "),
        arrays: values.len(),
    }
}

/// The values of some columns among those that were read.
fn pick<'a>(doomed: &'a Doomed, read: &[Column], wanted: &[Ident]) -> Result<(Vec<Column>, Values<'a>)> {
    let mut columns = Vec::new();
    let mut values = Vec::new();
    for name in wanted {
        let at = read.iter().position(|column| column.name == *name);
        let at = at.ok_or_else(|| Error::failed(format!("column {name} was not read")))?;
        columns.push(read[at].clone());
        values.push(doomed.columns[at].as_slice());
    }
    Ok((columns, values))
}

/// Which rows behind an edge, where a policy of their own keeps some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    Go,
    Stay,
}

impl Rows {
    /// The join of an edge's rows with their parents, and of those the ones that are meant.
    fn behind(self, edge: &Edge, join: &Join) -> String {
        let on = match &edge.only {
            None => join.on.clone(),
            Some(only) => format!("{} AND {only}", join.on),
        };
        match (&edge.kept, self) {
            (None, _) => on,
            (Some(kept), Self::Go) => format!("{on} AND ({}) IS NOT TRUE", kept.condition),
            (Some(kept), Self::Stay) => format!("{on} AND ({})", kept.condition),
        }
    }
}

fn bind<'q>(
    mut query: sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments>,
    values: &[&'q [Option<String>]],
    subjects: &'q [i32],
) -> sqlx::query::Query<'q, Postgres, sqlx::postgres::PgArguments> {
    for column in values {
        query = query.bind(*column);
    }
    query.bind(subjects)
}

async fn fetch(
    connection: &mut PgConnection,
    sql: &str,
    values: &[&[Option<String>]],
    subjects: &[i32],
) -> Result<Vec<PgRow>> {
    let query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
    Ok(bind(query, values, subjects).fetch_all(connection).await?)
}

fn texts(columns: &[Column]) -> String {
    columns.iter().map(|column| format!("n.{}::text, ", column.name)).collect()
}

/// Locks the subjects' own rows, passing by those that somebody holds. `ids` are the key's columns as texts.
pub(crate) async fn lock_roots(
    connection: &mut PgConnection,
    root: &Root,
    read: &[Column],
    ids: &Doomed,
) -> Result<Vec<RootRow>> {
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let join = join(&key, &root.key, 1);
    let tenant = root.tenant.as_ref().map_or("NULL".to_owned(), |tenant| format!("n.{tenant}::text"));
    let sql = format!(
        "SELECT {}{}, {tenant}, p.\"ebb:s\" FROM {} AS n JOIN {} ON {} FOR UPDATE OF n SKIP LOCKED",
        texts(read),
        root.time.moment(&format!("n.{}", root.deleted_at), &root.zone),
        root.relation,
        join.from,
        join.on
    );
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    let rows = fetch(connection, &sql, &values, &ids.subjects).await?;
    rows.iter()
        .map(|row| {
            let values = (0..read.len()).map(|at| row.try_get(at)).collect::<std::result::Result<_, _>>()?;
            let at = read.len();
            let (deleted_at, tenant, subject) = (row.try_get(at)?, row.try_get(at + 1)?, row.try_get(at + 2)?);
            Ok(RootRow { subject, values, deleted_at, tenant })
        })
        .collect()
}

/// Reads the subjects' own rows without locking them.
pub(crate) async fn read_roots(
    connection: &mut PgConnection,
    root: &Root,
    read: &[Column],
    ids: &Doomed,
) -> Result<Doomed> {
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let join = join(&key, &root.key, 1);
    let sql =
        format!("SELECT {}p.\"ebb:s\" FROM {} AS n JOIN {} ON {}", texts(read), root.relation, join.from, join.on);
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    let mut roots = Doomed::with(read.len());
    for row in fetch(connection, &sql, &values, &ids.subjects).await? {
        let values = (0..read.len()).map(|at| row.try_get(at)).collect::<std::result::Result<_, _>>()?;
        roots.push(values, row.try_get(read.len())?);
    }
    Ok(roots)
}

/// How many rows of one table refer to given rows of others through any of these edges; none is counted twice.
pub(crate) async fn count_distinct(
    connection: &mut PgConnection,
    tree: &Tree,
    edges: &[(&Edge, &Doomed)],
    which: Rows,
) -> Result<i64> {
    let mut parts = Vec::new();
    let mut binds: Vec<(Values<'_>, &[i32])> = Vec::new();
    let mut first = 1;
    for (edge, parents) in edges {
        let (columns, values) = pick(parents, &tree.nodes[edge.parent].read, &edge.parent_columns)?;
        let join = join(&edge.child_columns, &columns, first);
        first += join.arrays + 1;
        let child = &tree.nodes[edge.child].relation;
        let on = which.behind(edge, &join);
        parts.push(format!("SELECT n.tableoid, n.ctid FROM {child} AS n JOIN {} ON {on}", join.from));
        binds.push((values, &parents.subjects));
    }
    if parts.is_empty() {
        return Ok(0);
    }
    let sql = format!("SELECT count(*) FROM ({}) AS found", parts.join(" UNION "));
    // One edge may find a row through two parents.
    let sql = if edges.len() == 1 { sql.replacen("SELECT n.tableoid", "SELECT DISTINCT n.tableoid", 1) } else { sql };
    let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
    for (values, subjects) in &binds {
        query = bind(query, values, subjects);
    }
    Ok(query.fetch_one(connection).await?.try_get(0)?)
}

/// Which of the subjects have a row at all, locked or not.
pub(crate) async fn existing(connection: &mut PgConnection, root: &Root, ids: &Doomed) -> Result<Vec<i32>> {
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let join = join(&key, &root.key, 1);
    let sql = format!("SELECT p.\"ebb:s\" FROM {} AS n JOIN {} ON {}", root.relation, join.from, join.on);
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    let rows = fetch(connection, &sql, &values, &ids.subjects).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The subjects for whom `unless` holds now.
pub(crate) async fn blocked(connection: &mut PgConnection, root: &Root, ids: &Doomed) -> Result<Vec<i32>> {
    let Some(view) = &root.unless else { return Ok(Vec::new()) };
    // The view's columns are the key's, then the condition.
    let key: Vec<Ident> = (0..root.key.len()).map(|at| Ident::new(format!("ebb:k{at}"))).collect();
    let join = join(&key, &root.key, 1);
    let sql = format!("SELECT p.\"ebb:s\" FROM ({view}) AS n JOIN {} ON {} WHERE n.\"ebb:unless\"", join.from, join.on);
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    let rows = fetch(connection, &sql, &values, &ids.subjects).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The subjects whose value of a link somebody else who lives has too.
pub(crate) async fn sharing(
    connection: &mut PgConnection,
    tree: &Tree,
    root: &Root,
    edge: &Edge,
    roots: &Doomed,
) -> Result<Vec<i32>> {
    let read = &tree.nodes[0].read;
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let (link, link_values) = pick(roots, read, &edge.parent_columns)?;
    let (own, own_values) = pick(roots, read, &key)?;
    let join = join(&edge.parent_columns, &link, 1);
    // A second unnest carries the subject's own key, so that it does not share with itself.
    let keys: Vec<String> = own
        .iter()
        .enumerate()
        .map(|(at, column)| format!("${}::text[]::{}[]", join.arrays + 2 + at, column.sql_type))
        .collect();
    let names: Vec<String> = (0..own.len()).map(|at| format!("\"ebb:{at}\"")).collect();
    let other: Vec<String> = key.iter().enumerate().map(|(at, name)| format!("n.{name} = o.\"ebb:{at}\"")).collect();
    let sql = format!(
        "SELECT DISTINCT p.\"ebb:s\" FROM {relation} AS n JOIN {from} ON {on} \
         WHERE n.{deleted_at} IS NULL AND NOT EXISTS (SELECT FROM unnest({keys}) AS o ({names}) WHERE {other})",
        relation = root.relation,
        from = join.from,
        on = join.on,
        deleted_at = root.deleted_at,
        keys = keys.join(", "),
        names = names.join(", "),
        other = other.join(" AND "),
    );
    let query = bind(sqlx::query(AssertSqlSafe(sql)).persistent(false), &link_values, &roots.subjects);
    let query = own_values.iter().fold(query, |query, column| query.bind(*column));
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Reads and locks the rows of an edge's child that refer to the given rows of its parent.
pub(crate) async fn collect(
    connection: &mut PgConnection,
    tree: &Tree,
    edge: &Edge,
    parents: &Doomed,
    limit: Option<u64>,
    lock: bool,
) -> Result<Doomed> {
    let (child, parent) = (&tree.nodes[edge.child], &tree.nodes[edge.parent]);
    let (columns, values) = pick(parents, &parent.read, &edge.parent_columns)?;
    let join = join(&edge.child_columns, &columns, 1);
    let limit = limit.map_or(String::new(), |limit| format!("LIMIT {limit}"));
    let lock = if lock { "FOR UPDATE OF n" } else { "" };
    let sql = format!(
        "SELECT {}p.\"ebb:s\" FROM {} AS n JOIN {} ON {} {limit} {lock}",
        texts(&child.read),
        child.relation,
        join.from,
        Rows::Go.behind(edge, &join)
    );
    let rows = fetch(connection, &sql, &values, &parents.subjects).await?;
    let mut doomed = Doomed::with(child.read.len());
    for row in rows {
        let values = (0..child.read.len()).map(|at| row.try_get(at)).collect::<std::result::Result<_, _>>()?;
        doomed.push(values, row.try_get(child.read.len())?);
    }
    Ok(doomed)
}

/// How many rows of an edge's child refer to the given rows, counted up to a bound.
pub(crate) async fn count(
    connection: &mut PgConnection,
    tree: &Tree,
    edge: &Edge,
    parents: &Doomed,
    most: u64,
) -> Result<u64> {
    let (child, parent) = (&tree.nodes[edge.child], &tree.nodes[edge.parent]);
    let (columns, values) = pick(parents, &parent.read, &edge.parent_columns)?;
    let join = join(&edge.child_columns, &columns, 1);
    let sql = format!(
        "SELECT count(*) FROM (SELECT FROM {} AS n JOIN {} ON {} LIMIT {most}) AS found",
        child.relation,
        join.from,
        Rows::Go.behind(edge, &join)
    );
    let rows = fetch(connection, &sql, &values, &parents.subjects).await?;
    let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    Ok(count.unsigned_abs())
}

/// Whether a condition is true of any row of a table (`n`) that goes with the given rows: `wanted` columns of what was
/// read of those are the table's columns `of`.
pub(crate) async fn any(
    connection: &mut PgConnection,
    relation: &Relation,
    (read, wanted, of): (&[Column], &[Ident], &[Ident]),
    rows: &Doomed,
    condition: &str,
) -> Result<bool> {
    let (columns, values) = pick(rows, read, wanted)?;
    let join = join(of, &columns, 1);
    let sql =
        format!("SELECT EXISTS (SELECT FROM {relation} AS n JOIN {} ON {} WHERE {condition})", join.from, join.on);
    let rows = fetch(connection, &sql, &values, &rows.subjects).await?;
    Ok(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
}

/// Rows of a table by tenant, most first; over a share of its pages.
pub(crate) async fn count_by(
    connection: &mut PgConnection,
    relation: &Relation,
    tenant: Option<&Ident>,
    share: f64,
) -> Result<Vec<(Option<String>, i64)>> {
    let by = tenant.map_or("NULL::text".to_owned(), |tenant| format!("{tenant}::text"));
    let sample = if share >= 1.0 { String::new() } else { format!("TABLESAMPLE SYSTEM ({})", share * 100.0) };
    let sql = format!("SELECT {by}, count(*) FROM {relation} {sample} GROUP BY 1 ORDER BY 2 DESC");
    Ok(sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await?)
}

/// Rows by node, and by subject; the rows themselves where a copy is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) counts: HashMap<(usize, i32), i64>,
    copy: Option<Vec<Copied>>,
}

/// A row that went, as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copied {
    pub(crate) node: usize,
    pub(crate) subject: i32,
    pub(crate) row: String,
}

impl Taken {
    /// Statements hand over the rows that they delete where a copy is wanted.
    pub(crate) fn copying(copying: bool) -> Self {
        Self { counts: HashMap::new(), copy: copying.then(Vec::new) }
    }

    pub(crate) fn copied(&mut self) -> Vec<Copied> {
        self.copy.take().unwrap_or_default()
    }

    /// What a statement returns of a row `alias` that it deletes, and what is gathered of that for a subject.
    fn wanted(&self, alias: &str) -> (String, &'static str) {
        match self.copy {
            None => (String::new(), ""),
            Some(_) => (format!(", row_to_json({alias}.*)::text AS row"), ", array_agg(row)"),
        }
    }

    /// Adds rows of (subject, count) and, where a copy is wanted, the rows themselves.
    pub(crate) fn add(&mut self, node: usize, rows: &[PgRow]) -> Result<i64> {
        let mut total = 0;
        for row in rows {
            let (subject, count): (i32, i64) = (row.try_get(0)?, row.try_get(1)?);
            *self.counts.entry((node, subject)).or_default() += count;
            total += count;
            if let Some(copy) = self.copy.as_mut().filter(|_| row.len() > 2) {
                let rows: Vec<String> = row.try_get(row.len() - 1)?;
                copy.extend(rows.into_iter().map(|row| Copied { node, subject, row }));
            }
        }
        Ok(total)
    }
}

/// Deletes the rows that refer to the given rows of an edge's parent; at most so many where a limit is given.
pub(crate) async fn delete_through(
    connection: &mut PgConnection,
    tree: &Tree,
    edge: &Edge,
    parents: &Doomed,
    limit: Option<u64>,
    taken: &mut Taken,
) -> Result<i64> {
    let (child, parent) = (&tree.nodes[edge.child], &tree.nodes[edge.parent]);
    let (columns, values) = pick(parents, &parent.read, &edge.parent_columns)?;
    let join = join(&edge.child_columns, &columns, 1);
    let relation = &child.relation;
    let on = Rows::Go.behind(edge, &join);
    let (row, rows) = taken.wanted(if limit.is_some() { "d" } else { "n" });
    let gone = match limit {
        None => {
            format!("DELETE FROM {relation} AS n USING {} WHERE {on} RETURNING p.\"ebb:s\" AS s{row}", join.from)
        }
        // An address names a row only together with its leaf.
        Some(limit) => format!(
            "DELETE FROM {relation} AS d USING (SELECT n.tableoid AS leaf, n.ctid AS place, p.\"ebb:s\" AS s \
             FROM {relation} AS n JOIN {} ON {on} LIMIT {limit} FOR UPDATE OF n) AS few \
             WHERE d.tableoid = few.leaf AND d.ctid = few.place RETURNING few.s AS s{row}",
            join.from
        ),
    };
    let sql = format!("WITH gone AS ({gone}) SELECT s, count(*){rows} FROM gone GROUP BY s");
    let rows = fetch(connection, &sql, &values, &parents.subjects).await?;
    taken.add(edge.child, &rows)
}

/// Deletes the given rows of tables that refer to each other, in one statement: their constraints are checked at its end.
pub(crate) async fn delete_rows(
    connection: &mut PgConnection,
    tree: &Tree,
    nodes: &[(usize, &Doomed)],
    taken: &mut Taken,
) -> Result<i64> {
    let mut parts = Vec::new();
    let mut counts = Vec::new();
    let mut binds: Vec<(Values<'_>, &[i32])> = Vec::new();
    let mut first = 1;
    let (row, rows) = taken.wanted("n");
    for (at, (node, doomed)) in nodes.iter().enumerate() {
        let table = &tree.nodes[*node];
        let key: Vec<Ident> = table.key.iter().map(|column| column.name.clone()).collect();
        let (columns, values) = pick(doomed, &table.read, &key)?;
        let join = join(&key, &columns, first);
        first += join.arrays + 1;
        parts.push(format!(
            "gone{at} AS (DELETE FROM {} AS n USING {} WHERE {} RETURNING p.\"ebb:s\" AS s{row})",
            table.relation, join.from, join.on
        ));
        counts.push(format!("SELECT s, count(*), {at}{rows} FROM gone{at} GROUP BY s"));
        binds.push((values, &doomed.subjects));
    }
    let sql = format!("WITH {} {}", parts.join(", "), counts.join(" UNION ALL "));
    let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
    for (values, subjects) in &binds {
        query = bind(query, values, subjects);
    }
    let mut total = 0;
    for row in query.fetch_all(connection).await? {
        let at: i32 = row.try_get(2)?;
        total += taken.add(nodes[at as usize].0, std::slice::from_ref(&row))?;
    }
    Ok(total)
}

/// Ends the links of rows that stay: sets columns where they refer to the given rows of an edge's parent.
pub(crate) async fn unlink(
    connection: &mut PgConnection,
    tree: &Tree,
    edge: &Edge,
    set: &[(Ident, String)],
    parents: &Doomed,
    taken: &mut Taken,
) -> Result<i64> {
    let (child, parent) = (&tree.nodes[edge.child], &tree.nodes[edge.parent]);
    let (columns, values) = pick(parents, &parent.read, &edge.parent_columns)?;
    let join = join(&edge.child_columns, &columns, 1);
    let list: Vec<String> = set.iter().map(|(column, value)| format!("{column} = {value}")).collect();
    let sql = format!(
        "WITH changed AS (UPDATE {} AS n SET {} FROM {} WHERE {} RETURNING p.\"ebb:s\" AS s) \
         SELECT s, count(*) FROM changed GROUP BY s",
        child.relation,
        list.join(", "),
        join.from,
        Rows::Stay.behind(edge, &join)
    );
    let rows = fetch(connection, &sql, &values, &parents.subjects).await?;
    taken.add(edge.child, &rows)
}

/// Whether a row `n` was written by a transaction that began before a horizon, counted in 32 bits as rows have it.
pub(crate) fn begun_before(horizon: i64) -> String {
    let horizon = horizon.rem_euclid(1 << 32);
    format!("(n.xmin::text::int8 - {horizon} + 6442450944) % 4294967296 < 2147483648")
}

/// What an anonymized column is set to, as SQL.
pub(crate) fn change_sql(change: &Change) -> String {
    change.value.to_string()
}

/// For the rest of the transaction: lock waits are short, a bounded set is never looked up by reading a whole table.
/// Commits wait for the disk: what is said to be erased is.
/// Triggers of the tables find what they name without a schema.
pub(crate) async fn bound(
    connection: &mut PgConnection,
    root: &Relation,
    lock_wait: std::time::Duration,
) -> Result<()> {
    let sql = format!(
        "SET LOCAL lock_timeout = {}; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; SET LOCAL row_security = off; \
         SET LOCAL search_path = pg_catalog, {}, public, pg_temp",
        lock_wait.as_millis(),
        root.schema
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}

pub(crate) async fn savepoint(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("SAVEPOINT ebb_subjects").execute(connection).await?;
    Ok(())
}

/// Ends the savepoint: with deferred constraints checked, or with everything since taken back.
pub(crate) async fn end_savepoint(connection: &mut PgConnection, keep: bool) -> Result<()> {
    let sql = match keep {
        true => "SET CONSTRAINTS ALL IMMEDIATE; RELEASE SAVEPOINT ebb_subjects",
        false => "ROLLBACK TO SAVEPOINT ebb_subjects; RELEASE SAVEPOINT ebb_subjects",
    };
    sqlx::raw_sql(sql).execute(connection).await?;
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

/// Sets a mirror column of subjects.
pub(crate) async fn set_mirror(
    connection: &mut PgConnection,
    root: &Root,
    column: &Ident,
    moment: Moment,
    ids: &Doomed,
) -> Result<()> {
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let join = join(&key, &root.key, 1);
    let sql = format!(
        "UPDATE {} AS n SET {column} = {}::timestamptz FROM {} WHERE {}",
        root.relation,
        Literal(&moment.to_string()),
        join.from,
        join.on
    );
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    bind(sqlx::query(AssertSqlSafe(sql)).persistent(false), &values, &ids.subjects).execute(connection).await?;
    Ok(())
}

/// The subject's id as text: the key itself, or a JSON array of texts where it has several columns.
pub(crate) fn id_sql(key: &[Column], alias: &str) -> String {
    match key {
        [one] => format!("{alias}.{}::text", one.name),
        several => {
            let parts: Vec<String> = several.iter().map(|column| format!("{alias}.{}::text", column.name)).collect();
            format!("jsonb_build_array({})::text", parts.join(", "))
        }
    }
}

/// An id out of the key's columns, as the database writes it.
pub(crate) fn id_text(parts: &[Option<String>]) -> String {
    match parts {
        [one] => one.clone().unwrap_or_default(),
        several => {
            let parts: Vec<String> = several.iter().map(|part| serde_json::json!(part).to_string()).collect();
            format!("[{}]", parts.join(", "))
        }
    }
}

/// The key's columns out of an id.
pub(crate) fn id_parts(id: &str, columns: usize) -> Result<Vec<Option<String>>> {
    if columns == 1 {
        return Ok(vec![Some(id.to_owned())]);
    }
    let parts: Vec<String> = serde_json::from_str(id).map_err(|_| {
        Error::usage(format!("{id:?} is no id of {columns} columns"))
            .with_hint("write a JSON array of texts: [\"eu\", \"17\"]")
    })?;
    if parts.len() != columns {
        return Err(Error::usage(format!("{id:?} has {} parts, and the key {columns} columns", parts.len())));
    }
    Ok(parts.into_iter().map(Some).collect())
}

/// Rows that the application soft-deleted, with the place where to go on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) ids: Vec<String>,
    pub(crate) deleted_at: Vec<Moment>,
    pub(crate) tenants: Vec<Option<String>>,
    pub(crate) last: Option<Vec<String>>,
}

/// The next soft-deleted rows in the order of the key or, where an index helps, of the soft delete.
pub(crate) async fn soft_deleted(
    connection: &mut PgConnection,
    root: &Root,
    by_time: bool,
    after: Option<&[String]>,
    limit: u64,
) -> Result<Seen> {
    let mut order: Vec<(String, String)> =
        root.key.iter().map(|column| (format!("n.{}", column.name), column.sql_type.clone())).collect();
    if by_time {
        let sql_type = match root.time {
            SoftDelete::TimestampTz => "timestamptz",
            SoftDelete::Timestamp => "timestamp",
            SoftDelete::Date => "date",
        };
        order.insert(0, (format!("n.{}", root.deleted_at), sql_type.to_owned()));
    }
    let place = order.iter().map(|(column, _)| column.as_str()).collect::<Vec<_>>().join(", ");
    let beyond = match after {
        None => String::new(),
        Some(after) => {
            let values: Vec<String> = after
                .iter()
                .zip(&order)
                .map(|(value, (_, sql_type))| format!("{}::{sql_type}", Literal(value)))
                .collect();
            format!("AND ({place}) > ({})", values.join(", "))
        }
    };
    let texts: Vec<String> = order.iter().map(|(column, _)| format!("{column}::text")).collect();
    let tenant = root.tenant.as_ref().map_or("NULL".to_owned(), |tenant| format!("n.{tenant}::text"));
    let sql = format!(
        "SELECT {id}, {moment}, {tenant}, ARRAY[{texts}] FROM {relation} AS n \
         WHERE n.{deleted_at} IS NOT NULL AND isfinite(n.{deleted_at}) {beyond} ORDER BY {place} LIMIT {limit}",
        id = id_sql(&root.key, "n"),
        moment = root.time.moment(&format!("n.{}", root.deleted_at), &root.zone),
        texts = texts.join(", "),
        relation = root.relation,
        deleted_at = root.deleted_at,
    );
    let mut seen = Seen::default();
    for row in sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await? {
        seen.ids.push(row.try_get(0)?);
        seen.deleted_at.push(row.try_get(1)?);
        seen.tenants.push(row.try_get(2)?);
        seen.last = Some(row.try_get(3)?);
    }
    Ok(seen)
}

/// Brings the columns that mirror a deletion up to date: the due time of each subject, and the status.
pub(crate) async fn mirror(
    connection: &mut PgConnection,
    root: &Root,
    ids: &Doomed,
    due: Option<(&Ident, &[Moment])>,
    status: Option<(&Ident, &str)>,
) -> Result<()> {
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let join = join(&key, &root.key, 1);
    let mut set = Vec::new();
    if let Some((column, _)) = due {
        set.push(format!("{column} = (${}::timestamptz[])[p.\"ebb:s\" + 1]", join.arrays + 2));
    }
    if let Some((column, value)) = status {
        set.push(format!("{column} = {}", Literal(value)));
    }
    if set.is_empty() {
        return Ok(());
    }
    let sql = format!("UPDATE {} AS n SET {} FROM {} WHERE {}", root.relation, set.join(", "), join.from, join.on);
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    let mut query = bind(sqlx::query(AssertSqlSafe(sql)).persistent(false), &values, &ids.subjects);
    if let Some((_, due)) = due {
        query = query.bind(due);
    }
    query.execute(connection).await?;
    Ok(())
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
    connection: &mut PgConnection,
    root: &Root,
    mirrored: &Mirrored,
    ids: &Doomed,
    due: &[Moment],
    warned: &[Moment],
) -> Result<()> {
    if ids.is_empty() || (mirrored.notified.is_none() && mirrored.due.is_none()) {
        return Ok(());
    }
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let join = join(&key, &root.key, 1);
    let place = |at: usize| format!("(${}::timestamptz[])[p.\"ebb:s\" + 1]", join.arrays + at);
    let mut set = vec![format!("{} = n.{}", root.deleted_at, root.deleted_at)];
    set.extend(mirrored.due.iter().map(|column| format!("{column} = {}", place(2))));
    set.extend(mirrored.notified.iter().map(|column| format!("{column} = {}", place(3))));
    set.extend(mirrored.touched.iter().map(|column| format!("{column} = ebb.now()")));
    // Both arrays are named, so that both have a type whichever columns there are.
    let sql = format!(
        "UPDATE {} AS n SET {} FROM {} WHERE {} AND cardinality(${}::timestamptz[]) = cardinality(${}::timestamptz[])",
        root.relation,
        set.join(", "),
        join.from,
        join.on,
        join.arrays + 2,
        join.arrays + 3
    );
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    let query = bind(sqlx::query(AssertSqlSafe(sql)).persistent(false), &values, &ids.subjects);
    query.bind(due).bind(warned).execute(connection).await?;
    Ok(())
}

/// Which of the subjects live again: their row is there, and not soft-deleted.
pub(crate) async fn alive(connection: &mut PgConnection, root: &Root, ids: &Doomed) -> Result<Vec<i32>> {
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let join = join(&key, &root.key, 1);
    let sql = format!(
        "SELECT p.\"ebb:s\" FROM {} AS n JOIN {} ON {} WHERE n.{} IS NULL",
        root.relation, join.from, join.on, root.deleted_at
    );
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    let rows = fetch(connection, &sql, &values, &ids.subjects).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The next ids of the root table, in the order of the key.
pub(crate) async fn ids(
    connection: &mut PgConnection,
    root: &Root,
    after: Option<&[String]>,
    limit: u64,
) -> Result<Seen> {
    let place = root.key.iter().map(|column| format!("n.{}", column.name)).collect::<Vec<_>>().join(", ");
    let beyond = after.map_or(String::new(), |after| {
        let values: Vec<String> = after
            .iter()
            .zip(&root.key)
            .map(|(value, column)| format!("{}::{}", Literal(value), column.sql_type))
            .collect();
        format!("WHERE ({place}) > ({})", values.join(", "))
    });
    let texts: Vec<String> = root.key.iter().map(|column| format!("n.{}::text", column.name)).collect();
    let sql = format!(
        "SELECT {}, ARRAY[{}] FROM {} AS n {beyond} ORDER BY {place} LIMIT {limit}",
        id_sql(&root.key, "n"),
        texts.join(", "),
        root.relation
    );
    let mut seen = Seen::default();
    for row in sqlx::query(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await? {
        seen.ids.push(row.try_get(0)?);
        seen.last = Some(row.try_get(1)?);
    }
    Ok(seen)
}
