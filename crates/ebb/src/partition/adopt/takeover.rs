//! A table that is partitioned already needs no adoption, only a policy: taken from what was asked for and, where
//! pg_partman looks after it, from its settings. Invariant: at any moment one of the two looks after the table.

use serde_json::json;
use sqlx::{AssertSqlSafe, PgConnection};

use super::{Request, policy_of, policy_taken, refuse_policy};
use crate::partition::store::{self, Partman};
use crate::partition::{partitioned_by, store::Shape};
use crate::pg::{Database, Ident, Literal, Relation, catalog};
use crate::policy::{self, Kind, Spec};
use crate::{Error, Result};

/// What looking after a table from now on comes to.
#[derive(Debug, Clone)]
pub struct TakeOver {
    /// The table.
    pub table: String,
    /// The policy's name.
    pub policy: String,
    /// Its keys, for ebb.toml.
    pub spec: Spec,
    /// What ends pg_partman's work on it, where it does any.
    pub ends: Option<String>,
    /// What pg_partman did, in words.
    pub partman: Option<String>,
}

/// Looks whether a table is partitioned, and what its policy would be; none for an ordinary table. Changes nothing.
/// `ahead` and `keep` are those of pg_partman unless they were given.
pub async fn take_over(
    connection: &mut PgConnection,
    request: &Request,
    ahead: Option<u64>,
) -> Result<Option<TakeOver>> {
    let table = catalog::table(connection, &request.table).await?;
    let column = catalog::column(connection, &table.relation, table.oid, &request.column).await?;
    let unit = request.unit_word();
    let shape: Shape = store::partitioned(connection, table.oid, column.name.as_str(), unit).await?;
    if shape.relkind != "p" {
        return Ok(None);
    }
    if !request.guard.is_empty() || request.move_foreign_keys {
        let label = table.relation.label();
        return Err(Error::usage(format!("{label} is partitioned already: no key is guarded or moved on the way"))
            .with_hint("leave --guard and --move-foreign-keys out"));
    }
    let partman = store::partman(connection, &table.relation).await?;
    let mut spec = Spec::new();
    spec.insert("table".into(), table.relation.label().into());
    spec.insert("column".into(), column.name.as_str().into());
    if let Some(unit) = unit {
        spec.insert("unit".into(), unit.into());
    }
    let by = request.by.as_str();
    if let (Some(partman), None) = (&partman, ahead)
        && !store::is_period(connection, &partman.interval, by).await.unwrap_or(false)
    {
        return Err(Error::usage(format!(
            "pg_partman makes partitions of {} for {}, {} ahead, which is not so many periods of a {by}",
            partman.interval,
            table.relation.label(),
            partman.premake
        ))
        .with_hint("name its own period with --by, or say how many of yours are to exist: --ahead"));
    }
    spec.insert("by".into(), by.into());
    let premake = partman.as_ref().map(|partman| u64::from(partman.premake.unsigned_abs()).max(1));
    spec.insert("ahead".into(), json!(ahead.or(premake).unwrap_or(request.ahead)));
    let keep = match (&request.keep, &partman) {
        (Some(keep), _) => Some(keep.to_string()),
        (None, Some(partman)) => retention(connection, partman).await?,
        (None, None) => None,
    };
    if let Some(keep) = keep {
        spec.insert("keep".into(), keep.into());
        // pg_partman leaves the table behind unless told otherwise.
        if request.keep.is_none() && partman.as_ref().is_some_and(|partman| partman.keeps_tables) {
            spec.insert("expired".into(), "detach".into());
        }
    }
    if request.zone != "UTC" {
        spec.insert("zone".into(), request.zone.clone().into());
    }
    let policy = request.policy_name(&table.relation);
    partitioned_by(connection, &policy_of(&policy, &spec)?).await?;
    if let Some(whose) = policy_taken(connection, &policy, &table.relation.label()).await? {
        return Err(refuse_policy(&policy, &whose));
    }
    // What pg_partman said before it was taken over from is in the policy by now.
    let unsaid = |is_given: bool| !is_given && partman.is_none();
    let unsaid = [("ahead", unsaid(ahead.is_some())), ("keep", unsaid(request.keep.is_some()))];
    let unsaid: Vec<&str> = unsaid.into_iter().filter(|(_, is_unsaid)| *is_unsaid).map(|(key, _)| key).collect();
    let spec = standing(connection, &policy, spec, &unsaid, &table.relation.label()).await?;
    let own = |partman: &Partman| Relation::new(&partman.schema, "part_config");
    let ends = partman.as_ref().map(|partman| {
        format!(
            "UPDATE {} SET {} = 'off' WHERE parent_table = {}",
            own(partman),
            Ident::new("automatic_maintenance"),
            Literal(&partman.parent_table)
        )
    });
    let words = partman.map(|partman| {
        let keeps = partman.retention.map_or("for ever".to_owned(), |retention| format!("for {retention}"));
        format!(
            "pg_partman makes partitions of {}, {} ahead, and keeps them {keeps}",
            partman.interval, partman.premake
        )
    });
    Ok(Some(TakeOver { table: table.relation.label(), policy, spec, ends, partman: words }))
}

