//! Nodes that die in mid-erasure, again and again: what is due is erased once and whole, and nothing else is touched.

use std::time::Duration;

use ebb::audit::{PeriodKeys, SubjectKey};
use ebb::policy::{Kind, Policy, Spec, Wanted};
use ebb::{Engine, Keys};
use ebb_testkit::{Node, TempDir, TestDatabase, database, empty_database_on, eventually, own_server};
use serde_json::json;

use super::kills::{Dice, kills};
use super::{SOON, config, ebb_bin, stop};

/// Subjects 1–150 are due, 151–160 not yet, 161–170 on hold, 171–180 not deleted. Subject 1 has very many sessions. A ledger
/// has every row that goes.
const SHOP: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
    CREATE TABLE orders (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE);
    CREATE TABLE items (id bigint PRIMARY KEY, order_id bigint NOT NULL REFERENCES orders ON DELETE CASCADE);
    CREATE TABLE sessions (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE);
    CREATE INDEX ON orders (user_id); CREATE INDEX ON items (order_id); CREATE INDEX ON sessions (user_id);
    INSERT INTO users SELECT n FROM generate_series(1, 180) n;
    INSERT INTO orders SELECT u * 10 + n, u FROM generate_series(1, 180) u, generate_series(1, 4) n;
    INSERT INTO items SELECT o.id * 10 + n, o.id FROM orders o, generate_series(1, 3) n;
    INSERT INTO sessions SELECT u * 1000000 + n, u FROM generate_series(1, 180) u, generate_series(1, 20) n;
    INSERT INTO sessions SELECT 500000000 + n, 1 FROM generate_series(1, 70000) n;
    CREATE TABLE ledger (tab text, id bigint);
    CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.ledger SELECT 'public.' || TG_TABLE_NAME, g.id FROM gone g; RETURN NULL; END $$;
    CREATE TRIGGER note AFTER DELETE ON users REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note();
    CREATE TRIGGER note AFTER DELETE ON orders REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note();
    CREATE TRIGGER note AFTER DELETE ON items REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note();
    CREATE TRIGGER note AFTER DELETE ON sessions REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION note();
    ANALYZE";

async fn apply(db: &TestDatabase, keys: &TempDir, more: serde_json::Value) -> String {
    let subject = keys.path().join("subject.key");
    SubjectKey::create_if_missing(&subject).unwrap();
    let period = keys.path().join("periods");
    PeriodKeys::at(&period).create_directory().unwrap();
    let spec = json!({ "table": "users", "deleted_at": "deleted_at", "grace": "30d", "every": "1s", "mark_every": "1s",
                       "brake": { "share": "off" }, "snapshot": "sealed", "snapshot_for": "30d" });
    let mut spec: Spec = spec.as_object().unwrap().clone();
    spec.extend(more.as_object().unwrap().clone());
    let policy = Policy::parse(Kind::Retain, "users", &spec).unwrap();
    let own = Keys { subject: Some(subject.clone()), period: Some(period.clone()), ..Keys::default() };
    let engine = Engine::new(db.open(), own);
    let wanted = [Wanted { kind: Kind::Retain, name: "users".into(), spec, policy }];
    engine.apply(&wanted, true, "test").await.unwrap();
    engine.database().close().await;
    format!("[audit]\nsubject_key = \"file:{}\"\nperiod_keys = \"{}\"\n", subject.display(), period.display())
}

/// Waits as one of Ebb's own sessions: any other that asks so often is somebody at work, beside whom batches come one at a time.
async fn until_seen(db: &TestDatabase, sql: &'static str) {
    let own = db.open();
    eventually(SOON, || async {
        let mut session = own.session("ebb/test").await.unwrap();
        sqlx::query_scalar(sql).fetch_one(&mut session).await.unwrap()
    })
    .await;
}

