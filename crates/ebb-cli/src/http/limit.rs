//! Buckets of tokens by whom they limit. Invariant: memory is bounded however many keys are seen; a full bucket is the
//! same as none, so those are forgotten first.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many buckets are kept.
const MOST: usize = 10_000;

/// So many a second for each key, and a burst above it.
#[derive(Debug)]
pub(crate) struct Limiter<K> {
    per_second: f64,
    burst: f64,
    buckets: Mutex<HashMap<K, Bucket>>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl<K: Eq + Hash + Clone> Limiter<K> {
    pub(crate) fn new(per_second: f64, burst: f64) -> Self {
        Self { per_second, burst, buckets: Mutex::new(HashMap::new()) }
    }

    /// Takes one; otherwise how long until there is one.
    pub(crate) fn take(&self, key: &K, now: Instant) -> Result<(), Duration> {
        self.with(key, now, |bucket, per_second| {
            if bucket.left >= 1.0 {
                bucket.left -= 1.0;
                Ok(())
            } else {
                Err(Duration::from_secs_f64((1.0 - bucket.left) / per_second))
            }
        })
    }

    /// How long until there is one; nothing is taken.
    pub(crate) fn wait(&self, key: &K, now: Instant) -> Result<(), Duration> {
        self.with(key, now, |bucket, per_second| match bucket.left >= 1.0 {
            true => Ok(()),
            false => Err(Duration::from_secs_f64((1.0 - bucket.left) / per_second)),
        })
    }

    fn with<T>(&self, key: &K, now: Instant, act: impl FnOnce(&mut Bucket, f64) -> T) -> T {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST && !buckets.contains_key(key) {
            let (rate, burst) = (self.per_second, self.burst);
            buckets.retain(|_, bucket| bucket.left + now.duration_since(bucket.at).as_secs_f64() * rate < burst);
            if buckets.len() >= MOST {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(key.clone()).or_insert(Bucket { left: self.burst, at: now });
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + since * self.per_second).min(self.burst);
        bucket.at = now;
        act(bucket, self.per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_rate_holds() {
        let (limiter, start) = (Limiter::new(2.0, 3.0), Instant::now());
        let taken = |at: Instant| (0..10).filter(|_| limiter.take(&"a", at).is_ok()).count();
        assert_eq!(taken(start), 3);
        assert_eq!(taken(start + Duration::from_secs(1)), 2);
        assert_eq!(limiter.take(&"b", start), Ok(()), "everybody has a bucket of their own");
        let wait = limiter.wait(&"a", start + Duration::from_secs(1)).unwrap_err();
        assert_eq!(wait, Duration::from_millis(500));
    }

    #[test]
    fn memory_is_bounded() {
        let (limiter, start) = (Limiter::new(1.0, 1.0), Instant::now());
        for key in 0..3 * MOST {
            let _ = limiter.take(&key, start);
        }
        assert!(limiter.buckets.lock().unwrap().len() <= MOST);
    }
}
