//! What the partition duty says to the database: looks at the catalog, and the three steps out of a table.
//! Invariant: names reach SQL only through the quoting types, found again by oid in the transaction that uses them.

use std::time::Duration;

use jiff_sqlx::Timestamp as PgTimestamp;
use sqlx::postgres::types::PgInterval;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::Partitioned;
use crate::audit::Moment;
use crate::pg::{Ident, Relation};
use crate::policy::{Expired, Partition};
use crate::{Error, Result, sql};

/// How a table is partitioned, if at all.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Shape {
    pub(crate) relkind: String,
    pub(crate) strategy: Option<String>,
    pub(crate) key_column: Option<String>,
    pub(crate) key_definition: Option<String>,
    pub(crate) default_partition: Option<String>,
    pub(crate) kind: Option<String>,
}

pub(crate) async fn partitioned(
    connection: &mut PgConnection,
    oid: u32,
    column: &str,
    unit: Option<&str>,
) -> Result<Shape> {
    Ok(sql!("partitioned" as Shape).bind(i64::from(oid)).bind(column).bind(unit).fetch_one(connection).await?)
}

/// What pg_partman does with a table, where it does.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Partman {
    pub(crate) schema: String,
    pub(crate) parent_table: String,
    pub(crate) interval: String,
    pub(crate) premake: i32,
    pub(crate) retention: Option<String>,
    /// Whether a partition that is not kept stays as a table of its own.
    pub(crate) keeps_tables: bool,
}

/// The settings of pg_partman for a table that it looks after by itself.
pub(crate) async fn partman(connection: &mut PgConnection, table: &Relation) -> Result<Option<Partman>> {
    let Some(schema): Option<String> = sql!("partman_schema" scalar String).fetch_optional(&mut *connection).await?
    else {
        return Ok(None);
    };
    let own = Relation::new(&schema, "part_config");
    let sql = format!(
        "SELECT {}::text AS schema, parent_table::text AS parent_table, partition_interval::text AS interval, premake, retention::text AS retention, COALESCE(retention_keep_table, true) AS keeps_tables
         FROM {own} WHERE automatic_maintenance = 'on' AND to_regclass(parent_table) = {}::regclass",
        crate::pg::Literal(&schema),
        crate::pg::Literal(&table.to_string())
    );
    Ok(sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_optional(connection).await?)
}

/// Whether an interval, as text, is exactly one period.
pub(crate) async fn is_period(connection: &mut PgConnection, interval: &str, by: &str) -> Result<bool> {
    Ok(sql!("is_period" scalar bool).bind(interval).bind(by).fetch_one(connection).await?)
}

/// Whether this node, or the policy's role, may drop what belongs to a table's owner.
pub(crate) async fn may_drop(connection: &mut PgConnection, oid: u32, role: Option<&str>) -> Result<bool> {
    Ok(sql!("may_drop" scalar bool).bind(i64::from(oid)).bind(role).fetch_one(connection).await?)
}

/// How it stands with the partitions of a table.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Look {
    pub(crate) now: PgTimestamp,
    pub(crate) partitions: i64,
    pub(crate) missing: i64,
    pub(crate) runway_until: PgTimestamp,
    pub(crate) expired: Vec<i64>,
    pub(crate) pending: Vec<i64>,
    pub(crate) type_ends: Option<PgTimestamp>,
}

pub(crate) async fn look(connection: &mut PgConnection, policy: &Partition, on: &Partitioned) -> Result<Look> {
    Ok(sql!("look" as Look)
        .bind(i64::from(on.table.oid))
        .bind(&on.kind)
        .bind(policy.by.as_str())
        .bind(policy.ahead as i32)
        .bind(policy.zone.name())
        .bind(policy.keep.map(|keep| keep.to_interval()))
        .fetch_one(connection)
        .await?)
}

/// A partition that a policy has taken out, or is about to.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Leaving {
    pub(crate) oid: i64,
    pub(crate) relation: String,
    pub(crate) state: String,
    pub(crate) lower_bound: String,
    pub(crate) upper_bound: String,
    pub(crate) detached_at: Option<Moment>,
    pub(crate) schema_name: Option<String>,
    pub(crate) table_name: Option<String>,
    pub(crate) attached: bool,
    pub(crate) pending: bool,
    pub(crate) due: bool,
}

