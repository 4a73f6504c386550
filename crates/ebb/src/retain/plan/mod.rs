//! What would happen, and what stands in the way, policy by policy. Looking changes nothing and takes no lock.

mod count;
mod told;

use serde::Serialize;
use sqlx::PgConnection;

use self::count::Counted;
use super::compile::{self, Compiled};
use super::keeper::Surroundings;
use super::store::rows::{self, Terms};
use super::tree::{self, Finding, ShapeEdge};
use super::{columns, path, store};
use crate::audit::Moment;
use crate::policy::{ChangeAction, Retain, Subjects, Term};
use crate::{Error, Result};

/// Soft deletes that nobody has marked yet are looked for no further.
pub(super) const UNMARKED: u64 = 10_000;

/// The tree of a policy, and what is due of it.
#[derive(Debug, Clone, Serialize)]
pub struct TreePlan {
    /// The policy.
    pub policy: String,
    /// Its root table.
    pub table: String,
    /// Subjects that are due and would go.
    pub due: u64,
    /// Subjects that are due and stay: they are on hold.
    pub held: u64,
    /// Subjects that are due and stay, of those that were counted: `unless` holds, or somebody shares a row or a value with them.
    pub blocked: u64,
    /// Why, and how many for each reason.
    pub blocked_by: Vec<(String, u64)>,
    /// Subjects that the application soft-deleted, whose term is over and whom the next marking finds; they are due where
    /// nobody is warned first.
    pub unmarked: u64,
    /// How many of them the rows were counted for.
    pub counted: u64,
    /// Tables that lose rows, with how many.
    pub erases: Vec<(String, u64)>,
    /// Tables whose rows lose their link, with how many.
    pub unlinks: Vec<(String, u64)>,
    /// Tables with rows that stay and that no policy will take, with the policy that keeps them and how many.
    pub left: Vec<(String, String, u64)>,
    /// Every edge and its action.
    pub edges: Vec<ShapeEdge>,
    /// What was found on the way.
    pub findings: Vec<Finding>,
    /// What differs from the tree that was approved; empty when nothing does.
    pub unapproved: Vec<String>,
    /// What `children` needs yet, to be pasted.
    pub proposal: Option<String>,
    /// Why who is due was not counted, or not everybody: the numbers are too small then.
    pub not_counted: Option<String>,
    /// What `ebb apply` would make of the policy.
    pub change: Option<ChangeAction>,
    /// Why nobody would be erased although they are due.
    pub paused: Option<String>,
    /// When erasing runs next: `-infinity` means with the next look of a node.
    pub next_run: Option<Moment>,
}

impl TreePlan {
    /// What mends a finding, unless the proposal does.
    pub fn mends<'a>(&self, finding: &'a Finding) -> Option<&'a str> {
        tree::mends(finding, self.proposal.as_deref())
    }

    /// Why the policy would be refused.
    pub(crate) fn refusal(&self) -> Option<Error> {
        tree::refusal(&self.findings, self.proposal.as_deref())
    }

    /// Of a policy that cannot be looked at: only why.
    pub(crate) fn refused(policy: &Retain, error: &Error) -> Self {
        let finding = Finding {
            refuses: true,
            table: policy.table.clone(),
            message: error.to_string(),
            fix: error.hint().map(str::to_owned),
        };
        Self {
            policy: policy.name.to_string(),
            table: policy.table.clone(),
            due: 0,
            held: 0,
            blocked: 0,
            blocked_by: Vec::new(),
            unmarked: 0,
            counted: 0,
            erases: Vec::new(),
            unlinks: Vec::new(),
            left: Vec::new(),
            edges: Vec::new(),
            findings: vec![finding],
            unapproved: Vec::new(),
            proposal: None,
            not_counted: Some(REFUSED.to_owned()),
            change: None,
            paused: None,
            next_run: None,
        }
    }
}

const REFUSED: &str = "the policy would be refused";
const SLOW: &str = "it takes longer than a look may";

