//! Which policies take rows that another one promises to keep. Invariants: a floor is the table's: it also counts for its
//! partitions, and after its policy has left, until another floor took its place; unless the server proves that two policies are
//! about different rows, whatever rows will come, they are about the same.

use sqlx::PgConnection;

use super::store;
use crate::Result;
use crate::pg::{Ident, catalog, expression};
use crate::policy::anchor::{self, Anchors};
use crate::policy::{Action, EpochUnit, Expired, Kind, Policy, Retain, RetainForm, Stored, Term};

/// A policy that takes rows by their time.
#[derive(Debug, PartialEq)]
pub(super) struct Sweep {
    kind: Kind,
    name: String,
    table: String,
    column: String,
    unit: Option<EpochUnit>,
    /// The shortest that a row may stay after that time.
    term: Term,
    filter: Option<String>,
    /// Whether it can have one.
    filters: bool,
}

impl Sweep {
    pub(super) fn of(policy: &Policy) -> Option<Self> {
        let (table, column, unit, term, filter) = match policy {
            Policy::Expire(expire) if expire.enabled && expire.action == Action::Delete => {
                let term = expire.older_than.unwrap_or(Term::seconds(0));
                (&expire.table, expire.column.as_str(), expire.unit, term, expire.filter.clone())
            }
            Policy::Retain(retain) if retain.enabled => {
                let (column, unit) = counted_from(retain);
                let floor = retain.floor.unwrap_or(Term::seconds(0));
                let term = match &retain.form {
                    RetainForm::Direct(direct) if !retain.tenant_override => direct.older_than,
                    // A tenant's own terms, or a verified request, go down to the floor.
                    _ => floor,
                };
                (&retain.table, column, unit, term, condition(retain))
            }
            Policy::Partition(partition) if partition.enabled && partition.expired != Expired::Detach(None) => {
                (&partition.table, partition.column.as_str(), partition.unit, partition.keep?, None)
            }
            _ => return None,
        };
        let filters = match policy {
            Policy::Retain(retain) => retain.subjects().is_none(),
            other => other.kind() == Kind::Expire,
        };
        let (table, column) = (table.clone(), column.to_owned());
        Some(Self { kind: policy.kind(), name: policy.name().to_owned(), table, column, unit, term, filter, filters })
    }

    /// The `where` with which it would leave alone what a policy keeps, if it can have one and that does not keep everything.
    fn apart_from(&self, keeper: &Retain) -> Option<String> {
        let others = match &keeper.form {
            RetainForm::Direct(direct) => format!("({}) IS NOT TRUE", direct.filter.as_ref()?),
            RetainForm::Subjects(subjects) => format!("{} IS NULL", Ident::new(&subjects.deleted_at)),
        };
        match &self.filter {
            _ if !self.filters => None,
            Some(filter) => Some(format!("({filter}) AND {others}")),
            None => Some(others),
        }
    }

    /// Whether what is wanted is no worse for a floor than what is stored.
    pub(super) fn stands(&self, keeper: &Retain, stored: &[Stored]) -> bool {
        let named = |kind: Kind, name: &str| stored.iter().find(|stored| stored.kind == kind && stored.name == name);
        let before =
            named(self.kind, &self.name).filter(|stored| stored.enabled).and_then(|stored| stored.policy().ok());
        let kept = named(Kind::Retain, keeper.name.as_str()).and_then(parsed);
        let (Some(before), Some(kept)) = (before.as_ref().and_then(Self::of), kept) else { return false };
        let takes_no_more = self.term.never_shorter(&before.term) && *self == Self { term: self.term, ..before };
        let keeps_no_more = match (kept.floor, keeper.floor) {
            (Some(kept), Some(wanted)) => kept.never_shorter(&wanted),
            (_, wanted) => wanted.is_none(),
        };
        takes_no_more
            && keeps_no_more
            && are_about_the_same(&kept, keeper)
            && counted_from(&kept) == counted_from(keeper)
    }
}

pub(super) fn parsed(stored: &Stored) -> Option<Retain> {
    match stored.policy() {
        Ok(Policy::Retain(policy)) => Some(policy),
        _ => None,
    }
}

/// What the floor of a policy is counted from.
pub(super) fn counted_from(policy: &Retain) -> (&str, Option<EpochUnit>) {
    match &policy.form {
        RetainForm::Direct(direct) => (&direct.column, direct.unit),
        RetainForm::Subjects(subjects) => (&subjects.deleted_at, None),
    }
}

