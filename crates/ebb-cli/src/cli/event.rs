//! `ebb event …`: scheduling from a shell, looking at events, dead letters.

use std::io::Read;
use std::time::Duration;

use ebb::audit::Moment;
use ebb::policy::{Invalid, Missed, Term};
use ebb::schedule::{Event, EventRow, Filter, RecurringRow, Shown, State, Yearly};
use ebb::{Error, Result};
use jiff::Timestamp;
use jiff::civil::Time;
use uuid::Uuid;

use super::{Context, Outcome, confirm, output, words};

/// Commands of `ebb event`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Schedule an event; prints its id.
    Add(Add),
    /// List events, the most urgent first.
    List(List),
    /// Show one event with its occurrences, body and last answer.
    Show(One),
    /// Make an event that failed or died ready again, or all dead letters.
    Retry(Retry),
    /// Cancel an event that is not delivered yet, or a recurring one.
    Cancel(One),
}

/// Options of `ebb event add`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    ebb event add mail --in 10m --payload '{\"type\": \"reminder\", \"order\": 42}'\n  \
    ebb event add mail --due 2030-01-01T09:00:00+07:00 --payload @greeting.json --key new-year-42\n  \
    ebb event add mail --yearly 02-29 --at 09:00 --zone Asia/Jakarta --key birthday-42 --payload '{\"type\": \"birthday\"}'")]
pub(crate) struct Add {
    /// The sink, as in [sinks.NAME].
    sink: String,
    /// When it is due, with an offset: 2030-01-01T09:00:00Z. At once when absent.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["within", "yearly"])]
    due: Option<Timestamp>,
    /// How long from now it is due.
    #[arg(long = "in", value_name = "DURATION", conflicts_with = "yearly")]
    within: Option<Term>,
    /// What it says: JSON, @FILE, or - for standard input.
    #[arg(long, value_name = "JSON", default_value = "{}")]
    payload: String,
    /// Of several with this key, only the first is an event; a yearly one is moved.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Do not deliver it later than this.
    #[arg(long, value_name = "DURATION")]
    max_late: Option<Term>,
    /// Whose it is; it goes when the subject is erased.
    #[arg(long, value_name = "POLICY/ID")]
    subject: Option<String>,
    /// Every year on this day.
    #[arg(long, value_name = "MM-DD", requires_all = ["at", "zone"])]
    yearly: Option<String>,
    /// With --yearly: the wall-clock time.
    #[arg(long, value_name = "HH:MM", requires = "yearly")]
    at: Option<Time>,
    /// With --yearly: by the clocks of this zone.
    #[arg(long, value_name = "ZONE", requires = "yearly")]
    zone: Option<String>,
    /// With --yearly: what becomes of occurrences at which no node was there.
    #[arg(long, value_name = "RULE", requires = "yearly", value_parser = ["all", "latest", "skip"], default_value = "all")]
    missed: String,
    /// With --yearly: where 29 February is in other years.
    #[arg(long, value_name = "MM-DD", requires = "yearly", value_parser = ["02-28", "03-01"], default_value = "02-28")]
    leap_day: String,
    /// Print the id as JSON.
    #[arg(long)]
    json: bool,
}

/// Options of `ebb event list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only those of this sink.
    #[arg(long, value_name = "SINK")]
    sink: Option<String>,
    /// Only pending, running, failed, done, dead, cancelled or skipped ones.
    #[arg(long, value_name = "STATE")]
    state: Option<State>,
    /// Only those that were delivered later than this, or are already so late and not delivered yet.
    #[arg(long, value_name = "DURATION", conflicts_with = "stuck")]
    late: Option<Term>,
    /// Only those that are still not delivered so long after their due time.
    #[arg(long, value_name = "DURATION")]
    stuck: Option<Term>,
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// An event.
#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// The id of the event, or of one of its occurrences.
    id: Uuid,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Options of `ebb event retry`.
