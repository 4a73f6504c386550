//! One run of a unit, from claim to release: prepare, batches with rests in between, an ending that is recorded with
//! the lease given back. The runner owns time, retry, shrinking and shutdown; the chore only does batches.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tracing::Instrument;

use super::batch::{self, Backend, Batch, Claim, under_lease};
use super::pacing::{self, Pacer, Signals};
use super::shared::Shared;
use super::store::{self, Ending};
use super::work::{Prepared, Status, Summary, Work};
use super::{ANSWER_WITHIN, Chore, Outcome, Recovery, metrics};
use crate::pg::answered;
use crate::{Error, Result, Trouble};

/// A change of a policy that is not committed is looked for again so soon.
const CHANGED_WITHIN: Duration = Duration::from_secs(5);
/// How long one look at the server's signals counts.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// What is done for the table after a run holds the unit up no longer; a VACUUM goes on on the server.
const AFTER_RUN_WITHIN: Duration = Duration::from_secs(3600);
/// A second batch begins at once or not at all: there may be no connection for it.
const BESIDE_WITHIN: Duration = Duration::from_secs(1);
/// A batch has time for more than one statement, but not for as many as it likes: so long after any of them would have been
/// cancelled, it is.
const CANCEL_AFTER: Duration = Duration::from_secs(5);
/// How often the same batch may fail for a passing reason before the run does.
const TRIES: u32 = 8;

/// Why batches cannot go on; not a failure.
enum Halt {
    Shutdown,
    WindowClosed(Timestamp),
    PolicyChanged,
    Lost,
}

/// Leave to begin a batch: its turn, its size, and the rows that were taken from the budget for it.
struct Turn {
    permit: OwnedSemaphorePermit,
    /// Leave to begin another at the same time.
    another: Option<OwnedSemaphorePermit>,
    size: u64,
    rows: u64,
}

/// The size of a batch that changes no more rows than the budget can give at once, and how many that may be.
fn within_budget(chore: &dyn Chore, size: u64, most: Option<u64>) -> (u64, u64) {
    let Some(most) = most else { return (size, 0) };
    let rows = chore.rows_in(size);
    if rows <= most {
        return (size, rows);
    }
    let size = (u128::from(size) * u128::from(most) / u128::from(rows)).max(1) as u64;
    (size, chore.rows_in(size).min(most))
}

/// A run in progress.
pub(crate) struct Run {
    shared: Arc<Shared>,
    work: Arc<dyn Work>,
    claim: Claim,
    started: Instant,
    /// Its row in the history (0 for units without one); none before it is prepared.
    run: Option<i64>,
    rows: u64,
    batches: u64,
    due: Option<u64>,
    signals: Option<(Instant, Signals)>,
    throttle: Option<&'static str>,
    /// The server processes of the current batches, so that a shutdown can cancel them.
    backends: watch::Sender<Vec<Backend>>,
    /// A second batch did not begin: for the rest of the run there is one at a time.
    single: bool,
}

impl Run {
    pub(crate) fn new(
        shared: Arc<Shared>,
        work: Arc<dyn Work>,
        claim: Claim,
        backends: watch::Sender<Vec<Backend>>,
    ) -> Self {
        Self {
            shared,
            work,
            claim,
            started: Instant::now(),
            run: None,
            rows: 0,
            batches: 0,
            due: None,
            signals: None,
            throttle: None,
            backends,
            single: false,
        }
    }

