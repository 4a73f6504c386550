//! Statements that delete rows or end their links. Invariant: each tells whose rows it took, so that counts add up to what
//! went, and hands the rows over where a copy is kept.

use std::collections::{BTreeSet, HashMap};

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{Doomed, Join, Path, Rows, Values, among, bind, fetch, join, outside, pick};
use crate::pg::expression::Change;
use crate::pg::{Ident, Relation};
use crate::retain::compile::Set;
use crate::retain::tree::{Column, Edge, Tree};
use crate::{Error, Result};

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
        Self { copy: copying.then(Vec::new), ..Self::default() }
    }

    pub(crate) fn copied(&mut self) -> Vec<Copied> {
        self.copy.take().unwrap_or_default()
    }

    /// What a statement returns of a row `alias` that it deletes, and what is gathered of that for a subject.
    fn wanted(&self, alias: &str) -> (String, &'static str) {
        match self.copy {
            None => (String::new(), ""),
            Some(_) => (format!(", pg_catalog.row_to_json({alias}.*)::text AS row"), ", pg_catalog.array_agg(row)"),
        }
    }

    /// A statement's rows of (subject, count, what else it was asked for) with all counts of what else in one row, unless a copy is
    /// wanted: very many rows cost more than what they say.
    fn gathered(&self, counts: &str, by: Option<&str>) -> String {
        if self.copy.is_some() {
            return counts.to_owned();
        }
        let (what, group) = by.map_or_else(Default::default, |by| (format!(", {by}"), format!(" GROUP BY {by}")));
        format!(
            "SELECT pg_catalog.array_agg(g.s), pg_catalog.array_agg(g.c){what} FROM ({counts}) AS g (s, c{what}){group}"
        )
    }

    /// Adds what such a statement returned.
    fn add_gathered(&mut self, node: usize, rows: &[PgRow]) -> Result<i64> {
        if self.copy.is_some() {
            return self.add(node, rows);
        }
        let mut total = 0;
        for row in rows {
            let (subjects, counts): (Option<Vec<i32>>, Option<Vec<i64>>) = (row.try_get(0)?, row.try_get(1)?);
            for (subject, count) in subjects.into_iter().flatten().zip(counts.into_iter().flatten()) {
                *self.counts.entry((node, subject)).or_default() += count;
                total += count;
            }
        }
        Ok(total)
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
    let (columns, values) = pick(parents, &edge.compared(&parent.read), &edge.parent_columns)?;
    let join = join(&edge.child_columns, &columns, 1);
    let relation = &child.relation;
    let on = Rows::Go.behind(edge, &join.on);
    let (row, rows) = taken.wanted(if limit.is_some() { "d" } else { "n" });
    if let (None, true, [of], [value]) = (limit, edge.distinct, edge.child_columns.as_slice(), columns.as_slice()) {
        let on = Rows::Go.behind(edge, &among(of, value, 1));
        if edge.key.is_some() && taken.copy.is_none() && says_it_one_way(value) {
            let gone = format!("DELETE FROM {relation} AS n WHERE {on} RETURNING n.{of} AS v");
            return take_by_value(connection, tree, &gone, (values[0], &parents.subjects), (edge.child, taken)).await;
        }
        let sql = format!(
            "WITH gone AS (DELETE FROM {relation} AS n WHERE {on} RETURNING n.{of} AS v{row}) {}",
            taken.gathered(&whose("gone", (&join, value), "", rows, &tree.path), None)
        );
        let rows = fetch(connection, &sql, &values, &parents.subjects).await?;
        tree.path.close(connection).await?;
        return taken.add_gathered(edge.child, &rows);
    }
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
    let opened = tree.path.opened();
    let counts = format!("SELECT s, count(*){rows} FROM gone{opened} GROUP BY s");
    let sql = format!("WITH gone AS ({gone}) {}", taken.gathered(&counts, None));
    let rows = fetch(connection, &sql, &values, &parents.subjects).await?;
    tree.path.close(connection).await?;
    taken.add_gathered(edge.child, &rows)
}

/// Whether equal values of a column are the same text, also where a foreign key compares them with those of a similar type.
fn says_it_one_way(column: &Column) -> bool {
    column.operators.cast().is_none() && ["bigint", "integer", "smallint", "uuid"].contains(&column.sql_type.as_str())
}

