//! A hold on a subject also binds policies that would take rows of its tree by themselves: sweeps, rows by age and
//! partitions. Whatever comes first, a hold that was placed before a row went keeps it.

use ebb::spine::Status;

use super::{SHOP, users};
use crate::harness::{Ebb, Running, execute, run_once, wanted};

/// A sweep over a table of the shop, by its column `at`.
fn sweep(name: &str, table: &str, more: &str) -> String {
    format!(
        "[[expire]]\nname = \"{name}\"\ntable = \"public.{table}\"\ncolumn = \"at\"\nbrake = {{ share = \"off\" }}\n{more}\n"
    )
}

/// The shop with a time on sessions and items, long past.
const TIMES: &str = "
    ALTER TABLE sessions ADD at timestamptz NOT NULL DEFAULT now() - interval '1 day';
    ALTER TABLE items ADD at timestamptz NOT NULL DEFAULT now() - interval '1 day';
    ALTER TABLE orders ADD at timestamptz NOT NULL DEFAULT now() - interval '1 day';
    ALTER TABLE users ADD at timestamptz NOT NULL DEFAULT now() - interval '1 day'";

impl Ebb {
    /// The different values of an expression over all rows, in order.
    async fn distinct(&self, value: &str, table: &str) -> String {
        self.list("v", &format!("(SELECT DISTINCT {value} AS v FROM {table}) AS d")).await
    }
}

async fn shop(config: &str) -> Ebb {
    let ebb = Ebb::with(SHOP).await;
    ebb.db.execute(TIMES).await;
    ebb.apply(config).await;
    ebb
}

#[tokio::test]
async fn a_hold_keeps_rows_of_the_whole_tree_from_sweeps_until_it_is_over() {
    let config = users("")
        + "\n"
        + &sweep("sessions", "sessions", "")
        + &sweep("items", "items", "batch = { rows = 7, pause = \"0s\" }")
        + &sweep("orders", "orders", "audit = \"rows\"");
    let ebb = shop(&config).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '3', 'court')").await;
    ebb.db.execute("SELECT ebb.place_hold('users', '4', 'audit', now() + interval '10 days')").await;
    let plan = ebb.engine.plan(&wanted(&config).unwrap()).await.unwrap();
    let sessions = plan.policies.iter().find(|plan| plan.policy == "sessions").unwrap();
    assert_eq!((sessions.due_rows, sessions.held_rows), (Some(48), Some(8)));
    let mut tx = ebb.engine.database().read().await.unwrap();
    let shown = ebb::retain::show(&mut tx, "users", "3").await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(shown.hold.unwrap().binds, ["items", "orders", "sessions"]);
    let finished = ebb.once("sessions").await;
    let note = finished.runs[0].note.clone().unwrap_or_default();
    assert!(note.contains("rows of subjects on hold stay (policy users)"), "{finished:?}");
    let status = ebb.engine.status().await.unwrap();
    let unit = &status.policies.iter().find(|policy| policy.policy == "sessions").unwrap().units[0];
    assert_eq!((unit.pending, unit.held_rows), (Some(0), Some(8)), "held is not pending");
    ebb.once("items").await;
    ebb.once("orders").await;
    assert_eq!(ebb.distinct("user_id", "sessions").await, "3,4");
    assert_eq!(ebb.distinct("order_id / 100", "items").await, "3,4");
    // Orders that a subject on hold is assigned to count too, whatever erasing would do to them.
    assert_eq!(ebb.list("id", "orders").await, "201,202,203,301,302,303,401,402,403");
    ebb.db.advance("11 days").await;
    for name in ["sessions", "items", "orders"] {
        ebb.once(name).await;
    }
    assert_eq!(ebb.distinct("user_id", "sessions").await, "3");
    ebb.db.execute("SELECT ebb.lift_hold('users', '3')").await;
    for name in ["sessions", "items", "orders"] {
        let finished = ebb.once(name).await;
        assert!(finished.runs.iter().all(|run| run.note.is_none()), "{finished:?}");
    }
    assert_eq!(ebb.rows().await, (12, 0, 0, 0));
    let records: i64 = ebb.db.scalar("SELECT sum(rows)::int8 FROM ebb.audit WHERE action = 'expire'").await;
    assert_eq!(records, 36 + 72 + 48, "what stayed is in no record, what went is in one");
}

