//! Links without a foreign key: what a transaction adds that was under way while its subject was erased goes too, and what
//! is added afterwards stays.

use super::{found_in_ebb, users};
use crate::harness::{Ebb, SOON, execute, run_once};

const TABLES: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, email text, deleted_at timestamptz);
    CREATE TABLE guest_orders (id int PRIMARY KEY, email text, note text);
    CREATE TABLE guest_items (id int PRIMARY KEY, order_id int NOT NULL REFERENCES guest_orders ON DELETE CASCADE);
    CREATE TABLE newsletter (id int PRIMARY KEY, email text);
    CREATE INDEX ON guest_orders (email); CREATE INDEX ON guest_items (order_id);
    INSERT INTO users VALUES (1, 'budi@example.test'), (2, 'siti@example.test');
    INSERT INTO guest_orders VALUES (1, 'budi@example.test', ''), (2, 'siti@example.test', '');
    INSERT INTO guest_items VALUES (10, 1), (20, 2)";

const LINKS: &str = "children = [{ table = \"guest_orders\", column = \"email\", references = \"email\", action = \"delete\" },
    { table = \"newsletter\", column = \"email\", references = \"email\", action = \"anonymize\", set = { email = \"'gone'\" } }]";

async fn erase_budi_while_somebody_orders(ebb: &Ebb) -> sqlx::PgConnection {
    ebb.apply(&users(LINKS)).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    let mut shop = ebb.client().await;
    execute(
        &mut shop,
        "BEGIN; INSERT INTO guest_orders VALUES (3, 'budi@example.test', ''); INSERT INTO guest_items VALUES (30, 3);
         INSERT INTO newsletter VALUES (1, 'budi@example.test')",
    )
    .await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await, ebb.list("id", "guest_orders").await), ("2".into(), "2".into()));
    // The link is remembered, and nobody can read it in the database.
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.late_link").await, 1);
    assert_eq!(found_in_ebb(ebb, "budi@example.test").await, Vec::<String>::new());
    shop
}

#[tokio::test]
async fn what_was_under_way_goes_with_the_next_run_and_what_comes_later_stays() {
    let ebb = Ebb::with(TABLES).await;
    let mut shop = erase_budi_while_somebody_orders(&ebb).await;
    ebb.once("users").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.late_link").await, 1, "it has not ended yet");
    // An order of afterwards is about a new life.
    ebb.db.execute("INSERT INTO guest_orders VALUES (4, 'budi@example.test', 'later')").await;
    ebb.db.execute("INSERT INTO newsletter VALUES (2, 'budi@example.test')").await;
    execute(&mut shop, "COMMIT").await;
    assert_eq!(ebb.list("id", "guest_orders").await, "2,3,4");
    // Whoever else has a transaction open on this server is waited for.
    let done = async || {
        ebb.once("users").await;
        ebb.db.scalar::<bool>("SELECT NOT EXISTS (SELECT FROM ebb.late_link)").await
    };
    ebb_testkit::eventually(std::time::Duration::from_secs(120), done).await;
    assert_eq!(
        (ebb.list("id", "guest_orders").await, ebb.list("id", "guest_items").await),
        ("2,4".into(), "20".into())
    );
    let letters: String = ebb.db.scalar("SELECT string_agg(n::text, ' ' ORDER BY id) FROM newsletter n").await;
    assert_eq!(letters, "(1,gone) (2,budi@example.test)");
    let record = "SELECT (rows, details -> 'tables')::text FROM ebb.audit WHERE action = 'erase_late'";
    assert_eq!(
        ebb.db.scalar::<String>(record).await,
        "(2,\"{\"\"public.guest_items\"\": 1, \"\"public.guest_orders\"\": 1}\")"
    );
    // The report has both: what went with the subject, and what came late.
    let mut tx = ebb.engine.database().read().await.unwrap();
    let report = ebb::retain::report(&mut tx, None, None, None).await.unwrap();
    let deleted: Vec<(&str, i64)> = report.deleted.iter().map(|row| (row.table.as_str(), row.rows)).collect();
    assert_eq!(deleted, [("public.guest_items", 2), ("public.guest_orders", 2), ("public.users", 1)]);
}

