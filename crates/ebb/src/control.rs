//! What an operator tells running nodes: pause, resume, trigger. Each is a row, an audit record and a NOTIFY in one
//! transaction; a node that does not hear the NOTIFY sees the row at its next look.

use sqlx::PgConnection;

use crate::audit::{Entry, Moment};
use crate::{Error, Result};

/// The channel that nodes listen on; the payload says nothing, the tables say it all.
pub(crate) const CHANNEL: &str = "ebb";

/// Everything, where a policy's name could stand.
pub const ALL: &str = "*";

/// Wakes every node when this transaction commits.
pub(crate) async fn notify(connection: &mut PgConnection) -> Result<()> {
    sqlx::query("SELECT pg_notify($1, '')").persistent(false).bind(CHANNEL).execute(connection).await?;
    Ok(())
}

/// Stops batches of a policy, or of all, until resumed.
pub async fn pause(connection: &mut PgConnection, name: &str, reason: Option<&str>, by: &str) -> Result<()> {
    sqlx::query(
        "INSERT INTO ebb.pause (name, reason, paused_by) VALUES ($1, $2, $3)
         ON CONFLICT (name) DO UPDATE SET reason = EXCLUDED.reason, paused_by = EXCLUDED.paused_by, paused_at = clock_timestamp()",
    )
    .persistent(false)
    .bind(name)
    .bind(reason)
    .bind(by)
    .execute(&mut *connection)
    .await?;
    record(connection, "pause", name, by, serde_json::json!({ "reason": reason })).await
}

/// Lifts a pause; with `allow`, lets a run that the brake stopped take so many rows once. False when there was
/// nothing to resume.
pub async fn resume(connection: &mut PgConnection, name: &str, allow: Option<u64>, by: &str) -> Result<bool> {
    let lifted = sqlx::query("DELETE FROM ebb.pause WHERE name = $1")
        .persistent(false)
        .bind(name)
        .execute(&mut *connection)
        .await?
        .rows_affected();
    let mut allowed = 0;
    if let Some(rows) = allow {
        if name == ALL {
            return Err(Error::usage("--allow is for one policy").with_hint("name it: ebb resume NAME --allow ROWS"));
        }
        allowed = sqlx::query(
            "UPDATE ebb.brake SET allow_rows = $2, allowed_by = $3, allowed_at = clock_timestamp() WHERE policy = $1",
        )
        .persistent(false)
        .bind(name)
        .bind(rows as i64)
        .bind(by)
        .execute(&mut *connection)
        .await?
        .rows_affected();
        if allowed == 0 {
            return Err(Error::usage(format!("the brake of {name} has not stopped anything"))
                .with_hint("`ebb status` shows brakes that have"));
        }
        set_triggered(connection, name, None).await?;
    }
    if lifted + allowed > 0 {
        record(connection, "resume", name, by, serde_json::json!({ "allow": allow })).await?;
    }
    Ok(lifted + allowed > 0)
}

/// A veto that holds.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Pause {
    /// The policy, or [`ALL`].
    pub name: String,
    /// Why, as they said.
    pub reason: Option<String>,
    /// By whom, as they said.
    pub paused_by: String,
    /// Since when.
    pub paused_at: Moment,
}

/// What is paused.
pub async fn pauses(connection: &mut PgConnection) -> Result<Vec<Pause>> {
    let sql = "SELECT name, reason, paused_by, paused_at FROM ebb.pause ORDER BY name";
    Ok(sqlx::query_as(sql).persistent(false).fetch_all(connection).await?)
}

/// A node that was seen a moment ago.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, sqlx::FromRow)]
pub struct AliveNode {
    /// What it is called.
    pub name: String,
    /// The version of its binary.
    pub version: String,
    /// When it said so last.
    pub seen_at: Moment,
    /// Whether it hears a NOTIFY; otherwise it looks every second.
    pub listens: bool,
}

/// The nodes that are alive: each says so every second.
pub async fn nodes(connection: &mut PgConnection) -> Result<Vec<AliveNode>> {
    let sql = "SELECT name, version, seen_at, listens FROM ebb.node
               WHERE seen_at > clock_timestamp() - interval '10 seconds' ORDER BY name, seen_at";
    Ok(sqlx::query_as(sql).persistent(false).fetch_all(connection).await?)
}

/// Makes the units of a policy due now. Returns how many there are.
pub async fn trigger(connection: &mut PgConnection, name: &str, chore: Option<&str>, by: &str) -> Result<u64> {
    let units = set_triggered(connection, name, chore).await?;
    if units > 0 {
        record(connection, "trigger", name, by, serde_json::json!({ "chore": chore })).await?;
    }
    Ok(units)
}

async fn set_triggered(connection: &mut PgConnection, name: &str, chore: Option<&str>) -> Result<u64> {
    Ok(sqlx::query("UPDATE ebb.unit SET triggered = true WHERE policy = $1 AND ($2::text IS NULL OR chore = $2)")
        .persistent(false)
        .bind(name)
        .bind(chore)
        .execute(connection)
        .await?
        .rows_affected())
}

async fn record(
    connection: &mut PgConnection,
    action: &str,
    name: &str,
    by: &str,
    details: serde_json::Value,
) -> Result<()> {
    let mut entry = Entry::new(action, by);
    entry.policy = Some(name.to_owned());
    entry.details = details;
    entry.insert(&mut *connection).await?;
    notify(connection).await
}
