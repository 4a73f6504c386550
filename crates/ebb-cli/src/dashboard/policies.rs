//! Every policy with its backlog, last and next run; found by a part of its name, by kind and by state.

use axum::extract::State;
use ebb::audit::Moment;
use ebb::status::PolicyStatus;
use maud::{Markup, html};
use serde::Deserialize;

use super::frame::{self, Trouble};
use super::session::Visitor;
use super::text::{ago, badge, given, number, segment};
use crate::http::{Query, Surface};

const PAGE: usize = 100;
const STATES: [&str; 6] = ["active", "observe", "paused", "braked", "stopped", "disabled"];

#[derive(Debug, Deserialize)]
pub(super) struct Search {
    name: Option<String>,
    state: Option<String>,
    after: Option<String>,
}

/// Where a policy's page is. Names have letters, digits, - and _ only.
pub(super) fn path(name: &str) -> String {
    format!("/policies/{name}")
}

pub(super) async fn page(
    visitor: Visitor,
    State(surface): State<Surface>,
    Query(search): Query<Search>,
) -> Result<Markup, Trouble> {
    let status = surface.engine.standing().await?;
    let (name, state, after) = (given(search.name), given(search.state), given(search.after));
    let mut fitting: Vec<&PolicyStatus> = status
        .policies
        .iter()
        .filter(|policy| name.as_ref().is_none_or(|part| policy.policy.contains(part.as_str())))
        .filter(|policy| state.as_ref().is_none_or(|state| policy.state == *state))
        .collect();
    fitting.sort_by(|a, b| a.policy.cmp(&b.policy));
    let found = fitting.len();
    let mut shown: Vec<&PolicyStatus> =
        fitting.into_iter().filter(|policy| after.as_ref().is_none_or(|after| policy.policy > *after)).collect();
    let more = shown.len() > PAGE;
    shown.truncate(PAGE);
    let more = shown.last().filter(|_| more).map(|last| {
        let word = |given: &Option<String>| segment(given.as_deref().unwrap_or(""));
        format!("/policies?name={}&state={}&after={}", word(&name), word(&state), segment(&last.policy))
    });
    let main = html! {
        div.head { h1 { "Policies" } span.soft.small { (number(found as u64)) @if found < status.policies.len() { " of " (number(status.policies.len() as u64)) } " in the database" } }
        section.panel {
            @if status.policies.len() > PAGE / 10 {
                div.pad { form.filters method="get" action="/policies" {
                    div { label for="name" { "Name" } input #name name="name" value=[name.as_deref()]; }
                    div { label for="state" { "State" } select #state name="state" {
                        option value="" { "all" }
                        @for known in STATES { option value=(known) selected[state.as_deref() == Some(known)] { (known) } }
                    } }
                    button { "Show" }
                } }
            }
            (table(&shown, status.policies.is_empty()))
            @if let Some(more) = more { div.pad { a href=(more) { "More policies" } } }
        }
    };
    Ok(frame::page(&visitor, "/policies", "Policies", main))
}

fn table(policies: &[&PolicyStatus], none_at_all: bool) -> Markup {
    if policies.is_empty() && !none_at_all {
        return html! { div.empty { strong { "No policy fits" } "Look for a part of its name, or for another state." } };
    }
    if policies.is_empty() {
        return html! { div.empty { strong { "No policy yet" } "Write one in ebb.toml, see what it would do with " code { "ebb plan" } ", then " code { "ebb apply" } "." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Policy" } th { "State" } th.n { "Due" } th.wide { "Oldest due" } th { "Last run" } th.wide { "Next run" } th.n.wide { "Tables" } } }
            tbody { @for policy in policies { (row(policy)) } }
        } }
    }
}

fn row(policy: &PolicyStatus) -> Markup {
    let due: u64 = policy.units.iter().filter_map(|unit| unit.pending).sum();
    let looked = policy.units.iter().any(|unit| unit.pending.is_some());
    let oldest = policy.units.iter().filter(|unit| unit.pending > Some(0)).filter_map(|unit| unit.oldest_due).min();
    let last = policy.units.iter().filter_map(|unit| unit.last_run.as_ref()).max_by_key(|run| run.started_at);
    let next = policy.units.iter().filter_map(|unit| unit.next_run).min();
    html! {
        tr {
            td { a href=(path(&policy.policy)) { (policy.policy) } div.sub { (policy.kind) @if let Some(cadence) = &policy.cadence { " · " (cadence) } } }
            td { (badge(&policy.state)) @if let Some(reason) = &policy.reason { div.sub { (reason) } } }
            td.n { @if looked { (number(due)) } @else { "–" } }
            td.wide { @if let Some(oldest) = oldest { (ago(oldest)) } @else { "–" } }
            td { @if let Some(last) = last { (badge(&last.status)) div.sub { (ago(last.started_at)) } } @else { "never" } }
            td.wide { @match next { Some(at) if at > Moment::NEG_INFINITY => (ago(at)), Some(_) => "now", None => "–" } }
            td.n.wide { (policy.units.len()) }
        }
    }
}
