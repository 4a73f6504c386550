//! What anybody may create in a schema of the path is never run with the rights of a table's owner or of a node.

use super::users;
use crate::harness::{Ebb, execute};

/// Whoever compares is written down.
const TRAPS: &str = "
    SET ROLE ebb_app;
    CREATE TABLE public.ran (who text, what text); GRANT INSERT ON public.ran TO PUBLIC;
    CREATE FUNCTION public.same(varchar, varchar) RETURNS boolean LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'varchar'); RETURN $1::text = $2::text; END $$;
    CREATE OPERATOR public.= (leftarg = varchar, rightarg = varchar, function = public.same);
    CREATE OPERATOR public.> (leftarg = varchar, rightarg = varchar, function = public.same);
    CREATE FUNCTION public.same(citext, varchar) RETURNS boolean LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'citext'); RETURN $1::text = $2::text; END $$;
    CREATE FUNCTION public.same(varchar, citext) RETURNS boolean LANGUAGE sql AS 'SELECT public.same($2, $1)';
    CREATE OPERATOR public.= (leftarg = citext, rightarg = varchar, function = public.same);
    CREATE OPERATOR public.= (leftarg = varchar, rightarg = citext, function = public.same);
    CREATE FUNCTION public.later(moment, timestamptz) RETURNS boolean LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'moment'); RETURN true; END $$;
    CREATE OPERATOR public.> (leftarg = moment, rightarg = timestamptz, function = public.later);
    CREATE OPERATOR public.<= (leftarg = moment, rightarg = timestamptz, function = public.later);
    CREATE OPERATOR public.>= (leftarg = moment, rightarg = timestamptz, function = public.later);
    CREATE FUNCTION public.isfinite(moment) RETURNS boolean LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'isfinite'); RETURN true; END $$;
    CREATE FUNCTION public.jsonb_build_array(text, text) RETURNS jsonb LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'array'); RETURN to_jsonb(ARRAY[$1, $2]); END $$;
    CREATE FUNCTION public.row_to_json(public.visits) RETURNS json LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'row'); RETURN '{}'; END $$;
    RESET ROLE";

