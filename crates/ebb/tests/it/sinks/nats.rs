//! JetStream: what the sink calls delivered is in the stream of a real server, once.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use async_nats::jetstream::{self, stream};
use ebb::schedule::sink::Verdict;
use ebb_testkit::{TempDir, eventually};
use serde_json::{Value, json};

use super::{delivered, delivery, failure, open, try_open};
use crate::harness::SOON;

/// A nats-server with JetStream on a port of its own; ends with its value.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(dir: &TempDir, port: Option<u16>, more: &[&str]) -> Self {
        let store = dir.path().join("jetstream");
        let port = port.map_or("-1".to_owned(), |port| port.to_string());
        let program = ["/usr/sbin/nats-server", "/usr/bin/nats-server", "/usr/local/bin/nats-server"];
        let program = program.into_iter().find(|path| std::path::Path::new(path).exists()).unwrap_or("nats-server");
        let mut process = Command::new(program)
            .args(["-js", "-a", "127.0.0.1", "-p", &port, "-sd", store.to_str().unwrap()])
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .expect("nats-server is installed; scripts/install-test-tools does that");
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let listening = lines.find_map(|line| line.rsplit_once("client connections on 127.0.0.1:")?.1.parse().ok());
        // It goes on to log, and must find somebody who reads.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, port: listening.expect("nats-server listens") }
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn nats(server: &Server, more: Value) -> Value {
    let mut spec = json!({ "type": "nats", "url": server.url(), "subject": "events.ops" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

async fn stream(server: &Server) -> (jetstream::Context, stream::Stream) {
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let config = stream::Config { name: "EVENTS".into(), subjects: vec!["events.>".into()], ..Default::default() };
    let stream = context.create_stream(config).await.unwrap();
    (context, stream)
}

#[tokio::test]
async fn what_is_delivered_is_in_the_stream_once() {
    let dir = TempDir::new();
    let server = Server::start(&dir, None, &[]);
    let (_, mut stream) = stream(&server).await;
    let outlet = open(nats(&server, json!({ "stream": "EVENTS" })));
    let delivery = delivery(json!({ "type": "birthday", "name": "Ayu" }));
    let again = |verdict| match verdict {
        Verdict::Delivered { response: Some(response) } => response.body,
        other => panic!("{other:?}"),
    };
    assert_eq!(again(outlet.deliver(&delivery).await), "stream EVENTS, sequence 1");
    assert_eq!(again(outlet.deliver(&delivery).await), "stream EVENTS, sequence 1, which had it already");
    assert_eq!(stream.info().await.unwrap().state.messages, 1);
    let message = stream.get_raw_message(1).await.unwrap();
    assert_eq!(message.payload, delivery.body[..]);
    assert_eq!(message.subject.as_str(), "events.ops");
    assert_eq!(message.headers.get("Nats-Msg-Id").unwrap().as_str(), delivery.occurrence.to_string());
}

#[tokio::test]
async fn a_message_that_no_stream_takes_is_not_delivered() {
    let dir = TempDir::new();
    let server = Server::start(&dir, None, &[]);
    let outlet = open(nats(&server, json!({})));
    let (error, permanent) = failure(outlet.deliver(&delivery(json!({}))).await);
    assert!(error.contains("no stream takes the subject events.ops") && !permanent, "{error}");
    stream(&server).await;
    delivered(&outlet.deliver(&delivery(json!({}))).await);
    let elsewhere = open(nats(&server, json!({ "stream": "OTHER" })));
    let (error, permanent) = failure(elsewhere.deliver(&delivery(json!({}))).await);
    assert!(error.contains("expected stream does not match") && !permanent, "{error}");
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_again() {
    let dir = TempDir::new();
    let server = Server::start(&dir, None, &[]);
    stream(&server).await;
    let outlet = open(nats(&server, json!({ "timeout": "2s", "breaker": "off" })));
    delivered(&outlet.deliver(&delivery(json!({}))).await);
    let port = server.port;
    drop(server);
    assert!(!failure(outlet.deliver(&delivery(json!({}))).await).1);
    let server = Server::start(&dir, Some(port), &[]);
    eventually(SOON, async || matches!(outlet.deliver(&delivery(json!({}))).await, Verdict::Delivered { .. })).await;
    drop(server);
    let nobody = open(json!({ "type": "nats", "url": format!("nats://127.0.0.1:{port}"), "subject": "a" }));
    let (error, permanent) = failure(nobody.deliver(&delivery(json!({}))).await);
    assert!(error.contains("cannot be reached") && !permanent, "{error}");
}

#[tokio::test]
async fn a_body_that_is_too_large_for_the_server_is_final() {
    let dir = TempDir::new();
    let config = dir.path().join("nats.conf");
    std::fs::write(&config, "max_payload: 1024\n").unwrap();
    let server = Server::start(&dir, None, &["-c", config.to_str().unwrap()]);
    stream(&server).await;
    let outlet = open(nats(&server, json!({})));
    let (error, permanent) = failure(outlet.deliver(&delivery(json!({ "text": "x".repeat(2_000) }))).await);
    assert!(permanent, "{error}");
    delivered(&outlet.deliver(&delivery(json!({}))).await);
}

#[tokio::test]
async fn a_user_and_wrong_credentials_are_told() {
    let dir = TempDir::new();
    let server = Server::start(&dir, None, &["--user", "ebb", "--pass", "hunter2"]);
    let (error, permanent) = failure(open(nats(&server, json!({}))).deliver(&delivery(json!({}))).await);
    assert!(error.contains("authorization") && !permanent, "{error}");
    let url = format!("nats://ebb:hunter2@127.0.0.1:{}", server.port);
    let hidden = json!({ "type": "nats", "url": "env:NATS", "subject": "events.ops" });
    let outlet = try_open(hidden, &[("NATS", &url)]).unwrap();
    let (error, _) = failure(outlet.deliver(&delivery(json!({}))).await);
    assert!(error.contains("no stream takes") && !error.contains("hunter2"), "signed in: {error}");
    let wrong = try_open(nats(&server, json!({ "credentials": "env:CREDS" })), &[("CREDS", "not credentials")]);
    assert!(wrong.err().unwrap().hint().unwrap().contains("JWT"));
}
