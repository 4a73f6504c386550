//! `/v1/policies/{name}/tenants/{tenant}`: a tenant's own terms. Invariants: what makes subjects due takes effect only for
//! whoever says that they know; what a request does not speak of stays as it is.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use ebb::policy::{self, Term};
use ebb::retain::{self, OverrideChange, TenantTerms};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Surface;
use super::auth::{Admin, By};
use super::extract::{self, Path, Query};
use super::policies::expected;
use super::problem::{Problem, Sort};

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new().routes(routes!(put, remove))
}

/// Which tenant of which policy.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct Of {
    /// The retain policy.
    #[param(min_length = 1)]
    name: String,
    /// The tenant, as its column says.
    #[param(min_length = 1)]
    tenant: String,
}

/// A tenant's own terms.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TenantRequest {
    /// How long its subjects stay; `null`: as the policy says; as it is when absent.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>, example = "180d", pattern = r"^([1-9][0-9]{0,3}(h|d|mo)|[1-9][0-9]{0,2}y)$")]
    retention: Option<Option<String>>,
    /// How long before their erasure its subjects are warned and reminded, the longest first; `[]`: as the policy says; as
    /// it is when absent.
    #[schema(example = json!(["14d", "2d"]), max_items = 8)]
    warn_before: Option<Vec<WarnTerm>>,
    /// Its words in the warning, instead of the policy's; `{}`: as the policy says; as they are when absent.
    texts: Option<Words>,
    /// False: nothing of this tenant goes; as it is when absent.
    enabled: Option<bool>,
}

impl TenantRequest {
    /// Whether it speaks of nothing, so that there would be nothing to set.
    fn is_silent(&self) -> bool {
        self.retention.is_none() && self.warn_before.is_none() && self.texts.is_none() && self.enabled.is_none()
    }
}

/// What was said, be it null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// How long before.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(value_type = String, example = "14d", pattern = r"^([1-9][0-9]{0,3}(h|d|mo)|[1-9][0-9]{0,2}y)$")]
struct WarnTerm(String);

/// Words of a warning that a tenant has of its own; the policy's where absent.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Words {
    /// What the service is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"\S", max_length = 1000)]
    service: Option<String>,
    /// Where help is: an address or a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"\S", max_length = 1000)]
    support: Option<String>,
    /// The mail's subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"\S", max_length = 1000)]
    subject: Option<String>,
    /// The first line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"\S", max_length = 1000)]
    greeting: Option<String>,
    /// A paragraph before the date.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"\S", max_length = 1000)]
    intro: Option<String>,
    /// The last line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"\S", max_length = 1000)]
    closing: Option<String>,
}

impl Words {
    fn checked(&self) -> Result<BTreeMap<String, String>, Problem> {
        let given = serde_json::to_value(self).ok();
        let given = given.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
        let texts = policy::warning_texts(&given);
        texts.map_err(|errors| Problem::field("texts", ebb::Error::from(errors).to_string()))
    }
}

