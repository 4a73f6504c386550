//! One run of upkeep: what is missing ahead is made, what is expired leaves its table and goes. Each batch is one step,
//! and the steps are read again from the database at the start of every run, so a run that died is simply gone on with.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sqlx::PgConnection;

use super::store::Leaving;
use super::{Partitioned, detach, store};
use crate::audit::Entry;
use crate::gate::{self, Held};
use crate::pg::{Database, Ident, Relation};
use crate::policy::{Partition, Stored};
use crate::spine::batch::Batch;
use crate::spine::{Chore, Outcome, Recovery};
use crate::{Error, Result, Trouble};

/// How long a batch stays open for a detach; one that cannot end by then (somebody's old transaction) is pending, and ended
/// outside of any batch, which may take so many times as long as a batch may.
const DETACH_WITHIN: Duration = Duration::from_secs(6);
const FINALIZE_WITHIN: u32 = 2;

/// How long others go first after a step gave way to them, and how often it does before the next one has its turn.
const REST: Duration = Duration::from_millis(400);
const TRIES: u32 = 6;

/// How long a lock is waited for where rows are about to be refused, once less has been tried so often.
const URGENT_WAIT: Duration = Duration::from_secs(2);
const URGENT_AFTER: u32 = 3;

/// One step of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Makes the next partition that is missing.
    Add,
    /// Writes down that a partition is to leave.
    Decide(i64),
    /// Takes it out of its table, or ends what an earlier try began.
    Detach(i64),
    /// Ends a detach that was begun; what somebody else began and lost stays as a table of its own.
    Finalize { oid: i64, is_ours: bool },
    /// Drops it, when it is out and due.
    Drop(i64),
    /// Says that a restored dump had not brought one that was out.
    Missing(String),
}

/// A run over one table.
pub(crate) struct Upkeep {
    pub(crate) policy: Arc<Partition>,
    pub(crate) stored: Stored,
    pub(crate) on: Partitioned,
    pub(crate) database: Database,
    pub(crate) steps: VecDeque<Step>,
    /// Partitions are missing that rows will need before long.
    pub(crate) is_urgent: bool,
    /// How often the next step has given way to others.
    pub(crate) tries: u32,
    /// What one step failed with: the others have their turn, then the run fails with it.
    pub(crate) failed: Option<Error>,
    pub(crate) is_over: bool,
    pub(crate) made: u64,
    pub(crate) dropped: u64,
    /// Partitions that stay because of a hold, and whose holds those are.
    pub(crate) kept: u64,
    pub(crate) kept_by: Option<String>,
    /// Partitions that somebody else had begun to take out, and what would attach one of a past period again.
    pub(crate) ended: Vec<(String, Option<String>)>,
    /// Why expired partitions cannot leave.
    pub(crate) stuck: Vec<String>,
    /// Partitions that were out where the dump was taken that this database was restored from, and are not here.
    pub(crate) missing: Vec<String>,
}

impl Upkeep {
    fn role(&self) -> Option<Ident> {
        self.policy.role.as_ref().map(Ident::new)
    }

    async fn step(&mut self, batch: &mut Batch) -> Result<Outcome> {
        let Some(step) = self.steps.front().cloned() else { return self.end() };
        store::savepoint(batch.connection()).await?;
        let tried = match step {
            Step::Add => self.add(batch).await,
            Step::Decide(oid) => self.decide(batch, oid).await.map(|()| 0),
            Step::Detach(oid) => self.detach(batch, oid).await.map(|()| 0),
            Step::Finalize { oid, is_ours } => self.finalize(batch, oid, is_ours).await.map(|()| 0),
            Step::Drop(oid) => self.drop(batch, oid).await,
            Step::Missing(ref partition) => {
                tracing::warn!(policy = %self.policy.name, partition, "A restored dump had not brought a detached partition; it is forgotten");
                self.missing.push(partition.clone());
                Ok(0)
            }
        };
        let changed = match tried {
            Err(error) if error.is_unavailable() || !(error.is_refused() || error.sqlstate().is_some()) => {
                return Err(error);
            }
            Err(error) => {
                store::take_back(batch.connection()).await?;
                self.pass_by(&step, error).await?;
                0
            }
            Ok(changed) => {
                self.steps.pop_front();
                changed
            }
        };
        self.tries = 0;
        Ok(Outcome { changed, more: !self.steps.is_empty() || self.failed.is_some() })
    }

