//! Taking events in: what is refused, what a dedupe key does, what a transaction does.

use ebb::schedule::{Event, Yearly};
use jiff::Timestamp;
use serde_json::json;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::Desk;
use crate::harness::{execute, fetch};

async fn refusal(desk: &Desk, call: &str) -> (String, String) {
    let error = sqlx::raw_sql(AssertSqlSafe(format!("SELECT {call}"))).execute(desk.ebb.db.pool()).await.unwrap_err();
    let db = error.as_database_error().unwrap_or_else(|| panic!("{call}: {error}"));
    assert_eq!(db.code().as_deref(), Some("22023"), "{call}: {db}");
    let hint = db.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().unwrap().hint().unwrap_or_default().to_owned();
    (db.message().to_owned(), hint)
}

#[tokio::test]
async fn what_cannot_be_an_event_is_refused_with_a_hint_and_loses_nothing() {
    let desk = Desk::new().await;
    for (call, says, hints) in [
        ("ebb.schedule('mali', now(), '{}')", "there is no sink \"mali\"", "h"),
        ("ebb.schedule(NULL, now(), '{}')", "there is no sink NULL", "h"),
        ("ebb.schedule('h', NULL, '{}')", "the due time is NULL", "now()"),
        ("ebb.schedule('h', '1969-12-31T23:59:59Z', '{}')", "before 1970", "another unit"),
        ("ebb.schedule('h', '9999-12-31', '{}')", "year 9999", "never due"),
        ("ebb.schedule('h', 'infinity', '{}')", "year 9999", "never due"),
        ("ebb.schedule('h', now(), NULL)", "payload is NULL", "'{}'"),
        ("ebb.schedule('h', now(), to_jsonb(repeat('x', 1100000)))", "more than 1 MB", "where it is"),
        ("ebb.schedule('h', now(), '{}', '')", "from 1 to 1024 bytes", "Hash"),
        ("ebb.schedule('h', now(), '{}', repeat('k', 1025))", "from 1 to 1024 bytes", "Hash"),
        ("ebb.schedule('h', now(), '{}', max_late => '-1 s')", "more than nothing", "Leave it out"),
        ("ebb.schedule('h', now(), '{}', subject_policy => 'users')", "both a policy and an id", "together"),
        ("ebb.schedule_many('{}')", "no array", "Pass"),
        (
            "ebb.schedule_many('[{\"sink\": \"h\", \"due_at\": \"2030-01-01Z\", \"payload\": {}}, {\"sink\": \"h\"}]')",
            "due time is NULL",
            "now()",
        ),
        ("ebb.schedule_yearly('h', 2, 30, '09:00', 'UTC', '{}', 'k')", "no day 30 of month 2", "29 February is a day"),
        ("ebb.schedule_yearly('h', 13, 1, '09:00', 'UTC', '{}', 'k')", "no day 1 of month 13", "1 to 12"),
        ("ebb.schedule_yearly('h', 1, 1, '24:00', 'UTC', '{}', 'k')", "next day", "00:00"),
        ("ebb.schedule_yearly('h', 1, 1, '09:00', 'Mars/Olympus', '{}', 'k')", "no time zone", "IANA"),
        ("ebb.schedule_yearly('h', 1, 1, '09:00', 'EST5EDT4', '{}', 'k')", "no time zone", "IANA"),
        ("ebb.schedule_yearly('h', 1, 1, '09:00', 'UTC', '{}', 'k', 'some')", "missed cannot be", "latest"),
        (
            "ebb.schedule_yearly('h', 1, 1, '09:00', 'UTC', '{}', 'k', leap_day => '03-02')",
            "leap_day cannot be",
            "02-28",
        ),
        ("ebb.schedule_yearly('mali', 1, 1, '09:00', 'UTC', '{}', 'k')", "no sink", "h"),
    ] {
        let (message, hint) = refusal(&desk, call).await;
        assert!(message.contains(says) && hint.contains(hints), "{call}: {message} ({hint})");
    }
    let left: i64 = desk.ebb.db.scalar("SELECT (SELECT count(*) FROM ebb.event) + (SELECT count(*) FROM ebb.recurring) + (SELECT count(*) FROM ebb.event_key)").await;
    assert_eq!(left, 0);
    let error = desk.engine.events().schedule(&Event::new("mali", Timestamp::now(), json!({}))).await.unwrap_err();
    assert!(error.is_usage() && error.hint().unwrap().contains('h'), "{error:?}");
    let zero = Event::new("h", Timestamp::now(), json!({ "text": "a\0b" }));
    assert!(desk.engine.events().schedule(&zero).await.unwrap_err().is_usage());
}

