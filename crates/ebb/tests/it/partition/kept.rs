//! What a table has it keeps: adopting and rolling back carry it over as it is at that moment, or refuse and say why.

use ebb::partition::adopt::{Progress, Request, adopt, preflight};
use ebb::partition::{RolledBack, finish, rollback};
use ebb::policy::Period;
use sqlx::AssertSqlSafe;

use super::{key, request};
use crate::harness::{Ebb, execute, fetch};

async fn with(sql: &str) -> Ebb {
    let ebb = Ebb::with(sql).await;
    ebb.set_clock("2026-11-15 12:00:00+00").await;
    ebb
}

async fn adopted(ebb: &Ebb, request: &Request) {
    adopt(ebb.engine.database(), request, "test", &mut |_| ()).await.unwrap();
}

/// Runs until a step with these words begins, and is gone then, as a process that is killed.
async fn killed_at(ebb: &Ebb, words: &'static str, request: Option<Request>) {
    let engine = ebb.another(ebb.db.open());
    let task = tokio::spawn(async move {
        let mut watch = |progress| match progress {
            Progress::Step(_, _, title) if title.contains(words) => panic!("killed here, as the test wants it"),
            _ => {}
        };
        match request {
            Some(request) => adopt(engine.database(), &request, "test", &mut watch).await.map(|_| ()),
            None => rollback(engine.database(), "public.t", "test", &mut watch).await.map(|_| ()),
        }
    });
    assert!(task.await.is_err_and(|error| error.is_panic()), "no step is called {words}");
}

async fn back(ebb: &Ebb) -> ebb::Result<RolledBack> {
    rollback(ebb.engine.database(), "public.t", "test", &mut |_| ()).await
}

async fn refused(ebb: &Ebb, request: &Request) -> String {
    let mut tx = ebb.engine.database().read().await.unwrap();
    let found = preflight(&mut tx, request).await.unwrap();
    tx.rollback().await.unwrap();
    found.findings.refusals.iter().map(|one| format!("{} => {}\n", one.what, one.fix)).collect()
}

/// What the server says to a statement: nothing, or its SQLSTATE.
async fn says(ebb: &Ebb, sql: &str) -> String {
    match sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(ebb.db.pool()).await {
        Ok(_) => String::new(),
        Err(error) => error.as_database_error().unwrap().code().unwrap().into_owned(),
    }
}

