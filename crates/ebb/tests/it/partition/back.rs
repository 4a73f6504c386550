//! The way back as statements that somebody else runs, and with very many partitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb::partition::adopt::{Progress, Request, adopt, preflight, script, script_of_rest};
use ebb::partition::{RolledBack, finish, finish_script, rollback, rollback_script, rollback_within, split, standing};
use ebb::policy::Period;

use sqlx::AssertSqlSafe;

use crate::harness::{Ebb, execute};

pub(super) fn request(by: Period, ahead: u64) -> Request {
    Request { by, ahead, ..super::request("public.t") }
}

pub(super) const TABLE: &str = "CREATE TABLE public.site (id int PRIMARY KEY); INSERT INTO public.site VALUES (1);
    CREATE TABLE public.t (id bigint PRIMARY KEY, created_at timestamptz NOT NULL, site int REFERENCES public.site DEFAULT 1);
    CREATE INDEX ON public.t (created_at);
    INSERT INTO public.t SELECT n, timestamptz '2026-11-01' + n * interval '1 minute' FROM generate_series(1, 500) n";

async fn sums(ebb: &Ebb) -> String {
    ebb.db.scalar("SELECT count(*) || ' ' || COALESCE(sum(hashtext(t::text)::int8), 0) FROM public.t").await
}

/// What can be told about the table and whatever is beside it.
pub(super) async fn schema(ebb: &Ebb) -> String {
    ebb.db
        .scalar(
            "SELECT string_agg(line, ', ' ORDER BY line) FROM (
                 SELECT c.relname || ' ' || c.relkind::text AS line FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace
                 UNION ALL SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
                           WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
                 UNION ALL SELECT tgrelid::regclass || ' ' || tgname FROM pg_trigger WHERE NOT tgisinternal
                 UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace) x",
        )
        .await
}

/// As psql would run them.
pub(super) async fn run(ebb: &Ebb, lines: &[String]) {
    let mut client = ebb.client().await;
    for line in lines.iter().filter(|line| !line.starts_with("--")) {
        execute(&mut client, line).await;
    }
}

#[tokio::test]
async fn the_printed_statements_take_an_adoption_back_before_and_after_new_writes() {
    let ebb = Ebb::with(TABLE).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let (before, database) = (schema(&ebb).await, ebb.engine.database());
    let engine = ebb.another(ebb.db.open());
    let killed = tokio::spawn(async move {
        let mut watch = |progress| match progress {
            Progress::Step(_, _, title) if title.contains("move the name") => {
                panic!("killed here, as the test wants it")
            }
            _ => {}
        };
        adopt(engine.database(), &request(Period::Month, 2), "test", &mut watch).await
    });
    assert!(killed.await.is_err_and(|error| error.is_panic()));
    run(&ebb, &rollback_script(database, "public.t").await.unwrap()).await;
    assert_eq!(schema(&ebb).await, before, "before the cutover nothing is left");
    assert!(standing(database, "public.t").await.unwrap().is_none());

    adopt(database, &request(Period::Month, 2), "test", &mut |_| ()).await.unwrap();
    ebb.db.execute("INSERT INTO public.t SELECT n, '2027-01-05' FROM generate_series(1001, 1200) n").await;
    let rows = sums(&ebb).await;
    run(&ebb, &rollback_script(database, "public.t").await.unwrap()).await;
    assert_eq!(sums(&ebb).await, rows, "every row is there, once");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ONLY public.t").await, 700);
    assert_eq!(standing(database, "public.t").await.unwrap().unwrap().state, "rolled back");
    let over = rollback_script(database, "public.t").await.unwrap_err();
    assert!(over.to_string().contains("nothing to take back"), "{over}");
    run(&ebb, &finish_script(database, "public.t").await.unwrap()).await;
    assert_eq!(schema(&ebb).await, before, "after finish nothing is left either");
    assert!(standing(database, "public.t").await.unwrap().is_none());
}

