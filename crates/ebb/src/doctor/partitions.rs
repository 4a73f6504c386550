//! Partitioned tables: how long their partitions last, and what was begun on them and not ended.

use sqlx::PgConnection;

use super::store::{self, Unfinished};
use super::{Finding, Fix, unable};
use crate::pg::catalog;
use crate::policy::{Kind, Partition, Policy, Stored};
use crate::words::{plural, there_are};
use crate::{Engine, Result, partition};

/// Below this a runway is an emergency, whatever the period.
const LAST_DAYS: i64 = 7 * 86_400;

pub(super) async fn partitions(engine: &Engine, stored: &[Stored]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for one in stored.iter().filter(|one| one.kind == Kind::Partition && one.is_active()) {
        let mut tx = engine.database().read().await?;
        let listed = partition::list(&mut tx, Some(&one.name)).await;
        findings.extend(guard(&mut tx, one).await.ok().flatten());
        findings.extend(guessed(&mut tx, one).await.unwrap_or_default());
        tx.rollback().await?;
        match listed {
            Ok(listings) => {
                let about = |one| leaving(one).into_iter().chain(type_ends(one)).chain([runway(one)]);
                findings.extend(listings.iter().flat_map(about))
            }
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) => findings.push(unable("runway", Some(&one.name), &error)),
        }
    }
    let mut tx = engine.database().read().await?;
    let (unfinished, out) = (store::unfinished(&mut tx).await?, store::out(&mut tx).await?);
    tx.commit().await?;
    findings.extend(unfinished.iter().map(begun));
    findings.extend(out.into_iter().filter_map(|(policy, partition, table)| {
        let named = stored.iter().find(|one| one.name == policy && one.kind != Kind::Partition)?;
        (!drops_partitions(named)).then(|| {
            let text = format!(
                "{partition} was taken out of {table} to be dropped, and its policy drops no partitions any more: its rows stay"
            );
            let fix = "attach it again (ALTER TABLE … ATTACH PARTITION), and its rows go one by one; or drop it";
            Finding::fail("partitions", Some(&policy), text).fix(Fix::advice(fix))
        })
    }));
    Ok(findings)
}

/// Whether a policy over rows lets partitions go as a whole.
fn drops_partitions(stored: &Stored) -> bool {
    let by_rows = match stored.policy() {
        Ok(Policy::Expire(expire)) => Some(expire),
        Ok(Policy::Retain(retain)) => retain.as_expire(retain.retention(), None),
        _ => None,
    };
    stored.is_active() && by_rows.is_some_and(|expire| Partition::of_expire(&expire).is_some())
}

/// A guard that gives keys free while their rows are kept: it does not follow the policy.
async fn guard(connection: &mut PgConnection, stored: &Stored) -> Result<Option<Finding>> {
    let Policy::Partition(policy) = stored.policy()? else { return Ok(None) };
    let table = catalog::table(connection, &policy.table).await?;
    let keep = policy.keep.map(|keep| keep.to_interval());
    let short = partition::store::short_guard(connection, table.oid, keep, policy.by.as_str()).await?;
    let label = table.relation.label();
    Ok(short.map(|(term, wanted, begun)| {
        let text = match begun {
            true => format!("some keys of {label} that its guard keeps unique are free before their rows go: lengthening them did not end"),
            false => format!(
                "keys of {label} that its guard keeps unique are free again {term} after their row came, and its rows are kept for longer"
            ),
        };
        let fix = format!("CALL ebb.guard_for('{}', '{wanted}')", table.relation.to_string().replace('\'', "''"));
        Finding::warn("guard", Some(stored.name.as_str()), text).fix(Fix::sql(fix))
    }))
}

/// CHECKs that a former version guessed: they refuse rows that are right.
async fn guessed(connection: &mut PgConnection, stored: &Stored) -> Result<Vec<Finding>> {
    let Policy::Partition(policy) = stored.policy()? else { return Ok(Vec::new()) };
    let table = catalog::table(connection, &policy.table).await?;
    let column = catalog::column(connection, &table.relation, table.oid, &policy.column).await?;
    let checks =
        partition::store::guessed_checks(connection, table.oid, column.name.as_str(), policy.unit_word()).await?;
    let finding = |(partition, check): (String, String)| {
        let text = format!("{check} of {partition} does not follow from its period: it can refuse rows that are right");
        let fix = Fix::sql(format!("ALTER TABLE {partition} DROP CONSTRAINT {check}"));
        Finding::fail("derived check", Some(stored.name.as_str()), text).fix(fix)
    };
    Ok(checks.into_iter().map(finding).collect())
}

