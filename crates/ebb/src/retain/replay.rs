//! Replay: after tables came back from a backup, whoever had been erased is there again. The records of erasures name
//! them by pseudonym; whoever has the key can tell which rows those are. Invariants: a row is taken only when its own
//! pseudonym was recorded as erased, and it goes the way of every other subject: opened here, erased by a node, held by
//! holds; one whose table refuses that keeps nobody else back. Whoever lives under a key whose erasure this very database remembers may have come after it, and is left alone
//! unless somebody says otherwise.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;

use super::compile::Compiled;
use super::store::rows;
use super::{compile, erase, store};
use crate::audit::{self, Hash, Moment, SubjectKey};
use crate::policy::{Kind, Policy};
use crate::{Error, Result, policy};

/// Rows that are looked at in one statement.
const PAGE: u64 = 10_000;

/// An erasure that is known to have happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PastErasure {
    /// By which policy.
    pub policy: String,
    /// Of whom.
    pub subject: Hash,
    /// When the soft delete was; of whoever went along with somebody else, the erasure.
    pub soft_deleted_at: Moment,
    /// When the subject went.
    pub erased_at: Moment,
}

impl PastErasure {
    /// Reads records as `ebb audit list --json` prints them, or receipts, one document or several.
    pub fn read(text: &str) -> Result<Vec<PastErasure>> {
        let mut erasures = Vec::new();
        for document in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
            let document = document.map_err(|error| Error::usage(format!("this is no JSON: {error}")))?;
            let records = match document {
                Value::Array(records) => records,
                one => vec![one],
            };
            for record in records {
                let record = record.get("record").filter(|inner| inner.is_object()).unwrap_or(&record);
                erasures.extend(PastErasure::of(record)?);
            }
        }
        match erasures.is_empty() {
            true => Err(Error::usage("there is no record of an erasure in this file")
                .with_hint("ebb audit list --action erase,erase_along --json prints them; receipts do as well")),
            false => Ok(erasures),
        }
    }

    /// None for records of something else.
    fn of(record: &Value) -> Result<Option<PastErasure>> {
        let text = |key: &str| record.get(key).and_then(Value::as_str);
        if !matches!(text("action"), Some("erase" | "erase_along")) {
            return Ok(None);
        }
        let wrong = || Error::usage("a record of an erasure lacks policy, subject or details");
        let details = match record.get("details") {
            Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| wrong())?,
            Some(details) => details.clone(),
            None => return Err(wrong()),
        };
        let mut subject: Hash = [0; 32];
        hex::decode_to_slice(text("subject").ok_or_else(wrong)?, &mut subject).map_err(|_| wrong())?;
        let moment = |key: &str| details.get(key).cloned().and_then(|at| serde_json::from_value::<Moment>(at).ok());
        let erased_at = moment("erased_at").or_else(|| moment("soft_deleted_at")).ok_or_else(wrong)?;
        // Whoever went along with somebody else need not have been soft-deleted.
        let soft_deleted_at = moment("soft_deleted_at").unwrap_or(erased_at);
        let policy = text("policy").ok_or_else(wrong)?.to_owned();
        Ok(Some(PastErasure { policy, subject, soft_deleted_at, erased_at }))
    }
}

/// How to replay.
#[derive(Debug, Clone, Copy)]
pub struct Replay<'a> {
    /// Only say who is there again.
    pub only_look: bool,
    /// Also take subjects who live although the database's own audit has their erasure.
    pub live: bool,
    /// Who asks, for the audit.
    pub by: &'a str,
}

/// What a replay found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Replayed {
    /// Subjects that are there again, by policy; with a replay, opened for erasing.
    pub back: Vec<(String, u64)>,
    /// How many of these live, by policy: they came back with a backup, or somebody has registered under the same key since it was
    /// restored. Nothing in the database tells the two apart.
    pub alive: Vec<(String, u64)>,
    /// Subjects who are not as they were erased (they live, or were deleted later), by policy, while the database's own audit
    /// has the erasure: they may have registered again under the same key. Taken only where that was said.
    pub live: Vec<(String, u64)>,
    /// Subjects, by policy, whose table did not let them be deleted again; the others are.
    pub refused: Vec<(String, String)>,
    /// Rows that were looked at.
    pub looked_at: u64,
    /// Erasures of policies that are not there, or not enabled: whether their subjects are back nobody can tell.
    pub unknown: Vec<(String, u64)>,
}

