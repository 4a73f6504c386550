//! Sealed snapshots: a copy of everything that goes with a subject, written by the transaction that erases it. Each copy
//! has a key of its own, closed with the key of the period that ends when the copy's term is over; that key is a file
//! outside the database and is destroyed on its day. Invariants: what went is what the copy has, because the statement
//! that deletes a row is the one that hands it over; without the period's key nothing is erased; a part that is missing,
//! changed or out of its place does not open.

use std::iter::Peekable;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use sqlx::PgConnection;
use uuid::Uuid;

use super::store::snapshots::{self as store, Parts, StoredSnapshot};
use crate::audit::{ClosingKey, Entry, Moment, Period, PeriodKey, PeriodKeys};
use crate::pg::Database;
use crate::policy::{Term, Zone};
use crate::{Error, Result};

/// A part has about so many bytes before it is sealed: what opening one needs of memory.
const PART_BYTES: usize = 4 << 20;

/// Keeps copies on behalf of one run of erasing.
#[derive(Debug)]
pub(crate) struct Copier {
    keys: PeriodKeys,
    policy: String,
    term: Term,
    zone: Zone,
    /// The key in use: a run may last longer than a day.
    current: Mutex<Option<Arc<PeriodKey>>>,
}

/// What went of one subject in one transaction.
#[derive(Debug)]
pub(crate) struct Gone<'a> {
    pub(crate) deletion: Uuid,
    /// (table, row as JSON).
    pub(crate) rows: Vec<(&'a str, String)>,
    /// Parts of it may have gone before.
    pub(crate) continues: bool,
    /// Nothing is left of it.
    pub(crate) last: bool,
}

/// What the audit says about a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sealed {
    pub(crate) until: Moment,
    pub(crate) rows: i64,
}

impl Copier {
    pub(crate) fn new(keys: PeriodKeys, policy: &str, term: Term, zone: &Zone) -> Self {
        Self { keys, policy: policy.to_owned(), term, zone: zone.clone(), current: Mutex::new(None) }
    }

    /// Makes the key that is needed now, where it is missing, and makes it known: before anything is erased.
    pub(crate) async fn prepare(&self, connection: &mut PgConnection) -> Result<()> {
        self.key(connection).await.map(drop)
    }

    /// The key for what is erased now. It is on disk and known to the database, or this is an error.
    async fn key(&self, connection: &mut PgConnection) -> Result<Arc<PeriodKey>> {
        let (until, _) = store::until(connection, self.term.to_interval(), self.zone.name()).await?;
        let period = Period::ending(until)?;
        // What is known is asked in each transaction: one that was taken back made nothing known.
        let known = store::registered_key(connection, until).await?;
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let current = current.filter(|current| current.period() == period);
        if let (Some(current), Some((key_id, _, None))) = (&current, &known)
            && *key_id == current.key_id()
        {
            return Ok(current.clone());
        }
        let key = match &known {
            // A key that is known and is not here is not made anew: copies would open with one of two keys.
            Some((_, node, _)) => self.keys.load(period).map_err(|error| {
                let hint = error.hint().unwrap_or_default().to_owned();
                let policy = &self.policy;
                let context = format!("policy {policy} keeps a sealed copy, so nothing is erased without its key");
                Error::refused(format!("{context}: {error} (node {node} made it)")).with_hint(hint)
            })?,
            None => self.keys.create_if_missing(period)?,
        };
        store::register_key(connection, until, key.key_id()).await?;
        // Another node may have been first.
        let known = store::registered_key(connection, until).await?;
        match known {
            Some((key_id, _, None)) if key_id == key.key_id() => {}
            Some((.., Some(destroyed_at))) => {
                return Err(Error::refused(format!("the key of period {period} was destroyed at {destroyed_at}")));
            }
            Some((_, node, _)) => {
                let directory = self.keys.directory().display();
                return Err(Error::refused(format!(
                    "the key of period {period} in {directory} is not the one that node {node} made"
                ))
                .with_hint("give every node the same directory of period keys"));
            }
            None => return Err(Error::failed("a period key that was made known is not")),
        }
        let key = Arc::new(key);
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(key.clone());
        Ok(key)
    }

