//! Where triggers of a table look names up while a subject's row is touched for callers: they run with the rights of the
//! table's owner then, so nothing is looked up where others may create. Invariant: what a trigger will not find because of
//! that is told before anybody's deletion or restore fails by it.

use std::fmt;

use sqlx::PgConnection;

use super::store::{self, triggers};
use super::tree::Finding;
use crate::Result;
use crate::pg::{Ident, catalog};

/// The path of a policy's function.
pub(super) struct Path {
    /// Schemas of which it consists, besides the server's own.
    closed: Vec<String>,
    /// Schemas that are left out, each with whoever may create there.
    open: Vec<(String, Vec<String>)>,
}

impl Path {
    pub(super) async fn of(connection: &mut PgConnection, table: u32) -> Result<Self> {
        let schemas = store::path_schemas(connection, table).await?;
        let (closed, open): (Vec<_>, Vec<_>) = schemas.into_iter().partition(|(_, others)| others.is_empty());
        Ok(Self { closed: closed.into_iter().map(|(schema, _)| schema).collect(), open })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pg_catalog")?;
        self.closed.iter().try_for_each(|schema| write!(f, ", {}", Ident::new(schema)))?;
        f.write_str(", pg_temp")
    }
}

/// The schemas of a table's path in which nobody else may create.
pub(super) async fn closed(connection: &mut PgConnection, table: u32) -> Result<Vec<String>> {
    Ok(Path::of(connection, table).await?.closed)
}

/// Triggers of a policy's table that name without a schema what is only where others may create.
pub(super) async fn unseen(connection: &mut PgConnection, table: &catalog::Table) -> Result<Vec<Finding>> {
    let path = Path::of(connection, table.oid).await?;
    if path.open.is_empty() {
        return Ok(Vec::new());
    }
    let left_out: Vec<&str> = path.open.iter().map(|(schema, _)| schema.as_str()).collect();
    let seen: Vec<&str> = ["pg_catalog"].into_iter().chain(path.closed.iter().map(String::as_str)).collect();
    let close = |(schema, others): &(String, Vec<String>)| {
        format!("REVOKE CREATE ON SCHEMA {} FROM {}", Ident::new(schema), others.join(", "))
    };
    let fix = path.open.iter().map(close).collect::<Vec<_>>().join("; ");
    let found = triggers::unseen_names(connection, table.oid, &left_out, &seen).await?;
    let told = found.into_iter().map(|(trigger, names)| Finding {
        refuses: false,
        table: table.relation.label(),
        message: format!(
            "trigger {trigger} names {} without a schema, and will not find it when Ebb deletes or restores a subject: it runs with \
             search_path = {path} then, since others may create in {}",
            names.join(", "),
            left_out.join(" and ")
        ),
        fix: Some(fix.clone()),
    });
    Ok(told.collect())
}
