//! Whether a receiver is alive, judged by its last answers. Invariant: while it counts as dead one call at a time is
//! under way to it, no more often than the probe's interval; one success brings it back at once.

use std::time::Duration;

use tokio::time::Instant;

use crate::policy;

pub(super) struct Breaker {
    policy: policy::Breaker,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// Calls go out; so many failed in a row.
    Closed { failures: u32 },
    /// Nothing goes out before this moment.
    Open { until: Instant },
    /// One call is out to see.
    Probing,
}

/// What a call is to the breaker that let it through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pass {
    /// One of many.
    Usual,
    /// The one that decides.
    Probe,
}

/// What the breaker did about an answer, for those who tell people.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Turn {
    /// Nothing.
    None,
    /// The receiver counts as dead from now on.
    Opened,
    /// It is back.
    Closed,
}

impl Breaker {
    pub(super) fn new(policy: policy::Breaker) -> Self {
        Self { policy, state: State::Closed { failures: 0 } }
    }

    /// How many calls it would let through now; `None` for any number.
    pub(super) fn free(&self, now: Instant) -> Option<usize> {
        match self.state {
            State::Closed { .. } => None,
            State::Open { until } => Some(usize::from(now >= until)),
            State::Probing => Some(0),
        }
    }

    /// Whether the receiver counts as dead.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    /// How long until a probe may go out; `None` when that depends on an answer or on nothing.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Open { until } => Some(until.saturating_duration_since(now)),
            State::Closed { .. } | State::Probing => None,
        }
    }

    /// Lets a call through, or says how long not.
    pub(super) fn pass(&mut self, now: Instant) -> Result<Pass, Duration> {
        match self.state {
            State::Closed { .. } => Ok(Pass::Usual),
            State::Open { until } if now >= until => {
                self.state = State::Probing;
                Ok(Pass::Probe)
            }
            State::Open { until } => Err(until - now),
            State::Probing => Err(self.policy.probe),
        }
    }

    /// A call came back. Calls from before it opened change nothing any more, except that a success brings it back.
    pub(super) fn judge(&mut self, pass: Pass, alive: bool, now: Instant) -> Turn {
        match (self.state, alive) {
            (State::Closed { .. }, true) => {
                self.state = State::Closed { failures: 0 };
                Turn::None
            }
            (State::Open { .. } | State::Probing, true) => {
                self.state = State::Closed { failures: 0 };
                Turn::Closed
            }
            (State::Closed { failures }, false) if failures + 1 < self.policy.failures => {
                self.state = State::Closed { failures: failures + 1 };
                Turn::None
            }
            (State::Closed { .. }, false) => {
                self.state = State::Open { until: now + self.policy.probe };
                Turn::Opened
            }
            (State::Probing, false) if pass == Pass::Probe => {
                self.state = State::Open { until: now + self.policy.probe };
                Turn::None
            }
            (State::Open { .. } | State::Probing, false) => Turn::None,
        }
    }

    /// A call was given up before it had an answer: a probe that nobody waits for must not block the next.
    pub(super) fn abandon(&mut self, pass: Pass, now: Instant) {
        if pass == Pass::Probe && self.state == State::Probing {
            self.state = State::Open { until: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBE: Duration = Duration::from_secs(30);

    fn breaker() -> (Breaker, Instant) {
        (Breaker::new(policy::Breaker { failures: 3, probe: PROBE }), Instant::now())
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_them_does_not() {
        let (mut breaker, now) = breaker();
        for alive in [false, false, true, false, false] {
            assert_eq!(breaker.judge(Pass::Usual, alive, now), Turn::None);
            assert_eq!(breaker.free(now), None);
        }
        assert_eq!(breaker.judge(Pass::Usual, false, now), Turn::Opened);
        assert_eq!(breaker.free(now), Some(0));
        assert_eq!(breaker.pass(now), Err(PROBE));
    }

    #[test]
    fn one_probe_at_a_time_decides() {
        let (mut breaker, now) = breaker();
        for _ in 0..3 {
            breaker.judge(Pass::Usual, false, now);
        }
        let later = now + PROBE;
        assert_eq!(breaker.free(later), Some(1));
        assert_eq!(breaker.pass(later), Ok(Pass::Probe));
        assert_eq!(breaker.free(later), Some(0));
        assert_eq!(breaker.pass(later), Err(PROBE));
        // A call that was out before it opened is no answer to the probe.
        assert_eq!(breaker.judge(Pass::Usual, false, later), Turn::None);
        assert_eq!(breaker.judge(Pass::Probe, false, later), Turn::None);
        assert_eq!(breaker.wait(later), Some(PROBE));
        assert_eq!(breaker.pass(later + PROBE), Ok(Pass::Probe));
        assert_eq!(breaker.judge(Pass::Probe, true, later + PROBE), Turn::Closed);
        assert_eq!(breaker.free(later + PROBE), None);
    }

    #[test]
    fn a_probe_that_is_given_up_makes_room_for_another() {
        let (mut breaker, now) = breaker();
        for _ in 0..3 {
            breaker.judge(Pass::Usual, false, now);
        }
        let later = now + PROBE;
        assert_eq!(breaker.pass(later), Ok(Pass::Probe));
        breaker.abandon(Pass::Probe, later);
        assert_eq!(breaker.pass(later), Ok(Pass::Probe));
    }
}
