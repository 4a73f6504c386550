//! How long an insert waits while its table is adopted, at 1M and at 20M rows, next to nothing at all, to the server's own
//! CREATE INDEX CONCURRENTLY and to the copy under a lock that people write by hand; how long while it is rolled back, and
//! while history is split; a split next to a bare copy; a month dropped next to a month deleted; upkeep with nothing to
//! do. `EBB_BENCH_ROWS` replaces the 20M where time or space is short.

use std::time::{Duration, Instant};

use ebb::partition::adopt::{Request, adopt};
use ebb::partition::{finish, rollback, split};
use ebb::policy::Period;

use crate::bed::{Bed, Goal, Result, median};
use crate::stall::{Steps, beside};

const SMALL: u64 = 1_000_000;
const LATER_WRITES: u64 = 200_000;
const STALL_MS: f64 = 200.0;

const SPLIT_ROWS: u64 = 2_000_000;
/// How long inserts are looked at with nothing beside them.
const ALONE: Duration = Duration::from_secs(15);

const MANY_DAYS: u64 = 1_000;

/// How often the small table is adopted: one bad moment of a disk says little.
const ROUNDS: usize = 3;

/// All of it, or `partition-small`, `-large` (adopted and rolled back), `-synced` (both, by a role that may sync files),
/// `-hand`, `-split`, `-drop`, `-idle`, `-many`.
pub(crate) async fn run(part: &str) -> Result<Vec<Goal>> {
    let bed = Bed::new().await?;
    // As on a server that has run for a while: WAL goes into files that are there, not into new ones that are zeroed first.
    bed.database.execute("ALTER SYSTEM SET min_wal_size = '8GB'").await;
    bed.database.execute("SELECT pg_reload_conf()").await;
    let wants = |name: &str| part == "all" || part == "partition" || part == format!("partition-{name}");
    let large = std::env::var("EBB_BENCH_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(20_000_000);
    let mut goals = Vec::new();
    for (name, rows, rounds) in [("small", SMALL, ROUNDS), ("large", large, 1)] {
        if wants(name) {
            goals.extend(alone(&bed, rows, rounds).await?);
            goals.extend(stalls(&bed, rows, rounds, "").await?);
        }
        if wants("synced") && may_sync(&bed).await {
            goals.extend(stalls(&bed, rows, rounds, ", by a role that may sync files").await?);
            bed.database.execute("DROP EXTENSION adminpack").await;
        }
    }
    if wants("hand") {
        goals.push(by_hand(&bed, SMALL).await?);
    }
    if wants("split") {
        goals.extend(split_against_copy(&bed).await?);
    }
    if wants("drop") {
        goals.extend(drop_against_delete(&bed).await?);
    }
    if wants("idle") {
        goals.push(idle(&bed).await?);
    }
    if wants("many") {
        goals.push(many(&bed).await?);
    }
    Ok(goals)
}

async fn table(bed: &Bed, rows: u64) {
    bed.database
        .execute(&format!(
            "DROP TABLE IF EXISTS t, t_copy CASCADE;
             CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY, key text NOT NULL, created_at timestamptz NOT NULL, payload text);
             INSERT INTO t (key, created_at, payload)
             SELECT md5(i::text), now() - (i % 8000000) * interval '1 second', repeat('x', 40) FROM generate_series(1, {rows}) i;
             ALTER TABLE t ADD PRIMARY KEY (key); CREATE INDEX t_created_at ON t (created_at)"
        ))
        .await;
    bed.database.execute("VACUUM ANALYZE t").await;
    bed.database.execute("CHECKPOINT").await;
}

fn request() -> Request {
    Request {
        table: "public.t".into(),
        column: "created_at".into(),
        unit: None,
        by: Period::Month,
        ahead: 12,
        keep: None,
        zone: "UTC".into(),
        policy: None,
        guard: Vec::new(),
        move_foreign_keys: false,
    }
}

