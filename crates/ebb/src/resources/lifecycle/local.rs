//! References of one process, without PostgreSQL: a background task drops a resource when its last handle goes, and
//! whatever is left when it stops. Invariant: dropped once nobody counts, and looked at again right before.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;

use super::LifecycleHandler;
use super::ledger::{Entry, Handle, Ledger};
use crate::resources::driver::{Driver, Dropped};
use crate::{Error, Result};

enum Ask {
    Flush(oneshot::Sender<Result<()>>),
    Stop(oneshot::Sender<Result<()>>),
}

/// A handler for one process.
pub struct LocalHandler {
    ledger: Arc<Ledger>,
    asks: mpsc::UnboundedSender<Ask>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl LocalHandler {
    /// Starts to count; what nobody refers to is dropped through `driver`.
    pub fn start(driver: Arc<dyn Driver>) -> Self {
        let (ledger, changed) = Ledger::new();
        let (asks, asked) = mpsc::unbounded_channel();
        let counter = Counter { driver, ledger: ledger.clone(), changed, asked };
        Self { ledger, asks, task: Mutex::new(Some(tokio::spawn(counter.run()))) }
    }

    async fn ask(&self, ask: impl FnOnce(oneshot::Sender<Result<()>>) -> Ask) -> Result<()> {
        let (sender, answer) = oneshot::channel();
        let ended = || Error::refused("the handler has ended");
        self.asks.send(ask(sender)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

impl LifecycleHandler for LocalHandler {
    fn announce<'a>(&'a self, name: &'a str, _: Value) -> BoxFuture<'a, Result<Handle>> {
        async move { Ok(self.ledger.handle(name)) }.boxed()
    }

    fn created<'a>(&'a self, _: &'a Handle, _: Option<&'a str>) -> BoxFuture<'a, Result<()>> {
        async { Ok(()) }.boxed()
    }

    fn incref(&self, name: &str) -> Handle {
        self.ledger.handle(name)
    }

    fn flush(&self) -> BoxFuture<'_, Result<()>> {
        self.ask(Ask::Flush).boxed()
    }

    fn stop(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let stopped = self.ask(Ask::Stop).await;
            if let Some(task) = self.task.lock().await.take() {
                let _ = task.await;
            }
            stopped
        }
        .boxed()
    }
}

struct Counter {
    driver: Arc<dyn Driver>,
    ledger: Arc<Ledger>,
    changed: mpsc::UnboundedReceiver<Arc<Entry>>,
    asked: mpsc::UnboundedReceiver<Ask>,
}

impl Counter {
    async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                entry = self.changed.recv() => {
                    let Some(entry) = entry else { return };
                    if let Err(error) = self.follow(&entry).await {
                        tracing::warn!(name = entry.name, error = %error, "Could not drop it; tried again at the end");
                    }
                }
                ask = self.asked.recv() => match ask {
                    Some(Ask::Flush(answer)) => {
                        let _ = answer.send(Ok(()));
                    }
                    Some(Ask::Stop(answer)) => {
                        self.ledger.end();
                        let _ = answer.send(self.drop_all().await);
                        return;
                    }
                    None => {
                        self.ledger.end();
                        let _ = self.drop_all().await;
                        return;
                    }
                },
            }
        }
    }

    /// What stands here is that the resource is in use.
    async fn follow(&self, entry: &Arc<Entry>) -> Result<()> {
        match self.ledger.take(entry) {
            Some(true) => self.ledger.settle(entry, true),
            Some(false) => {
                self.drop_one(&entry.name).await?;
                self.ledger.settle(entry, false);
            }
            None => {}
        }
        Ok(())
    }

    async fn drop_one(&self, name: &str) -> Result<()> {
        let (found, _) = self.driver.find(&[name.to_owned()]).await?;
        for found in found {
            match self.driver.remove(&found).await? {
                Dropped::Accepted => {}
                Dropped::Blocked(why) | Dropped::Later(why) => return Err(Error::failed(why)),
            }
        }
        Ok(())
    }

    async fn drop_all(&mut self) -> Result<()> {
        let mut last = Ok(());
        for entry in self.ledger.all() {
            if let Err(error) = self.drop_one(&entry.name).await {
                last = Err(error);
            }
        }
        last
    }
}