#[tokio::test]
async fn what_is_left_of_an_adoption_is_printed_with_what_is_written_down_about_it() {
    let ebb = Ebb::with(TABLE).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let (before, rows, database) = (schema(&ebb).await, sums(&ebb).await, ebb.engine.database());
    let killed = async |words: &'static str| {
        let engine = ebb.another(ebb.db.open());
        let task = tokio::spawn(async move {
            let mut watch = |progress| match progress {
                Progress::Step(_, _, title) if title.contains(words) => panic!("killed here, as the test wants it"),
                _ => {}
            };
            adopt(engine.database(), &request(Period::Month, 2), "test", &mut watch).await
        });
        assert!(task.await.is_err_and(|error| error.is_panic()));
    };
    // Behind the swap of the keys one can come in that the old key would refuse: said before anything is built.
    killed("move the name").await;
    ebb.db.execute("INSERT INTO public.t VALUES (5, '2026-11-20')").await;
    let twice = rollback(database, "public.t", "test", &mut |_| ()).await.unwrap_err();
    assert!(twice.is_refused() && twice.to_string().contains("these are there twice: (5)"), "{twice}");
    ebb.db.execute("DELETE FROM public.t WHERE created_at = '2026-11-20'").await;
    rollback(database, "public.t", "test", &mut |_| ()).await.unwrap();
    killed("prepare the partitioned table").await;
    // An index that was built and not written down, or not built to its end, is in nobody's way.
    ebb.db.execute("UPDATE ebb.adoption SET step = step - 1").await;
    run(&ebb, &script_of_rest(database, "public.t").await.unwrap()).await;
    let adopted = adopt(database, &request(Period::Month, 2), "test", &mut |_| ()).await.unwrap();
    assert!(adopted.already, "Ebb knows it for done");
    rollback(database, "public.t", "test", &mut |_| ()).await.unwrap();
    finish(database, "public.t", &mut |_| ()).await.unwrap();
    assert_eq!((sums(&ebb).await, schema(&ebb).await), (rows.clone(), before));
    // Somebody's own statements, which write nothing down: the way back is not thrown away.
    killed("prepare the partitioned table").await;
    let lines = script_of_rest(database, "public.t").await.unwrap();
    let silent: Vec<String> = lines.into_iter().filter(|line| !line.contains("UPDATE ebb.adoption")).collect();
    run(&ebb, &silent).await;
    let refused = rollback(database, "public.t", "test", &mut |_| ()).await.unwrap_err();
    assert!(refused.is_refused() && refused.to_string().contains("is public.t_history by now"), "{refused}");
    ebb.db.execute("UPDATE ebb.adoption SET state = 'adopted', step = 0").await;
    rollback(database, "public.t", "test", &mut |_| ()).await.unwrap();
    assert_eq!(sums(&ebb).await, rows);
}

/// Rolls back until a step with these words begins, and is gone then, as a process that is killed.
pub(super) async fn killed_at(ebb: &Ebb, words: &'static str) {
    let engine = ebb.another(ebb.db.open());
    let task = tokio::spawn(async move {
        let mut watch = |progress| match progress {
            Progress::Step(_, _, title) if title.contains(words) => panic!("killed here, as the test wants it"),
            _ => {}
        };
        rollback(engine.database(), "public.t", "test", &mut watch).await
    });
    assert!(task.await.is_err_and(|error| error.is_panic()), "it never came to this");
    nobody_at_it(ebb).await;
}

/// Until the sessions of whoever was at it have ended.
pub(super) async fn nobody_at_it(ebb: &Ebb) {
    let gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ 'ebb/adopt'";
    ebb_testkit::eventually(crate::harness::SOON, || ebb.db.scalar::<bool>(gone)).await;
}