#[tokio::test]
async fn it_makes_no_difference_which_policy_came_first_or_what_a_change_left() {
    let ebb = shop(&sweep("sessions", "sessions", "")).await;
    ebb.apply(&(sweep("sessions", "sessions", "") + &users(""))).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '3', 'court')").await;
    ebb.once("sessions").await;
    assert_eq!(ebb.distinct("user_id", "sessions").await, "3");
    // A policy that comes while somebody is on hold, one that moves to another table, one that sets instead of deleting.
    ebb.apply(&(sweep("sessions", "items", "") + &users("") + "\n" + &sweep("late", "orders", ""))).await;
    ebb.once("sessions").await;
    ebb.once("late").await;
    assert_eq!(ebb.distinct("order_id / 100", "items").await, "3");
    assert_eq!(ebb.list("id", "orders").await, "201,202,203,301,302,303");
    let set = sweep("late", "sessions", "action = { set = { ip = \"'gone'\" } }\nwhere = \"ip <> 'gone'\"");
    ebb.apply(&(set + &users(""))).await;
    ebb.once("late").await;
    assert_eq!(ebb.distinct("ip", "sessions").await, "10.0.0.3");
    // The policy of subjects goes from the file: its holds stay in force.
    ebb.apply(&sweep("late", "sessions", "")).await;
    ebb.once("late").await;
    assert_eq!(ebb.distinct("user_id", "sessions").await, "3");
}

#[tokio::test]
async fn rows_by_age_are_bound_too_and_so_is_the_root() {
    let direct = "[[retain]]\nname = \"old\"\ntable = \"public.sessions\"\ncolumn = \"at\"\nolder_than = \"1h\"\nbrake = { share = \"off\" }\n";
    let ebb = shop(&(users("") + "\n" + direct)).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '3', 'court')").await;
    ebb.once("old").await;
    assert_eq!(ebb.distinct("user_id", "sessions").await, "3");
    // Beside that policy this one would take sessions along that are not old yet.
    ebb.apply(
        &(users("")
            + "\n"
            + &sweep("accounts", "users", "older_than = \"1h\"\nwhere = \"id <> 5 and deleted_at is null\"")),
    )
    .await;
    ebb.once("accounts").await;
    assert_eq!(ebb.list("id", "users").await, "3,5");
}

#[tokio::test]
async fn circles_shared_values_and_keys_of_several_columns_are_followed_up() {
    let ebb = Ebb::with(
        "CREATE TABLE accounts (region text, id int, email text, deleted_at timestamptz, boss_region text, boss_id int,
             PRIMARY KEY (region, id), FOREIGN KEY (boss_region, boss_id) REFERENCES accounts ON DELETE CASCADE);
         CREATE TABLE comments (id int PRIMARY KEY, region text, account int, parent int REFERENCES comments,
             at timestamptz, FOREIGN KEY (region, account) REFERENCES accounts ON DELETE CASCADE);
         CREATE TABLE likes (comment int REFERENCES comments ON DELETE CASCADE, at timestamptz);
         CREATE TABLE mails (id int PRIMARY KEY, email text, at timestamptz);
         INSERT INTO accounts VALUES ('eu', 1, 'a@x', NULL, NULL, NULL), ('eu', 2, 'b@x', NULL, 'eu', 1),
             ('us', 1, 'c@x', NULL, NULL, NULL), ('us', 2, 'd@x', NULL, 'us', 1);
         INSERT INTO comments VALUES (1, 'eu', 2, NULL, '2000-01-01'), (2, 'us', 2, 1, '2000-01-01'), (3, NULL, NULL, 2, '2000-01-01'),
             (4, 'us', 1, NULL, '2000-01-01'), (5, NULL, NULL, 4, '2000-01-01'), (6, NULL, NULL, NULL, '2000-01-01');
         INSERT INTO likes SELECT id, '2000-01-01' FROM comments;
         INSERT INTO mails VALUES (1, 'b@x', '2000-01-01'), (2, 'd@x', '2000-01-01'), (3, NULL, '2000-01-01')",
    )
    .await;
    let subjects = "[[retain]]\nname = \"accounts\"\ntable = \"accounts\"\ndeleted_at = \"deleted_at\"\ngrace = \"1d\"\n\
        unnamed = \"delete\"\nchildren = [{ table = \"mails\", column = \"email\", references = \"email\", action = \"delete\" }]\n";
    let config = subjects.to_owned()
        + &sweep("likes", "likes", "")
        + &sweep("comments", "comments", "")
        + &sweep("mails", "mails", "");
    ebb.apply(&config).await;
    ebb.db.execute(r#"SELECT ebb.place_hold('accounts', '["eu", "1"]', 'court')"#).await;
    for name in ["likes", "mails", "comments"] {
        let finished = ebb.once(name).await;
        assert_eq!(finished.runs[0].status, Status::Success, "{finished:?}");
    }
    // Account eu/2 hangs on eu/1; comment 1 is theirs, 2 and 3 hang on it.
    assert_eq!(ebb.list("comment", "likes").await, "1,2,3");
    assert_eq!(ebb.list("id", "mails").await, "1");
    assert_eq!(ebb.list("id", "comments").await, "1,2,3");
}