impl Leaving {
    /// Its name now; none when it is gone.
    pub(crate) fn name(&self) -> Option<Relation> {
        Some(Relation::new(self.schema_name.as_ref()?, self.table_name.as_ref()?))
    }
}

pub(crate) async fn leaving(
    connection: &mut PgConnection,
    policy: &Partition,
    on: &Partitioned,
) -> Result<Vec<Leaving>> {
    let stays: Option<PgInterval> = match policy.expired {
        Expired::Drop => Some(PgInterval { months: 0, days: 0, microseconds: 0 }),
        Expired::Detach(stays) => stays.map(|term| term.to_interval()),
    };
    Ok(sql!("detached" as Leaving)
        .bind(policy.name.as_str())
        .bind(&on.kind)
        .bind(policy.zone.name())
        .bind(policy.keep.map(|keep| keep.to_interval()))
        .bind(stays)
        .fetch_all(connection)
        .await?)
}

/// Takes over what a former policy of the table has taken out.
pub(crate) async fn inherit(connection: &mut PgConnection, policy: &str, table: &Relation) -> Result<()> {
    sql!("inherit_detached").bind(policy).bind(table.label()).execute(connection).await?;
    Ok(())
}

/// Knows by number what was known by name, and the other way round, after a dump was restored or a table renamed. What is
/// not there is forgotten; those of a policy that a dump left behind.
pub(crate) async fn settle(connection: &mut PgConnection, policy: &str) -> Result<Vec<String>> {
    let missing = sql!("settle_detached" scalar String).bind(policy).fetch_all(&mut *connection).await?;
    sql!("forget_attached").execute(&mut *connection).await?;
    sql!("rename_detached").execute(connection).await?;
    Ok(missing)
}

/// Makes missing partitions; how many.
pub(crate) async fn add(
    connection: &mut PgConnection,
    policy: &Partition,
    on: &Partitioned,
    at_most: i32,
) -> Result<u64> {
    let made: i32 = sql!("add_partitions" scalar i32)
        .bind(i64::from(on.table.oid))
        .bind(on.column.as_str())
        .bind(policy.by.as_str())
        .bind(policy.ahead as i32)
        .bind(policy.unit_word())
        .bind(policy.zone.name())
        .bind(at_most)
        .fetch_one(connection)
        .await?;
    Ok(made.max(0) as u64)
}

/// Writes down that a partition is to leave; false when it is not expired after all.
pub(crate) async fn decide(
    connection: &mut PgConnection,
    policy: &Partition,
    on: &Partitioned,
    partition: i64,
) -> Result<bool> {
    let done = sql!("decide")
        .bind(i64::from(on.table.oid))
        .bind(&on.kind)
        .bind(partition)
        .bind(policy.name.as_str())
        .bind(policy.keep.map(|keep| keep.to_interval()))
        .bind(policy.zone.name())
        .bind(on.table.relation.label())
        .execute(connection)
        .await?;
    Ok(done.rows_affected() > 0)
}

/// Where a partition is.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Place {
    schema_name: String,
    table_name: String,
    pub(crate) parent: Option<i64>,
    pub(crate) pending: bool,
}

impl Place {
    pub(crate) fn relation(&self) -> Relation {
        Relation::new(&self.schema_name, &self.table_name)
    }
}

pub(crate) async fn place(connection: &mut PgConnection, oid: i64) -> Result<Option<Place>> {
    Ok(sql!("place" as Place).bind(oid).fetch_optional(connection).await?)
}

/// How long a lock is waited for that others may want, also on what the table refers to: they wait behind it.
pub(crate) const LOCK_WAIT: Duration = Duration::from_millis(60);

/// Waits for no lock longer than that.
pub(crate) async fn wait(connection: &mut PgConnection, most: Duration) -> Result<()> {
    let sql = format!("SET LOCAL lock_timeout = {}", most.as_millis());
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}

/// From here on a step can be taken back, and the batch goes on.
pub(crate) async fn savepoint(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("SAVEPOINT ebb_step").execute(connection).await?;
    Ok(())
}

pub(crate) async fn take_back(connection: &mut PgConnection) -> Result<()> {
    sqlx::raw_sql("ROLLBACK TO SAVEPOINT ebb_step").execute(connection).await?;
    Ok(())
}

