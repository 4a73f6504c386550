//! `ebb plan`: what differs from the file, and what a node would do now: rows, bytes, time, the way, the brake.
//! Invariants: it writes nothing, it works before anything was ever applied, and one policy that cannot be looked at
//! does not hide the others.

mod forecast;
mod missing;
mod newly;
mod refused;
mod store;
pub(crate) mod survey;
mod troubles;

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;

use crate::audit::Moment;
use crate::expire::due::Clock;
use crate::policy::{
    self, AuditDetail, BatchSize, Cadence, Change, ChangeAction, Expire, Kind, Mode, Policy, Retain, Stored, Wanted,
    Window, Zone, human,
};
use crate::retain::{ByAge, MadeDue, Surroundings, TreePlan};
use crate::{Engine, Error, Result, pg};
pub use forecast::{Day, Forecast};
pub use missing::MissingIndex;
pub(crate) use newly::made_due;
pub use refused::Refusal;
use store::Known;
pub(crate) use store::scan_time;

/// Rows a second that are assumed where no run has shown better.
const ASSUMED_RATE: f64 = 100_000.0;

/// What would happen.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// The time that cutoffs go by.
    pub at: Moment,
    /// The version of the `ebb` schema; none when there is no schema yet.
    pub schema_version: Option<i32>,
    /// What `ebb apply` would change.
    pub changes: Vec<Change>,
    /// What a run of each policy would do now.
    pub policies: Vec<PolicyPlan>,
    /// What hangs on the subjects of retain policies, and what is due of it.
    pub trees: Vec<TreePlan>,
    /// What the changes would make due at once, of policies that keep it now.
    pub made_due: Vec<MadeDue>,
    /// What `ebb apply` would refuse besides what policies and trees say.
    pub refused: Vec<Refusal>,
}

impl Plan {
    /// Whether `ebb apply` or a node would refuse any of it. What `ebb apply` asks about is no refusal.
    pub fn has_problems(&self) -> bool {
        !self.refused.is_empty()
            || self.policies.iter().any(|policy| policy.problems.iter().any(|problem| problem.refused))
            || self.trees.iter().any(|tree| tree.findings.iter().any(|finding| finding.refuses))
    }

    /// Why `ebb apply` or a node would refuse a policy.
    pub(crate) fn refusal(&self, policy: &str) -> Option<Error> {
        let of_sweep = self.policies.iter().filter(|plan| plan.policy == policy).flat_map(|plan| &plan.problems);
        let of_sweep = of_sweep.filter(|problem| problem.refused).map(|problem| (&problem.message, &problem.fix));
        let besides = self.refused.iter().filter(|refused| refused.policy == policy);
        let besides = besides.map(|refused| (&refused.message, &refused.fix));
        if let Some((message, fix)) = of_sweep.chain(besides).next() {
            let error = Error::config(message.clone());
            let error = match fix {
                Some(fix) => error.with_hint(fix.clone()),
                None => error,
            };
            return Some(error.context(format!("policy {policy}")));
        }
        let refused = self.trees.iter().filter(|tree| tree.policy == policy).find_map(TreePlan::refusal);
        refused.map(|error| error.context(format!("policy {policy}")))
    }
}

/// What one run would do now.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PolicyPlan {
    /// The policy's name.
    pub policy: String,
    /// Its table.
    pub table: String,
    /// What `ebb apply` would make of it.
    pub change: Option<ChangeAction>,
    /// `enforce` or `observe`.
    pub mode: &'static str,
    /// Rows that are due.
    pub due_rows: Option<u64>,
    /// Rows of the table.
    pub total_rows: Option<u64>,
    /// Whether the rows were counted; estimated from a sample otherwise.
    pub exact: bool,
    /// The due rows' share of what the table takes on disk.
    pub due_bytes: Option<u64>,
    /// What the table takes on disk, with indexes.
    pub table_bytes: Option<u64>,
    /// How long the run would take.
    pub estimated_seconds: Option<f64>,
    /// The rows a second that this was reckoned with.
    pub rows_per_second: Option<f64>,
    /// Whether earlier runs have shown that speed; assumed otherwise.
    pub rate_measured: bool,
    /// The ways through the table, and why; several when its leaves differ.
    pub shape: Vec<String>,
    /// Due rows that stay because of subjects on hold, counted up to a bound; none where nobody is on hold.
    pub held_rows: Option<u64>,
    /// The limit of the brake that would stop the run.
    pub brake: Option<String>,
    /// How to let it go on all the same.
    pub remedy: Option<String>,
    /// Why it would not start although it is due.
    pub paused: Option<String>,
    /// When it runs next: `-infinity` means with the next look of a node.
    pub next_run: Option<Moment>,
    /// What is wrong, or could be better.
    pub problems: Vec<Problem>,
}

