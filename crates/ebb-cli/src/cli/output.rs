//! What commands print: a table for people, `--json` for programs, errors with their hint.
//! Invariant: a reader that has seen enough (`ebb audit list | head`) ends the output, not the command in a panic.

use std::io::{ErrorKind, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width};
use ebb::Error;
use ebb::audit::Moment;

/// Prints a line to standard output.
macro_rules! say {
    () => { $crate::cli::output::line("") };
    ($($part:tt)*) => { $crate::cli::output::line(&format!($($part)*)) };
}

/// Prints a line; see [`say`].
pub(crate) fn line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints bytes that were made elsewhere.
pub(crate) fn bytes(bytes: &[u8]) -> ebb::Result<()> {
    match std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::failed(format!("cannot print: {error}"))),
        _ => Ok(()),
    }
}

/// Prints an error the way a compiler does: what, then what to do.
pub(crate) fn error(error: &Error) {
    let text = error.to_string();
    if text.starts_with("error") {
        eprintln!("{text}");
    } else {
        eprintln!("error: {text}");
    }
    if let Some(hint) = error.hint() {
        eprintln!("hint: {hint}");
    }
}

/// Prints rows under a header; nothing but `empty` when there are none.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>, empty: &str) {
    table_without(&[], header, rows, empty);
}

/// The same, on a narrow terminal without some columns: the first of `spare` goes first.
pub(crate) fn table_without(spare: &[&str], header: &[&str], rows: Vec<Vec<String>>, empty: &str) {
    if rows.is_empty() {
        line(empty);
        return;
    }
    let width = match Table::new().width() {
        // A terminal that does not know its size.
        Some(0) => Some(120),
        width => width,
    };
    arranged(spare, header, rows, width).iter().for_each(|row| line(row.trim_end()));
}

/// A word may be broken beyond this: a path, a piece of JSON.
const LONGEST_WORD: usize = 40;

/// The lines of a table. No word is broken while its column can be as wide as it.
fn arranged(spare: &[&str], header: &[&str], rows: Vec<Vec<String>>, width: Option<u16>) -> Vec<String> {
    let head: Vec<String> = header.iter().map(|name| name.to_uppercase()).collect();
    let mut lines = [vec![head], rows].concat();
    let mut names = header.to_vec();
    let words = |lines: &[Vec<String>], column: usize| {
        let longest = lines.iter().filter_map(|cells| cells.get(column)).flat_map(|cell| cell.split_whitespace());
        longest.map(|word| word.chars().count()).max().unwrap_or(0).min(LONGEST_WORD)
    };
    let is_too_wide = |lines: &[Vec<String>], columns: usize| {
        let needed: usize = (0..columns).map(|column| words(lines, column) + PADDING).sum();
        width.is_some_and(|width| needed > width.into())
    };
    for spared in spare {
        let Some(at) = names.iter().position(|name| name == spared) else { continue };
        if !is_too_wide(&lines, names.len()) {
            break;
        }
        names.remove(at);
        lines.iter_mut().for_each(|cells| drop(cells.remove(at)));
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(width) = width {
        table.set_width(width);
    }
    let narrowest: Vec<usize> = (0..names.len()).map(|column| words(&lines, column) + PADDING).collect();
    let mut lines = lines.into_iter();
    table.set_header(lines.next().unwrap_or_default());
    table.add_rows(lines);
    for (column, narrowest) in table.column_iter_mut().zip(narrowest) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(narrowest as u16)));
    }
    table.lines().collect()
}

/// What stands beside the text of a cell.
const PADDING: usize = 2;

/// Prints a value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> ebb::Result<()> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Error::failed(format!("cannot print JSON: {error}")))?;
    bytes(format!("{text}\n").as_bytes())
}

/// A JSON array that is printed as it comes, however long it gets.
#[derive(Debug, Default)]
pub(crate) struct JsonList {
    begun: bool,
}

impl JsonList {
    /// Prints more of its elements.
    pub(crate) fn add(&mut self, elements: &[impl serde::Serialize]) -> ebb::Result<()> {
        let text = serde_json::to_string_pretty(elements)
            .map_err(|error| Error::failed(format!("cannot print JSON: {error}")))?;
        let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix("\n]")) else { return Ok(()) };
        bytes(if std::mem::replace(&mut self.begun, true) { b"," } else { b"[" })?;
        bytes(inner.as_bytes())
    }

    /// Prints its end.
    pub(crate) fn end(self) -> ebb::Result<()> {
        bytes(if self.begun { b"\n]\n" } else { b"[]\n" })
    }
}

/// A time as people read it: to the second.
pub(crate) fn time(moment: Moment) -> String {
    moment.timestamp().map_or_else(|| moment.to_string(), |at| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// A number with its thousands apart.
pub(crate) fn count(number: impl TryInto<i128>) -> String {
    let number = number.try_into().unwrap_or(i128::MAX);
    let digits = number.unsigned_abs().to_string();
    let mut out = String::from(if number < 0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 row`, `2 rows`.
pub(crate) fn plural(number: u64, word: &str) -> String {
    format!("{} {word}{}", count(number), if number == 1 { "" } else { "s" })
}

/// The same of what was counted no further than to `most`.
pub(crate) fn plural_up_to(number: u64, word: &str, most: u64) -> String {
    match number < most {
        true => plural(number, word),
        false => format!("{} {word}s or more", count(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_costs_columns_and_never_a_name() {
        let row = || ["user_accounts", "active", "public.user_accounts", "12,345", "64 MB"].map(str::to_owned).to_vec();
        let header = ["policy", "state", "table", "rows", "size"];
        let wide = arranged(&["size", "rows"], &header, vec![row()], Some(120)).join("\n");
        assert!(wide.contains("SIZE") && wide.contains("64 MB"), "{wide}");
        let narrow = arranged(&["size", "rows"], &header, vec![row()], Some(56)).join("\n");
        assert!(!narrow.contains("SIZE") && narrow.contains("12,345"), "{narrow}");
        for width in [20, 40, 56, 80] {
            let told = arranged(&["size", "rows"], &header, vec![row()], Some(width)).join("\n");
            assert!(
                ["user_accounts", "active", "public.user_accounts"].iter().all(|name| told.contains(name)),
                "{told}"
            );
        }
        let piped = arranged(&["size"], &header, vec![row()], None).join("\n");
        assert!(piped.contains("SIZE"), "{piped}");
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([count(0), count(999), count(1_000), count(-1_234_567)], ["0", "999", "1,000", "-1,234,567"]);
        assert_eq!([plural(1, "row"), plural(2_000, "row")], ["1 row", "2,000 rows"]);
    }

    #[test]
    fn what_is_counted_no_further_is_not_told_as_exact() {
        assert_eq!(plural_up_to(1, "subject", 100_000), "1 subject");
        assert_eq!(plural_up_to(100_000, "subject", 100_000), "100,000 subjects or more");
    }
}
