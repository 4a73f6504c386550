//! Policies in the database. Invariants: every change has a version, an author, a line of history and an audit record,
//! all in one transaction; a node that looks afterwards sees all of it.

use serde_json::Value;
use sqlx::PgConnection;

use super::{Kind, Policy, Spec};
use crate::audit::{Entry, Moment};
use crate::{Error, Result, sql};

/// A policy as it is stored.
#[derive(Debug, Clone, PartialEq, serde::Serialize, sqlx::FromRow)]
pub struct Stored {
    /// What sort.
    #[sqlx(try_from = "String")]
    pub kind: Kind,
    /// What it is called.
    pub name: String,
    /// Its keys, as in the file.
    #[sqlx(json)]
    pub spec: Spec,
    /// Whether nodes follow it.
    pub enabled: bool,
    /// Grows with every change.
    pub version: i64,
    /// `file`, `runtime` or `ebb`.
    pub source: String,
    /// Why a node stopped it.
    pub stopped: Option<String>,
    /// When it was changed last.
    pub changed_at: Moment,
    /// By whom, as they said.
    pub changed_by: String,
    /// Who gave it the keys that it has, at runtime; a node may have stopped it since.
    #[sqlx(default)]
    #[serde(skip)]
    pub written_by: Option<String>,
}

impl Stored {
    /// One that is not stored yet and says nothing.
    pub(crate) fn new(kind: Kind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            spec: Spec::new(),
            enabled: true,
            version: 0,
            source: "runtime".into(),
            stopped: None,
            changed_at: Moment::NEG_INFINITY,
            changed_by: String::new(),
            written_by: None,
        }
    }

    /// The policy it stands for.
    pub fn policy(&self) -> Result<Policy> {
        Policy::parse(self.kind, &self.name, &self.spec)
            .map_err(|errors| Error::config(format!("policy {}: {errors}", self.name)))
    }

    /// Whether nodes work on it: enabled and not stopped.
    pub fn is_active(&self) -> bool {
        self.enabled && self.stopped.is_none()
    }
}

/// Where a change comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// `ebb apply`.
    File,
    /// `ebb policy set` and the like.
    Runtime,
    /// A node that had to stop it.
    Ebb,
}

impl Source {
    fn as_str(self) -> &'static str {
        match self {
            Source::File => "file",
            Source::Runtime => "runtime",
            Source::Ebb => "ebb",
        }
    }
}

/// A change to store.
#[derive(Debug, Clone)]
pub(crate) struct Put<'a> {
    pub(crate) kind: Kind,
    pub(crate) name: &'a str,
    pub(crate) spec: &'a Spec,
    pub(crate) enabled: bool,
    pub(crate) stopped: Option<&'a str>,
    pub(crate) source: Source,
    pub(crate) by: &'a str,
}

/// Every policy there is.
pub async fn all(connection: &mut PgConnection) -> Result<Vec<Stored>> {
    Ok(sql!("all" as Stored).fetch_all(connection).await?)
}

/// The policy of a name; names of `[once.X]`, `[sinks.X]` and settings are found too when nothing else has them.
pub async fn find(connection: &mut PgConnection, name: &str) -> Result<Stored> {
    let stored = all(connection).await?;
    let of = |work: bool| stored.iter().find(|policy| policy.name == name && policy.kind.is_work() == work);
    if let Some(found) = of(true).or_else(|| of(false)) {
        return Ok(found.clone());
    }
    let error = Error::unknown(format!("there is no policy {name}"));
    Err(match super::nearest(name, stored.iter().map(|policy| policy.name.as_str())) {
        Some(near) => error.with_hint(super::did_you_mean(near)),
        None => error.with_hint("`ebb policy list` shows them"),
    })
}

/// Every version of a policy, newest first.
pub async fn history(connection: &mut PgConnection, name: &str) -> Result<Vec<Stored>> {
    Ok(sql!("history" as Stored).bind(name).fetch_all(connection).await?)
}

/// Only one transaction changes policies at a time.
pub(crate) async fn lock(connection: &mut PgConnection) -> Result<()> {
    sql!("lock").execute(connection).await?;
    Ok(())
}

/// Stores a change with history and record; returns the version.
pub(crate) async fn put(connection: &mut PgConnection, change: Put<'_>) -> Result<i64> {
    let version = sql!("put" scalar i64)
        .bind(change.kind.as_str())
        .bind(change.name)
        .bind(Value::Object(change.spec.clone()))
        .bind(change.enabled)
        .bind(change.source.as_str())
        .bind(change.by)
        .bind(change.stopped)
        .fetch_one(&mut *connection)
        .await?;
    let mut entry = Entry::new("policy", change.by);
    entry.policy = Some(change.name.to_owned());
    entry.policy_version = Some(version);
    entry.details = serde_json::json!({
        "kind": change.kind.as_str(), "spec": change.spec, "enabled": change.enabled, "stopped": change.stopped,
    });
    entry.insert(&mut *connection).await?;
    crate::control::notify(connection).await?;
    Ok(version)
}

/// A node cannot go on with a policy: it is stopped with the reason, at the version the node saw.
pub(crate) async fn stop(connection: &mut PgConnection, stored: &Stored, reason: &str, node: &str) -> Result<()> {
    lock(connection).await?;
    let current = all(connection).await?;
    let unchanged = current.iter().any(|policy| {
        policy.kind == stored.kind
            && policy.name == stored.name
            && policy.version == stored.version
            && policy.stopped.is_none()
    });
    if !unchanged {
        return Ok(());
    }
    let change = Put {
        kind: stored.kind,
        name: &stored.name,
        spec: &stored.spec,
        enabled: stored.enabled,
        stopped: Some(reason),
        // What was changed at runtime stays a runtime change: the next apply must not overwrite it unasked.
        source: if stored.source == Source::Runtime.as_str() { Source::Runtime } else { Source::Ebb },
        by: node,
    };
    put(connection, change).await?;
    Ok(())
}
