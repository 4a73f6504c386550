//! `ebb partition maintain [TABLE]`: what the node does by itself, now and here.

use std::time::Duration;

use ebb::Result;
use ebb::partition::Listing;
use ebb::spine::{NodeOptions, Selector, Shutdown, Status};

use crate::cli::{Context, Outcome, confirm, output};

/// Options of `ebb partition maintain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The table, or its policy; all of them when absent.
    table: Option<String>,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the statements instead of running them.
    #[arg(long)]
    sql: bool,
    /// Do not ask before partitions go.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    let listings = ebb::partition::list(&mut tx, args.table.as_deref()).await?;
    tx.rollback().await?;
    if args.sql {
        let statements = listings.iter().flat_map(ebb::partition::statements);
        statements.for_each(|statement| say!("{statement}"));
        return Ok(Outcome::Done);
    }
    for listing in &listings {
        say!("{}: {} missing ahead, {} to go", listing.table, listing.missing, leaving(listing).len());
        leaving(listing).iter().for_each(|partition| say!("  {partition}"));
        let ending = listing.partitions.iter().filter(|p| p.state == "detach pending" && !p.expired);
        ending.for_each(|p| {
            say!("  {}: a detach that was cancelled is ended; it stays as a table of its own", p.partition)
        });
    }
    if args.dry_run {
        return Ok(Outcome::Done);
    }
    let going: usize = listings.iter().map(|listing| leaving(listing).len()).sum();
    if going > 0 && !args.yes && confirm::can_ask() && !confirm::ask("Let them go?")? {
        say!("nothing was done");
        return Ok(Outcome::Done);
    }
    let chore = |policy: &String| Selector { policy: policy.clone(), chore: Some("partition".into()) };
    let only: Vec<Selector> = listings.iter().map(|listing| chore(&listing.policy)).collect();
    if only.is_empty() {
        say!("no partition policy is active");
        return Ok(Outcome::Done);
    }
    let options = NodeOptions { name: "cli".into(), only, ..NodeOptions::default() };
    let finished = context.engine.node(options, Shutdown::new()).run_once(Duration::from_secs(60)).await?;
    for run in &finished.runs {
        let note = run.note.as_deref().map_or_else(String::new, |note| format!(": {note}"));
        say!("{}: {}, {}{note}", run.table, run.status.as_str(), output::plural(run.rows, "row") + " gone");
    }
    for (unit, node) in &finished.held {
        say!("{unit} is held by {node}");
    }
    let failed = finished.runs.iter().any(|run| run.status == Status::Failed);
    let waiting = !finished.held.is_empty() || finished.has_failed();
    Ok(if failed {
        Outcome::Failed
    } else if waiting {
        Outcome::Problems
    } else {
        Outcome::Done
    })
}

/// The partitions that are past their time.
fn leaving(listing: &Listing) -> Vec<String> {
    let expired = listing.partitions.iter().filter(|p| p.expired);
    let detached = listing.detached.iter().filter(|gone| gone.due);
    expired.map(|p| p.partition.clone()).chain(detached.map(|gone| gone.partition.clone())).collect()
}
