//! `ebb plan`: what differs from the file and what is due now. Changes nothing.

use std::time::Duration;

use ebb::audit::Moment;
use ebb::plan::{Forecast, Plan, PolicyPlan};
use ebb::policy::Term;
use ebb::retain::{ShapeEdge, TreePlan};
use ebb::{Error, Result};
use jiff::Timestamp;

use super::{Context, Outcome, apply, output, plan_page, words};

/// Options of `ebb plan`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The forecast starts here instead of now: a time, a date, or how long from now (30d).
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// Forecast so many days: what falls due on each.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=366))]
    days: Option<u32>,
    /// Print as text, or as a page that needs nothing else.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Print the plan as JSON.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Html,
}

/// How many days a forecast has when nobody says.
const DAYS: u32 = 7;

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let wanted = apply::wanted(context);
    let plan = context.engine.plan(&wanted).await?;
    let asked = args.at.is_some() || args.days.is_some() || args.format == Format::Html;
    let forecasts = match asked {
        true => {
            let now = plan.at.timestamp().ok_or_else(|| Error::failed("the database does not know the time"))?;
            let from = args.at.as_deref().map_or(Ok(now), |text| moment("--at", text, now))?;
            context.engine.forecast(&wanted, from, args.days.unwrap_or(DAYS)).await?
        }
        false => Vec::new(),
    };
    if args.json {
        let mut json = serde_json::to_value(&plan).map_err(|error| Error::failed(error.to_string()))?;
        if asked {
            json["forecast"] = serde_json::to_value(&forecasts).map_err(|error| Error::failed(error.to_string()))?;
        }
        output::json(&json)?;
    } else if args.format == Format::Html {
        say!("{}", plan_page::page(&plan, &forecasts).trim_end());
    } else {
        print(&plan);
        forecasts.iter().for_each(print_forecast);
    }
    Ok(if plan.has_problems() { Outcome::Problems } else { Outcome::Done })
}

/// A moment of an option, as people write it: a time, which is UTC where it does not say, or a duration from now.
pub(crate) fn moment(option: &str, text: &str, now: Timestamp) -> Result<Timestamp> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    if let Ok(time) = text.parse::<jiff::civil::DateTime>()
        && let Ok(at) = time.to_zoned(jiff::tz::TimeZone::UTC)
    {
        return Ok(at.timestamp());
    }
    let wrong = || {
        Error::usage(format!("{option} {text:?} is neither a time nor a duration"))
            .with_hint("for example 2027-01-31T02:00:00Z, 2027-01-31, or 30d for thirty days from now")
    };
    let ahead: Term = match text.parse() {
        Ok(term) => term,
        // A number and a unit are meant as a duration; what is wrong with it is worth saying.
        Err(error) if text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(char::is_alphanumeric) => {
            return Err(Error::from(error).context(option));
        }
        Err(_) => return Err(wrong()),
    };
    ahead.after(now).ok_or_else(|| Error::usage(format!("{option} {text:?} is too far ahead: no time is that late")))
}

fn print_forecast(forecast: &Forecast) {
    say!("\n{}: what falls due of {}", forecast.policy, forecast.table);
    if let Some(problem) = &forecast.problem {
        say!("  error: {problem}");
        return;
    }
    if let Some(due) = forecast.due_rows {
        say!("  {} due at the start already", words::number(due));
    }
    let rows = forecast
        .days
        .iter()
        .map(|day| vec![output::time(day.until), words::about(day.rows, day.exact), words::bytes(day.bytes)]);
    output::table(&["until", "rows", "space"], rows.collect(), "no day was asked for");
}

fn print(plan: &Plan) {
    apply::print(&plan.changes, false);
    let rows = plan.policies.iter().map(|policy| line(policy, plan)).collect();
    let header = ["policy", "table", "due", "of", "space", "time", "next run"];
    if !plan.policies.is_empty() || plan.trees.is_empty() {
        say!();
        output::table(&header, rows, "no policy takes rows by their time, now or after `ebb apply`");
    }
    for policy in &plan.policies {
        say!();
        details(policy);
    }
    for tree in &plan.trees {
        say!();
        print_tree(tree, plan.at);
    }
    for refusal in &plan.refused {
        say!("\n{}", refusal.policy);
        problem(true, &refusal.message, refusal.fix.as_deref());
    }
    for due in &plan.made_due {
        say!("\n! {due}");
    }
    if plan.has_problems() {
        say!("\nwhat is marked as an error would be refused; once that is mended: ebb apply");
    } else if !plan.changes.is_empty() {
        say!("\nmake it so with: ebb apply");
    }
}

