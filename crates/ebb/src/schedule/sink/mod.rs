//! Where events go. A [`Sink`] makes one call and judges its answer; an [`Outlet`] is a configured sink at work on this
//! node, with its limits. Invariants: the bytes of an occurrence are the same on every attempt, its id tells the
//! receiver a repeat, and a sink never decides what becomes of an event: that is the claim's business.

mod address;
mod breaker;
mod envelope;
#[cfg(feature = "kafka")]
mod kafka;
mod log;
mod mail;
mod nats;
mod outlet;
mod rate;
mod signature;
mod smtp;
mod tls;
mod webhook;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::value::RawValue;
use uuid::Uuid;

pub use envelope::{envelope, kind};
pub(crate) use outlet::Health;
pub use outlet::{Outlet, Surroundings};

/// One attempt to deliver one occurrence of an event.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The occurrence's deterministic id, by which the receiver tells a repeat.
    pub occurrence: Uuid,
    /// The event it belongs to.
    pub event: Uuid,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// When it was due.
    pub due_at: Timestamp,
    /// The payload's `type` or `event`.
    pub kind: Option<String>,
    /// What is sent: see [`envelope`]. Stored, so that a repeat has the same bytes.
    pub body: Arc<[u8]>,
    /// What the event carries, for sinks that read it.
    pub payload: Arc<RawValue>,
}

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The receiver has it.
    Delivered {
        /// What it answered.
        response: Option<Response>,
    },
    /// The receiver does not have it, or nobody knows whether it has.
    Failed {
        /// What went wrong.
        error: String,
        /// Whether another attempt would fail in the same way: no retry.
        permanent: bool,
        /// The receiver asked not to be called again before this has passed.
        retry_after: Option<Duration>,
        /// What it answered.
        response: Option<Response>,
    },
    /// Nothing was sent, and the attempt does not count.
    Refused {
        /// Why.
        reason: Refusal,
        /// When to try again.
        until: Duration,
    },
    /// The receiver wants no more events, ever: the sink stops with an alarm and its events wait.
    Disabled {
        /// What it said.
        error: String,
    },
}

impl Verdict {
    /// A failure that another attempt may mend.
    pub fn transient(error: impl Into<String>) -> Self {
        Self::Failed { error: error.into(), permanent: false, retry_after: None, response: None }
    }

    /// A failure that no other attempt mends.
    pub fn permanent(error: impl Into<String>) -> Self {
        Self::Failed { error: error.into(), permanent: true, retry_after: None, response: None }
    }
}

/// Why nothing was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The receiver seems dead; one event goes out now and then to see.
    Breaker,
    /// The sink's rate is used up for the moment.
    Rate,
    /// The receiver asked not to be called for a while.
    Asked,
}

impl Refusal {
    /// The word for it in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Breaker => "breaker",
            Self::Rate => "rate",
            Self::Asked => "retry_after",
        }
    }
}

/// What a receiver answered, kept for diagnosis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Its status, where the protocol has one.
    pub status: Option<u16>,
    /// What it said, cut off where it went on for too long.
    pub body: String,
}

/// Something that takes events: one of Ebb's drivers, or a function of the program that embeds it.
pub trait Sink: Send + Sync {
    /// Makes one call. The outlet sees to limits and to the time-out: a call that takes too long is dropped.
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Verdict>;

    /// Whether it could make something of a delivery like this one, as far as that is known without a call; otherwise why not.
    fn rehearse(&self, _delivery: &Delivery) -> Result<(), String> {
        Ok(())
    }
}
