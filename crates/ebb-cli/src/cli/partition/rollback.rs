//! `ebb partition rollback TABLE` and `ebb partition finish TABLE`.

use ebb::partition::{Finished, RolledBack};
use ebb::{Error, Result};

use super::file;
use super::progress::Screen;
use crate::cli::{Context, Outcome, confirm, output};

/// Options of `ebb partition rollback`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The table.
    table: String,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the statements instead of running them.
    #[arg(long)]
    sql: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

/// Options of `ebb partition finish`.
#[derive(Debug, clap::Args)]
pub(crate) struct FinishArgs {
    /// The table.
    table: String,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    context.begin().await?.rollback().await?;
    let database = context.engine.database();
    let standing = ebb::partition::require_standing(database, &args.table).await?;
    if args.sql && !["splitting", "abandoning"].contains(&standing.state.as_str()) {
        return Err(Error::refused("this version does not print the way back of an adoption yet").with_hint(
            "it detaches, puts triggers in place of keys and moves rows, depending on what it finds: let Ebb do it, --dry-run says what",
        ));
    }
    if args.sql {
        standing.back.iter().for_each(|statement| say!("{statement};"));
        return Ok(Outcome::Done);
    }
    match standing.state.as_str() {
        "splitting" | "abandoning" => {
            say!("{} is {}: the parts go, the table stays as it is", standing.table, standing.state)
        }
        state => say!("{} is {state}: it becomes an ordinary table again, with every row", standing.table),
    }
    if args.dry_run || (!args.yes && confirm::can_ask() && !confirm::ask("Roll it back?")?) {
        say!("nothing was done");
        return Ok(Outcome::Done);
    }
    let mut screen = Screen::new();
    let mut watch = |progress| screen.show(progress);
    match ebb::partition::rollback(database, &args.table, &context.by(None), &mut watch).await? {
        RolledBack::Abandoned => say!("{} is as it was before; nothing is left of the adoption", standing.table),
        RolledBack::Unsplit => {
            say!(
                "nothing is left of the split of {0}; to undo its adoption too: ebb partition rollback {0}",
                standing.table
            );
            return Ok(Outcome::Done);
        }
        RolledBack::Back(rows) => {
            say!("{} is an ordinary table again; {} moved back into it", standing.table, output::plural(rows, "row"));
            say!("drop what is left, all of it empty, with: ebb partition finish {}", standing.table);
        }
    }
    file::remove(context, &standing.policy, &standing.spec)?;
    Ok(Outcome::Done)
}

pub(crate) async fn finish(context: &Context, args: FinishArgs) -> Result<Outcome> {
    context.begin().await?.rollback().await?;
    let database = context.engine.database();
    let standing = ebb::partition::require_standing(database, &args.table).await?;
    say!("{} is {}", standing.table, standing.state);
    if args.dry_run || (!args.yes && confirm::can_ask() && !confirm::ask("Make that final?")?) {
        say!("nothing was done");
        return Ok(Outcome::Done);
    }
    let mut screen = Screen::new();
    let mut watch = |progress| screen.show(progress);
    match ebb::partition::finish(database, &args.table, &mut watch).await? {
        Finished::Split => say!("the split of {} is final; the partition that was split is gone", standing.table),
        Finished::Adopted => say!("the adoption of {} is final", standing.table),
        Finished::RolledBack(tables) => {
            say!("{} went; {} is as it was before", output::plural(tables as u64, "empty table"), standing.table);
        }
    }
    Ok(Outcome::Done)
}
