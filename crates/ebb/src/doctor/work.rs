//! The work: policies that stopped, runs that fail or never come, brakes, pauses, nodes, seals.

use std::time::Duration;

use sqlx::PgConnection;

use super::{Action, Finding, Fix, Severity};
use crate::audit::{self, BlockerKind, Destination, Moment, SubjectKey};
use crate::plan::{interval, words};
use crate::policy::anchor::{self, Moved};
use crate::policy::{Stored, Term};
use crate::status::{self, PolicyRow, UnitRow, since};
use crate::{Engine, Result, retain};

/// So many failures in a row are no accident.
const FAILING: i32 = 3;
/// The audit is reviewed once a week; after twice as long somebody should know that it was not.
const REVIEW_WITHIN: Duration = Duration::from_secs(14 * 86_400);
/// Records that wait for a seal although somebody seals.
const MANY_UNSEALED: i64 = 50_000;
/// A seal is outside by then, whoever made it.
const PUBLISHED_WITHIN: Term = Term::seconds(60);

/// Policies that a node had to stop. Where the cause is gone, they can start again.
pub(super) async fn stopped(engine: &Engine, stored: &[Stored]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for stored in stored.iter().filter(|stored| stored.enabled) {
        let Some(reason) = &stored.stopped else {
            findings.extend(will_stop(engine, stored).await?);
            continue;
        };
        let finding = Finding::fail("stopped", Some(&stored.name), format!("stopped: {reason}"));
        findings.push(match engine.would_run(stored).await {
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) => finding.fix(Fix::advice(match error.hint() {
                Some(hint) => format!("still so: {error}; {hint}; then: ebb apply"),
                None => format!("still so: {error}; mend it, then: ebb apply"),
            })),
            Ok(()) => {
                let mut finding = finding;
                finding.evidence.push_str(" (the cause is gone)");
                finding.fix(Fix::command("ebb apply").run(Action::Restart(stored.name.clone())))
            }
        });
    }
    if findings.is_empty() {
        findings.push(Finding::ok("stopped", "no policy has been stopped"));
    }
    Ok(findings)
}

/// A policy that the next run stops: its columns are others than when it was applied.
async fn will_stop(engine: &Engine, stored: &Stored) -> Result<Option<Finding>> {
    let Ok(policy) = stored.policy() else { return Ok(None) };
    let mut tx = engine.database().read().await?;
    let moved = anchor::moved(&mut tx, &policy).await?;
    tx.rollback().await?;
    let finding = |moved: Moved| {
        Finding::fail("stopped", Some(&stored.name), format!("the next run stops: {moved}"))
            .fix(Fix::advice(Moved::FIX))
    };
    Ok(moved.map(finding))
}

/// Brakes and pauses: somebody is asked, or has said no.
pub(super) async fn held_up(engine: &Engine) -> Result<Vec<Finding>> {
    let mut tx = engine.database().read().await?;
    let policies = status::policies(&mut tx).await?;
    tx.rollback().await?;
    let held = policies.iter().filter(|policy| ["paused", "braked"].contains(&policy.state.as_str()));
    let findings: Vec<Finding> = held
        .map(|policy| {
            let check = if policy.state == "paused" { "paused" } else { "brake" };
            let text = policy.reason.clone().unwrap_or_else(|| policy.state.clone());
            let finding = Finding::warn(check, Some(&policy.name), text);
            match &policy.remedy {
                Some(remedy) => finding.fix(Fix::command(remedy.clone())),
                None => finding,
            }
        })
        .collect();
    Ok(match findings.is_empty() {
        true => vec![Finding::ok("brake", "no policy is paused or held by its brake")],
        false => findings,
    })
}

/// Runs that fail, runs whose node is gone, work that nobody has done for three intervals.
pub(super) async fn stuck(engine: &Engine) -> Result<Vec<Finding>> {
    let mut tx = engine.database().read().await?;
    let policies = status::policies(&mut tx).await?;
    let units = status::units(&mut tx).await?;
    let (_, now) = status::clocks(&mut tx).await?;
    tx.rollback().await?;
    let mut findings = Vec::new();
    for unit in &units {
        let policy = policies.iter().find(|policy| policy.name == unit.policy && policy.kind == "expire");
        findings.extend(failing(unit));
        if unit.orphaned {
            let text = format!(
                "run {} on {} says it is running, and its node is gone; the next run takes over what is left",
                unit.run.unwrap_or(0),
                unit.leaf
            );
            let finding = Finding::warn("stuck", Some(&unit.policy), text);
            findings.push(finding.fix(Fix::command("ebb run")));
        }
        findings.extend(policy.and_then(|policy| overdue(unit, policy, now)));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("stuck", "no work is stuck"));
    }
    Ok(findings)
}

