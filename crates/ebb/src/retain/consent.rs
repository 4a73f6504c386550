//! What a change of a retain policy needs somebody to agree to. Invariants: a change that makes something due takes effect
//! only once that number was seen and agreed to, whoever else stops being due by it; a floor goes down only with a reason, by an administrator, under whatever
//! name its policy goes, and so does one that another policy over the table does not keep; the subjects of a table have one
//! policy.

use serde::Serialize;
use sqlx::PgConnection;

use super::floor::{self, Below, Sweep, counted_from};
use super::keeper::Surroundings;
use super::store::{DueIf, rows};
use super::{as_expire, compile, store};
use crate::policy::anchor::{self, Anchors, Left};
use crate::policy::{Kind, Policy, Retain, Stored, Subjects, Term, Undeliverable, Wanted};
use crate::words::plural;
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
    /// How many of them are not due now: as many as differ, or more where others stop being due.
    pub more: u64,
    /// How many open deletions are due sooner by it, and not at once.
    pub sooner: u64,
    /// There are more soft deletes that nobody has marked yet than could be counted: more may be due than is said.
    pub uncounted: bool,
    /// Tenants who have terms of their own by a policy that this one replaces, and none by this one.
    pub tenants: u64,
}

impl MadeDue {
    /// Of a change by which nobody stops being due where anybody becomes it.
    pub(super) fn new(policy: &str, what: &'static str, (before, after): (u64, u64)) -> Self {
        let more = after.saturating_sub(before);
        Self { policy: policy.to_owned(), what, before, after, more, sooner: 0, uncounted: false, tenants: 0 }
    }

    /// How many more.
    pub fn more(&self) -> u64 {
        self.more
    }

    /// Whoever is due now and then, and whom `unless` keeps back now alone, is not due but by the change.
    fn frees(&mut self, freed: Option<u64>) {
        let freed = freed.unwrap_or_else(|| {
            self.uncounted = true;
            0
        });
        self.before = self.before.saturating_sub(freed);
        self.more += freed;
    }

    /// Whether somebody has to agree to it.
    pub fn asks(&self) -> bool {
        self.makes_due() || self.tenants > 0
    }

    fn makes_due(&self) -> bool {
        self.more() > 0 || self.uncounted
    }

    /// Refuses what nobody has agreed to.
    pub(super) fn agreed(&self, confirmed: bool) -> Result<()> {
        if confirmed || !self.asks() {
            return Ok(());
        }
        Err(Error::refused(self.to_string()).with_hint(match self.makes_due() {
            true => "say --yes to let them go",
            false => "keep the policy's name, or say --yes and give them terms with `ebb policy override`",
        }))
    }
}

impl std::fmt::Display for MadeDue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { policy, what, tenants, .. } = self;
        let one = what.trim_end_matches('s');
        let due = match (self.uncounted, self.more()) {
            (true, 0) => Some(format!("more {what} than can be counted now may be due at once")),
            (true, more) => {
                Some(format!("{}, if not more, would be due at once", plural(more, &format!("more {one}"))))
            }
            (false, 0) if *tenants > 0 => None,
            (false, more) => Some(format!("{} would be due at once", plural(more, &format!("more {one}")))),
        };
        let forgotten = (*tenants > 0).then(|| {
            format!("terms of {} by the policy that it replaces would hold no longer", plural(*tenants, "tenant"))
        });
        let told: Vec<String> = due.into_iter().chain(forgotten).collect();
        write!(f, "policy {policy}: {}", told.join("; "))
    }
}

/// What a policy as it is wanted makes due that nobody would take as things are: beyond its own terms, where it is followed, or
/// those of the policies that it replaces. None where it is the first over its rows. `all` is what the same file wants besides.
pub async fn made_due(
    connection: &mut PgConnection,
    wanted: &Retain,
    all: Option<&[Wanted]>,
) -> Result<Option<MadeDue>> {
    if !wanted.erases() {
        return Ok(None);
    }
    let stored = stored(connection).await?;
    let named = stored.iter().find(|stored| stored.name == wanted.name.as_str());
    let followed = match named.filter(|stored| stored.enabled).map(Stored::policy).transpose()? {
        Some(Policy::Retain(before)) => Some(before).filter(Retain::erases),
        _ => None,
    };
    match followed {
        Some(before) => due_beyond(connection, &before, wanted).await.map(Some),
        None => {
            let replaced = replaced(connection, &stored, wanted, all).await?;
            match named.is_none() && replaced.is_empty() {
                true => Ok(None),
                false => due_after(connection, &replaced, wanted).await.map(Some),
            }
        }
    }
}

