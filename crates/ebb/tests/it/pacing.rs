//! How much, how fast, and when not: observe, brake, windows, budgets, and each veto, triggered and released.

use std::time::{Duration, Instant};

use ebb::control;
use ebb::pg::{Database, Target};
use ebb::spine::Status;
use ebb_testkit::{Proxy, Server, empty_database_on, own_server, server};
use sqlx::PgConnection;
use tokio::sync::OnceCell;

use crate::harness::{Ebb, execute, policy, succeeded};

const TABLE: &str = "CREATE TABLE t (id int, at timestamptz);
    INSERT INTO t SELECT n, now() - interval '1 hour' FROM generate_series(1, 100) n;";

/// A server where no other test writes WAL or holds snapshots.
async fn quiet() -> Ebb {
    static QUIET: OnceCell<Server> = OnceCell::const_new();
    let server = QUIET.get_or_init(|| async { own_server() }).await;
    let db = empty_database_on(server).await;
    let ebb = Ebb::on(db).await;
    ebb.engine.migrate().await.unwrap();
    ebb.db.execute(TABLE).await;
    ebb
}

async fn with_pacing(ebb: &Ebb, pacing: &str, more: &str) {
    ebb.apply(&format!("[pacing]\n{pacing}\n{}", policy(&format!("every = \"1s\"\n{more}")))).await;
}

/// A node rests, saying why, takes nothing, and goes on when the reason is gone.
async fn rests_until_released(ebb: &Ebb, words: &str, release: impl AsyncFnOnce()) {
    let node = ebb.start(&["t"]);
    ebb.until(&format!("SELECT throttle LIKE '%{words}%' FROM ebb.unit WHERE policy = 't'")).await;
    let left: i64 = ebb.db.scalar("SELECT count(*) FROM t WHERE at < now()").await;
    assert_eq!(left, 100, "{words}");
    release().await;
    ebb.until("SELECT NOT EXISTS (SELECT FROM t WHERE at < now())").await;
    ebb.until("SELECT throttle IS NULL FROM ebb.unit WHERE policy = 't'").await;
    node.stop().await;
}

