//! The entries that `ebb apply` brings to the database: policies, namespaces, sinks and settings.
//! Invariant: what is not known there is refused at its line instead of being left undone in silence.

use serde_json::Value;

use super::diagnostic::{Diagnostic, Place};
use super::document::Document;
use super::env::{Env, Target, stem};
use super::settings::{NodeSettings, SECTIONS};
use super::{PolicySpec, located, path};
use crate::policy::{Form, Kind, Policy, Spec, Spot, Term, did_you_mean, human, nearest};

/// The variable that services with a cleanup ticker of their own already set.
const INTERVAL: &str = "IDEMPOTENCY_CLEANUP_INTERVAL";

/// The sections of `ebb apply`, each with its kind.
fn applied_sections() -> impl Iterator<Item = (&'static str, Kind)> {
    Kind::ALL.into_iter().flat_map(|kind| kind.form().sections().into_iter().map(move |section| (section, kind)))
}

fn known_sections() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().map(|(name, _)| *name).chain(applied_sections().map(|(section, _)| section))
}

/// Whether what stands at the top of the file is known there, and of the right form.
pub(super) fn check_sections(document: &Document) -> Vec<Diagnostic> {
    let mut wrong = Vec::new();
    for (name, value) in document.sections() {
        let at = |spot| document.place(&path(&[name]), spot);
        if !known_sections().any(|known| known == name) {
            let hint = nearest(name, known_sections())
                .map_or_else(|| format!("known: {}", known_sections().collect::<Vec<_>>().join(", ")), did_you_mean);
            wrong.push(Diagnostic::new(at(Spot::Key), format!("unknown section `{name}`")).hint(hint));
            continue;
        }
        let kind = applied_sections().find(|(section, _)| *section == name).map(|(_, kind)| kind);
        match kind.map(Kind::form) {
            Some(Form::List(_)) if !value.as_array().is_some_and(|items| items.iter().all(Value::is_object)) => {
                let diagnostic = Diagnostic::new(at(Spot::Value), format!("`{name}` is a list of policies"));
                wrong.push(diagnostic.hint(format!("write [[{name}]] with two brackets")));
            }
            Some(Form::List(_)) => {}
            Some(Form::Named(_)) => wrong.extend(check_named(document, name, value)),
            Some(Form::Sections(_)) | None if !value.is_object() => {
                let diagnostic = Diagnostic::new(at(Spot::Value), format!("`{name}` is a section"));
                wrong.push(diagnostic.hint(format!("write [{name}]")));
            }
            Some(Form::Sections(_)) | None => {}
        }
    }
    wrong
}

/// `[once.NAME]`: everything below `once` is a section.
fn check_named(document: &Document, section: &str, value: &Value) -> Vec<Diagnostic> {
    let what = if section == "once" { "a namespace" } else { "a sink" };
    let Some(entries) = value.as_object() else {
        let place = document.place(&path(&[section]), Spot::Value);
        let diagnostic = Diagnostic::new(place, format!("{what} is a section with a name"));
        return vec![diagnostic.hint(format!("write [{section}.NAME]"))];
    };
    let misplaced = entries.iter().filter(|(_, value)| !value.is_object()).map(|(name, _)| {
        let place = document.place(&path(&[section, name]), Spot::Key);
        Diagnostic::new(place, format!("{what} is a section")).hint(format!("write [{section}.NAME] above it"))
    });
    misplaced.collect()
}

/// What variables can change, and the words that mark a variable as ours.
pub(super) fn targets(document: &Document) -> (Vec<Target>, Vec<String>) {
    let section =
        |name: &str, scalars| Target { path: path(&[name]), label: format!("[{name}]"), stem: stem(name), scalars };
    let mut targets: Vec<Target> = SECTIONS.iter().map(|(name, scalars)| section(name, *scalars)).collect();
    let settings = applied_sections().filter(|(_, kind)| *kind == Kind::Settings);
    targets.extend(settings.map(|(name, kind)| section(name, kind.scalars(name))));
    for entry in entries(document) {
        let heading = entry.kind.heading(&entry.name);
        let (word, label) = match entry.kind.form() {
            Form::List(section) => (section, format!("{heading} {}", entry.name)),
            Form::Named(section) => (section, heading),
            Form::Sections(_) => continue,
        };
        let (stem, scalars) = (format!("{}_{}", stem(word), stem(&entry.name)), entry.kind.scalars(&entry.name));
        targets.push(Target { path: entry.path, label, stem, scalars });
    }
    (targets, known_sections().map(stem).collect())
}

