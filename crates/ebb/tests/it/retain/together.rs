//! Subjects who go together, and subjects too large for one transaction: all of them in the end, none early, none half, and
//! never more rows in one transaction than it may take.

use super::users;
use super::warn::Shop;
use crate::harness::{Ebb, execute, options, run_once};

/// What a transaction may take.
pub(super) const MOST: i64 = 20_000;

/// Users with letters, and guests who are known by an address alone. A ledger counts what each transaction took or changed.
const USERS: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, email text, by bigint, deleted_at timestamptz, updated_at timestamptz);
    CREATE TABLE guests (id bigint PRIMARY KEY, email text, name text);
    CREATE TABLE letters (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE);
    CREATE TABLE cases (id bigint PRIMARY KEY, keeper bigint REFERENCES users ON DELETE SET NULL);
    CREATE INDEX ON users (email); CREATE INDEX ON users (by); CREATE INDEX ON guests (email);
    CREATE INDEX ON letters (user_id); CREATE INDEX ON cases (keeper);
    INSERT INTO users SELECT n, n || '@x' FROM generate_series(1, 6) n;
    INSERT INTO letters SELECT n, n FROM generate_series(1, 6) n;
    CREATE TABLE ledger (tx bigint, rows bigint);
    CREATE FUNCTION count_went() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.ledger SELECT txid_current(), count(*) FROM went; RETURN NULL; END $$;
    CREATE TRIGGER went AFTER DELETE ON guests REFERENCING OLD TABLE AS went FOR EACH STATEMENT EXECUTE FUNCTION count_went();
    CREATE TRIGGER went AFTER DELETE ON letters REFERENCING OLD TABLE AS went FOR EACH STATEMENT EXECUTE FUNCTION count_went();
    CREATE TRIGGER set AFTER UPDATE ON guests REFERENCING OLD TABLE AS went FOR EACH STATEMENT EXECUTE FUNCTION count_went();
    CREATE TRIGGER set AFTER UPDATE ON cases REFERENCING OLD TABLE AS went FOR EACH STATEMENT EXECUTE FUNCTION count_went();";

const GUESTS: &str =
    "children = [{ table = \"guests\", column = \"email\", references = \"email\", action = \"delete\" }]";

impl Ebb {
    pub(super) async fn many(more: &str, sql: &str) -> Self {
        let ebb = Self::with(USERS).await;
        ebb.db.execute(sql).await;
        ebb.db.execute("ANALYZE").await;
        ebb.apply(&users(more)).await;
        ebb
    }

    pub(super) async fn ids(&self) -> String {
        self.list("id", "users").await
    }

    pub(super) async fn most_at_once(&self) -> i64 {
        self.db
            .scalar("SELECT COALESCE(max(rows), 0)::int8 FROM (SELECT sum(rows) AS rows FROM ledger GROUP BY tx) t")
            .await
    }

    /// Why subjects wait, as `ebb status` and others list it.
    pub(super) async fn told(&self) -> String {
        let mut tx = self.engine.database().read().await.unwrap();
        let waiting = ebb::retain::list_waiting(&mut tx, Some("users"), 100).await.unwrap();
        tx.commit().await.unwrap();
        let mut told: Vec<String> = waiting
            .iter()
            .map(|one| &one.deletion)
            .map(|one| {
                format!("{}: {}", one.subject_id.as_deref().unwrap_or("-"), one.blocked.as_deref().unwrap_or("-"))
            })
            .collect();
        told.sort();
        told.join(", ")
    }
}

#[tokio::test]
async fn a_large_subject_and_whoever_shares_its_address_go_together_in_parts() {
    let ebb = Ebb::many(
        GUESTS,
        "UPDATE users SET email = 'a@x' WHERE id IN (1, 2, 3);
         INSERT INTO guests SELECT n, 'a@x' FROM generate_series(1, 45000) n; INSERT INTO guests VALUES (0, '6@x')",
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 3) n").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.ids().await.as_str(), ebb.list("id", "guests").await.as_str()), ("4,5,6", "0"));
    assert_eq!(ebb.erased().await, (3, 45_000 + 6), "a record each, and every row in one of them");
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
    assert_eq!(ebb.told().await, "");
}

