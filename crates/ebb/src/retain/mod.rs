//! retain: personal data lives as long as policy says. A subject is a root row; its soft delete opens a deletion, and
//! when that is due everything that hangs on the row goes in foreign-key order, with a record that can be proven.
//! Invariants: until erasing is claimed a restore always succeeds, afterwards it always fails; a hold stops everything;
//! what is erased was due by the database's clock and today's policy, looked at under the subject's lock.

mod astray;
mod columns;
pub(crate) mod compile;
mod consent;
pub(crate) mod erase;
mod floor;
mod function;
mod graph;
mod keeper;
mod late;
pub(crate) mod link;
mod look;
mod mark;
mod others;
mod path;
mod plan;
mod reach;
mod reader;
mod rehearse;
mod replay;
mod report;
pub(crate) mod review;
mod rights;
mod snapshot;
mod store;
mod subject;
mod tenant;
mod tree;
mod trigger;
mod wait;
mod walk;
pub(crate) mod warn;
pub(crate) mod work;
mod written;

use sqlx::PgConnection;

pub(crate) use astray::{Astray, astray};
pub use columns::MissingColumn;
pub(crate) use consent::{Asked, one_for_each_table, two_policies};
pub use consent::{Consent, MadeDue, made_due};
pub(crate) use floor::below_floors;
pub(crate) use keeper::Surroundings;
pub use link::{Link, Standing};
pub use others::TreeChange;
pub(crate) use others::Trees;
pub use plan::TreePlan;
pub use replay::{PastErasure, Replay, Replayed, past_erasures, replay};
pub use report::{Deleted, Erased, Premature, Report, SweptEarly, report};
pub(crate) use review::{observe, review_waits};
pub(crate) use rights::needs;
pub use snapshot::{Snapshot, deletion_in_record, lost_key, open_snapshot};
pub(crate) use snapshot::{destroy_due, overdue_keys, trouble as key_trouble};
pub(crate) use store::{Backlog, count_premature};
pub use store::{Deletion, Happened, HeldSubject, Hold, OpenDeletion, OpenFilter, Unmarked, is_admin};
pub use subject::{
    Shown, StandsStill, argument, commit, delete, erase as request_erasure, held, hold, named, now, observes, release,
    restore, retry, show, stands_still, waits_for,
};
pub(crate) use tenant::OwnTerms;
pub use tenant::{
    Override, OverrideChange, TenantTerms, TermsChanged, due_sooner, list_overrides, set_override, set_override_at,
    tenant_terms,
};
pub use tree::{Finding, Shape, ShapeEdge, ShapeTable};
pub use wait::Wait;
pub(crate) use work::would_start;

use crate::audit::{Entry, Hash, Moment, SubjectKey};
use crate::gate;
use crate::pg::catalog;
use crate::policy::{Expire, Policy, Retain, Stored, Term, Undeliverable};
use crate::spine::batch::Batch;
use crate::{Error, Result};

/// A record of what a batch did for its policy.
fn entry(batch: &Batch, action: &str, by: &str) -> Entry {
    let claim = &batch.claim;
    let mut entry = Entry::new(action, by);
    entry.policy = Some(claim.unit.policy.clone());
    entry.policy_version = Some(claim.policy_version);
    entry.relation = Some(claim.unit.leaf.clone());
    entry.run = Some(batch.run);
    entry.node = Some(claim.node.clone());
    entry
}

/// Whose data it was, for whoever has the key and the id: what the audit keeps instead of the id.
pub fn pseudonym(key: &SubjectKey, policy: &str, id: &str) -> Hash {
    erase::pseudonym(key, policy, id)
}

/// Everything that can be wrong with a policy over subjects, by what the database knows: its statements are run over
/// no subject at all.
pub(crate) async fn check(connection: &mut PgConnection, policy: &Retain) -> Result<()> {
    let Some(subjects) = policy.subjects() else { return Ok(()) };
    let compiled = compile::compile(connection, policy, subjects).await?;
    if let Some(warning) = &subjects.warning {
        warn::contact(connection, &compiled, warning).await?;
        tenant::still_fits(connection, policy, warning).await?;
    }
    rehearse::rehearse(connection, &compiled).await
}

