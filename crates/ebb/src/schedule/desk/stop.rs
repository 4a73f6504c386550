//! The end of the work: what waits goes back at once, calls have the rest of their time, answers are written down.

use uuid::Uuid;

use super::Desk;
use super::calls::Answer;
use crate::Error;
use crate::schedule::store::{self, Ending};
use crate::schedule::tally::Tally;

impl Desk {
    /// No new claims: what waits goes back at once, calls have until the end of their time, answers are written down.
    pub(super) async fn stop(mut self) -> Tally {
        let tenth = self.station.stop_within / 10;
        let names: Vec<String> = self.lanes.keys().cloned().collect();
        self.lanes.values().for_each(|lane| lane.outlet.close());
        names.iter().for_each(|name| self.give_back(name));
        let deadline = tokio::time::Instant::now() + tenth * 6;
        while self.lanes.values().any(|lane| lane.sending > 0) {
            tokio::select! {
                Some(answer) = self.answers.1.recv() => {
                    let sink = match &answer { Answer::Missed(event) => Some(event.sink.clone()), _ => None };
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
        let (database, health) = (self.station.shared.database.clone(), self.health());
        let goodbye = tokio::time::timeout(tenth / 2, async {
            let mut tx = database.read().await?;
            store::note_health(&mut tx, &health).await?;
            store::awake(&mut tx, self.station.id).await?;
            Ok::<_, Error>(tx.commit().await?)
        });
        let _ = goodbye.await;
        self.tally.run_ended(true);
        self.tally
    }
}
