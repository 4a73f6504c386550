//! Holders and references for those who keep them without a handler: over HTTP, or from another language through it. The
//! functions of the schema decide, so that it makes no difference who asked.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::store;
use crate::{Error, Result};

/// Opens a holder that counts as alive for a term after each beat.
pub async fn open_holder(connection: &mut PgConnection, name: &str, term: Duration, labels: &Value) -> Result<Uuid> {
    store::open_holder(connection, name, term, labels).await
}

/// Prolongs a holder. False: it is dead, and what it referred to may go at any moment.
pub async fn beat_holder(connection: &mut PgConnection, holder: Uuid) -> Result<bool> {
    store::beat_holder(connection, holder).await
}

/// Ends a holder and everything it refers to; one that is unknown has ended.
pub async fn close_holder(connection: &mut PgConnection, holder: Uuid) -> Result<()> {
    store::close_holder(connection, holder).await
}

/// Announces a resource that is about to be made, with a reference of its holder's.
pub async fn announce(
    connection: &mut PgConnection,
    policy: &str,
    name: &str,
    holder: Uuid,
    labels: &Value,
) -> Result<()> {
    store::announce(connection, policy, name, holder, labels).await
}

/// The announced resource exists now. False: it was given up meanwhile, and whoever made it drops it.
pub async fn created(connection: &mut PgConnection, policy: &str, name: &str, store_id: Option<&str>) -> Result<bool> {
    store::created(connection, policy, name, store_id).await
}

/// A reference that begins or ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = RefChange))]
pub struct Change {
    /// `incref` or `decref`.
    #[cfg_attr(feature = "openapi", schema(pattern = "^(incref|decref)$"))]
    pub op: String,
    /// The policy.
    pub resources: String,
    /// The resource's name.
    pub name: String,
    /// Who refers.
    pub holder: Uuid,
}

/// Makes many changes as if one after the other. Returns the increfs that came too late, each with its reason.
pub async fn apply_refs(connection: &mut PgConnection, changes: &[Change]) -> Result<Value> {
    let changes = serde_json::to_value(changes).map_err(|error| Error::failed(error.to_string()))?;
    store::apply_refs(connection, &changes).await
}
