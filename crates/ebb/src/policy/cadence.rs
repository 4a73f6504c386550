//! When a policy runs: at an interval, or at a wall-clock time in a zone, perhaps only inside a window.
//! Invariant: the next time is always later than the one asked about. A wall-clock time that a clock change skips
//! happens at the first instant after the gap; one that comes twice happens the first time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::{Date, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};

use super::field::{Invalid, did_you_mean, nearest};

/// How often a policy runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Cadence {
    /// So long after the last time.
    Every(Duration),
    /// At a wall-clock time.
    At(At),
}

impl Cadence {
    /// The time between two, as far as it is a fixed one; a day otherwise.
    pub fn interval(&self) -> Duration {
        match self {
            Self::Every(interval) => *interval,
            Self::At(_) => Duration::from_secs(24 * 3600),
        }
    }

    /// The first time after `now`.
    pub fn next_after(&self, now: Timestamp, zone: &TimeZone) -> Timestamp {
        match self {
            Self::Every(interval) => now.saturating_add(*interval).unwrap_or(Timestamp::MAX),
            Self::At(at) => at.next_after(now, zone),
        }
    }
}

impl fmt::Display for Cadence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(interval) => f.write_str(&super::human(*interval)),
            Self::At(at) => at.fmt(f),
        }
    }
}

/// A time of day, on one weekday or on each: `02:00`, `SUN 03:00`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct At {
    /// On which day; every day when absent.
    pub weekday: Option<Weekday>,
    /// The wall-clock time.
    pub time: Time,
}

const WEEKDAYS: [(&str, Weekday); 7] = [
    ("MON", Weekday::Monday),
    ("TUE", Weekday::Tuesday),
    ("WED", Weekday::Wednesday),
    ("THU", Weekday::Thursday),
    ("FRI", Weekday::Friday),
    ("SAT", Weekday::Saturday),
    ("SUN", Weekday::Sunday),
];

impl At {
    /// The first time after `now`.
    pub fn next_after(&self, now: Timestamp, zone: &TimeZone) -> Timestamp {
        // From the day before: a day that the zone skipped altogether may still be ahead.
        let today = now.to_zoned(zone.clone()).date();
        let mut date = today.yesterday().unwrap_or(today);
        loop {
            if self.weekday.is_none_or(|weekday| date.weekday() == weekday) {
                let instant = instant(date, self.time, zone);
                if instant > now {
                    return instant;
                }
            }
            date = match date.tomorrow() {
                Ok(date) => date,
                Err(_) => return Timestamp::MAX,
            };
        }
    }
}

/// The instant at which clocks in the zone first show this time, or pass it by.
pub(super) fn instant(date: Date, time: Time, zone: &TimeZone) -> Timestamp {
    let ambiguous = zone.to_ambiguous_timestamp(date.to_datetime(time));
    let offset = ambiguous.offset();
    let earlier = ambiguous.earlier().unwrap_or(Timestamp::MAX);
    match offset {
        AmbiguousOffset::Gap { .. } => zone.following(earlier).next().map_or(earlier, |change| change.timestamp()),
        _ => earlier,
    }
}

impl FromStr for At {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [time] => Ok(Self { weekday: None, time: time_of_day(text, time)? }),
            [day, time] => {
                let found = WEEKDAYS.iter().find(|(name, _)| name.eq_ignore_ascii_case(day));
                let Some((_, weekday)) = found else {
                    let short: String = day.chars().take(3).collect();
                    let names = WEEKDAYS.iter().map(|(name, _)| *name);
                    let hint =
                        nearest(&short, names).map_or("MON, TUE, WED, THU, FRI, SAT or SUN".into(), did_you_mean);
                    return Err(Invalid::new(format!("`{day}` in {text:?} is no weekday")).hint(hint));
                };
                Ok(Self { weekday: Some(*weekday), time: time_of_day(text, time)? })
            }
            _ => {
                Err(Invalid::new(format!("{text:?} is no time of day")).hint("for example \"02:00\" or \"SUN 03:00\""))
            }
        }
    }
}

