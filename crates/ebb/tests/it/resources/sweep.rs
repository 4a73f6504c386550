//! The sweeper: what nobody announced goes, and nothing else, whatever goes wrong around it.

use std::time::Duration;

use super::{Registry, name, policy};

const OLD: Duration = Duration::from_secs(2 * 3600);
const NEW: Duration = Duration::ZERO;

/// Two sweeps, a grace apart; how many went.
async fn twice(registry: &Registry) -> u64 {
    registry.passes("sweep").await;
    registry.ebb.db.advance("2 hours").await;
    registry.passes("sweep").await
}

async fn report(registry: &Registry, key: &str) -> String {
    registry.ebb.db.scalar(&format!("SELECT report ->> '{key}' FROM ebb.resource_store")).await
}

/// The document's first scenario: a worker died before anybody knew of its table.
#[tokio::test]
async fn what_nobody_announced_goes_once_it_was_seen_twice() {
    let registry = Registry::new().await;
    let (orphan, young, used) = (name(OLD, 1), name(NEW, 2), name(OLD, 3));
    let a = registry.holder("1 hour").await;
    registry.create(&used, a).await;
    registry.make(&orphan).await;
    registry.make("t_report").await;
    registry.make("users").await;
    // It is as if it were two hours from now for ids, so this one is of the future of that moment.
    registry.make(&young).await;
    registry.confirm().await;
    registry.passes("sweep").await;
    assert_eq!(report(&registry, "orphans").await, "1");
    registry.passes("sweep").await;
    assert!(registry.tables().await.contains(&orphan), "a grace must lie between two sightings");
    registry.ebb.db.advance("59 minutes").await;
    registry.passes("sweep").await;
    assert!(registry.tables().await.contains(&orphan), "and as long as it must be old, where the store tells no time");
    registry.ebb.db.advance("1 minute").await;
    assert_eq!(registry.passes("sweep").await, 1);
    let left = registry.tables().await;
    assert!(!left.contains(&orphan), "{left}");
    for stays in [young.as_str(), used.as_str(), "t_report", "users"] {
        assert!(left.contains(stays), "{stays} is gone: {left}");
    }
    assert_eq!((registry.state(&orphan).await, registry.audited("drop").await), ("dropped".into(), 1));
}

#[tokio::test]
async fn the_first_sweep_of_a_store_only_reports_until_somebody_confirms() {
    let registry = Registry::new().await;
    registry.make(&name(OLD, 1)).await;
    assert_eq!(twice(&registry).await, 0);
    assert_eq!(
        (report(&registry, "verdict").await, report(&registry, "ripe").await),
        ("unconfirmed".into(), "1".into())
    );
    registry.confirm().await;
    assert_eq!(registry.passes("sweep").await, 1);
    assert_eq!(registry.tables().await, "");
    // Another place is another store.
    registry.ebb.db.execute("CREATE SCHEMA elsewhere; SET search_path = elsewhere").await;
    registry.ebb.apply(&policy("grace = \"1h\"").replace("scratch", "elsewhere")).await;
    registry.ebb.db.execute(&format!("CREATE TABLE elsewhere.{} ()", name(OLD, 1))).await;
    assert_eq!(twice(&registry).await, 0);
    assert_eq!(report(&registry, "verdict").await, "unconfirmed");
}

#[tokio::test]
async fn a_clone_of_the_database_on_another_server_does_not_sweep() {
    let registry = Registry::new().await;
    registry.make(&name(OLD, 1)).await;
    registry.confirm().await;
    registry.ebb.db.execute("UPDATE ebb.resource_store SET confirmed_for = confirmed_for || '0'").await;
    assert_eq!(twice(&registry).await, 0);
    assert_eq!(report(&registry, "verdict").await, "unconfirmed");
}

#[tokio::test]
async fn a_store_that_is_not_ours_or_that_knows_more_than_we_do_is_not_swept() {
    let registry = Registry::new().await;
    registry.make(&name(OLD, 1)).await;
    registry.confirm().await;
    registry.passes("sweep").await;
    registry.ebb.db.advance("2 hours").await;
    // The database was restored from a backup of before that sweep.
    registry.ebb.db.execute("UPDATE ebb.resource_store SET generation = 0").await;
    for _ in 0..3 {
        assert!(registry.fails("sweep").await.contains("older backup"), "however often it is tried");
    }
    registry.ebb.db.execute("UPDATE scratch.ebb_owner SET installation = gen_random_uuid()").await;
    assert!(registry.fails("sweep").await.contains("another installation"));
    registry.ebb.db.execute("DROP TABLE scratch.ebb_owner").await;
    assert!(registry.fails("sweep").await.contains("not marked as ours"));
    assert_eq!(registry.tables().await.split(',').count(), 1);
    registry.ebb.apply(&policy("grace = \"61m\"")).await;
    assert_eq!(registry.passes("sweep").await, 1);
}

#[tokio::test]
async fn too_many_orphans_at_once_stop_the_sweep_until_they_are_allowed() {
    let registry = Registry::with("grace = \"1h\"\nmax_orphans = 3").await;
    for n in 0..5 {
        registry.make(&name(OLD, n)).await;
    }
    registry.confirm().await;
    assert_eq!(twice(&registry).await, 0);
    assert_eq!(report(&registry, "verdict").await, "breaker");
    let state: String = registry.ebb.db.scalar("SELECT state FROM ebb.v_policies WHERE name = 's'").await;
    let remedy: String = registry.ebb.db.scalar("SELECT remedy FROM ebb.v_policies WHERE name = 's'").await;
    assert_eq!((state.as_str(), remedy.as_str()), ("braked", "ebb resume s --allow 5"));
    let mut tx = registry.ebb.engine.database().read().await.unwrap();
    ebb::control::resume(&mut tx, "s", Some(5), "test").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(registry.passes("sweep").await, 5);
    let state: String = registry.ebb.db.scalar("SELECT state FROM ebb.v_policies WHERE name = 's'").await;
    assert_eq!((registry.tables().await.as_str(), state.as_str()), ("", "active"));
}