/// Opens every copy and compares it, row by row, with what went.
async fn assert_copied(db: &TestDatabase, keys: &TempDir) {
    let keys = PeriodKeys::at(keys.path().join("periods"));
    db.execute("CREATE TABLE copied (tab text, id bigint)").await;
    let deletions: Vec<uuid::Uuid> =
        sqlx::query_scalar("SELECT id FROM ebb.deletion WHERE state = 'erased'").fetch_all(db.pool()).await.unwrap();
    let opened = db.open();
    for deletion in deletions {
        let mut tx = opened.read().await.unwrap();
        let snapshot = ebb::retain::open_snapshot(&mut tx, &keys, deletion, "a test", "test").await.unwrap();
        tx.commit().await.unwrap();
        assert!(snapshot.complete);
        for part in 0..snapshot.parts() {
            // A transaction each: on a busy machine one that waits for the next insert is idle for too long.
            let mut tx = opened.read().await.unwrap();
            let lines = snapshot.part(&mut tx, part).await.unwrap();
            tx.commit().await.unwrap();
            let array = format!("[{}]", lines.trim_end().replace('\n', ","));
            let add = "INSERT INTO copied SELECT l ->> 'table', (l -> 'row' ->> 'id')::int8 FROM json_array_elements($1::json) l";
            sqlx::query(add).bind(array).execute(db.pool()).await.unwrap();
        }
    }
    let differs: i64 =
        db.scalar("SELECT count(*) FROM (SELECT tab, id FROM copied EXCEPT ALL SELECT tab, id FROM ledger) m").await;
    let (copied, went): (i64, i64) =
        sqlx::query_as("SELECT (SELECT count(*) FROM copied), (SELECT count(*) FROM ledger)")
            .fetch_one(db.pool())
            .await
            .unwrap();
    assert_eq!((copied, differs), (went, 0), "the copies are what went");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_killed_in_mid_erasure_erase_what_is_due_once_and_nothing_else() {
    let mut dice = Dice::seeded("erasure");
    let (db, keys) = (database().await, TempDir::new());
    db.execute(SHOP).await;
    let audit = apply(&db, &keys, json!({ "batch": { "rows": 2, "pause": "20ms" } })).await;
    db.execute("SELECT ebb.place_hold('users', n::text, 'court') FROM generate_series(161, 170) n").await;
    db.execute("UPDATE users SET deleted_at = now() - interval '31 days' WHERE id <= 150 OR id BETWEEN 161 AND 170")
        .await;
    db.execute("UPDATE users SET deleted_at = now() - interval '29 days' WHERE id BETWEEN 151 AND 160").await;

    let boot = |number: usize| {
        let config = config(&format!("n{number}"), "1s") + &audit;
        Node::spawn(ebb_bin(), db.url(), &config, &["run"])
    };
    let mut nodes: Vec<Node> = (0..2).map(boot).collect();
    // Right after the first subject both go: one of them was at it.
    eventually(SOON, || async { db.scalar("SELECT EXISTS (SELECT FROM ledger)").await }).await;
    for (number, node) in nodes.iter_mut().enumerate() {
        node.kill9();
        *node = boot(100 + number);
    }
    for number in 0..kills(30) {
        tokio::time::sleep(Duration::from_millis(10 + dice.roll(150))).await;
        let victim = dice.roll(nodes.len() as u64) as usize;
        nodes[victim].kill9();
        nodes[victim] = boot(2 + number);
        // Whoever lives takes over, and there is always something to do.
        db.execute("UPDATE ebb.lease SET expires_at = '-infinity' WHERE random() < 0.7").await;
        db.execute("UPDATE ebb.unit SET triggered = true WHERE policy = 'users'; NOTIFY ebb").await;
    }
    let done = "SELECT NOT EXISTS (SELECT FROM users WHERE id <= 150) AND NOT EXISTS (SELECT FROM ebb.run WHERE status = 'running')";
    eventually(SOON, || async { db.scalar(done).await }).await;
    for node in nodes {
        stop(node).await;
    }

    let left: String = db.scalar("SELECT string_agg(id::text, ',' ORDER BY id) FROM users").await;
    assert_eq!(left, (151..=180).map(|id| id.to_string()).collect::<Vec<_>>().join(","));
    let whole: bool = db
        .scalar(
            "SELECT (SELECT count(*) FROM orders) = 30 * 4 AND (SELECT count(*) FROM items) = 30 * 12
                AND (SELECT count(*) FROM sessions) = 30 * 20",
        )
        .await;
    assert!(whole, "whoever is left has everything");
    let (went, twice): (i64, i64) = sqlx::query_as("SELECT count(*), count(*) - count(DISTINCT (tab, id)) FROM ledger")
        .fetch_one(db.pool())
        .await
        .unwrap();
    assert_eq!((went, twice), (150 * (1 + 4 + 12 + 20) + 70_000, 0));
    // One record each, and table by table they say what went.
    let (records, subjects, rows): (i64, i64, i64) = sqlx::query_as(
        "SELECT count(*), count(DISTINCT subject), sum(rows)::int8 FROM ebb.audit WHERE action = 'erase'",
    )
    .fetch_one(db.pool())
    .await
    .unwrap();
    assert_eq!((records, subjects, rows), (150, 150, went));
    let differs: i64 = db
        .scalar(
            "SELECT count(*) FROM (SELECT tab, count(*) AS n FROM ledger GROUP BY 1) l
             FULL JOIN (SELECT t.key AS tab, sum(t.value::int8) AS n FROM ebb.audit a, jsonb_each_text(a.details -> 'tables') t
                        WHERE a.action = 'erase' GROUP BY 1) r USING (tab) WHERE l.n IS DISTINCT FROM r.n",
        )
        .await;
    assert_eq!(differs, 0);
    assert_copied(&db, &keys).await;
    let states: String = db
        .scalar("SELECT string_agg(DISTINCT state, ',' ORDER BY state) FROM ebb.deletion WHERE subject_id IS NOT NULL")
        .await;
    assert_eq!(states, "pending");
    let abandoned: i64 = db.scalar("SELECT count(*) FROM ebb.run WHERE status = 'abandoned' AND chore = 'erase'").await;
    assert!(abandoned > 0, "no kill hit a run");
}

/// A server of its own, where nobody else is at work: two batches at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_killed_with_two_batches_under_way_leaves_nobody_half_erased() {
    let server = own_server();
    let (db, keys) = (empty_database_on(&server).await, TempDir::new());
    ebb::pg::migrate(&db.open()).await.unwrap();
    db.execute(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE orders (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE);
         CREATE INDEX ON orders (user_id);
         INSERT INTO users SELECT n, CASE WHEN n <= 1500 THEN now() - interval '31 days' END FROM generate_series(1, 1600) n;
         INSERT INTO orders SELECT u * 10 + n, u FROM generate_series(1, 1600) u, generate_series(1, 3) n;
         CREATE TABLE slow (); INSERT INTO slow DEFAULT VALUES;
         CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             PERFORM pg_sleep(2) FROM public.slow; RETURN NULL; END $$;
         CREATE TRIGGER linger AFTER DELETE ON users FOR EACH STATEMENT EXECUTE FUNCTION linger(); ANALYZE",
    )
    .await;
    let audit = apply(&db, &keys, json!({})).await;
    let boot = |name: &str| Node::spawn(ebb_bin(), db.url(), &(config(name, "1s") + &audit), &["run"]);
    let mut node = boot("killed");
    let two = "SELECT count(*) = 2 FROM pg_stat_activity
        WHERE application_name LIKE 'ebb/killed/erase/%' AND wait_event = 'PgSleep'";
    until_seen(&db, two).await;
    node.kill9();
    db.execute("TRUNCATE slow").await;
    let node = boot("next");
    let done = "SELECT NOT EXISTS (SELECT FROM users WHERE deleted_at IS NOT NULL)";
    eventually(SOON, || async { db.scalar(done).await }).await;
    stop(node).await;
    let whole = "SELECT (SELECT count(*) FROM users) = 100 AND (SELECT count(*) FROM orders) = 300";
    assert!(db.scalar::<bool>(whole).await, "whoever is left has everything");
    let (records, subjects, least, most): (i64, i64, i64, i64) = sqlx::query_as(
        "SELECT count(*), count(DISTINCT subject), min(rows), max(rows) FROM ebb.audit WHERE action = 'erase'",
    )
    .fetch_one(db.pool())
    .await
    .unwrap();
    assert_eq!((records, subjects, least, most), (1500, 1500, 4, 4), "a record each, of everything that went");
}

