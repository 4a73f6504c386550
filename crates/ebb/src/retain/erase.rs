//! Erasing: due deletions are locked with their subjects' rows, looked at again, and everything that hangs on them goes
//! in one transaction with a record for each. Invariants: what was true when a deletion was chosen does not count, only
//! what a second statement sees under the locks; rows are locked from the root down and go from the bottom up; a subject
//! that fails is found by halving, recorded, and passed by.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::compile::Compiled;
use super::snapshot::{Copier, Gone, Sealed};
use super::store::late::LatePlace;
use super::store::rows::{self, Copied, Doomed, RootRow, Taken};
use super::store::{self, Candidate, Erasure, Look, Place};
use super::tree::{Column, Edge, EdgeAction, Kept, Tree};
use super::{late, look};
use crate::audit::{Entry, Moment, SubjectKey};
use crate::gate::{self, Held};
use crate::pg::Ident;
use crate::spine::batch::Batch;
use crate::spine::{Chore, Outcome, Recovery};
use crate::{Error, Result};

/// How long a batch waits for a row that somebody holds; the subject is tried again later.
const LOCK_WAIT: Duration = Duration::from_millis(200);
/// A subject with more rows than this goes in parts.
const LARGE: u64 = 20_000;
/// Attempts at a subject before somebody has to ask for another.
pub(crate) const ATTEMPTS: i32 = 8;

/// One run of erasing.
pub(crate) struct Erase {
    policy: String,
    compiled: Compiled,
    key: Arc<SubjectKey>,
    /// Keeps a sealed copy of what goes, where the policy asks for one.
    copier: Option<Copier>,
    progress: Progress,
    /// The state before the batch at work, for when its transaction is lost.
    began: Option<Progress>,
    /// A single subject took longer than a statement may: the next batch takes it in parts.
    slow: Option<Uuid>,
    attempting: Option<Uuid>,
    /// What the gate said at the start of the batch: rows that subjects on hold keep, also from whoever shares them.
    held: Vec<Held>,
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
    skipped: u64,
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
    tables: BTreeMap<usize, i64>,
    unlinked: BTreeMap<usize, i64>,
    /// Events of it that were still to come.
    cancelled: i64,
    copied: Vec<Copied>,
}

impl Erase {
    pub(crate) fn new(policy: &str, compiled: Compiled, key: Arc<SubjectKey>, copier: Option<Copier>) -> Self {
        Self {
            policy: policy.to_owned(),
            compiled,
            key,
            copier,
            progress: Progress::default(),
            began: None,
            slow: None,
            attempting: None,
            held: Vec::new(),
        }
    }

    async fn step(&mut self, batch: &mut Batch) -> Result<Outcome> {
        self.began = Some(self.progress);
        self.attempting = None;
        self.held = gate::pass(batch.connection(), &self.policy).await?;
        self.held.retain(|held| held.policy != self.policy || self.compiled.tree.shares_rows());
        rows::bound(batch.connection(), &self.compiled.root.relation, LOCK_WAIT).await?;
        if let Some(slow) = self.slow.take() {
            store::claim_large(batch.connection(), slow).await?;
            return Ok(Outcome { changed: 0, more: true });
        }
        if self.progress.large_done && self.progress.due_done {
            let changed = self.late(batch).await?;
            return Ok(Outcome { changed, more: !self.progress.late_done });
        }
        // Large subjects take turns with the others.
        let large = (!self.progress.large_last || self.progress.due_done) && !self.progress.large_done;
        self.progress.large_last = !self.progress.large_last;
        let changed = if large { self.part(batch).await? } else { self.whole(batch).await? };
        let done = self.progress.large_done && self.progress.due_done;
        Ok(Outcome { changed, more: !done || late::links(&self.compiled.tree).next().is_some() })
    }