/// Begins a rollback, and comes back when that waits for somebody.
pub(super) async fn waits_for_somebody(ebb: &Ebb) -> tokio::task::JoinHandle<ebb::Result<RolledBack>> {
    let (engine, waits) = (ebb.another(ebb.db.open()), Arc::new(AtomicBool::new(false)));
    let seen = waits.clone();
    let task = tokio::spawn(async move {
        let mut watch = |progress| {
            if matches!(&progress, Progress::Waiting(who) if who.contains("pid")) {
                seen.store(true, Ordering::Relaxed);
            }
        };
        rollback(engine.database(), "public.t", "test", &mut watch).await
    });
    ebb_testkit::eventually(crate::harness::SOON, || async { waits.load(Ordering::Relaxed) || task.is_finished() })
        .await;
    assert!(!task.is_finished(), "it went past whoever is in the way");
    task
}

#[tokio::test]
async fn who_locks_rows_or_what_they_refer_to_is_waited_for_while_they_move() {
    let ebb = Ebb::with(TABLE).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    adopt(ebb.engine.database(), &request(Period::Month, 2), "test", &mut |_| ()).await.unwrap();
    ebb.set_clock("2026-12-15 12:00:00+00").await;
    ebb.db
        .execute(
            "SELECT ebb.ensure_partitions('t'); INSERT INTO public.t VALUES (1001, '2027-01-05'), (1002, '2027-02-05')",
        )
        .await;
    killed_at(&ebb, "move the rows").await;
    // Who deletes what they refer to finds them, whichever table is asked first: nothing moves while that is under way.
    let mut somebody = ebb.client().await;
    execute(&mut somebody, "BEGIN; SELECT FROM public.site WHERE id = 1 FOR UPDATE").await;
    let back = waits_for_somebody(&ebb).await;
    let orphans = sqlx::raw_sql("DELETE FROM public.site WHERE id = 1").execute(&mut somebody).await.unwrap_err();
    assert_eq!(orphans.as_database_error().unwrap().code().unwrap(), "23503");
    back.abort();
    let _ = back.await;
    nobody_at_it(&ebb).await;
    // Who locks a row waits for the batch that moves it, and not for the row.
    execute(&mut somebody, "ROLLBACK; BEGIN; LOCK TABLE ONLY public.t_2027_01 IN ROW SHARE MODE").await;
    let back = waits_for_somebody(&ebb).await;
    execute(&mut somebody, "COMMIT").await;
    assert!(matches!(back.await.unwrap().unwrap(), RolledBack::Back(_)));
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ONLY public.t").await, 502);
}

#[tokio::test]
async fn a_partition_that_gets_its_first_row_meanwhile_is_taken_along() {
    let ebb = Ebb::with(TABLE).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    adopt(ebb.engine.database(), &request(Period::Month, 2), "test", &mut |_| ()).await.unwrap();
    let mut somebody = ebb.client().await;
    execute(&mut somebody, "BEGIN; SELECT count(*) FROM public.t").await;
    let back = waits_for_somebody(&ebb).await;
    execute(&mut somebody, "INSERT INTO public.t VALUES (1001, '2027-01-05'); COMMIT").await;
    assert_eq!(back.await.unwrap().unwrap(), RolledBack::Back(1));
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.t").await, 501);
}

