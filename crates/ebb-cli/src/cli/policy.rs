//! `ebb policy`: what the database says the rules are, who changed them, and changing them without a deploy.

mod overrides;

use std::collections::BTreeSet;

use ebb::audit::Moment;
use ebb::control::{self, Pause};
use ebb::policy::{self, Kind, Spec, Stored};
use ebb::retain::{Consent, TreeChange};
use ebb::{Error, Result};
use serde::Serialize;
use serde_json::Value;

use super::{Context, Outcome, output};

/// What to do with policies.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List every policy, namespace and setting of the database.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a policy as it would stand in ebb.toml.
    Show {
        /// Its name.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Change keys of a policy at runtime; running nodes follow within seconds.
    Set(SetArgs),
    /// Give a tenant terms of its own, or show those there are.
    Override(overrides::Args),
    /// Show who changed what, newest first.
    History {
        /// Its name.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Options of `ebb policy set`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb policy set lineage-keys every=30m batch.rows=5000\n  \
    ebb policy set lineage-keys mode=observe --by alice\n  ebb policy set lineage-keys older_than= brake.rows=\n\n\
    `ebb apply` does not overwrite such a change without --force; take it into the file with `ebb policy show`.")]
pub(crate) struct SetArgs {
    /// Its name; `pacing` and `keep` are settings.
    name: String,
    /// Keys of ebb.toml and their values; an empty value removes the key.
    #[arg(value_name = "KEY=VALUE", required_unless_present = "unset")]
    changes: Vec<String>,
    /// Remove a key, so that its default holds.
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
    /// Show what differs and what the change would make due, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Agree to what the change makes due.
    #[arg(long, short)]
    yes: bool,
    /// Why a floor goes down; only whoever owns the ebb schema may lower one.
    #[arg(long)]
    reason: Option<String>,
    /// Who makes the change, for history and audit.
    #[arg(long)]
    by: Option<String>,
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<Outcome> {
    match command {
        Command::List { json } => list(context, json).await,
        Command::Show { name, json } => show(context, &name, json).await,
        Command::Set(args) => set(context, args).await,
        Command::Override(args) => overrides::run(context, args).await,
        Command::History { name, json } => history(context, &name, json).await,
    }
}

#[derive(Serialize)]
struct Listed {
    name: String,
    kind: Kind,
    state: &'static str,
    version: i64,
    source: String,
    changed_at: Moment,
    changed_by: String,
    stopped: Option<String>,
    spec: Spec,
}

async fn list(context: &Context, json: bool) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    let stored = policy::store::all(&mut tx).await?;
    let paused = control::pauses(&mut tx).await?;
    tx.commit().await?;
    let listed: Vec<Listed> = stored.into_iter().map(|stored| Listed::new(stored, &paused)).collect();
    if json {
        output::json(&listed)?;
        return Ok(Outcome::Done);
    }
    let rows = listed
        .iter()
        .map(|policy| {
            vec![
                policy.name.clone(),
                policy.kind.to_string(),
                policy.state.to_owned(),
                policy.version.to_string(),
                policy.about(),
                output::time(policy.changed_at),
                policy.changed_by.clone(),
            ]
        })
        .collect();
    let header = ["name", "kind", "state", "version", "about", "changed", "by"];
    output::table(&header, rows, "there are no policies yet; write them in ebb.toml and run `ebb apply`");
    for policy in listed.iter().filter(|policy| policy.stopped.is_some()) {
        say!("{} was stopped: {}", policy.name, policy.stopped.as_deref().unwrap_or_default());
    }
    if let Some(pause) = paused.iter().find(|pause| pause.name == control::ALL) {
        let reason = pause.reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
        say!("everything is paused by {}{reason}: ebb resume", pause.paused_by);
    }
    Ok(Outcome::Done)
}

impl Listed {
    fn new(stored: Stored, paused: &[Pause]) -> Self {
        let state = state(&stored, paused);
        let Stored { kind, name, spec, version, source, stopped, changed_at, changed_by, .. } = stored;
        Self { name, kind, state, version, source, changed_at, changed_by, stopped, spec }
    }

    /// What it is about, in a few words.
    fn about(&self) -> String {
        let text = |key: &str| self.spec.get(key).and_then(Value::as_str);
        match self.kind {
            Kind::Once => format!("ttl {}", text("ttl").unwrap_or("24h")),
            Kind::Settings => self.spec.keys().cloned().collect::<Vec<_>>().join(", "),
            Kind::Sink => text("type").unwrap_or_default().to_owned(),
            _ => text("table").unwrap_or_default().to_owned(),
        }
    }
}

fn state(stored: &Stored, paused: &[Pause]) -> &'static str {
    if stored.stopped.is_some() {
        "stopped"
    } else if !stored.enabled {
        "disabled"
    } else if stored.kind.is_work()
        && paused.iter().any(|pause| pause.name == control::ALL || pause.name == stored.name)
    {
        "paused"
    } else if stored.spec.get("mode").and_then(Value::as_str) == Some("observe") {
        "observe"
    } else {
        "active"
    }
}

async fn show(context: &Context, name: &str, json: bool) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    let stored = policy::store::find(&mut tx, name).await?;
    let paused = control::pauses(&mut tx).await?;
    tx.commit().await?;
    if json {
        output::json(&Listed::new(stored, &paused))?;
        return Ok(Outcome::Done);
    }
    say!("# version {}, {}", stored.version, changed(&stored));
    say!("# state: {}", state(&stored, &paused));
    if let Some(reason) = &stored.stopped {
        say!("# stopped: {}", reason.replace('\n', " "));
    }
    say!("{}", block(&stored));
    Ok(Outcome::Done)
}