#[tokio::test]
async fn a_sweep_with_borrowed_rights_leaves_held_rows_alone() {
    let ebb = Ebb::with(SHOP).await;
    ebb.db.execute(TIMES).await;
    let role = format!("sweeper_{}", ebb.db.name());
    ebb.db
        .execute(&format!("CREATE ROLE {role}; GRANT USAGE ON SCHEMA public TO {role}; GRANT SELECT, UPDATE, DELETE ON items TO {role}"))
        .await;
    ebb.apply(&(users("") + "\n" + &sweep("items", "items", &format!("role = \"{role}\"")))).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '3', 'court')").await;
    let finished = ebb.once("items").await;
    assert_eq!(finished.runs[0].status, Status::Success, "{finished:?}");
    assert_eq!(ebb.distinct("order_id / 100", "items").await, "3");
    ebb.db.execute("SELECT ebb.lift_hold('users', '3')").await;
    ebb.once("items").await;
    assert_eq!(ebb.rows().await.2, 0);
}

#[tokio::test]
async fn a_batch_waits_for_a_hold_that_is_being_placed_and_sees_it() {
    let ebb = shop(&(users("") + "\n" + &sweep("sessions", "sessions", "every = \"1s\""))).await;
    let mut lawyer = ebb.client().await;
    execute(&mut lawyer, "BEGIN; SELECT ebb.place_hold('users', '3', 'court')").await;
    let node = ebb.start(&["sessions"]);
    ebb.until("EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%ebb.gate%' AND pid <> pg_backend_pid())").await;
    assert_eq!(ebb.rows().await.3, 48);
    execute(&mut lawyer, "COMMIT").await;
    ebb.until("(SELECT count(*) FROM sessions) = 4").await;
    node.stop().await;
    assert_eq!(ebb.distinct("user_id", "sessions").await, "3");
}

