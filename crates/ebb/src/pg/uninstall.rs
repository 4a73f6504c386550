//! Taking Ebb out of a database again: what the `ebb` schema holds, what outside of it would go with it, and the drop.
//! Invariant: nothing outside the schema is dropped unless the caller has seen it and said so.

use std::time::Duration;

use serde::Serialize;
use sqlx::{PgConnection, Row};

use super::{Database, Guard, Relation};
use crate::{Error, Result, sql};

/// One table of the schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnTable {
    /// Its name inside the schema.
    pub table: String,
    /// How many rows it has.
    pub rows: i64,
    /// What it takes on disk, with its indexes.
    pub bytes: i64,
}

/// What is in the schema, and what depends on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// Its tables.
    pub tables: Vec<OwnTable>,
    /// How many functions it has.
    pub functions: i64,
    /// Objects of others that would go too, as PostgreSQL describes them.
    pub dependents: Vec<String>,
}

/// Looks at the schema; `None` when there is none.
pub async fn contents(connection: &mut PgConnection) -> Result<Option<Contents>> {
    let exists: bool = sqlx::query_scalar("SELECT pg_catalog.to_regnamespace('ebb') IS NOT NULL")
        .persistent(false)
        .fetch_one(&mut *connection)
        .await?;
    if !exists {
        return Ok(None);
    }
    let mut tables = Vec::new();
    for row in sql!("own_tables").fetch_all(&mut *connection).await? {
        let (table, bytes): (String, i64) = (row.try_get("name")?, row.try_get("bytes")?);
        let count = format!("SELECT count(*) FROM {}", Relation::new("ebb", &table));
        let rows = sqlx::query_scalar(sqlx::AssertSqlSafe(count)).persistent(false).fetch_one(&mut *connection).await?;
        tables.push(OwnTable { table, rows, bytes });
    }
    let functions: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_catalog.pg_proc WHERE pronamespace = pg_catalog.to_regnamespace('ebb')",
    )
    .persistent(false)
    .fetch_one(&mut *connection)
    .await?;
    let dependents = sql!("dependents" scalar String).fetch_all(connection).await?;
    Ok(Some(Contents { tables, functions, dependents }))
}

/// Drops the schema. Without `with_dependents` it fails when anything outside depends on it.
pub async fn uninstall(database: &Database, with_dependents: bool) -> Result<()> {
    let mut tx = database.begin(Guard { statement: Duration::from_secs(600), lock: Duration::from_secs(10) }).await?;
    if !with_dependents {
        let found = sql!("dependents" scalar String).fetch_all(&mut *tx).await?;
        if let Some(first) = found.first() {
            return Err(Error::refused(format!("{first} depends on the ebb schema"))
                .with_hint("drop what depends on it first, or let it go too with --force"));
        }
    }
    sqlx::query("DROP SCHEMA ebb CASCADE").persistent(false).execute(&mut *tx).await.map_err(explain)?;
    // Only functions that nodes call live there.
    sqlx::query("DROP SCHEMA IF EXISTS ebb_sandbox CASCADE")
        .persistent(false)
        .execute(&mut *tx)
        .await
        .map_err(explain)?;
    tx.commit().await?;
    Ok(())
}

fn explain(error: sqlx::Error) -> Error {
    let error = Error::from(error);
    match error.sqlstate().as_deref() {
        Some("42501") => error.with_hint("only the owner of the schema can drop it: connect as that role"),
        Some("55P03") => error.with_hint("somebody uses it at the moment; stop the nodes and try again"),
        _ => error,
    }
}