    /// The next due subjects, as many as fit, each as a whole.
    async fn whole(&mut self, batch: &mut Batch) -> Result<u64> {
        let size = batch.size.max(1);
        let found = store::candidates(batch.connection(), &self.policy, self.progress.after, size).await?;
        self.progress.due_done = (found.len() as u64) < size;
        let Some(last) = found.last() else { return Ok(0) };
        let last = (last.due_at, last.id);
        let ready = self.lock(batch.connection(), found).await?;
        let (fits, rest) = self.fit(batch.connection(), ready).await?;
        let changed = match (fits.as_slice(), rest) {
            ([one], Some(large)) if large == one.candidate.id => {
                // Claimed: it is hidden already, cannot be restored any more, and goes in parts.
                store::claim_large(batch.connection(), one.candidate.id).await?;
                self.note_attempt(batch.connection(), &one.candidate.subject_id, one.look.now).await?;
                self.progress.large_done = false;
                self.progress.after = Some((one.candidate.due_at, one.candidate.id));
                self.progress.due_done = false;
                return Ok(0);
            }
            (some, rest) => {
                self.progress.after = match (some.last(), rest) {
                    (Some(last), Some(_)) => Some((last.candidate.due_at, last.candidate.id)),
                    _ => Some(last),
                };
                self.progress.due_done &= rest.is_none();
                self.erase(batch, fits).await?
            }
        };
        Ok(changed)
    }

    /// Locks the subjects' rows and looks again: what is held, not due by today's policy, blocked or taken back, waits
    /// or ends here.
    async fn lock(&mut self, connection: &mut PgConnection, found: Vec<Candidate>) -> Result<Vec<Ready>> {
        let ids = self.ids(found.iter().map(|candidate| candidate.subject_id.as_str()))?;
        let role = self.compiled.role.clone();
        let root = &self.compiled.root;
        rows::as_role(connection, role.as_ref()).await?;
        let locked = rows::lock_roots(connection, root, &self.compiled.tree.nodes[0].read, &ids).await?;
        let existing: HashSet<i32> = if locked.len() < found.len() {
            rows::existing(connection, root, &ids).await?.into_iter().collect()
        } else {
            HashSet::new()
        };
        rows::back_from_role(connection, role.as_ref()).await?;
        let mut by_subject: HashMap<i32, RootRow> = locked.into_iter().map(|row| (row.subject, row)).collect();
        let (mut gone, mut restored, mut mine) = (Vec::new(), Vec::new(), Vec::new());
        for (at, candidate) in found.into_iter().enumerate() {
            match by_subject.remove(&(at as i32)) {
                Some(row) if row.deleted_at.is_none() => restored.push(candidate.id),
                Some(row) => mine.push((candidate, row)),
                None if existing.contains(&(at as i32)) => self.progress.skipped += 1,
                None => gone.push(candidate.id),
            }
        }
        // Somebody else deleted the row: there is nothing left to erase, and nothing to say what went.
        store::close_erased(connection, &gone, &vec![0; gone.len()]).await?;
        store::close_restored(connection, &restored).await?;
        self.second_look(connection, mine).await
    }

    async fn second_look(&self, connection: &mut PgConnection, mine: Vec<(Candidate, RootRow)>) -> Result<Vec<Ready>> {
        let ids: Vec<Uuid> = mine.iter().map(|(candidate, _)| candidate.id).collect();
        let deleted_at: Vec<Option<Moment>> = mine.iter().map(|(_, row)| row.deleted_at).collect();
        let tenants: Vec<Option<String>> = mine.iter().map(|(_, row)| row.tenant.clone()).collect();
        let looks = store::recheck(connection, &ids, &deleted_at, &tenants).await?;
        let mut looks: HashMap<Uuid, Look> = looks.into_iter().map(|look| (look.id, look)).collect();
        let (mut waiting, mut why, mut due) = (Vec::new(), Vec::new(), Vec::new());
        let mut wait = |id: Uuid, reason: Option<String>, due_at: Option<Moment>| {
            waiting.push(id);
            why.push(reason);
            due.push(due_at);
        };
        let mut ready = Vec::new();
        for (candidate, row) in mine {
            let Some(look) = looks.remove(&candidate.id) else { continue };
            if !matches!(look.state.as_str(), "pending" | "warned") {
                continue;
            }
            if let Some(reason) = &look.held {
                wait(candidate.id, Some(format!("on hold: {reason}")), None);
            } else if look.due_at > look.now {
                wait(candidate.id, None, Some(look.due_at));
            } else if let Some(reason) = &look.unwarned {
                wait(candidate.id, Some(reason.clone()), None);
            } else {
                ready.push(Ready { candidate, look, row });
            }
        }
        for (at, reason) in self.stopped(connection, &ready).await?.into_iter().rev() {
            wait(ready.remove(at).candidate.id, Some(reason), None);
        }
        store::note_waiting(connection, &waiting, &why, &due).await?;
        Ok(ready)
    }

