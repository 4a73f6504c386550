//! Warning: whose erasure comes near hears of it, through an event of the schedule duty that is written together with
//! the deletion's state. Invariants: each warning of a deletion is there once, whoever else runs; nobody on hold is
//! written to, nor by a policy that erases nobody any more; the date that a warning names is never later than the erasure, because the time it promises is counted
//! from when the sink accepted it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;
use uuid::Uuid;

use super::compile::Compiled;
use super::store::Place;
use super::store::rows::{self, Care, Doomed, Mirrored};
use super::store::snapshots::clock;
use super::store::warnings::{self as store, Announced, MayWarn, Scheduled};
use super::tree::Column;
use super::{entry, link};
use crate::audit::{Moment, SubjectKey};
use crate::pg::{Ident, Operators, catalog};
use crate::policy::{self, Kind, Mode, Policy, Retain, Subjects, Warning};
use crate::spine::batch::Batch;
use crate::spine::{Chore, Outcome, Recovery};
use crate::words::plural;
use crate::{Error, Result, Trouble};

/// A warning that is later than this, over the sink's own retries, would name a date that is not true any more. It is
/// not sent, and made anew.
const LATE: Duration = Duration::from_secs(86_400);
const DAY: i64 = 86_400_000_000;

/// One run of warning.
pub(crate) struct Warn {
    policy: String,
    zone: String,
    compiled: Compiled,
    warning: Warning,
    /// The key's columns and the contact's.
    read: Vec<Column>,
    mirrored: Mirrored,
    key: Arc<SubjectKey>,
    place: link::Place,
    max_late: Duration,
    longest: (Option<PgInterval>, Option<PgInterval>),
    way: Way,
    scheduled: u64,
    skipped: u64,
    /// Whether a row has been met whose table refuses what mirrors its warning.
    care: Care,
}

/// How far a run has come.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// What sinks have accepted, after a deletion.
    Settle(Option<Uuid>),
    /// First warnings, after a place.
    First(Place),
    /// Reminders, after a place.
    Again(Place),
    Done,
}

impl Warn {
    /// A run of a policy that warns.
    pub(crate) async fn prepare(
        connection: &mut PgConnection,
        policy: &str,
        subjects: &Subjects,
        warning: &Warning,
        compiled: Compiled,
        (key, place): (Arc<SubjectKey>, link::Place),
    ) -> Result<Self> {
        let mut read = compiled.root.key.clone();
        read.extend(contact(connection, &compiled, warning).await?);
        let mirrored = Mirrored {
            notified: subjects.mirror.notified.as_ref().map(Ident::new),
            due: subjects.mirror.due.as_ref().map(Ident::new),
            touched: subjects.mirror.touched.as_ref().map(Ident::new),
        };
        let max_late = LATE + retries(connection, &warning.notify).await?;
        store::lost_warnings(connection, policy).await?;
        // A node may have held some when the policy got another sink.
        store::withdraw_warnings(connection, policy, Some(&warning.notify)).await?;
        Ok(Self {
            policy: policy.to_owned(),
            zone: compiled.root.zone.name().to_owned(),
            longest: store::longest_warning(connection, policy).await?,
            warning: warning.clone(),
            compiled,
            read,
            mirrored,
            key,
            place,
            max_late,
            way: Way::Settle(None),
            scheduled: 0,
            skipped: 0,
            care: Care::None,
        })
    }

