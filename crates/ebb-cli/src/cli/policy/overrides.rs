//! `ebb policy override`: terms that a tenant has of its own. Invariant: what a call does not speak of stays as it is.

use ebb::policy::{self, Policy, Spec, Term};
use ebb::retain::{self, OverrideChange, TenantTerms, TermsChanged, TreeChange};
use ebb::{Error, Result};
use serde_json::{Value, json};

use crate::cli::{Context, Outcome, output};

/// Options of `ebb policy override`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb policy override user_accounts acme --retention 120d\n  \
    ebb policy override user_accounts acme --warn-before 14d,2d --text service=\"Acme Books\"\n  \
    ebb policy override user_accounts acme --disable\n  ebb policy override user_accounts acme --unset\n\n\
    What is not given stays as it is; an empty value (--retention= --text service=) is the policy's again.")]
pub(crate) struct Args {
    /// The policy.
    name: String,
    /// The tenant; absent: list the overrides.
    tenant: Option<String>,
    /// How long its data is retained; not below the policy's floor.
    #[arg(long, value_name = "DURATION")]
    retention: Option<String>,
    /// How long before their erasure its subjects are warned, and reminded: 14d or 14d,2d.
    #[arg(long, value_name = "DURATIONS")]
    warn_before: Option<String>,
    /// Words of its own in the warning: service, support, subject, greeting, intro, closing.
    #[arg(long = "text", value_name = "KEY=TEXT")]
    texts: Vec<String>,
    /// Erase nothing of this tenant.
    #[arg(long)]
    disable: bool,
    /// Erase its data again when its time has come.
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Take the override away.
    #[arg(long, conflicts_with_all = ["retention", "warn_before", "texts", "disable", "enable"])]
    unset: bool,
    /// Say what the change would make due and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Agree to what the change makes due, and to a tenant that has no rows yet.
    #[arg(long, short)]
    yes: bool,
    /// Who makes the change, for history and audit.
    #[arg(long)]
    by: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let Some(tenant) = &args.tenant else { return list(context, &args).await };
    let is_silent = args.retention.is_none() && args.warn_before.is_none() && args.texts.is_empty();
    if is_silent && !args.unset && !args.disable && !args.enable {
        return Err(Error::usage("say what the tenant's terms are")
            .with_hint("--retention 120d, --warn-before 14d, --text service=…, --disable, --enable or --unset"));
    }
    let mut tx = context.begin().await?;
    context.must_be_admin(&mut tx).await?;
    let change = match args.unset {
        true => OverrideChange::Unset,
        false => OverrideChange::Set(args.upon(retain::tenant_terms(&mut tx, &args.name, tenant).await?)?),
    };
    let by = context.by(args.by.as_deref());
    let sooner = retain::due_sooner(&mut tx, &args.name, tenant, &change).await?;
    let stored = policy::store::find(&mut tx, &args.name).await?;
    let by_age = matches!(stored.policy()?, Policy::Retain(policy) if policy.subjects().is_none());
    let agreed = args.yes || args.dry_run;
    let changed = retain::set_override(&mut tx, &args.name, tenant, &change, agreed, &by).await?;
    match args.dry_run {
        true => tx.rollback().await?,
        false => tx.commit().await?,
    }
    let TermsChanged { version, before, after, trees } = changed;
    let told = Told { version, changed: version != stored.version, more: after.saturating_sub(before), sooner, trees };
    match args.json {
        true => output::json(&told.json(&args, &change))?,
        false => told.print(&args, tenant, &change, by_age),
    }
    Ok(Outcome::Done)
}

/// What a change came to.
struct Told {
    version: i64,
    changed: bool,
    /// How many more are due by it.
    more: u64,
    /// How many open deletions are due sooner by it, and not at once.
    sooner: u64,
    /// What it makes of the trees of other policies.
    trees: Vec<TreeChange>,
}

impl Told {
    fn json(&self, args: &Args, change: &OverrideChange) -> Value {
        let terms = match change {
            OverrideChange::Set(terms) => terms.spec(),
            OverrideChange::Unset => Value::Null,
        };
        let Self { version, changed, more, sooner, trees } = self;
        json!({ "policy": args.name, "tenant": args.tenant, "terms": terms, "version": version, "changed": changed,
                "due_more": more, "due_sooner": sooner, "trees": trees, "dry_run": args.dry_run })
    }

