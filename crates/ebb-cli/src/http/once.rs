//! `/v1/once`: has this event been accepted?

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ebb::once::{Begun, Claim, Once};
use ebb::policy::Term;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Surface;
use super::auth::{App, By, Entry};
use super::extract::{AnyJson, Json, Path, Query};
use super::problem::{Problem, Sort};

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new().routes(routes!(claim)).routes(routes!(claim_many)).routes(routes!(complete, release))
}

/// A claim.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ClaimRequest {
    /// What counts once; at most 1,024 bytes.
    #[schema(min_length = 1, max_length = 1024, pattern = r"^[^\x00]+$")]
    key: String,
    /// How long the claim lasts instead of the namespace's term: `24h`, `30m`.
    #[schema(example = "24h", pattern = r"^[1-9][0-9]{0,3}(ms|s|m|h|d)$")]
    ttl: Option<String>,
    /// What the request was, for instance a hash of its body: the same key with another one is a mismatch.
    #[schema(max_length = 1024)]
    fingerprint: Option<String>,
    /// The claim announces a result: others are told that it is in progress until it is completed.
    #[serde(default)]
    in_flight: bool,
}

/// What became of a claim.
#[derive(Debug, Serialize, ToSchema)]
struct ClaimAnswer {
    /// `first` or `duplicate`.
    #[schema(example = "first")]
    outcome: &'static str,
    /// Of a claim in flight: completes or releases it.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<i64>,
    /// Of a duplicate: what the first one stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
}

