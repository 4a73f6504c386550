//! How a transaction over users' tables behaves: bounds, savepoints, roles.

use std::time::Duration;

use sqlx::{AssertSqlSafe, PgConnection};

use crate::Result;
use crate::pg::{Ident, Literal, Relation};
use crate::retain::tree::Tree;

/// How long a batch waits for a row that somebody holds; the subject's turn comes again with the next run.
const LOCK_WAIT: Duration = Duration::from_millis(200);

/// Deferred constraints are checked now, and those of what follows again only when it is complete: without the second half they
/// would be checked in the middle of it.
const SETTLE: &str = "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED";

/// Where names without a schema are looked up while a node is at work on users' tables. Invariant: what Ebb sends, people's
/// expressions among it, is read where nobody can put anything but whom the schema or the table belongs to; triggers find
/// what they always found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Path {
    closed: String,
    /// What triggers know besides, where that is more.
    triggers: Option<String>,
}

impl Path {
    /// The path over a table: its schema and `public`, of which those are given that nobody else can put anything into.
    pub(crate) fn of(root: &Relation, closed: &[String]) -> Self {
        let schemas = [root.schema.clone(), Ident::new("public")];
        let path = |schemas: &mut dyn Iterator<Item = &Ident>| {
            let schemas: String = schemas.map(|schema| format!("{schema}, ")).collect();
            format!("pg_catalog, {schemas}pg_temp")
        };
        let is_closed = |schema: &&Ident| closed.iter().any(|name| name == schema.as_str());
        let (all, some) = (path(&mut schemas.iter()), path(&mut schemas.iter().filter(is_closed)));
        Self { triggers: (all != some).then_some(all), closed: some }
    }

    /// The condition of a query over rows that its statement changes with which the path of triggers is set before any of them
    /// fires: by then the statement has been read.
    pub(super) fn opened(&self) -> String {
        self.triggers.as_ref().map_or_else(String::new, |path| {
            format!(" WHERE (SELECT pg_catalog.set_config('search_path', {}, true)) IS NOT NULL", Literal(path))
        })
    }

    /// Lets what was put off to the end of the transaction happen now.
    pub(crate) async fn settle(&self, connection: &mut PgConnection) -> Result<()> {
        let sql = match &self.triggers {
            Some(path) => format!("SET LOCAL search_path = {path}; {SETTLE}; SET LOCAL search_path = {}", self.closed),
            None => SETTLE.to_owned(),
        };
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
        Ok(())
    }

    /// What follows every such statement.
    pub(super) async fn close(&self, connection: &mut PgConnection) -> Result<()> {
        match self.triggers {
            Some(_) => self.enter(connection).await,
            None => Ok(()),
        }
    }

    /// Lets what is sent from here on be read in it.
    pub(crate) async fn enter(&self, connection: &mut PgConnection) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(format!("SET LOCAL search_path = {}", self.closed))).execute(connection).await?;
        Ok(())
    }
}

/// For the rest of the transaction: lock waits are short, a bounded set is never looked up by reading a whole table nor by
/// workers, whose start takes longer than the look.
/// Commits wait for this server's disk whatever is set for it: what is said to be erased is. Whether they wait for others, too, is for
/// whoever set that to say.
pub(crate) async fn bound(connection: &mut PgConnection, path: &Path) -> Result<()> {
    let sql = format!(
        "SELECT pg_catalog.set_config('synchronous_commit', 'on', true) \
         WHERE pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'off'; \
         SET LOCAL lock_timeout = {}; SET LOCAL enable_seqscan = off; SET LOCAL jit = off; \
         SET LOCAL max_parallel_workers_per_gather = 0; SET LOCAL row_security = off; \
         SET LOCAL search_path = {}",
        LOCK_WAIT.as_millis(),
        path.closed
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}

/// Locks the tables whose rows may go, with all their partitions, against whoever changes what hangs on them or fires for them.
pub(crate) async fn lock_tables(connection: &mut PgConnection, tree: &Tree) -> Result<()> {
    let tables: Vec<String> =
        tree.nodes.iter().filter(|node| node.doomed).map(|node| node.relation.to_string()).collect();
    let sql = format!("LOCK TABLE {} IN ROW EXCLUSIVE MODE", tables.join(", "));
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}

pub(crate) async fn savepoint(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("SAVEPOINT ebb_subjects").execute(connection).await?;
    Ok(())
}

/// Ends the savepoint: what was done since is kept, which [`Path::settle`] has completed by then, or taken back.
pub(crate) async fn end_savepoint(connection: &mut PgConnection, keep: bool) -> Result<()> {
    let sql = match keep {
        true => "RELEASE SAVEPOINT ebb_subjects",
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
