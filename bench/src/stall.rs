//! How long inserts wait beside something, and for what. A number alone cannot be mended: each long wait is put beside
//! the step that was running, and beside what the server said that the insert was waiting for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebb::partition::adopt::Progress;
use sqlx::postgres::PgPool;

use crate::bed::{Bed, Result};

const CLIENTS: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What was running when, as told by whoever does it.
#[derive(Clone, Default)]
pub(crate) struct Steps(Arc<Mutex<Vec<(Instant, String)>>>);

impl Steps {
    /// Writes down what an adoption, a split or a rollback says about itself.
    pub(crate) fn watch(&self) -> impl FnMut(Progress) + Send + 'static {
        let steps = self.clone();
        move |progress| match progress {
            Progress::Step(n, of, title) => steps.add(format!("step {n}/{of}: {title}")),
            Progress::Waiting(who) => steps.add(format!("gave way: {who}")),
            Progress::Share(..) => {}
        }
    }

    pub(crate) fn add(&self, what: String) {
        self.0.lock().expect("nobody panics while holding it").push((Instant::now(), what));
    }

    /// How long each of them took, where nobody looked at inserts.
    pub(crate) fn times(&self) -> String {
        let lines = by_step(&self.list(), &[]).into_iter();
        lines.map(|(step, seconds, _)| format!("    {seconds:>7.2} s  {step}")).collect::<Vec<_>>().join("\n")
    }

    fn list(&self) -> Vec<(Instant, String)> {
        self.0.lock().expect("nobody panics while holding it").clone()
    }
}

/// One insert.
#[derive(Clone, Copy)]
struct Wait {
    began: Instant,
    took: Duration,
}

/// What came of it.
pub(crate) struct Beside {
    /// How long the work took, in seconds.
    pub(crate) took: f64,
    /// The longest insert, in milliseconds.
    pub(crate) longest: f64,
    /// What ninety-nine of a hundred stayed below, in milliseconds.
    pub(crate) p99: f64,
    /// How many there were, a second.
    inserts: f64,
    why: String,
    by_step: Vec<(String, f64, f64)>,
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { longest, p99, inserts, why, .. } = self;
        write!(f, "{inserts:.0} inserts/s, p99 {p99:.1} ms, longest {longest:.0} ms: {why}")?;
        for (step, seconds, longest) in &self.by_step {
            write!(f, "\n    {seconds:>7.2} s, longest insert {longest:>4.0} ms  {step}")?;
        }
        Ok(())
    }
}

/// Runs something beside four clients that insert one row after the other.
pub(crate) async fn beside<T>(bed: &Bed, steps: &Steps, work: impl Future<Output = Result<T>>) -> Result<Beside> {
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..CLIENTS).map(|_| client(bed.database.pool().clone(), over.clone())).collect();
    let looks = looks(bed.database.pool().clone(), over.clone());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    steps.add("before its first step".into());
    let worked = work.await;
    let took = began.elapsed().as_secs_f64();
    steps.add("after its last step".into());
    tokio::time::sleep(Duration::from_millis(500)).await;
    over.store(true, Ordering::Relaxed);
    let mut waits = Vec::new();
    for client in clients {
        waits.extend(client.await?);
    }
    let during = began.elapsed().as_secs_f64();
    let seen = looks.await??;
    worked?;
    let longest = waits.iter().copied().max_by_key(|wait| wait.took);
    let why = longest.map_or_else(|| "none took long".to_owned(), |wait| explain(wait, began, &steps.list(), &seen));
    let mut all: Vec<Duration> = waits.iter().map(|wait| wait.took).collect();
    all.sort();
    let p99 = all.get(all.len() * 99 / 100).copied().unwrap_or_default();
    Ok(Beside {
        took,
        longest: longest.map_or(0.0, |wait| wait.took.as_secs_f64() * 1000.0),
        p99: p99.as_secs_f64() * 1000.0,
        inserts: all.len() as f64 / during,
        why,
        by_step: by_step(&steps.list(), &waits),
    })
}