    /// Positions of subjects that `unless` or a shared value stops, in order.
    async fn stopped(&self, connection: &mut PgConnection, ready: &[Ready]) -> Result<BTreeMap<usize, String>> {
        let mut stopped = BTreeMap::new();
        if ready.is_empty() {
            return Ok(stopped);
        }
        let (root, tree) = (&self.compiled.root, &self.compiled.tree);
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        if root.unless.is_some() {
            let ids = self.ids(ready.iter().map(|ready| ready.candidate.subject_id.as_str()))?;
            for at in rows::blocked(connection, root, &ids).await? {
                stopped.insert(at as usize, "`unless` holds".to_owned());
            }
        }
        for edge in
            tree.edges.iter().filter(|edge| edge.key.is_none() && !edge.distinct && edge.action != EdgeAction::Keep)
        {
            for at in rows::sharing(connection, tree, root, edge, &roots(ready, tree.nodes[0].read.len())).await? {
                let columns: Vec<&str> = edge.parent_columns.iter().map(|name| name.as_str()).collect();
                let reason = format!("a subject who is not deleted has the same {}", columns.join(", "));
                stopped.insert(at as usize, reason);
            }
        }
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        Ok(stopped)
    }

    /// As many subjects as one transaction may take; the first that is too large by itself comes back alone.
    async fn fit(&self, connection: &mut PgConnection, mut ready: Vec<Ready>) -> Result<(Vec<Ready>, Option<Uuid>)> {
        let tree = &self.compiled.tree;
        let mut left_out = None;
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        while !ready.is_empty() {
            let roots = roots(&ready, tree.nodes[0].read.len());
            let ids: Vec<&str> = ready.iter().map(|ready| ready.candidate.subject_id.as_str()).collect();
            rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
            let mut found = store::count_events(connection, &self.policy, &ids, LARGE + 1).await?;
            rows::as_role(connection, self.compiled.role.as_ref()).await?;
            for (_, edge) in tree.onto(0).filter(|(_, edge)| edge.action == EdgeAction::Delete) {
                found += rows::count(connection, tree, edge, &roots, LARGE + 1).await?;
                if found > LARGE {
                    break;
                }
            }
            if found <= LARGE {
                break;
            }
            if let [one] = ready.as_slice() {
                left_out = Some(one.candidate.id);
                break;
            }
            let half = ready.split_off(ready.len().div_ceil(2));
            left_out = half.first().map(|first| first.candidate.id);
        }
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        Ok((ready, left_out))
    }

    /// Erases subjects together; where that fails, halves of them, down to the one that fails.
    async fn erase(&mut self, batch: &mut Batch, ready: Vec<Ready>) -> Result<u64> {
        let mut pending = vec![ready];
        let mut done = Vec::new();
        while let Some(mut some) = pending.pop() {
            if some.is_empty() {
                continue;
            }
            if let [one] = some.as_slice() {
                self.attempting = Some(one.candidate.id);
            }
            rows::savepoint(batch.connection()).await?;
            match self.attempt(batch.connection(), &some).await {
                Ok(erased) => done.extend(erased),
                // A statement that took too long, or a database that is away, is the runner's concern.
                Err(error) if error.is_unavailable() || error.sqlstate().as_deref() == Some("57014") => {
                    return Err(error);
                }
                Err(error) => {
                    rows::end_savepoint(batch.connection(), false).await?;
                    if let ([one], true) = (some.as_slice(), error.is_refused()) {
                        let reason = Some(error.to_string());
                        store::note_waiting(batch.connection(), &[one.candidate.id], &[reason], &[None]).await?;
                    } else if let [one] = some.as_slice() {
                        let failed =
                            store::note_failure(batch.connection(), one.candidate.id, &error.to_string(), ATTEMPTS)
                                .await?;
                        tracing::warn!(policy = self.policy, deletion = %one.candidate.id, error = %error, stuck = failed,
                            "A subject could not be erased");
                        self.progress.skipped += 1;
                        let (id, now) = (one.candidate.subject_id.clone(), one.look.now);
                        self.note_attempt(batch.connection(), &id, now).await?;
                    } else {
                        let half = some.split_off(some.len() / 2);
                        pending.push(half);
                        pending.push(some);
                    }
                }
            }
        }
        self.attempting = None;
        self.record(batch, done).await
    }

