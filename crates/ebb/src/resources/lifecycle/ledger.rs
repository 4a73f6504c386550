//! Counting handles and queueing what changed. Invariants: an incref or decref is one atomic step and, when it crosses
//! between none and one, a place in the queue; it never blocks, never panics and is fine on any thread. A resource is in
//! the queue at most once, so the queue is bounded by distinct resources and what meets there cancels out. The flusher
//! takes the mark off before it reads the count: a change after that queues the resource again, so none is lost. Until a
//! write was answered nobody knows what stands: whatever is wanted by then is written once more.
//! The tests below run on shuttle, which decides who goes next at every step of these types.

use std::collections::HashMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

#[cfg(test)]
use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
#[cfg(test)]
use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(test))]
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
#[cfg(not(test))]
use std::sync::{Mutex, MutexGuard};

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;

use crate::{Error, Result};

/// One resource of this process.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    count: AtomicU64,
    queued: AtomicBool,
    /// Whether the reference stands where it counts; only the flusher changes it.
    stands: AtomicU8,
    gone: AtomicBool,
}

/// What is known of a reference where it counts.
const ABSENT: u8 = 0;
const STANDS: u8 = 1;
/// A write of it is under way, or was and nobody answered.
const UNKNOWN: u8 = 2;

/// All resources of a handler.
#[derive(Debug)]
pub(super) struct Ledger {
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    queue: mpsc::UnboundedSender<Arc<Entry>>,
    over: AtomicBool,
    begun: Instant,
    /// Nanoseconds since it began: until then its references stand, whatever has happened since somebody asked.
    stands_until: AtomicU64,
}

