//! `[[expire]]`: rows whose time has passed go. Invariant: every limit that keeps a batch small and a run sane has a
//! value here, so that the chore never asks whether one was given.

use std::time::Duration;

use serde_json::Value;

use super::field::Invalid;
use super::reader::wrong_type;
use super::{At, Cadence, FieldErrors, Name, Reader, Scalar, Spec, Term, Window, Zone, read_name};

/// What to remove, when, and how gently.
#[derive(Debug, Clone, PartialEq)]
pub struct Expire {
    /// Its name.
    pub name: Name,
    /// What it is for, in words.
    pub description: Option<String>,
    /// The table as it was typed; the catalog resolves it.
    pub table: String,
    /// The column with the time.
    pub column: String,
    /// What an integer column counts since 1970.
    pub unit: Option<EpochUnit>,
    /// Due when the column is older than this; absent: due when it has passed.
    pub older_than: Option<Term>,
    /// Nor before the column is older than this: the floor of a policy that retains, where its term may be over sooner.
    pub floor: Option<Term>,
    /// Where `at`, `window` and columns without a zone are at home.
    pub zone: Zone,
    /// `where`: a condition besides time, in SQL.
    pub filter: Option<String>,
    /// What happens to a row that is due.
    pub action: Action,
    /// When to look.
    pub cadence: Cadence,
    /// When batches may start.
    pub window: Option<Window>,
    /// How much at once.
    pub batch: BatchSize,
    /// No batch takes longer.
    pub batch_timeout: Duration,
    /// Whether it acts or only counts.
    pub mode: Mode,
    /// When a run is too large to be meant.
    pub brake: Brake,
    /// How much the audit keeps.
    pub audit: AuditDetail,
    /// The role for statements on the user's table.
    pub role: Option<String>,
    /// Whether it runs.
    pub enabled: bool,
}

/// What an integer column counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochUnit {
    /// `"s"`.
    Seconds,
    /// `"ms"`.
    Millis,
}

/// What happens to a row that is due.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// It is deleted.
    Delete,
    /// Columns are set to SQL expressions, unless they have that value already.
    Set(Vec<(String, String)>),
}

/// How much a batch takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchSize {
    /// Sized by time, resting as the load asks.
    Adaptive,
    /// Fixed by hand.
    Fixed {
        /// At most so many rows.
        rows: u64,
        /// The rest after each.
        pause: Duration,
    },
}

/// Whether a policy acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    Enforce,
    /// It counts and reports.
    Observe,
}

/// When a run stops before its first batch and asks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Brake {
    /// More rows than this.
    pub rows: Option<u64>,
    /// More than this part of the table; `None` when switched off.
    pub share: Option<f64>,
    /// Whether `share` was asked for; otherwise it is the default.
    pub explicit: bool,
}

/// How much the audit keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditDetail {
    /// A record a batch.
    Batch,
    /// A record a row.
    Rows,
}

pub(super) const SCALARS: &[Scalar] = &[
    Scalar::Text("description"),
    Scalar::Text("table"),
    Scalar::Text("column"),
    Scalar::Text("unit"),
    Scalar::Text("older_than"),
    Scalar::Text("zone"),
    Scalar::Text("where"),
    Scalar::Text("action"),
    Scalar::Text("every"),
    Scalar::Text("at"),
    Scalar::Text("window"),
    Scalar::Plain("batch.rows"),
    Scalar::Text("batch.pause"),
    Scalar::Text("batch.timeout"),
    Scalar::Text("mode"),
    Scalar::Plain("brake.rows"),
    Scalar::Plain("brake.share"),
    Scalar::Text("audit"),
    Scalar::Text("role"),
    Scalar::Plain("enabled"),
];

const DAY: Duration = Duration::from_secs(86_400);
const HOUR: Duration = Duration::from_secs(3_600);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_ROWS: u64 = 10_000;
const DEFAULT_PAUSE: Duration = Duration::from_millis(100);
const DEFAULT_SHARE: f64 = 0.5;
const MAX_ROWS: u64 = 10_000_000;