#[tokio::test]
async fn a_hold_waits_for_a_batch_that_is_at_work() {
    let ebb = shop(&(users("") + "\n" + &sweep("sessions", "sessions", "every = \"1s\""))).await;
    // A row that somebody else holds keeps the batch from its end for as long as this test wants.
    ebb.db
        .execute(
            "CREATE TABLE latch (id int); CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 SET LOCAL lock_timeout = 0; LOCK TABLE public.latch; RETURN OLD; END $$;
             CREATE TRIGGER wait BEFORE DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION wait()",
        )
        .await;
    ebb.apply(&(users("") + "\n" + &sweep("sessions", "sessions", "every = \"1s\""))).await;
    let mut latch = ebb.client().await;
    execute(&mut latch, "BEGIN; LOCK TABLE latch").await;
    let node = ebb.start(&["sessions"]);
    ebb.until("EXISTS (SELECT FROM pg_locks WHERE relation = 'latch'::regclass AND NOT granted)").await;
    let mut lawyer = ebb.client().await;
    let hold = tokio::spawn(async move {
        execute(&mut lawyer, "SELECT ebb.place_hold('users', '3', 'court')").await;
    });
    ebb.until(
        "EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'SELECT ebb.place_hold%')",
    )
    .await;
    execute(&mut latch, "COMMIT").await;
    hold.await.unwrap();
    // Whoever was told that the hold is there can count on what is there now.
    let at_hold = ebb.list("id", "sessions WHERE user_id = 3").await;
    ebb.db.execute("INSERT INTO sessions VALUES (900, 3, 'x', now() - interval '1 day'), (901, 5, 'x', now() - interval '1 day')").await;
    ebb.until("NOT EXISTS (SELECT FROM sessions WHERE id = 901)").await;
    node.stop().await;
    let expected = if at_hold.is_empty() { "900".to_owned() } else { format!("{at_hold},900") };
    assert_eq!(ebb.list("id", "sessions WHERE user_id = 3").await, expected);
}

#[tokio::test]
async fn two_nodes_and_many_holds_lose_no_held_row() {
    let config = users("")
        + "\n"
        + &sweep("sessions", "sessions", "every = \"1s\"\nbatch = { rows = 3, pause = \"0s\" }")
        + &sweep("items", "items", "every = \"1s\"\nbatch = { rows = 3, pause = \"0s\" }");
    let ebb = Ebb::with(SHOP).await;
    ebb.db.execute(TIMES).await;
    ebb.db
        .execute(
            "INSERT INTO users (id) SELECT n FROM generate_series(13, 60) n;
             INSERT INTO orders SELECT u * 100 + 1, u, NULL, 5 FROM generate_series(13, 60) u;
             INSERT INTO sessions SELECT u * 10 + n, u, 'x' FROM generate_series(13, 60) u, generate_series(1, 4) n;
             INSERT INTO items SELECT u * 100 + 1, n FROM generate_series(13, 60) u, generate_series(1, 4) n",
        )
        .await;
    ebb.apply(&config).await;
    let another = ebb.another(ebb.db.open());
    let nodes = [ebb.start(&["sessions", "items"]), Running::new(&another, &["sessions", "items"])];
    let mut lawyer = ebb.client().await;
    // What is there when a hold has been placed is there for good.
    let mut seen = Vec::new();
    for user in (13..=60).rev() {
        execute(&mut lawyer, &format!("SELECT ebb.place_hold('users', '{user}', 'court')")).await;
        let rows: (i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM sessions WHERE user_id = $1), (SELECT count(*) FROM items WHERE order_id = $1 * 100 + 1)",
        )
        .bind(user)
        .fetch_one(ebb.db.pool())
        .await
        .unwrap();
        seen.push((user, rows));
    }
    ebb.until(
        "NOT EXISTS (SELECT FROM sessions WHERE user_id < 13) AND NOT EXISTS (SELECT FROM items WHERE order_id < 1300)",
    )
    .await;
    for node in nodes {
        node.stop().await;
    }
    run_once(&ebb.engine, &["sessions", "items"]).await.unwrap();
    for (user, before) in seen {
        let rows: (i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM sessions WHERE user_id = $1), (SELECT count(*) FROM items WHERE order_id = $1 * 100 + 1)",
        )
        .bind(user)
        .fetch_one(ebb.db.pool())
        .await
        .unwrap();
        assert_eq!(rows, before, "user {user}");
    }
}

