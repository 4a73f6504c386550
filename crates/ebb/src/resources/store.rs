//! The registry of resources in the database. Invariant: whoever condemns, claims or ends locks in one statement and
//! looks in the next.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::{Timestamp as Stamp, ToSqlx};
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use super::driver::Found;
use crate::audit::Moment;
use crate::{Error, Result, sql};

fn interval(duration: Duration) -> PgInterval {
    let microseconds = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
    PgInterval { months: 0, days: 0, microseconds }
}

/// Condemns up to so many resources that nobody refers to; says how many were looked at, and condemned.
pub(super) async fn condemn(connection: &mut PgConnection, policy: &str, limit: u64) -> Result<(u64, u64)> {
    let locked: Vec<i64> =
        sql!("lock_idle" scalar i64).bind(policy).bind(limit as i64).fetch_all(&mut *connection).await?;
    if locked.is_empty() {
        return Ok((0, 0));
    }
    let condemned = sql!("condemn").bind(&locked).execute(connection).await?.rows_affected();
    Ok((locked.len() as u64, condemned))
}

/// What became of condemned resources whose time had come.
pub(super) struct Judged {
    pub(super) looked_at: u64,
    pub(super) rescued: u64,
    pub(super) claimed: u64,
}

/// Claims up to so many condemned resources; those that somebody refers to again live on.
pub(super) async fn judge(connection: &mut PgConnection, policy: &str, grace: Duration, limit: u64) -> Result<Judged> {
    let locked: Vec<i64> = sql!("lock_condemned" scalar i64)
        .bind(policy)
        .bind(interval(grace))
        .bind(limit as i64)
        .fetch_all(&mut *connection)
        .await?;
    if locked.is_empty() {
        return Ok(Judged { looked_at: 0, rescued: 0, claimed: 0 });
    }
    let rescued = sql!("rescue").bind(&locked).execute(&mut *connection).await?.rows_affected();
    let claimed = sql!("claim").bind(&locked).bind(interval(grace)).execute(connection).await?.rows_affected();
    Ok(Judged { looked_at: locked.len() as u64, rescued, claimed })
}

/// One that is to be dropped.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct Claimed {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) store_id: Option<String>,
    pub(super) orphan: bool,
    pub(super) seen_modified: Option<Stamp>,
}

pub(super) async fn claimed(
    connection: &mut PgConnection,
    policy: &str,
    limit: u64,
    orphans: bool,
) -> Result<Vec<Claimed>> {
    Ok(sql!("claimed" as Claimed).bind(policy).bind(limit as i64).bind(orphans).fetch_all(connection).await?)
}

/// Makes tombstones of what the store no longer has; the names of those that this call did.
pub(super) async fn confirm(
    connection: &mut PgConnection,
    ids: &[i64],
    problems: &[Option<String>],
) -> Result<Vec<String>> {
    Ok(sql!("confirm" scalar String).bind(ids).bind(problems).fetch_all(connection).await?)
}

pub(super) async fn postpone(
    connection: &mut PgConnection,
    id: i64,
    problem: &str,
    blocked: bool,
    after: Duration,
) -> Result<()> {
    sql!("postpone").bind(id).bind(problem).bind(blocked).bind(interval(after)).execute(connection).await?;
    Ok(())
}

pub(super) async fn spare(connection: &mut PgConnection, ids: &[i64]) -> Result<Vec<String>> {
    Ok(sql!("spare" scalar String).bind(ids).fetch_all(connection).await?)
}

pub(super) async fn soonest(connection: &mut PgConnection, policy: &str, grace: Duration) -> Result<Option<Timestamp>> {
    let at = sql!("soonest" scalar Option<Moment>).bind(policy).bind(interval(grace)).fetch_one(connection).await?;
    Ok(at.and_then(|at| at.timestamp()))
}

pub(super) async fn would_drop(connection: &mut PgConnection, policy: &str, grace: Duration) -> Result<u64> {
    let count = sql!("would_drop" scalar i64).bind(policy).bind(interval(grace)).fetch_one(connection).await?;
    Ok(count.max(0) as u64)
}

/// How many would be claimed now, and how many there are.
pub(super) async fn weigh(connection: &mut PgConnection, policy: &str, grace: Duration) -> Result<(u64, u64)> {
    let (due, total) = sql!("weigh" as (i64, i64)).bind(policy).bind(interval(grace)).fetch_one(connection).await?;
    Ok((due.max(0) as u64, total.max(0) as u64))
}