fn failing(unit: &UnitRow) -> Option<Finding> {
    if unit.failures == 0 {
        return None;
    }
    let severity = if unit.failures >= FAILING { Severity::Fail } else { Severity::Warn };
    let error = unit.error.as_deref().unwrap_or("no reason was recorded");
    let times = if unit.failures == 1 { "once".to_owned() } else { format!("{} times in a row", unit.failures) };
    let text = format!("{} on {} failed {times}: {error}", unit.chore, unit.leaf);
    Some(Finding::new(severity, "stuck", Some(&unit.policy), text))
}

fn overdue(unit: &UnitRow, policy: &PolicyRow, now: Moment) -> Option<Finding> {
    if policy.state != "active" || unit.held_by.is_some() {
        return None;
    }
    let expire = policy.expire().ok()?;
    let mut patience = interval(&expire).saturating_mul(3);
    if expire.window.is_some() {
        patience += Duration::from_secs(86_400);
    }
    let from = unit.last_success_at.unwrap_or(policy.changed_at);
    let age = since(from, now);
    if age <= patience {
        return None;
    }
    let last = match unit.last_success_at {
        Some(_) => format!("nothing on {} has succeeded for {}", unit.leaf, words(age)),
        None => format!("nothing on {} has ever succeeded, {} after the policy was made", unit.leaf, words(age)),
    };
    let text = format!("{last}, more than three times its interval ({})", crate::policy::human(interval(&expire)));
    let fix = Fix::command(format!("ebb run --once --only {}", unit.policy));
    Some(Finding::fail("stuck", Some(&unit.policy), text).fix(fix))
}

/// Whether anybody works at all, and hears what happens.
pub(super) async fn nodes(engine: &Engine) -> Result<Vec<Finding>> {
    let mut tx = engine.database().read().await?;
    let nodes = status::nodes(&mut tx).await?;
    tx.rollback().await?;
    let alive: Vec<_> = nodes.iter().filter(|node| node.alive).collect();
    if alive.is_empty() {
        let finding = Finding::warn("nodes", None, "no node is running");
        return Ok(vec![finding.fix(Fix::command("ebb run, or `ebb run --once` from a timer"))]);
    }
    let deaf = alive.iter().filter(|node| node.steady && !node.listens);
    let mut findings: Vec<Finding> = deaf
        .map(|node| {
            let text = "LISTEN does not work, so it polls: changes are seen within seconds, not at once";
            let hint = "behind a transaction pooler, name a way past it: direct_url in [database]";
            Finding::warn("nodes", Some(&node.name), text).fix(Fix::advice(hint))
        })
        .collect();
    let names: Vec<&str> = alive.iter().map(|node| node.name.as_str()).collect();
    findings.push(Finding::ok("nodes", format!("running: {}", names.join(", "))));
    Ok(findings)
}

/// Whether anything was deleted before its time, and whether anybody looks.
pub(super) async fn review(engine: &Engine) -> Result<Vec<Finding>> {
    let mut tx = engine.database().read().await?;
    let premature = retain::count_premature(&mut tx).await?;
    let waits = retain::review_waits(&mut tx).await?;
    tx.rollback().await?;
    let mut findings = Vec::new();
    if premature > 0 {
        let text = match premature {
            1 => "1 record says that something was deleted before its time".to_owned(),
            many => format!("{many} records say that something was deleted before its time"),
        };
        let fix = "ebb audit report --since 2000-01-01 names them, and ebb.premature keeps them in mind";
        findings.push(Finding::fail("review", None, text).fix(Fix::advice(fix)));
    }
    if waits > REVIEW_WITHIN {
        let text = format!(
            "the audit was not reviewed to its end for {}: nobody has looked whether anything was deleted before its time",
            words(waits)
        );
        findings.push(Finding::warn("review", None, text).fix(Fix::command("ebb run --once --only audit:audit")));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("review", "nothing is known to have been deleted before its time"));
    }
    Ok(findings)
}

