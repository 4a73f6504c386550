//! A BRIN index on the time, for tables that stay whole or partitions that are scanned by time: small, because it only
//! remembers the span of each range of pages. Built concurrently, leaf by leaf; a build that was killed is built again.

use sqlx::{AssertSqlSafe, PgConnection};

use super::adopt::{fitting, prepare_session, store as indexes};
use super::store;
use crate::pg::catalog::{self, Leaf};
use crate::pg::{Database, Ident, Relation};
use crate::{Error, Result};

/// Heap order that follows the column less than this makes every range span everything.
const ORDERED: f64 = 0.9;

/// What would be built, and what for.
#[derive(Debug, serde::Serialize)]
pub struct Brin {
    /// The table.
    pub table: String,
    /// The column.
    pub column: String,
    /// The statements, in order.
    pub statements: Vec<String>,
    /// What it would gain, a line for each leaf.
    pub gain: Vec<String>,
    #[serde(skip)]
    made: Vec<(String, String)>,
}

/// Looks at a table and says what a BRIN index would be and do.
pub async fn brin(
    connection: &mut PgConnection,
    typed: &str,
    column: Option<&str>,
    pages_per_range: u32,
) -> Result<Brin> {
    let table = catalog::table(connection, typed).await?;
    let key = store::partitioned(connection, table.oid, column.unwrap_or_default(), None).await?;
    let column = column.map(str::to_owned).or(key.key_column).ok_or_else(|| {
        Error::usage(format!("{} is not partitioned by one column", table.relation.label()))
            .with_hint("name one: --column created_at")
    })?;
    let leaves = catalog::leaves(connection, table.oid).await?;
    let name = |relation: &Relation| fitting(relation.name.as_str(), &format!("_{column}_brin"));
    let using = |column: &Ident| format!("USING brin ({column}) WITH (pages_per_range = {pages_per_range})");
    let found = catalog::column(connection, &table.relation, table.oid, &column).await?.name;
    let schema = table.relation.schema.as_str().to_owned();
    let (mut statements, mut gain, mut made) = (Vec::new(), Vec::new(), Vec::new());
    let parent = (key.relkind == "p").then(|| Ident::new(name(&table.relation)));
    if let Some(parent) = &parent {
        statements.push(format!("CREATE INDEX {parent} ON ONLY {} {}", table.relation, using(&found)));
        made.push((schema.clone(), parent.as_str().to_owned()));
    }
    for leaf in &leaves {
        let index = Ident::new(name(&leaf.relation));
        statements.push(format!("CREATE INDEX CONCURRENTLY {index} ON {} {}", leaf.relation, using(&found)));
        made.push((leaf.relation.schema.as_str().to_owned(), index.as_str().to_owned()));
        if let Some(parent) = &parent {
            let own = Relation::new(leaf.relation.schema.as_str(), index.as_str());
            let all = Relation::new(&schema, parent.as_str());
            statements.push(format!("ALTER INDEX {all} ATTACH PARTITION {own}"));
            made.push((String::new(), String::new()));
        }
        gain.push(gain_of(connection, leaf, &column, pages_per_range).await?);
    }
    Ok(Brin { table: table.relation.label(), column, statements, gain, made })
}

async fn gain_of(connection: &mut PgConnection, leaf: &Leaf, column: &str, pages_per_range: u32) -> Result<String> {
    let named = catalog::column(connection, &leaf.relation, leaf.oid, column).await?;
    let known = catalog::column_index(connection, leaf, &named).await?;
    let label = leaf.relation.label();
    // A range's summary is two values and a little; a page holds some three hundred of them.
    let size = (leaf.pages / u64::from(pages_per_range.max(1)) / 300 + 3) * 8;
    Ok(match known.correlation {
        None => format!("{label}: no statistics yet; ANALYZE it and ask again"),
        Some(order) if order.abs() >= ORDERED => format!(
            "{label}: rows lie in the order of {column} (correlation {order:.2}): a scan by time reads only the ranges it needs, with about {size} kB of index over {} kB of table",
            leaf.pages * 8
        ),
        Some(order) => format!(
            "{label}: rows do not lie in the order of {column} (correlation {order:.2}): nearly every range spans nearly every time, and little would be skipped"
        ),
    })
}

/// Builds it, or what is missing of it.
pub async fn build_brin(database: &Database, brin: &Brin, watch: &mut (dyn FnMut(String) + Send)) -> Result<()> {
    let mut session = prepare_session(database).await?;
    for (statement, (schema, name)) in brin.statements.iter().zip(&brin.made) {
        let concurrently = statement.contains(" CONCURRENTLY ");
        match indexes::index(&mut session.connection, schema, name).await? {
            Some(true) => continue,
            // A parent's index is invalid until every leaf has its own; a leaf's only when its build was killed.
            Some(false) if !concurrently => continue,
            Some(false) => {
                let sql = format!("DROP INDEX CONCURRENTLY {}", Relation::new(schema, name));
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session.connection).await?;
            }
            None => {}
        }
        watch(statement.clone());
        sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut session.connection).await?;
    }
    Ok(())
}
