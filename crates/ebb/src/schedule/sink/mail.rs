//! What a mail says: recipients from the payload, subject, text and HTML from a template. Invariants: what comes from
//! a payload cannot break out of HTML or of a header; the Message-ID is the occurrence's, so that a repeat is known.

use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use lettre::Message;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart, SinglePart};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, Value as Data};
use serde_json::Value;

use super::Delivery;
use crate::{Error, Result};

const DEFAULT: &str = include_str!("mail/default.jinja");
/// The warning of a deletion, part by part; templates may include them.
const WARNING: [(&str, &str); 3] = [
    ("warning.subject", include_str!("mail/warning.subject")),
    ("warning.txt", include_str!("mail/warning.txt")),
    ("warning.html", include_str!("mail/warning.html")),
];
const BLOCKS: [&str; 3] = ["subject", "text", "html"];
/// Keys that say where a mail goes and not what it says.
const HIDDEN: [&str; 8] = ["to", "cc", "bcc", "reply_to", "email", "type", "event", "subject"];

/// A template, ready to use.
pub(super) struct Template {
    plain: Environment<'static>,
    escaped: Environment<'static>,
}

impl Template {
    /// Ebb's own, or the one in a file, which may extend it: `{% extends "default" %}`.
    pub(super) fn load(path: Option<&Path>) -> Result<Self> {
        let source = match path {
            None => DEFAULT.to_owned(),
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                Error::config(format!("the template {} cannot be read: {error}", path.display()))
                    .with_hint("the path is relative to the configuration file; Ebb's user must be able to read it")
            })?,
        };
        let wrong = |error: minijinja::Error| {
            let line = error.line().map_or(String::new(), |line| format!(" in line {line}"));
            let error = Error::config(format!("the template is wrong{line}: {error}"));
            error.with_hint("it has the blocks subject, text and html; {% extends \"default\" %} takes over Ebb's own")
        };
        let environment = |escape: fn(&str) -> AutoEscape| {
            let mut environment = Environment::new();
            environment.set_auto_escape_callback(escape);
            environment.add_filter("date", date);
            for (name, part) in WARNING {
                environment.add_template(name, part).map_err(wrong)?;
            }
            environment.add_template_owned("default", DEFAULT.to_owned()).map_err(wrong)?;
            environment.add_template_owned("mail", source.clone()).map_err(wrong)?;
            Ok::<_, Error>(environment)
        };
        let template = Self { plain: environment(|_| AutoEscape::None)?, escaped: environment(|_| AutoEscape::Html)? };
        // What a template makes of data is seen when there is data; that a block is missing is seen now.
        match template.render(filled(serde_json::json!({ "data": {}, "hidden": HIDDEN }))) {
            Err(error) if matches!(error.kind(), ErrorKind::UnknownBlock | ErrorKind::TemplateNotFound) => {
                Err(wrong(error))
            }
            _ => Ok(template),
        }
    }

    fn render(&self, data: Data) -> Result<[String; 3], minijinja::Error> {
        let block = |environment: &Environment<'_>, name: &str| {
            let template = environment.get_template("mail")?;
            template.render_captured(data.clone())?.with_state_mut(|state| state.render_block(name))
        };
        let [subject, text, html] = BLOCKS;
        Ok([block(&self.plain, subject)?, block(&self.plain, text)?, block(&self.escaped, html)?])
    }

    /// The mail for a delivery, or why there can be none: no other attempt would make one.
    pub(super) fn mail(&self, delivery: &Delivery, from: &Mailbox) -> Result<Message, String> {
        let payload: Value = serde_json::from_str(delivery.payload.get()).map_err(|error| error.to_string())?;
        let recipients = recipients(&payload)?;
        let [subject, text, html] = self
            .render(filled(serde_json::json!({
                "data": payload,
                "hidden": HIDDEN,
                "type": delivery.kind,
                "id": delivery.occurrence,
                "event": delivery.event,
                "due_at": delivery.due_at.to_string(),
            })))
            .map_err(|error| format!("the template cannot be filled in: {error}"))?;
        let id = format!("<{}@{}>", delivery.occurrence, from.email.domain());
        let mut builder = Message::builder()
            .from(from.clone())
            .message_id(Some(id))
            .raw_header(HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".into()))
            .subject(one_line(&subject));
        for (field, mailbox) in recipients {
            builder = match field {
                Field::To => builder.to(mailbox),
                Field::Cc => builder.cc(mailbox),
                Field::Bcc => builder.bcc(mailbox),
                Field::ReplyTo => builder.reply_to(mailbox),
            };
        }
        let part = |content_type, body: String| {
            let encoding = ContentTransferEncoding::QuotedPrintable;
            SinglePart::builder().header(content_type).header(encoding).body(body)
        };
        let parts = MultiPart::alternative()
            .boundary(delivery.occurrence.simple().to_string())
            .singlepart(part(ContentType::TEXT_PLAIN, text))
            .singlepart(part(ContentType::TEXT_HTML, html));
        builder.multipart(parts).map_err(|error| format!("no mail can be made of it: {error}"))
    }
}