#[derive(Debug, clap::Args)]
pub(crate) struct Retry {
    /// The id of an occurrence.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    id: Option<Uuid>,
    /// Every dead letter.
    #[arg(long)]
    all: bool,
    /// With --all: only those of this sink.
    #[arg(long, value_name = "SINK", requires = "all")]
    sink: Option<String>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<Outcome> {
    context.begin().await?.rollback().await?;
    match command {
        Command::Add(args) => add(context, args).await,
        Command::List(args) => list(context, args).await,
        Command::Show(args) => show(context, args).await,
        Command::Retry(args) => retry(context, args).await,
        Command::Cancel(args) => cancel(context, args).await,
    }
}

async fn add(context: &Context, args: Add) -> Result<Outcome> {
    let payload = payload(&args.payload)?;
    let max_late = args.max_late.as_ref().map(|term| length("--max-late", term)).transpose()?;
    let subject = args.subject.as_deref().map(subject).transpose()?;
    let events = context.engine.events();
    let id = match &args.yearly {
        Some(day) => {
            let (month, day) = month_and_day(day)?;
            let yearly = Yearly {
                sink: args.sink,
                month,
                day,
                at: args.at.ok_or_else(|| Error::usage("--yearly needs --at"))?,
                zone: args.zone.ok_or_else(|| Error::usage("--yearly needs --zone"))?,
                payload,
                dedupe_key: args.key,
                missed: match args.missed.as_str() {
                    "latest" => Missed::Latest,
                    "skip" => Missed::Skip,
                    _ => Missed::All,
                },
                max_late,
                leap_day_in_march: args.leap_day == "03-01",
                subject,
            };
            events.schedule_yearly(&yearly).await?
        }
        None => {
            let within = args.within.as_ref().map(|term| length("--in", term)).transpose()?;
            let due = match args.due {
                Some(due) => due,
                None => events.now().await?.saturating_add(within.unwrap_or_default()).unwrap_or(Timestamp::MAX),
            };
            let mut event = Event::new(args.sink, due, payload);
            if let Some(key) = args.key {
                event = event.dedupe(key);
            }
            if let Some(max_late) = max_late {
                event = event.max_late(max_late);
            }
            if let Some((policy, id)) = subject {
                event = event.subject(policy, id);
            }
            events.schedule(&event).await?
        }
    };
    match args.json {
        true => output::json(&serde_json::json!({ "event": id }))?,
        false => say!("{id}"),
    }
    Ok(Outcome::Done)
}

fn payload(text: &str) -> Result<serde_json::Value> {
    let unreadable = |what: &str, error: std::io::Error| Error::usage(format!("cannot read {what}: {error}"));
    let read = match text.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?,
        None if text == "-" => {
            let mut read = String::new();
            std::io::stdin().read_to_string(&mut read).map_err(|error| unreadable("standard input", error))?;
            read
        }
        None => text.to_owned(),
    };
    serde_json::from_str(&read).map_err(|error| {
        Error::usage(format!("--payload is no JSON: {error}"))
            .with_hint("for example --payload '{\"type\": \"reminder\"}'")
    })
}

fn length(option: &str, term: &Term) -> Result<Duration> {
    term.as_duration().map_err(|Invalid { message, hint }| {
        let error = Error::usage(format!("{option}: {message}"));
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    })
}

fn subject(text: &str) -> Result<(String, String)> {
    let parts = text.split_once('/').filter(|(policy, id)| !policy.is_empty() && !id.is_empty());
    let (policy, id) = parts.ok_or_else(|| {
        Error::usage(format!("{text:?} names no subject")).with_hint("write POLICY/ID, for example users/42")
    })?;
    Ok((policy.to_owned(), id.to_owned()))
}

fn month_and_day(text: &str) -> Result<(i8, i8)> {
    let parts = text.split_once('-').and_then(|(month, day)| Some((month.parse().ok()?, day.parse().ok()?)));
    parts.ok_or_else(|| {
        Error::usage(format!("{text:?} is no day of the year")).with_hint("write MM-DD, for example 02-29")
    })
}

async fn list(context: &Context, args: List) -> Result<Outcome> {
    let filter = Filter {
        sink: args.sink,
        state: args.state,
        late: args.late.as_ref().map(|term| length("--late", term)).transpose()?,
        stuck: args.stuck.as_ref().map(|term| length("--stuck", term)).transpose()?,
        limit: args.limit,
    };
    let rows = context.engine.events().list(&filter).await?;
    if args.json {
        output::json(&rows)?;
        return Ok(Outcome::Done);
    }
    let lines = rows.iter().map(line).collect();
    output::table(&["occurrence", "sink", "state", "due", "", "attempts", "last error"], lines, "no events");
    if rows.len() == args.limit as usize {
        say!("there may be more: --limit N shows them");
    }
    Ok(Outcome::Done)
}

fn line(row: &EventRow) -> Vec<String> {
    let progress = match (row.finished_at, row.ready_at) {
        (Some(finished), _) if row.state == "done" => lateness(row.due_at, finished),
        (Some(finished), _) => words::relative(finished, row.now),
        (None, Some(ready)) if row.state == "failed" => format!("again {}", words::upcoming(ready, row.now)),
        _ => words::relative(row.due_at, row.now),
    };
    vec![
        row.occurrence.to_string(),
        row.sink.clone(),
        row.state.clone(),
        output::time(row.due_at),
        progress,
        row.attempts.to_string(),
        row.last_error.clone().unwrap_or_default(),
    ]
}

