//! What HTTP adds: claims beside the same statement from a driver on as many connections, and how long the two answers take that
//! machines and people ask for most, `/metrics` and the overview, on a database that is full. `EBB_BENCH_ROWS` sets how
//! many events there are (10M), and everything else in proportion.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ebb::token::{self, Credential, Role};
use ebb_testkit::Node;
use sqlx::{Connection, PgConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::bed::{Bed, Goal, Result, median};
use crate::once::mix;

/// As many on either side.
const CONNECTIONS: usize = 8;
const SLICE: Duration = Duration::from_millis(400);
const ROUNDS: usize = 21;
const BATCH_KEYS: u64 = 1_000;
const POLICIES: u64 = 1_000;
const EVENTS: u64 = 10_000_000;
/// Answers that a median is taken of.
const LOOKS: usize = 20;

pub(crate) async fn run(part: &str) -> Result<Vec<Goal>> {
    let wants = |name: &str| ["all", "http", name].contains(&part);
    let mut goals = Vec::new();
    if wants("http-once") {
        goals.extend(claims().await?);
    }
    if wants("http-pages") {
        goals.extend(pages().await?);
    }
    Ok(goals)
}

/// A node over a bed, somebody who may do everything, and where to ask.
struct Site {
    bed: Bed,
    address: String,
    token: String,
    _node: Node,
}

impl Site {
    async fn new(bed: Bed) -> Result<Self> {
        let mut tx = bed.engine.database().read().await?;
        let token = token::create(&mut tx, "bench", Role::Admin, None, "bench").await?.token;
        tx.commit().await?;
        let config = "[http]\nlisten = \"127.0.0.1:0\"\nrate_limit = \"1000000/s\"\n";
        let mut node = Node::spawn(&binary()?, bed.database.socket_url(), config, &["run"]);
        let line = node.wait_for_line("Ebb is up", Duration::from_secs(60)).await;
        let up: serde_json::Value = serde_json::from_str(&line)?;
        let address = up["http"].as_str().ok_or("the node does not say where it listens")?.to_owned();
        Ok(Self { bed, address, token, _node: node })
    }
}

/// A release bench measures a release node, and one that is only tried a node that is only tried.
fn binary() -> Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name("ebb");
    if Path::new(&binary).exists() { Ok(binary) } else { Err("build the node first: cargo build -p ebb-cli".into()) }
}

/// One side of a comparison: a connection, to the database or to whoever answers HTTP.
enum Side {
    Driver(PgConnection),
    Http(Client),
}

async fn claims() -> Result<Vec<Goal>> {
    let site = Site::new(Bed::new().await?).await?;
    let url = site.bed.database.socket_url();
    let bare = bare(url)?;
    let (mut drivers, mut clients, mut bares) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        drivers.push(Side::Driver(PgConnection::connect(url).await?));
        clients.push(Side::Http(Client::connect(&site.address, &site.token).await?));
        bares.push(Side::Http(Client::connect(&bare, &site.token).await?));
    }
    let mut sides = [drivers, clients, bares];
    let mut goals = Vec::new();
    let mut seed = 1;
    for (name, keys, least) in [("POST /v1/once", 1, 0.6), ("a batch of 1,000", BATCH_KEYS, 0.8)] {
        let mut rounds = Vec::new();
        for round in 0..=ROUNDS {
            let mut rates = [0.0; 3];
            for turn in 0..3 {
                let side = (round + turn) % 3;
                rates[side] = slice(&mut sides[side], keys, seed).await?;
                seed += CONNECTIONS as u64;
            }
            // The first round warms plans and caches.
            if round > 0 {
                rounds.push(rates);
            }
        }
        let middle = |of: &dyn Fn(&[f64; 3]) -> f64| median(rounds.iter().map(of).collect());
        println!(
            "http {name}: {:.0} claims/s of {:.0} from a driver, {:.0} by a bare handler",
            middle(&|rates| rates[1]),
            middle(&|rates| rates[0]),
            middle(&|rates| rates[2])
        );
        let ratio = middle(&|[driver, http, _]| http / driver);
        goals.push(Goal::at_least(format!("http: {name}, claims/s over the same from a driver"), ratio, least));
        let floor = middle(&|[driver, _, bare]| bare / driver);
        goals.push(Goal::beside(format!("http: {name}, by a bare handler of the same statement"), floor));
    }
    Ok(goals)
}

/// What HTTP costs by itself: handlers that read the key, run the very same statement, prepared, on a pool, and answer. No token,
/// no limit, no bounds, no record. It has a runtime of its own, as a node has.
fn bare(url: &str) -> Result<String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?.to_string();
    let url = url.to_owned();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let pool = sqlx::postgres::PgPoolOptions::new()
                .max_connections(16)
                .test_before_acquire(false)
                .connect(&url)
                .await
                .expect("the bench's own server is up");
            let app = axum::Router::new()
                .route("/v1/once/bench", axum::routing::post(bare_claim))
                .route("/v1/once/bench/batch", axum::routing::post(bare_batch))
                .with_state(pool);
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            use axum::serve::ListenerExt;
            let listener = listener.tap_io(|stream| {
                let _ = stream.set_nodelay(true);
            });
            let _ = axum::serve(listener, app).await;
        });
    });
    Ok(address)
}

