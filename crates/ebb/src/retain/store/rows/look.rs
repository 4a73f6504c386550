//! Statements that read rows, locked or not. Invariant: rows are found through the edges of the tree and nothing else.

use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::session::{end_savepoint, savepoint};
use super::{Doomed, Root, RootRow, Rows, Standing, Values, among, bind, fetch, id_sql, join, outside, pick, texts};
use crate::Result;
use crate::pg::{Ident, Relation};
use crate::retain::compile::Set;
use crate::retain::tree::{Column, Edge, Tree};

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
    let former = root.status.as_ref().map_or("NULL".to_owned(), Standing::former);
    let sql = format!(
        "SELECT {}{}, {}, {tenant}, p.\"ebb:s\", {former} FROM {} AS n JOIN {} ON {} FOR UPDATE OF n SKIP LOCKED",
        texts(read),
        known(&root.time.moment(&format!("n.{}", root.deleted_at), &root.zone)),
        known(&root.time.earliest(&format!("n.{}", root.deleted_at), &root.zone)),
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
            let (deleted_at, since, tenant) = (row.try_get(at)?, row.try_get(at + 1)?, row.try_get(at + 2)?);
            let (subject, former) = (row.try_get(at + 3)?, row.try_get(at + 4)?);
            Ok(RootRow { subject, values, deleted_at, since, tenant, former })
        })
        .collect()
}

