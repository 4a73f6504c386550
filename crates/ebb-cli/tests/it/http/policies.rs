//! Policies, and telling nodes what to do, over HTTP.

use std::time::Duration;

use ebb::token::Role;
use ebb_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::site::{Answer, Site};
use crate::shell::Shell;

const KEYS: &str = "[[expire]]\nname = \"keys\"\ntable = \"public.k\"\ncolumn = \"expires_at\"\nevery = \"1h\"\n[once.orders]\nttl = \"1h\"\n";

/// 300 due rows and 700 that are not.
async fn site() -> Site {
    site_with("").await
}

async fn site_with(sql: &str) -> Site {
    let site = Site::new().await;
    site.database.execute(sql).await;
    site.database
        .execute(
            "CREATE TABLE public.k (id int PRIMARY KEY, expires_at timestamptz NOT NULL);
             CREATE INDEX ON public.k (expires_at);
             INSERT INTO public.k SELECT i, now() + (i - 300.5) * interval '1 minute' FROM generate_series(1, 1000) i",
        )
        .await;
    Shell::new(&site.database, KEYS).ok(&["apply", "--yes"]);
    site
}

async fn put(site: &Site, token: &str, etag: &str, spec: &Value) -> Answer {
    let request = site.request(Method::PUT, "/v1/policies/keys", token);
    let request = if etag.is_empty() { request } else { request.header("if-match", etag) };
    Answer::of(request.json(&json!({ "spec": spec })).send().await.unwrap()).await
}

#[tokio::test]
async fn a_lost_update_is_refused() {
    let site = site().await;
    let token = site.token(Role::Admin).await;
    let shown = site.get("/v1/policies/keys", &token).await;
    let (etag, mut spec) = (shown.header("etag").to_owned(), shown.json()["spec"].clone());
    assert_eq!((shown.status, etag.as_str()), (200, "\"1\""));
    spec["every"] = "30m".into();
    assert_eq!(put(&site, &token, "", &spec).await.problem(), "version-missing");
    let changed = put(&site, &token, &etag, &spec).await;
    assert_eq!((changed.status, changed.header("etag"), &changed.json()["version"]), (200, "\"2\"", &json!(2)));
    assert_eq!(put(&site, &token, &etag, &spec).await.problem(), "changed-meanwhile");
    let both = json!({ "spec": spec, "version": 1 });
    assert_eq!(site.send(Method::PUT, "/v1/policies/keys", &token, &both).await.status, 412);
    // Of two at the same time one is too late.
    spec["every"] = "20m".into();
    let mut other = spec.clone();
    other["every"] = "10m".into();
    let (a, b) = tokio::join!(put(&site, &token, "\"2\"", &spec), put(&site, &token, "\"2\"", &other));
    let mut statuses = [a.status, b.status];
    statuses.sort();
    assert_eq!(statuses, [200, 412]);
    let history = site.get("/v1/policies/keys/history", &token).await.json();
    assert_eq!(history["versions"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&history["versions"][0]["changed_by"], &history["versions"][0]["source"]),
        (&json!("admin"), &json!("runtime"))
    );
}

#[tokio::test]
async fn a_change_is_previewed_and_a_wrong_one_refused_at_its_key() {
    let site = site_with("INSERT INTO ebb.pause (name, paused_by) VALUES ('*', 'test')").await;
    let token = site.token(Role::Admin).await;
    let spec = json!({ "table": "public.k", "column": "expires_at", "older_than": "4h", "every": "1h" });
    let preview = site.send(Method::PUT, "/v1/policies/keys?dry_run=true", &token, &json!({ "spec": spec })).await;
    assert_eq!(preview.status, 200, "{preview:?}");
    let preview = preview.json();
    assert_eq!(preview["changes"][0]["key"], "older_than");
    let due = preview["plan"]["due_rows"].as_u64().unwrap();
    assert!((50..70).contains(&due), "{preview}");
    assert_eq!(site.get("/v1/policies/keys", &token).await.json()["version"], 1, "nothing was changed");
    let wrong = json!({ "table": "public.k", "column": "expires_at", "evry": "1h" });
    let refused = put(&site, &token, "\"1\"", &wrong).await;
    assert_eq!((refused.status, refused.problem().as_str()), (422, "invalid"));
    assert!(refused.json()["detail"].as_str().unwrap().contains("evry"), "{refused:?}");
    let missing = json!({ "table": "public.gone", "column": "expires_at" });
    assert_eq!(put(&site, &token, "\"1\"", &missing).await.status, 422);
    assert_eq!(site.get("/v1/policies/kesy", &token).await.json()["hint"], "did you mean `keys`?");
}

