//! Erasing: due deletions are locked with their subjects' rows, looked at again, and everything that hangs on them goes
//! in one transaction with a record for each. Invariants: what was true when a deletion was chosen does not count, only
//! what a second statement sees under the locks; rows are locked from the root down and go from the bottom up; a subject
//! that fails is found by halving, recorded, and passed by.

mod attempt;
mod check;
mod circle;
mod fault;
mod late;
mod pair;
mod parts;
mod record;
mod unlink;

pub(crate) use pair::Pair;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgConnection;
use uuid::Uuid;

use self::fault::{Fault, Stage};
use super::compile::Compiled;
use super::snapshot::Copier;
use super::store::late::LatePlace;
use super::store::rows::{self, Copied, Doomed, RootRow, Taken};
use super::store::{self, Candidate, Fences, Look, Place, Writers};
use super::tree::Node;
use crate::audit::{Moment, SubjectKey};
use crate::gate::{self, Held};
use crate::spine::Outcome;
use crate::spine::batch::Batch;
use crate::{Error, Result, Trouble};

/// A subject with more rows than this goes in parts.
const LARGE: u64 = 20_000;
/// So does one of which a copy is kept that would have about more bytes.
const COPY_BYTES: u64 = 16 << 20;
/// What goes at once is taken back where its copy turns out to have more, unless that is a single row.
const COPY_AT_MOST: u64 = 3 * COPY_BYTES;
/// How much of that subjects may be expected to have who go together.
const FULL: f64 = 0.9;
/// After so long a part takes nothing more: it ends well before a statement of it may.
const WITHIN: Duration = Duration::from_secs(10);
/// Attempts at a subject before somebody has to ask for another.
pub(crate) const ATTEMPTS: i32 = 8;

/// One run of erasing, a batch at a time; [`Pair`] has two of them.
#[derive(Clone)]
struct Erase {
    policy: String,
    compiled: Arc<Compiled>,
    /// The tables of the tree, as records name them.
    names: Arc<[String]>,
    key: Arc<SubjectKey>,
    /// Keeps a sealed copy of what goes, where the policy asks for one.
    copier: Option<Arc<Copier>>,
    /// What fired for rows of the tree's tables when it was read; deletions that are opened later are left to the next run.
    fences: Fences,
    progress: Progress,
    fault: Fault,
    /// What the gate said at the start of the batch: rows that subjects on hold keep, also from whoever shares them.
    held: Vec<Held>,
    /// What a subject had in the batch before: how many subjects one transaction may take.
    each: Each,
    /// Where the run was before the batch chose.
    chosen_after: Place,
    /// Whoever waits by what this run has found: where it goes back, they are not met again.
    waiting: BTreeSet<Uuid>,
    /// The batch took fewer than it had chosen.
    short: bool,
    /// Another batch is under way beside it.
    paired: bool,
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    after: Place,
    after_large: Option<Uuid>,
    large_last: bool,
    large_done: bool,
    due_done: bool,
    after_late: LatePlace,
    late_done: bool,
    subjects: u64,
    /// Subjects that somebody held, and subjects that failed.
    skipped: u64,
    failed: u64,
}

/// A deletion whose locks are held and whose conditions hold.
#[derive(Debug, Clone)]
struct Ready {
    candidate: Candidate,
    look: Look,
    row: RootRow,
}

/// What erasing one subject came to.
struct Done {
    ready: Ready,
    gone: Gone,
}

/// How many rows a subject has, and how many bytes of a copy.
#[derive(Debug, Clone, Copy)]
struct Each {
    rows: f64,
    bytes: f64,
}

impl Each {
    /// So many are expected to fit.
    fn fit(self) -> u64 {
        (FULL * (LARGE as f64 / self.rows.max(1.0)).min(COPY_BYTES as f64 / self.bytes.max(1.0))) as u64
    }
}

/// What went with one subject.
#[derive(Default)]
struct Gone {
    tables: BTreeMap<usize, i64>,
    unlinked: BTreeMap<usize, i64>,
    writers: Writers,
    /// Events of it that were still to come.
    cancelled: i64,
    copied: Vec<Copied>,
    /// Somebody else had deleted the subject's own row.
    already: bool,
}

impl Erase {
    fn new(policy: &str, (compiled, fences): (Compiled, Fences), key: Arc<SubjectKey>, copier: Option<Copier>) -> Self {
        Self {
            fences,
            policy: policy.to_owned(),
            names: compiled.tree.nodes.iter().map(|node| node.relation.label()).collect(),
            compiled: Arc::new(compiled),
            key,
            copier: copier.map(Arc::new),
            progress: Progress::default(),
            fault: Fault::none(),
            held: Vec::new(),
            each: Each { rows: 1.0, bytes: 1.0 },
            chosen_after: None,
            waiting: BTreeSet::new(),
            short: false,
            paired: false,
        }
    }

