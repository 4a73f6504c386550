//! One event's way: claimed, sent, written down; what fails, what is too late, what nobody wants any more.

use std::time::Duration;

use ebb::schedule::Event;
use ebb::schedule::sink::{Response, Verdict};
use ebb_testkit::eventually;
use serde_json::json;

use super::Desk;
use crate::harness::{SOON, run_once};

#[tokio::test]
async fn an_event_is_delivered_when_its_time_has_come_and_never_before() {
    let desk = Desk::new().await;
    let now = desk.schedule("now()", 1, "").await;
    let later = desk.schedule("now() + interval '1 hour'", 2, "").await;
    desk.once().await;
    assert_eq!(desk.ledger.numbers(), [1]);
    assert_eq!((desk.state(now).await, desk.state(later).await), ("done".into(), "pending".into()));
    desk.ebb.db.advance("1 hour").await;
    desk.once().await;
    assert_eq!(desk.ledger.numbers(), [1, 2]);
    desk.once().await;
    assert_eq!((desk.ledger.count(), desk.count("ebb.event").await), (2, 0));
}

#[tokio::test]
async fn what_is_sent_is_what_was_stored_and_the_id_tells_a_repeat() {
    let desk = Desk::with("retry = [\"0s\", \"0s\"]\n").await;
    desk.ledger.answer([Verdict::transient("down"), Verdict::transient("still down")]);
    let payload = json!({ "type": "greeting", "n": 1, "text": "grüß dich" });
    let event = Event::new("h", desk.engine.events().now().await.unwrap(), payload.clone());
    let id = desk.engine.events().schedule(&event).await.unwrap();
    let stored: String = desk.ebb.db.scalar("SELECT body FROM ebb.event").await;
    while desk.count("ebb.event").await > 0 {
        desk.once().await;
    }
    let got = desk.ledger.got();
    assert_eq!(got.iter().map(|delivery| delivery.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    for delivery in &got {
        assert_eq!((delivery.occurrence, delivery.event), (id, id));
        assert_eq!(delivery.kind.as_deref(), Some("greeting"));
        assert_eq!(&*delivery.body, stored.as_bytes());
    }
    let body: serde_json::Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(body["data"], payload);
    assert_eq!(body["id"], json!(id));
    assert_eq!(
        (&body["idempotencyKey"], &body["eventId"], &body["type"]),
        (&body["id"], &body["id"], &json!("greeting"))
    );
    let kept: String = desk.ebb.db.scalar("SELECT body FROM ebb.event_history").await;
    assert_eq!(kept, stored);
}

#[tokio::test]
async fn a_failure_is_tried_again_and_the_last_one_is_a_dead_letter() {
    let desk = Desk::with("retry = [\"1m\", \"5m\"]\n").await;
    let answer = Response { status: Some(500), body: "no\0".into() };
    let failed = |error: &str| Verdict::Failed {
        error: error.into(),
        permanent: false,
        retry_after: None,
        response: Some(answer.clone()),
    };
    desk.ledger.answer([failed("one"), failed("two"), failed("three")]);
    let id = desk.schedule("now()", 1, "").await;
    for (advance, state) in [("0", "failed"), ("59 seconds", "failed"), ("2 seconds", "failed"), ("5 minutes", "dead")]
    {
        desk.ebb.db.advance(advance).await;
        desk.once().await;
        assert_eq!(desk.state(id).await, state, "after {advance}");
    }
    assert_eq!(desk.ledger.count(), 3, "the retry came when its time had come");
    let (error, status): (String, i32) = (
        desk.ebb.db.scalar("SELECT last_error FROM ebb.v_events").await,
        desk.ebb.db.scalar("SELECT (response ->> 'status')::int FROM ebb.v_events").await,
    );
    assert_eq!((error.as_str(), status), ("three", 500));
    // An operator tries it again: with all its attempts, and as the same occurrence.
    assert!(desk.engine.events().retry(id).await.unwrap());
    desk.once().await;
    assert_eq!(desk.state(id).await, "done");
    let got = desk.ledger.got();
    assert!(got.iter().all(|delivery| delivery.occurrence == id) && got[3].attempt == 1, "{got:?}");
    assert!(!desk.engine.events().retry(id).await.unwrap(), "what was delivered is not delivered again");
}

#[tokio::test]
async fn a_permanent_failure_dies_at_once_and_all_dead_letters_can_be_retried() {
    let desk = Desk::new().await;
    desk.ledger.answer([Verdict::permanent("nonsense"), Verdict::permanent("nonsense")]);
    let (one, two) = (desk.schedule("now()", 1, "").await, desk.schedule("now()", 2, "").await);
    desk.once().await;
    assert_eq!((desk.state(one).await, desk.state(two).await), ("dead".into(), "dead".into()));
    assert_eq!(desk.engine.events().retry_dead(Some("other")).await.unwrap(), 0);
    assert_eq!(desk.engine.events().retry_dead(None).await.unwrap(), 2);
    desk.once().await;
    assert_eq!((desk.state(one).await, desk.state(two).await), ("done".into(), "done".into()));
}

#[tokio::test]
async fn a_receiver_can_ask_for_patience_and_is_believed_within_bounds() {
    let desk = Desk::with("retry = [\"1s\"]\n").await;
    let wait = |seconds| Verdict::Failed {
        error: "busy".into(),
        permanent: false,
        retry_after: Some(Duration::from_secs(seconds)),
        response: None,
    };
    desk.ledger.answer([wait(600), wait(10_000_000)]);
    // Both calls are under way before the first is answered: afterwards the sink waits.
    desk.ledger.take(Duration::from_millis(500));
    let (one, two) = (desk.schedule("now() - interval '1 s'", 1, "").await, desk.schedule("now()", 2, "").await);
    desk.once().await;
    for (id, bounds) in [(one, 500.0..=600.0), (two, 86_000.0..=86_400.0)] {
        let wait = format!(
            "SELECT extract(epoch FROM ready_at - ebb.now())::float8 FROM ebb.v_events WHERE occurrence = '{id}'"
        );
        let wait: f64 = desk.ebb.db.scalar(&wait).await;
        assert!(bounds.contains(&wait), "{wait}");
    }
}

#[tokio::test]
async fn what_is_too_late_is_skipped_and_counted() {
    let desk = Desk::new().await;
    let late = desk.schedule("now()", 1, ", max_late => interval '10 minutes'").await;
    let patient = desk.schedule("now()", 2, "").await;
    desk.ebb.db.advance("11 minutes").await;
    desk.once().await;
    assert_eq!((desk.state(late).await, desk.state(patient).await), ("skipped".into(), "done".into()));
    assert_eq!(desk.ledger.numbers(), [2]);
    let status = desk.engine.status().await.unwrap();
    assert_eq!(status.events.sinks[0].skipped_last_hour, Some(1));
}

#[tokio::test]
async fn a_cancelled_event_is_not_delivered_and_a_delivered_one_not_cancelled() {
    let desk = Desk::new().await;
    let (gone, stays) = (desk.schedule("now()", 1, "").await, desk.schedule("now()", 2, "").await);
    let events = desk.engine.events();
    assert!(events.cancel(gone).await.unwrap());
    assert!(!events.cancel(gone).await.unwrap());
    desk.once().await;
    assert!(!events.cancel(stays).await.unwrap());
    assert_eq!(desk.ledger.numbers(), [2]);
    assert_eq!((desk.state(gone).await, desk.state(stays).await), ("cancelled".into(), "done".into()));
    assert!(!events.cancel(uuid::Uuid::nil()).await.unwrap());
    assert!(events.retry(gone).await.unwrap(), "whoever cancelled it may change their mind");
    desk.once().await;
    assert_eq!(desk.ledger.numbers(), [2, 1]);
}

#[tokio::test]
async fn what_is_cancelled_while_it_is_under_way_is_not_tried_again() {
    let desk = Desk::with("retry = [\"0s\", \"0s\"]\n").await;
    desk.ledger.take(Duration::from_millis(700));
    desk.ledger.answer([Verdict::transient("busy")]);
    let id = desk.schedule("now()", 1, "").await;
    let node = desk.start();
    eventually(SOON, || async { desk.ledger.count() == 1 }).await;
    let events = desk.engine.events();
    assert!(!events.cancel(id).await.unwrap(), "nobody knows yet whether it arrives");
    desk.ebb.until("SELECT count(*) = 0 FROM ebb.event").await;
    node.stop().await;
    assert_eq!((desk.ledger.count(), desk.state(id).await.as_str()), (1, "cancelled"));
    let error: String = desk.ebb.db.scalar("SELECT last_error FROM ebb.v_events").await;
    assert_eq!(error, "busy");
    assert!(events.retry(id).await.unwrap(), "whoever cancelled it may change their mind");
    desk.once().await;
    assert_eq!(desk.state(id).await, "done");
}

#[tokio::test]
async fn what_is_cancelled_while_it_waits_for_its_call_is_not_sent() {
    let desk = Desk::with("concurrency = 1\n").await;
    desk.ledger.take(Duration::from_secs(2));
    let first = desk.schedule("now() - interval '1 s'", 1, "").await;
    let second = desk.schedule("now()", 2, "").await;
    let node = desk.start();
    eventually(SOON, || async { desk.ledger.count() == 1 }).await;
    desk.ebb.until("SELECT count(*) = 2 FROM ebb.event WHERE lease_until IS NOT NULL").await;
    desk.engine.events().cancel(second).await.unwrap();
    desk.ebb.until("SELECT count(*) = 0 FROM ebb.event").await;
    node.stop().await;
    assert_eq!((desk.state(first).await.as_str(), desk.state(second).await.as_str()), ("done", "cancelled"));
    assert_eq!(desk.ledger.numbers(), [1]);
}

#[tokio::test]
async fn a_sink_that_wants_no_more_stops_and_its_events_wait() {
    let desk = Desk::new().await;
    desk.ledger.answer([Verdict::Disabled { error: "410 Gone".into() }]);
    let id = desk.schedule("now()", 1, "").await;
    let node = desk.start();
    desk.ebb.until("SELECT stopped = '410 Gone' FROM ebb.policy WHERE kind = 'sink'").await;
    desk.ebb.until("SELECT bool_and(state = 'pending') FROM ebb.v_events").await;
    let more = desk.schedule("now()", 2, "").await;
    node.stop().await;
    desk.once().await;
    assert_eq!((desk.state(id).await, desk.state(more).await), ("pending".into(), "pending".into()));
    let attempts: i64 = desk.ebb.db.scalar("SELECT sum(attempts)::int8 FROM ebb.event").await;
    assert_eq!(attempts, 0, "nothing of it counts");
    desk.ebb.apply("[sinks.h]\ntype = \"handler\"\n").await;
    desk.once().await;
    assert_eq!(desk.state(id).await, "done");
}

#[tokio::test]
async fn a_paused_sink_waits_and_others_go_on() {
    let desk = Desk::with("[sinks.l]\ntype = \"log\"\n").await;
    let node = desk.start();
    let mut tx = desk.engine.database().read().await.unwrap();
    ebb::control::pause(&mut tx, "h", None, "test").await.unwrap();
    tx.commit().await.unwrap();
    // The node hears of it at its next look.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let waits = desk.schedule("now()", 1, "").await;
    desk.ebb.db.execute("SELECT ebb.schedule('l', now(), '{}')").await;
    desk.ebb.until("SELECT count(*) = 1 FROM ebb.v_events WHERE state = 'done'").await;
    assert_eq!(desk.state(waits).await, "pending");
    let mut tx = desk.engine.database().read().await.unwrap();
    ebb::control::resume(&mut tx, "h", None, "test").await.unwrap();
    tx.commit().await.unwrap();
    eventually(SOON, || async { desk.state(waits).await == "done" }).await;
    node.stop().await;
}

#[tokio::test]
async fn stopping_lets_calls_end_and_gives_the_rest_back_uncounted() {
    let desk = Desk::with("concurrency = 2\n").await;
    desk.ledger.take(Duration::from_millis(600));
    desk.ebb
        .db
        .execute("SELECT ebb.schedule('h', now(), jsonb_build_object('n', n)) FROM generate_series(1, 20) AS n")
        .await;
    let node = desk.start();
    eventually(SOON, || async { desk.ledger.count() >= 2 }).await;
    node.stop().await;
    let done = desk.count("ebb.v_events WHERE state = 'done'").await;
    assert_eq!(done, desk.ledger.count() as i64, "what was sent was written down");
    let waiting = desk.count("ebb.event WHERE lease_until IS NULL AND attempts = 0").await;
    assert_eq!(done + waiting, 20, "the rest is ready and untried");
}

#[tokio::test]
async fn a_late_result_of_a_claim_that_another_took_over_is_rejected() {
    let desk = Desk::with("timeout = \"30s\"\n").await;
    desk.ledger.take(Duration::from_secs(3));
    let id = desk.schedule("now()", 1, "").await;
    let node = desk.start();
    eventually(SOON, || async { desk.ledger.count() == 1 }).await;
    // As if it had been frozen, and another had taken the event over.
    desk.ebb.db.execute("UPDATE ebb.event SET token = token + 1, attempts = attempts + 1, node = 'other', lease_until = clock_timestamp() + interval '1 h'").await;
    node.stop().await;
    assert_eq!(desk.state(id).await, "running", "the first one's result did not count");
    desk.ebb.db.execute("UPDATE ebb.event SET lease_until = clock_timestamp() - interval '1 s'").await;
    let (third, ledger) = desk.another();
    run_once(&third, &["events"]).await.unwrap();
    assert_eq!((ledger.got()[0].occurrence, ledger.got()[0].attempt), (id, 3));
    assert_eq!((desk.state(id).await.as_str(), desk.count("ebb.v_events").await), ("done", 1));
}

#[tokio::test]
async fn an_event_left_behind_is_ready_again_and_dead_after_its_last_attempt() {
    let desk = Desk::with("retry = [\"0s\"]\n").await;
    let id = desk.schedule("now()", 1, "").await;
    let leave = "UPDATE ebb.event SET lease_until = clock_timestamp() - interval '1 s', token = token + 1, attempts = attempts + 1, node = 'gone'";
    desk.ebb.db.execute(&format!("{leave}; {leave}")).await;
    desk.once().await;
    assert_eq!((desk.state(id).await.as_str(), desk.ledger.count()), ("dead", 0));
    let error: String = desk.ebb.db.scalar("SELECT last_error FROM ebb.v_events").await;
    assert_eq!(error, "node gone held the last attempt and went away");
    assert!(desk.engine.events().retry(id).await.unwrap());
    desk.ebb.db.execute(leave).await;
    desk.once().await;
    assert_eq!((desk.state(id).await.as_str(), desk.ledger.count()), ("done", 1));
}

#[tokio::test]
async fn an_event_left_behind_can_be_retried_by_hand() {
    let desk = Desk::with("retry = [\"0s\"]\n").await;
    let id = desk.schedule("now()", 1, "").await;
    desk.ebb.db.execute("UPDATE ebb.event SET lease_until = clock_timestamp() - interval '1 s', token = token + 1, attempts = 2, node = 'gone'").await;
    assert!(desk.engine.events().retry(id).await.unwrap());
    desk.once().await;
    assert_eq!((desk.state(id).await.as_str(), desk.ledger.count()), ("done", 1));
}

#[tokio::test]
async fn a_claim_that_runs_out_beside_a_backlog_of_one_instant_is_taken_over() {
    let desk = Desk::with("concurrency = 4\n").await;
    desk.ledger.take(Duration::from_millis(10));
    // The first of them all in the order of claims, held by a node that is gone; the rest became due at the same moment.
    desk.ebb.db.execute("SELECT ebb.schedule('h', date_trunc('hour', now()), jsonb_build_object('n', n)) FROM generate_series(1, 1500) AS n").await;
    desk.ebb.db.execute("UPDATE ebb.event SET lease_until = clock_timestamp() + interval '1 s', token = token + 1, attempts = 1, node = 'gone' \
                         WHERE id = (SELECT id FROM ebb.event ORDER BY id LIMIT 1)").await;
    let node = desk.start();
    desk.ebb.until("SELECT count(*) = 0 FROM ebb.event").await;
    node.stop().await;
    let mut numbers = desk.ledger.numbers();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=1500), "each is called once");
    assert_eq!(
        desk.ledger.got().iter().filter(|call| call.attempt == 2).count(),
        1,
        "the one left behind, for the second time"
    );
}