    async fn step(&mut self, batch: &mut Batch) -> Result<Outcome> {
        let size = batch.size.max(1);
        rows::bound(batch.connection(), &self.compiled.root.path).await?;
        let (changed, next) = match self.way {
            Way::Settle(after) => self.settle(batch.connection(), after, size).await?,
            Way::First(after) => {
                let Some(longest) = self.longest.0 else { return Ok(self.end()) };
                let found = store::to_warn(batch.connection(), &self.policy, after, size, &longest).await?;
                let next = found.last().map_or(Way::Again(None), |last| Way::First(Some((last.due_at, last.id))));
                (self.announce(batch, found).await?, next)
            }
            Way::Again(after) => {
                let Some(longest) = self.longest.1 else { return Ok(self.end()) };
                let found = store::to_remind(batch.connection(), &self.policy, after, size, &longest).await?;
                let next = found.last().map_or(Way::Done, |last| Way::Again(Some((last.due_at, last.id))));
                (self.announce(batch, found).await?, next)
            }
            Way::Done => (0, Way::Done),
        };
        // What triggers of the table put off to the end of the transaction happens as they know it.
        self.compiled.root.path.settle(batch.connection()).await?;
        self.way = next;
        Ok(Outcome { changed, more: !matches!(self.way, Way::Done) })
    }

    fn end(&mut self) -> Outcome {
        self.way = Way::Done;
        Outcome { changed: 0, more: false }
    }

    /// Due times follow what sinks have accepted, and so do the columns that mirror them.
    async fn settle(&mut self, connection: &mut PgConnection, after: Option<Uuid>, size: u64) -> Result<(u64, Way)> {
        let found = store::unsettled(connection, &self.policy, after, size).await?;
        let Some((last, _)) = found.last() else { return Ok((0, Way::First(None))) };
        let next = Way::Settle(Some(*last));
        let columns = self.compiled.root.key.len();
        let mut open = Doomed::with(columns);
        for (at, (_, subject)) in found.iter().enumerate() {
            if let Some(subject) = subject {
                open.push(rows::id_parts(subject, columns)?, at as i32);
            }
        }
        let role = self.compiled.role.clone();
        rows::as_role(connection, role.as_ref()).await?;
        let locked = rows::lock_roots(connection, &self.compiled.root, &self.compiled.root.key, &open).await?;
        let there = rows::existing(connection, &self.compiled.root, &open).await?;
        rows::back_from_role(connection, role.as_ref()).await?;
        // Rows that others hold are for the next run; without a row there is nothing to keep in step.
        let held = |at: i32| there.contains(&at) && !locked.iter().any(|row| row.subject == at);
        let mine: Vec<Uuid> =
            found.iter().enumerate().filter(|(at, _)| !held(*at as i32)).map(|(_, (id, _))| *id).collect();
        self.skipped += (found.len() - mine.len()) as u64;
        let (mut ids, mut due, mut warned) = (Doomed::with(columns), Vec::new(), Vec::new());
        for (id, due_at, accepted_at) in store::settle(connection, &mine).await? {
            let Some((_, Some(subject))) = found.iter().find(|(deletion, _)| *deletion == id) else { continue };
            ids.push(rows::id_parts(subject, columns)?, due.len() as i32);
            due.push(due_at);
            warned.push(accepted_at);
        }
        let now = clock(connection).await?;
        rows::as_role(connection, role.as_ref()).await?;
        let (root, moments) = (&self.compiled.root, (&due[..], &warned[..]));
        let refused = rows::mirror_warning(self.care, connection, root, &self.mirrored, &ids, moments, now).await?;
        rows::back_from_role(connection, role.as_ref()).await?;
        if refused.rows > 0 {
            // What the server says of a row may name whose it is.
            let (policy, rows, sqlstate) = (&self.policy, refused.rows, refused.sqlstate);
            tracing::warn!(
                policy,
                rows,
                sqlstate,
                "The table refuses columns that mirror warnings; they count without"
            );
        }
        Ok((0, next))
    }