fn checked_terms(given: Vec<WarnTerm>) -> Result<Option<Vec<Term>>, Problem> {
    let texts: Vec<String> = given.into_iter().map(|term| term.0).collect();
    if texts.is_empty() {
        return Ok(None);
    }
    let terms = policy::warning_terms(&texts);
    terms.map(Some).map_err(|invalid| Problem::field("warn_before", invalid.message))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ChangeQuery {
    /// Change nothing; answer what would be due.
    #[serde(default)]
    dry_run: bool,
    /// Subjects may become due by the change, and the tenant may have no rows yet.
    #[serde(default)]
    confirm: bool,
}

/// What a change means.
#[derive(Debug, Serialize, ToSchema)]
struct TenantAnswer {
    /// The policy's version with it.
    version: i64,
    /// Subjects of the policy that were due before.
    due_before: u64,
    /// Subjects that are due now.
    due_after: u64,
    /// Whether nothing was changed.
    dry_run: bool,
}

/// Give a tenant terms of its own
#[utoipa::path(
    put, path = "/v1/policies/{name}/tenants/{tenant}", tag = "policies",
    params(Of, ChangeQuery),
    request_body = TenantRequest,
    responses(
        (status = 200, description = "The terms hold; with dry_run, what they would mean", body = TenantAnswer),
        (status = 404, description = "There is no such policy", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Below the floor, or subjects would be due or the tenant has no rows and nobody confirmed that", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "Somebody changed the policy meanwhile", body = Problem, content_type = "application/problem+json"),
        (status = 428, description = "No If-Match says which version of the policy the change was made on", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A term or a text cannot be, or the request speaks of none", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("admin"))),
)]
async fn put(
    by: By<Admin>,
    State(surface): State<Surface>,
    Path(of): Path<Of>,
    Query(query): Query<ChangeQuery>,
    headers: HeaderMap,
    extract::Json(request): extract::Json<TenantRequest>,
) -> Result<Json<TenantAnswer>, Problem> {
    if request.is_silent() {
        return Err(
            Problem::invalid("say what the tenant's terms are").hint("retention, warn_before, texts or enabled")
        );
    }
    let parsed = |text: String| text.parse::<Term>().map_err(|invalid| Problem::field("retention", invalid.message));
    let retention = request.retention.map(|given| given.map(parsed).transpose()).transpose()?;
    let (warn_before, texts) =
        (request.warn_before.map(checked_terms).transpose()?, request.texts.map(|words| words.checked()).transpose()?);
    if expected(&headers)?.is_none() && !query.dry_run {
        return Err(Problem::new(Sort::VersionMissing, "which version the change was made on is missing")
            .hint("send If-Match with the ETag of the policy"));
    }
    let set = move |now: TenantTerms| {
        OverrideChange::Set(TenantTerms {
            retention: retention.unwrap_or(now.retention),
            warn_before: warn_before.unwrap_or(now.warn_before),
            texts: texts.unwrap_or(now.texts),
            enabled: request.enabled.unwrap_or(now.enabled),
        })
    };
    change(&surface, &of, &query, &headers, set, by.name()).await
}

/// Give a tenant the policy's terms again
#[utoipa::path(
    delete, path = "/v1/policies/{name}/tenants/{tenant}", tag = "policies",
    params(Of, ChangeQuery),
    responses(
        (status = 200, description = "The policy's terms hold again; with dry_run, what that would mean", body = TenantAnswer),
        (status = 404, description = "There is no such policy, or the tenant has no terms of its own", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Subjects would be due and nobody confirmed that", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "Somebody changed the policy meanwhile", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("admin"))),
)]
async fn remove(
    by: By<Admin>,
    State(surface): State<Surface>,
    Path(of): Path<Of>,
    Query(query): Query<ChangeQuery>,
    headers: HeaderMap,
) -> Result<Json<TenantAnswer>, Problem> {
    change(&surface, &of, &query, &headers, |_| OverrideChange::Unset, by.name()).await
}

/// What the tenant has of its own becomes what `change` makes of it.
async fn change(
    surface: &Surface,
    of: &Of,
    query: &ChangeQuery,
    headers: &HeaderMap,
    change: impl FnOnce(TenantTerms) -> OverrideChange,
    by: &str,
) -> Result<Json<TenantAnswer>, Problem> {
    let expected = expected(headers)?;
    let confirmed = query.confirm || query.dry_run;
    let mut tx = surface.engine.database().read().await?;
    let change = change(retain::tenant_terms(&mut tx, &of.name, &of.tenant).await?);
    let changed = retain::set_override_at(&mut tx, &of.name, &of.tenant, &change, expected, confirmed, by).await;
    let (version, due_before, due_after) = changed.map_err(|error| match error.hint() {
        Some(hint) if hint.contains("yet to come") => Problem::from(error)
            .hint("look whether it is written like that; for a tenant that is yet to come send confirm=true"),
        Some(hint) if hint.contains("--yes") => Problem::from(error).hint("send confirm=true to let them go"),
        _ => error.into(),
    })?;
    match query.dry_run {
        true => tx.rollback().await?,
        false => tx.commit().await?,
    }
    Ok(Json(TenantAnswer { version, due_before, due_after, dry_run: query.dry_run }))
}
