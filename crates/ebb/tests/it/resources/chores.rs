//! The dropper: what it may take, what stops it, what it does after it was cut off.

use std::time::Duration;

use super::{Registry, name, policy};
use crate::harness::execute;

const NEW: Duration = Duration::ZERO;

/// The document's second scenario, and the first half of its first: a crash between any two steps leaves nothing behind.
#[tokio::test]
async fn whatever_step_a_creator_dies_at_nothing_is_left() {
    let registry = Registry::with("grace = \"0s\"").await;
    let a = registry.holder("1 hour").await;
    let (announced, made, live) = (name(NEW, 1), name(NEW, 2), name(NEW, 3));
    registry.intend(&announced, a).await;
    registry.intend(&made, a).await;
    registry.make(&made).await;
    registry.create(&live, a).await;
    registry.kill(a, "2").await;
    registry.end_dead().await;
    registry.passes("drop").await;
    assert_eq!(registry.tables().await, "");
    for t in [announced, made, live] {
        assert_eq!(registry.state(&t).await, "dropped");
    }
}

/// A creator that slept through its term and makes its table afterwards is told, and the sweeper has the last word.
#[tokio::test]
async fn a_late_creator_is_told_that_it_was_given_up() {
    let registry = Registry::with("grace = \"0s\"\norphan_age = \"1s\"").await;
    let (a, t) = (registry.holder("1 hour").await, name(Duration::from_secs(60), 1));
    registry.intend(&t, a).await;
    registry.kill(a, "2").await;
    registry.end_dead().await;
    registry.passes("drop").await;
    assert_eq!(registry.state(&t).await, "dropped");
    registry.make(&t).await;
    assert!(!registry.ebb.db.scalar::<bool>(&format!("SELECT ebb.created('s', '{t}')")).await);
    registry.confirm().await;
    registry.passes("sweep").await;
    assert_eq!(registry.tables().await, t, "seen once");
    registry.ebb.db.advance("1 minute").await;
    assert_eq!(registry.passes("sweep").await, 1);
    assert_eq!(registry.tables().await, "");
}

/// A node died after the claim, before or after the store had dropped it: the next one finishes it.
#[tokio::test]
async fn a_drop_that_was_cut_off_is_finished_and_recorded_once() {
    let registry = Registry::with("grace = \"0s\"").await;
    let (a, before, after) = (registry.holder("1 hour").await, name(NEW, 1), name(NEW, 2));
    registry.create(&before, a).await;
    registry.create(&after, a).await;
    registry.ebb.db.execute("DELETE FROM ebb.reference; UPDATE ebb.resource SET state = 'dropping'").await;
    registry.ebb.db.execute(&format!("DROP TABLE scratch.{after}")).await;
    assert_eq!(registry.passes("drop").await, 2);
    assert_eq!((registry.tables().await, registry.audited("drop").await), (String::new(), 2));
    assert_eq!(registry.passes("drop").await, 0);
    assert_eq!(registry.audited("drop").await, 2);
}

#[tokio::test]
async fn a_table_that_was_made_again_under_the_same_name_survives() {
    let registry = Registry::with("grace = \"0s\"").await;
    let (a, t) = (registry.holder("1 hour").await, name(NEW, 1));
    registry.intend(&t, a).await;
    registry.make(&t).await;
    let oid: String = registry.ebb.db.scalar(&format!("SELECT 'scratch.{t}'::regclass::oid::text")).await;
    registry.ebb.db.execute(&format!("SELECT ebb.created('s', '{t}', '{oid}')")).await;
    registry.decref(&t, a).await;
    registry.ebb.db.execute(&format!("DROP TABLE scratch.{t}")).await;
    registry.make(&t).await;
    registry.passes("drop").await;
    assert_eq!((registry.state(&t).await, registry.tables().await), ("dropped".into(), t.clone()));
    let problem: String = registry.ebb.db.scalar("SELECT problem FROM ebb.resource").await;
    assert!(problem.contains("made again"), "{problem}");
}

