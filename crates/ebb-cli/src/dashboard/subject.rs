//! One subject: how it stands, when what happened and what would go with it; delete, restore, hold, erase it, each after a
//! look at what that would do.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use ebb::audit::{self, Moment, Record};
use ebb::retain::{self, Deletion, Shown};
use ebb::token::Role;
use maud::{Markup, html};
use serde::Deserialize;

use super::frame::{self, Ask, Trouble};
use super::session::{Form, Visitor};
use super::text::{ago, badge, given, plural, segment, time};
use super::tree;
use crate::http::{Path, Problem, Surface, restore_subject, retry_subject};

/// So many records of a deletion are shown.
const RECORDS: i64 = 200;

/// Where a subject's page is.
pub(super) fn path(policy: &str, id: &str) -> String {
    format!("/subjects/{}/{}", segment(policy), segment(id))
}

#[derive(Debug, Deserialize)]
pub(super) struct Of {
    policy: String,
    id: String,
}

pub(super) async fn page(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(of): Path<Of>,
) -> Result<Markup, Trouble> {
    let mut tx = surface.engine.database().read().await?;
    let shown = retain::show(&mut tx, &of.policy, &of.id).await?;
    let shape = retain::approved_tree(&mut tx, &of.policy).await?;
    let deletion = shown.deletion.as_ref();
    let records = match deletion {
        Some(deletion) => audit::of_deletion(&mut tx, &deletion.deletion.to_string(), RECORDS).await?,
        None => Vec::new(),
    };
    tx.rollback().await?;
    let state = match (&shown.unmarked, deletion) {
        (Some(_), _) => "not marked yet",
        (None, Some(deletion)) if deletion.state != "restored" => &deletion.state,
        (None, _) => "not deleted",
    };
    let main = html! {
        div.head {
            div { p.soft.small { a href="/subjects" { "Subjects" } " / " a href=(super::policies::path(&of.policy)) { (of.policy) } } h1 { (shown.id) } }
            div.actions { (badge(state)) (actions(&visitor, &shown)) }
        }
        @if let Some(hold) = &shown.hold {
            div.banner.warn role="status" { (frame::alert()) div {
                strong { "On hold: " (hold.reason) }
                p { "Since " (time(hold.placed_at)) ", by " (hold.placed_by) ". Nothing of it is marked, warned about or erased" @if let Some(until) = hold.until { " until " (time(until)) } "." @if !hold.binds.is_empty() { " It binds " (hold.binds.join(", ")) ", too." } }
            } }
        }
        @if let Some(error) = deletion.and_then(|deletion| deletion.error.as_ref()) {
            div.banner.bad role="alert" { (frame::alert()) div { strong { "It could not be erased" } p { (error) } @if let Some(again) = deletion.and_then(again) { p { "It is tried again from " (time(again)) " on." } } } }
        }
        @if let Some(deletion) = deletion.filter(|deletion| undeliverable(deletion)) {
            div.banner.bad role="alert" { (frame::alert()) div { strong { "Its warning could not be delivered" } p { (deletion.warning_error.as_deref().unwrap_or_default()) } } }
        }
        section.panel { header { h2 { "Timeline" } } div.pad { (timeline(&shown, &records)) } }
        (would_go(&shown, shape.as_ref()))
    };
    Ok(frame::page(&visitor, "/subjects", &shown.id, main))
}

/// What would go with it, as a picture and as numbers.
fn would_go(shown: &Shown, shape: Option<&retain::Shape>) -> Markup {
    let rows: u64 = shown.would_erase.values().sum();
    html! {
        section.panel {
            header { h2 { "What would be erased" } span.soft.small { (plural(rows as i64, "row")) " in " (plural(shown.would_erase.len() as i64, "table")) } }
            @match (shown.exists, shape) {
                (true, _) if shown.uncounted.is_some() => div.empty { "Not counted: " (shown.uncounted.as_deref().unwrap_or_default()) },
                (true, Some(shape)) => div.pad.scroll { (tree::picture(shape, &shown.would_erase, &shown.would_unlink)) },
                (true, None) => {},
                (false, _) => div.empty { "Its row is gone." },
            }
        }
    }
}