/// Whether storing a policy approves its tree as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approval {
    /// Somebody was shown it.
    Given,
    /// What was approved before stays so, whatever has grown since.
    AsBefore,
}

/// A policy that changes at runtime is shown to nobody as a tree: while more hangs on its table than was approved, it may only
/// be switched off. Returns what the change says of the tree.
pub(crate) async fn at_runtime(connection: &mut PgConnection, stored: &Stored, changed: &Retain) -> Result<Approval> {
    let Ok(Policy::Retain(before)) = stored.policy() else { return Ok(Approval::Given) };
    store::rows::savepoint(connection).await?;
    let unapproved = unapproved(connection, &before).await;
    store::rows::end_savepoint(connection, unapproved.is_ok()).await?;
    // What cannot be read as it was, a column that has another name by now, is what the change may be there to mend.
    let grown = match unapproved {
        Ok(grown) => grown,
        Err(error) if error.is_unavailable() => return Err(error),
        Err(_) if changed.enabled => self::unapproved(connection, changed).await?,
        Err(_) => return Ok(Approval::AsBefore),
    };
    match (grown.is_empty(), changed.enabled) {
        (true, _) => Ok(Approval::Given),
        (false, false) => Ok(Approval::AsBefore),
        (false, true) => Err(Error::refused(format!(
            "what hangs on its table has changed since it was approved: {}",
            grown.join("; ")
        ))
        .with_hint("look at it with `ebb plan`, and approve it with `ebb apply`; then change the policy")),
    }
}

/// Stores what functions and nodes need of a policy: its terms, its function, and its tree.
pub(crate) async fn install(
    connection: &mut PgConnection,
    policy: &Retain,
    by: &str,
    approval: Approval,
) -> Result<()> {
    let name = policy.name.as_str();
    let (mut subject_call, mut shape) = (None, None);
    let table = work::table(connection, policy).await?;
    if let Some(before) = store::still_about(connection, name, &table).await? {
        return Err(Error::config(format!(
            "policy {name} has open deletions or holds of subjects of {before}, and cannot be about {} from now on",
            table.relation.label()
        ))
        .with_hint("give the new policy another name; the old one ends when its deletions and holds have"));
    }
    if let Some(subjects) = policy.subjects() {
        let compiled = compile::compile(connection, policy, subjects).await?;
        subject_call = Some(function::create(connection, name, subjects, &compiled).await?);
        trigger::follow(connection, policy, &compiled).await?;
        gate::reach(connection, name, &reach::reach(name, &compiled)).await?;
        let tree = compiled.tree.shape();
        let erased = tree.tables.iter().filter(|table| table.erased);
        gate::open_over(connection, name, erased.map(|table| table.table.clone()).collect()).await?;
        shape = Some(tree);
    }
    let floor = policy.floor.unwrap_or(Term::seconds(0));
    let warning = policy.subjects().and_then(|subjects| subjects.warning.as_ref());
    let put = store::PutRetain {
        policy: name,
        relation: table.relation.label(),
        subjects: policy.subjects().is_some(),
        grace: policy.retention().to_interval(),
        floor: floor.to_interval(),
        zone: policy.zone.name(),
        tenant_override: policy.tenant_override,
        subject_call,
        tree: shape.as_ref(),
        by,
        approves: approval == Approval::Given,
        warn_before: warning.map(|warning| warning.before.iter().map(Term::to_interval).collect()).unwrap_or_default(),
        proceed: warning.is_some_and(|warning| warning.on_undeliverable == Undeliverable::Proceed),
    };
    store::put_retain(connection, put).await?;
    store::due_again(connection, name).await?;
    match (policy.erases(), warning) {
        // What waits in another sink is made anew for this one: of the former nobody may be looking after any more.
        (true, Some(warning)) => store::warnings::withdraw_warnings(connection, name, Some(&warning.notify)).await,
        (false, _) | (true, None) => store::warnings::withdraw_warnings(connection, name, None).await,
    }
}