#[tokio::test]
async fn erasing_one_subject_takes_nothing_of_another_that_is_on_hold() {
    let ebb = Ebb::with(
        "CREATE TABLE orgs (id int PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE people (id int PRIMARY KEY, org int REFERENCES orgs ON DELETE CASCADE, deleted_at timestamptz);
         CREATE TABLE deals (id int PRIMARY KEY, buyer int REFERENCES people ON DELETE CASCADE, seller int REFERENCES people ON DELETE CASCADE);
         INSERT INTO orgs VALUES (1), (2), (3);
         INSERT INTO people VALUES (1, 1), (2, 1), (3, 2), (4, 2), (5, 3);
         INSERT INTO deals VALUES (1, 1, 3), (2, 3, 4), (3, 5, 5)",
    )
    .await;
    let of = |name: &str| {
        format!(
            "[[retain]]\nname = \"{name}\"\ntable = \"{name}\"\ndeleted_at = \"deleted_at\"\ngrace = \"1d\"\nbrake = {{ share = \"off\" }}\n"
        )
    };
    let along = "children = [{ table = \"people\", column = \"org\", action = \"delete\" }]\n";
    ebb.apply(&(of("orgs") + along + &of("people"))).await;
    ebb.db.execute("SELECT ebb.place_hold('people', '1', 'court')").await;
    ebb.db.execute("SELECT ebb.delete_subject('orgs', n::text) FROM generate_series(1, 3) n").await;
    ebb.db.execute("SELECT ebb.delete_subject('people', n::text) FROM generate_series(2, 4) n").await;
    ebb.db.advance("2 days").await;
    ebb.once("people").await;
    // Person 3 has a deal with person 1.
    assert_eq!((ebb.list("id", "people").await, ebb.list("id", "deals").await), ("1,3,5".into(), "1,3".into()));
    ebb.once("orgs").await;
    // Person 1 belongs to org 1, and the deal of person 3 of org 2 is theirs too.
    assert_eq!((ebb.list("id", "orgs").await, ebb.list("id", "people").await), ("1,2".into(), "1,3".into()));
    let blocked = "SELECT string_agg(DISTINCT blocked, ';' ORDER BY blocked) FROM ebb.deletion WHERE state = 'pending' AND attempts = 0";
    assert_eq!(
        ebb.db.scalar::<String>(blocked).await,
        "rows of a subject on hold would go with it (public.deals, policy people);\
         rows of a subject on hold would go with it (public.people, policy people)"
    );
    ebb.db.execute("SELECT ebb.lift_hold('people', '1')").await;
    ebb.once("people").await;
    ebb.once("orgs").await;
    assert_eq!((ebb.list("id", "orgs").await, ebb.list("id", "deals").await), (String::new(), String::new()));
}

/// Users and their visits, split by month; the first month has visits of users 1 and 2, the second of user 2.
const VISITS: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
    CREATE TABLE visits (user_id bigint REFERENCES users ON DELETE CASCADE, at timestamptz NOT NULL) PARTITION BY RANGE (at);
    CREATE TABLE visits_1 PARTITION OF visits FOR VALUES FROM ('2020-01-01Z') TO ('2020-02-01Z');
    CREATE TABLE visits_2 PARTITION OF visits FOR VALUES FROM ('2020-02-01Z') TO ('2020-03-01Z');
    INSERT INTO users SELECT generate_series(1, 3);
    INSERT INTO visits VALUES (1, '2020-01-05Z'), (2, '2020-01-06Z'), (2, '2020-02-06Z')";

const PARTITIONS: &str = "\n[[partition]]\nname = \"visits\"\ntable = \"visits\"\ncolumn = \"at\"\nby = \"month\"\nahead = 1\n\
    keep = \"1mo\"\nbrake = { share = \"off\" }\n";

#[tokio::test]
async fn a_partition_with_rows_of_a_subject_on_hold_stays() {
    let ebb = Ebb::with(VISITS).await;
    ebb.apply(&(users("") + PARTITIONS)).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
    let finished = ebb.once("visits").await;
    assert_eq!(ebb.db.scalar::<String>("SELECT string_agg(inhrelid::regclass::text, ',' ORDER BY 1) FROM pg_inherits WHERE inhparent = 'visits'::regclass AND inhrelid::regclass::text IN ('visits_1', 'visits_2')").await, "visits_1");
    let run = finished.runs.iter().find(|run| run.unit.starts_with("partition/")).unwrap();
    assert!(run.note.as_deref().unwrap_or_default().contains("1 expired partitions stay"), "{run:?}");
    ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    ebb.once("visits").await;
    assert!(ebb.db.scalar::<bool>("SELECT to_regclass('visits_1') IS NULL").await);
}

