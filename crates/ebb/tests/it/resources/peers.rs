//! The processes of the model, and the store they share: each is this test program once more, told what to do line by
//! line, so that it can be killed and frozen at any step of a real handler or a real node.

use std::collections::HashMap;
use std::process::Command;

use ebb::Engine;
use ebb::pg::{Database, Target};
use ebb::resources::{Handle, LifecycleHandler, PostgresHandler, Worker};
use ebb_testkit::{Peer, request};
use serde_json::json;
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Row};

use crate::harness::run_once;

/// Where tables are made: a schema of the database, or a database of a ClickHouse.
#[derive(Debug, Clone)]
pub(super) enum Shop {
    Schema(PgPool),
    House { port: u16, database: String },
}

impl Shop {
    /// As the environment of a process names it.
    fn from_env() -> Self {
        match std::env::var("EBB_SHOP").unwrap().split_once(' ') {
            Some((port, database)) => Self::House { port: port.parse().unwrap(), database: database.to_owned() },
            None => Self::Schema(PgPool::connect_lazy(&std::env::var("EBB_URL").unwrap()).unwrap()),
        }
    }

    fn to_env(&self) -> String {
        match self {
            Self::Schema(_) => "schema".into(),
            Self::House { port, database } => format!("{port} {database}"),
        }
    }

    async fn lines(&self, sql: &str) -> Vec<String> {
        match self {
            Self::Schema(pool) => {
                let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(pool).await;
                rows.unwrap_or_else(|error| panic!("{error}\nin: {sql}")).iter().map(|row| row.get(0)).collect()
            }
            Self::House { port, .. } => {
                let (status, body) = request(*port, "POST", "/", sql).await;
                assert_eq!(status, 200, "{body}\nin: {sql}");
                body.lines().map(str::to_owned).collect()
            }
        }
    }

    pub(super) async fn make(&self, name: &str) {
        let sql = match self {
            Self::Schema(_) => format!("CREATE TABLE scratch.{name} (x int)"),
            Self::House { database, .. } => {
                format!("CREATE TABLE {database}.{name} (x UInt32) ENGINE = MergeTree ORDER BY x")
            }
        };
        self.lines(&sql).await;
    }

    pub(super) async fn unmake(&self, name: &str) {
        let sql = match self {
            Self::Schema(_) => format!("DROP TABLE IF EXISTS scratch.{name}"),
            Self::House { database, .. } => format!("DROP TABLE IF EXISTS {database}.{name}"),
        };
        self.lines(&sql).await;
    }

    /// What the store calls it, where it has such a thing.
    async fn id(&self, name: &str) -> Option<String> {
        match self {
            // It may be gone: whoever slept through its term is late.
            Self::Schema(_) => {
                let sql = format!("SELECT coalesce(to_regclass('scratch.{name}')::oid::text, '')");
                self.lines(&sql).await.pop().filter(|id| !id.is_empty())
            }
            Self::House { .. } => None,
        }
    }

    /// Every table that is there.
    pub(super) async fn names(&self) -> Vec<String> {
        let sql = match self {
            Self::Schema(_) => "SELECT tablename::text FROM pg_tables WHERE schemaname = 'scratch'".to_owned(),
            Self::House { database, .. } => format!("SELECT name FROM system.tables WHERE database = '{database}'"),
        };
        let mut names = self.lines(&sql).await;
        names.retain(|name| name != "ebb_owner");
        names
    }
}

/// Starts a process; it says `ready` first, a worker with its holder.
pub(super) fn start(role: &str, url: &str, shop: &Shop) -> Peer {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "resources::peers::play", "--nocapture", "--test-threads", "1"]);
    command.env("EBB_ROLE", role).env("EBB_URL", url).env("EBB_SHOP", shop.to_env());
    Peer::spawn(command)
}

/// Does what its input says until it ends, and answers every line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process of the model, which starts it by itself"]
async fn play() {
    let role = std::env::var("EBB_ROLE").expect("only the model starts it");
    let url = std::env::var("EBB_URL").unwrap();
    let mut lines = Peer::asked();
    if role == "node" {
        let engine = Engine::connect(&url).unwrap();
        Peer::answer("ready");
        while let Some(only) = lines.recv().await {
            match run_once(&engine, &[&only]).await {
                Ok(finished) => {
                    let run = finished.runs.first().map(|run| (run.status, run.note.as_deref().unwrap_or_default()));
                    Peer::answer(&format!("{run:?}"));
                }
                Err(error) => Peer::answer(&error.to_string()),
            }
        }
        return;
    }
    let mut hand = Hand::open(&url).await;
    Peer::answer(&hand.handler.holder().to_string());
    while let Some(line) = lines.recv().await {
        let (verb, name) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = hand.obey(verb, name, &url).await.unwrap_or_else(|error| format!("no: {error}"));
        Peer::answer(&answer);
    }
}

/// A worker: its handler and the handles it has.
struct Hand {
    handler: PostgresHandler,
    handles: HashMap<String, Vec<Handle>>,
    shop: Shop,
}

impl Hand {
    async fn open(url: &str) -> Self {
        let database = Database::open(Target::parse(url, None).unwrap(), 2, "ebb/worker");
        let worker = Worker { term: std::time::Duration::from_secs(600), ..Worker::new("player") };
        let handler = PostgresHandler::start(database, "s", worker).await.unwrap();
        Self { handler, handles: HashMap::new(), shop: Shop::from_env() }
    }

    async fn obey(&mut self, verb: &str, name: &str, url: &str) -> ebb::Result<String> {
        match verb {
            "create" => {
                let handle = self.handler.announce(name, json!({ "job": "model" })).await?;
                self.shop.make(name).await;
                let id = self.shop.id(name).await;
                if let Err(error) = self.handler.created(&handle, id.as_deref()).await {
                    self.shop.unmake(name).await;
                    return Err(error);
                }
                self.keep(name, handle);
            }
            "make" => self.shop.make(name).await,
            "refer" => {
                let handle = self.handler.incref(name);
                self.handler.flush().await?;
                handle.name()?;
                self.keep(name, handle);
            }
            // Queued, and nobody waits for it.
            "queue" => {
                let handle = self.handler.incref(name);
                self.keep(name, handle);
            }
            // From a thread that knows no runtime, as a destructor would.
            "clone" => {
                let handle = self.handles[name][0].clone();
                self.keep(name, std::thread::spawn(move || handle.clone()).join().unwrap());
            }
            "drop" => {
                let handle = self.handles.get_mut(name).and_then(Vec::pop);
                std::thread::spawn(move || drop(handle)).join().unwrap();
            }
            "use" => {
                let name = self.handles[name][0].name()?.to_owned();
                if !self.shop.names().await.contains(&name) {
                    return Ok("missing".into());
                }
            }
            "release" => {
                self.handles.clear();
                self.handler.flush().await?;
            }
            // Ends in order, or not at all where its holder is dead, and starts again.
            "restart" => {
                self.handles.clear();
                let _ = self.handler.stop().await;
                *self = Self::open(url).await;
                return Ok(self.handler.holder().to_string());
            }
            _ => panic!("{verb}?"),
        }
        Ok("ok".into())
    }

    fn keep(&mut self, name: &str, handle: Handle) {
        self.handles.entry(name.to_owned()).or_default().push(handle);
    }
}