#[tokio::test]
async fn bad_schedules_are_refused_when_they_are_applied() {
    let desk = Desk::new().await;
    for (keys, says) in [
        ("cron = \"0 3 * * SUN\"\nsink = \"j\"", "there is no sink \"j\""),
        ("cron = \"0 0 31 2 *\"\nsink = \"h\"", "never fires"),
        ("cron = \"whenever\"\nsink = \"h\"", "is no cron pattern"),
        ("cron = \"@daily\"\nsink = \"h\"\nzone = \"Asia/Jakrata\"", "did you mean `Asia/Jakarta`?"),
    ] {
        let config = format!("[[schedule]]\nname = \"s\"\n{keys}\n[sinks.h]\ntype = \"handler\"\n");
        let error = desk.ebb.try_apply(&config).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(desk.count("ebb.recurring").await, 0);
}

#[tokio::test]
async fn an_event_stands_and_falls_with_the_transaction_that_wrote_it() {
    let desk = Desk::new().await;
    let mut client = desk.ebb.client().await;
    execute(&mut client, "BEGIN").await;
    let _: Uuid = fetch(&mut client, "SELECT ebb.schedule('h', now(), '{\"n\": 1}')").await;
    desk.once().await;
    execute(&mut client, "ROLLBACK").await;
    desk.once().await;
    assert_eq!((desk.ledger.count(), desk.count("ebb.event").await), (0, 0));
}

#[tokio::test]
async fn a_dedupe_key_is_one_event_per_sink_whatever_its_payload() {
    let desk = Desk::with("[sinks.l]\ntype = \"log\"\n").await;
    let first = desk.schedule("now()", 1, ", 'key'").await;
    assert_eq!(desk.schedule("now() + interval '1 day'", 2, ", 'key'").await, first);
    let other: Uuid = desk.ebb.db.scalar("SELECT ebb.schedule('l', now(), '{}', 'key')").await;
    assert_ne!(other, first);
    desk.once().await;
    assert_eq!(desk.schedule("now()", 3, ", 'key'").await, first, "also after it was delivered");
    assert_eq!(desk.ledger.numbers(), [1]);
    // A cancelled event keeps its key: cancelling and forgetting are two things.
    let cancelled = desk.schedule("now() + interval '1 day'", 4, ", 'other'").await;
    assert!(desk.engine.events().cancel(cancelled).await.unwrap());
    assert_eq!(desk.schedule("now()", 5, ", 'other'").await, cancelled);
}

#[tokio::test]
async fn one_of_many_concurrent_writers_of_a_key_makes_the_event() {
    let desk = Desk::new().await;
    let events = desk.engine.events();
    let due = events.now().await.unwrap();
    let writers = (0..20).map(|n| {
        let events = events.clone();
        tokio::spawn(
            async move { events.schedule(&Event::new("h", due, json!({ "n": n })).dedupe("same")).await.unwrap() },
        )
    });
    let mut ids = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        ids.push(writer.await.unwrap());
    }
    ids.dedup();
    assert_eq!((ids.len(), desk.count("ebb.event").await), (1, 1));
}

