//! The sweeper: what the store has and nobody announced. It lists the store first and asks the registry second, so that
//! whatever is in use is known by then. Invariants: a name that does not parse is never touched; the id's age and the
//! store's own time must both be old; an orphan is seen twice, unchanged, a grace apart; its name is claimed with a
//! tombstone before it is looked at once more and dropped; too many at once stop the sweep; a store that is not marked as
//! ours, or that has seen later sweeps than this database knows of, is not swept.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::driver::{Driver, Found, Owner};
use super::removal::Removal;
use super::store;
use crate::policy::{Mode, Resources, human};
use crate::spine::batch::Batch;
use crate::spine::{Chore, Outcome, Recovery, brake, metrics};
use crate::{Error, Result};

/// Store and database may disagree about the time by so much before it is said.
const SKEW: Duration = Duration::from_secs(60);
/// So many names of a report are examples.
const EXAMPLES: usize = 20;

/// One sweep of a store.
pub(super) struct Sweeper {
    pub(super) policy: Arc<Resources>,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) removal: Removal,
    pub(super) installation: Uuid,
    /// The last sweep that this database knows of; from the second phase on, this one.
    pub(super) generation: i64,
    /// Whether somebody has confirmed that this store may be swept.
    pub(super) confirmed: bool,
    /// The database's time when the sweep began.
    pub(super) now: Timestamp,
    pub(super) phase: Phase,
    pub(super) listing: Listing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Ask the store whose it is; then count the sweep here, so that the marker never runs ahead of the database.
    Ask,
    /// Mark the store and list it; then compare with the registry.
    List,
    Drop,
}

/// What the store showed.
#[derive(Debug, Default)]
pub(super) struct Listing {
    listed: u64,
    foreign: u64,
    young: u64,
    old: Vec<Found>,
    skew: Option<Duration>,
}

impl Sweeper {
    async fn ask(&mut self) -> Result<()> {
        let owner = self.driver.owner(self.policy.name.as_str()).await?;
        allowed(owner.as_ref(), self.installation, self.generation, &self.driver.location())
    }

    async fn look(&mut self) -> Result<()> {
        let name = self.policy.name.as_str();
        let mark = Owner { installation: self.installation, generation: self.generation };
        self.driver.mark(name, &mark).await?;
        let mut listing = Listing::default();
        let (pattern, age, now) = (&self.policy.pattern, self.policy.orphan_age, self.now);
        let mut each = |found: Found| {
            listing.listed += 1;
            match pattern.age(&found.name, now) {
                None => listing.foreign += 1,
                Some(of_id) if of_id < age => listing.young += 1,
                Some(_) => listing.old.push(found),
            }
        };
        let store_now = self.driver.list(pattern.prefix(), &mut each).await?;
        // Its own time is compared with its own clock, whatever the database's says.
        let reference = store_now.unwrap_or(now);
        let before = listing.old.len();
        listing.old.retain(|found| found.modified_at.is_none_or(|at| reference.duration_since(at) >= signed(age)));
        listing.young += (before - listing.old.len()) as u64;
        listing.skew = store_now.map(|store_now| apart(store_now, now)).filter(|skew| *skew > SKEW);
        self.listing = listing;
        Ok(())
    }

    /// Asks the registry, notes what it does not know, claims what was seen long enough.
    async fn compare(&mut self, batch: &mut Batch) -> Result<bool> {
        let policy = batch.claim.unit.policy.clone();
        let names: Vec<String> = self.listing.old.iter().map(|found| found.name.clone()).collect();
        let unknown: std::collections::HashSet<String> =
            store::unknown(batch.connection(), &names).await?.into_iter().collect();
        let mut orphans = std::mem::take(&mut self.listing.old);
        let old = orphans.len() as u64;
        orphans.retain(|found| unknown.contains(&found.name));
        store::see(batch.connection(), &policy, &orphans).await?;
        store::unsee(batch.connection(), &policy).await?;
        let mut ripe = store::ripe(batch.connection(), &policy, self.policy.grace, self.policy.orphan_age).await?;
        metrics::orphans(&policy, "seen", orphans.len() as u64);
        let allowance = brake::allowance(batch.connection(), &policy).await?.unwrap_or(0);
        let limit = self.policy.max_orphans.max(allowance);
        let verdict = if self.policy.mode == Mode::Observe {
            "observe"
        } else if !self.confirmed {
            "unconfirmed"
        } else if ripe.len() as u64 > limit {
            "breaker"
        } else {
            "swept"
        };
        let report = json!({
            "at": self.now.to_string(), "verdict": verdict, "listed": self.listing.listed, "foreign": self.listing.foreign,
            "young": self.listing.young, "known": old - orphans.len() as u64, "orphans": orphans.len(), "ripe": ripe.len(),
            "clock_skew": self.listing.skew.map(human),
            "examples": orphans.iter().take(EXAMPLES).map(|found| found.name.as_str()).collect::<Vec<_>>(),
        });
        store::report(batch.connection(), &policy, &report).await?;
        self.tell(&policy, verdict, orphans.len(), ripe.len());
        match verdict {
            "breaker" => {
                let words = format!("{} orphans at once (max_orphans)", self.policy.max_orphans);
                brake::trip(batch.connection(), &policy, ripe.len() as u64, &words).await?;
                return Ok(false);
            }
            "swept" => store::untrip(batch.connection(), &policy).await?,
            _ => return Ok(false),
        }
        ripe.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(!store::claim_orphans(batch.connection(), &policy, &ripe).await?.is_empty())
    }

