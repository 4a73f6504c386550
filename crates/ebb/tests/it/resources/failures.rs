//! The requirement's four failure scenarios, one by one, with real processes: what was permanently orphaned, late, stuck or
//! dropped under somebody's feet there.

use std::time::Duration;

use ebb_testkit::Peer;
use uuid::Uuid;

use super::peers::{self, Shop};
use super::{Registry, name};
use crate::harness::execute;

const OLD: Duration = Duration::from_secs(2 * 3600);

/// A registry, and what starts workers on it.
struct Workshop {
    registry: Registry,
    shop: Shop,
}

impl Workshop {
    async fn open() -> Self {
        let registry = Registry::with("grace = \"0s\"\norphan_age = \"1h\"").await;
        registry.confirm().await;
        let shop = Shop::Schema(registry.ebb.db.pool().clone());
        Self { registry, shop }
    }

    async fn worker(&self) -> (Peer, Uuid) {
        let mut peer = peers::start("worker", self.registry.ebb.db.url(), &self.shop);
        let holder = peer.hear().await.expect("a worker starts").parse().unwrap();
        (peer, holder)
    }

    /// Its term runs out, and everything that follows from it happens.
    async fn run_out(&self, holder: Uuid) {
        self.registry.kill(holder, "2").await;
        self.registry.end_dead().await;
        self.registry.passes("drop").await;
    }
}

async fn does(peer: &mut Peer, line: &str) {
    peer.say(line);
    assert_eq!(peer.hear().await.as_deref(), Some("ok"), "{line}");
}

/// 1: killed after CREATE TABLE, before anybody was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_1_a_table_whose_worker_died_before_its_reference_was_written_goes() {
    let workshop = Workshop::open().await;
    let (announced, unknown) = (name(OLD, 1), name(OLD, 2));
    let (mut worker, holder) = workshop.worker().await;
    does(&mut worker, &format!("create {announced}")).await;
    does(&mut worker, &format!("make {unknown}")).await;
    worker.kill9();
    workshop.run_out(holder).await;
    assert_eq!(workshop.registry.tables().await, unknown, "announced first, so known whatever happens");
    workshop.registry.passes("sweep").await;
    workshop.registry.ebb.db.advance("2 hours").await;
    assert_eq!(workshop.registry.passes("sweep").await, 1);
    assert_eq!(workshop.registry.tables().await, "", "made without a word, and found by the sweeper");
}

/// 2: killed with decrefs in its queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_2_decrefs_that_were_lost_come_with_the_end_of_the_term() {
    let workshop = Workshop::open().await;
    let (t, kept) = (name(OLD, 1), name(OLD, 2));
    let ((mut worker, holder), (mut other, _)) = (workshop.worker().await, workshop.worker().await);
    for name in [&t, &kept] {
        does(&mut worker, &format!("create {name}")).await;
    }
    does(&mut other, &format!("refer {kept}")).await;
    does(&mut worker, &format!("drop {t}")).await;
    does(&mut worker, &format!("drop {kept}")).await;
    worker.kill9();
    workshop.run_out(holder).await;
    assert_eq!(workshop.registry.tables().await, kept, "late, and not more than that");
    does(&mut other, "release").await;
    workshop.registry.passes("drop").await;
    assert_eq!(workshop.registry.tables().await, "");
}

/// 3: the dropper dies in the middle of a drop, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_3_what_a_dead_dropper_left_the_next_one_finishes_and_records_once() {
    let workshop = Workshop::open().await;
    let registry = &workshop.registry;
    let (mut worker, _) = workshop.worker().await;
    for n in 0..8 {
        does(&mut worker, &format!("create {}", name(OLD, n))).await;
    }
    does(&mut worker, "release").await;
    // Somebody reads one of them: the drop waits there.
    let mut reader = registry.ebb.client().await;
    execute(&mut reader, &format!("BEGIN; SELECT FROM scratch.{}", name_of(registry, 3).await)).await;
    for _ in 0..2 {
        let mut node = peers::start("node", registry.ebb.db.url(), &workshop.shop);
        node.hear().await.expect("a node starts");
        node.say("s:drop");
        registry
            .ebb
            .until("SELECT bool_or(wait_event_type = 'Lock') FROM pg_stat_activity WHERE datname = current_database()")
            .await;
        node.kill9();
        registry.ebb.db.execute("UPDATE ebb.lease SET expires_at = clock_timestamp() WHERE holder IS NOT NULL").await;
        let claimed: i64 = registry.ebb.db.scalar("SELECT count(*) FROM ebb.resource WHERE state = 'dropping'").await;
        assert!(claimed > 0, "claimed stays claimed");
    }
    execute(&mut reader, "COMMIT").await;
    registry.passes("drop").await;
    registry.ebb.db.advance("1 minute").await;
    registry.passes("drop").await;
    assert_eq!((registry.tables().await.as_str(), registry.audited("drop").await), ("", 8));
}

async fn name_of(registry: &Registry, nth: i64) -> String {
    registry.ebb.db.scalar(&format!("SELECT name FROM ebb.resource ORDER BY id OFFSET {nth} LIMIT 1")).await
}

/// 4: killed in the middle of a flush: some increfs are written, others are not, and all the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_4_a_flush_that_was_cut_in_half_skews_nothing() {
    let workshop = Workshop::open().await;
    let registry = &workshop.registry;
    let names: Vec<String> = (0..6).map(|n| name(OLD, n)).collect();
    let ((mut maker, _), (mut cut, cut_holder), (mut user, _)) =
        (workshop.worker().await, workshop.worker().await, workshop.worker().await);
    for name in &names {
        does(&mut maker, &format!("create {name}")).await;
    }
    for name in &names[..3] {
        does(&mut cut, &format!("refer {name}")).await;
    }
    for name in &names[3..] {
        cut.say(&format!("queue {name}"));
    }
    cut.kill9();
    for name in &names {
        does(&mut user, &format!("refer {name}")).await;
    }
    // The decrefs that would drive a number to zero: of the creator, of the dead one, and some that nobody owes.
    does(&mut maker, "release").await;
    for name in &names {
        registry.decref(name, cut_holder).await;
        registry.decref(name, cut_holder).await;
    }
    workshop.run_out(cut_holder).await;
    assert_eq!(registry.tables().await.split(',').count(), 6, "the third worker refers to all of them");
    for name in &names {
        does(&mut user, &format!("use {name}")).await;
    }
    does(&mut user, "release").await;
    registry.passes("drop").await;
    assert_eq!(registry.tables().await, "");
}
