//! Marking: what the application soft-deleted itself becomes a deletion, and what it took back is no longer one.
//! Invariants: a deletion that is open for the soft delete that is there stays as it is; marking only adds what is missing
//! and closes what was taken back, also when it was soft-deleted again since; columns that mirror due times follow them.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::compile::Compiled;
use super::entry;
use super::store::rows::{self, Doomed, RootRow};
use super::store::{self, Candidate};
use crate::Result;
use crate::audit::Moment;
use crate::pg::Ident;
use crate::policy::Subjects;
use crate::spine::batch::Batch;
use crate::spine::{Chore, Outcome};

/// One run of marking.
pub(crate) struct Mark {
    policy: String,
    compiled: Compiled,
    due: Option<Ident>,
    status: Option<rows::Standing>,
    /// Columns that say what became of an earlier deletion.
    told: Vec<Ident>,
    /// An index leads by the time of the soft delete.
    by_time: bool,
    way: Way,
    opened: u64,
}

/// How many batches' rows are read at once. Where many rows were deleted at the same moment and the index does not also lead
/// by the key, a read goes through all of them: it had better be seldom.
const READ_AHEAD: u64 = 10;

#[derive(Debug, Clone)]
enum Way {
    /// Soft-deleted rows: those of a page from one on, then the page after it.
    Rows(Arc<rows::Page>, usize),
    /// Open deletions after a subject.
    Deletions(Option<String>),
    Done,
}

impl Mark {
    pub(crate) fn new(policy: &str, subjects: &Subjects, compiled: Compiled, by_time: bool) -> Self {
        let status = subjects.status.as_ref().map(|status| rows::Standing {
            column: Ident::new(&status.column),
            deleted: status.deleted.clone(),
            active: status.active.clone(),
        });
        let due = subjects.mirror.due.as_ref().map(Ident::new);
        let told = [&subjects.mirror.notified, &subjects.mirror.attempted];
        let told = told.into_iter().flatten().map(Ident::new).collect();
        let way = Way::Rows(Arc::default(), 0);
        Self { policy: policy.to_owned(), compiled, due, status, told, by_time, way, opened: 0 }
    }

    async fn step(&mut self, batch: &mut Batch) -> Result<Outcome> {
        let size = batch.size.max(1);
        rows::bound(batch.connection(), &self.compiled.root.relation, std::time::Duration::from_millis(200)).await?;
        let (changed, next) = match self.way.clone() {
            Way::Rows(page, from) => self.open(batch, page, from, size).await?,
            Way::Deletions(after) => self.close(batch, after, size).await?,
            Way::Done => (0, Way::Done),
        };
        self.way = next;
        Ok(Outcome { changed, more: !matches!(self.way, Way::Done) })
    }

    /// Opens deletions for the next soft-deleted rows.
    async fn open(&mut self, batch: &mut Batch, page: Arc<rows::Page>, from: usize, size: u64) -> Result<(u64, Way)> {
        let role = self.compiled.role.clone();
        let (root, columns) = (&self.compiled.root, self.compiled.root.key.len());
        let connection = batch.connection();
        if from == page.ids.len() {
            rows::as_role(connection, role.as_ref()).await?;
            let (after, most) = (page.last.as_deref(), size * READ_AHEAD);
            let next = rows::soft_deleted(connection, root, self.by_time, after, most).await?;
            rows::back_from_role(connection, role.as_ref()).await?;
            return Ok((0, if next.ids.is_empty() { Way::Deletions(None) } else { Way::Rows(Arc::new(next), 0) }));
        }
        let to = page.ids.len().min(from + size as usize);
        let (ids, next) = (&page.ids[from..to], Way::Rows(page.clone(), to));
        let found = store::not_open(connection, &self.policy, ids, &page.since[from..to]).await?;
        // Deletions are locked before their subjects' rows, as everybody does it.
        let earlier: Vec<Uuid> = found.iter().filter_map(|(_, earlier)| *earlier).collect();
        let earlier = store::lock_open(connection, &earlier).await?;
        let mut missing = Doomed::with(columns);
        let mut over: HashMap<i32, Uuid> = HashMap::new();
        for (at, open) in found {
            match open {
                Some(open) if !earlier.iter().any(|locked| locked.id == open) => continue,
                Some(open) => over.extend([(at, open)]),
                None => {}
            }
            missing.push(rows::id_parts(&ids[at as usize], columns)?, at);
        }
        if missing.is_empty() {
            return Ok((0, next));
        }
        // Locked, so that what is opened is soft-deleted at that moment; rows that others hold come next time.
        rows::as_role(connection, role.as_ref()).await?;
        let locked = rows::lock_roots(connection, root, &root.key, &missing).await?;
        rows::back_from_role(connection, role.as_ref()).await?;
        let mut deleted = rows::Seen::default();
        let mut taken_back = Vec::new();
        for row in locked {
            if let Some(deleted_at) = row.deleted_at {
                deleted.ids.push(ids[row.subject as usize].clone());
                deleted.deleted_at.push(deleted_at);
                deleted.tenants.push(row.tenant);
                taken_back.extend(over.get(&row.subject).copied());
            }
        }
        store::close_restored(connection, &taken_back).await?;
        let opened = store::open_deletions(connection, &self.policy, &deleted).await?;
        if opened.is_empty() {
            return Ok((0, next));
        }
        let status = self.status.as_ref().map(|status| (&status.column, status.deleted.as_str()));
        self.mirror(connection, &opened, status, &self.told).await?;
        if !taken_back.is_empty() {
            self.record(batch, "restore", taken_back.len() as i64).await?;
        }
        self.record(batch, "mark", opened.len() as i64).await?;
        self.opened += opened.len() as u64;
        Ok((opened.len() as u64, next))
    }

