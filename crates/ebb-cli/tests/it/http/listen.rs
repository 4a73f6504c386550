//! Where a node listens, how it speaks, how it ends.

use std::path::Path;
use std::time::Duration;

use ebb::token::Role;
use ebb_testkit::{Node, database};
use reqwest::Client;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::site::{Answer, EBB, Site, address, client};
use crate::shell::Shell;

#[tokio::test]
async fn only_loopback_is_listened_on_until_there_is_a_token() {
    let database = database().await;
    let config = "[http]\nlisten = \"0.0.0.0:0\"\n";
    let shell = Shell::new(&database, config);
    let said = shell.fails(2, &["run"]);
    assert!(said.contains("is not loopback, and there is no token yet") && said.contains("ebb token create"), "{said}");
    let id = shell.json(&["token", "create", "--role", "admin", "--json"])["id"].as_str().unwrap().to_owned();
    shell.ok(&["token", "revoke", &id]);
    assert!(shell.fails(2, &["run"]).contains("there is no token yet"), "one that is revoked does not count");
    shell.ok(&["token", "create", "--role", "read"]);
    let mut node = Node::spawn(Path::new(EBB), database.url(), config, &["run"]);
    let address = address(&mut node).await.replace("0.0.0.0", "127.0.0.1");
    let response = client().get(format!("http://{address}/v1/status")).send().await.unwrap();
    assert_eq!(response.status(), 401);
}

#[tokio::test]
async fn tls_needs_two_files_and_then_speaks_nothing_else() {
    let dir = ebb_testkit::TempDir::new();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args([
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            &path("key.pem"),
            "-out",
            &path("cert.pem"),
        ])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let database = database().await;
    let config = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\ntls_cert = \"{}\"\ntls_key = \"{}\"\n",
        path("cert.pem"),
        path("key.pem")
    );
    let mut node = Node::spawn(Path::new(EBB), database.url(), &config, &["run"]);
    let address = address(&mut node).await;
    let plain = client();
    let authority = reqwest::Certificate::from_pem(&std::fs::read(path("cert.pem")).unwrap()).unwrap();
    let client = Client::builder().tls_certs_only([authority]).build().unwrap();
    let response = client.get(format!("https://{address}/healthz")).send().await.unwrap();
    assert!(response.status() == 200 && response.headers().contains_key("strict-transport-security"));
    assert!(plain.get(format!("http://{address}/healthz")).send().await.is_err());
    let wrong = config.replace("key.pem", "cert.pem");
    let said = Shell::new(&database, &wrong).fails(2, &["run"]);
    assert!(said.contains("tls_key") && said.contains("PEM"), "{said}");
}

#[tokio::test]
async fn a_request_that_was_begun_is_ended_before_the_node_is() {
    let mut site = Site::new().await;
    let token = site.token(Role::App).await;
    // Somebody holds the key in a transaction: the claim waits.
    let mut holder = site.database.pool().begin().await.unwrap();
    sqlx::raw_sql("SELECT ebb.once('orders', 'k')").execute(&mut *holder).await.unwrap();
    let request = site.request(reqwest::Method::POST, "/v1/once/orders", &token).json(&json!({ "key": "k" }));
    let claim = tokio::spawn(async move { Answer::of(request.send().await.unwrap()).await });
    let waiting =
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'ebb/http' AND wait_event_type = 'Lock')";
    ebb_testkit::eventually(Duration::from_secs(30), || site.database.scalar::<bool>(waiting)).await;
    site.node.term();
    let refused = || async { TcpStream::connect(&site.address).await.is_err() };
    ebb_testkit::eventually(Duration::from_secs(60), refused).await;
    holder.commit().await.unwrap();
    let answer = claim.await.unwrap();
    assert_eq!((answer.status, answer.json()), (200, json!({ "outcome": "duplicate" })));
    assert!(site.node.wait_within(Duration::from_secs(60)).await.success());
}

#[tokio::test]
async fn a_client_that_says_nothing_is_let_go() {
    let site = Site::new().await;
    let mut silent = TcpStream::connect(&site.address).await.unwrap();
    silent.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    let token = site.token(Role::App).await;
    let mut slow = TcpStream::connect(&site.address).await.unwrap();
    let head = format!(
        "POST /v1/once/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{{"
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let (mut nothing, mut answer) = (String::new(), vec![0; 4096]);
    let (silent, slow) = tokio::join!(
        tokio::time::timeout(Duration::from_secs(60), silent.read_to_string(&mut nothing)),
        tokio::time::timeout(Duration::from_secs(60), slow.read(&mut answer)),
    );
    assert!(silent.is_ok(), "the headers never came, and the connection was closed");
    let answer = String::from_utf8_lossy(&answer[..slow.unwrap().unwrap()]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request-timeout"), "{answer}");
}
