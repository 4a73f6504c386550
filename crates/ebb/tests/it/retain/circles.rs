//! Subjects too large for one transaction whose tables refer to each other in a circle, or whose rows do not say that they
//! were changed: everything in the end, once, and never more rows in one transaction than it may take.

use super::together::MOST;
use super::users;
use crate::harness::{Ebb, SOON, options};

/// A ledger over a table: how many rows each transaction took or changed.
fn counted(table: &str) -> String {
    ["DELETE", "UPDATE"]
        .map(|on| {
            format!(
                "CREATE TRIGGER noted_{on} AFTER {on} ON {table} REFERENCING OLD TABLE AS went FOR EACH STATEMENT \
                 EXECUTE FUNCTION count_went();"
            )
        })
        .concat()
}

impl Ebb {
    /// The process dies as soon as a transaction has done something; another goes on.
    async fn dies_at_once_and_goes_on(&self) {
        let run = tokio::spawn(self.engine.node(options(&["users"]), ebb::spine::Shutdown::new()).run_once(SOON));
        self.until("EXISTS (SELECT FROM ledger)").await;
        run.abort();
        let _ = run.await;
        self.db.execute("UPDATE ebb.lease SET expires_at = '-infinity'").await;
        self.once("users").await;
    }
}

#[tokio::test]
async fn rows_of_a_table_that_refers_to_itself_go_in_parts() {
    let ebb = Ebb::many(
        "",
        &format!(
            "CREATE TABLE notes (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE,
                 reply_to bigint REFERENCES notes ON DELETE CASCADE, see bigint REFERENCES notes ON DELETE CASCADE);
             CREATE INDEX ON notes (user_id); CREATE INDEX ON notes (reply_to); CREATE INDEX ON notes (see);
             CREATE TABLE files (note_id bigint REFERENCES notes ON DELETE CASCADE); CREATE INDEX ON files (note_id);
             -- One with many answers, which are nobody's.
             INSERT INTO notes VALUES (0, 1);
             INSERT INTO notes SELECT n, NULL, 0 FROM generate_series(1, 25000) n;
             -- A long thread, each an answer to the one before.
             INSERT INTO notes SELECT 100000 + n, 1, NULLIF(100000 + n - 1, 100000) FROM generate_series(1, 21000) n;
             -- Every one on a way back to itself, and to all others.
             INSERT INTO notes SELECT 200000 + n, 1, 200000 + n * 2 % 21000, 200000 + (n * 2 + 1) % 21000 FROM generate_series(0, 20999) n;
             -- Another's.
             INSERT INTO notes VALUES (300000, 2, NULL), (300001, NULL, 300000);
             INSERT INTO files SELECT id FROM notes WHERE id % 100 = 0; {}{}",
            counted("notes"),
            counted("files")
        ),
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.dies_at_once_and_goes_on().await;
    assert_eq!((ebb.ids().await.as_str(), ebb.list("id", "notes").await.as_str()), ("2,3,4,5,6", "300000,300001"));
    assert_eq!(ebb.list("note_id", "files").await, "300000");
    let files = 1 + 250 + 210 + 210;
    assert_eq!(ebb.erased().await, (1, 2 + 1 + 25_000 + 21_000 + 21_000 + files));
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
}

#[tokio::test]
async fn long_threads_go_in_parts_in_whatever_order_their_rows_lie() {
    let ebb = Ebb::many(
        "",
        &format!(
            "CREATE TABLE notes (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, prev bigint, next bigint);
             -- Each knows the one before and the one after.
             INSERT INTO notes SELECT n, 1, NULLIF(n - 1, 0), NULLIF(n + 1, 30001) FROM generate_series(1, 30000) n ORDER BY md5(n::text);
             -- Each an answer to the one before, of which only the first is anybody's.
             INSERT INTO notes VALUES (100000, 1, NULL), (200000, 2, NULL), (200001, NULL, 200000);
             INSERT INTO notes SELECT 100000 + n, NULL, 100000 + n - 1 FROM generate_series(1, 25000) n ORDER BY md5(n::text);
             ALTER TABLE notes ADD FOREIGN KEY (prev) REFERENCES notes ON DELETE CASCADE, ADD FOREIGN KEY (next) REFERENCES notes ON DELETE CASCADE;
             CREATE INDEX ON notes (user_id); CREATE INDEX ON notes (prev); CREATE INDEX ON notes (next); {}",
            counted("notes"),
        ),
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.dies_at_once_and_goes_on().await;
    assert_eq!((ebb.ids().await.as_str(), ebb.list("id", "notes").await.as_str()), ("2,3,4,5,6", "200000,200001"));
    assert_eq!(ebb.erased().await, (1, 2 + 30_000 + 1 + 25_000));
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
}

/// A thread of which every note but the first has to be an answer, by what `wants` adds to its table.
async fn thread(wants: &str) -> Ebb {
    let ebb = Ebb::many(
        "",
        &format!(
            "CREATE TABLE notes (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE, parent bigint, CHECK (parent <> id));
             INSERT INTO notes SELECT n, 1, NULLIF(n - 1, 0) FROM generate_series(1, 21000) n ORDER BY md5(n::text);
             ALTER TABLE notes ADD FOREIGN KEY (parent) REFERENCES notes ON DELETE CASCADE;
             CREATE INDEX ON notes (user_id); CREATE INDEX ON notes (parent); {wants}; {}",
            counted("notes"),
        ),
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.ids().await.as_str(), ebb.list("id", "notes").await.as_str()), ("2,3,4,5,6", ""));
    assert_eq!(ebb.erased().await, (1, 2 + 21_000));
    ebb
}

