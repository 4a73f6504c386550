//! `ebb resource …` as a person types it.

use std::process::Command;

use ebb_testkit::{Store, database};

use crate::shell::Shell;

const CONFIG: &str = r#"
[[resources]]
name = "scratch"
driver = "postgres"
schema = "scratch"
pattern = "t{snowflake}"
grace = "1h"
orphan_age = "1s"
"#;

#[tokio::test]
async fn resources_are_listed_dropped_and_swept() {
    let database = database().await;
    database.execute("CREATE SCHEMA scratch; CREATE TABLE scratch.t1 (); CREATE TABLE scratch.t2 (); CREATE TABLE scratch.users ()").await;
    let shell = Shell::new(&database, CONFIG);
    shell.ok(&["apply", "--yes"]);
    database
        .execute(
            "SELECT ebb.create_intent('scratch', 't2', id), ebb.created('scratch', 't2') FROM ebb.holder_open('worker-7', '1 hour') AS id",
        )
        .await;
    let listed = shell.ok(&["resource", "list"]);
    assert!(listed.contains("t2") && listed.contains("live") && listed.contains("worker-7"), "{listed}");
    let json = shell.json(&["resource", "list", "scratch", "--json"]);
    assert_eq!((json[0]["name"].as_str(), json[0]["refs"].as_i64()), (Some("t2"), Some(1)));
    assert!(shell.fails(1, &["resource", "drop", "scratch", "t2", "--yes"]).contains("in use by worker-7"));
    shell.fails(2, &["resource", "drop", "scratch", "t9", "--yes"]);
    shell.fails(2, &["resource", "list", "scrach"]);

    // The first sweep only reports.
    shell.ok(&["run", "--once", "--only", "scratch:sweep"]);
    let swept = shell.ok(&["resource", "sweep", "scratch", "--dry-run"]);
    assert!(swept.contains("1 that nobody knows") && swept.contains("t1"), "{swept}");
    let confirmed = shell.ok(&["resource", "sweep", "scratch", "--confirm", "--yes", "--by", "alice"]);
    assert!(
        confirmed.contains("confirmed") && confirmed.contains("ebb run --once --only scratch:sweep"),
        "{confirmed}"
    );
    database.advance("2 hours").await;
    shell.ok(&["run", "--once", "--only", "scratch:sweep"]);
    let left: String = database
        .scalar("SELECT string_agg(tablename, ',' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'scratch'")
        .await;
    assert_eq!(left, "ebb_owner,t2,users");

    database.execute("SELECT ebb.holder_close(id) FROM ebb.holder").await;
    assert!(shell.ok(&["resource", "drop", "scratch", "t2", "--dry-run"]).contains("would be dropped"));
    shell.ok(&["resource", "drop", "scratch", "t2", "--yes", "--by", "bob"]);
    shell.ok(&["run", "--once", "--only", "scratch:drop"]);
    assert!(shell.ok(&["resource", "list", "--state", "dropped"]).contains("t2"));
    let who: String = database.scalar("SELECT string_agg(action || ' ' || by_name, ',' ORDER BY id) FROM ebb.audit WHERE action IN ('confirm', 'hurry')").await;
    assert_eq!(who, "confirm alice,hurry bob");
}

fn openssl(shell: &Shell, args: &str) {
    let output = Command::new("openssl").args(args.split(' ')).current_dir(shell.dir.path()).output();
    let output = output.expect("openssl is installed");
    assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The authorities of the system are those of a file here: what the system's tools look at, too.
fn trusting(shell: &Shell, authority: &str, args: &[&str]) -> (bool, String) {
    let output = shell.command(args).env("SSL_CERT_FILE", shell.dir.path().join(authority)).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[tokio::test]
async fn a_clickhouse_server_over_https_is_who_its_certificate_says() {
    let database = database().await;
    let shell = Shell::new(&database, "");
    for name in ["right", "wrong"] {
        openssl(
            &shell,
            &format!("req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {name}.key -out {name}.crt -subj /CN={name}"),
        );
    }
    openssl(&shell, "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost");
    shell.write("names", "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n");
    openssl(
        &shell,
        "x509 -req -in server.csr -CA right.crt -CAkey right.key -CAcreateserial -days 2 -extfile names -out server.crt",
    );
    let place = |file: &str| shell.dir.path().join(file);
    let (store, port) = Store::own_clickhouse_with_tls(&place("server.crt"), &place("server.key"));
    store.query("CREATE DATABASE scratch").await;
    store.query("CREATE TABLE scratch.t1 (x UInt8) ENGINE = Log").await;
    shell.write(
        "ebb.toml",
        &format!("[[resources]]\nname = \"c\"\ndriver = \"clickhouse\"\nurl = \"https://localhost:{port}/?database=scratch\"\npattern = \"t{{snowflake}}\"\n"),
    );
    let marks = "SELECT count() FROM system.tables WHERE database = 'scratch' AND name = 'ebb_owner'";
    let (_, said) = trusting(&shell, "wrong.crt", &["apply", "--yes"]);
    assert!(said.contains("certificate"), "{said}");
    assert_eq!(store.query(marks).await.trim(), "0", "nothing reaches a server that nobody vouches for");
    let (applied, said) = trusting(&shell, "right.crt", &["apply", "--yes"]);
    assert!(applied, "{said}");
    assert_eq!(store.query(marks).await.trim(), "1");
    let (swept, said) = trusting(&shell, "right.crt", &["run", "--once", "--only", "c:sweep"]);
    assert!(swept, "{said}");
    let report = shell.ok(&["resource", "sweep", "c", "--dry-run"]);
    assert!(report.contains("last sweep: 1 listed"), "{report}");
}
