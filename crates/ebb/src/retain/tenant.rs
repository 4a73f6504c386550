//! Tenants' own terms. Invariants: an override is never below the floor; setting one is a new version of the policy, so
//! that nodes follow and history and audit have it; direct retention asks the same rule, row by row.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;

pub use super::store::Override;
use super::store::rows;
use super::{MadeDue, TreeChange, Trees, consent, store};
use crate::pg::{Ident, Literal, catalog};
use crate::policy::store::{Put, Source};
use crate::policy::{Expire, Kind, Policy, Retain, RetainForm, Term, Warning};
use crate::{Error, Result, plan, policy};

/// What a tenant has of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantTerms {
    /// How long its data is retained; none: as the policy says.
    pub retention: Option<Term>,
    /// How long before its erasure a subject is warned; none: as the policy says.
    pub warn_before: Option<Vec<Term>>,
    /// Words of its own in the warning.
    pub texts: BTreeMap<String, String>,
    /// False: nothing of this tenant goes.
    pub enabled: bool,
}

impl Default for TenantTerms {
    /// All as the policy says.
    fn default() -> Self {
        Self { retention: None, warn_before: None, texts: BTreeMap::new(), enabled: true }
    }
}

impl TenantTerms {
    /// As it is kept; what it leaves to the policy is absent.
    pub fn spec(&self) -> Value {
        let mut spec = json!({ "retention": self.retention.as_ref().map(Term::to_string), "enabled": self.enabled });
        if let Some(terms) = &self.warn_before {
            spec["warn_before"] = terms.iter().map(Term::to_string).collect();
        }
        if !self.texts.is_empty() {
            spec["texts"] = json!(self.texts);
        }
        spec
    }

    fn of(kept: &Override) -> Result<Self> {
        let listed = |terms: &Vec<Value>| terms.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let warn_before: Option<Vec<String>> = kept.spec["warn_before"].as_array().map(listed);
        let texts = kept.spec["texts"].as_object().cloned().unwrap_or_default();
        Ok(Self {
            retention: kept.spec["retention"].as_str().map(str::parse).transpose()?,
            warn_before: warn_before.map(|terms| policy::warning_terms(&terms)).transpose()?,
            texts: policy::warning_texts(&texts)?,
            enabled: kept.enabled,
        })
    }
}

impl Override {
    /// The terms that it is.
    pub fn terms(&self) -> Result<TenantTerms> {
        TenantTerms::of(self)
    }
}

/// What becomes of a tenant's terms.
#[derive(Debug, Clone, PartialEq)]
pub enum OverrideChange {
    /// They are these.
    Set(TenantTerms),
    /// The policy's again.
    Unset,
}

/// What a change of a tenant's terms came to, or would.
#[derive(Debug)]
pub struct TermsChanged {
    /// The policy's version with it; the same where they are like that already.
    pub version: i64,
    /// How many are due without it.
    pub before: u64,
    /// How many are due with it.
    pub after: u64,
    /// What it makes of the trees of other policies.
    pub trees: Vec<TreeChange>,
}

/// What a tenant has of its own by a policy, which stays until the transaction ends.
pub async fn tenant_terms(connection: &mut PgConnection, policy: &str, tenant: &str) -> Result<TenantTerms> {
    policy::store::lock(connection).await?;
    let all = store::overrides(connection, policy).await?;
    let own = all.iter().find(|own| own.tenant == tenant);
    own.map_or_else(|| Ok(TenantTerms::default()), TenantTerms::of)
}

/// The overrides of a policy.
pub async fn list_overrides(connection: &mut PgConnection, policy: &str) -> Result<Vec<Override>> {
    store::overrides(connection, policy).await
}

/// How many open deletions of a tenant are due sooner, and not at once, when its terms are changed like that.
pub async fn due_sooner(
    connection: &mut PgConnection,
    policy: &str,
    tenant: &str,
    change: &OverrideChange,
) -> Result<u64> {
    let before = tenant_terms(connection, policy, tenant).await?.retention;
    let after = match change {
        OverrideChange::Set(terms) => terms.retention,
        OverrideChange::Unset => None,
    };
    let terms = (before.map(|term| term.to_interval()), after.map(|term| term.to_interval()));
    Ok(store::due_sooner(connection, (policy, tenant), terms).await?.unsigned_abs())
}

/// Changes a tenant's terms; without `confirmed` a change that makes subjects due, or changes what goes with those of another
/// policy, is refused, with what it would be.
pub async fn set_override(
    connection: &mut PgConnection,
    name: &str,
    tenant: &str,
    change: &OverrideChange,
    confirmed: bool,
    by: &str,
) -> Result<TermsChanged> {
    set_override_at(connection, name, tenant, change, None, confirmed, by).await
}

