//! Adopting a table: an ordinary table becomes the first partition of a partitioned one that has taken its name, without
//! a copy. What to do is written down first; then each step is done once, whoever is killed in between.

mod fill;
pub(crate) mod guard;
pub(crate) mod moved;
mod plan;
mod preflight;
mod proof;
pub(crate) mod referrers;
mod run;
mod script;
mod stamp;
pub(crate) mod store;
pub(crate) mod subject;
mod takeover;

pub use fill::Fill;
pub(crate) use plan::{BOUND, Key, comment, derived_checks, fitting};
pub use plan::{How, Plan, Step};
pub use preflight::{Finding, Findings};

pub use run::{Adopted, Progress, adopt};
pub(crate) use run::{
    After, Session, build_index, execute, hold_no_longer, prepare_session, prove, short, short_after,
};
pub use script::{script, script_of_rest};
pub use takeover::{TakeOver, take_it_over, take_over};

use serde_json::json;
use sha2::{Digest, Sha256};
use sqlx::PgConnection;

use crate::pg::{Relation, catalog};
use crate::policy::{EpochUnit, Partition, Period, Spec, Term};
use crate::{Error, Result};
use subject::Subject;

/// What somebody asks for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The table as it was typed.
    pub table: String,
    /// The column to partition by.
    pub column: String,
    /// What an integer column counts.
    pub unit: Option<EpochUnit>,
    /// The length of a partition's period.
    pub by: Period,
    /// How many periods ahead exist.
    pub ahead: u64,
    /// How long partitions stay; for ever when absent.
    pub keep: Option<Term>,
    /// The zone of columns that have none.
    pub zone: String,
    /// The policy's name; the table's when absent.
    pub policy: Option<String>,
    /// The keys that guards keep unique, each by its columns.
    pub guard: Vec<Vec<String>>,
    /// Whether foreign keys of other tables move with the table, which then carry the partition column.
    pub move_foreign_keys: bool,
}

impl Request {
    fn unit_word(&self) -> Option<&'static str> {
        self.unit.map(|unit| match unit {
            EpochUnit::Seconds => "s",
            EpochUnit::Millis => "ms",
        })
    }

    /// The policy that looks after the table afterwards, with the keys of ebb.toml.
    fn spec(&self, label: &str, column: &str) -> Spec {
        let mut spec = Spec::new();
        spec.insert("table".into(), label.into());
        spec.insert("column".into(), column.into());
        if let Some(unit) = self.unit_word() {
            spec.insert("unit".into(), unit.into());
        }
        spec.insert("by".into(), self.by.as_str().into());
        spec.insert("ahead".into(), json!(self.ahead));
        if let Some(keep) = self.keep {
            spec.insert("keep".into(), keep.to_string().into());
        }
        if self.zone != "UTC" {
            spec.insert("zone".into(), self.zone.clone().into());
        }
        spec
    }

    /// What is asked for now and is not what the adoption was begun with; none when it is.
    fn differs(&self, begun: &store::Adoption, plan: &Plan, column: &str) -> Option<String> {
        let (wanted, stands) = (self.spec(&begun.relation, column), plan.spec.as_object()?);
        let shown = |value: Option<&serde_json::Value>| value.map_or("nothing".to_owned(), ToString::to_string);
        let mut differences: Vec<String> = ["column", "unit", "by", "ahead", "keep", "zone"]
            .into_iter()
            .filter(|key| wanted.get(*key) != stands.get(*key))
            .map(|key| format!("{key} is {}, not {}", shown(stands.get(key)), shown(wanted.get(key))))
            .collect();
        let guarded: Vec<Vec<String>> = plan.backfills().map(|backfill| backfill.columns.clone()).collect();
        if guarded != self.guard {
            let name = |guards: &[Vec<String>]| match guards {
                [] => "nothing".to_owned(),
                guards => guards.iter().map(|columns| columns.join(",")).collect::<Vec<_>>().join(" and "),
            };
            differences.push(format!("the guard is on {}, not {}", name(&guarded), name(&self.guard)));
        }
        if let Some(name) = self.policy.as_ref().filter(|name| **name != begun.policy) {
            differences.push(format!("the policy is {}, not {name}", begun.policy));
        }
        (!differences.is_empty()).then(|| differences.join("; "))
    }

    /// What the policy is called: letters, digits, - and _.
    fn policy_name(&self, relation: &Relation) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '-' };
        self.policy.clone().unwrap_or_else(|| relation.name.as_str().chars().map(plain).take(63).collect())
    }
}

/// What was found, and what would be done.
#[derive(Debug)]
pub struct Preflight {
    /// The table.
    pub table: String,
    /// Rows by the last statistics.
    pub rows: i64,
    /// Its size without indexes.
    pub bytes: i64,
    /// What the policy that looks after it would be called.
    pub policy: String,
    /// What is in the way, and what changes.
    pub findings: Findings,
    /// The plan; none while something is in the way.
    pub plan: Option<Plan>,
}