#[tokio::test]
async fn the_guard_sees_a_row_as_it_is_stored_whoever_writes_it() {
    let ebb = with(
        "CREATE TABLE public.t (k text, moment timestamptz, raw bytea, size int, half int GENERATED ALWAYS AS (size / 2) STORED, v text, created_at timestamptz NOT NULL,
             PRIMARY KEY (k), UNIQUE (half, moment, raw));
         CREATE FUNCTION public.lower_key() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.k := lower(NEW.k); RETURN NEW; END';
         CREATE TRIGGER zzz BEFORE INSERT OR UPDATE ON public.t FOR EACH ROW EXECUTE FUNCTION public.lower_key();
         CREATE FUNCTION public.keep_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF OLD.v = ''kept'' THEN RETURN NULL; END IF; RETURN OLD; END';
         CREATE TRIGGER zzd BEFORE DELETE ON public.t FOR EACH ROW EXECUTE FUNCTION public.keep_it();
         CREATE TABLE public.u (n int, k numeric UNIQUE, i interval UNIQUE, e text, late int UNIQUE DEFERRABLE, created_at timestamptz NOT NULL);
         CREATE UNIQUE INDEX u_e ON public.u (e) WHERE n > 0; CREATE UNIQUE INDEX u_lower ON public.u (lower(e))",
    )
    .await;
    let has_citext = "SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'";
    if ebb.db.scalar::<i64>(has_citext).await > 0 {
        ebb.db.execute("CREATE EXTENSION citext; ALTER TABLE public.u ADD COLUMN ci citext UNIQUE").await;
        let said = refused(&ebb, &Request { guard: key(&["ci"]), ..request("public.u") }).await;
        assert!(said.contains("--guard ci cannot be kept"), "{said}");
    }
    for column in ["k", "i", "e", "lower(e)", "late"] {
        let said = refused(&ebb, &Request { guard: key(&[column]), ..request("public.u") }).await;
        assert!(said.contains(&format!("--guard {column} cannot be kept")), "{column}: {said}");
    }
    adopted(&ebb, &Request { guard: key(&["k"]), ..request("public.t") }).await;
    let put =
        |k: &str, v: &str, at: &str| format!("INSERT INTO public.t (k, v, created_at) VALUES ('{k}', '{v}', '{at}')");
    assert_eq!(says(&ebb, &put("ABC", "", "2026-11-20")).await, "");
    assert_eq!(says(&ebb, &put("abc", "", "2027-01-20")).await, "23505", "another trigger changes the key");
    assert_eq!(says(&ebb, &put("s", "kept", "2026-11-20")).await, "");
    ebb.db.execute("DELETE FROM public.t WHERE k = 's'").await;
    assert_eq!(says(&ebb, &put("s", "", "2027-01-20")).await, "23505", "another trigger keeps the row");
    let at = async || ebb.db.scalar::<String>("SELECT result #>> '{}' FROM ebb.once_key WHERE key = '[\"abc\"]'").await;
    ebb.db.execute("UPDATE public.t SET created_at = '2026-11-25' WHERE k = 'abc'").await;
    assert!(at().await.starts_with("2026-11-25"), "a row that changes its time tells the new one");
    ebb.db.execute("UPDATE public.t SET created_at = '2027-01-25' WHERE k = 'abc'").await;
    assert!(at().await.starts_with("2027-01-25"), "also in another partition");
    ebb.db.execute("TRUNCATE public.t").await;
    assert_eq!(says(&ebb, &put("s", "", "2027-01-20")).await, "", "a table that is truncated gives its keys back");
    assert!(matches!(back(&ebb).await.unwrap(), RolledBack::Back(1)));
    finish(ebb.engine.database(), "public.t", &mut |_| ()).await.unwrap();
    // The same instant and the same bytes, written by sessions that print them differently.
    adopted(&ebb, &Request { guard: key(&["half", "moment", "raw"]), ..request("public.t") }).await;
    let mut client = ebb.client().await;
    execute(&mut client, "SET TimeZone = 'Asia/Tokyo'; SET bytea_output = 'escape'").await;
    let same = |k: &str, size: i32, at: &str| {
        format!(
            "INSERT INTO public.t (k, moment, raw, size, created_at) VALUES ('{k}', '2026-01-01 00:00Z', '\\x00ff', {size}, '{at}')"
        )
    };
    execute(&mut client, &same("x", 8, "2026-11-20")).await;
    assert_eq!(says(&ebb, &same("y", 9, "2027-01-20")).await, "23505", "half of it is generated, and the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_moves_past_the_backfill_is_claimed_all_the_same() {
    let ebb = with(
        "CREATE TABLE public.t (k int PRIMARY KEY, v text, created_at timestamptz NOT NULL) WITH (autovacuum_enabled = false);
         INSERT INTO public.t SELECT n, repeat('x', 100), '2025-06-01' FROM generate_series(1, 40000) n; DELETE FROM public.t WHERE k <= 20000",
    )
    .await;
    // Free space at the front, where the backfill has been when the rows behind it move there.
    ebb.db.execute("VACUUM public.t").await;
    let (pool, mut moved) = (ebb.db.pool().clone(), false);
    let handle = tokio::runtime::Handle::current();
    let mut watch = |progress| {
        if let Progress::Share(share, words) = progress
            && words.ends_with("pages")
            && share > 0.2
            && !moved
        {
            moved = true;
            let update = sqlx::query("UPDATE public.t SET v = repeat('y', 100) WHERE k > 30000").execute(&pool);
            tokio::task::block_in_place(|| handle.block_on(update)).unwrap();
        }
    };
    let wanted = Request { guard: key(&["k"]), keep: Some("13mo".parse().unwrap()), ..request("public.t") };
    adopt(ebb.engine.database(), &wanted, "test", &mut watch).await.unwrap();
    assert!(moved);
    // They are older than they are kept, but there: so their keys are.
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.once_key").await, 20000);
    assert_eq!(says(&ebb, "INSERT INTO public.t VALUES (35000, '', '2027-01-20')").await, "23505");
}