/// A policy that another one takes the place of.
struct Replaced {
    policy: Retain,
    /// Nodes erase by it until then.
    is_followed: bool,
}

/// The policies over rows of a policy that nobody follows any more once it is as it is wanted.
async fn replaced(
    connection: &mut PgConnection,
    stored: &[Stored],
    wanted: &Retain,
    all: Option<&[Wanted]>,
) -> Result<Vec<Replaced>> {
    let followed = floor::retained(&followed(all, stored));
    let stays = |policy: &Retain| {
        followed.iter().any(|is| is.enabled && is.name == policy.name && floor::are_about_the_same(is, policy))
    };
    let (mut replaced, anchors) = (Vec::new(), Anchors::read(connection).await?);
    for stored in stored.iter().filter(|stored| stored.name != wanted.name.as_str()) {
        let Some(policy) = floor::parsed(stored).filter(|policy| !stays(policy)) else { continue };
        if floor::retain_the_same(connection, &anchors, &policy, wanted).await? {
            let is_followed = stored.enabled && policy.erases();
            replaced.push(Replaced { policy, is_followed });
        }
    }
    Ok(replaced)
}

/// The policies as they are once a change is made: the file's or, at runtime, those that nodes follow.
fn followed(all: Option<&[Wanted]>, stored: &[Stored]) -> Vec<Policy> {
    match all {
        Some(all) => all.iter().map(|other| other.policy.clone()).collect(),
        None => stored.iter().filter(|other| other.enabled).filter_map(|other| other.policy().ok()).collect(),
    }
}

/// The same for a policy that keeps its name.
async fn due_beyond(connection: &mut PgConnection, before: &Retain, wanted: &Retain) -> Result<MadeDue> {
    let name = wanted.name.as_str();
    if let Some(sweep) = as_expire(connection, wanted).await? {
        let before = as_expire(connection, before).await.unwrap_or_default();
        let due = plan::made_due(connection, before.as_ref(), &sweep).await?;
        return Ok(MadeDue::new(name, "rows", due));
    }
    // Whoever is not marked yet is counted where a term may get shorter, or `unless` lets go, which may take its time.
    let floor = |policy: &Retain| policy.floor.unwrap_or(Term::seconds(0));
    let no_shorter = terms_of(before) == terms_of(wanted)
        && wanted.retention().never_shorter(&before.retention())
        && floor(wanted).never_shorter(&floor(before));
    let lets_go = may_let_go(before, wanted);
    let marked = marked(connection, wanted, true, if lets_go { COUNTED } else { 0 }).await?;
    let (now, then) = match no_shorter && !lets_go {
        true => (Unmarked::default(), Unmarked::default()),
        false => (unmarked(connection, before).await?, unmarked(connection, wanted).await?),
    };
    let already = unmarked_among(connection, before, &then.ids).await?;
    let mut due = MadeDue::new(name, "subjects", (marked.now + now.count(), marked.then + then.count()));
    due.more = marked.more + then.count().saturating_sub(already.len() as u64);
    due.sooner = marked.sooner;
    due.uncounted = then.more || marked.subjects.len() as u64 >= COUNTED;
    if lets_go {
        let both = [marked.subjects, already].concat();
        due.frees(let_go(connection, before, wanted, both).await?);
    }
    // Whoever is marked follows to the tenant that another column names; whose terms those are nobody has looked yet.
    let follow = wanted.tenant_override && before.tenant != wanted.tenant;
    due.uncounted |=
        follow && store::any_open(connection, name).await? && !store::overrides(connection, name).await?.is_empty();
    Ok(due)
}

