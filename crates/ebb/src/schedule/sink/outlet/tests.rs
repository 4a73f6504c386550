//! The outlet with handlers for receivers, and tokio's clock standing still until nobody has anything to do.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::*;
use crate::policy::{Kind, Policy};

fn sink(more: serde_json::Value) -> policy::Sink {
    let mut spec = json!({ "type": "handler" });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    match Policy::parse(Kind::Sink, "ops", spec.as_object().unwrap()).unwrap() {
        Policy::Sink(sink) => sink,
        other => panic!("{other:?}"),
    }
}

fn delivery() -> Delivery {
    let payload = RawValue::from_string("{}".into()).unwrap();
    let (occurrence, event) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let body = super::super::envelope(occurrence, event, jiff::Timestamp::UNIX_EPOCH, &payload).into();
    let due_at = jiff::Timestamp::UNIX_EPOCH;
    Delivery { occurrence, event, attempt: 1, due_at, kind: None, body, payload: payload.into() }
}

/// A receiver that fails its first calls, each of which takes a while.
struct Receiver {
    takes: Duration,
    failing: usize,
    calls: AtomicUsize,
    under_way: AtomicUsize,
    most: AtomicUsize,
}

impl Receiver {
    fn new(failing: usize, takes: Duration) -> Arc<Self> {
        let [calls, under_way, most] = [0, 0, 0].map(AtomicUsize::new);
        Arc::new(Self { takes, failing, calls, under_way, most })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Sink for Receiver {
    fn deliver<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Verdict> {
        async {
            let call = self.calls.fetch_add(1, Ordering::SeqCst);
            let under_way = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(under_way, Ordering::SeqCst);
            tokio::time::sleep(self.takes).await;
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            if call < self.failing { Verdict::transient("no") } else { Verdict::Delivered { response: None } }
        }
        .boxed()
    }
}

const DELIVERED: Verdict = Verdict::Delivered { response: None };

#[tokio::test(start_paused = true)]
async fn no_more_calls_are_under_way_than_allowed() {
    let receiver = Receiver::new(0, Duration::from_secs(1));
    let outlet = Outlet::with_handler(&sink(json!({ "concurrency": 3 })), receiver.clone());
    assert_eq!(outlet.free(), 3);
    let delivery = delivery();
    let all = futures_util::future::join_all((0..20).map(|_| outlet.deliver(&delivery))).await;
    assert!(all.iter().all(|verdict| *verdict == DELIVERED));
    assert_eq!(receiver.most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_the_time_out() {
    let receiver = Receiver::new(0, Duration::from_secs(3_600));
    let outlet = Outlet::with_handler(&sink(json!({ "timeout": "2s" })), receiver);
    let start = Instant::now();
    assert_eq!(outlet.deliver(&delivery()).await, Verdict::transient("no complete answer within 2s"));
    assert_eq!(start.elapsed().as_secs(), 2);
    assert_eq!(outlet.free(), 16);
}

#[tokio::test]
async fn a_handler_that_panics_fails_that_event_alone() {
    struct Panics;
    impl Sink for Panics {
        fn deliver<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Verdict> {
            async { panic!("a bug in the handler") }.boxed()
        }
    }
    let outlet = Outlet::with_handler(&sink(json!({})), Arc::new(Panics));
    assert_eq!(outlet.deliver(&delivery()).await, Verdict::transient("the handler panicked"));
    assert_eq!(outlet.free(), 16);
}

#[tokio::test(start_paused = true)]
async fn a_dead_receiver_is_probed_and_nothing_else_goes_out() {
    let receiver = Receiver::new(4, Duration::from_millis(10));
    let outlet = Outlet::with_handler(&sink(json!({ "breaker": { "failures": 3, "probe": "30s" } })), receiver.clone());
    let delivery = delivery();
    for _ in 0..3 {
        assert_eq!(outlet.deliver(&delivery).await, Verdict::transient("no"));
    }
    assert_eq!(outlet.free(), 0);
    assert_eq!(outlet.free_in(), Some(Duration::from_secs(30)));
    let refused = outlet.deliver(&delivery).await;
    assert_eq!(refused, Verdict::Refused { reason: Refusal::Breaker, until: Duration::from_secs(30) });
    assert_eq!(receiver.calls(), 3, "while it is open nothing is sent");

    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(outlet.free(), 1);
    let both = futures_util::future::join(outlet.deliver(&delivery), outlet.deliver(&delivery)).await;
    assert_eq!(both.0, Verdict::transient("no"));
    assert!(matches!(both.1, Verdict::Refused { .. }));

    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(outlet.deliver(&delivery).await, DELIVERED);
    assert_eq!(outlet.free(), 16);
    assert_eq!(receiver.calls(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_dropped_does_not_keep_the_breaker_shut() {
    let receiver = Receiver::new(1, Duration::from_secs(1));
    let outlet = Outlet::with_handler(&sink(json!({ "breaker": { "failures": 1, "probe": "30s" } })), receiver);
    outlet.deliver(&delivery()).await;
    tokio::time::advance(Duration::from_secs(30)).await;
    assert!(tokio::time::timeout(Duration::from_millis(1), outlet.deliver(&delivery())).await.is_err());
    assert_eq!(outlet.free(), 1);
    assert_eq!(outlet.deliver(&delivery()).await, DELIVERED);
}

#[tokio::test(start_paused = true)]
async fn calls_start_at_the_sinks_rate() {
    let receiver = Receiver::new(0, Duration::ZERO);
    let outlet = Outlet::with_handler(&sink(json!({ "rate": "2/s" })), receiver.clone());
    let (delivery, start) = (delivery(), Instant::now());
    let all = futures_util::future::join_all((0..6).map(|_| outlet.deliver(&delivery))).await;
    // Two at once, two more within the second they wait, and the rest is told when.
    assert_eq!(all[..4], [const { DELIVERED }; 4]);
    assert!(matches!(all[4], Verdict::Refused { reason: Refusal::Rate, until } if until > Duration::from_secs(1)));
    assert_eq!((receiver.calls(), start.elapsed().as_secs()), (4, 1));
    assert_eq!(outlet.free(), 0);
    assert_eq!(outlet.free_in(), Some(Duration::from_millis(500)));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_asks_for_a_break_gets_it() {
    struct Busy;
    impl Sink for Busy {
        fn deliver<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Verdict> {
            let retry_after = Some(Duration::from_secs(20));
            async move { Verdict::Failed { error: "429".into(), permanent: false, retry_after, response: None } }
                .boxed()
        }
    }
    let outlet = Outlet::with_handler(&sink(json!({})), Arc::new(Busy));
    outlet.deliver(&delivery()).await;
    assert_eq!((outlet.free(), outlet.free_in()), (0, Some(Duration::from_secs(20))));
    let refused = outlet.deliver(&delivery()).await;
    assert_eq!(refused, Verdict::Refused { reason: Refusal::Asked, until: Duration::from_secs(20) });
    tokio::time::advance(Duration::from_secs(20)).await;
    assert_eq!((outlet.free(), outlet.free_in()), (16, None));
}

#[tokio::test]
async fn a_receiver_that_wants_no_more_gets_no_more() {
    struct Gone;
    impl Sink for Gone {
        fn deliver<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Verdict> {
            async { Verdict::Disabled { error: "410 Gone".into() } }.boxed()
        }
    }
    let outlet = Outlet::with_handler(&sink(json!({})), Arc::new(Gone));
    assert!(matches!(outlet.deliver(&delivery()).await, Verdict::Disabled { .. }));
    assert_eq!(outlet.free(), 0);
    assert!(matches!(outlet.deliver(&delivery()).await, Verdict::Disabled { .. }));
}

#[tokio::test]
async fn a_log_sink_delivers_and_a_handler_needs_its_program() {
    let spec = json!({ "type": "log" });
    let Policy::Sink(log) = Policy::parse(Kind::Sink, "ops", spec.as_object().unwrap()).unwrap() else { panic!() };
    let surroundings = Surroundings::process();
    assert_eq!(Outlet::open(&log, &surroundings).unwrap().deliver(&delivery()).await, DELIVERED);
    let error = Outlet::open(&sink(json!({})), &surroundings).err().unwrap();
    assert!(error.is_config() && error.to_string().contains("no handler"), "{error}");
}