impl Expire {
    /// The interval when neither the policy nor the environment names one.
    pub const DEFAULT_EVERY: Duration = HOUR;

    pub(super) fn parse(name: &str, spec: &Spec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(spec);
        let r = &mut reader;
        let name = read_name(r, name);
        let description = r.text("description", "\"24 h dedup window\"");
        let table = r.required("table", "\"public.my_table\"");
        let column = r.required("column", "\"expires_at\"");
        let unit = r.choice("unit", &[("s", EpochUnit::Seconds), ("ms", EpochUnit::Millis)]);
        let older_than = r.term("older_than", "\"90d\"");
        let filter = r.text("where", "\"status = 'sent'\"");
        let action = read_action(r);
        let zone = r.parse("zone", "\"Asia/Jakarta\"").unwrap_or_else(Zone::utc);
        let window = r.parse("window", "\"22:00-05:00\"");
        let cadence = read_cadence(r, spec, window);
        let (batch, batch_timeout) = read_batch(r);
        let mode = r.choice("mode", &[("enforce", Mode::Enforce), ("observe", Mode::Observe)]);
        let brake = read_brake(r);
        let audit = r.choice("audit", &[("batch", AuditDetail::Batch), ("rows", AuditDetail::Rows)]);
        let role = r.text("role", "\"ebb_worker\"");
        let enabled = r.flag("enabled", true);
        reader.finish()?;
        let (Some(name), Some(table), Some(column)) = (name, table, column) else {
            return Err(super::whole("`name`, `table` and `column` are needed".into()));
        };
        Ok(Self {
            name,
            description,
            table,
            column,
            unit,
            older_than,
            floor: None,
            zone,
            filter,
            action,
            cadence,
            window,
            batch,
            batch_timeout,
            mode: mode.unwrap_or(Mode::Enforce),
            brake,
            audit: audit.unwrap_or(AuditDetail::Batch),
            role,
            enabled,
        })
    }
}

fn read_action(r: &mut Reader<'_>) -> Action {
    let example = "{ set = { status = \"'expired'\" } }";
    match r.take("action") {
        None => Action::Delete,
        Some(Value::String(word)) if word == "delete" => Action::Delete,
        Some(Value::Object(_)) => {
            let read = |inner: &mut Reader<'_>| {
                if inner.entries().get("set").is_none_or(Value::is_null) {
                    inner.refuse_all(Invalid::new("`set` is missing").hint(format!("for example {example}")));
                }
                inner.table("set", "{ status = \"'expired'\" }", read_set)
            };
            Action::Set(r.table("action", example, read).flatten().unwrap_or_default())
        }
        Some(Value::String(word)) => {
            let invalid = Invalid::new(format!("`action` cannot be {word:?}"));
            r.refuse("action", invalid.hint(format!("it is \"delete\" or {example}")));
            Action::Delete
        }
        Some(other) => {
            r.refuse("action", wrong_type("action", "\"delete\" or a table", other, "\"delete\""));
            Action::Delete
        }
    }
}

pub(super) fn read_set(r: &mut Reader<'_>) -> Vec<(String, String)> {
    let mut columns = Vec::new();
    for (column, value) in r.entries() {
        match value {
            Value::String(sql) if !sql.trim().is_empty() && !column.trim().is_empty() => {
                columns.push((column.clone(), sql.clone()));
            }
            Value::String(_) => r.refuse(column, Invalid::new("a column and an SQL expression are needed")),
            other => r.refuse(column, wrong_type(column, "an SQL expression in quotes", other, "\"'expired'\"")),
        }
    }
    if r.entries().is_empty() {
        r.refuse_all(Invalid::new("`set` names no column").hint("for example set = { status = \"'expired'\" }"));
    }
    r.accept_all();
    columns
}

