//! Warnings that are taken back: nobody who was restored, is on hold or has another sink hears of the former one again.

use std::time::Duration;

use ebb::doctor::Severity;
use ebb::schedule::Filter;
use ebb::schedule::sink::Verdict;
use ebb_testkit::eventually;

use super::told::questions;
use super::users;
use super::warn::{Shop, config};
use crate::harness::{Running, SOON, options, wanted};
use crate::schedule::Ledger;

/// What ends the need of a warning, for user N.
const ENDINGS: [&str; 3] = [
    "SELECT ebb.restore_subject('users', N::text)",
    "SELECT ebb.place_hold('users', N::text, 'court')",
    "SELECT ebb.erase_subject('users', N::text)",
];

/// With more keys of the sink and of the policy.
pub(super) fn with_sink(keys: &str, more: &str) -> String {
    config(more).replacen("type = \"handler\"\n", &format!("type = \"handler\"\n{keys}\n"), 1)
}

/// A shop in which users up to `last` are about to be warned.
async fn warned(sink: &str, last: u32) -> Shop {
    let shop = Shop::without_policy().await;
    shop.ebb.apply(&with_sink(sink, "")).await;
    for user in 1..=last {
        shop.delete(user).await;
    }
    shop.pass("61 days").await;
    shop.run().await;
    shop
}

impl Shop {
    async fn end(&self, ending: &str, last: u32) {
        for user in 1..=last {
            self.ebb.db.execute(&ending.replace('N', &user.to_string())).await;
        }
    }

    async fn history(&self) -> String {
        self.ebb.list("state || ':' || attempts", "ebb.event_history").await
    }
}

#[tokio::test]
async fn an_attempt_that_fails_after_a_restore_is_the_last_one() {
    for ending in ENDINGS {
        let shop = warned("retry = [\"0s\", \"0s\"]", 1).await;
        shop.ledger.take(Duration::from_millis(700));
        shop.ledger.answer([Verdict::transient("busy")]);
        let node = Running::new(&shop.engine, &["events"]);
        eventually(SOON, || async { shop.ledger.count() == 1 }).await;
        shop.end(ending, 1).await;
        shop.ebb.until("SELECT count(*) = 0 FROM ebb.event").await;
        node.stop().await;
        assert_eq!((shop.ledger.count(), shop.history().await.as_str()), (1, "cancelled:1"), "{ending}");
        assert_eq!(shop.ebb.list("step", "ebb.warning").await, "", "{ending}");
    }
}

#[tokio::test]
async fn a_last_attempt_that_fails_after_a_restore_leaves_no_dead_letter() {
    let shop = warned("", 1).await;
    shop.ledger.take(Duration::from_millis(700));
    shop.ledger.answer([Verdict::permanent("no such mailbox")]);
    let node = Running::new(&shop.engine, &["events"]);
    eventually(SOON, || async { shop.ledger.count() == 1 }).await;
    shop.end(ENDINGS[1], 1).await;
    shop.ebb.until("SELECT count(*) = 0 FROM ebb.event").await;
    node.stop().await;
    assert_eq!(shop.history().await, "cancelled:1");
    // Once the hold is over it is warned anew, and not called undeliverable.
    shop.ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    shop.ledger.take(Duration::ZERO);
    shop.run_and_deliver().await;
    assert_eq!(shop.stands(1).await.0.as_deref(), Some("accepted"));
}

#[tokio::test]
async fn what_a_node_left_behind_is_not_sent_again_after_a_restore() {
    for ending in ENDINGS {
        let shop = warned("", 1).await;
        shop.ledger.take(Duration::from_secs(600));
        let node = shop.engine.node(options(&["events"]), ebb::spine::Shutdown::new());
        let dying = tokio::spawn(node.run_once(SOON));
        eventually(SOON, || async { shop.ledger.count() == 1 }).await;
        dying.abort();
        let _ = dying.await;
        shop.end(ending, 1).await;
        shop.ledger.take(Duration::ZERO);
        shop.ebb.db.execute("UPDATE ebb.event SET lease_until = '-infinity' WHERE lease_until IS NOT NULL").await;
        let node = Running::new(&shop.engine, &["events"]);
        shop.ebb.until("SELECT count(*) = 0 FROM ebb.event").await;
        node.stop().await;
        assert_eq!((shop.ledger.count(), shop.history().await.as_str()), (1, "cancelled:1"), "{ending}");
    }
}

#[tokio::test]
async fn what_is_claimed_and_not_called_yet_is_not_sent_after_a_restore() {
    for ending in ENDINGS {
        let shop = warned("concurrency = 3", 12).await;
        shop.ledger.take(Duration::from_millis(900));
        let node = Running::new(&shop.engine, &["events"]);
        eventually(SOON, || async { shop.ledger.count() == 3 }).await;
        let claimed: i64 = shop.ebb.db.scalar("SELECT count(*) FROM ebb.event WHERE lease_until IS NOT NULL").await;
        assert!(claimed > 3, "some are claimed ahead: {claimed}");
        // In one transaction: they are all restored at once.
        let all: Vec<String> = (1..=12).map(|user| ending.replace('N', &user.to_string())).collect();
        shop.ebb.db.execute(&all.join(";")).await;
        let called = shop.ledger.count();
        shop.ebb.until("SELECT count(*) = 0 FROM ebb.event").await;
        node.stop().await;
        assert_eq!((called, shop.ledger.count()), (3, 3), "only calls that were under way go out: {ending}");
        let untried = "SELECT count(*) FROM ebb.event_history WHERE state = 'cancelled' AND attempts = 0";
        assert_eq!(shop.ebb.db.scalar::<i64>(untried).await, 9, "{ending}");
    }
}

