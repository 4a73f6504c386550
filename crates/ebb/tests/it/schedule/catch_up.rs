//! After downtime: everything is delivered, in order, none twice by a node that lives, and what is due now does not wait for it.

use std::collections::HashSet;
use std::time::Duration;

use ebb_testkit::eventually;

use super::Desk;
use crate::harness::{SOON, run_once};

/// A backlog of a million rows takes a while to write on a busy machine.
const LONG: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_day_of_downtime_is_caught_up_completely_and_in_order() {
    let desk = Desk::with("concurrency = 1\n").await;
    desk.ebb.db.execute(
        "SELECT count(ebb.schedule('h', now() + (n * 7919 % 86400) * interval '1 second', jsonb_build_object('n', n)))
         FROM generate_series(1, 10000) AS n",
    ).await;
    desk.ebb.db.advance("1 day").await;
    let node = desk.start();
    eventually(LONG, || async { desk.ledger.count() >= 10_000 }).await;
    desk.ebb.until("SELECT count(*) = 0 FROM ebb.event").await;
    node.stop().await;
    let got = desk.ledger.got();
    let ids: HashSet<_> = got.iter().map(|delivery| delivery.occurrence).collect();
    assert_eq!((got.len(), ids.len()), (10_000, 10_000));
    // What had just become due when the backlog was found goes first; the rest is oldest first.
    let newest = got.iter().map(|delivery| delivery.due_at).max().unwrap();
    let old: Vec<_> = got.iter().map(|d| d.due_at).filter(|due| newest.duration_since(*due).as_secs() > 120).collect();
    assert!(old.len() > 9_900 && old.is_sorted(), "{} old events", old.len());
    assert_eq!(
        desk.count("ebb.v_events_late").await,
        desk.count("ebb.event_history WHERE finished_at - due_at > interval '5 minutes'").await
    );
}

#[tokio::test]
async fn what_is_due_now_overtakes_a_million_overdue() {
    let desk = Desk::new().await;
    desk.ebb.db.execute(
        "INSERT INTO ebb.event (id, sink, due_at, ready_at, created_at, body)
         SELECT ebb.event_id(), 'h', t, t, t, '{\"type\":null,\"data\":{\"n\":0}}'
         FROM (SELECT now() - n * interval '80 milliseconds' AS t FROM generate_series(1, 1000000) AS n ORDER BY 1) AS due",
    ).await;
    let node = desk.start();
    eventually(SOON, || async { desk.ledger.count() > 2_000 }).await;
    let mut lateness = Vec::new();
    for n in 1..=5 {
        let id = desk.schedule("clock_timestamp()", n, "").await;
        eventually(LONG, || async { desk.state(id).await == "done" }).await;
        let late: f64 = desk
            .ebb
            .db
            .scalar(&format!(
                "SELECT extract(epoch FROM finished_at - due_at)::float8 FROM ebb.event_history WHERE id = '{id}'"
            ))
            .await;
        lateness.push(late);
    }
    let left = desk.count("(SELECT FROM ebb.event LIMIT 500000) AS e").await;
    node.stop().await;
    lateness.sort_by(f64::total_cmp);
    assert_eq!(left, 500_000, "the backlog was still there");
    assert!(lateness[0] < 1.0, "a new event is delivered within a second of being due: {lateness:?}");
    // Oldest first behind that: the far end has not been touched.
    let untouched: bool = desk.ebb.db.scalar("SELECT bool_and(due_at < (SELECT max(e.due_at) FROM ebb.event e)) FROM ebb.event_history WHERE due_at < now() - interval '1 hour'").await;
    assert!(untouched);
}

#[tokio::test]
async fn recovery_is_seen_in_status() {
    let desk = Desk::new().await;
    desk.ebb.db.execute("SELECT ebb.schedule('h', now(), '{\"n\": 1}') FROM generate_series(1, 11)").await;
    assert!(!desk.engine.status().await.unwrap().events.recovery_mode);
    desk.ebb.db.advance("61 minutes").await;
    let before = desk.engine.status().await.unwrap().events;
    assert!(before.recovery_mode && before.sinks[0].due == 11);
    desk.once().await;
    let after = desk.engine.status().await.unwrap().events;
    let sink = &after.sinks[0];
    assert_eq!(
        (after.recovery_mode, sink.due, sink.done_last_hour, sink.late_last_hour),
        (false, 0, Some(11), Some(11))
    );
    assert!((3_660.0..3_760.0).contains(&sink.average_lateness_seconds.unwrap()), "{sink:?}");
}

#[tokio::test]
async fn two_nodes_share_a_backlog_and_deliver_nothing_twice() {
    let desk = Desk::new().await;
    desk.ebb
        .db
        .execute(
            "SELECT count(ebb.schedule('h', now(), jsonb_build_object('n', n))) FROM generate_series(1, 3000) AS n",
        )
        .await;
    let (other, ledger) = desk.another();
    let (one, two) = tokio::join!(run_once(&desk.engine, &["events"]), run_once(&other, &["events"]));
    one.unwrap();
    two.unwrap();
    desk.once().await;
    let mut all = [desk.ledger.numbers(), ledger.numbers()].concat();
    all.sort_unstable();
    assert_eq!(all, (1..=3000).collect::<Vec<_>>());
}