    /// Whoever is to blame for a batch that came to nothing is told, and passed by.
    async fn blame(&mut self, connection: &mut PgConnection, (one, why): (Candidate, String)) -> Result<()> {
        let mut found = store::open_among(connection, &self.policy, &[&one.subject_id]).await?;
        found.retain(|found| found.id == one.id);
        for one in found {
            let now = store::snapshots::clock(connection).await?;
            self.waiting.insert(one.id);
            self.note_failure(connection, (&one, now), &Error::failed(&why)).await?;
        }
        Ok(())
    }

    /// What comes first in every transaction: the gate, the bounds, and a look whether the tables are what they were.
    async fn enter(&mut self, batch: &mut Batch) -> Result<()> {
        self.fault.begin();
        self.short = false;
        self.held = self.compiled.binding(&self.policy, gate::pass(batch.connection(), &self.policy).await?);
        rows::bound(batch.connection(), &self.compiled.root.path).await?;
        self.unchanged(batch.connection()).await
    }

    async fn step(&mut self, batch: &mut Batch) -> Result<Outcome> {
        self.enter(batch).await?;
        let outcome = self.go_on(batch).await?;
        self.compiled.tree.path.settle(batch.connection()).await?;
        self.still_kept(batch).await?;
        Ok(outcome)
    }

    /// What comes last in every transaction: what policies of their own say of the rows that went is still what it was when they were
    /// looked at, until it ends. From here on nobody can change them, so nothing is waited for.
    async fn still_kept(&self, batch: &mut Batch) -> Result<()> {
        match store::still_kept(batch.connection(), &self.fences).await? {
            true => Ok(()),
            false => Err(kept_otherwise()),
        }
    }

    async fn go_on(&mut self, batch: &mut Batch) -> Result<Outcome> {
        if let Some(blamed) = self.fault.blamed.take() {
            self.blame(batch.connection(), blamed).await?;
            return Ok(Outcome { changed: 0, more: true });
        }
        if let Some(large) = self.fault.large.take() {
            self.fault.alone = Some((large.clone(), Stage::Look));
            let mut found = store::open_among(batch.connection(), &self.policy, &[&large.subject_id]).await?;
            found.retain(|found| found.id == large.id);
            let ready = self.lock(batch, found).await?;
            self.claim(batch, ready).await?;
            return Ok(Outcome { changed: 0, more: true });
        }
        if self.progress.large_done && self.progress.due_done {
            let changed = self.late(batch).await?;
            return Ok(Outcome { changed, more: !self.progress.late_done });
        }
        // Large subjects take turns with the others.
        let large = (!self.progress.large_last || self.progress.due_done) && !self.progress.large_done;
        self.progress.large_last = !self.progress.large_last;
        let changed = if large {
            self.part(batch).await?
        } else {
            let found = self.choose(batch).await?;
            self.whole(batch, found).await?
        };
        Ok(Outcome { changed, more: self.more() })
    }

    fn more(&self) -> bool {
        let done = self.progress.large_done && self.progress.due_done;
        !done || super::late::links(&self.compiled.tree).next().is_some()
    }

    /// What hangs on the tables, and what fires when their rows go, is what it was when the tree was read: under a lock with
    /// which nobody adds a foreign key, a trigger or a rule.
    async fn unchanged(&self, connection: &mut PgConnection) -> Result<()> {
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        rows::lock_tables(connection, &self.compiled.tree).await?;
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        let fences = store::fences(connection, &self.compiled.tree).await?;
        if fences.kept_by != self.fences.kept_by {
            return Err(kept_otherwise());
        }
        match fences.word == self.fences.word {
            true => Ok(()),
            false => Err(Error::refused("foreign keys, triggers or rules of its tables changed during the run")
                .with_hint("the next run looks at them again; `ebb plan` shows them")),
        }
    }

    /// Locks the next due deletions, as many as are expected to fit, and passes them.
    async fn choose(&mut self, batch: &mut Batch) -> Result<Vec<Candidate>> {
        let size = batch.size.min(self.each.fit()).min(self.fault.most).max(1);
        let mut found =
            store::candidates(batch.connection(), &self.policy, self.progress.after, size, self.fences.at).await?;
        self.chosen_after = self.progress.after;
        self.progress.due_done = (found.len() as u64) < size;
        if let Some(last) = found.last() {
            self.progress.after = Some((last.due_at, last.id));
        }
        found.retain(|found| !self.waiting.contains(&found.id));
        self.fault.choose(&found);
        Ok(found)
    }

