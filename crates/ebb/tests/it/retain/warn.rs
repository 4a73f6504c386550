//! Warnings: everybody who is to be warned is, once, and nobody is erased before the time that a warning promised.

use std::time::Duration;

use ebb::policy::Term;
use ebb::retain::{Link, OverrideChange, TenantTerms};
use ebb::schedule::sink::{Delivery, Response, Verdict};
use ebb::{Engine, Error};
use serde_json::{Value, json};

use super::{SHOP, found_in_ebb, users};
use crate::harness::{Ebb, Running, options, run_once, wanted};
use crate::schedule::Ledger;

/// A shop whose users are warned through the sink `h`, a ledger.
pub(super) struct Shop {
    pub(super) ebb: Ebb,
    pub(super) engine: Engine,
    pub(super) ledger: Ledger,
}

/// `users` with a warning 30 days before; keys in `more` come besides.
pub(super) fn config(more: &str) -> String {
    let mut keys = vec!["contact = { email = \"email\", name = \"name\" }", "notify = \"h\""];
    for (key, line) in [
        ("warn_before", "warn_before = [\"30d\"]"),
        ("spread", "spread = \"0s\""),
        ("restore_url", "restore_url = \"https://app.example.test/restore?token={token}\""),
    ] {
        if !more.contains(key) {
            keys.push(line);
        }
    }
    format!("[sinks.h]\ntype = \"handler\"\n{}", users(&format!("{}\n{more}", keys.join("\n"))))
}

impl Shop {
    pub(super) async fn new(more: &str) -> Self {
        let shop = Self::without_policy().await;
        shop.ebb.apply(&config(more)).await;
        shop
    }

    pub(super) async fn without_policy() -> Self {
        let ebb = Ebb::with(SHOP).await;
        let ledger = Ledger::default();
        let engine = ebb.engine.clone().on("h", ledger.clone());
        Self { ebb, engine, ledger }
    }

    /// Marks and warns, then erases what is due: at once they would pass by what the other holds.
    pub(super) async fn run(&self) {
        run_once(&self.engine, &["users:mark", "users:warn"]).await.unwrap();
        run_once(&self.engine, &["users:erase"]).await.unwrap();
    }

    /// Delivers what is due.
    async fn deliver(&self) {
        run_once(&self.engine, &["events"]).await.unwrap();
    }

    pub(super) async fn run_and_deliver(&self) {
        self.run().await;
        self.deliver().await;
    }

    pub(super) async fn delete(&self, id: u32) {
        self.ebb.db.execute(&format!("SELECT ebb.delete_subject('users', '{id}')")).await;
    }

    pub(super) async fn pass(&self, time: &str) {
        self.ebb.db.advance(time).await;
    }

    async fn there(&self, id: u32) -> bool {
        self.ebb.db.scalar(&format!("SELECT EXISTS (SELECT FROM users WHERE id = {id})")).await
    }

    /// (warning, blocked) of the open deletion of a subject.
    pub(super) async fn stands(&self, id: u32) -> (Option<String>, Option<String>) {
        sqlx::query_as(
            "SELECT warning, blocked FROM ebb.v_deletions WHERE subject_id = $1 ORDER BY opened_at DESC LIMIT 1",
        )
        .bind(id.to_string())
        .fetch_one(self.ebb.db.pool())
        .await
        .unwrap()
    }

