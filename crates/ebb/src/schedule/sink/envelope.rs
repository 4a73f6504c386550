//! The body of a delivery: `{id, type, idempotencyKey, eventId, due_at, data}`. Invariant: a function of its arguments
//! alone, and the payload goes through as it is stored, so that whoever builds it again gets the same bytes.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    id: Uuid,
    r#type: Option<&'a str>,
    idempotency_key: Uuid,
    event_id: Uuid,
    #[serde(rename = "due_at")]
    due_at: String,
    data: &'a RawValue,
}

/// The bytes that are stored with an occurrence and sent on every attempt.
pub fn envelope(occurrence: Uuid, event: Uuid, due_at: Timestamp, payload: &RawValue) -> Vec<u8> {
    let kind = kind(payload);
    let envelope = Envelope {
        id: occurrence,
        r#type: kind.as_deref(),
        idempotency_key: occurrence,
        event_id: event,
        due_at: due_at.to_string(),
        data: payload,
    };
    serde_json::to_vec(&envelope).expect("ids, a time and JSON that was parsed before are JSON")
}

/// What sort of event a payload is by its own word: `type`, or else `event`, where that is a text.
pub fn kind(payload: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Kinds {
        r#type: Option<serde_json::Value>,
        event: Option<serde_json::Value>,
    }
    let kinds: Kinds = serde_json::from_str(payload.get()).ok()?;
    [kinds.r#type, kinds.event].into_iter().flatten().find_map(|word| match word {
        serde_json::Value::String(word) if !word.is_empty() => Some(word),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn the_body_has_the_documented_keys_in_order_and_the_payload_as_it_was() {
        let (occurrence, event) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let payload = raw(r#"{"type": "birthday",  "n": 1.50}"#);
        let body = envelope(occurrence, event, "2026-03-01T09:00:00.5Z".parse().unwrap(), &payload);
        assert_eq!(
            String::from_utf8(body).unwrap(),
            r#"{"id":"00000000-0000-0000-0000-000000000001","type":"birthday","idempotencyKey":"00000000-0000-0000-0000-000000000001","eventId":"00000000-0000-0000-0000-000000000002","due_at":"2026-03-01T09:00:00.5Z","data":{"type": "birthday",  "n": 1.50}}"#
        );
    }

    #[test]
    fn the_kind_is_a_text_of_the_payload_or_nothing() {
        let kind = |text: &str| kind(&raw(text));
        assert_eq!(kind(r#"{"event": "moved", "type": 4}"#).as_deref(), Some("moved"));
        assert_eq!(kind(r#"{"type": "a", "event": "b"}"#).as_deref(), Some("a"));
        for none in ["{}", "[1]", "\"type\"", "null", r#"{"type": ""}"#] {
            assert_eq!(kind(none), None, "{none}");
        }
    }
}
