//! A node: looks every second at what is due, leases it, runs it, prolongs its leases, and survives everything between.
//! Invariants: its id is fresh for every boot; a unit runs at most once here at a time; the database being away is
//! expected and never ends the node.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::batch::Claim;
use super::pacing::Budget;
use super::run::Run;
use super::store::{self, Wish};
use super::unit::{ChoreKind, Unit};
use super::work::{Agenda, Roster, Summary, Work};
use super::{ANSWER_WITHIN, Shutdown, Status, wake};
use crate::control::ALL;
use crate::pg::{Database, answered};
use crate::policy::Pacing;
use crate::{Error, Result};

/// How often a node looks when nothing wakes it.
const TICK: Duration = Duration::from_secs(1);
/// Reading policies and catalog takes no longer, or counts as no answer.
const REFRESH_WITHIN: Duration = Duration::from_secs(60);
/// How often gauges and samples are brought up to date.
const OBSERVE: Duration = Duration::from_secs(60);
/// The first retry of a failed run comes about this much later.
const FIRST_RETRY: Duration = Duration::from_secs(5);
/// Batches at a time when no budget says otherwise; each batch takes its turn, so heavy tables alternate with light.
const TURNS: usize = 2;

/// Which units a node works on: a policy, perhaps one chore of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// The policy's name.
    pub policy: String,
    /// The chore's name.
    pub chore: Option<String>,
}

impl std::str::FromStr for Selector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (policy, chore) = match text.split_once(':') {
            Some((policy, chore)) => (policy, Some(chore.to_owned())),
            None => (text, None),
        };
        if policy.is_empty() || chore.as_deref() == Some("") {
            return Err(Error::usage(format!("{text:?} names no policy")).with_hint("write NAME or NAME:CHORE"));
        }
        Ok(Self { policy: policy.to_owned(), chore })
    }
}

impl Selector {
    fn matches(&self, unit: &Unit) -> bool {
        self.policy == unit.policy && self.chore.as_deref().is_none_or(|chore| chore == unit.chore.as_str())
    }
}

/// How a node behaves.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Its name in leases, logs and `application_name`.
    pub name: String,
    /// How long a lease lasts without a heartbeat.
    pub lease: Duration,
    /// How long the current batches have when the node is told to stop.
    pub stop_within: Duration,
    /// How often policies and catalog are read again when nothing says that they changed: new partitions, dropped tables.
    pub poll: Duration,
    /// Only these units; all when empty.
    pub only: Vec<Selector>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            name: format!("node-{}", std::process::id()),
            lease: Duration::from_secs(60),
            stop_within: Duration::from_secs(5),
            poll: Duration::from_secs(60),
            only: Vec::new(),
        }
    }
}

/// What `run --once` came to.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Finished {
    /// Every run, in the order they ended.
    pub runs: Vec<Summary>,
    /// Units that somebody else held until the end of the wait: (unit, node).
    pub held: Vec<(String, String)>,
    /// Policies that were not run, and why: paused, or outside their window.
    pub resting: Vec<(String, String)>,
}

