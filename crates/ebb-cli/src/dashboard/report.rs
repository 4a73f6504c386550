//! The report on a page: what was deleted in a time, by whose rules, and whether any of it too early.

use axum::extract::State;
use ebb::audit::Moment;
use ebb::retain::{self, Report};
use maud::{Markup, html};
use serde::Deserialize;

use super::chart;
use super::frame::{self, Trouble};
use super::overview::tile;
use super::session::Visitor;
use super::text::{badge, count, given, number, time};
use crate::http::{Problem, Query, Surface};

#[derive(Debug, Deserialize)]
pub(super) struct Span {
    since: Option<String>,
    until: Option<String>,
    tenant: Option<String>,
}

pub(super) async fn page(
    visitor: Visitor,
    State(surface): State<Surface>,
    Query(span): Query<Span>,
) -> Result<Markup, Trouble> {
    let (since, until, tenant) = (given(span.since), given(span.until), given(span.tenant));
    let mut tx = surface.engine.database().read().await?;
    let report = retain::report(&mut tx, day(since.as_deref())?, day(until.as_deref())?, tenant.as_deref()).await?;
    tx.commit().await?;
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    let main = html! {
        div.head { div { p.soft.small { a href="/audit" { "Audit" } } h1 { "Report" } } span.soft.small { (time(report.since)) " – " (time(report.until)) } }
        (verdict(&report))
        section.panel { div.pad { form.filters method="get" action="/audit/report" {
            div { label for="since" { "From" } input #since name="since" type="date" value=(word(&since)); }
            div { label for="until" { "Until" } input #until name="until" type="date" value=(word(&until)); }
            div { label for="tenant" { "Tenant" } input #tenant name="tenant" value=(word(&tenant)); }
            button { "Make it" }
        } } }
        (tiles(&report))
        section.panel { header { h2 { "Rows deleted" } span.soft.small { "by day" } } div.pad { (chart::days(&by_day(&report))) } }
        section.panel { header { h2 { "Subjects erased" } } (erased(&report)) }
        section.panel { header { h2 { "By policy and table" } } (deleted(&report)) }
    };
    Ok(frame::page(&visitor, "/audit", "Report", main))
}

fn day(text: Option<&str>) -> Result<Option<Moment>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let date: Option<jiff::civil::Date> = text.parse().ok();
    let midnight = date.and_then(|date| date.to_zoned(jiff::tz::TimeZone::UTC).ok());
    let midnight = midnight.ok_or_else(|| Problem::invalid(format!("{text:?} is no day, such as 2025-11-15")))?;
    Ok(Some(midnight.timestamp().into()))
}

fn verdict(report: &Report) -> Markup {
    if report.is_clean() {
        return html! {
            div.banner.good role="status" { (frame::tick()) div { strong { "Nothing was erased too early" } p { "Computed just now from the audit and the history of the policies, by queries that share nothing with the code that erases." } } }
        };
    }
    let subjects = report.premature.iter().map(|one| (one.record, &one.policy, one.erased_at, one.not_before));
    let rows = report.swept_early.iter().map(|one| (one.record, &one.policy, one.deleted_at, one.not_before));
    let (early, many) = (subjects.chain(rows).take(20), report.premature.len() + report.swept_early.len());
    html! {
        div.banner.bad role="alert" { (frame::alert()) div {
            strong { (many) " erasures came before their time" }
            ul { @for (record, policy, at, not_before) in early { li { "record " (record) " of " (policy) ": " (time(at)) ", not before " (time(not_before)) } } }
        } }
    }
}

fn tiles(report: &Report) -> Markup {
    let rows: i64 = report.deleted.iter().map(|one| one.rows).sum();
    let (subjects, late) = report.erased.iter().fold((0, 0), |sum, one| (sum.0 + one.subjects, sum.1 + one.late));
    let failed: i64 = report.failed.iter().map(|(_, failed)| failed).sum();
    html! {
        div.tiles {
            (tile("Rows deleted", &count(rows), html! { "in " (number(report.deleted.len() as u64)) " lines" }))
            (tile("Subjects erased", &count(subjects), html! { (count(late)) " more than a day late" }))
            (tile("Could not be erased", &count(failed), html! { @if failed > 0 { (badge("failed")) } @else { "none" } }))
            @for (what, times) in report.asked.iter().take(6) { (tile(what, &count(*times), html! { "asked for" })) }
        }
    }
}

fn by_day(report: &Report) -> Vec<(String, i64)> {
    let mut days: std::collections::BTreeMap<String, i64> = std::collections::BTreeMap::new();
    for one in &report.deleted {
        *days.entry(one.day.clone()).or_default() += one.rows;
    }
    days.into_iter().collect()
}

fn erased(report: &Report) -> Markup {
    if report.erased.is_empty() {
        return html! { div.empty { "Nobody was erased in this time." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Policy" } th.n { "Subjects" } th.n { "Late" } th.n { "Days, average" } th.n { "Days, fewest" } } }
            tbody { @for one in &report.erased { tr { td { a href=(super::policies::path(&one.policy)) { (one.policy) } } td.n { (count(one.subjects)) } td.n { (count(one.late)) } td.n { (format!("{:.1}", one.average_days)) } td.n { (format!("{:.1}", one.shortest_days)) } } } }
        } }
    }
}

fn deleted(report: &Report) -> Markup {
    if report.deleted.is_empty() {
        return html! { div.empty { "Nothing was deleted in this time." } };
    }
    html! {
        div.scroll { table {
            thead { tr { th { "Day" } th { "Policy" } th { "Table" } th.n { "Rows" } } }
            tbody { @for one in report.deleted.iter().take(500) { tr { td { (one.day) } td { (one.policy) } td { code { (one.table) } } td.n { (count(one.rows)) } } } }
        } }
    }
}
