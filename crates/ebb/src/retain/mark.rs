//! Marking: what the application soft-deleted itself becomes a deletion, and what it took back is no longer one.
//! Invariants: a deletion that is open for the soft delete that is there stays as it is; marking only adds what is missing
//! and closes what was taken back, also when it was soft-deleted again since; columns that mirror due times follow them, and a
//! row whose table refuses that keeps nobody else from being noticed; a deletion is its subject's present tenant's. What is closed names
//! nobody for long whose row the application deleted.
//! Alone on a server two batches are at work at a time, each on subjects of its own; after any trouble one at a time.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::compile::Compiled;
use super::entry;
use super::store::rows::{self, Care, Doomed, Refused, RootRow};
use super::store::{self, Candidate, Opened};
use crate::audit::Moment;
use crate::pg::Ident;
use crate::policy::Subjects;
use crate::spine::batch::{self, Batch};
use crate::spine::{Chore, Outcome, Recovery};
use crate::{Error, Result};

/// One run of marking.
pub(crate) struct Mark {
    policy: String,
    compiled: Compiled,
    due: Option<Ident>,
    /// Columns that say what became of an earlier deletion.
    told: Vec<Ident>,
    /// An index leads by the time of the soft delete.
    by_time: bool,
    /// Deletions that are opened later than this need no second look in the same run.
    began: Moment,
    way: Way,
    /// Where the batches at work set out, for when their transactions are lost.
    before: Option<Way>,
    /// Two at a time have not met any trouble yet.
    apart: bool,
    /// Whether a row has been met whose table refuses what mirrors its deletion.
    care: Care,
    /// Due times are to follow a changed policy.
    follows: bool,
    /// And nobody has held a deletion meanwhile.
    renews: bool,
    /// What is closed is still to be looked at.
    looks_back: bool,
}

/// How many batches' rows are read at once. Where many rows were deleted at the same moment and the index does not also lead
/// by the key, a read goes through all of them: it had better be seldom.
const READ_AHEAD: u64 = 10;
/// Closed deletions, and holds, that a run looks at; the next one goes on behind them.
const LOOK_BACK: i64 = 1_000;

#[derive(Debug, Clone)]
enum Way {
    /// Soft-deleted rows: those of a page from one on, then the page after it.
    Rows(Arc<rows::Page>, usize),
    /// Open deletions after a subject.
    Deletions(Option<String>),
    /// Every open deletion is due when its policy says.
    Renewed,
    Done,
}

impl Mark {
    pub(crate) fn new(
        policy: &str,
        subjects: &Subjects,
        compiled: Compiled,
        by_time: bool,
        (began, follows): (Moment, bool),
    ) -> Self {
        let due = subjects.mirror.due.as_ref().map(Ident::new);
        let told = [&subjects.mirror.notified, &subjects.mirror.attempted];
        let told = told.into_iter().flatten().map(Ident::new).collect();
        let way = Way::Rows(Arc::default(), 0);
        let policy = policy.to_owned();
        let (before, care) = (None, Care::None);
        let (apart, renews) = (true, follows);
        Self {
            policy,
            compiled,
            due,
            told,
            by_time,
            began,
            way,
            before,
            apart,
            care,
            follows,
            renews,
            looks_back: true,
        }
    }

    async fn step(&mut self, one: &mut Batch, beside: &mut Option<Batch>) -> Result<[u64; 2]> {
        self.before = Some(self.way.clone());
        self.enter(one).await?;
        let (changed, next) = match self.way.clone() {
            Way::Rows(page, from) if from == page.ids.len() => ([0, 0], self.read_on(one, &page).await?),
            Way::Rows(page, from) => self.open_rows(one, beside, page, from).await?,
            Way::Deletions(after) => self.close_taken_back(one, beside, after.as_deref()).await?,
            Way::Renewed => {
                store::renewed(one.connection(), &self.policy).await?;
                ([0, 0], Way::Done)
            }
            Way::Done => ([0, 0], Way::Done),
        };
        if matches!(next, Way::Done) && std::mem::take(&mut self.looks_back) {
            self.look_back(one).await?;
        }
        // In a batch of its own: by then both of a pair have counted.
        self.way = match next {
            Way::Done if std::mem::take(&mut self.renews) => Way::Renewed,
            next => next,
        };
        Ok(changed)
    }

