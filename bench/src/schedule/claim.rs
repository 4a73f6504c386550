//! What a look costs that finds nothing: the statements of a claim, as a node sends them, on an empty table, beside a
//! million future rows, after a backlog was drained, and under a snapshot that keeps its dead rows.

use std::time::Instant;

use sqlx::{Connection, Executor, PgConnection};

use super::{bed, drain, schedule};
use crate::bed::{Goal, Result, median};

const CLAIM: &str = include_str!("../../../crates/ebb/src/schedule/sql/claim.sql");
const LOOKS: usize = 200;
/// A backlog of a day: so many events, so far apart.
const BACKLOG: u64 = 200_000;
const APART: &str = "400 milliseconds";
/// Where a node's claims begin while it drains: after the newest of its last claim.
const LAST_CLAIM: &str = "ebb.now() - interval '1 day' + 200000 * interval '400 milliseconds'";
/// Where they begin once a second, to find what was written late.
const BOTTOM: &str = "'epoch'::timestamptz";

pub(super) async fn run() -> Result<Vec<Goal>> {
    let (bed, _) = bed().await?;
    let empty = ebb_testkit::empty_database_on(&bed.server).await;
    ebb::pg::migrate(&empty.open()).await?;
    let mut pair =
        (PgConnection::connect(empty.socket_url()).await?, PgConnection::connect(bed.database.socket_url()).await?);

    schedule(&bed, "noop", 1_000_000, "30 days", "1 second").await;
    let future = ratio("beside 1M future rows", BOTTOM, &mut pair).await?;
    schedule(&bed, "noop", BACKLOG, "-1 day", APART).await;
    drain(&bed, BACKLOG).await?;
    let drained = ratio("after 200k were drained", LAST_CLAIM, &mut pair).await?;
    ratio("after 200k were drained, from the bottom", BOTTOM, &mut pair).await?;

    schedule(&bed, "noop", BACKLOG, "-1 day", APART).await;
    let mut old = PgConnection::connect(bed.database.socket_url()).await?;
    old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    old.execute("SELECT count(*) FROM ebb.event").await?;
    drain(&bed, BACKLOG).await?;
    let held = ratio("the same under an old snapshot", LAST_CLAIM, &mut pair).await?;
    ratio("the same under an old snapshot, from the bottom", BOTTOM, &mut pair).await?;
    old.execute("ROLLBACK").await?;
    Ok(vec![
        Goal::at_most("schedule: empty claim beside 1M future rows over empty table", future, 2.0),
        Goal::at_most("schedule: empty claim after 200k were drained, over empty table", drained, 2.0),
        Goal::at_most("schedule: the same with an old snapshot open", held, 2.0),
    ])
}

/// What a claim that finds nothing costs over one on an empty table: in turns, the median of all pairs.
async fn ratio(what: &str, floor: &'static str, (empty, full): &mut (PgConnection, PgConnection)) -> Result<f64> {
    let floor: String =
        sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT ({floor})::text"))).fetch_one(&mut *full).await?;
    let (mut plain, mut times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..LOOKS {
        let (one, other) = (look(empty, &floor).await?, look(full, &floor).await?);
        plain.push(one);
        times.push(other);
        ratios.push(other / one);
    }
    let ratio = median(ratios);
    println!("empty claim {what}: {:.3} ms, on an empty table {:.3} ms: {ratio:.2}", median(times), median(plain));
    Ok(ratio)
}

/// The time of one claim that finds nothing, in milliseconds.
async fn look(connection: &mut PgConnection, floor: &str) -> Result<f64> {
    let begun = Instant::now();
    let mut tx = connection.begin().await?;
    tx.execute(sqlx::raw_sql("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off"))
        .await?;
    let found = sqlx::query(CLAIM)
        .persistent(false)
        .bind(vec!["noop"])
        .bind(vec![128_i32])
        .bind(vec![0_i32])
        .bind(vec![floor])
        .bind(vec![uuid::Uuid::nil()])
        .bind(vec!["60 seconds"])
        .bind(vec![4_i32])
        .bind("bench")
        .fetch_all(&mut *tx)
        .await?;
    tx.commit().await?;
    match found.is_empty() {
        true => Ok(begun.elapsed().as_secs_f64() * 1_000.0),
        false => Err("an event was due".into()),
    }
}
