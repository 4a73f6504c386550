//! Parts of tables that refer to each other in a circle. Rows on which nothing else hangs go first, with those that hang on
//! each other together. Where more of them hang together than a part may take, references are ended before their rows go.
//! Invariants: a reference is ended only of rows that are found without it, so that whoever runs next finds them all; a
//! part takes or changes no more rows than one transaction may, unless no column of the circle may be null.

use std::collections::HashSet;

use sqlx::PgConnection;

use super::parts::Part;
use super::{Erase, kept};
use crate::Result;
use crate::pg::Ident;
use crate::retain::store::rows::{self, Doomed};
use crate::retain::tree::{Edge, EdgeAction};
use crate::retain::walk::{Bounds, Walk};

/// So often a part looks what hangs on what it has found; below that references are ended instead.
const LEVELS: usize = 1_000;

impl Erase {
    /// Deletes rows behind an edge into a circle, after everything that hangs on them. Whether nothing is left there.
    pub(super) async fn take_circle(
        &self,
        connection: &mut PgConnection,
        (edge, circle): (&Edge, &[usize]),
        rows: &Doomed,
        part: &mut Part,
        depth: usize,
    ) -> Result<bool> {
        let tree = &self.compiled.tree;
        // Subjects are no part of it: nobody goes without a record.
        let circle: Vec<usize> = circle.iter().copied().filter(|node| *node != 0).collect();
        loop {
            let first = rows::collect(connection, tree, edge, rows, Some(part.budget), true).await?;
            if first.is_empty() {
                return Ok(true);
            }
            let start = (edge.child, &first);
            let mut found = self.hangs_together(connection, &circle, start, (part.budget, LEVELS)).await?;
            if found.is_none() {
                if !part.is_untouched() || self.end_references(connection, (edge, &circle), rows, part).await? {
                    return Ok(false);
                }
                found = self.hangs_together(connection, &circle, start, (part.budget, usize::MAX)).await?;
            }
            let found = match found {
                Some(found) => found,
                // Nothing parts them.
                None => {
                    let walk = Walk::from(tree, vec![(edge.child, first)]);
                    walk.on(connection, tree, std::slice::from_ref(&circle), true, Bounds::NONE).await?
                }
            };
            if !self.empty_below(connection, &circle, &found, part, depth).await? {
                return Ok(false);
            }
            let fits = found.rows() as u64 <= part.budget;
            if !fits && !part.is_untouched() {
                return Ok(false);
            }
            let of = circle.iter().map(|node| (*node, &found.doomed[*node])).filter(|(_, rows)| !rows.is_empty());
            self.take_rows(connection, &of.collect::<Vec<_>>(), part).await?;
            if part.budget == 0 {
                return Ok(false);
            }
        }
    }

    /// Some rows of a circle with all that hangs on them there, no more than the budget: these, or deeper ones. None where there
    /// are no such, or none was found on so many levels.
    async fn hangs_together(
        &self,
        connection: &mut PgConnection,
        circle: &[usize],
        (node, first): (usize, &Doomed),
        (budget, most_levels): (u64, usize),
    ) -> Result<Option<Walk>> {
        let (tree, rows) = (&self.compiled.tree, budget as usize);
        let (mut start, mut passed, mut levels) = (vec![(node, first.clone())], HashSet::new(), 0);
        while levels < most_levels {
            let bounds = Bounds { rows, levels: most_levels - levels };
            let walk = Walk::from(tree, start).on(connection, tree, &[circle.to_vec()], true, bounds).await?;
            if walk.whole {
                return Ok(Some(walk));
            }
            levels += walk.levels;
            let mut new = false;
            for place in walk.places() {
                new |= passed.insert(place.clone());
            }
            if !new {
                return Ok(None);
            }
            start = walk.deepest(rows.div_ceil(2));
        }
        Ok(None)
    }

    /// Ends references into a circle of rows that are behind an edge, and so are found without them. Whether there were any.
    async fn end_references(
        &self,
        connection: &mut PgConnection,
        (edge, circle): (&Edge, &[usize]),
        rows: &Doomed,
        part: &mut Part,
    ) -> Result<bool> {
        let tree = &self.compiled.tree;
        let inside = |other: &&Edge| other.action == EdgeAction::Delete && circle.contains(&other.parent);
        let ended = tree.into(edge.child).map(|(_, other)| other).filter(inside).flat_map(|other| &other.nullable);
        let mut columns: Vec<Ident> = ended.filter(|name| !edge.child_columns.contains(name)).cloned().collect();
        columns.dedup();
        if columns.is_empty() {
            return Ok(false);
        }
        let (child, parent) = (&tree.nodes[edge.child], &tree.nodes[edge.parent]);
        let read = edge.compared(&parent.read);
        let link = (read.as_slice(), edge.parent_columns.as_slice(), edge.child_columns.as_slice());
        let how = (columns.as_slice(), part.budget);
        let (cut, all) = rows::cut(connection, (&child.relation, &tree.path), link, Some(edge), rows, how).await?;
        if !all {
            return Err(kept(child));
        }
        part.spend(cut);
        Ok(cut > 0)
    }

    /// Empties, within the budget, what hangs on rows of a circle outside of it.
    async fn empty_below(
        &self,
        connection: &mut PgConnection,
        circle: &[usize],
        found: &Walk,
        part: &mut Part,
        depth: usize,
    ) -> Result<bool> {
        for node in circle.iter().filter(|node| **node != 0 && !found.doomed[**node].is_empty()) {
            self.spares(connection, *node, &found.doomed[*node]).await?;
            if !self.descend(connection, *node, &found.doomed[*node], part, depth + 1).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Empties what hangs on the circle that subjects are in themselves. What is left of it goes with their own rows; where
    /// that is too much for one transaction, claimed subjects are parted, so that each goes by itself.
    pub(super) async fn part_subjects(
        &self,
        connection: &mut PgConnection,
        top: &Doomed,
        part: &mut Part,
    ) -> Result<bool> {
        let tree = &self.compiled.tree;
        let Some(circle) = tree.circle(0) else { return Ok(true) };
        let walk = Walk::from(tree, vec![(0, top.clone())]);
        let found = walk.on(connection, tree, &[circle.to_vec()], false, Bounds::NONE).await?;
        if !self.empty_below(connection, circle, &found, part, 0).await? {
            return Ok(false);
        }
        if part.has_room_for(found.rows()) {
            return Ok(true);
        }
        if !part.is_untouched() {
            return Ok(false);
        }
        let between = || tree.into(0).map(|(_, edge)| edge).filter(|edge| edge.action == EdgeAction::Delete);
        if between().any(|edge| edge.nullable.is_empty()) {
            return Ok(true);
        }
        let root = &tree.nodes[0];
        let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
        for edge in between() {
            let how = (edge.nullable.as_slice(), part.budget);
            let (cut, all) =
                rows::cut(connection, (&root.relation, &tree.path), (&root.read, &key, &key), None, top, how).await?;
            if !all {
                return Err(kept(root));
            }
            part.spend(cut);
            if part.budget == 0 {
                return Ok(false);
            }
        }
        if !part.is_untouched() {
            return Ok(false);
        }
        for (_, edge) in tree.onto(0).filter(|(_, edge)| edge.child != 0 && circle.contains(&edge.child)) {
            if edge.action == EdgeAction::Delete && !self.take_circle(connection, (edge, circle), top, part, 0).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
