//! The SQL of once. Invariant: a claim is decided by the functions of the `ebb` schema alone; nothing here writes to
//! their tables but `ebb apply`'s terms of a namespace.

use std::time::Duration;

use serde_json::Value;
use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;

use crate::{Error, Result, sql};

pub(super) async fn claim(
    connection: &mut PgConnection,
    namespace: &str,
    key: &str,
    ttl: Option<Duration>,
    fingerprint: Option<&[u8]>,
) -> Result<String> {
    sql!("once" scalar String)
        .bind(text(namespace)?)
        .bind(text(key)?)
        .bind(interval(ttl)?)
        .bind(fingerprint)
        .fetch_one(connection)
        .await
        .map_err(explain)
}

pub(super) async fn claim_many(
    connection: &mut PgConnection,
    namespace: &str,
    keys: &[&str],
    ttl: Option<Duration>,
) -> Result<Vec<String>> {
    for key in keys {
        text(key)?;
    }
    sql!("once_many" scalar String)
        .bind(text(namespace)?)
        .bind(keys)
        .bind(interval(ttl)?)
        .fetch_all(connection)
        .await
        .map_err(explain)
}

pub(super) async fn begin(
    connection: &mut PgConnection,
    namespace: &str,
    key: &str,
    ttl: Option<Duration>,
    fingerprint: Option<&[u8]>,
) -> Result<(String, Option<i64>)> {
    sql!("once_begin" as (String, Option<i64>))
        .bind(text(namespace)?)
        .bind(text(key)?)
        .bind(interval(ttl)?)
        .bind(fingerprint)
        .fetch_one(connection)
        .await
        .map_err(explain)
}

pub(super) async fn complete(
    connection: &mut PgConnection,
    namespace: &str,
    key: &str,
    token: i64,
    result: Option<&Value>,
) -> Result<bool> {
    sql!("once_complete" scalar bool)
        .bind(text(namespace)?)
        .bind(text(key)?)
        .bind(token)
        .bind(result)
        .fetch_one(connection)
        .await
        .map_err(explain)
}

pub(super) async fn release(connection: &mut PgConnection, namespace: &str, key: &str, token: i64) -> Result<bool> {
    sql!("once_release" scalar bool)
        .bind(text(namespace)?)
        .bind(text(key)?)
        .bind(token)
        .fetch_one(connection)
        .await
        .map_err(explain)
}

pub(super) async fn result(connection: &mut PgConnection, namespace: &str, key: &str) -> Result<Option<Value>> {
    sql!("once_result" scalar Option<Value>)
        .bind(text(namespace)?)
        .bind(text(key)?)
        .fetch_one(connection)
        .await
        .map_err(explain)
}

/// Sets what `ebb apply` says of a namespace; claims that exist keep their expiry.
pub async fn set_namespace(connection: &mut PgConnection, name: &str, ttl: PgInterval, lock: PgInterval) -> Result<()> {
    sql!("set_namespace").bind(text(name)?).bind(ttl).bind(lock).execute(connection).await?;
    Ok(())
}

/// Lets a namespace fall back to the defaults.
pub async fn remove_namespace(connection: &mut PgConnection, name: &str) -> Result<()> {
    sql!("remove_namespace").bind(text(name)?).execute(connection).await?;
    Ok(())
}

/// PostgreSQL has no text with a zero byte, and would answer in terms of the protocol.
fn text(value: &str) -> Result<&str> {
    if value.contains('\0') {
        return Err(Error::usage("a namespace or key of once contains a zero byte")
            .with_hint("encode binary keys, for instance as hexadecimal"));
    }
    Ok(value)
}

fn interval(ttl: Option<Duration>) -> Result<Option<PgInterval>> {
    let Some(ttl) = ttl else { return Ok(None) };
    // Below a microsecond PostgreSQL knows no time: rounding up keeps a term above zero above zero.
    let microseconds = i64::try_from(ttl.as_nanos().div_ceil(1_000)).map_err(|_| {
        Error::usage(format!("a term of {ttl:?} is too long")).with_hint("use at most a few thousand years")
    })?;
    Ok(Some(PgInterval { months: 0, days: 0, microseconds }))
}

/// What the functions refuse is the caller's mistake; their hint says how to mend it.
fn explain(error: sqlx::Error) -> Error {
    let refused = error.as_database_error().filter(|db| db.code().as_deref() == Some("22023"));
    let Some(db) = refused else { return error.into() };
    let hint = db.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().and_then(|db| db.hint()).map(str::to_owned);
    let usage = Error::usage(db.message()).with_source(error);
    match hint {
        Some(hint) => usage.with_hint(hint),
        None => usage,
    }
}
