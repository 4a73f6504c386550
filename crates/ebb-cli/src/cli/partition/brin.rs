//! `ebb partition brin TABLE`: the small index by time, for tables that stay whole.

use ebb::Result;

use crate::cli::{Context, Outcome, confirm, output};

/// Options of `ebb partition brin`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The table.
    table: String,
    /// The column; that which the table is partitioned by when absent.
    #[arg(long)]
    column: Option<String>,
    /// Pages that share an entry.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=131_072))]
    pages_per_range: u32,
    /// Print the statements instead of running them.
    #[arg(long)]
    sql: bool,
    /// Say what it would gain, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Print JSON; changes nothing.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    let brin = ebb::partition::brin(&mut tx, &args.table, args.column.as_deref(), args.pages_per_range).await?;
    tx.rollback().await?;
    if args.json {
        output::json(&brin)?;
        return Ok(Outcome::Done);
    }
    if args.sql {
        brin.statements.iter().for_each(|statement| say!("{statement};"));
        return Ok(Outcome::Done);
    }
    brin.gain.iter().for_each(|line| say!("{line}"));
    if args.dry_run || (!args.yes && confirm::can_ask() && !confirm::ask("Build it?")?) {
        say!("nothing was done");
        return Ok(Outcome::Done);
    }
    ebb::partition::build_brin(context.engine.database(), &brin, &mut |statement| eprintln!("{statement}")).await?;
    say!("{} has a BRIN index on {}", brin.table, brin.column);
    Ok(Outcome::Done)
}
