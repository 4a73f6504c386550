//! A partition's way out of its table, on a session of its own. That waits for locks, behind which others queue up, and for
//! everybody who may still see the partition, behind which nobody does; the server has one limit for both. So a second session
//! watches. Invariants: whoever comes to wait behind this waits for a moment, and it gives way and tries again, a little longer
//! when that was often in vain; who only looks is waited for as long as there is time; and who was in the way in the end is named.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, PgConnection};

use super::store::{self, Place, Somebody};
use crate::pg::{Database, Ident, Relation};
use crate::spine::batch::Backend;
use crate::{Error, Result, spine, sql};

/// How long others wait behind it before it gives way, and how often that is looked at. Where transactions that are longer than
/// that always follow each other, it would never come to its end: after some tries others wait a little longer each time.
const MOMENT: Duration = Duration::from_millis(40);
const LONGER: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_millis(600);
const SHORT_TRIES: u32 = 12;
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long they go first then.
const REST: Duration = Duration::from_millis(120);

/// How an error begins that says so.
pub(super) const GAVE_WAY: &str = "gave way to others";

/// Takes a partition out of its table without blocking it, or ends what an earlier try began.
pub(crate) async fn detach(
    database: &Database,
    parent: &Relation,
    (oid, mut place): (i64, Place),
    role: Option<&Ident>,
    within: Duration,
) -> Result<()> {
    let (began, mut watched) = (Instant::now(), Watched::open(database, role).await?);
    for tries in 0_u32.. {
        let how = if place.pending { "FINALIZE" } else { "CONCURRENTLY" };
        let sql = format!("ALTER TABLE {parent} DETACH PARTITION {} {how}", place.relation());
        let left = within.saturating_sub(began.elapsed()).max(MOMENT);
        let moment = (MOMENT + LONGER * tries.saturating_sub(SHORT_TRIES)).min(LONGEST);
        match watched.run(sql, left, moment).await? {
            Ended::Done => return Ok(()),
            Ended::GaveWay(_) if began.elapsed() < within => {
                tokio::time::sleep(REST).await;
                // How far it came is in the catalog.
                match store::place(&mut watched.session, oid).await? {
                    Some(now) if now.parent.is_some() => place = now,
                    _ => return Ok(()),
                }
            }
            Ended::GaveWay(error) => return Err(error.context(watched.in_vain())),
            Ended::Failed(error) => return Err(error),
        }
    }
    Ok(())
}

/// How a statement ended.
enum Ended {
    Done,
    /// To somebody who waited behind it, or for somebody for whom there was no time left.
    GaveWay(Error),
    Failed(Error),
}

/// A session, and another that watches what it does to others.
struct Watched {
    session: PgConnection,
    watch: PgConnection,
    backend: Backend,
    /// For whom it waited last.
    behind: Option<Somebody>,
}

impl Watched {
    async fn open(database: &Database, role: Option<&Ident>) -> Result<Self> {
        let (mut session, watch) = (database.session("ebb/detach").await?, database.session("ebb/detach").await?);
        // Nobody would watch it any more: where the server can tell that we are gone, it ends.
        let _ = sqlx::raw_sql("SET client_connection_check_interval = '500ms'").execute(&mut session).await;
        let mut set = "SET lock_timeout = 0; SET search_path = pg_catalog".to_owned();
        if let Some(role) = role {
            set += &format!("; SET ROLE {role}");
        }
        sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut session).await?;
        let (pid, name) = sqlx::query_as("SELECT pg_backend_pid(), current_setting('application_name')")
            .persistent(false)
            .fetch_one(&mut session)
            .await?;
        Ok(Self { session, watch, backend: Backend { pid, name }, behind: None })
    }

    /// Runs a statement for as long as there is time, and nobody has to wait behind it for longer than a moment.
    async fn run(&mut self, sql: String, within: Duration, moment: Duration) -> Result<Ended> {
        let bound = format!("SET statement_timeout = {}", within.as_millis());
        sqlx::raw_sql(AssertSqlSafe(bound)).execute(&mut self.session).await?;
        let run = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.session);
        tokio::pin!(run);
        let mut gave_way = false;
        loop {
            tokio::select! {
                done = &mut run => return Ok(match done.map_err(Error::from) {
                    Ok(_) => Ended::Done,
                    Err(error) if error.is_contended() || error.sqlstate().as_deref() == Some("57014") => Ended::GaveWay(error),
                    Err(error) => Ended::Failed(error),
                }),
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let behind =
                sql!("waits_behind" as Somebody).bind(self.backend.pid).fetch_optional(&mut self.watch).await?;
            self.behind = behind.or(self.behind.take());
            let blocks = sql!("blocks_others" scalar bool).bind(self.backend.pid).bind(moment.as_millis() as i64);
            if !gave_way && blocks.fetch_one(&mut self.watch).await? {
                spine::store::cancel(&mut self.watch, &self.backend).await?;
                gave_way = true;
            }
        }
    }

    fn in_vain(&self) -> String {
        match &self.behind {
            Some(who) => format!("{GAVE_WAY} ({who})"),
            None => GAVE_WAY.to_owned(),
        }
    }
}
