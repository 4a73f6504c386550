//! The protocol between those who refer and the one who drops: a reference is seen, or told that it came too late.

use std::time::Duration;

use ebb_testkit::eventually;
use serde_json::{Value, json};
use sqlx::Connection;
use uuid::Uuid;

use super::{Registry, name};
use crate::harness::{SOON, execute, fetch};

const NEW: Duration = Duration::ZERO;

async fn refused(registry: &Registry, sql: &str) -> (String, String) {
    let mut client = registry.ebb.client().await;
    let error = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut client).await.expect_err(sql);
    let db = error.into_database_error().unwrap();
    (db.code().unwrap().into_owned(), db.message().to_owned())
}

#[tokio::test]
async fn a_resource_lives_while_someone_refers_to_it() {
    let registry = Registry::new().await;
    let (a, b, t) = (registry.holder("1 hour").await, registry.holder("1 hour").await, name(NEW, 1));
    registry.intend(&t, a).await;
    assert_eq!((registry.state(&t).await, registry.refs(&t).await), ("creating".into(), 1));
    registry.intend(&t, a).await;
    registry.make(&t).await;
    assert!(
        registry
            .ebb
            .db
            .scalar::<bool>(&format!("SELECT ebb.created('s', '{t}', 'scratch.{t}'::regclass::oid::text)"))
            .await
    );
    assert!(
        registry.ebb.db.scalar::<bool>(&format!("SELECT ebb.created('s', '{t}')")).await,
        "saying it again is fine"
    );
    assert!(registry.incref(&t, b).await && registry.incref(&t, b).await);
    assert_eq!((registry.state(&t).await, registry.refs(&t).await), ("live".into(), 2));
    registry.decref(&t, a).await;
    registry.decref(&t, a).await;
    registry.passes("drop").await;
    assert_eq!(
        (registry.state(&t).await, registry.refs(&t).await),
        ("live".into(), 1),
        "twice counts once, and not for b"
    );
    registry.decref(&t, b).await;
    registry.passes("drop").await;
    assert_eq!((registry.state(&t).await, registry.tables().await), ("condemned".into(), t.clone()));
    registry.ebb.db.advance("2 hours").await;
    assert_eq!(registry.passes("drop").await, 1);
    assert_eq!((registry.state(&t).await, registry.tables().await), ("dropped".into(), String::new()));
    assert_eq!(registry.audited("drop").await, 1);
    assert!(!registry.incref(&t, a).await, "gone");
}

#[tokio::test]
async fn a_reference_in_time_rescues_and_one_too_late_is_told() {
    let registry = Registry::new().await;
    let (a, t) = (registry.holder("1 hour").await, name(NEW, 1));
    registry.create(&t, a).await;
    registry.decref(&t, a).await;
    registry.passes("drop").await;
    assert_eq!(registry.state(&t).await, "condemned");
    assert!(registry.incref(&t, a).await, "rescued");
    assert_eq!(registry.state(&t).await, "condemned", "an incref never writes the resource");
    registry.ebb.db.advance("2 hours").await;
    assert_eq!(registry.passes("drop").await, 0);
    assert_eq!((registry.state(&t).await, registry.tables().await), ("live".into(), t.clone()));
    registry.decref(&t, a).await;
    registry.ebb.db.execute(&format!("UPDATE ebb.resource SET state = 'dropping' WHERE name = '{t}'")).await;
    assert!(!registry.incref(&t, a).await);
    assert_eq!(registry.refs(&t).await, 0);
    assert!(!registry.incref(&name(NEW, 9), a).await, "unknown is gone, too");
}

/// The dropper passes by a resource that somebody is about to refer to, and sees the reference afterwards.
#[tokio::test]
async fn an_incref_under_way_is_seen_by_the_dropper() {
    let registry = Registry::with("grace = \"0s\"").await;
    let (a, b, t) = (registry.holder("1 hour").await, registry.holder("1 hour").await, name(NEW, 1));
    registry.create(&t, a).await;
    registry.decref(&t, a).await;
    let mut client = registry.ebb.client().await;
    let mut tx = client.begin().await.unwrap();
    assert!(fetch::<bool>(&mut tx, &format!("SELECT ebb.incref('s', '{t}', '{b}')")).await);
    assert_eq!(registry.passes("drop").await, 0);
    assert_eq!(registry.state(&t).await, "live", "passed by");
    tx.commit().await.unwrap();
    assert_eq!(registry.passes("drop").await, 0);
    assert_eq!((registry.state(&t).await, registry.tables().await), ("live".into(), t));
}

