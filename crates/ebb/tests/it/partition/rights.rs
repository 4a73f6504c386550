//! Rights, and what else belongs to a table, on the way there and back: nothing that was taken from somebody comes back, and
//! nothing that somebody else changed meanwhile is lost unsaid; keys stay unique over their window.

use ebb::partition::adopt::{Progress, Request, adopt, preflight, take_over};
use ebb::partition::{RolledBack, finish, rollback};
use sqlx::AssertSqlSafe;

use super::besides::doctor;
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

async fn back(ebb: &Ebb, table: &str) -> ebb::Result<RolledBack> {
    rollback(ebb.engine.database(), table, "test", &mut |_| ()).await
}

async fn over(ebb: &Ebb, table: &str) {
    finish(ebb.engine.database(), table, &mut |_| ()).await.unwrap();
}

/// What stands in the way, each with the way out.
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
async fn rights_that_were_taken_since_do_not_come_back() {
    let name = uuid::Uuid::new_v4().simple().to_string();
    let (one, two) = (format!("one_{name}"), format!("two_{name}"));
    let ebb = with(&format!(
        "CREATE ROLE {one}; CREATE ROLE {two}; GRANT USAGE ON SCHEMA public TO {one};
         CREATE TABLE public.t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, secret text, created_at timestamptz NOT NULL);
         ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON SEQUENCES TO {two}; GRANT SELECT (secret) ON public.t TO {two}; GRANT SELECT ON public.t TO {one} WITH GRANT OPTION;
         SET ROLE {one}; GRANT SELECT ON public.t TO {two}; RESET ROLE"
    ))
    .await;
    let rights = "SELECT string_agg(x::text, ',' ORDER BY x::text) FROM pg_class c, unnest(c.relacl) x WHERE c.oid = 'public.t'::regclass";
    let before: String = ebb.db.scalar(rights).await;
    assert!(before.contains(&format!("{two}=r/{one}")), "{before}");
    // Who may not act for the giver says so before; all of this is undone.
    let mut tx = ebb.engine.database().read().await.unwrap();
    let become_two = format!(
        "GRANT USAGE ON SCHEMA ebb TO {two}; GRANT SELECT ON ALL TABLES IN SCHEMA ebb TO {two}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ebb TO {two};
         GRANT USAGE ON SCHEMA public TO {two}; SET LOCAL SESSION AUTHORIZATION {two}"
    );
    sqlx::raw_sql(AssertSqlSafe(become_two)).execute(&mut *tx).await.unwrap();
    let changes = preflight(&mut tx, &request("public.t")).await.unwrap().findings.changes;
    tx.rollback().await.unwrap();
    let given_on = format!("the right SELECT of {two}, which {one} gave, is given by the owner");
    assert!(changes.iter().any(|change| change.what == given_on), "{changes:?}");
    adopted(&ebb, &request("public.t")).await;
    assert_eq!(ebb.db.scalar::<String>(rights).await, before, "what somebody gave on is still theirs to take back");
    ebb.db.execute(&format!("SET ROLE {one}; REVOKE SELECT ON public.t FROM {two}; RESET ROLE; REVOKE SELECT (secret) ON public.t FROM {two}; GRANT INSERT ON public.t TO {two}")).await;
    let draws = format!("SELECT has_sequence_privilege('{two}', 'public.t_id_seq', 'USAGE')");
    assert!(
        !ebb.db.scalar::<bool>(&draws).await,
        "what the schema gives by default to a new sequence is not given to this one"
    );
    // A sequence is part of it: what was changed there stops the way back with the list.
    ebb.db.execute(&format!("GRANT USAGE ON SEQUENCE public.t_id_seq TO {two}")).await;
    let error = back(&ebb, "public.t").await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("new sequence: public.t_id_seq"), "{error}");
    ebb.db.execute(&format!("REVOKE USAGE ON SEQUENCE public.t_id_seq FROM {two}")).await;
    back(&ebb, "public.t").await.unwrap();
    let may = format!(
        "SELECT concat_ws(' ', has_column_privilege('{two}', 'public.t', 'secret', 'SELECT'), has_table_privilege('{two}', 'public.t', 'INSERT'),
         has_table_privilege('{one}', 'public.t', 'SELECT'))"
    );
    assert_eq!(ebb.db.scalar::<String>(&may).await, "f t t");
    assert!(!ebb.db.scalar::<bool>(&draws).await, "nor on the way back");
    over(&ebb, "public.t").await;
    ebb.db.execute(&format!("DROP OWNED BY {one}, {two}; DROP ROLE {one}, {two}")).await;
}

