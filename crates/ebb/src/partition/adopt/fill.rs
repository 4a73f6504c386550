//! Fills the column that a referring table carries, a little at a time. Invariants: a row gets the time of the row that it
//! refers to as that is under a lock; rows that come meanwhile have it from the trigger; it gives way to whoever is at work
//! on a row.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection};

use super::guard::EVERY_PAGE;
use super::run::{LOCK_WAIT, REST, TRIES};
use super::{Progress, Session};
use crate::partition::store as partitions;
use crate::pg::{Ident, Relation};
use crate::{Error, Result};

/// How long a batch should take: writers of its rows wait for it.
const BATCH_FOR: Duration = Duration::from_millis(40);

/// Rows that were there before the trigger, and what fills them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fill {
    pub(super) table: (String, String),
    pub(super) target: (String, String),
    pub(super) column: String,
    pub(super) target_column: String,
    pub(super) matches: String,
    pub(super) columns: Vec<String>,
    pub(super) referenced: Vec<String>,
    /// Whether the table has triggers that filling would set off.
    #[serde(default)]
    pub(super) quietly: bool,
}

/// No trigger hears of it; whoever may not say so is refused.
const SILENCE: &str = "SET LOCAL session_replication_role = replica";

impl Fill {
    fn table(&self) -> Relation {
        Relation::new(&self.table.0, &self.table.1)
    }

    /// The rows of some pages: first the rows that they refer to are locked, so that their time stays what it is, then it
    /// is read in a second statement.
    fn batch(&self, from: i64, to: i64) -> (String, String) {
        let (table, target) = (self.table(), Relation::new(&self.target.0, &self.target.1));
        let (mine, theirs) = (Ident::new(&self.column), Ident::new(&self.target_column));
        let pages = format!("c.ctid >= '({from},0)' AND c.ctid < '({to},0)' AND c.{mine} IS NULL");
        (
            format!(
                "SELECT FROM ONLY {target} t WHERE ({}) IN (SELECT {} FROM ONLY {table} c WHERE {pages}) ORDER BY {} FOR KEY SHARE",
                prefixed("t", &self.referenced),
                prefixed("c", &self.columns),
                prefixed("t", &self.referenced)
            ),
            format!(
                "UPDATE ONLY {table} c SET {mine} = t.{theirs} FROM ONLY {target} t WHERE {pages} AND {}",
                self.matches
            ),
        )
    }
}

impl Fill {
    /// All of it at once, for people.
    pub(super) fn whole(&self) -> Vec<String> {
        let (lock, update) = self.batch(0, EVERY_PAGE);
        self.quietly.then(|| SILENCE.to_owned()).into_iter().chain([lock, update]).collect()
    }
}

fn prefixed(alias: &str, names: &[String]) -> String {
    names.iter().map(|name| format!("{alias}.{}", Ident::new(name))).collect::<Vec<_>>().join(", ")
}

/// Fills a column that a referring table carries from now on, a little at a time; rows that come meanwhile have it already.
pub(super) async fn fill_column(
    session: &mut Session,
    fill: &Fill,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let table = fill.table();
    let quiet = partitions::may_be_quiet(&mut session.connection).await?;
    let silence = if quiet { format!("; {SILENCE}") } else { String::new() };
    let begin = format!("SET LOCAL lock_timeout = {}{silence}", LOCK_WAIT.as_millis());
    let pages = partitions::pages(&mut session.connection, &table).await?;
    let (mut page, mut size, mut tries) = (0_i64, 16_i64, 0);
    while page < pages {
        let at = Instant::now();
        let (lock, update) = fill.batch(page, page + size);
        let mut tx = session.connection.begin().await?;
        let tried = sqlx::raw_sql(AssertSqlSafe(format!("{begin}; {lock}; {update}"))).execute(&mut *tx).await;
        match tried.map_err(Error::from) {
            Ok(_) => {
                tx.commit().await?;
                (page, tries) = (page + size, 0);
                let share = page.min(pages) as f64 / pages as f64;
                watch(Progress::Share(share, format!("{} of {pages} pages", page.min(pages))));
                let fitting = BATCH_FOR.as_secs_f64() / at.elapsed().as_secs_f64().max(0.001);
                size = ((size as f64 * fitting.clamp(0.5, 1.5)).ceil() as i64).clamp(1, 2_000);
            }
            Err(error) if matches!(error.sqlstate().as_deref(), Some("55P03" | "40P01")) && tries < TRIES => {
                tx.rollback().await?;
                (size, tries) = ((size / 2).max(1), tries + 1);
                watch(Progress::Waiting(format!("a row of {} is in use", table.label())));
            }
            Err(error) => {
                tx.rollback().await?;
                return Err(error.with_hint("run it again; what is filled stays filled"));
            }
        }
        tokio::time::sleep(at.elapsed().min(REST)).await;
    }
    Ok(())
}
