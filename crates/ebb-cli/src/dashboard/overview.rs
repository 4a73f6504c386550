//! Is everything all right? In one look: what needs attention, what is due, what was done, who is at work.

use axum::extract::State;
use ebb::status::{PolicyStatus, Status, UnitStatus};
use ebb::view::{self, Hour, Rest, Run, RunFilter, Sample};
use maud::{Markup, html};

use super::frame::{self, Trouble};
use super::session::Visitor;
use super::text::{ago, badge, count, number, plural, seconds};
use super::{chart, policies};
use crate::http::Surface;

/// How far back the charts go.
const HOURS: i32 = 24;

pub(super) async fn page(visitor: Visitor, State(surface): State<Surface>) -> Result<Markup, Trouble> {
    // Side by side: each is a handful of questions.
    let (status, past) = tokio::try_join!(surface.engine.standing(), Past::read(&surface))?;
    let ahead = surface.upcoming.look(&surface.engine);
    let ahead = ahead.as_deref().map(Vec::as_slice);
    Ok(frame::page(&visitor, "/", "Overview", content(&status, &past, ahead)))
}

/// What the last hours were like.
struct Past {
    hours: Vec<Hour>,
    pending: Vec<Sample>,
    rests: Vec<Rest>,
    runs: Vec<Run>,
}

impl Past {
    async fn read(surface: &Surface) -> ebb::Result<Self> {
        let mut tx = surface.engine.database().read().await?;
        let past = Self {
            hours: view::hours(&mut tx, None, HOURS).await?,
            pending: view::samples(&mut tx, "records_pending", None, HOURS, 96).await?,
            rests: view::rests(&mut tx, HOURS).await?,
            runs: view::runs(&mut tx, &RunFilter { limit: Some(10), ..RunFilter::default() }).await?,
        };
        tx.commit().await?;
        Ok(past)
    }
}

fn content(status: &Status, past: &Past, ahead: Option<&[super::upcoming::Ahead]>) -> Markup {
    let Past { hours, pending, rests, runs } = past;
    html! {
        div.head { h1 { "Overview" } span.soft.small { "as of " (ago(status.at)) } }
        (banner(&troubles(status)))
        (tiles(status, hours))
        div.two {
            section.panel { header { h2 { "Rows removed" } span.soft.small { "by hour, last 24" } } div.pad { (chart::hours(hours)) } }
            section.panel { header { h2 { "Backlog" } span.soft.small { "rows due and not done, last 24 hours" } } div.pad { (chart::line(pending, "Rows due")) } }
        }
        section.panel { header { h2 { "Why work rested" } span.soft.small { "by hour, last 24" } } div.pad { (chart::rests(hours, rests)) } }
        section.panel { header { h2 { "What falls due" } span.soft.small { "by day, the next 90" } } div.pad { (chart::ahead(ahead)) } }
        section.panel {
            header { h2 { "At work" } span.soft.small { (nodes(status)) } }
            (at_work(status))
        }
        section.panel { header { h2 { "Recent runs" } a.small href="/policies" { "All policies" } } (run_table(runs)) }
    }
}

/// What somebody should look at, and where.
struct Concern {
    bad: bool,
    text: String,
    href: Option<String>,
}

