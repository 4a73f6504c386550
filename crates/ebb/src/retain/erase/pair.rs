//! Two batches of erasing at a time, while nobody else is at work on the server: one alone leaves it waiting for the node and
//! the disk. Invariants: the second takes subjects that come after those of the first, each under the locks of its own
//! transaction; nothing counts as passed before both have ended; after any trouble the run goes on with one at a time, for
//! what they met may have been each other.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use jiff::Timestamp;

use super::{Erase, Progress};
use crate::audit::SubjectKey;
use crate::retain::compile::Compiled;
use crate::retain::snapshot::Copier;
use crate::retain::store::Fences;
use crate::spine::batch::Batch;
use crate::spine::{Chore, Outcome, Recovery};
use crate::words::plural;
use crate::{Error, Result};

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

    async fn both(&mut self, [first, second]: [&mut Batch; 2]) -> Result<[Outcome; 2]> {
        let (one, other) = (&mut self.one, &mut self.other);
        self.began = Some(one.progress);
        (one.paired, other.paired) = (true, true);
        let choice = async {
            one.enter(first).await?;
            one.choose(first).await
        };
        let (chosen, entered) = tokio::join!(choice, other.enter(second));
        let chosen = chosen?;
        entered?;
        other.progress = Progress { subjects: 0, skipped: 0, failed: 0, ..one.progress };
        (other.rows_each, other.most) = (one.rows_each, one.most);
        let last = one.progress.due_done;
        let beside = async {
            if last {
                return Ok(0);
            }
            let chosen = other.choose(second).await?;
            other.whole(second, chosen).await
        };
        let (changed, beside) = tokio::join!(one.whole(first, chosen), beside);
        let (changed, beside) = match (changed, beside) {
            (Ok(changed), Ok(beside)) => (changed, beside),
            (Err(error), _) => return Err(error),
            (_, Err(error)) => {
                (one.alone, one.chosen) = (other.alone.take(), other.chosen);
                return Err(error);
            }
        };
        if !one.short {
            (one.progress.after, one.progress.due_done) = (other.progress.after, other.progress.due_done);
        }
        one.progress.large_done &= other.progress.large_done;
        one.progress.subjects += other.progress.subjects;
        one.progress.skipped += other.progress.skipped;
        one.progress.failed += other.progress.failed;
        tokio::try_join!(one.settle(first), other.settle(second))?;
        let more = one.more();
        Ok([Outcome { changed, more }, Outcome { changed: beside, more }])
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
        self.apart && self.one.slow.is_none() && progress.large_done && !progress.due_done
    }

    fn run_two<'a>(&'a mut self, batches: [&'a mut Batch; 2]) -> BoxFuture<'a, Result<[Outcome; 2]>> {
        self.both(batches).map_err(discreet).boxed()
    }

    fn recover(&mut self, error: &Error) -> Recovery {
        self.apart = false;
        if let Some(began) = self.began.take() {
            self.one.progress = began;
        }
        match error.sqlstate().as_deref() {
            Some("57014") => {
                self.one.took_too_long();
                Recovery::Smaller
            }
            _ if error.is_contended() => Recovery::Smaller,
            _ if error.is_of_a_row() && self.one.raised(error) => Recovery::Again,
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
