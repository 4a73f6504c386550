//! The sink `log`: a line in the node's log. The payload itself is shown only at DEBUG: it may be about people. Of a warning, which is,
//! nothing is shown that leads to somebody or acts for them.

use std::borrow::Cow;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use serde_json::Value;

use super::{Delivery, Sink, Verdict};

pub(super) struct Log {
    pub(super) name: String,
}

impl Sink for Log {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Verdict> {
        tracing::info!(
            sink = self.name,
            event = %delivery.event,
            occurrence = %delivery.occurrence,
            kind = delivery.kind,
            due = %delivery.due_at,
            attempt = delivery.attempt,
            "Event delivered"
        );
        tracing::debug!(sink = self.name, occurrence = %delivery.occurrence, payload = %shown(delivery.payload.get()), "Payload");
        ready(Verdict::Delivered { response: None }).boxed()
    }
}

/// A payload as the log may have it.
fn shown(payload: &str) -> Cow<'_, str> {
    let Ok(mut read) = serde_json::from_str::<Value>(payload) else { return Cow::Borrowed(payload) };
    if !read["data"]["restore_url"].is_string() {
        return Cow::Borrowed(payload);
    }
    for place in ["/user_id", "/data/email", "/data/name", "/data/restore_url"] {
        if let Some(value) = read.pointer_mut(place) {
            *value = "(hidden)".into();
        }
    }
    Cow::Owned(read.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_warning_nothing_is_shown_that_leads_to_somebody() {
        let warning = json!({ "type": "deletion_warning", "user_id": "ayu", "data": {
            "email": "ayu@example.test", "name": "Ayu", "days_remaining": 30, "restore_url": "https://x.test/T0K3N" } });
        let text = shown(&warning.to_string()).into_owned();
        assert!(text.contains("30") && text.contains("(hidden)"), "{text}");
        for secret in ["ayu", "Ayu", "T0K3N"] {
            assert!(!text.contains(secret), "{text}");
        }
        for other in ["{\"data\": [\"mail\"]}", "{\"name\": \"Ayu\"}", "7", "no JSON"] {
            assert_eq!(shown(other), other);
        }
    }
}
