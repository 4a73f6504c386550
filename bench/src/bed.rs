//! The test bed: a server of its own with durable settings, tables in time order or shuffled, an engine on it.

use std::fmt;
use std::time::Duration;

use ebb::config::{Config, Env};
use ebb::pg::{Database, Target};
use ebb::policy::Wanted;
use ebb::spine::{NodeOptions, Shutdown, Summary};
use ebb::{Engine, Keys};
use ebb_testkit::{Mode, Server, TestDatabase};

/// Whatever went wrong ends the benchmark.
pub(crate) type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// What was to be reached, and what was.
#[derive(Debug, Clone)]
pub(crate) struct Goal {
    what: String,
    measured: f64,
    least: Option<f64>,
    most: Option<f64>,
}

impl Goal {
    pub(crate) fn at_least(what: impl Into<String>, measured: f64, least: f64) -> Self {
        Self { what: what.into(), measured, least: Some(least), most: None }
    }

    /// What others do: shown, not judged.
    pub(crate) fn beside(what: impl Into<String>, measured: f64) -> Self {
        Self { what: what.into(), measured, least: None, most: None }
    }

    pub(crate) fn at_most(what: impl Into<String>, measured: f64, most: f64) -> Self {
        Self { what: what.into(), measured, least: None, most: Some(most) }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (goal, reached) = match (self.least, self.most) {
            (Some(least), _) => (format!("at least {least}"), self.measured >= least),
            (_, Some(most)) => (format!("at most {most}"), self.measured <= most),
            _ => return write!(f, "| {} | {:.2} | | |", self.what, self.measured),
        };
        let mark = if reached { "reached" } else { "missed" };
        write!(f, "| {} | {:.2} | {goal} | {mark} |", self.what, self.measured)
    }
}

/// A server, a database, an engine.
pub(crate) struct Bed {
    pub(crate) server: Server,
    pub(crate) database: TestDatabase,
    pub(crate) engine: Engine,
}

impl Bed {
    /// Durable settings; checkpoints and autovacuum out of the way of either side.
    pub(crate) async fn new() -> Result<Self> {
        let server = ebb_testkit::own_server();
        server.set(
            "fsync = on\nfull_page_writes = on\nsynchronous_commit = on\nshared_buffers = 4GB\nmax_wal_size = 32GB\n\
             checkpoint_timeout = 1h\nautovacuum = off\nmaintenance_work_mem = 512MB\nwork_mem = 64MB",
        );
        if tells_statements() {
            server.set(
                "shared_preload_libraries = pg_stat_statements\npg_stat_statements.track = all\n\
                 pg_stat_statements.track_planning = on",
            );
        }
        server.restart(Mode::Fast);
        let database = ebb_testkit::empty_database_on(&server).await;
        if tells_statements() {
            database.execute("CREATE EXTENSION pg_stat_statements").await;
        }
        let pool = Database::open(Target::parse(database.socket_url(), None)?, 8, "ebb/bench");
        let engine = Engine::new(pool, Keys::default());
        engine.migrate().await?;
        Ok(Self { server, database, engine })
    }

    /// Whoever prepared the measurement has been at work a moment ago, and counts as company for half a second: not beside them is measured.
    pub(crate) async fn left_alone() {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }

    /// Forgets what statements took so far.
    pub(crate) async fn forget_statements(&self) {
        if tells_statements() {
            self.database.execute("SELECT pg_stat_statements_reset()").await;
        }
    }

    /// What statements have taken since: `EBB_BENCH_STATEMENTS=1` asks for it.
    pub(crate) async fn tell_statements(&self) {
        if !tells_statements() {
            return;
        }
        let told: String = self
            .database
            .scalar(
                "SELECT string_agg(format('%s ms (%s planning), %s calls, %s rows: %s', round(ms), round(planning), calls, rows, text), E'\\n')
                 FROM (SELECT s.total_exec_time::numeric + s.total_plan_time::numeric AS ms, s.total_plan_time::numeric AS planning, s.calls, s.rows,
                              left(regexp_replace(s.query, '\\s+', ' ', 'g'), 150) AS text
                       FROM pg_stat_statements s WHERE s.toplevel ORDER BY 1 DESC LIMIT 40) s",
            )
            .await;
        println!("{told}");
    }

    /// Applies policies written as in the file.
    pub(crate) async fn apply(&self, policies: &str) -> Result<()> {
        let config = Config::from_str(policies, "bench.toml", &Env::from_iter(Vec::<(String, String)>::new()))?;
        let wanted: Vec<Wanted> = config
            .policies
            .into_iter()
            .map(|p| Wanted { kind: p.kind, name: p.name, spec: p.spec, policy: p.policy })
            .collect();
        self.engine.apply(&wanted, true, "bench").await?;
        Ok(())
    }

    /// Runs one policy once.
    pub(crate) async fn sweep(&self, policy: &str) -> Result<Summary> {
        let options = NodeOptions { only: vec![policy.parse()?], ..NodeOptions::default() };
        Self::left_alone().await;
        let finished = self.engine.node(options, Shutdown::new()).run_once(Duration::ZERO).await?;
        finished.runs.into_iter().next().ok_or_else(|| "the policy did not run".into())
    }

    /// A fresh table `name` with `live` rows to come and `due` rows past their time, and two indexes.
    pub(crate) async fn fill(&self, name: &str, due: u64, live: u64, shuffled: bool) -> Result<()> {
        let order = if shuffled { "md5(i::text)" } else { "i" };
        self.database
            .execute(&format!(
                "DROP TABLE IF EXISTS {name};
                 CREATE TABLE {name} (key text NOT NULL, payload bigint NOT NULL, expires_at timestamptz NOT NULL);
                 INSERT INTO {name}
                 SELECT md5(i::text), i, now() + (i - {due}) * interval '100 milliseconds'
                     + CASE WHEN i > {due} THEN interval '30 days' ELSE interval '-1 hour' END
                 FROM generate_series(1, {due} + {live}) AS i ORDER BY {order};
                 ALTER TABLE {name} ADD PRIMARY KEY (key);
                 CREATE INDEX {name}_expires_at ON {name} (expires_at)"
            ))
            .await;
        self.database.execute(&format!("VACUUM (ANALYZE, FREEZE) {name}")).await;
        self.database.execute("CHECKPOINT").await;
        Ok(())
    }

    /// The p-th quantile of the time between two commits of a run, in milliseconds.
    pub(crate) async fn batch_ms(&self, policy: &str, quantile: f64) -> Result<f64> {
        Ok(self
            .database
            .scalar::<Option<f64>>(&format!(
                "SELECT percentile_cont({quantile}) WITHIN GROUP (ORDER BY gap)::float8 FROM (
                     SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY id)) * 1000 AS gap FROM ebb.audit
                     WHERE run = (SELECT max(id) FROM ebb.run WHERE policy = '{policy}')) AS batches"
            ))
            .await
            .unwrap_or_default())
    }
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn tells_statements() -> bool {
    std::env::var_os("EBB_BENCH_STATEMENTS").is_some()
}
