//! How much, how fast, and when not. Size follows time, not rows: a batch aims at a duration, grows by at most a fifth
//! and halves on trouble. Invariant: nothing here talks to the database, so every decision can be replayed in a test.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::policy::Pacing;

/// What a batch aims at when nobody else works on the server.
const TARGET_ALONE: Duration = Duration::from_millis(50);
/// What it aims at beside other work, where most of a smaller batch would be waiting for a core.
const TARGET_BESIDE: Duration = Duration::from_millis(30);
/// Beside other work a batch is followed by this many times its own duration of rest.
const REST_BESIDE: f64 = 4.0;
/// Being slow shrinks a batch to this share of its first size and no further: below it the fixed cost of a transaction
/// is what takes the time, and smaller batches would only be less useful. Trouble still halves on.
const FLOOR: f64 = 0.05;

/// How long the WAL's positions are remembered.
const HISTORY: Duration = Duration::from_secs(3600);

/// How the server is doing, at one look.
#[derive(Debug, Clone, Default, PartialEq, sqlx::FromRow)]
pub struct Signals {
    /// Sessions of others that are executing something, or were a moment ago.
    pub others: i64,
    /// The largest replay lag of any replica, as replicas report it: one that replays nothing reports none.
    pub replica_lag_s: Option<f64>,
    /// How far the replica that is furthest behind has replayed.
    pub replayed_to: Option<i64>,
    /// The most WAL that any slot keeps.
    pub slot_wal_bytes: Option<i64>,
    /// Sessions of others that wait for a lock on the table.
    pub lock_waiters: i64,
    /// Whether a vacuum is at work on the table.
    pub vacuuming: bool,
    /// The share of dead tuples in the table.
    pub dead_share: f64,
    /// The age of the oldest snapshot, in transactions.
    pub xmin_age: Option<i64>,
    /// How long a trivial read took.
    #[sqlx(skip)]
    pub probe: Duration,
}

/// A single reason not to work now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Veto {
    /// A word for the metric's label.
    pub reason: &'static str,
    /// The sentence for status and log.
    pub detail: String,
}

/// The first signal that is over its threshold.
pub fn veto(signals: &Signals, limits: &Pacing) -> Option<Veto> {
    let veto = |reason, detail| Some(Veto { reason, detail });
    if let (Some(limit), Some(lag)) = (limits.max_replica_lag, signals.replica_lag_s)
        && lag > limit.as_secs_f64()
    {
        return veto("replica_lag", format!("a replica is {lag:.1}s behind (max_replica_lag)"));
    }
    if let (Some(limit), Some(kept)) = (limits.max_slot_wal, signals.slot_wal_bytes)
        && kept > 0
        && kept as u64 > limit.bytes()
    {
        return veto("slot_wal", format!("a replication slot keeps {} MB of WAL (max_slot_wal)", kept >> 20));
    }
    if let Some(limit) = limits.max_lock_waiters
        && signals.lock_waiters > i64::from(limit)
    {
        return veto(
            "lock_waiters",
            format!("{} sessions wait for the table (max_lock_waiters)", signals.lock_waiters),
        );
    }
    if let Some(limit) = limits.max_probe_latency
        && signals.probe > limit
    {
        return veto("probe_latency", format!("a trivial read took {:?} (max_probe_latency)", signals.probe));
    }
    if limits.yield_to_autovacuum && signals.vacuuming {
        return veto("autovacuum", "a vacuum is at work on the table (yield_to_autovacuum)".into());
    }
    if let Some(limit) = limits.max_dead_share
        && signals.dead_share > limit
    {
        return veto(
            "dead_share",
            format!("{:.0} % of the table is dead (max_dead_share)", signals.dead_share * 100.0),
        );
    }
    if let (Some(limit), Some(age)) = (limits.max_xmin_age, signals.xmin_age)
        && age > 0
        && age as u64 > limit
    {
        return veto("xmin_age", format!("a snapshot is {age} transactions old (max_xmin_age)"));
    }
    None
}

/// When the server's WAL was where. A replica that has stopped replaying reports no lag, or an old one; where it stands
/// and when the server stood there say how far behind it is.
#[derive(Debug, Default)]
pub struct WalHistory(VecDeque<(Instant, i64)>);

impl WalHistory {
    /// Notes a position; one that is lower than before is another server's, and what was known does not count.
    pub fn note(&mut self, now: Instant, position: i64) {
        match self.0.back() {
            Some((_, last)) if position < *last => self.0.clear(),
            Some((_, last)) if position == *last => return,
            _ => {}
        }
        self.0.push_back((now, position));
        while self.0.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > HISTORY) {
            self.0.pop_front();
        }
    }

    /// How long ago the server was first seen beyond what a replica has replayed; zero when it was not.
    pub fn behind(&self, now: Instant, replayed_to: i64) -> Duration {
        let first_beyond = self.0.partition_point(|(_, position)| *position <= replayed_to);
        self.0.get(first_beyond).map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at))
    }
}

