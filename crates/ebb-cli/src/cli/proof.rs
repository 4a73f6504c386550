//! `ebb audit receipt`, `verify-receipt`, `report`, `open`, `lost-key` and `replay`: proof that leaves the database, and what it is good for.

use std::path::{Path, PathBuf};

use ebb::audit::{self, Moment, PeriodKeys, Receipt, SubjectKey, TrustedKeys};
use ebb::retain::{self, PastErasure, Report};
use ebb::{Error, Result};
use sqlx::PgConnection;

use super::{Context, Outcome, confirm, output};

/// Options of `ebb audit receipt`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb audit receipt 4711 > receipt.json\n  \
    ebb audit receipt --policy user_accounts --subject 17\n  ebb audit verify-receipt receipt.json --key ebb-audit.key.pub")]
pub(crate) struct ReceiptArgs {
    /// A record's id, or the id of a deletion.
    #[arg(value_name = "ID", required_unless_present = "subject")]
    id: Option<String>,
    /// The policy that erased the subject.
    #[arg(long, requires = "subject", value_name = "NAME")]
    policy: Option<String>,
    /// The subject's id; needs the subject key.
    #[arg(long, requires = "policy", conflicts_with = "id", value_name = "ID")]
    subject: Option<String>,
}

/// Options of `ebb audit verify-receipt`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyReceiptArgs {
    /// The receipt.
    file: PathBuf,
    /// The public keys that count (`….pub`).
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Options of `ebb audit report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// From this time on: 2025-11-15 or 2025-11-15T12:00:00Z; 30 days before the end when absent.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Up to this time; now when absent.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only of this tenant.
    #[arg(long)]
    tenant: Option<String>,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Html,
    Json,
    Csv,
}

/// Options of `ebb audit open`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb audit open 4711 --reason \"court order 17/2026\" > rows.jsonl\n  \
    ebb audit open --policy user_accounts --subject 17 --reason \"restored by mistake\"")]
pub(crate) struct OpenArgs {
    #[command(flatten)]
    which: ReceiptArgs,
    /// Why; it is put on record, with who asked.
    #[arg(long)]
    reason: String,
    /// Who asks, for the audit.
    #[arg(long)]
    by: Option<String>,
}

/// Options of `ebb audit lost-key`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ebb audit lost-key 2026-12-17 --reason \"the volume of node b is gone\"")]
pub(crate) struct LostKeyArgs {
    /// The day of its period, as `ebb doctor` names it.
    day: String,
    /// How it is known that the key is in no directory any more; it is put on record, with who says so.
    #[arg(long)]
    reason: String,
    /// Who says so, for the audit.
    #[arg(long)]
    by: Option<String>,
}

/// Options of `ebb audit replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArgs {
    /// Records (`ebb audit list --action erase,erase_along --json`) or receipts that were kept outside; the database's own audit when absent.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Also those who live, or were deleted later, although this database's own audit has their erasure: without it
    /// they are taken for somebody who registered again under the same key.
    #[arg(long)]
    live: bool,
    /// Say who is there again and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Who asks, for the audit.
    #[arg(long)]
    by: Option<String>,
}

pub(crate) async fn receipt(context: &Context, args: ReceiptArgs) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    let record = record(context, &mut tx, &args).await?;
    output::json(&audit::receipt(&mut tx, record).await?)?;
    Ok(Outcome::Done)
}

/// The record that an id, or a policy and a subject, stand for.
async fn record(context: &Context, tx: &mut PgConnection, args: &ReceiptArgs) -> Result<i64> {
    let record = match (&args.id, &args.policy, &args.subject) {
        (Some(id), ..) => match (id.parse::<i64>(), id.parse::<uuid::Uuid>()) {
            (Ok(record), _) => Some(record),
            (_, Ok(deletion)) => audit::erasure_by_deletion(tx, deletion).await?,
            _ => return Err(Error::usage(format!("{id:?} is neither a record nor a deletion"))),
        },
        (None, Some(policy), Some(subject)) => {
            let key = subject_key(context)?;
            audit::same_subject_key(tx, &key).await?;
            let id = retain::named(tx, policy, subject).await?;
            let pseudonym = retain::pseudonym(&key, policy, &id);
            audit::erasure_of(tx, &pseudonym).await?
        }
        _ => return Err(Error::usage("say which: an id, or --policy and --subject")),
    };
    record.ok_or_else(|| Error::usage("nothing on record says that this was erased"))
}

/// Prints what was kept, part by part: it may be much larger than memory.
pub(crate) async fn open(context: &Context, args: OpenArgs) -> Result<Outcome> {
    let Some(directory) = &context.config.audit.period_keys else {
        return Err(Error::config("there are no period keys").with_hint("set period_keys in [audit]"));
    };
    let mut tx = context.begin().await?;
    let record = record(context, &mut tx, &args.which).await?;
    let Some(deletion) = retain::deletion_in_record(&mut tx, record).await? else {
        return Err(Error::usage(format!("record {record} is not about a deletion")));
    };
    let (keys, by) = (PeriodKeys::at(directory), context.by(args.by.as_deref()));
    let snapshot = retain::open_snapshot(&mut tx, &keys, deletion, &args.reason, &by).await?;
    // On record before anything is shown.
    tx.commit().await?;
    for part in 0..snapshot.parts() {
        // A transaction each: whoever reads the output may take their time.
        let mut tx = context.begin().await?;
        let rows = snapshot.part(&mut tx, part).await?;
        tx.rollback().await?;
        output::bytes(rows.as_bytes())?;
    }
    if !snapshot.complete {
        eprintln!("this subject goes in parts and is not gone yet: there will be more");
    }
    Ok(Outcome::Done)
}

