//! OpenLineage over HTTP.

use std::io::Write;

use ebb::token::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::site::{Answer, Site};

fn event(run: &str, event_type: &str) -> Value {
    json!({
        "eventTime": "2025-11-15T12:00:00.123+00:00", "eventType": event_type, "producer": "https://example.test/etl",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": { "runId": run, "facets": { "unknown": { "big": 12345678901234567890_u64, "zero": "\0" } } },
        "job": { "namespace": "etl", "name": "orders" }, "inputs": [], "outputs": [],
    })
}

async fn kept(site: &Site) -> i64 {
    site.database.scalar("SELECT count(*) FROM ebb.lineage_event").await
}

#[tokio::test]
async fn an_event_is_kept_once_within_24_hours_as_it_was_sent() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    let body = event("airflow: run 1", "START");
    for _ in 0..3 {
        let answer = site.post("/api/v1/lineage", &token, &body).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    }
    assert_eq!(kept(&site).await, 1);
    site.post("/api/v1/lineage", &token, &event("airflow: run 1", "COMPLETE")).await;
    assert_eq!(kept(&site).await, 2);
    let stored: String =
        site.database.scalar("SELECT event::text FROM ebb.lineage_event WHERE event_type = 'START'").await;
    assert_eq!(stored, body.to_string(), "facets that nobody knows are kept to the letter");
    site.database.advance("24 hours 1 minute").await;
    site.post("/api/v1/lineage", &token, &body).await;
    assert_eq!(kept(&site).await, 3);
}

#[tokio::test]
async fn concurrent_repeats_are_kept_once() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    let events: Vec<Value> = (0..50).map(|n| event(&format!("run-{n}"), "START")).collect();
    let mut reversed = events.clone();
    reversed.reverse();
    let (one, other) = (json!(events), json!(reversed));
    let sends = (0..6).map(|n| site.post("/api/v1/lineage/batch", &token, if n % 2 == 0 { &one } else { &other }));
    for answer in futures_util::future::join_all(sends).await {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(kept(&site).await, 50);
}

#[tokio::test]
async fn a_batch_tells_what_became_of_each_event() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    let mut wrong = event("c", "BEGIN");
    wrong["eventTime"] = "2025-11-15 12:00".into();
    let job = json!({ "eventTime": "2025-11-15T12:00:00Z", "producer": "p", "job": { "namespace": "n", "name": "j" } });
    let dataset =
        json!({ "eventTime": "2025-11-15T12:00:00Z", "producer": "p", "dataset": { "namespace": "d", "name": "j" } });
    let batch = json!([event("a", "START"), event("a", "START"), wrong, job, dataset, 7]);
    for path in ["/api/v1/lineage/batch", "/lineage/events"] {
        let answer = site.post(path, &token, &batch).await;
        assert_eq!(answer.status, 207, "{answer:?}");
        let json = answer.json();
        assert_eq!((&json["successful"], &json["failed"]), (&json!(4), &json!(2)));
        let fields: Vec<&str> =
            json["results"][2]["errors"].as_array().unwrap().iter().map(|e| e["field"].as_str().unwrap()).collect();
        assert_eq!(fields, ["eventTime", "eventType"]);
        assert_eq!(json["results"][1]["status"], "duplicate");
        assert_eq!(json["results"][5]["errors"][0]["message"], "an event is a JSON object");
    }
    assert_eq!(kept(&site).await, 3);
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    let answer = site.post("/api/v1/lineage", &token, &json!({ "run": {}, "job": {} })).await;
    assert_eq!((answer.status, answer.problem().as_str()), (422, "invalid"));
    let json = answer.json();
    let fields: Vec<&str> =
        json["errors"].as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["eventTime", "producer", "run.runId", "job.namespace", "job.name"]);
    assert_eq!(kept(&site).await, 0);
}

async fn gzipped(site: &Site, token: &str, plain: &[u8]) -> Answer {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(plain).unwrap();
    let request = site.request(Method::POST, "/api/v1/lineage/batch", token);
    let request = request.header("content-type", "application/json").header("content-encoding", "gzip");
    Answer::of(request.body(packed.finish().unwrap()).send().await.unwrap()).await
}

#[tokio::test]
async fn bodies_may_be_packed_and_are_bounded_unpacked() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    let batch = json!([event("a", "START")]).to_string();
    assert_eq!(gzipped(&site, &token, batch.as_bytes()).await.status, 200);
    assert_eq!(kept(&site).await, 1);
    // A megabyte is the limit, also for what is small until it is unpacked.
    // Packed it fits into one write, or the server could hang up on whoever is still sending.
    let bomb = format!("[\"{}\"]", "a".repeat(16 << 20));
    assert_eq!(gzipped(&site, &token, bomb.as_bytes()).await.problem(), "too-large");
    let large = json!([{ "x": "a".repeat(1 << 20) }]);
    // The server may close while the rest is still on its way.
    if let Ok(response) = site.request(Method::POST, "/api/v1/lineage/batch", &token).json(&large).send().await {
        assert_eq!(Answer::of(response).await.problem(), "too-large");
    }
    let many: Vec<Value> = vec![json!(0); 1001];
    assert_eq!(site.post("/api/v1/lineage/batch", &token, &json!(many)).await.problem(), "invalid");
    let request = site.request(Method::POST, "/api/v1/lineage", &token).header("content-encoding", "gzip");
    let answer = Answer::of(request.json(&event("a", "START")).send().await.unwrap()).await;
    assert_eq!(answer.problem(), "malformed", "said to be packed, and not");
    let request = site.request(Method::POST, "/api/v1/lineage", &token).header("content-encoding", "zstd");
    let answer = Answer::of(request.json(&event("a", "START")).send().await.unwrap()).await;
    assert_eq!(answer.problem(), "media-type");
}
