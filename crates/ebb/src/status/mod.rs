//! `ebb status`: policies, what is due, how the last run went, who works on it and what holds it up. The same look keeps
//! the gauges and samples of a node fresh. Invariant: every look at a user's table is bounded in time; where it takes too
//! long the last known numbers are shown, and said to be that.

mod storage;
mod store;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::audit::{self, Moment};
use crate::expire::due::Clock;
use crate::pg::Database;
use crate::plan::survey::{self, Surveyed};
use crate::policy::{Expire, Kind, Policy};
use crate::retain::Backlog;
use crate::schedule::EventsStatus;
use crate::spine::metrics;
use crate::{Engine, Error, Result, gate, pg};
pub use storage::{PolicyStorage, TenantStorage};
pub use store::NodeStatus;
pub(crate) use store::{Look, PolicyRow, UnitRow, clocks, nodes, policies, units};

/// All looks at tables together take no longer than about this.
const LOOK_FOR: Duration = Duration::from_secs(8);
/// Unsealed records are counted no further.
const COUNT_UNSEALED: i64 = 100_000;
/// Due subjects of a policy are counted no further.
pub const COUNT_SUBJECTS: u64 = 100_000;

/// How everything stands.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// When this was true.
    pub at: Moment,
    /// The time that cutoffs go by: the same, unless somebody moved the clock of a test.
    pub policy_time: Moment,
    /// The policies that nodes work on.
    pub policies: Vec<PolicyStatus>,
    /// What Ebb does for itself: its own tables, the audit's seals.
    pub own: Vec<UnitStatus>,
    /// The nodes that were seen lately.
    pub nodes: Vec<NodeStatus>,
    /// Events, sink by sink.
    pub events: EventsStatus,
    /// The audit.
    pub audit: AuditStatus,
}

/// One policy.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyStatus {
    /// What sort.
    pub kind: String,
    /// Its name.
    pub policy: String,
    /// `active`, `observe`, `paused`, `braked`, `stopped` or `disabled`.
    pub state: String,
    /// Why it is paused, braked or stopped.
    pub reason: Option<String>,
    /// The command that ends that.
    pub remedy: Option<String>,
    /// Subjects that wait because their warning could not be delivered.
    pub unwarned: u64,
    /// Subjects whose time has come and that wait for something: a hold, `unless`, a warning.
    pub blocked: u64,
    /// Deletions that are open, due or not.
    pub open_deletions: u64,
    /// Subjects on hold, deleted or not.
    pub on_hold: u64,
    /// How often it runs.
    pub cadence: Option<String>,
    /// Its version.
    pub version: i64,
    /// When it was changed last.
    pub changed_at: Moment,
    /// By whom.
    pub changed_by: String,
    /// Of a schedule: when its next event is due.
    pub next_event: Option<Moment>,
    /// Its tables, leaf by leaf.
    pub units: Vec<UnitStatus>,
    /// Why its table could not be looked at.
    pub problem: Option<String>,
    /// Subjects that could not be erased, and the last error.
    pub stuck: u64,
    #[allow(missing_docs)]
    pub stuck_error: Option<String>,
}

/// One unit: a chore on one leaf table.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnitStatus {
    /// What is done.
    pub chore: String,
    /// For which policy.
    pub policy: String,
    /// The table.
    pub table: String,
    /// Due rows.
    pub pending: Option<u64>,
    /// Rows that would be due if nobody were on hold; not among `pending`.
    pub held_rows: Option<u64>,
    /// Whether `pending` was `counted` just now, `estimated` from a sample, or is the `last_known`.
    pub pending_is: Option<&'static str>,
    /// When the last known number was taken.
    pub counted_at: Option<Moment>,
    /// When the oldest pending row became due.
    pub oldest_due: Option<Moment>,
    /// When the newest row of the table is due.
    pub newest_due: Option<Moment>,
    /// Rows in the table.
    pub total_rows: Option<u64>,
    /// What it takes on disk, with indexes.
    pub table_bytes: Option<u64>,
    /// The index that starts with the column; none when there is none.
    pub index: Option<String>,
    /// How runs go through the table, and why.
    pub shape: Option<String>,
    /// The last run.
    pub last_run: Option<RunStatus>,
    /// When a run last came to its end.
    pub last_success_at: Option<Moment>,
    /// When the next is due; `-infinity`: at once.
    pub next_run: Option<Moment>,
    /// Somebody asked for it.
    pub triggered: bool,
    /// Who works on it at the moment.
    pub held_by: Option<String>,
    /// Why it rests at the moment.
    pub throttle: Option<String>,
    /// What became of the last VACUUM.
    pub vacuum: Option<String>,
    /// Failures in a row.
    pub failures: i32,
}