/// Claim a key
#[utoipa::path(
    post, path = "/v1/once/{namespace}", tag = "once",
    params(("namespace" = String, Path, description = "Where keys are unique", min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9_-]+$")),
    request_body = ClaimRequest,
    responses(
        (status = 201, description = "Nobody claimed it inside its window: do the work", body = ClaimAnswer),
        (status = 200, description = "Somebody did", body = ClaimAnswer),
        (status = 409, description = "Somebody is at it", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The key was claimed with another fingerprint, or the request makes no sense", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn claim(
    entry: Entry<App>,
    State(surface): State<Surface>,
    path: Result<Path<String>, Problem>,
    request: Result<Json<ClaimRequest>, Problem>,
) -> Result<Response, Problem> {
    let asked = path.and_then(|Path(namespace)| {
        let Json(request) = request?;
        Ok((request.once(surface.engine.once(namespace))?, request))
    });
    let (once, request) = match asked {
        Ok(asked) => asked,
        // Whoever may not come in learns nothing about what is wrong with a request.
        Err(problem) => return entry.check(&surface).await.and(Err(problem)),
    };
    if let Some(credential) = entry.known()
        && !request.in_flight
        && let Some(claimed) = once.claim_by(&surface.claims, credential, &request.key).await?
    {
        return answer(claimed);
    }
    entry.check(&surface).await?;
    if request.in_flight {
        return match once.begin(&request.key).await? {
            Begun::First(work) => Ok(first(Some(work.token()))),
            Begun::Duplicate { result } => Ok(duplicate(result)),
            Begun::InProgress => Err(in_progress()),
            Begun::Mismatch => Err(mismatch()),
        };
    }
    answer(once.claim_with(&surface.claims, &request.key).await?)
}

impl ClaimRequest {
    /// The namespace with the options of this claim.
    fn once(&self, mut once: Once) -> Result<Once, Problem> {
        if let Some(ttl) = &self.ttl {
            once = once.ttl(duration(ttl)?);
        }
        match &self.fingerprint {
            Some(fingerprint) if fingerprint.chars().count() > 1024 => {
                Err(Problem::field("fingerprint", "has more than 1,024 characters: send a hash"))
            }
            Some(fingerprint) => Ok(once.fingerprint(fingerprint.as_bytes())),
            None => Ok(once),
        }
    }
}

/// The term of claims.
fn duration(ttl: &str) -> Result<Duration, Problem> {
    let invalid = |invalid: ebb::policy::Invalid| Problem::field("ttl", invalid.message);
    ttl.parse::<Term>().map_err(invalid)?.as_duration().map_err(invalid)
}

fn answer(claim: Claim) -> Result<Response, Problem> {
    match claim {
        Claim::First => Ok(first(None)),
        Claim::Duplicate { result } => Ok(duplicate(result)),
        Claim::InProgress => Err(in_progress()),
        Claim::Mismatch => Err(mismatch()),
    }
}

fn first(token: Option<i64>) -> Response {
    let answer = ClaimAnswer { outcome: "first", token, result: None };
    (StatusCode::CREATED, axum::Json(answer)).into_response()
}

fn duplicate(result: Option<Value>) -> Response {
    axum::Json(ClaimAnswer { outcome: "duplicate", token: None, result }).into_response()
}

fn in_progress() -> Problem {
    Problem::new(Sort::InProgress, "somebody claimed this key and has not completed it").retry_after(1)
}

fn mismatch() -> Problem {
    Problem::new(Sort::Mismatch, "this key was claimed with another fingerprint")
        .hint("two different requests share a key: make keys that name the request")
}

/// What counts once; at most 1,024 bytes. For the document alone.
#[derive(ToSchema)]
#[schema(min_length = 1, max_length = 1024, pattern = r"^[^\x00]+$")]
#[expect(dead_code, reason = "only described")]
struct Key(String);

/// Many claims.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ClaimsRequest {
    /// 1 to 1,000 keys; repeats are harmless.
    #[schema(min_items = 1, max_items = 1000, value_type = Vec<Key>)]
    keys: Vec<String>,
    /// How long the claims last instead of the namespace's term.
    #[schema(example = "24h", pattern = r"^[1-9][0-9]{0,3}(ms|s|m|h|d)$")]
    ttl: Option<String>,
}

/// What became of many claims, each key once.
#[derive(Debug, Serialize, ToSchema)]
struct ClaimsAnswer {
    /// Nobody claimed these before.
    first: Vec<String>,
    /// Somebody did.
    duplicate: Vec<String>,
}

/// Claim many keys at once
#[utoipa::path(
    post, path = "/v1/once/{namespace}/batch", tag = "once",
    params(("namespace" = String, Path, description = "Where keys are unique", min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9_-]+$")),
    request_body = ClaimsRequest,
    responses((status = 200, description = "Which were first", body = ClaimsAnswer)),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn claim_many(
    _by: By<App>,
    State(surface): State<Surface>,
    Path(namespace): Path<String>,
    Json(request): Json<ClaimsRequest>,
) -> Result<axum::Json<ClaimsAnswer>, Problem> {
    if !(1..=1000).contains(&request.keys.len()) {
        return Err(Problem::field("keys", "has to hold 1 to 1,000 keys"));
    }
    let mut once = surface.engine.once(namespace);
    if let Some(ttl) = &request.ttl {
        once = once.ttl(duration(ttl)?);
    }
    let first = once.claim_many(&request.keys).await?;
    let firsts: std::collections::HashSet<&str> = first.iter().map(String::as_str).collect();
    let mut told = std::collections::HashSet::new();
    let (mut new, mut duplicate) = (Vec::new(), Vec::new());
    for key in request.keys.iter().filter(|key| told.insert(key.as_str())) {
        if firsts.contains(key.as_str()) { new.push(key.clone()) } else { duplicate.push(key.clone()) }
    }
    Ok(axum::Json(ClaimsAnswer { first: new, duplicate }))
}

/// Whose claim it is.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct TokenQuery {
    /// What the claim in flight was answered with.
    token: i64,
}

/// Store the result of a claim in flight
///
/// The body, any JSON, is what duplicates are answered with. Asking again with the same result is harmless.
#[utoipa::path(
    put, path = "/v1/once/{namespace}/{key}", tag = "once",
    params(
        ("namespace" = String, Path, description = "Where keys are unique", min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9_-]+$"),
        ("key" = String, Path, description = "The claimed key", min_length = 1, max_length = 1024), TokenQuery,
    ),
    request_body = Value,
    responses(
        (status = 204, description = "Stored; the claim lasts its whole term from now"),
        (status = 409, description = "Somebody took the key over, so this result does not count", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn complete(
    _by: By<App>,
    State(surface): State<Surface>,
    Path((namespace, key)): Path<(String, String)>,
    Query(TokenQuery { token }): Query<TokenQuery>,
    AnyJson(result): AnyJson<Value>,
) -> Result<StatusCode, Problem> {
    match surface.engine.once(namespace).work(key, token).complete(Some(&result)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(not_yours()),
    }
}

/// Give a claim in flight back
#[utoipa::path(
    delete, path = "/v1/once/{namespace}/{key}", tag = "once",
    params(
        ("namespace" = String, Path, description = "Where keys are unique", min_length = 1, max_length = 63, pattern = "^[A-Za-z0-9_-]+$"),
        ("key" = String, Path, description = "The claimed key", min_length = 1, max_length = 1024), TokenQuery,
    ),
    responses(
        (status = 204, description = "Free again, as if it had not been claimed"),
        (status = 409, description = "It is somebody else's, or completed", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn release(
    _by: By<App>,
    State(surface): State<Surface>,
    Path((namespace, key)): Path<(String, String)>,
    Query(TokenQuery { token }): Query<TokenQuery>,
) -> Result<StatusCode, Problem> {
    match surface.engine.once(namespace).work(key, token).release().await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(not_yours()),
    }
}

fn not_yours() -> Problem {
    Problem::new(Sort::Conflict, "this token does not hold the key: somebody took it over, or it is completed or free")
}
