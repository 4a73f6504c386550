//! The demo's SQL. It talks to a database that the demo made and that holds nothing else.

use ebb::Result;
use ebb::audit::Moment;
use ebb::pg::Database;
use ebb::policy::Term;
use sqlx::PgConnection;

/// "ebb_demo" in ASCII: held while a demo runs.
const LOCK: i64 = 0x6562_625f_6465_6d6f;

/// One table of the demo.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub(crate) struct Count {
    pub(crate) table_name: String,
    pub(crate) policy: String,
    pub(crate) due: i64,
    pub(crate) live: i64,
}

/// One run of a unit.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub(crate) struct Run {
    pub(crate) id: i64,
    pub(crate) policy: String,
    pub(crate) leaf: String,
    pub(crate) status: String,
    pub(crate) rows: i64,
    pub(crate) batches: i64,
    pub(crate) error: Option<String>,
    pub(crate) seconds: f64,
}

/// A run that was stopped before its first batch.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub(crate) struct Brake {
    pub(crate) policy: String,
    pub(crate) due: i64,
    pub(crate) allowed_before: String,
    pub(crate) tripped_at: Moment,
}

/// Whether no other demo runs here; holds until the session ends.
pub(crate) async fn lock(session: &mut PgConnection) -> Result<bool> {
    Ok(sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(LOCK).fetch_one(session).await?)
}

pub(crate) async fn reset(session: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql(include_str!("sql/reset.sql")).execute(session).await?;
    Ok(())
}

/// Makes the clock one that can be moved, and the tables with what is in them.
pub(crate) async fn fill(session: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("SET synchronous_commit = off; SET maintenance_work_mem = '128MB'").execute(&mut *session).await?;
    sqlx::raw_sql(include_str!("sql/keys.sql")).execute(&mut *session).await?;
    sqlx::raw_sql(include_str!("sql/clock.sql")).execute(&mut *session).await?;
    sqlx::raw_sql(include_str!("sql/accounts.sql")).execute(&mut *session).await?;
    sqlx::raw_sql(include_str!("sql/data.sql")).execute(session).await?;
    Ok(())
}

/// Moves the clock. `None` when this is no demo's database.
pub(crate) async fn advance(database: &Database, by: &Term) -> Result<Option<Moment>> {
    let mut tx = database.read().await?;
    let is_demo: bool = sqlx::query_scalar("SELECT to_regclass('ebb.clock_offset') IS NOT NULL")
        .persistent(false)
        .fetch_one(&mut *tx)
        .await?;
    if !is_demo {
        return Ok(None);
    }
    sqlx::query("UPDATE ebb.clock_offset SET shift = shift + $1")
        .persistent(false)
        .bind(by.to_interval())
        .execute(&mut *tx)
        .await?;
    let now = now_on(&mut tx).await?;
    tx.commit().await?;
    Ok(Some(now))
}

async fn now_on(connection: &mut PgConnection) -> Result<Moment> {
    Ok(sqlx::query_scalar("SELECT ebb.clock()").persistent(false).fetch_one(connection).await?)
}

/// The demo's time, and by how much it was moved, in words.
pub(crate) async fn clock(database: &Database) -> Result<(Moment, String)> {
    let mut tx = database.read().await?;
    let shift = sqlx::query_scalar("SELECT shift::text FROM ebb.clock_offset").persistent(false).fetch_one(&mut *tx);
    let shift = shift.await?;
    Ok((now_on(&mut tx).await?, shift))
}

pub(crate) async fn counts(database: &Database) -> Result<Vec<Count>> {
    let mut tx = database.read().await?;
    Ok(sqlx::query_as(include_str!("sql/counts.sql")).persistent(false).fetch_all(&mut *tx).await?)
}

pub(crate) async fn runs(database: &Database, after: i64) -> Result<Vec<Run>> {
    let mut tx = database.read().await?;
    Ok(sqlx::query_as(include_str!("sql/runs.sql")).persistent(false).bind(after).fetch_all(&mut *tx).await?)
}

pub(crate) async fn brakes(database: &Database) -> Result<Vec<Brake>> {
    let mut tx = database.read().await?;
    Ok(sqlx::query_as(include_str!("sql/brakes.sql")).persistent(false).fetch_all(&mut *tx).await?)
}

pub(crate) async fn recorded(database: &Database, policy: &str) -> Result<i64> {
    let mut tx = database.read().await?;
    let sql = include_str!("sql/recorded.sql");
    Ok(sqlx::query_scalar(sql).persistent(false).bind(policy).fetch_one(&mut *tx).await?)
}