#[tokio::test]
async fn a_claimed_subject_waits_for_whoever_may_not_go_yet_and_says_so() {
    let ebb = Ebb::many(GUESTS, "INSERT INTO guests SELECT n, '1@x' FROM generate_series(1, 30000) n").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.db.execute("UPDATE ebb.deletion SET state = 'erasing'").await;
    // Somebody alive registers with its address; later on hold, then in its grace.
    ebb.db.execute("UPDATE users SET email = '1@x' WHERE id = 2").await;
    let shares = "1: a subject that may not go yet has the same email";
    for (then, told) in [
        ("SELECT 1", shares.to_owned()),
        (
            "SELECT ebb.delete_subject('users', '2'), ebb.place_hold('users', '2', 'court')",
            format!("{shares}, 2: on hold: court"),
        ),
        ("SELECT ebb.lift_hold('users', '2')", shares.to_owned()),
    ] {
        ebb.db.execute(then).await;
        ebb.once("users").await;
        assert_eq!(
            (ebb.ids().await.as_str(), ebb.db.scalar::<i64>("SELECT count(*) FROM guests").await),
            ("1,2,3,4,5,6", 30_000)
        );
        assert_eq!(ebb.told().await, told, "{then}");
    }
    assert!(
        ebb.db.scalar::<bool>("SELECT ebb.restore_subject('users', '2')").await,
        "whoever is not claimed comes back"
    );
    ebb.db.execute("SELECT ebb.delete_subject('users', '2')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.ids().await.as_str(), ebb.erased().await), ("3,4,5,6", (2, 30_004)));
}

#[tokio::test]
async fn large_subjects_who_hang_on_each_other_go_together_in_parts() {
    let ebb = Ebb::many(
        "",
        "ALTER TABLE users ADD FOREIGN KEY (by) REFERENCES users ON DELETE CASCADE;
         UPDATE users SET by = 7 - id WHERE id IN (3, 4); UPDATE users SET by = 1 WHERE id = 2;
         INSERT INTO letters SELECT 100 + n, 1 + n % 4 FROM generate_series(1, 100000) n",
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 4) n").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.ids().await.as_str(), ebb.erased().await), ("5,6", (4, 100_008)));
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
}

#[tokio::test]
async fn many_small_subjects_who_go_with_one_are_bounded_too() {
    let ebb = Ebb::many(
        "",
        "ALTER TABLE users ADD FOREIGN KEY (by) REFERENCES users ON DELETE CASCADE;
         INSERT INTO users (id, by) SELECT n, 1 FROM generate_series(100, 399) n;
         INSERT INTO letters SELECT u * 1000 + n, u FROM generate_series(100, 399) u, generate_series(1, 100) n",
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', id::text) FROM users WHERE id <> 6").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.ids().await.as_str(), ebb.erased().await.0), ("6", 305));
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
}

#[tokio::test]
async fn a_group_that_takes_longer_than_a_statement_may_is_claimed_and_goes_in_smaller_parts() {
    let ebb = Ebb::many(
        "batch = { rows = 1, pause = \"0s\", timeout = \"2s\" }",
        "ALTER TABLE users ADD FOREIGN KEY (by) REFERENCES users ON DELETE CASCADE; UPDATE users SET by = 1 WHERE id IN (2, 3);
         INSERT INTO letters SELECT 100 + n, 1 + n % 3 FROM generate_series(1, 30) n;
         CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.1); RETURN OLD; END';
         CREATE TRIGGER linger BEFORE DELETE ON letters FOR EACH ROW WHEN (OLD.id > 100) EXECUTE FUNCTION linger()",
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 5) n").await;
    ebb.db.advance("91 days").await;
    let run = run_once(&ebb.engine, &["users:erase"]).await.unwrap().runs.remove(0);
    assert_eq!(run.status, ebb::spine::Status::Success, "{run:?}");
    assert_eq!((ebb.ids().await.as_str(), ebb.erased().await), ("6", (5, 5 + 5 + 30)));
    assert_eq!(ebb.list("id", "letters").await, "6");
}

#[tokio::test]
async fn a_pair_of_whom_one_fails_stays_whole() {
    let ebb = Ebb::many(
        GUESTS,
        "UPDATE users SET email = 'a@x' WHERE id IN (1, 2); INSERT INTO guests VALUES (1, 'a@x'), (3, '3@x');
         CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF OLD.user_id = 2 THEN RAISE ''no''; END IF; RETURN OLD; END';
         CREATE TRIGGER keep BEFORE DELETE ON letters FOR EACH ROW EXECUTE FUNCTION keep()",
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 5) n").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.ids().await.as_str(), ebb.list("id", "guests").await.as_str()), ("1,2,6", "1"));
    assert_eq!(ebb.list("subject_id || ' ' || error", "ebb.deletion WHERE attempts = 1").await, "1 no,2 no");
    // Nothing of either went: both can be taken back as they were.
    for id in [1, 2] {
        assert!(ebb.db.scalar::<bool>(&format!("SELECT ebb.restore_subject('users', '{id}')")).await);
    }
    assert_eq!(ebb.list("user_id", "letters").await, "1,2,6");
}

#[tokio::test]
async fn rows_that_only_lose_their_link_go_in_parts_too_and_are_counted_once() {
    let set = "children = [{ table = \"guests\", column = \"email\", references = \"email\", action = \"anonymize\", set = { name = \"'-'\" } }]";
    let ebb = Ebb::many(
        set,
        "INSERT INTO cases SELECT n, 1 FROM generate_series(1, 50000) n; INSERT INTO cases VALUES (0, 2);
         INSERT INTO guests SELECT n, '1@x', 'pii' FROM generate_series(1, 30000) n; INSERT INTO guests VALUES (0, '2@x', 'pii')",
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    // Its process dies as soon as the first part is done.
    let run =
        tokio::spawn(ebb.engine.node(options(&["users"]), ebb::spine::Shutdown::new()).run_once(crate::harness::SOON));
    ebb.until("EXISTS (SELECT FROM ledger)").await;
    run.abort();
    let _ = run.await;
    ebb.db.execute("UPDATE ebb.lease SET expires_at = '-infinity'").await;
    ebb.once("users").await;
    assert_eq!(
        (ebb.ids().await.as_str(), ebb.list("id", "cases WHERE keeper IS NOT NULL").await.as_str()),
        ("2,3,4,5,6", "0")
    );
    assert_eq!(ebb.list("id", "guests WHERE name = 'pii'").await, "0");
    let counts = "SELECT concat_ws(' ', details -> 'unlinked' ->> 'public.cases', details -> 'unlinked' ->> 'public.guests', rows) FROM ebb.audit WHERE action = 'erase'";
    assert_eq!(ebb.db.scalar::<String>(counts).await, "50000 30000 2");
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
}

#[tokio::test]
async fn a_claimed_subject_whose_row_somebody_deleted_ends_whatever_the_policy_says_by_then() {
    let ebb = Ebb::many("", "").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 2) n").await;
    ebb.db.advance("91 days").await;
    ebb.db.execute("UPDATE ebb.deletion SET state = 'erasing'; DELETE FROM users WHERE id = 1").await;
    ebb.apply(&users("").replace("90d", "900d")).await;
    ebb.once("users").await;
    assert_eq!((ebb.ids().await.as_str(), ebb.erased().await), ("3,4,5,6", (2, 2)));
    let due = "SELECT bool_and((details ->> 'due_at')::timestamptz <= ebb.now()) FROM ebb.audit WHERE action = 'erase'";
    assert!(ebb.db.scalar::<bool>(due).await, "they were due when they were claimed");
}

#[tokio::test]
async fn a_soft_delete_after_a_verified_request_that_was_taken_back_has_its_own_grace() {
    for kind in ["timestamptz", "date"] {
        let ebb = Ebb::many("", &format!("ALTER TABLE users ALTER deleted_at TYPE {kind} USING NULL")).await;
        ebb.db.execute("SELECT ebb.erase_subject('users', '1')").await;
        ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id = 1").await;
        ebb.db.advance("2 days").await;
        ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 1").await;
        // Nobody has marked since.
        ebb.once("users:erase").await;
        assert_eq!(ebb.ids().await, "1,2,3,4,5,6", "{kind}");
        assert_eq!(ebb.told().await, "1: soft-deleted again since", "{kind}");
        ebb.once("users:mark").await;
        ebb.db.advance("89 days").await;
        ebb.once("users").await;
        assert_eq!(ebb.ids().await, "1,2,3,4,5,6", "{kind}");
        ebb.db.advance("2 days").await;
        ebb.once("users").await;
        assert_eq!(ebb.ids().await, "2,3,4,5,6", "{kind}");
    }
}

#[tokio::test]
async fn somebody_who_holds_a_row_uses_up_no_attempt() {
    let ebb = Ebb::many("", "").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 3) n").await;
    ebb.db.advance("91 days").await;
    let mut other = ebb.client().await;
    crate::harness::execute(&mut other, "BEGIN; SELECT FROM letters WHERE id = 2 FOR UPDATE").await;
    for _ in 0..2 {
        let run = run_once(&ebb.engine, &["users:erase"]).await.unwrap().runs.remove(0);
        assert_eq!((run.skipped, run.failed), (1, 0), "{run:?}");
    }
    assert_eq!((ebb.ids().await.as_str(), ebb.told().await.as_str()), ("2,4,5,6", "2: somebody holds a row of it"));
    assert_eq!(ebb.db.scalar::<i32>("SELECT attempts FROM ebb.deletion WHERE subject_id = '2'").await, 0);
    crate::harness::execute(&mut other, "ROLLBACK").await;
    ebb.once("users").await;
    assert_eq!(ebb.ids().await, "4,5,6");
}

