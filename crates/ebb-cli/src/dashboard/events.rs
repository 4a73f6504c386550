//! Events: what is due, how late deliveries are, what died and why; one event with its attempts and answers. Retrying and
//! cancelling show first what they would do.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use ebb::schedule::{Cursor, EventRow, EventsStatus, Filter, Occurrence, RecurringRow, Shown, State as EventState};
use ebb::token::Role;
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

use super::chart;
use super::frame::{self, Ask, Trouble};
use super::overview::tile;
use super::session::{Form, Nothing, Visitor};
use super::text::{ago, badge, count, given, number, plural, seconds, time};
use crate::http::{Path, Problem, Query, Surface, cancel_event, retry_event};

const PAGE: u32 = 50;
const STATES: [&str; 7] = ["pending", "running", "failed", "done", "dead", "cancelled", "skipped"];

#[derive(Debug, Deserialize)]
pub(super) struct Search {
    sink: Option<String>,
    state: Option<String>,
    after: Option<String>,
}

pub(super) async fn page(
    visitor: Visitor,
    State(surface): State<Surface>,
    Query(search): Query<Search>,
) -> Result<Markup, Trouble> {
    let events = surface.engine.events();
    let status = surface.engine.events_standing().await?;
    let lateness = events.lateness().await?;
    let pace = events.pace().await?;
    let (sink, word) = (given(search.sink), given(search.state));
    let state = word.as_deref().map(str::parse::<EventState>).transpose();
    let state = state.map_err(|invalid| Problem::invalid(invalid.message))?;
    let after = given(search.after).map(|text| text.parse::<Cursor>()).transpose()?;
    let filter = Filter { sink: sink.clone(), state, limit: PAGE, ..Filter::default() };
    let (rows, next) = events.page(&filter, after).await?;
    let dead = match state.is_some() || after.is_some() {
        true => Vec::new(),
        false => {
            let dead = Filter { sink: sink.clone(), state: Some(EventState::Dead), limit: 10, ..Filter::default() };
            events.page(&dead, None).await?.0
        }
    };
    let more = next.map(|next| {
        format!("/events?sink={}&state={}&after={next}", sink.as_deref().unwrap_or(""), word.as_deref().unwrap_or(""))
    });
    let main = html! {
        div.head { h1 { "Events" } span.soft.small { "what is due gets delivered, in order, also after downtime" } }
        @if status.recovery_mode {
            div.banner.warn role="status" { (frame::alert()) div { strong { "Catching up" } p { "More than ten events are overdue. They are delivered oldest first, without holding up what is due now." } } }
        }
        (tiles(&status))
        div.two {
            section.panel {
                header { h2 { "How late" } span.soft.small { @match &lateness { Some(found) => { "deliveries of the last " (seconds(found.over.as_secs_f64())) }, None => "too many to count" } } }
                div.pad { (chart::histogram(lateness.as_ref())) }
            }
            section.panel { header { h2 { "Sinks" } } (sinks(&status, &pace)) }
        }
        @if !dead.is_empty() {
            section.panel {
                header { h2 { "Dead letters" } @if visitor.may(Role::Operate) { a.small href="/events/retry" { "Retry all…" } } }
                (table(&dead, visitor.may(Role::Operate)))
            }
        }
        section.panel {
            header { h2 { "All events" } }
            div.pad { form.filters method="get" action="/events" {
                div { label for="sink" { "Sink" } select #sink name="sink" {
                    option value="" { "all" }
                    @for known in &status.sinks { option value=(known.sink) selected[sink.as_deref() == Some(&known.sink)] { (known.sink) } }
                } }
                div { label for="state" { "State" } select #state name="state" {
                    option value="" { "all" }
                    @for known in STATES { option value=(known) selected[word.as_deref() == Some(known)] { (known) } }
                } }
                button { "Show" }
            } }
            (table(&rows, false))
            @if let Some(more) = more { div.pad { a href=(more) { "More events" } } }
        }
    };
    Ok(frame::page(&visitor, "/events", "Events", main))
}

