//! What would happen, and what stands in the way, policy by policy. Looking changes nothing and takes no lock.

use std::collections::BTreeSet;

use serde::Serialize;
use sqlx::PgConnection;

use super::compile::{self, Compiled};
use super::keeper::Surroundings;
use super::store::rows::{self, Terms};
use super::tree::{Finding, Shape, ShapeEdge};
use super::{look, path, store};
use crate::audit::Moment;
use crate::pg::Ident;
use crate::policy::{Retain, Subjects, Term};
use crate::{Error, Result};

/// Rows are counted for at most so many due subjects.
const COUNTED: u64 = 1_000;
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
    /// Subjects that are due and stay, of those that were counted: `unless` holds, or somebody shares a value with them.
    pub blocked: u64,
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
}

impl TreePlan {
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
            unmarked: 0,
            counted: 0,
            erases: Vec::new(),
            unlinks: Vec::new(),
            left: Vec::new(),
            edges: Vec::new(),
            findings: vec![finding],
            unapproved: Vec::new(),
        }
    }
}

/// Looks at a policy over subjects; none for retention by age.
pub(crate) async fn plan(
    connection: &mut PgConnection,
    policy: &Retain,
    among: Surroundings<'_>,
) -> Result<Option<TreePlan>> {
    let Some(subjects) = policy.subjects() else { return Ok(None) };
    let name = policy.name.as_str();
    let (table, tree) = compile::tree_among(connection, policy, subjects, among).await?;
    let shape = tree.shape();
    let approved = if among.installed { store::approved(connection, name).await? } else { None };
    let unapproved = approved.map(|approved| approved.differences(&shape)).unwrap_or_default();
    let mut findings = tree.findings.clone();
    findings.extend(suspects(connection, policy, &shape).await?);
    findings.extend(path::unseen(connection, &table).await?);
    let (due, held) = if among.installed { store::plan_due(connection, name).await? } else { (0, 0) };
    let mut refused = tree.refuse().is_err();
    if !refused {
        match compiled(connection, policy, subjects, among).await? {
            Some(Ok(compiled)) => findings.extend(ghosts(connection, &compiled, name, among.installed).await?),
            Some(Err(wrong)) => {
                findings.push(wrong);
                refused = true;
            }
            None => {}
        }
    }
    let unmarked = match refused {
        true => Vec::new(),
        false => unmarked(connection, policy, subjects, among).await?.unwrap_or_default(),
    };
    let soon: &[String] = if subjects.warning.is_none() { &unmarked } else { &[] };
    let due = due + soon.len() as u64;
    let mut count_all = Counted::default();
    if !refused && due > 0 {
        rows::savepoint(connection).await?;
        let counted = count(connection, (policy, subjects), soon, among).await;
        rows::end_savepoint(connection, false).await?;
        match counted {
            Err(error) if error.sqlstate().as_deref() == Some("57014") => findings.push(Finding {
                refuses: false,
                table: table.relation.label(),
                message: "to count the rows of subjects who are due takes longer than a look may: none are counted"
                    .to_owned(),
                fix: None,
            }),
            counted => count_all = counted?,
        }
    }
    let Counted { subjects: counted, blocked, erases, unlinks, left } = count_all;
    Ok(Some(TreePlan {
        policy: name.to_owned(),
        table: table.relation.label(),
        due: due.saturating_sub(blocked),
        held,
        blocked,
        unmarked: unmarked.len() as u64,
        counted,
        erases,
        unlinks,
        left,
        edges: shape.edges,
        findings,
        unapproved,
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

/// Rows that others are given to instead of a subject: whoever they are about is a subject as well, or goes with one, or is not
/// there.
async fn ghosts(
    connection: &mut PgConnection,
    compiled: &Compiled,
    policy: &str,
    installed: bool,
) -> Result<Vec<Finding>> {
    let (tree, mut findings) = (&compiled.tree, Vec::new());
    for (at, edge) in tree.edges.iter().enumerate().filter(|(_, edge)| edge.key.is_some()) {
        let (child, parent) = (&tree.nodes[edge.child].relation, &tree.nodes[edge.parent]);
        let Some(set) = compiled.sets.get(&at).filter(|set| !set.ends_link()) else { continue };
        let Some(row) = rows::given(connection, tree, edge, set).await? else { continue };
        let names: Vec<&str> = edge.child_columns.iter().map(Ident::as_str).collect();
        let (names, whose) = (names.join(", "), parent.relation.label());
        let mut warn = |message: String, fix: String| {
            findings.push(Finding { refuses: false, table: child.label(), message, fix: Some(fix) });
        };
        let key: Vec<Ident> = parent.key.iter().map(|column| column.name.clone()).collect();
        let same = (parent.read.as_slice(), edge.parent_columns.as_slice(), edge.parent_columns.as_slice());
        if !rows::any(connection, &parent.relation, same, &row, "true").await? {
            let message = format!(
                "its rows are given to a row of {whose} by {names} that is not there: subjects who have such rows fail"
            );
            warn(message, format!("insert it into {whose}"));
        } else if edge.parent != 0 {
            let message = format!(
                "its rows are given to a row of {whose} by {names} that goes with its own subject, who fails then"
            );
            warn(message, "let that row belong to nobody".to_owned());
        } else {
            let own = rows::named_by(&row.row(0), &parent.read, &key);
            let held = match (&own, installed) {
                (Some(id), true) => store::hold_of(connection, policy, id).await?.is_some(),
                _ => false,
            };
            if !held {
                let id = own.unwrap_or_else(|| "ID".to_owned());
                let message = format!(
                    "its rows are given to a row of {whose} by {names} that is a subject itself: soft-deleted, it fails for as long as it has them"
                );
                warn(
                    message,
                    format!("ebb hold {policy} {} --reason \"others' rows are given to it\"", super::argument(&id)),
                );
            }
        }
    }
    Ok(findings)
}

/// What goes with due subjects.
#[derive(Default)]
struct Counted {
    /// Of how many.
    subjects: u64,
    /// How many more would have been counted if nothing stopped them.
    blocked: u64,
    erases: Vec<(String, u64)>,
    unlinks: Vec<(String, u64)>,
    left: Vec<(String, String, u64)>,
}

async fn count(
    connection: &mut PgConnection,
    (policy, subjects): (&Retain, &Subjects),
    unmarked: &[String],
    among: Surroundings<'_>,
) -> Result<Counted> {
    let compiled = compile::compile_among(connection, policy, subjects, among).await?;
    let mut ids = match among.installed {
        true => store::due_ids(connection, policy.name.as_str(), COUNTED).await?,
        false => Vec::new(),
    };
    ids.extend(unmarked.iter().take(COUNTED as usize - ids.len()).cloned());
    let all = ids.len();
    while let Some(stopped) = stopped(connection, &compiled, &ids).await? {
        let mut at = 0..;
        ids.retain(|_| at.next().is_none_or(|at| !stopped.contains(&at)));
    }
    let doomed = compiled.root.named(ids.iter().map(String::as_str))?;
    let (taken, unlinked) = look::would(connection, &compiled, &doomed).await?;
    let by_table = |counts: rows::Taken| {
        let mut tables: Vec<(String, u64)> = Vec::new();
        for (node, table) in compiled.tree.nodes.iter().enumerate() {
            let rows: i64 = counts.counts.iter().filter(|((of, _), _)| *of == node).map(|(_, rows)| rows).sum();
            if rows > 0 {
                tables.push((table.relation.label(), rows.unsigned_abs()));
            }
        }
        tables
    };
    let (erases, unlinks) = (by_table(taken), by_table(unlinked));
    let left = look::left_for_good(connection, &compiled, &doomed).await?;
    Ok(Counted { subjects: ids.len() as u64, blocked: (all - ids.len()) as u64, erases, unlinks, left })
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

/// Which of the subjects `unless` stops, or somebody who is not among them: whoever has the same value of a link, or would go
/// along. As erasing asks it, without locks; none when nothing stops them.
async fn stopped(connection: &mut PgConnection, compiled: &Compiled, ids: &[String]) -> Result<Option<BTreeSet<i32>>> {
    let (root, tree) = (&compiled.root, &compiled.tree);
    if ids.is_empty() {
        return Ok(None);
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let asked = look::unless(connection, compiled, &ids).await?;
    let fails = asked.fails.into_iter().map(|(at, _)| at);
    let mut stopped: BTreeSet<i32> = asked.holds.into_iter().chain(fails).map(|at| at as i32).collect();
    let ids = root.named(ids)?;
    if tree.leads_to_others() {
        let roots = rows::read_roots(connection, root, &tree.nodes[0].read, &ids).await?;
        for edge in tree.shared_links() {
            stopped.extend(
                rows::sharing(connection, tree, root, edge, (&roots, &roots)).await?.into_iter().map(|(at, _)| at),
            );
        }
        if tree.leads_back() {
            let own = roots.len();
            let reached = look::along(connection, tree, roots, None).await?;
            stopped.extend(&reached.subjects[own..]);
        }
    }
    Ok(Some(stopped).filter(|stopped| !stopped.is_empty()))
}

/// Tables that look as if they shared the subjects' ids without a foreign key.
async fn suspects(connection: &mut PgConnection, policy: &Retain, known: &Shape) -> Result<Vec<Finding>> {
    let table = super::work::table(connection, policy).await?;
    let mut findings = Vec::new();
    for suspect in store::suspects(connection, table.oid).await? {
        let (child, column) = (suspect.table(), &suspect.column_name);
        let in_tree = known.tables.iter().any(|known| known.table == child);
        let leads = known.edges.iter().any(|edge| edge.table == child && edge.columns.contains(column));
        if leads || (in_tree && suspect.shares_key) {
            continue;
        }
        let stay = if in_tree { "rows that only it leads to stay" } else { "its rows stay" };
        let message = format!(
            "its column {column} looks like an id of {}, and no foreign key says so: {stay}",
            table.relation.label()
        );
        let fix = format!(
            "if they belong to a subject: children = [{{ table = {child:?}, column = {column:?}, references = …, action = … }}]"
        );
        findings.push(Finding { refuses: false, table: child, message, fix: Some(fix) });
    }
    Ok(findings)
}