    /// Runs to the end, whatever it is. `None` when there was nothing to say about it.
    pub(crate) async fn execute(mut self) -> Option<Summary> {
        metrics::lease(&self.claim.unit, true);
        let summary = match self.go().await {
            Ok(summary) => summary,
            Err(error) if error.is_fenced() => {
                tracing::info!(unit = %self.claim.unit, "Lost the lease; its new holder goes on");
                None
            }
            // Nothing to record: the policy changed, or the node was told to stop, before the first batch.
            Err(error) if error.is_superseded() || self.shared.shutdown.is_stopping() => {
                tracing::debug!(unit = %self.claim.unit, error = %error, "Gave the unit back");
                self.give_back().await;
                None
            }
            Err(error) => self.failed(error).await,
        };
        metrics::lease(&self.claim.unit, false);
        metrics::passed(&self.claim.unit, self.work.interval());
        if let Some(summary) = &summary {
            metrics::run_finished(&self.claim.unit, summary);
            self.work.report(summary);
            let after = answered(AFTER_RUN_WITHIN, self.work.after_run(&self.shared.database, summary));
            if let Err(error) = after.await {
                tracing::warn!(policy = %summary.policy, table = %summary.table, error = error.for_log(), "Could not look after the table");
            }
        }
        summary
    }

    async fn go(&mut self) -> Result<Option<Summary>> {
        let Some((run, prepared)) = self.prepare().await? else {
            let next_at = self.shared.now() + CHANGED_WITHIN;
            let note = "the policy, or one that keeps rows, is being changed".to_owned();
            return self.finish(Status::Stopped, Some(note), (0, 0), next_at, None, None).await.map(Some);
        };
        self.run = Some(run);
        match prepared {
            Prepared::Idle => {
                self.rest_until_next().await?;
                Ok(None)
            }
            Prepared::Ended { status, due, note } => {
                self.due = Some(due);
                let next_at = self.work.next_at(self.shared.now(), 0);
                self.finish(status, Some(note), (0, 0), next_at, None, Some(due)).await.map(Some)
            }
            Prepared::Go { mut chore, mut pacer, due } => {
                self.due = due;
                let halted = self.batches(run, chore.as_mut(), &mut pacer).await;
                self.end(chore.as_ref(), halted).await
            }
        }
    }

    /// Fixes what the run is about, under the fence. Not while that is being changed: batches would come to nothing.
    async fn prepare(&mut self) -> Result<Option<(i64, Prepared)>> {
        let timeout = self.work.timeout();
        // The brake may count the table twice.
        answered(timeout * 2 + ANSWER_WITHIN, async {
            let mut batch = Batch::begin(&self.shared.database, &self.claim, 0, 0, timeout, &self.backends).await?;
            if store::being_changed(batch.connection(), &self.claim).await? {
                batch.roll_back().await;
                self.backends.send_replace(Vec::new());
                return Ok(None);
            }
            let prepared = self.work.prepare(batch.connection()).await.map_err(|error| self.discreet(error))?;
            store::take_trigger(batch.connection(), &self.claim.unit).await?;
            let run = match prepared {
                Prepared::Idle => {
                    store::close_left_behind(batch.connection(), &self.claim.unit).await?;
                    0
                }
                _ if !self.work.keeps_history() => 0,
                _ => store::start_run(batch.connection(), &self.claim).await?,
            };
            batch.commit_plain().await?;
            self.backends.send_replace(Vec::new());
            Ok(Some((run, prepared)))
        })
        .await
    }

