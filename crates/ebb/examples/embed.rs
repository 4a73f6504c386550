//! Ebb inside a Rust program: claims, a policy, one pass over what is due, and a node that is told to stop.
//! It only touches a server of its own, under a temporary directory: `cargo run -p ebb --example embed`.

use std::time::Duration;

use ebb::Engine;
use ebb::config::{Config, Env};
use ebb::once::{Begun, Claim};
use ebb::pg::Database;
use ebb::pg::embedded::Embedded;
use ebb::policy::Wanted;
use ebb::spine::{NodeOptions, Shutdown};

const POLICIES: &str = r#"
[[expire]]
name = "tokens"
table = "public.token"
column = "expires_at"
every = "1m"
"#;

fn main() -> ebb::Result<()> {
    // An existing server is one line instead: Engine::connect("postgres://…"). Starting one blocks, so it comes first.
    let dir = std::env::temp_dir().join("ebb-embed");
    let embedded = Embedded::start(&dir)?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| ebb::Error::failed(error.to_string()))?;
    let done = runtime.block_on(async {
        let engine = Engine::new(Database::open(embedded.target(), 8, "embed"), ebb::Keys::default());
        let done = work(&engine).await;
        engine.database().close().await;
        done
    });
    embedded.stop()?;
    done
}

pub(crate) async fn work(engine: &Engine) -> ebb::Result<()> {
    // As the schema's owner this creates or upgrades it; any other role is told which command to run.
    engine.ready().await?;
    once(engine).await?;
    sweep(engine).await?;
    node(engine).await
}

async fn once(engine: &Engine) -> ebb::Result<()> {
    let orders = engine.once("orders").ttl(Duration::from_secs(3600));
    let order = format!("order-{}", std::process::id());
    println!("claim: {}, again: {}", orders.claim(&order).await?.outcome(), orders.claim(&order).await?.outcome());

    // Inside your own transaction the claim stands or falls with it.
    let mut tx = engine.database().read().await?;
    if orders.claim_in(&mut tx, &format!("{order}-b")).await? == Claim::First {
        // … the work that must happen once, on the same transaction …
    }
    tx.commit().await?;

    // Work whose result others want: they hear "in progress", then get it.
    let payment = format!("payment-{}", std::process::id());
    if let Begun::First(work) = engine.once("payments").begin(&payment).await? {
        let counted = work.complete(Some(&serde_json::json!({ "status": "charged" }))).await?;
        println!("completed: {counted}, stored: {:?}", engine.once("payments").result(&payment).await?);
    }
    Ok(())
}

async fn sweep(engine: &Engine) -> ebb::Result<()> {
    let mut tx = engine.database().read().await?;
    let statements = [
        "CREATE TABLE IF NOT EXISTS public.token (id bigint, expires_at timestamptz)",
        "CREATE INDEX IF NOT EXISTS token_expires_at ON public.token (expires_at)",
        "INSERT INTO public.token SELECT n, now() + (n - 700) * interval '1 minute' FROM generate_series(1, 1000) n",
    ];
    for statement in statements {
        sqlx::query(statement).persistent(false).execute(&mut *tx).await?;
    }
    tx.commit().await?;

    // All policies at once: one that the database has and this list has not is disabled.
    let config = Config::from_str(POLICIES, "policies", &Env::default())?;
    let wanted: Vec<Wanted> = config
        .policies
        .into_iter()
        .map(|p| Wanted { kind: p.kind, name: p.name, spec: p.spec, policy: p.policy })
        .collect();
    let changes = engine.apply(&wanted, false, "embed").await?;
    println!("applied {} changes", changes.len());

    // What `ebb run --once --only tokens` does.
    let options = NodeOptions { only: vec!["tokens".parse()?], ..NodeOptions::default() };
    let finished = engine.node(options, Shutdown::new()).run_once(Duration::ZERO).await?;
    for run in &finished.runs {
        println!("{} on {}: {}, {} rows", run.policy, run.table, run.status.as_str(), run.rows);
    }
    Ok(())
}

async fn node(engine: &Engine) -> ebb::Result<()> {
    // What `ebb run` does. `stop` lets the current batches end and gives the leases back.
    let shutdown = Shutdown::new();
    let running = tokio::spawn(engine.node(NodeOptions::default(), shutdown.clone()).run());
    tokio::time::sleep(Duration::from_secs(1)).await;
    shutdown.stop();
    running.await.map_err(|error| ebb::Error::failed(error.to_string()))??;
    println!("the node has stopped");
    Ok(())
}
