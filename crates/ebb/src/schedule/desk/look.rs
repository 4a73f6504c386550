//! Looking for what is due: a claim for every lane that has room, then what recurs; and a rest until something is.

use std::collections::HashMap;
use std::time::Instant;

use super::claims::Held;
use super::{Desk, ROUND};
use crate::Result;
use crate::pg::answered;
use crate::schedule::lane::Lane;
use crate::schedule::store::{self, Claimed, Ending, Wish};
use crate::schedule::tally::Tally;
use crate::schedule::{fire, rest};
use crate::spine::ANSWER_WITHIN;
use crate::spine::service::Station;

/// What one look brought.
pub(super) struct Look {
    wishes: Vec<Wish>,
    claimed: Vec<Claimed>,
    asked_at: Instant,
    /// Something became ready by this look itself.
    again: bool,
    /// What recurs is still to fire.
    put_off: bool,
}

impl Desk {
    pub(super) fn wishes(&mut self) -> Vec<Wish> {
        let (lease, shared) = (self.station.lease, self.station.shared.clone());
        let open = self.lanes.iter_mut().filter(|(name, _)| shared.paused(name).is_none());
        open.filter_map(|(_, lane)| lane.wish(lease)).collect()
    }

    /// Claims what is due; in a round, then fires what recurs.
    pub(super) fn look(&mut self, wishes: Vec<Wish>, round: bool) -> impl Future<Output = Result<Look>> + use<> {
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

    pub(super) fn rest(&self) -> impl Future<Output = Result<()>> + use<> {
        let drained = |(name, lane): &(&String, &Lane)| !lane.more && self.station.shared.paused(name).is_none();
        let sinks: Vec<String> = self.lanes.iter().filter(drained).map(|(name, _)| name.clone()).collect();
        let (station, paused) = (self.station.clone(), self.paused.clone());
        async move { rest::rest(&station, &sinks, &paused).await }
    }

    pub(super) fn take_in(&mut self, look: Look) {
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
                    claimed_at: asked_at,
                    ended: false,
                },
            );
            if let Some(error) = &event.given_up {
                let error = Some(error.clone());
                self.record(event.id, Ending::Finished { state: "dead", error, response: None });
            } else if event.too_late {
                self.record(event.id, Ending::Finished { state: "skipped", error: None, response: None });
            } else if event.cancelled {
                self.record(event.id, Ending::Released { counted: false });
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
