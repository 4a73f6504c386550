//! What a look costs that finds nothing: the statements of a claim, as a node sends them, on an empty table, beside a
//! million future rows, after a backlog was drained, and under a snapshot that keeps its dead rows.

use std::time::Instant;

use sqlx::{Connection, Executor, PgConnection};

use super::{bed, drain, schedule};
use crate::bed::{Bed, Goal, Result, median};

const CLAIM: &str = include_str!("../../../crates/ebb/src/schedule/sql/claim.sql");
const LOOKS: usize = 200;

/// Where a node looks from: everything, or what lies above its last claim.
#[derive(Clone, Copy)]
enum Floor {
    Bottom,
    LastClaim,
}

pub(super) async fn run() -> Result<Vec<Goal>> {
    let (bed, _) = bed().await?;
    let empty = look(&bed, Floor::Bottom).await?;
    schedule(&bed, "noop", 1_000_000, "30 days", "1 second").await;
    let future = look(&bed, Floor::Bottom).await?;
    schedule(&bed, "noop", 200_000, "-1 day", "400 milliseconds").await;
    drain(&bed, 200_000).await?;
    let drained = look(&bed, Floor::LastClaim).await?;
    let drained_bottom = look(&bed, Floor::Bottom).await?;

    schedule(&bed, "noop", 200_000, "-1 day", "400 milliseconds").await;
    let mut old = PgConnection::connect(bed.database.socket_url()).await?;
    old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    old.execute("SELECT count(*) FROM ebb.event").await?;
    drain(&bed, 200_000).await?;
    let held = look(&bed, Floor::LastClaim).await?;
    let held_bottom = look(&bed, Floor::Bottom).await?;
    old.execute("ROLLBACK").await?;
    println!(
        "empty claim, ms: empty table {empty:.3}, 1M future {future:.3}, 200k drained {drained:.3} (from the bottom {drained_bottom:.3}), \
         with an old snapshot {held:.3} (from the bottom {held_bottom:.3})"
    );
    Ok(vec![
        Goal::at_most("schedule: empty claim beside 1M future rows over empty table", future / empty, 2.0),
        Goal::at_most("schedule: empty claim after 200k were drained, over empty table", drained / empty, 2.0),
        Goal::at_most("schedule: the same with an old snapshot open", held / empty, 2.0),
    ])
}

/// The median time of a claim that finds nothing, in milliseconds.
async fn look(bed: &Bed, floor: Floor) -> Result<f64> {
    let mut connection = PgConnection::connect(bed.database.socket_url()).await?;
    let floor = match floor {
        Floor::Bottom => "'epoch'::timestamptz",
        // What the node's last claim began with: its batch is at most 2,000 of the events that lie 400 ms apart.
        Floor::LastClaim => "ebb.now() - interval '2000 seconds'",
    };
    let floor: String =
        sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT ({floor})::text"))).fetch_one(&mut connection).await?;
    let mut times = Vec::new();
    for _ in 0..LOOKS {
        let begun = Instant::now();
        let mut tx = connection.begin().await?;
        tx.execute(sqlx::raw_sql(
            "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off",
        ))
        .await?;
        let found = sqlx::query(CLAIM)
            .persistent(false)
            .bind(vec!["noop"])
            .bind(vec![128_i32])
            .bind(vec![0_i32])
            .bind(vec![floor.clone()])
            .bind(vec!["60 seconds"])
            .bind("bench")
            .fetch_all(&mut *tx)
            .await?;
        tx.commit().await?;
        times.push(begun.elapsed().as_secs_f64() * 1_000.0);
        if !found.is_empty() {
            return Err("an event was due".into());
        }
    }
    Ok(median(times))
}