fn troubles(status: &Status) -> Vec<Concern> {
    let mut found = Vec::new();
    let mut add = |bad: bool, text: String, policy: Option<&str>| {
        found.push(Concern { bad, text, href: policy.map(policies::path) });
    };
    if !status.nodes.iter().any(|node| node.alive) {
        add(true, "No node is alive: nothing is being done.".into(), None);
    }
    // Said once, not for each of them.
    let everything = |reason: &str| reason.starts_with("everything is paused");
    if let Some(reason) =
        status.policies.iter().filter_map(|policy| policy.reason.as_deref()).find(|why| everything(why))
    {
        add(false, format!("E{}", &reason[1..]), None);
    }
    for policy in &status.policies {
        let name = policy.policy.as_str();
        let reason = policy.reason.as_deref().unwrap_or_default();
        match policy.state.as_str() {
            "stopped" => add(true, format!("{name} was stopped: {reason}"), Some(name)),
            "braked" => add(true, format!("{name} waits at its brake: {reason}"), Some(name)),
            "paused" if everything(reason) => {}
            "paused" => add(false, format!("{name} is {reason}"), Some(name)),
            _ => {}
        }
        if let Some(unit) = policy.units.iter().find(|unit| unit.failures > 0) {
            let error = unit.last_run.as_ref().and_then(|run| run.error.as_deref()).unwrap_or("no reason given");
            add(true, format!("{name} failed {} in a row: {error}", plural(unit.failures.into(), "time")), Some(name));
        }
    }
    if status.audit.premature > 0 {
        let early = plural(status.audit.premature as i64, "record");
        add(true, format!("The audit has {early} of what was deleted before its time: see the report."), None);
    }
    if let Some(blocker) = &status.audit.blocked_by {
        add(false, format!("The audit cannot be sealed: {blocker}"), None);
    }
    if status.at != status.policy_time && moved(status) {
        add(false, format!("The clock that policies go by was moved: it says {}.", status.policy_time), None);
    }
    found.extend(event_troubles(status));
    found.sort_by_key(|concern| !concern.bad);
    found
}

fn event_troubles(status: &Status) -> Vec<Concern> {
    let mut found = Vec::new();
    let mut add = |bad: bool, text: String, query: String| {
        found.push(Concern { bad, text, href: Some(format!("/events{query}")) });
    };
    for sink in &status.events.sinks {
        let name = &sink.sink;
        if sink.dead > 0 {
            let text = format!("{} for {name} could not be delivered: dead letters.", plural(sink.dead, "event"));
            add(true, text, format!("?state=dead&sink={name}"));
        }
        if sink.state == "stopped" {
            add(true, format!("The sink {name} was stopped."), String::new());
        }
        if sink.state == "disabled" && sink.due > 0 {
            let text = format!(
                "{} in the sink {name}, which is disabled: nobody delivers them.",
                plural(sink.due, "due event")
            );
            add(true, text, format!("?sink={name}"));
        }
        if let Some(since) = sink.dead_since {
            add(false, format!("The receiver of {name} takes nothing since {since}: its events wait."), String::new());
        }
    }
    if status.events.recovery_mode {
        add(false, "Events are being caught up with: more than ten are overdue.".into(), String::new());
    }
    found
}

fn moved(status: &Status) -> bool {
    (status.at.micros() - status.policy_time.micros()).abs() > 5_000_000
}

fn banner(troubles: &[Concern]) -> Markup {
    let bad = troubles.iter().any(|trouble| trouble.bad);
    match troubles {
        [] => {
            html! { div.banner.good role="status" { (frame::tick()) div { strong { "All is well" } p { "Everything due is done or being done." } } } }
        }
        some => html! {
            div class={ "banner " @if bad { "bad" } @else { "warn" } } role="status" {
                (frame::alert())
                div {
                    strong { @if some.len() == 1 { "One thing needs attention" } @else { (some.len()) " things need attention" } }
                    ul {
                        @for trouble in some.iter().take(8) {
                            li { @match &trouble.href { Some(href) => a href=(href) { (trouble.text) }, None => (trouble.text) } }
                        }
                        @if some.len() > 8 { li { "and " (some.len() - 8) " more" } }
                    }
                }
            }
        },
    }
}

