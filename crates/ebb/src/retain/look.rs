//! What hangs on subjects: the rows that others refer to, read from the root down, and how many rows there are of each
//! table. Erasing reads them under locks; looking does not.

use std::collections::{BTreeSet, HashSet};

use sqlx::PgConnection;

use super::compile::Compiled;
use super::store::rows::{self, Doomed, Extent, Reach, Rows, Taken};
use super::tree::{Edge, EdgeAction, Tree};
use super::walk::Walk;
use crate::{Error, Result};

/// Why a subject waits who would take another along.
pub(crate) const ALONG: &str = "a subject that may not go yet would go along with it";
/// Whoever only looks holds no more rows than this: what has more is not counted. Erasing takes no more than fit in a batch.
pub(crate) const LOOKED_AT: u64 = 200_000;

/// Reads, from the root down, every row that rows of other tables refer to. A circle is read until nothing new is found.
pub(crate) async fn collect(
    connection: &mut PgConnection,
    tree: &Tree,
    roots: Doomed,
    lock: bool,
) -> Result<Vec<Doomed>> {
    let most = (!lock).then_some(LOOKED_AT);
    Ok(Walk::all(connection, tree, &roots, (lock, most)).await?.doomed)
}

/// The rows of subjects, and after them of those whom they would take along, as far as at most so many rows in between tell.
pub(crate) async fn along(
    connection: &mut PgConnection,
    tree: &Tree,
    roots: Doomed,
    most: Option<u64>,
) -> Result<Doomed> {
    let Some(circle) = tree.circle(0) else { return Ok(roots) };
    let most = most.map(|most| most + roots.len() as u64);
    let key = tree.nodes[0].key.len();
    let mut known: HashSet<Vec<Option<String>>> = (0..roots.len()).map(|at| roots.row(at)[..key].to_vec()).collect();
    let start = [(0, roots)];
    let reached = rows::reach(connection, tree, circle, &start, Reach { most, last: None, only: Some(0) }).await?;
    let [(_, mut along)] = start;
    for (_, row, subject) in reached.rows {
        if known.insert(row[..key].to_vec()) {
            along.push(row, subject);
        }
    }
    Ok(along)
}

/// What `unless` says of subjects, by their position.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) holds: BTreeSet<usize>,
    /// It raises an error over what is in their row.
    pub(crate) fails: Vec<(usize, Error)>,
}

/// Asks `unless` of subjects; where it raises an error, of halves of them, down to those whose rows do that.
pub(crate) async fn unless(connection: &mut PgConnection, compiled: &Compiled, ids: &[&str]) -> Result<Asked> {
    let mut asked = Asked::default();
    if compiled.root.unless.is_none() {
        return Ok(asked);
    }
    let mut pending = vec![(0, ids)];
    while let Some((first, some)) = pending.pop() {
        if some.is_empty() {
            continue;
        }
        let named = compiled.root.named(some.iter().copied())?;
        rows::savepoint(connection).await?;
        match rows::blocked(connection, &compiled.root, &named).await {
            Ok(found) => asked.holds.extend(found.into_iter().map(|at| first + at as usize)),
            Err(error) if !error.is_of_a_row() => return Err(error),
            Err(error) if some.len() == 1 => {
                asked.fails.push((first, error.without_values("`unless` raises an error over its row")));
            }
            Err(_) => {
                let (one, other) = some.split_at(some.len() / 2);
                pending.extend([(first + one.len(), other), (first, one)]);
            }
        }
        // Nothing was changed.
        rows::end_savepoint(connection, false).await?;
    }
    Ok(asked)
}

