//! When a row is due, as SQL. Invariant: never early, whatever the column's type: a date has passed when its day has
//! ended in the declared zone, a timestamp without zone is read in that zone, an integer counts whole units, a month is
//! one of that zone. Where a zone's clock goes back, an hour that comes twice is over when it has come twice.

use jiff::Timestamp;
use sqlx::postgres::types::PgInterval;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::pg::catalog::Column;
use crate::pg::{Ident, Literal};
use crate::policy::{EpochUnit, Expire, Zone};
use crate::{Error, Result};

/// The first timestamp PostgreSQL knows (4714 BC), in seconds since 1970.
const OLDEST: &str = "-210866803200";

/// The kinds of column that tell a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeType {
    TimestampTz,
    Timestamp,
    Date,
    Epoch(EpochUnit),
}

impl TimeType {
    /// Reads the catalog's type; integers need a `unit`, the others must not have one.
    pub(crate) fn of(column: &Column, unit: Option<EpochUnit>) -> Result<TimeType> {
        let name = column.name.as_str();
        match (column.base_type.as_str(), unit) {
            ("timestamp with time zone", None) => Ok(TimeType::TimestampTz),
            ("timestamp without time zone", None) => Ok(TimeType::Timestamp),
            ("date", None) => Ok(TimeType::Date),
            ("bigint" | "integer", Some(unit)) => Ok(TimeType::Epoch(unit)),
            ("bigint" | "integer", None) => Err(Error::config(format!("column {name} is an integer"))
                .with_hint(r#"say what it counts since 1970: unit = "s" or unit = "ms""#)),
            (base, Some(_)) => Err(Error::config(format!("column {name} is {base}, which has no unit"))
                .with_hint("remove `unit`; it is for integer columns")),
            (base, None) => Err(Error::config(format!("column {name} is {base}, which is no time"))
                .with_hint("use a timestamptz, timestamp, date, bigint or integer column")),
        }
    }

    fn sql_type(self) -> &'static str {
        match self {
            TimeType::TimestampTz => "timestamptz",
            TimeType::Timestamp => "timestamp",
            TimeType::Date => "date",
            TimeType::Epoch(_) => "int8",
        }
    }

    /// `<=`, or `<` where the column names a whole day that must have ended.
    fn comparison(self) -> &'static str {
        if self == TimeType::Date { "<" } else { "<=" }
    }

    /// The moment `cutoff` (a timestamptz expression) in the column's own terms.
    fn cutoff_at(self, cutoff: &str, zone: &str) -> String {
        match self {
            TimeType::TimestampTz => cutoff.to_owned(),
            // While an hour comes for the first time its values may mean the second, which is ahead.
            TimeType::Timestamp => {
                let local = format!("({cutoff} AT TIME ZONE {zone})");
                format!("({local} - GREATEST(({local} AT TIME ZONE {zone}) - {cutoff}, interval '0'))")
            }
            TimeType::Date => format!("({cutoff} AT TIME ZONE {zone})::date"),
            TimeType::Epoch(EpochUnit::Seconds) => format!("floor(extract(epoch FROM {cutoff}))::int8"),
            TimeType::Epoch(EpochUnit::Millis) => format!("floor(extract(epoch FROM {cutoff}) * 1000)::int8"),
        }
    }

    /// The moment that a value of the column stands for.
    fn moment_of(self, value: &str, zone: &str) -> String {
        match self {
            TimeType::TimestampTz => value.to_owned(),
            TimeType::Timestamp => format!("({value} AT TIME ZONE {zone})"),
            TimeType::Date => format!("(({value} + 1)::timestamp AT TIME ZONE {zone})"),
            // An integer can be older than any timestamp; the oldest one stands for it.
            TimeType::Epoch(EpochUnit::Seconds) => format!("to_timestamp(GREATEST({value}::float8, {OLDEST}))"),
            TimeType::Epoch(EpochUnit::Millis) => format!("to_timestamp(GREATEST({value}::float8 / 1000, {OLDEST}))"),
        }
    }
}

/// Whose time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// `ebb.now()`: what everything that changes rows goes by.
    Ebb,
    /// `now()`, for looking ahead where there is no `ebb` schema yet.
    Server,
    /// A moment that was asked about.
    At(Timestamp),
}

impl Clock {
    fn now(self) -> String {
        match self {
            Clock::Ebb => "ebb.now()".to_owned(),
            Clock::Server => "now()".to_owned(),
            Clock::At(moment) => format!("timestamptz {}", Literal(&moment.to_string())),
        }
    }
}

/// A column, what it means, and the cutoff of this run in its terms.
#[derive(Debug, Clone)]
pub(crate) struct Due {
    pub(crate) column: Ident,
    time: TimeType,
    zone: Zone,
    /// How old a row must be, by every term that it must outlive.
    ages: Vec<Age>,
    /// When the cutoff was fixed, by the clock that it comes from.
    pub(crate) as_of: Timestamp,
    /// The moment the run's cutoff stands for.
    pub(crate) cutoff: Timestamp,
    /// The cutoff as a constant of the column's type.
    literal: String,
}

