//! Who may do what. Roles belong to the whole server, so that these tests have one of their own.
//!
//! What the node needs on a table that it sweeps, and nothing else:
//! `GRANT USAGE ON SCHEMA …; GRANT SELECT, DELETE ON …; GRANT UPDATE (any one column) ON …` (locking a row needs it), on
//! the table and on each leaf; UPDATE of the columns that `set` names.

use ebb::Engine;
use ebb::audit::Entry;
use ebb::pg::{Database, Target};
use ebb::spine::Status;
use ebb_testkit::{Server, TestDatabase, empty_database_on, own_server};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::OnceCell;

use crate::harness::{Ebb, execute, policy, run_once, succeeded, wanted};

/// A database migrated by `ebb_owner`, with a schema of `app`, and the node as `ebb_node`.
struct Site {
    ebb: Ebb,
    owner: Engine,
}

fn open_as(db: &TestDatabase, role: &str) -> Database {
    Database::open(Target::parse(&url_as(db, role), None).unwrap(), 10, "ebb/test")
}

fn url_as(db: &TestDatabase, role: &str) -> String {
    db.url().replace("postgres@", &format!("{role}@"))
}

async fn connect_as(db: &TestDatabase, role: &str) -> PgConnection {
    PgConnection::connect(&url_as(db, role)).await.unwrap()
}

async fn denied(db: &TestDatabase, role: &str, sql: &str) {
    let mut client = connect_as(db, role).await;
    let error = match sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut client).await {
        Ok(_) => panic!("{role} may: {sql}"),
        Err(error) => error,
    };
    let code = error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
    assert_eq!(code.as_deref(), Some("42501"), "{sql}: {error}");
}

impl Site {
    async fn new() -> Self {
        static SERVER: OnceCell<Server> = OnceCell::const_new();
        let server = SERVER
            .get_or_init(|| async {
                let server = own_server();
                let db = empty_database_on(&server).await;
                db.execute(
                    "CREATE ROLE ebb_owner LOGIN; CREATE ROLE ebb_node LOGIN; CREATE ROLE app LOGIN; CREATE ROLE stranger LOGIN;
                     CREATE ROLE worker; CREATE ROLE limited LOGIN NOINHERIT IN ROLE worker",
                )
                .await;
                server
            })
            .await;
        let db = empty_database_on(server).await;
        db.execute(&format!(
            "GRANT CREATE ON DATABASE {0} TO ebb_owner; GRANT CREATE ON DATABASE {0} TO app",
            db.name()
        ))
        .await;
        let (node, owner) = (open_as(&db, "ebb_node"), open_as(&db, "ebb_owner"));
        let ebb = Ebb::through(db, node).await;
        let owner = ebb.another(owner);
        let error = ebb.engine.ready().await.unwrap_err();
        assert!(error.is_refused() && error.hint().unwrap().contains("ebb migrate"), "{error}");
        owner.migrate().await.unwrap();
        ebb.engine.ready().await.unwrap();
        let site = Self { ebb, owner };
        site.as_app(
            "CREATE SCHEMA app;
             CREATE TABLE app.t (id int PRIMARY KEY, at timestamptz, status text);
             CREATE INDEX ON app.t (at);
             INSERT INTO app.t SELECT n, now() - n * interval '1 minute' FROM generate_series(1, 1500) n;
             INSERT INTO app.t SELECT 5000 + n, now() + n * interval '1 minute' FROM generate_series(1, 10) n",
        )
        .await;
        site
    }

    async fn as_app(&self, sql: &str) {
        execute(&mut connect_as(&self.ebb.db, "app").await, sql).await;
    }

    async fn grant(&self) {
        self.as_app(
            "GRANT USAGE ON SCHEMA app TO ebb_node; GRANT SELECT, DELETE ON app.t TO ebb_node;
             GRANT UPDATE (id) ON app.t TO ebb_node",
        )
        .await;
    }

    async fn sweep(&self, more: &str) -> ebb::spine::Summary {
        self.ebb.apply(&on_app(more)).await;
        self.ebb.again().await
    }
}

