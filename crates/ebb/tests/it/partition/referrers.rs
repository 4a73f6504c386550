//! Tables that others refer to: the foreign keys move with them, and back, and at no moment does a row refer to nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ebb::partition::adopt::{Progress, Request, adopt, preflight};
use ebb::partition::{finish, rollback, split};
use ebb_testkit::TestDatabase;
use sqlx::AssertSqlSafe;

use crate::harness::{Ebb, execute};

fn request() -> Request {
    Request { move_foreign_keys: true, ..super::request("public.t") }
}

/// Every foreign key, column and trigger of the tables that people made.
const KEYS: &str = "SELECT string_agg(line, E'\\n' ORDER BY line) FROM (
    SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated, obj_description(oid, 'pg_constraint')) AS line
    FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT concat_ws(' ', attrelid::regclass, attname, attnotnull) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
    UNION ALL SELECT concat_ws(' ', tgrelid::regclass, tgname) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace) x";

async fn keys(db: &TestDatabase) -> String {
    db.scalar(KEYS).await
}

/// A statement that must be refused by the foreign key.
async fn refused(db: &TestDatabase, sql: &str) {
    let error = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(db.pool()).await.expect_err(sql);
    let code = error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
    assert_eq!(code.as_deref(), Some("23503"), "{sql}: {error}");
}