    /// Opens deletions for the rows of a page from one on.
    async fn open_rows(
        &self,
        one: &mut Batch,
        beside: &mut Option<Batch>,
        page: Arc<rows::Page>,
        from: usize,
    ) -> Result<([u64; 2], Way)> {
        let last = page.ids.len();
        let to = last.min(from + one.size.max(1) as usize);
        if to == last {
            batch::let_go(beside).await;
        }
        let Some(other) = beside else {
            return Ok(([self.open(one, &page, from..to).await?, 0], Way::Rows(page, to)));
        };
        let end = last.min(to + other.size.max(1) as usize);
        let second = async |other: &mut Batch| {
            self.enter(other).await?;
            self.open(other, &page, to..end).await
        };
        let first = async |one: &mut Batch| self.open(one, &page, from..to).await;
        let (first, second) = batch::side_by_side((one, first), (other, second)).await;
        Ok(([first?, second?], Way::Rows(page.clone(), end)))
    }

    /// Closes open deletions after a subject that the application took back.
    async fn close_taken_back(
        &mut self,
        one: &mut Batch,
        beside: &mut Option<Batch>,
        after: Option<&str>,
    ) -> Result<([u64; 2], Way)> {
        let (page, next) = self.turn_page(one, after).await?;
        if !matches!(next, Way::Deletions(_)) {
            batch::let_go(beside).await;
        }
        let (Some(other), Way::Deletions(after)) = (beside, &next) else {
            return Ok(([self.close(one, &page).await?, 0], next));
        };
        self.enter(other).await?;
        let (another, next) = self.turn_page(other, after.as_deref()).await?;
        let this = &*self;
        let first = async |one: &mut Batch| this.close(one, &page).await;
        let second = async |other: &mut Batch| this.close(other, &another).await;
        let (first, second) = batch::side_by_side((one, first), (other, second)).await;
        Ok(([first?, second?], next))
    }

    /// What triggers of the table put off to the end of the transaction happens as they know it.
    async fn settle(&self, batch: &mut Batch) -> Result<()> {
        self.compiled.root.path.settle(batch.connection()).await
    }

    async fn enter(&self, batch: &mut Batch) -> Result<()> {
        rows::bound(batch.connection(), &self.compiled.root.path).await
    }

    /// Reads the next soft-deleted rows.
    async fn read_on(&self, batch: &mut Batch, page: &rows::Page) -> Result<Way> {
        let (after, most) = (page.last.as_deref(), batch.size.max(1) * READ_AHEAD);
        let (connection, role) = (batch.connection(), self.compiled.role.as_ref());
        rows::as_role(connection, role).await?;
        let next = rows::soft_deleted(connection, &self.compiled.root, self.by_time, after, most).await?;
        rows::back_from_role(connection, role).await?;
        Ok(if next.ids.is_empty() { Way::Deletions(None) } else { Way::Rows(Arc::new(next), 0) })
    }

