//! Nodes that die at any moment, again and again, while an application goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ebb_testkit::{Node, TestDatabase, database, eventually};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::{SOON, apply, assert_accounted_for, config, due, ebb_bin, gone, ledger_table, stop};

/// Chance that can be played again: set EBB_SEED to what the failed test printed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn seeded(name: &str) -> Self {
        let given = std::env::var("EBB_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(std::process::id()) << 20 | u64::from(line!()));
        println!("{name}: EBB_SEED={seed}");
        Self(seed)
    }

    pub(super) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % below
    }
}

/// How many kills: `EBB_SOAK=minutes` makes it a long run of the same.
pub(super) fn kills(usual: usize) -> usize {
    let minutes: Option<usize> = std::env::var("EBB_SOAK").ok().and_then(|minutes| minutes.parse().ok());
    minutes.map_or(usual, |minutes| usual * (1 + minutes * 2))
}

/// Rows come in live, due, and about to be due; some of those are extended at the last moment. Whatever was promised
/// to live is written down in the same transaction.
async fn application(db: Arc<TestDatabase>, table: &'static str, over: Arc<AtomicBool>) {
    let insert = format!(
        "WITH live AS (INSERT INTO public.{table} (expires_at) SELECT now() + interval '1 hour' FROM generate_series(1, 20) RETURNING id),
              due AS (INSERT INTO public.{table} (expires_at) SELECT now() - random() * interval '10 seconds' FROM generate_series(1, 60)),
              soon AS (INSERT INTO public.{table} (expires_at) SELECT now() + random() * interval '2 seconds' FROM generate_series(1, 20))
         INSERT INTO public.{table}_promised SELECT id FROM live"
    );
    // Also rows whose time has come already: extended before they are swept, they stay.
    let extend = format!(
        "WITH picked AS (SELECT id FROM public.{table}
                         WHERE expires_at BETWEEN clock_timestamp() - interval '200 milliseconds'
                                              AND clock_timestamp() + interval '200 milliseconds' LIMIT 15),
              extended AS (UPDATE public.{table} t SET expires_at = clock_timestamp() + interval '1 hour'
                           FROM picked WHERE t.id = picked.id RETURNING t.id)
         INSERT INTO public.{table}_promised SELECT id FROM extended"
    );
    while !over.load(Ordering::Relaxed) {
        for statement in [&insert, &extend, &extend] {
            sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(db.pool()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

struct Chaos {
    table: &'static str,
    partition_by: &'static str,
    partitions: &'static [&'static str],
    policy: Value,
    nodes: usize,
    kills: usize,
}

impl Chaos {
    async fn unleash(self) {
        let (table, started) = (self.table, Instant::now());
        let mut dice = Dice::seeded(table);
        let db = Arc::new(database().await);
        ledger_table(&db, table, self.partition_by).await;
        for partition in self.partitions {
            db.execute(partition).await;
        }
        db.execute(&format!("CREATE TABLE public.{table}_promised (id bigint); CREATE INDEX ON public.{table} (id)"))
            .await;
        apply(&db, &[(table, self.policy)]).await;

        let over = Arc::new(AtomicBool::new(false));
        let load = tokio::spawn(application(db.clone(), table, over.clone()));
        let boot = |number: usize| Node::spawn(ebb_bin(), db.url(), &config(&format!("n{number}"), "1s"), &["run"]);
        let mut nodes: Vec<Node> = (0..self.nodes).map(boot).collect();
        for number in 0..self.kills {
            tokio::time::sleep(Duration::from_millis(10 + dice.roll(200))).await;
            // A busy machine may not get a node to its first run in that time: now and then wait for one that begins.
            if dice.roll(8) == 0 {
                let runs = format!("SELECT count(*) FROM ebb.run WHERE policy = '{table}'");
                let before: i64 = db.scalar(&runs).await;
                db.execute("UPDATE ebb.unit SET triggered = true; NOTIFY ebb").await;
                eventually(SOON, || async { db.scalar::<i64>(&runs).await > before }).await;
            }
            let victim = dice.roll(nodes.len() as u64) as usize;
            nodes[victim].kill9();
            nodes[victim] = boot(self.nodes + number);
            // Leases run out at random, also those of the living (a takeover must be safe at any moment), and there is
            // always something to do: so most kills meet a run.
            if dice.roll(2) == 0 {
                db.execute("UPDATE ebb.lease SET expires_at = '-infinity' WHERE random() < 0.7").await;
                db.execute("UPDATE ebb.unit SET triggered = true WHERE random() < 0.7; NOTIFY ebb").await;
            }
        }
        over.store(true, Ordering::Relaxed);
        load.await.unwrap();
        eventually(SOON, || async { due(&db, table).await == 0 }).await;
        // Rows of the last two seconds were to become due: those go as well.
        eventually(SOON, || async {
            let left: i64 = db
                .scalar(&format!(
                    "SELECT count(*) FROM public.{table} WHERE id NOT IN (SELECT id FROM public.{table}_promised)"
                ))
                .await;
            left == 0
        })
        .await;
        // What a kill cut off is taken up again, also a run that was not due but triggered.
        let closed = "SELECT NOT EXISTS (SELECT FROM ebb.run WHERE status = 'running')";
        eventually(SOON, || async { db.scalar(closed).await }).await;
        for node in nodes {
            stop(node).await;
        }

        assert_accounted_for(&db, table, table).await;
        let missing: i64 = db
            .scalar(&format!("SELECT count(*) FROM public.{table}_promised p WHERE NOT EXISTS (SELECT FROM public.{table} t WHERE t.id = p.id)"))
            .await;
        assert_eq!(missing, 0, "rows that were promised to live are gone");
        let promised: i64 = db.scalar(&format!("SELECT count(*) FROM public.{table}_promised")).await;
        let same: i64 = db.scalar("SELECT count(*) - count(DISTINCT (unit, generation)) FROM ebb.run").await;
        assert_eq!(same, 0, "two runs under one generation");
        let open: i64 = db.scalar("SELECT count(*) FROM ebb.run WHERE status = 'running'").await;
        assert_eq!(open, 0, "a run was left open");
        let held: i64 = db.scalar("SELECT count(*) FROM ebb.lease WHERE holder IS NOT NULL").await;
        assert_eq!(held, 0, "a lease was left behind by nodes that stopped in order");
        let runs: i64 = db.scalar(&format!("SELECT count(*) FROM ebb.run WHERE policy = '{table}'")).await;
        let abandoned: i64 = db.scalar("SELECT count(*) FROM ebb.run WHERE status = 'abandoned'").await;
        println!(
            "{table}: {} kills of {} nodes in {:.0?}; {runs} runs, {abandoned} abandoned, {} rows gone, {promised} kept",
            self.kills,
            self.nodes,
            started.elapsed(),
            gone(&db, table).await,
        );
        assert!(abandoned > 0, "no kill hit a run");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_killed_at_random_lose_and_hurt_nothing() {
    let one_unit = |table, nodes, kills_usually| Chaos {
        table,
        partition_by: "",
        partitions: &[],
        policy: json!({ "table": table, "column": "expires_at", "every": "1s", "brake": { "share": 1.0 },
                        "batch": { "rows": 40, "pause": "5ms" } }),
        nodes,
        kills: kills(kills_usually),
    };
    one_unit("pair", 2, 80).unleash().await;
    one_unit("five", 5, 80).unleash().await;
    let several_units = Chaos {
        table: "parts",
        partition_by: "PARTITION BY HASH (id)",
        partitions: &[
            "CREATE TABLE public.parts_0 PARTITION OF public.parts FOR VALUES WITH (MODULUS 4, REMAINDER 0)",
            "CREATE TABLE public.parts_1 PARTITION OF public.parts FOR VALUES WITH (MODULUS 4, REMAINDER 1)",
            "CREATE TABLE public.parts_2 PARTITION OF public.parts FOR VALUES WITH (MODULUS 4, REMAINDER 2)",
            "CREATE TABLE public.parts_3 PARTITION OF public.parts FOR VALUES WITH (MODULUS 4, REMAINDER 3)",
        ],
        policy: json!({ "table": "parts", "column": "expires_at", "every": "1s", "brake": { "share": 1.0 } }),
        nodes: 5,
        kills: kills(80),
    };
    several_units.unleash().await;
}