    /// A tenant has words of its own in the warning.
    pub(super) async fn words(&self, tenant: &str, texts: &[(&str, &str)]) {
        let texts = texts.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        let change = OverrideChange::Set(TenantTerms { retention: None, warn_before: None, texts, enabled: true });
        let mut tx = self.engine.database().read().await.unwrap();
        ebb::retain::set_override(&mut tx, "users", tenant, &change, true, "test").await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn until(&self, id: u32, question: &str) -> bool {
        self.ebb
            .db
            .scalar(&format!("SELECT {question} FROM ebb.v_deletions WHERE subject_id = '{id}' AND closed_at IS NULL"))
            .await
    }
}

pub(super) fn payload(delivery: &Delivery) -> Value {
    serde_json::from_str(delivery.payload.get()).unwrap()
}

fn token(delivery: &Delivery) -> String {
    let url = payload(delivery)["data"]["restore_url"].as_str().unwrap().to_owned();
    url.strip_prefix("https://app.example.test/restore?token=").unwrap().to_owned()
}

#[tokio::test]
async fn a_subject_is_warned_once_and_erased_when_the_promised_time_is_over() {
    let shop = Shop::new("mirror = { due = \"scheduled_deletion_at\", notified = \"deletion_notified_at\" }").await;
    shop.delete(7).await;
    shop.pass("59 days 23 hours").await;
    shop.run_and_deliver().await;
    assert_eq!((shop.ledger.count(), shop.stands(7).await.0.as_deref()), (0, Some("planned")));
    shop.pass("2 hours").await;
    shop.run().await;
    assert_eq!((shop.ebb.state("7").await, shop.stands(7).await.0.as_deref()), ("warned".into(), Some("scheduled")));
    shop.pass("1 hour").await;
    shop.deliver().await;
    assert_eq!(shop.stands(7).await.0.as_deref(), Some("accepted"));
    let accepted = "(SELECT accepted_at FROM ebb.warning)";
    assert!(shop.until(7, &format!("due_at = {accepted} + interval '30 days'")).await, "from the acceptance on");
    for _ in 0..3 {
        shop.run_and_deliver().await;
    }
    assert_eq!(shop.ledger.count(), 1);
    let mirrored =
        format!("deletion_notified_at = {accepted} AND scheduled_deletion_at = {accepted} + interval '30 days'");
    assert!(shop.ebb.db.scalar::<bool>(&format!("SELECT {mirrored} FROM users WHERE id = 7")).await);
    // By its grace alone it would be due now.
    shop.pass("29 days 23 hours 59 minutes").await;
    shop.run().await;
    assert!(shop.there(7).await);
    shop.pass("1 minute").await;
    shop.run().await;
    assert!(!shop.there(7).await);
    let warned: bool = shop
        .ebb
        .db
        .scalar("SELECT (details ->> 'warned_at')::timestamptz + interval '30 days' <= (details ->> 'erased_at')::timestamptz FROM ebb.audit WHERE action = 'erase'")
        .await;
    assert!(warned);
    assert_eq!(shop.ebb.db.scalar::<i64>("SELECT sum(rows)::int8 FROM ebb.audit WHERE action = 'warn'").await, 1);
}

/// What a migration does from one of its statements on.
fn upgrade(name: &str, from: &str) -> String {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).unwrap();
    let mut paths = files.map(|file| file.unwrap().path());
    let path = paths.find(|path| path.to_str().unwrap().ends_with(name)).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    text[text.find(from).unwrap()..].to_owned()
}

#[tokio::test]
async fn what_a_receiver_repeats_of_a_warning_is_not_kept() {
    let shop = Shop::new("").await;
    shop.delete(7).await;
    shop.pass("61 days").await;
    shop.run().await;
    // A receiver that answers with what it was sent, and an error that quotes it.
    let body: String = shop.ebb.db.scalar("SELECT body FROM ebb.event").await;
    let echo = |status| Some(Response { status: Some(status), body: body.clone() });
    let link =
        serde_json::from_str::<Value>(&body).unwrap()["data"]["data"]["restore_url"].as_str().unwrap().to_owned();
    let token = link.strip_prefix("https://app.example.test/restore?token=").unwrap().to_owned();
    let failed = |status| Verdict::Failed {
        error: format!("it did not like {link}"),
        permanent: false,
        retry_after: None,
        response: echo(status),
    };
    shop.ledger.answer([failed(500), failed(502), Verdict::Delivered { response: echo(200) }]);
    let kept = async |of: &str| {
        let kept = format!("SELECT COALESCE(response::text, '') || COALESCE(error, '') FROM {of}");
        let kept: String = shop.ebb.db.scalar(&kept).await;
        assert!(!kept.contains(&token) && !kept.contains("secret-7@") && !kept.contains("Secret Name 7"), "{kept}");
        kept
    };
    shop.deliver().await;
    assert!(kept("ebb.event").await.contains("500"));
    for _ in 0..2 {
        shop.pass("1 hour").await;
        shop.deliver().await;
    }
    let told = kept("ebb.event_history").await;
    assert!(["500", "502", "200"].iter().all(|status| told.contains(status)), "{told}");
    assert_eq!(found_in_ebb(&shop.ebb, &token).await, Vec::<String>::new());
    // What was kept before the upgrade goes with it.
    let former = format!(
        "UPDATE ebb.event_history SET response = jsonb_build_object('status', 200, 'body', {0}, 'earlier',
            jsonb_build_array(jsonb_build_object('answer', jsonb_build_object('status', 500, 'body', {0}))))",
        format_args!("'{token}'::text")
    );
    shop.ebb.db.execute(&former).await;
    assert_ne!(found_in_ebb(&shop.ebb, &token).await, Vec::<String>::new());
    shop.ebb.db.execute(&upgrade("_echo.sql", "UPDATE ebb.event e")).await;
    let told = kept("ebb.event_history").await;
    assert!(["500", "200"].iter().all(|status| told.contains(status)), "{told}");
    assert_eq!(found_in_ebb(&shop.ebb, &token).await, Vec::<String>::new());
    // Of other events the answer is kept.
    let scheduled = "SELECT ebb.schedule('h', ebb.now(), '{\"type\": \"hello\"}', NULL, NULL, 'users', '7')";
    shop.ebb.db.execute(scheduled).await;
    shop.ledger.answer([Verdict::Delivered { response: Some(Response { status: Some(200), body: "welcome".into() }) }]);
    shop.deliver().await;
    assert_eq!(found_in_ebb(&shop.ebb, "welcome").await.len(), 1);
}

