//! `ebb apply`: shows the difference, asks once on a terminal, makes it so.

use ebb::audit::{self, PeriodKeys, SigningKey, SubjectKey};
use ebb::policy::{self, Change, ChangeAction, Kind, Wanted};
use ebb::retain::{Consent, MadeDue};
use ebb::{Error, Result};

use super::{Context, Outcome, confirm, output};

/// Options of `ebb apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Overwrite policies that were changed at runtime.
    #[arg(long)]
    force: bool,
    /// Create the indexes that it otherwise prints, without holding up writers.
    #[arg(long)]
    create_indexes: bool,
    /// Add the columns that it otherwise prints.
    #[arg(long)]
    create_columns: bool,
    /// Show the difference and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Why a floor goes down; only whoever owns the ebb schema may lower one.
    #[arg(long)]
    reason: Option<String>,
    /// The subject key is lost for good: make a new one, with which no former erasure can be matched or replayed.
    #[arg(long)]
    new_subject_key: bool,
    /// Who makes the change, for history and audit.
    #[arg(long)]
    by: Option<String>,
    /// Print the difference as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let wanted = wanted(context);
    if !args.dry_run {
        context.engine.migrate().await?;
        let elsewhere = !args.new_subject_key && key_is_elsewhere(context).await?;
        create_keys(context, !elsewhere)?;
        if args.new_subject_key {
            replace_key(context, &context.by(args.by.as_deref())).await?;
        }
    }
    if !args.dry_run && args.create_columns {
        // As if the columns were there: nothing is added for policies that are refused for another reason.
        let missing = context.engine.missing_columns(&wanted).await?;
        if !missing.is_empty() && context.engine.missing_indexes(&wanted).await?.is_empty() {
            refuse(context, context.engine.check_with(&wanted, &missing).await?)?;
        }
    }
    // Before the check, which refuses a policy without its columns, and a large table without its index.
    if !columns(context, &wanted, &args).await? || !indexes(context, &wanted, &args).await? {
        say!("nothing was changed");
        return Ok(Outcome::Failed);
    }
    check(context, &wanted).await?;
    let changes = context.engine.difference(&wanted).await?;
    let made_due = if changes.is_empty() { Vec::new() } else { context.engine.made_due(&wanted).await? };
    let left = context.engine.left_waiting(&changes).await?;
    let moved = context.engine.moved(&wanted).await?;
    match args.json {
        true => output::json(&with_consequences(&changes, &made_due, &left)?)?,
        // What a name means is not what the file says.
        false if changes.is_empty() && !moved.is_empty() => {}
        false => print(&changes, args.force),
    }
    let unapproved = context.engine.unapproved(&wanted).await?;
    if !args.json {
        for (policy, differences) in &unapproved {
            say!("~ retain {policy} (what hangs on its subjects has changed)");
            differences.iter().for_each(|difference| say!("    {difference}"));
        }
    }
    if !args.json {
        moved.iter().for_each(|moved| say!("! {moved}; --yes agrees to that"));
        made_due.iter().for_each(|due| say!("! {due}"));
        for (sink, events) in &left {
            let events = output::plural(events.unsigned_abs(), "event");
            say!(
                "! sink {sink}: {events} in it would wait until it is back; warnings are made anew for their policy's sink"
            );
        }
    }
    if !args.json {
        for (policy, unseen) in context.engine.unseen_names(&wanted).await? {
            say!("! {policy}: {}: {}", unseen.table, unseen.message);
            unseen.fix.iter().for_each(|fix| say!("    {fix};"));
        }
    }
    if args.dry_run {
        // What would be refused is, after all of it was shown.
        if !args.force {
            policy::overwrites_nothing(&changes)?;
        }
        return Ok(Outcome::Done);
    }
    if changes.is_empty() && unapproved.is_empty() {
        sandboxes(context, &wanted, &args).await?;
        // What is derived from the policies is brought up to date all the same, for instance after an upgrade.
        let by = context.by(args.by.as_deref());
        let consent = Consent { confirmed: args.yes, reason: args.reason.clone() };
        context.engine.apply_with(&wanted, args.force, &by, &consent).await?;
        return Ok(Outcome::Done);
    }
    if !args.yes && confirm::can_ask() && !confirm::ask("apply?")? {
        say!("nothing was changed");
        return Ok(Outcome::Failed);
    }
    // Before the policies change: a node that follows at once finds them.
    sandboxes(context, &wanted, &args).await?;
    let mut consent = Consent { confirmed: args.yes, reason: args.reason.clone() };
    let by = context.by(args.by.as_deref());
    let applied = match context.engine.apply_with(&wanted, args.force, &by, &consent).await {
        // What the change would make due is said now, and what else --yes lets pass; whoever can be asked is asked.
        Err(error)
            if error.is_refused()
                && !consent.confirmed
                && error.hint().is_some_and(|hint| hint.contains("--yes"))
                && confirm::can_ask() =>
        {
            if !confirm::ask(&format!("{error}; go on?"))? {
                say!("nothing was changed");
                return Ok(Outcome::Failed);
            }
            consent.confirmed = true;
            context.engine.apply_with(&wanted, args.force, &by, &consent).await?
        }
        applied => applied?,
    };
    if !args.json {
        say!("applied {} {}", applied.len(), if applied.len() == 1 { "change" } else { "changes" });
    }
    Ok(Outcome::Done)
}