    /// Writes warnings for deletions whose rows are locked: what a second look under the locks sees decides.
    async fn announce(&mut self, batch: &mut Batch, found: Vec<Announced>) -> Result<u64> {
        if found.is_empty() {
            return Ok(0);
        }
        let ids = self.compiled.root.named(found.iter().map(|one| one.subject_id.as_str()))?;
        let connection = batch.connection();
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let locked = rows::lock_roots(connection, &self.compiled.root, &self.read, &ids).await?;
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        self.skipped += (found.len() - locked.len()) as u64;
        // What the application took back itself is marking's to close, also where it was deleted again since.
        let mine: Vec<(&Announced, &[Option<String>])> = locked
            .iter()
            .filter(|row| row.deleted_at.is_some() && !row.is_later(found[row.subject as usize].deleted_at))
            .map(|row| (&found[row.subject as usize], &row.values[self.compiled.root.key.len()..]))
            .collect();
        let announced: Vec<&Announced> = mine.iter().map(|(one, _)| *one).collect();
        let waits: Vec<PgInterval> = announced.iter().map(|one| interval(self.wait(one))).collect();
        let mut scheduled = Scheduled::default();
        for may in store::may_warn(connection, &announced, &waits).await? {
            let (one, contact) = mine[may.at as usize];
            scheduled.events.push(self.event(one, contact, &may));
            scheduled.deletions.push(one.id);
            scheduled.steps.push(one.step);
            scheduled.before.push(one.before);
            scheduled.send_at.push(may.send_at);
            scheduled.released.push(may.released);
        }
        let written = store::schedule_warnings(connection, &self.policy, scheduled).await?;
        if written > 0 {
            self.record(batch, written as i64).await?;
        }
        self.scheduled += written;
        Ok(written)
    }

    /// Warnings of one run do not all go out at once; the same one always waits as long. A reminder waits for a small
    /// part of what is left.
    fn wait(&self, one: &Announced) -> Duration {
        let spread = match one.step {
            0 => self.warning.spread,
            _ => self.warning.spread.min(Duration::from_micros(approximate(&one.before) / 8)),
        };
        // The last 48 bits of an id are random; the first ones tell the time where marking made it.
        let (_, low) = one.id.as_u64_pair();
        spread.mul_f64((low & ((1 << 48) - 1)) as f64 / (1_u64 << 48) as f64)
    }

    /// The event that carries a warning, as `ebb.schedule_many` takes it.
    fn event(&self, one: &Announced, contact: &[Option<String>], may: &MayWarn) -> Value {
        let late = match one.step {
            0 => self.max_late,
            // A reminder that comes when all is over helps nobody.
            _ => self.max_late.min(Duration::from_micros(approximate(&one.before) / 2)),
        };
        json!({
            "sink": self.warning.notify,
            "due_at": may.send_at,
            "payload": self.payload(one, contact, may),
            "max_late": format!("{} seconds", late.as_secs().max(1)),
            "subject_policy": self.policy,
            "subject_id": one.subject_id,
        })
    }

    /// The requirement's event schema, with what a mail needs besides.
    fn payload(&self, one: &Announced, contact: &[Option<String>], may: &MayWarn) -> Value {
        let kind = if one.step == 0 { "deletion_warning" } else { "deletion_reminder" };
        let days = may.promised.micros().saturating_sub(may.send_at.micros()).max(0) / DAY;
        let mut texts: Map<String, Value> =
            self.warning.texts.iter().map(|(key, text)| (key.clone(), text.as_str().into())).collect();
        if let Some(Value::Object(own)) = &one.texts {
            texts.extend(own.clone());
        }
        let mut payload = json!({
            "type": kind,
            "event_type": format!("user.{kind}"),
            "user_id": one.subject_id,
            "tenant_id": one.tenant,
            "timestamp": second(may.now),
            "policy": self.policy,
            "zone": self.zone,
            "data": {
                "email": contact.first().cloned().flatten(),
                "name": contact.get(1).cloned().flatten(),
                "deleted_at": second(one.deleted_at),
                "scheduled_deletion_at": second(may.promised),
                "days_remaining": days,
                "restore_url": self.place.link(&link::token(&self.key, one.id)),
            },
        });
        if !texts.is_empty() {
            payload["texts"] = texts.into();
        }
        payload
    }

    async fn record(&self, batch: &mut Batch, rows: i64) -> Result<()> {
        let mut entry = entry(batch, "warn", "ebb");
        entry.rows = rows;
        entry.insert(batch.connection()).await?;
        Ok(())
    }
}

