//! `ebb status --storage`: what the tables of each policy take, from figures that the server keeps anyway. Invariant: no
//! table is read, so that it costs the same for any size.

use std::collections::HashMap;

use serde::Serialize;

use super::store::{self, PolicyRow};
use crate::audit::Moment;
use crate::pg::{Database, catalog};
use crate::policy::{Kind, Spec};
use crate::{Engine, Result};

/// What a policy's table takes.
#[derive(Debug, Clone, Serialize)]
pub struct PolicyStorage {
    /// The policy.
    pub policy: String,
    /// Its table, as it was written.
    pub table: String,
    /// How many tables hold its rows.
    pub leaves: u64,
    /// Rows, by the last statistics.
    pub rows: u64,
    /// The rows themselves, with what is stored out of line.
    pub table_bytes: u64,
    /// Their indexes.
    pub index_bytes: u64,
    /// Due rows, by the last look.
    pub pending: Option<u64>,
    /// Why there are no figures.
    pub problem: Option<String>,
    /// The largest tenants, as the weekly review last measured them.
    pub tenants: Vec<TenantStorage>,
}

/// What the rows of a tenant take.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct TenantStorage {
    #[serde(skip)]
    pub(super) policy: String,
    /// Whose.
    pub tenant: String,
    /// How many.
    pub rows: i64,
    /// Their share of the table with its indexes.
    pub bytes: i64,
    /// Counted; otherwise from a sample.
    pub exact: bool,
    /// When.
    pub at: Moment,
}

impl Engine {
    /// What the tables of each policy take.
    pub async fn storage(&self) -> Result<Vec<PolicyStorage>> {
        storage(self.database()).await
    }
}

/// What the tables of each policy take.
pub(super) async fn storage(database: &Database) -> Result<Vec<PolicyStorage>> {
    let mut tx = database.read().await?;
    let policies = store::policies(&mut tx).await?;
    let units = store::units(&mut tx).await?;
    let tenants = store::tenant_storage(&mut tx).await?;
    let works = |row: &PolicyRow| {
        let table = row.spec.as_object().and_then(table_of).map(str::to_owned);
        table.filter(|_| Kind::parse(&row.kind).is_ok_and(Kind::is_work))
    };
    let policies: Vec<(PolicyRow, String)> =
        policies.into_iter().filter_map(|row| works(&row).map(|table| (row, table))).collect();
    let named = catalog::named(&mut tx, policies.iter().map(|(_, table)| table.as_str())).await?;
    let oids: Vec<u32> =
        policies.iter().filter_map(|(_, table)| named.find(table).ok().flatten()).map(|table| table.oid).collect();
    let sizes = store::storage(&mut tx, &oids).await?;
    let mut pending: HashMap<&str, u64> = HashMap::new();
    for unit in &units {
        if let Some(rows) = unit.pending {
            *pending.entry(&unit.policy).or_default() += rows.max(0) as u64;
        }
    }
    let mut all = Vec::new();
    for (row, table) in policies {
        let pending = pending.get(row.name.as_str()).copied();
        let mut storage = PolicyStorage {
            policy: row.name.clone(),
            table: table.clone(),
            leaves: 0,
            rows: 0,
            table_bytes: 0,
            index_bytes: 0,
            pending,
            problem: None,
            tenants: tenants.iter().filter(|tenant| tenant.policy == row.name).cloned().collect(),
        };
        match named.table(&mut tx, &table).await {
            Ok(found) => {
                let sums = sizes.get(&found.oid).copied().unwrap_or_default();
                (storage.leaves, storage.rows) = (sums.leaves as u64, sums.rows as u64);
                (storage.table_bytes, storage.index_bytes) = (sums.table_bytes as u64, sums.index_bytes as u64);
            }
            Err(error) if error.is_config() => storage.problem = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        all.push(storage);
    }
    tx.commit().await?;
    Ok(all)
}

fn table_of(spec: &Spec) -> Option<&str> {
    spec.get("table")?.as_str()
}
