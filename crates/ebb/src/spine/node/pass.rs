//! One pass over everything that is due, for `run --once`: a node that ends. Invariants: each unit runs once, after those of
//! its policy that may make work for it, and what waits for a delivery once more when something was delivered; what others
//! held to the end of the wait is named; sealing comes last, so that what was just done is proved by the same call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::{Notify, watch};

use super::{Node, TICK, Take};
use crate::pg::answered;
use crate::spine::options::Finished;
use crate::spine::service::Service;
use crate::spine::unit::{ChoreKind, Unit};
use crate::spine::{ANSWER_WITHIN, Status, store};
use crate::{Error, Result, policy};

/// How often a unit that is neither free nor held is asked for: somebody has its row locked, for a moment.
const TRIES: u32 = 3;

impl Node {
    /// Does everything that is due now, once, and ends. Waits up to `wait` for units that others hold.
    pub async fn run_once(mut self, wait: Duration) -> Result<Finished> {
        let mut finished = Finished::default();
        let patience = Instant::now() + wait;
        self.tick_quietly().await?;
        let services = self.selected_services();
        let known = !self.agenda.is_empty() || !services.is_empty() || !self.stopped_policies().await?.is_empty();
        if !known && !self.options.only.is_empty() {
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
        let waiting = self.after_delivery(&rests);
        self.work_through(units(first), patience, &mut finished).await?;
        let mut delivered = false;
        for service in services {
            delivered |= self.serve_once(service, &mut finished).await?;
        }
        if delivered {
            self.work_through(waiting, patience, &mut finished).await?;
        }
        self.work_through(units(last), patience, &mut finished).await?;
        finished.stopped = self.stopped_policies().await?;
        self.stop().await;
        Ok(finished)
    }

    /// The policies that this pass would be about if they had not been stopped, and why they were.
    async fn stopped_policies(&self) -> Result<Vec<(String, String)>> {
        let stored = answered(ANSWER_WITHIN, async {
            let mut tx = self.shared.database.read().await?;
            let stored = policy::store::all(&mut tx).await?;
            tx.commit().await?;
            Ok(stored)
        });
        let only = &self.options.only;
        let selected = |name: &str| only.is_empty() || only.iter().any(|selector| selector.policy == name);
        let stopped = stored.await?.into_iter().filter(|stored| stored.enabled && selected(&stored.name));
        Ok(stopped.filter_map(|stored| Some((stored.name, stored.stopped?))).collect())
    }

    /// Lets a service do what is due, unless it is paused or there is nothing for it to serve. Whether there was.
    async fn serve_once(&mut self, service: Arc<dyn Service>, finished: &mut Finished) -> Result<bool> {
        let unit = service.unit().clone();
        if let Some(by) = self.shared.paused(&unit.policy) {
            finished.resting.push((unit.to_string(), format!("paused ({by})")));
            return Ok(false);
        }
        let (_, hears) = watch::channel(false);
        let station = self.station(Arc::new(Notify::new()), hears);
        let mut serving = tokio::spawn(service.run_once(station));
        loop {
            tokio::select! {
                served = &mut serving => {
                    let summary = served.map_err(|error| Error::failed(error.to_string()))??;
                    let worked = summary.rows > 0 || summary.status != Status::Success;
                    finished.runs.extend(worked.then_some(summary));
                    return Ok(worked);
                }
                () = tokio::time::sleep(TICK) => { self.look(false).await?; }
            }
        }
    }

    /// What goes on when a warning was delivered, or could not be: warning and erasing of policies that warn.
    fn after_delivery(&self, rests: &dyn Fn(&String) -> bool) -> Vec<String> {
        let units = || self.agenda.iter().map(|(key, work)| (key, work.unit())).filter(|(key, _)| !rests(key));
        let warns: BTreeSet<&str> =
            units().filter(|(_, unit)| unit.chore == ChoreKind::Warn).map(|(_, unit)| unit.policy.as_str()).collect();
        let waits = |unit: &Unit| unit.chore.turn() > 0 && warns.contains(unit.policy.as_str());
        units().filter(|(_, unit)| waits(unit)).map(|(key, _)| key.clone()).collect()
    }

    /// Of these units, those whose turn it is: none of their policy comes before them, waiting or running.
    fn whose_turn(&self, todo: &[String]) -> BTreeSet<String> {
        let todo: Vec<(&String, &Unit)> =
            todo.iter().filter_map(|key| self.agenda.get(key).map(|work| (key, work.unit()))).collect();
        let mut first: BTreeMap<&str, u8> = BTreeMap::new();
        for unit in todo.iter().map(|(_, unit)| *unit).chain(self.running.keys()) {
            let turn = first.entry(&unit.policy).or_insert(unit.chore.turn());
            *turn = unit.chore.turn().min(*turn);
        }
        let now = todo.into_iter().filter(|(_, unit)| first[unit.policy.as_str()] == unit.chore.turn());
        now.map(|(key, _)| key.clone()).collect()
    }

    /// Claims and runs each of these units once, waiting for those that others hold while there is patience.
    async fn work_through(&mut self, mut todo: Vec<String>, patience: Instant, finished: &mut Finished) -> Result<()> {
        let (mut told, mut tries) = (Vec::new(), 0);
        while !todo.is_empty() && !self.shared.shutdown.is_stopping() {
            let turn = self.whose_turn(&todo);
            let all = std::mem::take(&mut self.agenda);
            self.agenda =
                all.iter().filter(|(unit, _)| turn.contains(*unit)).map(|(u, w)| (u.clone(), w.clone())).collect();
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
                // What others hold is theirs to do; what comes after it is not.
                todo.retain(|unit| holders.iter().all(|holder| holder.unit != *unit));
                tries = if holders.is_empty() { tries + 1 } else { 0 };
                finished.held.extend(holders.into_iter().map(|holder| (holder.unit, holder.node)));
                if tries == TRIES {
                    break;
                }
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
