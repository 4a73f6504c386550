//! The warning of a `[[retain]]` policy over subjects: when it goes out, through which sink, to whom, and what happens
//! when it cannot be delivered. Invariants: a warning fits into the grace; whoever is warned has an address and a link.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::field::Invalid;
use super::reader::wrong_type;
use super::{FieldErrors, Reader, Spec, Term};

/// How subjects hear that they will be erased.
#[derive(Debug, Clone, PartialEq)]
pub struct Warning {
    /// How long before: the warning first, then reminders, each nearer to the end.
    pub before: Vec<Term>,
    /// Over how long the warnings of one run are spread.
    pub spread: Duration,
    /// Columns of the root table.
    pub contact: Contact,
    /// The sink.
    pub notify: String,
    /// What becomes of a deletion whose warning no attempt could deliver.
    pub on_undeliverable: Undeliverable,
    /// Where the link leads, with `{token}` in it; absent: Ebb's own page.
    pub restore_url: Option<String>,
    /// Words of the mail: what the service is called, where help is.
    pub texts: BTreeMap<String, String>,
}

/// The columns that say who is warned.
#[derive(Debug, Clone, PartialEq)]
pub struct Contact {
    /// The address.
    pub email: String,
    /// The name.
    pub name: Option<String>,
}

/// What becomes of a deletion whose warning could not be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undeliverable {
    /// It waits until somebody has looked.
    Stop,
    /// It goes on as if there had been a warning.
    Proceed,
}

/// The words that a mail takes from a policy or a tenant, and what each is for.
pub const TEXTS: [(&str, &str); 6] = [
    ("service", "what the service is called"),
    ("support", "where help is: an address or a URL"),
    ("subject", "the mail's subject"),
    ("greeting", "the first line, instead of \"Hello NAME,\""),
    ("intro", "a paragraph before the date"),
    ("closing", "the last line"),
];

/// Keys that mean something only where there is a warning.
const OF_WARNINGS: [&str; 6] = ["spread", "contact", "notify", "on_undeliverable", "restore_url", "texts"];

const HOUR: Duration = Duration::from_secs(3_600);
const WEEK: Duration = Duration::from_secs(7 * 86_400);
/// No text is longer.
const TEXT_LIMIT: usize = 1_000;

/// Reads every key of a warning; none where `warn_before` is absent.
pub(super) fn read(r: &mut Reader<'_>, spec: &Spec, grace: Option<Term>) -> Option<Warning> {
    let before = read_before(r, "warn_before");
    let spread = r.duration("spread", "\"1h\"", Duration::ZERO..=WEEK);
    let contact = r.table("contact", "{ email = \"email\", name = \"name\" }", |inner| {
        let email = inner.required("email", "\"email\"");
        let name = inner.text("name", "\"name\"");
        Some(Contact { email: email?, name })
    });
    let notify = r.text("notify", "\"mail\"");
    let words = [("stop", Undeliverable::Stop), ("proceed", Undeliverable::Proceed)];
    let on_undeliverable = r.choice("on_undeliverable", &words);
    let restore_url = r.text("restore_url", "\"https://app.example.test/restore?token={token}\"");
    if let Some(invalid) = restore_url.as_deref().and_then(wrong_link) {
        r.refuse("restore_url", invalid);
    }
    let texts = r.table("texts", "{ service = \"Warung Kopi\" }", read_texts);
    let given = |key: &str| spec.get(key).is_some_and(|value| !value.is_null());
    if !given("warn_before") {
        for key in OF_WARNINGS.iter().filter(|key| given(key)) {
            let invalid = Invalid::new(format!("`{key}` belongs to warnings, which need `warn_before`"));
            r.refuse(key, invalid.hint("add warn_before = [\"30d\"], or take it out"));
        }
        return None;
    }
    for (key, example) in [("notify", "notify = \"mail\""), ("contact", "contact = { email = \"email\" }")] {
        if !given(key) {
            let invalid = Invalid::new(format!("`warn_before` needs `{key}`"));
            r.refuse("warn_before", invalid.hint(format!("add {example}")));
        }
    }
    let before = before?;
    if let (Some(first), Some(grace)) = (before.first(), grace)
        && let Some(invalid) = longer(first, &grace, "the grace")
    {
        r.refuse("warn_before", invalid);
    }
    Some(Warning {
        before,
        spread: spread.unwrap_or(HOUR),
        contact: contact.flatten()?,
        notify: notify?,
        on_undeliverable: on_undeliverable.unwrap_or(Undeliverable::Stop),
        restore_url,
        texts: texts.unwrap_or_default(),
    })
}

/// A warning comes after what it warns of was asked for.
pub(crate) fn longer(first: &Term, term: &Term, what: &str) -> Option<Invalid> {
    (first.approximate() > term.approximate()).then(|| {
        Invalid::new(format!("`warn_before` {first} is longer than {what} {term}")).hint(format!("at most \"{term}\""))
    })
}

