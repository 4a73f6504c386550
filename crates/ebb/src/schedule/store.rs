//! The SQL of events. Invariant: whatever is written about a claimed event names the token of the claim, and what did not
//! count is told.

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::event::{Event, Yearly};
use super::sink::{Health, Response};
use crate::audit::Moment;
use crate::policy::{Schedule, Term};
use crate::spine::store::{Stamp, interval};
use crate::{Error, Result, sql};

/// What a node wants of one sink.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) sink: String,
    /// So many of the oldest.
    pub(crate) oldest: usize,
    /// So many of what has just become due.
    pub(crate) fresh: usize,
    /// Nothing up to this place, in the order of claims.
    pub(crate) floor: Option<(Timestamp, Uuid)>,
    pub(crate) lease: Duration,
    /// How often it tries.
    pub(crate) attempts: u32,
}

/// An event that this node holds.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Claimed {
    pub(crate) id: Uuid,
    pub(crate) event: Uuid,
    pub(crate) sink: String,
    pub(crate) due_at: Stamp,
    pub(crate) ready_at: Stamp,
    pub(crate) token: i64,
    pub(crate) attempts: i32,
    pub(crate) too_late: bool,
    pub(crate) body: String,
    pub(crate) now: Stamp,
    /// It is about somebody whose life a policy governs.
    pub(crate) of_subject: bool,
    /// Somebody cancelled it while it was held.
    pub(crate) cancelled: bool,
    /// Somebody held it before, and their lease ran out.
    pub(crate) left_behind: bool,
    /// … in its last attempt: why it is not tried again.
    pub(crate) given_up: Option<String>,
}

impl Claimed {
    /// Whether there is a call to make for it.
    pub(crate) fn is_to_be_sent(&self) -> bool {
        !self.too_late && !self.cancelled && self.given_up.is_none()
    }
}

pub(crate) async fn claim(connection: &mut PgConnection, wishes: &[Wish], node: &str) -> Result<Vec<Claimed>> {
    // Statistics of a table that fills and empties within seconds mislead; the index is always right.
    sqlx::raw_sql("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off")
        .execute(&mut *connection)
        .await?;
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    let floor = |wish: &Wish| wish.floor.unwrap_or((Timestamp::UNIX_EPOCH, Uuid::nil()));
    Ok(sql!("claim" as Claimed)
        .bind(wishes.iter().map(|wish| wish.sink.as_str()).collect::<Vec<_>>())
        .bind(wishes.iter().map(|wish| count(wish.oldest)).collect::<Vec<_>>())
        .bind(wishes.iter().map(|wish| count(wish.fresh)).collect::<Vec<_>>())
        .bind(wishes.iter().map(|wish| Moment::from(floor(wish).0)).collect::<Vec<_>>())
        .bind(wishes.iter().map(|wish| floor(wish).1).collect::<Vec<_>>())
        .bind(wishes.iter().map(|wish| interval(wish.lease)).collect::<Vec<_>>())
        .bind(wishes.iter().map(|wish| i32::try_from(wish.attempts).unwrap_or(i32::MAX)).collect::<Vec<_>>())
        .bind(node)
        .fetch_all(connection)
        .await?)
}

/// When there is something to do next.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub(crate) struct Ahead {
    pub(crate) ready_at: Option<Stamp>,
    pub(crate) fires_at: Option<Stamp>,
    pub(crate) lease_runs_out_in: Option<f64>,
    pub(crate) now: Stamp,
}

pub(crate) async fn peek(connection: &mut PgConnection, sinks: &[String], paused: &[String]) -> Result<Ahead> {
    sqlx::raw_sql("SET LOCAL enable_seqscan = off; SET LOCAL jit = off").execute(&mut *connection).await?;
    Ok(sql!("peek" as Ahead).bind(sinks).bind(paused).fetch_one(connection).await?)
}

/// How a claim ends.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    /// It leaves for the history.
    Finished { state: &'static str, error: Option<String>, response: Option<Response> },
    /// It is tried again.
    Failed { wait: Duration, error: String, response: Option<Response> },
    /// It is ready again at once.
    Released { counted: bool },
}

