//! `ebb partition split TABLE`: the first partition, with all of history, into its periods.

use ebb::partition::split::{self, Plan, Preflight, Request};
use ebb::{Error, Result};

use super::progress::Screen;
use crate::cli::{Context, Outcome, confirm, output};

/// Options of `ebb partition split`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 split, 1 failed, 3 something is in the way (nothing was changed).\n\n\
    Example:  ebb partition split public.ingest_idempotency")]
pub(crate) struct Args {
    /// The partitioned table.
    table: String,
    /// The partition; the oldest that reaches over more than one period when absent.
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// Rows from before this day share one part.
    #[arg(long, value_name = "DATE", value_parser = date)]
    since: Option<String>,
    /// How long putting more than 24 parts in place may hold the table's lock, as 500ms or 2s.
    #[arg(long, value_name = "DURATION", value_parser = super::max_lock)]
    max_lock: Option<std::time::Duration>,
    /// Print every step instead of running it.
    #[arg(long)]
    sql: bool,
    /// Look and say, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Print what was found as JSON; changes nothing.
    #[arg(long)]
    json: bool,
}

fn date(text: &str) -> std::result::Result<String, String> {
    match text.parse::<jiff::civil::Date>() {
        Ok(date) => Ok(date.to_string()),
        Err(_) => Err("it is a day as 2026-01-01".into()),
    }
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let request = Request {
        table: args.table.clone(),
        partition: args.partition.clone(),
        since: args.since.clone(),
        max_lock: args.max_lock,
    };
    context.begin().await?.rollback().await?;
    let standing = ebb::partition::standing(context.engine.database(), &args.table).await?;
    let begun = standing
        .as_ref()
        .is_some_and(|standing| ["splitting", "split", "abandoning"].contains(&standing.state.as_str()));
    if begun && args.sql {
        split::script_of_rest(context.engine.database(), &args.table).await?.iter().for_each(|line| say!("{line}"));
        return Ok(Outcome::Done);
    }
    if begun && (args.dry_run || args.json) {
        let state = standing.map(|standing| standing.state).unwrap_or_default();
        return Err(Error::usage(format!("{} is {state}: its steps are written down already", args.table))
            .with_hint("--sql prints those that are left"));
    }
    if !begun {
        let found = look(context, &request).await?;
        if args.json {
            output::json(&serde_json::json!({ "table": found.table, "partition": found.partition, "rows": found.rows,
                "bytes": found.bytes, "findings": found.findings, "steps": found.plan.as_ref().map(Plan::steps) }))?;
            return Ok(if found.plan.is_some() { Outcome::Done } else { Outcome::Problems });
        }
        if found.plan.is_none() {
            print(&found);
            return Ok(Outcome::Problems);
        }
        if args.sql {
            split::script(&found)?.iter().for_each(|line| say!("{line}"));
            return Ok(Outcome::Done);
        }
        print(&found);
        if args.dry_run {
            return Ok(Outcome::Done);
        }
        if !args.yes && confirm::can_ask() && !confirm::ask("Split it?")? {
            say!("nothing was done");
            return Ok(Outcome::Done);
        }
    }
    let mut screen = Screen::new();
    let mut watch = |progress| screen.show(progress);
    let done = split::split(context.engine.database(), &request, &mut watch).await?;
    let already = if done.already { " already" } else { "" };
    say!("{} is split{already} into {}", done.partition, output::plural(done.parts.len() as u64, "partition"));
    say!("it is empty, and stays for the way back; let it go with: ebb partition finish {}", done.table);
    Ok(Outcome::Done)
}

async fn look(context: &Context, request: &Request) -> Result<Preflight> {
    // Without an index on the column its oldest row is found by reading the partition.
    let guard = ebb::pg::Guard { statement: std::time::Duration::from_secs(3600), ..Default::default() };
    let mut tx = context.engine.database().begin(guard).await?;
    let found = split::preflight(&mut tx, request).await?;
    tx.rollback().await?;
    Ok(found)
}

fn print(found: &Preflight) {
    let (rows, size) = (output::plural(found.rows.max(0) as u64, "row"), output::count(found.bytes / 1024));
    say!("{}: about {rows}, {size} kB", found.partition);
    for refusal in &found.findings.refusals {
        say!("in the way: {}", refusal.what);
        say!("    {}", refusal.fix);
    }
    for change in &found.findings.changes {
        say!("will change: {}", change.what);
        say!("    {}", change.fix);
    }
    let Some(plan) = &found.plan else {
        say!("nothing was changed");
        return;
    };
    let names: Vec<&str> = plan.parts().collect();
    say!("becomes: {}", names.join(", "));
    say!("needs its size once more, with indexes, until they are in its place");
}
