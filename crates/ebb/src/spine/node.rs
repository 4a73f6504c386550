//! A node: looks every second at what is due, leases it, runs it, prolongs its leases, and survives everything between.
//! Invariants: its id is fresh for every boot; a unit runs at most once here at a time; the database being away is
//! expected and never ends the node.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::task::{self, JoinError, JoinSet};
use uuid::Uuid;

use super::batch::{Backend, Claim};
use super::options::NodeOptions;
use super::run::Run;
use super::service::{Service, Station};
use super::shared::{Shared, random_share};
use super::store::{self, Registered, Wish};
use super::unit::Unit;
use super::work::{Agenda, Roster, Summary, Work};
use super::{ANSWER_WITHIN, Shutdown, wake};
use crate::Result;
use crate::control::CHANNEL;
use crate::pg::{Database, answered};
use crate::policy::Pacing;

mod pass;
mod stop;

/// How often a node looks when nothing wakes it.
const TICK: Duration = Duration::from_secs(1);
/// Reading policies and catalog takes no longer, or counts as no answer.
const REFRESH_WITHIN: Duration = Duration::from_secs(60);
/// How often gauges and samples are brought up to date.
const OBSERVE: Duration = Duration::from_secs(60);

/// Keeps gauges and samples fresh. Never in the way: what fails is looked at again the next time.
async fn observe(roster: Arc<dyn Roster>, shared: Arc<Shared>) {
    let mut pause = OBSERVE / 20;
    while !shared.shutdown.sleep(pause.mul_f64(0.9 + 0.2 * random_share())).await {
        pause = OBSERVE;
        let looked = match note_rests(&shared).await {
            Ok(()) => roster.observe(&shared.database).await,
            noted => noted,
        };
        if let Err(error) = looked {
            tracing::debug!(error = %error, "Could not look at the backlog");
        }
    }
}

/// Keeps how long runs of this node rested, and why, for those who look at the last hours.
async fn note_rests(shared: &Shared) -> Result<()> {
    let rests = shared.take_rests();
    if rests.is_empty() {
        return Ok(());
    }
    let mut tx = shared.database.read().await?;
    store::note_rests(&mut tx, &rests).await?;
    Ok(tx.commit().await?)
}

/// Which of the free units a look takes.
#[derive(Clone, Copy, PartialEq)]
enum Take {
    /// What is due of the users' policies: in its first second a node leaves Ebb's own housekeeping alone.
    DuePolicies,
    /// What is due.
    Due,
    /// Due or not.
    All,
}

/// A run that this node has going.
struct Running {
    task: task::Id,
    generation: i64,
    backends: watch::Receiver<Vec<Backend>>,
}

/// One node of an engine.
pub struct Node {
    shared: Arc<Shared>,
    roster: Arc<dyn Roster>,
    options: NodeOptions,
    id: Uuid,
    began: Instant,
    agenda: BTreeMap<String, Arc<dyn Work>>,
    pacing: Pacing,
    seen_change: Option<i64>,
    refreshed: Option<Instant>,
    running: HashMap<Unit, Running>,
    tasks: JoinSet<(Unit, Option<Summary>)>,
    services: JoinSet<()>,
}

impl Node {
    pub(crate) fn new(database: Database, roster: Arc<dyn Roster>, options: NodeOptions, shutdown: Shutdown) -> Self {
        let shared = Shared::new(database, shutdown, options.name.clone());
        Self {
            shared: Arc::new(shared),
            roster,
            options,
            id: Uuid::new_v4(),
            began: Instant::now(),
            agenda: BTreeMap::new(),
            pacing: Pacing::default(),
            seen_change: None,
            refreshed: None,
            running: HashMap::new(),
            tasks: JoinSet::new(),
            services: JoinSet::new(),
        }
    }

