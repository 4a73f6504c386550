//! An idle node sleeps, and is woken by whoever writes something that is due before it would look again, and by nobody else.

use std::time::{Duration, Instant};

use ebb::schedule::sink::Verdict;
use ebb_testkit::eventually;

use super::Desk;
use crate::harness::{SOON, execute};

/// Whether this node sleeps for a good while, as it says.
const ASLEEP: &str = "SELECT count(*) = 1 FROM ebb.event_sleeper WHERE until > ebb.clock() + interval '20 seconds'";

#[tokio::test]
async fn a_sleeping_node_is_woken_by_a_commit_and_not_by_the_poll() {
    let desk = Desk::new().await;
    let node = desk.start();
    for n in 1..=3 {
        desk.ebb.until(ASLEEP).await;
        let asked = Instant::now();
        desk.schedule("now()", n, "").await;
        eventually(SOON, || async { desk.ledger.count() == n as usize }).await;
        // It would have looked by itself after a minute.
        assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    }
    node.stop().await;
    assert_eq!(desk.count("ebb.event_sleeper").await, 0, "a node that is gone is not called");
}

#[tokio::test]
async fn a_writer_that_began_before_the_node_slept_is_waited_for() {
    let desk = Desk::new().await;
    let node = desk.start();
    desk.ebb.until(ASLEEP).await;
    // It wrote while the node was awake, saw nobody asleep, and commits when the node is.
    desk.ebb.db.execute("DELETE FROM ebb.event_sleeper").await;
    let mut writer = desk.ebb.client().await;
    execute(&mut writer, "BEGIN").await;
    execute(&mut writer, "SELECT ebb.schedule('h', now(), '{\"n\": 1}')").await;
    desk.schedule("now()", 2, "").await;
    execute(&mut writer, "NOTIFY ebb_events").await;
    // Woken by the second event's poll or by nothing: make it look, and fall asleep beside the open writer.
    desk.ebb.db.execute("NOTIFY ebb_events").await;
    eventually(SOON, || async { desk.ledger.numbers() == [2] }).await;
    desk.ebb.until(ASLEEP).await;
    let asked = Instant::now();
    execute(&mut writer, "COMMIT").await;
    eventually(SOON, || async { desk.ledger.numbers() == [2, 1] }).await;
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    node.stop().await;
}

#[tokio::test]
async fn what_is_tried_again_while_the_breaker_is_open_does_not_wait_for_the_poll() {
    let desk = Desk::with("concurrency = 1\nretry = [\"4s\"]\nbreaker = { failures = 1, probe = \"1s\" }\n").await;
    desk.ledger.answer([Verdict::transient("busy"), Verdict::transient("busy")]);
    let node = desk.start();
    desk.schedule("now()", 1, "").await;
    desk.schedule("now()", 2, "").await;
    let asked = Instant::now();
    eventually(SOON, || async { desk.ledger.count() == 4 }).await;
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    node.stop().await;
}

#[tokio::test]
async fn nobody_is_called_for_what_is_due_after_the_next_look() {
    let desk = Desk::new().await;
    let node = desk.start();
    desk.ebb.until(ASLEEP).await;
    let mut listener = sqlx::postgres::PgListener::connect(desk.ebb.db.url()).await.unwrap();
    listener.listen("ebb_events").await.unwrap();
    desk.schedule("now() + interval '1 day'", 1, "").await;
    desk.ebb
        .db
        .execute("SELECT count(ebb.schedule('h', now() + interval '1 day', '{}')) FROM generate_series(1, 1000)")
        .await;
    assert!(
        tokio::time::timeout(Duration::from_millis(500), listener.recv()).await.is_err(),
        "nobody sleeps past that"
    );
    desk.schedule("now()", 2, "").await;
    tokio::time::timeout(SOON, listener.recv()).await.unwrap().unwrap();
    eventually(SOON, || async { desk.ledger.numbers() == [2] }).await;
    node.stop().await;
    while tokio::time::timeout(Duration::from_millis(300), listener.recv()).await.is_ok() {}
    // A call without anybody asleep is silent.
    desk.schedule("now()", 3, "").await;
    assert!(tokio::time::timeout(Duration::from_millis(500), listener.recv()).await.is_err());
}

#[tokio::test]
async fn a_node_wakes_by_itself_when_something_becomes_due() {
    let desk = Desk::new().await;
    let node = desk.start();
    desk.schedule("clock_timestamp() + interval '3 seconds'", 1, "").await;
    eventually(SOON, || async { desk.ledger.count() == 1 }).await;
    // Called first, then recorded.
    desk.ebb.until("SELECT count(*) = 1 FROM ebb.event_history").await;
    let early: bool = desk.ebb.db.scalar("SELECT bool_or(finished_at < due_at) FROM ebb.event_history").await;
    assert!(!early);
    // Also when somebody moves the clock.
    desk.schedule("now() + interval '1 day'", 2, "").await;
    desk.ebb.until(ASLEEP).await;
    desk.ebb.db.advance("1 day").await;
    eventually(SOON, || async { desk.ledger.numbers() == [1, 2] }).await;
    node.stop().await;
}

#[tokio::test]
async fn an_old_snapshot_still_wakes_whoever_sleeps() {
    let desk = Desk::new().await;
    let mut writer = desk.ebb.client().await;
    execute(&mut writer, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ebb.event").await;
    let node = desk.start();
    desk.ebb.until(ASLEEP).await;
    let asked = Instant::now();
    execute(&mut writer, "SELECT ebb.schedule('h', now(), '{\"n\": 1}'); COMMIT").await;
    eventually(SOON, || async { desk.ledger.count() == 1 }).await;
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    node.stop().await;
}