/// The same inside the batch, where no session can be had: short, but exclusive.
pub(crate) async fn detach_plainly(
    connection: &mut PgConnection,
    parent: &Relation,
    partition: &Relation,
    pending: bool,
) -> Result<()> {
    let how = if pending { " FINALIZE" } else { "" };
    let sql = format!("ALTER TABLE {parent} DETACH PARTITION {partition}{how}");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}

/// Partitions, and whatever they are partitioned into themselves.
pub(crate) async fn beneath(connection: &mut PgConnection, oids: &[i64]) -> Result<Vec<i64>> {
    Ok(sql!("beneath" scalar i64).bind(oids).fetch_all(connection).await?)
}

/// The statement that would attach a partition of a past period again.
pub(crate) async fn attach_again(
    connection: &mut PgConnection,
    policy: &Partition,
    on: &Partitioned,
    oid: i64,
) -> Result<Option<String>> {
    let query = sql!("attach_again" scalar String).bind(oid).bind(&on.kind).bind(policy.zone.name());
    Ok(query.fetch_optional(connection).await?)
}

pub(crate) async fn note_detached(connection: &mut PgConnection, oid: i64) -> Result<()> {
    sql!("note_detached").bind(oid).execute(connection).await?;
    Ok(())
}

pub(crate) async fn forget_detached(connection: &mut PgConnection, oid: i64) -> Result<()> {
    sql!("forget_detached").bind(oid).execute(connection).await?;
    Ok(())
}

/// What is in a partition that is about to go.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Contents {
    pub(crate) rows: i64,
    pub(crate) counted: bool,
    pub(crate) oldest: Option<Moment>,
    pub(crate) newest: Option<Moment>,
    /// When that was looked at, by the clock of policies.
    pub(crate) as_of: Moment,
    /// Whether its newest row is past `keep` too.
    pub(crate) due: bool,
    /// Whether all of its rows are of its period.
    pub(crate) inside: bool,
}

/// Partitions up to so many pages are counted; of larger ones the record has the estimate of their statistics.
const COUNT_UP_TO_PAGES: u64 = 131_072;

/// Locks a detached partition against everybody and looks at its rows.
pub(crate) async fn lock_and_look(
    connection: &mut PgConnection,
    policy: &Partition,
    on: &Partitioned,
    partition: &Relation,
    leaving: &Leaving,
) -> Result<Contents> {
    let column = &on.column;
    sqlx::raw_sql(AssertSqlSafe(format!("LOCK TABLE {partition} IN ACCESS EXCLUSIVE MODE")))
        .execute(&mut *connection)
        .await?;
    // By the column of the table: the bare name would be that of its text.
    let edge = |order: &str| {
        format!(
            "ebb.partition_moment($1, (SELECT p.{column}::text FROM {partition} AS p WHERE p.{column} IS NOT NULL \
             ORDER BY p.{column} {order} LIMIT 1))"
        )
    };
    let relation = crate::pg::Literal(&partition.to_string()).to_string();
    let sql = format!(
        "WITH local AS MATERIALIZED (SELECT {} AS oldest, {} AS newest),
              edges AS (SELECT oldest >= $4::text::timestamp AND newest < $5::text::timestamp AS inside,
                               oldest AT TIME ZONE ebb.partition_zone($1, $2) AS oldest, newest AT TIME ZONE ebb.partition_zone($1, $2) AS newest
                        FROM local),
              size AS (SELECT pg_relation_size({relation}) / 8192 <= {COUNT_UP_TO_PAGES} AS counted)
         SELECT CASE WHEN size.counted THEN (SELECT count(*) FROM {partition})
                ELSE (SELECT GREATEST(reltuples, 0)::int8 FROM pg_class WHERE oid = {relation}::regclass) END AS rows,
                size.counted, edges.oldest, edges.newest, ebb.now() AS as_of,
                COALESCE(ebb.is_over(edges.newest, $3::interval, $2), true) AS due, COALESCE(edges.inside, true) AS inside
         FROM edges, size",
        edge("ASC"),
        edge("DESC")
    );
    Ok(sqlx::query_as(AssertSqlSafe(sql))
        .persistent(false)
        .bind(&on.kind)
        .bind(policy.zone.name())
        .bind(policy.keep.map(|keep| keep.to_interval()))
        .bind(&leaving.lower_bound)
        .bind(&leaving.upper_bound)
        .fetch_one(connection)
        .await?)
}