/// The same policy with another name of the column that its floor is counted from.
pub(super) fn counted_by(policy: &Retain, column: &str) -> Retain {
    let mut policy = policy.clone();
    match &mut policy.form {
        RetainForm::Direct(direct) => direct.column = column.to_owned(),
        RetainForm::Subjects(subjects) => subjects.deleted_at = column.to_owned(),
    }
    policy
}

/// Whether a floor is over at another moment because its policy has another zone: months are those of its calendar, and a time
/// without a zone is at home there.
pub(super) async fn ends_elsewhere(connection: &mut PgConnection, before: &Retain, wanted: &Retain) -> Result<bool> {
    if before.zone == wanted.zone {
        return Ok(false);
    }
    if before.floor.is_some_and(|floor| floor.as_duration().is_err()) {
        return Ok(true);
    }
    let table = catalog::table(connection, &wanted.table).await?;
    let column = catalog::column(connection, &table.relation, table.oid, counted_from(wanted).0).await?;
    Ok(matches!(column.base_type.as_str(), "timestamp without time zone" | "date"))
}

/// Which rows of its table a policy is about; none: all of them.
fn condition(policy: &Retain) -> Option<String> {
    match &policy.form {
        RetainForm::Direct(direct) => direct.filter.clone(),
        RetainForm::Subjects(subjects) => Some(format!("{} IS NOT NULL", Ident::new(&subjects.deleted_at))),
    }
}

/// The same rows, as far as names tell.
pub(super) fn are_about_the_same(one: &Retain, other: &Retain) -> bool {
    one.table == other.table && condition(one) == condition(other)
}

/// Those of the policies that retain.
pub(super) fn retained(policies: &[Policy]) -> Vec<Retain> {
    let retain = |policy: &Policy| match policy {
        Policy::Retain(retain) => Some(retain.clone()),
        _ => None,
    };
    policies.iter().filter_map(retain).collect()
}

/// The policies with a floor once nodes follow `current`: those, and those that left, or are about other rows by then, and
/// whose floor no other replaced.
pub(super) fn keepers(current: &[Policy], stored: &[Stored]) -> Vec<Retain> {
    let current = retained(current);
    let is_stored = |policy: &Retain| {
        stored.iter().any(|stored| stored.kind == Kind::Retain && stored.name == policy.name.as_str())
    };
    let stays = |policy: &Retain| current.iter().any(|is| is.name == policy.name && are_about_the_same(is, policy));
    let taken_over = |gone: &Retain| {
        current.iter().any(|policy| {
            policy.floor.is_some() && are_about_the_same(policy, gone) && counted_from(policy) == counted_from(gone)
        })
    };
    let still_counts =
        |stored: &&Stored| parsed(stored).is_some_and(|gone| !stays(&gone) && (stored.enabled || !taken_over(&gone)));
    let gone: Vec<Retain> = stored.iter().filter(still_counts).filter_map(parsed).collect();
    let counts = |policy: &Retain| policy.enabled || is_stored(policy);
    current.into_iter().filter(counts).chain(gone).filter(|policy| policy.floor.is_some()).collect()
}

/// A policy that takes rows which another one promises to keep.
#[derive(Debug, Clone)]
pub(crate) struct Below {
    pub(crate) policy: String,
    pub(super) table: String,
    pub(crate) keeper: String,
    pub(super) floor: Term,
    /// The `where` with which it would leave them alone, where one does.
    apart: Option<String>,
}

impl Below {
    /// What helps.
    pub(crate) fn fix(&self) -> String {
        let wait = "let it wait at least as long, from the same column";
        match &self.apart {
            Some(filter) => format!("{wait}; or leave those rows out: where = {filter:?}"),
            None => wait.to_owned(),
        }
    }
}

impl std::fmt::Display for Below {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { policy, table, keeper, floor, .. } = self;
        write!(f, "policy {policy} takes rows of {table} that policy {keeper} keeps: its floor {floor} would not hold")
    }
}

/// Whether a column of a table is the one that a floor is counted from, whatever that is called by now.
pub(super) async fn is_counted_from(
    connection: &mut PgConnection,
    anchors: &Anchors,
    keeper: &Retain,
    (table, column): (&str, &str),
) -> Result<bool> {
    let typed = counted_from(keeper).0;
    match anchors.column(Kind::Retain, keeper.name.as_str(), &keeper.table, typed) {
        None => Ok(typed == column),
        Some(None) => Ok(false),
        Some(Some(now)) if now == column => Ok(true),
        Some(Some(now)) => {
            let table = match catalog::table(connection, table).await {
                Err(error) if error.is_config() => return Ok(false),
                table => table?,
            };
            let found = catalog::column(connection, &table.relation, table.oid, column).await;
            Ok(found.is_ok_and(|found| found.name.as_str() == now))
        }
    }
}

