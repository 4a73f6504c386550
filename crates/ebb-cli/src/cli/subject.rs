//! `ebb delete`, `restore`, `hold`, `release`, `erase`, `retry` and `show`: one subject of a policy.

use ebb::audit::Moment;
use ebb::retain::{Deletion, HeldSubject, OpenDeletion, Shown, StandsStill, Wait};
use ebb::{Error, Result, policy, retain};
use sqlx::PgConnection;

use super::plan::moment;
use super::{Context, Outcome, confirm, output};

/// Which subject.
#[derive(Debug, clap::Args)]
pub(crate) struct Subject {
    /// The policy.
    policy: String,
    /// The subject's primary key as text; of several columns a JSON array of texts: '["eu", "17"]'.
    id: String,
    /// Who asks, for the audit.
    #[arg(long)]
    by: Option<String>,
}

/// Options of commands that change what becomes of a subject.
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    subject: Subject,
    /// Say what would happen and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
}

/// Options of `ebb hold`.
#[derive(Debug, clap::Args)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    subject: Subject,
    /// Why; it is kept with the hold until the subject is erased.
    #[arg(long)]
    reason: String,
    /// When it ends by itself: a time, such as 2026-03-01 or 2026-03-01T12:00:00Z, or a duration from now, such as 90d.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

/// Options of `ebb show`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The policy.
    policy: String,
    /// The subject; without one, those of the policy that wait for something.
    id: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// How many subjects a list shows.
const LISTED: i64 = 200;

pub(crate) async fn delete(context: &Context, args: DeleteArgs) -> Result<Outcome> {
    let Subject { policy, id, by } = &args.subject;
    let pasted = retain::argument(id);
    if !agreed(context, &args, "soft-delete").await? {
        say!("nothing was changed");
        return Ok(Outcome::Failed);
    }
    let mut tx = context.begin().await?;
    let due = retain::delete(&mut tx, policy, id, &context.by(by.as_deref())).await?;
    let still = standstill(&mut tx, policy).await?;
    if args.dry_run {
        match still {
            Some(still) => say!("would be soft-deleted now; {still}"),
            None => say!("would be soft-deleted now, and erased {}", when(due)),
        }
        return Ok(Outcome::Done);
    }
    retain::commit(tx).await?;
    match still {
        Some(still) => say!("soft-deleted; {still}"),
        None if due == Moment::INFINITY => {
            say!("soft-deleted; it will not be erased as things stand: ebb show {policy} {pasted}")
        }
        None => say!("soft-deleted; it will be erased {}", when(due)),
    }
    say!("until then: ebb restore {policy} {pasted}");
    Ok(Outcome::Done)
}

pub(crate) async fn erase(context: &Context, args: DeleteArgs) -> Result<Outcome> {
    let Subject { policy, id, by } = &args.subject;
    let pasted = retain::argument(id);
    if !agreed(context, &args, "erase").await? {
        say!("nothing was changed");
        return Ok(Outcome::Failed);
    }
    let mut tx = context.begin().await?;
    let due = retain::request_erasure(&mut tx, policy, id, &context.by(by.as_deref())).await?;
    let still = standstill(&mut tx, policy).await?;
    let held = retain::held(&mut tx, policy, id).await?.is_some();
    let waits = retain::waits_for(&mut tx, policy, id).await?;
    let now = retain::now(&mut tx).await?;
    let (will, noted) = match args.dry_run {
        true => ("would", "would be noted"),
        false => {
            retain::commit(tx).await?;
            ("will", "noted")
        }
    };
    let over = due.timestamp().is_some_and(|due| due <= now);
    match waits {
        _ if still.is_some() => say!("{noted}; {}", still.unwrap_or_default()),
        _ if held => say!("it {will} be erased once its hold is lifted: ebb release {policy} {pasted}"),
        _ if due == Moment::INFINITY => say!("it {will} not be erased as things stand: ebb show {policy} {pasted}"),
        Some(why) if over => say!("it {will} be erased once nothing keeps it back ({why}): ebb show {policy} {pasted}"),
        _ if over => say!("it {will} be erased by the next run: ebb trigger {policy}:erase"),
        _ => say!("it {will} be erased {}, by the next run after that", when(due)),
    }
    Ok(Outcome::Done)
}

