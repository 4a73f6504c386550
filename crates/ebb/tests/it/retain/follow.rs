//! A deletion follows its subject's row: to another tenant, out of the table, and past what the table refuses.

use ebb::policy::Term;
use ebb::retain::{OverrideChange, TenantTerms, set_override};

use super::warn::Shop;
use super::{SHOP, found_in_ebb, users};
use crate::harness::{Ebb, execute, run_once};

const MIRRORS: &str = "status = { column = \"status\", deleted = \"deleted\", active = \"active\" }
    mirror = { due = \"scheduled_deletion_at\", notified = \"deletion_notified_at\" }";

/// Users 2 and 5 cannot be changed any more: one by a constraint that was there too late, one by a trigger that says who it is.
const STUBBORN: &str = "
    ALTER TABLE users ADD CONSTRAINT stubborn CHECK (id <> 2) NOT VALID;
    CREATE FUNCTION stubborn() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN IF NEW.id = 5 THEN RAISE EXCEPTION 'not %', NEW.email; END IF; RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER stubborn_too AFTER UPDATE ON users DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION stubborn()";

#[tokio::test]
async fn a_row_that_its_table_does_not_let_be_mirrored_keeps_nobody_from_being_noticed() {
    let ebb = Ebb::with(SHOP).await;
    ebb.apply(&users(MIRRORS)).await;
    ebb.db.execute("UPDATE users SET deleted_at = now() WHERE id < 8").await;
    ebb.db.execute(STUBBORN).await;
    ebb.once("users:mark").await;
    assert_eq!(ebb.list("subject_id", "ebb.deletion WHERE state = 'pending'").await, "1,2,3,4,5,6,7");
    let mirrored = "users WHERE status = 'deleted' AND scheduled_deletion_at IS NOT NULL";
    assert_eq!(ebb.list("id", mirrored).await, "1,3,4,6,7");
    // Moved due times, and whoever the application takes back.
    ebb.apply(&users(MIRRORS).replace("90d", "95d")).await;
    ebb.db.execute("ALTER TABLE users DISABLE TRIGGER USER, DROP CONSTRAINT stubborn").await;
    ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id IN (1, 2, 5); UPDATE users SET status = 'deleted' WHERE id IN (2, 5)").await;
    ebb.db.execute("ALTER TABLE users ENABLE TRIGGER USER, ADD CONSTRAINT stubborn CHECK (id <> 2) NOT VALID").await;
    ebb.once("users:mark").await;
    assert_eq!(ebb.list("subject_id", "ebb.deletion WHERE state = 'restored'").await, "1,2,5");
    assert_eq!(ebb.list("id", "users WHERE scheduled_deletion_at = deleted_at + interval '95 days'").await, "3,4,6,7");
    assert_eq!(ebb.list("id", "users WHERE id = 1 AND status = 'active' AND scheduled_deletion_at IS NULL").await, "1");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.run WHERE error LIKE '%secret%'").await, 0);
}

#[tokio::test]
async fn nor_from_being_warned_and_erased() {
    let shop = Shop::new(MIRRORS).await;
    for id in [1, 2, 3] {
        shop.delete(id).await;
    }
    shop.pass("61 days").await;
    shop.run_and_deliver().await;
    shop.ebb.db.execute(STUBBORN).await;
    // What was accepted is written down for all of them, and whoever comes later is warned too.
    shop.delete(4).await;
    shop.run().await;
    assert_eq!(shop.ebb.list("id", "users WHERE deletion_notified_at IS NOT NULL").await, "1,3");
    assert_eq!(shop.ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.warning WHERE settled").await, 3);
    shop.pass("31 days").await;
    shop.run().await;
    assert_eq!(shop.ebb.list("id", "users WHERE id < 5").await, "4");
}

#[tokio::test]
async fn whoever_is_gone_before_a_warning_could_reach_them_leaves_nothing_behind() {
    let shop = Shop::new("").await;
    let ebb = &shop.ebb;
    for id in [1, 2, 3] {
        shop.delete(id).await;
    }
    ebb.db
        .execute(
            "SELECT ebb.schedule('h', now() + interval '9 years', '{\"to\": \"pii-1\"}', NULL, NULL, 'users', '1')",
        )
        .await;
    ebb.db.execute("DELETE FROM users WHERE id < 3; SELECT ebb.place_hold('users', '3', 'court')").await;
    shop.run_and_deliver().await;
    assert_eq!(shop.stands(1).await.1.as_deref(), Some("its row is gone"));
    // One comes back, as from a row that was moved.
    ebb.db.execute("INSERT INTO users (id, email, deleted_at) SELECT 2, 'pii-2', deleted_at FROM ebb.deletion WHERE subject_id = '2'").await;
    shop.run().await;
    assert_eq!(shop.stands(2).await.1, None);
    shop.pass("89 days").await;
    shop.run_and_deliver().await;
    assert_eq!(ebb.erased().await.0, 0, "not before its time");
    shop.pass("2 days").await;
    shop.run_and_deliver().await;
    assert_eq!((ebb.erased().await, found_in_ebb(ebb, "pii-1").await), ((1, 0), Vec::new()));
    assert_eq!(ebb.list("subject_id", "ebb.deletion WHERE state <> 'erased'").await, "2,3");
}

#[tokio::test]
async fn a_deletion_is_due_by_the_terms_of_the_tenant_that_its_subject_is_of() {
    let ebb =
        Ebb::shop("tenant = \"tenant_id\"\ntenant_override = true\nmirror = { due = \"scheduled_deletion_at\" }").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    for (tenant, days) in [("t1", 365), ("t2", 120)] {
        let change = OverrideChange::Set(TenantTerms { retention: Some(Term::days(days)), ..Default::default() });
        set_override(&mut tx, "users", tenant, &change, true, "test").await.unwrap();
    }
    tx.commit().await.unwrap();
    // 1 and 4 are of t1, 2 and 5 of t2.
    ebb.db.execute("SELECT ebb.delete_subject('users', id::text) FROM users WHERE id IN (1, 2, 4, 5)").await;
    ebb.db
        .execute(
            "UPDATE users SET tenant_id = 't2' WHERE id = 1; UPDATE users SET tenant_id = 't1' WHERE id = 2;
                    UPDATE users SET tenant_id = NULL WHERE id = 4",
        )
        .await;
    ebb.once("users:mark").await;
    let days = "SELECT string_agg(d.subject_id || ':' || extract(day FROM d.due_at - d.deleted_at) || ':' || COALESCE(d.tenant, '-'), ' ' ORDER BY d.subject_id)
        FROM ebb.deletion d JOIN users u ON u.id::text = d.subject_id AND u.scheduled_deletion_at = d.due_at";
    assert_eq!(ebb.db.scalar::<String>(days).await, "1:120:t2 2:365:t1 4:90:- 5:120:t2");
    ebb.db.advance("121 days").await;
    run_once(&ebb.engine, &["users"]).await.unwrap();
    assert_eq!(ebb.list("id", "users WHERE deleted_at IS NOT NULL").await, "2");
}

#[tokio::test]
async fn due_times_of_very_many_deletions_follow_their_policy_in_batches() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, tenant text, deleted_at timestamptz, due timestamptz);
         INSERT INTO users SELECT n, 't' || n % 2, now() FROM generate_series(1, 23000) n",
    )
    .await;
    let policy = users("tenant = \"tenant\"\ntenant_override = true\nmirror = { due = \"due\" }");
    ebb.apply(&policy).await;
    ebb.once("users:mark").await;
    ebb.apply(&policy.replace("90d", "95d")).await;
    let moved = "SELECT count(*) FROM ebb.deletion WHERE due_at - deleted_at = interval '95 days'";
    assert_eq!(ebb.db.scalar::<i64>(moved).await, 10_000, "with the change");
    assert!(ebb.db.scalar::<bool>("SELECT triggered FROM ebb.unit WHERE chore = 'mark'").await, "a node looks at once");
    // Whoever is held at that moment follows later.
    let mut client = ebb.client().await;
    execute(&mut client, "BEGIN; SELECT FROM ebb.deletion WHERE subject_id = '22000' FOR UPDATE").await;
    ebb.once("users:mark").await;
    assert_eq!(ebb.db.scalar::<i64>(moved).await, 22_999);
    execute(&mut client, "ROLLBACK").await;
    ebb.once("users:mark").await;
    let (in_step, renews): (i64, bool) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM users u WHERE u.due = u.deleted_at + interval '95 days'), (SELECT renews FROM ebb.retain)",
    )
    .fetch_one(ebb.db.pool())
    .await
    .unwrap();
    assert_eq!((in_step, renews), (23_000, false));
    // A tenant's own terms count everybody before they take effect.
    let mut tx = ebb.engine.database().read().await.unwrap();
    let shorter = OverrideChange::Set(TenantTerms { retention: Some(Term::seconds(0)), ..Default::default() });
    let refused = set_override(&mut tx, "users", "t1", &shorter, false, "test").await.unwrap_err();
    assert!(refused.to_string().contains("11500 more subjects"), "{refused}");
}

