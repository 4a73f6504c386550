//! What a change of one policy at runtime makes of the trees of others: rows that a policy keeps stay when their subject goes, so its
//! term has a say there. Invariants: nobody else's tree changes unseen; what is approved with the change is that rows stay or go which a
//! policy kept or keeps, never an edge, a table or a trigger.

use serde::Serialize;
use sqlx::PgConnection;

use super::compile;
use super::store::{self, rows};
use super::tree::Shape;
use crate::policy::{self, Kind, Policy, Retain};
use crate::{Error, Result};

/// Another policy's tree that differs with a change from the one that was approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TreeChange {
    /// The policy over subjects.
    pub policy: String,
    /// What differs, in words.
    pub differences: Vec<String>,
    /// Whether the change approves it; otherwise that policy is stopped until it is applied again.
    pub approved: bool,
}

impl std::fmt::Display for TreeChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "what goes with the subjects of policy {} changes: {}", self.policy, self.differences.join("; "))
    }
}

/// The trees of other policies that are as they were approved, before a change.
#[derive(Debug, Default)]
pub(crate) struct Trees(Vec<(Retain, Shape)>);

impl Trees {
    /// Reads those of all policies that are followed, but one.
    pub(crate) async fn read(connection: &mut PgConnection, but: &str) -> Result<Self> {
        let mut trees = Vec::new();
        for stored in policy::store::all(connection).await? {
            if stored.kind != Kind::Retain || stored.name == but || !stored.is_active() {
                continue;
            }
            let Ok(Policy::Retain(retain)) = stored.policy() else { continue };
            let Some(approved) = store::approved(connection, &stored.name).await? else { continue };
            // What differs before is not the change's doing, and told by whoever runs it.
            let now = shape(connection, &retain).await?;
            if now.is_some_and(|now| approved.differences(&now).is_empty()) {
                trees.push((retain, approved));
            }
        }
        Ok(Self(trees))
    }

    /// What became of them with the change that this transaction made. Refuses what nobody agreed to; what was agreed to is
    /// approved where it is only about rows that a policy keeps.
    pub(crate) async fn changed(
        self,
        connection: &mut PgConnection,
        confirmed: bool,
        by: &str,
    ) -> Result<Vec<TreeChange>> {
        let mut changes = Vec::new();
        for (retain, before) in self.0 {
            let Some(now) = shape(connection, &retain).await? else { continue };
            let differences = before.differences(&now);
            if differences.is_empty() {
                continue;
            }
            let approved = before.differs_in_keepers(&now);
            if approved {
                store::approve_tree(connection, retain.name.as_str(), &now, by).await?;
            }
            changes.push(TreeChange { policy: retain.name.to_string(), differences, approved });
        }
        match changes.iter().find(|_| !confirmed) {
            None => Ok(changes),
            Some(change) if change.approved => {
                Err(Error::refused(change.to_string()).with_hint("say --yes to approve that"))
            }
            Some(change) => Err(Error::refused(change.to_string()).with_hint(format!(
                "say --yes to go on; {} is stopped then until `ebb apply` approves it",
                change.policy
            ))),
        }
    }
}

/// The tree of a policy as it is now; none where it has none, or it cannot be read, which whoever runs it will say.
async fn shape(connection: &mut PgConnection, policy: &Retain) -> Result<Option<Shape>> {
    let Some(subjects) = policy.subjects() else { return Ok(None) };
    rows::savepoint(connection).await?;
    let tree = compile::tree(connection, policy, subjects).await;
    rows::end_savepoint(connection, tree.is_ok()).await?;
    match tree {
        Ok((_, tree)) => Ok(Some(tree.shape())),
        Err(error) if error.is_unavailable() => Err(error),
        Err(_) => Ok(None),
    }
}