/// A column whose type ends: partitions cannot go on after that, and to change it takes a while.
fn type_ends(listing: &partition::Listing) -> Option<Finding> {
    let days = listing.type_ends_in()?;
    let table = &listing.table;
    let text = format!(
        "the partition column of {table} is an integer, which ends in {}: no partition can be made for rows after that",
        plural(days, "day")
    );
    let about = Some(listing.policy.as_str());
    let finding = if days < 365 { Finding::fail("type", about, text) } else { Finding::warn("type", about, text) };
    Some(finding.fix(Fix::command(format!(
        "ebb partition rollback {table}; ALTER TABLE … ALTER COLUMN … TYPE bigint (a rewrite); ebb partition adopt {table} …"
    ))))
}

fn runway(listing: &partition::Listing) -> Finding {
    let days = listing.runway_seconds / 86_400;
    let last = format!("partitions of {} last {}", listing.table, plural(days, "more day"));
    let about = Some(listing.policy.as_str());
    let fix = || Fix::command(format!("ebb partition maintain {}", listing.table));
    if listing.runway_seconds < LAST_DAYS && listing.missing > 0 {
        let text =
            format!("{last}; rows after that will be refused, and {} missing", there_are(listing.missing, "partition"));
        return Finding::fail("runway", about, text).fix(fix());
    }
    if listing.missing > 0 {
        let text =
            format!("{last}; {} of those that should exist ahead are missing: does a node run?", listing.missing);
        return Finding::warn("runway", about, text).fix(fix());
    }
    Finding::ok("runway", last)
}

/// Partitions that take no rows although their period is not over: a detach that was cancelled hides them.
fn leaving(listing: &partition::Listing) -> Vec<Finding> {
    let hidden = listing.partitions.iter().filter(|one| one.state == "detach pending" && !one.expired);
    let finding = |one: &partition::Listed| {
        let text = format!(
            "{} is on its way out of {} (a detach that was cancelled): its rows are not seen and rows of its period are refused",
            one.partition, listing.table
        );
        let fix = format!("ebb partition maintain {} (ends it; its rows stay in {})", listing.table, one.partition);
        Finding::fail("detach pending", Some(listing.policy.as_str()), text).fix(Fix::command(fix))
    };
    hidden.map(finding).collect()
}

fn begun(one: &Unfinished) -> Finding {
    let about = Some(one.relation.as_str());
    let Unfinished { relation, what, state, .. } = one;
    if what == "finish" {
        let text = format!(
            "{state}, which was split, still has every row of then, also what was deleted, erased or has expired since"
        );
        return Finding::warn("unfinished", about, text)
            .fix(Fix::command(format!("ebb partition finish {relation} (there is no way back from it)")));
    }
    if what == "rollback" {
        let text = format!(
            "a rollback of {relation} was begun, and nobody is at it: until it goes on, keys are refused that a partitioned table takes, or every writer notes its keys, which nobody takes away"
        );
        return Finding::warn("unfinished", about, text).fix(Fix::command(format!(
            "ebb partition rollback {relation} (or to leave it adopted: ebb partition adopt {relation} … as before)"
        )));
    }
    let command = if state == "splitting" || state == "adopting" { what.as_str() } else { "rollback" };
    let fix = Fix::command(format!("ebb partition {command} {relation} (or back: ebb partition rollback {relation})"));
    match &one.refuses_from {
        Some(bound) => {
            let text = format!(
                "{relation} is {state}, and nobody is at it: until it goes on, rows from {bound} on are refused"
            );
            if one.near { Finding::fail("unfinished", about, text) } else { Finding::warn("unfinished", about, text) }
        }
        None if one.near => {
            let text = format!(
                "{relation} is {state}, and nobody is at it: until it goes on, every writer writes to its parts, too, and what is altered on it is not altered on them"
            );
            Finding::fail("unfinished", about, text)
        }
        None if what == "split" => {
            let text = format!(
                "{relation} is {state}, and nobody is at it: until it goes on, whatever is deleted or erased stays in the parts, which nobody sees"
            );
            Finding::warn("unfinished", about, text)
        }
        None => Finding::warn("unfinished", about, format!("{relation} is {state}, and nobody is at it")),
    }
    .fix(fix)
}
