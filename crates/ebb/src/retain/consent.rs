//! What a change of a retain policy needs somebody to agree to. Invariants: a change that makes something due takes effect
//! only once that number was seen and agreed to; a floor goes down only with a reason, by an administrator, under whatever
//! name its policy goes, and so does one that another policy over the table does not keep; the subjects of a table have one
//! policy.

use serde::Serialize;
use sqlx::PgConnection;

use super::keeper::Surroundings;
use super::{as_expire, store};
use crate::pg::catalog;
use crate::policy::{Action, EpochUnit, Kind, Policy, Retain, RetainForm, Stored, Term, Undeliverable, Wanted};
use crate::{Error, Result, plan, policy};

/// What somebody has agreed to.
#[derive(Debug, Clone, Default)]
pub struct Consent {
    /// Subjects or rows may become due by the change.
    pub confirmed: bool,
    /// Why a floor goes down.
    pub reason: Option<String>,
}

/// What a change makes due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MadeDue {
    /// The policy.
    pub policy: String,
    /// `subjects`, or `rows` of retention by age.
    pub what: &'static str,
    /// How many are due now.
    pub before: u64,
    /// How many are due with the change; estimated where counting takes too long.
    pub after: u64,
    /// There are more soft deletes that nobody has marked yet than could be counted: more may be due than is said.
    pub uncounted: bool,
}

impl MadeDue {
    pub(super) fn new(policy: &str, what: &'static str, (before, after): (u64, u64)) -> Self {
        Self { policy: policy.to_owned(), what, before, after, uncounted: false }
    }

    /// The same of subjects, of whom those that nobody has marked yet come on top.
    pub(super) fn subjects(policy: &str, before: (u64, Option<u64>), after: (u64, Option<u64>)) -> Self {
        let sum = |(marked, unmarked): (u64, Option<u64>)| marked + unmarked.unwrap_or_default();
        Self { uncounted: after.1.is_none(), ..Self::new(policy, "subjects", (sum(before), sum(after))) }
    }

