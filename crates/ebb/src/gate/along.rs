//! What goes along with the rows that a sweep deletes, because a foreign key says ON DELETE CASCADE: the server takes it, uncounted,
//! and asks nobody. Invariant: nothing goes like that which a hold, a floor or a term of its own may keep, and a row below may be
//! younger than the one above whatever their terms are.

use sqlx::PgConnection;

use super::conflict::Taken;
use super::{Whole, store, whole};
use crate::Result;
use crate::policy::{Action, Policy, Retain, Term};

/// A policy whose deletions would take rows along that somebody keeps.
#[derive(Debug, Clone)]
pub(crate) struct Along {
    pub(super) policy: String,
    /// The table that it deletes from, and the one whose rows go along.
    table: String,
    along: String,
    /// Who keeps them, and how.
    pub(super) keeper: String,
    keeps: Keeps,
}

#[derive(Debug, Clone, Copy)]
enum Keeps {
    /// They belong to subjects, who may be on hold; those of the swept table itself.
    Subjects {
        own: bool,
    },
    Floor(Term),
    Term(Term),
}

impl std::fmt::Display for Along {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { table, along, keeper, .. } = self;
        match table == along {
            true => write!(f, "deleting rows of {table} takes other rows of it along by ON DELETE CASCADE: ")?,
            false => write!(f, "deleting rows of {table} takes rows of {along} along by ON DELETE CASCADE: ")?,
        }
        match self.keeps {
            Keeps::Subjects { .. } => {
                write!(
                    f,
                    "those belong to subjects of policy {keeper}, and neither a hold nor a floor of theirs would count"
                )
            }
            Keeps::Floor(floor) => write!(f, "policy {keeper} keeps those, and its floor {floor} would not hold"),
            Keeps::Term(term) => write!(f, "policy {keeper} keeps those for {term} by a time of their own"),
        }
    }
}

impl Along {
    /// What helps.
    pub(super) fn fix(&self) -> String {
        let Self { table, along, keeper, keeps, .. } = self;
        let between = match table == along {
            true => format!("let the foreign keys of {table} to itself restrict (ON DELETE NO ACTION)"),
            false => format!("let the foreign keys between {table} and {along} restrict (ON DELETE NO ACTION)"),
        };
        match keeps {
            Keeps::Subjects { own: true } => format!(
                "{between}; or soft-delete such rows, so that policy {keeper} erases each with all that is its own"
            ),
            Keeps::Subjects { own: false } => format!(
                "{between}, so that its rows go after the subjects; or make {table} a [[retain]] policy with deleted_at"
            ),
            Keeps::Floor(_) | Keeps::Term(_) => {
                format!("{between}, so that its rows go after those that policy {keeper} keeps")
            }
        }
    }
}

/// What these policies, each with a table that it takes rows of, would take along of subjects, where there are any yet, and of
/// rows that others of `among` keep.
pub(super) async fn takes_along(
    connection: &mut PgConnection,
    taking: &[Taken<'_>],
    among: &[Policy],
    installed: bool,
) -> Result<Vec<Along>> {
    let swept: Vec<&Taken> = taking.iter().filter(|taken| deletes_rows(taken.policy)).collect();
    let kept = among.iter().filter_map(kept_by_age).map(|kept| (kept, kept.table.clone()));
    let kept: Vec<(&Retain, Whole)> = whole(connection, kept.collect()).await?;
    let oids: Vec<u32> = swept.iter().map(|taken| taken.table.oid).collect();
    let cascades = store::cascades(connection, &oids).await?;
    let spills = if installed && !cascades.is_empty() { store::spills(connection, &oids).await? } else { Vec::new() };
    let subjects = among.iter().filter_map(kept_as_subjects).map(|kept| (kept.name.as_str(), kept.table.clone()));
    let subjects: Vec<(&str, Whole)> =
        if spills.is_empty() { Vec::new() } else { whole(connection, subjects.collect()).await? };
    let mut found = Vec::new();
    for Taken { policy, table, .. } in swept {
        let label = table.relation.label();
        let along = |along: &str, keeper: &str, keeps| Along {
            policy: policy.name().to_owned(),
            table: label.clone(),
            along: along.to_owned(),
            keeper: keeper.to_owned(),
            keeps,
        };
        let of_subjects = spills.iter().filter(|(top, ..)| *top == table.oid);
        let own = |keeper: &str| subjects.iter().any(|(name, root)| *name == keeper && root.oid == table.oid);
        found.extend(
            of_subjects.map(|(_, relation, keeper)| along(relation, keeper, Keeps::Subjects { own: own(keeper) })),
        );
        for (keeper, of) in kept.iter().filter(|(_, of)| cascades.contains(&(table.oid, of.oid))) {
            let keeps = keeper.floor.map_or_else(|| Keeps::Term(keeper.retention()), Keeps::Floor);
            found.push(along(&of.relation.label(), keeper.name.as_str(), keeps));
        }
    }
    Ok(found)
}

/// A policy that keeps rows until a time of their own.
fn kept_by_age(policy: &Policy) -> Option<&Retain> {
    match policy {
        Policy::Retain(retain) if retain.enabled && retain.subjects().is_none() => Some(retain),
        _ => None,
    }
}

fn kept_as_subjects(policy: &Policy) -> Option<&Retain> {
    match policy {
        Policy::Retain(retain) if retain.subjects().is_some() => Some(retain),
        _ => None,
    }
}

/// Whether a policy deletes rows one by one. A partition goes as a whole, and the server lets none go that rows of others refer to;
/// who erases subjects relies on no CASCADE.
fn deletes_rows(policy: &Policy) -> bool {
    match policy {
        Policy::Expire(expire) => expire.action == Action::Delete,
        Policy::Retain(retain) => retain.subjects().is_none(),
        _ => false,
    }
}
