//! What stands between policies, or between one and its table, and shows only when all of them are looked at. Each trouble is told at
//! the policy that it is about or, where that has no plan of its own, at the one whose rows it is about.

use sqlx::PgConnection;

use super::{PolicyPlan, Problem};
use crate::policy::{Policy, anchor};
use crate::retain::{Finding, TreePlan};
use crate::{Result, gate, retain};

/// What is wrong, and whom it concerns, first of all the policy that does it.
pub(super) struct Trouble {
    about: Vec<String>,
    problem: Problem,
}

/// Looks at all policies as they are to be.
pub(super) async fn troubles(
    connection: &mut PgConnection,
    followed: &[Policy],
    installed: bool,
) -> Result<Vec<Trouble>> {
    let mut found = Vec::new();
    for conflict in gate::conflicts(connection, followed, followed, installed).await? {
        let problem = Problem { message: conflict.to_string(), fix: Some(conflict.fix()), refused: true };
        let (policy, keeper) = conflict.between();
        found.push(Trouble { about: vec![policy.to_owned(), keeper.to_owned()], problem });
    }
    for policy in followed.iter().filter(|policy| installed && policy.enabled()) {
        if let Some(moved) = anchor::moved(connection, policy).await? {
            let problem = Problem { message: moved.to_string(), fix: Some(anchor::Moved::FIX.into()), refused: true };
            found.push(Trouble { about: vec![policy.name().to_owned()], problem });
        }
        if let Some(left) = anchor::left_behind(connection, policy).await? {
            let problem = Problem { message: left.to_string(), fix: Some(left.fix()), refused: true };
            found.push(Trouble { about: vec![policy.name().to_owned()], problem });
        }
    }
    for below in retain::below_floors(connection, followed, installed).await? {
        let problem = Problem { message: below.to_string(), fix: Some(below.fix()), refused: false };
        found.push(Trouble { about: vec![below.policy, below.keeper], problem });
    }
    Ok(found)
}

/// Tells each where people look for it.
pub(super) fn tell(troubles: Vec<Trouble>, policies: &mut [PolicyPlan], trees: &mut [TreePlan]) {
    for Trouble { about, problem } in troubles {
        let planned = |name: &&String| policies.iter().any(|plan| plan.policy == **name);
        let drawn = |name: &&String| trees.iter().any(|tree| tree.policy == **name);
        let Some(name) = about.iter().find(|name| planned(name) || drawn(name)) else { continue };
        if let Some(plan) = policies.iter_mut().find(|plan| plan.policy == *name) {
            plan.problems.push(problem);
        } else if let Some(tree) = trees.iter_mut().find(|tree| tree.policy == *name) {
            let Problem { message, fix, refused } = problem;
            tree.findings.push(Finding { refuses: refused, table: tree.table.clone(), message, fix });
        }
    }
}
