//! The schema itself: there, of this version, with its own clock, and with the policies of the file.

use super::{Action, Finding, Fix, latest, store};
use crate::policy::{Kind, Stored, Wanted};
use crate::{Engine, Result, pg};

/// Whether the schema is there and understood. The second value: whether other checks can read it.
pub(super) async fn schema(engine: &Engine) -> Result<(Vec<Finding>, bool)> {
    let mut tx = engine.database().read().await?;
    let version = match pg::schema_version(&mut tx).await {
        Err(error) if error.is_refused() => return Ok((vec![super::unable("schema", None, &error)], false)),
        version => version?,
    };
    let fix = Fix::command("ebb migrate").run(Action::Migrate);
    let Some(version) = version else {
        let finding = Finding::fail("schema", None, "there is no ebb schema in this database");
        return Ok((vec![finding.fix(Fix::command("ebb apply"))], false));
    };
    let newest = store::newest_migration(&mut tx).await?.map_or_else(String::new, |(_, name)| name);
    tx.rollback().await?;
    let finding = match version.cmp(&latest()) {
        std::cmp::Ordering::Less => {
            let text = format!("it is at {newest}, and this binary brings {}", latest());
            return Ok((vec![Finding::fail("schema", None, text).fix(fix)], false));
        }
        std::cmp::Ordering::Greater => {
            let text = format!("it is at {newest}, newer than this binary ({})", env!("CARGO_PKG_VERSION"));
            Finding::warn("schema", None, text).fix(Fix::advice("upgrade this node when it suits"))
        }
        std::cmp::Ordering::Equal => Finding::ok("schema", format!("at {newest}")),
    };
    Ok((vec![finding], true))
}

/// Whether `ebb.now()` and `ebb.clock()` are the shipped ones: with others every cutoff is wrong.
pub(super) async fn clock(engine: &Engine, stored: &[Stored]) -> Result<Vec<Finding>> {
    let mut tx = engine.database().read().await?;
    let found = store::clock_functions(&mut tx).await?;
    tx.rollback().await?;
    let shipped = found.now_body.as_deref() == Some("SELECT pg_catalog.now()")
        && found.clock_body.as_deref() == Some("SELECT pg_catalog.clock_timestamp()");
    if shipped {
        return Ok(vec![Finding::ok("clock", "ebb.now() and ebb.clock() are the server's own time")]);
    }
    let ahead = found.ahead_s.unwrap_or(0.0);
    let by = crate::plan::words(std::time::Duration::from_secs_f64(ahead.abs().min(1e12)));
    let off = match ahead {
        0.0 => String::new(),
        _ if ahead > 0.0 => format!("; ebb.now() is {by} ahead"),
        _ => format!("; ebb.now() is {by} behind"),
    };
    let text = format!("ebb.now() or ebb.clock() was replaced, as in a test or a demo{off}");
    let fix = Fix::sql(
        "CREATE OR REPLACE FUNCTION ebb.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE \
         AS 'SELECT pg_catalog.now()';\n\
         CREATE OR REPLACE FUNCTION ebb.clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE \
         AS 'SELECT pg_catalog.clock_timestamp()';",
    );
    let real = stored.iter().any(|stored| stored.is_active() && stored.kind != Kind::Settings);
    let finding = match real {
        true => Finding::fail("clock", None, format!("{text}, and policies act on it")),
        false => Finding::warn("clock", None, text),
    };
    Ok(vec![finding.fix(fix)])
}

/// Whether the database has what the file says.
pub(super) async fn drift(engine: &Engine, wanted: &[Wanted]) -> Result<Vec<Finding>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let changes = engine.difference(wanted).await?;
    if changes.is_empty() {
        return Ok(vec![Finding::ok("policies", "the database has what the file says")]);
    }
    let names: Vec<&str> = changes.iter().map(|change| change.name.as_str()).collect();
    let text = format!("the file and the database differ in {}", names.join(", "));
    Ok(vec![Finding::warn("policies", None, text).fix(Fix::command("ebb plan, then ebb apply"))])
}