/// Ends up to so many dead holders; their names.
pub(super) async fn end_dead_holders(connection: &mut PgConnection, limit: u64) -> Result<Vec<String>> {
    let dead: Vec<(Uuid, String)> =
        sql!("dead_holders" as (Uuid, String)).bind(limit as i64).fetch_all(&mut *connection).await?;
    if dead.is_empty() {
        return Ok(Vec::new());
    }
    let (ids, names): (Vec<Uuid>, Vec<String>) = dead.into_iter().unzip();
    sql!("end_holders").bind(&ids).execute(connection).await?;
    Ok(names)
}

/// Which installation this is, and on which server it runs.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct Installation {
    pub(super) id: Uuid,
    pub(super) server: String,
}

pub(super) async fn installation(connection: &mut PgConnection) -> Result<Installation> {
    Ok(sql!("installation" as Installation).fetch_one(connection).await?)
}

/// What is known about the store of a policy.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct StoreRow {
    pub(super) location: String,
    pub(super) generation: i64,
    pub(super) confirmed_for: Option<String>,
    pub(super) report: Option<Value>,
}

pub(super) async fn store_of(connection: &mut PgConnection, policy: &str) -> Result<Option<StoreRow>> {
    Ok(sql!("store_of" as StoreRow).bind(policy).fetch_optional(connection).await?)
}

pub(super) async fn register(
    connection: &mut PgConnection,
    policy: &str,
    location: &str,
    names: &str,
    pattern: &str,
) -> Result<()> {
    sql!("register").bind(policy).bind(location).bind(names).bind(pattern).execute(connection).await?;
    Ok(())
}

/// Other policies over the same place: their names and patterns.
pub(super) async fn neighbours(
    connection: &mut PgConnection,
    policy: &str,
    location: &str,
) -> Result<Vec<(String, String)>> {
    Ok(sql!("neighbours" as (String, String)).bind(policy).bind(location).fetch_all(connection).await?)
}

pub(super) async fn next_sweep(connection: &mut PgConnection, policy: &str) -> Result<Option<i64>> {
    Ok(sql!("next_sweep" scalar i64).bind(policy).fetch_optional(connection).await?)
}

pub(super) async fn report(connection: &mut PgConnection, policy: &str, report: &Value) -> Result<()> {
    sql!("report").bind(policy).bind(report).execute(connection).await?;
    Ok(())
}

pub(super) async fn unknown(connection: &mut PgConnection, names: &[String]) -> Result<Vec<String>> {
    Ok(sql!("unknown" scalar String).bind(names).fetch_all(connection).await?)
}

pub(super) async fn see(connection: &mut PgConnection, policy: &str, found: &[Found]) -> Result<()> {
    let names: Vec<&str> = found.iter().map(|found| found.name.as_str()).collect();
    let ids: Vec<Option<&str>> = found.iter().map(|found| found.id.as_deref()).collect();
    let times: Vec<Option<Stamp>> = found.iter().map(|found| found.modified_at.map(ToSqlx::to_sqlx)).collect();
    let sizes: Vec<Option<i64>> =
        found.iter().map(|found| found.size.map(|size| i64::try_from(size).unwrap_or(i64::MAX))).collect();
    sql!("see").bind(policy).bind(names).bind(ids).bind(times).bind(sizes).execute(connection).await?;
    Ok(())
}

pub(super) async fn unsee(connection: &mut PgConnection, policy: &str) -> Result<()> {
    sql!("unsee").bind(policy).execute(connection).await?;
    Ok(())
}

/// An orphan that was seen long enough.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct Ripe {
    pub(super) name: String,
    pub(super) store_id: Option<String>,
    pub(super) modified_at: Option<Stamp>,
}

pub(super) async fn ripe(
    connection: &mut PgConnection,
    policy: &str,
    grace: Duration,
    orphan_age: Duration,
) -> Result<Vec<Ripe>> {
    Ok(sql!("ripe" as Ripe).bind(policy).bind(interval(grace)).bind(interval(orphan_age)).fetch_all(connection).await?)
}

