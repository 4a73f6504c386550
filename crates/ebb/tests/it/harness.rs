//! The engine as an embedder drives it: a text becomes policies, policies are applied, a node does what is due.

use std::path::Path;
use std::time::Duration;

use ebb::audit::{PeriodKeys, SubjectKey};
use ebb::config::{Config, Env};
use ebb::pg::Database;
use ebb::policy::{Change, Wanted};
use ebb::spine::{Finished, NodeOptions, Shutdown, Status, Summary};
use ebb::{Engine, Keys, Result};
use ebb_testkit::{TempDir, TestDatabase, database, eventually};
use sqlx::postgres::{PgConnection, Postgres};
use sqlx::{AssertSqlSafe, Connection};

/// Long enough for anything that happens at all.
pub(crate) const SOON: Duration = Duration::from_secs(180);

/// An engine on a database of its own.
pub(crate) struct Ebb {
    pub(crate) db: TestDatabase,
    pub(crate) engine: Engine,
    keys: TempDir,
}

impl Ebb {
    pub(crate) async fn new() -> Self {
        Self::on(database().await).await
    }

    /// With statements that make the tables.
    pub(crate) async fn with(sql: &str) -> Self {
        let ebb = Self::new().await;
        ebb.db.execute(sql).await;
        ebb
    }

    pub(crate) async fn on(db: TestDatabase) -> Self {
        let opened = db.open();
        Self::through(db, opened).await
    }

    /// An engine that reaches the database in its own way.
    pub(crate) async fn through(db: TestDatabase, opened: Database) -> Self {
        let keys = TempDir::new();
        let engine = engine(opened, keys.path());
        Self { db, engine, keys }
    }

    /// Another engine on the same keys, as another process would have it.
    pub(crate) fn another(&self, opened: Database) -> Engine {
        engine(opened, self.keys())
    }

    /// The directory of its keys.
    pub(crate) fn keys(&self) -> &Path {
        self.keys.path()
    }

    /// Where its period keys are.
    pub(crate) fn period_keys(&self) -> PeriodKeys {
        period_keys(self.keys())
    }

    pub(crate) async fn try_apply(&self, config: &str) -> Result<Vec<Change>> {
        self.engine.apply(&wanted(config)?, false, "test").await
    }

    pub(crate) async fn apply(&self, config: &str) -> Vec<Change> {
        self.try_apply(config).await.unwrap()
    }

    /// Applies one expire policy `t` on table `t` by column `at`, with more keys.
    pub(crate) async fn policy(&self, more: &str) {
        self.apply(&policy(more)).await;
    }

    /// Does what is due of one policy, as `ebb run --once --only NAME`.
    pub(crate) async fn once(&self, name: &str) -> Finished {
        run_once(&self.engine, &[name]).await.unwrap()
    }

    /// Applies policy `t` and runs it; the only run's summary.
    pub(crate) async fn sweep(&self, more: &str) -> Summary {
        self.policy(more).await;
        self.again().await
    }

    /// Runs policy `t` once more.
    pub(crate) async fn again(&self) -> Summary {
        let finished = self.once("t").await;
        assert_eq!(finished.runs.len(), 1, "{finished:?}");
        finished.runs.into_iter().next().unwrap()
    }

    /// A node that runs until it is dropped or stopped.
    pub(crate) fn start(&self, only: &[&str]) -> Running {
        Running::new(&self.engine, only)
    }

    /// The values of a column of all rows, in order, joined by commas.
    pub(crate) async fn list(&self, column: &str, table: &str) -> String {
        self.db
            .scalar(&format!("SELECT COALESCE(string_agg({column}::text, ',' ORDER BY {column}), '') FROM {table}"))
            .await
    }

    /// The ids that are left in `t`.
    pub(crate) async fn left(&self) -> String {
        self.list("id", "t").await
    }

