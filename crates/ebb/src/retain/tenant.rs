//! Tenants' own terms. Invariants: an override is never below the floor; setting one is a new version of the policy, so
//! that nodes follow and history and audit have it; direct retention asks the same rule, row by row.

use serde_json::json;
use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;

use super::store;
pub use super::store::Override;
use crate::pg::{Ident, Literal, catalog};
use crate::policy::store::{Put, Source};
use crate::policy::{Kind, Policy, Retain, RetainForm, Term};
use crate::{Error, Result, policy};

/// What becomes of a tenant's terms.
#[derive(Debug, Clone, PartialEq)]
pub enum OverrideChange {
    /// Its own retention, and whether anything of it is erased.
    Set {
        /// How long; none: as the policy says.
        retention: Option<Term>,
        /// False: nothing of this tenant goes.
        enabled: bool,
    },
    /// The policy's again.
    Unset,
}

/// The overrides of a policy.
pub async fn list_overrides(connection: &mut PgConnection, policy: &str) -> Result<Vec<Override>> {
    store::overrides(connection, policy).await
}

/// Changes a tenant's terms. Returns the policy's new version and (due now, due then); without `confirmed` a change
/// that makes subjects due is refused, with the number.
pub async fn set_override(
    connection: &mut PgConnection,
    name: &str,
    tenant: &str,
    change: &OverrideChange,
    confirmed: bool,
    by: &str,
) -> Result<(i64, u64, u64)> {
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
) -> Result<(i64, u64, u64)> {
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
    if !retain.tenant_override {
        return Err(Error::refused(format!("policy {name} does not let tenants have terms of their own"))
            .with_hint("set tenant_override = true and tenant = \"COLUMN\""));
    }
    let before = store::count_due(connection, name).await?;
    match change {
        OverrideChange::Set { retention, enabled } => {
            if let (Some(term), Some(floor)) = (retention, &retain.floor)
                && term.approximate() < floor.approximate()
            {
                return Err(Error::refused(format!("{term} is below the floor {floor} of policy {name}")).with_hint(
                    retain
                        .basis
                        .map_or_else(|| format!("at least {floor}"), |basis| format!("at least {floor}: {basis}")),
                ));
            }
            let spec = json!({ "retention": retention.map(|term| term.to_string()), "enabled": enabled });
            let interval = retention.map(|term| term.to_interval());
            store::put_override(connection, name, tenant, interval, &spec, *enabled, by).await?;
        }
        OverrideChange::Unset => {
            if !store::remove_override(connection, name, tenant).await? {
                return Err(Error::unknown(format!("tenant {tenant} has no override of policy {name}")));
            }
        }
    }
    store::due_again(connection, name).await?;
    let after = store::count_due(connection, name).await?;
    if after > before && !confirmed {
        return Err(Error::refused(format!("{} more subjects would be due at once", after - before))
            .with_hint("say --yes to let them go"));
    }
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
        OverrideChange::Set { retention, enabled } => {
            json!({ "tenant": tenant, "retention": retention.map(|term| term.to_string()), "enabled": enabled })
        }
        OverrideChange::Unset => json!({ "tenant": tenant, "unset": true }),
    };
    entry.insert(connection).await?;
    Ok((version, before, after))
}

/// For direct retention with overrides: the shortest term that anybody has, and a condition that is true for rows whose
/// own term has ended.
pub(crate) async fn own_terms(connection: &mut PgConnection, retain: &Retain) -> Result<Option<(Term, String)>> {
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
        let (name, is) = (&column.name, &column.base_type);
        return Err(Error::config(format!("tenants have terms of their own, and column {name} is {is}"))
            .with_hint("overrides of retention by age need a timestamptz column"));
    }
    let ended = |term: Term| ended(&column.name, term.to_interval(), retain.zone.name());
    let mut shortest = direct.older_than;
    let mut cases = Vec::new();
    for own in &overrides {
        let retention = own.spec.get("retention").and_then(|term| term.as_str()).map(str::parse::<Term>);
        let retention = retention.transpose()?.unwrap_or(direct.older_than);
        if own.enabled && retention.approximate() < shortest.approximate() {
            shortest = retention;
        }
        let then = if own.enabled { ended(retention) } else { "false".to_owned() };
        cases.push(format!("WHEN {} THEN {then}", Literal(&own.tenant)));
    }
    let cases = cases.join(" ");
    Ok(Some((shortest, format!("CASE {tenant}::text {cases} ELSE {} END", ended(direct.older_than)))))
}

fn ended(column: &Ident, term: PgInterval, zone: &str) -> String {
    let interval = format!(
        "make_interval(months => {}, days => {}, secs => {})",
        term.months,
        term.days,
        term.microseconds as f64 / 1e6
    );
    format!("ebb.later({column}, {interval}, {}) <= ebb.now()", Literal(zone))
}
