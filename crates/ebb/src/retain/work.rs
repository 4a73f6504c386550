//! retain as the spine sees it: marking and erasing, each one unit of a policy.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use sqlx::PgConnection;

use super::compile::{self, Compiled};
use super::erase;
use super::keeper::Surroundings;
use super::mark::Mark;
use super::snapshot::Copier;
use super::store::Fences;
use super::warn::Warn;
use super::{link, plan, store};
use crate::audit::{self, PeriodKeys, SubjectKey};
use crate::pg::Database;
use crate::pg::catalog::{self, Table};
use crate::policy::anchor;
use crate::policy::{self, BatchSize, Cadence, Kind, Mode, Policy, Retain, Stored, Subjects, human};
use crate::spine::brake;
use crate::spine::pacing::Pacer;
use crate::spine::unit::{ChoreKind, Unit};
use crate::spine::work::{Prepared, Status, Summary, Work};
use crate::words::there_are;
use crate::{Error, Result};

/// What a batch of erasing aims at alone on the server: some thirty statements are sent for it, however many subjects it has,
/// and the rows that it locks are of subjects who are gone already.
const ERASE_ALONE_FOR: Duration = Duration::from_millis(200);

/// Marking, warning or erasing the subjects of one policy.
pub(crate) struct RetainWork {
    unit: Unit,
    policy: Arc<Retain>,
    subjects: Arc<Subjects>,
    stored: Stored,
    table: Table,
    outside: Outside,
}

/// What a node has that the database does not know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outside {
    pub(crate) subject_key: Option<Arc<SubjectKey>>,
    pub(crate) period_keys: Option<PeriodKeys>,
    /// Where people reach its pages.
    pub(crate) public_url: Option<Arc<str>>,
}

/// The units of a policy over subjects.
pub(crate) fn units(policy: Retain, stored: &Stored, table: &Table, outside: &Outside) -> Vec<Arc<dyn Work>> {
    let Some(subjects) = policy.subjects().cloned().map(Arc::new) else { return Vec::new() };
    let policy = Arc::new(policy);
    let unit = |chore| {
        Arc::new(RetainWork {
            unit: Unit { chore, policy: stored.name.clone(), leaf: table.relation.label() },
            policy: policy.clone(),
            subjects: subjects.clone(),
            stored: stored.clone(),
            table: table.clone(),
            outside: outside.clone(),
        }) as Arc<dyn Work>
    };
    let warn = subjects.warning.is_some().then(|| unit(ChoreKind::Warn));
    [Some(unit(ChoreKind::Mark)), warn, Some(unit(ChoreKind::Erase))].into_iter().flatten().collect()
}

/// The tree must be the one that somebody approved.
pub(crate) async fn approved(connection: &mut PgConnection, policy: &str, compiled: &Compiled) -> Result<()> {
    let Some(approved) = store::approved(connection, policy).await? else {
        return Err(Error::config("its tree was never approved").with_hint("run `ebb apply`"));
    };
    let differences = approved.differences(&compiled.tree.shape());
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::config(format!(
        "what hangs on {} has changed since it was approved: {}",
        compiled.root.relation.label(),
        differences.join("; ")
    ))
    .with_hint("look at it with `ebb plan`, and approve it with `ebb apply`"))
}

/// Whether a node would begin a run of a policy: it can be compiled, and its tree is the approved one.
pub(crate) async fn would_start(connection: &mut PgConnection, policy: &Retain) -> Result<()> {
    let Some(subjects) = policy.subjects() else { return Ok(()) };
    let compiled = compile::compile(connection, policy, subjects).await?;
    approved(connection, policy.name.as_str(), &compiled).await?;
    let fences = store::fences(connection, &compiled.tree).await?;
    keepers_hold(connection, &fences).await
}

/// Policies that keep rows of subjects count from the columns that somebody meant, or nobody knows which rows those are.
async fn keepers_hold(connection: &mut PgConnection, fences: &Fences) -> Result<()> {
    let stored = policy::store::all(connection).await?;
    let keeps =
        |stored: &&Stored| stored.kind == Kind::Retain && stored.enabled && fences.keepers.contains(&stored.name);
    for keeper in stored.iter().filter(keeps) {
        let policy = keeper.policy()?;
        if matches!(&policy, Policy::Retain(retain) if retain.subjects().is_none()) {
            let whose = |error: Error| error.context(format!("policy {} keeps rows of its subjects", keeper.name));
            anchor::holds(connection, &policy).await.map_err(whose)?;
        }
    }
    Ok(())
}

impl RetainWork {
    async fn start(&self, connection: &mut PgConnection) -> Result<Prepared> {
        anchor::holds(connection, &self.stored.policy()?).await?;
        let compiled = compile::compile(connection, &self.policy, &self.subjects).await?;
        approved(connection, &self.unit.policy, &compiled).await?;
        match self.unit.chore {
            ChoreKind::Mark => self.mark(connection, compiled).await,
            ChoreKind::Warn => self.warn(connection, compiled).await,
            _ => self.erase(connection, compiled).await,
        }
    }

