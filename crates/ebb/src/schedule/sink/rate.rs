//! How many calls start in a while: a token bucket. Invariant: over any span no more calls start than one burst (what
//! the rate allows in a second, at least one) and what the rate allows in that span.

use std::time::Duration;

use tokio::time::Instant;

use crate::policy;

pub(super) struct Bucket {
    size: f64,
    per_second: f64,
    tokens: f64,
    filled_at: Instant,
}

impl Bucket {
    pub(super) fn new(rate: policy::Rate, now: Instant) -> Self {
        let per_second = f64::from(rate.calls) / rate.per.as_secs_f64();
        let size = per_second.max(1.0);
        Self { size, per_second, tokens: size, filled_at: now }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.size);
        self.filled_at = now;
    }

    /// How many calls may start now.
    pub(super) fn free(&mut self, now: Instant) -> usize {
        self.fill(now);
        self.tokens.max(0.0) as usize
    }

    /// How long until one may.
    pub(super) fn wait(&mut self, now: Instant) -> Duration {
        self.fill(now);
        Duration::from_secs_f64(((1.0 - self.tokens) / self.per_second).max(0.0))
    }

    /// Takes a token, perhaps one that is still to come: the caller waits for it. `Err` when that is too long.
    pub(super) fn take(&mut self, now: Instant, patience: Duration) -> Result<Duration, Duration> {
        let wait = self.wait(now);
        if wait > patience {
            return Err(wait);
        }
        self.tokens -= 1.0;
        Ok(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_calls_may_start_at_once_and_then_as_the_rate_says() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut bucket = Bucket::new("10/s".parse().unwrap(), start);
        for _ in 0..10 {
            assert_eq!(bucket.take(start, Duration::ZERO), Ok(Duration::ZERO));
        }
        assert_eq!(bucket.free(start), 0);
        assert_eq!(bucket.take(start, Duration::ZERO), Err(Duration::from_millis(100)));
        assert_eq!(bucket.take(start, Duration::from_secs(1)), Ok(Duration::from_millis(100)));
        assert_eq!(bucket.take(at(100), Duration::ZERO), Err(Duration::from_millis(100)));
        assert_eq!(bucket.free(at(600)), 5);
        assert_eq!(bucket.free(at(60_000)), 10);
    }

    #[test]
    fn a_slow_rate_lets_one_go_at_a_time() {
        let start = Instant::now();
        let mut bucket = Bucket::new("60/h".parse().unwrap(), start);
        assert_eq!(bucket.take(start, Duration::ZERO), Ok(Duration::ZERO));
        assert_eq!(bucket.take(start, Duration::from_secs(1)), Err(Duration::from_secs(60)));
    }
}
