//! `ebb uninstall`: takes Ebb out of the database again, after showing what goes with it.

use ebb::pg::uninstall::{self, Contents};
use ebb::{Error, Result, control};

use super::{Context, Outcome, confirm, output};

/// Options of `ebb uninstall`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Show what would go and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Also while nodes are alive, and with objects of others that depend on the schema.
    #[arg(long)]
    force: bool,
    /// Print what is there as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let database = context.engine.database();
    let mut tx = database.read().await?;
    let Some(contents) = uninstall::contents(&mut tx).await? else {
        say!("Ebb is not in this database; nothing to do");
        return Ok(Outcome::Done);
    };
    let has_nodes = contents.tables.iter().any(|table| table.table == "node");
    let nodes = if has_nodes { control::nodes(&mut tx).await? } else { Vec::new() };
    tx.commit().await?;
    if args.json {
        output::json(&contents)?;
    } else {
        print(&contents);
    }
    if args.dry_run {
        return Ok(Outcome::Done);
    }
    if let (Some(node), false) = (nodes.first(), args.force) {
        return Err(Error::refused(format!(
            "{} was alive a moment ago (seen {})",
            node.name,
            output::time(node.seen_at)
        ))
        .with_hint("stop the nodes first (one that has ended counts for ten more seconds), or use --force"));
    }
    if let (Some(first), false) = (contents.dependents.first(), args.force) {
        return Err(Error::refused(format!("{first} depends on the ebb schema and would go with it"))
            .with_hint("drop it yourself first, or let it go too with --force"));
    }
    if !args.yes {
        if !confirm::can_ask() {
            return Err(Error::usage("this drops all of that for good, and there is no terminal to ask on")
                .with_hint("say --yes; keep a copy first: pg_dump --schema=ebb"));
        }
        if !confirm::ask("drop the ebb schema and all of this?")? {
            say!("nothing was changed");
            return Ok(Outcome::Failed);
        }
    }
    uninstall::uninstall(database, args.force).await?;
    if !args.json {
        say!("dropped the ebb schema; your own tables, ebb.toml and the keys on disk are as they were");
    }
    Ok(Outcome::Done)
}

fn print(contents: &Contents) {
    let rows = contents
        .tables
        .iter()
        .filter(|table| table.rows > 0)
        .map(|table| vec![format!("ebb.{}", table.table), output::count(table.rows), output::count(table.bytes)]);
    output::table(&["table", "rows", "bytes"], rows.collect(), "no table of the ebb schema has rows");
    let empty = contents.tables.iter().filter(|table| table.rows == 0).count();
    say!(
        "and {} without rows, {}",
        output::plural(empty as u64, "table"),
        output::plural(contents.functions as u64, "function")
    );
    for dependent in &contents.dependents {
        say!("depends on it and would go too: {dependent}");
    }
    if contents.tables.iter().any(|table| table.table == "audit" && table.rows > 0) {
        say!("the audit goes with it; keep a copy: pg_dump --schema=ebb");
    }
}
