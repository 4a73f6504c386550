//! Others at work on the same rows: what they hold is passed by, what they extend survives, what they move is found.

use ebb::spine::Status;
use ebb_testkit::eventually;
use sqlx::PgConnection;

use crate::harness::{Ebb, SOON, execute, fetch, succeeded};

/// Both ways through a table: along an index, and page after page; with adaptive and with fixed batches.
const WAYS: [(&str, &str); 4] = [
    ("CREATE INDEX ON t (at);", ""),
    ("", ""),
    ("CREATE INDEX ON t (at);", "batch = { rows = 3, pause = \"0s\" }"),
    ("", "batch = { rows = 3, pause = \"0s\" }"),
];

const TABLE: &str = "CREATE TABLE t (id int, at timestamptz, note text);
    INSERT INTO t SELECT n, now() - n * interval '1 minute' FROM generate_series(1, 10) n;";

/// Waits until somebody waits for a lock that `pid` holds.
async fn blocked_by(ebb: &Ebb, pid: i32) {
    ebb.until(&format!("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE {pid} = ANY(pg_blocking_pids(pid)))")).await;
}

/// Commits what `client` has open as soon as a sweep waits for it, or has passed it by.
async fn commit_when_in_the_way<T>(ebb: &Ebb, client: &mut PgConnection, sweep: impl Future<Output = T>) -> T {
    let pid: i32 = fetch(client, "SELECT pg_backend_pid()").await;
    tokio::pin!(sweep);
    let passed_by = tokio::select! {
        summary = &mut sweep => Some(summary),
        () = blocked_by(ebb, pid) => None,
    };
    execute(client, "COMMIT").await;
    match passed_by {
        Some(summary) => summary,
        None => sweep.await,
    }
}

#[tokio::test]
async fn a_row_that_somebody_holds_is_passed_by_and_counted() {
    for (index, batch) in WAYS {
        let ebb = Ebb::with(&format!("{TABLE} {index}")).await;
        let mut client = ebb.client().await;
        execute(&mut client, "BEGIN; SELECT FROM t WHERE id = 5 FOR UPDATE").await;
        let summary = ebb.sweep(batch).await;
        assert_eq!((summary.status, summary.rows, summary.skipped), (Status::Success, 9, 1), "{summary:?}");
        assert_eq!(ebb.left().await, "5");
        let counted: (i64, i64) = sqlx::query_as("SELECT skipped, rows FROM ebb.run WHERE policy = 't'")
            .fetch_one(ebb.db.pool())
            .await
            .unwrap();
        assert_eq!(counted, (1, 9));
        execute(&mut client, "ROLLBACK").await;
        succeeded(&ebb.again().await, 1);
        assert_eq!((ebb.left().await, ebb.audited().await), (String::new(), 10));
    }
}

#[tokio::test]
async fn a_row_that_is_free_again_goes_in_the_second_pass() {
    // The last row's trigger waits for the test, which lets go of the held row meanwhile.
    for (index, batch) in WAYS {
        let ebb = Ebb::with(&format!(
            "{TABLE} {index}
             CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN PERFORM set_config(''lock_timeout'', ''0'', true);
                        PERFORM pg_advisory_xact_lock_shared(1); RETURN OLD; END';
             CREATE TRIGGER gate BEFORE DELETE ON t FOR EACH ROW WHEN (OLD.id = 7) EXECUTE FUNCTION gate();"
        ))
        .await;
        let (mut client, mut gate) = (ebb.client().await, ebb.client().await);
        let pid: i32 = fetch(&mut gate, "SELECT pg_backend_pid()").await;
        execute(&mut gate, "SELECT pg_advisory_lock(1)").await;
        execute(&mut client, "BEGIN; SELECT FROM t WHERE id = 5 FOR UPDATE").await;
        ebb.policy(batch).await;
        let (summary, ()) = tokio::join!(ebb.again(), async {
            blocked_by(&ebb, pid).await;
            execute(&mut client, "ROLLBACK").await;
            execute(&mut gate, "SELECT pg_advisory_unlock(1)").await;
        });
        succeeded(&summary, 10);
        assert_eq!((ebb.left().await, ebb.audited().await), (String::new(), 10));
    }
}

#[tokio::test]
async fn a_row_that_is_extended_while_the_sweep_waits_for_it_survives() {
    for (index, batch) in WAYS {
        let ebb = Ebb::with(&format!("{TABLE} {index}")).await;
        let mut client = ebb.client().await;
        ebb.policy(batch).await;
        let extend = "BEGIN; UPDATE t SET at = now() + interval '1 hour' WHERE id = 5;
                      UPDATE t SET note = 'still due' WHERE id = 6";
        execute(&mut client, extend).await;
        let summary = commit_when_in_the_way(&ebb, &mut client, ebb.again()).await;
        assert_eq!(summary.status, Status::Success, "{summary:?}");
        let live: i64 = ebb.db.scalar("SELECT count(*) FROM t WHERE id = 5 AND at > now()").await;
        assert_eq!(live, 1, "the extended row survives");
        ebb.again().await;
        assert_eq!((ebb.left().await, ebb.audited().await), ("5".into(), 9));
    }
}

