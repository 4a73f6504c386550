//! The chore on a table that is partitioned already.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use ebb::spine::Status;
use ebb_testkit::database;
use tokio::task::JoinHandle;

use crate::harness::{Ebb, execute, fetch, run_once};

/// A policy `p` on table `public.p` by column `at`.
fn policy(more: &str) -> String {
    format!("[[partition]]\nname = \"p\"\ntable = \"public.p\"\ncolumn = \"at\"\n{more}\n")
}

const MONTHLY: &str = "by = \"month\"\nahead = 2";

async fn partitioned(ty: &str) -> Ebb {
    Ebb::with(&format!("CREATE TABLE public.p (id bigint, at {ty} NOT NULL, v text) PARTITION BY RANGE (at)")).await
}

/// The partitions of `p` with their bounds in UTC, oldest first.
async fn partitions(ebb: &Ebb) -> String {
    partitions_of(ebb, "p").await
}

async fn partitions_of(ebb: &Ebb, table: &str) -> String {
    ebb.db
        .scalar(&format!(
            "SELECT COALESCE(string_agg(b.table_name || ' ' || to_char(b.lower_bound, 'YYYY-MM-DD') || '..' || to_char(b.upper_bound, 'YYYY-MM-DD'), ', ' ORDER BY b.lower_bound), '')
             FROM ebb.partition_bounds('public.{table}'::regclass, ebb.partition_kind('public.{table}'::regclass, 'at', 'ms')) b"
        ))
        .await
}

async fn maintain(ebb: &Ebb) -> Vec<ebb::spine::Summary> {
    ebb.once("p").await.runs
}

#[tokio::test]
async fn the_next_partitions_exist_whatever_the_column_tells_time_with() {
    // 2026-12-30 is in ISO week 53 of 2026, which ends in January.
    let cases = [
        ("timestamptz", "month", "", "p_2026_12 2026-12-01..2027-01-01, p_2027_01 2027-01-01..2027-02-01"),
        ("timestamp", "day", "", "p_2026_12_30 2026-12-30..2026-12-31, p_2026_12_31 2026-12-31..2027-01-01"),
        ("date", "week", "", "p_2026_w53 2026-12-28..2027-01-04, p_2027_w01 2027-01-04..2027-01-11"),
        ("uuid", "year", "", "p_2026 2026-01-01..2027-01-01, p_2027 2027-01-01..2028-01-01"),
        ("bigint", "month", "unit = \"ms\"", "p_2026_12 2026-12-01..2027-01-01, p_2027_01 2027-01-01..2027-02-01"),
        ("timestamptz", "week", "", "p_2026_w53 2026-12-28..2027-01-04, p_2027_w01 2027-01-04..2027-01-11"),
    ];
    let ebb = Ebb::new().await;
    // Bounds are UTC whatever zone the server, and so its sessions, are in.
    ebb.db.execute(&format!("ALTER DATABASE {} SET TimeZone = 'Asia/Jakarta'", ebb.db.name())).await;
    ebb.set_clock("2026-12-30 12:00:00+00").await;
    let (mut config, mut names) = (String::new(), Vec::new());
    for (n, (ty, by, more, _)) in cases.iter().enumerate() {
        ebb.db.execute(&format!("CREATE TABLE public.p{n} (at {ty} NOT NULL) PARTITION BY RANGE (at)")).await;
        let one = policy(&format!("by = \"{by}\"\nahead = 1\n{more}"));
        config += &one.replace("\"p\"", &format!("\"p{n}\"")).replace("public.p\"", &format!("public.p{n}\""));
        names.push(format!("p{n}"));
    }
    ebb.apply(&config).await;
    let only: Vec<&str> = names.iter().map(String::as_str).collect();
    let finished = run_once(&ebb.engine, &only).await.unwrap();
    assert_eq!(finished.runs.iter().filter(|run| run.status == Status::Success).count(), cases.len(), "{finished:?}");
    for (n, (ty, by, _, expected)) in cases.iter().enumerate() {
        let expected = expected.replace("p_", &format!("p{n}_"));
        assert_eq!(partitions_of(&ebb, &format!("p{n}")).await, expected, "{ty} by {by}");
    }
    assert!(run_once(&ebb.engine, &only).await.unwrap().runs.is_empty(), "nothing is left to do");
}

#[tokio::test]
async fn a_uuid_of_now_and_a_second_of_now_find_their_partition() {
    let ebb = Ebb::with(
        "CREATE TABLE public.p (at uuid NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE public.q (at integer NOT NULL) PARTITION BY RANGE (at)",
    )
    .await;
    ebb.apply(&format!(
        "{}[[partition]]\nname = \"q\"\ntable = \"public.q\"\ncolumn = \"at\"\nby = \"day\"\n",
        policy("by = \"day\"")
    ))
    .await;
    ebb.once("p").await;
    ebb.once("q").await;
    // A version 7 uuid: milliseconds since 1970, then the version, then chance.
    ebb.db
        .execute(
            "INSERT INTO public.p SELECT (lpad(to_hex((extract(epoch FROM now()) * 1000)::int8), 12, '0') || '7abc8' || substr(md5(random()::text), 1, 15))::uuid",
        )
        .await;
    ebb.db.execute("INSERT INTO public.q VALUES (extract(epoch FROM now())::int)").await;
    let expected: String = ebb.db.scalar("SELECT 'p_' || to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM_DD')").await;
    let found: String = ebb.db.scalar("SELECT tableoid::regclass::text FROM public.p").await;
    assert_eq!(found, expected);
    let found: String = ebb.db.scalar("SELECT tableoid::regclass::text FROM public.q").await;
    assert_eq!(found, expected.replace('p', "q"));
}

#[tokio::test]
async fn nodes_and_callers_at_once_make_each_partition_once() {
    let ebb = partitioned("timestamptz").await;
    ebb.apply(&policy("by = \"day\"\nahead = 8")).await;
    let (one, two) = (ebb.another(ebb.db.open()), ebb.another(ebb.db.open()));
    let from_sql = async {
        let mut made = 0;
        for _ in 0..5 {
            // A lock that another caller holds for too long is a lock time-out, to be tried again.
            let call = sqlx::query_scalar::<_, i32>("SELECT ebb.ensure_partitions('p')").fetch_one(ebb.db.pool()).await;
            made += call.unwrap_or(0);
        }
        made
    };
    let (a, b, made) = tokio::join!(run_once(&one, &["p"]), run_once(&two, &["p"]), from_sql);
    let finished = [a.unwrap(), b.unwrap()];
    assert!(finished.iter().all(|finished| !finished.has_failed()), "{finished:?}");
    let all: i64 = ebb.db.scalar("SELECT count(*) FROM pg_inherits WHERE inhparent = 'public.p'::regclass").await;
    assert_eq!(all, 9, "{made} of them from SQL");
    assert_eq!(ebb.db.scalar::<i32>("SELECT ebb.ensure_partitions('p')").await, 0);
}

