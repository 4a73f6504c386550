//! The row that an adoption goes on from, and what the catalog says on the way.

use sqlx::PgConnection;

use super::{Plan, Progress};
use crate::partition::journal;
use crate::pg::Relation;
use crate::{Result, sql};

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
        journal::plan(&self.plan, &self.relation)
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
    portrait: &[String],
) -> Result<()> {
    sql!("begin_adoption")
        .bind(label)
        .bind(relid)
        .bind(policy)
        .bind(journal::kept(plan)?)
        .bind(portrait)
        .execute(connection)
        .await?;
    Ok(())
}

/// What a table looks like, a line for everything that somebody could change.
pub(crate) async fn portrait(connection: &mut PgConnection, relid: i64, column: &str) -> Result<Vec<String>> {
    Ok(sql!("portrait" scalar Vec<String>).bind(relid).bind(column).fetch_one(connection).await?)
}

/// Refuses where it does not look any more as the adoption knows it.
pub(crate) async fn require_portrait(connection: &mut PgConnection, adoption: &Adoption, column: &str) -> Result<()> {
    sql!("require_portrait").bind(&adoption.relation).bind(adoption.relid).bind(column).execute(connection).await?;
    Ok(())
}

/// Makes this session the one at work.
pub(crate) async fn hold(
    connection: &mut PgConnection,
    label: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    journal::hold(connection, (include_str!("sql/hold_adoption.sql"), "ebb.adoption"), label, watch).await
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

/// Which of these names something has.
pub(crate) async fn taken(connection: &mut PgConnection, schema: &str, names: &[String]) -> Result<Vec<String>> {
    Ok(sql!("are_taken" scalar String).bind(schema).bind(names).fetch_all(connection).await?)
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

/// Behind whom a server process waits, in words.
pub(crate) async fn waits_for(connection: &mut PgConnection, pid: i32) -> Result<Option<String>> {
    Ok(sql!("waits_for" scalar String).bind(pid).fetch_optional(connection).await?)
}

/// How large a table is, in words.
pub(crate) async fn printed_size(connection: &mut PgConnection, table: &Relation) -> Result<String> {
    Ok(sql!("printed_size" scalar String).bind(table.to_string()).fetch_one(connection).await?)
}

/// Keeps a plan that has grown.
pub(crate) async fn keep_plan(connection: &mut PgConnection, label: &str, plan: &Plan) -> Result<()> {
    sql!("keep_plan").bind(label).bind(journal::kept(plan)?).execute(connection).await?;
    Ok(())
}

/// What the guard of a table has claimed is given back.
pub(crate) async fn forget_guard(connection: &mut PgConnection, namespace: &str) -> Result<()> {
    sql!("forget_guard").bind(namespace).execute(connection).await?;
    Ok(())
}