impl Ledger {
    pub(super) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Arc<Entry>>) {
        let (queue, changed) = mpsc::unbounded_channel();
        let ledger = Self {
            entries: Mutex::default(),
            queue,
            over: AtomicBool::new(false),
            begun: Instant::now(),
            stands_until: AtomicU64::new(u64::MAX),
        };
        (Arc::new(ledger), changed)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<String, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle on a resource that is queued when nobody here had one.
    pub(super) fn handle(self: &Arc<Self>, name: &str) -> Handle {
        self.count(name, false).0
    }

    /// A handle on a resource whose reference stands already. False: it was known here, and a change of it may be under
    /// way; what stands is known after a flush.
    pub(super) fn standing_handle(self: &Arc<Self>, name: &str) -> (Handle, bool) {
        self.count(name, true)
    }

    pub(super) fn knows(&self, name: &str) -> bool {
        self.entries().contains_key(name)
    }

    fn count(self: &Arc<Self>, name: &str, stands: bool) -> (Handle, bool) {
        let mut entries = self.entries();
        let (entry, new) = match entries.get(name) {
            Some(entry) => (entry.clone(), false),
            None => {
                let entry = Arc::new(Entry {
                    name: name.to_owned(),
                    count: AtomicU64::new(0),
                    queued: AtomicBool::new(false),
                    stands: AtomicU8::new(if stands { STANDS } else { ABSENT }),
                    gone: AtomicBool::new(false),
                });
                entries.insert(name.to_owned(), entry.clone());
                (entry, true)
            }
        };
        // Under the lock: the flusher forgets only what nobody counts.
        let first = entry.count.fetch_add(1, Ordering::AcqRel) == 0;
        drop(entries);
        // What was refused may have been announced since: whoever comes later has it asked for again.
        if (first && !(new && stands)) || entry.is_gone() {
            self.touch(&entry);
        }
        (Handle { entry, ledger: self.clone(), scope: None }, new)
    }

    fn touch(&self, entry: &Arc<Entry>) {
        if !entry.queued.swap(true, Ordering::AcqRel) {
            // Nobody listens any more: whoever stopped the handler has let go of everything.
            let _ = self.queue.send(entry.clone());
        }
    }

    /// What is to be written of a queued entry: `Some(true)` a reference, `Some(false)` none, `None` nothing new. From
    /// here on it is unknown what stands, until [`settle`](Self::settle) says so.
    pub(super) fn take(&self, entry: &Entry) -> Option<bool> {
        entry.queued.swap(false, Ordering::AcqRel);
        let wanted = entry.count.load(Ordering::Acquire) > 0;
        let known = if wanted { STANDS } else { ABSENT };
        if entry.stands.load(Ordering::Acquire) == known {
            return None;
        }
        entry.stands.store(UNKNOWN, Ordering::Release);
        Some(wanted)
    }

    /// What was taken is written. A reference that stands is to something that is there, whatever was said of it before.
    pub(super) fn settle(&self, entry: &Arc<Entry>, stands: bool) {
        if stands {
            entry.gone.store(false, Ordering::Release);
        }
        entry.stands.store(if stands { STANDS } else { ABSENT }, Ordering::Release);
        self.forget(entry);
    }

    /// Nobody knows whether a reference stands that was asked for past the queue: it is written again, or taken back.
    pub(super) fn doubt(self: &Arc<Self>, name: &str) {
        let handle = self.handle(name);
        handle.entry.stands.store(UNKNOWN, Ordering::Release);
        self.touch(&handle.entry);
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
            && entry.stands.load(Ordering::Acquire) == ABSENT
            && entries.get(&entry.name).is_some_and(|e| Arc::ptr_eq(e, entry))
        {
            entries.remove(&entry.name);
        }
    }

    /// The handler has ended, or its holder died: every handle is stale.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// References stand until a moment from now on; a later word replaces this one.
    pub(super) fn stands_until(&self, at: Instant) {
        let nanos = u64::try_from(at.duration_since(self.begun).as_nanos()).unwrap_or(u64::MAX);
        self.stands_until.store(nanos, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Whether references may have gone: it has ended, or nobody heard that they stand for longer than that holds.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended() || self.begun.elapsed() > Duration::from_nanos(self.stands_until.load(Ordering::Acquire))
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
    use shuttle::thread;

    use super::*;

    /// Every schedule that is tried ends with the flusher where the handles are, and the queue never held a resource twice.
    fn explore(play: fn()) {
        shuttle::check_random(play, 2_000);
        shuttle::check_pct(play, 2_000, 4);
    }

    fn follow(ledger: &Arc<Ledger>, changed: &mut mpsc::UnboundedReceiver<Arc<Entry>>) {
        assert!(changed.len() <= ledger.all().len() + 2, "bounded by distinct resources");
        while let Ok(entry) = changed.try_recv() {
            if let Some(wanted) = ledger.take(&entry) {
                // Written in between: somebody may change their mind.
                thread::yield_now();
                ledger.settle(&entry, wanted);
            } else {
                ledger.forget(&entry);
            }
        }
    }

    fn agree(ledger: &Arc<Ledger>) {
        for entry in ledger.all() {
            let wanted = entry.count.load(Ordering::Acquire) > 0;
            assert_eq!(entry.stands.load(Ordering::Acquire), u8::from(wanted), "{}", entry.name);
        }
    }

    /// Two threads come and go on two resources, one of them keeps a handle; the flusher follows all the time.
    #[test]
    fn whatever_threads_do_the_flusher_ends_where_they_do() {
        explore(|| {
            let (ledger, mut changed) = Ledger::new();
            let kept = ledger.handle("t0");
            let threads: Vec<_> = (0..2)
                .map(|n| {
                    let (ledger, mine) = (ledger.clone(), kept.clone());
                    thread::spawn(move || {
                        for round in 0..2 {
                            let other = ledger.handle(if (n + round) % 2 == 0 { "t0" } else { "t1" });
                            drop((mine.clone(), other.clone()));
                            drop(other);
                        }
                    })
                })
                .collect();
            let flusher = thread::spawn({
                let ledger = ledger.clone();
                move || {
                    for _ in 0..3 {
                        follow(&ledger, &mut changed);
                        thread::yield_now();
                    }
                    changed
                }
            });
            for thread in threads {
                thread.join().unwrap();
            }
            let mut changed = flusher.join().unwrap();
            follow(&ledger, &mut changed);
            agree(&ledger);
            assert_eq!(kept.entry.stands.load(Ordering::Acquire), STANDS, "the handle that is left stands");
            drop(kept);
            follow(&ledger, &mut changed);
            assert!(ledger.all().is_empty(), "nothing is remembered that nobody refers to");
        });
    }

    /// A flush that fails puts back what it took; whoever changes it meanwhile loses nothing, and nothing is queued twice.
    #[test]
    fn a_write_that_fails_is_written_later_with_what_is_wanted_then() {
        explore(|| {
            let (ledger, mut changed) = Ledger::new();
            let handle = ledger.handle("t0");
            let thread = thread::spawn({
                let ledger = ledger.clone();
                move || {
                    drop(handle);
                    drop(ledger.handle("t0"));
                }
            });
            for _ in 0..2 {
                if let Ok(entry) = changed.try_recv() {
                    match ledger.take(&entry) {
                        Some(_) => ledger.put_back(&entry),
                        None => ledger.forget(&entry),
                    }
                }
                assert!(changed.len() <= 1, "a resource is queued once");
            }
            thread.join().unwrap();
            follow(&ledger, &mut changed);
            assert!(ledger.all().is_empty());
        });
    }

    /// A write whose answer was lost may have counted or not: what is wanted now is written, also when it is what was
    /// wanted before it.
    #[test]
    fn a_write_that_nobody_answered_is_not_taken_for_undone() {
        shuttle::check_random(
            || {
                let (ledger, mut changed) = Ledger::new();
                let (handle, _) = ledger.standing_handle("t0");
                drop(handle);
                let entry = changed.try_recv().unwrap();
                assert_eq!(ledger.take(&entry), Some(false), "let go");
                ledger.put_back(&entry);
                let again = ledger.handle("t0");
                assert_eq!(ledger.take(&changed.try_recv().unwrap()), Some(true), "and referred to again");
                ledger.put_back(&entry);
                drop(again);
                assert_eq!(ledger.take(&changed.try_recv().unwrap()), Some(false));
                ledger.settle(&entry, false);
                ledger.doubt("t1");
                assert_eq!(ledger.take(&changed.try_recv().unwrap()), Some(false), "what may stand is taken back");
            },
            1,
        );
    }

    /// A reference that stands already is not written again, and not lost when its handle goes while the flusher is at work.
    #[test]
    fn a_standing_reference_is_let_go_once() {
        explore(|| {
            let (ledger, mut changed) = Ledger::new();
            let (handle, new) = ledger.standing_handle("t0");
            assert!(new && changed.is_empty(), "nothing to write");
            let thread = thread::spawn(move || drop(handle));
            follow(&ledger, &mut changed);
            thread.join().unwrap();
            follow(&ledger, &mut changed);
            assert!(ledger.all().is_empty());
        });
    }

    /// A refusal answers those who had asked by then: a resource that was announced since is asked for again, also while
    /// somebody keeps a handle that was refused.
    #[test]
    fn whoever_comes_after_a_refusal_is_answered_anew() {
        explore(|| {
            let (ledger, mut changed) = Ledger::new();
            let refused = ledger.handle("t0");
            let entry = changed.try_recv().unwrap();
            assert_eq!(ledger.take(&entry), Some(true));
            entry.set_gone();
            ledger.settle(&entry, false);
            assert!(refused.name().is_err());
            let thread = thread::spawn({
                let ledger = ledger.clone();
                move || ledger.handle("t0")
            });
            follow(&ledger, &mut changed);
            let again = thread.join().unwrap();
            follow(&ledger, &mut changed);
            agree(&ledger);
            assert!(again.name().is_ok());
            drop((refused, again));
            follow(&ledger, &mut changed);
            assert!(ledger.all().is_empty());
        });
    }

    #[test]
    fn handles_work_outside_a_runtime_and_after_the_end() {
        shuttle::check_random(
            || {
                let (ledger, changed) = Ledger::new();
                let handle = ledger.handle("t1");
                assert_eq!(handle.name().unwrap(), "t1");
                ledger.stands_until(Instant::now());
                thread::yield_now();
                assert!(handle.name().unwrap_err().to_string().contains("stale"), "nobody has heard that it stands");
                ledger.stands_until(Instant::now() + Duration::from_secs(60));
                assert!(handle.name().is_ok());
                drop(changed);
                ledger.end();
                let clone = handle.clone();
                assert!(clone.name().unwrap_err().to_string().contains("stale"));
                drop((handle, clone));
            },
            1,
        );
    }
}
