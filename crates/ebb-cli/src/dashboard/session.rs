//! Getting in with a token, and out again. The browser holds a session, never the token; scripts cannot read it, other
//! sites cannot use it, and it ends with its token.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use ebb::token::{self, Caller, Credential, Role};
use maud::{Markup, html};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::frame::{self, Trouble};
use crate::http::{Peer, Problem, Sort, Surface, auth, extract};

/// How long one stays in.
const TERM: Duration = Duration::from_secs(12 * 3600);

/// Somebody who is in.
#[derive(Debug)]
pub(super) struct Visitor {
    pub(super) caller: Arc<Caller>,
    pub(super) csrf: String,
}

impl Visitor {
    pub(super) fn may(&self, role: Role) -> bool {
        self.caller.role.covers(role)
    }

    pub(super) fn must(&self, role: Role) -> Result<(), Problem> {
        match self.may(role) {
            true => Ok(()),
            false => {
                Err(Problem::new(Sort::Forbidden, format!("this needs the role {role}, not {}", self.caller.role)))
            }
        }
    }
}

/// Why somebody is not let in.
pub(super) enum Outside {
    /// They have no session: here is the way in.
    Login(String),
    Refused(Problem),
}

impl IntoResponse for Outside {
    fn into_response(self) -> Response {
        match self {
            Self::Login(next) => Redirect::to(&format!("/login?next={next}")).into_response(),
            Self::Refused(problem) => Trouble::from(problem).into_response(),
        }
    }
}

impl FromRequestParts<Surface> for Visitor {
    type Rejection = Outside;

    async fn from_request_parts(parts: &mut Parts, surface: &Surface) -> Result<Self, Outside> {
        let next = if parts.method.is_safe() { parts.uri.path() } else { "/" };
        let login = || Outside::Login(next.to_owned());
        let session = auth::session(&parts.headers).ok_or_else(login)?;
        let credential = Credential::session(session).ok_or_else(login)?;
        let from = Peer::of(parts, surface).address;
        let caller = match surface.gate.admit(credential, from).await {
            Ok(caller) => caller,
            Err(problem) if problem.status() == StatusCode::UNAUTHORIZED => return Err(login()),
            Err(problem) => return Err(Outside::Refused(problem)),
        };
        let visitor = Self { csrf: auth::csrf(session), caller };
        visitor.must(Role::Read).map_err(Outside::Refused)?;
        Ok(visitor)
    }
}

/// A form that was ours.
#[derive(Debug)]
pub(super) struct Form<T>(pub(super) T);

#[derive(Deserialize)]
struct Proof {
    #[serde(rename = "_csrf")]
    csrf: Option<String>,
}

impl<T: DeserializeOwned> FromRequest<Surface> for Form<T> {
    type Rejection = Trouble;

    async fn from_request(request: Request, _surface: &Surface) -> Result<Self, Trouble> {
        let session = auth::session(request.headers()).unwrap_or_default().to_owned();
        let body = extract::body(request.into_body()).await?;
        let refused = || {
            Problem::new(Sort::Forbidden, "the form does not come from the dashboard's pages")
                .hint("go back, reload the page and try again")
        };
        let proof: Proof = read(&body)?;
        if !proof.csrf.is_some_and(|given| auth::proves(&given, &session)) {
            return Err(refused().into());
        }
        Ok(Self(read(&body)?))
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let uri = format!("/?{}", String::from_utf8_lossy(body));
    let malformed = |_| Problem::new(Sort::Malformed, "the form cannot be read");
    let uri: axum::http::Uri = uri.parse().map_err(|_: axum::http::uri::InvalidUri| malformed(()))?;
    Query::try_from_uri(&uri).map(|Query(value)| value).map_err(|_| malformed(()))
}

#[derive(Debug, Deserialize)]
pub(super) struct Next {
    next: Option<String>,
}

pub(super) async fn page(Query(Next { next }): Query<Next>) -> Markup {
    form(next.as_deref(), None)
}

fn form(next: Option<&str>, error: Option<&str>) -> Markup {
    frame::plain(
        "Log in",
        html! {
            main.login {
                div.card {
                    (frame::logo())
                    h1 { "Log in" }
                    p.soft.small { "With a token. Make one where Ebb runs: " code { "ebb token create --role operate" } }
                    form method="post" action="/login" {
                        @if let Some(error) = error { p.error role="alert" { (error) } }
                        input type="hidden" name="next" value=(next.unwrap_or("/"));
                        // Password managers file it under a name.
                        input type="text" name="user" value="ebb" autocomplete="username" hidden;
                        div {
                            label for="token" { "Token" }
                            input #token name="token" type="password" autocomplete="current-password" required autofocus spellcheck="false" placeholder="ebb_…";
                        }
                        button.main { "Log in" }
                    }
                }
            }
        },
    )
}

#[derive(Debug, Deserialize)]
struct Login {
    token: String,
    next: Option<String>,
}

pub(super) async fn login(State(surface): State<Surface>, request: Request) -> Result<Response, Trouble> {
    let (parts, body) = request.into_parts();
    let peer = Peer::of(&parts, &surface);
    same_site(&parts.headers)?;
    let Login { token, next } = read(&extract::body(body).await?)?;
    let again = |status: StatusCode, error: &str| Ok((status, form(next.as_deref(), Some(error))).into_response());
    if let Err(problem) = surface.gate.not_guessing(peer.address) {
        return again(problem.status(), "Too many wrong tokens came from here. Wait a little.");
    }
    let opened = match Credential::token(token.trim()) {
        Some(credential) => token::open_session(surface.engine.database(), &credential, TERM).await?,
        None => None,
    };
    let Some(session) = opened else {
        surface.gate.refuse(peer.address, "a login with a token that does not count");
        return again(StatusCode::UNAUTHORIZED, "This token is unknown, expired or revoked.");
    };
    let secure = if peer.secure { "; Secure" } else { "" };
    let seconds = TERM.as_secs();
    let cookie = format!("{}={session}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}", auth::COOKIE);
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(local(next.as_deref()))).into_response())
}

/// Only to our own pages.
fn local(next: Option<&str>) -> &str {
    let fine = |next: &&str| {
        next.starts_with('/') && !next.starts_with("//") && next.bytes().all(|b| b.is_ascii_graphic() && b != b'\\')
    };
    next.filter(fine).unwrap_or("/")
}

/// A login from another site would put somebody into a stranger's session.
fn same_site(headers: &HeaderMap) -> Result<(), Problem> {
    match headers.get("sec-fetch-site").and_then(|value| value.to_str().ok()) {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err(Problem::new(Sort::Forbidden, "the form does not come from the dashboard's pages")),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Nothing {}

pub(super) async fn logout(
    State(surface): State<Surface>,
    headers: HeaderMap,
    _form: Form<Nothing>,
) -> Result<Response, Trouble> {
    if let Some(session) = auth::session(&headers).and_then(Credential::session) {
        token::close_session(surface.engine.database(), &session).await?;
    }
    let gone = format!("{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict", auth::COOKIE);
    Ok(([(header::SET_COOKIE, gone)], Redirect::to("/login")).into_response())
}
