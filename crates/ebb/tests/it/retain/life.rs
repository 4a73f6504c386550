//! The life of a deletion: opened, restored, held, due, erased; and what is true of it at every step.

use ebb::spine::Status;

use super::{found_in_ebb, users};
use crate::harness::{Ebb, execute};

#[tokio::test]
async fn a_subject_goes_with_everything_when_its_grace_is_over_and_not_before() {
    let ebb = Ebb::shop("").await;
    let due: bool = ebb.db.scalar("SELECT ebb.delete_subject('users', '7') = now() + interval '90 days'").await;
    assert!(due);
    assert!(
        ebb.db
            .scalar::<bool>("SELECT deleted_at BETWEEN now() - interval '1 minute' AND now() FROM users WHERE id = 7")
            .await
    );
    let before = ebb.rows().await;
    ebb.db.advance("89 days 23 hours 59 minutes").await;
    ebb.once("users").await;
    assert_eq!((ebb.rows().await, ebb.state("7").await), (before, "pending".into()));
    ebb.db.advance("2 minutes").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await, (11, 33, 66, 44));
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM orders WHERE assigned_to IS NULL").await, 3);
    assert_eq!(ebb.erased().await, (1, 1 + 3 + 6 + 4));
    let details: serde_json::Value = ebb.db.scalar("SELECT details FROM ebb.audit WHERE action = 'erase'").await;
    assert_eq!(
        details["tables"],
        serde_json::json!({ "public.users": 1, "public.orders": 3, "public.items": 6, "public.sessions": 4 })
    );
    assert_eq!(details["unlinked"], serde_json::json!({ "public.orders": 3 }));
    // Through SQL an erased id is answered like an unknown one.
    for id in ["7", "700"] {
        let asked = sqlx::query("SELECT ebb.delete_subject('users', $1)").bind(id).execute(ebb.db.pool()).await;
        let said = asked.unwrap_err().to_string();
        assert!(said.contains(&format!("policy users knows no subject '{id}'")), "{said}");
    }
    assert!(!ebb.db.scalar::<bool>("SELECT ebb.restore_subject('users', '7')").await);
}

#[tokio::test]
async fn the_brake_stops_erasing_before_its_first_subject_and_an_allowance_is_good_once() {
    let ebb = Ebb::shop("brake = { rows = 2 }").await;
    let delete = async |users: std::ops::RangeInclusive<u32>| {
        for id in users {
            ebb.db.execute(&format!("SELECT ebb.delete_subject('users', '{id}')")).await;
        }
        ebb.db.advance("91 days").await;
    };
    let allow = async |subjects| {
        let mut tx = ebb.engine.database().read().await.unwrap();
        assert!(ebb::control::resume(&mut tx, "users", Some(subjects), "me").await.unwrap());
        tx.commit().await.unwrap();
    };
    delete(1..=3).await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 12, "three are more than two");
    let asked: String = ebb.db.scalar("SELECT error FROM ebb.run WHERE status = 'braked'").await;
    assert!(asked.contains("3 subjects are due") && asked.contains("ebb resume users --allow 3"), "{asked}");
    allow(2).await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 12, "not enough");
    allow(3).await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 9);
    delete(4..=6).await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 9, "what was allowed is used up");
    ebb.db.execute("SELECT ebb.restore_subject('users', '4')").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 7, "two are within the limit again");
}