#[tokio::test]
async fn a_role_without_rights_on_ebb_hides_mirrors_and_gives_back() {
    let shop = Shop::without_policy().await;
    let ebb = &shop.ebb;
    let worker = format!("clerk_{}", ebb.db.name());
    ebb.db
        .execute(&format!(
            "CREATE ROLE {worker}; GRANT USAGE ON SCHEMA public TO {worker};
             GRANT SELECT, UPDATE, DELETE ON users, orders, items, sessions TO {worker};
             CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
             CREATE TRIGGER no BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION no()"
        ))
        .await;
    let policy = format!(
        "role = \"{worker}\"\nstatus = {{ column = \"status\", deleted = \"deleted\", active = \"active\" }}\n\
         mirror = {{ due = \"scheduled_deletion_at\", notified = \"deletion_notified_at\", attempted = \"cleanup_attempted_at\", touched = \"updated_at\" }}"
    );
    ebb.apply(&super::warn::config(&policy)).await;
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id IN (1, 2, 3)").await;
    shop.run().await;
    shop.pass("61 days").await;
    shop.run_and_deliver().await;
    shop.run().await;
    assert_eq!(shop.ledger.count(), 3);
    assert_eq!(
        ebb.list("id", "users WHERE deletion_notified_at IS NOT NULL AND updated_at IS NOT NULL").await,
        "1,2,3"
    );
    // One comes back by itself, one by being asked for.
    ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id = 1").await;
    assert!(ebb.db.scalar::<bool>("SELECT ebb.restore_subject('users', '2')").await);
    shop.run().await;
    assert_eq!(
        ebb.list("id", "users WHERE status = 'active' AND deletion_notified_at IS NULL").await,
        "1,2,4,5,6,7,8,9,10,11,12"
    );
    // One is claimed and shown again by somebody: it is hidden, whatever stops it then.
    ebb.db.execute("UPDATE ebb.deletion SET state = 'erasing' WHERE subject_id = '3'; UPDATE users SET deleted_at = NULL WHERE id = 3").await;
    shop.run().await;
    assert!(ebb.db.scalar::<bool>("SELECT deleted_at IS NOT NULL FROM users WHERE id = 3").await);
    assert_eq!(ebb.list("error", "ebb.deletion WHERE attempts = 1").await, "no");
    let failed = "SELECT count(*) FROM ebb.run WHERE status = 'failed'";
    assert_eq!(ebb.db.scalar::<i64>(failed).await, 0);
}

