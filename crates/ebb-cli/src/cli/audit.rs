//! `ebb audit`: what was done, and whether the record of it is what it was.

use std::path::PathBuf;

use ebb::audit::{self, Destination, Filter, Moment, Published, Record, Report, TrustedKeys};
use ebb::policy::Term;
use ebb::{Error, Result};

use super::{Context, Outcome, output, proof};

/// Records that are shown unless more are asked for.
const PAGE: i64 = 100;
/// Records that are read at a time where all of them are printed.
const LARGE_PAGE: i64 = 5_000;

/// What to do with the audit.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List records, newest first.
    List(ListArgs),
    /// Recompute every hash, link and signature; exit 3 when something is not as it was sealed.
    Verify(VerifyArgs),
    /// Print the receipt of a record: what was done, with its proof.
    Receipt(proof::ReceiptArgs),
    /// Verify a receipt without a database; exit 3 when it does not.
    VerifyReceipt(proof::VerifyReceiptArgs),
    /// Report what was deleted, and whether any of it too early; exit 3 when so.
    Report(proof::ReportArgs),
    /// Print the sealed copy of what was erased, a JSON line for each row; needs the key of its period.
    Open(proof::OpenArgs),
    /// Put on record that a period key whose day has come is in no directory any more, although no node destroyed it.
    LostKey(proof::LostKeyArgs),
    /// After a restore from a backup: erase again whoever had been erased.
    Replay(proof::ReplayArgs),
}

