//! The engine: one database, the duties on it, the node that runs them. This is the only place that names every duty.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sqlx::PgConnection;

use crate::audit::{self, Destination, PeriodKeys, SigningKey, SubjectKey};
use crate::expire::sandbox::SandboxState;
use crate::once::Once;
use crate::pg::catalog;
use crate::pg::{self, Database, Migrated};
use crate::policy::{self, At, Change, Expire, Kind, Policy, Resources, Retain, Spec, Stored, Wanted};
use crate::retain::{self, Approval, Asked, Consent, Link, MissingColumn};
use crate::schedule::sink::{Sink, Surroundings};
use crate::schedule::{self, Dispatch, Events, Handlers};
use crate::spine::{Node, NodeOptions, Shutdown};
use crate::{Error, Result, expire, gate, partition, resources};

mod agenda;

use agenda::Duties;

/// Where the keys are that live outside the database. They are read when they are needed, so that a node that started
/// before `ebb apply` created them finds them by itself.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// Signs audit blocks.
    pub signing: Option<PathBuf>,
    /// Makes pseudonyms.
    pub subject: Option<PathBuf>,
    /// The directory with the keys of sealed snapshots.
    pub period: Option<PathBuf>,
    /// Where the latest seal goes; beside the signing key when absent.
    pub publish: Option<Destination>,
    /// When the audit is reviewed, in UTC; on Sundays at three when absent.
    pub report_at: Option<At>,
}

impl Keys {
    /// The signing key and where its seals go, when there is one.
    fn sealing(&self) -> Result<Option<(Arc<SigningKey>, Destination)>> {
        let Some(path) = self.signing.as_deref().filter(|path| path.exists()) else { return Ok(None) };
        let publish = self.publish.clone().unwrap_or_else(|| Destination::beside(path));
        Ok(Some((SigningKey::load(path)?.into(), publish)))
    }

    fn report_at(&self) -> At {
        const SUNDAY: At =
            At { weekday: Some(jiff::civil::Weekday::Sunday), time: jiff::civil::Time::constant(3, 0, 0, 0) };
        self.report_at.unwrap_or(SUNDAY)
    }

    pub(crate) fn period(&self) -> Option<PeriodKeys> {
        self.period.as_ref().map(PeriodKeys::at)
    }

    fn subject(&self) -> Result<Option<Arc<SubjectKey>>> {
        let Some(path) = self.subject.as_deref().filter(|path| path.exists()) else { return Ok(None) };
        Ok(Some(SubjectKey::load(path)?.into()))
    }
}

/// A look at the schema's version takes no longer.
const READY_WITHIN: Duration = Duration::from_secs(15);

/// Ebb on one database.
#[derive(Clone)]
pub struct Engine {
    database: Database,
    keys: Keys,
    handlers: Arc<Handlers>,
    surroundings: Arc<Surroundings>,
    public_url: Option<Arc<str>>,
}

impl Engine {
    /// An engine on an open database.
    pub fn new(database: Database, keys: Keys) -> Self {
        let surroundings = Arc::new(Surroundings::process());
        Self { database, keys, handlers: Arc::default(), surroundings, public_url: None }
    }

    /// Where people reach the pages of its nodes: the links in warnings lead there.
    pub fn reached_at(mut self, public_url: Option<&str>) -> Self {
        self.public_url = public_url.map(Into::into);
        self
    }

    /// Where its nodes find what sinks name: variables and files. Those of the process unless told otherwise.
    pub fn within(mut self, surroundings: Surroundings) -> Self {
        self.surroundings = Arc::new(surroundings);
        self
    }

    /// Delivers the events of a sink (`type = "handler"`) by a function of this program, on the nodes of this engine.
    pub fn on(mut self, sink: impl Into<String>, handler: impl Sink + 'static) -> Self {
        Arc::make_mut(&mut self.handlers).insert(sink.into(), Arc::new(handler));
        self
    }

    /// Events: `engine.events().schedule(&Event::new("mail", due, payload))`.
    pub fn events(&self) -> Events {
        Events::new(self.database.clone())
    }

    /// An engine without keys, for embedding: `Engine::connect("postgres://…")`.
    pub fn connect(url: &str) -> Result<Self> {
        let target = pg::Target::parse(url, None)?;
        Ok(Self::new(Database::open(target, 8, "ebb"), Keys::default()))
    }

    /// The same engine over connections of its own, so that one user of it cannot starve another.
    pub fn beside(&self, connections: u32, application_name: &str) -> Self {
        let database = Database::open(self.database.target().clone(), connections, application_name);
        Self { database, ..self.clone() }
    }

