//! Holders that are dead for a third of their term: all their references go at once. Invariant: locked FOR UPDATE first,
//! so that a reference under way is either seen or refused; whoever is dead stays dead.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::removal::NAMES_IN_RECORD;
use super::store;
use crate::Result;
use crate::audit::Entry;
use crate::spine::batch::Batch;
use crate::spine::{Chore, Outcome};

/// One pass over the holders.
pub(super) struct Holders;

impl Chore for Holders {
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>> {
        async move {
            let size = batch.size.max(1).min(NAMES_IN_RECORD as u64);
            let ended = store::end_dead_holders(batch.connection(), size).await?;
            if !ended.is_empty() {
                tracing::info!(holders = ended.len(), names = ?ended.iter().take(10).collect::<Vec<_>>(),
                    "Ended holders whose term ran out");
                let mut entry = Entry::new("holders", "ebb");
                entry.relation = Some("ebb.holder".into());
                entry.rows = ended.len() as i64;
                entry.node = Some(batch.claim.node.clone());
                entry.run = Some(batch.run);
                entry.details = serde_json::json!({ "holders": ended });
                entry.insert(batch.connection()).await?;
            }
            let changed = ended.len() as u64;
            Ok(Outcome { changed, more: changed == size })
        }
        .boxed()
    }

    fn cutoff(&self) -> Option<Timestamp> {
        None
    }

    fn shape(&self) -> Option<String> {
        None
    }
}