fn filled(value: Value) -> Data {
    Data::from(Serde(value))
}

/// A day as people write it, by the clocks of a zone: `{{ data.at|date("Asia/Jakarta") }}`.
fn date(moment: &str, zone: Option<String>) -> Result<String, minijinja::Error> {
    let wrong = |what: String| minijinja::Error::new(ErrorKind::InvalidOperation, what);
    let moment: Timestamp = moment.parse().map_err(|_| wrong(format!("{moment:?} is no time")))?;
    let zone = zone.unwrap_or_else(|| "UTC".into());
    let zone = TimeZone::get(&zone).map_err(|_| wrong(format!("{zone:?} is no time zone")))?;
    Ok(moment.to_zoned(zone).strftime("%-d %B %Y").to_string())
}

/// A subject is one line, whatever a payload says.
fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Field {
    To,
    Cc,
    Bcc,
    ReplyTo,
}

/// Who gets the mail: `to` (or `email`, with `name`, also inside `data`), `cc`, `bcc`, `reply_to`; each an address or a
/// list.
fn recipients(payload: &Value) -> Result<Vec<(Field, Mailbox)>, String> {
    let mut found = Vec::new();
    for (key, field) in [("to", Field::To), ("cc", Field::Cc), ("bcc", Field::Bcc), ("reply_to", Field::ReplyTo)] {
        for text in
            texts(&payload[key]).ok_or_else(|| format!("`{key}` of the payload is no address or list of them"))?
        {
            let mailbox =
                text.parse().map_err(|_| format!("`{key}` of the payload has something that is no address"))?;
            found.push((field, mailbox));
        }
    }
    if !found.iter().any(|(field, _)| *field == Field::To)
        && let Some(whose) = [payload, &payload["data"]].into_iter().find(|whose| whose["email"].is_string())
        && let Some(email) = whose["email"].as_str()
    {
        let address = email.trim().parse().map_err(|_| "`email` of the payload is no address")?;
        let name = whose["name"].as_str().map(one_line);
        found.push((Field::To, Mailbox::new(name, address)));
    }
    match found.iter().any(|(field, _)| *field == Field::To) {
        true => Ok(found),
        false => Err("the payload names nobody to write to: it has neither `to` nor `email`".into()),
    }
}

fn texts(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::String(text) => Some(vec![text]),
        Value::Array(items) => items.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn who(payload: Value) -> Result<Vec<String>, String> {
        Ok(recipients(&payload)?.into_iter().map(|(field, mailbox)| format!("{field:?} {mailbox}")).collect())
    }

    #[test]
    fn recipients_are_addresses_lists_or_an_email_with_a_name() {
        assert_eq!(who(json!({ "to": "Ayu <a@example.test>" })).unwrap(), ["To Ayu <a@example.test>"]);
        assert_eq!(
            who(json!({ "to": ["a@example.test", "b@example.test"], "bcc": "c@example.test" })).unwrap(),
            ["To a@example.test", "To b@example.test", "Bcc c@example.test"]
        );
        assert_eq!(who(json!({ "email": "a@example.test", "name": "Ayu" })).unwrap(), ["To Ayu <a@example.test>"]);
        for nobody in
            [json!({}), json!([]), json!("a@example.test"), json!({ "cc": "a@example.test" }), json!({ "to": [] })]
        {
            assert!(who(nobody.clone()).unwrap_err().contains("nobody to write to"), "{nobody}");
        }
        for wrong in
            [json!({ "to": 5 }), json!({ "to": "a" }), json!({ "to": [["a@b.test"]] }), json!({ "email": "x\r\ny@z" })]
        {
            assert!(who(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_subject_is_one_line() {
        assert_eq!(one_line("hello\r\nBcc: everybody@example.test\n"), "hello Bcc: everybody@example.test");
        assert_eq!(one_line("  Selamat   ulang\ttahun 🎂 "), "Selamat ulang tahun 🎂");
    }

    #[test]
    fn a_template_is_checked_when_it_is_loaded() {
        let path = std::env::temp_dir().join(format!("ebb-mail-{}.jinja", std::process::id()));
        let load = |source: &str| {
            std::fs::write(&path, source).unwrap();
            Template::load(Some(&path))
        };
        assert!(Template::load(None).is_ok());
        assert!(load("{% extends \"default\" %}{% block html %}<b>{{ data.name }}</b>{% endblock %}").is_ok());
        for wrong in ["{% block subject %}", "no blocks at all", "{% extends \"other\" %}", "{{ data."] {
            let error = load(wrong).err().unwrap_or_else(|| panic!("{wrong}"));
            assert!(error.is_config() && error.hint().unwrap().contains("subject, text and html"), "{error:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(Template::load(Some(&path)).is_err());
    }
}
