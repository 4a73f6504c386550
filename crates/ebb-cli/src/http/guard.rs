//! What happens around every request: an id, a bound on its time, an answer even after a panic, headers that tell
//! browsers to be careful, a line in the log. Invariant: whatever fails inside, the client gets a problem document.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::Surface;
use super::peer::Peer;
use super::problem::{Problem, Sort};

/// No request takes longer to be answered; a stream is answered with its first byte.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub(crate) async fn guard(State(surface): State<Surface>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(&request);
    let method = request.method().clone();
    let path =
        request.extensions().get::<MatchedPath>().map_or("(unknown)".to_owned(), |path| path.as_str().to_owned());
    let (parts, body) = request.into_parts();
    let peer = Peer::of(&parts, &surface);
    let request = Request::from_parts(parts, body);

    let answered = tokio::time::timeout(ANSWER_WITHIN, AssertUnwindSafe(next.run(request)).catch_unwind()).await;
    let mut response = match answered {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!(request = %id, "A request ended in a panic");
            Problem::new(Sort::Internal, "the request failed; the log says why").into_response()
        }
        Err(_) => {
            Problem::new(Sort::Unavailable, format!("there was no answer within {ANSWER_WITHIN:?}")).into_response()
        }
    };
    finish(&mut response, &id, peer.secure);
    let (status, took) = (response.status(), started.elapsed());
    metrics::counter!("ebb_http_requests_total", "method" => method.to_string(), "path" => path.clone(),
        "status" => status.as_str().to_owned())
    .increment(1);
    metrics::histogram!("ebb_http_request_duration_seconds", "path" => path.clone()).record(took.as_secs_f64());
    tracing::debug!(request = %id, %method, path, status = status.as_u16(), from = %peer.address, ?took, "Answered");
    response
}

/// The client's own id where it is harmless, or a fresh one.
fn request_id(request: &Request) -> String {
    let harmless = |text: &str| {
        (1..=64).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    let given = request.headers().get(&REQUEST_ID).and_then(|value| value.to_str().ok()).filter(|text| harmless(text));
    given.map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

fn finish(response: &mut Response, id: &str, secure: bool) {
    let status = response.status();
    let of_type = |response: &Response, kind: &str| {
        response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|t| t.starts_with(kind))
    };
    let problem = response.extensions_mut().remove::<Problem>().or_else(|| {
        let bare = status.is_client_error() || status.is_server_error();
        // Pages bring their own, and a repeated answer is sent as it was.
        let told = of_type(response, "application/problem+json") || of_type(response, "text/html");
        (bare && !told).then(|| Problem::of_status(status))
    });
    if let Some(problem) = problem {
        *response.body_mut() = problem.document(id);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.remove(header::CONTENT_LENGTH);
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        headers.insert(
            header::CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
        );
    }
    if secure {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
}

/// Nothing is at this address.
pub(crate) async fn not_found() -> Problem {
    Problem::not_found("there is nothing at this address").hint("/docs lists what there is")
}

/// Something is, but not for this method.
pub(crate) async fn wrong_method() -> impl IntoResponse {
    Problem::of_status(StatusCode::METHOD_NOT_ALLOWED)
}
