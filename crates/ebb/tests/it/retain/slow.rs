//! What takes longer than a batch may, or raises an error outside of any attempt: whoever it is about is told, and passed by.

use ebb::spine::Status;

use super::users;
use crate::harness::{Ebb, run_once};

const BATCH: &str = "batch = { rows = 10, pause = \"0s\", timeout = \"2s\" }\n";

/// Five users with a note each, all of them due, and a function that takes its time over user 2.
async fn due(more: &str, sql: &str) -> Ebb {
    let ebb = Ebb::with(&format!(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz, tried timestamptz);
         CREATE TABLE notes (user_id bigint REFERENCES users ON DELETE CASCADE); CREATE INDEX ON notes (user_id);
         INSERT INTO users SELECT generate_series(1, 6); INSERT INTO notes SELECT id FROM users;
         CREATE FUNCTION slow(bigint) RETURNS boolean STABLE LANGUAGE plpgsql AS
             'BEGIN IF $1 = 2 THEN PERFORM pg_sleep(10); END IF; RETURN false; END';
         {sql}"
    ))
    .await;
    ebb.apply(&users(&format!("{BATCH}{more}"))).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 5) n").await;
    ebb.db.advance("91 days").await;
    ebb
}

/// Runs once; whoever failed, and why.
async fn erase(ebb: &Ebb) -> String {
    let run = run_once(&ebb.engine, &["users:erase"]).await.unwrap().runs.remove(0);
    assert_eq!(run.status, Status::Success, "{run:?}");
    ebb.list("concat_ws(' ', subject_id, state, attempts, error)", "ebb.deletion WHERE error IS NOT NULL").await
}

#[tokio::test]
async fn whoever_takes_too_long_to_be_looked_at_is_told_and_passed_by() {
    let ebb = due("unless = \"slow(users.id)\"\nmirror = { attempted = \"tried\" }", "").await;
    let told = "2 pending 1 to look at all that hangs on it takes longer than a batch may (`batch`, `timeout`)";
    assert_eq!((erase(&ebb).await.as_str(), ebb.ids().await.as_str()), (told, "2,6"));
    assert_eq!(ebb.list("id", "users WHERE tried IS NOT NULL").await, "2");
    // Its turn comes again, and in the end it is stuck, where everybody sees it.
    ebb.db.execute("UPDATE ebb.deletion SET attempts = 7, next_try_at = NULL WHERE attempts = 1").await;
    erase(&ebb).await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let stuck = ebb::retain::list_waiting(&mut tx, Some("users"), 10).await.unwrap();
    assert_eq!((stuck.len(), stuck[0].deletion.state.as_str(), stuck[0].deletion.attempts), (1, "failed", 8));
}

#[tokio::test]
async fn how_a_subject_stands_is_shown_whatever_its_tree_is_like() {
    let ebb = due("", "").await;
    let shown = async |sql: &str| {
        ebb.db.execute(sql).await;
        let mut tx = ebb.engine.database().read().await.unwrap();
        sqlx::query("SET LOCAL statement_timeout = '2s'").execute(&mut *tx).await.unwrap();
        ebb::retain::show(&mut tx, "users", "2").await.unwrap()
    };
    // Another policy keeps some of its notes, and asks a slow question about each.
    let notes = "[[retain]]\nname = \"notes\"\ntable = \"public.notes\"\ncolumn = \"at\"\nolder_than = \"900d\"\nwhere = \"not slow(user_id)\"\n";
    ebb.db.execute("ALTER TABLE notes ADD at timestamptz DEFAULT now() - interval '10 years'").await;
    ebb.apply(&format!("{notes}{}", users(BATCH))).await;
    let slow = shown("SELECT").await;
    assert_eq!(
        (slow.uncounted.as_deref(), slow.deletion.unwrap().state.as_str()),
        (Some("to count its rows takes too long"), "pending")
    );
    let refused = shown("CREATE TABLE more (id bigint REFERENCES users)").await;
    assert!(refused.uncounted.unwrap().contains("more_id_fkey"));
}

#[tokio::test]
async fn whoever_has_more_rows_than_a_look_may_hold_is_shown_without_their_number() {
    let ebb = Ebb::shop("").await;
    ebb.db.execute("INSERT INTO orders SELECT n, 1 FROM generate_series(1000001, 1200001) n; ANALYZE orders").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1'), ebb.delete_subject('users', '2')").await;
    let mut tx = ebb.engine.database().read().await.unwrap();
    let large = ebb::retain::show(&mut tx, "users", "1").await.unwrap();
    assert_eq!(large.uncounted.as_deref(), Some("too many rows hang on it that others refer to"));
    assert_eq!((large.would_erase.len(), large.deletion.unwrap().state.as_str()), (0, "pending"));
    let small = ebb::retain::show(&mut tx, "users", "2").await.unwrap();
    assert_eq!((small.would_erase["public.orders"], small.uncounted), (3, None));
}

