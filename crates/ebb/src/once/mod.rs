//! once: inside a window an event is accepted once. The SQL functions of the `ebb` schema decide, so that every language
//! gets the same answer; this is their face in Rust.
//! Invariant: an outcome handed out here is committed, unless the caller brought the transaction.

mod shared;
mod store;

use std::time::Duration;

use serde_json::Value;
use sqlx::{PgConnection, Postgres, Transaction};

use crate::pg::{Database, Guard};
use crate::{Error, Result};

pub use shared::Shared;
pub use store::{remove_namespace, set_namespace};

/// How long a claim waits for another one of the same key whose transaction has not ended.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Claims of one namespace. Cheap to clone; options hold for every claim made through the handle.
#[derive(Debug, Clone)]
pub struct Once {
    database: Database,
    namespace: String,
    ttl: Option<Duration>,
    fingerprint: Option<Vec<u8>>,
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// Nobody claimed the key inside its window before: do the work.
    First,
    /// Somebody did; `result` is what they stored, if anything.
    Duplicate {
        /// What the first one stored for those who come after.
        result: Option<Value>,
    },
    /// Somebody is at it.
    InProgress,
    /// The key was claimed with another fingerprint: two different requests share a key.
    Mismatch,
}

/// The answer to a claim that announces a result.
#[derive(Debug, Clone)]
pub enum Begun {
    /// Do the work, then complete or release it.
    First(Work),
    /// Somebody did it; `result` is what they stored.
    Duplicate {
        /// What the first one stored for those who come after.
        result: Option<Value>,
    },
    /// Somebody is at it, and their lock term runs.
    InProgress,
    /// The key was claimed with another fingerprint.
    Mismatch,
}

/// A claim in flight: others are told so until the lock term ends, then one of them may take it over.
#[derive(Debug, Clone)]
pub struct Work {
    once: Box<Once>,
    key: String,
    token: i64,
}

impl Once {
    /// Claims in `namespace`, by its configured terms or the defaults (24 h, lock 1 min).
    pub fn new(database: Database, namespace: impl Into<String>) -> Self {
        Self { database, namespace: namespace.into(), ttl: None, fingerprint: None }
    }

    /// Claims last this long instead of the namespace's term.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// What the request was, for instance a hash of its body; the same key with another one is a mismatch.
    pub fn fingerprint(mut self, fingerprint: impl Into<Vec<u8>>) -> Self {
        self.fingerprint = Some(fingerprint.into());
        self
    }

    /// Claims a key in a transaction of its own.
    pub async fn claim(&self, key: &str) -> Result<Claim> {
        let mut tx = self.begin_transaction().await?;
        match self.claim_on(&mut tx, key).await {
            Ok(claim) => {
                tx.commit().await?;
                Ok(self.count(claim))
            }
            Err(error) => self.in_progress_if_waited(error).map(|()| self.count(Claim::InProgress)),
        }
    }

    /// Claims a key inside the caller's transaction: the claim stands when that commits and never was when it does not.
    /// An uncommitted claim of the same key is waited for, as long as the transaction's `lock_timeout` allows.
    pub async fn claim_in(&self, tx: &mut Transaction<'_, Postgres>, key: &str) -> Result<Claim> {
        Ok(self.count(self.claim_on(tx, key).await?))
    }

    /// Claims many keys at once, in a transaction of its own; returns those that were first. Repeats are harmless.
    pub async fn claim_many<K: AsRef<str>>(&self, keys: &[K]) -> Result<Vec<String>> {
        let mut tx = self.begin_transaction().await?;
        let first = self.claim_many_in(&mut tx, keys).await?;
        tx.commit().await?;
        Ok(first)
    }

    /// Claims many keys inside the caller's transaction; returns those that were first.
    pub async fn claim_many_in<K: AsRef<str>>(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        keys: &[K],
    ) -> Result<Vec<String>> {
        let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
        let first = store::claim_many(tx, &self.namespace, &keys, self.ttl).await?;
        self.add("first", first.len() as u64);
        self.add("duplicate", keys.len().saturating_sub(first.len()) as u64);
        Ok(first)
    }

    /// Claims a key for work whose result others will want: they are told that it is in progress, then get the result.
    pub async fn begin(&self, key: &str) -> Result<Begun> {
        let mut tx = self.begin_transaction().await?;
        let begun = match self.begin_on(&mut tx, key).await {
            Ok(begun) => {
                tx.commit().await?;
                begun
            }
            Err(error) => self.in_progress_if_waited(error).map(|()| Begun::InProgress)?,
        };
        self.add(begun.outcome(), 1);
        Ok(begun)
    }

