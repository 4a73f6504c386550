//! A rehearsal: every statement that erasing would send, over no subject at all, taken back at the end. What the server
//! would refuse (a right, a type without equality, row-level security) is refused before anything depends on it.

use std::collections::BTreeSet;

use sqlx::PgConnection;

use super::compile::Compiled;
use super::store::rows::{self, Doomed, Most, Taken};
use super::tree::EdgeAction;
use crate::Result;

pub(crate) async fn rehearse(connection: &mut PgConnection, compiled: &Compiled) -> Result<()> {
    rows::savepoint(connection).await?;
    compiled.tree.path.enter(connection).await?;
    rows::as_role(connection, compiled.role.as_ref()).await?;
    let played = play(connection, compiled).await;
    rows::end_savepoint(connection, false).await?;
    rows::back_from_role(connection, compiled.role.as_ref()).await?;
    match played {
        // Its role may get its grants later, from `ebb doctor`.
        Err(error) if compiled.role.is_some() && error.sqlstate().as_deref() == Some("42501") => Ok(()),
        played => played,
    }
}

async fn play(connection: &mut PgConnection, compiled: &Compiled) -> Result<()> {
    let (tree, root) = (&compiled.tree, &compiled.root);
    let nobody = Doomed::with(root.key.len());
    rows::lock_roots(connection, root, &tree.nodes[0].read, &nobody).await?;
    rows::blocked(connection, root, &nobody).await?;
    rows::soft_deleted(connection, root, false, None, 0).await?;
    let mut taken = if compiled.copies { Taken::copying(u64::MAX) } else { Taken::default() };
    let none: Vec<Doomed> = tree.nodes.iter().map(|node| Doomed::with(node.read.len())).collect();
    for (at, edge) in tree.edges.iter().enumerate() {
        let parents = &none[edge.parent];
        let along = tree.nodes[edge.child].inner.then_some(&none[edge.child]);
        if let Some(set) = compiled.sets.get(&at) {
            let left = set.unset.clone().unwrap_or_else(|| rows::not_written_by(&BTreeSet::new()));
            let again = edge.narrowed(&left);
            for (edge, limit) in [(edge, None), (&again, Some(0))] {
                let how = (limit, set.unset.is_none());
                rows::unlink(connection, tree, (edge, set), (parents, along), how, &mut taken).await?;
            }
        }
        if edge.action == EdgeAction::Delete {
            if tree.nodes[edge.child].inner {
                rows::collect(connection, tree, edge, parents, None, true).await?;
            } else {
                let some = Most { rows: 0, bytes: compiled.copies.then_some(0) };
                for limit in [None, Some(some)] {
                    rows::delete_through(connection, tree, edge, parents, limit, &mut taken).await?;
                }
            }
        }
    }
    for edge in tree.edges.iter().filter(|edge| edge.cascades()) {
        rows::still_linked(connection, tree, edge, &none[edge.parent], None).await?;
    }
    for (node, table) in tree.nodes.iter().enumerate().filter(|(_, table)| table.doomed && table.inner) {
        debug_assert!(!table.key.is_empty(), "a table without a key was refused");
        rows::delete_rows(connection, tree, &[(node, &none[node])], &mut taken).await?;
    }
    Ok(())
}