/// Shows what would go, and asks on a terminal.
async fn agreed(context: &Context, args: &DeleteArgs, verb: &str) -> Result<bool> {
    if !args.dry_run && (args.yes || !confirm::can_ask()) {
        return Ok(true);
    }
    let mut tx = context.begin().await?;
    let shown = retain::show(&mut tx, &args.subject.policy, &args.subject.id).await?;
    tx.rollback().await?;
    for (table, rows) in &shown.would_erase {
        say!("  {table}: {}", output::plural(*rows, "row"));
    }
    for (table, rows) in &shown.would_unlink {
        say!("  {table}: {} would lose the link", output::plural(*rows, "row"));
    }
    if let Some(why) = &shown.uncounted {
        say!("  not counted: {why}");
    }
    Ok(args.dry_run || confirm::ask(&format!("{verb} {} of {}?", args.subject.id, args.subject.policy))?)
}

pub(crate) async fn restore(context: &Context, subject: Subject) -> Result<Outcome> {
    let Subject { policy, id, by } = &subject;
    let mut tx = context.begin().await?;
    if !retain::restore(&mut tx, policy, id, &context.by(by.as_deref())).await? {
        // One that nobody knows is told apart from one that is fine.
        retain::show(&mut tx, policy, id).await?;
        return Err(Error::refused(format!(
            "there is nothing to restore of {id}: it is not deleted, being erased, or gone"
        ))
        .with_hint(format!("ebb show {policy} {}", retain::argument(id))));
    }
    retain::commit(tx).await?;
    say!("restored");
    Ok(Outcome::Done)
}

pub(crate) async fn hold(context: &Context, args: HoldArgs) -> Result<Outcome> {
    let Subject { policy, id, by } = &args.subject;
    let pasted = retain::argument(id);
    let mut tx = context.begin().await?;
    let until = match &args.until {
        None => None,
        Some(until) => Some(moment("--until", until, retain::now(&mut tx).await?)?.to_string()),
    };
    retain::hold(&mut tx, policy, id, &args.reason, until.as_deref(), &context.by(by.as_deref())).await?;
    // Another hold may be longer than this one.
    let until = retain::held(&mut tx, policy, id).await?.and_then(|hold| hold.until);
    retain::commit(tx).await?;
    match until {
        Some(until) => {
            let until = output::time(until);
            say!(
                "on hold until {until}; nothing of it goes before, by this policy or any other; to end it sooner: ebb release {policy} {pasted}"
            );
        }
        None => say!("on hold; nothing of it goes, by this policy or any other, until: ebb release {policy} {pasted}"),
    }
    Ok(Outcome::Done)
}

pub(crate) async fn release(context: &Context, subject: Subject) -> Result<Outcome> {
    let Subject { policy, id, by } = &subject;
    let mut tx = context.begin().await?;
    let held = retain::held(&mut tx, policy, id).await?;
    retain::release(&mut tx, policy, id, &context.by(by.as_deref())).await?;
    retain::commit(tx).await?;
    match held {
        Some(hold) => say!("released; it was on hold for {}, by {}", hold.reason, hold.placed_by),
        None => say!("released"),
    }
    Ok(Outcome::Done)
}

pub(crate) async fn retry(context: &Context, subject: Subject) -> Result<Outcome> {
    let Subject { policy, id, by } = &subject;
    let mut tx = context.begin().await?;
    if !retain::retry(&mut tx, policy, id, &context.by(by.as_deref())).await? {
        retain::show(&mut tx, policy, id).await?;
        return Err(Error::usage(format!("subject {id} of {policy} has not failed"))
            .with_hint(format!("ebb show {policy} {}", retain::argument(id))));
    }
    tx.commit().await?;
    say!("it is tried again by the next run: ebb trigger {policy}");
    Ok(Outcome::Done)
}

