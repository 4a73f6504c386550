//! `/v1/policies/{name}/tenants`: tenants' own terms. Invariants: what makes subjects due takes effect only for
//! whoever says that they know; what a request does not speak of stays as it is.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use ebb::audit::Moment;
use ebb::policy::{self, Term};
use ebb::retain::{self, Override, OverrideChange, TenantTerms, TermsChanged, TreeChange};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Surface;
use super::auth::{Admin, By, Read};
use super::control::find;
use super::extract::{self, Path, Query};
use super::paging;
use super::policies::{ListQuery, expected, unconfirmed};
use super::problem::{Problem, Sort};

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show, put, remove))
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

/// What a tenant has of its own.
#[derive(Debug, Serialize, ToSchema)]
struct Tenant {
    /// Whose terms they are.
    tenant: String,
    /// How long its subjects stay; none: as the policy says.
    retention: Option<String>,
    /// How long before their erasure its subjects are warned and reminded; none: as the policy says.
    warn_before: Option<Vec<String>>,
    /// Its words in the warning, instead of the policy's.
    texts: BTreeMap<String, String>,
    /// False: nothing of this tenant goes.
    enabled: bool,
    changed_at: Moment,
    changed_by: String,
}

impl Tenant {
    fn of(own: Override) -> Result<Self, Problem> {
        let TenantTerms { retention, warn_before, texts, enabled } = own.terms()?;
        let written = |terms: Vec<Term>| terms.iter().map(Term::to_string).collect();
        Ok(Self {
            retention: retention.map(|term| term.to_string()),
            warn_before: warn_before.map(written),
            texts,
            enabled,
            tenant: own.tenant,
            changed_at: own.changed_at,
            changed_by: own.changed_by,
        })
    }
}

/// A page of the tenants that have terms of their own.
#[derive(Debug, Serialize, ToSchema)]
struct Tenants {
    tenants: Vec<Tenant>,
    /// Leads to the next page.
    next: Option<String>,
}

/// The tenants that have terms of their own
#[utoipa::path(
    get, path = "/v1/policies/{name}/tenants", tag = "policies",
    params(("name" = String, Path, description = "The retain policy", min_length = 1, max_length = 100), ListQuery),
    responses(
        (status = 200, description = "Their terms; the ETag is the policy's", body = Tenants, headers(("etag" = String, description = "The policy's version, in quotes"))),
        (status = 404, description = "There is no such policy", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn list(
    _by: By<Read>,
    State(surface): State<Surface>,
    Path(name): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Response, Problem> {
    let limit = paging::limit(query.limit)?;
    let (version, mut own) = own_terms(&surface, &name).await?;
    own.retain(|own| query.after.as_ref().is_none_or(|after| own.tenant > *after));
    own.sort_unstable_by(|one, other| one.tenant.cmp(&other.tenant));
    let more = own.len() > limit as usize;
    own.truncate(limit as usize);
    let next = own.last().filter(|_| more).map(|last| last.tenant.clone());
    let tenants = own.into_iter().map(Tenant::of).collect::<Result<_, _>>()?;
    Ok(versioned(version, Tenants { tenants, next }))
}

/// A tenant's own terms
#[utoipa::path(
    get, path = "/v1/policies/{name}/tenants/{tenant}", tag = "policies",
    params(Of),
    responses(
        (status = 200, description = "Its terms; the ETag is the policy's", body = Tenant, headers(("etag" = String, description = "The policy's version, in quotes"))),
        (status = 404, description = "There is no such policy, or the tenant has no terms of its own", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn show(_by: By<Read>, State(surface): State<Surface>, Path(of): Path<Of>) -> Result<Response, Problem> {
    let (version, own) = own_terms(&surface, &of.name).await?;
    let Some(own) = own.into_iter().find(|own| own.tenant == of.tenant) else {
        let detail = format!("tenant {} has no terms of its own by policy {}", of.tenant, of.name);
        return Err(Problem::not_found(detail).hint("the policy's hold"));
    };
    Ok(versioned(version, Tenant::of(own)?))
}

/// The policy's version, and whoever has terms of their own by it.
async fn own_terms(surface: &Surface, policy: &str) -> Result<(i64, Vec<Override>), Problem> {
    let mut tx = surface.engine.database().read().await?;
    let version = find(&mut tx, policy).await?.version;
    let own = retain::list_overrides(&mut tx, policy).await?;
    tx.commit().await?;
    Ok((version, own))
}

/// An answer whose ETag is the version of the policy.
fn versioned(version: i64, answer: impl Serialize) -> Response {
    ([(header::ETAG, format!("\"{version}\""))], Json(answer)).into_response()
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
    /// What it makes of what goes with the subjects of other policies.
    trees: Vec<TreeChange>,
    /// Whether nothing was changed.
    dry_run: bool,
}

/// Give a tenant terms of its own
#[utoipa::path(
    put, path = "/v1/policies/{name}/tenants/{tenant}", tag = "policies",
    params(Of, ChangeQuery),
    request_body = TenantRequest,
    responses(
        (status = 200, description = "The terms hold; with dry_run, what they would mean", body = TenantAnswer, headers(("etag" = String, description = "The policy's version with it, in quotes; none with dry_run"))),
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
) -> Result<Response, Problem> {
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
        (status = 200, description = "The policy's terms hold again; with dry_run, what that would mean", body = TenantAnswer, headers(("etag" = String, description = "The policy's version with it, in quotes; none with dry_run"))),
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
) -> Result<Response, Problem> {
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
) -> Result<Response, Problem> {
    let expected = expected(headers)?;
    let confirmed = query.confirm || query.dry_run;
    let mut tx = surface.engine.database().read().await?;
    let change = change(retain::tenant_terms(&mut tx, &of.name, &of.tenant).await?);
    let changed = retain::set_override_at(&mut tx, &of.name, &of.tenant, &change, expected, confirmed, by).await;
    let TermsChanged { version, before, after, trees } = changed.map_err(|error| match error.key() {
        // Its terms are well formed, and a rule stands in their way.
        Some("retention") => {
            Problem::new(Sort::Conflict, error.to_string()).hint(error.hint().unwrap_or_default().to_owned())
        }
        _ => unconfirmed(error),
    })?;
    match query.dry_run {
        true => tx.rollback().await?,
        false => tx.commit().await?,
    }
    let answer = TenantAnswer { version, due_before: before, due_after: after, trees, dry_run: query.dry_run };
    Ok(match query.dry_run {
        true => Json(answer).into_response(),
        false => versioned(version, answer),
    })
}