#[tokio::test]
async fn nothing_of_a_warned_subject_is_left_in_ebb() {
    let shop = Shop::new("warn_before = [\"30d\", \"3d\"]").await;
    shop.delete(7).await;
    shop.pass("61 days").await;
    shop.run_and_deliver().await;
    shop.pass("27 days").await;
    shop.run_and_deliver().await;
    assert_eq!(shop.ledger.count(), 2, "a warning and a reminder");
    assert!(!found_in_ebb(&shop.ebb, "secret-7@").await.is_empty(), "the mails are in the history");
    let token = token(&shop.ledger.got()[0]);
    assert_eq!(
        found_in_ebb(&shop.ebb, &token).await,
        Vec::<String>::new(),
        "whoever only looks gets no link that works"
    );
    let hidden: i64 = shop.ebb.db.scalar("SELECT count(*) FROM ebb.v_events WHERE body LIKE '%(hidden)%'").await;
    assert_eq!(hidden, 2);
    // A third one has not gone out when the subject goes.
    shop.ebb.db.execute("SELECT ebb.schedule('h', ebb.now() + interval '1 year', '{\"to\": \"secret-7@example.test\"}', NULL, NULL, 'users', '7')").await;
    shop.pass("10 days").await;
    shop.run().await;
    assert!(!shop.there(7).await);
    for word in ["secret-7@", "Secret Name 7", &token] {
        assert_eq!(found_in_ebb(&shop.ebb, word).await, Vec::<String>::new(), "{word}");
    }
}

#[tokio::test]
async fn a_warning_follows_the_documents_schema() {
    let shop = Shop::new("tenant = \"tenant_id\"").await;
    shop.delete(4).await;
    shop.pass("60 days").await;
    shop.run_and_deliver().await;
    let got = shop.ledger.got();
    let body: Value = serde_json::from_slice(&got[0].body).unwrap();
    assert_eq!(
        (&body["type"], &body["data"]["event_type"]),
        (&json!("deletion_warning"), &json!("user.deletion_warning"))
    );
    let data = &body["data"];
    assert_eq!((&data["user_id"], &data["tenant_id"]), (&json!("4"), &json!("t1")));
    assert_eq!(
        (&data["data"]["email"], &data["data"]["name"]),
        (&json!("secret-4@example.test"), &json!("Secret Name 4"))
    );
    assert_eq!(data["data"]["days_remaining"], 30);
    let moment = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let (deleted, erased) = (moment(&data["data"]["deleted_at"]), moment(&data["data"]["scheduled_deletion_at"]));
    let days = (erased.as_second() - deleted.as_second()) as f64 / 86_400.0;
    assert!((90.0..90.01).contains(&days), "{days}");
    assert!((30.0..30.01).contains(&((erased.as_second() - moment(&data["timestamp"]).as_second()) as f64 / 86_400.0)));
    assert!(data["data"]["restore_url"].as_str().unwrap().starts_with("https://app.example.test/restore?token="));
}

#[tokio::test]
async fn however_far_the_clock_moves_nobody_is_erased_unwarned() {
    let shop = Shop::new("").await;
    shop.delete(1).await;
    // Nobody looked for two hundred days: due long ago, and warned only now.
    shop.pass("200 days").await;
    shop.run().await;
    assert!(shop.there(1).await);
    // The event lies there for sixty more: what it says is not true any more, so it is not sent, and made anew.
    shop.pass("60 days").await;
    shop.run_and_deliver().await;
    assert!(shop.there(1).await && shop.ledger.count() == 0);
    shop.run().await;
    assert_eq!(shop.stands(1).await.0.as_deref(), Some("scheduled"));
    shop.deliver().await;
    assert_eq!(shop.ledger.count(), 1);
    assert_eq!(payload(&shop.ledger.got()[0])["data"]["days_remaining"], 30);
    shop.pass("29 days").await;
    shop.run().await;
    assert!(shop.there(1).await);
    shop.pass("60 days").await;
    shop.run().await;
    assert!(!shop.there(1).await);
    assert_eq!(shop.ledger.count(), 1);
}

