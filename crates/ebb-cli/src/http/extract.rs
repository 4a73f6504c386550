//! What handlers take from a request, each with a problem document where it cannot be taken. Invariant: a body is read
//! within bounds of size and time, whatever the client does.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::BytesMut;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;

use super::BODY_LIMIT;
use super::problem::{FieldProblem, Problem, Sort};

/// A body takes no longer to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);
/// How much of a body that is too large is read all the same.
const LISTEN_FOR: usize = 8 * BODY_LIMIT;

/// A JSON body of any sort.
#[derive(Debug)]
pub(crate) struct AnyJson<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for AnyJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(not_json());
        }
        parse(&body(request.into_body()).await?).map(Self)
    }
}

/// A JSON object.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(not_json());
        }
        object(&body(request.into_body()).await?).map(Self)
    }
}

fn not_json() -> Problem {
    Problem::new(Sort::MediaType, "the body is not JSON").hint("send Content-Type: application/json")
}

/// Reads an object. A list of its values in order is none, although it could be read as one.
fn object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    match bytes.trim_ascii_start().first() {
        Some(b'[') => well_formed(bytes).and(Err(Problem::invalid("the body has to be a JSON object"))),
        _ => parse(bytes),
    }
}

/// A JSON object, or none.
#[derive(Debug)]
pub(crate) struct OptionalJson<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let json = is_json(request.headers());
        let bytes = body(request.into_body()).await?;
        match (bytes.is_empty(), json) {
            (true, _) => Ok(Self(T::default())),
            (false, true) => object::<Option<T>>(&bytes).map(|given| Self(given.unwrap_or_default())),
            (false, false) => Err(not_json()),
        }
    }
}

/// The whole body, within its limit.
pub(crate) async fn body(body: Body) -> Result<Bytes, Problem> {
    match tokio::time::timeout(BODY_WITHIN, read(body)).await {
        Ok(read) => read,
        Err(_) => Err(Problem::new(Sort::Timeout, format!("the body did not arrive within {BODY_WITHIN:?}"))),
    }
}

async fn read(body: Body) -> Result<Bytes, Problem> {
    let (mut chunks, mut bytes, mut seen) = (body.into_data_stream(), BytesMut::new(), 0);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Problem::new(Sort::Malformed, "the body cannot be read to its end"))?;
        seen += chunk.len();
        // Whoever is still sending would not hear the answer: a little more is read, and let go.
        if seen > LISTEN_FOR {
            break;
        }
        if seen <= BODY_LIMIT {
            bytes.extend_from_slice(&chunk);
        }
    }
    if seen > BODY_LIMIT {
        return Err(Problem::new(Sort::TooLarge, format!("the body is larger than {} kB", BODY_LIMIT >> 10)));
    }
    Ok(bytes.freeze())
}

/// Reads JSON for the database, which has no place for a zero byte in a text.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let value = parse_any(bytes)?;
    match has_zero(bytes) {
        true => Err(Problem::invalid("the body contains a zero byte")
            .hint("encode what is binary, for instance as hexadecimal")),
        false => Ok(value),
    }
}

/// Reads JSON: what is no JSON is malformed, what does not fit is invalid, at the field that does not.
pub(crate) fn parse_any<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    well_formed(bytes)?;
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        if !error.is_data() {
            return Problem::new(Sort::Malformed, format!("the body is not JSON: {error}"));
        }
        let field = place(path, &error.to_string());
        let detail = if field.is_empty() { error.to_string() } else { format!("{field}: {error}") };
        Problem::invalid(detail).errors(vec![FieldProblem { field, message: error.to_string() }])
    })
}

/// The field that an error is about: one that is missing stands in no path.
fn place(path: String, message: &str) -> String {
    let path = if path == "." { String::new() } else { path };
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    match missing {
        Some(field) if path.is_empty() => field.to_owned(),
        Some(field) => format!("{path}.{field}"),
        None => path,
    }
}

/// Whether it is one JSON value in UTF-8, whatever it means.
fn well_formed(bytes: &[u8]) -> Result<(), Problem> {
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::new(Sort::Malformed, "the body is not UTF-8"))?;
    let read: Result<serde::de::IgnoredAny, _> = serde_json::from_str(text);
    read.map(|_| ()).map_err(|error| Problem::new(Sort::Malformed, format!("the body is not JSON: {error}")))
}

/// Whether well-formed JSON says `\u0000` somewhere: a zero byte has no other way into it.
fn has_zero(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        if rest[at..].starts_with(b"\\u0000") {
            return true;
        }
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

/// Reads JSON that borrows from its bytes.
pub(crate) fn parse_borrowed<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| match error.is_data() {
        true => Problem::invalid(error.to_string()),
        false => Problem::new(Sort::Malformed, format!("the body is not JSON: {error}")),
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(is_json_type)
}

/// A whole number, also where it is written `103.0`: to JSON Schema that is one.
pub(crate) fn whole<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let given: Option<serde_json::Number> = serde::Deserialize::deserialize(deserializer)?;
    let Some(given) = given else { return Ok(None) };
    let whole = given.as_f64().filter(|value| value.fract() == 0.0 && (0.0..9e18).contains(value));
    let read = given.as_u64().or_else(|| whole.map(|value| value as u64));
    read.map(Some).ok_or_else(|| serde::de::Error::custom("has to be a whole number of rows"))
}

/// Whether a content type is JSON.
pub(crate) fn is_json_type(given: &str) -> bool {
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// What a path names.
#[derive(Debug)]
pub(crate) struct Path<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if parts.uri.path().contains("%00") {
            return Err(Problem::new(Sort::Malformed, "the path contains a zero byte"));
        }
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection) => {
                Err(Problem::new(Sort::Malformed, format!("the path cannot be read: {}", rejection.body_text())))
            }
        }
    }
}

/// What follows the question mark.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if parts.uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(Problem::new(Sort::Malformed, "the query contains a zero byte"));
        }
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(rejection) => Err(Problem::new(Sort::Malformed, rejection.body_text())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zero_byte_is_found_where_it_is_one() {
        for (text, has) in [
            (r#""a""#, false),
            (r#""\u0000""#, true),
            (r#""\\u0000""#, false),
            (r#""\\\u0000""#, true),
            (r#"{"\n\u0000": 1}"#, true),
            (r#""\u00001""#, true),
            (r#""\""#, false),
        ] {
            assert_eq!(has_zero(text.as_bytes()), has, "{text}");
        }
    }
}
