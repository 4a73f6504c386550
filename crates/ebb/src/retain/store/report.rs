//! What the audit is asked, and what reviews write down.

use sqlx::PgConnection;

use super::subjects::explain;
use crate::audit::Moment;
use crate::retain::report::{Deleted, Erased, Premature, SweptEarly};
use crate::{Result, sql};

/// A report lists no more of what went too early than this, of either kind; a review keeps all of it in mind.
const SHOWN: i64 = 1_000;

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
    query.bind(premature).bind(stuck).bind(slice.upto).execute(connection).await?;
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

pub(crate) async fn report_deleted(
    connection: &mut PgConnection,
    since: Moment,
    until: Moment,
    tenant: Option<&str>,
) -> Result<Vec<Deleted>> {
    Ok(sql!("report_deleted" as Deleted).bind(since).bind(until).bind(tenant).fetch_all(connection).await?)
}

pub(crate) async fn report_erased(
    connection: &mut PgConnection,
    since: Moment,
    until: Moment,
    tenant: Option<&str>,
) -> Result<Vec<Erased>> {
    Ok(sql!("report_erased" as Erased).bind(since).bind(until).bind(tenant).fetch_all(connection).await?)
}

pub(crate) async fn report_premature(
    connection: &mut PgConnection,
    since: Moment,
    until: Moment,
    tenant: Option<&str>,
) -> Result<Vec<Premature>> {
    let query = sql!("report_premature" as Premature).bind(since).bind(until).bind(tenant);
    Ok(query.bind(0_i64).bind(i64::MAX).bind(Some(SHOWN)).fetch_all(connection).await?)
}

/// All of them among the records after one up to another.
pub(crate) async fn premature_among(
    connection: &mut PgConnection,
    (after, upto): (i64, i64),
) -> Result<Vec<Premature>> {
    let query = sql!("report_premature" as Premature).bind(Moment::NEG_INFINITY).bind(Moment::INFINITY);
    Ok(query.bind(None::<&str>).bind(after).bind(upto).bind(None::<i64>).fetch_all(connection).await?)
}

pub(crate) async fn report_swept_early(
    connection: &mut PgConnection,
    since: Moment,
    until: Moment,
) -> Result<Vec<SweptEarly>> {
    let query = sql!("report_swept_early" as SweptEarly).bind(since).bind(until);
    Ok(query.bind(0_i64).bind(i64::MAX).bind(Some(SHOWN)).fetch_all(connection).await?)
}

/// All of them among the records after one up to another.
pub(crate) async fn swept_early_among(
    connection: &mut PgConnection,
    (after, upto): (i64, i64),
) -> Result<Vec<SweptEarly>> {
    let query = sql!("report_swept_early" as SweptEarly).bind(Moment::NEG_INFINITY).bind(Moment::INFINITY);
    Ok(query.bind(after).bind(upto).bind(None::<i64>).fetch_all(connection).await?)
}

pub(crate) async fn report_asked(
    connection: &mut PgConnection,
    since: Moment,
    until: Moment,
    tenant: Option<&str>,
) -> Result<Vec<(String, i64)>> {
    Ok(sql!("report_asked" as (String, i64)).bind(since).bind(until).bind(tenant).fetch_all(connection).await?)
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