async fn in_tx(ebb: &Ebb, act: impl AsyncFnOnce(&mut PgConnection)) {
    let mut tx = ebb.engine.database().read().await.unwrap();
    act(&mut tx).await;
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn observing_counts_and_deletes_nothing() {
    let ebb = Ebb::with(TABLE).await;
    let summary = ebb.sweep("mode = \"observe\"").await;
    assert_eq!((summary.status, summary.rows, summary.due), (Status::Observed, 0, Some(100)), "{summary:?}");
    let left: i64 = ebb.db.scalar("SELECT count(*) FROM t").await;
    assert_eq!((left, ebb.audited().await), (100, 0));
    let seen: (String, Option<i64>, Option<i64>) = sqlx::query_as(
        "SELECT r.status, r.due, u.pending FROM ebb.run r JOIN ebb.unit u USING (unit) WHERE r.policy = 't'",
    )
    .fetch_one(ebb.db.pool())
    .await
    .unwrap();
    assert_eq!(seen, ("observed".into(), Some(100), Some(100)));
}

#[tokio::test]
async fn a_brake_stops_a_run_before_its_first_batch() {
    let ebb = Ebb::with(TABLE).await;
    ebb.db.execute("INSERT INTO t SELECT n, now() + interval '1 hour' FROM generate_series(101, 150) n").await;
    for brake in ["brake = { rows = 99 }", "brake = { share = 0.5 }", "brake = { rows = 1000, share = 0.6 }"] {
        let summary = ebb.sweep(brake).await;
        assert_eq!((summary.status, summary.rows, summary.due), (Status::Braked, 0, Some(100)), "{brake}: {summary:?}");
        assert!(summary.note.unwrap().contains("ebb resume t --allow 100"));
    }
    let (left, audited): (i64, i64) = (ebb.db.scalar("SELECT count(*) FROM t").await, ebb.audited().await);
    assert_eq!((left, audited), (150, 0));
    for brake in ["brake = { rows = 100 }", "brake = { share = 0.7 }", ""] {
        ebb.db.execute("DELETE FROM t WHERE at < now(); INSERT INTO t SELECT n, now() - interval '1 hour' FROM generate_series(1, 100) n").await;
        succeeded(&ebb.sweep(&format!("{brake} # brake")).await, 100);
        let tripped: i64 = ebb.db.scalar("SELECT count(*) FROM ebb.brake").await;
        assert_eq!(tripped, 0, "within its limit again");
    }
}

#[tokio::test]
async fn the_default_brake_leaves_small_runs_alone_and_an_allowance_lets_one_run_pass() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamptz)").await;
    let due = "INSERT INTO t SELECT n, now() - interval '1 hour' FROM generate_series(1, ";
    ebb.db.execute(&format!("{due} 10000) n")).await;
    succeeded(&ebb.sweep("# default brake").await, 10_000);
    ebb.db.execute(&format!("{due} 10001) n")).await;
    let summary = ebb.again().await;
    assert_eq!((summary.status, summary.rows), (Status::Braked, 0), "{summary:?}");
    // Too small an allowance does not let it pass, and is gone afterwards.
    in_tx(&ebb, async |tx| assert!(control::resume(tx, "t", Some(10_000), "me").await.unwrap())).await;
    assert_eq!(ebb.again().await.status, Status::Braked);
    let allowed: Option<i64> = ebb.db.scalar("SELECT allow_rows FROM ebb.brake WHERE policy = 't'").await;
    assert_eq!(allowed, None);
    in_tx(&ebb, async |tx| assert!(control::resume(tx, "t", Some(10_001), "me").await.unwrap())).await;
    succeeded(&ebb.again().await, 10_001);
    // Used up: the next such run asks again.
    ebb.db.execute(&format!("{due} 10001) n")).await;
    assert_eq!(ebb.again().await.status, Status::Braked);
    let resumed: i64 = ebb.db.scalar("SELECT count(*) FROM ebb.audit WHERE action = 'resume' AND by_name = 'me'").await;
    assert_eq!(resumed, 2);
    in_tx(&ebb, async |tx| {
        assert!(control::resume(tx, "other", Some(1), "me").await.unwrap_err().is_usage());
        assert!(control::resume(tx, control::ALL, Some(1), "me").await.unwrap_err().is_usage());
    })
    .await;
}

#[tokio::test]
async fn what_an_estimate_says_may_be_allowed() {
    // Large enough to be sampled, so that the next look says another number.
    let ebb = Ebb::with(
        "CREATE UNLOGGED TABLE t (id int, at timestamptz, filler char(500) DEFAULT '') WITH (autovacuum_enabled = off);
         INSERT INTO t SELECT n, now() + CASE WHEN hashint4(n) % 5 = 0 THEN interval '1 hour' ELSE -interval '1 hour' END
         FROM generate_series(1, 80000) n",
    )
    .await;
    let due: i64 = ebb.db.scalar("SELECT count(*) FROM t WHERE at < now()").await;
    let summary = ebb.sweep("# default brake").await;
    assert_eq!(summary.status, Status::Braked, "{summary:?}");
    let about = summary.due.unwrap();
    assert_ne!(about, due as u64, "an estimate");
    in_tx(&ebb, async |tx| assert!(control::resume(tx, "t", Some(about.max(due as u64)), "me").await.unwrap())).await;
    succeeded(&ebb.again().await, due as u64);
}

#[tokio::test]
async fn a_brake_looks_before_every_run_of_a_node() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamptz); INSERT INTO t SELECT n, now() + interval '1 hour' FROM generate_series(1, 100) n").await;
    ebb.policy("every = \"1s\"\nbrake = { rows = 10 }").await;
    let node = ebb.start(&["t"]);
    ebb.until("SELECT last_success_at IS NOT NULL FROM ebb.unit WHERE policy = 't'").await;
    ebb.db.execute("UPDATE t SET at = now() - interval '1 hour'").await;
    ebb.until("SELECT EXISTS (SELECT FROM ebb.run WHERE policy = 't' AND status = 'braked')").await;
    let left: i64 = ebb.db.scalar("SELECT count(*) FROM t").await;
    assert_eq!(left, 100);
    // An operator's word reaches the node by itself.
    in_tx(&ebb, async |tx| assert!(control::resume(tx, "t", Some(100), "me").await.unwrap())).await;
    ebb.until("SELECT NOT EXISTS (SELECT FROM t)").await;
    node.stop().await;
}

