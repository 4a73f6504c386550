//! Walks through what hangs on rows, in one statement: as many steps down as there are, without locks. Invariant: rows are found
//! in the order of their distance from where the walk began, and no more are read than were asked for.

use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::{Doomed, Rows, Values, bind};
use crate::Result;
use crate::retain::tree::{Edge, EdgeAction, Tree};

/// How far a walk goes, and what it tells.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    /// So many rows are found at most.
    pub(crate) most: Option<u64>,
    /// So many of them are told, those that were found last.
    pub(crate) last: Option<u64>,
    /// Only those of one node.
    pub(crate) only: Option<usize>,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    /// Rows with their node and their subject, nearest first.
    pub(crate) rows: Vec<(usize, Vec<Option<String>>, i32)>,
    /// How many there were of all that were found.
    pub(crate) found: u64,
}

/// Everything of some nodes that hangs on rows of them, those among it.
pub(crate) async fn reach(
    connection: &mut PgConnection,
    tree: &Tree,
    nodes: &[usize],
    start: &[(usize, Doomed)],
    how: Reach,
) -> Result<Reached> {
    let mut begins = Vec::new();
    let mut binds: Vec<(Values<'_>, &[i32])> = Vec::new();
    let mut first = 1;
    for (node, rows) in start.iter().filter(|(_, rows)| !rows.is_empty()) {
        let arrays: Vec<String> = (0..=rows.columns.len())
            .map(|at| format!("${}::{}[]", first + at, if at < rows.columns.len() { "text" } else { "int" }))
            .collect();
        let names: Vec<String> = (0..rows.columns.len()).map(|at| format!("\"ebb:{at}\"")).collect();
        let names = names.join(", ");
        begins.push(format!(
            "SELECT {node}, \"ebb:s\", ARRAY[{names}] FROM unnest({}) AS p ({names}, \"ebb:s\")",
            arrays.join(", ")
        ));
        first += arrays.len();
        binds.push((rows.columns.iter().map(Vec::as_slice).collect(), &rows.subjects));
    }
    if begins.is_empty() {
        return Ok(Reached::default());
    }
    let inside = |edge: &&Edge| {
        edge.action == EdgeAction::Delete
            && tree.nodes[edge.child].inner
            && nodes.contains(&edge.child)
            && nodes.contains(&edge.parent)
    };
    let steps: Vec<String> = tree.edges.iter().filter(inside).map(|edge| step(tree, edge)).collect();
    let on = match steps.is_empty() {
        true => String::new(),
        false => format!(
            " UNION SELECT e.node, w.subject, e.row FROM walk AS w CROSS JOIN LATERAL ({} OFFSET 0) AS e",
            steps.join(" UNION ALL ")
        ),
    };
    let limit = |most: Option<u64>| most.map_or(String::new(), |most| format!(" LIMIT {most}"));
    let told = match (how.only, how.last) {
        (Some(node), _) => format!("SELECT node, subject, row, 0::int8 FROM found WHERE node = {node}"),
        (None, None) => "SELECT node, subject, row, count(*) OVER () FROM found".to_owned(),
        (None, Some(last)) => format!(
            "SELECT node, subject, row, many FROM (SELECT *, count(*) OVER () AS many, row_number() OVER () AS at FROM found) AS found \
             WHERE at > many - {last} ORDER BY at"
        ),
    };
    let sql = format!(
        "WITH RECURSIVE walk (node, subject, row) AS (({}){on}), found AS (SELECT * FROM walk{}) {told}",
        begins.join(" UNION ALL "),
        limit(how.most)
    );
    // From every row one step along an index, however many rows a server expects: never all rows first.
    sqlx::raw_sql("SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off")
        .execute(&mut *connection)
        .await?;
    let query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
    let query = binds.iter().fold(query, |query, (values, subjects)| bind(query, values, subjects));
    let rows = query.fetch_all(&mut *connection).await?;
    sqlx::raw_sql("SET LOCAL enable_hashjoin = DEFAULT; SET LOCAL enable_mergejoin = DEFAULT")
        .execute(connection)
        .await?;
    let found: i64 = rows.first().map_or(Ok(0), |row| row.try_get(3))?;
    let of = |row: &sqlx::postgres::PgRow| -> Result<(usize, Vec<Option<String>>, i32)> {
        let node: i32 = row.try_get(0)?;
        Ok((node as usize, row.try_get(2)?, row.try_get(1)?))
    };
    Ok(Reached { rows: rows.iter().map(of).collect::<Result<_>>()?, found: found.unsigned_abs() })
}

/// One step of a walk: the rows behind an edge of a row `w`. What another node's rows say is not read as if it were its parent's.
fn step(tree: &Tree, edge: &Edge) -> String {
    let (child, parent) = (&tree.nodes[edge.child], &tree.nodes[edge.parent]);
    let read = edge.compared(&parent.read);
    let pairs = edge.child_columns.iter().zip(&edge.parent_columns).filter_map(|(of, name)| {
        let at = read.iter().position(|column| column.name == *name)?;
        let value = format!("(CASE WHEN w.node = {} THEN w.row[{}] END)::{}", edge.parent, at + 1, read[at].sql_type);
        Some(read[at].operators.same(&format!("n.{of}"), &value))
    });
    let on = pairs.collect::<Vec<_>>().join(" AND ");
    let row: Vec<String> = child.read.iter().map(|column| format!("n.{}::text", column.name)).collect();
    format!(
        "SELECT {} AS node, ARRAY[{}] AS row FROM {} AS n WHERE {}",
        edge.child,
        row.join(", "),
        child.relation,
        Rows::Go.behind(edge, &on)
    )
}