#[tokio::test]
async fn warnings_that_a_policy_begins_with_later_hold_for_who_is_due_already() {
    let shop = Shop::new("").await;
    shop.ebb.apply(&format!("[sinks.h]\ntype = \"handler\"\n{}", users(""))).await;
    shop.delete(1).await;
    shop.pass("89 days").await;
    shop.ebb.apply(&config("")).await;
    shop.pass("3 days").await;
    // Only its warning stands between the subject and its end: nobody takes that away by the way.
    let unwarned = format!("[sinks.h]\ntype = \"handler\"\n{}", users(""));
    let refused = shop.ebb.try_apply(&unwarned).await.unwrap_err();
    assert!(refused.to_string().contains("1 more subject would be due at once"), "{refused}");
    shop.run_and_deliver().await;
    assert!(shop.there(1).await && shop.ledger.count() == 1);
    let report = {
        let mut tx = shop.engine.database().read().await.unwrap();
        ebb::retain::report(&mut tx, None, None, None).await.unwrap()
    };
    assert!(report.premature.is_empty());
    // What was promised holds also when nobody is warned any more.
    shop.ebb.apply(&format!("[sinks.h]\ntype = \"handler\"\n{}", users(""))).await;
    shop.pass("29 days").await;
    shop.run().await;
    assert!(shop.there(1).await);
    shop.pass("2 days").await;
    shop.run().await;
    assert!(!shop.there(1).await);
}

#[tokio::test]
async fn what_cannot_be_delivered_stops_or_proceeds_as_the_policy_says() {
    for (says, proceeds) in [("stop", false), ("proceed", true)] {
        let shop = Shop::new(&format!("on_undeliverable = \"{says}\"")).await;
        shop.delete(1).await;
        shop.pass("60 days").await;
        shop.ledger.answer((0..4).map(|_| Verdict::transient("no such mailbox")));
        shop.run().await;
        for wait in ["0", "1 minute", "5 minutes", "15 minutes"] {
            shop.pass(wait).await;
            shop.deliver().await;
        }
        assert_eq!((shop.ledger.count(), shop.stands(1).await.0.as_deref()), (4, Some("undeliverable")));
        shop.pass("31 days").await;
        shop.run().await;
        assert_eq!(shop.there(1).await, !proceeds);
        if proceeds {
            continue;
        }
        assert_eq!(shop.stands(1).await.1.as_deref(), Some("its warning could not be delivered"));
        let status = shop.engine.status().await.unwrap();
        assert_eq!(status.policies.iter().map(|policy| policy.unwarned).collect::<Vec<_>>(), [1]);
        // Somebody mends it: the warning is made anew, and from then on the time counts.
        let event: uuid::Uuid = shop.ebb.db.scalar("SELECT event FROM ebb.warning").await;
        shop.engine.events().retry(event).await.unwrap();
        shop.pass("100 days").await;
        shop.run_and_deliver().await;
        shop.run().await;
        assert!(shop.there(1).await, "the time that a warning promises begins when it is accepted");
        shop.pass("30 days").await;
        shop.run().await;
        assert!(!shop.there(1).await);
    }
}

#[tokio::test]
async fn a_restore_takes_warnings_back_and_a_new_deletion_is_warned_anew() {
    let shop = Shop::new("spread = \"1h\"").await;
    shop.delete(1).await;
    shop.pass("60 days").await;
    shop.run().await;
    assert!(shop.ebb.db.scalar::<bool>("SELECT ebb.restore_subject('users', '1')").await);
    shop.pass("2 hours").await;
    shop.deliver().await;
    assert_eq!((shop.ledger.count(), shop.ebb.list("step", "ebb.warning").await.as_str()), (0, ""));
    shop.delete(1).await;
    shop.pass("60 days").await;
    shop.run().await;
    // Also when the application does it.
    shop.ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id = 1").await;
    shop.run().await;
    shop.pass("2 hours").await;
    shop.deliver().await;
    assert_eq!((shop.ledger.count(), shop.ebb.state("1").await), (0, "restored".into()));
    shop.delete(1).await;
    shop.pass("60 days").await;
    shop.run().await;
    shop.pass("2 hours").await;
    shop.deliver().await;
    assert_eq!(shop.ledger.count(), 1);
}

#[tokio::test]
async fn a_hold_stops_warnings_and_its_end_gives_the_time_of_one() {
    let shop = Shop::new("spread = \"1h\"").await;
    shop.delete(1).await;
    shop.delete(2).await;
    shop.pass("60 days").await;
    shop.run().await;
    // On their way, and taken back.
    shop.ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court'), ebb.place_hold('users', '2', 'court', ebb.now() + interval '40 days')").await;
    assert_eq!(shop.ebb.state("1").await, "pending");
    shop.pass("2 hours").await;
    shop.run_and_deliver().await;
    shop.pass("100 days").await;
    shop.ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    assert!(
        shop.until(1, "due_at = ebb.now() + interval '30 days'").await
            || shop.until(1, "due_at > ebb.now() + interval '29 days 23 hours'").await
    );
    shop.run().await;
    shop.pass("2 hours").await;
    shop.deliver().await;
    assert_eq!(shop.ledger.count(), 2, "both are warned once the holds are over");
    shop.run().await;
    shop.pass("29 days").await;
    shop.run().await;
    assert!(shop.there(1).await && shop.there(2).await);
    shop.pass("1 day").await;
    shop.run().await;
    assert!(!shop.there(1).await && !shop.there(2).await);
    assert_eq!(shop.ledger.count(), 2);
}

