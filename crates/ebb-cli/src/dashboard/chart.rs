//! Charts as SVG, drawn here: no script, no library, colours from the style sheet. Each has its numbers as text for
//! those who do not see it.

use ebb::audit::Moment;
use ebb::schedule::Lateness;
use ebb::view::{Hour, Rest, Sample};
use maud::{Markup, html};

use super::text::{count, number, plural, seconds, span};
use super::upcoming::Ahead;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 150.0;
const FLOOR: f64 = 128.0;

/// Rows hour by hour, failed runs marked.
pub(super) fn hours(hours: &[Hour]) -> Markup {
    let most = hours.iter().map(|hour| hour.rows).max().unwrap_or(0).max(1) as f64;
    let step = WIDTH / hours.len().max(1) as f64;
    let total: i64 = hours.iter().map(|hour| hour.rows).sum();
    html! {
        svg.chart viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ "Rows by hour, " (count(total)) " in all" } {
            line.axis x1="0" x2=(WIDTH) y1=(FLOOR) y2=(FLOOR) {}
            @for (i, hour) in hours.iter().enumerate() {
                @let height = (hour.rows as f64 / most * (FLOOR - 14.0)).max(if hour.rows > 0 { 2.0 } else { 0.0 });
                @let x = i as f64 * step + step * 0.12;
                g {
                    title { (label(hour.at)) ": " (plural(hour.rows, "row")) ", " (plural(hour.succeeded, "run")) @if hour.failed > 0 { ", " (hour.failed) " failed" } }
                    rect x=(round(i as f64 * step)) y="0" width=(round(step)) height=(FLOOR) fill="transparent" {}
                    rect.bar x=(round(x)) y=(round(FLOOR - height)) width=(round(step * 0.76)) height=(round(height)) rx="2" {}
                    @if hour.failed > 0 { circle.bad cx=(round(x + step * 0.38)) cy=(FLOOR + 6.0) r="3" {} }
                }
                @if i % 6 == 0 { text x=(round(x)) y=(HEIGHT - 3.0) { (clock(hour.at)) } }
            }
            text x="0" y="11" { (number(most as u64)) }
        }
    }
}

/// A metric as a line over time.
pub(super) fn line(samples: &[Sample], what: &str) -> Markup {
    let [first, .., last] = samples else {
        return html! { div.empty { "Nodes write a sample every minute; the first ones are on their way." } };
    };
    let most = samples.iter().map(|sample| sample.value).fold(1.0, f64::max);
    let from = first.at.micros() as f64;
    let length = (last.at.micros() as f64 - from).max(1.0);
    let place = |sample: &Sample| {
        let x = (sample.at.micros() as f64 - from) / length * WIDTH;
        (round(x), round(FLOOR - sample.value / most * (FLOOR - 14.0)))
    };
    let points: Vec<String> = samples.iter().map(place).map(|(x, y)| format!("{x},{y}")).collect();
    let points = points.join(" ");
    html! {
        svg.chart viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ (what) ", now " (number(last.value as u64)) } {
            line.axis x1="0" x2=(WIDTH) y1=(FLOOR) y2=(FLOOR) {}
            polygon.area points={ "0," (FLOOR) " " (points) " " (WIDTH) "," (FLOOR) } {}
            polyline.line points=(points) { title { (what) ", now " (number(last.value as u64)) } }
            text x="0" y="11" { (number(most as u64)) }
            text x="0" y=(HEIGHT - 3.0) { (clock(first.at)) }
            text x=(WIDTH) y=(HEIGHT - 3.0) text-anchor="end" { (clock(last.at)) " UTC" }
        }
    }
}

/// Reasons that get a colour of their own; what is left shares the last.
const COLOURS: usize = 5;

