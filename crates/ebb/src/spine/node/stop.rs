//! How a node ends. Invariants: within `stop_within`, whatever the database does; a batch ends whole or is cancelled; every
//! lease goes back with owner and generation named.

use super::Node;
use crate::spine::batch::Backend;
use crate::spine::store;
use crate::{Error, Result};

impl Node {
    /// Ends the runs, then says goodbye, so that nobody counts this node as alive.
    pub(super) async fn stop(&mut self) {
        let tenth = self.options.stop_within / 10;
        let mut services = std::mem::take(&mut self.services);
        let ended = async {
            let all = async { while services.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(tenth * 8, all).await;
        };
        tokio::join!(self.end_runs(), ended);
        let goodbye = async {
            let mut tx = self.shared.database.read().await?;
            store::leave(&mut tx, self.id).await?;
            Ok::<_, Error>(tx.commit().await?)
        };
        if let Ok(Err(error)) = tokio::time::timeout(tenth, goodbye).await {
            tracing::debug!(error = %error, "Could not say goodbye");
        }
    }

    /// Lets the current batches end; cancels what has not ended in time. Leases go back with each run's ending, and
    /// those of runs that do not end go back here. The last tenths of the time are for whoever called.
    async fn end_runs(&mut self) {
        self.shared.shutdown.stop();
        let tenth = self.options.stop_within / 10;
        if tokio::time::timeout(tenth * 4, self.drain()).await.is_ok() {
            return;
        }
        let running = self.running.values().flat_map(|running| running.backends.borrow().clone());
        let running: Vec<Backend> = running.collect();
        tracing::info!(batches = running.len(), "Cancelling the batches that have not ended in time");
        let database = self.shared.database.clone();
        let cancelled = tokio::time::timeout(tenth * 2, async {
            if let Ok(mut tx) = database.read().await {
                for backend in &running {
                    let _ = store::cancel(&mut tx, backend).await;
                }
            }
            self.drain().await;
        });
        if cancelled.await.is_ok() {
            return;
        }
        // Their transactions end with their connections; until then they keep others from taking the lease over.
        self.tasks.abort_all();
        if let Ok(Err(error)) = tokio::time::timeout(tenth, self.release()).await {
            tracing::debug!(error = %error, "Could not give leases back");
        }
    }

    async fn drain(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            self.ended(ended);
        }
    }

    /// Gives back every lease that this node still counts as its own.
    async fn release(&self) -> Result<()> {
        let mut tx = self.shared.database.read().await?;
        for (unit, running) in &self.running {
            store::release(&mut tx, unit, self.id, running.generation).await?;
        }
        Ok(tx.commit().await?)
    }
}
