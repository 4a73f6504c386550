//! What goes and what stays, from every kind of table, by every way through it, and the record it leaves.

use ebb::spine::Status;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};

use crate::harness::{Ebb, run_once, succeeded};

/// `n` due rows and `n` live ones; ids from 1 on are due, from 1001 on live.
fn rows(n: u32) -> String {
    format!(
        "INSERT INTO t (id, at) SELECT n, now() - n * interval '1 minute' FROM generate_series(1, {n}) n;
         INSERT INTO t (id, at) SELECT 1000 + n, now() + n * interval '1 minute' FROM generate_series(1, {n}) n;"
    )
}

async fn live_only(ebb: &Ebb, n: u32) {
    let left: (i64, i64) = sqlx::query_as("SELECT count(*), count(*) FILTER (WHERE at > now()) FROM t")
        .fetch_one(ebb.db.pool())
        .await
        .unwrap();
    assert_eq!(left, (i64::from(n), i64::from(n)));
}

#[tokio::test]
async fn any_key_or_none_will_do() {
    let tables = [
        "CREATE TABLE t (id int, at timestamptz)",
        "CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz)",
        "CREATE TABLE t (id int, other uuid DEFAULT gen_random_uuid(), at timestamptz, PRIMARY KEY (other))",
        "CREATE TABLE t (id text PRIMARY KEY, at timestamptz)",
        "CREATE TABLE t (id int, tenant text DEFAULT 'a', at timestamptz, PRIMARY KEY (tenant, id))",
        "CREATE UNLOGGED TABLE t (id int, at timestamptz)",
    ];
    let ebb = Ebb::new().await;
    for table in tables {
        ebb.db.execute(&format!("DROP TABLE IF EXISTS t; {table}; {}", rows(30))).await;
        succeeded(&ebb.sweep(&format!("description = \"{table}\"")).await, 30);
        live_only(&ebb, 30).await;
    }
    assert_eq!(ebb.audited().await, 30 * tables.len() as i64);
}

#[tokio::test]
async fn live_rows_with_the_same_address_in_another_leaf_survive() {
    // In one leaf the first rows are due, in the other the rows at the same addresses are not.
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, kind int, region text, at timestamptz) PARTITION BY LIST (kind);
         CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1);
         CREATE TABLE t_2 PARTITION OF t FOR VALUES IN (2) PARTITION BY LIST (region);
         CREATE TABLE t_2a PARTITION OF t_2 FOR VALUES IN ('a');
         CREATE TABLE t_2b PARTITION OF t_2 DEFAULT PARTITION BY RANGE (id);
         CREATE TABLE t_2b_low PARTITION OF t_2b FOR VALUES FROM (MINVALUE) TO (50);
         CREATE TABLE t_2b_high PARTITION OF t_2b FOR VALUES FROM (50) TO (MAXVALUE);
         INSERT INTO t SELECT n, 1, 'x', now() - interval '1 hour' FROM generate_series(1, 100) n;
         INSERT INTO t SELECT n, 2, 'a', now() + interval '1 hour' FROM generate_series(1, 100) n;
         INSERT INTO t SELECT n, 2, 'b', now() + CASE WHEN n % 2 = 0 THEN interval '1 hour' ELSE -interval '1 hour' END
         FROM generate_series(1, 100) n",
    )
    .await;
    for batch in ["", "batch = { rows = 7, pause = \"0s\" }"] {
        ebb.policy(batch).await;
        let finished = ebb.once("t").await;
        let leaves: Vec<(&str, u64)> = finished.runs.iter().map(|run| (run.table.as_str(), run.rows)).collect();
        assert_eq!(leaves.len(), 4, "{leaves:?}");
        let left: i64 = ebb.db.scalar("SELECT count(*) FROM t WHERE at > now()").await;
        let due: i64 = ebb.db.scalar("SELECT count(*) FROM t WHERE at <= now()").await;
        assert_eq!((left, due), (150, 0));
        assert_eq!(ebb.audited().await, 150);
    }
}