/// A table has one policy that looks after it: another, or the same with other keys, is not what was asked for. The same is
/// gone on with, as it stands: who was killed before it was in ebb.toml asks again.
async fn standing(connection: &mut PgConnection, name: &str, spec: Spec, unsaid: &[&str], label: &str) -> Result<Spec> {
    let stored = policy::store::all(connection).await?;
    for other in stored.into_iter().filter(|other| other.kind == Kind::Partition && other.is_active()) {
        let typed = other.spec.get("table").and_then(|table| table.as_str()).unwrap_or_default();
        let same =
            typed == label || catalog::table(connection, typed).await.is_ok_and(|it| it.relation.label() == label);
        if !same {
            continue;
        }
        let asked = |key: &&str| !unsaid.contains(key) && other.spec.get(*key) != spec.get(*key);
        if other.name != name || ["column", "unit", "by", "ahead", "keep", "zone"].iter().any(asked) {
            return Err(Error::refused(format!("policy {} looks after {label} already", other.name))
                .with_hint("change that one in ebb.toml, and: ebb apply"));
        }
        return Ok(other.spec);
    }
    Ok(spec)
}

/// How long pg_partman keeps a partition, as a policy says it.
async fn retention(connection: &mut PgConnection, partman: &Partman) -> Result<Option<String>> {
    let Some(retention) = &partman.retention else { return Ok(None) };
    let sql = format!(
        "SELECT (extract(year FROM i) * 12 + extract(month FROM i))::int8, extract(day FROM i)::int8, \
         i = make_interval(months => (extract(year FROM i) * 12 + extract(month FROM i))::int, days => extract(day FROM i)::int) \
         FROM (SELECT {}::interval AS i) x",
        Literal(retention)
    );
    let unread = || {
        Error::refused(format!("pg_partman keeps partitions for {retention:?}, which is not in months or days"))
            .with_hint("say how long: --keep")
    };
    let read = sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await;
    let (months, days, whole): (i64, i64, bool) = read.map_err(|_| unread())?;
    match (months, days, whole) {
        (months, 0, true) if months > 0 => Ok(Some(format!("{months}mo"))),
        (0, days, true) if days > 0 => Ok(Some(format!("{days}d"))),
        _ => Err(unread()),
    }
}

/// Makes it so: pg_partman stops and the policy starts in one transaction.
pub async fn take_it_over(database: &Database, taken: &TakeOver, by: &str) -> Result<()> {
    let mut tx = database.read().await?;
    if let Some(ends) = &taken.ends {
        sqlx::raw_sql(AssertSqlSafe(ends.clone())).execute(&mut *tx).await?;
    }
    policy::store::lock(&mut tx).await?;
    if let Some(whose) = policy_taken(&mut tx, &taken.policy, &taken.table).await? {
        return Err(refuse_policy(&taken.policy, &whose));
    }
    let put = policy::store::Put {
        kind: Kind::Partition,
        name: &taken.policy,
        spec: &taken.spec,
        enabled: true,
        stopped: None,
        source: policy::store::Source::File,
        by,
    };
    policy::store::put(&mut tx, put).await?;
    tx.commit().await?;
    Ok(())
}
