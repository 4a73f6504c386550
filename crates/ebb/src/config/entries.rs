//! The entries that `ebb apply` brings to the database: policies, namespaces, `[pacing]` and `[keep]`.
//! Invariant: what this version does not run is refused at its line instead of being left undone in silence.

use serde_json::Value;

use super::diagnostic::{Diagnostic, Place};
use super::document::Document;
use super::env::{Env, Target, stem};
use super::settings::{NodeSettings, SECTIONS};
use super::{PolicySpec, located, path};
use crate::policy::{Kind, Policy, Spec, Spot, Term, did_you_mean, human, nearest};

const APPLIED_SECTIONS: [&str; 2] = ["pacing", "keep"];
const LATER: [(&str, &str); 6] = [
    ("retain", "[[retain]] policies"),
    ("partition", "[[partition]] policies"),
    ("resources", "[[resources]] policies"),
    ("schedule", "[[schedule]] policies"),
    ("sinks", "[sinks.*]"),
    ("events", "[events]"),
];

/// The variable that services with a cleanup ticker of their own already set.
const INTERVAL: &str = "IDEMPOTENCY_CLEANUP_INTERVAL";

fn known_sections() -> impl Iterator<Item = &'static str> {
    let process = SECTIONS.iter().map(|(name, _)| *name);
    process.chain(APPLIED_SECTIONS).chain(["expire", "once"]).chain(LATER.iter().map(|(name, _)| *name))
}

/// Whether what stands at the top of the file is known there, and of the right form.
pub(super) fn check_sections(document: &Document) -> Vec<Diagnostic> {
    let mut wrong = Vec::new();
    for (name, value) in document.sections() {
        let at = |spot| document.place(&path(&[name]), spot);
        if let Some((_, what)) = LATER.iter().find(|(later, _)| later == name) {
            let verb = if what.contains("policies") { "run" } else { "support" };
            let message = format!("this version of Ebb does not {verb} {what} yet");
            wrong.push(Diagnostic::new(at(Spot::Value), message).hint("take it out"));
        } else if !known_sections().any(|known| known == name) {
            let hint = nearest(name, known_sections())
                .map_or_else(|| format!("known: {}", known_sections().collect::<Vec<_>>().join(", ")), did_you_mean);
            wrong.push(Diagnostic::new(at(Spot::Key), format!("unknown section `{name}`")).hint(hint));
        } else if name == "expire" {
            let tables = value.as_array().is_some_and(|items| items.iter().all(Value::is_object));
            if !tables {
                let diagnostic = Diagnostic::new(at(Spot::Value), "`expire` is a list of policies");
                wrong.push(diagnostic.hint("write [[expire]] with two brackets"));
            }
        } else if name == "once" {
            for (namespace, _) in value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_object()) {
                let place = document.place(&path(&["once", namespace]), Spot::Key);
                wrong.push(Diagnostic::new(place, "a namespace is a section").hint("write [once.NAME] above it"));
            }
            if !value.is_object() {
                let diagnostic = Diagnostic::new(at(Spot::Value), "a namespace is a section with a name");
                wrong.push(diagnostic.hint("write [once.NAME]"));
            }
        } else if !value.is_object() {
            let diagnostic = Diagnostic::new(at(Spot::Value), format!("`{name}` is a section"));
            wrong.push(diagnostic.hint(format!("write [{name}]")));
        }
    }
    wrong
}

/// What variables can change, and the words that mark a variable as ours.
pub(super) fn targets(document: &Document) -> (Vec<Target>, Vec<&'static str>) {
    let section =
        |name: &str, scalars| Target { path: path(&[name]), label: format!("[{name}]"), stem: stem(name), scalars };
    let mut targets: Vec<Target> = SECTIONS.iter().map(|(name, scalars)| section(name, *scalars)).collect();
    targets.extend(APPLIED_SECTIONS.map(|name| section(name, Kind::Settings.scalars(name))));
    for entry in entries(document) {
        let (word, label) = match entry.kind {
            Kind::Once => ("ONCE", format!("[once.{}]", entry.name)),
            _ => ("EXPIRE", format!("[[expire]] {}", entry.name)),
        };
        let (stem, scalars) = (format!("{word}_{}", stem(&entry.name)), entry.kind.scalars(&entry.name));
        targets.push(Target { path: entry.path, label, stem, scalars });
    }
    let prefixes = [
        "DATABASE",
        "HTTP",
        "LOG",
        "METRICS",
        "AUDIT",
        "NODE",
        "PACING",
        "KEEP",
        "EXPIRE",
        "ONCE",
        "RETAIN",
        "PARTITION",
        "RESOURCES",
        "SCHEDULE",
        "SINKS",
        "EVENTS",
    ];
    (targets, prefixes.to_vec())
}