    async fn batches(&mut self, run: i64, chore: &mut dyn Chore, pacer: &mut Pacer) -> Result<Option<Halt>> {
        let mut failures = 0;
        loop {
            let mut turn = match self.clear_to_go(chore, pacer).await? {
                Ok(turn) => turn,
                Err(halt) => return Ok(Some(halt)),
            };
            let mut acted = Ok(());
            if chore.acts() {
                // Others take their turns while this one waits for somebody else.
                self.shared.settle_rows(turn.rows, 0);
                drop(turn);
                tokio::select! {
                    done = chore.act() => acted = done,
                    () = self.shared.shutdown.stopping() => return Ok(Some(Halt::Shutdown)),
                }
                turn = match self.clear_to_go(chore, pacer).await? {
                    Ok(turn) => turn,
                    Err(halt) => return Ok(Some(halt)),
                };
            }
            let Turn { permit, another, size, rows } = turn;
            let began = Instant::now();
            let done = match acted {
                Ok(()) => self.batch(run, chore, size, another.is_some()).await,
                Err(error) => Err(error),
            };
            if rows > 0 {
                self.shared.settle_rows(rows, done.as_ref().map_or(0, |outcome| outcome.changed));
            }
            match done {
                Ok(outcome) => {
                    let took = began.elapsed();
                    failures = 0;
                    self.rows += outcome.changed;
                    metrics::batch(took);
                    let rest = pacer.after(took);
                    drop((permit, another));
                    if !outcome.more {
                        return Ok(None);
                    }
                    if !rest.is_zero() && self.shared.shutdown.sleep(rest).await {
                        return Ok(Some(Halt::Shutdown));
                    }
                }
                Err(error) if error.is_fenced() || is_away(&error) => return Err(error),
                Err(error) if error.is_superseded() => return Ok(Some(Halt::PolicyChanged)),
                Err(error) => {
                    drop((permit, another));
                    if self.shared.shutdown.is_stopping() {
                        return Ok(Some(Halt::Shutdown));
                    }
                    failures += 1;
                    let recovery = chore.recover(&error);
                    if recovery == Recovery::GiveUp || failures > TRIES {
                        return Err(error);
                    }
                    if recovery == Recovery::Smaller {
                        pacer.trouble();
                    }
                    tracing::debug!(unit = %self.claim.unit, error = %error, size = pacer.size(), "Batch again");
                }
            }
        }
    }

    /// One batch, or two at a time; what they did together.
    async fn batch(&mut self, run: i64, chore: &mut dyn Chore, size: u64, two: bool) -> Result<Outcome> {
        let timeout = self.work.timeout();
        let unit = &self.claim.unit;
        // The name of the target keeps spans out of log lines; whoever exports traces asks for it.
        let span = tracing::info_span!(
            target: "ebb::trace", "batch", policy = %unit.policy, chore = unit.chore.as_str(), table = %unit.leaf, run, size,
            rows = tracing::field::Empty, error = tracing::field::Empty, otel.status_code = tracing::field::Empty
        );
        let (shared, backends) = (self.shared.clone(), self.backends.subscribe());
        let done = Box::pin(async {
            let before = self.shared.wal_position_if_budgeted().await?;
            self.backends.send_replace(Vec::new());
            let begin = || Batch::begin(&self.shared.database, &self.claim, run, size, timeout, &self.backends);
            let one = begin().await?;
            let other = if two { answered(BESIDE_WITHIN, begin()).await.ok() } else { None };
            self.single |= two && other.is_none();
            let (outcome, batches) = match other {
                Some(other) => run_two(chore, one, other).await?,
                None => (run_one(chore, one).await?, 1),
            };
            self.batches += batches;
            self.backends.send_replace(Vec::new());
            self.shared.spend_wal_since(before).await?;
            Ok(outcome)
        });
        let bounded = async {
            tokio::select! {
                outcome = done => outcome,
                never = Box::pin(cancel_after(timeout + timeout.min(CANCEL_AFTER), &shared, &backends)) => match never {},
            }
        };
        let outcome = answered(timeout + ANSWER_WITHIN, bounded).instrument(span.clone()).await;
        let outcome = outcome.map_err(|error| self.discreet(error));
        match &outcome {
            Ok(outcome) => span.record("rows", outcome.changed),
            Err(error) => span.record("otel.status_code", "ERROR").record("error", tracing::field::display(error)),
        };
        outcome
    }

