//! `ebb apply`: shows the difference, asks once on a terminal, makes it so.

use std::io::{IsTerminal, Write};

use ebb::Result;
use ebb::audit::{SigningKey, SubjectKey};
use ebb::policy::{Change, ChangeAction, Wanted};

use super::{Context, Outcome, output};

/// Options of `ebb apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Overwrite policies that were changed at runtime.
    #[arg(long)]
    force: bool,
    /// Show the difference and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Who makes the change, for history and audit.
    #[arg(long)]
    by: Option<String>,
    /// Print the difference as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let wanted = wanted(context);
    if !args.dry_run {
        context.engine.migrate().await?;
        create_keys(context)?;
    }
    let changes = context.engine.difference(&wanted).await?;
    if args.json {
        output::json(&changes)?;
    } else {
        print(&changes);
    }
    if args.dry_run || changes.is_empty() {
        return Ok(Outcome::Done);
    }
    if !args.yes && std::io::stdin().is_terminal() && !confirmed()? {
        println!("nothing was changed");
        return Ok(Outcome::Failed);
    }
    let applied = context.engine.apply(&wanted, args.force, &context.by(args.by.as_deref())).await?;
    if !args.json {
        println!("applied {} {}", applied.len(), if applied.len() == 1 { "change" } else { "changes" });
    }
    Ok(Outcome::Done)
}

/// The policies of the file.
pub(crate) fn wanted(context: &Context) -> Vec<Wanted> {
    let policies = context.config.policies.iter();
    policies
        .map(|p| Wanted { kind: p.kind, name: p.name.clone(), spec: p.spec.clone(), policy: p.policy.clone() })
        .collect()
}

fn create_keys(context: &Context) -> Result<()> {
    let audit = &context.config.audit;
    if let Some(path) = audit.signing_key.as_ref().and_then(|secret| secret.path()) {
        SigningKey::create_if_missing(path)?;
    }
    if let Some(path) = audit.subject_key.as_ref().and_then(|secret| secret.path()) {
        SubjectKey::create_if_missing(path)?;
    }
    Ok(())
}

fn confirmed() -> Result<bool> {
    print!("apply? [y/N] ");
    let _ = std::io::stdout().flush();
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|error| ebb::Error::failed(format!("cannot read the answer: {error}")))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// One line a policy, one a key that differs.
pub(crate) fn print(changes: &[Change]) {
    if changes.is_empty() {
        println!("the database has what the file says");
    }
    for change in changes {
        let sign = match change.action {
            ChangeAction::Create => '+',
            ChangeAction::Update | ChangeAction::Restart => '~',
            ChangeAction::Disable => '-',
        };
        let what = match change.action {
            ChangeAction::Create => "new",
            ChangeAction::Update => "changed",
            ChangeAction::Restart => "starts again",
            ChangeAction::Disable => "gone from the file: disabled",
        };
        println!("{sign} {} {} ({what})", change.kind, change.name);
        for (key, before, after) in &change.keys {
            match (before, after) {
                (Some(before), Some(after)) => println!("    {key}: {before} -> {after}"),
                (None, Some(after)) => println!("    {key}: {after}"),
                (Some(before), None) => println!("    {key}: {before} -> (default)"),
                (None, None) => {}
            }
        }
        if let Some(who) = &change.overwrites {
            println!("    changed at runtime by {who}; overwritten only with --force");
        }
    }
}