    /// Mirrors that an attempt was made, where the policy names a column for it; what stands in its way may stand there too.
    async fn note_attempt(&self, connection: &mut PgConnection, id: &str, now: Moment) -> Result<()> {
        let Some(column) = &self.compiled.root.attempted else { return Ok(()) };
        let ids = self.ids([id].into_iter())?;
        rows::savepoint(connection).await?;
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let noted = rows::set_mirror(connection, &self.compiled.root, column, now, &ids).await;
        if noted.is_ok() {
            rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        }
        rows::end_savepoint(connection, noted.is_ok()).await
    }

    /// One attempt under a savepoint: everything of these subjects goes, or nothing.
    async fn attempt(&self, connection: &mut PgConnection, ready: &[Ready]) -> Result<Vec<Done>> {
        let tree = &self.compiled.tree;
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let roots = roots(ready, tree.nodes[0].read.len());
        let doomed = look::collect(connection, tree, roots, true).await?;
        self.taken_along(connection, &doomed[0], ready.len()).await?;
        self.spares(connection, 0, &doomed[0]).await?;
        for edge in tree.edges.iter().filter(|edge| edge.action == EdgeAction::Delete) {
            self.spares_behind(connection, edge, &doomed[edge.parent]).await?;
        }
        let (mut taken, unlinked) = self.remove(connection, tree, &doomed).await?;
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        let mut by_subject = vec![BTreeMap::new(); ready.len()];
        for ((node, subject), rows) in &taken.counts {
            if let Some(tables) = by_subject.get_mut(*subject as usize) {
                tables.insert(*node, *rows);
            }
        }
        let gone: i64 = by_subject.iter().filter_map(|tables| tables.get(&0)).sum();
        if gone != doomed[0].len() as i64 {
            return Err(Error::failed("a row of a subject is still there: a trigger or rule keeps it"));
        }
        let ids: Vec<&str> = ready.iter().map(|ready| ready.candidate.subject_id.as_str()).collect();
        let cancelled = store::forget_events(connection, &self.policy, &ids).await?;
        let cancelled: HashMap<i32, i64> = cancelled.into_iter().collect();
        rows::end_savepoint(connection, true).await?;
        let of = |taken: &Taken, subject: usize| {
            let mine = taken.counts.iter().filter(|((_, whose), _)| *whose == subject as i32);
            mine.map(|((node, _), rows)| (*node, *rows)).collect::<BTreeMap<usize, i64>>()
        };
        let mut copied: Vec<Vec<Copied>> = vec![Vec::new(); ready.len()];
        for row in taken.copied() {
            copied[row.subject as usize].push(row);
        }
        let done = ready.iter().zip(by_subject).zip(copied).enumerate();
        Ok(done
            .map(|(at, ((ready, tables), copied))| Done {
                ready: ready.clone(),
                tables,
                unlinked: of(&unlinked, at),
                cancelled: cancelled.get(&(at as i32)).copied().unwrap_or(0),
                copied,
            })
            .collect())
    }

    /// Where subjects hang on each other, erasing one takes others along: none of them may be on hold.
    async fn taken_along(&self, connection: &mut PgConnection, roots: &Doomed, own: usize) -> Result<()> {
        if roots.len() == own {
            return Ok(());
        }
        let keys = self.compiled.root.key.len();
        let others: Vec<String> = (own..roots.len()).map(|at| rows::id_text(&roots.row(at)[..keys])).collect();
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        let held = store::any_held(connection, &self.policy, &others).await?;
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        match held {
            true => Err(Error::refused("it would take a subject along that is on hold")),
            false => Ok(()),
        }
    }

    /// An error that is a refusal where a subject on hold has one of the root's rows in its own tree.
    async fn spares(&self, connection: &mut PgConnection, node: usize, rows: &Doomed) -> Result<()> {
        let table = &self.compiled.tree.nodes[node];
        let key: Vec<Ident> = table.key.iter().map(|column| column.name.clone()).collect();
        self.none_held(connection, node, (&table.read, &key, &key), rows, None).await
    }

    /// The same for rows that refer to the given rows of an edge's parent.
    async fn spares_behind(&self, connection: &mut PgConnection, edge: &Edge, parents: &Doomed) -> Result<()> {
        let read = self.compiled.tree.nodes[edge.parent].read.as_slice();
        let link = (read, edge.parent_columns.as_slice(), edge.child_columns.as_slice());
        self.none_held(connection, edge.child, link, parents, edge.kept.as_ref()).await
    }

