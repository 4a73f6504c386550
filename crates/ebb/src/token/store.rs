//! The SQL of tokens. Invariant: a check is one message to the server, a transaction of its own, so that it means the
//! same through a pooler; nothing but hexadecimal digits is put into its text.

use std::time::Duration;

use sqlx::postgres::types::PgInterval;
use sqlx::{PgConnection, Row};

use super::Role;
use crate::audit::Moment;
use crate::pg::{Database, Warm};
use crate::{Error, Result, sql};

/// A token as lists show it.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
pub struct Token {
    /// Its public part.
    pub id: String,
    /// What it is called.
    pub name: String,
    /// What it may do.
    pub role: String,
    /// When it was made.
    pub created_at: Moment,
    /// By whom.
    pub created_by: String,
    /// When it ends by itself.
    pub expires_at: Option<Moment>,
    /// When it was used last, to the minute.
    pub last_used_at: Option<Moment>,
    /// When it was revoked.
    pub revoked_at: Option<Moment>,
    /// By whom.
    pub revoked_by: Option<String>,
    /// `active`, `expired` or `revoked`.
    pub state: String,
}

/// A check takes no longer, or the database counts as away.
const CHECK_WITHIN: Duration = Duration::from_secs(5);

type Found = Option<(String, String, String)>;

pub(super) async fn check_token(warm: &Warm, id: &str, hash: &[u8; 32]) -> Result<Found> {
    debug_assert!(id.bytes().all(|b| b.is_ascii_hexdigit()));
    let hash = hex::encode(hash);
    ask(warm, format!("SELECT '{id}' AS id, name, role FROM ebb.token_check('{id}', '\\x{hash}')")).await
}

pub(super) async fn check_session(warm: &Warm, hash: &[u8; 32]) -> Result<Found> {
    let hash = hex::encode(hash);
    ask(warm, format!("SELECT id, name, role FROM ebb.session_check('\\x{hash}')")).await
}

async fn ask(warm: &Warm, sql: String) -> Result<Found> {
    let rows = warm.ask(CHECK_WITHIN, sql).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let role: Option<String> = row.try_get(2)?;
    Ok(match role {
        Some(role) => Some((row.try_get(0)?, row.try_get(1)?, role)),
        None => None,
    })
}

/// Whether there is a token that works.
pub async fn exists(tx: &mut PgConnection) -> Result<bool> {
    Ok(sql!("exists" scalar bool).fetch_one(tx).await?)
}

/// Every token there ever was, newest first.
pub async fn list(tx: &mut PgConnection) -> Result<Vec<Token>> {
    sql!("list" as Token).fetch_all(tx).await.map_err(|error| explain(error.into()))
}

pub(super) async fn insert(
    tx: &mut PgConnection,
    id: &str,
    name: &str,
    role: Role,
    hash: &[u8],
    expires_in: Option<PgInterval>,
    by: &str,
) -> Result<()> {
    sql!("insert")
        .bind(id)
        .bind(name)
        .bind(role.as_str())
        .bind(hash)
        .bind(expires_in)
        .bind(by)
        .execute(tx)
        .await
        .map_err(|error| explain(error.into()))?;
    Ok(())
}

/// `None`: there is no such token; false: it was revoked before.
pub(super) async fn revoke(tx: &mut PgConnection, id: &str, by: &str) -> Result<Option<bool>> {
    sql!("revoke" scalar bool).bind(id).bind(by).fetch_optional(tx).await.map_err(|error| explain(error.into()))
}

pub(super) async fn open_session(
    database: &Database,
    id: &str,
    hash: &[u8; 32],
    session_hash: &[u8],
    term: Duration,
) -> Result<Option<String>> {
    let term = PgInterval { months: 0, days: 0, microseconds: i64::try_from(term.as_micros()).unwrap_or(i64::MAX) };
    let mut tx = database.read().await?;
    let opened = sql!("open_session" scalar Option<String>)
        .bind(id)
        .bind(hash.as_slice())
        .bind(session_hash)
        .bind(term)
        .fetch_one(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(opened)
}

/// Ends a session.
pub async fn close_session(database: &Database, session: &super::Credential) -> Result<()> {
    let super::Credential::Session { hash } = session else { return Ok(()) };
    let mut tx = database.read().await?;
    sql!("close_session").bind(hash.as_slice()).execute(&mut *tx).await?;
    Ok(tx.commit().await?)
}

/// Only the owner of the schema makes, lists and revokes tokens.
fn explain(error: Error) -> Error {
    match error.sqlstate().as_deref() {
        Some("42501") => error.with_hint("tokens are made, listed and revoked as a member of ebb_owner"),
        _ => error,
    }
}