#[tokio::test]
async fn keys_are_compared_by_no_operator_that_somebody_else_made() {
    let ebb = Ebb::with(
        "DO $$ BEGIN CREATE ROLE ebb_app; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
         GRANT CREATE, USAGE ON SCHEMA public TO PUBLIC; CREATE EXTENSION citext SCHEMA public; CREATE DOMAIN public.moment AS timestamptz;
         CREATE TABLE accts (region citext, id varchar(20), status varchar(10) DEFAULT 'open', email citext, deleted_at public.moment,
             due public.moment, PRIMARY KEY (region, id));
         CREATE TABLE visits (id bigint PRIMARY KEY, region citext, acct varchar(20),
             FOREIGN KEY (region, acct) REFERENCES accts ON DELETE CASCADE);
         CREATE TABLE notes (id varchar(9) PRIMARY KEY, region citext, acct varchar(20),
             FOREIGN KEY (region, acct) REFERENCES accts ON DELETE CASCADE);
         CREATE TABLE lines (note varchar(9) REFERENCES notes ON DELETE CASCADE, line int);
         CREATE TABLE mails (address varchar(40));
         INSERT INTO accts (region, id, email) SELECT 'EU', 'a' || n, 'A' || n || '@x.test' FROM generate_series(1, 6) n;
         INSERT INTO visits SELECT n, 'eu', 'a' || n FROM generate_series(1, 6) n;
         INSERT INTO notes SELECT 'n' || n, 'eu', 'a' || n FROM generate_series(1, 6) n;
         INSERT INTO lines SELECT 'n' || n, 1 FROM generate_series(1, 6) n;
         INSERT INTO mails SELECT 'A' || n || '@x.test' FROM generate_series(1, 6) n",
    )
    .await;
    let owner = format!("owner_{}", ebb.db.name());
    ebb.db
        .execute(&format!(
            "CREATE ROLE {owner}; ALTER TABLE accts OWNER TO {owner}; GRANT SELECT ON lines, mails, visits TO {owner}"
        ))
        .await;
    ebb::pg::migrate(ebb.engine.database()).await.unwrap();
    let mut app = ebb.client().await;
    execute(&mut app, TRAPS).await;
    execute(&mut app, "SET ROLE ebb_app; SELECT 'a'::varchar = 'a'::varchar; RESET ROLE").await;
    assert_eq!(ebb.list("who", "ran").await, "ebb_app", "the trap works");
    ebb.db.execute("DELETE FROM ran").await;

    ebb.apply(
        r#"[[retain]]
        name = "accts"
        table = "public.accts"
        deleted_at = "deleted_at"
        grace = "90d"
        brake = { share = "off" }
        batch = { rows = 2 }
        mark_at_once = true
        status = { column = "status", deleted = "deleted", active = "open" }
        mirror = { due = "due" }
        snapshot = "sealed"
        snapshot_for = "30d"
        children = [{ table = "public.mails", column = "address", references = "email", action = "delete" }]"#,
    )
    .await;
    execute(
        &mut app,
        r#"SET ROLE ebb_app; SELECT ebb.delete_subject('accts', '["eu", "a1"]'); SELECT ebb.restore_subject('accts', '["eu", "a1"]');
           SELECT ebb.erase_subject('accts', '["eu", "a1"]'); RESET ROLE"#,
    )
    .await;
    ebb.db
        .execute(
            r#"SET session_replication_role = replica; UPDATE accts SET deleted_at = ebb.now() WHERE id::text IN ('a2', 'a3', 'a4', 'a5'); RESET session_replication_role;
               SELECT ebb.place_hold('accts', '["EU", "a2"]', 'court')"#,
        )
        .await;
    ebb.once("accts").await;
    ebb.db.execute("DELETE FROM ran WHERE who = 'ebb_app'").await;
    ebb.db.advance("91 days").await;
    ebb.once("accts").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    ebb::retain::show(&mut tx, "accts", r#"["EU", "a2"]"#).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(ebb.list("who || ' ' || what", "ran").await, "");
    assert_eq!(ebb.list("id", "accts").await, "a2,a6");
    assert_eq!((ebb.list("id", "visits").await, ebb.list("id", "notes").await), ("2,6".into(), "n2,n6".into()));
    assert_eq!(
        (ebb.list("note", "lines").await, ebb.list("address", "mails").await),
        ("n2,n6".into(), "A2@x.test,A6@x.test".into())
    );
    let path = "SELECT array_to_string(proconfig, ';') FROM pg_proc WHERE proname = 'subject:accts'";
    assert!(ebb.db.scalar::<String>(path).await.contains("search_path=pg_catalog, pg_temp;"));
}

#[tokio::test]
async fn functions_that_somebody_else_made_do_not_run_and_triggers_find_what_they_name() {
    let ebb = Ebb::with(
        "DO $$ BEGIN CREATE ROLE ebb_app; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
         GRANT CREATE, USAGE ON SCHEMA public TO PUBLIC;
         CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz, due timestamptz);
         CREATE TABLE posts (id bigint PRIMARY KEY, user_id bigint REFERENCES users, author text, tag text);
         CREATE TABLE seen (what text);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (TG_TABLE_NAME || ' ' || TG_WHEN || ' ' || TG_OP); RETURN NULL; END $$;
         CREATE TRIGGER before BEFORE UPDATE ON posts EXECUTE FUNCTION note();
         CREATE TRIGGER after AFTER UPDATE ON posts FOR EACH ROW EXECUTE FUNCTION note();
         CREATE TRIGGER after AFTER UPDATE OF due ON users FOR EACH ROW EXECUTE FUNCTION note();
         CREATE CONSTRAINT TRIGGER late AFTER DELETE ON users DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
         INSERT INTO users SELECT n FROM generate_series(1, 3) n; INSERT INTO posts SELECT n, n, 'pii', 'pii' FROM generate_series(1, 3) n",
    )
    .await;
    let policy = |tag: &str| {
        users(&format!(
            "mirror = {{ due = \"due\" }}\nchildren = [{{ table = \"posts\", column = \"user_id\", action = \"anonymize\", \
             set = {{ user_id = \"null\", author = \"md5(author)\", tag = \"{tag}\" }} }}]"
        ))
    };
    ebb.apply(&policy("format('gone-%s', id)")).await;
    let mut app = ebb.client().await;
    execute(
        &mut app,
        "SET ROLE ebb_app; CREATE TABLE public.ran (who text, what text); GRANT INSERT ON public.ran TO PUBLIC;
         CREATE FUNCTION public.format(text, bigint) RETURNS text STABLE LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'format'); RETURN 'trap'; END $$;
         CREATE FUNCTION public.added(bigint[], bigint) RETURNS bigint[] LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'array_agg'); RETURN $1 || $2; END $$;
         CREATE AGGREGATE public.array_agg(bigint) (sfunc = public.added, stype = bigint[], initcond = '{}');
         CREATE FUNCTION public.unnest(uuid[]) RETURNS SETOF uuid LANGUAGE plpgsql AS
             $$ BEGIN INSERT INTO public.ran VALUES (current_user, 'unnest'); RETURN QUERY SELECT pg_catalog.unnest($1); END $$;
         RESET ROLE",
    )
    .await;
    let refused = ebb.try_apply(&policy("format('gone:%s', id)")).await.unwrap_err();
    assert!(refused.to_string().contains("it calls public.format(text,bigint), which is ebb_app's"), "{refused}");
    ebb.apply(&policy("pg_catalog.format('gone-%s', id)")).await;
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id < 3").await;
    ebb.once("users").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await.as_str(), ebb.list("what", "ran").await.as_str()), ("3", ""));
    let posts =
        "SELECT string_agg(tag || ' ' || (author = md5('pii')), ', ' ORDER BY id) FROM posts WHERE user_id IS NULL";
    assert_eq!(ebb.db.scalar::<String>(posts).await, "gone-1 true, gone-2 true");
    let seen = "SELECT string_agg(DISTINCT what, ', ' ORDER BY what) FROM seen";
    assert_eq!(
        ebb.db.scalar::<String>(seen).await,
        "posts AFTER UPDATE, posts BEFORE UPDATE, users AFTER DELETE, users AFTER UPDATE"
    );
}