#[tokio::test]
async fn a_soft_delete_at_no_time_stops_nobody_and_counts_from_now() {
    let ebb = Ebb::many(
        "",
        "UPDATE users SET deleted_at = '294276-01-01' WHERE id = 1; UPDATE users SET deleted_at = '-infinity' WHERE id = 2;
         UPDATE users SET deleted_at = now() - interval '91 days' WHERE id = 3",
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '2')").await;
    ebb.once("users").await;
    assert_eq!(ebb.ids().await, "1,2,4,5,6");
    let due = "SELECT due_at > ebb.now() + interval '89 days' FROM ebb.deletion WHERE subject_id = '2'";
    assert!(ebb.db.scalar::<bool>(due).await);
}

#[tokio::test]
async fn a_caller_puts_nothing_of_his_own_into_functions_of_the_owner() {
    let ebb = Ebb::many("", "").await;
    let mut app = ebb.client().await;
    let own = "CREATE FUNCTION pg_temp.mine(pg_catalog.timestamptz) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE ''mine''; END';
         CREATE DOMAIN pg_temp.timestamptz AS pg_catalog.timestamptz CHECK (pg_temp.mine(value));
         SELECT ebb.delete_subject('users', '1'), ebb.erase_subject('users', '2'), ebb.restore_subject('users', '1')";
    crate::harness::execute(&mut app, own).await;
    let open = "pg_proc p WHERE pronamespace = 'ebb'::regnamespace
        AND EXISTS (SELECT FROM unnest(proconfig) AS s (setting) WHERE setting LIKE 'search_path=%' AND setting NOT LIKE '%pg_temp')";
    assert_eq!(ebb.list("proname", open).await, "");
}