    /// One step that cannot be done keeps no other from being done: it is tried again where somebody was in its way, and then
    /// left to the next run.
    async fn pass_by(&mut self, step: &Step, error: Error) -> Result<()> {
        let error = match error.is_contended() || error.sqlstate().as_deref() == Some("57014") {
            true => {
                let error = self.gave_way(step, error).await?;
                self.tries += 1;
                if self.tries < TRIES {
                    tokio::time::sleep(self.idle_at_most(REST)).await;
                    return Err(error);
                }
                error
            }
            false => error,
        };
        let error = error.discreet(&self.policy.table);
        tracing::warn!(policy = %self.policy.name, ?step, %error, "A step of upkeep waits for the next run");
        self.steps.pop_front();
        match step {
            Step::Drop(_) if error.is_refused() && error.sqlstate().is_none() => self.stuck.push(error.to_string()),
            // What refers to rows of a partition.
            Step::Detach(_) if error.sqlstate().as_deref() == Some("23503") => self.stuck.push(error.to_string()),
            _ => self.fail(error),
        }
        if *step == Step::Add {
            self.steps.retain(|other| *other != Step::Add);
        }
        Ok(())
    }

    /// A batch that is idle for as long as its statements may take is ended by the server.
    fn idle_at_most(&self, idle: Duration) -> Duration {
        idle.min(self.policy.batch_timeout / 2)
    }

    fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    /// Whoever waited behind a step goes first; the error says for whom that was, if it does not yet.
    async fn gave_way(&self, step: &Step, error: Error) -> Result<Error> {
        if error.to_string().starts_with(detach::GAVE_WAY) {
            return Ok(error);
        }
        let mut tables = vec![i64::from(self.on.table.oid)];
        if let Step::Decide(oid) | Step::Detach(oid) | Step::Drop(oid) = step {
            tables.push(*oid);
        }
        let mut tx = self.database.read().await?;
        let who = store::in_the_way(&mut tx, &tables).await?;
        tx.commit().await?;
        Ok(match who {
            Some(who) => error.context(format!("{} ({who})", detach::GAVE_WAY)),
            None => error,
        })
    }

    /// Every step has had its turn.
    fn end(&mut self) -> Result<Outcome> {
        self.is_over = true;
        let Some(error) = self.failed.take() else { return Ok(Outcome::default()) };
        Err(match self.note() {
            Some(note) => {
                let hint = error.hint().map(str::to_owned);
                let error = Error::failed(format!("{error}; {note}"));
                hint.into_iter().fold(error, Error::with_hint)
            }
            None => error,
        })
    }

    async fn decide(&mut self, batch: &mut Batch, oid: i64) -> Result<()> {
        // The policy goes on all the same, with what is missing ahead.
        if let Some(kept) = gate::conflict_of(batch.connection(), &self.stored, self.on.table.oid).await? {
            return Err(Error::refused(kept.to_string()).with_hint(kept.fix()));
        }
        let held = gate::pass(batch.connection(), self.policy.name.as_str()).await?;
        let place = store::place(batch.connection(), oid).await?;
        let kept = match place {
            Some(place) => self.keeps(batch, &held, &place.relation()).await?,
            None => false,
        };
        match !kept && store::decide(batch.connection(), &self.policy, &self.on, oid).await? {
            true => self.steps.insert(1, Step::Detach(oid)),
            // It was expired when somebody decided; by now it is kept longer.
            false => store::forget_detached(batch.connection(), oid).await?,
        }
        Ok(())
    }

    /// Whether a partition has rows of a subject on hold.
    async fn keeps(&mut self, batch: &mut Batch, held: &[Held], partition: &Relation) -> Result<bool> {
        let found = gate::any_held(batch.connection(), held, partition).await;
        let found = found.map_err(|error| gate::explain(error, held))?;
        if found {
            let whose = gate::whose(held);
            tracing::info!(policy = %self.policy.name, partition = partition.label(), holds = whose,
                "Kept an expired partition with rows of subjects on hold");
            self.kept += 1;
            self.kept_by = Some(whose);
        }
        Ok(found)
    }

    async fn add(&mut self, batch: &mut Batch) -> Result<u64> {
        let role = self.role();
        // Whoever would wait behind this would be refused instead, before long.
        let urgent = self.is_urgent && self.tries >= URGENT_AFTER;
        store::wait(batch.connection(), if urgent { URGENT_WAIT } else { store::LOCK_WAIT }).await?;
        store::as_role(batch.connection(), role.as_ref()).await?;
        let made = store::add(batch.connection(), &self.policy, &self.on, 1).await?;
        store::back_from_role(batch.connection(), role.as_ref()).await?;
        self.made += made;
        Ok(0)
    }

    /// Not in the batch's transaction, which could not run it; that one keeps the lease meanwhile and notes the result. What is
    /// half out by then only waits for who still sees it.
    async fn detach(&mut self, batch: &mut Batch, oid: i64) -> Result<()> {
        if let Some(place) = self.inside(batch.connection(), oid).await? {
            let partition = place.relation().label();
            if let Err(error) = self.let_go(batch, place, oid).await {
                let waits = error.is_contended() || error.sqlstate().as_deref() == Some("57014");
                if !waits || self.pending(oid).await?.is_none() {
                    return Err(error);
                }
                self.steps.insert(1, Step::Finalize { oid, is_ours: true });
                self.steps.insert(2, Step::Detach(oid));
                return Ok(());
            }
            tracing::info!(policy = %self.policy.name, partition, "Detached an expired partition");
        }
        store::note_detached(batch.connection(), oid).await?;
        self.steps.insert(1, Step::Drop(oid));
        Ok(())
    }

