//! Writes down how deliveries ended, many in a transaction: while one commit is under way the next batch gathers, and
//! where several end at once, a moment longer: a transaction costs more than a line in it.
//! Invariants: an answer is kept until it is written or its claim is another's; one that cannot be written does not keep
//! the others from it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::store::{self, Record};
use crate::pg::{Database, answered};
use crate::{Error, Result};

/// The most that one transaction writes.
const BATCH: usize = 1_000;
/// Several that end at once have others behind them, worth waiting for …
const SEVERAL: usize = 4;
/// … for so long, until there are …
const GATHER: Duration = Duration::from_millis(8);
/// … this many. A death in between only repeats what would have been on its way to the disk anyway.
const ENOUGH: usize = 256;
/// So many transactions at a time.
const WRITERS: usize = 2;
/// A batch takes no longer, or counts as no answer.
const WITHIN: Duration = Duration::from_secs(30);

/// What became of a batch: every id, and whether its claim was still this node's.
pub(super) type Written = Vec<(Uuid, bool)>;

/// The writers. They end when the last sender is gone and everything is written.
pub(super) fn start(
    database: Database,
    node: String,
    records: mpsc::UnboundedReceiver<Record>,
    written: mpsc::UnboundedSender<Written>,
) -> JoinSet<()> {
    let records = Arc::new(Mutex::new(records));
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let (database, node, records, written) = (database.clone(), node.clone(), records.clone(), written.clone());
        writers.spawn(async move {
            loop {
                let batch = gather(&mut *records.lock().await).await;
                if batch.is_empty() {
                    return;
                }
                let done = write(&database, &batch, &node).await;
                let _ = written.send(done);
            }
        });
    }
    writers
}

/// The next batch; none when there will be no more.
async fn gather(records: &mut mpsc::UnboundedReceiver<Record>) -> Vec<Record> {
    let mut batch = Vec::with_capacity(64);
    records.recv_many(&mut batch, BATCH).await;
    if (SEVERAL..ENOUGH).contains(&batch.len()) && !records.is_closed() {
        tokio::time::sleep(GATHER).await;
        while batch.len() < BATCH
            && let Ok(record) = records.try_recv()
        {
            batch.push(record);
        }
    }
    batch
}

/// Writes a batch, however long the database is away.
async fn write(database: &Database, batch: &[Record], node: &str) -> Written {
    let mut pause = Duration::from_millis(50);
    loop {
        match try_write(database, batch, node).await {
            Ok(written) => return written,
            Err(error) if error.is_unavailable() || batch.len() == 1 && error.is_contended() => {
                tracing::debug!(error = %error, "Could not write down deliveries; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
            Err(error) => return apart(database, batch, node, error).await,
        }
    }
}

/// One answer that cannot be written must not take the others with it.
fn apart<'a>(database: &'a Database, batch: &'a [Record], node: &'a str, error: Error) -> BoxFuture<'a, Written> {
    async move {
        if let [one] = batch {
            tracing::error!(occurrence = %one.id, error = %error, "Could not write down a delivery; it is made again");
            return vec![(one.id, false)];
        }
        let (left, right) = batch.split_at(batch.len() / 2);
        let mut written = write(database, left, node).await;
        written.extend(write(database, right, node).await);
        written
    }
    .boxed()
}

async fn try_write(database: &Database, batch: &[Record], node: &str) -> Result<Written> {
    let written = answered(WITHIN, transact(database, batch, node)).await;
    // No partition for today, as on the first day after a long time without a node.
    let written = match written {
        Err(error) if error.sqlstate().as_deref() == Some("23514") => {
            answered(WITHIN, extend(database)).await?;
            answered(WITHIN, transact(database, batch, node)).await
        }
        written => written,
    };
    let counted: std::collections::HashSet<Uuid> = written?.into_iter().collect();
    Ok(batch.iter().map(|record| (record.id, counted.contains(&record.id))).collect())
}

async fn transact(database: &Database, batch: &[Record], node: &str) -> Result<Vec<Uuid>> {
    let mut tx = database.read().await?;
    let counted = store::record(&mut tx, batch, node).await?;
    tx.commit().await?;
    Ok(counted)
}

/// Makes the history's next partitions.
pub(super) async fn extend(database: &Database) -> Result<()> {
    let mut tx = database.read().await?;
    store::extend_history(&mut tx).await?;
    Ok(tx.commit().await?)
}
