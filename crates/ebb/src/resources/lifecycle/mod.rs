//! References from inside a program: handles that count by themselves, behind one interface with two implementations. Who
//! starts a handler stops it; a context that made its own owns it; after its context ends a handle is stale, and using it
//! is an error. Invariant: letting go of a handle never blocks and never fails; what must be durable before use has a fence.

mod ledger;
mod local;
mod postgres;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::BoxFuture;
use serde_json::Value;

pub use ledger::Handle;
pub use local::LocalHandler;
pub use postgres::{PostgresHandler, Worker};

use crate::Result;
use ledger::Scope;

/// Who keeps account of references.
pub trait LifecycleHandler: Send + Sync {
    /// Announces a resource that is about to be made, durably, with a reference of the caller's. Make it afterwards, then
    /// say so with [`LifecycleHandler::created`].
    fn announce<'a>(&'a self, name: &'a str, labels: Value) -> BoxFuture<'a, Result<Handle>>;

    /// The announced resource exists now; `store_id` is what the store calls it. An error when it was given up meanwhile.
    fn created<'a>(&'a self, handle: &'a Handle, store_id: Option<&'a str>) -> BoxFuture<'a, Result<()>>;

    /// A reference that is queued: it counts after the next [`LifecycleHandler::flush`]. From sync code, any thread.
    fn incref(&self, name: &str) -> Handle;

    /// Waits until everything that was queued before is durable. Handles whose resource was gone say so from here on.
    fn flush(&self) -> BoxFuture<'_, Result<()>>;

    /// Writes what is left, lets go of everything, ends. Handles are stale afterwards.
    fn stop(&self) -> BoxFuture<'_, Result<()>>;
}

/// A piece of work with its handles.
pub struct Context {
    handler: Arc<dyn LifecycleHandler>,
    owns: bool,
    scope: Arc<Scope>,
}

impl Context {
    /// Uses a handler that somebody else started and stops.
    pub fn with(handler: Arc<dyn LifecycleHandler>) -> Self {
        Self { handler, owns: false, scope: Arc::default() }
    }

    /// Owns its handler, and stops it in the end.
    pub fn owning(handler: impl LifecycleHandler + 'static) -> Self {
        Self { handler: Arc::new(handler), owns: true, scope: Arc::default() }
    }

    /// See [`LifecycleHandler::announce`].
    pub async fn announce(&self, name: &str, labels: Value) -> Result<Handle> {
        Ok(self.handler.announce(name, labels).await?.within(&self.scope))
    }

    /// See [`LifecycleHandler::created`].
    pub async fn created(&self, handle: &Handle, store_id: Option<&str>) -> Result<()> {
        self.handler.created(handle, store_id).await
    }

    /// A reference that counts when this returns; an error when the resource is gone.
    pub async fn refer(&self, name: &str) -> Result<Handle> {
        let handle = self.handler.incref(name).within(&self.scope);
        self.handler.flush().await?;
        handle.name()?;
        Ok(handle)
    }

    /// Ends it: its handles are stale. Stops the handler only where it is this context's own.
    pub async fn close(self) -> Result<()> {
        self.scope.ended.store(true, Ordering::Release);
        match self.owns {
            true => self.handler.stop().await,
            false => Ok(()),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.scope.ended.store(true, Ordering::Release);
    }
}
