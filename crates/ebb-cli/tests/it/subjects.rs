//! One subject through the command line, from soft delete to nothing, and the example of the seven policies.

use ebb_testkit::database;

use crate::shell::Shell;

const TABLES: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, tenant_id text, email text, status text, deleted_at timestamptz,
        scheduled_deletion_at timestamptz, deletion_notified_at timestamptz, cleanup_attempted_at timestamptz, updated_at timestamptz);
    CREATE TABLE guest_orders (id bigint PRIMARY KEY, status text, closed_at timestamptz);
    CREATE TABLE sessions (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, created_at timestamptz);
    CREATE TABLE notifications (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, status text, created_at timestamptz);
    CREATE TABLE consent_records (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, revoked_at timestamptz);
    CREATE TABLE password_reset_tokens (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, expires_at timestamptz);
    CREATE TABLE invitations (id bigint PRIMARY KEY, status text, closed_at timestamptz);
    CREATE TABLE user_profiles (id bigint PRIMARY KEY, bio text);
    INSERT INTO users (id, tenant_id, email, status) SELECT n, 'acme', n || '@example.test', 'active' FROM generate_series(1, 5) n;
    INSERT INTO sessions SELECT n, 1 + n % 5, now() FROM generate_series(1, 20) n;
    INSERT INTO notifications SELECT n, 1, 'sent', now() - n * interval '10 days' FROM generate_series(1, 20) n";

#[tokio::test]
async fn the_seven_policies_and_one_subject() {
    let db = database().await;
    db.execute(TABLES).await;
    let shell = Shell::new(&db, "");
    shell.ok(&["init", "--force", "--example", "uu-pdp"]);
    shell.ok(&["apply", "--yes"]);
    let plan = shell.ok(&["plan"]);
    assert!(plan.contains("public.sessions (user_id) -> public.users (id): delete (ON DELETE CASCADE)"), "{plan}");
    assert!(plan.contains("public.user_profiles: its column id looks like an id of public.users"), "{plan}");
    assert!(
        plan.contains("policy consent_records keeps its rows for 365d: they stay, and user_id becomes null"),
        "{plan}"
    );

    let said = shell.ok(&["delete", "user_accounts", "1", "--dry-run"]);
    assert!(said.contains("public.sessions: 4 rows") && said.contains("would be soft-deleted"), "{said}");
    assert!(shell.ok(&["show", "user_accounts", "1"]).contains("not deleted"));
    assert!(shell.ok(&["delete", "user_accounts", "1", "--by", "support"]).contains("it will be erased at"));
    assert!(
        shell.ok(&["hold", "user_accounts", "1", "--reason", "court", "--until", "2099-01-01"]).contains("on hold")
    );
    let shown = shell.ok(&["show", "user_accounts", "1"]);
    assert!(shown.contains("pending") && shown.contains("court, until 2099-01-01"), "{shown}");
    shell.ok(&["release", "user_accounts", "1"]);
    assert!(shell.ok(&["restore", "user_accounts", "1"]).contains("restored"));
    assert!(shell.fails(1, &["restore", "user_accounts", "1"]).contains("nothing to restore"));

    for (args, says) in [
        (vec!["delete", "user_accounts", "99"], "knows no subject '99'"),
        (vec!["delete", "user_accounts", "x"], "can have the id 'x'"),
        (vec!["delete", "user_account", "1"], "did you mean `user_accounts`?"),
        (vec!["delete", "sessions", "1"], "is not about subjects"),
        (vec!["hold", "user_accounts", "1", "--reason", " "], "a hold has a reason"),
        (vec!["hold", "user_accounts", "1", "--reason", "x", "--until", "2001-01-01"], "would be over already"),
        (vec!["release", "user_accounts", "1"], "is not on hold"),
        (vec!["retry", "user_accounts", "1"], "has not failed"),
        (vec!["policy", "override", "user_accounts", "acme", "--retention", "10d"], "does not let tenants"),
    ] {
        let mut args = args;
        if args[0] == "delete" {
            args.push("--yes");
        }
        let code = if says.contains("does not let") { 1 } else { 2 };
        let said = shell.fails(code, &args);
        assert!(said.contains(says), "{args:?}: {said}");
    }
    assert!(shell.fails(1, &["policy", "set", "user_accounts", "floor=10d"]).contains("say why"));
    shell.ok(&["policy", "set", "user_accounts", "floor=10d", "--reason", "the law changed"]);

    shell.ok(&["erase", "user_accounts", "1", "--yes"]);
    db.advance("11 days").await;
    shell.ok(&["run", "--once", "--only", "user_accounts"]);
    assert_eq!(db.scalar::<i64>("SELECT count(*) FROM users").await, 4);
    assert!(shell.fails(2, &["show", "user_accounts", "1"]).contains("knows no subject"));
    let doctor = shell.ebb(&["doctor"]).out;
    assert!(doctor.contains("public.user_profiles: its column id looks like"), "{doctor}");
}
