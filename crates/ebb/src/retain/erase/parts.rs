//! Subjects too large for one transaction: claimed, from then on not to be restored, and taken in bounded parts, deepest
//! rows first, together with whoever goes along with them. Invariants: a part takes or changes no more rows than one
//! transaction may; what it took is counted with the deletion, so that a process that dies leaves the rest, and nothing
//! else, to whoever runs next.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Erase, LARGE, Ready, kept, roots};
use crate::Result;
use crate::retain::compile::Set;
use crate::retain::snapshot::Gone;
use crate::retain::store;
use crate::retain::store::rows::{self, Doomed, Taken};
use crate::retain::tree::{Edge, EdgeAction, Tree};
use crate::spine::batch::Batch;

/// What one part may still take, and what it took.
struct Part {
    budget: u64,
    /// Whose part it is, by position.
    deletions: Vec<Uuid>,
    taken: Taken,
    unlinked: Taken,
}

impl Part {
    fn spend(&mut self, rows: i64) {
        self.budget = self.budget.saturating_sub(rows.unsigned_abs());
    }
}

impl Erase {
    /// A part of a subject that is too large for one transaction, or its end.
    pub(super) async fn part(&mut self, batch: &mut Batch) -> Result<u64> {
        let Some(candidate) = store::claimed(batch.connection(), &self.policy, self.progress.after_large).await? else {
            self.progress.large_done = true;
            return Ok(0);
        };
        let id = candidate.id;
        let ready = self.lock(batch, vec![candidate]).await?;
        let group = self.together(batch, ready).await?;
        if !group.iter().any(|ready| ready.candidate.id == id) {
            self.progress.after_large = Some(id);
            return Ok(0);
        }
        if group.iter().any(|ready| !ready.look.is_claimed()) {
            self.claim_all(batch, &group).await?;
            return Ok(0);
        }
        let connection = batch.connection();
        let mut part = Part {
            budget: LARGE,
            deletions: group.iter().map(|ready| ready.candidate.id).collect(),
            taken: Taken::copying(self.copier.is_some()),
            unlinked: Taken::default(),
        };
        for ready in &group {
            let id = &ready.candidate.subject_id;
            let forgotten = store::forget_some_events(connection, &self.policy, id, part.budget).await?;
            part.spend(forgotten as i64);
            if part.budget == 0 {
                return Ok(0);
            }
        }
        rows::savepoint(connection).await?;
        let top = roots(&group, self.compiled.tree.nodes[0].read.len());
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        match self.descend(connection, 0, &top, &mut part, 0).await {
            Ok(emptied) => {
                rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
                rows::end_savepoint(connection, true).await?;
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
            Err(error) if error.is_unavailable() || error.sqlstate().as_deref() == Some("57014") => Err(error),
            Err(error) => {
                rows::end_savepoint(connection, false).await?;
                self.note_trouble(connection, &group, &error).await?;
                self.progress.after_large = Some(id);
                Ok(0)
            }
        }
    }

    /// Counts what a part took and changed with the deletions that it was for. Returns how many rows went.
    async fn count_part(&self, connection: &mut PgConnection, group: &[Ready], mut part: Part) -> Result<u64> {
        let by_table = |taken: &Taken, subject: usize| -> Map<String, Value> {
            let of_subject = taken.counts.iter().filter(|((_, whose), _)| *whose as usize == subject);
            of_subject.map(|((node, _), rows)| (self.names[*node].clone(), (*rows).into())).collect()
        };
        let mut copied = part.taken.copied().into_iter().fold(vec![Vec::new(); group.len()], |mut all, row| {
            all[row.subject as usize].push(row);
            all
        });
        let mut gone = Vec::new();
        for (at, ready) in group.iter().enumerate() {
            let (taken, unlinked) = (by_table(&part.taken, at), by_table(&part.unlinked, at));
            let deletion = ready.candidate.id;
            if !taken.is_empty() || !unlinked.is_empty() {
                store::add_rows(connection, deletion, &taken.into(), &unlinked.into()).await?;
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
        for look in store::recheck(connection, &ids, &vec![None; ids.len()], &vec![None; ids.len()]).await? {
            if let Some(ready) = group.iter_mut().find(|ready| ready.candidate.id == look.id) {
                (ready.look.parts, ready.look.unlinked) = (look.parts, look.unlinked);
            }
        }
        Ok(group)
    }

    /// Empties what refers to some rows of a node, within the budget. Tables in a circle are left to the end, which
    /// takes them together. Whether nothing is left there.
    fn descend<'a>(
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
            for (at, edge) in tree.onto(node).filter(|(_, edge)| edge.child != node) {
                if let Some(set) = self.compiled.sets.get(&at) {
                    self.unlink_part(connection, (edge, set), rows, part, depth).await?;
                }
                if part.budget == 0 {
                    return Ok(false);
                }
                if edge.action != EdgeAction::Delete || in_circle(tree, edge.child) {
                    continue;
                }
                self.spares_behind(connection, edge, rows).await?;
                let emptied = match tree.nodes[edge.child].inner {
                    false => self.take_through(connection, edge, rows, part).await?,
                    true => self.take_inner(connection, edge, rows, part, depth).await?,
                };
                if !emptied {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        .boxed()
    }

    /// Ends links behind an edge, within the budget where it can be told which are left. What belongs to rows that go now has
    /// to be unlinked before them in any case.
    async fn unlink_part(
        &self,
        connection: &mut PgConnection,
        (edge, set): (&Edge, &Set),
        rows: &Doomed,
        part: &mut Part,
        depth: usize,
    ) -> Result<()> {
        if set.unset.is_none() {
            if depth > 0 {
                let changed = self.unlink(connection, (edge, set), rows, (true, None), &mut part.unlinked).await?;
                part.spend(changed);
            }
            return Ok(());
        }
        loop {
            let limit = Some(part.budget);
            let changed = self.unlink(connection, (edge, set), rows, (true, limit), &mut part.unlinked).await?;
            part.spend(changed);
            if part.budget == 0 || edge.distinct || changed == 0 {
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
            let (tree, limit) = (&self.compiled.tree, Some(part.budget));
            let gone = rows::delete_through(connection, tree, edge, rows, limit, &mut part.taken).await?;
            part.spend(gone);
            if part.budget == 0 {
                return Ok(false);
            }
            if edge.distinct || gone == 0 {
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
            some.truncate(part.budget as usize);
            let gone = rows::delete_rows(connection, tree, &[(edge.child, &some)], &mut part.taken).await?;
            if gone == 0 {
                return Err(kept(&tree.nodes[edge.child]));
            }
            if tree.nodes[edge.child].subjects_of.is_some() {
                rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
                self.forget_along(connection, edge.child, &some, &part.deletions).await?;
                rows::as_role(connection, self.compiled.role.as_ref()).await?;
            }
            part.spend(gone);
            if part.budget == 0 {
                return Ok(false);
            }
        }
    }
}

/// Whether a table is one of several that refer to each other, or refers to itself.
fn in_circle(tree: &Tree, node: usize) -> bool {
    let deletes = |edge: &Edge| edge.child == node && edge.parent == node && edge.action == EdgeAction::Delete;
    tree.order.iter().any(|component| component.len() > 1 && component.contains(&node))
        || tree.edges.iter().any(deletes)
}