/// A term or several, each shorter than the one before; a variable separates them by commas.
fn read_before(r: &mut Reader<'_>, key: &'static str) -> Option<Vec<Term>> {
    let example = "[\"30d\", \"3d\"]";
    let value = r.take(key)?;
    let texts: Option<Vec<String>> = match value {
        Value::String(text) => Some(text.split(',').map(|part| part.trim().to_owned()).collect()),
        Value::Array(items) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    let Some(texts) = texts else {
        r.refuse(key, wrong_type(key, "a list of durations", value, example));
        return None;
    };
    match terms(&texts) {
        Ok(terms) => Some(terms),
        Err(invalid) => {
            r.refuse(key, invalid);
            None
        }
    }
}

/// Terms of a warning and its reminders.
pub fn terms(texts: &[String]) -> Result<Vec<Term>, Invalid> {
    let terms = texts.iter().map(|text| text.parse::<Term>()).collect::<Result<Vec<Term>, Invalid>>()?;
    if terms.is_empty() || terms.iter().any(Term::is_zero) {
        return Err(Invalid::new("`warn_before` says how long before").hint("for example [\"30d\", \"3d\"]"));
    }
    if terms.len() > 8 {
        return Err(Invalid::new("there are at most eight warnings"));
    }
    match terms.windows(2).find(|pair| pair[1].approximate() >= pair[0].approximate()) {
        Some(pair) => {
            Err(Invalid::new(format!("a reminder {} before comes not after one {} before", pair[1], pair[0]))
                .hint("write the longest first"))
        }
        None => Ok(terms),
    }
}

/// Words of the mail that a tenant has of its own.
pub fn texts(given: &Spec) -> Result<BTreeMap<String, String>, FieldErrors> {
    let mut reader = Reader::new(given);
    let texts = read_texts(&mut reader);
    reader.finish().map(|()| texts)
}

fn read_texts(r: &mut Reader<'_>) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for (key, _) in TEXTS {
        if let Some(text) = r.text(key, "\"…\"") {
            if text.chars().count() > TEXT_LIMIT {
                r.refuse(key, Invalid::new(format!("`{key}` has more than {TEXT_LIMIT} characters")));
            }
            texts.insert(key.to_owned(), text);
        }
    }
    texts
}

fn wrong_link(url: &str) -> Option<Invalid> {
    let example = "for example \"https://app.example.test/restore?token={token}\"";
    if !url.contains("{token}") {
        return Some(Invalid::new("`restore_url` has no `{token}` in it").hint(example));
    }
    let parsed = reqwest::Url::parse(&url.replace("{token}", "t")).ok();
    let fine = parsed.is_some_and(|url| matches!(url.scheme(), "https" | "http") && url.has_host());
    (!fine).then(|| Invalid::new("`restore_url` is no URL that a browser opens").hint(example))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Retain;
    use super::*;

    fn parse(more: Value) -> Result<Retain, String> {
        let mut spec = json!({ "table": "public.users", "deleted_at": "deleted_at", "grace": "90d",
            "warn_before": ["30d", "3d"], "contact": { "email": "email" }, "notify": "mail" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Retain::parse("users", spec.as_object().unwrap()).map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_warning_has_defaults() {
        let retain = parse(json!({})).unwrap();
        let warning = retain.subjects().unwrap().warning.as_ref().unwrap();
        assert_eq!((warning.before.len(), warning.spread), (2, HOUR));
        assert_eq!((warning.on_undeliverable, &warning.restore_url), (Undeliverable::Stop, &None));
        assert_eq!(
            parse(json!({ "warn_before": "30d" })).unwrap().subjects().unwrap().warning.as_ref().unwrap().before,
            [Term::days(30)]
        );
        assert!(
            parse(json!({ "warn_before": null, "notify": null, "contact": null }))
                .unwrap()
                .subjects()
                .unwrap()
                .warning
                .is_none()
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |more: Value| parse(more).unwrap_err();
        assert!(refused(json!({ "warn_before": ["91d"] })).contains("`warn_before` 91d is longer than the grace 90d"));
        assert!(refused(json!({ "warn_before": ["4mo"] })).contains("longer than the grace"));
        assert!(refused(json!({ "warn_before": ["3d", "30d"] })).contains("the longest first"));
        assert!(refused(json!({ "warn_before": ["3d", "3d"] })).contains("the longest first"));
        assert!(refused(json!({ "warn_before": [] })).contains("says how long before"));
        assert!(refused(json!({ "warn_before": ["0s"] })).contains("says how long before"));
        assert!(refused(json!({ "warn_before": 30 })).contains("a list of durations"));
        assert!(refused(json!({ "notify": null })).contains("needs `notify`"));
        assert!(refused(json!({ "contact": null })).contains("needs `contact`"));
        assert!(refused(json!({ "contact": { "mail": "email" } })).contains("`email` is missing"));
        assert!(refused(json!({ "warn_before": null })).contains("`notify` belongs to warnings"));
        assert!(refused(json!({ "on_undeliverable": "wait" })).contains("`on_undeliverable` cannot be"));
        assert!(refused(json!({ "restore_url": "https://a.test/" })).contains("no `{token}`"));
        assert!(refused(json!({ "restore_url": "javascript:{token}" })).contains("no URL that a browser opens"));
        assert!(refused(json!({ "texts": { "servis": "x" } })).contains("did you mean `service`?"));
        assert!(refused(json!({ "spread": "8d" })).contains("spread"));
    }
}