/// Looks at everything that adopting the table would meet. Changes nothing.
pub async fn preflight(connection: &mut PgConnection, request: &Request) -> Result<Preflight> {
    let table = catalog::table(connection, &request.table).await?;
    let column = catalog::column(connection, &table.relation, table.oid, &request.column).await?;
    let subject = Subject::read(connection, table.oid, column.name.as_str(), request.unit_word()).await?;
    let mut findings = preflight::check(&subject, request);
    if store::find(connection, &table.relation.label()).await?.is_some() {
        findings.refusals.clear();
        findings.refuse("its adoption was begun by somebody else just now", "run it again to go on with it");
    }
    let (label, rows, bytes) = (table.relation.label(), subject.head.rows, subject.head.bytes);
    let mut plan = None;
    if findings.refusals.is_empty() {
        plan = written(connection, &subject, request, &mut findings).await?;
    }
    if !findings.refusals.is_empty() {
        plan = None;
    }
    let policy = request.policy_name(&table.relation);
    Ok(Preflight { table: label, rows, bytes, policy, findings, plan })
}

async fn written(
    connection: &mut PgConnection,
    subject: &Subject,
    request: &Request,
    findings: &mut Findings,
) -> Result<Option<Plan>> {
    let Some(kind) = subject.head.kind.as_deref() else { return Ok(None) };
    let (relation, column) = (subject.relation(), subject.column());
    let (newest, nulls) = subject::newest(connection, &relation, &column, subject.head.not_null).await?;
    let (by, zone) = (request.by.as_str(), request.zone.as_str());
    let bound = subject::bound(connection, kind, newest, zone, by, request.ahead).await?;
    preflight::check_rows(subject, &bound, nulls, findings);
    if request.move_foreign_keys {
        let quiet = crate::partition::store::may_be_quiet(connection).await?;
        referrers::check_silence(subject, quiet, findings);
    }
    let ahead = subject::ahead(connection, &subject.head, &bound.bound, by, request.ahead, zone).await?;
    preflight::check_reach(subject, &bound, &ahead, findings);
    let plan = plan::compose(subject, request, &bound, &ahead)?;
    for name in store::taken(connection, &plan.schema, &plan.wanted).await? {
        findings.refuse(
            format!(
                "{}.{name} exists, and the old table or something that belongs to it would be called so",
                plan.schema
            ),
            "rename or drop it",
        );
    }
    let spec = plan.spec.as_object().cloned().unwrap_or_default();
    let name = request.policy_name(&relation);
    if let Some(whose) = policy_taken(connection, &name, &relation.label()).await? {
        let free = format!("{}_{}", relation.schema.as_str(), relation.name.as_str());
        findings.refuse(
            format!("the policy would be called {name}, and that is the name of {whose}"),
            format!("choose another: --name {free}"),
        );
    }
    match crate::policy::Policy::parse(crate::policy::Kind::Partition, &name, &spec) {
        Ok(_) => Ok(Some(plan)),
        Err(errors) => {
            findings
                .refuse(format!("the policy {name} would not be valid: {errors}"), "choose other options, or --name");
            Ok(None)
        }
    }
}

/// Whose name a policy's would be, if somebody else has it: another table's, or a policy of another kind.
pub(crate) async fn policy_taken(connection: &mut PgConnection, name: &str, label: &str) -> Result<Option<String>> {
    let stored = crate::policy::store::all(connection).await?;
    for other in stored.into_iter().filter(|other| other.name == name && other.kind.is_work()) {
        let table = other.spec.get("table").and_then(|table| table.as_str()).unwrap_or_default().to_owned();
        let same = table == label
            || catalog::table(connection, &table).await.is_ok_and(|found| found.relation.label() == label);
        if other.kind != crate::policy::Kind::Partition || !same {
            return Ok(Some(format!("the {} policy of {table}", other.kind.as_str())));
        }
    }
    Ok(None)
}

/// The refusal that goes with it.
pub(crate) fn refuse_policy(name: &str, whose: &str) -> Error {
    Error::refused(format!("the policy would be called {name}, and that is the name of {whose}"))
        .with_hint("choose another: --name")
}

/// A text of letters, digits, `_` and `-` that names something, no longer than so many bytes and unlike any other.
fn sanitized(prefix: &str, text: &str, max: usize) -> String {
    let plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    let mut name = format!("{prefix}-{plain}");
    name.truncate(max - 9);
    format!("{name}-{}", digits(text))
}

/// Eight digits that belong to a text.
fn digits(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..4])
}

/// The policy's block in ebb.toml.
pub fn block(policy: &str, spec: &Spec) -> String {
    let mut lines = vec!["[[partition]]".to_owned(), format!("name = \"{policy}\"")];
    let order = ["table", "column", "unit", "by", "ahead", "keep", "expired", "zone"];
    lines.extend(order.iter().filter_map(|key| Some(format!("{key} = {}", spec.get(*key)?))));
    lines.join("\n") + "\n"
}

/// The policy of a spec that was written here.
pub(crate) fn policy_of(name: &str, spec: &Spec) -> Result<Partition> {
    match crate::policy::Policy::parse(crate::policy::Kind::Partition, name, spec)? {
        crate::policy::Policy::Partition(policy) => Ok(policy),
        _ => Err(Error::failed("a partition spec is a partition policy")),
    }
}