#[tokio::test]
async fn what_the_store_will_not_drop_is_blocked_and_what_it_cannot_drop_now_is_tried_again() {
    let registry = Registry::with("grace = \"0s\"").await;
    let (a, viewed, locked) = (registry.holder("1 hour").await, name(NEW, 1), name(NEW, 2));
    registry.create(&viewed, a).await;
    registry.create(&locked, a).await;
    registry.ebb.db.execute(&format!("CREATE VIEW scratch.v AS SELECT * FROM scratch.{viewed}")).await;
    registry.ebb.db.execute(&format!("SELECT ebb.holder_close('{a}')")).await;
    let mut reader = registry.ebb.client().await;
    execute(&mut reader, &format!("BEGIN; SELECT FROM scratch.{locked}")).await;
    registry.passes("drop").await;
    assert_eq!((registry.state(&viewed).await, registry.state(&locked).await), ("blocked".into(), "dropping".into()));
    assert!(!registry.incref(&viewed, registry.holder("1 hour").await).await);
    execute(&mut reader, "COMMIT").await;
    registry.ebb.db.execute("DROP VIEW scratch.v").await;
    registry.ebb.db.advance("1 minute").await;
    assert_eq!(registry.passes("drop").await, 1);
    assert_eq!(registry.tables().await, viewed);
    registry.ebb.db.advance("1 hour").await;
    assert_eq!(registry.passes("drop").await, 1);
    assert_eq!(registry.tables().await, "");
}

#[tokio::test]
async fn observing_counts_and_drops_nothing() {
    let registry = Registry::with("grace = \"0s\"\nmode = \"observe\"").await;
    let (a, t) = (registry.holder("1 hour").await, name(NEW, 1));
    registry.create(&t, a).await;
    registry.decref(&t, a).await;
    let finished = registry.pass("drop").await;
    assert_eq!(finished.runs[0].due, Some(1));
    assert_eq!((registry.state(&t).await, registry.tables().await), ("live".into(), t));
}

/// Everybody lets go at once, as after a network that fell apart: it asks before it takes more than it should.
#[tokio::test]
async fn the_brake_asks_before_too_many_go_and_an_allowance_is_used_once() {
    let registry = Registry::with("grace = \"0s\"\nbrake = { rows = 3 }").await;
    let a = registry.holder("1 hour").await;
    for n in 0..5 {
        registry.create(&name(NEW, n), a).await;
    }
    registry.decref(&name_of(&registry, 0).await, a).await;
    assert_eq!(registry.passes("drop").await, 1, "one is within the brake");
    registry.ebb.db.execute(&format!("SELECT ebb.holder_close('{a}')")).await;
    let run = registry.pass("drop").await.runs.remove(0);
    assert_eq!((run.status, run.due), (ebb::spine::Status::Braked, Some(4)), "{run:?}");
    assert!(run.note.as_deref().is_some_and(|note| note.contains("ebb resume s --allow 4")), "{run:?}");
    let state = "SELECT state FROM ebb.v_policies WHERE name = 's'";
    assert_eq!(
        (registry.tables().await.split(',').count(), registry.ebb.db.scalar::<String>(state).await),
        (4, "braked".into())
    );
    // A sweep says nothing about it.
    registry.confirm().await;
    registry.passes("sweep").await;
    assert_eq!(registry.ebb.db.scalar::<String>(state).await, "braked");
    let mut tx = registry.ebb.engine.database().read().await.unwrap();
    ebb::control::resume(&mut tx, "s", Some(4), "test").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(registry.passes("drop").await, 4);
    assert_eq!(registry.tables().await, "");
    // Another four need another word.
    let b = registry.holder("1 hour").await;
    for n in 10..14 {
        registry.create(&name(NEW, n), b).await;
    }
    registry.ebb.db.execute(&format!("SELECT ebb.holder_close('{b}')")).await;
    assert_eq!(registry.pass("drop").await.runs[0].status, ebb::spine::Status::Braked);
    assert_eq!(registry.tables().await.split(',').count(), 4);
}

async fn name_of(registry: &Registry, nth: i64) -> String {
    registry.ebb.db.scalar(&format!("SELECT name FROM ebb.resource ORDER BY id OFFSET {nth} LIMIT 1")).await
}

#[tokio::test]
async fn a_batch_is_as_large_as_the_policy_says() {
    let registry = Registry::with("grace = \"0s\"\nbatch = { rows = 2, pause = \"1ms\", timeout = \"5s\" }").await;
    let a = registry.holder("1 hour").await;
    for n in 0..5 {
        registry.create(&name(NEW, n), a).await;
    }
    registry.ebb.db.execute(&format!("SELECT ebb.holder_close('{a}')")).await;
    assert_eq!(registry.passes("drop").await, 5);
    let records: Vec<i64> = sqlx::query_scalar("SELECT rows FROM ebb.audit WHERE action = 'drop' ORDER BY id")
        .fetch_all(registry.ebb.db.pool())
        .await
        .unwrap();
    assert_eq!(records, [2, 2, 1]);
}

