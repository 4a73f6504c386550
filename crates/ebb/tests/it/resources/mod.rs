//! resources: live exactly as long as someone refers to them.

mod chores;
mod clickhouse;
mod failures;
mod lifecycle;
mod model;
mod objects;
mod peers;
mod protocol;
mod python;
mod sweep;

use std::time::Duration;

use ebb::spine::{Finished, Status};
use uuid::Uuid;

use crate::harness::Ebb;

/// A registry over the tables of schema `scratch` of the same database.
pub(super) struct Registry {
    pub(super) ebb: Ebb,
}

/// A snowflake of some moment ago, as ClickHouse makes them; `n` tells those of one moment apart.
pub(super) fn name(ago: Duration, n: u64) -> String {
    let millis = jiff::Timestamp::now().as_millisecond() as u64 - ago.as_millis() as u64;
    format!("t{}", (millis << 22) + n)
}

pub(super) fn policy(more: &str) -> String {
    format!(
        "[[resources]]\nname = \"s\"\ndriver = \"postgres\"\nschema = \"scratch\"\npattern = \"t{{snowflake}}\"\n{more}\n"
    )
}

/// Databases of tests are clones, and clones are one installation.
pub(super) async fn another_installation() -> Ebb {
    Ebb::with("UPDATE ebb.installation SET id = gen_random_uuid()").await
}

impl Registry {
    /// With a grace of an hour, which only a moved clock makes pass.
    pub(super) async fn new() -> Self {
        Self::with("grace = \"1h\"").await
    }

    pub(super) async fn with(more: &str) -> Self {
        let ebb = Ebb::with("CREATE SCHEMA scratch").await;
        ebb.apply(&policy(more)).await;
        Self { ebb }
    }

    pub(super) async fn holder(&self, term: &str) -> Uuid {
        self.ebb.db.scalar(&format!("SELECT ebb.holder_open('worker', '{term}')")).await
    }

    /// Announces a resource, makes it, says so.
    pub(super) async fn create(&self, name: &str, holder: Uuid) {
        self.intend(name, holder).await;
        self.make(name).await;
        let live: bool = self.ebb.db.scalar(&format!("SELECT ebb.created('s', '{name}')")).await;
        assert!(live, "{name} was given up before it was made");
    }

    pub(super) async fn intend(&self, name: &str, holder: Uuid) {
        self.ebb.db.execute(&format!("SELECT ebb.create_intent('s', '{name}', '{holder}')")).await;
    }

    pub(super) async fn make(&self, name: &str) {
        self.ebb.db.execute(&format!("CREATE TABLE scratch.{name} (x int)")).await;
    }

    pub(super) async fn incref(&self, name: &str, holder: Uuid) -> bool {
        self.ebb.db.scalar(&format!("SELECT ebb.incref('s', '{name}', '{holder}')")).await
    }

    pub(super) async fn decref(&self, name: &str, holder: Uuid) {
        self.ebb.db.execute(&format!("SELECT ebb.decref('s', '{name}', '{holder}')")).await;
    }

    pub(super) async fn state(&self, name: &str) -> String {
        self.ebb
            .db
            .scalar(&format!("SELECT coalesce((SELECT state FROM ebb.resource WHERE name = '{name}'), '-')"))
            .await
    }

    pub(super) async fn refs(&self, name: &str) -> i64 {
        self.ebb
            .db
            .scalar(&format!(
                "SELECT count(*) FROM ebb.reference f JOIN ebb.resource r ON r.id = f.resource WHERE r.name = '{name}'"
            ))
            .await
    }

    /// The tables that are left, in order.
    pub(super) async fn tables(&self) -> String {
        self.ebb
            .db
            .scalar(
                "SELECT coalesce(string_agg(tablename, ',' ORDER BY tablename), '') FROM pg_tables
                 WHERE schemaname = 'scratch' AND tablename <> 'ebb_owner'",
            )
            .await
    }

    /// One pass of a chore.
    pub(super) async fn pass(&self, chore: &str) -> Finished {
        let finished = self.ebb.once(&format!("s:{chore}")).await;
        assert!(finished.held.is_empty() && finished.runs.len() <= 1, "{finished:?}");
        finished
    }

    /// One pass that must go well; how many resources went.
    pub(super) async fn passes(&self, chore: &str) -> u64 {
        let finished = self.pass(chore).await;
        finished.runs.first().map_or(0, |run| {
            assert_eq!(run.status, Status::Success, "{run:?}");
            run.rows
        })
    }

    /// One pass that must fail; why it did.
    pub(super) async fn fails(&self, chore: &str) -> String {
        let finished = self.pass(chore).await;
        let run = finished.runs.into_iter().next().unwrap();
        assert_eq!(run.status, Status::Failed, "{run:?}");
        run.note.unwrap()
    }

    /// Ends what is dead.
    pub(super) async fn end_dead(&self) -> u64 {
        let finished = self.ebb.once("keep:holders").await;
        finished.runs.first().map_or(0, |run| run.rows)
    }

    /// Makes a holder's term run out, `thirds` of it ago.
    pub(super) async fn kill(&self, holder: Uuid, thirds: &str) {
        self.ebb
            .db
            .execute(&format!(
                "UPDATE ebb.holder SET expires_at = clock_timestamp() - term * {thirds} / 3,
                     collect_at = clock_timestamp() - term * {thirds} / 3 + term / 3 WHERE id = '{holder}'"
            ))
            .await;
    }

    pub(super) async fn confirm(&self) {
        let mut tx = self.ebb.engine.database().read().await.unwrap();
        ebb::resources::confirm(&mut tx, "s", "test").await.unwrap();
        tx.commit().await.unwrap();
    }

    /// The audit's records of an action: how many resources.
    pub(super) async fn audited(&self, action: &str) -> i64 {
        self.ebb
            .db
            .scalar(&format!(
                "SELECT coalesce(sum(rows), 0)::int8 FROM ebb.audit WHERE action = '{action}' AND policy = 's'"
            ))
            .await
    }
}
