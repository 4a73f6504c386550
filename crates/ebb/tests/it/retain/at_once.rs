//! Marking at once: the application's own soft delete is noticed as it happens, and never fails because of it.

use super::{SHOP, users};
use crate::harness::{Ebb, execute, fetch};

const AT_ONCE: &str = "mark_at_once = true";

async fn triggers(ebb: &Ebb) -> i64 {
    ebb.db.scalar("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'mark:%' AND tgparentid = 0").await
}

#[tokio::test]
async fn an_application_without_rights_on_ebb_is_noticed_at_once() {
    let more = r#"mark_at_once = true
        status = { column = "status", deleted = "deleted", active = "active" }
        mirror = { due = "scheduled_deletion_at" }
        tenant = "tenant_id""#;
    let ebb = Ebb::shop(more).await;
    let app = format!("app_{}", ebb.db.name());
    ebb.db.execute(&format!("CREATE ROLE {app}; GRANT SELECT, UPDATE ON users TO {app}")).await;
    let mut client = ebb.client().await;
    execute(&mut client, &format!("SET ROLE {app}; SET search_path = pg_temp, public")).await;
    execute(
        &mut client,
        "UPDATE users SET deleted_at = now() WHERE id IN (1, 2); UPDATE users SET name = 'x' WHERE id = 3",
    )
    .await;
    assert_eq!(ebb.list("subject_id", "ebb.deletion WHERE state = 'pending'").await, "1,2");
    let mirrored = "SELECT count(*) FROM users u JOIN ebb.deletion d ON d.subject_id = u.id::text
        WHERE u.status = 'deleted' AND u.scheduled_deletion_at = d.due_at AND d.due_at = u.deleted_at + interval '90 days'
          AND d.tenant = u.tenant_id";
    assert_eq!(ebb.db.scalar::<i64>(mirrored).await, 2);
    execute(&mut client, "UPDATE users SET deleted_at = NULL WHERE id = 2").await;
    assert_eq!(ebb.state("2").await, "restored");
    execute(&mut client, "BEGIN; UPDATE users SET deleted_at = now() WHERE id = 4; ROLLBACK").await;
    assert_eq!(ebb.state("4").await, "none");
    let records =
        "SELECT string_agg(action || ' ' || by_name, ', ' ORDER BY id) FROM ebb.audit WHERE details ? 'deletion'";
    assert_eq!(ebb.db.scalar::<String>(records).await, "mark application, mark application, restore application");
    // The chore has nothing to add, and erasing goes on as ever.
    ebb.db.advance("91 days").await;
    ebb.once("users").await;
    assert_eq!(ebb.list("id", "users").await, "2,3,4,5,6,7,8,9,10,11,12");
}

#[tokio::test]
async fn what_goes_through_ebb_is_not_noticed_twice() {
    let ebb = Ebb::shop(AT_ONCE).await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '1'); SELECT ebb.restore_subject('users', '1'); SELECT ebb.delete_subject('users', '1')").await;
    let records = "SELECT string_agg(action, ', ' ORDER BY id) FROM ebb.audit WHERE details ? 'deletion'";
    assert_eq!(ebb.db.scalar::<String>(records).await, "delete, restore, delete");
    assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.deletion").await, 2);
}

