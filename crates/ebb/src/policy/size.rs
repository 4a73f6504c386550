//! Sizes in bytes, written as PostgreSQL writes them: `64MB` is 64 times 1024 times 1024.
//! Invariant: fits a `bigint`, and its text reads back.

use std::fmt;
use std::str::FromStr;

use super::field::{Invalid, did_you_mean};

/// So many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

const UNITS: [(&str, u64); 5] = [("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10), ("B", 1)];

impl Size {
    /// So many gigabytes, for defaults.
    pub const fn gigabytes(gigabytes: u16) -> Self {
        Self((gigabytes as u64) << 30)
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let no = |message: &str| Invalid::new(format!("{text:?} is not a size: {message}"));
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        if number.is_empty() {
            return Err(no("it starts with no number").hint("for example \"64MB\""));
        }
        if unit.is_empty() {
            return Err(
                no("it has no unit").hint(format!("did you mean \"{number}MB\"? units are B, kB, MB, GB and TB"))
            );
        }
        let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            let plain = unit.trim().to_lowercase().replace("ib", "b");
            let meant = UNITS.iter().find(|(name, _)| {
                let name = name.to_lowercase();
                name == plain || name.strip_suffix('b') == Some(plain.as_str())
            });
            let hint = meant.map(|(name, _)| did_you_mean(&format!("{number}{name}")));
            return Err(no(&format!("`{}` is no unit", unit.trim()))
                .hint(hint.unwrap_or_else(|| "units are B, kB, MB, GB and TB".into())));
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
        match bytes.filter(|bytes| i64::try_from(*bytes).is_ok()) {
            Some(bytes) => Ok(Self(bytes)),
            None => Err(no("it is too large")),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = UNITS.iter().find(|(_, factor)| self.0 != 0 && self.0.is_multiple_of(*factor));
        let (unit, factor) = whole.unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_are_powers_of_1024() {
        assert_eq!("64MB".parse::<Size>().unwrap().bytes(), 64 * 1024 * 1024);
        assert_eq!("512kB".parse::<Size>().unwrap().bytes(), 512 * 1024);
        assert_eq!("2048MB".parse::<Size>().unwrap(), Size::gigabytes(2));
        assert_eq!(Size::gigabytes(2).to_string(), "2GB");
        assert_eq!("0B".parse::<Size>().unwrap().to_string(), "0B");
    }

    #[test]
    fn what_is_no_size_says_what_would_be() {
        let hint = |text: &str| text.parse::<Size>().unwrap_err().hint.unwrap_or_default();
        assert!(hint("64").starts_with("did you mean \"64MB\"?"));
        assert_eq!(hint("64mb"), "did you mean `64MB`?");
        assert_eq!(hint("2 GiB"), "did you mean `2GB`?");
        assert_eq!(hint("5K"), "did you mean `5kB`?");
        assert!("99999999999TB".parse::<Size>().unwrap_err().message.contains("too large"));
        assert!("-1MB".parse::<Size>().is_err());
        assert!("".parse::<Size>().is_err());
    }

    proptest! {
        #[test]
        fn a_size_reads_back_from_its_text(bytes in 0..=i64::MAX.unsigned_abs(), shift in 0..40_u32) {
            let size = Size(bytes >> shift << shift);
            prop_assert_eq!(size.to_string().parse::<Size>().unwrap(), size);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*", near in "[0-9]{0,30}[kMGTB]{0,2}") {
            let _ = (text.parse::<Size>(), near.parse::<Size>());
        }
    }
}