fn lateness(due: Moment, finished: Moment) -> String {
    let micros = finished.micros().saturating_sub(due.micros()).max(0);
    format!("{} late", words::span(Duration::from_micros(micros.unsigned_abs())))
}

async fn show(context: &Context, args: One) -> Result<Outcome> {
    let Some(shown) = context.engine.events().show(args.id).await? else { return Err(unknown(args.id)) };
    if args.json {
        output::json(&shown)?;
        return Ok(Outcome::Done);
    }
    let Shown { recurring, occurrences } = &shown;
    if let Some(recurring) = recurring {
        say!("{} event {} for {}, {}", recurring.kind, recurring.id, recurring.sink, when(recurring));
        match recurring.next_at {
            Some(next) => say!("next: {}; missed ones: {}", output::time(next), recurring.missed),
            None => say!("it does not come again"),
        }
        if recurring.passed_over > 0 {
            say!("missed and passed over: {}", recurring.passed_over);
        }
    }
    for occurrence in occurrences {
        let row = &occurrence.row;
        say!(
            "{} {} for {}, due {}, attempts {}",
            row.occurrence,
            row.state,
            row.sink,
            output::time(row.due_at),
            row.attempts
        );
        if let Some(finished) = row.finished_at {
            say!("  ended {} on {}", output::time(finished), row.node.as_deref().unwrap_or("no node"));
        }
        if let Some(error) = &row.last_error {
            say!("  last error: {error}");
        }
        if let Some(response) = &occurrence.response {
            say!("  last answer: {response}");
        }
        match occurrence.body.is_empty() {
            true => say!("  the body is gone with its subject"),
            false => say!("  body: {}", occurrence.body),
        }
    }
    Ok(Outcome::Done)
}

fn when(recurring: &RecurringRow) -> String {
    let zone = &recurring.zone;
    match (&recurring.cron, recurring.month, recurring.day, &recurring.at) {
        (Some(cron), ..) => format!("cron {cron} in {zone}"),
        (None, Some(month), Some(day), Some(at)) => format!("every {month:02}-{day:02} at {at} in {zone}"),
        _ => format!("in {zone}"),
    }
}

async fn retry(context: &Context, args: Retry) -> Result<Outcome> {
    let events = context.engine.events();
    let retried = match args.id {
        Some(id) => u64::from(events.retry(id).await?),
        None => {
            let what = args
                .sink
                .as_deref()
                .map_or("every dead letter".to_owned(), |sink| format!("every dead letter of {sink}"));
            if !args.yes && confirm::can_ask() && !confirm::ask(&format!("Deliver {what} again?"))? {
                say!("nothing was changed");
                return Ok(Outcome::Done);
            }
            events.retry_dead(args.sink.as_deref()).await?
        }
    };
    match (args.json, retried, args.id) {
        (true, ..) => output::json(&serde_json::json!({ "retried": retried }))?,
        (false, 0, Some(id)) => {
            let shown = events.show(id).await?.ok_or_else(|| unknown(id))?;
            let state = shown.occurrences.first().map_or("recurring", |occurrence| occurrence.row.state.as_str());
            return Err(Error::refused(format!("{id} is {state}: there is nothing to try again"))
                .with_hint("failed events, dead letters, skipped and cancelled ones can be retried"));
        }
        (false, ..) => say!("{} ready again", output::plural(retried, "event")),
    }
    Ok(Outcome::Done)
}

async fn cancel(context: &Context, args: One) -> Result<Outcome> {
    let events = context.engine.events();
    let cancelled = events.cancel(args.id).await?;
    match (args.json, cancelled) {
        (true, _) => output::json(&serde_json::json!({ "cancelled": cancelled }))?,
        (false, true) => say!("cancelled {}", args.id),
        (false, false) => {
            let shown = events.show(args.id).await?.ok_or_else(|| unknown(args.id))?;
            if shown.recurring.as_ref().is_some_and(|recurring| recurring.policy.is_some()) {
                return Err(Error::refused(format!("{} belongs to a [[schedule]]", args.id))
                    .with_hint("set enabled = false there, or take it out of the file, and run `ebb apply`"));
            }
            let (state, hint) = shown.uncancelled();
            return Err(Error::refused(format!("{} is {state}", args.id)).with_hint(hint));
        }
    }
    Ok(Outcome::Done)
}

fn unknown(id: Uuid) -> Error {
    Error::usage(format!("nobody knows an event {id}"))
        .with_hint("`ebb event list` shows them; history goes after `[keep] events`")
}
