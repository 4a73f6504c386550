//! resources: short-lived things outside (tables, objects) live exactly as long as someone refers to them.
//! References are rows of a holder that is alive by a term, not numbers: a crash ends one holder and with it all it
//! referred to. Invariants: an incref is either seen by whoever would drop, or told that the resource is gone
//! (`migrations/…_resources.sql`); a drop is confirmed by absence (`removal.rs`); what nobody announced goes only when it
//! is old by every clock and was seen twice (`sweeper.rs`).

pub mod driver;
pub mod lifecycle;
pub(crate) mod work;

mod dropper;
mod holders;
mod refer;
mod removal;
mod store;
mod sweeper;

use std::time::Duration;

use serde_json::Value;
use sqlx::PgConnection;

pub use driver::{Driver, Dropped, Found, Owner};
pub use lifecycle::{Context, Handle, LifecycleHandler, LocalHandler, PostgresHandler, Worker};
pub use refer::{Change, announce, apply_refs, beat_holder, close_holder, created, open_holder};
pub use store::{HolderRow, Listed, Sighting};

use crate::audit::Entry;
use crate::pg::{Database, answered};
use crate::policy::Resources;
use crate::spine::metrics;
use crate::{Error, Result, control};

/// While policies are checked a store must answer soon: a transaction waits for it.
const CHECK_WITHIN: Duration = Duration::from_secs(8);

/// Whether the store of a policy can be reached and is not somebody else's. One that is away and was registered before is
/// no reason to refuse: what it holds is dropped when it is back.
pub(crate) async fn check(connection: &mut PgConnection, database: &Database, policy: &Resources) -> Result<()> {
    let driver = driver::open(policy, database)?;
    alone(connection, policy, &driver.location()).await?;
    owner_of(connection, driver.as_ref(), policy).await.map(|_| ())
}

/// No other policy looks after names of the same place that could be this one's: each would take the other's for orphans.
async fn alone(connection: &mut PgConnection, policy: &Resources, location: &str) -> Result<()> {
    let ours = policy.pattern.prefix();
    for (name, pattern) in store::neighbours(connection, policy.name.as_str(), location).await? {
        let theirs = pattern.split('{').next().unwrap_or_default();
        if ours.starts_with(theirs) || theirs.starts_with(ours) {
            return Err(Error::refused(format!(
                "{location} is looked after by {name} already, whose names ({pattern}) cannot be told from {}",
                policy.pattern
            ))
            .with_hint("give each a prefix of its own, or another database; one that was renamed goes first, with an `ebb apply` of its own"));
        }
    }
    Ok(())
}

/// Whether the store of a policy answers, which it must when that is applied first.
pub(crate) async fn answers(database: &Database, policy: &Resources) -> Result<()> {
    let driver = driver::open(policy, database)?;
    let asked = answered(CHECK_WITHIN, driver.owner(policy.name.as_str())).await;
    asked.map(|_| ()).map_err(|error| silent(&driver.location(), error))
}

/// Why a store that was not known before cannot be used.
fn silent(location: &str, error: Error) -> Error {
    match error.is_config() || error.is_refused() {
        true => error,
        false => Error::refused(format!("{location}: {error}"))
            .with_hint("the store must answer when its policy is applied first: Ebb marks it as its own"),
    }
}

/// The marker of the store; `None` when it is away and was known before.
async fn owner_of(
    connection: &mut PgConnection,
    driver: &dyn Driver,
    policy: &Resources,
) -> Result<Option<Option<Owner>>> {
    let (name, location) = (policy.name.as_str(), driver.location());
    let known = store::store_of(connection, name).await?.is_some_and(|known| known.location == location);
    let owner = match answered(CHECK_WITHIN, driver.owner(name)).await {
        Ok(owner) => owner,
        Err(error) if known && !error.is_refused() && !error.is_config() => {
            tracing::warn!(policy = name, place = location, error = %error, "The store does not answer at the moment");
            return Ok(None);
        }
        Err(error) => return Err(silent(&location, error)),
    };
    let ours = store::installation(connection).await?.id;
    match &owner {
        Some(owner) if owner.installation != ours => {
            Err(Error::refused(format!("{location} belongs to another installation of Ebb ({})", owner.installation))
                .with_hint("use a database of your own; who really takes it over removes ebb_owner there first"))
        }
        _ => Ok(Some(owner)),
    }
}

/// Makes a policy's store known, and marks it as ours.
pub(crate) async fn register(connection: &mut PgConnection, database: &Database, policy: &Resources) -> Result<()> {
    let driver = driver::open(policy, database)?;
    let name = policy.name.as_str();
    alone(connection, policy, &driver.location()).await?;
    let owner = owner_of(connection, driver.as_ref(), policy).await?;
    let (names, pattern) = (policy.pattern.expression(), policy.pattern.to_string());
    store::register(connection, name, &driver.location(), &names, &pattern).await?;
    let Some(marked) = owner else { return Ok(()) };
    let generation = store::store_of(connection, name).await?.map_or(0, |known| known.generation);
    if marked.is_none_or(|marked| marked.generation < generation) || generation == 0 {
        let installation = store::installation(connection).await?.id;
        answered(CHECK_WITHIN, driver.mark(name, &Owner { installation, generation })).await?;
    }
    Ok(())
}

/// What a confirmation is good for: this place, seen from this server.
fn confirmed_for(location: &str, installation: &store::Installation) -> String {
    format!("{location} from {}", installation.server)
}