    /// Seals what went, in the transaction in which it did, and writes it part by part. Returns what the audit says of each.
    pub(crate) async fn keep(&self, connection: &mut PgConnection, gone: Vec<Gone<'_>>) -> Result<Vec<Sealed>> {
        let (mut snapshots, mut parts) = (Vec::with_capacity(gone.len()), Parts::default());
        if gone.is_empty() {
            return Ok(Vec::new());
        }
        let current = self.key(connection).await?;
        for gone in gone {
            let (mut snapshot, key) = match gone.continues {
                true => self.go_on(connection, &current, gone.deletion).await?,
                false => self.begin(&current, gone.deletion)?,
            };
            let deletion = gone.deletion;
            snapshot.rows += gone.rows.len() as i64;
            let mut rows = gone.rows.into_iter().peekable();
            loop {
                let content = next_part(&mut rows)?;
                let ends = rows.peek().is_none();
                let closed = key.close(&content, &place(deletion, snapshot.parts, gone.last && ends))?;
                parts.add(deletion, snapshot.parts, snapshot.until, closed);
                snapshot.parts += 1;
                if parts.bytes >= PART_BYTES {
                    store::put_parts(connection, &std::mem::take(&mut parts)).await?;
                }
                if ends {
                    break;
                }
            }
            snapshot.complete = gone.last;
            snapshots.push((deletion, snapshot));
        }
        store::put_parts(connection, &parts).await?;
        store::put_snapshots(connection, &self.policy, &snapshots).await?;
        let sealed = snapshots.iter().map(|(_, snapshot)| Sealed { until: snapshot.until, rows: snapshot.rows });
        Ok(sealed.collect())
    }

    fn begin(&self, current: &PeriodKey, deletion: Uuid) -> Result<(StoredSnapshot, ClosingKey)> {
        let key = ClosingKey::random()?;
        let wrapped = current.wrap(&key, &owner(&self.policy, deletion))?;
        let (policy, until) = (self.policy.clone(), current.period().end());
        Ok((StoredSnapshot { policy, until, wrapped, parts: 0, rows: 0, complete: false }, key))
    }

    /// Goes on with the copy of a subject that goes in parts, under the key that it began with.
    async fn go_on(
        &self,
        connection: &mut PgConnection,
        current: &PeriodKey,
        deletion: Uuid,
    ) -> Result<(StoredSnapshot, ClosingKey)> {
        let Some(snapshot) = store::find(connection, deletion).await? else {
            return self.begin(current, deletion);
        };
        if snapshot.until <= store::clock(connection).await? {
            // A hold was longer than its term: what was copied then is gone, and the rest begins anew.
            store::forget(connection, deletion).await?;
            return self.begin(current, deletion);
        }
        let period = Period::ending(snapshot.until)?;
        let key = unwrap(&self.keys.load(period)?, &snapshot, deletion)?;
        Ok((snapshot, key))
    }
}

/// Whose key was wrapped.
fn owner(policy: &str, deletion: Uuid) -> String {
    format!("subject\0{policy}\0{deletion}")
}

/// Where a part belongs; the last one says so, so that none can be cut off.
fn place(deletion: Uuid, part: i32, last: bool) -> String {
    format!("part\0{deletion}\0{part}\0{last}")
}

fn unwrap(key: &PeriodKey, snapshot: &StoredSnapshot, deletion: Uuid) -> Result<ClosingKey> {
    key.unwrap_key(&snapshot.wrapped, &owner(&snapshot.policy, deletion)).ok_or_else(|| {
        Error::failed(format!(
            "the key of the copy of deletion {deletion} does not open with period key {}",
            key.key_id()
        ))
        .with_hint("it was changed, or this is another key of the same name")
    })
}

/// The next of them, a line each, as many as a part may have; at least one where there is any.
fn next_part<'a>(rows: &mut Peekable<impl Iterator<Item = (&'a str, String)>>) -> Result<Vec<u8>> {
    let mut part = Vec::new();
    while let Some((table, row)) =
        rows.next_if(|(table, row)| part.is_empty() || part.len() + table.len() + row.len() <= PART_BYTES)
    {
        let table = serde_json::to_string(table).map_err(|error| Error::failed(error.to_string()))?;
        part.extend(format!("{{\"table\":{table},\"row\":").into_bytes());
        part.extend(row.into_bytes());
        part.extend(b"}\n");
    }
    Ok(part)
}

