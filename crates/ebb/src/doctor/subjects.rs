//! Subjects: schemas that erasing cannot handle or should not trust, trees that changed, subjects that are stuck.

use super::{Finding, Fix};
use crate::plan::{followed, retained};
use crate::policy::{Kind, Stored, Wanted};
use crate::retain::{self, Surroundings};
use crate::words::plural;
use crate::{Engine, Result, gate};

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
        // Entries of `children` are told together, with the first that one is missing for.
        let mut proposal = plan.proposal.clone();
        for found in &plan.findings {
            let evidence = format!("{}: {}", found.table, found.message);
            let finding = match found.refuses {
                true => Finding::fail("subjects", Some(name), evidence),
                false => Finding::warn("subjects", Some(name), evidence),
            };
            let fix = plan.mends(found).map(str::to_owned);
            findings.push(match fix.or_else(|| found.fix.as_ref().and_then(|_| proposal.take())) {
                Some(fix) if ["CREATE ", "ALTER ", "REVOKE "].iter().any(|begins| fix.starts_with(begins)) => {
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
        if applied && retain::has_outdated_function(&mut tx, policy).await.unwrap_or(false) {
            let evidence = "the function that changes its rows is not the one that this version makes: another version made it, or the table or \
                            the rights on its schema have changed since";
            findings.push(Finding::warn("subjects", Some(name), evidence).fix(Fix::command("ebb apply")));
        }
        if applied {
            findings.extend(astray(retain::astray(&mut tx, policy).await?, name));
        }
        if !plan.unapproved.is_empty() {
            let evidence = format!("its tree is not the approved one: {}", plan.unapproved.join("; "));
            findings.push(Finding::fail("subjects", Some(name), evidence).fix(Fix::command("ebb apply")));
        }
    }
    let (mut tx, now) = (engine.database().read().await?, followed(&new, stored));
    for conflict in gate::conflicts(&mut tx, &now, &now, installed).await? {
        let (policy, fix) = (conflict.between().0, Fix::advice(conflict.fix()));
        findings.push(Finding::fail("subjects", Some(policy), conflict.to_string()).fix(fix));
    }
    if !installed {
        if findings.is_empty() && looked > 0 {
            findings.push(Finding::ok("subjects", "every tree can be erased"));
        }
        return Ok(findings);
    }
    for (policy, open, held) in retain::stranded(&mut tx).await? {
        // What is enabled by its own keys and yet is not has left the file.
        let of_name = |stored: &&Stored| stored.kind == Kind::Retain && stored.name == policy;
        let says = stored.iter().find(of_name).and_then(|stored| stored.policy().ok()).map(|policy| policy.enabled());
        let (is, back) = match says {
            Some(false) => ("disabled", format!("ebb policy set {policy} enabled=true, or enabled = true in the file")),
            _ => ("not in the file any more", "put it back into the file".to_owned()),
        };
        let evidence = format!(
            "it is {is} and has {}, {} in force: nobody is erased by it, and its holds stay",
            plural(open, "open deletion"),
            plural(held, "hold")
        );
        let fix = format!(
            "{back}; or ebb restore {policy} ID, ebb release {policy} ID for each (ebb show {policy} lists them)"
        );
        findings.push(Finding::warn("subjects", Some(&policy), evidence).fix(Fix::advice(fix)));
    }
    for below in retain::below_floors(&mut tx, &now, installed).await? {
        let fix = format!("{}; or lower the floor, with a reason", below.fix());
        findings.push(Finding::warn("subjects", Some(&below.policy), below.to_string()).fix(Fix::advice(fix)));
    }
    if looked == 0 {
        return Ok(findings);
    }
    for (policy, count, error) in retain::stuck(&mut tx).await? {
        let last = error.map_or(String::new(), |error| format!("; the last error: {error}"));
        let evidence = format!("{} could not be erased{last}", plural(count, "subject"));
        let fix = Fix::command(format!("ebb retry {policy} ID, once the cause is gone"));
        findings.push(Finding::fail("subjects", Some(&policy), evidence).fix(fix));
    }
    for (policy, count, error) in retain::undeliverable(&mut tx).await? {
        let last = error.map_or(String::new(), |error| format!("; the last error: {error}"));
        let evidence = format!("{} could not be warned, and will not be erased{last}", plural(count, "subject"));
        let fix = Fix::command("ebb event list --state dead, then ebb event retry EVENT once the cause is gone");
        findings.push(Finding::fail("subjects", Some(&policy), evidence).fix(fix));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("subjects", "every tree can be erased, and no subject is stuck"));
    }
    Ok(findings)
}

/// Holds and deletions that were left behind.
fn astray(astray: retain::Astray, policy: &str) -> Vec<Finding> {
    let some = |ids: &[String]| {
        let more = if ids.len() > 5 { ", …" } else { "" };
        format!("{}{more}", ids.iter().take(5).map(String::as_str).collect::<Vec<_>>().join(", "))
    };
    let mut findings = Vec::new();
    if !astray.held.is_empty() {
        let evidence = format!(
            "{} on hold whose row is not there ({}): the application changed its key or deleted it, and the hold did not follow",
            astray.held.len(),
            some(&astray.held)
        );
        let fix = format!(
            "ebb hold {policy} ID for whom it is about by now, then ebb release {policy} {}; mark_at_once = true lets holds follow",
            retain::argument(&astray.held[0])
        );
        findings.push(Finding::fail("subjects", Some(policy), evidence).fix(Fix::advice(fix)));
    }
    if !astray.open.is_empty() {
        let evidence = format!(
            "{} with an open deletion whose row is not there ({}): the application changed its key or deleted it",
            astray.open.len(),
            some(&astray.open)
        );
        let fix = "a deletion is closed when it is due; marking finds whoever is soft-deleted under another key";
        findings.push(Finding::warn("subjects", Some(policy), evidence).fix(Fix::advice(fix)));
    }
    if !astray.undated.is_empty() {
        let evidence = format!(
            "{} soft-deleted at -infinity ({}): no term from then on is ever over, and they are not erased",
            astray.undated.len(),
            some(&astray.undated)
        );
        let fix = format!("write when it was; or ebb delete {policy} ID, which counts from now on");
        findings.push(Finding::warn("subjects", Some(policy), evidence).fix(Fix::advice(fix)));
    }
    findings
}
