//! Commands typed against a read-only replica: what writes is refused with the way out, what looks answers.

use ebb_testkit::{empty_database_on, own_server};

use crate::shell::Shell;

const CONFIG: &str = r#"
[http]
listen = "127.0.0.1:0"

[[expire]]
name = "old-keys"
table = "public.k"
column = "expires_at"
where = "id > 0"
brake = { share = 1.0 }
"#;

#[tokio::test]
async fn every_command_that_writes_is_refused_by_a_replica() {
    let server = own_server();
    let db = empty_database_on(&server).await;
    db.execute("CREATE TABLE public.k (id int, expires_at timestamptz); INSERT INTO k VALUES (1, now())").await;
    let primary = Shell::new(&db, CONFIG);
    primary.ok(&["apply", "--yes"]);
    let standby = server.standby();
    let shell = Shell::at(&standby.url(db.name()), &CONFIG.replace("id > 0", "id > 1"));
    for command in [
        "apply --yes",
        "migrate",
        "run --once",
        "run",
        "trigger old-keys",
        "pause old-keys",
        "pause",
        "resume old-keys --allow 10",
        "policy set old-keys every=2h",
        "once orders key",
        "uninstall --yes",
    ] {
        let said = shell.fails(1, &command.split(' ').collect::<Vec<_>>());
        assert!(said.contains("read-only replica") && said.contains("the primary"), "ebb {command}: {said}");
    }
    for command in ["status", "policy list", "policy show old-keys", "policy history old-keys", "audit list"] {
        shell.ok(&command.split(' ').collect::<Vec<_>>());
    }
    let status = shell.ok(&["status"]);
    assert!(status.contains("a read-only replica cannot check an expression"), "{status}");
}
