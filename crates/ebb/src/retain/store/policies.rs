//! Policies as functions and nodes need them, and the terms of tenants.

use serde_json::Value;
use sqlx::PgConnection;
use sqlx::postgres::types::PgInterval;
use sqlx::types::Json;
use uuid::Uuid;

use crate::audit::Moment;
use crate::retain::tree::Shape;
use crate::{Result, sql};

/// A policy as functions and nodes need it.
#[derive(Debug)]
pub(crate) struct PutRetain<'a> {
    pub(crate) policy: &'a str,
    pub(crate) relation: String,
    pub(crate) subjects: bool,
    pub(crate) grace: PgInterval,
    pub(crate) floor: PgInterval,
    pub(crate) zone: &'a str,
    pub(crate) tenant_override: bool,
    pub(crate) subject_call: Option<String>,
    pub(crate) tree: Option<&'a Shape>,
    pub(crate) by: &'a str,
    /// Whether the tree is the approved one from now on; otherwise that of before stays it.
    pub(crate) approves: bool,
    pub(crate) warn_before: Vec<PgInterval>,
    pub(crate) proceed: bool,
}

/// Whether the ebb schema is there.
pub(crate) async fn installed(connection: &mut PgConnection) -> Result<bool> {
    Ok(sql!("installed" scalar bool).fetch_one(connection).await?)
}

pub(crate) async fn put_retain(connection: &mut PgConnection, put: PutRetain<'_>) -> Result<()> {
    let tables: Vec<&str> =
        put.tree.map(|tree| tree.tables.iter().map(|table| table.table.as_str()).collect()).unwrap_or_default();
    sql!("put_retain")
        .bind(put.policy)
        .bind(put.relation)
        .bind(put.subjects)
        .bind(put.grace)
        .bind(put.floor)
        .bind(put.zone)
        .bind(put.tenant_override)
        .bind(put.subject_call)
        .bind(put.tree.map(Json))
        .bind(tables)
        .bind(put.by)
        .bind(put.warn_before)
        .bind(put.proceed)
        .bind(put.approves)
        .execute(connection)
        .await?;
    Ok(())
}

pub(crate) async fn approve_tree(connection: &mut PgConnection, policy: &str, tree: &Shape, by: &str) -> Result<()> {
    sql!("approve_tree").bind(policy).bind(Json(tree)).bind(by).execute(connection).await?;
    Ok(())
}

/// Why floors of a policy went down, by the version that it made.
pub(crate) async fn floor_history(connection: &mut PgConnection, policy: &str) -> Result<Vec<(i64, String)>> {
    Ok(sql!("floor_history" as (i64, String)).bind(policy).fetch_all(connection).await?)
}

/// So many deletions follow a change of their policy at once, which is a moment's work.
const AT_ONCE: i64 = 10_000;

/// Open deletions follow a changed policy: those that were due first with the change, the others and the columns that mirror them
/// at the next marking, which is asked for.
pub(crate) async fn due_again(connection: &mut PgConnection, policy: &str) -> Result<()> {
    let query = sql!("due_again" as (bool, i64)).bind(policy).bind(AT_ONCE);
    if query.fetch_optional(&mut *connection).await?.is_some_and(|(more, moved)| more || moved > 0) {
        sql!("mark_soon").bind(policy).execute(connection).await?;
    }
    Ok(())
}

/// Whether there are deletions that do not follow their policy yet.
pub(crate) async fn renews(connection: &mut PgConnection, policy: &str) -> Result<bool> {
    Ok(sql!("renews" scalar bool).bind(policy).fetch_optional(connection).await?.unwrap_or(false))
}

/// Open deletions follow their policy; false where somebody held one.
pub(crate) async fn renew_due(connection: &mut PgConnection, ids: &[Uuid]) -> Result<bool> {
    Ok(sql!("renew_due" scalar bool).bind(ids).fetch_one(connection).await?)
}

/// All of them do.
pub(crate) async fn renewed(connection: &mut PgConnection, policy: &str) -> Result<()> {
    sql!("renewed").bind(policy).execute(connection).await?;
    Ok(())
}

pub(crate) async fn approved(connection: &mut PgConnection, policy: &str) -> Result<Option<Shape>> {
    let found = sql!("approved" scalar Option<Json<Shape>>).bind(policy).fetch_optional(connection).await?;
    Ok(found.flatten().map(|Json(shape)| shape))
}

/// Open deletions that a policy has due, and would have.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct DueIf {
    pub(crate) now: i64,
    pub(crate) would_be: i64,
    /// Those who would be and are not now.
    pub(crate) more: i64,
    /// Those who would be later, and sooner than now.
    pub(crate) sooner: i64,
    /// Subjects who are and would be due; of a policy that nobody follows yet all who would be.
    pub(crate) subjects: Vec<String>,
}

