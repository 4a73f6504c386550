//! What a policy writes to its root table: columns of one meaning each, kept in step whoever takes a deletion back, and never in
//! the way of deleting and restoring.

use super::{SHOP, found_in_ebb, users};
use crate::harness::Ebb;

const STATUS: &str = r#"status = { column = "status", deleted = "deleted", active = "active" }"#;
const MIRROR: &str = r#"mirror = { due = "scheduled_deletion_at", notified = "deletion_notified_at" }"#;

#[tokio::test]
async fn a_column_that_means_something_else_or_cannot_be_written_is_refused() {
    let ebb = Ebb::with(SHOP).await;
    ebb.db
        .execute(
            "CREATE TYPE standing AS ENUM ('active', 'banned');
             ALTER TABLE users ADD kind standing, ADD short varchar(3), ADD number int, ADD fine char(10), ADD wanted timestamptz NOT NULL DEFAULT now(),
                 ADD shown timestamptz GENERATED ALWAYS AS (deleted_at) STORED",
        )
        .await;
    let status = |column: &str| STATUS.replace("column = \"status\"", &format!("column = \"{column}\""));
    let mirror = |what: &str, column: &str| format!("mirror = {{ {what} = \"{column}\" }}");
    for (more, why) in [
        (
            mirror("notified", "deleted_at"),
            "column deleted_at is `deleted_at`, and cannot be written for `mirror`, too",
        ),
        (mirror("due", "Deleted_At"), "column deleted_at is `deleted_at`"),
        (mirror("due", "shown"), "column shown is generated"),
        (mirror("attempted", "wanted"), "column wanted cannot be null"),
        ("mirror = { due = \"updated_at\", touched = \"updated_at\" }".into(), "column updated_at is another `mirror`"),
        (status("id"), "column id is its key"),
        (format!("{}\ntenant = \"tenant_id\"", status("tenant_id")), "column tenant_id is `tenant`"),
        (status("kind"), "column kind is public.standing and cannot be \"deleted\""),
        (status("short"), "column short is character varying(3) and cannot be \"deleted\""),
        (status("number"), "column number is integer and cannot be"),
        (STATUS.replace("\"active\"", "\"deleted\""), "\"deleted\" means both deleted and active"),
    ] {
        let error = ebb.try_apply(&users(&more)).await.unwrap_err();
        assert!(error.to_string().contains(why), "{more}: {error}");
    }
    ebb.apply(&users(&format!("{}\n{MIRROR}", status("fine")))).await;
}

#[tokio::test]
async fn whoever_erasing_meets_alive_is_told_by_no_column_to_be_deleted() {
    let ebb = Ebb::shop(&format!("{STATUS}\n{MIRROR}")).await;
    ebb.db
        .execute("UPDATE users SET status = 'banned', deleted_at = ebb.now() - interval '91 days' WHERE id = 3")
        .await;
    ebb.once("users:mark").await;
    ebb.db.execute("UPDATE users SET deleted_at = NULL WHERE id = 3").await;
    ebb.once("users:erase").await;
    assert_eq!(ebb.rows().await.0, 12);
    ebb.once("users:mark").await;
    let row = "SELECT status || ' ' || COALESCE(scheduled_deletion_at::text, '-') FROM users WHERE id = 3";
    assert_eq!(ebb.db.scalar::<String>(row).await, "banned -");
    assert_eq!(ebb.state("3").await, "restored");
    let restores: i64 = ebb.db.scalar("SELECT sum(rows)::int8 FROM ebb.audit WHERE action = 'restore'").await;
    assert_eq!(restores, 1);
}

const WARNED: &str = "warn_before = [\"30d\"]\nnotify = \"log\"\nrestore_url = \"https://app.example.test/?token={token}\"\ncontact = { email = \"email\", name = \"name\" }";
const LOG: &str = "[sinks.log]\ntype = \"log\"\n";

#[tokio::test]
async fn who_asks_is_told_apart_whatever_the_columns_are_like() {
    let ebb = Ebb::with(SHOP).await;
    ebb.db
        .execute(
            "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
             ALTER TABLE users ALTER email TYPE text COLLATE ci",
        )
        .await;
    ebb.apply(&format!("{}\n{LOG}", users(WARNED))).await;
    ebb.db
        .execute(
            "SELECT ebb.delete_subject('users', '1', 'Secret-1@example.test'), ebb.place_hold('users', '2', 'court', by => 'ann'),
                    ebb.erase_subject('users', '3', 'ann')",
        )
        .await;
    let by = || ebb.list("by_name", "ebb.audit WHERE policy = 'users' AND action IN ('delete', 'hold', 'restore')");
    assert_eq!(by().await, "ann,ann,the subject");
    // Only warnings want this column: a restore does not.
    ebb.db.execute("ALTER TABLE users RENAME email TO mail").await;
    assert!(ebb.db.scalar::<bool>("SELECT ebb.restore_subject('users', '1', 'ann')").await);
    // Where it cannot be asked whose name it is, it is nobody's to keep.
    assert_eq!(by().await, "ann,ann,the subject,the subject");
}

#[tokio::test]
async fn a_restore_before_marking_names_nobody() {
    let ebb = Ebb::shop(&format!("{WARNED}\n{LOG}")).await;
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 5").await;
    assert!(ebb.db.scalar::<bool>("SELECT ebb.restore_subject('users', '5', 'secret-5@example.test')").await);
    assert_eq!(ebb.list("by_name", "ebb.audit WHERE action = 'restore'").await, "the subject");
    assert_eq!(found_in_ebb(&ebb, "secret-5").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_soft_delete_made_anew_is_counted_from_then_also_where_it_is_asked_about() {
    let ebb = Ebb::shop(&format!("{STATUS}\n{MIRROR}")).await;
    ebb.set_clock("2026-01-01 00:00:00+00").await;
    ebb.db.execute("SELECT ebb.delete_subject('users', '3')").await;
    ebb.db.execute("UPDATE users SET deletion_notified_at = ebb.now() WHERE id = 3").await;
    ebb.set_clock("2026-03-01 00:00:00+00").await;
    ebb.db.execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 3").await;
    let due = "SELECT ebb.delete_subject('users', '3')::date::text";
    assert_eq!(ebb.db.scalar::<String>(due).await, "2026-05-30");
    ebb.once("users:mark").await;
    assert_eq!(ebb.list("due_at::date", "ebb.deletion WHERE state = 'pending'").await, "2026-05-30");
    // What is deleted anew by Ebb is not told to have been warned, either.
    ebb.db.execute("UPDATE users SET deletion_notified_at = ebb.now(), deleted_at = NULL WHERE id = 3; SELECT ebb.delete_subject('users', '3')").await;
    let told = "SELECT status || ' ' || COALESCE(deletion_notified_at::text, '-') FROM users WHERE id = 3";
    assert_eq!(ebb.db.scalar::<String>(told).await, "deleted -");
    // A request is kept whatever the application does to the row meanwhile.
    ebb.db.execute("SELECT ebb.erase_subject('users', '4')").await;
    ebb.set_clock("2026-03-02 00:00:00+00").await;
    ebb.db
        .execute("UPDATE users SET deleted_at = ebb.now() WHERE id = 4; SELECT ebb.delete_subject('users', '4')")
        .await;
    assert!(
        ebb.db.scalar::<bool>("SELECT expedited FROM ebb.deletion WHERE subject_id = '4' AND closed_at IS NULL").await
    );
}
