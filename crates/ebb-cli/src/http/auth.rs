//! Who asks, and whether they may. Invariants: a handler that takes [`By`] runs for nobody whose role does not cover it;
//! every request's credential is asked of the database by a look that began after the request came, so that a
//! revocation counts at once, while requests that come together share one look, alone or with what they ask for.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use ebb::pg::{Database, Warm};
use ebb::token::{Caller, Credential, Role};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::Surface;
use super::limit::Limiter;
use super::peer::Peer;
use super::problem::{Problem, Sort};

/// The dashboard's cookie.
pub(crate) const COOKIE: &str = "ebb_session";
/// The header that proves that a request with a cookie comes from the dashboard's own pages.
pub(crate) const CSRF_HEADER: &str = "x-csrf-token";
/// Looks at the database at a time; whoever comes meanwhile shares the next one.
const LOOKS: usize = 2;
/// Wrong credentials from one address: a burst, then one in so many seconds.
const WRONG_BURST: f64 = 20.0;
const WRONG_PER_SECOND: f64 = 0.5;
/// How many credentials are remembered to have been right once.
const REMEMBERED: usize = 10_000;

type Answer = Result<Option<Arc<Caller>>, ()>;
type Look = Shared<BoxFuture<'static, Answer>>;

/// Lets people in.
pub(crate) struct Gate {
    database: Warm,
    waiting: Mutex<HashMap<Credential, Look>>,
    looks: Semaphore,
    wrong: Limiter<IpAddr>,
    /// An address that is barred for guessing must not bar those who are known behind the same address.
    known: Mutex<HashMap<Credential, ()>>,
    rate: Limiter<String>,
}

impl Gate {
    pub(crate) fn new(database: Database, requests_per_second: u32) -> Self {
        let rate = f64::from(requests_per_second);
        Self {
            database: Warm::new(database),
            waiting: Mutex::default(),
            looks: Semaphore::new(LOOKS),
            wrong: Limiter::new(WRONG_PER_SECOND, WRONG_BURST),
            known: Mutex::default(),
            rate: Limiter::new(rate, rate),
        }
    }

    /// Lets in whoever presents this credential, as often as they may.
    pub(crate) async fn admit(self: &Arc<Self>, credential: Credential, from: IpAddr) -> Result<Arc<Caller>, Problem> {
        let caller = self.recognize(credential, from).await?;
        self.within_rate(&caller.id)?;
        Ok(caller)
    }

    /// Who presents this credential.
    async fn recognize(self: &Arc<Self>, credential: Credential, from: IpAddr) -> Result<Arc<Caller>, Problem> {
        let known = lock(&self.known).contains_key(&credential);
        if !known {
            self.not_guessing(from)?;
        }
        let found = self.look(credential.clone()).await;
        let Ok(found) = found else {
            return Err(Problem::new(Sort::Unavailable, "the database is away, so nobody can be let in"));
        };
        let Some(caller) = found else {
            lock(&self.known).remove(&credential);
            return Err(self.refuse(from, &format!("{credential:?} is unknown, expired or revoked")));
        };
        let mut remembered = lock(&self.known);
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(credential, ());
        Ok(caller)
    }

    fn within_rate(&self, token: &str) -> Result<(), Problem> {
        self.rate.take(&token.to_owned(), Instant::now()).map_err(|wait| {
            let seconds = wait.as_secs_f64().ceil().max(1.0) as u32;
            Problem::new(Sort::TooMany, "this token makes more requests than it may").retry_after(seconds)
        })
    }

    /// Counts a wrong credential against its address.
    pub(crate) fn refuse(&self, from: IpAddr, why: &str) -> Problem {
        let _ = self.wrong.take(&from, Instant::now());
        tracing::warn!(from = %from, "Not let in: {why}");
        Problem::new(Sort::Unauthenticated, "the token is unknown, expired or revoked")
            .hint("make one: ebb token create --role read")
    }

    /// Whoever presented too many wrong ones waits.
    pub(crate) fn not_guessing(&self, from: IpAddr) -> Result<(), Problem> {
        self.wrong.wait(&from, Instant::now()).map_err(|wait| {
            let seconds = wait.as_secs_f64().ceil().max(1.0) as u32;
            Problem::new(Sort::TooMany, "too many wrong tokens came from this address").retry_after(seconds)
        })
    }

