//! The test kit itself.

use std::path::Path;
use std::time::{Duration, Instant};

use ebb_testkit::{
    Mode, Node, Proxy, advance, database, empty_database, empty_database_on, eventually, own_server, server,
};
use sqlx::{Connection, PgConnection};

#[tokio::test]
async fn every_test_has_its_own_migrated_database() {
    let (one, two) = tokio::join!(database(), database());
    one.execute("CREATE TABLE k (id int); INSERT INTO k VALUES (1)").await;
    assert!(one.scalar::<bool>("SELECT to_regclass('k') IS NOT NULL").await);
    assert!(two.scalar::<bool>("SELECT to_regclass('k') IS NULL AND to_regclass('ebb.policy') IS NOT NULL").await);
    assert_eq!(ebb::pg::migrate(&two.open()).await.unwrap().applied, Vec::<String>::new());
}

#[tokio::test]
async fn a_clone_is_fast() {
    database().await;
    let start = Instant::now();
    database().await;
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    println!("clone: {:?}", start.elapsed());
}

#[tokio::test]
async fn an_empty_database_is_empty() {
    let db = empty_database().await;
    assert!(db.scalar::<bool>("SELECT to_regclass('ebb.policy') IS NULL").await);
}

#[tokio::test]
async fn the_socket_works_too() {
    let db = database().await;
    let pool = sqlx::PgPool::connect(db.socket_url()).await.unwrap();
    let local: bool = sqlx::query_scalar("SELECT inet_server_addr() IS NULL").fetch_one(&pool).await.unwrap();
    assert!(local);
}

#[tokio::test]
async fn moves_of_the_clock_add_up_and_keep_index_conditions() {
    let db = database().await;
    advance(&db, "90 days").await;
    advance(&db, "1 day").await;
    let days: i32 = db.scalar("SELECT extract(day FROM ebb.now() - now())::int").await;
    assert_eq!(days, 91);
    assert!(db.scalar::<bool>("SELECT ebb.clock() >= clock_timestamp() + interval '90 days'").await);
    db.execute("CREATE TABLE k (at timestamptz); CREATE INDEX ON k (at); SET enable_seqscan = off").await;
    let plan: serde_json::Value =
        db.scalar("EXPLAIN (FORMAT json) SELECT FROM k WHERE at <= ebb.now() ORDER BY at").await;
    assert!(plan.to_string().contains("Index Cond"), "{plan}");
}

#[tokio::test]
async fn eventually_waits_for_the_condition() {
    let mut asked = 0;
    eventually(Duration::from_secs(60), || {
        asked += 1;
        let done = asked == 3;
        async move { done }
    })
    .await;
    assert_eq!(asked, 3);
}

#[tokio::test]
async fn an_own_server_restarts_and_keeps_what_was_committed() {
    let server = own_server();
    let dir = server.dir().to_owned();
    let db = empty_database_on(&server).await;
    db.execute("CREATE TABLE k (v int); INSERT INTO k VALUES (7)").await;
    server.set("work_mem = '5MB'");
    server.restart(Mode::Immediate);
    assert_eq!(db.scalar::<i32>("SELECT v FROM k").await, 7);
    assert_eq!(db.scalar::<String>("SHOW work_mem").await, "5MB");
    server.stop();
    assert!(PgConnection::connect(&server.url("postgres")).await.is_err());
    server.start();
    assert_eq!(db.scalar::<i32>("SELECT v FROM k").await, 7);
    drop(server);
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_cut_resets_and_refuses_until_restored() {
    let db = database().await;
    let proxy = Proxy::start(server().address()).await;
    let url = proxy.url(db.url());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    assert_eq!(ask(&mut connection).await.unwrap(), 1);
    proxy.cut();
    assert!(ask(&mut connection).await.is_err());
    assert!(PgConnection::connect(&url).await.is_err());
    proxy.restore();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    proxy.delay(Duration::from_millis(100));
    let start = Instant::now();
    assert_eq!(ask(&mut connection).await.unwrap(), 1);
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn a_black_hole_never_answers() {
    let db = database().await;
    let proxy = Proxy::start(server().address()).await;
    let mut connection = PgConnection::connect(&proxy.url(db.url())).await.unwrap();
    proxy.black_hole();
    assert!(tokio::time::timeout(Duration::from_millis(300), ask(&mut connection)).await.is_err());
    let fresh = PgConnection::connect(&proxy.url(db.url()));
    assert!(tokio::time::timeout(Duration::from_millis(300), fresh).await.is_err());
    proxy.restore();
    assert!(PgConnection::connect(&proxy.url(db.url())).await.is_ok());
}

#[tokio::test]
async fn a_cut_at_commit_hides_what_the_server_did() {
    let db = database().await;
    db.execute("CREATE TABLE k (v text)").await;
    let proxy = Proxy::start(server().address()).await;
    for (kept, value) in [(true, "after"), (false, "before")] {
        proxy.restore();
        let mut marked = PgConnection::connect(&proxy.url(db.url())).await.unwrap();
        let mut other = PgConnection::connect(&proxy.url(db.url())).await.unwrap();
        if kept {
            proxy.cut_after_commit_of("INSERT INTO k");
        } else {
            proxy.cut_before_commit_of("INSERT INTO k");
        }
        let mut tx = other.begin().await.unwrap();
        ask(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        let mut tx = marked.begin().await.unwrap();
        sqlx::query("INSERT INTO k VALUES ($1)").bind(value).execute(&mut *tx).await.unwrap();
        assert!(tx.commit().await.is_err());
        proxy.wait_until_cut(Duration::from_secs(5)).await;
        assert!(ask(&mut other).await.is_err());
        let count: i64 = db.scalar(&format!("SELECT count(*) FROM k WHERE v = '{value}'")).await;
        assert_eq!(count, i64::from(kept), "{value}");
    }
}

#[tokio::test]
async fn a_node_is_heard_frozen_and_killed() {
    let script = "echo in $PWD; cat ebb.toml; echo $DATABASE_URL >&2; trap 'echo bye; exit 3' TERM; \
                  i=0; while :; do echo beat $i; i=$((i+1)); sleep 0.02; done";
    let mut node = Node::spawn(Path::new("/bin/sh"), "postgres://x", "[http]\n", &["-c", script]);
    let long = Duration::from_secs(10);
    node.wait_for_line("postgres://x", long).await;
    node.wait_for_line("[http]", long).await;
    node.wait_for_line("beat 2", long).await;
    node.stop_signal();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", node.pid())).unwrap_or_default();
    eventually(long, || async { state().contains(") T ") || !Path::new("/proc").exists() }).await;
    let frozen = node.lines().len();
    node.continue_signal();
    eventually(long, || async { node.lines().len() > frozen }).await;
    node.term();
    assert_eq!(node.wait_within(long).await.code(), Some(3));
    assert!(node.output().contains("bye"));
    let mut other = node.beside(Path::new("/bin/sh"), "", &["-c", "echo ${DATABASE_URL:-none}; sleep 100"], &[]);
    other.wait_for_line("none", long).await;
    other.kill9();
    assert!(other.wait().await.code().is_none());
}

async fn ask(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar("SELECT 1").fetch_one(connection).await
}