pub(crate) async fn lost_key(context: &Context, args: LostKeyArgs) -> Result<Outcome> {
    let keys = context.config.audit.period_keys.as_ref().map(PeriodKeys::at);
    let mut tx = context.begin().await?;
    let by = context.by(args.by.as_deref());
    retain::lost_key(&mut tx, keys.as_ref(), &args.day, &args.reason, &by).await?;
    tx.commit().await?;
    say!("on record: the key of period {} is lost", args.day);
    Ok(Outcome::Done)
}

/// Needs neither configuration nor database.
pub(crate) fn verify_receipt(args: &VerifyReceiptArgs) -> Result<Outcome> {
    let keys = TrustedKeys::load(&args.key)?;
    let text = read(&args.file)?;
    let refuted = match Receipt::read(&text) {
        Err(refuted) => Some(refuted.to_string()),
        Ok(receipt) => match receipt.verify(&keys) {
            Ok(()) => {
                if args.json {
                    output::json(
                        &serde_json::json!({ "ok": true, "record": receipt.record.id, "block": receipt.block.number }),
                    )?;
                } else {
                    let record = &receipt.record;
                    let policy = record.policy.as_deref().unwrap_or("-");
                    let rows = output::plural(record.rows.max(0) as u64, "row");
                    say!("verified: {} by policy {policy}, {rows}, {}", record.action, output::time(record.at));
                    say!(
                        "record {} in block {}, signed by key {}",
                        record.id,
                        receipt.block.number,
                        receipt.block.key_id
                    );
                }
                None
            }
            Err(refuted) => Some(refuted.to_string()),
        },
    };
    let Some(why) = refuted else { return Ok(Outcome::Done) };
    match args.json {
        true => output::json(&serde_json::json!({ "ok": false, "why": why }))?,
        false => say!("NOT verified: {why}"),
    }
    Ok(Outcome::Problems)
}

pub(crate) async fn report(context: &Context, args: ReportArgs) -> Result<Outcome> {
    let moment = |text: &Option<String>| text.as_deref().map(super::audit::moment).transpose();
    let (since, until) = (moment(&args.since)?, moment(&args.until)?);
    if let (Some(since), Some(until)) = (since, until)
        && since >= until
    {
        return Err(Error::usage("--since is not before --until"));
    }
    let mut tx = context.begin().await?;
    let report = retain::report(&mut tx, since, until, args.tenant.as_deref()).await?;
    tx.rollback().await?;
    if report.since >= report.until {
        return Err(Error::usage("--since is not before now"));
    }
    if let Some(nobody) = unknown(&report) {
        eprintln!("note: {nobody}");
    }
    match args.format {
        Format::Json => output::json(&report)?,
        Format::Csv => output::bytes(report.csv().as_bytes())?,
        Format::Html => output::bytes(html(&report).as_bytes())?,
    }
    Ok(if report.is_clean() { Outcome::Done } else { Outcome::Problems })
}

/// What is said about a tenant of whom nothing is on record: a report without a finding looks like a good one.
fn unknown(report: &Report) -> Option<String> {
    let tenant = report.tenant.as_ref().filter(|_| report.knows_nothing())?;
    let (since, until) = (output::time(report.since), output::time(report.until));
    Some(format!(
        "nothing on record is about a tenant {tenant:?} from {since} to {until}; look whether it is written like that"
    ))
}

