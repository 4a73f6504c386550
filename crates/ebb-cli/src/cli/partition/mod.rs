//! `ebb partition …`: tables split by time. A file for each thing that can be done with one.

mod list;
mod maintain;

use ebb::Result;

use super::{Context, Outcome};

/// What to do with partitions.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the partitions of every policy's table, how far they reach, and those that wait outside.
    List(list::Args),
    /// Do now what the node does by itself: make what is missing ahead, let go what is expired.
    Maintain(maintain::Args),
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<Outcome> {
    match command {
        Command::List(args) => list::run(context, args).await,
        Command::Maintain(args) => maintain::run(context, args).await,
    }
}