#[tokio::test]
async fn an_inherited_table_is_swept_with_its_children() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, at timestamptz);
         CREATE TABLE child (more text) INHERITS (t);
         CREATE TABLE grandchild () INHERITS (child);
         INSERT INTO t SELECT n, now() - interval '1 hour' FROM generate_series(1, 10) n;
         INSERT INTO t SELECT 10 + n, now() + interval '1 hour' FROM generate_series(1, 10) n;
         INSERT INTO child SELECT 20 + n, now() + interval '1 hour' FROM generate_series(1, 10) n;
         INSERT INTO child SELECT 30 + n, now() - interval '1 hour' FROM generate_series(1, 10) n;
         INSERT INTO grandchild SELECT 40 + n, now() - interval '1 hour' FROM generate_series(1, 10) n",
    )
    .await;
    ebb.policy("").await;
    let finished = ebb.once("t").await;
    assert_eq!(finished.runs.iter().map(|run| run.rows).sum::<u64>(), 30);
    let left: i64 = ebb.db.scalar("SELECT count(*) FROM t WHERE at > now()").await;
    assert_eq!((left, ebb.audited().await), (20, 30));
}

#[tokio::test]
async fn a_filter_decides_besides_time() {
    let ebb = Ebb::with(
        "CREATE TYPE mood AS ENUM ('sent', 'open');
         CREATE FUNCTION is_sent(m mood) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT m = 'sent' $$;
         CREATE TABLE t (id int, at timestamptz, status mood, tags text[], note text);
         INSERT INTO t SELECT n, now() - interval '1 hour', CASE n % 2 WHEN 0 THEN 'sent' ELSE 'open' END::mood,
                              ARRAY['a'], CASE WHEN n > 5 THEN 'it''s; -- fine' END FROM generate_series(1, 10) n",
    )
    .await;
    succeeded(&ebb.sweep(r#"where = "status in ('sent') and note is null""#).await, 2);
    assert_eq!(ebb.left().await, "1,3,5,6,7,8,9,10");
    // A function and a type of the table's own schema, found again under another search_path.
    succeeded(&ebb.sweep(r#"where = "is_sent(status) and status = 'sent'::mood and tags && array['a']""#).await, 3);
    assert_eq!(ebb.left().await, "1,3,5,7,9");
    // A filter that is neither true nor false keeps the row.
    succeeded(&ebb.sweep(r#"where = "note = 'it''s; -- fine'""#).await, 2);
    assert_eq!(ebb.left().await, "1,3,5");
    // An OR inside cannot get past the condition of time.
    ebb.db.execute("INSERT INTO t VALUES (99, now() + interval '1 hour', 'open')").await;
    succeeded(&ebb.sweep(r#"where = "false or true""#).await, 3);
    assert_eq!(ebb.left().await, "99");
}

#[tokio::test]
async fn set_changes_rows_once() {
    let ebb = Ebb::with(
        "CREATE TYPE mood AS ENUM ('open', 'expired');
         CREATE TABLE t (id int, at timestamptz, status mood DEFAULT 'open', note text, touched int DEFAULT 0);
         CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN NEW.touched := OLD.touched + 1; RETURN NEW; END';
         CREATE TRIGGER touch BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION touch();
         CREATE FUNCTION label(mood) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'was ' || $1::text $$;",
    )
    .await;
    ebb.db.execute(&rows(20)).await;
    let set = r#"action = { set = { status = "'expired'", note = "'gone'" } }"#;
    succeeded(&ebb.sweep(set).await, 20);
    succeeded(&ebb.again().await, 0);
    let done: String = ebb
        .db
        .scalar("SELECT string_agg(DISTINCT concat_ws(' ', status, note, touched, at < now()), ', ') FROM t WHERE id < 1000")
        .await;
    assert_eq!(done, "expired gone 1 t");
    let untouched: i64 =
        ebb.db.scalar("SELECT count(*) FROM t WHERE id > 1000 AND status = 'open' AND touched = 0").await;
    assert_eq!((untouched, ebb.audited().await), (20, 20));
    let columns: serde_json::Value =
        ebb.db.scalar("SELECT details -> 'set' FROM ebb.audit WHERE action = 'expire' LIMIT 1").await;
    assert_eq!(columns, serde_json::json!(["note", "status"]));
    // Names of the table's own schema in the value.
    succeeded(&ebb.sweep(r#"action = { set = { status = "'open'::mood", note = "label('open')" } }"#).await, 20);
    assert_eq!(ebb.list("note", "(SELECT DISTINCT note FROM t WHERE id < 1000) d").await, "was open");
}

#[tokio::test]
async fn set_with_the_time_of_the_change_ends() {
    let ebb =
        Ebb::with("CREATE TABLE t (id int, at timestamptz, status text, touched timestamptz, n int DEFAULT 0)").await;
    ebb.db.execute(&rows(20)).await;
    let batch = "batch = { rows = 7, pause = \"0s\" }";
    for index in ["", "CREATE INDEX ON t (at)"] {
        ebb.db.execute(&format!("{index}; UPDATE t SET status = NULL, touched = NULL, n = 0")).await;
        // When the rest is as it should be, the time of the change alone is no reason to change a row again.
        let set = r#"action = { set = { status = "'expired'", touched = "now()" } }"#;
        succeeded(&ebb.sweep(&format!("{batch}\n{set}")).await, 20);
        succeeded(&ebb.again().await, 0);
        // With a filter that the change makes false.
        let set = r#"action = { set = { touched = "now()" } }"#;
        ebb.db.execute("UPDATE t SET touched = NULL").await;
        succeeded(&ebb.sweep(&format!("{batch}\nwhere = \"touched is null\"\n{set}")).await, 20);
        // Without one the same rows would change for ever.
        for set in [r#"touched = "now()""#, r#"n = "n + 1""#] {
            let summary = ebb.sweep(&format!("{batch}\naction = {{ set = {{ {set} }} }}")).await;
            assert_eq!((summary.status, summary.rows), (Status::Failed, 0), "{summary:?}");
            assert!(summary.note.as_deref().unwrap().contains("for ever"), "{summary:?}");
            let stopped: Option<String> = ebb.db.scalar("SELECT stopped FROM ebb.policy WHERE name = 't'").await;
            assert!(stopped.unwrap().contains("for ever"));
        }
        assert_eq!(ebb.list("n", "(SELECT DISTINCT n FROM t) d").await, "0");
    }
}

#[tokio::test]
async fn setting_the_column_of_time_itself_does_not_invent_due_times() {
    let ebb = Ebb::with("CREATE TABLE t (id int PRIMARY KEY, at timestamptz)").await;
    ebb.db.execute(&rows(5)).await;
    succeeded(&ebb.sweep("audit = \"rows\"\naction = { set = { at = \"'infinity'\" } }").await, 5);
    let future: i64 = ebb.db.scalar("SELECT count(*) FROM ebb.audit WHERE due_to > now() OR due_from > now()").await;
    assert_eq!((future, ebb.audited().await), (0, 5));
}

#[tokio::test]
async fn a_column_may_be_called_like_anything_the_sweep_uses_itself() {
    for name in ["place", "value", "due", "key", "ctid2", "pick", "gone", "rows", "order"] {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE t (id int PRIMARY KEY, \"{name}\" timestamptz);
             INSERT INTO t SELECT n, now() - ((n * 37) % 50) * interval '1 minute' - interval '1 second' FROM generate_series(1, 50) n;
             CREATE INDEX ON t (\"{name}\")"
        ))
        .await;
        let config = format!(
            "[[expire]]\nname = \"t\"\ntable = \"t\"\ncolumn = \"{name}\"\naudit = \"rows\"\n\
             brake = {{ share = \"off\" }}\nbatch = {{ rows = 7, pause = \"0s\" }}"
        );
        ebb.apply(&config).await;
        succeeded(&ebb.again().await, 50);
    }
}

#[tokio::test]
async fn many_rows_of_one_value_go_in_bounded_batches() {
    for index in ["", "CREATE INDEX ON t (at)"] {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE t (id int, at date);
             INSERT INTO t SELECT n, current_date - 10 FROM generate_series(1, 1000) n;
             INSERT INTO t SELECT n, current_date + 10 FROM generate_series(1, 10) n; {index}"
        ))
        .await;
        let summary = ebb.sweep("batch = { rows = 100, pause = \"0s\" }").await;
        succeeded(&summary, 1000);
        let largest: i64 = ebb.db.scalar("SELECT max(rows) FROM ebb.audit WHERE action = 'expire'").await;
        assert!(largest <= 100 && summary.batches >= 10, "{summary:?}");
        assert_eq!(ebb.list("live", "(SELECT DISTINCT at > current_date AS live FROM t) d").await, "true");
    }
}

#[tokio::test]
async fn a_trigger_that_keeps_rows_does_not_keep_the_sweep() {
    for index in ["", "CREATE INDEX ON t (at)"] {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE t (id int, at date);
             CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN IF OLD.id % 2 = 0 THEN RETURN NULL; END IF; RETURN OLD; END';
             CREATE TRIGGER keep BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION keep();
             INSERT INTO t SELECT n, current_date - 10 FROM generate_series(1, 200) n;
             INSERT INTO t SELECT 200 + n, current_date - 9 FROM generate_series(1, 200) n; {index}"
        ))
        .await;
        for batch in ["", "batch = { rows = 10, pause = \"0s\" }"] {
            ebb.policy(batch).await;
            let summary = tokio::time::timeout(crate::harness::SOON, ebb.again()).await.expect("a run ends");
            assert_eq!(summary.status, Status::Success, "{summary:?}");
        }
        let left: i64 = ebb.db.scalar("SELECT count(*) FROM t").await;
        assert_eq!((left, ebb.audited().await), (200, 200));
    }
}

#[tokio::test]
async fn every_way_through_a_table_takes_exactly_what_is_due() {
    // A table in random order of which most is due has an index that does not pay; fixed batches go by address.
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, at timestamptz, filler text);
         INSERT INTO t SELECT n, now() + (hashint4(n) % 1000) * interval '1 minute' + interval '30 seconds', repeat('x', 50)
         FROM generate_series(1, 20000) n;
         CREATE INDEX ON t (at); ANALYZE t",
    )
    .await;
    let due: i64 = ebb.db.scalar("SELECT count(*) FROM t WHERE at <= now()").await;
    ebb.db.execute("CREATE TABLE model AS SELECT id FROM t WHERE at > now() + interval '5 minutes'").await;
    let summary = ebb.sweep("batch = { rows = 700, pause = \"0s\" }").await;
    let shape: String = ebb.db.scalar("SELECT shape FROM ebb.unit WHERE policy = 't'").await;
    assert!(shape.starts_with("physical order"), "{shape}");
    assert_eq!((summary.status, summary.rows >= due as u64), (Status::Success, true), "{summary:?}, {due} were due");
    let lost: i64 = ebb.db.scalar("SELECT count(*) FROM model WHERE id NOT IN (SELECT id FROM t)").await;
    assert_eq!(lost, 0);
}

/// A random table, and what must be left of it.
#[derive(Debug, Clone)]
struct Table {
    /// Minutes from now, or null.
    rows: Vec<Option<i32>>,
    partitions: u8,
    indexed: bool,
    analyzed: bool,
    ordered: bool,
    batch: Option<u16>,
    filtered: bool,
}

fn table() -> impl Strategy<Value = Table> {
    let minute = prop_oneof![
        1 => Just(None),
        6 => (-2000_i32..-5).prop_map(Some),
        3 => (60_i32..2000).prop_map(Some),
        3 => Just(Some(-77)),
    ];
    let batch = proptest::option::of(1_u16..400);
    let rows = proptest::collection::vec(minute, 0..900);
    (rows, 0_u8..4, any::<bool>(), any::<bool>(), any::<bool>(), batch, any::<bool>()).prop_map(
        |(rows, partitions, indexed, analyzed, ordered, batch, filtered)| Table {
            rows,
            partitions,
            indexed,
            analyzed,
            ordered,
            batch,
            filtered,
        },
    )
}

impl Table {
    async fn is_swept_exactly(&self, ebb: &Ebb) -> Result<(), TestCaseError> {
        let mut rows: Vec<(i32, Option<i32>)> = (0..).zip(self.rows.iter().copied()).collect();
        if self.ordered {
            rows.sort_by_key(|(_, minutes)| *minutes);
        }
        let (ids, minutes): (Vec<i32>, Vec<Option<i32>>) = rows.iter().copied().unzip();
        let by = if self.partitions > 0 { "PARTITION BY HASH (id)" } else { "" };
        let mut sql = format!("DROP TABLE IF EXISTS t; CREATE TABLE t (id int, at timestamptz) {by};");
        for part in 0..self.partitions {
            let modulus = self.partitions;
            sql +=
                &format!("CREATE TABLE t_{part} PARTITION OF t FOR VALUES WITH (MODULUS {modulus}, REMAINDER {part});");
        }
        ebb.db.execute(&sql).await;
        sqlx::query(
            "INSERT INTO t SELECT id, now() + minutes * interval '1 minute' FROM unnest($1::int[], $2::int[]) AS r (id, minutes)",
        )
        .bind(&ids)
        .bind(&minutes)
        .execute(ebb.db.pool())
        .await
        .unwrap();
        let index = if self.indexed { "CREATE INDEX ON t (at);" } else { "" };
        ebb.db.execute(&format!("{index} {}", if self.analyzed { "ANALYZE t" } else { "" })).await;

        let batch = self.batch.map_or(String::new(), |rows| format!("batch = {{ rows = {rows}, pause = \"0s\" }}"));
        let filter = if self.filtered { "where = \"id % 3 <> 0\"" } else { "" };
        let before = ebb.audited().await;
        ebb.policy(&format!("{batch}\n{filter}")).await;
        let finished = ebb.once("t").await;
        let stays = |id: i32, at: Option<i32>| at.is_none_or(|at| at > 0) || (self.filtered && id % 3 == 0);
        let mut model: Vec<i32> = rows.iter().filter(|(id, at)| stays(*id, *at)).map(|(id, _)| *id).collect();
        model.sort_unstable();
        let left: Vec<i32> = sqlx::query_scalar("SELECT id FROM t ORDER BY id").fetch_all(ebb.db.pool()).await.unwrap();
        prop_assert_eq!(&left, &model, "{:?}", finished);
        let gone = (self.rows.len() - model.len()) as i64;
        prop_assert_eq!(ebb.audited().await - before, gone);
        prop_assert_eq!(finished.runs.iter().map(|run| run.rows).sum::<u64>() as i64, gone);
        prop_assert!(finished.runs.iter().all(|run| run.status == Status::Success));
        Ok(())
    }
}

#[test]
fn a_sweep_agrees_with_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ebb = runtime.block_on(Ebb::new());
    let mut runner = TestRunner::new(Cases { cases: 25, failure_persistence: None, ..Cases::default() });
    runner.run(&table(), |table| runtime.block_on(table.is_swept_exactly(&ebb))).unwrap();
}

#[tokio::test]
async fn the_record_and_the_history_say_what_happened() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamptz)").await;
    ebb.set_clock("2024-06-15 12:00Z").await;
    ebb.db
        .execute("INSERT INTO t SELECT n, timestamptz '2024-06-15 11:00Z' - n * interval '1 minute' FROM generate_series(0, 24) n")
        .await;
    let summary = ebb.sweep("older_than = \"30m\"\nbatch = { rows = 10, pause = \"0s\" }").await;
    succeeded(&summary, 25);
    let record: (i64, i64, bool, bool, bool, bool, bool) = sqlx::query_as(
        "SELECT count(*), sum(a.rows)::int8, min(due_from) = '2024-06-15 11:06Z', max(due_to) = '2024-06-15 11:30Z',
                bool_and(a.cutoff = r.cutoff AND a.cutoff BETWEEN '2024-06-15 11:30Z' AND '2024-06-15 11:31Z'),
                bool_and(a.relation = 'public.t' AND a.policy_version = 1 AND a.node = 'n'),
                bool_and(a.by_name = 'ebb' AND a.session_role = session_user)
         FROM ebb.audit a JOIN ebb.run r ON r.id = a.run WHERE a.action = 'expire'",
    )
    .fetch_one(ebb.db.pool())
    .await
    .unwrap();
    assert_eq!(record, (3, 25, true, true, true, true, true));
    let run: (String, i64, i64, i64, Option<i64>, bool, bool) = sqlx::query_as(
        "SELECT status, rows, batches, skipped, due, finished_at >= started_at, shape LIKE 'physical order%' FROM ebb.run WHERE policy = 't'",
    )
    .fetch_one(ebb.db.pool())
    .await
    .unwrap();
    assert_eq!(run, ("success".into(), 25, 3, 0, Some(25), true, true));
    let free: bool = ebb.db.scalar("SELECT bool_and(holder IS NULL) FROM ebb.lease").await;
    assert!(free, "leases go back");
}

#[tokio::test]
async fn each_row_is_recorded_where_the_policy_asks_for_it() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int, tenant text, at timestamptz, PRIMARY KEY (tenant, id));
         INSERT INTO t SELECT n, 'a', now() - n * interval '1 minute' FROM generate_series(1, 12) n",
    )
    .await;
    succeeded(&ebb.sweep("audit = \"rows\"\nbatch = { rows = 5, pause = \"0s\" }").await, 12);
    let records: (i64, i64, i64, bool) = sqlx::query_as(
        "SELECT count(*), sum(rows)::int8, count(DISTINCT subject), bool_and(due_from = due_to AND due_to < now())
         FROM ebb.audit WHERE action = 'expire'",
    )
    .fetch_one(ebb.db.pool())
    .await
    .unwrap();
    assert_eq!(records, (12, 12, 12, true));
    let plain: i64 =
        ebb.db.scalar("SELECT count(*) FROM ebb.audit a WHERE action = 'expire' AND a::text LIKE '%tenant%'").await;
    assert_eq!(plain, 0, "a pseudonym, not the key");
    // Without a key of its own a row is known by its address.
    ebb.db
        .execute(
            "DROP TABLE t; CREATE TABLE t (id int, at timestamptz); INSERT INTO t VALUES (1, now() - interval '1 day')",
        )
        .await;
    succeeded(&ebb.again().await, 1);
    // Without a subject key there is no pseudonym to record.
    let keyless = ebb::Engine::new(ebb.db.open(), ebb::Keys::default());
    let refused = keyless
        .apply(
            &crate::harness::wanted(&crate::harness::policy("audit = \"rows\"\nevery = \"2h\"")).unwrap(),
            false,
            "x",
        )
        .await;
    assert!(refused.unwrap_err().to_string().contains("subject key"));
}