#[tokio::test]
async fn history_goes_by_the_day_with_its_keys_and_leaves_a_record() {
    let desk = Desk::with("[keep]\nevents = \"2d\"\n").await;
    let first = desk.schedule("now()", 1, ", 'key'").await;
    desk.once().await;
    assert_eq!(desk.schedule("now()", 2, ", 'key'").await, first, "the key lives as long as its history");
    desk.ebb.db.advance("4 days").await;
    let node = desk.start();
    desk.ebb.until("SELECT count(*) = 0 FROM ebb.event_history").await;
    let records = desk.count("ebb.audit WHERE action = 'expire' AND policy = 'keep' AND relation LIKE 'ebb.event_history_%' AND rows = 1").await;
    assert_eq!(records, 1);
    let again = desk.schedule("now()", 3, ", 'key'").await;
    assert_ne!(again, first);
    eventually(SOON, || async { desk.ledger.numbers() == [1, 3] }).await;
    node.stop().await;
}

#[tokio::test]
async fn a_day_without_a_partition_is_made_when_it_is_needed() {
    let desk = Desk::new().await;
    desk.schedule("now() + interval '1 year'", 1, "").await;
    let cancelled = desk.schedule("now() + interval '1 year'", 2, "").await;
    desk.ebb.db.advance("1 year").await;
    assert!(desk.engine.events().cancel(cancelled).await.unwrap());
    desk.once().await;
    assert_eq!(desk.count("ebb.event_history").await, 2);
}

