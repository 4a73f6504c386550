//! What a deletion replaced is put back when it is taken back, by whoever takes it back.

use super::{found_in_ebb, users};
use crate::harness::{Ebb, wanted};

const STATUS: &str = r#"status = { column = "status", deleted = "deleted", active = "active" }"#;

async fn statuses(ebb: &Ebb, ids: &str) -> String {
    ebb.db
        .scalar(&format!("SELECT string_agg(COALESCE(status, '-'), ',' ORDER BY id) FROM users WHERE id IN ({ids})"))
        .await
}

#[tokio::test]
async fn a_restore_puts_back_the_status_that_its_deletion_replaced() {
    for at_once in [false, true] {
        let ebb = Ebb::shop(&format!("{STATUS}\nmark_at_once = {at_once}")).await;
        ebb.db
            .execute(
                "ALTER TABLE users ALTER status DROP NOT NULL; UPDATE users SET status = 'banned'; UPDATE users SET status = NULL WHERE id = 6;
                 SELECT ebb.delete_subject('users', n::text) FROM unnest(ARRAY[1, 6, 7]) n;
                 UPDATE users SET deleted_at = ebb.now() WHERE id IN (2, 3, 5);
                 UPDATE users SET deleted_at = ebb.now(), status = 'deleted' WHERE id = 4",
            )
            .await;
        ebb.once("users:mark").await;
        assert_eq!(statuses(&ebb, "1, 2, 3, 4, 5, 6, 7").await, ["deleted"; 7].join(","));
        // Deleted again before anybody looked: what the status was is still known.
        ebb.db.advance("1 day").await;
        ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id IN (3, 5)").await;
        ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 5").await;
        ebb.once("users:mark").await;
        assert_eq!(statuses(&ebb, "3").await, "banned");
        ebb.db.execute("SELECT ebb.restore_subject('users', n::text) FROM unnest(ARRAY[1, 2, 4, 5, 6]) n").await;
        // The application said itself that 4 is deleted; nobody knows what it was before.
        assert_eq!(statuses(&ebb, "1, 2, 3, 4, 5, 6").await, "banned,banned,banned,active,banned,-", "{at_once}");
        assert_eq!(ebb.list("subject_id", "ebb.deletion WHERE former IS NOT NULL").await, "7");
        ebb.db.advance("91 days").await;
        ebb.once("users").await;
        assert_eq!(ebb.list("id", "users").await, "1,2,3,4,5,6,8,9,10,11,12");
        assert_eq!(found_in_ebb(&ebb, "banned").await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_function_of_an_older_version_goes_on_working_and_is_named() {
    let ebb = Ebb::shop(STATUS).await;
    ebb.db
        .execute(
            "DO $do$ BEGIN EXECUTE replace(replace(pg_get_functiondef((SELECT oid FROM pg_proc WHERE proname = 'subject:users')),
                 'CASE split_part($1, '' '', 1)', 'CASE $1'), 'WHEN ''former''', 'WHEN ''nothing'''); END $do$;
             UPDATE users SET status = 'banned' WHERE id < 3;
             SELECT ebb.delete_subject('users', '1'); UPDATE users SET deleted_at = now() WHERE id = 2",
        )
        .await;
    ebb.once("users:mark").await;
    ebb.db.execute("SELECT ebb.restore_subject('users', '1'), ebb.restore_subject('users', '2')").await;
    assert_eq!(statuses(&ebb, "1, 2").await, "active,active");
    let questions = ebb::doctor::Questions {
        wanted: wanted(&users(STATUS)).unwrap(),
        host_time: jiff::Timestamp::now(),
        role: None,
        embedded: false,
    };
    let named = async || {
        let report = ebb.engine.doctor(&questions).await.unwrap();
        report.findings.iter().any(|found| found.evidence.contains("is not the one that this version makes"))
    };
    assert!(named().await);
    ebb.apply(&users(STATUS)).await;
    assert!(!named().await);
    ebb.db.execute("UPDATE users SET status = 'banned' WHERE id = 1; SELECT ebb.delete_subject('users', '1'); SELECT ebb.restore_subject('users', '1')").await;
    assert_eq!(statuses(&ebb, "1").await, "banned");
}