#[tokio::test]
async fn a_partition_goes_when_all_of_it_is_due_and_not_a_moment_before() {
    let ebb = partitioned("timestamptz").await;
    ebb.set_clock("2026-02-10 00:00:00+00").await;
    ebb.apply(&policy(&format!("{MONTHLY}\nkeep = \"2mo\""))).await;
    maintain(&ebb).await;
    ebb.db.execute("INSERT INTO public.p SELECT n, timestamptz '2026-02-01' + n * interval '1 hour' FROM generate_series(0, 600) n").await;
    ebb.set_clock("2026-04-30 23:55:00+00").await;
    maintain(&ebb).await;
    assert!(partitions(&ebb).await.starts_with("p_2026_02 "), "its last instant is not two months old");
    ebb.set_clock("2026-05-01 00:00:01+00").await;
    let runs = maintain(&ebb).await;
    assert_eq!(runs[0].rows, 601, "{runs:?}");
    assert!(partitions(&ebb).await.starts_with("p_2026_03 "));
    let (relation, rows, to): (String, i64, String) = sqlx::query_as(
        "SELECT relation, rows, details ->> 'to' FROM ebb.audit WHERE action = 'drop_partition' AND policy = 'p'",
    )
    .fetch_one(ebb.db.pool())
    .await
    .unwrap();
    assert_eq!((relation.as_str(), rows, to.as_str()), ("public.p_2026_02", 601, "2026-03-01 00:00:00"));
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.detached").await, 0);
}

#[tokio::test]
async fn a_local_day_is_over_when_it_is_over_there() {
    let ebb = partitioned("timestamp").await;
    // Midnight in Jakarta is 17:00 UTC the day before.
    ebb.set_clock("2026-03-10 16:00:00+00").await;
    ebb.apply(&policy("by = \"day\"\nahead = 1\nkeep = \"1d\"\nzone = \"Asia/Jakarta\"")).await;
    maintain(&ebb).await;
    assert!(partitions(&ebb).await.starts_with("p_2026_03_10 "));
    ebb.set_clock("2026-03-11 16:59:00+00").await;
    maintain(&ebb).await;
    assert!(partitions(&ebb).await.starts_with("p_2026_03_10 "));
    ebb.set_clock("2026-03-11 17:00:30+00").await;
    maintain(&ebb).await;
    assert!(partitions(&ebb).await.starts_with("p_2026_03_11 "));
}

#[tokio::test]
async fn a_detached_partition_stays_as_long_as_stated() {
    let ebb = partitioned("timestamptz").await;
    ebb.set_clock("2026-02-10 00:00:00+00").await;
    let config = policy(&format!("{MONTHLY}\nkeep = \"1mo\"\nexpired = \"detach\"\ndetached_for = \"7d\""));
    ebb.apply(&config).await;
    maintain(&ebb).await;
    ebb.db.execute("INSERT INTO public.p VALUES (1, '2026-02-15')").await;
    ebb.set_clock("2026-04-01 00:00:01+00").await;
    maintain(&ebb).await;
    assert_eq!(ebb.list("id", "public.p").await, "");
    assert_eq!(ebb.list("id", "public.p_2026_02").await, "1", "out of its table, and still there");
    ebb.set_clock("2026-04-07 23:00:00+00").await;
    maintain(&ebb).await;
    assert_eq!(ebb.list("id", "public.p_2026_02").await, "1");
    ebb.set_clock("2026-04-08 00:01:00+00").await;
    maintain(&ebb).await;
    assert!(ebb.db.scalar::<bool>("SELECT to_regclass('public.p_2026_02') IS NULL").await);
}

#[tokio::test]
async fn a_cancelled_detach_heals() {
    let ebb = partitioned("timestamptz").await;
    ebb.set_clock("2026-02-10 00:00:00+00").await;
    ebb.apply(&policy(&format!("{MONTHLY}\nkeep = \"1mo\""))).await;
    maintain(&ebb).await;
    ebb.db.execute("INSERT INTO public.p VALUES (1, '2026-02-15')").await;
    ebb.set_clock("2026-04-01 00:00:01+00").await;
    // An old transaction that has read the table: the detach waits for its end.
    let mut client = ebb.client().await;
    execute(&mut client, "BEGIN; SELECT count(*) FROM public.p").await;
    let engine = ebb.another(ebb.db.open());
    let run = tokio::spawn(async move { run_once(&engine, &["p"]).await });
    ebb.until("SELECT bool_or(inhdetachpending) FROM pg_inherits WHERE inhparent = 'public.p'::regclass").await;
    ebb.until(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
         WHERE query LIKE 'ALTER TABLE%CONCURRENTLY' AND datname = current_database() AND state = 'active' LIMIT 1",
    )
    .await;
    execute(&mut client, "COMMIT").await;
    let finished = run.await.unwrap().unwrap();
    assert!(!finished.has_failed(), "{finished:?}");
    assert!(ebb.db.scalar::<bool>("SELECT to_regclass('public.p_2026_02') IS NULL").await);
    let pending: i64 = ebb.db.scalar("SELECT count(*) FROM pg_inherits WHERE inhdetachpending").await;
    assert_eq!(pending, 0);
}

#[tokio::test]
async fn names_of_63_bytes_are_shortened_and_never_collide() {
    let long = "a".repeat(60);
    let ebb = Ebb::with(&format!(
        "CREATE TABLE public.{long}_b (at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE public.{long}_c (at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE public.short (at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE public.short_2026_05 (mine int)"
    ))
    .await;
    // The name with its own digits is taken, too, as when a period's second partition was taken out like its first.
    ebb.db
        .execute("DO $$ BEGIN EXECUTE format('CREATE TABLE public.%I (mine int)', ebb.partition_name('public.short'::regclass, '2026_05', false)); END $$")
        .await;
    ebb.set_clock("2026-05-10 00:00:00+00").await;
    let one = |name: &str, table: &str| {
        format!("[[partition]]\nname = \"{name}\"\ntable = \"public.{table}\"\ncolumn = \"at\"\n{MONTHLY}\n")
    };
    ebb.apply(&(one("b", &format!("{long}_b")) + &one("c", &format!("{long}_c")) + &one("s", "short"))).await;
    for name in ["b", "c", "s"] {
        let finished = ebb.once(name).await;
        assert!(!finished.has_failed(), "{finished:?}");
    }
    let made: i64 = ebb.db.scalar("SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE c.relname ~ '_2026_0[567]$'").await;
    assert_eq!(made, 9);
    assert!(
        ebb.db.scalar::<bool>("SELECT count(*) = 0 FROM public.short_2026_05").await,
        "somebody else's table is left alone"
    );
}

