//! The SQL of lineage.

use sqlx::PgConnection;

use super::Event;
use crate::audit::Moment;
use crate::sql;

/// Claims and keeps; returns the keys that were new.
pub(super) async fn accept(tx: &mut PgConnection, events: &[Event]) -> sqlx::Result<Vec<String>> {
    let texts = |of: fn(&Event) -> Option<&str>| events.iter().map(of).collect::<Vec<Option<&str>>>();
    let times: Vec<Moment> = events.iter().map(|event| event.event_time).collect();
    sql!("accept" scalar String)
        .bind(texts(|event| Some(&event.key)))
        .bind(times)
        .bind(texts(|event| event.event_type.as_deref()))
        .bind(texts(|event| Some(&event.producer)))
        .bind(texts(|event| event.job_namespace.as_deref()))
        .bind(texts(|event| event.job_name.as_deref()))
        .bind(texts(|event| event.run_id.as_deref()))
        .bind(texts(|event| Some(&event.raw)))
        .fetch_all(tx)
        .await
}