/// A claim and its end.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) id: Uuid,
    pub(crate) token: i64,
    pub(crate) ending: Ending,
}

/// Writes down how claims ended; the ids that counted. What was not delivered and somebody cancelled meanwhile ends.
pub(crate) async fn record(connection: &mut PgConnection, records: &[Record], node: &str) -> Result<Vec<Uuid>> {
    sqlx::raw_sql("SET LOCAL enable_seqscan = off; SET LOCAL jit = off").execute(&mut *connection).await?;
    let cancelled = cancelled(connection, records).await?;
    let (mut finished, mut failed, mut released) = (Finished::default(), Failed::default(), Released::default());
    for Record { id, token, ending } in records {
        match ending {
            ending if cancelled.contains(id) => finished.cancel(*id, *token, ending),
            Ending::Finished { state, error, response } => {
                finished.push(*id, *token, state, error.as_deref(), response.as_ref());
            }
            Ending::Failed { wait, error, response } => {
                failed.ids.push(*id);
                failed.tokens.push(*token);
                failed.waits.push(interval(*wait));
                failed.errors.push(error);
                failed.responses.push(response.as_ref().map(answer));
            }
            Ending::Released { counted } => {
                released.ids.push(*id);
                released.tokens.push(*token);
                released.uncounted.push(i32::from(!counted));
            }
        }
    }
    let mut counted = Vec::new();
    if !finished.ids.is_empty() {
        let query = sql!("finish" scalar Uuid).bind(finished.ids).bind(finished.tokens).bind(finished.states);
        let query = query.bind(finished.errors).bind(finished.responses).bind(finished.uncounted).bind(node);
        counted.extend(query.fetch_all(&mut *connection).await?);
    }
    if !failed.ids.is_empty() {
        let query = sql!("fail" scalar Uuid).bind(failed.ids).bind(failed.tokens).bind(failed.waits);
        counted.extend(query.bind(failed.errors).bind(failed.responses).fetch_all(&mut *connection).await?);
    }
    if !released.ids.is_empty() {
        let query = sql!("release" scalar Uuid).bind(released.ids).bind(released.tokens).bind(released.uncounted);
        counted.extend(query.fetch_all(&mut *connection).await?);
    }
    Ok(counted)
}

#[derive(Default)]
struct Finished<'a> {
    ids: Vec<Uuid>,
    tokens: Vec<i64>,
    states: Vec<&'a str>,
    errors: Vec<Option<&'a str>>,
    responses: Vec<Option<Value>>,
    uncounted: Vec<i32>,
}

impl<'a> Finished<'a> {
    fn push(&mut self, id: Uuid, token: i64, state: &'a str, error: Option<&'a str>, response: Option<&Response>) {
        self.ids.push(id);
        self.tokens.push(token);
        self.states.push(state);
        self.errors.push(error);
        self.responses.push(response.map(answer));
        self.uncounted.push(0);
    }

    /// It ends with what its last attempt came to; one that was not made does not count.
    fn cancel(&mut self, id: Uuid, token: i64, ending: &'a Ending) {
        let (error, response) = match ending {
            Ending::Finished { error, response, .. } => (error.as_deref(), response.as_ref()),
            Ending::Failed { error, response, .. } => (Some(error.as_str()), response.as_ref()),
            Ending::Released { .. } => (None, None),
        };
        self.push(id, token, "cancelled", error, response);
        if let (Ending::Released { counted: false }, Some(uncounted)) = (ending, self.uncounted.last_mut()) {
            *uncounted = 1;
        }
    }
}

#[derive(Default)]
struct Failed<'a> {
    ids: Vec<Uuid>,
    tokens: Vec<i64>,
    waits: Vec<sqlx::postgres::types::PgInterval>,
    errors: Vec<&'a str>,
    responses: Vec<Option<Value>>,
}

#[derive(Default)]
struct Released {
    ids: Vec<Uuid>,
    tokens: Vec<i64>,
    uncounted: Vec<i32>,
}

