//! The sealing chore: every few seconds new records become a signed block, and the latest seal is published. Invariant: what is sealed is
//! published by a later run where the one that sealed it could not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sqlx::PgConnection;

use super::{Destination, MAX_RECORDS, Published, SigningKey, seal_once, unsealed};
use crate::Result;
use crate::pg::Database;
use crate::spine::batch::Batch;
use crate::spine::pacing::Pacer;
use crate::spine::unit::{ChoreKind, Unit};
use crate::spine::work::{Prepared, Status, Summary, Work};
use crate::spine::{Chore, Outcome, metrics};

/// How often records are sealed.
const EVERY: Duration = Duration::from_secs(10);
/// The gauge counts no further.
const COUNT_UP_TO: i64 = 100_000;

/// Seals with a key that this node has.
pub(crate) struct SealWork {
    unit: Unit,
    table: u32,
    key: Arc<SigningKey>,
    publish: Destination,
    /// It was said that a seal waits to be published.
    told: AtomicBool,
}

impl SealWork {
    pub(crate) fn new(table: u32, key: Arc<SigningKey>, publish: Destination) -> Self {
        let unit = Unit { chore: ChoreKind::Seal, policy: "audit".into(), leaf: "ebb.audit".into() };
        Self { unit, table, key, publish, told: AtomicBool::new(false) }
    }

    /// Publishes what an earlier run sealed and could not publish. Sealing goes on whatever comes of it.
    async fn catch_up(&self, connection: &mut PgConnection) -> Result<()> {
        let caught_up = match self.publish.behind(connection).await {
            Ok(None) => Ok(None),
            Ok(Some(_)) => self.publish.publish_tip(connection).await,
            Err(error) => Err(error),
        };
        match caught_up {
            Err(error) if error.is_unavailable() || error.sqlstate().is_some() => return Err(error),
            Err(error) if !self.told.swap(true, Ordering::Relaxed) => {
                tracing::warn!(error = %error, hint = error.hint(), "The latest seal is not published yet; trying again");
            }
            Err(_) => {}
            Ok(published) => {
                self.told.store(false, Ordering::Relaxed);
                if let Some(Published { number, seal, .. }) = published {
                    tracing::info!(block = number, seal, "Published a seal that had waited for it");
                }
            }
        }
        Ok(())
    }
}

impl Work for SealWork {
    fn unit(&self) -> &Unit {
        &self.unit
    }

    fn leaf(&self) -> u32 {
        self.table
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn interval(&self) -> Duration {
        EVERY
    }

    fn next_at(&self, now: Timestamp, _: u64) -> Timestamp {
        now.saturating_add(EVERY).unwrap_or(Timestamp::MAX)
    }

    fn keeps_history(&self) -> bool {
        false
    }

    fn prepare<'a>(&'a self, connection: &'a mut PgConnection) -> BoxFuture<'a, Result<Prepared>> {
        async move {
            let waiting = unsealed(connection, COUNT_UP_TO).await?;
            metrics::unsealed(waiting.max(0) as u64);
            if waiting == 0 {
                self.catch_up(connection).await?;
                return Ok(Prepared::Idle);
            }
            let size = MAX_RECORDS as u64;
            let chore = Box::new(Sealing { key: self.key.clone() });
            Ok(Prepared::Go { chore, pacer: Pacer::adaptive(size, 100, size), due: None })
        }
        .boxed()
    }

    fn after_run<'a>(&'a self, database: &'a Database, summary: &'a Summary) -> BoxFuture<'a, Result<()>> {
        async move {
            if summary.rows > 0 {
                let published = self.publish.publish(database).await?;
                let (number, seal) = published.map(|p| (p.number, p.seal)).unzip();
                tracing::info!(records = summary.rows, block = number, seal, "Sealed audit records");
            }
            Ok(())
        }
        .boxed()
    }

    fn report(&self, summary: &Summary) {
        if summary.status == Status::Failed {
            tracing::error!(error = summary.note, "Could not seal the audit");
        }
    }
}

struct Sealing {
    key: Arc<SigningKey>,
}

impl Chore for Sealing {
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>> {
        async move {
            let size = batch.size as usize;
            Ok(match seal_once(batch.connection(), &self.key, size).await? {
                Some(seal) => Outcome { changed: seal.block.records as u64, more: seal.more },
                None => Outcome::default(),
            })
        }
        .boxed()
    }

    // Sealing touches no row of a user's table, and proof must not wait for a budget.
    fn rows_in(&self, _size: u64) -> u64 {
        0
    }

    fn cutoff(&self) -> Option<Timestamp> {
        None
    }

    fn shape(&self) -> Option<String> {
        None
    }
}