#[tokio::test]
async fn a_key_that_comes_twice_while_the_rollback_waits_stops_it_before_a_name_moves() {
    let ebb = Ebb::with(TABLE).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    adopt(ebb.engine.database(), &request(Period::Month, 2), "test", &mut |_| ()).await.unwrap();
    ebb.db.execute("INSERT INTO public.t VALUES (1001, '2027-01-05')").await;
    // Few of them are looked up under the lock; of many most are before it.
    for many in [0, 2000] {
        let mut somebody = ebb.client().await;
        execute(&mut somebody, "BEGIN; SELECT count(*) FROM public.t").await;
        let back = waits_for_somebody(&ebb).await;
        ebb.db
            .execute(&format!(
                "INSERT INTO public.t SELECT 5000 + n, '2027-01-07' FROM generate_series(1, {many}) n;
                 INSERT INTO public.t VALUES (77, '2027-01-06')"
            ))
            .await;
        execute(&mut somebody, "COMMIT").await;
        let error = back.await.unwrap().unwrap_err();
        assert!(error.is_refused() && error.to_string().contains("these are there twice: (77)"), "{error:?}");
        assert_eq!(ebb.db.scalar::<String>("SELECT state FROM ebb.adoption").await, "adopted");
        assert!(ebb.db.scalar::<bool>("SELECT relkind = 'p' FROM pg_class WHERE oid = 'public.t'::regclass").await);
        let left = "SELECT count(*) FROM pg_trigger WHERE tgname ~ '^a_ebb_twin'";
        assert_eq!(ebb.db.scalar::<i64>(left).await, 0, "nobody notes any more");
        ebb.db.execute("DELETE FROM public.t WHERE id = 77 AND created_at > '2027-01-01' OR id > 5000").await;
    }
    assert_eq!(rollback(ebb.engine.database(), "public.t", "test", &mut |_| ()).await.unwrap(), RolledBack::Back(1));
    let left = "SELECT count(*) FROM pg_class WHERE relname ~ '^ebb_.*_fresh'";
    assert_eq!(ebb.db.scalar::<i64>(left).await, 0);
}

#[tokio::test]
async fn a_rollback_says_which_partition_is_half_out_before_it_begins() {
    let ebb = Ebb::with(TABLE).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    adopt(ebb.engine.database(), &request(Period::Month, 2), "test", &mut |_| ()).await.unwrap();
    let (mut somebody, mut other) = (ebb.client().await, ebb.client().await);
    execute(&mut somebody, "BEGIN; SELECT count(*) FROM public.t").await;
    execute(&mut other, "SET statement_timeout = '300ms'").await;
    let lost = sqlx::raw_sql("ALTER TABLE public.t DETACH PARTITION public.t_2027_01 CONCURRENTLY");
    assert!(lost.execute(&mut other).await.is_err());
    execute(&mut somebody, "COMMIT").await;
    let error = rollback(ebb.engine.database(), "public.t", "test", &mut |_| ()).await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("public.t_2027_01 is on its way out"), "{error:?}");
    assert!(error.hint().unwrap().contains("ebb partition maintain public.t"), "{error:?}");
}

#[tokio::test]
async fn keys_are_looked_for_along_the_indexes_and_nothing_goes_to_the_disk() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (k text PRIMARY KEY, created_at timestamptz NOT NULL);
         INSERT INTO public.t SELECT md5(n::text), timestamptz '2026-09-01' + n * interval '4 minutes' FROM generate_series(1, 20000) n",
    )
    .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let database = ebb.engine.database();
    adopt(database, &request(Period::Month, 2), "test", &mut |_| ()).await.unwrap();
    ebb.db.execute("INSERT INTO public.t SELECT md5(n::text), '2027-01-05' FROM generate_series(30001, 32000) n").await;
    // Sessions that begin from here on have little memory; one says what it wrote when it ends, at the latest.
    let little = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 64', current_database()); END $$";
    let much = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET work_mem', current_database()); END $$";
    let spilled = "SELECT temp_files FROM pg_stat_database WHERE datname = current_database()";
    ebb.db.execute(little).await;
    killed_at(&ebb, "move the name back").await;
    assert_eq!(ebb.db.scalar::<i64>(spilled).await, 0, "the new rows, each looked up among the others");
    ebb.db.execute(much).await;
    let wanted = split::Request { table: "public.t".into(), ..Default::default() };
    let refused = split::split(database, &wanted, &mut |_| ()).await.unwrap_err();
    assert!(refused.to_string().contains("a rollback of public.t was begun"), "{refused}");
    assert!(adopt(database, &request(Period::Month, 2), "test", &mut |_| ()).await.unwrap().already);
    split::split(database, &wanted, &mut |_| ()).await.unwrap();
    nobody_at_it(&ebb).await;
    let before: i64 = ebb.db.scalar(spilled).await;
    ebb.db.execute(little).await;
    killed_at(&ebb, "move the rows").await;
    assert_eq!(ebb.db.scalar::<i64>(spilled).await, before, "every row, when all are in the parts");
}