fn changed(stored: &Stored) -> String {
    let from = match stored.source.as_str() {
        "file" => "from the file",
        "runtime" => "at runtime",
        _ => "by a node",
    };
    format!("changed {} {from} by {}", output::time(stored.changed_at), stored.changed_by)
}

/// The policy as it would stand in the file.
fn block(stored: &Stored) -> String {
    let mut lines = vec![stored.kind.heading(&stored.name)];
    if stored.kind.is_work() {
        lines.push(format!("name = {}", toml(&stored.name.clone().into())));
    }
    let mut keys: Vec<&String> = stored.spec.keys().collect();
    keys.sort_by_key(|key| (ORDER.iter().position(|known| known == key).unwrap_or(ORDER.len()), *key));
    lines.extend(keys.into_iter().map(|key| format!("{key} = {}", toml(&stored.spec[key]))));
    // Disabled because the file no longer had it: pasted back as it is, it would be switched on.
    if !stored.enabled && !stored.spec.contains_key("enabled") {
        lines.push("enabled = false".into());
    }
    lines.join("\n")
}

/// The order people write keys in; the database keeps none.
const ORDER: [&str; 21] = [
    "description",
    "table",
    "column",
    "unit",
    "older_than",
    "where",
    "zone",
    "action",
    "every",
    "at",
    "window",
    "batch",
    "rows",
    "pause",
    "timeout",
    "mode",
    "brake",
    "audit",
    "role",
    "ttl",
    "enabled",
];

/// A JSON value in TOML's words.
fn toml(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let mut keys: Vec<&String> = table.keys().collect();
            keys.sort_by_key(|key| (ORDER.iter().position(|known| known == key).unwrap_or(ORDER.len()), *key));
            let pairs: Vec<String> =
                keys.into_iter().map(|key| format!("{} = {}", bare(key), toml(&table[key]))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        // JSON's escapes are TOML's too, but for one character that only TOML wants escaped.
        Value::String(_) => value.to_string().replace('\u{7f}', "\\u007f"),
        other => other.to_string(),
    }
}

fn bare(key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if plain { key.to_owned() } else { toml(&key.into()) }
}

async fn set(context: &Context, args: SetArgs) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    context.must_be_admin(&mut tx).await?;
    let before = match policy::store::find(&mut tx, &args.name).await {
        Ok(stored) => Some(stored),
        // Settings that nobody has written yet can be set all the same.
        Err(_) if matches!(args.name.as_str(), "pacing" | "keep") => None,
        Err(error) => return Err(error),
    };
    tx.commit().await?;
    let kind = before.as_ref().map_or(Kind::Settings, |stored| stored.kind);
    let changes = changes(kind, &args)?;
    let consent = Consent { confirmed: args.yes || args.dry_run, reason: args.reason.clone() };
    let by = context.by(args.by.as_deref());
    let changed = context.engine.change_keys_as_admin(&args.name, &changes, &by, &consent, args.dry_run).await?;
    let (after, version) = (&changed.policy, changed.policy.version);
    if before.as_ref().is_some_and(|before| before.version == version) {
        say!("{} is like that already (version {version})", args.name);
        return Ok(Outcome::Done);
    }
    if !args.dry_run {
        say!("{} is at version {version}", args.name);
    }
    for change in differences(before.as_ref(), after) {
        say!("    {change}");
    }
    if let Some(due) = &changed.made_due {
        if args.dry_run && due.asks() {
            say!("! {due}");
        }
        print_sooner(due.sooner, args.dry_run);
    }
    print_trees(&changed.trees, args.dry_run);
    if args.dry_run {
        changed.moved.iter().for_each(|moved| say!("! {moved}; --yes agrees to that"));
        say!("nothing was changed");
        return Ok(Outcome::Done);
    }
    let mut tx = context.begin().await?;
    let nodes = control::nodes(&mut tx).await?.len();
    tx.commit().await?;
    if !after.enabled {
        say!("it is disabled; switch it on with: ebb policy set {} enabled=true", args.name);
    }
    if nodes == 0 {
        say!("no node is alive at the moment; those that start will follow it");
    }
    Ok(Outcome::Done)
}

