//! What every page has around it.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::session::Visitor;
use crate::http::Problem;

const PAGES: [(&str, &str); 4] = [("/", "Overview"), ("/policies", "Policies"), ("/audit", "Audit"), ("/docs", "API")];

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
                        @for (path, name) in PAGES { a href=(path) aria-current=[(path == at).then_some("page")] { (name) } }
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
