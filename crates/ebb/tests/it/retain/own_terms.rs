//! Rows of a subject with a policy of their own: those whose own term is not over stay, row by row, without their link.

use ebb::policy::Term;
use ebb::retain::{OverrideChange, TenantTerms, set_override, show};
use ebb::spine::Status;

use super::users;
use crate::harness::{Ebb, execute, run_once};

const TABLES: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
    CREATE TABLE orders (id int PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, tenant text, status text, closed_at timestamptz);
    CREATE TABLE items (id int PRIMARY KEY, order_id int NOT NULL REFERENCES orders ON DELETE CASCADE);
    INSERT INTO users VALUES (1), (2);
    INSERT INTO orders VALUES
        (1, 1, 't1', 'closed', now() - interval '400 days'), (2, 1, 't1', 'closed', now() - interval '100 days'),
        (3, 1, 't2', 'closed', now() - interval '400 days'), (4, 1, 't1', 'open', NULL),
        (5, 1, 't1', 'open', now() - interval '400 days'), (6, 2, 't1', 'closed', now() - interval '400 days');
    INSERT INTO items SELECT o * 10 + n, o FROM generate_series(1, 6) o, generate_series(1, 2) n";

fn orders(older_than: &str, more: &str) -> String {
    format!(
        "[[retain]]\nname = \"orders\"\ntable = \"orders\"\ncolumn = \"closed_at\"\nolder_than = \"{older_than}\"\nwhere = \"status = 'closed'\"
        tenant = \"tenant\"\ntenant_override = true\nbrake = {{ share = \"off\" }}\n{more}\n"
    )
}

async fn due(ebb: &Ebb) {
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    // Only the deletion grows older.
    ebb.db
        .execute(
            "UPDATE users SET deleted_at = deleted_at - interval '91 days' WHERE id = 1;
             UPDATE ebb.deletion SET deleted_at = deleted_at - interval '91 days', due_at = due_at - interval '91 days'",
        )
        .await;
}

#[tokio::test]
async fn a_row_stays_until_its_own_term_is_over_and_what_hangs_on_it_too() {
    let ebb = Ebb::with(TABLES).await;
    ebb.apply(&format!("{}{}", orders("365d", ""), users(""))).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let long = OverrideChange::Set(TenantTerms { retention: Some(Term::days(1000)), ..Default::default() });
    set_override(&mut tx, "orders", "t2", &long, false, "test").await.unwrap();
    tx.commit().await.unwrap();
    due(&ebb).await;
    // Two of those that stay are open, and its policy takes only what is closed.
    let plan = ebb.engine.plan(&[]).await.unwrap();
    let tree = plan.trees.iter().find(|tree| tree.policy == "users").unwrap();
    assert_eq!(tree.left, [("public.orders".to_owned(), "orders".to_owned(), 2)]);
    let mut tx = ebb.engine.database().read().await.unwrap();
    let shown = show(&mut tx, "users", "1").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        (shown.would_erase["public.orders"], shown.would_erase["public.items"], shown.would_unlink["public.orders"]),
        (1, 2, 4)
    );
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "2");
    let left: String = ebb.db.scalar("SELECT string_agg((id, user_id)::text, ' ' ORDER BY id) FROM orders").await;
    assert_eq!(
        left, "(2,) (3,) (4,) (5,) (6,2)",
        "over; not over; a tenant's longer term; not begun; not closed; of another"
    );
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM items").await, 10);
    let details: serde_json::Value = ebb.db.scalar("SELECT details FROM ebb.audit WHERE action = 'erase'").await;
    assert_eq!(details["tables"], serde_json::json!({ "public.users": 1, "public.orders": 1, "public.items": 2 }));
    assert_eq!(details["unlinked"], serde_json::json!({ "public.orders": 4 }));
    // In its own time it goes by its own policy.
    ebb.db.advance("300 days").await;
    ebb.db.execute("DELETE FROM items WHERE order_id IN (2, 6)").await;
    ebb.once("orders").await;
    assert_eq!(ebb.list("id", "orders").await, "3,4,5");
}

#[tokio::test]
async fn a_named_action_yields_to_a_floor_and_to_nothing_else() {
    let named = "children = [{ table = \"orders\", column = \"user_id\", action = \"delete\" }]";
    let ebb = Ebb::with(TABLES).await;
    ebb.apply(&format!("{}{}", orders("365d", "floor = \"200d\""), users(named))).await;
    due(&ebb).await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "orders WHERE user_id IS NULL").await, "2,4", "below the floor, or nobody can say");
    assert_eq!(ebb.list("id", "orders").await, "2,4,6");

    let ebb = Ebb::with(TABLES).await;
    ebb.apply(&format!("{}{}", orders("365d", ""), users(named))).await;
    due(&ebb).await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "orders").await, "6");
}

