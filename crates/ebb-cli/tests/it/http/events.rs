//! Events over HTTP: scheduled once, listed page by page, shown, cancelled, brought back from the dead.

use std::time::Duration;

use ebb::token::Role;
use ebb_testkit::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::site::{Answer, Site};
use crate::shell::Shell;

/// Nobody listens on port 9, so that every attempt fails at once.
const SINKS: &str = "[sinks.quiet]\ntype = \"log\"\n\
    [sinks.hook]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:9/\"\nallow_private = true\nretry = { base = \"1ms\", max = \"1ms\", attempts = 1 }\n";

async fn site() -> (Site, String) {
    let site = Site::new().await;
    Shell::new(&site.database, SINKS).ok(&["apply", "--yes"]);
    let token = site.token(Role::Operate).await;
    (site, token)
}

async fn state(site: &Site, token: &str, id: &str) -> String {
    let shown = site.get(&format!("/v1/events/{id}"), token).await.json();
    shown["occurrences"][0]["state"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_event_is_scheduled_once_and_can_be_cancelled() {
    let (site, token) = site().await;
    let body = json!({ "sink": "quiet", "due_at": "2090-01-01T09:00:00+07:00", "payload": { "type": "new-year" }, "dedupe_key": "ny" });
    let first = site.post("/v1/events", &token, &body).await;
    assert_eq!(first.status, 201, "{first:?}");
    let id = first.json()["event"].as_str().unwrap().to_owned();
    assert_eq!(site.post("/v1/events", &token, &body).await.json()["event"], id.as_str(), "a dedupe key is one event");
    let shown = site.get(&format!("/v1/events/{id}"), &token).await.json();
    assert_eq!(shown["occurrences"][0]["due_at"], "2090-01-01T02:00:00Z");
    assert!(shown["occurrences"][0]["body"].as_str().unwrap().contains("new-year"), "{shown}");
    let cancel = |key: &'static str| {
        let request = site.request(Method::POST, &format!("/v1/events/{id}/cancel"), &token);
        async move { Answer::of(request.header("idempotency-key", key).send().await.unwrap()).await }
    };
    assert_eq!(cancel("a").await.status, 204);
    let again = cancel("a").await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (204, "true"));
    assert_eq!(cancel("b").await.problem(), "conflict");
    let by: String = site.database.scalar("SELECT by_name FROM ebb.audit WHERE action = 'cancel'").await;
    assert_eq!(by, "operate");
    let yearly = json!({ "sink": "quiet", "yearly": { "day": "02-29", "at": "09:00", "zone": "Asia/Jakarta" }, "dedupe_key": "b" });
    let id = site.post("/v1/events", &token, &yearly).await.json()["event"].as_str().unwrap().to_owned();
    assert_eq!(site.get(&format!("/v1/events/{id}"), &token).await.json()["recurring"]["kind"], "yearly");
}

#[tokio::test]
async fn a_dead_letter_is_listed_and_retried_with_who_did_it() {
    let (site, token) = site().await;
    let added = site.post("/v1/events", &token, &json!({ "sink": "hook", "payload": { "n": 1 } })).await;
    let id = added.json()["event"].as_str().unwrap().to_owned();
    let dead = || async { state(&site, &token, &id).await == "dead" };
    eventually(Duration::from_secs(60), dead).await;
    let listed = site.get("/v1/events?state=dead&sink=hook", &token).await.json();
    assert_eq!(listed["events"][0]["occurrence"], id.as_str());
    assert!(listed["events"][0]["last_error"].is_string(), "{listed}");
    let pause = site.post("/v1/pause", &token, &json!({ "name": "events" })).await;
    assert_eq!(pause.status, 200, "{pause:?}");
    let retried =
        Answer::of(site.request(Method::POST, &format!("/v1/events/{id}/retry"), &token).send().await.unwrap());
    assert_eq!(retried.await.status, 204);
    let records: i64 = site
        .database
        .scalar("SELECT count(*) FROM ebb.audit WHERE action = 'retry' AND policy = 'events' AND by_name = 'operate'")
        .await;
    assert_eq!(records, 1);
    let nobody = site.post("/v1/events/00000000-0000-0000-0000-000000000001/retry", &token, &json!({})).await;
    assert_eq!(nobody.problem(), "not-found");
}