#[tokio::test]
async fn a_hold_between_detach_and_drop_keeps_the_partition() {
    let ebb = Ebb::with(VISITS).await;
    let config = users("") + PARTITIONS + "expired = \"detach\"\ndetached_for = \"2d\"\n";
    ebb.apply(&config).await;
    ebb.once("visits").await;
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.detached WHERE state = 'detached'").await, 2);
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
    ebb.db.advance("3 days").await;
    ebb.once("visits").await;
    assert!(
        ebb.db.scalar::<bool>("SELECT to_regclass('visits_1') IS NOT NULL AND to_regclass('visits_2') IS NULL").await
    );
    // One that is being placed is waited for.
    ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    let mut lawyer = ebb.client().await;
    execute(&mut lawyer, "BEGIN; SELECT ebb.place_hold('users', '1', 'court again')").await;
    let node = ebb.start(&["visits"]);
    ebb.db.execute("SELECT pg_notify('ebb', ''); UPDATE ebb.unit SET next_at = '-infinity'").await;
    ebb.until("EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%ebb.gate%' AND pid <> pg_backend_pid())").await;
    execute(&mut lawyer, "COMMIT").await;
    node.stop().await;
    ebb.once("visits").await;
    assert!(ebb.db.scalar::<bool>("SELECT to_regclass('visits_1') IS NOT NULL").await);
}

#[tokio::test]
async fn a_sweep_that_drops_whole_partitions_goes_through_a_held_one_row_by_row() {
    let ebb = Ebb::with(VISITS).await;
    ebb.apply(&(users("") + "\n" + &sweep("visits", "visits", "older_than = \"1d\""))).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
    ebb.once("visits").await;
    assert_eq!(ebb.list("user_id", "visits").await, "1");
    assert!(
        ebb.db.scalar::<bool>("SELECT to_regclass('visits_1') IS NOT NULL AND to_regclass('visits_2') IS NULL").await
    );
    ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    ebb.once("visits").await;
    assert!(ebb.db.scalar::<bool>("SELECT to_regclass('visits_1') IS NULL").await);
}

#[tokio::test]
async fn doctor_knows_the_tables_that_a_sweep_reads_while_somebody_is_on_hold() {
    let ebb = shop(&(users("") + "\n" + &sweep("items", "items", "") + &sweep("sessions", "sessions", ""))).await;
    let clerk = format!("clerk_{}", ebb.db.name());
    ebb.db
        .execute(&format!(
            "CREATE ROLE {clerk}; GRANT USAGE ON SCHEMA public TO {clerk}; GRANT SELECT, DELETE, UPDATE ON items, sessions TO {clerk}"
        ))
        .await;
    let questions = ebb::doctor::Questions {
        wanted: Vec::new(),
        host_time: jiff::Timestamp::now(),
        role: Some(clerk.clone()),
        embedded: false,
    };
    let lacking = async |policy: &str| {
        let report = ebb.engine.doctor(&questions).await.unwrap();
        let found = report.findings.into_iter().filter(|found| found.check == "privileges");
        let mine = found.filter(|found| found.about.as_deref() == Some(policy));
        mine.filter_map(|found| found.fix).map(|fix| fix.text).collect::<Vec<_>>().join("\n")
    };
    let grants = lacking("items").await;
    assert!(grants.contains("orders") && !grants.contains("users"), "the way from items to users: {grants}");
    assert!(!lacking("sessions").await.contains("users"), "a session names its user");
    ebb.db.execute(&format!("GRANT SELECT ON orders TO {clerk}")).await;
    assert!(!lacking("items").await.contains("orders"));
}

