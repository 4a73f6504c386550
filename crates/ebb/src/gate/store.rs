//! The SQL of gates.

use std::collections::{BTreeMap, HashMap};

use sqlx::{AssertSqlSafe, PgConnection};

use super::{Held, Kin, Reach, Whole};
use crate::pg::{Literal, Relation};
use crate::{Result, sql};

/// How long whoever changes a policy waits for batches that are at work.
const CLOSE_WITHIN_MS: u32 = 20_000;

pub(super) async fn pass(connection: &mut PgConnection, policy: &str) -> Result<bool> {
    let bound = sql!("pass" scalar bool).bind(policy).fetch_optional(connection).await?;
    Ok(bound.unwrap_or(false))
}

pub(super) async fn holds(connection: &mut PgConnection, policy: &str) -> Result<Vec<Held>> {
    Ok(sql!("holds" as Held).bind(policy).fetch_all(connection).await?)
}

pub(super) async fn gates(connection: &mut PgConnection) -> Result<BTreeMap<String, Vec<String>>> {
    Ok(sql!("gates" as (String, Vec<String>)).fetch_all(connection).await?.into_iter().collect())
}

/// Tables of the trees that a hold reaches a policy through, with the conditions that are asked.
pub(super) async fn reads(connection: &mut PgConnection, policy: &str) -> Result<Vec<(String, Vec<String>)>> {
    Ok(sql!("reads" as (String, Vec<String>)).bind(policy).fetch_all(connection).await?)
}

/// (table, what goes along with its rows, whose subjects those are) where no gate can keep it.
pub(super) async fn spills(connection: &mut PgConnection, tables: &[u32]) -> Result<Vec<(u32, String, String)>> {
    let tables: Vec<i64> = tables.iter().map(|oid| i64::from(*oid)).collect();
    let found = sql!("spills" as (i64, String, String)).bind(tables).fetch_all(connection).await?;
    Ok(found.into_iter().map(|(table, along, policy)| (table as u32, along, policy)).collect())
}

/// (table, what goes along with its rows by ON DELETE CASCADE), both as whole tables.
pub(super) async fn cascades(connection: &mut PgConnection, tables: &[u32]) -> Result<Vec<(u32, u32)>> {
    let tables: Vec<i64> = tables.iter().map(|oid| i64::from(*oid)).collect();
    let found = sql!("cascades" as (i64, i64)).bind(tables).fetch_all(connection).await?;
    Ok(found.into_iter().map(|(table, along)| (table as u32, along as u32)).collect())
}

/// Whether deleting rows of a table may take what others keep.
pub(super) async fn may_conflict(connection: &mut PgConnection, table: u32) -> Result<bool> {
    Ok(sql!("may_conflict" scalar bool).bind(i64::from(table)).fetch_one(connection).await?)
}

pub(super) async fn still_apart(connection: &mut PgConnection, keepers: &[String]) -> Result<bool> {
    Ok(sql!("still_apart" scalar bool).bind(keepers).fetch_one(connection).await?)
}

/// A batch may take its time; the usual lock wait would give up before it has ended.
pub(super) async fn close(connection: &mut PgConnection) -> Result<()> {
    let before: String = sqlx::query_scalar("SELECT current_setting('lock_timeout')")
        .persistent(false)
        .fetch_one(&mut *connection)
        .await?;
    let set = |value: &str| AssertSqlSafe(format!("SET LOCAL lock_timeout = {}", Literal(value)));
    sqlx::raw_sql(set(&CLOSE_WITHIN_MS.to_string())).execute(&mut *connection).await?;
    sql!("close").fetch_all(&mut *connection).await?;
    sqlx::raw_sql(set(&before)).execute(connection).await?;
    Ok(())
}

/// Gates, each with the tables behind it.
pub(super) async fn put(connection: &mut PgConnection, gates: &BTreeMap<&String, &Vec<String>>) -> Result<()> {
    sql!("put").bind(sqlx::types::Json(gates)).execute(connection).await?;
    Ok(())
}

pub(super) async fn loose(connection: &mut PgConnection) -> Result<Vec<String>> {
    Ok(sql!("loose" scalar String).fetch_all(connection).await?)
}

pub(super) async fn bind(connection: &mut PgConnection, policies: &[String]) -> Result<()> {
    sql!("bind").bind(policies).execute(connection).await?;
    Ok(())
}