    /// Works until shutdown.
    pub async fn run(mut self) -> Result<()> {
        let wake = Arc::new(Notify::new());
        let (hears_sender, hears) = watch::channel(false);
        let mut bells = vec![(CHANNEL, wake.clone())];
        for service in self.selected_services() {
            let bell = Arc::new(Notify::new());
            bells.push((service.channel(), bell.clone()));
            let station = self.station(bell, hears.clone());
            self.services.spawn(service.run(station));
        }
        let listener =
            tokio::spawn(wake::listen(self.shared.database.clone(), bells, hears_sender, self.shared.shutdown.clone()));
        let observer = tokio::spawn(observe(self.roster.clone(), self.shared.clone()));
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

    /// The services that this node is to run.
    fn selected_services(&self) -> Vec<Arc<dyn Service>> {
        self.roster.services().into_iter().filter(|service| self.selected(service.unit())).collect()
    }

    fn station(&self, wake: Arc<Notify>, hears: watch::Receiver<bool>) -> Station {
        let NodeOptions { lease, stop_within, poll, .. } = self.options;
        Station { shared: self.shared.clone(), id: self.id, lease, stop_within, poll, wake, hears }
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

    fn ended(&mut self, ended: std::result::Result<(Unit, Option<Summary>), JoinError>) -> Option<Summary> {
        match ended {
            Ok((unit, summary)) => {
                self.running.remove(&unit);
                summary
            }
            Err(error) => {
                // A panic in a run must not leave its unit marked as running for ever; the others' leases go on.
                tracing::error!(error = %error, "A run ended abnormally");
                self.running.retain(|_, running| running.task != error.id());
                None
            }
        }
    }

    /// One look: alive, controls, agenda, heartbeats, claims.
    async fn tick(&mut self, hears: bool) -> Result<()> {
        let controls = self.look(hears).await?;
        // Before the catalog is read: that may take its time.
        self.heartbeat().await?;
        let take = if self.began.elapsed() < TICK { Take::DuePolicies } else { Take::Due };
        let stale = self.refreshed.is_none_or(|at| at.elapsed() > self.options.poll);
        if stale || self.seen_change != Some(controls.change) {
            self.refresh(hears).boxed().await?;
            self.shared.follow(&controls, &self.pacing);
            self.seen_change = Some(controls.change);
        }
        answered(ANSWER_WITHIN, self.claim(take)).await?;
        Ok(())
    }

    /// Says that the node is alive and reads what it is told.
    async fn look(&self, hears: bool) -> Result<store::Controls> {
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

    /// Takes up policies and catalog as they are now. That may take its time, and leases are prolonged meanwhile.
    async fn refresh(&mut self, hears: bool) -> Result<()> {
        let beat = self.options.lease / 3;
        let agenda = {
            // On the heap: whoever polls a node has a stack of its own size.
            let mut reading = answered(REFRESH_WITHIN, self.read()).boxed();
            loop {
                tokio::select! {
                    agenda = &mut reading => break agenda?,
                    () = tokio::time::sleep(beat) => {
                        self.look(hears).await?;
                        self.heartbeat().await?;
                    }
                }
            }
        };
        let mut known: BTreeSet<String> = self.agenda.values().map(|work| work.unit().policy.clone()).collect();
        for work in agenda.works.iter().filter(|work| self.selected(work.unit())) {
            let policy = &work.unit().policy;
            if known.insert(policy.clone()) {
                tracing::info!(policy, interval = %crate::policy::human(work.interval()), "Started cleanup");
            }
        }
        self.agenda = agenda
            .works
            .into_iter()
            .filter(|work| self.selected(work.unit()))
            .map(|work| (work.unit().to_string(), work))
            .collect();
        self.pacing = agenda.pacing;
        self.refreshed = Some(Instant::now());
        Ok(())
    }

    /// Reads policies and catalog, and makes the units exist.
    async fn read(&self) -> Result<Agenda> {
        let agenda = self.roster.agenda(&self.shared.database, &self.options.name).await?;
        let now = self.shared.now();
        let units: BTreeMap<String, Registered<'_>> = agenda
            .works
            .iter()
            .map(|work| {
                // Nothing waits longer than its policy says from now on: a shorter interval counts at once.
                let (first_at, latest) = (work.first_at(now), work.next_at(now, 0));
                (work.unit().to_string(), Registered { unit: work.unit(), first_at, latest })
            })
            .collect();
        let chores: BTreeSet<&str> = units.values().map(|of| of.unit.chore.as_str()).collect();
        let (existing, units): (Vec<String>, Vec<Registered<'_>>) = units.into_iter().unzip();
        let mut tx = self.shared.database.read().await?;
        store::register_units(&mut tx, &units).await?;
        store::forget_units(&mut tx, &existing, &Vec::from_iter(chores)).await?;
        tx.commit().await?;
        Ok(agenda)
    }

    fn selected(&self, unit: &Unit) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|selector| selector.matches(unit))
    }

    /// Prolongs the leases of what runs here; whatever is no longer ours is told to stop.
    async fn heartbeat(&self) -> Result<()> {
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
        self.shared.note_lost(lost);
        Ok(())
    }

    /// Leases what is free and wanted, and starts it.
    async fn claim(&mut self, take: Take) -> Result<usize> {
        let now = self.shared.now();
        let candidates: Vec<String> = self
            .agenda
            .values()
            .filter(|work| {
                let unit = work.unit();
                !self.running.contains_key(unit)
                    && (take != Take::DuePolicies || work.stored().is_some())
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
            not_due: take == Take::All,
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
            let (sender, backends) = watch::channel(Vec::new());
            let unit = claim.unit.clone();
            let run = Run::new(self.shared.clone(), work, claim, sender);
            self.start(unit, generation, backends, run.execute());
        }
        Ok(started)
    }

    fn start(
        &mut self,
        unit: Unit,
        generation: i64,
        backends: watch::Receiver<Vec<Backend>>,
        run: impl Future<Output = Option<Summary>> + Send + 'static,
    ) {
        let of = unit.clone();
        let task = self.tasks.spawn(async move { (of, run.await) }).id();
        self.running.insert(unit, Running { task, generation, backends });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;

    use super::super::unit::ChoreKind;
    use super::*;
    use crate::pg::Target;

    struct Nothing;

    impl Roster for Nothing {
        fn agenda<'a>(&'a self, _: &'a Database, _: &'a str) -> BoxFuture<'a, Result<Agenda>> {
            async { Ok(Agenda { works: Vec::new(), pacing: Pacing::default() }) }.boxed()
        }

        fn observe<'a>(&'a self, _: &'a Database) -> BoxFuture<'a, Result<()>> {
            async { Ok(()) }.boxed()
        }
    }

    #[tokio::test]
    async fn a_run_that_panics_is_not_running_any_more_and_all_others_are() {
        let nowhere = Database::open(Target::parse("postgres://nobody@localhost:1/none", None).unwrap(), 1, "ebb/test");
        let mut node = Node::new(nowhere, Arc::new(Nothing), NodeOptions::default(), Shutdown::new());
        let unit = |policy: &str| Unit { chore: ChoreKind::Expire, policy: policy.into(), leaf: "public.t".into() };
        let backends = || watch::channel(Vec::new()).1;
        node.start(unit("well"), 1, backends(), std::future::pending());
        node.start(unit("broken"), 2, backends(), async { panic!("a test breaks it") });
        let ended = node.tasks.join_next().await.unwrap();
        assert!(node.ended(ended).is_none());
        assert_eq!(node.running.keys().map(|unit| unit.policy.as_str()).collect::<Vec<_>>(), ["well"]);
    }
}
