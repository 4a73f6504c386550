//! `ebb partition list [TABLE]`.

use ebb::Result;
use ebb::partition::Listing;

use crate::cli::{Context, Outcome, output};

/// Options of `ebb partition list`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The table, or its policy; all of them when absent.
    table: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    let (listings, broken) = ebb::partition::list_all(&mut tx, args.table.as_deref()).await?;
    tx.rollback().await?;
    let none = listings.is_empty() && broken.is_empty();
    let outcome = super::broken(broken, args.table.as_deref())?;
    if args.json {
        output::json(&listings)?;
        return Ok(outcome);
    }
    if none {
        say!("no partition policy is active; `ebb partition adopt TABLE --column C --by month` makes one");
    }
    for (position, listing) in listings.iter().enumerate() {
        if position > 0 {
            say!();
        }
        print(listing);
    }
    Ok(outcome)
}

fn print(listing: &Listing) {
    let days = listing.runway_seconds / 86_400;
    say!(
        "{} ({}): partitions reach {}, {} from now{}",
        listing.table,
        listing.policy,
        output::time(listing.runway_until),
        output::plural(days.max(0) as u64, "day"),
        if listing.missing > 0 { format!("; {} missing ahead", listing.missing) } else { String::new() }
    );
    if let Some(days) = listing.type_ends_in() {
        say!(
            "its column is an integer, which ends in {}: no partition follows",
            output::plural(days.max(0) as u64, "day")
        );
    }
    let open = |bound: &Option<String>| bound.clone().unwrap_or_else(|| "…".into());
    let rows = listing.partitions.iter().map(|p| {
        let size = output::count(p.bytes / 1024) + " kB";
        vec![p.partition.clone(), open(&p.from), open(&p.to), output::count(p.rows), size, p.state.clone()]
    });
    output::table(&["partition", "from", "to", "rows", "size", "state"], rows.collect(), "it has no partitions");
    for gone in &listing.detached {
        let since = gone.detached_at.map_or_else(String::new, |at| format!(" since {}", output::time(at)));
        say!("detached{since}: {} ({} to {})", gone.partition, gone.from, gone.to);
    }
}
