//! `[pacing]`, `[keep]` and `[events]`: settings that hold for all nodes, kept in the database like policies.
//! Invariant: an absent section and an empty one mean the same.

use std::time::Duration;

use super::{FieldErrors, Reader, Scalar, Size, Spec, Term};

/// When Ebb yields, and how much it may do at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Pacing {
    /// Rest while a replica replays later than this.
    pub max_replica_lag: Option<Duration>,
    /// Rest while a replication slot keeps more WAL than this.
    pub max_slot_wal: Option<Size>,
    /// Rest while more sessions than this wait for a lock on the table.
    pub max_lock_waiters: Option<u32>,
    /// Rest while a trivial statement takes longer than this.
    pub max_probe_latency: Option<Duration>,
    /// Rest while more than this part of the table is dead.
    pub max_dead_share: Option<f64>,
    /// Rest while the oldest snapshot is more transactions old than this.
    pub max_xmin_age: Option<u64>,
    /// Rest while autovacuum works on the table.
    pub yield_to_autovacuum: bool,
    /// At most so many rows a second, over all policies.
    pub rows_per_second: Option<u64>,
    /// At most so much WAL a second, over all policies.
    pub wal_per_second: Option<Size>,
    /// At most so many connections at work, over all policies.
    pub connections: Option<u32>,
}

pub(super) const PACING: &[Scalar] = &[
    Scalar::Text("max_replica_lag"),
    Scalar::Text("max_slot_wal"),
    Scalar::Plain("max_lock_waiters"),
    Scalar::Text("max_probe_latency"),
    Scalar::Plain("max_dead_share"),
    Scalar::Plain("max_xmin_age"),
    Scalar::Plain("yield_to_autovacuum"),
    Scalar::Plain("rows_per_second"),
    Scalar::Text("wal_per_second"),
    Scalar::Plain("connections"),
];

impl Default for Pacing {
    fn default() -> Self {
        Self {
            max_replica_lag: Some(Duration::from_secs(10)),
            max_slot_wal: Some(Size::gigabytes(2)),
            max_lock_waiters: Some(1),
            max_probe_latency: Some(Duration::from_millis(250)),
            max_dead_share: None,
            max_xmin_age: None,
            yield_to_autovacuum: false,
            rows_per_second: None,
            wal_per_second: None,
            connections: None,
        }
    }
}

impl Pacing {
    pub(super) fn parse(spec: &Spec) -> Result<Self, FieldErrors> {
        let default = Self::default();
        let mut reader = Reader::new(spec);
        let r = &mut reader;
        let waits = Duration::from_millis(1)..=Duration::from_secs(7 * 86_400);
        let count = 1..=i64::MAX.unsigned_abs();
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let pacing = Self {
            max_replica_lag: limit(r, "max_replica_lag", default.max_replica_lag, |r, key| {
                r.duration(key, "\"10s\"", waits.clone())
            }),
            max_slot_wal: limit(r, "max_slot_wal", default.max_slot_wal, |r, key| r.parse(key, "\"2GB\"")),
            max_lock_waiters: limit(r, "max_lock_waiters", default.max_lock_waiters, |r, key| {
                r.number(key, 1..=100_000).map(small)
            }),
            max_probe_latency: limit(r, "max_probe_latency", default.max_probe_latency, |r, key| {
                r.duration(key, "\"250ms\"", waits.clone())
            }),
            max_dead_share: limit(r, "max_dead_share", None, |r, key| r.share(key)),
            max_xmin_age: limit(r, "max_xmin_age", None, |r, key| r.number(key, 1..=2_000_000_000)),
            yield_to_autovacuum: r.flag("yield_to_autovacuum", default.yield_to_autovacuum),
            rows_per_second: limit(r, "rows_per_second", None, |r, key| r.number(key, count)),
            wal_per_second: limit(r, "wal_per_second", None, read_rate),
            connections: limit(r, "connections", None, |r, key| r.number(key, 1..=10_000).map(small)),
        };
        reader.finish()?;
        Ok(pacing)
    }
}

/// A limit: its default when absent, none when it says `"off"`.
fn limit<'a, T>(
    r: &mut Reader<'a>,
    key: &'static str,
    default: Option<T>,
    read: impl FnOnce(&mut Reader<'a>, &'static str) -> Option<T>,
) -> Option<T> {
    if r.is_off(key) {
        return None;
    }
    read(r, key).or(default)
}

