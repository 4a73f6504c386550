//! The row that an adoption goes on from. Invariant: one session at a time works on a table; one that died is told by
//! the server itself, so nobody waits for a term to run out.

use std::time::Duration;

use sqlx::PgConnection;

use super::{Plan, Progress};
use crate::pg::Relation;
use crate::{Error, Result, sql};

/// An adoption as it stands.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Adoption {
    pub(crate) relation: String,
    pub(crate) relid: i64,
    pub(crate) policy: String,
    pub(crate) state: String,
    pub(crate) step: i32,
    pub(crate) plan: serde_json::Value,
}

impl Adoption {
    pub(crate) fn plan(&self) -> Result<Plan> {
        serde_json::from_value(self.plan.clone())
            .map_err(|error| Error::failed(format!("the plan of {} cannot be read: {error}", self.relation)))
    }
}

/// The adoption of a table, by its label.
pub(crate) async fn find(connection: &mut PgConnection, label: &str) -> Result<Option<Adoption>> {
    Ok(sql!("adoption" as Adoption).bind(label).fetch_optional(connection).await?)
}

pub(crate) async fn begin(
    connection: &mut PgConnection,
    label: &str,
    relid: i64,
    policy: &str,
    plan: &Plan,
) -> Result<()> {
    let plan = serde_json::to_value(plan).map_err(|error| Error::failed(format!("cannot keep the plan: {error}")))?;
    sql!("begin_adoption").bind(label).bind(relid).bind(policy).bind(plan).execute(connection).await?;
    Ok(())
}

/// How often a session that may be about to end is looked at, and how many times.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
const LOOKS: u32 = 80;

/// Makes this session the one at work. One that was killed ends by itself, perhaps after its last statement: waits for
/// that a while, then refuses.
pub(crate) async fn hold(
    connection: &mut PgConnection,
    label: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    for _ in 0..LOOKS {
        if sql!("hold_adoption").bind(label).execute(&mut *connection).await?.rows_affected() > 0 {
            return Ok(());
        }
        watch(Progress::Waiting("another session is at work on it, or its last statement is still running".into()));
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Err(Error::refused(format!("another session is at work on {label}")).with_hint(
        "wait for it; if nobody is there any more: SELECT pg_terminate_backend(holder_pid) FROM ebb.adoption",
    ))
}

/// A step is done; inside the step's own transaction where it has one.
pub(crate) async fn done(connection: &mut PgConnection, label: &str, state: &str, step: usize) -> Result<()> {
    sql!("adoption_step").bind(label).bind(state).bind(step as i32).execute(connection).await?;
    Ok(())
}

pub(crate) async fn forget(connection: &mut PgConnection, label: &str) -> Result<()> {
    sql!("forget_adoption").bind(label).execute(connection).await?;
    Ok(())
}

/// How an index stands: none, or whether it is valid.
pub(crate) async fn index(connection: &mut PgConnection, schema: &str, name: &str) -> Result<Option<bool>> {
    Ok(sql!("index_valid" scalar bool).bind(schema).bind(name).fetch_optional(connection).await?)
}

pub(crate) async fn is_taken(connection: &mut PgConnection, relation: &Relation) -> Result<bool> {
    Ok(sql!("is_taken" scalar bool)
        .bind(relation.schema.as_str())
        .bind(relation.name.as_str())
        .fetch_one(connection)
        .await?)
}

/// Whether the bound is so near that live rows would soon be refused.
pub(crate) async fn bound_is_near(connection: &mut PgConnection, plan: &Plan) -> Result<bool> {
    Ok(sql!("bound_is_near" scalar bool)
        .bind(&plan.kind)
        .bind(&plan.zone)
        .bind(&plan.bound)
        .fetch_one(connection)
        .await?)
}

/// How far the index is that a server process builds: done, total, what it waits for.
pub(crate) async fn index_progress(connection: &mut PgConnection, pid: i32) -> Result<Option<(f64, String)>> {
    Ok(sql!("index_progress" as (f64, String)).bind(pid).fetch_optional(connection).await?)
}

/// Keeps a plan that has grown.
pub(crate) async fn keep_plan(connection: &mut PgConnection, label: &str, plan: &Plan) -> Result<()> {
    let plan = serde_json::to_value(plan).map_err(|error| Error::failed(format!("cannot keep the plan: {error}")))?;
    sql!("keep_plan").bind(label).bind(plan).execute(connection).await?;
    Ok(())
}

/// What the guard of a table has claimed is given back.
pub(crate) async fn forget_guard(connection: &mut PgConnection, namespace: &str) -> Result<()> {
    sql!("forget_guard").bind(namespace).execute(connection).await?;
    Ok(())
}
