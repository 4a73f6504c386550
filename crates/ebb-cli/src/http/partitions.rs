//! `/v1/partitions`: the partitions of every policy's table. A table that cannot be looked at is listed with the reason.

use axum::Json;
use axum::extract::State;
use ebb::partition::{self, Listing};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::{By, Read};
use super::extract::Query;
use super::problem::Problem;
use super::{Surface, paging};

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new().routes(routes!(list))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only of this policy.
    policy: Option<String>,
    /// At most so many tables; 100 when absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// `next` of the page before.
    after: Option<String>,
}

/// A page of partitioned tables.
#[derive(Debug, Serialize, ToSchema)]
struct PartitionPage {
    /// By policy.
    tables: Vec<Looked>,
    /// Leads to the next page.
    next: Option<String>,
}

/// One policy's table, or why it cannot be looked at.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Looked {
    pub(crate) policy: String,
    pub(crate) table: Option<Listing>,
    pub(crate) problem: Option<String>,
}

/// Partitioned tables: past, current and future partitions, and how far they reach
#[utoipa::path(
    get, path = "/v1/partitions", tag = "partitions", params(ListQuery),
    responses((status = 200, description = "A page of tables with their partitions", body = PartitionPage)),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn list(
    _by: By<Read>,
    State(surface): State<Surface>,
    Query(query): Query<ListQuery>,
) -> Result<Json<PartitionPage>, Problem> {
    let limit = paging::limit(query.limit)? as usize;
    let fits = |name: &String| {
        query.policy.as_ref().is_none_or(|policy| policy == name)
            && query.after.as_ref().is_none_or(|after| name > after)
    };
    let mut names: Vec<String> = names(&surface).await?.into_iter().filter(fits).collect();
    let more = names.len() > limit;
    names.truncate(limit);
    let next = names.last().filter(|_| more).cloned();
    Ok(Json(PartitionPage { tables: look(&surface, names).await?, next }))
}

/// The policies that look after partitions.
pub(crate) async fn names(surface: &Surface) -> Result<Vec<String>, Problem> {
    let mut tx = surface.engine.database().read().await?;
    let names = partition::names(&mut tx).await?;
    tx.commit().await?;
    Ok(names)
}

/// Looks at each by itself, so that one that is broken hides no other.
pub(crate) async fn look(surface: &Surface, names: Vec<String>) -> Result<Vec<Looked>, Problem> {
    let mut tables = Vec::new();
    for policy in names {
        let mut tx = surface.engine.database().read().await?;
        let looked = partition::list(&mut tx, Some(&policy)).await;
        tables.push(match looked {
            Err(error) if error.is_unavailable() => return Err(error.into()),
            Err(error) => Looked { policy, table: None, problem: Some(error.to_string()) },
            Ok(found) => Looked { policy, table: found.into_iter().next(), problem: None },
        });
    }
    Ok(tables)
}