#[tokio::test]
async fn a_period_gets_another_partition_however_often_the_last_one_left() {
    let long = "a".repeat(63);
    for table in [long.as_str(), "p"] {
        let ebb =
            Ebb::with(&format!("CREATE TABLE public.{table} (at timestamptz NOT NULL) PARTITION BY RANGE (at)")).await;
        ebb.set_clock("2026-05-10 00:00:00+00").await;
        ebb.apply(&policy(MONTHLY).replace("public.p", &format!("public.{table}"))).await;
        for left in 0..4 {
            let finished = ebb.once("p").await;
            assert!(!finished.has_failed(), "{finished:?}");
            ebb.db.execute(&format!("INSERT INTO public.{table} VALUES ('2026-05-11')")).await;
            let current: String = ebb.db.scalar(&format!("SELECT tableoid::regclass::text FROM public.{table}")).await;
            assert!(current.ends_with("_2026_05"), "{left} have left: {current}");
            ebb.db.execute(&format!("ALTER TABLE public.{table} DETACH PARTITION public.{current}")).await;
        }
        let left: i64 =
            ebb.db.scalar("SELECT count(*) FROM pg_class WHERE relname ~ '_2026_05$' AND relkind = 'r'").await;
        assert_eq!(left, 4);
    }
}

#[tokio::test]
async fn a_new_partition_has_what_its_siblings_have() {
    let role = format!("app_{}", uuid::Uuid::new_v4().simple());
    let ebb = Ebb::with(&format!(
        "CREATE ROLE {role}; CREATE TABLE public.site (id int PRIMARY KEY, owner text);
         CREATE TABLE public.p (gone int, id bigint, at timestamptz NOT NULL, site int REFERENCES public.site, v text CHECK (v <> ''),
             up text GENERATED ALWAYS AS (upper(v)) STORED, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         ALTER TABLE public.p DROP COLUMN gone;
         CREATE TABLE public.p_old (LIKE public.p INCLUDING ALL) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01);
         ALTER TABLE public.p ATTACH PARTITION public.p_old FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
         CREATE INDEX ON public.p (site, at);
         ALTER TABLE public.p ENABLE ROW LEVEL SECURITY;
         CREATE POLICY mine ON public.p FOR SELECT TO {role} USING (v = current_user);
         GRANT SELECT ON public.p TO {role}; GRANT UPDATE (v) ON public.p TO {role};
         ALTER TABLE public.p REPLICA IDENTITY FULL;
         CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TRIGGER note BEFORE INSERT ON public.p FOR EACH ROW EXECUTE FUNCTION public.note();
         INSERT INTO public.site VALUES (1)"
    ))
    .await;
    ebb.apply(&policy(MONTHLY)).await;
    let runs = maintain(&ebb).await;
    assert!(runs.iter().all(|run| run.status == Status::Success), "{runs:?}");
    let newest =
        "(SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = 'public.p'::regclass ORDER BY 1 DESC LIMIT 1)";
    let is = |question: &str| format!("SELECT COALESCE(({}), false)", question.replace("NEWEST", newest));
    for question in [
        "SELECT relrowsecurity AND relreplident = 'f' AND reloptions @> '{fillfactor=70}' FROM pg_class WHERE oid = NEWEST",
        "SELECT count(*) = 1 FROM pg_policy WHERE polrelid = NEWEST AND polname = 'mine' AND polcmd = 'r'",
        "SELECT count(*) = 2 FROM pg_index WHERE indrelid = NEWEST",
        "SELECT count(*) = 1 FROM pg_trigger WHERE tgrelid = NEWEST AND tgname = 'note'",
        "SELECT count(*) = 1 FROM pg_constraint WHERE conrelid = NEWEST AND contype = 'f'",
        "SELECT count(*) = 1 FROM pg_constraint WHERE conrelid = NEWEST AND contype = 'c'",
    ] {
        assert!(ebb.db.scalar::<bool>(&is(question)).await, "{question}");
    }
    let may = format!(
        "SELECT has_table_privilege('{role}', NEWEST, 'SELECT') AND NOT has_table_privilege('{role}', NEWEST, 'DELETE') AND has_column_privilege('{role}', NEWEST, 'v', 'UPDATE')"
    );
    assert!(ebb.db.scalar::<bool>(&is(&may)).await);
    ebb.db
        .execute(&format!(
            "INSERT INTO public.p (id, at, site, v) VALUES (1, now(), 1, 'somebody'), (2, now(), 1, '{role}')"
        ))
        .await;
    // Row security guards the partition itself too.
    let seen: i64 = {
        let mut client = ebb.client().await;
        let partition: String = ebb.db.scalar("SELECT tableoid::regclass::text FROM public.p LIMIT 1").await;
        execute(&mut client, &format!("SET ROLE {role}")).await;
        crate::harness::fetch(&mut client, &format!("SELECT count(*) FROM public.{partition}")).await
    };
    assert_eq!(seen, 1);
    ebb.db.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn what_upkeep_cannot_work_on_is_refused_with_the_way_out() {
    let ebb = Ebb::with(
        "CREATE TABLE public.p (at timestamptz, v text) PARTITION BY RANGE (at); CREATE TABLE public.rest PARTITION OF public.p DEFAULT;
         CREATE TABLE public.plain (at timestamptz); CREATE TABLE public.listed (at timestamptz) PARTITION BY LIST (at);
         CREATE TABLE public.worded (at text) PARTITION BY RANGE (at)",
    )
    .await;
    for (table, says, hint) in [
        ("p", "has the DEFAULT partition public.rest", "ALTER TABLE \"public\".\"p\" DETACH PARTITION public.rest"),
        ("plain", "is not partitioned", "ebb partition adopt public.plain --column at --by month"),
        ("listed", "is partitioned by LIST (at)", "one plain column"),
        ("worded", "is text, which tells no time", "timestamptz"),
        ("q", "there is no table public.q", ""),
    ] {
        let config = policy(MONTHLY).replace("public.p", &format!("public.{table}"));
        let error = ebb.try_apply(&config).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{:?}", error.hint());
    }
}

#[tokio::test]
async fn a_default_partition_is_emptied_by_the_statements_of_the_refusal() {
    let ebb = Ebb::with(
        "CREATE TABLE public.p (id bigint GENERATED ALWAYS AS IDENTITY, \"At\" bigint NOT NULL, twice bigint GENERATED ALWAYS AS (\"At\" * 2) STORED)
             PARTITION BY RANGE (\"At\");
         CREATE TABLE public.rest PARTITION OF public.p DEFAULT;
         INSERT INTO public.p (\"At\") SELECT extract(epoch FROM timestamptz '2026-01-31 12:00:00+00' + n * interval '1 day')::int8 * 1000 FROM generate_series(0, 35) n",
    )
    .await;
    ebb.set_clock("2026-03-10 00:00:00+00").await;
    let before = ebb.list("(id, \"At\")", "public.p").await;
    let config = policy(&format!("{MONTHLY}\nunit = \"ms\"")).replace("\"at\"", "\"At\"");
    let error = ebb.try_apply(&config).await.unwrap_err();
    let hint = error.hint().unwrap();
    let (from, to) = (hint.find("BEGIN;").unwrap(), hint.find("COMMIT;").unwrap());
    ebb.db.execute(&hint[from..to + "COMMIT;".len()]).await;
    ebb.apply(&config).await;
    assert!(maintain(&ebb).await.iter().all(|run| run.status == Status::Success));
    assert_eq!(ebb.list("(id, \"At\")", "public.p").await, before);
    assert_eq!(
        ebb.list("tableoid::regclass::text", "(SELECT DISTINCT tableoid FROM public.p) p").await,
        "p_2026_01,p_2026_02,p_2026_03"
    );
}

#[tokio::test]
async fn the_brake_and_observing_keep_everything_and_still_look_ahead() {
    let ebb = partitioned("timestamptz").await;
    ebb.set_clock("2026-01-10 00:00:00+00").await;
    let braked = policy(&format!("{MONTHLY}\nkeep = \"1mo\"\nbrake = {{ rows = 10 }}"));
    ebb.apply(&braked).await;
    maintain(&ebb).await;
    ebb.db.execute("INSERT INTO public.p SELECT n, '2026-01-15' FROM generate_series(1, 50) n").await;
    ebb.set_clock("2026-03-02 00:00:00+00").await;
    maintain(&ebb).await;
    let runs = maintain(&ebb).await;
    assert_eq!(runs[0].status, Status::Braked, "{runs:?}");
    assert!(
        partitions(&ebb).await.ends_with("p_2026_05 2026-05-01..2026-06-01"),
        "the next ones are made all the same"
    );
    assert!(partitions(&ebb).await.starts_with("p_2026_01 "));
    ebb.apply(&policy(&format!("{MONTHLY}\nkeep = \"1mo\"\nmode = \"observe\""))).await;
    assert_eq!(maintain(&ebb).await[0].status, Status::Observed);
    assert!(partitions(&ebb).await.starts_with("p_2026_01 "));
    ebb.apply(&braked).await;
    ebb.db.execute("UPDATE ebb.brake SET allow_rows = 50").await;
    maintain(&ebb).await;
    assert!(partitions(&ebb).await.starts_with("p_2026_02 "));
}

#[tokio::test]
async fn a_period_that_is_covered_in_part_gets_the_rest() {
    let ebb = partitioned("timestamptz").await;
    ebb.db.execute("CREATE TABLE public.p_first PARTITION OF public.p FOR VALUES FROM ('2026-01-01 00:00+00') TO ('2026-06-17 00:00+00')").await;
    ebb.set_clock("2026-06-10 12:00:00+00").await;
    ebb.apply(&policy("by = \"month\"\nahead = 1")).await;
    maintain(&ebb).await;
    assert_eq!(
        partitions(&ebb).await,
        "p_first 2026-01-01..2026-06-17, p_2026_06 2026-06-17..2026-07-01, p_2026_07 2026-07-01..2026-08-01"
    );
    let shape: String = ebb.db.scalar("SELECT shape FROM ebb.unit WHERE chore = 'partition'").await;
    assert_eq!(shape, "3 partitions, the last one ahead ends 2026-08-01 (51d from now)");
}

#[tokio::test]
async fn ensure_partitions_names_what_is_wrong() {
    let db = database().await;
    let error = sqlx::query("SELECT ebb.ensure_partitions('nobody')").execute(db.pool()).await.unwrap_err();
    assert!(error.to_string().contains("there is no partition policy 'nobody'"), "{error}");
}

#[tokio::test]
async fn who_keeps_a_partition_from_being_made_is_named_and_nobody_waits_behind_it_for_long() {
    let ebb = Ebb::with(
        "CREATE TABLE public.site (id int PRIMARY KEY, n int); INSERT INTO public.site VALUES (1, 0), (2, 0);
         CREATE TABLE public.p (id int, at timestamptz NOT NULL, site int REFERENCES public.site) PARTITION BY RANGE (at)",
    )
    .await;
    ebb.set_clock("2026-02-10 00:00:00+00").await;
    ebb.apply(&policy(MONTHLY)).await;
    let mut somebody = ebb.client().await;
    crate::harness::execute(&mut somebody, "BEGIN; UPDATE public.site SET n = 1 WHERE id = 1").await;
    let pid: i32 = crate::harness::fetch(&mut somebody, "SELECT pg_backend_pid()").await;
    let runs = maintain(&ebb).await;
    let note = runs[0].note.clone().unwrap_or_default();
    assert!(note.contains(&format!("gave way to others (pid {pid}")), "{runs:?}");
    let mut client = ebb.client().await;
    let error = sqlx::raw_sql("SELECT ebb.ensure_partitions('p')").execute(&mut client).await.unwrap_err();
    let error = error.as_database_error().unwrap();
    assert_eq!(error.code().unwrap(), "55P03");
    assert!(error.message().contains(&format!("pid {pid}")), "{error}");
    let bounded = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'ebb'::regnamespace AND proname = 'ensure_partitions' AND 'lock_timeout=60ms' = ANY (proconfig)";
    assert_eq!(ebb.db.scalar::<i64>(bounded).await, 1, "whoever writes there waits no longer");
    crate::harness::execute(&mut somebody, "COMMIT").await;
    assert!(ebb.db.scalar::<i32>("SELECT ebb.ensure_partitions('p')").await > 0);
}

#[tokio::test]
async fn an_expire_policy_drops_what_is_due_as_a_whole_and_deletes_rows_only_where_it_must() {
    let ebb = Ebb::with(
        "CREATE TABLE public.p (id bigint, at timestamptz NOT NULL, v text) PARTITION BY RANGE (at);
         CREATE TABLE public.p_01 PARTITION OF public.p FOR VALUES FROM ('2026-01-01 00:00+00') TO ('2026-02-01 00:00+00');
         CREATE TABLE public.p_02 PARTITION OF public.p FOR VALUES FROM ('2026-02-01 00:00+00') TO ('2026-03-01 00:00+00');
         CREATE TABLE public.p_03 PARTITION OF public.p FOR VALUES FROM ('2026-03-01 00:00+00') TO ('2026-04-01 00:00+00');
         CREATE TABLE public.p_00 PARTITION OF public.p FOR VALUES FROM ('2025-12-01 00:00+00') TO ('2026-01-01 00:00+00') PARTITION BY HASH (id);
         CREATE TABLE public.p_00_a PARTITION OF public.p_00 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE public.p_00_b PARTITION OF public.p_00 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
         INSERT INTO public.p SELECT n, timestamptz '2026-01-01 12:00+00' + n * interval '1 day' FROM generate_series(-20, 80) n",
    )
    .await;
    ebb.set_clock("2026-03-20 00:00:00+00").await;
    let config = |more: &str| {
        format!(
            "[[expire]]\nname = \"t\"\ntable = \"public.p\"\ncolumn = \"at\"\nolder_than = \"30d\"\nbrake = {{ share = \"off\" }}\n{more}\n"
        )
    };
    ebb.apply(&config("")).await;
    let finished = ebb.once("t").await;
    assert!(!finished.has_failed(), "{finished:?}");
    assert!(
        ebb.db.scalar::<bool>("SELECT to_regclass('public.p_01') IS NULL").await,
        "all of January is due: it goes as one"
    );
    // Due until 18 February 00:00: the rows of noon on the 1st to the 17th.
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.p_02").await, 28 - 17);
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.p_03").await, 22);
    let records: String = ebb.db
        .scalar("SELECT string_agg(action || ' ' || relation || ' ' || rows, ', ' ORDER BY relation) FROM ebb.audit WHERE policy = 't' AND action <> 'policy'")
        .await;
    assert_eq!(records, "drop_partition public.p_00 20, drop_partition public.p_01 31, expire public.p_02 17");
    // A filter means that rows must be looked at: nothing goes as a whole.
    ebb.set_clock("2026-06-01 00:00:00+00").await;
    ebb.apply(&config("where = \"id > 0\"")).await;
    ebb.once("t").await;
    assert!(ebb.db.scalar::<bool>("SELECT to_regclass('public.p_02') IS NOT NULL").await);
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.p").await, 0);
}

#[tokio::test]
async fn explain_says_which_partitions_are_read_and_executes_nothing() {
    let ebb = Ebb::with(
        "CREATE TABLE public.p (site int, k text, at timestamptz NOT NULL, day text GENERATED ALWAYS AS (k || date_part('year', at AT TIME ZONE 'UTC')::text) STORED,
             expires_at timestamptz, PRIMARY KEY (site, k, at)) PARTITION BY RANGE (at)",
    )
    .await;
    ebb.apply(&policy("by = \"month\"\nahead = 5")).await;
    maintain(&ebb).await;
    let explained = async |shapes| {
        let mut tx = ebb.engine.database().read().await.unwrap();
        ebb::partition::explain(&mut tx, "public.p", shapes).await
    };
    let all = explained(None).await.unwrap();
    let of = |name: &str| all.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("{name} in {all:#?}"));
    assert!(of("insert").reads.is_empty() && !of("insert").falls_short);
    assert_eq!((of("count one period").reads.len(), of("count one period").partitions), (1, 6));
    assert_eq!(of("list over three periods").reads.len(), 3);
    let update = of("update by key");
    assert!(update.reads.len() == 6 && update.words.contains("name \"at\" too, as below"), "{update:?}");
    assert!(!update.falls_short, "nothing better can be reached without naming it: {update:?}");
    assert_eq!(of("update by key and time").reads, of("count one period").reads);
    let delete = of("delete what is expired");
    assert!(!delete.falls_short && delete.words.contains("drop whole partitions"), "{delete:?}");
    let listed = of("list over three periods");
    assert!(listed.reads.iter().all(|name| listed.words.contains(name)), "{listed:?}");
    let own = ebb::partition::shapes(
        "INSERT INTO public.p (site, k, at) VALUES (1, 'a', now()); SELECT * FROM public.p WHERE at > now() + interval '100 days'",
        Some(3),
    );
    let own = explained(Some(own)).await.unwrap();
    assert!(!own[1].falls_short, "{own:#?}");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.p").await, 0, "nothing was inserted");
    let bad = ebb::partition::shapes("SELEC 1", None);
    assert!(explained(Some(bad)).await.unwrap_err().to_string().contains("syntax error"));
    // As callers write them: without the schema, with semicolons in strings; a parameter must get a value.
    let own =
        explained(Some(ebb::partition::shapes("SELECT ';' FROM p WHERE k = ';'; DELETE FROM p", None))).await.unwrap();
    assert_eq!((own.len(), own[1].reads.len()), (2, 6));
    assert!(own[1].words.contains("becomes a drop"), "{own:#?}");
    let parameters = explained(Some(ebb::partition::shapes("SELECT FROM p WHERE at = $1", None))).await.unwrap_err();
    assert!(parameters.to_string().contains("has the parameter $1"), "{parameters}");
}

#[tokio::test]
async fn statements_are_planned_and_not_executed_also_behind_explain_analyze() {
    let ebb = partitioned("timestamptz").await;
    ebb.apply(&policy(MONTHLY)).await;
    maintain(&ebb).await;
    let text = "-- 1. insert\nEXPLAIN (ANALYZE, COSTS OFF, FORMAT TEXT)\nINSERT INTO p (at) VALUES (now());
        explain analyze verbose DELETE FROM p WHERE at >= now(); EXPLAIN (SELECT count(*) FROM p); explain select 1; SELECT 1 AS explain";
    let mut tx = ebb.engine.database().read().await.unwrap();
    let shapes = ebb::partition::shapes(text, None);
    let explained = ebb::partition::explain(&mut tx, "public.p", Some(shapes)).await.unwrap();
    tx.commit().await.unwrap();
    let planned: Vec<&str> = explained.iter().map(|one| one.sql.as_str()).collect();
    assert_eq!(
        planned,
        [
            "INSERT INTO p (at) VALUES (now())",
            "DELETE FROM p WHERE at >= now()",
            "(SELECT count(*) FROM p)",
            "select 1",
            "SELECT 1 AS explain"
        ]
    );
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.p").await, 0);
}

#[tokio::test]
async fn explain_looks_at_periods_as_long_as_the_policy_says() {
    let ebb = Ebb::new().await;
    ebb.set_clock("2026-11-10 12:00:00+00").await;
    let tables = [("timestamptz", "day", ""), ("bigint", "week", "unit = \"ms\""), ("date", "year", "")];
    let mut config = String::new();
    for (n, (ty, by, more)) in tables.iter().enumerate() {
        ebb.db.execute(&format!("CREATE TABLE public.e{n} (at {ty} NOT NULL) PARTITION BY RANGE (at)")).await;
        config += &policy(&format!("by = \"{by}\"\nahead = 5\n{more}"))
            .replace("\"p\"", &format!("\"e{n}\""))
            .replace("public.p", &format!("public.e{n}"));
    }
    ebb.apply(&config).await;
    for n in 0..tables.len() {
        ebb.db.scalar::<i32>(&format!("SELECT ebb.ensure_partitions('e{n}')")).await;
        let mut tx = ebb.engine.database().read().await.unwrap();
        let all = ebb::partition::explain(&mut tx, &format!("public.e{n}"), None).await.unwrap();
        let read: Vec<usize> = all.iter().map(|one| one.reads.len()).collect();
        assert_eq!(read[..3], [0, 1, 3], "{all:#?}");
        assert!(!all.iter().any(|one| one.falls_short), "{all:#?}");
    }
}

#[tokio::test]
async fn a_detach_that_somebody_else_lost_is_ended_and_loses_nothing() {
    let ebb = partitioned("timestamptz").await;
    ebb.set_clock("2026-02-10 00:00:00+00").await;
    ebb.apply(&policy("by = \"month\"\nahead = 4\nkeep = \"1mo\"")).await;
    maintain(&ebb).await;
    ebb.db.execute("INSERT INTO public.p VALUES (1, '2026-02-15'), (2, '2026-04-05')").await;
    ebb.set_clock("2026-04-10 00:00:00+00").await;
    let (mut reader, mut other) = (ebb.client().await, ebb.client().await);
    execute(&mut reader, "BEGIN; SELECT count(*) FROM public.p").await;
    let detach = tokio::spawn(async move {
        sqlx::raw_sql("ALTER TABLE public.p DETACH PARTITION public.p_2026_04 CONCURRENTLY").execute(&mut other).await
    });
    ebb.until("SELECT bool_or(inhdetachpending) FROM pg_inherits WHERE inhparent = 'public.p'::regclass").await;
    ebb.until(
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
         WHERE query LIKE 'ALTER TABLE%CONCURRENTLY' AND datname = current_database() AND state = 'active' LIMIT 1",
    )
    .await;
    assert!(detach.await.unwrap().is_err());
    execute(&mut reader, "COMMIT").await;
    let refused = sqlx::raw_sql("INSERT INTO public.p VALUES (3, '2026-04-11')").execute(ebb.db.pool()).await;
    assert!(refused.unwrap_err().to_string().contains("no partition"));
    let mut tx = ebb.engine.database().read().await.unwrap();
    let listing = ebb::partition::list(&mut tx, Some("p")).await.unwrap().remove(0);
    tx.rollback().await.unwrap();
    assert_eq!(listing.runway_seconds, 0, "rows of now are refused");
    let statements = ebb::partition::statements(&listing).join("\n");
    assert!(statements.contains("DETACH PARTITION \"public\".\"p_2026_04\" FINALIZE;"), "{statements}");
    assert!(statements.contains("DETACH PARTITION \"public\".\"p_2026_02\" CONCURRENTLY;"), "{statements}");
    assert!(!statements.contains("DROP"), "no partition goes without the looks of upkeep: {statements}");
    let questions =
        ebb::doctor::Questions { wanted: Vec::new(), host_time: jiff::Timestamp::now(), role: None, embedded: false };
    let report = ebb.engine.doctor(&questions).await.unwrap();
    let found = report.findings.iter().find(|one| one.check == "detach pending").expect("doctor names it");
    assert!(found.evidence.contains("public.p_2026_04 is on its way out of public.p"), "{found:?}");
    let runs = maintain(&ebb).await;
    assert!(runs[0].status == Status::Success && runs[0].rows == 1, "{runs:?}");
    assert!(runs[0].note.as_ref().unwrap().contains("public.p_2026_04 is out of the table"), "{runs:?}");
    assert!(ebb.db.scalar::<bool>("SELECT to_regclass('public.p_2026_02') IS NULL").await, "what is expired went");
    assert_eq!(ebb.list("id", "public.p_2026_04").await, "2", "what is not expired is there, outside");
    assert!(!runs[0].note.as_ref().unwrap().contains("ATTACH"), "its period has a new one: {runs:?}");
    ebb.db.execute("INSERT INTO public.p VALUES (3, '2026-04-11')").await;
}

#[tokio::test]
async fn a_lost_detach_of_a_past_period_says_how_to_have_it_back() {
    let ebb = partitioned("timestamptz").await;
    ebb.set_clock("2026-02-10 00:00:00+00").await;
    ebb.apply(&policy(MONTHLY)).await;
    maintain(&ebb).await;
    ebb.db.execute("INSERT INTO public.p VALUES (1, '2026-02-15')").await;
    ebb.set_clock("2026-03-10 00:00:00+00").await;
    // As a cancelled one leaves it.
    ebb.db
        .execute("UPDATE pg_inherits SET inhdetachpending = true WHERE inhrelid = 'public.p_2026_02'::regclass")
        .await;
    let runs = maintain(&ebb).await;
    let note = runs[0].note.clone().unwrap_or_default();
    let back = note.split("to have it back: ").nth(1).and_then(|rest| rest.strip_suffix(')'));
    ebb.db.execute(back.unwrap_or_else(|| panic!("{runs:?}"))).await;
    assert_eq!(ebb.list("id", "public.p").await, "1");
    ebb.db.execute("INSERT INTO public.p VALUES (2, '2026-02-16')").await;
}

#[tokio::test]
async fn a_brin_index_finds_a_name_for_a_column_of_63_bytes() {
    let column = "c".repeat(63);
    let ebb = Ebb::with(&format!("CREATE TABLE public.s ({column} timestamptz)")).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let brin = ebb::partition::brin(&mut tx, "public.s", Some(&column), 32).await.unwrap();
    tx.rollback().await.unwrap();
    ebb::partition::build_brin(ebb.engine.database(), &brin, &mut |_| ()).await.unwrap();
    let built: String = ebb.db.scalar("SELECT indexdef FROM pg_indexes WHERE tablename = 's'").await;
    assert!(built.contains("USING brin") && built.contains("s_cccc"), "{built}");
}

#[tokio::test]
async fn a_brin_index_is_built_leaf_by_leaf_and_again_after_a_kill() {
    let ebb = partitioned("timestamptz").await;
    ebb.apply(&policy(MONTHLY)).await;
    maintain(&ebb).await;
    ebb.db
        .execute("INSERT INTO public.p SELECT n, now() + n * interval '1 second' FROM generate_series(1, 5000) n")
        .await;
    ebb.db.execute("ANALYZE public.p").await;
    let plan = async || {
        let mut tx = ebb.engine.database().read().await.unwrap();
        ebb::partition::brin(&mut tx, "public.p", None, 32).await.unwrap()
    };
    let brin = plan().await;
    assert!(brin.gain.iter().any(|line| line.contains("correlation 1.00")), "{:?}", brin.gain);
    // A build that was killed leaves an invalid index behind.
    let leaf: String = ebb.db.scalar("SELECT tableoid::regclass::text FROM public.p LIMIT 1").await;
    ebb.db.execute(&format!("CREATE INDEX {leaf}_at_brin ON public.{leaf} USING brin (at); UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{leaf}_at_brin'::regclass")).await;
    for _ in 0..2 {
        ebb::partition::build_brin(ebb.engine.database(), &plan().await, &mut |_| ()).await.unwrap();
    }
    let valid: i64 = ebb.db.scalar("SELECT count(*) FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid WHERE c.relname LIKE 'p%brin' AND x.indisvalid").await;
    assert_eq!(valid, 4, "three leaves and the parent");
    let options: String =
        ebb.db.scalar(&format!("SELECT reloptions::text FROM pg_class WHERE relname = '{leaf}_at_brin'")).await;
    assert_eq!(options, "{pages_per_range=32}");
}

#[tokio::test]
async fn a_table_of_pg_partman_is_taken_over_by_name() {
    let ebb = partitioned("timestamptz").await;
    let available: i64 = ebb.db.scalar("SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_partman'").await;
    if available == 0 {
        println!("skipped: this server has no pg_partman; scripts/install-test-tools installs it for Debian's");
        return;
    }
    ebb.db.execute("CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman").await;
    let create =
        "SELECT partman.create_parent('public.p', 'at', p_type := 'native', p_interval := '1 month', p_premake := 3)";
    ebb.db.execute(create).await;
    let error = ebb.try_apply(&policy(MONTHLY)).await.unwrap_err();
    assert!(error.to_string().contains("table public.p is looked after by pg_partman"), "{error}");
    let hint = error.hint().unwrap().to_owned();
    assert!(hint.contains("3 ahead, and keeps them for ever"), "{hint}");
    let statement = hint.strip_prefix("take over from it: ").unwrap().split(';').next().unwrap();
    ebb.db.execute(statement).await;
    // What it leaves behind is named next.
    let error = ebb.try_apply(&policy(MONTHLY)).await.unwrap_err();
    assert!(error.to_string().contains("has the DEFAULT partition public.p_default"), "{error}");
    ebb.db.execute("ALTER TABLE public.p DETACH PARTITION public.p_default; DROP TABLE public.p_default").await;
    ebb.apply(&policy("by = \"month\"\nahead = 6")).await;
    assert!(maintain(&ebb).await.iter().all(|run| run.status == Status::Success));
    let ahead: i64 = ebb.db
        .scalar("SELECT count(*) FROM ebb.partition_bounds('public.p'::regclass, 'timestamptz') WHERE lower_bound > now() AT TIME ZONE 'UTC'")
        .await;
    assert_eq!(ahead, 6);
}

#[tokio::test]
async fn writers_do_not_wait_for_a_brin_index_that_waits_for_somebody_else() {
    let ebb = partitioned("timestamptz").await;
    ebb.apply(&policy(MONTHLY)).await;
    maintain(&ebb).await;
    let mut slow = ebb.client().await;
    execute(&mut slow, "BEGIN; INSERT INTO public.p VALUES (1, now())").await;
    let engine = ebb.another(ebb.db.open());
    let (says, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let build = tokio::spawn(async move {
        let mut tx = engine.database().read().await.unwrap();
        let brin = ebb::partition::brin(&mut tx, "public.p", None, 32).await.unwrap();
        tx.rollback().await.unwrap();
        ebb::partition::build_brin(engine.database(), &brin, &mut |line| says.send(line).unwrap()).await
    });
    while !heard.recv().await.expect("it says for whom it waits").contains("waiting: pid") {}
    ebb.db.execute("SET lock_timeout = '30s'; INSERT INTO public.p VALUES (2, now())").await;
    execute(&mut slow, "COMMIT").await;
    build.await.unwrap().unwrap();
    let valid: bool =
        ebb.db.scalar("SELECT indisvalid FROM pg_index WHERE indexrelid = 'public.p_at_brin'::regclass").await;
    assert!(valid);
    ebb.db.execute("DROP INDEX public.p_at_brin; CREATE INDEX p_at_brin ON public.p (id)").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let brin = ebb::partition::brin(&mut tx, "public.p", None, 32).await.unwrap();
    tx.rollback().await.unwrap();
    let taken = ebb::partition::build_brin(ebb.engine.database(), &brin, &mut |_| ()).await.unwrap_err();
    assert!(taken.to_string().contains("public.p_at_brin exists, and is no BRIN index on at"), "{taken}");
}

#[tokio::test]
async fn a_partition_that_was_attached_again_expires_again() {
    let ebb = partitioned("timestamptz").await;
    ebb.set_clock("2026-02-10 00:00:00+00").await;
    ebb.apply(&policy(&format!("{MONTHLY}\nkeep = \"1mo\"\nexpired = \"detach\""))).await;
    maintain(&ebb).await;
    ebb.db.execute("INSERT INTO public.p VALUES (1, '2026-02-15')").await;
    ebb.set_clock("2026-04-10 00:00:00+00").await;
    maintain(&ebb).await;
    assert_eq!(ebb.list("id", "public.p").await, "");
    ebb.db
        .execute("ALTER TABLE public.p ATTACH PARTITION public.p_2026_02 FOR VALUES FROM ('2026-02-01 00:00:00+00') TO ('2026-03-01 00:00:00+00')")
        .await;
    assert_eq!(ebb.list("id", "public.p").await, "1");
    maintain(&ebb).await;
    assert_eq!(
        (ebb.list("id", "public.p").await, ebb.list("id", "public.p_2026_02").await),
        (String::new(), "1".into())
    );
    // A policy whose table is gone hides no other.
    ebb.db.execute("CREATE TABLE public.q (at timestamptz NOT NULL) PARTITION BY RANGE (at)").await;
    let both = policy(MONTHLY) + &policy(MONTHLY).replace("\"p\"", "\"q\"").replace("public.p", "public.q");
    ebb.apply(&both).await;
    ebb.db.execute("DROP TABLE public.q").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let (listings, broken) = ebb::partition::list_all(&mut tx, None).await.unwrap();
    assert_eq!((listings.len(), broken.len()), (1, 1), "{broken:?}");
    assert!(broken[0].1.to_string().contains("there is no table public.q"), "{broken:?}");
}

#[tokio::test]
async fn one_partition_that_cannot_leave_keeps_no_other_and_an_end_without_end_hides_none() {
    let ebb = Ebb::with(
        "CREATE TABLE public.p (id int, at timestamptz NOT NULL, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE TABLE public.c (id int, at timestamptz, FOREIGN KEY (id, at) REFERENCES public.p);
         CREATE TABLE public.q (at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE public.q_rest PARTITION OF public.q FOR VALUES FROM ('2026-01-01') TO (MAXVALUE)",
    )
    .await;
    ebb.set_clock("2026-05-10 00:00:00+00").await;
    let second = policy(MONTHLY).replace("\"p\"", "\"q\"").replace("public.p", "public.q");
    ebb.apply(&format!("{}{second}", policy("by = \"month\"\nahead = 3\nkeep = \"1mo\""))).await;
    maintain(&ebb).await;
    ebb.db.execute("INSERT INTO public.p SELECT n, make_date(2026, n, 15) FROM generate_series(5, 8) n; INSERT INTO public.c SELECT * FROM public.p WHERE id = 6").await;
    ebb.set_clock("2026-10-15 00:00:00+00").await;
    let runs = maintain(&ebb).await;
    assert!(runs[0].note.as_ref().is_some_and(|note| note.contains("an expired partition stays: ")), "{runs:?}");
    assert_eq!(ebb.list("id", "public.p").await, "6", "those that nobody refers to went");
    ebb.db.execute("DELETE FROM public.c").await;
    maintain(&ebb).await;
    assert_eq!(ebb.list("id", "public.p").await, "");
    let mut tx = ebb.engine.database().read().await.unwrap();
    let listed = ebb::partition::list(&mut tx, None).await.unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
}

/// Sessions each of which always has a statement of more than 100 ms under way, until they are told that it is over.
pub(super) struct Traffic {
    over: Arc<AtomicBool>,
    sessions: Vec<JoinHandle<Duration>>,
}

impl Traffic {
    pub(super) async fn of(ebb: &Ebb, all: &[&'static str]) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut sessions = Vec::new();
        for &sql in all {
            let (mut client, over) = (ebb.client().await, over.clone());
            sessions.push(tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                while !over.load(Relaxed) {
                    let began = Instant::now();
                    execute(&mut client, sql).await;
                    longest = longest.max(began.elapsed());
                }
                longest
            }));
        }
        Self { over, sessions }
    }

    /// How long the longest statement of each session took.
    pub(super) async fn ends(self) -> Vec<Duration> {
        self.over.store(true, Relaxed);
        let mut longest = Vec::new();
        for session in self.sessions {
            longest.push(session.await.unwrap());
        }
        longest
    }
}

#[tokio::test]
async fn an_expired_partition_leaves_under_steady_traffic_and_nobody_waits_behind_it() {
    let reads = "SELECT count(*), pg_sleep(0.15 + random() / 5) FROM public.p";
    for refers in ["", " REFERENCES public.site"] {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE public.site (id int PRIMARY KEY, n int); INSERT INTO public.site VALUES (1, 0);
             CREATE TABLE public.other (id int);
             CREATE TABLE public.p (id int, at timestamptz NOT NULL, site int{refers}) PARTITION BY RANGE (at)"
        ))
        .await;
        ebb.set_clock("2026-02-10 00:00:00+00").await;
        ebb.apply(&policy(&format!("{MONTHLY}\nkeep = \"1mo\""))).await;
        maintain(&ebb).await;
        ebb.db.execute("INSERT INTO public.p VALUES (1, '2026-02-15', 1), (2, '2026-03-15', 1)").await;
        ebb.set_clock("2026-05-01 00:00:01+00").await;
        let writes = "UPDATE public.site SET n = n + 1";
        let elsewhere = "SELECT count(*), pg_sleep(0.12) FROM public.other";
        let traffic = Traffic::of(&ebb, &[writes, reads, reads, reads, elsewhere, elsewhere]).await;
        let runs = maintain(&ebb).await;
        let waited = traffic.ends().await[0];
        assert!(runs[0].status == Status::Success && runs[0].rows == 2, "{refers}: {runs:?}");
        assert!(partitions(&ebb).await.starts_with("p_2026_04 "), "both months went");
        assert!(waited < Duration::from_millis(500), "a writer waited for {waited:?}");
    }
}