    /// How many more.
    pub fn more(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    /// Whether somebody has to agree to it.
    pub fn asks(&self) -> bool {
        self.more() > 0 || self.uncounted
    }

    /// Refuses what nobody has agreed to.
    pub(super) fn agreed(&self, confirmed: bool) -> Result<()> {
        match self.asks() {
            true if !confirmed => Err(Error::refused(self.to_string()).with_hint("say --yes to let them go")),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for MadeDue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { policy, what, .. } = self;
        match (self.uncounted, self.more()) {
            (true, 0) => write!(f, "policy {policy}: more {what} than can be counted now may be due at once"),
            (true, more) => write!(f, "policy {policy}: {more} more {what}, if not more, would be due at once"),
            (false, more) => write!(f, "policy {policy}: {more} more {what} would be due at once"),
        }
    }
}

/// What a policy as it is wanted makes due that it keeps as it is stored; none where it is not stored yet.
pub async fn made_due(connection: &mut PgConnection, wanted: &Retain) -> Result<Option<MadeDue>> {
    let name = wanted.name.as_str();
    let Some(before) = stored(connection).await?.into_iter().find(|before| before.name == name) else {
        return Ok(None);
    };
    let before = before.policy()?;
    if let Some(sweep) = as_expire(connection, wanted).await? {
        let Policy::Retain(before) = before else { return Ok(None) };
        let before = as_expire(connection, &before).await.unwrap_or_default();
        let due = plan::made_due(connection, before.as_ref(), &sweep).await?;
        return Ok(Some(MadeDue::new(name, "rows", due)));
    }
    let Some(subjects) = wanted.subjects() else { return Ok(None) };
    let floor = wanted.floor.unwrap_or(Term::seconds(0));
    let terms = (wanted.retention().to_interval(), floor.to_interval());
    let warning = subjects.warning.as_ref();
    let proceeds = warning.is_some_and(|warning| warning.on_undeliverable == Undeliverable::Proceed);
    let own = (wanted.tenant_override, wanted.zone.name());
    let (now, then) = store::due_if(connection, name, terms, (warning.is_some(), proceeds), own).await?;
    let Policy::Retain(before) = before else { return Ok(None) };
    // Whoever is not marked yet is counted where a term may get shorter, which may take its time.
    let (unmarked_now, unmarked_then) = match terms_of(&before) == terms_of(wanted) {
        true => (Some(0), Some(0)),
        false => (unmarked(connection, &before).await?, unmarked(connection, wanted).await?),
    };
    Ok(Some(MadeDue::subjects(name, (now, unmarked_now), (then, unmarked_then))))
}

/// What decides when a soft delete that nobody has marked yet is due.
fn terms_of(policy: &Retain) -> impl PartialEq {
    let subjects = policy.subjects();
    let warned = subjects.is_some_and(|subjects| subjects.warning.is_some());
    let column = subjects.map(|subjects| subjects.deleted_at.clone());
    (policy.retention(), policy.floor, policy.tenant_override, policy.zone.name().to_owned(), column, warned)
}

/// How many subjects are due whose soft delete nobody has marked yet: the next marking finds them. None where they are too
/// many to count now.
pub(super) async fn unmarked(connection: &mut PgConnection, policy: &Retain) -> Result<Option<u64>> {
    let Some(subjects) = policy.subjects().filter(|subjects| subjects.warning.is_none()) else { return Ok(Some(0)) };
    let found = super::plan::unmarked(connection, policy, subjects, Surroundings::STORED).await?;
    Ok(found.map(|found| found.len() as u64).filter(|found| *found < super::plan::UNMARKED))
}

async fn stored(connection: &mut PgConnection) -> Result<Vec<Stored>> {
    Ok(policy::store::all(connection).await?.into_iter().filter(|stored| stored.kind == Kind::Retain).collect())
}

/// A change that is asked for.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) by: &'a str,
    pub(crate) consent: &'a Consent,
    /// Whether whoever asks has shown to be an administrator; the session must belong to one otherwise.
    pub(crate) admin: bool,
}

impl Asked<'_> {
    /// Refuses a change that nobody has agreed to. `all` is what the same file wants besides.
    pub(crate) async fn covers(
        &self,
        connection: &mut PgConnection,
        wanted: &Policy,
        all: Option<&[Wanted]>,
    ) -> Result<()> {
        self.covers_others(connection, wanted, all).await?;
        let Policy::Retain(wanted) = wanted else { return Ok(()) };
        let stored = stored(connection).await?;
        let named = stored.iter().find(|stored| stored.name == wanted.name.as_str());
        let parsed = |stored: &Stored| match stored.policy() {
            Ok(Policy::Retain(policy)) => Some(policy),
            _ => None,
        };
        let Some(before) = named.and_then(parsed) else {
            // A new name over a table whose policy goes: its floor is still the table's.
            let stays = |name: &str| all.is_none_or(|all| all.iter().any(|w| w.kind == Kind::Retain && w.name == name));
            for gone in stored.iter().filter(|stored| !stays(&stored.name)).filter_map(parsed) {
                if gone.subjects().is_some() == wanted.subjects().is_some()
                    && same_table(connection, &gone.table, &wanted.table).await?
                {
                    self.covers_floor(connection, &gone, wanted).await?;
                }
            }
            return Ok(());
        };
        self.covers_floor(connection, &before, wanted).await?;
        let column = |policy: &Retain| policy.subjects().map(|subjects| subjects.deleted_at.clone());
        if column(&before).is_some_and(|was| column(wanted).is_some_and(|is| is != was))
            && store::any_open(connection, wanted.name.as_str()).await?
        {
            return Err(Error::refused(format!(
                "policy {} has open deletions or holds, and another column cannot say from now on who is deleted",
                wanted.name
            ))
            .with_hint(format!("let them end first: ebb show {} lists them", wanted.name)));
        }
        match made_due(connection, wanted).await? {
            Some(due) => due.agreed(self.consent.confirmed),
            None => Ok(()),
        }
    }

    /// Rows that another policy promises to keep go below its floor only for a reason. What was so before was agreed to.
    async fn covers_others(
        &self,
        connection: &mut PgConnection,
        wanted: &Policy,
        all: Option<&[Wanted]>,
    ) -> Result<()> {
        let Some(sweep) = Sweep::of(wanted) else { return Ok(()) };
        let before: Vec<Policy> =
            policy::store::all(connection).await?.iter().filter_map(|stored| stored.policy().ok()).collect();
        let others: Vec<Policy> = match all {
            Some(all) => all.iter().map(|other| other.policy.clone()).collect(),
            None => before.iter().filter(|other| other.enabled()).cloned().collect(),
        };
        for below in below(connection, &sweep, &others).await? {
            let keeper =
                others.iter().find(|other| matches!(other, Policy::Retain(r) if r.name.as_str() == below.keeper));
            if before.contains(wanted) && keeper.is_some_and(|keeper| before.contains(keeper)) {
                continue;
            }
            let Below { policy, keeper, floor, .. } = &below;
            self.justified(connection, below.to_string(), keeper).await?;
            let mut entry = crate::audit::Entry::new("floor", self.by);
            entry.policy = Some(policy.clone());
            entry.details =
                serde_json::json!({ "from": floor.to_string(), "of": keeper, "reason": self.consent.reason });
            entry.insert(connection).await?;
        }
        Ok(())
    }

