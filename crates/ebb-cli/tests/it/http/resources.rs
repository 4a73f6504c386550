//! Resources, partitions and receipts over HTTP.

use std::time::Duration;

use ebb::token::Role;
use ebb_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::site::Site;
use crate::shell::Shell;

const SCRATCH: &str = "[[resources]]\nname = \"s\"\ndriver = \"postgres\"\nschema = \"scratch\"\npattern = \"t{snowflake}\"\ngrace = \"1h\"\n";

async fn site(config: &str, sql: &str) -> (Site, Shell) {
    let site = Site::new().await;
    site.database.execute(sql).await;
    let shell = Shell::new(&site.database, config);
    shell.ok(&["apply", "--yes"]);
    (site, shell)
}

fn name(n: u64) -> String {
    format!("t{}", ((jiff::Timestamp::now().as_millisecond() as u64) << 22) + n)
}

#[tokio::test]
async fn a_resource_lives_as_long_as_a_holder_refers_to_it() {
    let (site, _) = site(SCRATCH, "CREATE SCHEMA scratch").await;
    let (app, reader) = (site.token(Role::App).await, site.token(Role::Read).await);
    let opened =
        site.post("/v1/holders", &app, &json!({ "name": "worker", "term": "5m", "labels": { "job": "42" } })).await;
    assert_eq!(opened.status, 201, "{opened:?}");
    let holder = opened.json()["holder"].as_str().unwrap().to_owned();
    assert_eq!(site.post(&format!("/v1/holders/{holder}/beat"), &app, &json!({})).await.status, 204);
    let table = name(1);
    let intent = json!({ "op": "intent", "resources": "s", "name": table, "holder": holder });
    assert_eq!(site.post("/v1/resources", &app, &intent).await.status, 204);
    let created = json!({ "op": "created", "resources": "s", "name": table, "store_id": "7" });
    assert_eq!(site.post("/v1/resources", &app, &created).await.status, 204);
    let change =
        |op: &str, name: &str| json!({ "changes": [{ "op": op, "resources": "s", "name": name, "holder": holder }] });
    assert_eq!(site.post("/v1/refs", &app, &change("incref", &table)).await.json(), json!({ "gone": [] }));
    let late = site.post("/v1/refs", &app, &change("incref", &name(2))).await.json();
    assert_eq!(late["gone"][0]["reason"], "unknown", "{late}");
    let listed = site.get("/v1/resources?policy=s", &reader).await.json();
    let one = &listed["resources"][0];
    assert_eq!((&one["state"], &one["refs"], &one["holders"]), (&json!("live"), &json!(1), &json!(["worker"])));
    assert_eq!(site.send(Method::DELETE, &format!("/v1/holders/{holder}"), &app, &json!({})).await.status, 204);
    let dead = site.post(&format!("/v1/holders/{holder}/beat"), &app, &json!({})).await;
    assert_eq!(dead.problem(), "conflict");
    let refused = site
        .post("/v1/resources", &app, &json!({ "op": "intent", "resources": "s", "name": name(3), "holder": holder }))
        .await;
    assert!(refused.problem() == "conflict" && refused.body.contains("not alive"), "{refused:?}");
    let elsewhere =
        site.post("/v1/resources", &app, &json!({ "op": "created", "resources": "nobody", "name": "x" })).await;
    assert_eq!(elsewhere.problem(), "not-found");
    let refs: i64 = site.database.scalar("SELECT count(*) FROM ebb.reference").await;
    assert_eq!(refs, 0);
}

#[tokio::test]
async fn resources_are_listed_page_by_page() {
    let (site, _) = site(SCRATCH, "CREATE SCHEMA scratch").await;
    let token = site.token(Role::Read).await;
    site.database
        .execute("INSERT INTO ebb.resource (policy, name, state) SELECT 's', 't' || 1000 + n, 'live' FROM generate_series(1, 25) n")
        .await;
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = site.get(&format!("/v1/resources?limit=10{after}"), &token).await.json();
        names.extend(page["resources"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert!(names.len() == 25 && names.is_sorted(), "{names:?}");
    assert_eq!(site.get("/v1/resources?state=lost", &token).await.problem(), "invalid");
    assert_eq!(site.get("/v1/resources?after=x", &token).await.problem(), "invalid");
}

#[tokio::test]
async fn partitions_are_listed_and_a_broken_policy_hides_no_other() {
    let config = "[[partition]]\nname = \"a\"\ntable = \"public.a\"\ncolumn = \"at\"\nby = \"month\"\nahead = 3\n\
        [[partition]]\nname = \"b\"\ntable = \"public.b\"\ncolumn = \"at\"\nby = \"month\"\nahead = 3\n";
    let tables = "CREATE TABLE a (at timestamptz NOT NULL) PARTITION BY RANGE (at); CREATE TABLE b (at timestamptz NOT NULL) PARTITION BY RANGE (at)";
    let (site, _) = site(config, tables).await;
    let token = site.token(Role::Read).await;
    let ahead = |listed: &Value, at: usize| listed["tables"][at]["table"]["partitions"].as_array().map_or(0, Vec::len);
    let made = || async { ahead(&site.get("/v1/partitions", &token).await.json(), 1) >= 4 };
    eventually(Duration::from_secs(60), made).await;
    site.database.execute("DROP TABLE a").await;
    let listed = site.get("/v1/partitions", &token).await.json();
    // Until a node stops it, a policy whose table is gone is listed with the reason.
    let tables = listed["tables"].as_array().unwrap();
    assert!(tables.iter().any(|table| table["policy"] == "b" && table["problem"].is_null()), "{listed}");
    assert!(tables.iter().all(|table| table["policy"] != "a" || table["problem"].is_string()), "{listed}");
}

#[tokio::test]
async fn a_receipt_from_the_api_verifies_without_a_database() {
    let site = Site::with("").await;
    let shell = Shell::new(&site.database, "[audit]\nsigning_key = \"file:ebb-audit.key\"\n");
    shell.ok(&["apply", "--yes"]);
    let token = site.token(Role::Operate).await;
    site.post("/v1/pause", &token, &json!({ "name": "events" })).await;
    let record: i64 = site.database.scalar("SELECT max(id) FROM ebb.audit").await;
    assert_eq!(site.get(&format!("/v1/audit/receipts/{record}"), &token).await.problem(), "conflict", "not sealed yet");
    shell.ok(&["run", "--once", "--only", "audit"]);
    let receipt = site.get(&format!("/v1/audit/receipts/{record}"), &token).await;
    assert_eq!(receipt.status, 200, "{receipt:?}");
    shell.write("receipt.json", &receipt.body);
    shell.ok(&["audit", "verify-receipt", "receipt.json", "--key", "ebb-audit.key.pub"]);
    shell.write("forged.json", &receipt.body.replace("\"operate\"", "\"nobody\""));
    shell.fails(3, &["audit", "verify-receipt", "forged.json", "--key", "ebb-audit.key.pub"]);
    assert_eq!(site.get("/v1/audit/receipts/999999", &token).await.problem(), "not-found");
    assert_eq!(site.get("/v1/audit/receipts/x", &token).await.problem(), "malformed");
}