#[tokio::test]
async fn a_floor_counts_from_the_rows_own_time_however_short_it_is() {
    for named in ["", "children = [{ table = \"orders\", column = \"user_id\", action = \"delete\" }]"] {
        let ebb = Ebb::with(TABLES).await;
        ebb.db.execute("UPDATE orders SET closed_at = now() - interval '1 day' WHERE id IN (1, 5)").await;
        ebb.apply(&format!("{}{}", orders("30d", "floor = \"30d\""), users(named))).await;
        due(&ebb).await;
        ebb.once("users").await;
        assert_eq!(ebb.list("id", "orders WHERE user_id IS NULL").await, "1,4,5", "of yesterday, or nobody can say");
        assert_eq!(ebb.list("id", "orders").await, "1,4,5,6");
    }
}

#[tokio::test]
async fn a_shorter_policy_keeps_nothing_and_a_link_that_cannot_end_is_refused() {
    let ebb = Ebb::with(TABLES).await;
    ebb.apply(&format!("{}{}", orders("30d", ""), users(""))).await;
    due(&ebb).await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "orders").await, "6");

    let ebb = Ebb::with(TABLES).await;
    ebb.db.execute("ALTER TABLE orders ALTER COLUMN user_id SET NOT NULL").await;
    let refused = ebb.try_apply(&format!("{}{}", orders("365d", ""), users(""))).await.unwrap_err();
    assert!(refused.to_string().contains("policy orders keeps its rows for 365d by a time of their own"), "{refused}");
}

#[tokio::test]
async fn the_plan_names_the_term_that_decides() {
    for (own, named, term) in [
        (orders("365d", ""), false, "365d"),
        (orders("365d", "floor = \"30d\"\nbasis = \"tax\""), false, "365d"),
        (orders("60d", "floor = \"30d\"\nbasis = \"tax\""), false, "30d"),
        (orders("365d", "floor = \"30d\"\nbasis = \"tax\""), true, "30d"),
    ] {
        let ebb = Ebb::with(TABLES).await;
        let children = "children = [{ table = \"orders\", column = \"user_id\", action = \"delete\" }]";
        ebb.apply(&format!("{own}{}", users(if named { children } else { "" }))).await;
        let plan = ebb.engine.plan(&[]).await.unwrap();
        let tree = plan.trees.iter().find(|tree| tree.policy == "users").unwrap();
        let said: Vec<&str> = tree.findings.iter().map(|found| found.message.as_str()).collect();
        let wanted =
            format!("policy orders keeps its rows for {term}: those stay until then, and user_id becomes null");
        assert!(said.contains(&wanted.as_str()), "{own} {named}: {said:?}");
    }
}

#[tokio::test]
async fn rows_that_were_kept_do_not_go_until_somebody_agrees() {
    let ebb = Ebb::with(TABLES).await;
    // A policy that appears later only keeps more: nobody has to agree.
    ebb.apply(&users("")).await;
    ebb.apply(&format!("{}{}", orders("365d", ""), users(""))).await;
    due(&ebb).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    sqlx::query("UPDATE ebb.policy SET enabled = false WHERE name = 'orders'").execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
    let finished = ebb.once("users").await;
    assert!(finished.runs.iter().all(|run| run.status == Status::Failed), "{finished:?}");
    assert_eq!(ebb.list("id", "orders").await, "1,2,3,4,5,6");
}

#[tokio::test]
async fn a_policy_over_one_partition_keeps_the_rows_of_that_one() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz); INSERT INTO users VALUES (1);
         CREATE TABLE pay (id int, year int, at timestamptz, user_id bigint REFERENCES users ON DELETE CASCADE, PRIMARY KEY (id, year))
             PARTITION BY LIST (year);
         CREATE TABLE pay_new PARTITION OF pay FOR VALUES IN (2) PARTITION BY LIST (id);
         CREATE TABLE pay_new_1 PARTITION OF pay_new FOR VALUES IN (1, 2, 3);
         CREATE TABLE pay_old PARTITION OF pay FOR VALUES IN (1);
         INSERT INTO pay VALUES (1, 2, now() - interval '10 days', 1), (2, 2, now() - interval '350 days', 1),
             (4, 1, now() - interval '10 days', 1)",
    )
    .await;
    let pay = "[[retain]]\nname = \"pay_new\"\ntable = \"public.pay_new\"\ncolumn = \"at\"\nolder_than = \"400d\"\nfloor = \"300d\"\nbasis = \"tax\"\n";
    let children = "children = [{ table = \"public.pay\", column = \"user_id\", action = \"delete\" }]";
    ebb.apply(&format!("{pay}{}", users(children))).await;
    due(&ebb).await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await, ebb.list("id", "pay").await), (String::new(), "1".into()));
}

