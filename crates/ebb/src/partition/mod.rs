//! partition: big tables split by time, whose next partitions always exist and whose expired ones go at once.
//! Invariants: no DEFAULT partition, so that nothing is read under a lock; a partition leaves its table in three steps
//! that are each written down (decided, detached, dropped), and the last asks every condition again under its lock.

pub mod adopt;
pub mod split;
pub(crate) mod store;
pub(crate) mod upkeep;
pub(crate) mod work;

mod brin;
mod detach;
mod explain;
mod index;
mod journal;
mod list;
mod rollback;
mod statements;

pub use brin::{Brin, brin, build_brin};
pub use explain::{Explained, Shape, explain, shapes};
pub use list::{Detached, Listed, Listing, list, list_all, names, statements};
pub use rollback::{
    Finished, RolledBack, Standing, finish, finish_script, require_standing, rollback, rollback_script,
    rollback_within, standing,
};

use sqlx::PgConnection;

use crate::pg::catalog::{self, Table};
use crate::pg::{Ident, Literal, Relation};
use crate::policy::Partition;
use crate::{Error, Result};

/// A table that a policy can look after.
#[derive(Debug, Clone)]
pub(crate) struct Partitioned {
    pub(crate) table: Table,
    pub(crate) column: Ident,
    /// What the column can say about time: see the migration.
    pub(crate) kind: String,
}

/// Finds a policy's table and refuses what upkeep cannot work on, saying how it could.
pub(crate) async fn partitioned(connection: &mut PgConnection, policy: &Partition) -> Result<Partitioned> {
    let table = catalog::table(connection, &policy.table).await?;
    let found = partitioned_by(connection, policy).await;
    // Whoever has it now is named first: what it leaves behind comes after.
    match store::partman(connection, &table.relation).await? {
        Some(other) => Err(refuse_partman(&table.relation, &other)),
        None => found,
    }
}

/// The same, whoever looks after it until now.
pub(crate) async fn partitioned_by(connection: &mut PgConnection, policy: &Partition) -> Result<Partitioned> {
    let table = catalog::table(connection, &policy.table).await?;
    let column = catalog::column(connection, &table.relation, table.oid, &policy.column).await?;
    let label = table.relation.label();
    let unit = policy.unit_word();
    let shape = store::partitioned(connection, table.oid, column.name.as_str(), unit).await?;
    if shape.relkind != "p" {
        return Err(Error::config(format!("table {label} is not partitioned")).with_hint(format!(
            "`ebb partition adopt {label} --column {} --by {}` splits it online",
            policy.column,
            policy.by.as_str()
        )));
    }
    if shape.strategy.as_deref() != Some("r") || shape.key_column.as_deref() != Some(column.name.as_str()) {
        let key = shape.key_definition.unwrap_or_default();
        return Err(Error::config(format!("table {label} is partitioned by {key}, not by RANGE ({})", policy.column))
            .with_hint(
                "upkeep by time needs one plain column; name that column, or leave this table to its own tool",
            ));
    }
    let Some(kind) = shape.kind else {
        let message = format!("column {} of {label} is {}, which tells no time", policy.column, column.base_type);
        return Err(Error::config(message).with_hint(
            "it must be timestamptz, timestamp, date, uuid (version 7), bigint with unit = \"s\" or \"ms\", or integer seconds",
        ));
    };
    if unit.is_some() && !["s", "ms"].contains(&kind.as_str()) {
        return Err(Error::config(format!(
            "`unit` is for integer columns, and {} is {}",
            policy.column, column.base_type
        ))
        .with_hint("take it out"));
    }
    if let Some(default) = shape.default_partition {
        let columns = rollback::plain_columns(connection, i64::from(table.oid)).await?;
        return Err(refuse_default(
            (&table.relation, &default),
            &columns,
            &[column.name.as_str(), policy.by.as_str()],
            unit,
        ));
    }
    Ok(Partitioned { table, column: column.name, kind })
}

/// A DEFAULT partition is read under a lock whenever another is added, and forbids DETACH CONCURRENTLY.
fn refuse_default((parent, default): (&Relation, &str), columns: &str, period: &[&str], unit: Option<&str>) -> Error {
    let quoted = parent.to_string();
    let told = [quoted.as_str(), default].into_iter().chain(period.iter().copied()).chain(unit);
    let told: Vec<String> = told.map(|word| Literal(word).to_string()).collect();
    let told = told.join(", ");
    Error::config(format!(
        "table {} has the DEFAULT partition {default}: adding any other would read it under a lock, and nothing could be detached concurrently",
        parent.label()
    ))
    .with_hint(format!(
        "empty and detach it in one transaction, so that its rows are always seen: BEGIN; ALTER TABLE {parent} DETACH PARTITION {default}; \
         SELECT ebb.add_partitions_for({told}); INSERT INTO {parent} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {default}; \
         DROP TABLE {default}; COMMIT; then run this again"
    ))
}

/// Two that look after one table would get into each other's way.
fn refuse_partman(table: &Relation, other: &store::Partman) -> Error {
    let own = Relation::new(&other.schema, "part_config");
    let keep = other.retention.as_deref().map_or("for ever".to_owned(), |retention| format!("for {retention}"));
    Error::config(format!("table {} is looked after by pg_partman", table.label())).with_hint(format!(
        "take over from it: UPDATE {own} SET automatic_maintenance = 'off' WHERE parent_table = {}; \
         it makes partitions of {}, {} ahead, and keeps them {keep}; `ebb partition adopt` does both and writes the policy",
        Literal(&other.parent_table),
        other.interval,
        other.premake
    ))
}
