//! How resources are named: a prefix, an id that carries the moment it was made, a suffix. Invariant: a name that does
//! not parse to the last character belongs to somebody else and has no time; what has no time is never touched.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use super::field::Invalid;

/// `t{snowflake}`, `tmp_{uuid7}`, `{ulid}.parquet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    prefix: String,
    id: Id,
    suffix: String,
}

/// How an id says when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Id {
    /// A decimal number whose upper bits are milliseconds; the default is the layout of ClickHouse's
    /// `generateSnowflakeID`.
    Snowflake {
        /// What the milliseconds count from, in milliseconds since 1970.
        epoch_ms: u64,
        /// How many lower bits are not time.
        shift: u32,
    },
    /// A UUID of version 7, with hyphens or without.
    Uuid7,
    /// 26 characters of Crockford's base 32.
    Ulid,
}

impl Id {
    /// Snowflakes as ClickHouse makes them.
    pub const SNOWFLAKE: Id = Id::Snowflake { epoch_ms: 0, shift: 22 };

    fn as_str(self) -> &'static str {
        match self {
            Id::Snowflake { .. } => "{snowflake}",
            Id::Uuid7 => "{uuid7}",
            Id::Ulid => "{ulid}",
        }
    }

    /// The same as a regular expression of PostgreSQL; it matches exactly what [`Id::made_at`] reads.
    fn expression(self) -> &'static str {
        match self {
            Id::Snowflake { .. } => "(0|[1-9][0-9]{0,17}|[1-8][0-9]{18})",
            Id::Uuid7 => {
                "([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}\
                 |[0-9a-fA-F]{12}7[0-9a-fA-F]{3}[89abAB][0-9a-fA-F]{15})"
            }
            Id::Ulid => "[0-7][0-9a-hjkmnp-tv-zA-HJKMNP-TV-Z]{25}",
        }
    }

    /// When the id was made, by whoever made it.
    fn made_at(self, text: &str) -> Option<Timestamp> {
        let millis = match self {
            Id::Snowflake { epoch_ms, shift } => {
                let canonical = text == "0" || !text.starts_with('0');
                let digits = canonical && text.bytes().all(|byte| byte.is_ascii_digit());
                let number: u64 = text.parse().ok().filter(|number| digits && *number < 9_000_000_000_000_000_000)?;
                (number >> shift).checked_add(epoch_ms)?
            }
            Id::Uuid7 => uuid7_millis(text)?,
            Id::Ulid => ulid_millis(text)?,
        };
        Timestamp::from_millisecond(i64::try_from(millis).ok()?).ok()
    }
}

fn uuid7_millis(text: &str) -> Option<u64> {
    let hyphens: &[usize] = &[8, 13, 18, 23];
    let plain: String = match text.len() {
        32 => text.to_owned(),
        36 if hyphens.iter().all(|at| text.as_bytes()[*at] == b'-') => text.replace('-', ""),
        _ => return None,
    };
    let hex = plain.len() == 32 && plain.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (version, variant) = (*plain.as_bytes().get(12)?, *plain.as_bytes().get(16)?);
    if !hex || version != b'7' || !b"89abAB".contains(&variant) {
        return None;
    }
    u64::from_str_radix(&plain[..12], 16).ok()
}

fn ulid_millis(text: &str) -> Option<u64> {
    const ALPHABET: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let digit = |byte: u8| ALPHABET.iter().position(|known| *known == byte.to_ascii_uppercase());
    if text.len() != 26
        || !text.bytes().all(|byte| digit(byte).is_some())
        || !(b'0'..=b'7').contains(&text.as_bytes()[0])
    {
        return None;
    }
    text.bytes().take(10).try_fold(0_u64, |millis, byte| Some(millis << 5 | digit(byte)? as u64))
}