#[tokio::test]
async fn ebb_sweeps_its_own_tables() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamptz)").await;
    ebb.policy("").await;
    succeeded(&ebb.again().await, 0);
    ebb.db
        .execute(
            "INSERT INTO ebb.sample (at, metric, value) VALUES (now() - interval '8 days', 'old', 1), (now(), 'new', 1);
             SELECT ebb.once('orders', 'k', interval '1 hour')",
        )
        .await;
    ebb.db.advance("31 days").await;
    ebb.db.execute("INSERT INTO ebb.sample (at, metric, value) VALUES (ebb.now(), 'today', 1)").await;
    let finished = run_once(&ebb.engine, &["keep"]).await.unwrap();
    assert!(finished.runs.iter().all(|run| run.status == Status::Success), "{finished:?}");
    assert_eq!(ebb.list("metric", "ebb.sample").await, "today");
    assert_eq!(
        ebb.list("policy", "ebb.run WHERE started_at < ebb.now() - interval '30 days' AND policy = 't'").await,
        ""
    );
    let keys: i64 = ebb.db.scalar("SELECT count(*) FROM ebb.once_key").await;
    let audited: i64 =
        ebb.db.scalar("SELECT count(*) FROM ebb.audit WHERE policy = 'keep' AND relation = 'ebb.once_key'").await;
    assert_eq!((keys, audited), (0, 1));
}

