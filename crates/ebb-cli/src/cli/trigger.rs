//! `ebb trigger NAME[:CHORE]`: the running node does it now.

use ebb::spine::Selector;
use ebb::{Error, Result, control, policy};

use super::{Context, Outcome, output, pause};

/// Options of `ebb trigger`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The policy, or one chore of it. `keep` and `audit` are Ebb's own work.
    #[arg(value_name = "NAME[:CHORE]")]
    what: String,
    /// Who asks, for the audit.
    #[arg(long)]
    by: Option<String>,
}

/// The chores that this version has.
const CHORES: [&str; 10] =
    ["expire", "mark", "warn", "erase", "partition", "holders", "drop", "sweep", "seal", "audit"];

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let Selector { policy: name, chore } = args.what.parse()?;
    let mut tx = context.begin().await?;
    pause::known(&mut tx, &name, "trigger").await?;
    if let Some(chore) = chore.as_deref().filter(|chore| !CHORES.contains(chore)) {
        return Err(
            Error::usage(format!("there is no chore {chore}")).with_hint(format!("chores are {}", CHORES.join(", ")))
        );
    }
    refuse_inactive(&mut tx, &name).await?;
    let units = control::trigger(&mut tx, &name, chore.as_deref(), &context.by(args.by.as_deref())).await?;
    let nodes = control::nodes(&mut tx).await?;
    let paused = control::pauses(&mut tx).await?;
    if units == 0 {
        return Err(why_nothing(&name, chore.as_deref(), !nodes.is_empty()));
    }
    tx.commit().await?;
    say!("triggered {} ({})", args.what, output::plural(units, "unit"));
    if let Some(pause) = paused.iter().find(|pause| pause.name == control::ALL || pause.name == name) {
        let what = if pause.name == control::ALL { "everything" } else { &name };
        say!("it waits: {what} is paused by {}", pause.paused_by);
    }
    match nodes.as_slice() {
        [] => say!("no node is alive to hear it; the next one does it when it starts: ebb run"),
        nodes => {
            let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
            let when = if nodes.iter().any(|node| node.listens) { "now" } else { "within a second" };
            say!("{} {when}: {}", if names.len() == 1 { "a node hears it" } else { "nodes hear it" }, names.join(", "));
        }
    }
    Ok(Outcome::Done)
}

/// Nodes do not follow a policy that was stopped or disabled, whatever units it still has.
async fn refuse_inactive(connection: &mut sqlx::PgConnection, name: &str) -> Result<()> {
    if name == "audit" || name == "keep" {
        return Ok(());
    }
    let stored = policy::store::find(connection, name).await?;
    if let Some(reason) = &stored.stopped {
        return Err(Error::refused(format!("{name} was stopped: {reason}")).with_hint("mend it and run `ebb apply`"));
    }
    if !stored.enabled {
        return Err(Error::refused(format!("{name} is disabled"))
            .with_hint(format!("switch it on: ebb policy set {name} enabled=true")));
    }
    Ok(())
}

/// No unit was there to trigger.
fn why_nothing(name: &str, chore: Option<&str>, alive: bool) -> Error {
    let run_once = format!("do it from here instead: ebb run --once --only {name}");
    if name == "audit" {
        return Error::refused("nothing seals the audit here yet")
            .with_hint("set [audit] signing_key, then `ebb apply`, and start a node: ebb run");
    }
    match chore {
        Some(chore) if alive => Error::usage(format!("{name} has no chore {chore}"))
            .with_hint(format!("trigger all of it: ebb trigger {name}")),
        _ => Error::refused(format!("no node has taken up {name} yet")).with_hint(run_once),
    }
}