/// Findings of the plan that name a circle that goes in one transaction.
async fn named(ebb: &Ebb) -> usize {
    let plan = ebb.engine.plan(&[]).await.unwrap();
    plan.trees[0].findings.iter().filter(|found| found.message.contains("_fkey go in one transaction")).count()
}

#[tokio::test]
async fn a_thread_whose_references_a_check_wants_is_named_and_goes_at_once() {
    let ebb = thread("ALTER TABLE notes ADD CHECK (id = 1 OR parent IS NOT NULL)").await;
    assert_eq!((named(&ebb).await, ebb.most_at_once().await), (1, 21_000));
}

#[tokio::test]
async fn a_thread_whose_references_a_trigger_wants_goes_at_once() {
    let ebb = thread(
        "CREATE FUNCTION wants() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not so'; END $$;
         CREATE TRIGGER wants BEFORE UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION wants()",
    )
    .await;
    assert_eq!((named(&ebb).await, ebb.most_at_once().await), (0, 21_000));
}

#[tokio::test]
async fn a_thread_with_a_check_that_allows_null_goes_in_parts() {
    let ebb = thread("").await;
    assert_eq!(named(&ebb).await, 0);
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
}

#[tokio::test]
async fn whoever_comes_to_hang_far_down_on_a_claimed_subject_does_not_go_along() {
    let ebb = Ebb::many(
        "",
        &format!(
            "CREATE TABLE posts (id bigint PRIMARY KEY, author bigint NOT NULL REFERENCES users ON DELETE CASCADE);
             CREATE INDEX ON posts (author); INSERT INTO posts SELECT n, 1 FROM generate_series(1, 50000) n;
             UPDATE users SET by = 5 WHERE id = 1; ALTER TABLE users ADD FOREIGN KEY (by) REFERENCES posts ON DELETE CASCADE; {}{}",
            counted("posts"),
            counted("users")
        ),
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.db.execute("UPDATE ebb.deletion SET state = 'erasing'; UPDATE users SET by = 50000 WHERE id = 2").await;
    ebb.once("users").await;
    assert_eq!(ebb.told().await, "1: a subject that may not go yet would go along with it");
    assert_eq!(ebb.ids().await, "1,2,3,4,5,6");
    assert!(ebb.db.scalar::<bool>("SELECT EXISTS (SELECT FROM posts WHERE id = 50000)").await);
    // Parts before it have gone; the rest goes when nobody hangs on it any more.
    ebb.db.execute("UPDATE users SET by = NULL WHERE id = 2").await;
    ebb.once("users").await;
    assert_eq!((ebb.ids().await.as_str(), ebb.list("id", "posts").await.as_str()), ("2,3,4,5,6", ""));
    assert_eq!(ebb.erased().await, (1, 2 + 50_000));
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
}

#[tokio::test]
async fn tables_that_refer_to_each_other_go_in_parts() {
    let ebb = Ebb::many(
        "children = [{ table = \"threads\", column = \"last\", action = \"delete\" }]",
        &format!(
            "CREATE TABLE threads (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE, last bigint);
             CREATE TABLE messages (id bigint PRIMARY KEY, thread_id bigint NOT NULL REFERENCES threads ON DELETE CASCADE);
             CREATE INDEX ON threads (user_id); CREATE INDEX ON threads (last); CREATE INDEX ON messages (thread_id);
             INSERT INTO threads VALUES (1, 1, 45000), (2, 1, 2), (3, 2, 3), (4, 1, NULL);
             INSERT INTO messages SELECT n, 1 FROM generate_series(4, 45000) n; INSERT INTO messages VALUES (2, 2), (3, 3);
             ALTER TABLE threads ADD FOREIGN KEY (last) REFERENCES messages; {}{}",
            counted("threads"),
            counted("messages")
        ),
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.dies_at_once_and_goes_on().await;
    assert_eq!((ebb.list("id", "threads").await.as_str(), ebb.list("id", "messages").await.as_str()), ("3", "3"));
    assert_eq!(ebb.erased().await, (1, 2 + 3 + 44_998));
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
}

#[tokio::test]
async fn subjects_in_a_circle_with_other_tables_are_parted_once_they_are_claimed() {
    let ebb = Ebb::many(
        "",
        &format!(
            "CREATE TABLE teams (id bigint PRIMARY KEY, owner bigint NOT NULL REFERENCES users ON DELETE CASCADE);
             CREATE TABLE plans (team bigint REFERENCES teams ON DELETE CASCADE);
             CREATE INDEX ON teams (owner); CREATE INDEX ON plans (team);
             INSERT INTO teams SELECT n, 1 FROM generate_series(1, 25000) n; INSERT INTO teams VALUES (0, 3);
             INSERT INTO plans SELECT 1 FROM generate_series(1, 21000);
             UPDATE users SET by = 1 WHERE id = 2; ALTER TABLE users ADD FOREIGN KEY (by) REFERENCES teams ON DELETE CASCADE; {}{}{}",
            counted("teams"),
            counted("plans"),
            counted("users")
        ),
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    // A member of one of its teams may not go yet.
    ebb.once("users").await;
    assert_eq!(ebb.told().await, "1: a subject that may not go yet would go along with it");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM teams").await, 25_001);
    ebb.db.execute("SELECT ebb.delete_subject('users', '2')").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.ids().await.as_str(), ebb.list("id", "teams").await.as_str()), ("3,4,5,6", "0"));
    assert_eq!(ebb.erased().await, (2, 4 + 25_000 + 21_000));
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
}

#[tokio::test]
async fn subjects_who_hang_on_each_other_are_parted_and_then_go_many_at_a_time() {
    let ebb = Ebb::many(
        "",
        &format!(
            "ALTER TABLE users ADD FOREIGN KEY (by) REFERENCES users ON DELETE CASCADE;
             INSERT INTO users (id, by) SELECT n, 1 FROM generate_series(1000, 21999) n; {}",
            counted("users")
        ),
    )
    .await;
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 1 OR id >= 1000").await;
    ebb.db.execute("TRUNCATE ledger").await;
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!((ebb.ids().await.as_str(), ebb.erased().await), ("2,3,4,5,6", (21_001, 2 + 21_000)));
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
    // How many there are depends on how busy the server is.
    let transactions: i64 = ebb.db.scalar("SELECT count(DISTINCT tx) FROM ledger").await;
    assert!(transactions < 1_000, "{transactions}");
}

#[tokio::test]
async fn rows_that_do_not_say_that_they_were_changed_are_changed_in_parts_and_once() {
    let set = |table: &str, on: &str| {
        format!(
            "{{ table = \"{table}\", column = \"{on}\", action = \"anonymize\", set = {{ name = \"md5(name)\"SET }} }}"
        )
    };
    let letters = set("remarks", "letter").replace("SET", ", letter = \"NULL\"").replace("NULL", "-1");
    let guests = set("guests", "email").replace("SET", "").replace("action", "references = \"email\", action");
    let ebb = Ebb::many(
        &format!("children = [{guests}, {letters}]"),
        &format!(
            "INSERT INTO guests SELECT n, '1@x', 'pii ' || n FROM generate_series(1, 45000) n; INSERT INTO guests VALUES (0, '2@x', 'pii');
             INSERT INTO letters VALUES (-1, 6);
             CREATE TABLE remarks (id bigint, letter bigint REFERENCES letters, name text); CREATE INDEX ON remarks (letter);
             INSERT INTO remarks SELECT n, 1, 'pii ' || n FROM generate_series(1, 25000) n; {}
             ALTER TABLE users ADD FOREIGN KEY (by) REFERENCES users ON DELETE SET NULL;
             INSERT INTO users (id, by) SELECT n, 1 FROM generate_series(1000, 25999) n; {}",
            counted("remarks"),
            counted("users")
        ),
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.dies_at_once_and_goes_on().await;
    // Once more, when what came late is looked for.
    ebb.once("users").await;
    assert_eq!(ebb.state("1").await, "none");
    let wrong = "SELECT concat_ws(' ', (SELECT count(*) FROM guests WHERE id > 0 AND name <> md5('pii ' || id)),
        (SELECT count(*) FROM remarks WHERE name <> md5('pii ' || id) OR letter <> -1), (SELECT count(*) FROM users WHERE by IS NOT NULL),
        (SELECT name FROM guests WHERE id = 0))";
    assert_eq!(ebb.db.scalar::<String>(wrong).await, "0 0 0 pii");
    let counts =
        "SELECT concat_ws(' ', details -> 'unlinked' ->> 'public.guests', details -> 'unlinked' ->> 'public.remarks',
        details -> 'unlinked' ->> 'public.users', rows) FROM ebb.audit WHERE action = 'erase'";
    assert_eq!(ebb.db.scalar::<String>(counts).await, "45000 25000 25000 2");
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
}

