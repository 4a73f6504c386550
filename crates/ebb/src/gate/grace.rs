//! Subjects in their grace whom another policy would take with its rows: neither their grace nor a warning would count. A sweep over the
//! table of subjects, or over one above or below it by inheritance, is refused unless the server proves from its `where` that it takes
//! nobody who is soft-deleted, which says nothing once another column has the name of the one that says who is. A partition that goes with
//! all its rows has no `where`.

use sqlx::PgConnection;

use super::Whole;
use super::conflict::Taken;
use crate::Result;
use crate::pg::{Ident, catalog, expression};
use crate::policy::anchor::{self, Moved};
use crate::policy::{Action, Expired, Policy, Retain, RetainForm};

/// A policy that would take subjects of another one before their time.
#[derive(Debug, Clone)]
pub(crate) struct Grace {
    pub(super) policy: String,
    pub(super) keeper: String,
    table: String,
    why: Why,
}

/// Why nothing says that it takes none.
#[derive(Debug, Clone)]
enum Why {
    /// It has not this `where`, with which it would take none.
    Where(String),
    /// It takes whole partitions, which have none.
    Whole,
    /// Its table, which that of the subjects is a child of, has no column that tells.
    Child { of: String },
    /// The columns that its `where` and the other policy name are not those that were meant.
    Moved(Moved),
}

impl std::fmt::Display for Grace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { keeper, table, why, .. } = self;
        write!(f, "rows of {table} may be soft-deleted subjects of policy {keeper}")?;
        match why {
            Why::Moved(moved) => write!(f, ": {moved}"),
            _ => f.write_str(", and would go unwarned and before their grace ends"),
        }
    }
}

impl Grace {
    pub(super) fn fix(&self) -> String {
        let Self { keeper, table, .. } = self;
        match &self.why {
            Why::Where(filter) => format!("leave those to policy {keeper}: where = {filter:?}"),
            Why::Whole => format!("take `keep` out of it, and let policy {keeper} erase each with all that is its own"),
            Why::Child { of } => format!(
                "no column of {of} tells who is soft-deleted, so that no `where` can leave those to policy {keeper}: take {table} out of it \
                 (ALTER TABLE … NO INHERIT …), or give other tables below it sweeps of their own"
            ),
            Why::Moved(_) => format!("in policy {keeper}, {}", Moved::FIX),
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

/// The policies over subjects, each with its table.
async fn subjects<'a>(connection: &mut PgConnection, among: &'a [Policy]) -> Result<Vec<(&'a Retain, Whole)>> {
    let subjects = among.iter().filter_map(|policy| match policy {
        Policy::Retain(retain) if retain.enabled && retain.subjects().is_some() => Some((retain, retain.table.clone())),
        _ => None,
    });
    super::whole(connection, subjects.collect()).await
}

/// Which of these policies would, each with the table that it takes rows of. Before there is a schema no column has moved.
pub(super) async fn takes_early(
    connection: &mut PgConnection,
    taking: &[Taken<'_>],
    among: &[Policy],
    installed: bool,
) -> Result<Vec<Grace>> {
    let subjects = subjects(connection, among).await?;
    let mut found = Vec::new();
    for taken in taking {
        let (policy, table) = (taken.policy, &taken.table);
        let Some(filter) = filter(policy) else { continue };
        for (keeper, root) in subjects.iter().filter(|(_, root)| taken.has_rows_of(root)) {
            let Some(deleted_at) = keeper.subjects().map(|subjects| subjects.deleted_at.as_str()) else { continue };
            let column = catalog::column(connection, &root.relation, root.oid, deleted_at).await;
            let column = column.map_or_else(|_| Ident::new(deleted_at), |column| column.name);
            let why = match filter {
                Filter::Whole => Why::Whole,
                Filter::Where(given) => {
                    let deleted = format!("{column} IS NOT NULL");
                    // Asked of the lower of the two, which has the columns of both.
                    let proven = match given {
                        Some(given) => expression::exclude(connection, &table.relation, (&deleted, given)).await?,
                        None => false,
                    };
                    let keeps = Policy::Retain((*keeper).clone());
                    let moved = if proven && installed { anchor::moved(connection, &keeps).await? } else { None };
                    match (proven, moved) {
                        (true, None) => continue,
                        (true, Some(moved)) => Why::Moved(moved),
                        (false, _) => without(connection, taken.parent(), &column, given).await,
                    }
                }
            };
            let (policy, keeper) = (policy.name().to_owned(), keeper.name.to_string());
            found.push(Grace { policy, keeper, table: table.relation.label(), why });
        }
    }
    Ok(found)
}

/// What would leave those alone whose column says that they are soft-deleted, besides what a policy says already.
async fn without(connection: &mut PgConnection, parent: Option<&Whole>, column: &Ident, given: Option<&str>) -> Why {
    if let Some(parent) = parent
        && catalog::column(connection, &parent.relation, parent.oid, column.as_str()).await.is_err()
    {
        return Why::Child { of: parent.relation.label() };
    }
    match given {
        None => Why::Where(format!("{column} IS NULL")),
        Some(given) => Why::Where(format!("({given}) AND {column} IS NULL")),
    }
}

/// The policies whose soft-deleted subjects these leave alone by their `where`.
pub(super) async fn left_alone(
    connection: &mut PgConnection,
    taking: &[Taken<'_>],
    among: &[Policy],
) -> Result<Vec<String>> {
    let mut subjects = subjects(connection, among).await?;
    let filters = |policy: &Policy| matches!(filter(policy), Some(Filter::Where(_)));
    subjects.retain(|(_, root)| taking.iter().any(|taken| taken.has_rows_of(root) && filters(taken.policy)));
    Ok(subjects.into_iter().map(|(keeper, _)| keeper.name.to_string()).collect())
}