/// Finds whoever is there again and, unless it only looks, opens their deletions as requested ones, in the transaction that it is
/// given.
pub async fn replay(
    connection: &mut PgConnection,
    key: &SubjectKey,
    erasures: &[PastErasure],
    how: Replay<'_>,
) -> Result<Replayed> {
    audit::same_subject_key(connection, key).await?;
    let mut replayed = Replayed::default();
    let stored = policy::store::all(connection).await?;
    let remembered = Remembered::of(past_erasures(connection).await?);
    for stored in stored.iter().filter(|stored| stored.kind == Kind::Retain && stored.enabled) {
        let Ok(Policy::Retain(retain)) = stored.policy() else { continue };
        let Some(subjects) = retain.subjects() else { continue };
        let mut wanted: HashMap<Hash, Vec<&PastErasure>> = HashMap::new();
        for erasure in erasures.iter().filter(|erasure| erasure.policy == stored.name) {
            wanted.entry(erasure.subject).or_default().push(erasure);
        }
        if wanted.is_empty() {
            continue;
        }
        let compiled = compile::compile(connection, &retain, subjects).await?;
        let mut after: Option<Vec<String>> = None;
        let (mut back, mut alive, mut live) = (0, 0, 0);
        loop {
            let page = rows::everybody(connection, &compiled.root, after.as_deref(), PAGE).await?;
            replayed.looked_at += page.found.len() as u64;
            for (id, deleted_at) in &page.found {
                let Some(erasures) = wanted.get(&erase::pseudonym(key, &stored.name, id)) else { continue };
                // What the database does not remember came with a backup from before it; of the rest, rows as they were erased.
                let fits = |erasure: &&PastErasure| {
                    !remembered.has(erasure)
                        || deleted_at.is_some_and(|at| !compiled.root.is_later(at, erasure.soft_deleted_at))
                };
                let sure = erasures.iter().copied().filter(fits).max_by_key(|erasure| erasure.soft_deleted_at);
                let taken = match (sure, how.live) {
                    (Some(erasure), _) => erasure,
                    (None, true) => erasures[erasures.len() - 1],
                    (None, false) => {
                        live += 1;
                        continue;
                    }
                };
                back += 1;
                alive += u64::from(deleted_at.is_none());
                let subject = (stored.name.as_str(), id.as_str());
                if !how.only_look && !open(connection, &compiled, subject, taken.soft_deleted_at, how.by).await? {
                    replayed.refused.push((stored.name.clone(), id.clone()));
                }
            }
            match page.last {
                Some(last) => after = Some(last),
                None => break,
            }
        }
        replayed.back.push((stored.name.clone(), back));
        replayed.alive.push((stored.name.clone(), alive));
        replayed.live.push((stored.name.clone(), live));
    }
    let mut unknown = BTreeMap::new();
    let looked = |policy: &String| replayed.back.iter().any(|(looked, _)| looked == policy);
    for erasure in erasures.iter().filter(|erasure| !looked(&erasure.policy)) {
        *unknown.entry(erasure.policy.clone()).or_default() += 1;
    }
    replayed.unknown = unknown.into_iter().collect();
    Ok(replayed)
}

/// What the database's own audit knows of whom it erased: the last time of each.
struct Remembered(HashMap<(String, Hash), Moment>);

impl Remembered {
    fn of(erasures: Vec<PastErasure>) -> Self {
        let mut last: HashMap<_, Moment> = HashMap::new();
        for PastErasure { policy, subject, erased_at, .. } in erasures {
            last.entry((policy, subject)).and_modify(|last| *last = erased_at.max(*last)).or_insert(erased_at);
        }
        Self(last)
    }

    /// Whether the subject was erased here at that time or since: a replay erases again whatever it finds, once, for all the
    /// erasures that its file has of that subject.
    fn has(&self, erasure: &PastErasure) -> bool {
        self.0.get(&(erasure.policy.clone(), erasure.subject)).is_some_and(|last| *last >= erasure.erased_at)
    }
}

/// Opens the deletion of a subject; false where its table refuses that, be it at the end.
async fn open(
    connection: &mut PgConnection,
    compiled: &Compiled,
    (policy, id): (&str, &str),
    deleted_at: Moment,
    by: &str,
) -> Result<bool> {
    let path = &compiled.root.path;
    rows::savepoint(connection).await?;
    let opened = async {
        store::replay_subject(&mut *connection, policy, id, deleted_at, by).await?;
        path.enter(&mut *connection).await?;
        path.settle(&mut *connection).await
    }
    .await;
    rows::end_savepoint(connection, opened.is_ok()).await?;
    match opened {
        Err(error) if error.is_refused() || error.is_of_a_row() => Ok(false),
        opened => opened.map(|()| true),
    }
}

/// Every erasure that the database's own audit knows.
pub async fn past_erasures(connection: &mut PgConnection) -> Result<Vec<PastErasure>> {
    let rows = store::past_erasures(connection).await?;
    rows.into_iter()
        .map(|(policy, subject, soft_deleted_at, erased_at)| {
            let subject = subject.try_into().map_err(|_| Error::failed("a pseudonym has another length than any"))?;
            Ok(PastErasure { policy, subject, soft_deleted_at, erased_at })
        })
        .collect()
}
