//! Parts of tables that refer to each other in a circle. Rows on which nothing else hangs go first, with those that hang on
//! each other together. Where more of them hang together than a part may take, references are ended before their rows go.
//! Invariants: a look for such rows is bounded and locks nothing, what it found is looked at again under locks; a reference
//! is ended only of rows that are found without it, so that whoever runs next finds them all; a part takes or changes no
//! more rows than one transaction may, unless no reference of the circle may end before its rows go.

use std::collections::HashSet;

use sqlx::PgConnection;

use super::parts::Part;
use super::{Erase, LARGE};
use crate::pg::Ident;
use crate::retain::store::rows::{self, Doomed};
use crate::retain::tree::{Column, Edge, EdgeAction};
use crate::retain::walk::{Place, Walk};
use crate::{Error, Result};

/// How far a part looks for rows that go without others.
#[derive(Debug, Clone, Copy)]
struct Search {
    /// So many may go.
    rows: u64,
    /// So many are read at a time.
    most: u64,
    times: usize,
}

impl Search {
    /// Where references can be ended instead.
    fn near(rows: u64) -> Self {
        Self { rows, most: rows.saturating_mul(5), times: 2 }
    }

    fn far(rows: u64) -> Self {
        Self { rows, most: LARGE * 10, times: 5 }
    }

    /// Whatever hangs together.
    const ALL: Self = Self { rows: u64::MAX, most: u64::MAX, times: 1 };
}

