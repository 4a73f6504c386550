//! Waiting for a condition instead of for luck.

use std::panic::Location;
use std::time::{Duration, Instant};

/// Asks every 20 ms until the answer is yes; panics, naming the caller, when `timeout` passes first.
#[track_caller]
pub fn eventually<F, A>(timeout: Duration, mut condition: F) -> impl Future<Output = ()>
where
    F: FnMut() -> A,
    A: Future<Output = bool>,
{
    let caller = Location::caller();
    async move {
        let start = Instant::now();
        while !condition().await {
            assert!(start.elapsed() < timeout, "not within {timeout:?}, as asked for at {caller}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
