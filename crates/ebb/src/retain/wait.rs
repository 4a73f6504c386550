//! What an open deletion waits for, in one word for everybody who shows it. Invariant: what is said is why it is still there now;
//! a date that has passed is no reason.

use std::fmt;

use super::store::Deletion;
use crate::audit::Moment;

/// Why an open deletion has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// Attempts failed, and it is not tried again unless somebody says so: why.
    Failed(String),
    /// It is on hold: why, and until when.
    Hold(String, Option<Moment>),
    /// The last attempt failed: why, and when it is tried again.
    Trouble(String, Option<Moment>),
    /// The last run found something in its way.
    Blocked(String),
    /// Its warning has not been made yet.
    Unwarned,
    /// Its warning is on its way.
    Warning,
    /// It is not due.
    Time,
    /// Nothing but the next run.
    Run,
}

impl Deletion {
    /// What it waits for, at a moment of the clock that policies go by.
    pub fn waits(&self, now: Moment) -> Wait {
        match (&self.hold_reason, &self.error, &self.blocked) {
            (_, Some(error), _) if self.state == "failed" => Wait::Failed(error.clone()),
            (Some(reason), ..) => Wait::Hold(reason.clone(), self.hold_until),
            // Whatever an attempt met: it was not due then, or is not any more.
            (None, Some(_), _) if self.due_at > now && self.state != "erasing" => Wait::Time,
            (None, Some(error), _) => Wait::Trouble(error.clone(), self.next_try_at.filter(|again| *again > now)),
            (None, None, Some(blocked)) => Wait::Blocked(blocked.clone()),
            // Whoever is warned has a due time that counts from the warning: without one no date says anything.
            (None, None, None) if self.due_at > now => Wait::Time,
            (None, None, None) => match self.warning.as_deref() {
                Some("planned") => Wait::Unwarned,
                Some("scheduled") => Wait::Warning,
                _ => Wait::Run,
            },
        }
    }
}

impl Wait {
    /// Whether nothing keeps it back but time and a node.
    pub fn is_ordinary(&self) -> bool {
        matches!(self, Self::Time | Self::Run)
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |moment: &Moment| match moment.timestamp() {
            Some(at) => at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
            None => moment.to_string(),
        };
        match self {
            Self::Failed(why) => write!(f, "somebody to try it again: {why}"),
            Self::Hold(why, None) => write!(f, "on hold: {why}"),
            Self::Hold(why, Some(until)) => write!(f, "on hold until {}: {why}", seconds(until)),
            Self::Trouble(why, None) => write!(f, "the next run, after an attempt that failed: {why}"),
            Self::Trouble(why, Some(again)) => {
                write!(f, "another try from {} on, after one that failed: {why}", seconds(again))
            }
            Self::Blocked(why) => f.write_str(why),
            Self::Unwarned => f.write_str("its warning, which is not sent yet"),
            Self::Warning => f.write_str("its warning, which is on its way"),
            Self::Time => f.write_str("its time"),
            Self::Run => f.write_str("the next run"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Moment {
        Moment::from_micros(seconds * 1_000_000)
    }

    fn deletion() -> Deletion {
        Deletion {
            deletion: uuid::Uuid::nil(),
            subject_id: Some("1".into()),
            tenant: None,
            state: "pending".into(),
            deleted_at: at(0),
            due_at: at(100),
            expedited: false,
            on_hold: false,
            hold_reason: None,
            hold_until: None,
            hold_since: None,
            warning: None,
            warned_at: None,
            warning_error: None,
            blocked: None,
            attempts: 0,
            next_try_at: None,
            error: None,
            rows: None,
            opened_at: at(0),
            closed_at: None,
        }
    }

    #[test]
    fn a_date_that_has_passed_is_no_reason_to_wait() {
        let told = |change: fn(&mut Deletion), now: i64| {
            let mut deletion = deletion();
            change(&mut deletion);
            deletion.waits(at(now)).to_string()
        };
        assert_eq!(told(|_| (), 99), "its time");
        assert_eq!(told(|_| (), 100), "the next run");
        assert_eq!(told(|one| one.warning = Some("planned".into()), 100), "its warning, which is not sent yet");
        assert_eq!(told(|one| one.warning = Some("accepted".into()), 100), "the next run");
        assert_eq!(told(|one| one.blocked = Some("`unless` holds".into()), 100), "`unless` holds");
        let failed = |one: &mut Deletion| (one.error, one.next_try_at) = (Some("a trigger".into()), Some(at(200)));
        assert_eq!(told(failed, 100), "another try from 1970-01-01 00:03:20Z on, after one that failed: a trigger");
        assert_eq!(told(failed, 300), "the next run, after an attempt that failed: a trigger");
        assert_eq!(told(failed, 99), "its time");
        let given_up = |one: &mut Deletion| (one.error, one.state) = (Some("a trigger".into()), "failed".into());
        assert_eq!(told(given_up, 300), "somebody to try it again: a trigger");
        let held = |one: &mut Deletion| (one.hold_reason, one.hold_until) = (Some("court".into()), Some(at(400)));
        assert_eq!(told(held, 300), "on hold until 1970-01-01 00:06:40Z: court");
    }
}