    /// Under the node's own rights: a role for erasing need not see who is on hold.
    async fn none_held(
        &self,
        connection: &mut PgConnection,
        node: usize,
        (read, wanted, of): (&[Column], &[Ident], &[Ident]),
        rows: &Doomed,
        kept: Option<&Kept>,
    ) -> Result<()> {
        let relation = &self.compiled.tree.nodes[node].relation;
        let label = relation.label();
        let held: Vec<&Held> = self.held.iter().filter(|held| held.relation == label).collect();
        if held.is_empty() || rows.is_empty() {
            return Ok(());
        }
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        for held in held {
            for mut condition in held.erased(&Ident::new("n")) {
                if let Some(kept) = kept {
                    condition = format!("({condition}) AND ({}) IS NOT TRUE", kept.condition);
                }
                let found = rows::any(connection, relation, (read, wanted, of), rows, &condition).await;
                if found.map_err(|error| gate::explain(error, std::slice::from_ref(held)))? {
                    let policy = &held.policy;
                    return Err(Error::refused(format!(
                        "rows of a subject on hold would go with it ({label}, policy {policy})"
                    )));
                }
            }
        }
        rows::as_role(connection, self.compiled.role.as_ref()).await
    }

    /// Ends links and deletes, from the bottom up. Returns what went and what was only unlinked.
    async fn remove(&self, connection: &mut PgConnection, tree: &Tree, doomed: &[Doomed]) -> Result<(Taken, Taken)> {
        let (mut taken, mut unlinked) = (Taken::copying(self.copier.is_some()), Taken::default());
        for component in tree.order.iter().rev() {
            for node in component {
                for (at, edge) in tree.onto(*node).filter(|(at, _)| self.compiled.sets.contains_key(at)) {
                    if !doomed[*node].is_empty() {
                        let set = &self.compiled.sets[&at];
                        rows::unlink(connection, tree, edge, set, &doomed[*node], &mut unlinked).await?;
                    }
                }
            }
            let inner: Vec<(usize, &Doomed)> = component
                .iter()
                .filter(|node| tree.nodes[**node].inner && !doomed[**node].is_empty())
                .map(|node| (*node, &doomed[*node]))
                .collect();
            if !inner.is_empty() {
                rows::delete_rows(connection, tree, &inner, &mut taken).await?;
                continue;
            }
            for node in component.iter().filter(|node| !tree.nodes[**node].inner) {
                for (_, edge) in tree.into(*node).filter(|(_, edge)| edge.action == EdgeAction::Delete) {
                    if !doomed[edge.parent].is_empty() {
                        rows::delete_through(connection, tree, edge, &doomed[edge.parent], None, &mut taken).await?;
                    }
                }
            }
        }
        // What a link without a foreign key let in meanwhile.
        for edge in tree.edges.iter().filter(|edge| edge.key.is_none() && edge.action == EdgeAction::Delete) {
            if !tree.nodes[edge.child].inner {
                rows::delete_through(connection, tree, edge, &doomed[0], None, &mut taken).await?;
            }
        }
        Ok((taken, unlinked))
    }

