//! An adoption as a script: what Ebb would say to the server, with what it writes down about it, so that `psql` does the same
//! and Ebb can go on from wherever it stops. What Ebb does in batches is one statement here.

use super::moved::Moved;
use super::{How, Plan, Preflight, Step, block, store};
use crate::partition::journal;
use crate::pg::{Database, Literal, Relation, catalog};
use crate::{Error, Result};

/// Every line of it; comments say what each step is for.
pub fn script(found: &Preflight) -> Result<Vec<String>> {
    let plan = found.plan.as_ref().ok_or_else(|| Error::refused(format!("{} cannot be adopted", found.table)))?;
    let (label, table) = (Literal(&found.table).to_string(), Literal(&plan.relation().to_string()).to_string());
    let mut lines = journal::script_head("adopt");
    lines.push(format!(
        "INSERT INTO ebb.adoption (relation, relid, policy, plan, portrait) VALUES ({label}, {table}::regclass, {}, {}, ebb.table_portrait({table}::regclass, {}));",
        Literal(&found.policy),
        Literal(&journal::kept(plan)?.to_string()),
        Literal(&plan.column)
    ));
    lines.extend(steps(plan, &label, &found.policy, 0));
    Ok(lines)
}

/// The steps that are not done, and what comes after the last.
fn steps(plan: &Plan, label: &str, policy: &str, done: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (n, step) in plan.steps.iter().enumerate().skip(done) {
        lines.push(format!("-- {}. {}", n + 1, step.title));
        lines.extend(written(plan, step, n, label));
    }
    lines.extend(plan.referrers.iter().map(|moved| Moved::proof(moved) + ";"));
    let spec = plan.spec.as_object().cloned().unwrap_or_default();
    lines.push("-- nobody looks after it until this is in ebb.toml and was applied:".to_owned());
    lines.extend(block(policy, &spec).lines().map(|line| format!("-- {line}")));
    lines
}

/// What is left of an adoption that was begun.
pub async fn script_of_rest(database: &Database, typed: &str) -> Result<Vec<String>> {
    let mut tx = database.read().await?;
    let label = catalog::table(&mut tx, typed).await?.relation.label();
    let adoption = store::find(&mut tx, &label).await?;
    tx.commit().await?;
    let adoption = adoption.filter(|adoption| adoption.state == "adopting");
    let adoption = adoption.ok_or_else(|| Error::usage(format!("no adoption of {label} is under way")))?;
    let (plan, done) = (adoption.plan()?, adoption.step.max(0) as usize);
    let mut lines = journal::script_head("adopt");
    lines.extend(steps(&plan, &Literal(&label).to_string(), &adoption.policy, done));
    Ok(lines)
}

fn written(plan: &Plan, step: &Step, n: usize, label: &str) -> Vec<String> {
    let (state, number) = if step.how == How::Cutover { ("adopted", 0) } else { ("adopting", n + 1) };
    let done = format!("UPDATE ebb.adoption SET state = '{state}', step = {number} WHERE relation = {label};");
    let said = step.sql.iter().map(|statement| format!("{statement};"));
    let short = |inner: Vec<String>| {
        let begin = ["BEGIN;".to_owned(), "SET LOCAL lock_timeout = '60ms';".to_owned()];
        begin.into_iter().chain(inner).chain([done.clone(), "COMMIT;".to_owned()]).collect::<Vec<_>>()
    };
    match step.how {
        How::Short | How::Cutover => short(said.collect()),
        How::Long => said.chain([done]).collect(),
        How::Index => {
            // What is left of an earlier try.
            let left = step
                .index
                .iter()
                .map(|(schema, name)| format!("DROP INDEX CONCURRENTLY IF EXISTS {};", Relation::new(schema, name)));
            left.chain(said).chain([done]).collect()
        }
        How::Each => {
            let begin = std::iter::once("SET lock_timeout = '60ms';".to_owned());
            begin.chain(said).chain(["SET lock_timeout = 0;".to_owned(), done]).collect()
        }
        How::Backfill => {
            let seed = plan.backfills().flat_map(|backfill| backfill.whole(&plan.relation())).map(|sql| sql + ";");
            seed.chain([done]).collect()
        }
        How::Fill => {
            let fill = step.fill.iter().flat_map(|fill| fill.whole()).map(|statement| statement + ";");
            short(fill.collect())
        }
    }
}