#[tokio::test]
async fn pages_hold_every_event_once_in_order() {
    let (site, token) = site().await;
    site.database
        .execute(
            "INSERT INTO ebb.event (id, sink, due_at, ready_at, created_at, body)
             SELECT gen_random_uuid(), CASE WHEN n % 3 = 0 THEN 'hook' ELSE 'quiet' END, now() + interval '1 day' + n / 4 * interval '1 min',
                    now() + interval '1 day' + n / 4 * interval '1 min', now(), '{}' FROM generate_series(1, 60) n;
             INSERT INTO ebb.event_history (id, sink, state, due_at, finished_at, token, attempts, created_at, body)
             SELECT gen_random_uuid(), 'quiet', CASE WHEN n % 5 = 0 THEN 'dead' ELSE 'done' END, now() - n * interval '1 min',
                    now() - n / 3 * interval '1 min', 1, 1, now(), '{}' FROM generate_series(1, 45) n",
        )
        .await;
    let pages = |filter: &'static str| {
        let (site, token) = (&site, &token);
        async move {
            let (mut found, mut after) = (Vec::new(), String::new());
            loop {
                let page = site.get(&format!("/v1/events?limit=7{filter}{after}"), token).await.json();
                found.extend(page["events"].as_array().unwrap().clone());
                match page["next"].as_str() {
                    Some(next) => after = format!("&after={next}"),
                    None => return found,
                }
            }
        }
    };
    let all = pages("").await;
    let mut ids: Vec<&str> = all.iter().map(|event| event["occurrence"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((all.len(), ids.len()), (105, 105), "each once");
    let turn = |event: &Value| (event["finished_at"].is_string(), event["ready_at"].as_str().unwrap_or("").to_owned());
    assert!(all.iter().map(turn).is_sorted(), "open ones first, by their turn");
    let ended: Vec<&str> = all.iter().filter_map(|event| event["finished_at"].as_str()).collect();
    assert!(ended.iter().rev().is_sorted(), "then the latest");
    assert_eq!((pages("&state=dead").await.len(), pages("&sink=hook").await.len()), (9, 20));
    assert_eq!(pages("&late=20m").await.len(), pages("&state=done&late=20m").await.len());
    assert_eq!(pages("&stuck=1h").await.len(), 0, "none is overdue");
}

#[tokio::test]
async fn what_cannot_be_an_event_is_refused_at_its_field() {
    let (site, token) = site().await;
    for (body, status, says) in [
        (json!({ "sink": "nobody" }), 404, "there is no sink"),
        (json!({ "sink": "quiet", "due_at": "tomorrow" }), 422, "due_at"),
        (json!({ "sink": "quiet", "due_at": "1960-01-01T00:00:00Z" }), 422, "before 1970"),
        (json!({ "sink": "quiet", "max_late": "soon" }), 422, "max_late"),
        (json!({ "sink": "quiet", "subject": { "policy": "p" } }), 422, "subject"),
        (json!({ "sink": "quiet", "payload": "\0" }), 422, "zero byte"),
        (json!({ "sink": "quiet", "yearly": { "day": "13-01", "at": "09:00", "zone": "UTC" } }), 422, "month"),
        (json!({ "sink": "quiet", "yearly": { "day": "01-01", "at": "9 o'clock", "zone": "UTC" } }), 422, "yearly.at"),
        (json!({ "sink": "quiet", "yearly": { "day": "01-01", "at": "09:00", "zone": "Mars" } }), 422, "Mars"),
    ] {
        let answer = site.post("/v1/events", &token, &body).await;
        assert!(answer.status == status && answer.body.contains(says), "{body}: {answer:?}");
        answer.problem();
    }
    for (query, says) in [("state=lost", "state"), ("late=x", "late"), ("after=7", "after"), ("limit=0", "limit")] {
        let answer = site.get(&format!("/v1/events?{query}"), &token).await;
        assert!(answer.status == 422 && answer.body.contains(says), "{query}: {answer:?}");
    }
    let count: i64 = site.database.scalar("SELECT count(*) FROM ebb.event").await;
    assert_eq!(count, 0);
}

/// A webhook that fails twice and then takes it: every attempt with its error and its answer, oldest first.
#[tokio::test]
async fn an_event_shows_all_its_attempts_and_what_was_answered() {
    let site = Site::new().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let answers = axum::Router::new().fallback(move || {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move {
            match call {
                0 => (axum::http::StatusCode::INTERNAL_SERVER_ERROR, "out of coffee"),
                1 => (axum::http::StatusCode::SERVICE_UNAVAILABLE, "brewing"),
                _ => (axum::http::StatusCode::OK, "thanks"),
            }
        }
    });
    tokio::spawn(async move { axum::serve(listener, answers).await });
    let sinks = format!(
        "[sinks.hook]\ntype = \"webhook\"\nurl = \"http://127.0.0.1:{port}/\"\nallow_private = true\nretry = [\"1ms\", \"1ms\", \"1ms\"]\n"
    );
    Shell::new(&site.database, &sinks).ok(&["apply", "--yes"]);
    let token = site.token(Role::Operate).await;
    let added = site.post("/v1/events", &token, &json!({ "sink": "hook", "payload": { "n": 1 } })).await;
    let id = added.json()["event"].as_str().unwrap().to_owned();
    eventually(Duration::from_secs(60), || async { state(&site, &token, &id).await == "done" }).await;
    let shown = site.get(&format!("/v1/events/{id}"), &token).await.json();
    let one = &shown["occurrences"][0];
    assert_eq!(
        (&one["attempts"], &one["response"]["status"], &one["last_error"]),
        (&json!(3), &json!(200), &Value::Null)
    );
    let earlier = one["earlier"].as_array().unwrap();
    let answered: Vec<_> =
        earlier.iter().map(|one| (one["answer"]["status"].clone(), one["answer"]["body"].clone())).collect();
    assert_eq!(answered, [(json!(500), json!("out of coffee")), (json!(503), json!("brewing"))], "{shown}");
    assert!(earlier.iter().all(|one| one["at"].is_string() && one["error"].is_string()), "{shown}");
    assert!(one["response"].get("earlier").is_none() && one["response"].get("at").is_none(), "{shown}");

    // What arrives at once keeps its answer as it is.
    let added = site.post("/v1/events", &token, &json!({ "sink": "hook", "payload": { "n": 2 } })).await;
    let id = added.json()["event"].as_str().unwrap().to_owned();
    eventually(Duration::from_secs(60), || async { state(&site, &token, &id).await == "done" }).await;
    let shown = site.get(&format!("/v1/events/{id}"), &token).await.json();
    assert!(shown["occurrences"][0].get("earlier").is_none(), "{shown}");
    let kept: String =
        site.database.scalar(&format!("SELECT response::text FROM ebb.event_history WHERE id = '{id}'")).await;
    assert!(!kept.contains("\"at\""), "{kept}");
}

/// Few are counted as they are; of many the figure that a node kept last is told, and a fresh look counts them all.
#[tokio::test]
async fn many_events_are_told_from_figures_that_are_kept() {
    let site = Site::new().await;
    let token = site.token(Role::Operate).await;
    // Before there is a sink: whoever hears of it has heard of the pause.
    site.database.execute("INSERT INTO ebb.pause (name, paused_by) VALUES ('events', 'test')").await;
    Shell::new(&site.database, SINKS).ok(&["apply", "--yes"]);
    site.database
        .execute(
            "INSERT INTO ebb.event (id, sink, due_at, ready_at, created_at, body)
             SELECT gen_random_uuid(), 'quiet', t, t, t, '{}' FROM generate_series(1, 1200), (SELECT now() - interval '1 minute' AS t) AS at;
             INSERT INTO ebb.event (id, sink, due_at, ready_at, created_at, body)
             SELECT gen_random_uuid(), 'hook', t, t, t, '{}' FROM generate_series(1, 5), (SELECT now() - interval '1 minute' AS t) AS at;
             INSERT INTO ebb.sample (at, metric, labels, value)
             SELECT now() + interval '1 hour', 'events_due', jsonb_build_object('sink', sink), 50000 FROM unnest(ARRAY['quiet', 'hook']) AS sink",
        )
        .await;
    let due = |query: &'static str| {
        let (site, token) = (&site, &token);
        async move {
            let status = site.get(&format!("/v1/status{query}"), token).await.json();
            let sinks = status["events"]["sinks"].as_array().unwrap().clone();
            sinks.into_iter().map(|sink| (sink["sink"].clone(), sink["due"].clone())).collect::<Vec<_>>()
        }
    };
    assert_eq!(due("").await, [(json!("hook"), json!(5)), (json!("quiet"), json!(50_000))]);
    assert_eq!(due("?fresh=true").await, [(json!("hook"), json!(5)), (json!("quiet"), json!(1_200))]);
}