pub(super) fn read_cadence(r: &mut Reader<'_>, spec: &Spec, window: Option<Window>) -> Cadence {
    let every = r.duration("every", "\"1h\"", Duration::from_secs(1)..=366 * DAY);
    let at: Option<At> = r.parse("at", "\"02:00\"");
    let given = |key: &str| spec.get(key).is_some_and(|value| !value.is_null());
    if given("every") && given("at") {
        r.refuse("at", Invalid::new("`every` and `at` cannot both be given").hint("take one of them out"));
    }
    match (at, window) {
        (Some(at), Some(window)) if !window.covers(at.time) => {
            r.refuse("at", Invalid::new(format!("it would start at {at}, when the window {window} is closed")));
        }
        _ => {}
    }
    at.map_or(Cadence::Every(every.unwrap_or(Expire::DEFAULT_EVERY)), Cadence::At)
}

pub(super) fn read_batch(r: &mut Reader<'_>) -> (BatchSize, Duration) {
    let read = |inner: &mut Reader<'_>| {
        let rows = inner.number("rows", 1..=MAX_ROWS);
        let pause = inner.duration("pause", "\"100ms\"", Duration::ZERO..=HOUR);
        // The server counts whole milliseconds, and 0 would mean no time-out at all.
        let timeout = inner.duration("timeout", "\"30s\"", Duration::from_millis(10)..=24 * HOUR);
        let size = match (rows, pause) {
            (None, None) => BatchSize::Adaptive,
            _ => BatchSize::Fixed { rows: rows.unwrap_or(DEFAULT_ROWS), pause: pause.unwrap_or(DEFAULT_PAUSE) },
        };
        (size, timeout.unwrap_or(DEFAULT_TIMEOUT))
    };
    r.table("batch", "{ rows = 10000, pause = \"100ms\" }", read).unwrap_or((BatchSize::Adaptive, DEFAULT_TIMEOUT))
}