    /// Waits until nothing speaks against the next batch; whoever waits says why.
    async fn clear_to_go(&mut self, chore: &dyn Chore, pacer: &mut Pacer) -> Result<Result<Turn, Halt>> {
        loop {
            if self.shared.shutdown.is_stopping() {
                return Ok(Err(Halt::Shutdown));
            }
            if self.shared.is_lost(&self.claim) {
                return Ok(Err(Halt::Lost));
            }
            if let Some(open_at) = self.work.closed_until(self.shared.now()) {
                return Ok(Err(Halt::WindowClosed(open_at)));
            }
            let (reason, detail, wait) = if let Some(by) = self.shared.paused(&self.claim.unit.policy) {
                ("paused", format!("paused ({by})"), LOOK_AGAIN)
            } else if let Some(wait) = self.shared.wal_wait() {
                ("wal_per_second", "within the budget of wal_per_second".to_owned(), wait.min(LOOK_AGAIN))
            } else {
                let signals = self.look().await?;
                pacer.see_others(signals.others > 0);
                match pacing::veto(&signals, &self.shared.pacing()) {
                    Some(veto) => (veto.reason, veto.detail, LOOK_AGAIN),
                    None => {
                        let (size, rows) = within_budget(chore, pacer.size(), self.shared.rows_at_once());
                        let permit = self.shared.turn().await;
                        let pairs = !self.single && pacer.is_alone() && chore.pairs();
                        let another = if pairs { self.shared.another_turn() } else { None };
                        match self.shared.take_rows(rows) {
                            Ok(()) => {
                                self.show_throttle(None).await?;
                                return Ok(Ok(Turn { permit, another, size, rows }));
                            }
                            Err(wait) => {
                                let detail = "within the budget of rows_per_second".to_owned();
                                ("rows_per_second", detail, wait.min(LOOK_AGAIN))
                            }
                        }
                    }
                }
            };
            self.show_throttle(Some((reason, detail))).await?;
            let began = Instant::now();
            self.shared.shutdown.sleep(wait).await;
            metrics::throttled(reason, began.elapsed());
            self.shared.rested(reason, began.elapsed());
        }
    }

    async fn look(&mut self) -> Result<Signals> {
        if let Some((at, signals)) = &self.signals
            && at.elapsed() < LOOK_AGAIN
        {
            return Ok(signals.clone());
        }
        let mut signals = answered(ANSWER_WITHIN, async {
            let mut tx = self.shared.database.read().await?;
            let signals = store::signals(&mut tx, self.work.leaf()).await?;
            tx.commit().await?;
            Ok(signals)
        })
        .await?;
        self.shared.complete(&mut signals);
        self.signals = Some((Instant::now(), signals.clone()));
        Ok(signals)
    }