/// What the machine and the server do by themselves: a disk has bad moments of its own, and the new key needs an index
/// whoever builds it.
async fn alone(bed: &Bed, rows: u64, rounds: usize) -> Result<Vec<Goal>> {
    let (mut nothings, mut bares) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        table(bed, rows).await;
        let nothing = async {
            tokio::time::sleep(ALONE).await;
            Ok(())
        };
        let nothing = beside(bed, &Steps::default(), nothing).await?;
        println!("partition, {rows} rows: nothing beside them for {ALONE:?}, {nothing}");
        bed.database.execute("CHECKPOINT").await;
        let bare = async {
            bed.database.execute("CREATE UNIQUE INDEX CONCURRENTLY bare ON t (key, created_at)").await;
            Ok(())
        };
        let bare = beside(bed, &Steps::default(), bare).await?;
        println!("partition, {rows} rows: a bare CREATE INDEX CONCURRENTLY in {:.1} s, {bare}", bare.took);
        nothings.push(nothing.longest);
        bares.push(bare.longest);
    }
    let index = format!("partition: longest insert while a bare index of {rows} rows is built, ms");
    Ok(vec![
        Goal::beside(format!("partition: longest insert with nothing beside, {rows} rows, ms"), median(nothings)),
        Goal::beside(index, median(bares)),
    ])
}

/// Whether the server has what lets Ebb send a new index to the disk as it comes; from 17 on it does not need it.
async fn may_sync(bed: &Bed) -> bool {
    let has: bool =
        bed.database.scalar("SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'adminpack')").await;
    if has {
        bed.database.execute("CREATE EXTENSION adminpack").await;
    }
    has
}

async fn stalls(bed: &Bed, rows: u64, rounds: usize, by: &str) -> Result<Vec<Goal>> {
    let database = bed.engine.database();
    let (mut theres, mut backs) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        table(bed, rows).await;
        let steps = Steps::default();
        let by_ebb = async { Ok(adopt(database, &request(), "bench", &mut steps.watch()).await?) };
        let there = beside(bed, &steps, by_ebb).await?;
        println!("partition, {rows} rows{by}: adopted in {:.1} s, {there}", there.took);
        bed.database
            .execute(&format!(
                "INSERT INTO t (key, created_at, payload) SELECT 'later' || i, now() + interval '80 days', '' FROM generate_series(1, {LATER_WRITES}) i"
            ))
            .await;
        let steps = Steps::default();
        let by_ebb = async { Ok(rollback(database, "public.t", "bench", &mut steps.watch()).await?) };
        let back = beside(bed, &steps, by_ebb).await?;
        println!("partition, {rows} rows{by}: rolled back in {:.1} s after {LATER_WRITES} new rows, {back}", back.took);
        finish(database, "public.t", &mut |_| ()).await?;
        bed.database.execute("DROP TABLE t CASCADE").await;
        theres.push(there.longest);
        backs.push(back.longest);
    }
    let goal = |what: &str, longest| {
        Goal::at_most(format!("partition: longest insert while {rows} rows are {what}{by}, ms"), longest, STALL_MS)
    };
    Ok(vec![goal("adopted", median(theres)), goal("rolled back", median(backs))])
}

/// A table with a thousand partitions, three of them with rows, on its way back.
async fn many(bed: &Bed) -> Result<Goal> {
    let (database, mut backs) = (bed.engine.database(), Vec::new());
    for round in 1..=ROUNDS {
        table(bed, 100_000).await;
        let daily = Request { by: Period::Day, ahead: MANY_DAYS, ..request() };
        adopt(database, &daily, "bench", &mut |_| ()).await?;
        bed.database
            .execute("INSERT INTO t (key, created_at, payload) SELECT 'later' || i, now() + i * interval '100 days', '' FROM generate_series(1, 3) i; CHECKPOINT")
            .await;
        let steps = Steps::default();
        let by_ebb = async { Ok(rollback(database, "public.t", "bench", &mut steps.watch()).await?) };
        let back = beside(bed, &steps, by_ebb).await?;
        println!("partition, round {round}: {MANY_DAYS} partitions ahead, rolled back in {:.1} s, {back}", back.took);
        finish(database, "public.t", &mut |_| ()).await?;
        bed.database.execute("DROP TABLE t CASCADE").await;
        backs.push(back.longest);
    }
    let what = format!("partition: longest insert while a table with {MANY_DAYS} partitions is rolled back, ms");
    Ok(Goal::at_most(what, median(backs), STALL_MS))
}