/// A run.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunStatus {
    /// Its number.
    pub run: i64,
    /// `running`, `success`, `failed`, `stopped`, `braked`, `observed` or `abandoned`.
    pub status: String,
    /// Rows changed.
    pub rows: i64,
    /// Batches committed.
    pub batches: i64,
    /// Due rows, or subjects, that others held.
    pub skipped: i64,
    /// Due subjects that could not be erased.
    pub failed: i64,
    /// When it began.
    pub started_at: Moment,
    /// When it ended.
    pub finished_at: Option<Moment>,
    /// How long it took.
    pub seconds: f64,
    /// How fast it went.
    pub rows_per_second: Option<f64>,
    /// Why it failed or stopped.
    pub error: Option<String>,
}

/// The audit, as far as it is not sealed.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditStatus {
    /// Records that wait for a seal.
    pub unsealed: i64,
    /// Whether there are more than were counted.
    pub more: bool,
    /// The transaction that keeps them from being sealed.
    pub blocked_by: Option<String>,
    /// Records of what went before its time, by the weekly review: should be none for ever.
    pub premature: u64,
    /// Period keys whose day has come and that no node has destroyed.
    pub overdue_keys: u64,
}

impl Engine {
    /// How everything stands, with a look at the tables themselves.
    pub async fn status(&self) -> Result<Status> {
        self.status_with(true).await
    }

    /// How everything stood at the last look of a node: in milliseconds, however large the tables are.
    pub async fn standing(&self) -> Result<Status> {
        self.status_with(false).await
    }

    async fn status_with(&self, look: bool) -> Result<Status> {
        let mut tx = self.database().read().await?;
        if pg::schema_version(&mut tx).await?.is_none_or(|version| version < pg::latest_version()) {
            return Err(Error::refused("the ebb schema is missing or older than this binary")
                .with_hint("run `ebb apply`, or `ebb migrate` as its owner"));
        }
        let (policy_time, at) = store::clocks(&mut tx).await?;
        let policies = store::policies(&mut tx).await?;
        let units = store::units(&mut tx).await?;
        let unwarned: HashMap<String, i64> = crate::retain::undeliverable(&mut tx)
            .await?
            .into_iter()
            .map(|(policy, count, _)| (policy, count))
            .collect();
        let nodes = store::nodes(&mut tx).await?;
        let unsealed = audit::unsealed(&mut tx, COUNT_UNSEALED).await?;
        let blocked_by = audit::blocker(&mut tx).await?.map(|blocker| blocker.to_string());
        let premature = crate::retain::count_premature(&mut tx).await?;
        let overdue_keys = crate::retain::overdue_keys(&mut tx).await?;
        let stuck = crate::retain::stuck(&mut tx).await?;
        let subjects = crate::retain::backlog(&mut tx, COUNT_SUBJECTS as i64).await?;
        tx.commit().await?;

        let until = Instant::now() + LOOK_FOR;
        let mut by_policy: BTreeMap<String, Vec<UnitStatus>> = BTreeMap::new();
        for unit in &units {
            by_policy.entry(unit.policy.clone()).or_default().push(unit.into());
        }
        let mut shown = Vec::new();
        for row in policies {
            let kind = Kind::parse(&row.kind).map_err(|invalid| Error::failed(invalid.message))?;
            if !kind.is_work() {
                continue;
            }
            let mine = by_policy.remove(&row.name).unwrap_or_default();
            let waiting = unwarned.get(&row.name).map_or(0, |count| count.unsigned_abs());
            let status = self.policy_status(row, mine, look.then_some(until)).await?;
            shown.push(PolicyStatus { unwarned: waiting, ..status });
        }
        for (policy, count, error) in stuck {
            if let Some(status) = shown.iter_mut().find(|status: &&mut PolicyStatus| status.policy == policy) {
                (status.stuck, status.stuck_error) = (count.unsigned_abs(), error);
            }
        }
        for backlog in subjects {
            if let Some(status) = shown.iter_mut().find(|status| status.policy == backlog.policy) {
                status.with_subjects(backlog);
            }
        }
        // In the order of the units: by policy.
        let own = ["audit", "events", "keep"].into_iter().filter_map(|ours| by_policy.remove(ours)).flatten().collect();
        let audit = AuditStatus { unsealed, more: unsealed >= COUNT_UNSEALED, blocked_by, premature, overdue_keys };
        let events = if look { self.events_status().await? } else { self.events_standing().await? };
        Ok(Status { at, policy_time, policies: shown, own, nodes, events, audit })
    }

