//! The brake: a run that would take far more than it should stops before its first batch and asks. What is due is counted
//! by each duty in its own way; limits, the row that asks and what somebody allowed are the same for all. Invariant: an
//! allowance is good for what it names, once.

use sqlx::PgConnection;

use super::store;
use super::work::{Prepared, Status};
use crate::Result;
use crate::policy::Brake;

/// A brake that nobody wrote does not stop runs up to this size: what is small is often due as a whole.
const DEFAULT_APPLIES_ABOVE: f64 = 10_000.0;

/// The limit that a run over `due` of `total` (`what`: rows, resources) would exceed, in words.
pub(crate) fn exceeded(brake: &Brake, due: f64, total: f64, what: &str) -> Option<String> {
    if let Some(rows) = brake.rows.filter(|rows| due > *rows as f64) {
        return Some(format!("rows = {rows}"));
    }
    if !brake.explicit && due <= DEFAULT_APPLIES_ABOVE {
        return None;
    }
    let share = brake.share.filter(|share| due > share * total.max(due))?;
    Some(format!("share = {share} of {:.0} {what}", total.max(due)))
}

/// Lets a run go on that is within its brake, or that somebody allowed; otherwise it ends here and asks. `what` is due.
pub(crate) async fn check(
    connection: &mut PgConnection,
    policy: &str,
    brake: &Brake,
    (due, total): (u64, u64),
    what: &str,
) -> Result<Option<Prepared>> {
    let Some(limit) = exceeded(brake, due as f64, total as f64, what) else {
        release(connection, policy).await?;
        return Ok(None);
    };
    if allowance(connection, policy).await?.is_some_and(|allowed| allowed >= due) {
        return Ok(None);
    }
    trip(connection, policy, due, &limit).await?;
    Ok(Some(asks(policy, due, &limit, &format!("{due} {what}"))))
}

/// A run that ends before its first batch, with the words that let it go on.
pub(crate) fn asks(policy: &str, due: u64, limit: &str, what: &str) -> Prepared {
    let note = format!(
        "{what} are due, more than the brake allows ({limit}); let them go with: ebb resume {policy} --allow {due}"
    );
    Prepared::Ended { status: Status::Braked, due, note }
}

/// What somebody allowed.
pub(crate) async fn allowance(connection: &mut PgConnection, policy: &str) -> Result<Option<u64>> {
    store::brake_allowance(connection, policy).await
}

/// Stops a policy until somebody allows more. An allowance that was too small goes.
pub(crate) async fn trip(connection: &mut PgConnection, policy: &str, due: u64, limit: &str) -> Result<()> {
    store::trip_brake(connection, policy, due, limit).await
}

/// It is within its limits again.
pub(crate) async fn release(connection: &mut PgConnection, policy: &str) -> Result<()> {
    store::release_brake(connection, policy).await
}

/// What was allowed shrinks by what was taken.
pub(crate) async fn spend(connection: &mut PgConnection, policy: &str, taken: u64) -> Result<()> {
    store::spend_allowance(connection, policy, taken).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brake_that_nobody_wrote_leaves_what_is_small_alone() {
        let brake = |rows, share, explicit| Brake { rows, share, explicit };
        let exceeded = |brake, due, total| exceeded(&brake, due, total, "rows");
        assert_eq!(exceeded(brake(None, Some(0.5), false), 10_000.0, 10_000.0), None);
        let asked = exceeded(brake(None, Some(0.5), false), 10_001.0, 20_000.0);
        assert_eq!(asked.as_deref(), Some("share = 0.5 of 20000 rows"));
        assert!(exceeded(brake(None, Some(0.5), true), 2.0, 3.0).is_some());
        assert_eq!(exceeded(brake(None, None, true), 1e9, 1e9), None);
        assert_eq!(exceeded(brake(Some(7), None, true), 8.0, 1e9).as_deref(), Some("rows = 7"));
        assert_eq!(exceeded(brake(Some(7), None, true), 7.0, 7.0), None);
        assert_eq!(exceeded(brake(None, Some(0.5), true), 0.0, 0.0), None);
    }
}
