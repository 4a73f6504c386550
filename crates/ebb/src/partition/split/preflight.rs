//! What stands in the way of a split, all of it at once, each with the way out. Invariant: looking changes nothing.

use sqlx::PgConnection;

use super::Request;
use super::plan::{MANY, Plan, Source, compose};
use super::store::{self, Candidate, Cut};
use crate::partition::adopt::{Findings, store as adoptions, subject};
use crate::partition::{Partitioned, list, partitioned, rollback};
use crate::pg::{Relation, catalog};
use crate::policy::Partition;
use crate::{Error, Result};

/// More parts than this are refused: a row of 1970 is no reason for hundreds of tables.
pub(crate) const MOST: usize = 500;

/// What was found, and what would be done.
#[derive(Debug)]
pub struct Preflight {
    /// The table.
    pub table: String,
    /// The partition that would be split.
    pub partition: String,
    /// Its rows by the last statistics.
    pub rows: i64,
    /// Its size without indexes: about what the parts need besides, until `finish`.
    pub bytes: i64,
    /// What is in the way.
    pub findings: Findings,
    /// The plan; none while something is in the way.
    pub plan: Option<Plan>,
}

/// Looks at everything that splitting would meet. Changes nothing.
pub async fn preflight(connection: &mut PgConnection, request: &Request) -> Result<Preflight> {
    let table = catalog::table(connection, &request.table).await?;
    let policies = list::policies(connection, Some(&request.table)).await?;
    let Some((_, policy)) = policies.into_iter().next() else {
        return Err(Error::usage(format!("no active partition policy looks after {}", request.table)));
    };
    let on = partitioned(connection, &policy).await?;
    debug_assert_eq!(on.table.oid, table.oid);
    let (of, periods) = chosen(connection, request, &policy, &on).await?;
    let mut findings = Findings::default();
    if periods.len() > MOST {
        findings.refuse(
            format!("the oldest row would make more than {MOST} parts"),
            "let the old ones share one part: --since YYYY-MM-DD",
        );
    }
    if periods.len() > MANY {
        findings.change(
            format!(
                "{} parts are put in place under one lock, which takes the longer the more there are; beyond {} ms it is given up",
                periods.len(),
                request.max_lock.map_or(200, |most| most.as_millis())
            ),
            "210 parts took 0.5 to 2 s, 48 about 0.1 s: cut it in rounds, first with --since a day that leaves 48 parts, \
             then `ebb partition finish`, then the older part; or allow a longer lock (--max-lock 2s)",
        );
    }
    if of.relkind != "r" {
        findings.refuse(format!("{} is no ordinary table", of.relation().label()), "split a partition that is one");
    }
    if of.pending {
        findings.refuse(
            format!("a detach of {} is pending", of.relation().label()),
            format!("ALTER TABLE {} DETACH PARTITION {} FINALIZE", on.table.relation, of.relation()),
        );
    }
    let label = on.table.relation.label();
    if let Some(adoption) = adoptions::find(connection, &label).await?
        && rollback::is_begun(connection, &adoption).await?
    {
        findings.refuse(
            format!("a rollback of {label} was begun, and the parts would have what it builds for itself"),
            format!("go on with it: ebb partition rollback {label}; or leave it adopted: ebb partition adopt {label} … as before"),
        );
    }
    for (what, name, owner) in store::obstacles(connection, on.table.oid, of.oid).await? {
        refuse(&mut findings, &what, &name, &owner);
    }
    let referring = store::referring(connection, on.table.oid).await?;
    for key in &referring {
        findings.change(
            format!(
                "foreign key {} of {} lets go in the transaction of the swap and is proven again after it",
                key.name,
                key.table().label()
            ),
            "nothing to do",
        );
    }
    let hindrances = store::hindrances(connection, of.oid).await?;
    if !hindrances.late.is_empty() {
        findings.change(
            format!(
                "{} may be checked late (DEFERRABLE), so writers cannot write to the parts themselves: they are put in place in a moment without a change that is not applied to them",
                hindrances.late.join(", ")
            ),
            "nothing to do, unless somebody writes all the time: let writers rest for a second then",
        );
    }
    let key = store::key(connection, on.table.oid).await?;
    if key.is_none() {
        findings.refuse(
            format!("{} has no key that tells its rows apart", on.table.relation.label()),
            "a primary key, or a unique index on columns that are NOT NULL, without condition, expression or DEFERRABLE",
        );
    }
    let plan = match key {
        Some(key) if findings.refusals.is_empty() => {
            let (column_type, owner) = store::column_type(connection, on.table.oid, &on.column).await?;
            let source = Source {
                table: on.table.relation.clone(),
                partition: of.relation(),
                partition_oid: of.oid,
                column: on.column.clone(),
                kind: on.kind.clone(),
                column_type,
                owner,
                key,
                columns: store::columns(connection, on.table.oid).await?,
                indexes: subject::indexes(connection, i64::from(on.table.oid), on.column.as_str()).await?,
                local_indexes: store::local_indexes(connection, of.oid).await?,
                foreign_keys: subject::foreign_keys(connection, i64::from(on.table.oid)).await?,
                old_foreign_keys: subject::foreign_keys(connection, of.oid).await?,
                referring,
                parent_oid: i64::from(on.table.oid),
                hindrances,
            };
            Some(compose(&source, &periods)?)
        }
        _ => None,
    };
    Ok(Preflight {
        table: on.table.relation.label(),
        partition: of.relation().label(),
        rows: of.rows,
        bytes: of.bytes,
        findings,
        plan,
    })
}

