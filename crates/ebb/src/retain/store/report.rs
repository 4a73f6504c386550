//! What the audit is asked, and what reviews write down.

use sqlx::PgConnection;

use super::subjects::explain;
use crate::audit::Moment;
use crate::retain::report::{Deleted, ErasedPart, Premature, Span, SweptEarly};
use crate::{Result, sql};

/// Since when a review waits, what time it is, and whether somebody asked for one.
pub(crate) async fn review_due(connection: &mut PgConnection, unit: &str) -> Result<(Moment, Moment, bool)> {
    Ok(sql!("review_due" as (Moment, Moment, bool)).bind(unit).fetch_one(connection).await?)
}

/// A part of the audit that no review has seen.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct Slice {
    pub(crate) since: Moment,
    pub(crate) until: Moment,
    /// The last record that was seen before.
    pub(crate) reached: i64,
    /// The last of these.
    pub(crate) upto: i64,
    /// Subjects erased in it.
    pub(crate) erased: i64,
    pub(crate) more: bool,
    /// Records before these whose transactions the last review could not see yet.
    pub(crate) late: Vec<i64>,
    /// What of all transactions could be seen.
    pub(crate) snapshot: String,
}

pub(crate) async fn review_slice(connection: &mut PgConnection, records: i64) -> Result<Slice> {
    Ok(sql!("review_slice" as Slice).bind(records).fetch_one(connection).await?)
}

/// Keeps records of what went before its time in mind, each with its policy; returns those that were not known yet.
pub(crate) async fn note_premature(connection: &mut PgConnection, found: &[(i64, &str)]) -> Result<Vec<i64>> {
    let (records, policies): (Vec<i64>, Vec<&str>) = found.iter().copied().unzip();
    Ok(sql!("note_premature" scalar i64).bind(records).bind(policies).fetch_all(connection).await?)
}

pub(crate) async fn note_review(
    connection: &mut PgConnection,
    slice: &Slice,
    premature: i64,
    stuck: i64,
) -> Result<()> {
    let query = sql!("note_review").bind(slice.since).bind(slice.until).bind(slice.erased);
    query.bind(premature).bind(stuck).bind(slice.upto).bind(&slice.snapshot).execute(connection).await?;
    Ok(())
}

pub(crate) async fn count_premature(connection: &mut PgConnection) -> Result<u64> {
    Ok(sql!("count_premature" scalar i64).fetch_one(connection).await?.unsigned_abs())
}

/// Pages and bytes of a table, with partitions and indexes.
pub(crate) async fn table_size(connection: &mut PgConnection, table: u32) -> Result<(u64, i64)> {
    let (pages, bytes) = sql!("table_size" as (i64, i64)).bind(i64::from(table)).fetch_one(connection).await?;
    Ok((pages.unsigned_abs(), bytes))
}

/// Replaces what was measured of a policy: (tenant, rows, bytes).
pub(crate) async fn note_storage(
    connection: &mut PgConnection,
    policy: &str,
    measured: &[(String, i64, i64)],
    exact: bool,
) -> Result<()> {
    sql!("forget_storage").bind(policy).execute(&mut *connection).await?;
    let tenants: Vec<&str> = measured.iter().map(|(tenant, ..)| tenant.as_str()).collect();
    let rows: Vec<i64> = measured.iter().map(|(_, rows, _)| *rows).collect();
    let bytes: Vec<i64> = measured.iter().map(|(.., bytes)| *bytes).collect();
    let query = sql!("note_storage").bind(policy).bind(tenants).bind(rows).bind(bytes).bind(exact);
    query.execute(connection).await?;
    Ok(())
}

pub(crate) async fn report_span(
    connection: &mut PgConnection,
    since: Option<Moment>,
    until: Option<Moment>,
) -> Result<(Moment, Moment)> {
    Ok(sql!("report_span" as (Moment, Moment)).bind(since).bind(until).fetch_one(connection).await?)
}

/// The first record that may be about a time from a moment on, and the last that there is.
pub(crate) async fn report_records(connection: &mut PgConnection, since: Moment) -> Result<(i64, i64)> {
    Ok(sql!("report_records" as (i64, i64)).bind(since).fetch_one(connection).await?)
}

pub(crate) async fn report_deleted(connection: &mut PgConnection, span: Span<'_>) -> Result<Vec<Deleted>> {
    let query = sql!("report_deleted" as Deleted).bind(span.since).bind(span.until).bind(span.tenant);
    Ok(query.bind(span.after).bind(span.upto).fetch_all(connection).await?)
}

pub(crate) async fn report_erased(connection: &mut PgConnection, span: Span<'_>) -> Result<Vec<ErasedPart>> {
    let query = sql!("report_erased" as ErasedPart).bind(span.since).bind(span.until).bind(span.tenant);
    Ok(query.bind(span.after).bind(span.upto).fetch_all(connection).await?)
}

pub(crate) async fn report_premature(connection: &mut PgConnection, span: Span<'_>) -> Result<Vec<Premature>> {
    let query = sql!("report_premature" as Premature).bind(span.since).bind(span.until).bind(span.tenant);
    Ok(query.bind(span.after).bind(span.upto).bind(span.late).fetch_all(connection).await?)
}

/// Of all tenants: a record does not say whose rows it is about.
pub(crate) async fn report_swept_early(connection: &mut PgConnection, span: Span<'_>) -> Result<Vec<SweptEarly>> {
    let query = sql!("report_swept_early" as SweptEarly).bind(span.since).bind(span.until);
    Ok(query.bind(span.after).bind(span.upto).bind(span.late).fetch_all(connection).await?)
}

pub(crate) async fn report_asked(connection: &mut PgConnection, span: Span<'_>) -> Result<Vec<(String, i64)>> {
    let query = sql!("report_asked" as (String, i64)).bind(span.since).bind(span.until).bind(span.tenant);
    Ok(query.bind(span.after).bind(span.upto).fetch_all(connection).await?)
}

pub(crate) async fn report_below_default(
    connection: &mut PgConnection,
    tenant: Option<&str>,
) -> Result<Vec<(String, String, String)>> {
    Ok(sql!("report_below_default" as (String, String, String)).bind(tenant).fetch_all(connection).await?)
}

pub(crate) async fn past_erasures(connection: &mut PgConnection) -> Result<Vec<(String, Vec<u8>, Moment, Moment)>> {
    Ok(sql!("past_erasures" as (String, Vec<u8>, Moment, Moment)).fetch_all(connection).await?)
}

pub(crate) async fn replay_subject(
    connection: &mut PgConnection,
    policy: &str,
    id: &str,
    moment: Moment,
    by: &str,
) -> Result<()> {
    sql!("replay_subject").bind(policy).bind(id).bind(moment).bind(by).execute(connection).await.map_err(explain)?;
    Ok(())
}
