//! The events that a node holds: their leases are prolonged in time, and what is no longer ours is not sent.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use uuid::Uuid;

use super::Desk;
use crate::Result;
use crate::pg::{Database, answered};
use crate::schedule::sink::Health;
use crate::schedule::{keep, store};
use crate::spine::ANSWER_WITHIN;

/// An event that this node holds.
pub(super) struct Held {
    pub(super) sink: String,
    pub(super) event: Uuid,
    pub(super) due_at: Timestamp,
    pub(super) attempt: u32,
    pub(super) token: i64,
    pub(super) lease: Duration,
    /// When its lease was last known to begin.
    pub(super) since: Instant,
    pub(super) claimed_at: Instant,
    /// Whether its end is on its way to the recorder.
    pub(super) ended: bool,
}

impl Held {
    /// Until when a call may begin: later, its lease may be over before it is, and somebody else have the event, or soon.
    /// `None` when that was before.
    pub(super) fn begin_by(&self, timeout: Duration) -> Option<Instant> {
        let begin_by = self.since + self.lease.checked_sub(timeout)?;
        (begin_by >= Instant::now()).then_some(begin_by)
    }
}

/// Claims that were to be prolonged, and those that were.
pub(super) struct Prolonged {
    pub(super) asked_at: Instant,
    pub(super) due: Vec<(Uuid, i64, Duration)>,
    pub(super) ours: HashSet<Uuid>,
}

impl Desk {
    /// Prolongs claims at a third of their term, notes how receivers are, and sees to the history's partitions.
    pub(super) fn upkeep(&mut self) -> impl Future<Output = Result<Prolonged>> + use<> {
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
        let (station, health, asked_at) = (self.station.clone(), self.health(), Instant::now());
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
            if !health.is_empty() {
                answered(ANSWER_WITHIN, note_health(&station.shared.database, &health)).await?;
            }
            if let Some(term) = keep {
                keep::keep(&station, term).await?;
            }
            Ok(Prolonged { asked_at, due, ours })
        }
    }

    /// What answers have said of receivers since this was asked last.
    pub(super) fn health(&self) -> Vec<(String, Health)> {
        let lanes = self.lanes.iter();
        lanes.filter_map(|(name, lane)| Some((name.clone(), lane.outlet.take_health()?))).collect()
    }

    /// What is no longer ours is not sent any more.
    pub(super) fn prolonged(&mut self, prolonged: Prolonged) {
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
}

async fn note_health(database: &Database, health: &[(String, Health)]) -> Result<()> {
    let mut tx = database.read().await?;
    store::note_health(&mut tx, health).await?;
    Ok(tx.commit().await?)
}
