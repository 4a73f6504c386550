//! Asking once. Invariant: nobody is asked where nobody can answer.

use std::io::{BufRead, IsTerminal, Write};

use ebb::{Error, Result};

/// Whether a question would reach a person.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal()
}

/// Asks; only a clear yes counts.
pub(crate) fn ask(question: &str) -> Result<bool> {
    eprint!("{question} [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Error::failed(format!("cannot read the answer: {error}")))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
