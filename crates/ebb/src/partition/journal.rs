//! What adoptions and splits have in common: a row with the plan, and one session that works on it. Invariant: one
//! session at a time works on a table; one that died is told by the server itself, so nobody waits for a term to run out.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::adopt::Progress;
use crate::{Error, Result};

/// How often a session that may be about to end is looked at, and how many times.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
const LOOKS: u32 = 80;

/// What a session that works on a table goes by, whatever its role, its database or its caller prefer: texts are written as the
/// guard's trigger writes them and definitions as every other session reads them, every row is seen, nothing is compiled while
/// others wait, and nothing but a step's own time-out ends it.
pub(crate) const SETTINGS: &str = "SET search_path = pg_catalog; SET TimeZone = 'UTC'; SET DateStyle = 'ISO, MDY'; SET IntervalStyle = 'postgres'; \
    SET extra_float_digits = 1; SET bytea_output = 'hex'; SET quote_all_identifiers = off; SET standard_conforming_strings = on; SET jit = off; SET row_security = off; SET statement_timeout = 0; SET lock_timeout = 0; SET default_transaction_isolation = 'read committed';";

/// Makes this session the one at work, by the statement that takes the row of a table in `kept_in`. One that was killed
/// ends by itself, perhaps after its last statement: waits for that a while, then refuses.
pub(crate) async fn hold(
    connection: &mut PgConnection,
    (take, kept_in): (&'static str, &str),
    label: &str,
    watch: &mut (dyn FnMut(Progress) + Send),
) -> Result<()> {
    for _ in 0..LOOKS {
        let mut tx = connection.begin().await?;
        // The row first, then who has it: who waited for the row would otherwise look at the holder of before.
        let lock = format!("SELECT FROM {kept_in} WHERE relation = $1 FOR UPDATE");
        sqlx::query(AssertSqlSafe(lock)).persistent(false).bind(label).execute(&mut *tx).await?;
        let taken = sqlx::query(take).persistent(false).bind(label).execute(&mut *tx).await?;
        tx.commit().await?;
        if taken.rows_affected() > 0 {
            return Ok(());
        }
        watch(Progress::Waiting("another session is at work on it, or its last statement is still running".into()));
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Err(Error::refused(format!("another session is at work on {label}")).with_hint(format!(
        "wait for it; if nobody is there any more: SELECT pg_terminate_backend(holder_pid) FROM {kept_in}"
    )))
}

/// A plan as it is kept.
pub(crate) fn kept(plan: &impl Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(plan).map_err(|error| Error::failed(format!("cannot keep the plan: {error}")))
}

/// A plan that was kept.
pub(crate) fn plan<P: DeserializeOwned>(kept: &serde_json::Value, label: &str) -> Result<P> {
    P::deserialize(kept).map_err(|error| Error::failed(format!("the plan for {label} cannot be read: {error}")))
}

/// How a script begins that does what a command would: with the settings of Ebb's own sessions.
pub(crate) fn script_head(command: &str) -> Vec<String> {
    vec![
        format!(
            "-- run it with psql -v ON_ERROR_STOP=1; where it stops, `ebb partition {command}` goes on, and `ebb partition rollback` goes back"
        ),
        SETTINGS.to_owned(),
    ]
}
