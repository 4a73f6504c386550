//! Events that do nothing, from a full table to an empty one: durable completion, history kept.

use std::collections::HashMap;

use super::peer::PEERS;
use super::{bed, drain, schedule};
use crate::bed::{Goal, Result, median};

const EVENTS: u64 = 100_000;
const FUTURE: u64 = 1_000_000;
const OVERDUE: u64 = 200_000;
const ROUNDS: usize = 3;

pub(super) async fn run() -> Result<Vec<Goal>> {
    let (bed, noop) = bed().await?;
    let (mut ours, mut theirs): (Vec<f64>, HashMap<&str, Vec<f64>>) = (Vec::new(), HashMap::new());
    for round in 0..ROUNDS {
        schedule(&bed, "noop", EVENTS, "-1 second", "0").await;
        let rate = drain(&bed, EVENTS).await?;
        println!("drain {EVENTS} events: {rate:.0}/s");
        ours.push(rate);
        for peer in &PEERS {
            // The slow ones are far away; once is enough.
            if round > 0 && peer.jobs < 10_000 {
                continue;
            }
            if let Some(rate) = peer.measure(&bed, "drain", peer.jobs).await? {
                println!("drain {} of {}: {rate:.0}/s", peer.jobs, peer.name);
                theirs.entry(peer.name).or_default().push(rate);
            }
        }
    }
    let ours = median(ours);
    let mut goals = Vec::new();
    let mut best = 0.0_f64;
    for peer in &PEERS {
        if let Some(rates) = theirs.get(peer.name) {
            let rate = median(rates.clone());
            println!("ebb {ours:.0}/s, {} {rate:.0}/s: {:.2}", peer.name, ours / rate);
            best = best.max(rate);
        }
    }
    if best > 0.0 {
        goals.push(Goal::at_least("schedule: no-op events/s over the best peer", ours / best, 2.0));
    }

    let (mut plain, mut beside, mut overdue) = (Vec::new(), Vec::new(), Vec::new());
    schedule(&bed, "noop", FUTURE, "30 days", "1 second").await;
    for _ in 0..ROUNDS {
        schedule(&bed, "noop", EVENTS, "-1 second", "0").await;
        beside.push(drain(&bed, EVENTS).await?);
    }
    bed.database.execute("TRUNCATE ebb.event").await;
    for _ in 0..ROUNDS {
        schedule(&bed, "noop", EVENTS, "-1 second", "0").await;
        plain.push(drain(&bed, EVENTS).await?);
        schedule(&bed, "noop", OVERDUE, "-1 day", "400 milliseconds").await;
        noop.clear();
        overdue.push(drain(&bed, OVERDUE).await?);
    }
    let in_order = in_order(&noop.calls().iter().map(|(_, due)| *due).collect::<Vec<_>>());
    println!("plain {plain:.0?}/s, beside {FUTURE} future rows {beside:.0?}/s, {OVERDUE} overdue {overdue:.0?}/s");
    let plain = median(plain);
    goals.push(Goal::at_most("schedule: time beside 1M future rows over without", plain / median(beside), 1.1));
    goals.push(Goal::at_least("schedule: events/s of 200k overdue over just due", median(overdue) / plain, 0.9));
    goals.push(Goal::at_least(
        "schedule: share of overdue events called within 1,000 places of their age",
        in_order,
        0.99,
    ));
    Ok(goals)
}

/// The share of calls whose place is near the one that the events' age gives them: many are under way at once.
fn in_order(due: &[jiff::Timestamp]) -> f64 {
    let mut by_age: Vec<usize> = (0..due.len()).collect();
    by_age.sort_by_key(|call| due[*call]);
    let near = by_age.iter().enumerate().filter(|(place, call)| place.abs_diff(**call) <= 1_000).count();
    near as f64 / due.len().max(1) as f64
}
