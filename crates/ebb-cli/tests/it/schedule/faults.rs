//! Frozen nodes, a server that restarts, a network that is cut at the worst moment.

use ebb_testkit::{Mode, Proxy, database, empty_database_on, eventually, own_server, server};

use super::{Receiver, SOON, apply, done, node, schedule, stop};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_frozen_past_its_lease_has_its_result_rejected() {
    let db = database().await;
    let receiver = Receiver::start().await;
    apply(&db, &receiver, "").await;
    receiver.hold(true);
    schedule(&db, 1).await;
    let mut frozen = node("frozen", db.url());
    eventually(SOON, || async { receiver.counts() == (1, 0) }).await;
    frozen.stop_signal();
    let other = node("other", db.url());
    eventually(SOON, || async { done(&db).await == 1 }).await;
    let by: String = db.scalar("SELECT node || ' ' || attempts FROM ebb.event_history").await;
    assert_eq!(by, "other 2");
    receiver.hold(false);
    frozen.continue_signal();
    frozen.wait_for_line("Result rejected", SOON).await;
    stop(frozen).await;
    stop(other).await;
    let still: String = db.scalar("SELECT string_agg(node || ' ' || attempts, ',') FROM ebb.event_history").await;
    assert_eq!((still.as_str(), receiver.counts()), ("other 2", (1, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restart_between_send_and_record_loses_nothing() {
    let server = own_server();
    let db = empty_database_on(&server).await;
    ebb::pg::migrate(&db.open()).await.unwrap();
    let receiver = Receiver::start().await;
    apply(&db, &receiver, "").await;
    let node = node("restarted", db.url());
    for (round, mode) in [Mode::Immediate, Mode::Fast].into_iter().enumerate() {
        receiver.hold(true);
        schedule(&db, 300).await;
        eventually(SOON, || async { receiver.counts().0 > round * 300 }).await;
        server.restart(mode);
        receiver.hold(false);
        eventually(SOON, || async { done(&db).await == (round as i64 + 1) * 300 }).await;
    }
    stop(node).await;
    assert_eq!(receiver.counts().0, 600);
    let rows: i64 = db.scalar("SELECT count(DISTINCT id) FROM ebb.event_history").await;
    assert_eq!(rows, 600);
}

/// The steps of a delivery, each by a piece of its SQL: claimed, ended.
const STEPS: [&str; 2] = ["Claims due events for this node", "Ends events and keeps them"];

#[tokio::test(flavor = "multi_thread")]
async fn the_network_cut_at_any_commit_of_a_delivery_loses_and_doubles_nothing() {
    let db = database().await;
    let receiver = Receiver::start().await;
    apply(&db, &receiver, "").await;
    let proxy = Proxy::start(server().address()).await;
    let node = node("cut", &proxy.url(db.url()));
    let mut events = 0;
    for step in STEPS {
        for before in [true, false] {
            match before {
                true => proxy.cut_before_commit_of(step),
                false => proxy.cut_after_commit_of(step),
            }
            events += 50;
            schedule(&db, 50).await;
            proxy.wait_until_cut(SOON).await;
            proxy.restore();
            eventually(SOON, || async { done(&db).await == events }).await;
        }
    }
    stop(node).await;
    // An answer that got lost on its way to the node is no reason to send anything twice.
    assert_eq!(receiver.counts(), (events as usize, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_lets_calls_end_and_leaves_the_rest_to_the_next_node() {
    let db = database().await;
    let receiver = Receiver::start().await;
    apply(&db, &receiver, "concurrency = 4\n").await;
    receiver.hold(true);
    schedule(&db, 100).await;
    let mut first = node("first", db.url());
    eventually(SOON, || async { receiver.counts().0 == 4 }).await;
    first.term();
    first.wait_for_line("Stopping cleanup", SOON).await;
    receiver.hold(false);
    assert!(first.wait_within(SOON).await.success(), "{}", first.output());
    let (sent, repeats) = receiver.counts();
    assert_eq!((done(&db).await, repeats), (sent as i64, 0), "what was sent was written down");
    let untouched: i64 = db.scalar("SELECT count(*) FROM ebb.event WHERE attempts = 0 AND lease_until IS NULL").await;
    assert_eq!(untouched, 100 - sent as i64, "the rest is ready at once, and its attempt does not count");
    let second = node("second", db.url());
    eventually(SOON, || async { done(&db).await == 100 }).await;
    stop(second).await;
    assert_eq!(receiver.counts(), (100, 0));
}
