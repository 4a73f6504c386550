//! The way back as a script: what a rollback or `finish` would say to the server, with what it writes down about it, so that
//! `psql` does the same and Ebb can go on from wherever it stops. Whatever stops a rollback before it begins stops this.
//! Rows that Ebb moves in paced batches move in one statement a partition here.

use super::drain::{quietly, still_empty, user_path};
use super::finish::leftovers;
use super::{attached, find, fresh, noted, plain_columns, refuse, spread, statements, unique};
use crate::partition::adopt::moved::Moved;
use crate::partition::adopt::store::{self, Adoption};
use crate::partition::adopt::{Plan, Session, prepare_session};
use crate::partition::{index, journal, split};
use crate::pg::{Database, Literal, Relation, block, catalog};
use crate::{Error, Result};

/// The statements of a rollback from where it stands; comments say what they are for.
pub async fn rollback_script(database: &Database, typed: &str) -> Result<Vec<String>> {
    let mut session = prepare_session(database).await?;
    let label = catalog::table(&mut session.connection, typed).await?.relation.label();
    let mut lines = journal::script_head("rollback");
    let row = split::store::find(&mut session.connection, &label).await?;
    if let Some(row) = row.as_ref().filter(|row| ["splitting", "abandoning"].contains(&row.state.as_str())) {
        lines.extend(split::undo_script(row)?);
        return Ok(lines);
    }
    let (adoption, plan) = find(&mut session.connection, typed).await?;
    match adoption.state.as_str() {
        "adopting" => lines.extend(abandon(&adoption, &plan)),
        "adopted" => {
            if let Some(row) = row.filter(|row| row.state == "split") {
                lines.extend(split::restore_script(&row)?);
            }
            lines.extend(back(&mut session, &adoption, &plan).await?);
        }
        "rolling back" => {
            let children = attached(&mut session.connection, adoption.relid).await?;
            lines.extend(drain(&mut session, &adoption, &plan, &children).await?);
        }
        state => {
            return Err(Error::refused(format!("{label} is {state}: there is nothing to take back any more"))
                .with_hint(format!("drop what is left: ebb partition finish {label}")));
        }
    }
    Ok(lines)
}

/// In a short transaction of its own.
fn short(sql: impl IntoIterator<Item = String>) -> Vec<String> {
    let begin = ["BEGIN".to_owned(), "SET LOCAL lock_timeout = '60ms'".to_owned()];
    begin.into_iter().chain(sql).chain(["COMMIT".to_owned()]).map(ended).collect()
}

/// In one of its own that takes its time.
fn whole(sql: Vec<String>) -> Vec<String> {
    ["BEGIN".to_owned()].into_iter().chain(sql).chain(["COMMIT".to_owned()]).map(ended).collect()
}

fn ended(statement: String) -> String {
    statement + ";"
}

fn stands(label: &str, state: &str) -> String {
    format!("UPDATE ebb.adoption SET state = '{state}', step = 0 WHERE relation = {}", Literal(label))
}

fn forget(label: &str, plan: &Plan) -> Vec<String> {
    let guard = plan.backfills();
    let tables = ["ebb.once_key", "ebb.guard_term"];
    let guard = guard.flat_map(|backfill| {
        tables.map(|table| format!("DELETE FROM {table} WHERE namespace = {}", Literal(&backfill.namespace)))
    });
    let adoption = format!("DELETE FROM ebb.adoption WHERE relation = {}", Literal(label));
    guard.chain([adoption]).collect()
}

fn drop_indexes<'a>(steps: impl Iterator<Item = &'a crate::partition::adopt::Step>) -> Vec<String> {
    let built = steps.filter_map(|step| step.index.as_ref());
    built.map(|(schema, name)| format!("DROP INDEX CONCURRENTLY IF EXISTS {};", Relation::new(schema, name))).collect()
}

