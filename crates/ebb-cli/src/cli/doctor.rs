//! `ebb doctor`: what stands in the way, with evidence and the fix. Exit 3 when a check fails.

use ebb::doctor::{Finding, Questions, Report, Severity};
use ebb::{Error, Result};

use super::{Context, Outcome, apply, confirm, output};

/// Options of `ebb doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the fixes that are safe: indexes (CONCURRENTLY), ANALYZE, grants, restarts, migrations.
    #[arg(long)]
    fix: bool,
    /// With --fix: do not ask.
    #[arg(long, short, requires = "fix")]
    yes: bool,
    /// The role that nodes run as; found out when absent.
    #[arg(long, value_name = "NAME")]
    role: Option<String>,
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
    /// Who restarts policies, for history and audit.
    #[arg(long)]
    by: Option<String>,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let mut report = context.engine.doctor(&questions(context, &args)).await?;
    if args.fix {
        if !args.json {
            print(&report);
            say!();
        }
        if fix(context, &report, &args).await? {
            report = context.engine.doctor(&questions(context, &args)).await?;
        }
    }
    if args.json {
        output::json(&report)?;
    } else {
        print(&report);
    }
    Ok(if report.has_failed() { Outcome::Problems } else { Outcome::Done })
}

fn questions(context: &Context, args: &Args) -> Questions {
    Questions {
        wanted: apply::wanted(context),
        host_time: jiff::Timestamp::now(),
        role: args.role.clone(),
        embedded: context.embedded.is_some(),
    }
}

/// Runs what may be run. True when anything was; one that fails does not keep the others from running.
async fn fix(context: &Context, report: &Report, args: &Args) -> Result<bool> {
    let safe: Vec<&Finding> =
        report.findings.iter().filter(|finding| finding.fix.as_ref().is_some_and(|fix| fix.safe)).collect();
    let say = |text: &str| if args.json { eprintln!("{text}") } else { say!("{text}") };
    if safe.is_empty() {
        say("there is nothing that --fix may do; the rest is for you\n");
        return Ok(false);
    }
    say("this would run:");
    for fix in safe.iter().filter_map(|finding| finding.fix.as_ref()) {
        for line in fix.text.lines() {
            say(&format!("  {line}"));
        }
    }
    if !args.yes && !confirm::can_ask() {
        return Err(Error::usage("--fix asks, and there is no terminal to answer").with_hint("add --yes"));
    }
    if !args.yes && !confirm::ask("run it?")? {
        say("nothing was changed");
        return Ok(false);
    }
    let by = context.by(args.by.as_deref());
    for finding in safe {
        let text = finding.fix.as_ref().map(|fix| fix.text.replace('\n', " ")).unwrap_or_default();
        match context.engine.fix(finding, &by).await {
            Ok(_) => say(&format!("done: {text}")),
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) => say(&format!("failed: {text}\n  {error}")),
        }
    }
    say("");
    Ok(true)
}

fn print(report: &Report) {
    for severity in [Severity::Fail, Severity::Warn, Severity::Ok] {
        for finding in report.findings.iter().filter(|finding| finding.severity == severity) {
            line(finding);
        }
    }
    let count = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    say!("\n{} failed, {} to look at, {} fine", count(Severity::Fail), count(Severity::Warn), count(Severity::Ok));
}

/// The finding, wrapped under its own text; statements stay whole, to be copied.
fn line(finding: &Finding) {
    let word = match finding.severity {
        Severity::Ok => "ok  ",
        Severity::Warn => "warn",
        Severity::Fail => "FAIL",
    };
    let about = finding.about.as_ref().map(|about| format!("{about}: ")).unwrap_or_default();
    let head = format!("{word}  {:<12} ", finding.check);
    let indent = " ".repeat(head.len());
    let mut rest = format!("{about}{}", finding.evidence);
    let mut first = true;
    while !rest.is_empty() {
        let (now, later) = split(&rest, 118 - head.len());
        say!("{}{now}", if first { &head } else { &indent });
        (rest, first) = (later, false);
    }
    if let Some(fix) = &finding.fix {
        for text in fix.text.lines() {
            say!("{indent}  {text}");
        }
    }
}

/// Splits after the last word that fits.
fn split(text: &str, width: usize) -> (String, String) {
    if text.chars().count() <= width {
        return (text.to_owned(), String::new());
    }
    let end = text.char_indices().nth(width).map_or(text.len(), |(at, _)| at);
    let at = text[..end].rfind(' ').filter(|at| *at > 0).unwrap_or(end);
    (text[..at].to_owned(), text[at..].trim_start().to_owned())
}