    /// Refuses what lets a floor go down without a reason, or by anybody but an administrator.
    async fn justified(&self, connection: &mut PgConnection, what: String, policy: &str) -> Result<()> {
        if self.consent.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
            return Err(Error::refused(what).with_hint("say why: --reason \"…\""));
        }
        if !self.admin && !store::is_admin(connection).await? {
            return Err(Error::refused(format!("lowering the floor of policy {policy} needs role admin"))
                .with_hint("do it as a member of the role that owns the ebb schema"));
        }
        Ok(())
    }

    async fn covers_floor(&self, connection: &mut PgConnection, before: &Retain, wanted: &Retain) -> Result<()> {
        let Some(floor) = before.floor else { return Ok(()) };
        let as_long = wanted.floor.is_some_and(|wanted| wanted.never_shorter(&floor));
        if as_long && counted_from(before) == counted_from(wanted) {
            return Ok(());
        }
        let (old, name) = (before.name.as_str(), wanted.name.as_str());
        let what = match as_long {
            false => format!("the floor {floor} of policy {old} would go down"),
            true => format!("the floor {floor} of policy {old} would count from another time"),
        };
        self.justified(connection, what, old).await?;
        let mut entry = crate::audit::Entry::new("floor", self.by);
        entry.policy = Some(name.to_owned());
        entry.details = serde_json::json!({
            "from": floor.to_string(), "to": wanted.floor.map(|floor| floor.to_string()), "reason": self.consent.reason,
        });
        if as_long {
            entry.details["counted_from"] = counted_from(wanted).0.into();
        }
        if old != name {
            entry.details["before"] = old.into();
        }
        entry.insert(connection).await?;
        Ok(())
    }
}

/// What the floor of a policy is counted from.
fn counted_from(policy: &Retain) -> (&str, Option<EpochUnit>) {
    match &policy.form {
        RetainForm::Direct(direct) => (&direct.column, direct.unit),
        RetainForm::Subjects(subjects) => (&subjects.deleted_at, None),
    }
}

/// A policy that takes rows by their time.
struct Sweep {
    name: String,
    table: String,
    column: String,
    /// The shortest that a row may stay after that time.
    term: Term,
}

impl Sweep {
    fn of(policy: &Policy) -> Option<Self> {
        let (name, table, column, term) = match policy {
            Policy::Expire(expire) if expire.enabled && expire.action == Action::Delete => {
                let term = expire.older_than.unwrap_or(Term::seconds(0));
                (expire.name.to_string(), &expire.table, &expire.column, term)
            }
            Policy::Retain(retain) if retain.enabled => {
                let RetainForm::Direct(direct) = &retain.form else { return None };
                let floor = retain.floor.unwrap_or(Term::seconds(0));
                let term = if retain.tenant_override { floor } else { direct.older_than };
                (retain.name.to_string(), &retain.table, &direct.column, term)
            }
            _ => return None,
        };
        Some(Self { name, table: table.clone(), column: column.clone(), term })
    }
}

/// A policy that takes rows which another one promises to keep.
#[derive(Debug, Clone)]
pub(crate) struct Below {
    pub(crate) policy: String,
    table: String,
    keeper: String,
    floor: Term,
}

impl std::fmt::Display for Below {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { policy, table, keeper, floor } = self;
        write!(f, "policy {policy} takes rows of {table} that policy {keeper} keeps: its floor {floor} would not hold")
    }
}

/// The floors over its table that a sweep does not keep.
async fn below(connection: &mut PgConnection, sweep: &Sweep, others: &[Policy]) -> Result<Vec<Below>> {
    let mut found = Vec::new();
    for other in others {
        let Policy::Retain(other) = other else { continue };
        let Some(floor) = other.floor.filter(|_| other.enabled && other.name.as_str() != sweep.name) else { continue };
        let keeps = counted_from(other).0 == sweep.column && sweep.term.never_shorter(&floor);
        if !keeps && same_table(connection, &other.table, &sweep.table).await? {
            let (policy, table, keeper) = (sweep.name.clone(), sweep.table.clone(), other.name.to_string());
            found.push(Below { policy, table, keeper, floor });
        }
    }
    Ok(found)
}

/// The floors that other policies of these do not keep.
pub(crate) async fn below_floors(connection: &mut PgConnection, policies: &[Policy]) -> Result<Vec<Below>> {
    let mut found = Vec::new();
    for sweep in policies.iter().filter_map(Sweep::of) {
        found.extend(below(connection, &sweep, policies).await?);
    }
    Ok(found)
}

async fn same_table(connection: &mut PgConnection, one: &str, other: &str) -> Result<bool> {
    if one == other {
        return Ok(true);
    }
    let mut oids = Vec::new();
    for table in [one, other] {
        match catalog::table(connection, table).await {
            Ok(table) => oids.push(table.oid),
            Err(error) if error.is_config() => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(oids[0] == oids[1])
}

/// Refuses two policies over the subjects of one table: each would erase whom the other keeps.
pub(crate) async fn one_for_each_table(connection: &mut PgConnection) -> Result<()> {
    match store::policies_of_one_table(connection).await? {
        None => Ok(()),
        Some((table, policies)) => {
            let both = policies.join(" and ");
            Err(Error::refused(format!(
                "the subjects of {table} have two policies, {both}: the shorter one would erase whom the other keeps"
            ))
            .with_hint("give a table's subjects one policy, and tenants terms of their own with tenant_override"))
        }
    }
}
