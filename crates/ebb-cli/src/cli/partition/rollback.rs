//! `ebb partition rollback TABLE` and `ebb partition finish TABLE`.

use ebb::Result;
use ebb::partition::{Finished, RolledBack, Standing};

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
    /// Print the statements instead of running them, as a script for psql.
    #[arg(long)]
    sql: bool,
    /// How long taking more than 24 partitions with rows along may hold the table's lock, as 500ms or 2s.
    #[arg(long, value_name = "DURATION", value_parser = super::max_lock)]
    max_lock: Option<std::time::Duration>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Print how it stands and the statements as JSON; changes nothing.
    #[arg(long)]
    json: bool,
}

/// Options of `ebb partition finish`.
#[derive(Debug, clap::Args)]
pub(crate) struct FinishArgs {
    /// The table.
    table: String,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the statements instead of running them, as a script for psql.
    #[arg(long)]
    sql: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Print how it stands and the statements as JSON; changes nothing.
    #[arg(long)]
    json: bool,
}

/// Prints the statements instead.
fn printed(standing: &Standing, lines: Vec<String>, json: bool) -> Result<Outcome> {
    match json {
        true => output::json(&serde_json::json!({ "table": standing.table, "state": standing.state,
            "policy": standing.policy, "sql": lines }))?,
        false => lines.iter().for_each(|line| say!("{line}")),
    }
    Ok(Outcome::Done)
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    context.begin().await?.rollback().await?;
    let database = context.engine.database();
    let standing = ebb::partition::require_standing(database, &args.table).await?;
    if args.sql || args.json {
        return printed(&standing, ebb::partition::rollback_script(database, &args.table).await?, args.json);
    }
    match standing.state.as_str() {
        "splitting" | "abandoning" => {
            say!("{} is {}: the parts go, the table stays as it is", standing.table, standing.state)
        }
        state => say!("{} is {state}: it becomes an ordinary table again, with every row", standing.table),
    }
    if args.dry_run && standing.state == "adopted" {
        // Whatever would stop it stops this.
        ebb::partition::rollback_script(database, &args.table).await?;
    }
    if args.dry_run || (!args.yes && confirm::can_ask() && !confirm::ask("Roll it back?")?) {
        say!("nothing was done");
        return Ok(Outcome::Done);
    }
    let mut screen = Screen::new();
    let mut watch = |progress| screen.show(progress);
    let by = context.by(None);
    match ebb::partition::rollback_within(database, &args.table, &by, args.max_lock, &mut watch).await? {
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
    if args.sql || args.json {
        return printed(&standing, ebb::partition::finish_script(database, &args.table).await?, args.json);
    }
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
