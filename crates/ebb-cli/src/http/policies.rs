//! `/v1/policies`: what people asked for, and changing it. Invariant: a change names the version it was made on, and is
//! refused when somebody was quicker.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use ebb::audit::Moment;
use ebb::control;
use ebb::plan::PolicyPlan;
use ebb::policy::{self, Policy, Spec, Stored, Wanted};
use ebb::retain::{self, Consent, MadeDue, TreeChange};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Surface;
use super::auth::{Admin, By, Read};
use super::control::find;
use super::extract::{Path, Query};
use super::paging;
use super::problem::{FieldProblem, Problem, Sort};

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show, put)).routes(routes!(history))
}

/// A policy, namespace or setting.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicyAnswer {
    pub(crate) name: String,
    /// expire, retain, partition, resources, schedule, once, sink or settings.
    pub(crate) kind: String,
    /// `active`, `observing`, `paused`, `stopped` or `disabled`.
    pub(crate) state: &'static str,
    /// Grows with every change.
    pub(crate) version: i64,
    /// `file`, `runtime` or `ebb`.
    pub(crate) source: String,
    pub(crate) changed_at: Moment,
    pub(crate) changed_by: String,
    /// Why a node stopped it.
    pub(crate) stopped: Option<String>,
    /// Its keys, as in ebb.toml.
    #[schema(value_type = Object)]
    pub(crate) spec: Spec,
}

