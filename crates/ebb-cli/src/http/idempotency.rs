//! `Idempotency-Key` on every POST, kept by Ebb's own once. Invariants: of requests with one key (of one token, to one
//! address) one is carried out; the others get its answer, are told that it is being worked on, or, where they ask for
//! something else, are refused. A failure of ours gives the key back. What is kept of an answer only the request's own key
//! opens: nothing that it says of somebody can be read in the database, also after whoever it is about was erased.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use ebb::audit::ClosingKey;
use ebb::once::{Begun, Work};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::problem::{Problem, Sort};
use super::{BODY_LIMIT, Surface, auth, extract};

/// Where the keys are claimed; `[once.http]` sets how long they last.
const NAMESPACE: &str = "http";
pub(crate) const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// An answer as it is kept, closed.
#[derive(Serialize, Deserialize)]
struct Kept {
    status: u16,
    content_type: Option<String>,
    body: String,
}

pub(crate) async fn once(State(surface): State<Surface>, request: Request, next: Next) -> Response {
    if request.method() != Method::POST || !request.headers().contains_key(HEADER) {
        return next.run(request).await;
    }
    match carried_out_once(&surface, request, next).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn carried_out_once(surface: &Surface, request: Request, next: Next) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    let key = parts.headers.get(HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let key = key
        .filter(|key| (1..=255).contains(&key.len()) && key.bytes().all(|b| (b' '..=b'~').contains(&b)))
        .ok_or_else(|| {
            Problem::new(Sort::Malformed, "the Idempotency-Key has to be 1 to 255 printable ASCII characters")
        })?;
    // Whoever may not come in learns nothing about keys.
    let caller = auth::caller(&mut parts, surface).await?;
    let body = extract::body(body).await?;
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let claim = digest([caller.id.as_str(), target, &key].map(str::as_bytes));
    let answer = ClosingKey::from_bytes(digest(["answer", caller.id.as_str(), target, &key].map(str::as_bytes)));
    let once = surface.engine.once(NAMESPACE).fingerprint(Sha256::digest(&body).to_vec());
    match once.begin(&hex::encode(claim)).await? {
        Begun::First(work) => {
            let response = next.run(Request::from_parts(parts, Body::from(body))).await;
            keep(work, response, &answer).await
        }
        Begun::Duplicate { result } => replay(result, &answer),
        Begun::InProgress => {
            Err(Problem::new(Sort::InProgress, "a request with this Idempotency-Key is being worked on").retry_after(1))
        }
        Begun::Mismatch => {
            Err(Problem::new(Sort::Mismatch, "this Idempotency-Key belongs to a request with another body"))
        }
    }
}

fn digest<const N: usize>(parts: [&[u8]; N]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Keeps what was answered; gives the key back where nothing was done.
async fn keep(work: Work, response: Response, key: &ClosingKey) -> Result<Response, Problem> {
    let status = response.status();
    let undone = status.is_server_error()
        || matches!(status, StatusCode::FORBIDDEN | StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    if undone {
        work.release().await?;
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let problem = parts.extensions.get::<Problem>().cloned();
    let bytes = match problem {
        // Written down without the id of a request, which differs.
        Some(problem) => Bytes::from(serde_json::to_vec(&problem).unwrap_or_default()),
        None => axum::body::to_bytes(body, BODY_LIMIT).await.unwrap_or_default(),
    };
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let kept = Kept { status: status.as_u16(), content_type, body: String::from_utf8_lossy(&bytes).into_owned() };
    let closed = key.close(&serde_json::to_vec(&kept).unwrap_or_default(), NAMESPACE)?;
    work.complete(Some(&BASE64.encode(closed).into())).await?;
    parts.headers.remove(header::CONTENT_LENGTH);
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

fn replay(result: Option<serde_json::Value>, key: &ClosingKey) -> Result<Response, Problem> {
    let closed = result.and_then(|value| BASE64.decode(value.as_str()?).ok());
    let opened = closed.and_then(|closed| key.open(&closed, NAMESPACE));
    let kept: Option<Kept> = opened.and_then(|kept| serde_json::from_slice(&kept).ok());
    let Some(kept) = kept else {
        return Err(Problem::new(Sort::Conflict, "this was done before, and its answer was not kept"));
    };
    let mut response = Response::new(Body::from(kept.body));
    *response.status_mut() = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::OK);
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    if let Some(content_type) = kept.content_type.and_then(|value| HeaderValue::from_str(&value).ok()) {
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    Ok(response)
}