/// Takes away what a policy put on its table, and what it was about to say: it left the file, or is switched off. Its table need not be
/// there.
pub(crate) async fn withdraw(connection: &mut PgConnection, policy: &str) -> Result<()> {
    trigger::remove(connection, policy).await?;
    store::warnings::withdraw_warnings(connection, policy, None).await
}

/// Whether the trigger that a policy asks for is not there, or is switched off.
pub(crate) async fn lacks_trigger(connection: &mut PgConnection, policy: &Retain) -> Result<bool> {
    let Some(subjects) = policy.subjects() else { return Ok(false) };
    let compiled = compile::compile(connection, policy, subjects).await?;
    trigger::is_missing(connection, policy, &compiled).await
}

/// Whether the function that touches a policy's table is not the one that this version makes.
pub(crate) async fn has_outdated_function(connection: &mut PgConnection, policy: &Retain) -> Result<bool> {
    let Some(subjects) = policy.subjects() else { return Ok(false) };
    let compiled = compile::compile(connection, policy, subjects).await?;
    function::is_outdated(connection, policy.name.as_str(), subjects, &compiled).await
}

/// The policies that are about subjects.
pub async fn policies(connection: &mut PgConnection) -> Result<Vec<String>> {
    store::subject_policies(connection).await
}

/// Open deletions: stuck ones first, then the soonest due.
pub async fn list_open(connection: &mut PgConnection, filter: &OpenFilter) -> Result<Vec<OpenDeletion>> {
    store::list_open(connection, filter).await
}

/// Subjects on hold by a policy, or by any, deleted or not: the latest hold first, from the one after `after` on.
pub async fn list_holds(
    connection: &mut PgConnection,
    policy: Option<&str>,
    limit: i64,
    after: Option<i64>,
) -> Result<Vec<HeldSubject>> {
    store::list_holds(connection, policy, limit, after).await
}

/// Open deletions of a policy, or of all, that wait for something: what failed first, then the soonest due.
pub async fn list_waiting(
    connection: &mut PgConnection,
    policy: Option<&str>,
    limit: i64,
) -> Result<Vec<OpenDeletion>> {
    store::list_waiting(connection, policy, limit).await
}

/// What was set for tenants of a policy, by the version that it made.
pub async fn override_history(
    connection: &mut PgConnection,
    policy: &str,
) -> Result<std::collections::HashMap<i64, serde_json::Value>> {
    Ok(store::override_history(connection, policy).await?.into_iter().collect())
}

/// Why floors went down by changes of a policy, by the version that each made.
pub async fn floor_history(
    connection: &mut PgConnection,
    policy: &str,
) -> Result<std::collections::HashMap<i64, String>> {
    Ok(store::floor_history(connection, policy).await?.into_iter().collect())
}

/// How the subjects of each policy stand, counted up to so many.
pub(crate) async fn backlog(connection: &mut PgConnection, most: i64) -> Result<Vec<Backlog>> {
    store::backlog(connection, most).await
}

/// The tree that was approved for a policy.
pub async fn approved_tree(connection: &mut PgConnection, policy: &str) -> Result<Option<Shape>> {
    store::approved(connection, policy).await
}

/// The columns of a policy's table that its policy names and that are not there.
pub(crate) async fn missing_columns(connection: &mut PgConnection, policy: &Retain) -> Result<Vec<MissingColumn>> {
    columns::missing(connection, policy).await
}

/// The index that leads to soft-deleted rows, where the table is large enough to want one and has none.
pub(crate) async fn missing_index(connection: &mut PgConnection, policy: &Retain) -> Result<Option<(String, String)>> {
    columns::missing_index(connection, policy).await
}

/// What triggers of a policy's table will not find when a subject is touched through Ebb.
pub(crate) async fn unseen(connection: &mut PgConnection, policy: &Retain) -> Result<Vec<Finding>> {
    if policy.subjects().is_none() {
        return Ok(Vec::new());
    }
    let table = work::table(connection, policy).await?;
    path::unseen(connection, &table).await
}

