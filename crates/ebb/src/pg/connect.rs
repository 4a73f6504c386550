//! Connections. Invariant: every statement runs inside an explicit READ COMMITTED transaction in UTC whose time-outs
//! are set, so it means the same directly, through a transaction pooler, and whatever a role's defaults are.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions, Postgres};
use sqlx::{ConnectOptions, Connection, Row, Transaction};

use crate::{Error, Result};

/// Where the database is: what a URL, an embedded server or a test says.
#[derive(Debug, Clone)]
pub struct Target {
    options: PgConnectOptions,
    direct: Option<PgConnectOptions>,
}

impl Target {
    /// Parses the `url` of `[database]` and, when there is one, its `direct_url`.
    pub fn parse(url: &str, direct_url: Option<&str>) -> Result<Self> {
        let parse = |url: &str| {
            readable_certificates(url)?;
            PgConnectOptions::from_str(url).map_err(|error| {
                Error::config("the database URL cannot be read")
                    .with_hint("it looks like postgres://user:password@host:5432/database?sslmode=verify-full")
                    .with_source(error)
            })
        };
        let direct = direct_url.map(parse).transpose()?;
        Ok(Self::new(parse(url)?, direct))
    }

    /// Takes options made elsewhere.
    pub fn new(options: PgConnectOptions, direct: Option<PgConnectOptions>) -> Self {
        // A pooler may hand each transaction to another server process: nothing may live in the session.
        let plain = |options: PgConnectOptions| {
            options.extra_float_digits(None).statement_cache_capacity(0).disable_statement_logging()
        };
        Self { options: plain(options), direct: direct.map(plain) }
    }

    /// The options, for tools that open their own connection.
    pub fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// Whether a `direct_url` was given.
    pub fn has_direct(&self) -> bool {
        self.direct.is_some()
    }
}

/// The connection itself would only say that some file does not exist, and only when it is made.
fn readable_certificates(url: &str) -> Result<()> {
    for parameter in url.split(['?', '&']) {
        if let Some((name @ ("sslrootcert" | "sslcert" | "sslkey"), path)) = parameter.split_once('=')
            && !path.contains(['%', '+'])
            && let Err(error) = std::fs::File::open(path)
        {
            return Err(Error::config(format!("{name} {path} cannot be read: {error}"))
                .with_hint("sslrootcert, sslcert and sslkey in the database URL are paths of PEM files"));
        }
    }
    Ok(())
}

/// A pool, and the way past a pooler for what needs a session.
#[derive(Debug, Clone)]
pub struct Database {
    pool: PgPool,
    /// Shared: handles are cloned for every request.
    target: Arc<Target>,
}

/// The bounds of one transaction.
#[derive(Debug, Clone, Copy)]
pub struct Guard {
    /// No statement runs longer.
    pub statement: Duration,
    /// No lock is waited for longer; below the server's `deadlock_timeout`, so that Ebb yields first.
    pub lock: Duration,
}

impl Guard {
    /// The longest that the server waits for the next statement: one whose node froze or lost its way must end before long, however
    /// long its statements may take, or nobody can take over.
    pub(crate) fn idle(&self) -> Duration {
        self.statement.min(IDLE_AT_MOST)
    }
}

impl Default for Guard {
    fn default() -> Self {
        Self { statement: Duration::from_secs(30), lock: Duration::from_millis(500) }
    }
}

/// Beginning a transaction takes no longer, a connection included.
const BEGIN_WITHIN: Duration = Duration::from_secs(10);
/// A transaction is never idle for longer on purpose.
const IDLE_AT_MOST: Duration = Duration::from_secs(10);
/// A connection that does not answer so long after its last transaction is given up.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);

/// Waits for the database, but not for ever: a connection that was lost without a word never answers.
pub(crate) async fn answered<T>(within: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(within, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::unavailable(format!("no answer from the database within {within:?}"))),
    }
}