type BareAnswer = std::result::Result<(axum::http::StatusCode, axum::Json<serde_json::Value>), axum::http::StatusCode>;

async fn bare_claim(
    axum::extract::State(pool): axum::extract::State<sqlx::PgPool>,
    axum::Json(asked): axum::Json<serde_json::Value>,
) -> BareAnswer {
    let key = asked["key"].as_str().ok_or(axum::http::StatusCode::BAD_REQUEST)?;
    let claimed = sqlx::query_scalar::<_, String>("SELECT ebb.once('bench', $1)").bind(key).fetch_one(&pool).await;
    let outcome = claimed.map_err(|_| axum::http::StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok((axum::http::StatusCode::CREATED, axum::Json(serde_json::json!({ "outcome": outcome }))))
}

async fn bare_batch(
    axum::extract::State(pool): axum::extract::State<sqlx::PgPool>,
    axum::Json(asked): axum::Json<serde_json::Value>,
) -> BareAnswer {
    let keys = asked["keys"].as_array().ok_or(axum::http::StatusCode::BAD_REQUEST)?;
    let keys: Vec<&str> = keys.iter().filter_map(serde_json::Value::as_str).collect();
    let claimed = sqlx::query_scalar::<_, String>("SELECT ebb.once_many('bench', $1)").bind(keys).fetch_all(&pool);
    let first = claimed.await.map_err(|_| axum::http::StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok((axum::http::StatusCode::OK, axum::Json(serde_json::json!({ "first": first }))))
}

/// Claims a second of all connections of one side together.
async fn slice(connections: &mut Vec<Side>, keys: u64, seed: u64) -> Result<f64> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for (index, side) in connections.drain(..).enumerate() {
        tasks.spawn(work(side, keys, (seed + index as u64) << 32, began + SLICE));
    }
    let mut total = 0;
    while let Some(task) = tasks.join_next().await {
        let (side, claimed) = task??;
        connections.push(side);
        total += claimed;
    }
    Ok(total as f64 / began.elapsed().as_secs_f64())
}

async fn work(mut side: Side, keys: u64, first: u64, until: Instant) -> Result<(Side, u64)> {
    let (mut number, mut claimed) = (first, 0);
    while Instant::now() < until {
        let batch: Vec<String> = (1..=keys).map(|n| format!("{:016x}", mix(number + n))).collect();
        number += keys;
        claimed += keys;
        match &mut side {
            Side::Driver(connection) if keys == 1 => {
                sqlx::query("SELECT ebb.once('bench', $1)").bind(&batch[0]).execute(connection).await?;
            }
            Side::Driver(connection) => {
                sqlx::query("SELECT ebb.once_many('bench', $1)").bind(batch).execute(connection).await?;
            }
            Side::Http(client) if keys == 1 => {
                client.post("/v1/once/bench", format!("{{\"key\":\"{}\"}}", batch[0]), 201).await?;
            }
            Side::Http(client) => {
                let body = serde_json::json!({ "keys": batch }).to_string();
                client.post("/v1/once/bench/batch", body, 200).await?;
            }
        }
    }
    Ok((side, claimed))
}

/// A connection that speaks just enough HTTP, so that the client costs as little as the driver does.
struct Client {
    stream: TcpStream,
    head: String,
    answer: Vec<u8>,
}

impl Client {
    async fn connect(address: &str, token: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let head = format!("Host: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n");
        Ok(Self { stream, head, answer: Vec::new() })
    }

    async fn post(&mut self, path: &str, body: String, expected: u16) -> Result<()> {
        let request = format!("POST {path} HTTP/1.1\r\n{}Content-Length: {}\r\n\r\n{body}", self.head, body.len());
        self.stream.write_all(request.as_bytes()).await?;
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err("the node hung up".into());
            }
            let Some(end) = self.answer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&self.answer[..end]).to_ascii_lowercase();
            let status: u16 = head.split(' ').nth(1).ok_or("no status")?.parse()?;
            if status != expected {
                return Err(format!("{path} was answered {}", String::from_utf8_lossy(&self.answer)).into());
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.ok_or("no content-length")?.trim().parse()?;
            if self.answer.len() >= end + 4 + length {
                return Ok(());
            }
        }
    }
}

