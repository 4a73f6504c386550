//! once: of any number of callers one is first while a claim lives, whatever happens around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb::once::{Begun, Claim, Once, Work, remove_namespace, set_namespace};
use ebb_testkit::{TestDatabase, database, eventually};
use serde_json::json;
use sqlx::postgres::types::PgInterval;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};

const CLAIM: &str = "SELECT ebb.once($1, $2, $3::text::interval)";

async fn claim(pool: &PgPool, key: &str, ttl: &str) -> Result<String, sqlx::Error> {
    sqlx::query_scalar(CLAIM).bind("orders").bind(key).bind(ttl).fetch_one(pool).await
}

async fn claim_in(tx: &mut Transaction<'static, Postgres>, key: &str, ttl: &str) -> Result<String, sqlx::Error> {
    sqlx::query_scalar(CLAIM).bind("orders").bind(key).bind(ttl).fetch_one(&mut **tx).await
}

async fn many(pool: &PgPool, keys: &[String], ttl: &str) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT ebb.once_many('orders', $1, $2::text::interval)")
        .bind(keys)
        .bind(ttl)
        .fetch_all(pool)
        .await
}

/// A pool in which everybody can be at it at once.
async fn wide(db: &TestDatabase) -> PgPool {
    sqlx::postgres::PgPoolOptions::new().max_connections(50).connect(db.url()).await.unwrap()
}

/// The outcomes of as many callers at once as asked for, each in a transaction that begins as said.
async fn race(pool: &PgPool, callers: usize, begin: &'static str, key: &str, ttl: &'static str) -> Vec<String> {
    let barrier = Arc::new(tokio::sync::Barrier::new(callers));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let (pool, barrier, key) = (pool.clone(), barrier.clone(), key.to_owned());
        tasks.spawn(async move {
            let mut tx = pool.begin_with(begin).await.unwrap();
            // Its snapshot is taken before anybody's claim.
            sqlx::query("SELECT count(*) FROM pg_class").execute(&mut *tx).await.unwrap();
            barrier.wait().await;
            let outcome = claim_in(&mut tx, &key, ttl).await;
            match outcome {
                Ok(outcome) => tx.commit().await.map(|()| outcome).unwrap_or_else(code),
                Err(error) => code(error),
            }
        });
    }
    tasks.join_all().await
}

fn code(error: sqlx::Error) -> String {
    error.as_database_error().and_then(|db| db.code()).map_or_else(|| error.to_string(), |code| code.into_owned())
}

fn count(outcomes: &[String], outcome: &str) -> usize {
    outcomes.iter().filter(|one| *one == outcome).count()
}

