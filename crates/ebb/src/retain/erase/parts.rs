//! Subjects too large for one transaction: claimed, from then on not to be restored, and taken in bounded parts, deepest
//! rows first. A process that dies leaves the rest to whoever runs next.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Map;
use sqlx::PgConnection;

use super::{ATTEMPTS, Erase, LARGE, Ready};
use crate::Result;
use crate::retain::snapshot::Gone;
use crate::retain::store;
use crate::retain::store::rows::{self, Doomed, Taken};
use crate::retain::tree::EdgeAction;
use crate::spine::batch::Batch;

impl Erase {
    /// A part of a subject that is too large for one transaction, or its end.
    pub(super) async fn part(&mut self, batch: &mut Batch) -> Result<u64> {
        let Some(candidate) = store::claimed(batch.connection(), &self.policy, self.progress.after_large).await? else {
            self.progress.large_done = true;
            return Ok(0);
        };
        let connection = batch.connection();
        let ids = self.ids([candidate.subject_id.as_str()].into_iter())?;
        let (root, tree) = (&self.compiled.root, &self.compiled.tree);
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let locked = rows::lock_roots(connection, root, &tree.nodes[0].read, &ids).await?;
        let Some(row) = locked.into_iter().next() else {
            let there = !rows::existing(connection, root, &ids).await?.is_empty();
            rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
            if there {
                self.progress.skipped += 1;
                self.progress.after_large = Some(candidate.id);
            } else {
                self.record_gone(batch, vec![candidate]).await?;
            }
            return Ok(0);
        };
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        if let Some(reason) = self.taken_over(connection, &row).await? {
            store::note_waiting(connection, &[candidate.id], &[Some(reason)], &[None]).await?;
            self.progress.after_large = Some(candidate.id);
            return Ok(0);
        }
        let connection = batch.connection();
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        if row.deleted_at.is_none() {
            // Claimed is claimed: whoever took the soft delete back sees half a subject otherwise.
            rows::hide(connection, root, &ids).await?;
        }
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        if store::forget_some_events(connection, &self.policy, &candidate.subject_id, LARGE).await? >= LARGE {
            return Ok(0);
        }
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let mut top = Doomed::with(tree.nodes[0].read.len());
        top.push(row.values.clone(), 0);
        rows::savepoint(connection).await?;
        match self.take_part(connection, &top).await {
            Ok((mut taken, whole)) => {
                rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
                rows::end_savepoint(connection, true).await?;
                let rows: i64 = taken.counts.values().sum();
                let mut parts = Map::new();
                for ((node, _), rows) in &taken.counts {
                    parts.insert(tree.nodes[*node].relation.label(), (*rows).into());
                }
                store::add_rows(connection, candidate.id, rows, &parts.into()).await?;
                if let Some(copier) = self.copier.as_ref().filter(|_| rows > 0) {
                    let rows = self.named(taken.copied());
                    let gone = Gone { deletion: candidate.id, rows, continues: true, last: false };
                    copier.keep(connection, vec![gone]).await?;
                }
                if whole {
                    // Nothing is left below: the rest is small, and ends like any other subject.
                    let (id, now) = (candidate.id, row.deleted_at);
                    let look = store::recheck(connection, &[id], &[now], std::slice::from_ref(&row.tenant)).await?;
                    let Some(look) = look.into_iter().next() else { return Ok(0) };
                    let ready = self.together(batch, vec![Ready { candidate, look, row }]).await?;
                    let before = self.progress.subjects;
                    let rest = self.erase(batch, ready).await?;
                    if self.progress.subjects == before {
                        self.progress.after_large = Some(id);
                    }
                    return Ok(rows.unsigned_abs() + rest);
                }
                Ok(rows.unsigned_abs())
            }
            Err(error) if error.is_unavailable() || error.sqlstate().as_deref() == Some("57014") => Err(error),
            Err(error) => {
                rows::end_savepoint(connection, false).await?;
                rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
                if error.is_refused() {
                    let reason = Some(error.to_string());
                    store::note_waiting(connection, &[candidate.id], &[reason], &[None]).await?;
                } else {
                    store::note_failure(connection, candidate.id, &error.to_string(), ATTEMPTS).await?;
                }
                self.progress.skipped += 1;
                self.progress.after_large = Some(candidate.id);
                Ok(0)
            }
        }
    }

    /// Deletes at most a bounded number of rows below a subject, deepest first. Whether nothing is left there.
    async fn take_part(&self, connection: &mut PgConnection, top: &Doomed) -> Result<(Taken, bool)> {
        let mut taken = Taken::copying(self.copier.is_some());
        let mut budget = LARGE;
        let whole = self.descend(connection, 0, top, &mut budget, &mut taken, 0).await?;
        Ok((taken, whole))
    }

    /// Empties what refers to some rows of a node, within the budget. Tables in a circle are left to the end, which
    /// takes them together.
    fn descend<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        node: usize,
        rows: &'a Doomed,
        budget: &'a mut u64,
        taken: &'a mut Taken,
        depth: usize,
    ) -> BoxFuture<'a, Result<bool>> {
        async move {
            let tree = &self.compiled.tree;
            let circle = |node: usize| {
                tree.order.iter().any(|component| component.len() > 1 && component.contains(&node))
                    || tree
                        .edges
                        .iter()
                        .any(|edge| edge.child == node && edge.parent == node && edge.action == EdgeAction::Delete)
            };
            debug_assert!(depth <= tree.nodes.len(), "what has no circle has no longer path");
            for (at, edge) in tree.onto(node).filter(|(_, edge)| edge.child != node) {
                if self.compiled.sets.contains_key(&at) && depth > 0 {
                    self.unlink(connection, tree, (at, edge), rows, &mut Taken::default()).await?;
                }
                if edge.action != EdgeAction::Delete || circle(edge.child) {
                    continue;
                }
                self.spares_behind(connection, edge, rows).await?;
                if !tree.nodes[edge.child].inner {
                    let gone = rows::delete_through(connection, tree, edge, rows, Some(*budget), taken).await?;
                    *budget = budget.saturating_sub(gone.unsigned_abs());
                } else {
                    let some = rows::collect(connection, tree, edge, rows, Some(*budget), true).await?;
                    if !some.is_empty() {
                        if !self.descend(connection, edge.child, &some, budget, taken, depth + 1).await? {
                            return Ok(false);
                        }
                        let gone = rows::delete_rows(connection, tree, &[(edge.child, &some)], taken).await?;
                        *budget = budget.saturating_sub(gone.unsigned_abs());
                    }
                }
                if *budget == 0 {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        .boxed()
    }
}
