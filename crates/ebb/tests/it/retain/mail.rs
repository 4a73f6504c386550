//! The warning as people get it: mails read back from a real server, a webhook's body off the wire.

use ebb::retain::Link;
use serde_json::{Value, json};

use super::warn::{Shop, config};
use crate::sinks::peer::{Behaviour, Python, Receiver};

/// A shop whose warnings go through a real sink instead of the ledger.
async fn shop(sink: &str, more: &str) -> Shop {
    let mut shop = Shop::new(more).await;
    // A handler of the program would go before whatever the sink's type is.
    shop.engine = shop.ebb.engine.clone();
    shop.ebb.apply(&config(more).replace("type = \"handler\"", sink)).await;
    shop
}

fn smtp(port: u16, more: &str) -> String {
    format!(
        "type = \"smtp\"\nhost = \"localhost\"\nport = {port}\nfrom = \"Shop <no-reply@example.test>\"\ntls = \"none\"\n{more}"
    )
}

/// The next mail, of a warning that was accepted a moment ago, and its text without line breaks.
async fn mail(shop: &Shop, server: &mut Python, accepted: i64) -> (Value, String) {
    let said: Option<String> = shop.ebb.db.scalar("SELECT string_agg(w::text, ' ') FROM ebb.warning w").await;
    let known: i64 = shop.ebb.db.scalar("SELECT count(*) FROM ebb.warning WHERE accepted_at IS NOT NULL").await;
    assert_eq!(known, accepted, "{said:?}");
    let mail: Value = serde_json::from_str(&server.line()).unwrap();
    let text = mail["text"].as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    (mail, text)
}

