//! Numbers and times for people. JSON carries them plain.

use std::time::Duration;

use ebb::audit::Moment;

/// `1,234,567`.
pub(crate) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1,234`, or `~1,230,000` where it is estimated: digits that are not known are not shown.
pub(crate) fn about(value: u64, exact: bool) -> String {
    if exact {
        return number(value);
    }
    let step = 10_u64.pow(value.checked_ilog10().unwrap_or(0).saturating_sub(2));
    format!("~{}", number(value / step * step))
}

/// `64 MB`.
pub(crate) fn bytes(value: u64) -> String {
    let mut size = value as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if size < 1000.0 {
            return if size < 10.0 && unit != "B" { format!("{size:.1} {unit}") } else { format!("{size:.0} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TB")
}

/// A duration in its largest unit, or its two largest: `350ms`, `2.5s`, `4m`, `1h30m`, `3d`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.as_millis() < 1 => "0s".into(),
        0 => format!("{}ms", duration.as_millis()),
        1..=9 => format!("{:.1}s", duration.as_secs_f64()),
        10..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m", seconds / 60),
        3_600..=172_799 => match (seconds / 3_600, seconds % 3_600 / 60) {
            (hours, 0) => format!("{hours}h"),
            (hours, minutes) => format!("{hours}h{minutes}m"),
        },
        _ => format!("{}d", seconds / 86_400),
    }
}

/// `3m ago`, `in 2h`, `now`.
pub(crate) fn relative(moment: Moment, now: Moment) -> String {
    let (Some(then), Some(now)) = (moment.timestamp(), now.timestamp()) else {
        return if moment == Moment::NEG_INFINITY { "now".into() } else { moment.to_string() };
    };
    let distance = now.duration_since(then);
    let span = span(distance.unsigned_abs());
    match distance.as_millis() {
        -999..=999 => "now".into(),
        1_000.. => format!("{span} ago"),
        _ => format!("in {span}"),
    }
}

/// When work is due: what has passed is due now.
pub(crate) fn upcoming(moment: Moment, now: Moment) -> String {
    if moment <= now { "now".into() } else { relative(moment, now) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable_and_claim_no_more_than_is_known() {
        assert_eq!((number(0), number(999), number(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!((about(1_234_567, false), about(7, false)), ("~1,230,000".into(), "~7".into()));
        assert_eq!(
            (bytes(8192), bytes(125 << 20), bytes(3 << 40)),
            ("8.0 kB".into(), "125 MB".into(), "3.0 TB".into())
        );
    }

    #[test]
    fn times_are_relative() {
        let at = |seconds: i64| Moment::from_micros(1_700_000_000_000_000 + seconds * 1_000_000);
        assert_eq!(relative(at(0), at(200)), "3m ago");
        assert_eq!(relative(at(5400), at(0)), "in 1h30m");
        assert_eq!(upcoming(Moment::NEG_INFINITY, at(0)), "now");
        assert_eq!(upcoming(at(0), at(50)), "now");
    }
}
