//! What `ebb apply` would refuse of a file besides what stands in the way of rows: a table to be partitioned that is not there, a
//! store that does not answer, a sink that nobody has. Invariant: it asks what applying asks, with the same functions.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::policy::{self, Change, Kind, Policy, Wanted};
use crate::retain::{self, TreePlan};
use crate::{Engine, Error, Result};

/// Why a policy of the file would be refused.
#[derive(Debug, Clone, Serialize)]
pub struct Refusal {
    /// What sort of policy it is.
    pub kind: Kind,
    /// Which.
    pub policy: String,
    /// In words.
    pub message: String,
    /// What helps.
    pub fix: Option<String>,
}

impl Refusal {
    fn of(kind: Kind, policy: &str, error: &Error) -> Self {
        Self { kind, policy: policy.to_owned(), message: error.to_string(), fix: error.hint().map(str::to_owned) }
    }
}

impl Engine {
    pub(super) async fn refusals(
        &self,
        wanted: &[Wanted],
        changes: &[Change],
        trees: &[TreePlan],
        installed: bool,
    ) -> Result<Vec<Refusal>> {
        let mut refused = Vec::new();
        for want in wanted {
            let mut tx = self.database().read().await?;
            match self.check_besides(&mut tx, &want.policy, Some(wanted), installed).await {
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => refused.push(Refusal::of(want.kind, &want.name, &error)),
                Ok(()) => {}
            }
        }
        for change in changes {
            if let Err(error) = policy::overwrites_nothing(std::slice::from_ref(change)) {
                refused.push(Refusal::of(change.kind, &change.name, &error));
            }
        }
        let mut tables: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for tree in trees {
            let enabled = |want: &&Wanted| matches!(&want.policy, Policy::Retain(retain) if retain.enabled);
            if wanted.iter().filter(enabled).any(|want| want.name == tree.policy) {
                tables.entry(&tree.table).or_default().push(&tree.policy);
            }
        }
        for (table, policies) in tables.into_iter().filter(|(_, policies)| policies.len() > 1) {
            refused.push(Refusal::of(Kind::Retain, policies[1], &retain::two_policies(table, &policies)));
        }
        Ok(refused)
    }
}