/// What is later than calendars know is never.
fn known(moment: &str) -> String {
    format!("CASE WHEN {moment} OPERATOR(pg_catalog.>=) '9999-01-01' THEN 'infinity'::timestamptz ELSE {moment} END")
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

/// How many rows of one table refer to given rows of others through any of these edges; none is counted twice, and none that
/// goes through one of the edges `but`.
pub(crate) async fn count_distinct(
    connection: &mut PgConnection,
    tree: &Tree,
    edges: &[(&Edge, &Doomed)],
    which: Rows,
    but: &[(&Edge, &Doomed)],
) -> Result<i64> {
    let mut parts = [Vec::new(), Vec::new()];
    let mut binds: Vec<(Values<'_>, &[i32])> = Vec::new();
    let mut first = 1;
    for (at, (edge, parents), which) in
        edges.iter().map(|edge| (0, edge, which)).chain(but.iter().map(|edge| (1, edge, Rows::Go)))
    {
        let read = edge.compared(&tree.nodes[edge.parent].read);
        let (columns, values) = pick(parents, &read, &edge.parent_columns)?;
        let join = join(&edge.child_columns, &columns, first);
        first += join.arrays + 1;
        let child = &tree.nodes[edge.child].relation;
        let on = which.behind(edge, &join.on);
        parts[at].push(format!("SELECT n.tableoid, n.ctid FROM {child} AS n JOIN {} ON {on}", join.from));
        binds.push((values, &parents.subjects));
    }
    let [found, but] = parts.map(|parts| parts.join(" UNION "));
    if found.is_empty() {
        return Ok(0);
    }
    let but = if but.is_empty() { but } else { format!(" EXCEPT ({but})") };
    // One edge may find a row through two parents.
    let sql = format!("SELECT count(*) FROM (SELECT DISTINCT * FROM ({found}) AS found{but}) AS counted");
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

/// The subjects for whom `unless` holds now. It is asked of their rows alone, after the join: of another's it might raise.
pub(crate) async fn blocked(connection: &mut PgConnection, root: &Root, ids: &Doomed) -> Result<Vec<i32>> {
    let Some(view) = &root.unless else { return Ok(Vec::new()) };
    // The view's columns are the key's, then the condition.
    let key: Vec<Ident> = (0..root.key.len()).map(|at| Ident::new(format!("ebb:k{at}"))).collect();
    let join = join(&key, &root.key, 1);
    let sql = format!(
        "SELECT asked.s FROM (SELECT p.\"ebb:s\" AS s, n.\"ebb:unless\" AS unless FROM ({view}) AS n JOIN {} ON {} OFFSET 0) AS asked \
         WHERE asked.unless",
        join.from, join.on
    );
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    let rows = fetch(connection, &sql, &values, &ids.subjects).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// The same within two seconds.
pub(crate) async fn blocked_soon(connection: &mut PgConnection, root: &Root, ids: &Doomed) -> Result<Vec<i32>> {
    sqlx::raw_sql("SET LOCAL statement_timeout = '2s'").execute(&mut *connection).await?;
    blocked(connection, root, ids).await
}

/// Everybody `but` for some, soft-deleted or not, who has the same value of a link as one of these subjects (by its position).
pub(crate) async fn sharing(
    connection: &mut PgConnection,
    tree: &Tree,
    root: &Root,
    edge: &Edge,
    (roots, but): (&Doomed, &Doomed),
) -> Result<Vec<(i32, String)>> {
    let read = &tree.nodes[0].read;
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let (link, link_values) = pick(roots, read, &edge.parent_columns)?;
    let (own, own_values) = pick(but, read, &key)?;
    let join = join(&edge.parent_columns, &link, 1);
    // A second unnest carries the subjects' own keys, so that they do not share with themselves.
    let keys: Vec<String> = own
        .iter()
        .enumerate()
        .map(|(at, column)| format!("pg_catalog.unnest(${}::text[]::{}[])", join.arrays + 2 + at, column.sql_type))
        .collect();
    let names: Vec<String> = (0..own.len()).map(|at| format!("\"ebb:{at}\"")).collect();
    let other: Vec<String> = own
        .iter()
        .enumerate()
        .map(|(at, column)| column.operators.same(&format!("n.{}", column.name), &format!("o.\"ebb:{at}\"")))
        .collect();
    let sql = format!(
        "SELECT p.\"ebb:s\", {id} FROM {relation} AS n JOIN {from} ON {on} \
         WHERE NOT EXISTS (SELECT FROM ROWS FROM ({keys}) AS o ({names}) WHERE {other})",
        id = id_sql(&root.key, "n"),
        relation = root.relation,
        from = join.from,
        on = join.on,
        keys = keys.join(", "),
        names = names.join(", "),
        other = other.join(" AND "),
    );
    let query = bind(sqlx::query(AssertSqlSafe(sql)).persistent(false), &link_values, &roots.subjects);
    let query = own_values.iter().fold(query, |query, column| query.bind(*column));
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
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
    let (columns, values) = pick(parents, &edge.compared(&parent.read), &edge.parent_columns)?;
    let join = join(&edge.child_columns, &columns, 1);
    let limit = limit.map_or(String::new(), |limit| format!("LIMIT {limit}"));
    let lock = if lock { "FOR UPDATE OF n" } else { "" };
    let sql = format!(
        "SELECT {}p.\"ebb:s\" FROM {} AS n JOIN {} ON {} {limit} {lock}",
        texts(&child.read),
        child.relation,
        join.from,
        Rows::Go.behind(edge, &join.on)
    );
    let rows = fetch(connection, &sql, &values, &parents.subjects).await?;
    let mut doomed = Doomed::with(child.read.len());
    for row in rows {
        let values = (0..child.read.len()).map(|at| row.try_get(at)).collect::<std::result::Result<_, _>>()?;
        doomed.push(values, row.try_get(child.read.len())?);
    }
    Ok(doomed)
}

/// Locks rows that are known by their key.
pub(crate) async fn lock(connection: &mut PgConnection, tree: &Tree, node: usize, rows: &Doomed) -> Result<()> {
    let table = &tree.nodes[node];
    let key: Vec<Ident> = table.key.iter().map(|column| column.name.clone()).collect();
    let (columns, values) = pick(rows, &table.read, &key)?;
    let join = join(&key, &columns, 1);
    let sql = format!("SELECT FROM {} AS n JOIN {} ON {} FOR UPDATE OF n", table.relation, join.from, join.on);
    fetch(connection, &sql, &values, &rows.subjects).await?;
    Ok(())
}

/// How much there is of something: rows, and about how many bytes a copy of those has that go.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl std::ops::AddAssign for Extent {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
    }
}

/// How many rows go with the given rows of one table at the end of any of these paths, counted up to a bound, and their bytes where
/// that is asked for: one statement, which ends as soon as the bound is reached.
pub(crate) async fn extent(
    connection: &mut PgConnection,
    tree: &Tree,
    paths: &[(Vec<&Edge>, Rows)],
    roots: &Doomed,
    (most, sized): (u64, bool),
) -> Result<Extent> {
    let mut parts = Vec::new();
    let mut binds: Vec<Values<'_>> = Vec::new();
    let mut first = 1;
    for (path, which) in paths {
        let [top, below @ ..] = path.as_slice() else { continue };
        let which = |last: bool| if last { *which } else { Rows::Go };
        let (columns, values) = pick(roots, &top.compared(&tree.nodes[top.parent].read), &top.parent_columns)?;
        let child = &tree.nodes[top.child].relation;
        let mut part = match (top.child_columns.as_slice(), columns.as_slice()) {
            ([of], [value]) => {
                let on = which(below.is_empty()).behind(top, &among(of, value, first));
                format!("SELECT n.* FROM {child} AS n WHERE {on} AND ${}::int[] IS NOT NULL", first + 1)
            }
            _ => {
                let join = join(&top.child_columns, &columns, first);
                let on = which(below.is_empty()).behind(top, &join.on);
                format!("SELECT n.* FROM {child} AS n JOIN {} ON {on}", join.from)
            }
        };
        for (at, edge) in below.iter().enumerate() {
            let on: Vec<String> = edge
                .child_columns
                .iter()
                .zip(&edge.parent_columns)
                .zip(&edge.operators)
                .map(|((of, value), operators)| operators.same(&format!("n.{of}"), &format!("p.{value}")))
                .collect();
            let on = which(at + 1 == below.len()).behind(edge, &on.join(" AND "));
            part = format!("SELECT n.* FROM {} AS n JOIN ({part}) AS p ON {on}", tree.nodes[edge.child].relation);
        }
        first += values.len() + 1;
        let last = below.last().unwrap_or(top);
        let bytes = match sized && which(true) == Rows::Go {
            true => tree.nodes[last.child].bytes("found"),
            false => "0::int8".to_owned(),
        };
        parts.push(format!("SELECT {bytes} FROM ({part}) AS found"));
        binds.push(values);
    }
    if parts.is_empty() {
        return Ok(Extent::default());
    }
    let sql = format!(
        "SELECT count(*), COALESCE(sum(found.bytes), 0)::int8 FROM ({} LIMIT {most}) AS found (bytes)",
        parts.join(" UNION ALL ")
    );
    let query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
    let query = binds.iter().fold(query, |query, values| bind(query, values, &roots.subjects));
    let row = query.fetch_one(connection).await?;
    let (rows, bytes): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Extent { rows: rows.unsigned_abs(), bytes: bytes.unsigned_abs() })
}

/// About how many bytes each of some rows of a node has, which are known by their key.
pub(crate) async fn sizes(connection: &mut PgConnection, tree: &Tree, node: usize, rows: &Doomed) -> Result<Vec<u64>> {
    let table = &tree.nodes[node];
    let key: Vec<Ident> = table.key.iter().map(|column| column.name.clone()).collect();
    let (columns, values) = pick(rows, &table.read, &key)?;
    let join = join(&key, &columns, 1);
    let bytes = table.bytes("n");
    let sql = format!("SELECT p.\"ebb:s\", {bytes} FROM {} AS n JOIN {} ON {}", table.relation, join.from, join.on);
    let positions: Vec<i32> = (0..rows.len() as i32).collect();
    let mut sizes = vec![0; rows.len()];
    for row in fetch(connection, &sql, &values, &positions).await? {
        let (at, bytes): (i32, i64) = (row.try_get(0)?, row.try_get(1)?);
        sizes[at as usize] = bytes.unsigned_abs();
    }
    Ok(sizes)
}

/// What was read of some rows, and which of it are a table's columns: (read, wanted, of).
pub(crate) type Link<'a> = (&'a [Column], &'a [Ident], &'a [Ident]);

