//! What adopting does besides: a table that is partitioned already gets a policy, from pg_partman's settings where it has
//! some; callers are found where the server keeps statements; a bound that came near gives way to a later one; derived
//! columns prune; doctor says what was begun and how long partitions last.

use ebb::doctor::{Questions, Severity};
use ebb::partition::adopt::{Progress, Request, adopt, preflight, take_it_over, take_over};
use ebb::partition::{explain, split};
use ebb::policy::Period;
use ebb_testkit::Mode;

use super::request;
use crate::harness::Ebb;

#[tokio::test]
async fn a_partitioned_table_gets_a_policy_with_the_settings_of_pg_partman() {
    let ebb = Ebb::with(
        "CREATE TABLE public.p (created_at timestamptz NOT NULL) PARTITION BY RANGE (created_at); CREATE TABLE public.t (created_at timestamptz)",
    )
    .await;
    let look = async |table: &str, ahead| {
        let mut tx = ebb.engine.database().read().await.unwrap();
        take_over(&mut tx, &request(table), ahead).await
    };
    assert!(look("public.t", None).await.unwrap().is_none(), "an ordinary table is adopted");
    let plain = look("public.p", None).await.unwrap().unwrap();
    assert_eq!((plain.spec["ahead"].as_u64(), plain.spec.get("keep"), plain.ends), (Some(2), None, None));
    if ebb.db.scalar::<i64>("SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_partman'").await == 0 {
        println!("skipped: this server has no pg_partman; scripts/install-test-tools installs it for Debian's");
        return;
    }
    ebb.db
        .execute(
            "CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman;
             SELECT partman.create_parent('public.p', 'created_at', p_type := 'native', p_interval := '1 month', p_premake := 3);
             UPDATE partman.part_config SET retention = '6 months'",
        )
        .await;
    let error = look("public.p", None).await.unwrap_err();
    assert!(error.to_string().contains("has the DEFAULT partition public.p_default"), "{error}");
    ebb.db.execute("ALTER TABLE public.p DETACH PARTITION public.p_default; DROP TABLE public.p_default").await;
    let taken = look("public.p", None).await.unwrap().unwrap();
    assert_eq!(taken.spec["ahead"], 3);
    assert_eq!((&taken.spec["keep"], &taken.spec["expired"]), (&"6mo".into(), &"detach".into()));
    assert_eq!(look("public.p", Some(9)).await.unwrap().unwrap().spec["ahead"], 9, "what is asked for wins");
    let mut tx = ebb.engine.database().read().await.unwrap();
    let daily = Request { by: Period::Day, ..request("public.p") };
    let error = take_over(&mut tx, &daily, None).await.unwrap_err();
    assert!(
        error.to_string().contains("which is not so many periods of a day"),
        "three months are not three days: {error}"
    );
    tx.rollback().await.unwrap();
    take_it_over(ebb.engine.database(), &taken, "test").await.unwrap();
    assert_eq!(ebb.db.scalar::<String>("SELECT automatic_maintenance FROM partman.part_config").await, "off");
    assert_eq!(ebb.db.scalar::<i32>("SELECT ebb.ensure_partitions('p')").await, 0, "what pg_partman made is enough");
    // Who was killed before ebb.toml had it asks again, and pg_partman says nothing any more.
    let again = look("public.p", None).await.unwrap().unwrap();
    assert_eq!((&again.spec, &again.ends), (&taken.spec, &None));
    assert!(look("public.p", Some(9)).await.unwrap_err().to_string().contains("looks after public.p already"));
    ebb.db.execute("UPDATE partman.part_config SET retention = '36 hours', automatic_maintenance = 'on'").await;
    let error = look("public.p", None).await.unwrap_err();
    assert!(error.hint().unwrap().contains("--keep"), "{error}");
}

#[tokio::test]
async fn statements_that_the_server_keeps_are_named_where_their_conflict_target_changes() {
    let server = ebb_testkit::own_server();
    server.set("shared_preload_libraries = 'pg_stat_statements'");
    server.restart(Mode::Fast);
    let ebb = Ebb::on(ebb_testkit::empty_database_on(&server).await).await;
    ebb.engine.migrate().await.unwrap();
    ebb.db
        .execute(
            "CREATE EXTENSION pg_stat_statements; CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL);
             INSERT INTO public.t VALUES (1, now()) ON CONFLICT (id) DO NOTHING; INSERT INTO public.t VALUES (2, now()) ON CONFLICT DO NOTHING;
             UPDATE public.t SET created_at = now() WHERE id = 7",
        )
        .await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let found = preflight(&mut tx, &request("public.t")).await.unwrap();
    let said: String = found.findings.changes.iter().map(|one| format!("{} => {}\n", one.what, one.fix)).collect();
    for target in ["(id) ", ""] {
        let named = format!(
            "the statement 'INSERT INTO public.t VALUES ($1, now()) ON CONFLICT {target}DO NOTHING' inserts with ON CONFLICT, and a key changes"
        );
        assert!(said.contains(&named), "{named} is not in\n{said}");
    }
    assert!(said.contains("SET created_at = now() WHERE id = $1' seems to update created_at"), "{said}");
    assert!(found.plan.is_some());
}