    /// How many rows of the audit's expire records of policy `t` there were.
    pub(crate) async fn audited(&self) -> i64 {
        self.db
            .scalar("SELECT COALESCE(sum(rows), 0)::int8 FROM ebb.audit WHERE action = 'expire' AND policy = 't'")
            .await
    }

    /// Waits until a question is answered with yes.
    pub(crate) async fn until(&self, question: &str) {
        let question = format!("SELECT COALESCE(({question}), false)");
        eventually(SOON, || self.db.scalar::<bool>(&question)).await;
    }

    /// A connection of another program.
    pub(crate) async fn client(&self) -> PgConnection {
        PgConnection::connect(self.db.url()).await.unwrap()
    }

    /// Moves the database's clock to a moment.
    pub(crate) async fn set_clock(&self, moment: &str) {
        self.db.advance("0").await;
        self.db
            .execute(&format!("UPDATE ebb.clock_offset SET shift = timestamptz '{moment}' - pg_catalog.now()"))
            .await;
    }
}

/// An engine whose keys are in a directory.
pub(crate) fn engine(opened: Database, keys: &Path) -> Engine {
    let subject = keys.join("subject.key");
    SubjectKey::create_if_missing(&subject).unwrap();
    let period = period_keys(keys);
    period.create_directory().unwrap();
    let period = Some(period.directory().to_owned());
    Engine::new(opened, Keys { subject: Some(subject), period, ..Keys::default() })
}

fn period_keys(keys: &Path) -> PeriodKeys {
    PeriodKeys::at(keys.join("periods"))
}

/// What a file with this text asks for.
pub(crate) fn wanted(config: &str) -> Result<Vec<Wanted>> {
    let config = Config::from_str(config, "ebb.toml", &Env::default())?;
    let wanted = config.policies.into_iter();
    Ok(wanted.map(|p| Wanted { kind: p.kind, name: p.name, spec: p.spec, policy: p.policy }).collect())
}

/// One expire policy `t` on table `t` by column `at`. The brake is off unless `more` has one.
pub(crate) fn policy(more: &str) -> String {
    let brake = if more.contains("brake") { "" } else { "brake = { share = \"off\" }" };
    format!("[[expire]]\nname = \"t\"\ntable = \"public.t\"\ncolumn = \"at\"\n{brake}\n{more}")
}

pub(crate) async fn run_once(engine: &Engine, only: &[&str]) -> Result<Finished> {
    engine.node(options(only), Shutdown::new()).run_once(SOON).await
}

pub(crate) fn options(only: &[&str]) -> NodeOptions {
    NodeOptions {
        name: "n".into(),
        only: only.iter().map(|name| name.parse().unwrap()).collect(),
        ..NodeOptions::default()
    }
}

/// A node at work in the background; stops when dropped.
pub(crate) struct Running {
    shutdown: Shutdown,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl Running {
    pub(crate) fn new(engine: &Engine, only: &[&str]) -> Self {
        let shutdown = Shutdown::new();
        let task = tokio::spawn(engine.node(options(only), shutdown.clone()).run());
        Self { shutdown, task }
    }

    pub(crate) async fn stop(mut self) {
        self.shutdown.stop();
        (&mut self.task).await.unwrap().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

/// A statement of another program.
pub(crate) async fn execute(client: &mut PgConnection, sql: &str) {
    if let Err(error) = sqlx::raw_sql(AssertSqlSafe(sql)).execute(client).await {
        panic!("{error}\nin: {sql}");
    }
}

pub(crate) async fn fetch<T>(client: &mut PgConnection, sql: &str) -> T
where
    T: for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres> + Send + Unpin,
{
    sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(client).await.unwrap()
}

/// A run that did all it had to.
#[track_caller]
pub(crate) fn succeeded(summary: &Summary, rows: u64) {
    assert_eq!((summary.status, summary.rows, summary.skipped), (Status::Success, rows, 0), "{summary:?}");
}