/// The same for one that is new or was switched off: nobody goes but by the policies that are followed until then.
async fn due_after(connection: &mut PgConnection, replaced: &[Replaced], wanted: &Retain) -> Result<MadeDue> {
    let name = wanted.name.as_str();
    let until_then = || replaced.iter().filter(|replaced| replaced.is_followed).map(|replaced| &replaced.policy);
    let mut due = match as_expire(connection, wanted).await? {
        Some(sweep) => {
            let before = match until_then().next() {
                Some(before) => as_expire(connection, before).await.unwrap_or_default(),
                None => None,
            };
            MadeDue::new(name, "rows", plan::made_due(connection, before.as_ref(), &sweep).await?)
        }
        None => {
            let marked = marked(connection, wanted, false, COUNTED).await?;
            let then = unmarked(connection, wanted).await?;
            let mut due = MadeDue::new(name, "subjects", (0, marked.then + then.count()));
            due.uncounted = then.more;
            let ids = [marked.subjects, then.ids].concat();
            for before in until_then() {
                due.before += store::count_due(connection, before.name.as_str()).await?;
                due.before += unmarked(connection, before).await?.count();
                let already = due_among(connection, before, &ids).await?;
                due.more = due.more.saturating_sub(already.len() as u64);
                if may_let_go(before, wanted) {
                    due.frees(let_go(connection, before, wanted, already).await?);
                }
            }
            due
        }
    };
    let own: Vec<String> = store::overrides(connection, name).await?.into_iter().map(|own| own.tenant).collect();
    for before in replaced {
        let theirs = store::overrides(connection, before.policy.name.as_str()).await?;
        due.tenants += theirs.iter().filter(|theirs| !own.contains(&theirs.tenant)).count() as u64;
    }
    Ok(due)
}

/// Subjects are counted, and asked about one by one, no further.
const COUNTED: u64 = super::plan::UNMARKED;

/// Open deletions that are due, and that are by the terms that are wanted.
struct Marked {
    now: u64,
    then: u64,
    /// Those that are then and are not now.
    more: u64,
    /// Those that are sooner, and not now.
    sooner: u64,
    /// Subjects who are due then: those who are now, too, or of a policy by which nobody is all.
    subjects: Vec<String>,
}

/// Looks at the open deletions of a policy, which is followed now or is not; at most so many subjects are told by name.
async fn marked(connection: &mut PgConnection, wanted: &Retain, is_followed: bool, named: u64) -> Result<Marked> {
    let floor = wanted.floor.unwrap_or(Term::seconds(0));
    let terms = (wanted.retention().to_interval(), floor.to_interval());
    let warning = wanted.subjects().and_then(|subjects| subjects.warning.as_ref());
    let proceeds = warning.is_some_and(|warning| warning.on_undeliverable == Undeliverable::Proceed);
    let (warns, own) = ((warning.is_some(), proceeds), (wanted.tenant_override, wanted.zone.name()));
    let whom = (is_followed, named);
    let DueIf { now, would_be, more, sooner, subjects } =
        store::due_if(connection, wanted.name.as_str(), terms, warns, own, whom).await?;
    let (now, then, more) = (now.unsigned_abs(), would_be.unsigned_abs(), more.unsigned_abs());
    Ok(Marked { now, then, more, sooner: sooner.unsigned_abs(), subjects })
}

/// How many subjects a policy has due by its terms, marked and not, and whether there may be more than could be counted.
pub(super) async fn due(connection: &mut PgConnection, policy: &Retain) -> Result<(u64, bool)> {
    let marked = marked(connection, policy, false, 0).await?;
    let unmarked = unmarked(connection, policy).await?;
    Ok((marked.then + unmarked.count(), unmarked.more))
}

/// Which of these subjects are due by a policy as it is, marked or not.
async fn due_among(connection: &mut PgConnection, policy: &Retain, ids: &[String]) -> Result<Vec<String>> {
    let marked = store::due_among(connection, policy.name.as_str(), ids).await?;
    Ok([marked, unmarked_among(connection, policy, ids).await?].concat())
}

fn unless(policy: &Retain) -> Option<&str> {
    policy.subjects().and_then(|subjects| subjects.unless.as_deref())
}

