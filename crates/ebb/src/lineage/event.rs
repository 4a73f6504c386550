//! One OpenLineage event, as its producer sent it and as far as Ebb must understand it: what makes it the same as
//! another one. Everything else, facets that nobody here knows included, is kept as it came.

use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::audit::Moment;

/// An event that can be accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub(super) event_time: Moment,
    pub(super) event_type: Option<String>,
    pub(super) producer: String,
    pub(super) job_namespace: Option<String>,
    pub(super) job_name: Option<String>,
    pub(super) run_id: Option<String>,
    pub(super) key: String,
    pub(super) raw: String,
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where, in dots: `run.runId`.
    pub field: &'static str,
    /// What.
    pub message: String,
}

/// The states of a run that the specification knows.
const TYPES: [&str; 6] = ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"];

/// What an event is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Run,
    Job,
    Dataset,
}

impl Event {
    /// Reads an event; all that is wrong with it otherwise.
    pub fn parse(raw: &RawValue) -> Result<Self, Vec<Fault>> {
        let mut reader = Reader { faults: Vec::new() };
        let value: Value = match serde_json::from_str(raw.get()) {
            Ok(value @ Value::Object(_)) => value,
            Ok(_) => return Err(vec![Fault { field: "", message: "an event is a JSON object".into() }]),
            Err(error) => return Err(vec![Fault { field: "", message: format!("cannot be read: {error}") }]),
        };
        let about = about(&value);
        let r = &mut reader;
        let time = r.text(&value, "eventTime");
        let event_time = time.as_deref().and_then(|time| r.time(time));
        let producer = r.text(&value, "producer");
        let event_type = match about {
            About::Run => r.event_type(&value),
            About::Job | About::Dataset => None,
        };
        let run_id = if about == About::Run { r.text(&value, "run.runId") } else { None };
        let (namespace, name) = match about {
            About::Run | About::Job => (r.text(&value, "job.namespace"), r.text(&value, "job.name")),
            About::Dataset => (r.text(&value, "dataset.namespace"), r.text(&value, "dataset.name")),
        };
        if !reader.faults.is_empty() {
            return Err(reader.faults);
        }
        let (Some(event_time), Some(time), Some(producer)) = (event_time, time, producer) else {
            return Err(reader.faults);
        };
        let parts =
            [Some(&producer), namespace.as_ref(), name.as_ref(), run_id.as_ref(), Some(&time), event_type.as_ref()];
        Ok(Self {
            key: key(parts),
            event_time,
            event_type,
            producer,
            job_namespace: namespace,
            job_name: name,
            run_id,
            raw: raw.get().to_owned(),
        })
    }
}

/// The schema that the event names decides; where it names none, what the event has.
fn about(event: &Value) -> About {
    let has = |name: &str| event.get(name).is_some_and(|value| !value.is_null());
    let schema = event.get("schemaURL").and_then(Value::as_str).and_then(|url| url.rsplit('/').next());
    match schema {
        Some("RunEvent") => About::Run,
        Some("JobEvent") => About::Job,
        Some("DatasetEvent") => About::Dataset,
        _ if has("run") || has("eventType") => About::Run,
        _ if has("dataset") => About::Dataset,
        _ if has("job") => About::Job,
        _ => About::Run,
    }
}

/// SHA-256 over the parts, each framed by its length in four bytes; an absent part counts as empty.
fn key(parts: [Option<&String>; 6]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        let part = part.map_or("", String::as_str);
        hash.update((part.len() as u32).to_be_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}

struct Reader {
    faults: Vec<Fault>,
}

impl Reader {
    fn fault(&mut self, field: &'static str, message: impl Into<String>) {
        self.faults.push(Fault { field, message: message.into() });
    }

    /// A text that is not empty, by its path.
    fn text(&mut self, event: &Value, field: &'static str) -> Option<String> {
        let found = field.split('.').try_fold(event, |value, part| value.get(part));
        match found {
            None | Some(Value::Null) => self.fault(field, "is missing"),
            Some(Value::String(text)) if text.is_empty() => self.fault(field, "is empty"),
            Some(Value::String(text)) if text.contains('\0') => self.fault(field, "contains a zero byte"),
            Some(Value::String(text)) => return Some(text.clone()),
            Some(_) => self.fault(field, "is not a text"),
        }
        None
    }

    fn time(&mut self, text: &str) -> Option<Moment> {
        match text.parse::<jiff::Timestamp>() {
            Ok(at) => Some(at.into()),
            Err(_) => {
                self.fault("eventTime", "is no time with a zone, such as 2025-11-15T12:00:00.000Z");
                None
            }
        }
    }

    fn event_type(&mut self, event: &Value) -> Option<String> {
        match event.get("eventType") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if TYPES.contains(&text.as_str()) => Some(text.clone()),
            Some(_) => {
                self.fault("eventType", format!("is none of {}", TYPES.join(", ")));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(event: Value) -> Result<Event, Vec<Fault>> {
        Event::parse(&RawValue::from_string(event.to_string()).unwrap())
    }

    fn run_event() -> Value {
        json!({
            "eventTime": "2025-11-15T12:00:00.000+00:00", "eventType": "START", "producer": "https://p.example.test",
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            "run": { "runId": "airflow-run-1", "facets": { "x": { "unknown": 1 } } }, "job": { "namespace": "n", "name": "j" },
        })
    }

    #[test]
    fn what_makes_an_event_the_same_is_its_key_and_nothing_else() {
        let one = parse(run_event()).unwrap();
        let mut other = run_event();
        other["run"]["facets"]["y"] = json!({});
        assert_eq!(parse(other.clone()).unwrap().key, one.key);
        other["eventType"] = "COMPLETE".into();
        assert_ne!(parse(other).unwrap().key, one.key);
        let known = "8a2f8107f99f119d155656f48061799c562ec0a3a73c18e2d72e29fe787a60fa";
        assert_eq!(one.key, known, "kept keys would no longer match");
    }

    #[test]
    fn moving_bytes_between_neighbours_changes_the_key() {
        let (mut a, mut b) = (run_event(), run_event());
        (a["job"]["namespace"], a["job"]["name"]) = ("ab".into(), "c".into());
        (b["job"]["namespace"], b["job"]["name"]) = ("a".into(), "bc".into());
        assert_ne!(parse(a).unwrap().key, parse(b).unwrap().key);
    }

    #[test]
    fn every_wrong_field_is_named() {
        let wrong =
            json!({ "eventTime": "yesterday", "eventType": "BEGIN", "run": { "runId": "" }, "job": { "name": 7 } });
        let faults = parse(wrong).unwrap_err();
        let fields: Vec<&str> = faults.iter().map(|fault| fault.field).collect();
        assert_eq!(fields, ["eventTime", "producer", "eventType", "run.runId", "job.namespace", "job.name"]);
        assert_eq!(parse(json!([])).unwrap_err()[0].message, "an event is a JSON object");
        assert_eq!(parse(json!({})).unwrap_err().len(), 5);
    }

    #[test]
    fn job_and_dataset_events_need_no_run() {
        let base = json!({ "eventTime": "2025-11-15T12:00:00Z", "producer": "p" });
        let mut job = base.clone();
        job["job"] = json!({ "namespace": "n", "name": "j" });
        let mut dataset = base;
        dataset["dataset"] = json!({ "namespace": "n", "name": "j" });
        let (job, dataset) = (parse(job).unwrap(), parse(dataset).unwrap());
        assert_eq!((job.run_id, &job.key), (None, &dataset.key), "a dataset stands for the job");
    }
}