/// How long runs rested hour by hour, the reasons on top of each other.
pub(super) fn rests(hours: &[Hour], rests: &[Rest]) -> Markup {
    let mut reasons: Vec<(&str, f64)> = Vec::new();
    for rest in rests {
        match reasons.iter_mut().find(|(reason, _)| *reason == rest.reason) {
            Some((_, total)) => *total += rest.seconds,
            None => reasons.push((&rest.reason, rest.seconds)),
        }
    }
    reasons.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let total: f64 = reasons.iter().map(|(_, seconds)| seconds).sum();
    if total == 0.0 {
        return html! { div.empty { "Nothing held work up: no veto, budget or pause in this time." } };
    }
    let colour = |reason: &str| reasons.iter().position(|(known, _)| *known == reason).unwrap_or(0).min(COLOURS);
    let of = |at: Moment| rests.iter().filter(move |rest| rest.at == at);
    let sums: Vec<f64> = hours.iter().map(|hour| of(hour.at).map(|rest| rest.seconds).sum()).collect();
    let most = sums.iter().copied().fold(1.0, f64::max);
    let (wide, step) = (2.0 * WIDTH, 2.0 * WIDTH / hours.len().max(1) as f64);
    html! {
        svg.chart viewBox={ "0 0 " (wide) " " (HEIGHT) } role="img" aria-label={ "Work rested for " (seconds(total)) " in all" } {
            line.axis x1="0" x2=(wide) y1=(FLOOR) y2=(FLOOR) {}
            @for (i, hour) in hours.iter().enumerate() {
                @let x = i as f64 * step + step * 0.12;
                g {
                    title { (label(hour.at)) @for rest in of(hour.at) { ", " (rest.reason) " " (seconds(rest.seconds)) } }
                    rect x=(round(i as f64 * step)) y="0" width=(round(step)) height=(FLOOR) fill="transparent" {}
                    @for (below, rest) in stacked(of(hour.at)) {
                        @let (top, height) = ((below + rest.seconds) / most * (FLOOR - 14.0), rest.seconds / most * (FLOOR - 14.0));
                        rect class={ "why" (colour(&rest.reason)) } x=(round(x)) y=(round(FLOOR - top)) width=(round(step * 0.76)) height=(round(height.max(1.0))) {}
                    }
                }
                @if i % 6 == 0 { text x=(round(x)) y=(HEIGHT - 3.0) { (clock(hour.at)) } }
            }
            text x="0" y="11" { (seconds(most)) }
        }
        p.legend { @for (reason, total) in &reasons { span class={ "why" (colour(reason)) } { (reason.replace('_', " ")) ", " (seconds(*total)) } } }
    }
}

/// Each with the sum of those before it.
fn stacked<'a>(rests: impl Iterator<Item = &'a Rest>) -> Vec<(f64, &'a Rest)> {
    let mut top = 0.0;
    rests
        .map(|rest| {
            top += rest.seconds;
            (top - rest.seconds, rest)
        })
        .collect()
}

/// How late deliveries were, step by step.
pub(super) fn histogram(lateness: Option<&Lateness>) -> Markup {
    let total = lateness.map_or(0, |lateness| lateness.steps.iter().map(|(_, events)| events).sum::<i64>());
    let Some(lateness) = lateness.filter(|_| total > 0) else {
        return html! { div.empty { "Nothing was delivered in this time." } };
    };
    let most = lateness.steps.iter().map(|(_, events)| *events).max().unwrap_or(1).max(1) as f64;
    let step = WIDTH / lateness.steps.len() as f64;
    html! {
        svg.chart viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ "How late " (count(total)) " deliveries were" } {
            line.axis x1="0" x2=(WIDTH) y1=(FLOOR) y2=(FLOOR) {}
            @for (i, (end, events)) in lateness.steps.iter().enumerate() {
                @let height = (*events as f64 / most * (FLOOR - 26.0)).max(if *events > 0 { 2.0 } else { 0.0 });
                @let x = i as f64 * step + step * 0.1;
                @let name = end.map_or_else(|| "more".to_owned(), |end| format!("< {}", span(end)));
                g {
                    title { (name) " late: " (plural(*events, "event")) }
                    rect x=(round(i as f64 * step)) y="0" width=(round(step)) height=(FLOOR) fill="transparent" {}
                    rect class={ "bar" @if i >= 4 { " late" } } x=(round(x)) y=(round(FLOOR - height)) width=(round(step * 0.8)) height=(round(height)) rx="2" {}
                    @if *events > 0 { text x=(round(x + step * 0.4)) y=(round(FLOOR - height - 5.0)) text-anchor="middle" { (short(*events)) } }
                }
                text x=(round(x + step * 0.4)) y=(HEIGHT - 3.0) text-anchor="middle" { (name) }
            }
        }
    }
}

