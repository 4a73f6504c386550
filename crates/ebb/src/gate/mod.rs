//! Gates: what ties a hold on a subject to policies that would take its rows by themselves. The duties know nothing of
//! each other; one writes how far its holds reach, the others pass their gate and leave alone what they are told there.
//! Invariant: a batch passes the gate first and looks in a later statement, so no row goes that was on hold before it went.

mod along;
mod conflict;
mod grace;
mod store;

pub(crate) use conflict::{conflict_of, conflicts, none_conflicts, takes_nothing_kept};

use std::collections::BTreeMap;

use sqlx::PgConnection;

use crate::pg::catalog::{self, Table};
use crate::pg::{Ident, Relation};
use crate::policy::{Policy, Stored};
use crate::words::plural;
use crate::{Error, Result};

/// How a condition names the row it is about.
pub(crate) const ROW: &str = "\"ebb:row\"";

/// Rows of a table that subjects on hold keep from a policy.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct Held {
    /// Whose holds.
    pub(crate) policy: String,
    pub(crate) relation: String,
    #[sqlx(flatten)]
    reach: Reach,
}

/// What is true of a row of a subject on hold; any of it is enough.
#[derive(Debug, Clone, Default, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct Reach {
    /// Rows that go with the subject or refer to it.
    pub(crate) conditions: Vec<String>,
    /// Rows that go with it.
    pub(crate) erased: Vec<String>,
}

impl Held {
    /// Each of what is true of a held row, for rows that a statement calls by this name.
    pub(crate) fn conditions<'a>(&'a self, row: &Ident) -> impl Iterator<Item = String> + 'a {
        about(&self.reach.conditions, row)
    }

    /// The same of rows `n` that go with a subject, and not of those that only refer to it or are `kept` all the same.
    pub(crate) fn going(&self, kept: Option<&str>) -> impl Iterator<Item = String> {
        about(&self.reach.erased, &Ident::new("n")).map(move |condition| match kept {
            Some(kept) => format!("({condition}) AND ({kept}) IS NOT TRUE"),
            None => condition,
        })
    }

    /// Why a subject waits who would take such a row along.
    pub(crate) fn would_go(&self) -> String {
        format!("rows of a subject on hold would go with it ({}, policy {})", self.relation, self.policy)
    }
}

fn about<'a>(conditions: &'a [String], row: &Ident) -> impl Iterator<Item = String> + use<'a> {
    let (from, to) = (format!("{ROW}."), format!("{row}."));
    conditions.iter().map(move |condition| condition.replace(&from, &to))
}

/// Passes the gate of a policy, until the transaction ends: what is to be left alone. Cheap while nobody is on hold.
pub(crate) async fn pass(connection: &mut PgConnection, policy: &str) -> Result<Vec<Held>> {
    let bound = store::pass(connection, policy).await.map_err(|error| match error.sqlstate().as_deref() {
        Some("55P03") => error.context("a hold that concerns its rows is being placed"),
        _ => error,
    })?;
    if bound { store::holds(connection, policy).await } else { Ok(Vec::new()) }
}

/// Ends a batch, once it has its table locked, that leaves subjects of these policies alone by a column that took the name of another.
pub(crate) async fn still_apart(connection: &mut PgConnection, keepers: &[String]) -> Result<()> {
    if keepers.is_empty() || store::still_apart(connection, keepers).await? {
        return Ok(());
    }
    let whose = keepers.join(", ");
    Err(Error::superseded(format!("a column of the subjects of policy {whose} has the name of another by now")))
}

/// What would be left alone now, for a look: nothing is locked.
pub(crate) async fn look(connection: &mut PgConnection, policy: &str) -> Result<Vec<Held>> {
    store::holds(connection, policy).await
}

/// Gives every policy that takes rows by itself its gate. Batches under way have ended where something changes.
pub(crate) async fn follow(connection: &mut PgConnection, stored: &[Stored]) -> Result<()> {
    let tables = stored.iter().filter_map(|stored| Some((stored.name.clone(), taken_from(&stored.policy().ok()?)?)));
    let wanted = related(connection, tables.collect()).await?;
    open(connection, &wanted).await
}

/// The same for one that is about to take rows of its table: what that belongs to may have changed since.
pub(crate) async fn follow_one(connection: &mut PgConnection, policy: &str, table: &str) -> Result<()> {
    let wanted = related(connection, vec![(policy.to_owned(), table.to_owned())]).await?;
    open(connection, &wanted).await
}