    /// What the first one stored for this key, while its claim lives.
    pub async fn result(&self, key: &str) -> Result<Option<Value>> {
        let mut tx = self.begin_transaction().await?;
        let result = store::result(&mut tx, &self.namespace, key).await?;
        tx.commit().await?;
        Ok(result)
    }

    /// The claim in flight that another process began, for instance to complete it over HTTP by its token.
    pub fn work(&self, key: impl Into<String>, token: i64) -> Work {
        Work { once: Box::new(self.clone()), key: key.into(), token }
    }

    async fn claim_on(&self, tx: &mut PgConnection, key: &str) -> Result<Claim> {
        let outcome = store::claim(tx, &self.namespace, key, self.ttl, self.fingerprint.as_deref()).await?;
        match outcome.as_str() {
            "first" => Ok(Claim::First),
            "duplicate" => Ok(Claim::Duplicate { result: store::result(tx, &self.namespace, key).await? }),
            "in_progress" => Ok(Claim::InProgress),
            "mismatch" => Ok(Claim::Mismatch),
            other => Err(unknown_outcome(other)),
        }
    }

    async fn begin_on(&self, tx: &mut PgConnection, key: &str) -> Result<Begun> {
        let (outcome, token) = store::begin(tx, &self.namespace, key, self.ttl, self.fingerprint.as_deref()).await?;
        match (outcome.as_str(), token) {
            ("first", Some(token)) => Ok(Begun::First(self.work(key, token))),
            ("duplicate", _) => Ok(Begun::Duplicate { result: store::result(tx, &self.namespace, key).await? }),
            ("in_progress", _) => Ok(Begun::InProgress),
            ("mismatch", _) => Ok(Begun::Mismatch),
            (other, _) => Err(unknown_outcome(other)),
        }
    }

    async fn begin_transaction(&self) -> Result<Transaction<'static, Postgres>> {
        self.database.begin(Guard { lock: LOCK_WAIT, ..Guard::default() }).await
    }

    /// Whoever made us wait past the bound holds the key in a transaction that has not ended: that is in progress.
    fn in_progress_if_waited(&self, error: Error) -> Result<()> {
        match error.sqlstate().as_deref() {
            Some("55P03") => Ok(()),
            _ => Err(error),
        }
    }

    fn count(&self, claim: Claim) -> Claim {
        self.add(claim.outcome(), 1);
        claim
    }

    fn add(&self, outcome: &'static str, claims: u64) {
        if claims > 0 {
            metrics::counter!("ebb_once_total", "namespace" => self.namespace.clone(), "outcome" => outcome)
                .increment(claims);
        }
    }
}

impl Claim {
    /// The word for it in SQL, metrics and on the command line.
    pub fn outcome(&self) -> &'static str {
        match self {
            Claim::First => "first",
            Claim::Duplicate { .. } => "duplicate",
            Claim::InProgress => "in_progress",
            Claim::Mismatch => "mismatch",
        }
    }
}

impl Begun {
    /// The word for it in SQL, metrics and on the command line.
    pub fn outcome(&self) -> &'static str {
        match self {
            Begun::First(_) => "first",
            Begun::Duplicate { .. } => "duplicate",
            Begun::InProgress => "in_progress",
            Begun::Mismatch => "mismatch",
        }
    }
}

impl Work {
    /// The fencing token: unlike that of any other claim, and higher than that of any claim that ended before this one.
    pub fn token(&self) -> i64 {
        self.token
    }

    /// Stores the result and lets the claim last its whole term. `false`: somebody took the key over, and this result
    /// does not count. Asking again with the same result is harmless.
    pub async fn complete(&self, result: Option<&Value>) -> Result<bool> {
        let mut tx = self.once.begin_transaction().await?;
        let done = self.complete_in(&mut tx, result).await?;
        tx.commit().await?;
        Ok(done)
    }

    /// Completes inside the caller's transaction, together with what the work changed.
    pub async fn complete_in(&self, tx: &mut Transaction<'_, Postgres>, result: Option<&Value>) -> Result<bool> {
        store::complete(tx, &self.once.namespace, &self.key, self.token, result).await
    }

    /// Gives the key back, as if it had not been claimed. `false`: it is somebody else's, or completed.
    pub async fn release(&self) -> Result<bool> {
        let mut tx = self.once.begin_transaction().await?;
        let done = store::release(&mut tx, &self.once.namespace, &self.key, self.token).await?;
        tx.commit().await?;
        Ok(done)
    }
}

fn unknown_outcome(outcome: &str) -> Error {
    Error::failed(format!("the ebb schema answered a claim with {outcome:?}"))
        .with_hint("the schema is newer than this binary: upgrade this node")
}
