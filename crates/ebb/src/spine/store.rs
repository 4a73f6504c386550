//! The spine's SQL: leases, units, runs, the node's own row. One function a file of `sql/`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use super::batch::{Backend, Claim};
use super::pacing::Signals;
use super::unit::{ChoreKind, Unit};
use crate::{Result, sql};

pub(crate) type Stamp = jiff_sqlx::Timestamp;

/// A fixed duration as PostgreSQL's interval.
pub(crate) fn interval(duration: Duration) -> PgInterval {
    PgInterval { months: 0, days: 0, microseconds: duration.as_micros().min(i64::MAX as u128) as i64 }
}

/// What to claim, and how.
pub(crate) struct Wish<'a> {
    pub(crate) units: &'a [String],
    pub(crate) holder: Uuid,
    pub(crate) node: &'a str,
    pub(crate) term: Duration,
    pub(crate) limit: i64,
    /// Take units whose time has not come, too (`run --once`).
    pub(crate) not_due: bool,
}

pub(crate) async fn claim(connection: &mut PgConnection, wish: Wish<'_>) -> Result<Vec<(String, i64)>> {
    Ok(sql!("claim" as (String, i64))
        .bind(wish.units)
        .bind(wish.holder)
        .bind(wish.node)
        .bind(interval(wish.term))
        .bind(wish.limit)
        .bind(wish.not_due)
        .fetch_all(connection)
        .await?)
}

/// Where the transaction is, and whether the policy is still the one of the claim; `None` when the lease is not.
pub(crate) async fn fence(
    connection: &mut PgConnection,
    claim: &Claim,
    begun: bool,
) -> Result<Option<(Backend, bool)>> {
    let fenced = sql!("fence" as (i32, String, bool))
        .bind(claim.unit.to_string())
        .bind(claim.holder)
        .bind(claim.generation)
        .bind(claim.policy_version)
        .bind(&claim.unit.policy)
        .bind(begun)
        .fetch_optional(connection)
        .await?;
    Ok(fenced.map(|(pid, name, current)| (Backend { pid, name }, current)))
}

pub(crate) async fn heartbeat(
    connection: &mut PgConnection,
    holder: Uuid,
    term: Duration,
    units: &[String],
) -> Result<Vec<String>> {
    Ok(sql!("heartbeat" scalar String).bind(holder).bind(interval(term)).bind(units).fetch_all(connection).await?)
}

pub(crate) async fn release(connection: &mut PgConnection, unit: &Unit, holder: Uuid, generation: i64) -> Result<()> {
    sql!("release").bind(unit.to_string()).bind(holder).bind(generation).execute(connection).await?;
    Ok(())
}

/// Somebody else's living lease.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Holder {
    pub(crate) unit: String,
    pub(crate) node: String,
}

pub(crate) async fn holders(connection: &mut PgConnection, units: &[String], me: Uuid) -> Result<Vec<Holder>> {
    Ok(sql!("holders" as Holder).bind(units).bind(me).fetch_all(connection).await?)
}

/// A unit that is to exist, and when it is due.
pub(crate) struct Registered<'a> {
    pub(crate) unit: &'a Unit,
    /// When a new one is due first; at once when absent.
    pub(crate) first_at: Option<Timestamp>,
    /// The latest time at which it is due.
    pub(crate) latest: Timestamp,
}