/// A number for each day, named by the day.
pub(super) fn days(days: &[(String, i64)]) -> Markup {
    if days.is_empty() {
        return html! { div.empty { "Nothing in this time." } };
    }
    let most = days.iter().map(|(_, rows)| *rows).max().unwrap_or(1).max(1) as f64;
    let total: i64 = days.iter().map(|(_, rows)| rows).sum();
    let (wide, step) = (2.0 * WIDTH, 2.0 * WIDTH / days.len().max(14) as f64);
    html! {
        svg.chart viewBox={ "0 0 " (wide) " " (HEIGHT) } role="img" aria-label={ "Rows by day, " (count(total)) " in all" } {
            line.axis x1="0" x2=(wide) y1=(FLOOR) y2=(FLOOR) {}
            @for (i, (day, rows)) in days.iter().enumerate() {
                @let height = (*rows as f64 / most * (FLOOR - 14.0)).max(if *rows > 0 { 2.0 } else { 0.0 });
                @let x = i as f64 * step + step * 0.12;
                g {
                    title { (day) ": " (count(*rows)) }
                    rect x=(round(i as f64 * step)) y="0" width=(round(step)) height=(FLOOR) fill="transparent" {}
                    rect.bar x=(round(x)) y=(round(FLOOR - height)) width=(round(step * 0.76)) height=(round(height)) rx="2" {}
                }
                @if i % (days.len() / 8).max(1) == 0 { text x=(round(x)) y=(HEIGHT - 3.0) { (day.get(5..).unwrap_or(day)) } }
            }
            text x="0" y="11" { (short(most as i64)) }
        }
    }
}

/// What falls due on each day to come: rows as bars, days with subjects or events marked below.
pub(super) fn ahead(days: Option<&[Ahead]>) -> Markup {
    let Some(days) = days else {
        return html! { div.empty { "It is being counted, and shown with the next look." } };
    };
    let most = days.iter().map(|day| day.rows).max().unwrap_or(1).max(1) as f64;
    let (wide, step) = (2.0 * WIDTH, 2.0 * WIDTH / days.len().max(1) as f64);
    let sum = |of: fn(&Ahead) -> i64| days.iter().map(of).sum::<i64>();
    let (rows, subjects, events) = (sum(|day| day.rows), sum(|day| day.subjects), sum(|day| day.events));
    html! {
        svg.chart viewBox={ "0 0 " (wide) " " (HEIGHT) } role="img" aria-label={ (plural(rows, "row")) ", " (plural(subjects, "subject")) " and " (plural(events, "event")) " to fall due" } {
            line.axis x1="0" x2=(wide) y1=(FLOOR - 8.0) y2=(FLOOR - 8.0) {}
            @for (i, day) in days.iter().enumerate() {
                @let height = (day.rows as f64 / most * (FLOOR - 24.0)).max(if day.rows > 0 { 2.0 } else { 0.0 });
                @let x = i as f64 * step + step * 0.12;
                g {
                    title { (day.day) ": " (plural(day.rows, "row")) ", " (plural(day.subjects, "subject")) ", " (plural(day.events, "event")) }
                    rect x=(round(i as f64 * step)) y="0" width=(round(step)) height=(FLOOR + 8.0) fill="transparent" {}
                    rect.bar x=(round(x)) y=(round(FLOOR - 8.0 - height)) width=(round(step * 0.76)) height=(round(height)) rx="2" {}
                    @if day.subjects > 0 { circle.bad cx=(round(x + step * 0.38)) cy=(FLOOR - 1.0) r="3" {} }
                    @if day.events > 0 { circle.late cx=(round(x + step * 0.38)) cy=(FLOOR + 7.0) r="3" {} }
                }
                @if i % 15 == 0 { text x=(round(x)) y=(HEIGHT - 1.0) { (day.day.get(5..).unwrap_or(&day.day)) } }
            }
            @if rows > 0 { text x="0" y="11" { (short(most as i64)) } }
        }
        p.legend { span.past { (plural(rows, "row")) } span.due-subjects { (plural(subjects, "subject")) } span.due-events { (plural(events, "event")) } }
    }
}

/// A count in few characters.
fn short(value: i64) -> String {
    match value {
        0..=9_999 => count(value),
        10_000..=9_999_999 => format!("{}k", value / 1_000),
        _ => format!("{}M", value / 1_000_000),
    }
}

fn label(at: Moment) -> String {
    at.timestamp().map_or_else(String::new, |at| at.strftime("%b %d, %H:00 UTC").to_string())
}

fn clock(at: Moment) -> String {
    at.timestamp().map_or_else(String::new, |at| at.strftime("%H:%M").to_string())
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