fn tiles(status: &Status, hours: &[Hour]) -> Markup {
    let units = || status.policies.iter().flat_map(|policy| &policy.units);
    let due: u64 = units().filter_map(|unit| unit.pending).sum();
    let oldest = units().filter(|unit| unit.pending > Some(0)).filter_map(|unit| unit.oldest_due).min();
    let removed: i64 = hours.iter().map(|hour| hour.rows).sum();
    let (runs, failed): (i64, i64) =
        (hours.iter().map(|h| h.succeeded + h.failed).sum(), hours.iter().map(|h| h.failed).sum());
    let alive = status.nodes.iter().filter(|node| node.alive).count();
    html! {
        div.tiles {
            (tile("Due now", &number(due), html! { @match oldest { Some(at) => { "oldest " (ago(at)) }, None => "rows, at the last look" } }))
            (tile("Removed, 24 hours", &count(removed), html! { "rows" }))
            (tile("Runs, 24 hours", &count(runs), html! { @if failed > 0 { (badge("failed")) " " (count(failed)) } @else { "none failed" } }))
            (tile("Events due", &count(status.events.sinks.iter().map(|sink| sink.due).sum()), html! { a href="/events" { (count(status.events.sinks.iter().filter_map(|sink| sink.done_last_hour).sum())) " delivered in the last hour" } }))
            (tile("Policies", &number(status.policies.len() as u64), html! { (status.policies.iter().filter(|p| p.state == "active").count()) " active" }))
            (tile("Nodes", &number(alive as u64), html! { "alive, " (count(status.audit.unsealed)) @if status.audit.more { "+" } " records unsealed" }))
        }
    }
}

pub(super) fn tile(label: &str, value: &str, note: Markup) -> Markup {
    html! { div.tile { div.label { (label) } div.value { (value) } div.note { (note) } } }
}

fn nodes(status: &Status) -> String {
    let names: Vec<&str> = status.nodes.iter().filter(|node| node.alive).map(|node| node.name.as_str()).collect();
    if names.is_empty() { "no node is alive".into() } else { names.join(", ") }
}

fn at_work(status: &Status) -> Markup {
    let held: Vec<(&PolicyStatus, &UnitStatus)> = status
        .policies
        .iter()
        .flat_map(|policy| policy.units.iter().map(move |unit| (policy, unit)))
        .filter(|(_, unit)| unit.held_by.is_some() || unit.throttle.is_some())
        .collect();
    if held.is_empty() {
        return html! { div.empty { "Nothing is being worked on at the moment." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Policy" } th { "Table" } th.n { "Rows" } th { "Held by" } th { "Rests because" } } }
            tbody {
                @for (policy, unit) in held.into_iter().take(50) {
                    tr {
                        td { a href=(policies::path(&policy.policy)) { (policy.policy) } }
                        td { code { (unit.table) } }
                        td.n { @if let Some(run) = &unit.last_run { (count(run.rows)) } }
                        td { (unit.held_by.as_deref().unwrap_or("–")) }
                        td { (unit.throttle.as_deref().unwrap_or("–")) }
                    }
                }
            }
        } }
    }
}

/// Runs as a table.
pub(super) fn run_table(runs: &[Run]) -> Markup {
    if runs.is_empty() {
        return html! { div.empty { strong { "No run yet" } "They appear here as soon as a node has something to do." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Started" } th { "Policy" } th.wide { "Table" } th { "Result" } th.n { "Rows" } th.n { "Took" } th.n.wide { "Rows/s" } } }
            tbody {
                @for run in runs {
                    tr {
                        td { (ago(run.started_at)) }
                        td { @if run.policy == "keep" { "keep" } @else { a href=(policies::path(&run.policy)) { (run.policy) } } }
                        td.wide { code { (run.table_name) } }
                        td { (badge(&run.status)) }
                        td.n { (count(run.rows)) }
                        td.n { (seconds(run.seconds)) }
                        td.n.wide { @if let Some(rate) = run.rows_per_second { (number(rate as u64)) } @else { "–" } }
                    }
                    @if let Some(error) = &run.error { tr.why { td colspan="7" { div.sub { (error) } } } }
                }
            }
        } }
    }
}