/// How many rows go with subjects, or are changed because of them, counted without locks, of many only so many; where a copy is
/// kept of those that go, also their bytes.
pub(crate) async fn extent(
    connection: &mut PgConnection,
    compiled: &Compiled,
    roots: Doomed,
    most: u64,
) -> Result<Extent> {
    let (tree, sized) = (&compiled.tree, compiled.copies);
    if (0..tree.nodes.len()).all(|node| tree.circle(node).is_none()) {
        let paths = tree.paths(|edge| compiled.sets.contains_key(&edge));
        let mut found = rows::extent(connection, tree, &paths, &roots, (most, sized)).await?;
        if sized {
            found.bytes += rows::sizes(connection, tree, 0, &roots).await?.iter().sum::<u64>();
        }
        return Ok(found);
    }
    // Through a circle there are ways of any length: they are walked.
    let inner: Vec<usize> = (0..tree.nodes.len()).filter(|node| tree.nodes[*node].inner).collect();
    let walk = Walk::reach(connection, tree, &inner, &[(0, roots)], (most, most)).await?;
    if !walk.whole {
        return Ok(Extent { rows: most, bytes: 0 });
    }
    let mut found = Extent { rows: walk.rows() as u64, bytes: 0 };
    for (node, rows) in walk.doomed.iter().enumerate().filter(|(_, rows)| sized && !rows.is_empty()) {
        found.bytes += rows::sizes(connection, tree, node, rows).await?.iter().sum::<u64>();
    }
    for (at, edge) in tree.edges.iter().enumerate().filter(|(_, edge)| !walk.doomed[edge.parent].is_empty()) {
        let goes = edge.action == EdgeAction::Delete && !tree.nodes[edge.child].inner;
        let ways = [(goes, Rows::Go), (compiled.sets.contains_key(&at), Rows::Stay)];
        for (_, rows) in ways.into_iter().filter(|(counts, _)| *counts) {
            if found.rows >= most {
                return Ok(found);
            }
            let way: [(Vec<&Edge>, Rows); 1] = [(vec![edge], rows)];
            let bounds = (most - found.rows, sized);
            found += rows::extent(connection, tree, &way, &walk.doomed[edge.parent], bounds).await?;
        }
    }
    Ok(found)
}

/// Rows that lose their link to subjects and that no policy will take at any time, by table and by the policy that keeps them.
pub(crate) async fn left_for_good(
    connection: &mut PgConnection,
    compiled: &Compiled,
    ids: &Doomed,
) -> Result<Vec<(String, String, u64)>> {
    let tree = &compiled.tree;
    let never = |edge: &Edge| edge.kept.as_ref().and_then(|kept| Some((kept.policy.clone(), kept.never.clone()?)));
    if tree.edges.iter().all(|edge| never(edge).is_none()) {
        return Ok(Vec::new());
    }
    let roots = rows::read_roots(connection, &compiled.root, &tree.nodes[0].read, ids).await?;
    let doomed = collect(connection, tree, roots, false).await?;
    let mut left = Vec::new();
    for edge in &tree.edges {
        let Some((policy, never)) = never(edge) else { continue };
        let few = edge.narrowed(&never);
        let rows = rows::count_distinct(connection, tree, &[(&few, &doomed[edge.parent])], Rows::Stay, &[]).await?;
        if rows > 0 {
            left.push((tree.nodes[edge.child].relation.label(), policy, rows.unsigned_abs()));
        }
    }
    Ok(left)
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
        if tree.nodes[edge.child].inner {
            let parents = (&doomed[edge.parent], Some(&doomed[edge.child]));
            let found = rows::count_staying(connection, tree, edge, parents).await?;
            *unlinked.counts.entry((edge.child, 0)).or_default() += found;
            continue;
        }
        let goes = tree.into(edge.child).map(|(_, edge)| edge).filter(|edge| edge.action == EdgeAction::Delete);
        let goes: Vec<_> = goes.map(|edge| (edge, &doomed[edge.parent])).collect();
        let unlinked_by = [(edge, &doomed[edge.parent])];
        let found = rows::count_distinct(connection, tree, &unlinked_by, Rows::Stay, &goes).await?;
        *unlinked.counts.entry((edge.child, 0)).or_default() += found;
    }
    Ok((taken, unlinked))
}
