//! What commands print: a table for people, `--json` for programs, errors with their hint.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, ContentArrangement, Table};
use ebb::Error;

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
    if rows.is_empty() {
        println!("{empty}");
        return;
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.iter().map(|name| Cell::new(name.to_uppercase())));
    table.add_rows(rows);
    for line in table.lines() {
        println!("{}", line.trim_end());
    }
}

/// Prints a value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> ebb::Result<()> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Error::failed(format!("cannot print JSON: {error}")))?;
    println!("{text}");
    Ok(())
}