/// The document's way: lock, copy, rename.
async fn by_hand(bed: &Bed, rows: u64) -> Result<Goal> {
    table(bed, rows).await;
    let by_hand = async {
        bed.database
            .execute(
                "CREATE TABLE t_copy (LIKE t INCLUDING DEFAULTS) PARTITION BY RANGE (created_at);
                 CREATE TABLE t_copy_all PARTITION OF t_copy FOR VALUES FROM (MINVALUE) TO (MAXVALUE);
                 ALTER TABLE t_copy ADD PRIMARY KEY (key, created_at); CREATE INDEX ON t_copy (created_at);
                 CREATE SEQUENCE t_copy_id; ALTER TABLE t_copy ALTER COLUMN id SET DEFAULT nextval('t_copy_id');
                 BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE; INSERT INTO t_copy SELECT * FROM t;
                 ALTER TABLE t RENAME TO t_backup; ALTER TABLE t_copy RENAME TO t; COMMIT",
            )
            .await;
        Ok(())
    };
    let copied = beside(bed, &Steps::default(), by_hand).await?.longest;
    println!("partition, {rows} rows: copied under a lock by hand, longest insert {copied:.0} ms");
    bed.database.execute("DROP TABLE t, t_backup CASCADE; DROP SEQUENCE IF EXISTS t_copy_id CASCADE").await;
    Ok(Goal::beside(format!("partition: longest insert while {rows} rows are copied under a lock by hand, ms"), copied))
}

/// Everything that a split does (copy, indexes, statistics, comparison, swap), next to one statement that copies the rows
/// into a table with the same indexes; and how long inserts wait when a table is split beside them.
async fn split_against_copy(bed: &Bed) -> Result<Vec<Goal>> {
    let database = bed.engine.database();
    let wanted = split::Request { table: "public.t".into(), ..Default::default() };
    let mut ratios = Vec::new();
    for round in 1..=ROUNDS {
        table(bed, SPLIT_ROWS).await;
        adopt(database, &request(), "bench", &mut |_| ()).await?;
        bed.database.execute("CREATE TABLE bare (LIKE t_history INCLUDING ALL); CHECKPOINT").await;
        let began = Instant::now();
        bed.database.execute("INSERT INTO bare SELECT * FROM t_history").await;
        let bare = began.elapsed().as_secs_f64();
        bed.database.execute("DROP TABLE bare; CHECKPOINT").await;
        let (steps, began) = (Steps::default(), Instant::now());
        let parts = split::split(database, &wanted, &mut steps.watch()).await?.parts.len();
        let whole = began.elapsed().as_secs_f64();
        println!(
            "partition, round {round}: {SPLIT_ROWS} rows split into {parts} in {whole:.1} s, copied by one statement in {bare:.1} s\n{}",
            steps.times()
        );
        ratios.push(bare / whole);
        finish(database, "public.t", &mut |_| ()).await?;
        bed.database.execute("DROP TABLE t CASCADE").await;
    }
    table(bed, SPLIT_ROWS).await;
    adopt(database, &request(), "bench", &mut |_| ()).await?;
    bed.database.execute("CHECKPOINT").await;
    let nothing = async {
        tokio::time::sleep(ALONE).await;
        Ok(())
    };
    let nothing = beside(bed, &Steps::default(), nothing).await?;
    println!("partition: nothing beside four clients for {ALONE:?}, {nothing}");
    bed.database.execute("CHECKPOINT").await;
    let steps = Steps::default();
    let by_ebb = async { Ok(split::split(database, &wanted, &mut steps.watch()).await?) };
    let stall = beside(bed, &steps, by_ebb).await?;
    println!("partition: {SPLIT_ROWS} rows split beside four clients in {:.1} s, {stall}", stall.took);
    finish(database, "public.t", &mut |_| ()).await?;
    bed.database.execute("DROP TABLE t CASCADE").await;
    Ok(vec![
        Goal::at_least("partition: rows a second of a split / a bare INSERT … SELECT", median(ratios), 0.5),
        Goal::at_most(
            format!("partition: longest insert while {SPLIT_ROWS} rows are split, ms"),
            stall.longest,
            STALL_MS,
        ),
        Goal::beside("partition: longest insert with nothing beside, ms", nothing.longest),
        Goal::beside(format!("partition: p99 of inserts while {SPLIT_ROWS} rows are split, ms"), stall.p99),
        Goal::beside("partition: p99 of inserts with nothing beside, ms", nothing.p99),
    ])
}

