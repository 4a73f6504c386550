//! `/restore/{token}`: the page behind the link in a warning. Invariants: a GET explains and changes nothing, a POST
//! restores; every answer is a page, whatever the token is; nothing on it says whose account it is; no script, nothing
//! loaded from anywhere.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ebb::audit::Moment;
use ebb::retain::{Link, Standing};
use jiff::tz::TimeZone;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use super::Surface;

const STYLE: &str = include_str!("restore.css");
/// The page's own style and forms to itself; nothing else at all.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

pub(super) fn router() -> Router<Surface> {
    Router::new().route("/restore/{token}", get(look).post(restore))
}

async fn look(State(surface): State<Surface>, uri: Uri) -> Response {
    match surface.engine.look_at_link(token(uri.path())).await {
        Ok(Link::Open(standing)) => page(StatusCode::OK, "Restore your account", ask(&standing)),
        Ok(link) => over(&link),
        Err(error) => not_now(&error),
    }
}

async fn restore(State(surface): State<Surface>, uri: Uri) -> Response {
    match surface.engine.restore_by_link(token(uri.path())).await {
        Ok((true, _)) => page(StatusCode::OK, "Your account is back", back()),
        Ok((false, link)) => over(&link),
        Err(error) => not_now(&error),
    }
}

/// The last part of the address, as it came: a token needs no decoding.
fn token(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn ask(standing: &Standing) -> Markup {
    let text = |key: &str| standing.texts.get(key).map(String::as_str);
    const DAY: i64 = 86_400_000_000;
    let left = match standing.due_at.micros().saturating_sub(standing.now.micros()) {
        ..DAY => "less than a day from now".to_owned(),
        left => match left.saturating_add(DAY / 2) / DAY {
            1 => "in one day".to_owned(),
            days => format!("in {days} days"),
        },
    };
    html! {
        (mark("", "M12 21a9 9 0 1 0-9-9M3 6v6h6M12 8v4.500l3 1.800"))
        @if let Some(service) = text("service") { p.from { (service) } }
        h1 { "Keep your account?" }
        p { "Your account is going to be deleted. You can take that back here, and everything will be as it was." }
        dl {
            div { dt { "Requested" } dd { (date(standing.deleted_at, &standing.zone)) } }
            div {
                dt { "Deleted for good" }
                @if standing.due_at == Moment::INFINITY { dd { "not as things stand" } }
                @else { dd { (date(standing.due_at, &standing.zone)) small { (left) } } }
            }
        }
        form method="post" { button { "Restore my account" } }
        p.quiet { strong { "You want it deleted?" } " Then there is nothing to do. After that date nothing can be recovered." }
        p.quiet {
            strong { "It was not you who asked?" } " Restore the account, then change your password"
            @match text("support") { Some(support) => { " and write to " (contact(support)) "." }, None => "." }
        }
    }
}

fn back() -> Markup {
    html! {
        (mark("good", "M5 12.500l4.500 4.500L19 7.500"))
        h1 { "Your account is back" }
        p { "Nothing was deleted, and nothing will be. You can sign in as before." }
        hr;
        p.quiet { "This link has done its work and cannot be used again." }
    }
}

/// What is said when the link takes nothing back.
fn over(link: &Link) -> Response {
    let (status, title, what, then) = match link {
        Link::Refused(standing) => return refused(standing),
        Link::Used => (
            StatusCode::GONE,
            "This link was used before",
            "The account that it belonged to was restored already, by this link or in another way.",
            "Was the account deleted again since? Then use the link in the newest message about it.",
        ),
        Link::Gone => (
            StatusCode::GONE,
            "It is too late",
            "The time in which the deletion could be taken back is over. The account and everything that belonged to it cannot be recovered.",
            "You can open a new account at any time.",
        ),
        Link::Unknown | Link::Open(_) => (
            StatusCode::NOT_FOUND,
            "This link does not work",
            "It is incomplete, or was changed on its way. Nothing has happened.",
            "Open the link in the message itself, or copy all of it: it may go over more than one line.",
        ),
    };
    notice(status, title, what, html! { (then) })
}

/// The account's table does not let it come back as it was. Why is for the log: it may be about somebody else.
fn refused(standing: &Standing) -> Response {
    let what = "Something stands in the way of bringing this account back as it was, for example another account that uses its address \
                by now. Nothing has changed, and trying again will not help.";
    let ahead = standing.due_at > standing.now && standing.due_at != Moment::INFINITY;
    let due = ahead.then(|| date(standing.due_at, &standing.zone));
    let then = html! {
        @match standing.texts.get("support") {
            Some(support) => { "Please write to " (contact(support)) },
            None => "Please write to whoever sent you the message",
        }
        @if let Some(due) = due { " before " (due) ": until then nothing is deleted for good." } @else { "." }
    };
    notice(StatusCode::CONFLICT, "It cannot be restored here", what, then)
}

fn notice(status: StatusCode, title: &str, what: &str, then: Markup) -> Response {
    let body = html! {
        (mark("warn", "M12 7v6M12 16.500v.500M12 3a9 9 0 1 0 0 18a9 9 0 0 0 0-18"))
        h1 { (title) }
        p { (what) }
        hr;
        p.quiet { (then) }
    };
    page(status, title, body)
}

/// The database is away, or this node lacks its key: the visitor can do nothing about either.
fn not_now(error: &ebb::Error) -> Response {
    tracing::error!(error = error.for_log(), hint = error.hint(), "A restore link could not be answered");
    let what = "Something on our side is not working. Nothing has changed, and your link stays good.";
    let then = html! { "Please try again in a few minutes." };
    let mut response = notice(StatusCode::SERVICE_UNAVAILABLE, "Not at the moment", what, then);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("120"));
    response
}

fn page(status: StatusCode, title: &str, main: Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="robots" content="noindex";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (main) } }
        }
    };
    let mut response = (status, page).into_response();
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    response
}

fn mark(class: &str, path: &str) -> Markup {
    html! {
        div class={ "mark " (class) } {
            svg viewBox="0 0 24 24" aria-hidden="true" {
                path d=(path) fill="none" stroke="currentColor" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" {}
            }
        }
    }
}

/// An address is written to, a page opened; anything else is only read.
fn contact(support: &str) -> Markup {
    let address = support.contains('@') && !support.contains(char::is_whitespace);
    html! {
        @if support.starts_with("https://") || support.starts_with("http://") { a href=(support) rel="noreferrer" { (support) } }
        @else if address { a href={ "mailto:" (support) } { (support) } }
        @else { (support) }
    }
}

fn date(moment: Moment, zone: &str) -> String {
    let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
    match moment.timestamp() {
        Some(timestamp) => timestamp.to_zoned(zone).strftime("%-d %B %Y").to_string(),
        None => moment.to_string(),
    }
}
