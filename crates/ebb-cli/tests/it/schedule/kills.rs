//! Nodes that die at any moment while they deliver: every event arrives, and a repeat is what was under way at a death.

use std::time::Duration;

use ebb_testkit::{database, eventually};

use super::{Receiver, apply, done, node, schedule, stop};

const EVENTS: usize = 20_000;
const KILLS: u64 = 20;
const CONCURRENCY: usize = 32;

#[tokio::test(flavor = "multi_thread")]
async fn nodes_killed_at_random_deliver_everything_and_repeat_only_what_was_under_way() {
    let db = database().await;
    let receiver = Receiver::start().await;
    apply(&db, &receiver, &format!("concurrency = {CONCURRENCY}\n")).await;
    schedule(&db, EVENTS).await;
    let mut nodes = vec![node("a", db.url()), node("b", db.url()), node("c", db.url())];
    eventually(super::SOON, || async { receiver.counts().0 > 100 }).await;
    let mut under_way = 0;
    for kill in 0..KILLS {
        // Spread over the whole: the next one dies when its share has arrived.
        let share = EVENTS as u64 * (kill + 1) / (KILLS + 2);
        eventually(Duration::from_secs(120), || async { receiver.counts().0 as u64 >= share }).await;
        let victim = (kill as usize * 7 + 1) % nodes.len();
        let recorded = done(&db).await;
        nodes[victim].kill9();
        // What had arrived by then, or was on the wire, and is not written down: at most this comes again.
        under_way += receiver.counts().0 - recorded as usize + CONCURRENCY;
        nodes[victim] = node(&format!("n{kill}"), db.url());
    }
    eventually(Duration::from_secs(180), || async { done(&db).await == EVENTS as i64 }).await;
    for node in nodes {
        stop(node).await;
    }
    let (arrived, repeats) = receiver.counts();
    assert_eq!(arrived, EVENTS);
    assert!(repeats <= under_way, "{repeats} repeats, {under_way} under way at the kills");
    println!("{repeats} repeats, at most {under_way} under way at the kills");
    let left: i64 = db.scalar("SELECT count(*) FROM ebb.event").await;
    let twice: i64 = db.scalar("SELECT count(*) - count(DISTINCT id) FROM ebb.event_history").await;
    assert_eq!((left, twice), (0, 0), "each is in the history once and nowhere else");
}