/// The difference as JSON, each change with what it makes due and what would be left waiting.
fn with_consequences(changes: &[Change], made_due: &[MadeDue], left: &[(String, i64)]) -> Result<serde_json::Value> {
    let json = |error: serde_json::Error| Error::failed(error.to_string());
    let mut told = serde_json::to_value(changes).map_err(json)?;
    for (change, told) in changes.iter().zip(told.as_array_mut().into_iter().flatten()) {
        if let Some(due) = made_due.iter().find(|due| change.kind == Kind::Retain && due.policy == change.name) {
            told["made_due"] = serde_json::to_value(due).map_err(json)?;
        }
        if let Some((_, events)) = left.iter().find(|(sink, _)| change.kind == Kind::Sink && *sink == change.name) {
            told["events_left_waiting"] = (*events).into();
        }
    }
    Ok(told)
}

/// Prints the columns that are missing, or adds them; false when somebody said no.
async fn columns(context: &Context, wanted: &[Wanted], args: &Args) -> Result<bool> {
    let missing = context.engine.missing_columns(wanted).await?;
    if missing.is_empty() || (args.json && !args.create_columns) {
        return Ok(true);
    }
    if !args.json {
        for column in &missing {
            say!("! {} has no column {}, which {} names:", column.table, column.column, column.policy);
            say!("    {};", column.statement);
        }
    }
    if args.dry_run {
        return Ok(true);
    }
    if !args.create_columns {
        say!("    --create-columns adds {}", if missing.len() == 1 { "it" } else { "them" });
        return Ok(true);
    }
    let question = match missing.len() {
        1 => "add it?".to_owned(),
        several => format!("add these {several} columns?"),
    };
    if !args.yes && confirm::can_ask() && !confirm::ask(&question)? {
        return Ok(false);
    }
    for column in &missing {
        context.engine.create_column(column).await?;
        if !args.json {
            say!("added {} to {}", column.column, column.table);
        }
    }
    Ok(true)
}

/// Prints the indexes that are missing, or makes them; false when somebody said no.
async fn indexes(context: &Context, wanted: &[Wanted], args: &Args) -> Result<bool> {
    let missing = context.engine.missing_indexes(wanted).await?;
    if missing.is_empty() || (args.json && !args.create_indexes) {
        return Ok(true);
    }
    if !args.json {
        for index in &missing {
            say!("! no index of {} leads to what {} takes:", index.table, index.policy);
            say!("    {};", index.statement);
        }
    }
    if args.dry_run {
        return Ok(true);
    }
    if !args.create_indexes {
        say!("    --create-indexes makes {}", if missing.len() == 1 { "it" } else { "them" });
        return Ok(true);
    }
    let question = match missing.len() {
        1 => "create it?".to_owned(),
        several => format!("create these {several} indexes?"),
    };
    if !args.yes && confirm::can_ask() && !confirm::ask(&question)? {
        return Ok(false);
    }
    for index in &missing {
        context.engine.create_index(index).await?;
        if !args.json {
            say!("created an index on {}", index.table);
        }
    }
    Ok(true)
}

/// Makes the owners' sandboxes, and prints those that somebody else has to make.
async fn sandboxes(context: &Context, wanted: &[Wanted], args: &Args) -> Result<()> {
    let states = context.engine.sandboxes(wanted, true).await?;
    if args.json {
        return Ok(());
    }
    for state in states.iter().filter(|state| state.created) {
        say!("+ sandbox of {}: rows of {} go with the rights of its owner, {}", state.policy, state.table, state.owner);
    }
    for state in states.iter().filter(|state| !state.present) {
        say!("! {} has no sandbox: a trigger on {} runs with the node's rights", state.policy, state.table);
        say!("  as a superuser, or as a member of {} who may create schemas:", state.owner);
        for line in state.script.lines() {
            say!("    {line}");
        }
    }
    Ok(())
}