/// The partition that was named, or the oldest that has more than one period; with the parts it is cut into.
async fn chosen(
    connection: &mut PgConnection,
    request: &Request,
    policy: &Partition,
    on: &Partitioned,
) -> Result<(Candidate, Vec<store::Period>)> {
    let by = policy.by.as_str();
    let named = match &request.partition {
        Some(typed) => Some(catalog::table(connection, typed).await?.relation),
        None => None,
    };
    for candidate in store::candidates(connection, on.table.oid, &on.kind, by).await? {
        let relation: Relation = candidate.relation();
        if candidate.upper_bound == "infinity" || named.as_ref().is_some_and(|named| *named != relation) {
            continue;
        }
        let oldest = store::oldest(connection, &relation, &on.column).await?;
        let cut = Cut {
            parent: on.table.oid,
            kind: &on.kind,
            by,
            zone: policy.zone.name(),
            oldest,
            since: request.since.as_deref(),
        };
        let periods = store::parts(connection, &candidate, cut).await?;
        if periods.is_empty() {
            return Err(Error::refused(format!("the oldest row of {} has no finite time", relation.label()))
                .with_hint("let such rows share one part: --since YYYY-MM-DD"));
        }
        if periods.len() > 1 {
            return Ok((candidate, periods));
        }
    }
    let what = match named {
        Some(named) => format!(
            "{} is not a partition of {} that reaches over several periods",
            named.label(),
            on.table.relation.label()
        ),
        None => {
            format!("every partition of {} is one {by} already: there is nothing to split", on.table.relation.label())
        }
    };
    Err(Error::usage(what).with_hint(format!("`ebb partition list {}` shows them", on.table.relation.label())))
}

fn refuse(found: &mut Findings, what: &str, name: &str, of: &str) {
    match what {
        "foreign key" => found.refuse(
            format!("foreign key {name} of {of} references this table: a partition that it points into cannot be detached"),
            "drop the foreign key before and add it after",
        ),
        "trigger" => found.refuse(
            format!("trigger {name} belongs to {of} alone, and the parts would not have it"),
            "create it on the partitioned table, or drop it",
        ),
        "publication" => found.refuse(
            format!("publication {name} publishes whatever is in its reach: the parts would be sent as tables that no subscriber has"),
            "publish the table by name, with publish_via_partition_root, while it is split",
        ),
        _ => found.refuse(
            format!("{of} belongs to {name}, and you may not act as that role"),
            format!("connect as {name}, or: GRANT {name} TO CURRENT_USER"),
        ),
    }
}
