//! Many policies: what a node reads again and again costs no statement for each of them.

use ebb::pg::Database;
use ebb::{Engine, Keys};
use ebb_testkit::server;

use crate::harness::{Ebb, run_once};

/// Tables `t1` to `tN`, and an expire policy for each, as if they had been applied; the first is paused.
async fn policies(ebb: &Ebb, from: u32, to: u32) {
    ebb.db
        .execute(&format!(
            "DO $$ BEGIN FOR n IN {from}..{to} LOOP
                 EXECUTE format('CREATE TABLE t%s (at timestamptz)', n);
             END LOOP; END $$;
             INSERT INTO ebb.policy (kind, name, spec, source, changed_by)
             SELECT 'expire', 'p' || n, jsonb_build_object('table', 'public.t' || n, 'column', 'at'), 'file', 'test'
             FROM generate_series({from}, {to}) AS n;
             INSERT INTO ebb.policy (kind, name, spec, source, changed_by)
             SELECT 'schedule', 's' || n, jsonb_build_object('sink', 'log', 'cron', '0 3 * * *'), 'file', 'test'
             FROM generate_series({from}, {to}) AS n"
        ))
        .await;
}

/// How many statements a node sends that reads all policies and finds the only one it is to run paused.
async fn statements(ebb: &Ebb, name: &str) -> usize {
    let engine = Engine::new(Database::open(ebb.db.target(), 4, name), Keys::default());
    let finished = run_once(&engine, &["p1"]).await.unwrap();
    assert_eq!((finished.runs.len(), finished.resting.len()), (0, 1), "{finished:?}");
    engine.database().close().await;
    let (said, run) = (format!(" {name} LOG:  statement: "), format!(" {name} LOG:  execute "));
    server().log().lines().filter(|line| line.contains(&said) || line.contains(&run)).count()
}

#[tokio::test]
async fn a_thousand_policies_are_read_in_as_many_statements_as_ten() {
    let ebb = Ebb::new().await;
    let database = ebb.db.name();
    ebb.db.execute(&format!("ALTER DATABASE \"{database}\" SET log_statement = 'all'")).await;
    policies(&ebb, 1, 10).await;
    ebb.db.execute("INSERT INTO ebb.pause (name, paused_by) VALUES ('p1', 'test')").await;
    let new = statements(&ebb, &format!("{database}-ten-new")).await;
    let known = statements(&ebb, &format!("{database}-ten-known")).await;
    assert!(new > 10 && known > 10, "{new} and {known}: the log does not say what was sent");

    policies(&ebb, 11, 1000).await;
    assert_eq!(statements(&ebb, &format!("{database}-many-new")).await, new);
    assert_eq!(statements(&ebb, &format!("{database}-many-known")).await, known);
    let (units, leases, gates, recurring): (i64, i64, i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM ebb.unit WHERE policy ~ '^p\\d'), (SELECT count(*) FROM ebb.lease WHERE unit ~ '^expire/p\\d'),
                (SELECT count(*) FROM ebb.gate), (SELECT count(*) FROM ebb.recurring WHERE next_at > now())",
    )
    .fetch_one(ebb.db.pool())
    .await
    .unwrap();
    assert_eq!((units, leases, gates, recurring), (1000, 1000, 1000, 1000));
}