#[tokio::test]
async fn a_detach_that_somebody_else_lost_is_ended_under_steady_traffic_and_gives_way_to_others() {
    let ebb = partitioned("timestamptz").await;
    ebb.db.execute("CREATE TABLE public.other (id int)").await;
    ebb.set_clock("2026-04-10 00:00:00+00").await;
    ebb.apply(&policy(MONTHLY)).await;
    maintain(&ebb).await;
    let (mut reader, mut other) = (ebb.client().await, ebb.client().await);
    execute(&mut reader, "BEGIN; SELECT count(*) FROM public.p").await;
    execute(&mut other, "SET statement_timeout = '300ms'").await;
    let lost =
        sqlx::raw_sql("ALTER TABLE public.p DETACH PARTITION public.p_2026_04 CONCURRENTLY").execute(&mut other).await;
    assert!(lost.is_err());
    execute(&mut reader, "COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM public.other").await;
    let pid: i32 = fetch(&mut reader, "SELECT pg_backend_pid()").await;
    let traffic = Traffic::of(&ebb, &["SELECT count(*), pg_sleep(0.15) FROM public.other"; 4]).await;
    let engine = ebb.another(ebb.db.open());
    let run = tokio::spawn(async move { run_once(&engine, &["p"]).await });
    // It waits for whoever still sees it, whatever they look at, and lets who wants the partition itself go first.
    ebb.until(&format!(
        "SELECT bool_or({pid} = ANY (pg_blocking_pids(pid))) FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE%FINALIZE'"
    ))
    .await;
    let began = Instant::now();
    execute(&mut other, "SET statement_timeout = '30s'; SELECT count(*) FROM public.p_2026_04").await;
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(3), "{waited:?}");
    execute(&mut reader, "COMMIT").await;
    let finished = run.await.unwrap().unwrap();
    assert!(!finished.has_failed(), "{finished:?}");
    traffic.ends().await;
    ebb.db.execute("INSERT INTO public.p VALUES (1, '2026-04-11')").await;
}
