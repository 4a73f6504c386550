//! Bad input gets an error that says what would be right, and nothing changes.

use ebb::policy::ChangeAction;
use ebb::spine::Status;
use ebb_testkit::empty_database;

use crate::harness::{Ebb, policy, succeeded, wanted};

const TABLES: &str = "CREATE TABLE t (id int, at timestamptz, status text, n int);
    INSERT INTO t VALUES (1, now() - interval '1 hour', 'sent', 1);
    CREATE SEQUENCE s;
    CREATE VIEW v AS SELECT * FROM t;
    CREATE MATERIALIZED VIEW m AS SELECT * FROM t;
    CREATE TABLE effects (n int);
    CREATE FUNCTION effect(int) RETURNS boolean LANGUAGE plpgsql VOLATILE AS
        'BEGIN INSERT INTO public.effects VALUES ($1); RETURN true; END';
    CREATE FUNCTION effect2(int, int) RETURNS boolean LANGUAGE sql VOLATILE AS 'SELECT public.effect($1)';
    CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = effect2);
    CREATE DOMAIN checked AS int CHECK (public.effect(VALUE));
    CREATE DOMAIN outer_checked AS checked;
    CREATE DOMAIN casting AS int CHECK ((VALUE::outer_checked) IS NOT NULL);
    CREATE TYPE boxed AS (n int);
    CREATE FUNCTION unbox(boxed) RETURNS int LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN 1; END';
    CREATE CAST (boxed AS int) WITH FUNCTION unbox(boxed);
    CREATE TABLE w (id int, at timestamptz, b boxed);
    CREATE EXTENSION IF NOT EXISTS file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
    CREATE FOREIGN TABLE f (id int, at timestamptz) SERVER files OPTIONS (filename '/dev/null');
    CREATE TABLE p (id int, at timestamptz) PARTITION BY LIST (id);
    CREATE TABLE p_1 PARTITION OF p FOR VALUES IN (1);
    CREATE FOREIGN TABLE p_2 PARTITION OF p FOR VALUES IN (2) SERVER files OPTIONS (filename '/dev/null');";

async fn refused(ebb: &Ebb, config: &str, says: &str) {
    let error = match ebb.try_apply(config).await {
        Ok(changes) => panic!("accepted: {config}\n{changes:?}"),
        Err(error) => error,
    };
    let text = format!("{error} {}", error.hint().unwrap_or_default());
    assert!(text.contains(says), "{config}\nsays: {text}\nexpected: {says}");
    assert!(error.is_config(), "{config}: {error:?}");
}

async fn unchanged(ebb: &Ebb) {
    let state: (i64, i64, i64, i64, bool) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM effects), (SELECT count(*) FROM ebb.policy),
                (SELECT count(*) FROM ebb.audit), (SELECT is_called FROM s)",
    )
    .fetch_one(ebb.db.pool())
    .await
    .unwrap();
    assert_eq!(state, (1, 0, 0, 0, false));
}

#[tokio::test]
async fn what_is_no_table_is_refused_by_what_it_is() {
    let ebb = Ebb::with(TABLES).await;
    ebb.db.execute("CREATE TEMPORARY TABLE fleeting (at timestamptz)").await;
    for (table, says) in [
        ("nothing", "there is no table nothing"),
        ("public.tt", "there is no table public.tt"),
        ("public.effect", "did you mean public.effects?"),
        ("v", "is a view"),
        ("public.m", "is a materialized view"),
        ("f", "is a foreign table"),
        ("p", "partition public.p_2 is a foreign table"),
        ("s", "is a sequence"),
        ("ebb.run", "one of Ebb's own tables"),
        ("ebb.audit", "one of Ebb's own tables"),
        ("pg_catalog.pg_class", "is a system catalog"),
        ("pg_class", "there is no table pg_class"),
        ("information_schema.sql_features", "is a system catalog"),
        ("information_schema.tables", "is a view"),
        ("fleeting", "there is no table"),
        ("pg_temp.fleeting", "there is no table"),
        ("t; drop table t", "there is no table"),
        ("t\\\"", "there is no table"),
        ("\\\"t", "is not a table name"),
        ("a.b.c.d", "there is no table"),
    ] {
        let config = format!("[[expire]]\nname = \"x\"\ntable = \"{table}\"\ncolumn = \"at\"");
        refused(&ebb, &config, says).await;
    }
    unchanged(&ebb).await;
}

