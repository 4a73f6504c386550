//! Webhooks: signed so that the standard's own library accepts them, and unharmed by whatever answers.

use std::time::Duration;

use ebb::schedule::sink::{Refusal, Verdict};
use ebb_testkit::{TempDir, eventually};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::peer::{Behaviour, Python, Receiver};
use super::{delivered, delivery, failure, open, try_open};
use crate::harness::SOON;
use crate::tls::{authority, certificate};

const OLD: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEW: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const SECRETS: [(&str, &str); 2] = [("OLD", OLD), ("NEW", NEW)];

fn hook(url: &str) -> Value {
    json!({ "type": "webhook", "url": url, "allow_private": true })
}

fn with(mut spec: Value, more: Value) -> Value {
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// A sink for a receiver whose time-out is short enough to wait for.
fn impatient(receiver: &Receiver) -> ebb::schedule::sink::Outlet {
    open(with(hook(&receiver.url()), json!({ "timeout": "300ms", "breaker": "off" })))
}

#[tokio::test]
async fn the_standards_own_library_accepts_every_signature_of_a_rotation() {
    for (receiver_knows, signed_with) in
        [(OLD, json!(["env:OLD"])), (OLD, json!(["env:NEW", "env:OLD"])), (NEW, json!(["env:NEW", "env:OLD"]))]
    {
        let receiver = Python::start("receiver.py", &[receiver_knows]);
        let spec = with(hook(&format!("http://127.0.0.1:{}/", receiver.port)), json!({ "secrets": signed_with }));
        let outlet = try_open(spec, &SECRETS).unwrap();
        let delivery = delivery(json!({ "type": "birthday", "name": "Ayu – 🎂", "n": 1.5e300 }));
        let Verdict::Delivered { response: Some(response) } = outlet.deliver(&delivery).await else { panic!() };
        assert_eq!((response.status, response.body), (Some(200), format!("verified {}", delivery.occurrence)));
    }
}

#[tokio::test]
async fn the_standards_own_library_rejects_another_secret_and_that_can_be_mended() {
    let receiver = Python::start("receiver.py", &[NEW]);
    let spec = with(hook(&format!("http://127.0.0.1:{}/", receiver.port)), json!({ "secrets": ["env:OLD"] }));
    let verdict = try_open(spec, &SECRETS).unwrap().deliver(&delivery(json!({}))).await;
    let Verdict::Failed { permanent: false, response: Some(response), .. } = verdict else { panic!("{verdict:?}") };
    assert!(response.body.contains("No matching signature found"), "{response:?}");
}

#[tokio::test]
async fn every_attempt_has_the_same_bytes_and_the_same_id() {
    let receiver = Receiver::start(Behaviour::status("500 Internal Server Error")).await;
    let outlet = open(hook(&receiver.url()));
    let mut delivery = delivery(json!({ "event": "moved", "to": "Jakarta" }));
    outlet.deliver(&delivery).await;
    delivery.attempt = 2;
    receiver.behave(Behaviour::status("204 No Content"));
    delivered(&outlet.deliver(&delivery).await);
    let calls = receiver.calls();
    assert_eq!(calls.len(), 2);
    let id = delivery.occurrence.to_string();
    for call in &calls {
        assert!(call.head.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{}", call.head);
        assert_eq!(call.body, *delivery.body);
        for header in ["webhook-id", "idempotency-key"] {
            assert_eq!(call.header(header), Some(id.as_str()));
        }
        assert_eq!(call.header("content-type"), Some("application/json"));
        assert!(call.header("user-agent").unwrap().starts_with("ebb/"));
        assert!(call.header("webhook-timestamp").unwrap().parse::<i64>().unwrap() > 1_700_000_000);
        assert_eq!(call.header("webhook-signature"), None, "no secret, no signature");
    }
    let body: Value = serde_json::from_slice(&calls[0].body).unwrap();
    let keys: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["id", "type", "idempotencyKey", "eventId", "due_at", "data"]);
    assert_eq!(body["type"], "moved");
    assert_eq!(receiver.connections(), 1, "a connection serves more than one call");
}

#[tokio::test]
async fn only_2xx_is_a_success_and_only_what_is_about_the_event_is_for_good() {
    let receiver = Receiver::start(Behaviour::Silent).await;
    let outlet = open(with(hook(&receiver.url()), json!({ "breaker": "off" })));
    for status in ["200 OK", "202 Accepted", "204 No Content", "299 Fine"] {
        receiver.behave(Behaviour::status(status));
        delivered(&outlet.deliver(&delivery(json!({}))).await);
    }
    for (status, permanent) in [
        ("304 Not Modified", false),
        ("400 Bad Request", true),
        ("401 Unauthorized", false),
        ("404 Not Found", false),
        ("408 Request Timeout", false),
        ("413 Payload Too Large", true),
        ("422 Unprocessable Entity", true),
        ("500 Internal Server Error", false),
        ("502 Bad Gateway", false),
        ("599 Whatever", false),
    ] {
        receiver.behave(Behaviour::status(status));
        let (error, found) = failure(outlet.deliver(&delivery(json!({}))).await);
        assert!(error.contains(&status[..3]), "{error}");
        assert_eq!(found, permanent, "{status}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Receiver::start(Behaviour::status("200 OK")).await;
    for status in ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let receiver =
            Receiver::start(Behaviour::with(status, &format!("location: {}\r\n", elsewhere.url()), b"")).await;
        let (error, permanent) = failure(open(hook(&receiver.url())).deliver(&delivery(json!({}))).await);
        assert!(error.contains("redirects are not followed") && !permanent, "{error}");
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn gone_disables_the_sink() {
    let receiver = Receiver::start(Behaviour::status("410 Gone")).await;
    let outlet = open(hook(&receiver.url()));
    assert!(matches!(outlet.deliver(&delivery(json!({}))).await, Verdict::Disabled { .. }));
    assert!(matches!(outlet.deliver(&delivery(json!({}))).await, Verdict::Disabled { .. }));
    assert_eq!((receiver.calls().len(), outlet.free()), (1, 0));
}

#[tokio::test]
async fn a_break_that_is_asked_for_is_kept() {
    let receiver = Receiver::start(Behaviour::Silent).await;
    for (status, header, least) in [
        ("429 Too Many Requests", "retry-after: 120\r\n", 119),
        ("503 Service Unavailable", "Retry-After: Fri, 31 Dec 2999 23:59:59 GMT\r\n", 86_399),
    ] {
        receiver.behave(Behaviour::with(status, header, b"later"));
        let outlet = open(hook(&receiver.url()));
        let Verdict::Failed { retry_after: Some(wait), permanent: false, .. } =
            outlet.deliver(&delivery(json!({}))).await
        else {
            panic!("{status}");
        };
        assert!((least..=86_400).contains(&wait.as_secs()), "{wait:?}");
        let calls = receiver.calls().len();
        let refused = outlet.deliver(&delivery(json!({}))).await;
        assert!(matches!(refused, Verdict::Refused { reason: Refusal::Asked, .. }), "{refused:?}");
        assert_eq!((receiver.calls().len(), outlet.free()), (calls, 0));
    }
    receiver.behave(Behaviour::with("500 Internal Server Error", "retry-after: 120\r\n", b""));
    let verdict = open(hook(&receiver.url())).deliver(&delivery(json!({}))).await;
    assert!(matches!(verdict, Verdict::Failed { retry_after: None, .. }), "{verdict:?}");
}

#[tokio::test]
async fn a_receiver_that_is_not_there_or_hangs_up_is_a_failure() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (error, permanent) = failure(open(hook(&format!("http://{nobody}/"))).deliver(&delivery(json!({}))).await);
    assert!(error.contains("refused") && !permanent, "{error}");
    let unknown = open(hook("http://no-such-host.invalid/"));
    assert!(!failure(unknown.deliver(&delivery(json!({}))).await).1);

    let receiver = Receiver::start(Behaviour::Resets).await;
    let (error, permanent) = failure(open(hook(&receiver.url())).deliver(&delivery(json!({}))).await);
    assert!(!permanent, "{error}");
    assert_eq!(receiver.calls().len(), 1, "what a receiver has read is not sent again in one attempt");
    receiver.behave(Behaviour::Answers(b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec()));
    assert!(!failure(open(hook(&receiver.url())).deliver(&delivery(json!({}))).await).1);
}

#[tokio::test]
async fn a_receiver_that_takes_for_ever_is_given_up() {
    let receiver = Receiver::start(Behaviour::Silent).await;
    let outlet = impatient(&receiver);
    for behaviour in [
        Behaviour::Silent,
        Behaviour::Trickles("HTTP/1.1 200 OK\r\n", "x-header: and another\r\n"),
        Behaviour::Trickles("", "HTTP/1.1"),
    ] {
        receiver.behave(behaviour.clone());
        let (error, permanent) = failure(outlet.deliver(&delivery(json!({}))).await);
        assert!(error.contains("within 300ms") && !permanent, "{behaviour:?}: {error}");
    }
    assert_eq!(outlet.free(), 16, "no slot stays taken");
}

#[tokio::test]
async fn an_answer_after_the_time_out_is_not_taken_for_that_of_the_next_call() {
    let receiver = Receiver::start(Behaviour::Late(Duration::from_millis(400))).await;
    let outlet = impatient(&receiver);
    assert!(failure(outlet.deliver(&delivery(json!({}))).await).0.contains("within 300ms"));
    receiver.behave(Behaviour::status("418 I'm a teapot"));
    eventually(SOON, async || failure(outlet.deliver(&delivery(json!({}))).await).0.contains("418")).await;
}

#[tokio::test]
async fn a_status_counts_even_when_its_body_never_ends() {
    let receiver =
        Receiver::start(Behaviour::Trickles("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n", "drip ")).await;
    let Verdict::Delivered { response: Some(response) } =
        open(hook(&receiver.url())).deliver(&delivery(json!({}))).await
    else {
        panic!("the receiver said that it has the event");
    };
    assert!(response.body.starts_with("drip "), "{response:?}");
}

#[tokio::test]
async fn an_answer_of_garbage_counts_by_its_status_and_is_kept_short() {
    let receiver = Receiver::start(Behaviour::with("200 OK", "", b"\xff\xfe<html>\0")).await;
    let outlet = open(hook(&receiver.url()));
    let Verdict::Delivered { response: Some(response) } = outlet.deliver(&delivery(json!({}))).await else { panic!() };
    assert!(response.body.contains("<html>") && !response.body.contains('\0'));
    receiver.behave(Behaviour::with("500 Internal Server Error", "", &vec![b'x'; 8 << 20]));
    let verdict = outlet.deliver(&delivery(json!({}))).await;
    let Verdict::Failed { response: Some(response), .. } = verdict else { panic!("{verdict:?}") };
    assert!(response.body.len() < 4096, "{}", response.body.len());
}

#[tokio::test]
async fn private_targets_are_refused_before_anything_is_sent() {
    let receiver = Receiver::start(Behaviour::status("200 OK")).await;
    let port = receiver.address.port();
    let closed = |host: &str| json!({ "type": "webhook", "url": format!("http://{host}:{port}/") });
    for host in ["127.0.0.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"] {
        let error = try_open(closed(host), &[]).err().unwrap();
        assert!(error.is_config() && error.to_string().contains("allow_private"), "{host}: {error}");
    }
    let (error, permanent) = failure(open(closed("localhost")).deliver(&delivery(json!({}))).await);
    assert!(error.contains("loopback address") && error.contains("allow_private") && !permanent, "{error}");
    assert_eq!(receiver.connections(), 0);
    delivered(&open(hook(&format!("http://localhost:{port}/"))).deliver(&delivery(json!({}))).await);
}

#[tokio::test]
async fn a_certificate_must_be_of_an_authority_that_is_trusted() {
    let dir = TempDir::new();
    authority(dir.path(), "right");
    certificate(dir.path(), "right");
    let both = ["server.crt", "server.key"].map(|file| std::fs::read(dir.path().join(file)).unwrap()).concat();
    let path = dir.path().join("server.pem");
    std::fs::write(&path, both).unwrap();
    let receiver = Python::start("receiver.py", &[OLD, path.to_str().unwrap()]);
    let spec = with(hook(&format!("https://localhost:{}/", receiver.port)), json!({ "secrets": ["env:OLD"] }));
    let (error, permanent) = failure(try_open(spec.clone(), &SECRETS).unwrap().deliver(&delivery(json!({}))).await);
    assert!(error.contains("UnknownIssuer") && !permanent, "{error}");
    let trusting = with(spec.clone(), json!({ "ca": dir.path().join("right.crt") }));
    delivered(&try_open(trusting, &SECRETS).unwrap().deliver(&delivery(json!({}))).await);
    let error = try_open(with(spec, json!({ "ca": dir.path().join("server.key") })), &SECRETS).err().unwrap();
    assert!(error.is_config() && error.hint().unwrap().contains("PEM"), "{error:?}");
}

#[tokio::test]
async fn a_secret_that_is_missing_or_none_is_told_and_never_shown() {
    let spec = with(hook("http://127.0.0.1:1/"), json!({ "secrets": ["env:OPS"] }));
    let missing = try_open(spec.clone(), &[]).err().unwrap();
    assert!(missing.is_config() && missing.to_string().contains("OPS is not set"), "{missing}");
    let wrong = try_open(spec, &[("OPS", "hunter2!")]).err().unwrap();
    assert!(wrong.to_string().contains("env:OPS") && !format!("{wrong:?}").contains("hunter2"), "{wrong:?}");
    let url = json!({ "type": "webhook", "url": "env:HOOK", "allow_private": true });
    let receiver = Receiver::start(Behaviour::status("200 OK")).await;
    delivered(&try_open(url, &[("HOOK", &receiver.url())]).unwrap().deliver(&delivery(json!({}))).await);
}