/// Before the cutover.
fn abandon(adoption: &Adoption, plan: &Plan) -> Vec<String> {
    let swapped = plan.swap.is_some_and(|swap| adoption.step.max(0) as usize > swap);
    let mut lines = vec!["-- what was prepared goes, and the keys are as they were".to_owned()];
    let mut sql: Vec<String> = plan.referrers.iter().flat_map(Moved::release).collect();
    if swapped {
        lines.extend(drop_indexes(plan.abandon_indexes.iter()));
        lines.extend(plan.abandon_indexes.iter().flat_map(|step| step.sql.clone()).map(ended));
        sql.extend(plan.abandon_keys.iter().cloned());
    }
    sql.extend(plan.abandon.iter().cloned());
    sql.extend(plan.referrers.iter().flat_map(Moved::restore));
    sql.push(stands(&adoption.relation, "adopting"));
    lines.extend(short(sql));
    lines.extend(plan.referrers.iter().map(Moved::proof).map(ended));
    lines.extend(drop_indexes(plan.steps.iter().chain(&plan.abandon_indexes)));
    lines.extend(forget(&adoption.relation, plan).into_iter().map(ended));
    lines
}

/// After it.
async fn back(session: &mut Session, adoption: &Adoption, plan: &Plan) -> Result<Vec<String>> {
    let parent = catalog::table(&mut session.connection, &plan.relation().label()).await?.oid;
    refuse(session, adoption, plan, parent).await?;
    // Whoever reads this has not built an index that would say so of the old table's own rows.
    let spread = spread(&mut session.connection, parent, adoption.relid).await?;
    unique::refuse_all_twins(&mut session.connection, plan, spread).await?;
    let attached = attached(&mut session.connection, i64::from(parent)).await?;
    let mut lines = vec!["-- the keys as they were".to_owned()];
    lines.extend(drop_indexes(plan.back_indexes.iter()));
    lines.extend(plan.back_indexes.iter().flat_map(|step| step.sql.clone()).map(ended));
    let leaves = attached.iter().filter(|(oid, ..)| *oid != adoption.relid);
    let leaves: Vec<Relation> =
        [plan.history()].into_iter().chain(leaves.map(|(_, schema, name)| Relation::new(schema, name))).collect();
    let only: Vec<String> = leaves.iter().map(|leaf| format!("ONLY {leaf}")).collect();
    let noted = fresh::refuse_noted(plan, adoption.relid, &only);
    if !plan.back_keys.is_empty() {
        lines.push("-- every key that comes from here on is noted, and none is there twice".to_owned());
        lines.extend(short(fresh::note(plan, adoption.relid)));
        lines.extend(leaves.iter().flat_map(|leaf| short(unique::triggers(plan, adoption.relid, leaf))));
        lines.extend(unique::looks(plan, spread).into_iter().chain([noted.clone()]).flat_map(whole));
    }
    lines.push(format!(
        "-- the name goes back; the policy {} has nothing to look after from here on: take its block out of ebb.toml and `ebb apply`",
        adoption.policy
    ));
    let others: Vec<(i64, String, String)> =
        attached.iter().filter(|(oid, ..)| *oid != adoption.relid).cloned().collect();
    let leftovers: Vec<(&String, &String)> = others.iter().map(|(_, schema, name)| (schema, name)).collect();
    // Between now and then any of them can get its first row.
    let all: Vec<i64> = attached.iter().map(|(oid, ..)| *oid).collect();
    let last = fresh::refuse_last(plan, adoption.relid, &only);
    let mut sql = noted;
    sql.extend(statements(session, adoption, plan, parent, (&attached, &all), last).await?);
    sql.push(format!(
        "UPDATE ebb.adoption SET plan = jsonb_set(plan, '{{leftovers}}', {}) WHERE relation = {}",
        Literal(&journal::kept(&leftovers)?.to_string()),
        Literal(&adoption.relation)
    ));
    sql.push(stands(&adoption.relation, "rolling back"));
    lines.extend(short(sql));
    lines.extend(drain(session, adoption, plan, &others).await?);
    Ok(lines)
}

