//! The dispatcher of one node: claims what is due, starts calls, hands answers to the recorder, keeps its claims alive,
//! sleeps. One loop owns all state. Invariants: whatever is held is in `held` until it is written down; no transaction is
//! open across a call; a stop lets calls end while there is time and gives the rest back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use uuid::Uuid;

use super::fire;
use super::keep;
use super::lane::Lane;
use super::recorder::{self, Written};
use super::rest;
use super::sink::{Delivery, Outlet, Refusal, Surroundings, Verdict};
use super::store::{self, Claimed, Ending, Record, Wish};
use super::tally::Tally;
use super::{Handlers, Setup, body};
use crate::pg::answered;
use crate::policy;
use crate::spine::service::Station;
use crate::spine::shared::random_share;
use crate::spine::{ANSWER_WITHIN, Status};
use crate::{Error, Result};

/// How often the desk looks around: pauses, claims to prolong, sinks that may go on.
const TICK: Duration = Duration::from_millis(500);
/// How often every sink is looked at and what recurs fires, busy or not.
const ROUND: Duration = Duration::from_secs(1);
/// No receiver puts an event off for longer.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// An event that this node holds.
struct Held {
    sink: String,
    event: Uuid,
    due_at: Timestamp,
    attempt: u32,
    token: i64,
    lease: Duration,
    /// When its lease was last known to begin.
    since: Instant,
    /// Whether its end is on its way to the recorder.
    ended: bool,
}

impl Held {
    /// Until when a call may begin: later, its lease may be over before it is, and somebody else have the event, or soon.
    /// `None` when that was before.
    fn begin_by(&self, timeout: Duration) -> Option<Instant> {
        let begin_by = self.since + self.lease.checked_sub(timeout)?;
        (begin_by >= Instant::now()).then_some(begin_by)
    }
}

/// What a call came to.
enum Answer {
    /// The occurrence, the token of the claim it was made under, the verdict.
    Called(Uuid, i64, Verdict),
    /// No slot in time: it was not made.
    Missed(Claimed),
}

/// What one look brought.
struct Look {
    wishes: Vec<Wish>,
    claimed: Vec<Claimed>,
    asked_at: Instant,
    /// Something became ready by this look itself.
    again: bool,
    /// What recurs is still to fire.
    put_off: bool,
}

