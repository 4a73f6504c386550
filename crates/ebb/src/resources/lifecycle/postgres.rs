//! References as rows in PostgreSQL, under a holder that beats. Invariants: changes of one resource are written in their
//! order, and what meets in the queue is not written at all; a change that could not be written is written later, not
//! lost; a beat that is refused, or none that was answered for as long as the term, makes every handle stale: what it
//! referred to may go.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sqlx::postgres::types::PgInterval;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::LifecycleHandler;
use super::ledger::{Entry, Handle, Ledger};
use crate::pg::{Database, answered};
use crate::{Error, Result};

/// Changes in one transaction.
const AT_ONCE: usize = 10_000;
/// How long changes gather before they are written, unless somebody waits for them.
const GATHER: Duration = Duration::from_millis(50);
/// The longest rest between two tries while the database is away.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// So long somebody who waits for a write waits for what passes by itself.
const PATIENCE: Duration = Duration::from_secs(5);
/// One call takes no longer, or counts as no answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// What the database says of a holder whose term ran out.
const NOT_ALIVE: &str = "55000";

/// Who refers.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Any name: the host and process, the job.
    pub name: String,
    /// How long it counts as alive without a beat; beats come at a third of it.
    pub term: Duration,
    /// What people want to know about it: `{"job": "42"}`.
    pub labels: Value,
}

impl Worker {
    /// With a term of a minute.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), term: Duration::from_secs(60), labels: json!({}) }
    }
}

enum Ask {
    Flush(oneshot::Sender<Result<()>>),
    /// Whether this one was announced, nobody knows.
    Doubt(String),
    Stop(oneshot::Sender<Result<()>>),
}

/// A handler for workers that share resources through PostgreSQL.
pub struct PostgresHandler {
    database: Database,
    policy: String,
    holder: Uuid,
    ledger: Arc<Ledger>,
    asks: mpsc::UnboundedSender<Ask>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl PostgresHandler {
    /// Opens a holder and starts to write and beat. The connections of `database` are the handler's own.
    pub async fn start(database: Database, policy: impl Into<String>, worker: Worker) -> Result<Self> {
        let policy = policy.into();
        let microseconds = i64::try_from(worker.term.as_micros()).unwrap_or(i64::MAX);
        let term = PgInterval { months: 0, days: 0, microseconds };
        // Before it is asked for: the server counts from later.
        let opened = Instant::now();
        let mut tx = database.read().await?;
        let holder: Uuid = sqlx::query_scalar("SELECT ebb.holder_open($1, $2, $3)")
            .persistent(false)
            .bind(&worker.name)
            .bind(term)
            .bind(&worker.labels)
            .fetch_one(&mut *tx)
            .await?;
        tx.commit().await?;
        let (ledger, changed) = Ledger::new();
        ledger.stands_until(opened + worker.term);
        let (asks, asked) = mpsc::unbounded_channel();
        let flusher = Flusher {
            database: database.clone(),
            policy: policy.clone(),
            holder,
            ledger: ledger.clone(),
            changed,
            asked,
            term: worker.term,
        };
        let task = Mutex::new(Some(tokio::spawn(flusher.run())));
        Ok(Self { database, policy, holder, ledger, asks, task })
    }

    /// The holder's id, for those who refer through SQL on its behalf.
    pub fn holder(&self) -> Uuid {
        self.holder
    }

    async fn ask(&self, ask: impl FnOnce(oneshot::Sender<Result<()>>) -> Ask) -> Result<()> {
        let (sender, answer) = oneshot::channel();
        let ended =
            || Error::refused("the handler has ended").with_hint("who started it has stopped it, or its holder died");
        self.asks.send(ask(sender)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    async fn announce_now(&self, name: &str, labels: &Value) -> Result<Handle> {
        let known = self.ledger.knows(name);
        let announced = answered(ANSWER_WITHIN, async {
            let mut tx = self.database.read().await?;
            sqlx::query("SELECT ebb.create_intent($1, $2, $3, $4)")
                .persistent(false)
                .bind(&self.policy)
                .bind(name)
                .bind(self.holder)
                .bind(labels)
                .execute(&mut *tx)
                .await?;
            Ok(tx.commit().await?)
        });
        if let Err(error) = announced.await {
            if error.sqlstate().as_deref() == Some(NOT_ALIVE) {
                self.ledger.end();
            } else if error.is_unavailable() {
                // It may have been announced, and nobody would ever let go of it.
                let _ = self.asks.send(Ask::Doubt(name.to_owned()));
            }
            return Err(error);
        }
        let (handle, new) = self.ledger.standing_handle(name);
        if known || !new {
            // Letting go of it before may be under way, and would take this reference too.
            self.ask(Ask::Flush).await?;
            handle.name()?;
        }
        Ok(handle)
    }

    async fn created_now(&self, handle: &Handle, store_id: Option<&str>) -> Result<()> {
        let name = handle.name()?;
        let live: bool = answered(ANSWER_WITHIN, async {
            let mut tx = self.database.read().await?;
            let live = sqlx::query_scalar("SELECT ebb.created($1, $2, $3)")
                .persistent(false)
                .bind(&self.policy)
                .bind(name)
                .bind(store_id)
                .fetch_one(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(live)
        })
        .await?;
        if live {
            return Ok(());
        }
        handle.entry().set_gone();
        Err(Error::refused(format!("{name} was given up before it was made")).with_hint("drop it, and make another"))
    }
}

impl LifecycleHandler for PostgresHandler {
    fn announce<'a>(&'a self, name: &'a str, labels: Value) -> BoxFuture<'a, Result<Handle>> {
        async move { self.announce_now(name, &labels).await }.boxed()
    }

    fn created<'a>(&'a self, handle: &'a Handle, store_id: Option<&'a str>) -> BoxFuture<'a, Result<()>> {
        self.created_now(handle, store_id).boxed()
    }

    fn incref(&self, name: &str) -> Handle {
        self.ledger.handle(name)
    }

    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        self.ask(Ask::Flush).boxed()
    }

    fn stop(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let stopped = self.ask(Ask::Stop).await;
            if let Some(task) = self.task.lock().await.take() {
                let _ = task.await;
            }
            stopped
        }
        .boxed()
    }
}