/// Makes units exist, all in two statements.
pub(crate) async fn register_units(connection: &mut PgConnection, units: &[Registered<'_>]) -> Result<()> {
    let texts = |text: fn(&Unit) -> String| -> Vec<String> { units.iter().map(|of| text(of.unit)).collect() };
    let names = texts(Unit::to_string);
    sql!("register_units")
        .bind(&names)
        .bind(texts(|unit| unit.chore.as_str().to_owned()))
        .bind(texts(|unit| unit.policy.clone()))
        .bind(texts(|unit| unit.leaf.clone()))
        .bind(units.iter().map(|of| of.first_at.map(ToSqlx::to_sqlx)).collect::<Vec<_>>())
        .bind(units.iter().map(|of| of.latest.to_sqlx()).collect::<Vec<_>>())
        .execute(&mut *connection)
        .await?;
    sql!("register_leases").bind(&names).execute(connection).await?;
    Ok(())
}

pub(crate) async fn forget_units(connection: &mut PgConnection, existing: &[String], chores: &[&str]) -> Result<()> {
    sql!("forget_units").bind(existing).bind(chores).execute(connection).await?;
    Ok(())
}

pub(crate) async fn take_trigger(connection: &mut PgConnection, unit: &Unit) -> Result<()> {
    sql!("take_trigger").bind(unit.to_string()).execute(connection).await?;
    Ok(())
}

/// Ends what a dead node left behind, where no run is opened that does.
pub(crate) async fn close_left_behind(connection: &mut PgConnection, unit: &Unit) -> Result<()> {
    sql!("close_left_behind").bind(unit.to_string()).execute(connection).await?;
    Ok(())
}

pub(crate) async fn start_run(connection: &mut PgConnection, claim: &Claim) -> Result<i64> {
    Ok(sql!("start_run" scalar i64)
        .bind(claim.unit.to_string())
        .bind(claim.unit.chore.as_str())
        .bind(&claim.unit.policy)
        .bind(claim.policy_version)
        .bind(&claim.unit.leaf)
        .bind(&claim.node)
        .bind(claim.generation)
        .fetch_one(connection)
        .await?)
}

/// Whether batches would come to nothing, because a change of the policy, or of one that keeps rows, is not committed yet.
pub(crate) async fn being_changed(connection: &mut PgConnection, claim: &Claim) -> Result<bool> {
    if claim.policy_version == 0 {
        return Ok(false);
    }
    let query = sql!("being_changed" scalar bool).bind(&claim.unit.policy);
    Ok(query.bind(claim.unit.chore == ChoreKind::Erase).fetch_one(connection).await?)
}

/// Returns whether the policy and the columns that it goes by are what they were, and stay so until the transaction ends.
pub(crate) async fn progress(
    connection: &mut PgConnection,
    claim: &Claim,
    (run, rows): (i64, u64),
    cutoff: Option<Timestamp>,
    shape: Option<&str>,
) -> Result<bool> {
    Ok(sql!("progress" scalar bool)
        .bind(run)
        .bind(rows as i64)
        .bind(cutoff.map(|cutoff| cutoff.to_sqlx()))
        .bind(shape)
        .bind(claim.policy_version)
        .bind(&claim.unit.policy)
        .fetch_one(connection)
        .await?)
}

/// How a run ended.
pub(crate) struct Ending<'a> {
    pub(crate) status: &'static str,
    pub(crate) error: Option<String>,
    pub(crate) skipped: u64,
    pub(crate) failed: u64,
    pub(crate) due: Option<u64>,
    /// `None` when it neither succeeded nor failed: it was stopped, or its brake stopped it.
    pub(crate) succeeded: Option<bool>,
    pub(crate) next_at: Timestamp,
    pub(crate) shape: Option<&'a str>,
    pub(crate) pending: Option<u64>,
}

/// Ends the run, says when the unit is due next and gives the lease back: all or nothing.
pub(crate) async fn finish(connection: &mut PgConnection, claim: &Claim, run: i64, ending: Ending<'_>) -> Result<()> {
    sql!("finish_run")
        .bind(run)
        .bind(ending.status)
        .bind(ending.error)
        .bind(ending.skipped as i64)
        .bind(ending.due.map(|due| due as i64))
        .bind(ending.failed as i64)
        .execute(&mut *connection)
        .await?;
    sql!("finish_unit")
        .bind(claim.unit.to_string())
        .bind(run)
        .bind(ending.succeeded)
        .bind(ending.next_at.to_sqlx())
        .bind(ending.shape)
        .bind(ending.pending.map(|pending| pending as i64))
        .execute(&mut *connection)
        .await?;
    release(connection, &claim.unit, claim.holder, claim.generation).await
}