impl Database {
    /// Opens a pool of at most `connections`; the first connection is made when it is needed.
    pub fn open(target: Target, connections: u32, application_name: &str) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(BEGIN_WITHIN)
            .idle_timeout(Duration::from_secs(300))
            .test_before_acquire(true)
            .after_release(|connection, _| {
                Box::pin(async move {
                    // What was dropped in mid-statement, or lost without a word, must not keep its place in the pool.
                    let answer = tokio::time::timeout(RELEASE_WITHIN, connection.ping()).await;
                    answer.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut)).map(|()| true)
                })
            })
            .connect_lazy_with(target.options.clone().application_name(application_name));
        Self { pool, target: Arc::new(target) }
    }

    /// Begins a transaction with its bounds set.
    pub async fn begin(&self, guard: Guard) -> Result<Transaction<'static, Postgres>> {
        answered(BEGIN_WITHIN, async {
            let mut tx = match self.pool.begin_with("BEGIN ISOLATION LEVEL READ COMMITTED").await {
                Err(sqlx::Error::PoolTimedOut) => return Err(self.why_unreachable().await),
                begun => begun?,
            };
            set_bounds(&mut tx, guard).await?;
            Ok(tx)
        })
        .await
    }

    /// The pool only says that it waited in vain; one more try says why.
    async fn why_unreachable(&self) -> Error {
        let once = PgConnection::connect_with(&self.target.options);
        let error = match tokio::time::timeout(Duration::from_secs(2), once).await {
            Ok(Err(error)) => Error::from(error),
            Ok(Ok(_)) => Error::unavailable("every connection is in use, and none became free in time"),
            Err(_) => Error::unavailable("the database does not answer"),
        };
        match error.hint() {
            Some(_) => error,
            None => error.with_hint("is the server up, and is the URL right? DATABASE_URL or [database] url names it"),
        }
    }

    /// Begins a transaction with the usual bounds.
    pub async fn read(&self) -> Result<Transaction<'static, Postgres>> {
        self.begin(Guard::default()).await
    }

    /// A connection for a single message that is a transaction by itself; whoever sends more begins one.
    pub(crate) async fn acquire(&self) -> Result<sqlx::pool::PoolConnection<Postgres>> {
        match self.pool.acquire().await {
            Err(sqlx::Error::PoolTimedOut) => Err(self.why_unreachable().await),
            acquired => Ok(acquired?),
        }
    }

    /// One connection of its own, past the pooler where `direct_url` names the way: LISTEN, VACUUM, CONCURRENTLY.
    pub async fn session(&self, application_name: &str) -> Result<PgConnection> {
        Ok(PgConnection::connect_with(&self.session_options(application_name)).await?)
    }

    /// The options of such a connection.
    pub(crate) fn session_options(&self, application_name: &str) -> PgConnectOptions {
        let options = self.target.direct.as_ref().unwrap_or(&self.target.options);
        options.clone().application_name(application_name)
    }

    /// Whether such a connection is a session of its own. Behind a transaction pooler it is not: what it sets or listens
    /// to stays with a server process that the next client gets, so this must be known before, without leaving a trace.
    pub(crate) async fn has_sessions(&self) -> Result<bool> {
        const LOOKS: u32 = 5;
        let (mut one, mut other) = (self.session("ebb/listen").await?, self.session("ebb/listen").await?);
        for _ in 0..LOOKS {
            let before = backend(&mut one).await?;
            // Whoever holds the process that was ours, or makes us take another, shares it with us.
            let mut held = other.begin().await?;
            let pooled = backend(&mut held).await? == before || backend(&mut one).await? != before;
            held.rollback().await?;
            if pooled {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Where this database is.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Closes every connection, without waiting for one that does not answer.
    pub async fn close(&self) {
        let _ = tokio::time::timeout(Duration::from_millis(500), self.pool.close()).await;
    }
}

/// The server process that answers.
async fn backend(connection: &mut PgConnection) -> Result<i32> {
    Ok(sqlx::raw_sql("SELECT pg_catalog.pg_backend_pid()").fetch_one(connection).await?.try_get(0)?)
}

async fn set_bounds(tx: &mut Transaction<'static, Postgres>, guard: Guard) -> Result<()> {
    let statement_ms = guard.statement.as_millis();
    let (lock_ms, idle_ms) = (guard.lock.as_millis(), guard.idle().as_millis());
    // One round trip; numbers and constants only. Values that travel as text are written in one way. What is sent is short or bound by its rows: compiling it costs more than it saves.
    // Where somebody made sessions those of a replica, triggers that seal and bind would be silent. Only a superuser, or who was
    // granted it, may say otherwise; everybody else is refused. What triggers have to say may be about anybody: it is for the server's log.
    let sql = format!(
        "SELECT pg_catalog.set_config('session_replication_role', 'origin', true) \
         WHERE pg_catalog.current_setting('session_replication_role') OPERATOR(pg_catalog.=) 'replica'; \
         SET LOCAL standard_conforming_strings = on; SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, MDY'; SET LOCAL IntervalStyle = 'postgres'; \
         SET LOCAL quote_all_identifiers = off; SET LOCAL bytea_output = 'hex'; SET LOCAL extra_float_digits = 1; SET LOCAL row_security = off; SET LOCAL search_path = pg_catalog; SET LOCAL jit = off; \
         SET LOCAL client_min_messages = error; SET LOCAL statement_timeout = {statement_ms}; SET LOCAL lock_timeout = {lock_ms}; \
         SET LOCAL idle_in_transaction_session_timeout = {idle_ms}"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut **tx).await.map_err(|error| {
        let error = Error::from(error);
        match error.sqlstate().as_deref() {
            Some("42501") => error.with_hint(
                "sessions here are those of a replica, in which no trigger fires: ALTER ROLE … RESET session_replication_role, \
                 and the same for the database",
            ),
            _ => error,
        }
    })?;
    Ok(())
}
