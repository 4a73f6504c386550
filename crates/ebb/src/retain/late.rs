//! What comes late: a transaction that was under way while a subject was erased may have added rows under a link that no
//! foreign key guards. Once every such transaction has ended, those links are looked at again. Invariants: rows of
//! transactions that began after the erasure stay, because they are about somebody's new life; the values of links are
//! readable for whoever has the subject key, and are forgotten with the look.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::compile::Compiled;
use super::store::late::LateLink;
use super::store::rows::{self, Doomed};
use super::tree::{Edge, EdgeAction, Tree};
use crate::audit::{ClosingKey, SubjectKey};
use crate::{Error, Result};

const PURPOSE: &str = "late links";

/// Links without a foreign key behind which rows go or change.
pub(crate) fn links(tree: &Tree) -> impl Iterator<Item = &Edge> {
    tree.edges.iter().filter(|edge| edge.key.is_none() && edge.action != EdgeAction::Keep)
}

/// The values of a subject's links, closed; none where it has none.
pub(crate) fn close(key: &SubjectKey, policy: &str, tree: &Tree, root: &[Option<String>]) -> Result<Option<Vec<u8>>> {
    let mut values = BTreeMap::new();
    for (column, value) in tree.nodes[0].read.iter().zip(root) {
        let linked = links(tree).any(|edge| edge.parent_columns.contains(&column.name));
        if let Some(value) = value.as_ref().filter(|_| linked) {
            values.insert(column.name.as_str().to_owned(), value.as_str());
        }
    }
    if values.is_empty() {
        return Ok(None);
    }
    let text = serde_json::to_vec(&values).map_err(|error| Error::failed(error.to_string()))?;
    closing(key).close(&text, policy).map(Some)
}

/// What was closed, as rows of the root that have these columns and no others; a link that does not open is left out.
pub(crate) fn open(key: &SubjectKey, policy: &str, tree: &Tree, late: &[LateLink]) -> (Doomed, Vec<i64>) {
    let key = closing(key);
    let read = &tree.nodes[0].read;
    let (mut roots, mut opened) = (Doomed::with(read.len()), Vec::new());
    for link in late {
        let text = key.open(&link.sealed, policy);
        let values = text.and_then(|text| serde_json::from_slice::<BTreeMap<String, String>>(&text).ok());
        let Some(mut values) = values else {
            tracing::warn!(policy, deletion = %link.deletion, "The links of an erased subject do not open with this subject key");
            continue;
        };
        let row = read.iter().map(|column| values.remove(column.name.as_str())).collect();
        roots.push(row, opened.len() as i32);
        opened.push(link.id);
    }
    (roots, opened)
}

/// The tree of a look at what came late: behind links, rows of transactions before the horizon. Subjects are no part of it:
/// nobody goes without a deletion of their own.
pub(crate) fn narrowed(tree: &Tree, horizon: i64) -> Tree {
    let mut tree = tree.clone();
    tree.nodes[0].inner = false;
    for edge in tree.edges.iter_mut().filter(|edge| edge.child == 0 && edge.action == EdgeAction::Delete) {
        edge.action = EdgeAction::Keep;
    }
    for edge in tree.edges.iter_mut().filter(|edge| edge.key.is_none()) {
        edge.only = Some(rows::begun_before(horizon));
    }
    tree
}

/// Positions of subjects whose link's value somebody has, under the same key or another: the rows may be theirs.
pub(crate) async fn taken_over(connection: &mut PgConnection, compiled: &Compiled, roots: &Doomed) -> Result<Vec<i32>> {
    let (mut shared, nobody) = (Vec::new(), Doomed::with(roots.columns.len()));
    for edge in links(&compiled.tree) {
        let others = rows::sharing(connection, &compiled.tree, &compiled.root, edge, (roots, &nobody)).await?;
        shared.extend(others.into_iter().map(|(at, _)| at));
    }
    Ok(shared)
}

fn closing(key: &SubjectKey) -> ClosingKey {
    key.closing(PURPOSE)
}