    fn print(&self, args: &Args, tenant: &str, change: &OverrideChange, by_age: bool) {
        let Self { version, changed, more, sooner, trees } = self;
        if !changed {
            return say!("{tenant} of {} is like that already (version {version})", args.name);
        }
        if !args.dry_run {
            say!("{} has version {version}; nodes follow within seconds", args.name);
        }
        match change {
            OverrideChange::Set(terms) => say!("{tenant}: {}", in_words(terms)),
            OverrideChange::Unset => say!("{tenant}: as the policy says"),
        }
        let what = if by_age { "more row" } else { "more subject" };
        match (more, args.dry_run) {
            (0, _) => {}
            (more, true) => say!("{} would be due at once", output::plural(*more, what)),
            (more, false) => say!("{} due by it", output::plural(*more, what)),
        }
        super::print_sooner(*sooner, args.dry_run);
        super::print_trees(trees, args.dry_run);
        if args.dry_run {
            say!("nothing was changed");
        }
    }
}

async fn list(context: &Context, args: &Args) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    let stored = policy::store::find(&mut tx, &args.name).await?;
    let overrides = retain::list_overrides(&mut tx, &args.name).await?;
    tx.commit().await?;
    let in_force = matches!(stored.policy()?, Policy::Retain(policy) if policy.tenant_override);
    if args.json {
        output::json(&overrides)?;
        return Ok(Outcome::Done);
    }
    let rows = overrides
        .iter()
        .map(|own| {
            let retention = own.spec.get("retention").and_then(Value::as_str).unwrap_or("as the policy says");
            let warned = own.spec.get("warn_before").and_then(Value::as_array).map_or_else(
                || "as the policy says".to_owned(),
                |terms| terms.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            );
            let enabled = if own.enabled { "yes" } else { "no" };
            let (changed, by) = (output::time(own.changed_at), own.changed_by.clone());
            vec![own.tenant.clone(), retention.to_owned(), warned, enabled.to_owned(), changed, by]
        })
        .collect();
    let head = ["tenant", "retention", "warned before", "erased", "changed", "by"];
    output::table(&head, rows, "no tenant has terms of its own");
    if !in_force && !overrides.is_empty() {
        say!("none of this holds: {} has tenant_override = false", args.name);
    }
    Ok(Outcome::Done)
}

impl Args {
    /// What was typed, upon what the tenant has; an empty value is the policy's.
    fn upon(&self, mut terms: TenantTerms) -> Result<TenantTerms> {
        match self.retention.as_deref() {
            Some("") => terms.retention = None,
            Some(term) => terms.retention = Some(term.parse::<Term>()?),
            None => {}
        }
        match self.warn_before.as_deref() {
            Some("") => terms.warn_before = None,
            Some(given) => {
                let given: Vec<String> = given.split(',').map(|term| term.trim().to_owned()).collect();
                terms.warn_before = Some(policy::warning_terms(&given)?);
            }
            None => {}
        }
        let mut words = Spec::new();
        for text in &self.texts {
            let (key, text) = text.split_once('=').ok_or_else(|| {
                Error::usage(format!("{text:?} has no =")).with_hint("for example --text service=\"Acme Books\"")
            })?;
            match text {
                "" => drop(terms.texts.remove(key.trim())),
                text => drop(words.insert(key.trim().to_owned(), text.into())),
            }
        }
        terms.texts.extend(policy::warning_texts(&words)?);
        terms.enabled = self.enable || (terms.enabled && !self.disable);
        Ok(terms)
    }
}

fn in_words(terms: &TenantTerms) -> String {
    let retention =
        terms.retention.as_ref().map_or("retained as the policy says".to_owned(), |term| format!("retained {term}"));
    let warned = terms
        .warn_before
        .as_ref()
        .map(|terms| format!("warned {} before", terms.iter().map(Term::to_string).collect::<Vec<_>>().join(", ")));
    let words = (!terms.texts.is_empty())
        .then(|| format!("words of its own: {}", terms.texts.keys().cloned().collect::<Vec<_>>().join(", ")));
    let off = (!terms.enabled).then(|| "nothing of it is erased".to_owned());
    [Some(retention), warned, words, off].into_iter().flatten().collect::<Vec<_>>().join("; ")
}
