//! What `ebb partition list` shows: the partitions of every policy's table, and those that wait outside of it.

use serde::Serialize;
use sqlx::PgConnection;

use super::{partitioned, store};
use crate::audit::Moment;
use crate::pg::catalog;
use crate::policy::{self, Kind, Partition, Policy, Stored};
use crate::{Error, Result};

/// The partitions of one policy's table.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PartitionedTable))]
pub struct Listing {
    /// The policy.
    pub policy: String,
    /// The table.
    pub table: String,
    /// Where the partitions ahead end.
    pub runway_until: Moment,
    /// How long that is from now.
    pub runway_seconds: i64,
    /// How many periods ahead are missing at the moment.
    pub missing: i64,
    /// Its partitions, in order.
    pub partitions: Vec<Listed>,
    /// Those that were taken out.
    pub detached: Vec<Detached>,
}

/// One partition.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Partition))]
pub struct Listed {
    /// Its name.
    pub partition: String,
    /// From here on; none without a lower end.
    pub from: Option<String>,
    /// Up to but not including this.
    pub to: Option<String>,
    /// past, current, ahead, expired, detach pending.
    pub state: String,
    /// Rows by the last statistics.
    pub rows: i64,
    /// Bytes with indexes.
    pub bytes: i64,
}

/// One partition that is no longer part of its table.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = DetachedPartition))]
pub struct Detached {
    /// Its name.
    pub partition: String,
    /// From here on.
    pub from: String,
    /// Up to but not including this.
    pub to: String,
    /// Since when it is out; none while it is about to.
    pub detached_at: Option<Moment>,
    /// Whether it is to be dropped now.
    pub due: bool,
}

/// Every policy's partitions; with a table or policy named, only those.
pub async fn list(connection: &mut PgConnection, only: Option<&str>) -> Result<Vec<Listing>> {
    let mut listings = Vec::new();
    for (stored, policy) in policies(connection, only).await? {
        listings.push(one(connection, &stored, &policy).await?);
    }
    Ok(listings)
}

/// The names of the policies that look after partitions, in order.
pub async fn names(connection: &mut PgConnection) -> Result<Vec<String>> {
    let mut names: Vec<String> = policy::store::all(connection)
        .await?
        .into_iter()
        .filter(|stored| stored.kind == Kind::Partition && stored.is_active())
        .map(|stored| stored.name)
        .collect();
    names.sort();
    Ok(names)
}

/// The active partition policies; with a table or policy named, only those.
pub(crate) async fn policies(connection: &mut PgConnection, only: Option<&str>) -> Result<Vec<(Stored, Partition)>> {
    let meant = match only {
        Some(typed) => catalog::table(connection, typed).await.ok().map(|table| table.oid),
        None => None,
    };
    let mut found = Vec::new();
    for stored in policy::store::all(connection).await? {
        if stored.kind != Kind::Partition || !stored.is_active() {
            continue;
        }
        let Policy::Partition(policy) = stored.policy()? else { continue };
        let matches = match only {
            None => true,
            Some(name) if stored.name == name => true,
            Some(_) => meant.is_some() && catalog::table(connection, &policy.table).await.ok().map(|t| t.oid) == meant,
        };
        if matches {
            found.push((stored, policy));
        }
    }
    match only {
        Some(name) if found.is_empty() => Err(Error::usage(format!("no active partition policy looks after {name}"))
            .with_hint("`ebb policy list` shows the policies; a table gets one with `ebb partition adopt`")),
        _ => Ok(found),
    }
}

async fn one(connection: &mut PgConnection, stored: &Stored, policy: &Partition) -> Result<Listing> {
    let on = partitioned(connection, policy).await?;
    let look = store::look(connection, policy, &on).await?;
    let keep = policy.keep.map(|keep| keep.to_interval());
    let bounds = store::bounds(connection, on.table.oid, &on.kind, policy.zone.name(), keep).await?;
    let leaving = store::leaving(connection, policy, &on).await?;
    let (now, until) = (look.now.to_jiff(), look.runway_until.to_jiff());
    let open = |bound: Option<String>| bound.filter(|bound| !bound.contains("infinity"));
    Ok(Listing {
        policy: stored.name.clone(),
        table: on.table.relation.label(),
        runway_until: until.into(),
        runway_seconds: (until.as_second() - now.as_second()).max(0),
        missing: look.missing,
        partitions: bounds
            .into_iter()
            .map(|b| Listed {
                partition: crate::pg::Relation::new(b.schema_name, b.table_name).label(),
                from: open(b.lower_bound),
                to: open(b.upper_bound),
                state: b.state,
                rows: b.rows,
                bytes: b.bytes,
            })
            .collect(),
        detached: leaving
            .into_iter()
            .filter(|leaving| !leaving.attached)
            .map(|leaving| Detached {
                partition: leaving.name().map_or(leaving.relation, |name| name.label()),
                from: leaving.lower_bound,
                to: leaving.upper_bound,
                detached_at: leaving.detached_at,
                due: leaving.due,
            })
            .collect(),
    })
}

/// What upkeep would say to the server now.
pub fn statements(listing: &Listing) -> Vec<String> {
    let mut sql = Vec::new();
    if listing.missing > 0 {
        sql.push(format!("SELECT ebb.ensure_partitions({});", crate::pg::Literal(&listing.policy)));
    }
    for p in listing.partitions.iter().filter(|p| ["expired", "detach pending"].contains(&p.state.as_str())) {
        let how = if p.state == "expired" { "CONCURRENTLY" } else { "FINALIZE" };
        sql.push(format!("ALTER TABLE {} DETACH PARTITION {} {how};", listing.table, p.partition));
        sql.push(format!("DROP TABLE {};", p.partition));
    }
    sql.extend(listing.detached.iter().filter(|gone| gone.due).map(|gone| format!("DROP TABLE {};", gone.partition)));
    sql
}
