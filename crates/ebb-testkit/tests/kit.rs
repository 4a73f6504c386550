//! The test kit itself.

use std::time::{Duration, Instant};

use ebb_testkit::{advance, database, empty_database, eventually};

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
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
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
    eventually(Duration::from_secs(5), || {
        asked += 1;
        let done = asked == 3;
        async move { done }
    })
    .await;
    assert_eq!(asked, 3);
}
