//! How a sink is reached: what belongs to each `type`. Invariant: a key of another type is refused, so that nobody
//! believes in a limit or a secret that has no effect.

use std::net::IpAddr;
use std::path::Path;

use lettre::address::AddressError;
use lettre::message::Mailbox;
use serde_json::Value;

use super::field::{Invalid, Spot};
use super::reader::{Reader, wrong_type};
use crate::config::Secret;

/// How a sink is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Driver {
    /// An HTTP call, by the rules of Standard Webhooks.
    Webhook(Webhook),
    /// A mail.
    Smtp(Smtp),
    /// A message in a JetStream stream.
    Nats(Nats),
    /// A record in a Kafka topic.
    Kafka(Kafka),
    /// A line in the node's log.
    Log,
    /// A function of the program that embeds Ebb, registered under the sink's name.
    Handler,
}

/// An HTTP call.
#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    /// Where to; perhaps kept elsewhere, as some URLs are secrets themselves.
    pub url: Secret,
    /// What its calls are signed with. Several during a rotation: each signs.
    pub secrets: Vec<Secret>,
    /// A file with certificates of authorities to trust besides the system's.
    pub ca: Option<String>,
    /// Whether loopback, private and link-local targets are fine.
    pub allow_private: bool,
}

/// A mail server.
#[derive(Debug, Clone, PartialEq)]
pub struct Smtp {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is protected.
    pub tls: SmtpTls,
    /// Who mails come from.
    pub from: Mailbox,
    /// Who signs in, and where the password is.
    pub login: Option<(String, Secret)>,
    /// A file that says what mails look like; Ebb's own template when absent.
    pub template: Option<String>,
    /// A file with certificates of authorities to trust besides the system's.
    pub ca: Option<String>,
}

/// How a connection to a mail server is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmtpTls {
    /// It starts in the clear and turns to TLS before anything else is said.
    StartTls,
    /// TLS from the first byte.
    Implicit,
    /// Not at all.
    None,
}

/// A NATS server with JetStream.
#[derive(Debug, Clone, PartialEq)]
pub struct Nats {
    /// Where it is.
    pub url: Secret,
    /// The stream that must take the messages; any that has the subject when absent.
    pub stream: Option<String>,
    /// What messages are published under.
    pub subject: String,
    /// The credentials file of a user.
    pub credentials: Option<Secret>,
    /// A file with certificates of authorities to trust besides the system's.
    pub ca: Option<String>,
}

/// A Kafka cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Kafka {
    /// Brokers to begin with: `host:port`.
    pub brokers: Vec<String>,
    /// The topic.
    pub topic: String,
}

impl Driver {
    /// The word for it in `type`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Smtp(_) => "smtp",
            Self::Nats(_) => "nats",
            Self::Kafka(_) => "kafka",
            Self::Log => "log",
            Self::Handler => "handler",
        }
    }
}

const TYPES: [&str; 6] = ["webhook", "smtp", "nats", "kafka", "log", "handler"];

/// The keys that belong to some types only.
const KEYS: [(&str, &[&str]); 16] = [
    ("url", &["webhook", "nats"]),
    ("secrets", &["webhook"]),
    ("allow_private", &["webhook"]),
    ("ca", &["webhook", "smtp", "nats"]),
    ("host", &["smtp"]),
    ("port", &["smtp"]),
    ("tls", &["smtp"]),
    ("from", &["smtp"]),
    ("user", &["smtp"]),
    ("password", &["smtp"]),
    ("template", &["smtp"]),
    ("stream", &["nats"]),
    ("subject", &["nats"]),
    ("credentials", &["nats"]),
    ("brokers", &["kafka"]),
    ("topic", &["kafka"]),
];

