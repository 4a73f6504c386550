//! One policy: how it stands, what it did, who changed it; running, pausing and changing it, each after a look at what
//! that means.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use ebb::plan::PolicyPlan;
use ebb::policy::{self, Spec, Stored};
use ebb::retain::{Consent, MadeDue};
use ebb::status::PolicyStatus;
use ebb::token::Role;
use ebb::view::{self, RunFilter};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::chart;
use super::frame::{self, Trouble, csrf};
use super::overview::run_table;
use super::policies::path;
use super::session::{Form, Nothing, Visitor};
use super::text::{ago, badge, number, plural, seconds, time};
use crate::cli::words;
use crate::http::{KeyChange, Path, Surface, find_policy, lift_pause, preview_policy, put_pause, trigger};

pub(super) async fn page(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(name): Path<String>,
) -> Result<Markup, Trouble> {
    let status = surface.engine.standing().await?;
    let mut tx = surface.engine.database().read().await?;
    let stored = find_policy(&mut tx, &name).await?;
    let versions = policy::store::history(&mut tx, &name).await?;
    let hours = view::hours(&mut tx, Some(&name), 48).await?;
    let pending = view::samples(&mut tx, "records_pending", Some(&name), 48, 96).await?;
    let runs =
        view::runs(&mut tx, &RunFilter { policy: Some(name.clone()), limit: Some(20), ..RunFilter::default() }).await?;
    tx.commit().await?;
    let status = status.policies.into_iter().find(|policy| policy.policy == name);
    let main = html! {
        div.head {
            div { p.soft.small { a href="/policies" { "Policies" } " / " (stored.kind) } h1 { (name) } }
            @if let Some(status) = &status { (actions(&visitor, status)) }
        }
        @if let Some(status) = &status { (standing(status)) }
        div.two {
            section.panel { header { h2 { "Rows removed" } span.soft.small { "by hour, last 48" } } div.pad { (chart::hours(&hours)) } }
            section.panel { header { h2 { "Backlog" } span.soft.small { "last 48 hours" } } div.pad { (chart::line(&pending, "Rows due")) } }
        }
        section.panel { header { h2 { "Recent runs" } } (run_table(&runs)) }
        section.panel {
            header { h2 { "Keys" } @if visitor.may(Role::Admin) { a.small href={ (path(&name)) "/edit" } { "Change" } } }
            pre { (pretty(&stored.spec)) }
        }
        section.panel { header { h2 { "History" } } (history(&versions, stored.kind)) }
    };
    Ok(frame::page(&visitor, "/policies", &name, main))
}

fn actions(visitor: &Visitor, status: &PolicyStatus) -> Markup {
    let path = path(&status.policy);
    html! {
        div.actions {
            (badge(&status.state))
            @if visitor.may(Role::Operate) {
                @if status.state == "paused" && status.remedy.as_deref() == Some("ebb resume") {
                    // Everything is, and what ends that is said below.
                } @else if status.state == "paused" {
                    form method="post" action={ (path) "/resume" } { (csrf(visitor)) button { "Resume" } }
                } @else if status.state != "disabled" && status.state != "stopped" {
                    form method="post" action={ (path) "/pause" } { (csrf(visitor)) button { "Pause" } }
                    a.button.main href={ (path) "/run" } { "Run now…" }
                }
            }
        }
    }
}

fn standing(status: &PolicyStatus) -> Markup {
    html! {
        @if let Some(reason) = &status.reason {
            div.banner.warn { (frame::alert()) div { strong { (reason) } @if let Some(remedy) = &status.remedy { p { "What ends it: " code { (remedy) } } } } }
        }
        section.panel {
            header { h2 { "Tables" } span.soft.small { "version " (status.version) ", changed " (ago(status.changed_at)) " by " (status.changed_by) } }
            @if status.units.is_empty() { div.empty { "No node has taken it up yet." } }
            @else { div.scroll { table {
                thead { tr { th { "Table" } th.n { "Due" } th.wide { "Oldest due" } th { "Last run" } th { "Next run" } th.wide { "Way" } } }
                tbody {
                    @for unit in status.units.iter().take(200) {
                        tr {
                            td { code { (unit.table) } @if let Some(node) = &unit.held_by { div.sub { "held by " (node) } } @if let Some(throttle) = &unit.throttle { div.sub { (throttle) } } }
                            td.n { @if let Some(due) = unit.pending { (number(due)) } @else { "–" } }
                            td.wide { @if let Some(oldest) = unit.oldest_due { (ago(oldest)) } @else { "–" } }
                            td { @if let Some(run) = &unit.last_run { (badge(&run.status)) div.sub { (plural(run.rows, "row")) ", " (ago(run.started_at)) } } @else { "never" } }
                            td { @if let Some(next) = unit.next_run { (ago(next)) } }
                            td.wide { span.sub { (unit.shape.as_deref().unwrap_or("–")) } }
                        }
                    }
                }
            } } }
        }
    }
}