impl PolicyAnswer {
    pub(crate) fn new(stored: Stored, pauses: &[control::Pause]) -> Self {
        let state = if stored.stopped.is_some() {
            "stopped"
        } else if !stored.enabled {
            "disabled"
        } else if stored.kind.is_work() && pauses.iter().any(|p| p.name == control::ALL || p.name == stored.name) {
            "paused"
        } else if stored.spec.get("mode").and_then(Value::as_str) == Some("observe") {
            "observing"
        } else {
            "active"
        };
        let Stored { kind, name, spec, version, source, stopped, changed_at, changed_by, .. } = stored;
        Self { name, kind: kind.to_string(), state, version, source, changed_at, changed_by, stopped, spec }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// At most so many; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<i64>,
    /// `next` of the page before.
    pub(super) after: Option<String>,
}

/// A page of policies.
#[derive(Debug, Serialize, ToSchema)]
struct PolicyPage {
    policies: Vec<PolicyAnswer>,
    /// Leads to the next page.
    next: Option<String>,
}

/// Every policy, namespace and setting
#[utoipa::path(
    get, path = "/v1/policies", tag = "policies", params(ListQuery),
    responses((status = 200, description = "A page of policies", body = PolicyPage)),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn list(
    _by: By<Read>,
    State(surface): State<Surface>,
    Query(query): Query<ListQuery>,
) -> Result<Json<PolicyPage>, Problem> {
    let limit = paging::limit(query.limit)?;
    let mut tx = surface.engine.database().read().await?;
    let stored = policy::store::all(&mut tx).await?;
    let pauses = control::pauses(&mut tx).await?;
    tx.commit().await?;
    let cursor = |stored: &Stored| format!("{}/{}", stored.kind, stored.name);
    let mut rest = stored.into_iter().filter(|stored| query.after.as_ref().is_none_or(|after| cursor(stored) > *after));
    let page: Vec<Stored> = rest.by_ref().take(limit as usize).collect();
    let next = rest.next().and_then(|_| page.last().map(cursor));
    Ok(Json(PolicyPage { policies: page.into_iter().map(|stored| PolicyAnswer::new(stored, &pauses)).collect(), next }))
}

/// One policy
#[utoipa::path(
    get, path = "/v1/policies/{name}", tag = "policies",
    params(("name" = String, Path, description = "The policy", min_length = 1, max_length = 100)),
    responses(
        (status = 200, description = "The policy; its version is also the ETag", body = PolicyAnswer, headers(("etag" = String, description = "The version, in quotes"))),
        (status = 404, description = "There is no such policy", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn show(_by: By<Read>, State(surface): State<Surface>, Path(name): Path<String>) -> Result<Response, Problem> {
    answer(&surface, &name).await
}

async fn answer(surface: &Surface, name: &str) -> Result<Response, Problem> {
    let mut tx = surface.engine.database().read().await?;
    let stored = find(&mut tx, name).await?;
    let pauses = control::pauses(&mut tx).await?;
    tx.commit().await?;
    let etag = HeaderValue::from_str(&format!("\"{}\"", stored.version));
    let mut response = Json(PolicyAnswer::new(stored, &pauses)).into_response();
    if let Ok(etag) = etag {
        response.headers_mut().insert(header::ETAG, etag);
    }
    Ok(response)
}

/// A version of a policy.
#[derive(Debug, Serialize, ToSchema)]
struct Version {
    version: i64,
    changed_at: Moment,
    changed_by: String,
    source: String,
    enabled: bool,
    stopped: Option<String>,
    #[schema(value_type = Object)]
    spec: Spec,
}

/// Every version of one policy.
#[derive(Debug, Serialize, ToSchema)]
struct History {
    /// Newest first.
    versions: Vec<Version>,
}

/// Who changed a policy, and what it was
#[utoipa::path(
    get, path = "/v1/policies/{name}/history", tag = "policies",
    params(("name" = String, Path, description = "The policy", min_length = 1, max_length = 100)),
    responses(
        (status = 200, description = "Its versions, newest first", body = History),
        (status = 404, description = "There is no such policy", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn history(
    _by: By<Read>,
    State(surface): State<Surface>,
    Path(name): Path<String>,
) -> Result<Json<History>, Problem> {
    let mut tx = surface.engine.database().read().await?;
    let current = find(&mut tx, &name).await?;
    let versions = policy::store::history(&mut tx, &name).await?;
    tx.commit().await?;
    let versions = versions.into_iter().filter(|version| version.kind == current.kind).map(|stored| {
        let Stored { version, changed_at, changed_by, source, enabled, stopped, spec, .. } = stored;
        Version { version, changed_at, changed_by, source, enabled, stopped, spec }
    });
    Ok(Json(History { versions: versions.collect() }))
}

/// A policy as it should be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PutRequest {
    /// All of its keys, as in ebb.toml; what is left out gets its default.
    #[schema(value_type = Object)]
    spec: Spec,
    /// The version that this change was made on; `If-Match` says the same.
    #[schema(minimum = 0)]
    version: Option<i64>,
    /// Why a floor goes down; needed where one does.
    reason: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct PutQuery {
    /// Change nothing; answer what a run would do under the new keys.
    #[serde(default)]
    dry_run: bool,
    /// Subjects or rows may become due by the change.
    #[serde(default)]
    confirm: bool,
}

/// What a change would mean.
#[derive(Debug, Serialize, ToSchema)]
struct PreviewAnswer {
    /// The keys that would change.
    changes: Vec<KeyChange>,
    /// What a run would do now; for policies over a table.
    plan: Option<PolicyPlan>,
    /// Of a retain policy: how many subjects, or rows by their age, are due now.
    due_before: Option<u64>,
    /// And how many would be with the change.
    due_after: Option<u64>,
    /// How many of these are not due now, whoever else stops being so; when any, or more than can be counted, it takes effect
    /// only with `confirm=true`.
    due_more: Option<u64>,
    /// How many open deletions would be due sooner, and not at once.
    due_sooner: Option<u64>,
    /// What it would make of what goes with the subjects of other policies; when anything, it takes effect only with
    /// `confirm=true`.
    trees: Vec<TreeChange>,
}

/// A key that differs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyChange {
    pub(crate) key: String,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
}

/// Change a policy
///
/// Running nodes follow within seconds. `ebb apply` does not overwrite the change unasked.
#[utoipa::path(
    put, path = "/v1/policies/{name}", tag = "policies",
    params(
        ("name" = String, Path, description = "The policy", min_length = 1, max_length = 100), PutQuery),
    request_body = PutRequest,
    responses(
        (status = 200, description = "The policy as it is now; with dry_run, what the change would mean", body = PutAnswer),
        (status = 404, description = "There is no such policy", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "A rule stands in the way, or something would be due at once and nobody confirmed that", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "Somebody changed it meanwhile", body = Problem, content_type = "application/problem+json"),
        (status = 428, description = "Neither If-Match nor version says what the change was made on", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("admin"))),
)]
async fn put(
    by: By<Admin>,
    State(surface): State<Surface>,
    Path(name): Path<String>,
    Query(query): Query<PutQuery>,
    headers: HeaderMap,
    super::extract::Json(request): super::extract::Json<PutRequest>,
) -> Result<Response, Problem> {
    if request.version.is_some_and(|version| version < 0) {
        return Err(Problem::field("version", "is never negative"));
    }
    let expected = expected(&headers)?.or(request.version);
    if query.dry_run {
        let Preview { changes, plan, due, trees } = preview(&surface, &name, &request.spec).await?;
        let number = |number: fn(&MadeDue) -> u64| due.as_ref().map(number);
        let (due_before, due_after) = (number(|due| due.before), number(|due| due.after));
        let (due_more, due_sooner) = (number(MadeDue::more), number(|due| due.sooner));
        let answer = PreviewAnswer { changes, plan, due_before, due_after, due_more, due_sooner, trees };
        return Ok(Json(PutAnswer::Preview(Box::new(answer))).into_response());
    }
    let expected = expected.ok_or_else(|| {
        Problem::new(Sort::VersionMissing, "which version the change was made on is missing")
            .hint("send If-Match with the ETag of the policy, or `version` in the body")
    })?;
    let mut tx = surface.engine.database().read().await?;
    find(&mut tx, &name).await?;
    tx.commit().await?;
    let consent = Consent { confirmed: query.confirm, reason: request.reason };
    let put = surface.engine.put_policy(&name, &request.spec, expected, by.name(), &consent).await;
    put.map_err(|error| match error.hint() {
        Some(hint) if hint.contains("--reason") => Problem::from(error).hint("say why: `reason` in the body"),
        _ => unconfirmed(error),
    })?;
    answer(&surface, &name).await
}

/// A problem that a confirmation solves says how to send one.
pub(super) fn unconfirmed(error: ebb::Error) -> Problem {
    match error.hint().filter(|hint| hint.contains("say --yes")) {
        Some(hint) => {
            let hint = hint.replace("say --yes", "send confirm=true");
            Problem::from(error).hint(hint)
        }
        None => error.into(),
    }
}

/// One of two answers; for the document alone.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum PutAnswer {
    #[expect(dead_code, reason = "answered as the policy itself")]
    Policy(Box<PolicyAnswer>),
    Preview(Box<PreviewAnswer>),
}

pub(super) fn expected(headers: &HeaderMap) -> Result<Option<i64>, Problem> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let version = value.to_str().ok().and_then(|text| {
        let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
        bare.parse().ok().filter(|version: &i64| *version >= 0)
    });
    version.map(Some).ok_or_else(|| Problem::new(Sort::Malformed, "If-Match is no version in quotes, such as \"3\""))
}