impl Pattern {
    /// Reads `t{snowflake}`; what a snowflake looks like is said beside it.
    pub fn parse(text: &str, snowflake: Id) -> Result<Self, Invalid> {
        let example = "for example \"t{snowflake}\", \"tmp_{uuid7}\" or \"{ulid}.parquet\"";
        let wrong = |message: String| Invalid::new(message).hint(example);
        let (open, close) = match (text.find('{'), text.find('}')) {
            (Some(open), Some(close)) if open < close => (open, close),
            _ => {
                return Err(wrong(format!("`pattern` {text:?} has no id: without one nothing says how old a name is")));
            }
        };
        let id = match &text[open..=close] {
            "{snowflake}" => snowflake,
            "{uuid7}" => Id::Uuid7,
            "{ulid}" => Id::Ulid,
            other => {
                return Err(wrong(format!("`pattern` has no {other}: it is {{snowflake}}, {{uuid7}} or {{ulid}}")));
            }
        };
        let (prefix, suffix) = (&text[..open], &text[close + 1..]);
        if prefix.contains(['{', '}']) || suffix.contains(['{', '}']) {
            return Err(wrong(format!("`pattern` {text:?} has more than one id")));
        }
        if suffix.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(wrong(format!("in `pattern` {text:?} nobody can tell where the id ends")));
        }
        if prefix.ends_with(|c: char| c.is_ascii_digit()) {
            return Err(wrong(format!("in `pattern` {text:?} nobody can tell where the id begins")));
        }
        if prefix.bytes().chain(suffix.bytes()).any(|byte| !(byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))) {
            return Err(wrong("`pattern` may have letters, digits, _, - and . around the id".into()));
        }
        Ok(Self { prefix: prefix.to_owned(), id, suffix: suffix.to_owned() })
    }

    /// What every name begins with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// When a name was made up; `None` when it is none of ours.
    pub fn made_at(&self, name: &str) -> Option<Timestamp> {
        let id = name.strip_prefix(self.prefix.as_str())?.strip_suffix(self.suffix.as_str())?;
        self.id.made_at(id)
    }

    /// A regular expression of PostgreSQL for the whole name.
    pub fn expression(&self) -> String {
        let escape = |text: &str| text.replace('.', "\\.");
        format!("^{}{}{}$", escape(&self.prefix), self.id.expression(), escape(&self.suffix))
    }

    /// How old a name is at a moment; nothing for a name of the future.
    pub fn age(&self, name: &str, now: Timestamp) -> Option<Duration> {
        Some(Duration::try_from(now.duration_since(self.made_at(name)?)).unwrap_or(Duration::ZERO))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.prefix, self.id.as_str(), self.suffix)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text, Id::SNOWFLAKE).unwrap()
    }

    fn millis(pattern: &Pattern, name: &str) -> Option<i64> {
        pattern.made_at(name).map(|at| at.as_millisecond())
    }

    #[test]
    fn ids_tell_when_they_were_made() {
        // The UUID is the example of RFC 9562, the ULID that of its specification, the last one a tweet.
        assert_eq!(millis(&pattern("t{snowflake}"), "t7199081390080409600"), Some(7_199_081_390_080_409_600 >> 22));
        let uuid = pattern("tmp_{uuid7}");
        assert_eq!(millis(&uuid, "tmp_017f22e2-79b0-7cc3-98c4-dc0c0c07398f"), Some(1_645_557_742_000));
        assert_eq!(millis(&uuid, "tmp_017F22E279B07CC398C4DC0C0C07398F"), Some(1_645_557_742_000));
        assert_eq!(millis(&pattern("{ulid}.parquet"), "01ARZ3NDEKTSV4RRFFQ69G5FAV.parquet"), Some(1_469_922_850_259));
        let twitter = Id::Snowflake { epoch_ms: 1_288_834_974_657, shift: 22 };
        let tweet = Pattern::parse("t{snowflake}", twitter).unwrap();
        assert_eq!(millis(&tweet, "t1050118621198921728"), Some(1539202764211));
    }

    #[test]
    fn what_does_not_parse_to_the_end_has_no_time() {
        let snowflake = pattern("t{snowflake}");
        for name in ["t", "t-1", "t+1", "t01", "T1", "tx1", "t1x", "t1 ", "users", "t9999999999999999999", "t１"] {
            assert_eq!(snowflake.made_at(name), None, "{name}");
        }
        let uuid = pattern("{uuid7}");
        for name in ["017f22e2-79b0-4cc3-98c4-dc0c0c07398f", "017f22e2-79b0-7cc3-c8c4-dc0c0c07398f", "017f22e2", "é"] {
            assert_eq!(uuid.made_at(name), None, "{name}");
        }
        for name in ["81ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAU!", "01ARZ3NDEKTSV4RRFFQ69G5FAI"] {
            assert_eq!(pattern("{ulid}").made_at(name), None, "{name}");
        }
    }

    #[test]
    fn a_pattern_that_could_mean_two_things_is_refused() {
        for wrong in
            ["t", "{snowflake", "t{id}", "t1{snowflake}", "t{snowflake}1", "{ulid}{ulid}", "a b{ulid}", "%{ulid}"]
        {
            assert!(Pattern::parse(wrong, Id::SNOWFLAKE).is_err(), "{wrong}");
        }
        assert_eq!(pattern("tmp_{uuid7}.x").to_string(), "tmp_{uuid7}.x");
    }

    proptest! {
        #[test]
        fn no_name_makes_it_panic(name in "\\PC{0,40}") {
            for text in ["t{snowflake}", "{uuid7}", "{ulid}"] {
                let _ = pattern(text).made_at(&name);
            }
        }
    }
}
