//! How a sink is reached: what belongs to each `type`. Invariant: a key of another type is refused, so that nobody
//! believes in a limit or a secret that has no effect.

use std::path::Path;

use serde_json::Value;

use super::field::{Invalid, Spot};
use super::reader::{Reader, wrong_type};
use crate::config::Secret;

/// How a sink is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Driver {
    /// An HTTP call, by the rules of Standard Webhooks.
    Webhook(Webhook),
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

impl Driver {
    /// The word for it in `type`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Log => "log",
            Self::Handler => "handler",
        }
    }
}

const TYPES: [&str; 6] = ["webhook", "smtp", "nats", "kafka", "log", "handler"];

/// The keys that belong to some types only.
const KEYS: [(&str, &[&str]); 4] =
    [("url", &["webhook"]), ("secrets", &["webhook"]), ("allow_private", &["webhook"]), ("ca", &["webhook"])];

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
        "log" => Some(Driver::Log),
        "handler" => Some(Driver::Handler),
        later => {
            let message = format!("this version of Ebb does not deliver to {later} sinks yet");
            r.refuse("type", Invalid::new(message));
            None
        }
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
    fn a_key_of_another_type_is_refused() {
        let said = refusal(json!({ "type": "log", "url": "https://example.test" }));
        assert!(said.contains("a sink of type \\\"log\\\" has no `url`"), "{said}");
        assert!(refusal(json!({ "type": "webhook" })).contains("`url` is missing"));
        assert!(refusal(json!({ "type": "webhook", "url": "example.test/hook" })).contains("no URL"));
        assert!(refusal(json!({ "type": "webhook", "url": "mailto:a@example.test" })).contains("https://"));
    }
}
