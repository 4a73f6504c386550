//! `cron = "0 3 * * SUN"`: wall-clock times that come again. Times are found on the calendar first and placed in the zone
//! afterwards, so that one rule holds everywhere. Invariants: the next time is later than the one asked about; a wall-clock
//! time that a clock change skips happens at the first instant after the gap, one that comes twice happens the first time.
//! A pattern for every hour goes by the clock that runs: it fires in both of two equal hours and has nothing to make up for.

use std::fmt;
use std::str::FromStr;

use croner::errors::CronError;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

use super::cadence::instant;
use super::field::Invalid;

const EXAMPLE: &str = "five fields: minute, hour, day, month, weekday; for example \"0 3 * * SUN\"";
/// A pattern that has no time in so many years has none.
const YEARS: i16 = 60;

/// When a schedule fires.
#[derive(Debug, Clone, PartialEq)]
pub struct Cron {
    text: String,
    cron: croner::Cron,
    /// Whether it fires in every hour.
    hourly: bool,
}

impl Cron {
    /// The first time after `now`; `None` when there is none that a calendar knows.
    pub fn next_after(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let local = |at: Timestamp| zone.to_datetime(at);
        let day_before = now.checked_sub(26.hours()).unwrap_or(Timestamp::MIN);
        let day_after = now.checked_add(26.hours()).unwrap_or(Timestamp::MAX);
        // Around a clock change a time on the calendar may lie on either side of now, or on both.
        let changed = [day_before, day_after].into_iter().any(|at| zone.to_offset(at) != zone.to_offset(now));
        let mut from = if changed { local(day_before) } else { local(now) };
        let mut best: Option<Timestamp> = None;
        loop {
            let Ok(candidate) = self.cron.find_next_occurrence(&from, false) else { return best };
            let (first, second) = self.instants(candidate, zone);
            for at in [first, second].into_iter().flatten().filter(|at| *at > now) {
                best = Some(best.map_or(at, |best| best.min(at)));
            }
            // Later candidates only come later, but for the second of two equal hours.
            if let Some(best) = best
                && first.is_none_or(|first| first >= best)
            {
                return Some(best);
            }
            from = candidate;
        }
    }

    /// The latest time up to `now` that is later than `since`.
    pub fn latest(&self, since: Timestamp, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut back = jiff::SignedDuration::from_mins(2);
        loop {
            let from = now.checked_sub(back).unwrap_or(since).max(since);
            let mut found = None;
            let mut at = from;
            while let Some(next) = self.next_after(at, zone).filter(|next| *next <= now) {
                (found, at) = (Some(next), next);
            }
            if found.is_some() || from <= since {
                return found;
            }
            back = back.saturating_mul(4);
        }
    }

    /// The instants of a time on the calendar: one, none, or two.
    fn instants(&self, local: DateTime, zone: &TimeZone) -> (Option<Timestamp>, Option<Timestamp>) {
        let ambiguous = zone.to_ambiguous_timestamp(local);
        match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { .. } => (ambiguous.unambiguous().ok(), None),
            AmbiguousOffset::Gap { .. } if self.hourly => (None, None),
            AmbiguousOffset::Gap { .. } => (Some(instant(local.date(), local.time(), zone)), None),
            AmbiguousOffset::Fold { .. } if self.hourly => (ambiguous.earlier().ok(), ambiguous.later().ok()),
            AmbiguousOffset::Fold { .. } => (ambiguous.earlier().ok(), None),
        }
    }
}

impl FromStr for Cron {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let no = |why: String| Invalid::new(format!("{text:?} is no cron pattern: {why}")).hint(EXAMPLE);
        let fields: Vec<&str> = text.split_whitespace().collect();
        let hour = match fields.len() {
            1 if text.starts_with('@') => {
                if text.eq_ignore_ascii_case("@hourly") {
                    "*"
                } else {
                    "0"
                }
            }
            5 => fields[1],
            6 => fields[2],
            number => return Err(no(format!("it has {number} fields"))),
        };
        let cron = croner::Cron::from_str(text).map_err(|error| no(plain(&error)))?;
        let parsed = Self { text: text.to_owned(), cron, hourly: hour.contains('*') };
        // Forty years have a 29 February on every weekday.
        let start = jiff::civil::date(2000, 1, 1).at(0, 0, 0, 0);
        match parsed.cron.find_next_occurrence(&start, true) {
            Ok(first) if first.year() < start.year() + YEARS => Ok(parsed),
            _ => Err(Invalid::new(format!("the cron pattern {text:?} never fires"))
                .hint("there is no such day; months have up to 31 days, February 28 or 29")),
        }
    }
}

