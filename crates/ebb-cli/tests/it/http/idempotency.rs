//! `Idempotency-Key`: repeating a POST is harmless.

use ebb::token::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::site::{Answer, Site};

async fn post(site: &Site, path: &str, token: &str, key: &str, body: &Value) -> Answer {
    let request = site.request(Method::POST, path, token).header("idempotency-key", key).json(body);
    Answer::of(request.send().await.unwrap()).await
}

async fn pauses(site: &Site) -> i64 {
    site.database.scalar("SELECT count(*) FROM ebb.audit WHERE action = 'pause'").await
}

#[tokio::test]
async fn a_repeat_gets_the_first_answer_and_does_nothing() {
    let site = Site::new().await;
    let token = site.token(Role::Operate).await;
    let body = json!({ "reason": "maintenance" });
    let first = post(&site, "/v1/pause", &token, "a", &body).await;
    let again = post(&site, "/v1/pause", &token, "a", &body).await;
    assert_eq!((first.status, again.status, &first.body), (200, 200, &again.body));
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
    assert_eq!(pauses(&site).await, 1);
    post(&site, "/v1/pause", &token, "b", &body).await;
    assert_eq!(pauses(&site).await, 2, "another key is another request");
    let other = post(&site, "/v1/pause", &token, "a", &json!({ "reason": "other" })).await;
    assert_eq!((other.status, other.problem().as_str()), (422, "key-mismatch"));
    // A key belongs to its token and its address.
    let another = site.token(Role::Operate).await;
    assert_eq!(post(&site, "/v1/pause", &another, "a", &body).await.header("idempotent-replayed"), "");
    assert_eq!(post(&site, "/v1/resume", &token, "a", &json!({})).await.json()["resumed"], true);
    // What was refused is refused again the same way.
    let refused = post(&site, "/v1/pause", &token, "c", &json!({ "name": "nobody" })).await;
    let again = post(&site, "/v1/pause", &token, "c", &json!({ "name": "nobody" })).await;
    assert_eq!(
        (refused.problem().as_str(), again.status, again.header("idempotent-replayed")),
        ("not-found", 404, "true")
    );
}

#[tokio::test]
async fn of_requests_at_the_same_time_one_is_carried_out() {
    let site = Site::new().await;
    let token = site.token(Role::Operate).await;
    let body = json!({ "reason": "x" });
    let answers = futures_util::future::join_all((0..20).map(|_| post(&site, "/v1/pause", &token, "k", &body))).await;
    for answer in &answers {
        assert!(answer.status == 200 || (answer.status == 409 && answer.problem() == "in-progress"), "{answer:?}");
    }
    assert_eq!(pauses(&site).await, 1);
}

#[tokio::test]
async fn keys_that_are_none_are_refused_and_strangers_learn_nothing() {
    let site = Site::new().await;
    let token = site.token(Role::Operate).await;
    for key in ["", &"k".repeat(256)] {
        assert_eq!(post(&site, "/v1/pause", &token, key, &json!({})).await.problem(), "malformed");
    }
    assert_eq!(post(&site, "/v1/pause", "", "k", &json!({})).await.problem(), "unauthenticated");
    let reader = site.token(Role::Read).await;
    assert_eq!(post(&site, "/v1/pause", &reader, "k", &json!({})).await.problem(), "forbidden");
    assert_eq!(pauses(&site).await, 0);
}

#[tokio::test]
async fn what_is_kept_of_an_answer_says_nothing_to_whoever_reads_the_database() {
    let site = Site::new().await;
    let token = site.token(Role::Operate).await;
    let path = "/v1/subjects/nobody/ada%40example.test/hold";
    let body = json!({ "reason": "Ada asked" });
    let first = post(&site, path, &token, "k", &body).await;
    let again = post(&site, path, &token, "k", &body).await;
    assert_eq!((first.status, again.status, again.header("idempotent-replayed")), (404, 404, "true"));
    assert_eq!(first.json()["detail"], again.json()["detail"]);
    let kept: String = site.database.scalar("SELECT string_agg(k::text, ' ') FROM ebb.once_key k").await;
    let opened = |text: &str| kept.contains(text) || kept.contains(&hex::encode(text));
    assert!(
        kept.len() > 200 && !["ada@example", "Ada asked", "nobody", "not-found"].iter().any(|text| opened(text)),
        "{kept}"
    );
}