#[tokio::test]
async fn nothing_personal_is_left_in_ebb() {
    let ebb = Ebb::with(
        "CREATE TABLE users (email text PRIMARY KEY, name text, deleted_at timestamptz);
         CREATE TABLE notes (id int PRIMARY KEY, email text REFERENCES users ON DELETE CASCADE, body text);
         INSERT INTO users VALUES ('budi@example.test', 'Budi Santoso'), ('siti@example.test', 'Siti');
         INSERT INTO notes VALUES (1, 'budi@example.test', 'my secret'), (2, 'siti@example.test', 'hers')",
    )
    .await;
    ebb.apply(&users("")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', 'budi@example.test', 'support')").await;
    ebb.db.execute("SELECT ebb.place_hold('users', 'budi@example.test', 'court', NULL, 'legal')").await;
    ebb.db.execute("SELECT ebb.lift_hold('users', 'budi@example.test', 'legal')").await;
    ebb.db.execute("SELECT ebb.restore_subject('users', 'budi@example.test', 'support')").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', 'budi@example.test', 'support')").await;
    assert!(!found_in_ebb(&ebb, "budi").await.is_empty());
    ebb.db.advance("90 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("email", "users").await, "siti@example.test");
    assert_eq!(ebb.list("id", "notes").await, "2");
    for word in ["budi", "santoso", "my secret"] {
        assert_eq!(found_in_ebb(&ebb, word).await, Vec::<String>::new(), "{word}");
    }
}

#[tokio::test]
async fn a_restore_takes_everything_back_and_cannot_be_had_twice() {
    let more = r#"status = { column = "status", deleted = "deleted", active = "active" }
        mirror = { due = "scheduled_deletion_at", touched = "updated_at" }"#;
    let ebb = Ebb::shop(more).await;
    let row =
        "SELECT (id, tenant_id, email, name, status, deleted_at, scheduled_deletion_at)::text FROM users WHERE id = 3";
    let before: String = ebb.db.scalar(row).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '3')").await;
    assert!(ebb.db.scalar::<bool>("SELECT status = 'deleted' AND scheduled_deletion_at = deleted_at + interval '90 days' FROM users WHERE id = 3").await);
    assert!(ebb.db.scalar::<bool>("SELECT ebb.restore_subject('users', '3')").await);
    assert_eq!(ebb.db.scalar::<String>(row).await, before);
    assert!(!ebb.db.scalar::<bool>("SELECT ebb.restore_subject('users', '3')").await);
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.rows().await.0, ebb.state("3").await), (12, "restored".into()));
}

#[tokio::test]
async fn what_the_application_deletes_itself_is_noticed_and_so_is_what_it_takes_back() {
    let ebb = Ebb::shop("mirror = { due = \"scheduled_deletion_at\" }").await;
    ebb.db.execute("UPDATE users SET deleted_at = now() - interval '80 days' WHERE id IN (1, 2)").await;
    ebb.once("users").await;
    assert_eq!((ebb.state("1").await, ebb.rows().await.0), ("pending".into(), 12));
    assert!(
        ebb.db
            .scalar::<bool>("SELECT scheduled_deletion_at = deleted_at + interval '90 days' FROM users WHERE id = 1")
            .await
    );
    ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id = 2").await;
    ebb.db.advance("11 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.state("2").await, ebb.rows().await.0), ("restored".into(), 11));
    assert_eq!(ebb.list("id", "users").await, "2,3,4,5,6,7,8,9,10,11,12");
}

#[tokio::test]
async fn a_hold_stops_erasing_until_it_is_lifted_or_over() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 3) n").await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court order')").await;
    ebb.db.execute("SELECT ebb.place_hold('users', '2', 'audit', now() + interval '100 days')").await;
    ebb.db.advance("90 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 11);
    let blocked: String = ebb.db.scalar("SELECT blocked FROM ebb.v_deletions WHERE subject_id = '1'").await;
    assert_eq!(blocked, "on hold: court order");
    ebb.db.advance("11 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.rows().await.0, ebb.state("1").await), (10, "pending".into()));
    ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    let finished = ebb.once("users").await;
    let left: Option<String> =
        ebb.db.scalar("SELECT string_agg(v::text, ' ') FROM ebb.v_deletions v WHERE state <> 'erased'").await;
    assert_eq!(ebb.rows().await.0, 9, "{finished:?} {left:?}");
}

#[tokio::test]
async fn a_hold_placed_while_the_batch_waits_wins() {
    // The hold's transaction has the row; the batch passes by, and sees the hold when it comes again.
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '5')").await;
    ebb.db.advance("91 days").await;
    let mut lawyer = ebb.client().await;
    execute(&mut lawyer, "BEGIN; SELECT ebb.place_hold('users', '5', 'court')").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 12);
    execute(&mut lawyer, "COMMIT").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 12);
}

