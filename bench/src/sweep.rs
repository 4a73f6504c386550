//! Removing 1M expired of 2M rows with two indexes, alone on the server: beside one unbounded DELETE of the same rows,
//! and beside the loop that the requirement document has (without its sleeps).

use std::time::Instant;

use sqlx::{Connection, PgConnection};

use crate::bed::{Bed, Goal, Result, median};

const DUE: u64 = 1_000_000;
const LIVE: u64 = 1_000_000;
const ROUNDS: usize = 5;

const POLICY: &str =
    "[[expire]]\nname = \"sweep\"\ntable = \"public.k\"\ncolumn = \"expires_at\"\nbrake = { share = 1.0 }";

pub(crate) async fn run() -> Result<Vec<Goal>> {
    let bed = Bed::new().await?;
    let mut goals = Vec::new();
    for (shuffled, layout) in [(false, "in time order"), (true, "shuffled")] {
        let (mut bare, mut ebb, mut held, mut slow_batch) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut document = Vec::new();
        for round in 1..=ROUNDS {
            bed.fill("k", DUE, LIVE, shuffled).await?;
            bed.apply(POLICY).await?;
            let began = Instant::now();
            bed.database.execute("DELETE FROM k WHERE expires_at <= now()").await;
            bare.push(DUE as f64 / began.elapsed().as_secs_f64());

            bed.fill("k", DUE, LIVE, shuffled).await?;
            bed.forget_statements().await;
            let summary = bed.sweep("sweep").await?;
            bed.tell_statements().await;
            assert_eq!(summary.rows, DUE, "every due row, and no other");
            ebb.push(DUE as f64 / summary.took.as_secs_f64());
            slow_batch.push(bed.batch_ms("sweep", 0.99).await?);

            bed.fill("k", DUE, LIVE, shuffled).await?;
            let mut idle = PgConnection::connect(bed.database.socket_url()).await?;
            sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ebb.policy")
                .execute(&mut idle)
                .await?;
            let summary = bed.sweep("sweep").await?;
            assert_eq!(summary.rows, DUE, "every due row, and no other");
            held.push(DUE as f64 / summary.took.as_secs_f64());
            sqlx::raw_sql("ROLLBACK").execute(&mut idle).await?;

            bed.fill("k", DUE, LIVE, shuffled).await?;
            document.push(document_loop(&bed, 5).await?);
            println!(
                "sweep {layout}, round {round}: bare {:.0}/s, ebb {:.0}/s, ebb under an old snapshot {:.0}/s, \
                 document's loop {:.0}/s, 99 % of batches within {:.0} ms",
                bare[round - 1],
                ebb[round - 1],
                held[round - 1],
                document[round - 1],
                slow_batch[round - 1]
            );
        }
        let (bare, ebb, held, document) = (median(bare), median(ebb), median(held), median(document));
        goals.push(Goal::at_least(format!("sweep {layout}: rows/s over one unbounded DELETE"), ebb / bare, 0.8));
        goals.push(Goal::at_least(format!("sweep {layout}: rows/s over the document's loop"), ebb / document, 15.0));
        goals.push(Goal::at_least(format!("sweep {layout}: with an old snapshot held, over without"), held / ebb, 0.5));
        goals.push(Goal::at_most(format!("sweep {layout}: 99th percentile of a batch, ms"), median(slow_batch), 100.0));
    }
    Ok(goals)
}

/// `pk IN (SELECT … LIMIT 10000)`, so many batches of it; its rate does not change over the table.
async fn document_loop(bed: &Bed, batches: u32) -> Result<f64> {
    let mut connection = PgConnection::connect(bed.database.socket_url()).await?;
    let began = Instant::now();
    let mut rows = 0;
    for _ in 0..batches {
        rows += sqlx::query(
            "DELETE FROM k WHERE key IN (SELECT key FROM k WHERE expires_at < NOW() ORDER BY expires_at ASC LIMIT 10000)",
        )
        .execute(&mut connection)
        .await?
        .rows_affected();
    }
    Ok(rows as f64 / began.elapsed().as_secs_f64())
}
