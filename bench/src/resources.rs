//! resources beside what the document describes: handles that count while the flusher writes, a million changes of
//! distinct pairs beside one transaction a message, memory while the database is away, and in a real ClickHouse a sweep of
//! 10,000 tables beside the bare listing and 1,000 drops beside a bare loop.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebb::pg::{Database, Target};
use ebb::resources::driver::ClickHouseDriver;
use ebb::resources::{Driver, Handle, LifecycleHandler, PostgresHandler, Worker};
use ebb_testkit::{Proxy, Store, TestDatabase};
use futures_util::{StreamExt, TryStreamExt, stream};
use sqlx::{Connection, Executor, PgConnection};

use crate::bed::{Bed, Goal, Result, median};
use crate::footprint::resident_mb;

/// As many as the targets name.
const THREADS: usize = 8;
const RESOURCES: usize = 10_000;
const HOLDERS: usize = 100;
/// Steps of a thread between two looks at the clock: few, so that most were not interrupted.
const STEPS: usize = 64;
const MESSAGES: usize = 2_000;
const TABLES: usize = 10_000;
const DROPS: usize = 1_000;

pub(crate) async fn run() -> Result<Vec<Goal>> {
    let bed = Bed::new().await?;
    bed.database.execute("CREATE SCHEMA scratch").await;
    bed.apply(&policy("s", "driver = \"postgres\"\nschema = \"scratch\"")).await?;
    announce(&bed.database).await;
    let mut goals = handles(&bed.database).await?;
    goals.push(flush(&bed.database).await?);
    goals.push(backpressure(&bed).await?);
    goals.extend(clickhouse(&bed).await?);
    Ok(goals)
}

fn policy(name: &str, place: &str) -> String {
    format!(
        "[[resources]]\nname = \"{name}\"\n{place}\npattern = \"t{{snowflake}}\"\ngrace = \"0s\"\norphan_age = \"1s\"\n\
         max_orphans = 100000\nbrake = {{ share = \"off\" }}\nbatch = {{ rows = 1000, pause = \"0s\" }}\n"
    )
}

fn name(n: usize) -> String {
    format!("t{}", (1_700_000_000_000_u64 << 22) + n as u64)
}

/// Resources that exist, of a holder that keeps them.
async fn announce(database: &TestDatabase) {
    let first = name(0);
    database
        .execute(&format!(
            "WITH keeper AS (SELECT ebb.holder_open('keeper', '1 day') AS id)
             SELECT ebb.create_intent('s', 't' || (substr('{first}', 2)::int8 + n), id), ebb.created('s', 't' || (substr('{first}', 2)::int8 + n))
             FROM keeper, generate_series(0, {RESOURCES} - 1) n"
        ))
        .await;
    database.execute("ANALYZE ebb.resource; ANALYZE ebb.reference; ANALYZE ebb.holder").await;
}

async fn handler(database: &TestDatabase) -> Result<Arc<PostgresHandler>> {
    let opened = Database::open(Target::parse(database.socket_url(), None)?, 2, "ebb/worker");
    Ok(Arc::new(PostgresHandler::start(opened, "s", Worker::new("bench")).await?))
}

/// Nanoseconds of a step, from eight threads, while the flusher writes what others change all the time.
async fn handles(database: &TestDatabase) -> Result<Vec<Goal>> {
    let handler = handler(database).await?;
    let kept: Arc<Vec<Handle>> = Arc::new((0..1_000).map(|n| handler.incref(&name(n))).collect());
    handler.flush().await?;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (handler, stop) = (handler.clone(), stop.clone());
        async move {
            let mut flushes = 0_u64;
            while !stop.load(Ordering::Acquire) {
                let held: Vec<Handle> = (2_000..3_000).map(|n| handler.incref(&name(n))).collect();
                handler.flush().await?;
                drop(held);
                flushes += 1;
            }
            Ok::<_, ebb::Error>(flushes)
        }
    });
    let clones = from_threads(&stop, {
        let kept = kept.clone();
        move |n| {
            black_box(kept[n % kept.len()].clone());
        }
    });
    let by_name = from_threads(&stop, {
        let (handler, names) = (handler.clone(), (3_000..4_000).map(name).collect::<Vec<_>>());
        move |n| {
            black_box(handler.incref(&names[n % names.len()]));
        }
    });
    stop.store(true, Ordering::Release);
    let flushes = writer.await??;
    drop(kept);
    handler.stop().await?;
    println!(
        "resources: {clones:.0} ns for a clone or drop, {by_name:.0} ns for an incref or decref by name; {flushes} flushes meanwhile"
    );
    Ok(vec![
        Goal::at_most("resources: clone or drop of a handle from 8 threads, median ns", clones, 200.0),
        Goal::at_most("resources: incref or decref by name from 8 threads, median ns", by_name, 200.0),
    ])
}

