//! `ebb demo`: its options; what it does is in `demo/`.

use ebb::Result;
use ebb::config::Env;
use ebb::policy::Term;

use super::Outcome;
use crate::demo;

/// Options of `ebb demo`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// End when everything due has been done, with a summary; exit 1 if it does not add up.
    #[arg(long)]
    once: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Move the clock of the demo that runs in another terminal.
    Advance {
        /// How far: 1d, 36h, 90d.
        #[arg(value_name = "DURATION")]
        by: Term,
    },
    /// A worker that the demo starts, to kill it.
    #[command(hide = true)]
    Worker,
}

pub(crate) async fn run(args: Args, env: Env) -> Result<Outcome> {
    match args.command {
        Some(Command::Advance { by }) => demo::advance(by).await,
        Some(Command::Worker) => demo::work().await,
        None => demo::run(args.once, env).await,
    }
}
