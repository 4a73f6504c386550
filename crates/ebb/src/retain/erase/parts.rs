//! Subjects too large for one transaction: claimed, from then on not to be restored, and taken in bounded parts, deepest
//! rows first, together with whoever goes along with them. Invariants: a part takes or changes no more rows than one
//! transaction may; what it took is counted with the deletion, so that a process that dies leaves the rest, and nothing
//! else, to whoever runs next.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use sqlx::PgConnection;
use uuid::Uuid;

use super::fault::Stage;
use super::unlink::Unlinked;
use super::{COPY_BYTES, Erase, LARGE, Ready, WITHIN, is_of_the_batch, kept, roots};
use crate::Result;
use crate::retain::snapshot::Gone;
use crate::retain::store::rows::{self, Doomed, Most, Taken};
use crate::retain::store::{self, Candidate, Look};
use crate::retain::tree::{Edge, EdgeAction};
use crate::spine::batch::Batch;

/// A statement that hands rows over looks at no more of them to find those that it may take.
const COPIED_AT_ONCE: u64 = 1_000;

/// What one part may still take, and what it took.
pub(super) struct Part {
    pub(super) budget: u64,
    most: u64,
    /// What one transaction may take.
    pub(super) rows: u64,
    began: Instant,
    /// Whose part it is, by position.
    deletions: Vec<Uuid>,
    taken: Taken,
    unlinked: Unlinked,
}

impl Part {
    /// The subjects' own rows may go in the same transaction, after the last part.
    fn of(group: &[Ready], rows: u64, taken: Taken) -> Self {
        let most = rows.saturating_sub(group.len() as u64).max(rows.div_ceil(2));
        Self {
            budget: most,
            most,
            rows,
            began: Instant::now(),
            deletions: group.iter().map(|ready| ready.candidate.id).collect(),
            taken,
            unlinked: Unlinked::of(group),
        }
    }

    pub(super) fn spend(&mut self, rows: i64) {
        self.budget = self.budget.saturating_sub(rows.unsigned_abs());
    }

    /// It may not take anything more.
    pub(super) fn is_over(&self) -> bool {
        let enough = self.budget == 0 || self.taken.bytes() >= COPY_BYTES;
        enough || !self.is_untouched() && self.began.elapsed() > WITHIN
    }

    /// What its next statement may take.
    fn left(&self, copies: bool) -> Most {
        match copies {
            false => Most { rows: self.budget, bytes: None },
            true => Most {
                rows: self.budget.min(COPIED_AT_ONCE),
                bytes: Some(COPY_BYTES.saturating_sub(self.taken.bytes())),
            },
        }
    }

    /// So many rows may go in the same transaction, however many of them are the subjects' own.
    pub(super) fn has_room_for(&self, rows: usize) -> bool {
        self.took() + rows as u64 <= self.rows
    }

    fn took(&self) -> u64 {
        self.most - self.budget
    }

    /// Nothing was done in it yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.budget == self.most
    }
}