/// What holds of a policy reach, by table, and whether that is the one that had its name then.
pub(super) async fn reach(connection: &mut PgConnection, policy: &str) -> Result<BTreeMap<String, (Reach, bool)>> {
    let found = sql!("reach" as (String, Vec<String>, Vec<String>, bool)).bind(policy).fetch_all(connection).await?;
    let each = |(relation, conditions, erased, same)| (relation, (Reach { conditions, erased }, same));
    Ok(found.into_iter().map(each).collect())
}

/// A table that holds reach into and that is called otherwise by now.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Strayed {
    pub(super) policy: String,
    pub(super) holds: i64,
    pub(super) relation: String,
    pub(super) label: String,
    pub(super) is_root: bool,
    pub(super) is_taken: bool,
}

pub(super) async fn strayed(
    connection: &mut PgConnection,
    tables: Option<Vec<i64>>,
    of: Option<(&str, &[&str])>,
) -> Result<Option<Strayed>> {
    let query = sql!("strayed" as Strayed).bind(tables).bind(of.map(|(policy, _)| policy));
    Ok(query.bind(of.map(|(_, relations)| relations)).fetch_optional(connection).await?)
}

pub(super) async fn put_reach(
    connection: &mut PgConnection,
    policy: &str,
    relation: &str,
    reach: &Reach,
) -> Result<()> {
    let query = sql!("put_reach").bind(policy).bind(relation).bind(&reach.conditions).bind(&reach.erased);
    query.execute(connection).await?;
    Ok(())
}

pub(super) async fn forget_reach(connection: &mut PgConnection, policy: &str, relations: &[String]) -> Result<()> {
    if !relations.is_empty() {
        sql!("forget_reach").bind(policy).bind(relations).execute(connection).await?;
    }
    Ok(())
}

/// What each of these tables is part of, or the table itself.
pub(super) async fn roots(connection: &mut PgConnection, tables: &[u32]) -> Result<HashMap<u32, (u32, Relation)>> {
    let tables: Vec<i64> = tables.iter().map(|oid| i64::from(*oid)).collect();
    let found = sql!("roots" as (i64, i64, String, String)).bind(tables).fetch_all(connection).await?;
    let of = |(oid, root, schema, name): (i64, i64, String, String)| {
        (oid as u32, (root as u32, Relation::new(schema, name)))
    };
    Ok(found.into_iter().map(of).collect())
}

/// The tables that share rows with each of these.
pub(super) async fn kin(connection: &mut PgConnection, tables: &[u32]) -> Result<HashMap<u32, Vec<Kin>>> {
    let tables: Vec<i64> = tables.iter().map(|oid| i64::from(*oid)).collect();
    let found = sql!("kin" as (i64, i64, String, String, bool)).bind(tables).fetch_all(connection).await?;
    let mut kin: HashMap<u32, Vec<Kin>> = HashMap::new();
    for (of, oid, schema, name, is_above) in found {
        let table = Whole { oid: oid as u32, relation: Relation::new(schema, name) };
        kin.entry(of as u32).or_default().push(Kin { table, is_above });
    }
    Ok(kin)
}

/// A leaf and what is above it: numbers and names.
pub(super) async fn above(connection: &mut PgConnection, leaf: u32) -> Result<Vec<(u32, String)>> {
    let found = sql!("above" as (i64, String)).bind(i64::from(leaf)).fetch_all(connection).await?;
    Ok(found.into_iter().map(|(oid, label)| (oid as u32, label)).collect())
}

pub(super) async fn savepoint(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("SAVEPOINT ebb_gate").execute(connection).await?;
    Ok(())
}

pub(super) async fn end_savepoint(connection: &mut PgConnection, keep: bool) -> Result<()> {
    let sql = match keep {
        true => "RELEASE SAVEPOINT ebb_gate",
        false => "ROLLBACK TO SAVEPOINT ebb_gate; RELEASE SAVEPOINT ebb_gate",
    };
    sqlx::raw_sql(sql).execute(connection).await?;
    Ok(())
}

/// Whether any row of a table fulfils any of the conditions.
pub(super) async fn any(connection: &mut PgConnection, table: &Relation, conditions: &[String]) -> Result<bool> {
    for condition in conditions {
        let sql = format!("SELECT EXISTS (SELECT FROM {table} WHERE {condition})");
        if sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *connection).await? {
            return Ok(true);
        }
    }
    Ok(false)
}
