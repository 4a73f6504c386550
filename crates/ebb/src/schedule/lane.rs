//! One sink's events on this node: what was claimed and waits, what is under way, and how much to claim ahead. Invariants:
//! no more is held than a moment's work, so that little is left behind by a death; a call starts only under a lease that
//! outlasts it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use uuid::Uuid;

use super::sink::Outlet;
use super::store::{Claimed, Wish};
use crate::policy::{self, Stored};

/// What is claimed ahead is worth about this much time …
const AHEAD: Duration = Duration::from_millis(500);
/// … and never more than this.
const MOST: usize = 2_000;
/// How long a lease outlasts the longest call: what it takes to write down the answer.
const FLUSH: Duration = Duration::from_secs(5);
/// What became due so lately counts as just due; `claim.sql` says the same.
const FRESH: SignedDuration = SignedDuration::from_secs(5);
/// How often what lies below the floor is looked at again: events left behind or released, and those that were written late.
const FLOOR_FOR: Duration = Duration::from_secs(1);
/// … and no more often than this share of the time allows: a look from the bottom walks what an old snapshot keeps.
const BOTTOM_SHARE: u32 = 20;
/// … but never less often than this: one slow answer of the server must not keep events waiting.
const FLOOR_AT_MOST: Duration = Duration::from_secs(30);

/// A sink that this node delivers to.
pub(super) struct Lane {
    pub(super) sink: policy::Sink,
    pub(super) stored: Stored,
    /// What it was opened for, besides whatever comes.
    pub(super) samples: Vec<Value>,
    pub(super) outlet: Arc<Outlet>,
    pub(super) queue: VecDeque<Claimed>,
    /// Calls under way, and those that wait for their slot.
    pub(super) sending: usize,
    /// Answers that are not written down yet.
    pub(super) recording: usize,
    /// Whether there may be more that is due.
    pub(super) more: bool,
    /// Whether the last claim got all it asked for: there is a backlog.
    backlog: bool,
    /// Up to where everything due was claimed, and since when nobody looked below.
    floor: Option<(Timestamp, Uuid)>,
    bottom: Option<Instant>,
    /// What the last look from the bottom took.
    bottom_took: Duration,
    pace: Pace,
}

impl Lane {
    pub(super) fn new(sink: policy::Sink, stored: Stored, samples: Vec<Value>, outlet: Outlet) -> Self {
        Self {
            sink,
            stored,
            samples,
            outlet: Arc::new(outlet),
            queue: VecDeque::new(),
            sending: 0,
            recording: 0,
            more: true,
            backlog: false,
            floor: None,
            bottom: None,
            bottom_took: Duration::ZERO,
            pace: Pace::default(),
        }
    }

    pub(super) fn lease(&self, node: Duration) -> Duration {
        node.max(self.outlet.timeout() + FLUSH)
    }

    /// What is not sent yet, or under way.
    fn held(&self) -> usize {
        self.queue.len() + self.sending
    }

    /// How many calls to start now. As many again as there are slots wait for theirs, so that one that ends is followed
    /// by the next without a word from here; where rate or breaker decide, none.
    pub(super) fn startable(&self) -> usize {
        let slots = match self.outlet.allowed() {
            None => (2 * self.sink.concurrency).saturating_sub(self.sending),
            Some(allowed) => self.sink.concurrency.saturating_sub(self.sending).min(allowed).min(self.outlet.free()),
        };
        self.queue.len().min(slots)
    }

