//! A running node with a database, and clients that hold tokens.

use std::path::Path;
use std::time::Duration;

use ebb::Engine;
use ebb::token::{self, Role};
use ebb_testkit::{Node, TestDatabase, database};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;

pub(crate) const EBB: &str = env!("CARGO_BIN_EXE_ebb");

pub(crate) struct Site {
    pub(crate) database: TestDatabase,
    pub(crate) engine: Engine,
    pub(crate) node: Node,
    pub(crate) address: String,
    pub(crate) client: Client,
}

/// A second node, and where it listens.
pub(crate) struct Neighbour {
    pub(crate) address: String,
    _node: Node,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) async fn of(response: Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, body: response.text().await.unwrap() }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The last word of a problem's type; panics when it is no whole problem document.
    #[track_caller]
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status, "{self:?}");
        assert_eq!(json["request_id"], self.header("x-request-id"), "{self:?}");
        assert!(json["title"].is_string() && json["detail"].is_string(), "{self:?}");
        json["type"].as_str().unwrap().strip_prefix("urn:ebb:problem:").unwrap().to_owned()
    }
}

impl Site {
    pub(crate) async fn new() -> Self {
        Self::with("").await
    }

    /// With more in ebb.toml.
    pub(crate) async fn with(config: &str) -> Self {
        let database = database().await;
        let engine = Engine::connect(database.url()).unwrap();
        let config = format!("[http]\nlisten = \"127.0.0.1:0\"\n{config}");
        let mut node = Node::spawn(Path::new(EBB), database.url(), &config, &["run"]);
        let address = address(&mut node).await;
        Self { database, engine, node, address, client: client() }
    }

    /// Another node on the same database.
    pub(crate) async fn beside(&self) -> Neighbour {
        let config = "[http]\nlisten = \"127.0.0.1:0\"\n";
        let mut node = Node::spawn(Path::new(EBB), self.database.url(), config, &["run"]);
        Neighbour { address: address(&mut node).await, _node: node }
    }

    /// Asks another node.
    pub(crate) async fn get_at(&self, address: &str, path: &str, token: &str) -> Answer {
        let request = self.client.get(format!("http://{address}{path}")).bearer_auth(token);
        Answer::of(request.send().await.unwrap()).await
    }

    pub(crate) async fn token(&self, role: Role) -> String {
        let mut tx = self.engine.database().read().await.unwrap();
        let created = token::create(&mut tx, role.as_str(), role, None, "test").await.unwrap();
        tx.commit().await.unwrap();
        created.token
    }

    pub(crate) fn request(&self, method: Method, path: &str, token: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("http://{}{path}", self.address));
        if token.is_empty() { request } else { request.bearer_auth(token) }
    }

    pub(crate) async fn get(&self, path: &str, token: &str) -> Answer {
        Answer::of(self.request(Method::GET, path, token).send().await.unwrap()).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, token: &str, body: &Value) -> Answer {
        Answer::of(self.request(method, path, token).json(body).send().await.unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, token: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, token, body).await
    }

    /// The operations of the document.
    pub(crate) async fn operations(&self) -> Vec<Operation> {
        let document = self.get("/openapi.json", "").await.json();
        let mut found = Vec::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let role = operation["x-ebb-role"].as_str().unwrap_or_else(|| panic!("{method} {path} names no role"));
                found.push(Operation {
                    method: method.to_uppercase().parse().unwrap(),
                    path: filled(path),
                    role: role.parse().unwrap(),
                    takes_body: operation["requestBody"].is_object(),
                });
            }
        }
        assert!(found.len() >= 40, "{found:?}");
        found
    }
}

/// A plain client. TLS is ring's here, as in the binary.
pub(crate) fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::new()
}

/// Where a node says that it listens.
pub(crate) async fn address(node: &mut Node) -> String {
    let line = node.wait_for_line("Ebb is up", Duration::from_secs(60)).await;
    let json: Value = serde_json::from_str(&line).unwrap();
    json["http"].as_str().unwrap().to_owned()
}

/// One operation of the document.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// With something in its places that fits and that nobody knows.
    pub(crate) path: String,
    pub(crate) role: Role,
    pub(crate) takes_body: bool,
}

fn filled(path: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        "{id}" if path.starts_with("/v1/events") || path.starts_with("/v1/holders") => {
            "00000000-0000-0000-0000-000000000001"
        }
        "{id}" if path.starts_with("/v1/audit") => "9223372036854775807",
        "{key}" => "nothing?token=1",
        part if part.starts_with('{') => "nothing",
        part => part,
    });
    parts.collect::<Vec<_>>().join("/")
}
