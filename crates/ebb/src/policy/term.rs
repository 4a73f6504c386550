//! Calendar durations. A term keeps months, days and time apart, because a month is no number of days and, where
//! clocks change, a day is no number of hours. Invariant: never negative, at most 1000 years, and its text reads back.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use sqlx::postgres::types::PgInterval;

use super::field::Invalid;

/// How long: `90d`, `12mo`, `1h30m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Term {
    months: i32,
    days: i32,
    micros: i64,
}

const SECOND: i128 = 1_000_000;
const DAY: i128 = 86_400 * SECOND;
/// The Gregorian mean, only for the limit.
const MONTH: i128 = 2_629_800 * SECOND;
const LIMIT: i128 = 12_000 * MONTH;

const UNITS: &str = "units are us, ms, s, m (minutes), h, d, w, mo (months) and y";

impl Term {
    /// A term of whole months, days and microseconds; `None` beyond 1000 years or below nothing.
    pub fn new(months: i32, days: i32, micros: i64) -> Option<Self> {
        let total = i128::from(months) * MONTH + i128::from(days) * DAY + i128::from(micros);
        (months >= 0 && days >= 0 && micros >= 0 && total <= LIMIT).then_some(Self { months, days, micros })
    }

    /// So many calendar days.
    pub const fn days(days: u16) -> Self {
        Self { months: 0, days: days as i32, micros: 0 }
    }

    /// So many seconds.
    pub const fn seconds(seconds: u32) -> Self {
        Self { months: 0, days: 0, micros: seconds as i64 * 1_000_000 }
    }

    /// Whether it is no time at all.
    pub fn is_zero(&self) -> bool {
        self.months == 0 && self.days == 0 && self.micros == 0
    }

    /// About how many microseconds, a month counted as the mean: for saying which of two terms is longer.
    pub(crate) fn approximate(&self) -> i128 {
        i128::from(self.months) * MONTH + i128::from(self.days) * DAY + i128::from(self.micros)
    }

    /// Whether it is never over before another, whatever months they count.
    pub(crate) fn never_shorter(&self, other: &Term) -> bool {
        let rest = |term: &Term| i128::from(term.days) * DAY + i128::from(term.micros);
        if self.months >= other.months && rest(self) >= rest(other) {
            return true;
        }
        // Some months are longer than the mean and some shorter, by less than two days in a row.
        let slack = |term: &Term| if term.months > 0 { 2 * DAY } else { 0 };
        self.approximate() - slack(self) >= other.approximate() + slack(other)
    }

    /// The term as PostgreSQL's `interval`.
    pub fn to_interval(&self) -> PgInterval {
        PgInterval { months: self.months, days: self.days, microseconds: self.micros }
    }

    /// The moment so long after another, by the calendar in UTC; `None` where there is no such time.
    pub fn after(&self, moment: Timestamp) -> Option<Timestamp> {
        let span = Span::new().try_months(self.months).and_then(|span| span.try_days(self.days));
        let span = span.and_then(|span| span.try_microseconds(self.micros)).ok()?;
        Some(moment.to_zoned(TimeZone::UTC).checked_add(span).ok()?.timestamp())
    }

    /// The term as a fixed length; a day counts 24 hours, a month has none.
    pub fn as_duration(&self) -> Result<Duration, Invalid> {
        if self.months != 0 {
            let invalid = Invalid::new(format!("{self} has no fixed length, and this needs one"));
            let days = i64::from(self.months) * 365 / 12 + i64::from(self.days);
            return Err(invalid.hint(format!("write it in days or hours, for example \"{days}d\"")));
        }
        // Both parts are kept from being negative, and 1000 years of microseconds fit.
        let days = Duration::from_secs(u64::from(self.days.unsigned_abs()) * 86_400);
        Ok(days + Duration::from_micros(self.micros.unsigned_abs()))
    }
}