/// The one task that writes.
struct Flusher {
    database: Database,
    policy: String,
    holder: Uuid,
    ledger: Arc<Ledger>,
    changed: mpsc::UnboundedReceiver<Arc<Entry>>,
    asked: mpsc::UnboundedReceiver<Ask>,
    term: Duration,
}

impl Flusher {
    /// Beats and writes side by side: a write that takes its time delays no beat, and ends with the holder.
    async fn run(mut self) {
        let pulse = Pulse {
            database: self.database.clone(),
            holder: self.holder,
            ledger: self.ledger.clone(),
            term: self.term,
        };
        tokio::select! {
            () = pulse.beat_while_alive() => {}
            () = self.work() => {}
        }
        self.ledger.end();
    }

    async fn work(&mut self) {
        let (mut pause, mut write_at) = (GATHER, None);
        while !self.ledger.has_ended() {
            let due = async {
                match write_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                ask = self.asked.recv() => match ask {
                    Some(Ask::Flush(answer)) => {
                        let _ = answer.send(self.flush_in_time().await);
                    }
                    Some(Ask::Doubt(name)) => self.ledger.doubt(&name),
                    Some(Ask::Stop(answer)) => {
                        let _ = answer.send(self.stop().await);
                        return;
                    }
                    // Dropped without a word: the holder's term runs out.
                    None => return,
                },
                () = due => match self.flush().await {
                    Ok(()) => (pause, write_at) = (GATHER, None),
                    Err(error) => {
                        tracing::debug!(error = %error, "Could not write references; they wait");
                        pause = (pause * 2).min(LONGEST_PAUSE);
                        write_at = Some(tokio::time::Instant::now() + pause);
                    }
                },
                // Changes gather a little, so that what meets cancels out.
                entry = self.changed.recv(), if write_at.is_none() => {
                    let Some(entry) = entry else { return };
                    self.ledger.hand_back(entry);
                    write_at = Some(tokio::time::Instant::now() + pause);
                }
            }
        }
    }

