//! How a node is told to stop: once to finish the current batches, and whoever waits wakes at once.

use tokio::sync::watch;

/// A stop signal that can be cloned, sent and waited for.
#[derive(Debug, Clone)]
pub struct Shutdown {
    sender: std::sync::Arc<watch::Sender<bool>>,
    receiver: watch::Receiver<bool>,
}

impl Shutdown {
    /// A signal that has not been given.
    pub fn new() -> Self {
        let (sender, receiver) = watch::channel(false);
        Self { sender: std::sync::Arc::new(sender), receiver }
    }

    /// Gives the signal.
    pub fn stop(&self) {
        self.sender.send_replace(true);
    }

    /// Whether it has been given.
    pub fn is_stopping(&self) -> bool {
        *self.receiver.borrow()
    }

    /// Waits for it.
    pub async fn stopping(&self) {
        let mut receiver = self.receiver.clone();
        // The sender lives in self, so the channel cannot close before the value is true.
        let _ = receiver.wait_for(|stop| *stop).await;
    }

    /// Waits until it was given this long ago.
    pub async fn stopping_for(&self, duration: std::time::Duration) {
        self.stopping().await;
        tokio::time::sleep(duration).await;
    }

    /// Sleeps, but not past the signal. True when it was given.
    pub async fn sleep(&self, duration: std::time::Duration) -> bool {
        tokio::select! {
            () = self.stopping() => true,
            () = tokio::time::sleep(duration) => self.is_stopping(),
        }
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}