impl FromStr for Term {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let no = |message: String| Invalid::new(format!("{text:?} is not a duration: {message}"));
        let example = "for example \"30s\", \"24h\", \"90d\", \"1h30m\"";
        if text.is_empty() {
            return Err(no("it is empty".into()).hint(example));
        }
        if let Some(rest) = text.strip_prefix(['-', '+']) {
            let what = if text.starts_with('-') { "it cannot be negative" } else { "it has no sign" };
            let positive = rest.parse::<Term>().is_ok();
            return Err(no(what.into()).hint(if positive {
                format!("did you mean {rest:?}?")
            } else {
                example.into()
            }));
        }
        let (mut months, mut days, mut micros) = (0_i128, 0_i128, 0_i128);
        let mut seen = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
            let (unit, after) = after.split_at(after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len()));
            if number.is_empty() || unit.is_empty() {
                return Err(misread(text, number, unit, after).unwrap_or_else(|| no(UNITS.into()).hint(example)));
            }
            // Nineteen digits fit an i128 times any unit; longer ones are beyond the limit anyway.
            let number: i128 = if number.trim_start_matches('0').len() > 19 {
                LIMIT
            } else {
                number.parse().map_err(|_| no(UNITS.into()))?
            };
            let (sum, factor) = match unit {
                "us" => (&mut micros, 1),
                "ms" => (&mut micros, 1_000),
                "s" => (&mut micros, SECOND),
                "m" => (&mut micros, 60 * SECOND),
                "h" => (&mut micros, 3_600 * SECOND),
                "d" => (&mut days, 1),
                "w" => (&mut days, 7),
                "mo" => (&mut months, 1),
                "y" => (&mut months, 12),
                other => return Err(unknown_unit(text, other)),
            };
            if seen.contains(&unit) {
                return Err(no(format!("`{unit}` comes twice")));
            }
            seen.push(unit);
            *sum += number * factor;
            rest = after;
        }
        let narrow = || Term::new(months.try_into().ok()?, days.try_into().ok()?, micros.try_into().ok()?);
        narrow().ok_or_else(|| no("it is longer than 1000 years".into()))
    }
}

/// What was probably meant by something that is not number, unit, number, unit.
fn misread(text: &str, number: &str, unit: &str, after: &str) -> Option<Invalid> {
    let says = |message: &str| Invalid::new(format!("{text:?} is not a duration: {message}"));
    if text.chars().all(|c| c.is_ascii_digit()) {
        return Some(
            says("it has no unit")
                .hint(format!("write it with its unit, for example \"{text}s\" or \"{text}d\"; {UNITS}")),
        );
    }
    if text.chars().any(char::is_whitespace) {
        let joined: String = text.split_whitespace().collect();
        return joined.parse::<Term>().is_ok().then(|| says("it has spaces").hint(format!("did you mean {joined:?}?")));
    }
    if !number.is_empty() && unit.is_empty() && after.starts_with(['.', ',']) {
        return Some(says("numbers are whole").hint("write a sum instead, for example \"1h30m\""));
    }
    (!number.is_empty() && unit.is_empty() && after.is_empty()).then(|| says("its last number has no unit").hint(UNITS))
}

fn unknown_unit(text: &str, unit: &str) -> Invalid {
    let lower = unit.to_lowercase();
    let meant = match lower.as_str() {
        "min" | "mins" | "minute" | "minutes" => "m",
        "sec" | "secs" | "second" | "seconds" => "s",
        "hr" | "hrs" | "hour" | "hours" => "h",
        "day" | "days" => "d",
        "week" | "weeks" => "w",
        "mon" | "mons" | "month" | "months" => "mo",
        "yr" | "yrs" | "year" | "years" => "y",
        "µs" | "μs" => "us",
        // M may have been meant as minutes or as months.
        "m" => "",
        lower if ["us", "ms", "s", "h", "d", "w", "mo", "y"].contains(&lower) => lower,
        _ => "",
    };
    let invalid = Invalid::new(format!("{text:?} is not a duration: `{unit}` is no unit"));
    if meant.is_empty() { invalid.hint(UNITS) } else { invalid.hint(format!("did you mean `{meant}`? {UNITS}")) }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0s");
        }
        let (months, days, mut micros) = (i64::from(self.months), i64::from(self.days), self.micros);
        for (amount, unit) in [(months / 12, "y"), (months % 12, "mo"), (days, "d")] {
            if amount != 0 {
                write!(f, "{amount}{unit}")?;
            }
        }
        for (size, unit) in [(3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms"), (1, "us")] {
            if micros >= size {
                write!(f, "{}{unit}", micros / size)?;
                micros %= size;
            }
        }
        Ok(())
    }
}

