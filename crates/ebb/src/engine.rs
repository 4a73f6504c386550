//! The engine: one database, the duties on it, the node that runs them. This is the only place that names every duty.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::audit::{Destination, PeriodKeys, SigningKey, SubjectKey};
use crate::once::Once;
use crate::pg::{self, Database, Migrated};
use crate::policy::At;
use crate::schedule::sink::{Sink, Surroundings};
use crate::schedule::{Dispatch, Events, Handlers};
use crate::spine::{Node, NodeOptions, Shutdown};
use crate::{Error, Result};

mod agenda;
mod apply;
mod check;
mod links;

use agenda::Duties;
pub use apply::Changed;

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
}