/// Writes, until told to stop, rows that refer to each other, and tries what must be refused.
async fn write(db: Arc<TestDatabase>, writer: i64, over: Arc<AtomicBool>, written: Arc<AtomicU64>) {
    let mut n = 0_i64;
    while !over.load(Ordering::Relaxed) {
        n += 1;
        let id = writer * 10_000_000 + n;
        let at = if n % 3 == 0 && written.load(Ordering::Relaxed) > 1_000_000 { "2027-01-15" } else { "2026-11-15" };
        let run = async |sql: String| {
            if let Err(error) = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(db.pool()).await {
                panic!("a writer was refused: {error}\nin {sql}");
            }
        };
        run(format!(
            "BEGIN; INSERT INTO public.t (id, created_at) VALUES ({id}, '{at}'); INSERT INTO public.child (t_id) VALUES ({id}), (NULL); \
             INSERT INTO public.strict (t) VALUES ({id}); COMMIT"
        ))
        .await;
        match n % 4 {
            0 => refused(&db, &format!("DELETE FROM public.t WHERE id = {id}")).await,
            1 => refused(&db, &format!("INSERT INTO public.child (t_id) VALUES (-{id})")).await,
            2 => {
                run(format!(
                    "BEGIN; DELETE FROM public.strict WHERE t = {id}; DELETE FROM public.t WHERE id = {id}; COMMIT"
                ))
                .await
            }
            _ => run(format!("UPDATE public.child SET t_id = {} WHERE t_id = {id}", 1 + n % 100)).await,
        }
        written.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
}

async fn no_orphans(db: &TestDatabase, when: &str) {
    let orphans: i64 = db
        .scalar(
            "SELECT (SELECT count(*) FROM public.child c WHERE t_id IS NOT NULL AND NOT EXISTS (SELECT FROM public.t WHERE t.id = c.t_id))
                  + (SELECT count(*) FROM public.strict s WHERE NOT EXISTS (SELECT FROM public.t WHERE t.id = s.t))",
        )
        .await;
    assert_eq!(orphans, 0, "{when}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_others_refer_to_is_adopted_split_and_rolled_back_under_writes_without_an_orphan() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (id bigint PRIMARY KEY, created_at timestamptz NOT NULL);
         CREATE TABLE public.child (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, t_id bigint REFERENCES public.t ON DELETE CASCADE);
         CREATE TABLE public.strict (t bigint NOT NULL REFERENCES public.t);
         COMMENT ON CONSTRAINT child_t_id_fkey ON public.child IS 'whose';
         CREATE INDEX ON public.child (t_id); CREATE INDEX ON public.strict (t);
         INSERT INTO public.t SELECT n, timestamptz '2026-06-01' + n * interval '1 minute' FROM generate_series(1, 5000) n;
         INSERT INTO public.child (t_id) SELECT n FROM generate_series(1, 5000) n; INSERT INTO public.strict SELECT n FROM generate_series(1, 5000) n",
    )
    .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let before = keys(&ebb.db).await;
    let Ebb { db, engine, .. } = ebb;
    let (db, over, written) = (Arc::new(db), Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (1..=3).map(|n| tokio::spawn(write(db.clone(), n, over.clone(), written.clone()))).collect();
    let looks = tokio::spawn({
        let (db, over) = (db.clone(), over.clone());
        async move {
            while !over.load(Ordering::Relaxed) {
                no_orphans(&db, "while it happens").await;
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
    more(20).await;
    adopt(engine.database(), &request(), "test", &mut |_| ()).await.unwrap();
    let moved: Vec<String> = sqlx::query_scalar(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE confrelid = 'public.t'::regclass AND conparentid = 0 AND convalidated ORDER BY conname",
    )
    .fetch_all(db.pool())
    .await
    .unwrap();
    assert_eq!(
        moved,
        [
            "FOREIGN KEY (t_id, t_id_created_at) REFERENCES t(id, created_at) ON DELETE CASCADE",
            "FOREIGN KEY (t, t_created_at) REFERENCES t(id, created_at)"
        ]
    );
    // From here on rows of the later month, which a rollback must bring back with those that refer to them.
    written.fetch_add(2_000_000, Ordering::Relaxed);
    more(60).await;
    no_orphans(&db, "adopted").await;
    let unfilled: i64 =
        db.scalar("SELECT count(*) FROM public.child c JOIN public.t ON t.id = c.t_id WHERE c.t_id_created_at IS DISTINCT FROM t.created_at").await;
    assert_eq!(unfilled, 0, "every row carries the time of what it refers to");
    assert!(db.scalar::<i64>("SELECT count(*) FROM public.t_2027_01").await > 0, "new rows are where they belong");
    let wanted = split::Request { table: "public.t".into(), ..Default::default() };
    let made = split::split(engine.database(), &wanted, &mut |_| ()).await.unwrap();
    assert!(made.parts.len() > 2, "{:?}", made.parts);
    more(20).await;
    no_orphans(&db, "split").await;
    let proven: i64 = db
        .scalar("SELECT count(*) FROM pg_constraint WHERE confrelid = 'public.t'::regclass AND conparentid = 0 AND convalidated")
        .await;
    assert_eq!(proven, 2, "the keys are back and proven");
    rollback(engine.database(), "public.t", "test", &mut |_| ()).await.unwrap();
    more(20).await;
    over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    looks.await.unwrap();
    no_orphans(&db, "back").await;
    finish(engine.database(), "public.t", &mut |_| ()).await.unwrap();
    assert_eq!(keys(&db).await, before, "the keys are what they were");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_moves_past_the_filling_has_its_column_all_the_same() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL); INSERT INTO public.t VALUES (1, '2026-11-01');
         CREATE TABLE public.c (id int, t int REFERENCES public.t, note text) WITH (autovacuum_enabled = false);
         INSERT INTO public.c SELECT n, 1, repeat('x', 100) FROM generate_series(1, 20000) n; DELETE FROM public.c WHERE id <= 10000",
    )
    .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    // Free space at the front, where the filling has been when the rows behind it move there.
    ebb.db.execute("VACUUM public.c").await;
    let (pool, mut moved, handle) = (ebb.db.pool().clone(), false, tokio::runtime::Handle::current());
    let mut watch = |progress| {
        if let Progress::Share(share, words) = progress
            && words.ends_with("pages")
            && share > 0.2
            && !moved
        {
            moved = true;
            let update = sqlx::query("UPDATE public.c SET note = repeat('y', 100) WHERE id > 15000").execute(&pool);
            tokio::task::block_in_place(|| handle.block_on(update)).unwrap();
        }
    };
    adopt(ebb.engine.database(), &request(), "test", &mut watch).await.unwrap();
    assert!(moved);
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM public.c WHERE t_created_at = '2026-11-01'").await, 10000);
}

#[tokio::test]
async fn keys_of_every_kind_move_and_go_on_doing_what_they_did() {
    let role = format!("writer_{}", uuid::Uuid::new_v4().simple());
    let ebb = Ebb::with(&format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA public TO {role};
         CREATE TABLE public.t (site int, \"Key\" text, created_at timestamptz NOT NULL, PRIMARY KEY (site, \"Key\"), UNIQUE (site, created_at));
         CREATE TABLE public.by_two (n int, site int, \"Its\" text, note text,
             CONSTRAINT two FOREIGN KEY (site, \"Its\") REFERENCES public.t ON UPDATE CASCADE ON DELETE SET NULL);
         CREATE TABLE public.by_time (site int, at timestamptz, CONSTRAINT timed FOREIGN KEY (site, at) REFERENCES public.t (site, created_at) ON DELETE CASCADE);
         CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.note := 'touched'; RETURN NEW; END$$;
         CREATE TRIGGER note BEFORE UPDATE ON public.by_two FOR EACH ROW EXECUTE FUNCTION public.note();
         GRANT INSERT, SELECT ON public.by_two TO {role};
         INSERT INTO public.t VALUES (1, 'a', '2026-01-01Z'), (1, 'b', '2026-02-01Z'), (2, 'c', '2026-03-01Z');
         INSERT INTO public.by_two VALUES (1, 1, 'a'), (2, 1, 'b'), (3, NULL, NULL), (4, 2, 'c');
         INSERT INTO public.by_time VALUES (1, '2026-01-01Z'), (2, '2026-03-01Z')"
    ))
    .await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    let before = keys(&ebb.db).await;
    let database = ebb.engine.database();
    adopt(database, &request(), "test", &mut |_| ()).await.unwrap();
    let untouched: i64 = ebb.db.scalar("SELECT count(*) FROM public.by_two WHERE note IS NULL").await;
    assert_eq!(untouched, 4, "filling sets off no triggers");
    // Somebody who may not read the table refers to it as before.
    let mut client = ebb.client().await;
    execute(&mut client, &format!("SET ROLE {role}; INSERT INTO public.by_two VALUES (5, 1, 'b')")).await;
    execute(&mut client, "RESET ROLE").await;
    for state in ["adopted", "back"] {
        refused(&ebb.db, "INSERT INTO public.by_two VALUES (6, 9, 'z')").await;
        refused(&ebb.db, "INSERT INTO public.by_time VALUES (9, '2026-01-01Z')").await;
        ebb.db.execute("INSERT INTO public.t VALUES (7, 'new', '2027-01-10Z'); INSERT INTO public.by_two VALUES (7, 7, 'new'); INSERT INTO public.by_time VALUES (7, '2027-01-10Z')").await;
        ebb.db.execute("UPDATE public.t SET \"Key\" = 'newer' WHERE site = 7").await;
        let followed: Option<String> = ebb.db.scalar("SELECT \"Its\" FROM public.by_two WHERE n = 7").await;
        assert_eq!(followed.as_deref(), Some("newer"), "{state}: ON UPDATE CASCADE");
        ebb.db.execute("DELETE FROM public.t WHERE site = 7").await;
        let left: i64 =
            ebb.db.scalar("SELECT count(*) FROM public.by_two WHERE n = 7 AND site IS NULL AND \"Its\" IS NULL").await;
        assert_eq!(left, 1, "{state}: ON DELETE SET NULL");
        assert_eq!(
            ebb.db.scalar::<i64>("SELECT count(*) FROM public.by_time WHERE site = 7").await,
            0,
            "{state}: ON DELETE CASCADE"
        );
        ebb.db.execute("DELETE FROM public.by_two WHERE n = 7").await;
        if state == "adopted" {
            rollback(database, "public.t", "test", &mut |_| ()).await.unwrap();
            finish(database, "public.t", &mut |_| ()).await.unwrap();
            assert_eq!(keys(&ebb.db).await, before, "the keys are what they were");
        }
    }
    ebb.db.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_key_that_cannot_move_is_named_with_the_reason_and_nothing_is_changed() {
    let ebb = Ebb::with(
        "CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL, before int REFERENCES public.t);
         CREATE TABLE public.later (t int REFERENCES public.t DEFERRABLE);
         CREATE TABLE public.taken (t int REFERENCES public.t, t_created_at text);
         CREATE TABLE public.parts (t int REFERENCES public.t) PARTITION BY LIST (t);
         CREATE TABLE public.defaults (t int DEFAULT 1 REFERENCES public.t ON DELETE SET DEFAULT);
         CREATE TABLE public.unproven (t int); ALTER TABLE public.unproven ADD FOREIGN KEY (t) REFERENCES public.t NOT VALID",
    )
    .await;
    let before = keys(&ebb.db).await;
    let look = async |request: Request| {
        let mut tx = ebb.engine.database().read().await.unwrap();
        let found = preflight(&mut tx, &request).await.unwrap();
        assert!(found.plan.is_none());
        found.findings.refusals.iter().map(|one| format!("{} => {}\n", one.what, one.fix)).collect::<String>()
    };
    let said = look(request()).await;
    for part in [
        "t_before_fkey of public.t cannot move: it refers to its own table",
        "later_t_fkey of public.later cannot move: it is DEFERRABLE",
        "taken_t_fkey of public.taken cannot move: its table has a column of the name that would be added => rename t_created_at",
        "parts_t_fkey of public.parts cannot move: its table is partitioned",
        "defaults_t_fkey of public.defaults cannot move: it is MATCH FULL or sets defaults",
        "unproven_t_fkey of public.unproven cannot move: it is NOT VALID",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    let said = look(Request { move_foreign_keys: false, ..request() }).await;
    assert!(said.contains("later_t_fkey of public.later references this table => "), "{said}");
    assert!(said.contains("--move-foreign-keys"), "{said}");
    assert_eq!(keys(&ebb.db).await, before);
}
