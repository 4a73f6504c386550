//! Events as a Rust program writes them. The functions of the schema decide, so that every language gets the same answer.
//! Invariant: what is handed out here is committed, unless the caller brought the transaction.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Time;
use serde_json::Value;
use sqlx::{PgConnection, Postgres, Transaction};
use uuid::Uuid;

use super::{POLICY, look, store};
use crate::Result;
use crate::audit::Entry;
use crate::pg::Database;
use crate::policy::Missed;

/// Something to be delivered once.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub(super) sink: String,
    pub(super) due_at: Timestamp,
    pub(super) payload: Value,
    pub(super) dedupe_key: Option<String>,
    pub(super) max_late: Option<Duration>,
    pub(super) subject: Option<(String, String)>,
}

impl Event {
    /// An event for a sink; one whose time has passed is due at once.
    pub fn new(sink: impl Into<String>, due_at: Timestamp, payload: Value) -> Self {
        Self { sink: sink.into(), due_at, payload, dedupe_key: None, max_late: None, subject: None }
    }

    /// Of several with the same key and sink, only the first is an event, until its history goes.
    pub fn dedupe(mut self, key: impl Into<String>) -> Self {
        self.dedupe_key = Some(key.into());
        self
    }

    /// Not delivered when it is later than this.
    pub fn max_late(mut self, max_late: Duration) -> Self {
        self.max_late = Some(max_late);
        self
    }

    /// Whose it is: it goes when the subject is erased.
    pub fn subject(mut self, policy: impl Into<String>, id: impl Into<String>) -> Self {
        self.subject = Some((policy.into(), id.into()));
        self
    }
}

/// Something to be delivered every year, by the clocks of a zone.
#[derive(Debug, Clone, PartialEq)]
pub struct Yearly {
    /// Where it goes.
    pub sink: String,
    /// From 1 to 12.
    pub month: i8,
    /// From 1 to 31.
    pub day: i8,
    /// The wall-clock time.
    pub at: Time,
    /// An IANA name.
    pub zone: String,
    /// What it says.
    pub payload: Value,
    /// The same key again moves the occurrence to come.
    pub dedupe_key: Option<String>,
    /// What becomes of occurrences at which no node was there.
    pub missed: Missed,
    /// Not delivered when it is later than this.
    pub max_late: Option<Duration>,
    /// Whether 29 February is 1 March in years without one; 28 February otherwise.
    pub leap_day_in_march: bool,
    /// Whose it is: policy and id.
    pub subject: Option<(String, String)>,
}

/// Events of one database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Events {
    pub(super) database: Database,
}

impl Events {
    /// Events of a database.
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// The time that due times go by: the database's.
    pub async fn now(&self) -> Result<Timestamp> {
        let mut tx = self.database.read().await?;
        let now = store::now(&mut tx).await?;
        tx.commit().await?;
        Ok(now)
    }

    /// Schedules an event; its id. For a dedupe key that was used before: the id of the event that has it.
    pub async fn schedule(&self, event: &Event) -> Result<Uuid> {
        let mut tx = self.database.read().await?;
        let id = self.schedule_in(&mut tx, event).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Schedules an event inside the caller's transaction: it is delivered when that commits, and never was when it does not.
    pub async fn schedule_in(&self, tx: &mut Transaction<'_, Postgres>, event: &Event) -> Result<Uuid> {
        store::schedule(tx, event).await
    }

    /// Schedules many; their ids in the same order.
    pub async fn schedule_many(&self, events: &[Event]) -> Result<Vec<Uuid>> {
        let mut tx = self.database.read().await?;
        let ids = store::schedule_many(&mut tx, events).await?;
        tx.commit().await?;
        Ok(ids)
    }

    /// Schedules a yearly event, or moves the one that has its key.
    pub async fn schedule_yearly(&self, event: &Yearly) -> Result<Uuid> {
        let mut tx = self.database.read().await?;
        let id = store::schedule_yearly(&mut tx, event).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// True: it will not be delivered. False: it was, is being delivered at this moment, or nobody knows it.
    pub async fn cancel(&self, event: Uuid) -> Result<bool> {
        let mut tx = self.database.read().await?;
        let cancelled = store::cancel(&mut tx, event).await?;
        tx.commit().await?;
        Ok(cancelled)
    }

    /// Makes an event that failed or ended undelivered ready again, with all its attempts. False when it is neither.
    pub async fn retry(&self, event: Uuid) -> Result<bool> {
        Ok(self.retry_where(Some(event), None).await? > 0)
    }

    /// The same for every dead letter, of one sink or of all; how many there were.
    pub async fn retry_dead(&self, sink: Option<&str>) -> Result<u64> {
        self.retry_where(None, sink).await
    }

    async fn retry_where(&self, event: Option<Uuid>, sink: Option<&str>) -> Result<u64> {
        let mut tx = self.database.read().await?;
        let retried = store::retry(&mut tx, event, sink).await?;
        tx.commit().await?;
        Ok(retried)
    }

    /// The same as [`Events::cancel`], with a record of who did it.
    pub async fn cancel_by(&self, event: Uuid, by: &str) -> Result<bool> {
        let mut tx = self.database.read().await?;
        let cancelled = store::cancel(&mut tx, event).await?;
        if cancelled {
            note(&mut tx, "cancel", serde_json::json!({ "event": event }), by).await?;
        }
        tx.commit().await?;
        Ok(cancelled)
    }

    /// The same as [`Events::retry`] for one event, or [`Events::retry_dead`] for none, with a record of who did it.
    pub async fn retry_by(&self, event: Option<Uuid>, sink: Option<&str>, by: &str) -> Result<u64> {
        let mut tx = self.database.read().await?;
        let retried = store::retry(&mut tx, event, sink).await?;
        if retried > 0 {
            let details = serde_json::json!({ "event": event, "sink": sink, "events": retried });
            note(&mut tx, "retry", details, by).await?;
        }
        tx.commit().await?;
        Ok(retried)
    }

    /// Events and occurrences that fit, the most urgent first.
    pub async fn list(&self, filter: &look::Filter) -> Result<Vec<look::EventRow>> {
        let mut tx = self.database.read().await?;
        let rows = look::list(&mut tx, filter).await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Everything known about an event or one of its occurrences.
    pub async fn show(&self, id: Uuid) -> Result<Option<look::Shown>> {
        let mut tx = self.database.read().await?;
        let shown = look::show(&mut tx, id).await?;
        tx.commit().await?;
        Ok(shown)
    }
}

async fn note(tx: &mut PgConnection, action: &str, details: Value, by: &str) -> Result<()> {
    let mut entry = Entry::new(action, by);
    entry.policy = Some(POLICY.to_owned());
    entry.details = details;
    entry.insert(tx).await?;
    Ok(())
}