pub(crate) async fn show(context: &Context, args: ShowArgs) -> Result<Outcome> {
    let Some(id) = &args.id else { return waiting(context, &args).await };
    let mut tx = context.begin().await?;
    let shown = retain::show(&mut tx, &args.policy, id).await?;
    tx.rollback().await?;
    if args.json {
        output::json(&shown)?;
        return Ok(Outcome::Done);
    }
    let mut rows = vec![vec!["subject".to_owned(), format!("{} of {}", shown.id, shown.policy)]];
    let mut line = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    match (&shown.unmarked, &shown.deletion) {
        (Some(unmarked), _) => {
            let marked = if shown.hold.is_some() { "marked once its hold has ended" } else { "not marked yet" };
            line("state", format!("soft-deleted by the application, {marked}"));
            line("deleted", output::time(unmarked.deleted_at));
            line("due", when(unmarked.due_at));
        }
        (None, None) => line("state", "not deleted".into()),
        (None, Some(deletion)) => {
            line("state", deletion.state.clone());
            line("deleted", output::time(deletion.deleted_at));
            if deletion.closed_at.is_none() {
                line("due", when(deletion.due_at));
            }
            if deletion.expedited {
                line("request", "to be erased without the grace".into());
            }
            match (deletion.warning.as_deref(), deletion.warned_at) {
                (Some("accepted"), Some(at)) => line("warned", output::time(at)),
                (Some("undeliverable"), _) => {
                    let why = deletion.warning_error.as_deref().unwrap_or("no reason given");
                    line("warning", format!("undeliverable: {why}"));
                }
                (Some("scheduled"), _) => line("warning", "on its way".into()),
                (Some("planned"), _) => line("warning", "not sent yet; it is not erased before".into()),
                _ => {}
            }
            if let Some(blocked) = &deletion.blocked {
                line("waits", blocked.clone());
            }
            if let Some(error) = &deletion.error {
                let attempts = output::plural(deletion.attempts.unsigned_abs().into(), "attempt");
                line("error", format!("{error} ({attempts})"));
                line("next try", next_try(&shown, deletion));
            }
            line("deletion", deletion.deletion.to_string());
        }
    }
    if !shown.exists {
        line("row", "not there: the application deleted it, or changed its key".into());
    }
    if let Some(hold) = &shown.hold {
        let until = hold.until.map_or(String::new(), |until| format!(", until {}", output::time(until)));
        line("hold", format!("{}{until}", hold.reason));
        if !hold.binds.is_empty() {
            line("binds", hold.binds.join(", "));
        }
    }
    // Only what is claimed goes whatever happens.
    let (erases, unlinks) = match shown.deletion.as_ref().is_some_and(|deletion| deletion.state == "erasing") {
        true => ("erases", "unlinks"),
        false => ("would erase", "would unlink"),
    };
    for (table, count) in &shown.would_erase {
        line(erases, format!("{table}: {}", output::plural(*count, "row")));
    }
    for (table, count) in &shown.would_unlink {
        line(unlinks, format!("{table}: {}", output::plural(*count, "row")));
    }
    if let Some(why) = &shown.uncounted {
        line(erases, format!("not counted: {why}"));
    }
    for happened in &shown.history {
        let by = happened.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
        let note = happened.note.as_ref().map_or(String::new(), |note| format!(": {note}"));
        line("history", format!("{} {}{by}{note}", output::time(happened.at), happened.what));
    }
    output::table(&["", ""], rows, "");
    Ok(Outcome::Done)
}