#[tokio::test]
async fn rows_that_several_links_lead_to_are_changed_by_each_of_them_once() {
    let link = |table: &str, column: &str, references: &str, set: &str| {
        format!(
            "{{ table = \"{table}\", column = \"{column}\", {references} action = \"anonymize\", set = {{ {column}_name = \"md5({column}_name)\"{set} }} }}"
        )
    };
    let by_mail = |column: &str| link("mails", column, "references = \"email\",", "");
    let by_key = |column: &str| link("calls", column, "", &format!(", {column} = \"null\""));
    let children = [by_mail("sender"), by_mail("recipient"), by_key("caller"), by_key("called")].join(", ");
    let ebb = Ebb::many(
        &format!("children = [{children}]"),
        &format!(
            "CREATE TABLE mails (id bigint, sender text, recipient text, sender_name text, recipient_name text, reader bigint REFERENCES users ON DELETE SET NULL);
             CREATE TABLE calls (id bigint, caller bigint REFERENCES users, called bigint REFERENCES users, caller_name text, called_name text);
             CREATE INDEX ON mails (sender); CREATE INDEX ON mails (recipient); CREATE INDEX ON mails (reader);
             CREATE INDEX ON calls (caller); CREATE INDEX ON calls (called);
             INSERT INTO mails SELECT n, '1@x', CASE WHEN n <= 10 THEN '1@x' ELSE '2@x' END, 'from ' || n, 'to ' || n, 1 FROM generate_series(1, 25000) n;
             INSERT INTO calls SELECT n, 1, CASE WHEN n <= 10 THEN 1 ELSE 2 END, 'from ' || n, 'to ' || n FROM generate_series(1, 25000) n; {}{}",
            counted("mails"),
            counted("calls")
        ),
    )
    .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1')").await;
    ebb.db.advance("91 days").await;
    ebb.dies_at_once_and_goes_on().await;
    ebb.once("users").await;
    assert_eq!((ebb.state("1").await.as_str(), ebb.ids().await.as_str()), ("none", "2,3,4,5,6"));
    let wrong = "SELECT concat_ws(' ',
        (SELECT count(*) FROM mails WHERE reader IS NOT NULL OR sender_name <> md5('from ' || id)
                OR recipient_name <> CASE WHEN id <= 10 THEN md5('to ' || id) ELSE 'to ' || id END),
        (SELECT count(*) FROM calls WHERE caller IS NOT NULL OR caller_name <> md5('from ' || id)
                OR called_name <> CASE WHEN id <= 10 THEN md5('to ' || id) ELSE 'to ' || id END))";
    assert_eq!(ebb.db.scalar::<String>(wrong).await, "0 0");
    let counts =
        "SELECT concat_ws(' ', details -> 'unlinked' ->> 'public.mails', details -> 'unlinked' ->> 'public.calls')
        FROM ebb.audit WHERE action = 'erase'";
    assert_eq!(ebb.db.scalar::<String>(counts).await, format!("{} {}", 2 * 25_000 + 10, 25_000 + 10));
    assert!(ebb.most_at_once().await <= MOST, "{}", ebb.most_at_once().await);
}