    async fn policy_status(
        &self,
        row: PolicyRow,
        units: Vec<UnitStatus>,
        until: Option<Instant>,
    ) -> Result<PolicyStatus> {
        let policy = match row.expire() {
            Err(error) => self.by_age(&row).await?.ok_or(error),
            expire => expire,
        };
        let mut status = PolicyStatus {
            kind: row.kind,
            policy: row.name,
            state: row.state,
            reason: row.reason,
            remedy: row.remedy,
            unwarned: 0,
            blocked: 0,
            open_deletions: 0,
            on_hold: 0,
            cadence: policy.as_ref().ok().map(|policy| policy.cadence.to_string()).or_else(|| calendar(&row.spec)),
            version: row.version,
            changed_at: row.changed_at,
            changed_by: row.changed_by,
            next_event: row.next_event,
            units,
            problem: None,
            stuck: 0,
            stuck_error: None,
        };
        // Only sweeps have rows to count; what other kinds say about themselves is stored with their units.
        let sweeps = status.kind == Kind::Expire.as_str() || policy.is_ok();
        let Some(until) = until.filter(|_| sweeps && status.state != "disabled") else { return Ok(status) };
        let seen = match policy {
            Ok(policy) => {
                let seen = look_at(self.database(), &policy, until).await;
                seen.map_err(|error| error.discreet(&policy.table))
            }
            Err(error) => Err(error),
        };
        match seen {
            Ok(seen) => status.units = join(&status.policy, status.units, seen),
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) if status.state == "stopped" => tracing::debug!(error = %error, "A stopped policy"),
            Err(error) => status.problem = Some(error.to_string()),
        }
        Ok(status)
    }
}

impl Engine {
    /// Retention by age as the sweep that it is; none for other policies, or where it cannot be one now.
    async fn by_age(&self, row: &PolicyRow) -> Result<Option<Expire>> {
        let Ok(Policy::Retain(retain)) = row.policy() else { return Ok(None) };
        let mut tx = self.database().read().await?;
        match crate::retain::as_expire(&mut tx, &retain).await {
            Err(error) if error.is_unavailable() => Err(error),
            found => Ok(found.ok().flatten()),
        }
    }
}

impl PolicyStatus {
    /// When subjects are erased next, of a policy that is about some.
    pub fn next_erasure(&self) -> Option<Moment> {
        self.units.iter().find(|unit| unit.chore == "erase").and_then(|unit| unit.next_run)
    }

    /// What erasing has before it: of the other chores nothing is counted.
    fn with_subjects(&mut self, backlog: Backlog) {
        self.blocked = backlog.blocked.unsigned_abs();
        self.open_deletions = backlog.open.unsigned_abs();
        self.on_hold = backlog.on_hold.unsigned_abs();
        if !self.units.iter().any(|unit| unit.chore == "erase") {
            self.units.push(UnitStatus::new("erase", &self.policy, &backlog.relation));
        }
        for unit in &mut self.units {
            let erases = unit.chore == "erase";
            let all = (backlog.due + backlog.blocked).unsigned_abs() < COUNT_SUBJECTS;
            unit.pending = erases.then_some(backlog.due.unsigned_abs());
            unit.pending_is = erases.then_some(if all { "counted" } else { "estimated" });
            unit.counted_at = None;
            unit.oldest_due = backlog.oldest_due.filter(|_| erases);
        }
    }
}

/// When a schedule fires, in words.
fn calendar(spec: &serde_json::Value) -> Option<String> {
    let zone = spec.get("zone").and_then(serde_json::Value::as_str).unwrap_or("UTC");
    Some(format!("{} in {zone}", spec.get("cron")?.as_str()?))
}

/// What a look at one leaf found: the leaf always, the numbers where there was time.
pub(crate) struct Seen {
    pub(crate) surveyed: Surveyed,
    pub(crate) look: Option<Look>,
    /// Rows that subjects on hold keep, where somebody is; the look does not count them as due.
    pub(crate) held: Option<u64>,
}