/// How long runs rested, by reason.
pub(crate) async fn note_rests(connection: &mut PgConnection, rests: &BTreeMap<&'static str, Duration>) -> Result<()> {
    let (reasons, seconds): (Vec<&str>, Vec<f64>) = rests.iter().map(|(why, rest)| (*why, rest.as_secs_f64())).unzip();
    sql!("note_rests").bind(reasons).bind(seconds).execute(connection).await?;
    Ok(())
}

pub(crate) async fn throttle(connection: &mut PgConnection, unit: &Unit, reason: Option<&str>) -> Result<()> {
    sql!("throttle").bind(unit.to_string()).bind(reason).execute(connection).await?;
    Ok(())
}

pub(crate) async fn beat_node(connection: &mut PgConnection, id: Uuid, name: &str, listens: bool) -> Result<()> {
    sql!("beat_node").bind(id).bind(name).bind(env!("CARGO_PKG_VERSION")).bind(listens).execute(connection).await?;
    Ok(())
}

/// What every tick looks at.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Controls {
    pub(crate) change: i64,
    pub(crate) now: Stamp,
    pub(crate) nodes: i64,
    pub(crate) paused: Vec<String>,
    /// How far the server's WAL has come.
    pub(crate) wal_at: i64,
}

pub(crate) async fn controls(connection: &mut PgConnection, alive_within: Duration) -> Result<Controls> {
    Ok(sql!("controls" as Controls).bind(interval(alive_within)).fetch_one(connection).await?)
}

pub(crate) async fn signals(connection: &mut PgConnection, leaf: u32) -> Result<Signals> {
    let started = std::time::Instant::now();
    sqlx::query("SELECT FROM ebb.lease LIMIT 1").persistent(false).execute(&mut *connection).await?;
    let probe = started.elapsed();
    let mut signals = sql!("signals" as Signals).bind(i64::from(leaf)).fetch_one(connection).await?;
    signals.probe = probe;
    Ok(signals)
}

pub(crate) async fn cancel(connection: &mut PgConnection, backend: &Backend) -> Result<()> {
    sql!("cancel").bind(backend.pid).bind(&backend.name).execute(connection).await?;
    Ok(())
}

/// A pass that found nothing to say: only the next time.
pub(crate) async fn reschedule(
    connection: &mut PgConnection,
    unit: &Unit,
    next_at: Timestamp,
    succeeded: bool,
) -> Result<()> {
    sql!("reschedule").bind(unit.to_string()).bind(next_at.to_sqlx()).bind(succeeded).execute(connection).await?;
    Ok(())
}

/// How much WAL the server has written, as a position.
pub(crate) async fn wal_position(connection: &mut PgConnection) -> Result<i64> {
    Ok(sqlx::query_scalar("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8")
        .persistent(false)
        .fetch_one(connection)
        .await?)
}

/// This node is no longer alive.
pub(crate) async fn leave(connection: &mut PgConnection, id: Uuid) -> Result<()> {
    sql!("leave").bind(id).execute(connection).await?;
    Ok(())
}

pub(super) async fn brake_allowance(connection: &mut PgConnection, policy: &str) -> Result<Option<u64>> {
    let allowed = sql!("brake_allowance" scalar Option<i64>).bind(policy).fetch_optional(connection).await?;
    Ok(allowed.flatten().map(|allowed| allowed.max(0) as u64))
}

pub(super) async fn trip_brake(connection: &mut PgConnection, policy: &str, due: u64, limit: &str) -> Result<()> {
    sql!("trip_brake").bind(policy).bind(due as i64).bind(limit).execute(connection).await?;
    Ok(())
}

pub(super) async fn release_brake(connection: &mut PgConnection, policy: &str) -> Result<()> {
    sql!("release_brake").bind(policy).execute(connection).await?;
    Ok(())
}

pub(super) async fn spend_allowance(connection: &mut PgConnection, policy: &str, taken: u64) -> Result<()> {
    sql!("spend_allowance").bind(policy).bind(taken as i64).execute(connection).await?;
    Ok(())
}