#[tokio::test]
async fn what_the_old_table_would_not_have_stops_the_way_back() {
    let ebb = with(
        "CREATE TABLE public.t (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, note varchar(10), created_at timestamptz NOT NULL);
         CREATE INDEX t_note ON public.t (note); INSERT INTO public.t (id, created_at) VALUES (1, '2026-11-01')",
    )
    .await;
    // Between the plan and the cutover.
    let engine = ebb.another(ebb.db.open());
    let killed = tokio::spawn(async move {
        let mut watch = |progress| match progress {
            Progress::Step(_, _, title) if title.contains("prove the bound") => {
                panic!("killed here, as the test wants it")
            }
            _ => {}
        };
        adopt(engine.database(), &request("public.t"), "test", &mut watch).await
    });
    assert!(killed.await.is_err_and(|error| error.is_panic()));
    ebb.db
        .execute("ALTER TABLE public.t SET (fillfactor = 51); ALTER TABLE public.t ALTER note SET STATISTICS 77")
        .await;
    let error = adopt(ebb.engine.database(), &request("public.t"), "test", &mut |_| ()).await.unwrap_err();
    assert!(error.to_string().contains("new storage: fillfactor=51"), "{error}");
    assert!(error.to_string().contains("new column storage: note"), "{error}");
    assert_eq!(back(&ebb, "public.t").await.unwrap(), RolledBack::Abandoned);
    adopted(&ebb, &request("public.t")).await;
    let storage = "SELECT array_to_string(reloptions, ',') || (SELECT COALESCE(attstattarget, -1) FROM pg_attribute WHERE attrelid = c.oid AND attname = 'note') FROM pg_class c WHERE oid = 'public.t_2027_01'::regclass";
    assert_eq!(ebb.db.scalar::<String>(storage).await, "fillfactor=5177");
    // After it.
    ebb.db
        .execute("ALTER TABLE public.t ALTER n DROP DEFAULT, ALTER n ADD GENERATED BY DEFAULT AS IDENTITY (START 500)")
        .await;
    let error = back(&ebb, "public.t").await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("new identity: n d"), "{error}");
    ebb.db.execute("ALTER TABLE public.t ALTER n DROP IDENTITY, ALTER n SET DEFAULT 0").await;
    ebb.db
        .execute(
            "ALTER TABLE public.t ADD COLUMN late int DEFAULT 7, ADD CHECK (late > 0), ALTER note SET STATISTICS 78",
        )
        .await;
    ebb.db.execute("ALTER TABLE public.t ALTER note TYPE text").await;
    let error = back(&ebb, "public.t").await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("public.t_note_history is not there any more"), "{error}");
    let anew: String = ebb
        .db
        .scalar("SELECT relname::text FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = 'public.t_history'::regclass AND relname ~ 'note'")
        .await;
    ebb.db.execute(&format!("ALTER INDEX public.{anew} RENAME TO t_note_history")).await;
    // A partition of partitions has its rows where nothing here looks.
    ebb.db
        .execute(
            "CREATE TABLE public.t_far PARTITION OF public.t FOR VALUES FROM ('2028-01-01') TO ('2028-02-01') PARTITION BY HASH (id);
             CREATE TABLE public.t_far_0 PARTITION OF public.t_far FOR VALUES WITH (MODULUS 1, REMAINDER 0); INSERT INTO public.t (id, created_at) VALUES (9, '2028-01-09')",
        )
        .await;
    let error = back(&ebb, "public.t").await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("partition public.t_far is no ordinary table"), "{error}");
    ebb.db.execute("ALTER TABLE public.t DETACH PARTITION public.t_far").await;
    back(&ebb, "public.t").await.unwrap();
    over(&ebb, "public.t").await;
    ebb.db.execute("INSERT INTO public.t SELECT * FROM public.t_far; DROP TABLE public.t_far").await;
    assert_eq!(ebb.list("id || ' ' || late", "public.t").await, "1 7,9 7");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_comes_while_rows_are_drained_keeps_its_values() {
    // What its check calls finds another function as applications do.
    let ebb = with(
        "CREATE FUNCTION public.most() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 100000';
         CREATE FUNCTION public.fits(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN most() > $1; END';
         CREATE TABLE public.t (id int PRIMARY KEY CHECK (public.fits(id)), created_at timestamptz NOT NULL);
         CREATE VIEW public.v AS SELECT * FROM public.t",
    )
    .await;
    adopted(&ebb, &request("public.t")).await;
    ebb.db.execute("ALTER VIEW public.v SET (security_barrier = true)").await;
    let error = back(&ebb, "public.t").await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("new view options: public.v"), "{error}");
    ebb.db.execute("ALTER VIEW public.v RESET (security_barrier)").await;
    ebb.db.execute("INSERT INTO public.t SELECT n, '2027-01-05' FROM generate_series(1, 3000) n").await;
    let (pool, handle, mut added) = (ebb.db.pool().clone(), tokio::runtime::Handle::current(), false);
    let mut watch = |progress| {
        if let Progress::Share(_, words) = progress
            && words.contains("rows moved")
            && !added
        {
            added = true;
            let change = sqlx::raw_sql(
                "ALTER TABLE public.t ADD COLUMN note text; UPDATE public.t SET note = 'mine' WHERE id > 1000",
            );
            tokio::task::block_in_place(|| handle.block_on(change.execute(&pool))).unwrap();
        }
    };
    rollback(ebb.engine.database(), "public.t", "test", &mut watch).await.unwrap();
    assert!(added, "it was over too soon");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ONLY public.t WHERE note = 'mine'").await, 2000);
    // A row finds its partition before a trigger could tell its time.
    ebb.db
        .execute(
            "CREATE TABLE public.s (created_at timestamptz); CREATE FUNCTION public.stamp() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.created_at := now(); RETURN NEW; END';
             CREATE TRIGGER stamp BEFORE INSERT ON public.s FOR EACH ROW EXECUTE FUNCTION public.stamp()",
        )
        .await;
    let said = refused(&ebb, &request("public.s")).await;
    assert!(said.contains("trigger stamp gives a new row its created_at"), "{said}");
    // What is different for the triggers of a partitioned table is said.
    ebb.db
        .execute(
            "DROP TRIGGER stamp ON public.s; CREATE FUNCTION public.whole() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW := jsonb_populate_record(NEW, ''{}''); RETURN NEW; END';
             CREATE TRIGGER whole BEFORE INSERT ON public.s FOR EACH ROW EXECUTE FUNCTION public.whole(); CREATE FUNCTION public.told() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE NOTICE ''%'', TG_TABLE_NAME; RETURN NULL; END';
             CREATE TRIGGER told AFTER UPDATE ON public.s FOR EACH ROW EXECUTE FUNCTION public.told()",
        )
        .await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let found = preflight(&mut tx, &request("public.s")).await.unwrap().findings;
    let said: String = found.changes.iter().map(|one| format!("{}\n", one.what)).collect();
    for part in [
        "column created_at becomes NOT NULL",
        "trigger whole may give a new row its created_at",
        "told asks for the name of its table",
        "told does not fire for an update that moves",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
}

#[tokio::test]
async fn a_row_whose_time_changes_while_rows_are_drained_stays_where_it_is() {
    let ebb = with(
        "CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL, month date GENERATED ALWAYS AS (date_trunc('month', created_at AT TIME ZONE 'UTC')::date) STORED)",
    )
    .await;
    adopted(&ebb, &request("public.t")).await;
    ebb.db.execute("INSERT INTO public.t VALUES (1, '2027-01-05')").await;
    let engine = ebb.another(ebb.db.open());
    let killed = tokio::spawn(async move {
        let mut watch = |progress| match progress {
            Progress::Step(_, _, title) if title.contains("move the rows") => {
                panic!("killed here, as the test wants it")
            }
            _ => {}
        };
        rollback(engine.database(), "public.t", "test", &mut watch).await
    });
    assert!(killed.await.is_err_and(|error| error.is_panic()));
    assert_eq!(says(&ebb, "UPDATE public.t SET created_at = '2026-12-15' WHERE id = 1").await, "");
    assert_eq!(back(&ebb, "public.t").await.unwrap(), RolledBack::Back(1));
    assert_eq!(ebb.list("month", "ONLY public.t").await, "2026-12-01");
}

#[tokio::test]
async fn one_table_that_goes_back_leaves_a_publication_as_the_other_needs_it() {
    let publication = format!("pub_{}", uuid::Uuid::new_v4().simple());
    let ebb = with(&format!(
        "CREATE TABLE public.a (id int PRIMARY KEY, created_at timestamptz NOT NULL); CREATE TABLE public.b (LIKE public.a INCLUDING ALL);
         CREATE PUBLICATION {publication} FOR TABLE public.a, public.b"
    ))
    .await;
    if ebb.db.scalar::<String>("SHOW server_version_num").await.as_str() >= "150000" {
        ebb.db.execute("CREATE PUBLICATION of_schema FOR TABLES IN SCHEMA public").await;
        let said = refused(&ebb, &request("public.a")).await;
        assert!(said.contains("publication of_schema would publish partitions under their own names"), "{said}");
        ebb.db.execute("DROP PUBLICATION of_schema").await;
    }
    adopted(&ebb, &request("public.a")).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    for other in [
        Request { keep: Some("1mo".parse().unwrap()), policy: Some("other".into()), ..request("public.a") },
        Request { by: ebb::policy::Period::Day, ..request("public.a") },
    ] {
        let error = take_over(&mut tx, &other, Some(2)).await.unwrap_err();
        assert!(error.is_refused() && error.to_string().contains("policy a looks after public.a already"), "{error}");
    }
    tx.rollback().await.unwrap();
    adopted(&ebb, &request("public.b")).await;
    back(&ebb, "public.a").await.unwrap();
    let sent = format!(
        "SELECT string_agg(tablename::text, ',' ORDER BY tablename) FROM pg_publication_tables WHERE pubname = '{publication}'"
    );
    assert_eq!(ebb.db.scalar::<String>(&sent).await, "a,b", "no partition is sent under its own name");
    over(&ebb, "public.a").await;
    if ebb.db.scalar::<String>("SHOW server_version_num").await.as_str() >= "150000" {
        let of_schema = "CREATE SCHEMA o; CREATE TABLE o.p (id int) PARTITION BY RANGE (id); CREATE TABLE o.p_1 PARTITION OF o.p FOR VALUES FROM (1) TO (2);
            CREATE TABLE public.c (LIKE public.a INCLUDING ALL); CREATE PUBLICATION mixed FOR TABLE public.c";
        ebb.db.execute(of_schema).await;
        adopted(&ebb, &request("public.c")).await;
        ebb.db.execute("ALTER PUBLICATION mixed ADD TABLES IN SCHEMA o").await;
        back(&ebb, "public.c").await.unwrap();
        assert_eq!(ebb.db.scalar::<String>(&sent.replace(&publication, "mixed")).await, "c,p");
    }
}

#[tokio::test]
async fn row_security_is_carried_over_holes_and_stops_what_it_would_blind() {
    let (owner, app) =
        (format!("owner_{}", uuid::Uuid::new_v4().simple()), format!("app_{}", uuid::Uuid::new_v4().simple()));
    let ebb = with(&format!(
        "CREATE ROLE {owner}; CREATE ROLE {app}; GRANT USAGE, CREATE ON SCHEMA public TO {owner}, {app};
         CREATE TABLE public.site (site int, who text); INSERT INTO public.site VALUES (1, '{app}'), (2, 't.site'); GRANT SELECT ON public.site TO {app}, {owner};
         CREATE TABLE public.t (gone int, id int PRIMARY KEY, site int, created_at timestamptz NOT NULL); ALTER TABLE public.t DROP COLUMN gone;
         ALTER TABLE public.t OWNER TO {owner}; GRANT SELECT, INSERT ON public.t TO {app}; ALTER TABLE public.t ENABLE ROW LEVEL SECURITY;
         CREATE POLICY members ON public.t TO {app} USING (EXISTS (SELECT FROM public.site m WHERE m.site = t.site AND m.who <> 't.site'));
         CREATE TABLE public.c (t int REFERENCES public.t); INSERT INTO public.t VALUES (1, 1, '2026-11-01'), (2, 2, '2026-11-01');
         CREATE TYPE public.t_history AS ENUM ('taken')"
    ))
    .await;
    let said = refused(&ebb, &Request { move_foreign_keys: true, ..request("public.t") }).await;
    assert!(said.contains("public.t_history exists"), "{said}");
    ebb.db.execute("DROP TYPE public.t_history; ALTER TABLE public.t FORCE ROW LEVEL SECURITY").await;
    let said = refused(&ebb, &Request { move_foreign_keys: true, ..request("public.t") }).await;
    assert!(said.contains("row-level security is forced upon the owner of this table"), "{said}");
    ebb.db.execute("DROP TABLE public.c").await;
    adopted(&ebb, &request("public.t")).await;
    // A column that goes now is a hole in the table, and not in the partitions to come.
    ebb.db.execute("ALTER TABLE public.t ADD COLUMN later int; ALTER TABLE public.t DROP COLUMN id; ALTER TABLE public.t ADD COLUMN id int").await;
    ebb.set_clock("2026-12-15 12:00:00+00").await;
    assert_eq!(ebb.db.scalar::<i32>("SELECT ebb.ensure_partitions('t')").await, 1);
    ebb.db.execute("INSERT INTO public.t (site, created_at) VALUES (1, '2027-02-02'), (2, '2027-02-02')").await;
    let mut client = ebb.client().await;
    execute(&mut client, &format!("SET ROLE {app}")).await;
    for (table, rows) in [("public.t", 2_i64), ("public.t_2027_02", 1), ("public.t_history", 1)] {
        let sites =
            format!("SELECT count(*) FILTER (WHERE site = 1) - 100 * count(*) FILTER (WHERE site = 2) FROM {table}");
        assert_eq!(fetch::<i64>(&mut client, &sites).await, rows, "{table}");
    }
    execute(&mut client, "RESET ROLE").await;
    let error = back(&ebb, "public.t").await.unwrap_err();
    assert!(error.is_refused(), "{error}");
    ebb.db.execute(&format!("DROP TABLE public.t; DROP OWNED BY {owner}, {app}; DROP ROLE {owner}, {app}")).await;
}

#[tokio::test]
async fn what_stands_in_for_a_key_is_not_blinded_by_forced_row_security() {
    let owner = format!("owner_{}", uuid::Uuid::new_v4().simple());
    let ebb = with(&format!(
        "CREATE ROLE {owner}; GRANT USAGE, CREATE ON SCHEMA public TO {owner}; CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL);
         ALTER TABLE public.t OWNER TO {owner}; ALTER TABLE public.t ENABLE ROW LEVEL SECURITY; ALTER TABLE public.t FORCE ROW LEVEL SECURITY;
         CREATE POLICY none ON public.t USING (false)"
    ))
    .await;
    adopted(&ebb, &request("public.t")).await;
    ebb.db.execute("INSERT INTO public.t VALUES (1, '2027-01-05')").await;
    let error = back(&ebb, "public.t").await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("row-level security is forced upon its owner"), "{error}");
    ebb.db.execute("ALTER TABLE public.t NO FORCE ROW LEVEL SECURITY").await;
    assert_eq!(back(&ebb, "public.t").await.unwrap(), RolledBack::Back(1));
    over(&ebb, "public.t").await;
    // Where no key is unique nothing stands in for one.
    ebb.db
        .execute(&format!(
            "CREATE TABLE public.u (id int, created_at timestamptz NOT NULL); ALTER TABLE public.u OWNER TO {owner};
             ALTER TABLE public.u ENABLE ROW LEVEL SECURITY; ALTER TABLE public.u FORCE ROW LEVEL SECURITY"
        ))
        .await;
    adopted(&ebb, &request("public.u")).await;
    ebb.db.execute("INSERT INTO public.u VALUES (1, '2027-01-05')").await;
    assert_eq!(back(&ebb, "public.u").await.unwrap(), RolledBack::Back(1));
    over(&ebb, "public.u").await;
    ebb.db.execute(&format!("DROP OWNED BY {owner}; DROP ROLE {owner}")).await;
}