#[tokio::test]
async fn keys_of_expressions_and_of_some_rows_come_back_and_hold_while_rows_are_drained() {
    let ebb = with(
        "CREATE TABLE public.t (id int PRIMARY KEY, email text, gone boolean DEFAULT false, created_at timestamptz NOT NULL);
         CREATE UNIQUE INDEX t_lower ON public.t (lower(email)) WHERE NOT gone;
         CREATE TABLE public.log (what text);
         CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.log VALUES (TG_OP || coalesce(NEW.id, OLD.id)); RETURN NULL; END';
         CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON public.t FOR EACH ROW EXECUTE FUNCTION public.note();
         INSERT INTO public.t VALUES (1, 'a@x', false, '2026-11-01'), (2, 'A@x', true, '2026-11-01'), (3, 'a@x', true, '2026-11-01')",
    )
    .await;
    adopted(&ebb, &request("public.t")).await;
    ebb.db.execute("INSERT INTO public.t VALUES (10, 'b@x', false, '2027-01-10'), (11, 'A@X', true, '2027-01-10'); DELETE FROM public.log").await;
    // Equal where the index does not look: nothing stands in the way.
    killed_at(&ebb, "move the rows of", None).await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ONLY public.t").await, 3, "the others are not drained yet");
    assert_eq!(says(&ebb, "UPDATE public.t SET id = 1 WHERE id = 10").await, "23505", "of a row in a child");
    assert_eq!(says(&ebb, "UPDATE public.t SET gone = false WHERE id = 11").await, "23505", "it comes into the index");
    assert_eq!(says(&ebb, "INSERT INTO public.t VALUES (12, 'B@X', false, '2026-11-02')").await, "23505");
    assert_eq!(says(&ebb, "INSERT INTO public.t VALUES (12, 'B@X', true, '2026-11-02')").await, "");
    assert_eq!(says(&ebb, "UPDATE public.t SET email = 'c@x' WHERE id = 10").await, "");
    assert_eq!(ebb.list("what", "public.log").await, "INSERT12,UPDATE10", "the table's triggers fire for every row");
    assert_eq!(back(&ebb).await.unwrap(), RolledBack::Back(2));
    assert_eq!(ebb.list("what", "public.log").await, "INSERT12,UPDATE10", "and not for one that only moves");
    finish(ebb.engine.database(), "public.t", &mut |_| ()).await.unwrap();
    assert_eq!(ebb.list("id", "public.t").await, "1,2,3,10,11,12");
    let key: String = ebb.db.scalar("SELECT pg_get_indexdef('public.t_lower'::regclass)").await;
    assert_eq!(key, "CREATE UNIQUE INDEX t_lower ON public.t USING btree (lower(email)) WHERE (NOT gone)");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM pg_proc WHERE proname ~ '^ebb_'").await, 0);
}