#[tokio::test]
async fn a_table_that_disappears_stops_its_policy_and_nothing_else() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamptz); CREATE TABLE other (id int, at timestamptz)").await;
    let other = "[[expire]]\nname = \"other\"\ntable = \"other\"\ncolumn = \"at\"\nevery = \"1s\"";
    let config = format!("{}\n{other}", crate::harness::policy("every = \"1s\""));
    ebb.apply(&config).await;
    let node = ebb.start(&[]);
    ebb.until("SELECT count(*) = 2 FROM ebb.unit WHERE policy IN ('t', 'other') AND last_success_at IS NOT NULL").await;
    ebb.db.execute("ALTER TABLE t ALTER at TYPE text").await;
    ebb.until("SELECT stopped LIKE '%is text, which is no time%' FROM ebb.policy WHERE name = 't'").await;
    ebb.db.execute("INSERT INTO other VALUES (1, now() - interval '1 day')").await;
    ebb.until("SELECT NOT EXISTS (SELECT FROM other)").await;
    // Mended and applied again, it starts again; gone for good, it stops again.
    ebb.db.execute("ALTER TABLE t ALTER at TYPE timestamptz USING at::timestamptz; INSERT INTO t VALUES (1, now() - interval '1 day')").await;
    assert_eq!(ebb.apply(&config).await.len(), 1);
    ebb.until("SELECT NOT EXISTS (SELECT FROM t)").await;
    ebb.db.execute("DROP TABLE t").await;
    ebb.until("SELECT stopped LIKE '%there is no table public.t%' FROM ebb.policy WHERE name = 't'").await;
    ebb.db.execute("INSERT INTO other VALUES (1, now() - interval '1 day')").await;
    ebb.until("SELECT NOT EXISTS (SELECT FROM other)").await;
    node.stop().await;
}

