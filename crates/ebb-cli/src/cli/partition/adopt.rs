//! `ebb partition adopt TABLE --column C --by month`: looks first and says everything, then goes through the plan.

use ebb::partition::adopt::{self, How, Preflight, Request, TakeOver};
use ebb::policy::{EpochUnit, Partition, Period, Term};
use ebb::{Error, Result};

use super::file;
use super::progress::Screen;
use crate::cli::{Context, Outcome, confirm, output};

/// Options of `ebb partition adopt`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit: 0 adopted, 1 failed, 3 something is in the way (nothing was changed).\n\n\
    Example:  ebb partition adopt public.ingest_idempotency --column created_at --by month --keep 13mo")]
pub(crate) struct Args {
    /// The table.
    table: String,
    /// The column to partition by: timestamptz, timestamp, date, uuid (version 7), or an integer since 1970.
    #[arg(long)]
    column: String,
    /// day, week (ISO), month or year.
    #[arg(long)]
    by: Period,
    /// How many periods ahead exist.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1000), help = format!("How many periods ahead exist [default: {}, or pg_partman's]", Partition::DEFAULT_AHEAD))]
    ahead: Option<u64>,
    /// How long a partition stays after its end; for ever when absent.
    #[arg(long, value_name = "DURATION")]
    keep: Option<Term>,
    /// What an integer column counts: s or ms.
    #[arg(long, value_parser = unit)]
    unit: Option<EpochUnit>,
    /// The zone of a column that has none.
    #[arg(long, default_value = "UTC")]
    zone: String,
    /// The name of the policy; the table's when absent.
    #[arg(long)]
    name: Option<String>,
    /// Keep these columns, a unique key, unique over the window that rows are kept, by a trigger: a duplicate insert gets
    /// unique_violation (23505), as from the key. Once for each key.
    #[arg(long, value_name = "COLUMNS")]
    guard: Vec<String>,
    /// Move the foreign keys of other tables with it: each gets the partition column, filled by a trigger and in batches.
    #[arg(long)]
    move_foreign_keys: bool,
    /// Print every step instead of running it.
    #[arg(long)]
    sql: bool,
    /// Look and say, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Print what was found as JSON; changes nothing.
    #[arg(long)]
    json: bool,
}

fn unit(text: &str) -> std::result::Result<EpochUnit, String> {
    match text {
        "s" => Ok(EpochUnit::Seconds),
        "ms" => Ok(EpochUnit::Millis),
        _ => Err("it is s or ms".into()),
    }
}

/// The columns of a key, as they were typed.
fn columns(key: &str) -> Vec<String> {
    key.split(',').map(|column| column.trim().to_owned()).collect()
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let zone: ebb::policy::Zone = args.zone.parse().map_err(|invalid: ebb::policy::Invalid| Error::from(invalid))?;
    let request = Request {
        table: args.table.clone(),
        column: args.column.clone(),
        unit: args.unit,
        by: args.by,
        ahead: args.ahead.unwrap_or(Partition::DEFAULT_AHEAD),
        keep: args.keep,
        zone: zone.name().to_owned(),
        policy: args.name.clone(),
        guard: args.guard.iter().map(|key| columns(key)).collect(),
        move_foreign_keys: args.move_foreign_keys,
    };
    context.begin().await?.rollback().await?;
    let standing = ebb::partition::standing(context.engine.database(), &args.table).await?;
    if let Some(standing) = &standing {
        if args.sql && standing.state == "adopting" {
            adopt::script_of_rest(context.engine.database(), &args.table).await?.iter().for_each(|line| say!("{line}"));
            return Ok(Outcome::Done);
        }
        if !go_on(&args, standing)? {
            return Ok(Outcome::Done);
        }
    } else {
        let mut tx = context.begin().await?;
        let taken = adopt::take_over(&mut tx, &request, args.ahead).await?;
        tx.rollback().await?;
        if let Some(taken) = taken {
            return take_over(context, &args, &taken).await;
        }
        let found = look(context, &request).await?;
        file::refuse_other(context, &found.policy, &found.table)?;
        if args.json {
            output::json(&serde_json::json!({ "table": found.table, "rows": found.rows, "bytes": found.bytes,
                "findings": found.findings, "steps": found.plan.as_ref().map(adopt::Plan::steps) }))?;
            return Ok(if found.plan.is_some() { Outcome::Done } else { Outcome::Problems });
        }
        if !args.sql {
            print(&found);
        }
        if found.plan.is_none() {
            if args.sql {
                print(&found);
            }
            return Ok(Outcome::Problems);
        }
        if args.sql {
            adopt::script(&found)?.iter().for_each(|line| say!("{line}"));
            return Ok(Outcome::Done);
        }
        if args.dry_run {
            return Ok(Outcome::Done);
        }
        if !args.yes && confirm::can_ask() && !confirm::ask("Adopt it?")? {
            say!("nothing was done");
            return Ok(Outcome::Done);
        }
    }
    let mut screen = Screen::new();
    let mut watch = |progress| screen.show(progress);
    let adopted = adopt::adopt(context.engine.database(), &request, &context.by(None), &mut watch).await?;
    let already = if adopted.already { " already" } else { "" };
    say!("{} is partitioned{already}: its rows are the first partition, which ends {}", adopted.table, adopted.bound);
    file::add(context, &adopted.policy, &adopted.spec)?;
    say!("undo it with: ebb partition rollback {0}; make it final with: ebb partition finish {0}", adopted.table);
    Ok(Outcome::Done)
}