impl Finished {
    /// Whether any run failed or was stopped by its brake.
    pub fn has_failed(&self) -> bool {
        self.runs.iter().any(|run| matches!(run.status, Status::Failed | Status::Braked))
    }
}

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
    failures: HashMap<Unit, u32>,
    lost: Vec<(Unit, i64)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    pub(crate) fn paused(&self, policy: &str) -> Option<String> {
        let state = self.state();
        let by = state.paused.iter().find(|name| *name == ALL || *name == policy)?;
        Some(if by == ALL { "everything".to_owned() } else { by.clone() })
    }

    pub(crate) fn is_lost(&self, claim: &Claim) -> bool {
        self.state().lost.iter().any(|(unit, generation)| *unit == claim.unit && *generation == claim.generation)
    }

    pub(crate) fn budget_wait(&self) -> Option<(&'static str, Duration)> {
        let mut state = self.state();
        let now = Instant::now();
        let rows = state.rows.as_mut().map(|budget| ("rows_per_second", budget.wait(now)));
        let wal = state.wal.as_mut().map(|budget| ("wal_per_second", budget.wait(now)));
        rows.into_iter().chain(wal).filter(|(_, wait)| !wait.is_zero()).max_by_key(|(_, wait)| *wait)
    }

    pub(crate) fn spend_rows(&self, rows: u64) {
        if let Some(budget) = &mut self.state().rows {
            budget.spend(rows as f64);
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

    fn follow(&self, controls: &store::Controls, pacing: &Pacing) {
        let mut state = self.state();
        state.clock = Some((Instant::now(), controls.now.to_jiff()));
        state.paused = controls.paused.clone();
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

fn random_share() -> f64 {
    f64::from(getrandom::u32().unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX)
}

/// Keeps gauges and samples fresh. Never in the way: what fails is looked at again the next time.
async fn observe(roster: Arc<dyn Roster>, database: Database, shutdown: Shutdown) {
    let mut pause = OBSERVE / 20;
    while !shutdown.sleep(pause.mul_f64(0.9 + 0.2 * random_share())).await {
        pause = OBSERVE;
        if let Err(error) = roster.observe(&database).await {
            tracing::debug!(error = %error, "Could not look at the backlog");
        }
    }
}

/// A run that this node has going.
struct Running {
    generation: i64,
    backend: watch::Receiver<Option<i32>>,
}

/// One node of an engine.
pub struct Node {
    shared: Arc<Shared>,
    roster: Arc<dyn Roster>,
    options: NodeOptions,
    id: Uuid,
    agenda: BTreeMap<String, Arc<dyn Work>>,
    pacing: Pacing,
    seen_change: Option<i64>,
    refreshed: Option<Instant>,
    running: HashMap<Unit, Running>,
    tasks: JoinSet<(Unit, Option<Summary>)>,
}

impl Node {
    pub(crate) fn new(database: Database, roster: Arc<dyn Roster>, options: NodeOptions, shutdown: Shutdown) -> Self {
        let state = State {
            clock: None,
            paused: Vec::new(),
            pacing: Pacing::default(),
            rows: None,
            wal: None,
            failures: HashMap::new(),
            lost: Vec::new(),
        };
        let shared = Shared {
            database,
            shutdown,
            name: options.name.clone(),
            state: Mutex::new(state),
            turns: Mutex::new((TURNS, Arc::new(Semaphore::new(TURNS)))),
        };
        Self {
            shared: Arc::new(shared),
            roster,
            options,
            id: Uuid::new_v4(),
            agenda: BTreeMap::new(),
            pacing: Pacing::default(),
            seen_change: None,
            refreshed: None,
            running: HashMap::new(),
            tasks: JoinSet::new(),
        }
    }

    /// Works until shutdown.
    pub async fn run(mut self) -> Result<()> {
        let wake = Arc::new(Notify::new());
        let (hears_sender, hears) = watch::channel(false);
        let listener = tokio::spawn(wake::listen(
            self.shared.database.clone(),
            wake.clone(),
            hears_sender,
            self.shared.shutdown.clone(),
        ));
        let observer =
            tokio::spawn(observe(self.roster.clone(), self.shared.database.clone(), self.shared.shutdown.clone()));
        let mut away = Duration::ZERO;
        let shutdown = self.shared.shutdown.clone();
        // A heartbeat at a third of the term, also where the term is short.
        let rest = TICK.min(self.options.lease / 3);
        let tenth = self.options.stop_within / 10;
        while !shutdown.is_stopping() {
            // Copied out first: a borrow held over the await would block whoever reports what it hears.
            let heard = *hears.borrow();
            let ticked = tokio::select! {
                ticked = self.tick(heard) => ticked,
                // A database that is away must not hold the process.
                () = shutdown.stopping_for(tenth) => break,
            };
            let pause = match ticked {
                Ok(()) => {
                    if !away.is_zero() {
                        tracing::info!("The database is back");
                        away = Duration::ZERO;
                    }
                    rest
                }
                Err(error) if error.is_unavailable() => {
                    if away.is_zero() {
                        tracing::warn!(error = %error, "The database is away; trying again until it is back");
                    }
                    away = (away * 2).clamp(Duration::from_millis(100), Duration::from_secs(5));
                    away.mul_f64(0.5 + 0.5 * random_share())
                }
                Err(error) => {
                    tracing::error!(error = %error, hint = error.hint(), "Could not look for work");
                    TICK
                }
            };
            self.rest(pause, &wake).await;
        }
        tracing::info!("Stopping cleanup");
        self.stop().await;
        listener.abort();
        observer.abort();
        Ok(())
    }

    /// Sleeps until the next look is due, somebody calls, or a run ends.
    async fn rest(&mut self, pause: Duration, wake: &Notify) {
        let deadline = tokio::time::Instant::now() + pause;
        loop {
            tokio::select! {
                () = self.shared.shutdown.stopping() => return,
                () = wake.notified() => return,
                () = tokio::time::sleep_until(deadline) => return,
                Some(ended) = self.tasks.join_next() => { self.ended(ended); }
            }
        }
    }

    fn ended(
        &mut self,
        ended: std::result::Result<(Unit, Option<Summary>), tokio::task::JoinError>,
    ) -> Option<Summary> {
        match ended {
            Ok((unit, summary)) => {
                self.running.remove(&unit);
                summary
            }
            Err(error) => {
                // A panic in a run must not leave its unit marked as running for ever.
                tracing::error!(error = %error, "A run ended abnormally");
                self.running.clear();
                None
            }
        }
    }

    /// One look: alive, controls, agenda, heartbeats, claims.
    async fn tick(&mut self, hears: bool) -> Result<()> {
        let controls = self.look(hears).await?;
        // Before the catalog is read: that may take its time.
        self.heartbeat().await?;
        let stale = self.refreshed.is_none_or(|at| at.elapsed() > self.options.poll);
        if stale || self.seen_change != Some(controls.change) {
            answered(REFRESH_WITHIN, self.refresh()).await?;
            self.shared.follow(&controls, &self.pacing);
            self.seen_change = Some(controls.change);
        }
        answered(ANSWER_WITHIN, self.claim(false)).await?;
        Ok(())
    }

    /// Says that the node is alive and reads what it is told.
    async fn look(&mut self, hears: bool) -> Result<store::Controls> {
        let controls = answered(ANSWER_WITHIN, async {
            let mut tx = self.shared.database.read().await?;
            store::beat_node(&mut tx, self.id, &self.options.name, hears).await?;
            let controls = store::controls(&mut tx, self.options.lease).await?;
            tx.commit().await?;
            Ok(controls)
        })
        .await?;
        self.shared.follow(&controls, &self.pacing);
        Ok(controls)
    }

    /// Reads policies and catalog, and makes the units exist.
    async fn refresh(&mut self) -> Result<()> {
        let Agenda { works, pacing } = self.roster.agenda(&self.shared.database, &self.options.name).await?;
        let now = self.shared.now();
        type Leaves<'a> = (Vec<String>, &'a Arc<dyn Work>);
        let mut by_policy: BTreeMap<(String, &'static str), Leaves<'_>> = BTreeMap::new();
        for work in &works {
            let unit = work.unit();
            let of = by_policy.entry((unit.policy.clone(), unit.chore.as_str())).or_insert((Vec::new(), work));
            of.0.push(unit.leaf.clone());
        }
        let mut tx = self.shared.database.read().await?;
        let mut chores: Vec<&str> = Vec::new();
        for ((policy, chore), (leaves, work)) in &by_policy {
            // Nothing waits longer than its policy says from now on: a shorter interval counts at once.
            let (first, latest) = (work.first_at(now), work.next_at(now, 0));
            store::register_units(&mut tx, chore, policy, leaves, first, latest).await?;
            chores.push(chore);
        }
        let existing: Vec<String> = works.iter().map(|work| work.unit().to_string()).collect();
        store::forget_units(&mut tx, &existing, &chores).await?;
        tx.commit().await?;
        let mut known: Vec<String> = self.agenda.values().map(|work| work.unit().policy.clone()).collect();
        for work in works.iter().filter(|work| self.selected(work.unit())) {
            let policy = &work.unit().policy;
            if !known.contains(policy) {
                known.push(policy.clone());
                tracing::info!(policy, interval = %crate::policy::human(work.interval()), "Started cleanup");
            }
        }
        self.agenda = works
            .into_iter()
            .filter(|work| self.selected(work.unit()))
            .map(|work| (work.unit().to_string(), work))
            .collect();
        self.pacing = pacing;
        self.refreshed = Some(Instant::now());
        Ok(())
    }

    fn selected(&self, unit: &Unit) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|selector| selector.matches(unit))
    }

    /// Prolongs the leases of what runs here; whatever is no longer ours is told to stop.
    async fn heartbeat(&mut self) -> Result<()> {
        if self.running.is_empty() {
            return Ok(());
        }
        let units: Vec<String> = self.running.keys().map(Unit::to_string).collect();
        let ours = answered(ANSWER_WITHIN, async {
            let mut tx = self.shared.database.read().await?;
            let ours = store::heartbeat(&mut tx, self.id, self.options.lease, &units).await?;
            tx.commit().await?;
            Ok(ours)
        })
        .await?;
        let lost = self
            .running
            .iter()
            .filter(|(unit, _)| !ours.contains(&unit.to_string()))
            .map(|(unit, running)| (unit.clone(), running.generation))
            .collect();
        self.shared.state().lost = lost;
        Ok(())
    }

    /// Leases what is due and free, and starts it.
    async fn claim(&mut self, not_due: bool) -> Result<usize> {
        let now = self.shared.now();
        let candidates: Vec<String> = self
            .agenda
            .values()
            .filter(|work| {
                let unit = work.unit();
                !self.running.contains_key(unit)
                    && self.shared.paused(&unit.policy).is_none()
                    && work.closed_until(now).is_none()
            })
            .map(|work| work.unit().to_string())
            .collect();
        if candidates.is_empty() {
            return Ok(0);
        }
        let wish = Wish {
            units: &candidates,
            holder: self.id,
            node: &self.options.name,
            term: self.options.lease,
            limit: 64,
            not_due,
        };
        let mut tx = self.shared.database.read().await?;
        let claims = store::claim(&mut tx, wish).await?;
        tx.commit().await?;
        let started = claims.len();
        for (unit, generation) in claims {
            let Some(work) = self.agenda.get(&unit).cloned() else { continue };
            let claim = Claim {
                unit: work.unit().clone(),
                holder: self.id,
                node: self.options.name.clone(),
                generation,
                policy_version: work.policy_version(),
            };
            let (backend_sender, backend) = watch::channel(None);
            self.running.insert(claim.unit.clone(), Running { generation, backend });
            let run = Run::new(self.shared.clone(), work, claim.clone(), backend_sender);
            self.tasks.spawn(async move { (claim.unit, run.execute().await) });
        }
        Ok(started)
    }

    /// Does everything that is due now, once, and ends. Waits up to `wait` for units that others hold.
    pub async fn run_once(mut self, wait: Duration) -> Result<Finished> {
        let mut finished = Finished::default();
        let patience = Instant::now() + wait;
        self.tick_quietly().await?;
        if self.agenda.is_empty() && !self.options.only.is_empty() {
            let names: Vec<&str> = self.options.only.iter().map(|selector| selector.policy.as_str()).collect();
            return Err(Error::usage(format!("no active policy is called {}", names.join(" or ")))
                .with_hint("`ebb policy list` shows them; one that is disabled or stopped does not run"));
        }
        self.note_resting(&mut finished);
        let rests = |unit: &String| finished.resting.iter().any(|(resting, _)| resting == unit);
        let (last, first): (Vec<_>, Vec<_>) = self
            .agenda
            .iter()
            .filter(|(unit, _)| !rests(unit))
            .map(|(unit, work)| (unit.clone(), work.unit().chore))
            .partition(|(_, chore)| *chore == ChoreKind::Seal);
        // Sealing comes last, so that what was just done is proved by the same call.
        for phase in [first, last] {
            let units = phase.into_iter().map(|(unit, _)| unit).collect();
            self.work_through(units, patience, &mut finished).await?;
        }
        self.stop().await;
        Ok(finished)
    }

    /// Claims and runs each of these units once, waiting for those that others hold while there is patience.
    async fn work_through(&mut self, mut todo: Vec<String>, patience: Instant, finished: &mut Finished) -> Result<()> {
        let mut told = Vec::new();
        while !todo.is_empty() && !self.shared.shutdown.is_stopping() {
            let all = std::mem::take(&mut self.agenda);
            self.agenda =
                all.iter().filter(|(unit, _)| todo.contains(unit)).map(|(u, w)| (u.clone(), w.clone())).collect();
            let claimed = answered(ANSWER_WITHIN, self.claim(true)).await;
            self.agenda = all;
            claimed?;
            todo.retain(|unit| !self.running.keys().any(|running| running.to_string() == *unit));
            let holders = self.holders(&todo).await?;
            for holder in &holders {
                if !told.contains(&holder.unit) {
                    tracing::debug!(unit = %holder.unit, node = %holder.node, "Held by another node, skipping");
                    told.push(holder.unit.clone());
                }
            }
            if Instant::now() >= patience && self.running.is_empty() {
                finished.held.extend(holders.into_iter().map(|holder| (holder.unit, holder.node)));
                break;
            }
            self.settle(Duration::from_millis(200), finished).await?;
        }
        while !self.running.is_empty() && !self.shared.shutdown.is_stopping() {
            self.settle(Duration::from_millis(200), finished).await?;
        }
        Ok(())
    }

    /// A first look without claiming anything.
    async fn tick_quietly(&mut self) -> Result<()> {
        self.look(false).await?;
        answered(REFRESH_WITHIN, self.refresh()).await?;
        self.look(false).await?;
        Ok(())
    }

    fn note_resting(&self, finished: &mut Finished) {
        let now = self.shared.now();
        for (key, work) in &self.agenda {
            if let Some(by) = self.shared.paused(&work.unit().policy) {
                finished.resting.push((key.clone(), format!("paused ({by})")));
            } else if let Some(open_at) = work.closed_until(now) {
                finished.resting.push((key.clone(), format!("outside its window until {open_at}")));
            }
        }
    }

    async fn holders(&self, units: &[String]) -> Result<Vec<store::Holder>> {
        answered(ANSWER_WITHIN, async {
            let mut tx = self.shared.database.read().await?;
            let holders = store::holders(&mut tx, units, self.id).await?;
            tx.commit().await?;
            Ok(holders)
        })
        .await
    }

    /// Waits a little for runs to end, with heartbeats and a fresh clock.
    async fn settle(&mut self, within: Duration, finished: &mut Finished) -> Result<()> {
        tokio::select! {
            () = self.shared.shutdown.stopping() => {}
            () = tokio::time::sleep(within) => {}
            Some(ended) = self.tasks.join_next() => { finished.runs.extend(self.ended(ended)); }
        }
        self.look(false).await?;
        self.heartbeat().await
    }

    /// Ends the runs, then says goodbye, so that nobody counts this node as alive.
    async fn stop(&mut self) {
        self.end_runs().await;
        let tenth = self.options.stop_within / 10;
        let goodbye = async {
            let mut tx = self.shared.database.read().await?;
            store::leave(&mut tx, self.id).await?;
            Ok::<_, Error>(tx.commit().await?)
        };
        if let Ok(Err(error)) = tokio::time::timeout(tenth, goodbye).await {
            tracing::debug!(error = %error, "Could not say goodbye");
        }
    }

    /// Lets the current batches end; cancels what has not ended in time. Leases go back with each run's ending, and
    /// those of runs that do not end go back here. The last tenths of the time are for whoever called.
    async fn end_runs(&mut self) {
        self.shared.shutdown.stop();
        let tenth = self.options.stop_within / 10;
        if tokio::time::timeout(tenth * 4, self.drain()).await.is_ok() {
            return;
        }
        let pids: Vec<i32> = self.running.values().filter_map(|running| *running.backend.borrow()).collect();
        tracing::info!(batches = pids.len(), "Cancelling the batches that have not ended in time");
        let database = self.shared.database.clone();
        let cancelled = tokio::time::timeout(tenth * 2, async {
            if let Ok(mut tx) = database.read().await {
                for pid in pids {
                    let _ = store::cancel_backend(&mut tx, pid).await;
                }
            }
            self.drain().await;
        });
        if cancelled.await.is_ok() {
            return;
        }
        // Their transactions end with their connections; until then they keep others from taking the lease over.
        self.tasks.abort_all();
        if let Ok(Err(error)) = tokio::time::timeout(tenth, self.release()).await {
            tracing::debug!(error = %error, "Could not give leases back");
        }
    }

    async fn drain(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            self.ended(ended);
        }
    }

    /// Gives back every lease that this node still counts as its own.
    async fn release(&self) -> Result<()> {
        let mut tx = self.shared.database.read().await?;
        for (unit, running) in &self.running {
            store::release(&mut tx, unit, self.id, running.generation).await?;
        }
        Ok(tx.commit().await?)
    }
}
