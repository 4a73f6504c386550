//! Migrations: numbered, forward only, embedded. Invariants: two nodes that start at once run each file once; a file
//! that was applied is never changed; an older binary refuses a schema with a breaking migration it does not know.

use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::{PgConnection, Postgres, Transaction};

use super::{Database, Guard};
use crate::{Error, Result};

struct Migration {
    version: i32,
    name: &'static str,
    sql: &'static str,
}

macro_rules! migrations {
    ($($version:literal $name:literal),+ $(,)?) => {
        &[$(Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../../migrations/", $name, ".sql")),
        }),+]
    };
}

const MIGRATIONS: &[Migration] = migrations![
    1 "0001_core",
    2 "0002_audit",
    3 "0003_once",
    4 "0004_views",
    5 "0005_partition",
    6 "0006_resources",
    7 "0007_surface",
    8 "0008_adoption",
    9 "0009_schedule",
    10 "0010_retain",
    11 "0011_created",
    12 "0012_split",
    13 "0013_gates",
    14 "0014_claims",
    15 "0015_derived",
    16 "0016_review",
    17 "0017_warn",
    18 "0018_figures",
    19 "0019_snapshot",
    20 "0020_subjects",
    21 "0021_flush",
    22 "0022_refs",
    23 "0023_claims",
    24 "0024_closed",
    25 "0025_subjects",
    26 "0026_kept",
    27 "0027_proven",
    28 "0028_again",
    29 "0029_terms",
    30 "0030_key",
    31 "0031_told",
    32 "0032_rights",
    33 "0033_parts",
    34 "0034_request",
    35 "0035_reach",
    36 "0036_right",
    37 "0037_aside",
    38 "0038_former",
    39 "0039_written",
    40 "0040_look",
    41 "0041_partly",
    42 "0042_refusal",
    43 "0043_home",
    44 "0044_applied",
    45 "0045_renew",
    46 "0046_ahead",
    47 "0047_report",
    48 "0048_consent",
    49 "0049_private",
    50 "0050_review",
    51 "0051_replay",
    52 "0052_calendar",
    53 "0053_identity",
    54 "0054_echo",
    55 "0055_holds",
    56 "0056_anchor",
    57 "0057_taken_back",
    58 "0058_moved",
    59 "0059_release",
];

/// Applied again after every migration: grants are a state, not a step.
const GRANTS: &str = include_str!("../../migrations/grants.sql");

/// "ebb_migr" in ASCII; taken for the transaction only, so that poolers do not mind.
const LOCK: i64 = 0x6562_625f_6d69_6772;

/// What a migration run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// The names of the files that were applied, oldest first.
    pub applied: Vec<String>,
    /// The version the schema has now.
    pub version: i32,
}

/// Brings the `ebb` schema up to this binary's version.
pub async fn migrate(database: &Database) -> Result<Migrated> {
    let mut tx = database.begin(Guard { statement: Duration::from_secs(600), lock: Duration::from_secs(60) }).await?;
    require_writable(&mut tx).await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").persistent(false).bind(LOCK).execute(&mut *tx).await?;
    sqlx::raw_sql(
        "CREATE SCHEMA IF NOT EXISTS ebb;
         CREATE TABLE IF NOT EXISTS ebb.migration (
             version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, breaking boolean NOT NULL,
             applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), applied_by text NOT NULL DEFAULT session_user)",
    )
    .execute(&mut *tx)
    .await
    .map_err(|error| explain_rights(error.into()))?;
    let known = applied(&mut tx).await?;
    refuse_newer(&known)?;

    let mut done = Vec::new();
    for migration in MIGRATIONS {
        let checksum = hex::encode(Sha256::digest(migration.sql));
        match known.iter().find(|row| row.version == migration.version) {
            Some(row) if row.checksum == checksum => {}
            Some(row) => {
                return Err(Error::refused(format!(
                    "migration {} was applied from a different file than this binary has",
                    row.name
                ))
                .with_hint("run the ebb release that made this schema, or restore the schema from a backup"));
            }
            None => {
                run_file(&mut tx, migration, &checksum).await?;
                done.push(migration.name.to_owned());
            }
        }
    }
    sqlx::raw_sql(GRANTS).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(Migrated { applied: done, version: MIGRATIONS.last().map_or(0, |last| last.version) })
}