/// The policies of the file.
pub(crate) fn wanted(context: &Context) -> Vec<Wanted> {
    let policies = context.config.policies.iter();
    policies
        .map(|p| Wanted { kind: p.kind, name: p.name.clone(), spec: p.spec.clone(), policy: p.policy.clone() })
        .collect()
}

/// Makes the keys that the configuration names and that are not there.
pub(crate) fn create_keys(context: &Context, of_subjects: bool) -> Result<()> {
    let audit = &context.config.audit;
    if let Some(path) = audit.signing_key.as_ref().and_then(|secret| secret.path()) {
        SigningKey::create_if_missing(path)?;
    }
    if let Some(path) = audit.subject_key.as_ref().and_then(|secret| secret.path()).filter(|_| of_subjects) {
        SubjectKey::create_if_missing(path)?;
    }
    if let Some(directory) = &audit.period_keys {
        PeriodKeys::at(directory).create_directory()?;
    }
    Ok(())
}

/// Whether the database's pseudonyms and links are made with a subject key that is not on this host: none is made here then, a
/// new one would match none of them. Nodes have it; applying needs none.
async fn key_is_elsewhere(context: &Context) -> Result<bool> {
    let path = context.config.audit.subject_key.as_ref().and_then(|secret| secret.path());
    let Some(path) = path.filter(|path| !path.exists()) else { return Ok(false) };
    let mut tx = context.begin().await?;
    let known = audit::known_subject_key(&mut tx).await?;
    let used = known.is_some() || audit::any_erasure(&mut tx).await?;
    tx.rollback().await?;
    if used {
        let which = known.map_or(String::new(), |(key_id, used_by)| format!(" ({key_id}, first used by {used_by})"));
        eprintln!(
            "note: the subject key {} is not here, and this database's pseudonyms and links are made with it{which}; none was made; \
             nodes need that one (if it is lost for good: --new-subject-key)",
            path.display()
        );
    }
    Ok(used)
}

/// The subject key that is here is the database's from now on, as somebody says who knows that the former one is lost.
async fn replace_key(context: &Context, by: &str) -> Result<()> {
    let path = context.config.audit.subject_key.as_ref().and_then(|secret| secret.path());
    let Some(path) = path else { return Ok(()) };
    let mut tx = context.begin().await?;
    audit::replace_subject_key(&mut tx, &SubjectKey::load(path)?, by).await?;
    tx.commit().await?;
    Ok(())
}

/// Checks the policies of the file against the database; what is wrong is told at its line, all of it at once.
pub(crate) async fn check(context: &Context, wanted: &[Wanted]) -> Result<()> {
    refuse(context, context.engine.check_all(wanted).await?)
}

fn refuse(context: &Context, wrong: Vec<(usize, Error)>) -> Result<()> {
    if wrong.is_empty() {
        return Ok(());
    }
    let file = context.config.path.as_ref().map_or("ebb.toml".into(), |path| path.display().to_string());
    let told: Vec<String> = wrong
        .iter()
        .map(|(position, error)| {
            let mut text = format!("error: {error}");
            if let Some(line) = context.config.policies.get(*position).and_then(|policy| policy.line_of(error.key())) {
                text += &format!("\n --> {file}:{line}");
            }
            if let Some(hint) = error.hint() {
                text += &format!("\n  = {hint}");
            }
            text
        })
        .collect();
    Err(Error::config(told.join("\n\n")))
}

/// One line a policy, one a key that differs.
pub(crate) fn print(changes: &[Change], force: bool) {
    if changes.is_empty() {
        say!("the database has what the file says");
    }
    for change in changes {
        let sign = match change.action {
            ChangeAction::Create => '+',
            ChangeAction::Update | ChangeAction::Restart => '~',
            ChangeAction::Disable => '-',
        };
        let what = match change.action {
            ChangeAction::Create => "new",
            ChangeAction::Update => "changed",
            ChangeAction::Restart => "starts again",
            ChangeAction::Disable => "gone from the file: disabled",
        };
        say!("{sign} {} {} ({what})", change.kind, change.name);
        for (key, before, after) in &change.keys {
            match (before, after) {
                (Some(before), Some(after)) => say!("    {key}: {before} -> {after}"),
                (None, Some(after)) => say!("    {key}: {after}"),
                (Some(before), None) => say!("    {key}: {before} -> (default)"),
                (None, None) => {}
            }
        }
        if let Some(who) = &change.overwrites {
            let now = if force { "overwritten, as --force says" } else { "overwritten only with --force" };
            say!("    changed at runtime by {who}; {now}");
        }
    }
}
