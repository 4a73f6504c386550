//! A BRIN index on the time, for tables that stay whole or partitions that are scanned by time: small, because it only
//! remembers the span of each range of pages. Built concurrently, leaf by leaf; a build that was killed is built again.

use sqlx::PgConnection;

use super::adopt::{After, How, Progress, Step, build_index, fitting, prepare_session, short, store as indexes};
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
    steps: Vec<Building>,
}

/// A statement, the table that it locks, and what it makes.
#[derive(Debug)]
struct Building {
    statement: String,
    table: i64,
    made: Made,
}

#[derive(Debug)]
enum Made {
    /// The partitioned table's own index, without any leaf's.
    Parent(Relation),
    /// A leaf's, built concurrently.
    Leaf(Relation),
    /// A leaf's index that belongs to the partitioned table's.
    Attached(Relation),
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
    let schema = table.relation.schema.as_str();
    let own = |relation: &Relation| Relation::new(relation.schema.as_str(), name(relation));
    let (mut steps, mut gain) = (Vec::new(), Vec::new());
    let mut add = |statement, oid: u32, made| steps.push(Building { statement, table: i64::from(oid), made });
    let parent = (key.relkind == "p").then(|| Relation::new(schema, name(&table.relation)));
    if let Some(parent) = parent.clone() {
        let statement = format!("CREATE INDEX {} ON ONLY {} {}", parent.name, table.relation, using(&found));
        add(statement, table.oid, Made::Parent(parent));
    }
    for leaf in &leaves {
        let index = own(&leaf.relation);
        let statement = format!("CREATE INDEX CONCURRENTLY {} ON {} {}", index.name, leaf.relation, using(&found));
        add(statement, leaf.oid, Made::Leaf(index.clone()));
        if let Some(parent) = &parent {
            add(format!("ALTER INDEX {parent} ATTACH PARTITION {index}"), table.oid, Made::Attached(index));
        }
        gain.push(gain_of(connection, leaf, &column, pages_per_range).await?);
    }
    let statements = steps.iter().map(|step| step.statement.clone()).collect();
    Ok(Brin { table: table.relation.label(), column, statements, gain, steps })
}

async fn gain_of(connection: &mut PgConnection, leaf: &Leaf, column: &str, pages_per_range: u32) -> Result<String> {
    let named = catalog::column(connection, &leaf.relation, leaf.oid, column).await?;
    let known = catalog::column_index(connection, leaf, &named.name).await?;
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

/// Builds it, or what is missing of it. What belongs to the partitioned table itself is done in short transactions that give
/// way, since writers wait behind them.
pub async fn build_brin(database: &Database, brin: &Brin, watch: &mut (dyn FnMut(String) + Send)) -> Result<()> {
    let mut session = prepare_session(database).await?;
    for step in &brin.steps {
        let connection = &mut session.connection;
        let stands = match &step.made {
            Made::Attached(index) => store::brin_attached(connection, index).await?,
            Made::Parent(index) | Made::Leaf(index) => {
                let found = store::brin_index(connection, index, step.table, &brin.column).await?;
                if found == Some(false) {
                    let text = format!("{} exists, and is no BRIN index on {}", index.label(), brin.column);
                    return Err(Error::refused(text).with_hint("rename or drop it"));
                }
                // A parent's index is invalid until every leaf has its own; a leaf's only when its build was killed.
                let (schema, name) = (index.schema.as_str(), index.name.as_str());
                let valid = indexes::index(connection, schema, name).await?;
                valid == Some(true) || (valid.is_some() && matches!(step.made, Made::Parent(_)))
            }
        };
        if stands {
            continue;
        }
        watch(step.statement.clone());
        let sql = vec![step.statement.clone()];
        let mut tell = |progress| match progress {
            Progress::Waiting(who) => watch(format!("    waiting: {who}")),
            Progress::Share(share, phase) => watch(format!("    {:.0} % ({phase})", share * 100.0)),
            Progress::Step(..) => {}
        };
        match &step.made {
            Made::Leaf(index) => {
                let index = Some((index.schema.as_str().to_owned(), index.name.as_str().to_owned()));
                let build = Step { index, ..Step::new("", How::Index, sql) };
                build_index(&mut session, &build, &mut tell).await?;
            }
            Made::Parent(_) | Made::Attached(_) => {
                short(&mut session, &[step.table], &sql, &mut tell, After::Nothing).await?;
            }
        }
    }
    Ok(())
}
