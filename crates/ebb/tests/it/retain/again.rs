//! What happens to a subject a second time, or to a deletion that is open, is seen as what it is: a new soft delete, a
//! moved date, a warning that is sent once more.

use ebb::policy::Term;
use ebb::retain::{OverrideChange, TenantTerms};
use ebb::schedule::sink::Verdict;

use super::warn::{Shop, payload};
use super::{SHOP, users};
use crate::harness::{Ebb, run_once};

/// States of the deletions of subject 2, the oldest first.
async fn states(ebb: &Ebb) -> String {
    ebb.db
        .scalar("SELECT COALESCE(string_agg(state, ',' ORDER BY opened_at), '') FROM ebb.deletion WHERE subject_id = '2' OR state = 'erased'")
        .await
}

#[tokio::test]
async fn a_soft_delete_after_one_that_was_taken_back_is_a_new_deletion() {
    for at_once in [false, true] {
        let mirror = "mirror = { due = \"scheduled_deletion_at\", notified = \"deletion_notified_at\" }";
        let shop = Shop::new(&format!("{mirror}\nmark_at_once = {at_once}")).await;
        shop.ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 2").await;
        shop.run().await;
        shop.pass("61 days").await;
        shop.run_and_deliver().await;
        shop.run().await;
        assert_eq!((shop.ledger.count(), states(&shop.ebb).await.as_str()), (1, "warned"));
        // Taken back and set again between two looks: in one statement, or in two.
        shop.ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 2").await;
        shop.run().await;
        assert_eq!(states(&shop.ebb).await, "restored,pending", "at once: {at_once}");
        let mirrored = "SELECT deletion_notified_at IS NULL AND scheduled_deletion_at = deleted_at + interval '90 days' FROM users WHERE id = 2";
        assert!(shop.ebb.db.scalar::<bool>(mirrored).await, "the columns are of the new deletion");
        shop.pass("61 days").await;
        shop.run_and_deliver().await;
        assert_eq!(shop.ledger.count(), 2, "whoever is deleted again is warned again");
        let links: Vec<String> =
            shop.ledger.got().iter().map(|sent| payload(sent)["data"]["restore_url"].to_string()).collect();
        assert_ne!(links[0], links[1], "a link is tied to one deletion");
        shop.pass("31 days").await;
        shop.run().await;
        let proof = "SELECT (details ->> 'warned_at')::timestamptz > (details ->> 'soft_deleted_at')::timestamptz
            AND (details ->> 'erased_at')::timestamptz - (details ->> 'soft_deleted_at')::timestamptz < interval '93 days'
            FROM ebb.audit WHERE action = 'erase'";
        assert!(shop.ebb.db.scalar::<bool>(proof).await, "the record has the soft delete that counts");
        let taken_back: i64 = shop.ebb.db.scalar("SELECT count(*) FROM ebb.audit WHERE action = 'restore'").await;
        assert_eq!(taken_back, 1);
    }
}

#[tokio::test]
async fn marking_leaves_a_deletion_alone_whose_column_says_less_than_it_knows() {
    for kind in ["date", "timestamptz(0)", "timestamp"] {
        let ebb = Ebb::with(SHOP).await;
        ebb.db.execute(&format!("ALTER TABLE users ALTER deleted_at TYPE {kind} USING NULL")).await;
        ebb.apply(&users("zone = \"Asia/Jakarta\"\nmark_at_once = true")).await;
        ebb.db.execute("SELECT ebb.delete_subject('users', '2')").await;
        ebb.db.execute("UPDATE users SET deleted_at = (ebb.now() AT TIME ZONE 'Asia/Jakarta') WHERE id = 3").await;
        for _ in 0..2 {
            assert!(!ebb.once("users:mark").await.has_failed(), "{kind}");
        }
        assert_eq!((states(&ebb).await.as_str(), ebb.state("3").await.as_str()), ("pending", "pending"), "{kind}");
        assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.deletion").await, 2, "{kind}");
        // On another day it is another soft delete, whoever opened the deletion, and whether a trigger sees it or the chore.
        ebb.db.advance("25 hours").await;
        ebb.db.execute("UPDATE users SET deleted_at = (ebb.now() AT TIME ZONE 'Asia/Jakarta') WHERE id = 2").await;
        ebb.db.execute("ALTER TABLE users DISABLE TRIGGER USER").await;
        ebb.db.execute("UPDATE users SET deleted_at = (ebb.now() AT TIME ZONE 'Asia/Jakarta') WHERE id = 3").await;
        for _ in 0..2 {
            assert!(!ebb.once("users:mark").await.has_failed(), "{kind}");
        }
        assert_eq!(ebb.list("state", "ebb.deletion").await, "pending,pending,restored,restored", "{kind}");
    }
}