#[tokio::test]
async fn an_orphan_that_is_made_again_has_to_be_seen_twice_again() {
    let registry = Registry::new().await;
    let t = name(OLD, 1);
    registry.make(&t).await;
    registry.confirm().await;
    registry.passes("sweep").await;
    registry.ebb.db.execute(&format!("DROP TABLE scratch.{t}")).await;
    registry.make(&t).await;
    registry.ebb.db.advance("2 hours").await;
    assert_eq!(registry.passes("sweep").await, 0);
    assert_eq!(registry.tables().await, t);
    // Claimed, and made again before the drop: spared, and the name is free again.
    registry.ebb.db.advance("2 hours").await;
    registry
        .ebb
        .db
        .execute(&format!("INSERT INTO ebb.resource (policy, name, state, orphan, store_id) VALUES ('s', '{t}', 'dropping', true, '1')"))
        .await;
    assert_eq!(registry.passes("drop").await, 0);
    assert_eq!(
        (registry.tables().await, registry.state(&t).await, registry.audited("spare").await),
        (t.clone(), "-".into(), 1)
    );
    let a = registry.holder("1 hour").await;
    registry.intend(&t, a).await;
}

/// Announced between the listing and the claim: the announcement wins, or is told that the name is taken.
#[tokio::test]
async fn whoever_announces_an_orphans_name_first_keeps_it() {
    let registry = Registry::new().await;
    let t = name(OLD, 1);
    registry.make(&t).await;
    registry.confirm().await;
    registry.passes("sweep").await;
    registry.ebb.db.advance("2 hours").await;
    let a = registry.holder("1 hour").await;
    registry.intend(&t, a).await;
    assert_eq!(registry.passes("sweep").await, 0);
    assert_eq!((registry.tables().await, registry.state(&t).await), (t.clone(), "creating".into()));
    let seen: i64 = registry.ebb.db.scalar("SELECT count(*) FROM ebb.sighting").await;
    assert_eq!(seen, 0);
}

/// Two policies over one place would take each other's tables for orphans.
#[tokio::test]
async fn two_policies_over_one_place_are_refused_unless_their_names_differ() {
    let registry = Registry::new().await;
    let second = |pattern: &str, place: &str| {
        let more = policy("grace = \"0s\"").replace("\"s\"", "\"s2\"").replace("t{snowflake}", pattern);
        format!("{}\n{}", policy("grace = \"1h\""), more.replace("schema =", &format!("{place}schema =")))
    };
    for pattern in ["t{snowflake}", "tmp_{snowflake}", "{ulid}"] {
        let error = registry.ebb.try_apply(&second(pattern, "")).await.unwrap_err();
        assert!(error.is_refused() && error.to_string().contains("is looked after by s already"), "{pattern}: {error}");
    }
    registry.ebb.apply(&second("u{snowflake}", "")).await;
    // The same place by another name: nobody can tell, and still nothing that either of them knows is an orphan.
    registry.ebb.apply(&second("t{snowflake}", &format!("url = \"{}\"\n", registry.ebb.db.url()))).await;
    let (a, used, orphan) = (registry.holder("1 hour").await, name(OLD, 1), name(OLD, 2));
    registry.create(&used, a).await;
    registry.make(&orphan).await;
    let mut tx = registry.ebb.engine.database().read().await.unwrap();
    ebb::resources::confirm(&mut tx, "s2", "test").await.unwrap();
    tx.commit().await.unwrap();
    for _ in 0..2 {
        let finished = registry.ebb.once("s2:sweep").await;
        assert!(!finished.has_failed(), "{finished:?}");
        registry.ebb.db.advance("2 hours").await;
    }
    registry.ebb.once("s2:sweep").await;
    assert_eq!(registry.tables().await, used);
}

/// The same name in two stores is two resources.
#[tokio::test]
async fn a_name_may_live_in_two_stores() {
    let registry = Registry::with("grace = \"0s\"").await;
    registry.ebb.db.execute("CREATE SCHEMA other").await;
    let other = policy("grace = \"0s\"").replace("\"s\"", "\"s2\"").replace("scratch", "other");
    registry.ebb.apply(&format!("{}\n{other}", policy("grace = \"0s\""))).await;
    let (a, t) = (registry.holder("1 hour").await, name(NEW, 1));
    registry.create(&t, a).await;
    registry.ebb.db.execute(&format!("SELECT ebb.create_intent('s2', '{t}', '{a}'); CREATE TABLE other.{t} ()")).await;
    assert!(registry.ebb.db.scalar::<bool>(&format!("SELECT ebb.created('s2', '{t}')")).await);
    registry.decref(&t, a).await;
    assert_eq!(registry.passes("drop").await, 1);
    registry.ebb.once("s2:drop").await;
    let there: bool = registry.ebb.db.scalar(&format!("SELECT to_regclass('other.{t}') IS NOT NULL")).await;
    assert!(there && registry.tables().await.is_empty());
}
