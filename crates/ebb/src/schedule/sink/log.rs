//! The sink `log`: a line in the node's log. The payload itself is shown only at DEBUG: it may be about people.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

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
        tracing::debug!(sink = self.name, occurrence = %delivery.occurrence, payload = delivery.payload.get(), "Payload");
        ready(Verdict::Delivered { response: None }).boxed()
    }
}