fn tiles(status: &EventsStatus) -> Markup {
    let sum = |of: fn(&ebb::schedule::SinkStatus) -> i64| status.sinks.iter().map(of).sum::<i64>();
    let hour = |of: fn(&ebb::schedule::SinkStatus) -> Option<i64>| status.sinks.iter().filter_map(of).sum::<i64>();
    let (due, dead) = (sum(|sink| sink.due), sum(|sink| sink.dead));
    let oldest = status.sinks.iter().filter_map(|sink| sink.oldest_due).min();
    let next = status.sinks.iter().filter_map(|sink| sink.next_at).min();
    html! {
        div.tiles {
            (tile("Due now", &count(due), html! { @match oldest { Some(at) => { "oldest " (ago(at)) }, None => "nothing waits" } }))
            (tile("Being delivered", &count(sum(|sink| sink.running)), html! { "held by nodes" }))
            (tile("Delivered", &count(hour(|sink| sink.done_last_hour)), html! { "in the last hour, " (count(hour(|sink| sink.late_last_hour))) " late" }))
            (tile("Dead letters", &count(dead), html! { @if dead > 0 { (badge("dead")) } @else { "none" } }))
            (tile("Next", "", html! { @match next { Some(at) => (ago(at)), None => "nothing is planned" } }))
        }
    }
}

fn sinks(status: &EventsStatus, pace: &[(String, f64)]) -> Markup {
    if status.sinks.is_empty() {
        return html! { div.empty { strong { "No sink yet" } "Write " code { "[sinks.NAME]" } " in ebb.toml, then " code { "ebb apply" } "." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Sink" } th.n { "Due" } th { "Recovery" } th.n { "Dead" } } }
            tbody {
                @for sink in &status.sinks {
                    @let rate = pace.iter().find(|(name, _)| *name == sink.sink).map_or(0.0, |(_, rate)| *rate);
                    tr {
                        td { (sink.sink) div.sub { (badge(&sink.state)) @if let Some(since) = sink.dead_since { " its receiver takes nothing; first seen " (ago(since)) } } }
                        td.n { (count(sink.due)) @if sink.due >= 100_000 { "+" } }
                        td { (recovery(sink.due, sink.done_last_hour.unwrap_or(0), rate)) }
                        td.n { @if sink.dead > 0 { a href={ "/events?state=dead&sink=" (sink.sink) } { (count(sink.dead)) } } @else { "0" } }
                    }
                }
            }
        } }
    }
}

/// How far a backlog has come, and when it should be gone at the pace of the last minutes.
fn recovery(due: i64, done: i64, rate: f64) -> Markup {
    if due == 0 {
        return html! { span.soft { "nothing to make up for" } };
    }
    html! {
        progress max=(due + done) value=(done) aria-label="Delivered of what was due in the last hour" {}
        div.sub {
            @if rate > 0.0 { (number(rate.ceil() as u64)) " a second, done in about " (seconds(due as f64 / rate)) }
            @else { "nothing was delivered in the last five minutes" }
        }
    }
}

fn table(rows: &[EventRow], act: bool) -> Markup {
    if rows.is_empty() {
        return html! { div.empty { strong { "No event fits" } "Applications schedule them through SQL, HTTP or the command line." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Due" } th { "Sink" } th { "State" } th.n.wide { "Attempts" } th { "What happened" } @if act { th {} } } }
            tbody {
                @for row in rows {
                    tr {
                        td { a href={ "/events/" (row.event) } { (time(row.due_at)) } }
                        td { (row.sink) }
                        td { (badge(&row.state)) }
                        td.n.wide { (row.attempts) }
                        td { (happened(row)) }
                        @if act { td.n { a.button href={ "/events/" (row.occurrence) "/retry" } { "Retry…" } } }
                    }
                }
            }
        } }
    }
}

fn happened(row: &EventRow) -> Markup {
    let late = |end: ebb::audit::Moment| seconds((end.micros() - row.due_at.micros()).max(0) as f64 / 1e6);
    html! {
        @match (row.finished_at, row.ready_at) {
            (Some(end), _) if row.state == "done" => { "delivered " (ago(end)) div.sub { (late(end)) " after it was due" } },
            (Some(end), _) => { "ended " (ago(end)) },
            (None, Some(ready)) if row.state == "failed" => { "again " (ago(ready)) },
            _ => {},
        }
        @if let Some(error) = &row.last_error { div.sub { (error) } }
    }
}

