//! What was done, and the proof: search, and a verification that is computed when it is asked for.

use axum::extract::State;
use ebb::audit::{self, Filter, Record};
use maud::{Markup, html};
use serde::Deserialize;

use super::frame::{self, Trouble};
use super::policies::path;
use super::session::Visitor;
use super::text::{count, number, time};
use crate::http::{Query, Surface, Verified, verify};

const PAGE: i64 = 50;
const ACTIONS: [&str; 18] = [
    "expire",
    "erase",
    "delete",
    "restore",
    "hold",
    "release",
    "erase_requested",
    "override",
    "floor",
    "partition",
    "drop",
    "policy",
    "pause",
    "resume",
    "trigger",
    "retry",
    "cancel",
    "token",
];

#[derive(Debug, Deserialize)]
pub(super) struct Search {
    policy: Option<String>,
    action: Option<String>,
    after: Option<i64>,
    #[serde(default)]
    verify: u8,
}

pub(super) async fn page(
    visitor: Visitor,
    State(surface): State<Surface>,
    Query(search): Query<Search>,
) -> Result<Markup, Trouble> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty() && !text.contains('\0'));
    let (policy, action) = (given(&search.policy), given(&search.action));
    let filter =
        Filter { policy: policy.clone(), action: action.clone(), since: None, limit: Some(PAGE), after: search.after };
    let mut tx = surface.engine.database().read().await?;
    let records = audit::list(&mut tx, &filter).await?;
    tx.commit().await?;
    let verified = if search.verify == 1 { Some(verify(&surface).await) } else { None };
    let more = (records.len() as i64 == PAGE).then(|| records.last().map(|record| record.id)).flatten();
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    Ok(frame::page(
        &visitor,
        "/audit",
        "Audit",
        html! {
            div.head { h1 { "Audit" } div.actions { a.button href="/audit/report" { "Report" } form method="get" action="/audit" { button.main name="verify" value="1" { "Verify the chain" } } } }
            @if let Some(verified) = verified { (proof(verified)) }
            section.panel {
                div.pad { form.filters method="get" action="/audit" {
                    div { label for="policy" { "Policy" } input #policy name="policy" value=(word(&policy)); }
                    div { label for="action" { "Action" } select #action name="action" {
                        option value="" { "all" }
                        @for known in ACTIONS { option value=(known) selected[action.as_deref() == Some(known)] { (known) } }
                    } }
                    button { "Search" }
                } }
            }
            section.panel {
                (table(&records))
                @if let Some(after) = more { div.pad { a href={ "/audit?policy=" (word(&policy)) "&action=" (word(&action)) "&after=" (after) } { "Older records" } } }
            }
        },
    ))
}

fn table(records: &[Record]) -> Markup {
    if records.is_empty() {
        return html! { div.empty { strong { "No record fits" } "Every deletion and every change leaves one." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th.n { "#" } th { "When" } th { "What" } th { "Policy" } th.n { "Rows" } th.wide { "Due from – to" } th { "Who" } th.wide { "Proof" } } }
            tbody {
                @for record in records {
                    tr {
                        td.n { (record.id) }
                        td { (time(record.at)) }
                        td { span.badge { (record.action) } @if let Some(relation) = &record.relation { div.sub { code { (relation) } } } }
                        td { @if let Some(policy) = &record.policy { @if ["*", "keep", "events", "audit"].contains(&policy.as_str()) { (policy) } @else { a href=(path(policy)) { (policy) } } @if let Some(version) = record.policy_version { div.sub { "version " (version) } } } }
                        td.n { @if record.relation.is_some() { (count(record.rows)) } }
                        td.wide { @if let (Some(from), Some(to)) = (record.due_from, record.due_to) { (time(from)) div.sub { (time(to)) } } @else if record.details != "{}" { details { summary.small { "details" } code { (record.details) } } } }
                        td { (record.by) @if let Some(node) = &record.node { @if node != &record.by { div.sub { (node) } } } }
                        td.wide { a href={ "/v1/audit/receipts/" (record.id) } download={ "receipt-" (record.id) ".json" } { "Receipt" } }
                    }
                }
            }
        } }
    }
}

fn proof(verified: Result<Verified, crate::http::Problem>) -> Markup {
    match verified {
        Err(problem) => {
            html! { div.banner.warn role="status" { (frame::alert()) div { strong { "Nothing to verify with" } p { (problem.detail()) @if let Some(hint) = problem.hint_text() { ". " (hint) } } } } }
        }
        Ok(verified) if verified.ok => html! {
            div.banner.good role="status" { (frame::tick()) div {
                strong { "Verified: " (number(verified.records)) " records in " (number(verified.blocks)) " blocks are as they were sealed" }
                p {
                    "Every hash, link and signature was recomputed just now."
                    @if verified.unsealed > 0 { " " (number(verified.unsealed)) " records wait for a seal." }
                    @match verified.published { Some(block) => { " The chain reaches block " (block) ", which was published outside the database." }, None => " No published seal was found: whether blocks are missing at the end could not be checked." }
                }
            } }
        },
        Ok(verified) => html! {
            div.banner.bad role="alert" { (frame::alert()) div { strong { "NOT verified" } ul { @for problem in verified.problems.iter().take(20) { li { (problem) } } } } }
        },
    }
}