fn unregistered(policy: &str) -> Error {
    Error::refused(format!("the store of {policy} is not registered")).with_hint("run `ebb apply`")
}

/// Gauges of how many resources are in which state.
pub(crate) async fn observe(database: &Database) -> Result<()> {
    let mut tx = database.read().await?;
    let counted = store::states(&mut tx).await?;
    let policies = crate::policy::store::all(&mut tx).await?;
    tx.commit().await?;
    for policy in policies.iter().filter(|policy| policy.kind == crate::policy::Kind::Resources) {
        for state in ["creating", "live", "condemned", "dropping", "blocked"] {
            let of = counted.iter().find(|(name, known, _)| *name == policy.name && known == state);
            metrics::resources(&policy.name, state, of.map_or(0, |(_, _, count)| (*count).max(0) as u64));
        }
    }
    Ok(())
}

/// Resources of one policy or all, in one state or in all but the last.
pub async fn list(
    connection: &mut PgConnection,
    policy: Option<&str>,
    state: Option<&str>,
    limit: u64,
) -> Result<Vec<Listed>> {
    store::list(connection, policy, state, None, limit).await
}

/// The same from a resource on, named by policy and name.
pub async fn list_after(
    connection: &mut PgConnection,
    policy: Option<&str>,
    state: Option<&str>,
    after: Option<(&str, &str)>,
    limit: u64,
) -> Result<Vec<Listed>> {
    store::list(connection, policy, state, after, limit).await
}

/// How many resources are in which state: (policy, state, how many).
pub async fn counts(connection: &mut PgConnection) -> Result<Vec<(String, String, i64)>> {
    store::states(connection).await
}

/// Holders, those heard of last first.
pub async fn holders(connection: &mut PgConnection, limit: u64) -> Result<Vec<HolderRow>> {
    store::holders(connection, limit).await
}

/// Adds how large they are, where the store tells; a store that does not answer says nothing.
pub async fn add_sizes(database: &Database, policy: &Resources, listed: &mut [Listed]) -> Result<()> {
    let driver = driver::open(policy, database)?;
    let ours = || listed.iter().filter(|one| one.policy == policy.name.as_str() && one.state != "dropped");
    let names: Vec<String> = ours().map(|one| one.name.clone()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let (found, _) = answered(CHECK_WITHIN, driver.find(&names)).await?;
    let sizes: std::collections::HashMap<String, Option<u64>> =
        found.into_iter().map(|found| (found.name, found.size)).collect();
    for one in listed.iter_mut().filter(|one| one.policy == policy.name.as_str()) {
        one.size = sizes.get(&one.name).copied().flatten();
    }
    Ok(())
}

/// Orphans that were seen and are not claimed yet.
pub async fn sightings(connection: &mut PgConnection, policy: &str, limit: u64) -> Result<Vec<Sighting>> {
    store::sightings(connection, policy, limit).await
}

/// How it stands with a policy's sweeps.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Sweeps {
    /// Where the store is.
    pub location: String,
    /// Whether it may be swept.
    pub confirmed: bool,
    /// What the last sweep found.
    pub report: Option<Value>,
}

/// How it stands with a policy's sweeps.
pub async fn sweeps(connection: &mut PgConnection, policy: &str) -> Result<Sweeps> {
    let known = store::store_of(connection, policy).await?.ok_or_else(|| unregistered(policy))?;
    let here = confirmed_for(&known.location, &store::installation(connection).await?);
    let confirmed = known.confirmed_for.as_deref() == Some(here.as_str());
    Ok(Sweeps { location: known.location, confirmed, report: known.report })
}

/// Lets the sweeper drop what it finds in a policy's store, from this server on.
pub async fn confirm(connection: &mut PgConnection, policy: &str, by: &str) -> Result<()> {
    let known = store::store_of(connection, policy).await?.ok_or_else(|| unregistered(policy))?;
    let here = confirmed_for(&known.location, &store::installation(connection).await?);
    store::confirm_store(connection, policy, by, &here).await?;
    let mut entry = Entry::new("confirm", by);
    entry.policy = Some(policy.to_owned());
    entry.relation = Some(known.location);
    entry.details = serde_json::json!({ "report": known.report });
    entry.insert(connection).await?;
    Ok(())
}

/// Ends the grace of one resource that nobody refers to: the dropper takes it at its next pass.
pub async fn drop_now(connection: &mut PgConnection, policy: &str, name: &str, by: &str) -> Result<()> {
    let Some((id, state)) = store::hurry(connection, policy, name).await? else {
        return Err(Error::usage(format!("{policy} knows no resource {name}"))
            .with_hint(format!("`ebb resource list {policy}` shows them; what nobody announced is the sweeper's")));
    };
    if state == "dropped" {
        return Err(Error::usage(format!("{name} is dropped already")));
    }
    if !store::hurry_now(connection, id).await? {
        let holders = store::holders_of(connection, id).await?;
        return Err(Error::refused(format!("{name} is in use by {}", holders.join(", ")))
            .with_hint("it goes when they let go of it, or when their term runs out"));
    }
    let mut entry = Entry::new("hurry", by);
    entry.policy = Some(policy.to_owned());
    entry.details = serde_json::json!({ "resource": name, "state": state });
    entry.insert(&mut *connection).await?;
    store::nudge(connection, policy).await?;
    control::notify(connection).await
}
