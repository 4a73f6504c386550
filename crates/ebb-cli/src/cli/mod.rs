//! The command line: a file a command. This one parses, finds configuration and database, and turns errors into exit
//! codes and hints.

#[macro_use]
pub(crate) mod output;

pub(crate) mod apply;
pub(crate) mod audit;
mod completions;
mod confirm;
mod demo;
mod doctor;
mod event;
mod init;
mod man;
mod migrate;
mod once;
pub(crate) mod partition;
mod pause;
mod plan;
mod plan_page;
mod policy;
mod proof;
mod resource;
pub(crate) mod run;
mod status;
mod subject;
mod token;
mod trigger;
mod uninstall;
pub(crate) mod words;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueHint};
use ebb::config::{Config, Env};
use ebb::pg::embedded::Embedded;
use ebb::pg::{Database, Target, Warm};
use ebb::schedule::sink::Surroundings;
use ebb::token::{Credential, Role};
use ebb::{Engine, Error, Keys, Result, retain};
use sqlx::{PgConnection, Postgres, Transaction};

/// The data-lifecycle engine for PostgreSQL: data goes out on time, never early, and with proof.
#[derive(Debug, Parser)]
#[command(name = "ebb", version, max_term_width = 120)]
struct Cli {
    /// The configuration; `ebb.toml` in the working directory when absent.
    #[arg(long, global = true, env = "EBB_CONFIG", value_name = "PATH", value_hint = ValueHint::FilePath)]
    config: Option<OsString>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the database's policies those of the file.
    Apply(apply::Args),
    /// Show what differs from the file and what is due now; changes nothing.
    Plan(plan::Args),
    /// Show policies, what is due, the last runs, nodes and what holds work up.
    Status(status::Args),
    /// Find what stands in the way, with evidence and the fix.
    Doctor(doctor::Args),
    /// Run a node: every chore, and HTTP.
    Run(run::Args),
    /// Bring the ebb schema up to this version.
    Migrate,
    /// Look at policies and change them at runtime.
    #[command(subcommand)]
    Policy(policy::Command),
    /// Stop batches of a policy, or of all, until resumed.
    Pause(pause::PauseArgs),
    /// Lift a pause, or let a run pass its brake.
    Resume(pause::ResumeArgs),
    /// Make the running nodes do something now.
    Trigger(trigger::Args),
    /// Claim a key: prints first or duplicate.
    Once(once::Args),
    /// Tables split by time: adopt, look after, undo.
    #[command(subcommand)]
    Partition(partition::Command),
    /// Schedule events, look at them, and see to dead letters.
    #[command(subcommand)]
    Event(event::Command),
    /// Soft-delete a subject; it is erased when its grace is over.
    Delete(subject::DeleteArgs),
    /// Take a soft delete back.
    Restore(subject::Subject),
    /// Stop everything about a subject until it is released.
    Hold(subject::HoldArgs),
    /// Lift a hold.
    Release(subject::Subject),
    /// Erase a subject as soon as floor and holds allow: a verified request.
    Erase(subject::DeleteArgs),
    /// Try a subject again that could not be erased.
    Retry(subject::Subject),
    /// Show how a subject stands and what would be erased with it.
    Show(subject::ShowArgs),
    /// What lives in stores outside, and who refers to it.
    #[command(subcommand)]
    Resource(resource::Command),
    /// The record of what was done, and its proof.
    #[command(subcommand)]
    Audit(audit::Command),
    /// Who may ask over HTTP.
    #[command(subcommand)]
    Token(token::Command),
    /// Write a commented ebb.toml after looking at the database.
    Init(init::Args),
    /// Watch Ebb at work on a database of its own.
    Demo(demo::Args),
    /// Take Ebb out of the database: drops the ebb schema.
    Uninstall(uninstall::Args),
    /// Print completions for a shell.
    Completions(completions::Args),
    /// Print the manual page, or write one for every command.
    Man(man::Args),
}

/// What a command came to.
pub(crate) enum Outcome {
    Done,
    Problems,
    Failed,
}

pub(crate) async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match dispatch(cli).await {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(1),
        Ok(Outcome::Problems) => ExitCode::from(3),
        Err(error) => {
            output::error(&error);
            ExitCode::from(if error.is_config() || error.is_usage() { 2 } else { 1 })
        }
    }
}

async fn dispatch(cli: Cli) -> Result<Outcome> {
    let env = Env::process();
    // A variable that is empty is not set.
    let config = cli.config.filter(|path| !path.is_empty()).map(PathBuf::from);
    // These need no configuration and no database, or look for them in their own way.
    match cli.command {
        Command::Completions(args) => completions::run(args),
        Command::Audit(audit::Command::VerifyReceipt(args)) => proof::verify_receipt(&args),
        Command::Man(args) => man::run(args),
        Command::Demo(args) => demo::run(args, env).await,
        Command::Init(args) => init::run(config, args, env).await,
        command => with_context(config.as_deref(), env, command).await,
    }
}

