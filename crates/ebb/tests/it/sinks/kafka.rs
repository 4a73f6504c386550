//! Kafka, on librdkafka's own mock cluster: brokers that speak the protocol, in this process.

use std::time::{Duration, Instant};

use ebb::schedule::sink::Verdict;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use serde_json::json;

use super::{delivered, delivery, failure, open};
use crate::harness::SOON;

fn kafka(brokers: &str) -> ebb::schedule::sink::Outlet {
    open(json!({ "type": "kafka", "brokers": brokers, "topic": "events", "timeout": "20s", "breaker": "off" }))
}

fn read(brokers: &str, records: usize) -> Vec<OwnedMessage> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "test")
        .set("auto.offset.reset", "earliest")
        .create()
        .unwrap();
    consumer.subscribe(&["events"]).unwrap();
    let (begun, mut read) = (Instant::now(), Vec::new());
    // A poll also ends without a record when it only heard news of the group.
    while read.len() < records {
        assert!(begun.elapsed() < SOON, "{read:?}");
        read.extend(consumer.poll(Duration::from_millis(100)).map(|message| message.unwrap().detach()));
    }
    read
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_delivered_is_in_the_topic_under_its_id() {
    let cluster = MockCluster::new(3).unwrap();
    cluster.create_topic("events", 4, 3).unwrap();
    let outlet = kafka(&cluster.bootstrap_servers());
    let delivery = delivery(json!({ "type": "birthday", "name": "Ayu" }));
    let first = outlet.deliver(&delivery).await;
    let Verdict::Delivered { response: Some(response) } = &first else { panic!("{first:?}") };
    assert!(response.body.starts_with("topic events, partition "), "{response:?}");
    delivered(&outlet.deliver(&delivery).await);
    let brokers = cluster.bootstrap_servers();
    let records = tokio::task::spawn_blocking(move || read(&brokers, 2)).await.unwrap();
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!(record.key().unwrap(), delivery.occurrence.to_string().as_bytes());
        assert_eq!(record.payload().unwrap(), &*delivery.body);
        assert_eq!(record.headers().unwrap().get(1).value.unwrap(), delivery.event.to_string().as_bytes());
    }
    assert_eq!(records[0].partition(), records[1].partition(), "a repeat is found where the first one is");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_cluster_is_not_final_and_one_of_the_record_is() {
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("events", 1, 1).unwrap();
    let outlet = kafka(&cluster.bootstrap_servers());
    delivered(&outlet.deliver(&delivery(json!({}))).await);
    cluster.request_errors(RDKafkaApiKey::Produce, &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED]);
    assert!(!failure(outlet.deliver(&delivery(json!({}))).await).1);
    let (error, permanent) = failure(outlet.deliver(&delivery(json!({ "text": "x".repeat(2 << 20) }))).await);
    assert!(permanent, "{error}");
    delivered(&outlet.deliver(&delivery(json!({}))).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_not_there_is_given_up() {
    let spec = json!({ "type": "kafka", "brokers": "127.0.0.1:1", "topic": "events", "timeout": "500ms" });
    assert!(!failure(open(spec).deliver(&delivery(json!({}))).await).1);
}
