//! `[sinks.NAME]`: where events go, and how hard it is tried. Invariants: a secret is stored as the name of where it
//! is, never as itself; every limit that keeps a dead or slow receiver from doing harm has a value here.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::field::Invalid;
use super::{Driver, FieldErrors, Name, Reader, Retry, Scalar, Spec, driver, read_name, retry};

/// One place that events go to.
#[derive(Debug, Clone, PartialEq)]
pub struct Sink {
    /// Its name.
    pub name: Name,
    /// What it is for, in words.
    pub description: Option<String>,
    /// How it is reached.
    pub driver: Driver,
    /// When a failed delivery is tried again.
    pub retry: Retry,
    /// No call takes longer, whatever the receiver does.
    pub timeout: Duration,
    /// How many calls a node has under way at once.
    pub concurrency: usize,
    /// How many calls a node starts in a while; as many as it can when absent.
    pub rate: Option<Rate>,
    /// When a receiver counts as dead; never when absent.
    pub breaker: Option<Breaker>,
    /// Whether events go there.
    pub enabled: bool,
}

/// So many calls in so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many …
    pub calls: u32,
    /// … in so long.
    pub per: Duration,
}

const PERIODS: [(&str, u64); 3] = [("s", 1), ("m", 60), ("h", 3_600)];

impl FromStr for Rate {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let no = || Invalid::new(format!("{text:?} is no rate")).hint("for example \"100/s\", \"600/m\" or \"50/h\"");
        let (calls, period) = text.split_once('/').ok_or_else(no)?;
        let calls: u32 = calls.trim().parse().ok().filter(|calls| (1..=1_000_000).contains(calls)).ok_or_else(no)?;
        let (_, seconds) = PERIODS.iter().find(|(unit, _)| *unit == period.trim()).ok_or_else(no)?;
        Ok(Self { calls, per: Duration::from_secs(*seconds) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = PERIODS.iter().find(|(_, seconds)| *seconds == self.per.as_secs()).map_or("s", |(unit, _)| unit);
        write!(f, "{}/{unit}", self.calls)
    }
}

/// When a receiver counts as dead, and how often it is asked whether it still is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// After so many failures in a row.
    pub failures: u32,
    /// One event goes out this often, to see.
    pub probe: Duration,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { failures: 10, probe: Duration::from_secs(30) }
    }
}

pub(super) const SCALARS: &[Scalar] = &[
    Scalar::Text("type"),
    Scalar::Text("url"),
    Scalar::Text("secrets"),
    Scalar::Text("ca"),
    Scalar::Plain("allow_private"),
    Scalar::Text("host"),
    Scalar::Plain("port"),
    Scalar::Text("tls"),
    Scalar::Text("from"),
    Scalar::Text("user"),
    Scalar::Text("password"),
    Scalar::Text("template"),
    Scalar::Text("stream"),
    Scalar::Text("subject"),
    Scalar::Text("credentials"),
    Scalar::Text("brokers"),
    Scalar::Text("topic"),
    Scalar::Text("description"),
    Scalar::Text("retry.base"),
    Scalar::Text("retry.max"),
    Scalar::Plain("retry.attempts"),
    Scalar::Text("timeout"),
    Scalar::Plain("concurrency"),
    Scalar::Text("rate"),
    Scalar::Plain("breaker.failures"),
    Scalar::Text("breaker.probe"),
    Scalar::Plain("enabled"),
];

const HOUR: Duration = Duration::from_secs(3_600);

impl Sink {
    /// How long a call may take unless the sink says otherwise.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
    /// How many calls are under way at once unless the sink says otherwise.
    pub const DEFAULT_CONCURRENCY: usize = 16;