#[tokio::test]
async fn what_is_changed_on_the_way_is_not_lost_unsaid() {
    let role = format!("app_{}", uuid::Uuid::new_v4().simple());
    let ebb = with(&format!(
        "CREATE ROLE {role}; CREATE TABLE public.t (id int PRIMARY KEY, v text, created_at timestamptz NOT NULL);
         GRANT SELECT ON public.t TO {role}; INSERT INTO public.t VALUES (1, 'v', '2026-11-01');
         CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'"
    ))
    .await;
    let secure = format!(
        "REVOKE SELECT ON public.t FROM {role}; ALTER TABLE public.t ENABLE ROW LEVEL SECURITY;
         CREATE POLICY mine ON public.t USING (v = 'v'); COMMENT ON POLICY mine ON public.t IS 'ours'; COMMENT ON TABLE public.t IS 'late'"
    );
    let secured = "SELECT concat_ws(' ', relrowsecurity, has_table_privilege($$ROLE$$, oid, 'SELECT'), obj_description(oid),
                   (SELECT obj_description(p.oid) FROM pg_policy p WHERE polrelid = c.oid)) FROM pg_class c WHERE oid = 'public.t'::regclass"
        .replace("ROLE", &role);
    // Between the plan and the cutover: said, and taken up when it begins again.
    killed_at(&ebb, "swap the keys", Some(request("public.t"))).await;
    ebb.db.execute(&secure).await;
    let error = adopt(ebb.engine.database(), &request("public.t"), "test", &mut |_| ()).await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("new policy: mine"), "{error}");
    assert!(error.to_string().contains("row security"), "{error}");
    assert_eq!(back(&ebb).await.unwrap(), RolledBack::Abandoned);
    adopted(&ebb, &request("public.t")).await;
    assert_eq!(ebb.db.scalar::<String>(&secured).await, "t f late ours");
    // Options of an adoption that stands are not silently passed over.
    for other in
        [Request { by: Period::Day, ..request("public.t") }, Request { guard: key(&["id"]), ..request("public.t") }]
    {
        let error = adopt(ebb.engine.database(), &other, "test", &mut |_| ()).await.unwrap_err();
        assert!(error.is_usage(), "{error}");
    }
    // After it: what can be carried is, anything else stops the way back, and the table is looked after meanwhile.
    ebb.db.execute(&format!("GRANT SELECT ON public.t TO {role}; DROP POLICY mine ON public.t; ALTER TABLE public.t DISABLE ROW LEVEL SECURITY; COMMENT ON TABLE public.t IS NULL")).await;
    ebb.db.execute("CREATE TRIGGER late BEFORE INSERT ON public.t FOR EACH ROW EXECUTE FUNCTION public.note(); CREATE VIEW public.late AS SELECT count(*) FROM public.t").await;
    let error = back(&ebb).await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("new trigger: CREATE TRIGGER late"), "{error}");
    assert!(error.to_string().contains("new dependent: rule _RETURN on view public.late"), "{error}");
    assert!(ebb.db.scalar::<bool>("SELECT enabled FROM ebb.policy WHERE name = 't'").await, "nothing was changed");
    ebb.db.execute("DROP VIEW public.late; ALTER TABLE public.t ENABLE ALWAYS TRIGGER late").await;
    ebb.db.execute("DROP TRIGGER late ON public.t; INSERT INTO public.t VALUES (2, 'w', '2027-01-05')").await;
    assert_eq!(back(&ebb).await.unwrap(), RolledBack::Back(1));
    assert_eq!(ebb.db.scalar::<String>(&secured).await, "f t");
    assert!(!ebb.db.scalar::<bool>("SELECT enabled FROM ebb.policy WHERE name = 't'").await);
    finish(ebb.engine.database(), "public.t", &mut |_| ()).await.unwrap();
    ebb.db.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn what_others_would_hear_of_twice_stops_the_way_back_and_a_given_up_one_leaves_nothing() {
    let ebb = with(
        "CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL);
         CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
         CREATE TRIGGER always AFTER INSERT ON public.t FOR EACH ROW EXECUTE FUNCTION public.note();
         ALTER TABLE public.t ENABLE ALWAYS TRIGGER always",
    )
    .await;
    adopted(&ebb, &request("public.t")).await;
    ebb.db.execute("INSERT INTO public.t VALUES (1, '2026-11-20'), (2, '2027-01-20')").await;
    let error = back(&ebb).await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("trigger always is ENABLE ALWAYS"), "{error}");
    ebb.db.execute("DELETE FROM public.t WHERE id = 2").await;
    killed_at(&ebb, "move the name back", None).await;
    let left = "SELECT count(*) FROM pg_class WHERE relname ~ '^ebb_[0-9]+_b'";
    assert_eq!(ebb.db.scalar::<i64>(left).await, 1, "the key was built");
    assert!(ebb.db.scalar::<bool>("SELECT enabled FROM ebb.policy WHERE name = 't'").await, "still looked after");
    ebb_testkit::eventually(crate::harness::SOON, || async {
        finish(ebb.engine.database(), "public.t", &mut |_| ()).await.is_ok()
    })
    .await;
    assert_eq!(ebb.db.scalar::<i64>(left).await, 0);
}

