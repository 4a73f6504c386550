//! A running node follows what people change: policies, pauses, triggers, and tables that are no longer what they were.

use std::time::Duration;

use ebb::audit::SubjectKey;
use ebb::{Keys, control};
use ebb_testkit::{Node, TempDir, TestDatabase, database, eventually};
use serde_json::{Value, json};

use super::{
    SOON, apply, apply_with, assert_accounted_for, config, due, ebb_bin, gone, insert_due, ledger_table, node,
    recorded, slowly, stop, wait_for_mid_run,
};

/// "Within seconds", on a busy machine.
const FOLLOWED: Duration = Duration::from_secs(10);

async fn swept(db: &TestDatabase, table: &str) {
    eventually(FOLLOWED, || async { due(db, table).await == 0 }).await;
}

fn hourly(table: &str) -> Value {
    json!({ "table": table, "column": "expires_at", "every": "1h", "brake": { "share": 1.0 } })
}

async fn finished(db: &TestDatabase, policy: &str) {
    let sql = format!(
        "SELECT COALESCE(bool_and(next_at > now() AND NOT triggered), false) FROM ebb.unit WHERE policy = '{policy}'"
    );
    eventually(FOLLOWED, || async { db.scalar(&sql).await }).await;
}

/// Everything that a node is told while it runs.
async fn follows(db: &TestDatabase, node: Node) {
    for table in ["a", "b"] {
        ledger_table(db, table, "").await;
        insert_due(db, table, 30).await;
    }
    apply(db, &[("a", hourly("a"))]).await;
    swept(db, "a").await;
    apply(db, &[("a", hourly("a")), ("b", hourly("b"))]).await;
    swept(db, "b").await;
    finished(db, "b").await;

    // Paused: a trigger waits; resumed: it is heard.
    let mut connection = db.pool().acquire().await.unwrap();
    insert_due(db, "b", 30).await;
    control::pause(&mut connection, "b", Some("test"), "test").await.unwrap();
    let seen = db.scalar::<i64>("SELECT count(*) FROM ebb.run WHERE policy = 'b'").await;
    // Whoever beats after the pause has seen it.
    let beat = "SELECT bool_and(seen_at > (SELECT max(paused_at) FROM ebb.pause)) FROM ebb.node WHERE seen_at > now() - interval '3 seconds'";
    eventually(FOLLOWED, || async { db.scalar::<Option<bool>>(beat).await == Some(true) }).await;
    assert_eq!(control::trigger(&mut connection, "b", None, "test").await.unwrap(), 1);
    insert_due(db, "a", 30).await;
    assert_eq!(control::trigger(&mut connection, "a", None, "test").await.unwrap(), 1);
    swept(db, "a").await;
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM ebb.run WHERE policy = 'b'").await, seen, "it ran while paused");
    assert_eq!(due(db, "b").await, 30);
    assert!(control::resume(&mut connection, "b", None, "test").await.unwrap());
    swept(db, "b").await;
    finished(db, "b").await;

    // Gone from the file: disabled, so that it has no unit and nothing of it goes.
    insert_due(db, "b", 30).await;
    apply(db, &[("a", hourly("a"))]).await;
    eventually(FOLLOWED, || async { db.scalar::<i64>("SELECT count(*) FROM ebb.unit WHERE policy = 'b'").await == 0 })
        .await;
    assert_eq!(due(db, "b").await, 30);
    stop(node).await;
    assert_accounted_for(db, "a", "a").await;
    assert_accounted_for(db, "b", "b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_node_follows_changes_that_it_hears_of() {
    let db = database().await;
    let node = node("listens", db.url());
    eventually(SOON, || async { db.scalar("SELECT EXISTS (SELECT FROM ebb.node WHERE listens)").await }).await;
    follows(&db, node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_node_follows_changes_by_looking() {
    let db = database().await;
    let mut node = node("looks", db.url());
    // Whoever listens loses the connection again and again: nothing depends on a NOTIFY.
    let pool = db.pool().clone();
    let deaf = tokio::spawn(async move {
        loop {
            let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                        WHERE datname = current_database() AND application_name = 'ebb/listen'";
            sqlx::query(kill).execute(&pool).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    node.wait_for_line("Ebb is up", SOON).await;
    follows(&db, node).await;
    deaf.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_does_not_go_on_under_a_policy_that_was_changed() {
    let db = database().await;
    ledger_table(&db, "t", "").await;
    insert_due(&db, "t", 2000).await;
    apply(&db, &[("t", slowly("t"))]).await;
    let node = node("follows", db.url());
    wait_for_mid_run(&db, "t").await;
    let mut longer = slowly("t");
    longer["older_than"] = json!("1d");
    apply(&db, &[("t", longer)]).await;
    let at_change = gone(&db, "t").await;
    let ended = "SELECT EXISTS (SELECT FROM ebb.run WHERE policy_version = 2 AND status = 'success')";
    eventually(SOON, || async { db.scalar(ended).await }).await;
    // The batch that was under way at that moment may have ended after it.
    assert!(gone(&db, "t").await <= at_change + 10, "rows went that the new policy keeps");
    let status: String = db.scalar("SELECT status FROM ebb.run WHERE policy_version = 1").await;
    assert_eq!(status, "stopped");

    // Disabled in mid-run: the same.
    apply(&db, &[("t", slowly("t"))]).await;
    wait_for_mid_run(&db, "t").await;
    apply(&db, &[]).await;
    let at_change = gone(&db, "t").await;
    eventually(SOON, || async { db.scalar("SELECT NOT EXISTS (SELECT FROM ebb.run WHERE status = 'running')").await })
        .await;
    assert!(gone(&db, "t").await <= at_change + 10, "rows went under a policy that is disabled");
    stop(node).await;
    assert_accounted_for(&db, "t", "t").await;
}

async fn stopped(db: &TestDatabase, policy: &str) -> String {
    let sql = format!("SELECT stopped FROM ebb.policy WHERE name = '{policy}'");
    eventually(SOON, || async { db.scalar::<Option<String>>(&sql).await.is_some() }).await;
    db.scalar(&sql).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_no_longer_what_it_was_stops_its_policy_and_nothing_else() {
    let db = database().await;
    let tables = ["dropped", "retyped", "renamed", "healthy"];
    for table in tables {
        ledger_table(&db, table, "").await;
        insert_due(&db, table, 2000).await;
    }
    let policies: Vec<(&str, Value)> = tables.iter().map(|table| (*table, slowly(table))).collect();
    apply(&db, &policies).await;
    let node = node("shaken", db.url());
    for table in tables {
        wait_for_mid_run(&db, table).await;
    }
    db.execute("DROP TABLE public.dropped").await;
    db.execute("ALTER TABLE public.retyped ALTER expires_at TYPE text").await;
    db.execute("ALTER TABLE public.renamed RENAME expires_at TO good_until").await;
    assert!(stopped(&db, "dropped").await.contains("no table dropped"));
    assert!(stopped(&db, "retyped").await.contains("text"));
    assert!(stopped(&db, "renamed").await.contains("expires_at"));
    // The others go on, and a stopped policy starts again when it is mended and applied.
    eventually(SOON, || async { due(&db, "healthy").await < 1500 }).await;
    db.execute("ALTER TABLE public.renamed RENAME good_until TO expires_at").await;
    let left = due(&db, "renamed").await;
    apply(&db, &policies[2..]).await;
    eventually(SOON, || async { due(&db, "renamed").await < left }).await;
    stop(node).await;
    assert_accounted_for(&db, "healthy", "healthy").await;
    assert_accounted_for(&db, "renamed", "renamed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_dropped_under_a_run_does_not_stop_its_policy() {
    let db = database().await;
    ledger_table(&db, "p", "PARTITION BY HASH (id)").await;
    db.execute(
        "CREATE TABLE public.p_0 PARTITION OF public.p FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE public.p_1 PARTITION OF public.p FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    )
    .await;
    insert_due(&db, "p", 3000).await;
    apply(&db, &[("p", slowly("p"))]).await;
    let node = node("shaken", db.url());
    let both = "SELECT count(DISTINCT relation) = 2 FROM ebb.audit WHERE policy = 'p' AND action = 'expire'";
    eventually(SOON, || async { db.scalar(both).await }).await;
    db.execute("DROP TABLE public.p_0").await;
    eventually(SOON, || async { due(&db, "p").await == 0 }).await;
    assert_eq!(db.scalar::<Option<String>>("SELECT stopped FROM ebb.policy WHERE name = 'p'").await, None);
    let failed = "SELECT EXISTS (SELECT FROM ebb.run WHERE leaf = 'public.p_0' AND status = 'failed')";
    eventually(SOON, || async { db.scalar(failed).await }).await;
    stop(node).await;
    let (audit, runs) = recorded(&db, "p").await;
    assert_eq!((audit, runs), (gone(&db, "p").await, gone(&db, "p").await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_broken_key_stops_no_policy() {
    let db = database().await;
    let dir = TempDir::new();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let (subject, signing) = (file("subject", "no key"), file("signing", "no key"));
    for table in ["plain", "named"] {
        ledger_table(&db, table, "").await;
        insert_due(&db, table, 30).await;
    }
    // The policy was applied where the key is.
    let good = dir.path().join("good");
    let keys = Keys { subject: Some(good.clone()), ..Keys::default() };
    SubjectKey::create_if_missing(&good).unwrap();
    let mut named = hourly("named");
    named["audit"] = json!("rows");
    apply_with(&db, keys, &[("plain", hourly("plain")), ("named", named)]).await;

    let audit = |subject: &str, signing: &str| {
        format!("[audit]\nsubject_key = \"file:{subject}\"\nsigning_key = \"file:{signing}\"\n")
    };
    let broken = format!("{}{}", config("broken", "2s"), audit(&subject, &signing));
    let broken = Node::spawn(ebb_bin(), db.url(), &broken, &["run"]);
    swept(&db, "plain").await;
    let failed = "SELECT EXISTS (SELECT FROM ebb.run WHERE policy = 'named' AND status = 'failed' AND error LIKE '%subject key%')";
    eventually(FOLLOWED, || async { db.scalar(failed).await }).await;
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM ebb.policy WHERE stopped IS NOT NULL").await, 0);
    stop(broken).await;
    let whole = format!("{}{}", config("whole", "2s"), audit(&good.display().to_string(), &signing));
    let whole = Node::spawn(ebb_bin(), db.url(), &whole, &["run"]);
    eventually(SOON, || async { due(&db, "named").await == 0 }).await;
    stop(whole).await;
    assert_accounted_for(&db, "plain", "plain").await;
}