#[tokio::test]
async fn a_hold_binds_a_sweep_over_what_its_table_inherits_from() {
    let ebb = Ebb::with(
        "CREATE TABLE base (id bigint, at timestamptz DEFAULT now() - interval '1 day');
         CREATE TABLE users (user_id bigint PRIMARY KEY, deleted_at timestamptz) INHERITS (base);
         CREATE TABLE robots () INHERITS (base);
         INSERT INTO base VALUES (1); INSERT INTO robots VALUES (1); INSERT INTO users (id, user_id) VALUES (1, 1), (2, 2)",
    )
    .await;
    // It observes while it is applied beside the subjects, whose grace it would not know of.
    let looks = users("") + "\n" + &sweep("base", "base", "mode = \"observe\"");
    ebb.apply(&looks).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
    let plan = ebb.engine.plan(&wanted(&looks).unwrap()).await.unwrap();
    let base = plan.policies.iter().find(|plan| plan.policy == "base").unwrap();
    assert_eq!((base.due_rows, base.held_rows), (Some(4), Some(1)));
    // The policy of subjects goes from the file: its holds stay in force.
    ebb.apply(&sweep("base", "base", "")).await;
    ebb.once("base").await;
    assert_eq!(ebb.list("id", "base").await, "1");
    assert_eq!(ebb.list("user_id", "users").await, "1");
}

/// Users with posts by year, and a table of older posts that has its own policy and is no part of them yet.
async fn old_posts(rows: &str, more: &str) -> Ebb {
    let ebb = Ebb::with(&format!(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE posts (user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE, at timestamptz NOT NULL) PARTITION BY RANGE (at);
         CREATE TABLE posts_new PARTITION OF posts FOR VALUES FROM ('2020-01-01Z') TO ('2100-01-01Z');
         CREATE TABLE posts_old (user_id bigint NOT NULL, at timestamptz NOT NULL);
         CREATE INDEX ON posts (user_id); CREATE INDEX ON posts_old (user_id);
         INSERT INTO users SELECT generate_series(1, 40);
         INSERT INTO posts_old {rows}",
    ))
    .await;
    ebb.apply(&(users("") + "\n" + &sweep("old", "posts_old", more))).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court')").await;
    ebb
}

const ATTACH: &str = "ALTER TABLE posts ATTACH PARTITION posts_old FOR VALUES FROM ('2000-01-01Z') TO ('2020-01-01Z')";

#[tokio::test]
async fn a_hold_binds_the_next_run_over_a_table_that_came_to_be_part_of_its_tree() {
    let ebb = old_posts("VALUES (3, '2010-01-01Z')", "every = \"1s\"").await;
    let node = ebb.start(&["old"]);
    ebb.until("NOT EXISTS (SELECT FROM posts_old)").await;
    ebb.until("NOT EXISTS (SELECT FROM ebb.run WHERE status = 'running')").await;
    ebb.db.execute(&format!("{ATTACH}; INSERT INTO posts_old VALUES (1, '2010-01-01Z'), (2, '2010-01-01Z')")).await;
    ebb.until("NOT EXISTS (SELECT FROM posts_old WHERE user_id = 2)").await;
    node.stop().await;
    assert_eq!(ebb.list("user_id", "posts_old").await, "1");
}

#[tokio::test]
async fn a_run_that_is_under_way_ends_where_its_table_comes_to_be_part_of_another() {
    // In the order in which they go: the subject on hold is the last.
    let ebb = old_posts(
        "SELECT 41 - n, '2010-01-01Z' FROM generate_series(1, 40) n",
        "every = \"1s\"\nbatch = { rows = 1, pause = \"50ms\" }",
    )
    .await;
    let node = ebb.start(&["old"]);
    ebb.until("(SELECT count(*) FROM posts_old) < 40").await;
    ebb.db.execute(ATTACH).await;
    ebb.until("EXISTS (SELECT FROM ebb.run WHERE error LIKE '%belong to another table than when the run began%')")
        .await;
    ebb.until("(SELECT count(*) FROM posts_old) = 1").await;
    node.stop().await;
    run_once(&ebb.engine, &["old"]).await.unwrap();
    assert_eq!(ebb.list("user_id", "posts_old").await, "1");
}