#[tokio::test]
async fn an_address_that_somebody_registered_again_is_left_alone() {
    let ebb = Ebb::with(TABLES).await;
    let mut shop = erase_budi_while_somebody_orders(&ebb).await;
    ebb.db.execute("INSERT INTO users VALUES (3, 'budi@example.test')").await;
    execute(&mut shop, "COMMIT").await;
    let done = async || {
        ebb.once("users").await;
        ebb.db.scalar::<bool>("SELECT NOT EXISTS (SELECT FROM ebb.late_link)").await
    };
    ebb_testkit::eventually(std::time::Duration::from_secs(120), done).await;
    assert_eq!(ebb.list("id", "guest_orders").await, "2,3");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.audit WHERE action = 'erase_late'").await, 0);
}

#[tokio::test]
async fn whoever_began_while_a_subject_went_is_waited_for_too() {
    let ebb = Ebb::with(TABLES).await;
    // The batch waits at the end of its work for as long as this test wants.
    ebb.db
        .execute(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 SET LOCAL lock_timeout = 0; PERFORM pg_advisory_xact_lock(45); RETURN NULL; END $$;
             CREATE TRIGGER wait AFTER DELETE ON users FOR EACH ROW EXECUTE FUNCTION wait()",
        )
        .await;
    ebb.apply(&users(LINKS)).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    let (mut latch, mut shop) = (ebb.client().await, ebb.client().await);
    execute(&mut latch, "SELECT pg_advisory_lock(45)").await;
    let engine = ebb.engine.clone();
    let run = tokio::spawn(async move { run_once(&engine, &["users:erase"]).await });
    ebb.until("EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory')")
        .await;
    // The newest transaction of the server: nobody with a higher number has ended yet.
    execute(&mut shop, "BEGIN; INSERT INTO guest_orders VALUES (3, 'budi@example.test', '')").await;
    execute(&mut latch, "SELECT pg_advisory_unlock(45)").await;
    run.await.unwrap().unwrap();
    ebb.once("users").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.late_link").await, 1, "it has not ended yet");
    execute(&mut shop, "COMMIT").await;
    ebb.db.execute("INSERT INTO guest_orders VALUES (4, 'budi@example.test', 'later')").await;
    ebb_testkit::eventually(SOON, || looked(&ebb)).await;
    assert_eq!(ebb.list("id", "guest_orders").await, "2,4");
}

/// Runs once; whether no link is left to be looked at.
async fn looked(ebb: &Ebb) -> bool {
    ebb.once("users").await;
    ebb.db.scalar::<bool>("SELECT NOT EXISTS (SELECT FROM ebb.late_link)").await
}

#[tokio::test]
async fn a_link_that_came_with_a_restored_dump_is_forgotten_and_nothing_goes_by_it() {
    for horizon in ["1000000000000", "5"] {
        let ebb = Ebb::with(TABLES).await;
        let mut shop = erase_budi_while_somebody_orders(&ebb).await;
        execute(&mut shop, "COMMIT").await;
        // As in another cluster, where transactions have other numbers.
        ebb.db.execute(&format!("UPDATE ebb.late_link SET horizon = {horizon}")).await;
        assert!(looked(&ebb).await, "{horizon}");
        assert_eq!(ebb.list("id", "guest_orders").await, "2,3");
        assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.audit WHERE action = 'erase_late'").await, 0);
    }
}

