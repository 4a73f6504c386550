//! `ebb man`: the manual, from the same definition as the command line itself.

use std::path::PathBuf;

use clap::CommandFactory;
use ebb::{Error, Result};

use super::{Cli, Outcome, output};

/// Options of `ebb man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write a page for every command into this directory instead of printing the first.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<Outcome> {
    let failed = |error: std::io::Error| Error::failed(format!("cannot write the manual: {error}"));
    let Some(dir) = args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(failed)?;
        output::bytes(&page)?;
        return Ok(Outcome::Done);
    };
    std::fs::create_dir_all(&dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &dir).map_err(failed)?;
    say!("wrote the manual to {}; read it with: man -l {}", dir.display(), dir.join("ebb.1").display());
    Ok(Outcome::Done)
}
