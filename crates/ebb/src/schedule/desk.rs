//! The dispatcher of one node: claims what is due, starts calls, hands answers to the recorder, keeps its claims alive,
//! sleeps. One loop owns all state. Invariants: whatever is held is in `held` until it is written down; no transaction is
//! open across a call; a stop lets calls end while there is time and gives the rest back.

mod asker;
mod calls;
mod claims;
mod lanes;
mod look;
mod stop;

use std::collections::{BTreeMap, HashMap};
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use self::asker::Asker;
use self::calls::Answer;
use self::claims::{Held, Prolonged};
use self::look::Look;
use super::lane::Lane;
use super::recorder::{self, Written};
use super::sink::Surroundings;
use super::store::Record;
use super::tally::Tally;
use super::{Handlers, Setup};
use crate::spine::Status;
use crate::spine::service::Station;
use crate::{Error, Result};

/// How often the desk looks around: pauses, claims to prolong, sinks that may go on.
const TICK: Duration = Duration::from_millis(500);
/// How often every sink is looked at and what recurs fires, busy or not.
const ROUND: Duration = Duration::from_secs(1);

pub(super) struct Desk {
    station: Station,
    setup: watch::Receiver<Option<Setup>>,
    handlers: Arc<Handlers>,
    surroundings: Arc<Surroundings>,
    lanes: BTreeMap<String, Lane>,
    held: HashMap<Uuid, Held>,
    answers: (mpsc::UnboundedSender<Answer>, mpsc::UnboundedReceiver<Answer>),
    records: Option<mpsc::UnboundedSender<Record>>,
    written: mpsc::UnboundedReceiver<Written>,
    writers: tokio::task::JoinSet<()>,
    calls: tokio::task::JoinSet<()>,
    asker: Asker,
    tally: Tally,
    paused: Vec<String>,
    /// Set: everything due is done, then the work ends.
    once: bool,
    /// When every sink was last looked at.
    round: Option<Instant>,
    kept: Option<Instant>,
}

impl Desk {
    pub(super) fn new(
        station: Station,
        setup: watch::Receiver<Option<Setup>>,
        handlers: Arc<Handlers>,
        surroundings: Arc<Surroundings>,
        once: bool,
    ) -> Self {
        let (records, record_receiver) = mpsc::unbounded_channel();
        let (written_sender, written) = mpsc::unbounded_channel();
        let (database, node) = (station.shared.database.clone(), station.shared.name.clone());
        Self {
            asker: Asker::new(database.clone()),
            writers: recorder::start(database, node, record_receiver, written_sender),
            station,
            setup,
            handlers,
            surroundings,
            lanes: BTreeMap::new(),
            held: HashMap::new(),
            answers: mpsc::unbounded_channel(),
            records: Some(records),
            written,
            calls: tokio::task::JoinSet::new(),
            tally: Tally::new(),
            paused: Vec::new(),
            once,
            round: None,
            kept: None,
        }
    }