#[tokio::test]
async fn the_applications_statement_does_not_fail_when_ebb_is_in_trouble() {
    let ebb = Ebb::shop(AT_ONCE).await;
    // Its table is away: the chore finds it later.
    ebb.db.execute("ALTER TABLE ebb.deletion RENAME TO away").await;
    ebb.db.execute("UPDATE users SET deleted_at = now() WHERE id = 1").await;
    ebb.db.execute("ALTER TABLE ebb.away RENAME TO deletion").await;
    // Somebody has locked the table.
    let (mut other, mut app) = (ebb.client().await, ebb.client().await);
    execute(&mut other, "BEGIN; LOCK TABLE ebb.deletion IN ACCESS EXCLUSIVE MODE").await;
    execute(&mut app, "UPDATE users SET deleted_at = now() WHERE id = 2").await;
    execute(&mut other, "ROLLBACK").await;
    assert_eq!((ebb.state("1").await, ebb.state("2").await), ("none".into(), "none".into()));
    ebb.once("users").await;
    assert_eq!((ebb.state("1").await, ebb.state("2").await), ("pending".into(), "pending".into()));
    // A deletion that somebody else has locked, who waits for the row: neither waits for the other.
    execute(&mut app, "BEGIN; UPDATE users SET name = 'y' WHERE id = 1").await;
    execute(&mut other, "BEGIN; SELECT FROM ebb.deletion WHERE subject_id = '1' FOR UPDATE").await;
    execute(&mut app, "UPDATE users SET deleted_at = NULL WHERE id = 1; COMMIT").await;
    execute(&mut other, "SELECT FROM users WHERE id = 1 FOR UPDATE; COMMIT").await;
    assert_eq!(ebb.state("1").await, "pending");
    ebb.once("users").await;
    assert_eq!(ebb.state("1").await, "restored");
    // A column that was renamed under it.
    ebb.db.execute("ALTER TABLE users RENAME COLUMN deleted_at TO gone_at").await;
    ebb.db.execute("UPDATE users SET gone_at = now() WHERE id = 5").await;
    assert_eq!(ebb.state("5").await, "none");
}

#[tokio::test]
async fn the_trigger_is_there_while_it_is_asked_for() {
    let ebb = Ebb::shop(AT_ONCE).await;
    let definition = "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'mark:users'";
    let first: String = ebb.db.scalar(definition).await;
    // Applied again it is left alone: no lock on the table.
    let mut busy = ebb.client().await;
    execute(&mut busy, "BEGIN; UPDATE users SET name = 'x' WHERE id = 1").await;
    ebb.apply(&users(AT_ONCE)).await;
    execute(&mut busy, "ROLLBACK").await;
    assert_eq!(fetch::<String>(&mut busy, definition).await, first);
    ebb.apply(&users("")).await;
    assert_eq!(triggers(&ebb).await, 0);
    ebb.apply(&users(AT_ONCE)).await;
    ebb.apply(&users("mark_at_once = true\nmode = \"observe\"")).await;
    assert_eq!(triggers(&ebb).await, 0);
    // It moves with the policy's table and column.
    ebb.apply(&users(AT_ONCE)).await;
    ebb.db.execute("ALTER TABLE users ADD COLUMN left_at timestamptz").await;
    ebb.apply(&users(AT_ONCE).replace("\"deleted_at\"", "\"left_at\"")).await;
    assert!(ebb.db.scalar::<String>(definition).await.contains("left_at"));
    assert_eq!(triggers(&ebb).await, 1);
    ebb.apply("").await;
    assert_eq!(triggers(&ebb).await, 0, "the policy left the file");
}

#[tokio::test]
async fn keys_of_several_columns_and_partitions_are_noticed_too() {
    let ebb = Ebb::with(
        "CREATE TABLE users (region text, id int, deleted_at date, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
         CREATE TABLE users_eu PARTITION OF users FOR VALUES IN ('eu');
         INSERT INTO users VALUES ('eu', 17, NULL)",
    )
    .await;
    ebb.apply(&users(AT_ONCE)).await;
    ebb.db.execute("UPDATE users SET deleted_at = '2020-02-03' WHERE id = 17").await;
    assert_eq!(ebb.state("[\"eu\", \"17\"]").await, "pending");
    let day_over: bool = ebb.db.scalar("SELECT deleted_at = '2020-02-04 00:00Z' FROM ebb.deletion").await;
    assert!(day_over);
}