    /// A part of a subject that is too large for one transaction, or its end.
    async fn part(&mut self, batch: &mut Batch) -> Result<u64> {
        let Some(candidate) = store::claimed(batch.connection(), &self.policy, self.progress.after_large).await? else {
            self.progress.large_done = true;
            return Ok(0);
        };
        let connection = batch.connection();
        let ids = self.ids([candidate.subject_id.as_str()].into_iter())?;
        let (root, tree) = (&self.compiled.root, &self.compiled.tree);
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let locked = rows::lock_roots(connection, root, &tree.nodes[0].read, &ids).await?;
        let Some(row) = locked.into_iter().next() else {
            let there = !rows::existing(connection, root, &ids).await?.is_empty();
            rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
            if there {
                self.progress.skipped += 1;
                self.progress.after_large = Some(candidate.id);
            } else {
                store::close_erased(connection, &[candidate.id], &[0]).await?;
            }
            return Ok(0);
        };
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        if store::forget_some_events(connection, &self.policy, &candidate.subject_id, LARGE).await? >= LARGE {
            return Ok(0);
        }
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let mut top = Doomed::with(tree.nodes[0].read.len());
        top.push(row.values.clone(), 0);
        rows::savepoint(connection).await?;
        match self.take_part(connection, &top).await {
            Ok((mut taken, whole)) => {
                rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
                rows::end_savepoint(connection, true).await?;
                let rows: i64 = taken.counts.values().sum();
                let mut parts = Map::new();
                for ((node, _), rows) in &taken.counts {
                    parts.insert(tree.nodes[*node].relation.label(), (*rows).into());
                }
                store::add_rows(connection, candidate.id, rows, &parts.into()).await?;
                if let Some(copier) = self.copier.as_ref().filter(|_| rows > 0) {
                    let rows = self.named(taken.copied());
                    let gone = Gone { deletion: candidate.id, rows, continues: true, last: false };
                    copier.keep(connection, vec![gone]).await?;
                }
                if whole {
                    // Nothing is left below: the rest is small, and ends like any other subject.
                    let (id, now) = (candidate.id, row.deleted_at);
                    let look = store::recheck(connection, &[id], &[now], std::slice::from_ref(&row.tenant)).await?;
                    let Some(look) = look.into_iter().next() else { return Ok(0) };
                    return Ok(rows.unsigned_abs() + self.erase(batch, vec![Ready { candidate, look, row }]).await?);
                }
                Ok(rows.unsigned_abs())
            }
            Err(error) if error.is_unavailable() || error.sqlstate().as_deref() == Some("57014") => Err(error),
            Err(error) => {
                rows::end_savepoint(connection, false).await?;
                rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
                if error.is_refused() {
                    let reason = Some(error.to_string());
                    store::note_waiting(connection, &[candidate.id], &[reason], &[None]).await?;
                } else {
                    store::note_failure(connection, candidate.id, &error.to_string(), ATTEMPTS).await?;
                }
                self.progress.skipped += 1;
                self.progress.after_large = Some(candidate.id);
                Ok(0)
            }
        }
    }

    /// Deletes at most a bounded number of rows below a subject, deepest first. Whether nothing is left there.
    async fn take_part(&self, connection: &mut PgConnection, top: &Doomed) -> Result<(Taken, bool)> {
        let mut taken = Taken::copying(self.copier.is_some());
        let mut budget = LARGE;
        let whole = self.descend(connection, 0, top, &mut budget, &mut taken, 0).await?;
        Ok((taken, whole))
    }

