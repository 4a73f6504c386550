//! How far a proof is: VALIDATE reads the whole table, and the server has no progress view for that. The scan that checks
//! a constraint is a synchronized one, though: on a table larger than a quarter of shared_buffers it writes down where it
//! is, so that whoever reads the table next joins it there. To read a single row therefore says where it is, for the price
//! of a page. Others who read all of the table at that moment write down their places, too: the share is about right, does
//! not go back, and nothing depends on it.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, PgConnection};

use super::{Progress, Session, store};
use crate::partition::store as partitions;
use crate::pg::{Database, Relation};
use crate::{Error, Result};

/// How soon it is asked first, and how often at most: a short proof is over before the second answer is of use.
const ASK_FIRST: Duration = Duration::from_millis(25);
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Only a sequential scan by one process joins, and its first page can be one without rows that are seen: not for long.
const JOIN: &str = "SET search_path = pg_catalog; SET row_security = off; SET statement_timeout = '100ms'; SET lock_timeout = '60ms'; \
    SET max_parallel_workers_per_gather = 0; SET enable_indexscan = off; SET enable_indexonlyscan = off; \
    SET enable_bitmapscan = off; SET enable_tidscan = off";

/// Runs the statement that proves a constraint, and says how far it is. The table is the one that a check is proven over;
/// a foreign key is proven by a query over two, of which no place is known.
pub(crate) async fn prove(
    session: &mut Session,
    (table, check): (&Relation, bool),
    sql: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let (began, pid) = (Instant::now(), session.pid);
    // The proof depends neither on somebody who asks nor on the answer.
    let mut reader = Reader::open(&session.database, table, check).await.ok();
    let run = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut session.connection);
    tokio::pin!(run);
    let mut rest = ASK_FIRST;
    loop {
        tokio::select! {
            done = &mut run => return done.map(|_| ()).map_err(Error::from),
            () = tokio::time::sleep(rest) => {}
        }
        rest = (rest * 2).min(ASK_EVERY);
        if let Some(reader) = &mut reader {
            let told = reader.look(pid, began.elapsed()).await;
            told.into_iter().flatten().for_each(&mut *watch);
        }
    }
}

/// Another session, which asks.
struct Reader {
    connection: PgConnection,
    table: Relation,
    scan: Option<Scan>,
    size: String,
}

impl Reader {
    async fn open(database: &Database, table: &Relation, check: bool) -> Result<Self> {
        let mut connection = database.session("ebb/adopt").await?;
        sqlx::raw_sql(JOIN).execute(&mut connection).await?;
        let pages = partitions::pages(&mut connection, table).await?;
        let size = store::printed_size(&mut connection, table).await?;
        let mut reader = Self { connection, table: table.clone(), scan: None, size };
        if check && let Some(start) = reader.place().await {
            reader.scan = Some(Scan { start, pages, share: 0.0 });
        }
        Ok(reader)
    }

    /// The page at which a scan that begins now would begin; none where no row is seen, or none in time.
    async fn place(&mut self) -> Option<i64> {
        let sql = format!("SELECT (ctid::text::point)[0]::int8 FROM ONLY {} LIMIT 1", self.table);
        sqlx::query_scalar(AssertSqlSafe(sql))
            .persistent(false)
            .fetch_optional(&mut self.connection)
            .await
            .ok()
            .flatten()
    }

    async fn look(&mut self, pid: i32, elapsed: Duration) -> Result<Option<Progress>> {
        if let Some(whom) = store::waits_for(&mut self.connection, pid).await? {
            // It has not begun to read, and will begin where others are by then.
            if let (Some(place), Some(scan)) = (self.place().await, self.scan.as_mut()) {
                scan.start = place;
            }
            return Ok(Some(Progress::Share(0.0, whom)));
        }
        if self.scan.is_some()
            && let Some(place) = self.place().await
            && let Some(scan) = self.scan.as_mut()
        {
            let share = scan.at(place);
            if share > 0.0 {
                return Ok(Some(Progress::Share(share, format!("about, of {}", self.size))));
            }
        }
        let words = format!("reads {}, {} s so far", self.size, elapsed.as_secs());
        Ok((elapsed >= ASK_EVERY).then_some(Progress::Share(0.0, words)))
    }
}

/// Where a scan began, over how many pages, and how much of them it was last known to have read.
struct Scan {
    start: i64,
    pages: i64,
    share: f64,
}

impl Scan {
    /// The share at a place. It goes round the end of the table to where it began. Half of the table at once is not this
    /// scan, but another one that is behind it.
    fn at(&mut self, place: i64) -> f64 {
        let share = (place - self.start).rem_euclid(self.pages.max(1)) as f64 / self.pages.max(1) as f64;
        if share > self.share && share - self.share < 0.5 {
            self.share = share.min(0.99);
        }
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_goes_round_and_its_share_does_not_go_back() {
        let mut scan = Scan { start: 900, pages: 1000, share: 0.0 };
        assert_eq!(scan.at(900), 0.0);
        assert_eq!(scan.at(896), 0.0, "a scan behind it is another one");
        assert_eq!(scan.at(0), 0.1);
        assert_eq!(scan.at(300), 0.4);
        assert_eq!(scan.at(100), 0.4);
        assert_eq!(scan.at(700), 0.8);
        assert_eq!(scan.at(899), 0.99, "it is over when the server says so");
        assert_eq!(Scan { start: 0, pages: 0, share: 0.0 }.at(0), 0.0);
    }
}
