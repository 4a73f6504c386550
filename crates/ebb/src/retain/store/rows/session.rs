//! How a transaction over users' tables behaves: bounds, savepoints, roles.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection};

use crate::Result;
use crate::pg::{Ident, Relation};
use crate::retain::tree::Tree;

/// How long a batch waits for a row that somebody holds; the subject's turn comes again with the next run.
const LOCK_WAIT: Duration = Duration::from_millis(200);

/// For the rest of the transaction: lock waits are short, a bounded set is never looked up by reading a whole table nor by
/// workers, whose start takes longer than the look.
/// Commits wait for the disk: what is said to be erased is.
/// Triggers of the tables find what they name without a schema; Ebb's own statements name every operator's schema.
pub(crate) async fn bound(connection: &mut PgConnection, root: &Relation) -> Result<()> {
    let sql = format!(
        "SET LOCAL lock_timeout = {}; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; \
         SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL row_security = off; \
         SET LOCAL search_path = pg_catalog, {}, public, pg_temp",
        LOCK_WAIT.as_millis(),
        root.schema
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}

/// Locks the tables whose rows may go against whoever changes what hangs on them.
pub(crate) async fn lock_tables(connection: &mut PgConnection, tree: &Tree) -> Result<()> {
    let tables: Vec<String> =
        tree.nodes.iter().filter(|node| node.doomed).map(|node| format!("ONLY {}", node.relation)).collect();
    let sql = format!("LOCK TABLE {} IN ROW EXCLUSIVE MODE", tables.join(", "));
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}

pub(crate) async fn savepoint(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("SAVEPOINT ebb_subjects").execute(connection).await?;
    Ok(())
}

/// Ends the savepoint: with deferred constraints checked, or with everything since taken back.
pub(crate) async fn end_savepoint(connection: &mut PgConnection, keep: bool) -> Result<()> {
    let sql = match keep {
        true => "SET CONSTRAINTS ALL IMMEDIATE; RELEASE SAVEPOINT ebb_subjects",
        false => "ROLLBACK TO SAVEPOINT ebb_subjects; RELEASE SAVEPOINT ebb_subjects",
    };
    sqlx::raw_sql(sql).execute(connection).await?;
    Ok(())
}

/// What is written until [`end_apart`] is so by a transaction of its own within this one, and tells by that.
pub(crate) async fn apart(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("SAVEPOINT ebb_apart").execute(connection).await?;
    Ok(())
}

pub(crate) async fn end_apart(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("RELEASE SAVEPOINT ebb_apart").execute(connection).await?;
    Ok(())
}

pub(crate) async fn as_role(connection: &mut PgConnection, role: Option<&Ident>) -> Result<()> {
    if let Some(role) = role {
        sqlx::raw_sql(AssertSqlSafe(format!("SET LOCAL ROLE {role}"))).execute(connection).await?;
    }
    Ok(())
}

pub(crate) async fn back_from_role(connection: &mut PgConnection, role: Option<&Ident>) -> Result<()> {
    if role.is_some() {
        sqlx::raw_sql("SET LOCAL ROLE NONE").execute(connection).await?;
    }
    Ok(())
}