#[tokio::test]
async fn who_may_only_insert_does_so_while_rows_are_drained() {
    let name = uuid::Uuid::new_v4().simple().to_string();
    let (owner, app) = (format!("owner_{name}"), format!("app_{name}"));
    let ebb = with(&format!(
        "CREATE ROLE {owner}; CREATE ROLE {app}; CREATE SCHEMA s AUTHORIZATION {owner}; GRANT USAGE ON SCHEMA s TO {app};
         CREATE TABLE s.t (id int PRIMARY KEY, created_at timestamptz NOT NULL); ALTER TABLE s.t OWNER TO {owner}; GRANT INSERT ON s.t TO {app}"
    ))
    .await;
    adopted(&ebb, &request("s.t")).await;
    ebb.db.execute("INSERT INTO s.t VALUES (1, '2026-11-01'), (2, '2027-01-05')").await;
    let engine = ebb.another(ebb.db.open());
    let killed = tokio::spawn(async move {
        let mut watch = |progress| match progress {
            Progress::Step(_, _, title) if title.contains("move the rows") => {
                panic!("killed here, as the test wants it")
            }
            _ => {}
        };
        rollback(engine.database(), "s.t", "test", &mut watch).await
    });
    assert!(killed.await.is_err_and(|error| error.is_panic()));
    // What stands in for the key has the rights of the table's owner, not those of whoever owns Ebb's schema.
    let whose = "SELECT string_agg(DISTINCT pg_get_userbyid(proowner)::text, ',') FROM pg_proc WHERE proname ~ '^ebb_[0-9]+_one' AND prosecdef";
    assert_eq!(ebb.db.scalar::<String>(whose).await, owner);
    let insert = |id: i32| format!("SET LOCAL ROLE {app}; INSERT INTO s.t VALUES ({id}, '2026-11-02')");
    assert_eq!(says(&ebb, &insert(3)).await, "");
    assert_eq!(says(&ebb, &insert(2)).await, "23505", "it is in a child, where this role may not look");
    assert_eq!(back(&ebb, "s.t").await.unwrap(), RolledBack::Back(1));
    assert_eq!(ebb.list("id", "s.t").await, "1,2,3");
    over(&ebb, "s.t").await;
    ebb.db.execute(&format!("DROP OWNED BY {owner}, {app} CASCADE; DROP ROLE {owner}, {app}")).await;
}

