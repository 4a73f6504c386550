//! A node that slept through its lease: it wakes up in a world that went on, and changes nothing.

use ebb_testkit::{Node, TestDatabase, database, eventually};

use super::{
    SOON, apply, assert_accounted_for, config, due, ebb_bin, insert_due, ledger_table, node, slowly, stop,
    wait_for_mid_run,
};

const UNIT: &str = "expire/frozen/public.frozen";

async fn lease(db: &TestDatabase) -> (String, i64) {
    let node = db.scalar(&format!("SELECT COALESCE(node, '') FROM ebb.lease WHERE unit = '{UNIT}'")).await;
    (node, db.scalar(&format!("SELECT generation FROM ebb.lease WHERE unit = '{UNIT}'")).await)
}

async fn rows_of(db: &TestDatabase, node: &str) -> i64 {
    let sql = format!("SELECT COALESCE(sum(rows), 0)::int8 FROM ebb.audit WHERE policy = 'frozen' AND node = '{node}'");
    db.scalar(&sql).await
}

/// A batch lasts.
const SLOW: &str = "
    CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$;
    CREATE TRIGGER slow AFTER DELETE ON public.frozen FOR EACH STATEMENT EXECUTE FUNCTION public.slow()";

async fn wait_for_mid_batch(db: &TestDatabase) {
    let deleting = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
        AND application_name LIKE 'ebb/first/%' AND query LIKE '%DELETE FROM ONLY%' AND wait_event = 'PgSleep')";
    eventually(SOON, || async { db.scalar::<bool>(deleting).await }).await;
}

/// Frozen between two batches, or in the middle of one whose statement lasts.
async fn frozen_node_changes_nothing(inside_a_batch: bool) {
    let db = database().await;
    ledger_table(&db, "frozen", "").await;
    if inside_a_batch {
        db.execute(SLOW).await;
    }
    insert_due(&db, "frozen", if inside_a_batch { 400 } else { 4000 }).await;
    apply(&db, &[("frozen", slowly("frozen"))]).await;

    let mut first = node("first", db.url());
    wait_for_mid_run(&db, "frozen").await;
    if inside_a_batch {
        wait_for_mid_batch(&db).await;
    }
    first.stop_signal();
    let (_, generation) = lease(&db).await;

    let second = node("second", db.url());
    eventually(SOON, || async { lease(&db).await.1 > generation && rows_of(&db, "second").await > 0 }).await;
    let rows_before = rows_of(&db, "first").await;
    first.continue_signal();
    // The server ended the transaction that it was frozen in, or it learns at its next batch.
    eventually(SOON, || async {
        let output = first.output();
        output.contains("Lost the lease") || output.contains("idle-in-transaction")
    })
    .await;
    // Its last words were about a unit that is another's: neither that run nor the unit has changed.
    let disturbed = format!(
        "SELECT failures <> 0 OR next_at > now() OR NOT EXISTS (SELECT FROM ebb.run WHERE node = 'second' AND status = 'running')
         FROM ebb.unit WHERE unit = '{UNIT}'"
    );
    assert!(!db.scalar::<bool>(&disturbed).await, "{}", first.output());

    eventually(SOON, || async { due(&db, "frozen").await == 0 }).await;
    let over = "SELECT NOT EXISTS (SELECT FROM ebb.run WHERE policy = 'frozen' AND status = 'running')";
    eventually(SOON, || async { db.scalar(over).await }).await;
    assert_eq!(rows_of(&db, "first").await, rows_before, "the fenced node went on:\n{}", first.output());
    let ends: Vec<(String, String)> =
        sqlx::query_as("SELECT node, status FROM ebb.run WHERE policy = 'frozen' AND generation <= $1 + 1 ORDER BY id")
            .bind(generation)
            .fetch_all(db.pool())
            .await
            .unwrap();
    assert_eq!(ends[0], ("first".into(), "abandoned".into()));
    assert_eq!(ends[1], ("second".into(), "success".into()), "the new holder's run was disturbed: {ends:?}");
    assert_eq!(ends.len(), 2);
    let failures: i32 = db.scalar(&format!("SELECT failures FROM ebb.unit WHERE unit = '{UNIT}'")).await;
    assert_eq!(failures, 0, "the fenced node counted a failure:\n{}", first.output());

    // It lives on: with the other one gone it takes the unit over again.
    stop(second).await;
    insert_due(&db, "frozen", 20).await;
    eventually(SOON, || async { due(&db, "frozen").await == 0 && rows_of(&db, "first").await > rows_before }).await;
    stop(first).await;
    assert_accounted_for(&db, "frozen", "frozen").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_stopped_past_its_lease_changes_nothing() {
    frozen_node_changes_nothing(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_stopped_inside_a_batch_changes_nothing() {
    frozen_node_changes_nothing(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_wakes_before_its_lease_ends_goes_on_with_its_run() {
    let db = database().await;
    ledger_table(&db, "frozen", "").await;
    db.execute(SLOW).await;
    insert_due(&db, "frozen", 100).await;
    let mut policy = slowly("frozen");
    policy["every"] = "1h".into();
    apply(&db, &[("frozen", policy)]).await;
    let mut first = Node::spawn(ebb_bin(), db.url(), &config("first", "60s"), &["run"]);
    wait_for_mid_run(&db, "frozen").await;
    wait_for_mid_batch(&db).await;
    first.stop_signal();
    // The server has no patience with a transaction that nobody goes on with.
    let ended = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
        AND application_name LIKE 'ebb/first/expire/%' AND xact_start IS NOT NULL)";
    eventually(SOON, || async { db.scalar::<bool>(ended).await }).await;
    assert!(due(&db, "frozen").await > 0);
    first.continue_signal();
    eventually(SOON, || async { due(&db, "frozen").await == 0 }).await;
    let over = "SELECT NOT EXISTS (SELECT FROM ebb.run WHERE policy = 'frozen' AND status = 'running')";
    eventually(SOON, || async { db.scalar(over).await }).await;
    let runs = "SELECT string_agg(status || ' ' || rows, ',' ORDER BY id) FROM ebb.run WHERE policy = 'frozen'";
    assert_eq!(db.scalar::<String>(runs).await, "success 100", "{}", first.output());
    stop(first).await;
    assert_accounted_for(&db, "frozen", "frozen").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_a_dying_node_has_heard_is_not_forgotten() {
    let db = database().await;
    ledger_table(&db, "frozen", "").await;
    let mut policy = slowly("frozen");
    policy["every"] = "1h".into();
    apply(&db, &[("frozen", policy)]).await;
    let mut first = node("first", db.url());
    let passed = format!("SELECT EXISTS (SELECT FROM ebb.unit WHERE unit = '{UNIT}' AND next_at > now())");
    eventually(SOON, || async { db.scalar(&passed).await }).await;
    insert_due(&db, "frozen", 400).await;
    let mut connection = db.pool().acquire().await.unwrap();
    assert_eq!(ebb::control::trigger(&mut connection, "frozen", None, "test").await.unwrap(), 1);
    wait_for_mid_run(&db, "frozen").await;
    first.kill9();
    let second = node("second", db.url());
    eventually(SOON, || async { due(&db, "frozen").await == 0 }).await;
    stop(second).await;
    assert_accounted_for(&db, "frozen", "frozen").await;
}
