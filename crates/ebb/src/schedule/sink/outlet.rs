//! A configured sink at work on this node: driver, concurrency, rate, breaker, time-out. Invariants: no call outlives
//! the time-out, whatever the receiver or a handler does; what was not sent never counts as an attempt.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use uuid::Uuid;

use super::breaker::{Breaker, Pass, Turn};
use super::log::Log;
use super::nats::Nats;
use super::rate::Bucket;
use super::smtp::Smtp;
use super::webhook::Webhook;
use super::{Delivery, Refusal, Sink, Verdict, kind};
use crate::config::Env;
use crate::policy::{self, Driver, Retry};
use crate::{Error, Result};

/// A token that comes within this time is waited for; a later one is a refusal.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where a node finds what a sink's configuration names: variables and files.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// For `env:NAME`.
    pub env: Env,
    /// What `file:PATH` is relative to: the directory of the configuration.
    pub base: PathBuf,
}

impl Surroundings {
    /// Those of this process, with files relative to its working directory.
    pub fn process() -> Self {
        Self { env: Env::process(), base: PathBuf::new() }
    }
}

/// One configured sink at work on this node.
pub struct Outlet {
    name: String,
    sink: Arc<dyn Sink>,
    retry: Retry,
    timeout: Duration,
    slots: Arc<Semaphore>,
    limits: Mutex<Limits>,
}

struct Limits {
    rate: Option<Bucket>,
    breaker: Option<Breaker>,
    /// The receiver asked for a break until then.
    quiet_until: Option<Instant>,
    /// What the last answer said of the receiver, until somebody has asked.
    health: Option<Health>,
    disabled: bool,
}

/// How a receiver is, by its last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// It took something, or refused it for what it is.
    Alive,
    /// So many calls in a row failed that the breaker is open.
    Dead,
}

