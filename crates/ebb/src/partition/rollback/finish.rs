//! The end of an adoption, a rollback or a split: what is left of it goes, after a look whether anything is in it.

use sqlx::AssertSqlSafe;

use super::{find, forget_notes, held_split, unique};
use crate::partition::adopt::store::{self, Adoption};
use crate::partition::adopt::{After, Plan, Progress, Session, prepare_session, prove, short};
use crate::partition::split;
use crate::pg::{Database, Literal, Relation, block, catalog};
use crate::{Error, Result};

/// What `finish` did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// The adoption is final.
    Adopted,
    /// The rollback is final: so many empty tables went.
    RolledBack(usize),
    /// The split is final, and the adoption with it: the partition that was split went.
    Split,
}

/// Ends an adoption or a rollback: what is left of it goes, after a look whether anything is in it.
pub async fn finish(database: &Database, typed: &str, watch: &mut (dyn FnMut(Progress) + Send)) -> Result<Finished> {
    let mut session = prepare_session(database).await?;
    if let Some(row) = held_split(&mut session, typed, &["splitting", "abandoning"], watch).await? {
        let command = if row.state == "splitting" { "split" } else { "rollback" };
        return Err(Error::refused(format!("{} is still {}", row.relation, row.state))
            .with_hint(format!("go on with it first: ebb partition {command} {}", row.relation)));
    }
    if let Some(finished) = finish_split(&mut session, typed, watch).await? {
        return Ok(finished);
    }
    let (adoption, plan) = find(&mut session.connection, typed).await?;
    let label = &adoption.relation;
    store::hold(&mut session.connection, label, watch).await?;
    match adoption.state.as_str() {
        "adopted" => {
            prove(&mut session, &plan).await?;
            forget_way_back(&mut session, &adoption, &plan, watch).await?;
            return Ok(Finished::Adopted);
        }
        "rolled back" => {}
        state => {
            let command = if state == "adopting" { "adopt" } else { "rollback" };
            return Err(Error::refused(format!("{label} is still {state}"))
                .with_hint(format!("go on with it first: ebb partition {command} {label}")));
        }
    }
    // Each alone: where the table refers to another, dropping one keeps everybody out of that for milliseconds.
    for leftover in leftovers(&plan) {
        short(&mut session, &[], &[leftover], watch, After::Nothing).await.map_err(|error| hinted(error, label))?;
    }
    let mut sql = vec![format!("DROP TABLE IF EXISTS {}", plan.parent())];
    sql.extend(unique::no_functions(&plan, adoption.relid));
    let done = short(&mut session, &[], &sql, watch, After::Finished(label, &plan)).await;
    done.map_err(|error| hinted(error, label))?;
    Ok(Finished::RolledBack(plan.leftovers.len() + 1))
}

/// The statements that drop the former partitions, each after a look.
pub(super) fn leftovers(plan: &Plan) -> Vec<String> {
    let drop = |(schema, name): &(String, String)| {
        let leftover = Relation::new(schema, name);
        block(&format!(
            "BEGIN IF to_regclass({0}) IS NOT NULL THEN LOCK TABLE {leftover} IN ACCESS EXCLUSIVE MODE; \
             IF EXISTS (SELECT FROM {leftover}) THEN RAISE EXCEPTION '% still has rows', {0}; END IF; \
             DROP TABLE {leftover}; END IF; END",
            Literal(&leftover.to_string())
        ))
    };
    plan.leftovers.iter().map(drop).collect()
}

fn hinted(error: Error, label: &str) -> Error {
    match error.sqlstate().as_deref() {
        Some("2BP01") => error.with_hint(format!(
            "what depends on it was made while {label} was partitioned: drop it, and make it again on {label}"
        )),
        _ => error,
    }
}

/// After a split there are two ways: this one ends where its parts stay.
async fn finish_split(
    session: &mut Session,
    typed: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<Option<Finished>> {
    let label = catalog::table(&mut session.connection, typed).await?.relation.label();
    let adoption = store::find(&mut session.connection, &label).await?;
    if adoption.as_ref().is_some_and(|adoption| adoption.state != "adopted") {
        return Ok(None);
    }
    let Some(row) = held_split(session, typed, &["split", "undone"], watch).await? else { return Ok(None) };
    if let Some(adoption) = &adoption {
        store::hold(&mut session.connection, &label, watch).await?;
        forget_way_back(session, adoption, &adoption.plan()?, watch).await?;
    }
    split::finish(session, &row, &row.plan()?, watch).await?;
    Ok(Some(Finished::Split))
}

/// There is no way back from here: what a rollback that was given up has built for it goes, too.
async fn forget_way_back(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    give_up(session, adoption, plan, watch).await?;
    store::forget(&mut session.connection, &adoption.relation).await
}

/// The table stays adopted: nothing is left of a rollback that was begun.
pub(crate) async fn give_up(
    session: &mut Session,
    adoption: &Adoption,
    plan: &Plan,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    forget_notes(session, adoption, plan, watch).await?;
    for (schema, name) in plan.back_indexes.iter().filter_map(|step| step.index.as_ref()) {
        let sql = format!("DROP INDEX CONCURRENTLY IF EXISTS {}", Relation::new(schema, name));
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session.connection).await?;
    }
    Ok(())
}
