//! The sink `webhook`: one HTTP call by the rules of Standard Webhooks. Invariants: the stored bytes are sent as they
//! are; only 2xx is a success; a redirect is not followed, so that the target stays the one that was checked.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, StatusCode, Url};

use super::address::{PublicOnly, check_literal};
use super::signature::{Key, signatures};
use super::{Delivery, Response, Sink, Surroundings, Verdict, tls};
use crate::{Error, Result, policy};

/// How much of an answer is kept.
const KEPT: usize = 2 << 10;
/// How much of an answer is read: what ends here leaves its connection fit for the next call.
const READ: usize = 64 << 10;
/// The status has come, and decides: its body may take this much longer.
const PATIENCE: Duration = Duration::from_secs(2);
/// A receiver that asks for a longer break gets this one.
const LONGEST_BREAK: Duration = Duration::from_secs(86_400);

/// A date is one whatever day of the week it claims to be.
static DATES: DateTimeParser = DateTimeParser::new().relaxed_weekday(true);

pub(super) struct Webhook {
    client: Client,
    url: Url,
    keys: Vec<Key>,
}

impl Webhook {
    pub(super) fn open(webhook: &policy::Webhook, concurrency: usize, surroundings: &Surroundings) -> Result<Self> {
        let Surroundings { env, base } = surroundings;
        let url: Url = (webhook.url.under(base).resolve(env)?.parse())
            .map_err(|error| Error::config(format!("its url is none: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::config("its url does not start with https:// or http://"));
        }
        let mut client = Client::builder()
            .tls_backend_preconfigured(tls::client_config(webhook.ca.as_ref().map(|ca| base.join(ca)).as_deref())?)
            .user_agent(concat!("ebb/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .pool_max_idle_per_host(concurrency)
            .pool_idle_timeout(Duration::from_secs(30));
        if !webhook.allow_private {
            check_literal(&url).map_err(|refused| Error::config(refused.to_string()))?;
            client = client.dns_resolver(PublicOnly);
        }
        let client = client.build().map_err(|error| Error::failed(format!("no HTTP client: {}", chain(&error))))?;
        let key = |secret: &crate::config::Secret| {
            Key::parse(&secret.under(base).resolve(env)?).map_err(|error| error.context(format!("the secret {secret}")))
        };
        Ok(Self { client, url, keys: webhook.secrets.iter().map(key).collect::<Result<_>>()? })
    }

    async fn call(&self, delivery: &Delivery) -> Verdict {
        let id = delivery.occurrence.to_string();
        let timestamp = Timestamp::now().as_second();
        let mut request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("idempotency-key", &id)
            .header("webhook-id", &id)
            .header("webhook-timestamp", HeaderValue::from(timestamp));
        if !self.keys.is_empty() {
            request = request.header("webhook-signature", signatures(&self.keys, &id, timestamp, &delivery.body));
        }
        match request.body(delivery.body.to_vec()).send().await {
            Ok(answer) => judge(answer, Timestamp::now()).await,
            Err(error) => Verdict::transient(chain(&error.without_url())),
        }
    }
}

impl Sink for Webhook {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Verdict> {
        self.call(delivery).boxed()
    }
}

/// What an answer means. Its body is only kept for people: a receiver that stalls in it has said all that counts.
async fn judge(mut answer: reqwest::Response, now: Timestamp) -> Verdict {
    let status = answer.status();
    let retry_after = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => retry_after(answer.headers(), now),
        _ => None,
    };
    let mut body = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, async {
        while body.len() < READ
            && let Ok(Some(chunk)) = answer.chunk().await
        {
            body.extend_from_slice(&chunk);
        }
    })
    .await;
    let response = Some(Response { status: Some(status.as_u16()), body: kept(&body) });
    match status {
        status if status.is_success() => Verdict::Delivered { response },
        StatusCode::GONE => Verdict::Disabled { error: "the receiver answered 410 Gone".into() },
        status => {
            let hint = if status.is_redirection() { "; redirects are not followed" } else { "" };
            let error = format!("the receiver answered {status}{hint}");
            Verdict::Failed { error, permanent: is_permanent(status), retry_after, response }
        }
    }
}

/// Statuses that are about this event's content. What is about the endpoint (401, 404, …) somebody may yet mend.
fn is_permanent(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY
    )
}

/// Seconds or a date, within bounds.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = DATES.parse_timestamp(text).ok()?;
            Duration::try_from(at.duration_since(now)).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_BREAK))
}

fn kept(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(KEPT)]).replace('\0', "\u{fffd}");
    if body.len() > KEPT { format!("{text}…") } else { text }
}

/// An error with what it came from: the first alone only says that a request was not sent.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_is_asked_for_in_seconds_or_until_a_date_and_has_bounds() {
        let now = "2026-03-01T09:00:00Z".parse().unwrap();
        let asked = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(text).unwrap())]);
            retry_after(&headers, now).map(|wait| wait.as_secs())
        };
        assert_eq!(asked("120"), Some(120));
        assert_eq!(asked(" 0 "), Some(0));
        assert_eq!(asked("Sun, 01 Mar 2026 09:01:30 GMT"), Some(90));
        assert_eq!(asked("Sun, 01 Mar 2026 08:00:00 GMT"), Some(0));
        assert_eq!(asked("99999999999"), Some(86_400));
        assert_eq!(asked("Fri, 01 Mar 2030 09:00:00 GMT"), Some(86_400));
        for nonsense in ["-5", "soon", "1.5", "99999999999999999999999"] {
            assert_eq!(asked(nonsense), None, "{nonsense}");
        }
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }

    #[test]
    fn what_is_kept_of_an_answer_is_short_and_fits_a_database() {
        assert_eq!(kept(b"thanks"), "thanks");
        assert_eq!(kept(b"a\0b\xff"), "a\u{fffd}b\u{fffd}");
        let long = kept(&[b'x'; 1 << 20]);
        assert_eq!((long.len(), long.ends_with('…')), (KEPT + 3, true));
    }
}
