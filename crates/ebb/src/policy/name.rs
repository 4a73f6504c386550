//! Names of policies. Invariant: a name can stand in a unit, a URL, a metric label and an environment variable
//! without quoting, and is not one that Ebb uses itself.

use std::fmt;
use std::str::FromStr;

use super::field::{Invalid, did_you_mean};

/// What a policy is called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// Ebb's own chores go by these names.
const RESERVED: [&str; 3] = ["events", "audit", "keep"];

impl Name {
    /// The name as it was typed.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let rule = "a name has letters, digits, - and _";
        if text.is_empty() {
            return Err(Invalid::new("the name is empty").hint(rule));
        }
        if !text.chars().all(fits) {
            let better: String = text.trim().chars().map(|c| if fits(c) { c } else { '-' }).collect();
            let invalid = Invalid::new(format!("{text:?} cannot be a name: {rule}"));
            return Err(if better.contains(fits) { invalid.hint(did_you_mean(&better)) } else { invalid });
        }
        if text.len() > 63 {
            return Err(Invalid::new(format!("the name {text:?} is longer than 63 characters")));
        }
        if RESERVED.contains(&text) {
            let hint = format!("for example \"{text}-cleanup\"");
            return Err(Invalid::new(format!("the name {text:?} is reserved for Ebb's own work")).hint(hint));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_need_no_quoting_and_are_not_ours() {
        assert_eq!("lineage-keys_2".parse::<Name>().unwrap().as_str(), "lineage-keys_2");
        assert!("a".repeat(63).parse::<Name>().is_ok());
        for bad in ["", "a b", "a/b", "käse", &"a".repeat(64), "events", "audit", "keep"] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
        assert_eq!("old orders".parse::<Name>().unwrap_err().hint.unwrap(), "did you mean `old-orders`?");
    }
}
