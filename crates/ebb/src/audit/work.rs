//! The sealing chore: every few seconds new records become a signed block, and the latest seal is published.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sqlx::PgConnection;

use super::{Destination, MAX_RECORDS, SigningKey, seal_once, unsealed};
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
}

impl SealWork {
    pub(crate) fn new(table: u32, key: Arc<SigningKey>, publish: Destination) -> Self {
        let unit = Unit { chore: ChoreKind::Seal, policy: "audit".into(), leaf: "ebb.audit".into() };
        Self { unit, table, key, publish }
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