/// Those of them that somebody cancelled while they were held, and that have not arrived.
async fn cancelled(connection: &mut PgConnection, records: &[Record]) -> Result<HashSet<Uuid>> {
    let arrived = |ending: &Ending| matches!(ending, Ending::Finished { state: "done", .. });
    let ids: Vec<Uuid> = records.iter().filter(|record| !arrived(&record.ending)).map(|record| record.id).collect();
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    Ok(sql!("cancelled" scalar Uuid).bind(ids).fetch_all(connection).await?.into_iter().collect())
}

/// A response as it is kept. PostgreSQL has no text with a zero byte.
fn answer(response: &Response) -> Value {
    serde_json::json!({ "status": response.status, "body": response.body.replace('\0', "\u{fffd}") })
}

/// Which of these claims are still this node's, of events that nobody has cancelled.
pub(crate) async fn wanted(connection: &mut PgConnection, claims: &[(Uuid, i64)]) -> Result<Vec<Uuid>> {
    sqlx::raw_sql("SET LOCAL enable_seqscan = off; SET LOCAL jit = off").execute(&mut *connection).await?;
    let (ids, tokens): (Vec<Uuid>, Vec<i64>) = claims.iter().copied().unzip();
    Ok(sql!("wanted" scalar Uuid).bind(ids).bind(tokens).fetch_all(connection).await?)
}

/// Prolongs claims; the ids that are still this node's.
pub(crate) async fn hold(connection: &mut PgConnection, held: &[(Uuid, i64, Duration)]) -> Result<Vec<Uuid>> {
    sqlx::raw_sql("SET LOCAL enable_seqscan = off; SET LOCAL jit = off").execute(&mut *connection).await?;
    Ok(sql!("hold" scalar Uuid)
        .bind(held.iter().map(|(id, _, _)| *id).collect::<Vec<_>>())
        .bind(held.iter().map(|(_, token, _)| *token).collect::<Vec<_>>())
        .bind(held.iter().map(|(_, _, lease)| interval(*lease)).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?)
}

/// Keeps in mind how receivers are, by the last answers of this node.
pub(crate) async fn note_health(connection: &mut PgConnection, health: &[(String, Health)]) -> Result<()> {
    let of = |wanted: Health| -> Vec<&str> {
        health.iter().filter(|(_, health)| *health == wanted).map(|(sink, _)| sink.as_str()).collect()
    };
    sql!("note_health").bind(of(Health::Dead)).bind(of(Health::Alive)).execute(connection).await?;
    Ok(())
}

pub(crate) async fn sleep(connection: &mut PgConnection, node: Uuid, until: Timestamp) -> Result<()> {
    sql!("sleep").bind(node).bind(until.to_sqlx()).execute(connection).await?;
    Ok(())
}

pub(crate) async fn awake(connection: &mut PgConnection, node: Uuid) -> Result<()> {
    sql!("awake").bind(node).execute(connection).await?;
    Ok(())
}

/// Who has written events and not committed; of `among`, when it is given.
pub(crate) async fn writers(connection: &mut PgConnection, among: Option<&[String]>) -> Result<Vec<String>> {
    Ok(sql!("writers" scalar String).bind(among).fetch_all(connection).await?)
}

/// Makes the history's next partitions.
pub(crate) async fn extend_history(connection: &mut PgConnection) -> Result<i32> {
    Ok(sqlx::query_scalar("SELECT ebb.event_history_extend()").persistent(false).fetch_one(connection).await?)
}

/// What `fire_yearly` did with one event.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct FiredYearly {
    pub(crate) fires: bool,
    pub(crate) passed_over: i64,
}

pub(crate) async fn fire_yearly(
    connection: &mut PgConnection,
    limit: i64,
    paused: &[String],
) -> Result<Vec<FiredYearly>> {
    Ok(sql!("fire_yearly" as FiredYearly).bind(limit).bind(paused).fetch_all(connection).await?)
}

/// A recurring event by cron whose time has come.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct DueCron {
    pub(crate) id: Uuid,
    pub(crate) cron: String,
    pub(crate) zone: String,
    pub(crate) missed: String,
    pub(crate) next_at: Stamp,
    pub(crate) now: Stamp,
}