    /// Works until shutdown, or until nothing is due.
    pub(super) async fn work(mut self) -> Result<Tally> {
        let shutdown = self.station.shared.shutdown.clone();
        tokio::select! {
            ready = self.setup.wait_for(Option::is_some) => { if ready.is_err() { return Ok(self.tally) } }
            () = shutdown.stopping() => return Ok(self.tally),
        }
        self.setup.mark_changed();
        let mut look: Option<BoxFuture<'static, Result<Look>>> = None;
        let mut resting: Option<BoxFuture<'static, Result<()>>> = None;
        let mut upkeep: Option<BoxFuture<'static, Result<Prolonged>>> = None;
        let mut failed_at: Option<Instant> = None;
        let mut buffer = Vec::new();
        let mut tick = tokio::time::interval(TICK);
        loop {
            self.follow();
            self.start_calls();
            let quiet = failed_at.is_some_and(|at| at.elapsed() < TICK);
            if look.is_none() && !quiet && self.all_paused().is_none() {
                let round = self.round.is_none_or(|at| resting.is_none() && at.elapsed() > ROUND);
                if round {
                    self.lanes.values_mut().for_each(|lane| lane.more = true);
                }
                let wishes = self.wishes();
                if !wishes.is_empty() || round {
                    look = Some(self.look(wishes, round).boxed());
                } else if self.once && self.held.is_empty() && !self.goes_on_soon() {
                    break;
                } else if resting.is_none() && !self.once {
                    resting = Some(self.rest().boxed());
                }
            } else if self.once && look.is_none() && self.held.is_empty() && self.all_paused().is_some() {
                break;
            }
            let until_free = self.until_free();
            tokio::select! {
                () = shutdown.stopping() => break,
                looked = settled(&mut look) => {
                    look = None;
                    // What this look drained is to be slept for, too.
                    resting = None;
                    match looked {
                        Ok(looked) => { failed_at = None; self.take_in(looked) }
                        Err(error) if self.once => { return self.give_up(error).await }
                        Err(error) => { failed_at = Some(Instant::now()); complain(&error, "Could not look for events") }
                    }
                }
                rested = settled(&mut resting) => {
                    resting = None;
                    match rested {
                        Ok(()) => self.look_again(),
                        Err(error) => { failed_at = Some(Instant::now()); complain(&error, "Could not look for the next event") }
                    }
                }
                Some(answer) = self.answers.1.recv() => {
                    self.hear(answer);
                    while let Ok(answer) = self.answers.1.try_recv() { self.hear(answer) }
                }
                got = self.written.recv_many(&mut buffer, 16) => {
                    if got == 0 { break }
                    for written in buffer.drain(..) { self.written_down(written) }
                    if self.held.is_empty() && !self.lanes.values().any(|lane| lane.more) { self.tally.run_ended(true) }
                }
                prolonged = settled(&mut upkeep) => {
                    upkeep = None;
                    match prolonged {
                        Ok(prolonged) => self.prolonged(prolonged),
                        Err(error) => complain(&error, "Could not look after claims and history"),
                    }
                }
                _ = tick.tick() => {
                    self.tally.tick();
                    if upkeep.is_none() {
                        upkeep = Some(self.upkeep().boxed());
                    }
                    // A sink that was paused, or whose receiver is back, may have something.
                    let paused = self.station.shared.paused_names();
                    if paused != self.paused {
                        self.paused = paused;
                        resting = None;
                        self.look_again();
                    }
                }
                () = until_free => {}
                changed = self.setup.changed() => {
                    if changed.is_err() { break }
                    resting = None;
                    self.setup.mark_changed();
                    self.look_again();
                }
            }
        }
        drop((look, resting, upkeep));
        Ok(self.stop().await)
    }

    /// Every lane may have something.
    fn look_again(&mut self) {
        self.lanes.values_mut().for_each(Lane::look_again);
        self.round = None;
    }

    fn all_paused(&self) -> Option<String> {
        self.station.shared.paused(super::POLICY)
    }

    /// Waits until a sink that only time holds back may go on.
    fn until_free(&self) -> impl Future<Output = ()> + use<> {
        let wait = self.lanes.values().filter_map(Lane::free_in).min();
        async move {
            match wait {
                Some(wait) => tokio::time::sleep(wait.max(Duration::from_millis(1))).await,
                None => pending().await,
            }
        }
    }

    /// Whether a sink that is held back may go on within moments.
    fn goes_on_soon(&self) -> bool {
        self.lanes.values().filter_map(Lane::free_in).any(|wait| wait < Duration::from_secs(2))
    }

    async fn give_up(self, error: Error) -> Result<Tally> {
        self.stop().await;
        Err(error)
    }
}

/// Waits for a piece of work that may not be there.
async fn settled<T>(work: &mut Option<BoxFuture<'static, T>>) -> T {
    match work {
        Some(work) => work.await,
        None => pending().await,
    }
}

fn complain(error: &Error, what: &str) {
    if error.is_unavailable() {
        tracing::debug!(error = %error, "{what}");
    } else {
        tracing::error!(error = %error, hint = error.hint(), "{what}");
    }
}

impl Tally {
    /// As one run of the node's history tells it.
    pub(super) fn status(&self) -> Status {
        if self.failed() > 0 { Status::Failed } else { Status::Success }
    }
}
