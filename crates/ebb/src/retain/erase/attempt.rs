//! One attempt at subjects: everything of them goes, from the bottom up, or nothing. Invariants: no row that stays refers
//! to one that goes when the server is told; what triggers write meanwhile goes too, or the attempt fails.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::PgConnection;
use uuid::Uuid;

use super::unlink::Unlinked;
use super::{Erase, Gone, Ready, kept, pseudonym, roots};
use crate::pg::Ident;
use crate::retain::graph::OnDelete;
use crate::retain::look;
use crate::retain::store;
use crate::retain::store::rows::{self, Doomed, Rows, Taken};
use crate::retain::tree::{Edge, EdgeAction, Node, Tree};
use crate::{Error, Result};

/// How often rows are taken that triggers wrote while others went: taking them may have triggers write again.
const WRITTEN: usize = 3;

impl Erase {
    /// One attempt under a savepoint: everything of these subjects goes, or nothing.
    pub(super) async fn attempt(&self, connection: &mut PgConnection, ready: &[Ready]) -> Result<Vec<Gone>> {
        let tree = &self.compiled.tree;
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let roots = roots(ready, tree.nodes[0].read.len());
        let doomed = look::collect(connection, tree, roots, true).await?;
        self.nobody_else(&doomed[0], ready)?;
        self.spares(connection, 0, &doomed[0]).await?;
        for edge in tree.edges.iter().filter(|edge| edge.action == EdgeAction::Delete) {
            self.spares_behind(connection, edge, &doomed[edge.parent]).await?;
        }
        let (mut taken, mut unlinked) = (self.nothing(), Unlinked::of(ready));
        self.remove(connection, tree, &doomed, (&mut taken, &mut unlinked)).await?;
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        // What triggers put off to the end happens before the look at what is left.
        tree.path.settle(connection).await?;
        self.nothing_left(connection, ready, &doomed).await?;
        let deletions: Vec<Uuid> = ready.iter().map(|ready| ready.candidate.id).collect();
        for (node, rows) in doomed.iter().enumerate() {
            self.forget_along(connection, node, rows, &deletions).await?;
        }
        let mut gone: Vec<Gone> = ready.iter().map(|_| Gone::default()).collect();
        for ((node, subject), rows) in &taken.counts {
            gone[*subject as usize].tables.insert(*node, *rows);
        }
        for ((node, subject), rows) in &unlinked.taken.counts {
            gone[*subject as usize].unlinked.insert(*node, *rows);
        }
        gone.iter_mut().for_each(|gone| gone.writers = unlinked.writers.clone());
        let roots: i64 = gone.iter().filter_map(|gone| gone.tables.get(&0)).sum();
        if roots != doomed[0].len() as i64 {
            return Err(Error::failed("a row of a subject is still there: a trigger keeps it"));
        }
        let ids: Vec<&str> = ready.iter().map(|ready| ready.candidate.subject_id.as_str()).collect();
        for (subject, cancelled) in store::forget_events(connection, &self.policy, &ids).await? {
            gone[subject as usize].cancelled = cancelled;
        }
        rows::end_savepoint(connection, true).await?;
        for row in taken.copied() {
            gone[row.subject as usize].copied.push(row);
        }
        Ok(gone)
    }

    /// Rows that went and are subjects of another policy are so no longer.
    pub(super) async fn forget_along(
        &self,
        connection: &mut PgConnection,
        node: usize,
        rows: &Doomed,
        deletions: &[Uuid],
    ) -> Result<()> {
        let node = &self.compiled.tree.nodes[node];
        let Some(policy) = node.subjects_of.as_deref().filter(|_| !rows.is_empty()) else { return Ok(()) };
        let ids: Vec<String> = (0..rows.len()).map(|at| rows::id_text(&rows.row(at)[..node.key.len()])).collect();
        let along = store::Along {
            policy,
            table: node.relation.label(),
            pseudonyms: ids.iter().map(|id| pseudonym(&self.key, policy, id)).collect(),
            deletions: rows.subjects.iter().map(|whose| deletions.get(*whose as usize).copied()).collect(),
            ids,
        };
        store::forget_along(connection, &self.policy, &along).await
    }

    /// Ends links and deletes, from the bottom up.
    pub(super) async fn remove(
        &self,
        connection: &mut PgConnection,
        tree: &Tree,
        doomed: &[Doomed],
        (taken, unlinked): (&mut Taken, &mut Unlinked),
    ) -> Result<()> {
        for group in tree.groups.iter().rev() {
            for node in group {
                for (at, edge) in tree.onto(*node).filter(|(at, _)| self.compiled.sets.contains_key(at)) {
                    if !doomed[*node].is_empty() {
                        // What goes in the same statement keeps its link, and is none of those that only lose it.
                        let along = group.contains(&edge.child) && tree.nodes[edge.child].inner;
                        let parents = (&doomed[*node], along.then(|| &doomed[edge.child]));
                        self.unlink(connection, (tree, at), parents, None, unlinked).await?;
                    }
                }
            }
            let inner: Vec<(usize, &Doomed)> = group
                .iter()
                .filter(|node| tree.nodes[**node].inner && !doomed[**node].is_empty())
                .map(|node| (*node, &doomed[*node]))
                .collect();
            if !inner.is_empty() {
                self.delete_rows(connection, tree, &inner, taken).await?;
                continue;
            }
            for node in group.iter().filter(|node| !tree.nodes[**node].inner) {
                for (_, edge) in tree.into(*node).filter(|(_, edge)| edge.action == EdgeAction::Delete) {
                    if !doomed[edge.parent].is_empty() {
                        rows::delete_through(connection, tree, edge, &doomed[edge.parent], None, taken).await?;
                    }
                }
            }
        }
        // What a link without a foreign key let in meanwhile.
        for edge in tree.edges.iter().filter(|edge| edge.key.is_none() && edge.action == EdgeAction::Delete) {
            let child = &tree.nodes[edge.child];
            if !child.inner {
                rows::delete_through(connection, tree, edge, &doomed[0], None, taken).await?;
            } else if tree.has_triggers() && edge.child != 0 && child.subjects_of.is_none() {
                self.take_written(connection, tree, (edge, &doomed[0], None), (&mut *taken, 0)).await?;
            }
        }
        Ok(())
    }

