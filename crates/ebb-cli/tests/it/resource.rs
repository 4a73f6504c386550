//! `ebb resource …` as a person types it.

use ebb_testkit::database;

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
