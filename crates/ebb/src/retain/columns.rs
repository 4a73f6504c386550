//! Columns and the index that a policy over subjects wants of its table: what is missing, and the statement that makes it.
//! Invariant: a statement only adds; none of them rewrites the table.

use serde::Serialize;
use sqlx::PgConnection;

use super::{compile, store};
use crate::Result;
use crate::pg::{Ident, Literal, catalog};
use crate::policy::Retain;

/// Below this many pages a table is read as quickly as an index.
const SMALL_PAGES: u64 = 128;

/// A column that a policy names and its table lacks, and the statement that adds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingColumn {
    /// For which policy.
    pub policy: String,
    /// In which table.
    pub table: String,
    /// The column.
    pub column: String,
    /// `ALTER TABLE …`.
    pub statement: String,
}

impl MissingColumn {
    /// Adds it, for as long as the transaction lasts.
    pub(crate) async fn add(&self, connection: &mut PgConnection) -> Result<()> {
        store::define(connection, self.statement.clone()).await
    }
}

pub(super) async fn missing(connection: &mut PgConnection, policy: &Retain) -> Result<Vec<MissingColumn>> {
    let Some(subjects) = policy.subjects() else { return Ok(Vec::new()) };
    let table = catalog::table(connection, &policy.table).await?;
    let mirror = &subjects.mirror;
    let times = [Some(&subjects.deleted_at), mirror.due.as_ref(), mirror.notified.as_ref(), mirror.attempted.as_ref()];
    let times = times.into_iter().chain([mirror.touched.as_ref()]).flatten();
    let mut wanted: Vec<(String, String)> = times.map(|name| (name.clone(), "timestamptz".to_owned())).collect();
    if let Some(status) = &subjects.status {
        // A constant default is kept in the catalog: no row is written.
        wanted.push((status.column.clone(), format!("text NOT NULL DEFAULT {}", Literal(&status.active))));
    }
    let mut missing: Vec<MissingColumn> = Vec::new();
    for (name, definition) in wanted {
        let known = missing.iter().any(|column| column.column == name);
        match catalog::column(connection, &table.relation, table.oid, &name).await {
            Err(error) if error.is_config() && !known => missing.push(MissingColumn {
                policy: policy.name.to_string(),
                table: table.relation.label(),
                statement: format!("ALTER TABLE {} ADD COLUMN {} {definition}", table.relation, Ident::new(&name)),
                column: name,
            }),
            Err(error) if !error.is_config() => return Err(error),
            _ => {}
        }
    }
    Ok(missing)
}

/// (table, statement).
pub(super) async fn missing_index(connection: &mut PgConnection, policy: &Retain) -> Result<Option<(String, String)>> {
    let Some(subjects) = policy.subjects() else { return Ok(None) };
    let table = catalog::table(connection, &policy.table).await?;
    let column = catalog::column(connection, &table.relation, table.oid, &subjects.deleted_at).await?.name;
    let (pages, _) = store::table_size(connection, table.oid).await?;
    if pages <= SMALL_PAGES || store::leads_by(connection, table.oid, column.as_str()).await? {
        return Ok(None);
    }
    // A partitioned table cannot have one made concurrently; there each partition gets its own by hand.
    let leaves = catalog::leaves(connection, table.oid).await?;
    let leaf = leaves.first().filter(|leaf| leaves.len() == 1 && leaf.oid == table.oid);
    // With the key behind the time, a page of many rows of one moment is read from where the last one ended.
    let (_, tree) = compile::tree(connection, policy, subjects).await?;
    let key = tree.nodes[0].key.iter().map(|column| &column.name);
    Ok(leaf.map(|leaf| {
        let order: Vec<String> = std::iter::once(&column).chain(key).map(ToString::to_string).collect();
        let order = order.join(", ");
        let statement = format!("CREATE INDEX CONCURRENTLY ON {} ({order}) WHERE {column} IS NOT NULL", leaf.relation);
        (table.relation.label(), statement)
    }))
}
