//! What hangs on subjects: the rows that others refer to, read from the root down, and how many rows there are of each
//! table. Erasing reads them under locks; looking does not.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use super::compile::Compiled;
use super::store::rows::{self, Doomed, Rows, Taken};
use super::tree::{EdgeAction, Tree};
use crate::Result;

/// Reads, from the root down, every row that rows of other tables refer to. A circle is read until nothing new is found.
pub(crate) async fn collect(
    connection: &mut PgConnection,
    tree: &Tree,
    roots: Doomed,
    lock: bool,
) -> Result<Vec<Doomed>> {
    let mut doomed: Vec<Doomed> = tree.nodes.iter().map(|node| Doomed::with(node.read.len())).collect();
    let mut known: Vec<HashSet<Vec<Option<String>>>> = vec![HashSet::new(); tree.nodes.len()];
    let keys = |node: usize| tree.nodes[node].key.len();
    for at in 0..roots.len() {
        known[0].insert(roots.row(at)[..keys(0)].to_vec());
    }
    doomed[0] = roots;
    for component in &tree.order {
        // How far each edge has read its parent's rows.
        let mut seen: HashMap<usize, usize> = HashMap::new();
        loop {
            let mut found = false;
            for node in component.iter().filter(|node| tree.nodes[**node].inner) {
                for (at, edge) in tree.into(*node).filter(|(_, edge)| edge.action == EdgeAction::Delete) {
                    let from = seen.insert(at, doomed[edge.parent].len()).unwrap_or(0);
                    let parents = doomed[edge.parent].tail(from);
                    if parents.is_empty() {
                        continue;
                    }
                    let rows = rows::collect(connection, tree, edge, &parents, None, lock).await?;
                    for at in 0..rows.len() {
                        let row = rows.row(at);
                        if known[*node].insert(row[..keys(*node)].to_vec()) {
                            doomed[*node].push(row, rows.subjects[at]);
                            found = true;
                        }
                    }
                }
            }
            if !found {
                break;
            }
        }
    }
    Ok(doomed)
}

/// What would go with subjects and what would only lose its link, counted without locks.
pub(crate) async fn would(connection: &mut PgConnection, compiled: &Compiled, ids: &Doomed) -> Result<(Taken, Taken)> {
    let tree = &compiled.tree;
    let roots = rows::read_roots(connection, &compiled.root, &tree.nodes[0].read, ids).await?;
    let doomed = collect(connection, tree, roots, false).await?;
    let (mut taken, mut unlinked) = (Taken::default(), Taken::default());
    for (node, table) in tree.nodes.iter().enumerate().filter(|(_, table)| table.doomed) {
        if table.inner {
            for subject in &doomed[node].subjects {
                *taken.counts.entry((node, *subject)).or_default() += 1;
            }
            continue;
        }
        let edges: Vec<_> = tree.into(node).filter(|(_, edge)| edge.action == EdgeAction::Delete).collect();
        let edges: Vec<_> = edges.into_iter().map(|(_, edge)| (edge, &doomed[edge.parent])).collect();
        *taken.counts.entry((node, 0)).or_default() +=
            rows::count_distinct(connection, tree, &edges, Rows::Go, &[]).await?;
    }
    for (_, edge) in tree.edges.iter().enumerate().filter(|(at, _)| compiled.sets.contains_key(at)) {
        debug_assert!(edge.action != EdgeAction::Delete || edge.kept.is_some(), "its rows stay");
        // What goes anyhow is not only unlinked.
        let goes = tree.into(edge.child).map(|(_, edge)| edge).filter(|edge| edge.action == EdgeAction::Delete);
        let goes: Vec<_> = goes.map(|edge| (edge, &doomed[edge.parent])).collect();
        let unlinked_by = [(edge, &doomed[edge.parent])];
        let found = rows::count_distinct(connection, tree, &unlinked_by, Rows::Stay, &goes).await?;
        *unlinked.counts.entry((edge.child, 0)).or_default() += found;
    }
    Ok((taken, unlinked))
}
