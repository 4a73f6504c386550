//! A receiver that takes nothing: whoever proceeds without a warning does so after long enough, and an outage that ends costs nobody
//! anything.

use ebb::doctor::Severity;
use ebb::schedule::sink::Verdict;

use super::told::questions;
use super::warn::Shop;
use super::withdrawn::with_sink;
use crate::harness::{Running, run_once};

/// More warnings than calls can be made in one after the other, so that the breaker decides.
const SUBJECTS: i64 = 12;
const DEAD: &str = "SELECT ebb.dead_since('h') IS NOT NULL";

/// A shop whose receiver is dead when everybody is to be warned, and a node that has found out.
async fn outage(on_undeliverable: &str) -> (Shop, Running) {
    let shop = Shop::without_policy().await;
    let more = format!("on_undeliverable = \"{on_undeliverable}\"");
    let sink = "concurrency = 2\nretry = { base = \"2s\", max = \"2s\", attempts = 9 }\nbreaker = { failures = 2, probe = \"1s\" }";
    shop.ebb.apply(&with_sink(sink, &more)).await;
    shop.ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 12) n").await;
    shop.pass("60 days 1 hour").await;
    shop.ledger.answer((0..10_000).map(|_| Verdict::transient("connection refused")));
    shop.run().await;
    let node = Running::new(&shop.engine, &["events"]);
    shop.ebb.until(DEAD).await;
    (shop, node)
}

impl Shop {
    async fn warnings(&self, which: &str) -> i64 {
        self.ebb.db.scalar(&format!("SELECT count(*) FROM ebb.warning WHERE {which}")).await
    }

    /// What is there is too late, and made anew.
    async fn made_anew(&self) {
        self.pass("25 hours").await;
        self.ebb.until("SELECT count(*) = 0 FROM ebb.event").await;
        run_once(&self.engine, &["users:warn"]).await.unwrap();
    }

    async fn users(&self) -> i64 {
        self.ebb.db.scalar("SELECT count(*) FROM users").await
    }
}

#[tokio::test]
async fn whoever_proceeds_does_so_when_the_receiver_was_dead_all_the_time() {
    let (shop, node) = outage("proceed").await;
    shop.made_anew().await;
    assert_eq!(shop.warnings("failed_at IS NULL").await, SUBJECTS, "it died when these were on their way: once more");
    shop.pass("25 hours").await;
    shop.ebb.until("SELECT count(*) = 0 FROM ebb.event").await;
    assert_eq!(shop.warnings("failed_at IS NOT NULL").await, SUBJECTS);
    let (warning, blocked) = shop.stands(1).await;
    assert_eq!((warning.as_deref(), blocked), (Some("undeliverable"), None));
    node.stop().await;
    shop.run().await;
    assert_eq!(shop.users().await, SUBJECTS, "their own time is not over");
    shop.pass("29 days").await;
    shop.run().await;
    assert_eq!(shop.users().await, 0);
}

#[tokio::test]
async fn whoever_stops_is_warned_once_the_receiver_is_back() {
    let (shop, node) = outage("stop").await;
    for _ in 0..3 {
        shop.made_anew().await;
        assert_eq!(shop.warnings("failed_at IS NULL").await, SUBJECTS);
    }
    shop.ledger.recover();
    shop.ebb.until(&format!("SELECT count(*) = {SUBJECTS} FROM ebb.warning WHERE accepted_at IS NOT NULL")).await;
    node.stop().await;
    shop.pass("29 days").await;
    shop.run().await;
    assert_eq!(shop.users().await, SUBJECTS, "from then on the time counts");
}

#[tokio::test]
async fn a_receiver_that_comes_back_costs_nobody_anything() {
    let (shop, node) = outage("proceed").await;
    let found = async || {
        let report = shop.engine.doctor(&questions("")).await.unwrap();
        report.findings.into_iter().find(|finding| finding.check == "sinks").unwrap()
    };
    shop.pass("2 hours").await;
    let status = shop.engine.events_status().await.unwrap();
    assert!(status.sinks[0].dead_since.is_some(), "{status:?}");
    let said = found().await;
    assert_eq!(said.severity, Severity::Warn);
    assert!(said.evidence.starts_with("its receiver has taken nothing for 2h"), "{}", said.evidence);
    shop.ledger.recover();
    shop.ebb.until(&format!("SELECT count(*) = {SUBJECTS} FROM ebb.warning WHERE accepted_at IS NOT NULL")).await;
    shop.ebb.until("SELECT count(*) = 0 FROM ebb.breaker").await;
    assert_eq!(found().await.severity, Severity::Ok);
    node.stop().await;
}

#[tokio::test]
async fn what_nobody_tried_meanwhile_is_not_known_to_be_dead() {
    let (shop, node) = outage("proceed").await;
    shop.made_anew().await;
    node.stop().await;
    // No node was there for a day.
    shop.ebb.db.execute("UPDATE ebb.breaker SET tried_at = tried_at - interval '1 day'").await;
    shop.pass("25 hours").await;
    shop.ledger.recover();
    run_once(&shop.engine, &["events"]).await.unwrap();
    assert_eq!(shop.warnings("failed_at IS NOT NULL").await, 0, "they were not sent, and that is nobody's fault");
    shop.run_and_deliver().await;
    assert_eq!(shop.warnings("accepted_at IS NOT NULL").await, SUBJECTS);
}