#[tokio::test]
async fn a_delete_after_the_application_took_one_back_is_not_swallowed() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '2')").await;
    ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id = 2").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '2')").await;
    assert_eq!(states(&ebb).await, "restored,pending");
    ebb.once("users:mark").await;
    assert_eq!(ebb.state("2").await, "pending", "marking sees a row that is soft-deleted");
    // Whoever is on hold is told when: not before it ends.
    ebb.db.execute("SELECT ebb.place_hold('users', '3', 'court')").await;
    assert_eq!(ebb.db.scalar::<String>("SELECT ebb.delete_subject('users', '3')::text").await, "infinity");
    let holds = "SELECT count(*) FROM ebb.audit a JOIN ebb.hold h ON h.id = (a.details ->> 'hold')::bigint WHERE a.action = 'hold' AND h.subject_id = '3'";
    assert_eq!(ebb.db.scalar::<i64>(holds).await, 1, "the record says which hold it was");
}

#[tokio::test]
async fn a_link_works_for_a_table_that_the_owner_of_the_schema_may_not_see() {
    let ebb = Ebb::with(
        "CREATE SCHEMA \"App\"; CREATE TABLE \"App\".\"Users\" (id bigint PRIMARY KEY, deleted_at timestamptz); INSERT INTO \"App\".\"Users\" VALUES (1)",
    )
    .await;
    ebb.apply(&users("").replace("public.users", "App.Users")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    let reader = format!("reader_{}", ebb.db.name());
    ebb.db
        .execute(&format!(
            "CREATE ROLE {reader}; GRANT USAGE ON SCHEMA ebb TO {reader}; GRANT SELECT ON ebb.policy, ebb.retain TO {reader};
             GRANT EXECUTE ON FUNCTION ebb.deleted_anew TO {reader}"
        ))
        .await;
    let mut client = ebb.client().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("SET ROLE {reader}"))).execute(&mut client).await.unwrap();
    for (later, anew) in [("2 seconds", true), ("1 millisecond", false)] {
        let sql =
            format!("SELECT ebb.deleted_anew('users', '2026-01-01Z'::timestamptz + interval '{later}', '2026-01-01Z')");
        let found: bool = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut client).await.unwrap();
        assert_eq!(found, anew, "{later}");
    }
}

#[tokio::test]
async fn a_request_about_a_soft_delete_by_a_clock_that_is_ahead_is_kept() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() - interval '20 days' WHERE id = 2").await;
    ebb.once("users:mark").await;
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() + interval '3 seconds' WHERE id = 2").await;
    ebb.db.execute("SELECT ebb.erase_subject('users', '2')").await;
    ebb.once("users:mark").await;
    assert_eq!(states(&ebb).await, "pending");
    assert!(ebb.db.scalar::<bool>("SELECT expedited FROM ebb.deletion").await);
    ebb.db.advance("3 seconds").await;
    ebb.once("users").await;
    assert_eq!(states(&ebb).await, "erased");
}

#[tokio::test]
async fn columns_that_mirror_due_times_follow_the_policy_and_tenants() {
    let mirror = "tenant = \"tenant_id\"\ntenant_override = true\nmirror = { due = \"scheduled_deletion_at\" }";
    let ebb = Ebb::shop(mirror).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', id::text) FROM users").await;
    let differ = "SELECT count(*) FROM users u JOIN ebb.deletion d ON d.subject_id = u.id::text WHERE u.scheduled_deletion_at <> d.due_at";
    ebb.apply(&users(mirror).replace("90d", "95d")).await;
    assert_eq!(ebb.db.scalar::<i64>(differ).await, 12);
    ebb.once("users:mark").await;
    assert_eq!(ebb.db.scalar::<i64>(differ).await, 0);
    let mut tx = ebb.engine.database().read().await.unwrap();
    for (tenant, days, enabled) in [("t1", Some(120), true), ("t2", None, false)] {
        let retention = days.map(|days: u32| format!("{days}d").parse::<Term>().unwrap());
        let change =
            OverrideChange::Set(TenantTerms { retention, warn_before: None, texts: Default::default(), enabled });
        ebb::retain::set_override(&mut tx, "users", tenant, &change, true, "test").await.unwrap();
    }
    tx.commit().await.unwrap();
    assert_eq!(ebb.db.scalar::<i64>(differ).await, 8);
    assert!(ebb.db.scalar::<bool>("SELECT triggered FROM ebb.unit WHERE chore = 'mark'").await, "a node looks at once");
    ebb.once("users:mark").await;
    assert_eq!(ebb.db.scalar::<i64>(differ).await, 0);
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM users WHERE scheduled_deletion_at = 'infinity'").await, 4);
}

