//! Stores, each behind one trait: what is there, is it still what it was, make it go. A driver knows nothing of
//! references, ages or policies, and never decides. Invariants: a listing is whole or an error; a drop touches exactly the
//! name it was given; every call is bounded in time; no message shows a secret.
//!
//! A new driver is one file here that implements [`Driver`], a variant of `policy::Place`, and its line in `open`.

mod clickhouse;
mod objects;
mod postgres;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use uuid::Uuid;

use crate::pg::Database;
use crate::policy::{Place, Resources};
use crate::{Error, Result};

pub use clickhouse::ClickHouseDriver;
pub use objects::ObjectsDriver;
pub use postgres::PostgresDriver;

/// No single call to a store takes longer.
pub(crate) const CALL_WITHIN: Duration = Duration::from_secs(60);

/// One thing in a store, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What it is called there.
    pub name: String,
    /// What tells it from another one of the same name, made later: a UUID, an oid, an ETag.
    pub id: Option<String>,
    /// When it changed last, by the store's clock.
    pub modified_at: Option<Timestamp>,
    /// How many bytes it has.
    pub size: Option<u64>,
}

/// What a store did when it was asked to drop something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dropped {
    /// It said yes. Whether it is gone is asked afterwards.
    Accepted,
    /// It will not until somebody changes something there: a limit, a right.
    Blocked(String),
    /// Not now: something held it, or it failed in a way that may pass.
    Later(String),
}

/// Whose store it is, as the marker in it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The installation that `ebb apply` wrote into it.
    pub installation: Uuid,
    /// The last sweep of a policy that was begun here.
    pub generation: i64,
}

/// A place where resources are.
pub trait Driver: Send + Sync {
    /// Where it is, for people; without secrets, and the same on every node.
    fn location(&self) -> String;

    /// Everything whose name begins with `prefix`, handed over as it comes; an error when it is not all of it.
    /// Returns the store's own time.
    fn list<'a>(
        &'a self,
        prefix: &'a str,
        each: &'a mut (dyn FnMut(Found) + Send),
    ) -> BoxFuture<'a, Result<Option<Timestamp>>>;

    /// Those of the names that exist, looked at closely. With the store's own time.
    fn find<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, Result<(Vec<Found>, Option<Timestamp>)>>;

    /// Drops one. Nothing to drop is no error.
    fn remove<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<Dropped>>;

    /// Whose it is; `None` when nobody has marked it.
    fn owner<'a>(&'a self, policy: &'a str) -> BoxFuture<'a, Result<Option<Owner>>>;

    /// Marks it.
    fn mark<'a>(&'a self, policy: &'a str, owner: &'a Owner) -> BoxFuture<'a, Result<()>>;
}

/// The driver of a policy's place. Secrets are read here; nothing is connected yet.
pub(crate) fn open(policy: &Resources, database: &Database) -> Result<Arc<dyn Driver>> {
    match &policy.place {
        Place::Postgres { url, user, password, schema, role } => {
            let opened = PostgresDriver::open(database, url.as_deref(), user.as_deref(), password.as_ref(), schema)?;
            Ok(Arc::new(opened.under(role.as_deref())))
        }
        Place::ClickHouse { url, user, password, cluster } => {
            Ok(Arc::new(ClickHouseDriver::open(url, user.as_deref(), password.as_ref(), cluster.as_deref())?))
        }
        Place::Objects { url, endpoint, region, user, password } => {
            let access = objects::Access {
                endpoint: endpoint.as_deref(),
                region: region.as_deref(),
                user: user.as_deref(),
                password: password.as_ref(),
            };
            Ok(Arc::new(ObjectsDriver::open(url, &access)?))
        }
    }
}

/// A store that does not answer: the same call may succeed later.
pub(crate) fn away(location: &str, what: impl std::fmt::Display) -> Error {
    Error::failed(format!("the store {location} does not answer: {what}"))
        .with_hint("nothing is forgotten: what was to be dropped is dropped when it is back")
}

/// TLS with the system's authorities.
fn tls() -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::failed(format!("TLS cannot be set up: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
