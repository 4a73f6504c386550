//! What every page has around it.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::session::Visitor;
use crate::http::Problem;

/// Every page: where, what, and the path of its icon.
const PAGES: [(&str, &str, &str); 8] = [
    ("/", "Overview", "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z"),
    ("/policies", "Policies", "M5 6h14M5 12h14M5 18h9"),
    ("/subjects", "Subjects", "M12 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8M4 21c0-4 4-6 8-6s8 2 8 6"),
    ("/events", "Events", "M12 7v5l3 2M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18"),
    ("/partitions", "Partitions", "M4 20V10M9 20V6M14 20V4M19 20v-6"),
    ("/resources", "Resources", "M12 3l8 4.500v9L12 21l-8-4.500v-9zM12 12l8-4.500M12 12v9M12 12L4 7.500"),
    ("/audit", "Audit", "M9 12l2 2 4-4M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6z"),
    ("/docs", "API", "M8 8l-4 4 4 4M16 8l4 4-4 4"),
];

fn document(title: &str, live: bool, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · Ebb" }
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/assets/style.css";
                script src="/assets/app.js" defer {}
            }
            body data-live=[live.then_some("1")] { (body) }
        }
    }
}

/// A page for somebody who is in.
pub(super) fn page(visitor: &Visitor, at: &str, title: &str, main: Markup) -> Markup {
    document(
        title,
        true,
        html! {
            a.skip href="#main" { "Skip to content" }
            div.shell {
                aside.side {
                    (logo())
                    nav aria-label="Pages" {
                        @for (path, name, shape) in PAGES { a href=(path) aria-current=[(path == at).then_some("page")] { (icon(shape)) (name) } }
                    }
                    footer {
                        div.row data-live="off" { span { span.dot {} "live" } button.link type="button" data-theme-toggle { "Theme" } }
                        div.row {
                            span.who { (visitor.caller.name) " · " (visitor.caller.role) }
                            form method="post" action="/logout" { (csrf(visitor)) button.link { "Log out" } }
                        }
                    }
                }
                main #main { (main) }
            }
        },
    )
}

/// A page for somebody who is not.
pub(super) fn plain(title: &str, body: Markup) -> Markup {
    document(title, false, body)
}

pub(super) fn logo() -> Markup {
    html! { a.logo href="/" { img src="/assets/icon.svg" alt=""; "Ebb" } }
}

/// The field that proves that a form is ours.
pub(super) fn csrf(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name="_csrf" value=(visitor.csrf); }
}

/// A question before something is done.
pub(super) struct Ask<'a> {
    /// Which page it belongs to.
    pub(super) page: &'a str,
    pub(super) title: &'a str,
    /// Where no leads.
    pub(super) back: &'a str,
    /// Where yes is sent.
    pub(super) action: &'a str,
    pub(super) button: &'a str,
    /// Whether something is gone afterwards.
    pub(super) danger: bool,
}

impl Ask<'_> {
    /// Shows what would happen, and asks. `fields` are filled in by whoever says yes.
    pub(super) fn show(&self, visitor: &Visitor, what: Markup, fields: Markup) -> Markup {
        page(
            visitor,
            self.page,
            self.title,
            html! {
                div.head { h1 { (self.title) } }
                form.ask method="post" action=(self.action) data-keep="1" {
                    (csrf(visitor))
                    section.panel { div.pad { (what) div.fields { (fields) } } }
                    div.actions {
                        button class=(if self.danger { "danger" } else { "main" }) { (self.button) }
                        a.button href=(self.back) { "No, go back" }
                    }
                    p.soft.small { "It is kept in the audit that " (visitor.caller.name) " did this." }
                }
            },
        )
    }
}

/// What went wrong, as a page.
pub(super) struct Trouble(Problem);

impl<E: Into<Problem>> From<E> for Trouble {
    fn from(problem: E) -> Self {
        Self(problem.into())
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let status: StatusCode = self.0.status();
        let body = html! {
            main.login {
                div.card {
                    (logo())
                    h1 { (self.0.title()) }
                    p.soft { (self.0.detail()) }
                    @if let Some(hint) = self.0.hint_text() { p.soft { (hint) } }
                    p { a href="/" { "Back to the overview" } }
                }
            }
        };
        (status, plain(self.0.title(), body)).into_response()
    }
}

pub(super) fn tick() -> Markup {
    icon("M5 12.500l4.500 4.500L19 7.500")
}

pub(super) fn alert() -> Markup {
    icon("M12 4v10M12 18.500v.500")
}

fn icon(path: &str) -> Markup {
    PreEscaped(format!(
        "<svg viewBox=\"0 0 24 24\" aria-hidden=\"true\"><path d=\"{path}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2.500\" stroke-linecap=\"round\" stroke-linejoin=\"round\"/></svg>"
    ))
}