/// What the role may not drop is not dropped, whoever the node is.
#[tokio::test]
async fn statements_on_the_schema_run_under_the_role() {
    let registry = Registry::new().await;
    let role = format!("r{}", uuid::Uuid::new_v4().simple());
    registry.ebb.db.execute(&format!("CREATE ROLE {role}; GRANT ALL ON SCHEMA scratch TO {role}")).await;
    let missing = registry.ebb.try_apply(&policy("role = \"nobody_of_that_name\"")).await.unwrap_err();
    assert!(missing.is_refused() && missing.to_string().contains("nobody_of_that_name"), "{missing}");
    registry.ebb.db.execute(&format!("ALTER TABLE scratch.ebb_owner OWNER TO {role}")).await;
    registry.ebb.apply(&policy(&format!("grace = \"0s\"\nrole = \"{role}\""))).await;
    let (a, theirs, others) = (registry.holder("1 hour").await, name(NEW, 1), name(NEW, 2));
    registry.create(&theirs, a).await;
    registry.create(&others, a).await;
    registry.ebb.db.execute(&format!("ALTER TABLE scratch.{theirs} OWNER TO {role}")).await;
    registry.ebb.db.execute(&format!("SELECT ebb.holder_close('{a}')")).await;
    assert_eq!(registry.passes("drop").await, 1);
    assert_eq!((registry.tables().await, registry.state(&others).await), (others.clone(), "blocked".into()));
    let owned = format!("REASSIGN OWNED BY {role} TO current_user; DROP OWNED BY {role}; DROP ROLE {role}");
    registry.ebb.db.execute(&owned).await;
}

/// The last reference that goes wakes the dropper: with an interval of a day nothing else would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_decref_wakes_the_dropper() {
    let registry = Registry::with("grace = \"0s\"\ndrop_every = \"24h\"").await;
    let (a, t, u) = (registry.holder("1 hour").await, name(NEW, 1), name(NEW, 2));
    registry.create(&t, a).await;
    registry.create(&u, a).await;
    let node = registry.ebb.start(&["s:drop"]);
    registry.ebb.until("SELECT next_at > ebb.now() + interval '1 hour' FROM ebb.unit WHERE chore = 'drop'").await;
    registry.decref(&t, a).await;
    registry.ebb.until(&format!("SELECT state = 'dropped' FROM ebb.resource WHERE name = '{t}'")).await;
    registry.ebb.db.execute(&format!("SELECT ebb.holder_close('{a}')")).await;
    registry.ebb.until(&format!("SELECT state = 'dropped' FROM ebb.resource WHERE name = '{u}'")).await;
    node.stop().await;
}

#[tokio::test]
async fn an_operator_ends_the_grace_but_not_the_use() {
    let registry = Registry::new().await;
    let (a, t) = (registry.holder("1 hour").await, name(NEW, 1));
    registry.create(&t, a).await;
    let drop_now = |name: String| {
        let database = registry.ebb.engine.database().clone();
        async move {
            let mut tx = database.read().await?;
            ebb::resources::drop_now(&mut tx, "s", &name, "test").await?;
            Ok::<_, ebb::Error>(tx.commit().await?)
        }
    };
    let error = drop_now(t.clone()).await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("in use by worker"), "{error}");
    assert!(drop_now(name(NEW, 5)).await.unwrap_err().is_usage());
    registry.decref(&t, a).await;
    drop_now(t.clone()).await.unwrap();
    assert_eq!(registry.passes("drop").await, 1);
    assert_eq!(registry.tables().await, "");
}

#[tokio::test]
async fn a_policy_over_a_schema_that_is_not_there_or_not_ours_is_refused() {
    let registry = Registry::new().await;
    let other = policy("").replace("scratch", "elsewhere");
    let missing = registry.ebb.try_apply(&other).await.unwrap_err();
    assert!(missing.is_refused() && missing.to_string().contains("elsewhere"), "{missing}");
    registry.ebb.db.execute("UPDATE scratch.ebb_owner SET installation = gen_random_uuid()").await;
    let foreign = registry.ebb.try_apply(&policy("grace = \"1m\"")).await.unwrap_err();
    assert!(foreign.is_refused() && foreign.to_string().contains("another installation"), "{foreign}");
}