    /// Opens deletions for soft-deleted rows.
    async fn open(&self, batch: &mut Batch, page: &rows::Page, some: Range<usize>) -> Result<u64> {
        let role = self.compiled.role.as_ref();
        let (root, columns) = (&self.compiled.root, self.compiled.root.key.len());
        let connection = batch.connection();
        let ids = &page.ids[some.clone()];
        let found = store::not_open(connection, &self.policy, ids, &page.since[some]).await?;
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
            return Ok(0);
        }
        // Locked, so that what is opened is soft-deleted at that moment; rows that others hold come next time.
        rows::as_role(connection, role).await?;
        let locked = rows::lock_roots(connection, root, &root.key, &missing).await?;
        rows::back_from_role(connection, role).await?;
        let mut deleted = rows::Seen::default();
        let mut taken_back = Vec::new();
        for row in locked {
            if let Some(deleted_at) = row.deleted_at {
                deleted.ids.push(ids[row.subject as usize].clone());
                deleted.deleted_at.push(deleted_at);
                deleted.tenants.push(row.tenant);
                let over = over.get(&row.subject).copied();
                // Where the status says deleted since the earlier deletion, that one knows what it replaced.
                let before = earlier.iter().find(|locked| over == Some(locked.id));
                deleted.former.push(row.former.or_else(|| before.and_then(|before| before.former.clone())));
                taken_back.extend(over);
            }
        }
        store::close_restored(connection, &taken_back).await?;
        let opened = store::open_deletions(connection, &self.policy, &deleted).await?;
        if opened.is_empty() {
            return Ok(0);
        }
        let status = root.status.as_ref().map(|status| (&status.column, status.deleted.as_str()));
        self.mirror(connection, &opened, status, &self.told).await?;
        if !taken_back.is_empty() {
            self.record(batch, "restore", taken_back.len() as i64).await?;
        }
        self.record(batch, "mark", opened.len() as i64).await?;
        self.settle(batch).await?;
        Ok(opened.len() as u64)
    }

    /// The next open deletions that this run did not open itself, due when their policy says.
    async fn turn_page(&mut self, batch: &mut Batch, after: Option<&str>) -> Result<(Vec<Opened>, Way)> {
        let size = batch.size.max(1);
        let mut page = store::open_page(batch.connection(), &self.policy, after, size, self.began).await?;
        if self.follows {
            let ids: Vec<Uuid> = page.iter().map(|open| open.candidate.id).collect();
            self.renews &= store::renew_due(batch.connection(), &ids).await?;
            page = store::open_page(batch.connection(), &self.policy, after, size, self.began).await?;
        }
        let next = match page.last() {
            Some(last) if page.len() as u64 == size => Way::Deletions(Some(last.candidate.subject_id.clone())),
            _ => Way::Done,
        };
        Ok((page.into_iter().filter(|one| !one.since).collect(), next))
    }

    /// Closes deletions whose soft delete the application has taken back; the others follow their tenants, and due times are
    /// mirrored.
    async fn close(&self, batch: &mut Batch, page: &[Opened]) -> Result<u64> {
        if page.is_empty() {
            return Ok(0);
        }
        let (connection, root) = (batch.connection(), &self.compiled.root);
        let ids = root.named(page.iter().map(|open| open.candidate.subject_id.as_str()))?;
        let tenants: Vec<Option<String>> = page.iter().map(|open| open.tenant.clone()).collect();
        rows::as_role(connection, self.compiled.role.as_ref()).await?;
        let rows::Changed { alive, elsewhere, gone } = rows::changed(connection, root, &ids, &tenants).await?;
        let mut moved = Vec::new();
        if let Some(column) = &self.due {
            let due: Vec<Moment> = page.iter().map(|open| open.candidate.due_at).collect();
            moved = rows::out_of_step(connection, root, column, &ids, &due).await?;
        }
        rows::back_from_role(connection, self.compiled.role.as_ref()).await?;
        let of = |found: Vec<i32>| found.into_iter().map(|at| page[at as usize].candidate.id).collect::<Vec<Uuid>>();
        let back = self.take_back(connection, &of(alive)).await?;
        self.keep_in_step(connection, &of(moved)).await?;
        self.follow(connection, &of(elsewhere)).await?;
        self.note_gone(connection, page, gone).await?;
        if back > 0 {
            self.record(batch, "restore", back as i64).await?;
        }
        self.settle(batch).await?;
        Ok(back)
    }

    /// Closes deletions of subjects who live, and lets no column say that they do not. Rows that others hold come next time.
    async fn take_back(&self, connection: &mut PgConnection, alive: &[Uuid]) -> Result<u64> {
        let (open, rows) = self.lock(connection, alive).await?;
        let back: Vec<&Candidate> =
            rows.iter().filter(|row| row.deleted_at.is_none()).map(|row| &open[row.subject as usize]).collect();
        store::close_restored(connection, &back.iter().map(|open| open.id).collect::<Vec<_>>()).await?;
        let (root, role) = (&self.compiled.root, self.compiled.role.as_ref());
        let ids = root.named(back.iter().map(|candidate| candidate.subject_id.as_str()))?;
        let former: Vec<Option<String>> = back.iter().map(|candidate| candidate.former.clone()).collect();
        let cleared: Vec<Ident> = self.due.iter().chain(&self.told).cloned().collect();
        rows::as_role(connection, role).await?;
        let refused = rows::unmirror(self.care, connection, root, &ids, &former, &cleared).await?;
        rows::back_from_role(connection, role).await?;
        self.note(refused);
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

    /// Says of deletions whose rows somebody else deleted that they wait for nobody, and takes that back where a row is there again.
    async fn note_gone(&self, connection: &mut PgConnection, page: &[Opened], gone: Vec<i32>) -> Result<()> {
        let gone: HashSet<i32> = gone.into_iter().collect();
        let is_gone = |at: usize| gone.contains(&(at as i32));
        let news = page.iter().enumerate().filter(|(at, open)| is_gone(*at) != open.gone);
        let news: HashMap<Uuid, bool> = news.map(|(at, open)| (open.candidate.id, is_gone(at))).collect();
        let ids: Vec<Uuid> = news.keys().copied().collect();
        let open: Vec<Uuid> = store::lock_open(connection, &ids).await?.into_iter().map(|open| open.id).collect();
        let why: Vec<Option<String>> = open.iter().map(|id| news[id].then(|| store::GONE.to_owned())).collect();
        store::note_waiting(connection, &open, &why, &vec![None; open.len()]).await
    }

    /// Former deletions and holds name nobody whose row the application has deleted since, nor what no row of the table can be called, such
    /// as an id from before the key had other columns.
    async fn look_back(&self, batch: &mut Batch) -> Result<()> {
        let connection = batch.connection();
        let former = store::former_subjects(connection, &self.policy, LOOK_BACK).await?;
        let mut pending = Vec::from_iter((!former.is_empty()).then_some(former));
        let mut gone = Vec::new();
        while let Some(mut some) = pending.pop() {
            rows::savepoint(connection).await?;
            let there = self.there(connection, &some).await;
            rows::end_savepoint(connection, there.is_ok()).await?;
            match there {
                Ok(there) => {
                    let there: HashSet<i32> = there.into_iter().collect();
                    gone.extend(
                        some.into_iter().enumerate().filter(|(at, _)| !there.contains(&(*at as i32))).map(|(_, id)| id),
                    );
                }
                Err(error) if !error.is_usage() && !error.is_of_a_row() => return Err(error),
                Err(_) if some.len() == 1 => gone.append(&mut some),
                Err(_) => {
                    let rest = some.split_off(some.len() / 2);
                    pending.extend([rest, some]);
                }
            }
        }
        if gone.is_empty() {
            return Ok(());
        }
        let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
        let forgotten = store::forget_former(connection, &self.policy, &gone).await?;
        if forgotten > 0 {
            self.record(batch, "forget", forgotten).await?;
        }
        Ok(())
    }

    async fn there(&self, connection: &mut PgConnection, ids: &[String]) -> Result<Vec<i32>> {
        let (root, role) = (&self.compiled.root, self.compiled.role.as_ref());
        let named = root.named(ids.iter().map(String::as_str))?;
        rows::as_role(connection, role).await?;
        let there = rows::existing(connection, root, &named).await?;
        rows::back_from_role(connection, role).await?;
        Ok(there)
    }

    /// Whoever is another tenant's by now is due by the terms of that one.
    async fn follow(&self, connection: &mut PgConnection, elsewhere: &[Uuid]) -> Result<()> {
        let (open, rows) = self.lock(connection, elsewhere).await?;
        let deleted = rows.into_iter().filter(|row| row.deleted_at.is_some());
        let (ids, tenants): (Vec<Uuid>, Vec<Option<String>>) =
            deleted.map(|row| (open[row.subject as usize].id, row.tenant)).unzip();
        let moved = store::move_tenants(connection, &ids, &tenants).await?;
        self.mirror(connection, &moved, None, &[]).await
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
        let refused = rows::mirror(self.care, connection, root, &ids, due, status, cleared).await?;
        rows::back_from_role(connection, role).await?;
        self.note(refused);
        Ok(())
    }

    /// What the server says of a row may name whose it is, and stays out of the log.
    fn note(&self, Refused { rows, sqlstate }: Refused) {
        if rows > 0 {
            let policy = &self.policy;
            tracing::warn!(
                policy,
                rows,
                sqlstate,
                "The table refuses columns that mirror deletions; they count without"
            );
        }
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
        async {
            let [changed, _] = self.step(batch, &mut None).await?;
            Ok(Outcome { changed, more: !matches!(self.way, Way::Done) })
        }
        .boxed()
    }

    fn pairs(&self) -> bool {
        self.apart
            && match &self.way {
                Way::Rows(page, from) => *from < page.ids.len(),
                Way::Deletions(_) => true,
                Way::Renewed | Way::Done => false,
            }
    }

    fn run_two<'a>(
        &'a mut self,
        one: &'a mut Batch,
        other: &'a mut Option<Batch>,
    ) -> BoxFuture<'a, Result<[Outcome; 2]>> {
        async {
            let changed = self.step(one, other).await?;
            let more = !matches!(self.way, Way::Done);
            Ok(changed.map(|changed| Outcome { changed, more }))
        }
        .boxed()
    }

    fn recover(&mut self, error: &Error) -> Recovery {
        self.apart = false;
        if let Some(before) = self.before.take() {
            self.way = before;
        }
        if error.is_of_a_row() && self.care == Care::None {
            self.care = Care::RowByRow;
            return Recovery::Again;
        }
        Recovery::of(error)
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
