//! Policies that would take rows which another one keeps: along with others by a cascade, or out of a subject's grace. Invariant: such
//! a pair is refused by name, when either is stored and before each run; a key or a policy may have come since.

use sqlx::PgConnection;

use super::along::{self, Along};
use super::grace::{self, Grace};
use super::{Whole, store, taken_from};
use crate::policy::{self, Mode, Policy, Stored};
use crate::{Error, Result};

/// A policy that would take rows which another one keeps.
#[derive(Debug, Clone)]
pub(crate) enum Conflict {
    /// The server would, with the rows that it deletes.
    Along(Along),
    /// They are subjects who are soft-deleted.
    Grace(Grace),
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Along(along) => along.fmt(f),
            Self::Grace(grace) => grace.fmt(f),
        }
    }
}

impl Conflict {
    /// The one that would take them, and the one that keeps them.
    pub(crate) fn between(&self) -> (&str, &str) {
        match self {
            Self::Along(along) => (&along.policy, &along.keeper),
            Self::Grace(grace) => (&grace.policy, &grace.keeper),
        }
    }

    /// What helps.
    pub(crate) fn fix(&self) -> String {
        match self {
            Self::Along(along) => along.fix(),
            Self::Grace(grace) => grace.fix(),
        }
    }

    fn into_error(self) -> Error {
        Error::config(format!("policy {}: {self}", self.between().0)).with_hint(self.fix())
    }
}

/// Refuses policies that would take what others keep; where one alone was `changed`, those that it has a part in.
pub(crate) async fn none_conflicts(
    connection: &mut PgConnection,
    stored: &[Stored],
    changed: Option<&str>,
) -> Result<()> {
    let policies = enabled(stored);
    let is_about = |conflict: &Conflict| {
        let (policy, keeper) = conflict.between();
        changed.is_none_or(|changed| changed == policy || changed == keeper)
    };
    let found = conflicts(connection, &policies, &policies, true).await?.into_iter().find(is_about);
    found.map_or(Ok(()), |conflict| Err(conflict.into_error()))
}

/// The same for one that is about to take rows of its table; the policies whose subjects it leaves alone by its `where`.
pub(crate) async fn takes_nothing_kept(
    connection: &mut PgConnection,
    stored: &Stored,
    table: u32,
) -> Result<Vec<String>> {
    let Some((own, all)) = besides(connection, stored, table).await? else { return Ok(Vec::new()) };
    if let Some(conflict) = conflicts(connection, &own, &all, true).await?.into_iter().next() {
        return Err(conflict.into_error());
    }
    let taking = taking(connection, &own).await?;
    grace::left_alone(connection, &taking, &all).await
}

/// What a policy that is about to take rows of its table would take that another one keeps.
pub(crate) async fn conflict_of(
    connection: &mut PgConnection,
    stored: &Stored,
    table: u32,
) -> Result<Option<Conflict>> {
    let Some((own, all)) = besides(connection, stored, table).await? else { return Ok(None) };
    Ok(conflicts(connection, &own, &all, true).await?.into_iter().next())
}

/// A policy and all that are followed; none where deleting rows of its table takes nothing of theirs.
async fn besides(
    connection: &mut PgConnection,
    stored: &Stored,
    table: u32,
) -> Result<Option<(Vec<Policy>, Vec<Policy>)>> {
    if !store::may_conflict(connection, table).await? {
        return Ok(None);
    }
    let own: Vec<Policy> = stored.policy().ok().into_iter().collect();
    let all = policy::store::all(connection).await?;
    Ok(Some((own, enabled(&all))))
}

/// What these policies would take that others of `among` keep; of subjects' trees where the schema that has them is there.
pub(crate) async fn conflicts(
    connection: &mut PgConnection,
    policies: &[Policy],
    among: &[Policy],
    installed: bool,
) -> Result<Vec<Conflict>> {
    let taking = taking(connection, policies).await?;
    let mut found: Vec<Conflict> =
        along::takes_along(connection, &taking, among, installed).await?.into_iter().map(Conflict::Along).collect();
    found.extend(grace::takes_early(connection, &taking, among, installed).await?.into_iter().map(Conflict::Grace));
    Ok(found)
}

/// A table whose rows a policy takes: the one that it names, or a child of that by inheritance.
pub(super) struct Taken<'a> {
    pub(super) policy: &'a Policy,
    pub(super) table: Whole,
    named: Whole,
    /// What the named table is a child of.
    above: Vec<u32>,
}

impl Taken<'_> {
    /// Whether a policy over this table loses rows by it.
    pub(super) fn has_rows_of(&self, table: &Whole) -> bool {
        self.table.oid == table.oid || self.is_named() && self.above.contains(&table.oid)
    }

    /// The table that the policy names, where rows of a child of it are meant.
    pub(super) fn parent(&self) -> Option<&Whole> {
        (!self.is_named()).then_some(&self.named)
    }

    fn is_named(&self) -> bool {
        self.table.oid == self.named.oid
    }
}

/// Those that take rows by themselves, with each table that they take them of.
async fn taking<'a>(connection: &mut PgConnection, policies: &'a [Policy]) -> Result<Vec<Taken<'a>>> {
    let acting = policies.iter().filter(|policy| policy.enabled() && acts(policy));
    let named: Vec<(&Policy, String)> = acting.filter_map(|policy| Some((policy, taken_from(policy)?))).collect();
    let named = super::whole(connection, named).await?;
    let kin = store::kin(connection, &named.iter().map(|(_, table)| table.oid).collect::<Vec<_>>()).await?;
    let mut taken = Vec::new();
    for (policy, named) in named {
        let kin = kin.get(&named.oid).map(Vec::as_slice).unwrap_or_default();
        let above: Vec<u32> = kin.iter().filter(|kin| kin.is_above).map(|kin| kin.table.oid).collect();
        for kin in kin.iter().filter(|kin| !kin.is_above) {
            taken.push(Taken { policy, table: kin.table.clone(), named: named.clone(), above: above.clone() });
        }
    }
    Ok(taken)
}

fn enabled(stored: &[Stored]) -> Vec<Policy> {
    stored.iter().filter(|stored| stored.enabled).filter_map(|stored| stored.policy().ok()).collect()
}

/// A policy that only observes takes nothing.
fn acts(policy: &Policy) -> bool {
    match policy {
        Policy::Expire(expire) => expire.mode == Mode::Enforce,
        Policy::Retain(retain) => retain.mode == Mode::Enforce,
        Policy::Partition(partition) => partition.mode == Mode::Enforce,
        _ => true,
    }
}