    /// Subjects that were chosen, as many as fit, each as a whole; those that do not are chosen again.
    async fn whole(&mut self, batch: &mut Batch, found: Vec<Candidate>) -> Result<u64> {
        if found.is_empty() {
            return Ok(0);
        }
        let ready = self.lock(batch, found).await?;
        let (fits, rest) = self.fit(batch.connection(), ready).await?;
        if let (Some(last), Some(_)) = (fits.last(), rest) {
            self.progress.after = Some((last.candidate.due_at, last.candidate.id));
            self.progress.due_done = false;
            self.short = true;
        }
        if rest.is_some() && rest == fits.first().map(|one| one.candidate.id) {
            self.claim(batch, fits).await?;
            return Ok(0);
        }
        let chosen = fits.len();
        let ready = self.together(batch, fits).await?;
        let ready = self.bounded(batch, ready, chosen).await?;
        let erased = self.erase(batch, ready).await?;
        self.fault.went_well();
        Ok(erased)
    }

    /// The same with what triggers put off to the end.
    async fn take(&mut self, batch: &mut Batch, chosen: Vec<Candidate>) -> Result<u64> {
        let changed = self.whole(batch, chosen).await?;
        self.compiled.tree.path.settle(batch.connection()).await?;
        Ok(changed)
    }

    /// Of subjects some of whom joined those that were chosen, as many as one transaction may take. Whoever hangs together with
    /// somebody who is claimed, or with too many rows, is claimed as well; the others are chosen again.
    async fn bounded(&mut self, batch: &mut Batch, mut ready: Vec<Ready>, chosen: usize) -> Result<Vec<Ready>> {
        ready.sort_by_key(|ready| !ready.look.is_claimed());
        let mut claimed = ready.iter().take_while(|ready| ready.look.is_claimed()).count();
        while claimed > 0 {
            let (mut tied, mut others) = self.divide(batch.connection(), ready, claimed).await?;
            // Whoever would take one of them along.
            let over = self.others(batch.connection(), &others).await?.into_iter().map(|other| other.at);
            for at in over.collect::<BTreeSet<_>>().into_iter().rev() {
                tied.push(others.remove(at));
            }
            if tied.len() == claimed || others.is_empty() {
                self.claim_all(batch, &tied).await?;
                claimed = 0;
            } else {
                claimed = tied.len();
                tied.append(&mut others);
                others = tied;
            }
            ready = others;
        }
        while ready.len() > chosen && self.too_many(batch.connection(), &ready).await? {
            let (some, rest) = self.halve(batch.connection(), ready).await?;
            if rest.is_empty() {
                self.claim_all(batch, &some).await?;
                ready = Vec::new();
            } else {
                (self.progress.after, self.progress.due_done) = (self.chosen_after, false);
                ready = some;
            }
        }
        Ok(ready)
    }

    /// A subject that is too large for one transaction: it is hidden already, cannot be restored any more once it is claimed,
    /// and goes in parts; so does whoever goes along with it.
    async fn claim(&mut self, batch: &mut Batch, large: Vec<Ready>) -> Result<()> {
        let Some(id) = large.first().map(|one| one.candidate.id) else { return Ok(()) };
        let ready = self.together(batch, large).await?;
        match ready.iter().any(|ready| ready.candidate.id == id) {
            true => self.claim_all(batch, &ready).await,
            false => Ok(()),
        }
    }

    async fn claim_all(&mut self, batch: &mut Batch, ready: &[Ready]) -> Result<()> {
        let roots = roots(ready, self.compiled.tree.nodes[0].read.len());
        rows::as_role(batch.connection(), self.compiled.role.as_ref()).await?;
        let spared = self.spares(batch.connection(), 0, &roots).await;
        rows::back_from_role(batch.connection(), self.compiled.role.as_ref()).await?;
        match spared {
            Err(error) if error.is_refused() => return self.note_trouble(batch.connection(), ready, &error).await,
            spared => spared?,
        }
        let new: Vec<&Ready> = ready.iter().filter(|ready| !ready.look.is_claimed()).collect();
        let ids: Vec<Uuid> = new.iter().map(|ready| ready.candidate.id).collect();
        let (claim, run) = (batch.claim.clone(), batch.run);
        let about = (claim.policy_version, claim.unit.leaf.as_str());
        store::claim_large(batch.connection(), about, (run, &claim.node), &ids).await?;
        for one in new {
            self.note_attempt(batch.connection(), &one.candidate.subject_id, one.look.now).await?;
        }
        // Whoever waited for them may go on.
        (self.progress.after_large, self.progress.large_done) = (None, false);
        Ok(())
    }

