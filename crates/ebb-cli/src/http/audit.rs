//! What was done, and whether the record of it is what it was: `/v1/audit`.

use axum::Json;
use axum::extract::State;
use ebb::audit::{self, Filter, Moment, Receipt, Record};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Surface;
use super::auth::{By, Read};
use super::events::time;
use super::extract::{Path, Query};
use super::paging::{self, Page};
use super::problem::{Problem, Sort};

pub(super) fn router() -> OpenApiRouter<Surface> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(verify)).routes(routes!(receipt))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// Only of this policy.
    policy: Option<String>,
    /// Only with this action, such as expire, erase, policy, hold or token; or with one of several, separated by commas.
    action: Option<String>,
    /// Only from this time on (RFC 3339).
    #[param(format = DateTime)]
    since: Option<String>,
}

/// A page of records.
#[derive(Debug, Serialize, ToSchema)]
struct AuditPage {
    /// Newest first.
    records: Vec<AuditRecord>,
    /// Leads to the next page.
    next: Option<i64>,
}

/// One record.
#[derive(Debug, Serialize, ToSchema)]
struct AuditRecord {
    id: i64,
    at: Moment,
    /// What was done.
    action: String,
    policy: Option<String>,
    policy_version: Option<i64>,
    /// To which table.
    relation: Option<String>,
    /// To how many rows.
    rows: i64,
    /// What was due before it.
    cutoff: Option<Moment>,
    /// The oldest due time among the rows.
    due_from: Option<Moment>,
    /// The newest due time among the rows.
    due_to: Option<Moment>,
    run: Option<i64>,
    node: Option<String>,
    /// Who, as they said.
    by: String,
    /// Who, as the server knows.
    session_role: String,
    /// Whose data it was, as a pseudonym.
    subject: Option<String>,
    /// Anything else.
    details: Value,
}

impl From<Record> for AuditRecord {
    fn from(record: Record) -> Self {
        Self {
            id: record.id,
            at: record.at,
            action: record.action,
            policy: record.policy,
            policy_version: record.policy_version,
            relation: record.relation,
            rows: record.rows,
            cutoff: record.cutoff,
            due_from: record.due_from,
            due_to: record.due_to,
            run: record.run,
            node: record.node,
            by: record.by,
            session_role: record.session_role,
            subject: record.subject.map(hex::encode),
            details: serde_json::from_str(&record.details).unwrap_or_default(),
        }
    }
}

/// What was done, newest first
#[utoipa::path(
    get, path = "/v1/audit", tag = "audit", params(AuditQuery, Page),
    responses((status = 200, description = "A page of records", body = AuditPage)),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn list(
    _by: By<Read>,
    State(surface): State<Surface>,
    Query(query): Query<AuditQuery>,
    Query(page): Query<Page>,
) -> Result<Json<AuditPage>, Problem> {
    let limit = page.limit()?;
    let since = query.since.map(|text| time("since", &text));
    let filter = Filter {
        policy: query.policy,
        action: query.action,
        since: since.transpose()?.map(Moment::from),
        limit: Some(limit),
        after: page.after()?,
    };
    let mut tx = surface.engine.database().read().await?;
    let records = audit::list(&mut tx, &filter).await?;
    tx.commit().await?;
    let next = paging::next(&records, limit, |record| record.id);
    Ok(Json(AuditPage { records: records.into_iter().map(AuditRecord::from).collect(), next }))
}

/// The receipt of a record
///
/// What was done, with its proof: `ebb audit verify-receipt` checks it with the public key alone.
#[utoipa::path(
    get, path = "/v1/audit/receipts/{id}", tag = "audit",
    params(("id" = i64, Path, description = "The record", minimum = 1)),
    responses(
        (status = 200, description = "The record, its block, and the way from one to the other", body = Receipt),
        (status = 404, description = "There is no such record", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is not sealed yet", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn receipt(_by: By<Read>, State(surface): State<Surface>, Path(id): Path<i64>) -> Result<Json<Receipt>, Problem> {
    let mut tx = surface.engine.database().read().await?;
    let receipt = audit::receipt(&mut tx, id).await?;
    tx.commit().await?;
    Ok(Json(receipt))
}

/// What a verification found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Verified {
    /// Whether everything is as it was sealed.
    pub(crate) ok: bool,
    /// Blocks that were looked at.
    pub(crate) blocks: u64,
    /// Records in them.
    pub(crate) records: u64,
    /// Records that wait for a seal; nothing proves those yet.
    pub(crate) unsealed: u64,
    /// The block that was published outside the database, when there is one.
    pub(crate) published: Option<i64>,
    /// What is not as it was sealed.
    pub(crate) problems: Vec<String>,
}

/// Recompute every hash, link and signature
#[utoipa::path(
    get, path = "/v1/audit/verify", tag = "audit",
    responses(
        (status = 200, description = "What the verification found", body = Verified),
        (status = 409, description = "This node has no public key to verify with", body = Problem, content_type = "application/problem+json"),
    ),
    extensions(("x-ebb-role" = json!("read"))),
)]
async fn verify(_by: By<Read>, State(surface): State<Surface>) -> Result<Json<Verified>, Problem> {
    verified(&surface).await.map(Json)
}

/// Recomputes everything.
pub(crate) async fn verified(surface: &Surface) -> Result<Verified, Problem> {
    let Some(trust) = surface.trust.as_ref() else {
        return Err(Problem::new(Sort::Conflict, "this node has no key to verify the audit with")
            .hint("set [audit] signing_key and run `ebb apply`"));
    };
    let (keys, published) = trust.read()?;
    let report = audit::verify(surface.engine.database(), &keys, published.as_ref()).await?;
    Ok(Verified {
        ok: report.is_ok(),
        blocks: report.blocks,
        records: report.records,
        unsealed: report.unsealed,
        published: published.map(|published| published.number),
        problems: report.problems.iter().map(ToString::to_string).collect(),
    })
}
