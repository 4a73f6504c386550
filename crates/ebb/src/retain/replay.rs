//! Replay: after tables came back from a backup, whoever had been erased is there again. The records of erasures name
//! them by pseudonym; whoever has the key can tell which rows those are. Invariant: a row is taken only when its own
//! pseudonym was recorded as erased, and it goes the way of every other subject: opened here, erased by a node, held by
//! holds.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;

use super::store::rows;
use super::{compile, erase, store};
use crate::audit::{self, Hash, Moment, SubjectKey};
use crate::policy::{Kind, Policy};
use crate::{Error, Result, policy};

/// Rows that are looked at in one statement.
const PAGE: u64 = 10_000;

/// An erasure that is known to have happened.
#[derive(Debug, Clone)]
pub struct PastErasure {
    /// By which policy.
    pub policy: String,
    /// Of whom.
    pub subject: Hash,
    /// When the soft delete was.
    pub soft_deleted_at: Moment,
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
                .with_hint("ebb audit list --action erase --json prints them; receipts do as well")),
            false => Ok(erasures),
        }
    }

    /// None for records of something else.
    fn of(record: &Value) -> Result<Option<PastErasure>> {
        let text = |key: &str| record.get(key).and_then(Value::as_str);
        if text("action") != Some("erase") {
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
        let soft_deleted_at = details.get("soft_deleted_at").cloned().and_then(|at| serde_json::from_value(at).ok());
        let policy = text("policy").ok_or_else(wrong)?.to_owned();
        Ok(Some(PastErasure { policy, subject, soft_deleted_at: soft_deleted_at.ok_or_else(wrong)? }))
    }
}

/// What a replay found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Replayed {
    /// Subjects that are there again, by policy; with a replay, opened for erasing.
    pub back: Vec<(String, u64)>,
    /// Subjects that live and whose erasure this database knows, by policy; left alone unless asked for.
    pub live: Vec<(String, u64)>,
    /// Rows that were looked at.
    pub looked_at: u64,
    /// Erasures of policies that are not there, or not enabled: whether their subjects are back nobody can tell.
    pub unknown: Vec<(String, u64)>,
}

/// Finds whoever is there again and, unless it only looks, opens their deletions as requested ones. Whoever lives and was erased
/// before this database's last record of it may be somebody else with the same key: they are taken only with `live_too`.
pub async fn replay(
    connection: &mut PgConnection,
    key: &SubjectKey,
    erasures: &[PastErasure],
    (only_look, live_too): (bool, bool),
    by: &str,
) -> Result<Replayed> {
    audit::same_subject_key(connection, key).await?;
    let own = past_erasures(connection).await?;
    let known: HashSet<(String, Hash, Moment)> =
        own.into_iter().map(|past| (past.policy, past.subject, past.soft_deleted_at)).collect();
    let mut replayed = Replayed::default();
    let stored = policy::store::all(connection).await?;
    for stored in stored.iter().filter(|stored| stored.kind == Kind::Retain && stored.enabled) {
        let Ok(Policy::Retain(retain)) = stored.policy() else { continue };
        let Some(subjects) = retain.subjects() else { continue };
        let wanted: HashMap<Hash, Moment> = erasures
            .iter()
            .filter(|erasure| erasure.policy == stored.name)
            .map(|erasure| (erasure.subject, erasure.soft_deleted_at))
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let compiled = compile::compile(connection, &retain, subjects).await?;
        let mut after: Option<Vec<String>> = None;
        let (mut back, mut live) = (0, 0);
        loop {
            let page = rows::ids(connection, &compiled.root, after.as_deref(), PAGE).await?;
            replayed.looked_at += page.ids.len() as u64;
            let of = |id: &String| Some((id.clone(), *wanted.get(&erase::pseudonym(key, &stored.name, id))?));
            let found: Vec<(String, Moment)> = page.ids.iter().filter_map(of).collect();
            let ids = compiled.root.named(found.iter().map(|(id, _)| id.as_str()))?;
            let alive: HashSet<i32> = match found.is_empty() {
                true => HashSet::new(),
                false => rows::alive(connection, &compiled.root, &ids).await?.into_iter().collect(),
            };
            for (at, (id, moment)) in found.iter().enumerate() {
                let again = known.contains(&(stored.name.clone(), erase::pseudonym(key, &stored.name, id), *moment));
                if alive.contains(&(at as i32)) && again && !live_too {
                    live += 1;
                    continue;
                }
                back += 1;
                if !only_look {
                    store::replay_subject(connection, &stored.name, id, *moment, by).await?;
                }
            }
            match page.last {
                Some(last) => after = Some(last),
                None => break,
            }
        }
        replayed.back.push((stored.name.clone(), back));
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

/// Every erasure that the database's own audit knows.
pub async fn past_erasures(connection: &mut PgConnection) -> Result<Vec<PastErasure>> {
    let rows = store::past_erasures(connection).await?;
    rows.into_iter()
        .map(|(policy, subject, soft_deleted_at)| {
            let subject = subject.try_into().map_err(|_| Error::failed("a pseudonym has another length than any"))?;
            Ok(PastErasure { policy, subject, soft_deleted_at })
        })
        .collect()
}
