//! What a change of a sweep makes due: rows that are due under its new keys and were not under those it has. Invariants: it
//! changes nothing and ends soon, whatever the table; where counting would take longer the planner's estimate stands.

use sqlx::PgConnection;

use super::store;
use crate::expire::due::Clock;
use crate::expire::store::Target;
use crate::pg::catalog::{self, Leaf, Table};
use crate::policy::{Expire, Term};
use crate::{Result, expire};

/// Rows are counted no further.
const COUNTED_ROWS: u64 = 1_000_000;

/// How many rows are due, and how many would be after the change. Nothing is counted where it can make none due.
pub(crate) async fn made_due(
    connection: &mut PgConnection,
    before: Option<&Expire>,
    after: &Expire,
) -> Result<(u64, u64)> {
    if before.is_some_and(|before| !reaches_further(before, after)) {
        return Ok((0, 0));
    }
    // What counted with other keys is forgotten: settings, roles, and an error.
    store::begin_look(connection).await?;
    let counted = count(connection, before, after).await;
    store::end_look(connection).await?;
    match counted {
        Err(error) if error.sqlstate().as_deref() == Some("57014") => estimate(connection, before, after).await,
        // Keys that do not work any more make nothing due.
        Err(error) if before.is_some() && !error.is_unavailable() => {
            store::begin_look(connection).await?;
            let counted = count(connection, None, after).await;
            store::end_look(connection).await?;
            counted
        }
        counted => counted,
    }
}

/// Whether rows may be due under the one and not under the other.
fn reaches_further(before: &Expire, after: &Expire) -> bool {
    let where_ = |policy: &Expire| (policy.table.clone(), policy.column.clone(), policy.filter.clone());
    let how = |policy: &Expire| (policy.unit, policy.zone.clone());
    let shorter = |before: Option<Term>, after: Option<Term>| {
        before.is_some_and(|before| after.is_none_or(|after| !after.never_shorter(&before)))
    };
    where_(before) != where_(after)
        || how(before) != how(after)
        || shorter(before.older_than, after.older_than)
        || shorter(before.floor, after.floor)
}

async fn count(connection: &mut PgConnection, before: Option<&Expire>, after: &Expire) -> Result<(u64, u64)> {
    let table = catalog::table(connection, &after.table).await?;
    let leaves = catalog::leaves(connection, table.oid).await?;
    let Some(first) = leaves.first() else { return Ok((0, 0)) };
    let (before, after) = targets(connection, &table, first, before, after).await?;
    let now = match &before {
        Some(before) => {
            store::count_where(connection, &table.relation, before, &before.condition(), COUNTED_ROWS).await?
        }
        None => 0,
    };
    let more = store::beyond(&after, before.as_ref());
    let more = store::count_where(connection, &table.relation, &after, &more, COUNTED_ROWS).await?;
    Ok((now, now + more))
}

async fn estimate(connection: &mut PgConnection, before: Option<&Expire>, after: &Expire) -> Result<(u64, u64)> {
    let table = catalog::table(connection, &after.table).await?;
    let (mut now, mut more) = (0.0, 0.0);
    for leaf in catalog::leaves(connection, table.oid).await? {
        let (before, after) = targets(connection, &table, &leaf, before, after).await?;
        if let Some(before) = &before {
            now += store::planned_where(connection, before, &before.condition()).await?;
        }
        more += store::planned_where(connection, &after, &store::beyond(&after, before.as_ref())).await?;
    }
    Ok((now as u64, (now + more).ceil() as u64))
}

/// The sweep of a leaf under both; only under the new keys where the old ones are about another table.
async fn targets(
    connection: &mut PgConnection,
    table: &Table,
    leaf: &Leaf,
    before: Option<&Expire>,
    after: &Expire,
) -> Result<(Option<Target>, Target)> {
    let target = expire::target_by(connection, after, table, leaf, Clock::Ebb).await?;
    let before = match before.filter(|before| before.table == after.table) {
        Some(before) => Some(expire::target_by(connection, before, table, leaf, Clock::Ebb).await?),
        None => None,
    };
    Ok((before, target))
}