fn read_rate(r: &mut Reader<'_>, key: &'static str) -> Option<Size> {
    let size: Size = r.parse(key, "\"20MB\"")?;
    if size.bytes() == 0 {
        let message = format!("`{key}` must be more than nothing");
        r.refuse(key, super::Invalid::new(message).hint("\"off\" means no limit"));
    }
    Some(size)
}

/// How long Ebb keeps what it writes about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Keep {
    /// The history of runs.
    pub runs: Term,
    /// The history of events.
    pub events: Term,
    /// Accepted OpenLineage events.
    pub lineage_event: Term,
    /// Marks of what was dropped.
    pub tombstones: Term,
    /// Samples of metrics.
    pub samples: Term,
}

pub(super) const KEEP: &[Scalar] = &[
    Scalar::Text("runs"),
    Scalar::Text("events"),
    Scalar::Text("lineage_event"),
    Scalar::Text("tombstones"),
    Scalar::Text("samples"),
];

impl Default for Keep {
    fn default() -> Self {
        let month = Term::days(30);
        Self { runs: month, events: month, lineage_event: Term::days(90), tombstones: month, samples: Term::days(7) }
    }
}

impl Keep {
    pub(super) fn parse(spec: &Spec) -> Result<Self, FieldErrors> {
        let default = Self::default();
        let mut reader = Reader::new(spec);
        let mut term = |key, default| reader.term(key, "\"30d\"").unwrap_or(default);
        let keep = Self {
            runs: term("runs", default.runs),
            events: term("events", default.events),
            lineage_event: term("lineage_event", default.lineage_event),
            tombstones: term("tombstones", default.tombstones),
            samples: term("samples", default.samples),
        };
        reader.finish()?;
        Ok(keep)
    }
}

/// How events are watched.
#[derive(Debug, Clone, PartialEq)]
pub struct Events {
    /// An event delivered later than this is late; more than ten of them that wait are a recovery.
    pub late_after: Duration,
}

pub(super) const EVENTS: &[Scalar] = &[Scalar::Text("late_after")];

impl Default for Events {
    fn default() -> Self {
        Self { late_after: Duration::from_secs(3_600) }
    }
}

impl Events {
    pub(super) fn parse(spec: &Spec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(spec);
        let bounds = Duration::from_secs(1)..=Duration::from_secs(365 * 86_400);
        let late_after = reader.duration("late_after", "\"1h\"", bounds).unwrap_or(Self::default().late_after);
        reader.finish()?;
        Ok(Self { late_after })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pacing(spec: Value) -> Result<Pacing, FieldErrors> {
        Pacing::parse(spec.as_object().unwrap())
    }

    #[test]
    fn an_empty_section_means_the_defaults() {
        assert_eq!(pacing(json!({})).unwrap(), Pacing::default());
        assert_eq!(Keep::parse(&Spec::new()).unwrap(), Keep::default());
        assert_eq!(Events::parse(&Spec::new()).unwrap(), Events::default());
    }

    #[test]
    fn vetoes_can_be_switched_off_and_budgets_set() {
        let off = json!({ "max_replica_lag": "off", "max_slot_wal": "off", "max_lock_waiters": "off",
            "max_probe_latency": "off", "rows_per_second": 500, "wal_per_second": "20MB", "max_dead_share": 0.2 });
        let set = pacing(off).unwrap();
        assert_eq!((set.max_replica_lag, set.max_slot_wal, set.max_lock_waiters), (None, None, None));
        assert_eq!((set.rows_per_second, set.max_dead_share), (Some(500), Some(0.2)));
        assert_eq!(set.wal_per_second.map(|size| size.to_string()), Some("20MB".into()));
    }

    #[test]
    fn bad_limits_are_refused() {
        for bad in [
            json!({ "max_replica_lag": "0s" }),
            json!({ "max_replica_lag": 10 }),
            json!({ "max_slot_wal": "2 GB" }),
            json!({ "wal_per_second": "0B" }),
            json!({ "max_dead_share": 2 }),
            json!({ "connections": 0 }),
            json!({ "yield_to_autovacuum": "off" }),
            json!({ "max_lag": "1s" }),
        ] {
            assert!(pacing(bad.clone()).is_err(), "{bad}");
        }
        assert!(Keep::parse(json!({ "runs": "0d" }).as_object().unwrap()).is_err());
    }
}