    fn tell(&self, policy: &str, verdict: &str, orphans: usize, ripe: usize) {
        let (listed, place) = (self.listing.listed, self.driver.location());
        if let Some(skew) = self.listing.skew {
            tracing::warn!(
                policy,
                skew = human(skew),
                "The store's clock and the database's differ; each is compared with itself"
            );
        }
        match verdict {
            "unconfirmed" => tracing::warn!(
                policy,
                place,
                listed,
                orphans,
                "First sweep of this store: nothing was dropped. Look at it and let it: ebb resource sweep {policy} --confirm"
            ),
            "breaker" => tracing::warn!(
                policy,
                place,
                orphans,
                ripe,
                max_orphans = self.policy.max_orphans,
                "Too many orphans at once: nothing was dropped. Let them go with: ebb resume {policy} --allow {ripe}"
            ),
            _ if orphans == 0 => tracing::debug!(policy, listed, "Swept the store; nothing that nobody knows"),
            _ => tracing::info!(policy, listed, orphans, ripe, verdict, "Swept the store"),
        }
    }

    async fn step(&mut self, batch: &mut Batch) -> Result<Outcome> {
        let (policy, size) = (batch.claim.unit.policy.clone(), batch.size.max(1));
        match self.phase {
            Phase::Ask => {
                let counted = store::next_sweep(batch.connection(), &policy).await?;
                self.generation = counted.ok_or_else(|| super::unregistered(&policy))?;
                self.phase = Phase::List;
                Ok(Outcome { changed: 0, more: true })
            }
            Phase::List => {
                let claimed = self.compare(batch).await?;
                self.phase = Phase::Drop;
                let more = claimed && self.removal.load(batch, size, true).await?;
                Ok(Outcome { changed: 0, more })
            }
            Phase::Drop => {
                let mut changed = 0;
                if self.removal.is_done() {
                    changed = self.removal.record(batch).await?;
                }
                let more = self.removal.load(batch, size, true).await?;
                Ok(Outcome { changed, more })
            }
        }
    }
}

/// Whether the marker lets this installation sweep.
fn allowed(owner: Option<&Owner>, installation: Uuid, generation: i64, place: &str) -> Result<()> {
    match owner {
        None => Err(Error::refused(format!("{place} is not marked as ours: is it the right one?"))
            .with_hint("`ebb apply` marks the store of a policy; nothing is swept without the mark")),
        Some(owner) if owner.installation != installation => {
            Err(Error::refused(format!("{place} belongs to another installation of Ebb ({})", owner.installation))
                .with_hint(
                    "point `url` at a database of your own; who really takes it over removes ebb_owner there first",
                ))
        }
        Some(owner) if owner.generation > generation => Err(Error::refused(format!(
            "{place} has seen sweep {}, and this database only knows of {}: it was restored from an older backup, \
             and may not know resources that are in use",
            owner.generation, generation
        ))
        .with_hint("when every worker has opened a new holder, remove ebb_owner from the store and run `ebb apply`")),
        Some(_) => Ok(()),
    }
}

fn signed(duration: Duration) -> jiff::SignedDuration {
    jiff::SignedDuration::try_from(duration).unwrap_or(jiff::SignedDuration::MAX)
}

fn apart(a: Timestamp, b: Timestamp) -> Duration {
    a.duration_since(b).unsigned_abs()
}

impl Chore for Sweeper {
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>> {
        self.step(batch).boxed()
    }

    fn acts(&self) -> bool {
        self.phase != Phase::Drop || self.removal.is_loaded()
    }

    fn act(&mut self) -> BoxFuture<'_, Result<()>> {
        match self.phase {
            Phase::Ask => self.ask().boxed(),
            Phase::List => self.look().boxed(),
            Phase::Drop => self.removal.act().boxed(),
        }
    }

    /// What was seen counts for one comparison only: the next run looks again.
    fn recover(&mut self, _: &Error) -> Recovery {
        Recovery::GiveUp
    }

    fn cutoff(&self) -> Option<Timestamp> {
        None
    }

    fn shape(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_store_that_is_ours_and_not_ahead_of_us_is_swept() {
        let ours = Uuid::from_u128(1);
        let owner = |installation, generation| Owner { installation, generation };
        assert!(allowed(Some(&owner(ours, 7)), ours, 7, "s").is_ok());
        let said = |owner: Option<Owner>| allowed(owner.as_ref(), ours, 7, "s").unwrap_err().to_string();
        assert!(said(None).contains("not marked as ours"));
        assert!(said(Some(owner(Uuid::from_u128(2), 1))).contains("another installation"));
        assert!(said(Some(owner(ours, 8))).contains("older backup"));
    }
}
