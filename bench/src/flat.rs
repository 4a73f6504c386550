//! 100k expired rows out of 1M and out of 20M: what they cost must not grow with the table. Each round makes other rows
//! due, wherever they lie, by setting the database's clock, and starts from a checkpoint, so that either side logs every page that it
//! changes as a whole. Beside it, in the same rounds, one bare DELETE of the same rows, rolled back: what the server itself makes of it.

use std::time::Instant;

use crate::bed::{Bed, Goal, Result, median};

const DUE: u64 = 100_000;
const ROUNDS: usize = 5;

const POLICIES: &str = "[[expire]]\nname = \"small\"\ntable = \"public.small\"\ncolumn = \"expires_at\"\n\
                        [[expire]]\nname = \"large\"\ntable = \"public.large\"\ncolumn = \"expires_at\"";

/// Seconds by round.
#[derive(Default)]
struct Took {
    ebb: Vec<f64>,
    bare: Vec<f64>,
}

pub(crate) async fn run() -> Result<Vec<Goal>> {
    let bed = Bed::new().await?;
    let mut goals = Vec::new();
    for (shuffled, layout, most) in [(false, "in time order", 1.3), (true, "shuffled", 1.6)] {
        bed.fill("small", DUE, 1_000_000 - DUE, shuffled).await?;
        bed.fill("large", DUE, 20_000_000 - DUE, shuffled).await?;
        bed.apply(POLICIES).await?;
        let (mut small, mut large) = (Took::default(), Took::default());
        for round in 1..=ROUNDS {
            for (table, took) in [("small", &mut small), ("large", &mut large)] {
                if round > 1 {
                    refill(&bed, table).await;
                }
                oldest_are_due(&bed, table).await;
                took.bare.push(bare(&bed, table).await?);
                bed.database.execute("CHECKPOINT").await;
                let summary = bed.sweep(table).await?;
                assert_eq!(summary.rows, DUE, "every due row, and no other");
                took.ebb.push(summary.took.as_secs_f64());
            }
            let last = round - 1;
            println!(
                "flat {layout}, round {round}: out of 1M {:.3} s (bare DELETE {:.3} s), out of 20M {:.3} s ({:.3} s)",
                small.ebb[last], small.bare[last], large.ebb[last], large.bare[last],
            );
        }
        let of_ebb = median(large.ebb) / median(small.ebb);
        let of_server = median(large.bare) / median(small.bare);
        println!("flat {layout}: one bare DELETE out of 20M over one out of 1M {of_server:.2}");
        goals.push(Goal::at_most(format!("flat {layout}: 100k out of 20M over 100k out of 1M"), of_ebb, most));
    }
    Ok(goals)
}

/// One DELETE of what is due, taken back.
async fn bare(bed: &Bed, table: &str) -> Result<f64> {
    bed.database.execute("CHECKPOINT").await;
    let mut tx = bed.database.pool().begin().await?;
    let cutoff: String = sqlx::query_scalar("SELECT ebb.now()::text").fetch_one(&mut *tx).await?;
    sqlx::raw_sql("SET LOCAL jit = off; SET LOCAL enable_seqscan = off").execute(&mut *tx).await?;
    let began = Instant::now();
    let delete = format!("DELETE FROM {table} WHERE expires_at <= '{cutoff}'");
    let gone = sqlx::raw_sql(sqlx::AssertSqlSafe(delete)).execute(&mut *tx).await?;
    let took = began.elapsed().as_secs_f64();
    assert_eq!(gone.rows_affected(), DUE, "the same rows");
    tx.rollback().await?;
    Ok(took)
}

/// Puts as many rows again into the table as were taken, to fall due when all others have.
async fn refill(bed: &Bed, table: &str) {
    bed.database
        .execute(&format!(
            "INSERT INTO {table} SELECT md5(random()::text || i), i, now() + interval '10 years' + i * interval '1 ms'
             FROM generate_series(1, {DUE}) AS i"
        ))
        .await;
    bed.database.execute(&format!("VACUUM (ANALYZE) {table}")).await;
}

/// Stops the database's clock where as many rows are due as are to go.
async fn oldest_are_due(bed: &Bed, table: &str) {
    let newest_due: String = bed
        .database
        .scalar(&format!(
            "SELECT max(expires_at)::text FROM (SELECT expires_at FROM {table} ORDER BY 1 LIMIT {DUE}) AS due"
        ))
        .await;
    bed.database
        .execute(&format!(
            "CREATE OR REPLACE FUNCTION ebb.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE AS
                 $$ SELECT timestamptz '{newest_due}' $$"
        ))
        .await;
}