/// Whether deletions are being sealed.
pub(super) async fn audit(engine: &Engine) -> Result<Vec<Finding>> {
    let mut tx = engine.database().read().await?;
    let unsealed = audit::unsealed(&mut tx, MANY_UNSEALED).await?;
    let blocker = audit::blocker(&mut tx).await?;
    let mut findings = Vec::new();
    for found in retain::key_trouble(&mut tx, engine.keys().period().as_ref()).await? {
        findings.push(Finding::fail("audit", Some(&found.about), found.evidence).fix(Fix::advice(found.fix)));
    }
    findings.extend(subject_key(engine, &mut tx).await?);
    findings.extend(unpublished(engine, &mut tx).await?);
    tx.rollback().await?;
    match &engine.keys().signing {
        None => {
            let text = format!("no signing key is configured: {unsealed} audit records are kept, and none is sealed");
            let hint = "set signing_key = \"file:ebb-audit.key\" in [audit], then: ebb apply";
            findings.push(Finding::warn("audit", None, text).fix(Fix::advice(hint)));
        }
        Some(path) if !path.exists() => {
            let text = format!("the signing key {} is not there, so nothing is sealed from here", path.display());
            findings.push(Finding::warn("audit", None, text).fix(Fix::command("ebb apply")));
        }
        Some(_) if unsealed >= MANY_UNSEALED && blocker.is_none() => {
            let text = format!("more than {unsealed} records wait for a seal");
            findings.push(Finding::warn("audit", None, text).fix(Fix::command("ebb run --once --only audit")));
        }
        Some(_) if unsealed == 1 => findings.push(Finding::ok("audit", "1 record waits for the next seal")),
        Some(_) => findings.push(Finding::ok("audit", format!("{unsealed} records wait for the next seal"))),
    }
    if let Some(blocker) = blocker {
        let fix = match &blocker.kind {
            BlockerKind::Process(pid) => Some(format!("SELECT pg_terminate_backend({pid});")),
            BlockerKind::Prepared(gid) => Some(format!("ROLLBACK PREPARED {};", crate::pg::Literal(gid))),
            BlockerKind::Unknown => None,
        };
        let finding = Finding::warn("audit", None, blocker.to_string());
        findings.push(match fix {
            Some(fix) => finding.fix(Fix::sql(fix)),
            None => finding,
        });
    }
    Ok(findings)
}

/// Whether the latest seal is outside the database, where a key to seal with is here. One that was made a moment ago may be on its way.
async fn unpublished(engine: &Engine, connection: &mut PgConnection) -> Result<Option<Finding>> {
    let Some(path) = engine.keys().signing.as_ref().filter(|path| path.exists()) else { return Ok(None) };
    let publish = engine.keys().publish.clone().unwrap_or_else(|| Destination::beside(path));
    let behind = match publish.behind(connection).await {
        Ok(None) => return Ok(None),
        Ok(Some(tip)) if tip.sealed_at >= audit::ago(connection, &PUBLISHED_WITHIN).await? => return Ok(None),
        Ok(Some(tip)) => format!("block {} of the audit is sealed and not published", tip.number),
        Err(error) if error.is_unavailable() || error.sqlstate().is_some() => return Err(error),
        Err(error) => error.to_string(),
    };
    let Destination::File(file) = &publish;
    let fix = format!(
        "until {} has it, nobody would see that the last blocks were cut off: let the node write there, then: ebb run --once --only audit",
        file.display()
    );
    Ok(Some(Finding::warn("audit", None, behind).fix(Fix::advice(fix))))
}

/// Whether the subject key here is the one that the database knows.
async fn subject_key(engine: &Engine, connection: &mut PgConnection) -> Result<Option<Finding>> {
    let Some(path) = &engine.keys().subject else { return Ok(None) };
    let Some((known, used_by)) = audit::known_subject_key(connection).await? else { return Ok(None) };
    if !path.exists() {
        let text = format!(
            "the subject key {} is not there; the database knows {known}, first used by {used_by}",
            path.display()
        );
        let hint = "a node needs it to erase and to warn: put it in place, the same for every node";
        return Ok(Some(Finding::warn("audit", None, text).fix(Fix::advice(hint))));
    }
    let checked = match SubjectKey::load(path) {
        Ok(key) => audit::same_subject_key(connection, &key).await,
        Err(error) => Err(error),
    };
    match checked {
        Err(error) if error.is_unavailable() => Err(error),
        Err(error) => Ok(Some(super::unable("audit", None, &error))),
        Ok(()) => Ok(None),
    }
}