/// Looks at the leaves of a policy's table, until the time is up.
pub(crate) async fn look_at(database: &Database, policy: &Expire, until: Instant) -> Result<Vec<Seen>> {
    let mut tx = database.read().await?;
    let survey = survey::survey(&mut tx, policy, Clock::Ebb).await?;
    let holds = gate::look(&mut tx, policy.name.as_str()).await?;
    tx.rollback().await?;
    let mut seen = Vec::new();
    for surveyed in survey.leaves {
        let look = match Instant::now() < until {
            true => store::look(database, &surveyed.target, surveyed.pages, surveyed.index.is_some()).await,
            false => Err(Error::failed("no time left")),
        };
        let mut look = match look {
            Err(error) if error.is_unavailable() => return Err(error),
            look => look.ok(),
        };
        let held = match look.as_ref().filter(|look| look.due > 0 && !holds.is_empty()) {
            Some(_) => survey::held_in(database, &surveyed, &holds).await,
            None => None,
        };
        if let (Some(look), Some(held)) = (look.as_mut(), held) {
            look.due = look.due.saturating_sub(held);
        }
        seen.push(Seen { surveyed, look, held });
    }
    Ok(seen)
}

/// Brings what was just seen together with what is stored about the units.
fn join(policy: &str, stored: Vec<UnitStatus>, seen: Vec<Seen>) -> Vec<UnitStatus> {
    let mut stored: HashMap<String, UnitStatus> = stored.into_iter().map(|unit| (unit.table.clone(), unit)).collect();
    let mut units: Vec<UnitStatus> = seen
        .into_iter()
        .map(|Seen { surveyed, look, held }| {
            let table = surveyed.leaf.relation.label();
            let mut unit = stored.remove(&table).unwrap_or_else(|| UnitStatus::new("expire", policy, &table));
            unit.table_bytes = Some(surveyed.bytes);
            unit.total_rows = Some(surveyed.leaf.rows);
            unit.index = surveyed.index;
            if let Ok(shape) = surveyed.shape {
                unit.shape = Some(shape.to_string());
            }
            if let Some(look) = look {
                unit.pending = Some(look.due);
                unit.held_rows = held;
                unit.pending_is = Some(if look.exact { "counted" } else { "estimated" });
                unit.total_rows = Some(look.total);
                unit.oldest_due = look.oldest_due;
                unit.newest_due = look.newest;
                unit.counted_at = None;
            }
            unit
        })
        .collect();
    // A leaf that is gone by now, until the node forgets it.
    units.extend(stored.into_values());
    units.sort_by(|a, b| a.table.cmp(&b.table));
    units
}

impl PolicyRow {
    /// The policy that this row is.
    fn policy(&self) -> Result<Policy> {
        let kind = Kind::parse(&self.kind).map_err(|invalid| Error::config(invalid.message))?;
        let spec = self.spec.as_object().cloned().unwrap_or_default();
        let parsed = Policy::parse(kind, &self.name, &spec);
        parsed.map_err(|errors| Error::config(format!("policy {}: {errors}", self.name)))
    }

    /// The expire policy that this row is.
    pub(crate) fn expire(&self) -> Result<Expire> {
        match self.policy()? {
            Policy::Expire(expire) => Ok(expire),
            _ => Err(Error::config(format!("policy {} is not about a table", self.name))),
        }
    }
}

impl UnitStatus {
    fn new(chore: &str, policy: &str, table: &str) -> Self {
        Self {
            chore: chore.to_owned(),
            policy: policy.to_owned(),
            table: table.to_owned(),
            pending: None,
            held_rows: None,
            pending_is: None,
            counted_at: None,
            oldest_due: None,
            newest_due: None,
            total_rows: None,
            table_bytes: None,
            index: None,
            shape: None,
            last_run: None,
            last_success_at: None,
            next_run: None,
            triggered: false,
            held_by: None,
            throttle: None,
            vacuum: None,
            failures: 0,
        }
    }
}

