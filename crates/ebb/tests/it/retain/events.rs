//! Events of a subject end with it: what was to come is cancelled, what was delivered keeps nothing.

use sqlx::Connection;

use super::found_in_ebb;
use crate::harness::Ebb;

const SINK: &str = "\n[sinks.out]\ntype = \"log\"\n";

#[tokio::test]
async fn erasing_cancels_what_was_to_come_and_blanks_what_was() {
    let ebb = Ebb::shop(SINK).await;
    for user in [1, 2] {
        ebb.db
            .execute(&format!(
                "SELECT ebb.schedule('out', now() + interval '2 years', '{{\"to\": \"pii-{user}@mail\"}}', 'pii-{user}', NULL, 'users', '{user}');
                 SELECT ebb.cancel(ebb.schedule('out', now() + interval '2 years', '{{\"to\": \"pii-{user}@mail\"}}', NULL, NULL, 'users', '{user}'));
                 SELECT ebb.schedule_yearly('out', 5, 17, '09:00', 'UTC', '{{\"to\": \"pii-{user}@mail\"}}', 'year-pii-{user}', 'all', NULL, '02-28', 'users', '{user}')"
            ))
            .await;
    }
    assert!(!found_in_ebb(&ebb, "pii-1").await.is_empty());
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 11);
    assert_eq!(found_in_ebb(&ebb, "pii-1").await, Vec::<String>::new());
    let left = "SELECT count(*) FROM ebb.event WHERE subject_id = '1'";
    assert_eq!(ebb.db.scalar::<i64>(left).await, 0);
    let cancelled = "SELECT (details ->> 'events_cancelled')::int8 FROM ebb.audit WHERE action = 'erase'";
    assert_eq!(ebb.db.scalar::<i64>(cancelled).await, 2, "one of its own, and the next of the yearly one");
    // Whoever lives keeps theirs.
    let theirs = "SELECT (SELECT count(*) FROM ebb.event WHERE subject_id = '2') + (SELECT count(*) FROM ebb.recurring WHERE subject_id = '2')
        + (SELECT count(*) FROM ebb.event_history WHERE subject_id = '2' AND body LIKE '%pii-2%')";
    assert_eq!(ebb.db.scalar::<i64>(theirs).await, 3);
}

#[tokio::test]
async fn a_subject_with_very_many_events_goes_in_parts() {
    let ebb = Ebb::shop(SINK).await;
    ebb.db
        .execute(
            "SELECT ebb.schedule('out', now() + interval '2 years', '{\"to\": \"pii\"}', NULL, NULL, 'users', '1') FROM generate_series(1, 21000)",
        )
        .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.delete_subject('users', '2')").await;
    ebb.db.advance("91 days").await;
    let finished = ebb.once("users").await;
    let erase = finished.runs.iter().find(|run| run.unit.starts_with("erase/")).unwrap();
    assert!(erase.batches >= 3, "{erase:?}");
    assert_eq!((ebb.rows().await.0, ebb.erased().await), (10, (2, 28)));
    let left = "SELECT (SELECT count(*) FROM ebb.event) + (SELECT count(*) FROM ebb.event_history WHERE body <> '' OR subject_id IS NOT NULL)";
    assert_eq!(ebb.db.scalar::<i64>(left).await, 0);
}

#[tokio::test]
async fn an_event_that_is_scheduled_while_its_subject_is_erased_goes_with_it() {
    let ebb = Ebb::shop(SINK).await;
    ebb.db.execute("SELECT ebb.erase_subject('users', '1'), ebb.erase_subject('users', '2')").await;
    let mut client = ebb.client().await;
    let mut tx = client.begin().await.unwrap();
    sqlx::query(
        "SELECT ebb.schedule('out', now() + interval '10 days', '{\"to\": \"pii-1\"}', 'pii-1', NULL, 'users', '1')",
    )
    .execute(&mut *tx)
    .await
    .unwrap();
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users WHERE id < 3").await, "1", "whoever is spoken for comes next time");
    tx.commit().await.unwrap();
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users WHERE id < 3").await, "");
    assert_eq!(found_in_ebb(&ebb, "pii-1").await, Vec::<String>::new());
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.event").await, 0);
}

#[tokio::test]
async fn nobody_who_is_not_there_gets_an_event_and_what_is_there_goes_on() {
    let ebb = Ebb::shop(SINK).await;
    let mut client = ebb.client().await;
    for call in [
        "SELECT ebb.schedule('out', now(), '{}', NULL, NULL, 'users', '99')",
        "SELECT ebb.schedule_many('[{\"sink\": \"out\", \"due_at\": \"2030-01-01Z\", \"payload\": {}, \"subject_policy\": \"users\", \"subject_id\": \"99\"}]')",
        "SELECT ebb.schedule_yearly('out', 5, 17, '09:00', 'UTC', '{}', 'k', 'all', NULL, '02-28', 'users', '99')",
    ] {
        let refused = sqlx::query(call).execute(&mut client).await.unwrap_err();
        let refused = refused.as_database_error().unwrap();
        assert_eq!(refused.code().as_deref(), Some("P0002"), "{refused}");
        assert!(refused.message().contains("policy users knows no subject '99'"), "{refused}");
    }
    // A calendar fires, and a dead letter is tried again, also after the application deleted the row itself.
    ebb.db
        .execute(
            "SELECT ebb.schedule_yearly('out', 5, 17, '09:00', 'UTC', '{}', 'yearly', 'all', NULL, '02-28', 'users', '03');
             SELECT ebb.schedule('out', now() + interval '5 years', '{}', 'late', NULL, 'users', '3');
             SELECT ebb.cancel(event) FROM ebb.event_key WHERE key = 'late';
             UPDATE ebb.event_history SET state = 'dead';
             SELECT ebb.schedule('out', now() + interval '5 years', '{}', 'taken back', NULL, 'users', '3');
             SELECT ebb.cancel(event) FROM ebb.event_key WHERE key = 'taken back';
             DELETE FROM users WHERE id = 3; UPDATE ebb.recurring SET next_at = ebb.now()",
        )
        .await;
    for key in ["late", "taken back"] {
        let ended = ebb.db.scalar(&format!("SELECT event FROM ebb.event_key WHERE key = '{key}'")).await;
        assert!(ebb.engine.events().retry(ended).await.unwrap(), "{key}");
    }
    ebb.once("events").await;
    let done = "SELECT count(*) FROM ebb.event_history WHERE state = 'done' AND subject_id = '3'";
    let fired = "SELECT count(*) FROM ebb.event WHERE recurring IS NOT NULL AND subject_id = '3'";
    assert_eq!((ebb.db.scalar::<i64>(done).await, ebb.db.scalar::<i64>(fired).await), (2, 1));
}

/// Only what Ebb itself says of a deletion has a link to hide.
#[tokio::test]
async fn an_applications_event_that_is_called_like_a_warning_is_delivered_as_it_is() {
    let ebb = Ebb::shop(SINK).await;
    ebb.db
        .execute(
            r#"SELECT ebb.schedule('out', now(), '{"type": "deletion_warning", "data": ["mail", "sms"]}', NULL, NULL, 'users', '3');
               SELECT ebb.schedule('out', now(), '{"type": "deletion_warning", "data": {"restore_url": "its own"}}', NULL, NULL, 'users', '3')"#,
        )
        .await;
    ebb.once("events").await;
    let done =
        "SELECT count(*) FROM ebb.event_history WHERE state = 'done' AND (body LIKE '%its own%' OR body LIKE '%sms%')";
    assert_eq!(ebb.db.scalar::<i64>(done).await, 2);
}