/// Lock, then look: whoever waits for the dropper reads what it decided.
#[tokio::test]
async fn an_incref_that_waits_for_the_dropper_hears_that_it_is_gone() {
    let registry = Registry::new().await;
    let (a, t) = (registry.holder("1 hour").await, name(NEW, 1));
    registry.create(&t, a).await;
    registry.decref(&t, a).await;
    registry.passes("drop").await;
    let mut dropper = registry.ebb.client().await;
    let mut tx = dropper.begin().await.unwrap();
    execute(&mut tx, &format!("SELECT FROM ebb.resource WHERE name = '{t}' FOR UPDATE")).await;
    execute(&mut tx, &format!("UPDATE ebb.resource SET state = 'dropping' WHERE name = '{t}'")).await;
    for begin in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"] {
        let mut waiting = registry.ebb.client().await;
        execute(&mut waiting, begin).await;
        let _: i32 = fetch(&mut waiting, "SELECT 1").await;
        let pid: i32 = fetch(&mut waiting, "SELECT pg_backend_pid()").await;
        let question = format!("SELECT ebb.incref('s', '{t}', '{a}')");
        let answer = tokio::spawn(async move {
            sqlx::query_scalar::<_, bool>(sqlx::AssertSqlSafe(question)).persistent(false).fetch_one(&mut waiting).await
        });
        let blocked =
            format!("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock')");
        eventually(SOON, || registry.ebb.db.scalar::<bool>(&blocked)).await;
        if begin == "BEGIN" {
            tx.commit().await.unwrap();
            assert!(!answer.await.unwrap().unwrap(), "gone");
            tx = dropper.begin().await.unwrap();
            execute(&mut tx, &format!("SELECT FROM ebb.resource WHERE name = '{t}' FOR UPDATE")).await;
            execute(&mut tx, &format!("UPDATE ebb.resource SET problem = 'x' WHERE name = '{t}'")).await;
        } else {
            tx.commit().await.unwrap();
            // Under a fixed snapshot there is no look at the present: an error, never a false yes.
            assert!(!matches!(answer.await.unwrap(), Ok(true)));
            break;
        }
    }
    assert_eq!(registry.refs(&t).await, 0);
}

#[tokio::test]
async fn a_dead_holder_stays_dead_and_loses_everything_a_third_later() {
    let registry = Registry::new().await;
    let (a, b) = (registry.holder("1 hour").await, registry.holder("1 hour").await);
    let (t, u) = (name(NEW, 1), name(NEW, 2));
    registry.create(&t, a).await;
    registry.create(&u, a).await;
    assert!(registry.incref(&u, b).await);
    registry.kill(a, "0.5").await;
    assert!(!registry.ebb.db.scalar::<bool>(&format!("SELECT ebb.holder_beat('{a}')")).await, "too late");
    assert_eq!(refused(&registry, &format!("SELECT ebb.incref('s', '{u}', '{a}')")).await.0, "55000");
    let (code, _) = refused(&registry, &format!("SELECT ebb.create_intent('s', '{}', '{a}')", name(NEW, 3))).await;
    assert_eq!(code, "55000");
    assert_eq!(registry.end_dead().await, 0, "not before a third of its term has passed");
    assert_eq!(registry.refs(&t).await, 1);
    registry.kill(a, "1.1").await;
    assert_eq!(registry.end_dead().await, 1);
    assert_eq!((registry.refs(&t).await, registry.refs(&u).await), (0, 1));
    registry.passes("drop").await;
    assert_eq!((registry.state(&t).await, registry.state(&u).await), ("condemned".into(), "live".into()));
    assert!(registry.ebb.db.scalar::<bool>(&format!("SELECT ebb.holder_beat('{b}')")).await);
    registry.ebb.db.execute(&format!("SELECT ebb.holder_close('{b}'); SELECT ebb.holder_close('{b}')")).await;
    assert_eq!(registry.refs(&u).await, 0);
    let held: i64 = registry.ebb.db.scalar("SELECT sum(rows)::int8 FROM ebb.audit WHERE action = 'holders'").await;
    assert_eq!(held, 1);
}