/// Gives expire policies without a time of their own the interval that the environment names, so that what is stored
/// in the database does not depend on the environment any more.
pub(super) fn default_interval(document: &mut Document, env: &Env) {
    let Some(text) = env.get(INTERVAL) else { return };
    let canonical = text.parse::<Term>().map_or_else(|_| text.to_owned(), |term| term.to_string());
    let timeless = |spec: &Spec| !spec.contains_key("every") && !spec.contains_key("at");
    let paths: Vec<Vec<String>> =
        expire_entries(document).filter(|(_, spec)| timeless(spec)).map(|(at, _)| at).collect();
    for mut at in paths {
        at.push("every".into());
        document.set(&at, canonical.as_str().into(), INTERVAL);
    }
}

fn expire_entries(document: &Document) -> impl Iterator<Item = (Vec<String>, &Spec)> {
    let items = document.get(&["expire"]).and_then(Value::as_array).into_iter().flatten().enumerate();
    items.filter_map(|(i, item)| Some((path(&["expire", &i.to_string()]), item.as_object()?)))
}

/// An entry that has a name.
struct Entry<'a> {
    kind: Kind,
    name: String,
    path: Vec<String>,
    spec: &'a Spec,
}

fn entries(document: &Document) -> Vec<Entry<'_>> {
    let expire = expire_entries(document).filter_map(|(path, spec)| {
        let name = spec.get("name")?.as_str()?.to_owned();
        Some(Entry { kind: Kind::Expire, name, path, spec })
    });
    let once = document.get(&["once"]).and_then(Value::as_object).into_iter().flatten();
    let once = once.filter_map(|(name, spec)| {
        Some(Entry { kind: Kind::Once, name: name.clone(), path: path(&["once", name]), spec: spec.as_object()? })
    });
    let settings = APPLIED_SECTIONS.into_iter().filter_map(|name| {
        let spec = document.get(&[name])?.as_object()?;
        Some(Entry { kind: Kind::Settings, name: name.to_owned(), path: path(&[name]), spec })
    });
    expire.chain(once).chain(settings).collect()
}

/// Reads all entries; what is wrong with them goes to `wrong`.
pub(super) fn read(document: &Document, wrong: &mut Vec<Diagnostic>) -> Vec<PolicySpec> {
    for (at, spec) in expire_entries(document).filter(|(_, spec)| !spec.get("name").is_some_and(Value::is_string)) {
        let message = if spec.contains_key("name") { "`name` must be a text in quotes" } else { "`name` is missing" };
        let at = [at, path(&["name"])].concat();
        wrong.push(Diagnostic::new(document.place(&at, Spot::Value), message).hint("for example name = \"old-keys\""));
    }
    let entries = entries(document);
    wrong.extend(same_names(document, &entries));
    let mut policies = Vec::new();
    for Entry { kind, name, path, spec } in entries {
        let mut spec = spec.clone();
        if kind == Kind::Expire {
            spec.remove("name");
        }
        match Policy::parse(kind, &name, &spec) {
            Ok(policy) => policies.push(PolicySpec { kind, name, spec, policy, line: document.line(&path) }),
            Err(errors) => wrong.extend(located(document, &path, errors)),
        }
    }
    policies.sort_by_key(|policy| policy.line.unwrap_or(usize::MAX));
    policies
}

/// Two policies of one name, at both lines. Namespaces have names of their own.
fn same_names(document: &Document, entries: &[Entry<'_>]) -> Vec<Diagnostic> {
    let named = || entries.iter().filter(|entry| entry.kind == Kind::Expire);
    let place = |entry: &Entry<'_>| document.place(&[&entry.path[..], &path(&["name"])].concat(), Spot::Value);
    let mut wrong = Vec::new();
    for (i, again) in named().enumerate() {
        let Some(first) = named().take(i).find(|first| first.name == again.name) else { continue };
        let mut diagnostic = Diagnostic::new(place(again), format!("two policies are called `{}`", again.name));
        if let Place::File(span) = place(first) {
            diagnostic.other = Some((span, "first here"));
        }
        wrong.push(diagnostic.hint("and again here; a name is unique over all policies"));
    }
    wrong
}

/// A batch must end before its lease does.
pub(super) fn check_lease(document: &Document, node: &NodeSettings, policies: &[PolicySpec]) -> Vec<Diagnostic> {
    let mut wrong = Vec::new();
    for (at, spec) in expire_entries(document) {
        let name = spec.get("name").and_then(Value::as_str);
        let found = policies.iter().find(|policy| policy.kind == Kind::Expire && Some(policy.name.as_str()) == name);
        let Some(Policy::Expire(expire)) = found.map(|found| &found.policy) else { continue };
        if expire.batch_timeout < node.lease {
            continue;
        }
        let timeout = [at, path(&["batch", "timeout"])].concat();
        let explicit = spec.get("batch").and_then(|batch| batch.get("timeout")).is_some();
        let blame = if explicit { timeout } else { path(&["node", "lease"]) };
        let (name, batch, lease) = (&expire.name, human(expire.batch_timeout), human(node.lease));
        let message = format!("a batch of `{name}` may take {batch}, but its lease ends after {lease}");
        let diagnostic = Diagnostic::new(document.place(&blame, Spot::Value), message);
        wrong.push(diagnostic.hint("`lease` of [node] must be longer than any batch timeout"));
    }
    wrong
}
