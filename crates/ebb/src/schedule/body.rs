//! From the stored body of an event to what a sink is handed. The bytes are those that were stored: nothing is written
//! again on the way.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::sink::Delivery;
use super::store::Claimed;

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// The delivery of a claimed event; why not, when its body is none of ours.
pub(super) fn delivery(event: &Claimed) -> Result<Delivery, String> {
    let body: Body<'_> =
        serde_json::from_str(&event.body).map_err(|error| format!("the stored body cannot be read: {error}"))?;
    Ok(Delivery {
        occurrence: event.id,
        event: event.event,
        attempt: event.attempts.unsigned_abs(),
        due_at: event.due_at.to_jiff(),
        kind: body.r#type.map(Cow::into_owned),
        payload: Arc::from(body.data.to_owned()),
        body: Arc::from(event.body.as_bytes()),
    })
}