pub(super) async fn claim_orphans(connection: &mut PgConnection, policy: &str, ripe: &[Ripe]) -> Result<Vec<String>> {
    let names: Vec<&str> = ripe.iter().map(|ripe| ripe.name.as_str()).collect();
    let ids: Vec<Option<&str>> = ripe.iter().map(|ripe| ripe.store_id.as_deref()).collect();
    let times: Vec<Option<Stamp>> = ripe.iter().map(|ripe| ripe.modified_at).collect();
    Ok(sql!("claim_orphans" scalar String).bind(policy).bind(names).bind(ids).bind(times).fetch_all(connection).await?)
}

pub(super) async fn confirm_store(connection: &mut PgConnection, policy: &str, by: &str, of: &str) -> Result<bool> {
    let done = sql!("confirm_store").bind(policy).bind(by).bind(of).execute(connection).await?;
    Ok(done.rows_affected() > 0)
}

/// The breaker no longer stands. A brake of the dropper's does.
pub(super) async fn untrip(connection: &mut PgConnection, policy: &str) -> Result<()> {
    sql!("untrip").bind(policy).execute(connection).await?;
    Ok(())
}

pub(super) async fn states(connection: &mut PgConnection) -> Result<Vec<(String, String, i64)>> {
    Ok(sql!("states" as (String, String, i64)).fetch_all(connection).await?)
}

/// A resource as people see it.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Resource))]
pub struct Listed {
    /// The policy it belongs to.
    pub policy: String,
    /// What it is called in the store.
    pub name: String,
    /// creating, live, condemned, dropping, blocked or dropped.
    pub state: String,
    /// How many holders refer to it.
    pub refs: i64,
    /// Their names, up to twenty.
    pub holders: Vec<String>,
    /// Whether the sweeper found it.
    pub orphan: bool,
    /// What the store calls it.
    pub store_id: Option<String>,
    /// Why it is not dropped yet, or was not dropped by us.
    pub problem: Option<String>,
    /// When it was announced.
    pub intended_at: Moment,
    /// Since when nobody has referred to it.
    pub condemned_at: Option<Moment>,
    /// When the store no longer had it.
    pub dropped_at: Option<Moment>,
    /// What its creator says about it.
    pub labels: Value,
    /// How many bytes it has, where the store tells.
    #[sqlx(skip)]
    pub size: Option<u64>,
}

pub(super) async fn list(
    connection: &mut PgConnection,
    policy: Option<&str>,
    state: Option<&str>,
    after: Option<(&str, &str)>,
    limit: u64,
) -> Result<Vec<Listed>> {
    Ok(sql!("list" as Listed)
        .bind(policy)
        .bind(state)
        .bind(limit as i64)
        .bind(after.map(|(policy, _)| policy))
        .bind(after.map(|(_, name)| name))
        .fetch_all(connection)
        .await?)
}

/// Calls one of the functions that everybody uses: the same rules whoever asks.
pub(super) async fn open_holder(
    connection: &mut PgConnection,
    name: &str,
    term: Duration,
    labels: &Value,
) -> Result<Uuid> {
    let query = sqlx::query_scalar("SELECT ebb.holder_open($1, $2, $3)").persistent(false);
    query.bind(name).bind(interval(term)).bind(labels).fetch_one(connection).await.map_err(explain)
}

pub(super) async fn beat_holder(connection: &mut PgConnection, holder: Uuid) -> Result<bool> {
    let query = sqlx::query_scalar("SELECT ebb.holder_beat($1)").persistent(false);
    query.bind(holder).fetch_one(connection).await.map_err(explain)
}

pub(super) async fn close_holder(connection: &mut PgConnection, holder: Uuid) -> Result<()> {
    sqlx::query("SELECT ebb.holder_close($1)").persistent(false).bind(holder).execute(connection).await?;
    Ok(())
}

pub(super) async fn announce(
    connection: &mut PgConnection,
    policy: &str,
    name: &str,
    holder: Uuid,
    labels: &Value,
) -> Result<()> {
    let query = sqlx::query("SELECT ebb.create_intent($1, $2, $3, $4)").persistent(false);
    query.bind(policy).bind(name).bind(holder).bind(labels).execute(connection).await.map_err(explain)?;
    Ok(())
}

