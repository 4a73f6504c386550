//! The SQL of sealed snapshots and of the periods whose keys close them.

use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use crate::audit::{Moment, Period};
use crate::{Result, sql};

/// When a copy made now ends, and what time it is.
pub(crate) async fn until(connection: &mut PgConnection, term: PgInterval, zone: &str) -> Result<(Moment, Moment)> {
    Ok(sql!("snapshot_until" as (Moment, Moment)).bind(term).bind(zone).fetch_one(connection).await?)
}

pub(crate) async fn clock(connection: &mut PgConnection) -> Result<Moment> {
    Ok(sql!("clock" scalar Moment).fetch_one(connection).await?)
}

pub(crate) async fn register_key(connection: &mut PgConnection, until: Moment, key_id: &str) -> Result<()> {
    sql!("register_key").bind(until).bind(key_id).execute(connection).await?;
    Ok(())
}

/// (key id, node that made it, when it was destroyed).
pub(crate) async fn registered_key(
    connection: &mut PgConnection,
    until: Moment,
) -> Result<Option<(String, String, Option<Moment>)>> {
    let query = sql!("registered_key" as (String, String, Option<Moment>)).bind(until);
    Ok(query.fetch_optional(connection).await?)
}

/// A key that should be there.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct OpenKey {
    pub(crate) until: Moment,
    pub(crate) key_id: String,
    pub(crate) made_by: String,
    pub(crate) now: Moment,
}

pub(crate) async fn open_keys(connection: &mut PgConnection) -> Result<Vec<OpenKey>> {
    Ok(sql!("open_keys" as OpenKey).fetch_all(connection).await?)
}

/// How many keys should have been destroyed by now.
pub(crate) async fn overdue_keys(connection: &mut PgConnection) -> Result<u64> {
    Ok(sql!("overdue_keys" scalar i64).fetch_one(connection).await?.unsigned_abs())
}

/// Of these keys those that were not known to be destroyed.
pub(crate) async fn note_destroyed(
    connection: &mut PgConnection,
    keys: &[(Period, String)],
) -> Result<Vec<(Moment, String)>> {
    let until: Vec<Moment> = keys.iter().map(|(period, _)| period.end()).collect();
    let ids: Vec<&str> = keys.iter().map(|(_, id)| id.as_str()).collect();
    Ok(sql!("note_destroyed" as (Moment, String)).bind(until).bind(ids).fetch_all(connection).await?)
}

/// A copy as it is stored.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct StoredSnapshot {
    pub(crate) policy: String,
    pub(crate) until: Moment,
    pub(crate) wrapped: Vec<u8>,
    pub(crate) parts: i32,
    pub(crate) rows: i64,
    pub(crate) complete: bool,
}

pub(crate) async fn find(connection: &mut PgConnection, deletion: Uuid) -> Result<Option<StoredSnapshot>> {
    Ok(sql!("snapshot_of" as StoredSnapshot).bind(deletion).fetch_optional(connection).await?)
}

pub(crate) async fn forget(connection: &mut PgConnection, deletion: Uuid) -> Result<()> {
    sql!("forget_snapshot").bind(deletion).execute(connection).await?;
    Ok(())
}

pub(crate) async fn part(connection: &mut PgConnection, deletion: Uuid, part: i32) -> Result<Option<Vec<u8>>> {
    Ok(sql!("snapshot_part" scalar Vec<u8>).bind(deletion).bind(part).fetch_optional(connection).await?)
}

/// How copies stand from now on.
pub(crate) async fn put_snapshots(
    connection: &mut PgConnection,
    policy: &str,
    of: &[(Uuid, StoredSnapshot)],
) -> Result<()> {
    sql!("put_snapshots")
        .bind(of.iter().map(|(deletion, _)| *deletion).collect::<Vec<_>>())
        .bind(policy)
        .bind(of.iter().map(|(_, snapshot)| snapshot.until).collect::<Vec<_>>())
        .bind(of.iter().map(|(_, snapshot)| snapshot.wrapped.as_slice()).collect::<Vec<_>>())
        .bind(of.iter().map(|(_, snapshot)| snapshot.parts).collect::<Vec<_>>())
        .bind(of.iter().map(|(_, snapshot)| snapshot.rows).collect::<Vec<_>>())
        .bind(of.iter().map(|(_, snapshot)| snapshot.complete).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// Parts of copies that are written together.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    deletions: Vec<Uuid>,
    numbers: Vec<i32>,
    until: Vec<Moment>,
    sealed: Vec<Vec<u8>>,
    pub(crate) bytes: usize,
}

impl Parts {
    pub(crate) fn add(&mut self, deletion: Uuid, number: i32, until: Moment, sealed: Vec<u8>) {
        self.deletions.push(deletion);
        self.numbers.push(number);
        self.until.push(until);
        self.bytes += sealed.len();
        self.sealed.push(sealed);
    }
}

pub(crate) async fn put_parts(connection: &mut PgConnection, parts: &Parts) -> Result<()> {
    if !parts.deletions.is_empty() {
        let query = sql!("put_parts").bind(&parts.deletions).bind(&parts.numbers);
        query.bind(&parts.until).bind(&parts.sealed).execute(connection).await?;
    }
    Ok(())
}

pub(crate) async fn deletion_in_record(connection: &mut PgConnection, record: i64) -> Result<Option<Uuid>> {
    let found = sql!("deletion_in_record" scalar Option<Uuid>).bind(record).fetch_optional(connection).await?;
    Ok(found.flatten())
}
