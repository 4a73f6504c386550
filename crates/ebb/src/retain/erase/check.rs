//! Whether a subject may go now: locked, looked at again, small enough, and sharing no row with anybody on hold. Invariants:
//! what was true when a deletion was chosen does not count, only what a second statement sees under the locks; nobody goes
//! along with another who may not go alone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use sqlx::PgConnection;
use uuid::Uuid;

use super::{COPY_BYTES, Erase, LARGE, Ready, roots};
use crate::audit::Moment;
use crate::gate::{self, Held};
use crate::pg::Ident;
use crate::retain::look::{self, Asked};
use crate::retain::store::rows::{self, Doomed, Extent, RootRow};
use crate::retain::store::{self, Candidate, Look};
use crate::retain::tree::{Column, Edge, Kept};
use crate::spine::batch::Batch;
use crate::{Error, Result};

/// A subject that would go along with one of a batch (by its position), and why.
pub(super) struct Other {
    pub(super) at: usize,
    id: String,
    why: String,
}

impl Erase {
    /// Locks the subjects' rows and looks again: what is held, not due by today's policy, blocked or taken back, waits
    /// or ends here.
    pub(super) async fn lock(&mut self, batch: &mut Batch, found: Vec<Candidate>) -> Result<Vec<Ready>> {
        let connection = batch.connection();
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
        let (mut gone, mut mine) = (Vec::new(), Vec::new());
        for (at, candidate) in found.into_iter().enumerate() {
            match by_subject.remove(&(at as i32)) {
                Some(row) => mine.push((candidate, row)),
                None if existing.contains(&(at as i32)) => self.progress.skipped += 1,
                None => gone.push(candidate),
            }
        }
        self.record_gone(batch, gone).await?;
        self.second_look(batch.connection(), mine).await
    }

