//! A graceful stop: in time, with everything given back, whatever is going on.

use std::time::{Duration, Instant};

use ebb_testkit::{Node, TestDatabase, database, eventually};
use serde_json::json;

use super::{SOON, apply, assert_accounted_for, insert_due, ledger_table, node, slowly, stop, wait_for_mid_run};

async fn last_run(db: &TestDatabase) -> String {
    db.scalar("SELECT status FROM ebb.run WHERE policy = 'stopped' ORDER BY id DESC LIMIT 1").await
}

async fn held(db: &TestDatabase) -> i64 {
    db.scalar("SELECT count(*) FROM ebb.lease WHERE holder IS NOT NULL").await
}

/// A node in the middle of a batch that would take a minute.
async fn in_a_slow_batch(db: &TestDatabase) -> Node {
    ledger_table(db, "stopped", "").await;
    db.execute(
        "CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NULL; END $$;
         CREATE TRIGGER slow BEFORE DELETE ON public.stopped FOR EACH STATEMENT EXECUTE FUNCTION public.slow()",
    )
    .await;
    insert_due(db, "stopped", 50).await;
    let policy = json!({ "table": "stopped", "column": "expires_at", "every": "1s", "brake": { "share": 1.0 },
                         "batch": { "timeout": "30s" } });
    apply(db, &[("stopped", policy)]).await;
    let node = node("slow", db.url());
    eventually(SOON, || sleeping(db)).await;
    node
}

async fn sleeping(db: &TestDatabase) -> bool {
    db.scalar(
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_told_to_stop_in_mid_run_gives_everything_back() {
    let db = database().await;
    ledger_table(&db, "stopped", "").await;
    insert_due(&db, "stopped", 2000).await;
    apply(&db, &[("stopped", slowly("stopped"))]).await;
    let node = node("stopped", db.url());
    wait_for_mid_run(&db, "stopped").await;
    stop(node).await;
    assert_eq!(last_run(&db).await, "stopped");
    assert_eq!(held(&db).await, 0);
    assert_accounted_for(&db, "stopped", "stopped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_does_not_end_is_cancelled_in_time() {
    let db = database().await;
    let mut node = in_a_slow_batch(&db).await;
    let told = Instant::now();
    node.term();
    let status = node.wait_within(SOON).await;
    assert!(status.success(), "{status}:\n{}", node.output());
    assert!(told.elapsed() < Duration::from_secs(30), "it took {:?}", told.elapsed());
    assert_eq!(last_run(&db).await, "stopped", "{}", node.output());
    assert_eq!(held(&db).await, 0);
    assert!(!sleeping(&db).await, "the batch goes on without its node");
    assert_accounted_for(&db, "stopped", "stopped").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_at_once() {
    let db = database().await;
    let mut node = in_a_slow_batch(&db).await;
    node.term();
    node.wait_for_line("Stopping cleanup", SOON).await;
    node.term();
    let status = node.wait_within(SOON).await;
    assert_eq!(status.code(), Some(1), "it did not wait for the batch");
}
