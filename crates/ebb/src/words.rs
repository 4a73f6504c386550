//! How many of something, in messages: one of a thing is not several.

use std::fmt::Display;

/// `1 row`, `2 rows`.
pub(crate) fn plural(number: impl Display + PartialEq + From<u8>, word: &str) -> String {
    let s = if number == 1.into() { "" } else { "s" };
    format!("{number} {word}{s}")
}

/// `1 row is`, `2 rows are`.
pub(crate) fn there_are(number: impl Display + PartialEq + From<u8>, word: &str) -> String {
    let are = if number == 1.into() { "is" } else { "are" };
    format!("{} {are}", plural(number, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_several() {
        assert_eq!([plural(0_u64, "row"), plural(1_i64, "row"), plural(2_usize, "row")], ["0 rows", "1 row", "2 rows"]);
        assert_eq!([there_are(1_u64, "row"), there_are(20_u64, "row")], ["1 row is", "20 rows are"]);
    }
}