#[tokio::test]
async fn an_erased_subject_leaves_nothing_in_its_events() {
    let desk = Desk::new().await;
    let of = ", subject_policy => 'users', subject_id => '42'";
    desk.schedule("now()", 1, of).await;
    desk.once().await;
    desk.schedule("now() + interval '1 day'", 2, &format!("{of}, dedupe_key => 'users/42'")).await;
    let other = desk.schedule("now() + interval '1 day'", 3, ", subject_policy => 'users', subject_id => '43'").await;
    desk.ebb.db.execute("SELECT ebb.schedule_yearly('h', 3, 1, '09:00', 'UTC', '{\"n\": 4}', 'b-42', subject_policy => 'users', subject_id => '42')").await;
    let cancelled: i64 = desk.ebb.db.scalar("SELECT ebb.forget_subject_events('users', '42')").await;
    assert_eq!(cancelled, 2);
    let left: String = desk.ebb.db.scalar("SELECT string_agg(state || ':' || body || COALESCE(subject_id, '') || COALESCE(dedupe_key, ''), ',' ORDER BY state) FROM ebb.event_history").await;
    assert_eq!(left, "cancelled:,done:");
    assert_eq!((desk.count("ebb.recurring").await, desk.count("ebb.event_key").await), (0, 0));
    assert_eq!(desk.state(other).await, "pending");
}