#[tokio::test]
async fn every_key_can_have_a_guard_and_a_row_of_the_future_keeps_its_key_for_longer() {
    let ebb = with(
        "CREATE TABLE public.t (id bigint PRIMARY KEY, site int, k text, at bigint NOT NULL, UNIQUE (site, k));
         INSERT INTO public.t SELECT n, 1, 'k' || n, 1793491200000 FROM generate_series(1, 300) n",
    )
    .await;
    let keep = Some("1mo".parse().unwrap());
    let unit = Some(ebb::policy::EpochUnit::Millis);
    let guard = [key(&["id"]), key(&["site", "k"])].concat();
    let wanted = Request { column: "at".into(), unit, ahead: 12, keep, guard, ..request("public.t") };
    if ebb.db.scalar::<i64>("SELECT count(*) FROM pg_collation WHERE collprovider = 'i'").await > 0 {
        ebb.db
            .execute(
                "CREATE COLLATION public.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
                 CREATE TABLE public.u (k text COLLATE public.ci UNIQUE, created_at timestamptz NOT NULL)",
            )
            .await;
        let said = refused(&ebb, &Request { guard: key(&["k"]), ..request("public.u") }).await;
        assert!(said.contains("--guard k cannot be kept"), "{said}");
    }
    let twice = Request { guard: [key(&["id"]), key(&["id"])].concat(), ..wanted.clone() };
    assert!(refused(&ebb, &twice).await.contains("--guard id is named twice"));
    adopted(&ebb, &wanted).await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.once_key").await, 600, "both keys of every row");
    let put = |id: i32, k: &str, at: &str| {
        format!("INSERT INTO public.t VALUES ({id}, 1, '{k}', extract(epoch FROM timestamptz '{at}') * 1000)")
    };
    assert_eq!(says(&ebb, &put(1001, "k7", "2027-01-05")).await, "23505");
    assert_eq!(says(&ebb, &put(7, "k1001", "2027-01-05")).await, "23505");
    assert_eq!(says(&ebb, &put(1001, "k1001", "2027-11-10")).await, "");
    assert_eq!(
        ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.once_key").await,
        602,
        "nothing stays of what was refused"
    );
    let until = "SELECT min(expires_at) > '2028-01-01' FROM ebb.once_key WHERE key LIKE '%1001%'";
    assert!(ebb.db.scalar::<bool>(until).await, "no key ends before its row");
    // Rows that are kept longer by now need their keys for longer: said, with the statement that does it.
    ebb.db.execute("UPDATE ebb.policy SET spec = jsonb_set(spec, '{keep}', '\"10y\"') WHERE name = 't'").await;
    let found = doctor(&ebb, "guard").await;
    assert!(found.len() == 1 && found[0].1.contains("are free again 4 mons after their row came"), "{found:?}");
    // Who is at work meanwhile claims by the old term, and is waited for.
    let mut open = ebb.client().await;
    sqlx::raw_sql("BEGIN").execute(&mut open).await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(put(1002, "k1002", "2027-01-05"))).execute(&mut open).await.unwrap();
    let mut client = ebb.client().await;
    let longer = sqlx::raw_sql("CALL ebb.guard_for('public.t', '10 years 3 months')").execute(&mut client);
    let commit = async {
        ebb_testkit::eventually(crate::harness::SOON, || async {
            ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.guard_term").await == 1
        })
        .await;
        assert_eq!(doctor(&ebb, "guard").await.len(), 1);
        sqlx::raw_sql("COMMIT").execute(&mut open).await.unwrap();
    };
    let (longer, ()) = tokio::join!(longer, commit);
    longer.unwrap();
    assert!(doctor(&ebb, "guard").await.is_empty());
    ebb.db.execute("UPDATE ebb.guard_term SET settled = false").await;
    let found = doctor(&ebb, "guard").await;
    assert!(found.len() == 1 && found[0].1.contains("did not end"), "{found:?}");
    sqlx::raw_sql("CALL ebb.guard_for('public.t', '10 years 3 months')").execute(&mut client).await.unwrap();
    assert!(doctor(&ebb, "guard").await.is_empty());
    let until = "SELECT min(expires_at) > '2036-11-01' FROM ebb.once_key";
    assert!(ebb.db.scalar::<bool>(until).await, "those that were there, and those that come");
    ebb.db.execute("DELETE FROM public.t WHERE id = 1002").await;
    assert_eq!(says(&ebb, "UPDATE public.t SET k = 'k8' WHERE id = 1001").await, "23505");
    ebb.db.execute("UPDATE public.t SET k = 'other' WHERE id = 8; UPDATE public.t SET k = 'k8' WHERE id = 1001").await;
    ebb.db.execute("TRUNCATE public.t").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.once_key").await, 0);
    assert_eq!(says(&ebb, &put(7, "k7", "2027-01-05")).await, "");
    let error = adopt(ebb.engine.database(), &Request { guard: key(&["id"]), ..wanted.clone() }, "test", &mut |_| ())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("the guard is on id and site,k, not id"), "{error}");
    assert_eq!(back(&ebb, "public.t").await.unwrap(), RolledBack::Back(1));
    over(&ebb, "public.t").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.once_key").await, 0);
    let left = "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'public.t'::regclass AND NOT tgisinternal";
    assert_eq!(ebb.db.scalar::<i64>(left).await, 0);
}