    /// The database underneath.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Where its keys are.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Claims in a namespace: `engine.once("orders").claim(key)`.
    pub fn once(&self, namespace: impl Into<String>) -> Once {
        Once::new(self.database.clone(), namespace)
    }

    /// Brings the `ebb` schema up to this version.
    pub async fn migrate(&self) -> Result<Migrated> {
        pg::migrate(&self.database).await
    }

    /// Makes sure that the schema is there and understood. As its owner this migrates; otherwise it names the command.
    pub async fn ready(&self) -> Result<()> {
        let looked = pg::answered(READY_WITHIN, async {
            let mut tx = self.database.read().await?;
            pg::require_writable(&mut tx).await?;
            let version = pg::schema_version(&mut tx).await?;
            let may: bool = match version {
                Some(version) if version >= pg::latest_version() => return Ok(None),
                None => pg::may_create_schema(&mut tx).await?,
                Some(_) => pg::owns_schema(&mut tx).await?,
            };
            tx.commit().await?;
            Ok(Some(may))
        });
        let Some(may) = looked.await? else { return Ok(()) };
        if !may {
            return Err(Error::refused("the ebb schema is missing or older than this binary")
                .with_hint("run `ebb migrate` as its owner"));
        }
        self.migrate().await?;
        Ok(())
    }

    /// A node on this engine.
    pub fn node(&self, options: NodeOptions, shutdown: Shutdown) -> Node {
        let events = Arc::new(Dispatch::new(self.handlers.clone(), self.surroundings.clone()));
        let duties = Duties { keys: self.keys.clone(), public_url: self.public_url.clone(), events };
        Node::new(self.database.clone(), Arc::new(duties), options, shutdown)
    }

    /// Looks at the link of a warning; changes nothing.
    pub async fn look_at_link(&self, token: &str) -> Result<Link> {
        let key = self.link_key()?;
        let found = retain::link::look(&self.database, &key, token).await?;
        self.vouches(&key, &found).await?;
        Ok(found)
    }

    /// The token in the link of a deletion's warning, for programs that show the link themselves.
    pub fn link_token(&self, deletion: uuid::Uuid) -> Result<String> {
        Ok(retain::link::token(&*self.link_key()?, deletion))
    }

    /// Uses the link of a warning. True when this call restored its subject; otherwise what the link is by now.
    pub async fn restore_by_link(&self, token: &str) -> Result<(bool, Link)> {
        let key = self.link_key()?;
        let (restored, found) = retain::link::restore(&self.database, &key, token).await?;
        self.vouches(&key, &found).await?;
        Ok((restored, found))
    }

    /// A link that is unknown here is not unknown altogether where the other nodes have another key.
    async fn vouches(&self, key: &SubjectKey, found: &Link) -> Result<()> {
        if !matches!(found, Link::Unknown) {
            return Ok(());
        }
        let mut tx = self.database.read().await?;
        let same = audit::same_subject_key(&mut tx, key).await;
        tx.rollback().await?;
        same
    }

    fn link_key(&self) -> Result<Arc<SubjectKey>> {
        self.keys.subject()?.ok_or_else(|| {
            Error::refused("this node has no subject key, which vouches for links")
                .with_hint("set subject_key in [audit] to the key that the other nodes have")
        })
    }

    /// Checks every wanted policy against the catalog and stores the difference, all or nothing.
    pub async fn apply(&self, wanted: &[Wanted], force: bool, by: &str) -> Result<Vec<Change>> {
        self.apply_with(wanted, force, by, &Consent::default()).await
    }

    /// The same with what somebody has agreed to: subjects that become due, a floor that goes down.
    pub async fn apply_with(&self, wanted: &[Wanted], force: bool, by: &str, consent: &Consent) -> Result<Vec<Change>> {
        let mut tx = self.database.read().await?;
        let asked = Asked { by, consent, admin: false };
        for want in wanted {
            self.check(&mut tx, &want.policy, Some(wanted)).await?;
            asked.covers(&mut tx, &want.policy, Some(wanted)).await?;
        }
        let changes = policy::apply::apply(&mut tx, wanted, force, by).await?;
        for want in wanted {
            if let Policy::Once(namespace) = &want.policy {
                let (ttl, lock) = (namespace.ttl.to_interval(), namespace.lock.to_interval());
                crate::once::set_namespace(&mut tx, namespace.name.as_str(), ttl, lock).await?;
            }
            if let Policy::Resources(resources) = &want.policy {
                self.register(&mut tx, resources).await?;
            }
        }
        for want in wanted {
            if let Policy::Retain(policy) = &want.policy {
                retain::install(&mut tx, policy, by, Approval::Given).await?;
            }
        }
        for gone in changes.iter().filter(|change| change.kind == Kind::Retain && change.is_disable()) {
            retain::withdraw(&mut tx, &gone.name).await?;
        }
        for gone in changes.iter().filter(|change| change.kind == Kind::Once && change.is_disable()) {
            crate::once::remove_namespace(&mut tx, &gone.name).await?;
        }
        retain::one_for_each_table(&mut tx).await?;
        let stored = policy::store::all(&mut tx).await?;
        schedule::follow(&mut tx, &stored).await?;
        gate::follow(&mut tx, &stored).await?;
        gate::none_spills(&mut tx, &stored).await?;
        tx.commit().await?;
        Ok(changes)
    }

