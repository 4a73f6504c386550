//! A database per test, cloned from a template that is migrated once per process, and a clock that moves.

use std::process::Command;
use std::time::Duration;

use ebb::pg::{Database, Target};
use sqlx::postgres::{PgPool, PgPoolOptions, Postgres};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::OnceCell;

use crate::server::{Server, client_program, server};
use crate::temp::TempDir;

const TEMPLATE: &str = "ebb_template";

/// A database that only one test knows.
#[derive(Debug)]
pub struct TestDatabase {
    name: String,
    url: String,
    socket_url: String,
    pool: PgPool,
}

/// A database of the shared server with the `ebb` schema in it.
pub async fn database() -> TestDatabase {
    static READY: OnceCell<()> = OnceCell::const_new();
    READY.get_or_init(make_template).await;
    TestDatabase::create(server(), TEMPLATE).await
}

/// A database of the shared server with nothing in it.
pub async fn empty_database() -> TestDatabase {
    TestDatabase::create(server(), "template0").await
}

/// An empty database of another server, see `own_server`; call `ebb::pg::migrate` on its `open()` to fill it.
pub async fn empty_database_on(server: &Server) -> TestDatabase {
    TestDatabase::create(server, "template0").await
}

/// Moves `ebb.now()` and `ebb.clock()` of a database, for every connection and node at once, by an interval such as
/// `90 days`. Moves add up.
pub async fn advance(database: &TestDatabase, by: &str) {
    database.advance(by).await;
}

impl TestDatabase {
    async fn create(server: &Server, template: &str) -> Self {
        let name = format!("t_{}", uuid::Uuid::new_v4().simple());
        admin(server, &format!("CREATE DATABASE {name} TEMPLATE {template}")).await;
        let url = server.url(&name);
        let pool = PgPoolOptions::new()
            .max_connections(16)
            .acquire_timeout(Duration::from_secs(30))
            .connect_lazy(&url)
            .expect("the test server's URL is valid");
        Self { socket_url: server.socket_url(&name), name, url, pool }
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `postgres://…` over TCP on the loopback interface.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `postgres://…` over the Unix socket.
    pub fn socket_url(&self) -> &str {
        &self.socket_url
    }

    /// Where it is, in the engine's terms.
    pub fn target(&self) -> Target {
        Target::parse(&self.url, None).expect("the test server's URL is valid")
    }

    /// A new handle as the engine opens it.
    pub fn open(&self) -> Database {
        Database::open(self.target(), 10, "ebb/test")
    }

    /// A plain pool for preparing and asserting.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Runs one or more statements; panics with the statement when one fails.
    pub async fn execute(&self, sql: &str) {
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await {
            panic!("{error}\nin: {sql}");
        }
    }

    /// The first column of the only row.
    pub async fn scalar<T>(&self, sql: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres> + Send + Unpin,
    {
        match sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await {
            Ok(value) => value,
            Err(error) => panic!("{error}\nin: {sql}"),
        }
    }

    /// What `pg_dump` with these options writes of a database, restored into an empty one; false where there is no `pg_dump`
    /// of the server's version.
    pub fn restore_into(&self, new: &Self, server: &Server, options: &[&str]) -> bool {
        let Some(pg_dump) = client_program(server.bin(), "pg_dump") else {
            println!("skipped: no pg_dump of the server's version");
            return false;
        };
        let dump = Command::new(pg_dump).args(options).arg(&self.url).output().expect("pg_dump runs");
        assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
        let dir = TempDir::new();
        let file = dir.path().join("dump.sql");
        std::fs::write(&file, &dump.stdout).expect("the directory is there");
        let psql = client_program(server.bin(), "psql").expect("whoever has pg_dump has psql");
        let restore = Command::new(psql)
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"])
            .arg(&file)
            .arg(&new.url)
            .output()
            .expect("psql runs");
        assert!(restore.status.success(), "{}", String::from_utf8_lossy(&restore.stderr));
        true
    }

    /// Moves the clock, see [`advance`].
    pub async fn advance(&self, by: &str) {
        let mut tx = self.pool.begin().await.expect("the test server answers");
        // STABLE keeps ebb.now() an index condition, although a function that reads a table is not inlined.
        sqlx::raw_sql(
            "CREATE TABLE IF NOT EXISTS ebb.clock_offset (shift interval NOT NULL);
             GRANT SELECT ON ebb.clock_offset TO PUBLIC;
             INSERT INTO ebb.clock_offset SELECT '0' WHERE NOT EXISTS (SELECT FROM ebb.clock_offset);
             CREATE OR REPLACE FUNCTION ebb.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS
                 'SELECT pg_catalog.now() + (SELECT shift FROM ebb.clock_offset)';
             CREATE OR REPLACE FUNCTION ebb.clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE AS
                 'SELECT pg_catalog.clock_timestamp() + (SELECT shift FROM ebb.clock_offset)'",
        )
        .execute(&mut *tx)
        .await
        .expect("the database has the ebb schema");
        sqlx::query("UPDATE ebb.clock_offset SET shift = shift + $1::text::interval")
            .bind(by)
            .execute(&mut *tx)
            .await
            .expect("the shift is an interval such as 90 days");
        tx.commit().await.expect("the test server answers");
    }
}

async fn make_template() {
    let server = server();
    admin(server, &format!("CREATE DATABASE {TEMPLATE} TEMPLATE template0")).await;
    let target = Target::parse(&server.url(TEMPLATE), None).expect("the test server's URL is valid");
    let database = Database::open(target, 1, "ebb/template");
    ebb::pg::migrate(&database).await.expect("the migrations run on an empty database");
    database.close().await;
    // Cloning needs a template that nobody is connected to.
    admin(server, &format!("ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false")).await;
    admin(
        server,
        &format!("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'"),
    )
    .await;
}

async fn admin(server: &Server, sql: &str) {
    let mut connection = PgConnection::connect(&server.url("postgres")).await.expect("the test server answers");
    if let Err(error) = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await {
        panic!("{error}\nin: {sql}");
    }
    let _ = connection.close().await;
}