/// Deletes rows that each say the one value (`v`) that they went by, and finds out by that, here, whose they were: a join costs the
/// server as much again. A value that two subjects had counts for the first.
async fn take_by_value(
    connection: &mut PgConnection,
    tree: &Tree,
    gone: &str,
    (values, subjects): (&[Option<String>], &[i32]),
    (node, taken): (usize, &mut Taken),
) -> Result<i64> {
    let opened = tree.path.opened();
    let sql = format!(
        "WITH gone AS ({gone}) SELECT pg_catalog.array_agg(g.v::text), pg_catalog.array_agg(g.c) \
         FROM (SELECT v, count(*) FROM gone{opened} GROUP BY v) AS g (v, c)"
    );
    let row = sqlx::query(AssertSqlSafe(sql)).persistent(false).bind(values).fetch_one(&mut *connection).await?;
    tree.path.close(connection).await?;
    let (went, counts): (Option<Vec<String>>, Option<Vec<i64>>) = (row.try_get(0)?, row.try_get(1)?);
    let mut whose: HashMap<&str, i32> = HashMap::with_capacity(values.len());
    for (value, subject) in values.iter().zip(subjects) {
        if let Some(value) = value {
            let first = whose.entry(value).or_insert(*subject);
            *first = (*first).min(*subject);
        }
    }
    let mut total = 0;
    for (value, count) in went.into_iter().flatten().zip(counts.into_iter().flatten()) {
        let unknown = || Error::failed("a row went by a value that was not asked for");
        let subject = whose.get(value.as_str()).ok_or_else(unknown)?;
        *taken.counts.entry((node, *subject)).or_default() += count;
        total += count;
    }
    Ok(total)
}

/// Whose rows went, where each says the one value (`v`) that it went by; a value that two subjects had counts for the first.
fn whose(gone: &str, (join, value): (&Join, &Column), what: &str, rows: &str, path: &Path) -> String {
    format!(
        "SELECT p.s, count(*){what}{rows} FROM {gone} AS g JOIN (SELECT p.\"ebb:0\" AS v, min(p.\"ebb:s\") AS s FROM {} \
         GROUP BY 1) AS p ON {}{} GROUP BY p.s",
        join.from,
        value.operators.same("g.v", "p.v"),
        path.opened()
    )
}

/// Deletes the given rows of tables that refer to each other, in one statement: their constraints are checked at its end.
pub(crate) async fn delete_rows(
    connection: &mut PgConnection,
    tree: &Tree,
    nodes: &[(usize, &Doomed)],
    taken: &mut Taken,
) -> Result<i64> {
    if let ([(node, doomed)], None) = (nodes, &taken.copy)
        && let [column] = tree.nodes[*node].key.as_slice()
        && says_it_one_way(column)
    {
        let key = std::slice::from_ref(&column.name);
        let (columns, values) = pick(doomed, &tree.nodes[*node].read, key)?;
        let (relation, on) = (&tree.nodes[*node].relation, among(&column.name, &columns[0], 1));
        let gone = format!("DELETE FROM {relation} AS n WHERE {on} RETURNING n.{} AS v", column.name);
        return take_by_value(connection, tree, &gone, (values[0], &doomed.subjects), (*node, taken)).await;
    }
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
        let relation = &table.relation;
        if let ([of], [value]) = (key.as_slice(), columns.as_slice()) {
            let on = among(of, value, first);
            parts.push(format!("gone{at} AS (DELETE FROM {relation} AS n WHERE {on} RETURNING n.{of} AS v{row})"));
            counts.push(whose(&format!("gone{at}"), (&join, value), &format!(", {at}"), rows, &tree.path));
        } else {
            parts.push(format!(
                "gone{at} AS (DELETE FROM {relation} AS n USING {} WHERE {} RETURNING p.\"ebb:s\" AS s{row})",
                join.from, join.on
            ));
            let opened = tree.path.opened();
            counts.push(format!("SELECT s, count(*), {at}{rows} FROM gone{at}{opened} GROUP BY s"));
        }
        first += join.arrays + 1;
        binds.push((values, &doomed.subjects));
    }
    let sql = format!("WITH {} {}", parts.join(", "), taken.gathered(&counts.join(" UNION ALL "), Some("node")));
    let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
    for (values, subjects) in &binds {
        query = bind(query, values, subjects);
    }
    let mut total = 0;
    let found = query.fetch_all(&mut *connection).await?;
    tree.path.close(connection).await?;
    for row in found {
        let at: i32 = row.try_get(2)?;
        total += taken.add_gathered(nodes[at as usize].0, std::slice::from_ref(&row))?;
    }
    Ok(total)
}

/// Rows whose links were ended.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    pub(crate) rows: i64,
    /// As whom they were written, where that was asked for.
    pub(crate) writers: BTreeSet<i64>,
}

