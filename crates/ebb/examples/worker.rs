//! A worker whose scratch tables live exactly as long as somebody refers to them.
//!
//! ```sh
//! cargo run --example worker -- postgres://localhost/app scratch
//! ```
//! The second argument is a `[[resources]]` policy with `driver = "postgres"` and a schema of that name.

use std::sync::Arc;

use ebb::resources::{Context, LifecycleHandler, PostgresHandler, Worker};
use ebb::{Engine, Error, Result};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let usage = || Error::usage("worker DATABASE_URL POLICY");
    let (url, policy) = (args.next().ok_or_else(usage)?, args.next().ok_or_else(usage)?);
    run(&url, &policy).await
}

pub(crate) async fn run(url: &str, policy: &str) -> Result<()> {
    // Who starts a handler stops it; contexts share it.
    let engine = Engine::connect(url)?;
    let worker = Worker { labels: json!({ "job": "42" }), ..Worker::new("example") };
    let handler = Arc::new(PostgresHandler::start(engine.database().clone(), policy, worker).await?);
    let outcome = task(&engine, policy, Context::with(handler.clone())).await;
    handler.stop().await?;
    outcome
}

async fn task(engine: &Engine, schema: &str, context: Context) -> Result<()> {
    // Announced first: whatever happens from here on, Ebb knows of it.
    let name = format!("t{}", (jiff::Timestamp::now().as_millisecond() as u64) << 22);
    let table = context.announce(&name, json!({})).await?;
    let mut tx = engine.database().read().await?;
    let create = format!("CREATE TABLE {} (x int)", ebb::pg::Relation::new(schema, table.name()?));
    sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut *tx).await?;
    tx.commit().await?;
    context.created(&table, None).await?;

    // A clone refers once more; any thread may drop it.
    let clone = table.clone();
    std::thread::spawn(move || println!("using {}", clone.name().unwrap_or("nothing: it is stale")))
        .join()
        .map_err(|_| Error::failed("the thread panicked"))?;

    context.close().await?;
    println!("after its context a handle is stale: {}", table.name().is_err());
    Ok(())
}
