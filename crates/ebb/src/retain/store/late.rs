//! Links that are looked at once more after their subject is gone.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{Writers, rows};
use crate::audit::Moment;
use crate::{Result, sql};

/// A subject that is gone, and the values of its links, closed.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(crate) struct LateLink {
    pub(crate) id: i64,
    pub(crate) deletion: Uuid,
    pub(crate) horizon: i64,
    pub(crate) sealed: Vec<u8>,
    #[sqlx(flatten)]
    pub(crate) writers: Writers,
    pub(crate) tenant: Option<String>,
    /// What time it is.
    pub(crate) now: Moment,
    /// Its horizon is of this cluster.
    pub(crate) here: bool,
}

pub(crate) async fn add(
    connection: &mut PgConnection,
    policy: &str,
    deletions: &[Uuid],
    sealed: &[Vec<u8>],
) -> Result<()> {
    if deletions.is_empty() {
        return Ok(());
    }
    rows::apart(connection).await?;
    let added: Vec<i64> =
        sql!("add_late" scalar i64).bind(policy).bind(deletions).bind(sealed).fetch_all(&mut *connection).await?;
    sql!("put_horizon").bind(added).execute(&mut *connection).await?;
    rows::end_apart(connection).await
}

/// How far a run has come: horizon and id.
pub(crate) type LatePlace = (i64, i64);

pub(crate) async fn next(
    connection: &mut PgConnection,
    policy: &str,
    after: LatePlace,
    limit: u64,
) -> Result<Vec<LateLink>> {
    let query = sql!("next_late" as LateLink).bind(policy).bind(after.0).bind(after.1);
    Ok(query.bind(limit.min(i64::MAX as u64) as i64).fetch_all(connection).await?)
}

pub(crate) async fn forget(connection: &mut PgConnection, ids: &[i64]) -> Result<()> {
    sql!("forget_late").bind(ids).execute(connection).await?;
    Ok(())
}
