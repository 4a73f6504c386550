//! What scheduling costs beside bare inserts into an equal table: 100,000 events in one call, and one event a transaction
//! on 32 connections while a node sleeps that might have to be woken.

use std::time::{Duration, Instant};

use ebb::spine::{NodeOptions, Shutdown};
use sqlx::{Connection, PgConnection};

use super::bed;
use crate::bed::{Bed, Goal, Result, median};

const EVENTS: i32 = 100_000;
const ROUNDS: usize = 5;
const CONNECTIONS: usize = 32;
const SLICE: Duration = Duration::from_millis(800);
const SLICES: usize = 15;

/// The same rows as the function writes, made beforehand.
const BARE_MANY: &str = "INSERT INTO bench_event (id, sink, due_at, ready_at, created_at, body) \
                         SELECT id, 'noop', due_at, due_at, now(), body FROM unnest($1::uuid[], $2::timestamptz[], $3::text[]) AS e (id, due_at, body)";
const EBB_MANY: &str = "SELECT count(*) FROM ebb.schedule_many($1::jsonb)";
const BARE_ONE: &str = "INSERT INTO bench_event (id, sink, due_at, ready_at, created_at, body) \
                        VALUES (gen_random_uuid(), 'noop', now() + interval '1 day', now() + interval '1 day', now(), $1)";
const EBB_ONE: &str = "SELECT ebb.schedule('noop', now() + interval '1 day', $1::jsonb)";

pub(super) async fn run() -> Result<Vec<Goal>> {
    let (bed, _) = bed().await?;
    bed.database.execute("CREATE TABLE bench_event (LIKE ebb.event INCLUDING ALL) WITH (fillfactor = 50)").await;
    let many = many(&bed).await?;
    let one = one(&bed).await?;
    Ok(vec![
        Goal::at_least("schedule: 100k in one call over a bare insert of the same rows", many, 0.5),
        Goal::at_most("schedule: one event a transaction at 32 connections, time over bare inserts", one, 1.2),
    ])
}

async fn many(bed: &Bed) -> Result<f64> {
    let mut connection = PgConnection::connect(bed.database.socket_url()).await?;
    let events: serde_json::Value = sqlx::query_scalar(
        "SELECT jsonb_agg(jsonb_build_object('sink', 'noop', 'due_at', now() + i * interval '1 second', 'payload', jsonb_build_object('n', i)))
         FROM generate_series(1, $1) AS i",
    )
    .bind(EVENTS)
    .fetch_one(&mut connection)
    .await?;
    let (ids, due, bodies): (Vec<uuid::Uuid>, Vec<String>, Vec<String>) = sqlx::query_as(
        "SELECT array_agg(id), array_agg(due::text), array_agg(ebb.event_body(id, id, due, jsonb_build_object('n', i)))
         FROM (SELECT ebb.event_id() AS id, now() + i * interval '1 second' AS due, i FROM generate_series(1, $1) AS i) AS e",
    )
    .bind(EVENTS)
    .fetch_one(&mut connection)
    .await?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bed.database.execute("TRUNCATE bench_event; TRUNCATE ebb.event").await;
        bed.database.execute("CHECKPOINT").await;
        let begun = Instant::now();
        sqlx::query(BARE_MANY).bind(&ids).bind(&due).bind(&bodies).execute(&mut connection).await?;
        bare.push(begun.elapsed().as_secs_f64());
        let begun = Instant::now();
        sqlx::query(EBB_MANY).bind(&events).fetch_one(&mut connection).await?;
        ours.push(begun.elapsed().as_secs_f64());
    }
    println!("{EVENTS} events in one call: {ours:.2?} s, bare insert {bare:.2?} s");
    Ok(median(bare) / median(ours))
}

async fn one(bed: &Bed) -> Result<f64> {
    bed.database.execute("TRUNCATE bench_event; TRUNCATE ebb.event").await;
    let shutdown = Shutdown::new();
    let options = NodeOptions { only: vec!["events".parse()?], ..NodeOptions::default() };
    let node = tokio::spawn(bed.engine.node(options, shutdown.clone()).run());
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(PgConnection::connect(bed.database.socket_url()).await?);
    }
    let payload = "{\"n\": 1, \"type\": \"birthday\"}".to_owned();
    let body = "SELECT ebb.event_body(ebb.event_id(), ebb.event_id(), ebb.now(), $1::jsonb)";
    let body: String = sqlx::query_scalar(body).bind(&payload).fetch_one(&mut connections[0]).await?;
    let (mut pairs, mut rates) = (Vec::new(), Vec::new());
    // The first pair warms caches and plans and does not count.
    for round in 0..=SLICES {
        let mut pair = [0.0; 2];
        for turn in 0..2 {
            let side = (round + turn) % 2;
            let (sql, given) = if side == 0 { (BARE_ONE, &body) } else { (EBB_ONE, &payload) };
            pair[side] = slice(sql, given, &mut connections).await?;
        }
        if round > 0 {
            pairs.push(pair[0] / pair[1]);
            rates.push(pair);
        }
    }
    shutdown.stop();
    node.await??;
    let middle = |side: usize| median(rates.iter().map(|pair| pair[side]).collect());
    println!(
        "one event a transaction at {CONNECTIONS} connections: {:.0}/s, bare inserts {:.0}/s",
        middle(1),
        middle(0)
    );
    Ok(median(pairs))
}

/// Transactions a second of all connections together.
async fn slice(sql: &'static str, given: &str, connections: &mut Vec<PgConnection>) -> Result<f64> {
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for mut connection in connections.drain(..) {
        let given = given.to_owned();
        tasks.spawn(async move {
            let mut written = 0_u64;
            while begun.elapsed() < SLICE {
                sqlx::query(sql).bind(&given).execute(&mut connection).await?;
                written += 1;
            }
            Ok::<_, sqlx::Error>((connection, written))
        });
    }
    let mut total = 0;
    while let Some(task) = tasks.join_next().await {
        let (connection, written) = task??;
        connections.push(connection);
        total += written;
    }
    Ok(total as f64 / begun.elapsed().as_secs_f64())
}
