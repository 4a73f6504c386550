//! Holders, resources and references: short-lived things outside live as long as somebody who is alive refers to them.

use axum::extract::State;
use axum::http::StatusCode;
use ebb::resources::{self, Change, Listed};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::{App, By, Read};
use super::events::length;
use super::extract::{Json, Path, Query};
use super::problem::{Problem, Sort};
use super::{Surface, paging};

/// Changes in one request.
const MOST_CHANGES: usize = 1_000;

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new()
        .routes(routes!(open))
        .routes(routes!(beat))
        .routes(routes!(close))
        .routes(routes!(announce, list))
        .routes(routes!(refer))
}

/// Somebody who will refer to resources.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct HolderRequest {
    /// Any name: the host and process, the job.
    #[schema(min_length = 1, max_length = 200, pattern = "^[ -~]+$")]
    name: String,
    /// How long it counts as alive without a beat, 1 second to 7 days; a minute when absent.
    #[schema(example = "60s", pattern = "^([1-9][0-9]{0,3}s|[1-9][0-9]{0,2}m|[1-9][0-9]h|[1-7]d)$")]
    term: Option<String>,
    /// What people want to know about it.
    #[serde(default)]
    #[schema(value_type = Object)]
    labels: Map<String, Value>,
}

/// A holder.
#[derive(Debug, Serialize, ToSchema)]
struct HolderAnswer {
    /// Its id: beat it at a third of its term.
    holder: Uuid,
}

/// Open a holder
#[utoipa::path(
    post, path = "/v1/holders", tag = "resources", request_body = HolderRequest,
    responses((status = 201, description = "It is alive for its term", body = HolderAnswer)),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn open(
    _by: By<App>,
    State(surface): State<Surface>,
    Json(request): Json<HolderRequest>,
) -> Result<(StatusCode, axum::Json<HolderAnswer>), Problem> {
    if !(1..=200).contains(&request.name.len()) || !request.name.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return Err(Problem::field("name", "has to be 1 to 200 printable ASCII characters"));
    }
    let term = length("term", request.term.as_deref().unwrap_or("60s"))?;
    let mut tx = surface.engine.database().read().await?;
    let holder = resources::open_holder(&mut tx, &request.name, term, &Value::Object(request.labels)).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, axum::Json(HolderAnswer { holder })))
}

