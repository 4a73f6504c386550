//! Looking at events: lists, one in full, how sinks stand. Invariant: looking changes nothing, and every count is bounded.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::audit::Moment;
use crate::pg::{Database, Guard};
use crate::policy::{self, Invalid, Policy, did_you_mean, nearest};
use crate::spine::store::interval;
use crate::{Result, sql};

/// Events are counted no further.
const COUNTED: i64 = 100_000;
/// Where a page waits for it they are counted no further, and the last look of a node speaks.
const COUNTED_AT_ONCE: i64 = 1_000;
/// How long the last hour may take to be looked at.
const LOOK_FOR: Duration = Duration::from_secs(3);

/// What became of an event so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It waits for its time or its turn.
    Pending,
    /// A node holds it.
    Running,
    /// An attempt failed, and another will be made.
    Failed,
    /// It was delivered.
    Done,
    /// The last attempt failed.
    Dead,
    /// Somebody cancelled it.
    Cancelled,
    /// It was too late.
    Skipped,
}

impl State {
    const WORDS: [(&'static str, State); 7] = [
        ("pending", State::Pending),
        ("running", State::Running),
        ("failed", State::Failed),
        ("done", State::Done),
        ("dead", State::Dead),
        ("cancelled", State::Cancelled),
        ("skipped", State::Skipped),
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, state)| *state == self).map_or("", |(word, _)| word)
    }
}

impl std::str::FromStr for State {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let words = || Self::WORDS.iter().map(|(word, _)| *word);
        Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, state)| *state).ok_or_else(|| {
            let hint = nearest(text, words()).map_or_else(|| words().collect::<Vec<_>>().join(", "), did_you_mean);
            Invalid::new(format!("{text:?} is no state of an event")).hint(hint)
        })
    }
}

/// Which events to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this sink.
    pub sink: Option<String>,
    /// In this state.
    pub state: Option<State>,
    /// Delivered later than this, or already later than this and not delivered yet.
    pub late: Option<Duration>,
    /// Not delivered so long after their due time.
    pub stuck: Option<Duration>,
    /// So many; 100 when 0.
    pub limit: u32,
}

/// One event or occurrence.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Event))]
pub struct EventRow {
    /// The event.
    pub event: Uuid,
    /// The occurrence; the same for an event that comes once.
    pub occurrence: Uuid,
    /// Where it goes.
    pub sink: String,
    /// What became of it.
    pub state: String,
    /// When it is due.
    pub due_at: Moment,
    /// When the next attempt may start.
    pub ready_at: Option<Moment>,
    /// When it ended.
    pub finished_at: Option<Moment>,
    /// How often it was tried.
    pub attempts: i32,
    /// Grows with every claim.
    pub version: i64,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// Which node had it last.
    pub node: Option<String>,
    /// Its dedupe key.
    pub dedupe_key: Option<String>,
    /// When this was true.
    pub now: Moment,
}

/// An occurrence in full.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Occurrence {
    /// What lists show.
    #[serde(flatten)]
    #[sqlx(flatten)]
    pub row: EventRow,
    /// What the receiver answered to the last attempt.
    pub response: Option<Value>,
    /// When it did, where an attempt failed.
    pub answered_at: Option<Moment>,
    /// The attempts before the last one, oldest first, the latest twenty.
    #[sqlx(json(nullable))]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<Vec<Attempt>>,
    /// What is sent; empty when its subject was erased.
    pub body: String,
    /// Whose it is: the policy …
    pub subject_policy: Option<String>,
    /// … and the id.
    pub subject_id: Option<String>,
}

impl Occurrence {
    /// The link in a warning acts for whoever was warned; who only looks does not get it.
    fn without_link(&mut self) {
        let Ok(mut body) = serde_json::from_str::<Value>(&self.body) else { return };
        let Some(link) = body.pointer_mut("/data/data/restore_url") else { return };
        *link = "(hidden)".into();
        self.body = body.to_string();
    }
}

