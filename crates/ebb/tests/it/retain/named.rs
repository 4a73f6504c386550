//! What a plan and the doctor name before anything goes: triggers that destroy beside Ebb, tables that share ids, keys of
//! partitions.

use super::told::questions;
use super::users;
use crate::harness::{Ebb, wanted};

/// What a plan of the policy `users` finds, a line each.
async fn found(ebb: &Ebb, config: &str) -> String {
    let plan = ebb.engine.plan(&wanted(config).unwrap()).await.unwrap();
    let lines = plan.trees[0].findings.iter().map(|found| format!("{}: {}\n", found.table, found.message));
    lines.collect()
}

/// What the doctor says.
async fn told(ebb: &Ebb) -> String {
    let report = ebb.engine.doctor(&questions("")).await.unwrap();
    report.findings.iter().map(|found| format!("{}\n", found.evidence)).collect()
}

const NOTES: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, email text, deleted_at timestamptz, updated_at timestamptz);
    CREATE TABLE notes (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE SET NULL);
    CREATE TABLE lines (note_id bigint); CREATE TABLE profiles (id bigint, bio text);
    INSERT INTO users SELECT n FROM generate_series(1, 3) n; INSERT INTO notes SELECT n, n FROM generate_series(1, 3) n;
    INSERT INTO lines SELECT n FROM generate_series(1, 3) n;
    CREATE FUNCTION drop_lines() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
        IF NEW.user_id IS NULL THEN DELETE FROM lines WHERE note_id = NEW.id; END IF; RETURN NULL; END';
    CREATE FUNCTION scrub() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
        IF NEW.deleted_at IS NOT NULL THEN NEW.email := NULL; UPDATE profiles SET bio = NULL WHERE id = NEW.id; END IF; RETURN NEW; END';
    CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.updated_at := now(); RETURN NEW; END';
    CREATE TRIGGER stamp BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION stamp();";

#[tokio::test]
async fn a_trigger_that_deletes_when_a_row_loses_its_link_is_named_and_agreed_to() {
    let ebb = Ebb::with(NOTES).await;
    let named = "public.notes: trigger drops deletes rows when a row loses its link";
    ebb.apply(&users("")).await;
    ebb.db.execute("UPDATE users SET deleted_at = now() - interval '91 days' WHERE id = 1").await;
    // It comes after the tree was approved.
    ebb.db.execute("CREATE TRIGGER drops AFTER UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION drop_lines()").await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await, ebb.list("note_id", "lines").await), ("1,2,3".into(), "1,2,3".into()));
    let reason: String = ebb.db.scalar("SELECT stopped FROM ebb.policy WHERE name = 'users'").await;
    assert!(reason.contains("table public.notes: trigger drops is new"), "{reason}");
    assert!(found(&ebb, &users("")).await.contains(named));
    let said = told(&ebb).await;
    assert!(said.contains(named) && said.contains("its tree is not the approved one"), "{said}");
    assert!(!said.contains("the cause is gone"), "{said}");
    ebb.apply(&users("")).await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await, ebb.list("note_id", "lines").await), ("2,3".into(), "2,3".into()));
}

#[tokio::test]
async fn a_trigger_that_overwrites_at_a_soft_delete_what_a_restore_needs_is_named() {
    let ebb = Ebb::with(NOTES).await;
    let config = users("");
    assert_eq!(found(&ebb, &config).await, "", "a time stamp is nothing to a restore");
    ebb.db.execute("CREATE TRIGGER scrubs BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION scrub()").await;
    let named = "public.users: trigger scrubs changes email, rows of profiles at a soft delete";
    assert!(found(&ebb, &config).await.contains(named));
    ebb.apply(&config).await;
    assert!(told(&ebb).await.contains(named));
}

#[tokio::test]
async fn a_column_that_shares_ids_is_named_beside_another_that_has_a_key() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE messages (id bigint PRIMARY KEY, sender_user_id bigint REFERENCES users ON DELETE CASCADE, recipient_user_id bigint);
         CREATE TABLE user_sessions (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
         CREATE TABLE guests (user_id bigint)",
    )
    .await;
    let link = |column: &str| {
        format!("{{ table = \"{column}\", column = \"user_id\", references = \"id\", action = \"delete\" }}")
    };
    let named = "public.messages: its column recipient_user_id looks like an id of public.users, and no foreign key says so: \
                 rows that only it leads to stay\n";
    assert_eq!(found(&ebb, &users(&format!("children = [{}]", link("guests")))).await, named);
}

#[tokio::test]
async fn an_id_is_known_by_the_singular_of_its_table() {
    for (table, column) in [
        ("companies", "company_id"),
        ("addresses", "addressId"),
        ("boxes", "box_id"),
        ("houses", "house_id"),
        ("user_branches", "user_branch_id"),
        ("staff", "staff_id"),
    ] {
        let ebb = Ebb::with(&format!(
            "CREATE TABLE {table} (id bigint PRIMARY KEY, deleted_at timestamptz);
             CREATE TABLE employees (id bigint PRIMARY KEY, \"{column}\" bigint)"
        ))
        .await;
        let said = found(&ebb, &users("").replace("users", table)).await;
        assert!(
            said.contains(&format!("public.employees: its column {column} looks like an id of public.{table}")),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_key_of_partitions_between_is_one_of_the_whole_table_when_each_has_it() {
    let ebb = Ebb::with(
        "CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE TABLE visits (day int NOT NULL, user_id bigint) PARTITION BY RANGE (day);
         CREATE TABLE visits1 PARTITION OF visits FOR VALUES FROM (1) TO (2) PARTITION BY HASH (user_id);
         CREATE TABLE visits2 PARTITION OF visits FOR VALUES FROM (2) TO (3) PARTITION BY HASH (user_id);
         CREATE TABLE visits1a PARTITION OF visits1 FOR VALUES WITH (MODULUS 1, REMAINDER 0);
         CREATE TABLE visits2a PARTITION OF visits2 FOR VALUES WITH (MODULUS 1, REMAINDER 0);
         ALTER TABLE visits1 ADD FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
         INSERT INTO users SELECT n, now() - interval '91 days' FROM generate_series(1, 2) n;
         INSERT INTO visits SELECT d, u FROM generate_series(1, 2) d, generate_series(1, 2) u",
    )
    .await;
    let said = found(&ebb, &users("")).await;
    assert!(said.contains("public.visits: public.visits2a lacks the foreign key"), "{said}");
    ebb.db.execute("ALTER TABLE visits2 ADD FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE").await;
    assert_eq!(found(&ebb, &users("")).await, "");
    ebb.apply(&users("")).await;
    ebb.once("users").await;
    assert_eq!((ebb.list("id", "users").await, ebb.list("day", "visits").await), (String::new(), String::new()));
}

#[tokio::test]
async fn a_soft_delete_at_no_time_is_named() {
    let ebb = Ebb::with(NOTES).await;
    ebb.apply(&users("")).await;
    // To many an application `infinity` says that somebody lives.
    ebb.db
        .execute("UPDATE users SET deleted_at = 'infinity'; UPDATE users SET deleted_at = '-infinity' WHERE id = 2")
        .await;
    let said = told(&ebb).await;
    assert!(said.contains("1 soft-deleted at -infinity (2)"), "{said}");
    ebb.db.execute("SELECT ebb.delete_subject('users', '2')").await;
    assert!(!told(&ebb).await.contains("-infinity"));
}