#[tokio::test]
async fn a_row_that_is_extended_again_and_again_is_never_lost() {
    // A writer that extends and shortens all the time; whoever is live at a commit must be there after it.
    for (index, batch) in [WAYS[0], WAYS[3]] {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE t (id int PRIMARY KEY, at timestamptz);
             INSERT INTO t SELECT n, now() + interval '1 hour' FROM generate_series(1, 300) n; {index}"
        ))
        .await;
        ebb.policy(&format!("every = \"1s\"\n{batch}")).await;
        let sweeps = async {
            for _ in 0..12 {
                ebb.again().await;
            }
        };
        let mut client = ebb.client().await;
        let writer = async {
            for round in 0.. {
                // Due for a moment only, inside a transaction and without: then it may go, and is put back.
                let id = round % 300 + 1;
                execute(
                    &mut client,
                    &format!(
                        "BEGIN; UPDATE t SET at = now() - interval '1 hour' WHERE id = {id};
                         UPDATE t SET at = now() + interval '1 hour' WHERE id = {id}; COMMIT"
                    ),
                )
                .await;
            }
        };
        tokio::select! { () = sweeps => {}, () = writer => unreachable!() }
        let left: i64 = ebb.db.scalar("SELECT count(*) FROM t").await;
        assert_eq!((left, ebb.audited().await), (300, 0), "no row was ever due at a commit");
    }
}

#[tokio::test]
async fn rows_that_move_to_another_partition_are_neither_lost_early_nor_left() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, kind int, at timestamptz) PARTITION BY LIST (kind);
         CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1);
         CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (2);
         INSERT INTO t SELECT n, 1, now() - n * interval '1 minute' FROM generate_series(1, 10) n",
    )
    .await;
    for batch in ["", "batch = { rows = 3, pause = \"0s\" }"] {
        let mut client = ebb.client().await;
        ebb.policy(batch).await;
        // One moves and stays due, one moves and is extended.
        let moving = "BEGIN; UPDATE t SET kind = 2 WHERE id = 5; UPDATE t SET kind = 2, at = now() + interval '1 hour' WHERE id = 6";
        execute(&mut client, moving).await;
        let finished = commit_when_in_the_way(&ebb, &mut client, ebb.once("t")).await;
        assert!(finished.runs.iter().all(|run| run.status == Status::Success), "{finished:?}");
        ebb.once("t").await;
        assert_eq!(ebb.list("id", "t WHERE at > now()").await, "6");
        assert_eq!(ebb.left().await, "6");
        ebb.db.execute("DELETE FROM t; INSERT INTO t SELECT n, 1, now() - n * interval '1 minute' FROM generate_series(1, 10) n").await;
    }
}

#[tokio::test]
async fn a_table_that_somebody_locks_fails_the_run_and_is_tried_again() {
    let ebb = Ebb::with(TABLE).await;
    ebb.policy("every = \"1s\"").await;
    let mut client = ebb.client().await;
    execute(&mut client, "BEGIN; LOCK TABLE t").await;
    let node = ebb.start(&["t"]);
    ebb.until("SELECT EXISTS (SELECT FROM ebb.run WHERE status = 'failed' AND error LIKE '%lock timeout%')").await;
    assert_eq!(fetch::<i64>(&mut client, "SELECT count(*) FROM t").await, 10);
    execute(&mut client, "COMMIT").await;
    ebb.until("SELECT EXISTS (SELECT FROM ebb.run WHERE policy = 't' AND status = 'success')").await;
    assert_eq!(ebb.left().await, "");
    node.stop().await;
}

#[tokio::test]
async fn a_commit_that_fails_for_a_passing_reason_is_done_again() {
    // A deferred trigger fails while the transaction commits, once; the range must not be taken as done.
    for (index, batch) in WAYS {
        let ebb = Ebb::with(&format!(
            "{TABLE} {index} CREATE SEQUENCE tries;
             CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN IF nextval('public.tries') = 1 THEN RAISE lock_not_available; END IF; RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER late AFTER DELETE ON t DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION late()"
        ))
        .await;
        succeeded(&ebb.sweep(batch).await, 10);
        assert_eq!((ebb.left().await, ebb.audited().await), (String::new(), 10));
    }
}

#[tokio::test]
async fn several_nodes_share_the_units_and_no_row_goes_twice() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, at timestamptz) PARTITION BY HASH (id);
         DO $$ BEGIN FOR n IN 0..7 LOOP EXECUTE format('CREATE TABLE t_%s PARTITION OF t FOR VALUES WITH (MODULUS 8, REMAINDER %s)', n, n); END LOOP; END $$;
         INSERT INTO t SELECT n, now() - interval '1 hour' FROM generate_series(1, 4000) n;
         INSERT INTO t SELECT n, now() + interval '1 hour' FROM generate_series(1, 400) n",
    )
    .await;
    ebb.policy("every = \"1s\"\nbatch = { rows = 50, pause = \"1ms\" }").await;
    let others: Vec<_> = (0..3).map(|_| crate::harness::Running::new(&ebb.another(ebb.db.open()), &["t"])).collect();
    eventually(SOON, || async { ebb.db.scalar::<i64>("SELECT count(*) FROM t WHERE at < now()").await == 0 }).await;
    ebb.until("SELECT NOT EXISTS (SELECT FROM ebb.run WHERE status = 'running')").await;
    for node in others {
        tokio::time::timeout(SOON, node.stop()).await.expect("a node stops within its time");
    }
    let left: i64 = ebb.db.scalar("SELECT count(*) FROM t").await;
    assert_eq!((left, ebb.audited().await), (400, 4000));
    let runs: i64 = ebb.db.scalar("SELECT sum(rows)::int8 FROM ebb.run WHERE policy = 't'").await;
    assert_eq!(runs, 4000);
}
