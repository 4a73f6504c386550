//! `/v1/once`.

use ebb::token::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::site::{Answer, Site};

#[tokio::test]
async fn of_many_claims_of_a_key_one_is_first() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    let claim = json!({ "key": "k" });
    let answers = futures_util::future::join_all((0..40).map(|_| site.post("/v1/once/orders", &token, &claim))).await;
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(201), count(200)), (1, 39), "{answers:?}");
    assert_eq!(answers.iter().find(|answer| answer.status == 201).unwrap().json(), json!({ "outcome": "first" }));
    // A claim through HTTP is the claim of the SQL function.
    let outcome: String = site.database.scalar("SELECT ebb.once('orders', 'k')").await;
    assert_eq!(outcome, "duplicate");
}

#[tokio::test]
async fn a_claim_in_flight_is_completed_or_given_back() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    let claim = |key: &str| json!({ "key": key, "in_flight": true, "fingerprint": "a" });
    let begun = site.post("/v1/once/orders", &token, &claim("k/ ü")).await;
    let fence = begun.json()["token"].as_i64().unwrap();
    let again = site.post("/v1/once/orders", &token, &claim("k/ ü")).await;
    assert_eq!((again.status, again.problem().as_str()), (409, "in-progress"));
    let other = json!({ "key": "k/ ü", "in_flight": true, "fingerprint": "b" });
    let other = site.post("/v1/once/orders", &token, &other).await;
    assert_eq!((other.status, other.problem().as_str()), (422, "key-mismatch"));
    let path = |fence: i64| format!("/v1/once/orders/k%2F%20%C3%BC?token={fence}");
    let put = |fence: i64, result: Value| {
        let (site, token) = (&site, &token);
        async move { site.send(Method::PUT, &path(fence), token, &result).await }
    };
    assert_eq!(put(fence + 1, json!(7)).await.problem(), "conflict");
    assert_eq!(put(fence, json!({ "order": 7 })).await.status, 204);
    assert_eq!(put(fence, json!({ "order": 7 })).await.status, 204, "asking again is harmless");
    let duplicate = site.post("/v1/once/orders", &token, &claim("k/ ü")).await;
    assert_eq!((duplicate.status, &duplicate.json()["result"]), (200, &json!({ "order": 7 })));

    let begun = site.post("/v1/once/orders", &token, &claim("free")).await.json()["token"].as_i64().unwrap();
    let released =
        site.request(Method::DELETE, &format!("/v1/once/orders/free?token={begun}"), &token).send().await.unwrap();
    assert_eq!(released.status(), 204);
    assert_eq!(site.post("/v1/once/orders", &token, &claim("free")).await.status, 201);
}

#[tokio::test]
async fn a_batch_tells_first_from_duplicate_and_minds_no_repeats() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    site.post("/v1/once/orders", &token, &json!({ "key": "b" })).await;
    let answer = site.post("/v1/once/orders/batch", &token, &json!({ "keys": ["c", "b", "a", "c"] })).await;
    assert_eq!(answer.json(), json!({ "first": ["c", "a"], "duplicate": ["b"] }));
    for wrong in [
        json!({ "keys": [] }),
        json!({ "keys": vec!["k"; 1001] }),
        json!({ "keys": ["", "a"] }),
        json!({ "keys": ["\0"] }),
    ] {
        let answer = site.post("/v1/once/orders/batch", &token, &wrong).await;
        assert_eq!((answer.status, answer.problem().as_str()), (422, "invalid"), "{answer:?}");
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_told_at_its_field() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    let wrong = |path: &'static str, body: Value| {
        let (site, token) = (&site, &token);
        async move { site.post(path, token, &body).await }
    };
    let field = |answer: &Answer| {
        assert_eq!((answer.status, answer.problem().as_str()), (422, "invalid"), "{answer:?}");
        answer.json()["errors"][0]["field"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(field(&wrong("/v1/once/orders", json!({ "key": "k", "ttl": "soon" })).await), "ttl");
    assert_eq!(field(&wrong("/v1/once/orders", json!({ "key": 7 })).await), "key");
    assert_eq!(field(&wrong("/v1/once/orders", json!({ "key": "k", "tll": "1h" })).await), "tll");
    for (path, body) in [
        ("/v1/once/or.ders", json!({ "key": "k" })),
        ("/v1/once/orders", json!({ "key": "" })),
        ("/v1/once/orders", json!({ "key": "k".repeat(1025) })),
        ("/v1/once/orders", json!({ "key": "a\0b" })),
    ] {
        let answer = wrong(path, body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (422, "invalid"), "{answer:?}");
        assert!(answer.json()["hint"].is_string(), "{answer:?}");
    }
}

/// Claims that come together share a transaction; what one of them waits for, the others do not.
#[tokio::test]
async fn a_key_that_somebody_holds_holds_up_no_other_claim() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    let mut holder = site.database.pool().begin().await.unwrap();
    sqlx::query("SELECT ebb.once('orders', 'held')").execute(&mut *holder).await.unwrap();
    let held_claim = json!({ "key": "held" });
    let held = site.post("/v1/once/orders", &token, &held_claim);
    let others = async {
        // Answered before the key is let go.
        let claims: Vec<Value> = (0..30).map(|n| json!({ "key": format!("k{n}") })).collect();
        let answers =
            futures_util::future::join_all(claims.iter().map(|claim| site.post("/v1/once/orders", &token, claim)));
        let answers = answers.await;
        assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
        holder.rollback().await.unwrap();
    };
    let (held, ()) = tokio::join!(held, others);
    // Free again within the five seconds that it is waited for; on a very slow machine it was not.
    assert!([201, 409].contains(&held.status), "{held:?}");
    let kept: i64 =
        site.database.scalar("SELECT count(*) FROM ebb.once_key WHERE namespace = 'orders' AND key LIKE 'k%'").await;
    assert_eq!(kept, 30, "what was answered is committed");
}

