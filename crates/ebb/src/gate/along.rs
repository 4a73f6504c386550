//! What goes along with the rows that a sweep deletes, because a foreign key says ON DELETE CASCADE: the server takes it, uncounted,
//! and asks nobody. Invariant: nothing goes like that which a hold, a floor or a longer term of its own may keep; such a sweep
//! is refused by name, when it is stored and before each run.

use sqlx::PgConnection;

use super::{Whole, store, taken_from, whole};
use crate::policy::{self, Action, Policy, Retain, RetainForm, Stored, Term};
use crate::{Error, Result};

/// A policy whose deletions would take rows along that somebody keeps.
#[derive(Debug, Clone)]
pub(crate) struct Along {
    pub(crate) policy: String,
    /// The table that it deletes from, and the one whose rows go along.
    table: String,
    along: String,
    /// Who keeps them, and how.
    keeper: String,
    keeps: Keeps,
}

#[derive(Debug, Clone, Copy)]
enum Keeps {
    /// They belong to subjects, who may be on hold.
    Subjects,
    Floor(Term),
    Longer(Term),
}

impl std::fmt::Display for Along {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { table, along, keeper, .. } = self;
        match table == along {
            true => write!(f, "deleting rows of {table} takes other rows of it along by ON DELETE CASCADE: ")?,
            false => write!(f, "deleting rows of {table} takes rows of {along} along by ON DELETE CASCADE: ")?,
        }
        match self.keeps {
            Keeps::Subjects => {
                write!(
                    f,
                    "those belong to subjects of policy {keeper}, and neither a hold nor a floor of theirs would count"
                )
            }
            Keeps::Floor(floor) => write!(f, "policy {keeper} keeps those, and its floor {floor} would not hold"),
            Keeps::Longer(term) => write!(f, "policy {keeper} keeps those for {term} by a time of their own"),
        }
    }
}

impl Along {
    /// What helps.
    pub(crate) fn fix(&self) -> String {
        let Self { table, along, keeper, keeps, .. } = self;
        let between = match table == along {
            true => format!("let the foreign keys of {table} to itself restrict (ON DELETE NO ACTION)"),
            false => format!("let the foreign keys between {table} and {along} restrict (ON DELETE NO ACTION)"),
        };
        match keeps {
            Keeps::Subjects => format!(
                "{between}, so that its rows go after the subjects; or make {table} a [[retain]] policy with deleted_at"
            ),
            Keeps::Floor(_) => format!("{between}, so that its rows go after those that policy {keeper} keeps"),
            Keeps::Longer(term) => format!(
                "{between}, so that its rows go after those that policy {keeper} keeps; or keep rows of {table} for {term} as well"
            ),
        }
    }

    fn into_error(self) -> Error {
        let fix = self.fix();
        Error::config(self.to_string()).with_hint(fix)
    }
}

/// Refuses policies whose deletions would take rows along that somebody keeps.
pub(crate) async fn none_takes_along(connection: &mut PgConnection, stored: &[Stored]) -> Result<()> {
    let enabled = stored.iter().filter(|stored| stored.enabled);
    let policies: Vec<Policy> = enabled.filter_map(|stored| stored.policy().ok()).collect();
    let found = takes_along(connection, &policies, &policies, true).await?;
    found.into_iter().next().map_or(Ok(()), |along| Err(along.into_error()))
}

/// The same for one that is about to delete rows of its table: a key or a policy may have come since.
pub(crate) async fn takes_nothing_along(connection: &mut PgConnection, stored: &Stored, table: u32) -> Result<()> {
    if store::cascades(connection, &[table]).await?.is_empty() {
        return Ok(());
    }
    let all = policy::store::all(connection).await?;
    let enabled: Vec<Policy> =
        all.iter().filter(|other| other.enabled).filter_map(|other| other.policy().ok()).collect();
    let own: Vec<Policy> = stored.policy().ok().into_iter().collect();
    let found = takes_along(connection, &own, &enabled, true).await?;
    found.into_iter().next().map_or(Ok(()), |along| Err(along.into_error()))
}

/// What these policies would take along of subjects, where there are any yet, and of rows that others of `among` keep.
pub(crate) async fn takes_along(
    connection: &mut PgConnection,
    policies: &[Policy],
    among: &[Policy],
    installed: bool,
) -> Result<Vec<Along>> {
    let one_by_one = policies.iter().filter(|policy| policy.enabled() && shortest(policy).is_some());
    let swept = one_by_one.filter_map(|policy| Some((policy, taken_from(policy)?)));
    let swept: Vec<(&Policy, Whole)> = whole(connection, swept.collect()).await?;
    let kept = among.iter().filter_map(kept_by_age).map(|kept| (kept, kept.table.clone()));
    let kept: Vec<(&Retain, Whole)> = whole(connection, kept.collect()).await?;
    let oids: Vec<u32> = swept.iter().map(|(_, table)| table.oid).collect();
    let cascades = store::cascades(connection, &oids).await?;
    let spills = if installed && !cascades.is_empty() { store::spills(connection, &oids).await? } else { Vec::new() };
    let mut found = Vec::new();
    for (policy, table) in &swept {
        let label = table.relation.label();
        let along = |along: &str, keeper: &str, keeps| Along {
            policy: policy.name().to_owned(),
            table: label.clone(),
            along: along.to_owned(),
            keeper: keeper.to_owned(),
            keeps,
        };
        let of_subjects = spills.iter().filter(|(top, ..)| *top == label);
        found.extend(of_subjects.map(|(_, relation, keeper)| along(relation, keeper, Keeps::Subjects)));
        for (keeper, of) in kept.iter().filter(|(_, of)| cascades.contains(&(table.oid, of.oid))) {
            let keeps = keeps(policy, keeper);
            found.extend(keeps.map(|keeps| along(&of.relation.label(), keeper.name.as_str(), keeps)));
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

/// How a policy keeps rows that another one would take along, because theirs is another time: a floor always does, a term where it
/// is the longer one, or a tenant's may be.
fn keeps(policy: &Policy, keeper: &Retain) -> Option<Keeps> {
    let shortest = shortest(policy)?;
    if let Some(floor) = keeper.floor {
        return Some(Keeps::Floor(floor));
    }
    let is_itself = matches!(policy, Policy::Retain(retain) if retain.name == keeper.name);
    let longer = keeper.tenant_override || !shortest.never_shorter(&keeper.retention());
    (longer && !is_itself).then(|| Keeps::Longer(keeper.retention()))
}

/// The shortest that a policy which deletes rows one by one leaves one after its time. A partition goes as a whole, and the server
/// lets none go that rows of others refer to.
fn shortest(policy: &Policy) -> Option<Term> {
    match policy {
        Policy::Expire(expire) if expire.action == Action::Delete => {
            Some(expire.older_than.unwrap_or(Term::seconds(0)))
        }
        Policy::Retain(retain) => match &retain.form {
            RetainForm::Direct(_) if retain.tenant_override => Some(retain.floor.unwrap_or(Term::seconds(0))),
            RetainForm::Direct(direct) => Some(direct.older_than),
            RetainForm::Subjects(_) => None,
        },
        _ => None,
    }
}
