//! Subjects that the application soft-deleted and whose deletion nobody has opened yet: who they are, and when they fall due.
//! Invariants: whoever is on hold or whose tenant lets nothing be erased is left out; no look takes longer than its patience,
//! for which it sets the transaction's time-out; where the ebb schema is not there, the policy's own terms count alone.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{Root, id_sql};
use crate::Result;
use crate::audit::Moment;
use crate::pg::Literal;
use crate::policy::{Term, Zone};

/// By which terms a soft delete falls due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) policy: &'a str,
    pub(crate) grace: Term,
    pub(crate) floor: Term,
    /// Tenants may have their own.
    pub(crate) own: bool,
    /// How long before its end a subject is warned.
    pub(crate) warned: Option<Term>,
    /// Whether the ebb schema is there.
    pub(crate) installed: bool,
}

/// A moment and a term after it, as `ebb.later` has it: months on the zone's calendar, days of 24 hours.
pub(crate) fn later(moment: &str, term: &Term, zone: &Zone) -> String {
    let interval = term.to_interval();
    let fixed = format!("interval '{} hours {} microseconds'", i64::from(interval.days) * 24, interval.microseconds);
    let zone = Literal(zone.name());
    match interval.months {
        0 => format!("({moment} + {fixed})"),
        months => {
            format!("(((({moment} + {fixed}) AT TIME ZONE {zone}) + interval '{months} months') AT TIME ZONE {zone})")
        }
    }
}

fn interval(term: &Term) -> String {
    let interval = term.to_interval();
    format!("interval '{} months {} days {} microseconds'", interval.months, interval.days, interval.microseconds)
}

/// The next soft-deleted rows nobody has marked that are due by a moment, as (id, due).
fn soft_deleted(root: &Root, terms: Terms<'_>, by: &str) -> String {
    let (grace, floor) = (interval(&terms.grace), interval(&terms.floor));
    let (policy, zone) = (Literal(terms.policy), Literal(root.zone.name()));
    let clock = if terms.installed { "ebb.now()" } else { "now()" };
    let due = match terms.installed {
        true => format!(
            "CASE WHEN o.enabled IS FALSE THEN 'infinity' ELSE \
             GREATEST(ebb.later(s.moment, {floor}, {zone}), ebb.later(s.moment, COALESCE(o.retention, {grace}), {zone})) END"
        ),
        false => format!(
            "GREATEST({}, {})",
            later("s.moment", &terms.floor, &root.zone),
            later("s.moment", &terms.grace, &root.zone)
        ),
    };
    let due = match &terms.warned {
        Some(warned) => format!("GREATEST({due}, {})", later(clock, warned, &root.zone)),
        None => due,
    };
    let (own, open) = match terms.installed {
        true => (
            format!("LEFT JOIN ebb.tenant_override o ON o.policy = {policy} AND o.tenant = s.tenant AND {}", terms.own),
            format!(
                "WHERE NOT EXISTS (SELECT FROM ebb.deletion d WHERE d.policy = {policy} AND d.subject_id = s.id \
                                   AND d.state IN ('pending', 'warned', 'erasing', 'failed')) \
                   AND NOT EXISTS (SELECT FROM ebb.hold h WHERE h.policy = {policy} AND h.subject_id = s.id \
                                   AND h.lifted_at IS NULL AND (h.until IS NULL OR h.until > ebb.now()))"
            ),
        ),
        false => (String::new(), String::new()),
    };
    // An index leads to those that were deleted long enough ago. Two intervals compare as if every month had thirty days, so
    // the bound is a little later than any of them can be due.
    let shortest = match terms.installed && terms.own {
        true => format!(
            "GREATEST({floor}, LEAST({grace}, (SELECT min(retention) FROM ebb.tenant_override WHERE policy = {policy})))"
        ),
        false => format!("GREATEST({floor}, {grace})"),
    };
    let bound = format!("({by}::timestamptz - {shortest} * 0.95 + interval '2 days')");
    let deleted_at = &root.deleted_at;
    format!(
        "SELECT u.id, u.due FROM (\
             SELECT s.id, {due} AS due FROM (\
                 SELECT {id} AS id, {moment} AS moment, {tenant} AS tenant FROM {relation} AS n \
                 WHERE n.{deleted_at} IS NOT NULL AND pg_catalog.isfinite(n.{deleted_at}) \
                   AND n.{deleted_at} OPERATOR(pg_catalog.<=) {bound}) AS s \
             {own} {open}) AS u WHERE u.due <= {by}::timestamptz",
        id = id_sql(&root.key, "n"),
        moment = root.time.moment(&format!("n.{deleted_at}"), &root.zone),
        tenant = root.tenant.as_ref().map_or("NULL::text".to_owned(), |tenant| format!("n.{tenant}::text")),
        relation = root.relation,
        bound = root.time.value(&bound, &root.zone),
    )
}

/// Those whose term is over, of some subjects or of all, at most so many, within two seconds.
pub(crate) async fn unmarked(
    connection: &mut PgConnection,
    root: &Root,
    terms: Terms<'_>,
    only: Option<&[String]>,
    limit: u64,
) -> Result<Vec<String>> {
    sqlx::raw_sql("SET LOCAL statement_timeout = '2s'").execute(&mut *connection).await?;
    let clock = if terms.installed { "ebb.now()" } else { "now()" };
    // Whoever is still to be warned has a term of their own from then on.
    let over = soft_deleted(root, Terms { warned: None, ..terms }, clock);
    let among = if only.is_some() { " WHERE over.id IN (SELECT i.id FROM unnest($1::text[]) AS i (id))" } else { "" };
    let sql = format!("SELECT over.id FROM ({over}) AS over{among} LIMIT {limit}");
    let mut query = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false);
    if let Some(only) = only {
        query = query.bind(only);
    }
    Ok(query.fetch_all(connection).await?)
}

/// Those who are soft-deleted at no time, at most so many, within two seconds. What is `infinity` lives, by many an application.
pub(crate) async fn undated(connection: &mut PgConnection, root: &Root, limit: u64) -> Result<Vec<String>> {
    sqlx::raw_sql("SET LOCAL statement_timeout = '2s'").execute(&mut *connection).await?;
    let sql = format!(
        "SELECT {} FROM {} AS n WHERE n.{} OPERATOR(pg_catalog.=) '-infinity' LIMIT {limit}",
        id_sql(&root.key, "n"),
        root.relation,
        root.deleted_at
    );
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await?)
}

/// How many fall due on each of the days after a moment, within five seconds; day 0 is what is due by then.
pub(crate) async fn unmarked_by_day(
    connection: &mut PgConnection,
    root: &Root,
    terms: Terms<'_>,
    from: Moment,
    days: u32,
) -> Result<Vec<(i32, i64)>> {
    sqlx::raw_sql("SET LOCAL statement_timeout = '5s'").execute(&mut *connection).await?;
    let from = format!("{}::timestamptz", Literal(&from.to_string()));
    let until = format!("({from} + interval '{} hours')", 24 * u64::from(days));
    let sql = format!(
        "SELECT GREATEST(0, ceil(extract(epoch FROM ahead.due - {from}) / 86400))::int AS day, count(*) \
         FROM ({}) AS ahead GROUP BY 1",
        soft_deleted(root, terms, &until)
    );
    Ok(sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_all(connection).await?)
}
