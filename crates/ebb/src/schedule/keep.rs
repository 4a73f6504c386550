//! The history of events: its next partitions exist before they are needed, and the days that are past their term go whole.
//! Invariant: what goes leaves a record in the audit, in the same transaction.

use std::time::Duration;

use super::store;
use crate::audit::Entry;
use crate::pg::{Guard, answered};
use crate::policy::Term;
use crate::spine::ANSWER_WITHIN;
use crate::spine::service::Station;
use crate::{Error, Result};

/// How often it is looked after.
pub(super) const EVERY: Duration = Duration::from_secs(600);

/// Makes what is missing ahead and drops what is past its term.
pub(super) async fn keep(station: &Station, term: Term) -> Result<()> {
    let database = &station.shared.database;
    answered(ANSWER_WITHIN, super::recorder::extend(database)).await?;
    if station.shared.paused("keep").is_some() {
        return Ok(());
    }
    while drop_one(station, term).await? {}
    let mut tx = database.read().await?;
    store::forget_recurring(&mut tx, term).await?;
    store::forget_cancels(&mut tx).await?;
    Ok(tx.commit().await?)
}

async fn drop_one(station: &Station, term: Term) -> Result<bool> {
    let guard = Guard { statement: Duration::from_secs(60), ..Guard::default() };
    let mut tx = station.shared.database.begin(guard).await?;
    let dropped = match store::drop_history(&mut tx, term).await {
        // Somebody reads the history, or another node has just dropped that day: the next time will do.
        Err(error) if matches!(error.sqlstate().as_deref(), Some("55P03" | "40P01" | "42P01")) => return Ok(false),
        dropped => dropped?,
    };
    let Some(partition) = dropped.partition else { return Ok(false) };
    let mut entry = Entry::new("expire", &station.shared.name);
    entry.policy = Some("keep".into());
    entry.relation = Some(format!("ebb.{partition}"));
    entry.rows = dropped.rows.unwrap_or_default();
    entry.node = Some(station.shared.name.clone());
    entry.details = serde_json::json!({ "day": dropped.day, "keep": term.to_string() });
    entry.insert(&mut tx).await?;
    tx.commit().await?;
    tracing::info!(
        policy = "keep",
        rows_deleted = entry.rows,
        day = dropped.day,
        "Dropped a day of the history of events"
    );
    Ok::<_, Error>(true)
}