/// Say that a holder is alive
#[utoipa::path(
    post, path = "/v1/holders/{id}/beat", tag = "resources",
    params(("id" = Uuid, Path, description = "The holder")),
    responses(
        (status = 204, description = "It lives for another term"),
        (status = 409, description = "It is dead: what it referred to may go at any moment, so stop using it", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn beat(_by: By<App>, State(surface): State<Surface>, Path(id): Path<Uuid>) -> Result<StatusCode, Problem> {
    let mut tx = surface.engine.database().read().await?;
    let alive = resources::beat_holder(&mut tx, id).await?;
    tx.commit().await?;
    match alive {
        true => Ok(StatusCode::NO_CONTENT),
        false => {
            Err(Problem::new(Sort::Conflict, format!("holder {id} is not alive: its term ran out, or it was closed"))
                .hint("stop using what it referred to, and open a new holder"))
        }
    }
}

/// Close a holder, and let go of everything it refers to
#[utoipa::path(
    delete, path = "/v1/holders/{id}", tag = "resources",
    params(("id" = Uuid, Path, description = "The holder")),
    responses((status = 204, description = "It refers to nothing any more")),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn close(_by: By<App>, State(surface): State<Surface>, Path(id): Path<Uuid>) -> Result<StatusCode, Problem> {
    let mut tx = surface.engine.database().read().await?;
    resources::close_holder(&mut tx, id).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A resource that is about to be made, or exists now.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
enum ResourceRequest {
    /// Said before it is made: whatever happens afterwards, it is known.
    Intent {
        /// The policy.
        resources: String,
        /// What it will be called; the policy's pattern says what names look like.
        name: String,
        /// Who makes it, and refers to it from now on.
        holder: Uuid,
        /// What people want to know about it.
        #[serde(default)]
        #[schema(value_type = Object)]
        labels: Map<String, Value>,
    },
    /// Said when it is there.
    Created {
        /// The policy.
        resources: String,
        /// What it is called.
        name: String,
        /// What the store calls it.
        store_id: Option<String>,
    },
}

/// Announce a resource, or say that it exists
#[utoipa::path(
    post, path = "/v1/resources", tag = "resources", request_body = ResourceRequest,
    responses(
        (status = 204, description = "It is known"),
        (status = 404, description = "There is no such policy", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The holder is dead, the name was used before, or it was given up meanwhile: drop it", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn announce(
    _by: By<App>,
    State(surface): State<Surface>,
    Json(request): Json<ResourceRequest>,
) -> Result<StatusCode, Problem> {
    let mut tx = surface.engine.database().read().await?;
    match request {
        ResourceRequest::Intent { resources: policy, name, holder, labels } => {
            resources::announce(&mut tx, &policy, &name, holder, &Value::Object(labels)).await?;
        }
        ResourceRequest::Created { resources: policy, name, store_id } => {
            if !resources::created(&mut tx, &policy, &name, store_id.as_deref()).await? {
                return Err(Problem::new(
                    Sort::Conflict,
                    format!("{name} of {policy} was given up, or never announced"),
                )
                .hint("drop it, or leave it to the sweeper; announce before making"));
            }
        }
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// References that begin or end.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RefsRequest {
    /// 1 to 1,000, as if one after the other.
    #[schema(min_items = 1, max_items = 1000)]
    changes: Vec<Change>,
}

/// What came too late.
#[derive(Debug, Serialize, ToSchema)]
struct RefsAnswer {
    /// The increfs that did not count, each with its `reason`: `gone`, `unknown` or `holder`.
    gone: Vec<Value>,
}

/// Begin and end references
#[utoipa::path(
    post, path = "/v1/refs", tag = "resources", request_body = RefsRequest,
    responses(
        (status = 200, description = "Which increfs came too late; the others count", body = RefsAnswer),
        (status = 404, description = "There is no such policy", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn refer(
    _by: By<App>,
    State(surface): State<Surface>,
    Json(request): Json<RefsRequest>,
) -> Result<axum::Json<RefsAnswer>, Problem> {
    if !(1..=MOST_CHANGES).contains(&request.changes.len()) {
        return Err(Problem::field("changes", format!("has to hold 1 to {MOST_CHANGES} changes")));
    }
    let mut tx = surface.engine.database().read().await?;
    let late = resources::apply_refs(&mut tx, &request.changes).await?;
    tx.commit().await?;
    Ok(axum::Json(RefsAnswer { gone: late.as_array().cloned().unwrap_or_default() }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only of this policy.
    policy: Option<String>,
    /// Only in this state; all but tombstones when absent.
    #[param(pattern = "^(creating|live|condemned|dropping|blocked|dropped)$")]
    state: Option<String>,
    /// At most so many; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// `next` of the page before.
    #[param(pattern = "^[A-Za-z0-9_-]+/[^\\x00-\\x1f\\x7f-\\x9f]+$")]
    after: Option<String>,
}

/// A page of resources.
#[derive(Debug, Serialize, ToSchema)]
struct ResourcePage {
    /// By policy and name.
    resources: Vec<Listed>,
    /// Leads to the next page.
    next: Option<String>,
}

/// Resources, who refers to them, and what stands in the way of their end
#[utoipa::path(
    get, path = "/v1/resources", tag = "resources", params(ListQuery),
    responses((status = 200, description = "A page of resources", body = ResourcePage)),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn list(
    _by: By<Read>,
    State(surface): State<Surface>,
    Query(query): Query<ListQuery>,
) -> Result<axum::Json<ResourcePage>, Problem> {
    const STATES: [&str; 6] = ["creating", "live", "condemned", "dropping", "blocked", "dropped"];
    let limit = paging::limit(query.limit)?;
    if query.state.as_deref().is_some_and(|state| !STATES.contains(&state)) {
        return Err(Problem::field("state", format!("is one of {}", STATES.join(", "))));
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let after = query.after.as_deref().map(|after| {
        let parts = after.split_once('/').filter(|(policy, name)| {
            !policy.is_empty() && policy.bytes().all(plain) && !name.is_empty() && !name.contains(char::is_control)
        });
        parts.ok_or_else(|| Problem::field("after", "has to be the `next` of another page"))
    });
    let mut tx = surface.engine.database().read().await?;
    let (policy, state) = (query.policy.as_deref(), query.state.as_deref());
    let found = resources::list_after(&mut tx, policy, state, after.transpose()?, limit as u64).await?;
    tx.commit().await?;
    let full = found.len() as i64 == limit;
    let next = found.last().filter(|_| full).map(|last| format!("{}/{}", last.policy, last.name));
    Ok(axum::Json(ResourcePage { resources: found, next }))
}
