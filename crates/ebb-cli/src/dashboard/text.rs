//! Numbers and times on pages.

use ebb::audit::Moment;
use maud::{Markup, html};

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

/// Seconds as people say them.
pub(super) fn seconds(value: f64) -> String {
    span(std::time::Duration::from_secs_f64(value.clamp(0.0, 1e9)))
}

/// A state as a coloured word.
pub(super) fn badge(state: &str) -> Markup {
    let tone = match state {
        "active" | "success" | "alive" | "enforce" => "good",
        "paused" | "braked" | "observe" | "observing" | "observed" | "stopped" | "abandoned" => "warn",
        "failed" => "bad",
        "running" => "brand",
        _ => "",
    };
    html! { span class={ "badge " (tone) } { (state) } }
}