#[tokio::test]
async fn rows_that_others_refer_to_stay_and_the_rest_goes() {
    for (reference, more) in [
        ("ON DELETE RESTRICT", "batch = { rows = 100, pause = \"0s\" }"),
        (
            "ON DELETE NO ACTION DEFERRABLE INITIALLY DEFERRED",
            "batch = { rows = 100, pause = \"0s\" }\naudit = \"rows\"",
        ),
        ("", ""),
        ("DEFERRABLE INITIALLY DEFERRED", "# keyset"),
    ] {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE t (id int PRIMARY KEY, at timestamptz); {}
             INSERT INTO t SELECT n, now() - interval '1 hour' - n % 50 * interval '1 minute' FROM generate_series(1, 1000) n;
             INSERT INTO t SELECT n, now() + interval '1 hour' FROM generate_series(1001, 1010) n;
             CREATE TABLE child (t int REFERENCES t {reference}); CREATE INDEX ON child (t);
             INSERT INTO child VALUES (3), (500), (501), (999), (1005);
             ANALYZE t",
            if more == "# keyset" { "CREATE INDEX ON t (at);" } else { "" }
        ))
        .await;
        for (rows, left) in [(996, 4), (0, 4)] {
            let summary = ebb.sweep(&format!("{more}\nbrake = {{ share = 1.0 }}")).await;
            assert_eq!(
                (summary.status, summary.rows, summary.skipped),
                (Status::Success, rows, left),
                "{reference}: {summary:?}"
            );
            assert!(summary.note.as_ref().is_some_and(|note| note.contains("refer")), "{summary:?}");
            assert_eq!(ebb.left().await, "3,500,501,999,1001,1002,1003,1004,1005,1006,1007,1008,1009,1010");
        }
        assert_eq!(ebb.audited().await, 996);
        // What no longer holds them lets them go.
        ebb.db.execute("TRUNCATE child").await;
        succeeded(&ebb.again().await, 4);
    }
}

