//! The audit's SQL. Invariant: nothing here updates or deletes a record.

use futures_util::{Stream, TryStreamExt};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgConnection, Row};

use super::merkle::Hash;
use super::record::{Entry, Record, RowEntry};
use super::seal::{Block, Blocker};
use super::{Moment, seal};
use crate::{Error, Result, sql};

/// Which records to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only of this policy.
    pub policy: Option<String>,
    /// Only with this action, or one of these, separated by commas.
    pub action: Option<String>,
    /// Only from this time on.
    pub since: Option<Moment>,
    /// At most so many; 100 when absent.
    pub limit: Option<i64>,
    /// The id of the last record of the page before.
    pub after: Option<i64>,
}

/// What is on record about a deletion, newest first.
pub async fn of_deletion(tx: &mut PgConnection, deletion: &str, limit: i64) -> Result<Vec<Record>> {
    Ok(sql!("of_deletion" as Record).bind(deletion).bind(limit).fetch_all(tx).await?)
}

/// Lists records, newest first.
pub async fn list(tx: &mut PgConnection, filter: &Filter) -> Result<Vec<Record>> {
    Ok(sql!("list" as Record)
        .bind(&filter.policy)
        .bind(&filter.action)
        .bind(filter.since)
        .bind(filter.limit.unwrap_or(100))
        .bind(filter.after)
        .fetch_all(tx)
        .await?)
}

/// The time so long ago, by the database's clock.
pub async fn ago(tx: &mut PgConnection, term: &crate::policy::Term) -> Result<Moment> {
    let sql = "SELECT pg_catalog.clock_timestamp() - $1";
    Ok(sqlx::query_scalar(sql).persistent(false).bind(term.to_interval()).fetch_one(tx).await?)
}

pub(super) async fn insert(tx: &mut PgConnection, entry: &Entry) -> Result<i64> {
    Ok(sql!("insert" scalar i64)
        .bind(&entry.action)
        .bind(&entry.policy)
        .bind(entry.policy_version)
        .bind(&entry.relation)
        .bind(entry.rows)
        .bind(entry.cutoff)
        .bind(entry.due_from)
        .bind(entry.due_to)
        .bind(entry.run)
        .bind(&entry.node)
        .bind(&entry.by)
        .bind(entry.subject.as_ref().map(Hash::as_slice))
        .bind(details(entry))
        .fetch_one(tx)
        .await?)
}

pub(super) async fn insert_rows(tx: &mut PgConnection, entry: &Entry, rows: &[RowEntry]) -> Result<u64> {
    let subjects: Vec<&[u8]> = rows.iter().map(|row| row.subject.as_slice()).collect();
    let due: Vec<Option<Moment>> = rows.iter().map(|row| row.due).collect();
    let done = sql!("insert_rows")
        .bind(&entry.action)
        .bind(&entry.policy)
        .bind(entry.policy_version)
        .bind(&entry.relation)
        .bind(entry.cutoff)
        .bind(entry.run)
        .bind(&entry.node)
        .bind(&entry.by)
        .bind(subjects)
        .bind(due)
        .bind(details(entry))
        .execute(tx)
        .await?;
    Ok(done.rows_affected())
}

fn details(entry: &Entry) -> serde_json::Value {
    if entry.details.is_null() { serde_json::json!({}) } else { entry.details.clone() }
}

pub(super) async fn prepare_seal(tx: &mut PgConnection) -> Result<()> {
    sql!("prepare_seal").execute(tx).await?;
    Ok(())
}

pub(super) async fn tip(tx: &mut PgConnection) -> Result<Option<Block>> {
    Ok(sql!("tip" as Block).fetch_optional(tx).await?)
}

pub(super) async fn clock(tx: &mut PgConnection) -> Result<Moment> {
    Ok(sql!("clock" scalar Moment).fetch_one(tx).await?)
}

pub(super) async fn sealable(tx: &mut PgConnection, limit: i64) -> Result<Vec<Record>> {
    Ok(sql!("sealable" as Record).bind(limit).fetch_all(tx).await?)
}

/// Adds a block and what it lists. The error is "fenced" when another sealer was first.
pub(super) async fn insert_block(tx: &mut PgConnection, block: &Block, records: &[i64], hashes: &[Hash]) -> Result<()> {
    let number = block.number;
    sql!("insert_block")
        .bind(number)
        .bind(&block.previous)
        .bind(&block.root)
        .bind(block.records)
        .bind(block.sealed_at)
        .bind(&block.key_id)
        .bind(&block.signature)
        .bind(&block.seal)
        .execute(&mut *tx)
        .await
        .map_err(|error| {
            on_repeated(error, || Error::fenced(format!("another node sealed block {number} of the audit first")))
        })?;
    let hashes: Vec<&[u8]> = hashes.iter().map(Hash::as_slice).collect();
    // The number was ours, so no race: the lists contradict each other.
    sql!("insert_leaves").bind(number).bind(records).bind(hashes).execute(tx).await.map_err(|error| {
        on_repeated(error, || {
            Error::refused("a record that waits for a seal is in a block already, or the next block has entries")
                .with_hint("somebody changed the audit: `ebb audit verify` names the records")
        })
    })?;
    Ok(())
}