#[tokio::test]
async fn what_would_go_unseen_is_refused_or_named() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id int, region text, deleted_at timestamptz, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
         CREATE TABLE users_eu PARTITION OF users FOR VALUES IN ('eu');
         CREATE TABLE orgs (id int PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE members (id int PRIMARY KEY, org int REFERENCES orgs ON DELETE CASCADE, deleted_at timestamptz)",
    )
    .await;
    let refused = ebb.try_apply(&users("").replace("public.users", "public.users_eu")).await.unwrap_err();
    assert!(refused.to_string().contains("is a partition of"), "{refused}");
    let members = users("").replace("users", "members");
    let orgs =
        users("children = [{ table = \"members\", column = \"org\", action = \"delete\" }]").replace("users", "orgs");
    ebb.apply(&format!("{members}\n{orgs}")).await;
    let plan = ebb.engine.plan(&[]).await.unwrap();
    let tree = plan.trees.iter().find(|tree| tree.policy == "orgs").unwrap();
    let named = |found: &&ebb::retain::Finding| found.message.starts_with("its rows are subjects of policy members");
    assert_eq!(tree.findings.iter().filter(named).count(), 1, "{:?}", tree.findings);
}

#[tokio::test]
async fn a_run_ends_where_some_of_those_who_go_together_have_to_wait() {
    let ebb = Ebb::many(
        "batch = { rows = 4, pause = \"10ms\" }",
        "ALTER TABLE users ADD FOREIGN KEY (by) REFERENCES users ON DELETE CASCADE;
         INSERT INTO users SELECT 10 + n, n || '@y', n FROM generate_series(1, 4) n;
         INSERT INTO letters SELECT 100000 * n + i, 10 + n FROM generate_series(1, 4) n, generate_series(1, 6000) i",
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 4) n").await;
    ebb.db.advance("1 hour").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', id::text) FROM users WHERE id > 4").await;
    ebb.db.advance("91 days").await;
    let mut holder = ebb.client().await;
    execute(&mut holder, "BEGIN; SELECT FROM letters WHERE id = 100001 FOR UPDATE").await;
    tokio::time::timeout(crate::harness::SOON, ebb.once("users")).await.expect("the run ends");
    assert_eq!(ebb.ids().await, "1,11", "whoever the row is of, and nobody else");
    assert!(ebb.most_at_once().await <= MOST);
    execute(&mut holder, "COMMIT").await;
    ebb.once("users").await;
    assert_eq!(ebb.ids().await, "");
}

#[tokio::test]
async fn rows_that_are_set_to_what_their_column_rounds_are_set_once() {
    let ebb = Ebb::with(USERS).await;
    ebb.db
        .execute(
            "ALTER TABLE guests ADD score real, ADD amount numeric(8, 1);
             INSERT INTO guests SELECT n, '1@x', 'x', 3, 3 FROM generate_series(1, 25000) n",
        )
        .await;
    let set = "{ score = \"0.1\", amount = \"1.25\" }";
    ebb.apply(&users(&format!(
        "children = [{{ table = \"guests\", column = \"email\", references = \"email\", action = \"anonymize\", set = {set} }}]"
    )))
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    tokio::time::timeout(crate::harness::SOON, ebb.once("users")).await.expect("the run ends");
    let unlinked = "SELECT details #>> '{unlinked,public.guests}' FROM ebb.audit WHERE action = 'erase'";
    assert_eq!(ebb.db.scalar::<String>(unlinked).await, "25000");
    assert_eq!(
        ebb.db.scalar::<i64>("SELECT count(*) FROM guests WHERE score = 0.1::real AND amount = 1.3").await,
        25_000
    );
}