impl Erase {
    /// A part of a subject that is too large for one transaction, or its end.
    pub(super) async fn part(&mut self, batch: &mut Batch) -> Result<u64> {
        let (after, some) = (self.progress.after_large, batch.size.min(self.fault.most).max(1));
        let mut found = store::claimed(batch.connection(), &self.policy, after, some).await?;
        let others = found.split_off(found.len().min(1));
        let Some(id) = found.first().map(|candidate| candidate.id) else {
            self.progress.large_done = true;
            return Ok(0);
        };
        self.fault.alone = found.first().map(|one| (one.clone(), Stage::Look));
        let ready = self.lock(batch, found).await?;
        let group = self.together(batch, ready).await?;
        if !group.iter().any(|ready| ready.candidate.id == id) {
            self.progress.after_large = Some(id);
            return Ok(0);
        }
        if group.iter().any(|ready| !ready.look.is_claimed()) {
            self.claim_all(batch, &group).await?;
            return Ok(0);
        }
        let alone = group.len() > 1 || others.is_empty() || self.fault.is_parted(id);
        if !alone && !self.too_many(batch.connection(), &group).await? {
            return self.small_ones(batch, group, others).await;
        }
        let connection = batch.connection();
        if let Some(why) = self.fault.shrunk.take() {
            self.note_small(connection, &group, Some(why)).await?;
            return Ok(0);
        }
        self.fault.alone = self.fault.alone.take().map(|(one, _)| (one, Stage::Part));
        let mut part = Part::of(&group, self.fault.part_rows, self.nothing());
        // Most have none: whether any does is one question, however many go together.
        let ids: Vec<&str> = group.iter().map(|ready| ready.candidate.subject_id.as_str()).collect();
        let any = store::count_events(connection, &self.policy, &ids, 1).await? > 0;
        for id in ids.into_iter().filter(|_| any) {
            let forgotten = store::forget_some_events(connection, &self.policy, id, part.budget).await?;
            part.spend(forgotten as i64);
            if part.is_over() {
                return Ok(0);
            }
        }
        rows::savepoint(connection).await?;
        let top = roots(&group, self.compiled.tree.nodes[0].read.len());
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        match self.settled(connection, &top, &mut part).await {
            Ok(emptied) => {
                rows::end_savepoint(connection, true).await?;
                self.note_small(connection, &group, None).await?;
                self.fault.part_went_well(part.began.elapsed(), part.taken.bytes() < COPY_BYTES / 2);
                let rows = self.count_part(connection, &group, part).await?;
                if !emptied {
                    return Ok(rows);
                }
                // Nothing is left below: the rest is small, and ends like any other subjects.
                let before = self.progress.subjects;
                let group = self.as_counted(connection, group).await?;
                let rest = self.erase(batch, group).await?;
                // Whoever waited for them may go on.
                self.progress.after_large = (self.progress.subjects == before).then_some(id);
                Ok(rows + rest)
            }
            Err(error) if is_of_the_batch(&error) => {
                self.fault.part_took = part.took();
                Err(error)
            }
            Err(error) => {
                rows::end_savepoint(connection, false).await?;
                self.note_trouble(connection, &group, &error).await?;
                self.progress.after_large = Some(id);
                Ok(0)
            }
        }
    }

    /// Says why parts are small, where they are, until one of them was taken.
    async fn note_small(&self, connection: &mut PgConnection, group: &[Ready], why: Option<String>) -> Result<()> {
        if self.fault.part_rows == LARGE {
            return Ok(());
        }
        let ids: Vec<Uuid> = group.iter().map(|ready| ready.candidate.id).collect();
        store::note_waiting(connection, &ids, &vec![why; ids.len()], &vec![None; ids.len()]).await
    }

    /// The end of a claimed subject who goes without others and of whom little is left, together with more such: parting whoever
    /// hung on each other leaves many.
    async fn small_ones(&mut self, batch: &mut Batch, mut small: Vec<Ready>, others: Vec<Candidate>) -> Result<u64> {
        small.extend(self.lock(batch, others).await?);
        (self.fault.alone, self.fault.chosen) = (None, small.len() as u64);
        loop {
            let along = self.others(batch.connection(), &small).await?;
            let positions: BTreeSet<usize> = along.into_iter().map(|other| other.at).collect();
            if positions.is_empty() {
                break;
            }
            positions.into_iter().rev().for_each(|at| drop(small.remove(at)));
        }
        let (small, _) = self.fit(batch.connection(), small).await?;
        let (before, last) = (self.progress.subjects, small.iter().map(|ready| ready.candidate.id).max());
        let rows = self.erase(batch, small).await?;
        self.progress.after_large = last.filter(|_| self.progress.subjects == before);
        Ok(rows)
    }