    /// Where a partition is, while it belongs to the table.
    async fn inside(&self, connection: &mut PgConnection, oid: i64) -> Result<Option<store::Place>> {
        let place = store::place(connection, oid).await?;
        Ok(place.filter(|place| place.parent == Some(i64::from(self.on.table.oid))))
    }

    /// Where a partition is whose detach was begun, and a session of its own can end it.
    async fn pending(&self, oid: i64) -> Result<Option<store::Place>> {
        if !self.database.has_sessions().await? {
            return Ok(None);
        }
        let mut tx = self.database.read().await?;
        let place = self.inside(&mut tx, oid).await?;
        tx.commit().await?;
        Ok(place.filter(|place| place.pending))
    }

    async fn let_go(&mut self, batch: &mut Batch, place: store::Place, oid: i64) -> Result<()> {
        let (parent, role) = (&self.on.table.relation, self.role());
        if self.database.has_sessions().await? {
            let within = self.idle_at_most(DETACH_WITHIN);
            return detach::detach(&self.database, parent, (oid, place), role.as_ref(), within).await;
        }
        store::as_role(batch.connection(), role.as_ref()).await?;
        store::wait(batch.connection(), store::LOCK_WAIT).await?;
        store::detach_plainly(batch.connection(), parent, &place.relation(), place.pending).await?;
        store::back_from_role(batch.connection(), role.as_ref()).await
    }

    /// In no transaction of ours: who has to be waited for may take as long as that, and nothing is to be decided any more.
    async fn finalize_alone(&mut self, oid: i64, is_ours: bool) -> Result<()> {
        let Some(place) = self.pending(oid).await? else { return Ok(()) };
        let mut tx = self.database.read().await?;
        let again = store::attach_again(&mut tx, &self.policy, &self.on, oid).await?;
        tx.commit().await?;
        let (parent, role, partition) = (&self.on.table.relation, self.role(), place.relation().label());
        let within = self.policy.batch_timeout * FINALIZE_WITHIN;
        match detach::detach(&self.database, parent, (oid, place), role.as_ref(), within).await {
            Ok(()) => self.finalized(partition, is_ours, again),
            Err(error) if error.is_unavailable() => return Err(error),
            // While it is half out no other can begin to leave.
            Err(error) => {
                self.steps.retain(|step| matches!(step, Step::Add | Step::Drop(_) | Step::Missing(_)));
                self.fail(error);
            }
        }
        Ok(())
    }

    /// The same where no session can be had.
    async fn finalize(&mut self, batch: &mut Batch, oid: i64, is_ours: bool) -> Result<()> {
        let place = self.inside(batch.connection(), oid).await?;
        let Some(place) = place.filter(|place| place.pending) else { return Ok(()) };
        let partition = place.relation().label();
        let again = store::attach_again(batch.connection(), &self.policy, &self.on, oid).await?;
        self.let_go(batch, place, oid).await?;
        self.finalized(partition, is_ours, again);
        Ok(())
    }

    /// Its rows left the table when it began to leave; whoever began that has them in a table of their own from here on.
    fn finalized(&mut self, partition: String, is_ours: bool, again: Option<String>) {
        if is_ours {
            return;
        }
        tracing::warn!(policy = %self.policy.name, partition, again,
            "Ended a detach that somebody else began and that was cancelled; its rows are in a table of its own, outside of the partitioned one");
        self.ended.push((partition, again));
    }

