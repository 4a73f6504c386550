//! Handles in a program: what they count is what stands in the registry, and nothing they do can hurt.

use std::sync::Arc;
use std::time::Duration;

use ebb::pg::{Database, Target};
use ebb::resources::driver::PostgresDriver;
use ebb::resources::{Context, LifecycleHandler, LocalHandler, PostgresHandler, Worker};
use ebb_testkit::{Proxy, server};
use serde_json::json;

use super::{Registry, name};
use crate::harness::SOON;

const NEW: Duration = Duration::ZERO;

async fn start(registry: &Registry) -> PostgresHandler {
    PostgresHandler::start(registry.ebb.db.open(), "s", Worker::new("rust")).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_count_here_and_stand_there_as_one_reference() {
    let registry = Registry::new().await;
    let (handler, t) = (start(&registry).await, name(NEW, 1));
    let handle = handler.announce(&t, json!({ "job": "1" })).await.unwrap();
    registry.make(&t).await;
    handler.created(&handle, None).await.unwrap();
    assert_eq!((registry.state(&t).await, registry.refs(&t).await), ("live".into(), 1));
    // From a thread that knows no runtime.
    let clones = std::thread::spawn({
        let handle = handle.clone();
        move || (0..100).map(|_| handle.clone()).collect::<Vec<_>>()
    });
    let clones = clones.join().unwrap();
    drop(handle);
    handler.flush().await.unwrap();
    assert_eq!(registry.refs(&t).await, 1);
    drop(clones);
    handler.flush().await.unwrap();
    assert_eq!(registry.refs(&t).await, 0);
    // Gone and come back between two flushes: nothing to write.
    let again = handler.incref(&t);
    handler.flush().await.unwrap();
    assert_eq!((registry.refs(&t).await, again.name().unwrap()), (1, t.as_str()));
    handler.stop().await.unwrap();
    assert_eq!(registry.refs(&t).await, 0);
    assert!(again.name().unwrap_err().to_string().contains("stale"));
    let holders: i64 = registry.ebb.db.scalar("SELECT count(*) FROM ebb.holder").await;
    assert_eq!(holders, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_ends_its_handles_and_only_its_own_handler() {
    let registry = Registry::new().await;
    let (handler, t) = (Arc::new(start(&registry).await), name(NEW, 1));
    let context = Context::with(handler.clone());
    let handle = context.announce(&t, json!({})).await.unwrap();
    let gone = context.refer(&name(NEW, 2)).await.unwrap_err();
    assert!(gone.to_string().contains("gone"), "{gone}");
    let twice = context.announce(&t, json!({})).await.unwrap();
    context.close().await.unwrap();
    assert!(handle.name().unwrap_err().to_string().contains("context has ended"));
    drop((handle, twice));
    let other = Context::with(handler.clone());
    handler.flush().await.unwrap();
    assert_eq!(registry.refs(&t).await, 0);
    assert_eq!(other.refer(&t).await.unwrap().name().unwrap(), t);
    handler.stop().await.unwrap();
    assert!(handler.flush().await.is_err(), "after its end there is no fence");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_announced_after_a_refusal_can_be_referred_to() {
    let registry = Registry::new().await;
    let (creator, handler) = (start(&registry).await, start(&registry).await);
    let names = [name(NEW, 1), name(NEW, 2)];
    let mut kept = Vec::new();
    for (t, keep) in names.iter().zip([false, true]) {
        let early = handler.incref(t);
        handler.flush().await.unwrap();
        assert!(early.name().unwrap_err().to_string().contains("gone"));
        kept.extend(keep.then_some(early));
    }
    for t in &names {
        let handle = creator.announce(t, json!({})).await.unwrap();
        registry.make(t).await;
        creator.created(&handle, None).await.unwrap();
        kept.push(handle);
        let again = handler.incref(t);
        handler.flush().await.unwrap();
        assert_eq!((again.name().unwrap(), registry.refs(t).await), (t.as_str(), 2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holder_makes_every_handle_stale() {
    let registry = Registry::new().await;
    let worker = Worker { term: Duration::from_secs(1), ..Worker::new("rust") };
    let handler = PostgresHandler::start(registry.ebb.db.open(), "s", worker).await.unwrap();
    let t = name(NEW, 1);
    let handle = handler.announce(&t, json!({})).await.unwrap();
    registry.kill(handler.holder(), "0.5").await;
    ebb_testkit::eventually(SOON, || async { handle.name().is_err() }).await;
    assert!(handler.flush().await.is_err());
    assert!(handler.announce(&name(NEW, 2), json!({})).await.is_err());
}

/// The database is away while handles come and go; when it is back, what stands is what they count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_made_while_the_database_is_away_are_written_when_it_is_back() {
    let registry = Registry::new().await;
    let proxy = Proxy::start(server().address()).await;
    let url = proxy.url(registry.ebb.db.url());
    let through = Database::open(Target::parse(&url, None).unwrap(), 2, "ebb/worker");
    let handler = PostgresHandler::start(through, "s", Worker::new("rust")).await.unwrap();
    let (t, u, v) = (name(NEW, 1), name(NEW, 2), name(NEW, 3));
    let (one, two) = (handler.announce(&t, json!({})).await.unwrap(), handler.announce(&u, json!({})).await.unwrap());
    let other = registry.holder("1 hour").await;
    registry.intend(&v, other).await;
    proxy.cut();
    drop(one);
    let three = handler.incref(&v);
    drop((two.clone(), three.clone()));
    assert!(handler.flush().await.is_err(), "nothing is durable yet");
    assert!(two.name().is_ok(), "its term has not run out");
    proxy.restore();
    registry.ebb.until(&format!(
        "SELECT string_agg(r.name, ',' ORDER BY r.name) = '{u},{v}' FROM ebb.reference f JOIN ebb.resource r ON r.id = f.resource
         WHERE f.holder = '{}'",
        handler.holder()
    ))
    .await;
    handler.stop().await.unwrap();
}

/// Committed, and the answer is lost: whoever takes that for undone leaves a reference that nobody lets go of, or believes
/// in one that is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_was_lost_is_made_sure_of() {
    let registry = Registry::new().await;
    let proxy = Proxy::start(server().address()).await;
    let url = proxy.url(registry.ebb.db.url());
    let through = Database::open(Target::parse(&url, None).unwrap(), 2, "ebb/worker");
    let handler = PostgresHandler::start(through, "s", Worker::new("rust")).await.unwrap();
    let t = name(NEW, 1);
    // Announced, and its creator does not know.
    proxy.cut_after_commit_of("create_intent");
    handler.announce(&t, json!({})).await.unwrap_err();
    assert_eq!(registry.refs(&t).await, 1);
    proxy.restore();
    registry.ebb.until("SELECT NOT EXISTS (SELECT FROM ebb.reference)").await;

    // Let go of, and referred to again before that was known.
    let handle = handler.announce(&name(NEW, 2), json!({})).await.unwrap();
    let u = handle.name().unwrap().to_owned();
    proxy.cut_after_commit_of("apply_refs");
    drop(handle);
    proxy.wait_until_cut(SOON).await;
    assert_eq!(registry.refs(&u).await, 0);
    let again = handler.incref(&u);
    proxy.restore();
    handler.flush().await.unwrap();
    assert_eq!((registry.refs(&u).await, again.name().unwrap()), (1, u.as_str()));

    // Referred to, and let go of before that was known.
    let other = registry.holder("1 hour").await;
    let v = name(NEW, 3);
    registry.intend(&v, other).await;
    proxy.cut_after_commit_of("apply_refs");
    let handle = handler.incref(&v);
    proxy.wait_until_cut(SOON).await;
    assert_eq!(registry.refs(&v).await, 2);
    drop(handle);
    proxy.restore();
    handler.flush().await.unwrap();
    assert_eq!(registry.refs(&v).await, 1, "only the other one's");
    handler.stop().await.unwrap();
}

/// Nobody answers its beats: when its term is over a worker knows by itself that others may think it dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_hears_nothing_for_its_term_stops_using_what_it_has() {
    let registry = Registry::new().await;
    let proxy = Proxy::start(server().address()).await;
    let url = proxy.url(registry.ebb.db.url());
    let through = Database::open(Target::parse(&url, None).unwrap(), 2, "ebb/worker");
    let worker = Worker { term: Duration::from_secs(3), ..Worker::new("rust") };
    let handler = PostgresHandler::start(through, "s", worker).await.unwrap();
    let handle = handler.announce(&name(NEW, 1), json!({})).await.unwrap();
    proxy.black_hole();
    ebb_testkit::eventually(SOON, || async { handle.name().is_err() }).await;
    let dead: bool =
        registry.ebb.db.scalar("SELECT expires_at < clock_timestamp() + interval '1 second' FROM ebb.holder").await;
    assert!(dead, "not much before the others do");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_handler_drops_with_the_last_handle_and_the_rest_at_its_end() {
    let registry = Registry::new().await;
    let driver = PostgresDriver::own(&registry.ebb.db.open(), "scratch");
    let context = Context::owning(LocalHandler::start(Arc::new(driver)));
    let (t, u) = (name(NEW, 1), name(NEW, 2));
    let (one, two) = (context.announce(&t, json!({})).await.unwrap(), context.announce(&u, json!({})).await.unwrap());
    registry.make(&t).await;
    registry.make(&u).await;
    let clone = one.clone();
    drop(one);
    assert_eq!(registry.tables().await.split(',').count(), 2);
    drop(clone);
    ebb_testkit::eventually(SOON, || async { registry.tables().await == u }).await;
    context.close().await.unwrap();
    assert_eq!(registry.tables().await, "");
    assert!(two.name().is_err());
}