/// Open deletions that a change brings nearer, where there are any.
fn print_sooner(deletions: u64, rehearsed: bool) {
    if deletions > 0 {
        let are = if rehearsed {
            "would be"
        } else if deletions == 1 {
            "is"
        } else {
            "are"
        };
        say!("{} {are} due sooner by it", output::plural(deletions, "deletion"));
    }
}

/// Trees of other policies that a change changes, and whether somebody has to see to them.
fn print_trees(trees: &[TreeChange], rehearsed: bool) {
    for tree in trees {
        say!("! {tree}");
        match (tree.approved, rehearsed) {
            (true, true) => say!("    --yes approves that"),
            (true, false) => say!("    approved with this change"),
            (false, _) => say!("    {} is stopped then until `ebb apply` approves it", tree.policy),
        }
    }
}

/// What was typed, as a spec in which null removes.
fn changes(kind: Kind, args: &SetArgs) -> Result<Spec> {
    let mut changes = Spec::new();
    let mut seen = BTreeSet::new();
    let mut put = |key: &str, value: Value| -> Result<()> {
        if key.is_empty() || key.split('.').any(str::is_empty) {
            return Err(Error::usage(format!("{key:?} is no key")).with_hint("write KEY=VALUE, for example every=30m"));
        }
        if !seen.insert(key.to_owned()) {
            return Err(Error::usage(format!("{key} is given twice")));
        }
        insert(&mut changes, key, value)
    };
    for text in &args.changes {
        let Some((key, value)) = text.split_once('=') else {
            return Err(Error::usage(format!("{text:?} is not KEY=VALUE"))
                .with_hint(format!("for example every=30m; to remove a key: {text}= or --unset {text}")));
        };
        let (key, value) = (key.trim(), value.trim());
        let value = if value.is_empty() { Value::Null } else { kind.value(&args.name, key, value) };
        put(key, value)?;
    }
    for key in &args.unset {
        put(key.trim(), Value::Null)?;
    }
    Ok(changes)
}

/// `batch.rows` is `rows` inside `batch`.
fn insert(spec: &mut Spec, key: &str, value: Value) -> Result<()> {
    let Some((table, rest)) = key.split_once('.') else {
        spec.insert(key.to_owned(), value);
        return Ok(());
    };
    match spec.entry(table).or_insert_with(|| Spec::new().into()) {
        Value::Object(inner) => insert(inner, rest, value),
        _ => Err(Error::usage(format!("{table} and {key} contradict each other"))),
    }
}

/// One difference between two versions.
#[derive(Serialize)]
struct Difference {
    key: String,
    before: Option<Value>,
    after: Option<Value>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = |value: &Option<Value>| value.as_ref().map_or("(default)".to_owned(), toml);
        match (&self.before, &self.after) {
            (None, after) => write!(f, "{}: {}", self.key, word(after)),
            (before, after) => write!(f, "{}: {} -> {}", self.key, word(before), word(after)),
        }
    }
}

/// What changed from one version to the next; everything, for the first.
fn differences(before: Option<&Stored>, after: &Stored) -> Vec<Difference> {
    let none = Spec::new();
    let was = before.map_or(&none, |before| &before.spec);
    let keys: BTreeSet<&String> = was.keys().chain(after.spec.keys()).collect();
    let mut found: Vec<Difference> = keys
        .into_iter()
        .filter(|key| was.get(*key) != after.spec.get(*key))
        .map(|key| Difference { key: key.clone(), before: was.get(key).cloned(), after: after.spec.get(key).cloned() })
        .collect();
    let mut add = |key: &str, was: Option<Value>, is: Option<Value>| {
        if was != is && !found.iter().any(|difference| difference.key == key) {
            found.push(Difference { key: key.to_owned(), before: was, after: is });
        }
    };
    if let Some(before) = before {
        add("enabled", Some(before.enabled.into()), Some(after.enabled.into()));
    }
    let stopped = |stored: &Stored| stored.stopped.clone().map(Value::from);
    add("stopped", before.and_then(stopped), stopped(after));
    found
}

#[derive(Serialize)]
struct Version {
    kind: Kind,
    version: i64,
    changed_at: Moment,
    changed_by: String,
    source: String,
    enabled: bool,
    stopped: Option<String>,
    changes: Vec<Difference>,
    /// What was set for a tenant, where that made the version.
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    of_tenant: Option<serde_json::Value>,
    /// Why a floor went down with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    spec: Spec,
}

