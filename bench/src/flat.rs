//! The same 100k expired rows out of 1M and out of 20M: what they cost must not grow with the table.

use crate::bed::{Bed, Goal, Result, median};

const DUE: u64 = 100_000;
const ROUNDS: usize = 5;

const POLICIES: &str = "[[expire]]\nname = \"small\"\ntable = \"public.small\"\ncolumn = \"expires_at\"\n\
                        [[expire]]\nname = \"large\"\ntable = \"public.large\"\ncolumn = \"expires_at\"";

pub(crate) async fn run() -> Result<Vec<Goal>> {
    let bed = Bed::new().await?;
    let mut goals = Vec::new();
    for (shuffled, layout, most) in [(false, "in time order", 1.3), (true, "shuffled", 1.6)] {
        bed.fill("small", DUE, 1_000_000 - DUE, shuffled).await?;
        bed.fill("large", DUE, 20_000_000 - DUE, shuffled).await?;
        bed.apply(POLICIES).await?;
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for round in 1..=ROUNDS {
            for (table, took) in [("small", &mut small), ("large", &mut large)] {
                if round > 1 {
                    expire_again(&bed, table).await;
                }
                let summary = bed.sweep(table).await?;
                assert_eq!(summary.rows, DUE, "every due row, and no other");
                took.push(summary.took.as_secs_f64());
            }
            println!(
                "flat {layout}, round {round}: out of 1M {:.3} s, out of 20M {:.3} s",
                small[round - 1],
                large[round - 1]
            );
        }
        goals.push(Goal::at_most(
            format!("flat {layout}: 100k out of 20M over 100k out of 1M"),
            median(large) / median(small),
            most,
        ));
    }
    Ok(goals)
}

/// Puts as many rows again as the sweep took, where it took them: due, and new to the table.
async fn expire_again(bed: &Bed, table: &str) {
    bed.database
        .execute(&format!(
            "INSERT INTO {table} SELECT md5(i::text), i, now() - interval '1 day' + i * interval '100 milliseconds'
             FROM generate_series(1, {DUE}) AS i ORDER BY random()"
        ))
        .await;
    bed.database.execute(&format!("VACUUM (ANALYZE) {table}")).await;
    bed.database.execute("CHECKPOINT").await;
}