/// What is wrong, and what helps.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = PlanProblem))]
pub struct Problem {
    /// In words.
    pub message: String,
    /// A statement or a hint.
    pub fix: Option<String>,
    /// Whether the policy cannot run with it.
    pub refused: bool,
}

impl Problem {
    fn from(error: &Error) -> Self {
        Self { message: error.to_string(), fix: error.hint().map(str::to_owned), refused: true }
    }
}

/// What the database knows already; nothing where nothing was applied yet.
#[derive(Default)]
struct Background {
    stored: Vec<Stored>,
    known: HashMap<String, Known>,
    rates: HashMap<String, f64>,
}

impl Engine {
    /// What the file would change, and what is due now.
    pub async fn plan(&self, wanted: &[Wanted]) -> Result<Plan> {
        let mut tx = self.database().read().await?;
        let schema_version = pg::schema_version(&mut tx).await?;
        let migrated = schema_version == Some(pg::latest_version());
        let mut background = Background::default();
        if schema_version.is_some() {
            background.stored = policy::store::all(&mut tx).await?;
        }
        if migrated {
            background.known = store::known(&mut tx).await?.into_iter().map(|row| (row.policy.clone(), row)).collect();
            background.rates = store::rates(&mut tx).await?;
        }
        let at = store::now(&mut tx, schema_version.is_some()).await?;
        tx.commit().await?;

        let changes = policy::difference(wanted, &background.stored);
        let clock = if schema_version.is_some() { Clock::Ebb } else { Clock::Server };
        let mut policies = Vec::new();
        for sweep in to_be_active(wanted, &background.stored) {
            let (expire, problem) = self.sweep(&sweep, schema_version.is_some()).await?;
            let change = changes.iter().find(|change| change.name == expire.name.as_str()).map(|change| change.action);
            let mut plan = self.plan_policy(&expire, change, clock, at, &background).await?;
            plan.problems.extend(problem);
            policies.push(plan);
        }
        let mut tx = self.database().read().await?;
        let followed = followed(wanted, &background.stored);
        let troubles = troubles::troubles(&mut tx, &followed, migrated).await?;
        tx.rollback().await?;
        let mut trees = self.plan_trees(wanted, &background.stored, migrated).await?;
        for (tree, retain) in &mut trees {
            let known = background.known.get(&tree.policy);
            tree.next_run = next_erasure(retain, at, known);
            tree.paused = known.and_then(|known| known.paused.clone());
            let change = changes.iter().find(|change| change.kind == Kind::Retain && change.name == tree.policy);
            tree.change = change.map(|change| change.action);
        }
        let mut trees: Vec<TreePlan> = trees.into_iter().map(|(tree, _)| tree).collect();
        troubles::tell(troubles, &mut policies, &mut trees);
        let made_due = if migrated { self.made_due(wanted).await? } else { Vec::new() };
        let refused = self.refusals(wanted, &changes, &trees, migrated).await?;
        Ok(Plan { at, schema_version, changes, policies, trees, made_due, refused })
    }

    /// A sweep as it stands now; retention by age whose tenants' own terms cannot be read goes by the policy's.
    async fn sweep(&self, sweep: &Swept, installed: bool) -> Result<(Expire, Option<Problem>)> {
        let by_age = match sweep {
            Swept::Expire(expire) => return Ok((expire.as_ref().clone(), None)),
            Swept::ByAge(by_age) => by_age,
        };
        if !installed {
            return Ok((by_age.default(), None));
        }
        let mut tx = self.database().read().await?;
        match by_age.now(&mut tx).await {
            Ok(expire) => Ok((expire, None)),
            Err(error) if error.is_unavailable() => Err(error),
            Err(error) => Ok((by_age.default(), Some(Problem::from(&error)))),
        }
    }

    /// What the wanted policies would make due at once that the stored ones keep; those that make nothing due are left out.
    pub async fn made_due(&self, wanted: &[Wanted]) -> Result<Vec<MadeDue>> {
        let mut found = Vec::new();
        for want in wanted {
            let Policy::Retain(retain) = &want.policy else { continue };
            let mut tx = self.database().read().await?;
            match crate::retain::made_due(&mut tx, retain, Some(wanted)).await {
                Err(error) if error.is_unavailable() => return Err(error),
                // A policy that cannot be looked at is refused elsewhere.
                Err(_) => {}
                Ok(due) => found.extend(due.filter(MadeDue::asks)),
            }
        }
        Ok(found)
    }

