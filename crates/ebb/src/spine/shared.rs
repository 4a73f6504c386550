//! What the runs of one node share: the database's time, what is paused, how fast everything may go, whose turn it is,
//! which leases are lost. Invariant: nothing here outlives the node, so nothing is missed when it dies.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::batch::Claim;
use super::pacing::{Budget, Signals, WalHistory};
use super::unit::Unit;
use super::{Shutdown, store};
use crate::Result;
use crate::control::ALL;
use crate::pg::Database;
use crate::policy::Pacing;

/// The first retry of a failed run comes about this much later.
const FIRST_RETRY: Duration = Duration::from_secs(5);
/// Batches at a time when no budget says otherwise; each batch takes its turn, so heavy tables alternate with light.
const TURNS: usize = 2;

/// What runs of one node share.
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) shutdown: Shutdown,
    pub(crate) name: String,
    state: Mutex<State>,
    turns: Mutex<(usize, Arc<Semaphore>)>,
}

struct State {
    clock: Option<(Instant, Timestamp)>,
    paused: Vec<String>,
    pacing: Pacing,
    rows: Option<Budget>,
    wal: Option<Budget>,
    wal_history: WalHistory,
    failures: HashMap<Unit, u32>,
    lost: Vec<(Unit, i64)>,
    rests: BTreeMap<&'static str, Duration>,
}

