//! `ebb status`: policies, what is due, the last run, who works on it and what holds it up.

use std::time::Duration;

use ebb::Result;
use ebb::audit::Moment;
use ebb::status::{COUNT_SUBJECTS, PolicyStatus, PolicyStorage, Status, UnitStatus};

use super::{Context, Outcome, output, words};

/// Options of `ebb status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show what the tables of each policy take, from figures that the server keeps.
    #[arg(long)]
    storage: bool,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    if args.storage {
        return storage(context, args.json).await;
    }
    let status = context.engine.status().await?;
    if args.json {
        output::json(&status)?;
    } else {
        print(&status);
    }
    Ok(Outcome::Done)
}

async fn storage(context: &Context, json: bool) -> Result<Outcome> {
    context.begin().await?.commit().await?;
    let all = context.engine.storage().await?;
    if json {
        output::json(&all)?;
        return Ok(Outcome::Done);
    }
    let row = |storage: &PolicyStorage| {
        let pending = storage.pending.map_or("-".into(), words::number);
        let sizes = match &storage.problem {
            Some(problem) => vec![problem.clone(), String::new(), String::new(), String::new()],
            None => vec![
                words::about(storage.rows, false),
                words::bytes(storage.table_bytes),
                words::bytes(storage.index_bytes),
                words::bytes(storage.table_bytes + storage.index_bytes),
            ],
        };
        [vec![storage.policy.clone(), storage.table.clone(), words::number(storage.leaves)], sizes, vec![pending]]
            .concat()
    };
    let header = ["policy", "table", "leaves", "rows", "data", "indexes", "total", "pending"];
    output::table(&header, all.iter().map(row).collect(), "no policy is about a table yet");
    say!("rows by the last ANALYZE, pending by the last look of a node");
    let of_tenants = all.iter().flat_map(|storage| storage.tenants.iter().map(|tenant| (&storage.policy, tenant)));
    let tenants: Vec<Vec<String>> = of_tenants
        .map(|(policy, tenant)| {
            let rows = words::about(tenant.rows.unsigned_abs(), tenant.exact);
            let bytes = words::bytes(tenant.bytes.unsigned_abs());
            vec![policy.clone(), tenant.tenant.clone(), rows, bytes, output::time(tenant.at)]
        })
        .collect();
    if !tenants.is_empty() {
        say!();
        output::table(&["policy", "tenant", "rows", "total", "measured"], tenants, "");
    }
    Ok(Outcome::Done)
}

fn print(status: &Status) {
    let mut rows = Vec::new();
    for policy in &status.policies {
        if policy.units.is_empty() {
            rows.push(line(policy, None, status));
        }
        for (at, unit) in policy.units.iter().enumerate() {
            let mut cells = line(policy, Some(unit), status);
            if at > 0 {
                (cells[0], cells[1]) = (String::new(), String::new());
            }
            rows.push(cells);
        }
    }
    let header = ["policy", "state", "chore", "table", "pending", "oldest", "rows", "size", "last run", "next run"];
    let none = "no policies yet; `ebb apply` brings those of the file";
    output::table_without(&["size", "rows", "oldest"], &header, rows, none);
    for policy in &status.policies {
        details(policy, status);
    }
    events(status);
    say!();
    nodes(status);
    own(status);
    audit(status);
    if words::relative(status.policy_time, status.at) != "now" {
        say!("clock   ebb.now() is {}, {}", status.policy_time, words::relative(status.policy_time, status.at));
    }
}

/// How events stand, sink by sink, when there are sinks.
fn events(status: &Status) {
    if status.events.sinks.is_empty() {
        return;
    }
    let count = |number: i64| words::number(number.max(0) as u64);
    let rows = status.events.sinks.iter().map(|sink| {
        let hour = |number: Option<i64>| number.map_or_else(|| "-".to_owned(), count);
        let lateness = sink.average_lateness_seconds.map(|seconds| Duration::from_secs_f64(seconds.max(0.0)));
        vec![
            sink.sink.clone(),
            sink.state.clone(),
            count(sink.due),
            sink.oldest_due.map_or_else(|| "-".into(), |oldest| words::relative(oldest, status.policy_time)),
            count(sink.running),
            count(sink.dead),
            hour(sink.done_last_hour),
            hour(sink.late_last_hour),
            hour(sink.skipped_last_hour),
            lateness.map_or_else(|| "-".into(), words::span),
            sink.next_at.map_or_else(|| "-".into(), |next| words::relative(next, status.policy_time)),
        ]
    });
    say!();
    let header =
        ["sink", "state", "due", "oldest", "running", "dead", "done 1h", "late", "skipped", "avg lateness", "next"];
    output::table(&header, rows.collect(), "");
    for sink in &status.events.sinks {
        if let Some(since) = sink.dead_since {
            let ago = words::relative(since, status.policy_time);
            say!(
                "{}: its receiver takes nothing since {since} ({ago}); its events wait, one now and then is tried",
                sink.sink
            );
        }
    }
    if status.events.recovery_mode {
        say!("recovery: more than ten due events wait for longer than [events] late_after");
    }
}