/// A reference that is not committed yet belongs to a living holder: it is not ended under its feet.
#[tokio::test]
async fn a_holder_is_not_ended_while_it_is_about_to_refer() {
    let registry = Registry::new().await;
    let (a, b, t) = (registry.holder("1 hour").await, registry.holder("1 hour").await, name(NEW, 1));
    registry.create(&t, b).await;
    let mut client = registry.ebb.client().await;
    let mut tx = client.begin().await.unwrap();
    assert!(fetch::<bool>(&mut tx, &format!("SELECT ebb.incref('s', '{t}', '{a}')")).await);
    registry.kill(a, "2").await;
    assert_eq!(registry.end_dead().await, 0, "passed by");
    tx.commit().await.unwrap();
    assert_eq!(registry.refs(&t).await, 2);
    assert_eq!(registry.end_dead().await, 1);
    assert_eq!(registry.refs(&t).await, 1);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_a_hint_and_changes_nothing() {
    let registry = Registry::new().await;
    let (a, b, t) = (registry.holder("1 hour").await, registry.holder("1 hour").await, name(NEW, 1));
    registry.create(&t, a).await;
    let nobody = Uuid::nil();
    for (sql, expected) in [
        ("SELECT ebb.holder_open('', '1 minute')".to_owned(), "22023"),
        ("SELECT ebb.holder_open('w', '0')".into(), "22023"),
        ("SELECT ebb.holder_open('w', '1 year')".into(), "22023"),
        ("SELECT ebb.holder_open('w', '1 minute', '[]')".into(), "22023"),
        (format!("SELECT ebb.create_intent('nope', '{t}', '{a}')"), "22023"),
        (format!("SELECT ebb.create_intent('s', 'users', '{a}')"), "22023"),
        (format!("SELECT ebb.create_intent('s', 't01', '{a}')"), "22023"),
        (format!("SELECT ebb.create_intent('s', '{t}', '{b}')"), "23505"),
        (format!("SELECT ebb.create_intent('s', '{}', '{nobody}')", name(NEW, 2)), "55000"),
        (format!("SELECT ebb.incref('nope', '{t}', '{a}')"), "22023"),
        (format!("SELECT ebb.incref('s', '{t}', '{nobody}')"), "55000"),
        (format!("SELECT ebb.incref('s', '{t}', NULL)"), "55000"),
        (format!("SELECT ebb.decref('nope', '{t}', '{a}')"), "22023"),
        ("SELECT ebb.apply_refs('{}')".into(), "22023"),
        ("SELECT ebb.apply_refs(NULL)".into(), "22023"),
        (
            format!(
                "SELECT ebb.apply_refs('[{{\"op\": \"up\", \"resources\": \"s\", \"name\": \"{t}\", \"holder\": \"{a}\"}}]')"
            ),
            "22023",
        ),
        (
            format!(
                "SELECT ebb.apply_refs('[{{\"op\": \"incref\", \"resources\": \"nope\", \"name\": \"{t}\", \"holder\": \"{a}\"}}]')"
            ),
            "22023",
        ),
    ] {
        assert_eq!(refused(&registry, &sql).await.0, expected, "{sql}");
    }
    registry.decref(&t, b).await;
    registry.decref(&name(NEW, 7), a).await;
    assert_eq!((registry.state(&t).await, registry.refs(&t).await), ("live".into(), 1));
    let resources: i64 = registry.ebb.db.scalar("SELECT count(*) FROM ebb.resource").await;
    assert_eq!(resources, 1);
}

/// A creator that was late, and somebody who refers to its resource in time, do not undo each other.
#[tokio::test]
async fn a_late_creator_hears_whether_somebody_rescued_it_or_gives_it_up_for_all() {
    let registry = Registry::new().await;
    let (late, rescued, given_up) = (registry.holder("1 hour").await, name(NEW, 1), name(NEW, 2));
    registry.intend(&rescued, late).await;
    registry.intend(&given_up, late).await;
    registry.kill(late, "2").await;
    registry.end_dead().await;
    registry.passes("drop").await;
    assert_eq!(registry.state(&rescued).await, "condemned");
    let b = registry.holder("1 hour").await;
    assert!(registry.incref(&rescued, b).await);
    let created = |t: String| {
        let db = &registry.ebb.db;
        async move { db.scalar::<bool>(&format!("SELECT ebb.created('s', '{t}')")).await }
    };
    assert!(created(rescued.clone()).await, "somebody refers to it");
    assert_eq!(registry.state(&rescued).await, "live");
    assert!(!created(given_up.clone()).await);
    assert_eq!(registry.state(&given_up).await, "dropping");
    assert!(!registry.incref(&given_up, b).await, "the creator has dropped it by now");
    assert!(!created("t1".into()).await, "nobody announced it");
}

#[tokio::test]
async fn a_name_is_used_once() {
    let registry = Registry::with("grace = \"0s\"").await;
    let (a, t) = (registry.holder("1 hour").await, name(NEW, 1));
    registry.create(&t, a).await;
    registry.decref(&t, a).await;
    assert_eq!(registry.passes("drop").await, 1);
    let (code, message) = refused(&registry, &format!("SELECT ebb.create_intent('s', '{t}', '{a}')")).await;
    assert_eq!((code.as_str(), message.contains("dropped already")), ("23505", true), "{message}");
    assert!(!registry.ebb.db.scalar::<bool>(&format!("SELECT ebb.created('s', '{t}')")).await);
    // Tombstones go like every history.
    registry.ebb.db.advance("31 days").await;
    registry.ebb.once("keep").await;
    assert_eq!(registry.state(&t).await, "-");
}

#[tokio::test]
async fn many_changes_at_once_are_like_one_after_the_other() {
    let registry = Registry::new().await;
    let (a, dead) = (registry.holder("1 hour").await, registry.holder("1 hour").await);
    let names: Vec<String> = (0..6).map(|n| name(NEW, n)).collect();
    for t in &names[..5] {
        registry.create(t, a).await;
    }
    registry.kill(dead, "0.5").await;
    registry.ebb.db.execute(&format!("UPDATE ebb.resource SET state = 'dropping' WHERE name = '{}'", names[4])).await;
    let b = registry.holder("1 hour").await;
    let change = |op: &str, t: &str, holder: Uuid| json!({ "op": op, "resources": "s", "name": t, "holder": holder });
    let changes = json!([
        change("incref", &names[0], b),
        change("decref", &names[0], a),
        change("incref", &names[1], b),
        change("decref", &names[1], b),
        change("decref", &names[2], b),
        change("incref", &names[2], b),
        change("incref", &names[3], dead),
        change("incref", &names[4], b),
        change("incref", &names[5], b),
    ]);
    let late: Value =
        sqlx::query_scalar("SELECT ebb.apply_refs($1)").bind(&changes).fetch_one(registry.ebb.db.pool()).await.unwrap();
    let mut reasons: Vec<(String, String)> = late
        .as_array()
        .unwrap()
        .iter()
        .map(|late| (late["name"].as_str().unwrap().to_owned(), late["reason"].as_str().unwrap().to_owned()))
        .collect();
    reasons.sort();
    let expected = [(3, "holder"), (4, "gone"), (5, "unknown")].map(|(n, why)| (names[n].clone(), why.to_owned()));
    assert_eq!(reasons, expected);
    let mut refs = Vec::new();
    for t in &names[..4] {
        refs.push(registry.refs(t).await);
    }
    assert_eq!(refs, [1, 1, 2, 1]);
    assert_eq!(registry.ebb.db.scalar::<Value>("SELECT ebb.apply_refs('[]')").await, json!([]));
}

/// Eight writers in every order, and the dropper at work: no deadlock, nothing dropped that a holder refers to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_in_any_order_do_not_deadlock_and_lose_nothing() {
    let registry = Registry::with("grace = \"0s\"\ndrop_every = \"1s\"").await;
    let keeper = registry.holder("1 hour").await;
    let names: Vec<String> = (0..40).map(|n| name(NEW, n)).collect();
    for t in &names {
        registry.create(t, keeper).await;
    }
    let node = registry.ebb.start(&["s"]);
    let mut writers = tokio::task::JoinSet::new();
    for seed in 0..8_usize {
        let (holder, names, pool) = (registry.holder("1 hour").await, names.clone(), registry.ebb.db.pool().clone());
        writers.spawn(async move {
            for round in 0..25_usize {
                let changes: Vec<Value> = (0..names.len())
                    .map(|i| {
                        let t = &names[(i * 7 + seed * 11 + round) % names.len()];
                        let op = if (i + round + seed) % 3 == 0 { "decref" } else { "incref" };
                        json!({ "op": op, "resources": "s", "name": t, "holder": holder })
                    })
                    .collect();
                let late: Value = sqlx::query_scalar("SELECT ebb.apply_refs($1)")
                    .bind(Value::from(changes))
                    .fetch_one(&pool)
                    .await
                    .unwrap();
                assert_eq!(late, json!([]));
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    registry.ebb.until("SELECT NOT EXISTS (SELECT FROM ebb.nudge)").await;
    assert_eq!(registry.tables().await.split(',').count(), 40);
    // Now all let go at once.
    registry.ebb.db.execute("SELECT ebb.holder_close(id) FROM ebb.holder").await;
    registry.ebb.until("SELECT count(*) = 40 FROM ebb.resource WHERE state = 'dropped'").await;
    assert_eq!(registry.tables().await, "");
    node.stop().await;
}

#[tokio::test]
async fn what_a_handler_flushes_ends_as_the_same_changes_of_any_mix_do() {
    let registry = Registry::new().await;
    let (maker, dead) = (registry.holder("1 hour").await, registry.holder("1 hour").await);
    let [live, gone, unknown] = [1, 2, 3].map(|n| name(NEW, n));
    for one in [&live, &gone] {
        registry.intend(one, maker).await;
    }
    let db = &registry.ebb.db;
    db.execute(&format!("UPDATE ebb.resource SET state = 'dropping' WHERE name = '{gone}'")).await;
    db.execute(&format!("UPDATE ebb.holder SET expires_at = '-infinity' WHERE id = '{dead}'")).await;
    for dead_holder in [false, true] {
        let (one, other) =
            if dead_holder { (dead, dead) } else { (registry.holder("1 hour").await, registry.holder("1 hour").await) };
        let changes: Vec<Value> = [&live, &gone, &unknown]
            .map(|name| json!({ "op": "incref", "resources": "s", "name": name, "holder": one }))
            .into_iter()
            .collect();
        let late: Value = db.scalar(&format!("SELECT ebb.apply_refs('{}')", Value::from(changes))).await;
        let mut mixed: Vec<(String, String)> = late
            .as_array()
            .unwrap()
            .iter()
            .map(|late| (late["name"].as_str().unwrap().to_owned(), late["reason"].as_str().unwrap().to_owned()))
            .collect();
        let mut flushed: Vec<(String, String)> =
            sqlx::query_as("SELECT late, reason FROM ebb.apply_refs_of('s', $1, $2, $3)")
                .bind(other)
                .bind([&live, &gone, &unknown].map(String::as_str).as_slice())
                .bind(Vec::<String>::new())
                .fetch_all(db.pool())
                .await
                .unwrap();
        mixed.sort();
        flushed.sort();
        assert_eq!(flushed, mixed, "dead: {dead_holder}");
        let refers = |holder: Uuid| format!("SELECT count(*) FROM ebb.reference WHERE holder = '{holder}'");
        assert_eq!(db.scalar::<i64>(&refers(other)).await, i64::from(!dead_holder));
        db.execute(&format!("SELECT * FROM ebb.apply_refs_of('s', '{other}', '{{}}', ARRAY['{live}', '{unknown}'])"))
            .await;
        assert_eq!(db.scalar::<i64>(&refers(other)).await, 0, "let go of, also by one that is dead");
    }
}
