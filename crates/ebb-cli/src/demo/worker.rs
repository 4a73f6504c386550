//! A worker that crashes: a process of its own announces and makes scratch tables, and is killed with SIGKILL while another
//! one refers to some of them. Invariant: what is told at the end was counted in the catalog, not assumed.

use std::process::Stdio;
use std::time::{Duration, Instant};

use ebb::pg::{Database, Target};
use ebb::resources::{Handle, LifecycleHandler, PostgresHandler, Worker};
use ebb::spine::Shutdown;
use ebb::{Error, Result};
use serde_json::json;
use sqlx::ConnectOptions;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::store;
use crate::cli::Outcome;

/// The policy that looks after the tables, in `ebb.toml`.
pub(crate) const POLICY: &str = "scratch-tables";
/// How many the worker makes, and how many of them another one refers to.
const MADE: usize = 20;
const SHARED: usize = 5;
/// Where the process finds the demo's server.
const URL: &str = "EBB_DEMO_URL";
/// Long enough for a term, the pass over holders and the grace, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The worker itself: makes its tables, says so, and works on them until it is killed.
pub(crate) async fn work() -> Result<Outcome> {
    let Ok(url) = std::env::var(URL) else {
        return Err(Error::usage("the demo starts its workers by itself").with_hint("run `ebb demo`"));
    };
    let database = Database::open(Target::parse(&url, None)?, 2, "demo-worker");
    let worker = Worker { term: Duration::from_secs(3), ..Worker::new("worker 1") };
    let handler = PostgresHandler::start(database.clone(), POLICY, worker).await?;
    let mut held = Vec::new();
    for n in 0..MADE {
        let name = store::scratch_name(&database, n).await?;
        let handle = handler.announce(&name, json!({ "job": "demo" })).await?;
        store::make_scratch(&database, &name).await?;
        handler.created(&handle, None).await?;
        held.push(handle);
    }
    say!("ready");
    std::future::pending().await
}

/// What is left of a crash.
pub(crate) struct Crash {
    other: PostgresHandler,
    shared: Vec<Handle>,
}

impl Crash {
    /// Starts a worker, refers to some of its tables as another would, and kills it in mid-task.
    pub(crate) async fn cause(database: &Database) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| Error::failed(error.to_string()))?;
        let url = database.target().options().to_url_lossy();
        let mut process = Command::new(program)
            .args(["demo", "worker"])
            .env(URL, url.as_str())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::failed(format!("no worker: {error}")))?;
        let said = match process.stdout.take() {
            Some(stdout) => BufReader::new(stdout).lines().next_line().await,
            None => Ok(None),
        };
        if !matches!(said.as_ref().map(Option::as_deref), Ok(Some("ready"))) {
            return Err(Error::failed("the demo's worker ended before it had made its tables"));
        }
        let own = Database::open(database.target().clone(), 2, "demo-worker");
        let other = PostgresHandler::start(own, POLICY, Worker::new("worker 2")).await?;
        let names = store::scratch_tables(database).await?;
        let shared: Vec<Handle> = names.iter().take(SHARED).map(|name| other.incref(name)).collect();
        other.flush().await?;
        for handle in &shared {
            handle.name()?;
        }
        process.kill().await.map_err(|error| Error::failed(error.to_string()))?;
        Ok(Self { other, shared })
    }

    /// Waits until what only the dead one referred to is gone, lets go of the rest, and waits again.
    pub(crate) async fn clear(self, database: &Database, shutdown: &Shutdown) -> Result<Cleared> {
        let begun = Instant::now();
        let gone = left(database, shutdown, SHARED).await?;
        let after = begun.elapsed().as_secs_f64();
        let usable = self.shared.iter().filter(|handle| handle.name().is_ok()).count();
        drop(self.shared);
        self.other.stop().await?;
        let none = gone && left(database, shutdown, 0).await?;
        Ok(match none && usable == SHARED {
            true => Cleared::Whole(format!(
                "scratch tables: a worker was killed with {MADE} of them; {} went when its term was over ({after:.0} s), \
                 {SHARED} stayed until another worker let go, none is left",
                MADE - SHARED
            )),
            false => Cleared::Left(format!(
                "scratch tables: {} are left of a worker that was killed, and {usable} of {SHARED} could be used",
                store::scratch_tables(database).await?.len()
            )),
        })
    }
}

/// What became of a crash, in words.
pub(crate) enum Cleared {
    Whole(String),
    Left(String),
}

/// Waits until so many tables are left; false when it took too long, or fewer are.
async fn left(database: &Database, shutdown: &Shutdown, wanted: usize) -> Result<bool> {
    let begun = Instant::now();
    loop {
        let now = store::scratch_tables(database).await?.len();
        if now <= wanted || begun.elapsed() > PATIENCE || shutdown.sleep(LOOK_EVERY).await {
            return Ok(now == wanted);
        }
    }
}