#[tokio::test]
async fn outside_its_window_a_policy_rests() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamptz)").await;
    ebb.db.execute("INSERT INTO t SELECT n, '2020-01-01' FROM generate_series(1, 2000) n").await;
    ebb.set_clock("2024-06-15 12:00Z").await;
    ebb.policy("window = \"22:00-05:00\"\nzone = \"Asia/Jakarta\"\nbatch = { rows = 10, pause = \"20ms\" }").await;
    let finished = ebb.once("t").await;
    assert!(
        finished.runs.is_empty() && finished.resting[0].1.contains("outside its window until 2024-06-15T15:00:00Z"),
        "{finished:?}"
    );
    // It opens: 22:00 in Jakarta. It closes in the middle of a run: the rest waits for the next night.
    ebb.set_clock("2024-06-15 15:00:01Z").await;
    let node = ebb.start(&["t"]);
    ebb.until("SELECT count(*) < 2000 FROM t").await;
    ebb.set_clock("2024-06-15 22:00:01Z").await;
    ebb.until("SELECT status = 'stopped' AND error LIKE '%window is closed%' FROM ebb.run WHERE policy = 't' ORDER BY id DESC LIMIT 1").await;
    let waits: bool = ebb.db.scalar("SELECT next_at = '2024-06-16 15:00Z' FROM ebb.unit WHERE policy = 't'").await;
    let some_left: bool = ebb.db.scalar("SELECT EXISTS (SELECT FROM t)").await;
    assert!(waits && some_left);
    node.stop().await;
}

#[tokio::test]
async fn a_time_of_day_is_kept() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamptz); INSERT INTO t VALUES (1, '2020-01-01')").await;
    ebb.set_clock("2024-06-15 12:00Z").await;
    ebb.policy("at = \"02:00\"\nzone = \"Asia/Jakarta\"").await;
    let node = ebb.start(&["t"]);
    // 02:00 in Jakarta; it is not due when it is first seen.
    ebb.until("SELECT next_at = '2024-06-15 19:00Z' FROM ebb.unit WHERE policy = 't'").await;
    ebb.set_clock("2024-06-15 19:00:01Z").await;
    ebb.until("SELECT NOT EXISTS (SELECT FROM t)").await;
    ebb.until("SELECT next_at = '2024-06-16 19:00Z' FROM ebb.unit WHERE policy = 't'").await;
    // A run that began while the clock was being moved may have been followed by one that found nothing.
    let runs: i64 = ebb.db.scalar("SELECT count(*) FROM ebb.run WHERE policy = 't' AND rows > 0").await;
    assert_eq!(runs, 1);
    node.stop().await;
}

#[tokio::test]
async fn a_backlog_is_looked_at_sooner_and_a_shorter_interval_counts_at_once() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamptz); INSERT INTO t SELECT n, now() - interval '1 hour' FROM generate_series(1, 20000) n").await;
    ebb.policy("every = \"1h\"").await;
    let node = ebb.start(&["t"]);
    ebb.until("SELECT next_at BETWEEN now() + interval '29 minutes' AND now() + interval '31 minutes' FROM ebb.unit WHERE policy = 't'").await;
    ebb.db.execute("INSERT INTO t VALUES (1, now() - interval '1 hour')").await;
    ebb.policy("every = \"1s\"").await;
    ebb.until("SELECT NOT EXISTS (SELECT FROM t)").await;
    // A trigger is the same without a change.
    ebb.policy("every = \"1h\"").await;
    ebb.until("SELECT next_at > now() + interval '59 minutes' FROM ebb.unit WHERE policy = 't'").await;
    ebb.db.execute("INSERT INTO t VALUES (1, now() - interval '1 hour')").await;
    in_tx(&ebb, async |tx| assert_eq!(control::trigger(tx, "t", Some("expire"), "me").await.unwrap(), 1)).await;
    ebb.until("SELECT NOT EXISTS (SELECT FROM t)").await;
    node.stop().await;
}

