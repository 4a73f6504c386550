//! Calls and what becomes of their events. Invariant: an event ends once, whatever answers come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use uuid::Uuid;

use super::Desk;
use super::asker::{Asker, ask_from};
use crate::pg::answered;
use crate::policy;
use crate::schedule::body;
use crate::schedule::recorder::Written;
use crate::schedule::sink::{Delivery, Outlet, Refusal, Verdict};
use crate::schedule::store::{Claimed, Ending, Record};
use crate::spine::ANSWER_WITHIN;
use crate::spine::shared::random_share;

/// No receiver puts an event off for longer.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// What a call came to.
pub(super) enum Answer {
    /// The occurrence, the token of the claim it was made under, the verdict.
    Called(Uuid, i64, Verdict),
    /// No slot in time: it was not made.
    Missed(Claimed),
    /// Nobody wants it any more: it was not made.
    Unwanted(Claimed),
}

impl Desk {
    /// Starts as many calls as each sink allows.
    pub(super) fn start_calls(&mut self) {
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
                let ask = (self.asker.clone(), ask_from(&event, held));
                let (outlet, answers) = (lane.outlet.clone(), self.answers.0.clone());
                let slot = outlet.slot();
                free -= 1;
                lane.sending += 1;
                self.calls.spawn(call(outlet, slot, event, delivery, ask, begin_by, answers));
            }
        }
        while self.calls.try_join_next().is_some() {}
        for (id, error) in unreadable {
            self.record(id, Ending::Finished { state: "dead", error: Some(error), response: None });
        }
    }

    pub(super) fn hear(&mut self, answer: Answer) {
        match answer {
            Answer::Called(id, token, verdict) => self.judge(id, token, verdict),
            Answer::Missed(event) => self.put_back(event),
            Answer::Unwanted(event) => self.drop_unwanted(event),
        }
    }

    /// A call that was not made waits for its turn again; when the work ends, it is given back.
    pub(super) fn put_back(&mut self, event: Claimed) {
        let Some(lane) = self.lanes.get_mut(&event.sink) else {
            return self.record(event.id, Ending::Released { counted: false });
        };
        lane.not_sent();
        if self.held.get(&event.id).is_some_and(|held| held.token == event.token && !held.ended) {
            lane.queue.push_front(event);
        }
    }

    /// What nobody wants any more is let go of, which ends it.
    fn drop_unwanted(&mut self, event: Claimed) {
        let is_ours = self.held.get(&event.id).is_some_and(|held| held.token == event.token && !held.ended);
        if let Some(lane) = self.lanes.get_mut(&event.sink) {
            lane.not_sent();
            lane.recording += usize::from(is_ours);
        }
        // Where it was claimed again meanwhile, that claim decides.
        if !is_ours {
            return;
        }
        self.record(event.id, Ending::Released { counted: false });
    }

    /// Decides what becomes of an event after a call.
    pub(super) fn judge(&mut self, id: Uuid, token: i64, verdict: Verdict) {
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
    pub(super) fn give_back(&mut self, sink: &str) {
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
    pub(super) fn disable(&mut self, sink: &str, error: String) {
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
    pub(super) fn record(&mut self, id: Uuid, ending: Ending) {
        let Some(held) = self.held.get_mut(&id).filter(|held| !held.ended) else { return };
        held.ended = true;
        self.tally.ended(&held.sink, held.event, held.due_at, self.station.shared.now(), held.attempt, &ending);
        if let Some(records) = &self.records {
            let _ = records.send(Record { id, token: held.token, ending });
        }
    }

    pub(super) fn written_down(&mut self, written: Written) {
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
}

/// Makes a call as soon as there is a slot for it, unless its lease might end before it does or nobody wants it by then.
async fn call(
    outlet: Arc<Outlet>,
    slot: BoxFuture<'static, Option<OwnedSemaphorePermit>>,
    event: Claimed,
    delivery: Delivery,
    (asker, ask_from): (Asker, Instant),
    begin_by: Instant,
    answers: mpsc::UnboundedSender<Answer>,
) {
    let slot = slot.await;
    let wanted = match slot.is_some() && Instant::now() >= ask_from {
        true => asker.wants(&event).await,
        false => Some(true),
    };
    let answer = match (slot, wanted) {
        (_, Some(false)) => Answer::Unwanted(event),
        (Some(slot), Some(true)) if Instant::now() <= begin_by => {
            Answer::Called(event.id, event.token, outlet.deliver_in(slot, &delivery).await)
        }
        _ => Answer::Missed(event),
    };
    let _ = answers.send(answer);
}
