//! Events beside the job queues that people use, and beside the bare thing. Peers run on the same server in the same run,
//! each in a database of its own, drained in turns with Ebb.

mod claim;
mod drain;
mod hook;
mod latency;
mod peer;
mod write;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use ebb::schedule::sink::{Delivery, Sink, Verdict};
use ebb::spine::{NodeOptions, Shutdown};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::sync::Arc;

use crate::bed::{Bed, Goal, Result};

/// All of it, or one part: `schedule-drain`, `-claim`, `-hook`, `-write`, `-latency`.
pub(crate) async fn run(part: &str) -> Result<Vec<Goal>> {
    let wants = |name: &str| matches!(part, "all" | "schedule") || part.strip_prefix("schedule-") == Some(name);
    let mut goals = Vec::new();
    if wants("drain") {
        goals.extend(drain::run().await?);
    }
    if wants("claim") {
        goals.extend(claim::run().await?);
    }
    if wants("hook") {
        goals.extend(hook::run().await?);
    }
    if wants("write") {
        goals.extend(write::run().await?);
    }
    if wants("latency") {
        goals.extend(latency::run().await?);
    }
    Ok(goals)
}

/// A sink that does nothing but say when it was called, and for what.
#[derive(Clone, Default)]
struct Noop(Arc<Mutex<Vec<(Instant, jiff::Timestamp)>>>);

impl Noop {
    fn calls(&self) -> Vec<(Instant, jiff::Timestamp)> {
        self.0.lock().map(|calls| calls.clone()).unwrap_or_default()
    }

    fn clear(&self) {
        if let Ok(mut calls) = self.0.lock() {
            calls.clear();
        }
    }
}

impl Sink for Noop {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Verdict> {
        if let Ok(mut calls) = self.0.lock() {
            calls.push((Instant::now(), delivery.due_at));
        }
        ready(Verdict::Delivered { response: None }).boxed()
    }
}

/// A bed with a sink `noop`.
async fn bed() -> Result<(Bed, Noop)> {
    let mut bed = Bed::new().await?;
    bed.apply("[sinks.noop]\ntype = \"handler\"\nconcurrency = 64\n").await?;
    let noop = Noop::default();
    bed.engine = bed.engine.clone().on("noop", noop.clone());
    Ok((bed, noop))
}

/// Schedules so many events, due from `first` on, `step` apart: SQL intervals.
async fn schedule(bed: &Bed, sink: &str, events: u64, first: &str, step: &str) {
    for start in (0..events).step_by(50_000) {
        let end = (start + 50_000).min(events);
        bed.database
            .execute(&format!(
                "SELECT count(*) FROM ebb.schedule_many((SELECT jsonb_agg(jsonb_build_object('sink', '{sink}',
                     'due_at', now() + interval '{first}' + i * interval '{step}', 'payload', jsonb_build_object('n', i)))
                 FROM generate_series({start}, {end} - 1) AS i))"
            ))
            .await;
    }
    bed.database.execute("VACUUM ANALYZE ebb.event").await;
    bed.database.execute("CHECKPOINT").await;
}

/// Events a second of a node that does all that is due, from its start to its end.
async fn drain(bed: &Bed, events: u64) -> Result<f64> {
    let options = NodeOptions { only: vec!["events".parse()?], ..NodeOptions::default() };
    let begun = Instant::now();
    bed.engine.node(options, Shutdown::new()).run_once(Duration::ZERO).await?;
    let per_second = events as f64 / begun.elapsed().as_secs_f64();
    let left: i64 = bed.database.scalar("SELECT count(*) FROM ebb.event WHERE ready_at <= ebb.now()").await;
    match left {
        0 => Ok(per_second),
        left => Err(format!("{left} events were not delivered").into()),
    }
}