/// What differs between the tree of a policy and the one that was approved; nothing where none was yet.
pub(crate) async fn unapproved(connection: &mut PgConnection, policy: &Retain) -> Result<Vec<String>> {
    let Some(subjects) = policy.subjects() else { return Ok(Vec::new()) };
    let (_, tree) = compile::tree(connection, policy, subjects).await?;
    let approved = store::approved(connection, policy.name.as_str()).await?;
    Ok(approved.map(|approved| approved.differences(&tree.shape())).unwrap_or_default())
}

/// How many subjects fall due on each of the days after a moment; the first number is what is due by then. Whom nobody has
/// marked yet counts too; the second value says whether there was time to count them.
pub(crate) async fn forecast(
    connection: &mut PgConnection,
    policy: &Retain,
    (from, days): (Moment, u32),
    among: Surroundings<'_>,
) -> Result<(Vec<u64>, bool)> {
    let mut due = vec![0; days as usize + 1];
    let mut found = match among.installed {
        true => store::due_by_day(connection, policy.name.as_str(), from, days).await?,
        false => Vec::new(),
    };
    let unmarked = match policy.subjects() {
        Some(subjects) => plan::unmarked_by_day(connection, policy, subjects, (from, days), among).await?,
        None => Some(Vec::new()),
    };
    let complete = unmarked.is_some();
    found.extend(unmarked.unwrap_or_default());
    for (day, subjects) in found {
        if let Some(due) = due.get_mut(day.unsigned_abs() as usize) {
            *due += subjects.unsigned_abs();
        }
    }
    Ok((due, complete))
}

/// The size of the rows of a policy's table on disk, one by one.
pub(crate) async fn bytes_per_row(connection: &mut PgConnection, policy: &Retain) -> Result<f64> {
    let table = work::table(connection, policy).await?;
    let rows: u64 = catalog::leaves(connection, table.oid).await?.iter().map(|leaf| leaf.rows).sum();
    let (_, bytes) = store::table_size(connection, table.oid).await?;
    Ok(bytes as f64 / rows.max(1) as f64)
}

/// The tree of a policy and what is due of it, with what was found on the way.
pub(crate) async fn plan(
    connection: &mut PgConnection,
    policy: &Retain,
    among: Surroundings<'_>,
) -> Result<Option<TreePlan>> {
    plan::plan(connection, policy, among).await
}

/// Policies with subjects that could not be erased: how many, and the last error.
pub(crate) async fn stuck(connection: &mut PgConnection) -> Result<Vec<(String, i64, Option<String>)>> {
    store::stuck(connection, erase::ATTEMPTS, None).await
}

/// Policies that are not followed any more and have open deletions, or holds in force: how many of each.
pub(crate) async fn stranded(connection: &mut PgConnection) -> Result<Vec<(String, i64, i64)>> {
    store::stranded(connection).await
}

/// Policies with subjects that wait because their warning could not be delivered: how many, and the last error.
pub(crate) async fn undeliverable(connection: &mut PgConnection) -> Result<Vec<(String, i64, Option<String>)>> {
    store::warnings::undeliverable(connection).await
}

/// Direct retention as the sweep understands it, with the terms that tenants set for themselves.
pub(crate) async fn as_expire(connection: &mut PgConnection, policy: &Retain) -> Result<Option<Expire>> {
    match ByAge::of(policy.clone()) {
        Some(by_age) => by_age.now(connection).await.map(Some),
        None => Ok(None),
    }
}

/// Direct retention: rows by their age.
pub(crate) struct ByAge {
    retain: Retain,
    by_default: Expire,
}

impl ByAge {
    pub(crate) fn of(retain: Retain) -> Option<Self> {
        let by_default = retain.as_expire(retain.retention(), None)?;
        Some(Self { retain, by_default })
    }

    /// By the policy's own term alone.
    pub(crate) fn default(&self) -> Expire {
        self.by_default.clone()
    }

    /// The terms that tenants set for themselves.
    pub(crate) async fn own_terms(&self, connection: &mut PgConnection) -> Result<Option<OwnTerms>> {
        tenant::own_terms(connection, &self.retain).await
    }

    /// By the terms that everybody has now.
    pub(crate) async fn now(&self, connection: &mut PgConnection) -> Result<Expire> {
        Ok(self.own_terms(connection).await?.map_or_else(|| self.default(), |own| own.at(None)))
    }
}