#[tokio::test]
async fn nobody_is_warned_of_a_date_that_their_policy_has_moved() {
    let shop = Shop::new("warn_before = [\"30d\", \"3d\"]").await;
    shop.delete(1).await;
    // As where marking has not come by yet after the policy got longer.
    shop.ebb.db.execute("UPDATE ebb.deletion SET due_at = due_at - interval '70 days'").await;
    shop.run_and_deliver().await;
    assert_eq!(shop.ledger.count(), 0);
    shop.pass("61 days").await;
    shop.run_and_deliver().await;
    assert_eq!(shop.ledger.count(), 1);
    shop.run().await;
    shop.ebb.db.execute("UPDATE ebb.deletion SET deleted_at = deleted_at + interval '100 days'").await;
    shop.ebb
        .db
        .execute("UPDATE users SET deleted_at = deleted_at + interval '100 days' WHERE deleted_at IS NOT NULL")
        .await;
    shop.pass("28 days").await;
    shop.run_and_deliver().await;
    assert_eq!(shop.ledger.count(), 1, "nor reminded");
}

#[tokio::test]
async fn what_is_closed_names_nobody_whose_row_the_application_deleted() {
    let ebb = Ebb::shop("").await;
    // More than one look takes in, and two who have a hold besides: one lifted, one that ran out.
    ebb.db
        .execute(
            "INSERT INTO users (id, email) SELECT n, 'x' FROM generate_series(100, 1300) n;
             SELECT ebb.delete_subject('users', id::text, 'pii-by') FROM users WHERE id > 2;
             SELECT ebb.restore_subject('users', id::text, 'pii-by') FROM users WHERE id > 2;
             SELECT ebb.place_hold('users', '7', 'pii-reason', NULL, 'pii-by'); SELECT ebb.lift_hold('users', '7', 'pii-by');
             SELECT ebb.place_hold('users', '1', 'pii-reason', ebb.now() + interval '1 day', 'pii-by');
             SELECT ebb.place_hold('users', '2', 'still here', NULL, 'support'); SELECT ebb.lift_hold('users', '2', 'support');
             SELECT ebb.place_hold('users', '8', 'in force', NULL, 'support')",
        )
        .await;
    ebb.db.advance("2 days").await;
    let closed = "SELECT (SELECT count(subject_id) FROM ebb.deletion) + (SELECT count(subject_id) FROM ebb.hold)";
    ebb.once("users").await;
    assert_eq!(ebb.db.scalar::<i64>(closed).await, 1211 + 4, "whoever is there keeps a history");
    ebb.db.execute("DELETE FROM users WHERE id <> 2 AND id <> 1300").await;
    for _ in 0..3 {
        ebb.once("users").await;
    }
    assert_eq!(ebb.list("subject_id", "ebb.deletion WHERE subject_id IS NOT NULL").await, "1300");
    assert_eq!(
        ebb.list("subject_id || reason", "ebb.hold WHERE subject_id IS NOT NULL").await,
        "2still here,8in force"
    );
    let left = "SELECT count(*) FROM (SELECT d::text AS t FROM ebb.deletion d WHERE d.subject_id IS NULL UNION ALL
        SELECT h::text FROM ebb.hold h WHERE h.subject_id IS NULL) x WHERE t LIKE '%pii%'";
    assert_eq!(ebb.db.scalar::<i64>(left).await, 0);
    let forgotten = "SELECT sum(rows)::int8 FROM ebb.audit WHERE action = 'forget'";
    assert_eq!(ebb.db.scalar::<i64>(forgotten).await, 1210 + 2);
    let runs = "SELECT count(*) FROM ebb.run WHERE status <> 'success'";
    assert_eq!(ebb.db.scalar::<i64>(runs).await, 0);

    // An id that the key of today cannot have is nobody's, and keeps no other from being forgotten.
    ebb.db
        .execute(
            "INSERT INTO users (id, email) SELECT n, 'x' FROM generate_series(100, 110) n;
             SELECT ebb.delete_subject('users', id::text) FROM users WHERE id < 200;
             SELECT ebb.restore_subject('users', id::text) FROM users WHERE id < 200;
             UPDATE ebb.deletion SET subject_id = 'no number' WHERE subject_id = '1300';
             UPDATE ebb.deletion SET subject_id = '[\"two\", \"parts\"]' WHERE subject_id = '105';
             DELETE FROM users WHERE id BETWEEN 100 AND 109",
        )
        .await;
    ebb.once("users").await;
    assert_eq!(ebb.db.scalar::<i64>(runs).await, 0);
    assert_eq!(ebb.list("subject_id", "ebb.deletion WHERE subject_id IS NOT NULL").await, "110,2");
}