fn on_repeated(error: sqlx::Error, meaning: impl FnOnce() -> Error) -> Error {
    match error.as_database_error().is_some_and(|error| error.is_unique_violation()) {
        true => meaning().with_source(error),
        false => error.into(),
    }
}

pub(super) async fn unsealed(tx: &mut PgConnection, limit: i64) -> Result<i64> {
    Ok(sql!("unsealed" scalar i64).bind(limit).fetch_one(tx).await?)
}

pub(super) async fn blocker(tx: &mut PgConnection) -> Result<Option<Blocker>> {
    Ok(sql!("blocker" as seal::BlockerRow).fetch_optional(tx).await?.map(Blocker::from))
}

pub(super) async fn blocks(tx: &mut PgConnection, after: i64, up_to: i64, limit: i64) -> Result<Vec<Block>> {
    Ok(sql!("blocks" as Block).bind(after).bind(up_to).bind(limit).fetch_all(tx).await?)
}

/// What a block says is in it.
pub(super) struct Leaf {
    pub(super) position: i32,
    pub(super) record: i64,
    pub(super) hash: Vec<u8>,
    pub(super) found: Option<Record>,
}

impl<'r> FromRow<'r, PgRow> for Leaf {
    fn from_row(row: &'r PgRow) -> sqlx::Result<Self> {
        let found = match row.try_get::<Option<i64>, _>("id")? {
            Some(_) => Some(Record::from_row(row)?),
            None => None,
        };
        Ok(Self {
            position: row.try_get("position")?,
            record: row.try_get("record")?,
            hash: row.try_get("hash")?,
            found,
        })
    }
}

/// Streams what a block lists: a block may claim any number, memory stays bounded.
pub(super) fn leaves(tx: &mut PgConnection, block: i64) -> impl Stream<Item = Result<Leaf>> + '_ {
    sql!("leaves" as Leaf).bind(block).fetch(tx).map_err(Error::from)
}

/// Records of one page that are in no block or in several.
#[derive(sqlx::FromRow)]
pub(super) struct Strays {
    pub(super) last: Option<i64>,
    pub(super) forgotten: Vec<i64>,
    pub(super) repeated: Vec<i64>,
}

pub(super) async fn strays(tx: &mut PgConnection, after: i64, limit: i64) -> Result<Strays> {
    Ok(sql!("strays" as Strays).bind(after).bind(limit).fetch_one(tx).await?)
}

/// Records that wait for a seal and should not: already in a block (true), or gone (false).
pub(super) async fn misplaced(tx: &mut PgConnection) -> Result<Vec<(i64, bool)>> {
    Ok(sql!("misplaced" as (i64, bool)).fetch_all(tx).await?)
}

pub(super) async fn orphaned(tx: &mut PgConnection, after: i64) -> Result<Vec<i64>> {
    Ok(sql!("orphaned" scalar i64).bind(after).fetch_all(tx).await?)
}

pub(super) async fn block_of(tx: &mut PgConnection, record: i64) -> Result<Option<Block>> {
    Ok(sql!("block_of" as Block).bind(record).fetch_optional(tx).await?)
}

pub(super) async fn exists(tx: &mut PgConnection, record: i64) -> Result<bool> {
    Ok(sql!("exists" scalar bool).bind(record).fetch_one(tx).await?)
}

pub(super) async fn any_erasure(tx: &mut PgConnection) -> Result<bool> {
    Ok(sql!("any_erasure" scalar bool).fetch_one(tx).await?)
}

pub(super) async fn erasure_of(tx: &mut PgConnection, subject: &Hash) -> Result<Option<i64>> {
    Ok(sql!("erasure_of" scalar Option<i64>).bind(subject.as_slice()).fetch_one(tx).await?)
}

pub(super) async fn erasure_by_deletion(tx: &mut PgConnection, deletion: uuid::Uuid) -> Result<Option<i64>> {
    Ok(sql!("erasure_by_deletion" scalar i64).bind(deletion.to_string()).fetch_optional(tx).await?)
}

pub(super) async fn use_subject_key(tx: &mut PgConnection, key_id: &str) -> Result<()> {
    sql!("use_subject_key").bind(key_id).execute(tx).await?;
    Ok(())
}

pub(super) async fn known_subject_key(tx: &mut PgConnection) -> Result<Option<(String, String)>> {
    Ok(sql!("known_subject_key" as (String, String)).fetch_optional(tx).await?)
}

pub(super) async fn replace_subject_key(tx: &mut PgConnection, key_id: &str, by: &str) -> Result<()> {
    sql!("replace_subject_key").bind(key_id).bind(by).execute(tx).await?;
    Ok(())
}
