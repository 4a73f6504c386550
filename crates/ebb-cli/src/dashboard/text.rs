//! Numbers and times on pages.

use ebb::audit::Moment;
use maud::{Markup, html};

use crate::cli::output;
pub(super) use crate::cli::words::{number, span};

/// A time that the browser shows in the viewer's zone.
pub(super) fn time(moment: Moment) -> Markup {
    stamp(moment, "full")
}

/// The same, as how long ago or ahead it is.
pub(super) fn ago(moment: Moment) -> Markup {
    stamp(moment, "ago")
}

fn stamp(moment: Moment, kind: &str) -> Markup {
    match moment.timestamp() {
        Some(at) => html! { time datetime=(at) data-as=(kind) title=(at) { (at.strftime("%Y-%m-%d %H:%M:%SZ")) } },
        None if moment == Moment::NEG_INFINITY => html! { "now" },
        None => html! { (moment) },
    }
}

/// A count that may be negative in the database and never is.
pub(super) fn count(value: i64) -> String {
    number(value.max(0).unsigned_abs())
}

/// `1 row`, `2 rows`.
pub(super) fn plural(value: i64, word: &str) -> String {
    output::plural(value.max(0).unsigned_abs(), word)
}

/// Seconds as people say them.
pub(super) fn seconds(value: f64) -> String {
    span(std::time::Duration::from_secs_f64(value.clamp(0.0, 1e9)))
}

/// A state as a coloured word.
pub(super) fn badge(state: &str) -> Markup {
    let tone = match state {
        "active" | "success" | "alive" | "enforce" | "done" | "live" | "restored" => "good",
        "paused" | "braked" | "observe" | "observing" | "observed" | "stopped" | "abandoned" | "warned" | "on hold"
        | "condemned" | "skipped" | "detach pending" => "warn",
        "failed" | "dead" | "blocked" | "expired" | "erasing" => "bad",
        "running" | "pending" | "creating" | "current" => "brand",
        _ => "",
    };
    html! { span class={ "badge " (tone) } { (state) } }
}

/// What somebody typed, when they typed something.
pub(super) fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty())
}

/// A text as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(byte)),
            other => encoded += &format!("%{other:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_has_nothing_that_a_path_would_read() {
        assert_eq!(segment("a/b?c=1&d"), "a%2Fb%3Fc%3D1%26d");
        assert_eq!(segment("[\"eu\", \"17\"]"), "%5B%22eu%22%2C%20%2217%22%5D");
    }
}