    /// Everything that allows it is asked again, under a lock that nobody shares.
    async fn drop(&mut self, batch: &mut Batch, oid: i64) -> Result<u64> {
        let role = self.role();
        let held = gate::pass(batch.connection(), self.policy.name.as_str()).await?;
        let leaving = store::leaving(batch.connection(), &self.policy, &self.on).await?;
        let Some(leaving) = leaving.into_iter().find(|leaving| leaving.oid == oid) else { return Ok(0) };
        let Some(partition) = leaving.name() else {
            // Somebody dropped it by hand.
            store::forget_detached(batch.connection(), oid).await?;
            return Ok(0);
        };
        if !leaving.due {
            return Ok(0);
        }
        store::wait(batch.connection(), store::LOCK_WAIT).await?;
        store::as_role(batch.connection(), role.as_ref()).await?;
        let contents = store::lock_and_look(batch.connection(), &self.policy, &self.on, &partition, &leaving).await?;
        if !contents.due {
            return Err(Error::refused(format!(
                "partition {} is past its time, but its newest row ({}) is not",
                partition.label(),
                contents.newest.map_or_else(String::new, |newest| newest.to_string()),
            ))
            .with_hint("look at that row; attach the partition again, or drop it by hand"));
        }
        if !contents.inside {
            let Leaving { lower_bound: from, upper_bound: to, .. } = &leaving;
            return Err(Error::refused(format!("{} has rows from outside of {from} to {to}", partition.label()))
                .with_hint("no partition of that period has them: look whether it is the one; move them away, or drop it by hand"));
        }
        // Nobody can add to it any more; what it has of subjects on hold is looked at with the node's own rights.
        store::back_from_role(batch.connection(), role.as_ref()).await?;
        if self.keeps(batch, &held, &partition).await? {
            return Ok(0);
        }
        store::as_role(batch.connection(), role.as_ref()).await?;
        let dropped = match store::drop_table(batch.connection(), &partition).await {
            Err(error) if error.sqlstate().as_deref() == Some("55P03") && self.tries + 1 >= TRIES => false,
            dropped => dropped.map(|()| true)?,
        };
        let has_rows = !contents.counted || contents.rows > 0;
        if !dropped && has_rows {
            store::empty_table(batch.connection(), &partition).await?;
        }
        store::back_from_role(batch.connection(), role.as_ref()).await?;
        if dropped || has_rows {
            self.record(batch, &partition.label(), &leaving, &contents, dropped).await?;
        }
        if dropped {
            store::forget_detached(batch.connection(), oid).await?;
            self.dropped += 1;
        } else {
            // Its foreign keys go with it, and with them locks on what they refer to, which readers share, too.
            let who = store::in_the_way(batch.connection(), &[oid]).await?;
            let who = who.map_or(String::new(), |who| format!(" ({who})"));
            self.stuck.push(format!(
                "{} is empty, and goes when nobody reads what it refers to for a moment{who}",
                partition.label()
            ));
        }
        Ok(contents.rows.max(0) as u64)
    }

    async fn record(
        &self,
        batch: &mut Batch,
        partition: &str,
        leaving: &Leaving,
        contents: &store::Contents,
        dropped: bool,
    ) -> Result<()> {
        let claim = &batch.claim;
        let mut entry = Entry::new("drop_partition", "ebb");
        entry.policy = Some(claim.unit.policy.clone());
        entry.policy_version = Some(claim.policy_version);
        entry.relation = Some(partition.to_owned());
        entry.rows = contents.rows;
        entry.due_from = contents.oldest;
        entry.due_to = contents.newest;
        entry.run = Some(batch.run);
        entry.node = Some(claim.node.clone());
        entry.details = serde_json::json!({
            "table": self.on.table.relation.label(), "from": leaving.lower_bound, "to": leaving.upper_bound,
            "counted": contents.counted, "as_of": contents.as_of,
        });
        if !dropped {
            entry.details["emptied"] = true.into();
        }
        entry.insert(batch.connection()).await?;
        Ok(())
    }
}

impl Chore for Upkeep {
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>> {
        self.step(batch).boxed()
    }

    fn acts(&self) -> bool {
        matches!(self.steps.front(), Some(Step::Finalize { .. }))
    }

    fn act(&mut self) -> BoxFuture<'_, Result<()>> {
        match self.steps.front() {
            Some(&Step::Finalize { oid, is_ours }) => self.finalize_alone(oid, is_ours).boxed(),
            _ => async { Ok(()) }.boxed(),
        }
    }

    fn recover(&mut self, error: &Error) -> Recovery {
        match error.trouble() {
            Trouble::Slow | Trouble::Contended if !self.is_over => Recovery::Again,
            _ => Recovery::GiveUp,
        }
    }

    fn cutoff(&self) -> Option<Timestamp> {
        None
    }

    fn shape(&self) -> Option<String> {
        None
    }

    fn note(&self) -> Option<String> {
        let kept = self.kept_by.as_ref().map(|whose| {
            format!("{} expired partitions stay: they have rows of subjects on hold (policy {whose})", self.kept)
        });
        let ended = self.ended.iter().map(|(partition, again)| {
            let again = again.as_ref().map_or(String::new(), |again| {
                format!(", and no partition takes rows of its period, which is past (to have it back: {again})")
            });
            format!("{partition} is out of the table: somebody had begun to detach it, and its rows are there, undropped{again}")
        });
        let stuck = self.stuck.iter().map(|why| format!("an expired partition stays: {why}"));
        let missing = self.missing.iter().map(|partition| {
            format!(
                "{partition} was out of the table where the dump was taken, is not in this database, and is forgotten"
            )
        });
        let all: Vec<String> = kept.into_iter().chain(ended).chain(stuck).chain(missing).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}