#[tokio::test]
async fn the_mail_says_everything_that_somebody_needs_and_its_link_works() {
    let mut server = Python::start("mailbox.py", &["plain"]);
    let more = "zone = \"Asia/Jakarta\"\nwarn_before = [\"30d\", \"3d\"]";
    let shop = shop(&smtp(server.port, ""), more).await;
    shop.ebb.db.execute("UPDATE users SET name = 'Ayu <b>Lestari</b>' WHERE id = 5").await;
    shop.ebb.set_clock("2026-10-03T20:30:00Z").await;
    shop.delete(5).await;
    shop.pass("60 days").await;
    shop.run_and_deliver().await;
    let (mail1, text) = mail(&shop, &mut server, 1).await;
    assert_eq!(mail1["to"], "\"Ayu <b>Lestari</b>\" <secret-5@example.test>");
    assert_eq!(
        (&mail1["subject"], &mail1["auto"]),
        (&json!("Your account will be deleted in 30 days"), &json!("auto-generated"))
    );
    // Requested at half past three in the morning of the fourth, where they live.
    for says in [
        "Hello Ayu <b>Lestari</b>,",
        "was requested on 4 October 2026",
        "On 2 January 2027 the account and everything that belongs to it will be permanently deleted",
        "Days remaining: 30",
        "WANT TO KEEP YOUR ACCOUNT?",
        "If you did not request the deletion",
        "After 2 January 2027 your data cannot be recovered",
        "This is an automated notice",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
    let html = &mail1["html"].as_str().unwrap().replace("&#x2f;", "/");
    for says in [
        "Hello Ayu &lt;b&gt;Lestari&lt;",
        "4 October 2026",
        "<strong>2 January 2027</strong>",
        ">30</span>",
        "cannot be recovered",
        "automated notice",
    ] {
        assert!(html.contains(says), "{says}\n{html}");
    }
    assert!(!html.contains("<b>Lestari"));
    let link = |text: &str| {
        text.split("https://app.example.test/restore?token=").nth(1).unwrap().chars().take(64).collect::<String>()
    };
    assert_eq!(link(&text), link(html));
    assert!(matches!(shop.engine.look_at_link(&link(&text)).await.unwrap(), Link::Open(_)));
    std::fs::write(std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("warning.html"), html).unwrap();

    shop.run().await;
    shop.pass("27 days 12 hours").await;
    shop.run_and_deliver().await;
    let (mail2, text2) = mail(&shop, &mut server, 2).await;
    assert_eq!(mail2["subject"], "Your account will be deleted in 2 days");
    assert!(text2.contains("This is a reminder.") && text2.contains("Days remaining: 2"), "{text2}");
    assert_eq!(link(&text2), link(&text), "both name the same deletion");
    assert_eq!(shop.engine.restore_by_link(&link(&text)).await.unwrap(), (true, Link::Used));
    assert_eq!(shop.ebb.state("5").await, "restored");
}

#[tokio::test]
async fn policy_tenant_and_template_have_their_own_words() {
    let mut server = Python::start("mailbox.py", &["plain"]);
    let more = "tenant = \"tenant_id\"\ntenant_override = true
        texts = { service = \"Warung\", support = \"help@example.test\", closing = \"Terima kasih.\" }";
    let shop = shop(&smtp(server.port, ""), more).await;
    shop.words(
        "t0",
        &[
            ("service", "Toko <Nol>"),
            ("greeting", "Selamat pagi,"),
            ("intro", "Kami menulis kepada Anda."),
            ("subject", "Akun Anda"),
        ],
    )
    .await;
    shop.delete(3).await;
    shop.pass("60 days").await;
    shop.run_and_deliver().await;
    let (mail1, text) = mail(&shop, &mut server, 1).await;
    assert_eq!(mail1["subject"], "Akun Anda");
    for says in [
        "Selamat pagi, Kami menulis kepada Anda.",
        "your Toko <Nol> account",
        "contact help@example.test at once",
        "Terima kasih.",
    ] {
        assert!(text.contains(says), "{says}\n{text}");
    }
    assert!(mail1["html"].as_str().unwrap().contains("Toko &lt;Nol&gt;"));

    let dir = ebb_testkit::TempDir::new();
    let path = dir.path().join("own.jinja");
    let own = "{% extends \"default\" %}{% block html %}<h1>{{ data.data.days_remaining }} days until {{ data.data.scheduled_deletion_at|date }}</h1>{% endblock %}";
    std::fs::write(&path, own).unwrap();
    let sink = smtp(server.port, &format!("template = {path:?}"));
    shop.ebb.apply(&config(more).replace("type = \"handler\"", &sink)).await;
    shop.delete(4).await;
    shop.pass("60 days").await;
    shop.run_and_deliver().await;
    let (mail2, text) = mail(&shop, &mut server, 2).await;
    let html = mail2["html"].as_str().unwrap();
    assert!(html.starts_with("<h1>30 days until ") && text.contains("your Warung account"), "{html}\n{text}");
}

#[tokio::test]
async fn who_has_no_address_cannot_be_warned_and_is_not_erased() {
    let mut server = Python::start("mailbox.py", &["plain"]);
    let shop = shop(&smtp(server.port, ""), "").await;
    shop.ebb.db.execute("UPDATE users SET email = CASE id WHEN 1 THEN NULL WHEN 2 THEN 'not an address' ELSE 'nobody@example.test' END WHERE id < 4").await;
    for user in 1..=4 {
        shop.delete(user).await;
    }
    shop.pass("60 days").await;
    shop.run_and_deliver().await;
    assert_eq!(mail(&shop, &mut server, 1).await.0["to"], "Secret Name 4 <secret-4@example.test>");
    for user in 1..=3 {
        assert_eq!(shop.stands(user).await.0.as_deref(), Some("undeliverable"), "{user}");
    }
    shop.pass("31 days").await;
    shop.run().await;
    assert_eq!(shop.ebb.list("id", "users").await, "1,2,3,5,6,7,8,9,10,11,12");
    let error: String = shop.ebb.db.scalar("SELECT warning_error FROM ebb.v_deletions WHERE subject_id = '3'").await;
    assert!(error.contains("550") && !error.contains("nobody@"), "{error}");
}

#[tokio::test]
async fn a_template_that_has_no_words_for_a_warning_uses_up_no_attempt() {
    let mut server = Python::start("mailbox.py", &["plain"]);
    let dir = ebb_testkit::TempDir::new();
    let path = dir.path().join("own.jinja");
    let wrong = "{% extends \"default\" %}{% block subject %}{{ data.nope.nope }}{% endblock %}";
    std::fs::write(&path, wrong).unwrap();
    let sink = smtp(server.port, &format!("template = {path:?}"));
    let shop = shop(&sink, "on_undeliverable = \"proceed\"").await;
    shop.delete(4).await;
    shop.pass("60 days").await;
    shop.run_and_deliver().await;
    let waits = "SELECT count(*) FROM ebb.event WHERE subject_id = '4' AND attempts = 0";
    assert_eq!(shop.ebb.db.scalar::<i64>(waits).await, 1);
    shop.pass("40 days").await;
    shop.run_and_deliver().await;
    assert_eq!(shop.ebb.list("id", "users WHERE id = 4").await, "4", "nobody is erased unwarned");

    // Mended, it goes out; what fails for one event is that event's own.
    let mended = "{% extends \"default\" %}{% block subject %}{% if data.data.name == \"Trouble\" %}{{ data.nope.nope }}{% endif %}Soon{% endblock %}";
    std::fs::write(&path, mended).unwrap();
    shop.ebb.db.execute("UPDATE users SET name = 'Trouble' WHERE id = 5").await;
    shop.delete(5).await;
    shop.pass("60 days").await;
    // The date in the one that waited is not true any more: it is made anew.
    shop.run_and_deliver().await;
    shop.run_and_deliver().await;
    assert_eq!(mail(&shop, &mut server, 1).await.0["subject"], "Soon");
    assert_eq!(shop.stands(5).await.0.as_deref(), Some("undeliverable"));
}

#[tokio::test]
async fn a_webhook_gets_the_documents_event() {
    let receiver = Receiver::start(Behaviour::status("200 OK")).await;
    let sink = format!("type = \"webhook\"\nurl = \"{}\"\nallow_private = true", receiver.url());
    let shop = shop(&sink, "tenant = \"tenant_id\"").await;
    shop.delete(4).await;
    shop.pass("60 days").await;
    shop.run_and_deliver().await;
    let body: Value = serde_json::from_slice(&receiver.calls()[0].body).unwrap();
    assert_eq!((&body["type"], &body["id"]), (&json!("deletion_warning"), &body["idempotencyKey"]));
    // Every key of the document's schema, with its type.
    let schema = json!({ "event_type": "", "user_id": "", "tenant_id": "", "timestamp": "",
        "data": { "email": "", "name": "", "deleted_at": "", "scheduled_deletion_at": "", "days_remaining": 0, "restore_url": "" } });
    let fits = |given: &Value, wanted: &Value| {
        wanted
            .as_object()
            .unwrap()
            .iter()
            .filter(|(_, kind)| !kind.is_object())
            .all(|(key, kind)| std::mem::discriminant(&given[key]) == std::mem::discriminant(kind))
    };
    assert!(fits(&body["data"], &schema) && fits(&body["data"]["data"], &schema["data"]), "{body}");
    for key in ["deleted_at", "scheduled_deletion_at"] {
        let text = body["data"]["data"][key].as_str().unwrap();
        assert!(text.ends_with('Z') && text.len() == 20, "{text}");
    }
    assert_eq!(shop.stands(4).await.0.as_deref(), Some("accepted"));
}