pub(super) async fn created(
    connection: &mut PgConnection,
    policy: &str,
    name: &str,
    store_id: Option<&str>,
) -> Result<bool> {
    let query = sqlx::query_scalar("SELECT ebb.created($1, $2, $3)").persistent(false);
    query.bind(policy).bind(name).bind(store_id).fetch_one(connection).await.map_err(explain)
}

pub(super) async fn apply_refs(connection: &mut PgConnection, changes: &Value) -> Result<Value> {
    let query = sqlx::query_scalar("SELECT ebb.apply_refs($1)").persistent(false);
    query.bind(changes).fetch_one(connection).await.map_err(explain)
}

/// What the functions refuse is the caller's to mend, and their hint says how.
fn explain(error: sqlx::Error) -> Error {
    let Some(database) = error.as_database_error() else { return error.into() };
    let message = database.message().strip_prefix("resources: ").unwrap_or(database.message());
    let hint = database.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().and_then(|error| error.hint());
    let told = match database.code().as_deref() {
        Some("22023") if message.starts_with("there is no policy") => Error::unknown(message),
        Some("22023" | "22P02") => Error::usage(message),
        Some("55000" | "23505") => Error::refused(message),
        _ => return error.into(),
    };
    match hint {
        Some(hint) => told.with_hint(hint),
        None => told,
    }
}

/// A holder as people see it.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
pub struct HolderRow {
    /// Its id.
    pub id: Uuid,
    /// What it is called.
    pub name: String,
    /// What it says about itself.
    pub labels: Value,
    /// When it was opened.
    pub opened_at: Moment,
    /// When it was last heard of.
    pub beat_at: Moment,
    /// When it is dead without another beat.
    pub expires_at: Moment,
    /// Whether it is not dead yet.
    pub alive: bool,
    /// How many resources it refers to.
    pub refs: i64,
}

pub(super) async fn holders(connection: &mut PgConnection, limit: u64) -> Result<Vec<HolderRow>> {
    Ok(sql!("holder_list" as HolderRow).bind(limit as i64).fetch_all(connection).await?)
}

/// An orphan that was seen.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
pub struct Sighting {
    /// What it is called in the store.
    pub name: String,
    /// What the store calls it.
    pub store_id: Option<String>,
    /// When it changed last, by the store's clock.
    pub modified_at: Option<Moment>,
    /// Since when it has been seen unchanged.
    pub first_seen: Moment,
    /// When it was seen last.
    pub last_seen: Moment,
    /// How many bytes it has.
    pub size: Option<i64>,
}

pub(super) async fn sightings(connection: &mut PgConnection, policy: &str, limit: u64) -> Result<Vec<Sighting>> {
    Ok(sql!("sightings" as Sighting).bind(policy).bind(limit as i64).fetch_all(connection).await?)
}

pub(super) async fn hurry(connection: &mut PgConnection, policy: &str, name: &str) -> Result<Option<(i64, String)>> {
    Ok(sql!("hurry" as (i64, String)).bind(policy).bind(name).fetch_optional(connection).await?)
}

pub(super) async fn hurry_now(connection: &mut PgConnection, id: i64) -> Result<bool> {
    Ok(sql!("hurry_now").bind(id).execute(connection).await?.rows_affected() > 0)
}

pub(super) async fn holders_of(connection: &mut PgConnection, id: i64) -> Result<Vec<String>> {
    Ok(sql!("holders_of" scalar String).bind(id).fetch_all(connection).await?)
}

pub(super) async fn nudge(connection: &mut PgConnection, policy: &str) -> Result<()> {
    sql!("nudge").bind(policy).execute(connection).await?;
    Ok(())
}

/// Whether a pass of the dropper would find anything.
pub(super) async fn anything(connection: &mut PgConnection, policy: &str, grace: Duration) -> Result<bool> {
    Ok(sql!("anything" scalar bool).bind(policy).bind(interval(grace)).fetch_one(connection).await?)
}

pub(super) async fn any_dead(connection: &mut PgConnection) -> Result<bool> {
    Ok(sql!("any_dead" scalar bool).fetch_one(connection).await?)
}

/// The time that policies go by.
pub(super) async fn now(connection: &mut PgConnection) -> Result<Timestamp> {
    let now: Stamp = sqlx::query_scalar("SELECT ebb.now()").persistent(false).fetch_one(connection).await?;
    Ok(now.to_jiff())
}