/// An adoption that was begun, or is over, is looked at and asked about like one that was not; whether to go on with it.
fn go_on(args: &Args, standing: &ebb::partition::Standing) -> Result<bool> {
    if args.json {
        output::json(
            &serde_json::json!({ "table": standing.table, "state": standing.state, "policy": standing.policy,
            "spec": standing.spec, "steps": standing.steps }),
        )?;
        return Ok(false);
    }
    if args.sql {
        print_sql(&standing.steps);
        return Ok(false);
    }
    let left = standing.steps.len() as u64;
    if left > 0 {
        say!("{} is {}: {} left", standing.table, standing.state, output::plural(left, "step"));
        standing.steps.iter().for_each(|step| say!("    {}", step.title));
    } else {
        say!("{} is {}", standing.table, standing.state);
    }
    if args.dry_run || (left > 0 && !args.yes && confirm::can_ask() && !confirm::ask("Go on with it?")?) {
        say!("nothing was done");
        return Ok(false);
    }
    Ok(true)
}

/// A table that is partitioned already: only who looks after it changes.
async fn take_over(context: &Context, args: &Args, taken: &TakeOver) -> Result<Outcome> {
    file::refuse_other(context, &taken.policy, &taken.table)?;
    if args.json {
        output::json(
            &serde_json::json!({ "table": taken.table, "policy": taken.policy, "spec": taken.spec, "partman": taken.partman }),
        )?;
        return Ok(Outcome::Done);
    }
    if args.sql {
        taken.ends.iter().for_each(|ends| say!("{ends};"));
        say!("-- and in ebb.toml:\n{}", adopt::block(&taken.policy, &taken.spec));
        return Ok(Outcome::Done);
    }
    say!("{} is partitioned already: it only needs someone to look after it", taken.table);
    taken.partman.iter().for_each(|words| say!("{words}; Ebb takes over from it"));
    if args.dry_run || (!args.yes && confirm::can_ask() && !confirm::ask("Look after it?")?) {
        say!("nothing was done");
        return Ok(Outcome::Done);
    }
    adopt::take_it_over(context.engine.database(), taken, &context.by(None)).await?;
    file::add(context, &taken.policy, &taken.spec)?;
    say!("{} looks after {} from now on; see: ebb partition list {}", taken.policy, taken.table, taken.table);
    Ok(Outcome::Done)
}

async fn look(context: &Context, request: &Request) -> Result<Preflight> {
    // Without an index on the column its oldest and newest row are found by reading the table.
    let guard = ebb::pg::Guard { statement: std::time::Duration::from_secs(3600), ..Default::default() };
    let mut tx = context.engine.database().begin(guard).await?;
    let found = adopt::preflight(&mut tx, request).await?;
    tx.rollback().await?;
    Ok(found)
}

fn print(found: &Preflight) {
    say!(
        "{}: about {}, {} kB",
        found.table,
        output::plural(found.rows.max(0) as u64, "row"),
        output::count(found.bytes / 1024)
    );
    for refusal in &found.findings.refusals {
        say!("in the way: {}", refusal.what);
        say!("    {}", refusal.fix);
    }
    for change in &found.findings.changes {
        say!("will change: {}", change.what);
        say!("    {}", change.fix);
    }
    if found.plan.is_none() {
        say!("nothing was changed");
    }
}

fn print_sql(steps: &[adopt::Step]) {
    for (n, step) in steps.iter().enumerate() {
        say!("-- {}. {}", n + 1, step.title);
        if matches!(step.how, How::Each) {
            say!("SET lock_timeout = '60ms';");
        }
        let short = matches!(step.how, How::Short | How::Cutover);
        if short {
            say!("BEGIN;");
            say!("SET LOCAL lock_timeout = '60ms';");
        }
        if matches!(step.how, How::Backfill | How::Fill) {
            say!("-- (in batches, by ebb)");
        }
        step.sql.iter().for_each(|statement| say!("{statement};"));
        if short {
            say!("COMMIT;");
        }
        if matches!(step.how, How::Each) {
            say!("RESET lock_timeout;");
        }
        say!();
    }
}
