//! Nodes that start at the same moment, and one that is too old for what it finds.

use std::time::Duration;

use ebb_testkit::{Node, database, empty_database};

use super::{SOON, config, ebb_bin, node, stop};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_start_at_once_on_an_empty_database_migrate_it_once() {
    let db = empty_database().await;
    let mut nodes: Vec<Node> = (0..4).map(|number| node(&format!("n{number}"), db.url())).collect();
    for node in &mut nodes {
        node.wait_for_line("Started cleanup", SOON).await;
    }
    let files: i64 = db.scalar("SELECT count(*) FROM ebb.migration").await;
    let last: i32 = db.scalar("SELECT max(version) FROM ebb.migration").await;
    assert_eq!(files, i64::from(last));
    for node in nodes {
        stop(node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_binary_refuses_a_schema_that_it_does_not_understand() {
    let db = database().await;
    // One that does not break older binaries is no reason to refuse.
    db.execute("INSERT INTO ebb.migration (version, name, checksum, breaking) VALUES (9998, '9998_more', '', false)")
        .await;
    let mut running = node("old", db.url());
    running.wait_for_line("Started cleanup", SOON).await;
    db.execute("INSERT INTO ebb.migration (version, name, checksum, breaking) VALUES (9999, '9999_future', '', true)")
        .await;
    for args in [&["run"][..], &["run", "--once"], &["migrate"], &["apply", "--yes"]] {
        let mut old = Node::spawn(ebb_bin(), db.url(), &config("old", "2s"), args);
        let status = old.wait_within(Duration::from_secs(60)).await;
        let output = old.output();
        assert!(matches!(status.code(), Some(1 | 2)), "{args:?}: {status}\n{output}");
        assert!(output.contains("9999_future") && output.contains("upgrade"), "{args:?}: {output}");
    }
    stop(running).await;
}
