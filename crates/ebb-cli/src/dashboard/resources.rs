//! Resources: what lives outside and who refers to it, what nobody knows, what stands in the way of an end. Ending a grace
//! shows first what would be dropped.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use ebb::policy::{self, Kind};
use ebb::resources::{self, HolderRow, Listed, Sighting, Sweeps};
use ebb::token::Role;
use maud::{Markup, html};
use serde::Deserialize;

use super::frame::{self, Ask, Trouble};
use super::overview::tile;
use super::session::{Form, Nothing, Visitor};
use super::text::{ago, badge, count, given, segment};
use crate::cli::words::bytes;
use crate::http::{Path, Query, Surface};

const PAGE: u64 = 50;
const STATES: [&str; 6] = ["creating", "live", "condemned", "dropping", "blocked", "dropped"];

#[derive(Debug, Deserialize)]
pub(super) struct Search {
    policy: Option<String>,
    state: Option<String>,
    after: Option<String>,
}

/// What the sweeper says about one policy.
struct Store {
    policy: String,
    sweeps: Option<Sweeps>,
    orphans: Vec<Sighting>,
}

pub(super) async fn page(
    visitor: Visitor,
    State(surface): State<Surface>,
    Query(search): Query<Search>,
) -> Result<Markup, Trouble> {
    let (of, state, after) = (given(search.policy), given(search.state), given(search.after));
    let state = state.filter(|state| STATES.contains(&state.as_str()));
    let mut tx = surface.engine.database().read().await?;
    let stored = policy::store::all(&mut tx).await?;
    let names: Vec<String> = stored.into_iter().filter(|one| one.kind == Kind::Resources).map(|one| one.name).collect();
    let from = after.as_deref().and_then(|after| after.split_once('/'));
    let rows = resources::list_after(&mut tx, of.as_deref(), state.as_deref(), from, PAGE).await?;
    let counts = resources::counts(&mut tx).await?;
    let holders = resources::holders(&mut tx, PAGE).await?;
    let mut stores = Vec::new();
    for policy in &names {
        let sweeps = resources::sweeps(&mut tx, policy).await.ok();
        let orphans = resources::sightings(&mut tx, policy, PAGE).await?;
        stores.push(Store { policy: policy.clone(), sweeps, orphans });
    }
    tx.commit().await?;
    let more = rows.last().filter(|_| rows.len() as u64 == PAGE).map(|last| {
        let (of, state) = (of.as_deref().unwrap_or(""), state.as_deref().unwrap_or(""));
        format!("/resources?policy={of}&state={state}&after={}/{}", segment(&last.policy), segment(&last.name))
    });
    let main = html! {
        div.head { h1 { "Resources" } span.soft.small { "they live exactly as long as somebody refers to them" } }
        @if names.is_empty() {
            section.panel { div.empty { strong { "No resources yet" } "A " code { "[[resources]]" } " policy looks after tables and objects outside." } }
        } @else {
            (tiles(&counts, holders.len(), &stores))
            section.panel {
                header { h2 { "Resources" } }
                div.pad { form.filters method="get" action="/resources" {
                    div { label for="policy" { "Policy" } select #policy name="policy" { option value="" { "all" } @for known in &names { option value=(known) selected[of.as_ref() == Some(known)] { (known) } } } }
                    div { label for="state" { "State" } select #state name="state" { option value="" { "all but dropped" } @for known in STATES { option value=(known) selected[state.as_deref() == Some(known)] { (known) } } } }
                    button { "Show" }
                } }
                (table(&rows, &visitor))
                @if let Some(more) = more { div.pad { a href=(more) { "More resources" } } }
            }
            section.panel { header { h2 { "Holders" } span.soft.small { "alive by their beat" } } (holder_table(&holders)) }
            @for store in &stores { (orphans(store, &visitor)) }
        }
    };
    Ok(frame::page(&visitor, "/resources", "Resources", main))
}

fn tiles(counts: &[(String, String, i64)], holders: usize, stores: &[Store]) -> Markup {
    let of = |state: &str| counts.iter().filter(|(_, known, _)| known == state).map(|(_, _, count)| count).sum::<i64>();
    let blocked = of("blocked");
    // What is read for the page is all that is counted.
    let up_to = |read: usize, more: bool| format!("{}{}", count(read as i64), if more { "+" } else { "" });
    let full = |read: usize| read as u64 == PAGE;
    let orphans = stores.iter().map(|store| store.orphans.len()).sum();
    let more_orphans = stores.iter().any(|store| full(store.orphans.len()));
    html! {
        div.tiles {
            (tile("Live", &count(of("live")), html! { (count(of("creating"))) " being made" }))
            (tile("Condemned", &count(of("condemned")), html! { "nobody refers to them" }))
            (tile("Dropping", &count(of("dropping")), html! { "until the store says they are gone" }))
            (tile("Blocked", &count(blocked), html! { @if blocked > 0 { (badge("blocked")) } @else { "none" } }))
            (tile("Orphans seen", &up_to(orphans, more_orphans), html! { "announced by nobody" }))
            (tile("Holders", &up_to(holders, full(holders)), html! { "refer to something" }))
        }
    }
}

fn table(rows: &[Listed], visitor: &Visitor) -> Markup {
    if rows.is_empty() {
        return html! { div.empty { strong { "No resource fits" } "Whoever is about to make one announces it first." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Resource" } th { "State" } th { "Referred to by" } th.wide { "Announced" } th {} } }
            tbody {
                @for one in rows {
                    tr {
                        td { code { (one.name) } div.sub { (one.policy) @if one.orphan { " · found by the sweeper" } } }
                        td { (badge(&one.state)) @if let Some(problem) = &one.problem { div.sub { (problem) } } }
                        td { @if one.refs == 0 { span.soft { "nobody" } } @else { (one.holders.join(", ")) @if one.refs as usize > one.holders.len() { " and " (count(one.refs - one.holders.len() as i64)) " more" } } }
                        td.wide { (ago(one.intended_at)) }
                        td.n { @if visitor.may(Role::Operate) && one.refs == 0 && ["live", "creating", "condemned"].contains(&one.state.as_str()) { a.button href={ (path(one)) "/drop" } { "Drop…" } } }
                    }
                }
            }
        } }
    }
}

fn path(one: &Listed) -> String {
    format!("/resources/{}/{}", segment(&one.policy), segment(&one.name))
}

fn holder_table(holders: &[HolderRow]) -> Markup {
    if holders.is_empty() {
        return html! { div.empty { "Nobody holds anything at the moment." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Holder" } th.n { "Refers to" } th { "Last beat" } th { "Dies" } th.wide { "Labels" } } }
            tbody {
                @for holder in holders {
                    tr {
                        td { (holder.name) @if !holder.alive { " " (badge("dead")) } }
                        td.n { (count(holder.refs)) }
                        td { (ago(holder.beat_at)) }
                        td { (ago(holder.expires_at)) }
                        td.wide { code { (holder.labels) } }
                    }
                }
            }
        } }
    }
}

fn orphans(store: &Store, visitor: &Visitor) -> Markup {
    html! {
        section.panel {
            header { h2 { "Orphans of " (store.policy) } @if let Some(sweeps) = &store.sweeps { span.soft.small { (sweeps.location) } } }
            @if let Some(sweeps) = &store.sweeps {
                @if !sweeps.confirmed {
                    div.pad {
                        p.soft { "The sweeper only looks here. Once its report is right, let it drop what nobody knows." }
                        @if visitor.may(Role::Operate) { a.button href={ "/resources/" (segment(&store.policy)) "/sweep" } { "Let it drop…" } }
                    }
                }
            }
            (orphan_table(&store.orphans))
        }
    }
}

fn orphan_table(orphans: &[Sighting]) -> Markup {
    if orphans.is_empty() {
        return html! { div.empty { "The last sweep found nothing that nobody had announced." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Name" } th { "Seen since" } th { "Changed" } th.n { "Size" } } }
            tbody { @for orphan in orphans {
                tr { td { code { (orphan.name) } } td { (ago(orphan.first_seen)) } td { @match orphan.modified_at { Some(at) => (ago(at)), None => "–" } } td.n { @match orphan.size { Some(size) => (bytes(size.max(0).unsigned_abs())), None => "–" } } }
            } }
        } }
    }
}

/// What the last sweep found there, before somebody lets the sweeper drop such things.
pub(super) async fn ask_confirm(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(policy): Path<String>,
) -> Result<Markup, Trouble> {
    visitor.must(Role::Operate)?;
    let mut tx = surface.engine.database().read().await?;
    let sweeps = resources::sweeps(&mut tx, &policy).await?;
    let orphans = resources::sightings(&mut tx, &policy, PAGE).await?;
    tx.commit().await?;
    let number = |key: &str| sweeps.report.as_ref().map_or(0, |report| report[key].as_i64().unwrap_or(0));
    let what = html! {
        p { "From now on the sweeper drops what nobody announced in " code { (sweeps.location) } ": what it sees twice a grace apart, old by its name and by the store's own time." }
        @if sweeps.report.is_some() {
            p { "The last sweep listed " (count(number("listed"))) ": " (count(number("foreign"))) " with other names, " (count(number("young"))) " too young, " (count(number("known"))) " known, " (count(number("orphans"))) " that nobody knows." }
        } @else { p.soft { "It was not swept yet, so that nobody can say what would go." } }
        section.panel { header { h2 { "Seen and known to nobody" } } (orphan_table(&orphans)) }
    };
    Ok(Ask {
        page: "/resources",
        title: "Let the sweeper drop?",
        back: "/resources",
        action: &format!("/resources/{}/sweep", segment(&policy)),
        button: "Let it drop",
        danger: true,
    }
    .show(&visitor, what, html! {}))
}

pub(super) async fn confirm(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(policy): Path<String>,
    _form: Form<Nothing>,
) -> Result<Response, Trouble> {
    visitor.must(Role::Operate)?;
    let mut tx = surface.engine.database().read().await?;
    resources::sweeps(&mut tx, &policy).await?;
    resources::confirm(&mut tx, &policy, &visitor.caller.name).await?;
    ebb::control::trigger(&mut tx, &policy, Some("sweep"), &visitor.caller.name).await?;
    tx.commit().await?;
    Ok(Redirect::to("/resources").into_response())
}

#[derive(Debug, Deserialize)]
pub(super) struct Of {
    policy: String,
    name: String,
}

pub(super) async fn ask_drop(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(of): Path<Of>,
) -> Result<Markup, Trouble> {
    visitor.must(Role::Operate)?;
    // What would be refused is refused here already; what would be done is taken back.
    let mut tx = surface.engine.database().read().await?;
    resources::drop_now(&mut tx, &of.policy, &of.name, &visitor.caller.name).await?;
    tx.rollback().await?;
    let what = html! {
        p { "Nobody refers to " code { (of.name) } " of " (of.policy) ". Its grace ends at once, and the dropper takes it at its next pass." }
        p { "What is in it is gone then, and its name is not used again." }
    };
    let action = format!("/resources/{}/{}/drop", segment(&of.policy), segment(&of.name));
    Ok(Ask {
        page: "/resources",
        title: "Drop this resource?",
        back: "/resources",
        action: &action,
        button: "Drop it",
        danger: true,
    }
    .show(&visitor, what, html! {}))
}

pub(super) async fn drop_now(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(of): Path<Of>,
    _form: Form<Nothing>,
) -> Result<Response, Trouble> {
    visitor.must(Role::Operate)?;
    let mut tx = surface.engine.database().read().await?;
    resources::drop_now(&mut tx, &of.policy, &of.name, &visitor.caller.name).await?;
    tx.commit().await?;
    Ok(Redirect::to(&format!("/resources?policy={}", segment(&of.policy))).into_response())
}