#[tokio::test]
async fn a_claimed_subject_of_whom_a_single_row_takes_too_long_keeps_nobody_else() {
    let ebb = due(
        "",
        "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM slow(OLD.user_id); RETURN OLD; END';
         CREATE TRIGGER linger BEFORE DELETE ON notes FOR EACH ROW EXECUTE FUNCTION linger()",
    )
    .await;
    let told = "2 erasing 1 a single row of it takes longer than a batch may (`batch`, `timeout`)";
    assert_eq!((erase(&ebb).await.as_str(), ebb.ids().await.as_str()), (told, "2,6"));
}

#[tokio::test]
async fn a_batch_whose_statements_take_too_long_together_is_no_lost_connection() {
    let tables = |each: &dyn Fn(usize) -> String| (1..=18).map(each).collect::<String>();
    let ebb = due(
        "",
        &format!(
            "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN IF OLD.user_id = 2 THEN PERFORM pg_sleep(1); END IF; RETURN OLD; END'; {}",
            tables(&|n| format!(
                "CREATE TABLE t{n} (user_id bigint REFERENCES users ON DELETE CASCADE); CREATE INDEX ON t{n} (user_id);
                 INSERT INTO t{n} SELECT id FROM users;
                 CREATE TRIGGER linger BEFORE DELETE ON t{n} FOR EACH ROW EXECUTE FUNCTION linger();"
            ))
        ),
    )
    .await;
    assert_eq!((erase(&ebb).await.as_str(), ebb.ids().await.as_str()), ("", "6"));
    assert_eq!(ebb.erased().await, (5, 5 * 20));
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.run WHERE status <> 'success'").await, 0);
}

#[tokio::test]
async fn whoever_raises_an_error_outside_of_any_attempt_fails_alone() {
    // A look along a circle asks which rows another policy keeps, and divides by nought over one of them.
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, by bigint, deleted_at timestamptz);
         CREATE TABLE teams (id bigint PRIMARY KEY, owner bigint REFERENCES users ON DELETE CASCADE, at timestamptz, size int);
         CREATE INDEX ON teams (owner); INSERT INTO users SELECT generate_series(1, 6);
         INSERT INTO teams SELECT id, id, now() - interval '2 years', id - 2 FROM users;
         ALTER TABLE users ADD FOREIGN KEY (by) REFERENCES teams",
    )
    .await;
    let teams = "[[retain]]\nname = \"teams\"\ntable = \"public.teams\"\ncolumn = \"at\"\nolder_than = \"365d\"\nwhere = \"1 / size > -5\"\n";
    let by = "children = [{ table = \"public.users\", column = \"by\", action = \"delete\" }]";
    ebb.apply(&format!("{teams}{}", users(&format!("{BATCH}\n{by}")))).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', n::text) FROM generate_series(1, 5) n").await;
    ebb.db.advance("91 days").await;
    let told = erase(&ebb).await;
    assert!(told.starts_with("2 pending 1 ") && !told.contains(",3"), "{told}");
    assert_eq!(ebb.ids().await, "2,6");
}

#[tokio::test]
async fn two_large_subjects_who_fit_into_a_batch_one_by_one_and_take_too_long_go_in_parts() {
    let sql = "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF (SELECT count(*) FROM gone) > 4000 THEN PERFORM pg_sleep(10); END IF; RETURN NULL; END $$;
         CREATE TRIGGER linger AFTER DELETE ON notes REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION linger();
         INSERT INTO notes SELECT 1 + n % 2 FROM generate_series(1, 24000) n; ANALYZE";
    let ebb = due("", sql).await;
    assert_eq!((erase(&ebb).await.as_str(), ebb.ids().await.as_str()), ("", "6"));
    let claimed = "SELECT string_agg(rows::text, ',') FROM ebb.audit WHERE action = 'erase' AND rows > 12000";
    assert_eq!(ebb.db.scalar::<String>(claimed).await, "12002,12002");
}

#[tokio::test]
async fn a_value_that_the_server_has_no_room_for_is_about_one_subject_who_stays_whole() {
    let sql = "ALTER TABLE notes ADD body text; CREATE TABLE kept (body text); CREATE INDEX ON kept (body);
         CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.kept VALUES (OLD.body); RETURN NULL; END';
         CREATE TRIGGER keep AFTER DELETE ON notes FOR EACH ROW EXECUTE FUNCTION keep();
         INSERT INTO notes SELECT 2, n::text FROM generate_series(1, 20) n;
         INSERT INTO notes SELECT 2, string_agg(md5(n::text), '') FROM generate_series(1, 400) n";
    let ebb = due("", sql).await;
    let told = erase(&ebb).await;
    assert!(told.starts_with("2 pending 1 index row "), "{told}");
    assert_eq!(ebb.ids().await, "2,6");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM notes WHERE user_id = 2").await, 22);
}
