//! awa: prints one JSON line. usage: awa-peer URL drain|latency N

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use awa::{Client, InsertOpts, JobArgs, JobResult, QueueConfig};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::Notify;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Serialize, Deserialize, JobArgs)]
struct Noop {
    n: u64,
}

/// How many jobs were handled.
#[derive(Default)]
struct Seen {
    count: AtomicU64,
    changed: Notify,
}

impl Seen {
    async fn reach(&self, n: u64) -> Instant {
        loop {
            let changed = self.changed.notified();
            if self.count.load(Ordering::Acquire) >= n {
                return Instant::now();
            }
            changed.await;
        }
    }
}

/// A worker with many slots, two claimers, and no deadline: the short path of its storage.
fn client(pool: &PgPool, seen: &Arc<Seen>) -> Result<Client> {
    let queue = QueueConfig {
        max_workers: 512,
        claimers: 2,
        deadline_duration: Duration::ZERO,
        poll_interval: Duration::from_millis(50),
        ..QueueConfig::default()
    };
    let seen = seen.clone();
    let builder = Client::builder(pool.clone()).queue("noop", queue);
    let builder = builder.register::<Noop, _, _>(move |_: Noop, _| {
        let seen = seen.clone();
        async move {
            seen.count.fetch_add(1, Ordering::AcqRel);
            seen.changed.notify_waiters();
            Ok(JobResult::Completed)
        }
    });
    Ok(builder.build()?)
}

fn opts() -> InsertOpts {
    InsertOpts { queue: "noop".into(), ..InsertOpts::default() }
}

async fn drain(pool: &PgPool, n: u64) -> Result<f64> {
    // Its storage is made by the first worker that starts.
    let first = client(pool, &Arc::default())?;
    first.start().await?;
    first.shutdown(Duration::from_secs(30)).await;
    for from in (0..n).step_by(500) {
        let jobs: std::result::Result<Vec<_>, _> =
            (from..n.min(from + 500)).map(|n| awa::model::insert::params_with(&Noop { n }, opts())).collect();
        awa::insert_many_copy_from_pool(pool, &jobs?).await?;
    }
    let seen = Arc::new(Seen::default());
    let client = client(pool, &seen)?;
    let begun = Instant::now();
    client.start().await?;
    seen.reach(n).await;
    // What was handled is completed by the time the client has stopped.
    client.shutdown(Duration::from_secs(30)).await;
    Ok(n as f64 / begun.elapsed().as_secs_f64())
}

async fn latency(pool: &PgPool, n: u64) -> Result<f64> {
    let seen = Arc::new(Seen::default());
    let client = client(pool, &seen)?;
    client.start().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut times = Vec::new();
    for n in 0..n {
        tokio::time::sleep(Duration::from_millis(100)).await;
        awa::insert_with(pool, &Noop { n }, opts()).await?;
        let committed = Instant::now();
        let arrived = seen.reach(n + 1).await;
        times.push(arrived.saturating_duration_since(committed).as_secs_f64() * 1e3);
    }
    client.shutdown(Duration::from_secs(30)).await;
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, url, command, count] = arguments.as_slice() else { return Err("usage: URL drain|latency N".into()) };
    let count = count.parse()?;
    let pool = PgPoolOptions::new().max_connections(16).connect(url).await?;
    awa::migrations::run(&pool).await?;
    match command.as_str() {
        "drain" => println!("{{\"per_second\": {}}}", drain(&pool, count).await?),
        _ => println!("{{\"median_ms\": {}}}", latency(&pool, count).await?),
    }
    Ok(())
}