/// Options of `ebb audit list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only of this policy.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Only with this action, or these (a,b): expire, erase, delete, hold, policy, override, pause, trigger.
    #[arg(long)]
    action: Option<String>,
    /// Only from this time on, or not older than this: 2025-11-15T12:00:00Z, 24h.
    #[arg(long, value_name = "TIME|DURATION")]
    since: Option<String>,
    /// At most so many; when absent 100, and with --json all of them.
    #[arg(long, value_parser = clap::value_parser!(i64).range(1..=100_000))]
    limit: Option<i64>,
    /// The next page: only records before the one with this id.
    #[arg(long, value_name = "ID")]
    after: Option<i64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Options of `ebb audit verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// The public keys that count; beside the configured signing key (`….pub`) when absent.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<Outcome> {
    match command {
        Command::List(args) => list(context, args).await,
        Command::Verify(args) => verify(context, args).await,
        Command::Receipt(args) => proof::receipt(context, args).await,
        Command::VerifyReceipt(args) => proof::verify_receipt(&args),
        Command::Report(args) => proof::report(context, args).await,
        Command::Open(args) => proof::open(context, args).await,
        Command::LostKey(args) => proof::lost_key(context, args).await,
        Command::Replay(args) => proof::replay(context, args).await,
    }
}

async fn list(context: &Context, args: ListArgs) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    let since = match args.since.as_deref().map(Since::parse).transpose()? {
        Some(Since::At(at)) => Some(at),
        Some(Since::Ago(term)) => Some(audit::ago(&mut tx, &term).await?),
        None => None,
    };
    let limit = args.limit.unwrap_or(PAGE);
    let filter = Filter { policy: args.policy, action: args.action, since, limit: Some(limit), after: args.after };
    if args.json && args.limit.is_none() {
        tx.commit().await?;
        return all(context, filter).await;
    }
    let records = audit::list(&mut tx, &filter).await?;
    tx.commit().await?;
    match args.json {
        true => output::json(&records)?,
        false => {
            let head = ["id", "at", "action", "policy", "table", "rows", "by", "details"];
            output::table(&head, records.iter().map(row).collect(), "no record fits");
        }
    }
    if records.len() as i64 == limit
        && let Some(last) = records.last()
    {
        let more = format!("there may be more: --after {}", last.id);
        if args.json { eprintln!("{more}") } else { say!("{more}") }
    }
    Ok(Outcome::Done)
}

/// Prints every record as JSON, page by page: what is kept outside for a replay must not end early, nor fit into memory.
async fn all(context: &Context, mut filter: Filter) -> Result<Outcome> {
    filter.limit = Some(LARGE_PAGE);
    let mut list = output::JsonList::default();
    loop {
        // A transaction each: whoever reads the output may take their time.
        let mut tx = context.begin().await?;
        let records = audit::list(&mut tx, &filter).await?;
        tx.commit().await?;
        list.add(&records)?;
        match records.last() {
            Some(last) if records.len() as i64 == LARGE_PAGE => filter.after = Some(last.id),
            _ => break,
        }
    }
    list.end()?;
    Ok(Outcome::Done)
}

fn row(record: &Record) -> Vec<String> {
    let policy = match (&record.policy, record.policy_version) {
        (Some(policy), Some(version)) => format!("{policy} v{version}"),
        (policy, _) => policy.clone().unwrap_or_default(),
    };
    let due = match (record.due_from, record.due_to) {
        (Some(from), Some(to)) => format!("due {} to {}", output::time(from), output::time(to)),
        _ => String::new(),
    };
    let rows = if record.relation.is_some() { output::count(record.rows) } else { String::new() };
    let details = match (due.is_empty(), record.details.as_str()) {
        (false, _) => due,
        (true, "{}") => String::new(),
        (true, details) => shortened(details),
    };
    vec![
        record.id.to_string(),
        output::time(record.at),
        record.action.clone(),
        policy,
        record.relation.clone().unwrap_or_default(),
        rows,
        record.by.clone(),
        details,
    ]
}

fn shortened(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    text.chars().take(LONGEST - 1).chain(['…']).collect()
}

/// A time, or a day's midnight in UTC.
pub(crate) fn moment(text: &str) -> Result<Moment> {
    match Since::parse(text)? {
        Since::At(moment) => Ok(moment),
        Since::Ago(_) => Err(Error::usage(format!("{text:?} is a duration, and a time is needed"))
            .with_hint("for example 2025-11-15T12:00:00Z or 2025-11-15")),
    }
}

/// What `--since` says.
enum Since {
    At(Moment),
    Ago(Term),
}

impl Since {
    fn parse(text: &str) -> Result<Self> {
        if let Ok(at) = text.parse::<jiff::Timestamp>() {
            return Ok(Self::At(at.into()));
        }
        // A date is its midnight in UTC, where the database's times are shown too.
        if let Ok(date) = text.parse::<jiff::civil::Date>()
            && let Ok(midnight) = date.to_zoned(jiff::tz::TimeZone::UTC)
        {
            return Ok(Self::At(midnight.timestamp().into()));
        }
        text.parse().map(Self::Ago).map_err(|_| {
            Error::usage(format!("--since {text:?} is neither a time nor a duration"))
                .with_hint("for example 2025-11-15T12:00:00Z, 2025-11-15 or 24h")
        })
    }
}

async fn verify(context: &Context, args: VerifyArgs) -> Result<Outcome> {
    let (keys, published) = trust(context, args.key)?;
    context.begin().await?.rollback().await?;
    let report = audit::verify(context.engine.database(), &keys, published.as_ref()).await?;
    if args.json {
        let mut json = serde_json::to_value(&report).map_err(|error| Error::failed(error.to_string()))?;
        json["ok"] = report.is_ok().into();
        json["published"] = published.as_ref().map(|published| published.number).into();
        for (said, problem) in json["problems"].as_array_mut().into_iter().flatten().zip(&report.problems) {
            said["message"] = problem.to_string().into();
        }
        output::json(&json)?;
    } else {
        print(&report, published.as_ref());
    }
    Ok(if report.is_ok() { Outcome::Done } else { Outcome::Problems })
}

/// Keys and seal from outside the database.
fn trust(context: &Context, key: Option<PathBuf>) -> Result<(TrustedKeys, Option<Published>)> {
    let audit = &context.config.audit;
    let signing = audit.signing_key.as_ref().and_then(|secret| secret.path());
    let keys = match (key, signing) {
        (Some(file), _) => TrustedKeys::load(&file)?,
        (None, Some(signing)) => TrustedKeys::beside(signing).map_err(|error| {
            error.with_hint("`ebb apply` creates missing keys; or name the public keys: --key FILE")
        })?,
        (None, None) => {
            return Err(Error::config("there is no key to verify the audit with").with_hint(
                "name the public keys with --key FILE; or set [audit] signing_key = \"file:ebb-audit.key\" and run `ebb apply`",
            ));
        }
    };
    let destination = match &audit.publish {
        Some(publish) => Some(Destination::File(publish.clone())),
        None => signing.map(Destination::beside),
    };
    let published = destination.map(|destination| destination.read()).transpose()?.flatten();
    Ok((keys, published))
}

/// What a verification found, for people.
pub(crate) fn print(report: &Report, published: Option<&Published>) {
    for problem in &report.problems {
        say!("problem: {problem}");
    }
    if report.problems_left_out > 0 {
        say!("and {} more", output::plural(report.problems_left_out, "problem"));
    }
    let sealed = format!("{} in {}", output::plural(report.records, "record"), output::plural(report.blocks, "block"));
    match (report.is_ok(), report.blocks) {
        (true, 0) => say!("nothing is sealed yet, so there is nothing to verify"),
        (true, _) => say!("verified: {sealed}, all as they were sealed"),
        (false, _) => say!("NOT verified: looked at {sealed}"),
    }
    if report.unsealed > 0 {
        say!("{} for a seal; nothing proves those yet", waits(report.unsealed));
    }
    match published {
        Some(_) if !report.is_ok() => {}
        Some(published) => {
            say!("the chain reaches block {}, which was published outside the database", published.number)
        }
        None if report.blocks > 0 => {
            say!("no published seal was found: whether blocks are missing at the end could not be checked");
        }
        None => {}
    }
}

fn waits(records: u64) -> String {
    format!("{} {}", output::plural(records, "record"), if records == 1 { "waits" } else { "wait" })
}
