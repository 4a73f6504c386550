//! A split as a script: what Ebb would say to the server, with what it writes down about it, so that `psql` does the same
//! and Ebb can go on from wherever it stops. What Ebb does in paced batches is one statement here.

use super::plan::{Act, Plan, Step};
use super::preflight::Preflight;
use super::run::over;
use super::store::{self, Row};
use crate::partition::journal;
use crate::pg::{Database, Literal, catalog};
use crate::{Error, Result};

/// Every line of it; comments say what each step is for.
pub fn script(found: &Preflight) -> Result<Vec<String>> {
    let plan = found.plan.as_ref().ok_or_else(|| Error::refused(format!("{} cannot be split", found.partition)))?;
    let label = Literal(&found.table).to_string();
    let mut lines = journal::script_head("split");
    lines.push(format!(
        "INSERT INTO ebb.split (relation, relid, plan, portrait) VALUES ({label}, {}::regclass, {}, ebb.table_portrait({}, {}));",
        Literal(&plan.source),
        Literal(&journal::kept(plan)?.to_string()),
        plan.parent,
        Literal(plan.column())
    ));
    lines.extend(steps(plan, &label, (0, 0)));
    Ok(lines)
}

/// What is left of a split that was begun.
pub async fn script_of_rest(database: &Database, typed: &str) -> Result<Vec<String>> {
    let mut tx = database.read().await?;
    let label = catalog::table(&mut tx, typed).await?.relation.label();
    let row = store::find(&mut tx, &label).await?;
    tx.commit().await?;
    let row = row.filter(|row| ["splitting", "split"].contains(&row.state.as_str()));
    let row = row.ok_or_else(|| {
        Error::usage(format!("no split of {label} is under way"))
            .with_hint(format!("where one is being taken back: ebb partition rollback {label} --sql"))
    })?;
    let (plan, label) = (row.plan()?, Literal(&row.relation).to_string());
    let mut lines = journal::script_head("split");
    if row.steps_done() < plan.swap() && plan.parent > 0 {
        let (table, column) = (plan.parent, Literal(plan.column()));
        lines.push(format!("SELECT ebb.require_split_portrait({label}, {table}, {column});"));
    }
    lines.extend(steps(&plan, &label, (row.steps_done(), row.page)));
    Ok(lines)
}

/// The steps after those that are done; the first of them, where it copies, from a page on.
fn steps(plan: &Plan, label: &str, (done, page): (usize, i64)) -> Vec<String> {
    let mut lines = Vec::new();
    for (n, step) in plan.steps.iter().enumerate().skip(done) {
        lines.push(format!("-- {}. {}", n + 1, step.title));
        lines.extend(written(plan, step, n, label, if n == done { page } else { 0 }));
    }
    lines
}

fn written(plan: &Plan, step: &Step, n: usize, label: &str, page: i64) -> Vec<String> {
    let state = if n >= plan.swap() { "split" } else { "splitting" };
    let besides = match step.act {
        Act::Copy => ", page = pages",
        Act::Outlast => ", applied = false",
        _ => "",
    };
    let done = format!("UPDATE ebb.split SET state = '{state}', step = {}{besides} WHERE relation = {label};", n + 1);
    let apply = format!("DO $$ BEGIN WHILE ebb.split_apply({label}, 1000) > 0 LOOP NULL; END LOOP; END $$;");
    let said = step.sql.iter().map(|statement| format!("{statement};"));
    let begin = |lock: bool| {
        let bound = lock.then(|| "SET LOCAL lock_timeout = '60ms';".to_owned());
        std::iter::once("BEGIN;".to_owned()).chain(bound)
    };
    let end = [done.clone(), "COMMIT;".to_owned()];
    match step.act {
        Act::Short => begin(true).chain(said).chain(end).collect(),
        Act::Alone => begin(false).chain(said).chain(end).collect(),
        Act::Settled => std::iter::once(apply).chain(begin(true)).chain(said).chain(end).collect(),
        // Whether anything is applied is not known here: who looks through an older view of the tables is waited for.
        Act::Swap => {
            let wait = plan.outlast.iter().map(|statement| format!("{statement};"));
            std::iter::once(apply).chain(wait).chain(begin(true)).chain(said).chain(end).collect()
        }
        Act::Outside | Act::Outlast => said.chain([done]).collect(),
        Act::Drain => vec![apply, done],
        Act::Copy => {
            let all = step.statements_from(page).into_iter().map(|statement| statement + ";");
            begin(false).chain(all).chain(end).collect()
        }
        Act::Compare => {
            let look = step.sql.iter().map(|statement| {
                format!(
                    "DO $$ BEGIN IF EXISTS (SELECT FROM ({statement}) x (part, rows, copied, same) WHERE rows <> copied OR NOT same) \
                     THEN RAISE EXCEPTION 'the parts are not what the partition is'; END IF; END $$;"
                )
            });
            std::iter::once(apply).chain(look).chain([done]).collect()
        }
    }
}

/// What takes a split back before the swap.
pub(crate) fn undo_script(row: &Row) -> Result<Vec<String>> {
    let (plan, label) = (row.plan()?, Literal(&row.relation).to_string());
    let stop = plan
        .undo_triggers
        .into_iter()
        .chain([format!("UPDATE ebb.split SET state = 'abandoning' WHERE relation = {label}")]);
    let go = plan.undo.into_iter().chain([format!("DELETE FROM ebb.split WHERE relation = {label}")]);
    let mut lines = vec!["-- stop noting changes, and let the parts go".to_owned()];
    lines.extend(together(stop, true));
    lines.extend(together(go, false));
    Ok(lines)
}

/// After the swap, on the way back: the old partition becomes a table that rows can go back to.
pub(crate) fn restore_script(row: &Row) -> Result<Vec<String>> {
    let plan = row.plan()?;
    if row.steps_done() < plan.steps.len() {
        return Err(Error::refused(format!("the split of {} is not at its end", row.relation))
            .with_hint(format!("go on with it first: ebb partition split {}", row.relation)));
    }
    let undone = format!("UPDATE ebb.split SET state = 'undone' WHERE relation = {}", Literal(&row.relation));
    let mut lines = vec!["-- the partition that was split is made ready for the rows to go back to".to_owned()];
    lines.extend(together(plan.restore.into_iter().chain([undone]), true));
    Ok(lines)
}

/// After the swap, for good: the partition that was split goes.
pub(crate) fn over_script(row: &Row) -> Result<Vec<String>> {
    let plan = row.plan()?;
    if !["split", "undone"].contains(&row.state.as_str()) || row.steps_done() < plan.steps.len() {
        return Err(Error::refused(format!("{} is still {}", row.relation, row.state))
            .with_hint(format!("go on with it first: ebb partition split {}", row.relation)));
    }
    let forget = format!("DELETE FROM ebb.split WHERE relation = {}", Literal(&row.relation));
    let mut lines = vec!["-- the partition that was split goes: all of its rows are in the parts".to_owned()];
    lines.extend(together(over(row, &plan).into_iter().chain([forget]), true));
    Ok(lines)
}

fn together(sql: impl Iterator<Item = String>, lock: bool) -> Vec<String> {
    let bound = lock.then(|| "SET LOCAL lock_timeout = '60ms'".to_owned());
    let all = std::iter::once("BEGIN".to_owned()).chain(bound).chain(sql).chain(["COMMIT".to_owned()]);
    all.map(|statement| statement + ";").collect()
}