/// Whether the one may keep somebody back who is due, and the other does not.
fn may_let_go(before: &Retain, wanted: &Retain) -> bool {
    unless(before).is_some() && unless(before) != unless(wanted)
}

/// How many of these subjects, who are due, `unless` keeps back now and would not then; none where that cannot be said soon.
async fn let_go(
    connection: &mut PgConnection,
    before: &Retain,
    wanted: &Retain,
    due: Vec<String>,
) -> Result<Option<u64>> {
    let Some(now) = kept_back(connection, before, &due).await? else { return Ok(None) };
    Ok(kept_back(connection, wanted, &now).await?.map(|then| (now.len() - then.len()) as u64))
}

/// Whom of these subjects `unless` of a policy keeps back; none where that cannot be said soon, or it raises an error over one.
async fn kept_back(connection: &mut PgConnection, policy: &Retain, ids: &[String]) -> Result<Option<Vec<String>>> {
    let Some(subjects) = policy.subjects().filter(|subjects| subjects.unless.is_some() && !ids.is_empty()) else {
        return Ok(Some(Vec::new()));
    };
    rows::savepoint(connection).await?;
    let asked = ask_unless(connection, policy, subjects, ids).await;
    rows::end_savepoint(connection, false).await?;
    match asked {
        Err(error) if error.is_unavailable() => Err(error),
        asked => Ok(asked.ok()),
    }
}

async fn ask_unless(
    connection: &mut PgConnection,
    policy: &Retain,
    subjects: &Subjects,
    ids: &[String],
) -> Result<Vec<String>> {
    let compiled = compile::compile(connection, policy, subjects).await?;
    let named = compiled.root.named(ids.iter().map(String::as_str))?;
    let kept = rows::blocked_soon(connection, &compiled.root, &named).await?;
    Ok(kept.into_iter().filter_map(|at| ids.get(at as usize).cloned()).collect())
}

/// What decides, besides the terms themselves, when a soft delete that nobody has marked yet is due.
fn terms_of(policy: &Retain) -> impl PartialEq {
    let subjects = policy.subjects();
    let warned = subjects.is_some_and(|subjects| subjects.warning.is_some());
    let column = subjects.map(|subjects| subjects.deleted_at.clone());
    let tenant = policy.tenant_override.then(|| policy.tenant.clone());
    (tenant, policy.zone.name().to_owned(), column, warned)
}

/// Subjects who are due and whose soft delete nobody has marked yet: the next marking finds them.
#[derive(Debug, Default)]
struct Unmarked {
    ids: Vec<String>,
    /// There may be more of them than could be counted.
    more: bool,
}

impl Unmarked {
    fn count(&self) -> u64 {
        self.ids.len() as u64
    }
}

/// What a policy says of subjects whom nobody has marked: who is warned first is not due by being marked.
fn unwarned(policy: &Retain) -> Option<&Subjects> {
    policy.subjects().filter(|subjects| subjects.warning.is_none())
}

async fn unmarked(connection: &mut PgConnection, policy: &Retain) -> Result<Unmarked> {
    let Some(subjects) = unwarned(policy) else { return Ok(Unmarked::default()) };
    let found = super::plan::unmarked(connection, policy, subjects, Surroundings::STORED).await?;
    let more = found.as_ref().is_none_or(|found| found.len() as u64 >= COUNTED);
    Ok(Unmarked { ids: found.unwrap_or_default(), more })
}

