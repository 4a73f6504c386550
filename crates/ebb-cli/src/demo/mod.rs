//! `ebb demo`: a real node on a real PostgreSQL, with data that is due, an application that goes on meanwhile, and a
//! clock that can be moved. Invariants: it only ever touches a server of its own, whatever the environment says; what
//! it claims at the end it has counted.

mod accounts;
mod partition;
mod screen;
mod store;
mod traffic;
mod worker;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ebb::audit::{self, Destination, Published, Report, TrustedKeys};
use ebb::config::{Config, Env};
use ebb::pg::Database;
use ebb::pg::embedded::Embedded;
use ebb::policy::{Term, human};
use ebb::spine::{NodeOptions, Shutdown};
use ebb::{Error, Result, control};
use sqlx::{ConnectOptions, Connection, PgConnection};

use self::screen::Screen;
use self::store::Count;
use self::traffic::Traffic;
use self::worker::{Cleared, Crash};
use crate::cli::{Context, Outcome, apply, output, run};

const DIR: &str = ".ebb/demo";
const CONFIG: &str = include_str!("ebb.toml");
/// `--once` gives up after this.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many birthdays fall into the missed day; `sql/birthdays.sql` makes them.
const BIRTHDAYS: i64 = 500;

/// Moves the clock of a demo that runs in another terminal.
pub(crate) async fn advance(by: Term) -> Result<Outcome> {
    let not_running =
        || Error::refused("no demo is running in this directory").with_hint("start it in another terminal: ebb demo");
    if !Path::new(DIR).join("ebb.toml").exists() {
        return Err(not_running());
    }
    let embedded = start_server().await?;
    let joined = embedded.joined();
    let database = Database::open(embedded.target(), 2, "demo-clock");
    let moved = match joined {
        true => store::advance(&database, &by).await,
        false => Ok(None),
    };
    database.close().await;
    stop_server(embedded).await?;
    let now = moved?.ok_or_else(not_running)?;
    say!("the demo's clock is {by} further: {}", output::time(now));
    say!("its node sees within a second what is due now");
    Ok(Outcome::Done)
}

pub(crate) use worker::work;

/// Runs the demo until it is stopped or, with `once`, until everything due is done.
pub(crate) async fn run(once: bool, env: Env) -> Result<Outcome> {
    let shutdown = Shutdown::new();
    run::stop_on_signals(shutdown.clone())?;
    let begun = Instant::now();
    let embedded = start_server().await?;
    let psql = embedded.url();
    let mut session = Database::open(embedded.target(), 1, "demo").session("demo").await?;
    if !store::lock(&mut session).await? {
        return Err(Error::refused("a demo is already running in this directory")
            .with_hint("move its clock: ebb demo advance 1d; or stop it first"));
    }
    say!("PostgreSQL is up in {DIR} ({})", human(rounded(begun.elapsed())));
    let context = prepare(embedded, &mut session, &env).await?;
    let outcome = Demo { context: &context, shutdown, once, psql }.play().await;
    let _ = session.close().await;
    context.close().await;
    outcome
}

async fn start_server() -> Result<Embedded> {
    blocking(|| Embedded::start(Path::new(DIR))).await
}

async fn stop_server(embedded: Embedded) -> Result<()> {
    blocking(|| embedded.stop()).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::failed(error.to_string()))?
}

/// Data, configuration, keys and policies, all anew.
async fn prepare(embedded: Embedded, session: &mut PgConnection, env: &Env) -> Result<Context> {
    let begun = Instant::now();
    store::reset(session).await?;
    let dir = Path::new(DIR);
    // The chain begins anew with the database; the seal of the last demo would rightly not fit it.
    for name in ["ebb-audit.key", "ebb-audit.key.pub", "ebb-audit.key.seal"] {
        let _ = std::fs::remove_file(dir.join(name));
    }
    write(&dir.join("ebb.toml"), CONFIG)?;
    write_private(&dir.join("url"), embedded.target().options().to_url_lossy().as_str())?;
    // Only what is about the log and the port: a variable that names a database must not lead the demo to it.
    let allowed = ["EBB_LOG", "EBB_LOG_LEVEL", "EBB_LOG_FORMAT", "EBB_HTTP_LISTEN"];
    let env: Env = allowed.iter().filter_map(|name| Some((*name, env.get(name)?))).collect();
    let mut config = Config::load(Some(&dir.join("ebb.toml")), &env)?;
    if config.http.listen.port() == 0 || std::net::TcpListener::bind(config.http.listen).is_err() {
        config.http.listen.set_port(free_port(&config)?);
    }
    // The links in warnings lead to the page of this node.
    config.http.public_url = Some(format!("http://{}", config.http.listen));
    crate::log::init(&config.log);
    let database = Database::open(embedded.target(), 16, "ebb/demo");
    let context = Context::with_embedded(config, database, embedded)?;
    context.engine.migrate().await?;
    store::fill(session).await?;
    apply::create_keys(&context, true)?;
    let policies = context.engine.apply(&apply::wanted(&context), true, "demo").await?.len();
    store::place_hold(session).await?;
    store::miss_birthdays(session).await?;
    say!("made 380,000 rows of data and applied {policies} policies ({})", human(rounded(begun.elapsed())));
    say!("{BIRTHDAYS} people had their birthday in the last day, which no node saw");
    partition::show(&context).await?;
    Ok(context)
}

