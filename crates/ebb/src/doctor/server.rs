//! The server around the tables: who keeps old rows alive, and how the clocks compare.

use std::time::Duration;

use jiff::Timestamp;

use super::{Finding, Fix, store};
use crate::plan::words;
use crate::{Engine, Result};

/// How far this host's clock is from the database's. Nothing depends on it; logs of the host do not line up.
pub(super) async fn skew(engine: &Engine, host: Timestamp) -> Result<Vec<Finding>> {
    let mut tx = engine.database().read().await?;
    let server = store::clock(&mut tx).await?;
    tx.rollback().await?;
    let Some(server) = server.timestamp() else { return Ok(Vec::new()) };
    let apart = server.duration_since(host).unsigned_abs();
    let text = match apart {
        apart if apart < Duration::from_secs(2) => "this host and the database agree about the time".to_owned(),
        apart => format!(
            "this host's clock and the database's are {} apart; only the database's counts, the log's times are this host's",
            words(apart)
        ),
    };
    Ok(vec![Finding::ok("clock", text)])
}

/// Snapshots that keep dead rows from being cleaned up.
pub(super) async fn snapshots(engine: &Engine) -> Result<Vec<Finding>> {
    let mut tx = engine.database().read().await?;
    let found = store::snapshots(&mut tx).await?;
    tx.rollback().await?;
    if found.is_empty() {
        return Ok(vec![Finding::ok("snapshots", "nobody keeps old row versions alive for long")]);
    }
    let finding = |(who, seconds, fix): (String, Option<f64>, String)| {
        let age = seconds.map(|seconds| format!(" for {}", words(Duration::from_secs_f64(seconds.max(0.0)))));
        let text = format!(
            "{who} has kept old row versions alive{}: what is deleted stays on disk and slows every scan",
            age.unwrap_or_default()
        );
        Finding::warn("snapshots", None, text).fix(Fix::sql(format!("{fix};")))
    };
    Ok(found.into_iter().map(finding).collect())
}