    /// What to claim, if anything: enough for a moment, in few and full batches.
    pub(super) fn wish(&mut self, node_lease: Duration) -> Option<Wish> {
        if !self.more || self.recording > MOST {
            return None;
        }
        let slots = self.sink.concurrency.saturating_sub(self.sending);
        let free = self.outlet.free();
        let want = if free < slots {
            // The breaker or the rate holds it back: no more than goes out now.
            free.saturating_sub(self.queue.len())
        } else {
            let target = self.pace.within(AHEAD).clamp(2 * self.sink.concurrency, MOST.max(2 * self.sink.concurrency));
            let want = target.saturating_sub(self.held());
            if want * 2 < target && !self.queue.is_empty() { 0 } else { want }
        };
        if want == 0 {
            return None;
        }
        let floor_for = (self.bottom_took * BOTTOM_SHARE).clamp(FLOOR_FOR, FLOOR_AT_MOST);
        let floor = self.floor.filter(|_| self.bottom.is_some_and(|at| at.elapsed() < floor_for));
        let fresh = if self.backlog { want.div_ceil(2) } else { 0 };
        Some(Wish {
            sink: self.sink.name.to_string(),
            oldest: (want - fresh).max(1),
            fresh,
            floor,
            lease: self.lease(node_lease),
            attempts: self.outlet.retry().attempts(),
        })
    }

    /// Takes in what a claim brought, what has just become due first, then the oldest.
    pub(super) fn take_in(&mut self, mut claimed: Vec<Claimed>, wish: &Wish, asked_at: Instant) {
        claimed.sort_by_key(|event| (event.ready_at.to_jiff(), event.id));
        // Fewer than asked for: nothing due is left, unless it came in since.
        self.more = claimed.len() >= wish.oldest;
        self.backlog = self.more;
        if wish.floor.is_none() {
            (self.bottom, self.bottom_took) = (Some(asked_at), asked_at.elapsed());
        }
        // What has just become due lies beyond the oldest.
        let newest = claimed.get(wish.oldest - 1).or(claimed.last());
        self.floor = newest.map(|event| (event.ready_at.to_jiff(), event.id)).or(wish.floor);
        claimed.retain(Claimed::is_to_be_sent);
        if wish.fresh > 0 {
            let fresh = |event: &Claimed| event.now.to_jiff().duration_since(event.ready_at.to_jiff()) < FRESH;
            let first = claimed.iter().position(fresh).unwrap_or(claimed.len());
            let just_due = claimed.split_off(first);
            self.queue.extend(just_due);
        }
        self.queue.extend(claimed);
    }

    /// There may be more, anywhere.
    pub(super) fn look_again(&mut self) {
        self.more = true;
        self.floor = None;
    }

    /// A call has ended.
    pub(super) fn ended(&mut self) {
        self.sending = self.sending.saturating_sub(1);
        self.recording += 1;
        self.pace.count();
    }

    /// A call was not made: its slot came too late.
    pub(super) fn not_sent(&mut self) {
        self.sending = self.sending.saturating_sub(1);
    }

    /// How long until calls may start again, where only time has to pass.
    pub(super) fn free_in(&self) -> Option<Duration> {
        if self.more || !self.queue.is_empty() { self.outlet.free_in() } else { None }
    }
}

/// How fast calls end, from the last few moments.
#[derive(Debug, Default)]
struct Pace {
    window: Option<Instant>,
    counted: usize,
    per_second: f64,
}

impl Pace {
    const WINDOW: Duration = Duration::from_millis(50);

    fn count(&mut self) {
        let since = *self.window.get_or_insert_with(Instant::now);
        self.counted += 1;
        let passed = since.elapsed();
        if passed >= Self::WINDOW {
            let now = self.counted as f64 / passed.as_secs_f64();
            self.per_second = if now > self.per_second { now } else { 0.7 * self.per_second + 0.3 * now };
            (self.window, self.counted) = (None, 0);
        }
    }

    /// How many end in this time, as far as is known.
    fn within(&self, time: Duration) -> usize {
        let running = match self.window {
            Some(since) if since.elapsed() > Duration::from_millis(5) => {
                self.counted as f64 / since.elapsed().as_secs_f64()
            }
            _ => 0.0,
        };
        (self.per_second.max(running) * time.as_secs_f64()) as usize
    }
}