impl Limits {
    /// How much of the break that the receiver asked for is left.
    fn quiet(&self, now: Instant) -> Duration {
        self.quiet_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

impl Outlet {
    /// Opens a sink that Ebb drives itself. What the configuration names (secrets, files) is read now; the receiver is
    /// reached with the first delivery.
    pub fn open(sink: &policy::Sink, surroundings: &Surroundings) -> Result<Self> {
        let driver: Arc<dyn Sink> = match &sink.driver {
            Driver::Webhook(webhook) => Arc::new(Webhook::open(webhook, sink.concurrency, surroundings)?),
            Driver::Smtp(smtp) => Arc::new(Smtp::open(smtp, surroundings)?),
            Driver::Nats(nats) => Arc::new(Nats::open(nats, surroundings)?),
            #[cfg(feature = "kafka")]
            Driver::Kafka(kafka) => Arc::new(super::kafka::Kafka::open(kafka, sink.timeout)?),
            #[cfg(not(feature = "kafka"))]
            Driver::Kafka(_) => return Err(Error::config("this build of Ebb does not speak Kafka")),
            Driver::Log => Arc::new(Log { name: sink.name.to_string() }),
            Driver::Handler => {
                return Err(Error::config(format!("no handler is registered for the sink {}", sink.name)).with_hint(
                    "its events are delivered by a program that embeds Ebb and registers a handler under this name",
                ));
            }
        };
        Ok(Self::with_handler(sink, driver))
    }

    /// Whether the sink has words for an event like this: what is wrong with them for every such event is no event's fault.
    pub(crate) fn rehearse(&self, sample: &Value) -> Result<()> {
        let payload = serde_json::value::to_raw_value(sample)
            .map_err(|error| Error::failed("a sample cannot be written as JSON").with_source(error))?;
        let delivery = Delivery {
            occurrence: Uuid::nil(),
            event: Uuid::nil(),
            attempt: 1,
            due_at: Timestamp::UNIX_EPOCH,
            kind: kind(&payload),
            body: Arc::from(payload.get().as_bytes()),
            payload: payload.into(),
        };
        self.sink.rehearse(&delivery).map_err(|why| {
            Error::config(format!("it cannot deliver the warnings that a policy sends through it: {why}"))
                .with_hint("mend its template; until then its events wait, and no attempt is counted")
        })
    }

    /// Opens a sink whose calls a handler of the embedding program makes.
    pub fn with_handler(sink: &policy::Sink, handler: Arc<dyn Sink>) -> Self {
        let now = Instant::now();
        Self {
            name: sink.name.to_string(),
            sink: handler,
            retry: sink.retry.clone(),
            timeout: sink.timeout,
            slots: Arc::new(Semaphore::new(sink.concurrency)),
            limits: Mutex::new(Limits {
                rate: sink.rate.map(|rate| Bucket::new(rate, now)),
                breaker: sink.breaker.map(Breaker::new),
                quiet_until: None,
                health: None,
                disabled: false,
            }),
        }
    }

    /// How many deliveries may start now. None while the breaker is open, except a probe now and then.
    pub fn free(&self) -> usize {
        self.slots.available_permits().min(self.allowed().unwrap_or(usize::MAX))
    }

    /// How many rate, breaker and receiver allow whatever is under way; `None` where only the slots count.
    pub(crate) fn allowed(&self) -> Option<usize> {
        let now = Instant::now();
        let mut limits = self.limits();
        if limits.disabled || !limits.quiet(now).is_zero() {
            return Some(0);
        }
        let tokens = limits.rate.as_mut().map(|rate| rate.free(now));
        let passes = limits.breaker.as_ref().and_then(|breaker| breaker.free(now));
        tokens.into_iter().chain(passes).min()
    }

    /// How long until [`free`](Self::free) can be more than none by the passing of time; `None` when it is already, or
    /// when it takes the end of a delivery.
    pub fn free_in(&self) -> Option<Duration> {
        let now = Instant::now();
        let mut limits = self.limits();
        let tokens = limits.rate.as_mut().map(|rate| rate.wait(now));
        let probe = limits.breaker.as_ref().and_then(|breaker| breaker.wait(now));
        tokens.max(probe).max(Some(limits.quiet(now))).filter(|wait| !wait.is_zero())
    }

    /// What answers since the last question said of the receiver, if there were any.
    pub(crate) fn take_health(&self) -> Option<Health> {
        self.limits().health.take()
    }

    /// No call takes longer than this.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// When a failed delivery is tried again.
    pub fn retry(&self) -> &Retry {
        &self.retry
    }

    /// Makes one attempt. Waits for a free slot, and up to a second for the rate; a call that takes longer than the
    /// time-out is dropped, which is a failure: nobody knows whether the receiver has the event.
    pub async fn deliver(&self, delivery: &Delivery) -> Verdict {
        match self.slot().await {
            Some(slot) => self.deliver_in(slot, delivery).await,
            None => Verdict::Disabled { error: "the sink was closed".into() },
        }
    }

    /// The next free slot, in the order of these calls, whoever waits for it first; `None` when the sink was closed.
    pub(crate) fn slot(&self) -> BoxFuture<'static, Option<OwnedSemaphorePermit>> {
        let mut turn = self.slots.clone().acquire_owned().map(Result::ok).boxed();
        // The first look takes the place in the line.
        match (&mut turn).now_or_never() {
            Some(slot) => ready(slot).boxed(),
            None => turn,
        }
    }

    /// Whoever waits for a slot gets none any more.
    pub(crate) fn close(&self) {
        self.slots.close();
    }

    /// Makes one attempt in a slot.
    pub(crate) async fn deliver_in(&self, _slot: OwnedSemaphorePermit, delivery: &Delivery) -> Verdict {
        let (pass, wait) = match self.admit() {
            Ok(admitted) => admitted,
            Err(refused) => return refused,
        };
        let mut call = Call { outlet: self, pass, open: true };
        // A sleep of nothing takes up to a millisecond.
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let sent = AssertUnwindSafe(self.sink.deliver(delivery)).catch_unwind();
        let verdict = match tokio::time::timeout(self.timeout, sent).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) => Verdict::transient("the handler panicked"),
            Err(_) => Verdict::transient(format!("no complete answer within {}", policy::human(self.timeout))),
        };
        call.open = false;
        self.judge(pass, &verdict);
        verdict
    }

    fn admit(&self) -> Result<(Option<Pass>, Duration), Verdict> {
        let now = Instant::now();
        let mut limits = self.limits();
        if limits.disabled {
            return Err(Verdict::Disabled { error: "the receiver wants no more events".into() });
        }
        let refused = |reason| move |until| Verdict::Refused { reason, until };
        let quiet = limits.quiet(now);
        if !quiet.is_zero() {
            return Err(refused(Refusal::Asked)(quiet));
        }
        // The rate first: a probe that then waits for a token would block the next one.
        let wait = match &mut limits.rate {
            Some(rate) => rate.take(now, PATIENCE).map_err(refused(Refusal::Rate))?,
            None => Duration::ZERO,
        };
        let pass = limits.breaker.as_mut().map(|breaker| breaker.pass(now)).transpose();
        Ok((pass.map_err(refused(Refusal::Breaker))?, wait))
    }

    fn judge(&self, pass: Option<Pass>, verdict: &Verdict) {
        let mut limits = self.limits();
        limits.disabled |= matches!(verdict, Verdict::Disabled { .. });
        if let Verdict::Failed { retry_after: Some(wait), .. } = verdict {
            limits.quiet_until = limits.quiet_until.max(Some(Instant::now() + *wait));
        }
        // Who refuses one event for what it is, is alive.
        let alive = !matches!(verdict, Verdict::Failed { permanent: false, .. });
        let turn = match (&mut limits.breaker, pass) {
            (Some(breaker), Some(pass)) => breaker.judge(pass, alive, Instant::now()),
            _ => Turn::None,
        };
        match &limits.breaker {
            Some(_) if alive => limits.health = Some(Health::Alive),
            Some(breaker) if breaker.is_open() => limits.health = Some(Health::Dead),
            _ => {}
        }
        drop(limits);
        match (turn, verdict) {
            (Turn::Opened, Verdict::Failed { error, .. }) => {
                tracing::error!(sink = self.name, error, "Receiver seems dead, its events wait");
            }
            (Turn::Closed, _) => tracing::info!(sink = self.name, "Receiver is back"),
            _ => {}
        }
    }

    fn limits(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way; one that is dropped before its answer leaves the breaker as if it had not been.
struct Call<'a> {
    outlet: &'a Outlet,
    pass: Option<Pass>,
    open: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if let (Some(breaker), Some(pass)) = (&mut self.outlet.limits().breaker, self.pass) {
            breaker.abandon(pass, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests;
