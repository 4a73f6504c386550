//! The report: what was deleted, and whether any of it too early. Invariant: it is computed from the audit and the
//! policies' history alone, by queries that share nothing with the code that erases.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use super::store;
use crate::Result;
use crate::audit::Moment;

/// So many records of the audit are asked about in a statement, however many there are.
const RECORDS: i64 = 10_000;
/// A report lists no more of what went too early than this, of either kind; a review keeps all of it in mind.
const SHOWN: usize = 1_000;

/// What was deleted in a time, by whose rules, and what should not have been.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// From this moment on.
    pub since: Moment,
    /// Up to this one.
    pub until: Moment,
    /// Only of this tenant.
    pub tenant: Option<String>,
    /// Rows deleted, by day, policy and table.
    pub deleted: Vec<Deleted>,
    /// Subjects erased, by policy.
    pub erased: Vec<Erased>,
    /// Erasures before their time; must be none.
    pub premature: Vec<Premature>,
    /// Rows that went before their time by their age; must be none.
    pub swept_early: Vec<SweptEarly>,
    /// How often each thing was asked for: delete, restore, hold, release, override, …
    pub asked: Vec<(String, i64)>,
    /// Overrides that are shorter than the policy's default: (policy, tenant, retention).
    pub below_default: Vec<(String, String, String)>,
    /// Subjects that could not be erased: (policy, how many).
    pub failed: Vec<(String, i64)>,
}

/// Rows of a table that went on one day.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
#[expect(missing_docs, reason = "named for what they are")]
pub struct Deleted {
    pub day: String,
    pub policy: String,
    pub table: String,
    pub rows: i64,
}

/// Erased subjects of a policy.
#[derive(Debug, Clone, Serialize)]
pub struct Erased {
    /// The policy.
    pub policy: String,
    /// How many.
    pub subjects: i64,
    /// Of them more than a day after they were due.
    pub late: i64,
    /// Days from soft delete to erasure, on average.
    pub average_days: f64,
    /// The fewest.
    pub shortest_days: f64,
}

/// An erasure before its time.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
#[expect(missing_docs, reason = "named for what they are")]
pub struct Premature {
    pub record: i64,
    pub policy: String,
    pub deletion: Option<Uuid>,
    pub soft_deleted_at: Moment,
    pub erased_at: Moment,
    pub not_before: Moment,
}

/// Rows that went by their age before their time, all of one record.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
#[expect(missing_docs, reason = "named for what they are")]
pub struct SweptEarly {
    pub record: i64,
    pub policy: String,
    pub table: String,
    pub rows: i64,
    /// What was as old as this went, and whatever was older.
    pub newest: Moment,
    pub deleted_at: Moment,
    pub not_before: Moment,
}

/// What the audit is asked about: records of a time, of one tenant or of all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) since: Moment,
    pub(crate) until: Moment,
    pub(crate) tenant: Option<&'a str>,
    /// Records after this one …
    pub(crate) after: i64,
    /// … up to this one …
    pub(crate) upto: i64,
    /// … and these, where what went too early is asked for.
    pub(crate) late: &'a [i64],
}

impl<'a> Span<'a> {
    /// Records after one up to another, and some before them, whenever they were made.
    pub(crate) const fn among((after, upto): (i64, i64), late: &'a [i64]) -> Self {
        Self { since: Moment::NEG_INFINITY, until: Moment::INFINITY, tenant: None, after, upto, late }
    }
}

/// Subjects of a policy that went in a part of the audit.
#[derive(Debug, Clone, Default, sqlx::FromRow)]
pub(crate) struct ErasedPart {
    pub(crate) policy: String,
    pub(crate) subjects: i64,
    pub(crate) late: i64,
    /// Of so many it is known how long they were kept: for how long in all, and the shortest.
    pub(crate) timed: i64,
    pub(crate) days: f64,
    pub(crate) shortest_days: Option<f64>,
}