    async fn mark(&self, connection: &mut PgConnection, compiled: Compiled) -> Result<Prepared> {
        if self.policy.mode == Mode::Observe {
            return Ok(Prepared::Idle);
        }
        let by_time = compile::leads_by_time(connection, &compiled).await?;
        // The time of the clock that deletions are opened with, which a test does not move.
        let began = store::fences(connection, &compiled.tree).await?.at;
        let renews = store::renews(connection, &self.unit.policy).await?;
        let chore = Mark::new(&self.unit.policy, &self.subjects, compiled, by_time, (began, renews));
        Ok(Prepared::Go { chore: Box::new(chore), pacer: Pacer::adaptive(2_000, 10, 50_000), due: None })
    }

    async fn warn(&self, connection: &mut PgConnection, compiled: Compiled) -> Result<Prepared> {
        let Some(warning) = self.subjects.warning.as_ref().filter(|_| self.policy.mode == Mode::Enforce) else {
            return Ok(Prepared::Idle);
        };
        let key = self.key(connection, "warns subjects").await?;
        // Another node may know where it is reached: this run fails, the policy goes on.
        let place = link::Place::of(warning.restore_url.as_deref(), self.outside.public_url.as_deref())
            .map_err(|error| Error::refused(error.to_string()).with_hint(error.hint().unwrap_or_default()))?;
        let name = &self.unit.policy;
        let chore = Warn::prepare(connection, name, &self.subjects, warning, compiled, (key, place)).await?;
        Ok(Prepared::Go { chore: Box::new(chore), pacer: Pacer::adaptive(200, 10, 5_000), due: None })
    }

    /// The key that links and pseudonyms are made with. Another node may have it: then this run fails, and the policy
    /// goes on.
    async fn key(&self, connection: &mut PgConnection, does: &str) -> Result<Arc<SubjectKey>> {
        let policy = &self.unit.policy;
        let key = self.outside.subject_key.clone().ok_or_else(|| {
            Error::refused(format!("policy {policy} {does}, and this node has no subject key"))
                .with_hint("set subject_key in [audit] to the key that the other nodes have")
        })?;
        audit::use_subject_key(connection, &key)
            .await
            .map_err(|error| error.context(format!("policy {policy} {does}")))?;
        Ok(key)
    }

    /// What keeps sealed copies, where the policy asks for them. A node without the keys leaves it to another.
    fn copier(&self) -> Result<Option<Copier>> {
        let Some(term) = self.subjects.snapshot_for else { return Ok(None) };
        let keys = self.outside.period_keys.clone().ok_or_else(|| {
            let policy = &self.unit.policy;
            Error::refused(format!("policy {policy} keeps a sealed copy, and this node has no period keys"))
                .with_hint("set period_keys in [audit] to the directory that the other nodes have")
        })?;
        Ok(Some(Copier::new(keys, &self.unit.policy, term, &self.policy.zone)))
    }

    async fn erase(&self, connection: &mut PgConnection, compiled: Compiled) -> Result<Prepared> {
        let due = store::count_due(connection, &self.unit.policy).await?;
        if self.policy.mode == Mode::Observe {
            // Nobody marks for a policy that only observes.
            let unmarked = plan::unmarked(connection, &self.policy, &self.subjects, Surroundings::STORED).await?;
            let unmarked = unmarked.unwrap_or_default().len() as u64;
            let due = due + if self.subjects.warning.is_none() { unmarked } else { 0 };
            let note = format!("{} due; mode = \"observe\" erases nothing", there_are(due, "subject"));
            return Ok(Prepared::Ended { status: Status::Observed, due, note });
        }
        let key = self.key(connection, "erases subjects").await?;
        let size = (due, compiled.tree.nodes[0].tuples);
        let asks = brake::check(connection, &self.unit.policy, &self.policy.brake, size, "subjects").await?;
        if let Some(asks) = asks {
            return Ok(asks);
        }
        let pacer = match self.policy.batch {
            BatchSize::Fixed { rows, pause } => Pacer::fixed(rows, pause),
            BatchSize::Adaptive => Pacer::adaptive(250, 1, 5_000).alone_for(ERASE_ALONE_FOR),
        };
        let copier = self.copier()?;
        if let Some(copier) = copier.as_ref().filter(|_| due > 0) {
            copier.prepare(connection).await?;
        }
        let fences = store::fences(connection, &compiled.tree).await?;
        keepers_hold(connection, &fences).await?;
        // Once more, so that the fences are those of this tree, and whatever changes from here on is beyond them.
        let again = compile::compile(connection, &self.policy, &self.subjects).await?;
        if fences.leaves || !compiled.tree.whole_shape().differences(&again.tree.whole_shape()).is_empty() {
            return Err(
                Error::refused("what hangs on its table changes just now").with_hint("the next run looks again")
            );
        }
        let chore = erase::Pair::new(&self.unit.policy, (again, fences), key, copier);
        Ok(Prepared::Go { chore: Box::new(chore), pacer, due: Some(due) })
    }

