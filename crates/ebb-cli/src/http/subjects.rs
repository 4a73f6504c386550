//! `/v1/subjects`: one subject of a retain policy, asked about and for. What destroys can be rehearsed: `dry_run`.

use axum::extract::State;
use axum::http::StatusCode;
use ebb::audit::Moment;
use ebb::retain::{self, Shown};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Surface;
use super::auth::{App, By, Operate, Read};
use super::events::time;
use super::extract::{Json, Path, Query};
use super::problem::{Problem, Sort};

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new()
        .routes(routes!(show))
        .routes(routes!(delete))
        .routes(routes!(erase))
        .routes(routes!(restore))
        .routes(routes!(hold))
        .routes(routes!(release))
        .routes(routes!(retry))
}

/// Which subject: its policy, and its primary key as text; of several columns a JSON array of texts.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct Of {
    /// The retain policy.
    #[param(min_length = 1)]
    policy: String,
    /// The primary key as text; of several columns a JSON array of texts.
    #[param(min_length = 1)]
    id: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DryRun {
    /// Change nothing; answer what would happen.
    #[serde(default)]
    dry_run: bool,
}

/// When a subject goes.
#[derive(Debug, Serialize, ToSchema)]
struct Due {
    /// When it will be erased; `infinity` while a hold has no end.
    due_at: Moment,
    /// What keeps it back although its time may have come: a hold, a policy that is disabled, stopped or paused, `unless`, or
    /// what the last run met.
    waits_for: Option<String>,
    /// Whether the policy only observes: nothing is erased until it enforces.
    observes: bool,
    /// Whether nothing was changed.
    dry_run: bool,
}