fn time_of_day(whole: &str, text: &str) -> Result<Time, Invalid> {
    let no = || Invalid::new(format!("{whole:?} is no time of day")).hint("hours and minutes, for example \"02:00\"");
    let (hour, minute) = text.split_once(':').ok_or_else(no)?;
    let digits = |part: &str, len: std::ops::RangeInclusive<usize>| {
        let fits = len.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        if fits { part.parse::<i8>().map_err(|_| no()) } else { Err(no()) }
    };
    Time::new(digits(hour, 1..=2)?, digits(minute, 2..=2)?, 0, 0).map_err(|_| no())
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = WEEKDAYS.iter().find(|(_, weekday)| Some(*weekday) == self.weekday) {
            write!(f, "{name} ")?;
        }
        write!(f, "{:02}:{:02}", self.time.hour(), self.time.minute())
    }
}

/// The hours in which batches may start: `22:00-05:00`. The first minute belongs to it, the last does not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    start: Time,
    end: Time,
}

impl Window {
    /// Whether it is open.
    pub fn contains(&self, now: Timestamp, zone: &TimeZone) -> bool {
        self.covers(now.to_zoned(zone.clone()).time())
    }

    /// Whether a wall-clock time lies in it.
    pub fn covers(&self, time: Time) -> bool {
        if self.start < self.end {
            self.start <= time && time < self.end
        } else {
            self.start <= time || time < self.end
        }
    }

    /// When it opens next; `None` while it is open.
    pub fn closed_until(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        (!self.contains(now, zone)).then(|| self.next_open(now, zone))
    }

    /// When it is open next: `now` itself while it is.
    pub fn next_open(&self, now: Timestamp, zone: &TimeZone) -> Timestamp {
        let opens = At { weekday: None, time: self.start };
        let mut at = now;
        // A clock change can swallow a short window on one day, so look further; it cannot on most days of a year.
        for _ in 0..400 {
            if self.contains(at, zone) {
                break;
            }
            at = opens.next_after(at, zone);
        }
        at
    }
}

impl FromStr for Window {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let (start, end) = text
            .split_once('-')
            .ok_or_else(|| Invalid::new(format!("{text:?} is no window")).hint("for example \"22:00-05:00\""))?;
        let start = time_of_day(text, start.trim())?;
        let end = if end.trim() == "24:00" { Time::midnight() } else { time_of_day(text, end.trim())? };
        if start == end {
            let invalid = Invalid::new(format!("the window {text:?} ends when it starts"));
            return Err(invalid.hint("leave `window` out to allow the whole day"));
        }
        Ok(Self { start, end })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, end } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", start.hour(), start.minute(), end.hour(), end.minute())
    }
}

/// A time zone of the IANA database.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

impl Zone {
    /// UTC, the default.
    pub fn utc() -> Self {
        Self { name: "UTC".into(), zone: TimeZone::UTC }
    }

    /// Its name, as PostgreSQL knows it too.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its rules.
    pub fn rules(&self) -> &TimeZone {
        &self.zone
    }
}

impl FromStr for Zone {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.eq_ignore_ascii_case("utc") {
            return Ok(Self::utc());
        }
        let db = jiff::tz::db();
        if let Ok(zone) = db.get(text)
            && let Some(name) = zone.iana_name().map(str::to_owned)
        {
            return Ok(Self { name, zone });
        }
        let known: Vec<String> = db.available().map(|name| name.to_string()).collect();
        let city = |name: &str| name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
        let meant = nearest(text, known.iter().map(String::as_str))
            .or_else(|| known.iter().map(String::as_str).find(|name| city(name) == city(text)));
        let hint = meant.map_or_else(|| "an IANA name such as \"Asia/Jakarta\", or \"UTC\"".into(), did_you_mean);
        Err(Invalid::new(format!("{text:?} is no time zone")).hint(hint))
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use proptest::prelude::*;

    use super::*;