/// Reads `type` and the keys that belong to it.
pub(super) fn read(r: &mut Reader<'_>) -> Option<Driver> {
    r.required("type", "\"webhook\"");
    let word = r.choice("type", &TYPES.map(|word| (word, word)));
    for (key, types) in KEYS {
        if let (Some(_), Some(word)) = (r.take(key), word)
            && !types.contains(&word)
        {
            let message = format!("a sink of type \"{word}\" has no `{key}`");
            r.error(key, Spot::Key, Invalid::new(message).hint(format!("it belongs to {}", types.join(", "))));
        }
    }
    match word? {
        "webhook" => read_webhook(r).map(Driver::Webhook),
        "smtp" => read_smtp(r).map(Driver::Smtp),
        "nats" => read_nats(r).map(Driver::Nats),
        "log" => Some(Driver::Log),
        "handler" => Some(Driver::Handler),
        _ if cfg!(not(feature = "kafka")) => {
            let invalid = Invalid::new("this build of Ebb does not speak Kafka");
            r.refuse("type", invalid.hint("build it with --features kafka"));
            None
        }
        _ => read_kafka(r).map(Driver::Kafka),
    }
}

fn read_webhook(r: &mut Reader<'_>) -> Option<Webhook> {
    let url = read_url(r, "\"https://example.test/hook\"", |url| match url.scheme() {
        "http" | "https" if url.host().is_some() => Ok(()),
        _ => Err(Invalid::new("a webhook's URL starts with https:// or http://")),
    });
    let secrets = read_secrets(r, "secrets");
    let ca = r.text("ca", "\"ca.pem\"");
    let allow_private = r.flag("allow_private", false);
    Some(Webhook { url: url?, secrets, ca, allow_private })
}

