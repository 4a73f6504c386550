//! Every policy with its backlog, last and next run.

use axum::extract::State;
use ebb::audit::Moment;
use ebb::status::PolicyStatus;
use maud::{Markup, html};

use super::frame::{self, Trouble};
use super::session::Visitor;
use super::text::{ago, badge, number};
use crate::http::Surface;

/// Where a policy's page is. Names have letters, digits, - and _ only.
pub(super) fn path(name: &str) -> String {
    format!("/policies/{name}")
}

pub(super) async fn page(visitor: Visitor, State(surface): State<Surface>) -> Result<Markup, Trouble> {
    let status = surface.engine.standing().await?;
    Ok(frame::page(
        &visitor,
        "/policies",
        "Policies",
        html! {
            div.head { h1 { "Policies" } span.soft.small { (status.policies.len()) " in the database" } }
            section.panel { (table(&status.policies)) }
        },
    ))
}

fn table(policies: &[PolicyStatus]) -> Markup {
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
