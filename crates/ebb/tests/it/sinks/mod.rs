//! Sinks against real peers: other people's libraries and servers, and receivers that misbehave.

#[cfg(feature = "kafka")]
mod kafka;
mod nats;
pub(crate) mod peer;
mod smtp;
mod webhook;

use std::sync::Arc;

use ebb::Result;
use ebb::config::Env;
use ebb::policy::{Kind, Policy, Spec};
use ebb::schedule::sink::{Delivery, Outlet, Surroundings, Verdict, envelope, kind};
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

/// Opens a sink with these keys, where these variables are set.
fn try_open(spec: Value, variables: &[(&str, &str)]) -> Result<Outlet> {
    let Value::Object(spec): Value = spec else { panic!("a sink is a table") };
    let spec: Spec = spec;
    let Policy::Sink(sink) = Policy::parse(Kind::Sink, "ops", &spec)? else { panic!("a sink is a sink") };
    let env: Env = variables.iter().copied().collect();
    Outlet::open(&sink, &Surroundings { env, base: std::path::PathBuf::new() })
}

fn open(spec: Value) -> Outlet {
    try_open(spec, &[]).unwrap()
}

/// An occurrence of its own, with this payload.
fn delivery(payload: Value) -> Delivery {
    let payload: Arc<RawValue> = RawValue::from_string(payload.to_string()).unwrap().into();
    let (occurrence, event) = (Uuid::new_v4(), Uuid::new_v4());
    let due_at = "2026-03-01T09:00:00Z".parse().unwrap();
    let body = envelope(occurrence, event, due_at, &payload).into();
    Delivery { occurrence, event, attempt: 1, due_at, kind: kind(&payload), body, payload }
}

/// What went wrong, and whether for good.
#[track_caller]
fn failure(verdict: Verdict) -> (String, bool) {
    match verdict {
        Verdict::Failed { error, permanent, .. } => (error, permanent),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn delivered(verdict: &Verdict) {
    assert!(matches!(verdict, Verdict::Delivered { .. }), "{verdict:?}");
}