/// The median of a step on eight threads; `pair` is two of them.
fn from_threads(stop: &Arc<AtomicBool>, pair: impl Fn(usize) + Send + Sync) -> f64 {
    let until = Instant::now() + Duration::from_secs(3);
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let pair = &pair;
                scope.spawn(move || {
                    let (mut times, mut n) = (Vec::with_capacity(1 << 20), thread * 7919);
                    while Instant::now() < until && times.len() < times.capacity() {
                        let started = Instant::now();
                        for _ in 0..STEPS / 2 {
                            n = n.wrapping_add(1);
                            pair(n);
                        }
                        times.push(started.elapsed().as_nanos() as f64 / STEPS as f64);
                    }
                    times
                })
            })
            .collect();
        for thread in threads {
            all.extend(thread.join().unwrap_or_default());
        }
    });
    debug_assert!(!stop.load(Ordering::Acquire));
    median(all)
}

/// A million increfs of distinct pairs, and the document's transaction a message, in turns.
async fn flush(database: &TestDatabase) -> Result<Goal> {
    let mut connection = PgConnection::connect(database.socket_url()).await?;
    connection.execute("CREATE TABLE refcounts (table_name text PRIMARY KEY, refcount bigint NOT NULL)").await?;
    let mut ratios = Vec::new();
    let rounds = 4;
    let (mut bare_rate, mut ebb_rate) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let started = Instant::now();
        for n in 0..MESSAGES {
            sqlx::query(
                "INSERT INTO refcounts VALUES ($1, 1) ON CONFLICT (table_name) DO UPDATE SET refcount = refcounts.refcount + 1",
            )
            .bind(name((round * MESSAGES + n) % RESOURCES))
            .execute(&mut connection)
            .await?;
        }
        let bare = MESSAGES as f64 / started.elapsed().as_secs_f64();
        let mut handlers = Vec::new();
        for _ in 0..HOLDERS / rounds {
            handlers.push(handler(database).await?);
        }
        let started = Instant::now();
        let mut held = Vec::with_capacity(handlers.len() * RESOURCES);
        for handler in &handlers {
            held.extend((0..RESOURCES).map(|n| handler.incref(&name(n))));
            handler.flush().await?;
        }
        let ebb = held.len() as f64 / started.elapsed().as_secs_f64();
        let stands: i64 = database.scalar("SELECT count(*) FROM ebb.reference").await;
        let expected = RESOURCES + handlers.len() * RESOURCES;
        if stands as usize != expected {
            return Err(format!("{stands} references stand, not {expected}").into());
        }
        drop(held);
        for handler in handlers {
            handler.stop().await?;
        }
        database.execute("VACUUM ebb.reference").await;
        ratios.push(ebb / bare);
        bare_rate.push(bare);
        ebb_rate.push(ebb);
    }
    println!(
        "resources: {:.0} changes/s flushed, {:.0}/s one transaction a message",
        median(ebb_rate),
        median(bare_rate)
    );
    Ok(Goal::at_least("resources: 1M changes of distinct pairs over one transaction a message", median(ratios), 50.0))
}

/// Five million changes while the database does not answer: coalesced, not queued one by one.
async fn backpressure(bed: &Bed) -> Result<Goal> {
    let proxy = Proxy::start(bed.server.address()).await;
    let opened = Database::open(Target::parse(&proxy.url(bed.database.url()), None)?, 2, "ebb/worker");
    let handler = PostgresHandler::start(opened, "s", Worker::new("bench")).await?;
    let names: Vec<String> = (0..RESOURCES).map(name).collect();
    drop(names.iter().map(|name| handler.incref(name)).collect::<Vec<_>>());
    handler.flush().await?;
    proxy.black_hole();
    let before = resident_mb(std::process::id())?;
    let changes = 5_000_000;
    for n in 0..changes / 2 {
        black_box(handler.incref(&names[n % RESOURCES]));
    }
    let grown = resident_mb(std::process::id())? - before;
    println!("resources: {changes} changes on {RESOURCES} resources while the database is away took {grown:.1} MB");
    proxy.restore();
    handler.stop().await?;
    Ok(Goal::at_most("resources: MB for 5M changes while the database is away", grown.max(0.0), 16.0))
}

