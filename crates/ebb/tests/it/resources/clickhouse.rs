//! Tables in a real ClickHouse: the server that Debian ships, which knows no UUIDs, and a current engine, which does.

use std::time::Duration;

use ebb_testkit::{Store, eventually};

use super::{Registry, name};
use crate::harness::SOON;

const OLD: Duration = Duration::from_secs(2 * 3600);
const NEW: Duration = Duration::ZERO;

/// A database of its own in a store.
struct House {
    registry: Registry,
    store: &'static Store,
    database: String,
}

fn policy(url: &str, more: &str) -> String {
    format!(
        "[[resources]]\nname = \"s\"\ndriver = \"clickhouse\"\nurl = \"{url}\"\npattern = \"t{{snowflake}}\"\n{more}\n"
    )
}

impl House {
    async fn new(store: &'static Store, more: &str) -> Self {
        let database = format!("d{}", uuid::Uuid::new_v4().simple());
        store.query(&format!("CREATE DATABASE {database}")).await;
        let registry = Registry { ebb: crate::harness::Ebb::new().await };
        registry.ebb.apply(&policy(&format!("{}/?database={database}", store.url()), more)).await;
        Self { registry, store, database }
    }

    async fn make(&self, name: &str) {
        self.store
            .query(&format!("CREATE TABLE {}.{name} (x UInt32) ENGINE = MergeTree ORDER BY x", self.database))
            .await;
        self.store.query(&format!("INSERT INTO {}.{name} VALUES (1)", self.database)).await;
    }

    async fn create(&self, name: &str, holder: uuid::Uuid) {
        self.registry.intend(name, holder).await;
        self.make(name).await;
        assert!(self.registry.ebb.db.scalar::<bool>(&format!("SELECT ebb.created('s', '{name}')")).await);
    }

    async fn tables(&self) -> String {
        let sql = format!(
            "SELECT name FROM system.tables WHERE database = '{}' AND name <> 'ebb_owner' ORDER BY name FORMAT TabSeparated",
            self.database
        );
        self.store.query(&sql).await.replace('\n', ",")
    }

    async fn uuid(&self, name: &str) -> String {
        let (database, columns) = (&self.database, "name = 'uuid' AND database = 'system' AND table = 'tables'");
        if self.store.query(&format!("SELECT count() FROM system.columns WHERE {columns}")).await == "0" {
            return String::new();
        }
        self.store
            .query(&format!("SELECT uuid FROM system.tables WHERE database = '{database}' AND name = '{name}'"))
            .await
    }
}

/// The same with both.
async fn both(more: &str) -> Vec<House> {
    vec![House::new(Store::clickhouse(), more).await, House::new(Store::chdb(), more).await]
}

#[tokio::test]
async fn tables_go_when_nobody_refers_to_them() {
    for house in both("grace = \"0s\"").await {
        let registry = &house.registry;
        let (a, t, u) = (registry.holder("1 hour").await, name(NEW, 1), name(NEW, 2));
        house.create(&t, a).await;
        house.create(&u, a).await;
        registry.decref(&t, a).await;
        assert_eq!(registry.passes("drop").await, 1);
        assert_eq!((registry.state(&t).await.as_str(), house.tables().await), ("dropped", u.clone()));
        registry.ebb.db.execute(&format!("SELECT ebb.holder_close('{a}')")).await;
        assert_eq!(registry.passes("drop").await, 1);
        assert_eq!(house.tables().await, "");
    }
}

/// The id's age and the server's own time must both be old, and it is seen twice.
#[tokio::test]
async fn orphans_go_and_everything_else_stays() {
    for house in both("grace = \"1h\"\norphan_age = \"2s\"").await {
        let registry = &house.registry;
        let (orphan, used, young) = (name(OLD, 1), name(OLD, 2), name(Duration::ZERO, 3));
        let (a, report) = (registry.holder("1 hour").await, "SELECT report ->> 'orphans' FROM ebb.resource_store");
        house.create(&used, a).await;
        for t in [&orphan, &young, "t_report", "users"] {
            house.make(t).await;
        }
        registry.confirm().await;
        // Its id says two hours; the server says that it was made a moment ago.
        let at_once = registry.passes("sweep").await;
        assert_eq!(at_once, 0);
        eventually(SOON, || async {
            registry.passes("sweep").await;
            registry.ebb.db.scalar::<String>(report).await != "0"
        })
        .await;
        assert!(house.tables().await.contains(&orphan));
        registry.ebb.db.advance("61 minutes").await;
        registry.ebb.db.execute("UPDATE ebb.sighting SET first_seen = first_seen - interval '1 minute'").await;
        eventually(SOON, || async {
            registry.passes("sweep").await;
            !house.tables().await.contains(&orphan)
        })
        .await;
        let left = house.tables().await;
        for stays in [used.as_str(), "t_report", "users"] {
            assert!(left.contains(stays), "{left}");
        }
        assert_eq!(registry.state(&orphan).await, "dropped");
    }
}