/// An attempt that failed, and after which there was another.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Attempt {
    /// When it ended.
    #[serde(default, deserialize_with = "micros")]
    pub at: Option<Moment>,
    /// What went wrong.
    pub error: Option<String>,
    /// What the receiver answered.
    pub answer: Option<Value>,
}

fn micros<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Moment>, D::Error> {
    let micros: Option<i64> = serde::Deserialize::deserialize(deserializer)?;
    Ok(micros.map(Moment::from_micros))
}

/// A recurring event.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Recurring))]
pub struct RecurringRow {
    /// Its id.
    pub id: Uuid,
    /// `yearly` or `cron`.
    pub kind: String,
    /// The `[[schedule]]` it comes from.
    pub policy: Option<String>,
    /// Where it goes.
    pub sink: String,
    /// When it comes next; never when absent.
    pub next_at: Option<Moment>,
    /// Of a yearly one.
    pub month: Option<i32>,
    /// Of a yearly one.
    pub day: Option<i32>,
    /// Of a yearly one.
    pub at: Option<String>,
    /// Where 29 February is in other years.
    pub leap_day: Option<String>,
    /// Of one by cron.
    pub cron: Option<String>,
    /// By whose clocks.
    pub zone: String,
    /// What becomes of missed occurrences.
    pub missed: String,
    /// Grows with every change.
    pub version: i64,
    /// Occurrences that were missed and not made up for.
    pub passed_over: i64,
    /// When it was cancelled.
    pub cancelled_at: Option<Moment>,
    /// Its dedupe key.
    pub dedupe_key: Option<String>,
    /// What it says.
    pub payload: Value,
}

/// Everything known about an event.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ShownEvent))]
pub struct Shown {
    /// The recurring event, when it is one.
    pub recurring: Option<RecurringRow>,
    /// Its occurrences, newest first.
    pub occurrences: Vec<Occurrence>,
}

impl Shown {
    /// How one stands that cannot be cancelled, and what that means.
    pub fn uncancelled(&self) -> (&str, &'static str) {
        match self.occurrences.first().map(|occurrence| occurrence.row.state.as_str()) {
            None => ("cancelled already", "it will not come again"),
            Some("running") => ("running", "it may arrive; should this attempt fail, it is not tried again"),
            Some(state) => (state, "only what is not delivered yet can be cancelled"),
        }
    }
}

pub(super) async fn list(connection: &mut PgConnection, filter: &Filter) -> Result<Vec<EventRow>> {
    let limit = if filter.limit == 0 { 100 } else { i64::from(filter.limit) };
    Ok(sql!("list" as EventRow)
        .bind(&filter.sink)
        .bind(filter.state.map(State::as_str))
        .bind(filter.late.map(interval))
        .bind(filter.stuck.map(interval))
        .bind(limit)
        .fetch_all(connection)
        .await?)
}

pub(super) async fn show(connection: &mut PgConnection, id: Uuid) -> Result<Option<Shown>> {
    let mut occurrences: Vec<Occurrence> = sql!("show" as Occurrence).bind(id).fetch_all(&mut *connection).await?;
    occurrences.iter_mut().for_each(Occurrence::without_link);
    let of = occurrences.first().map_or(id, |occurrence| occurrence.row.event);
    let recurring: Option<RecurringRow> = sql!("recurring" as RecurringRow).bind(of).fetch_optional(connection).await?;
    Ok((recurring.is_some() || !occurrences.is_empty()).then_some(Shown { recurring, occurrences }))
}

/// How events stand.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventsStatus {
    /// Sink by sink.
    pub sinks: Vec<SinkStatus>,
    /// More than ten due events are over `late_after`.
    pub recovery_mode: bool,
}