#[tokio::test]
async fn many_events_in_one_call_come_back_in_order_and_keep_their_keys() {
    let desk = Desk::new().await;
    let events = desk.engine.events();
    let now = events.now().await.unwrap();
    let event = |n: i64| Event::new("h", now, json!({ "n": n }));
    let kept = events.schedule(&event(0).dedupe("a")).await.unwrap();
    let many = [
        event(1),
        event(2).dedupe("b"),
        event(3).dedupe("a"),
        event(4).dedupe("b"),
        event(5).max_late(std::time::Duration::from_secs(60)),
    ];
    let ids = events.schedule_many(&many).await.unwrap();
    assert_eq!((ids.len(), ids[2], ids[1]), (5, kept, ids[3]));
    desk.once().await;
    let mut numbers = desk.ledger.numbers();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 5]);
    for (id, n) in ids.iter().zip([1, 2, 0, 2, 5]) {
        let stored: i64 = desk
            .ebb
            .db
            .scalar(&format!("SELECT (body::jsonb -> 'data' ->> 'n')::int8 FROM ebb.event_history WHERE id = '{id}'"))
            .await;
        assert_eq!(stored, n);
    }
    assert_eq!(events.schedule_many(&[]).await.unwrap(), Vec::<Uuid>::new());
}

#[tokio::test]
async fn a_role_that_may_only_schedule_can_and_cannot_see() {
    let desk = Desk::new().await;
    desk.ebb.db.execute("DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'ebb_app') THEN CREATE ROLE ebb_app; END IF; END $$").await;
    ebb::pg::migrate(desk.engine.database()).await.unwrap();
    let mut client = desk.ebb.client().await;
    execute(&mut client, "SET ROLE ebb_app").await;
    let id: Uuid = fetch(&mut client, "SELECT ebb.schedule('h', now() + interval '1 day', '{}', 'k')").await;
    let _: Uuid =
        fetch(&mut client, "SELECT ebb.schedule_yearly('h', 2, 29, '09:00', 'Asia/Jakarta', '{}', 'y')").await;
    let cancelled: bool = fetch(&mut client, &format!("SELECT ebb.cancel('{id}')")).await;
    assert!(cancelled);
    for denied in [
        "SELECT * FROM ebb.event",
        "SELECT ebb.forget_subject_events('a', 'b')",
        "SELECT ebb.event_history_drop(now())",
    ] {
        let error = sqlx::raw_sql(AssertSqlSafe(denied.to_owned())).execute(&mut client).await.unwrap_err();
        assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("42501"), "{denied}");
    }
}

#[tokio::test]
async fn rust_and_sql_write_the_same_yearly_event() {
    let desk = Desk::new().await;
    let yearly = Yearly {
        sink: "h".into(),
        month: 2,
        day: 29,
        at: jiff::civil::time(9, 0, 0, 0),
        zone: "asia/jakarta".into(),
        payload: json!({ "n": 1 }),
        dedupe_key: Some("user-1".into()),
        missed: ebb::policy::Missed::Latest,
        max_late: None,
        leap_day_in_march: true,
        subject: None,
    };
    let id = desk.engine.events().schedule_yearly(&yearly).await.unwrap();
    let same: Uuid = desk.ebb.db.scalar("SELECT ebb.schedule_yearly('h', 2, 29, '09:00', 'Asia/Jakarta', '{\"n\": 1}', 'user-1', 'latest', leap_day => '03-01')").await;
    assert_eq!(id, same);
    let shown = desk.engine.events().show(id).await.unwrap().unwrap().recurring.unwrap();
    assert_eq!((shown.zone.as_str(), shown.missed.as_str(), shown.version), ("Asia/Jakarta", "latest", 2));
    desk.schedule("now()", 1, ", 'once'").await;
    let (message, _) = refusal(&desk, "ebb.schedule_yearly('h', 1, 1, '09:00', 'UTC', '{}', 'once')").await;
    assert!(message.contains("belongs to an event that comes once"), "{message}");
}