#[tokio::test]
async fn whoever_proceeds_unwarned_still_has_the_time_after_a_hold() {
    let shop = Shop::new("on_undeliverable = \"proceed\"").await;
    for user in [1, 2] {
        shop.delete(user).await;
    }
    shop.ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court'), ebb.place_hold('users', '2', 'court', ebb.now() + interval '100 days')").await;
    shop.pass("100 days").await;
    shop.ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    shop.ledger.answer((0..8).map(|_| Verdict::permanent("no such mailbox")));
    shop.run_and_deliver().await;
    assert_eq!(shop.stands(1).await.0.as_deref(), Some("undeliverable"));
    shop.pass("29 days").await;
    shop.run().await;
    assert!(shop.there(1).await && shop.there(2).await);
    shop.pass("1 day 1 minute").await;
    shop.run().await;
    assert!(!shop.there(1).await && !shop.there(2).await);
}

#[tokio::test]
async fn whoever_is_due_and_not_warned_yet_is_listed() {
    let shop = Shop::new("").await;
    shop.delete(1).await;
    shop.pass("400 days").await;
    shop.ebb.once("users:erase").await;
    assert!(shop.there(1).await);
    let mut tx = shop.ebb.engine.database().read().await.unwrap();
    let waiting = ebb::retain::list_waiting(&mut tx, Some("users"), 10).await.unwrap();
    tx.commit().await.unwrap();
    let told: Vec<_> =
        waiting.iter().map(|one| (one.deletion.subject_id.as_deref(), one.deletion.warning.as_deref())).collect();
    assert_eq!(told, [(Some("1"), Some("planned"))]);
}

#[tokio::test]
async fn a_verified_request_needs_no_warning() {
    let shop = Shop::new("spread = \"1h\"").await;
    shop.delete(1).await;
    shop.pass("60 days").await;
    shop.run().await;
    shop.ebb.db.execute("SELECT ebb.erase_subject('users', '1')").await;
    shop.run().await;
    assert!(!shop.there(1).await);
    shop.pass("2 hours").await;
    shop.deliver().await;
    assert_eq!(shop.ledger.count(), 0);
}

#[tokio::test]
async fn reminders_follow_the_warning_each_once() {
    let shop = Shop::new("warn_before = [\"30d\", \"7d\", \"1d\"]").await;
    shop.delete(1).await;
    for (passes, heard) in [
        ("60 days", 1),
        ("22 days", 1),
        ("1 day 1 hour", 2),
        ("1 hour", 2),
        ("5 days", 2),
        ("23 hours", 3),
        ("1 hour", 3),
    ] {
        shop.pass(passes).await;
        shop.run_and_deliver().await;
        shop.run_and_deliver().await;
        assert_eq!(shop.ledger.count(), heard, "after {passes}");
    }
    assert!(shop.there(1).await);
    shop.pass("1 day").await;
    shop.run().await;
    assert!(!shop.there(1).await);
    let heard: Vec<(Value, Value)> = shop
        .ledger
        .got()
        .iter()
        .map(payload)
        .map(|said| (said["type"].clone(), said["data"]["days_remaining"].clone()))
        .collect();
    let expected = [("deletion_warning", 30), ("deletion_reminder", 6), ("deletion_reminder", 0)];
    assert_eq!(heard, expected.map(|(kind, days)| (json!(kind), json!(days))));
}

#[tokio::test]
async fn warnings_are_spread_out_and_two_nodes_write_each_once() {
    let shop = Shop::new("spread = \"1h\"").await;
    shop.ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 12) n").await;
    let by_the_application = "INSERT INTO users (id, email, deleted_at) SELECT n, 'secret-' || n || '@example.test', ebb.now() FROM generate_series(13, 24) n";
    shop.ebb.db.execute(by_the_application).await;
    shop.pass("60 days").await;
    let (other, others) = (Ledger::default(), shop.ebb.another(shop.ebb.db.open()));
    let others = others.on("h", other.clone());
    for _ in 0..3 {
        let (one, two) = tokio::join!(run_once(&shop.engine, &["users"]), run_once(&others, &["users"]));
        one.unwrap();
        two.unwrap();
    }
    // Those who were deleted through Ebb, and those whom marking found.
    for first in [1, 13] {
        let (count, apart): (i64, bool) = sqlx::query_as(
            "SELECT count(*), max(due_at) - min(due_at) > interval '20 minutes' AND max(due_at) <= ebb.now() + interval '1 hour' \
             FROM ebb.event WHERE subject_id::int BETWEEN $1 AND $1 + 11",
        )
        .bind(first)
        .fetch_one(shop.ebb.db.pool())
        .await
        .unwrap();
        assert_eq!((count, apart), (12, true));
    }
    shop.pass("1 hour").await;
    let (one, two) = tokio::join!(run_once(&shop.engine, &["events"]), run_once(&others, &["events"]));
    one.unwrap();
    two.unwrap();
    assert_eq!(shop.ledger.count() + other.count(), 24);
    let mut subjects: Vec<String> =
        shop.ledger.got().iter().chain(&other.got()).map(|delivery| payload(delivery)["user_id"].to_string()).collect();
    subjects.sort();
    subjects.dedup();
    assert_eq!(subjects.len(), 24);
}

