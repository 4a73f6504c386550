//! What the audit is asked, and what reviews write down.

use sqlx::PgConnection;

use super::subjects::explain;
use crate::audit::Moment;
use crate::retain::report::{Deleted, Erased, Premature, SweptEarly};
use crate::{Result, sql};

/// Since when a review waits, what time it is, and whether somebody asked for one.
pub(crate) async fn review_due(connection: &mut PgConnection, unit: &str) -> Result<(Moment, Moment, bool)> {
    Ok(sql!("review_due" as (Moment, Moment, bool)).bind(unit).fetch_one(connection).await?)
}

pub(crate) async fn review_since(connection: &mut PgConnection) -> Result<(Moment, Moment)> {
    Ok(sql!("review_since" as (Moment, Moment)).fetch_one(connection).await?)
}

/// Keeps records of what went before its time in mind, each with its policy.
pub(crate) async fn note_premature(connection: &mut PgConnection, found: &[(i64, &str)]) -> Result<()> {
    let (records, policies): (Vec<i64>, Vec<&str>) = found.iter().copied().unzip();
    sql!("note_premature").bind(records).bind(policies).execute(connection).await?;
    Ok(())
}

pub(crate) async fn note_review(
    connection: &mut PgConnection,
    (since, until): (Moment, Moment),
    erased: i64,
    premature: i64,
    stuck: i64,
) -> Result<()> {
    let query = sql!("note_review").bind(since).bind(until).bind(erased).bind(premature).bind(stuck);
    query.execute(connection).await?;
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
    let query = sql!("report_premature" as Premature);
    Ok(query.bind(since).bind(until).bind(tenant).fetch_all(connection).await?)
}

pub(crate) async fn report_swept_early(
    connection: &mut PgConnection,
    since: Moment,
    until: Moment,
) -> Result<Vec<SweptEarly>> {
    Ok(sql!("report_swept_early" as SweptEarly).bind(since).bind(until).fetch_all(connection).await?)
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