pub(super) fn read_brake(r: &mut Reader<'_>) -> Brake {
    let read = |inner: &mut Reader<'_>| {
        let rows = inner.number("rows", 1..=i64::MAX.unsigned_abs());
        if inner.is_off("share") {
            return Brake { rows, share: None, explicit: true };
        }
        let share = inner.share("share");
        Brake { rows, share: Some(share.unwrap_or(DEFAULT_SHARE)), explicit: share.is_some() }
    };
    let default = Brake { rows: None, share: Some(DEFAULT_SHARE), explicit: false };
    r.table("brake", "{ rows = 5000000, share = 0.5 }", read).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(more: Value) -> Result<Expire, FieldErrors> {
        let mut spec = Spec::new();
        spec.insert("table".into(), "public.keys".into());
        spec.insert("column".into(), "expires_at".into());
        spec.extend(more.as_object().unwrap().clone());
        Expire::parse("keys", &spec)
    }

    fn refusal(more: Value) -> String {
        parse(more).unwrap_err().to_string()
    }

    #[test]
    fn what_is_left_out_has_the_contracts_default() {
        let expire = parse(json!({})).unwrap();
        assert_eq!(expire.cadence, Cadence::Every(HOUR));
        assert_eq!((expire.batch, expire.batch_timeout), (BatchSize::Adaptive, DEFAULT_TIMEOUT));
        assert_eq!(expire.brake, Brake { rows: None, share: Some(0.5), explicit: false });
        assert_eq!((expire.mode, expire.audit, expire.action), (Mode::Enforce, AuditDetail::Batch, Action::Delete));
        assert!(expire.enabled && expire.older_than.is_none() && expire.zone == Zone::utc());
    }

    #[test]
    fn a_full_entry_is_read() {
        let expire = parse(json!({
            "name": "keys", "description": "d", "unit": "ms", "older_than": "90d", "where": "a", "zone": "Asia/Jakarta",
            "action": { "set": { "status": "'expired'" } }, "at": "SUN 03:00", "window": "22:00-05:00",
            "batch": { "rows": 100, "pause": "1s", "timeout": "5s" }, "mode": "observe", "brake": { "rows": 7 },
            "audit": "rows", "role": "w", "enabled": false,
        }))
        .unwrap();
        assert_eq!(expire.action, Action::Set(vec![("status".into(), "'expired'".into())]));
        assert_eq!(expire.batch, BatchSize::Fixed { rows: 100, pause: Duration::from_secs(1) });
        assert_eq!(expire.brake, Brake { rows: Some(7), share: Some(0.5), explicit: false });
        assert_eq!((expire.unit, expire.mode), (Some(EpochUnit::Millis), Mode::Observe));
        assert!(!expire.enabled);
    }

    #[test]
    fn a_time_out_alone_leaves_the_batch_adaptive() {
        let expire = parse(json!({ "batch": { "timeout": "5s" } })).unwrap();
        assert_eq!((expire.batch, expire.batch_timeout), (BatchSize::Adaptive, Duration::from_secs(5)));
        assert_eq!(parse(json!({ "brake": { "share": "off" } })).unwrap().brake.share, None);
    }

    #[test]
    fn an_interval_is_from_a_second_to_a_year() {
        for (every, says) in [
            ("0s", "at least 1s"),
            ("999ms", "at least 1s"),
            ("-5m", "cannot be negative"),
            ("5", "no unit"),
            ("367d", "at most 366d"),
            ("1mo", "no fixed length"),
            ("99999999999999999999s", "1000 years"),
        ] {
            let refusal = refusal(json!({ "every": every }));
            assert!(refusal.contains(says), "{every}: {refusal}");
        }
    }

    #[test]
    fn a_wrong_type_says_what_would_be_right() {
        assert_eq!(
            refusal(json!({ "every": 30 })),
            "every: `every` must be a text in quotes, not the number 30 (for example every = \"1h\")"
        );
        assert!(refusal(json!({ "enabled": "yes" })).contains("true or false"));
        assert!(refusal(json!({ "batch": 100 })).contains("for example batch = { rows = 10000"));
        assert!(refusal(json!({ "batch": { "rows": "many" } })).contains("a whole number"));
        assert!(refusal(json!({ "batch": { "rows": -1 } })).contains("from 1 to 10000000"));
        assert!(refusal(json!({ "batch": { "rows": 0.5 } })).contains("a whole number"));
        assert!(refusal(json!({ "action": 1 })).contains("\"delete\" or a table"));
        assert!(refusal(json!({ "action": { "set": { "a": 1 } } })).contains("an SQL expression in quotes"));
        assert!(refusal(json!({ "action": { "set": {} } })).contains("names no column"));
        assert!(refusal(json!({ "action": {} })).contains("`set` is missing"));
        assert!(refusal(json!({ "brake": { "share": 50 } })).contains("did you mean `0.5`?"));
        assert!(refusal(json!({ "brake": { "share": 0 } })).contains("more than 0"));
    }

    #[test]
    fn contradictions_and_unknown_keys_are_all_reported() {
        let errors = parse(json!({ "every": "1h", "at": "02:00", "colum": "x", "batch": { "row": 1 } })).unwrap_err().0;
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said.iter().any(|s| s == "unknown key `colum` (did you mean `column`?)"));
        assert!(said.iter().any(|s| s == "batch: unknown key `row` (did you mean `rows`?)"));
        assert!(errors.iter().any(|error| error.path == ["batch", "row"]));
        assert!(refusal(json!({ "at": "12:00", "window": "22:00-05:00" })).contains("closed"));
        assert!(refusal(json!({ "older_than": "0s" })).contains("more than nothing"));
        assert!(refusal(json!({ "mode": "observ" })).contains("did you mean `observe`?"));
        assert!(refusal(json!({ "name": "other" })).contains("the policy is called"));
        let missing = Expire::parse("keys", &Spec::new()).unwrap_err().to_string();
        assert!(missing.contains("`table` is missing") && missing.contains("`column` is missing"));
    }
}