    /// Counts what a part took and changed with the deletions that it was for. Returns how many rows went.
    async fn count_part(&self, connection: &mut PgConnection, group: &[Ready], mut part: Part) -> Result<u64> {
        let by_table = |taken: &Taken| -> Vec<Map<String, Value>> {
            let mut all = vec![Map::new(); group.len()];
            for ((node, subject), rows) in &taken.counts {
                all[*subject as usize].insert(self.names[*node].clone(), (*rows).into());
            }
            all
        };
        let counts = by_table(&part.taken).into_iter().zip(by_table(&part.unlinked.taken));
        let mut copied = part.taken.copied().into_iter().fold(vec![Vec::new(); group.len()], |mut all, row| {
            all[row.subject as usize].push(row);
            all
        });
        let mut gone = Vec::new();
        for ((at, ready), (taken, unlinked)) in group.iter().enumerate().zip(counts) {
            let deletion = ready.candidate.id;
            if !taken.is_empty() || !unlinked.is_empty() {
                store::add_rows(connection, deletion, &taken.into(), &unlinked.into(), &part.unlinked.writers).await?;
            }
            let rows = self.named(std::mem::take(&mut copied[at]));
            if !rows.is_empty() {
                gone.push(Gone { deletion, rows, continues: true, last: false });
            }
        }
        if let Some(copier) = &self.copier {
            copier.keep(connection, gone).await?;
        }
        Ok(part.taken.counts.values().sum::<i64>().unsigned_abs())
    }

    /// Subjects with all that was counted before.
    async fn as_counted(&self, connection: &mut PgConnection, mut group: Vec<Ready>) -> Result<Vec<Ready>> {
        let ids: Vec<Uuid> = group.iter().map(|ready| ready.candidate.id).collect();
        let looks = store::recheck(connection, &ids, &vec![None; ids.len()], &vec![None; ids.len()]).await?;
        let mut looks: HashMap<Uuid, Look> = looks.into_iter().map(|look| (look.id, look)).collect();
        for ready in &mut group {
            if let Some(look) = looks.remove(&ready.candidate.id) {
                (ready.look.parts, ready.look.unlinked, ready.look.writers) = (look.parts, look.unlinked, look.writers);
            }
        }
        Ok(group)
    }

    /// Takes the part, with all that triggers put off until it is complete.
    async fn settled(&self, connection: &mut PgConnection, top: &Doomed, part: &mut Part) -> Result<bool> {
        let emptied = self.empty(connection, top, part).await?;
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        self.compiled.tree.path.settle(connection).await?;
        Ok(emptied)
    }

    /// Empties, within the budget, what hangs on the subjects. Whether nothing is left but what goes with their own rows.
    async fn empty(&self, connection: &mut PgConnection, top: &Doomed, part: &mut Part) -> Result<bool> {
        Ok(self.descend(connection, 0, top, part, 0).await? && self.part_subjects(connection, top, part).await?)
    }