/// Ends the links of rows that stay: sets columns where they refer to the given rows of an edge's parent, but for rows that go
/// `along` with them; of at most so many rows where a limit is given. `told`: as whom.
pub(crate) async fn unlink(
    connection: &mut PgConnection,
    tree: &Tree,
    (edge, set): (&Edge, &Set),
    (parents, along): (&Doomed, Option<&Doomed>),
    (limit, told): (Option<u64>, bool),
    taken: &mut Taken,
) -> Result<Changed> {
    let (child, parent) = (&tree.nodes[edge.child], &tree.nodes[edge.parent]);
    let (columns, values) = pick(parents, &edge.compared(&parent.read), &edge.parent_columns)?;
    let join = join(&edge.child_columns, &columns, 1);
    let but = outside(child, along, join.arrays + 2)?;
    let (relation, on) = (&child.relation, Rows::Stay.behind(edge, &join.on) + &but.on);
    let list: Vec<String> = set.values.iter().map(|(column, value)| format!("{column} = {value}")).collect();
    let list = list.join(", ");
    let row = if limit.is_some() { "d" } else { "n" };
    let (mut also, mut writers) = (String::new(), "NULL");
    if told {
        also = format!(", {row}.xmin AS \"ebb:w\"");
        writers = "pg_catalog.array_agg(DISTINCT \"ebb:w\"::text::int8)";
    }
    let changed = match limit {
        None => {
            format!("UPDATE {relation} AS n SET {list} FROM {} WHERE {on} RETURNING p.\"ebb:s\"{also}", join.from)
        }
        Some(limit) => format!(
            "UPDATE {relation} AS d SET {list} FROM (SELECT n.tableoid AS \"ebb:leaf\", n.ctid AS \"ebb:place\", p.\"ebb:s\" \
             FROM {relation} AS n JOIN {} ON {on} LIMIT {limit} FOR UPDATE OF n) AS few \
             WHERE d.tableoid = few.\"ebb:leaf\" AND d.ctid = few.\"ebb:place\" RETURNING few.\"ebb:s\"{also}",
            join.from
        ),
    };
    let opened = tree.path.opened();
    let sql =
        format!("WITH changed AS ({changed}) SELECT \"ebb:s\", count(*), {writers} FROM changed{opened} GROUP BY 1");
    let query = bind(sqlx::query(AssertSqlSafe(sql)).persistent(false), &values, &parents.subjects);
    let found = but.bind(query).fetch_all(&mut *connection).await?;
    tree.path.close(connection).await?;
    let mut changed = Changed { rows: taken.add(edge.child, &found)?, ..Changed::default() };
    for row in found {
        if told {
            changed.writers.extend(row.try_get::<Vec<i64>, _>(2)?);
        }
    }
    Ok(changed)
}

/// Sets columns to null of rows that will go, and are found without them: `wanted` columns of what was read of the given rows
/// are their columns `of`, and they are behind an edge where one is given. Of at most so many; returns how many, and
/// whether all of them are null now.
pub(crate) async fn cut(
    connection: &mut PgConnection,
    (relation, path): (&Relation, &Path),
    (read, wanted, of): (&[Column], &[Ident], &[Ident]),
    behind: Option<&Edge>,
    rows: &Doomed,
    (columns, limit): (&[Ident], u64),
) -> Result<(i64, bool)> {
    let (link, values) = pick(rows, read, wanted)?;
    let join = join(of, &link, 1);
    let on = behind.map_or(join.on.clone(), |edge| Rows::Go.behind(edge, &join.on));
    let each = |of: &dyn Fn(&Ident) -> String, with: &str| columns.iter().map(of).collect::<Vec<_>>().join(with);
    let set = each(&|name| format!("{name} = NULL"), ", ");
    let still = each(&|name| format!("n.{name} IS NOT NULL"), " OR ");
    let null = each(&|name| format!("d.{name} IS NULL"), " AND ");
    let sql = format!(
        "WITH cut AS (UPDATE {relation} AS d SET {set} FROM (SELECT n.tableoid AS \"ebb:leaf\", n.ctid AS \"ebb:place\" \
         FROM {relation} AS n JOIN {} ON {on} AND ({still}) LIMIT {limit} FOR UPDATE OF n) AS few \
         WHERE d.tableoid = few.\"ebb:leaf\" AND d.ctid = few.\"ebb:place\" RETURNING {null} AS null) \
         SELECT count(*), COALESCE(bool_and(cut.null), true) FROM cut{}",
        join.from,
        path.opened()
    );
    let found = fetch(connection, &sql, &values, &rows.subjects).await?;
    path.close(connection).await?;
    found.first().map_or(Ok((0, true)), |row| Ok((row.try_get(0)?, row.try_get(1)?)))
}

/// Whether a row `n` was last written by one of these transactions.
pub(crate) fn written_by(writers: &BTreeSet<i64>) -> String {
    format!("n.xmin::text::int8 OPERATOR(pg_catalog.=) ANY ({})", numbers(writers))
}

/// Whether it was by none of them.
pub(crate) fn not_written_by(writers: &BTreeSet<i64>) -> String {
    format!("n.xmin::text::int8 OPERATOR(pg_catalog.<>) ALL ({})", numbers(writers))
}

fn numbers(numbers: &BTreeSet<i64>) -> String {
    let list: Vec<String> = numbers.iter().map(i64::to_string).collect();
    format!("'{{{}}}'::int8[]", list.join(","))
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
