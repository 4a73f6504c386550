//! Columns whose names say what they refer to, where no foreign key does.

use sqlx::PgConnection;

use crate::retain::tree::Shape;
use crate::{Result, sql};

/// A column that looks like an id of the root, and through which its tree does not lead.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Suspect {
    pub(crate) table: String,
    pub(crate) column: String,
    pub(crate) sql_type: String,
    pub(crate) nullable: bool,
    /// The columns of the link that would say so, as many as the root's key has; none for one that the table lacks.
    pub(crate) columns: Vec<Option<String>>,
    /// The root's key.
    pub(crate) references: Vec<String>,
    /// What the root's column is, where values of the two cannot be compared.
    pub(crate) other_type: Option<String>,
}

pub(crate) async fn suspects(connection: &mut PgConnection, root: u32, known: &Shape) -> Result<Vec<Suspect>> {
    let tables: Vec<&str> = known.tables.iter().map(|table| table.table.as_str()).collect();
    let columns = known.edges.iter().flat_map(|edge| edge.columns.iter().map(|name| (edge.table.as_str(), name)));
    let (of, columns): (Vec<&str>, Vec<&String>) = columns.unzip();
    // To compile it takes longer than to run it.
    sqlx::raw_sql("SET LOCAL jit = off").execute(&mut *connection).await?;
    let query = sql!("suspects" as Suspect).bind(i64::from(root)).bind(tables).bind(of).bind(columns);
    Ok(query.fetch_all(connection).await?)
}

/// The tables that a column is called after (`order_id`), and their keys; none where the root is one of them.
pub(crate) async fn meant_by_name(
    connection: &mut PgConnection,
    root: u32,
    column: &str,
) -> Result<Vec<(String, Vec<String>)>> {
    let query = sql!("meant_by_name" as (String, Vec<String>)).bind(i64::from(root)).bind(column);
    Ok(query.fetch_all(connection).await?)
}
