//! How long after a commit the handler of an idle node is called.

use std::time::{Duration, Instant};

use ebb::spine::{NodeOptions, Shutdown};
use sqlx::{Connection, PgConnection};

use super::bed;
use super::peer::PEERS;
use crate::bed::{Goal, Result, median};

const EVENTS: u64 = 40;

pub(super) async fn run() -> Result<Vec<Goal>> {
    let (bed, noop) = bed().await?;
    let shutdown = Shutdown::new();
    let options = NodeOptions { only: vec!["events".parse()?], ..NodeOptions::default() };
    let node = tokio::spawn(bed.engine.node(options, shutdown.clone()).run());
    let mut connection = PgConnection::connect(bed.database.url()).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut times = Vec::new();
    for sent in 1..=EVENTS as usize {
        tokio::time::sleep(Duration::from_millis(100)).await;
        sqlx::query("SELECT ebb.schedule('noop', now(), '{}')").execute(&mut connection).await?;
        let committed = Instant::now();
        let called = loop {
            match noop.calls().get(sent - 1) {
                Some((called, _)) => break *called,
                None => tokio::time::sleep(Duration::from_micros(200)).await,
            }
        };
        times.push(called.saturating_duration_since(committed).as_secs_f64() * 1_000.0);
    }
    shutdown.stop();
    node.await??;
    let ours = median(times);
    println!("commit to handler at idle: {ours:.1} ms");
    for peer in &PEERS {
        if let Some(theirs) = peer.measure(&bed, "latency", EVENTS / 2).await? {
            println!("commit to handler at idle, {}: {theirs:.1} ms", peer.name);
        }
    }
    Ok(vec![Goal::at_most("schedule: commit to handler at idle, median ms", ours, 10.0)])
}