#[tokio::test]
async fn an_operators_pause_holds_until_resumed() {
    let ebb = Ebb::with(TABLE).await;
    ebb.policy("every = \"1s\"").await;
    for name in ["t", control::ALL] {
        in_tx(&ebb, async |tx| control::pause(tx, name, Some("release"), "me").await.unwrap()).await;
        let finished = ebb.once("t").await;
        assert!(finished.runs.is_empty() && finished.resting[0].1.contains("paused"), "{finished:?}");
        in_tx(&ebb, async |tx| assert!(control::resume(tx, name, None, "me").await.unwrap())).await;
    }
    // In the middle of a run.
    ebb.policy("every = \"1s\"\nbatch = { rows = 1, pause = \"10ms\" }").await;
    let node = ebb.start(&["t"]);
    ebb.until("SELECT count(*) < 100 FROM t").await;
    in_tx(&ebb, async |tx| control::pause(tx, "t", None, "me").await.unwrap()).await;
    ebb.until("SELECT throttle LIKE 'paused%' FROM ebb.unit WHERE policy = 't'").await;
    let left: i64 = ebb.db.scalar("SELECT count(*) FROM t").await;
    assert!(left > 0);
    in_tx(&ebb, async |tx| assert!(control::resume(tx, "t", None, "me").await.unwrap())).await;
    ebb.until("SELECT NOT EXISTS (SELECT FROM t)").await;
    node.stop().await;
}

#[tokio::test]
async fn rows_per_second_are_a_budget() {
    let ebb = Ebb::with(TABLE).await;
    ebb.apply(&format!("[pacing]\nrows_per_second = 50\n{}", policy("batch = { rows = 10, pause = \"0s\" }"))).await;
    let began = Instant::now();
    succeeded(&ebb.again().await, 100);
    // One second's worth at once, the last batch on credit, the rest at the rate.
    assert!(began.elapsed() > Duration::from_millis(700), "{:?}", began.elapsed());
}

#[tokio::test]
async fn no_batch_is_larger_than_what_the_budget_gives_at_once() {
    for batch in ["batch = { rows = 1000, pause = \"0s\" }", "# by pages"] {
        let ebb = Ebb::with(&format!("{TABLE} ANALYZE t;")).await;
        ebb.apply(&format!("[pacing]\nrows_per_second = 40\n{}", policy(batch))).await;
        let summary = ebb.again().await;
        succeeded(&summary, 100);
        let largest: i64 = ebb.db.scalar("SELECT max(rows) FROM ebb.audit WHERE action = 'expire'").await;
        // A page is the least that is looked at by pages; this table has one.
        assert!(largest <= 40 || (batch == "# by pages" && summary.batches == 1), "{largest}");
    }
}

#[tokio::test]
async fn wal_per_second_is_a_budget_and_shows() {
    let ebb = quiet().await;
    with_pacing(&ebb, "wal_per_second = \"4kB\"", "batch = { rows = 20, pause = \"0s\" }").await;
    let node = ebb.start(&["t"]);
    ebb.until("SELECT throttle LIKE '%wal_per_second%' FROM ebb.unit WHERE policy = 't'").await;
    with_pacing(&ebb, "wal_per_second = \"off\"", "batch = { rows = 20, pause = \"0s\" }").await;
    ebb.until("SELECT NOT EXISTS (SELECT FROM t)").await;
    node.stop().await;
}

#[tokio::test]
async fn connections_are_a_budget() {
    // A batch that meets another one at work fails.
    let ebb = Ebb::with(
        "CREATE FUNCTION alone() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN IF NOT pg_try_advisory_xact_lock(7) THEN RAISE 'not alone'; END IF; PERFORM pg_sleep(0.002); RETURN OLD; END $$;
         CREATE TABLE t (id int, at timestamptz) PARTITION BY HASH (id);
         DO $$ BEGIN FOR n IN 0..3 LOOP EXECUTE format('CREATE TABLE t_%s PARTITION OF t FOR VALUES WITH (MODULUS 4, REMAINDER %s)', n, n); END LOOP; END $$;
         CREATE TRIGGER alone BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION alone();
         INSERT INTO t SELECT n, now() - interval '1 hour' FROM generate_series(1, 100) n",
    )
    .await;
    ebb.apply(&format!("[pacing]\nconnections = 1\n{}", policy("batch = { rows = 5, pause = \"0s\" }"))).await;
    let finished = ebb.once("t").await;
    assert!(finished.runs.iter().all(|run| run.status == Status::Success), "{finished:?}");
    assert_eq!(finished.runs.iter().map(|run| run.rows).sum::<u64>(), 100);
}