/// Adopts until a step with these words begins, and is gone then, as a process that is killed.
async fn killed_at(ebb: &Ebb, words: &'static str) {
    let engine = ebb.another(ebb.db.open());
    let task = tokio::spawn(async move {
        let mut watch = |progress| match progress {
            Progress::Step(_, _, title) if title.contains(words) => panic!("killed here, as the test wants it"),
            _ => {}
        };
        adopt(engine.database(), &request("public.t"), "test", &mut watch).await
    });
    assert!(task.await.is_err_and(|error| error.is_panic()), "no step is called {words}");
}

pub(super) async fn doctor(ebb: &Ebb, check: &str) -> Vec<(Severity, String)> {
    let host_time = jiff::Timestamp::now();
    let questions = Questions { wanted: Vec::new(), host_time, role: None, embedded: false };
    let report = ebb.engine.doctor(&questions).await.unwrap();
    report.findings.into_iter().filter(|one| one.check == check).map(|one| (one.severity, one.evidence)).collect()
}

#[tokio::test]
async fn a_bound_that_came_near_gives_way_to_a_later_one_and_doctor_warns_before() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL); INSERT INTO public.t VALUES (1, '2026-11-01')",
    )
    .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    killed_at(&ebb, "move the name").await;
    let found = doctor(&ebb, "unfinished").await;
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].0 == Severity::Warn && found[0].1.contains("rows from 2027-01-01 00:00:00 on are refused"),
        "{found:?}"
    );
    ebb.set_clock("2026-12-31 23:30:00+00").await;
    assert_eq!(doctor(&ebb, "unfinished").await[0].0, Severity::Fail);
    let adopted = adopt(ebb.engine.database(), &request("public.t"), "test", &mut |_| ()).await.unwrap();
    assert_eq!(adopted.bound, "2027-02-01 00:00:00");
    assert_eq!(ebb.list("id", "public.t").await, "1");
    assert!(doctor(&ebb, "unfinished").await.is_empty());
    let runway = doctor(&ebb, "runway").await;
    assert!(runway[0].0 == Severity::Ok, "{runway:?}");
    ebb.set_clock("2027-02-25 12:00:00+00").await;
    let runway = doctor(&ebb, "runway").await;
    assert!(
        runway[0].0 == Severity::Fail && runway[0].1.contains("last 3 more days; rows after that will be refused"),
        "{runway:?}"
    );
    ebb.db.execute("SELECT ebb.ensure_partitions('t')").await;
    assert_eq!(doctor(&ebb, "runway").await[0].0, Severity::Ok);
}

