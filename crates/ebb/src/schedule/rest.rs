//! How a node sleeps: until something is due, and no longer than a writer allows. It says until when it sleeps, so that
//! whoever writes something due before that wakes it and nobody else has to. Invariant: a writer that looked before this
//! was said is waited for, so that no commit goes unseen; the poll is the safety net.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::store::{self, Ahead};
use crate::Result;
use crate::pg::answered;
use crate::spine::ANSWER_WITHIN;
use crate::spine::service::Station;

/// How often to look while a writer is at it that may not have seen this node sleep.
const WRITER_LOOK: Duration = Duration::from_millis(20);
/// The longest look ahead where calls do not get through.
const DEAF_POLL: Duration = Duration::from_secs(1);
/// How often the database's time is compared with the one that was counted on: somebody may have moved it.
const CLOCK_LOOK: Duration = Duration::from_secs(1);

/// Sleeps until there may be something to do for one of these sinks.
pub(super) async fn rest(station: &Station, sinks: &[String], paused: &[String]) -> Result<()> {
    let hears = *station.hears.borrow();
    let longest = if hears { station.poll } else { DEAF_POLL };
    let ahead = ahead(station, sinks, paused, longest, hears).await?;
    let mut writers = if hears { open_writers(station, None).await? } else { Vec::new() };
    if wait(&ahead, longest).is_none() {
        return Ok(());
    }
    // What was committed while this was written down.
    let mut looked = look(station, sinks, paused).await?;
    let mut looked_at = Instant::now();
    loop {
        let Some(wait) = wait(&looked, longest) else { return Ok(()) };
        if writers.is_empty() {
            tracing::debug!(rest = ?wait, "No events ready");
            sleep(station, looked_at + wait, looked.now.to_jiff().saturating_add(wait).unwrap_or(Timestamp::MAX)).await;
            return Ok(());
        }
        tokio::select! {
            () = station.wake.notified() => return Ok(()),
            () = tokio::time::sleep_until(looked_at + wait) => return Ok(()),
            () = tokio::time::sleep(WRITER_LOOK) => {}
        }
        // Only a writer that has ended can have brought something.
        let left = open_writers(station, Some(&writers)).await?;
        if left.len() < writers.len() {
            (looked, looked_at) = (look(station, sinks, paused).await?, Instant::now());
        }
        writers = left;
    }
}

/// Looks ahead and says until when this node sleeps, in one transaction: nothing due is left behind.
async fn ahead(
    station: &Station,
    sinks: &[String],
    paused: &[String],
    longest: Duration,
    hears: bool,
) -> Result<Ahead> {
    answered(ANSWER_WITHIN, async {
        let mut tx = station.shared.database.read().await?;
        let ahead = store::peek(&mut tx, sinks, paused).await?;
        if hears && let Some(wait) = wait(&ahead, longest) {
            let now = ahead.now.to_jiff();
            store::sleep(&mut tx, station.id, now.saturating_add(wait).unwrap_or(now)).await?;
        }
        tx.commit().await?;
        Ok(ahead)
    })
    .await
}

async fn look(station: &Station, sinks: &[String], paused: &[String]) -> Result<Ahead> {
    answered(ANSWER_WITHIN, async {
        let mut tx = station.shared.database.read().await?;
        let ahead = store::peek(&mut tx, sinks, paused).await?;
        tx.commit().await?;
        Ok(ahead)
    })
    .await
}

async fn open_writers(station: &Station, among: Option<&[String]>) -> Result<Vec<String>> {
    answered(ANSWER_WITHIN, async {
        let mut tx = station.shared.database.read().await?;
        let writers = store::writers(&mut tx, among).await?;
        tx.commit().await?;
        Ok(writers)
    })
    .await
}

/// How long nothing is to be done; `None` when there is something now.
fn wait(ahead: &Ahead, longest: Duration) -> Option<Duration> {
    let now = ahead.now.to_jiff();
    let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
    let due = ahead.ready_at.into_iter().chain(ahead.fires_at).map(|at| until(at.to_jiff()));
    let lease = ahead.lease_runs_out_in.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0)));
    let wait = due.chain(lease).fold(longest, Duration::min);
    (!wait.is_zero()).then_some(wait)
}

/// Sleeps, but not through a call, nor when the database's time has made a jump.
async fn sleep(station: &Station, deadline: Instant, due: Timestamp) {
    loop {
        let next = (Instant::now() + CLOCK_LOOK).min(deadline);
        tokio::select! {
            () = station.wake.notified() => return,
            () = tokio::time::sleep_until(next) => {}
        }
        if next >= deadline || station.shared.now() >= due {
            return;
        }
    }
}