/// Decides the next batch's size from how the last ones went.
#[derive(Debug, Clone)]
pub struct Pacer {
    size: f64,
    min: f64,
    floor: f64,
    max: f64,
    fixed: Option<(u64, Duration)>,
    beside: bool,
    started: bool,
    alone: Duration,
}

impl Pacer {
    /// Adapts within bounds, starting small.
    pub fn adaptive(start: u64, min: u64, max: u64) -> Self {
        debug_assert!(0 < min && min <= start && start <= max);
        let floor = (start as f64 * FLOOR).max(min as f64);
        Self {
            size: start as f64,
            min: min as f64,
            floor,
            max: max as f64,
            fixed: None,
            beside: false,
            started: false,
            alone: TARGET_ALONE,
        }
    }

    /// Aims at another duration while nobody else works on the server: for batches whose fixed cost is a large part of the
    /// usual one.
    pub fn alone_for(mut self, target: Duration) -> Self {
        self.alone = target;
        self
    }

    /// Rows and pause as the policy fixes them; trouble still halves until the next success.
    pub fn fixed(rows: u64, pause: Duration) -> Self {
        let rows = rows.max(1);
        Self {
            size: rows as f64,
            min: 1.0,
            floor: 1.0,
            max: rows as f64,
            fixed: Some((rows, pause)),
            beside: false,
            started: false,
            alone: TARGET_ALONE,
        }
    }

    /// The size of the next batch.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// Whether others are at work, by the latest look. Beside others the first batch is a tenth of what it would be.
    pub fn see_others(&mut self, others: bool) {
        self.beside = others;
        if others && !self.started && self.fixed.is_none() {
            self.size = (self.size / 10.0).max(self.min);
        }
        self.started = true;
    }

    /// Whether nobody else is at work, and the size is ours to choose.
    pub fn is_alone(&self) -> bool {
        self.started && !self.beside && self.fixed.is_none()
    }

    /// A batch of the current size took this long. Returns how long to rest before the next.
    pub fn after(&mut self, took: Duration) -> Duration {
        if let Some((rows, pause)) = self.fixed {
            self.size = (self.size * 2.0).min(rows as f64);
            return pause;
        }
        let target = if self.beside { TARGET_BESIDE } else { self.alone };
        let ratio = target.as_secs_f64() / took.as_secs_f64().max(1e-4);
        let least = self.floor.min(self.size);
        self.size = (self.size * ratio.clamp(0.5, 1.2)).clamp(least, self.max);
        if self.beside { took.mul_f64(REST_BESIDE) } else { Duration::ZERO }
    }

    /// A time-out or a conflict: half the size. False when it was at its smallest already.
    pub fn trouble(&mut self) -> bool {
        let smaller = self.size > self.min;
        self.size = (self.size / 2.0).max(self.min);
        smaller
    }
}

/// A budget per second. What can be foreseen is taken before the transaction begins and settled after it; what cannot is
/// spent after the fact, and whoever overspent waits.
#[derive(Debug)]
pub struct Budget {
    per_second: f64,
    balance: f64,
    seen: Instant,
}

impl Budget {
    /// Starts with one second's worth.
    pub fn new(per_second: f64, now: Instant) -> Self {
        Self { per_second, balance: per_second, seen: now }
    }

    /// Another share of the whole; what is owed stays owed.
    pub fn set_rate(&mut self, per_second: f64) {
        self.per_second = per_second;
    }

    /// The most that can be taken at once: a second's worth, and one where that is less than one.
    pub fn burst(&self) -> f64 {
        self.per_second.max(1.0)
    }

    /// How long until the balance is positive again.
    pub fn wait(&mut self, now: Instant) -> Duration {
        self.earn(now);
        self.until(0.0)
    }

    /// Takes an amount up to `burst`, or says how long until it is there.
    pub fn take(&mut self, now: Instant, amount: f64) -> Result<(), Duration> {
        self.earn(now);
        let wait = self.until(amount.min(self.burst()));
        if !wait.is_zero() {
            return Err(wait);
        }
        self.balance -= amount;
        Ok(())
    }

    fn earn(&mut self, now: Instant) {
        let earned = now.saturating_duration_since(self.seen).as_secs_f64() * self.per_second;
        self.balance = (self.balance + earned).min(self.burst());
        self.seen = now;
    }

