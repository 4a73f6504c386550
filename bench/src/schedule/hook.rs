//! Webhooks to a receiver on this machine, beside the same HTTP client in a bare loop at the same concurrency. Every call
//! of Ebb's is signed, claimed, recorded durably and kept in the history.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::routing::post;

use super::{drain, schedule};
use crate::bed::{Bed, Goal, Result, median};

const CALLS: u64 = 100_000;
const CONCURRENCY: usize = 32;
const ROUNDS: usize = 3;

pub(super) async fn run() -> Result<Vec<Goal>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    let received = Arc::new(AtomicU64::new(0));
    let counter = received.clone();
    let hook = post(move |_: axum::body::Bytes| {
        counter.fetch_add(1, Ordering::Relaxed);
        async { "ok" }
    });
    let server = tokio::spawn(async move { axum::serve(listener, Router::new().route("/hook", hook)).await });

    let bed = Bed::new().await?;
    let secret = ebb_testkit::TempDir::new();
    let path = secret.path().join("secret");
    std::fs::write(&path, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?;
    bed.apply(&format!(
        "[sinks.hook]\ntype = \"webhook\"\nurl = \"{url}\"\nallow_private = true\nconcurrency = {CONCURRENCY}\nsecrets = [\"file:{}\"]\n",
        path.display()
    ))
    .await?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(bare_loop(&url).await?);
        schedule(&bed, "hook", CALLS, "-1 second", "0").await;
        let before = received.load(Ordering::Relaxed);
        ours.push(drain(&bed, CALLS).await?);
        let got = received.load(Ordering::Relaxed) - before;
        if got != CALLS {
            return Err(format!("{got} of {CALLS} calls arrived").into());
        }
    }
    println!("webhooks {ours:.0?}/s, bare loop {bare:.0?}/s");
    server.abort();
    Ok(vec![Goal::at_least(
        "schedule: webhooks/s over the same client in a bare loop",
        median(ours) / median(bare),
        0.6,
    )])
}

async fn bare_loop(url: &str) -> Result<f64> {
    // As in the sink: this reqwest brings no crypto of its own.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    let client =
        reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().pool_max_idle_per_host(CONCURRENCY);
    let client = client.build()?;
    let body = format!("{{\"id\":\"{}\",\"data\":{{\"n\":1}}}}", "x".repeat(200));
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..CONCURRENCY {
        let (client, url, body) = (client.clone(), url.to_owned(), body.clone());
        tasks.spawn(async move {
            for _ in 0..CALLS / CONCURRENCY as u64 {
                client
                    .post(&url)
                    .header("content-type", "application/json")
                    .body(body.clone())
                    .send()
                    .await?
                    .bytes()
                    .await?;
            }
            Ok::<_, reqwest::Error>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(CALLS as f64 / begun.elapsed().as_secs_f64())
}