fn actions(visitor: &Visitor, shown: &Shown) -> Markup {
    let path = path(&shown.policy, &shown.id);
    let open = shown.deletion.as_ref().filter(|deletion| deletion.closed_at.is_none());
    let button = |what: &str, label: &str, class: &str| html! { a class={ "button " (class) } href={ (path) "/" (what) } { (label) "…" } };
    html! {
        @if visitor.may(Role::Operate) && shown.exists {
            @match open {
                None if shown.unmarked.is_some() => (button("restore", "Restore", "main")),
                None => (button("delete", "Delete", "")),
                Some(deletion) => {
                    @if deletion.state != "erasing" { (button("restore", "Restore", "main")) }
                    @if deletion.state == "failed" || undeliverable(deletion) { (button("retry", "Retry", "")) }
                },
            }
            @if shown.hold.is_some() { (button("release", "Release", "")) } @else { (button("hold", "Hold", "")) }
            (button("erase", "Erase", "danger"))
        }
    }
}

/// When it is tried again by itself after an attempt that failed.
fn again(deletion: &Deletion) -> Option<Moment> {
    let again = deletion.next_try_at.filter(|_| deletion.closed_at.is_none() && deletion.state != "failed")?;
    Some(again.max(deletion.due_at))
}

/// Whether somebody has to see to its warning.
fn undeliverable(deletion: &Deletion) -> bool {
    deletion.closed_at.is_none() && deletion.warning.as_deref() == Some("undeliverable")
}

/// When what happened, and what comes.
fn timeline(shown: &Shown, records: &[Record]) -> Markup {
    if let Some(unmarked) = &shown.unmarked {
        return html! {
            ol.timeline {
                li.done { strong { "Soft-deleted by the application" } " " (time(unmarked.deleted_at)) }
                li { strong { "Marked" } @if shown.hold.is_some() { " once its hold has ended" } @else { " by the next look at its table" } }
                @if unmarked.due_at < Moment::INFINITY { li { strong { "Erased" } " from " (time(unmarked.due_at)) div.sub { (ago(unmarked.due_at)) } } }
            }
        };
    }
    let Some(deletion) = &shown.deletion else {
        return html! { p.soft { "It is not deleted, so nothing is planned." } };
    };
    let open = deletion.closed_at.is_none();
    // Warnings are nobody's request and have no record of their own.
    let warnings =
        shown.history.iter().filter(|one| one.deletion == Some(deletion.deletion) && one.what.contains("warn"));
    let warnings = warnings.map(|one| (one.at, said(&one.what), one.note.clone(), one.what != "warning planned"));
    let records = records.iter().map(|one| (one.at, said(&one.action), Some(format!("by {}", one.by)), true));
    let mut past: Vec<(Moment, String, Option<String>, bool)> = records.chain(warnings).collect();
    past.sort_by_key(|(at, ..)| *at);
    html! {
        ol.timeline {
            li.done { strong { "Soft-deleted" } " " (time(deletion.deleted_at)) }
            @for (at, what, more, done) in &past { li.done[*done] { strong { (what) } " " (time(*at)) @if let Some(more) = more { div.sub { (more) } } } }
            @if open && deletion.due_at < Moment::INFINITY { li { strong { @if deletion.expedited { "Erased on request" } @else { "Erased" } } " from " (time(deletion.due_at)) div.sub { (ago(deletion.due_at)) @if let Some(blocked) = &deletion.blocked { ", waits: " (blocked) } } } }
            @if open && deletion.due_at == Moment::INFINITY { li { strong { "Not erased, as things stand" } } }
            @if let Some(at) = deletion.closed_at { li.done { strong { (said(&deletion.state)) } " " (time(at)) @if let Some(rows) = deletion.rows { div.sub { (plural(rows, "row")) } } } }
        }
    }
}

fn said(action: &str) -> String {
    let words = match action {
        "delete" => "Deletion opened",
        "restore" | "restored" => "Restored",
        "hold" => "Put on hold",
        "release" => "Released",
        "erase_requested" => "Erasure requested",
        "erase" | "erased" => "Erased",
        "retry" => "Tried again",
        "warned" => "Warned",
        "not warned" => "Could not be warned",
        "warning planned" => "Warning planned",
        other => other,
    };
    words.to_owned()
}

