//! The spine that every duty stands on: units under leases, batches that are fenced and bounded, a runner that owns
//! time, pacing that yields. A duty is a chore: it knows how to do one batch and nothing else.

pub(crate) mod batch;
pub(crate) mod brake;
pub(crate) mod metrics;
pub(crate) mod node;
pub(crate) mod options;
pub mod pacing;
pub(crate) mod run;
pub(crate) mod service;
pub(crate) mod shared;
pub(crate) mod shutdown;
pub(crate) mod store;
pub(crate) mod unit;
pub(crate) mod wake;
pub(crate) mod work;

pub use node::Node;
pub use options::{Finished, NodeOptions, Selector};
pub use shutdown::Shutdown;
pub use unit::ChoreKind;
pub use work::{Status, Summary};

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::{Error, Result, Trouble};
use batch::Batch;

/// What a node writes and reads about its own work is small; no answer for so long means that nobody is there.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// What one batch did, and what comes next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Rows that were changed.
    pub(crate) changed: u64,
    /// Whether another batch of this run has something to do.
    pub(crate) more: bool,
}

/// What to do after a batch failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// The chore has stepped aside (it will skip what is locked): try again at once.
    Again,
    /// The batch was too much: try again with half.
    Smaller,
    /// The run has failed.
    GiveUp,
}

impl Recovery {
    /// What an error asks for by itself.
    pub(crate) fn of(error: &Error) -> Self {
        match error.trouble() {
            Trouble::Slow | Trouble::TooBig => Self::Smaller,
            Trouble::Contended => Self::Again,
            Trouble::OfARow | Trouble::Away | Trouble::Other => Self::GiveUp,
        }
    }
}

/// One run of a unit: bounded batches until there is no more. Claims, re-checks, acts and records inside
/// [`Chore::run_batch`]; never sleeps, never retries, never looks at a clock of its own.
pub(crate) trait Chore: Send + Sync {
    /// Does one batch inside the fenced transaction.
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>>;

    /// Whether the next batch can have another one beside it: alone on a server, one batch leaves most of it idle.
    fn pairs(&self) -> bool {
        false
    }

    /// Does two batches at a time, each in a fenced transaction of its own. Where either fails, neither is committed. A second one
    /// for which there is nothing to do is let go at once.
    fn run_two<'a>(
        &'a mut self,
        one: &'a mut Batch,
        other: &'a mut Option<Batch>,
    ) -> BoxFuture<'a, Result<[Outcome; 2]>> {
        async move {
            batch::let_go(other).await;
            Ok([self.run_batch(one).await?, Outcome::default()])
        }
        .boxed()
    }

    /// Whether something is to be done outside the database before the next batch.
    fn acts(&self) -> bool {
        false
    }

    /// Does it, in no transaction: a call to a store may take its time. It may be cut off at any moment and done again,
    /// also by another node, so it must be something that can be repeated.
    fn act(&mut self) -> BoxFuture<'_, Result<()>> {
        async { Ok(()) }.boxed()
    }

    /// Looks at why a batch failed; its transaction is gone by now.
    fn recover(&mut self, error: &Error) -> Recovery {
        Recovery::of(error)
    }

    /// The cutoff that was fixed at the start of the run.
    fn cutoff(&self) -> Option<jiff::Timestamp>;

    /// How the run goes through the table, for status.
    fn shape(&self) -> Option<String>;

    /// Due rows that were passed by because somebody held them.
    fn skipped(&self) -> u64 {
        0
    }

    /// What was due and could not be done.
    fn failed(&self) -> u64 {
        0
    }

    /// How many rows a batch of this size may change, where sizes are not counted in rows; none where no budget counts.
    fn rows_in(&self, size: u64) -> u64 {
        size
    }

    /// What is worth a word about a run that came to its end.
    fn note(&self) -> Option<String> {
        None
    }
}
