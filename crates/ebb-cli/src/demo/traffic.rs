//! The application beside which Ebb works: events that come in all the time, and orders that are delivered more than
//! once. Invariant: it counts what it did, so that at the end the tables can be checked against it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ebb::Result;
use ebb::once::{Claim, Once};
use ebb::pg::Database;
use tokio::task::JoinSet;

use super::store;

const ORDERS: u64 = 1_000;
const DELIVERIES: u64 = 3;
const WORKERS: u64 = 4;

/// What the application has done.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) inserted: AtomicU64,
    pub(crate) orders: AtomicU64,
    pub(crate) first: AtomicU64,
    pub(crate) duplicate: AtomicU64,
    pub(crate) other: AtomicU64,
    stop: AtomicBool,
}

/// Traffic that runs until it is stopped.
pub(crate) struct Traffic {
    pub(crate) done: Arc<Done>,
    tasks: JoinSet<Result<()>>,
}

impl Traffic {
    pub(crate) fn start(database: &Database) -> Self {
        let done = Arc::new(Done::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(events(database.clone(), done.clone()));
        for worker in 0..WORKERS {
            tasks.spawn(burst(Once::new(database.clone(), "orders"), worker, done.clone()));
        }
        tasks.spawn(orders(Once::new(database.clone(), "orders"), done.clone()));
        Self { done, tasks }
    }

    /// Stops it between two transactions, so that what was counted is what was committed.
    pub(crate) async fn stop(&mut self) -> Result<()> {
        self.done.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(|error| ebb::Error::failed(format!("the demo's traffic ended abnormally: {error}")))??;
        }
        Ok(())
    }
}

impl Done {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn count(&self, claim: &Claim) {
        let counter = match claim {
            Claim::First => &self.first,
            Claim::Duplicate { .. } => &self.duplicate,
            Claim::InProgress | Claim::Mismatch => &self.other,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Events come in, twenty at a time.
async fn events(database: Database, done: Arc<Done>) -> Result<()> {
    const AT_ONCE: u64 = 20;
    while !done.stopped() {
        let from = done.inserted.load(Ordering::Relaxed);
        store::insert_live(&database, AT_ONCE as i32, from as i64).await?;
        done.inserted.fetch_add(AT_ONCE, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// A queue that delivers every order three times, to four workers at once: of each order one delivery is the first.
async fn burst(once: Once, worker: u64, done: Arc<Done>) -> Result<()> {
    for delivery in (worker..ORDERS * DELIVERIES).step_by(WORKERS as usize) {
        let order = delivery % ORDERS;
        if delivery < ORDERS {
            done.orders.fetch_add(1, Ordering::Relaxed);
        }
        done.count(&once.claim(&format!("order-{order}")).await?);
    }
    Ok(())
}

/// Later ones, now and then, each delivered twice.
async fn orders(once: Once, done: Arc<Done>) -> Result<()> {
    for order in ORDERS.. {
        for _ in 0..10 {
            if done.stopped() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        done.orders.fetch_add(1, Ordering::Relaxed);
        for _ in 0..2 {
            done.count(&once.claim(&format!("order-{order}")).await?);
        }
    }
    Ok(())
}