    async fn second_look(
        &mut self,
        connection: &mut PgConnection,
        mine: Vec<(Candidate, RootRow)>,
    ) -> Result<Vec<Ready>> {
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
            let Some(mut look) = looks.remove(&candidate.id) else { continue };
            let claimed = look.is_claimed();
            if claimed {
                look.due_at = candidate.due_at;
            }
            if !claimed && !matches!(look.state.as_str(), "pending" | "warned") {
                continue;
            }
            if !claimed && row.deleted_at.is_none() {
                // Marking closes it, and lets no column say any more that it is deleted.
                wait(candidate.id, Some("its soft delete was taken back".to_owned()), None);
            } else if let Some(reason) = &look.held {
                wait(candidate.id, Some(format!("on hold: {reason}")), None);
            } else if claimed {
                ready.push(Ready { candidate, look, row });
            } else if row.is_later(look.deleted_at) {
                // Another deletion, with a time of its own, which marking opens.
                wait(candidate.id, Some("soft-deleted again since".to_owned()), None);
            } else if look.due_at > look.now {
                wait(candidate.id, None, Some(look.due_at));
            } else if let Some(reason) = &look.unwarned {
                wait(candidate.id, Some(reason.clone()), None);
            } else {
                ready.push(Ready { candidate, look, row });
            }
        }
        // Claimed is claimed: it is not asked of them any more.
        let (mut going, asked): (Vec<Ready>, Vec<Ready>) = ready.into_iter().partition(|ready| ready.look.is_claimed());
        let ids: Vec<&str> = asked.iter().map(|ready| ready.candidate.subject_id.as_str()).collect();
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let Asked { holds, fails } = look::unless(connection, &self.compiled, &ids).await?;
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        let mut fails: HashMap<usize, Error> = fails.into_iter().collect();
        for (at, one) in asked.into_iter().enumerate() {
            if let Some(error) = fails.remove(&at) {
                self.waiting.insert(one.candidate.id);
                self.note_trouble(connection, &[one], &error).await?;
            } else if holds.contains(&at) {
                wait(one.candidate.id, Some("`unless` holds".to_owned()), None);
            } else {
                going.push(one);
            }
        }
        store::note_waiting(connection, &waiting, &why, &due).await?;
        self.hide(connection, &going).await?;
        Ok(going)
    }

    /// Claimed is claimed: whoever took the soft delete back would see half a subject.
    async fn hide(&self, connection: &mut PgConnection, ready: &[Ready]) -> Result<()> {
        let seen: Vec<&Ready> = ready.iter().filter(|ready| ready.row.deleted_at.is_none()).collect();
        let Some(first) = seen.first() else { return Ok(()) };
        let ids = self.ids(seen.iter().map(|ready| ready.candidate.subject_id.as_str()))?;
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        rows::hide(connection, &self.compiled.root, first.look.now, &ids).await?;
        rows::back_from_role(connection, self.compiled.role.as_ref()).await
    }

    /// Whoever would go along with these subjects and may go by itself, or is claimed already, joins them; whoever may not
    /// keeps back those it would go along with.
    pub(super) async fn together(&mut self, batch: &mut Batch, mut ready: Vec<Ready>) -> Result<Vec<Ready>> {
        let mut back = HashSet::new();
        loop {
            let others = self.others(batch.connection(), &ready).await?;
            if others.is_empty() {
                return Ok(ready);
            }
            let ids = others.iter().map(|other| other.id.as_str()).filter(|id| !back.contains(*id));
            let ids: Vec<&str> = ids.collect::<BTreeSet<_>>().into_iter().collect();
            let mut found = store::open_among(batch.connection(), &self.policy, &ids).await?;
            found.retain(|found| !self.waiting.contains(&found.id));
            let more = self.lock(batch, found).await?;
            if !more.is_empty() {
                ready.extend(more);
                continue;
            }
            let why: BTreeMap<usize, String> = others.into_iter().map(|other| (other.at, other.why)).collect();
            for (at, why) in why.into_iter().rev() {
                let waits = ready.remove(at).candidate;
                store::note_waiting(batch.connection(), &[waits.id], &[Some(why)], &[None]).await?;
                back.insert(waits.subject_id);
            }
        }
    }

    /// Subjects that hang on these, or have the same value of a link that tells nobody apart.
    pub(super) async fn others(&self, connection: &mut PgConnection, ready: &[Ready]) -> Result<Vec<Other>> {
        let (root, tree) = (&self.compiled.root, &self.compiled.tree);
        let mut others = Vec::new();
        if ready.is_empty() || !tree.leads_to_others() {
            return Ok(others);
        }
        let roots = roots(ready, tree.nodes[0].read.len());
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        self.sharers(connection, &roots, &mut others).await?;
        if tree.leads_back() {
            // Claimed subjects that can be parted meet whoever is farther away when they come to them.
            let near = tree.is_parted() && ready.iter().all(|ready| ready.look.is_claimed());
            let reached = look::along(connection, tree, roots, near.then_some(LARGE)).await?;
            for at in ready.len()..reached.len() {
                let id = rows::id_text(&reached.row(at)[..root.key.len()]);
                let why = look::ALONG.to_owned();
                others.push(Other { at: reached.subjects[at] as usize, id, why });
            }
        }
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        Ok(others)
    }

    async fn sharers(&self, connection: &mut PgConnection, roots: &Doomed, others: &mut Vec<Other>) -> Result<()> {
        let (root, tree) = (&self.compiled.root, &self.compiled.tree);
        for edge in tree.shared_links() {
            let why = edge.shared();
            for (at, id) in rows::sharing(connection, tree, root, edge, (roots, roots)).await? {
                others.push(Other { at: at as usize, id, why: why.clone() });
            }
        }
        Ok(())
    }

    /// Divides subjects into two sets of which none takes anybody of the other along, the first with the first `some` of
    /// them; the second is empty where all of them hang together.
    pub(super) async fn divide(
        &self,
        connection: &mut PgConnection,
        mut ready: Vec<Ready>,
        some: usize,
    ) -> Result<(Vec<Ready>, Vec<Ready>)> {
        let mut rest = ready.split_off(some.min(ready.len()));
        while !rest.is_empty() {
            let others = self.others(connection, &ready).await?;
            let along: HashSet<&str> = others.iter().map(|other| other.id.as_str()).collect();
            let (more, others): (Vec<Ready>, Vec<Ready>) =
                rest.into_iter().partition(|ready| along.contains(ready.candidate.subject_id.as_str()));
            rest = others;
            if more.is_empty() {
                break;
            }
            ready.extend(more);
        }
        Ok((ready, rest))
    }

    /// Two smaller sets of subjects who may go without each other; the second is empty where there are none.
    pub(super) async fn halve(
        &self,
        connection: &mut PgConnection,
        ready: Vec<Ready>,
    ) -> Result<(Vec<Ready>, Vec<Ready>)> {
        let half = ready.len() / 2;
        let (mut one, mut other) = self.divide(connection, ready, half).await?;
        if other.is_empty() {
            // Whoever takes all others along is among the first: perhaps the others go without them.
            one.rotate_left(half);
            let rest = one.len() - half;
            (one, other) = self.divide(connection, one, rest).await?;
        }
        match other.is_empty() && half > 1 {
            true => self.divide(connection, one, 1).await,
            false => Ok((one, other)),
        }
    }

    /// As many subjects as one transaction may take; the first that is too large by itself comes back alone.
    pub(super) async fn fit(
        &self,
        connection: &mut PgConnection,
        mut ready: Vec<Ready>,
    ) -> Result<(Vec<Ready>, Option<Uuid>)> {
        let mut left_out = None;
        while self.too_many(connection, &ready).await? {
            if let [one] = ready.as_slice() {
                left_out = Some(one.candidate.id);
                break;
            }
            let half = ready.split_off(ready.len().div_ceil(2));
            left_out = half.first().map(|first| first.candidate.id);
        }
        Ok((ready, left_out))
    }

    /// Whether these subjects have more rows, of all kinds, than one transaction may take, or more than a copy may hold at once.
    pub(super) async fn too_many(&self, connection: &mut PgConnection, ready: &[Ready]) -> Result<bool> {
        if ready.is_empty() {
            return Ok(false);
        }
        let tree = &self.compiled.tree;
        let roots = roots(ready, tree.nodes[0].read.len());
        let ids: Vec<&str> = ready.iter().map(|ready| ready.candidate.subject_id.as_str()).collect();
        let mut found = store::count_events(connection, &self.policy, &ids, LARGE + 1).await?;
        if found > LARGE {
            return Ok(true);
        }
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let extent = self.extent(connection, roots).await?;
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        found += extent.rows;
        Ok(found > LARGE || extent.bytes > COPY_BYTES)
    }

    /// What there is of subjects, up to the bound. Where the condition of a policy that keeps some raises an error over one, whose it is
    /// is left to the attempt, which asks the same.
    async fn extent(&self, connection: &mut PgConnection, roots: Doomed) -> Result<Extent> {
        if self.compiled.tree.edges.iter().all(|edge| edge.kept.is_none()) {
            return look::extent(connection, &self.compiled, roots, LARGE + 1).await;
        }
        rows::savepoint(connection).await?;
        let found = match look::extent(connection, &self.compiled, roots, LARGE + 1).await {
            Err(error) if error.is_of_a_row() => Extent::default(),
            found => found?,
        };
        rows::end_savepoint(connection, false).await?;
        Ok(found)
    }

    /// Who came to hang on these subjects since that was looked at does not go along.
    pub(super) fn nobody_else(&self, reached: &Doomed, ready: &[Ready]) -> Result<()> {
        match reached.len() == ready.len() {
            true => Ok(()),
            false => Err(Error::refused(look::ALONG)),
        }
    }

    /// An error that is a refusal where a subject on hold has one of the root's rows in its own tree.
    pub(super) async fn spares(&self, connection: &mut PgConnection, node: usize, rows: &Doomed) -> Result<()> {
        let table = &self.compiled.tree.nodes[node];
        let key: Vec<Ident> = table.key.iter().map(|column| column.name.clone()).collect();
        self.none_held(connection, node, (&table.read, &key, &key), rows, None).await
    }

    /// The same for rows that refer to the given rows of an edge's parent.
    pub(super) async fn spares_behind(
        &self,
        connection: &mut PgConnection,
        edge: &Edge,
        parents: &Doomed,
    ) -> Result<()> {
        let read = edge.compared(&self.compiled.tree.nodes[edge.parent].read);
        let link = (read.as_slice(), edge.parent_columns.as_slice(), edge.child_columns.as_slice());
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
            for condition in held.going(kept.map(|kept| kept.condition.as_str())) {
                let found = rows::any(connection, relation, (read, wanted, of), rows, &condition).await;
                if found.map_err(|error| gate::explain(error, std::slice::from_ref(held)))? {
                    return Err(Error::refused(held.would_go()));
                }
            }
        }
        rows::as_role(connection, self.compiled.role.as_ref()).await
    }
}
