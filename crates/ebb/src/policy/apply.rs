//! `ebb apply`: the file against the database, as a difference. Invariants: nothing is stored unless everything is
//! right; applying twice changes nothing; a change made at runtime is not overwritten unasked; what is gone from the
//! file is disabled, never deleted.

use serde_json::Value;
use sqlx::PgConnection;

use super::store::{self, Put, Source, Stored};
use super::{Kind, Policy, Spec};
use crate::{Error, Result};

/// A policy that the file has.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// What sort.
    pub kind: Kind,
    /// What it is called.
    pub name: String,
    /// Its keys.
    pub spec: Spec,
    /// What they mean.
    pub policy: Policy,
}

/// One line of the difference.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Change {
    /// What sort.
    pub kind: Kind,
    /// What it is called.
    pub name: String,
    /// What becomes of it.
    pub action: ChangeAction,
    /// The keys that differ: (key, before, after).
    pub keys: Vec<(String, Option<Value>, Option<Value>)>,
    /// The database's version was changed at runtime, by this person, after the file was applied.
    pub overwrites: Option<String>,
}

impl Change {
    /// Whether the policy is gone from the file.
    pub fn is_disable(&self) -> bool {
        self.action == ChangeAction::Disable
    }
}

/// What becomes of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ChangeAction {
    /// It is new.
    Create,
    /// Its keys change, or it is enabled again.
    Update,
    /// It was stopped by a node, and starts again.
    Restart,
    /// It is gone from the file.
    Disable,
}

/// What differs between the file and the database.
pub fn difference(wanted: &[Wanted], stored: &[Stored]) -> Vec<Change> {
    let mut changes = Vec::new();
    for want in wanted {
        let Some(have) = stored.iter().find(|have| have.kind == want.kind && have.name == want.name) else {
            let keys = want.spec.iter().map(|(key, value)| (key.clone(), None, Some(value.clone()))).collect();
            changes.push(change(want.kind, &want.name, ChangeAction::Create, keys, None));
            continue;
        };
        let keys = keys_that_differ(&have.spec, &want.spec);
        let overwrites = (have.source == "runtime" && !keys.is_empty())
            .then(|| have.written_by.as_ref().unwrap_or(&have.changed_by).clone());
        if !keys.is_empty() || have.enabled != want.policy.enabled() {
            changes.push(change(want.kind, &want.name, ChangeAction::Update, keys, overwrites));
        } else if have.stopped.is_some() {
            changes.push(change(want.kind, &want.name, ChangeAction::Restart, keys, None));
        }
    }
    for have in stored.iter().filter(|have| have.enabled) {
        if !wanted.iter().any(|want| have.kind == want.kind && have.name == want.name) {
            let overwrites =
                (have.source == "runtime").then(|| have.written_by.as_ref().unwrap_or(&have.changed_by).clone());
            changes.push(change(have.kind, &have.name, ChangeAction::Disable, Vec::new(), overwrites));
        }
    }
    changes
}

fn change(
    kind: Kind,
    name: &str,
    action: ChangeAction,
    keys: Vec<(String, Option<Value>, Option<Value>)>,
    overwrites: Option<String>,
) -> Change {
    Change { kind, name: name.to_owned(), action, keys, overwrites }
}

fn keys_that_differ(before: &Spec, after: &Spec) -> Vec<(String, Option<Value>, Option<Value>)> {
    let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter()
        .filter(|key| before.get(*key) != after.get(*key))
        .map(|key| (key.clone(), before.get(key).cloned(), after.get(key).cloned()))
        .collect()
}

/// Refuses to overwrite what was changed at runtime.
pub fn overwrites_nothing(changes: &[Change]) -> Result<()> {
    let Some((name, who)) = changes.iter().find_map(|c| Some((&c.name, c.overwrites.as_ref()?))) else { return Ok(()) };
    Err(Error::refused(format!("policy {name} was changed at runtime by {who} since it was applied"))
        .with_hint("take the change into the file (`ebb policy show` prints it), or overwrite it with --force"))
}

/// Makes the database's policies those of the file. The caller has validated every one against the catalog in this
/// transaction and commits it.
pub(crate) async fn apply(
    connection: &mut PgConnection,
    wanted: &[Wanted],
    force: bool,
    by: &str,
) -> Result<Vec<Change>> {
    store::lock(connection).await?;
    let stored = store::all(connection).await?;
    let changes = difference(wanted, &stored);
    if !force {
        overwrites_nothing(&changes)?;
    }
    for change in &changes {
        let want = wanted.iter().find(|want| want.kind == change.kind && want.name == change.name);
        let have = stored.iter().find(|have| have.kind == change.kind && have.name == change.name);
        let (spec, enabled) = match (want, have) {
            (Some(want), _) => (&want.spec, want.policy.enabled()),
            (None, Some(have)) => (&have.spec, false),
            (None, None) => continue,
        };
        let put = Put { kind: change.kind, name: &change.name, spec, enabled, stopped: None, source: Source::File, by };
        store::put(connection, put).await?;
    }
    Ok(changes)
}