#[tokio::test]
async fn what_is_no_time_is_refused() {
    let ebb = Ebb::with(TABLES).await;
    for (column, more, says) in [
        ("ad", "", "has no column ad"),
        ("statu", "", "did you mean status?"),
        ("status", "", "is text, which is no time"),
        ("n", "", "unit = \"s\" or unit = \"ms\""),
        ("at", "unit = \"s\"", "which has no unit"),
        ("ctid", "", "has no column ctid"),
        ("at", "zone = \"Asia/Atlantis\"", "Asia/Atlantis"),
        ("at", "action = { set = { nothing = \"1\" } }", "has no column nothing"),
        ("at", "action = { set = { n = \"'many'\" } }", "invalid input syntax"),
        ("at", "action = { set = { n = \"nextval('s')\" } }", "volatile"),
        ("at", "action = { set = { n = \"(select 1)\" } }", "subquery"),
        ("at", "action = { set = { n = \"1), status = ('x'\" } }", "brackets do not match"),
        ("at", "audit = \"row\"", "audit"),
    ] {
        let config = format!("[[expire]]\nname = \"x\"\ntable = \"t\"\ncolumn = \"{column}\"\n{more}");
        refused(&ebb, &config, says).await;
    }
    unchanged(&ebb).await;
}

#[tokio::test]
async fn a_hostile_filter_is_refused_and_never_run() {
    let ebb = Ebb::with(TABLES).await;
    for (filter, says) in [
        ("exists (select 1)", "subquery"),
        ("id in (select n from effects)", "subquery"),
        ("id = (select 1)", "subquery"),
        ("id = any(array(select 1))", "subquery"),
        ("set_config('a.b', 'c', false) = 'c'", "set_config(text,text,boolean), which is volatile"),
        ("pg_cancel_backend(id)", "pg_cancel_backend(integer), which is volatile"),
        ("pg_terminate_backend(id, 0)", "volatile"),
        ("pg_sleep(1) is null", "volatile"),
        ("nextval('s') > 0", "nextval(regclass), which is volatile"),
        ("random() < 0.5", "volatile"),
        ("clock_timestamp() > at", "volatile"),
        ("pg_notify('a', 'b') is null", "volatile"),
        ("query_to_xml('delete from t', true, true, '') is not null", "volatile"),
        ("effect(id)", "volatile"),
        ("public.effect(n)", "volatile"),
        ("id === n", "effect2(integer,integer), which is volatile"),
        ("(id, n) is not null and id operator(public.===) 1", "volatile"),
        ("id::checked is not null", "volatile"),
        ("cast(id as outer_checked) > 0", "volatile"),
        ("id::casting is not null", "volatile"),
        ("('(1)'::boxed)::int > 0", "volatile"),
        ("case when true then effect(1) end", "volatile"),
        ("coalesce(null, effect(1))", "volatile"),
        ("id = any(array[1, case when effect(1) then 1 end])", "volatile"),
        ("not not not effect(1)", "volatile"),
        ("true; delete from t", "semicolon"),
        ("true) or (true", "brackets do not match"),
        ("(true", "brackets do not match"),
        ("true)", "brackets do not match"),
        ("true -- ", "comment"),
        ("true /* */", "comment"),
        ("true /\\n*", ""),
        ("'a", "does not end"),
        ("\\\"a", "does not end"),
        ("$1 = 1", "$ outside"),
        ("$a$x$a$ = 'x'", "$ outside"),
        ("U&'\\\\0027' = status or effect(1)", "volatile"),
        ("", "empty"),
        ("   ", "empty"),
        ("id", "not a boolean"),
        ("'maybe'", "invalid input syntax"),
        ("1 + 1", "not a boolean"),
        ("id =", "syntax error"),
        ("select true", "syntax error"),
        ("delete from t", "syntax error"),
        ("true returning *", "syntax error"),
        ("nothing = 1", "nothing"),
        ("other.id = 1", "other"),
        ("nothing(id)", "nothing"),
        ("id = 'x'::nothing", "nothing"),
        ("count(*) > 0", "aggregate"),
        ("sum(id) > 0", "aggregate"),
        ("row_number() over () > 0", "window"),
        ("generate_series(1, 2) > 0", "set-returning"),
        ("ctid = '(0,1)'", "ctid"),
        ("xmin::text = '1'", "xmin"),
        ("id / 0", ""),
        ("id = 99999999999999999999999999999999::int", "out of range"),
        ("at < 'yesterdayish'", "invalid input syntax"),
        ("at < '2024-13-45'", "out of range"),
    ] {
        refused(&ebb, &policy(&format!("where = \"{filter}\"")), says).await;
    }
    unchanged(&ebb).await;
}

