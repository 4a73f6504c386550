//! Subjects: schemas that erasing cannot handle or should not trust, trees that changed, subjects that are stuck.

use super::{Finding, Fix};
use crate::policy::{Policy, Stored};
use crate::{Engine, Result, retain};

/// What stands in the way of retain policies.
pub(super) async fn subjects(engine: &Engine, stored: &[Stored]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut looked = 0;
    for stored in stored.iter().filter(|stored| stored.enabled) {
        let Ok(Policy::Retain(policy)) = stored.policy() else { continue };
        let mut tx = engine.database().read().await?;
        let plan = match retain::plan(&mut tx, &policy).await {
            Ok(Some(plan)) => plan,
            Ok(None) => continue,
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) => {
                findings.push(super::unable("subjects", Some(&stored.name), &error));
                continue;
            }
        };
        looked += 1;
        for found in plan.findings {
            let evidence = format!("{}: {}", found.table, found.message);
            let finding = match found.refuses {
                true => Finding::fail("subjects", Some(&stored.name), evidence),
                false => Finding::warn("subjects", Some(&stored.name), evidence),
            };
            findings.push(match found.fix {
                Some(fix) if fix.starts_with("CREATE ") || fix.starts_with("ALTER ") => {
                    finding.fix(Fix::sql(format!("{fix};")))
                }
                Some(fix) => finding.fix(Fix::advice(fix)),
                None => finding,
            });
        }
        if retain::lacks_trigger(&mut tx, &policy).await.unwrap_or(false) {
            let evidence = "`mark_at_once`: its trigger is not there or is switched off; soft deletes are noticed every `mark_every`";
            findings.push(Finding::warn("subjects", Some(&stored.name), evidence).fix(Fix::command("ebb apply")));
        }
        if !plan.unapproved.is_empty() {
            let evidence = format!("its tree is not the approved one: {}", plan.unapproved.join("; "));
            findings.push(Finding::fail("subjects", Some(&stored.name), evidence).fix(Fix::command("ebb apply")));
        }
    }
    if looked == 0 {
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
