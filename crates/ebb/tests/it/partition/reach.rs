//! How far things reach: a proof, and who is in its way; an integer column; a table that somebody else writes to; several who
//! adopt one table at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ebb::doctor::Severity;
use ebb::partition::adopt::{Progress, Request, adopt, preflight};
use ebb::partition::{finish, list, rollback};
use ebb::policy::{EpochUnit, Period};
use ebb_testkit::eventually;

use super::besides::doctor;
use super::{key, request};
use crate::harness::{Ebb, SOON, execute};

async fn with(sql: &str) -> Ebb {
    let ebb = Ebb::with(sql).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    ebb
}

/// What stands in the way, and what changes.
async fn found(ebb: &Ebb, request: &Request) -> (String, String) {
    let mut tx = ebb.engine.database().read().await.unwrap();
    let found = preflight(&mut tx, request).await.unwrap().findings;
    tx.rollback().await.unwrap();
    let said = |of: &[ebb::partition::adopt::Finding]| {
        of.iter().map(|one| format!("{} => {}\n", one.what, one.fix)).collect::<String>()
    };
    (said(&found.refusals), said(&found.changes))
}

/// A table larger than a quarter of shared_buffers, whose many columns make its scan take a while.
const WIDE: &str = "DO $$ BEGIN
        EXECUTE (SELECT 'CREATE TABLE public.t (' || string_agg('c' || n || ' int', ', ') || ', created_at timestamptz NOT NULL)' FROM generate_series(1, 400) n);
    END $$; INSERT INTO public.t (created_at) SELECT '2026-11-01' FROM generate_series(1, 390000)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_says_how_far_it_is_and_behind_whom_it_waits() {
    let ebb = with(WIDE).await;
    let mut shares = Vec::new();
    // The server could be through before it was asked a second time.
    for _ in 0..5 {
        let mut proving = false;
        let mut watch = |progress| match progress {
            Progress::Step(_, _, title) => proving = title == "prove the bound",
            Progress::Share(share, words) if proving && share > 0.0 => {
                assert!(words.starts_with("about, of "), "{words}");
                shares.push(share);
            }
            _ => {}
        };
        adopt(ebb.engine.database(), &request("public.t"), "test", &mut watch).await.unwrap();
        if !shares.is_empty() {
            break;
        }
        rollback(ebb.engine.database(), "public.t", "test", &mut |_| ()).await.unwrap();
        finish(ebb.engine.database(), "public.t", &mut |_| ()).await.unwrap();
    }
    assert!(!shares.is_empty(), "a scan of that size has a place that can be asked for");
    assert!(shares.iter().all(|share| (0.0..1.0).contains(share)), "{shares:?}");
    assert!(shares.is_sorted(), "it does not go back: {shares:?}");

    ebb.db
        .execute("CREATE TABLE public.s (created_at timestamptz NOT NULL); INSERT INTO public.s VALUES (now())")
        .await;
    let (mut client, seen) = (ebb.client().await, Arc::new(AtomicBool::new(false)));
    let (engine, told) = (ebb.another(ebb.db.open()), seen.clone());
    let (send, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let (go, mut held) = tokio::sync::mpsc::unbounded_channel::<()>();
    let handle = tokio::runtime::Handle::current();
    let task = tokio::spawn(async move {
        let mut watch = |progress| match progress {
            Progress::Step(_, _, title) if title == "prove the bound" => {
                send.send(()).unwrap();
                tokio::task::block_in_place(|| handle.block_on(held.recv()));
            }
            Progress::Share(_, words)
                if words.contains("waits behind pid") && words.contains("LOCK TABLE public.s") =>
            {
                told.store(true, Ordering::Relaxed)
            }
            _ => {}
        };
        adopt(engine.database(), &request("public.s"), "test", &mut watch).await
    });
    begins.recv().await.unwrap();
    execute(&mut client, "BEGIN; LOCK TABLE public.s IN ACCESS EXCLUSIVE MODE").await;
    go.send(()).unwrap();
    eventually(SOON, || async { seen.load(Ordering::Relaxed) || task.is_finished() }).await;
    execute(&mut client, "COMMIT").await;
    task.await.unwrap().unwrap();
    assert!(seen.load(Ordering::Relaxed), "it waited without saying for whom");
}

#[tokio::test]
async fn an_integer_column_gets_partitions_until_its_type_ends_and_doctor_says_so_long_before() {
    let ebb = with("CREATE TABLE public.t (at int NOT NULL); INSERT INTO public.t VALUES (1793491200)").await;
    let years = Request { column: "at".into(), by: Period::Year, ahead: 12, ..request("public.t") };
    let (refusals, changes) = found(&ebb, &years).await;
    assert_eq!(refusals, "");
    assert!(
        changes.contains("column at is an integer, which ends on 2038-01-19: partitions are made until then"),
        "{changes}"
    );
    adopt(ebb.engine.database(), &years, "test", &mut |_| ()).await.unwrap();
    let reach = "SELECT max(upper_bound)::text FROM ebb.partition_bounds('public.t'::regclass, 's')";
    assert_eq!(ebb.db.scalar::<String>(reach).await, "2038-01-19 03:14:07");
    ebb.db.execute("INSERT INTO public.t VALUES (2147483646)").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let listed = list(&mut tx, Some("t")).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!((listed[0].missing, listed[0].type_ends_in().is_some()), (0, true));
    assert_eq!(doctor(&ebb, "type").await[0].0, Severity::Warn);
    // Upkeep comes to the same end month by month, makes what can be made, and goes on without failing.
    ebb.db.execute("CREATE TABLE public.p (at int NOT NULL) PARTITION BY RANGE (at)").await;
    ebb.apply("[[partition]]\nname = \"p\"\ntable = \"public.p\"\ncolumn = \"at\"\nby = \"month\"\nahead = 3").await;
    let about_p =
        async || doctor(&ebb, "type").await.into_iter().filter(|one| one.1.contains("public.p ")).collect::<Vec<_>>();
    assert!(about_p().await.is_empty(), "it is years away");
    for (now, made) in [("2037-11-10 12:00:00+00", 3), ("2037-12-10 12:00:00+00", 0), ("2038-01-10 12:00:00+00", 0)] {
        ebb.set_clock(now).await;
        assert_eq!(ebb.db.scalar::<i32>("SELECT ebb.ensure_partitions('p')").await, made, "{now}");
    }
    assert_eq!(about_p().await[0].0, Severity::Fail);
    let late = Request { column: "at".into(), by: Period::Year, policy: Some("late".into()), ..request("public.late") };
    ebb.db.execute("CREATE TABLE public.late (at int NOT NULL)").await;
    assert!(found(&ebb, &late).await.0.contains("the first partition would end after that"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_who_adopt_a_table_at_once_do_not_get_into_each_others_way() {
    let ebb = with("CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL); INSERT INTO public.t VALUES (1, now())").await;
    let units = Request { unit: Some(EpochUnit::Millis), ..request("public.t") };
    assert!(
        found(&ebb, &units)
            .await
            .0
            .contains("--unit is for integers, and column created_at is timestamp with time zone")
    );
    // Both have looked when the first writes its plan down.
    let mut client = ebb.client().await;
    execute(&mut client, "BEGIN; LOCK TABLE ebb.adoption IN SHARE ROW EXCLUSIVE MODE").await;
    let adopting = || {
        let engine = ebb.another(ebb.db.open());
        tokio::spawn(async move { adopt(engine.database(), &request("public.t"), "test", &mut |_| ()).await })
    };
    let both = [adopting(), adopting()];
    ebb.until("SELECT count(*) = 2 FROM pg_locks WHERE relation = 'ebb.adoption'::regclass AND NOT granted").await;
    execute(&mut client, "COMMIT").await;
    let mut adopted = 0;
    for one in both {
        match one.await.unwrap() {
            Ok(_) => adopted += 1,
            Err(error) => assert!(error.to_string().contains("another session is at work"), "{error}"),
        }
    }
    assert!(adopted > 0);
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.t").await, 1);
}

#[tokio::test]
async fn who_waited_for_the_row_of_an_adoption_sees_who_has_taken_it() {
    let ebb = with("CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL)").await;
    adopt(ebb.engine.database(), &request("public.t"), "test", &mut |_| ()).await.unwrap();
    let mut somebody = ebb.client().await;
    execute(
        &mut somebody,
        "BEGIN; UPDATE ebb.adoption SET holder_pid = pg_backend_pid(), holder_start = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())",
    )
    .await;
    let (engine, waits) = (ebb.another(ebb.db.open()), Arc::new(AtomicBool::new(false)));
    let seen = waits.clone();
    let other = tokio::spawn(async move {
        let mut watch = |progress| {
            if matches!(&progress, Progress::Waiting(who) if who.contains("another session is at work")) {
                seen.store(true, Ordering::Relaxed);
            }
        };
        rollback(engine.database(), "public.t", "test", &mut watch).await
    });
    ebb.until("SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ 'ebb/adopt' AND wait_event_type = 'Lock'").await;
    execute(&mut somebody, "COMMIT").await;
    eventually(SOON, || async { waits.load(Ordering::Relaxed) || other.is_finished() }).await;
    assert!(waits.load(Ordering::Relaxed), "two are at work on it");
    drop(somebody);
    other.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_in_the_way_on_a_table_that_is_referred_to_is_named() {
    let ebb = with(
        "CREATE TABLE public.site (id int PRIMARY KEY, v int); INSERT INTO public.site VALUES (1);
         CREATE TABLE public.t (id int, site int REFERENCES public.site, created_at timestamptz NOT NULL, PRIMARY KEY (id, created_at))",
    )
    .await;
    let (mut client, seen) = (ebb.client().await, Arc::new(AtomicBool::new(false)));
    execute(&mut client, "BEGIN; UPDATE public.site SET v = 1").await;
    let (engine, told) = (ebb.another(ebb.db.open()), seen.clone());
    let task = tokio::spawn(async move {
        let mut watch = |progress| {
            if let Progress::Waiting(who) = progress
                && who.starts_with("pid ")
                && who.contains("UPDATE public.site SET v = 1")
            {
                told.store(true, Ordering::Relaxed);
            }
        };
        adopt(engine.database(), &request("public.t"), "test", &mut watch).await
    });
    eventually(SOON, || async { seen.load(Ordering::Relaxed) || task.is_finished() }).await;
    execute(&mut client, "ROLLBACK").await;
    task.await.unwrap().unwrap();
    assert!(seen.load(Ordering::Relaxed));
}

#[tokio::test]
async fn the_first_batch_of_a_backfill_is_small_and_the_next_as_large_as_time_allows() {
    let ebb = with(
        "CREATE TABLE public.t (k int PRIMARY KEY, v text, created_at timestamptz NOT NULL);
         INSERT INTO public.t SELECT n, repeat('x', 100), '2026-11-01' FROM generate_series(1, 20000) n",
    )
    .await;
    let mut batches = Vec::new();
    let mut watch = |progress| {
        if let Progress::Share(share, words) = progress
            && words.ends_with("pages")
        {
            batches.push(share);
        }
    };
    let wanted = Request { guard: key(&["k"]), ..request("public.t") };
    adopt(ebb.engine.database(), &wanted, "test", &mut watch).await.unwrap();
    assert!(batches[0] < 0.2, "whoever writes to its rows waits for all of it: {batches:?}");
    assert_eq!(batches.last(), Some(&1.0));
}

#[tokio::test]
async fn a_table_that_a_subscription_writes_to_is_not_adopted_under_it() {
    let ebb = with("CREATE TABLE public.t (created_at timestamptz NOT NULL)").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    // As one that was made with a publisher would be, without one; all of it is undone.
    let name = format!("sub_{}", uuid::Uuid::new_v4().simple());
    let make = format!(
        "CREATE SUBSCRIPTION {name} CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false);
         SET LOCAL allow_system_table_mods = on;
         INSERT INTO pg_subscription_rel SELECT oid, 'public.t'::regclass, 'r' FROM pg_subscription WHERE subname = '{name}';
         UPDATE pg_subscription SET subenabled = true WHERE subname = '{name}'"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(make)).execute(&mut *tx).await.unwrap();
    let found = preflight(&mut tx, &request("public.t")).await.unwrap();
    let refusal = &found.findings.refusals[0];
    assert!(refusal.what.contains(&format!("subscription {name} writes to this table")), "{refusal:?}");
    assert!(refusal.fix.contains("DISABLE") && refusal.fix.contains("copy_data = false"), "{refusal:?}");
    assert!(found.plan.is_none());
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn an_index_stays_in_its_tablespace_there_and_back() {
    let ebb = with("CREATE TABLE public.t (id int, k int, created_at timestamptz NOT NULL)").await;
    if ebb.db.scalar::<String>("SHOW server_version_num").await.as_str() < "150000" {
        println!("skipped: a tablespace without a place of its own came with 15");
        return;
    }
    let space = format!("space_{}", uuid::Uuid::new_v4().simple());
    let mut client = ebb.client().await;
    execute(&mut client, "SET allow_in_place_tablespaces = on").await;
    execute(&mut client, &format!("CREATE TABLESPACE {space} LOCATION ''")).await;
    execute(
        &mut client,
        &format!(
            "ALTER TABLE public.t ADD CONSTRAINT pk PRIMARY KEY (id) USING INDEX TABLESPACE {space};
             CREATE UNIQUE INDEX u ON public.t (k) TABLESPACE {space} WHERE k > 0; CREATE INDEX i ON public.t (k) TABLESPACE {space}"
        ),
    )
    .await;
    let spaces = format!(
        "SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_class c JOIN pg_tablespace s ON s.oid = c.reltablespace WHERE s.spcname = '{space}'"
    );
    adopt(ebb.engine.database(), &request("public.t"), "test", &mut |_| ()).await.unwrap();
    let there: String = ebb.db.scalar(&spaces).await;
    assert_eq!(there.split(' ').count(), 9, "each of the three: the table's, history's and next year's: {there}");
    rollback(ebb.engine.database(), "public.t", "test", &mut |_| ()).await.unwrap();
    finish(ebb.engine.database(), "public.t", &mut |_| ()).await.unwrap();
    assert_eq!(ebb.db.scalar::<String>(&spaces).await, "i pk u");
    execute(&mut client, "DROP TABLE public.t").await;
    execute(&mut client, &format!("DROP TABLESPACE {space}")).await;
}