async fn with_context(path: Option<&Path>, env: Env, command: Command) -> Result<Outcome> {
    let config = Config::load(path, &env)?;
    crate::log::init(&config.log);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let context = Context::open(config, env)?;
    let outcome = match command {
        Command::Apply(args) => apply::run(&context, args).await,
        Command::Plan(args) => plan::run(&context, args).await,
        Command::Status(args) => status::run(&context, args).await,
        Command::Doctor(args) => doctor::run(&context, args).await,
        Command::Run(args) => run::run(&context, args).await,
        Command::Migrate => migrate::run(&context).await,
        Command::Policy(command) => policy::run(&context, command).await,
        Command::Pause(args) => pause::pause(&context, args).await,
        Command::Resume(args) => pause::resume(&context, args).await,
        Command::Trigger(args) => trigger::run(&context, args).await,
        Command::Once(args) => once::run(&context, args).await,
        Command::Partition(command) => partition::run(&context, command).await,
        Command::Event(command) => event::run(&context, command).await,
        Command::Delete(args) => subject::delete(&context, args).await,
        Command::Restore(args) => subject::restore(&context, args).await,
        Command::Hold(args) => subject::hold(&context, args).await,
        Command::Release(args) => subject::release(&context, args).await,
        Command::Erase(args) => subject::erase(&context, args).await,
        Command::Retry(args) => subject::retry(&context, args).await,
        Command::Show(args) => subject::show(&context, args).await,
        Command::Resource(command) => resource::run(&context, command).await,
        Command::Audit(command) => audit::run(&context, command).await,
        Command::Token(command) => token::run(&context, command).await,
        Command::Uninstall(args) => uninstall::run(&context, args).await,
        Command::Completions(_) | Command::Man(_) | Command::Demo(_) | Command::Init(_) => Ok(Outcome::Done),
    };
    context.close().await;
    outcome
}

/// What every command has: the configuration, and an engine on its database.
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) engine: Engine,
    /// Kept so that the server lives as long as the command.
    pub(crate) embedded: Option<Embedded>,
}

impl Context {
    /// A transaction on a database that has Ebb in it.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Postgres>> {
        let mut tx = self.engine.database().read().await?;
        match ebb::pg::schema_version(&mut tx).await? {
            None => Err(Error::refused("Ebb is not in this database yet")
                .with_hint("`ebb apply` brings it and the policies of ebb.toml; `ebb migrate` only the schema")),
            Some(version) if version < ebb::pg::latest_version() => {
                Err(Error::refused("the ebb schema is older than this binary")
                    .with_hint("run `ebb migrate` as its owner"))
            }
            Some(_) => Ok(tx),
        }
    }

    fn open(config: Config, env: Env) -> Result<Self> {
        let (target, embedded) = match &config.database.url {
            Some(url) => {
                let direct = config.database.direct_url.as_ref().map(|secret| secret.resolve(&env)).transpose()?;
                (Target::parse(&url.resolve(&env)?, direct.as_deref())?, None)
            }
            None => {
                let embedded = Embedded::start(std::path::Path::new(".ebb"))?;
                (embedded.target(), Some(embedded))
            }
        };
        let database = Database::open(target, 16, "ebb/cli");
        let base = config.path.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
        let engine = Engine::new(database, keys(&config)).within(Surroundings { env, base });
        let engine = engine.reached_at(config.http.public_url.as_deref());
        Ok(Self { config, engine, embedded })
    }

    /// On an embedded server that was started elsewhere; closing stops it.
    pub(crate) fn with_embedded(config: Config, database: Database, embedded: Embedded) -> Result<Self> {
        let engine = Engine::new(database, keys(&config)).reached_at(config.http.public_url.as_deref());
        Ok(Self { config, engine, embedded: Some(embedded) })
    }

    /// Refuses what needs role admin over HTTP to whoever is neither a member of the role that owns the schema nor has the token of
    /// an administrator.
    pub(crate) async fn must_be_admin(&self, connection: &mut PgConnection) -> Result<()> {
        if retain::is_admin(connection).await? {
            return Ok(());
        }
        let hint = "connect as a member of the role that owns the schema ebb, or set EBB_TOKEN to a token of role admin \
                    (`ebb token create --role admin`)";
        let Some(token) = std::env::var("EBB_TOKEN").ok().filter(|token| !token.is_empty()) else {
            return Err(Error::refused("only an administrator changes policies").with_hint(hint));
        };
        let caller = match Credential::token(&token) {
            Some(credential) => credential.check(&Warm::new(self.engine.database().clone())).await?,
            None => None,
        };
        match caller {
            Some(caller) if caller.role == Role::Admin => Ok(()),
            Some(caller) => {
                Err(Error::refused(format!("the token in EBB_TOKEN has role {}, not admin", caller.role))
                    .with_hint(hint))
            }
            None => Err(Error::refused("the token in EBB_TOKEN is unknown, expired or revoked").with_hint(hint)),
        }
    }

    /// How psql reaches the embedded server, when there is one.
    pub(crate) fn embedded_url(&self) -> Option<String> {
        self.embedded.as_ref().map(Embedded::url)
    }

    /// Who asks, for history and audit.
    pub(crate) fn by(&self, given: Option<&str>) -> String {
        given.map_or_else(|| std::env::var("USER").unwrap_or_else(|_| "cli".into()), str::to_owned)
    }

    /// Closes every connection, and gives the embedded server back.
    pub(crate) async fn close(self) {
        self.engine.database().close().await;
        if let Some(embedded) = self.embedded
            && let Err(error) = embedded.stop()
        {
            output::error(&error);
        }
    }
}

/// Where the keys are. `ebb apply` creates missing ones; nobody else does.
fn keys(config: &Config) -> Keys {
    let path = |secret: &Option<ebb::config::Secret>| secret.as_ref()?.path().map(PathBuf::from);
    Keys {
        signing: path(&config.audit.signing_key),
        subject: path(&config.audit.subject_key),
        period: config.audit.period_keys.clone(),
        publish: config.audit.publish.clone().map(ebb::audit::Destination::File),
        report_at: config.audit.report_at,
    }
}
