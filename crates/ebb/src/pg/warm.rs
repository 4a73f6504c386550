//! Connections kept warm between single messages, each of which is a transaction by itself: one round trip, where one from the
//! pool is looked at before and after. Invariants: what is kept answered a moment ago; what did not answer goes back to the
//! pool, which looks at it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgRow, Postgres};
use sqlx::{AssertSqlSafe, Executor};

use super::{Database, answered};
use crate::Result;

/// A connection that nobody used for so long is looked at again.
const WARM_FOR: Duration = Duration::from_secs(1);

/// Keeps connections of a pool between messages.
#[derive(Debug)]
pub struct Warm {
    database: Database,
    kept: Mutex<Vec<(Instant, PoolConnection<Postgres>)>>,
}

impl Warm {
    /// Keeps as many as are used at once.
    pub fn new(database: Database) -> Self {
        Self { database, kept: Mutex::default() }
    }

    /// The pool behind it.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Sends one message, whose text has nothing in it that came from outside but digits. It may have been carried out where
    /// there is no answer.
    pub(crate) async fn send(&self, within: Duration, sql: String) -> Result<Vec<PgRow>> {
        answered(within, self.exchange(self.warm(), sql)).await
    }

    /// The same for what may be asked twice: a connection that was lost meanwhile costs a second try.
    pub(crate) async fn ask(&self, within: Duration, sql: String) -> Result<Vec<PgRow>> {
        let asked = async {
            let warm = self.warm();
            let (was_warm, answer) = (warm.is_some(), self.exchange(warm, sql.clone()).await);
            match answer {
                Err(error) if was_warm && error.is_unavailable() => self.exchange(None, sql).await,
                answer => answer,
            }
        };
        answered(within, asked).await
    }

    async fn exchange(&self, warm: Option<PoolConnection<Postgres>>, sql: String) -> Result<Vec<PgRow>> {
        let mut connection = match warm {
            Some(connection) => connection,
            None => self.database.acquire().await?,
        };
        let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), connection));
        Ok(rows)
    }

    fn warm(&self) -> Option<PoolConnection<Postgres>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = kept.pop();
        // The older ones cool down: nobody needs as many any more.
        kept.retain(|(used, _)| used.elapsed() < WARM_FOR);
        newest.filter(|(used, _)| used.elapsed() < WARM_FOR).map(|(_, connection)| connection)
    }
}