#[tokio::test]
async fn a_node_that_dies_between_sending_and_writing_it_down_loses_no_warning() {
    let shop = Shop::new("").await;
    shop.delete(1).await;
    shop.pass("60 days").await;
    shop.run().await;
    // The sink has it, and the node is gone before it could say so.
    shop.ledger.take(Duration::from_secs(600));
    let node = shop.engine.node(options(&["events"]), ebb::spine::Shutdown::new());
    let dying = tokio::spawn(node.run_once(Duration::from_secs(30)));
    ebb_testkit::eventually(crate::harness::SOON, || async { shop.ledger.count() == 1 }).await;
    dying.abort();
    let _ = dying.await;
    assert_eq!(shop.stands(1).await.0.as_deref(), Some("scheduled"), "sent, and nobody knows");
    shop.pass("31 days").await;
    shop.run().await;
    assert!(shop.there(1).await);
    shop.pass("-31 days").await;
    shop.ledger.take(Duration::ZERO);
    shop.ebb.db.execute("UPDATE ebb.event SET lease_until = '-infinity' WHERE lease_until IS NOT NULL").await;
    let running = Running::new(&shop.engine, &["events"]);
    shop.ebb.until("SELECT accepted_at IS NOT NULL FROM ebb.warning").await;
    running.stop().await;
    let got = shop.ledger.got();
    assert_eq!((got.len(), got[0].occurrence), (2, got[1].occurrence), "the receiver can tell a repeat");
    shop.pass("29 days").await;
    shop.run().await;
    assert!(shop.there(1).await);
    shop.pass("2 days").await;
    shop.run().await;
    assert!(!shop.there(1).await);
}

#[tokio::test]
async fn a_run_that_is_cut_off_anywhere_leaves_state_and_event_together() {
    let shop = Shop::new("batch = { rows = 2, pause = \"0s\" }").await;
    shop.ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 12) n").await;
    shop.pass("60 days").await;
    for after in [5, 20, 40, 60, 80, 120] {
        let node = shop.engine.node(options(&["users"]), ebb::spine::Shutdown::new());
        let run = tokio::spawn(node.run_once(Duration::from_secs(30)));
        tokio::time::sleep(Duration::from_millis(after)).await;
        run.abort();
        let _ = run.await;
        shop.ebb.db.execute("UPDATE ebb.lease SET expires_at = '-infinity'").await;
        let apart: i64 = shop.ebb.db.scalar(
            "SELECT count(*) FROM ebb.deletion d FULL JOIN ebb.warning w ON w.deletion = d.id FULL JOIN ebb.event e ON e.id = w.event
             WHERE (d.state = 'warned') IS DISTINCT FROM (w.event IS NOT NULL) OR (w.event IS NULL) <> (e.id IS NULL)",
        ).await;
        assert_eq!(apart, 0);
    }
    shop.run_and_deliver().await;
    assert_eq!(shop.ledger.count(), 12);
}

#[tokio::test]
async fn a_tenant_has_its_own_time_and_words() {
    let shop = Shop::new("tenant = \"tenant_id\"\ntenant_override = true\ntexts = { service = \"Shop\", support = \"help@example.test\" }").await;
    let set = |retention: Option<u16>, before: Vec<u16>, texts: &[(&str, &str)]| {
        let change = OverrideChange::Set(TenantTerms {
            retention: retention.map(Term::days),
            warn_before: (!before.is_empty()).then(|| before.into_iter().map(Term::days).collect()),
            texts: texts.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect(),
            enabled: true,
        });
        let engine = shop.engine.clone();
        async move {
            let mut tx = engine.database().read().await?;
            ebb::retain::set_override(&mut tx, "users", "t0", &change, true, "test").await?;
            tx.commit().await?;
            Ok::<(), Error>(())
        }
    };
    let refused = set(Some(20), vec![], &[]).await.unwrap_err();
    assert!(
        refused.to_string().contains("`warn_before` 30d is longer than the retention of tenant t0 20d"),
        "{refused}"
    );
    set(Some(20), vec![10], &[("service", "Toko Nol")]).await.unwrap();
    let refused =
        shop.ebb.try_apply(&config("tenant = \"tenant_id\"\ntenant_override = true\nwarn_before = [\"60d\"]")).await;
    assert!(refused.is_ok(), "the tenant has its own time: {refused:?}");
    shop.ebb.apply(&config("tenant = \"tenant_id\"\ntenant_override = true\ntexts = { service = \"Shop\", support = \"help@example.test\" }")).await;
    shop.delete(3).await; // of t0
    shop.delete(4).await;
    shop.pass("10 days").await;
    shop.run_and_deliver().await;
    let got = shop.ledger.got();
    assert_eq!(
        (got.len(), &payload(&got[0])["user_id"], &payload(&got[0])["data"]["days_remaining"]),
        (1, &json!("3"), &json!(10))
    );
    assert_eq!(payload(&got[0])["texts"], json!({ "service": "Toko Nol", "support": "help@example.test" }));
    shop.pass("11 days").await;
    shop.run().await;
    assert!(!shop.there(3).await && shop.there(4).await);
    shop.pass("39 days").await;
    shop.run_and_deliver().await;
    assert_eq!(payload(&shop.ledger.got()[1])["texts"]["service"], "Shop");
}

