//! `ebb run`: the node. `--once` does everything due now and ends: for a CronJob, a timer, or a manual clean-up.

use std::net::SocketAddr;
use std::time::Duration;

use ebb::config::Config;
use ebb::policy::{Term, human};
use ebb::spine::{Finished, NodeOptions, Selector, Shutdown, Status, Summary};
use ebb::{Engine, Error, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use super::{Context, Outcome, output};
use crate::http;

/// Options of `ebb run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Do everything due now, then exit.
    #[arg(long)]
    once: bool,
    /// Only these policies, or one chore of them.
    #[arg(long, value_name = "NAME[:CHORE]", num_args = 1..)]
    only: Vec<String>,
    /// With --once: how long to wait for units that another node holds.
    #[arg(long, value_name = "DURATION", default_value = "0s", requires = "once")]
    wait: Term,
    /// With --once: print the result as JSON.
    #[arg(long, requires = "once")]
    json: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<Outcome> {
    let only = args.only.iter().map(|text| text.parse()).collect::<Result<Vec<Selector>>>()?;
    let config = &context.config;
    let options = NodeOptions {
        name: config.node.name.clone().unwrap_or_else(node_name),
        lease: config.node.lease,
        stop_within: config.database.stop_within,
        poll: config.node.poll,
        only,
    };
    let shutdown = Shutdown::new();
    stop_on_signals(shutdown.clone())?;
    if args.once {
        context.engine.ready().await?;
        let node = context.engine.node(options, shutdown);
        let wait = args.wait.as_duration().map_err(|invalid| Error::usage(invalid.message))?;
        let finished = node.run_once(wait).await?;
        return report(&finished, args.json);
    }
    serve(context, options, shutdown).await
}

async fn serve(context: &Context, options: NodeOptions, shutdown: Shutdown) -> Result<Outcome> {
    let config = &context.config;
    // Whether there is a token only the database knows: to be open to others, it has to be there first.
    if !config.http.listen.ip().is_loopback() {
        wait_until_ready(context, &shutdown).await?;
        if shutdown.is_stopping() {
            return Ok(Outcome::Done);
        }
    }
    let (address, server) = listen(&context.engine, config, &shutdown).await?;
    let (node, version, psql) = (&options.name, env!("CARGO_PKG_VERSION"), context.embedded_url());
    tracing::info!(node, version, http = %address, psql, "Ebb is up");

    wait_until_ready(context, &shutdown).await?;
    context.engine.node(options, shutdown).run().await?;
    // It has been draining since the signal.
    let _ = server.await;
    Ok(Outcome::Done)
}

/// Serves HTTP until shutdown.
pub(crate) async fn listen(
    engine: &Engine,
    config: &Config,
    shutdown: &Shutdown,
) -> Result<(SocketAddr, JoinHandle<()>)> {
    let tls = http::acceptor(config.http.tls.as_ref())?;
    http::may_listen(engine, &config.http).await?;
    let metrics = http::recorder()?;
    let listener = http::bind(&config.http).await?;
    let address = listener.local_addr().map_err(|error| Error::failed(error.to_string()))?;
    let drain = config.database.stop_within.mul_f64(0.6);
    let app = http::app(http::Surface::new(engine, metrics, config, shutdown));
    Ok((address, tokio::spawn(http::serve(listener, app, tls, shutdown.clone(), drain))))
}

/// A node may start before its database; only a schema it does not understand ends it.
async fn wait_until_ready(context: &Context, shutdown: &Shutdown) -> Result<()> {
    let mut pause = Duration::from_millis(100);
    loop {
        let ready = tokio::select! {
            ready = context.engine.ready() => ready,
            // What it is doing may be a migration, which ends with its connection: all of it or nothing.
            () = shutdown.stopping_for(Duration::from_secs(1)) => return Ok(()),
        };
        match ready {
            Err(error) if error.is_unavailable() => {
                tracing::warn!(error = %error, "The database is away; trying again until it is back");
                if shutdown.sleep(pause).await {
                    return Ok(());
                }
                pause = (pause * 2).min(Duration::from_secs(5));
            }
            ready => return ready,
        }
    }
}

/// The first signal stops gracefully, the second at once.
pub(crate) fn stop_on_signals(shutdown: Shutdown) -> Result<()> {
    let failed = |error: std::io::Error| Error::failed(format!("cannot listen for signals: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::spawn(async move {
        for times in 0.. {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if times == 0 {
                shutdown.stop();
            } else {
                std::process::exit(1);
            }
        }
    });
    Ok(())
}

fn node_name() -> String {
    let host = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    let host = host.trim();
    if host.is_empty() { format!("node-{}", std::process::id()) } else { format!("{host}-{}", std::process::id()) }
}

fn report(finished: &Finished, json: bool) -> Result<Outcome> {
    if json {
        output::json(finished)?;
    } else {
        print(finished);
    }
    Ok(if !finished.held.is_empty() {
        Outcome::Problems
    } else if finished.has_failed() {
        Outcome::Failed
    } else {
        Outcome::Done
    })
}

/// What a run left, and whom to ask about it.
fn passed_by(run: &Summary) -> String {
    let erases = run.unit.starts_with("erase/");
    let held = (run.skipped > 0)
        .then(|| format!("{} held by others", output::plural(run.skipped, if erases { "subject" } else { "row" })));
    let failed =
        (run.failed > 0).then(|| format!("{} failed: ebb show {}", output::plural(run.failed, "subject"), run.policy));
    [held, failed].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn print(finished: &Finished) {
    // Named as --only takes them, where a policy has several chores.
    let chore = |run: &Summary| run.unit.split('/').next().unwrap_or_default().to_owned();
    let named = |run: &Summary| {
        let is_one_of_several = |other: &Summary| other.policy == run.policy && chore(other) != chore(run);
        match finished.runs.iter().any(is_one_of_several) {
            true => format!("{}:{}", run.policy, chore(run)),
            false => run.policy.clone(),
        }
    };
    let mut rows: Vec<Vec<String>> = finished
        .runs
        .iter()
        .map(|run| {
            let took = human(Duration::from_millis(run.took.as_millis() as u64));
            let note = match (run.status, &run.note) {
                (Status::Success, _) if run.skipped + run.failed > 0 => passed_by(run),
                (_, note) => note.clone().unwrap_or_default(),
            };
            let status = run.status.as_str().to_owned();
            vec![named(run), run.table.clone(), status, run.rows.to_string(), run.batches.to_string(), took, note]
        })
        .collect();
    // What failed here has said it already.
    let told = |policy: &str| finished.runs.iter().any(|run| run.policy == policy && run.status == Status::Failed);
    for (policy, why) in finished.stopped.iter().filter(|(policy, _)| !told(policy)) {
        let dash = || "-".to_owned();
        let why = why.replace('\n', " ");
        rows.push(vec![policy.clone(), dash(), "stopped".to_owned(), dash(), dash(), dash(), why]);
    }
    output::table(&["policy", "table", "status", "rows", "batches", "took", ""], rows, "nothing to run");
    for (unit, why) in &finished.resting {
        say!("{unit} did not run: {why}");
    }
    for (unit, node) in &finished.held {
        say!("{unit} is held by {node}");
    }
}
