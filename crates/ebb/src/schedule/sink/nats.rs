//! The sink `nats`: a message in a JetStream stream. Invariants: delivered means that the stream has acknowledged it;
//! `Nats-Msg-Id` is the occurrence's id, so that the stream itself drops a repeat inside its window.

use async_nats::connection::State;
use async_nats::header::{NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, HeaderMap};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use tokio::sync::Mutex;

use super::{Delivery, Response, Sink, Surroundings, Verdict, tls};
use crate::{Error, Result, policy};

pub(super) struct Nats {
    url: Url,
    credentials: Option<String>,
    tls: rustls::ClientConfig,
    stream: Option<String>,
    subject: String,
    client: Mutex<Option<Client>>,
}

impl Nats {
    pub(super) fn open(nats: &policy::Nats, surroundings: &Surroundings) -> Result<Self> {
        let Surroundings { env, base } = surroundings;
        let url = nats.url.under(base).resolve(env)?;
        let sink = Self {
            url: url.parse().map_err(|error| Error::config(format!("its url is none: {error}")))?,
            credentials: nats.credentials.as_ref().map(|secret| secret.under(base).resolve(env)).transpose()?,
            tls: tls::client_config(nats.ca.as_ref().map(|ca| base.join(ca)).as_deref())?,
            stream: nats.stream.clone(),
            subject: nats.subject.clone(),
            client: Mutex::new(None),
        };
        sink.options()?;
        Ok(sink)
    }

    fn options(&self) -> Result<ConnectOptions> {
        let mut options = ConnectOptions::new().name("ebb").tls_client_config(self.tls.clone());
        let plain = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        options = match (self.url.username(), self.url.password()) {
            ("", _) => options,
            (token, None) => options.token(plain(token)),
            (user, Some(password)) => options.user_and_password(plain(user), plain(password)),
        };
        match &self.credentials {
            Some(credentials) => options.credentials(credentials).map_err(|error| {
                Error::config(format!("its credentials cannot be read: {error}"))
                    .with_hint("`credentials` names a file with a user's JWT and seed, as nsc writes it")
            }),
            None => Ok(options),
        }
    }

    /// The connection, which reconnects by itself once it was there.
    async fn client(&self) -> Result<Client, String> {
        let mut slot = self.client.lock().await;
        if let Some(client) = &*slot {
            // What is published meanwhile would be sent some time later, when nobody waits for it any more.
            return match client.connection_state() {
                State::Connected => Ok(client.clone()),
                _ => Err("the connection to the NATS server is lost".into()),
            };
        }
        let options = self.options().map_err(|error| error.to_string())?;
        let client = options
            .connect(self.url.as_str())
            .await
            .map_err(|error| format!("the NATS server cannot be reached: {error}"))?;
        *slot = Some(client.clone());
        Ok(client)
    }

    async fn publish(&self, delivery: &Delivery) -> Verdict {
        let client = match self.client().await {
            Ok(client) => client,
            Err(error) => return Verdict::transient(error),
        };
        let context: Context = jetstream::new(client);
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, delivery.occurrence.to_string());
        headers.insert("Content-Type", "application/json");
        if let Some(stream) = &self.stream {
            headers.insert(NATS_EXPECTED_STREAM, stream.as_str());
        }
        let published = async {
            let sent = context.publish_with_headers(self.subject.clone(), headers, delivery.body.to_vec().into());
            sent.await?.await
        };
        match published.await {
            Ok(ack) => {
                let again = if ack.duplicate { ", which had it already" } else { "" };
                let body = format!("stream {}, sequence {}{again}", ack.stream, ack.sequence);
                Verdict::Delivered { response: Some(Response { status: None, body }) }
            }
            Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => Verdict::permanent(error.to_string()),
            Err(error) if error.kind() == PublishErrorKind::StreamNotFound => {
                Verdict::transient(format!("no stream takes the subject {}", self.subject))
            }
            Err(error) => Verdict::transient(format!("the stream did not acknowledge it: {error}")),
        }
    }
}

impl Sink for Nats {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Verdict> {
        self.publish(delivery).boxed()
    }
}
