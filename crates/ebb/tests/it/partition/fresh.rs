//! Keys that come while a rollback is under way, and what is left of one that was given up.

use ebb::doctor::Severity;
use ebb::partition::adopt::adopt;
use ebb::partition::{RolledBack, finish, finish_script, rollback, rollback_script};
use ebb::policy::Period;
use sqlx::AssertSqlSafe;

use super::back::{TABLE, killed_at, request, run, schema, waits_for_somebody};
use super::besides::doctor;
use crate::harness::{Ebb, execute, fetch};

async fn adopted(sql: &str, ahead: u64, by: Period) -> (Ebb, String) {
    let ebb = Ebb::with(sql).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let before = schema(&ebb).await;
    adopt(ebb.engine.database(), &request(by, ahead), "test", &mut |_| ()).await.unwrap();
    (ebb, before)
}

async fn says(ebb: &Ebb, sql: &str) -> String {
    match sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(ebb.db.pool()).await {
        Ok(_) => String::new(),
        Err(error) => error.as_database_error().unwrap().code().unwrap().into_owned(),
    }
}

#[tokio::test]
async fn a_rollback_that_is_killed_while_keys_are_noted_is_named_and_leaves_nothing_behind() {
    let (ebb, before) = adopted(TABLE, 2, Period::Month).await;
    let (database, there) = (ebb.engine.database(), schema(&ebb).await);
    ebb.db.execute("INSERT INTO public.t VALUES (1001, '2027-01-05')").await;
    let kill = async |id: i32| {
        killed_at(&ebb, "move the name back").await;
        let noted: String = ebb.db.scalar("SELECT relname::text FROM pg_class WHERE relname ~ '^ebb_.*_fresh0$'").await;
        ebb.db.execute(&format!("INSERT INTO public.t VALUES ({id}, '2027-01-06')")).await;
        let noted: i64 = ebb.db.scalar(&format!("SELECT count(*) FROM public.{noted} WHERE ebb_k0 = {id}")).await;
        assert_eq!(noted, 1, "every writer notes its key");
        let found = doctor(&ebb, "unfinished").await;
        assert!(found[0].0 == Severity::Warn && found[0].1.contains("a rollback of public.t was begun"), "{found:?}");
    };
    kill(1002).await;
    assert!(adopt(database, &request(Period::Month, 2), "test", &mut |_| ()).await.unwrap().already);
    assert_eq!(schema(&ebb).await, there, "it is adopted as before");
    assert!(doctor(&ebb, "unfinished").await.is_empty());

    kill(1003).await;
    run(&ebb, &finish_script(database, "public.t").await.unwrap()).await;
    assert_eq!(schema(&ebb).await, there, "and for ever, by a script");

    let (ebb, _) = (adopted(TABLE, 2, Period::Month).await.0, ());
    ebb.db.execute("INSERT INTO public.t VALUES (1001, '2027-01-05')").await;
    killed_at(&ebb, "move the name back").await;
    finish(ebb.engine.database(), "public.t", &mut |_| ()).await.unwrap();
    assert_eq!(schema(&ebb).await, there, "and by finish");

    let (ebb, _) = adopted(TABLE, 2, Period::Month).await;
    let database = ebb.engine.database();
    ebb.db.execute("INSERT INTO public.t VALUES (1001, '2027-01-05')").await;
    killed_at(&ebb, "move the name back").await;
    // Killed again behind the swap: what noted refuses by now.
    killed_at(&ebb, "move the rows").await;
    assert_eq!(says(&ebb, "INSERT INTO public.t VALUES (1001, '2026-11-05')").await, "23505");
    assert_eq!(rollback(database, "public.t", "test", &mut |_| ()).await.unwrap(), RolledBack::Back(1));
    finish(database, "public.t", &mut |_| ()).await.unwrap();
    assert_eq!(schema(&ebb).await, before, "nor is anything left of one that was killed and went on");
}

#[tokio::test]
async fn keys_are_noted_where_rows_are_and_not_in_a_thousand_empty_partitions() {
    let (ebb, before) = adopted(TABLE, 90, Period::Day).await;
    let database = ebb.engine.database();
    ebb.db.execute("INSERT INTO public.t VALUES (1001, '2026-12-05'), (1002, '2026-12-06')").await;
    // One that has no rows any more, but a file: it hides with its trigger, and goes with finish.
    ebb.db.execute("INSERT INTO public.t VALUES (1003, '2026-12-07'); DELETE FROM public.t WHERE id = 1003").await;
    killed_at(&ebb, "move the name back").await;
    let noting = "SELECT string_agg(tgrelid::regclass::text, ',' ORDER BY tgrelid::regclass::text) FROM (SELECT DISTINCT tgrelid FROM pg_trigger WHERE tgname ~ '^a_ebb_twin') x";
    let tables: String = ebb.db.scalar(noting).await;
    assert_eq!(tables, "t_2026_12_05,t_2026_12_06,t_2026_12_07,t_history");
    // A partition that gets its first row while somebody is waited for comes along, with a key that is looked at.
    let mut somebody = ebb.client().await;
    execute(&mut somebody, "BEGIN; SELECT count(*) FROM public.t").await;
    let back = waits_for_somebody(&ebb).await;
    execute(&mut somebody, "INSERT INTO public.t VALUES (7, '2026-12-20'); COMMIT").await;
    let twice = back.await.unwrap().unwrap_err();
    assert!(twice.to_string().contains("these are there twice: (7)"), "{twice:?}");
    ebb.db.execute("DELETE FROM public.t WHERE created_at = '2026-12-20'").await;
    assert_eq!(rollback(database, "public.t", "test", &mut |_| ()).await.unwrap(), RolledBack::Back(2));
    finish(database, "public.t", &mut |_| ()).await.unwrap();
    assert_eq!(schema(&ebb).await, before);
}