/// Gives expire policies without a time of their own the interval that the environment names, so that what is stored
/// in the database does not depend on the environment any more.
pub(super) fn default_interval(document: &mut Document, env: &Env) {
    let Some(text) = env.get(INTERVAL) else { return };
    let canonical = text.parse::<Term>().map_or_else(|_| text.to_owned(), |term| term.to_string());
    let timeless = |spec: &Spec| !spec.contains_key("every") && !spec.contains_key("at");
    let paths: Vec<Vec<String>> =
        listed(document, "expire").filter(|(_, spec)| timeless(spec)).map(|(at, _)| at).collect();
    for mut at in paths {
        at.push("every".into());
        document.set(&at, canonical.as_str().into(), INTERVAL);
    }
}

/// The entries of a list, with or without names.
fn listed<'a>(document: &'a Document, section: &'static str) -> impl Iterator<Item = (Vec<String>, &'a Spec)> {
    let items = document.get(&[section]).and_then(Value::as_array).into_iter().flatten().enumerate();
    items.filter_map(move |(i, item)| Some((path(&[section, &i.to_string()]), item.as_object()?)))
}

/// An entry that has a name.
struct Entry<'a> {
    kind: Kind,
    name: String,
    path: Vec<String>,
    spec: &'a Spec,
}

fn entries(document: &Document) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    for kind in Kind::ALL {
        match kind.form() {
            Form::List(section) => entries.extend(listed(document, section).filter_map(|(path, spec)| {
                let name = spec.get("name")?.as_str()?.to_owned();
                Some(Entry { kind, name, path, spec })
            })),
            Form::Named(section) => {
                let named = document.get(&[section]).and_then(Value::as_object).into_iter().flatten();
                entries.extend(named.filter_map(|(name, spec)| {
                    Some(Entry { kind, name: name.clone(), path: path(&[section, name]), spec: spec.as_object()? })
                }));
            }
            Form::Sections(sections) => entries.extend(sections.iter().filter_map(|name| {
                let spec = document.get(&[name])?.as_object()?;
                Some(Entry { kind, name: (*name).to_owned(), path: path(&[name]), spec })
            })),
        }
    }
    entries
}

/// Reads all entries; what is wrong with them goes to `wrong`.
pub(super) fn read(document: &Document, wrong: &mut Vec<Diagnostic>) -> Vec<PolicySpec> {
    let lists = Kind::ALL.into_iter().filter_map(|kind| match kind.form() {
        Form::List(section) => Some(section),
        _ => None,
    });
    let nameless = lists.flat_map(|section| listed(document, section));
    for (at, spec) in nameless.filter(|(_, spec)| !spec.get("name").is_some_and(Value::is_string)) {
        let message = if spec.contains_key("name") { "`name` must be a text in quotes" } else { "`name` is missing" };
        let at = [at, path(&["name"])].concat();
        wrong.push(Diagnostic::new(document.place(&at, Spot::Value), message).hint("for example name = \"old-keys\""));
    }
    let entries = entries(document);
    wrong.extend(same_names(document, &entries));
    let mut policies = Vec::new();
    for Entry { kind, name, path, spec } in entries {
        let mut spec = spec.clone();
        if kind.is_work() {
            spec.remove("name");
        }
        match Policy::parse(kind, &name, &spec) {
            Ok(policy) => {
                let line_of = |key: &String| {
                    Some((key.clone(), document.line(&[&path[..], std::slice::from_ref(key)].concat())?))
                };
                let key_lines = spec.keys().filter_map(line_of).collect();
                policies.push(PolicySpec { kind, name, spec, policy, line: document.line(&path), key_lines });
            }
            Err(errors) => wrong.extend(located(document, &path, errors)),
        }
    }
    policies.sort_by_key(|policy| policy.line.unwrap_or(usize::MAX));
    policies
}

/// Two policies of one name, at both lines. Namespaces and sinks have names of their own.
fn same_names(document: &Document, entries: &[Entry<'_>]) -> Vec<Diagnostic> {
    let named = || entries.iter().filter(|entry| entry.kind.is_work());
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
    for (at, spec) in listed(document, "expire") {
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