/// How the events of one sink stand.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SinkStatus {
    /// Its name.
    pub sink: String,
    /// `active`, `paused`, `stopped` or `disabled`.
    pub state: String,
    /// Due and not delivered, counted up to 100,000.
    pub due: i64,
    /// Since when the oldest of them is.
    pub oldest_due: Option<Moment>,
    /// Held by a node.
    pub running: i64,
    /// Dead letters.
    pub dead: i64,
    /// When the next one is due.
    pub next_at: Option<Moment>,
    /// Since when its receiver takes nothing, so that events wait and one now and then is tried (the breaker is open).
    pub dead_since: Option<Moment>,
    /// Delivered in the last hour; absent when that took too long to count.
    pub done_last_hour: Option<i64>,
    /// Skipped in the last hour, because they were too late.
    pub skipped_last_hour: Option<i64>,
    /// Delivered in the last hour later than `late_after`.
    pub late_last_hour: Option<i64>,
    /// How late they were on average, in seconds.
    pub average_lateness_seconds: Option<f64>,
}

#[derive(sqlx::FromRow)]
struct Standing {
    sink: String,
    state: String,
    due: i64,
    oldest_due: Option<Moment>,
    running: i64,
    dead: i64,
    next_at: Option<Moment>,
    dead_since: Option<Moment>,
    overdue: i64,
}

#[derive(sqlx::FromRow)]
struct LastHour {
    sink: String,
    done: i64,
    skipped: i64,
    average_lateness: f64,
    late: i64,
}

/// How every sink stands, each count up to `most`, and what is late.
async fn standing(connection: &mut PgConnection, most: i64) -> Result<(Vec<Standing>, Duration)> {
    let stored = policy::store::all(&mut *connection).await?;
    let late_after = stored
        .iter()
        .find_map(|stored| match stored.policy() {
            Ok(Policy::Events(events)) => Some(events.late_after),
            _ => None,
        })
        .unwrap_or(policy::Events::default().late_after);
    let rows = sql!("standing" as Standing).bind(most).bind(interval(late_after)).fetch_all(connection).await?;
    Ok((rows, late_after))
}

fn status(rows: Vec<Standing>, last_hour: Option<&[LastHour]>) -> EventsStatus {
    let recovery_mode = rows.iter().map(|row| row.overdue).sum::<i64>() > 10;
    let sinks = rows
        .into_iter()
        .map(|row| {
            let of = last_hour.map(|hours| hours.iter().find(|hour| hour.sink == row.sink));
            let count = |read: fn(&LastHour) -> i64| of.map(|hour| hour.map_or(0, read));
            SinkStatus {
                done_last_hour: count(|hour| hour.done),
                skipped_last_hour: count(|hour| hour.skipped),
                late_last_hour: count(|hour| hour.late),
                average_lateness_seconds: of.flatten().map(|hour| hour.average_lateness),
                sink: row.sink,
                state: row.state,
                due: row.due,
                oldest_due: row.oldest_due,
                running: row.running,
                dead: row.dead,
                next_at: row.next_at,
                dead_since: row.dead_since,
            }
        })
        .collect();
    EventsStatus { sinks, recovery_mode }
}

/// What the last look of a node counted; of a sink that it did not look at nothing is known.
#[derive(sqlx::FromRow)]
struct Kept {
    sink: String,
    due: i64,
    running: i64,
    dead: i64,
    done: i64,
    skipped: i64,
    average_lateness: f64,
    late: i64,
}

impl From<&Kept> for LastHour {
    fn from(kept: &Kept) -> Self {
        let Kept { done, skipped, average_lateness, late, .. } = *kept;
        Self { sink: kept.sink.clone(), done, skipped, average_lateness, late }
    }
}

/// How many events there are in sinks, whatever their time; counted up to 100,000.
pub(crate) async fn waiting(connection: &mut PgConnection, sinks: &[&str]) -> Result<Vec<(String, i64)>> {
    Ok(sql!("waiting" as (String, i64)).bind(sinks).bind(COUNTED).fetch_all(connection).await?)
}

/// Sinks whose receiver counts as dead, and since when.
pub(crate) async fn dead(connection: &mut PgConnection) -> Result<Vec<(String, Moment)>> {
    Ok(sql!("dead" as (String, Moment)).fetch_all(connection).await?)
}

