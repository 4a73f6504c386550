//! What there is to do: policies become units. A node reads it again and again, so everything that all policies need of the
//! catalog is looked up together; only a table that is partitioned costs statements of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::Keys;
use crate::audit::SubjectKey;
use crate::audit::work::SealWork;
use crate::expire::work::{self as expire_work, ExpireWork};
use crate::partition::work::PartitionWork;
use crate::pg::Database;
use crate::pg::catalog::{self, Leaf, Leaves, Table};
use crate::policy::{self, Expire, Keep, Kind, Pacing, Policy, Retain, Spec, Stored};
use crate::resources::work::HoldersWork;
use crate::retain::work::Outside;
use crate::schedule::{self, Dispatch, Setup};
use crate::spine::service::Service;
use crate::spine::unit::{ChoreKind, Unit};
use crate::spine::work::{Agenda, Roster, Work, stop};
use crate::{Error, Result, gate, resources, retain};

/// Turns policies into units.
pub(super) struct Duties {
    pub(super) keys: Keys,
    pub(super) public_url: Option<Arc<str>>,
    pub(super) events: Arc<Dispatch>,
}

/// A policy with a table, and what it comes to.
enum Wants {
    /// Rows of the table, once they are due.
    Expire(Expire),
    /// Subjects, whose root rows are in it.
    Subjects(Retain),
}

impl Wants {
    fn table(&self) -> &str {
        match self {
            Wants::Expire(policy) => &policy.table,
            Wants::Subjects(policy) => &policy.table,
        }
    }
}

impl Roster for Duties {
    fn agenda<'a>(&'a self, database: &'a Database, node: &'a str) -> BoxFuture<'a, Result<Agenda>> {
        self.read(database, node).boxed()
    }

    fn observe<'a>(&'a self, database: &'a Database) -> BoxFuture<'a, Result<()>> {
        async move {
            self.destroy_keys(database).await;
            resources::observe(database).await?;
            retain::observe(database).await?;
            crate::status::observe(database).await?;
            schedule::observe(database).await
        }
        .boxed()
    }

    fn services(&self) -> Vec<Arc<dyn Service>> {
        vec![self.events.clone()]
    }
}

impl Duties {
    /// Each node for its own directory: what another destroyed elsewhere may still be here.
    async fn destroy_keys(&self, database: &Database) {
        if let Some(keys) = self.keys.period()
            && let Err(error) = retain::destroy_due(database, &keys).await
        {
            tracing::error!(error = %error, hint = error.hint(), "Cannot destroy period keys whose day has come");
        }
    }

    async fn read(&self, database: &Database, node: &str) -> Result<Agenda> {
        // Also for a node that does what is due and ends.
        self.destroy_keys(database).await;
        let mut tx = database.read().await?;
        let stored = policy::store::all(&mut tx).await?;
        schedule::follow(&mut tx, &stored).await?;
        gate::follow(&mut tx, &stored).await?;
        tx.commit().await?;
        let mut works: Vec<Arc<dyn Work>> = Vec::new();
        let (mut pacing, mut keep) = (Pacing::default(), Keep::default());
        let (mut sinks, mut events) = (Vec::new(), policy::Events::default());
        let (mut about_tables, mut partitioned, mut about_resources) = (Vec::new(), Vec::new(), Vec::new());
        let mut broken = Vec::new();
        let mut samples: HashMap<String, Vec<Value>> = HashMap::new();
        let mut tx = database.read().await?;
        for stored in stored.into_iter().filter(Stored::is_active) {
            match stored.policy() {
                Ok(Policy::Pacing(settings)) => pacing = settings,
                Ok(Policy::Keep(settings)) => keep = settings,
                Ok(Policy::Events(settings)) => events = settings,
                Ok(Policy::Sink(sink)) => sinks.push((sink, stored)),
                Ok(Policy::Once(_) | Policy::Schedule(_)) => {}
                Ok(Policy::Expire(policy)) => about_tables.push((stored, Wants::Expire(policy))),
                Ok(Policy::Retain(policy)) => {
                    if let Some((sink, warnings)) = retain::warn::samples(&policy) {
                        samples.entry(sink.to_owned()).or_default().extend(warnings);
                    }
                    match retain::as_expire(&mut tx, &policy).await {
                        Ok(Some(expire)) => about_tables.push((stored, Wants::Expire(expire))),
                        Ok(None) => about_tables.push((stored, Wants::Subjects(policy))),
                        Err(error) => broken.push((stored, error)),
                    }
                }
                Ok(Policy::Partition(policy)) => partitioned.push((stored, policy)),
                Ok(Policy::Resources(policy)) => about_resources.push((stored, policy)),
                Err(error) => broken.push((stored, error)),
            }
        }
        let own = own_tables(&keep)?;
        let of_policies = about_tables.iter().map(|(_, wants)| wants.table());
        let of_ebb = own.iter().map(|policy| policy.table.as_str()).chain(["resource", "holder", "audit"]);
        let named = catalog::named(&mut tx, of_policies.chain(of_ebb)).await?;
        let mut found = Vec::new();
        for (stored, wants) in about_tables {
            match named.table(&mut tx, wants.table()).await {
                Ok(table) => found.push((stored, wants, table)),
                Err(error) => broken.push((stored, error)),
            }
        }
        let mut swept = Vec::new();
        for policy in own {
            let table = named.own(&policy.table)?;
            swept.push((policy, table));
        }
        let oids: Vec<u32> =
            found.iter().map(|(.., table)| table.oid).chain(swept.iter().map(|(_, table)| table.oid)).collect();
        let leaves = catalog::leaves_of(&mut tx, &oids).await?;
        tx.commit().await?;

        let subject_key = here(self.keys.subject(), "Cannot read the subject key; policies that record rows fail here");
        for (stored, wants, table) in found {
            let units = match wants {
                Wants::Expire(policy) => expire(database, policy, &stored, table, &leaves, &subject_key).await,
                Wants::Subjects(policy) => {
                    let (subject_key, public_url) = (subject_key.clone(), self.public_url.clone());
                    let outside = Outside { subject_key, period_keys: self.keys.period(), public_url };
                    Ok(retain::work::units(policy, &stored, &table, &outside))
                }
            };
            match units {
                Ok(units) => works.extend(units),
                Err(error) => broken.push((stored, error)),
            }
        }
        for (stored, policy) in partitioned {
            match PartitionWork::find(database, policy, &stored).await {
                Ok(work) => works.push(Arc::new(work)),
                Err(error) => broken.push((stored, error)),
            }
        }
        for (stored, error) in broken {
            match error.is_config() {
                true => stop(database, &stored, node, &error).await?,
                false => return Err(error),
            }
        }
        self.events.follow(Setup { sinks, samples, events, keep: keep.events });
        for (policy, table) in swept {
            let leaves = leaves.of(table.oid)?;
            works.extend(sweeps(policy, None, table, leaves, &None));
        }
        if !about_resources.is_empty() {
            works.push(Arc::new(HoldersWork::new(named.own("holder")?.oid)));
        }
        let resource = named.own("resource")?;
        for (stored, policy) in about_resources {
            works.extend(resources::work::works(policy, &stored, database, resource.oid));
        }
        let audited = named.own("audit")?;
        works.push(Arc::new(retain::review::ReviewWork::new(audited.oid, self.keys.report_at())));
        let sealing = here(self.keys.sealing(), "Cannot read the signing key; this node does not seal the audit");
        if let Some((key, publish)) = sealing {
            works.push(Arc::new(SealWork::new(audited.oid, key, publish)));
        }
        Ok(Agenda { works, pacing })
    }
}

