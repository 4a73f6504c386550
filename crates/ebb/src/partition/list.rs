//! What `ebb partition list` shows: the partitions of every policy's table, and those that wait outside of it.

use serde::Serialize;
use sqlx::PgConnection;

use super::store::Leaving;
use super::{partitioned, store};
use crate::audit::Moment;
use crate::pg::{Literal, Relation, catalog};
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
    /// Where its column's type ends, and partitions with it: an integer in January 2038. None where that is no matter.
    pub type_ends: Option<Moment>,
    /// Its partitions, in order.
    pub partitions: Vec<Listed>,
    /// Those that were taken out.
    pub detached: Vec<Detached>,
    #[serde(skip)]
    statements: Vec<String>,
}

impl Listing {
    /// In how many days its column's type ends, where that is in sight: partitions reach it, or it is less than three years.
    pub fn type_ends_in(&self) -> Option<i64> {
        const IN_SIGHT: i64 = 3 * 365;
        let ends = self.type_ends?;
        let further = (ends.micros() - self.runway_until.micros()) / 1_000_000;
        let days = (self.runway_seconds + further) / 86_400;
        (days < IN_SIGHT || self.runway_until >= ends).then_some(days)
    }
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
    /// Whether all of it is past `keep`, also while its detach is pending.
    #[serde(skip)]
    pub expired: bool,
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

/// Every policy's partitions; with a table or policy named, only those. A policy that cannot be looked at hides no other.
pub async fn list(connection: &mut PgConnection, only: Option<&str>) -> Result<Vec<Listing>> {
    let (listings, broken) = list_all(connection, only).await?;
    match broken.into_iter().next() {
        Some((_, error)) if only.is_some() => Err(error),
        _ => Ok(listings),
    }
}

/// The same, with the policies that cannot be looked at and why.
pub async fn list_all(
    connection: &mut PgConnection,
    only: Option<&str>,
) -> Result<(Vec<Listing>, Vec<(String, Error)>)> {
    let (mut listings, mut broken) = (Vec::new(), Vec::new());
    for (stored, policy) in policies(connection, only).await? {
        match one(connection, &stored, &policy).await {
            Ok(listing) => listings.push(listing),
            Err(error) if error.is_config() || error.is_usage() => broken.push((stored.name, error)),
            Err(error) => return Err(error),
        }
    }
    Ok((listings, broken))
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
    let statements = written(&stored.name, &on.table.relation, look.missing, &bounds, &leaving);
    Ok(Listing {
        statements,
        policy: stored.name.clone(),
        table: on.table.relation.label(),
        runway_until: until.into(),
        runway_seconds: (until.as_second() - now.as_second()).max(0),
        missing: look.missing,
        type_ends: look.type_ends.map(|ends| ends.to_jiff().into()),
        partitions: bounds
            .into_iter()
            .map(|b| Listed {
                partition: b.relation().label(),
                from: open(b.lower_bound),
                to: open(b.upper_bound),
                state: b.state,
                expired: b.expired,
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

/// What upkeep would say to the server now. A partition that is out is left to upkeep itself, which asks rows and holds once
/// more before it drops one, and records it.
pub fn statements(listing: &Listing) -> &[String] {
    &listing.statements
}

fn written(policy: &str, table: &Relation, missing: i64, bounds: &[store::Bounds], leaving: &[Leaving]) -> Vec<String> {
    let mut sql = Vec::new();
    let ends = bounds.iter().filter(|one| one.pending);
    sql.extend(ends.map(|one| format!("ALTER TABLE {table} DETACH PARTITION {} FINALIZE;", one.relation())));
    if missing > 0 {
        sql.push(format!("SELECT ebb.ensure_partitions({});", Literal(policy)));
    }
    let left_to_it =
        format!("left to `ebb partition maintain {}`: it looks at rows and holds again, and records it", table.label());
    for one in bounds.iter().filter(|one| one.expired) {
        let (partition, label) = (one.relation(), one.relation().label());
        let edge = |bound: &Option<String>| Literal(bound.as_deref().unwrap_or_default()).to_string();
        sql.push(format!(
            "INSERT INTO ebb.detached (relid, policy, parent, relation, lower_bound, upper_bound) \
             VALUES ({}::regclass, {}, {}, {}, {}, {}) ON CONFLICT (relid) DO NOTHING;",
            Literal(&partition.to_string()),
            Literal(policy),
            Literal(&table.label()),
            Literal(&label),
            edge(&one.lower_bound),
            edge(&one.upper_bound)
        ));
        if !one.pending {
            sql.push(format!("ALTER TABLE {table} DETACH PARTITION {partition} CONCURRENTLY;"));
        }
        sql.push(format!("-- dropping {label} is {left_to_it}"));
    }
    let due = leaving.iter().filter(|one| one.due).filter_map(Leaving::name);
    sql.extend(due.map(|name| format!("-- dropping {} is {left_to_it}", name.label())));
    sql
}