pub(super) async fn one(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(id): Path<Uuid>,
) -> Result<Markup, Trouble> {
    let shown = found(&surface, id).await?;
    let main = html! {
        div.head { div { p.soft.small { a href="/events" { "Events" } } h1 { "Event" } p.soft.small { code { (id) } } } (actions(&visitor, &shown)) }
        @if let Some(recurring) = &shown.recurring { (comes_again(recurring)) }
        @for occurrence in &shown.occurrences { (occurrence_panel(occurrence)) }
    };
    Ok(frame::page(&visitor, "/events", "Event", main))
}

async fn found(surface: &Surface, id: Uuid) -> Result<Shown, Problem> {
    let shown = surface.engine.events().show(id).await?;
    shown.ok_or_else(|| Problem::not_found(format!("nobody knows an event {id}")))
}

fn actions(visitor: &Visitor, shown: &Shown) -> Markup {
    let newest = shown.occurrences.first();
    let retries = newest.filter(|one| ["failed", "dead", "skipped", "cancelled"].contains(&one.row.state.as_str()));
    let cancels = match (&shown.recurring, newest) {
        (Some(recurring), _) if recurring.policy.is_none() && recurring.cancelled_at.is_none() => Some(recurring.id),
        (None, Some(one)) if ["pending", "failed"].contains(&one.row.state.as_str()) => Some(one.row.event),
        _ => None,
    };
    html! {
        @if visitor.may(Role::Operate) {
            div.actions {
                @if let Some(id) = cancels { a.button href={ "/events/" (id) "/cancel" } { "Cancel…" } }
                @if let Some(one) = retries { a.button.main href={ "/events/" (one.row.occurrence) "/retry" } { "Retry…" } }
            }
        }
    }
}

fn comes_again(recurring: &RecurringRow) -> Markup {
    html! {
        section.panel {
            header { h2 { "Comes again" } (badge(if recurring.cancelled_at.is_some() { "cancelled" } else { "active" })) }
            div.pad { dl.facts {
                div { dt { "When" } dd { @match (&recurring.cron, recurring.month, recurring.day, &recurring.at) { (Some(cron), ..) => code { (cron) }, (None, Some(month), Some(day), Some(at)) => { "every " (format!("{month:02}-{day:02}")) " at " (at) }, _ => "–" } " in " (recurring.zone) } }
                div { dt { "Next" } dd { @match recurring.next_at { Some(at) => (time(at)), None => "never" } } }
                div { dt { "Missed ones" } dd { (recurring.missed) @if recurring.passed_over > 0 { ", " (count(recurring.passed_over)) " passed over" } } }
                @if let Some(policy) = &recurring.policy { div { dt { "Policy" } dd { a href=(super::policies::path(policy)) { (policy) } } } }
            } }
        }
    }
}

fn occurrence_panel(occurrence: &Occurrence) -> Markup {
    let row = &occurrence.row;
    html! {
        section.panel {
            header { h2 { "Due " (time(row.due_at)) } (badge(&row.state)) }
            div.pad { dl.facts {
                div { dt { "Sink" } dd { (row.sink) } }
                div { dt { "Attempts" } dd { (row.attempts) } }
                @if let Some(end) = row.finished_at { div { dt { "Ended" } dd { (time(end)) } } }
                @if let Some(ready) = row.ready_at.filter(|_| row.state == "failed") { div { dt { "Next attempt" } dd { (ago(ready)) } } }
                @if let Some(node) = &row.node { div { dt { "Node" } dd { (node) } } }
                @if let Some(key) = &row.dedupe_key { div { dt { "Dedupe key" } dd { code { (key) } } } }
                @if let (Some(policy), Some(id)) = (&occurrence.subject_policy, &occurrence.subject_id) { div { dt { "Subject" } dd { a href=(super::subject::path(policy, id)) { (policy) " / " (id) } } } }
            } }
            (attempts(occurrence))
            div.pad {
                h3 { "Body" }
                @if occurrence.body.is_empty() { span.soft { "It is gone with its subject." } }
                @else { pre.box { (pretty(&occurrence.body)) } }
            }
        }
    }
}