fn line(policy: &PolicyStatus, unit: Option<&UnitStatus>, status: &Status) -> Vec<String> {
    let dash = || "-".to_owned();
    let pending = |unit: &UnitStatus| {
        let rows = unit.pending?;
        let due = match unit.pending_is {
            Some("counted") => words::number(rows),
            Some("last_known") => format!("({})", words::number(rows)),
            _ => words::about(rows, false),
        };
        Some(match unit.held_rows {
            Some(held) if held > 0 => format!("{due}, {} on hold", words::number(held)),
            _ => due,
        })
    };
    let last = |unit: &UnitStatus| {
        let run = unit.last_run.as_ref()?;
        let when = words::relative(run.finished_at.unwrap_or(run.started_at), status.at);
        Some(match run.status.as_str() {
            "success" => when,
            "running" => format!("running, {} so far", words::number(run.rows.max(0) as u64)),
            other => format!("{other} {when}"),
        })
    };
    let next = |unit: &UnitStatus| {
        let text = unit.next_run.map(|next| words::upcoming(next, status.policy_time))?;
        Some(if unit.triggered { "now".into() } else { text })
    };
    let event = || policy.next_event.map(|next| words::upcoming(next, status.policy_time));
    let active = ["active", "observe", "braked"].contains(&policy.state.as_str());
    let cell = |value: Option<String>| value.unwrap_or_else(dash);
    vec![
        policy.policy.clone(),
        policy.state.clone(),
        unit.map_or_else(dash, |unit| unit.chore.clone()),
        unit.map_or_else(dash, |unit| unit.table.clone()),
        cell(unit.and_then(pending)),
        cell(unit.and_then(|unit| unit.oldest_due).map(|oldest| words::relative(oldest, status.policy_time))),
        cell(unit.and_then(|unit| Some(words::about(unit.total_rows?, unit.pending_is == Some("counted"))))),
        cell(unit.and_then(|unit| unit.table_bytes).map(words::bytes)),
        cell(unit.and_then(last)),
        if active { cell(unit.and_then(next).or_else(event)) } else { dash() },
    ]
}

fn details(policy: &PolicyStatus, status: &Status) {
    if policy.units.is_empty() && policy.reason.is_none() && policy.problem.is_none() && policy.state != "disabled" {
        return;
    }
    say!("\n{}", policy.policy);
    if let Some(reason) = &policy.reason {
        // "paused by …" says it already.
        match reason.contains(&policy.state) {
            true => say!("  {reason}"),
            false => say!("  {}: {reason}", policy.state),
        }
    }
    if let Some(remedy) = &policy.remedy {
        say!("  end that with: {remedy}");
    }
    let subjects = |number: u64, word: &str| output::plural_up_to(number, word, COUNT_SUBJECTS);
    let counted = [
        (policy.open_deletions > 0).then(|| subjects(policy.open_deletions, "open deletion")),
        (policy.on_hold > 0).then(|| format!("{} on hold", subjects(policy.on_hold, "subject"))),
    ];
    let counted: Vec<String> = counted.into_iter().flatten().collect();
    if !counted.is_empty() {
        say!("  {}: ebb show {}", counted.join(", "), policy.policy);
    }
    if policy.unwarned > 0 {
        let waiting = subjects(policy.unwarned, "subject");
        say!("  {waiting} could not be warned and will not be erased: ebb event list --state dead");
    }
    if policy.blocked > 0 {
        let waiting = subjects(policy.blocked, "subject");
        say!("  {waiting} would be due and cannot go: ebb show {}", policy.policy);
    }
    if let Some(problem) = &policy.problem {
        say!("  could not look at its table: {problem}");
    }
    if policy.stuck > 0 {
        let last = policy.stuck_error.as_ref().map_or(String::new(), |error| format!(": {error}"));
        say!("  {} could not be erased{last}", output::plural(policy.stuck, "subject"));
        say!("  which: ebb show {0}; again, once the cause is gone: ebb retry {0} ID", policy.policy);
    }
    if policy.state == "disabled" {
        say!("  disabled by {} {}", policy.changed_by, words::relative(policy.changed_at, status.at));
    }
    // Many partitions often say the same: each thing is said once, with the tables it holds for.
    // Several chores over one table are told apart by what they do.
    let chores = policy.units.iter().any(|unit| unit.chore != policy.units[0].chore);
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for unit in &policy.units {
        let whose = if chores { &unit.chore } else { &unit.table };
        for text in about(unit, status) {
            match said.iter_mut().find(|(known, _)| *known == text) {
                Some((_, tables)) => tables.push(whose),
                None => said.push((text, vec![whose])),
            }
        }
    }
    said.sort_by_key(|(_, tables)| std::cmp::Reverse(tables.len()));
    for (text, tables) in said {
        match (tables.as_slice(), policy.units.len()) {
            (_, 1) => say!("  {text}"),
            ([table], _) => say!("  {table}: {text}"),
            (tables, all) if tables.len() == all => say!("  {text}"),
            (several, _) if chores => say!("  {}: {text}", several.join(", ")),
            (tables, all) => say!("  {} of {all} tables: {text}", tables.len()),
        }
    }
}

