//! Telling nodes what to do: `/v1/pause`, `/v1/resume`, `/v1/policies/{name}/run`. Each is in the audit with who asked.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use ebb::control::{self, ALL, Pause};
use ebb::policy::{self, Kind, Stored};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Surface;
use super::auth::{By, Operate};
use super::extract::{OptionalJson, Path, Query, whole};
use super::problem::{Problem, Sort};

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new().routes(routes!(pause)).routes(routes!(resume)).routes(routes!(run))
}

/// What to pause.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PauseRequest {
    /// A policy; everything when absent.
    #[schema(min_length = 1, max_length = 100, pattern = r"^[^\x00]+$")]
    name: Option<String>,
    /// Why, for those who wonder later.
    #[schema(max_length = 1000, pattern = r"^[^\x00]*$")]
    reason: Option<String>,
}

/// What is paused now.
#[derive(Debug, Serialize, ToSchema)]
struct PauseAnswer {
    /// The pauses that hold; `*` is everything.
    pauses: Vec<Pause>,
}

/// Stop batches of a policy, or of all
#[utoipa::path(
    post, path = "/v1/pause", tag = "operations", request_body = Option<PauseRequest>,
    responses(
        (status = 200, description = "Batches that run now end, and no new one starts", body = PauseAnswer),
        (status = 404, description = "There is no such policy", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The body is not JSON", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("operate"))),
)]
async fn pause(
    by: By<Operate>,
    State(surface): State<Surface>,
    OptionalJson(request): OptionalJson<PauseRequest>,
) -> Result<Json<PauseAnswer>, Problem> {
    let name = request.name.as_deref().unwrap_or(ALL);
    let pauses = put_pause(&surface, name, request.reason.as_deref(), by.name()).await?;
    Ok(Json(PauseAnswer { pauses }))
}

/// What to resume.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ResumeRequest {
    /// A policy; when absent, the pause of everything.
    #[schema(min_length = 1, max_length = 100, pattern = r"^[^\x00]+$")]
    name: Option<String>,
    /// Let a run that the brake stopped take up to so many rows, once.
    #[schema(minimum = 1, maximum = 9223372036854775807_i64)]
    #[serde(default, deserialize_with = "whole")]
    allow: Option<u64>,
}

/// What was resumed, and what is still paused.
#[derive(Debug, Serialize, ToSchema)]
struct ResumeAnswer {
    /// Whether there was anything to resume.
    resumed: bool,
    /// The pauses that still hold.
    pauses: Vec<Pause>,
}

/// Lift a pause, or let a run pass its brake
#[utoipa::path(
    post, path = "/v1/resume", tag = "operations", request_body = Option<ResumeRequest>,
    responses(
        (status = 200, description = "Nodes go on", body = ResumeAnswer),
        (status = 404, description = "There is no such policy", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "The body is not JSON", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("operate"))),
)]
async fn resume(
    by: By<Operate>,
    State(surface): State<Surface>,
    OptionalJson(request): OptionalJson<ResumeRequest>,
) -> Result<Json<ResumeAnswer>, Problem> {
    if request.allow.is_some_and(|rows| rows == 0 || i64::try_from(rows).is_err()) {
        return Err(Problem::field("allow", "has to be a number of rows"));
    }
    if request.allow.is_some() && request.name.is_none() {
        return Err(Problem::new(Sort::Conflict, "allow is for one policy: name it"));
    }
    let name = request.name.as_deref().unwrap_or(ALL);
    let (resumed, pauses) = lift_pause(&surface, name, request.allow, by.name()).await?;
    Ok(Json(ResumeAnswer { resumed, pauses }))
}

/// Pauses a policy, or everything; what is paused then.
pub(crate) async fn put_pause(
    surface: &Surface,
    name: &str,
    reason: Option<&str>,
    by: &str,
) -> Result<Vec<Pause>, Problem> {
    let mut tx = surface.engine.database().read().await?;
    if name != ALL {
        work(&mut tx, name).await?;
    }
    control::pause(&mut tx, name, reason, by).await?;
    let pauses = control::pauses(&mut tx).await?;
    tx.commit().await?;
    Ok(pauses)
}