    /// Empties what refers to some rows of a node, within the budget. Tables in a circle are left to the end, which
    /// takes them together.
    fn descend<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        node: usize,
        rows: &'a Doomed,
        budget: &'a mut u64,
        taken: &'a mut Taken,
        depth: usize,
    ) -> BoxFuture<'a, Result<bool>> {
        async move {
            let tree = &self.compiled.tree;
            let circle = |node: usize| {
                tree.order.iter().any(|component| component.len() > 1 && component.contains(&node))
                    || tree
                        .edges
                        .iter()
                        .any(|edge| edge.child == node && edge.parent == node && edge.action == EdgeAction::Delete)
            };
            debug_assert!(depth <= tree.nodes.len(), "what has no circle has no longer path");
            for (at, edge) in tree.onto(node).filter(|(_, edge)| edge.child != node) {
                if let Some(set) = self.compiled.sets.get(&at)
                    && depth > 0
                {
                    rows::unlink(connection, tree, edge, set, rows, &mut Taken::default()).await?;
                }
                if edge.action != EdgeAction::Delete || circle(edge.child) {
                    continue;
                }
                self.spares_behind(connection, edge, rows).await?;
                if !tree.nodes[edge.child].inner {
                    let gone = rows::delete_through(connection, tree, edge, rows, Some(*budget), taken).await?;
                    *budget = budget.saturating_sub(gone.unsigned_abs());
                } else {
                    let some = rows::collect(connection, tree, edge, rows, Some(*budget), true).await?;
                    if !some.is_empty() {
                        if !self.descend(connection, edge.child, &some, budget, taken, depth + 1).await? {
                            return Ok(false);
                        }
                        let gone = rows::delete_rows(connection, tree, &[(edge.child, &some)], taken).await?;
                        *budget = budget.saturating_sub(gone.unsigned_abs());
                    }
                }
                if *budget == 0 {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        .boxed()
    }

    /// Looks once more behind the links of subjects that are gone, once whoever was under way then has ended.
    async fn late(&mut self, batch: &mut Batch) -> Result<u64> {
        let some = batch.size.max(1);
        let found = store::late::next(batch.connection(), &self.policy, self.progress.after_late, some).await?;
        let Some(last) = found.last() else {
            self.progress.late_done = true;
            return Ok(0);
        };
        let horizon = last.horizon;
        self.progress.after_late = (horizon, last.id);
        let (roots, opened) = late::open(&self.key, &self.policy, &self.compiled.tree, &found);
        let connection = batch.connection();
        rows::savepoint(connection).await?;
        match self.take_late(connection, roots, horizon).await {
            Ok(taken) => {
                rows::end_savepoint(connection, true).await?;
                store::late::forget(connection, &opened).await?;
                let rows: i64 = taken.values().sum();
                if rows > 0 {
                    self.record_late(batch, rows, &taken).await?;
                }
                Ok(rows.unsigned_abs())
            }
            Err(error) if error.is_unavailable() || error.sqlstate().as_deref() == Some("57014") => Err(error),
            // A hold, a lock, a trigger: what came late is looked at by the next run.
            Err(error) => {
                rows::end_savepoint(connection, false).await?;
                rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
                tracing::warn!(policy = self.policy, error = %error, "Rows that came late could not be erased");
                self.progress.skipped += 1;
                Ok(0)
            }
        }
    }

    async fn take_late(
        &self,
        connection: &mut PgConnection,
        roots: Doomed,
        horizon: i64,
    ) -> Result<BTreeMap<usize, i64>> {
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let theirs = late::taken_over(connection, &self.compiled, &roots).await?;
        let mut ours = Doomed::with(roots.columns.len());
        for at in (0..roots.len()).filter(|at| !theirs.contains(&roots.subjects[*at])) {
            ours.push(roots.row(at), roots.subjects[at]);
        }
        let tree = late::narrowed(&self.compiled.tree, horizon);
        let doomed = look::collect(connection, &tree, ours, true).await?;
        for edge in tree.edges.iter().filter(|edge| edge.action == EdgeAction::Delete) {
            self.spares_behind(connection, edge, &doomed[edge.parent]).await?;
        }
        let (taken, _) = self.remove(connection, &tree, &doomed).await?;
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        let mut tables = BTreeMap::new();
        for ((node, _), rows) in taken.counts {
            *tables.entry(node).or_default() += rows;
        }
        Ok(tables)
    }

    async fn record_late(&self, batch: &mut Batch, rows: i64, tables: &BTreeMap<usize, i64>) -> Result<()> {
        let claim = batch.claim.clone();
        let mut entry = Entry::new("erase_late", "ebb");
        entry.policy = Some(self.policy.clone());
        entry.policy_version = Some(claim.policy_version);
        entry.relation = Some(claim.unit.leaf.clone());
        entry.rows = rows;
        entry.run = Some(batch.run);
        entry.node = Some(claim.node);
        entry.details = json!({ "tables": self.by_table(tables) });
        entry.insert(batch.connection()).await?;
        Ok(())
    }

    /// Remembers links without a foreign key: whoever is under way now may still add rows behind them.
    async fn remember_links(&self, connection: &mut PgConnection, done: &[Done]) -> Result<()> {
        let (mut deletions, mut sealed) = (Vec::new(), Vec::new());
        if late::links(&self.compiled.tree).next().is_some() {
            for done in done {
                let values = &done.ready.row.values;
                if let Some(closed) = late::close(&self.key, &self.policy, &self.compiled.tree, values)? {
                    deletions.push(done.ready.candidate.id);
                    sealed.push(closed);
                }
            }
        }
        store::late::add(connection, &self.policy, &deletions, &sealed).await
    }

    /// The records of this batch, in its own transaction, without anything that was erased.
    async fn record(&mut self, batch: &mut Batch, mut done: Vec<Done>) -> Result<u64> {
        let sealed = self.keep(batch.connection(), &mut done).await?;
        let mut erasures = Vec::with_capacity(done.len());
        let mut ids = Vec::with_capacity(done.len());
        let mut counts = Vec::with_capacity(done.len());
        for (at, done) in done.iter().enumerate() {
            let rows: i64 = done.tables.values().sum();
            let before: i64 =
                done.ready.look.parts.as_object().into_iter().flatten().filter_map(|(_, rows)| rows.as_i64()).sum();
            ids.push(done.ready.candidate.id);
            counts.push(rows);
            erasures.push(Erasure {
                subject: pseudonym(&self.key, &self.policy, &done.ready.candidate.subject_id),
                rows: rows + before,
                due_at: done.ready.look.due_at,
                details: self.details(done, sealed.get(at)),
            });
        }
        let (claim, run) = (batch.claim.clone(), batch.run);
        let about = (self.policy.as_str(), claim.policy_version, claim.unit.leaf.as_str());
        store::record_erasures(batch.connection(), about, (run, &claim.node), &erasures).await?;
        store::close_erased(batch.connection(), &ids, &counts).await?;
        self.remember_links(batch.connection(), &done).await?;
        self.progress.subjects += done.len() as u64;
        Ok(counts.iter().sum::<i64>().unsigned_abs())
    }

    /// Seals what went, where a copy is kept: one for each, in their order.
    async fn keep(&self, connection: &mut PgConnection, done: &mut [Done]) -> Result<Vec<Sealed>> {
        let Some(copier) = &self.copier else { return Ok(Vec::new()) };
        let gone = done.iter_mut().map(|done| Gone {
            deletion: done.ready.candidate.id,
            rows: self.named(std::mem::take(&mut done.copied)),
            continues: done.ready.look.state == "erasing",
            last: true,
        });
        copier.keep(connection, gone.collect()).await
    }

    fn named(&self, copied: Vec<Copied>) -> Vec<(String, String)> {
        let nodes = &self.compiled.tree.nodes;
        copied.into_iter().map(|copied| (nodes[copied.node].relation.label(), copied.row)).collect()
    }

    fn by_table(&self, counts: &BTreeMap<usize, i64>) -> Value {
        let mut tables: Map<String, Value> = Map::new();
        for (node, rows) in counts.iter().filter(|(_, rows)| **rows > 0) {
            tables.insert(self.compiled.tree.nodes[*node].relation.label(), (*rows).into());
        }
        tables.into()
    }

    fn details(&self, done: &Done, sealed: Option<&Sealed>) -> Value {
        let look = &done.ready.look;
        let mut details = json!({
            "deletion": done.ready.candidate.id,
            "soft_deleted_at": look.deleted_at,
            "due_at": look.due_at,
            "erased_at": look.now,
            "expedited": look.expedited,
            "tables": self.by_table(&done.tables),
        });
        // What went before, in parts, where the subject was a large one.
        for (table, rows) in look.parts.as_object().into_iter().flatten() {
            let before = details["tables"][table].as_i64().unwrap_or(0);
            details["tables"][table] = (before + rows.as_i64().unwrap_or(0)).into();
        }
        if let Some(warned_at) = look.warned_at {
            details["warned_at"] = warned_at.to_string().into();
        }
        if let Some(tenant) = &look.tenant_now {
            details["tenant"] = tenant.as_str().into();
        }
        if done.unlinked.values().any(|rows| *rows > 0) {
            details["unlinked"] = self.by_table(&done.unlinked);
        }
        if let Some(sealed) = sealed {
            details["snapshot"] = json!({ "rows": sealed.rows, "until": sealed.until });
        }
        if done.cancelled > 0 {
            details["events_cancelled"] = done.cancelled.into();
        }
        details
    }

    fn ids<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Result<Doomed> {
        let columns = self.compiled.root.key.len();
        let mut doomed = Doomed::with(columns);
        for (at, id) in ids.enumerate() {
            doomed.push(rows::id_parts(id, columns)?, at as i32);
        }
        Ok(doomed)
    }
}

/// Whose data it was, for whoever has the key and the id.
pub(crate) fn pseudonym(key: &SubjectKey, policy: &str, id: &str) -> crate::audit::Hash {
    key.pseudonym(format!("{policy}\0{id}").as_bytes())
}

fn roots(ready: &[Ready], columns: usize) -> Doomed {
    let mut roots = Doomed::with(columns);
    for (at, ready) in ready.iter().enumerate() {
        roots.push(ready.row.values.clone(), at as i32);
    }
    roots
}

impl Chore for Erase {
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>> {
        self.step(batch).boxed()
    }

    fn recover(&mut self, error: &Error) -> Recovery {
        if let Some(began) = self.began.take() {
            self.progress = began;
        }
        match error.sqlstate().as_deref() {
            Some("57014") => {
                self.slow = self.attempting.take();
                Recovery::Smaller
            }
            Some("55P03" | "40P01" | "40001") => Recovery::Smaller,
            _ => Recovery::GiveUp,
        }
    }

    fn cutoff(&self) -> Option<Timestamp> {
        None
    }

    fn shape(&self) -> Option<String> {
        let tables = self.compiled.tree.nodes.iter().filter(|node| node.doomed).count();
        Some(format!("{} subjects over {tables} tables", self.progress.subjects))
    }

    fn skipped(&self) -> u64 {
        self.progress.skipped
    }
}