    /// The trees of retain policies, as the file has them or, where it does not, the database.
    async fn plan_trees(
        &self,
        wanted: &[Wanted],
        stored: &[Stored],
        installed: bool,
    ) -> Result<Vec<(TreePlan, Retain)>> {
        let planned = retained(wanted, stored);
        let among = Surroundings { installed, planned: &planned };
        let mut trees = Vec::new();
        for retain in planned.iter().filter(|retain| retain.subjects().is_some()) {
            let mut tx = self.database().read().await?;
            match crate::retain::plan(&mut tx, retain, among).await {
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => trees.push((TreePlan::refused(retain, &error), retain.clone())),
                Ok(tree) => trees.extend(tree.map(|tree| (tree, retain.clone()))),
            }
        }
        Ok(trees)
    }

    async fn plan_policy(
        &self,
        policy: &Expire,
        change: Option<ChangeAction>,
        clock: Clock,
        at: Moment,
        background: &Background,
    ) -> Result<PolicyPlan> {
        let known = background.known.get(policy.name.as_str());
        let mut plan = PolicyPlan {
            policy: policy.name.to_string(),
            table: policy.table.clone(),
            change,
            mode: if policy.mode == Mode::Observe { "observe" } else { "enforce" },
            due_rows: None,
            total_rows: None,
            exact: false,
            due_bytes: None,
            table_bytes: None,
            estimated_seconds: None,
            rows_per_second: None,
            rate_measured: false,
            shape: Vec::new(),
            held_rows: None,
            brake: None,
            remedy: None,
            paused: known.and_then(|known| known.paused.clone()),
            next_run: next_run(policy, at, known),
            problems: Vec::new(),
        };
        if policy.audit == AuditDetail::Rows && self.keys().subject.is_none() {
            plan.problems.push(Problem {
                message: "it records rows, and there is no subject key".into(),
                fix: Some("set subject_key in [audit]; `ebb apply` creates it".into()),
                refused: true,
            });
        }
        match self.fill(policy, clock, background, &mut plan).await {
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) => plan.problems.push(Problem::from(&error)),
            Ok(()) => {}
        }
        Ok(plan)
    }

    async fn fill(&self, policy: &Expire, clock: Clock, background: &Background, plan: &mut PolicyPlan) -> Result<()> {
        let mut tx = self.database().read().await?;
        let survey = survey::survey(&mut tx, policy, clock).await?;
        plan.table = survey.table.relation.label();
        plan.table_bytes = Some(survey.bytes());
        for leaf in &survey.leaves {
            match &leaf.shape {
                Ok(shape) if !plan.shape.contains(&shape.to_string()) => plan.shape.push(shape.to_string()),
                Ok(_) => {}
                Err(error) => plan.problems.push(Problem::from(error)),
            }
        }
        let count = survey.count(&mut tx).await?;
        let share = count.due / count.total.max(1.0);
        plan.exact = count.exact;
        plan.due_rows = Some(count.due.round() as u64);
        plan.total_rows = Some(count.total.round() as u64);
        plan.due_bytes = Some((survey.bytes() as f64 * share.min(1.0)) as u64);

        let (mut scan, mut unindexed, mut statements) = (Duration::ZERO, Vec::new(), Vec::new());
        for leaf in &survey.leaves {
            let Some(statement) = leaf.missing_index() else { continue };
            scan += scan_time(&mut tx, &leaf.target, leaf.pages).await?;
            if leaf.shape.is_ok() {
                unindexed.push(leaf.leaf.relation.label());
                statements.push(format!("{statement};"));
            }
        }
        if !unindexed.is_empty() {
            let message = format!(
                "no index of {} starts with {}: every run reads all of it, about {}",
                named(&unindexed),
                policy.column,
                words(scan)
            );
            plan.problems.push(Problem { message, fix: Some(statements.join("\n")), refused: false });
        }
        let measured = background.rates.get(policy.name.as_str()).copied();
        let rate = measured.unwrap_or_else(|| assumed_rate(policy.batch));
        plan.rows_per_second = Some(rate);
        plan.rate_measured = measured.is_some();
        plan.estimated_seconds = Some(count.due / rate + scan.as_secs_f64());

        if policy.mode == Mode::Enforce
            && let Some(limit) = survey.brake(&mut tx, policy, count).await?
        {
            let allowed = background.known.get(policy.name.as_str()).and_then(|known| known.allow_rows);
            if allowed.is_none_or(|rows| (rows as f64) < count.due) {
                plan.brake = Some(limit);
                plan.remedy = Some(format!("ebb resume {} --allow {}", policy.name, allowance(count.due, count.exact)));
            }
        }
        if pg::schema_version(&mut tx).await? == Some(pg::latest_version()) {
            plan.held_rows = survey.held(&mut tx, policy).await?;
        }
        tx.rollback().await?;
        Ok(())
    }
}