/// Data that arrives shows that somebody uses it, whatever its definition's age.
#[tokio::test]
async fn an_orphan_that_is_written_to_is_left_alone() {
    for house in both("grace = \"0s\"\norphan_age = \"1s\"").await {
        let (registry, t) = (&house.registry, name(OLD, 1));
        house.make(&t).await;
        eventually(SOON, || async {
            registry.passes("sweep").await;
            registry.ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.sighting").await == 1
        })
        .await;
        registry.confirm().await;
        house.store.query(&format!("INSERT INTO {}.{t} VALUES (2)", house.database)).await;
        // The claim is what a sweep before the insert would have made.
        registry
            .ebb
            .db
            .execute(
                "INSERT INTO ebb.resource (policy, name, state, orphan, store_id, seen_modified)
                 SELECT policy, name, 'dropping', true, store_id, modified_at - interval '1 second' FROM ebb.sighting",
            )
            .await;
        registry.passes("drop").await;
        assert_eq!((house.tables().await, registry.audited("spare").await), (t, 1));
    }
}

#[tokio::test]
async fn a_table_made_again_has_another_uuid_and_survives() {
    let house = House::new(Store::chdb(), "grace = \"0s\"").await;
    let registry = &house.registry;
    let (a, t) = (registry.holder("1 hour").await, name(NEW, 1));
    registry.intend(&t, a).await;
    house.make(&t).await;
    let uuid = house.uuid(&t).await;
    assert_eq!(uuid.len(), 36);
    registry.ebb.db.execute(&format!("SELECT ebb.created('s', '{t}', '{uuid}')")).await;
    registry.decref(&t, a).await;
    house.store.query(&format!("DROP TABLE {}.{t} SYNC", house.database)).await;
    house.make(&t).await;
    registry.passes("drop").await;
    assert_eq!((registry.state(&t).await, house.tables().await), ("dropped".into(), t));
}

#[tokio::test]
async fn a_table_over_the_servers_drop_limit_is_blocked_with_its_message() {
    let house = House::new(Store::clickhouse(), "grace = \"0s\"").await;
    let registry = &house.registry;
    let (a, t) = (registry.holder("1 hour").await, name(NEW, 1));
    house.create(&t, a).await;
    let fill = format!("INSERT INTO {}.{t} SELECT rand() FROM system.numbers LIMIT 200000", house.database);
    house.store.query(&fill).await;
    registry.decref(&t, a).await;
    registry.passes("drop").await;
    let problem: String = registry.ebb.db.scalar("SELECT problem FROM ebb.resource").await;
    assert_eq!((registry.state(&t).await.as_str(), house.tables().await), ("blocked", t));
    assert!(problem.contains("max_table_size_to_drop"), "{problem}");
}

/// Down during a drop: retried, not forgotten, not marked as dropped.
#[tokio::test]
async fn a_store_that_is_away_is_waited_for() {
    let store: &'static Store = Box::leak(Box::new(Store::own_clickhouse()));
    let house = House::new(store, "grace = \"0s\"").await;
    let registry = &house.registry;
    let (a, t) = (registry.holder("1 hour").await, name(NEW, 1));
    house.create(&t, a).await;
    registry.decref(&t, a).await;
    let url: String = registry.ebb.db.scalar("SELECT spec ->> 'url' FROM ebb.policy WHERE kind = 'resources'").await;
    // A port where nobody listens.
    let nowhere = format!("http://127.0.0.1:1/?database={}", house.database);
    let move_to = |url: String| async move {
        registry
            .ebb
            .db
            .execute(&format!("UPDATE ebb.policy SET spec = spec || '{{\"url\": \"{url}\"}}' WHERE kind = 'resources'"))
            .await;
    };
    move_to(nowhere).await;
    for chore in ["drop", "sweep"] {
        let why = registry.fails(chore).await;
        assert!(why.contains("does not answer"), "{chore}: {why}");
    }
    assert_eq!((registry.state(&t).await.as_str(), house.tables().await), ("dropping", t.clone()));
    move_to(url).await;
    assert_eq!(registry.passes("drop").await, 1);
    assert_eq!((registry.state(&t).await.as_str(), house.tables().await.as_str()), ("dropped", ""));
}

