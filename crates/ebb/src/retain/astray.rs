//! Holds and open deletions of subjects whose row is not there: the application changed its key, or deleted it. Only the trigger
//! of `mark_at_once` lets them follow a key; so whoever looks is told.

use sqlx::PgConnection;

use super::compile;
use super::store::{self, rows};
use crate::Result;
use crate::policy::Retain;

/// Holds are looked at no further, and deletions.
const HOLDS: i64 = 10_000;
const DELETIONS: i64 = 10_000;

/// Subjects whose row is not there.
#[derive(Debug, Default)]
pub(crate) struct Astray {
    /// On hold.
    pub(crate) held: Vec<String>,
    /// With an open deletion.
    pub(crate) open: Vec<String>,
}

/// Looks for them, among the first.
pub(crate) async fn astray(connection: &mut PgConnection, policy: &Retain) -> Result<Astray> {
    let Some(subjects) = policy.subjects() else { return Ok(Astray::default()) };
    let name = policy.name.as_str();
    let held = store::held_ids(connection, name, HOLDS).await?;
    let open = store::open_ids(connection, name, DELETIONS).await?;
    if held.is_empty() && open.is_empty() {
        return Ok(Astray::default());
    }
    let root = compile::compile(connection, policy, subjects).await?.root;
    let mut astray = Astray { held, open };
    for ids in [&mut astray.held, &mut astray.open] {
        let there = rows::existing(connection, &root, &root.named(ids.iter().map(String::as_str))?).await?;
        let mut at = 0..;
        ids.retain(|_| at.next().is_none_or(|at| !there.contains(&at)));
    }
    Ok(astray)
}
