//! The swept tables: indexes, statistics, dead rows, autovacuum, the right interval, and whether partitions would serve
//! better.

use std::collections::BTreeSet;
use std::time::Duration;

use super::store::{self, LeafCare};
use super::{Action, Finding, Fix, lines, unable};
use crate::expire::due::Clock;
use crate::plan::survey::{self, Survey, Surveyed};
use crate::plan::{interval, named, scan_time, words};
use crate::policy::{Cadence, Expire, human};
use crate::{Engine, Result};

/// Dead rows below this are nobody's trouble.
const MANY_DEAD: i64 = 10_000;
/// More than this part of a table dead is.
const DEAD_SHARE: f64 = 0.2;
/// Tables below this are as well off without partitions.
const BIG: u64 = 5 << 30;
/// Runs over less time than this say nothing about a rate.
const LONG_ENOUGH: f64 = 600.0;

/// Every table that a policy sweeps.
pub(super) async fn tables(engine: &Engine, policies: &[Expire], migrated: bool) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut statements = BTreeSet::new();
    for policy in policies {
        match table(engine, policy, migrated, &mut statements).await {
            Ok(found) => findings.extend(found),
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) => findings.push(unable("tables", Some(policy.name.as_str()), &error)),
        }
    }
    if findings.is_empty() && !policies.is_empty() {
        findings.push(Finding::ok("tables", "every swept table has its index, its statistics and its autovacuum"));
    }
    Ok(findings)
}

/// One policy's table. `mended` has the statements that earlier findings propose: two policies need one index.
async fn table(
    engine: &Engine,
    policy: &Expire,
    migrated: bool,
    mended: &mut BTreeSet<String>,
) -> Result<Vec<Finding>> {
    let clock = if migrated { Clock::Ebb } else { Clock::Server };
    let mut tx = engine.database().read().await?;
    let survey = survey::survey(&mut tx, policy, clock).await?;
    let mut findings = Vec::new();
    let (mut unindexed, mut unanalyzed) = (Unindexed::default(), Vec::new());
    for leaf in &survey.leaves {
        let care = store::leaf(&mut tx, leaf.leaf.oid, leaf.target.due.column.as_str()).await?;
        if let (None, Some(index)) = (&leaf.index, &care.invalid_index) {
            let text = format!("index {index} of {} was left unfinished and is not used", leaf.leaf.relation.label());
            let statement = format!("REINDEX INDEX CONCURRENTLY {index}");
            let fix = Fix::sql(format!("{statement};")).run(Action::Alone(vec![statement]));
            findings.push(Finding::warn("index", Some(policy.name.as_str()), text).fix(fix));
        } else if let Some(statement) = leaf.missing_index()
            && mended.insert(statement.clone())
        {
            unindexed.cost += scan_time(&mut tx, &leaf.target, leaf.pages).await?;
            unindexed.add(leaf, &care, statement);
        }
        if !care.analyzed && leaf.pages > 0 && mended.insert(format!("ANALYZE {}", leaf.leaf.relation)) {
            unanalyzed.push(leaf);
        }
        findings.extend(bloat(policy, leaf, &care));
        findings.extend(autovacuum(policy, leaf, &care));
        findings.extend(partitions(policy, &survey, leaf, &care));
    }
    tx.rollback().await?;
    findings.extend(unindexed.finding(policy));
    findings.extend(never_analyzed(policy, &unanalyzed));
    Ok(findings)
}

/// The leaves of one table that lack the index, together: they are mended together.
#[derive(Default)]
struct Unindexed {
    leaves: Vec<String>,
    statements: Vec<String>,
    pages: u64,
    cost: Duration,
    partitions: bool,
    refused: Option<String>,
}

impl Unindexed {
    fn add(&mut self, leaf: &Surveyed, care: &LeafCare, statement: String) {
        self.leaves.push(leaf.leaf.relation.label());
        self.statements.push(statement);
        self.pages += leaf.pages;
        self.partitions |= care.is_partition;
        if let Err(error) = &leaf.shape {
            self.refused.get_or_insert(error.to_string());
        }
    }

    fn finding(self, policy: &Expire) -> Option<Finding> {
        if self.leaves.is_empty() {
            return None;
        }
        let (name, every) = (policy.name.as_str(), interval(policy));
        let mut text = format!(
            "no index of {} starts with {}: every run reads all {} pages, about {} as measured here",
            named(&self.leaves),
            policy.column,
            self.pages,
            words(self.cost)
        );
        if self.partitions {
            text.push_str("; partitions to come need one on the parent (CREATE INDEX … ON ONLY)");
        }
        let fix = Fix::sql(lines(&self.statements)).run(Action::Alone(self.statements));
        Some(match (self.refused, self.cost > every) {
            (Some(refused), _) => Finding::fail("index", Some(name), refused).fix(fix),
            (None, true) => Finding::fail("index", Some(name), format!("{text}, every {}", human(every))).fix(fix),
            (None, false) => Finding::warn("index", Some(name), text).fix(fix),
        })
    }
}