    /// Somebody waits: what was in the way for a moment, or lost its connection, is tried again.
    async fn flush_in_time(&mut self) -> Result<()> {
        let (until, mut pause) = (Instant::now() + PATIENCE, GATHER);
        loop {
            match self.flush().await {
                Err(error) if (error.is_unavailable() || error.is_contended()) && Instant::now() + pause < until => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                flushed => return flushed,
            }
        }
    }

    /// Writes everything that is queued.
    async fn flush(&mut self) -> Result<()> {
        loop {
            let mut batch = Vec::new();
            while batch.len() < AT_ONCE
                && let Ok(entry) = self.changed.try_recv()
            {
                match self.ledger.take(&entry) {
                    Some(wanted) => batch.push((entry, wanted)),
                    None => self.ledger.forget(&entry),
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            if let Err(error) = self.write(&batch).await {
                for (entry, _) in &batch {
                    self.ledger.put_back(entry);
                }
                return Err(error);
            }
        }
    }

    async fn write(&self, batch: &[(Arc<Entry>, bool)]) -> Result<()> {
        // What changed again while the batch was gathered is in it twice: the last word counts.
        let last: HashMap<&str, bool> = batch.iter().map(|(entry, wanted)| (entry.name.as_str(), *wanted)).collect();
        let named =
            |up: bool| last.iter().filter(|(_, wanted)| **wanted == up).map(|(name, _)| *name).collect::<Vec<_>>();
        let (increfs, decrefs) = (named(true), named(false));
        let late: Vec<(String, String)> = answered(ANSWER_WITHIN, async {
            let mut tx = self.database.read().await?;
            let late = sqlx::query_as("SELECT late, reason FROM ebb.apply_refs_of($1, $2, $3, $4)")
                .persistent(false)
                .bind(&self.policy)
                .bind(self.holder)
                .bind(&increfs)
                .bind(&decrefs)
                .fetch_all(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(late)
        })
        .await?;
        if late.iter().any(|(_, reason)| reason == "holder") {
            tracing::error!(holder = %self.holder, "The holder is dead: its term ran out. Its resources may go");
            self.ledger.end();
            return Err(Error::refused("the holder is dead: its term ran out")
                .with_hint("stop using what it referred to, and start a new handler"));
        }
        let late: HashSet<&str> = late.iter().map(|(name, _)| name.as_str()).collect();
        for (entry, wanted) in batch {
            let refused = *wanted && late.contains(entry.name.as_str());
            if refused {
                entry.set_gone();
            }
            self.ledger.settle(entry, *wanted && !refused);
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<()> {
        self.ledger.end();
        let flushed = self.flush().await;
        let closed = answered(ANSWER_WITHIN, async {
            let mut tx = self.database.read().await?;
            sqlx::query("SELECT ebb.holder_close($1)").persistent(false).bind(self.holder).execute(&mut *tx).await?;
            Ok(tx.commit().await?)
        });
        // Closing lets go of everything, whatever could not be written before.
        closed.await.or(flushed)
    }
}

/// The beats of a holder.
struct Pulse {
    database: Database,
    holder: Uuid,
    ledger: Arc<Ledger>,
    term: Duration,
}

impl Pulse {
    /// Returns when the holder is dead.
    async fn beat_while_alive(&self) {
        let mut beat = tokio::time::interval(self.term / 3);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            if !self.beat().await {
                return;
            }
        }
    }

    /// Whether the holder is alive. A database that is away is no answer; the term decides when it is back.
    async fn beat(&self) -> bool {
        let asked = Instant::now();
        let alive = answered(ANSWER_WITHIN.min(self.term / 3), async {
            let mut tx = self.database.read().await?;
            let alive: bool = sqlx::query_scalar("SELECT ebb.holder_beat($1)")
                .persistent(false)
                .bind(self.holder)
                .fetch_one(&mut *tx)
                .await?;
            tx.commit().await?;
            Ok(alive)
        });
        match alive.await {
            Ok(true) => {
                self.ledger.stands_until(asked + self.term);
                true
            }
            Ok(false) => {
                tracing::error!(holder = %self.holder, "The holder is dead: its term ran out. Its resources may go");
                false
            }
            Err(error) => {
                tracing::warn!(holder = %self.holder, error = %error, "Could not beat; trying again");
                true
            }
        }
    }
}