/// How a subject stands, and what would be erased with it
#[utoipa::path(
    get, path = "/v1/subjects/{policy}/{id}", tag = "subjects", params(Of),
    responses(
        (status = 200, description = "Its deletion, and rows by table", body = Shown),
        (status = 404, description = "There is no such policy or subject", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn show(_by: By<Read>, State(surface): State<Surface>, Path(of): Path<Of>) -> Result<axum::Json<Shown>, Problem> {
    let mut tx = surface.engine.database().read().await?;
    let shown = retain::show(&mut tx, &of.policy, &of.id).await?;
    tx.rollback().await?;
    Ok(axum::Json(shown))
}

/// Soft-delete a subject
#[utoipa::path(
    post, path = "/v1/subjects/{policy}/{id}/delete", tag = "subjects", params(Of, DryRun),
    responses(
        (status = 200, description = "When it will be erased", body = Due),
        (status = 404, description = "There is no such policy or subject", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Its table refuses it, or the policy is disabled", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn delete(
    by: By<App>,
    State(surface): State<Surface>,
    Path(of): Path<Of>,
    Query(DryRun { dry_run }): Query<DryRun>,
) -> Result<axum::Json<Due>, Problem> {
    goes(&surface, &of, Wish::AfterGrace, by.name(), dry_run).await
}

/// Erase a subject as soon as floor and holds allow
#[utoipa::path(
    post, path = "/v1/subjects/{policy}/{id}/erase", tag = "subjects", params(Of, DryRun),
    responses(
        (status = 200, description = "When it will be erased", body = Due),
        (status = 404, description = "There is no such policy or subject", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Its table refuses it, or the policy is disabled", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn erase(
    by: By<App>,
    State(surface): State<Surface>,
    Path(of): Path<Of>,
    Query(DryRun { dry_run }): Query<DryRun>,
) -> Result<axum::Json<Due>, Problem> {
    goes(&surface, &of, Wish::AtOnce, by.name(), dry_run).await
}

/// When somebody wants a subject gone.
enum Wish {
    AfterGrace,
    AtOnce,
}

/// Opens its deletion, or only says when it would go.
async fn goes(surface: &Surface, of: &Of, wish: Wish, by: &str, dry_run: bool) -> Result<axum::Json<Due>, Problem> {
    let mut tx = surface.engine.database().read().await?;
    let due_at = match wish {
        Wish::AfterGrace => retain::delete(&mut tx, &of.policy, &of.id, by).await?,
        Wish::AtOnce => retain::request_erasure(&mut tx, &of.policy, &of.id, by).await?,
    };
    let observes = retain::observes(&mut tx, &of.policy).await?;
    let waits_for = retain::waits_for(&mut tx, &of.policy, &of.id).await?;
    match dry_run {
        true => tx.rollback().await?,
        false => retain::commit(tx).await?,
    }
    Ok(axum::Json(Due { due_at, waits_for, observes, dry_run }))
}

/// Take a soft delete back
#[utoipa::path(
    post, path = "/v1/subjects/{policy}/{id}/restore", tag = "subjects", params(Of),
    responses(
        (status = 204, description = "It is as if it had not been deleted"),
        (status = 404, description = "There is no such policy or subject", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not deleted, being erased, or its table refuses it", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("app"))),
)]
async fn restore(by: By<App>, State(surface): State<Surface>, Path(of): Path<Of>) -> Result<StatusCode, Problem> {
    restore_subject(&surface, &of.policy, &of.id, by.name()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Restores a subject, or says why not.
pub(crate) async fn restore_subject(surface: &Surface, policy: &str, id: &str, by: &str) -> Result<(), Problem> {
    let mut tx = surface.engine.database().read().await?;
    if !retain::restore(&mut tx, policy, id, by).await? {
        // One that nobody knows is told apart from one that is fine.
        retain::show(&mut tx, policy, id).await?;
        return Err(Problem::new(
            Sort::Conflict,
            "there is nothing to restore: it is not deleted, being erased, or gone",
        ));
    }
    Ok(retain::commit(tx).await?)
}

/// Why a subject stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct HoldRequest {
    /// Why; it is kept with the hold until the subject is erased.
    #[schema(min_length = 1)]
    reason: String,
    /// When it ends by itself.
    #[schema(format = DateTime, example = "2030-01-01T00:00:00Z")]
    until: Option<String>,
}

/// Stop everything about a subject until it is released
#[utoipa::path(
    post, path = "/v1/subjects/{policy}/{id}/hold", tag = "subjects", params(Of), request_body = HoldRequest,
    responses(
        (status = 204, description = "Nothing of it is marked, warned about or erased"),
        (status = 404, description = "There is no such policy or subject", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("operate"))),
)]
async fn hold(
    by: By<Operate>,
    State(surface): State<Surface>,
    Path(of): Path<Of>,
    Json(request): Json<HoldRequest>,
) -> Result<StatusCode, Problem> {
    let until = request.until.map(|until| time("until", &until)).transpose()?.map(|until| until.to_string());
    let mut tx = surface.engine.database().read().await?;
    retain::hold(&mut tx, &of.policy, &of.id, &request.reason, until.as_deref(), by.name()).await?;
    retain::commit(tx).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lift a hold
#[utoipa::path(
    post, path = "/v1/subjects/{policy}/{id}/release", tag = "subjects", params(Of),
    responses(
        (status = 204, description = "Its deletion goes on"),
        (status = 404, description = "There is no such policy, or the subject is not on hold", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "Its table refuses the due time that it would have", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("operate"))),
)]
async fn release(by: By<Operate>, State(surface): State<Surface>, Path(of): Path<Of>) -> Result<StatusCode, Problem> {
    let mut tx = surface.engine.database().read().await?;
    retain::release(&mut tx, &of.policy, &of.id, by.name()).await?;
    retain::commit(tx).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Try a subject again that could not be erased
#[utoipa::path(
    post, path = "/v1/subjects/{policy}/{id}/retry", tag = "subjects", params(Of),
    responses(
        (status = 204, description = "The next run tries it"),
        (status = 404, description = "There is no such policy or subject", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It has not failed", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("operate"))),
)]
async fn retry(by: By<Operate>, State(surface): State<Surface>, Path(of): Path<Of>) -> Result<StatusCode, Problem> {
    retry_subject(&surface, &of.policy, &of.id, by.name()).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Has a subject tried again, or says why not.
pub(crate) async fn retry_subject(surface: &Surface, policy: &str, id: &str, by: &str) -> Result<(), Problem> {
    let mut tx = surface.engine.database().read().await?;
    if !retain::retry(&mut tx, policy, id, by).await? {
        retain::show(&mut tx, policy, id).await?;
        return Err(Problem::new(Sort::Conflict, "it has not failed"));
    }
    Ok(tx.commit().await?)
}