#[tokio::test]
async fn rows_over_which_a_trigger_raises_stay_and_the_rest_goes() {
    let due = "CREATE TABLE t (id int PRIMARY KEY, at timestamptz);
         INSERT INTO t SELECT n, now() - n * interval '1 minute' FROM generate_series(1, 3000) n;
         CREATE TABLE guarded (id int); ANALYZE t;
         CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN IF EXISTS (SELECT FROM public.guarded WHERE id = OLD.id) THEN RAISE 'not this one'; END IF; RETURN OLD; END $$;
         CREATE TRIGGER guard BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION guard();";
    for (index, batch) in
        [("CREATE INDEX ON t (at);", ""), ("", ""), ("", "batch = { rows = 500, pause = \"0s\" }\naudit = \"rows\"")]
    {
        let ebb = Ebb::with(&format!("{due} {index} INSERT INTO guarded VALUES (7), (3000)")).await;
        let summary = ebb.sweep(&format!("{batch}\nbrake = {{ share = 1.0 }}")).await;
        assert_eq!((summary.status, summary.rows, summary.skipped), (Status::Success, 2998, 2), "{summary:?}");
        let note = summary.note.unwrap_or_default();
        assert!(note.contains("a trigger raises an error stay (SQLSTATE P0001, for instance at ctid ("), "{note}");
        assert_eq!((ebb.left().await, ebb.audited().await), ("7,3000".into(), 2998));
        ebb.db.execute("TRUNCATE guarded").await;
        succeeded(&ebb.again().await, 2);
    }

    // What refuses nearly everything is no exception: the run fails, and says why.
    let ebb = Ebb::with(&format!("{due} INSERT INTO guarded SELECT generate_series(1, 2500)")).await;
    let summary = ebb.sweep("brake = { share = 1.0 }").await;
    assert_eq!(summary.status, Status::Failed, "{summary:?}");
    assert!(
        summary.note.as_ref().is_some_and(|note| note.contains("more than 1000 rows raise an error")),
        "{summary:?}"
    );
}