#[tokio::test]
async fn a_whole_row_has_no_meaning_on_a_partition() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, at timestamptz) PARTITION BY LIST (id);
         CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1); INSERT INTO t VALUES (1, '2020-01-01')",
    )
    .await;
    refused(&ebb, &policy("where = \"t IS NOT NULL\""), "uses the whole row").await;
    refused(&ebb, &policy("action = { set = { id = \"length(t::text)\" } }"), "uses the whole row").await;
    ebb.db
        .execute("DROP TABLE t; CREATE TABLE t (id int, at timestamptz); INSERT INTO t VALUES (1, '2020-01-01')")
        .await;
    succeeded(&ebb.sweep("where = \"t IS NOT NULL\"").await, 1);
}

#[tokio::test]
async fn a_filter_that_became_volatile_stops_the_policy() {
    let ebb = Ebb::with(TABLES).await;
    ebb.db.execute("CREATE FUNCTION calm(int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true'").await;
    ebb.policy("where = \"calm(id)\"").await;
    ebb.db.execute("CREATE OR REPLACE FUNCTION calm(int) RETURNS boolean LANGUAGE plpgsql VOLATILE AS 'BEGIN RETURN public.effect(1); END'").await;
    let summary = ebb.again().await;
    assert_eq!((summary.status, summary.rows), (Status::Failed, 0), "{summary:?}");
    assert!(summary.note.unwrap().contains("volatile"));
    let stopped: bool = ebb.db.scalar("SELECT stopped LIKE '%volatile%' FROM ebb.policy WHERE name = 't'").await;
    let effects: i64 = ebb.db.scalar("SELECT count(*) FROM effects").await;
    assert_eq!((stopped, effects), (true, 0));
}

#[tokio::test]
async fn a_scan_that_takes_longer_than_the_interval_needs_an_index() {
    // 210 MB in a second: more than a disk is assumed to read.
    let ebb = Ebb::with(
        "CREATE UNLOGGED TABLE t (id int, at timestamptz, filler text) WITH (autovacuum_enabled = off);
         ALTER TABLE t ALTER filler SET STORAGE PLAIN;
         INSERT INTO t SELECT n, now() + interval '1 day', repeat('x', 8000) FROM generate_series(1, 26900) n",
    )
    .await;
    let error = ebb.try_apply(&policy("every = \"1s\"")).await.unwrap_err();
    assert!(error.is_config() && error.to_string().contains("no index that starts with it"), "{error}");
    assert_eq!(error.hint().unwrap(), "create one: CREATE INDEX CONCURRENTLY ON \"public\".\"t\" (\"at\")");
    ebb.policy("every = \"1m\"").await;
    ebb.db.execute("CREATE INDEX ON t (at)").await;
    ebb.policy("every = \"1s\"").await;
    assert_eq!(ebb.again().await.status, Status::Success);
    // It loses its index under a running node.
    ebb.db.execute("DROP INDEX t_at_idx").await;
    assert_eq!(ebb.again().await.status, Status::Failed);
    let stopped: bool =
        ebb.db.scalar("SELECT stopped LIKE '%CREATE INDEX CONCURRENTLY%' FROM ebb.policy WHERE name = 't'").await;
    assert!(stopped);
}

#[tokio::test]
async fn applying_is_all_or_nothing_and_twice_is_once() {
    let ebb = Ebb::with(TABLES).await;
    let good = |name: &str, every: &str| {
        format!("[[expire]]\nname = \"{name}\"\ntable = \"t\"\ncolumn = \"at\"\nevery = \"{every}\"\n")
    };
    let bad = "[[expire]]\nname = \"bad\"\ntable = \"nothing\"\ncolumn = \"at\"\n";
    let once = "[once.orders]\nttl = \"1h\"\n";
    let error = ebb.try_apply(&format!("{}{bad}{}{once}", good("a", "1h"), good("b", "1h"))).await.unwrap_err();
    assert!(error.to_string().starts_with("policy bad: "), "{error}");
    unchanged(&ebb).await;
    let namespaces: i64 = ebb.db.scalar("SELECT count(*) FROM ebb.once_namespace").await;
    assert_eq!(namespaces, 0);

    let config = format!("{}{}{once}", good("a", "1h"), good("b", "1h"));
    let changes = ebb.apply(&config).await;
    assert!(changes.len() == 3 && changes.iter().all(|change| change.action == ChangeAction::Create));
    assert_eq!(ebb.apply(&config).await, vec![]);
    let versions: i64 = ebb.db.scalar("SELECT sum(version)::int8 FROM ebb.policy").await;
    assert_eq!(versions, 3);

    // Gone from the file: disabled, not deleted; back again: enabled.
    let changes = ebb.apply(&good("a", "1h")).await;
    assert!(changes.iter().all(|change| change.is_disable()) && changes.len() == 2, "{changes:?}");
    let disabled: (i64, i64) = sqlx::query_as("SELECT count(*), count(*) FILTER (WHERE enabled) FROM ebb.policy")
        .fetch_one(ebb.db.pool())
        .await
        .unwrap();
    assert_eq!(disabled, (3, 1));
    assert_eq!(ebb.apply(&config).await.len(), 2);
}