/// Looks at a policy over subjects; none for retention by age.
pub(crate) async fn plan(
    connection: &mut PgConnection,
    policy: &Retain,
    among: Surroundings<'_>,
) -> Result<Option<TreePlan>> {
    let Some(subjects) = policy.subjects() else { return Ok(None) };
    let name = policy.name.as_str();
    let (table, tree) = compile::tree_among(connection, policy, subjects, among).await?;
    let approved = if among.installed { store::approved(connection, name).await? } else { None };
    let unapproved = approved.map(|approved| approved.differences(&tree.shape())).unwrap_or_default();
    let shape = tree.possible_shape();
    let mut findings = tree.findings.clone();
    findings.extend(told::misread(connection, table.oid, &tree).await?);
    findings.extend(told::suspects(connection, policy, &shape).await?);
    findings.extend(path::unseen(connection, &table).await?);
    let (mut due, held) = if among.installed { store::plan_due(connection, name).await? } else { (0, 0) };
    let missing = columns::missing(connection, policy).await?;
    let mut refused = tree.refuse().is_err() || !missing.is_empty();
    findings.extend(missing.into_iter().map(told::missing));
    if !refused {
        match compiled(connection, policy, subjects, among).await? {
            Some(Ok(compiled)) => {
                findings.extend(told::ghosts(connection, &compiled, policy, among.installed).await?);
            }
            Some(Err(wrong)) => {
                findings.push(wrong);
                refused = true;
            }
            None => {}
        }
    }
    let mut not_counted = refused.then(|| REFUSED.to_owned());
    let mut unmarked = Vec::new();
    if !refused {
        match self::unmarked(connection, policy, subjects, among).await? {
            Some(found) => unmarked = found,
            None => not_counted = Some(SLOW.to_owned()),
        }
    }
    let soon: &[String] = if subjects.warning.is_none() { &unmarked } else { &[] };
    due += soon.len() as u64;
    let mut counted = Counted::default();
    if !refused && due > 0 {
        rows::savepoint(connection).await?;
        let found = count::count(connection, (policy, subjects), soon, among).await;
        rows::end_savepoint(connection, false).await?;
        match found {
            Err(error) if error.trouble().is_too_much() => findings.push(Finding {
                refuses: false,
                table: table.relation.label(),
                message: "to count the rows of subjects who are due takes more than a look may: none are counted"
                    .to_owned(),
                fix: None,
            }),
            found => counted = found?,
        }
    }
    let blocked = counted.blocked.iter().map(|(_, subjects)| subjects).sum();
    Ok(Some(TreePlan {
        policy: name.to_owned(),
        table: table.relation.label(),
        due: due.saturating_sub(blocked),
        held,
        blocked,
        blocked_by: counted.blocked,
        unmarked: unmarked.len() as u64,
        counted: counted.subjects,
        erases: counted.erases,
        unlinks: counted.unlinks,
        left: counted.left,
        edges: shape.edges,
        findings,
        unapproved,
        proposal: tree.proposal,
        not_counted,
        change: None,
        paused: None,
        next_run: None,
    }))
}

/// A policy whose tree is right, ready for SQL; or what is wrong with it: a column of its table, an expression.
async fn compiled(
    connection: &mut PgConnection,
    policy: &Retain,
    subjects: &Subjects,
    among: Surroundings<'_>,
) -> Result<Option<Result<Compiled, Finding>>> {
    rows::savepoint(connection).await?;
    let compiled = compile::compile_among(connection, policy, subjects, among).await;
    rows::end_savepoint(connection, false).await?;
    match compiled {
        Ok(compiled) => Ok(Some(Ok(compiled))),
        Err(error) if error.is_config() => Ok(Some(Err(Finding {
            refuses: true,
            table: policy.table.clone(),
            message: error.to_string(),
            fix: error.hint().map(str::to_owned),
        }))),
        Err(error) if error.is_unavailable() => Err(error),
        Err(_) => Ok(None),
    }
}

/// Subjects whose term is over and whom marking has not met yet, at most so many; none where that cannot be said soon.
pub(crate) async fn unmarked(
    connection: &mut PgConnection,
    policy: &Retain,
    subjects: &Subjects,
    among: Surroundings<'_>,
) -> Result<Option<Vec<String>>> {
    unmarked_of(connection, policy, subjects, None, among).await
}

/// The same of some subjects alone.
pub(crate) async fn unmarked_of(
    connection: &mut PgConnection,
    policy: &Retain,
    subjects: &Subjects,
    only: Option<&[String]>,
    among: Surroundings<'_>,
) -> Result<Option<Vec<String>>> {
    rows::savepoint(connection).await?;
    let found = match compile::compile_among(connection, policy, subjects, among).await {
        Ok(compiled) => {
            let terms = terms(policy, subjects, among.installed);
            rows::unmarked(connection, &compiled.root, terms, only, UNMARKED).await
        }
        Err(error) => Err(error),
    };
    rows::end_savepoint(connection, false).await?;
    match found {
        Err(error) if error.is_unavailable() => Err(error),
        found => Ok(found.ok()),
    }
}

/// How many of them fall due on each of the days after a moment; none where that cannot be said soon.
pub(crate) async fn unmarked_by_day(
    connection: &mut PgConnection,
    policy: &Retain,
    subjects: &Subjects,
    (from, days): (Moment, u32),
    among: Surroundings<'_>,
) -> Result<Option<Vec<(i32, i64)>>> {
    rows::savepoint(connection).await?;
    let found = match compile::compile_among(connection, policy, subjects, among).await {
        Ok(compiled) => {
            let terms = terms(policy, subjects, among.installed);
            rows::unmarked_by_day(connection, &compiled.root, terms, from, days).await
        }
        Err(error) => Err(error),
    };
    rows::end_savepoint(connection, false).await?;
    match found {
        Err(error) if error.is_unavailable() => Err(error),
        found => Ok(found.ok()),
    }
}

fn terms<'a>(policy: &'a Retain, subjects: &Subjects, installed: bool) -> Terms<'a> {
    Terms {
        policy: policy.name.as_str(),
        grace: subjects.grace,
        floor: policy.floor.unwrap_or(Term::seconds(0)),
        own: policy.tenant_override,
        warned: subjects.warning.as_ref().and_then(|warning| warning.before.first().copied()),
        installed,
    }
}