#[tokio::test]
async fn whoever_may_not_make_triggers_is_told_what_is_needed() {
    let ebb = Ebb::with(SHOP).await;
    let (owner, clerk) = (format!("owner_{}", ebb.db.name()), format!("clerk_{}", ebb.db.name()));
    ebb.db
        .execute(&format!(
            "CREATE ROLE {owner}; ALTER TABLE users OWNER TO {owner}; CREATE ROLE {clerk} LOGIN;
             GRANT ALL ON ALL TABLES IN SCHEMA ebb TO {clerk}; GRANT ALL ON SCHEMA ebb TO {clerk};
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ebb TO {clerk}; GRANT USAGE ON ALL SEQUENCES IN SCHEMA ebb TO {clerk};
             GRANT SELECT, UPDATE, DELETE ON users, orders, items, sessions TO {clerk}"
        ))
        .await;
    let url = ebb.db.url().replacen("postgres://", "", 1);
    let (_, rest) = url.split_once('@').unwrap_or(("", &url));
    let target = ebb::pg::Target::parse(&format!("postgres://{clerk}@{rest}"), None).unwrap();
    let clerks = ebb.another(ebb::pg::Database::open(target, 4, "ebb/test"));
    let wanted = crate::harness::wanted(&users(AT_ONCE)).unwrap();
    let refused = clerks.apply(&wanted, false, "clerk").await.unwrap_err();
    assert!(refused.hint().unwrap_or_default().contains("GRANT TRIGGER ON"), "{refused:?}");
    ebb.db.execute(&format!("GRANT TRIGGER ON users TO {clerk}")).await;
    clerks.apply(&wanted, false, "clerk").await.unwrap();
    ebb.db.execute("UPDATE users SET deleted_at = now() WHERE id = 1").await;
    assert_eq!(ebb.state("1").await, "pending");
    let without = crate::harness::wanted(&users("")).unwrap();
    clerks.apply(&without, false, "clerk").await.unwrap();
    assert_eq!(triggers(&ebb).await, 0);
}

/// What an id is written like is not what it is equal to: `1.0` and `1.00`, `Abc` and `ABC` where case does not count.
#[tokio::test]
async fn a_hold_follows_a_key_that_is_written_differently_and_binds_it_without_a_trigger_too() {
    for more in ["", AT_ONCE] {
        let ebb = Ebb::with(
            "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
             CREATE TABLE users (id text COLLATE any_case PRIMARY KEY, deleted_at timestamptz);
             CREATE TABLE sums (id numeric PRIMARY KEY, deleted_at timestamptz);
             INSERT INTO users VALUES ('Abc'), ('Two'); INSERT INTO sums VALUES (1.0), (2.0);
             -- More than goes in one transaction.
             CREATE TABLE parts (sum numeric REFERENCES sums ON DELETE CASCADE ON UPDATE CASCADE); CREATE INDEX ON parts (sum);
             INSERT INTO parts SELECT 1.0 FROM generate_series(1, 20500)",
        )
        .await;
        ebb.apply(&(users(more) + "\n" + &users(more).replace("users", "sums"))).await;
        ebb.db
            .execute(
                "SELECT ebb.place_hold('users', 'Abc', 'court'), ebb.place_hold('sums', '1.0', 'court');
                 UPDATE users SET deleted_at = now(); UPDATE sums SET deleted_at = now();
                 UPDATE users SET id = 'ABC' WHERE id = 'abc'; UPDATE sums SET id = 1.00 WHERE id = 1",
            )
            .await;
        ebb.db.advance("91 days").await;
        for policy in ["users", "sums"] {
            ebb.once(policy).await;
            ebb.once(policy).await;
        }
        assert_eq!((ebb.list("id", "users").await.as_str(), ebb.list("id", "sums").await.as_str()), ("ABC", "1.00"));
        assert_eq!(ebb.db.scalar::<i64>("SELECT count(*) FROM parts").await, 20_500);
        let held = ebb.list("subject_id", "ebb.hold").await;
        assert_eq!(held, if more.is_empty() { "1.0,Abc" } else { "1.00,ABC" });
    }
}
