//! What falls due in the next 90 days. Counting it may take seconds, so it is done aside, kept for some minutes, and shown
//! as it was counted last. Invariant: no page waits for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ebb::Engine;
use ebb::view;
use jiff::{SignedDuration, Timestamp};

/// How far the look goes.
pub(crate) const DAYS: u32 = 90;
/// How long a count is good for; and how long after one that failed the next is tried.
const GOOD_FOR: Duration = Duration::from_secs(600);

/// One day to come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Its date.
    pub(crate) day: String,
    /// Rows of policies over tables.
    pub(crate) rows: i64,
    /// Subjects to be erased.
    pub(crate) subjects: i64,
    /// Events to be delivered.
    pub(crate) events: i64,
}

/// The last count.
#[derive(Debug, Default)]
pub(crate) struct Upcoming {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    days: Option<Arc<Vec<Ahead>>>,
    asked: Option<Instant>,
}

impl Upcoming {
    /// What was counted last; has it counted anew when that is a while ago.
    pub(crate) fn look(self: &Arc<Self>, engine: &Engine) -> Option<Arc<Vec<Ahead>>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.asked.is_none_or(|asked| asked.elapsed() > GOOD_FOR) {
            kept.asked = Some(Instant::now());
            let (upcoming, engine) = (self.clone(), engine.clone());
            tokio::spawn(async move {
                match count(&engine).await {
                    Ok(days) => {
                        upcoming.kept.lock().unwrap_or_else(PoisonError::into_inner).days = Some(Arc::new(days));
                    }
                    Err(error) => tracing::debug!(error = error.for_log(), "Could not look ahead"),
                }
            });
        }
        kept.days.clone()
    }
}

async fn count(engine: &Engine) -> ebb::Result<Vec<Ahead>> {
    let from = engine.events().now().await?;
    let mut days: Vec<Ahead> = (0..i64::from(DAYS))
        .map(|day| {
            let at = from.saturating_add(SignedDuration::from_hours(24 * day)).unwrap_or(Timestamp::MAX);
            Ahead { day: at.strftime("%Y-%m-%d").to_string(), ..Ahead::default() }
        })
        .collect();
    for (day, kind, things) in view::upcoming(engine.database(), from.into(), DAYS).await? {
        let Some(ahead) = usize::try_from(day).ok().and_then(|day| days.get_mut(day)) else { continue };
        match kind.as_str() {
            "subjects" => ahead.subjects += things,
            _ => ahead.events += things,
        }
    }
    for forecast in engine.forecast(&[], from, DAYS).await? {
        for (ahead, day) in days.iter_mut().zip(&forecast.days) {
            ahead.rows = ahead.rows.saturating_add(i64::try_from(day.rows).unwrap_or(i64::MAX));
        }
        if let (Some(first), Some(due)) = (days.first_mut(), forecast.due_rows) {
            first.rows = first.rows.saturating_add(i64::try_from(due).unwrap_or(i64::MAX));
        }
    }
    Ok(days)
}