async fn pages() -> Result<Vec<Goal>> {
    let events: u64 = std::env::var("EBB_BENCH_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(EVENTS);
    let policies = (POLICIES * events / EVENTS).clamp(10, POLICIES);
    let bed = Bed::new().await?;
    fill(&bed, events, policies).await?;
    let site = Site::new(bed).await?;
    let database = &site.bed.database;
    // Every policy has run, so that its series are there; then a look of the node, which keeps the figures.
    wait(
        database,
        &format!("SELECT count(*) >= {policies} FROM ebb.run WHERE chore = 'expire' AND status = 'success'"),
    )
    .await?;
    wait(database, "SELECT EXISTS (SELECT FROM ebb.sample WHERE metric = 'events_due') AND EXISTS (SELECT FROM ebb.sample WHERE metric = 'records_pending')").await?;
    let credential = Credential::token(&site.token).ok_or("the token is one")?;
    let session = token::open_session(site.bed.engine.database(), &credential, Duration::from_secs(3600)).await?;
    let cookie = format!("ebb_session={}", session.ok_or("the token opens a session")?);
    let (metrics, lines) = timed(&site, "/metrics", "").await?;
    let (overview, bytes) = timed(&site, "/", &cookie).await?;
    println!(
        "http pages: {policies} policies, {lines} bytes of metrics; {events} events, an overview of {bytes} bytes in {overview:.1} ms"
    );
    Ok(vec![
        Goal::at_most(format!("http: /metrics with {policies} policies, ms"), metrics, 5.0),
        Goal::at_most(format!("http: overview with {events} events, ms"), overview, 100.0),
    ])
}

/// The median of some answers, in milliseconds, and how long one is.
async fn timed(site: &Site, path: &str, cookie: &str) -> Result<(f64, usize)> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::new();
    let (mut took, mut length) = (Vec::new(), 0);
    for _ in 0..=LOOKS {
        let began = Instant::now();
        let request = client.get(format!("http://{}{path}", site.address)).header("cookie", cookie);
        let answer = request.send().await?.error_for_status()?;
        length = answer.bytes().await?.len();
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    took.remove(0);
    Ok((median(took), length))
}

async fn wait(database: &ebb_testkit::TestDatabase, condition: &str) -> Result<()> {
    let began = Instant::now();
    while !database.scalar::<bool>(condition).await {
        if began.elapsed() > Duration::from_secs(600) {
            return Err(format!("this did not become true: {condition}").into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Events, deletions, partitions and policies as of an installation that has been busy for long.
async fn fill(bed: &Bed, events: u64, policies: u64) -> Result<()> {
    let mut config = String::from(
        "[sinks.ops]\ntype = \"log\"\n[[retain]]\nname = \"users\"\ntable = \"public.users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n\
         [[partition]]\nname = \"ingest\"\ntable = \"public.ingest\"\ncolumn = \"at\"\nby = \"day\"\nahead = 10\n",
    );
    let mut tables = String::from(
        "CREATE TABLE public.users (id bigint PRIMARY KEY, deleted_at timestamptz);
         CREATE INDEX ON public.users (deleted_at);
         CREATE TABLE public.ingest (id bigint, at timestamptz NOT NULL) PARTITION BY RANGE (at);",
    );
    for n in 0..policies {
        config.push_str(&format!("[[expire]]\nname = \"p{n}\"\ntable = \"public.t{n}\"\ncolumn = \"expires_at\"\n"));
        tables.push_str(&format!(
            "CREATE TABLE public.t{n} (expires_at timestamptz); CREATE INDEX ON public.t{n} (expires_at);
             CREATE TABLE public.ingest_{n} PARTITION OF public.ingest
                 FOR VALUES FROM (date_trunc('day', now(), 'UTC') - {n} * interval '1 day')
                 TO (date_trunc('day', now(), 'UTC') - ({n} - 1) * interval '1 day');"
        ));
    }
    bed.database.execute(&tables).await;
    bed.apply(&config).await?;
    let (half, deletions) = (events / 2, events / 10);
    bed.database
        .execute(&format!(
            "SELECT ebb.event_history_extend(now() - interval '2 days', 10);
             INSERT INTO ebb.event (id, sink, due_at, ready_at, created_at, body)
             SELECT gen_random_uuid(), 'ops', t, t, now(), '{{\"data\":{{\"n\":' || n || '}}}}'
             FROM generate_series(1, {half}) AS n, LATERAL (SELECT now() + interval '1 day' + n * interval '7 days' / {half} AS t) AS at;
             INSERT INTO ebb.event_history (id, sink, state, due_at, finished_at, token, attempts, created_at, body)
             SELECT gen_random_uuid(), 'ops', CASE WHEN n % 1000 = 0 THEN 'dead' ELSE 'done' END, t, t, 1, 1, t, '{{}}'
             FROM generate_series(1, {half}) AS n, LATERAL (SELECT now() - n * interval '2 days' / {half} AS t) AS at;
             INSERT INTO ebb.deletion (policy, subject_id, state, deleted_at, due_at, closed_at)
             SELECT 'users', CASE WHEN n % 5 = 0 THEN n::text END, CASE WHEN n % 5 = 0 THEN 'pending' ELSE 'erased' END,
                    now() - interval '30 days', now() + interval '60 days', CASE WHEN n % 5 > 0 THEN now() END
             FROM generate_series(1, {deletions}) AS n;
             INSERT INTO ebb.pause (name, paused_by) VALUES ('users', 'bench'), ('ingest', 'bench')"
        ))
        .await;
    for table in ["ebb.event", "ebb.event_history", "ebb.deletion"] {
        bed.database.execute(&format!("VACUUM (ANALYZE) {table}")).await;
    }
    Ok(())
}