/// Drops a table; where that cannot be, what was locked and looked at before stays so.
pub(crate) async fn drop_table(connection: &mut PgConnection, partition: &Relation) -> Result<()> {
    let mut inner = connection.begin().await?;
    let dropped = sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE {partition}"))).execute(&mut *inner).await;
    match dropped.map_err(Error::from) {
        Ok(_) => Ok(inner.commit().await?),
        Err(error) => {
            inner.rollback().await?;
            Err(match error.sqlstate().as_deref() {
                Some("2BP01") => error.with_hint(format!(
                    "something depends on {} itself; drop that, or name the partitioned table in it instead",
                    partition.label()
                )),
                _ => error,
            })
        }
    }
}

/// Takes all rows of a table, which needs no lock on any other.
pub(crate) async fn empty_table(connection: &mut PgConnection, partition: &Relation) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(format!("TRUNCATE {partition}"))).execute(connection).await?;
    Ok(())
}

/// Rows in partitions that would go, counted up to a limit, and how much of the table they are.
pub(crate) async fn weigh(connection: &mut PgConnection, on: &Partitioned, expired: &[i64]) -> Result<(u64, f64)> {
    let (pages, total): (i64, i64) =
        sql!("sizes" as (i64, i64)).bind(i64::from(on.table.oid)).bind(expired).fetch_one(&mut *connection).await?;
    let share = if total > 0 { pages as f64 / total as f64 } else { 0.0 };
    let mut rows = 0;
    for oid in expired {
        let Some(place) = place(connection, *oid).await? else { continue };
        let relation = place.relation();
        let sql = if pages as u64 <= COUNT_UP_TO_PAGES {
            format!("SELECT count(*) FROM {relation}")
        } else {
            let name = crate::pg::Literal(&relation.to_string()).to_string();
            format!("SELECT GREATEST(reltuples, 0)::int8 FROM pg_class WHERE oid = {name}::regclass")
        };
        let here: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(&mut *connection).await?;
        rows += here.max(0) as u64;
    }
    Ok((rows, share))
}

pub(crate) async fn note_runway(connection: &mut PgConnection, unit: &str, words: &str) -> Result<()> {
    sql!("note_runway").bind(unit).bind(words).execute(connection).await?;
    Ok(())
}

/// Who is in the way, in words.
pub(crate) async fn in_the_way(connection: &mut PgConnection, tables: &[i64]) -> Result<Option<String>> {
    Ok(sql!("lockers" as Somebody).bind(tables).fetch_optional(connection).await?.map(|who| who.to_string()))
}

/// Somebody whom others wait for.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Somebody {
    pid: i32,
    application_name: String,
    query: String,
    seconds: f64,
}

impl std::fmt::Display for Somebody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pid, application_name, query, seconds } = self;
        let who = if application_name.is_empty() { String::new() } else { format!(" ({application_name})") };
        write!(f, "pid {pid}{who} has been in a transaction for {seconds:.0} s: {query}")
    }
}

/// Statements on the user's tables run under the policy's role.
pub(crate) async fn as_role(connection: &mut PgConnection, role: Option<&Ident>) -> Result<()> {
    if let Some(role) = role {
        sqlx::raw_sql(AssertSqlSafe(format!("SET LOCAL ROLE {role}"))).execute(connection).await?;
    }
    Ok(())
}

pub(crate) async fn back_from_role(connection: &mut PgConnection, role: Option<&Ident>) -> Result<()> {
    if role.is_some() {
        sqlx::raw_sql("SET LOCAL ROLE NONE").execute(connection).await?;
    }
    Ok(())
}

/// How long a guard of a table keeps its keys, and how long it should: where its rows are kept longer.
pub(crate) async fn short_guard(
    connection: &mut PgConnection,
    oid: u32,
    keep: Option<PgInterval>,
    by: &str,
) -> Result<Option<(String, String, bool)>> {
    Ok(sql!("short_guards" as (String, String, bool))
        .bind(i64::from(oid))
        .bind(keep)
        .bind(by)
        .fetch_optional(connection)
        .await?)
}

/// A partition as people see it.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct Bounds {
    pub(crate) schema_name: String,
    pub(crate) table_name: String,
    pub(crate) lower_bound: Option<String>,
    pub(crate) upper_bound: Option<String>,
    /// Past `keep` as a whole, also while it is on its way out.
    pub(crate) expired: bool,
    pub(crate) rows: i64,
    pub(crate) bytes: i64,
    pub(crate) pending: bool,
    pub(crate) state: String,
}