/// A server of its own, where nobody else is at work: two batches at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_pair_of_marking_that_ends_between_its_commits_loses_nobody_and_marks_nobody_twice() {
    let server = own_server();
    for killed in [true, false] {
        let (db, keys) = (empty_database_on(&server).await, TempDir::new());
        ebb::pg::migrate(&db.open()).await.unwrap();
        // Whose commit comes second, after one that was under way beside it, stays in it. What users' triggers put off is settled by
        // then; that it counted itself in the run is not.
        db.execute(
            "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz, due timestamptz);
             INSERT INTO users SELECT n, CASE WHEN n <= 12000 THEN now() END FROM generate_series(1, 12100) n;
             CREATE TABLE ledger (tx xid8, seen pg_snapshot, rows bigint);
             CREATE TABLE slow (); INSERT INTO slow DEFAULT VALUES;
             CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 INSERT INTO public.ledger SELECT pg_current_xact_id(), pg_current_snapshot(), count(*) FROM now_so; RETURN NULL; END $$;
             CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 PERFORM pg_sleep(600) FROM public.slow WHERE EXISTS (SELECT FROM public.ledger mine JOIN public.ledger other
                     ON other.tx <> mine.tx AND NOT pg_visible_in_snapshot(other.tx, mine.seen) WHERE mine.tx = pg_current_xact_id());
                 RETURN NULL; END $$;
             CREATE TRIGGER note AFTER UPDATE ON users REFERENCING NEW TABLE AS now_so FOR EACH STATEMENT EXECUTE FUNCTION note();
             CREATE CONSTRAINT TRIGGER linger AFTER UPDATE ON ebb.run DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linger();
             ANALYZE",
        )
        .await;
        let audit = apply(&db, &keys, json!({ "mirror": { "due": "due" }, "batch": { "timeout": "5m" } })).await;
        let boot = |name: &str| Node::spawn(ebb_bin(), db.url(), &(config(name, "1s") + &audit), &["run"]);
        let mut node = boot("first");
        let between = "SELECT count(*) = 1 FROM pg_stat_activity
            WHERE application_name LIKE 'ebb/first/mark/%' AND wait_event = 'PgSleep' AND query ILIKE 'COMMIT%'";
        until_seen(&db, between).await;
        let marked: i64 = db.scalar("SELECT count(*) FROM ebb.deletion").await;
        assert!(0 < marked && marked < 12000, "one of the two has ended: {marked}");
        if killed {
            node.kill9();
        }
        db.execute("DELETE FROM slow").await;
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'ebb/first/mark/%'",
        )
        .await;
        let node = if killed { boot("next") } else { node };
        let done = "SELECT (SELECT count(*) FROM ebb.deletion) = 12000
            AND NOT EXISTS (SELECT FROM ebb.run WHERE status = 'running' AND node <> 'first')";
        eventually(SOON, || async { db.scalar(done).await }).await;
        stop(node).await;
        let once = "SELECT count(*) = 12000 AND count(DISTINCT d.subject_id) = 12000 FROM users u JOIN ebb.deletion d
            ON d.subject_id = u.id::text AND d.state = 'pending' AND d.deleted_at = u.deleted_at AND d.due_at = u.due";
        assert!(db.scalar::<bool>(once).await, "everybody has one deletion, and its due time");
        let written: i64 = db.scalar("SELECT sum(rows)::int8 FROM ledger").await;
        let recorded: i64 = db.scalar("SELECT sum(rows)::int8 FROM ebb.audit WHERE action = 'mark'").await;
        let counted: i64 = db.scalar("SELECT sum(rows)::int8 FROM ebb.run WHERE chore = 'mark'").await;
        assert_eq!((written, recorded, counted), (12_000, 12_000, 12_000), "nobody was marked twice");
    }
}