#[tokio::test]
async fn row_security_is_copied_from_a_table_that_lost_columns_and_names_that_a_type_has_are_left_alone() {
    let ebb = with(
        "CREATE SCHEMA n;
         CREATE TABLE public.n (id bigint, gone int, at timestamptz NOT NULL, status varchar(10), PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE FUNCTION n.ok(text) RETURNS boolean LANGUAGE sql AS 'SELECT $1 IS NOT NULL';
         CREATE TABLE public.other (n_id bigint);
         ALTER TABLE public.n DROP COLUMN gone;
         ALTER TABLE public.n ENABLE ROW LEVEL SECURITY;
         CREATE POLICY few ON public.n FOR SELECT USING (status IN ('a', 'b'));
         CREATE POLICY known ON public.n FOR UPDATE USING (n.ok(status));
         CREATE POLICY own ON public.n FOR DELETE USING (EXISTS (SELECT FROM public.other o WHERE o.n_id = n.id));
         CREATE TYPE public.n_2026_12 AS ENUM ('a')",
    )
    .await;
    let made = "SELECT ebb.add_partitions('public.n'::regclass, 'at', 'month', 2, NULL, 'UTC', 10)";
    assert_eq!(ebb.db.scalar::<i32>(made).await, 3);
    let names = "SELECT string_agg(regexp_replace(relid::text, '_[0-9a-f]{8}_', '_X_'), ' ' ORDER BY relid::text)
        FROM pg_partition_tree('public.n') WHERE isleaf";
    assert_eq!(ebb.db.scalar::<String>(names).await, "n_2026_11 n_2027_01 n_X_2026_12");
    let policies = "SELECT count(*) FROM pg_policies WHERE tablename LIKE 'n\\_%' AND (qual ~ 'n\\.ok' OR qual ~ 'status' OR qual ~ 'o.n_id = n_20')";
    assert_eq!(ebb.db.scalar::<i64>(policies).await, 9 - 1, "the one with digits of its own is named by them");
}

#[tokio::test]
async fn a_guard_knows_the_keys_of_its_own_table_and_not_of_one_that_had_its_name() {
    let ebb = with("CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL); INSERT INTO public.t SELECT n, '2026-11-01' FROM generate_series(1, 9) n").await;
    let guarded = Request { guard: key(&["id"]), ..request("public.t") };
    adopted(&ebb, &guarded).await;
    over(&ebb, "public.t").await;
    // One that goes on under another name, beside a new one.
    ebb.db
        .execute("ALTER TABLE public.t RENAME TO former; CREATE TABLE public.t (id int PRIMARY KEY, created_at timestamptz NOT NULL); INSERT INTO public.t VALUES (100, '2026-11-01')")
        .await;
    ebb.db.execute("ALTER TABLE public.t_history RENAME TO former_history; ALTER INDEX public.t_pkey_history RENAME TO former_pkey_history").await;
    let second = Request { policy: Some("second".into()), ..guarded };
    adopted(&ebb, &second).await;
    assert_eq!(says(&ebb, "INSERT INTO public.t VALUES (5, '2026-11-02')").await, "", "a key of the former table");
    assert_eq!(says(&ebb, "INSERT INTO public.t VALUES (100, '2027-01-02')").await, "23505");
    assert_eq!(says(&ebb, "INSERT INTO public.former VALUES (5, '2027-01-02')").await, "23505");
    back(&ebb, "public.t").await.unwrap();
    over(&ebb, "public.t").await;
    assert_eq!(
        says(&ebb, "INSERT INTO public.former VALUES (6, '2027-01-02')").await,
        "23505",
        "nor are they given back"
    );
}

#[tokio::test]
async fn what_holds_on_to_the_row_type_or_keeps_people_from_a_column_is_named_before() {
    let name = uuid::Uuid::new_v4().simple().to_string();
    let owner = format!("owner_{name}");
    let ebb = with(&format!(
        "CREATE ROLE {owner} LOGIN; CREATE SCHEMA s; GRANT USAGE ON SCHEMA s TO {owner}; CREATE TABLE s.t (id int PRIMARY KEY, created_at timestamptz NOT NULL, mail text);
         ALTER TABLE s.t OWNER TO {owner}; CREATE DOMAIN s.whole AS s.t; CREATE TABLE s.other (d jsonb CHECK ((jsonb_populate_record(NULL::s.t, d)).id > 0), x text DEFAULT ((NULL::s.t).mail));
         CREATE FUNCTION s.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE CONSTRAINT TRIGGER between AFTER INSERT ON s.t FROM s.other FOR EACH ROW EXECUTE FUNCTION s.f();
         SET allow_system_table_mods = on; INSERT INTO pg_seclabel VALUES ('s.t'::regclass, 'pg_class'::regclass, 3, 'anon', 'MASKED'); RESET allow_system_table_mods"
    ))
    .await;
    let said = refused(&ebb, &request("s.t")).await;
    for part in [
        "type s.whole",
        "constraint other_d_check on table s.other",
        "default value for column x of table s.other",
        "the security label of column mail of table s.t (anon)",
        "constraint trigger between names another table",
    ] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    assert!(!said.contains("may not create"), "whoever may do everything may: {said}");
    let mut tx = ebb.engine.database().read().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("RESET ROLE; GRANT USAGE ON SCHEMA ebb TO {owner}; GRANT SELECT ON ALL TABLES IN SCHEMA ebb TO {owner}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ebb TO {owner}; SET LOCAL ROLE {owner}")))
        .execute(&mut *tx)
        .await
        .unwrap();
    let found = preflight(&mut tx, &request("s.t")).await.unwrap();
    tx.rollback().await.unwrap();
    let fix = format!("GRANT CREATE ON SCHEMA \"s\" TO \"{owner}\"");
    assert!(found.findings.refusals.iter().any(|one| one.fix == fix), "{:#?}", found.findings.refusals);
    ebb.db.execute(&format!("DROP SCHEMA s CASCADE; DROP OWNED BY {owner}; DROP ROLE {owner}")).await;
}

#[tokio::test]
async fn who_draws_from_the_sequence_of_an_identity_is_named_on_the_way_back() {
    let ebb = with(
        "CREATE TABLE public.t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, created_at timestamptz NOT NULL)",
    )
    .await;
    adopted(&ebb, &request("public.t")).await;
    ebb.db.execute("CREATE TABLE public.other (id int DEFAULT nextval('public.t_id_seq'))").await;
    let error = back(&ebb, "public.t").await.unwrap_err();
    assert!(
        error.is_refused()
            && error.to_string().contains("default value for column id of table public.other uses public.t_id_seq"),
        "{error:?}"
    );
    ebb.db.execute("ALTER TABLE public.other ALTER COLUMN id DROP DEFAULT").await;
    back(&ebb, "public.t").await.unwrap();
    over(&ebb, "public.t").await;
}
