//! Holds and open deletions of subjects whose row is not there: the application changed its key, or deleted it. Only the trigger
//! of `mark_at_once` lets them follow a key; so whoever looks is told. And soft deletes at no time, whose term never is over.

use sqlx::PgConnection;

use super::compile;
use super::store::{self, rows};
use crate::Result;
use crate::policy::{Retain, Subjects};

/// Holds are looked at no further, and deletions.
const HOLDS: i64 = 10_000;
const DELETIONS: i64 = 10_000;
const UNDATED: u64 = 1_000;

/// Subjects whose row is not there, or says no time.
#[derive(Debug, Default)]
pub(crate) struct Astray {
    /// On hold.
    pub(crate) held: Vec<String>,
    /// With an open deletion.
    pub(crate) open: Vec<String>,
    /// Soft-deleted, and nobody knows when; without a deletion.
    pub(crate) undated: Vec<String>,
}

/// Looks for them, among the first.
pub(crate) async fn astray(connection: &mut PgConnection, policy: &Retain) -> Result<Astray> {
    let Some(subjects) = policy.subjects() else { return Ok(Astray::default()) };
    let name = policy.name.as_str();
    let held = store::held_ids(connection, name, HOLDS).await?;
    let open = store::open_ids(connection, name, DELETIONS).await?;
    let mut undated = undated(connection, policy, subjects).await?;
    // Whoever was deleted through Ebb has a term from then on.
    undated.retain(|id| !open.contains(id));
    let mut astray = Astray { held, open, undated };
    if astray.held.is_empty() && astray.open.is_empty() {
        return Ok(astray);
    }
    let root = compile::compile(connection, policy, subjects).await?.root;
    for ids in [&mut astray.held, &mut astray.open] {
        let there = rows::existing(connection, &root, &root.named(ids.iter().map(String::as_str))?).await?;
        let mut at = 0..;
        ids.retain(|_| at.next().is_none_or(|at| !there.contains(&at)));
    }
    Ok(astray)
}

/// Those who are soft-deleted at no time; none where that cannot be said soon.
async fn undated(connection: &mut PgConnection, policy: &Retain, subjects: &Subjects) -> Result<Vec<String>> {
    rows::savepoint(connection).await?;
    let found = match compile::compile(connection, policy, subjects).await {
        Ok(compiled) => rows::undated(connection, &compiled.root, UNDATED).await,
        Err(error) => Err(error),
    };
    rows::end_savepoint(connection, false).await?;
    match found {
        Err(error) if error.is_unavailable() => Err(error),
        found => Ok(found.unwrap_or_default()),
    }
}
