//! What a claim costs beside the statement a team would write by hand. Both sides are prepared, run on the same eight
//! connections in slices that take turns, and write to tables with equal columns and indexes; the ratio is the median
//! over pairs of neighbouring slices, so that a machine that is busy for a while is busy for both.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// Whatever went wrong ends the benchmark.
type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// As many as the targets name.
const CONNECTIONS: usize = 8;
const SLICE: Duration = Duration::from_millis(400);
const ROUNDS: usize = 31;
const BATCH_KEYS: usize = 1_000;
const KNOWN_KEYS: u64 = 10_000;

/// One comparison: what is measured, both statements, the least ratio, and the keys they get.
struct Case {
    name: &'static str,
    bare: &'static str,
    ebb: &'static str,
    least: f64,
    keys: Keys,
}

#[derive(Clone, Copy)]
enum Keys {
    Fresh,
    Known,
    FreshBatch,
}

/// What was measured for one case.
#[derive(Debug, Clone)]
pub(crate) struct Ratio {
    /// first, duplicate or many.
    pub(crate) name: &'static str,
    /// Claims a second through Ebb, over those of the bare statement.
    pub(crate) ratio: f64,
    /// What it has to be.
    pub(crate) least: f64,
    /// Claims a second, bare and through Ebb.
    pub(crate) per_second: (f64, f64),
}

/// Measures first claims, duplicates and batches on a server of its own with durable settings (a claim that may be lost
/// is none), and prints the three ratios.
pub(crate) async fn run() -> Result<Vec<Ratio>> {
    let server = ebb_testkit::own_server();
    server.set("fsync = on\nfull_page_writes = on\nsynchronous_commit = on");
    server.restart(ebb_testkit::Mode::Fast);
    let database = ebb_testkit::empty_database_on(&server).await;
    ebb::pg::migrate(&database.open()).await?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(PgConnection::connect(database.socket_url()).await?);
    }
    prepare(&mut connections[0]).await?;
    let (fsync, synchronous): (String, String) =
        sqlx::query_as("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
            .fetch_one(&mut connections[0])
            .await?;
    println!("once: {CONNECTIONS} connections, {ROUNDS} rounds, fsync {fsync}, synchronous_commit {synchronous}");
    let mut ratios = Vec::new();
    let mut seed = 1;
    for case in cases() {
        let ratio = compare(&case, &mut connections, &mut seed).await?;
        println!(
            "once {:<10} {:>9.0}/s of {:>9.0}/s bare: {:.2} (at least {:.2})",
            ratio.name, ratio.per_second.1, ratio.per_second.0, ratio.ratio, ratio.least
        );
        ratios.push(ratio);
    }
    Ok(ratios)
}

fn cases() -> Vec<Case> {
    let bare = "INSERT INTO bench_once_bare (namespace, key, expires_at) \
                VALUES ('bench', $1, clock_timestamp() + interval '24 hours') ON CONFLICT DO NOTHING";
    let bare_many = "INSERT INTO bench_once_bare (namespace, key, expires_at) \
                     SELECT 'bench', key, clock_timestamp() + interval '24 hours' FROM unnest($1::text[]) AS k (key)";
    let (one, many) = ("SELECT ebb.once('bench', $1)", "SELECT ebb.once_many('bench', $1)");
    vec![
        Case { name: "first", bare, ebb: one, least: 0.8, keys: Keys::Fresh },
        Case { name: "duplicate", bare, ebb: one, least: 0.5, keys: Keys::Known },
        Case { name: "many", bare: bare_many, ebb: many, least: 0.6, keys: Keys::FreshBatch },
    ]
}

async fn prepare(connection: &mut PgConnection) -> Result<()> {
    connection
        .execute(AssertSqlSafe(format!(
            "DROP TABLE IF EXISTS bench_once_bare;
             CREATE TABLE bench_once_bare (LIKE ebb.once_key INCLUDING ALL);
             INSERT INTO bench_once_bare (namespace, key, expires_at)
                 SELECT 'bench', 'known-' || n, clock_timestamp() + interval '24 hours' FROM generate_series(1, {KNOWN_KEYS}) n;
             INSERT INTO ebb.once_key (namespace, key, expires_at)
                 SELECT 'bench', 'known-' || n, clock_timestamp() + interval '24 hours' FROM generate_series(1, {KNOWN_KEYS}) n"
        )))
        .await?;
    connection.execute("VACUUM ANALYZE ebb.once_key").await?;
    connection.execute("VACUUM ANALYZE bench_once_bare").await?;
    Ok(())
}

async fn compare(case: &Case, connections: &mut Vec<PgConnection>, seed: &mut u64) -> Result<Ratio> {
    // The first round warms caches and plans and does not count.
    let mut pairs = Vec::new();
    for round in 0..=ROUNDS {
        let mut rates = [0.0; 2];
        for turn in 0..2 {
            let side = (round + turn) % 2;
            let sql = if side == 0 { case.bare } else { case.ebb };
            rates[side] = slice(sql, case.keys, connections, *seed).await?;
            *seed += CONNECTIONS as u64;
        }
        if round > 0 {
            pairs.push((rates[0], rates[1]));
        }
    }
    Ok(Ratio {
        name: case.name,
        ratio: median(pairs.iter().map(|(bare, ebb)| ebb / bare).collect()),
        least: case.least,
        per_second: (
            median(pairs.iter().map(|pair| pair.0).collect()),
            median(pairs.iter().map(|pair| pair.1).collect()),
        ),
    })
}

/// Claims a second of all connections together, over one slice.
async fn slice(sql: &'static str, keys: Keys, connections: &mut Vec<PgConnection>, seed: u64) -> Result<f64> {
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (index, connection) in connections.drain(..).enumerate() {
        tasks.spawn(claims(connection, sql, keys, (seed + index as u64) << 32, started + SLICE));
    }
    let mut total = 0;
    while let Some(task) = tasks.join_next().await {
        let (connection, claimed) = task??;
        connections.push(connection);
        total += claimed;
    }
    Ok(total as f64 / started.elapsed().as_secs_f64())
}

async fn claims(
    mut connection: PgConnection,
    sql: &'static str,
    keys: Keys,
    first: u64,
    until: Instant,
) -> Result<(PgConnection, u64)> {
    let (mut number, mut claimed) = (first, 0);
    while Instant::now() < until {
        let query = sqlx::query(sql);
        match keys {
            Keys::Fresh => {
                number += 1;
                query.bind(format!("{:016x}", mix(number))).execute(&mut connection).await?;
                claimed += 1;
            }
            Keys::Known => {
                number += 1;
                query.bind(format!("known-{}", mix(number) % KNOWN_KEYS + 1)).execute(&mut connection).await?;
                claimed += 1;
            }
            Keys::FreshBatch => {
                let batch: Vec<_> = (1..=BATCH_KEYS as u64).map(|n| format!("{:016x}", mix(number + n))).collect();
                number += BATCH_KEYS as u64;
                query.bind(batch).execute(&mut connection).await?;
                claimed += BATCH_KEYS as u64;
            }
        }
    }
    Ok((connection, claimed))
}

/// Splitmix64: different numbers stay different, and their keys come in no order.
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
