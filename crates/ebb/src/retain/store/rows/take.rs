//! Statements that delete rows or end their links. Invariant: each tells whose rows it took, so that counts add up to what
//! went, and hands the rows over where a copy is kept: one by one, and no more of them than are held at once.

use std::collections::{BTreeSet, HashMap};

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{Doomed, Join, Path, Rows, Values, among, bind, fetch, join, outside, pick};
use crate::pg::expression::Change;
use crate::pg::{Ident, Relation};
use crate::retain::compile::Set;
use crate::retain::tree::{Column, Edge, Node, Tree};
use crate::{Error, Result};

/// Rows by node, and by subject; the rows themselves where a copy is kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taken {
    pub(crate) counts: HashMap<(usize, i32), i64>,
    copy: Option<Copy>,
}

/// Rows that went, as far as they are held at once.
#[derive(Debug, Clone)]
struct Copy {
    rows: Vec<Copied>,
    bytes: u64,
    most: u64,
}

/// A row that went, as JSON.
#[derive(Debug, Clone)]
pub(crate) struct Copied {
    pub(crate) node: usize,
    pub(crate) subject: i32,
    pub(crate) row: String,
}

/// How many rows a statement may take, and, where a copy is kept, about how many bytes of them; one row in any case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    pub(crate) rows: u64,
    pub(crate) bytes: Option<u64>,
}

impl Taken {
    /// Statements hand over the rows that they delete; of more bytes than these no more than one.
    pub(crate) fn copying(most: u64) -> Self {
        Self { copy: Some(Copy { rows: Vec::new(), bytes: 0, most }), ..Self::default() }
    }

    pub(crate) fn copied(&mut self) -> Vec<Copied> {
        self.copy.take().map(|copy| copy.rows).unwrap_or_default()
    }

    /// How many bytes were handed over.
    pub(crate) fn bytes(&self) -> u64 {
        self.copy.as_ref().map_or(0, |copy| copy.bytes)
    }

    /// What a statement returns besides of a row `alias` that it deletes.
    fn wanted(&self, alias: &str) -> String {
        match self.copy {
            None => String::new(),
            Some(_) => format!(", pg_catalog.row_to_json({alias}.*)::text AS row"),
        }
    }

    /// What is told of the rows `from` of the node at a position that went for a `subject`: each of them, or how many.
    fn told(&self, subject: &str, at: usize, from: &str) -> String {
        match self.copy {
            None => format!("SELECT {subject} AS s, {at} AS node, count(*) AS c FROM {from} GROUP BY 1"),
            Some(_) => format!("SELECT {subject} AS s, {at} AS node, row FROM {from}"),
        }
    }

