//! Server-sent events.

use std::time::Duration;

use ebb::token::Role;
use reqwest::{Method, Response};
use serde_json::json;

use super::site::Site;
use crate::shell::Shell;

/// Reads on until the stream says something that contains `part`; what it said so far.
async fn heard(stream: &mut Response, part: &str) -> String {
    let mut said = String::new();
    tokio::time::timeout(Duration::from_secs(60), async {
        while let Some(chunk) = stream.chunk().await.unwrap() {
            said.push_str(&String::from_utf8_lossy(&chunk));
            if said.contains(part) {
                return;
            }
        }
        panic!("the stream ended after: {said}");
    })
    .await
    .unwrap_or_else(|_| panic!("no {part:?}"));
    said
}

#[tokio::test]
async fn a_stream_tells_of_runs_and_changes_and_ends_with_its_token() {
    let site = Site::new().await;
    let (token, operator) = (site.token(Role::Read).await, site.token(Role::Operate).await);
    let mut stream = site.request(Method::GET, "/v1/stream", &token).send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    heard(&mut stream, "listening").await;
    site.database
        .execute("CREATE TABLE public.k (at timestamptz); INSERT INTO public.k SELECT now() - interval '1 h' FROM generate_series(1, 10)")
        .await;
    let policy = "[[expire]]\nname = \"keys\"\ntable = \"public.k\"\ncolumn = \"at\"\n";
    Shell::new(&site.database, policy).ok(&["apply", "--yes"]);
    let said = heard(&mut stream, "\"rows\":10").await;
    assert!(said.contains("event: run") && said.contains("\"policy\":\"keys\""), "{said}");
    // The first look sets what the next one is compared with.
    tokio::join!(heard(&mut stream, "event: change"), async {
        site.post("/v1/pause", &operator, &json!({})).await;
    });
    let id = token.split('_').nth(1).unwrap().to_owned();
    Shell::new(&site.database, "").ok(&["token", "revoke", &id]);
    let ended =
        tokio::time::timeout(Duration::from_secs(60), async { while let Ok(Some(_)) = stream.chunk().await {} });
    ended.await.expect("a stream ends with its token");
}

#[tokio::test]
async fn a_stream_does_not_hold_the_node() {
    let mut site = Site::new().await;
    let token = site.token(Role::Read).await;
    let mut stream = site.request(Method::GET, "/v1/stream", &token).send().await.unwrap();
    heard(&mut stream, "listening").await;
    site.node.term();
    assert!(site.node.wait_within(Duration::from_secs(60)).await.success());
}