/// A copy that can be read.
#[derive(Debug)]
pub struct Snapshot {
    /// Whose policy it was.
    pub policy: String,
    /// The deletion that it belongs to.
    pub deletion: Uuid,
    /// When its key is destroyed.
    pub until: Moment,
    /// How many rows it has.
    pub rows: i64,
    /// Whether the subject is gone as a whole; otherwise it goes in parts, and more is to come.
    pub complete: bool,
    parts: i32,
    key: ClosingKey,
}

impl Snapshot {
    /// How many parts it has.
    pub fn parts(&self) -> i32 {
        self.parts
    }

    /// The rows of one part: a line each, `{"table": …, "row": …}`.
    pub async fn part(&self, connection: &mut PgConnection, part: i32) -> Result<String> {
        let sealed = store::part(connection, self.deletion, part).await?;
        let last = self.complete && part + 1 == self.parts;
        let opened = sealed.and_then(|sealed| self.key.open(&sealed, &place(self.deletion, part, last)));
        let text = opened.and_then(|opened| String::from_utf8(opened).ok());
        text.ok_or_else(|| {
            Error::failed(format!("part {} of {} is missing or is not what was sealed", part + 1, self.parts))
        })
    }
}

/// Opens the copy of what a deletion took, and puts on record who did and why.
pub async fn open_snapshot(
    connection: &mut PgConnection,
    keys: &PeriodKeys,
    deletion: Uuid,
    reason: &str,
    by: &str,
) -> Result<Snapshot> {
    let Some(stored) = store::find(connection, deletion).await? else {
        return Err(Error::unknown(format!("there is no sealed copy of deletion {deletion}"))
            .with_hint("its policy keeps none, or its term is over"));
    };
    let period = Period::ending(stored.until)?;
    if let Some((.., Some(destroyed_at))) = store::registered_key(connection, stored.until).await? {
        return Err(Error::refused(format!(
            "the key of this copy was destroyed at {destroyed_at}: nobody can open it any more"
        )));
    }
    let key = unwrap(&keys.load(period)?, &stored, deletion)?;
    let mut entry = Entry::new("open_snapshot", by);
    entry.policy = Some(stored.policy.clone());
    entry.details = json!({ "deletion": deletion, "reason": reason });
    entry.insert(connection).await?;
    let StoredSnapshot { policy, until, parts, rows, complete, .. } = stored;
    Ok(Snapshot { policy, deletion, until, rows, complete, parts, key })
}

/// The deletion that an audit record is about.
pub async fn deletion_in_record(connection: &mut PgConnection, record: i64) -> Result<Option<Uuid>> {
    store::deletion_in_record(connection, record).await
}

/// Destroys the keys in this node's directory whose day has come, and puts it on record. Every node does it for itself,
/// whoever else has: the record is made once, the files go wherever they are. Of a key that was never in this directory
/// nothing is said: it may be in another one.
pub(crate) async fn destroy_due(database: &Database, keys: &PeriodKeys) -> Result<()> {
    let mut tx = database.read().await?;
    let now = store::clock(&mut tx).await?;
    let open = store::open_keys(&mut tx).await?;
    tx.commit().await?;
    if open.is_empty() && !keys.directory().exists() {
        return Ok(());
    }
    let mut destroyed = keys.destroy_until(now)?;
    destroyed.retain(|(period, id)| open.iter().any(|key| key.until == period.end() && key.key_id == *id));
    if destroyed.is_empty() {
        return Ok(());
    }
    let mut tx = database.read().await?;
    for (until, key_id) in store::note_destroyed(&mut tx, &destroyed).await? {
        let period = Period::ending(until)?;
        let mut entry = Entry::new("destroy_key", "ebb");
        entry.details = json!({ "period": period.to_string(), "key": key_id });
        entry.insert(&mut tx).await?;
        tracing::info!(period = %period, key = key_id, "Destroyed a period key");
    }
    tx.commit().await?;
    Ok(())
}