impl Due {
    /// Fixes the cutoff, by the database's clock.
    pub(crate) async fn fix(
        connection: &mut PgConnection,
        policy: &Expire,
        column: &Column,
        clock: Clock,
    ) -> Result<Due> {
        let key = if policy.unit.is_some() { "unit" } else { "column" };
        let time = TimeType::of(column, policy.unit).map_err(|error| error.at_key(key))?;
        let zone = Literal(policy.zone.name()).to_string();
        let terms = policy.older_than.iter().chain(&policy.floor);
        let ages: Vec<Age> = terms.map(|term| Age::new(term.to_interval())).collect();
        let moment = match ages.as_slice() {
            [] => clock.now(),
            ages => one_of("LEAST", ages.iter().map(|age| age.before(&clock.now(), &zone))),
        };
        let sql = format!("SELECT {}, {moment}, ({})::text", clock.now(), time.cutoff_at(&moment, &zone));
        let (as_of, cutoff, text): (jiff_sqlx::Timestamp, jiff_sqlx::Timestamp, String) =
            sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_one(connection).await?;
        let mut due = Due {
            column: column.name.clone(),
            time,
            zone: policy.zone.clone(),
            ages,
            as_of: as_of.to_jiff(),
            cutoff: cutoff.to_jiff(),
            literal: String::new(),
        };
        due.literal = due.constant(&text);
        Ok(due)
    }

    /// A value of the column, as text the server printed, turned into a constant again.
    pub(crate) fn constant(&self, text: &str) -> String {
        format!("{}::{}", Literal(text), self.time.sql_type())
    }

    /// The column's type, as SQL names it.
    pub(crate) fn sql_type(&self) -> &'static str {
        self.time.sql_type()
    }

    /// The cutoff of this run, as a constant of the column's type.
    pub(crate) fn cutoff_constant(&self) -> &str {
        &self.literal
    }

    /// The whole condition of time, for a cutoff of the column's type.
    pub(crate) fn condition_at(&self, cutoff: &str) -> String {
        format!("{} {} {cutoff}", self.column, self.time.comparison())
    }

    /// When a value of the column became due.
    pub(crate) fn due_at(&self, value: &str) -> String {
        let zone = Literal(self.zone.name()).to_string();
        let moment = self.time.moment_of(value, &zone);
        match self.ages.as_slice() {
            [] => moment,
            ages => one_of("GREATEST", ages.iter().map(|age| age.after(&moment, &zone))),
        }
    }
}

/// The first or the last of some moments.
fn one_of(which: &str, moments: impl Iterator<Item = String>) -> String {
    match moments.collect::<Vec<_>>().as_slice() {
        [one] => one.clone(),
        several => format!("{which}({})", several.join(", ")),
    }
}

/// How old a row must be. Days and less have a fixed length; months are counted on the zone's calendar.
#[derive(Debug, Clone)]
struct Age {
    months: Option<String>,
    rest: String,
}

impl Age {
    fn new(interval: PgInterval) -> Self {
        let months = (interval.months != 0).then(|| format!("make_interval(months => {})", interval.months));
        let seconds = interval.microseconds as f64 / 1e6;
        Self { months, rest: format!("make_interval(days => {}, secs => {seconds})", interval.days) }
    }

    /// The moment that is so long before another one.
    fn before(&self, moment: &str, zone: &str) -> String {
        match &self.months {
            None => format!("({moment} - {})", self.rest),
            // An hour that comes twice is taken as the first, which is never too late a cutoff, and while it comes for the first
            // time nothing is over that ends in it. One that is left out begins when it would have: neither do rows after it
            // count as before it, nor is over what ends in it.
            Some(months) => {
                let local = |instant: &str| format!("{instant} AT TIME ZONE {zone}");
                let ahead = |one: &str, other: &str| format!("GREATEST({one} - {other}, interval '0')");
                let hours = "interval '3 hours'";
                let first = |time: &str| {
                    let earlier = format!("({time} - {hours})");
                    format!("LEAST({}, ({}) + {hours})", local(time), local(&earlier))
                };
                format!(
                    "(SELECT c.at - {skipped} - {rest} FROM (SELECT {moment} AS now) AS m \
                     CROSS JOIN LATERAL (SELECT m.now - {twice} AS at) AS k \
                     CROSS JOIN LATERAL (SELECT {here} - {months} AS at) AS l \
                     CROSS JOIN LATERAL (SELECT {there} AS at) AS c)",
                    skipped = ahead(&format!("({})", local("c.at")), "l.at"),
                    rest = self.rest,
                    twice = ahead(&format!("({})", local(&local("m.now"))), "m.now"),
                    here = first("k.at"),
                    there = first("l.at"),
                )
            }
        }
    }

    /// The moment that is so long after another one.
    fn after(&self, moment: &str, zone: &str) -> String {
        let rest = format!("({moment} + {})", self.rest);
        match &self.months {
            None => rest,
            Some(months) => format!("((({rest} AT TIME ZONE {zone}) + {months}) AT TIME ZONE {zone})"),
        }
    }
}