/// A client, and all of its inserts.
fn client(pool: PgPool, over: Arc<AtomicBool>) -> tokio::task::JoinHandle<Vec<Wait>> {
    tokio::spawn(async move {
        let (mut waits, mut n) = (Vec::new(), 0_u64);
        let sql = "INSERT INTO t (key, created_at, payload) VALUES (md5(random()::text || $1::text), now(), 'live')";
        while !over.load(Ordering::Relaxed) {
            n += 1;
            let began = Instant::now();
            if let Err(error) = sqlx::query(sql).bind(n.to_string()).execute(&pool).await {
                eprintln!("an insert failed: {error}");
            }
            waits.push(Wait { began, took: began.elapsed() });
        }
        waits
    })
}

/// Looks at what inserts wait for, again and again.
fn looks(pool: PgPool, over: Arc<AtomicBool>) -> tokio::task::JoinHandle<sqlx::Result<Vec<(Instant, String)>>> {
    tokio::spawn(async move {
        let mut seen = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let waits: Vec<String> = sqlx::query_scalar(
                "SELECT COALESCE(a.wait_event_type || ' ' || a.wait_event, 'the processor')
                     || COALESCE(' behind ' || (SELECT left(b.query, 60) FROM pg_stat_activity b WHERE b.pid = ANY (pg_blocking_pids(a.pid)) LIMIT 1), '')
                     || COALESCE(' while an index is built, which waits for ' || (SELECT COALESCE(b.wait_event, 'the processor') FROM pg_stat_activity b
                            WHERE b.state = 'active' AND b.query LIKE 'CREATE%INDEX CONCURRENTLY%' AND b.backend_type = 'client backend' LIMIT 1), '')
                 FROM pg_stat_activity a
                 WHERE a.state = 'active' AND a.query LIKE 'INSERT INTO t (key%' AND clock_timestamp() - a.query_start > interval '20 milliseconds'",
            )
            .fetch_all(&pool)
            .await?;
            seen.extend(waits.into_iter().map(|what| (Instant::now(), what)));
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(seen)
    })
}

/// During which step an insert waited, and for what.
fn explain(wait: Wait, start: Instant, steps: &[(Instant, String)], seen: &[(Instant, String)]) -> String {
    let end = wait.began + wait.took;
    let first = steps.iter().rposition(|(at, _)| *at <= wait.began).unwrap_or(0);
    let during: Vec<&str> =
        steps[first..].iter().take_while(|(at, _)| *at < end).map(|(_, step)| step.as_str()).collect();
    let mut times = BTreeMap::<&str, usize>::new();
    for (_, what) in seen.iter().filter(|(at, _)| *at >= wait.began && *at <= end) {
        *times.entry(what).or_default() += 1;
    }
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    let on: Vec<String> = times.iter().take(4).map(|(what, times)| format!("{what} ({times} looks)")).collect();
    format!(
        "begun {:.2} s after the start, during {}; long inserts waited for {}",
        wait.began.saturating_duration_since(start).as_secs_f64(),
        if during.is_empty() { "nothing yet".to_owned() } else { during.join(", then ") },
        if on.is_empty() { "nothing that was seen".to_owned() } else { on.join(", ") }
    )
}

/// How long each step took, and the longest insert that met it.
fn by_step(steps: &[(Instant, String)], waits: &[Wait]) -> Vec<(String, f64, f64)> {
    let ends = steps.iter().skip(1).map(|(at, _)| *at).chain([Instant::now()]);
    let met = steps.iter().zip(ends).map(|((from, step), to)| {
        let longest = waits.iter().filter(|wait| wait.began < to && wait.began + wait.took > *from);
        let longest = longest.map(|wait| wait.took.as_secs_f64() * 1000.0).fold(0.0, f64::max);
        (step.clone(), (to - *from).as_secs_f64(), longest)
    });
    met.collect()
}
