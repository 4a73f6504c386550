//! What the demo shows while it works: bars on a terminal, a plain line now and then elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::cli::output;

/// How often a plain line tells how far it is.
const PLAIN_EVERY: Duration = Duration::from_secs(1);

/// Where it is shown.
pub(crate) struct Screen {
    bars: Option<MultiProgress>,
    known: BTreeMap<String, Shown>,
    told: Instant,
}

struct Shown {
    bar: Option<ProgressBar>,
    what: &'static str,
    done: u64,
    total: u64,
    told: u64,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        Self { bars: terminal.then(MultiProgress::new), known: BTreeMap::new(), told: Instant::now() }
    }

    /// A line that stays.
    pub(crate) fn say(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| output::line(text)),
            None => output::line(text),
        }
    }

    /// How far a policy is with what it does.
    pub(crate) fn progress(&mut self, policy: &str, what: &'static str, done: u64, total: u64) {
        let bars = self.bars.as_ref();
        let shown = self.known.entry(policy.to_owned()).or_insert_with(|| {
            let bar = bars.map(|bars| bars.add(bar(policy, what, total)));
            Shown { bar, what, done: 0, total, told: 0 }
        });
        shown.done = done.min(total);
        if let Some(bar) = &shown.bar {
            bar.set_position(shown.done);
        }
    }

    /// Tells it in plain lines, where there are no bars, unless it was told just now.
    pub(crate) fn tell(&mut self, at_once: bool) {
        if self.bars.is_some() || (!at_once && self.told.elapsed() < PLAIN_EVERY) {
            return;
        }
        self.told = Instant::now();
        for (policy, shown) in self.known.iter_mut().filter(|(_, shown)| shown.done != shown.told) {
            shown.told = shown.done;
            let (done, total) = (output::count(shown.done), output::count(shown.total));
            output::line(&format!("  {policy:<14} {done:>9} of {total} {}", shown.what));
        }
    }

    /// The work that the bars were for is over.
    pub(crate) fn finish(&mut self) {
        self.tell(true);
        for shown in self.known.values() {
            if let Some(bar) = &shown.bar {
                bar.finish();
            }
        }
        self.known.clear();
    }
}

fn bar(policy: &str, what: &'static str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("  {prefix:14} {bar:40} {human_pos:>9} of {human_len} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_prefix(policy.to_owned()).with_message(what)
}