/// However far the database's clock is ahead: what the store calls young is young.
#[tokio::test]
async fn clocks_that_differ_are_told_and_make_nothing_old() {
    for house in both("grace = \"0s\"\norphan_age = \"1h\"").await {
        let (registry, t) = (&house.registry, name(OLD, 1));
        house.make(&t).await;
        registry.confirm().await;
        for _ in 0..3 {
            registry.ebb.db.advance("1 day").await;
            registry.passes("sweep").await;
        }
        let report = |key: &str| format!("SELECT coalesce(report ->> '{key}', '') FROM ebb.resource_store");
        assert_eq!(registry.ebb.db.scalar::<String>(&report("orphans")).await, "0");
        let skew: String = registry.ebb.db.scalar(&report("clock_skew")).await;
        assert!(skew.contains("71h") || skew.contains("72h") || skew.contains('d'), "{skew}");
        assert_eq!(house.tables().await, t);
    }
}

/// A listing that breaks off is an error, however much of it arrived: what it does not show is not gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_breaks_off_is_no_listing() {
    let house = House::new(Store::clickhouse(), "grace = \"0s\"\norphan_age = \"1s\"").await;
    let registry = &house.registry;
    for n in 0..40 {
        house.make(&name(OLD, n)).await;
    }
    eventually(SOON, || async {
        registry.passes("sweep").await;
        registry.ebb.db.scalar::<i64>("SELECT count(*) FROM ebb.sighting").await == 40
    })
    .await;
    registry.confirm().await;
    // Everything but the end of long answers passes.
    let half = HalfWay::start(house.store.port()).await;
    registry
        .ebb
        .db
        .execute(&format!(
            "UPDATE ebb.policy SET spec = spec || '{{\"url\": \"http://127.0.0.1:{}/?database={}\"}}' WHERE kind = 'resources'",
            half.port, house.database
        ))
        .await;
    let why = registry.fails("sweep").await;
    assert!(why.contains("does not answer"), "{why}");
    let seen: i64 = registry.ebb.db.scalar("SELECT count(*) FROM ebb.sighting").await;
    assert_eq!((house.tables().await.split(',').count(), seen), (40, 40), "nothing was dropped or forgotten");
}

/// Forwards to a port, and closes when an answer has grown longer than a few lines.
struct HalfWay {
    port: u16,
}

impl HalfWay {
    const ENOUGH: u64 = 1500;

    async fn start(target: u16) -> Self {
        use tokio::io::{AsyncReadExt, copy};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let server = tokio::net::TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                    let (mut from_client, mut to_client) = client.into_split();
                    let (from_server, mut to_server) = server.into_split();
                    let mut half = from_server.take(Self::ENOUGH);
                    tokio::select! {
                        _ = copy(&mut from_client, &mut to_server) => {}
                        _ = copy(&mut half, &mut to_client) => {}
                    }
                });
            }
        });
        Self { port }
    }
}

/// A drop by mistake can be taken back for as long as the server keeps it.
#[tokio::test]
async fn a_dropped_table_can_be_undropped() {
    let house = House::new(Store::chdb(), "grace = \"0s\"").await;
    let (registry, t) = (&house.registry, name(NEW, 1));
    let a = registry.holder("1 hour").await;
    house.create(&t, a).await;
    registry.decref(&t, a).await;
    assert_eq!(registry.passes("drop").await, 1);
    assert_eq!(house.tables().await, "");
    house.store.query(&format!("UNDROP TABLE {}.{t}", house.database)).await;
    assert_eq!(house.store.query(&format!("SELECT count() FROM {}.{t}", house.database)).await, "1");
}

#[tokio::test]
async fn a_wrong_database_or_login_is_refused() {
    let store = Store::clickhouse();
    let house = House::new(store, "").await;
    let ebb = &house.registry.ebb;
    let error = ebb.try_apply(&policy(&format!("{}/?database=nope", store.url()), "")).await.unwrap_err();
    assert!(error.is_refused() && error.hint().unwrap().contains("CREATE DATABASE"), "{error}");
    let url = format!("{}/?database={}", store.url(), house.database);
    let error = ebb.try_apply(&policy(&url, "user = \"nobody\"")).await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("does not let this user in"), "{error}");
    let dir = ebb_testkit::TempDir::new();
    std::fs::write(dir.path().join("password"), "it's a secret\n").unwrap();
    let login = format!("user = \"worker\"\npassword = \"file:{}/password\"", dir.path().display());
    ebb.apply(&policy(&url, &login)).await;
    house.registry.passes("sweep").await;
    // Somebody else's installation has the same store.
    let other = super::another_installation().await;
    let error = other.try_apply(&policy(&url, "")).await.unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("another installation"), "{error}");
    // And a database without the marker is not swept: the URL was changed behind our back.
    store.query(&format!("DROP TABLE {}.ebb_owner", house.database)).await;
    assert!(house.registry.fails("sweep").await.contains("not marked as ours"));
}
