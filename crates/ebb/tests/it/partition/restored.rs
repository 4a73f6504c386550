//! What Ebb knows of tables after a dump was restored elsewhere: there their numbers are somebody else's.

use ebb::partition::adopt::{Progress, adopt};
use ebb::partition::{finish, list, rollback, split};
use ebb_testkit::{empty_database, server};

use super::request;
use crate::harness::Ebb;

const POLICY: &str = "[[partition]]\nname = \"p\"\ntable = \"public.p\"\ncolumn = \"at\"\nby = \"month\"\nahead = 2\n\
                      keep = \"1mo\"\nexpired = \"detach\"\ndetached_for = \"30d\"\n";

fn split_request() -> split::Request {
    split::Request { table: "public.t".into(), ..split::Request::default() }
}

/// A database in which a partition of `p` (January 2026) is out since the tenth of March.
async fn with_one_out() -> Ebb {
    let ebb =
        Ebb::with("CREATE TABLE public.p (id bigint, at timestamptz NOT NULL, v text) PARTITION BY RANGE (at)").await;
    ebb.set_clock("2026-01-10 00:00:00+00").await;
    ebb.apply(POLICY).await;
    ebb.once("p").await;
    ebb.db.execute("INSERT INTO public.p VALUES (1, '2026-01-15')").await;
    ebb.set_clock("2026-03-10 00:00:00+00").await;
    ebb.once("p").await;
    assert_eq!(ebb.list("relation", "ebb.detached").await, "public.p_2026_01");
    ebb
}

/// The same after a dump and a restore; none where there is no `pg_dump`.
async fn restored(old: &Ebb) -> Option<Ebb> {
    let new = empty_database().await;
    if !old.db.restore_into(&new, server(), &[]) {
        return None;
    }
    Some(Ebb::on(new).await)
}

/// Somebody else's table gets the number that the partition had; its rows are old enough to go.
const STRANGER: &str = "CREATE TABLE public.invoices (id int, at timestamptz NOT NULL);
    INSERT INTO public.invoices VALUES (1, '2025-06-01'), (2, '2025-07-01')";

async fn outside(ebb: &Ebb) -> Vec<String> {
    let mut tx = ebb.db.pool().begin().await.unwrap();
    list(&mut tx, Some("p")).await.unwrap()[0].detached.iter().map(|one| one.partition.clone()).collect()
}

#[tokio::test]
async fn a_restored_dump_drops_its_own_partition_and_nobody_elses_table() {
    let Some(ebb) = restored(&with_one_out().await).await else { return };
    ebb.db.execute(STRANGER).await;
    ebb.db.execute("UPDATE ebb.detached SET relid = 'public.invoices'::regclass").await;
    assert_eq!(outside(&ebb).await, ["public.p_2026_01"]);
    ebb.set_clock("2026-04-08 00:00:00+00").await;
    ebb.once("p").await;
    assert_eq!(ebb.list("id", "public.p_2026_01").await, "1", "thirty days are not over");
    ebb.set_clock("2026-04-10 00:00:00+00").await;
    let runs = ebb.once("p").await.runs;
    assert_eq!(runs[0].rows, 1, "{runs:?}");
    assert_eq!(ebb.list("id", "public.invoices").await, "1,2");
    assert!(ebb.db.scalar::<bool>("SELECT to_regclass('public.p_2026_01') IS NULL").await);
    let dropped: String = ebb.db.scalar("SELECT relation FROM ebb.audit WHERE action = 'drop_partition'").await;
    assert_eq!(dropped, "public.p_2026_01");
    assert_eq!(ebb.list("relation", "ebb.detached").await, "public.p_2026_02", "which left meanwhile");
}

#[tokio::test]
async fn numbers_that_changed_places_find_their_partitions() {
    let old = with_one_out().await;
    old.set_clock("2026-04-05 00:00:00+00").await;
    old.db.execute("INSERT INTO public.p VALUES (2, '2026-02-15')").await;
    old.once("p").await;
    assert_eq!(old.list("relation", "ebb.detached").await, "public.p_2026_01,public.p_2026_02");
    let Some(ebb) = restored(&old).await else { return };
    // Each has the number of the other by now.
    ebb.db
        .execute(
            "UPDATE ebb.detached SET relid = 1 WHERE relation = 'public.p_2026_01';
             UPDATE ebb.detached SET relid = 'public.p_2026_01'::regclass WHERE relation = 'public.p_2026_02';
             UPDATE ebb.detached SET relid = 'public.p_2026_02'::regclass WHERE relation = 'public.p_2026_01'",
        )
        .await;
    ebb.set_clock("2026-04-10 00:00:00+00").await;
    ebb.once("p").await;
    assert!(ebb.db.scalar::<bool>("SELECT to_regclass('public.p_2026_01') IS NULL").await);
    assert_eq!(ebb.list("id", "public.p_2026_02").await, "2", "out since five days");
    assert_eq!(ebb.list("relid::regclass::text", "ebb.detached").await, "p_2026_02");
}

