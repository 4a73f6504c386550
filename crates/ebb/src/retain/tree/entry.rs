//! Entries of `children` as people can paste them: TOML, with the actions that are possible. Whoever pastes one with several chooses by
//! taking the others out; until then it is refused.

use serde_json::Value;

/// An entry for a link of a table, with what it refers to where no foreign key says so.
pub(crate) fn entry(table: &str, columns: &[String], references: &[String], actions: &[&str]) -> String {
    let references = match references {
        [] => String::new(),
        names => format!(", references = {}", names_of(names)),
    };
    format!(
        "{{ table = {}, column = {}{references}, action = {} }}",
        text(table),
        names_of(columns),
        text(&actions.join(" | "))
    )
}

/// The key with entries: one on its line, several each on their own.
pub(crate) fn children(entries: &[String]) -> String {
    match entries {
        [one] => format!("children = [{one}]"),
        several => {
            format!("children = [\n{}]", several.iter().map(|entry| format!("  {entry},\n")).collect::<String>())
        }
    }
}

/// A text as TOML has it.
pub(crate) fn text(raw: &str) -> String {
    Value::from(raw).to_string()
}

fn names_of(names: &[String]) -> String {
    match names {
        [one] => text(one),
        several => format!("[{}]", several.iter().map(|name| text(name)).collect::<Vec<_>>().join(", ")),
    }
}