fn on_app(more: &str) -> String {
    policy(more).replace("public.t", "app.t")
}

#[tokio::test]
async fn a_node_sweeps_with_only_the_grants_it_needs() {
    let site = Site::new().await;
    let error = site.ebb.try_apply(&on_app("")).await.unwrap_err();
    assert!(error.to_string().contains("permission denied"), "{error}");
    site.grant().await;
    // A row that somebody holds takes the way with row locks.
    let mut client = connect_as(&site.ebb.db, "app").await;
    execute(&mut client, "BEGIN; SELECT FROM app.t WHERE id = 7 FOR UPDATE").await;
    let summary = site.sweep("where = \"id <> 8\"").await;
    assert_eq!((summary.status, summary.rows, summary.skipped), (Status::Success, 1498, 1), "{summary:?}");
    execute(&mut client, "COMMIT").await;
    // More than a tenth went, and VACUUM is not this node's to run.
    let note: String = site.ebb.db.scalar("SELECT vacuum FROM ebb.unit WHERE policy = 't'").await;
    assert_eq!(note, "not permitted: VACUUM needs the owner (app) or MAINTAIN");
    // UPDATE on one column is not UPDATE on another.
    let summary = site.sweep("action = { set = { status = \"'x'\" } }").await;
    assert_eq!(summary.status, Status::Failed);
    assert!(summary.note.unwrap().contains("permission denied"));
    site.as_app("GRANT UPDATE (status) ON app.t TO ebb_node").await;
    succeeded(&site.sweep("every = \"2h\"\naction = { set = { status = \"'x'\" } }").await, 2);
    // Ebb's own tables, too.
    let finished = run_once(&site.ebb.engine, &["keep"]).await.unwrap();
    assert!(finished.runs.iter().all(|run| run.status == Status::Success), "{finished:?}");
    assert_eq!(run_once(&site.owner, &["keep"]).await.unwrap().runs.len(), finished.runs.len());
}

#[tokio::test]
async fn leaves_need_their_own_grants() {
    let site = Site::new().await;
    site.as_app(
        "DROP TABLE app.t; CREATE TABLE app.t (id int, at timestamptz) PARTITION BY LIST (id);
         CREATE TABLE app.t_1 PARTITION OF app.t FOR VALUES IN (1); CREATE TABLE app.t_2 PARTITION OF app.t FOR VALUES IN (2);
         INSERT INTO app.t SELECT 1 + n % 2, now() - interval '1 hour' FROM generate_series(1, 10) n",
    )
    .await;
    site.grant().await;
    site.ebb.apply(&on_app("")).await;
    let finished = site.ebb.once("t").await;
    let said: Vec<&str> = finished.runs.iter().filter_map(|run| run.note.as_deref()).collect();
    assert!(said.len() == 2 && said.iter().all(|said| said.contains("permission denied for table t_")), "{finished:?}");
    site.as_app("GRANT SELECT, DELETE, UPDATE ON app.t_1, app.t_2 TO ebb_node").await;
    let finished = site.ebb.once("t").await;
    assert_eq!(finished.runs.iter().map(|run| run.rows).sum::<u64>(), 10, "{finished:?}");
}

