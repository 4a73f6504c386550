//! Events of a subject end with it: what was to come is cancelled, what was delivered keeps nothing.

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