/// Which of these are; nobody where that cannot be said soon, so that each of them counts as made due.
async fn unmarked_among(connection: &mut PgConnection, policy: &Retain, ids: &[String]) -> Result<Vec<String>> {
    let Some(subjects) = unwarned(policy).filter(|_| !ids.is_empty()) else { return Ok(Vec::new()) };
    let found = super::plan::unmarked_of(connection, policy, subjects, Some(ids), Surroundings::STORED).await?;
    Ok(found.unwrap_or_default())
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
    /// Refuses a change that nobody has agreed to; otherwise what it makes due. `all` is what the same file wants besides.
    pub(crate) async fn covers(
        &self,
        connection: &mut PgConnection,
        wanted: &Policy,
        all: Option<&[Wanted]>,
    ) -> Result<Option<MadeDue>> {
        self.covers_others(connection, wanted, all).await?;
        let moved = anchor::moved(connection, wanted).await?.filter(|_| wanted.enabled());
        if let Some(moved) = moved.as_ref().filter(|_| !self.consent.confirmed) {
            return Err(moved.refusal(wanted.name()));
        }
        if let Some(left) = anchor::left_behind(connection, wanted).await?.filter(|_| wanted.enabled()) {
            keeps_subjects(connection, wanted.name(), &left).await?;
            if !self.consent.confirmed {
                return Err(left.refusal(wanted.name()));
            }
        }
        let Policy::Retain(wanted) = wanted else { return Ok(None) };
        let stored = stored(connection).await?;
        let named = stored.iter().find(|stored| stored.name == wanted.name.as_str());
        match named.and_then(floor::parsed) {
            Some(before) => {
                let column = counted_from(wanted).0;
                let same_column = match counted_from(&before).0 {
                    was if was == column => !moved.is_some_and(|moved| moved.has(column)),
                    was => anchor::is_same(connection, (Kind::Retain, wanted.name.as_str()), was, column).await?,
                };
                let before = if same_column { floor::counted_by(&before, column) } else { before };
                self.covers_floor(connection, &before, wanted, same_column).await?;
                if !same_column {
                    keeps_column(connection, &before, wanted).await?;
                }
            }
            // A new name over a table whose policy goes: its floor is still the table's.
            None => {
                let anchors = Anchors::read(connection).await?;
                for gone in replaced(connection, &stored, wanted, all).await? {
                    let column = (wanted.table.as_str(), counted_from(wanted).0);
                    let same_column = floor::is_counted_from(connection, &anchors, &gone.policy, column).await?;
                    self.covers_floor(connection, &gone.policy, wanted, same_column).await?;
                }
            }
        }
        let due = made_due(connection, wanted, all).await?;
        due.iter().try_for_each(|due| due.agreed(self.consent.confirmed))?;
        Ok(due)
    }

    /// Rows that another policy promises to keep go below its floor only for a reason. What one was given for stays agreed to.
    async fn covers_others(
        &self,
        connection: &mut PgConnection,
        wanted: &Policy,
        all: Option<&[Wanted]>,
    ) -> Result<()> {
        let Some(sweep) = Sweep::of(wanted) else { return Ok(()) };
        let stored = policy::store::all(connection).await?;
        let current = followed(all, &stored);
        // Those that go are asked by a new name of a policy itself.
        let is_new = !stored.iter().any(|stored| stored.kind == wanted.kind() && stored.name == wanted.name());
        let known = if wanted.kind() == Kind::Retain && is_new { &[] } else { &stored[..] };
        let anchors = Anchors::read(connection).await?;
        for keeper in floor::keepers(&current, known) {
            let Some(below) = floor::below(connection, &anchors, &sweep, &keeper).await? else { continue };
            let stands = sweep.stands(&keeper, &stored);
            let Below { policy, table, keeper, floor, .. } = &below;
            // What nobody was asked about was no matter then: their tables have come to share rows since.
            if stands && store::floor_agreed(connection, policy, table, keeper).await? {
                continue;
            }
            self.justified(connection, below.to_string(), keeper, Some(&below.fix())).await?;
            let mut entry = crate::audit::Entry::new("floor", self.by);
            entry.policy = Some(policy.clone());
            entry.details = serde_json::json!({ "from": floor.to_string(), "of": keeper, "table": table, "reason": self.consent.reason });
            entry.insert(connection).await?;
        }
        Ok(())
    }

    /// Refuses what lets a floor go down without a reason, or by anybody but an administrator.
    async fn justified(
        &self,
        connection: &mut PgConnection,
        what: String,
        policy: &str,
        instead: Option<&str>,
    ) -> Result<()> {
        if self.consent.reason.as_deref().is_none_or(|reason| reason.trim().is_empty()) {
            let why = "say why: --reason \"…\"";
            let hint = instead.map_or_else(|| why.to_owned(), |instead| format!("{instead}; or {why}"));
            return Err(Error::refused(what).with_hint(hint));
        }
        if !self.admin && !store::is_admin(connection).await? {
            return Err(Error::refused(format!("lowering the floor of policy {policy} needs role admin"))
                .with_hint("do it as a member of the role that owns the ebb schema"));
        }
        Ok(())
    }

    async fn covers_floor(
        &self,
        connection: &mut PgConnection,
        before: &Retain,
        wanted: &Retain,
        same_column: bool,
    ) -> Result<()> {
        let Some(floor) = before.floor else { return Ok(()) };
        let (old, name) = (before.name.as_str(), wanted.name.as_str());
        let as_long = wanted.floor.is_some_and(|wanted| wanted.never_shorter(&floor));
        let same_time = same_column
            && counted_from(before).1 == counted_from(wanted).1
            && !floor::ends_elsewhere(connection, before, wanted).await?;
        let anchors = Anchors::read(connection).await?;
        // What left under its own name is on record, and counts until another floor takes its place.
        if as_long && same_time && (old != name || !floor::leaves_behind(connection, &anchors, before, wanted).await?) {
            return Ok(());
        }
        let what = match (as_long, same_time) {
            (false, _) => format!("the floor {floor} of policy {old} would go down"),
            (true, false) => format!("the floor {floor} of policy {old} would count from another time"),
            (true, true) => format!("the floor {floor} of policy {old} would not hold any more for rows that it keeps"),
        };
        self.justified(connection, what, old, None).await?;
        let mut entry = crate::audit::Entry::new("floor", self.by);
        entry.policy = Some(name.to_owned());
        entry.details = serde_json::json!({
            "from": floor.to_string(), "to": wanted.floor.map(|floor| floor.to_string()), "reason": self.consent.reason,
        });
        if as_long && !same_time {
            entry.details["counted_from"] = counted_from(wanted).0.into();
            entry.details["zone"] = wanted.zone.name().into();
        } else if as_long {
            entry.details["left"] = before.table.clone().into();
        }
        if old != name {
            entry.details["before"] = old.into();
        }
        entry.insert(connection).await?;
        Ok(())
    }
}