#[tokio::test]
async fn it_rests_while_others_wait_for_the_table() {
    let ebb = Ebb::with(TABLE).await;
    with_pacing(&ebb, "", "").await;
    let (mut holder, mut one, mut two) = (ebb.client().await, ebb.client().await, ebb.client().await);
    let lock = "BEGIN; LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE";
    execute(&mut holder, lock).await;
    let waiters = tokio::spawn(async move {
        tokio::join!(
            async {
                execute(&mut one, lock).await;
                execute(&mut one, "COMMIT").await;
            },
            async {
                execute(&mut two, lock).await;
                execute(&mut two, "COMMIT").await;
            }
        );
    });
    ebb.until("SELECT count(*) = 2 FROM pg_locks WHERE NOT granted AND relation = 't'::regclass").await;
    rests_until_released(&ebb, "sessions wait for the table", async || execute(&mut holder, "COMMIT").await).await;
    waiters.await.unwrap();
}

/// An application between two statements is at work: by chance all of its sessions may be there when Ebb looks.
#[tokio::test]
async fn who_did_something_a_moment_ago_is_at_work() {
    let server = own_server();
    let ebb = Ebb::on(empty_database_on(&server).await).await;
    let (mut application, mut node) = (ebb.client().await, ebb.client().await);
    execute(&mut node, "SET application_name = 'ebb/test'").await;
    let mut others = async |beside: &mut PgConnection, at_work: bool| -> i64 {
        if at_work {
            execute(beside, "SELECT").await;
        }
        let signals =
            concat!("WITH looked AS (", include_str!("../../src/spine/sql/signals.sql"), ") SELECT others FROM looked");
        sqlx::query_scalar(signals).bind(0_i64).fetch_one(&mut node).await.unwrap()
    };
    let until = Instant::now() + Duration::from_secs(60);
    while others(&mut application, true).await == 0 {
        assert!(Instant::now() < until, "a session that has just answered counts");
    }
    while others(&mut application, false).await > 0 {
        assert!(Instant::now() < until, "one that does nothing does not");
    }
}

