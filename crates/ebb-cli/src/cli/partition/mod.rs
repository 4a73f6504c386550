//! `ebb partition …`: tables split by time. A file for each thing that can be done with one.

mod adopt;
mod brin;
mod explain;
pub(crate) mod file;
mod list;
mod maintain;
mod progress;
mod rollback;
mod split;

use std::time::Duration;

use ebb::{Error, Result};

use super::{Context, Outcome};

/// What to do with partitions.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the partitions of every policy's table, how far they reach, and those that wait outside.
    List(list::Args),
    /// Make an ordinary table a partitioned one, online: it becomes the first partition.
    Adopt(adopt::Args),
    /// Cut the first partition, with all of history, into its periods, online.
    Split(split::Args),
    /// Take an adoption back, before or after new writes; nothing is lost.
    Rollback(rollback::Args),
    /// Make an adoption or a rollback final: what is left of it goes.
    Finish(rollback::FinishArgs),
    /// Show which partitions statements read, and what would let them read fewer; executes nothing.
    Explain(explain::Args),
    /// Build a small index by time, concurrently, leaf by leaf.
    Brin(brin::Args),
    /// Do now what the node does by itself: make what is missing ahead, let go what is expired.
    Maintain(maintain::Args),
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<Outcome> {
    match command {
        Command::List(args) => list::run(context, args).await,
        Command::Adopt(args) => adopt::run(context, args).await,
        Command::Split(args) => split::run(context, args).await,
        Command::Rollback(args) => rollback::run(context, args).await,
        Command::Finish(args) => rollback::finish(context, args).await,
        Command::Explain(args) => explain::run(context, args).await,
        Command::Brin(args) => brin::run(context, args).await,
        Command::Maintain(args) => maintain::run(context, args).await,
    }
}

/// Says which policies cannot be looked at; where one was asked for, that is the error.
fn broken(broken: Vec<(String, Error)>, asked_for: Option<&str>) -> Result<Outcome> {
    if broken.is_empty() {
        return Ok(Outcome::Done);
    }
    for (policy, error) in broken {
        if asked_for.is_some() {
            return Err(error);
        }
        eprintln!("policy {policy}: {error}");
    }
    Ok(Outcome::Problems)
}

/// How long a lock may be held: `500ms`, `2s`.
fn max_lock(text: &str) -> std::result::Result<Duration, String> {
    let number = |digits: &str| digits.parse::<u64>().ok().filter(|number| *number > 0);
    let parsed = match text.strip_suffix("ms") {
        Some(digits) => number(digits).map(Duration::from_millis),
        None => text.strip_suffix('s').and_then(number).map(Duration::from_secs),
    };
    parsed
        .filter(|most| *most <= Duration::from_secs(600))
        .ok_or_else(|| "it is a length as 500ms or 2s, up to 600s".into())
}
