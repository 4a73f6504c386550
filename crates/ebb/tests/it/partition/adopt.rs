//! Adopting a table under load, and back: no row is lost, none is seen twice, and everything that belonged to the table
//! belongs to it afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ebb::partition::adopt::{Request, adopt, preflight};
use ebb::partition::{Finished, RolledBack, finish, rollback};
use ebb_testkit::TestDatabase;
use sqlx::{AssertSqlSafe, Row};

use super::{key, request};
use crate::harness::{Ebb, execute, fetch};

async fn adopted(ebb: &Ebb, request: &Request) {
    adopt(ebb.engine.database(), request, "test", &mut |_| ()).await.unwrap();
}

async fn rolled_back(ebb: &Ebb, table: &str) -> RolledBack {
    rollback(ebb.engine.database(), table, "test", &mut |_| ()).await.unwrap()
}

/// What the rows come to, and what the ledger says they should, in one snapshot.
const SUMS: &str = "SELECT (SELECT count(*) || ' ' || COALESCE(sum(hashtext(id || ' ' || v)::int8), 0) FROM public.t),
                           (SELECT count(*) || ' ' || COALESCE(sum(hashtext(id || ' ' || v)::int8), 0) FROM public.ledger)";

/// Writes, until told to stop, to the table and to the ledger in the same transaction.
async fn write(
    db: Arc<TestDatabase>,
    writer: i64,
    january: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
) {
    let mut n = 0_i64;
    while !over.load(Ordering::Relaxed) {
        n += 1;
        let (id, at) = (
            writer * 10_000_000 + n,
            if n % 3 == 0 && january.load(Ordering::Relaxed) { "2027-01-15" } else { "2026-11-15" },
        );
        let earlier = writer * 10_000_000 + n / 2;
        let sql = match n % 4 {
            0 => format!("DELETE FROM public.t WHERE id = {earlier}; DELETE FROM public.ledger WHERE id = {earlier};"),
            1 => format!(
                "UPDATE public.t SET v = v || 'u' WHERE id = {earlier}; UPDATE public.ledger SET v = v || 'u' WHERE id = {earlier};"
            ),
            2 => format!(
                "INSERT INTO public.t (id, created_at, v) VALUES ({id}, '{at}', 'i') ON CONFLICT DO NOTHING;
                 INSERT INTO public.ledger VALUES ({id}, 'i');"
            ),
            _ => format!(
                "INSERT INTO public.t (id, created_at, v) VALUES ({id}, '{at}', 'i'); INSERT INTO public.ledger VALUES ({id}, 'i');"
            ),
        };
        let sql = format!("BEGIN; {sql} COMMIT");
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(db.pool()).await {
            panic!("a writer was refused: {error}\nin {sql}");
        }
        written.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

async fn compare(db: &TestDatabase, when: &str) {
    let row = sqlx::query(SUMS).fetch_one(db.pool()).await.unwrap();
    assert_eq!(row.get::<String, _>(0), row.get::<String, _>(1), "{when}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_adopted_and_rolled_back_under_writes_without_losing_one() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (id bigint PRIMARY KEY, created_at timestamptz NOT NULL, v text NOT NULL);
         CREATE INDEX ON public.t (created_at);
         CREATE TABLE public.ledger (id bigint PRIMARY KEY, v text NOT NULL);
         INSERT INTO public.t SELECT n, timestamptz '2026-06-01' + n * interval '1 minute', 'old' FROM generate_series(1, 20000) n;
         INSERT INTO public.ledger SELECT id, v FROM public.t",
    )
    .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let Ebb { db, engine, .. } = ebb;
    let (db, over, written) = (Arc::new(db), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let january = Arc::new(AtomicBool::new(false));
    let writer = |n| write(db.clone(), n, january.clone(), over.clone(), written.clone());
    let writers: Vec<_> = (1..=3).map(|n| tokio::spawn(writer(n))).collect();
    let looks = tokio::spawn({
        let (db, over) = (db.clone(), over.clone());
        async move {
            while !over.load(Ordering::Relaxed) {
                compare(&db, "while it happens").await;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
    });
    let more = |count: u64| {
        let written = written.clone();
        async move {
            let until = written.load(Ordering::Relaxed) + count;
            ebb_testkit::eventually(crate::harness::SOON, || async { written.load(Ordering::Relaxed) >= until }).await;
        }
    };
    more(50).await;
    adopt(engine.database(), &request("public.t"), "test", &mut |_| ()).await.unwrap();
    january.store(true, Ordering::Relaxed);
    more(200).await;
    compare(&db, "adopted").await;
    let parts: i64 = db.scalar("SELECT count(*) FROM pg_inherits WHERE inhparent = 'public.t'::regclass").await;
    assert_eq!(parts, 2, "the first partition until January, then the one of January");
    assert!(db.scalar::<i64>("SELECT count(*) FROM public.t_2027_01").await > 0, "new rows are where they belong");
    rollback(engine.database(), "public.t", "test", &mut |_| ()).await.unwrap();
    more(100).await;
    over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    looks.await.unwrap();
    compare(&db, "back").await;
    assert_eq!(finish(engine.database(), "public.t", &mut |_| ()).await.unwrap(), Finished::RolledBack(2));
    compare(&db, "finished").await;
    let kind: String = db.scalar("SELECT relkind::text FROM pg_class WHERE oid = 'public.t'::regclass").await;
    assert_eq!(kind, "r");
}

#[tokio::test]
async fn what_would_break_is_named_and_nothing_is_changed() {
    let ebb = Ebb::with(
        "CREATE EXTENSION IF NOT EXISTS btree_gist;
         CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz, g timestamptz GENERATED ALWAYS AS (created_at) STORED, x int CHECK (x > 0) NO INHERIT, w text);
         ALTER TABLE public.t ADD CONSTRAINT late CHECK (x < 100) NOT VALID;
         ALTER TABLE public.t ADD CONSTRAINT apart EXCLUDE USING gist (x WITH =);
         CREATE TABLE public.child (t int REFERENCES public.t);
         CREATE MATERIALIZED VIEW public.sums AS SELECT count(*) FROM public.t;
         CREATE FUNCTION public.rows() RETURNS SETOF public.t LANGUAGE sql AS 'SELECT * FROM public.t';
         CREATE FUNCTION public.put() RETURNS void LANGUAGE sql AS 'INSERT INTO public.t (id) VALUES (1) ON CONFLICT (id) DO NOTHING; UPDATE public.t SET created_at = now()';
         CREATE FUNCTION public.put_by_name() RETURNS void LANGUAGE sql AS 'INSERT INTO public.t (id) VALUES (1) ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING';
         CREATE FUNCTION public.put_once() RETURNS void LANGUAGE sql AS 'INSERT INTO public.t (id) VALUES (1) ON CONFLICT DO NOTHING';
         CREATE TABLE public.ids (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, created_at timestamptz NOT NULL); CREATE TABLE public.borrower (id bigint DEFAULT nextval('public.ids_id_seq'));
         CREATE VIEW public.reached AS SELECT last_value FROM public.ids_id_seq;
         CREATE TABLE public.whole (a int, created_at timestamptz NOT NULL, CONSTRAINT known CHECK (whole.* IS NOT NULL)); CREATE INDEX by_whole ON public.whole ((whole.* IS NULL));
         CREATE UNLOGGED TABLE public.u (created_at timestamptz); CREATE TABLE public.parent (created_at timestamptz); CREATE TABLE public.heir () INHERITS (public.parent);
         CREATE TABLE public.nulls (created_at timestamptz); INSERT INTO public.nulls VALUES (NULL);
         CREATE TABLE public.future (created_at timestamptz); INSERT INTO public.future VALUES (now() + interval '80 years');
         CREATE TABLE public.split (created_at timestamptz) PARTITION BY RANGE (created_at)",
    )
    .await;
    let named = |n: std::ops::RangeInclusive<u32>| n.map(|n| format!("c{n}")).collect::<Vec<_>>();
    ebb.db
        .execute(&format!(
            "CREATE TABLE public.wide ({} int, created_at timestamptz, CONSTRAINT widest UNIQUE ({}) INCLUDE (c31, c32))",
            named(1..=32).join(" int, "),
            named(1..=30).join(", ")
        ))
        .await;
    let look = async |table: &str, column: &str| {
        let mut tx = ebb.engine.database().read().await.unwrap();
        let found = preflight(&mut tx, &Request { column: column.into(), ..request(table) }).await.unwrap();
        assert!(found.plan.is_none(), "{table}");
        let said = |of: &[ebb::partition::adopt::Finding]| {
            of.iter().map(|one| format!("{} => {}\n", one.what, one.fix)).collect::<String>()
        };
        (said(&found.findings.refusals), said(&found.findings.changes))
    };
    let (refusals, changes) = look("public.t", "created_at").await;
    for part in [
        "foreign key child_t_fkey of public.child references this table",
        "apart is an exclusion constraint",
        "constraint late is NOT VALID => ALTER TABLE public.t VALIDATE CONSTRAINT \"late\"",
        "NO INHERIT",
        "materialized view public.sums",
        "function public.rows()",
    ] {
        assert!(refusals.contains(part), "{part} is not in\n{refusals}");
    }
    assert!(changes.contains("t_pkey becomes unique by (id, created_at)"), "{changes}");
    for put in ["put()", "put_by_name()", "put_once()"] {
        assert!(changes.contains(&format!("{put} inserts with ON CONFLICT, and a key changes")), "{put}: {changes}");
    }
    assert!(changes.contains("put() seems to update created_at"), "{changes}");
    for (table, column, part) in [
        ("public.t", "g", "PostgreSQL does not partition by generated columns"),
        ("public.t", "w", "tells no time"),
        ("public.u", "created_at", "is unlogged"),
        ("public.parent", "created_at", "inheritance children"),
        ("public.nulls", "created_at", "has NULLs"),
        ("public.future", "created_at", "far in the future"),
        ("public.split", "created_at", "is partitioned already"),
        ("public.wide", "created_at", "index widest has as many columns as PostgreSQL allows"),
        ("public.ids", "created_at", "default value for column id of table public.borrower uses public.ids_id_seq"),
        ("public.ids", "created_at", "view public.reached uses public.ids_id_seq"),
        ("public.whole", "created_at", "check known is about the row as a whole"),
        ("public.whole", "created_at", "index by_whole is about the row as a whole"),
    ] {
        let (refusals, _) = look(table, column).await;
        assert!(refusals.contains(part), "{table}: {refusals}");
    }
    let error = adopt(ebb.engine.database(), &request("public.nulls"), "test", &mut |_| ()).await.unwrap_err();
    assert!(error.is_refused(), "{error}");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.adoption").await, 0);
    let error =
        preflight(&mut ebb.engine.database().read().await.unwrap(), &request("public.nobody")).await.unwrap_err();
    assert!(error.to_string().contains("there is no table"), "{error}");
}

#[tokio::test]
async fn row_security_guards_the_table_and_each_partition_after_adopting() {
    let role = format!("member_{}", uuid::Uuid::new_v4().simple());
    // The policy names its table inside a subquery, as policies by membership do.
    let ebb = Ebb::with(&format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA public TO {role};
         CREATE TABLE public.site_member (site int, who text); GRANT SELECT ON public.site_member TO {role};
         CREATE TABLE public.t (site int, k text, created_at timestamptz NOT NULL, PRIMARY KEY (site, k));
         ALTER TABLE public.t ENABLE ROW LEVEL SECURITY; GRANT SELECT ON public.t TO {role};
         CREATE POLICY members ON public.t FOR SELECT TO {role}
             USING (EXISTS (SELECT FROM public.site_member m WHERE m.site = t.site AND m.who = current_user));
         INSERT INTO public.site_member VALUES (1, '{role}');
         INSERT INTO public.t VALUES (1, 'a', now()), (2, 'b', now())"
    ))
    .await;
    adopted(&ebb, &request("public.t")).await;
    ebb.db.execute("INSERT INTO public.t SELECT s, 'later', created_at + interval '70 days' FROM public.t, generate_series(1, 2) s WHERE k = 'a'").await;
    let mut client = ebb.client().await;
    execute(&mut client, &format!("SET ROLE {role}")).await;
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'public.t'::regclass")
            .fetch_all(ebb.db.pool())
            .await
            .unwrap();
    for table in tables.iter().map(String::as_str).chain(["public.t"]) {
        let foreign: i64 = fetch(&mut client, &format!("SELECT count(*) FROM {table} WHERE site = 2")).await;
        assert_eq!(foreign, 0, "{table}");
    }
    assert_eq!(fetch::<i64>(&mut client, "SELECT count(*) FROM public.t").await, 2);
    rolled_back(&ebb, "public.t").await;
    assert_eq!(fetch::<i64>(&mut client, "SELECT count(*) FROM public.t WHERE site = 2").await, 0);
    finish(ebb.engine.database(), "public.t", &mut |_| ()).await.unwrap();
    execute(&mut client, "RESET ROLE").await;
    ebb.db.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn explain_tells_callers_how_the_guard_says_when_a_key_came() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (site int, \"Kéy\" text, created_at timestamptz NOT NULL, other uuid UNIQUE, PRIMARY KEY (site, \"Kéy\"));
         INSERT INTO public.t VALUES (1, 'it''s', '2026-10-01')",
    )
    .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let guard = vec![vec!["other".to_owned()], vec!["site".to_owned(), "Kéy".to_owned()]];
    adopted(&ebb, &Request { guard, ..request("public.t") }).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let explained = ebb::partition::explain(&mut tx, "public.t", None).await.unwrap();
    tx.rollback().await.unwrap();
    let update = explained.into_iter().find(|one| one.name == "update by key").unwrap();
    let (_, tells) = update.words.split_once("the guard knows it: ").unwrap_or_else(|| panic!("{update:?}"));
    let (statement, parameters) = tells.split_once(" ($1").unwrap();
    assert_eq!(parameters, " is site, $2 is \"Kéy\")");
    let time: String =
        sqlx::query_scalar(AssertSqlSafe(statement)).bind("1").bind("it's").fetch_one(ebb.db.pool()).await.unwrap();
    assert!(ebb.db.scalar::<bool>(&format!("SELECT '{time}'::timestamptz = '2026-10-01'")).await, "{time}");
}

#[tokio::test]
async fn a_partition_column_of_63_bytes_is_no_endless_look_at_what_refers_to_the_table() {
    let column = "c".repeat(63);
    let ebb = Ebb::with(&format!(
        "CREATE TABLE public.t (id int PRIMARY KEY, {column} timestamptz NOT NULL); CREATE TABLE public.child (t int REFERENCES public.t)"
    ))
    .await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let request = Request { column, move_foreign_keys: true, ..request("public.t") };
    let found = preflight(&mut tx, &request).await.unwrap();
    assert!(found.plan.is_some(), "{:?}", found.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guard_lets_one_of_64_equal_keys_in_across_a_month_boundary() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (site int, k text, created_at timestamptz NOT NULL, v text, PRIMARY KEY (site, k));
         INSERT INTO public.t SELECT 1, 'old' || n, timestamptz '2026-10-01', 'x' FROM generate_series(1, 3000) n",
    )
    .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    adopted(&ebb, &Request { guard: key(&["site", "k"]), ..request("public.t") }).await;
    let keys: i64 = ebb.db.scalar("SELECT count(*) FROM ebb.once_key WHERE namespace LIKE 'guard-%'").await;
    assert_eq!(keys, 3000, "the rows that were there are claimed");
    let attempts = (0..64).map(|n| {
        let pool = ebb.db.pool().clone();
        async move {
            let at = if n % 2 == 0 { "2026-12-31 23:59:59+00" } else { "2027-01-01 00:00:00+00" };
            let sql = format!("INSERT INTO public.t VALUES (1, 'same', '{at}', '{n}')");
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await
        }
    });
    let results = futures_util::future::join_all(attempts).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for error in results.into_iter().filter_map(Result::err) {
        assert_eq!(error.as_database_error().unwrap().code().unwrap(), "23505", "{error}");
    }
    let old =
        sqlx::raw_sql("INSERT INTO public.t VALUES (1, 'old7', '2027-01-05', 'again')").execute(ebb.db.pool()).await;
    assert_eq!(old.unwrap_err().as_database_error().unwrap().code().unwrap(), "23505");
    // A deleted row gives its key back; the claim tells whoever knows only the key when the row is from.
    ebb.db
        .execute(
            "DELETE FROM public.t WHERE k = 'old7'; INSERT INTO public.t VALUES (1, 'old7', '2027-01-05', 'again')",
        )
        .await;
    let at: String = ebb.db.scalar("SELECT result #>> '{}' FROM ebb.once_key WHERE key = '[\"1\", \"old7\"]'").await;
    assert!(at.starts_with("2027-01-05"), "{at}");
    assert!(matches!(rolled_back(&ebb, "public.t").await, RolledBack::Back(_)));
    finish(ebb.engine.database(), "public.t", &mut |_| ()).await.unwrap();
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.once_key").await, 0);
    let twice = sqlx::raw_sql("INSERT INTO public.t VALUES (1, 'same', now(), '')").execute(ebb.db.pool()).await;
    assert!(twice.unwrap_err().to_string().contains("t_pkey"), "the table's own key is back");
}

#[tokio::test]
async fn a_key_that_exists_twice_stops_the_rollback_with_the_list() {
    let ebb = Ebb::new().await;
    let is_old = ebb.db.scalar::<String>("SHOW server_version_num").await.as_str() < "150000";
    let (nulls, without) = if is_old { ("", "5") } else { ("NULLS NOT DISTINCT", "NULL") };
    ebb.db
        .execute(&format!(
            "CREATE TABLE public.t (k text PRIMARY KEY, created_at timestamptz NOT NULL, n int UNIQUE {nulls});
             INSERT INTO public.t SELECT 'x' || i, '2026-11-01', i FROM generate_series(1000, 2999) i;
             INSERT INTO public.t VALUES ('a', '2026-11-01', 1), ('b', '2026-11-01', {without})"
        ))
        .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    adopted(&ebb, &request("public.t")).await;
    // Of the new rows one among those that were there, two among themselves, one without a value where that counts; and two
    // in the old table itself, which only the index says that is built for it.
    for (rows, twice) in [
        ("('a', '2027-01-05', 2)", "(a)"),
        ("('c', '2027-01-05', 2), ('c', '2027-01-06', 3)", "(c)"),
        (&format!("('c', '2027-01-05', {without})"), if is_old { "(5)" } else { "()" }),
        ("('c', '2027-01-05', 1)", "(1)"),
        ("('b', '2026-11-02', 2)", "(b)"),
    ] {
        ebb.db.execute(&format!("INSERT INTO public.t VALUES {rows}")).await;
        let error = rollback(ebb.engine.database(), "public.t", "test", &mut |_| ()).await.unwrap_err();
        let said = format!("these are there twice: {twice}");
        assert!(error.is_refused() && error.to_string().contains(&said), "{error}");
        let unprinted = ebb::partition::rollback_script(ebb.engine.database(), "public.t").await.unwrap_err();
        assert!(unprinted.to_string().contains(&said), "{unprinted}");
        ebb.db.execute("DELETE FROM public.t WHERE created_at > '2026-11-01'").await;
    }
    let left = "SELECT count(*) FROM pg_class c JOIN pg_index x ON x.indexrelid = c.oid WHERE relname ~ '^ebb_' AND NOT indisvalid";
    assert_eq!(ebb.db.scalar::<i64>(left).await, 0, "an index that was not to be refuses nobody's rows");
    ebb.db.execute("DELETE FROM public.t WHERE n > 999; INSERT INTO public.t VALUES ('c', '2027-01-05', 4)").await;
    assert_eq!(rolled_back(&ebb, "public.t").await, RolledBack::Back(1));
    assert_eq!(ebb.list("k", "public.t").await, "a,b,c");
}

#[tokio::test]
async fn before_the_cutover_a_rollback_leaves_no_trace() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (k text PRIMARY KEY, created_at timestamptz); INSERT INTO public.t VALUES ('a', now())",
    )
    .await;
    let describe = "SELECT string_agg(conname || ' ' || pg_get_constraintdef(oid), ', ' ORDER BY conname) FROM pg_constraint WHERE conrelid = 'public.t'::regclass AND contype <> 'n'";
    let before: String = ebb.db.scalar(describe).await;
    // Somebody holds the table: the adoption gives way at every try, then at last gives up, and is taken back.
    let mut client = ebb.client().await;
    let watched = Arc::new(AtomicBool::new(false));
    let engine = ebb.another(ebb.db.open());
    let seen = watched.clone();
    let task = tokio::spawn(async move {
        adopt(engine.database(), &request("public.t"), "test", &mut |progress| {
            if format!("{progress:?}").contains("pg_sleep") {
                seen.store(true, Ordering::Relaxed);
            }
        })
        .await
    });
    execute(&mut client, "BEGIN; SELECT count(*), pg_sleep(0) FROM public.t").await;
    ebb_testkit::eventually(crate::harness::SOON, || async { watched.load(Ordering::Relaxed) || task.is_finished() })
        .await;
    task.abort();
    let _ = task.await;
    execute(&mut client, "COMMIT").await;
    ebb_testkit::eventually(crate::harness::SOON, || async {
        rollback(ebb.engine.database(), "public.t", "test", &mut |_| ()).await.is_ok()
            || ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.adoption").await == 0
    })
    .await;
    assert_eq!(ebb.db.scalar::<String>(describe).await, before);
    let left: i64 = ebb
        .db
        .scalar("SELECT count(*) FROM pg_class WHERE relname LIKE 'ebb\\_%' AND relnamespace = 'public'::regnamespace")
        .await;
    assert_eq!(left, 0);
}
