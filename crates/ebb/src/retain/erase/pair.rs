//! Two batches of erasing at a time, while nobody else is at work on the server: one alone leaves it waiting for the node and
//! the disk. Invariants: the second takes subjects that come after those of the first, each under the locks of its own
//! transaction; nothing counts as passed before both have ended; a transaction in which there is nothing to do ends at once;
//! after any trouble the run goes on with one at a time, for what they met may have been each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use jiff::Timestamp;
use uuid::Uuid;

use super::{Erase, Progress};
use crate::audit::SubjectKey;
use crate::retain::compile::Compiled;
use crate::retain::snapshot::Copier;
use crate::retain::store::Fences;
use crate::spine::batch::{self, Batch};
use crate::spine::{Chore, Outcome, Recovery};
use crate::words::plural;
use crate::{Error, Result, Trouble};

/// One run of erasing.
pub(crate) struct Pair {
    one: Erase,
    other: Erase,
    /// The state before the batches at work, for when their transactions are lost.
    began: Option<Progress>,
    /// Two at a time have not met any trouble yet, and share no row by what the tree says.
    apart: bool,
}

impl Pair {
    pub(crate) fn new(
        policy: &str,
        (compiled, fences): (Compiled, Fences),
        key: Arc<SubjectKey>,
        copier: Option<Copier>,
    ) -> Self {
        let apart = !compiled.tree.shares_rows();
        let one = Erase::new(policy, (compiled, fences), key, copier);
        Self { other: one.clone(), one, began: None, apart }
    }

    async fn both(&mut self, first: &mut Batch, beside: &mut Option<Batch>) -> Result<[Outcome; 2]> {
        let (one, other) = (&mut self.one, &mut self.other);
        self.began = Some(one.progress);
        (one.paired, other.paired) = (true, true);
        let choice = async |first: &mut Batch| {
            one.enter(first).await?;
            one.choose(first).await
        };
        let enter = async |second: &mut Batch| other.enter(second).await;
        let Some(second) = beside else { return Ok([one.step(first).await?, Outcome::default()]) };
        let (chosen, entered) = batch::side_by_side((&mut *first, choice), (second, enter)).await;
        let chosen = chosen?;
        entered?;
        if one.progress.due_done {
            batch::let_go(beside).await;
        }
        let Some(second) = beside else {
            let changed = one.take(first, chosen).await?;
            one.still_kept(first).await?;
            return Ok([Outcome { changed, more: one.more() }, Outcome::default()]);
        };
        share(&mut one.waiting, &mut other.waiting);
        other.progress = Progress { subjects: 0, skipped: 0, failed: 0, ..one.progress };
        (other.each, other.fault.most) = (one.each, one.fault.most);
        let whole = async |first: &mut Batch| one.take(first, chosen).await;
        let next = async |second: &mut Batch| {
            let chosen = other.choose(second).await?;
            other.take(second, chosen).await
        };
        let (changed, beside) = match batch::side_by_side((&mut *first, whole), (&mut *second, next)).await {
            (Ok(changed), Ok(beside)) => (changed, beside),
            (Err(error), _) => return Err(error),
            (_, Err(error)) => {
                (one.fault.alone, one.fault.chosen) = (other.fault.alone.take(), other.fault.chosen);
                return Err(error);
            }
        };
        if !one.short {
            (one.progress.after, one.progress.due_done) = (other.progress.after, other.progress.due_done);
        }
        // Before either ends, and after both are done: while one waits for the other, policies can be changed.
        one.still_kept(first).await?;
        one.still_kept(second).await?;
        if !other.progress.large_done {
            // Somebody was claimed, perhaps one whom the turn has passed.
            (one.progress.after_large, one.progress.large_done) = (None, false);
        }
        share(&mut one.waiting, &mut other.waiting);
        one.progress.subjects += other.progress.subjects;
        one.progress.skipped += other.progress.skipped;
        one.progress.failed += other.progress.failed;
        let more = one.more();
        Ok([Outcome { changed, more }, Outcome { changed: beside, more }])
    }
}

/// Whoever waits by what one of two has found is met again by neither.
fn share(one: &mut BTreeSet<Uuid>, other: &mut BTreeSet<Uuid>) {
    if one.len() != other.len() {
        one.append(other);
        other.clone_from(one);
    }
}

/// What ends a run is told to everybody, and may be about anybody's row.
fn discreet(error: Error) -> Error {
    match error.is_of_a_row() {
        true => {
            error.without_values("a row of a subject, or of what hangs on it, raises an error outside of any attempt")
        }
        false => error,
    }
}

impl Chore for Pair {
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>> {
        self.began = Some(self.one.progress);
        self.one.paired = false;
        self.one.step(batch).map_err(discreet).boxed()
    }

    fn pairs(&self) -> bool {
        let progress = &self.one.progress;
        self.apart && self.one.fault.large.is_none() && progress.large_done && !progress.due_done
    }

    fn run_two<'a>(
        &'a mut self,
        one: &'a mut Batch,
        other: &'a mut Option<Batch>,
    ) -> BoxFuture<'a, Result<[Outcome; 2]>> {
        self.both(one, other).map_err(discreet).boxed()
    }

    fn recover(&mut self, error: &Error) -> Recovery {
        self.apart = false;
        if let Some(began) = self.began.take() {
            self.one.progress = began;
        }
        match error.trouble() {
            trouble @ (Trouble::Slow | Trouble::TooBig) => {
                self.one.fault.too_much(trouble);
                Recovery::Smaller
            }
            Trouble::Contended => Recovery::Smaller,
            Trouble::OfARow if self.one.fault.raised(error) => Recovery::Again,
            _ => Recovery::GiveUp,
        }
    }

    fn cutoff(&self) -> Option<Timestamp> {
        None
    }

    fn shape(&self) -> Option<String> {
        let tables = self.one.compiled.tree.nodes.iter().filter(|node| node.doomed).count();
        Some(format!("{} over {}", plural(self.one.progress.subjects, "subject"), plural(tables, "table")))
    }

    fn skipped(&self) -> u64 {
        self.one.progress.skipped
    }

    fn failed(&self) -> u64 {
        self.one.progress.failed
    }
}
