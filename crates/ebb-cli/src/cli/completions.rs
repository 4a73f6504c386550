//! `ebb completions SHELL`: from the same definition as the command line itself.

use clap::CommandFactory;
use clap_complete::Shell;
use ebb::Result;

use super::{Cli, Outcome, output};

/// Options of `ebb completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Bash:  ebb completions bash > /etc/bash_completion.d/ebb\n\
                        Zsh:   ebb completions zsh > \"${fpath[1]}/_ebb\"\n\
                        Fish:  ebb completions fish > ~/.config/fish/completions/ebb.fish")]
pub(crate) struct Args {
    /// Which shell.
    shell: Shell,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "ebb", &mut script);
    output::bytes(&script)?;
    Ok(Outcome::Done)
}
