//! OpenLineage: what the official clients send, each event kept once.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use ebb::lineage::{self, Event, Fault};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Surface;
use super::auth::{App, By};
use super::extract;
use super::problem::{FieldProblem, Problem, Sort};

/// A batch has no more.
const MOST: usize = 1_000;

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new().routes(routes!(event)).routes(routes!(batch)).merge(alias().into())
}

/// Where older producers send batches.
fn alias() -> Router<Surface> {
    Router::new().route("/lineage/events", post(batch))
}

/// What became of a batch.
#[derive(Debug, Serialize, ToSchema)]
struct LineageAnswer {
    /// Events that are kept, new or already known.
    successful: usize,
    /// Events that were refused.
    failed: usize,
    /// One for each event, in the order they came.
    results: Vec<LineageResult>,
}

/// What became of one event.
#[derive(Debug, Serialize, ToSchema)]
struct LineageResult {
    /// Its place in the batch.
    index: usize,
    /// `accepted`, `duplicate` or `rejected`.
    status: &'static str,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<FieldProblem>,
}

/// A run event, as far as Ebb looks at it. Anything else in it is kept as it came. For the document alone.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described")]
struct RunEvent {
    /// When, with a zone.
    #[schema(rename = "eventTime", format = DateTime, example = "2025-11-15T12:00:00.000Z")]
    event_time: String,
    /// START, RUNNING, COMPLETE, ABORT, FAIL or OTHER.
    #[schema(rename = "eventType", pattern = "^(START|RUNNING|COMPLETE|ABORT|FAIL|OTHER)$")]
    event_type: Option<String>,
    #[schema(min_length = 1, pattern = r"^[^\x00]+$")]
    producer: String,
    run: RunName,
    job: JobName,
}

/// 1 to 1,000 events. For the document alone.
#[derive(ToSchema)]
#[schema(min_items = 1, max_items = 1000)]
#[expect(dead_code, reason = "only described")]
struct RunEvents(Vec<RunEvent>);

/// Which run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described")]
struct RunName {
    /// Any text that is not empty.
    #[schema(rename = "runId", min_length = 1, pattern = r"^[^\x00]+$")]
    run_id: String,
}

/// Which job.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described")]
struct JobName {
    #[schema(min_length = 1, pattern = r"^[^\x00]+$")]
    namespace: String,
    #[schema(min_length = 1, pattern = r"^[^\x00]+$")]
    name: String,
}

/// Report an OpenLineage event
///
/// Run, job and dataset events. The same event within 24 hours is kept once, and answered the same.
#[utoipa::path(
    post, path = "/api/v1/lineage", tag = "lineage",
    request_body(content = RunEvent, description = "An OpenLineage event; job and dataset events need no run", example = json!({
        "eventTime": "2025-11-15T12:00:00.000Z", "eventType": "START", "producer": "https://example.test/etl",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": { "runId": "0197f3a0-9d2c-7000-8000-000000000001" }, "job": { "namespace": "etl", "name": "orders" },
    })),
    responses((status = 200, description = "Kept, or known already")),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn event(_by: By<App>, State(surface): State<Surface>, request: Request) -> Result<StatusCode, Problem> {
    let body = json_body(request).await?;
    let raw: &RawValue = raw(&body)?;
    let event = Event::parse(raw).map_err(|faults| {
        Problem::invalid("the event cannot be accepted").errors(faults.into_iter().map(told).collect())
    })?;
    lineage::accept(surface.engine.database(), &[event]).await?;
    Ok(StatusCode::OK)
}

/// Report many OpenLineage events
///
/// Each counts for itself: those that are wrong are refused, the others kept.
#[utoipa::path(
    post, path = "/api/v1/lineage/batch", tag = "lineage",
    request_body(content = RunEvents, description = "1 to 1,000 OpenLineage events"),
    responses(
        (status = 200, description = "All are kept", body = LineageAnswer),
        (status = 207, description = "Some were refused", body = LineageAnswer),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn batch(_by: By<App>, State(surface): State<Surface>, request: Request) -> Result<Response, Problem> {
    let body = json_body(request).await?;
    raw(&body)?;
    let raws: Vec<&RawValue> = extract::parse_borrowed(&body)?;
    if !(1..=MOST).contains(&raws.len()) {
        return Err(Problem::invalid(format!("a batch has 1 to {MOST} events, not {}", raws.len())));
    }
    let (mut events, mut results) = (Vec::new(), Vec::new());
    for (index, raw) in raws.into_iter().enumerate() {
        match Event::parse(raw) {
            Ok(event) => {
                events.push(event);
                results.push(LineageResult { index, status: "accepted", errors: Vec::new() });
            }
            Err(faults) => {
                let errors = faults.into_iter().map(told).collect();
                results.push(LineageResult { index, status: "rejected", errors });
            }
        }
    }
    let new = lineage::accept(surface.engine.database(), &events).await?;
    let accepted = results.iter_mut().filter(|result| result.status == "accepted");
    for (result, new) in accepted.zip(new) {
        result.status = if new { "accepted" } else { "duplicate" };
    }
    let failed = results.iter().filter(|result| result.status == "rejected").count();
    let status = if failed == 0 { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    let answer = LineageAnswer { successful: results.len() - failed, failed, results };
    Ok((status, axum::Json(answer)).into_response())
}

fn told(fault: Fault) -> FieldProblem {
    FieldProblem { field: fault.field.to_owned(), message: fault.message }
}

async fn json_body(request: Request) -> Result<Bytes, Problem> {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if !content_type.is_some_and(extract::is_json_type) {
        return Err(Problem::new(Sort::MediaType, "the body is not JSON").hint("send Content-Type: application/json"));
    }
    extract::body(request.into_body()).await
}

/// The body as one JSON value, nested no deeper than anything here can read.
fn raw(body: &[u8]) -> Result<&RawValue, Problem> {
    // RawValue passes over what it does not build: reading it once as a value refuses what is nested too deep.
    let _: Value = extract::parse_any(body)?;
    extract::parse_borrowed(body)
}