    fn ts(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn zone(name: &str) -> TimeZone {
        name.parse::<Zone>().unwrap().rules().clone()
    }

    fn next(at: &str, now: &str, name: &str) -> String {
        Cadence::At(at.parse().unwrap()).next_after(ts(now), &zone(name)).to_string()
    }

    #[test]
    fn a_time_of_day_is_local_and_strictly_later() {
        assert_eq!(next("02:00", "2026-03-01T01:59:59Z", "UTC"), "2026-03-01T02:00:00Z");
        assert_eq!(next("02:00", "2026-03-01T02:00:00Z", "UTC"), "2026-03-02T02:00:00Z");
        assert_eq!(next("02:00", "2026-03-01T00:00:00Z", "Asia/Jakarta"), "2026-03-01T19:00:00Z");
        assert_eq!(next("SUN 03:00", "2026-03-01T03:00:00Z", "UTC"), "2026-03-08T03:00:00Z");
        assert_eq!(next("sun 3:00", "2026-03-01T02:00:00Z", "UTC"), "2026-03-01T03:00:00Z");
    }

    #[test]
    fn a_skipped_time_happens_when_the_gap_ends_and_a_double_one_first() {
        // Berlin: 29 March 2026 02:00 becomes 03:00; 25 October 03:00 becomes 02:00.
        assert_eq!(next("02:30", "2026-03-28T12:00:00Z", "Europe/Berlin"), "2026-03-29T01:00:00Z");
        assert_eq!(next("02:30", "2026-03-29T01:00:00Z", "Europe/Berlin"), "2026-03-30T00:30:00Z");
        assert_eq!(next("02:30", "2026-10-24T12:00:00Z", "Europe/Berlin"), "2026-10-25T00:30:00Z");
        assert_eq!(next("02:30", "2026-10-25T00:30:00Z", "Europe/Berlin"), "2026-10-26T01:30:00Z");
        // Samoa had no 30 December 2011.
        assert_eq!(next("02:00", "2011-12-29T12:00:00Z", "Pacific/Apia"), "2011-12-30T10:00:00Z");
    }

    #[test]
    fn an_interval_is_added() {
        let hourly = Cadence::Every(Duration::from_secs(3600));
        assert_eq!(hourly.next_after(ts("2026-01-01T00:10:00Z"), &TimeZone::UTC), ts("2026-01-01T01:10:00Z"));
        assert_eq!(hourly.next_after(Timestamp::MAX, &TimeZone::UTC), Timestamp::MAX);
    }

    #[test]
    fn a_window_may_wrap_midnight() {
        let window: Window = "22:00-05:00".parse().unwrap();
        let open = |text: &str| window.contains(ts(text), &TimeZone::UTC);
        assert!(open("2026-01-01T22:00:00Z") && open("2026-01-01T04:59:59Z"));
        assert!(!open("2026-01-01T05:00:00Z") && !open("2026-01-01T21:59:59Z"));
        let next = |text: &str| window.next_open(ts(text), &TimeZone::UTC).to_string();
        assert_eq!(next("2026-01-01T12:00:00Z"), "2026-01-01T22:00:00Z");
        assert_eq!(next("2026-01-01T23:00:00Z"), "2026-01-01T23:00:00Z");
        let short: Window = "02:10-02:40".parse().unwrap();
        let berlin = zone("Europe/Berlin");
        assert_eq!(short.next_open(ts("2026-03-28T12:00:00Z"), &berlin), ts("2026-03-30T00:10:00Z"));
        assert_eq!("20:00-24:00".parse::<Window>().unwrap().to_string(), "20:00-00:00");
    }

    #[test]
    fn what_cannot_be_read_says_what_could() {
        for bad in ["25:00", "2", "02:60", "02:0", "SUN", "SUN 03:00 x", "", "-1:00", "02:00:00"] {
            assert!(bad.parse::<At>().is_err(), "{bad}");
        }
        assert_eq!("Sunday 03:00".parse::<At>().unwrap_err().hint.unwrap(), "did you mean `SUN`?");
        assert!("22:00-22:00".parse::<Window>().unwrap_err().hint.unwrap().contains("leave `window` out"));
        for bad in ["22:00", "22:00-", "24:00-05:00", "a-b"] {
            assert!(bad.parse::<Window>().is_err(), "{bad}");
        }
        assert_eq!("Asia/Jakrata".parse::<Zone>().unwrap_err().hint.unwrap(), "did you mean `Asia/Jakarta`?");
        assert_eq!("jakarta".parse::<Zone>().unwrap_err().hint.unwrap(), "did you mean `Asia/Jakarta`?");
        assert_eq!("europe/berlin".parse::<Zone>().unwrap().name(), "Europe/Berlin");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*", near in "[A-Z]{0,3} ?[0-9]{0,3}:?[0-9]{0,3}(-[0-9]{0,2}:[0-9]{2})?") {
            let _ = (text.parse::<At>(), text.parse::<Window>(), near.parse::<At>(), near.parse::<Window>());
        }

        #[test]
        fn the_next_time_is_later(seconds in 0_i64..4_000_000_000, hour in 0_i8..24, minute in 0_i8..60) {
            let at = At { weekday: None, time: Time::new(hour, minute, 0, 0).unwrap() };
            let now = Timestamp::from_second(seconds).unwrap();
            let next = at.next_after(now, &zone("America/Sao_Paulo"));
            prop_assert!(next > now && next <= now + 26.hours());
        }
    }
}