/// How often what was found is looked at again under locks, where it is something else each time.
const LOOKS: usize = 3;

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
        // Subjects are no part of it: nobody goes without a record.
        let circle: Vec<usize> = circle.iter().copied().filter(|node| *node != 0).collect();
        let way = (edge, circle.as_slice());
        loop {
            let mut found = self.locked(connection, way, rows, Search::near(part.budget)).await?;
            if found.is_none() {
                if !part.is_untouched() || self.end_references(connection, way, rows, part).await? {
                    return Ok(false);
                }
                found = self.locked(connection, way, rows, Search::far(part.budget)).await?;
            }
            let found = match found {
                Some(found) => found,
                // Nothing parts them.
                None => self.locked(connection, way, rows, Search::ALL).await?.ok_or_else(|| {
                    Error::refused("others change what hangs on it all the time; the next run looks again")
                })?,
            };
            if found.rows() == 0 {
                return Ok(true);
            }
            self.leads_to_nobody(connection, &circle, &found).await?;
            if !self.empty_below(connection, &circle, &found, part, depth).await? {
                return Ok(false);
            }
            let fits = found.rows() as u64 <= part.budget;
            if !fits && !part.is_untouched() {
                return Ok(false);
            }
            let of = circle.iter().map(|node| (*node, &found.doomed[*node])).filter(|(_, rows)| !rows.is_empty());
            self.take_rows(connection, &of.collect::<Vec<_>>(), part).await?;
            if part.is_over() {
                return Ok(false);
            }
        }
    }

    /// What a search finds, once all of it is locked; none where it finds nothing.
    async fn locked(
        &self,
        connection: &mut PgConnection,
        (edge, circle): (&Edge, &[usize]),
        rows: &Doomed,
        search: Search,
    ) -> Result<Option<Walk>> {
        let tree = &self.compiled.tree;
        let mut locked: HashSet<Place> = HashSet::new();
        for _ in 0..LOOKS {
            let limit = (search.rows < u64::MAX).then_some(search.rows);
            let first = rows::collect(connection, tree, edge, rows, limit, false).await?;
            let Some(found) = self.hangs_together(connection, circle, (edge.child, first), search).await? else {
                return Ok(None);
            };
            if found.places().all(|place| locked.contains(place)) {
                return Ok(Some(found));
            }
            for node in circle.iter().filter(|node| !found.doomed[**node].is_empty()) {
                rows::lock(connection, tree, *node, &found.doomed[*node]).await?;
            }
            locked.extend(found.places().cloned());
        }
        Ok(None)
    }

    /// Some rows of a circle with all that hangs on them there, no more than may go: these, or deeper ones. None where there
    /// are no such, or none was found.
    async fn hangs_together(
        &self,
        connection: &mut PgConnection,
        circle: &[usize],
        first: (usize, Doomed),
        search: Search,
    ) -> Result<Option<Walk>> {
        let (mut start, mut passed) = (vec![first], HashSet::new());
        for _ in 0..search.times {
            let bounds = (search.rows, search.most);
            let walk = Walk::reach(connection, &self.compiled.tree, circle, &start, bounds).await?;
            if walk.whole {
                return Ok(Some(walk));
            }
            let mut new = false;
            for place in walk.places() {
                new |= passed.insert(place.clone());
            }
            if !new {
                return Ok(None);
            }
            start = walk.deepest(search.rows.div_ceil(2) as usize);
        }
        Ok(None)
    }

    /// An error that is a refusal where rows of the circle that subjects are in would take somebody along: they themselves do not
    /// refer to any of them any more.
    async fn leads_to_nobody(&self, connection: &mut PgConnection, circle: &[usize], found: &Walk) -> Result<()> {
        let tree = &self.compiled.tree;
        for (_, edge) in tree.into(0).filter(|(_, edge)| circle.contains(&edge.parent)) {
            let parents = &found.doomed[edge.parent];
            if edge.action == EdgeAction::Delete
                && !rows::collect(connection, tree, edge, parents, Some(1), false).await?.is_empty()
            {
                return Err(Error::refused("a subject that may not go yet would go along with it"));
            }
        }
        Ok(())
    }

    /// Ends references into a circle of rows that are behind an edge, and so are found without them. Whether any was.
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
        let read = edge.compared(&tree.nodes[edge.parent].read);
        let link = (read.as_slice(), edge.parent_columns.as_slice(), edge.child_columns.as_slice());
        let cut = self.cut(connection, (edge.child, Some(edge)), link, rows, (&columns, part)).await?;
        Ok(cut.is_some_and(|cut| cut > 0))
    }

    /// Sets columns of rows that will go to null, within the budget. None where their table does not have that: a constraint or
    /// a trigger wants them as they are.
    async fn cut(
        &self,
        connection: &mut PgConnection,
        (node, behind): (usize, Option<&Edge>),
        link: (&[Column], &[Ident], &[Ident]),
        rows: &Doomed,
        (columns, part): (&[Ident], &mut Part),
    ) -> Result<Option<i64>> {
        let tree = &self.compiled.tree;
        let of = (&tree.nodes[node].relation, &tree.path);
        rows::savepoint(connection).await?;
        let kept = match rows::cut(connection, of, link, behind, rows, (columns, part.budget)).await {
            Ok((0, _)) => {
                rows::end_savepoint(connection, false).await?;
                return Ok(Some(0));
            }
            Ok((cut, true)) => match self.keep_cut(connection).await {
                Ok(()) => {
                    part.spend(cut);
                    return Ok(Some(cut));
                }
                Err(error) => Some(error),
            },
            Ok((_, false)) => None,
            Err(error) => Some(error),
        };
        if let Some(error) = kept.filter(|error| !error.is_of_a_row()) {
            return Err(error);
        }
        rows::end_savepoint(connection, false).await?;
        Ok(None)
    }

    async fn keep_cut(&self, connection: &mut PgConnection) -> Result<()> {
        self.compiled.tree.path.settle(connection).await?;
        rows::end_savepoint(connection, true).await
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
        let start = [(0, top.clone())];
        let found = Walk::reach(connection, tree, circle, &start, (part.rows, part.rows)).await?;
        if found.whole {
            let emptied = self.empty_below(connection, circle, &found, part, 0).await?;
            return Ok(emptied && part.has_room_for(found.rows()));
        }
        if !part.is_untouched() {
            return Ok(false);
        }
        match self.cut_subjects(connection, top, part).await? {
            None => {
                // Nothing parts them.
                let found = Walk::reach(connection, tree, circle, &start, (u64::MAX, u64::MAX)).await?;
                return self.empty_below(connection, circle, &found, part, 0).await;
            }
            Some(0) => {}
            Some(_) => return Ok(false),
        }
        for (_, edge) in tree.onto(0).filter(|(_, edge)| edge.child != 0 && circle.contains(&edge.child)) {
            if edge.action == EdgeAction::Delete && !self.take_circle(connection, (edge, circle), top, part, 0).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ends references of subjects' own rows to the circle that they are in: of how many rows, or none where one may not end.
    async fn cut_subjects(&self, connection: &mut PgConnection, top: &Doomed, part: &mut Part) -> Result<Option<i64>> {
        let (tree, root) = (&self.compiled.tree, &self.compiled.tree.nodes[0]);
        let between = || tree.into(0).map(|(_, edge)| edge).filter(|edge| edge.action == EdgeAction::Delete);
        if between().any(|edge| edge.nullable.is_empty()) {
            return Ok(None);
        }
        let key: Vec<Ident> = root.key.iter().map(|column| column.name.clone()).collect();
        let mut all = 0;
        for edge in between() {
            if part.is_over() {
                break;
            }
            let link = (root.read.as_slice(), key.as_slice(), key.as_slice());
            match self.cut(connection, (0, None), link, top, (&edge.nullable, part)).await? {
                Some(cut) => all += cut,
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }
}