/// The rows of the former partitions move into the table. One without rows has stayed where it was, and nothing moves.
async fn drain(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    children: &[(i64, String, String)],
) -> Result<Vec<String>> {
    let table = plan.relation();
    let columns = plain_columns(&mut session.connection, adoption.relid).await?;
    let quietly = quietly(&mut session.connection, plan, adoption.relid).await?;
    let mut lines = vec!["-- the rows move back: Ebb does it in batches of milliseconds, this keeps writers of a partition out for as long as its rows take".to_owned()];
    let children: Vec<Relation> = children.iter().map(|(_, schema, name)| Relation::new(schema, name)).collect();
    for child in &children {
        let silence = quietly.silence.map(str::to_owned);
        let moves = [
            user_path(&table),
            format!("LOCK TABLE ONLY {child} IN EXCLUSIVE MODE"),
            quietly.moves((child, ""), &table, &columns),
        ];
        lines.extend(short(silence.into_iter().chain(moves)));
    }
    lines.push("-- who still sees them where they were ends first".to_owned());
    lines.extend(index::outlast_sql(&plan.scratch(adoption.relid)).into_iter().map(ended));
    for child in &children {
        let leave = block(&format!(
            "BEGIN IF EXISTS (SELECT FROM pg_inherits WHERE inhrelid = {}::regclass AND inhparent = {}) THEN \
             ALTER TABLE {child} NO INHERIT {table}; END IF; END",
            Literal(&child.to_string()),
            adoption.relid
        ));
        let keys = plan.referrers.iter().map(|moved| moved.keep_no_more(child));
        lines
            .extend(short([still_empty(child), leave].into_iter().chain(keys).chain(unique::no_triggers(plan, child))));
    }
    if !plan.referrers.is_empty() {
        lines.extend(short(plan.referrers.iter().flat_map(Moved::restore)));
        lines.extend(plan.referrers.iter().map(Moved::proof).map(ended));
    }
    let mut sql = unique::no_triggers(plan, &table);
    sql.extend(unique::no_functions(plan, adoption.relid));
    sql.push(stands(&adoption.relation, "rolled back"));
    lines.extend(short(sql));
    lines.push(format!("-- what is left goes with: ebb partition finish {}", adoption.relation));
    Ok(lines)
}

/// The statements of `finish`, from where it stands.
pub async fn finish_script(database: &Database, typed: &str) -> Result<Vec<String>> {
    let mut session = prepare_session(database).await?;
    let label = &catalog::table(&mut session.connection, typed).await?.relation.label();
    let mut lines = journal::script_head("finish");
    let split = split::store::find(&mut session.connection, label).await?;
    if let Some(row) = &split
        && store::find(&mut session.connection, label).await?.is_none()
    {
        lines.extend(split::over_script(row)?);
        return Ok(lines);
    }
    let (adoption, plan) = find(&mut session.connection, typed).await?;
    match adoption.state.as_str() {
        "adopted" => {
            lines.extend(plan.referrers.iter().map(Moved::proof).map(ended));
            let noted = noted(&mut session.connection, &plan, adoption.relid).await?;
            let leaves = noted.iter().map(|(_, schema, name)| Relation::new(schema, name));
            lines.extend(leaves.flat_map(|leaf| short(unique::no_triggers(&plan, &leaf))));
            lines.extend(short(unique::no_functions(&plan, adoption.relid)));
            lines.extend(drop_indexes(plan.back_indexes.iter()));
            lines.push(ended(format!("DELETE FROM ebb.adoption WHERE relation = {}", Literal(label))));
            if let Some(row) = &split {
                lines.extend(split::over_script(row)?);
            }
        }
        "rolled back" => {
            lines.extend(leftovers(&plan).into_iter().flat_map(|drop| short([drop])));
            let forget_split = format!("DELETE FROM ebb.split WHERE relation = {}", Literal(label));
            let last = [format!("DROP TABLE IF EXISTS {}", plan.parent()), forget_split];
            let last = last.into_iter().chain(unique::no_functions(&plan, adoption.relid));
            lines.extend(short(last.chain(forget(label, &plan))));
        }
        state => return Err(Error::refused(format!("{label} is still {state}"))),
    }
    Ok(lines)
}