#[tokio::test]
async fn a_policy_that_comes_while_another_erases_keeps_its_rows_from_then_on() {
    let ebb = Ebb::with(&format!(
        "{TABLES}; DELETE FROM orders WHERE id NOT IN (1, 6);
         CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             SET LOCAL lock_timeout = 0; PERFORM pg_advisory_xact_lock(46); RETURN NULL; END $$;
         CREATE TRIGGER wait AFTER DELETE ON users FOR EACH ROW EXECUTE FUNCTION wait()"
    ))
    .await;
    let users = users("batch = { rows = 1, pause = \"0s\" }");
    ebb.apply(&users).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '2')").await;
    due(&ebb).await;
    ebb.db.execute("UPDATE users SET deleted_at = deleted_at - interval '91 days' WHERE id = 2").await;
    let mut latch = ebb.client().await;
    execute(&mut latch, "SELECT pg_advisory_lock(46)").await;
    let engine = ebb.engine.clone();
    let run = tokio::spawn(async move { run_once(&engine, &["users:erase"]).await });
    ebb.until("EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory')")
        .await;
    let policy = orders("3650d", "floor = \"3650d\"\nbasis = \"tax\"");
    ebb.apply(&format!("{policy}{users}")).await;
    execute(&mut latch, "SELECT pg_advisory_unlock(46)").await;
    run.await.unwrap().unwrap();
    // The batch came to nothing: the policy was there before it ended.
    assert_eq!(ebb.list("id", "users").await, "1,2");
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM orders WHERE user_id IS NULL").await, 2);
}

#[tokio::test]
async fn very_many_rows_with_a_term_of_their_own_keep_nobody_back() {
    let ebb = Ebb::with(TABLES).await;
    ebb.db
        .execute(
            "CREATE INDEX ON orders (user_id); CREATE INDEX ON items (order_id);
             INSERT INTO orders SELECT n, 1, 't' || n % 3, 'closed', now() - interval '100 days' FROM generate_series(1000, 120000) n; ANALYZE",
        )
        .await;
    ebb.apply(&format!("{}{}", orders("365d", ""), users(""))).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let short = OverrideChange::Set(TenantTerms { retention: Some(Term::days(95)), ..Default::default() });
    set_override(&mut tx, "orders", "t2", &short, true, "test").await.unwrap();
    tx.commit().await.unwrap();
    due(&ebb).await;
    ebb.db.execute("SELECT ebb.erase_subject('users', '2')").await;
    let finished = ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "", "{finished:?}");
    // Those of the tenant whose term is over went; the others have lost their link.
    let left = "SELECT string_agg(format('%s %s %s', tenant, user_id IS NULL, n), ', ' ORDER BY tenant)
                FROM (SELECT tenant, user_id, count(*) AS n FROM orders WHERE id >= 1000 GROUP BY 1, 2) x";
    assert_eq!(ebb.db.scalar::<String>(left).await, "t0 t 39667, t1 t 39667");
}

/// A row that its policy leaves out, or that has no time to count from, stays for good: the plan says how many do.
#[tokio::test]
async fn rows_that_no_policy_will_ever_take_are_counted_by_the_plan() {
    let ebb = Ebb::with(TABLES).await;
    ebb.db.execute("INSERT INTO orders VALUES (7, 1, 't1', 'closed', NULL)").await;
    ebb.apply(&format!("{}{}", orders("365d", ""), users(""))).await;
    due(&ebb).await;
    let left = async || {
        let plan = ebb.engine.plan(&[]).await.unwrap();
        plan.trees.into_iter().find(|tree| tree.policy == "users").unwrap().left
    };
    assert_eq!(left().await, [("public.orders".to_owned(), "orders".to_owned(), 3)]);
    ebb.db
        .execute("UPDATE orders SET closed_at = now() WHERE closed_at IS NULL; UPDATE orders SET status = 'closed'")
        .await;
    assert_eq!(left().await, []);
}
