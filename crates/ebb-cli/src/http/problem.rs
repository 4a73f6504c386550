//! What goes wrong is answered as a problem document (RFC 9457) with a stable `type`. Invariant: a problem says what the
//! caller can do and nothing about the inside; what only an operator should know goes to the log.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// A problem document.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// What sort of problem it is; the same in every release.
    #[serde(rename = "type")]
    #[schema(example = "urn:ebb:problem:not-found")]
    kind: &'static str,
    /// The sort in words.
    title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What happened this time.
    detail: Box<str>,
    /// What can be done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Box<str>>,
    /// What is wrong, field by field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldProblem>,
    /// Names the request in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<Box<str>>,
    #[serde(skip)]
    retry_after: Option<u32>,
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FieldProblem {
    /// Where, in dots.
    pub(crate) field: String,
    /// What.
    pub(crate) message: String,
}

/// The sorts of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Malformed,
    Unauthenticated,
    Forbidden,
    NotFound,
    Method,
    Timeout,
    Conflict,
    InProgress,
    Changed,
    TooLarge,
    MediaType,
    Invalid,
    Mismatch,
    VersionMissing,
    TooMany,
    HeadersTooLarge,
    Internal,
    Unavailable,
}

impl Sort {
    pub(crate) const ALL: [Sort; 18] = [
        Sort::Malformed,
        Sort::Unauthenticated,
        Sort::Forbidden,
        Sort::NotFound,
        Sort::Method,
        Sort::Timeout,
        Sort::Conflict,
        Sort::InProgress,
        Sort::Changed,
        Sort::TooLarge,
        Sort::MediaType,
        Sort::Invalid,
        Sort::Mismatch,
        Sort::VersionMissing,
        Sort::TooMany,
        Sort::HeadersTooLarge,
        Sort::Internal,
        Sort::Unavailable,
    ];

    /// Type, status, title.
    pub(crate) fn parts(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Sort::Malformed => ("urn:ebb:problem:malformed", StatusCode::BAD_REQUEST, "The request cannot be read"),
            Sort::Unauthenticated => ("urn:ebb:problem:unauthenticated", StatusCode::UNAUTHORIZED, "A token is needed"),
            Sort::Forbidden => ("urn:ebb:problem:forbidden", StatusCode::FORBIDDEN, "The token may not do this"),
            Sort::NotFound => ("urn:ebb:problem:not-found", StatusCode::NOT_FOUND, "There is no such thing"),
            Sort::Method => {
                ("urn:ebb:problem:method-not-allowed", StatusCode::METHOD_NOT_ALLOWED, "That cannot be done here")
            }
            Sort::Timeout => {
                ("urn:ebb:problem:request-timeout", StatusCode::REQUEST_TIMEOUT, "The request took too long to arrive")
            }
            Sort::Conflict => ("urn:ebb:problem:conflict", StatusCode::CONFLICT, "A rule stands in the way"),
            Sort::InProgress => ("urn:ebb:problem:in-progress", StatusCode::CONFLICT, "Somebody is at it"),
            Sort::Changed => {
                ("urn:ebb:problem:changed-meanwhile", StatusCode::PRECONDITION_FAILED, "It was changed meanwhile")
            }
            Sort::TooLarge => ("urn:ebb:problem:too-large", StatusCode::PAYLOAD_TOO_LARGE, "The body is too large"),
            Sort::MediaType => {
                ("urn:ebb:problem:media-type", StatusCode::UNSUPPORTED_MEDIA_TYPE, "The body is of another sort")
            }
            Sort::Invalid => {
                ("urn:ebb:problem:invalid", StatusCode::UNPROCESSABLE_ENTITY, "The request makes no sense")
            }
            Sort::Mismatch => {
                ("urn:ebb:problem:key-mismatch", StatusCode::UNPROCESSABLE_ENTITY, "Two requests share a key")
            }
            Sort::VersionMissing => (
                "urn:ebb:problem:version-missing",
                StatusCode::PRECONDITION_REQUIRED,
                "Which version the change is for is missing",
            ),
            Sort::TooMany => ("urn:ebb:problem:too-many-requests", StatusCode::TOO_MANY_REQUESTS, "Too many requests"),
            Sort::HeadersTooLarge => (
                "urn:ebb:problem:headers-too-large",
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "The headers are too large",
            ),
            Sort::Internal => {
                ("urn:ebb:problem:internal", StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong here")
            }
            Sort::Unavailable => {
                ("urn:ebb:problem:unavailable", StatusCode::SERVICE_UNAVAILABLE, "Not available for the moment")
            }
        }
    }
}

impl Problem {
    pub(crate) fn new(sort: Sort, detail: impl Into<Box<str>>) -> Self {
        let (kind, status, title) = sort.parts();
        Self {
            kind,
            title,
            status: status.as_u16(),
            detail: detail.into(),
            hint: None,
            errors: Vec::new(),
            request_id: None,
            retry_after: (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1),
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<Box<str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn errors(mut self, errors: Vec<FieldProblem>) -> Self {
        self.errors = errors;
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub(crate) fn not_found(detail: impl Into<Box<str>>) -> Self {
        Self::new(Sort::NotFound, detail)
    }

    pub(crate) fn invalid(detail: impl Into<Box<str>>) -> Self {
        Self::new(Sort::Invalid, detail)
    }

    /// One wrong field.
    pub(crate) fn field(field: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let error = FieldProblem { field: field.to_owned(), message: message.clone() };
        Self::invalid(format!("{field} {message}")).errors(vec![error])
    }

    /// For an answer that some layer gave without a document.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        let sort = Sort::ALL.into_iter().find(|sort| sort.parts().1 == status);
        let sort = sort.unwrap_or(if status.is_server_error() { Sort::Internal } else { Sort::Malformed });
        let mut problem = Self::new(sort, sort.parts().2);
        problem.status = status.as_u16();
        problem
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(crate) fn title(&self) -> &'static str {
        self.title
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The document, naming the request.
    pub(crate) fn document(mut self, request_id: &str) -> Body {
        self.request_id = Some(request_id.into());
        Body::from(serde_json::to_vec(&self).unwrap_or_default())
    }
}

/// The answer carries the problem along; the outermost layer writes it down with the request's id.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<ebb::Error> for Problem {
    fn from(error: ebb::Error) -> Self {
        let problem = if error.is_unknown() {
            Self::not_found(error.to_string())
        } else if error.is_usage() || error.is_config() {
            Self::invalid(error.to_string())
        } else if error.is_refused() || error.is_fenced() {
            Self::new(Sort::Conflict, error.to_string())
        } else if error.is_superseded() {
            Self::new(Sort::Changed, error.to_string())
        } else if error.is_unavailable() || matches!(error.sqlstate().as_deref(), Some("57014" | "55P03" | "40P01")) {
            tracing::warn!(error = error.for_log(), "A request found the database away or busy");
            return Self::new(Sort::Unavailable, "the database is away or busy").hint("try again in a moment");
        } else {
            tracing::error!(error = error.for_log(), hint = error.hint(), "A request failed");
            return Self::new(Sort::Internal, "the request failed; the log says why");
        };
        match error.hint() {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        ebb::Error::from(error).into()
    }
}