#[tokio::test]
async fn claims_that_share_a_transaction_keep_their_own_terms() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    let claims = [
        json!({ "key": "long", "ttl": "48h" }),
        json!({ "key": "short", "ttl": "1h" }),
        json!({ "key": "default" }),
        json!({ "key": "print", "fingerprint": "a" }),
        json!({ "key": "print", "fingerprint": "b" }),
        json!({ "key": "bad", "ttl": "soon" }),
    ];
    let sent = claims.iter().map(|claim| site.post("/v1/once/orders", &token, claim));
    let statuses: Vec<u16> = futures_util::future::join_all(sent).await.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses[..3], [201; 3]);
    let mut prints = [statuses[3], statuses[4]];
    prints.sort();
    assert_eq!((prints, statuses[5]), ([201, 422], 422), "one of two different requests with a key is a mismatch");
    let hours: String = site
        .database
        .scalar("SELECT string_agg(key || ' ' || round(extract(epoch FROM expires_at - now()) / 3600), ', ' ORDER BY key) FROM ebb.once_key WHERE namespace = 'orders'")
        .await;
    assert_eq!(hours, "default 24, long 48, print 24, short 1");
}

/// A token that was let in before is checked together with its claim; nothing is claimed by one that no longer counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_made_only_while_its_token_counts() {
    let site = Site::new().await;
    let (app, read) = (site.token(Role::App).await, site.token(Role::Read).await);
    let claim = |key: &str| json!({ "key": key });
    for round in 0..3 {
        let key = format!("round {round}");
        assert_eq!(site.post("/v1/once/orders", &app, &claim(&key)).await.status, 201);
        assert_eq!(site.post("/v1/once/orders", &app, &claim(&key)).await.status, 200);
        let answer = site.post("/v1/once/orders", &read, &claim("of a reader")).await;
        assert_eq!((answer.status, answer.problem().as_str()), (403, "forbidden"), "{answer:?}");
    }
    let unreadable = site.post("/v1/once/orders", &app, &json!({ "kye": "k" })).await;
    assert_eq!(unreadable.status, 422, "{unreadable:?}");
    site.database.execute("UPDATE ebb.token SET revoked_at = clock_timestamp() WHERE role = 'app'").await;
    for body in [claim("after its end"), json!({ "kye": "k" }), json!({ "key": "in flight", "in_flight": true })] {
        let answer = site.post("/v1/once/orders", &app, &body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (401, "unauthenticated"), "{body}");
    }
    let kept: Vec<String> = sqlx::query_scalar("SELECT key FROM ebb.once_key WHERE namespace = 'orders' ORDER BY key")
        .fetch_all(site.database.pool())
        .await
        .unwrap();
    assert_eq!(kept, ["round 0", "round 1", "round 2"]);
}
