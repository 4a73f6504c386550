//! What a node says about its deliveries: counters, lateness, log lines. Invariant: a flood of late or failed events makes a
//! few lines and a number, not a flood of lines.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use uuid::Uuid;

use super::store::{Claimed, Ending};
use crate::policy::human;
use crate::words::plural;

/// So many lines of a sort in a minute, then only their number.
const LINES: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// A run is told about at most this often.
const TELL_EVERY: Duration = Duration::from_secs(10);

pub(super) struct Tally {
    pub(super) late_after: Duration,
    /// Of the current run, which is told about when it ends.
    run: Run,
    first: bool,
    claims: u64,
    told: Option<Instant>,
    all: Counts,
    late: Limited,
    failures: Limited,
}

#[derive(Debug, Default)]
struct Run {
    since: Option<Instant>,
    counts: Counts,
}

/// How many events ended how.
#[derive(Debug, Default, Clone)]
pub(super) struct Counts {
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) dead: u64,
    pub(super) skipped: u64,
    last_error: Option<String>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            late_after: crate::policy::Events::default().late_after,
            run: Run::default(),
            first: true,
            claims: 0,
            told: None,
            all: Counts::default(),
            late: Limited::default(),
            failures: Limited::default(),
        }
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.all
    }

    pub(super) fn failed(&self) -> u64 {
        self.all.failed + self.all.dead
    }

    /// In words, when something failed.
    pub(super) fn note(&self) -> Option<String> {
        let error = self.all.last_error.as_deref().unwrap_or("unknown");
        let Counts { failed, dead, .. } = self.all;
        match (failed, dead) {
            (0, 0) => None,
            (failed, 0) => Some(format!("{failed} failed and will be tried again: {error}")),
            (0, dead) => Some(format!("{} to look at: {error}", plural(dead, "dead letter"))),
            (failed, dead) => {
                let dead = plural(dead, "dead letter");
                Some(format!("{failed} failed and will be tried again, {dead} to look at: {error}"))
            }
        }
    }

    /// How often events were claimed.
    pub(super) fn claims(&self) -> u64 {
        self.claims
    }

    pub(super) fn claimed(&mut self) {
        self.claims += 1;
        self.run.since.get_or_insert_with(Instant::now);
    }

    /// A claim ends.
    pub(super) fn ended(
        &mut self,
        sink: &str,
        event: Uuid,
        due: Timestamp,
        now: Timestamp,
        attempts: u32,
        ending: &Ending,
    ) {
        let (result, error) = match ending {
            Ending::Finished { state, error, .. } => (*state, error.as_ref()),
            Ending::Failed { error, .. } => ("failed", Some(error)),
            Ending::Released { .. } => return,
        };
        metrics::counter!("ebb_events_processed_total", "sink" => sink.to_owned(), "result" => result).increment(1);
        for counts in [&mut self.run.counts, &mut self.all] {
            match result {
                "done" => counts.done += 1,
                "dead" => counts.dead += 1,
                "skipped" => counts.skipped += 1,
                _ => counts.failed += 1,
            }
            if let Some(error) = error {
                counts.last_error = Some(error.clone());
            }
        }
        match result {
            "done" => self.delivered(sink, event, due, now),
            "failed" if self.failures.line() => {
                tracing::error!(sink, event = %event, attempts, last_error = error, "Event failed");
            }
            "dead" if self.failures.line() => {
                tracing::error!(sink, event = %event, attempts, last_error = error, "Event moved to dead letters");
            }
            _ => {}
        }
    }

    fn delivered(&mut self, sink: &str, event: Uuid, due: Timestamp, now: Timestamp) {
        let lateness = Duration::try_from(now.duration_since(due)).unwrap_or_default();
        metrics::histogram!("ebb_event_lateness_seconds").record(lateness.as_secs_f64());
        if lateness <= self.late_after {
            return;
        }
        metrics::counter!("ebb_events_late_total", "sink" => sink.to_owned()).increment(1);
        if self.late.line() {
            tracing::warn!(
                sink, event = %event, due = %due, executed_at = %now, lateness_minutes = lateness.as_secs() / 60,
                reason = "Recovery from downtime", "Late event execution (recovery)"
            );
        }
    }

    /// A look found nothing: what was done since it last did is told, unless that was just now.
    pub(super) fn run_ended(&mut self, idle: bool) {
        if idle {
            self.tell()
        }
    }

    fn tell(&mut self) {
        let Some(since) = self.run.since else { return };
        if self.told.is_some_and(|at| at.elapsed() < TELL_EVERY) {
            return;
        }
        let Counts { done, failed, dead, skipped, .. } = std::mem::take(&mut self.run).counts;
        let took = since.elapsed();
        let (processed, failed) = (done + skipped, failed + dead);
        let duration = human(Duration::from_millis(took.as_millis() as u64));
        let events_per_second = (processed as f64 / took.as_secs_f64().max(0.001)).round();
        match std::mem::replace(&mut self.first, false) {
            true => tracing::info!(processed, failed, duration, events_per_second, "Initial recovery run"),
            false => tracing::info!(processed, failed, duration, events_per_second, "Scheduler run completed"),
        }
        self.told = Some(Instant::now());
    }

    /// Says what the minute kept back, and what a long run has done so far.
    pub(super) fn tick(&mut self) {
        if let Some(more) = self.late.minute_over() {
            tracing::warn!(events = more, "Late event execution (recovery), more of them");
        }
        if let Some(more) = self.failures.minute_over() {
            tracing::error!(events = more, "Event failed, more of them");
        }
        if self.run.since.is_some_and(|since| since.elapsed() > MINUTE) {
            self.tell();
        }
    }

    /// Claims of others ran out, and their events are this node's now.
    pub(super) fn taken_over(claimed: &[Claimed]) {
        let mut events: BTreeMap<&str, u64> = BTreeMap::new();
        for event in claimed.iter().filter(|event| event.left_behind) {
            *events.entry(&event.sink).or_default() += 1;
        }
        for (sink, events) in events {
            tracing::warn!(sink, events, "Claims ran out, their events are taken over");
        }
    }
}

/// Lets a few lines a minute through and counts the rest.
#[derive(Debug, Default)]
struct Limited {
    since: Option<Instant>,
    lines: u32,
    kept_back: u64,
}

impl Limited {
    fn line(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now);
        self.lines += 1;
        let through = self.lines <= LINES;
        self.kept_back += u64::from(!through);
        through
    }

    /// How many were kept back, once the minute is over.
    fn minute_over(&mut self) -> Option<u64> {
        if self.since.is_none_or(|since| since.elapsed() < MINUTE) {
            return None;
        }
        let kept_back = std::mem::take(self).kept_back;
        (kept_back > 0).then_some(kept_back)
    }
}