/// Lifts a pause, or lets one run pass its brake; whether there was anything to lift, and what is still paused.
pub(crate) async fn lift_pause(
    surface: &Surface,
    name: &str,
    allow: Option<u64>,
    by: &str,
) -> Result<(bool, Vec<Pause>), Problem> {
    let mut tx = surface.engine.database().read().await?;
    // A policy that is gone can still be paused.
    if name != ALL && !control::pauses(&mut tx).await?.iter().any(|pause| pause.name == name) {
        work(&mut tx, name).await?;
    }
    let resumed = control::resume(&mut tx, name, allow, by).await.map_err(|error| match error.is_usage() {
        // There is no brake to pass.
        true => Problem::new(Sort::Conflict, error.to_string()).hint(error.hint().unwrap_or_default()),
        false => error.into(),
    })?;
    let pauses = control::pauses(&mut tx).await?;
    tx.commit().await?;
    Ok((resumed, pauses))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct RunQuery {
    /// Only this chore of it.
    chore: Option<String>,
}

/// What was asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunAnswer {
    /// How many units of work are due now.
    units: u64,
    /// The nodes that are alive to hear it.
    nodes: Vec<String>,
    /// Why it waits all the same.
    waits: Option<String>,
}

/// Run a policy now
#[utoipa::path(
    post, path = "/v1/policies/{name}/run", tag = "policies",
    params(("name" = String, Path, description = "The policy", min_length = 1, max_length = 100), RunQuery),
    responses(
        (status = 202, description = "Nodes hear it within a second", body = RunAnswer),
        (status = 404, description = "There is no such policy", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is stopped or disabled, or no node has taken it up", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("operate"))),
)]
async fn run(
    by: By<Operate>,
    State(surface): State<Surface>,
    Path(name): Path<String>,
    Query(query): Query<RunQuery>,
) -> Result<(StatusCode, Json<RunAnswer>), Problem> {
    Ok((StatusCode::ACCEPTED, Json(trigger(&surface, &name, query.chore.as_deref(), by.name()).await?)))
}

/// Has a policy run now.
pub(crate) async fn trigger(
    surface: &Surface,
    name: &str,
    chore: Option<&str>,
    by: &str,
) -> Result<RunAnswer, Problem> {
    let mut tx = surface.engine.database().read().await?;
    if let Some(stored) = work(&mut tx, name).await? {
        active(&stored)?;
    }
    let units = control::trigger(&mut tx, name, chore, by).await?;
    if units == 0 {
        let detail = match chore {
            Some(chore) => format!("{name} has no chore {chore} that a node has taken up"),
            None => format!("no node has taken up {name} yet"),
        };
        return Err(Problem::new(Sort::Conflict, detail).hint("start a node: ebb run"));
    }
    let nodes = control::nodes(&mut tx).await?.into_iter().map(|node| node.name).collect();
    let pauses = control::pauses(&mut tx).await?;
    tx.commit().await?;
    let waits = pauses.iter().find(|pause| pause.name == ALL || pause.name == name);
    let waits = waits.map(|pause| format!("paused by {}", pause.paused_by));
    Ok(RunAnswer { units, nodes, waits })
}

/// Makes sure that a name has work to do. Ebb's own work has no policy.
pub(crate) async fn work(tx: &mut PgConnection, name: &str) -> Result<Option<Stored>, Problem> {
    if matches!(name, "keep" | "audit" | "events") {
        return Ok(None);
    }
    let stored = find(tx, name).await?;
    match stored.kind {
        Kind::Once | Kind::Settings | Kind::Sink => {
            Err(Problem::new(Sort::Conflict, format!("{name} is a setting: there is no work to it")))
        }
        _ => Ok(Some(stored)),
    }
}

/// The policy of a name.
pub(crate) async fn find(tx: &mut PgConnection, name: &str) -> Result<Stored, Problem> {
    Ok(policy::store::find(tx, name).await?)
}

/// Nodes do not follow what is stopped or disabled.
fn active(stored: &Stored) -> Result<(), Problem> {
    let name = &stored.name;
    if let Some(reason) = &stored.stopped {
        return Err(
            Problem::new(Sort::Conflict, format!("{name} was stopped: {reason}")).hint("mend it and run `ebb apply`")
        );
    }
    if !stored.enabled {
        return Err(
            Problem::new(Sort::Conflict, format!("{name} is disabled")).hint("put `enabled: true` into its spec")
        );
    }
    Ok(())
}
