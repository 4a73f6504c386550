//! `[[partition]]`: a table split by time, whose next partitions always exist and whose expired ones go at once.
//! Invariant: what is to become of a partition that is past its time is stated here in full, so that the chore never
//! has to guess between detached and dropped.

use std::time::Duration;

use super::expire::{read_batch, read_brake, read_cadence};
use super::field::Invalid;
use super::{
    Action, AuditDetail, BatchSize, Brake, Cadence, EpochUnit, Expire, FieldErrors, Mode, Name, Reader, Scalar, Spec,
    Term, Window, Zone, read_name,
};

/// Which table, split how, kept how long.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// Its name.
    pub name: Name,
    /// What it is for, in words.
    pub description: Option<String>,
    /// The table as it was typed; the catalog resolves it.
    pub table: String,
    /// The column it is partitioned by.
    pub column: String,
    /// What an integer column counts since 1970.
    pub unit: Option<EpochUnit>,
    /// How long a partition's period is.
    pub by: Period,
    /// How many periods after the current one exist already.
    pub ahead: u64,
    /// How long a partition stays after its end; absent: for ever.
    pub keep: Option<Term>,
    /// What happens to one that is past that.
    pub expired: Expired,
    /// Where `at`, `window` and columns without a zone are at home.
    pub zone: Zone,
    /// When to look.
    pub cadence: Cadence,
    /// When work may start.
    pub window: Option<Window>,
    /// No statement takes longer.
    pub batch_timeout: Duration,
    /// Whether expired partitions go or are only reported. The next ones are made either way.
    pub mode: Mode,
    /// When what would go is too much to be meant.
    pub brake: Brake,
    /// The role for statements on the user's table.
    pub role: Option<String>,
    /// Whether it runs.
    pub enabled: bool,
}

/// The length of a partition's period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday (ISO 8601).
    Week,
    /// A calendar month.
    Month,
    /// A calendar year.
    Year,
}

impl Period {
    /// All of them.
    pub const ALL: [Period; 4] = [Self::Day, Self::Week, Self::Month, Self::Year];

    /// Its word in `ebb.toml` and in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }
}

impl std::str::FromStr for Period {
    type Err = Invalid;

    fn from_str(word: &str) -> Result<Self, Invalid> {
        Self::ALL.into_iter().find(|period| period.as_str() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str);
            let hint = super::nearest(word, words).map_or_else(|| words.join(", "), super::did_you_mean);
            Invalid::new(format!("{word:?} is no period")).hint(hint)
        })
    }
}

/// What becomes of a partition whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    /// Detached, and dropped at once.
    Drop,
    /// Detached, and dropped so long afterwards; never, when no time is stated.
    Detach(Option<Term>),
}

pub(super) const SCALARS: &[Scalar] = &[
    Scalar::Text("description"),
    Scalar::Text("table"),
    Scalar::Text("column"),
    Scalar::Text("unit"),
    Scalar::Text("by"),
    Scalar::Plain("ahead"),
    Scalar::Text("keep"),
    Scalar::Text("expired"),
    Scalar::Text("detached_for"),
    Scalar::Text("zone"),
    Scalar::Text("every"),
    Scalar::Text("at"),
    Scalar::Text("window"),
    Scalar::Text("batch.timeout"),
    Scalar::Text("mode"),
    Scalar::Plain("brake.rows"),
    Scalar::Plain("brake.share"),
    Scalar::Text("role"),
    Scalar::Plain("enabled"),
];

const MAX_AHEAD: u64 = 1_000;

impl Partition {
    /// How many periods ahead exist by default.
    pub const DEFAULT_AHEAD: u64 = 12;

