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

/// The key with an entry.
pub(crate) fn children(entry: &str) -> String {
    format!("children = [{entry}]")
}

/// What `children` needs yet, each entry with the condition that it is needed on: the whole key where there is none.
pub(crate) fn proposal(entries: &[(String, Option<String>)], has_children: bool) -> Option<String> {
    let line = |(entry, given): &(String, Option<String>)| match given {
        Some(given) => format!("\n  {entry},   # if rows of {given} go"),
        None => format!("\n  {entry},"),
    };
    let lines: String = entries.iter().map(line).collect();
    match entries {
        [] => None,
        _ if has_children => Some(format!("add to children:{lines}")),
        [(one, None)] => Some(children(one)),
        _ => Some(format!("children = [{lines}\n]")),
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