/// Makes the report over a time, a part of the audit after another.
pub async fn report(
    connection: &mut PgConnection,
    since: Option<Moment>,
    until: Option<Moment>,
    tenant: Option<&str>,
) -> Result<Report> {
    let (since, until) = store::report_span(connection, since, until).await?;
    let (first, last) = store::report_records(connection, since).await?;
    let mut deleted: BTreeMap<(String, String, String), i64> = BTreeMap::new();
    let mut erased: BTreeMap<String, ErasedPart> = BTreeMap::new();
    let mut asked: BTreeMap<String, i64> = BTreeMap::new();
    let (mut premature, mut swept_early) = (Vec::new(), Vec::new());
    let mut after = first - 1;
    while after < last {
        let upto = last.min(after + RECORDS);
        let span = Span { since, until, tenant, after, upto, late: &[] };
        for row in store::report_deleted(connection, span).await? {
            *deleted.entry((row.day, row.policy, row.table)).or_default() += row.rows;
        }
        for part in store::report_erased(connection, span).await? {
            erased.entry(part.policy.clone()).or_default().add(part);
        }
        for (what, times) in store::report_asked(connection, span).await? {
            *asked.entry(what).or_default() += times;
        }
        premature.extend(store::report_premature(connection, span).await?);
        if tenant.is_none() {
            swept_early.extend(store::report_swept_early(connection, span).await?);
        }
        premature.truncate(SHOWN);
        swept_early.truncate(SHOWN);
        after = upto;
    }
    Ok(Report {
        since,
        until,
        tenant: tenant.map(str::to_owned),
        deleted: deleted.into_iter().map(|((day, policy, table), rows)| Deleted { day, policy, table, rows }).collect(),
        erased: erased.into_values().map(ErasedPart::whole).collect(),
        premature,
        swept_early,
        asked: asked.into_iter().collect(),
        below_default: store::report_below_default(connection, tenant).await?,
        failed: store::stuck(connection, super::erase::ATTEMPTS, tenant)
            .await?
            .into_iter()
            .map(|(policy, count, _)| (policy, count))
            .collect(),
    })
}

impl ErasedPart {
    fn add(&mut self, part: Self) {
        let shortest = self.shortest_days.into_iter().chain(part.shortest_days).reduce(f64::min);
        *self = Self {
            policy: part.policy,
            subjects: self.subjects + part.subjects,
            late: self.late + part.late,
            timed: self.timed + part.timed,
            days: self.days + part.days,
            shortest_days: shortest,
        };
    }

    fn whole(self) -> Erased {
        let average_days = self.days / self.timed.max(1) as f64;
        let shortest_days = self.shortest_days.unwrap_or_default();
        Erased { policy: self.policy, subjects: self.subjects, late: self.late, average_days, shortest_days }
    }
}

impl Report {
    /// Whether it is about a tenant of whom nothing is on record in its time, which a wrong name has in common with a quiet one.
    pub fn knows_nothing(&self) -> bool {
        let nothing = self.deleted.is_empty() && self.erased.is_empty() && self.asked.is_empty();
        self.tenant.is_some() && nothing && self.below_default.is_empty() && self.failed.is_empty()
    }

    /// Whether nothing went before its time.
    pub fn is_clean(&self) -> bool {
        self.premature.is_empty() && self.swept_early.is_empty()
    }

    /// As comma-separated values: a line a day, policy and table; then, each under a header of its own after an empty line,
    /// everything else that the report has.
    pub fn csv(&self) -> String {
        let mut text = String::new();
        let mut table = |head: &str, rows: Vec<Vec<String>>| {
            text += if text.is_empty() { "" } else { "\n" };
            text += &format!("{head}\n");
            for row in rows {
                text += &row.iter().map(|value| cell(value)).collect::<Vec<_>>().join(",");
                text += "\n";
            }
        };
        let number = i64::to_string;
        let deleted = self.deleted.iter();
        table(
            "day,policy,table,rows",
            deleted.map(|r| vec![r.day.clone(), r.policy.clone(), r.table.clone(), number(&r.rows)]).collect(),
        );
        let days = |days: f64| format!("{days:.2}");
        let erased = self.erased.iter().map(|r| {
            vec![r.policy.clone(), number(&r.subjects), number(&r.late), days(r.average_days), days(r.shortest_days)]
        });
        table("policy,subjects_erased,late,average_days,shortest_days", erased.collect());
        let premature = self.premature.iter().map(|r| {
            let deletion = r.deletion.map(|id| id.to_string()).unwrap_or_default();
            let times = [r.soft_deleted_at, r.erased_at, r.not_before].map(|at| at.to_string());
            [vec!["premature".to_owned(), r.policy.clone(), number(&r.record), deletion], times.to_vec()].concat()
        });
        table("finding,policy,record,deletion,soft_deleted_at,erased_at,not_before", premature.collect());
        let early = self.swept_early.iter().map(|r| {
            let times = [r.newest, r.deleted_at, r.not_before].map(|at| at.to_string());
            [
                vec!["swept_early".to_owned(), r.policy.clone(), number(&r.record), r.table.clone(), number(&r.rows)],
                times.to_vec(),
            ]
            .concat()
        });
        table("finding,policy,record,table,rows,newest,deleted_at,not_before", early.collect());
        table("asked,times", self.asked.iter().map(|(what, times)| vec![what.clone(), number(times)]).collect());
        let below =
            self.below_default.iter().map(|(policy, tenant, term)| vec![policy.clone(), tenant.clone(), term.clone()]);
        table("policy,tenant,override_below_default", below.collect());
        table("policy,failed", self.failed.iter().map(|(policy, n)| vec![policy.clone(), number(n)]).collect());
        text
    }
}

fn cell(value: &str) -> String {
    match value.contains([',', '"', '\n']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")),
        false => value.to_owned(),
    }
}