    fn until(&self, amount: f64) -> Duration {
        let missing = amount - self.balance;
        if missing <= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(missing / self.per_second) }
    }

    /// Takes what a batch used, or gives back what it did not (negative).
    pub fn spend(&mut self, amount: f64) {
        self.balance -= amount;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_signal_vetoes_alone_and_releases() {
        let limits = Pacing {
            max_dead_share: Some(0.3),
            max_xmin_age: Some(1000),
            yield_to_autovacuum: true,
            ..Pacing::default()
        };
        let calm = Signals::default();
        assert_eq!(veto(&calm, &limits), None);
        let cases: Vec<(&str, Signals)> = vec![
            ("replica_lag", Signals { replica_lag_s: Some(10.5), ..calm.clone() }),
            ("slot_wal", Signals { slot_wal_bytes: Some(3 << 30), ..calm.clone() }),
            ("lock_waiters", Signals { lock_waiters: 2, ..calm.clone() }),
            ("probe_latency", Signals { probe: Duration::from_millis(251), ..calm.clone() }),
            ("autovacuum", Signals { vacuuming: true, ..calm.clone() }),
            ("dead_share", Signals { dead_share: 0.31, ..calm.clone() }),
            ("xmin_age", Signals { xmin_age: Some(1001), ..calm.clone() }),
        ];
        for (reason, signals) in cases {
            assert_eq!(veto(&signals, &limits).map(|veto| veto.reason), Some(reason));
        }
    }

    #[test]
    fn a_fixed_policy_keeps_its_rows_and_pause() {
        let mut pacer = Pacer::fixed(10_000, Duration::from_millis(100));
        assert_eq!(pacer.after(Duration::from_secs(5)), Duration::from_millis(100));
        assert_eq!(pacer.size(), 10_000);
        assert!(pacer.trouble());
        assert_eq!(pacer.size(), 5_000);
        pacer.after(Duration::from_millis(1));
        assert_eq!(pacer.size(), 10_000);
    }

    #[test]
    fn a_replica_that_stopped_replaying_falls_behind() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut wal = WalHistory::default();
        assert_eq!(wal.behind(start, 0), Duration::ZERO, "nothing known yet");
        for (second, position) in [(0, 100), (5, 200), (6, 200), (9, 300)] {
            wal.note(after(second), position);
        }
        assert_eq!(wal.behind(after(10), 300), Duration::ZERO);
        assert_eq!(wal.behind(after(10), 250), Duration::from_secs(1));
        assert_eq!(wal.behind(after(10), 100), Duration::from_secs(5));
        wal.note(after(11), 50);
        assert_eq!(wal.behind(after(12), 60), Duration::ZERO, "another server's positions");
    }

    #[test]
    fn an_overspent_budget_waits_in_proportion() {
        let start = Instant::now();
        let mut budget = Budget::new(100.0, start);
        budget.spend(300.0);
        assert_eq!(budget.wait(start), Duration::from_secs(2));
        assert_eq!(budget.wait(start + Duration::from_secs(2)), Duration::ZERO);
    }

    #[test]
    fn what_is_taken_was_there() {
        let start = Instant::now();
        let mut budget = Budget::new(100.0, start);
        assert_eq!(budget.take(start, 80.0), Ok(()));
        assert_eq!(budget.take(start, 50.0), Err(Duration::from_millis(300)));
        budget.spend(-30.0);
        assert_eq!(budget.take(start, 50.0), Ok(()), "what a batch did not use is there again");
        // A share of a budget can be less than a row a second.
        let mut slow = Budget::new(0.5, start);
        assert_eq!(slow.take(start, 1.0), Err(Duration::from_secs(1)));
        assert_eq!(slow.take(start + Duration::from_secs(1), 1.0), Ok(()));
    }

    proptest! {
        #[test]
        fn size_stays_in_bounds_and_grows_by_a_fifth_at_most(
            tooks in proptest::collection::vec(0u64..2_000_000, 1..100), beside: bool,
        ) {
            let mut pacer = Pacer::adaptive(500, 10, 100_000);
            pacer.see_others(beside);
            for took in tooks {
                let before = pacer.size;
                let rest = pacer.after(Duration::from_micros(took));
                prop_assert!(pacer.size >= 10.0 && pacer.size <= 100_000.0);
                prop_assert!(pacer.size <= before * 1.2 + 1e-9);
                prop_assert!(pacer.size >= before * 0.5 - 1e-9);
                prop_assert_eq!(rest > Duration::ZERO, beside && took > 0);
                if took % 7 == 0 { pacer.trouble(); }
            }
        }

        #[test]
        fn a_steady_rate_settles_near_the_target(rate in 1_000u64..1_000_000) {
            let mut pacer = Pacer::adaptive(500, 10, 1_000_000);
            for _ in 0..100 {
                let took = Duration::from_secs_f64(pacer.size() as f64 / rate as f64);
                pacer.after(took);
            }
            let took = pacer.size() as f64 / rate as f64;
            prop_assert!((0.035..0.065).contains(&took) || pacer.size() <= 25, "{took}");
        }
    }
}
