//! How everything stands: `/v1/status`, `/v1/plan`, `/v1/runs`.

use axum::Json;
use axum::extract::State;
use ebb::audit::Moment;
use ebb::plan::PolicyPlan;
use ebb::retain::TreePlan;
use ebb::status::Status;
use ebb::view::{self, Run, RunFilter};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Surface;
use super::auth::{By, Read};
use super::extract::Query;
use super::paging::{self, Page};
use super::problem::Problem;

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new().routes(routes!(status)).routes(routes!(plan)).routes(routes!(runs))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct StatusQuery {
    /// Look at the tables themselves, which may take seconds; otherwise what nodes saw at their last look.
    #[serde(default)]
    fresh: bool,
}

/// How everything stands
#[utoipa::path(
    get, path = "/v1/status", tag = "operations", params(StatusQuery),
    responses((status = 200, description = "Policies, what is due, the last runs, nodes, the audit", body = Status)),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn status(
    _by: By<Read>,
    State(surface): State<Surface>,
    Query(query): Query<StatusQuery>,
) -> Result<Json<Status>, Problem> {
    let engine = &surface.engine;
    Ok(Json(if query.fresh { engine.status().await? } else { engine.standing().await? }))
}

/// What runs would do now.
#[derive(Debug, Serialize, ToSchema)]
struct PlanAnswer {
    /// The time that cutoffs go by.
    at: Moment,
    /// One for each policy that nodes follow and that takes rows by their time.
    policies: Vec<PolicyPlan>,
    /// What hangs on the subjects of each retain policy, and what is due of it.
    #[schema(value_type = Vec<Object>)]
    trees: Vec<TreePlan>,
}

/// What a run of each policy would do now
#[utoipa::path(
    get, path = "/v1/plan", tag = "operations",
    responses((status = 200, description = "Rows, bytes, time, the way through the table, the brake", body = PlanAnswer)),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn plan(_by: By<Read>, State(surface): State<Surface>) -> Result<Json<PlanAnswer>, Problem> {
    let plan = surface.engine.plan(&[]).await?;
    Ok(Json(PlanAnswer { at: plan.at, policies: plan.policies, trees: plan.trees }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct RunQuery {
    /// Only of this policy.
    policy: Option<String>,
    /// Only with this status.
    status: Option<String>,
}

/// A page of runs.
#[derive(Debug, Serialize, ToSchema)]
struct RunPage {
    /// Newest first.
    runs: Vec<Run>,
    /// Leads to the next page.
    next: Option<i64>,
}

/// Runs that are kept, newest first
#[utoipa::path(
    get, path = "/v1/runs", tag = "operations", params(RunQuery, Page),
    responses((status = 200, description = "A page of runs", body = RunPage)),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn runs(
    _by: By<Read>,
    State(surface): State<Surface>,
    Query(query): Query<RunQuery>,
    Query(page): Query<Page>,
) -> Result<Json<RunPage>, Problem> {
    let limit = page.limit()?;
    let filter = RunFilter { policy: query.policy, status: query.status, limit: Some(limit), after: page.after()? };
    let mut tx = surface.engine.database().read().await?;
    let runs = view::runs(&mut tx, &filter).await?;
    tx.commit().await?;
    let next = paging::next(&runs, limit, |run| run.run);
    Ok(Json(RunPage { runs, next }))
}