/// The same for whoever names the version that the change was made on: "superseded" when there is a newer one.
pub async fn set_override_at(
    connection: &mut PgConnection,
    name: &str,
    tenant: &str,
    change: &OverrideChange,
    expected: Option<i64>,
    confirmed: bool,
    by: &str,
) -> Result<TermsChanged> {
    policy::store::lock(connection).await?;
    let stored = policy::store::find(connection, name).await?;
    if let Some(expected) = expected.filter(|expected| *expected != stored.version) {
        let now = stored.version;
        return Err(Error::superseded(format!("policy {name} is at version {now}, not {expected}"))
            .with_hint("look at it again and make the change on top of the newer version"));
    }
    let Policy::Retain(retain) = stored.policy()? else {
        return Err(Error::unknown(format!("policy {name} has no tenants: only [[retain]] policies have")));
    };
    if tenant.trim().is_empty() {
        return Err(Error::usage("a tenant has a name").with_hint("the tenant is named as its column names it"));
    }
    if !retain.tenant_override {
        return Err(Error::refused(format!("policy {name} does not let tenants have terms of their own"))
            .with_hint("set tenant_override = true and tenant = \"COLUMN\""));
    }
    let (before, _) = consent::due(connection, &retain).await?;
    let own = store::overrides(connection, name).await?.into_iter().find(|own| own.tenant == tenant);
    if let (Some(own), OverrideChange::Set(terms)) = (&own, change)
        && own.terms().is_ok_and(|own| own == *terms)
    {
        return Ok(TermsChanged { version: stored.version, before, after: before, trees: Vec::new() });
    }
    let trees = Trees::read(connection, name).await?;
    // Terms that a column cannot have stop a policy; they can be taken back all the same.
    let sweep = super::as_expire(connection, &retain).await.unwrap_or_default();
    match change {
        OverrideChange::Set(terms) => {
            let TenantTerms { retention, warn_before, texts, enabled } = terms;
            if !confirmed {
                has_rows(connection, &retain, tenant).await?;
            }
            if let (Some(term), Some(floor)) = (retention, &retain.floor)
                && term.approximate() < floor.approximate()
            {
                let basis = retain.basis.as_ref().map_or(String::new(), |basis| format!(": {basis}"));
                return Err(Error::config(format!("{term} is below the floor {floor} of policy {name}"))
                    .with_hint(format!("at least {floor}{basis}"))
                    .at_key("retention"));
            }
            let warning = retain.subjects().and_then(|subjects| subjects.warning.as_ref());
            if (warn_before.is_some() || !texts.is_empty()) && warning.is_none() {
                return Err(Error::refused(format!("policy {name} warns nobody"))
                    .with_hint("set warn_before, contact and notify in the policy first"));
            }
            if let Some(warning) = warning {
                let first = warn_before.as_ref().unwrap_or(&warning.before).first();
                let kept = retention.unwrap_or_else(|| retain.retention());
                fits(name, tenant, first, &kept)?;
            }
            let interval = retention.map(|term| term.to_interval());
            let warn = warn_before.as_ref().map(|terms| terms.iter().map(Term::to_interval).collect());
            store::put_override(connection, (name, tenant), (interval, warn), &terms.spec(), *enabled, by).await?;
        }
        OverrideChange::Unset => {
            if !store::remove_override(connection, name, tenant).await? {
                return Err(Error::unknown(format!("tenant {tenant} has no override of policy {name}")));
            }
        }
    }
    store::due_again(connection, name).await?;
    let due = match super::as_expire(connection, &retain).await {
        Err(_) if *change == OverrideChange::Unset => MadeDue::new(name, "rows", (0, 0)),
        Ok(Some(after)) => MadeDue::new(name, "rows", plan::made_due(connection, sweep.as_ref(), &after).await?),
        Ok(None) => {
            // One term of one tenant changes: whom the shorter one has not due, the longer one has not either.
            let (after, uncounted) = consent::due(connection, &retain).await?;
            MadeDue { uncounted, ..MadeDue::new(name, "subjects", (before, after)) }
        }
        Err(error) => return Err(error.context(format!("policy {name}"))),
    };
    due.agreed(confirmed)?;
    let (before, after) = (due.before, due.after);
    let source = if stored.source == "runtime" { Source::Runtime } else { Source::File };
    let put = Put {
        kind: Kind::Retain,
        name,
        spec: &stored.spec,
        enabled: stored.enabled,
        stopped: stored.stopped.as_deref(),
        source,
        by,
    };
    let version = policy::store::put(connection, put).await?;
    let mut entry = crate::audit::Entry::new("override", by);
    entry.policy = Some(name.to_owned());
    entry.policy_version = Some(version);
    entry.details = match change {
        OverrideChange::Set(terms) => {
            let mut details = terms.spec();
            details["tenant"] = tenant.into();
            details
        }
        OverrideChange::Unset => json!({ "tenant": tenant, "unset": true }),
    };
    entry.insert(connection).await?;
    let trees = trees.changed(connection, confirmed, by).await?;
    Ok(TermsChanged { version, before, after, trees })
}