/// The schema's version, or `None` when there is no `ebb` schema yet; an error when it is newer than this binary.
pub async fn schema_version(connection: &mut PgConnection) -> Result<Option<i32>> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('ebb.migration') IS NOT NULL")
        .persistent(false)
        .fetch_one(&mut *connection)
        .await?;
    if !exists {
        return Ok(None);
    }
    let rows = applied(connection).await?;
    refuse_newer(&rows)?;
    Ok(rows.iter().map(|row| row.version).max())
}

/// The version this binary brings a schema to.
pub fn latest_version() -> i32 {
    MIGRATIONS.last().map_or(0, |last| last.version)
}

/// Whether this user may create the schema.
pub(crate) async fn may_create_schema(connection: &mut PgConnection) -> Result<bool> {
    Ok(sqlx::query_scalar("SELECT has_database_privilege(current_database(), 'CREATE')")
        .persistent(false)
        .fetch_one(connection)
        .await?)
}

/// Whether this user owns the schema.
pub(crate) async fn owns_schema(connection: &mut PgConnection) -> Result<bool> {
    Ok(sqlx::query_scalar("SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'ebb'")
        .persistent(false)
        .fetch_one(connection)
        .await?)
}

#[derive(sqlx::FromRow)]
struct Applied {
    version: i32,
    name: String,
    checksum: String,
    breaking: bool,
}

async fn applied(connection: &mut PgConnection) -> Result<Vec<Applied>> {
    Ok(sqlx::query_as("SELECT version, name, checksum, breaking FROM ebb.migration ORDER BY version")
        .persistent(false)
        .fetch_all(connection)
        .await?)
}

fn refuse_newer(rows: &[Applied]) -> Result<()> {
    let latest = latest_version();
    match rows.iter().find(|row| row.version > latest && row.breaking) {
        None => Ok(()),
        Some(row) => Err(Error::refused(format!(
            "the ebb schema has migration {} that this binary ({}) does not understand",
            row.name,
            env!("CARGO_PKG_VERSION")
        ))
        .with_hint("upgrade this node to the release that migrated the schema")),
    }
}

async fn run_file(tx: &mut Transaction<'static, Postgres>, migration: &Migration, checksum: &str) -> Result<()> {
    sqlx::raw_sql(migration.sql)
        .execute(&mut **tx)
        .await
        .map_err(|error| explain_rights(Error::from(error).context(format!("migration {}", migration.name))))?;
    sqlx::query("INSERT INTO ebb.migration (version, name, checksum, breaking) VALUES ($1, $2, $3, $4)")
        .persistent(false)
        .bind(migration.version)
        .bind(migration.name)
        .bind(checksum)
        .bind(migration.sql.lines().any(|line| line.starts_with("-- breaking:")))
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Refuses a server that is too old, and one that cannot be written to.
pub(crate) async fn require_writable(connection: &mut PgConnection) -> Result<()> {
    let (version, standby, read_only): (i32, bool, bool) = sqlx::query_as(
        "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
                current_setting('transaction_read_only')::bool",
    )
    .persistent(false)
    .fetch_one(connection)
    .await?;
    require_version(version)?;
    if standby {
        return Err(Error::refused("this server is a read-only replica")
            .with_hint("point [database] url at the primary; libpq-style URLs may name it through a proxy or DNS"));
    }
    if read_only {
        return Err(Error::refused("transactions are read-only here by default").with_hint(
            "lift default_transaction_read_only for this user: ALTER ROLE … SET default_transaction_read_only = off",
        ));
    }
    Ok(())
}

fn require_version(version: i32) -> Result<()> {
    if version >= 140_000 {
        return Ok(());
    }
    Err(Error::refused(format!("PostgreSQL {} is too old: Ebb needs 14 or newer", version / 10_000))
        .with_hint("TID range scans, which the sweep relies on, came with version 14"))
}

fn explain_rights(error: Error) -> Error {
    match error.sqlstate().as_deref() {
        Some("42501") => error.with_hint(
            "run `ebb migrate` as the schema's owner, or first: GRANT CREATE ON DATABASE … TO <the user that migrates>",
        ),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::require_version;

    #[test]
    fn a_server_below_14_is_too_old() {
        let error = require_version(130_022).expect_err("13 is refused");
        assert!(error.is_refused() && error.to_string().contains("PostgreSQL 13 is too old"), "{error}");
        assert!(require_version(140_000).is_ok());
    }
}