#[tokio::test]
async fn a_run_that_was_cut_off_ends_with_its_unit() {
    let ebb = Ebb::with("CREATE TABLE t (id int, at timestamptz)").await;
    ebb.db
        .execute(
            "INSERT INTO ebb.unit (unit, chore, policy, leaf) VALUES ('expire/gone/public.gone', 'expire', 'gone', 'public.gone');
             INSERT INTO ebb.lease (unit, holder, node, generation) VALUES ('expire/gone/public.gone', gen_random_uuid(), 'dead', 1);
             INSERT INTO ebb.run (unit, chore, policy, policy_version, leaf, node, generation, rows)
             VALUES ('expire/gone/public.gone', 'expire', 'gone', 1, 'public.gone', 'dead', 1, 7)",
        )
        .await;
    succeeded(&ebb.sweep("").await, 0);
    let (status, rows): (String, i64) =
        sqlx::query_as("SELECT status, rows FROM ebb.run WHERE policy = 'gone' AND finished_at IS NOT NULL")
            .fetch_one(ebb.db.pool())
            .await
            .unwrap();
    assert_eq!((status.as_str(), rows), ("abandoned", 7));
    assert!(ebb.db.scalar::<bool>("SELECT NOT EXISTS (SELECT FROM ebb.unit WHERE policy = 'gone')").await);
}