/// Claims that were to be prolonged, and those that were.
struct Prolonged {
    asked_at: Instant,
    due: Vec<(Uuid, i64, Duration)>,
    ours: HashSet<Uuid>,
}

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

    /// Opens sinks that are new or changed, and closes those that are gone.
    fn follow(&mut self) {
        if !self.setup.has_changed().unwrap_or(false) {
            return;
        }
        let Some(setup) = self.setup.borrow_and_update().clone() else { return };
        self.tally.late_after = setup.events.late_after;
        for (sink, stored) in &setup.sinks {
            let name = sink.name.to_string();
            if self.lanes.get(&name).is_some_and(|lane| lane.sink == *sink && lane.stored.version == stored.version) {
                continue;
            }
            match self.open(sink) {
                Ok(outlet) => {
                    let mut lane = Lane::new(sink.clone(), stored.clone(), outlet);
                    if let Some(before) = self.lanes.remove(&name) {
                        before.outlet.close();
                        (lane.queue, lane.sending, lane.recording) = (before.queue, before.sending, before.recording);
                    }
                    self.lanes.insert(name, lane);
                }
                Err(error) => {
                    // Another node may have what is missing here.
                    tracing::error!(sink = name, error = %error, hint = error.hint(), "This node cannot deliver to a sink");
                    self.close(&name);
                }
            }
        }
        let gone: Vec<String> = self
            .lanes
            .keys()
            .filter(|name| !setup.sinks.iter().any(|(sink, _)| sink.name.as_str() == *name))
            .cloned()
            .collect();
        gone.iter().for_each(|name| self.close(name));
    }

    fn open(&self, sink: &policy::Sink) -> Result<Outlet> {
        match self.handlers.get(sink.name.as_str()) {
            Some(handler) => Ok(Outlet::with_handler(sink, handler.clone())),
            None => Outlet::open(sink, &self.surroundings),
        }
    }

    fn close(&mut self, name: &str) {
        let Some(lane) = self.lanes.remove(name) else { return };
        lane.outlet.close();
        for event in lane.queue {
            self.record(event.id, Ending::Released { counted: false });
        }
    }

    fn wishes(&mut self) -> Vec<Wish> {
        let (lease, shared) = (self.station.lease, self.station.shared.clone());
        let open = self.lanes.iter_mut().filter(|(name, _)| shared.paused(name).is_none());
        open.filter_map(|(_, lane)| lane.wish(lease)).collect()
    }

    /// Claims what is due; in a round, then fires what recurs.
    fn look(&mut self, wishes: Vec<Wish>, round: bool) -> impl Future<Output = Result<Look>> + use<> {
        let woken = self.round.is_none();
        if round {
            self.round = Some(Instant::now());
        }
        let (station, paused, asked_at) = (self.station.clone(), self.paused.clone(), Instant::now());
        async move {
            let claimed = match wishes.is_empty() {
                true => Vec::new(),
                false => answered(ANSWER_WITHIN, claim(&station, &wishes, round)).await?,
            };
            let mut again = false;
            // Who was woken for an event starts with it.
            let put_off = round && woken && !claimed.is_empty();
            if round && !put_off {
                again = fire::fire(&station.shared.database, &paused).await? > 0;
            }
            Ok(Look { wishes, claimed, asked_at, again, put_off })
        }
    }

    fn rest(&self) -> impl Future<Output = Result<()>> + use<> {
        let drained = |(name, lane): &(&String, &Lane)| !lane.more && self.station.shared.paused(name).is_none();
        let sinks: Vec<String> = self.lanes.iter().filter(drained).map(|(name, _)| name.clone()).collect();
        let (station, paused) = (self.station.clone(), self.paused.clone());
        async move { rest::rest(&station, &sinks, &paused).await }
    }

    fn take_in(&mut self, look: Look) {
        let Look { wishes, claimed, asked_at, again, put_off } = look;
        if put_off {
            self.round = Instant::now().checked_sub(2 * ROUND);
        }
        if claimed.is_empty() && !wishes.is_empty() {
            self.tally.run_ended(self.held.is_empty());
        }
        if !claimed.is_empty() {
            self.tally.claimed();
        }
        Tally::taken_over(&claimed);
        let mut by_sink: HashMap<String, Vec<Claimed>> = HashMap::new();
        for event in claimed {
            let Some(wish) = wishes.iter().find(|wish| wish.sink == event.sink) else { continue };
            self.held.insert(
                event.id,
                Held {
                    sink: event.sink.clone(),
                    event: event.event,
                    due_at: event.due_at.to_jiff(),
                    attempt: event.attempts.unsigned_abs(),
                    token: event.token,
                    lease: wish.lease,
                    since: asked_at,
                    ended: false,
                },
            );
            if let Some(error) = &event.given_up {
                let error = Some(error.clone());
                self.record(event.id, Ending::Finished { state: "dead", error, response: None });
            } else if event.too_late {
                self.record(event.id, Ending::Finished { state: "skipped", error: None, response: None });
            }
            by_sink.entry(event.sink.clone()).or_default().push(event);
        }
        for wish in &wishes {
            let events = by_sink.remove(&wish.sink).unwrap_or_default();
            match self.lanes.get_mut(&wish.sink) {
                Some(lane) => lane.take_in(events, wish, asked_at),
                None => events.into_iter().for_each(|event| self.record(event.id, Ending::Released { counted: false })),
            }
        }
        if again {
            self.look_again();
        }
    }

    /// Starts as many calls as each sink allows.
    fn start_calls(&mut self) {
        let mut unreadable = Vec::new();
        for lane in self.lanes.values_mut().filter(|lane| !lane.queue.is_empty()) {
            let mut free = lane.startable();
            while free > 0
                && let Some(event) = lane.queue.pop_front()
            {
                let Some(held) = self.held.get(&event.id) else { continue };
                let Some(begin_by) = held.begin_by(lane.outlet.timeout()) else {
                    self.held.remove(&event.id);
                    continue;
                };
                let delivery = match body::delivery(&event) {
                    Ok(delivery) => delivery,
                    Err(error) => {
                        unreadable.push((event.id, error));
                        continue;
                    }
                };
                let (outlet, answers) = (lane.outlet.clone(), self.answers.0.clone());
                let slot = outlet.slot();
                free -= 1;
                lane.sending += 1;
                self.calls.spawn(call(outlet, slot, event, delivery, begin_by, answers));
            }
        }
        while self.calls.try_join_next().is_some() {}
        for (id, error) in unreadable {
            self.record(id, Ending::Finished { state: "dead", error: Some(error), response: None });
        }
    }

    fn hear(&mut self, answer: Answer) {
        match answer {
            Answer::Called(id, token, verdict) => self.judge(id, token, verdict),
            Answer::Missed(event) => self.put_back(event),
        }
    }

    /// A call that was not made waits for its turn again; when the work ends, it is given back.
    fn put_back(&mut self, event: Claimed) {
        let Some(lane) = self.lanes.get_mut(&event.sink) else {
            return self.record(event.id, Ending::Released { counted: false });
        };
        lane.not_sent();
        if self.held.get(&event.id).is_some_and(|held| held.token == event.token && !held.ended) {
            lane.queue.push_front(event);
        }
    }

    /// Decides what becomes of an event after a call.
    fn judge(&mut self, id: Uuid, token: i64, verdict: Verdict) {
        let Some(held) = self.held.get(&id) else { return };
        let sink = held.sink.clone();
        let outlet = self.lanes.get_mut(&sink).map(|lane| {
            lane.ended();
            lane.outlet.clone()
        });
        if held.token != token {
            // The claim ran out while the call was under way, and this node has claimed the event again since.
            tracing::info!(event = %held.event, sink, token, "Result rejected: the claim had run out");
            if let Some(lane) = self.lanes.get_mut(&sink) {
                lane.recording = lane.recording.saturating_sub(1);
            }
            return;
        }
        let ending = match verdict {
            Verdict::Delivered { response } => Ending::Finished { state: "done", error: None, response },
            Verdict::Failed { error, permanent, retry_after, response } => {
                let error = error.replace('\0', "\u{fffd}");
                let retry = outlet.map_or_else(policy::Retry::default, |outlet| outlet.retry().clone());
                let wait = retry.delay(held.attempt, random_share()).filter(|_| !permanent);
                match wait {
                    Some(wait) => {
                        let wait = wait.max(retry_after.unwrap_or_default()).min(LONGEST_WAIT);
                        Ending::Failed { wait, error, response }
                    }
                    None => Ending::Finished { state: "dead", error: Some(error), response },
                }
            }
            Verdict::Refused { reason, .. } => {
                if reason == Refusal::Breaker {
                    self.give_back(&sink);
                }
                Ending::Released { counted: false }
            }
            Verdict::Disabled { error } => {
                self.give_back(&sink);
                self.disable(&sink, error);
                Ending::Released { counted: false }
            }
        };
        self.record(id, ending);
    }

    /// What waits for a sink that takes nothing is ready for whoever can deliver it.
    fn give_back(&mut self, sink: &str) {
        let Some(lane) = self.lanes.get_mut(sink) else { return };
        let waiting = std::mem::take(&mut lane.queue);
        lane.more = true;
        for event in waiting {
            if let Some(lane) = self.lanes.get_mut(sink) {
                lane.recording += 1;
            }
            self.record(event.id, Ending::Released { counted: false });
        }
    }

    /// The receiver wants no more: the sink stops for every node, with an alarm, and its events wait.
    fn disable(&mut self, sink: &str, error: String) {
        let Some(lane) = self.lanes.get_mut(sink) else { return };
        lane.more = false;
        tracing::error!(sink, error, "Sink stopped: its receiver wants no more events; they wait until `ebb apply`");
        let (station, stored) = (self.station.clone(), lane.stored.clone());
        tokio::spawn(async move {
            let stopped = answered(ANSWER_WITHIN, async {
                let mut tx = station.shared.database.read().await?;
                policy::store::stop(&mut tx, &stored, &error, &station.shared.name).await?;
                Ok(tx.commit().await?)
            });
            if let Err(error) = stopped.await {
                tracing::warn!(sink = stored.name, error = %error, "Could not write down that a sink has stopped");
            }
        });
    }

    /// Hands an ending to the recorder.
    fn record(&mut self, id: Uuid, ending: Ending) {
        let Some(held) = self.held.get_mut(&id).filter(|held| !held.ended) else { return };
        held.ended = true;
        self.tally.ended(&held.sink, held.event, held.due_at, self.station.shared.now(), held.attempt, &ending);
        if let Some(records) = &self.records {
            let _ = records.send(Record { id, token: held.token, ending });
        }
    }

    fn written_down(&mut self, written: Written) {
        for (id, counted) in written {
            let Some(held) = self.held.remove(&id) else { continue };
            if let Some(lane) = self.lanes.get_mut(&held.sink) {
                lane.recording = lane.recording.saturating_sub(1);
            }
            if !counted {
                tracing::info!(event = %held.event, sink = held.sink, token = held.token,
                    "Result rejected: the claim had run out, and the event is another's or ended");
            }
        }
    }

    /// Prolongs claims at a third of their term, and sees to the history's partitions.
    fn upkeep(&mut self) -> impl Future<Output = Result<Prolonged>> + use<> {
        let due: Vec<(Uuid, i64, Duration)> = self
            .held
            .iter()
            .filter(|(_, held)| held.since.elapsed() > held.lease / 3)
            .map(|(id, held)| (*id, held.token, held.lease))
            .collect();
        let mut keep = None;
        if self.kept.is_none_or(|at| at.elapsed() > keep::EVERY) {
            self.kept = Some(Instant::now());
            keep = self.setup.borrow().as_ref().map(|setup| setup.keep);
        }
        let (station, asked_at) = (self.station.clone(), Instant::now());
        async move {
            let mut ours = HashSet::new();
            if !due.is_empty() {
                ours = answered(station.lease / 3, async {
                    let mut tx = station.shared.database.read().await?;
                    let ours = store::hold(&mut tx, &due).await?;
                    tx.commit().await?;
                    Ok(ours.into_iter().collect())
                })
                .await?;
            }
            if let Some(term) = keep {
                keep::keep(&station, term).await?;
            }
            Ok(Prolonged { asked_at, due, ours })
        }
    }

    /// What is no longer ours is not sent any more.
    fn prolonged(&mut self, prolonged: Prolonged) {
        for (id, token, _) in prolonged.due {
            let Some(held) = self.held.get_mut(&id).filter(|held| held.token == token) else { continue };
            if prolonged.ours.contains(&id) {
                held.since = prolonged.asked_at;
            } else if let Some(lane) = self.lanes.get_mut(&held.sink)
                && let Some(place) = lane.queue.iter().position(|event| event.id == id)
            {
                lane.queue.remove(place);
                self.held.remove(&id);
            }
        }
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

    /// No new claims: what waits goes back at once, calls have until the end of their time, answers are written down.
    async fn stop(mut self) -> Tally {
        let tenth = self.station.stop_within / 10;
        let names: Vec<String> = self.lanes.keys().cloned().collect();
        self.lanes.values().for_each(|lane| lane.outlet.close());
        names.iter().for_each(|name| self.give_back(name));
        let deadline = tokio::time::Instant::now() + tenth * 6;
        while self.lanes.values().any(|lane| lane.sending > 0) {
            tokio::select! {
                Some(answer) = self.answers.1.recv() => {
                    let sink = match &answer { Answer::Missed(event) => Some(event.sink.clone()), Answer::Called(..) => None };
                    self.hear(answer);
                    sink.iter().for_each(|sink| self.give_back(sink));
                }
                Some(written) = self.written.recv() => self.written_down(written),
                () = tokio::time::sleep_until(deadline) => break,
            }
        }
        // Nobody knows whether these have arrived: they are tried again, and this attempt counts.
        self.calls.abort_all();
        let cut: Vec<Uuid> = self.held.iter().filter(|(_, held)| !held.ended).map(|(id, _)| *id).collect();
        for id in cut {
            self.record(id, Ending::Released { counted: true });
        }
        self.records = None;
        let flushed = tokio::time::timeout(tenth, async { while self.writers.join_next().await.is_some() {} });
        let _ = flushed.await;
        let database = self.station.shared.database.clone();
        let goodbye = tokio::time::timeout(tenth / 2, async {
            let mut tx = database.read().await?;
            store::awake(&mut tx, self.station.id).await?;
            Ok::<_, Error>(tx.commit().await?)
        });
        let _ = goodbye.await;
        self.tally.run_ended(true);
        self.tally
    }
}

/// Makes a call as soon as there is a slot for it, unless its lease might end before it does.
async fn call(
    outlet: Arc<Outlet>,
    slot: BoxFuture<'static, Option<OwnedSemaphorePermit>>,
    event: Claimed,
    delivery: Delivery,
    begin_by: Instant,
    answers: mpsc::UnboundedSender<Answer>,
) {
    let answer = match slot.await {
        Some(slot) if Instant::now() <= begin_by => {
            Answer::Called(event.id, event.token, outlet.deliver_in(slot, &delivery).await)
        }
        _ => Answer::Missed(event),
    };
    let _ = answers.send(answer);
}

async fn claim(station: &Station, wishes: &[Wish], awake: bool) -> Result<Vec<Claimed>> {
    let mut tx = station.shared.database.read().await?;
    if awake {
        store::awake(&mut tx, station.id).await?;
    }
    let claimed = store::claim(&mut tx, wishes, &station.shared.name).await?;
    tx.commit().await?;
    Ok(claimed)
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