/// A warning and a reminder as a policy's will be, of nobody, and the sink that must have words for them.
pub(crate) fn samples(policy: &Retain) -> Option<(&str, [Value; 2])> {
    let warning = policy.subjects()?.warning.as_ref().filter(|_| policy.mode == Mode::Enforce)?;
    let sample = |kind: &str| {
        let mut payload = json!({
            "type": kind,
            "event_type": format!("user.{kind}"),
            "user_id": "1",
            "tenant_id": policy.tenant.as_ref().map(|_| "nobody's"),
            "timestamp": "2026-01-01T00:00:00Z",
            "policy": policy.name.as_str(),
            "zone": policy.zone.name(),
            "data": {
                "email": "nobody@example.test",
                "name": warning.contact.name.as_ref().map(|_| "Nobody"),
                "deleted_at": "2026-01-01T00:00:00Z",
                "scheduled_deletion_at": "2026-04-01T00:00:00Z",
                "days_remaining": 30,
                "restore_url": "https://example.test/restore/sample",
            },
        });
        if !warning.texts.is_empty() {
            payload["texts"] = json!(warning.texts);
        }
        payload
    };
    Some((&warning.notify, [sample("deletion_warning"), sample("deletion_reminder")]))
}

/// The columns of the root table that say who is warned; they must be there.
pub(crate) async fn contact(
    connection: &mut PgConnection,
    compiled: &Compiled,
    warning: &Warning,
) -> Result<Vec<Column>> {
    let mut columns = Vec::new();
    for name in [Some(&warning.contact.email), warning.contact.name.as_ref()].into_iter().flatten() {
        let found = catalog::column(connection, &compiled.root.relation, compiled.oid, name).await;
        let found = found.map_err(|error| error.context("`contact`"))?;
        columns.push(Column { name: found.name, sql_type: "text".into(), operators: Operators::built_in() });
    }
    Ok(columns)
}

/// How long a sink tries at most, between its first attempt and its last.
async fn retries(connection: &mut PgConnection, sink: &str) -> Result<Duration> {
    let stored = policy::store::all(connection).await?;
    let Some(stored) = stored.iter().find(|stored| stored.kind == Kind::Sink && stored.name == sink) else {
        return Err(Error::config(format!("there is no sink {sink:?} to warn through")));
    };
    let Policy::Sink(sink) = stored.policy()? else { return Ok(Duration::ZERO) };
    let waits = (1..sink.retry.attempts()).filter_map(|attempt| sink.retry.delay(attempt, 1.0));
    Ok(waits.fold(sink.timeout * sink.retry.attempts(), |sum, wait| sum + wait))
}

/// RFC 3339 without fractions, as people read it. A date that is named is not after the one that is meant.
fn second(moment: Moment) -> Option<String> {
    let timestamp = moment.timestamp()?;
    Timestamp::from_second(timestamp.as_microsecond().div_euclid(1_000_000)).ok().map(|second| second.to_string())
}

fn interval(wait: Duration) -> PgInterval {
    PgInterval { months: 0, days: 0, microseconds: wait.as_micros() as i64 }
}

/// Microseconds, of months about.
fn approximate(term: &PgInterval) -> u64 {
    let days = i64::from(term.months) * 30 + i64::from(term.days);
    (days * DAY + term.microseconds).max(0).unsigned_abs()
}

impl Chore for Warn {
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>> {
        self.step(batch).boxed()
    }

    fn recover(&mut self, error: &Error) -> Recovery {
        if error.is_of_a_row() && self.care == Care::None {
            self.care = Care::RowByRow;
            return Recovery::Again;
        }
        match error.trouble() {
            Trouble::Slow | Trouble::TooBig | Trouble::Contended => Recovery::Smaller,
            _ => Recovery::GiveUp,
        }
    }

    fn cutoff(&self) -> Option<Timestamp> {
        None
    }

    fn shape(&self) -> Option<String> {
        Some(plural(self.scheduled, "warning"))
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }
}