    /// Sends statements that delete rows of nodes, and adds all that is told of them. Counts come in one row for each node: very many
    /// rows cost more than what they say. Returns how many rows went.
    async fn take(
        &mut self,
        connection: &mut PgConnection,
        nodes: &[usize],
        (deletes, told): (&[String], &[String]),
        binds: &[(Values<'_>, &[i32])],
    ) -> Result<i64> {
        let (deletes, told) = (deletes.join(", "), told.join(" UNION ALL "));
        let sql = match self.copy {
            Some(_) => format!("WITH {deletes} {told}"),
            None => format!(
                "WITH {deletes} SELECT g.node, pg_catalog.array_agg(g.s), pg_catalog.array_agg(g.c) \
                 FROM ({told}) AS g (s, node, c) GROUP BY g.node"
            ),
        };
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        let query = binds.iter().fold(query, |query, (values, subjects)| bind(query, values, subjects));
        let mut rows = query.fetch(connection);
        let mut total = 0;
        while let Some(row) = rows.try_next().await? {
            total += match &mut self.copy {
                None => {
                    let (at, subjects, counts): (i32, Vec<i32>, Vec<i64>) =
                        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
                    subjects
                        .into_iter()
                        .zip(counts)
                        .map(|(subject, count)| self.add(nodes[at as usize], subject, count))
                        .sum()
                }
                Some(copy) => {
                    let (subject, at): (i32, i32) = (row.try_get(0)?, row.try_get(1)?);
                    let node = nodes[at as usize];
                    copy.push(Copied { node, subject, row: row.try_get(2)? })?;
                    self.add(node, subject, 1)
                }
            };
        }
        Ok(total)
    }

    fn add(&mut self, node: usize, subject: i32, count: i64) -> i64 {
        *self.counts.entry((node, subject)).or_default() += count;
        count
    }
}

impl Copy {
    fn push(&mut self, copied: Copied) -> Result<()> {
        self.bytes += copied.row.len() as u64;
        if self.bytes > self.most && !self.rows.is_empty() {
            return Err(Error::too_big("the rows that would go at once are more than a copy may hold"));
        }
        self.rows.push(copied);
        Ok(())
    }
}

/// Deletes the rows that refer to the given rows of an edge's parent; at most so many where a limit is given.
pub(crate) async fn delete_through(
    connection: &mut PgConnection,
    tree: &Tree,
    edge: &Edge,
    parents: &Doomed,
    limit: Option<Most>,
    taken: &mut Taken,
) -> Result<i64> {
    let (child, parent) = (&tree.nodes[edge.child], &tree.nodes[edge.parent]);
    let (columns, values) = pick(parents, &edge.compared(&parent.read), &edge.parent_columns)?;
    let join = join(&edge.child_columns, &columns, 1);
    let relation = &child.relation;
    let on = Rows::Go.behind(edge, &join.on);
    let row = taken.wanted(if limit.is_some() { "d" } else { "n" });
    let from = format!("gone{}", tree.path.opened());
    let (gone, told) = match (limit, edge.distinct, edge.child_columns.as_slice(), columns.as_slice()) {
        (None, true, [of], [value]) => {
            let on = Rows::Go.behind(edge, &among(of, value, 1));
            if edge.key.is_some() && taken.copy.is_none() && says_it_one_way(value) {
                let gone = format!("DELETE FROM {relation} AS n WHERE {on} RETURNING n.{of} AS v");
                let by = (values[0], parents.subjects.as_slice());
                return take_by_value(connection, tree, &gone, by, (edge.child, taken)).await;
            }
            let from = whose("gone", (&join, value), &tree.path);
            (format!("DELETE FROM {relation} AS n WHERE {on} RETURNING n.{of} AS v{row}"), taken.told("p.s", 0, &from))
        }
        (None, ..) => (
            format!("DELETE FROM {relation} AS n USING {} WHERE {on} RETURNING p.\"ebb:s\" AS s{row}", join.from),
            taken.told("s", 0, &from),
        ),
        (Some(most), ..) => (
            format!(
                "DELETE FROM {relation} AS d USING ({}) AS few WHERE d.tableoid = few.leaf AND d.ctid = few.place \
                 RETURNING few.s AS s{row}",
                few(child, &join.from, &on, most)
            ),
            taken.told("s", 0, &from),
        ),
    };
    let gone = format!("gone AS ({gone})");
    let binds = [(values, parents.subjects.as_slice())];
    let total = taken.take(connection, &[edge.child], (&[gone], &[told]), &binds).await?;
    tree.path.close(connection).await?;
    Ok(total)
}

/// Some rows of a table, locked: where each is (an address names a row only together with its leaf), and whose. Where bytes are
/// counted, too, those before which there are fewer.
fn few(table: &Node, from: &str, on: &str, most: Most) -> String {
    let (relation, rows) = (&table.relation, most.rows);
    let some = |size: &str| {
        format!(
            "SELECT n.tableoid AS leaf, n.ctid AS place, p.\"ebb:s\" AS s{size} \
             FROM {relation} AS n JOIN {from} ON {on} LIMIT {rows} FOR UPDATE OF n"
        )
    };
    let Some(bytes) = most.bytes else { return some("") };
    format!(
        "SELECT leaf, place, s FROM (SELECT leaf, place, s, pg_catalog.sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS before \
         FROM ({}) AS found) AS found WHERE before < {bytes}",
        some(&format!(", {} AS size", table.bytes("n")))
    )
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
        total += taken.add(node, *subject, count);
    }
    Ok(total)
}

/// Rows that each say the one value (`v`) that they went by, with whose they were (`p.s`); a value that two subjects had counts for the
/// first.
fn whose(gone: &str, (join, value): (&Join, &Column), path: &Path) -> String {
    format!(
        "{gone} AS g JOIN (SELECT p.\"ebb:0\" AS v, min(p.\"ebb:s\") AS s FROM {} GROUP BY 1) AS p ON {}{}",
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
    let (mut deletes, mut told) = (Vec::new(), Vec::new());
    let mut binds: Vec<(Values<'_>, &[i32])> = Vec::new();
    let mut first = 1;
    let row = taken.wanted("n");
    for (at, (node, doomed)) in nodes.iter().enumerate() {
        let table = &tree.nodes[*node];
        let key: Vec<Ident> = table.key.iter().map(|column| column.name.clone()).collect();
        let (columns, values) = pick(doomed, &table.read, &key)?;
        let join = join(&key, &columns, first);
        let relation = &table.relation;
        if let ([of], [value]) = (key.as_slice(), columns.as_slice()) {
            let on = among(of, value, first);
            deletes.push(format!("gone{at} AS (DELETE FROM {relation} AS n WHERE {on} RETURNING n.{of} AS v{row})"));
            told.push(taken.told("p.s", at, &whose(&format!("gone{at}"), (&join, value), &tree.path)));
        } else {
            deletes.push(format!(
                "gone{at} AS (DELETE FROM {relation} AS n USING {} WHERE {} RETURNING p.\"ebb:s\" AS s{row})",
                join.from, join.on
            ));
            told.push(taken.told("s", at, &format!("gone{at}{}", tree.path.opened())));
        }
        first += join.arrays + 1;
        binds.push((values, &doomed.subjects));
    }
    let of: Vec<usize> = nodes.iter().map(|(node, _)| *node).collect();
    let total = taken.take(connection, &of, (&deletes, &told), &binds).await?;
    tree.path.close(connection).await?;
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
    let mut changed = Changed::default();
    for row in found {
        changed.rows += taken.add(edge.child, row.try_get(0)?, row.try_get(1)?);
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