/// What can be done to a subject: its word, what is asked, what it means, the button, whether it destroys.
const ACTS: [(&str, &str, &str, &str, bool); 6] = [
    (
        "delete",
        "Soft-delete this subject?",
        "It counts as deleted from now on, and can be restored until it is erased.",
        "Soft-delete it",
        true,
    ),
    ("restore", "Restore this subject?", "It is as if it had not been deleted.", "Restore it", false),
    (
        "hold",
        "Put this subject on hold?",
        "Nothing of it is marked, warned about or erased until it is released.",
        "Put it on hold",
        false,
    ),
    ("release", "Lift the hold?", "Its deletion goes on, and may be due at once.", "Lift the hold", true),
    (
        "erase",
        "Erase this subject without its grace?",
        "It is erased as soon as floor and holds allow. Nobody can take that back.",
        "Erase it",
        true,
    ),
    (
        "retry",
        "Try again what failed?",
        "The next run tries to erase it; a warning that could not be delivered is made anew.",
        "Try again",
        true,
    ),
];

#[derive(Debug, Deserialize)]
pub(super) struct Act {
    policy: String,
    id: String,
    act: String,
}

pub(super) async fn ask(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(of): Path<Act>,
) -> Result<Markup, Trouble> {
    visitor.must(Role::Operate)?;
    let act = ACTS
        .iter()
        .find(|act| act.0 == of.act)
        .ok_or_else(|| Problem::not_found("nothing of that sort can be done"))?;
    let due = rehearse(&surface, &of, &visitor.caller.name).await?;
    let mut tx = surface.engine.database().read().await?;
    let shown = retain::show(&mut tx, &of.policy, &of.id).await?;
    let shape = retain::approved_tree(&mut tx, &of.policy).await?;
    tx.rollback().await?;
    let what = html! {
        p { (act.2) }
        @if let Some(due) = due { p { (erased_when(&shown, due)) } }
        @if act.4 { (would_go(&shown, shape.as_ref())) }
    };
    let fields = html! {
        @if act.0 == "hold" {
            div { label for="reason" { "Why; it is kept with the hold until the subject is erased" } input #reason name="reason" required autofocus; }
            div { label for="until" { "Until (UTC), or until it is released" } input #until name="until" type="datetime-local"; }
        }
    };
    let path = path(&of.policy, &of.id);
    let action = format!("{path}/{}", act.0);
    Ok(Ask { page: "/subjects", title: act.1, back: &path, action: &action, button: act.3, danger: act.4 }
        .show(&visitor, what, fields))
}

/// When it would be erased; a hold is why it would not.
fn erased_when(shown: &Shown, due: Moment) -> Markup {
    html! {
        @match &shown.hold {
            Some(hold) => {
                "It is on hold (" (hold.reason) "), so nothing of it is erased until the hold " @match hold.until { Some(until) => { "ends, " strong { (time(until)) } ", or is lifted." }, None => "is lifted." }
            },
            None if due == Moment::INFINITY => "It would not be erased, as things stand.",
            None => { "It would be erased " strong { (time(due)) } ", " (ago(due)) "." },
        }
    }
}

/// What an act would lead to, in a transaction that is taken back.
async fn rehearse(surface: &Surface, of: &Act, by: &str) -> Result<Option<Moment>, Problem> {
    let mut tx = surface.engine.database().read().await?;
    let due = match of.act.as_str() {
        "delete" => Some(retain::delete(&mut tx, &of.policy, &of.id, by).await?),
        "erase" => Some(retain::request_erasure(&mut tx, &of.policy, &of.id, by).await?),
        _ => None,
    };
    tx.rollback().await?;
    Ok(due)
}

#[derive(Debug, Deserialize)]
pub(super) struct Given {
    reason: Option<String>,
    until: Option<String>,
}

pub(super) async fn act(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(of): Path<Act>,
    Form(form): Form<Given>,
) -> Result<Response, Trouble> {
    visitor.must(Role::Operate)?;
    let (policy, id, by) = (of.policy.as_str(), of.id.as_str(), visitor.caller.name.as_str());
    let mut tx = surface.engine.database().read().await?;
    match of.act.as_str() {
        "delete" => drop(retain::delete(&mut tx, policy, id, by).await?),
        "erase" => drop(retain::request_erasure(&mut tx, policy, id, by).await?),
        "release" => retain::release(&mut tx, policy, id, by).await?,
        "hold" => {
            let until = given(form.until).map(|until| format!("{until}Z"));
            let reason = form.reason.unwrap_or_default();
            retain::hold(&mut tx, policy, id, &reason, until.as_deref(), by).await?;
        }
        "restore" => restore_subject(&surface, policy, id, by).await?,
        "retry" => retry_subject(&surface, policy, id, by).await?,
        _ => return Err(Problem::not_found("nothing of that sort can be done").into()),
    }
    retain::commit(tx).await?;
    Ok(Redirect::to(&path(policy, id)).into_response())
}