    pub(super) fn parse(name: &str, spec: &Spec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(spec);
        let r = &mut reader;
        let name = read_name(r, name);
        let driver = driver::read(r);
        let description = r.text("description", "\"the shop's order service\"");
        let retry = retry::read(r);
        let timeout = r.duration("timeout", "\"15s\"", Duration::from_millis(10)..=HOUR);
        let concurrency = r.number("concurrency", 1..=1_000).and_then(|calls| usize::try_from(calls).ok());
        let rate = r.parse("rate", "\"100/s\"");
        let breaker = read_breaker(r);
        let enabled = r.flag("enabled", true);
        reader.finish()?;
        let (Some(name), Some(driver)) = (name, driver) else {
            return Err(super::whole("`type` is needed".into()));
        };
        Ok(Self {
            name,
            description,
            driver,
            retry,
            timeout: timeout.unwrap_or(Self::DEFAULT_TIMEOUT),
            concurrency: concurrency.unwrap_or(Self::DEFAULT_CONCURRENCY),
            rate,
            breaker,
            enabled,
        })
    }
}

fn read_breaker(r: &mut Reader<'_>) -> Option<Breaker> {
    if r.is_off("breaker") {
        return None;
    }
    let default = Breaker::default();
    let read = |inner: &mut Reader<'_>| {
        let failures = inner.number("failures", 1..=1_000_000).and_then(|failures| u32::try_from(failures).ok());
        let probe = inner.duration("probe", "\"30s\"", Duration::from_millis(10)..=24 * HOUR);
        Breaker { failures: failures.unwrap_or(default.failures), probe: probe.unwrap_or(default.probe) }
    };
    Some(r.table("breaker", "{ failures = 10, probe = \"30s\" }", read).unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(spec: Value) -> Result<Sink, FieldErrors> {
        Sink::parse("ops", spec.as_object().unwrap())
    }

    fn refusal(spec: Value) -> String {
        parse(spec).unwrap_err().to_string()
    }

    #[test]
    fn limits_have_defaults() {
        let sink = parse(json!({ "type": "log" })).unwrap();
        assert_eq!((sink.concurrency, sink.timeout), (16, Duration::from_secs(15)));
        assert_eq!(sink.retry.attempts(), 4);
        assert_eq!(sink.breaker, Some(Breaker { failures: 10, probe: Duration::from_secs(30) }));
        assert!(sink.rate.is_none() && sink.enabled);
        assert_eq!(parse(json!({ "type": "log", "breaker": "off" })).unwrap().breaker, None);
        let some = parse(json!({ "type": "log", "breaker": { "failures": 3 }, "rate": "600/m" })).unwrap();
        assert_eq!(some.breaker.unwrap().failures, 3);
        assert_eq!(some.rate.unwrap().to_string(), "600/m");
    }

    #[test]
    fn retries_are_a_list_or_a_table() {
        let retry = |value: Value| parse(json!({ "type": "log", "retry": value }));
        assert_eq!(retry(json!(["1s", "2m"])).unwrap().retry.attempts(), 3);
        assert_eq!(retry(json!([])).unwrap().retry.attempts(), 1);
        assert_eq!(retry(json!({ "base": "1s", "max": "1h", "attempts": 12 })).unwrap().retry.attempts(), 12);
        for bad in [
            json!("1m"),
            json!(["1x"]),
            json!([60]),
            json!(["1mo"]),
            json!(["31d"]),
            json!({ "base": "2h", "max": "1h" }),
            json!({ "attempts": 0 }),
        ] {
            assert!(retry(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        assert!(refusal(json!({})).contains("`type` is missing"));
        assert!(refusal(json!({ "type": "webhok" })).contains("did you mean `webhook`?"));
        assert!(refusal(json!({ "type": "log", "rate": "100" })).contains("100/s"));
        assert!(refusal(json!({ "type": "log", "rate": "0/s" })).contains("is no rate"));
        assert!(refusal(json!({ "type": "log", "concurrency": 0 })).contains("from 1 to 1000"));
        assert!(refusal(json!({ "type": "log", "timeout": "0s" })).contains("at least"));
    }
}