    /// Joins a look that has not begun, or asks for one.
    fn look(self: &Arc<Self>, credential: Credential) -> Look {
        let mut waiting = lock(&self.waiting);
        if let Some(look) = waiting.get(&credential) {
            return look.clone();
        }
        let (gate, asked) = (self.clone(), credential.clone());
        let task = tokio::spawn(async move {
            let _permit = gate.looks.acquire().await.map_err(|_| ())?;
            // From here on it is too late to join: what is asked now may miss what happens from now on.
            lock(&gate.waiting).remove(&asked);
            let found = asked.check(&gate.database).await;
            found.map(|caller| caller.map(Arc::new)).map_err(|error| {
                tracing::warn!(error = %error, "Could not check a token");
            })
        });
        let look: Look = async move { task.await.unwrap_or(Err(())) }.boxed().shared();
        waiting.insert(credential, look.clone());
        look
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A role as a type.
pub(crate) trait Needs: Send + Sync {
    const ROLE: Role;
}

macro_rules! roles {
    ($($name:ident),+) => {$(
        #[derive(Debug)]
        pub(crate) struct $name;
        impl Needs for $name {
            const ROLE: Role = Role::$name;
        }
    )+};
}
roles!(Read, App, Operate, Admin);

/// A caller whose role covers `R`.
#[derive(Debug)]
pub(crate) struct By<R> {
    caller: Arc<Caller>,
    needs: PhantomData<R>,
}

impl<R: Needs> By<R> {
    fn new(caller: Arc<Caller>) -> Result<Self, Problem> {
        if !caller.role.covers(R::ROLE) {
            return Err(Problem::new(Sort::Forbidden, format!("this needs the role {}, not {}", R::ROLE, caller.role)));
        }
        Ok(Self { caller, needs: PhantomData })
    }
}

impl<R> By<R> {
    /// Who it is, for history and audit.
    pub(crate) fn name(&self) -> &str {
        &self.caller.name
    }
}

impl<R: Needs> FromRequestParts<Surface> for By<R> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, surface: &Surface) -> Result<Self, Problem> {
        Self::new(caller(parts, surface).await?)
    }
}

/// A caller whose role covers `R`, or a token that was right before and that the database is still to be asked about, together
/// with what the request is for: one round trip instead of two.
#[derive(Debug)]
pub(crate) enum Entry<R> {
    In(By<R>),
    Known(Credential, IpAddr),
}

impl<R: Needs> Entry<R> {
    /// The token that is still to be asked about.
    pub(crate) fn known(&self) -> Option<&Credential> {
        match self {
            Entry::In(_) => None,
            Entry::Known(credential, _) => Some(credential),
        }
    }

    /// Asks now, where nobody has.
    pub(crate) async fn check(self, surface: &Surface) -> Result<By<R>, Problem> {
        match self {
            Entry::In(by) => Ok(by),
            Entry::Known(credential, from) => By::new(surface.gate.recognize(credential, from).await?),
        }
    }
}

impl<R: Needs> FromRequestParts<Surface> for Entry<R> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, surface: &Surface) -> Result<Self, Problem> {
        let token = parts.headers.get(header::AUTHORIZATION).and_then(bearer).and_then(Credential::token);
        match token {
            Some(credential @ Credential::Token { .. })
                if parts.extensions.get::<Arc<Caller>>().is_none()
                    && lock(&surface.gate.known).contains_key(&credential) =>
            {
                if let Credential::Token { id, .. } = &credential {
                    surface.gate.within_rate(id)?;
                }
                Ok(Self::Known(credential, Peer::of(parts, surface).address))
            }
            _ => By::from_request_parts(parts, surface).await.map(Self::In),
        }
    }
}

/// What follows `Bearer`.
fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Who makes a request: by its Authorization header, or by the dashboard's cookie.
pub(crate) async fn caller(parts: &mut Parts, surface: &Surface) -> Result<Arc<Caller>, Problem> {
    if let Some(caller) = parts.extensions.get::<Arc<Caller>>() {
        return Ok(caller.clone());
    }
    let from = Peer::of(parts, surface).address;
    let caller = match parts.headers.get(header::AUTHORIZATION) {
        Some(value) => match bearer(value).and_then(Credential::token) {
            Some(credential) => surface.gate.admit(credential, from).await?,
            None => {
                surface.gate.not_guessing(from)?;
                return Err(surface.gate.refuse(from, "what was presented is no token"));
            }
        },
        None => {
            let Some(session) = session(&parts.headers) else {
                return Err(Problem::new(Sort::Unauthenticated, "this needs a token")
                    .hint("send Authorization: Bearer …; make one: ebb token create --role read"));
            };
            let Some(credential) = Credential::session(session) else {
                surface.gate.not_guessing(from)?;
                return Err(surface.gate.refuse(from, "the cookie is no session"));
            };
            if !parts.method.is_safe() && !csrf_fits(&parts.headers, session) {
                return Err(Problem::new(Sort::Forbidden, "the request does not come from the dashboard's pages"));
            }
            surface.gate.admit(credential, from).await?
        }
    };
    parts.extensions.insert(caller.clone());
    Ok(caller)
}

/// Whether whoever began a long answer is still let in; a database that is away does not put anybody out.
pub(crate) async fn still_in(parts: &Parts, surface: &Surface) -> bool {
    match presented(&parts.headers) {
        Some(credential) => !matches!(surface.gate.look(credential).await, Ok(None)),
        None => false,
    }
}

fn presented(headers: &HeaderMap) -> Option<Credential> {
    match headers.get(header::AUTHORIZATION) {
        Some(value) => Credential::token(value.to_str().ok()?.split_once(' ')?.1.trim()),
        None => Credential::session(session(headers)?),
    }
}

/// What the dashboard's cookie says.
pub(crate) fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    cookies.flat_map(|line| line.split(';')).find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// What a page must send back to prove that it was ours.
pub(crate) fn csrf(session: &str) -> String {
    hex::encode(Sha256::new().chain_update("ebb csrf").chain_update(session).finalize())
}

/// Whether a proof fits a session, asked of hashes so that how long it takes says nothing.
pub(crate) fn proves(given: &str, session: &str) -> bool {
    Sha256::digest(given) == Sha256::digest(csrf(session))
}

fn csrf_fits(headers: &HeaderMap, session: &str) -> bool {
    headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok()).is_some_and(|given| proves(given, session))
}
