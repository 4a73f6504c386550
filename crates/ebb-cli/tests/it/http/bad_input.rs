//! Every endpoint under what it should not be sent: always a problem document, never a 500, never a hang.

use ebb::token::Role;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::site::{Answer, Operation, Site};

#[tokio::test]
async fn every_endpoint_refuses_bodies_that_are_none() {
    let site = Site::new().await;
    let token = site.token(Role::Admin).await;
    let deep = "[".repeat(100_000);
    let huge = format!("{{\"key\": \"{}\"}}", "x".repeat(3 << 20));
    let bodies: [(&str, &[u8], &str, &str); 9] = [
        ("truncated", b"{\"key\": ", "application/json", "malformed"),
        ("no JSON", b"<xml/>", "application/json", "malformed"),
        ("invalid UTF-8", b"{\"key\": \"\xff\xfe\"}", "application/json", "malformed"),
        ("two values", b"{} {}", "application/json", "malformed"),
        ("deep", deep.as_bytes(), "application/json", "malformed"),
        ("NaN", b"{\"key\": NaN}", "application/json", "malformed"),
        ("huge", huge.as_bytes(), "application/json", "too-large"),
        ("another type", b"key=value", "application/x-www-form-urlencoded", "media-type"),
        ("a number", b"7", "application/json", "invalid"),
    ];
    for Operation { method, path, .. } in site.operations().await.into_iter().filter(|operation| operation.takes_body) {
        for (what, body, content_type, expected) in bodies {
            // Any JSON is a result, a number too; here nobody holds the key.
            let expected = if path.contains("?token") && what == "a number" { "conflict" } else { expected };
            let request = site.request(method.clone(), &path, &token).header("content-type", content_type);
            let answer = match request.body(body.to_vec()).send().await {
                Ok(response) => Answer::of(response).await,
                // The server may close while the rest is still on its way.
                Err(error) if what == "huge" && (error.is_request() || error.is_body()) => continue,
                Err(error) => panic!("{method} {path}, {what}: {error}"),
            };
            assert_eq!(answer.problem(), expected, "{method} {path}, {what}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn every_endpoint_refuses_wrong_types_and_unknown_fields() {
    let site = Site::new().await;
    let token = site.token(Role::Admin).await;
    let wrong =
        [json!([]), json!("x"), json!({ "unknown": 1 }), json!({ "key": {}, "keys": 3, "name": [], "spec": 4 })];
    for Operation { method, path, .. } in site.operations().await.into_iter().filter(|operation| operation.takes_body) {
        if path.contains("?token") {
            continue;
        }
        for body in &wrong {
            let answer = site.send(method.clone(), &path, &token, body).await;
            assert_eq!(
                (answer.status, answer.problem().as_str()),
                (422, "invalid"),
                "{method} {path} {body}: {answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_body_that_an_endpoint_does_not_read_is_refused() {
    let site = Site::new().await;
    let token = site.token(Role::Admin).await;
    let unread = |operation: &Operation| !operation.takes_body && operation.method != Method::GET;
    let operations: Vec<Operation> = site.operations().await.into_iter().filter(unread).collect();
    assert!(operations.len() >= 10, "{operations:?}");
    for Operation { method, path, .. } in operations {
        for body in ["{\"dry_run\": true}", "[]", "true", "{", "dry_run=true"] {
            for content_type in ["application/json", "text/plain"] {
                let request = site.request(method.clone(), &path, &token).header("content-type", content_type);
                let answer = Answer::of(request.body(body).send().await.unwrap()).await;
                let told = (answer.status, answer.problem(), answer.body.contains("nothing was done"));
                assert_eq!(told, (422, "invalid".into(), true), "{method} {path} {body}: {answer:?}");
            }
        }
        for body in ["", "{}", " { } ", "null"] {
            let request = site.request(method.clone(), &path, &token).header("content-type", "application/json");
            let answer = Answer::of(request.body(body).send().await.unwrap()).await;
            assert!(!answer.body.contains("nothing was done"), "{method} {path} {body}: {answer:?}");
        }
    }
    let erase = site.post("/v1/subjects/users/1/erase", &token, &json!({ "dry_run": true })).await;
    assert!(erase.json()["hint"].as_str().unwrap().contains("?dry_run=true"), "{erase:?}");
}

#[tokio::test]
async fn wrong_methods_and_paths_are_told_apart() {
    let site = Site::new().await;
    let token = site.token(Role::Admin).await;
    for Operation { path, .. } in site.operations().await {
        let answer = site.send(Method::PATCH, &path, &token, &json!({})).await;
        assert_eq!((answer.status, answer.problem().as_str()), (405, "method-not-allowed"), "{path}");
        assert!(!answer.header("allow").is_empty(), "{path}: {answer:?}");
    }
    let tricks = [
        "/v1",
        "/v1/",
        "/V1/status",
        "/v1//status",
        "/v1/status/",
        "/v1/%2e%2e/status",
        "/v1/policies/%00",
        "/v1/policies/%ff",
        "/v1/policies/..%2f..%2fetc%2fpasswd",
        "/v1/policies/%27%3B%20DROP%20TABLE%20ebb.policy",
        "/.git/config",
        "/v1/policies/a%0d%0aX:%20y",
        "/v1/runs?policy=%00",
        "/v1/subjects/%00/1",
        "/v1/subjects/nobody/%2e%2e%2f",
        "/v1/events/nonsense",
        "/v1/audit/receipts/-1",
    ];
    for path in tricks {
        let answer = site.get(path, &token).await;
        assert!([400, 404, 422].contains(&answer.status), "{path}: {answer:?}");
        answer.problem();
        assert!(!answer.headers.contains_key("x"), "{path}: {answer:?}");
    }
    let many: String = (0..2000).map(|n| format!("a{n}=b&")).collect();
    assert_eq!(site.get(&format!("/v1/runs?{many}"), &token).await.status, 200, "what nobody asked for is passed by");
    let doubled = site.get("/v1/runs?limit=1&limit=2", &token).await;
    assert_eq!(doubled.problem(), "malformed");
}

/// Says something that no client would, and listens until the server has had enough.
async fn raw(site: &Site, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(&site.address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(std::time::Duration::from_secs(60), stream.read_to_end(&mut answer));
    let _ = read.await.expect("never a hang");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn nothing_is_injected_into_headers_or_the_log() {
    let site = Site::new().await;
    let evil = "x\u{1b}[31m<script>";
    let answer = raw(
        &site,
        format!("GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: {evil}\r\n\r\n").as_bytes(),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 4") && !answer.contains("<script>"), "{answer}");
    for request in [
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
        "NONSENSE\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: x\r\n{}: y\r\n\r\n", "a".repeat(100_000)),
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000)),
        "POST /v1/pause HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n"
            .to_owned(),
        "POST /v1/pause HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_owned(),
    ] {
        let answer = raw(&site, request.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let given = site.request(Method::GET, "/healthz", "").header("x-request-id", "mine-1.2_3").send().await.unwrap();
    assert_eq!(given.headers()["x-request-id"], "mine-1.2_3");
    assert_eq!(site.get("/healthz", "").await.status, 200, "it is still there");
}

#[tokio::test]
async fn a_database_that_is_away_is_said_to_be_and_nothing_is_leaked() {
    let server = ebb_testkit::own_server();
    let database = ebb_testkit::empty_database_on(&server).await;
    let config = "[http]\nlisten = \"127.0.0.1:0\"\n";
    let mut node = ebb_testkit::Node::spawn(std::path::Path::new(super::site::EBB), database.url(), config, &["run"]);
    let address = super::site::address(&mut node).await;
    let client = super::site::client();
    let ready = || async { client.get(format!("http://{address}/readyz")).send().await.unwrap().status() == 200 };
    ebb_testkit::eventually(std::time::Duration::from_secs(60), ready).await;
    let engine = ebb::Engine::connect(database.url()).unwrap();
    let mut tx = engine.database().read().await.unwrap();
    let token = ebb::token::create(&mut tx, "t", Role::Admin, None, "test").await.unwrap().token;
    tx.commit().await.unwrap();
    let get = |path: &'static str| {
        let request = client.get(format!("http://{address}{path}")).bearer_auth(&token);
        async move { Answer::of(request.send().await.unwrap()).await }
    };
    assert_eq!(get("/v1/status").await.status, 200);
    engine.database().close().await;
    drop(server);
    for path in ["/v1/status", "/readyz"] {
        let answer = get(path).await;
        assert_eq!((answer.status, answer.problem().as_str()), (503, "unavailable"), "{answer:?}");
        let said: Value = answer.json();
        assert!(!said.to_string().contains("postgres") && !said.to_string().contains("5432"), "{said}");
    }
    assert_eq!(get("/healthz").await.status, 200);
}
