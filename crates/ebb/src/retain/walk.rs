//! Walks through what hangs on rows, from the top down: level by level under locks, or in one statement without. Invariant: a
//! walk that says it is whole has found every row of its tables that hangs on where it began, each once.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use super::store::rows::{self, Doomed, Reach};
use super::tree::{EdgeAction, Tree};
use crate::{Error, Result};

/// The key of a row, with its node.
pub(crate) type Place = (usize, Vec<Option<String>>);

/// More than a look holds.
pub(crate) fn too_many() -> Error {
    Error::too_big("too many rows hang on it that others refer to")
}

/// What a walk has found.
pub(crate) struct Walk {
    /// Rows by node.
    pub(crate) doomed: Vec<Doomed>,
    /// The node of each row, in the order in which they were found.
    order: Vec<usize>,
    known: HashSet<Place>,
    /// Nothing else hangs on them, in its tables.
    pub(crate) whole: bool,
}

impl Walk {
    fn new(tree: &Tree) -> Self {
        let doomed = tree.nodes.iter().map(|node| Doomed::with(node.read.len())).collect();
        Self { doomed, order: Vec::new(), known: HashSet::new(), whole: false }
    }

    /// Everything that hangs on rows of the root, through all components of a tree, parents first; a circle until nothing new
    /// is found. More than `most` rows are not held.
    pub(crate) async fn all(
        connection: &mut PgConnection,
        tree: &Tree,
        roots: &Doomed,
        (lock, most): (bool, Option<u64>),
    ) -> Result<Self> {
        let mut walk = Self::new(tree);
        walk.begin(tree, roots);
        for component in &tree.order {
            // How far each edge has read its parent's rows.
            let mut seen: HashMap<usize, usize> = HashMap::new();
            loop {
                let before = walk.rows();
                for node in component.iter().filter(|node| tree.nodes[**node].inner) {
                    for (at, edge) in tree.into(*node).filter(|(_, edge)| edge.action == EdgeAction::Delete) {
                        let from = seen.insert(at, walk.doomed[edge.parent].len()).unwrap_or(0);
                        let parents = walk.doomed[edge.parent].tail(from);
                        if !parents.is_empty() {
                            let limit = most.map(|most| most + 1);
                            let rows = rows::collect(connection, tree, edge, &parents, limit, lock).await?;
                            walk.add(tree, *node, &rows);
                            if most.is_some_and(|most| rows.len().max(walk.rows()) as u64 > most) {
                                return Err(too_many());
                            }
                        }
                    }
                }
                if walk.rows() == before {
                    break;
                }
            }
        }
        walk.whole = true;
        Ok(walk)
    }

    /// What hangs on some rows in some nodes, without locks: all of it where that is no more than so many rows, otherwise those
    /// that were found last of at most `most`.
    pub(crate) async fn reach(
        connection: &mut PgConnection,
        tree: &Tree,
        nodes: &[usize],
        start: &[(usize, Doomed)],
        (rows, most): (u64, u64),
    ) -> Result<Self> {
        let bound = |rows: u64| (rows < u64::MAX).then_some(rows);
        let how = Reach { most: bound(most.max(rows.saturating_add(1))), last: bound(rows), only: None };
        let reached = rows::reach(connection, tree, nodes, start, how).await?;
        let mut walk = Self::new(tree);
        walk.whole = reached.found <= rows;
        for (node, row, subject) in reached.rows {
            walk.push(tree, node, row, subject);
        }
        Ok(walk)
    }

    pub(crate) fn rows(&self) -> usize {
        self.order.len()
    }

    /// Where it was.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Place> {
        self.known.iter()
    }

    /// What was found last, which is deepest and has fewest rows that hang on it: so many rows, by node.
    pub(crate) fn deepest(&self, many: usize) -> Vec<(usize, Doomed)> {
        let last = &self.order[self.rows().saturating_sub(many)..];
        let of = |node: usize| last.iter().filter(|of| **of == node).count();
        let rows = self.doomed.iter().enumerate().map(|(node, rows)| (node, rows.tail(rows.len() - of(node))));
        rows.filter(|(_, rows)| !rows.is_empty()).collect()
    }

    /// Rows of the root, all of them: what is left of subjects that are gone need not have their key.
    fn begin(&mut self, tree: &Tree, roots: &Doomed) {
        for at in 0..roots.len() {
            let row = roots.row(at);
            self.known.insert((0, row[..tree.nodes[0].key.len()].to_vec()));
            self.doomed[0].push(row, roots.subjects[at]);
            self.order.push(0);
        }
    }

    fn add(&mut self, tree: &Tree, node: usize, rows: &Doomed) {
        for at in 0..rows.len() {
            self.push(tree, node, rows.row(at), rows.subjects[at]);
        }
    }

    /// Each row once, whoever it is found for.
    fn push(&mut self, tree: &Tree, node: usize, row: Vec<Option<String>>, subject: i32) {
        if self.known.insert((node, row[..tree.nodes[node].key.len()].to_vec())) {
            self.doomed[node].push(row, subject);
            self.order.push(node);
        }
    }
}