    pub(super) fn parse(name: &str, spec: &Spec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(spec);
        let r = &mut reader;
        let name = read_name(r, name);
        let description = r.text("description", "\"ingested keys by month\"");
        let table = r.required("table", "\"public.my_table\"");
        let column = r.required("column", "\"created_at\"");
        let unit = r.choice("unit", &[("s", EpochUnit::Seconds), ("ms", EpochUnit::Millis)]);
        let by = r
            .required("by", "\"month\"")
            .and_then(|word| word.parse::<Period>().map_err(|invalid| r.refuse("by", invalid)).ok());
        let ahead = r.number("ahead", 1..=MAX_AHEAD).unwrap_or(Self::DEFAULT_AHEAD);
        let keep = r.term("keep", "\"13mo\"");
        let expired = read_expired(r, spec);
        let zone = r.parse("zone", "\"Asia/Jakarta\"").unwrap_or_else(Zone::utc);
        let window = r.parse("window", "\"22:00-05:00\"");
        let cadence = read_cadence(r, spec, window);
        let (batch, batch_timeout) = read_batch(r);
        if batch != BatchSize::Adaptive {
            let invalid =
                Invalid::new("upkeep goes partition by partition: of `batch` only `timeout` means something here");
            r.refuse("batch", invalid.hint("take `rows` and `pause` out"));
        }
        let mode = r.choice("mode", &[("enforce", Mode::Enforce), ("observe", Mode::Observe)]);
        let brake = read_brake(r);
        let role = r.text("role", "\"ebb_worker\"");
        let enabled = r.flag("enabled", true);
        reader.finish()?;
        let (Some(name), Some(table), Some(column), Some(by)) = (name, table, column, by) else {
            return Err(super::whole("`name`, `table`, `column` and `by` are needed".into()));
        };
        Ok(Self {
            name,
            description,
            table,
            column,
            unit,
            by,
            ahead,
            keep,
            expired,
            zone,
            cadence,
            window,
            batch_timeout,
            mode: mode.unwrap_or(Mode::Enforce),
            brake,
            role,
            enabled,
        })
    }

    /// What an expire policy means for whole partitions, where it means anything: every row goes by its age alone, and by one term. Of
    /// two, which is the longer depends on the month.
    pub(crate) fn of_expire(expire: &Expire) -> Option<Self> {
        let by_age = expire.filter.is_none()
            && expire.floor.is_none()
            && expire.action == Action::Delete
            && expire.audit == AuditDetail::Batch;
        by_age.then(|| Self {
            name: expire.name.clone(),
            description: expire.description.clone(),
            table: expire.table.clone(),
            column: expire.column.clone(),
            unit: expire.unit,
            by: Period::Day,
            ahead: 0,
            keep: Some(expire.older_than.unwrap_or(Term::seconds(0))),
            expired: Expired::Drop,
            zone: expire.zone.clone(),
            cadence: expire.cadence.clone(),
            window: expire.window,
            batch_timeout: expire.batch_timeout,
            mode: expire.mode,
            brake: expire.brake,
            role: expire.role.clone(),
            enabled: expire.enabled,
        })
    }

    /// What its unit is called in SQL.
    pub(crate) fn unit_word(&self) -> Option<&'static str> {
        self.unit.map(|unit| match unit {
            EpochUnit::Seconds => "s",
            EpochUnit::Millis => "ms",
        })
    }
}

fn read_expired(r: &mut Reader<'_>, spec: &Spec) -> Expired {
    let detach = r.choice("expired", &[("drop", false), ("detach", true)]).unwrap_or(false);
    let detached_for = r.term("detached_for", "\"7d\"");
    let given = |key: &str| spec.get(key).is_some_and(|value| !value.is_null());
    if given("detached_for") && !detach {
        let invalid = Invalid::new("`detached_for` says how long a detached partition stays");
        r.refuse("detached_for", invalid.hint("add expired = \"detach\", or take it out"));
    }
    if given("expired") && !given("keep") {
        let invalid = Invalid::new("without `keep` no partition expires");
        r.refuse("expired", invalid.hint("add keep = \"13mo\", or take it out"));
    }
    if detach { Expired::Detach(detached_for) } else { Expired::Drop }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parse(more: Value) -> Result<Partition, FieldErrors> {
        let mut spec = json!({ "table": "public.t", "column": "at", "by": "month" }).as_object().unwrap().clone();
        spec.extend(more.as_object().unwrap().clone());
        Partition::parse("t", &spec)
    }

    #[test]
    fn what_is_left_out_has_the_contracts_default() {
        let policy = parse(json!({})).unwrap();
        assert_eq!((policy.ahead, policy.keep, policy.expired), (12, None, Expired::Drop));
        assert_eq!(policy.cadence, Cadence::Every(Duration::from_secs(3600)));
        assert!(policy.enabled && policy.mode == Mode::Enforce);
    }

    #[test]
    fn what_becomes_of_an_expired_partition_is_stated_in_full() {
        let detach = parse(json!({ "keep": "13mo", "expired": "detach", "detached_for": "7d" })).unwrap();
        assert_eq!(detach.expired, Expired::Detach(Some(Term::days(7))));
        let refusal = |more| parse(more).unwrap_err().to_string();
        assert!(refusal(json!({ "keep": "13mo", "detached_for": "7d" })).contains("add expired = \"detach\""));
        assert!(refusal(json!({ "expired": "drop" })).contains("without `keep`"));
        assert!(refusal(json!({ "by": "months" })).contains("did you mean `month`?"));
        assert!(refusal(json!({ "by": null })).contains("`by` is missing"));
        assert!(refusal(json!({ "ahead": 0 })).contains("from 1 to 1000"));
    }
}