/// A policy that takes rows by their time.
enum Swept {
    Expire(Box<Expire>),
    ByAge(Box<ByAge>),
}

impl Swept {
    fn of(policy: Policy) -> Option<Self> {
        match policy {
            Policy::Expire(expire) if expire.enabled => Some(Self::Expire(Box::new(expire))),
            Policy::Retain(retain) if retain.enabled => ByAge::of(retain).map(|by_age| Self::ByAge(Box::new(by_age))),
            _ => None,
        }
    }
}

/// The sweeps that nodes follow once the file is applied, and those that they follow until then.
fn to_be_active(wanted: &[Wanted], stored: &[Stored]) -> Vec<Swept> {
    let of_file = wanted.iter().map(|want| want.policy.clone());
    let only_stored = stored
        .iter()
        .filter(|have| have.is_active() && !wanted.iter().any(|want| want.kind == have.kind && want.name == have.name));
    of_file.chain(only_stored.filter_map(|have| have.policy().ok())).filter_map(Swept::of).collect()
}

/// The policies that nodes follow once the file is applied, and those that they follow until then.
pub(crate) fn followed(wanted: &[Wanted], stored: &[Stored]) -> Vec<Policy> {
    let of_file = wanted.iter().map(|want| want.policy.clone());
    let missing = |stored: &&Stored| !wanted.iter().any(|want| want.kind == stored.kind && want.name == stored.name);
    let others =
        stored.iter().filter(|stored| stored.enabled).filter(missing).filter_map(|stored| stored.policy().ok());
    of_file.chain(others).collect()
}

/// Those of them that retain.
pub(crate) fn retained(wanted: &[Wanted], stored: &[Stored]) -> Vec<Retain> {
    let retain = |policy| match policy {
        Policy::Retain(retain) => Some(retain),
        _ => None,
    };
    followed(wanted, stored).into_iter().filter_map(retain).collect()
}

fn next_run(policy: &Expire, at: Moment, known: Option<&Known>) -> Option<Moment> {
    let next = known.and_then(|known| known.next_at).unwrap_or(Moment::NEG_INFINITY);
    opened(next, at, policy.window.as_ref(), &policy.zone)
}

/// The same of a policy over subjects, whose first run waits for its time of day.
fn next_erasure(policy: &Retain, at: Moment, known: Option<&Known>) -> Option<Moment> {
    let cadence = policy.subjects().map(|subjects| &subjects.erase);
    let next = match (known.and_then(|known| known.next_at), cadence) {
        (None, Some(cadence @ Cadence::At(_))) => cadence.next_after(at.timestamp()?, policy.zone.rules()).into(),
        (next, _) => next.unwrap_or(Moment::NEG_INFINITY),
    };
    opened(next, at, policy.window.as_ref(), &policy.zone)
}

/// When a window is open, from a moment on that may have passed.
fn opened(next: Moment, at: Moment, window: Option<&Window>, zone: &Zone) -> Option<Moment> {
    let starts = next.max(at).timestamp()?;
    match window {
        Some(window) if !window.contains(starts, zone.rules()) => Some(window.next_open(starts, zone.rules()).into()),
        _ => Some(next),
    }
}

fn assumed_rate(batch: BatchSize) -> f64 {
    match batch {
        BatchSize::Adaptive => ASSUMED_RATE,
        BatchSize::Fixed { rows, pause } => rows as f64 / (rows as f64 / ASSUMED_RATE + pause.as_secs_f64()),
    }
}

/// What to allow: a sample may be off, so there is a margin.
fn allowance(due: f64, exact: bool) -> u64 {
    if exact { due as u64 } else { (due * 1.1) as u64 }
}

/// One table by its name, several by their number.
pub(crate) fn named(tables: &[String]) -> String {
    match tables {
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        [] => String::new(),
    }
}

/// A measured duration without digits that mean nothing.
pub(crate) fn words(duration: Duration) -> String {
    match duration.as_millis() {
        0..=999 => human(Duration::from_millis(duration.as_millis().max(1) as u64)),
        1_000..=9_999 => human(Duration::from_millis(duration.as_millis() as u64 / 100 * 100)),
        _ => human(Duration::from_secs(duration.as_secs())),
    }
}

/// The interval that a policy is meant to keep, as far as there is a fixed one.
pub(crate) fn interval(policy: &Expire) -> Duration {
    match policy.cadence {
        Cadence::Every(every) => every,
        Cadence::At(at) if at.weekday.is_some() => Duration::from_secs(7 * 86_400),
        Cadence::At(_) => Duration::from_secs(86_400),
    }
}