/// Refuses a name that no row has: more likely a typing error than a tenant that is yet to come.
async fn has_rows(connection: &mut PgConnection, retain: &Retain, tenant: &str) -> Result<()> {
    let Some(column) = &retain.tenant else { return Ok(()) };
    let table = catalog::table(connection, &retain.table).await?;
    let column = catalog::column(connection, &table.relation, table.oid, column).await?.name;
    match rows::has_tenant(connection, &table.relation, &column, tenant).await? {
        Some(false) => {
            Err(Error::refused(format!("no row of {} has the {} {tenant}", table.relation.label(), column.as_str()))
                .with_hint("look whether it is written like that; for a tenant that is yet to come say --yes"))
        }
        _ => Ok(()),
    }
}

/// A tenant's subjects can be warned in time.
fn fits(policy: &str, tenant: &str, first: Option<&Term>, kept: &Term) -> Result<()> {
    let what = format!("the retention of tenant {tenant}");
    match first.and_then(|first| policy::warning_longer(first, kept, &what)) {
        None => Ok(()),
        Some(invalid) => {
            Err(Error::refused(format!("policy {policy}: {}", invalid.message))
                .with_hint(invalid.hint.unwrap_or_default()))
        }
    }
}

/// Tenants who have terms of their own can still be warned in time after a change of the policy.
pub(crate) async fn still_fits(connection: &mut PgConnection, retain: &Retain, warning: &Warning) -> Result<()> {
    if !retain.tenant_override {
        return Ok(());
    }
    for own in store::overrides(connection, retain.name.as_str()).await? {
        let terms = TenantTerms::of(&own)?;
        let kept = terms.retention.unwrap_or_else(|| retain.retention());
        let first = terms.warn_before.as_ref().unwrap_or(&warning.before).first();
        fits(retain.name.as_str(), &own.tenant, first, &kept)?;
    }
    Ok(())
}

/// Direct retention whose tenants have terms of their own.
#[derive(Debug, Clone)]
pub(crate) struct OwnTerms {
    retain: Retain,
    /// The shortest that anybody has.
    shortest: Term,
    column: Ident,
    tenant: Ident,
    /// Of each tenant; none: nothing of it goes.
    terms: Vec<(String, Option<Term>)>,
}

impl OwnTerms {
    /// As the sweep understands it, at a moment or now: by the shortest term, with a condition that is true for rows whose
    /// own term has ended.
    pub(crate) fn at(&self, moment: Option<Timestamp>) -> Expire {
        let now = moment.map_or("ebb.now()".to_owned(), |at| format!("timestamptz {}", Literal(&at.to_string())));
        let ended = |term: &Term| ended(&self.column, term.to_interval(), self.retain.zone.name(), &now);
        let case = |(tenant, term): &(String, Option<Term>)| {
            format!("WHEN {} THEN {}", Literal(tenant), term.as_ref().map_or("false".to_owned(), ended))
        };
        let cases: Vec<String> = self.terms.iter().map(case).collect();
        let otherwise = ended(&self.retain.retention());
        let condition = format!("CASE {}::text {} ELSE {otherwise} END", self.tenant, cases.join(" "));
        self.retain.as_expire(self.shortest, Some(condition)).expect("it is direct retention")
    }
}

/// For direct retention with overrides.
pub(crate) async fn own_terms(connection: &mut PgConnection, retain: &Retain) -> Result<Option<OwnTerms>> {
    let RetainForm::Direct(direct) = &retain.form else { return Ok(None) };
    let overrides = match retain.tenant_override {
        true => store::overrides(connection, retain.name.as_str()).await?,
        false => Vec::new(),
    };
    let Some(tenant) = retain.tenant.as_ref().filter(|_| !overrides.is_empty()) else { return Ok(None) };
    let table = catalog::table(connection, &retain.table).await?;
    let column = catalog::column(connection, &table.relation, table.oid, &direct.column).await?;
    let tenant = catalog::column(connection, &table.relation, table.oid, tenant).await?.name;
    if column.base_type != "timestamp with time zone" {
        let (name, is) = (column.name.as_str(), &column.base_type);
        return Err(Error::config(format!(
            "a tenant's own terms by age need a timestamptz column, and {name} is {is}"
        ))
        .with_hint(format!("`ebb policy override {} TENANT --unset` takes back one that was set", retain.name)));
    }
    let (mut shortest, mut terms) = (direct.older_than, Vec::new());
    for own in overrides {
        let retention = TenantTerms::of(&own)?.retention.unwrap_or(direct.older_than);
        if own.enabled && retention.approximate() < shortest.approximate() {
            shortest = retention;
        }
        terms.push((own.tenant, own.enabled.then_some(retention)));
    }
    Ok(Some(OwnTerms { retain: retain.clone(), shortest, column: column.name, tenant, terms }))
}

fn ended(column: &Ident, term: PgInterval, zone: &str, now: &str) -> String {
    let interval = format!(
        "make_interval(months => {}, days => {}, secs => {})",
        term.months,
        term.days,
        term.microseconds as f64 / 1e6
    );
    format!("ebb.later({column}, {interval}, {}) <= {now}", Literal(zone))
}
