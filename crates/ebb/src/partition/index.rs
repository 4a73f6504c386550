//! An index built while others are at work. Invariants: what a killed build left behind goes first; beside others it takes
//! one core; and where the role may, its pages go to the disk as they come. Up to 16 the server syncs a whole new index
//! at its end, and whoever commits meanwhile waits for the disk behind all of it.

use std::time::{Duration, Instant};

use sqlx::AssertSqlSafe;

use super::adopt::store as adoptions;
use super::adopt::{Progress, Session};
use super::store::{self, IndexFile};
use crate::pg::{Database, Relation};
use crate::{Error, Result};

/// How often its pages go to the disk, and how often somebody is told how far it is.
const SYNC_EVERY: Duration = Duration::from_millis(100);
const TELL_EVERY: Duration = Duration::from_millis(500);
/// How long somebody's older view of the tables is waited for.
const OUTLAST_FOR: Duration = Duration::from_secs(600);

/// Builds an index by its statement, unless it is there.
pub(crate) async fn build(
    session: &mut Session,
    index: &Relation,
    sql: String,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let (schema, name) = (index.schema.as_str(), index.name.as_str());
    match adoptions::index(&mut session.connection, schema, name).await? {
        Some(true) => return Ok(()),
        Some(false) => {
            let drop = format!("DROP INDEX CONCURRENTLY {index}");
            sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut session.connection).await?;
        }
        None => {}
    }
    share_cores(session).await?;
    let (database, pid) = (session.database.clone(), session.pid);
    let mut files = Files::new(&database, index).await?;
    let mut told = Instant::now();
    let build = async { Ok::<_, Error>(sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session.connection).await?) };
    tokio::pin!(build);
    loop {
        tokio::select! {
            built = &mut build => {
                built?;
                return Ok(());
            }
            () = tokio::time::sleep(SYNC_EVERY) => {}
        }
        files.sync().await;
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            let mut tx = database.read().await?;
            if let Some((share, phase)) = adoptions::index_progress(&mut tx, pid).await? {
                watch(Progress::Share(share, phase));
            }
            tx.commit().await?;
        }
    }
}

/// Runs a statement outside of a transaction; while it builds an index concurrently, says how far it is and for whom it
/// waits.
pub(crate) async fn tell(session: &mut Session, sql: String, watch: &mut (dyn FnMut(Progress) + Send)) -> Result<()> {
    let (database, pid) = (session.database.clone(), session.pid);
    let run = async { Ok::<_, Error>(sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut session.connection).await?) };
    tokio::pin!(run);
    loop {
        tokio::select! {
            done = &mut run => return done.map(|_| ()),
            () = tokio::time::sleep(TELL_EVERY) => {}
        }
        let mut tx = database.read().await?;
        if let Some((share, phase)) = adoptions::index_progress(&mut tx, pid).await? {
            watch(Progress::Share(share, phase));
        }
        tx.commit().await?;
    }
}

/// The statements that end when nobody sees any more what was there before them: a transaction that keeps one view of all
/// tables would miss rows that have moved since it began. Building an index concurrently waits for those, whoever they are;
/// a table that nobody knows keeps it from waiting for others.
pub(crate) fn outlast_sql(scratch: &Relation) -> Vec<String> {
    vec![
        format!("DROP TABLE IF EXISTS {scratch}"),
        format!("CREATE TABLE {scratch} (n int)"),
        format!("CREATE INDEX CONCURRENTLY ON {scratch} (n)"),
        format!("DROP TABLE {scratch}"),
    ]
}

/// Runs them, for a while: says for whom it waits, and in the end who has outlasted it.
pub(crate) async fn outlast(
    session: &mut Session,
    sql: &[String],
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    let bound = format!("SET statement_timeout = {}", OUTLAST_FOR.as_millis());
    sqlx::raw_sql(AssertSqlSafe(bound)).execute(&mut session.connection).await?;
    let (mut whom, mut ended) = (None, Ok(()));
    for statement in sql {
        let mut told = |progress| {
            if let Progress::Share(_, words) = &progress
                && words.contains("behind pid")
            {
                whom = Some(words.clone());
            }
            watch(progress);
        };
        ended = tell(session, statement.clone(), &mut told).await;
        if ended.is_err() {
            break;
        }
    }
    sqlx::raw_sql("SET statement_timeout = 0").execute(&mut session.connection).await?;
    ended.map_err(|error| match error.sqlstate().as_deref() {
        Some("57014") => Error::refused(format!(
            "a transaction still sees the rows where they were before, and has done so for {} minutes ({})",
            OUTLAST_FOR.as_secs() / 60,
            whom.unwrap_or_else(|| "the server does not say which".into())
        ))
        .with_hint("run it again when that transaction is over; what is done stays done"),
        _ => error,
    })
}

/// Alone on the server an index is built as the server is set to; beside others without helpers, each of which would take
/// a core from them.
pub(crate) async fn share_cores(session: &mut Session) -> Result<()> {
    let sql = match store::others_at_work(&mut session.connection).await? {
        true => "SET max_parallel_maintenance_workers = 0",
        false => "RESET max_parallel_maintenance_workers",
    };
    sqlx::raw_sql(sql).execute(&mut session.connection).await?;
    Ok(())
}

/// The files of an index that grows.
struct Files<'a> {
    database: &'a Database,
    index: &'a Relation,
    may_sync: bool,
    synced: i64,
}

impl<'a> Files<'a> {
    async fn new(database: &'a Database, index: &'a Relation) -> Result<Self> {
        let mut tx = database.read().await?;
        let may_sync = store::may_sync(&mut tx).await?;
        tx.commit().await?;
        Ok(Self { database, index, may_sync, synced: 0 })
    }

    /// What is new since the last time. The build does not depend on it, so trouble ends only this.
    async fn sync(&mut self) {
        if !self.may_sync {
            return;
        }
        if let Err(error) = self.try_sync().await {
            tracing::warn!(index = %self.index, %error, "Cannot write the new index to the disk as it comes");
            self.may_sync = false;
        }
    }

    async fn try_sync(&mut self) -> Result<()> {
        let mut tx = self.database.read().await?;
        let file = store::index_file(&mut tx, self.index).await?;
        if let Some(file @ IndexFile { bytes, .. }) = file.filter(|file| file.bytes > self.synced) {
            for name in file.names(self.synced) {
                store::sync_file(&mut tx, &name).await?;
            }
            self.synced = bytes;
        }
        tx.commit().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_segments_that_have_grown_are_synced() {
        let file = |bytes| IndexFile { path: "base/5/7".into(), bytes, segment_bytes: 100 };
        assert_eq!(file(40).names(0), ["base/5/7"]);
        assert_eq!(file(250).names(80), ["base/5/7", "base/5/7.1", "base/5/7.2"]);
        assert_eq!(file(250).names(100), ["base/5/7.1", "base/5/7.2"]);
        assert_eq!(file(200).names(120), ["base/5/7.1"], "a full segment has no empty one behind it");
    }
}
