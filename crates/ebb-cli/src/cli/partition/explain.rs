//! `ebb partition explain TABLE`: which partitions a statement reads, by the server's own plan; nothing is executed.

use std::path::PathBuf;

use ebb::{Error, Result};

use crate::cli::{Context, Outcome, output};

/// Options of `ebb partition explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 when every statement reads as few partitions as it can, 3 when one falls short.")]
pub(crate) struct Args {
    /// The table.
    table: String,
    /// Statements to look at instead of the usual ones: insert, count, list, update by key, delete what is expired.
    #[arg(long, value_name = "FILE")]
    query: Option<PathBuf>,
    /// The most partitions that each statement of --query may read.
    #[arg(long, value_name = "PARTITIONS", requires = "query")]
    expect: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let shapes = match &args.query {
        None => None,
        Some(path) => {
            let text =
                std::fs::read_to_string(path).map_err(|error| Error::usage(format!("{}: {error}", path.display())))?;
            let shapes = ebb::partition::shapes(&text, args.expect);
            if shapes.is_empty() {
                return Err(Error::usage(format!("{} has no statement", path.display())));
            }
            Some(shapes)
        }
    };
    let mut tx = context.begin().await?;
    let explained = ebb::partition::explain(&mut tx, &args.table, shapes).await?;
    tx.rollback().await?;
    if args.json {
        output::json(&explained)?;
    } else {
        for one in &explained {
            let mark = if one.falls_short { "falls short" } else { "ok" };
            say!("{} ({mark}): {}", one.name, one.words);
            say!("    {}", one.sql.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }
    Ok(if explained.iter().any(|one| one.falls_short) { Outcome::Problems } else { Outcome::Done })
}