pub(crate) async fn due_cron(connection: &mut PgConnection, limit: i64, paused: &[String]) -> Result<Vec<DueCron>> {
    Ok(sql!("due_cron" as DueCron).bind(limit).bind(paused).fetch_all(connection).await?)
}

pub(crate) async fn fire_cron(
    connection: &mut PgConnection,
    occurrences: &[(Uuid, Timestamp)],
    moves: &[(Uuid, Option<Timestamp>, i64)],
) -> Result<()> {
    sql!("fire_cron")
        .bind(occurrences.iter().map(|(event, _)| *event).collect::<Vec<_>>())
        .bind(occurrences.iter().map(|(_, at)| Moment::from(*at)).collect::<Vec<_>>())
        .bind(moves.iter().map(|(event, _, _)| *event).collect::<Vec<_>>())
        .bind(moves.iter().map(|(_, next, _)| next.map(Moment::from)).collect::<Vec<_>>())
        .bind(moves.iter().map(|(_, _, passed)| *passed).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// The time that due times go by.
pub(crate) async fn now(connection: &mut PgConnection) -> Result<Timestamp> {
    let now: Stamp = sqlx::query_scalar("SELECT ebb.now()").persistent(false).fetch_one(connection).await?;
    Ok(now.to_jiff())
}

pub(crate) async fn follow_schedules(
    connection: &mut PgConnection,
    schedules: &[Schedule],
    next: &[Option<Timestamp>],
) -> Result<()> {
    let texts = |text: fn(&Schedule) -> String| -> Vec<String> { schedules.iter().map(text).collect() };
    sql!("follow_schedules")
        .bind(texts(|schedule| schedule.name.to_string()))
        .bind(texts(|schedule| schedule.sink.clone()))
        .bind(next.iter().map(|next| next.map(Moment::from)).collect::<Vec<_>>())
        .bind(texts(|schedule| schedule.cron.to_string()))
        .bind(texts(|schedule| schedule.zone.name().to_owned()))
        .bind(texts(|schedule| schedule.missed.as_str().to_owned()))
        .bind(schedules.iter().map(|schedule| schedule.max_late.map(|term| term.to_interval())).collect::<Vec<_>>())
        .bind(schedules.iter().map(|schedule| &schedule.payload).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

pub(crate) async fn end_schedules(connection: &mut PgConnection, on: &[&str]) -> Result<()> {
    sql!("end_schedules").bind(on).execute(connection).await?;
    Ok(())
}

/// A partition of the history that went.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Dropped {
    pub(crate) partition: Option<String>,
    pub(crate) rows: Option<i64>,
    pub(crate) day: Option<String>,
}

/// Drops the oldest partition of the history that is older than a term, if there is one.
pub(crate) async fn drop_history(connection: &mut PgConnection, term: Term) -> Result<Dropped> {
    Ok(sql!("drop_history" as Dropped).bind(term.to_interval()).fetch_one(connection).await?)
}

/// Forgets recurring events that were cancelled longer than a term ago.
pub(crate) async fn forget_recurring(connection: &mut PgConnection, term: Term) -> Result<()> {
    sql!("forget_recurring").bind(term.to_interval()).execute(connection).await?;
    Ok(())
}

/// Forgets cancellations of events that have ended.
pub(crate) async fn forget_cancels(connection: &mut PgConnection) -> Result<()> {
    sql!("forget_cancels").execute(connection).await?;
    Ok(())
}

pub(super) async fn schedule(connection: &mut PgConnection, event: &Event) -> Result<Uuid> {
    let (policy, subject) = event.subject.as_ref().map_or((None, None), |(policy, id)| (Some(policy), Some(id)));
    sqlx::query_scalar("SELECT ebb.schedule($1, $2, $3, $4, $5, $6, $7)")
        .persistent(false)
        .bind(text(&event.sink)?)
        .bind(event.due_at.to_sqlx())
        .bind(json(&event.payload)?)
        .bind(event.dedupe_key.as_deref().map(text).transpose()?)
        .bind(event.max_late.map(interval))
        .bind(policy)
        .bind(subject)
        .fetch_one(connection)
        .await
        .map_err(explain)
}

pub(super) async fn schedule_many(connection: &mut PgConnection, events: &[Event]) -> Result<Vec<Uuid>> {
    let events: Vec<Value> = events
        .iter()
        .map(|event| {
            let late = event.max_late.map(|late| format!("{} microseconds", late.as_micros()));
            let (policy, subject) =
                event.subject.as_ref().map_or((None, None), |(policy, id)| (Some(policy), Some(id)));
            let mut object = serde_json::json!({
                "sink": event.sink, "due_at": event.due_at.to_string(), "payload": event.payload, "max_late": late,
                "subject_policy": policy, "subject_id": subject,
            });
            if let (Some(key), Some(object)) = (&event.dedupe_key, object.as_object_mut()) {
                object.insert("dedupe_key".into(), key.as_str().into());
            }
            object
        })
        .collect();
    sqlx::query_scalar("SELECT ebb.schedule_many($1)")
        .persistent(false)
        .bind(json(&Value::Array(events))?)
        .fetch_all(connection)
        .await
        .map_err(explain)
}

pub(super) async fn schedule_yearly(connection: &mut PgConnection, event: &Yearly) -> Result<Uuid> {
    let (policy, subject) = event.subject.as_ref().map_or((None, None), |(policy, id)| (Some(policy), Some(id)));
    sqlx::query_scalar("SELECT ebb.schedule_yearly($1, $2, $3, $4::time, $5, $6, $7, $8, $9, $10, $11, $12)")
        .persistent(false)
        .bind(text(&event.sink)?)
        .bind(i32::from(event.month))
        .bind(i32::from(event.day))
        .bind(event.at.to_string())
        .bind(text(&event.zone)?)
        .bind(json(&event.payload)?)
        .bind(event.dedupe_key.as_deref().map(text).transpose()?)
        .bind(event.missed.as_str())
        .bind(event.max_late.map(interval))
        .bind(if event.leap_day_in_march { "03-01" } else { "02-28" })
        .bind(policy)
        .bind(subject)
        .fetch_one(connection)
        .await
        .map_err(explain)
}

pub(super) async fn cancel(connection: &mut PgConnection, event: Uuid) -> Result<bool> {
    let query = sqlx::query_scalar("SELECT ebb.cancel($1)").persistent(false).bind(event);
    query.fetch_one(connection).await.map_err(explain)
}

/// Makes one event ready again, or every dead letter (of a sink).
pub(super) async fn retry(connection: &mut PgConnection, event: Option<Uuid>, sink: Option<&str>) -> Result<u64> {
    let retried: i64 = sql!("retry" scalar i64).bind(event).bind(sink).fetch_one(&mut *connection).await?;
    Ok(retried.max(0) as u64)
}

/// PostgreSQL has no text with a zero byte, and would answer in terms of the protocol.
fn text(value: &str) -> Result<&str> {
    if value.contains('\0') {
        return Err(Error::usage("a text of an event contains a zero byte")
            .with_hint("encode binary data, for instance as hexadecimal"));
    }
    Ok(value)
}

fn json(value: &Value) -> Result<&Value> {
    fn zero(value: &Value) -> bool {
        match value {
            Value::String(text) => text.contains('\0'),
            Value::Array(items) => items.iter().any(zero),
            Value::Object(fields) => fields.iter().any(|(key, value)| key.contains('\0') || zero(value)),
            _ => false,
        }
    }
    if zero(value) {
        return Err(Error::usage("the payload of an event contains a zero byte")
            .with_hint("encode binary data, for instance as base64"));
    }
    Ok(value)
}

/// What the functions refuse is the caller's mistake; their hint says how to mend it.
fn explain(error: sqlx::Error) -> Error {
    let refused = error
        .as_database_error()
        .filter(|db| matches!(db.code().as_deref(), Some("22023" | "22007" | "22008" | "22P02" | "P0002")));
    let Some(db) = refused else { return error.into() };
    let hint = db.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().and_then(|db| db.hint()).map(str::to_owned);
    let usage = Error::usage(db.message()).with_source(error);
    match hint {
        Some(hint) => usage.with_hint(hint),
        None => usage,
    }
}