fn about(unit: &UnitStatus, status: &Status) -> Vec<String> {
    let mut said = Vec::new();
    let ago = |moment: Moment| words::relative(moment, status.at);
    if let Some(node) = &unit.held_by {
        said.push(format!("held by {node}"));
    }
    if let Some(throttle) = &unit.throttle {
        said.push(format!("rests: {throttle}"));
    }
    if let Some(run) = &unit.last_run {
        let took = words::span(Duration::from_secs_f64(run.seconds.max(0.0)));
        let mut text = format!("last run: {} {}", run.status, ago(run.finished_at.unwrap_or(run.started_at)));
        text.push_str(&format!(", {} in {took}", output::plural(run.rows.max(0) as u64, "row")));
        if let Some(rate) = run.rows_per_second {
            text.push_str(&format!(", {} rows/s", words::about(rate as u64, false)));
        }
        if run.skipped > 0 {
            text.push_str(&format!(", {} held by others", run.skipped));
        }
        if run.failed > 0 {
            text.push_str(&format!(", {} failed", output::plural(run.failed.max(0) as u64, "subject")));
        }
        // What the brake says is said above, and that observing deletes nothing is known.
        if let Some(error) = run.error.as_ref().filter(|_| !["braked", "observed"].contains(&run.status.as_str())) {
            text.push_str(&format!(": {error}"));
        }
        said.push(text);
    }
    let last = unit.last_run.as_ref().map(|run| run.status.as_str());
    match unit.last_success_at {
        Some(success) if unit.failures > 0 => {
            said.push(format!("failed {} since its last success {}", times(unit), ago(success)));
        }
        Some(success) if last != Some("success") => said.push(format!("last success {}", ago(success))),
        Some(_) => {}
        None if unit.failures > 0 => said.push(format!("failed {}, never succeeded yet", times(unit))),
        None => said.push("no run has succeeded yet".into()),
    }
    if unit.pending_is == Some("last_known") {
        let when = unit.counted_at.map(|at| words::relative(at, status.policy_time)).unwrap_or_default();
        said.push(format!("not counted now; the number in brackets is from {when}"));
    }
    if let Some(shape) = &unit.shape {
        said.push(shape.clone());
    }
    if unit.index.is_none() && unit.table_bytes.is_some_and(|bytes| bytes > 1 << 20) {
        said.push("no index starts with its column; `ebb doctor` has the statement and the cost".into());
    }
    if let Some(newest) = unit.newest_due {
        said.push(format!("newest row due {}", words::relative(newest, status.policy_time)));
    }
    if let Some(vacuum) = &unit.vacuum {
        said.push(format!("last VACUUM after a purge: {vacuum}"));
    }
    said
}

fn times(unit: &UnitStatus) -> String {
    output::plural(u64::from(unit.failures.unsigned_abs()), "time")
}

fn nodes(status: &Status) {
    let alive: Vec<_> = status.nodes.iter().filter(|node| node.alive).collect();
    if alive.is_empty() {
        say!("nodes   none is running; `ebb run` starts one");
    }
    for node in alive {
        let how = if node.listens { "listens" } else { "polls" };
        let since = words::relative(node.started_at, status.at);
        say!("node    {} ({}), started {since}, {how}", node.name, node.version);
    }
}

/// Ebb's own chores, only where they need attention.
fn own(status: &Status) {
    for unit in status.own.iter().filter(|unit| unit.failures > 0) {
        let error = unit.last_run.as_ref().and_then(|run| run.error.clone()).unwrap_or_default();
        say!("own     {} on {} failed {}: {error}", unit.chore, unit.table, times(unit));
    }
}

fn audit(status: &Status) {
    let audit = &status.audit;
    let more = if audit.more { "more than " } else { "" };
    match audit.unsealed {
        0 => say!("audit   every record is sealed"),
        1 => say!("audit   1 record waits for a seal"),
        unsealed => say!("audit   {more}{} records wait for a seal", words::number(unsealed.max(0) as u64)),
    }
    if let Some(blocker) = &audit.blocked_by {
        say!("        {blocker}");
    }
    if audit.premature > 0 {
        let early = output::plural(audit.premature, "record");
        say!("        {early} of what was deleted before its time: ebb audit report --since 2000-01-01");
    }
    if audit.overdue_keys > 0 {
        let keys = output::plural(audit.overdue_keys, "period key");
        say!("        {keys} whose day has come and that no node has destroyed: ebb doctor");
    }
}
