//! The report: what was deleted, and whether any of it too early. Invariant: it is computed from the audit and the
//! policies' history alone, by queries that share nothing with the code that erases.

use serde::Serialize;
use sqlx::PgConnection;
use uuid::Uuid;

use super::store;
use crate::Result;
use crate::audit::Moment;

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
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
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

/// Makes the report over a time.
pub async fn report(
    connection: &mut PgConnection,
    since: Option<Moment>,
    until: Option<Moment>,
    tenant: Option<&str>,
) -> Result<Report> {
    let (since, until) = store::report_span(connection, since, until).await?;
    Ok(Report {
        since,
        until,
        tenant: tenant.map(str::to_owned),
        deleted: store::report_deleted(connection, since, until, tenant).await?,
        erased: store::report_erased(connection, since, until, tenant).await?,
        premature: store::report_premature(connection, since, until, tenant).await?,
        swept_early: match tenant {
            None => store::report_swept_early(connection, since, until).await?,
            Some(_) => Vec::new(),
        },
        asked: store::report_asked(connection, since, until, tenant).await?,
        below_default: store::report_below_default(connection, tenant).await?,
        failed: store::stuck(connection, super::erase::ATTEMPTS, tenant)
            .await?
            .into_iter()
            .map(|(policy, count, _)| (policy, count))
            .collect(),
    })
}

impl Report {
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
