//! The SQL of warnings over Ebb's own schema.

use serde_json::Value;
use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use super::Place;
use super::subjects::explain;
use crate::audit::Moment;
use crate::{Result, sql};

/// A deletion that is to be announced.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Announced {
    pub(crate) id: Uuid,
    pub(crate) subject_id: String,
    pub(crate) tenant: Option<String>,
    pub(crate) deleted_at: Moment,
    pub(crate) due_at: Moment,
    /// 0: the warning; then reminders.
    pub(crate) step: i32,
    pub(crate) before: PgInterval,
    /// The tenant's own words.
    pub(crate) texts: Option<Value>,
}

/// The longest term of a first warning, and of a reminder.
pub(crate) async fn longest_warning(
    connection: &mut PgConnection,
    policy: &str,
) -> Result<(Option<PgInterval>, Option<PgInterval>)> {
    let found = sql!("longest_warning" as (Option<PgInterval>, Option<PgInterval>));
    Ok(found.bind(policy).fetch_one(connection).await?)
}

pub(crate) async fn to_warn(
    connection: &mut PgConnection,
    policy: &str,
    after: Place,
    limit: u64,
    longest: &PgInterval,
) -> Result<Vec<Announced>> {
    let query = sql!("to_warn" as Announced).bind(policy);
    let query = query.bind(after.map(|(due_at, _)| due_at)).bind(after.map(|(_, id)| id));
    Ok(query.bind(limit as i64).bind(longest).fetch_all(connection).await?)
}

pub(crate) async fn to_remind(
    connection: &mut PgConnection,
    policy: &str,
    after: Place,
    limit: u64,
    longest: &PgInterval,
) -> Result<Vec<Announced>> {
    let query = sql!("to_remind" as Announced).bind(policy);
    let query = query.bind(after.map(|(due_at, _)| due_at)).bind(after.map(|(_, id)| id));
    Ok(query.bind(limit as i64).bind(longest).fetch_all(connection).await?)
}

/// What a second look under the locks says of a warning.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct MayWarn {
    /// The position among those that were asked about.
    pub(crate) at: i32,
    pub(crate) send_at: Moment,
    pub(crate) now: Moment,
    /// The date that the warning names.
    pub(crate) promised: Moment,
    /// Until when a hold that ended by itself gives time.
    pub(crate) released: Option<Moment>,
}

pub(crate) async fn may_warn(
    connection: &mut PgConnection,
    announced: &[&Announced],
    waits: &[PgInterval],
) -> Result<Vec<MayWarn>> {
    let ids: Vec<Uuid> = announced.iter().map(|one| one.id).collect();
    let steps: Vec<i32> = announced.iter().map(|one| one.step).collect();
    let before: Vec<PgInterval> = announced.iter().map(|one| one.before).collect();
    let query = sql!("may_warn" as MayWarn).bind(ids).bind(steps).bind(before).bind(waits);
    Ok(query.fetch_all(connection).await?)
}

/// Warnings, each with the event that carries it.
#[derive(Debug, Default)]
pub(crate) struct Scheduled {
    pub(crate) events: Vec<Value>,
    pub(crate) deletions: Vec<Uuid>,
    pub(crate) steps: Vec<i32>,
    pub(crate) before: Vec<PgInterval>,
    pub(crate) send_at: Vec<Moment>,
    pub(crate) released: Vec<Option<Moment>>,
}

pub(crate) async fn schedule_warnings(
    connection: &mut PgConnection,
    policy: &str,
    scheduled: Scheduled,
) -> Result<u64> {
    let Scheduled { events, deletions, steps, before, send_at, released } = scheduled;
    if events.is_empty() {
        return Ok(0);
    }
    let query = sql!("schedule_warnings").bind(Value::Array(events)).bind(deletions).bind(steps).bind(before);
    let query = query.bind(send_at).bind(released).bind(policy);
    Ok(query.execute(connection).await?.rows_affected())
}

/// Deletions with accepted warnings, and their subjects where they are still open.
pub(crate) async fn unsettled(
    connection: &mut PgConnection,
    policy: &str,
    after: Option<Uuid>,
    limit: u64,
) -> Result<Vec<(Uuid, Option<String>)>> {
    let query = sql!("unsettled" as (Uuid, Option<String>)).bind(policy).bind(after).bind(limit as i64);
    Ok(query.fetch_all(connection).await?)
}

/// Returns the open ones: (deletion, due, warned).
pub(crate) async fn settle(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<(Uuid, Moment, Moment)>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    Ok(sql!("settle" as (Uuid, Moment, Moment)).bind(ids).fetch_all(connection).await?)
}

pub(crate) async fn lost_warnings(connection: &mut PgConnection, policy: &str) -> Result<u64> {
    Ok(sql!("lost_warnings").bind(policy).execute(connection).await?.rows_affected())
}

/// Of so many deletions at a time warnings are taken back, which is a moment's work.
const AT_ONCE: i64 = 5_000;

/// Takes back the warnings of a policy that no sink has yet; those that wait in the sink that they go through by now stay.
pub(crate) async fn withdraw_warnings(
    connection: &mut PgConnection,
    policy: &str,
    stay_in: Option<&str>,
) -> Result<()> {
    let mut after: Option<Uuid> = None;
    loop {
        let query = sql!("withdraw_warnings" scalar Uuid).bind(policy).bind(after).bind(AT_ONCE).bind(stay_in);
        match query.fetch_optional(&mut *connection).await? {
            None => return Ok(()),
            last => after = last,
        }
    }
}

/// A deletion as the page behind a link knows it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct LinkRow {
    pub(crate) state: String,
    pub(crate) deleted_at: Moment,
    pub(crate) due_at: Moment,
    pub(crate) now: Moment,
    pub(crate) zone: Option<String>,
    pub(crate) texts: Value,
}

pub(crate) async fn link(connection: &mut PgConnection, deletion: Uuid) -> Result<Option<LinkRow>> {
    Ok(sql!("link" as LinkRow).bind(deletion).fetch_optional(connection).await?)
}

/// Restores what one deletion deleted: restored | used | gone | unknown.
pub(crate) async fn restore_deletion(connection: &mut PgConnection, deletion: Uuid, by: &str) -> Result<String> {
    sql!("restore_deletion" scalar String).bind(deletion).bind(by).fetch_one(connection).await.map_err(explain)
}

/// Policies with subjects whose warning could not be delivered: how many, and the last error.
pub(crate) async fn undeliverable(connection: &mut PgConnection) -> Result<Vec<(String, i64, Option<String>)>> {
    Ok(sql!("undeliverable" as (String, i64, Option<String>)).fetch_all(connection).await?)
}