#[tokio::test]
async fn everything_that_belongs_to_a_table_is_carried_or_refused() {
    let ebb = with(
        "CREATE TABLE public.t (id int GENERATED ALWAYS AS IDENTITY, other int GENERATED BY DEFAULT AS IDENTITY, name text, secret text, created_at timestamptz NOT NULL, PRIMARY KEY (id) WITH (fillfactor = 70));
         CREATE INDEX t_name ON public.t (lower(name)); ALTER INDEX public.t_name ALTER COLUMN 1 SET STATISTICS 300;
         ALTER TABLE public.t ALTER COLUMN name SET (n_distinct = 100); REVOKE DELETE ON public.t FROM CURRENT_USER;
         CREATE SCHEMA told; CREATE STATISTICS told.st ON id, name FROM public.t; COMMENT ON STATISTICS told.st IS 'both'; ALTER STATISTICS told.st SET STATISTICS 200;
         CREATE TABLE public.w (id int PRIMARY KEY, name text, created_at timestamptz NOT NULL); CREATE TABLE public.other (id int);
         CREATE RULE r AS ON INSERT TO public.other DO ALSO INSERT INTO public.w VALUES (1)",
    )
    .await;
    let is_old = ebb.db.scalar::<String>("SHOW server_version_num").await.as_str() < "150000";
    // Column lists came with 15.
    let columns = if is_old { "" } else { " (id, name, created_at)" };
    ebb.db.execute(&format!("CREATE PUBLICATION part_of FOR TABLE public.t{columns}")).await;
    ebb.db.execute("CREATE VIEW public.v_only AS SELECT count(*) FROM ONLY public.w; CREATE VIEW public.v_key AS SELECT id, name, count(*) FROM public.w GROUP BY id; CREATE INDEX w_pkey_history ON public.other (id)").await;
    let said = refused(&ebb, &request("public.w")).await;
    for part in [
        "rule r on table public.other",
        "view public.v_only reads ONLY this table",
        "view public.v_key groups by a key",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    ebb.db.execute("DROP VIEW public.v_only, public.v_key; DROP RULE r ON public.other").await;
    let said = refused(&ebb, &request("public.w")).await;
    assert!(said.contains("public.w_pkey_history exists"), "{said}");
    ebb.db.execute("CREATE SCHEMA b; CREATE TABLE b.t (created_at timestamptz NOT NULL)").await;
    // One that is not proven would stop the cutover: since 18 NOT NULL can be that.
    if ebb.db.scalar::<String>("SHOW server_version_num").await.as_str() >= "180000" {
        ebb.db.execute("CREATE TABLE public.nn (x int, created_at timestamptz NOT NULL); ALTER TABLE public.nn ADD CONSTRAINT xnn NOT NULL x NOT VALID").await;
        assert!(refused(&ebb, &request("public.nn")).await.contains("constraint xnn is NOT VALID"));
        ebb.db.execute("CREATE TABLE public.ni (id int PRIMARY KEY, created_at timestamptz CONSTRAINT here NOT NULL NO INHERIT)").await;
        let said = refused(&ebb, &request("public.ni")).await;
        assert!(said.contains("here is NO INHERIT") && said.contains("ALTER CONSTRAINT \"here\" INHERIT"), "{said}");
    }

    let shape = "SELECT concat_ws(' | ', (SELECT string_agg(x::text, ',') FROM pg_class c, unnest(c.relacl) x WHERE c.oid = 'public.t'::regclass),
        (SELECT string_agg(attname::text, ',' ORDER BY attname) FROM pg_publication_tables p, unnest(p.attnames) attname WHERE pubname = 'part_of'),
        (SELECT obj_description(oid) || coalesce(stxstattarget, -1) FROM pg_statistic_ext WHERE stxname = 'st'),
        (SELECT string_agg(attoptions::text, ',') FROM pg_attribute WHERE attrelid = 'public.t'::regclass AND attoptions IS NOT NULL),
        (SELECT string_agg(attstattarget::text, ',') FROM pg_attribute WHERE attrelid = 'public.t_name'::regclass),
        (SELECT string_agg(attname::text || attidentity::text, ',' ORDER BY attname) FROM pg_attribute WHERE attrelid = 'public.t'::regclass AND attidentity <> ''))";
    let shape = if is_old { "SELECT 'old'" } else { shape };
    let before: String = ebb.db.scalar(shape).await;
    adopted(&ebb, &request("public.t")).await;
    assert_eq!(ebb.db.scalar::<String>(shape).await, before, "adopted");
    let keys = "SELECT string_agg(c.relname || ' ' || array_to_string(c.reloptions, ','), ', ' ORDER BY c.relname) FROM pg_class c JOIN pg_index x ON x.indexrelid = c.oid
                WHERE x.indisprimary AND x.indrelid IN ('public.t'::regclass, 'public.t_history'::regclass, 'public.t_2027_01'::regclass)";
    assert_eq!(
        ebb.db.scalar::<String>(keys).await,
        "t_2027_01_pkey fillfactor=70, t_pkey fillfactor=70, t_pkey_history fillfactor=70"
    );
    // Its policy is called t, and so would be that of another table.
    assert!(
        refused(&ebb, &request("b.t"))
            .await
            .contains("the name of the partition policy of public.t => choose another: --name b_t")
    );
    back(&ebb).await.unwrap();
    finish(ebb.engine.database(), "public.t", &mut |_| ()).await.unwrap();
    assert_eq!(ebb.db.scalar::<String>(shape).await, before, "and back");
    let mut client = ebb.client().await;
    let id: i32 = fetch(&mut client, "INSERT INTO public.t (created_at) VALUES (now()) RETURNING id + other").await;
    assert_eq!(id, 2);
}