/// The subjects of the given rows with which a row of a table (`n`) goes that a condition is true of.
pub(crate) async fn whose(
    connection: &mut PgConnection,
    relation: &Relation,
    (read, wanted, of): Link<'_>,
    rows: &Doomed,
    condition: &str,
) -> Result<Vec<i32>> {
    let (columns, values) = pick(rows, read, wanted)?;
    let join = join(of, &columns, 1);
    let sql =
        format!("SELECT DISTINCT p.\"ebb:s\" FROM {relation} AS n JOIN {} ON {} WHERE {condition}", join.from, join.on);
    let rows = fetch(connection, &sql, &values, &rows.subjects).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Whether a condition is true of any row of a table (`n`) that goes with the given rows: `wanted` columns of what was
/// read of those are the table's columns `of`.
pub(crate) async fn any(
    connection: &mut PgConnection,
    relation: &Relation,
    (read, wanted, of): Link<'_>,
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

/// Whether any row of an edge's child refers to the given rows of its parent, but for rows that go `along` with them.
pub(crate) async fn still_linked(
    connection: &mut PgConnection,
    tree: &Tree,
    edge: &Edge,
    parents: &Doomed,
    along: Option<&Doomed>,
) -> Result<bool> {
    let (child, parent) = (&tree.nodes[edge.child], &tree.nodes[edge.parent]);
    let (columns, values) = pick(parents, &edge.compared(&parent.read), &edge.parent_columns)?;
    let link = join(&edge.child_columns, &columns, 1);
    let but = outside(child, along, link.arrays + 2)?;
    let (from, on) = (link.from, link.on + &but.on);
    let sql = format!("SELECT EXISTS (SELECT FROM {} AS n JOIN {from} ON {on})", child.relation);
    let query = but.bind(bind(sqlx::query(AssertSqlSafe(sql)).persistent(false), &values, &parents.subjects));
    Ok(query.fetch_one(connection).await?.try_get(0)?)
}

/// How many rows of an edge's child that stay refer to the given rows of its parent, but for rows that go `along` with them.
pub(crate) async fn count_staying(
    connection: &mut PgConnection,
    tree: &Tree,
    edge: &Edge,
    (parents, along): (&Doomed, Option<&Doomed>),
) -> Result<i64> {
    let (child, parent) = (&tree.nodes[edge.child], &tree.nodes[edge.parent]);
    let (columns, values) = pick(parents, &edge.compared(&parent.read), &edge.parent_columns)?;
    let link = join(&edge.child_columns, &columns, 1);
    let but = outside(child, along, link.arrays + 2)?;
    let on = Rows::Stay.behind(edge, &link.on) + &but.on;
    // One edge may find a row through two parents.
    let sql = format!(
        "SELECT count(*) FROM (SELECT DISTINCT n.tableoid, n.ctid FROM {} AS n JOIN {} ON {on}) AS counted",
        child.relation, link.from
    );
    let query = but.bind(bind(sqlx::query(AssertSqlSafe(sql)).persistent(false), &values, &parents.subjects));
    Ok(query.fetch_one(connection).await?.try_get(0)?)
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

/// What became of the rows of subjects since their deletions were opened, by their positions.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Not soft-deleted any more.
    pub(crate) alive: Vec<i32>,
    /// Another tenant's.
    pub(crate) elsewhere: Vec<i32>,
    /// Not there any more.
    pub(crate) gone: Vec<i32>,
}

/// Looks at subjects with open deletions and the tenants that those know.
pub(crate) async fn changed(
    connection: &mut PgConnection,
    root: &Root,
    ids: &Doomed,
    tenants: &[Option<String>],
) -> Result<Changed> {
    let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
    let join = join(&key, &root.key, 1);
    let known = format!("(${}::text[])[p.\"ebb:s\" + 1]", join.arrays + 2);
    let tenant = root.tenant.as_ref().map_or(known.clone(), |tenant| format!("n.{tenant}::text"));
    let sql = format!(
        "SELECT p.\"ebb:s\", n.{key} IS NULL, n.{deleted_at} IS NULL FROM {from} LEFT JOIN {relation} AS n ON {on} \
         WHERE n.{deleted_at} IS NULL OR {tenant} IS DISTINCT FROM {known}",
        key = key[0],
        deleted_at = root.deleted_at,
        relation = root.relation,
        from = join.from,
        on = join.on
    );
    let values: Vec<&[Option<String>]> = ids.columns.iter().map(Vec::as_slice).collect();
    let query = bind(sqlx::query(AssertSqlSafe(sql)).persistent(false), &values, &ids.subjects).bind(tenants);
    let mut changed = Changed::default();
    for row in query.fetch_all(connection).await? {
        let of = match (row.try_get(1)?, row.try_get(2)?) {
            (true, _) => &mut changed.gone,
            (false, true) => &mut changed.alive,
            (false, false) => &mut changed.elsewhere,
        };
        of.push(row.try_get(0)?);
    }
    Ok(changed)
}

/// What an edge's rows refer to once they are set, where that is the same for all of them: a row of its parent with these columns
/// and no others.
pub(crate) async fn given(
    connection: &mut PgConnection,
    tree: &Tree,
    edge: &Edge,
    set: &Set,
) -> Result<Option<Doomed>> {
    let read = &tree.nodes[edge.parent].read;
    let value = |name: &Ident| set.values.iter().find(|(column, _)| column == name).map(|(_, value)| value.as_str());
    let Some(values) = edge.child_columns.iter().map(value).collect::<Option<Vec<&str>>>() else { return Ok(None) };
    let values: Vec<String> = values.iter().map(|value| format!("({value})::text")).collect();
    let sql = format!("SELECT ARRAY[{}]", values.join(", "));
    savepoint(connection).await?;
    let found = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *connection).await;
    let found: Result<Vec<Option<String>>> = found.map_err(Into::into);
    end_savepoint(connection, false).await?;
    let texts = match found {
        Err(error) if error.is_unavailable() => return Err(error),
        // It depends on the row.
        Err(_) => return Ok(None),
        Ok(texts) if texts.contains(&None) => return Ok(None),
        Ok(texts) => texts,
    };
    let value = |column: &Column| {
        let at = edge.parent_columns.iter().position(|name| *name == column.name)?;
        texts[at].clone()
    };
    let mut row = Doomed::with(read.len());
    row.push(read.iter().map(value).collect(), 0);
    Ok(Some(row))
}