#[tokio::test]
async fn the_printed_statements_look_for_keys_that_came_twice_since() {
    let (ebb, before) = adopted(TABLE, 2, Period::Month).await;
    let database = ebb.engine.database();
    ebb.db.execute("INSERT INTO public.t VALUES (1001, '2027-01-05')").await;
    let lines = rollback_script(database, "public.t").await.unwrap();
    let run_until = async |stop: Option<usize>| {
        let mut client = ebb.client().await;
        for line in lines.iter().take(stop.unwrap_or(lines.len())).filter(|line| !line.starts_with("--")) {
            let said = sqlx::raw_sql(AssertSqlSafe(line.clone())).execute(&mut client).await;
            if let Err(error) = said {
                return error.as_database_error().unwrap().message().to_owned();
            }
        }
        String::new()
    };
    // One that came before it was run, and one that comes while it runs.
    ebb.db.execute("INSERT INTO public.t VALUES (77, '2027-01-06')").await;
    let said = run_until(None).await;
    assert!(said.contains("these are there twice: (77)"), "{said}");
    ebb.db.execute("DELETE FROM public.t WHERE id = 77 AND created_at > '2027-01-01'").await;
    let swap = lines.iter().position(|line| line.contains("the name goes back")).unwrap();
    assert_eq!(run_until(Some(swap)).await, "");
    ebb.db.execute("INSERT INTO public.t VALUES (78, '2027-01-06')").await;
    let mut client = ebb.client().await;
    let mut said = String::new();
    for line in lines[swap..].iter().filter(|line| !line.starts_with("--")) {
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(line.clone())).execute(&mut client).await {
            said = error.as_database_error().unwrap().message().to_owned();
            break;
        }
    }
    assert!(said.contains("these are there twice: (78)"), "{said}");
    assert!(ebb.db.scalar::<bool>("SELECT relkind = 'p' FROM pg_class WHERE oid = 'public.t'::regclass").await);
    ebb.db.execute("DELETE FROM public.t WHERE id = 78 AND created_at > '2027-01-01'").await;
    assert_eq!(run_until(None).await, "", "and once there are none it runs through");
    run(&ebb, &finish_script(database, "public.t").await.unwrap()).await;
    assert_eq!(schema(&ebb).await, before);
}

/// A key that takes NULLs for equal is looked for by index, whichever of its columns are NULL.
#[tokio::test]
async fn nulls_that_are_equal_are_noted_and_refused_as_such() {
    let ebb = Ebb::with("SELECT").await;
    if ebb.db.scalar::<String>("SHOW server_version_num").await.as_str() < "150000" {
        return;
    }
    let (ebb, before) = adopted(
        "CREATE TABLE public.t (a int, b text, created_at timestamptz NOT NULL, UNIQUE NULLS NOT DISTINCT (a, b));
         INSERT INTO public.t SELECT n, n::text, '2026-11-01' FROM generate_series(1, 50000) n;
         INSERT INTO public.t VALUES (NULL, NULL, '2026-11-01'), (NULL, 'x', '2026-11-01')",
        2,
        Period::Month,
    )
    .await;
    let database = ebb.engine.database();
    ebb.db.execute("INSERT INTO public.t VALUES (60001, NULL, '2027-01-05')").await;
    let mut somebody = ebb.client().await;
    execute(&mut somebody, "BEGIN; SELECT count(*) FROM public.t").await;
    let back = waits_for_somebody(&ebb).await;
    ebb.db.execute("INSERT INTO public.t VALUES (NULL, 'x', '2027-01-06'), (NULL, 'y', '2027-01-06')").await;
    execute(&mut somebody, "COMMIT").await;
    let twice = back.await.unwrap().unwrap_err();
    assert!(twice.to_string().contains("these are there twice: (,x)"), "{twice:?}");
    ebb.db.execute("DELETE FROM public.t WHERE b = 'x' AND created_at > '2027-01-01'").await;
    killed_at(&ebb, "move the rows").await;
    for row in ["NULL, NULL", "NULL, 'x'", "NULL, 'y'", "60001, NULL", "7, '7'"] {
        assert_eq!(says(&ebb, &format!("INSERT INTO public.t VALUES ({row}, '2026-11-07')")).await, "23505", "{row}");
    }
    // Every look goes along an index: fifty thousand rows are not read for each of these.
    execute(
        &mut somebody,
        "BEGIN; INSERT INTO public.t SELECT NULL, n::text, '2026-11-08' FROM generate_series(1, 300) n",
    )
    .await;
    let scans =
        "SELECT COALESCE(sum(seq_scan), 0)::int8 FROM pg_stat_xact_user_tables WHERE relid = 'public.t'::regclass";
    assert!(fetch::<i64>(&mut somebody, scans).await < 10);
    execute(&mut somebody, "COMMIT").await;
    assert_eq!(rollback(database, "public.t", "test", &mut |_| ()).await.unwrap(), RolledBack::Back(2));
    finish(database, "public.t", &mut |_| ()).await.unwrap();
    assert_eq!(schema(&ebb).await, before);
}