    /// Erases subjects together; where that fails, halves of them, down to those that fail: one, or several who go together.
    async fn erase(&mut self, batch: &mut Batch, ready: Vec<Ready>) -> Result<u64> {
        let alone = self.fault.alone.take();
        let mut pending = vec![ready];
        let mut done = Vec::new();
        while let Some(some) = pending.pop() {
            if some.is_empty() {
                continue;
            }
            let first = || (some[0].candidate.clone(), Stage::Whole);
            self.fault.alone = alone.clone().or_else(|| (some.len() == 1 || batch.size == 1).then(first));
            rows::savepoint(batch.connection()).await?;
            match self.attempt(batch.connection(), &some).await {
                Ok(gone) => done.extend(some.into_iter().zip(gone).map(|(ready, gone)| Done { ready, gone })),
                // What was too much, or a database that is away, is the runner's concern; so is what waits for the batch beside
                // it, which is no fault of any subject.
                Err(error) if is_of_the_batch(&error) => return Err(error),
                Err(error) if self.paired && error.is_contended() => return Err(error),
                Err(error) => {
                    rows::end_savepoint(batch.connection(), false).await?;
                    let (some, rest) = match some.len() {
                        1 => (some, Vec::new()),
                        _ => self.halve(batch.connection(), some).await?,
                    };
                    if rest.is_empty() {
                        self.note_trouble(batch.connection(), &some, &error).await?;
                    } else {
                        pending.extend([rest, some]);
                    }
                }
            }
        }
        self.fault.alone = None;
        self.record(batch, done).await
    }

    /// Says of subjects who could not be erased, together, why.
    async fn note_trouble(&mut self, connection: &mut PgConnection, some: &[Ready], error: &Error) -> Result<()> {
        for one in some {
            let id = one.candidate.id;
            if error.is_refused() || error.is_contended() {
                self.waiting.insert(id);
            }
            if error.is_refused() {
                store::note_waiting(connection, &[id], &[Some(error.to_string())], &[None]).await?;
                continue;
            }
            if error.is_contended() {
                // Nobody's fault: the next run tries again, and until then it is told.
                let held = "somebody holds a row of it".to_owned();
                store::note_waiting(connection, &[id], &[Some(held)], &[None]).await?;
                self.progress.skipped += 1;
                continue;
            }
            self.note_failure(connection, (&one.candidate, one.look.now), error).await?;
        }
        Ok(())
    }

    async fn note_failure(
        &mut self,
        connection: &mut PgConnection,
        (one, now): (&Candidate, Moment),
        error: &Error,
    ) -> Result<()> {
        let failed = store::note_failure(connection, one.id, &error.to_string(), ATTEMPTS).await?;
        // What the server says may name the subject: it is in the deletion, until that is erased.
        let sqlstate = error.sqlstate();
        tracing::warn!(policy = self.policy, deletion = %one.id, sqlstate, stuck = failed, "A subject could not be erased");
        self.progress.failed += 1;
        self.note_attempt(connection, &one.subject_id, now).await
    }

    /// Mirrors that an attempt was made, where the policy names a column for it; what stands in its way may stand there too.
    async fn note_attempt(&self, connection: &mut PgConnection, id: &str, now: Moment) -> Result<()> {
        let Some(column) = &self.compiled.root.attempted else { return Ok(()) };
        let ids = self.ids([id].into_iter())?;
        rows::savepoint(connection).await?;
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let noted = rows::set_mirror(connection, &self.compiled.root, column, now, &ids).await;
        let noted = match noted {
            Ok(()) => {
                rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
                self.compiled.root.path.settle(connection).await
            }
            noted => noted,
        };
        rows::end_savepoint(connection, noted.is_ok()).await
    }

    /// Nothing yet; where a copy is kept, with what goes from here on. What cannot be fewer rows may have as many bytes as it has.
    fn nothing(&self) -> Taken {
        match &self.copier {
            None => Taken::default(),
            Some(_) if self.fault.is_least() => Taken::copying(u64::MAX),
            Some(_) => Taken::copying(COPY_AT_MOST),
        }
    }

    fn ids<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Result<Doomed> {
        self.compiled.root.named(ids)
    }
}

/// Whose data it was, for whoever has the key and the id.
pub(crate) fn pseudonym(key: &SubjectKey, policy: &str, id: &str) -> crate::audit::Hash {
    key.pseudonym(format!("{policy}\0{id}").as_bytes())
}

fn kept_otherwise() -> Error {
    Error::superseded("a policy that may keep rows of its subjects was changed")
}

/// What no savepoint takes back: the batch is done again, smaller, or when there is somebody to talk to.
fn is_of_the_batch(error: &Error) -> bool {
    let trouble = error.trouble();
    trouble.is_too_much() || trouble == Trouble::Away
}

fn kept(node: &Node) -> Error {
    let table = node.relation.label();
    Error::failed(format!("a row of {table} is still there, or as it was: a trigger keeps it, or writes another"))
}

fn roots(ready: &[Ready], columns: usize) -> Doomed {
    let mut roots = Doomed::with(columns);
    for (at, ready) in ready.iter().enumerate() {
        roots.push(ready.row.values.clone(), at as i32);
    }
    roots
}