/// Waits until this many sessions of the database wait for a lock.
async fn waiting(db: &TestDatabase, sessions: i64) {
    eventually(Duration::from_secs(20), || async {
        db.scalar::<i64>(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        .await
            == sessions
    })
    .await;
}

const READ_COMMITTED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
const REPEATABLE_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
const SERIALIZABLE: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE";

#[tokio::test(flavor = "multi_thread")]
async fn one_of_fifty_concurrent_callers_is_first() {
    let db = database().await;
    let pool = wide(&db).await;
    for round in 0..10 {
        let outcomes = race(&pool, 50, READ_COMMITTED, &format!("key-{round}"), "24 hours").await;
        assert_eq!((count(&outcomes, "first"), count(&outcomes, "duplicate")), (1, 49), "{outcomes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_is_first_or_a_serialization_error_never_two() {
    let db = database().await;
    let pool = wide(&db).await;
    for (round, begin) in [REPEATABLE_READ, SERIALIZABLE].into_iter().cycle().take(10).enumerate() {
        let key = format!("key-{round}");
        let outcomes = race(&pool, 40, begin, &key, "1 hour").await;
        assert_eq!(count(&outcomes, "first"), 1, "{outcomes:?}");
        assert_eq!(count(&outcomes, "duplicate") + count(&outcomes, "40001"), 39, "{outcomes:?}");
        // The same key again, past its term and not swept: an UPDATE decides instead of an INSERT.
        db.execute("UPDATE ebb.once_key SET expires_at = clock_timestamp()").await;
        let outcomes = race(&pool, 40, begin, &key, "1 hour").await;
        assert_eq!(count(&outcomes, "first"), 1, "{outcomes:?}");
        assert_eq!(count(&outcomes, "duplicate") + count(&outcomes, "40001"), 39, "{outcomes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_taker_gets_an_expired_key_that_was_not_swept() {
    let db = database().await;
    let pool = wide(&db).await;
    for round in 0..10 {
        let key = format!("key-{round}");
        assert_eq!(claim(&pool, &key, "1 hour").await.unwrap(), "first");
        db.advance("59 minutes 50 seconds").await;
        assert_eq!(claim(&pool, &key, "1 hour").await.unwrap(), "duplicate");
        db.advance("11 seconds").await;
        let outcomes = race(&pool, 50, READ_COMMITTED, &key, "1 hour").await;
        assert_eq!((count(&outcomes, "first"), count(&outcomes, "duplicate")), (1, 49), "{outcomes:?}");
    }
    let rows: i64 = db.scalar("SELECT count(*) FROM ebb.once_key").await;
    assert_eq!(rows, 10);
}

/// A term so short that it ends while they race, with and without a sweeper: claims that were first must lie a whole term
/// apart, by the server's clock around them.
#[tokio::test(flavor = "multi_thread")]
async fn claims_across_the_moment_of_expiry_lie_a_term_apart() {
    for sweep in [false, true] {
        let db = database().await;
        let pool = wide(&db).await;
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let (pool, stop) = (pool.clone(), stop.clone());
            tasks.spawn(async move {
                let mut firsts = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let (before, outcome, after): (f64, String, f64) = sqlx::query_as(
                        "SELECT extract(epoch FROM clock_timestamp())::float8, ebb.once('orders', 'k', '40 ms'),
                                extract(epoch FROM clock_timestamp())::float8",
                    )
                    .fetch_one(&pool)
                    .await
                    .unwrap();
                    assert!(outcome == "first" || outcome == "duplicate", "{outcome}");
                    if outcome == "first" {
                        firsts.push((before, after));
                    }
                }
                firsts
            });
        }
        let sweeper = {
            let (pool, stop) = (pool.clone(), stop.clone());
            tokio::spawn(async move {
                while sweep && !stop.load(Ordering::Relaxed) {
                    sqlx::query("DELETE FROM ebb.once_key WHERE expires_at <= ebb.clock()")
                        .execute(&pool)
                        .await
                        .unwrap();
                }
            })
        };
        tokio::time::sleep(Duration::from_secs(3)).await;
        stop.store(true, Ordering::Relaxed);
        sweeper.await.unwrap();
        let mut firsts: Vec<_> = tasks.join_all().await.concat();
        firsts.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(firsts.len() > 10, "only {} claims were first", firsts.len());
        for pair in firsts.windows(2) {
            // Each claimed somewhere between its `before` and its `after`, and who asked first may have claimed last.
            let apart = (pair[1].1 - pair[0].0).max(pair[0].1 - pair[1].0);
            assert!(apart >= 0.040, "two firsts inside one term: {pair:?}");
        }
    }
}

#[tokio::test]
async fn a_transaction_older_than_a_term_judges_by_the_time_of_its_claim() {
    let db = database().await;
    for begin in [READ_COMMITTED, REPEATABLE_READ] {
        let key = format!("key after {begin}");
        assert_eq!(claim(db.pool(), &key, "1 hour").await.unwrap(), "first");
        db.advance("0").await;
        let mut old = db.pool().begin_with(begin).await.unwrap();
        assert_eq!(claim_in(&mut old, &key, "1 hour").await.unwrap(), "duplicate");
        // now() of this transaction stays where it is; the key's time passes.
        db.execute(&format!("UPDATE ebb.once_key SET expires_at = clock_timestamp() WHERE key = '{key}'")).await;
        let later = claim_in(&mut old, &key, "1 hour").await;
        match begin {
            READ_COMMITTED => assert_eq!(later.unwrap(), "first"),
            // Its snapshot shows the row as it was, and the index knows better.
            _ => assert_eq!(later.unwrap_or_else(code), "40001"),
        }
        old.commit().await.unwrap();
    }
    // The claim's own term may be shorter than its transaction.
    let mut long = db.pool().begin_with(READ_COMMITTED).await.unwrap();
    assert_eq!(claim_in(&mut long, "short", "20 ms").await.unwrap(), "first");
    sqlx::query("SELECT pg_sleep(0.03)").execute(&mut *long).await.unwrap();
    let pool = db.pool().clone();
    let other = tokio::spawn(async move { claim(&pool, "short", "1 hour").await });
    waiting(&db, 1).await;
    long.commit().await.unwrap();
    assert_eq!(other.await.unwrap().unwrap(), "first");
}

#[tokio::test]
async fn the_loser_of_an_aborted_winner_is_first_with_a_fresh_expiry() {
    let db = database().await;
    for taken_over in [false, true] {
        db.execute("DELETE FROM ebb.once_key").await;
        if taken_over {
            db.execute("INSERT INTO ebb.once_key (namespace, key, expires_at) VALUES ('orders', 'k', '-infinity')")
                .await;
        }
        let mut winner = db.pool().begin_with(READ_COMMITTED).await.unwrap();
        assert_eq!(claim_in(&mut winner, "k", "1 hour").await.unwrap(), "first");
        let pool = db.pool().clone();
        let loser = tokio::spawn(async move { claim(&pool, "k", "1 hour").await });
        let aborted_at = abort_after_a_while(&db, winner).await;
        assert_eq!(loser.await.unwrap().unwrap(), "first");
        let expires_at: f64 = db.scalar("SELECT extract(epoch FROM expires_at)::float8 FROM ebb.once_key").await;
        // Counted from before the wait, a term shorter than the wait would be over at birth.
        assert!(expires_at >= aborted_at + 3600.0, "{} s early", aborted_at + 3600.0 - expires_at);
    }
}

/// Lets the one who waits for this transaction wait, then gives up; says when, in seconds by the server's clock.
async fn abort_after_a_while(db: &TestDatabase, winner: Transaction<'static, Postgres>) -> f64 {
    waiting(db, 1).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    let aborted_at = db.scalar("SELECT extract(epoch FROM clock_timestamp())::float8").await;
    winner.rollback().await.unwrap();
    aborted_at
}

#[tokio::test]
async fn the_loser_of_an_aborted_batch_has_a_fresh_expiry_too() {
    let db = database().await;
    let mut winner = db.pool().begin_with(READ_COMMITTED).await.unwrap();
    assert_eq!(claim_in(&mut winner, "b", "1 hour").await.unwrap(), "first");
    let pool = db.pool().clone();
    let keys = ["c", "b", "a"].map(String::from);
    let loser = tokio::spawn(async move { many(&pool, &keys, "1 hour").await });
    let aborted_at = abort_after_a_while(&db, winner).await;
    assert_eq!(loser.await.unwrap().unwrap(), ["a", "b", "c"]);
    let expires_at: f64 = db.scalar("SELECT extract(epoch FROM min(expires_at))::float8 FROM ebb.once_key").await;
    // A batch tolerates a tenth of a second, so that a long one is not written twice.
    assert!(expires_at >= aborted_at + 3599.9, "{} s early", aborted_at + 3600.0 - expires_at);
}

#[tokio::test(flavor = "multi_thread")]
async fn winners_that_abort_leave_exactly_one_claim() {
    let db = database().await;
    let pool = wide(&db).await;
    for round in 0..10 {
        let key = format!("key-{round}");
        let mut tasks = tokio::task::JoinSet::new();
        for caller in 0..30 {
            let (pool, key) = (pool.clone(), key.clone());
            tasks.spawn(async move {
                let mut tx = pool.begin_with(READ_COMMITTED).await.unwrap();
                let outcome = claim_in(&mut tx, &key, "1 hour").await.unwrap();
                if outcome == "first" && caller % 3 != 0 {
                    tx.rollback().await.unwrap();
                    return "aborted".to_owned();
                }
                tx.commit().await.unwrap();
                outcome
            });
        }
        let outcomes = tasks.join_all().await;
        assert_eq!(count(&outcomes, "first"), 1, "{outcomes:?}");
    }
}

#[tokio::test]
async fn the_same_key_with_another_fingerprint_is_a_mismatch() {
    let db = database().await;
    let orders = Once::new(db.open(), "orders");
    let (one, other) = (orders.clone().fingerprint("body one"), orders.clone().fingerprint("body two"));
    assert_eq!(one.claim("k").await.unwrap(), Claim::First);
    assert_eq!(one.claim("k").await.unwrap(), Claim::Duplicate { result: None });
    assert_eq!(other.claim("k").await.unwrap(), Claim::Mismatch);
    assert_eq!(orders.claim("k").await.unwrap(), Claim::Duplicate { result: None });
    assert!(matches!(other.begin("k").await.unwrap(), Begun::Mismatch));
    // A claim without one cannot be contradicted, and a term that ended takes the fingerprint with it.
    assert_eq!(orders.claim("plain").await.unwrap(), Claim::First);
    assert_eq!(other.claim("plain").await.unwrap(), Claim::Duplicate { result: None });
    db.advance("25 hours").await;
    assert_eq!(other.claim("k").await.unwrap(), Claim::First);
    assert_eq!(one.claim("k").await.unwrap(), Claim::Mismatch);
}

async fn begin(once: &Once, key: &str) -> Work {
    match once.begin(key).await.unwrap() {
        Begun::First(work) => work,
        other => panic!("not first: {other:?}"),
    }
}

#[tokio::test]
async fn work_in_flight_is_in_progress_then_its_result_is_replayed() {
    let db = database().await;
    let orders = Once::new(db.open(), "orders");
    let work = begin(&orders, "k").await;
    assert!(matches!(orders.begin("k").await.unwrap(), Begun::InProgress));
    assert_eq!(orders.claim("k").await.unwrap(), Claim::InProgress);
    assert_eq!(orders.claim_many(&["k"]).await.unwrap(), Vec::<String>::new());
    let result = json!({"order": 17});
    assert!(work.complete(Some(&result)).await.unwrap());
    assert!(work.complete(Some(&result)).await.unwrap(), "the same again, after an answer that got lost");
    assert!(!work.complete(Some(&json!("other"))).await.unwrap());
    assert!(!work.release().await.unwrap(), "what is completed stays");
    assert_eq!(orders.claim("k").await.unwrap(), Claim::Duplicate { result: Some(result.clone()) });
    assert!(matches!(orders.begin("k").await.unwrap(), Begun::Duplicate { result: Some(value) } if value == result));
    // Completing extended the minute of the lock to the term.
    db.advance("23 hours").await;
    assert_eq!(orders.result("k").await.unwrap(), Some(result));
    db.advance("2 hours").await;
    assert_eq!(orders.result("k").await.unwrap(), None);
    assert!(!work.complete(None).await.unwrap());
    assert_eq!(orders.claim("k").await.unwrap(), Claim::First);
}

#[tokio::test]
async fn a_take_over_raises_the_token_and_fences_the_one_before() {
    let db = database().await;
    let orders = Once::new(db.open(), "orders");
    for swept in [false, true] {
        let key = format!("swept {swept}");
        let slow = begin(&orders, &key).await;
        db.advance("59 seconds").await;
        assert!(matches!(orders.begin(&key).await.unwrap(), Begun::InProgress));
        db.advance("2 seconds").await;
        if swept {
            db.execute("DELETE FROM ebb.once_key WHERE expires_at <= ebb.clock()").await;
        }
        let quick = begin(&orders, &key).await;
        assert!(quick.token() > slow.token());
        assert!(!slow.complete(Some(&json!("slow"))).await.unwrap());
        assert!(!slow.release().await.unwrap());
        assert!(quick.complete(Some(&json!("quick"))).await.unwrap());
        assert_eq!(orders.result(&key).await.unwrap(), Some(json!("quick")));
    }
    // A lock term that ended alone is no take-over.
    let late = begin(&orders, "late").await;
    db.advance("5 minutes").await;
    assert!(late.complete(None).await.unwrap());
    assert_eq!(orders.claim("late").await.unwrap(), Claim::Duplicate { result: None });
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_takes_over_a_lapsed_claim() {
    let db = database().await;
    let pool = wide(&db).await;
    let orders = Once::new(db.open(), "orders");
    for round in 0..5 {
        let key = format!("key-{round}");
        let first = begin(&orders, &key).await;
        db.advance("61 seconds").await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let (pool, key) = (pool.clone(), key.clone());
            tasks.spawn(async move {
                sqlx::query_as::<_, (String, Option<i64>)>("SELECT * FROM ebb.once_begin('orders', $1)")
                    .bind(&key)
                    .fetch_one(&pool)
                    .await
                    .unwrap()
            });
        }
        let outcomes = tasks.join_all().await;
        let takers: Vec<_> = outcomes.iter().filter(|(outcome, _)| outcome == "first").collect();
        assert_eq!(takers.len(), 1, "{outcomes:?}");
        assert!(takers[0].1.unwrap() > first.token());
        assert!(
            outcomes.iter().all(|(outcome, token)| outcome == "first" || (outcome == "in_progress" && token.is_none()))
        );
    }
}

#[tokio::test]
async fn released_work_is_first_again() {
    let db = database().await;
    let orders = Once::new(db.open(), "orders");
    let work = begin(&orders, "k").await;
    assert!(!orders.work("k", work.token() + 1).release().await.unwrap());
    assert!(orders.work("k", work.token()).release().await.unwrap());
    assert!(!work.release().await.unwrap());
    let again = begin(&orders, "k").await;
    assert!(again.token() > work.token());
    assert!(!work.complete(None).await.unwrap());
}

#[tokio::test]
async fn a_namespace_has_its_own_terms() {
    let db = database().await;
    let handle = db.open();
    let orders = Once::new(handle.clone(), "orders");
    let minutes = |n: i64| PgInterval { months: 0, days: 0, microseconds: n * 60_000_000 };
    let mut tx = handle.read().await.unwrap();
    set_namespace(&mut tx, "orders", minutes(30), minutes(10)).await.unwrap();
    set_namespace(&mut tx, "orders", minutes(60), minutes(10)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(orders.claim("k").await.unwrap(), Claim::First);
    assert_eq!(orders.claim_many(&["m"]).await.unwrap(), ["m"]);
    assert_eq!(orders.clone().ttl(Duration::from_secs(7200)).claim("longer").await.unwrap(), Claim::First);
    let work = begin(&orders, "w").await;
    db.advance("9 minutes").await;
    assert_eq!(orders.claim("w").await.unwrap(), Claim::InProgress);
    assert!(work.complete(None).await.unwrap());
    db.advance("50 minutes").await;
    assert_eq!(orders.claim("k").await.unwrap(), Claim::Duplicate { result: None });
    assert_eq!(orders.claim("m").await.unwrap(), Claim::Duplicate { result: None });
    db.advance("2 minutes").await;
    assert_eq!(orders.claim_many(&["k", "m", "longer", "w"]).await.unwrap(), ["k", "m"]);
    let mut tx = handle.read().await.unwrap();
    remove_namespace(&mut tx, "orders").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(orders.claim("default").await.unwrap(), Claim::First);
    db.advance("23 hours 59 minutes").await;
    assert_eq!(orders.claim("default").await.unwrap(), Claim::Duplicate { result: None });
    db.advance("2 minutes").await;
    assert_eq!(orders.claim("default").await.unwrap(), Claim::First);
}

#[tokio::test]
async fn a_claim_belongs_to_the_callers_transaction() {
    let db = database().await;
    let handle = db.open();
    let orders = Once::new(handle.clone(), "orders");
    let mut tx = handle.read().await.unwrap();
    assert_eq!(orders.claim_in(&mut tx, "k").await.unwrap(), Claim::First);
    assert_eq!(orders.claim_in(&mut tx, "k").await.unwrap(), Claim::Duplicate { result: None });
    tx.rollback().await.unwrap();
    let mut tx = handle.read().await.unwrap();
    assert_eq!(orders.claim_in(&mut tx, "k").await.unwrap(), Claim::First);
    // Nobody knows yet whether it will stand; whoever asks waits, and then is told that somebody is at it.
    assert_eq!(orders.claim("k").await.unwrap(), Claim::InProgress);
    tx.commit().await.unwrap();
    assert_eq!(orders.claim("k").await.unwrap(), Claim::Duplicate { result: None });
}

#[tokio::test]
async fn any_key_up_to_a_kilobyte_works() {
    let db = database().await;
    let orders = Once::new(db.open(), "orders");
    let long = ["k".repeat(1024), "ü".repeat(512), "🌊".repeat(256)];
    let odd =
        [" ", "'; DROP TABLE ebb.once_key; --", "a\nb", "\u{feff}", "%_\\", "é", "e\u{301}", "A", "a", "{}", "NULL"];
    for key in long.iter().map(String::as_str).chain(odd) {
        assert_eq!(orders.claim(key).await.unwrap(), Claim::First, "{key:?}");
        assert_eq!(orders.claim(key).await.unwrap(), Claim::Duplicate { result: None }, "{key:?}");
        assert_eq!(orders.claim_many(&[key]).await.unwrap(), Vec::<String>::new(), "{key:?}");
        db.execute("DELETE FROM ebb.once_key").await;
        assert_eq!(orders.claim_many(&[key, key]).await.unwrap(), [key]);
    }
    for namespace in ["a", "A-b_9", &"n".repeat(63)] {
        assert_eq!(Once::new(db.open(), namespace).claim("k").await.unwrap(), Claim::First);
    }
}

#[tokio::test]
async fn bad_input_is_an_error_with_a_hint_and_changes_nothing() {
    let db = database().await;
    let long = "k".repeat(1025);
    let mut statements = Vec::new();
    for namespace in ["''", "NULL", "'a b'", "'é'", "repeat('n', 64)", "'a.b'", "E'a\\n'"] {
        statements.push(format!("SELECT ebb.once({namespace}, 'k')"));
        statements.push(format!("SELECT ebb.once_many({namespace}, ARRAY['k'])"));
        statements.push(format!("SELECT ebb.once_begin({namespace}, 'k')"));
        statements.push(format!("SELECT ebb.once_result({namespace}, 'k')"));
    }
    for key in ["''", "NULL", &format!("'{long}'"), "repeat('ü', 513)"] {
        statements.push(format!("SELECT ebb.once('orders', {key})"));
        statements.push(format!("SELECT ebb.once_many('orders', ARRAY['fine', {key}])"));
        statements.push(format!("SELECT ebb.once_begin('orders', {key})"));
        statements.push(format!("SELECT ebb.once_complete('orders', {key}, 1, NULL)"));
        statements.push(format!("SELECT ebb.once_release('orders', {key}, 1)"));
        statements.push(format!("SELECT ebb.once_result('orders', {key})"));
    }
    for ttl in ["0", "-1 second", "1 day -24 hours"] {
        statements.push(format!("SELECT ebb.once('orders', 'k', '{ttl}')"));
        statements.push(format!("SELECT ebb.once_many('orders', ARRAY['k'], '{ttl}')"));
        statements.push(format!("SELECT ebb.once_begin('orders', 'k', '{ttl}')"));
    }
    statements.push("SELECT ebb.once_many('orders', NULL)".to_owned());
    for statement in statements {
        let error = sqlx::raw_sql(AssertSqlSafe(statement.as_str())).execute(db.pool()).await.unwrap_err();
        let error = error.into_database_error().unwrap().downcast::<sqlx::postgres::PgDatabaseError>();
        assert_eq!(error.code(), "22023", "{statement}: {error}");
        assert!(error.hint().is_some(), "{statement}");
    }
    let orders = Once::new(db.open(), "orders");
    for key in ["", &long, "zero\0byte"] {
        for error in [orders.claim(key).await.unwrap_err(), orders.claim_many(&[key]).await.unwrap_err()] {
            assert!(error.is_usage() && error.hint().is_some(), "{error:?}");
        }
    }
    assert!(orders.clone().ttl(Duration::ZERO).claim("k").await.unwrap_err().is_usage());
    assert!(orders.clone().ttl(Duration::MAX).claim("k").await.unwrap_err().is_usage());
    assert_eq!(orders.claim_many::<&str>(&[]).await.unwrap(), Vec::<String>::new());
    let rows: i64 = db.scalar("SELECT count(*) FROM ebb.once_key").await;
    assert_eq!(rows, 0);
}

#[tokio::test]
async fn a_batch_tolerates_repeats_and_takes_what_is_expired() {
    let db = database().await;
    let orders = Once::new(db.open(), "orders");
    assert_eq!(orders.claim_many(&["b", "a", "b", "C", "a"]).await.unwrap(), ["C", "a", "b"]);
    assert_eq!(orders.claim_many(&["b", "d", "d"]).await.unwrap(), ["d"]);
    db.advance("25 hours").await;
    assert_eq!(orders.clone().fingerprint("x").claim("a").await.unwrap(), Claim::First);
    assert_eq!(orders.claim_many(&["d", "a", "b"]).await.unwrap(), ["b", "d"]);
    assert_eq!(orders.claim("b").await.unwrap(), Claim::Duplicate { result: None });
}

/// Overlapping lists in any order, with claims one by one, a sweeper, and terms that end meanwhile: nobody deadlocks.
#[tokio::test(flavor = "multi_thread")]
async fn overlapping_batches_never_deadlock_and_each_key_has_one_winner() {
    let db = database().await;
    let pool = wide(&db).await;
    for round in 0..6 {
        db.execute("UPDATE ebb.once_key SET expires_at = clock_timestamp() WHERE hashtext(key) % 2 = 0").await;
        db.execute("DELETE FROM ebb.once_key WHERE expires_at > clock_timestamp()").await;
        let stop = Arc::new(AtomicBool::new(false));
        let sweeper = {
            let (pool, stop) = (pool.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let sweep = "DELETE FROM ebb.once_key WHERE ctid = ANY (ARRAY(SELECT ctid FROM ebb.once_key
                                 WHERE expires_at <= ebb.clock() LIMIT 5 FOR UPDATE SKIP LOCKED)) AND expires_at <= ebb.clock()";
                    sqlx::query(sweep).execute(&pool).await.unwrap();
                }
            })
        };
        let mut tasks = tokio::task::JoinSet::new();
        for caller in 0..24_u64 {
            let pool = pool.clone();
            tasks.spawn(async move {
                // Everybody asks for the same 300 keys, each in an order of their own.
                let mut keys: Vec<String> = (0..300).map(|n| format!("k{n}")).collect();
                keys.sort_by_key(|key| {
                    key.bytes().fold(caller * 7919 + round, |hash, byte| {
                        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
                    })
                });
                many(&pool, &keys, "1 hour").await.map_err(code)
            });
        }
        let mut won: Vec<String> = tasks.join_all().await.into_iter().map(Result::unwrap).collect::<Vec<_>>().concat();
        stop.store(true, Ordering::Relaxed);
        sweeper.await.unwrap();
        won.sort();
        let total = won.len();
        won.dedup();
        assert_eq!((won.len(), total), (300, 300));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_under_repeatable_read_have_one_winner_or_a_serialization_error() {
    let db = database().await;
    let pool = wide(&db).await;
    let keys: Vec<String> = (0..50).map(|n| format!("k{n}")).collect();
    for _ in 0..5 {
        let barrier = Arc::new(tokio::sync::Barrier::new(20));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (pool, keys, barrier) = (pool.clone(), keys.clone(), barrier.clone());
            tasks.spawn(async move {
                let mut tx = pool.begin_with(REPEATABLE_READ).await.unwrap();
                sqlx::query("SELECT count(*) FROM pg_class").execute(&mut *tx).await.unwrap();
                barrier.wait().await;
                let won = sqlx::query_scalar::<_, String>("SELECT ebb.once_many('orders', $1)")
                    .bind(&keys)
                    .fetch_all(&mut *tx)
                    .await;
                match won {
                    Ok(won) => tx.commit().await.map(|()| won.len()).map_err(code),
                    Err(error) => Err(code(error)),
                }
            });
        }
        let outcomes = tasks.join_all().await;
        assert_eq!(outcomes.iter().filter_map(|won| won.as_ref().ok()).sum::<usize>(), 50, "{outcomes:?}");
        assert!(outcomes.iter().all(|won| won.as_ref().err().is_none_or(|code| code == "40001")), "{outcomes:?}");
        db.execute("UPDATE ebb.once_key SET expires_at = clock_timestamp()").await;
    }
}

#[tokio::test]
async fn a_plan_made_on_an_empty_table_does_not_scan_a_full_one() {
    let db = database().await;
    db.execute("VACUUM ANALYZE ebb.once_key").await;
    let mut tx = db.pool().begin().await.unwrap();
    for _ in 0..20 {
        for statement in [
            "SELECT ebb.once('orders', 'k')",
            "SELECT ebb.once('orders', 'gone', '1 us')",
            "SELECT ebb.once_many('orders', ARRAY['k', 'l'])",
            "SELECT ebb.once_begin('orders', 'k')",
        ] {
            sqlx::raw_sql(statement).execute(&mut *tx).await.unwrap();
        }
    }
    let scans: i64 =
        sqlx::query_scalar("SELECT seq_scan FROM pg_stat_xact_all_tables WHERE relid = 'ebb.once_key'::regclass")
            .fetch_one(&mut *tx)
            .await
            .unwrap();
    assert_eq!(scans, 0);
}

/// The functions run with their owner's rights: nothing a caller can put in front of the catalog may be called by them.
#[tokio::test]
async fn a_callers_search_path_does_not_reach_into_the_functions() {
    let db = database().await;
    db.execute(
        "CREATE SCHEMA evil;
         CREATE FUNCTION evil.no(text, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''reached''; END';
         CREATE OPERATOR evil.= (FUNCTION = evil.no, LEFTARG = text, RIGHTARG = text);
         CREATE FUNCTION evil.octet_length(text) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''reached''; END';
         CREATE FUNCTION evil.translate(text, text, text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''reached''; END';
         CREATE FUNCTION evil.nextval(regclass) RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''reached''; END';
         CREATE FUNCTION evil.ts(timestamptz, timestamptz) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''reached''; END';
         CREATE OPERATOR evil.<= (FUNCTION = evil.ts, LEFTARG = timestamptz, RIGHTARG = timestamptz);
         CREATE OPERATOR evil.> (FUNCTION = evil.ts, LEFTARG = timestamptz, RIGHTARG = timestamptz)",
    )
    .await;
    let mut tx = db.pool().begin().await.unwrap();
    sqlx::raw_sql(
        "SET LOCAL search_path = evil, pg_catalog;
         CREATE TEMP TABLE once_key (x int); CREATE TYPE pg_temp.timestamptz AS (x int)",
    )
    .execute(&mut *tx)
    .await
    .unwrap();
    for statement in [
        "SELECT ebb.once('a', 'k')",
        "SELECT ebb.once('a', 'k', '1 hour', 'x')",
        "SELECT ebb.once_many('a', ARRAY['k', 'l'])",
        "SELECT ebb.once_begin('a', 'w')",
        "SELECT ebb.once_complete('a', 'w', 1, '1')",
        "SELECT ebb.once_release('a', 'w', 1)",
        "SELECT ebb.once_result('a', 'w')",
    ] {
        sqlx::raw_sql(statement).execute(&mut *tx).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

#[tokio::test]
async fn an_application_may_claim_and_nothing_else() {
    let db = database().await;
    let role = format!("app_{}", db.name());
    // Roles belong to the whole server, so the test grants what grants.sql would to a role of its own.
    db.execute(&format!(
        "CREATE ROLE {role}; GRANT USAGE ON SCHEMA ebb TO {role};
         GRANT EXECUTE ON FUNCTION ebb.once(text, text, interval, bytea) TO {role}"
    ))
    .await;
    let mut tx = db.pool().begin().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("SET LOCAL ROLE {role}"))).execute(&mut *tx).await.unwrap();
    assert_eq!(claim_in(&mut tx, "k", "1 hour").await.unwrap(), "first");
    let error = sqlx::raw_sql("SELECT FROM ebb.once_key").execute(&mut *tx).await.unwrap_err();
    assert_eq!(code(error), "42501");
    tx.rollback().await.unwrap();
    let mut tx = db.pool().begin().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("SET LOCAL ROLE {role}"))).execute(&mut *tx).await.unwrap();
    let error = sqlx::raw_sql("SELECT ebb.once_begin('orders', 'k')").execute(&mut *tx).await.unwrap_err();
    assert_eq!(code(error), "42501");
    tx.rollback().await.unwrap();
    db.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}