/// The tables that share rows with those of policies, by their names.
async fn related(connection: &mut PgConnection, typed: Vec<(String, String)>) -> Result<BTreeMap<String, Vec<String>>> {
    let found = whole(connection, typed).await?;
    let kin = store::kin(connection, &found.iter().map(|(_, table)| table.oid).collect::<Vec<_>>()).await?;
    let labels =
        |table: &Whole| kin.get(&table.oid).into_iter().flatten().map(|kin| kin.table.relation.label()).collect();
    Ok(found.iter().map(|(policy, table)| (policy.clone(), labels(table))).collect())
}

/// A table, or what it is a partition of.
#[derive(Debug, Clone)]
struct Whole {
    oid: u32,
    relation: Relation,
}

/// A table that shares rows with another one: above it, or the same, or a child of it.
#[derive(Debug, Clone)]
struct Kin {
    table: Whole,
    is_above: bool,
}

/// A leaf and the tables that its rows are rows of: only what is said of one of these can be asked of them.
#[derive(Debug, Clone)]
pub(crate) struct Above(Vec<(u32, String)>);

impl Above {
    pub(crate) async fn of(connection: &mut PgConnection, leaf: u32) -> Result<Self> {
        Ok(Self(store::above(connection, leaf).await?))
    }

    /// Refuses to go on where the leaf belongs to other tables by now. Asked behind a deletion nothing comes between: a table comes under
    /// another one only when nobody is at work on it.
    pub(crate) async fn stays(&self, connection: &mut PgConnection, leaf: u32) -> Result<()> {
        let now = store::above(connection, leaf).await?;
        let tables = |above: &[(u32, String)]| above.iter().map(|(oid, _)| *oid).collect::<Vec<_>>();
        match tables(&now) == tables(&self.0) {
            true => Ok(()),
            false => Err(Error::refused("its rows belong to another table than when the run began")
                .with_hint("the next run asks what that one keeps")),
        }
    }

    /// Refuses to go on where holds reach into one of these by a name that it does not have any more: its gate would not tell.
    pub(crate) async fn none_strayed(&self, connection: &mut PgConnection) -> Result<()> {
        let tables = self.0.iter().map(|(oid, _)| i64::from(*oid)).collect();
        refuse(store::strayed(connection, Some(tables), None).await?)
    }

    /// What is kept of rows of the leaf itself.
    pub(crate) fn held(&self, mut held: Vec<Held>) -> Vec<Held> {
        held.retain(|held| self.0.iter().any(|(_, label)| *label == held.relation));
        held
    }
}

/// The tables that something was typed for; what has none is left out.
async fn whole<T>(connection: &mut PgConnection, typed: Vec<(T, String)>) -> Result<Vec<(T, Whole)>> {
    let named = catalog::named(connection, typed.iter().map(|(_, table)| table.as_str())).await?;
    let mut found = Vec::new();
    for (what, table) in typed {
        match named.find(&table) {
            Ok(Some(table)) => found.push((what, table.oid)),
            // Without its table a policy takes nothing.
            Ok(None) => {}
            Err(error) if error.is_config() => {}
            Err(error) => return Err(error),
        }
    }
    let roots = store::roots(connection, &found.iter().map(|(_, oid)| *oid).collect::<Vec<_>>()).await?;
    let root = |(what, oid)| {
        let (oid, relation) = roots.get(&oid)?.clone();
        Some((what, Whole { oid, relation }))
    };
    Ok(found.into_iter().filter_map(root).collect())
}

/// The table that a policy takes rows of by itself.
fn taken_from(policy: &Policy) -> Option<String> {
    match policy {
        Policy::Expire(policy) => Some(policy.table.clone()),
        Policy::Partition(policy) => Some(policy.table.clone()),
        Policy::Retain(policy) if policy.subjects().is_none() => Some(policy.table.clone()),
        _ => None,
    }
}

/// The same for one policy that takes rows of several tables.
pub(crate) async fn open_over(connection: &mut PgConnection, policy: &str, relations: Vec<String>) -> Result<()> {
    open(connection, &BTreeMap::from([(policy.to_owned(), relations)])).await
}

async fn open(connection: &mut PgConnection, wanted: &BTreeMap<String, Vec<String>>) -> Result<()> {
    let known = store::gates(connection).await?;
    let changed: BTreeMap<&String, &Vec<String>> =
        wanted.iter().filter(|(name, of)| known.get(*name) != Some(of)).collect();
    if changed.keys().any(|name| known.contains_key(*name)) {
        store::close(connection).await?;
    }
    if !changed.is_empty() {
        store::put(connection, &changed).await?;
    }
    let loose = store::loose(connection).await?;
    if !loose.is_empty() {
        store::close(connection).await?;
        store::bind(connection, &loose).await?;
    }
    Ok(())
}

