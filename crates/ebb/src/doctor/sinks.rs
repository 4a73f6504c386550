//! Sinks: events that wait where nobody delivers, and receivers that take nothing.

use super::{Finding, Fix};
use crate::plan::words;
use crate::policy::{Kind, Stored};
use crate::status::{self, since};
use crate::words::plural;
use crate::{Engine, Result, schedule};

/// Sinks that are off and have events all the same, and those whose breaker is open.
pub(super) async fn sinks(engine: &Engine, stored: &[Stored]) -> Result<Vec<Finding>> {
    let sinks: Vec<&Stored> = stored.iter().filter(|stored| stored.kind == Kind::Sink).collect();
    let off: Vec<&str> = sinks.iter().filter(|sink| !sink.enabled).map(|sink| sink.name.as_str()).collect();
    let mut tx = engine.database().read().await?;
    let waiting = schedule::waiting(&mut tx, &off).await?;
    let dead = schedule::dead(&mut tx).await?;
    let (now, _) = status::clocks(&mut tx).await?;
    tx.rollback().await?;
    let mut findings = Vec::new();
    for (sink, events) in waiting {
        let evidence = format!("it is disabled, and {} in it wait for ever", plural(events, "event"));
        let fix = format!(
            "put [sinks.{sink}] back into the file and run `ebb apply`; or ebb event list --sink {sink}, and ebb event cancel each; \
             warnings of a policy that has another sink by now are made anew by its next run"
        );
        findings.push(Finding::fail("sinks", Some(&sink), evidence).fix(Fix::advice(fix)));
    }
    for (sink, dead_since) in dead {
        let evidence = format!(
            "its receiver has taken nothing for {} (since {dead_since}): its events wait, and one now and then is tried",
            words(since(dead_since, now))
        );
        let fix = format!("see why: ebb event list --sink {sink} --state failed; they go out once it answers");
        findings.push(Finding::warn("sinks", Some(&sink), evidence).fix(Fix::advice(fix)));
    }
    if findings.is_empty() && !sinks.is_empty() {
        findings.push(Finding::ok(
            "sinks",
            "no event waits in a sink that is disabled, and every receiver counts as alive",
        ));
    }
    Ok(findings)
}