#[tokio::test]
async fn the_audit_only_grows() {
    let site = Site::new().await;
    let db = &site.ebb.db;
    let mut tx = site.ebb.engine.database().read().await.unwrap();
    Entry::new("expire", "x").insert(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    for sql in [
        "UPDATE ebb.audit SET rows = 0",
        "DELETE FROM ebb.audit",
        "TRUNCATE ebb.audit",
        "ALTER TABLE ebb.audit DISABLE TRIGGER ALL",
        "DROP TABLE ebb.audit",
        "SELECT FROM ebb.audit FOR UPDATE",
        "UPDATE ebb.audit_block SET records = 0",
        "DELETE FROM ebb.audit_block",
        "DELETE FROM ebb.audit_leaf",
        "UPDATE ebb.audit_leaf SET position = 0",
        "DELETE FROM ebb.audit_pending",
        "INSERT INTO ebb.audit_pending VALUES (1, '1')",
        "UPDATE ebb.migration SET version = 99",
        "DELETE FROM ebb.migration",
        "UPDATE ebb.policy_history SET name = 'x'",
        "DELETE FROM ebb.policy_history",
        "UPDATE ebb.premature SET record = 0",
        "DELETE FROM ebb.premature",
        "UPDATE ebb.review SET reached = 0",
        "DELETE FROM ebb.review",
        "CREATE OR REPLACE FUNCTION ebb.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT now() + interval ''1 year'''",
        "CREATE TABLE ebb.mine ()",
        "SET session_replication_role = replica",
    ] {
        denied(db, "ebb_node", sql).await;
    }
    let records: i64 = db.scalar("SELECT count(*) FROM ebb.audit WHERE session_role = 'ebb_node'").await;
    assert_eq!(records, 1);
}

#[tokio::test]
async fn nothing_is_open_to_everybody() {
    let site = Site::new().await;
    let db = &site.ebb.db;
    for sql in ["SELECT FROM ebb.policy", "SELECT ebb.now()", "SELECT ebb.once('a', 'b')"] {
        denied(db, "stranger", sql).await;
    }
    db.execute("GRANT USAGE ON SCHEMA ebb TO stranger").await;
    let open: Vec<String> = sqlx::query_scalar(
        "SELECT p.oid::regprocedure::text FROM pg_proc p WHERE pronamespace = 'ebb'::regnamespace AND has_function_privilege('stranger', p.oid, 'EXECUTE')",
    )
    .fetch_all(db.pool())
    .await
    .unwrap();
    assert_eq!(open, Vec::<String>::new());
    let open: Vec<String> = sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_class c WHERE relnamespace = 'ebb'::regnamespace AND relkind IN ('r', 'v', 'S', 'p')
         AND CASE WHEN relkind = 'S' THEN has_sequence_privilege('stranger', c.oid, 'USAGE, SELECT, UPDATE')
                  ELSE has_table_privilege('stranger', c.oid, 'SELECT, INSERT, UPDATE, DELETE') END",
    )
    .fetch_all(db.pool())
    .await
    .unwrap();
    assert_eq!(open, Vec::<String>::new());
    // Definer's functions find their names in one place only; ebb.once names the schema of everything instead, for speed.
    let loose: i64 = db
        .scalar("SELECT count(*) FROM pg_proc WHERE proname <> 'once' AND pronamespace = 'ebb'::regnamespace AND prosecdef AND NOT COALESCE(proconfig::text LIKE '%search_path%', false)")
        .await;
    assert_eq!(loose, 0);
}