    /// What is wrong with the wanted policies by what the database knows: (position in `wanted`, what is wrong).
    pub async fn check_all(&self, wanted: &[Wanted]) -> Result<Vec<(usize, Error)>> {
        self.check_with(wanted, &[]).await
    }

    /// The same as if columns that are missing were there.
    pub async fn check_with(&self, wanted: &[Wanted], missing: &[MissingColumn]) -> Result<Vec<(usize, Error)>> {
        let mut tx = self.database.read().await?;
        let installed = pg::schema_version(&mut tx).await?.is_some();
        tx.commit().await?;
        let mut wrong = Vec::new();
        for (position, want) in wanted.iter().enumerate() {
            // A transaction each: after an error in SQL the next policy would only hear of that.
            let mut tx = self.database.read().await?;
            for column in missing.iter().filter(|column| column.policy == want.name) {
                column.add(&mut tx).await?;
            }
            let checked = match installed {
                true => self.check(&mut tx, &want.policy, Some(wanted)).await,
                false => check_names(&mut tx, &want.policy).await,
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

    /// What `apply` would change.
    pub async fn difference(&self, wanted: &[Wanted]) -> Result<Vec<Change>> {
        let mut tx = self.database.read().await?;
        // Before the first apply there is no schema, and everything is new.
        let stored = match pg::schema_version(&mut tx).await? {
            Some(_) => policy::store::all(&mut tx).await?,
            None => Vec::new(),
        };
        tx.commit().await?;
        Ok(policy::difference(wanted, &stored))
    }

    /// Changes keys of one policy at runtime; a null removes a key. Returns the new version.
    pub async fn set_policy(&self, name: &str, changes: &Spec, by: &str) -> Result<i64> {
        self.set_policy_with(name, changes, by, &Consent::default()).await
    }

    /// The same with what somebody has agreed to.
    pub async fn set_policy_with(&self, name: &str, changes: &Spec, by: &str, consent: &Consent) -> Result<i64> {
        let merged = |stored: &Stored| {
            let mut spec = stored.spec.clone();
            merge(&mut spec, changes);
            spec
        };
        self.change_policy(name, None, merged, &Asked { by, consent, admin: false }).await
    }

    /// Replaces the keys of one policy at runtime, for somebody who has shown to be an administrator. The error is
    /// "superseded" when its version is not `expected` any more: somebody changed it meanwhile, and this change was made
    /// without knowing.
    pub async fn put_policy(&self, name: &str, spec: &Spec, expected: i64, by: &str, consent: &Consent) -> Result<i64> {
        self.change_policy(name, Some(expected), |_| spec.clone(), &Asked { by, consent, admin: true }).await
    }

    async fn change_policy(
        &self,
        name: &str,
        expected: Option<i64>,
        spec: impl FnOnce(&Stored) -> Spec,
        asked: &Asked<'_>,
    ) -> Result<i64> {
        let mut tx = self.database.read().await?;
        policy::store::lock(&mut tx).await?;
        let stored = match policy::store::find(&mut tx, name).await {
            // Settings that no file has written yet are the defaults, and can be changed like the others.
            Err(error) if error.is_usage() && is_settings(name) => Stored::new(Kind::Settings, name),
            found => found?,
        };
        if let Some(expected) = expected.filter(|expected| *expected != stored.version) {
            let now = stored.version;
            return Err(Error::superseded(format!("policy {name} is at version {now}, not {expected}"))
                .with_hint("look at it again and make the change on top of the newer version"));
        }
        let spec = spec(&stored);
        let changed = Policy::parse(stored.kind, &stored.name, &spec)
            .map_err(|errors| Error::from(errors).context(format!("policy {}", stored.name)))?;
        if spec == stored.spec && stored.is_active() == changed.enabled() {
            return Ok(stored.version);
        }
        self.check(&mut tx, &changed, None).await?;
        asked.covers(&mut tx, &changed, None).await?;
        let approval = match &changed {
            Policy::Retain(changed) => retain::at_runtime(&mut tx, &stored, changed).await?,
            _ => Approval::Given,
        };
        let put = policy::store::Put {
            kind: stored.kind,
            name: &stored.name,
            spec: &spec,
            enabled: changed.enabled(),
            stopped: None,
            source: policy::store::Source::Runtime,
            by: asked.by,
        };
        let version = policy::store::put(&mut tx, put).await?;
        if let Policy::Once(namespace) = &changed {
            let (ttl, lock) = (namespace.ttl.to_interval(), namespace.lock.to_interval());
            crate::once::set_namespace(&mut tx, &stored.name, ttl, lock).await?;
        }
        if let Policy::Retain(policy) = &changed {
            retain::install(&mut tx, policy, asked.by, approval).await?;
            retain::one_for_each_table(&mut tx).await?;
        }
        if let Policy::Resources(resources) = &changed {
            self.register(&mut tx, resources).await?;
        }
        let stored = policy::store::all(&mut tx).await?;
        schedule::follow(&mut tx, &stored).await?;
        gate::follow(&mut tx, &stored).await?;
        gate::none_spills(&mut tx, &stored).await?;
        tx.commit().await?;
        Ok(version)
    }

    async fn register(&self, connection: &mut PgConnection, policy: &Resources) -> Result<()> {
        let registered = resources::register(connection, &self.database, policy).await;
        registered.map_err(|error| error.context(format!("policy {}", policy.name)))
    }

    /// Everything that can be wrong with a policy only the database knows.
    pub(crate) async fn check(
        &self,
        connection: &mut PgConnection,
        policy: &Policy,
        wanted: Option<&[Wanted]>,
    ) -> Result<()> {
        let checked = match policy {
            Policy::Expire(expire) => self.check_expire(connection, expire).await,
            Policy::Partition(policy) => partition::partitioned(connection, policy).await.map(|_| ()),
            Policy::Retain(policy) => self.check_retain(connection, policy, wanted).await,
            Policy::Resources(resources) => resources::check(connection, &self.database, resources).await,
            Policy::Schedule(schedule) => self.check_sink(connection, &schedule.sink, wanted).await,
            Policy::Once(_) | Policy::Sink(_) | Policy::Pacing(_) | Policy::Keep(_) | Policy::Events(_) => Ok(()),
        };
        checked.map_err(|error| error.context(format!("policy {}", policy.name())))
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

    async fn check_retain(
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

/// Whether a name is that of settings.
fn is_settings(name: &str) -> bool {
    Kind::Settings.form().sections().contains(&name)
}

/// Adds keys to a spec, also inside its tables; null removes, and a table that becomes empty goes too.
fn merge(spec: &mut Spec, changes: &Spec) {
    for (key, value) in changes {
        match value {
            Value::Null => {
                spec.remove(key);
            }
            Value::Object(inner) => {
                let mut table = match spec.get_mut(key) {
                    Some(Value::Object(table)) => std::mem::take(table),
                    _ => Spec::new(),
                };
                merge(&mut table, inner);
                if table.is_empty() {
                    spec.remove(key);
                } else {
                    spec.insert(key.clone(), Value::Object(table));
                }
            }
            value => {
                spec.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_reaches_into_tables_and_leaves_no_empty_ones() {
        let merged = |spec: Value, changes: Value| {
            let (Value::Object(mut spec), Value::Object(changes)) = (spec, changes) else { panic!("both are objects") };
            merge(&mut spec, &changes);
            Value::Object(spec)
        };
        let spec = json!({ "every": "1h", "batch": { "rows": 10, "pause": "1s" } });
        assert_eq!(
            merged(spec.clone(), json!({ "batch": { "rows": 20 }, "every": null })),
            json!({ "batch": { "rows": 20, "pause": "1s" } })
        );
        assert_eq!(merged(spec, json!({ "batch": { "rows": null, "pause": null } })), json!({ "every": "1h" }));
        assert_eq!(merged(json!({}), json!({ "brake": { "rows": null } })), json!({}));
        assert_eq!(
            merged(json!({ "action": "delete" }), json!({ "action": { "set": { "a": "1" } } })),
            json!({ "action": { "set": { "a": "1" } } })
        );
    }
}
