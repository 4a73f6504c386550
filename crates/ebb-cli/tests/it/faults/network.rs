//! The database goes away and comes back, the network is cut at the worst moment or swallows everything.

use std::time::Duration;

use ebb_testkit::{Mode, Proxy, TestDatabase, database, empty_database_on, eventually, own_server, server};

use super::{
    SOON, apply, assert_accounted_for, due, gone, insert_due, ledger_table, node, slowly, stop, wait_for_mid_run,
};

async fn slow_table(db: &TestDatabase) {
    ledger_table(db, "cut", "").await;
    insert_due(db, "cut", 300).await;
    apply(db, &[("cut", slowly("cut"))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restart_in_mid_sweep_needs_no_help() {
    let server = own_server();
    let db = empty_database_on(&server).await;
    ebb::pg::migrate(&db.open()).await.unwrap();
    slow_table(&db).await;
    let node = node("restarted", db.url());
    for mode in [Mode::Immediate, Mode::Fast] {
        insert_due(&db, "cut", 300).await;
        wait_for_mid_run(&db, "cut").await;
        server.restart(mode);
        eventually(SOON, || async { due(&db, "cut").await == 0 }).await;
    }
    stop(node).await;
    assert_accounted_for(&db, "cut", "cut").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stays_away_is_waited_for() {
    let server = own_server();
    let db = empty_database_on(&server).await;
    ebb::pg::migrate(&db.open()).await.unwrap();
    slow_table(&db).await;
    server.stop();
    let mut early = node("early", db.url());
    early.wait_for_line("The database is away", SOON).await;
    let mut stopped = node("stopped", db.url());
    stopped.wait_for_line("The database is away", SOON).await;
    stop(stopped).await;
    server.start();
    eventually(SOON, || async { due(&db, "cut").await == 0 }).await;
    stop(early).await;
    assert_accounted_for(&db, "cut", "cut").await;
}

/// A run's steps, each by a piece of its SQL: claimed, opened, a batch, finished.
const STEPS: [&str; 4] = ["SKIP LOCKED\n)", "left_behind", "DELETE FROM ONLY", "RETURNING rows, batches"];

#[tokio::test(flavor = "multi_thread")]
async fn the_network_cut_at_any_commit_of_a_run_loses_and_doubles_nothing() {
    let db = database().await;
    slow_table(&db).await;
    let proxy = Proxy::start(server().address()).await;
    let node = node("cut", &proxy.url(db.url()));
    for step in STEPS {
        for committed in [true, false] {
            if committed {
                proxy.cut_after_commit_of(step);
            } else {
                proxy.cut_before_commit_of(step);
            }
            insert_due(&db, "cut", 60).await;
            proxy.wait_until_cut(SOON).await;
            proxy.restore();
            eventually(SOON, || async { due(&db, "cut").await == 0 }).await;
        }
    }
    // The last cut may have left a run open although nothing is due; taking the unit up again closes it.
    let open = "SELECT EXISTS (SELECT FROM ebb.run WHERE status = 'running')";
    eventually(SOON, || async { !db.scalar::<bool>(open).await }).await;
    stop(node).await;
    assert_accounted_for(&db, "cut", "cut").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_is_got_over_also_by_connections_that_nobody_resets() {
    let db = database().await;
    slow_table(&db).await;
    let proxy = Proxy::start(server().address()).await;
    let node = node("swallowed", &proxy.url(db.url()));
    let mut deaf: Vec<i32> = Vec::new();
    for nobody_resets in [false, true] {
        let hears = "SELECT EXISTS (SELECT FROM ebb.node WHERE listens)";
        eventually(SOON, || async { db.scalar(hears).await }).await;
        insert_due(&db, "cut", 300).await;
        wait_for_mid_run(&db, "cut").await;
        let listeners =
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'ebb/listen'";
        deaf = sqlx::query_scalar(listeners).fetch_all(db.pool()).await.unwrap();
        proxy.black_hole();
        eventually(SOON, || still(&db)).await;
        if nobody_resets {
            proxy.restore_for_new();
        } else {
            proxy.restore();
        }
        eventually(SOON, || async { due(&db, "cut").await == 0 }).await;
    }
    // The connection that listens notices as well, though nothing was said on it.
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                     AND application_name = 'ebb/listen' AND pid <> ALL($1)";
    eventually(SOON, || async {
        let fresh: i64 = sqlx::query_scalar(listening).bind(&deaf).fetch_one(db.pool()).await.unwrap();
        fresh > 0
    })
    .await;
    stop(node).await;
    assert_accounted_for(&db, "cut", "cut").await;
}

/// Whether the sweep stands still: what was on its way has arrived.
async fn still(db: &TestDatabase) -> bool {
    let before = gone(db, "cut").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    gone(db, "cut").await == before
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_in_a_black_hole_still_ends_in_time() {
    let db = database().await;
    slow_table(&db).await;
    let proxy = Proxy::start(server().address()).await;
    let node = node("swallowed", &proxy.url(db.url()));
    wait_for_mid_run(&db, "cut").await;
    proxy.black_hole();
    eventually(SOON, || still(&db)).await;
    stop(node).await;
    assert_accounted_for(&db, "cut", "cut").await;
}
