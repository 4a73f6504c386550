//! `unless` is asked of the rows of subjects alone; one that it raises an error over fails, and nobody else.

use super::{found_in_ebb, users};
use crate::harness::Ebb;

const SETTINGS: &str =
    "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz, settings jsonb NOT NULL DEFAULT '{}');
    INSERT INTO users (id) SELECT n FROM generate_series(1, 50) n";
const UNLESS: &str = "unless = \"coalesce((settings ->> 'keep')::boolean, false)\"";

#[tokio::test]
async fn a_row_that_unless_raises_an_error_over_stops_nobody_else_and_is_quoted_nowhere() {
    let ebb = Ebb::with(SETTINGS).await;
    ebb.apply(&users(UNLESS)).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', id::text) FROM users WHERE id <= 40").await;
    let wrong = r#"UPDATE users SET settings = '{"keep": "ayu@secret.test"}' WHERE id IN (7, 23, 45)"#;
    ebb.db.execute(&format!("{wrong}; UPDATE users SET settings = '{{\"keep\": true}}' WHERE id = 9")).await;
    ebb.db.advance("91 days").await;
    let plan = ebb.engine.plan(&[]).await.unwrap();
    assert_eq!((plan.trees[0].due, plan.trees[0].blocked), (37, 3));
    let finished = ebb.once("users").await;
    assert!(!format!("{finished:?}").contains("secret"), "{finished:?}");
    assert_eq!(ebb.list("id", "users").await, "7,9,23,41,42,43,44,45,46,47,48,49,50");
    let failed = "SELECT string_agg(concat_ws(' ', subject_id, attempts, error), '; ' ORDER BY subject_id) FROM ebb.deletion WHERE error IS NOT NULL";
    let why = "1 `unless` raises an error over its row (SQLSTATE 22P02)";
    assert_eq!(ebb.db.scalar::<String>(failed).await, format!("23 {why}; 7 {why}"));
    assert_eq!(found_in_ebb(&ebb, "secret").await, Vec::<String>::new());
    let waits = {
        let mut tx = ebb.engine.database().read().await.unwrap();
        ebb::retain::waits_for(&mut tx, "users", "7").await.unwrap()
    };
    assert_eq!(waits.as_deref(), Some("`unless` raises an error over its row (SQLSTATE 22P02)"));

    // It is tried again; whoever lives is not looked at.
    ebb.db.execute("UPDATE users SET settings = '{}' WHERE id IN (7, 9)").await;
    ebb.db.advance("1 hour").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "23,41,42,43,44,45,46,47,48,49,50");
    assert_eq!(ebb.erased().await, (39, 39));
}

#[tokio::test]
async fn nor_does_a_row_that_the_filter_of_another_policy_raises_an_error_over() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE orders (id int PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, made timestamptz, total text);
         CREATE INDEX ON orders (user_id);
         INSERT INTO users SELECT n FROM generate_series(1, 9) n;
         INSERT INTO orders SELECT n, n, now() - interval '20 years', '9' FROM generate_series(1, 9) n",
    )
    .await;
    let tax = "[[retain]]\nname = \"tax\"\ntable = \"orders\"\ncolumn = \"made\"\nolder_than = \"10y\"\nwhere = \"total::int > 7\"\n";
    ebb.apply(&format!("{tax}\n{}", users(""))).await;
    ebb.db
        .execute("UPDATE orders SET total = 'ayu@secret.test' WHERE id = 4; UPDATE orders SET total = '5' WHERE id = 2")
        .await;
    ebb.db.execute("SELECT ebb.delete_subject('users', id::text) FROM users").await;
    ebb.db.advance("91 days").await;
    let finished = ebb.once("users").await;
    assert!(!format!("{finished:?}").contains("secret"), "{finished:?}");
    assert_eq!((ebb.list("id", "users").await, ebb.list("id", "orders").await), ("4".into(), "2,4".into()));
    assert_eq!(ebb.db.scalar::<String>("SELECT subject_id FROM ebb.deletion WHERE attempts = 1").await, "4");
}