/// Puts on record that a key whose day has come is in no directory any more, as somebody says who looked for it: nobody
/// saw it destroyed. Refused while it is in this directory, where a node destroys it.
pub async fn lost_key(
    connection: &mut PgConnection,
    keys: Option<&PeriodKeys>,
    day: &str,
    reason: &str,
    by: &str,
) -> Result<()> {
    let open = store::open_keys(connection).await?;
    let named = |key: &&store::OpenKey| Period::ending(key.until).is_ok_and(|period| period.to_string() == day);
    let Some(key) = open.iter().find(named) else {
        return Err(Error::unknown(format!("no period key of {day} waits to be destroyed"))
            .with_hint("`ebb doctor` names those that do"));
    };
    let period = Period::ending(key.until)?;
    if key.until > key.now {
        return Err(Error::refused(format!("the key of period {day} is to be destroyed on that day"))
            .with_hint("a node that has it does that by itself"));
    }
    if keys.map(PeriodKeys::periods).transpose()?.is_some_and(|here| here.contains(&period)) {
        return Err(Error::refused(format!("the key of period {day} is here")).with_hint("ebb run --once destroys it"));
    }
    store::note_destroyed(connection, &[(period, key.key_id.clone())]).await?;
    let mut entry = Entry::new("lost_key", by);
    entry.details = json!({ "period": day, "key": key.key_id, "reason": reason });
    entry.insert(connection).await.map(drop)
}

/// How many keys are overdue: their day came long enough ago for a node to have destroyed them.
pub(crate) async fn overdue_keys(connection: &mut PgConnection) -> Result<u64> {
    store::overdue_keys(connection).await
}

/// Something wrong with a period key.
pub(crate) struct Trouble {
    /// Its name.
    pub(crate) about: String,
    pub(crate) evidence: String,
    pub(crate) fix: String,
}

/// What is wrong with the period keys, and with those of this node where it has any.
pub(crate) async fn trouble(connection: &mut PgConnection, keys: Option<&PeriodKeys>) -> Result<Vec<Trouble>> {
    let mut found = Vec::new();
    for open in store::open_keys(connection).await? {
        let period = Period::ending(open.until)?;
        let here = keys.map(|keys| keys.load(period));
        let same = "every node needs the same directory of period keys; what was closed with a lost key stays closed";
        let trouble = match (open.until <= open.now, here) {
            (true, Some(Ok(key))) if key.key_id() == open.key_id => (
                "its day has come, and it is still there".to_owned(),
                "a node with this directory destroys it: ebb run --once".to_owned(),
            ),
            (true, _) => (
                format!(
                    "its day has come, and no node has destroyed it: node {} made it, and it is not here",
                    open.made_by
                ),
                format!(
                    "run a node where it is; if it is in no directory any more: ebb audit lost-key {period} --reason …"
                ),
            ),
            (false, Some(Ok(key))) if key.key_id() != open.key_id => {
                (format!("it is not the key that node {} made", open.made_by), same.to_owned())
            }
            (false, Some(Err(error))) => (error.to_string(), same.to_owned()),
            _ => continue,
        };
        let (evidence, fix) = trouble;
        found.push(Trouble { about: format!("{period}.key"), evidence, fix });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_bounded_unless_a_single_row_is_not() {
        let large = format!("\"{}\"", "x".repeat(PART_BYTES));
        let mut rows = [&large, "1", "2"].map(|row| ("public.\"a b\"", row.to_owned())).into_iter().peekable();
        assert!(next_part(&mut rows).unwrap().len() > PART_BYTES);
        let text = String::from_utf8(next_part(&mut rows).unwrap()).unwrap();
        assert!(rows.peek().is_none() && next_part(&mut rows).unwrap().is_empty());
        assert_eq!(
            text,
            "{\"table\":\"public.\\\"a b\\\"\",\"row\":1}\n{\"table\":\"public.\\\"a b\\\"\",\"row\":2}\n"
        );
    }
}