#[tokio::test]
async fn whoever_the_application_takes_back_looks_alive() {
    for at_once in [false, true] {
        let ebb = Ebb::shop(&format!(
            "status = {{ column = \"status\", deleted = \"deleted\", active = \"active\" }}\nmark_at_once = {at_once}
             mirror = {{ due = \"scheduled_deletion_at\", notified = \"deletion_notified_at\" }}"
        ))
        .await;
        ebb.db
            .execute("UPDATE users SET deleted_at = now() WHERE id < 3; SELECT ebb.delete_subject('users', '3')")
            .await;
        ebb.once("users:mark").await;
        assert_eq!(ebb.list("id", "users WHERE status = 'deleted' AND scheduled_deletion_at > now()").await, "1,2,3");
        ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id IN (1, 3)").await;
        ebb.db.execute("UPDATE users SET deleted_at = NULL, status = 'suspended' WHERE id = 2").await;
        ebb.once("users:mark").await;
        assert_eq!(
            ebb.list("id", "users WHERE status = 'active' AND scheduled_deletion_at IS NULL").await,
            "1,3,4,5,6,7,8,9,10,11,12"
        );
        assert_eq!(ebb.list("id", "users WHERE status = 'suspended' AND scheduled_deletion_at IS NULL").await, "2");
        assert_eq!(ebb.list("state", "ebb.deletion").await, "restored,restored,restored");
    }
}

#[tokio::test]
async fn a_warning_that_is_tried_again_names_the_date_of_then() {
    for by_subject in [false, true] {
        let shop = Shop::new("").await;
        shop.delete(1).await;
        shop.pass("60 days").await;
        shop.ledger.answer((0..4).map(|_| Verdict::transient("no such mailbox")));
        shop.run().await;
        for wait in ["0", "1 minute", "5 minutes", "15 minutes"] {
            shop.pass(wait).await;
            run_once(&shop.engine, &["events"]).await.unwrap();
        }
        assert_eq!((shop.ledger.count(), shop.stands(1).await.0.as_deref()), (4, Some("undeliverable")));
        shop.pass("100 days").await;
        let event: uuid::Uuid = shop.ebb.db.scalar("SELECT event FROM ebb.warning").await;
        if by_subject {
            let mut tx = shop.engine.database().read().await.unwrap();
            assert!(ebb::retain::retry(&mut tx, "users", "1", "test").await.unwrap());
            tx.commit().await.unwrap();
        } else {
            assert!(shop.engine.events().retry(event).await.unwrap());
        }
        assert!(!shop.engine.events().retry(event).await.unwrap(), "what it said is over");
        shop.run_and_deliver().await;
        assert_eq!((shop.ledger.count(), shop.stands(1).await.0.as_deref()), (5, Some("accepted")));
        let data = payload(&shop.ledger.got()[4])["data"].clone();
        let now: String = shop.ebb.db.scalar("SELECT to_char(ebb.now() AT TIME ZONE 'UTC', 'YYYY-MM-DD')").await;
        assert!(data["scheduled_deletion_at"].as_str().unwrap() > now.as_str(), "{data} on {now}");
        assert_eq!(data["days_remaining"], 30);
    }
}

#[tokio::test]
async fn one_pass_notices_and_erases_what_is_due() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("UPDATE users SET deleted_at = now() - interval '91 days' WHERE id < 5").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "5,6,7,8,9,10,11,12", "whoever is marked is erased by the same pass");
    // With warnings: noticed, warned, told, and the time that the warning promises counts.
    let shop = Shop::new("mirror = { notified = \"deletion_notified_at\" }").await;
    shop.ebb.db.execute("UPDATE users SET deleted_at = now() - interval '91 days' WHERE id = 1").await;
    run_once(&shop.engine, &[]).await.unwrap();
    assert_eq!((shop.ledger.count(), shop.stands(1).await.0.as_deref()), (1, Some("accepted")));
    let told = "SELECT deletion_notified_at IS NOT NULL FROM users WHERE id = 1";
    assert!(shop.ebb.db.scalar::<bool>(told).await, "what was delivered is settled by the same pass");
}

#[tokio::test]
async fn a_verified_request_is_about_the_soft_delete_that_is_there() {
    let ebb = Ebb::shop("floor = \"10d\"").await;
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 2").await;
    ebb.once("users:mark").await;
    ebb.db.advance("20 days").await;
    // Soft-deleted again, and asked for before anybody noticed that.
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 2").await;
    ebb.db.execute("SELECT ebb.erase_subject('users', '2')").await;
    ebb.once("users").await;
    assert_eq!(states(&ebb).await, "pending", "the request is not taken for one that was taken back");
    let due = "SELECT expedited AND due_at = deleted_at + interval '10 days' FROM ebb.deletion WHERE subject_id = '2'";
    assert!(ebb.db.scalar::<bool>(due).await, "the floor counts from the soft delete that is there");
    ebb.db.advance("9 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 12);
    ebb.db.advance("2 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.rows().await.0, states(&ebb).await), (11, "erased".into()));
}

#[tokio::test]
async fn a_subject_that_a_trigger_puts_back_was_not_erased() {
    let ebb = Ebb::shop("").await;
    ebb.db
        .execute(
            "CREATE FUNCTION back() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO public.users SELECT (OLD).*; RETURN NULL; END $$;
             CREATE TRIGGER back AFTER DELETE ON users FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION back()",
        )
        .await;
    ebb.apply(&users("")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '2'), ebb.delete_subject('users', '3')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.rows().await.0, ebb.erased().await.0, states(&ebb).await), (11, 1, "pending,erased".into()));
    let error: String = ebb.db.scalar("SELECT error FROM ebb.deletion WHERE subject_id = '2'").await;
    assert!(error.contains("public.users is still there"), "{error}");
}