pub(crate) async fn insert_live(database: &Database, rows: i32, from: i64) -> Result<()> {
    let mut tx = database.read().await?;
    let sql = include_str!("sql/insert_live.sql");
    sqlx::query(sql).persistent(false).bind(rows).bind(from).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}

/// What became of the birthdays of the missed day.
#[derive(Debug, Clone, Copy, PartialEq, sqlx::FromRow)]
pub(crate) struct Greetings {
    pub(crate) sent: i64,
    pub(crate) waiting: i64,
    pub(crate) twice: i64,
    pub(crate) latest: f64,
}

/// Registers birthdays, and lets the day on which they fall pass without a node.
pub(crate) async fn miss_birthdays(session: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql(include_str!("sql/birthdays.sql")).execute(session).await?;
    Ok(())
}

/// How the story of the deleted accounts stands.
#[derive(Debug, Clone, Copy, PartialEq, sqlx::FromRow)]
pub(crate) struct Deletions {
    pub(crate) warned: i64,
    pub(crate) erased: i64,
    pub(crate) restored: i64,
    pub(crate) held: i64,
    pub(crate) over: bool,
    pub(crate) accounts: i64,
    pub(crate) rows: i64,
}

/// Stops what would become of one account.
pub(crate) async fn place_hold(session: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql(include_str!("sql/hold.sql")).execute(session).await?;
    Ok(())
}

pub(crate) async fn deletions(database: &Database) -> Result<Deletions> {
    let mut tx = database.read().await?;
    Ok(sqlx::query_as(include_str!("sql/deletions.sql")).persistent(false).fetch_one(&mut *tx).await?)
}

/// The deletion that the link in one person's warning is for.
pub(crate) async fn link(database: &Database, person: &str) -> Result<uuid::Uuid> {
    let mut tx = database.read().await?;
    let sql = include_str!("sql/link.sql");
    Ok(sqlx::query_scalar(sql).persistent(false).bind(person).fetch_one(&mut *tx).await?)
}

/// The records of what was erased.
pub(crate) async fn erasures(database: &Database) -> Result<Vec<i64>> {
    let mut tx = database.read().await?;
    Ok(sqlx::query_scalar(include_str!("sql/erasures.sql")).persistent(false).fetch_all(&mut *tx).await?)
}

pub(crate) async fn greetings(database: &Database) -> Result<Greetings> {
    let mut tx = database.read().await?;
    Ok(sqlx::query_as(include_str!("sql/greetings.sql")).persistent(false).fetch_one(&mut *tx).await?)
}

/// The table that is to be adopted.
pub(crate) async fn fill_ingest(database: &Database) -> Result<()> {
    let mut session = database.session("demo").await?;
    sqlx::raw_sql(include_str!("sql/ingest.sql")).execute(&mut session).await?;
    Ok(())
}

/// How the server reads one month of it.
pub(crate) async fn plan_of_a_month(database: &Database) -> Result<serde_json::Value> {
    let mut tx = database.read().await?;
    // Asked once: the demo's clock is a look at a table, for every row that it is compared with.
    let (since, until): (String, String) = sqlx::query_as(
        "SELECT (date_trunc('month', ebb.now()) - interval '2 months')::text, (date_trunc('month', ebb.now()) - interval '1 month')::text",
    )
    .persistent(false)
    .fetch_one(&mut *tx)
    .await?;
    let plan = sqlx::query_scalar(include_str!("sql/ingest_month.sql")).persistent(false).bind(since).bind(until);
    let plan = plan.fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(plan)
}

/// A name for a scratch table, as ClickHouse makes ids: the time in its upper bits.
pub(crate) async fn scratch_name(database: &Database, n: usize) -> Result<String> {
    let mut tx = database.read().await?;
    let sql = "SELECT 't' || ((extract(epoch FROM clock_timestamp()) * 1000)::bigint << 22) + $1";
    Ok(sqlx::query_scalar(sql).persistent(false).bind(n as i64).fetch_one(&mut *tx).await?)
}

pub(crate) async fn make_scratch(database: &Database, name: &str) -> Result<()> {
    let table = ebb::pg::Relation::new("scratch", name);
    let mut tx = database.read().await?;
    let sql = format!("CREATE TABLE {table} AS SELECT n FROM generate_series(1, 1000) AS n");
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *tx).await?;
    Ok(tx.commit().await?)
}

pub(crate) async fn scratch_tables(database: &Database) -> Result<Vec<String>> {
    let mut tx = database.read().await?;
    let sql =
        "SELECT tablename::text FROM pg_tables WHERE schemaname = 'scratch' AND tablename ~ '^t[0-9]+$' ORDER BY 1";
    Ok(sqlx::query_scalar(sql).persistent(false).fetch_all(&mut *tx).await?)
}