#[tokio::test]
async fn what_is_told_of_a_run_that_fails_quotes_no_row() {
    let ebb = Ebb::with("CREATE TABLE t (id int PRIMARY KEY, at timestamptz, v text)").await;
    ebb.db.execute("INSERT INTO t VALUES (1, now() - interval '1 day', 'ayu@example.test')").await;
    let discreet = async |words: &str, sqlstate: &str| {
        let note = ebb.again().await.note.unwrap();
        assert!(note.contains(&format!("{words} (SQLSTATE {sqlstate}")), "{note}");
        let kept: i64 = ebb.db.scalar("SELECT count(*) FROM (SELECT r::text AS t FROM ebb.run r UNION ALL SELECT u::text FROM ebb.unit u) x WHERE t LIKE '%ayu@%'").await;
        assert_eq!((kept, note.contains("ayu@")), (0, false), "{note}");
        assert_eq!(ebb.left().await, "1");
    };
    ebb.policy("where = \"v::int > 5\"").await;
    discreet("a row of public.t raises an error, in a condition or in a trigger", "22P02").await;
    let status = ebb.engine.status().await.unwrap();
    assert!(!format!("{status:?}").contains("ayu@"), "{status:?}");
    ebb.policy("").await;
    let stays = "rows over which a trigger raises an error stay";
    for code in ["P0001", "55000", "23514"] {
        ebb.db
            .execute(&format!(
                "CREATE OR REPLACE FUNCTION special() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN RAISE EXCEPTION 'row of % is special', OLD.v USING ERRCODE = '{code}'; END $$;
                 CREATE OR REPLACE TRIGGER special BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION special()"
            ))
            .await;
        discreet(stays, code).await;
    }

    // By its age, too.
    let by_age = "[[retain]]\nname = \"t\"\ntable = \"public.t\"\ncolumn = \"at\"\nolder_than = \"1h\"\nbrake = { share = \"off\" }\n";
    ebb.db.execute("DELETE FROM ebb.policy").await;
    ebb.apply(by_age).await;
    discreet(stays, "23514").await;
}

/// Whoever publishes all tables, for a copy by logical replication, publishes Ebb's own too.
#[tokio::test]
async fn a_publication_of_all_tables_stops_nothing() {
    let ebb = Ebb::with(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamptz); CREATE INDEX ON t (at);
         INSERT INTO t SELECT n, now() - interval '1 hour' FROM generate_series(1, 10) n",
    )
    .await;
    ebb.policy("").await;
    ebb.db.execute("CREATE PUBLICATION everything FOR ALL TABLES").await;
    succeeded(&ebb.again().await, 10);
    ebb.db.execute("INSERT INTO ebb.nudge (unit) SELECT unit FROM ebb.unit").await;
    succeeded(&ebb.again().await, 0);
    let nameless = "SELECT count(*) FROM pg_class c WHERE c.relnamespace = 'ebb'::regnamespace AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
        AND c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)";
    assert_eq!(ebb.db.scalar::<i64>(nameless).await, 0, "rows of every table of Ebb's can be told apart");
    ebb.db.execute("SELECT ebb.event_history_extend(now() + interval '100 days')").await;
    assert_eq!(ebb.db.scalar::<i64>(nameless).await, 0, "also of those that are yet to come");
}
