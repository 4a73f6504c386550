//! What triggers of users' tables have to say is about somebody: it is for the server's log, never for Ebb's.

use std::time::Duration;

use ebb::token::Role;
use ebb_testkit::{TempDir, eventually};
use serde_json::json;

use crate::http::site::Site;
use crate::shell::Shell;

/// A trigger that warns with the row's address, and one that first asks to be heard.
const TABLES: &str = "
    CREATE TABLE users (id int PRIMARY KEY, email text, deleted_at timestamptz, due timestamptz);
    CREATE TABLE sessions (id int PRIMARY KEY, email text, expires_at timestamptz);
    CREATE FUNCTION warns() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE WARNING 'at work on %', COALESCE(OLD.email, NEW.email);
        PERFORM set_config('client_min_messages', 'debug5', true);
        RAISE NOTICE 'at work on %', COALESCE(OLD.email, NEW.email);
        RETURN COALESCE(NEW, OLD);
    END $$;
    CREATE TRIGGER warns BEFORE UPDATE OR DELETE ON users FOR EACH ROW EXECUTE FUNCTION warns();
    CREATE TRIGGER warns BEFORE UPDATE OR DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION warns();
    INSERT INTO users SELECT n, 'somebody-' || n || '@example.test' FROM generate_series(1, 4) n;
    INSERT INTO sessions SELECT n, 'somebody-' || n || '@example.test', now() - interval '1 hour' FROM generate_series(1, 4) n";
const POLICIES: &str = "
[[retain]]
name = \"users\"
table = \"public.users\"
deleted_at = \"deleted_at\"
grace = \"30d\"
mirror = { due = \"due\" }
[[expire]]
name = \"sessions\"
table = \"public.sessions\"
column = \"expires_at\"
";

#[tokio::test]
async fn what_a_trigger_warns_about_is_never_in_a_nodes_output() {
    let keys = TempDir::new();
    let key = format!("[audit]\nsubject_key = \"file:{}/subject.key\"\n", keys.path().display());
    let site = Site::with(&format!("[log]\nlevel = \"trace\"\n{key}")).await;
    let (db, app) = (&site.database, site.token(Role::App).await);
    db.execute(TABLES).await;
    let shell = Shell::new(db, &format!("{key}{POLICIES}"));
    shell.ok(&["apply", "--yes"]);
    // Deleted and restored through the node, marked by it after the application deleted, erased, swept.
    assert_eq!(site.post("/v1/subjects/users/1/delete", &app, &json!({})).await.status, 200);
    assert_eq!(site.post("/v1/subjects/users/1/restore", &app, &json!({})).await.status, 204);
    db.execute("UPDATE users SET deleted_at = now() - interval '1 day' WHERE id = 2").await;
    db.execute("UPDATE users SET deleted_at = now() - interval '90 days' WHERE id = 3").await;
    let soon = Duration::from_secs(120);
    let done = "SELECT (SELECT due IS NOT NULL FROM users WHERE id = 2) AND NOT EXISTS (SELECT FROM users WHERE id = 3)
                       AND NOT EXISTS (SELECT FROM sessions)";
    eventually(soon, || async {
        for chore in ["users:mark", "users:erase", "sessions"] {
            let triggered = shell.ebb(&["trigger", chore]);
            assert!(triggered.code == 0 || triggered.err.contains("no node has taken up"), "{triggered:?}");
        }
        db.scalar::<bool>(done).await
    })
    .await;
    let output = site.node.output();
    assert!(output.contains("Hard delete completed") && output.contains("DEBUG"), "the node told nothing: {output}");
    assert!(!output.contains("somebody-"), "{}", lines_with(&output, "somebody-"));
    // Whoever types a command hears it neither.
    let mut command = shell.command(&["delete", "users", "4"]);
    let told = command.env("EBB_LOG_LEVEL", "trace").output().unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned() + &String::from_utf8_lossy(&told.stderr);
    assert!(told.contains("soft-deleted") && !told.contains("somebody-"), "{told}");
}

fn lines_with(output: &str, word: &str) -> String {
    output.lines().filter(|line| line.contains(word)).collect::<Vec<_>>().join("\n")
}
