//! What a plan says is what a run does, and what it proposes can be pasted and works.

use ebb::policy::Wanted;
use ebb::retain::TreePlan;

use super::users;
use crate::harness::{Ebb, wanted};

/// The plan of the only policy over subjects.
async fn planned(ebb: &Ebb, wanted: &[Wanted]) -> TreePlan {
    ebb.engine.plan(wanted).await.unwrap().trees.remove(0)
}

/// What it finds, each with what mends it.
async fn told(ebb: &Ebb, config: &str) -> String {
    let tree = planned(ebb, &wanted(config).unwrap()).await;
    let fix = |fix: &Option<String>| fix.as_ref().map_or(String::new(), |fix| format!("\n    {fix}"));
    tree.findings.iter().map(|found| format!("{}: {}{}\n", found.table, found.message, fix(&found.fix))).collect()
}

#[tokio::test]
async fn who_shares_a_row_with_somebody_on_hold_is_planned_to_wait() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE threads (id bigint PRIMARY KEY, owner bigint REFERENCES users ON DELETE CASCADE, guest bigint REFERENCES users ON DELETE CASCADE);
         CREATE TABLE messages (sender bigint REFERENCES users ON DELETE CASCADE, recipient bigint REFERENCES users ON DELETE CASCADE,
             thread bigint REFERENCES threads ON DELETE CASCADE);
         INSERT INTO users SELECT generate_series(1, 30);
         INSERT INTO messages SELECT 1, n FROM generate_series(11, 20) n;
         INSERT INTO threads SELECT 100 + n, n, n + 1 FROM generate_series(21, 23) n;
         INSERT INTO messages VALUES (1, NULL, 122)",
    )
    .await;
    ebb.apply(&users("")).await;
    ebb.db.execute("SELECT ebb.place_hold('users', '1', 'court'), ebb.delete_subject('users', id::text) FROM users WHERE id > 10").await;
    ebb.db.advance("91 days").await;
    let tree = planned(&ebb, &[]).await;
    // 11 to 20 received a message, and 22 and 23 have a thread with one in it; 21 shares another thread with 22.
    assert_eq!((tree.due, tree.blocked), (8, 12), "{tree:?}");
    let why = |tree: &TreePlan| tree.blocked_by.clone();
    assert_eq!(
        why(&tree),
        [("rows of a subject on hold would go with it (public.messages, policy users)".to_owned(), 12)]
    );
    let went = tree.erases.iter().find(|(table, _)| table == "public.users").unwrap().1;
    let before: i64 = ebb.db.scalar("SELECT count(*) FROM users").await;
    ebb.once("users").await;
    let after: i64 = ebb.db.scalar("SELECT count(*) FROM users").await;
    assert_eq!((before - after, went), (8, 8), "the run does what the plan says");
    assert_eq!(ebb.list("id", "users WHERE id > 10").await, "11,12,13,14,15,16,17,18,19,20,22,23");
    ebb.db.execute("SELECT ebb.lift_hold('users', '1')").await;
    let tree = planned(&ebb, &[]).await;
    assert_eq!((tree.due, tree.blocked, why(&tree)), (12, 0, Vec::new()), "{tree:?}");
}

#[tokio::test]
async fn columns_that_hold_an_id_are_known_by_the_foreign_keys_of_others() {
    for (table, column) in [
        ("app_users", "user_id"),
        ("auth_user", "user_id"),
        ("user_entity", "user_id"),
        ("\"AppUsers\"", "userId"),
        ("crm_people", "person"),
    ] {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE {table} (id serial PRIMARY KEY, deleted_at timestamptz);
             CREATE TABLE profiles (id serial PRIMARY KEY, \"{column}\" int REFERENCES {table} ON DELETE CASCADE);
             CREATE TABLE app_orders (id serial PRIMARY KEY, \"{column}\" int);"
        ))
        .await;
        let config = users("").replace("\"public.users\"", &format!("{:?}", format!("public.{table}")));
        let said = told(&ebb, &config).await;
        let label = format!("public.{table}");
        assert!(
            said.starts_with(&format!("public.app_orders: its column {column} looks like an id of {label}, ")),
            "{said}"
        );
        let entry = format!(
            "children = [{{ table = \"public.app_orders\", column = \"{column}\", references = \"id\", action = \"delete\" }}]"
        );
        assert!(said.contains(&entry.replace("delete", "delete | nullify | anonymize | keep")), "{said}");
        let config = config.replace("brake", &format!("{entry}\nbrake"));
        ebb.apply(&config).await;
        assert_eq!(told(&ebb, &config).await, "", "what is pasted is enough");
    }
}