/// What became of each attempt, the last one first.
fn attempts(occurrence: &Occurrence) -> Markup {
    let row = &occurrence.row;
    let earlier = occurrence.earlier.as_deref().unwrap_or_default();
    // Waiting for its first attempt, or in the middle of it.
    if row.last_error.is_none() && occurrence.response.is_none() && earlier.is_empty() {
        return html! {};
    }
    let last = (row.finished_at.or(occurrence.answered_at), row.last_error.as_deref(), occurrence.response.as_ref());
    let before = earlier.iter().rev().map(|one| (one.at, one.error.as_deref(), one.answer.as_ref()));
    html! {
        div.pad {
            h3 { "Attempts and answers" }
            ol.timeline {
                @for (at, error, answer) in std::iter::once(last).chain(before) {
                    li class={ @if error.is_some() { "bad" } @else { "good" } } {
                        div { @match error { Some(error) => strong { (error) }, None => strong { "Answered" } } @if let Some(at) = at { " " span.soft.small { (time(at)) } } }
                        @if let Some(answer) = answer { pre.box { (serde_json::to_string_pretty(answer).unwrap_or_default()) } }
                    }
                }
            }
        }
    }
}

fn pretty(body: &str) -> String {
    let value: Option<serde_json::Value> = serde_json::from_str(body).ok();
    value.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| body.to_owned())
}

pub(super) async fn ask_retry(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(id): Path<Uuid>,
) -> Result<Markup, Trouble> {
    visitor.must(Role::Operate)?;
    let shown = found(&surface, id).await?;
    Ok(Ask {
        page: "/events",
        title: "Deliver it again?",
        back: &format!("/events/{id}"),
        action: &format!("/events/{id}/retry"),
        button: "Deliver it again",
        danger: false,
    }
    .show(
        &visitor,
        html! { p { "It becomes ready at once, with all its attempts, however late it is. The receiver gets the same id and the same body as before." } @for one in shown.occurrences.iter().filter(|one| one.row.occurrence == id) { (occurrence_panel(one)) } },
        html! {},
    ))
}

pub(super) async fn retry(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(id): Path<Uuid>,
    _form: Form<Nothing>,
) -> Result<Response, Trouble> {
    visitor.must(Role::Operate)?;
    retry_event(&surface, id, &visitor.caller.name).await?;
    Ok(Redirect::to(&format!("/events/{id}")).into_response())
}

pub(super) async fn ask_retry_all(visitor: Visitor, State(surface): State<Surface>) -> Result<Markup, Trouble> {
    visitor.must(Role::Operate)?;
    let status = surface.engine.events_status().await?;
    let dead: Vec<_> = status.sinks.iter().filter(|sink| sink.dead > 0).collect();
    let what = html! {
        @if dead.is_empty() { p { "There is no dead letter." } }
        @else {
            p { "Every dead letter becomes ready at once, with all its attempts:" }
            table { tbody { @for sink in &dead { tr { td { (sink.sink) } td.n { (plural(sink.dead, "event")) } } } } }
        }
    };
    Ok(Ask {
        page: "/events",
        title: "Deliver all dead letters again?",
        back: "/events",
        action: "/events/retry",
        button: "Deliver them again",
        danger: false,
    }
    .show(&visitor, what, html! {}))
}

pub(super) async fn retry_all(
    visitor: Visitor,
    State(surface): State<Surface>,
    _form: Form<Nothing>,
) -> Result<Response, Trouble> {
    visitor.must(Role::Operate)?;
    surface.engine.events().retry_by(None, None, &visitor.caller.name).await?;
    Ok(Redirect::to("/events").into_response())
}

pub(super) async fn ask_cancel(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(id): Path<Uuid>,
) -> Result<Markup, Trouble> {
    visitor.must(Role::Operate)?;
    let shown = found(&surface, id).await?;
    let what = html! {
        p { "It will not be delivered. What was delivered stays delivered." }
        @if let Some(recurring) = &shown.recurring { (comes_again(recurring)) }
        @for one in shown.occurrences.iter().take(1) { (occurrence_panel(one)) }
    };
    Ok(Ask {
        page: "/events",
        title: "Cancel this event?",
        back: &format!("/events/{id}"),
        action: &format!("/events/{id}/cancel"),
        button: "Cancel the event",
        danger: true,
    }
    .show(&visitor, what, html! {}))
}

pub(super) async fn cancel(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(id): Path<Uuid>,
    _form: Form<Nothing>,
) -> Result<Response, Trouble> {
    visitor.must(Role::Operate)?;
    cancel_event(&surface, id, &visitor.caller.name).await?;
    Ok(Redirect::to(&format!("/events/{id}")).into_response())
}