#[tokio::test]
async fn a_link_restores_its_deletion_once_and_ends_with_it() {
    let shop = Shop::new("").await;
    for user in [1, 2] {
        shop.delete(user).await;
    }
    shop.pass("60 days").await;
    shop.run_and_deliver().await;
    let got = shop.ledger.got();
    let of = |user: &str| token(got.iter().find(|delivery| payload(delivery)["user_id"] == user).unwrap());
    let (one, two) = (of("1"), of("2"));
    let look = |token: String| {
        let engine = shop.engine.clone();
        async move { engine.look_at_link(&token).await.unwrap() }
    };
    assert!(matches!(look(one.clone()).await, Link::Open(_)));
    assert_eq!(shop.ebb.state("1").await, "warned", "looking changes nothing");
    let tampered = format!("{}{}", if one.starts_with('A') { 'B' } else { 'A' }, &one[1..]);
    assert_eq!(look(tampered.clone()).await, Link::Unknown);
    assert_eq!(shop.engine.restore_by_link(&tampered).await.unwrap(), (false, Link::Unknown));
    assert_eq!(shop.engine.restore_by_link(&one).await.unwrap(), (true, Link::Used));
    assert_eq!((shop.ebb.state("1").await, look(one.clone()).await), ("restored".into(), Link::Used));
    // Deleted again: the old link is another deletion's.
    shop.delete(1).await;
    assert_eq!(shop.engine.restore_by_link(&one).await.unwrap(), (false, Link::Used));
    assert_eq!(shop.ebb.state("1").await, "pending");
    shop.pass("31 days").await;
    shop.run().await;
    assert!(!shop.there(2).await);
    assert_eq!(shop.engine.restore_by_link(&two).await.unwrap(), (false, Link::Gone));
    assert_eq!(look(two).await, Link::Gone);
}

#[tokio::test]
async fn what_a_warning_needs_is_asked_for_when_it_is_applied() {
    let ebb = Ebb::with(SHOP).await;
    let cases = [
        (config("").replace("notify = \"h\"", "notify = \"hh\""), "there is no sink \"hh\""),
        (config("").replace("email = \"email\"", "email = \"e_mail\""), "has no column e_mail"),
        (config("").replace("restore_url", "#"), "the link in a warning would lead nowhere"),
        (config("warn_before = [\"91d\"]"), "`warn_before` 91d is longer than the grace 90d"),
    ];
    for (config, says) in cases {
        let said = ebb.try_apply(&config).await.unwrap_err().to_string();
        assert!(said.contains(says), "{said}");
    }
    let reached = ebb.engine.clone().reached_at(Some("https://ebb.example.test"));
    reached.apply(&wanted(&config("").replace("restore_url", "#")).unwrap(), false, "test").await.unwrap();
}

#[tokio::test]
async fn the_link_of_a_deletion_that_was_taken_back_does_not_take_back_the_next() {
    let shop = Shop::new("").await;
    shop.ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 2").await;
    shop.run().await;
    shop.pass("61 days").await;
    shop.run_and_deliver().await;
    shop.run().await;
    let link = token(&shop.ledger.got()[0]);
    // Taken back and deleted again by the application, and nobody has noticed yet.
    shop.ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id = 2").await;
    shop.ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 2").await;
    assert_eq!(shop.engine.restore_by_link(&link).await.unwrap(), (false, Link::Used));
    let deleted = "SELECT deleted_at IS NOT NULL FROM users WHERE id = 2";
    assert!(shop.ebb.db.scalar::<bool>(deleted).await, "that needs the newer link");
    shop.run().await;
    let states = "SELECT string_agg(state, ',' ORDER BY opened_at) FROM ebb.deletion WHERE subject_id = '2'";
    assert_eq!(shop.ebb.db.scalar::<String>(states).await, "restored,pending");
}

