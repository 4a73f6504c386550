//! What is wrong with a policy by what the database knows. Changes nothing.

use std::sync::Arc;

use sqlx::PgConnection;

use super::Engine;
use crate::audit::SubjectKey;
use crate::expire::sandbox::SandboxState;
use crate::pg::{self, catalog};
use crate::policy::{self, Expire, Kind, Policy, Retain, Wanted};
use crate::retain::{self, MissingColumn};
use crate::{Error, Result, expire, partition, resources};

impl Engine {
    /// What is wrong with the wanted policies by what the database knows: (position in `wanted`, what is wrong).
    pub async fn check_all(&self, wanted: &[Wanted]) -> Result<Vec<(usize, Error)>> {
        self.check_with(wanted, &[]).await
    }

    /// The same as if columns that are missing were there.
    pub async fn check_with(&self, wanted: &[Wanted], missing: &[MissingColumn]) -> Result<Vec<(usize, Error)>> {
        let mut tx = self.database.read().await?;
        let installed = pg::schema_version(&mut tx).await?.is_some();
        tx.commit().await?;
        let planned = if installed { None } else { Some(self.plan(wanted).await?) };
        let mut wrong = Vec::new();
        for (position, want) in wanted.iter().enumerate() {
            // A transaction each: after an error in SQL the next policy would only hear of that.
            let mut tx = self.database.read().await?;
            for column in missing.iter().filter(|column| column.policy == want.name) {
                column.add(&mut tx).await?;
            }
            let checked = match &planned {
                None => self.check(&mut tx, &want.policy, Some(wanted)).await,
                Some(plan) => {
                    check_names(&mut tx, &want.policy).await.and_then(|()| plan.refusal(&want.name).map_or(Ok(()), Err))
                }
            };
            match checked {
                Ok(()) => {}
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => wrong.push((position, error)),
            }
        }
        Ok(wrong)
    }

    /// The sandboxes that the wanted policies should have; missing ones are made where asked to and allowed to.
    pub async fn sandboxes(&self, wanted: &[Wanted], create: bool) -> Result<Vec<SandboxState>> {
        let mut states = Vec::new();
        for want in wanted {
            let mut tx = self.database.read().await?;
            let found = match &want.policy {
                Policy::Expire(expire) if expire.enabled => expire::sandbox::look(&mut tx, expire, create).await?,
                _ => None,
            };
            states.extend(found);
            tx.commit().await?;
        }
        Ok(states)
    }

    /// Everything that can be wrong with a policy only the database knows.
    pub(crate) async fn check(
        &self,
        connection: &mut PgConnection,
        policy: &Policy,
        wanted: Option<&[Wanted]>,
    ) -> Result<()> {
        let checked = async {
            self.check_besides(&mut *connection, policy, wanted, true).await?;
            match policy {
                Policy::Expire(expire) => self.check_expire(connection, expire).await,
                Policy::Retain(policy) => self.check_retain(connection, policy).await,
                _ => Ok(()),
            }
        };
        checked.await.map_err(|error| error.context(format!("policy {}", policy.name())))
    }

    /// What a policy needs besides rows that can go: a partitioned table, a store that answers, sinks, keys. Before the schema is
    /// there, as much of it as can be asked then.
    pub(crate) async fn check_besides(
        &self,
        connection: &mut PgConnection,
        policy: &Policy,
        wanted: Option<&[Wanted]>,
        installed: bool,
    ) -> Result<()> {
        match policy {
            Policy::Partition(policy) if installed => partition::partitioned(connection, policy).await.map(|_| ()),
            Policy::Partition(policy) => {
                let table = catalog::table(connection, &policy.table).await?;
                catalog::column(connection, &table.relation, table.oid, &policy.column).await.map(|_| ())
            }
            Policy::Resources(resources) if installed => resources::check(connection, &self.database, resources).await,
            Policy::Resources(resources) => resources::answers(&self.database, resources).await,
            Policy::Schedule(schedule) => self.check_sink(connection, &schedule.sink, wanted).await,
            Policy::Retain(policy) => self.check_outside(connection, policy, wanted).await,
            _ => Ok(()),
        }
    }

