//! What a role needs of the tables of a tree, for whoever grants it: the same statements that erasing, marking and warning
//! send, table by table.

use sqlx::PgConnection;

use super::compile;
use super::tree::EdgeAction;
use crate::Result;
use crate::pg::{Ident, Relation};
use crate::policy::Retain;

/// Rights on one table, besides SELECT.
#[derive(Debug, Clone)]
pub(crate) struct Need {
    pub(crate) table: Relation,
    pub(crate) delete: bool,
    /// A column by which its rows can be locked.
    pub(crate) lock: Option<Ident>,
    pub(crate) update: Vec<Ident>,
}

/// Of every table of a policy's tree; none for retention by age.
pub(crate) async fn needs(connection: &mut PgConnection, policy: &Retain) -> Result<Vec<Need>> {
    let Some(subjects) = policy.subjects() else { return Ok(Vec::new()) };
    let (_, tree) = compile::tree(connection, policy, subjects).await?;
    let mut needs: Vec<Need> = tree
        .nodes
        .iter()
        .map(|node| Need {
            table: node.relation.clone(),
            delete: node.doomed,
            lock: node.key.first().filter(|_| node.inner).map(|column| column.name.clone()),
            update: Vec::new(),
        })
        .collect();
    let mirrored = compile::mirror_columns(subjects).into_iter().map(|(column, _)| Ident::new(column));
    needs[0].lock = Some(Ident::new(&subjects.deleted_at));
    needs[0].update.extend(mirrored.chain([Ident::new(&subjects.deleted_at)]));
    for edge in &tree.edges {
        let update = &mut needs[edge.child].update;
        match &edge.action {
            EdgeAction::Nullify(columns) => update.extend(columns.iter().cloned()),
            EdgeAction::Anonymize(changes) => update.extend(changes.iter().map(|(column, _)| Ident::new(column))),
            EdgeAction::Delete | EdgeAction::Keep => {
                update.extend(edge.kept.iter().flat_map(|kept| kept.columns.iter().cloned()));
            }
        }
    }
    for need in &mut needs {
        need.update.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        need.update.dedup();
    }
    Ok(needs)
}