impl Shared {
    pub(super) fn new(database: Database, shutdown: Shutdown, name: String) -> Self {
        let state = State {
            clock: None,
            paused: Vec::new(),
            pacing: Pacing::default(),
            rows: None,
            wal: None,
            wal_history: WalHistory::default(),
            failures: HashMap::new(),
            lost: Vec::new(),
            rests: BTreeMap::new(),
        };
        Self {
            database,
            shutdown,
            name,
            state: Mutex::new(state),
            turns: Mutex::new((TURNS, Arc::new(Semaphore::new(TURNS)))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run rested for a reason.
    pub(crate) fn rested(&self, reason: &'static str, rested: Duration) {
        *self.state().rests.entry(reason).or_default() += rested;
    }

    /// How long runs rested since this was last asked, by reason.
    pub(crate) fn take_rests(&self) -> BTreeMap<&'static str, Duration> {
        std::mem::take(&mut self.state().rests)
    }

    /// The database's time, carried on between looks.
    pub(crate) fn now(&self) -> Timestamp {
        match self.state().clock {
            Some((at, now)) => now.saturating_add(at.elapsed()).unwrap_or(now),
            None => Timestamp::UNIX_EPOCH,
        }
    }

    pub(crate) fn pacing(&self) -> Pacing {
        self.state().pacing.clone()
    }

    /// Everything that is paused.
    pub(crate) fn paused_names(&self) -> Vec<String> {
        self.state().paused.clone()
    }

    pub(crate) fn paused(&self, policy: &str) -> Option<String> {
        let state = self.state();
        let by = state.paused.iter().find(|name| *name == ALL || *name == policy)?;
        Some(if by == ALL { "everything".to_owned() } else { by.clone() })
    }

    /// Adds how far behind a replica is that reports no lag because it replays nothing.
    pub(crate) fn complete(&self, signals: &mut Signals) {
        let Some(replayed_to) = signals.replayed_to else { return };
        let behind = self.state().wal_history.behind(Instant::now(), replayed_to).as_secs_f64();
        signals.replica_lag_s = Some(signals.replica_lag_s.unwrap_or(0.0).max(behind));
    }

    /// The runs whose lease is no longer ours, as the latest heartbeat found.
    pub(super) fn note_lost(&self, lost: Vec<(Unit, i64)>) {
        self.state().lost = lost;
    }

    pub(crate) fn is_lost(&self, claim: &Claim) -> bool {
        self.state().lost.iter().any(|(unit, generation)| *unit == claim.unit && *generation == claim.generation)
    }

    /// How long until the WAL that was written is within its budget.
    pub(crate) fn wal_wait(&self) -> Option<Duration> {
        let wait = self.state().wal.as_mut()?.wait(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }

    /// The most rows that a batch may change, where there is a budget.
    pub(crate) fn rows_at_once(&self) -> Option<u64> {
        Some(self.state().rows.as_ref()?.burst() as u64)
    }

    /// Takes rows from the budget before a batch begins, or says how long until they are there.
    pub(crate) fn take_rows(&self, rows: u64) -> Result<(), Duration> {
        match &mut self.state().rows {
            Some(budget) if rows > 0 => budget.take(Instant::now(), rows as f64),
            _ => Ok(()),
        }
    }

    /// What a batch really changed, of the rows that were taken for it.
    pub(crate) fn settle_rows(&self, taken: u64, changed: u64) {
        if let Some(budget) = &mut self.state().rows {
            budget.spend(changed as f64 - taken as f64);
        }
    }

    /// WAL is measured for the whole server: others' writes count too, so the budget is kept or undershot.
    pub(crate) async fn wal_position_if_budgeted(&self) -> Result<Option<i64>> {
        if self.state().wal.is_none() {
            return Ok(None);
        }
        let mut tx = self.database.read().await?;
        let position = store::wal_position(&mut tx).await?;
        tx.commit().await?;
        Ok(Some(position))
    }

    pub(crate) async fn spend_wal_since(&self, before: Option<i64>) -> Result<()> {
        let Some(before) = before else { return Ok(()) };
        let after = self.wal_position_if_budgeted().await?;
        if let (Some(budget), Some(after)) = (&mut self.state().wal, after) {
            budget.spend((after - before).max(0) as f64);
        }
        Ok(())
    }

    /// Waits for this batch's turn, first come, first served.
    pub(crate) async fn turn(&self) -> OwnedSemaphorePermit {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner).1.clone();
        turns.acquire_owned().await.expect("the semaphore is never closed")
    }

    /// A second turn for whoever has one already; none while others wait for theirs, nor where a budget is to be kept.
    pub(crate) fn another_turn(&self) -> Option<OwnedSemaphorePermit> {
        let budgeted = {
            let state = self.state();
            state.rows.is_some() || state.wal.is_some()
        };
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner).1.clone();
        turns.try_acquire_owned().ok().filter(|_| !budgeted)
    }

    pub(crate) fn backoff(&self, unit: &Unit, interval: Duration) -> Duration {
        let mut state = self.state();
        let failures = state.failures.entry(unit.clone()).or_default();
        *failures += 1;
        let longest = FIRST_RETRY.saturating_mul(1 << (*failures - 1).min(16)).min(interval);
        longest.mul_f64(0.5 + 0.5 * random_share())
    }

    pub(crate) fn forget_failures(&self, unit: &Unit) {
        self.state().failures.remove(unit);
    }

    /// Takes over what the latest look at the database said.
    pub(super) fn follow(&self, controls: &store::Controls, pacing: &Pacing) {
        let mut state = self.state();
        state.clock = Some((Instant::now(), controls.now.to_jiff()));
        state.paused = controls.paused.clone();
        state.wal_history.note(Instant::now(), controls.wal_at);
        // A budget over all policies is shared out among the nodes that are alive.
        let nodes = controls.nodes.max(1) as f64;
        let budget = |kept: &mut Option<Budget>, per_second: Option<f64>| match (kept.as_mut(), per_second) {
            (_, None) => *kept = None,
            (Some(budget), Some(rate)) => budget.set_rate(rate / nodes),
            (None, Some(rate)) => *kept = Some(Budget::new(rate / nodes, Instant::now())),
        };
        budget(&mut state.rows, pacing.rows_per_second.map(|rows| rows as f64));
        budget(&mut state.wal, pacing.wal_per_second.map(|size| size.bytes() as f64));
        state.pacing = pacing.clone();
        drop(state);
        let turns = pacing.connections.map_or(TURNS, |connections| connections.max(1) as usize);
        let mut current = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 != turns {
            *current = (turns, Arc::new(Semaphore::new(turns)));
        }
    }
}

/// Somewhere between 0 and 1, so that nodes do not act in step.
pub(crate) fn random_share() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX)
}