#[tokio::test]
async fn a_verified_request_skips_the_grace_and_neither_floor_nor_hold() {
    let ebb = Ebb::shop("floor = \"30d\"\nbasis = \"UU PDP\"").await;
    ebb.db.execute("SELECT ebb.erase_subject('users', '1'), ebb.erase_subject('users', '2')").await;
    ebb.db.execute("SELECT ebb.place_hold('users', '2', 'court')").await;
    ebb.once("users").await;
    ebb.db.advance("29 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 12);
    ebb.db.advance("1 day").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "2,3,4,5,6,7,8,9,10,11,12");
    assert_eq!(ebb.db.scalar::<String>("SELECT ebb.erase_subject('users', '2')::text").await, "infinity");
}

#[tokio::test]
async fn todays_policy_decides_and_a_shorter_one_must_be_agreed_to() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("60 days").await;
    let shorter = users("").replace("90d", "45d");
    let refused = ebb.try_apply(&shorter).await.unwrap_err();
    assert!(refused.to_string().contains("1 more subject would be due at once"), "{refused}");
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 12);
    // A longer one holds for deletions that are open already.
    ebb.apply(&users("").replace("90d", "200d")).await;
    ebb.db.advance("31 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 12);
    ebb.db.advance("110 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 11);
}

#[tokio::test]
async fn an_open_invoice_blocks_its_subject_and_nobody_else() {
    let ebb = Ebb::with(super::SHOP).await;
    ebb.db.execute("CREATE TABLE invoices (id int PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, open boolean);
        INSERT INTO invoices VALUES (1, 1, true), (2, 2, false), (3, 3, NULL)").await;
    ebb.apply(&users("unless = \"exists (select from invoices i where i.user_id = users.id and i.open)\"")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 3) n").await;
    ebb.db.advance("90 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "1,4,5,6,7,8,9,10,11,12");
    assert_eq!(
        ebb.db.scalar::<String>("SELECT blocked FROM ebb.v_deletions WHERE subject_id = '1'").await,
        "`unless` holds"
    );
    ebb.db.execute("UPDATE invoices SET open = false").await;
    ebb.once("users").await;
    assert_eq!(ebb.rows().await.0, 9);
}

#[tokio::test]
async fn a_subject_that_fails_is_found_recorded_and_passed_by() {
    let ebb = Ebb::shop("batch = { rows = 100, pause = \"0s\" }").await;
    ebb.db
        .execute(
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF OLD.user_id = 5 THEN RAISE EXCEPTION 'not this one'; END IF; RETURN OLD; END $$;
         CREATE TRIGGER no BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION no()",
        )
        .await;
    ebb.apply(&users("batch = { rows = 100, pause = \"0s\" }")).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 12) n").await;
    ebb.db.advance("90 days").await;
    let finished = ebb.once("users").await;
    let erase = finished.runs.iter().find(|run| run.unit.starts_with("erase/")).unwrap();
    assert_eq!((erase.status, erase.skipped, erase.failed), (Status::Success, 0, 1), "{erase:?}");
    assert_eq!(ebb.rows().await, (1, 3, 6, 4));
    assert_eq!(ebb.erased().await.0, 11);
    assert_eq!(
        ebb.db.scalar::<String>("SELECT error FROM ebb.v_deletions WHERE subject_id = '5'").await,
        "not this one"
    );
    // Again with a rest that doubles, and stuck in the end; retried when somebody asks.
    for _ in 0..9 {
        ebb.db.advance("2 days").await;
        ebb.once("users").await;
    }
    assert_eq!((ebb.state("5").await, ebb.rows().await.0), ("failed".into(), 1));
    let status = ebb.engine.status().await.unwrap();
    let policy = status.policies.iter().find(|policy| policy.policy == "users").unwrap();
    assert_eq!((policy.stuck, policy.stuck_error.as_deref()), (1, Some("not this one")));
    ebb.db.execute("DROP TRIGGER no ON sessions").await;
    ebb.apply(&users("batch = { rows = 100, pause = \"0s\" }")).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    assert!(ebb::retain::retry(&mut tx, "users", "5", "test").await.unwrap());
    tx.commit().await.unwrap();
    ebb.once("users").await;
    assert_eq!(ebb.rows().await, (0, 0, 0, 0));
}

#[tokio::test]
async fn tenants_have_their_own_terms_above_the_floor() {
    let more = "tenant = \"tenant_id\"\ntenant_override = true\nfloor = \"30d\"";
    let ebb = Ebb::shop(more).await;
    let set = |tenant: &'static str, days: u16, enabled: bool| {
        let engine = ebb.engine.clone();
        async move {
            let mut tx = engine.database().read().await.unwrap();
            let change = ebb::retain::OverrideChange::Set(ebb::retain::TenantTerms {
                retention: Some(ebb::policy::Term::days(days)),
                warn_before: None,
                texts: Default::default(),
                enabled,
            });
            let set = ebb::retain::set_override(&mut tx, "users", tenant, &change, false, "test").await;
            tx.commit().await.unwrap();
            set
        }
    };
    assert!(set("t0", 20, true).await.unwrap_err().to_string().contains("below the floor 30d"));
    set("t0", 40, true).await.unwrap();
    set("t1", 200, true).await.unwrap();
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 6) n").await;
    ebb.db.advance("41 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "1,2,4,5,7,8,9,10,11,12", "t0 has 3 and 6");
    ebb.db.advance("50 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "1,4,7,8,9,10,11,12", "the default is over for t2");
    set("t1", 300, false).await.unwrap();
    ebb.db.advance("1000 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "1,4,7,8,9,10,11,12", "nothing of t1 goes");
}

#[tokio::test]
async fn rows_by_age_have_floor_and_tenants_too() {
    let ebb = Ebb::with(
        "CREATE TABLE notifications (id int PRIMARY KEY, tenant_id text, status text, created_at timestamptz);
         INSERT INTO notifications SELECT n, CASE WHEN n % 2 = 0 THEN 'long' ELSE 'x' END,
             CASE WHEN n % 5 = 0 THEN 'failed' ELSE 'sent' END, now() - n * interval '10 days' FROM generate_series(1, 20) n",
    )
    .await;
    let policy =
        "[[retain]]\nname = \"notifications\"\ntable = \"notifications\"\ncolumn = \"created_at\"\nolder_than = \"90d\"
        floor = \"30d\"\nwhere = \"status in ('sent', 'cancelled')\"\ntenant = \"tenant_id\"\ntenant_override = true
        brake = { share = \"off\" }";
    ebb.apply(policy).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let long = ebb::retain::OverrideChange::Set(ebb::retain::TenantTerms {
        retention: Some(ebb::policy::Term::days(150)),
        ..Default::default()
    });
    ebb::retain::set_override(&mut tx, "notifications", "long", &long, false, "test").await.unwrap();
    tx.commit().await.unwrap();
    ebb.once("notifications").await;
    assert_eq!(ebb.list("id", "notifications").await, "1,2,3,4,5,6,7,8,10,12,14,15,20");
}

#[tokio::test]
async fn an_application_needs_no_right_on_the_table_and_its_owner_none_on_ebb() {
    let ebb = Ebb::with(super::SHOP).await;
    let (owner, app) = (format!("owner_{}", ebb.db.name()), format!("app_{}", ebb.db.name()));
    ebb.db
        .execute(&format!(
            "CREATE ROLE {owner}; CREATE ROLE {app}; ALTER TABLE users OWNER TO {owner}; GRANT USAGE ON SCHEMA ebb TO {app};
             GRANT EXECUTE ON FUNCTION ebb.delete_subject(text, text, text), ebb.restore_subject(text, text, text) TO {app}"
        ))
        .await;
    ebb.apply(&users("mirror = { due = \"scheduled_deletion_at\", touched = \"updated_at\" }")).await;
    let mut client = ebb.client().await;
    execute(&mut client, &format!("SET ROLE {app}")).await;
    execute(&mut client, "SELECT ebb.delete_subject('users', '1'), ebb.delete_subject('users', '2')").await;
    execute(&mut client, "SELECT ebb.restore_subject('users', '2')").await;
    assert!(sqlx::query("UPDATE users SET deleted_at = now()").execute(&mut client).await.is_err());
    assert!(
        sqlx::query("SELECT * FROM ebb.\"subject:users\"('look', '1', NULL, NULL)").execute(&mut client).await.is_err()
    );
    assert_eq!(ebb.list("id", "users WHERE deleted_at IS NOT NULL").await, "1");
    let by: String = ebb.db.scalar("SELECT by_name FROM ebb.audit WHERE action = 'restore'").await;
    assert_eq!(by, app);
}