/// Whether a sweep does not keep the floor of a policy over its rows.
pub(super) async fn below(
    connection: &mut PgConnection,
    anchors: &Anchors,
    sweep: &Sweep,
    keeper: &Retain,
) -> Result<Option<Below>> {
    let name = keeper.name.as_str();
    let Some(floor) = keeper.floor.filter(|_| (sweep.kind, sweep.name.as_str()) != (Kind::Retain, name)) else {
        return Ok(None);
    };
    let keeps = sweep.term.never_shorter(&floor)
        && counted_from(keeper).1 == sweep.unit
        && is_counted_from(connection, anchors, keeper, (&sweep.table, &sweep.column)).await?;
    if keeps || !share_rows(connection, anchors, keeper, (&sweep.table, sweep.filter.as_deref())).await? {
        return Ok(None);
    }
    let apart = sweep.apart_from(keeper);
    let (policy, table, keeper) = (sweep.name.clone(), sweep.table.clone(), name.to_owned());
    Ok(Some(Below { policy, table, keeper, floor, apart }))
}

/// The floors that other policies of these do not keep; before there is a schema, as names tell.
pub(crate) async fn below_floors(
    connection: &mut PgConnection,
    policies: &[Policy],
    installed: bool,
) -> Result<Vec<Below>> {
    let anchors = if installed { Anchors::read(connection).await? } else { Anchors::default() };
    let mut found = Vec::new();
    for sweep in policies.iter().filter_map(Sweep::of) {
        for policy in policies {
            if let Policy::Retain(keeper) = policy
                && keeper.enabled
            {
                found.extend(below(connection, &anchors, &sweep, keeper).await?);
            }
        }
    }
    Ok(found)
}

/// The same for another policy that retains.
pub(super) async fn retain_the_same(
    connection: &mut PgConnection,
    anchors: &Anchors,
    one: &Retain,
    other: &Retain,
) -> Result<bool> {
    share_rows(connection, anchors, one, (&other.table, condition(other).as_deref())).await
}

/// Whether a policy as it is wanted is not about all the rows that it keeps now.
pub(super) async fn leaves_behind(
    connection: &mut PgConnection,
    anchors: &Anchors,
    before: &Retain,
    wanted: &Retain,
) -> Result<bool> {
    if are_about_the_same(before, wanted) {
        let policy = (Kind::Retain, before.name.as_str());
        return Ok(anchor::named_anew(connection, policy, &before.table).await?.is_some());
    }
    let then = catalog::table(connection, &wanted.table).await?;
    for now in tables_of(connection, anchors, before).await? {
        if store::overlap(connection, now.oid, then.oid).await? != Some(now.oid) {
            return Ok(true);
        }
    }
    let Some(condition) = condition(wanted) else { return Ok(false) };
    share_rows(connection, anchors, before, (&wanted.table, Some(&format!("({condition}) IS NOT TRUE")))).await
}

/// The tables whose rows a policy keeps: the one that has the name it says, and the one that had it when the policy was applied.
async fn tables_of(connection: &mut PgConnection, anchors: &Anchors, policy: &Retain) -> Result<Vec<catalog::Table>> {
    let anchored = anchors.table(Kind::Retain, policy.name.as_str(), &policy.table).map(|table| table.label());
    let mut tables: Vec<catalog::Table> = Vec::new();
    for typed in [Some(policy.table.clone()), anchored].into_iter().flatten() {
        match catalog::table(connection, &typed).await {
            Ok(found) if tables.iter().any(|known| known.oid == found.oid) => {}
            Ok(found) => tables.push(found),
            Err(error) if error.is_config() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(tables)
}

/// Whether some rows may be a policy's and satisfy a condition on another table, or the same.
async fn share_rows(
    connection: &mut PgConnection,
    anchors: &Anchors,
    policy: &Retain,
    (table, filter): (&str, Option<&str>),
) -> Result<bool> {
    let swept = match catalog::table(connection, table).await {
        Err(error) if error.is_config() => return Ok(policy.table == table),
        found => found?,
    };
    for kept in tables_of(connection, anchors, policy).await? {
        let Some(lower) = store::overlap(connection, kept.oid, swept.oid).await? else { continue };
        let lower = if kept.oid == lower { &kept } else { &swept };
        let (Some(condition), Some(filter)) = (condition(policy), filter) else { return Ok(true) };
        if !expression::exclude(connection, &lower.relation, (&condition, filter)).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
