//! OpenLineage events: each is kept once within 24 hours, however often a producer sends it. Invariant: the claim of an
//! event's key and the event itself are one statement, so that a repeat after any failure finds both or neither.

mod event;
mod store;

use std::collections::HashSet;

use crate::pg::Database;
use crate::{Error, Result};

pub use event::{Event, Fault};

/// Where the keys of events are claimed.
pub const NAMESPACE: &str = "openlineage";

/// Keeps those events that were not seen within the window; for each, whether it was new.
pub async fn accept(database: &Database, events: &[Event]) -> Result<Vec<bool>> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let mut tx = database.read().await?;
    let first: HashSet<String> = store::accept(&mut tx, events).await.map_err(Error::from)?.into_iter().collect();
    tx.commit().await?;
    let mut told = HashSet::new();
    let new: Vec<bool> =
        events.iter().map(|event| first.contains(&event.key) && told.insert(event.key.as_str())).collect();
    let firsts = new.iter().filter(|new| **new).count() as u64;
    for (outcome, count) in [("first", firsts), ("duplicate", events.len() as u64 - firsts)] {
        if count > 0 {
            metrics::counter!("ebb_once_total", "namespace" => NAMESPACE, "outcome" => outcome).increment(count);
        }
    }
    Ok(new)
}
