//! How an adoption or a split stands, for people: its state, and what is still to be done.

use crate::partition::adopt::{Step, store};
use crate::partition::split;
use crate::pg::{Database, catalog};
use crate::policy;
use crate::{Error, Result};

/// How an adoption stands.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The table.
    pub table: String,
    /// adopting, adopted, splitting, split, rolling back, rolled back.
    pub state: String,
    /// Its policy.
    pub policy: String,
    /// The policy's keys.
    pub spec: policy::Spec,
    /// The steps that are still to be done, of one that was begun.
    pub steps: Vec<Step>,
}

/// How the adoption of a table stands; none when there is none.
pub async fn standing(database: &Database, typed: &str) -> Result<Option<Standing>> {
    let mut tx = database.read().await?;
    let table = catalog::table(&mut tx, typed).await?;
    let label = table.relation.label();
    let adoption = store::find(&mut tx, &label).await?;
    let row = split::store::find(&mut tx, &label).await?;
    if let Some(row) = row.filter(|row| row.state != "undone") {
        let spec = match &adoption {
            Some(adoption) => adoption.plan()?.spec.as_object().cloned().unwrap_or_default(),
            None => policy::Spec::new(),
        };
        let policy = adoption.map(|adoption| adoption.policy).unwrap_or_default();
        return Ok(Some(Standing { table: label, state: row.state, policy, spec, steps: Vec::new() }));
    }
    let Some(adoption) = adoption else { return Ok(None) };
    let plan = adoption.plan()?;
    let done = if adoption.state == "adopting" { adoption.step.max(0) as usize } else { plan.steps.len() };
    let steps = plan.steps.iter().skip(done).cloned().collect();
    tx.commit().await?;
    Ok(Some(Standing {
        table: adoption.relation,
        state: adoption.state,
        policy: adoption.policy,
        spec: plan.spec.as_object().cloned().unwrap_or_default(),
        steps,
    }))
}

/// The same, where there must be one.
pub async fn require_standing(database: &Database, typed: &str) -> Result<Standing> {
    standing(database, typed).await?.ok_or_else(|| {
        Error::usage(format!("{typed} was not adopted, or its adoption is finished"))
            .with_hint("what was never adopted, or was finished, cannot be taken back")
    })
}