/// The units of an expire policy: its leaves, and for a partitioned table what goes as a whole.
async fn expire(
    database: &Database,
    policy: Expire,
    stored: &Stored,
    table: Table,
    leaves: &Leaves,
    subject_key: &Option<Arc<SubjectKey>>,
) -> Result<Vec<Arc<dyn Work>>> {
    let leaves = leaves.of(table.oid)?;
    if !table.partitioned {
        return Ok(sweeps(policy, Some(stored.clone()), table, leaves, subject_key));
    }
    let mut tx = database.read().await?;
    let whole = PartitionWork::of_expire(&mut tx, database, &policy, stored).await?;
    let gone_as_one = match &whole {
        Some(work) => work.whole(&mut tx).await?,
        None => Vec::new(),
    };
    tx.commit().await?;
    let mut works = sweeps(policy, Some(stored.clone()), table, leaves, subject_key);
    works.retain(|work| !gone_as_one.contains(&work.leaf()));
    works.extend(whole.map(|work| Arc::new(work) as Arc<dyn Work>));
    Ok(works)
}

/// A unit for each leaf of a table.
fn sweeps(
    policy: Expire,
    stored: Option<Stored>,
    table: Table,
    leaves: Vec<Leaf>,
    subject_key: &Option<Arc<SubjectKey>>,
) -> Vec<Arc<dyn Work>> {
    let name = stored.as_ref().map_or("keep".to_owned(), |stored| stored.name.clone());
    let shared = Arc::new(expire_work::Shared {
        policy: Arc::new(policy),
        stored,
        table,
        subject_key: subject_key.clone(),
        last_verdict: Mutex::new(None),
    });
    leaves
        .into_iter()
        .map(|leaf| {
            let unit = Unit { chore: ChoreKind::Expire, policy: name.clone(), leaf: leaf.relation.label() };
            Arc::new(ExpireWork { unit, leaf, shared: shared.clone() }) as Arc<dyn Work>
        })
        .collect()
}

/// What is wrong with this node's own files is said here and is no reason to stop a policy for every node.
fn here<T>(read: Result<Option<T>>, trouble: &str) -> Option<T> {
    read.unwrap_or_else(|error| {
        tracing::error!(error = %error, hint = error.hint(), "{trouble}");
        None
    })
}

/// Ebb cleans up after itself with the same chore.
fn own_tables(keep: &Keep) -> Result<Vec<Expire>> {
    let tables = [
        ("run", "started_at", Some(keep.runs.to_string()), Some("status <> 'running'")),
        ("sample", "at", Some(keep.samples.to_string()), None),
        ("node", "seen_at", Some("1d".to_owned()), None),
        ("once_key", "expires_at", None, None),
        ("snapshot_part", "until", None, None),
        ("snapshot", "until", None, None),
        ("resource", "dropped_at", Some(keep.tombstones.to_string()), Some("state = 'dropped'")),
        ("lineage_event", "received_at", Some(keep.lineage_event.to_string()), None),
    ];
    tables
        .into_iter()
        .map(|(table, column, older_than, filter)| {
            let mut spec = Spec::new();
            spec.insert("table".into(), table.into());
            spec.insert("column".into(), column.into());
            if let Some(term) = older_than {
                spec.insert("older_than".into(), term.into());
            }
            if let Some(filter) = filter {
                spec.insert("where".into(), filter.into());
            }
            match Policy::parse(Kind::Expire, "own", &spec)? {
                Policy::Expire(expire) => Ok(expire),
                _ => Err(Error::failed("an expire spec is an expire policy")),
            }
        })
        .collect()
}