#[tokio::test]
async fn nobody_is_written_to_about_an_erasure_that_no_longer_comes() {
    let set = |key: &str, value: Value| ebb::policy::Spec::from_iter([(key.to_owned(), value)]);
    let own = |enabled| OverrideChange::Set(TenantTerms { enabled, ..Default::default() });
    let keys = "spread = \"1h\"\ntenant = \"tenant_id\"\ntenant_override = true\n";
    for off in ["disabled", "observe", "tenant", "file"] {
        let shop = Shop::new(keys).await;
        let tenant = async |change| {
            let mut tx = shop.engine.database().read().await.unwrap();
            ebb::retain::set_override(&mut tx, "users", "t1", &change, false, "test").await.unwrap();
            tx.commit().await.unwrap();
        };
        let policy = async |key: &str, value: Value| {
            shop.engine.set_policy("users", &set(key, value), "test").await.unwrap();
        };
        shop.delete(7).await;
        shop.pass("60 days 1 hour").await;
        shop.run().await;
        assert_eq!(shop.stands(7).await.0.as_deref(), Some("scheduled"), "{off}");
        match off {
            "disabled" => policy("enabled", false.into()).await,
            "observe" => policy("mode", "observe".into()).await,
            "tenant" => tenant(own(false)).await,
            _ => drop(shop.ebb.apply("[sinks.h]\ntype = \"handler\"\n").await),
        }
        assert_eq!(shop.ebb.state("7").await, "pending", "{off}");
        // The deletion is open, so a link would work: none can be read.
        let links = "SELECT count(*) FROM (SELECT body FROM ebb.v_events UNION ALL SELECT body FROM ebb.event_history) e WHERE body LIKE '%restore?token%'";
        assert_eq!(shop.ebb.db.scalar::<i64>(links).await, 0, "{off}");
        shop.pass("40 days").await;
        if matches!(off, "observe" | "tenant") {
            shop.run().await;
        }
        shop.deliver().await;
        assert_eq!(shop.ledger.count(), 0, "{off}");
        // Warned anew before it is due, however long ago its time has come.
        match off {
            "disabled" => policy("enabled", true.into()).await,
            "observe" => policy("mode", "enforce".into()).await,
            "tenant" => tenant(own(true)).await,
            _ => drop(shop.ebb.apply(&config(keys)).await),
        }
        shop.run().await;
        shop.pass("2 hours").await;
        shop.run_and_deliver().await;
        assert_eq!((shop.ledger.count(), shop.there(7).await), (1, true), "{off}");
        shop.pass("29 days").await;
        shop.run().await;
        assert!(shop.there(7).await, "{off}");
        shop.pass("2 days").await;
        shop.run().await;
        assert!(!shop.there(7).await, "{off}");
    }
}

#[tokio::test]
async fn a_warning_that_is_written_while_its_policy_is_switched_off_is_not_there_afterwards() {
    let shop = Shop::new("spread = \"1h\"").await;
    shop.delete(7).await;
    shop.pass("60 days 1 hour").await;
    // The batch has written its warning and is not at its end.
    shop.ebb
        .db
        .execute(
            "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(3); RETURN NULL; END $$;
             CREATE TRIGGER slowly AFTER INSERT ON ebb.warning FOR EACH ROW EXECUTE FUNCTION slowly()",
        )
        .await;
    let engine = shop.engine.clone();
    let warns = tokio::spawn(async move { run_once(&engine, &["users:warn"]).await });
    shop.ebb
        .until("EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database())")
        .await;
    let off = ebb::policy::Spec::from_iter([("enabled".to_owned(), false.into())]);
    shop.engine.set_policy("users", &off, "test").await.unwrap();
    warns.await.unwrap().unwrap();
    assert_eq!(shop.ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.warning").await, 0);
    shop.pass("2 hours").await;
    shop.deliver().await;
    assert_eq!(shop.ledger.count(), 0);
}

#[tokio::test]
async fn what_is_marked_warned_and_erased_is_on_disk_whatever_a_database_says_of_commits() {
    for (set, expected) in [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")] {
        let shop = Shop::new("").await;
        shop.ebb
            .db
            .execute(&format!(
                "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = {set}', current_database()); END $$;
                 CREATE TABLE told (action text, waits text);
                 CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                     INSERT INTO public.told VALUES (NEW.action, current_setting('synchronous_commit')); RETURN NULL; END $$;
                 CREATE TRIGGER tell AFTER INSERT ON ebb.audit FOR EACH ROW EXECUTE FUNCTION tell();
                 UPDATE users SET deleted_at = now() WHERE id = 7"
            ))
            .await;
        let engine = shop.ebb.another(shop.ebb.db.open()).on("h", shop.ledger.clone());
        let again = Shop { engine, ..shop };
        again.run().await;
        again.pass("61 days").await;
        again.run_and_deliver().await;
        again.pass("31 days").await;
        again.run().await;
        assert!(!again.there(7).await);
        let told =
            "(SELECT DISTINCT action || ' ' || waits AS it FROM told WHERE action IN ('mark', 'warn', 'erase')) t";
        assert_eq!(again.ebb.list("it", told).await, format!("erase {expected},mark {expected},warn {expected}"));
    }
}
