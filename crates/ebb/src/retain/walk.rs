//! Walks through what hangs on rows, from the top down, level by level. Invariant: a walk that says it is whole has found
//! every row of its tables that hangs on where it began, each once.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use super::store::rows::{self, Doomed};
use super::tree::{EdgeAction, Tree};
use crate::Result;

/// How far a walk goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) rows: usize,
    pub(crate) levels: usize,
}

impl Bounds {
    pub(crate) const NONE: Self = Self { rows: usize::MAX, levels: usize::MAX };
}

/// The key of a row, with its node.
pub(crate) type Place = (usize, Vec<Option<String>>);

/// What a walk has found.
pub(crate) struct Walk {
    /// Rows by node.
    pub(crate) doomed: Vec<Doomed>,
    /// The node of each row, in the order in which they were found.
    order: Vec<usize>,
    known: HashSet<Place>,
    /// How often it looked for what hangs on what it had found.
    pub(crate) levels: usize,
    /// Nothing else hangs on them, in its tables.
    pub(crate) whole: bool,
}

impl Walk {
    /// A walk that begins with these rows.
    pub(crate) fn from(tree: &Tree, start: Vec<(usize, Doomed)>) -> Self {
        let doomed = tree.nodes.iter().map(|node| Doomed::with(node.read.len())).collect();
        let mut walk = Self { doomed, order: Vec::new(), known: HashSet::new(), levels: 0, whole: false };
        for (node, rows) in start {
            for at in 0..rows.len() {
                let row = rows.row(at);
                walk.known.insert((node, row[..tree.nodes[node].key.len()].to_vec()));
                walk.push(node, row, rows.subjects[at]);
            }
        }
        walk
    }

    /// Goes on through some components of a tree, parents first; a circle until nothing new is found.
    pub(crate) async fn on(
        mut self,
        connection: &mut PgConnection,
        tree: &Tree,
        components: &[Vec<usize>],
        lock: bool,
        bounds: Bounds,
    ) -> Result<Self> {
        let limit = (bounds.rows < usize::MAX).then(|| bounds.rows as u64 + 1);
        for component in components {
            // How far each edge has read its parent's rows.
            let mut seen: HashMap<usize, usize> = HashMap::new();
            loop {
                let before = self.rows();
                self.levels += 1;
                for node in component.iter().filter(|node| tree.nodes[**node].inner) {
                    for (at, edge) in tree.into(*node).filter(|(_, edge)| edge.action == EdgeAction::Delete) {
                        let from = seen.insert(at, self.doomed[edge.parent].len()).unwrap_or(0);
                        let parents = self.doomed[edge.parent].tail(from);
                        if parents.is_empty() {
                            continue;
                        }
                        let rows = rows::collect(connection, tree, edge, &parents, limit, lock).await?;
                        self.add(tree, *node, &rows);
                        if self.rows() > bounds.rows || rows.len() > bounds.rows {
                            return Ok(self);
                        }
                    }
                }
                if self.rows() == before {
                    break;
                }
                if self.levels >= bounds.levels {
                    return Ok(self);
                }
            }
        }
        self.whole = true;
        Ok(self)
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

    fn add(&mut self, tree: &Tree, node: usize, rows: &Doomed) {
        let key = tree.nodes[node].key.len();
        for at in 0..rows.len() {
            let row = rows.row(at);
            if self.known.insert((node, row[..key].to_vec())) {
                self.push(node, row, rows.subjects[at]);
            }
        }
    }

    fn push(&mut self, node: usize, row: Vec<Option<String>>, subject: i32) {
        self.doomed[node].push(row, subject);
        self.order.push(node);
    }
}
