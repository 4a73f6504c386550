//! When a failed delivery is tried again. Invariant: every attempt has an answer, and there is a last one, so that no
//! event is tried for ever.

use std::time::Duration;

use serde_json::Value;

use super::field::Invalid;
use super::reader::{Reader, wrong_type};
use super::term::Term;

/// The waits between attempts.
#[derive(Debug, Clone, PartialEq)]
pub enum Retry {
    /// These, one after the other: `["1m", "5m", "15m"]`.
    Steps(Vec<Duration>),
    /// Twice as long each time, with full jitter: anything between nothing and that.
    Exponential {
        /// The longest first wait.
        base: Duration,
        /// No wait is longer.
        max: Duration,
        /// How often the event is tried, the first attempt included.
        attempts: u32,
    },
}

const EXAMPLE: &str = "[\"1m\", \"5m\", \"15m\"]";
const DAY: Duration = Duration::from_secs(86_400);
const LONGEST: Duration = Duration::from_secs(30 * 86_400);
const MOST: u32 = 100;

impl Default for Retry {
    fn default() -> Self {
        Self::Steps([60, 300, 900].map(Duration::from_secs).into())
    }
}

impl Retry {
    /// How often an event is tried in all.
    pub fn attempts(&self) -> u32 {
        match self {
            Self::Steps(steps) => 1 + u32::try_from(steps.len()).unwrap_or(MOST),
            Self::Exponential { attempts, .. } => *attempts,
        }
    }

    /// The wait after attempt number `attempt` (from 1) failed; `None` when it was the last. `dice` is from 0 to 1.
    pub fn delay(&self, attempt: u32, dice: f64) -> Option<Duration> {
        if attempt >= self.attempts() {
            return None;
        }
        let failed = attempt.saturating_sub(1);
        match self {
            Self::Steps(steps) => steps.get(failed as usize).copied(),
            Self::Exponential { base, max, .. } => {
                let ceiling = base.saturating_mul(2_u32.saturating_pow(failed)).min(*max);
                Some(ceiling.mul_f64(dice.clamp(0.0, 1.0)))
            }
        }
    }
}

/// Reads the key `retry`: a list of waits or a table.
pub(super) fn read(r: &mut Reader<'_>) -> Retry {
    match r.take("retry") {
        None => Retry::default(),
        Some(Value::Array(items)) => {
            let steps: Result<Vec<Duration>, Invalid> = items.iter().map(step).collect();
            match steps {
                Ok(steps) if steps.len() < MOST as usize => return Retry::Steps(steps),
                Ok(_) => r.refuse("retry", Invalid::new(format!("an event is tried at most {MOST} times"))),
                Err(invalid) => r.refuse("retry", invalid),
            }
            Retry::default()
        }
        Some(Value::Object(_)) => {
            r.table("retry", "{ base = \"1s\", max = \"1h\", attempts = 12 }", read_exponential).unwrap_or_default()
        }
        Some(other) => {
            r.refuse("retry", wrong_type("retry", "a list of durations or a table", other, EXAMPLE));
            Retry::default()
        }
    }
}

fn step(value: &Value) -> Result<Duration, Invalid> {
    let Value::String(text) = value else { return Err(wrong_type("retry", "a list of durations", value, EXAMPLE)) };
    let wait = text.parse::<Term>()?.as_duration()?;
    if wait > LONGEST {
        return Err(Invalid::new(format!("a wait of {text} is longer than 30d")).hint(format!("for example {EXAMPLE}")));
    }
    Ok(wait)
}

fn read_exponential(r: &mut Reader<'_>) -> Retry {
    let base = r.duration("base", "\"1s\"", Duration::from_millis(1)..=DAY).unwrap_or(Duration::from_secs(1));
    let max =
        r.duration("max", "\"1h\"", Duration::from_millis(1)..=LONGEST).unwrap_or(Duration::from_secs(3_600).max(base));
    let attempts = r.number("attempts", 1..=u64::from(MOST)).unwrap_or(12);
    if max < base {
        r.refuse("max", Invalid::new("`max` is shorter than `base`"));
    }
    Retry::Exponential { base, max, attempts: u32::try_from(attempts).unwrap_or(MOST) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_taken_in_turn_and_end() {
        let retry = Retry::default();
        let waits: Vec<_> = (1..=5).map(|attempt| retry.delay(attempt, 0.3).map(|wait| wait.as_secs())).collect();
        assert_eq!(waits, [Some(60), Some(300), Some(900), None, None]);
        assert_eq!(retry.attempts(), 4);
        assert_eq!(Retry::Steps(Vec::new()).delay(1, 0.5), None);
    }

    #[test]
    fn exponential_waits_double_up_to_their_limit_and_are_full_of_jitter() {
        let second = Duration::from_secs(1);
        let retry = Retry::Exponential { base: second, max: 10 * second, attempts: 100 };
        let ceilings: Vec<_> = (1..=6).map(|attempt| retry.delay(attempt, 1.0).unwrap().as_secs()).collect();
        assert_eq!(ceilings, [1, 2, 4, 8, 10, 10]);
        assert_eq!(retry.delay(3, 0.0), Some(Duration::ZERO));
        assert_eq!(retry.delay(99, 0.5), Some(5 * second));
        assert_eq!(retry.delay(100, 0.5), None);
    }
}