/// How many open deletions are due now where the policy is followed, and how many would be with another grace and floor, without
/// warnings, or with other terms of tenants; at most so many of them by name.
pub(crate) async fn due_if(
    connection: &mut PgConnection,
    policy: &str,
    (grace, floor): (PgInterval, PgInterval),
    (warns, proceeds): (bool, bool),
    (own, zone): (bool, &str),
    (is_followed, named): (bool, u64),
) -> Result<DueIf> {
    let query = sql!("due_if" as DueIf).bind(policy).bind(grace).bind(floor).bind(warns).bind(proceeds);
    Ok(query.bind(own).bind(zone).bind(is_followed).bind(named as i64).fetch_one(connection).await?)
}

/// How many open deletions of a tenant are due sooner, and not at once, when its subjects stay for another term.
pub(crate) async fn due_sooner(
    connection: &mut PgConnection,
    (policy, tenant): (&str, &str),
    (before, after): (Option<PgInterval>, Option<PgInterval>),
) -> Result<i64> {
    let query = sql!("due_sooner" scalar i64).bind(policy).bind(tenant).bind(before).bind(after);
    Ok(query.fetch_one(connection).await?)
}

/// Which of these subjects have a deletion that is due.
pub(crate) async fn due_among(connection: &mut PgConnection, policy: &str, ids: &[String]) -> Result<Vec<String>> {
    Ok(sql!("due_among" scalar String).bind(policy).bind(ids).fetch_all(connection).await?)
}

/// Whether a policy has open deletions or holds.
pub(crate) async fn any_open(connection: &mut PgConnection, policy: &str) -> Result<bool> {
    Ok(sql!("any_open" scalar bool).bind(policy).fetch_one(connection).await?)
}

/// Whether it is on record that somebody agreed to what a policy takes of a table in spite of the floor of another one.
pub(crate) async fn floor_agreed(
    connection: &mut PgConnection,
    policy: &str,
    table: &str,
    keeper: &str,
) -> Result<bool> {
    Ok(sql!("floor_agreed" scalar bool).bind(policy).bind(table).bind(keeper).fetch_one(connection).await?)
}

/// A table whose subjects have several policies.
pub(crate) async fn policies_of_one_table(connection: &mut PgConnection) -> Result<Option<(String, Vec<String>)>> {
    Ok(sql!("policies_of_one_table" as (String, Vec<String>)).fetch_optional(connection).await?)
}

/// A tenant's own terms.
#[derive(Debug, Clone, serde::Serialize, sqlx::FromRow)]
pub struct Override {
    /// Whose.
    pub tenant: String,
    #[serde(skip)]
    #[allow(missing_docs)]
    pub retention: Option<PgInterval>,
    /// The keys as they were set.
    pub spec: Value,
    /// Whether anything of the tenant is erased.
    pub enabled: bool,
    /// When.
    pub changed_at: Moment,
    /// By whom, as they said.
    pub changed_by: String,
}

pub(crate) async fn overrides(connection: &mut PgConnection, policy: &str) -> Result<Vec<Override>> {
    Ok(sql!("overrides" as Override).bind(policy).fetch_all(connection).await?)
}

pub(crate) async fn override_history(connection: &mut PgConnection, policy: &str) -> Result<Vec<(i64, Value)>> {
    Ok(sql!("override_history" as (i64, Value)).bind(policy).fetch_all(connection).await?)
}

pub(crate) async fn put_override(
    connection: &mut PgConnection,
    (policy, tenant): (&str, &str),
    (retention, warn_before): (Option<PgInterval>, Option<Vec<PgInterval>>),
    spec: &Value,
    enabled: bool,
    by: &str,
) -> Result<()> {
    sql!("put_override")
        .bind(policy)
        .bind(tenant)
        .bind(retention)
        .bind(spec)
        .bind(enabled)
        .bind(by)
        .bind(warn_before)
        .execute(connection)
        .await?;
    Ok(())
}

pub(crate) async fn remove_override(connection: &mut PgConnection, policy: &str, tenant: &str) -> Result<bool> {
    Ok(sql!("remove_override").bind(policy).bind(tenant).execute(connection).await?.rows_affected() > 0)
}

/// Whether this session belongs to the owner of the schema.
pub async fn is_admin(connection: &mut PgConnection) -> Result<bool> {
    Ok(sql!("is_admin" scalar bool).fetch_one(connection).await?)
}

pub(crate) async fn subject_policies(connection: &mut PgConnection) -> Result<Vec<String>> {
    Ok(sql!("subject_policies" scalar String).fetch_all(connection).await?)
}