    /// A sink that is named is one that the same file has or, for a change at runtime, the database.
    async fn check_sink(&self, connection: &mut PgConnection, sink: &str, wanted: Option<&[Wanted]>) -> Result<()> {
        let sinks: Vec<String> = match wanted {
            Some(wanted) => {
                wanted.iter().filter(|want| want.kind == Kind::Sink).map(|want| want.name.clone()).collect()
            }
            None => {
                let stored = policy::store::all(connection).await?.into_iter();
                stored.filter(|stored| stored.kind == Kind::Sink && stored.enabled).map(|stored| stored.name).collect()
            }
        };
        if sinks.iter().any(|known| known == sink) {
            return Ok(());
        }
        let error = Error::config(format!("there is no sink {sink:?}"));
        Err(match policy::nearest(sink, sinks.iter().map(String::as_str)) {
            Some(near) => error.with_hint(policy::did_you_mean(near)),
            None => error.with_hint(format!("add [sinks.{sink}]")),
        })
    }

    /// What a policy over subjects needs outside of their tables.
    async fn check_outside(
        &self,
        connection: &mut PgConnection,
        policy: &Retain,
        wanted: Option<&[Wanted]>,
    ) -> Result<()> {
        if let Some(warning) = policy.subjects().and_then(|subjects| subjects.warning.as_ref()) {
            let named = self.check_sink(connection, &warning.notify, wanted).await;
            named.map_err(|error| error.at_key("notify"))?;
            retain::link::Place::of(warning.restore_url.as_deref(), self.public_url.as_deref())?;
        }
        if policy.subjects().is_some_and(|subjects| subjects.snapshot_for.is_some()) && self.keys.period.is_none() {
            return Err(Error::config("a sealed snapshot needs keys outside the database")
                .with_hint("set period_keys = \"ebb-period-keys\" in [audit]: a directory that no backup has")
                .at_key("snapshot"));
        }
        Ok(())
    }

    async fn check_retain(&self, connection: &mut PgConnection, policy: &Retain) -> Result<()> {
        match retain::as_expire(connection, policy).await? {
            Some(expire) => self.check_expire(connection, &expire).await,
            None => retain::check(connection, policy).await,
        }
    }

    async fn check_expire(&self, connection: &mut PgConnection, expire: &Expire) -> Result<()> {
        let key = self.keys.subject()?;
        let table = catalog::table(connection, &expire.table).await.map_err(|error| error.at_key("table"))?;
        let leaves = catalog::leaves(connection, table.oid).await?;
        let role = expire.role.as_ref().map(pg::Ident::new);
        expire::store::as_role(connection, role.as_ref()).await.map_err(|error| error.at_key("role"))?;
        expire::store::back_from_role(connection, role.as_ref()).await?;
        sqlx::raw_sql("SAVEPOINT ebb_check").execute(&mut *connection).await?;
        let as_written = prepare_all(connection, expire, &table, &leaves, key.clone()).await;
        match as_written {
            // Its role may get its grants later, from `ebb doctor`: then it is checked as whoever asks.
            Err(error) if expire.role.is_some() && error.sqlstate().as_deref() == Some("42501") => {
                sqlx::raw_sql("ROLLBACK TO SAVEPOINT ebb_check").execute(&mut *connection).await?;
                let unbound = Expire { role: None, ..expire.clone() };
                prepare_all(connection, &unbound, &table, &leaves, key).await
            }
            checked => checked,
        }
    }
}

async fn prepare_all(
    connection: &mut PgConnection,
    policy: &Expire,
    table: &catalog::Table,
    leaves: &[catalog::Leaf],
    key: Option<Arc<SubjectKey>>,
) -> Result<()> {
    for leaf in leaves {
        expire::Sweep::prepare(connection, Arc::new(policy.clone()), table, leaf, key.clone()).await?;
    }
    Ok(())
}

/// What can be checked before the schema is there, whose clock a sweep asks.
async fn check_names(connection: &mut PgConnection, policy: &Policy) -> Result<()> {
    let Policy::Expire(expire) = policy else { return Ok(()) };
    let checked = async {
        let table = catalog::table(connection, &expire.table).await.map_err(|error| error.at_key("table"))?;
        let column = catalog::column(connection, &table.relation, table.oid, &expire.column).await;
        column.map_err(|error| error.at_key("column"))
    };
    checked.await.map(|_| ()).map_err(|error| error.context(format!("policy {}", expire.name)))
}
