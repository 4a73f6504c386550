//! Making claimed resources go: look, drop, look again, record. Shared by dropper and sweeper. Invariants: only what is
//! claimed ('dropping') is dropped; something made again under the same name is not what was claimed, and stays; a drop
//! counts when the store no longer shows it; everything here may be cut off and done again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;

use super::driver::{Driver, Dropped, Found};
use super::store::{self, Claimed};
use crate::audit::Entry;
use crate::policy::Resources;
use crate::spine::batch::Batch;
use crate::{Result, spine};

/// Drops at a time within one store.
const AT_ONCE: usize = 4;
/// When the store will not drop something until somebody changes something there.
const BLOCKED_FOR: Duration = Duration::from_secs(3600);
/// When it could not just now.
const LATER: Duration = Duration::from_secs(30);
/// So many names stand in one audit record.
pub(super) const NAMES_IN_RECORD: usize = 1000;

/// What became of one claim.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    Gone,
    /// Another one has its name by now; ours is gone.
    Remade,
    /// An orphan that changed after it was seen: somebody uses it.
    Changed,
    Blocked(String),
    Later(String),
}

/// A batch of claims on their way out.
pub(super) struct Removal {
    policy: Arc<Resources>,
    driver: Arc<dyn Driver>,
    claims: Vec<Claimed>,
    fates: Vec<(Claimed, Fate)>,
}

impl Removal {
    pub(super) fn new(policy: Arc<Resources>, driver: Arc<dyn Driver>) -> Self {
        Self { policy, driver, claims: Vec::new(), fates: Vec::new() }
    }