fn plain(error: &CronError) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("Invalid pattern: ").or(text.strip_prefix("Component error: ")).unwrap_or(&text);
    text.trim_end_matches('.').to_owned()
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Zone;

    fn ts(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn times(cron: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let (cron, zone) = (cron.parse::<Cron>().unwrap(), zone.parse::<Zone>().unwrap());
        let mut at = ts(after);
        let next = std::iter::from_fn(|| {
            at = cron.next_after(at, zone.rules())?;
            Some(at.to_string())
        });
        next.take(count).collect()
    }

    #[test]
    fn times_are_local() {
        assert_eq!(
            times("0 3 * * SUN", "Asia/Jakarta", "2026-03-01T00:00:00Z", 2),
            ["2026-03-07T20:00:00Z", "2026-03-14T20:00:00Z"]
        );
        assert_eq!(times("@daily", "UTC", "2026-03-01T00:00:00Z", 1), ["2026-03-02T00:00:00Z"]);
        assert_eq!(
            times("0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", 2),
            ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]
        );
        assert_eq!(
            times("*/20 30 9 * * *", "UTC", "2026-01-01T00:00:00Z", 2),
            ["2026-01-01T09:30:00Z", "2026-01-01T09:30:20Z"]
        );
    }

    #[test]
    fn a_skipped_time_happens_when_the_gap_ends_and_a_double_one_first() {
        // Berlin: 29 March 2026 02:00 becomes 03:00; 25 October 03:00 becomes 02:00.
        let berlin = |cron, after, count| times(cron, "Europe/Berlin", after, count);
        assert_eq!(berlin("30 2 * * *", "2026-03-28T12:00:00Z", 2), ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
        assert_eq!(berlin("0,30 2 * * *", "2026-03-28T12:00:00Z", 2), ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
        assert_eq!(berlin("30 2 * * *", "2026-10-24T12:00:00Z", 2), ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
        // From inside the second of the two hours the first one is over.
        assert_eq!(berlin("45 2 * * *", "2026-10-25T01:10:00Z", 1), ["2026-10-26T01:45:00Z"]);
        // Samoa had no 30 December 2011.
        assert_eq!(
            times("0 2 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", 2),
            ["2011-12-30T10:00:00Z", "2011-12-30T12:00:00Z"]
        );
    }

    #[test]
    fn every_hour_goes_by_the_clock_that_runs() {
        let berlin = |cron, after, count| times(cron, "Europe/Berlin", after, count);
        let hours = ["2026-10-24T23:30:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"];
        assert_eq!(berlin("30 * * * *", "2026-10-24T23:00:00Z", 4), hours);
        assert_eq!(
            berlin("30 * * * *", "2026-03-29T00:00:00Z", 3),
            ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z"]
        );
    }

    #[test]
    fn the_latest_missed_time_is_found_from_behind() {
        let latest = |cron: &str, since, now| {
            cron.parse::<Cron>().unwrap().latest(ts(since), ts(now), &TimeZone::UTC).map(|at| at.to_string())
        };
        assert_eq!(
            latest("* * * * *", "2020-01-01T00:00:00Z", "2026-01-01T00:00:30Z").unwrap(),
            "2026-01-01T00:00:00Z"
        );
        assert_eq!(
            latest("0 3 * * SUN", "2020-01-01T00:00:00Z", "2026-03-03T00:00:00Z").unwrap(),
            "2026-03-01T03:00:00Z"
        );
        assert_eq!(latest("0 3 * * SUN", "2026-03-01T03:00:00Z", "2026-03-03T00:00:00Z"), None);
    }

    #[test]
    fn what_cannot_be_read_says_what_could() {
        for bad in
            ["", "* * * *", "61 * * * *", "0 3 * * SUM", "0 0 31 2 *", "0 0 30 feb *", "@sometimes", "* * * * * * *"]
        {
            let invalid = bad.parse::<Cron>().unwrap_err();
            assert!(invalid.hint.is_some() && !invalid.message.contains("Component error"), "{bad}: {invalid:?}");
        }
        assert!("0 0 31 2 *".parse::<Cron>().unwrap_err().message.contains("never fires"));
    }
}
