//! The Python example, with a real ClickHouse: it lets go in order, and killed in mid-task it leaves nothing behind.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ebb_testkit::{Store, libraries};

use super::Registry;
use crate::harness::Ebb;

async fn workshop() -> (Registry, String) {
    let database = format!("p{}", uuid::Uuid::new_v4().simple());
    Store::clickhouse().query(&format!("CREATE DATABASE {database}")).await;
    let registry = Registry { ebb: Ebb::new().await };
    let url = format!("{}/?database={database}", Store::clickhouse().url());
    let policy = format!(
        "[[resources]]\nname = \"s\"\ndriver = \"clickhouse\"\nurl = \"{url}\"\npattern = \"t{{snowflake}}\"\ngrace = \"0s\"\n"
    );
    registry.ebb.apply(&policy).await;
    (registry, url)
}

fn worker(registry: &Registry, url: &str, more: &[&str]) -> Child {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scratch_worker.py");
    let mut command = Command::new("python3");
    command.arg(script).args([registry.ebb.db.url(), url, "s"]).args(more);
    command.env("PYTHONPATH", libraries("psycopg")).stdout(Stdio::piped()).spawn().unwrap()
}

async fn tables(url: &str) -> String {
    let database = url.split('=').next_back().unwrap();
    let sql = format!("SELECT count() FROM system.tables WHERE database = '{database}' AND name <> 'ebb_owner'");
    Store::clickhouse().query(&sql).await
}

#[tokio::test]
async fn a_python_worker_lets_go_by_context_and_by_collection() {
    let (registry, url) = workshop().await;
    let ended = worker(&registry, &url, &[]).wait_with_output().unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success() && said.contains("is 499500") && said.contains("made t"), "{said}");
    assert_eq!(tables(&url).await, "2", "nothing has been dropped yet");
    let left: i64 =
        registry.ebb.db.scalar("SELECT (SELECT count(*) FROM ebb.reference) + (SELECT count(*) FROM ebb.holder)").await;
    assert_eq!(left, 0);
    assert_eq!(registry.passes("drop").await, 2);
    assert_eq!(tables(&url).await, "0");
}

#[tokio::test]
async fn a_python_worker_killed_in_mid_task_leaves_nothing_behind() {
    let (registry, url) = workshop().await;
    let mut killed = worker(&registry, &url, &["--hang"]);
    let mut line = String::new();
    BufReader::new(killed.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("sum of"), "{line}");
    killed.kill().unwrap();
    killed.wait().unwrap();
    registry.passes("drop").await;
    assert_eq!(tables(&url).await, "1", "its term has not run out: nobody knows that it is dead");
    registry.ebb.db.execute("UPDATE ebb.holder SET expires_at = clock_timestamp() - term, collect_at = clock_timestamp() - term * 2 / 3").await;
    assert_eq!(registry.end_dead().await, 1);
    assert_eq!(registry.passes("drop").await, 1);
    assert_eq!(tables(&url).await, "0");
}