    /// Empties what refers to some rows of a node, within the budget; of a circle that it is in, only what hangs on that.
    /// Whether nothing is left there.
    pub(super) fn descend<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        node: usize,
        rows: &'a Doomed,
        part: &'a mut Part,
        depth: usize,
    ) -> BoxFuture<'a, Result<bool>> {
        async move {
            let tree = &self.compiled.tree;
            debug_assert!(depth <= tree.nodes.len(), "what has no circle has no longer path");
            // What goes is not unlinked first: it would count as both.
            for (_, edge) in tree.deepest_first(node) {
                if edge.action != EdgeAction::Delete || tree.circles(node, edge.child) {
                    continue;
                }
                self.spares_behind(connection, edge, rows).await?;
                let emptied = match (tree.nodes[edge.child].inner, tree.circle(edge.child)) {
                    (false, _) => self.take_through(connection, edge, rows, part).await?,
                    (true, None) => self.take_inner(connection, edge, rows, part, depth).await?,
                    (true, Some(circle)) => self.take_circle(connection, (edge, circle), rows, part, depth).await?,
                };
                if !emptied {
                    return Ok(false);
                }
            }
            for (at, edge) in tree.onto(node) {
                if self.compiled.sets.contains_key(&at) {
                    // What goes in one statement with what it refers to keeps its link.
                    let along = (edge.child == node).then_some(rows);
                    self.unlink_part(connection, at, (rows, along), part).await?;
                }
                if part.is_over() {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        .boxed()
    }

    /// Ends links behind an edge, within the budget.
    async fn unlink_part(
        &self,
        connection: &mut PgConnection,
        at: usize,
        rows: (&Doomed, Option<&Doomed>),
        part: &mut Part,
    ) -> Result<()> {
        let tree = &self.compiled.tree;
        loop {
            let changed = self.unlink(connection, (tree, at), rows, Some(part.budget), &mut part.unlinked).await?;
            part.spend(changed);
            if part.is_over() || tree.edges[at].distinct || changed == 0 {
                return Ok(());
            }
        }
    }

    /// Deletes rows to which no others refer. Two subjects may share a row: it counts once, and is met twice.
    async fn take_through(
        &self,
        connection: &mut PgConnection,
        edge: &Edge,
        rows: &Doomed,
        part: &mut Part,
    ) -> Result<bool> {
        loop {
            let (tree, copies) = (&self.compiled.tree, self.copier.is_some());
            let limit = Some(part.left(copies));
            let gone = rows::delete_through(connection, tree, edge, rows, limit, &mut part.taken).await?;
            part.spend(gone);
            if part.is_over() {
                return Ok(false);
            }
            if gone == 0 || edge.distinct && !copies {
                return Ok(true);
            }
        }
    }

    /// Deletes rows to which others refer, after those.
    async fn take_inner(
        &self,
        connection: &mut PgConnection,
        edge: &Edge,
        rows: &Doomed,
        part: &mut Part,
        depth: usize,
    ) -> Result<bool> {
        let tree = &self.compiled.tree;
        loop {
            let mut some = rows::collect(connection, tree, edge, rows, Some(part.budget), true).await?;
            if some.is_empty() {
                return Ok(true);
            }
            if !self.descend(connection, edge.child, &some, part, depth + 1).await? {
                return Ok(false);
            }
            let tied = |(at, edge): (usize, &Edge)| edge.child == edge.parent && self.compiled.sets.contains_key(&at);
            if some.len() as u64 > part.budget && tree.onto(edge.child).any(tied) {
                // They refer to each other still, and go together in the next part.
                return Ok(false);
            }
            some.truncate(part.budget as usize);
            if self.copier.is_some() && !tree.onto(edge.child).any(tied) {
                let sizes = rows::sizes(connection, tree, edge.child, &some).await?;
                some.truncate(fitting(&sizes, COPY_BYTES.saturating_sub(part.taken.bytes())));
            }
            self.take_rows(connection, &[(edge.child, &some)], part).await?;
            if part.is_over() {
                return Ok(false);
            }
        }
    }

    /// Deletes rows on which nothing else hangs, in one statement.
    pub(super) async fn take_rows(
        &self,
        connection: &mut PgConnection,
        rows: &[(usize, &Doomed)],
        part: &mut Part,
    ) -> Result<()> {
        let tree = &self.compiled.tree;
        let gone = self.delete_rows(connection, tree, rows, &mut part.taken).await?;
        if gone == 0 {
            return Err(kept(&tree.nodes[rows[0].0]));
        }
        part.spend(gone);
        for (node, rows) in rows.iter().filter(|(node, _)| tree.nodes[*node].subjects_of.is_some()) {
            rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
            self.forget_along(connection, *node, rows, &part.deletions).await?;
            rows::as_role(connection, self.compiled.role.as_ref()).await?;
        }
        Ok(())
    }
}

/// How many of the first of these make up so many bytes; one at least.
fn fitting(sizes: &[u64], bytes: u64) -> usize {
    let mut sum = 0;
    let fits = |size: &&u64| {
        let before = sum;
        sum += **size;
        before < bytes
    };
    sizes.iter().take_while(fits).count().max(1)
}