#[tokio::test]
async fn very_many_partitions_are_not_taken_along_under_a_longer_lock_than_was_allowed() {
    let ebb = Ebb::with(TABLE).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let database = ebb.engine.database();
    adopt(database, &request(Period::Day, 32), "test", &mut |_| ()).await.unwrap();
    ebb.db.execute("INSERT INTO public.t SELECT 1000 + n, timestamptz '2026-11-17' + n * interval '1 day' FROM generate_series(0, 29) n").await;
    let (rows, adopted) = (sums(&ebb).await, schema(&ebb).await);
    let back =
        async |ms| rollback_within(database, "public.t", "test", Some(Duration::from_millis(ms)), &mut |_| ()).await;
    let refused = back(1).await.unwrap_err();
    assert!(refused.is_refused() && refused.to_string().contains("holds its lock for longer than 1 ms"), "{refused}");
    assert!(refused.hint().unwrap().contains("--max-lock"), "{refused:?}");
    assert_eq!(sums(&ebb).await, rows);
    let enabled: bool = ebb.db.scalar("SELECT enabled FROM ebb.policy WHERE name = 't'").await;
    assert!(enabled && schema(&ebb).await.contains("t_2026_12_01 r"), "it is looked after as before: {adopted}");
    let RolledBack::Back(moved) = back(600_000).await.unwrap() else { panic!("it was adopted") };
    assert!(moved > 24, "{moved} rows moved back");
    assert_eq!(sums(&ebb).await, rows);
}

async fn printed(ebb: &Ebb, wanted: &Request) -> Vec<String> {
    let mut tx = ebb.engine.database().read().await.unwrap();
    let lines = script(&preflight(&mut tx, wanted).await.unwrap()).unwrap();
    tx.rollback().await.unwrap();
    lines
}

#[tokio::test]
async fn a_printed_guard_knows_keys_as_its_trigger_does_and_stops_where_one_is_missing() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (id bytea PRIMARY KEY, created_at timestamptz NOT NULL);
         INSERT INTO public.t SELECT decode(lpad(to_hex(n), 8, '0'), 'hex'), '2026-11-01' FROM generate_series(1, 50) n;
         DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET bytea_output = escape', current_database()); END $$",
    )
    .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let lines = printed(&ebb, &Request { guard: super::key(&["id"]), ..request(Period::Month, 2) }).await;
    let lines: Vec<&String> = lines.iter().filter(|line| !line.starts_with("--")).collect();
    let seed = lines.iter().position(|line| line.contains("INSERT INTO ebb.once_key")).unwrap();
    let mut client = ebb.client().await;
    for line in &lines[..seed] {
        execute(&mut client, line).await;
    }
    let unclaimed = sqlx::raw_sql(AssertSqlSafe(lines[seed + 1].clone())).execute(&mut client).await;
    assert!(unclaimed.is_err_and(|error| error.to_string().contains("rows of public.t have no claim on their key")));
    for line in &lines[seed..] {
        execute(&mut client, line).await;
    }
    let twice = "INSERT INTO public.t VALUES (decode('00000001', 'hex'), '2027-01-05')";
    let twice = sqlx::raw_sql(twice).execute(ebb.db.pool()).await.unwrap_err();
    assert_eq!(twice.as_database_error().unwrap().code().unwrap(), "23505", "{twice}");
}

