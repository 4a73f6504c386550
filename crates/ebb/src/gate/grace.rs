//! Subjects in their grace whom another policy would take with its rows: neither their grace nor a warning would count. A sweep over the
//! table of subjects is refused unless the server proves from its `where` that it takes nobody who is soft-deleted. A partition that
//! goes with all its rows has no `where`.

use sqlx::PgConnection;

use super::Whole;
use crate::Result;
use crate::pg::{Ident, catalog, expression};
use crate::policy::{Action, Expired, Policy, Retain, RetainForm};

/// A policy that would take subjects of another one before their time.
#[derive(Debug, Clone)]
pub(crate) struct Grace {
    pub(super) policy: String,
    pub(super) keeper: String,
    table: String,
    /// The `where` with which it would take none; none where it cannot have one.
    apart: Option<String>,
}

impl std::fmt::Display for Grace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { keeper, table, .. } = self;
        write!(
            f,
            "rows of {table} may be soft-deleted subjects of policy {keeper}, and would go unwarned and before their grace ends"
        )
    }
}

impl Grace {
    pub(super) fn fix(&self) -> String {
        let Self { keeper, .. } = self;
        match &self.apart {
            Some(filter) => format!("leave those to policy {keeper}: where = {filter:?}"),
            None => format!("take `keep` out of it, and let policy {keeper} erase each with all that is its own"),
        }
    }
}

/// A policy that takes rows: what it looks at besides their time.
enum Filter<'a> {
    Where(Option<&'a str>),
    /// It takes all of them.
    Whole,
}

fn filter(policy: &Policy) -> Option<Filter<'_>> {
    match policy {
        Policy::Expire(expire) if expire.action == Action::Delete => Some(Filter::Where(expire.filter.as_deref())),
        Policy::Retain(retain) => match &retain.form {
            RetainForm::Direct(direct) => Some(Filter::Where(direct.filter.as_deref())),
            RetainForm::Subjects(_) => None,
        },
        Policy::Partition(partition) if partition.keep.is_some() && partition.expired != Expired::Detach(None) => {
            Some(Filter::Whole)
        }
        _ => None,
    }
}

/// Which of these policies would, each with the table that it takes rows of.
pub(super) async fn takes_early(
    connection: &mut PgConnection,
    taking: &[(&Policy, Whole)],
    among: &[Policy],
) -> Result<Vec<Grace>> {
    let subjects = among.iter().filter_map(|policy| match policy {
        Policy::Retain(retain) if retain.enabled && retain.subjects().is_some() => Some((retain, retain.table.clone())),
        _ => None,
    });
    let subjects: Vec<(&Retain, Whole)> = super::whole(connection, subjects.collect()).await?;
    let mut found = Vec::new();
    for (policy, table) in taking {
        let Some(filter) = filter(policy) else { continue };
        for (keeper, root) in subjects.iter().filter(|(_, root)| root.oid == table.oid) {
            let Some(deleted_at) = keeper.subjects().map(|subjects| subjects.deleted_at.as_str()) else { continue };
            let column = catalog::column(connection, &root.relation, root.oid, deleted_at).await;
            let column = column.map_or_else(|_| Ident::new(deleted_at), |column| column.name);
            let apart = match filter {
                Filter::Whole => None,
                Filter::Where(None) => Some(format!("{column} IS NULL")),
                Filter::Where(Some(filter)) => {
                    let deleted = format!("{column} IS NOT NULL");
                    if expression::exclude(connection, &root.relation, (&deleted, filter)).await? {
                        continue;
                    }
                    Some(format!("({filter}) AND {column} IS NULL"))
                }
            };
            let (policy, keeper) = (policy.name().to_owned(), keeper.name.to_string());
            found.push(Grace { policy, keeper, table: root.relation.label(), apart });
        }
    }
    Ok(found)
}