#[tokio::test]
async fn a_runtime_change_is_not_overwritten_unasked() {
    let ebb = Ebb::with(TABLES).await;
    ebb.policy("every = \"1h\"").await;
    let spec = serde_json::json!({ "every": "30m", "batch": { "rows": 7 } });
    assert_eq!(ebb.engine.set_policy("t", spec.as_object().unwrap(), "ada").await.unwrap(), 2);
    let error = ebb.try_apply(&policy("every = \"2h\"")).await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("changed at runtime by ada"), "{error}");
    // Nor when a node stopped it meanwhile.
    ebb.db.execute("ALTER TABLE t RENAME TO u").await;
    let ended = crate::harness::run_once(&ebb.engine, &["t"]).await.unwrap();
    assert!(ended.runs.is_empty() && ended.stopped[0].0 == "t", "{ended:?}");
    ebb.db.execute("ALTER TABLE u RENAME TO t").await;
    let error = ebb.try_apply(&policy("every = \"2h\"")).await.unwrap_err();
    assert!(error.is_refused(), "{error}");
    let every: String = ebb.db.scalar("SELECT spec ->> 'every' FROM ebb.policy WHERE name = 't'").await;
    assert_eq!(every, "30m");
    let forced = ebb.engine.apply(&wanted(&policy("every = \"2h\"")).unwrap(), true, "me").await.unwrap();
    assert_eq!(forced.len(), 1);
    // A change at runtime is checked like the file.
    for (change, says) in [
        (serde_json::json!({ "where": "effect(1)" }), "volatile"),
        (serde_json::json!({ "column": "nothing" }), "has no column nothing"),
        (serde_json::json!({ "every": "0s" }), "at least 1s"),
        (serde_json::json!({ "table": null }), "table"),
    ] {
        let error = ebb.engine.set_policy("t", change.as_object().unwrap(), "ada").await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    let error = ebb.engine.set_policy("tt", spec.as_object().unwrap(), "ada").await.unwrap_err();
    assert!(error.is_usage() && error.hint().unwrap().contains("did you mean"), "{error:?}");
}

#[tokio::test]
async fn a_database_that_cannot_be_written_to_is_named_as_such() {
    let ebb = Ebb::with(TABLES).await;
    ebb.policy("").await;
    ebb.db
        .execute("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$")
        .await;
    let engine = ebb.another(ebb.db.open());
    for error in [engine.ready().await.unwrap_err(), engine.migrate().await.unwrap_err()] {
        assert!(error.is_refused() && error.to_string().contains("read-only"), "{error}");
        assert!(error.hint().unwrap().contains("default_transaction_read_only"));
    }
    assert!(crate::harness::run_once(&engine, &["t"]).await.is_err());
    assert!(engine.apply(&wanted(&policy("every = \"3h\"")).unwrap(), false, "me").await.is_err());
    let left: i64 = ebb.db.scalar("SELECT count(*) FROM t").await;
    assert_eq!(left, 1);
}

#[tokio::test]
async fn what_a_backslash_means_and_whether_triggers_fire_is_not_left_to_a_databases_defaults() {
    let db = empty_database().await;
    db.execute(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET standard_conforming_strings = off', current_database());
                     EXECUTE format('ALTER DATABASE %I SET session_replication_role = replica', current_database()); END $$",
    )
    .await;
    let ebb = Ebb::on(db).await;
    ebb::pg::migrate(ebb.engine.database()).await.unwrap();
    let loose = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'ebb'::regnamespace AND strpos(prosrc, chr(92)) > 0
                 AND 'standard_conforming_strings=on' <> ALL (COALESCE(proconfig, '{}'))";
    assert_eq!(ebb.db.scalar::<i64>(loose).await, 0);
    let mut tx = ebb.engine.database().read().await.unwrap();
    let fires =
        "SELECT current_setting('session_replication_role') || ' ' || current_setting('standard_conforming_strings')";
    assert_eq!(sqlx::query_scalar::<_, String>(fires).fetch_one(&mut *tx).await.unwrap(), "origin on");
    tx.rollback().await.unwrap();
}

#[tokio::test]
async fn a_policy_that_is_not_there_cannot_be_run() {
    let ebb = Ebb::with(TABLES).await;
    ebb.policy("enabled = false").await;
    for name in ["t", "nothing", "t:seal"] {
        let error = crate::harness::run_once(&ebb.engine, &[name]).await.unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("no active policy"), "{error}");
    }
    for selector in ["", ":expire", "t:"] {
        assert!(selector.parse::<ebb::spine::Selector>().is_err());
    }
}