#[tokio::test]
async fn it_rests_while_an_old_snapshot_is_held() {
    let ebb = quiet().await;
    with_pacing(&ebb, "max_xmin_age = 50", "").await;
    let mut holder = ebb.client().await;
    execute(&mut holder, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM t").await;
    let mut other = ebb.client().await;
    for _ in 0..60 {
        execute(&mut other, "SELECT pg_current_xact_id()").await;
    }
    rests_until_released(&ebb, "a snapshot is", async || execute(&mut holder, "COMMIT").await).await;
}

#[tokio::test]
async fn it_rests_while_the_table_is_mostly_dead() {
    let ebb = quiet().await;
    let mut client = ebb.client().await;
    execute(
        &mut client,
        "ALTER TABLE t SET (autovacuum_enabled = off);
         INSERT INTO t SELECT n, now() + interval '1 day' FROM generate_series(1, 600) n",
    )
    .await;
    execute(&mut client, "DELETE FROM t WHERE at > now() AND id > 50").await;
    // Where the server can be told to count at once, it is; an older one counts what ends half a second after the last count.
    execute(
        &mut client,
        "DO $$ BEGIN IF to_regproc('pg_stat_force_next_flush') IS NOT NULL THEN PERFORM pg_stat_force_next_flush();
                     ELSE PERFORM pg_sleep(0.6); END IF; END $$",
    )
    .await;
    ebb.until("SELECT pg_stat_get_dead_tuples('t'::regclass) = 550 AND pg_stat_get_live_tuples('t'::regclass) <= 150")
        .await;
    with_pacing(&ebb, "max_dead_share = 0.6", "").await;
    rests_until_released(&ebb, "of the table is dead", async || execute(&mut client, "VACUUM t").await).await;
}

#[tokio::test]
async fn it_rests_while_a_vacuum_is_at_work() {
    let ebb = quiet().await;
    with_pacing(&ebb, "yield_to_autovacuum = true", "").await;
    ebb.db.execute("INSERT INTO t SELECT n, now() + interval '1 day' FROM generate_series(1, 20000) n").await;
    let mut client = ebb.client().await;
    let vacuum = tokio::spawn(async move {
        execute(&mut client, "SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1; SET vacuum_cost_page_hit = 100")
            .await;
        let ended = sqlx::raw_sql("VACUUM t").execute(&mut client).await;
        assert!(ended.unwrap_err().to_string().contains("canceling"));
    });
    ebb.until("SELECT EXISTS (SELECT FROM pg_stat_progress_vacuum WHERE relid = 't'::regclass)").await;
    rests_until_released(&ebb, "a vacuum is at work", async || {
        ebb.db.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_progress_vacuum WHERE relid = 't'::regclass").await;
    })
    .await;
    vacuum.await.unwrap();
}

#[tokio::test]
async fn it_rests_while_a_slot_keeps_wal() {
    let ebb = quiet().await;
    with_pacing(&ebb, "max_slot_wal = \"1MB\"", "").await;
    ebb.db.execute("SELECT pg_create_physical_replication_slot('kept', true)").await;
    ebb.db.execute("SELECT pg_logical_emit_message(false, 'ebb', repeat('x', 3000000))").await;
    rests_until_released(&ebb, "a replication slot keeps", async || {
        ebb.db.execute("SELECT pg_drop_replication_slot('kept')").await;
    })
    .await;
}

#[tokio::test]
async fn it_rests_while_the_server_answers_slowly() {
    let ebb = Ebb::with(TABLE).await;
    with_pacing(&ebb, "max_probe_latency = \"40ms\"", "").await;
    let proxy = Proxy::start(server().address()).await;
    let slow = ebb.another(Database::open(Target::parse(&proxy.url(ebb.db.url()), None).unwrap(), 10, "ebb/test"));
    proxy.delay(Duration::from_millis(30));
    let node = crate::harness::Running::new(&slow, &["t"]);
    ebb.until("SELECT throttle LIKE 'a trivial read took%' FROM ebb.unit WHERE policy = 't'").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM t").await, 100);
    proxy.delay(Duration::ZERO);
    ebb.until("SELECT NOT EXISTS (SELECT FROM t)").await;
    node.stop().await;
}

#[tokio::test]
async fn a_vacuum_that_stepped_aside_is_not_done() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, at timestamptz) WITH (autovacuum_enabled = off);
         INSERT INTO t SELECT n, now() - interval '1 day' FROM generate_series(1, 2000) n; ANALYZE t",
    )
    .await;
    let mut holder = ebb.client().await;
    execute(&mut holder, "BEGIN; LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE").await;
    succeeded(&ebb.sweep("").await, 2000);
    let vacuum: String = ebb.db.scalar("SELECT vacuum FROM ebb.unit WHERE policy = 't'").await;
    assert!(vacuum.starts_with("skipped: somebody held the table"), "{vacuum}");
    execute(&mut holder, "COMMIT").await;
}

#[tokio::test]
async fn a_large_purge_is_followed_by_a_vacuum() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, at timestamptz) WITH (autovacuum_enabled = off);
         INSERT INTO t SELECT n, now() + CASE WHEN n > 2000 THEN interval '1 day' ELSE -interval '1 day' END FROM generate_series(1, 10000) n;
         ANALYZE t",
    )
    .await;
    succeeded(&ebb.sweep("").await, 2000);
    let vacuum: Option<String> = ebb.db.scalar("SELECT vacuum FROM ebb.unit WHERE policy = 't'").await;
    assert_eq!(vacuum.as_deref(), Some("done"));
    ebb.until("SELECT last_vacuum IS NOT NULL FROM pg_stat_user_tables WHERE relname = 't'").await;
    // Less than a tenth is left to autovacuum.
    ebb.db
        .execute("UPDATE ebb.unit SET vacuum = NULL; UPDATE t SET at = now() - interval '1 day' WHERE id > 9500")
        .await;
    succeeded(&ebb.again().await, 500);
    let vacuum: Option<String> = ebb.db.scalar("SELECT vacuum FROM ebb.unit WHERE policy = 't'").await;
    assert_eq!(vacuum, None);
}
