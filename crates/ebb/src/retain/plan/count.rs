//! What goes with whoever is due, and who of them waits. Invariant: it asks what erasing asks, in the same words and without locks,
//! so that a run does what was counted when nothing moved.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use crate::Result;
use crate::gate::{self, Held};
use crate::pg::Ident;
use crate::policy::{Retain, Subjects};
use crate::retain::compile::{self, Compiled};
use crate::retain::keeper::Surroundings;
use crate::retain::store::rows::{self, Doomed, Reach};
use crate::retain::tree::{Edge, EdgeAction, Tree};
use crate::retain::{look, store, walk};

/// Rows are counted for at most so many due subjects.
const COUNTED: u64 = 1_000;

/// What goes with due subjects.
#[derive(Default)]
pub(super) struct Counted {
    /// Of how many.
    pub(super) subjects: u64,
    /// Why others who would have been counted wait, and how many.
    pub(super) blocked: Vec<(String, u64)>,
    pub(super) erases: Vec<(String, u64)>,
    pub(super) unlinks: Vec<(String, u64)>,
    pub(super) left: Vec<(String, String, u64)>,
}

pub(super) async fn count(
    connection: &mut PgConnection,
    (policy, subjects): (&Retain, &Subjects),
    unmarked: &[String],
    among: Surroundings<'_>,
) -> Result<Counted> {
    let compiled = compile::compile_among(connection, policy, subjects, among).await?;
    let name = policy.name.as_str();
    let (mut ids, held) = match among.installed {
        true => {
            let held = compiled.binding(name, gate::look(connection, name).await?);
            (store::due_ids(connection, name, COUNTED).await?, held)
        }
        false => (Vec::new(), Vec::new()),
    };
    ids.extend(unmarked.iter().take(COUNTED as usize - ids.len()).cloned());
    let mut blocked: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        let stopped = stopped(connection, &compiled, &held, &ids).await?;
        if stopped.is_empty() {
            break;
        }
        let mut at = 0..;
        ids.retain(|_| at.next().is_none_or(|at| !stopped.contains_key(&at)));
        stopped.into_values().for_each(|why| *blocked.entry(why).or_default() += 1);
    }
    let doomed = compiled.root.named(ids.iter().map(String::as_str))?;
    let (taken, unlinked) = look::would(connection, &compiled, &doomed).await?;
    let by_table = |counts: rows::Taken| {
        let mut tables: Vec<(String, u64)> = Vec::new();
        for (node, table) in compiled.tree.nodes.iter().enumerate() {
            let rows: i64 = counts.counts.iter().filter(|((of, _), _)| *of == node).map(|(_, rows)| rows).sum();
            if rows > 0 {
                tables.push((table.relation.label(), rows.unsigned_abs()));
            }
        }
        tables
    };
    let (erases, unlinks) = (by_table(taken), by_table(unlinked));
    let left = look::left_for_good(connection, &compiled, &doomed).await?;
    Ok(Counted { subjects: ids.len() as u64, blocked: blocked.into_iter().collect(), erases, unlinks, left })
}

/// Which of the subjects wait, by their position, and why: `unless` stops them, or a hold on a row that they share, or somebody who
/// is not among them and has the same value of a link, or would go along.
async fn stopped(
    connection: &mut PgConnection,
    compiled: &Compiled,
    held: &[Held],
    ids: &[String],
) -> Result<BTreeMap<i32, String>> {
    let (root, tree) = (&compiled.root, &compiled.tree);
    let mut stopped: BTreeMap<i32, String> = BTreeMap::new();
    if ids.is_empty() {
        return Ok(stopped);
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let asked = look::unless(connection, compiled, &ids).await?;
    stopped.extend(asked.holds.into_iter().map(|at| (at as i32, "`unless` holds".to_owned())));
    stopped.extend(asked.fails.into_iter().map(|(at, error)| (at as i32, error.to_string())));
    if held.is_empty() && !tree.leads_to_others() {
        return Ok(stopped);
    }
    let roots = rows::read_roots(connection, root, &tree.nodes[0].read, &root.named(ids)?).await?;
    for (at, why) in bound_by(connection, tree, held, &roots).await? {
        stopped.entry(at).or_insert(why);
    }
    for edge in tree.shared_links() {
        for (at, _) in rows::sharing(connection, tree, root, edge, (&roots, &roots)).await? {
            stopped.entry(at).or_insert_with(|| edge.shared());
        }
    }
    if tree.leads_back() {
        let own = roots.len();
        let reached = look::along(connection, tree, roots, Some(look::LOOKED_AT)).await?;
        for at in &reached.subjects[own..] {
            stopped.entry(*at).or_insert_with(|| look::ALONG.to_owned());
        }
    }
    Ok(stopped)
}

/// The subjects with whom a row of somebody on hold would go. A row that several share counts for each of them.
async fn bound_by(
    connection: &mut PgConnection,
    tree: &Tree,
    held: &[Held],
    roots: &Doomed,
) -> Result<Vec<(i32, String)>> {
    let of = |node: usize| {
        let label = tree.nodes[node].relation.label();
        held.iter().filter(move |held| held.relation == label)
    };
    let goes = |edge: &&Edge| edge.action == EdgeAction::Delete && of(edge.child).next().is_some();
    let edges: Vec<&Edge> = tree.edges.iter().filter(goes).collect();
    let mut above: Vec<Doomed> = tree.nodes.iter().map(|node| Doomed::with(node.read.len())).collect();
    if edges.iter().any(|edge| edge.parent != 0) {
        let inner: Vec<usize> = (0..tree.nodes.len()).filter(|node| tree.nodes[*node].inner).collect();
        let some = Reach { most: Some(look::LOOKED_AT + 1), last: None, only: None };
        let reached = rows::reach(connection, tree, &inner, &[(0, roots.clone())], some).await?;
        if reached.rows.len() as u64 > look::LOOKED_AT {
            return Err(walk::too_many());
        }
        for (node, row, subject) in reached.rows {
            above[node].push(row, subject);
        }
    } else {
        above[0] = roots.clone();
    }
    let mut bound = Vec::new();
    let key: Vec<Ident> = tree.nodes[0].key.iter().map(|column| column.name.clone()).collect();
    let own = (tree.nodes[0].read.as_slice(), key.as_slice(), key.as_slice());
    for held in of(0) {
        bound.extend(with_held(connection, tree, (0, held), own, &above[0], None).await?);
    }
    for edge in edges {
        let read = edge.compared(&tree.nodes[edge.parent].read);
        let link = (read.as_slice(), edge.parent_columns.as_slice(), edge.child_columns.as_slice());
        let kept = edge.kept.as_ref().map(|kept| kept.condition.as_str());
        for held in of(edge.child) {
            bound.extend(with_held(connection, tree, (edge.child, held), link, &above[edge.parent], kept).await?);
        }
    }
    Ok(bound)
}

async fn with_held(
    connection: &mut PgConnection,
    tree: &Tree,
    (node, held): (usize, &Held),
    link: rows::Link<'_>,
    rows: &Doomed,
    kept: Option<&str>,
) -> Result<Vec<(i32, String)>> {
    let relation = &tree.nodes[node].relation;
    let mut found = Vec::new();
    for condition in held.going(kept) {
        let whose = rows::whose(connection, relation, link, rows, &condition).await;
        let whose = whose.map_err(|error| gate::explain(error, std::slice::from_ref(held)))?;
        found.extend(whose.into_iter().map(|at| (at, held.would_go())));
    }
    Ok(found)
}