#[tokio::test]
async fn statements_on_the_table_run_under_the_policys_role() {
    let site = Site::new().await;
    // The node itself may nothing; it may become one who may.
    site.ebb.db.execute("GRANT ebb_node TO limited WITH ADMIN OPTION; ALTER ROLE limited NOINHERIT").await;
    site.as_app("GRANT USAGE ON SCHEMA app TO worker; GRANT SELECT, DELETE, UPDATE (id) ON app.t TO worker").await;
    // From 16 on a membership inherits or not as the role did when it was granted.
    site.ebb.db.execute("ALTER ROLE ebb_node NOINHERIT; GRANT worker TO ebb_node").await;
    let error = site.ebb.try_apply(&on_app("where = \"id > 0\"")).await.unwrap_err();
    assert!(error.to_string().contains("permission denied"), "{error}");
    succeeded(&site.sweep("role = \"worker\"\nwhere = \"id > 0\"").await, 1500);
    let by: String = site.ebb.db.scalar("SELECT DISTINCT session_role FROM ebb.audit WHERE action = 'expire'").await;
    assert_eq!(by, "ebb_node");
    // The role limits: what worker may not do, the policy may not.
    site.ebb.db.execute("ALTER ROLE ebb_node INHERIT").await;
    site.grant().await;
    site.as_app("INSERT INTO app.t VALUES (1, now() - interval '1 hour'); REVOKE DELETE ON app.t FROM worker").await;
    let summary = site.ebb.again().await;
    assert_eq!((summary.status, summary.rows), (Status::Failed, 0), "{summary:?}");
    for (role, says) in [("stranger", "permission denied to set role"), ("nobody", "does not exist")] {
        let error = site.ebb.try_apply(&on_app(&format!("role = \"{role}\"\nwhere = \"id > 0\""))).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    site.ebb.db.execute("REVOKE worker FROM ebb_node").await;
}

#[tokio::test]
async fn a_trigger_runs_with_the_nodes_rights_and_cannot_change_the_audit() {
    let site = Site::new().await;
    site.grant().await;
    site.as_app(
        "CREATE TABLE app.tried (who text, what text); GRANT INSERT ON app.tried TO ebb_node;
         CREATE FUNCTION app.hostile() RETURNS trigger LANGUAGE plpgsql AS $$
         DECLARE attempt text;
         BEGIN
             FOREACH attempt IN ARRAY ARRAY['UPDATE ebb.audit SET rows = 0', 'DELETE FROM ebb.audit', 'DELETE FROM ebb.audit_pending',
                                            'TRUNCATE ebb.audit', 'RESET ROLE; SET ROLE ebb_owner; DELETE FROM ebb.audit'] LOOP
                 BEGIN
                     EXECUTE attempt;
                     INSERT INTO app.tried VALUES (current_user, attempt);
                 EXCEPTION WHEN insufficient_privilege THEN INSERT INTO app.tried VALUES (current_user, 'denied');
                 END;
             END LOOP;
             RETURN OLD;
         END $$;
         CREATE TRIGGER hostile AFTER DELETE ON app.t FOR EACH ROW WHEN (OLD.id <= 2) EXECUTE FUNCTION app.hostile()",
    )
    .await;
    succeeded(&site.sweep("batch = { rows = 700, pause = \"0s\" }").await, 1500);
    let tried: (i64, i64, i64) = sqlx::query_as(
        "SELECT count(*), count(*) FILTER (WHERE what = 'denied'), count(*) FILTER (WHERE who = 'ebb_node') FROM app.tried",
    )
    .fetch_one(site.ebb.db.pool())
    .await
    .unwrap();
    assert_eq!(tried, (10, 10, 10));
    assert_eq!(site.ebb.audited().await, 1500);
}

#[tokio::test]
async fn row_level_security_is_an_error_and_not_nothing_due() {
    let site = Site::new().await;
    site.grant().await;
    site.ebb.apply(&on_app("")).await;
    site.as_app("ALTER TABLE app.t ENABLE ROW LEVEL SECURITY").await;
    let summary = site.ebb.again().await;
    assert_eq!((summary.status, summary.rows), (Status::Failed, 0), "{summary:?}");
    assert!(summary.note.unwrap().contains("row-level security"));
    let error = site.ebb.try_apply(&on_app("every = \"2h\"")).await.unwrap_err();
    assert!(error.to_string().contains("row-level security"), "{error}");
    let left: i64 = site.ebb.db.scalar("SELECT count(*) FROM app.t").await;
    assert_eq!(left, 1510);
}

#[tokio::test]
async fn a_node_changes_a_policy_over_subjects_where_nothing_has_to_be_made_by_the_owner() {
    let site = Site::new().await;
    site.as_app(
        "CREATE TABLE app.users (id bigint PRIMARY KEY, deleted_at timestamptz, due timestamptz);
         INSERT INTO app.users VALUES (1), (2);
         GRANT USAGE ON SCHEMA app TO ebb_owner, ebb_node;
         GRANT SELECT, UPDATE, DELETE, TRIGGER ON app.users TO ebb_owner, ebb_node",
    )
    .await;
    let config = "[[retain]]\nname = \"users\"\ntable = \"app.users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\nfloor = \"30d\"\n\
                  mark_at_once = true\n";
    site.owner.apply(&wanted(config).unwrap(), false, "owner").await.unwrap();
    let node = &site.ebb.engine;
    let set = async |changes: serde_json::Value| {
        node.set_policy("users", &serde_json::from_value(changes).unwrap(), "test").await
    };
    assert_eq!(set(serde_json::json!({ "description": "people" })).await.unwrap(), 2);
    let spec: serde_json::Value = site.ebb.db.scalar("SELECT spec FROM ebb.policy WHERE name = 'users'").await;
    let mut spec: ebb::policy::Spec = serde_json::from_value(spec).unwrap();
    spec.insert("grace".into(), "100d".into());
    let consent = ebb::retain::Consent::default();
    assert_eq!(node.put_policy("users", &spec, 2, "test", &consent).await.unwrap(), 3);
    let due: bool = site
        .ebb
        .db
        .scalar("SELECT ebb.delete_subject('users', '1') BETWEEN now() + interval '99 days' AND now() + interval '101 days'")
        .await;
    assert!(due, "the terms are the new ones");
    site.as_app("UPDATE app.users SET deleted_at = now() WHERE id = 2").await;
    let marked: i64 = site.ebb.db.scalar("SELECT count(*) FROM ebb.deletion WHERE subject_id = '2'").await;
    assert_eq!(marked, 1, "its trigger is still there");
    // What the function does depends on these.
    for change in [serde_json::json!({ "mirror": { "due": "due" } }), serde_json::json!({ "mark_at_once": false })] {
        let refused = set(change.clone()).await.unwrap_err();
        assert!(refused.is_refused() && refused.to_string().contains("ebb_owner"), "{change}: {refused}");
        let hint = refused.hint().unwrap();
        assert!(hint.contains("as a member of ebb_owner: ebb policy set users"), "{hint}");
        site.owner.set_policy("users", &serde_json::from_value(change).unwrap(), "owner").await.unwrap();
    }
}

#[tokio::test]
async fn a_day_of_history_that_a_node_made_lacks_no_rights() {
    let site = Site::new().await;
    let mut node = connect_as(&site.ebb.db, "ebb_node").await;
    execute(&mut node, "SELECT ebb.event_history_extend(now(), 20)").await;
    let role = Some("ebb_node".to_owned());
    let asked = ebb::doctor::Questions { wanted: Vec::new(), host_time: jiff::Timestamp::now(), role, embedded: false };
    let found = site.owner.doctor(&asked).await.unwrap().findings;
    assert!(!found.iter().any(|found| found.evidence.contains("cannot use these tables")), "{found:?}");
    site.ebb.db.execute("REVOKE SELECT ON ebb.event_history FROM ebb_node").await;
    let found = site.owner.doctor(&asked).await.unwrap().findings;
    assert!(found.iter().any(|found| found.evidence.contains("cannot use these tables")), "{found:?}");
}

/// Everything that a trigger might try to get out, and a record of who it was.
const HOSTILE: &str = "
    CREATE TABLE app.tried (who text, what text, result text);
    GRANT INSERT ON app.tried TO PUBLIC;
    CREATE FUNCTION app.hostile() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE attempt text;
    BEGIN
        FOREACH attempt IN ARRAY ARRAY['RESET ROLE', 'SET ROLE ebb_node', 'SET LOCAL ROLE ebb_node', 'SET SESSION AUTHORIZATION ebb_node',
            'RESET SESSION AUTHORIZATION', 'INSERT INTO ebb.audit (action, by_name) VALUES (''forged'', ''x'')', 'UPDATE ebb.audit SET rows = 0',
            'DELETE FROM ebb.audit', 'SELECT FROM ebb.policy', 'UPDATE ebb.lease SET holder = NULL', 'SET session_replication_role = replica'] LOOP
            BEGIN
                EXECUTE attempt;
                INSERT INTO app.tried VALUES (current_user, attempt, 'done');
            EXCEPTION WHEN OTHERS THEN INSERT INTO app.tried VALUES (current_user, attempt, SQLSTATE);
            END;
        END LOOP;
        PERFORM set_config('search_path', 'app, pg_catalog', false);
        RETURN OLD;
    END $$;
    CREATE TRIGGER hostile BEFORE DELETE ON app.t FOR EACH ROW WHEN (OLD.id <= 2) EXECUTE FUNCTION app.hostile();
    CREATE CONSTRAINT TRIGGER later AFTER DELETE ON app.t DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (OLD.id <= 2) EXECUTE FUNCTION app.hostile();
    -- What the node would call next if names meant what the trigger wants.
    CREATE FUNCTION app.plus(bigint, bigint) RETURNS bigint LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO app.tried VALUES (current_user, 'plus', 'done'); RETURN $1 OPERATOR(pg_catalog.+) $2; END $$;
    CREATE OPERATOR app.+ (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = app.plus);";

/// The sandbox of policy `t`, as a superuser makes it.
async fn sandbox(site: &Site, config: &str) -> ebb::SandboxState {
    let superuser = site.ebb.another(site.ebb.db.open());
    let mut states = superuser.sandboxes(&wanted(config).unwrap(), true).await.unwrap();
    assert_eq!(states.len(), 1);
    states.remove(0)
}

#[tokio::test]
async fn through_a_sandbox_a_trigger_has_the_owners_rights_and_the_node_needs_none_to_delete() {
    let site = Site::new().await;
    site.as_app("GRANT USAGE ON SCHEMA app TO ebb_node; GRANT SELECT ON app.t TO ebb_node").await;
    site.as_app(HOSTILE).await;
    let config =
        on_app("batch = { rows = 400, pause = \"0s\" }\nwhere = \"status IS DISTINCT FROM 'it''s $ebb$ 100 %'\"");
    site.ebb.apply(&config).await;
    let denied = site.ebb.again().await;
    assert_eq!((denied.status, denied.rows), (Status::Failed, 0), "{denied:?}");
    let note = denied.note.unwrap();
    assert!(note.contains("permission denied") && note.contains("ebb doctor"), "{note}");
    // The node may not make it; what it prints, somebody else may run.
    let states = site.ebb.engine.sandboxes(&wanted(&config).unwrap(), true).await.unwrap();
    assert!(!states[0].present && !states[0].created && states[0].owner == "app", "{states:?}");
    site.ebb.db.execute(&states[0].script).await;
    assert!(site.ebb.engine.sandboxes(&wanted(&config).unwrap(), true).await.unwrap()[0].present);
    // A row that somebody holds takes the careful way, which needs no right to lock.
    let mut client = connect_as(&site.ebb.db, "app").await;
    execute(&mut client, "BEGIN; SELECT FROM app.t WHERE id = 700 FOR UPDATE").await;
    let summary = site.ebb.again().await;
    assert_eq!((summary.status, summary.rows, summary.skipped), (Status::Success, 1499, 1), "{summary:?}");
    execute(&mut client, "COMMIT").await;
    assert_eq!(site.ebb.audited().await, 1499);
    let tried: Vec<(String, String, String)> =
        sqlx::query_as("SELECT who, what, result FROM app.tried").fetch_all(site.ebb.db.pool()).await.unwrap();
    assert_eq!(tried.len(), 2 * 2 * 11, "two rows, at once and later: {tried:?}");
    assert!(tried.iter().all(|(who, _, result)| who == "app" && result != "done"), "{tried:?}");
    let forged: i64 = site.ebb.db.scalar("SELECT count(*) FROM ebb.audit WHERE action = 'forged'").await;
    assert_eq!(forged, 0);
}

#[tokio::test]
async fn a_sandbox_takes_only_what_no_hold_keeps() {
    let site = Site::new().await;
    site.as_app("GRANT USAGE ON SCHEMA app TO ebb_node; GRANT SELECT ON app.t TO ebb_node").await;
    assert!(sandbox(&site, &on_app("")).await.created);
    site.ebb.apply(&on_app("")).await;
    // As a policy over subjects would have written it; the owner of the table sees neither.
    site.ebb
        .db
        .execute(
            r#"INSERT INTO ebb.reach VALUES ('people', 'app.t', '{"\"ebb:row\".id = 700"}', '{}');
               INSERT INTO ebb.hold (policy, subject_id, reason, placed_at, placed_by) VALUES ('people', '7', 'court', now(), 'x');
               UPDATE ebb.gate SET bound = true"#,
        )
        .await;
    let summary = site.ebb.again().await;
    assert_eq!((summary.status, summary.rows), (Status::Success, 1499), "{summary:?}");
    assert!(site.ebb.db.scalar::<bool>("SELECT EXISTS (SELECT FROM app.t WHERE id = 700)").await);
    site.ebb.db.execute("UPDATE ebb.hold SET lifted_at = now()").await;
    succeeded(&site.ebb.again().await, 1);
}

#[tokio::test]
async fn a_sandbox_holds_one_condition_and_one_table() {
    let site = Site::new().await;
    site.as_app(
        "GRANT USAGE ON SCHEMA app TO ebb_node;
         CREATE TABLE app.p (id int, at timestamptz) PARTITION BY LIST (id);
         CREATE TABLE app.p_1 PARTITION OF app.p FOR VALUES IN (1); CREATE TABLE app.p_2 PARTITION OF app.p FOR VALUES IN (2);
         INSERT INTO app.p SELECT 1 + n % 2, now() - interval '1 hour' FROM generate_series(1, 10) n;
         GRANT SELECT ON app.t, app.p, app.p_1, app.p_2 TO ebb_node",
    )
    .await;
    let on_p = |more: &str| policy(more).replace("public.t", "app.p");
    let made = sandbox(&site, &on_p("")).await;
    assert!(made.created && made.table == "app.p", "{made:?}");
    // Every partition, also one that came later.
    site.as_app("CREATE TABLE app.p_3 PARTITION OF app.p FOR VALUES IN (3); INSERT INTO app.p VALUES (3, '2020-01-01'); GRANT SELECT ON app.p_3 TO ebb_node").await;
    site.ebb.apply(&on_p("")).await;
    let finished = site.ebb.once("t").await;
    assert_eq!(finished.runs.iter().map(|run| run.rows).sum::<u64>(), 11, "{finished:?}");
    // Not another table of the same owner.
    let function: String = site
        .ebb
        .db
        .scalar("SELECT oid::regproc::text FROM pg_proc WHERE pronamespace = 'ebb_sandbox'::regnamespace")
        .await;
    let call = format!("SELECT {function}('app.t', now(), 'pages', '(0,0)', '(9999,0)', NULL, NULL, true, false)");
    denied(&site.ebb.db, "ebb_node", &call).await;
    denied(&site.ebb.db, "stranger", &call).await;
    // A changed condition is another function.
    site.as_app("INSERT INTO app.p VALUES (1, '2020-01-01'), (2, '2020-01-01')").await;
    site.ebb.apply(&on_p("where = \"id = 1\"")).await;
    let finished = site.ebb.once("t").await;
    assert!(finished.runs.iter().all(|run| run.status == Status::Failed || run.rows == 0), "{finished:?}");
    assert!(sandbox(&site, &on_p("where = \"id = 1\"")).await.created);
    let finished = site.ebb.once("t").await;
    assert_eq!(finished.runs.iter().map(|run| run.rows).sum::<u64>(), 1, "{finished:?}");
    assert_eq!(site.ebb.list("id", "app.p").await, "2");
    let functions: i64 =
        site.ebb.db.scalar("SELECT count(*) FROM pg_proc WHERE pronamespace = 'ebb_sandbox'::regnamespace").await;
    assert_eq!(functions, 1, "the one of the condition before is gone");
}

#[tokio::test]
async fn nobody_with_more_rights_than_the_node_lends_them_to_a_trigger() {
    let site = Site::new().await;
    for owner in ["postgres", "ebb_owner", "ebb_node"] {
        site.ebb
            .db
            .execute(&format!("ALTER TABLE app.t OWNER TO {owner}; GRANT ALL ON SCHEMA app TO ebb_owner, ebb_node"))
            .await;
        let superuser = site.ebb.another(site.ebb.db.open());
        let states = superuser.sandboxes(&wanted(&on_app("")).unwrap(), true).await.unwrap();
        assert!(states.is_empty(), "{owner}: {states:?}");
    }
}