impl From<&UnitRow> for UnitStatus {
    fn from(row: &UnitRow) -> Self {
        let last_run = match (row.run, row.started_at) {
            (Some(run), Some(started_at)) => Some(RunStatus {
                run,
                status: match row.orphaned {
                    true => "abandoned".to_owned(),
                    false => row.status.clone().unwrap_or_default(),
                },
                rows: row.rows.unwrap_or(0),
                batches: row.batches.unwrap_or(0),
                skipped: row.skipped.unwrap_or(0),
                failed: row.failed.unwrap_or(0),
                started_at,
                finished_at: row.finished_at,
                seconds: row.seconds.unwrap_or(0.0),
                rows_per_second: row.rows_per_second,
                error: row.error.clone(),
            }),
            _ => None,
        };
        Self {
            pending: row.pending.map(|rows| rows.max(0) as u64),
            pending_is: row.pending.map(|_| "last_known"),
            counted_at: row.counted_at,
            oldest_due: row.oldest_due.filter(|_| row.pending > Some(0)),
            shape: row.shape.clone(),
            last_run,
            last_success_at: row.last_success_at,
            next_run: Some(row.next_at),
            triggered: row.triggered,
            held_by: row.held_by.clone(),
            throttle: row.throttle.clone(),
            vacuum: row.vacuum.clone(),
            failures: row.failures,
            ..Self::new(&row.chore, &row.policy, &row.leaf)
        }
    }
}

/// Brings gauges and samples up to date; a node calls it about once a minute. Each node looks for itself, since a run
/// knows how much was due in the whole table and not what is left in a leaf; samples are written once for all nodes.
pub(crate) async fn observe(database: &Database) -> Result<()> {
    let mut tx = database.read().await?;
    let policies = store::policies(&mut tx).await?;
    let units = store::units(&mut tx).await?;
    let (policy_time, _) = store::clocks(&mut tx).await?;
    let unsealed = audit::unsealed(&mut tx, COUNT_UNSEALED).await?;
    tx.commit().await?;
    metrics::unsealed(unsealed.max(0) as u64);

    let until = Instant::now() + LOOK_FOR;
    let mut tables: BTreeMap<String, (u64, Option<Moment>)> = BTreeMap::new();
    // Whose last look is longest ago comes first: where there is no time for all of them, each gets its turn.
    let mut by_policy: HashMap<&str, Vec<&UnitRow>> = HashMap::new();
    for unit in &units {
        by_policy.entry(&unit.policy).or_default().push(unit);
    }
    let units_of = |row: &PolicyRow| by_policy.get(row.name.as_str()).into_iter().flatten().copied();
    let looked_at = |row: &PolicyRow| units_of(row).map(|unit| unit.counted_at).min();
    let mut policies: Vec<&PolicyRow> =
        policies.iter().filter(|row| !["disabled", "stopped"].contains(&row.state.as_str())).collect();
    policies.sort_by_cached_key(|row| looked_at(row));
    for row in policies {
        let Ok(policy) = row.expire() else { continue };
        let seen = match Instant::now() < until {
            true => look_at(database, &policy, until).await.unwrap_or_default(),
            false => Vec::new(),
        };
        for unit in units_of(row) {
            let look = seen.iter().find(|seen| seen.surveyed.leaf.relation.label() == unit.leaf);
            let (pending, oldest) = match look.and_then(|seen| seen.look) {
                Some(look) => {
                    let mut tx = database.read().await?;
                    store::note_backlog(&mut tx, &unit.unit, &look).await?;
                    tx.commit().await?;
                    (look.due, look.oldest_due)
                }
                None => match unit.pending {
                    Some(pending) => (pending.max(0) as u64, unit.oldest_due),
                    None => continue,
                },
            };
            let entry = tables.entry(unit.leaf.clone()).or_default();
            entry.0 += pending;
            let oldest = oldest.filter(|_| pending > 0);
            entry.1 = match (entry.1, oldest) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
    }
    for (table, (pending, oldest)) in &tables {
        metrics::pending_in(table, *pending);
        metrics::oldest_pending(table, oldest.map_or(Duration::ZERO, |oldest| since(oldest, policy_time)));
    }
    for storage in storage::storage(database).await?.iter().filter(|storage| storage.problem.is_none()) {
        metrics::storage(&storage.policy, storage.table_bytes + storage.index_bytes);
    }
    let mut tx = database.read().await?;
    store::sample(&mut tx).await?;
    tx.commit().await?;
    Ok(())
}

/// How long ago; nothing when it is yet to come.
pub(crate) fn since(moment: Moment, now: Moment) -> Duration {
    match (moment.timestamp(), now.timestamp()) {
        (Some(then), Some(now)) => now.duration_since(then).try_into().unwrap_or(Duration::ZERO),
        _ => Duration::ZERO,
    }
}
