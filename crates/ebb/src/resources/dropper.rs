//! The dropper: what nobody refers to is condemned, what stays condemned for its grace is claimed, what is claimed is
//! dropped. Invariant: a claim is made under a lock, after a look at references in a statement of its own; nothing else
//! leads to a drop.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::removal::Removal;
use super::store;
use crate::Result;
use crate::policy::Resources;
use crate::spine::batch::Batch;
use crate::spine::{Chore, Outcome};

/// One pass over a policy's resources.
pub(super) struct Dropper {
    pub(super) policy: Arc<Resources>,
    pub(super) removal: Removal,
    pub(super) phase: Phase,
    /// Told to the unit: when there is something to do before its interval is over.
    pub(super) soonest: Arc<Mutex<Option<Timestamp>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Condemn,
    Claim,
    Drop,
}

impl Dropper {
    async fn step(&mut self, batch: &mut Batch) -> Result<Outcome> {
        let (name, grace, size) = (batch.claim.unit.policy.clone(), self.policy.grace, batch.size.max(1));
        let go_on = Outcome { changed: 0, more: true };
        match self.phase {
            Phase::Condemn => {
                let (looked_at, condemned) = store::condemn(batch.connection(), &name, size).await?;
                if condemned > 0 {
                    tracing::debug!(policy = name, resources = condemned, "Nobody refers to them any more");
                }
                if looked_at < size {
                    self.phase = Phase::Claim;
                }
                Ok(go_on)
            }
            Phase::Claim => {
                let judged = store::judge(batch.connection(), &name, grace, size).await?;
                if judged.rescued > 0 {
                    tracing::info!(policy = name, resources = judged.rescued, "Referred to again in time");
                }
                if judged.claimed > 0 {
                    tracing::debug!(policy = name, resources = judged.claimed, "Claimed for dropping");
                }
                if judged.looked_at < size {
                    self.phase = Phase::Drop;
                }
                Ok(go_on)
            }
            Phase::Drop => {
                let mut changed = 0;
                if self.removal.is_done() {
                    changed = self.removal.record(batch).await?;
                }
                let more = self.removal.load(batch, size, false).await?;
                if !more {
                    let soonest = store::soonest(batch.connection(), &name, grace).await?;
                    *self.soonest.lock().unwrap_or_else(PoisonError::into_inner) = soonest;
                }
                Ok(Outcome { changed, more })
            }
        }
    }
}

impl Chore for Dropper {
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>> {
        self.step(batch).boxed()
    }

    fn acts(&self) -> bool {
        self.removal.is_loaded()
    }

    fn act(&mut self) -> BoxFuture<'_, Result<()>> {
        self.removal.act().boxed()
    }

    fn cutoff(&self) -> Option<Timestamp> {
        None
    }

    fn shape(&self) -> Option<String> {
        None
    }
}