#[tokio::test]
async fn a_column_that_follows_from_the_partition_column_prunes_by_itself() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (id int, created_at timestamptz NOT NULL, v int,
             year_month text GENERATED ALWAYS AS (extract(year FROM created_at AT TIME ZONE 'UTC')::text || '-' || lpad(extract(month FROM created_at AT TIME ZONE 'UTC')::text, 2, '0')) STORED,
             day_of_month int GENERATED ALWAYS AS (extract(day FROM created_at AT TIME ZONE 'UTC')::int) STORED, twice int GENERATED ALWAYS AS (v * 2) STORED,
             round boolean GENERATED ALWAYS AS (date_trunc('second', created_at AT TIME ZONE 'UTC') = (created_at AT TIME ZONE 'UTC')) STORED,
             month date GENERATED ALWAYS AS (date_trunc('month', created_at AT TIME ZONE 'UTC')::date) STORED,
             PRIMARY KEY (id, created_at));
         INSERT INTO public.t SELECT n, timestamptz '2026-06-01' + n * interval '10 hours', n FROM generate_series(1, 400) n",
    )
    .await;
    ebb.set_clock("2026-11-10 12:00:00+00").await;
    adopt(ebb.engine.database(), &request("public.t"), "test", &mut |_| ()).await.unwrap();
    let wanted = split::Request { table: "public.t".into(), ..split::Request::default() };
    split::split(ebb.engine.database(), &wanted, &mut |_| ()).await.unwrap();
    let checks = "SELECT string_agg(conrelid::regclass || ' ' || pg_get_constraintdef(oid), ', ' ORDER BY conrelid::regclass::text) FROM pg_constraint WHERE conname ~ '^ebb_'";
    let checks: String = ebb.db.scalar(checks).await;
    assert!(checks.contains("t_2026_10 CHECK ((year_month = '2026-10'::text))"), "{checks}");
    assert!(checks.contains("t_2027_01 CHECK ((year_month = '2027-01'::text))"), "also those ahead: {checks}");
    assert!(checks.contains("t_2026_10 CHECK ((month = '2026-10-01'::date))"), "{checks}");
    assert!(!checks.contains("day_of_month") && !checks.contains("twice"), "{checks}");
    assert!(
        !checks.contains("round"),
        "whole seconds are all that was looked at, and not all that will come: {checks}"
    );
    let mut tx = ebb.engine.database().read().await.unwrap();
    let explained = explain(&mut tx, "public.t", None).await.unwrap();
    let derived = explained.iter().find(|one| one.name == "count by a derived column").unwrap();
    assert!(!derived.falls_short && derived.reads.contains(&"public.t_2026_11".to_owned()), "{derived:?}");
    assert_eq!(derived.reads.len(), 2, "its month, and the part without a beginning: {derived:?}");
    tx.rollback().await.unwrap();
    // Upkeep's own partitions have it too, and rows of every day get in.
    ebb.set_clock("2026-12-10 12:00:00+00").await;
    assert_eq!(ebb.db.scalar::<i32>("SELECT ebb.ensure_partitions('t')").await, 1);
    ebb.db.execute("INSERT INTO public.t (id, created_at) SELECT n, timestamptz '2027-02-28 23:59:59.999999+00' - n * interval '7 hours' FROM generate_series(0, 90) n").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM pg_constraint WHERE conrelid = 'public.t_2027_02'::regclass AND conname = 'ebb_derived_year_month'").await, 1);
    ebb.db.execute("INSERT INTO public.t (id, created_at) VALUES (1000, '2027-01-05 10:00:00.25+00')").await;
    // What a former version only guessed is named, and what is proven is not.
    assert!(doctor(&ebb, "derived check").await.is_empty());
    ebb.db.execute("ALTER TABLE public.t_2027_02 ADD CONSTRAINT ebb_derived_round CHECK (round) NOT VALID").await;
    let found = doctor(&ebb, "derived check").await;
    assert_eq!((found.len(), found[0].0), (1, Severity::Fail));
    assert!(found[0].1.contains("ebb_derived_round of public.t_2027_02"), "{found:?}");
}

/// From 18 on a generated column is computed when it is read, unless said otherwise.
#[tokio::test]
async fn a_derived_column_that_is_not_stored_prunes_too() {
    let ebb = Ebb::new().await;
    if ebb.db.scalar::<String>("SHOW server_version_num").await.as_str() < "180000" {
        println!("skipped: this server stores every generated column");
        return;
    }
    ebb.db
        .execute(
            "CREATE TABLE public.t (id int, created_at timestamptz NOT NULL,
                 month date GENERATED ALWAYS AS (date_trunc('month', created_at AT TIME ZONE 'UTC')::date), PRIMARY KEY (id, created_at))",
        )
        .await;
    ebb.set_clock("2026-11-10 12:00:00+00").await;
    adopt(ebb.engine.database(), &request("public.t"), "test", &mut |_| ()).await.unwrap();
    let check: String = ebb.db.scalar("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'public.t_2027_01'::regclass AND conname ~ '^ebb_'").await;
    assert_eq!(check, "CHECK ((month = '2027-01-01'::date))");
    ebb.db.execute("INSERT INTO public.t VALUES (1, '2027-01-31 23:59:59.9+00')").await;
}

/// Seconds of 2001-09-09 got a tenth digit that day: as text, 999999999 comes after 1000000001.
#[tokio::test]
async fn the_newest_row_is_the_newest_by_time_and_not_by_its_text() {
    let ebb = Ebb::with("CREATE TABLE public.p (id bigint, at bigint NOT NULL) PARTITION BY RANGE (at)").await;
    ebb.set_clock("2001-09-10 00:00:00+00").await;
    ebb.apply("[[partition]]\nname = \"p\"\ntable = \"public.p\"\ncolumn = \"at\"\nby = \"month\"\nahead = 2\nunit = \"s\"\nkeep = \"2mo\"").await;
    ebb.once("p").await;
    ebb.db.execute("INSERT INTO public.p VALUES (1, 999999999), (2, 1000000001), (3, 999999000)").await;
    ebb.set_clock("2001-12-02 00:00:00+00").await;
    let runs = ebb.once("p").await.runs;
    assert_eq!(runs[0].rows, 3, "{runs:?}");
    let record: (String, String) = sqlx::query_as(
        "SELECT extract(epoch FROM due_from)::int8::text, extract(epoch FROM due_to)::int8::text FROM ebb.audit WHERE action = 'drop_partition'",
    )
    .fetch_one(ebb.db.pool())
    .await
    .unwrap();
    assert_eq!(record, ("999999000".to_owned(), "1000000001".to_owned()));
}