pub(crate) async fn replay(context: &Context, args: ReplayArgs) -> Result<Outcome> {
    let key = subject_key(context)?;
    let by = context.by(args.by.as_deref());
    let mut tx = context.begin().await?;
    let erasures = match &args.from {
        Some(file) => PastErasure::read(&read(file)?)?,
        None => retain::past_erasures(&mut tx).await?,
    };
    let how = retain::Replay { only_look: true, live: args.live, by: &by };
    let found = retain::replay(&mut tx, &key, &erasures, how).await?;
    tx.rollback().await?;
    let back: u64 = found.back.iter().map(|(_, count)| count).sum();
    say!(
        "{} on record; {} there again",
        output::plural(erasures.len() as u64, "erasure"),
        output::plural(back, "subject")
    );
    for (policy, count) in found.back.iter().filter(|(_, count)| *count > 0) {
        say!("  {policy}: {count}");
    }
    for (policy, count) in found.alive.iter().filter(|(_, count)| *count > 0) {
        eprintln!(
            "{} of {policy} among them live: they came back with the backup, or somebody has registered under the same key since \
             it was restored, and nothing tells the two apart; replay before traffic comes back, with sequences set \
             past every id that was given out",
            output::plural(*count, "subject")
        );
    }
    for (policy, count) in &found.unknown {
        eprintln!(
            "{} of policy {policy} cannot be looked for: it is not there, or disabled; apply it and replay again",
            output::plural(*count, "erasure")
        );
    }
    let live: Vec<_> = found.live.iter().filter(|(_, count)| *count > 0).collect();
    for (policy, count) in &live {
        eprintln!(
            "{} of {policy} not taken: they are not as they were erased, and this database remembers the erasure, so they may \
             have registered again since; if they came back with a backup of the table, take them too with --live",
            output::plural(*count, "subject")
        );
    }
    let outcome = if found.unknown.is_empty() && live.is_empty() { Outcome::Done } else { Outcome::Problems };
    if args.dry_run || back == 0 {
        return Ok(outcome);
    }
    if !args.yes && confirm::can_ask() && !confirm::ask("erase them again?")? {
        say!("nothing was changed");
        return Ok(Outcome::Failed);
    }
    let mut tx = context.begin().await?;
    let done = retain::replay(&mut tx, &key, &erasures, retain::Replay { only_look: false, ..how }).await?;
    tx.commit().await?;
    say!("they are erased by the next run: ebb run --once");
    for (policy, id) in &done.refused {
        eprintln!(
            "but not {id} of {policy}: its table refuses it; why says ebb erase {policy} {}",
            retain::argument(id)
        );
    }
    Ok(if done.refused.is_empty() { outcome } else { Outcome::Problems })
}

fn subject_key(context: &Context) -> Result<SubjectKey> {
    let path = context.config.audit.subject_key.as_ref().and_then(|secret| secret.path());
    let path = path.ok_or_else(|| Error::config("there is no subject key").with_hint("set subject_key in [audit]"))?;
    SubjectKey::load(path)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| Error::usage(format!("cannot read {}: {error}", path.display())))
}

/// A page that stands by itself.
fn html(report: &Report) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let time = |moment: Moment| output::time(moment);
    let table = |title: &str, head: &[&str], rows: Vec<Vec<String>>| {
        if rows.is_empty() {
            return format!("<h2>{title}</h2><p>none</p>");
        }
        let cells = |tag: &str, cells: Vec<String>| {
            cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect::<String>()
        };
        let head = cells("th", head.iter().map(ToString::to_string).collect());
        let body: String = rows.into_iter().map(|row| format!("<tr>{}</tr>", cells("td", row))).collect();
        format!("<h2>{title}</h2><table><tr>{head}</tr>{body}</table>")
    };
    let deleted = report
        .deleted
        .iter()
        .map(|row| vec![row.day.clone(), row.policy.clone(), row.table.clone(), output::count(row.rows)]);
    let erased = report.erased.iter().map(|row| {
        let days = |days: f64| format!("{days:.1}");
        vec![
            row.policy.clone(),
            output::count(row.subjects),
            output::count(row.late),
            days(row.average_days),
            days(row.shortest_days),
        ]
    });
    let premature = report.premature.iter().map(|row| {
        vec![
            row.record.to_string(),
            row.policy.clone(),
            time(row.soft_deleted_at),
            time(row.erased_at),
            time(row.not_before),
        ]
    });
    let early = report.swept_early.iter().map(|row| {
        let times = [time(row.newest), time(row.deleted_at), time(row.not_before)];
        [vec![row.record.to_string(), row.policy.clone(), row.table.clone(), output::count(row.rows)], times.to_vec()]
            .concat()
    });
    let asked = report.asked.iter().map(|(what, count)| vec![what.clone(), output::count(*count)]);
    let below =
        report.below_default.iter().map(|(policy, tenant, term)| vec![policy.clone(), tenant.clone(), term.clone()]);
    let failed = report.failed.iter().map(|(policy, count)| vec![policy.clone(), output::count(*count)]);
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Retention report</title>\
         <style>body{{font:15px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}}table{{border-collapse:collapse;width:100%}}\
         td,th{{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #ddd}}</style>\
         <h1>Retention report</h1><p>{} to {}{}</p>{}{}{}{}{}{}{}</html>\n",
        time(report.since),
        time(report.until),
        match (&report.tenant, unknown(report)) {
            (Some(_), Some(nobody)) => format!(": {}", escape(&nobody)),
            (Some(tenant), None) => format!(", tenant {}", escape(tenant)),
            (None, _) => String::new(),
        },
        table("Premature erasures", &["record", "policy", "soft-deleted", "erased", "not before"], premature.collect()),
        table(
            "Rows deleted too early",
            &["record", "policy", "table", "rows", "newest", "deleted", "not before"],
            early.collect()
        ),
        table("Subjects erased", &["policy", "subjects", "late", "average days", "shortest"], erased.collect()),
        table("Rows deleted", &["day", "policy", "table", "rows"], deleted.collect()),
        table("Asked for", &["what", "times"], asked.collect()),
        table("Overrides below the default", &["policy", "tenant", "retention"], below.collect()),
        table("Could not be erased", &["policy", "subjects"], failed.collect()),
    )
}