fn read_smtp(r: &mut Reader<'_>) -> Option<Smtp> {
    let host = r.required("host", "\"mail.example.test\"");
    let local = host.as_deref().is_some_and(is_loopback);
    let port = r.number("port", 1..=65_535).and_then(|port| u16::try_from(port).ok());
    let words = [("starttls", SmtpTls::StartTls), ("implicit", SmtpTls::Implicit), ("none", SmtpTls::None)];
    let tls = r.choice("tls", &words).unwrap_or(match port {
        Some(465) => SmtpTls::Implicit,
        _ if local => SmtpTls::None,
        _ => SmtpTls::StartTls,
    });
    let port = port.unwrap_or(match tls {
        SmtpTls::StartTls => 587,
        SmtpTls::Implicit => 465,
        SmtpTls::None => 25,
    });
    let from = read_from(r);
    let login = read_login(r);
    if login.is_some() && tls == SmtpTls::None && !local {
        let invalid = Invalid::new("without TLS the password would cross the network in the clear");
        r.refuse("tls", invalid.hint("set tls = \"starttls\" or \"implicit\""));
    }
    let template = r.text("template", "\"mail.jinja\"");
    let ca = r.text("ca", "\"ca.pem\"");
    Some(Smtp { host: host?, port, tls, from: from?, login, template, ca })
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn read_from(r: &mut Reader<'_>) -> Option<Mailbox> {
    let example = "\"Ebb <ebb@example.test>\"";
    let text = r.required("from", example)?;
    let invalid =
        |error| Invalid::new(format!("{text:?} is no address: {error}")).hint(format!("for example {example}"));
    text.parse().map_err(|error: AddressError| r.refuse("from", invalid(error))).ok()
}

fn read_login(r: &mut Reader<'_>) -> Option<(String, Secret)> {
    let user = r.text("user", "\"ebb\"");
    let password = read_secret(r, "password", "\"env:SMTP_PASSWORD\"");
    match (user, password) {
        (Some(user), Some(password)) => Some((user, password)),
        (Some(_), None) => {
            r.refuse("user", Invalid::new("`user` without `password`").hint("add password = \"env:SMTP_PASSWORD\""));
            None
        }
        (None, Some(_)) => {
            r.refuse("password", Invalid::new("`password` without `user`").hint("add user = \"ebb\""));
            None
        }
        (None, None) => None,
    }
}

fn read_nats(r: &mut Reader<'_>) -> Option<Nats> {
    let url = read_url(r, "\"nats://127.0.0.1:4222\"", |url| match url.scheme() {
        "nats" | "tls" if url.host().is_some() => Ok(()),
        _ => Err(Invalid::new("a NATS server's URL starts with nats:// or tls://")),
    });
    let stream = r.text("stream", "\"EVENTS\"");
    let subject = r.required("subject", "\"events.ops\"");
    if let Some(subject) = &subject
        && subject
            .split('.')
            .any(|part| part.is_empty() || part.contains(['*', '>']) || part.contains(char::is_whitespace))
    {
        r.refuse(
            "subject",
            Invalid::new(format!("{subject:?} is no subject to publish under")).hint("for example \"events.ops\""),
        );
    }
    let credentials = read_secret(r, "credentials", "\"file:ebb.creds\"");
    let ca = r.text("ca", "\"ca.pem\"");
    Some(Nats { url: url?, stream, subject: subject?, credentials, ca })
}

fn read_kafka(r: &mut Reader<'_>) -> Option<Kafka> {
    let example = "[\"127.0.0.1:9092\"]";
    let texts: Option<Vec<&str>> = match r.take("brokers") {
        Some(Value::Array(items)) => items.iter().map(Value::as_str).collect(),
        Some(Value::String(text)) => Some(text.split(',').collect()),
        Some(_) => None,
        None => {
            r.refuse_all(Invalid::new("`brokers` is missing").hint(format!("add brokers = {example}")));
            return None;
        }
    };
    let brokers: Vec<String> = texts.unwrap_or_default().iter().map(|text| text.trim().to_owned()).collect();
    if brokers.is_empty() || brokers.iter().any(|broker| broker.is_empty() || broker.contains(char::is_whitespace)) {
        r.refuse("brokers", Invalid::new("`brokers` is a list of host:port").hint(format!("for example {example}")));
    }
    let topic = r.required("topic", "\"events\"")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.len() > 249 || !topic.chars().all(fits) || topic == "." || topic == ".." {
        r.refuse("topic", Invalid::new(format!("{topic:?} is no topic")).hint("letters, digits, `.`, `_` and `-`"));
    }
    Some(Kafka { brokers, topic })
}

fn read_secret(r: &mut Reader<'_>, key: &'static str, example: &str) -> Option<Secret> {
    let text = r.text(key, example)?;
    Secret::parse(&text, Path::new("")).map_err(|invalid| r.error(key, Spot::Secret, invalid)).ok()
}

/// A URL, or where it is kept.
fn read_url(
    r: &mut Reader<'_>,
    example: &str,
    check: impl FnOnce(&reqwest::Url) -> Result<(), Invalid>,
) -> Option<Secret> {
    let text = r.required("url", example)?;
    let parsed = Secret::parse_or_inline(&text, Path::new(""));
    let checked = parsed.and_then(|secret| {
        if secret.inline().is_some() {
            let url = reqwest::Url::parse(&text).map_err(|error| Invalid::new(format!("this is no URL: {error}")))?;
            check(&url)?;
        }
        Ok(secret)
    });
    // A URL may carry a password: it is not repeated.
    checked.map_err(|invalid| r.error("url", Spot::Secret, invalid.hint(format!("for example {example}")))).ok()
}

/// One secret or several, each named by where it is.
fn read_secrets(r: &mut Reader<'_>, key: &'static str) -> Vec<Secret> {
    let example = "[\"env:OPS_WEBHOOK_SECRET\"]";
    let texts: Vec<&Value> = match r.take(key) {
        None => return Vec::new(),
        Some(Value::Array(texts)) => texts.iter().collect(),
        Some(text) => vec![text],
    };
    let mut secrets = Vec::new();
    for text in texts {
        let parsed = match text {
            Value::String(text) => Secret::parse(text, Path::new("")),
            other => Err(wrong_type(key, "a list of texts", other, example)),
        };
        match parsed {
            Ok(secret) => secrets.push(secret),
            Err(invalid) => r.error(key, Spot::Secret, invalid),
        }
    }
    secrets
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::{FieldErrors, Sink};

    fn parse(spec: Value) -> Result<Driver, FieldErrors> {
        Sink::parse("ops", spec.as_object().unwrap()).map(|sink| sink.driver)
    }

    fn refusal(spec: Value) -> String {
        format!("{:?}", parse(spec).unwrap_err())
    }

    #[test]
    fn a_webhook_names_its_secrets() {
        let spec = json!({ "type": "webhook", "url": "https://example.test/hook", "secrets": ["env:A", "file:b"] });
        let Driver::Webhook(webhook) = parse(spec).unwrap() else { panic!() };
        assert_eq!(webhook.secrets.iter().map(Secret::to_string).collect::<Vec<_>>(), ["env:A", "file:b"]);
        assert!(!webhook.allow_private);
        let one = json!({ "type": "webhook", "url": "env:URL", "secrets": "env:A" });
        assert!(matches!(parse(one).unwrap(), Driver::Webhook(webhook) if webhook.secrets.len() == 1));
    }

    #[test]
    fn a_secret_that_is_written_out_is_refused_and_not_repeated() {
        let spec = json!({ "type": "webhook", "url": "https://example.test", "secrets": ["whsec_aHVudGVyMg=="] });
        let said = refusal(spec);
        assert!(said.contains("never written here") && !said.contains("aHVudGVy"), "{said}");
        let said = refusal(json!({ "type": "webhook", "url": "ftp://u:hunter2@example.test" }));
        assert!(said.contains("https://") && !said.contains("hunter2"), "{said}");
    }

    #[test]
    fn mail_is_protected_unless_it_stays_here() {
        let smtp = |more: Value| {
            let mut spec = json!({ "type": "smtp", "host": "mail.example.test", "from": "Ebb <ebb@example.test>" });
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            parse(spec).map(|driver| match driver {
                Driver::Smtp(smtp) => (smtp.port, smtp.tls),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(smtp(json!({})).unwrap(), (587, SmtpTls::StartTls));
        assert_eq!(smtp(json!({ "port": 465 })).unwrap(), (465, SmtpTls::Implicit));
        assert_eq!(smtp(json!({ "tls": "implicit" })).unwrap(), (465, SmtpTls::Implicit));
        assert_eq!(smtp(json!({ "host": "127.0.0.1", "port": 2525 })).unwrap(), (2525, SmtpTls::None));
        let said = |more: Value| smtp(more).unwrap_err().to_string();
        assert!(said(json!({ "tls": "none", "user": "u", "password": "env:P" })).contains("in the clear"));
        assert!(said(json!({ "user": "u" })).contains("without `password`"));
        assert!(said(json!({ "from": "nobody" })).contains("is no address"));
        assert!(said(json!({ "password": "hunter2" })).contains("never written here"));
        assert!(smtp(json!({ "host": "localhost", "user": "u", "password": "env:P" })).is_ok());
    }

    #[test]
    fn a_stream_is_reached_by_url_and_subject() {
        let nats = |subject: &str| parse(json!({ "type": "nats", "url": "nats://127.0.0.1:4222", "subject": subject }));
        assert!(nats("events.ops").is_ok());
        for bad in ["events.*", "events.>", "a b", "events.", ".", "a..b"] {
            assert!(nats(bad).unwrap_err().to_string().contains("is no subject"), "{bad}");
        }
        assert!(refusal(json!({ "type": "nats", "url": "http://h", "subject": "a" })).contains("nats://"));
    }

    #[test]
    fn kafka_is_refused_by_a_build_without_it() {
        let kafka = |brokers: Value, topic: &str| {
            parse(json!({ "type": "kafka", "brokers": brokers, "topic": topic })).map_err(|errors| errors.to_string())
        };
        if cfg!(not(feature = "kafka")) {
            assert!(kafka(json!(["a:1"]), "events").unwrap_err().contains("--features kafka"));
            return;
        }
        let both = Driver::Kafka(Kafka { brokers: vec!["a:1".into(), "b:2".into()], topic: "events".into() });
        assert_eq!(kafka(json!(["a:1", "b:2"]), "events").unwrap(), both);
        assert_eq!(kafka(json!("a:1, b:2"), "events").unwrap(), both);
        for (brokers, topic) in
            [(json!([]), "t"), (json!(5), "t"), (json!([5]), "t"), (json!(""), "t"), (json!("a:1"), "a b")]
        {
            assert!(kafka(brokers.clone(), topic).is_err(), "{brokers} {topic}");
        }
    }

    #[test]
    fn a_key_of_another_type_is_refused() {
        let said = refusal(json!({ "type": "log", "url": "https://example.test" }));
        assert!(said.contains("a sink of type \\\"log\\\" has no `url`"), "{said}");
        assert!(refusal(json!({ "type": "webhook" })).contains("`url` is missing"));
        assert!(refusal(json!({ "type": "webhook", "url": "example.test/hook" })).contains("no URL"));
        assert!(refusal(json!({ "type": "webhook", "url": "mailto:a@example.test" })).contains("https://"));
    }
}
