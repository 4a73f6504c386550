//! Subjects: find one, see who is on hold and who is about to be erased, and what each of them waits for.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use ebb::audit::Moment;
use ebb::retain::{self, HeldSubject, OpenDeletion, OpenFilter, Wait};
use ebb::status::{PolicyStatus, Status};
use maud::{Markup, html};
use serde::Deserialize;
use uuid::Uuid;

use super::frame::{self, Trouble};
use super::session::Visitor;
use super::subject::path;
use super::text::{ago, badge, given, segment, time};
use crate::http::{Problem, Query, Surface};

/// So many stand on a page, of either list.
const LISTED: usize = 50;
const STATES: [&str; 4] = ["pending", "warned", "erasing", "failed"];

#[derive(Debug, Deserialize)]
pub(super) struct Search {
    policy: Option<String>,
    /// One subject, of that policy.
    id: Option<String>,
    state: Option<String>,
    /// How the ids of those begin that are listed.
    begins: Option<String>,
    /// The last deletion, and the last hold, of the page before.
    after: Option<String>,
    hold: Option<i64>,
}

pub(super) async fn page(
    visitor: Visitor,
    State(surface): State<Surface>,
    Query(search): Query<Search>,
) -> Result<Response, Trouble> {
    let (policy, state, begins) = (given(search.policy), given(search.state), given(search.begins));
    if let (Some(policy), Some(id)) = (&policy, given(search.id)) {
        return Ok(Redirect::to(&path(policy, id.trim())).into_response());
    }
    let after = given(search.after).map(|text| text.parse::<Uuid>()).transpose();
    let after = after.map_err(|_| Problem::invalid("that page is not one of these"))?;
    let filter = OpenFilter { policy, state, id: begins, limit: LISTED as i64 + 1, after };
    let status = surface.engine.standing().await?;
    let mut tx = surface.engine.database().read().await?;
    let policies = retain::policies(&mut tx).await?;
    let mut open = retain::list_open(&mut tx, &filter).await?;
    let mut held = retain::list_holds(&mut tx, filter.policy.as_deref(), LISTED as i64 + 1, search.hold).await?;
    tx.commit().await?;
    let more_open = cut(&mut open).map(|last| format!("{}&after={}", again(&filter), last.deletion.deletion));
    let more_held = cut(&mut held).map(|last| format!("{}&hold={}", again(&filter), last.hold));
    let main = html! {
        div.head { h1 { "Subjects" } span.soft.small { "personal data lives as long as policy says" } }
        @if policies.is_empty() {
            section.panel { div.empty { strong { "No policy with subjects yet" } "A " code { "[[retain]]" } " policy with " code { "deleted_at" } " has them." } }
        } @else {
            section.panel { header { h2 { "Find one" } } div.pad { form.filters method="get" action="/subjects" {
                div { label for="policy" { "Policy" } select #policy name="policy" { @for known in &policies { option value=(known) selected[filter.policy.as_ref() == Some(known)] { (known) } } } }
                div { label for="id" { "Subject's id" } input #id name="id" placeholder="the primary key" autocomplete="off"; }
                button.main { "Find" }
            } } }
            section.panel {
                header { h2 { "On hold" } span.soft.small { "nothing of them is marked, warned about or erased" } }
                (holds(&held))
                @if let Some(more) = more_held { div.pad { a href=(more) { "Earlier holds" } } }
            }
            section.panel {
                header { h2 { "Open deletions" } span.soft.small { "stuck ones first, then the soonest" } }
                (filters(&filter, &policies))
                (table(&open, &status, filter.state.is_some() || filter.id.is_some() || filter.after.is_some()))
                @if let Some(more) = more_open { div.pad { a href=(more) { "More deletions" } } }
            }
        }
    };
    Ok(frame::page(&visitor, "/subjects", "Subjects", main).into_response())
}

/// Leaves what fits on a page; the last of it, where there is more.
fn cut<T>(found: &mut Vec<T>) -> Option<&T> {
    let more = found.len() > LISTED;
    found.truncate(LISTED);
    found.last().filter(|_| more)
}

/// This page with the same filters.
fn again(filter: &OpenFilter) -> String {
    let word = |given: &Option<String>| segment(given.as_deref().unwrap_or(""));
    format!("/subjects?policy={}&state={}&begins={}", word(&filter.policy), word(&filter.state), word(&filter.id))
}

fn filters(filter: &OpenFilter, policies: &[String]) -> Markup {
    html! {
        div.pad { form.filters method="get" action="/subjects" {
            div { label for="of" { "Policy" } select #of name="policy" {
                option value="" { "all" }
                @for known in policies { option value=(known) selected[filter.policy.as_ref() == Some(known)] { (known) } }
            } }
            div { label for="state" { "State" } select #state name="state" {
                option value="" { "all" }
                @for known in STATES { option value=(known) selected[filter.state.as_deref() == Some(known)] { (known) } }
            } }
            div { label for="begins" { "Id begins with" } input #begins name="begins" value=[filter.id.as_deref()] autocomplete="off"; }
            button { "Show" }
        } }
    }
}

fn holds(held: &[HeldSubject]) -> Markup {
    if held.is_empty() {
        return html! { div.empty { "Nobody is on hold." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Subject" } th { "Why" } th { "Until" } th.wide { "Since" } th.wide { "By" } } }
            tbody {
                @for one in held {
                    tr {
                        td { a href=(path(&one.policy, &one.subject_id)) { (one.subject_id) } div.sub { (one.policy) @if let Some(state) = &one.state { " · " (state) } } }
                        td { (one.reason) }
                        td { @match one.until { Some(until) => (time(until)), None => "it is released" } }
                        td.wide { (time(one.since)) }
                        td.wide { (one.placed_by) }
                    }
                }
            }
        } }
    }
}

fn table(open: &[OpenDeletion], status: &Status, filtered: bool) -> Markup {
    if open.is_empty() && filtered {
        return html! { div.empty { strong { "No deletion fits" } "Look for another state, or for the beginning of an id." } };
    }
    if open.is_empty() {
        return html! { div.empty { strong { "Nobody is about to be erased" } "A soft delete opens a deletion, and it is listed here until it is done." } };
    }
    let policies: HashMap<&str, &PolicyStatus> =
        status.policies.iter().map(|policy| (policy.policy.as_str(), policy)).collect();
    html! {
        div.scroll { table {
            thead { tr { th { "Subject" } th { "State" } th { "Due" } th.wide { "Deleted" } th { "Waits for" } } }
            tbody {
                @for one in open {
                    @let deletion = &one.deletion;
                    tr {
                        td { @match &deletion.subject_id { Some(id) => a href=(path(&one.policy, id)) { (id) }, None => "–" } div.sub { (one.policy) @if let Some(tenant) = &deletion.tenant { " · " (tenant) } } }
                        td { (badge(&deletion.state)) @if deletion.on_hold { " " (badge("on hold")) } }
                        td { (ago(deletion.due_at)) }
                        td.wide { (time(deletion.deleted_at)) }
                        td { (waits(&deletion.waits(status.policy_time), policies.get(one.policy.as_str()).copied())) }
                    }
                }
            }
        } }
    }
}

/// What a deletion waits for; where nothing but a run is missing, what keeps its policy from running.
fn waits(wait: &Wait, policy: Option<&PolicyStatus>) -> Markup {
    let still = policy.filter(|policy| policy.state != "active" && wait.is_ordinary());
    let next = policy.filter(|_| *wait == Wait::Run).and_then(PolicyStatus::next_erasure);
    html! {
        @match (still, wait) {
            (Some(policy), _) if policy.state == "observe" => { "its policy to enforce: it only observes" },
            (Some(policy), _) => { "its policy, which is " (policy.state) @if let Some(reason) = &policy.reason { div.sub { (reason) } } },
            (None, Wait::Time) => span.soft { (wait) },
            (None, wait) => { (wait) @if let Some(next) = next.filter(|next| *next > Moment::NEG_INFINITY) { ", " (ago(next)) } },
        }
    }
}
