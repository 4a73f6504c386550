//! `ebb resource …`: what lives in stores outside, who refers to it, and what nobody knows.

use std::collections::BTreeSet;

use ebb::policy::{self, Kind, Policy};
use ebb::resources::{self, Listed};
use ebb::{Error, Result, control};
use sqlx::PgConnection;

use super::{Context, Outcome, confirm, output, words};

/// What to do with resources.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show resources: state, references, holders, age, size where the store tells.
    List(ListArgs),
    /// Show what the last sweep found and nobody knows, and have the next one; `--confirm` lets it drop.
    Sweep(SweepArgs),
    /// End the grace of a resource that nobody refers to.
    Drop(DropArgs),
}

/// Options of `ebb resource list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// The policy; all of them when absent.
    policy: Option<String>,
    /// Only those in this state; `dropped` shows tombstones.
    #[arg(long, value_parser = ["creating", "live", "condemned", "dropping", "blocked", "dropped"])]
    state: Option<String>,
    /// At most so many.
    #[arg(long, default_value_t = 1000)]
    limit: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Options of `ebb resource sweep`.
#[derive(Debug, clap::Args)]
pub(crate) struct SweepArgs {
    /// The policy.
    policy: String,
    /// Let the sweeper drop what it finds in this store from now on.
    #[arg(long)]
    confirm: bool,
    /// Only show what is known.
    #[arg(long, conflicts_with = "confirm")]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Who confirms, for the audit.
    #[arg(long)]
    by: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Options of `ebb resource drop`.
#[derive(Debug, clap::Args)]
pub(crate) struct DropArgs {
    /// The policy.
    policy: String,
    /// The resource.
    name: String,
    /// Only say what would happen.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Who wants it gone, for the audit.
    #[arg(long)]
    by: Option<String>,
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<Outcome> {
    match command {
        Command::List(args) => list(context, args).await,
        Command::Sweep(args) => sweep(context, args).await,
        Command::Drop(args) => drop_one(context, args).await,
    }
}

/// The name is that of a resources policy.
async fn known(connection: &mut PgConnection, name: &str) -> Result<policy::Resources> {
    let stored = policy::store::find(connection, name).await?;
    match stored.policy()? {
        Policy::Resources(resources) => Ok(resources),
        _ => Err(Error::usage(format!("{name} is no resources policy")).with_hint("`ebb policy list` shows them")),
    }
}

async fn list(context: &Context, args: ListArgs) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    if let Some(name) = &args.policy {
        known(&mut tx, name).await?;
    }
    let mut listed = resources::list(&mut tx, args.policy.as_deref(), args.state.as_deref(), args.limit).await?;
    let now: ebb::audit::Moment = sqlx::query_scalar("SELECT ebb.now()").persistent(false).fetch_one(&mut *tx).await?;
    let all = policy::store::all(&mut tx).await?;
    tx.rollback().await?;
    let shown: BTreeSet<String> = listed.iter().map(|one| one.policy.clone()).collect();
    for stored in all.iter().filter(|stored| stored.kind == Kind::Resources && shown.contains(&stored.name)) {
        if let Ok(Policy::Resources(resources)) = stored.policy()
            && let Err(error) = resources::add_sizes(context.engine.database(), &resources, &mut listed).await
        {
            eprintln!("sizes of {} are not known: {error}", stored.name);
        }
    }
    if args.json {
        output::json(&listed)?;
        return Ok(Outcome::Done);
    }
    let rows = listed.iter().map(|one| row(one, now)).collect();
    let header = ["policy", "name", "state", "refs", "holders", "announced", "size", "note"];
    output::table(&header, rows, "no resources");
    Ok(Outcome::Done)
}

fn row(one: &Listed, now: ebb::audit::Moment) -> Vec<String> {
    let note = match (&one.problem, one.orphan) {
        (Some(problem), _) => problem.clone(),
        (None, true) => "nobody had announced it".into(),
        (None, false) => String::new(),
    };
    vec![
        one.policy.clone(),
        one.name.clone(),
        one.state.clone(),
        output::count(one.refs),
        one.holders.join(", "),
        words::relative(one.intended_at, now),
        one.size.map(words::bytes).unwrap_or_default(),
        note,
    ]
}

async fn sweep(context: &Context, args: SweepArgs) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    known(&mut tx, &args.policy).await?;
    let sweeps = resources::sweeps(&mut tx, &args.policy).await?;
    let seen = resources::sightings(&mut tx, &args.policy, 1000).await?;
    if args.json {
        output::json(&serde_json::json!({ "sweeps": sweeps, "orphans": seen }))?;
    } else {
        say!("{} of {}", sweeps.location, args.policy);
        match &sweeps.report {
            None => say!("it was not swept yet"),
            Some(report) => {
                let number = |key: &str| output::count(report[key].as_i64().unwrap_or(0));
                say!(
                    "last sweep: {} listed, {} of them with other names, {} too young, {} known, {} that nobody knows",
                    number("listed"),
                    number("foreign"),
                    number("young"),
                    number("known"),
                    number("orphans")
                );
            }
        }
        let rows = seen.iter().map(|one| {
            let size = one.size.and_then(|size| u64::try_from(size).ok()).map(words::bytes).unwrap_or_default();
            vec![one.name.clone(), output::time(one.first_seen), output::time(one.last_seen), size]
        });
        output::table(&["orphan", "first seen", "last seen", "size"], rows.collect(), "no orphans are known");
    }
    if args.dry_run {
        tx.rollback().await?;
        return Ok(Outcome::Done);
    }
    if !args.confirm && !sweeps.confirmed {
        say!("nothing is dropped until somebody lets it: ebb resource sweep {} --confirm", args.policy);
    }
    tx.rollback().await?;
    let by = context.by(args.by.as_deref());
    let question = "let the sweeper drop what nobody knows there?";
    if args.confirm && !args.yes && confirm::can_ask() && !confirm::ask(question)? {
        say!("nothing was changed");
        return Ok(Outcome::Done);
    }
    let mut tx = context.begin().await?;
    if args.confirm {
        resources::confirm(&mut tx, &args.policy, &by).await?;
        say!("confirmed: what is seen twice, old by its id and by the store's own time, goes");
    }
    let units = control::trigger(&mut tx, &args.policy, Some("sweep"), &by).await?;
    let nodes = control::nodes(&mut tx).await?;
    tx.commit().await?;
    match (units, nodes.len()) {
        (0, _) | (_, 0) => {
            say!("no node is at work on it; sweep from here: ebb run --once --only {}:sweep", args.policy)
        }
        _ => say!("a node sweeps it now"),
    }
    Ok(Outcome::Done)
}

async fn drop_one(context: &Context, args: DropArgs) -> Result<Outcome> {
    let asks = !args.dry_run && !args.yes && confirm::can_ask();
    if asks && !confirm::ask(&format!("drop {}?", args.name))? {
        say!("nothing was changed");
        return Ok(Outcome::Done);
    }
    let mut tx = context.begin().await?;
    known(&mut tx, &args.policy).await?;
    resources::drop_now(&mut tx, &args.policy, &args.name, &context.by(args.by.as_deref())).await?;
    if args.dry_run {
        tx.rollback().await?;
        say!("{} would be dropped at the next pass", args.name);
        return Ok(Outcome::Done);
    }
    tx.commit().await?;
    say!("{} is dropped at the next pass of the dropper", args.name);
    Ok(Outcome::Done)
}
