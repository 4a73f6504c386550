//! `ebb pause` and `ebb resume`: the operator's veto, and the answer to a brake.

use ebb::control::{self, ALL};
use ebb::policy::{self, Kind};
use ebb::{Error, Result};
use sqlx::PgConnection;

use super::{Context, Outcome, output};

/// Options of `ebb pause`.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    /// The policy or sink; everything when absent. `events` is all deliveries, `keep` and `audit` are Ebb's own work.
    name: Option<String>,
    /// Why, for those who wonder later.
    #[arg(long)]
    reason: Option<String>,
    /// Who pauses, for the audit.
    #[arg(long)]
    by: Option<String>,
}

/// Options of `ebb resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    /// The policy; when absent, the pause of everything.
    name: Option<String>,
    /// Let a run that the brake stopped take up to so many rows, once.
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..=i64::MAX as u64), requires = "name")]
    allow: Option<u64>,
    /// Who resumes, for the audit.
    #[arg(long)]
    by: Option<String>,
}

pub(crate) async fn pause(context: &Context, args: PauseArgs) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    if let Some(name) = &args.name {
        known(&mut tx, name, "pause").await?;
    }
    let name = args.name.as_deref().unwrap_or(ALL);
    control::pause(&mut tx, name, args.reason.as_deref(), &context.by(args.by.as_deref())).await?;
    let nodes = control::nodes(&mut tx).await?.len();
    tx.commit().await?;
    let what = args.name.as_deref().unwrap_or("everything");
    let resume = args.name.as_deref().map_or(String::new(), |name| format!(" {name}"));
    say!("paused {what}; batches that run now end, and no new one starts until: ebb resume{resume}");
    if nodes == 0 {
        say!("no node is alive at the moment; those that start will keep to it");
    }
    Ok(Outcome::Done)
}

pub(crate) async fn resume(context: &Context, args: ResumeArgs) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    let name = args.name.as_deref().unwrap_or(ALL);
    let paused = control::pauses(&mut tx).await?;
    // A policy that is gone can still be paused.
    if name != ALL && !paused.iter().any(|pause| pause.name == name) {
        known(&mut tx, name, "resume").await?;
    }
    let resumed = control::resume(&mut tx, name, args.allow, &context.by(args.by.as_deref())).await?;
    let left = control::pauses(&mut tx).await?;
    let nodes = control::nodes(&mut tx).await?.len();
    tx.commit().await?;
    let what = args.name.as_deref().unwrap_or("everything");
    match (resumed, args.allow) {
        (true, Some(rows)) => {
            say!("the next run of {what} may take up to {}, past its brake", output::plural(rows, "row"));
        }
        (true, None) => say!("resumed {what}"),
        (false, _) => say!("{what} was not paused"),
    }
    for pause in &left {
        match pause.name.as_str() {
            ALL if name != ALL => say!("everything is still paused by {}: ebb resume", pause.paused_by),
            other if name == ALL => say!("{other} is still paused by {}: ebb resume {other}", pause.paused_by),
            _ => {}
        }
    }
    if nodes == 0 && resumed {
        say!("no node is alive at the moment; start one: ebb run");
    }
    Ok(Outcome::Done)
}

/// Makes sure that the name has work to do; an unknown one answers with the nearest.
pub(crate) async fn known(connection: &mut PgConnection, name: &str, verb: &str) -> Result<()> {
    if matches!(name, "keep" | "audit" | "events") {
        return Ok(());
    }
    let stored = policy::store::find(connection, name).await?;
    match stored.kind {
        Kind::Once => Err(Error::usage(format!("{name} is a namespace of once: there is nothing to {verb}"))
            .with_hint(format!("expired keys are swept by Ebb's own work: ebb {verb} keep"))),
        Kind::Settings => Err(Error::usage(format!("{name} is a setting, not a policy: there is nothing to {verb}"))
            .with_hint("`ebb policy list` shows the policies")),
        _ => Ok(()),
    }
}