fn line(policy: &PolicyPlan, plan: &Plan) -> Vec<String> {
    let known = |text: Option<String>| text.unwrap_or_else(|| "?".into());
    let time = policy.estimated_seconds.map(|seconds| match policy.due_rows {
        Some(0) => "-".into(),
        _ => format!("~{}", words::span(Duration::from_secs_f64(seconds.clamp(0.0, 1e9)))),
    });
    let next = if policy.next_run.is_some_and(|next| next > plan.at) || policy.change.is_none() {
        policy.next_run.map_or("?".into(), |next| words::upcoming(next, plan.at))
    } else {
        "when applied".into()
    };
    vec![
        policy.policy.clone(),
        policy.table.clone(),
        known(policy.due_rows.map(|rows| words::about(rows, policy.exact))),
        known(policy.total_rows.map(|rows| words::about(rows, policy.exact))),
        known(policy.due_bytes.map(words::bytes)),
        known(time),
        if policy.paused.is_some() { "paused".into() } else { next },
    ]
}

fn details(policy: &PolicyPlan) {
    say!("{}", policy.policy);
    for shape in &policy.shape {
        say!("  {shape}");
    }
    if let (Some(rate), true) = (policy.rows_per_second, policy.due_rows > Some(0)) {
        let from = if policy.rate_measured { "as its last runs did" } else { "assumed; no run has shown better yet" };
        say!("  {} rows/s, {from}", words::about(rate as u64, false));
    }
    if policy.mode == "observe" {
        say!("  mode = \"observe\": it counts and deletes nothing");
    }
    if let Some(held) = policy.held_rows.filter(|held| *held > 0) {
        say!("  {} stay: they belong to subjects on hold", output::plural(held, "row"));
    }
    if let Some(limit) = &policy.brake {
        say!("  the brake ({limit}) would stop it before its first batch");
        if let Some(remedy) = &policy.remedy {
            say!("  once it has, let it go on with: {remedy}");
        }
    }
    if let Some(paused) = &policy.paused {
        say!("  {paused}");
    }
    for found in &policy.problems {
        problem(found.refused, &found.message, found.fix.as_deref());
    }
}

/// What stands in the way, and what helps.
fn problem(refuses: bool, message: &str, fix: Option<&str>) {
    say!("  {} {message}", if refuses { "error:" } else { "!" });
    for line in fix.iter().flat_map(|fix| fix.lines()) {
        say!("    {line}");
    }
}

/// What goes with a subject, edge by edge, and what is due.
fn print_tree(tree: &TreePlan, at: Moment) {
    let besides = |count: u64, what: &str| match count {
        0 => String::new(),
        count => format!(", {} {what}", output::count(count)),
    };
    let (held, blocked) = (besides(tree.held, "on hold"), besides(tree.blocked, "blocked"));
    let unmarked = besides(tree.unmarked, "not marked yet");
    say!("{}: subjects of {}, {} due{held}{blocked}{unmarked}", tree.policy, tree.table, output::count(tree.due));
    for (why, count) in &tree.blocked_by {
        say!("  {} stay: {why}", output::count(*count));
    }
    for edge in &tree.edges {
        say!("  {edge} ({})", edge_by(edge));
    }
    if tree.counted > 0 {
        let of = match tree.counted < tree.due {
            true => format!(" (the first {} counted)", output::count(tree.counted)),
            false => String::new(),
        };
        say!("  due now{of}:");
        for line in tree_counts(tree) {
            say!("    {line}");
        }
    }
    if let Some(why) = &tree.not_counted {
        say!("  not counted: {why}");
    }
    for difference in &tree.unapproved {
        say!("  not approved yet: {difference}");
    }
    for finding in &tree.findings {
        problem(finding.refuses, &format!("{}: {}", finding.table, finding.message), tree.mends(finding));
    }
    if let Some(proposal) = &tree.proposal {
        say!("  to be decided, in the policy's entry:");
        for line in proposal.lines() {
            say!("    {line}");
        }
    }
    if let Some(paused) = &tree.paused {
        say!("  {paused}");
    }
    if tree.due > 0
        && let Some(next) = tree.next_run
    {
        say!("  next run: {}", words::upcoming(next, at));
    }
}

/// What a foreign key says of its rows, if a link has one.
pub(super) fn edge_by(edge: &ShapeEdge) -> String {
    match &edge.foreign_key {
        Some(_) => format!("ON DELETE {}", edge.on_delete.as_deref().unwrap_or("NO ACTION")),
        None => "no foreign key".to_owned(),
    }
}

/// What would become of whose rows, a line each.
pub(super) fn tree_counts(tree: &TreePlan) -> Vec<String> {
    let each = |rows: &[(String, u64)], what: &str| -> Vec<String> {
        rows.iter().map(|(table, rows)| format!("{table}: {} {what}", output::plural(*rows, "row"))).collect()
    };
    let left = tree.left.iter().map(|(table, policy, rows)| {
        let rows = output::count(*rows);
        format!("{table}: {rows} of these no policy will take: {policy} leaves them out by its `where`, or they have no time")
    });
    [each(&tree.erases, "erased"), each(&tree.unlinks, "unlinked"), left.collect()].concat()
}
