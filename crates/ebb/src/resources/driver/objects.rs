//! Objects under a prefix: S3 and what speaks like it, Google Cloud Storage, Azure Blob Storage, a local directory. One
//! object is one resource. Identity is the ETag. The store's own time is that of the marker, which every sweep writes
//! before it lists. Invariant: a listing that fails on its way is an error, never a short listing.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::Mutex;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{CALL_WITHIN, Driver, Dropped, Found, Owner, away};
use crate::config::{Env, Secret};
use crate::pg::answered;
use crate::{Error, Result};

/// The object that says whose the prefix is.
const MARKER: &str = ".ebb-owner";
/// Looks at a time.
const AT_ONCE: usize = 16;

/// What the marker says: whose, and the last sweep of each policy.
#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    installation: Uuid,
    #[serde(default)]
    policies: BTreeMap<String, i64>,
}

/// Objects under a prefix.
pub struct ObjectsDriver {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    location: String,
    /// By how much the store's clock is ahead, seen when the marker was written last.
    ahead: Mutex<Option<jiff::SignedDuration>>,
}

/// Where an S3-compatible server is and who asks.
pub(crate) struct Access<'a> {
    pub(crate) endpoint: Option<&'a str>,
    pub(crate) region: Option<&'a str>,
    pub(crate) user: Option<&'a str>,
    pub(crate) password: Option<&'a Secret>,
}

impl ObjectsDriver {
    pub(crate) fn open(url: &str, access: &Access<'_>) -> Result<Self> {
        // The clients of object_store take the process's provider; another one that was installed is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (scheme, rest) = url.split_once("://").ok_or_else(|| Error::config("the `url` has no scheme"))?;
        let (place, prefix) = match scheme {
            "file" => (rest, ""),
            _ => rest.split_once('/').unwrap_or((rest, "")),
        };
        if place.is_empty() {
            return Err(Error::config(format!("the `url` {url} names no bucket or directory")));
        }
        let wrong = |error: StoreError| Error::config(format!("the `url` {url} cannot be used: {error}"));
        let secret = access.password.map(|password| password.resolve(&Env::process())).transpose()?;
        let store: Arc<dyn ObjectStore> = match scheme {
            "file" => Arc::new(local(place)?),
            "s3" => {
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(place);
                if let Some(endpoint) = access.endpoint {
                    builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
                }
                if let Some(region) = access.region {
                    builder = builder.with_region(region);
                }
                if let (Some(user), Some(secret)) = (access.user, secret) {
                    builder = builder.with_access_key_id(user).with_secret_access_key(secret);
                }
                Arc::new(builder.build().map_err(wrong)?)
            }
            "gs" => Arc::new(GoogleCloudStorageBuilder::from_env().with_bucket_name(place).build().map_err(wrong)?),
            _ => {
                let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(place);
                if let (Some(user), Some(secret)) = (access.user, secret) {
                    builder = builder.with_account(user).with_access_key(secret);
                }
                Arc::new(builder.build().map_err(wrong)?)
            }
        };
        let prefix = Path::parse(prefix.trim_end_matches('/')).map_err(|error| wrong(error.into()))?;
        let location = match access.endpoint {
            Some(endpoint) => format!("objects {url} at {endpoint}"),
            None => format!("objects {url}"),
        };
        Ok(Self { store, prefix, location, ahead: Mutex::new(None) })
    }

    fn path(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    fn trouble(&self, error: StoreError) -> Error {
        match error {
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
                Error::refused(format!("{} does not let us in: {error}", self.location))
                    .with_hint("user and password of the policy, or the environment of the node, say who asks")
            }
            error => away(&self.location, error),
        }
    }

    /// The name below the prefix; `None` for what lies deeper.
    fn name_of(&self, path: &Path) -> Option<String> {
        let mut parts = path.prefix_match(&self.prefix)?;
        let name = parts.next()?.as_ref().to_owned();
        parts.next().is_none().then_some(name)
    }

    fn store_now(&self) -> Option<Timestamp> {
        let ahead = (*self.ahead.lock().unwrap_or_else(std::sync::PoisonError::into_inner))?;
        Timestamp::now().checked_add(ahead).ok()
    }