/// Refuses another table under the same name while deletions are open: they and holds are about subjects of the one before.
async fn keeps_subjects(connection: &mut PgConnection, policy: &str, left: &Left) -> Result<()> {
    if !store::any_open(connection, policy).await? {
        return Ok(());
    }
    let Left { now, table } = left;
    Err(Error::refused(format!(
        "policy {policy} has open deletions or holds of subjects of {now}, and cannot be about {table} from now on"
    ))
    .with_hint(format!(
        "say table = {now:?}, and give the policy over {table} another name; or, if its subjects are those of {table} now, end what is \
         open first (ebb show {policy} lists it), apply this with --yes, and place holds again"
    )))
}

/// Refuses another soft-delete column while deletions are open.
async fn keeps_column(connection: &mut PgConnection, before: &Retain, wanted: &Retain) -> Result<()> {
    let both = before.subjects().is_some() && wanted.subjects().is_some();
    if !both || !store::any_open(connection, wanted.name.as_str()).await? {
        return Ok(());
    }
    Err(Error::refused(format!(
        "policy {} has open deletions or holds, and another column cannot say from now on who is deleted",
        wanted.name
    ))
    .with_hint(format!("let them end first: ebb show {} lists them", wanted.name)))
}

/// Refuses two policies over the subjects of one table: each would erase whom the other keeps.
pub(crate) async fn one_for_each_table(connection: &mut PgConnection) -> Result<()> {
    match store::policies_of_one_table(connection).await? {
        None => Ok(()),
        Some((table, policies)) => Err(two_policies(&table, &policies)),
    }
}

/// Why the subjects of a table have one policy.
pub(crate) fn two_policies(table: &str, policies: &[impl AsRef<str>]) -> Error {
    let both = policies.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" and ");
    Error::refused(format!(
        "the subjects of {table} have two policies, {both}: the shorter one would erase whom the other keeps"
    ))
    .with_hint("give a table's subjects one policy, and tenants terms of their own with tenant_override")
}
