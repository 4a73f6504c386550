//! A policy that is changed while a batch is at work by its former terms: what was answered first counts.

use ebb::policy::{Spec, Term};
use ebb::retain::{OverrideChange, TenantTerms};
use ebb::spine::{Status, Summary};
use serde_json::{Value, json};

use super::users;
use crate::harness::{Ebb, run_once};

/// Whoever deletes an order, or a visit, waits until nothing is in `latch`.
const LATCH: &str = "
    CREATE TABLE latch ();
    CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        WHILE EXISTS (SELECT FROM public.latch) LOOP PERFORM pg_sleep(0.02); END LOOP; RETURN OLD; END $$;
    INSERT INTO latch SELECT;";
const TABLES: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, tenant_id text, deleted_at timestamptz);
    CREATE TABLE orders (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, at timestamptz);
    CREATE INDEX ON orders (user_id);
    INSERT INTO users VALUES (1, 'a'), (2, 'b'); INSERT INTO orders SELECT id, id, now() - interval '2 years' FROM users;
    CREATE TRIGGER linger BEFORE DELETE ON orders FOR EACH ROW EXECUTE FUNCTION linger();";
const OVERRIDES: &str = "tenant = \"tenant_id\"\ntenant_override = true\n";
const ORDERS: &str =
    "[[retain]]\nname = \"orders\"\ntable = \"public.orders\"\ncolumn = \"at\"\nolder_than = \"365d\"\n";

/// Two users who are due; an order counts for a year by a policy of its own.
async fn due(more: &str) -> Ebb {
    let ebb = Ebb::with(&format!("{LATCH}{TABLES}{more}")).await;
    ebb.apply(&format!("{}\n{ORDERS}", users(OVERRIDES))).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 2) n").await;
    ebb.db.advance("91 days").await;
    ebb
}

/// Begins a run, changes something once its batch is in the middle of a deletion, and lets it go on. What became of the run.
async fn changed_meanwhile(ebb: &Ebb, unit: &str, change: impl AsyncFnOnce()) -> Summary {
    let (engine, only) = (ebb.engine.clone(), unit.to_owned());
    let run = tokio::spawn(async move { run_once(&engine, &[&only]).await });
    ebb.until(
        "EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'
                 AND application_name LIKE 'ebb/n/%')",
    )
    .await;
    change().await;
    ebb.db.execute("DELETE FROM latch").await;
    run.await.unwrap().unwrap().runs.remove(0)
}

async fn set(ebb: &Ebb, policy: &str, keys: Value) {
    let keys: Spec = keys.as_object().unwrap().clone();
    ebb.engine.set_policy(policy, &keys, "test").await.unwrap();
}

#[tokio::test]
async fn nobody_is_erased_by_terms_that_were_changed_before_the_batch_ended() {
    for change in [json!({ "grace": "3650d" }), json!({ "enabled": false }), json!({ "mode": "observe" })] {
        let ebb = due("").await;
        let run = changed_meanwhile(&ebb, "users:erase", async || set(&ebb, "users", change.clone()).await).await;
        assert_eq!((run.status, ebb.ids().await.as_str()), (Status::Stopped, "1,2"), "{change}: {run:?}");
        assert_eq!((ebb.erased().await.0, ebb.list("id", "orders").await.as_str()), (0, "1,2"), "{change}");
        assert_eq!(ebb.list("state || attempts", "ebb.deletion").await, "pending0,pending0", "{change}");
    }
}

#[tokio::test]
async fn nobody_is_erased_by_terms_that_their_tenant_had_before() {
    let ebb = due("").await;
    let set = async || {
        let mut tx = ebb.engine.database().read().await.unwrap();
        let longer = TenantTerms { retention: Some(Term::days(3650)), ..Default::default() };
        let change = OverrideChange::Set(longer);
        ebb::retain::set_override(&mut tx, "users", "a", &change, true, "test").await.unwrap();
        tx.commit().await.unwrap();
    };
    let run = changed_meanwhile(&ebb, "users:erase", set).await;
    assert_eq!((run.status, ebb.ids().await.as_str()), (Status::Stopped, "1,2"), "{run:?}");
    // Who is still due goes with the next run.
    ebb.once("users:erase").await;
    assert_eq!(ebb.ids().await, "1");
}

#[tokio::test]
async fn no_row_goes_that_a_policy_of_its_own_keeps_by_then() {
    let ebb = due("").await;
    let longer = async || set(&ebb, "orders", json!({ "older_than": "9000d" })).await;
    let run = changed_meanwhile(&ebb, "users:erase", longer).await;
    assert_eq!((run.status, ebb.ids().await.as_str()), (Status::Stopped, "1,2"), "{run:?}");
    ebb.once("users:erase").await;
    let kept = ebb.list("id", "orders WHERE user_id IS NULL").await;
    assert_eq!((ebb.ids().await.as_str(), kept.as_str()), ("", "1,2"));
}

#[tokio::test]
async fn no_part_of_a_claimed_subject_goes_by_terms_that_were_changed_meanwhile() {
    let ebb = due("INSERT INTO orders SELECT 10 + n, 1, now() - interval '2 years' FROM generate_series(1, 40001) n;
         DROP TRIGGER linger ON orders;
         CREATE TRIGGER linger BEFORE DELETE ON orders FOR EACH ROW WHEN (OLD.id = 40011) EXECUTE FUNCTION linger();")
    .await;
    let off = async || set(&ebb, "users", json!({ "enabled": false })).await;
    let run = changed_meanwhile(&ebb, "users:erase", off).await;
    assert_eq!((run.status, ebb.state("1").await.as_str()), (Status::Stopped, "erasing"), "{run:?}");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM orders WHERE id = 40011").await, 1);
}

#[tokio::test]
async fn a_sweep_takes_no_row_that_is_not_due_any_more() {
    let ebb = Ebb::with(&format!(
        "{LATCH} CREATE TABLE t (id bigint, at timestamptz); CREATE INDEX ON t (at);
         INSERT INTO t SELECT n, now() - n * interval '1 day' FROM generate_series(1, 20) n;
         CREATE TRIGGER linger BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION linger()"
    ))
    .await;
    ebb.policy("older_than = \"10d\"").await;
    let run = changed_meanwhile(&ebb, "t", async || set(&ebb, "t", json!({ "older_than": "3650d" })).await).await;
    assert_eq!((run.status, run.rows), (Status::Stopped, 0), "{run:?}");
    assert_eq!((ebb.db.scalar::<i64>("SELECT count(*) FROM t").await, ebb.audited().await), (20, 0));
}

#[tokio::test]
async fn no_batch_is_done_in_vain_while_a_change_is_not_committed() {
    let ebb = due("DELETE FROM latch;").await;
    let mut change = ebb.db.pool().begin().await.unwrap();
    sqlx::query("UPDATE ebb.policy SET version = version + 1 WHERE name = 'orders'")
        .execute(&mut *change)
        .await
        .unwrap();
    let run = ebb.once("users:erase").await.runs.remove(0);
    assert_eq!((run.status, run.batches, ebb.ids().await.as_str()), (Status::Stopped, 0, "1,2"), "{run:?}");
    assert!(run.note.unwrap().contains("is being changed"));
    change.rollback().await.unwrap();
    ebb.db.advance("1 minute").await;
    assert_eq!(ebb.once("users:erase").await.runs[0].status, Status::Success);
    assert_eq!(ebb.ids().await, "");
}
