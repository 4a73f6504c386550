//! A real standby: it holds work up while it is behind, and nothing is ever written to it.

use ebb::pg::{Database, Target};
use ebb::{Engine, Keys};
use ebb_testkit::{empty_database_on, own_server};
use sqlx::{Connection, PgConnection};

use crate::harness::{Ebb, execute, fetch, policy, wanted};

#[tokio::test]
async fn it_rests_while_a_replica_is_behind() {
    let server = own_server();
    let db = empty_database_on(&server).await;
    let standby = server.standby();
    let ebb = Ebb::on(db).await;
    ebb.engine.migrate().await.unwrap();
    ebb.db
        .execute(
            "CREATE TABLE t (id int, at timestamptz);
             INSERT INTO t SELECT n, now() - interval '1 hour' FROM generate_series(1, 100) n",
        )
        .await;
    ebb.until("SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn())").await;
    let mut replica = PgConnection::connect(&standby.url(ebb.db.name())).await.unwrap();
    execute(&mut replica, "SELECT pg_wal_replay_pause()").await;
    let slow = "every = \"1s\"\nbatch = { rows = 1, pause = \"100ms\" }";
    ebb.apply(&format!("[pacing]\nmax_replica_lag = \"2s\"\n{}", policy(slow))).await;
    let node = ebb.start(&["t"]);
    ebb.until("SELECT throttle LIKE 'a replica is %s behind (max_replica_lag)' FROM ebb.unit WHERE policy = 't'").await;
    let left: i64 = ebb.db.scalar("SELECT count(*) FROM t").await;
    assert!(left > 0, "it rests before the end");
    let seen: i64 = fetch(&mut replica, "SELECT count(*) FROM t").await;
    assert_eq!(seen, 100, "the replica has seen nothing of it");
    execute(&mut replica, "SELECT pg_wal_replay_resume()").await;
    ebb.until("SELECT NOT EXISTS (SELECT FROM t)").await;
    ebb.until("SELECT throttle IS NULL FROM ebb.unit WHERE policy = 't'").await;
    node.stop().await;
}

#[tokio::test]
async fn nothing_is_written_to_a_replica() {
    let server = own_server();
    let db = empty_database_on(&server).await;
    let ebb = Ebb::on(db).await;
    ebb.engine.migrate().await.unwrap();
    ebb.db.execute("CREATE TABLE t (id int, at timestamptz)").await;
    ebb.policy("where = \"id > 0\"").await;
    let standby = server.standby();
    let target = Target::parse(&standby.url(ebb.db.name()), None).unwrap();
    let engine = Engine::new(Database::open(target, 4, "ebb/test"), Keys::default());
    let wanted = wanted(&policy("where = \"id > 1\"")).unwrap();
    let refused = [
        ("ready", engine.ready().await.unwrap_err()),
        ("migrate", engine.migrate().await.unwrap_err()),
        ("apply", engine.apply(&wanted, false, "test").await.unwrap_err()),
        ("set", engine.set_policy("t", &wanted[0].spec, "test").await.unwrap_err()),
        ("once", engine.once("orders").claim("k").await.unwrap_err()),
        ("run", crate::harness::run_once(&engine, &["t"]).await.unwrap_err()),
    ];
    for (what, error) in refused {
        let told = format!("{error}; {}", error.hint().unwrap_or_default());
        assert!(told.contains("read-only replica") && told.contains("the primary"), "{what}: {told}");
    }
    let runs: i64 = ebb.db.scalar("SELECT count(*) FROM ebb.run").await;
    assert_eq!(runs, 0);
}