fn never_analyzed(policy: &Expire, leaves: &[&Surveyed]) -> Option<Finding> {
    if leaves.is_empty() {
        return None;
    }
    let labels: Vec<String> = leaves.iter().map(|leaf| leaf.leaf.relation.label()).collect();
    let statements: Vec<String> = leaves.iter().map(|leaf| format!("ANALYZE {}", leaf.leaf.relation)).collect();
    let text = format!("{} has never been analyzed: the way through it is a guess", named(&labels));
    let fix = Fix::sql(lines(&statements)).run(Action::Alone(statements));
    Some(Finding::warn("statistics", Some(policy.name.as_str()), text).fix(fix))
}

fn bloat(policy: &Expire, leaf: &Surveyed, care: &LeafCare) -> Option<Finding> {
    let share = care.dead as f64 / (care.dead + care.live).max(1) as f64;
    if care.dead < MANY_DEAD || share <= DEAD_SHARE {
        return None;
    }
    let last = care.vacuumed_at.map_or("never vacuumed".to_owned(), |at| format!("last vacuumed {at}"));
    let text =
        format!("{:.0} % of {} are dead rows ({}, {last})", share * 100.0, leaf.leaf.relation.label(), care.dead,);
    let fix = Fix::sql(format!("VACUUM (ANALYZE) {};", leaf.leaf.relation));
    Some(Finding::warn("bloat", Some(policy.name.as_str()), text).fix(fix))
}

fn autovacuum(policy: &Expire, leaf: &Surveyed, care: &LeafCare) -> Option<Finding> {
    let name = Some(policy.name.as_str());
    if care.autovacuum_off {
        let text = format!("autovacuum is off for {}: what is deleted keeps its space", leaf.leaf.relation.label());
        let fix = Fix::sql(format!("ALTER TABLE {} RESET (autovacuum_enabled);", leaf.leaf.relation));
        return Some(Finding::warn("autovacuum", name, text).fix(fix));
    }
    care.autovacuum_off_everywhere.then(|| {
        let text = "autovacuum is off for the whole server: what is deleted keeps its space";
        Finding::warn("autovacuum", name, text)
            .fix(Fix::sql("ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();"))
    })
}

/// Big, in time order, and most of what comes in is swept again: dropping a partition would cost nothing.
fn partitions(policy: &Expire, survey: &Survey, leaf: &Surveyed, care: &LeafCare) -> Option<Finding> {
    let swept = care.deleted as f64 / care.inserted.max(1) as f64;
    let ordered = leaf.correlation.is_some_and(|correlation| correlation.abs() > 0.9);
    if care.is_partition || survey.leaves.len() > 1 || leaf.bytes < BIG || !ordered || swept < 0.5 {
        return None;
    }
    let text = format!(
        "{} takes {} GB, is in time order, and {:.0} % of what came in was swept again: partitions by {} would go at once",
        leaf.leaf.relation.label(),
        leaf.bytes >> 30,
        swept.min(1.0) * 100.0,
        leaf.target.due.column
    );
    Some(Finding::warn("partitioning", Some(policy.name.as_str()), text))
}

/// Whether the interval fits the rate at which rows become due.
pub(super) async fn intervals(engine: &Engine, policies: &[Expire]) -> Result<Vec<Finding>> {
    let mut tx = engine.database().read().await?;
    let arrivals = store::arrivals(&mut tx).await?;
    tx.rollback().await?;
    let mut findings = Vec::new();
    for policy in policies {
        let (Cadence::Every(every), Some(found)) = (&policy.cadence, arrivals.get(policy.name.as_str())) else {
            continue;
        };
        let (Some(rate), Some(seconds)) = (found.per_second, found.seconds) else { continue };
        if found.runs < 3 || seconds < LONG_ENOUGH {
            continue;
        }
        let recommended = recommended(rate);
        let seen = format!("{rate:.0} rows/s become due (measured over {})", words(Duration::from_secs_f64(seconds)));
        let name = policy.name.as_str();
        if *every <= recommended {
            findings.push(Finding::ok("interval", format!("{name}: {seen}; every {} is often enough", human(*every))));
            continue;
        }
        let text = format!("{seen}; every {} lets too much gather at once", human(*every));
        let fix = format!("every = \"{}\" for {name} in ebb.toml, then: ebb apply", human(recommended));
        findings.push(Finding::warn("interval", Some(name), text).fix(Fix::advice(fix)));
    }
    Ok(findings)
}

/// The interval that suits a rate of rows a second.
fn recommended(rate: f64) -> Duration {
    let minutes = match rate {
        rate if rate < 100.0 => 60,
        rate if rate < 500.0 => 30,
        rate if rate <= 1000.0 => 15,
        _ => 10,
    };
    Duration::from_secs(minutes * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_follows_the_documents_table() {
        let minutes = |rate| recommended(rate).as_secs() / 60;
        assert_eq!([minutes(5.0), minutes(100.0), minutes(750.0), minutes(5e3)], [60, 30, 15, 10]);
    }
}