async fn clickhouse(bed: &Bed) -> Result<Vec<Goal>> {
    // reqwest wants one, also for plain HTTP.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let store = Store::own_clickhouse();
    store.query("CREATE DATABASE scratch").await;
    let url = format!("{}/?database=scratch", store.url());
    bed.apply(&policy("c", &format!("driver = \"clickhouse\"\nurl = \"{url}\""))).await?;
    let mut tx = bed.engine.database().read().await?;
    ebb::resources::confirm(&mut tx, "c", "bench").await?;
    tx.commit().await?;
    let client = Client { http: reqwest::Client::new(), url: store.url() };
    client.all((0..TABLES).map(|n| format!("CREATE TABLE scratch.{} (x UInt8) ENGINE = Log", name(n)))).await?;
    // All but the ones to be dropped are known and in use.
    let first = name(DROPS);
    bed.database
        .execute(&format!(
            "WITH keeper AS (SELECT ebb.holder_open('keeper', '1 day') AS id)
             SELECT ebb.create_intent('c', 't' || (substr('{first}', 2)::int8 + n), id)
             FROM keeper, generate_series(0, {TABLES} - {DROPS} - 1) n"
        ))
        .await;
    let driver = ClickHouseDriver::open(&url, None, None, None)?;
    let (mut listings, mut sweeps, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let before = resident_mb(std::process::id())?;
    for round in 0..5 {
        let started = Instant::now();
        let mut listed = 0;
        driver.list("t", &mut |_| listed += 1).await?;
        let listing = started.elapsed().as_secs_f64();
        if listed != TABLES {
            return Err(format!("{listed} tables are listed, not {TABLES}").into());
        }
        // Seen, and too young to go: nothing is dropped yet.
        bed.database.execute("UPDATE ebb.sighting SET first_seen = 'infinity', last_seen = 'infinity'").await;
        let swept = bed.sweep("c:sweep").await?;
        println!("resources: listing {:.0} ms, sweep {:.0} ms", listing * 1e3, swept.took.as_secs_f64() * 1e3);
        if round > 0 {
            listings.push(listing);
            sweeps.push(swept.took.as_secs_f64());
            shares.push(listing / swept.took.as_secs_f64());
        }
    }
    let grown = resident_mb(std::process::id())? - before;
    let dropping = drops(bed, &client).await?;
    println!(
        "resources: {TABLES} tables listed in {:.0} ms, swept in {:.0} ms, {grown:.1} MB more",
        median(listings) * 1e3,
        median(sweeps) * 1e3
    );
    Ok(vec![
        Goal::at_least("resources: the listing's share of a sweep over 10,000 ClickHouse tables", median(shares), 0.5),
        Goal::at_most("resources: MB that five such sweeps grew by", grown.max(0.0), 16.0),
        dropping,
    ])
}

/// A thousand tables that nobody refers to, half by Ebb, half by a bare loop, in turns.
async fn drops(bed: &Bed, client: &Client) -> Result<Goal> {
    let mut ratios = Vec::new();
    bed.database.execute("SELECT ebb.holder_open('bench', '1 day')").await;
    for round in 0..4 {
        let some: Vec<String> = (0..DROPS).map(|n| name(TABLES + round * DROPS + n)).collect();
        let (ours, bare) = some.split_at(DROPS / 2);
        client.all(some.iter().map(|name| format!("CREATE TABLE scratch.{name} (x UInt8) ENGINE = Log"))).await?;
        let list = ours.iter().map(|name| format!("('{name}')")).collect::<Vec<_>>().join(", ");
        bed.database
            .execute(&format!("INSERT INTO ebb.resource (policy, name, state) SELECT 'c', name, 'live' FROM (VALUES {list}) AS v (name)"))
            .await;
        let started = Instant::now();
        for name in bare {
            client.send(format!("DROP TABLE scratch.{name}")).await?;
        }
        let by_hand = started.elapsed().as_secs_f64();
        let swept = bed.sweep("c:drop").await?;
        if swept.rows as usize != ours.len() {
            return Err(format!("{} tables were dropped, not {}", swept.rows, ours.len()).into());
        }
        let ours = swept.took.as_secs_f64();
        println!("resources: {} drops in {:.0} ms, by hand {:.0} ms", swept.rows, ours * 1e3, by_hand * 1e3);
        ratios.push(by_hand / ours);
    }
    Ok(Goal::at_least("resources: drops/s over a bare loop of the same DROPs", median(ratios), 0.8))
}

/// What sends statements to ClickHouse.
struct Client {
    http: reqwest::Client,
    url: String,
}

impl Client {
    async fn send(&self, sql: String) -> Result<()> {
        let answer = self.http.post(&self.url).body(sql).send().await?;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(answer.text().await?.into()),
        }
    }

    async fn all(&self, statements: impl Iterator<Item = String>) -> Result<()> {
        stream::iter(statements).map(|sql| self.send(sql)).buffer_unordered(4).try_collect::<Vec<()>>().await?;
        Ok(())
    }
}
