//! Foreign keys out to a partitioned table, of which the server keeps a row more for each of its partitions: one key is carried
//! over, and whoever adds a partition there is in nobody's way.

use ebb::partition::adopt::{Progress, adopt};
use ebb::partition::split::{self, split};
use ebb::partition::{finish, rollback};
use sqlx::AssertSqlSafe;

use super::request;
use crate::harness::Ebb;

const TABLES: &str = "CREATE TABLE public.r (id int PRIMARY KEY) PARTITION BY RANGE (id);
    CREATE TABLE public.r0 PARTITION OF public.r FOR VALUES FROM (0) TO (100); CREATE TABLE public.r1 PARTITION OF public.r FOR VALUES FROM (100) TO (200);
    INSERT INTO public.r VALUES (0), (100);
    CREATE TABLE public.t (id bigint PRIMARY KEY, r int REFERENCES public.r, created_at timestamptz NOT NULL);
    COMMENT ON CONSTRAINT t_r_fkey ON public.t IS 'where it is from';
    INSERT INTO public.t SELECT n, n % 2 * 100, timestamptz '2026-09-01' + n * interval '6 hours' FROM generate_series(1, 200) n";

/// The keys that people know, with their comments, of the table and of its partitions.
async fn keys(ebb: &Ebb) -> String {
    let keys = "SELECT string_agg(concat_ws(' ', c.relname, k.conname, pg_get_constraintdef(k.oid), k.convalidated, obj_description(k.oid, 'pg_constraint')), E'\\n' ORDER BY c.relname, k.conname)
        FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
        WHERE k.contype = 'f' AND c.relname ~ '^t' AND NOT EXISTS (SELECT FROM pg_constraint p WHERE p.oid = k.conparentid AND p.conrelid = k.conrelid)";
    ebb.db.scalar(keys).await
}

/// A partition more of the table that is referred to, with a row.
async fn grow(ebb: &Ebb, n: u32) {
    let (from, to) = (n * 100, n * 100 + 100);
    ebb.db.execute(&format!("CREATE TABLE public.r{n} PARTITION OF public.r FOR VALUES FROM ({from}) TO ({to}); INSERT INTO public.r VALUES ({from})")).await;
}

/// Whether the key lets in what is there, and nothing else.
async fn holds(ebb: &Ebb, id: u32, r: u32) {
    ebb.db.execute(&format!("INSERT INTO public.t VALUES ({id}, {r}, '2026-10-05')")).await;
    let lost = format!("INSERT INTO public.t VALUES (-{id}, {r} + 1, '2026-10-05')");
    let lost = sqlx::raw_sql(AssertSqlSafe(lost)).execute(ebb.db.pool()).await.unwrap_err();
    assert_eq!(lost.as_database_error().unwrap().code().unwrap(), "23503", "{lost}");
}

/// Stops where a step with these words begins, as a process that is killed.
fn killed_at(words: &'static str) -> impl FnMut(Progress) + Send {
    move |progress| match progress {
        Progress::Step(_, _, title) if title.contains(words) => panic!("killed here, as the test wants it"),
        _ => {}
    }
}

#[tokio::test]
async fn a_key_into_a_partitioned_table_is_one_key_there_and_back() {
    let ebb = Ebb::with(TABLES).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let (before, database) = (keys(&ebb).await, ebb.engine.database());
    let engine = ebb.another(ebb.db.open());
    let killed = tokio::spawn(async move {
        adopt(engine.database(), &request("public.t"), "test", &mut killed_at("swap the keys")).await
    });
    assert!(killed.await.is_err_and(|error| error.is_panic()));
    grow(&ebb, 2).await;
    adopt(database, &request("public.t"), "test", &mut |_| ()).await.unwrap();
    holds(&ebb, 1002, 200).await;

    let wanted = || split::Request { table: "public.t".into(), ..split::Request::default() };
    let engine = ebb.another(ebb.db.open());
    let killed =
        tokio::spawn(
            async move { split(engine.database(), &wanted(), &mut killed_at("put the parts in its place")).await },
        );
    assert!(killed.await.is_err_and(|error| error.is_panic()));
    grow(&ebb, 3).await;
    split(database, &wanted(), &mut |_| ()).await.unwrap();
    let now = keys(&ebb).await;
    assert!(now.contains("t_2026_10 t_r_fkey") && !now.contains("t_r_fkey1"), "a key a part:\n{now}");
    grow(&ebb, 4).await;
    holds(&ebb, 1003, 300).await;
    holds(&ebb, 1004, 400).await;

    rollback(database, "public.t", "test", &mut |_| ()).await.unwrap();
    finish(database, "public.t", &mut |_| ()).await.unwrap();
    assert_eq!(keys(&ebb).await, before);
    holds(&ebb, 1005, 0).await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.t").await, 204);
}