    /// Closes deletions whose soft delete the application has taken back; of the others, due times are mirrored.
    async fn close(&mut self, batch: &mut Batch, after: Option<String>, size: u64) -> Result<(u64, Way)> {
        let connection = batch.connection();
        let page = store::open_page(connection, &self.policy, after.as_deref(), size).await?;
        let Some(last) = page.last().map(|candidate| candidate.subject_id.clone()) else { return Ok((0, Way::Done)) };
        let root = &self.compiled.root;
        let ids = root.named(page.iter().map(|candidate| candidate.subject_id.as_str()))?;
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let alive = rows::alive(connection, root, &ids).await?;
        let mut moved = Vec::new();
        if let Some(column) = &self.due {
            let due: Vec<Moment> = page.iter().map(|candidate| candidate.due_at).collect();
            moved = rows::out_of_step(connection, root, column, &ids, &due).await?;
        }
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        let of = |found: Vec<i32>| found.into_iter().map(|at| page[at as usize].id).collect::<Vec<Uuid>>();
        let back = self.take_back(connection, &of(alive)).await?;
        self.keep_in_step(connection, &of(moved)).await?;
        if back > 0 {
            self.record(batch, "restore", back as i64).await?;
        }
        let next = if (page.len() as u64) < size { Way::Done } else { Way::Deletions(Some(last)) };
        Ok((back, next))
    }

    /// Closes deletions of subjects who live, and lets no column say that they do not. Rows that others hold come next time.
    async fn take_back(&self, connection: &mut PgConnection, alive: &[Uuid]) -> Result<u64> {
        let (open, rows) = self.lock(connection, alive).await?;
        let back: Vec<&Candidate> =
            rows.iter().filter(|row| row.deleted_at.is_none()).map(|row| &open[row.subject as usize]).collect();
        store::close_restored(connection, &back.iter().map(|open| open.id).collect::<Vec<_>>()).await?;
        let (root, role) = (&self.compiled.root, self.compiled.role.as_ref());
        let ids = root.named(back.iter().map(|candidate| candidate.subject_id.as_str()))?;
        let cleared: Vec<Ident> = self.due.iter().chain(&self.told).cloned().collect();
        rows::as_role(connection, role).await?;
        rows::unmirror(connection, root, &ids, self.status.as_ref(), &cleared).await?;
        rows::back_from_role(connection, role).await?;
        Ok(back.len() as u64)
    }

    /// Locks open deletions and then their subjects' rows, passing by what others hold; rows say which deletion they are of.
    async fn lock(&self, connection: &mut PgConnection, ids: &[Uuid]) -> Result<(Vec<Candidate>, Vec<RootRow>)> {
        let open = store::lock_open(connection, ids).await?;
        if open.is_empty() {
            return Ok((open, Vec::new()));
        }
        let (root, role) = (&self.compiled.root, self.compiled.role.as_ref());
        let named = root.named(open.iter().map(|candidate| candidate.subject_id.as_str()))?;
        rows::as_role(connection, role).await?;
        let locked = rows::lock_roots(connection, root, &root.key, &named).await?;
        rows::back_from_role(connection, role).await?;
        Ok((open, locked))
    }

    /// Due times move with the policy, with a tenant's terms and with holds: what mirrors them follows here.
    async fn keep_in_step(&self, connection: &mut PgConnection, moved: &[Uuid]) -> Result<()> {
        let (open, rows) = self.lock(connection, moved).await?;
        let deleted = rows.iter().filter(|row| row.deleted_at.is_some());
        let mine: Vec<Candidate> = deleted.map(|row| open[row.subject as usize].clone()).collect();
        self.mirror(connection, &mine, None, &[]).await
    }

    /// Writes what columns say of deletions whose subjects' rows are locked.
    async fn mirror(
        &self,
        connection: &mut PgConnection,
        open: &[Candidate],
        status: Option<(&Ident, &str)>,
        cleared: &[Ident],
    ) -> Result<()> {
        let (root, role) = (&self.compiled.root, self.compiled.role.as_ref());
        let ids = root.named(open.iter().map(|candidate| candidate.subject_id.as_str()))?;
        let due: Vec<Moment> = open.iter().map(|candidate| candidate.due_at).collect();
        let due = self.due.as_ref().map(|column| (column, &due[..]));
        rows::as_role(connection, role).await?;
        rows::mirror(connection, root, &ids, due, status, cleared).await?;
        rows::back_from_role(connection, role).await
    }

    async fn record(&self, batch: &mut Batch, action: &str, rows: i64) -> Result<()> {
        let mut entry = entry(batch, action, "application");
        entry.rows = rows;
        entry.insert(batch.connection()).await?;
        Ok(())
    }
}

impl Chore for Mark {
    fn run_batch<'a>(&'a mut self, batch: &'a mut Batch) -> BoxFuture<'a, Result<Outcome>> {
        self.step(batch).boxed()
    }

    fn cutoff(&self) -> Option<Timestamp> {
        None
    }

    fn shape(&self) -> Option<String> {
        Some(
            if self.by_time { "by the time of the soft delete" } else { "by the key: no index on the soft delete" }
                .into(),
        )
    }
}
