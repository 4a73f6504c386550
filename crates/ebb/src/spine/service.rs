//! A service: what a node does all the time beside its units, without a lease of its own, because it claims what it works
//! on piece by piece. Invariant: it ends by itself, in time, when the node is told to stop.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::shared::Shared;
use super::unit::Unit;
use super::work::Summary;
use crate::Result;

/// What a service is told about the node that it runs on.
#[derive(Clone)]
pub(crate) struct Station {
    pub(crate) shared: Arc<Shared>,
    /// The node's id, fresh for every boot.
    pub(crate) id: Uuid,
    pub(crate) lease: Duration,
    pub(crate) stop_within: Duration,
    /// How often to look when nothing says that there is something to do.
    pub(crate) poll: Duration,
    /// Called when somebody notifies the service's channel.
    pub(crate) wake: Arc<Notify>,
    /// Whether such calls get through at the moment.
    pub(crate) hears: watch::Receiver<bool>,
}

/// Something that every node runs.
pub(crate) trait Service: Send + Sync {
    /// What it is called on the command line, when it is paused, and in summaries.
    fn unit(&self) -> &Unit;
    /// The channel that wakes it.
    fn channel(&self) -> &'static str;
    /// Works until shutdown.
    fn run(self: Arc<Self>, station: Station) -> BoxFuture<'static, ()>;
    /// Does everything that is due now, and ends.
    fn run_once(self: Arc<Self>, station: Station) -> BoxFuture<'static, Result<Summary>>;
}