    /// Deletes rows of tables that refer to each other, once no row that stays refers to them: what the server would do about
    /// such a row by itself is not what somebody chose, and in no count.
    pub(super) async fn delete_rows(
        &self,
        connection: &mut PgConnection,
        tree: &Tree,
        nodes: &[(usize, &Doomed)],
        taken: &mut Taken,
    ) -> Result<i64> {
        self.delete_at(connection, tree, nodes, (taken, 0)).await
    }

    async fn delete_at(
        &self,
        connection: &mut PgConnection,
        tree: &Tree,
        nodes: &[(usize, &Doomed)],
        (taken, depth): (&mut Taken, usize),
    ) -> Result<i64> {
        let stays = |edge: &Edge| edge.action != EdgeAction::Delete || edge.kept.is_some();
        for (node, parents) in nodes {
            for (_, edge) in tree.onto(*node) {
                let along = nodes.iter().find(|(node, _)| *node == edge.child).map(|(_, rows)| *rows);
                let goes = edge.action == EdgeAction::Delete && edge.key.is_some() && !tree.is_quiet();
                let looked_at = goes || (edge.cascades() && (stays(edge) || (along.is_none() && !tree.is_quiet())));
                if !looked_at || !rows::still_linked(connection, tree, edge, parents, along).await? {
                    continue;
                }
                if goes {
                    self.take_written(connection, tree, (edge, parents, along), (&mut *taken, depth)).await?;
                }
                if edge.cascades() && rows::still_linked(connection, tree, edge, parents, along).await? {
                    let child = &tree.nodes[edge.child];
                    return Err(if stays(edge) { still_linked(edge, child) } else { kept(child) });
                }
            }
        }
        rows::delete_rows(connection, tree, nodes, taken).await
    }

    /// Takes rows that a trigger wrote while others went, with all that hangs on them; none of those that go along.
    fn take_written<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        tree: &'a Tree,
        (edge, parents, along): (&'a Edge, &'a Doomed, Option<&'a Doomed>),
        (taken, depth): (&'a mut Taken, usize),
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            let child = &tree.nodes[edge.child];
            for _ in 0..WRITTEN {
                self.spares_behind(connection, edge, parents).await?;
                if !child.inner {
                    if rows::delete_through(connection, tree, edge, parents, None, &mut *taken).await? == 0 {
                        break;
                    }
                    continue;
                }
                let rows = rows::collect(connection, tree, edge, parents, None, true).await?.without(along, child);
                if rows.is_empty() {
                    break;
                }
                // Subjects have records of their own, and what writes without end is not followed.
                if edge.child == 0 || child.subjects_of.is_some() || depth > tree.nodes.len() {
                    return Err(kept(child));
                }
                self.delete_at(connection, tree, &[(edge.child, &rows)], (&mut *taken, depth + 1)).await?;
            }
            Ok(())
        }
        .boxed()
    }

    /// Where triggers run for rows that go: none of them kept one, or put one back.
    async fn nothing_left(&self, connection: &mut PgConnection, ready: &[Ready], doomed: &[Doomed]) -> Result<()> {
        let tree = &self.compiled.tree;
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        if !tree.nodes[0].triggers.is_empty() {
            let ids = self.ids(ready.iter().map(|ready| ready.candidate.subject_id.as_str()))?;
            if !rows::existing(connection, &self.compiled.root, &ids).await?.is_empty() {
                return Err(kept(&tree.nodes[0]));
            }
        }
        for (at, node) in tree.nodes.iter().enumerate().filter(|(_, node)| !node.triggers.is_empty()) {
            for (_, edge) in tree.into(at).filter(|(_, edge)| edge.action == EdgeAction::Delete) {
                let found =
                    rows::count_distinct(connection, tree, &[(edge, &doomed[edge.parent])], Rows::Go, &[]).await?;
                if found > 0 {
                    return Err(kept(node));
                }
            }
        }
        rows::back_from_role(connection, self.compiled.role.as_ref()).await
    }
}

fn still_linked(edge: &Edge, node: &Node) -> Error {
    let columns: Vec<&str> = edge.child_columns.iter().map(Ident::as_str).collect();
    let by_itself = edge.on_delete.map_or("", OnDelete::words);
    Error::failed(format!(
        "rows of {} that stay would still refer to it by {}, and ON DELETE {by_itself} would reach them: `set` or a trigger \
         leaves the link as it is, or names a subject that goes too",
        node.relation.label(),
        columns.join(", ")
    ))
}
