//! The OpenAPI document, generated from the handlers. Invariant: every answer is declared, those included that no
//! handler gives by itself: nobody let in, too much, too fast, not readable.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

use super::Surface;
use super::problem::{FieldProblem, Problem};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Ebb",
        description = "The data-lifecycle engine for PostgreSQL. Errors are problem documents (RFC 9457) with stable types. \
            Every POST takes an Idempotency-Key. Lists are paged by cursor: pass `next` of an answer as `after`.",
    ),
    components(schemas(Problem, FieldProblem)),
    security(("bearer" = [])),
    tags(
        (name = "once", description = "Inside a window an event is accepted once"),
        (name = "lineage", description = "OpenLineage events, each kept once"),
        (name = "events", description = "What is due gets delivered"),
        (name = "subjects", description = "Personal data lives as long as policy says"),
        (name = "resources", description = "Short-lived things outside live as long as somebody refers to them"),
        (name = "partitions", description = "Big tables split by time"),
        (name = "policies", description = "What people asked for"),
        (name = "operations", description = "How it stands, and telling nodes what to do"),
        (name = "audit", description = "What was done, and the proof"),
    ),
)]
struct Document;

/// What the routers add their paths to.
pub(super) fn document() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A token of `ebb token create`; x-ebb-role of an operation says which role it needs."))
        .build();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
    document
}

/// Declares what happens around every handler.
pub(super) fn complete(document: &mut utoipa::openapi::OpenApi) {
    // Fields that nobody knows are refused in each form of a body, too.
    for schema in document.components.iter_mut().flat_map(|components| components.schemas.values_mut()) {
        let RefOr::T(Schema::OneOf(forms)) = schema else { continue };
        for form in &mut forms.items {
            if let RefOr::T(Schema::Object(object)) = form {
                object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
            }
        }
    }
    for (path, item) in &mut document.paths.paths {
        let methods =
            [("get", &mut item.get), ("put", &mut item.put), ("post", &mut item.post), ("delete", &mut item.delete)];
        for (method, operation) in methods.into_iter().filter_map(|(method, slot)| Some((method, slot.as_mut()?))) {
            operation.operation_id = Some(name(method, path));
        }
        let post = item.post.is_some();
        for operation in [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten() {
            let parameters = operation.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty());
            let body = operation.request_body.is_some();
            declare(operation, 401, "No token, or one that is unknown, expired or revoked");
            declare(operation, 403, "The token's role does not cover this");
            declare(operation, 429, "Too many requests, or too many wrong tokens");
            declare(operation, 500, "Something went wrong here");
            declare(operation, 503, "The database is away or busy");
            if parameters || body {
                declare(operation, 400, "The request cannot be read");
            }
            if body {
                declare(operation, 408, "The body took too long to arrive");
                declare(operation, 413, "The body is too large");
                declare(operation, 415, "The body is not JSON");
            }
            if parameters || body {
                declare(operation, 422, "The request makes no sense");
            }
        }
        // What asks for a version, by header or otherwise, declares that it may have passed.
        for operation in [&mut item.put, &mut item.delete].into_iter().flatten() {
            if operation.responses.responses.contains_key("412") {
                operation.parameters.get_or_insert_default().push(if_match().into());
            }
        }
        if post && let Some(operation) = &mut item.post {
            declare(
                operation,
                409,
                "A request with this Idempotency-Key is being worked on, or a rule stands in the way",
            );
            declare(operation, 422, "The Idempotency-Key belongs to another request, or the request makes no sense");
            operation.parameters.get_or_insert_default().push(idempotency_key().into());
        }
        // Also of a body that nothing reads: what it says is refused.
        for operation in [&mut item.put, &mut item.post, &mut item.delete].into_iter().flatten() {
            declare(operation, 400, "The request cannot be read");
            declare(operation, 408, "The body took too long to arrive");
            declare(operation, 413, "The body is too large");
            declare(operation, 422, "The request makes no sense");
        }
    }
}

/// What generated clients call an operation: `post_events_id_retry`.
fn name(method: &str, path: &str) -> String {
    let words = path.split(['/', '{', '}']).filter(|word| !matches!(*word, "" | "v1" | "api"));
    std::iter::once(method).chain(words).collect::<Vec<_>>().join("_")
}

fn declare(operation: &mut Operation, status: u16, description: &str) {
    operation.responses.responses.entry(status.to_string()).or_insert_with(|| {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        RefOr::T(ResponseBuilder::new().description(description).content("application/problem+json", content).build())
    });
}

fn idempotency_key() -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(255))
        .pattern(Some("^[ -~]+$"));
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .description(Some(
            "Makes repeating the request harmless: the first answer is kept for 24 hours and given again",
        ))
        .schema(Some(schema))
        .build()
}

fn if_match() -> Parameter {
    let schema = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^(\"[0-9]{1,18}\"|[0-9]{1,18})$"));
    ParameterBuilder::new()
        .name("If-Match")
        .parameter_in(ParameterIn::Header)
        .description(Some("The version that this change was made on, in quotes: the ETag of the policy"))
        .schema(Some(schema))
        .build()
}

/// Serves the document.
pub(super) fn router(document: &utoipa::openapi::OpenApi) -> Router<Surface> {
    let json: Bytes = document.to_pretty_json().unwrap_or_default().into();
    let json = Arc::new(json);
    Router::new().route(
        "/openapi.json",
        get(move || {
            let json = json.as_ref().clone();
            async move { ([(header::CONTENT_TYPE, "application/json")], json).into_response() }
        }),
    )
}
