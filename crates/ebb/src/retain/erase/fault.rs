//! Whose fault it is that a batch came to nothing. Fewer are taken until whoever it is about is alone; they go in parts, and in
//! smaller ones; whoever cannot even go row by row is blamed: told, and passed by. Talks to nobody, so that every decision can be
//! tried in a test.

use std::collections::BTreeSet;
use std::time::Duration;

use uuid::Uuid;

use super::{LARGE, WITHIN};
use crate::retain::store::Candidate;
use crate::{Error, Trouble};

/// How a subject is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Whole,
    /// Too large or too slow for that; it is looked at before its rows go in parts.
    Look,
    Part,
}

/// What batches of a run have met so far, and who may be the reason.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    /// Whoever is alone in the batch, and what is done about them: what becomes of it is about nobody else.
    pub(super) alone: Option<(Candidate, Stage)>,
    /// How many the batch chose.
    pub(super) chosen: u64,
    /// So many are chosen at most, until who it is about is alone.
    pub(super) most: u64,
    /// A single subject was too much for a batch: the next one takes it in parts.
    pub(super) large: Option<Candidate>,
    /// Whoever that was in this run is not tried as a whole again.
    parted: BTreeSet<Uuid>,
    /// Whoever was alone in a batch that came to nothing, and why, which is still to be said.
    pub(super) blamed: Option<(Candidate, String)>,
    /// How many rows a part may take, and how many the one at work has taken.
    pub(super) part_rows: u64,
    pub(super) part_took: u64,
    /// Why the last part came to nothing, which is still to be said.
    pub(super) shrunk: Option<String>,
}

impl Fault {
    pub(super) fn none() -> Self {
        Self {
            alone: None,
            chosen: 0,
            most: u64::MAX,
            large: None,
            parted: BTreeSet::new(),
            blamed: None,
            part_rows: LARGE,
            part_took: 0,
            shrunk: None,
        }
    }

    /// A batch begins.
    pub(super) fn begin(&mut self) {
        (self.alone, self.chosen, self.part_took) = (None, 0, 0);
    }

    /// It chose these.
    pub(super) fn choose(&mut self, found: &[Candidate]) {
        self.chosen = found.len() as u64;
        if let [one] = found {
            self.alone = Some((one.clone(), Stage::Whole));
        }
    }

    /// A batch was more than one may be: whoever was alone in it goes in parts, and parts are smaller.
    pub(super) fn too_much(&mut self, trouble: Trouble) {
        let is = match trouble {
            Trouble::TooBig => "is more than can be held at once",
            _ => "takes longer than a batch may (`batch`, `timeout`)",
        };
        match self.alone.take() {
            None => self.fewer(),
            Some((one, Stage::Whole)) => {
                self.parted.insert(one.id);
                self.large = Some(one);
            }
            Some((_, Stage::Part)) if self.part_rows > 1 => {
                let fewer = match std::mem::take(&mut self.part_took) {
                    0 => self.part_rows / 8,
                    took => (self.part_rows / 8).min(took / 2),
                };
                self.part_rows = fewer.max(1);
                let was = match trouble {
                    Trouble::TooBig => "was more than can be held at once",
                    _ => "took longer than a batch may",
                };
                self.shrunk = Some(format!("a part of it {was}; parts have at most {} rows now", self.part_rows));
            }
            Some((one, Stage::Look)) => self.blamed = Some((one, format!("to look at all that hangs on it {is}"))),
            Some((one, Stage::Part)) => {
                self.part_rows = LARGE;
                self.blamed = Some((one, format!("a single row of it {is}")));
            }
        }
    }

    /// Whether it was too much for a batch as a whole.
    pub(super) fn is_parted(&self, one: Uuid) -> bool {
        self.parted.contains(&one)
    }

    /// What is done cannot be any less than it is: a single row of a subject.
    pub(super) fn is_least(&self) -> bool {
        self.part_rows == 1 && matches!(self.alone, Some((_, Stage::Part)))
    }

    /// A row raised an error outside of any attempt. Whether the next batches find out whose it is.
    pub(super) fn raised(&mut self, error: &Error) -> bool {
        match self.alone.take() {
            Some((one, _)) => self.blamed = Some((one, error.to_string())),
            None if self.chosen > 1 => self.fewer(),
            None => return false,
        }
        true
    }

    fn fewer(&mut self) {
        self.most = (self.chosen / 8).max(1);
    }

    /// A batch took whomever it had chosen.
    pub(super) fn went_well(&mut self) {
        self.most = self.most.saturating_mul(2);
    }

    /// A part was taken. Where it was a moment's work, the next may be larger again.
    pub(super) fn part_went_well(&mut self, took: Duration, light: bool) {
        if light && took < WITHIN / 4 {
            self.part_rows = self.part_rows.saturating_mul(2).min(LARGE);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::audit::Moment;

    fn people(many: u128) -> Vec<Candidate> {
        let one = |n| Candidate {
            id: Uuid::from_u128(n),
            subject_id: n.to_string(),
            due_at: Moment::from_micros(0),
            former: None,
        };
        (1..=many).map(one).collect()
    }

    #[test]
    fn fewer_are_taken_until_whoever_it_is_about_is_alone_and_goes_in_parts() {
        let mut fault = Fault::none();
        for (chosen, most) in [(100, 12), (12, 1)] {
            fault.begin();
            fault.choose(&people(chosen));
            fault.too_much(Trouble::Slow);
            assert_eq!((fault.most, fault.large.is_some()), (most, false));
        }
        fault.begin();
        fault.choose(&people(1));
        fault.too_much(Trouble::TooBig);
        assert_eq!(fault.large.take().map(|one| one.subject_id).as_deref(), Some("1"));
        fault.went_well();
        assert_eq!(fault.most, 2);
    }

    #[test]
    fn parts_get_smaller_down_to_a_row_whose_subject_is_blamed_and_larger_when_they_are_light() {
        let mut fault = Fault::none();
        let alone = |fault: &mut Fault, stage| {
            fault.begin();
            fault.alone = people(1).pop().map(|one| (one, stage));
        };
        for rows in [2_500, 312, 39, 4, 1] {
            alone(&mut fault, Stage::Part);
            fault.too_much(Trouble::TooBig);
            assert_eq!((fault.part_rows, fault.blamed.is_some()), (rows, false));
        }
        assert!(fault.shrunk.take().is_some_and(|why| why.contains("at most 1 rows")));
        alone(&mut fault, Stage::Part);
        assert!(fault.is_least());
        fault.too_much(Trouble::Slow);
        assert!(fault.blamed.take().is_some_and(|(_, why)| why.starts_with("a single row of it takes longer")));
        // Whoever comes next is not to blame for that row.
        assert_eq!((fault.part_rows, fault.is_least()), (LARGE, false));
        fault.part_rows = 1;
        alone(&mut fault, Stage::Look);
        fault.too_much(Trouble::TooBig);
        assert!(fault.blamed.take().is_some_and(|(_, why)| why.contains("hangs on it is more than can be held")));
        for (took, light, rows) in [(9, true, 1), (1, false, 1), (1, true, 2), (1, true, 4)] {
            fault.part_went_well(Duration::from_secs(took), light);
            assert_eq!(fault.part_rows, rows);
        }
        // What a part had taken when its time was over says more than what it might have taken.
        alone(&mut fault, Stage::Part);
        (fault.part_rows, fault.part_took) = (LARGE, 100);
        fault.too_much(Trouble::Slow);
        assert_eq!(fault.part_rows, 50);
    }
}