#[tokio::test]
async fn columns_that_cannot_be_an_id_of_the_subject_are_not_named() {
    let ebb = Ebb::with(
        "CREATE TABLE teams (id serial PRIMARY KEY);
         CREATE TABLE app_users (id bigserial PRIMARY KEY, parent_id bigint, deleted_at timestamptz);
         ALTER TABLE app_users ADD FOREIGN KEY (parent_id) REFERENCES app_users ON DELETE SET NULL;
         CREATE TABLE app_user_addresses (id serial PRIMARY KEY, app_user_id bigint REFERENCES app_users ON DELETE CASCADE);
         CREATE TABLE app_user_roles (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text);
         CREATE TABLE app_user_tokens (id uuid PRIMARY KEY DEFAULT gen_random_uuid());
         CREATE TABLE badges (user_id int REFERENCES teams, other_user_id boolean, third_user_id timestamptz, fourth_user_id varchar(1), parent_id bigint);
         CREATE TABLE app_user_profiles (id bigint PRIMARY KEY, bio text)",
    )
    .await;
    let config = users("").replace("public.users", "app_users");
    let said = told(&ebb, &config).await;
    assert!(
        said.starts_with("public.app_user_profiles: its column id looks like an id of public.app_users, "),
        "{said}"
    );
    assert_eq!(said.matches("looks like").count(), 1, "{said}");
    // A table that is called so itself is meant, not one that only ends like it.
    ebb.db
        .execute("CREATE TABLE users (id bigint PRIMARY KEY); CREATE TABLE visits (user_id bigint, app_user_id text)")
        .await;
    let said = told(&ebb, &config).await;
    assert!(said.contains("public.visits: its column app_user_id looks like"), "{said}");
    assert!(said.contains("it is text and id of public.app_users is bigint"), "{said}");
    assert!(!said.contains("its column user_id"), "{said}");
}

const BLOG: &str = "CREATE TABLE users (id bigint PRIMARY KEY, name text, deleted_at timestamptz);
    CREATE TABLE posts (id bigint PRIMARY KEY, user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE);
    CREATE TABLE messages (sender bigint REFERENCES users ON DELETE CASCADE, recipient bigint REFERENCES users ON DELETE CASCADE);
    INSERT INTO users SELECT n, 'u' || n FROM generate_series(1, 4) n;
    INSERT INTO posts SELECT n, n FROM generate_series(1, 4) n; INSERT INTO messages SELECT 1, n FROM generate_series(2, 4) n";
const GIVEN: &str =
    "children = [{ table = \"posts\", column = \"user_id\", action = \"anonymize\", set = { user_id = \"1\" } }]\n";

#[tokio::test]
async fn the_account_that_rows_are_given_to_is_protected_without_binding_anybody() {
    for (unless, proposed) in
        [("", "users.id = 1"), ("name = 'the \"boss\"'", "(name = 'the \"boss\"') or users.id = 1")]
    {
        let ebb = Ebb::with(BLOG).await;
        let written = if unless.is_empty() { String::new() } else { format!("unless = {unless:?}\n") };
        let config = users(&format!("{GIVEN}{written}"));
        let said = told(&ebb, &config).await;
        let fix = format!("unless = {proposed:?}");
        assert!(said.contains(&fix) && !said.contains("ebb hold"), "{said}");
        let config = users(&format!("{GIVEN}{fix}\n"));
        ebb.apply(&config).await;
        assert_eq!(told(&ebb, &config).await, "", "it is protected now");
        ebb.db.execute("SELECT ebb.delete_subject('users', id::text) FROM users WHERE id < 4").await;
        ebb.db.advance("91 days").await;
        let tree = planned(&ebb, &[]).await;
        assert_eq!((tree.due, tree.blocked_by), (2, vec![("`unless` holds".to_owned(), 1)]));
        ebb.once("users").await;
        assert_eq!(
            (ebb.list("id", "users").await, ebb.list("user_id", "posts").await),
            ("1,4".into(), "1,1,1,4".into())
        );
    }
}