struct Demo<'a> {
    context: &'a Context,
    shutdown: Shutdown,
    once: bool,
    psql: String,
}

impl Demo<'_> {
    async fn play(self) -> Result<Outcome> {
        let engine = &self.context.engine;
        let database = engine.database();
        self.wait_for_the_first_keys().await?;
        let before = store::counts(database).await?;
        for count in &before {
            let Count { table_name, due, live, .. } = count;
            say!("  {table_name:<34} {:>9} due {:>9} live", output::count(*due), output::count(*live));
        }

        let (address, http) = run::listen(engine, &self.context.config, &self.shutdown).await?;
        say!("a node is up; metrics at http://{address}/metrics");
        let options = NodeOptions { name: "demo".into(), ..NodeOptions::default() };
        let node = tokio::spawn(engine.node(options, self.shutdown.clone()).run());
        let application = Database::open(database.target().clone(), 8, "demo-app");
        let mut traffic = Traffic::start(&application);

        let (mut swept, mut left) = (self.accounts(&address.to_string()).await, None);
        if matches!(swept, Ok(true)) {
            let crash = Crash::cause(database).await?;
            let begun = Instant::now();
            let (done, cleared) = tokio::join!(self.sweep(&before), crash.clear(database, &self.shutdown));
            swept = done;
            if matches!(swept, Ok(true)) {
                say!("everything that was due is gone ({})", human(rounded(begun.elapsed())));
                match cleared? {
                    Cleared::Whole(story) => say!("{story}"),
                    Cleared::Left(what) => left = Some(what),
                }
            }
        }
        let told = match swept {
            Ok(true) if self.once => self.settle(&mut traffic, &before, left).await,
            Ok(true) => {
                self.invite(&address.to_string());
                let watched = self.watch().await;
                traffic.stop().await.and(watched).map(|()| true)
            }
            Ok(false) => traffic.stop().await.map(|()| self.shutdown.is_stopping()),
            Err(error) => Err(error),
        };
        self.shutdown.stop();
        let ended = node.await.map_err(|error| Error::failed(format!("the node ended abnormally: {error}")))?;
        let _ = tokio::time::timeout(Duration::from_millis(500), http).await;
        application.close().await;
        let adds_up = told?;
        ended?;
        if !self.once {
            let (report, published) = self.verify().await?;
            crate::cli::audit::print(&report, published.as_ref());
        }
        Ok(if adds_up { Outcome::Done } else { Outcome::Failed })
    }

    /// Keys that were claimed for a second are due a second later.
    async fn wait_for_the_first_keys(&self) -> Result<()> {
        let living = |counts: &[Count]| counts.iter().any(|count| count.policy == "keep" && count.live > 0);
        while living(&store::counts(self.context.engine.database()).await?) && !self.shutdown.is_stopping() {
            self.shutdown.sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Watches until nothing is due any more; answers the brake, once. False when it was stopped or took too long.
    async fn sweep(&self, before: &[Count]) -> Result<bool> {
        let database = self.context.engine.database();
        let mut screen = Screen::new();
        let begun = Instant::now();
        while !self.shutdown.is_stopping() {
            for brake in store::brakes(database).await? {
                self.answer(&screen, &brake, before).await?;
            }
            let runs = store::runs(database, 0).await?;
            for count in before {
                let done: i64 = runs.iter().filter(|run| run.policy == count.policy).map(|run| run.rows).sum();
                screen.progress(&count.policy, "due rows deleted", done.unsigned_abs(), count.due.unsigned_abs());
            }
            screen.tell(false);
            let busy = runs.iter().any(|run| run.status == "running");
            let greetings = store::greetings(database).await?;
            screen.progress("greetings", "due events sent", greetings.sent.unsigned_abs(), BIRTHDAYS.unsigned_abs());
            let swept = !busy && store::counts(database).await?.iter().all(|count| count.due == 0);
            if swept && greetings.sent >= BIRTHDAYS && greetings.waiting == 0 {
                screen.finish();
                return Ok(true);
            }
            if let Some(failed) = runs.iter().find(|run| run.status == "failed") {
                let why = failed.error.as_deref().unwrap_or("no reason given");
                return Err(Error::failed(format!("the sweep of {} failed: {why}", failed.leaf)));
            }
            if self.once && begun.elapsed() > PATIENCE {
                return Err(Error::failed(format!("rows are still due after {}", human(PATIENCE)))
                    .with_hint("EBB_LOG_LEVEL=info shows what the node does"));
            }
            self.shutdown.sleep(LOOK_EVERY).await;
        }
        screen.finish();
        Ok(false)
    }

    /// A person would look at the numbers here; the demo shows them and says yes.
    async fn answer(&self, screen: &Screen, brake: &store::Brake, before: &[Count]) -> Result<()> {
        let policy = &brake.policy;
        let due = before.iter().find(|count| count.policy == *policy).map_or(brake.due, |count| count.due);
        // The brake looks at a sample of a large table; leave it room.
        let allow = due.max(brake.due).unsigned_abs() * 11 / 10;
        let (about, limit) = (output::count(brake.due), &brake.allowed_before);
        screen.say(&format!("the brake stopped {policy} before its first batch: about {about} rows are due ({limit})"));
        screen.say(&format!("  that is meant here, so the demo answers: ebb resume {policy} --allow {allow}"));
        let mut tx = self.context.engine.database().read().await?;
        control::resume(&mut tx, policy, Some(allow), "demo").await?;
        tx.commit().await?;
        Ok(())
    }

    fn invite(&self, address: &str) {
        let ebb = program();
        say!();
        say!("The application goes on, and so does the node. From a second terminal in this directory:");
        say!("  {ebb} demo advance 1d                              a day passes, for every connection");
        say!("  {ebb} --config {DIR}/ebb.toml policy list");
        say!("  {ebb} --config {DIR}/ebb.toml audit verify");
        say!("  {ebb} --config {DIR}/ebb.toml pause lineage-keys");
        say!("  curl http://{address}/metrics");
        say!("  psql \"{}\"", self.psql);
        say!("Ctrl-C ends it.");
        say!();
    }

    /// Tells what happens until somebody stops it.
    async fn watch(&self) -> Result<()> {
        let database = self.context.engine.database();
        let mut told = store::runs(database, 0).await?.last().map_or(0, |run| run.id);
        let (_, mut shift) = store::clock(database).await?;
        let mut braked = Vec::new();
        while !self.shutdown.sleep(LOOK_EVERY).await {
            let (now, shifted) = store::clock(database).await?;
            if shifted != shift {
                say!("the clock moved: it is {} now", output::time(now));
                shift = shifted;
            }
            for run in store::runs(database, told).await? {
                if run.status == "running" {
                    break;
                }
                told = run.id;
                if run.rows > 0 {
                    let took = human(rounded(Duration::from_secs_f64(run.seconds.max(0.0))));
                    let (rows, batches) = (run.rows.unsigned_abs(), run.batches.unsigned_abs());
                    let rows = output::plural(rows, if run.policy == worker::POLICY { "table" } else { "row" });
                    let batches = format!("{batches} {}", if batches == 1 { "batch" } else { "batches" });
                    say!("{}: deleted {rows} of {} in {batches}, {took}", run.policy, run.leaf);
                }
            }
            for brake in store::brakes(database).await? {
                let this = (brake.policy.clone(), brake.tripped_at);
                if !braked.contains(&this) {
                    let (policy, due) = (&brake.policy, brake.due.unsigned_abs());
                    let (about, limit) = (output::count(due), &brake.allowed_before);
                    say!("the brake stopped {policy}: about {about} rows are due ({limit}). To let them go:");
                    say!("  {} --config {DIR}/ebb.toml resume {policy} --allow {}", program(), due * 11 / 10);
                    braked.push(this);
                }
            }
        }
        Ok(())
    }

    /// Ends the traffic, seals the audit, and checks by counting that everything adds up.
    async fn settle(&self, traffic: &mut Traffic, before: &[Count], left: Option<String>) -> Result<bool> {
        traffic.stop().await?;
        self.seal().await?;
        let database = self.context.engine.database();
        let (report, published) = self.verify().await?;
        let after = store::counts(database).await?;
        let runs = store::runs(database, 0).await?;
        let done = &traffic.done;
        let (inserted, orders) =
            (done.inserted.load(Ordering::Relaxed) as i64, done.orders.load(Ordering::Relaxed) as i64);
        let mut wrong: Vec<String> = left.into_iter().collect();
        let mut rows = Vec::new();
        for (was, is) in before.iter().zip(&after) {
            let deleted: i64 = runs.iter().filter(|run| run.policy == was.policy).map(|run| run.rows).sum();
            let added = match was.policy.as_str() {
                "lineage-keys" => inserted,
                "keep" => orders,
                _ => 0,
            };
            if deleted != was.due || is.due != 0 {
                wrong.push(format!(
                    "{}: {} rows were due, {deleted} were deleted, {} are due",
                    was.table_name, was.due, is.due
                ));
            }
            if is.live != was.live + added {
                wrong.push(format!(
                    "{}: {} live rows, and there should be {}",
                    was.table_name,
                    is.live,
                    was.live + added
                ));
            }
            if was.policy != "keep" {
                let recorded = store::recorded(database, &was.policy).await?;
                if recorded != deleted {
                    wrong
                        .push(format!("{}: {deleted} rows were deleted and the audit says {recorded}", was.table_name));
                }
            }
            let numbers = [was.due, deleted, is.due, was.live, added, is.live].map(output::count);
            rows.push([vec![was.table_name.clone()], numbers.to_vec()].concat());
        }
        let [first, duplicate, other] = [&done.first, &done.duplicate, &done.other].map(|n| n.load(Ordering::Relaxed));
        if first as i64 != orders || other > 0 {
            wrong.push(format!("once: {orders} orders, {first} first deliveries, {other} neither first nor duplicate"));
        }
        let greetings = store::greetings(database).await?;
        if (greetings.sent, greetings.twice) != (BIRTHDAYS, 0) {
            wrong.push(format!("greetings: {} were sent, {} of them twice", greetings.sent, greetings.twice));
        }
        if !report.is_ok() || report.blocks == 0 || published.is_none() {
            wrong.push("the audit does not verify".into());
        }
        say!();
        output::table(&["table", "due before", "deleted", "due now", "live before", "added", "live now"], rows, "");
        say!();
        say!(
            "once: {} deliveries of {} orders: {} first, {} duplicate",
            output::count(first + duplicate + other),
            output::count(orders),
            output::count(first),
            output::count(duplicate)
        );
        say!(
            "greetings: {} sent for the day that was missed, up to {} late, none twice",
            output::count(greetings.sent),
            human(Duration::from_secs(greetings.latest.max(0.0) as u64))
        );
        wrong.extend(self.accounts_told().await?);
        crate::cli::audit::print(&report, published.as_ref());
        for what in &wrong {
            say!("does not add up: {what}");
        }
        if wrong.is_empty() {
            say!("every due row is gone, every live row is still there, and the audit says the same");
        }
        Ok(wrong.is_empty())
    }

    /// Asks for a seal now and waits until everything has one.
    async fn seal(&self) -> Result<()> {
        let database = self.context.engine.database();
        let mut tx = database.read().await?;
        control::trigger(&mut tx, "audit", None, "demo").await?;
        tx.commit().await?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(15) && !self.shutdown.is_stopping() {
            let mut tx = database.read().await?;
            if audit::unsealed(&mut tx, 1).await? == 0 {
                break;
            }
            drop(tx);
            self.shutdown.sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn verify(&self) -> Result<(Report, Option<Published>)> {
        let key = Path::new(DIR).join("ebb-audit.key");
        let published = Destination::beside(&key).read()?;
        let keys = TrustedKeys::beside(&key)?;
        let report = audit::verify(self.context.engine.database(), &keys, published.as_ref()).await?;
        Ok((report, published))
    }
}

/// A port that nobody listens on.
fn free_port(config: &Config) -> Result<u16> {
    let listener = std::net::TcpListener::bind((config.http.listen.ip(), 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| Error::failed(format!("there is no free port: {error}")))
}

/// How this program was called, to be called the same way again.
fn program() -> String {
    std::env::args().next().unwrap_or_else(|| "ebb".into())
}

fn rounded(took: Duration) -> Duration {
    Duration::from_millis(took.as_millis() as u64 / 10 * 10)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| Error::failed(format!("{}: {error}", path.display())))
}

/// The URL has the password in it.
fn write_private(path: &PathBuf, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let _ = std::fs::remove_file(path);
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Error::failed(format!("{}: {error}", path.display())))
}
