//! `ebb token`: who may ask over HTTP. A token is shown once, as the last word printed.

use ebb::policy::Term;
use ebb::token::{self, Role, Token};
use ebb::{Error, Result};

use super::{Context, Outcome, confirm, output};

/// What to do with tokens.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make a token and print it, once.
    Create(CreateArgs),
    /// List tokens; what proves them is never shown.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token: no request with it is let in from now on.
    Revoke(RevokeArgs),
}

/// Options of `ebb token create`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Roles:\n  \
    read     look at everything\n  \
    app      what an application does: claim, report lineage, schedule; sees little\n  \
    operate  read and app, and run the place: pause, resume, trigger, retry\n  \
    admin    everything, policies included\n\n\
    Example:  TOKEN=$(ebb token create --role app --name billing | awk 'END { print $NF }')")]
pub(crate) struct CreateArgs {
    /// What it may do: read, app, operate or admin.
    #[arg(long)]
    role: String,
    /// What it is called in lists and in the audit; the role when absent.
    #[arg(long)]
    name: Option<String>,
    /// How long it works; until revoked when absent.
    #[arg(long, value_name = "DURATION")]
    expires: Option<Term>,
    /// Who makes it, for the audit.
    #[arg(long)]
    by: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Options of `ebb token revoke`.
#[derive(Debug, clap::Args)]
pub(crate) struct RevokeArgs {
    /// Its id, as `ebb token list` shows it.
    id: String,
    /// Who revokes it, for the audit.
    #[arg(long)]
    by: Option<String>,
    /// Only say which it is.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(context: &Context, command: Command) -> Result<Outcome> {
    match command {
        Command::Create(args) => create(context, args).await,
        Command::List { json } => list(context, json).await,
        Command::Revoke(args) => revoke(context, args).await,
    }
}

async fn create(context: &Context, args: CreateArgs) -> Result<Outcome> {
    let role: Role = args.role.parse()?;
    if args.expires.as_ref().is_some_and(Term::is_zero) {
        return Err(Error::usage("a token that expires at once is none").with_hint("for example --expires 90d"));
    }
    let name = args.name.as_deref().unwrap_or(role.as_str());
    let mut tx = context.begin().await?;
    let by = context.by(args.by.as_deref());
    let created = token::create(&mut tx, name, role, args.expires.as_ref(), &by).await?;
    tx.commit().await?;
    if args.json {
        output::json(&serde_json::json!({ "id": created.id, "name": name, "role": role, "token": created.token }))?;
        return Ok(Outcome::Done);
    }
    say!("made token {} ({name}, role {role}); it is shown only now:", created.id);
    say!("{}", created.token);
    Ok(Outcome::Done)
}

async fn list(context: &Context, json: bool) -> Result<Outcome> {
    let mut tx = context.begin().await?;
    let tokens = token::list(&mut tx).await?;
    tx.commit().await?;
    if json {
        output::json(&tokens)?;
        return Ok(Outcome::Done);
    }
    let rows = tokens.iter().map(row).collect();
    let header = ["id", "name", "role", "state", "created", "by", "last used", "expires"];
    output::table(&header, rows, "there are no tokens yet: ebb token create --role admin");
    Ok(Outcome::Done)
}

fn row(token: &Token) -> Vec<String> {
    let time = |at: Option<_>, otherwise: &str| at.map_or(otherwise.to_owned(), output::time);
    vec![
        token.id.clone(),
        token.name.clone(),
        token.role.clone(),
        token.state.clone(),
        output::time(token.created_at),
        token.created_by.clone(),
        time(token.last_used_at, "never"),
        time(token.expires_at, "never"),
    ]
}

async fn revoke(context: &Context, args: RevokeArgs) -> Result<Outcome> {
    // Whoever has the token at hand may name it as a whole.
    let id = args.id.strip_prefix("ebb_").and_then(|rest| rest.split('_').next()).unwrap_or(&args.id);
    let mut tx = context.begin().await?;
    let tokens = token::list(&mut tx).await?;
    tx.commit().await?;
    let Some(token) = tokens.iter().find(|token| token.id == id) else {
        return Err(Error::usage("there is no such token").with_hint("`ebb token list` shows their ids"));
    };
    let Token { id, name, role, .. } = token;
    if args.dry_run {
        say!("would revoke token {id} ({name}, role {role}, {})", token.state);
        return Ok(Outcome::Done);
    }
    if !args.yes && confirm::can_ask() && !confirm::ask(&format!("revoke token {id} ({name}, role {role})?"))? {
        say!("nothing was changed");
        return Ok(Outcome::Done);
    }
    let mut tx = context.begin().await?;
    let revoked = token::revoke(&mut tx, id, &context.by(args.by.as_deref())).await?;
    tx.commit().await?;
    match revoked {
        true => say!("revoked token {id} ({name}): no request with it is let in any more"),
        false => say!("token {id} ({name}) was revoked before"),
    }
    Ok(Outcome::Done)
}