    async fn list_all(&self, prefix: &str, each: &mut (dyn FnMut(Found) + Send)) -> Result<Option<Timestamp>> {
        let mut listed = self.store.list(Some(&self.prefix));
        while let Some(meta) = listed.try_next().await.map_err(|error| self.trouble(error))? {
            if let Some(name) = self.name_of(&meta.location).filter(|name| name.starts_with(prefix)) {
                each(found(name, &meta));
            }
        }
        Ok(self.store_now())
    }

    async fn look(&self, names: &[String]) -> Result<(Vec<Found>, Option<Timestamp>)> {
        let found: Vec<Option<Found>> = stream::iter(names.to_vec())
            .map(|name| async move {
                match self.store.head(&self.path(&name)).await {
                    Ok(meta) => Ok(Some(found(name, &meta))),
                    Err(StoreError::NotFound { .. }) => Ok(None),
                    Err(error) => Err(self.trouble(error)),
                }
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        Ok((found.into_iter().flatten().collect(), self.store_now()))
    }

    async fn delete(&self, name: &str) -> Result<Dropped> {
        match self.store.delete(&self.path(name)).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(Dropped::Accepted),
            Err(error @ (StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. })) => {
                Ok(Dropped::Blocked(error.to_string()))
            }
            Err(error) => Err(self.trouble(error)),
        }
    }

    async fn marker(&self) -> Result<Option<Marker>> {
        let path = self.path(MARKER);
        let bytes = match self.store.get(&path).await {
            Ok(got) => got.bytes().await.map_err(|error| self.trouble(error))?,
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.trouble(error)),
        };
        let marker = serde_json::from_slice(&bytes);
        marker.map(Some).map_err(|_| Error::refused(format!("{}: {MARKER} is no marker of Ebb's", self.location)))
    }

    async fn write_marker(&self, policy: &str, owner: &Owner) -> Result<()> {
        let mut marker = match self.marker().await? {
            Some(marker) if marker.installation == owner.installation => marker,
            _ => Marker { installation: owner.installation, policies: BTreeMap::new() },
        };
        let generation = marker.policies.entry(policy.to_owned()).or_default();
        *generation = owner.generation.max(*generation);
        let bytes = serde_json::to_vec(&marker).map_err(|error| Error::failed(format!("no marker: {error}")))?;
        let path = self.path(MARKER);
        let before = Timestamp::now();
        self.store.put(&path, bytes.into()).await.map_err(|error| self.trouble(error))?;
        let meta = self.store.head(&path).await.map_err(|error| self.trouble(error))?;
        let ahead = modified(&meta).map(|at| at.duration_since(before));
        *self.ahead.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = ahead;
        Ok(())
    }
}

fn local(directory: &str) -> Result<LocalFileSystem> {
    LocalFileSystem::new_with_prefix(FilePath::new(directory)).map_err(|error| {
        Error::refused(format!("the directory {directory} cannot be used: {error}")).with_hint("create it first")
    })
}

fn modified(meta: &ObjectMeta) -> Option<Timestamp> {
    Timestamp::from_millisecond(meta.last_modified.timestamp_millis()).ok()
}

fn found(name: String, meta: &ObjectMeta) -> Found {
    Found { name, id: meta.e_tag.clone(), modified_at: modified(meta), size: Some(meta.size) }
}

impl Driver for ObjectsDriver {
    fn location(&self) -> String {
        self.location.clone()
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        each: &'a mut (dyn FnMut(Found) + Send),
    ) -> BoxFuture<'a, Result<Option<Timestamp>>> {
        answered(CALL_WITHIN * 10, self.list_all(prefix, each)).boxed()
    }

    fn find<'a>(&'a self, names: &'a [String]) -> BoxFuture<'a, Result<(Vec<Found>, Option<Timestamp>)>> {
        answered(CALL_WITHIN * 2, self.look(names)).boxed()
    }

    fn remove<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<Dropped>> {
        answered(CALL_WITHIN, self.delete(&found.name)).boxed()
    }

    fn owner<'a>(&'a self, policy: &'a str) -> BoxFuture<'a, Result<Option<Owner>>> {
        answered(CALL_WITHIN, async move {
            let marker = self.marker().await?;
            Ok(marker.map(|marker| Owner {
                installation: marker.installation,
                generation: marker.policies.get(policy).copied().unwrap_or(0),
            }))
        })
        .boxed()
    }

    fn mark<'a>(&'a self, policy: &'a str, owner: &'a Owner) -> BoxFuture<'a, Result<()>> {
        answered(CALL_WITHIN, self.write_marker(policy, owner)).boxed()
    }
}