/// An override in words.
fn in_words(of_tenant: &serde_json::Value) -> String {
    let mut words = Vec::new();
    for (key, value) in of_tenant.as_object().into_iter().flatten() {
        match value {
            _ if key == "tenant" => {}
            serde_json::Value::Null => {}
            value if key == "unset" && value == true => words.push("the policy's again".to_owned()),
            value => words.push(format!("{key} = {}", toml(value))),
        }
    }
    let tenant = of_tenant.get("tenant").and_then(|tenant| tenant.as_str()).unwrap_or_default();
    format!("tenant {tenant}: {}", words.join(", "))
}

async fn history(context: &Context, name: &str, json: bool) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    let versions = policy::store::history(&mut tx, name).await?;
    let mut overrides = ebb::retain::override_history(&mut tx, name).await?;
    let mut floors = ebb::retain::floor_history(&mut tx, name).await?;
    if versions.is_empty() {
        policy::store::find(&mut tx, name).await?;
    }
    tx.commit().await?;
    let described: Vec<Version> = versions
        .iter()
        .enumerate()
        .map(|(i, stored)| {
            let before = versions.get(i + 1).filter(|before| before.kind == stored.kind);
            let changes = differences(before, stored);
            let Stored { kind, version, changed_at, changed_by, source, enabled, stopped, spec, .. } = stored.clone();
            let of_tenant = if kind == Kind::Retain { overrides.remove(&version) } else { None };
            let source = if of_tenant.is_some() { "runtime".to_owned() } else { source };
            let reason = floors.remove(&version);
            Version {
                kind,
                version,
                changed_at,
                changed_by,
                source,
                enabled,
                stopped,
                changes,
                of_tenant,
                reason,
                spec,
            }
        })
        .collect();
    if json {
        output::json(&described)?;
        return Ok(Outcome::Done);
    }
    for version in &described {
        let from = if version.source == "ebb" { "a node" } else { &version.source };
        say!("version {}  {}  {}  ({from})", version.version, output::time(version.changed_at), version.changed_by);
        for change in &version.changes {
            say!("    {change}");
        }
        if let Some(of_tenant) = &version.of_tenant {
            say!("    {}", in_words(of_tenant));
        }
        if let Some(reason) = &version.reason {
            say!("    a floor went down: {reason}");
        }
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_is_shown_as_the_file_would_have_it() {
        let spec = json!({
            "every": "1h", "table": "public.\"My \\ Keys\"", "column": "expires_at", "where": "a = 'x\ny'",
            "brake": { "share": 0.5, "rows": 10 }, "action": { "set": { "status": "'gone'" } },
        });
        let config =
            |text: &str| ebb::config::Config::from_str(text, "ebb.toml", &ebb::config::Env::default()).unwrap();
        let before = toml(&spec);
        assert!(before.starts_with("{ table = "), "{before}");
        let stored: Stored = stored(spec.clone());
        let read = config(&block(&stored)).policies.remove(0);
        assert_eq!((read.name.as_str(), Value::Object(read.spec)), ("k", spec));
    }

    fn stored(spec: Value) -> Stored {
        let Value::Object(spec) = spec else { panic!("a spec is an object") };
        Stored {
            kind: Kind::Expire,
            name: "k".into(),
            spec,
            enabled: true,
            version: 1,
            source: "file".into(),
            stopped: None,
            changed_at: Moment::from_micros(0),
            changed_by: "me".into(),
            written_by: None,
        }
    }

    #[test]
    fn typed_changes_reach_into_tables() {
        let parse = |changes: &[&str], unset: &[&str]| {
            let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            changes_of(own(changes), own(unset))
        };
        fn changes_of(changes: Vec<String>, unset: Vec<String>) -> Result<Spec> {
            super::changes(
                Kind::Expire,
                &SetArgs { name: "k".into(), changes, unset, dry_run: false, yes: false, reason: None, by: None },
            )
        }
        let spec =
            parse(&["batch.rows=50", "batch.pause=1s", "where=a = 'b=c'", "older_than="], &["brake.rows"]).unwrap();
        let expected = json!({ "batch": { "rows": 50, "pause": "1s" }, "where": "a = 'b=c'", "older_than": null,
            "brake": { "rows": null } });
        assert_eq!(Value::Object(spec), expected);
        for wrong in [&["every"][..], &["=1"], &["a..b=1"], &["every=1h", "every=2h"], &["batch=1", "batch.rows=2"]] {
            assert!(parse(wrong, &[]).unwrap_err().is_usage(), "{wrong:?}");
        }
    }
}