/// Writes how far holds of a policy reach: of each table, what is true of a row of a subject on hold.
pub(crate) async fn reach(connection: &mut PgConnection, policy: &str, wanted: &BTreeMap<String, Reach>) -> Result<()> {
    let known = store::reach(connection, policy).await?;
    let gone: Vec<String> = known.keys().filter(|relation| !wanted.contains_key(*relation)).cloned().collect();
    let changed = wanted.iter().filter(|(relation, now)| {
        known.get(*relation).is_none_or(|(before, same_table)| before != *now || !same_table)
    });
    let changed: BTreeMap<&String, &Reach> = changed.collect();
    if gone.is_empty() && changed.is_empty() {
        return Ok(());
    }
    // Another table has the name by now: what holds keep in the former one would be kept no more.
    let other: Vec<&str> = known.iter().filter(|(_, (_, same))| !same).map(|(relation, _)| relation.as_str()).collect();
    let other: Vec<&str> = other.into_iter().filter(|relation| wanted.contains_key(*relation)).collect();
    refuse(store::strayed(connection, None, Some((policy, &other))).await?)?;
    store::close(connection).await?;
    store::forget_reach(connection, policy, &gone).await?;
    for (relation, reach) in changed {
        store::put_reach(connection, policy, relation, reach).await?;
    }
    Ok(())
}

/// Refuses to go on while holds in force reach into a table by a name that it does not have any more: no gate would know it.
pub(crate) async fn none_strayed(connection: &mut PgConnection) -> Result<()> {
    refuse(store::strayed(connection, None, None).await?)
}

fn refuse(strayed: Option<store::Strayed>) -> Result<()> {
    let Some(store::Strayed { policy, holds, relation, label, is_root, is_taken }) = strayed else { return Ok(()) };
    let what = match is_root {
        true => format!("its table {relation} is"),
        false => format!("{relation}, which has rows of its subjects, is"),
    };
    let hint = match (is_root, is_taken) {
        (true, false) => format!("first apply it with table = {label:?}, under its own name"),
        (true, true) => format!(
            "first apply it with table = {label:?}, under its own name; or, if its subjects are those of {relation} by now, \
             lift its holds, apply it as it is, with --yes, and place them again"
        ),
        (false, false) => "first apply it as well, in a file that has it".to_owned(),
        (false, true) => format!(
            "give {label} its name back; or, if it has no such rows by now, lift the holds, apply, and place them again"
        ),
    };
    let holds = plural(holds, "hold");
    Err(Error::refused(format!("policy {policy} has {holds}, and {what} {label} now")).with_hint(hint))
}

/// Whether a table that is about to go as a whole has a row that a hold keeps.
pub(crate) async fn any_held(connection: &mut PgConnection, held: &[Held], table: &Relation) -> Result<bool> {
    let conditions: Vec<String> = held.iter().flat_map(|held| held.conditions(&table.name)).collect();
    if conditions.is_empty() {
        return Ok(false);
    }
    store::any(connection, table, &conditions).await
}

/// The same for a look, where what cannot be looked up counts as held.
pub(crate) async fn may_be_held(connection: &mut PgConnection, held: &[Held], table: &Relation) -> Result<bool> {
    if held.is_empty() {
        return Ok(false);
    }
    store::savepoint(connection).await?;
    let found = any_held(connection, held, table).await;
    store::end_savepoint(connection, found.is_ok()).await?;
    match found {
        Err(error) if error.is_unavailable() => Err(error),
        found => Ok(found.unwrap_or(true)),
    }
}

/// Whose holds, for people.
pub(crate) fn whose(held: &[Held]) -> String {
    let mut names: Vec<&str> = held.iter().map(|held| held.policy.as_str()).collect();
    names.dedup();
    names.join(", ")
}

/// Rights that were not needed before anybody was on hold.
pub(crate) fn explain(error: Error, held: &[Held]) -> Error {
    match error.sqlstate().as_deref() {
        Some("42501") if !held.is_empty() => {
            let whose = whose(held);
            error
                .context(format!("whether rows belong to a subject on hold ({whose}) cannot be looked up"))
                .with_hint(format!("grant the node SELECT on every table between this one and that of policy {whose}"))
        }
        _ => error,
    }
}

/// The tables that a policy's batches read besides their own while somebody is on hold.
pub(crate) async fn reads(connection: &mut PgConnection, policy: &str) -> Result<Vec<Table>> {
    let mut found = Vec::new();
    for (name, conditions) in store::reads(connection, policy).await? {
        let Ok(table) = catalog::table(connection, &name).await else { continue };
        let read = format!("FROM {} AS ", table.relation);
        let joined = format!("JOIN {} AS ", table.relation);
        if conditions.iter().any(|condition| condition.contains(&read) || condition.contains(&joined)) {
            found.push(table);
        }
    }
    Ok(found)
}
