//! Events a page at a time, and how their delivery goes. Invariants: a page is read along indexes and from few
//! partitions, however many events there are; what would take too long to count is left out, not waited for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sqlx::PgConnection;
use uuid::Uuid;

use super::event::Events;
use super::look::{EventRow, Filter, State};
use crate::audit::Moment;
use crate::pg::Guard;
use crate::spine::store::interval;
use crate::{Error, Result, sql};

/// How long a count may take.
const COUNT_FOR: Duration = Duration::from_millis(500);
/// How far back a page of what ended looks first; then everything.
const WINDOWS: [Duration; 2] = [Duration::from_secs(3600), Duration::from_secs(24 * 3600)];
/// Where the steps of a lateness histogram end, in seconds.
const STEPS: [f64; 8] = [1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 6.0 * 3600.0, 24.0 * 3600.0];
/// How far back the pace of deliveries is measured.
const PACE: Duration = Duration::from_secs(300);

/// Where a page ends and the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    finished: bool,
    at: Moment,
    id: Uuid,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shelf = if self.finished { 'f' } else { 'o' };
        write!(f, "{shelf}.{}.{}", self.at.micros(), self.id)
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = || {
            let (shelf, rest) = text.split_once('.')?;
            let (at, id) = rest.split_once('.')?;
            let finished = match shelf {
                "o" => false,
                "f" => true,
                _ => return None,
            };
            Some(Self { finished, at: Moment::from_micros(at.parse().ok()?), id: id.parse().ok()? })
        };
        parts().ok_or_else(|| Error::usage("after has to be the `next` of another page"))
    }
}

/// Which of the two shelves a filter looks at: what is open, what ended.
fn shelves(filter: &Filter) -> (bool, bool) {
    let (open, ended) = match filter.state {
        None => (true, true),
        Some(State::Pending | State::Running | State::Failed) => (true, false),
        Some(State::Done | State::Dead | State::Cancelled | State::Skipped) => (false, true),
    };
    (open, ended && filter.stuck.is_none())
}

/// How late deliveries were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lateness {
    /// Over how long.
    pub over: Duration,
    /// Each step's end, none for the last, and how many events lie in it.
    pub steps: Vec<(Option<Duration>, i64)>,
}

impl Events {
    /// Events that fit, first what is open by its turn, then what ended, the latest first; and where the next page begins.
    pub async fn page(&self, filter: &Filter, after: Option<Cursor>) -> Result<(Vec<EventRow>, Option<Cursor>)> {
        let limit = if filter.limit == 0 { 100 } else { filter.limit as usize };
        let (open, ended) = shelves(filter);
        let mut rows = Vec::new();
        let mut tx = self.database.read().await?;
        if open && after.is_none_or(|after| !after.finished) {
            rows = page_open(&mut tx, filter, after, limit).await?;
        }
        if ended && rows.len() < limit {
            let after = after.filter(|after| after.finished);
            rows.extend(page_finished(&mut tx, filter, after, limit - rows.len()).await?);
        }
        tx.commit().await?;
        let next = rows.last().filter(|_| rows.len() == limit).map(|last| Cursor {
            finished: last.finished_at.is_some(),
            at: last.finished_at.or(last.ready_at).unwrap_or(last.due_at),
            id: last.occurrence,
        });
        Ok((rows, next))
    }

    /// How late deliveries were in the last day, or the last hour where there were too many to count.
    pub async fn lateness(&self) -> Result<Option<Lateness>> {
        for over in [WINDOWS[1], WINDOWS[0]] {
            match self.lateness_over(over).await {
                Err(error) if error.sqlstate().as_deref() == Some("57014") => {}
                found => return found.map(Some),
            }
        }
        Ok(None)
    }

    async fn lateness_over(&self, over: Duration) -> Result<Lateness> {
        let mut tx = self.database.begin(Guard { statement: COUNT_FOR, ..Guard::default() }).await?;
        let counted: Vec<(i32, i64)> =
            sql!("lateness" as (i32, i64)).bind(interval(over)).bind(STEPS.as_slice()).fetch_all(&mut *tx).await?;
        tx.commit().await?;
        let ends = STEPS.iter().map(|end| Some(Duration::from_secs_f64(*end))).chain([None]);
        let steps = ends.enumerate().map(|(step, end)| {
            let events =
                counted.iter().find(|(of, _)| usize::try_from(*of) == Ok(step)).map_or(0, |(_, events)| *events);
            (end, events)
        });
        Ok(Lateness { over, steps: steps.collect() })
    }

    /// How many events a second ended lately, sink by sink; nothing where that took too long to count.
    pub async fn pace(&self) -> Result<Vec<(String, f64)>> {
        let mut tx = self.database.begin(Guard { statement: COUNT_FOR, ..Guard::default() }).await?;
        let counted = sql!("pace" as (String, i64)).bind(interval(PACE)).fetch_all(&mut *tx).await;
        let counted = match counted.map_err(Error::from) {
            Err(error) if error.sqlstate().as_deref() == Some("57014") => return Ok(Vec::new()),
            counted => counted?,
        };
        tx.commit().await?;
        Ok(counted.into_iter().map(|(sink, ended)| (sink, ended as f64 / PACE.as_secs_f64())).collect())
    }
}

async fn page_open(
    connection: &mut PgConnection,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Vec<EventRow>> {
    Ok(sql!("page_open" as EventRow)
        .bind(&filter.sink)
        .bind(filter.state.map(State::as_str))
        .bind(filter.stuck.max(filter.late).map(interval))
        .bind(after.map(|after| after.at))
        .bind(after.map(|after| after.id))
        .bind(limit as i64)
        .fetch_all(connection)
        .await?)
}

async fn page_finished(
    connection: &mut PgConnection,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> Result<Vec<EventRow>> {
    let from = match after {
        Some(after) => after.at,
        None => super::store::now(connection).await?.into(),
    };
    let mut found = Vec::new();
    for window in WINDOWS.into_iter().map(Some).chain([None]) {
        let since = window.map_or(Moment::NEG_INFINITY, |window| {
            Moment::from_micros(from.micros().saturating_sub(i64::try_from(window.as_micros()).unwrap_or(i64::MAX)))
        });
        found = sql!("page_finished" as EventRow)
            .bind(&filter.sink)
            .bind(filter.state.map(State::as_str))
            .bind(filter.late.map(interval))
            .bind(after.map(|after| after.at))
            .bind(after.map(|after| after.id))
            .bind(limit as i64)
            .bind(since)
            .fetch_all(&mut *connection)
            .await?;
        if found.len() == limit {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_what_it_writes_and_nothing_else() {
        for finished in [false, true] {
            let cursor = Cursor { finished, at: Moment::from_micros(-7), id: Uuid::from_u128(3) };
            assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        }
        for wrong in
            ["", "o", "o.1", "x.1.00000000-0000-0000-0000-000000000003", "o.y.00000000-0000-0000-0000-000000000003"]
        {
            assert!(wrong.parse::<Cursor>().unwrap_err().is_usage(), "{wrong}");
        }
    }
}