#[tokio::test]
async fn warnings_follow_their_policy_to_another_sink() {
    let elsewhere = |more: &str| config(more).replace("[sinks.h]", "[sinks.h2]").replace("\"h\"", "\"h2\"");
    for retried in [false, true] {
        let shop = warned("retry = [\"1m\"]", 3).await;
        let second = Ledger::default();
        let engine = shop.engine.clone().on("h2", second.clone());
        if retried {
            shop.ledger.answer((0..3).map(|_| Verdict::transient("busy")));
            shop.run_and_deliver().await;
            assert_eq!(shop.ebb.list("attempts", "ebb.event").await, "1,1,1");
        }
        let called = shop.ledger.count();
        shop.ebb.apply(&elsewhere("")).await;
        let shop = Shop { engine, ..shop };
        shop.pass("2 minutes").await;
        shop.run_and_deliver().await;
        assert_eq!((shop.ledger.count(), second.count()), (called, 3), "retried: {retried}");
        assert_eq!(shop.stands(1).await.0.as_deref(), Some("accepted"));
        assert_eq!(shop.ebb.list("id", "ebb.event").await, "");
    }
}

#[tokio::test]
async fn a_warning_that_a_dead_node_held_in_a_former_sink_is_made_anew() {
    let shop = warned("", 1).await;
    let claimed =
        "UPDATE ebb.event SET token = 1, attempts = 1, node = 'gone', lease_until = clock_timestamp() + interval '1 h'";
    shop.ebb.db.execute(claimed).await;
    let both = config("").replace("\"h\"", "\"h2\"").replace("[sinks.h]", "[sinks.h2]\ntype = \"handler\"\n[sinks.h]");
    let second = Ledger::default();
    let engine = shop.engine.clone().on("h2", second.clone());
    shop.ebb.apply(&both).await;
    let shop = Shop { engine, ..shop };
    shop.run_and_deliver().await;
    assert_eq!((shop.stands(1).await.0.as_deref(), second.count()), (Some("scheduled"), 0), "its node may be calling");
    // The lease is over: nobody claims from a sink that is disabled.
    shop.ebb.apply(&both.replace("[sinks.h]\ntype = \"handler\"\n", "")).await;
    shop.ebb.db.execute("UPDATE ebb.event SET lease_until = clock_timestamp() - interval '1 s'").await;
    shop.run_and_deliver().await;
    shop.run_and_deliver().await;
    assert_eq!((shop.stands(1).await.0.as_deref(), second.count()), (Some("accepted"), 1));
    assert_eq!(shop.ledger.count(), 0);
}

#[tokio::test]
async fn what_waits_in_a_sink_that_is_off_is_told() {
    let shop = Shop::without_policy().await;
    let (both, one) =
        ("[sinks.h]\ntype = \"handler\"\n[sinks.old]\ntype = \"log\"\n", "[sinks.h]\ntype = \"handler\"\n");
    shop.ebb.apply(both).await;
    shop.ebb
        .db
        .execute("SELECT ebb.schedule('old', now() + n * interval '1 h', '{}') FROM generate_series(0, 2) AS n")
        .await;
    let found = async || {
        let report = shop.engine.doctor(&questions(one)).await.unwrap();
        let sinks = report.findings.into_iter().filter(|finding| finding.check == "sinks");
        sinks.map(|finding| (finding.severity, finding.about, finding.evidence)).collect::<Vec<_>>()
    };
    assert_eq!(found().await[0].0, Severity::Ok);
    let changes = shop.engine.difference(&wanted(one).unwrap()).await.unwrap();
    assert_eq!(shop.engine.left_waiting(&changes).await.unwrap(), [("old".to_owned(), 3)]);
    shop.ebb.apply(one).await;
    let evidence = "it is disabled, and 3 events in it wait for ever".to_owned();
    assert_eq!(found().await, [(Severity::Fail, Some("old".to_owned()), evidence)]);
    // What is already late and waits there is among the late ones.
    shop.pass("90 minutes").await;
    let late = Filter { late: Some(Duration::from_secs(300)), ..Filter::default() };
    let events = shop.engine.events();
    assert_eq!(events.list(&late).await.unwrap().len(), 2);
    assert_eq!(events.page(&late, None).await.unwrap().0.len(), 2);
}

#[tokio::test]
async fn a_policy_that_warns_no_more_takes_back_what_is_not_sent_and_lists_nobody_for_it() {
    let shop = warned("retry = [\"1m\"]", 3).await;
    shop.ledger.answer([Verdict::permanent("no such address")]);
    shop.ebb.db.execute("UPDATE ebb.event SET ready_at = ebb.now() + interval '1 hour' WHERE id <> (SELECT min(id::text)::uuid FROM ebb.event)").await;
    shop.run_and_deliver().await;
    let listed = async || {
        let mut tx = shop.ebb.engine.database().read().await.unwrap();
        ebb::retain::list_waiting(&mut tx, Some("users"), 10).await.unwrap().len()
    };
    assert_eq!(listed().await, 1);
    let called = shop.ledger.count();
    shop.ebb.apply(&format!("[sinks.h]\ntype = \"handler\"\n{}", users(""))).await;
    shop.pass("2 hours").await;
    shop.run_and_deliver().await;
    assert_eq!((shop.ledger.count(), shop.ebb.list("id", "ebb.event").await.as_str(), listed().await), (called, "", 0));
}