#[tokio::test]
async fn what_a_dump_left_behind_is_forgotten_aloud() {
    let old = with_one_out().await;
    let new = empty_database().await;
    if !old.db.restore_into(&new, server(), &["--exclude-table=public.p_2026_01"]) {
        return;
    }
    let ebb = Ebb::on(new).await;
    ebb.db.execute(STRANGER).await;
    ebb.db.execute("UPDATE ebb.detached SET relid = 'public.invoices'::regclass").await;
    ebb.set_clock("2026-06-10 00:00:00+00").await;
    let runs = ebb.once("p").await.runs;
    let note = runs[0].note.clone().unwrap_or_default();
    assert!(note.contains("public.p_2026_01") && note.contains("is not in this database"), "{runs:?}");
    assert_eq!(ebb.list("id", "public.invoices").await, "1,2");
    assert!(!outside(&ebb).await.contains(&"public.p_2026_01".to_owned()));
}

#[tokio::test]
async fn a_partition_that_got_another_name_goes_in_time_here_and_in_a_restored_dump() {
    let old = with_one_out().await;
    old.db.execute("ALTER TABLE public.p_2026_01 RENAME TO old_january").await;
    old.once("p").await;
    assert_eq!(outside(&old).await, ["public.old_january"]);
    let restored = restored(&old).await;
    for ebb in std::iter::once(old).chain(restored) {
        ebb.set_clock("2026-04-10 00:00:00+00").await;
        ebb.once("p").await;
        assert!(ebb.db.scalar::<bool>("SELECT to_regclass('public.old_january') IS NULL").await);
    }
}

#[tokio::test]
async fn a_table_with_rows_of_another_time_is_not_the_partition_and_stays() {
    let ebb = with_one_out().await;
    // Somebody dropped the partition, and gave its name to another.
    ebb.db.execute("DROP TABLE public.p_2026_01").await;
    ebb.db.execute(&STRANGER.replace("invoices", "p_2026_01")).await;
    ebb.set_clock("2026-04-10 00:00:00+00").await;
    let runs = ebb.once("p").await.runs;
    assert_eq!(ebb.list("id", "public.p_2026_01").await, "1,2");
    let note = runs[0].note.clone().unwrap_or_default();
    assert!(note.contains("public.p_2026_01 has rows from outside of 2026-01-01"), "{runs:?}");
}

const TABLE: &str = "CREATE TABLE public.t (id bigint PRIMARY KEY, created_at timestamptz NOT NULL);
    CREATE INDEX ON public.t (created_at);
    INSERT INTO public.t SELECT n, timestamptz '2026-10-01' + n * interval '1 hour' FROM generate_series(1, 900) n";

#[tokio::test]
async fn an_adoption_is_taken_back_in_a_restored_dump_and_a_stranger_is_left_alone() {
    for is_split in [false, true] {
        let old = Ebb::with(TABLE).await;
        old.set_clock("2026-11-15 12:00:00+00").await;
        adopt(old.engine.database(), &request("public.t"), "test", &mut |_| ()).await.unwrap();
        old.db.execute("INSERT INTO public.t VALUES (1000, '2026-12-15')").await;
        if is_split {
            split::split(old.engine.database(), &split_request(), &mut |_| ()).await.unwrap();
        }
        let Some(ebb) = restored(&old).await else { return };
        ebb.db
            .execute("CREATE TABLE public.invoices (id int); CREATE TABLE public.more () INHERITS (public.invoices)")
            .await;
        ebb.db.execute("INSERT INTO public.more VALUES (1)").await;
        for table in ["ebb.adoption", "ebb.split"] {
            ebb.db.execute(&format!("UPDATE {table} SET relid = 'public.invoices'::regclass")).await;
        }
        rollback(ebb.engine.database(), "public.t", "test", &mut |_| ()).await.unwrap();
        let whole: bool = ebb.db.scalar("SELECT relkind = 'r' FROM pg_class WHERE oid = 'public.t'::regclass").await;
        assert!(whole);
        assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ONLY public.t").await, 901);
        assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ONLY public.more").await, 1);
        finish(ebb.engine.database(), "public.t", &mut |_| ()).await.unwrap();
        assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM pg_class WHERE relname ~ '^t_|^ebb_'  AND relnamespace = 'public'::regnamespace AND relkind = 'r'").await, 0);
    }
}

#[tokio::test]
async fn a_split_that_a_dump_cut_off_is_taken_back_and_not_gone_on_with() {
    let old = Ebb::with(TABLE).await;
    old.set_clock("2026-11-15 12:00:00+00").await;
    adopt(old.engine.database(), &request("public.t"), "test", &mut |_| ()).await.unwrap();
    let engine = old.another(old.db.open());
    let killed = tokio::spawn(async move {
        let mut watch =
            |progress| assert!(!matches!(progress, Progress::Step(4.., ..)), "killed here, as the test wants it");
        split::split(engine.database(), &split_request(), &mut watch).await
    });
    assert!(killed.await.unwrap_err().is_panic());
    let Some(ebb) = restored(&old).await else { return };
    let database = ebb.engine.database();
    let error = split::split(database, &split_request(), &mut |_| ()).await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("was restored from"), "{error}");
    assert!(error.hint().unwrap().contains("ebb partition rollback public.t"), "{error:?}");
    rollback(database, "public.t", "test", &mut |_| ()).await.unwrap();
    split::split(database, &split_request(), &mut |_| ()).await.unwrap();
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.t").await, 900);
}