impl Bounds {
    pub(crate) fn relation(&self) -> Relation {
        Relation::new(&self.schema_name, &self.table_name)
    }
}

pub(crate) async fn bounds(
    connection: &mut PgConnection,
    oid: u32,
    kind: &str,
    zone: &str,
    keep: Option<PgInterval>,
) -> Result<Vec<Bounds>> {
    Ok(sql!("bounds" as Bounds).bind(i64::from(oid)).bind(kind).bind(zone).bind(keep).fetch_all(connection).await?)
}

/// Whether this role may change rows without setting off triggers: asked by trying, since who may depends on the version.
pub(crate) async fn may_be_quiet(connection: &mut PgConnection) -> Result<bool> {
    let mut tx = connection.begin().await?;
    let tried = sqlx::raw_sql("SET LOCAL session_replication_role = replica").execute(&mut *tx).await;
    tx.rollback().await?;
    Ok(tried.is_ok())
}

/// Whether what has this name is the BRIN index that is meant; none when nothing has it.
pub(crate) async fn brin_index(
    connection: &mut PgConnection,
    index: &Relation,
    table: i64,
    column: &str,
) -> Result<Option<bool>> {
    Ok(sql!("brin_index" scalar bool)
        .bind(index.schema.as_str())
        .bind(index.name.as_str())
        .bind(table)
        .bind(column)
        .fetch_optional(connection)
        .await?)
}

/// Whether it belongs to the index of a partitioned table already.
pub(crate) async fn brin_attached(connection: &mut PgConnection, index: &Relation) -> Result<bool> {
    Ok(sql!("brin_attached" scalar bool)
        .bind(index.schema.as_str())
        .bind(index.name.as_str())
        .fetch_one(connection)
        .await?)
}

/// How many pages a table has.
pub(crate) async fn pages(connection: &mut PgConnection, table: &Relation) -> Result<i64> {
    let sql = format!(
        "SELECT pg_relation_size({}) / current_setting('block_size')::int8",
        crate::pg::Literal(&table.to_string())
    );
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?)
}

/// CHECKs on columns of partitions that nothing proves: partition and constraint. A former version guessed them from samples.
pub(crate) async fn guessed_checks(
    connection: &mut PgConnection,
    table: u32,
    column: &str,
    unit: Option<&str>,
) -> Result<Vec<(String, String)>> {
    Ok(sql!("guessed_checks" as (String, String))
        .bind(i64::from(table))
        .bind(column)
        .bind(unit)
        .fetch_all(connection)
        .await?)
}

pub(crate) async fn others_at_work(connection: &mut PgConnection) -> Result<bool> {
    Ok(sql!("others_at_work" scalar bool).fetch_one(connection).await?)
}

pub(crate) async fn may_sync(connection: &mut PgConnection) -> Result<bool> {
    Ok(sql!("may_sync" scalar bool).fetch_one(connection).await?)
}

/// Where an index is on the server's disk.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct IndexFile {
    pub(crate) path: String,
    pub(crate) bytes: i64,
    pub(crate) segment_bytes: i64,
}

impl IndexFile {
    /// The files that have grown since it had so many bytes.
    pub(crate) fn names(&self, before: i64) -> Vec<String> {
        let (first, last) = (before / self.segment_bytes, (self.bytes - 1).max(0) / self.segment_bytes);
        let name = |n| if n == 0 { self.path.clone() } else { format!("{}.{n}", self.path) };
        (first..=last).map(name).collect()
    }
}

pub(crate) async fn index_file(connection: &mut PgConnection, index: &Relation) -> Result<Option<IndexFile>> {
    Ok(sql!("index_file" as IndexFile)
        .bind(index.schema.as_str())
        .bind(index.name.as_str())
        .fetch_optional(connection)
        .await?)
}

/// Sends a file to the disk. Not a file of SQL beside the others: where the extension is not there it could not be prepared.
pub(crate) async fn sync_file(connection: &mut PgConnection, name: &str) -> Result<()> {
    sqlx::query("SELECT pg_catalog.pg_file_sync($1)").persistent(false).bind(name).execute(connection).await?;
    Ok(())
}