    async fn show_throttle(&mut self, reason: Option<(&'static str, String)>) -> Result<()> {
        let word = reason.as_ref().map(|(word, _)| *word);
        // A budget comes and goes with every batch: shown once per run, not twice per batch.
        let budget = |word| matches!(word, Some("rows_per_second" | "wal_per_second"));
        if word == self.throttle || (word.is_none() && budget(self.throttle)) {
            return Ok(());
        }
        if let Some((word, detail)) = &reason {
            tracing::info!(policy = %self.claim.unit.policy, table = %self.claim.unit.leaf, reason = word, detail, "Resting");
        }
        answered(ANSWER_WITHIN, async {
            let mut tx = under_lease(&self.shared.database, &self.claim).await?;
            store::throttle(&mut tx, &self.claim.unit, reason.as_ref().map(|(_, detail)| detail.as_str())).await?;
            Ok(tx.commit().await?)
        })
        .await?;
        self.throttle = word;
        Ok(())
    }

    /// Whatever is written or logged of a failure quotes no row of a user's table.
    fn discreet(&self, error: Error) -> Error {
        match self.work.stored() {
            Some(_) => error.discreet(&self.claim.unit.leaf),
            None => error,
        }
    }

    async fn end(&mut self, chore: &dyn Chore, halted: Result<Option<Halt>>) -> Result<Option<Summary>> {
        let now = self.shared.now();
        let passed = (chore.skipped(), chore.failed());
        let left = passed.0 + passed.1;
        let shape = chore.shape();
        let shape = shape.as_deref();
        match halted {
            Ok(None) => {
                self.shared.forget_failures(&self.claim.unit);
                metrics::pending(&self.claim.unit, left);
                let next_at = self.work.next_at(now, self.rows);
                self.finish(Status::Success, chore.note(), passed, next_at, shape, Some(left)).await.map(Some)
            }
            Ok(Some(Halt::Lost)) => Err(Error::fenced("the lease ran out")),
            Ok(Some(Halt::Shutdown)) => {
                let note = "the node was told to stop".to_owned();
                self.finish(Status::Stopped, Some(note), passed, now, shape, None).await.map(Some)
            }
            Ok(Some(Halt::PolicyChanged)) => {
                let note = "the policy was changed, or is being changed".to_owned();
                self.finish(Status::Stopped, Some(note), passed, now, shape, None).await.map(Some)
            }
            Ok(Some(Halt::WindowClosed(open_at))) => {
                let note = format!("the window is closed until {open_at}");
                self.finish(Status::Stopped, Some(note), passed, open_at, shape, None).await.map(Some)
            }
            Err(error) if error.is_fenced() || is_away(&error) => Err(error),
            Err(error) => {
                let next_at = now + self.shared.backoff(&self.claim.unit, self.work.interval());
                if error.is_config() {
                    let stop = self.work.stop_policy(&self.shared.database, &self.shared.name, &error);
                    answered(ANSWER_WITHIN, stop).await?;
                }
                let note = with_hint(&error);
                self.finish(Status::Failed, Some(note), passed, next_at, shape, None).await.map(Some)
            }
        }
    }

    async fn finish(
        &mut self,
        status: Status,
        note: Option<String>,
        (skipped, failed): (u64, u64),
        next_at: Timestamp,
        shape: Option<&str>,
        pending: Option<u64>,
    ) -> Result<Summary> {
        let ending = Ending {
            status: status.as_str(),
            error: note.clone(),
            skipped,
            failed,
            due: self.due,
            succeeded: match status {
                Status::Success | Status::Observed => Some(true),
                Status::Failed => Some(false),
                Status::Stopped | Status::Braked => None,
            },
            next_at,
            shape,
            pending,
        };
        self.conclude(ending).await?;
        Ok(self.summary(status, (skipped, failed), note))
    }

    /// Records an ending, under the lease that goes back with it: whoever lost it has nothing to say any more.
    /// A run that failed before it was opened is opened here.
    async fn conclude(&self, ending: Ending<'_>) -> Result<()> {
        answered(ANSWER_WITHIN, async {
            let mut tx = under_lease(&self.shared.database, &self.claim).await?;
            let run = match self.run {
                Some(run) => run,
                None => {
                    store::take_trigger(&mut tx, &self.claim.unit).await?;
                    if self.work.keeps_history() { store::start_run(&mut tx, &self.claim).await? } else { 0 }
                }
            };
            store::finish(&mut tx, &self.claim, run, ending).await?;
            Ok(tx.commit().await?)
        })
        .await
    }

    /// Nothing was done and nothing is recorded: only the next time.
    async fn rest_until_next(&mut self) -> Result<()> {
        let next_at = self.work.next_at(self.shared.now(), 0);
        answered(ANSWER_WITHIN, async {
            let mut tx = under_lease(&self.shared.database, &self.claim).await?;
            store::reschedule(&mut tx, &self.claim.unit, next_at, true).await?;
            store::release(&mut tx, &self.claim.unit, self.claim.holder, self.claim.generation).await?;
            Ok(tx.commit().await?)
        })
        .await
    }

    /// Only the lease goes back; if even that fails, it runs out.
    async fn give_back(&self) {
        let released = answered(ANSWER_WITHIN, async {
            let mut tx = self.shared.database.read().await?;
            store::release(&mut tx, &self.claim.unit, self.claim.holder, self.claim.generation).await?;
            Ok(tx.commit().await?)
        });
        if let Err(error) = released.await {
            tracing::debug!(unit = %self.claim.unit, error = %error, "Could not give the lease back");
        }
    }

    /// The run could not even be recorded properly: say so, and let the unit be tried again soon.
    async fn failed(&mut self, error: Error) -> Option<Summary> {
        let summary = self.summary(Status::Failed, (0, 0), Some(with_hint(&error)));
        if is_away(&error) {
            // The lease stays ours until it runs out; the same node takes the unit up again when it is back.
            return Some(summary);
        }
        let next_at = self.shared.now() + self.shared.backoff(&self.claim.unit, self.work.interval());
        let stopped = async {
            if error.is_config() {
                let stop = self.work.stop_policy(&self.shared.database, &self.shared.name, &error);
                answered(ANSWER_WITHIN, stop).await?;
            }
            let note = Some(with_hint(&error));
            let ending = Ending {
                status: Status::Failed.as_str(),
                error: note,
                skipped: 0,
                failed: 0,
                due: self.due,
                succeeded: Some(false),
                next_at,
                shape: None,
                pending: None,
            };
            self.conclude(ending).await
        };
        if let Err(error) = stopped.await {
            tracing::debug!(unit = %self.claim.unit, error = %error, "Could not record the failure");
        }
        Some(summary)
    }

    fn summary(&self, status: Status, (skipped, failed): (u64, u64), note: Option<String>) -> Summary {
        Summary {
            unit: self.claim.unit.to_string(),
            policy: self.claim.unit.policy.clone(),
            table: self.claim.unit.leaf.clone(),
            status,
            rows: self.rows,
            batches: self.batches,
            skipped,
            failed,
            due: self.due,
            took: self.started.elapsed(),
            note,
        }
    }
}

/// Cancels whatever the server processes of a batch are at, after a while and again and again: the chore is told as if a single
/// statement had taken too long.
async fn cancel_after(within: Duration, shared: &Shared, backends: &watch::Receiver<Vec<Backend>>) -> Infallible {
    tokio::time::sleep(within).await;
    loop {
        let running = backends.borrow().clone();
        let cancelled = answered(ANSWER_WITHIN, async {
            let mut tx = shared.database.read().await?;
            for backend in &running {
                store::cancel(&mut tx, backend).await?;
            }
            Ok(tx.commit().await?)
        });
        if let Err(error) = cancelled.await {
            tracing::debug!(error = %error, "Could not cancel a batch");
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn run_one(chore: &mut dyn Chore, mut batch: Batch) -> Result<Outcome> {
    match chore.run_batch(&mut batch).await {
        Ok(outcome) => {
            batch.commit(outcome.changed, chore.cutoff(), chore.shape().as_deref()).await?;
            Ok(outcome)
        }
        Err(error) => {
            if !is_away(&error) {
                batch.roll_back().await;
            }
            Err(error)
        }
    }
}

/// Two batches at a time, or one where there was nothing to do for a second; how many there were.
async fn run_two(chore: &mut dyn Chore, mut one: Batch, other: Batch) -> Result<(Outcome, u64)> {
    let mut other = Some(other);
    match chore.run_two(&mut one, &mut other).await {
        Ok([first, second]) => {
            let (cutoff, shape) = (chore.cutoff(), chore.shape());
            // One after the other: both count themselves in the same row, and a slow disk is no conflict.
            let committed = one.commit(first.changed, cutoff, shape.as_deref()).await;
            let batches = 1 + u64::from(other.is_some());
            match (committed, other) {
                (Ok(()), None) => {}
                (Ok(()), Some(other)) => other.commit(second.changed, cutoff, shape.as_deref()).await?,
                (Err(error), mut other) => {
                    batch::let_go(&mut other).await;
                    return Err(error);
                }
            }
            Ok((Outcome { changed: first.changed + second.changed, more: first.more || second.more }, batches))
        }
        Err(error) => {
            if !is_away(&error) {
                tokio::join!(one.roll_back(), batch::let_go(&mut other));
            }
            Err(error)
        }
    }
}

/// Nobody is there who could be told anything.
fn is_away(error: &Error) -> bool {
    error.trouble() == Trouble::Away
}

fn with_hint(error: &Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    }
}