fn pretty(spec: &Spec) -> String {
    serde_json::to_string_pretty(spec).unwrap_or_default()
}

fn history(versions: &[Stored], kind: policy::Kind) -> Markup {
    let versions: Vec<&Stored> = versions.iter().filter(|version| version.kind == kind).collect();
    html! {
        div.scroll { table {
            thead { tr { th { "Version" } th { "When" } th { "Who" } th { "What" } } }
            tbody {
                @for (i, version) in versions.iter().enumerate().take(50) {
                    tr {
                        td { (version.version) }
                        td { (time(version.changed_at)) }
                        td { (version.changed_by) div.sub { (version.source) } }
                        td { (differences(versions.get(i + 1).map(|before| &before.spec), version)) }
                    }
                }
            }
        } }
    }
}

fn differences(before: Option<&Spec>, after: &Stored) -> Markup {
    let Some(before) = before else { return html! { span.soft { "created" } } };
    let mut keys: Vec<&String> = before.keys().chain(after.spec.keys()).collect();
    keys.sort();
    keys.dedup();
    let changed: Vec<&String> = keys.into_iter().filter(|key| before.get(*key) != after.spec.get(*key)).collect();
    html! {
        @for key in &changed { div { code { (key) } " " (change(before.get(*key), after.spec.get(*key))) } }
        @if let Some(stopped) = &after.stopped { div { "stopped: " (stopped) } }
        @if changed.is_empty() && after.stopped.is_none() { span.soft { @if after.enabled { "enabled" } @else { "disabled" } } }
    }
}

fn change(before: Option<&Value>, after: Option<&Value>) -> Markup {
    let word = |value: Option<&Value>| value.map_or("(default)".to_owned(), Value::to_string);
    html! { code.del { (word(before)) } " → " code.add { (word(after)) } }
}

/// What a run would do now, before it is asked for.
pub(super) async fn ask_run(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(name): Path<String>,
) -> Result<Markup, Trouble> {
    visitor.must(Role::Operate)?;
    let mut tx = surface.engine.database().read().await?;
    let stored = find_policy(&mut tx, &name).await?;
    tx.commit().await?;
    let plan = preview_policy(&surface, &name, &stored.spec).await?.plan;
    Ok(frame::page(
        &visitor,
        "/policies",
        &format!("Run {name}"),
        html! {
            div.head { div { p.soft.small { a href=(path(&name)) { (name) } } h1 { "Run " (name) " now?" } } }
            (consequences(plan.as_ref()))
            form.actions method="post" action={ (path(&name)) "/run" } data-keep="1" {
                (csrf(&visitor))
                button.danger { "Run now" } a.button href=(path(&name)) { "Cancel" }
            }
        },
    ))
}

/// The dry run.
fn consequences(plan: Option<&PolicyPlan>) -> Markup {
    let Some(plan) = plan else {
        return html! { section.panel { div.empty { "There is no forecast for this kind of policy." } } };
    };
    let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".into());
    html! {
        section.panel {
            header { h2 { "What a run would do now" } span.soft.small { @if plan.exact { "counted" } @else { "estimated from a sample" } } }
            div.pad { dl.facts {
                div { dt { "Table" } dd { code { (plan.table) } } }
                div { dt { "Rows that go" } dd { strong { (known(plan.due_rows.map(|rows| words::about(rows, plan.exact)))) } " of " (known(plan.total_rows.map(|rows| words::about(rows, plan.exact)))) } }
                div { dt { "Space" } dd { (known(plan.due_bytes.map(words::bytes))) } }
                div { dt { "Time" } dd { (known(plan.estimated_seconds.map(|s| format!("about {}", seconds(s))))) } }
                div { dt { "Mode" } dd { (badge(plan.mode)) } }
                @if let Some(brake) = &plan.brake { div { dt { "Brake" } dd { "would stop it: " (brake) } } }
            } }
            @for problem in &plan.problems { div.pad { p.error { (problem.message) } @if let Some(fix) = &problem.fix { pre { (fix) } } } }
        }
    }
}

/// What a form of one button asks for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    Run,
    Pause,
    Resume,
}

