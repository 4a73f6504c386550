//! The sink `kafka`: a record in a topic. Invariants: delivered means that all replicas in sync have it; the key is the
//! occurrence's id, so that a repeat lands in the same partition, where a compacted topic or a consumer can tell it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};

use super::{Delivery, Response, Sink, Verdict};
use crate::{Error, Result, policy};

pub(super) struct Kafka {
    config: ClientConfig,
    topic: String,
    producer: Mutex<FutureProducer>,
}

impl Kafka {
    pub(super) fn open(kafka: &policy::Kafka, timeout: Duration) -> Result<Self> {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", kafka.brokers.join(","))
            .set("client.id", "ebb")
            .set("acks", "all")
            .set("enable.idempotence", "true")
            // What nobody waits for any more must not arrive later either.
            .set("message.timeout.ms", timeout.as_millis().max(1).to_string())
            .set("linger.ms", "1");
        let producer = create(&config)?;
        Ok(Self { config, topic: kafka.topic.clone(), producer: Mutex::new(producer) })
    }

    /// The producer; another one when the last met an error that it cannot get over.
    fn producer(&self) -> Result<FutureProducer> {
        let mut slot = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.client().fatal_error().is_some() {
            *slot = create(&self.config)?;
        }
        Ok(slot.clone())
    }

    async fn produce(&self, delivery: &Delivery) -> Verdict {
        let producer = match self.producer() {
            Ok(producer) => producer,
            Err(error) => return Verdict::transient(error.to_string()),
        };
        let (key, event) = (delivery.occurrence.to_string(), delivery.event.to_string());
        let header = |key, value| Header { key, value: Some(value) };
        let headers =
            OwnedHeaders::new().insert(header("content-type", "application/json")).insert(header("event", &event));
        let record = FutureRecord::to(&self.topic).key(&key).payload(&*delivery.body).headers(headers);
        match producer.send(record, Duration::ZERO).await {
            Ok(at) => {
                let body = format!("topic {}, partition {}, offset {}", self.topic, at.partition, at.offset);
                Verdict::Delivered { response: Some(Response { status: None, body }) }
            }
            Err((error, _)) => judge(&error),
        }
    }
}

impl Sink for Kafka {
    fn deliver<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Verdict> {
        self.produce(delivery).boxed()
    }
}

fn create(config: &ClientConfig) -> Result<FutureProducer> {
    config.create().map_err(|error| Error::config(format!("no Kafka producer: {error}")))
}

fn judge(error: &KafkaError) -> Verdict {
    let text = format!("the topic did not take it: {error}");
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessage | RDKafkaErrorCode::InvalidRecord,
        ) => Verdict::permanent(text),
        _ => Verdict::transient(text),
    }
}