/// A measured duration for people and logs: `350ms`, `2.5s`, `1h30m`, `3d`.
pub fn human(duration: Duration) -> String {
    if duration.is_zero() {
        return "0s".into();
    }
    if duration < Duration::from_millis(1) {
        return format!("{}us", duration.as_micros().max(1));
    }
    if duration < Duration::from_secs(1) {
        return format!("{}ms", duration.as_millis());
    }
    if duration < Duration::from_secs(60) {
        let text = format!("{}.{:03}", duration.as_secs(), duration.subsec_millis());
        return format!("{}s", text.trim_end_matches('0').trim_end_matches('.'));
    }
    // Hours up to two days, as people say "24h" and "36h".
    let mut rest = duration.as_secs();
    let mut text = String::new();
    for (size, unit, from) in [(86_400, "d", 2 * 86_400), (3_600, "h", 3_600), (60, "m", 60), (1, "s", 1)] {
        if rest >= from {
            text.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> Invalid {
        text.parse::<Term>().unwrap_err()
    }

    #[test]
    fn every_unit_goes_where_postgresql_keeps_it() {
        let parse = |text: &str| text.parse::<Term>().unwrap();
        assert_eq!(parse("1y6mo"), Term::new(18, 0, 0).unwrap());
        assert_eq!(parse("2w1d"), Term::days(15));
        assert_eq!(parse("1h30m"), Term::seconds(5400));
        assert_eq!(parse("100ms5us").micros, 100_005);
        assert_eq!(parse("1h0m0s"), Term::seconds(3600));
        assert_eq!(parse("0s").to_string(), "0s");
        assert_eq!(parse("24h").to_string(), "24h");
        let interval = parse("1mo2d3s").to_interval();
        assert_eq!((interval.months, interval.days, interval.microseconds), (1, 2, 3_000_000));
    }

    #[test]
    fn what_is_no_duration_says_what_would_be() {
        assert_eq!(
            refused("90").hint.unwrap(),
            format!("write it with its unit, for example \"90s\" or \"90d\"; {UNITS}")
        );
        assert_eq!(refused("-5m").message, "\"-5m\" is not a duration: it cannot be negative");
        assert_eq!(refused("-5m").hint.unwrap(), "did you mean \"5m\"?");
        assert!(refused("5min").hint.unwrap().starts_with("did you mean `m`?"));
        assert!(refused("90D").hint.unwrap().starts_with("did you mean `d`?"));
        assert_eq!(refused("1h 30m").hint.unwrap(), "did you mean \"1h30m\"?");
        assert!(refused("1.5h").message.contains("whole"));
        assert!(refused("1h30").message.contains("last number"));
        assert!(refused("1h1h").message.contains("twice"));
        assert!(refused("1001y").message.contains("1000 years"));
        assert!(refused("99999999999999999999999999999999999999999999y").message.contains("1000 years"));
        assert!(refused("9223372036854775807h").message.contains("1000 years"));
        for text in ["", "h", "--5m", "1h-5m", "١h", "5", "1d2"] {
            refused(text);
        }
    }

    #[test]
    fn months_have_no_fixed_length() {
        assert_eq!("1d".parse::<Term>().unwrap().as_duration().unwrap(), Duration::from_secs(86_400));
        assert!("1mo".parse::<Term>().unwrap().as_duration().unwrap_err().message.contains("no fixed length"));
    }

    #[test]
    fn a_term_ahead_goes_by_the_calendar() {
        let after = |term: &str, moment: &str| {
            let after = term.parse::<Term>().unwrap().after(moment.parse().unwrap());
            after.map(|after| after.to_string())
        };
        assert_eq!(after("3mo", "2026-11-30T12:00:00Z").as_deref(), Some("2027-02-28T12:00:00Z"));
        assert_eq!(after("1y2d3h", "2026-11-30T12:00:00Z").as_deref(), Some("2027-12-02T15:00:00Z"));
        assert_eq!(after("1000y", "9500-01-01T00:00:00Z"), None);
    }

    #[test]
    fn durations_read_as_people_say_them() {
        let ms = Duration::from_millis;
        let said = [ms(0), ms(350), ms(2500), ms(1000), ms(60_000), ms(3_600_000), ms(5_400_000), ms(86_400_000)];
        assert_eq!(said.map(human), ["0s", "350ms", "2.5s", "1s", "1m", "1h", "1h30m", "24h"]);
        assert_eq!(human(Duration::from_secs(3 * 86_400 + 60)), "3d1m");
        assert_eq!(human(Duration::from_nanos(1)), "1us");
    }

    proptest! {
        #[test]
        fn a_term_reads_back_from_its_text(months in 0..6000, days in 0..100_000, micros in 0..1_000_000_000_000_000_i64) {
            let term = Term::new(months, days, micros).unwrap();
            prop_assert_eq!(term.to_string().parse::<Term>().unwrap(), term);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*", digits in "[0-9]{0,60}(us|ms|mo|m|h|d|y| )?.{0,3}") {
            let _ = text.parse::<Term>();
            if let Ok(term) = digits.parse::<Term>() {
                prop_assert_eq!(term.to_string().parse::<Term>().unwrap(), term);
            }
        }
    }
}