async fn last_hour(database: &Database, late_after: Duration) -> Option<Vec<LastHour>> {
    let guard = Guard { statement: LOOK_FOR, ..Guard::default() };
    let mut tx = database.begin(guard).await.ok()?;
    sql!("last_hour" as LastHour).bind(interval(late_after)).fetch_all(&mut *tx).await.ok()
}

impl crate::Engine {
    /// How events stand, counted now.
    pub async fn events_status(&self) -> Result<EventsStatus> {
        let mut tx = self.database().read().await?;
        let (rows, late_after) = standing(&mut tx, COUNTED).await?;
        tx.commit().await?;
        Ok(status(rows, last_hour(self.database(), late_after).await.as_deref()))
    }

    /// How events stand, in milliseconds however many there are: few are counted now, many as a node last counted them.
    pub async fn events_standing(&self) -> Result<EventsStatus> {
        let mut tx = self.database().read().await?;
        let (mut rows, late_after) = standing(&mut tx, COUNTED_AT_ONCE).await?;
        let kept: Vec<Kept> = sql!("kept" as Kept).fetch_all(&mut *tx).await?;
        tx.commit().await?;
        for row in &mut rows {
            let Some(kept) = kept.iter().find(|kept| kept.sink == row.sink) else { continue };
            for (now, then) in [(&mut row.due, kept.due), (&mut row.running, kept.running), (&mut row.dead, kept.dead)]
            {
                if *now >= COUNTED_AT_ONCE {
                    *now = then.max(*now);
                }
            }
        }
        let hours = match kept.is_empty() {
            true => last_hour(self.database(), late_after).await,
            false => Some(kept.iter().map(LastHour::from).collect()),
        };
        Ok(status(rows, hours.as_deref()))
    }
}

/// Brings the gauges of events up to date, and keeps the figures that pages read.
pub(crate) async fn observe(database: &Database) -> Result<()> {
    let mut tx = database.read().await?;
    let (rows, late_after) = standing(&mut tx, COUNTED).await?;
    let now: Moment = sqlx::query_scalar("SELECT ebb.now()").persistent(false).fetch_one(&mut *tx).await?;
    tx.commit().await?;
    let hours = last_hour(database, late_after).await;
    let status = status(rows, hours.as_deref());
    note(database, &status).await?;
    let mut oldest = Duration::ZERO;
    for sink in &status.sinks {
        let name = || sink.sink.clone();
        metrics::gauge!("ebb_events_pending", "sink" => name()).set((sink.due + sink.running) as f64);
        metrics::gauge!("ebb_events_dead", "sink" => name()).set(sink.dead as f64);
        if let Some(due) = sink.oldest_due {
            oldest = oldest.max(crate::status::since(due, now));
        }
    }
    metrics::gauge!("ebb_event_oldest_overdue_seconds").set(oldest.as_secs_f64());
    metrics::gauge!("ebb_recovery_mode").set(if status.recovery_mode { 1.0 } else { 0.0 });
    Ok(())
}

/// Keeps what was counted, a row for each figure of a sink.
async fn note(database: &Database, status: &EventsStatus) -> Result<()> {
    let (mut metrics, mut sinks, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for sink in &status.sinks {
        let counted = |value: Option<i64>| value.map(|value| value as f64);
        for (metric, value) in [
            ("events_due", Some(sink.due as f64)),
            ("events_running", Some(sink.running as f64)),
            ("events_dead", Some(sink.dead as f64)),
            ("events_done_last_hour", counted(sink.done_last_hour)),
            ("events_skipped_last_hour", counted(sink.skipped_last_hour)),
            ("events_late_last_hour", counted(sink.late_last_hour)),
            ("events_average_lateness", sink.average_lateness_seconds),
        ] {
            let Some(value) = value else { continue };
            metrics.push(metric);
            sinks.push(sink.sink.as_str());
            values.push(value);
        }
    }
    let mut tx = database.read().await?;
    sql!("note_figures").bind(metrics).bind(sinks).bind(values).execute(&mut *tx).await?;
    Ok(tx.commit().await?)
}
