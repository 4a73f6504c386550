//! Traces, in a build with the feature `otel` (`make test-otel`): a receiver as a collector is one, and what a node sends it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::post;
use ebb_testkit::{database, eventually};
use serde_json::{Value, json};

use crate::shell::Shell;

type Received = Arc<Mutex<Vec<(String, Bytes)>>>;

/// Takes what is sent to /v1/traces.
async fn receiver() -> (String, Received) {
    let received = Received::default();
    let kept = received.clone();
    let take = move |headers: HeaderMap, body: Bytes| {
        let content_type = headers["content-type"].to_str().unwrap().to_owned();
        kept.lock().unwrap().push((content_type, body));
        async { axum::Json(json!({})) }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", post(take))).await });
    (address, received)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_batch_is_a_span() {
    let database = database().await;
    database
        .execute(
            "CREATE TABLE k (at timestamptz); INSERT INTO k SELECT now() - interval '1 h' FROM generate_series(1, 100)",
        )
        .await;
    let policy = "[[expire]]\nname = \"keys\"\ntable = \"public.k\"\ncolumn = \"at\"\nbatch = { rows = 30, pause = \"1ms\" }\nbrake = { share = 1.0 }\n";
    let shell = Shell::new(&database, policy);
    shell.ok(&["apply", "--yes"]);
    let (address, received) = receiver().await;
    let run = |protocol: &'static str| {
        let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", address.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
        let mut command = shell.command(&["run", "--once"]);
        let output = tokio::task::block_in_place(|| command.envs(variables).output().unwrap());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run("http/json");
    eventually(Duration::from_secs(60), || async { !received.lock().unwrap().is_empty() }).await;
    let spans: Vec<Value> = received
        .lock()
        .unwrap()
        .drain(..)
        .flat_map(|(kind, body)| {
            assert_eq!(kind, "application/json");
            let sent: Value = serde_json::from_slice(&body).unwrap();
            let resources = sent["resourceSpans"].as_array().unwrap().clone();
            resources.into_iter().flat_map(|one| {
                assert!(one["resource"].to_string().contains("\"ebb\""), "{one}");
                one["scopeSpans"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|scope| scope["spans"].as_array().unwrap().clone())
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let attribute = |span: &Value, key: &str| {
        let found =
            span["attributes"].as_array().unwrap().iter().find(|one| one["key"] == key).cloned().unwrap_or_default();
        let value = found["value"].as_object().cloned().unwrap_or_default();
        value.values().next().map(|value| value.as_str().map_or(value.to_string(), str::to_owned)).unwrap_or_default()
    };
    let mine: Vec<&Value> =
        spans.iter().filter(|span| span["name"] == "batch" && attribute(span, "policy") == "keys").collect();
    let batches: i64 = database.scalar("SELECT batches FROM ebb.run WHERE policy = 'keys'").await;
    let rows: i64 = mine.iter().map(|span| attribute(span, "rows").parse::<i64>().unwrap_or(0)).sum();
    assert!(mine.len() as i64 >= batches && batches >= 4, "{batches} batches, {spans:?}");
    assert_eq!(
        (rows, attribute(mine[0], "table"), attribute(mine[0], "chore")),
        (100, "public.k".to_owned(), "expire".to_owned())
    );

    // What collectors understand by default.
    database.execute("INSERT INTO k SELECT now() - interval '1 h' FROM generate_series(1, 10)").await;
    run("http/protobuf");
    let sent = || async {
        received
            .lock()
            .unwrap()
            .iter()
            .any(|(kind, body)| kind == "application/x-protobuf" && body.windows(8).any(|part| part == b"public.k"))
    };
    eventually(Duration::from_secs(60), sent).await;
}
