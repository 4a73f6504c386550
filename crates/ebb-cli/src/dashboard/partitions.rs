//! Partitioned tables: a strip each, from the past to the future, with size, rows and how far the partitions reach.

use axum::extract::State;
use ebb::partition::{Listed, Listing};
use maud::{Markup, html};

use super::frame::{self, Trouble};
use super::session::Visitor;
use super::text::{badge, count, number, plural, seconds, time};
use crate::cli::words::bytes;
use crate::http::{Looked, Surface, look_at_partitions, partition_policies};

/// Strips on one page.
const TABLES: usize = 50;
/// Partitions that are listed below a strip.
const LISTED: usize = 60;

pub(super) async fn page(visitor: Visitor, State(surface): State<Surface>) -> Result<Markup, Trouble> {
    let mut names = partition_policies(&surface).await?;
    let all = names.len();
    names.truncate(TABLES);
    let tables = look_at_partitions(&surface, names).await?;
    let main = html! {
        div.head { h1 { "Partitions" } span.soft.small { (number(all as u64)) @if all == 1 { " table" } @else { " tables" } @if all > TABLES { ", the first " (TABLES) } } }
        @if tables.is_empty() {
            section.panel { div.empty { strong { "No table is split by time yet" } code { "ebb partition adopt TABLE" } " splits one while it is in use." } }
        }
        @for looked in &tables { (panel(looked)) }
    };
    Ok(frame::page(&visitor, "/partitions", "Partitions", main))
}

fn panel(looked: &Looked) -> Markup {
    let link = html! { a href=(super::policies::path(&looked.policy)) { (looked.policy) } };
    html! {
        section.panel {
            @match &looked.table {
                None => {
                    header { h2 { (link) } (badge("failed")) }
                    div.pad { p.error { (looked.problem.as_deref().unwrap_or("no node has looked at it yet")) } }
                },
                Some(table) => {
                    header { h2 { code { (table.table) } } span.soft.small { (link) } }
                    div.pad { (facts(table)) (strip(table)) (list(table)) }
                },
            }
        }
    }
}

fn facts(table: &Listing) -> Markup {
    let of = |state: &str| table.partitions.iter().filter(|one| one.state == state).count();
    let size: i64 = table.partitions.iter().map(|one| one.bytes).sum();
    let rows: i64 = table.partitions.iter().map(|one| one.rows.max(0)).sum();
    html! {
        dl.facts {
            div { dt { "Runway" } dd { strong { (seconds(table.runway_seconds as f64)) } div.sub { "until " (time(table.runway_until)) } @if table.missing > 0 { (badge("failed")) " " (table.missing) " missing ahead" } } }
            div { dt { "Partitions" } dd { (number(table.partitions.len() as u64)) div.sub { (of("ahead")) " ahead, " (of("expired")) " expired" } } }
            div { dt { "Size" } dd { (bytes(size.max(0).unsigned_abs())) } }
            div { dt { "Rows" } dd { "~" (count(rows)) } }
        }
    }
}

/// More bars than this nobody can tell apart: neighbours share one.
const BARS: usize = 400;

/// Neighbours of one state that share a bar.
struct Bar<'a> {
    parts: &'a [Listed],
    bytes: i64,
}

fn bars(partitions: &[Listed]) -> Vec<Bar<'_>> {
    let size = partitions.len().div_ceil(BARS).max(1);
    let alike = partitions.chunk_by(|a, b| a.state == b.state);
    let parts = alike.flat_map(|alike| alike.chunks(size));
    parts.map(|parts| Bar { parts, bytes: parts.iter().map(|one| one.bytes).sum() }).collect()
}

/// The strip: a bar for each partition, as high as it is large.
fn strip(table: &Listing) -> Markup {
    const WIDTH: f64 = 1120.0;
    const HEIGHT: f64 = 96.0;
    const FLOOR: f64 = 76.0;
    let bars = bars(&table.partitions);
    let most = bars.iter().map(|bar| bar.bytes).max().unwrap_or(1).max(1) as f64;
    let step = WIDTH / bars.len().max(1) as f64;
    let gap = (step * 0.14).min(3.0);
    let round = |value: f64| (value * 10.0).round() / 10.0;
    let current = bars.iter().position(|bar| bar.parts.iter().any(|one| one.state == "current"));
    let day =
        |bound: &Option<String>| bound.as_deref().map_or("…".to_owned(), |text| text.chars().take(10).collect());
    html! {
        svg.chart.strip viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ (plural(table.partitions.len() as i64, "partition")) ", runway " (seconds(table.runway_seconds as f64)) } {
            @for (at, bar) in bars.iter().enumerate() {
                @let height = (bar.bytes as f64 / most).sqrt() * (FLOOR - 8.0);
                @let height = height.max(6.0);
                @if let ([first, ..], Some(last)) = (bar.parts, bar.parts.last()) {
                    rect class={ "part " (first.state.replace(' ', "-")) } x=(round(at as f64 * step + gap / 2.0)) y=(round(FLOOR - height)) width=(round((step - gap).max(0.6))) height=(round(height)) rx=(round((step * 0.12).min(3.0))) {
                        title { @if bar.parts.len() > 1 { (bar.parts.len()) " partitions" } @else { (first.partition) } ": " (day(&first.from)) " to " (day(&last.to)) ", " (first.state) ", " (bytes(bar.bytes.max(0).unsigned_abs())) ", ~" (count(bar.parts.iter().map(|one| one.rows.max(0)).sum())) " rows" }
                    }
                }
            }
            @if let Some(at) = current { path.now d={ "M" (round((at as f64 + 0.5) * step)) " " (FLOOR + 3.0) " l-4 6 h8 z" } {} }
            @if let (Some(first), Some(last)) = (table.partitions.first(), table.partitions.last()) {
                text x="0" y=(HEIGHT - 2.0) { (day(&first.from)) }
                text x=(WIDTH) y=(HEIGHT - 2.0) text-anchor="end" { (day(&last.to)) }
                @if let Some(at) = current { text x=(round(((at as f64 + 0.5) * step).clamp(90.0, WIDTH - 90.0))) y=(HEIGHT - 2.0) text-anchor="middle" { "now" } }
            }
        }
        p.legend { span.past { "past" } span.current { "current" } span.ahead { "ahead" } span.expired { "expired" } }
    }
}

fn list(table: &Listing) -> Markup {
    let skip = table.partitions.len().saturating_sub(LISTED);
    html! {
        details {
            summary { "Partitions" @if skip > 0 { " (the latest " (LISTED) ")" } }
            div.scroll { table {
                thead { tr { th { "Partition" } th { "From" } th { "To" } th { "State" } th.n { "Size" } th.n { "Rows" } } }
                tbody { @for one in table.partitions.iter().skip(skip).rev() { (row(one)) } }
            } }
        }
        @if !table.detached.is_empty() {
            details {
                summary { "Taken out (" (table.detached.len()) ")" }
                div.scroll { table { tbody { @for gone in &table.detached {
                    tr { td { code { (gone.partition) } } td { @match gone.detached_at { Some(at) => { "detached " (time(at)) }, None => "about to be detached" } } td { @if gone.due { "to be dropped" } } }
                } } } }
            }
        }
    }
}

fn row(one: &Listed) -> Markup {
    html! {
        tr {
            td { code { (one.partition) } }
            td { (one.from.as_deref().unwrap_or("–")) }
            td { (one.to.as_deref().unwrap_or("–")) }
            td { (badge(&one.state)) }
            td.n { (bytes(one.bytes.max(0).unsigned_abs())) }
            td.n { "~" (count(one.rows)) }
        }
    }
}
