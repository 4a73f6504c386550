//! Counting handles and queueing what changed. Invariants: an incref or decref is one atomic step and, when it crosses
//! between none and one, a place in the queue; it never blocks, never panics and is fine on any thread. A resource is in
//! the queue at most once, so the queue is bounded by distinct resources and what meets there cancels out. The flusher
//! takes the mark off before it reads the count: a change after that queues the resource again, so none is lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::{Error, Result};

/// One resource of this process.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    count: AtomicU64,
    queued: AtomicBool,
    /// Whether the reference stands where it counts; only the flusher changes it.
    pub(super) durable: AtomicBool,
    gone: AtomicBool,
}

/// All resources of a handler.
#[derive(Debug)]
pub(super) struct Ledger {
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    queue: mpsc::UnboundedSender<Arc<Entry>>,
    over: AtomicBool,
}

impl Ledger {
    pub(super) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Arc<Entry>>) {
        let (queue, changed) = mpsc::unbounded_channel();
        (Arc::new(Self { entries: Mutex::default(), queue, over: AtomicBool::new(false) }), changed)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle on a resource; `durable` when its reference stands already.
    pub(super) fn handle(self: &Arc<Self>, name: &str, durable: bool) -> Handle {
        let mut entries = self.entries();
        let entry = entries.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(Entry {
                name: name.to_owned(),
                count: AtomicU64::new(0),
                queued: AtomicBool::new(false),
                durable: AtomicBool::new(durable),
                gone: AtomicBool::new(false),
            })
        });
        let entry = entry.clone();
        if durable {
            entry.durable.store(true, Ordering::Release);
        }
        // Under the lock: the flusher forgets only what nobody counts.
        let first = entry.count.fetch_add(1, Ordering::AcqRel) == 0;
        drop(entries);
        if first {
            self.touch(&entry);
        }
        Handle { entry, ledger: self.clone(), scope: None }
    }

    fn touch(&self, entry: &Arc<Entry>) {
        if !entry.queued.swap(true, Ordering::AcqRel) {
            // Nobody listens any more: whoever stopped the handler has let go of everything.
            let _ = self.queue.send(entry.clone());
        }
    }

    /// What is wanted of a queued entry: `Some(true)` a reference, `Some(false)` none, `None` nothing new.
    pub(super) fn take(&self, entry: &Entry) -> Option<bool> {
        entry.queued.swap(false, Ordering::AcqRel);
        let wanted = entry.count.load(Ordering::Acquire) > 0;
        (wanted != entry.durable.load(Ordering::Acquire)).then_some(wanted)
    }

    /// Gives the queue back an entry that was received and not taken.
    pub(super) fn hand_back(&self, entry: Arc<Entry>) {
        let _ = self.queue.send(entry);
    }

    /// Queues an entry again whose change could not be written.
    pub(super) fn put_back(&self, entry: &Arc<Entry>) {
        self.touch(entry);
    }

    /// Forgets what nobody refers to.
    pub(super) fn forget(&self, entry: &Arc<Entry>) {
        let mut entries = self.entries();
        let idle = entry.count.load(Ordering::Acquire) == 0 && !entry.queued.load(Ordering::Acquire);
        if idle
            && !entry.durable.load(Ordering::Acquire)
            && entries.get(&entry.name).is_some_and(|e| Arc::ptr_eq(e, entry))
        {
            entries.remove(&entry.name);
        }
    }

    /// The handler has ended, or its holder died: every handle is stale.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Everything that is known, for whoever stops.
    pub(super) fn all(&self) -> Vec<Arc<Entry>> {
        self.entries().values().cloned().collect()
    }
}

impl Entry {
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(super) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }
}

/// Whether a context still runs.
#[derive(Debug, Default)]
pub(super) struct Scope {
    pub(super) ended: AtomicBool,
}

/// A reference to a resource: cloning it refers once more, dropping it lets go. Any thread, inside or outside a runtime.
#[derive(Debug)]
pub struct Handle {
    entry: Arc<Entry>,
    ledger: Arc<Ledger>,
    scope: Option<Arc<Scope>>,
}

impl Handle {
    /// The resource's name, to use it; an error when it is gone or this handle is stale.
    pub fn name(&self) -> Result<&str> {
        let name = self.entry.name.as_str();
        if self.entry.is_gone() {
            return Err(Error::refused(format!("{name} is gone: it was dropped before this reference counted")));
        }
        if self.ledger.is_over() {
            return Err(Error::refused(format!(
                "the handle of {name} is stale: its handler has ended or its holder died"
            ))
            .with_hint("stop using what it referred to, and start a new handler"));
        }
        if self.scope.as_ref().is_some_and(|scope| scope.ended.load(Ordering::Acquire)) {
            return Err(Error::refused(format!("the handle of {name} is stale: its context has ended")));
        }
        Ok(name)
    }

    pub(super) fn within(mut self, scope: &Arc<Scope>) -> Self {
        self.scope = Some(scope.clone());
        self
    }

    pub(super) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        // This handle counts already: from one to two is nobody's news.
        self.entry.count.fetch_add(1, Ordering::AcqRel);
        Self { entry: self.entry.clone(), ledger: self.ledger.clone(), scope: self.scope.clone() }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.entry.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.ledger.touch(&self.entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many threads change, one flusher follows: at the end both agree, and the queue never held a resource twice.
    #[test]
    fn whatever_threads_do_the_flusher_ends_where_they_do() {
        for round in 0..50 {
            let (ledger, mut changed) = Ledger::new();
            let kept: Vec<Handle> = (0..4).map(|n| ledger.handle(&format!("t{n}"), false)).collect();
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let workers: Vec<_> = (0..4)
                    .map(|n| {
                        let (ledger, mine) = (&ledger, kept[n].clone());
                        scope.spawn(move || {
                            for i in 0..500 {
                                let other = ledger.handle(&format!("t{}", (n + i) % 6), false);
                                drop((mine.clone(), other.clone(), other));
                            }
                        })
                    })
                    .collect();
                scope.spawn(|| {
                    while !done.load(Ordering::Acquire) {
                        follow(&ledger, &mut changed);
                        std::thread::yield_now();
                    }
                });
                for worker in workers {
                    worker.join().expect("no handle panics");
                }
                done.store(true, Ordering::Release);
            });
            let (all, (ledger, mut changed)) = (ledger.all(), (ledger, changed));
            assert!(changed.len() <= all.len(), "round {round}: bounded by distinct resources");
            follow(&ledger, &mut changed);
            for entry in all {
                let wanted = entry.count.load(Ordering::Acquire) > 0;
                assert_eq!(entry.durable.load(Ordering::Acquire), wanted, "round {round}: {}", entry.name);
            }
            drop(kept);
            follow(&ledger, &mut changed);
            assert!(ledger.all().is_empty(), "round {round}: nothing is remembered that nobody refers to");
        }
    }

    fn follow(ledger: &Arc<Ledger>, changed: &mut mpsc::UnboundedReceiver<Arc<Entry>>) {
        while let Ok(entry) = changed.try_recv() {
            if let Some(wanted) = ledger.take(&entry) {
                entry.durable.store(wanted, Ordering::Release);
            }
            ledger.forget(&entry);
        }
    }

    #[test]
    fn handles_work_outside_a_runtime_and_after_the_end() {
        let (ledger, changed) = Ledger::new();
        let handle = ledger.handle("t1", false);
        assert_eq!(handle.name().unwrap(), "t1");
        drop(changed);
        ledger.end();
        let clone = handle.clone();
        assert!(clone.name().unwrap_err().to_string().contains("stale"));
        drop((handle, clone));
    }
}