    /// Whether anything is claimed and not dropped yet.
    pub(super) fn is_loaded(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Whether the store has been spoken to and the result is to be recorded.
    pub(super) fn is_done(&self) -> bool {
        !self.fates.is_empty()
    }

    /// Takes up to so many claims; false when there are none.
    pub(super) async fn load(&mut self, batch: &mut Batch, limit: u64, orphans: bool) -> Result<bool> {
        let policy = batch.claim.unit.policy.clone();
        self.claims = store::claimed(batch.connection(), &policy, limit, orphans).await?;
        Ok(self.is_loaded())
    }

    /// Speaks to the store: outside of any transaction.
    pub(super) async fn act(&mut self) -> Result<()> {
        let claims = std::mem::take(&mut self.claims);
        let names: Vec<String> = claims.iter().map(|claim| claim.name.clone()).collect();
        let (found, _) = self.driver.find(&names).await?;
        let mut found: HashMap<String, Found> = found.into_iter().map(|found| (found.name.clone(), found)).collect();
        let mut fates = Vec::new();
        let mut going = Vec::new();
        for claim in claims {
            match found.remove(&claim.name) {
                None => fates.push((claim, Fate::Gone)),
                Some(found) => match self.judge(&claim, &found) {
                    Some(fate) => fates.push((claim, fate)),
                    None => going.push((claim, found)),
                },
            }
        }
        let driver = &self.driver;
        let asked: Vec<(Claimed, Found, Result<Dropped>)> = stream::iter(going)
            .map(|(claim, found)| async move {
                let dropped = driver.remove(&found).await;
                (claim, found, dropped)
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let accepted: Vec<String> = asked
            .iter()
            .filter(|(_, _, dropped)| matches!(dropped, Ok(Dropped::Accepted)))
            .map(|(_, found, _)| found.name.clone())
            .collect();
        // Confirmed by absence: what the store still shows is not dropped, whatever it answered.
        let still: HashMap<String, Found> = match accepted.is_empty() {
            true => HashMap::new(),
            false => driver.find(&accepted).await?.0.into_iter().map(|found| (found.name.clone(), found)).collect(),
        };
        let mut trouble = None;
        for (claim, found, dropped) in asked {
            let fate = match dropped {
                Ok(Dropped::Accepted) => match still.get(&claim.name) {
                    Some(left) if left.id == found.id => Fate::Later("the store still shows it".into()),
                    _ => Fate::Gone,
                },
                Ok(Dropped::Blocked(why)) => Fate::Blocked(why),
                Ok(Dropped::Later(why)) => Fate::Later(why),
                Err(error) => {
                    trouble = Some(error);
                    continue;
                }
            };
            fates.push((claim, fate));
        }
        self.fates = fates;
        match trouble {
            // What went is recorded first; what is left stays claimed and is tried again.
            Some(error) if self.fates.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether what the store shows is still what was claimed.
    fn judge(&self, claim: &Claimed, found: &Found) -> Option<Fate> {
        if self.policy.pattern.made_at(&claim.name).is_none() {
            return Some(Fate::Blocked(format!("its name does not match {}: never touched", self.policy.pattern)));
        }
        let other = matches!((&claim.store_id, &found.id), (Some(ours), Some(theirs)) if ours != theirs);
        if claim.orphan {
            let touched = claim.seen_modified.is_some_and(|seen| found.modified_at != Some(seen.to_jiff()));
            return (other || touched).then_some(Fate::Changed);
        }
        other.then_some(Fate::Remade)
    }

    /// Records what happened, in one transaction with its audit record. Returns how many went.
    pub(super) async fn record(&mut self, batch: &mut Batch) -> Result<u64> {
        let fates = std::mem::take(&mut self.fates);
        let (mut gone, mut problems, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        for (claim, fate) in &fates {
            let name = claim.name.as_str();
            match fate {
                Fate::Gone => {
                    gone.push(claim.id);
                    problems.push(None);
                }
                Fate::Remade => {
                    tracing::warn!(policy = %self.policy.name, name, "Made again under the same name; left alone");
                    gone.push(claim.id);
                    problems.push(Some("made again under the same name by somebody else; left alone".to_owned()));
                }
                Fate::Changed => changed.push(claim.id),
                Fate::Blocked(why) => {
                    tracing::warn!(policy = %self.policy.name, name, reason = why, "The store will not drop it");
                    store::postpone(batch.connection(), claim.id, why, true, BLOCKED_FOR).await?;
                }
                Fate::Later(why) => {
                    tracing::info!(policy = %self.policy.name, name, reason = why, "Not dropped yet; tried again");
                    store::postpone(batch.connection(), claim.id, why, false, LATER).await?;
                }
            }
        }
        let names = store::confirm(batch.connection(), &gone, &problems).await?;
        let orphans = fates.iter().filter(|(claim, fate)| claim.orphan && *fate == Fate::Gone).count() as u64;
        if !names.is_empty() {
            self.write_record(batch, "drop", &names).await?;
        }
        if !changed.is_empty() {
            let spared = store::spare(batch.connection(), &changed).await?;
            tracing::info!(policy = %self.policy.name, resources = spared.len(), "Spared what changed after it was seen");
            self.write_record(batch, "spare", &spared).await?;
            spine::metrics::orphans(self.policy.name.as_str(), "spared", spared.len() as u64);
        }
        spine::metrics::orphans(self.policy.name.as_str(), "dropped", orphans);
        Ok(names.len() as u64)
    }

    async fn write_record(&self, batch: &mut Batch, action: &str, names: &[String]) -> Result<()> {
        let claim = batch.claim.clone();
        for part in names.chunks(NAMES_IN_RECORD) {
            let mut entry = Entry::new(action, "ebb");
            entry.policy = Some(claim.unit.policy.clone());
            entry.policy_version = Some(claim.policy_version);
            entry.relation = Some(claim.unit.leaf.clone());
            entry.rows = part.len() as i64;
            entry.run = Some(batch.run);
            entry.node = Some(claim.node.clone());
            entry.details = serde_json::json!({ "resources": part });
            entry.insert(batch.connection()).await?;
        }
        Ok(())
    }
}
