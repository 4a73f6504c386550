//! A look at the table of a policy: its leaves, sizes, indexes, and the way a run would take. Plan, status and doctor
//! all start from here. Invariant: it asks the same questions as a run, with the same functions, and changes nothing.

use sqlx::PgConnection;

use super::store;
use crate::expire::due::Clock;
use crate::expire::shape::{self, Shape};
use crate::expire::store::{self as expire_store, Count, Target};
use crate::expire::{self, brake};
use crate::gate::{self, Above, Held};
use crate::pg::Database;
use crate::pg::catalog::{self, Leaf, Table};
use crate::policy::Expire;
use crate::{Error, Result};

/// A policy's table.
pub(crate) struct Survey {
    pub(crate) table: Table,
    pub(crate) leaves: Vec<Surveyed>,
}

/// One leaf of it.
pub(crate) struct Surveyed {
    pub(crate) leaf: Leaf,
    pub(crate) target: Target,
    /// Pages of the main file, now.
    pub(crate) pages: u64,
    /// With indexes and everything else.
    pub(crate) bytes: u64,
    /// The index that starts with the column.
    pub(crate) index: Option<String>,
    /// How far the heap follows the column.
    pub(crate) correlation: Option<f64>,
    /// The way a run would take, or why it would refuse.
    pub(crate) shape: Result<Shape, Error>,
}

impl Surveyed {
    /// The statement for the index that is missing, when one is and the table is large enough to feel it.
    pub(crate) fn missing_index(&self) -> Option<String> {
        (self.index.is_none() && self.pages > SMALL).then(|| shape::index_statement(&self.target))
    }
}

/// Of tables with more than twice so many pages this many are sampled; smaller ones are counted.
const SAMPLE_PAGES: u64 = 8_192;
/// Reading so many pages costs nothing worth a word.
const SMALL: u64 = 128;
/// Rows of subjects on hold are counted no further.
const HELD_UP_TO: u64 = 100_000;

impl Survey {
    pub(crate) fn pages(&self) -> u64 {
        self.leaves.iter().map(|leaf| leaf.pages).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.leaves.iter().map(|leaf| leaf.bytes).sum()
    }

    /// Rows and due rows of the whole table: counted where that is cheap, sampled otherwise.
    pub(crate) async fn count(&self, connection: &mut PgConnection) -> Result<Count> {
        match self.leaves.first() {
            Some(first) => {
                let (table, pages) = (&self.table.relation, self.pages());
                expire_store::estimate(connection, table, &first.target, pages, SAMPLE_PAGES).await
            }
            None => Ok(Count { total: 0.0, due: 0.0, exact: true }),
        }
    }

    /// How many due rows belong to subjects on hold, as far as it is worth counting; none where nobody is.
    pub(crate) async fn held(&self, connection: &mut PgConnection, policy: &Expire) -> Result<Option<u64>> {
        let held = gate::look(connection, policy.name.as_str()).await?;
        let Some(first) = self.leaves.first().filter(|_| !held.is_empty()) else { return Ok(None) };
        let explain = |error| gate::explain(error, &held);
        if self.table.partitioned {
            let table = &self.table.relation;
            let counted = expire_store::count_held(connection, table, &first.target, &held, HELD_UP_TO).await;
            return counted.map(Some).map_err(explain);
        }
        let mut rows = 0;
        for leaf in &self.leaves {
            rows += count_held(connection, leaf, &held).await.map_err(explain)?;
        }
        Ok(Some(rows.min(HELD_UP_TO)))
    }

    /// The limit of the brake that a run would meet.
    pub(crate) async fn brake(
        &self,
        connection: &mut PgConnection,
        policy: &Expire,
        count: Count,
    ) -> Result<Option<String>> {
        let Some(first) = self.leaves.first() else { return Ok(None) };
        let verdict = brake::judge(connection, &policy.brake, &self.table.relation, &first.target, count).await?;
        Ok(verdict.exceeded)
    }
}

/// Looks at the table of a policy. An error is what would stop the policy, too.
pub(crate) async fn survey(connection: &mut PgConnection, policy: &Expire, clock: Clock) -> Result<Survey> {
    let table = catalog::table(connection, &policy.table).await?;
    let mut leaves = Vec::new();
    for leaf in catalog::leaves(connection, table.oid).await? {
        let target = expire::target_by(connection, policy, &table, &leaf, clock).await?;
        let pages = expire_store::pages_now(connection, leaf.oid).await?;
        let bytes = store::total_bytes(connection, leaf.oid).await?;
        let column = catalog::column(connection, &leaf.relation, leaf.oid, &policy.column).await?;
        let found = catalog::column_index(connection, &leaf, &column.name).await?;
        let shape = match shape::choose(connection, policy, &target, &leaf, pages).await {
            Err(error) if !error.is_config() => return Err(error),
            shape => shape,
        };
        let (index, correlation) = (found.index_name, found.correlation);
        leaves.push(Surveyed { leaf, target, pages, bytes, index, correlation, shape });
    }
    Ok(Survey { table, leaves })
}

/// How many due rows of one leaf belong to subjects on hold; none where that cannot be said.
pub(crate) async fn held_in(database: &Database, surveyed: &Surveyed, holds: &[Held]) -> Option<u64> {
    let mut tx = database.read().await.ok()?;
    count_held(&mut tx, surveyed, holds).await.ok()
}

async fn count_held(connection: &mut PgConnection, surveyed: &Surveyed, holds: &[Held]) -> Result<u64> {
    let leaf = &surveyed.leaf;
    let held = Above::of(connection, leaf.oid).await?.held(holds.to_vec());
    match held.is_empty() {
        true => Ok(0),
        false => expire_store::count_held(connection, &leaf.relation, &surveyed.target, &held, HELD_UP_TO).await,
    }
}
