//! `ebb once NAMESPACE KEY`: a claim from a shell script.

use ebb::once::Claim;
use ebb::policy::Term;
use ebb::{Error, Result};

use super::{Context, Outcome, output};

/// Options of `ebb once`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Prints one word:\n  \
    first        nobody claimed the key inside its window: do the work\n  \
    duplicate    somebody did\n  \
    in_progress  somebody is at it: ask again later\n  \
    mismatch     the key was claimed with another fingerprint\n\n\
    Exit: 0 for first, duplicate and in_progress (all are answers), 3 for mismatch (two requests share a key).\n\n\
    Example:  [ \"$(ebb once orders \"$ORDER_ID\")\" = first ] && ship \"$ORDER_ID\"")]
pub(crate) struct Args {
    /// The namespace; one that is not configured works with the defaults.
    namespace: String,
    /// The key, up to 1 kB.
    key: String,
    /// How long the claim lasts instead of the namespace's term.
    #[arg(long, value_name = "DURATION")]
    ttl: Option<Term>,
    /// What the request was, for instance a hash of its body: the same key with another one is a mismatch.
    #[arg(long, value_name = "TEXT")]
    fingerprint: Option<String>,
    /// Print the outcome, and the stored result of a duplicate, as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let mut once = context.engine.once(&args.namespace);
    if let Some(ttl) = &args.ttl {
        let length = ttl.as_duration().map_err(|invalid| {
            let error = Error::usage(format!("--ttl: {}", invalid.message));
            match invalid.hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            }
        })?;
        once = once.ttl(length);
    }
    if let Some(fingerprint) = args.fingerprint {
        once = once.fingerprint(fingerprint);
    }
    context.begin().await?.rollback().await?;
    let claim = once.claim(&args.key).await?;
    if args.json {
        let result = match &claim {
            Claim::Duplicate { result } => result.clone(),
            _ => None,
        };
        output::json(&serde_json::json!({ "outcome": claim.outcome(), "result": result }))?;
    } else {
        say!("{}", claim.outcome());
    }
    Ok(if claim == Claim::Mismatch { Outcome::Problems } else { Outcome::Done })
}