/// What a change would mean.
pub(crate) struct Preview {
    pub(crate) changes: Vec<KeyChange>,
    pub(crate) plan: Option<PolicyPlan>,
    pub(crate) due: Option<MadeDue>,
    pub(crate) trees: Vec<TreeChange>,
}

/// Looks at a change without making it.
pub(crate) async fn preview(surface: &Surface, name: &str, spec: &Spec) -> Result<Preview, Problem> {
    let mut tx = surface.engine.database().read().await?;
    let stored = find(&mut tx, name).await?;
    tx.commit().await?;
    let policy = Policy::parse(stored.kind, name, spec).map_err(|errors| {
        let fields =
            errors.0.iter().map(|error| FieldProblem { field: error.path.join("."), message: error.message.clone() });
        Problem::invalid(errors.to_string()).errors(fields.collect())
    })?;
    let due = match &policy {
        Policy::Retain(retain) => {
            let mut tx = surface.engine.database().read().await?;
            retain::made_due(&mut tx, retain, None).await?
        }
        _ => None,
    };
    let wanted = Wanted { kind: stored.kind, name: name.to_owned(), spec: spec.clone(), policy };
    let plan = surface.engine.plan(std::slice::from_ref(&wanted)).await?;
    let changes = plan.changes.into_iter().find(|change| change.name == name && !change.is_disable());
    let changes = changes.map(|change| change.keys).unwrap_or_default();
    let changes = changes.into_iter().map(|(key, before, after)| KeyChange { key, before, after }).collect();
    let plan = plan.policies.into_iter().find(|plan| plan.policy == name);
    // What would be refused is told when it is asked for; here it changes no tree.
    let consent = Consent { confirmed: true, reason: Some("a rehearsal".to_owned()) };
    let trees = match surface.engine.rehearse_policy(name, spec, "preview", &consent).await {
        Ok(changed) => changed.trees,
        Err(error) if error.is_unavailable() => return Err(error.into()),
        Err(_) => Vec::new(),
    };
    Ok(Preview { changes, plan, due, trees })
}