#[tokio::test]
async fn what_came_late_goes_for_every_subject_of_a_batch_whatever_its_link_does() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, email text, deleted_at timestamptz);
         CREATE TABLE subs (id int PRIMARY KEY, email text);
         CREATE TABLE guest_orders (id int PRIMARY KEY, email text);
         CREATE TABLE guest_items (id int PRIMARY KEY, order_id int NOT NULL REFERENCES guest_orders ON DELETE CASCADE);
         CREATE TABLE newsletter (id int PRIMARY KEY, email text, note text);
         CREATE TABLE visits (id int PRIMARY KEY, email text);
         INSERT INTO users SELECT n, 'u' || n || '@example.test' FROM generate_series(1, 5) n",
    )
    .await;
    let link = |table: &str, action: &str| {
        format!("{{ table = \"{table}\", column = \"email\", references = \"email\", {action} }}")
    };
    let children = [
        link("subs", "action = \"delete\""),
        link("guest_orders", "action = \"delete\""),
        link("newsletter", "action = \"anonymize\", set = { note = \"note || '*'\" }"),
        link("visits", "action = \"nullify\""),
    ];
    ebb.apply(&users(&format!("children = [{}]", children.join(", ")))).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 4) n").await;
    ebb.db.advance("91 days").await;
    let mut shop = ebb.client().await;
    execute(
        &mut shop,
        "BEGIN;
         INSERT INTO subs SELECT n, 'u' || n || '@example.test' FROM generate_series(1, 5) n;
         INSERT INTO guest_orders SELECT n, 'u' || n || '@example.test' FROM generate_series(1, 5) n;
         INSERT INTO guest_items SELECT n, n FROM generate_series(1, 5) n;
         INSERT INTO newsletter SELECT n, 'u' || n || '@example.test', n FROM generate_series(1, 5) n;
         INSERT INTO visits SELECT n, 'u' || n || '@example.test' FROM generate_series(1, 5) n",
    )
    .await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "5");
    execute(&mut shop, "COMMIT").await;
    ebb_testkit::eventually(SOON, || looked(&ebb)).await;
    for table in ["subs", "guest_orders", "guest_items"] {
        assert_eq!(ebb.list("id", table).await, "5", "{table}");
    }
    assert_eq!(ebb.list("note", "newsletter").await, "1*,2*,3*,4*,5");
    assert_eq!(ebb.list("email", "visits").await, "u5@example.test");
    let tables = "SELECT sum(rows)::int8 FROM ebb.audit WHERE action = 'erase_late'";
    assert_eq!(ebb.db.scalar::<i64>(tables).await, 12);
}

#[tokio::test]
async fn a_subject_that_came_with_the_key_of_one_that_went_is_left_alone_with_all_that_it_has() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE orders (id int PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE);
         CREATE TABLE visits (id int PRIMARY KEY, user_id bigint);
         CREATE INDEX ON orders (user_id);
         INSERT INTO users VALUES (1), (2)",
    )
    .await;
    let link = "children = [{ table = \"visits\", column = \"user_id\", references = \"id\", action = \"delete\" }]";
    ebb.apply(&users(link)).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 2) n").await;
    ebb.db.advance("91 days").await;
    let mut shop = ebb.client().await;
    execute(&mut shop, "BEGIN; INSERT INTO visits VALUES (1, 1), (2, 2)").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "");
    ebb.db.execute("INSERT INTO users VALUES (1); INSERT INTO orders VALUES (1, 1)").await;
    execute(&mut shop, "COMMIT").await;
    ebb_testkit::eventually(SOON, || looked(&ebb)).await;
    let left = (ebb.list("id", "users").await, ebb.list("id", "orders").await, ebb.list("id", "visits").await);
    assert_eq!(left, ("1".into(), "1".into(), "1".into()));
}

#[tokio::test]
async fn a_subject_that_came_to_hang_on_one_that_went_does_not_go_late() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, guardian bigint, deleted_at timestamptz);
         INSERT INTO users VALUES (1, NULL)",
    )
    .await;
    let link = "children = [{ table = \"users\", column = \"guardian\", references = \"id\", action = \"delete\" }]";
    ebb.apply(&users(link)).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    let mut shop = ebb.client().await;
    execute(&mut shop, "BEGIN; INSERT INTO users VALUES (2, 1)").await;
    ebb.once("users").await;
    execute(&mut shop, "COMMIT").await;
    ebb_testkit::eventually(SOON, || looked(&ebb)).await;
    assert_eq!(ebb.list("id", "users").await, "2", "nobody goes without a deletion of their own");
}