    fn cadence(&self) -> Cadence {
        match self.unit.chore {
            ChoreKind::Mark | ChoreKind::Warn => Cadence::Every(self.subjects.mark_every),
            _ => self.subjects.erase.clone(),
        }
    }
}

impl Work for RetainWork {
    fn unit(&self) -> &Unit {
        &self.unit
    }

    fn stored(&self) -> Option<&Stored> {
        Some(&self.stored)
    }

    fn leaf(&self) -> u32 {
        self.table.oid
    }

    fn timeout(&self) -> Duration {
        self.policy.batch_timeout
    }

    fn interval(&self) -> Duration {
        match self.cadence() {
            Cadence::Every(every) => every,
            Cadence::At(_) => Duration::from_secs(24 * 3600),
        }
    }

    fn closed_until(&self, now: Timestamp) -> Option<Timestamp> {
        let window = self.policy.window.as_ref().filter(|_| self.unit.chore == ChoreKind::Erase)?;
        let zone = self.policy.zone.rules();
        (!window.contains(now, zone)).then(|| window.next_open(now, zone))
    }

    fn next_at(&self, now: Timestamp, _found: u64) -> Timestamp {
        let next = match self.cadence() {
            Cadence::Every(every) => now.saturating_add(every).unwrap_or(Timestamp::MAX),
            at @ Cadence::At(_) => at.next_after(now, self.policy.zone.rules()),
        };
        self.closed_until(next).unwrap_or(next)
    }

    fn first_at(&self, now: Timestamp) -> Option<Timestamp> {
        matches!(self.cadence(), Cadence::At(_)).then(|| self.next_at(now, 0))
    }

    fn prepare<'a>(&'a self, connection: &'a mut PgConnection) -> BoxFuture<'a, Result<Prepared>> {
        self.start(connection).boxed()
    }

    /// What was allowed was allowed for this run: a run to the end has used it up, whatever it passed by.
    fn after_run<'a>(&'a self, database: &'a Database, summary: &'a Summary) -> BoxFuture<'a, Result<()>> {
        async move {
            let taken = match summary.status {
                Status::Success => summary.due.unwrap_or_default(),
                _ => summary.rows,
            };
            if self.unit.chore == ChoreKind::Erase && taken > 0 {
                let mut tx = database.read().await?;
                brake::spend(&mut tx, &self.unit.policy, taken).await?;
                tx.commit().await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn report(&self, summary: &Summary) {
        let (policy, table, status) = (&summary.policy, &summary.table, summary.status.as_str());
        let duration = human(Duration::from_millis(summary.took.as_millis() as u64));
        let note = summary.note.as_deref().unwrap_or_default();
        let what = match self.unit.chore {
            ChoreKind::Mark => "Soft deletes noticed",
            ChoreKind::Warn => "Deletion warnings scheduled",
            _ => "Hard delete completed",
        };
        match summary.status {
            Status::Success if summary.rows == 0 => {
                tracing::debug!(policy, table, rows = 0, duration, status, "{what}")
            }
            Status::Success => {
                tracing::info!(
                    policy,
                    table,
                    rows = summary.rows,
                    batches_completed = summary.batches,
                    skipped = summary.skipped,
                    failed = summary.failed,
                    duration,
                    status,
                    "{what}"
                );
            }
            Status::Failed => {
                let failed = match self.unit.chore {
                    ChoreKind::Mark => "Failed to notice soft deletes",
                    ChoreKind::Warn => "Failed to schedule deletion warnings",
                    _ => "Failed to erase subjects",
                };
                tracing::error!(
                    policy,
                    table,
                    error = note,
                    rows_deleted_before_error = summary.rows,
                    status,
                    "{failed}"
                );
            }
            Status::Stopped => tracing::info!(
                policy,
                table,
                rows = summary.rows,
                duration,
                status,
                reason = note,
                "Stopped before the end; the rest goes next time"
            ),
            Status::Braked => {
                tracing::warn!(policy, table, due = summary.due, status, reason = note, "Stopped by the brake")
            }
            Status::Observed => tracing::info!(policy, table, due = summary.due, status, "Observed what is due"),
        }
    }
}

/// The table of a policy, as the catalog has it.
pub(crate) async fn table(connection: &mut PgConnection, policy: &Retain) -> Result<Table> {
    catalog::table(connection, &policy.table).await
}
