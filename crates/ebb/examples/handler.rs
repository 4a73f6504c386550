//! Events delivered by a function of this program: schedule, deliver what is due, look at the history.
//! It only touches a server of its own, under a temporary directory: `cargo run -p ebb --example handler`.

use std::time::Duration;

use ebb::Engine;
use ebb::config::{Config, Env};
use ebb::pg::Database;
use ebb::pg::embedded::Embedded;
use ebb::policy::Wanted;
use ebb::schedule::Event;
use ebb::schedule::sink::{Delivery, Sink, Verdict};
use ebb::spine::{NodeOptions, Shutdown};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::json;

const POLICIES: &str = "[sinks.greetings]\ntype = \"handler\"\nretry = [\"0s\", \"1s\"]\n";

/// Takes greetings; the first attempt of each fails, to show a retry.
pub(crate) struct Greeter;

impl Sink for Greeter {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Verdict> {
        async move {
            println!(
                "attempt {} of {}: {}",
                delivery.attempt,
                delivery.kind.as_deref().unwrap_or("?"),
                delivery.payload
            );
            match delivery.attempt {
                1 => Verdict::transient("not yet"),
                _ => Verdict::Delivered { response: None },
            }
        }
        .boxed()
    }
}

fn main() -> ebb::Result<()> {
    let embedded = Embedded::start(&std::env::temp_dir().join("ebb-handler"))?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| ebb::Error::failed(error.to_string()))?;
    let done = runtime.block_on(async {
        let database = Database::open(embedded.target(), 8, "handler");
        let engine = Engine::new(database, ebb::Keys::default()).on("greetings", Greeter);
        let done = work(&engine).await;
        engine.database().close().await;
        done
    });
    embedded.stop()?;
    done
}

pub(crate) async fn work(engine: &Engine) -> ebb::Result<()> {
    engine.ready().await?;
    let config = Config::from_str(POLICIES, "policies", &Env::default())?;
    let policies = config.policies.into_iter();
    let wanted: Vec<Wanted> =
        policies.map(|p| Wanted { kind: p.kind, name: p.name, spec: p.spec, policy: p.policy }).collect();
    engine.apply(&wanted, true, "handler").await?;

    let events = engine.events();
    let greeting = json!({ "type": "birthday", "name": "Ayu" });
    let id = events.schedule(&Event::new("greetings", events.now().await?, greeting)).await?;
    // What `ebb run --once --only events` does; twice, because the first attempt fails.
    for _ in 0..2 {
        let options = NodeOptions { only: vec!["events".parse()?], ..NodeOptions::default() };
        engine.node(options, Shutdown::new()).run_once(Duration::ZERO).await?;
    }
    let shown = events.show(id).await?.ok_or_else(|| ebb::Error::failed("the event is gone"))?;
    for occurrence in shown.occurrences {
        println!(
            "{} is {} after {} attempts",
            occurrence.row.occurrence, occurrence.row.state, occurrence.row.attempts
        );
    }
    Ok(())
}