/// When a subject is tried again whom an attempt failed with.
fn next_try(shown: &Shown, deletion: &Deletion) -> String {
    match deletion.next_try_at {
        _ if deletion.state == "failed" => {
            format!("once somebody asks for it: ebb retry {} {}", shown.policy, retain::argument(&shown.id))
        }
        Some(again) => format!("by the first run from {} on", output::time(again.max(deletion.due_at))),
        None => "by the next run".to_owned(),
    }
}

/// Subjects of a policy that failed, wait for something although their time has come, or are on hold, deleted or not.
async fn waiting(context: &Context, args: &ShowArgs) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    policy::store::find(&mut tx, &args.policy).await?;
    if !retain::policies(&mut tx).await?.contains(&args.policy) {
        return Err(Error::unknown(format!("policy {} is not about subjects", args.policy))
            .with_hint("a [[retain]] policy with deleted_at is; `ebb policy list` shows them"));
    }
    let found = retain::list_waiting(&mut tx, Some(&args.policy), LISTED).await?;
    let held = retain::list_holds(&mut tx, Some(&args.policy), LISTED, None).await?;
    let now = Moment::from(retain::now(&mut tx).await?);
    let still = standstill(&mut tx, &args.policy).await?;
    tx.rollback().await?;
    // Those with an open deletion are among the others.
    let undeleted: Vec<&HeldSubject> = held.iter().filter(|held| held.deletion.is_none()).collect();
    if args.json {
        let deletions = found.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>();
        let mut all = deletions.map_err(|error| Error::failed(format!("cannot print JSON: {error}")))?;
        all.extend(undeleted.into_iter().map(undeleted_json));
        output::json(&all)?;
        return Ok(Outcome::Done);
    }
    let waits = |open: &OpenDeletion| {
        let deletion = &open.deletion;
        let since = deletion.hold_since.map_or(String::new(), |since| format!(" (since {})", output::time(since)));
        let id = deletion.subject_id.clone().unwrap_or_default();
        vec![id, deletion.state.clone(), output::time(deletion.due_at), format!("{}{since}", deletion.waits(now))]
    };
    let on_hold = |held: &&HeldSubject| {
        let (why, since) = (Wait::Hold(held.reason.clone(), held.until), output::time(held.since));
        vec![held.subject_id.clone(), "no deletion".to_owned(), "-".to_owned(), format!("{why} (since {since})")]
    };
    let rows = found.iter().map(waits).chain(undeleted.iter().map(on_hold));
    output::table(&["subject", "state", "due", "waits"], rows.collect(), "no subject waits for anything");
    if found.len() as i64 == LISTED || held.len() as i64 == LISTED {
        say!("there may be more");
    }
    if let Some(still) = still {
        say!("{still}");
    }
    Ok(Outcome::Done)
}

/// A subject on hold that has no open deletion, with the keys that a deletion would have.
fn undeleted_json(held: &HeldSubject) -> serde_json::Value {
    serde_json::json!({
        "policy": held.policy, "deletion": null, "subject_id": held.subject_id, "state": null, "deleted_at": null,
        "due_at": null, "on_hold": true, "hold_reason": held.reason, "hold_until": held.until, "hold_since": held.since,
        "hold_by": held.placed_by,
    })
}

/// Says that nothing is erased as long as the policy stands still or only observes, and what ends that.
async fn standstill(connection: &mut PgConnection, policy: &str) -> Result<Option<String>> {
    if let Some(StandsStill { why, until }) = retain::stands_still(connection, policy).await? {
        return Ok(Some(format!("nothing is erased while {why}: {until}")));
    }
    let observes = retain::observes(connection, policy).await?;
    Ok(observes
        .then(|| format!("nothing is erased while {policy} only observes: ebb policy set {policy} mode=enforce")))
}

fn when(moment: Moment) -> String {
    if moment == Moment::INFINITY {
        "never, as things stand".to_owned()
    } else {
        format!("at {}", output::time(moment))
    }
}
