//! What the catalog says about tables, their foreign keys and their leaves.

use sqlx::PgConnection;
use sqlx::types::Json;

use crate::pg::Relation;
use crate::retain::graph::{GraphIndex, WrittenTrigger};
use crate::{Result, sql};

#[derive(sqlx::FromRow)]
pub(crate) struct TableRow {
    pub(crate) oid: i64,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) inherited: bool,
    pub(crate) columns: Vec<String>,
    pub(crate) types: Vec<String>,
    pub(crate) not_null: Vec<bool>,
    pub(crate) wanted: Vec<bool>,
    pub(crate) operators: Vec<String>,
    pub(crate) collations: Vec<Option<String>>,
    pub(crate) loose: Vec<bool>,
    pub(crate) fixed: Vec<bool>,
    pub(crate) in_keys: Vec<i32>,
    pub(crate) delete_triggers: Vec<String>,
    /// Of leaves.
    pub(crate) nameless: Vec<i64>,
    pub(crate) rules: Vec<String>,
    pub(crate) updates_hindered: bool,
    pub(crate) update_triggers: Vec<String>,
    pub(crate) written_triggers: Json<Vec<WrittenTrigger>>,
}

#[derive(sqlx::FromRow)]
pub(crate) struct KeyRow {
    pub(crate) name: String,
    pub(crate) child: i64,
    pub(crate) parent: i64,
    pub(crate) child_leaves: Option<Vec<i64>>,
    /// What it refers to is one partition, of this name.
    pub(crate) to_partition: bool,
    pub(crate) parent_schema: String,
    pub(crate) parent_name: String,
    pub(crate) on_delete: String,
    pub(crate) deferrable: bool,
    pub(crate) full: bool,
    pub(crate) temporal: bool,
    pub(crate) enforced: bool,
    pub(crate) child_columns: Vec<String>,
    pub(crate) parent_columns: Vec<String>,
    pub(crate) set_columns: Vec<String>,
    pub(crate) operators: Vec<String>,
    pub(crate) casts: Vec<Option<String>>,
}

#[derive(sqlx::FromRow)]
pub(crate) struct LeafRow {
    pub(crate) tab: i64,
    pub(crate) oid: i64,
    pub(crate) schema: String,
    pub(crate) name: String,
    pub(crate) bytes: i64,
    pub(crate) tuples: f64,
    pub(crate) indexes: Json<Vec<GraphIndex>>,
}

pub(crate) async fn graph_tables(connection: &mut PgConnection, seeds: &[u32]) -> Result<Vec<TableRow>> {
    let seeds: Vec<i64> = seeds.iter().map(|oid| i64::from(*oid)).collect();
    Ok(sql!("graph_tables" as TableRow).bind(seeds).fetch_all(connection).await?)
}

pub(crate) async fn graph_keys(connection: &mut PgConnection, tables: &[i64]) -> Result<Vec<KeyRow>> {
    Ok(sql!("graph_keys" as KeyRow).bind(tables).fetch_all(connection).await?)
}

pub(crate) async fn graph_leaves(connection: &mut PgConnection, tables: &[i64]) -> Result<Vec<LeafRow>> {
    Ok(sql!("graph_leaves" as LeafRow).bind(tables).fetch_all(connection).await?)
}

/// Tables that partitioning has beside those that people know: a partition that is out, with the table that it was of; and what
/// is being made, or is left.
pub(crate) async fn graph_aside(connection: &mut PgConnection) -> Result<Vec<(u32, Option<u32>)>> {
    let found = sql!("graph_aside" as (i64, Option<i64>)).fetch_all(connection).await?;
    Ok(found.into_iter().map(|(oid, out_of)| (oid as u32, out_of.map(|oid| oid as u32))).collect())
}

/// The whole table that a partition belongs to, and its name.
pub(crate) async fn partition_of(connection: &mut PgConnection, table: u32) -> Result<Option<(u32, Relation)>> {
    let query = sql!("partition_of" as (i64, String, String)).bind(i64::from(table));
    let found = query.fetch_optional(connection).await?;
    Ok(found.map(|(oid, schema, name)| (oid as u32, Relation::new(schema, name))))
}

/// Of two tables the one whose rows are all rows of the other; none where they share none.
pub(crate) async fn overlap(connection: &mut PgConnection, one: u32, other: u32) -> Result<Option<u32>> {
    let query = sql!("overlap" scalar i64).bind(i64::from(one)).bind(i64::from(other));
    Ok(query.fetch_optional(connection).await?.map(|oid| oid as u32))
}