impl Act {
    /// Carries it out on behalf of whoever sent the form, and goes back to the policy.
    pub(super) async fn carry_out(
        self,
        visitor: Visitor,
        State(surface): State<Surface>,
        Path(name): Path<String>,
        _form: Form<Nothing>,
    ) -> Result<Response, Trouble> {
        visitor.must(Role::Operate)?;
        let by = &visitor.caller.name;
        match self {
            Self::Run => drop(trigger(&surface, &name, None, by).await?),
            Self::Pause => drop(put_pause(&surface, &name, Some("from the dashboard"), by).await?),
            Self::Resume => drop(lift_pause(&surface, &name, None, by).await?),
        }
        Ok(Redirect::to(&path(&name)).into_response())
    }
}

pub(super) async fn edit(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(name): Path<String>,
) -> Result<Markup, Trouble> {
    visitor.must(Role::Admin)?;
    let mut tx = surface.engine.database().read().await?;
    let stored = find_policy(&mut tx, &name).await?;
    tx.commit().await?;
    Ok(editor(&visitor, &name, &pretty(&stored.spec), stored.version, None, html! {}))
}

fn editor(visitor: &Visitor, name: &str, text: &str, version: i64, error: Option<&str>, below: Markup) -> Markup {
    let previewed = !below.clone().into_string().is_empty();
    frame::page(
        visitor,
        "/policies",
        &format!("Change {name}"),
        html! {
            div.head { div { p.soft.small { a href=(path(name)) { (name) } } h1 { "Change " (name) } } span.badge { "version " (version) } }
            form method="post" action={ (path(name)) "/edit" } data-keep="1" {
                (csrf(visitor))
                input type="hidden" name="version" value=(version);
                @if let Some(error) = error { p.error role="alert" { (error) } }
                section.panel { div.pad { label for="spec" { "Keys, as in ebb.toml" } textarea #spec name="spec" spellcheck="false" { (text) } } }
                (below)
                div.actions {
                    button.main[!previewed] name="act" value="preview" { "Preview" }
                    @if previewed { button.danger name="act" value="save" { "Save this change" } }
                    a.button href=(path(name)) { "Cancel" }
                }
            }
        },
    )
}

#[derive(Debug, Deserialize)]
pub(super) struct Edit {
    spec: String,
    version: i64,
    act: String,
    /// How many more the preview said would be due.
    seen: Option<u64>,
}

pub(super) async fn save(
    visitor: Visitor,
    State(surface): State<Surface>,
    Path(name): Path<String>,
    Form(edit): Form<Edit>,
) -> Result<Response, Trouble> {
    visitor.must(Role::Admin)?;
    let again =
        |error: &str| Ok(editor(&visitor, &name, &edit.spec, edit.version, Some(error), html! {}).into_response());
    let spec: Spec = match serde_json::from_str(&edit.spec) {
        Ok(spec) => spec,
        Err(error) => return again(&format!("This is not JSON: {error}")),
    };
    let preview = match preview_policy(&surface, &name, &spec).await {
        Ok(preview) => preview,
        Err(problem) => return again(problem.detail()),
    };
    let due = preview.due.as_ref().filter(|due| due.asks());
    // Whoever saves has seen what it makes due; keys that were changed since then are looked at once more.
    let seen = due.is_none_or(|due| edit.seen.is_some_and(|seen| due.more() <= seen));
    if edit.act == "save" && seen {
        let consent = Consent { confirmed: true, reason: None };
        let put = surface.engine.put_policy(&name, &spec, edit.version, &visitor.caller.name, &consent).await;
        return match put {
            Ok(_) => Ok(Redirect::to(&path(&name)).into_response()),
            Err(error) if error.is_unavailable() => Err(error.into()),
            Err(error) => again(&format!("{error}. {}", error.hint().unwrap_or_default())),
        };
    }
    let below = html! {
        (changed(&preview.changes))
        @if let Some(due) = due { (falls_due(due)) }
        (consequences(preview.plan.as_ref()))
    };
    Ok(editor(&visitor, &name, &edit.spec, edit.version, None, below).into_response())
}

fn falls_due(due: &MadeDue) -> Markup {
    html! {
        section.panel {
            header { h2 { "What falls due at once" } }
            div.pad {
                p.error { strong { (due.more()) } " more " (due.what) " would be due: " (due.before) " are now, " (due.after) " would be." }
                @if due.uncounted { p.error { "There are more that nobody has marked yet than could be counted." } }
                input type="hidden" name="seen" value=(due.more());
            }
        }
    }
}

fn changed(changes: &[KeyChange]) -> Markup {
    html! {
        section.panel {
            header { h2 { "What would change" } }
            div.pad {
                @if changes.is_empty() { span.soft { "Nothing." } }
                @for key in changes { div { code { (key.key) } " " (change(key.before.as_ref(), key.after.as_ref())) } }
            }
        }
    }
}
