//! Progress of long work on a table: one line that changes on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};

use ebb::partition::adopt::Progress;

/// Where progress is shown.
pub(crate) struct Screen {
    terminal: bool,
    last: String,
}

impl Screen {
    pub(crate) fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), last: String::new() }
    }

    pub(crate) fn show(&mut self, progress: Progress) {
        let line = match progress {
            Progress::Step(n, of, title) => format!("step {n}/{of}: {title}"),
            Progress::Share(share, phase) if share > 0.0 => format!("    {:.0} % ({phase})", share * 100.0),
            Progress::Share(_, phase) => format!("    {phase}"),
            Progress::Waiting(who) => format!("    gave way, trying again: {who}"),
        };
        if line == self.last {
            return;
        }
        let mut err = std::io::stderr();
        let passing = line.starts_with(' ');
        let _ = match self.terminal {
            // A line about a step that goes on is written over.
            true if passing => write!(err, "\r\x1b[2K{}", line.chars().take(100).collect::<String>()),
            true => write!(err, "\r\x1b[2K{line}\n"),
            false => writeln!(err, "{line}"),
        };
        let _ = err.flush();
        self.last = line;
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.terminal && self.last.starts_with(' ') {
            eprintln!();
        }
    }
}