#[tokio::test]
async fn a_circle_whose_columns_may_not_be_null_is_named() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE a (id int PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, b int NOT NULL);
         CREATE TABLE b (id int PRIMARY KEY, a int NOT NULL REFERENCES a ON DELETE CASCADE DEFERRABLE);
         ALTER TABLE a ADD FOREIGN KEY (b) REFERENCES b ON DELETE CASCADE DEFERRABLE",
    )
    .await;
    ebb.apply(&users("")).await;
    let plan = ebb.engine.plan(&[]).await.unwrap();
    let named = |found: &&ebb::retain::Finding| found.message.contains("a_b_fkey, b_a_fkey go in one transaction");
    assert_eq!(plan.trees[0].findings.iter().filter(named).count(), 1, "{:?}", plan.trees[0].findings);
}

#[tokio::test]
async fn a_circle_without_a_foreign_key_is_named_by_its_column() {
    let ebb = Ebb::with("CREATE TABLE users (id bigint PRIMARY KEY, guardian bigint, deleted_at timestamptz)").await;
    let link = "children = [{ table = \"users\", column = \"guardian\", references = \"id\", action = \"delete\" }]";
    ebb.apply(&users(link)).await;
    let plan = ebb.engine.plan(&[]).await.unwrap();
    let named = |found: &&ebb::retain::Finding| {
        found.message.contains("in a circle through guardian go in one transaction")
            && found.message.ends_with("no foreign key stands behind it")
    };
    assert_eq!(plan.trees[0].findings.iter().filter(named).count(), 1, "{:?}", plan.trees[0].findings);
}