/// A month of a million rows, dropped by upkeep, and deleted by statement and vacuumed.
async fn drop_against_delete(bed: &Bed) -> Result<Vec<Goal>> {
    let (mut ratios, mut with_vacuum) = (Vec::new(), Vec::new());
    for round in 1..=3 {
        bed.database
            .execute(
                "DROP TABLE IF EXISTS m CASCADE; CREATE TABLE m (key text NOT NULL, created_at timestamptz NOT NULL, payload text) PARTITION BY RANGE (created_at);
                 CREATE INDEX ON m (created_at); CREATE INDEX ON m (key);
                 CREATE TABLE m_dropped PARTITION OF m FOR VALUES FROM ('2020-01-01') TO ('2020-02-01');
                 CREATE TABLE m_deleted PARTITION OF m FOR VALUES FROM ('2020-02-01') TO ('2020-03-01');
                 INSERT INTO m SELECT md5(i::text), timestamptz '2020-01-02' + (i % 2) * interval '31 days' + i * interval '1 second', repeat('x', 40) FROM generate_series(1, 2000000) i",
            )
            .await;
        bed.database.execute("VACUUM ANALYZE m").await;
        let began = Instant::now();
        bed.database.execute("DELETE FROM m WHERE created_at >= '2020-02-01' AND created_at < '2020-03-01'").await;
        let deleted = began.elapsed().as_secs_f64();
        // Only then is what they took free again, as it is after a drop; shown, and not what is judged.
        bed.database.execute("VACUUM m_deleted").await;
        let vacuumed = began.elapsed().as_secs_f64();
        bed.database.execute("DROP TABLE m_deleted").await;
        bed.apply("[[partition]]\nname = \"m\"\ntable = \"public.m\"\ncolumn = \"created_at\"\nby = \"month\"\nahead = 1\nkeep = \"12mo\"\nbrake = { share = \"off\" }").await?;
        let summary = bed.sweep("m").await?;
        assert_eq!(summary.rows, 1_000_000, "the whole month, and nothing else");
        let dropped = summary.took.as_secs_f64();
        println!(
            "partition, round {round}: a month deleted in {deleted:.2} s, vacuumed after {vacuumed:.2} s, dropped (counted, recorded, two partitions made) in {dropped:.2} s"
        );
        ratios.push(deleted / dropped);
        with_vacuum.push(vacuumed / dropped);
    }
    Ok(vec![
        Goal::at_least("partition: deleting a month over dropping it", median(ratios), 1.0),
        Goal::beside("partition: deleting and vacuuming a month over dropping it", median(with_vacuum)),
    ])
}

/// What a look at a thousand partitions costs when there is nothing to do.
async fn idle(bed: &Bed) -> Result<Goal> {
    bed.database
        .execute(
            "CREATE TABLE k (created_at timestamptz NOT NULL) PARTITION BY RANGE (created_at);
             INSERT INTO ebb.policy (kind, name, spec, source, changed_by)
             VALUES ('partition', 'k', '{\"table\": \"public.k\", \"column\": \"created_at\", \"by\": \"day\", \"ahead\": 999}', 'file', 'bench');
             SELECT ebb.ensure_partitions('k')",
        )
        .await;
    let mut took = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        let made: i32 = bed.database.scalar("SELECT ebb.ensure_partitions('k')").await;
        assert_eq!(made, 0, "nothing is missing");
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    let middle = median(took);
    println!("partition: a look at 1,000 partitions, nothing to do: {middle:.1} ms");
    Ok(Goal::at_most("partition: maintenance of 1,000 partitions with nothing to do, ms", middle, 50.0))
}