#[tokio::test]
async fn what_is_asked_for_is_done_and_in_the_audit_with_who_asked() {
    let site = site().await;
    let token = site.token(Role::Operate).await;
    let left = || site.database.scalar::<i64>("SELECT count(*) FROM public.k");
    eventually(Duration::from_secs(60), || async { left().await == 700 }).await;
    site.database.execute("INSERT INTO public.k VALUES (0, now() - interval '1 hour')").await;
    let paused = site.post("/v1/pause", &token, &json!({ "name": "keys", "reason": "maintenance" })).await;
    assert_eq!((paused.status, &paused.json()["pauses"][0]["paused_by"]), (200, &json!("operate")));
    let asked = site.post("/v1/policies/keys/run", &token, &Value::Null).await;
    assert_eq!((asked.status, &asked.json()["units"]), (202, &json!(1)), "{asked:?}");
    assert!(asked.json()["waits"].is_string());
    assert_eq!(site.get("/v1/policies/keys", &token).await.json()["state"], "paused");
    let resumed = site.post("/v1/resume", &token, &json!({ "name": "keys" })).await;
    assert_eq!(resumed.json(), json!({ "resumed": true, "pauses": [] }));
    eventually(Duration::from_secs(60), || async { left().await == 700 }).await;
    let actions: Vec<Value> =
        site.get("/v1/audit?policy=keys&limit=50", &token).await.json()["records"].as_array().unwrap().clone();
    for action in ["pause", "trigger", "resume"] {
        assert!(actions.iter().any(|record| record["action"] == action && record["by"] == "operate"), "{actions:?}");
    }
    assert_eq!(site.post("/v1/policies/orders/run", &token, &Value::Null).await.problem(), "conflict");
    assert_eq!(site.post("/v1/policies/nobody/run", &token, &Value::Null).await.problem(), "not-found");
    assert_eq!(site.post("/v1/resume", &token, &json!({ "allow": 5 })).await.problem(), "conflict");
}

#[tokio::test]
async fn lists_are_paged_by_cursor() {
    let site = site().await;
    let token = site.token(Role::Read).await;
    site.database
        .execute("INSERT INTO ebb.audit (action, by_name) SELECT 'test', 'x' FROM generate_series(1, 25)")
        .await;
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = site.get(&format!("/v1/audit?action=test&limit=10{after}"), &token).await.json();
        seen.extend(page["records"].as_array().unwrap().iter().map(|record| record["id"].as_i64().unwrap()));
        match page["next"].as_i64() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert!(seen.len() == 25 && seen.is_sorted_by(|a, b| a > b), "{seen:?}");
    let first = site.get("/v1/policies?limit=1", &token).await.json();
    assert_eq!((&first["policies"][0]["name"], &first["next"]), (&json!("keys"), &json!("expire/keys")));
    let rest = site.get("/v1/policies?limit=5&after=expire/keys", &token).await.json();
    assert_eq!((&rest["policies"][0]["name"], &rest["next"]), (&json!("orders"), &Value::Null));
    for wrong in ["limit=0", "limit=1001", "after=-1"] {
        assert_eq!(site.get(&format!("/v1/runs?{wrong}"), &token).await.problem(), "invalid", "{wrong}");
    }
    assert_eq!(site.get("/v1/runs?limit=x", &token).await.problem(), "malformed");
}

#[tokio::test]
async fn status_and_plan_say_what_the_commands_say() {
    let site = site().await;
    let token = site.token(Role::Read).await;
    let done = || async {
        let status = site.get("/v1/status", &token).await.json();
        status["policies"][0]["units"][0]["last_run"]["rows"] == 300
    };
    eventually(Duration::from_secs(60), done).await;
    let fresh = site.get("/v1/status?fresh=true", &token).await.json();
    assert_eq!(fresh["policies"][0]["units"][0]["pending"], 0, "{fresh}");
    let plan = site.get("/v1/plan", &token).await.json();
    assert_eq!((&plan["policies"][0]["policy"], &plan["policies"][0]["total_rows"]), (&json!("keys"), &json!(700)));
    let runs = site.get("/v1/runs?policy=keys&status=success", &token).await.json();
    assert_eq!(runs["runs"][0]["rows"], 300);
}
