//! Subjects in their grace whom another policy would take with its rows: neither their grace nor a warning would count. A sweep over the
//! table of subjects, or over one above or below it by inheritance, is refused unless the server proves from its `where` that it takes nobody who is soft-deleted. A partition that
//! goes with all its rows has no `where`.

use sqlx::PgConnection;

use super::Whole;
use super::conflict::Taken;
use crate::Result;
use crate::pg::{Ident, catalog, expression};
use crate::policy::{Action, Expired, Policy, Retain, RetainForm};

/// A policy that would take subjects of another one before their time.
#[derive(Debug, Clone)]
pub(crate) struct Grace {
    pub(super) policy: String,
    pub(super) keeper: String,
    table: String,
    apart: Apart,
}

/// How it would take none.
#[derive(Debug, Clone)]
enum Apart {
    /// With this `where`.
    Where(String),
    /// It takes whole partitions, which have none.
    Whole,
    /// Its table, which that of the subjects is a child of, has no column that tells.
    Child { of: String },
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
        let Self { keeper, table, .. } = self;
        match &self.apart {
            Apart::Where(filter) => format!("leave those to policy {keeper}: where = {filter:?}"),
            Apart::Whole => {
                format!("take `keep` out of it, and let policy {keeper} erase each with all that is its own")
            }
            Apart::Child { of } => format!(
                "no column of {of} tells who is soft-deleted, so that no `where` can leave those to policy {keeper}: take {table} out of it \
                 (ALTER TABLE … NO INHERIT …), or give other tables below it sweeps of their own"
            ),
        }
    }
}

/// A policy that takes rows: what it looks at besides their time.
#[derive(Clone, Copy)]
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

/// Which of these policies would, each with a table that it takes rows of.
pub(super) async fn takes_early(
    connection: &mut PgConnection,
    taking: &[Taken<'_>],
    among: &[Policy],
) -> Result<Vec<Grace>> {
    let subjects = among.iter().filter_map(|policy| match policy {
        Policy::Retain(retain) if retain.enabled && retain.subjects().is_some() => Some((retain, retain.table.clone())),
        _ => None,
    });
    let subjects: Vec<(&Retain, Whole)> = super::whole(connection, subjects.collect()).await?;
    let mut found = Vec::new();
    for Taken { policy, table, named, above } in taking {
        let Some(filter) = filter(policy) else { continue };
        let is_named = table.oid == named.oid;
        let theirs = |root: &Whole| root.oid == table.oid || (is_named && above.contains(&root.oid));
        for (keeper, root) in subjects.iter().filter(|(_, root)| theirs(root)) {
            let Some(deleted_at) = keeper.subjects().map(|subjects| subjects.deleted_at.as_str()) else { continue };
            let column = catalog::column(connection, &root.relation, root.oid, deleted_at).await;
            let column = column.map_or_else(|_| Ident::new(deleted_at), |column| column.name);
            // Asked of the lower of the two, which has the columns of both.
            if let Filter::Where(Some(filter)) = filter
                && expression::exclude(connection, &table.relation, (&format!("{column} IS NOT NULL"), filter)).await?
            {
                continue;
            }
            let apart = match filter {
                Filter::Whole => Apart::Whole,
                _ if !is_named
                    && catalog::column(connection, &named.relation, named.oid, column.as_str()).await.is_err() =>
                {
                    Apart::Child { of: named.relation.label() }
                }
                Filter::Where(None) => Apart::Where(format!("{column} IS NULL")),
                Filter::Where(Some(filter)) => Apart::Where(format!("({filter}) AND {column} IS NULL")),
            };
            let (policy, keeper) = (policy.name().to_owned(), keeper.name.to_string());
            found.push(Grace { policy, keeper, table: table.relation.label(), apart });
        }
    }
    Ok(found)
}
