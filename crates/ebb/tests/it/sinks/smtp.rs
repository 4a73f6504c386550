//! Mail, read back from a real server and taken apart by another language's parser.

use ebb::schedule::sink::{Outlet, Verdict};
use ebb_testkit::TempDir;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::peer::{Behaviour, Python, Receiver};
use super::{delivered, delivery, failure, open, try_open};
use crate::tls::{authority, certificate};

fn smtp(port: u16, more: Value) -> Value {
    let mut spec =
        json!({ "type": "smtp", "host": "localhost", "port": port, "from": "Ebb <ebb@example.test>", "tls": "none" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// Delivers a payload and hands back the mail that arrived, with the occurrence's id.
async fn mailed(server: &mut Python, outlet: &Outlet, payload: Value) -> (Value, String) {
    let delivery = delivery(payload);
    delivered(&outlet.deliver(&delivery).await);
    (serde_json::from_str(&server.line()).unwrap(), delivery.occurrence.to_string())
}

#[tokio::test]
async fn a_mail_arrives_as_it_was_meant() {
    let mut server = Python::start("mailbox.py", &["plain"]);
    let outlet = open(smtp(server.port, json!({})));
    let payload = json!({
        "to": ["Ayu Lestari <ayu@example.test>", "budi@example.test"],
        "cc": "cc@example.test",
        "bcc": "bcc@example.test",
        "reply_to": "help@example.test",
        "subject": "Selamat ulang tahun 🎂",
        "text": "Halo Ayu & <friends>,\nsemoga…\n\nSalam",
    });
    let (mail, id) = mailed(&mut server, &outlet, payload).await;
    assert_eq!(mail["from"], "Ebb <ebb@example.test>");
    assert_eq!(mail["to"], "Ayu Lestari <ayu@example.test>, budi@example.test");
    assert_eq!((&mail["cc"], &mail["reply_to"]), (&json!("cc@example.test"), &json!("help@example.test")));
    assert_eq!(mail["bcc"], Value::Null, "what is blind is not in the mail");
    let everybody = json!(["ayu@example.test", "budi@example.test", "cc@example.test", "bcc@example.test"]);
    assert_eq!(mail["recipients"], everybody);
    assert_eq!(mail["subject"], "Selamat ulang tahun 🎂");
    assert_eq!(mail["message_id"], format!("<{id}@example.test>"));
    assert_eq!(mail["auto"], "auto-generated");
    assert_eq!(mail["text"].as_str().unwrap().trim_end(), "Halo Ayu & <friends>,\nsemoga…\n\nSalam");
    let html = mail["html"].as_str().unwrap();
    assert!(html.contains("<p>Halo Ayu &amp; &lt;friends&gt;, semoga…</p>\n<p>Salam</p>"), "{html}");
}

#[tokio::test]
async fn without_a_text_a_mail_lists_what_the_event_carries() {
    let mut server = Python::start("mailbox.py", &["plain"]);
    let outlet = open(smtp(server.port, json!({})));
    let payload = json!({ "type": "deletion_warning", "email": "ayu@example.test", "name": "Ayu", "days": 30 });
    let (mail, _) = mailed(&mut server, &outlet, payload).await;
    assert_eq!((&mail["to"], &mail["subject"]), (&json!("Ayu <ayu@example.test>"), &json!("deletion_warning")));
    assert_eq!(mail["text"].as_str().unwrap().trim_end(), "name: Ayu\ndays: 30");
    assert!(mail["html"].as_str().unwrap().contains("<th align=\"left\">days</th><td>30</td>"));
}

#[tokio::test]
async fn a_template_of_ones_own_decides_and_escapes() {
    let mut server = Python::start("mailbox.py", &["plain"]);
    let dir = TempDir::new();
    let path = dir.path().join("birthday.jinja");
    let template = "{% extends \"default\" %}{% block subject %}Happy birthday, {{ data.name }}{% endblock %}\
                    {% block html %}<h1>{{ data.name }}</h1>{{ due_at }} {{ id }}{% endblock %}";
    std::fs::write(&path, template).unwrap();
    let outlet = open(smtp(server.port, json!({ "template": path })));
    let payload = json!({ "to": "a@example.test", "name": "<b>Ayu</b>\r\nBcc: x@example.test", "text": "hi" });
    let (mail, id) = mailed(&mut server, &outlet, payload).await;
    assert_eq!(mail["subject"], "Happy birthday, <b>Ayu</b> Bcc: x@example.test");
    assert_eq!((&mail["bcc"], mail["recipients"].as_array().unwrap().len()), (&Value::Null, 1));
    let html = mail["html"].as_str().unwrap();
    assert!(html.starts_with("<h1>&lt;b&gt;Ayu&lt;") && html.contains("2026-03-01T09:00:00Z") && html.contains(&id));
    assert_eq!(mail["text"].as_str().unwrap().trim_end(), "hi");
    let missing = try_open(smtp(1, json!({ "template": dir.path().join("none") })), &[]).err().unwrap();
    assert!(missing.is_config(), "{missing}");
}

#[tokio::test]
async fn mail_is_protected_and_signed_in() {
    let dir = TempDir::new();
    authority(dir.path(), "right");
    certificate(dir.path(), "right");
    let both = ["server.crt", "server.key"].map(|file| std::fs::read(dir.path().join(file)).unwrap()).concat();
    let pem = dir.path().join("server.pem");
    std::fs::write(&pem, both).unwrap();
    let ca = dir.path().join("right.crt");
    for mode in ["starttls", "implicit"] {
        let mut server = Python::start("mailbox.py", &[mode, pem.to_str().unwrap(), "ebb", "hunter2"]);
        let login = json!({ "tls": mode, "ca": ca, "user": "ebb", "password": "env:MAIL" });
        let outlet = try_open(smtp(server.port, login.clone()), &[("MAIL", "hunter2")]).unwrap();
        let (mail, _) = mailed(&mut server, &outlet, json!({ "to": "a@example.test" })).await;
        assert_eq!((&mail["tls"], &mail["user"]), (&json!(true), &json!("ebb")), "{mode}");

        let wrong = try_open(smtp(server.port, login), &[("MAIL", "secret-guess")]).unwrap();
        let (error, permanent) = failure(wrong.deliver(&delivery(json!({ "to": "a@example.test" }))).await);
        assert!(error.contains("535") && !permanent && !error.contains("secret-guess"), "{mode}: {error}");
        let stranger = open(smtp(server.port, json!({ "tls": mode })));
        let (error, permanent) = failure(stranger.deliver(&delivery(json!({ "to": "a@example.test" }))).await);
        assert!(error.contains("UnknownIssuer") && !permanent, "{mode}: {error}");
    }
    let plain = Python::start("mailbox.py", &["plain"]);
    let (error, permanent) = failure(
        open(smtp(plain.port, json!({ "tls": "starttls" })))
            .deliver(&delivery(json!({ "to": "a@example.test" })))
            .await,
    );
    assert!(error.contains("STARTTLS") && !permanent, "a server that offers no TLS gets no mail: {error}");
}

#[tokio::test]
async fn a_refused_recipient_is_final_and_a_busy_server_is_not() {
    let mut server = Python::start("mailbox.py", &["plain"]);
    let outlet = open(smtp(server.port, json!({})));
    let verdict = outlet.deliver(&delivery(json!({ "to": ["a@example.test", "nobody@example.test"] }))).await;
    let Verdict::Failed { error, permanent: true, response: Some(response), .. } = verdict else {
        panic!("{verdict:?}")
    };
    assert!(error.contains("550") && !error.contains("nobody@"), "an error names nobody: {error}");
    assert!(response.status == Some(550) && response.body.contains("no such user"), "{response:?}");
    let (error, permanent) = failure(outlet.deliver(&delivery(json!({ "to": "busy@example.test" }))).await);
    assert!(error.contains("451") && !permanent, "{error}");
    for payload in
        [json!({}), json!([1]), json!({ "to": "not an address" }), json!({ "to": "a@example.test", "cc": 5 })]
    {
        assert!(failure(outlet.deliver(&delivery(payload.clone())).await).1, "{payload}");
    }
    let (mail, _) = mailed(&mut server, &outlet, json!({ "to": "a@example.test" })).await;
    assert_eq!(mail["recipients"], json!(["a@example.test"]), "nobody was written to before");
}

#[tokio::test]
async fn a_connection_serves_more_than_one_mail_and_a_dead_one_is_replaced() {
    let mut server = Python::start("mailbox.py", &["plain"]);
    let outlet = open(smtp(server.port, json!({})));
    let to = json!({ "to": "a@example.test" });
    let (first, _) = mailed(&mut server, &outlet, to.clone()).await;
    let (second, _) = mailed(&mut server, &outlet, to.clone()).await;
    assert_eq!(first["peer"], second["peer"]);
    drop(server);
    assert!(!failure(outlet.deliver(&delivery(to)).await).1);
}

#[tokio::test]
async fn a_server_that_is_none_or_says_nothing_is_given_up() {
    let to = || delivery(json!({ "to": "a@example.test" }));
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert!(!failure(open(smtp(nobody.port(), json!({ "host": "127.0.0.1" }))).deliver(&to()).await).1);
    let silent = Receiver::start(Behaviour::Silent).await;
    let outlet = open(smtp(silent.address.port(), json!({ "host": "127.0.0.1", "timeout": "300ms" })));
    let (error, permanent) = failure(outlet.deliver(&to()).await);
    assert!(error.contains("within 300ms") && !permanent, "{error}");
}
