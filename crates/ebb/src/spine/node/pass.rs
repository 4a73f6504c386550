//! One pass over everything that is due, for `run --once`: a node that ends. Invariants: each unit runs once; what others
//! held to the end of the wait is named; sealing comes last, so that what was just done is proved by the same call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};

use super::{Node, TICK, Take};
use crate::pg::answered;
use crate::spine::options::Finished;
use crate::spine::service::Service;
use crate::spine::unit::ChoreKind;
use crate::spine::{ANSWER_WITHIN, Status, store};
use crate::{Error, Result};

impl Node {
    /// Does everything that is due now, once, and ends. Waits up to `wait` for units that others hold.
    pub async fn run_once(mut self, wait: Duration) -> Result<Finished> {
        let mut finished = Finished::default();
        let patience = Instant::now() + wait;
        self.tick_quietly().await?;
        let services = self.selected_services();
        if self.agenda.is_empty() && services.is_empty() && !self.options.only.is_empty() {
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
        let units = |phase: Vec<(String, ChoreKind)>| phase.into_iter().map(|(unit, _)| unit).collect();
        self.work_through(units(first), patience, &mut finished).await?;
        for service in services {
            self.serve_once(service, &mut finished).await?;
        }
        self.work_through(units(last), patience, &mut finished).await?;
        self.stop().await;
        Ok(finished)
    }

    /// Lets a service do what is due, unless it is paused or there is nothing for it to serve.
    async fn serve_once(&mut self, service: Arc<dyn Service>, finished: &mut Finished) -> Result<()> {
        let unit = service.unit().clone();
        if let Some(by) = self.shared.paused(&unit.policy) {
            finished.resting.push((unit.to_string(), format!("paused ({by})")));
            return Ok(());
        }
        let (_, hears) = watch::channel(false);
        let station = self.station(Arc::new(Notify::new()), hears);
        let mut serving = tokio::spawn(service.run_once(station));
        loop {
            tokio::select! {
                served = &mut serving => {
                    let summary = served.map_err(|error| Error::failed(error.to_string()))??;
                    finished.runs.extend((summary.rows > 0 || summary.status != Status::Success).then_some(summary));
                    return Ok(());
                }
                () = tokio::time::sleep(TICK) => { self.look(false).await?; }
            }
        }
    }

    /// Claims and runs each of these units once, waiting for those that others hold while there is patience.
    async fn work_through(&mut self, mut todo: Vec<String>, patience: Instant, finished: &mut Finished) -> Result<()> {
        let mut told = Vec::new();
        while !todo.is_empty() && !self.shared.shutdown.is_stopping() {
            let all = std::mem::take(&mut self.agenda);
            self.agenda =
                all.iter().filter(|(unit, _)| todo.contains(unit)).map(|(u, w)| (u.clone(), w.clone())).collect();
            let claimed = answered(ANSWER_WITHIN, self.claim(Take::All)).await;
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
        self.refresh(false).boxed().await?;
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
}
