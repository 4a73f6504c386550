//! Subjects: schemas that erasing cannot handle or should not trust, trees that changed, subjects that are stuck.

use super::{Finding, Fix};
use crate::plan::retained;
use crate::policy::{Stored, Wanted};
use crate::retain::{self, Surroundings};
use crate::{Engine, Result};

/// What stands in the way of retain policies: of those that the database has, and of those that only the file has yet.
pub(super) async fn subjects(
    engine: &Engine,
    stored: &[Stored],
    wanted: &[Wanted],
    installed: bool,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut looked = 0;
    let new: Vec<Wanted> =
        wanted.iter().filter(|want| !stored.iter().any(|stored| stored.name == want.name)).cloned().collect();
    let planned = retained(&new, stored);
    let among = Surroundings { installed, planned: &planned };
    for policy in planned.iter().filter(|policy| policy.enabled) {
        let name = policy.name.as_str();
        let mut tx = engine.database().read().await?;
        let plan = match retain::plan(&mut tx, policy, among).await {
            Ok(Some(plan)) => plan,
            Ok(None) => continue,
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) => {
                findings.push(super::unable("subjects", Some(name), &error));
                continue;
            }
        };
        looked += 1;
        for found in plan.findings {
            let evidence = format!("{}: {}", found.table, found.message);
            let finding = match found.refuses {
                true => Finding::fail("subjects", Some(name), evidence),
                false => Finding::warn("subjects", Some(name), evidence),
            };
            findings.push(match found.fix {
                Some(fix) if fix.starts_with("CREATE ") || fix.starts_with("ALTER ") => {
                    finding.fix(Fix::sql(format!("{fix};")))
                }
                Some(fix) => finding.fix(Fix::advice(fix)),
                None => finding,
            });
        }
        let applied = stored.iter().any(|stored| stored.name == name);
        if applied && retain::lacks_trigger(&mut tx, policy).await.unwrap_or(false) {
            let evidence = "`mark_at_once`: its trigger is not there or is switched off; soft deletes are noticed every `mark_every`";
            findings.push(Finding::warn("subjects", Some(name), evidence).fix(Fix::command("ebb apply")));
        }
        if !plan.unapproved.is_empty() {
            let evidence = format!("its tree is not the approved one: {}", plan.unapproved.join("; "));
            findings.push(Finding::fail("subjects", Some(name), evidence).fix(Fix::command("ebb apply")));
        }
    }
    if looked == 0 {
        return Ok(findings);
    }
    if !installed {
        if findings.is_empty() {
            findings.push(Finding::ok("subjects", "every tree can be erased"));
        }
        return Ok(findings);
    }
    let mut tx = engine.database().read().await?;
    for (policy, count, error) in retain::stuck(&mut tx).await? {
        let last = error.map_or(String::new(), |error| format!("; the last error: {error}"));
        let evidence = format!("{count} subjects could not be erased{last}");
        let fix = Fix::command(format!("ebb retry {policy} ID, once the cause is gone"));
        findings.push(Finding::fail("subjects", Some(&policy), evidence).fix(fix));
    }
    for (policy, count, error) in retain::undeliverable(&mut tx).await? {
        let last = error.map_or(String::new(), |error| format!("; the last error: {error}"));
        let evidence = format!("{count} subjects could not be warned, and are not erased{last}");
        let fix = Fix::command("ebb event list --state dead, then ebb event retry EVENT once the cause is gone");
        findings.push(Finding::fail("subjects", Some(&policy), evidence).fix(fix));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("subjects", "every tree can be erased, and no subject is stuck"));
    }
    Ok(findings)
}