#[tokio::test]
async fn the_printed_statements_set_off_no_trigger_of_a_table_whose_key_moves() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL); INSERT INTO public.t SELECT n, '2026-11-01' FROM generate_series(1, 50) n;
         CREATE TABLE public.c (id int PRIMARY KEY, t_id int REFERENCES public.t, touched int DEFAULT 0); INSERT INTO public.c SELECT n, n FROM generate_series(1, 50) n;
         CREATE FUNCTION public.touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.touched := OLD.touched + 1; RETURN NEW; END';
         CREATE TRIGGER touch BEFORE UPDATE ON public.c FOR EACH ROW EXECUTE FUNCTION public.touch()",
    )
    .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let lines = printed(&ebb, &Request { move_foreign_keys: true, ..request(Period::Month, 2) }).await;
    run(&ebb, &lines).await;
    let filled = "SELECT count(t_id_created_at) || ' ' || sum(touched) FROM public.c";
    assert_eq!(ebb.db.scalar::<String>(filled).await, "50 0");
}

#[tokio::test]
async fn the_printed_statements_adopt_a_table_with_its_guard_and_the_way_back_is_there() {
    let ebb = Ebb::with(TABLE).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let (before, rows, database) = (schema(&ebb).await, sums(&ebb).await, ebb.engine.database());
    let wanted = Request { guard: super::key(&["id"]), ..request(Period::Month, 2) };
    let lines = printed(&ebb, &wanted).await;
    assert!(lines.iter().any(|line| line == "-- [[partition]]"), "{lines:#?}");
    run(&ebb, &lines).await;
    assert_eq!(
        ebb.db.scalar::<String>("SELECT relkind::text FROM pg_class WHERE oid = 'public.t'::regclass").await,
        "p"
    );
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.once_key").await, 500, "every key is claimed");
    assert_eq!(standing(database, "public.t").await.unwrap().unwrap().state, "adopted");
    ebb.db.execute("INSERT INTO public.t VALUES (1001, '2027-01-05'); DELETE FROM public.t WHERE id = 1001").await;
    rollback(database, "public.t", "test", &mut |_| ()).await.unwrap();
    finish(database, "public.t", &mut |_| ()).await.unwrap();
    assert_eq!((sums(&ebb).await, schema(&ebb).await), (rows, before));
    // A table that was dropped and made again is another one.
    adopt(database, &request(Period::Month, 2), "test", &mut |_| ()).await.unwrap();
    ebb.db.execute("DROP TABLE public.t; CREATE TABLE public.t (id bigint, created_at timestamptz)").await;
    let refused = rollback(database, "public.t", "test", &mut |_| ()).await.unwrap_err();
    assert!(refused.is_refused() && refused.to_string().contains("was dropped"), "{refused}");
}

#[tokio::test]
async fn statements_that_were_run_where_times_are_written_otherwise_are_gone_back_from() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL, x interval, f float8);
         CREATE INDEX ON public.t (id) WHERE created_at > '2026-02-03 04:05:06+00' AND f > 0.1;
         CREATE VIEW public.v AS SELECT id FROM public.t WHERE created_at > '2026-02-03 04:05:06+00' AND x > interval '1 day 2 hours'",
    )
    .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let (before, database) = (schema(&ebb).await, ebb.engine.database());
    let lines = printed(&ebb, &request(Period::Month, 2)).await;
    let mut client = ebb.client().await;
    execute(&mut client, "SET DateStyle = 'German, DMY'; SET IntervalStyle = 'iso_8601'; SET extra_float_digits = -4; SET quote_all_identifiers = on; SET TimeZone = 'Asia/Jakarta'").await;
    for line in lines.iter().filter(|line| !line.starts_with("--")) {
        execute(&mut client, line).await;
    }
    rollback(database, "public.t", "test", &mut |_| ()).await.unwrap();
    finish(database, "public.t", &mut |_| ()).await.unwrap();
    assert_eq!(schema(&ebb).await, before);
}
