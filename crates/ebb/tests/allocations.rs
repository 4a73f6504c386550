//! What handles allocate, counted by the allocator; in a program of its own, because it counts for all threads.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not marked as tests")]

use std::alloc::System;
use std::sync::Arc;

use ebb::resources::driver::{Dropped, Found, Owner};
use ebb::resources::{Driver, Handle, LifecycleHandler, LocalHandler};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A store that never has anything.
struct Empty;

impl Driver for Empty {
    fn location(&self) -> String {
        "nowhere".into()
    }

    fn list<'a>(
        &'a self,
        _: &'a str,
        _: &'a mut (dyn FnMut(Found) + Send),
    ) -> BoxFuture<'a, ebb::Result<Option<Timestamp>>> {
        async { Ok(None) }.boxed()
    }

    fn find<'a>(&'a self, _: &'a [String]) -> BoxFuture<'a, ebb::Result<(Vec<Found>, Option<Timestamp>)>> {
        async { Ok((Vec::new(), None)) }.boxed()
    }

    fn remove<'a>(&'a self, _: &'a Found) -> BoxFuture<'a, ebb::Result<Dropped>> {
        async { Ok(Dropped::Accepted) }.boxed()
    }

    fn owner<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ebb::Result<Option<Owner>>> {
        async { Ok(None) }.boxed()
    }

    fn mark<'a>(&'a self, _: &'a str, _: &'a Owner) -> BoxFuture<'a, ebb::Result<()>> {
        async { Ok(()) }.boxed()
    }
}

const STEPS: usize = 100_000;

/// Counting never allocates; changes that wait to be written take room for each resource, not for each change.
#[tokio::test]
async fn a_change_allocates_nothing_and_a_queue_of_changes_is_bounded_by_resources() {
    let handler = LocalHandler::start(Arc::new(Empty));
    let names: Vec<String> = (0..1_000).map(|n| format!("t{n}")).collect();
    let kept: Vec<Handle> = names.iter().map(|name| handler.incref(name)).collect();
    handler.flush().await.unwrap();

    let region = Region::new(COUNTED);
    for n in 0..STEPS {
        drop(kept[n % kept.len()].clone());
    }
    assert_eq!(region.change().allocations, 0, "clones and drops");

    let region = Region::new(COUNTED);
    for n in 0..STEPS {
        drop(handler.incref(&names[n % names.len()]));
    }
    assert_eq!(region.change().allocations, 0, "by name, of what is known");

    drop(kept);
    handler.flush().await.unwrap();
    // Nobody takes anything out of the queue meanwhile: this thread is the runtime's only one.
    let region = Region::new(COUNTED);
    for n in 0..STEPS {
        drop(handler.incref(&names[n % names.len()]));
    }
    let allocated = region.change().allocations;
    assert!(allocated < 5 * names.len(), "{allocated} allocations for {STEPS} changes on {} resources", names.len());
    handler.stop().await.unwrap();
}
