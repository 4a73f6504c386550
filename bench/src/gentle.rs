//! Beside a foreground that leaves no slack: pgbench's read-write script on 8 connections, in slices of ten seconds with
//! and without a sweep, pooled. The document's loop (10,000 rows, 100 ms) is measured in the same run.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ebb::spine::{NodeOptions, Shutdown};
use sqlx::{Connection, PgConnection};

use crate::bed::{Bed, Goal, Result};

const SLICE_SECONDS: u64 = 10;
const ROUNDS: usize = 3;
const HEAD_START: Duration = Duration::from_millis(500);

const POLICY: &str =
    "[[expire]]\nname = \"gentle\"\ntable = \"public.k\"\ncolumn = \"expires_at\"\nbrake = { share = 1.0 }";

/// Latencies of the foreground, in milliseconds, and the rows removed meanwhile.
#[derive(Default)]
pub(crate) struct Pool {
    latencies: Vec<f64>,
    rows: u64,
    seconds: f64,
}

impl Pool {
    pub(crate) fn p99(&mut self) -> f64 {
        self.latencies.sort_by(f64::total_cmp);
        self.latencies.get(self.latencies.len() * 99 / 100).copied().unwrap_or(f64::NAN)
    }

    fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }

    fn rows_per_second(&self) -> f64 {
        self.rows as f64 / self.seconds
    }
}

pub(crate) async fn run() -> Result<Vec<Goal>> {
    let bed = Bed::new().await?;
    pgbench(&bed, &["-i", "-q", "-s", "20"])?;
    bed.fill("k", 5_000_000, 1_000_000, false).await?;
    bed.apply(POLICY).await?;
    slice(&bed, &mut Pool::default()).await?;

    let (mut alone, mut ebb, mut document) = (Pool::default(), Pool::default(), Pool::default());
    for round in 1..=ROUNDS {
        slice(&bed, &mut alone).await?;
        beside_ebb(&bed, &mut ebb).await?;
        slice(&bed, &mut alone).await?;
        beside_document(&bed, &mut document).await?;
        println!(
            "gentle, round {round}: alone {:.0}/s, beside ebb {:.0}/s ({:.0} rows/s), beside the document's loop {:.0}/s ({:.0} rows/s)",
            alone.rate(),
            ebb.rate(),
            ebb.rows_per_second(),
            document.rate(),
            document.rows_per_second()
        );
    }
    let p99 = alone.p99();
    println!(
        "gentle: 99th percentile alone {p99:.2} ms, beside ebb {:.2}, beside the document's loop {:.2}",
        ebb.p99(),
        document.p99()
    );
    println!(
        "gentle: the document's loop costs {:.0} % of the throughput",
        (1.0 - document.rate() / alone.rate()) * 100.0
    );
    Ok(vec![
        Goal::at_least(
            "gentle: rows/s removed over the document's loop",
            ebb.rows_per_second() / document.rows_per_second(),
            1.0,
        ),
        Goal::at_most("gentle: foreground's 99th percentile over alone", ebb.p99() / p99, 1.25),
        Goal::at_most("gentle: share of throughput that it costs", 1.0 - ebb.rate() / alone.rate(), 0.10),
        Goal::at_least("for comparison, the document's loop: 99th percentile over alone", document.p99() / p99, 1.0),
    ])
}

async fn beside_ebb(bed: &Bed, pool: &mut Pool) -> Result<()> {
    let before: i64 =
        bed.database.scalar("SELECT coalesce(sum(rows), 0)::int8 FROM ebb.audit WHERE action = 'expire'").await;
    let shutdown = Shutdown::new();
    let options = NodeOptions { only: vec!["gentle".parse()?], ..NodeOptions::default() };
    let node = bed.engine.node(options, shutdown.clone());
    let running = tokio::spawn(async move {
        // The foreground is there first: what a sweep takes while it is alone does not count.
        tokio::time::sleep(HEAD_START).await;
        node.run_once(Duration::ZERO).await
    });
    slice(bed, pool).await?;
    shutdown.stop();
    running.await??;
    let after: i64 =
        bed.database.scalar("SELECT coalesce(sum(rows), 0)::int8 FROM ebb.audit WHERE action = 'expire'").await;
    pool.rows += (after - before) as u64;
    Ok(())
}

async fn beside_document(bed: &Bed, pool: &mut Pool) -> Result<()> {
    let url = bed.database.socket_url().to_owned();
    let shutdown = Shutdown::new();
    let stop = shutdown.clone();
    let sweeping = tokio::spawn(async move {
        tokio::time::sleep(HEAD_START).await;
        let mut connection = PgConnection::connect(&url).await?;
        let mut rows = 0;
        while !stop.is_stopping() {
            rows += sqlx::query(
                "DELETE FROM k WHERE key IN (SELECT key FROM k WHERE expires_at < NOW() ORDER BY expires_at ASC LIMIT 10000)",
            )
            .execute(&mut connection)
            .await?
            .rows_affected();
            stop.sleep(Duration::from_millis(100)).await;
        }
        Ok::<u64, sqlx::Error>(rows)
    });
    slice(bed, pool).await?;
    shutdown.stop();
    pool.rows += sweeping.await??;
    Ok(())
}

/// Ten seconds of pgbench, every transaction's latency kept.
pub(crate) async fn slice(bed: &Bed, pool: &mut Pool) -> Result<()> {
    let dir = ebb_testkit::TempDir::new();
    let prefix = dir.path().join("log").display().to_string();
    let seconds = SLICE_SECONDS.to_string();
    let began = Instant::now();
    tokio::task::block_in_place(|| {
        pgbench(bed, &["-n", "-c", "8", "-j", "2", "-T", &seconds, "-l", "--log-prefix", &prefix])
    })?;
    pool.seconds += began.elapsed().as_secs_f64();
    for entry in std::fs::read_dir(dir.path())? {
        let text = std::fs::read_to_string(entry?.path())?;
        let micros = text.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<f64>().ok());
        pool.latencies.extend(micros.map(|micros| micros / 1000.0));
    }
    Ok(())
}

pub(crate) fn pgbench(bed: &Bed, args: &[&str]) -> Result<()> {
    let port = bed.server.address().port().to_string();
    let dir = bed.server.dir().display().to_string();
    let bin = bed.server.bin().canonicalize()?;
    let program = [bin.join("pgbench"), "/usr/bin/pgbench".into()].into_iter().find(|path| path.exists());
    let status = Command::new(program.ok_or("pgbench is not installed")?)
        .args(["-h", &dir, "-p", &port, "-U", "postgres"])
        .args(args)
        .arg(bed.database.name())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("pgbench failed: {status}").into()) }
}
