//! Who is let in, and what they may do.

use std::time::Duration;

use ebb::token::Role;
use ebb_testkit::eventually;
use reqwest::Method;
use serde_json::json;

use super::site::{Answer, Operation, Site};
use crate::shell::Shell;

#[tokio::test]
async fn a_token_is_shown_once_and_only_its_hash_is_kept() {
    let site = Site::new().await;
    let shell = Shell::new(&site.database, "");
    let said = shell.ok(&["token", "create", "--role", "read", "--name", "grafana", "--by", "alice"]);
    let token = said.split_whitespace().last().unwrap();
    assert_eq!(site.get("/v1/status", token).await.status, 200);
    let secret = token.rsplit('_').next().unwrap();
    let stored: String = site.database.scalar("SELECT t::text FROM ebb.token t").await;
    assert!(!stored.contains(secret), "{stored}");
    let listed = shell.json(&["token", "list", "--json"]);
    assert_eq!((&listed[0]["name"], &listed[0]["state"]), (&json!("grafana"), &json!("active")));
    assert!(!listed.to_string().contains(secret) && listed[0]["last_used_at"].is_string(), "{listed}");
    let record: String =
        site.database.scalar("SELECT details::text || by_name FROM ebb.audit WHERE action = 'token'").await;
    assert!(record.contains("grafana") && record.contains("alice") && !record.contains(secret), "{record}");
    assert!(!site.node.output().contains(secret));
    assert!(shell.fails(2, &["token", "create", "--role", "root"]).contains("is no role"));
    assert!(shell.fails(2, &["token", "revoke", "nobody"]).contains("no such token"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_counts_from_its_commit_on() {
    let site = Site::new().await;
    let shell = Shell::new(&site.database, "");
    let token = site.token(Role::Read).await;
    let id = token.split('_').nth(1).unwrap();
    // Requests all the while, so that looks at the database are under way when the revocation comes.
    let busy = async {
        for _ in 0..40 {
            let (a, b) = tokio::join!(site.get("/v1/runs", &token), site.get("/v1/runs", &token));
            let fine = |answer: &Answer| [200, 401, 429].contains(&answer.status);
            assert!(fine(&a) && fine(&b), "{a:?} {b:?}");
        }
    };
    let revoked = async {
        assert_eq!(site.get("/v1/status", &token).await.status, 200);
        tokio::task::block_in_place(|| shell.ok(&["token", "revoke", id]));
        let answer = site.get("/v1/status", &token).await;
        assert_eq!((answer.status, answer.problem().as_str()), (401, "unauthenticated"));
    };
    tokio::join!(revoked, busy);
    assert!(shell.ok(&["token", "revoke", id]).contains("before"));
}

/// Nothing about a token is kept by a node: what one process revokes, another one refuses with the next request.
#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_counts_at_every_node() {
    let one = Site::new().await;
    let two = one.beside().await;
    let shell = Shell::new(&one.database, "");
    for round in 0..5 {
        let token = one.token(Role::Read).await;
        for address in [&one.address, &two.address, &one.address, &two.address] {
            assert_eq!(one.get_at(address, "/v1/status", &token).await.status, 200, "round {round}");
        }
        tokio::task::block_in_place(|| shell.ok(&["token", "revoke", token.split('_').nth(1).unwrap()]));
        for address in [&two.address, &one.address] {
            assert_eq!(one.get_at(address, "/v1/status", &token).await.status, 401, "round {round}");
        }
    }
}

#[tokio::test]
async fn an_expired_token_is_none() {
    let site = Site::new().await;
    let token = site.token(Role::Read).await;
    assert_eq!(site.get("/v1/status", &token).await.status, 200);
    site.database.execute("UPDATE ebb.token SET expires_at = clock_timestamp() + interval '300 ms'").await;
    eventually(Duration::from_secs(60), || async { site.get("/v1/status", &token).await.status == 401 }).await;
}

#[tokio::test]
async fn guessing_is_slowed_down_and_bars_nobody_who_is_known() {
    let site = Site::new().await;
    let token = site.token(Role::Read).await;
    assert_eq!(site.get("/v1/status", &token).await.status, 200);
    let mut wrong = token.clone();
    wrong.pop();
    wrong.push(if token.ends_with('0') { '1' } else { '0' });
    let mut answers = Vec::new();
    for guess in ["nonsense", &wrong, "ebb_"].iter().cycle().take(60) {
        answers.push(site.get("/v1/status", guess).await);
    }
    assert_eq!(answers[0].problem(), "unauthenticated");
    assert_eq!(answers[0].header("www-authenticate"), "Bearer");
    let barred = answers.iter().find(|answer| answer.status == 429).expect("it is slowed down");
    assert_eq!(barred.problem(), "too-many-requests");
    assert!(barred.header("retry-after").parse::<u32>().unwrap() >= 1);
    assert_eq!(site.get("/v1/status", &token).await.status, 200, "whoever is known comes in from there");
    let log = site.node.output();
    assert!(log.contains("Not let in") && !log.contains(wrong.rsplit('_').next().unwrap()), "{log}");
}

#[tokio::test]
async fn a_token_that_asks_too_much_waits() {
    let site = Site::with("rate_limit = \"5/s\"\n").await;
    let (token, other) = (site.token(Role::Read).await, site.token(Role::Read).await);
    let mut limited = None;
    for _ in 0..200 {
        let answer = site.get("/v1/runs", &token).await;
        if answer.status == 429 {
            limited = Some(answer);
            break;
        }
    }
    assert_eq!(limited.expect("two hundred in a row are too many").problem(), "too-many-requests");
    assert_eq!(site.get("/v1/runs", &other).await.status, 200);
}

#[tokio::test]
async fn every_operation_keeps_to_its_role() {
    let site = Site::new().await;
    let mut tokens = Vec::new();
    for role in Role::ALL {
        tokens.push((role, site.token(role).await));
    }
    for Operation { method, path, role: needed, .. } in site.operations().await {
        let nobody = site.send(method.clone(), &path, "", &json!({})).await;
        assert_eq!((nobody.status, nobody.problem().as_str()), (401, "unauthenticated"), "{method} {path}");
        for (role, token) in &tokens {
            let response = site.request(method.clone(), &path, token).json(&json!({})).send().await.unwrap();
            let status = response.status().as_u16();
            assert_eq!(status != 403, role.covers(needed), "{role}: {method} {path} answered {status}");
            assert!(status < 500, "{role}: {method} {path} answered {status}");
        }
    }
    for open in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(site.get(open, "").await.status, 200, "{open}");
    }
    let answer = site.send(Method::POST, "/lineage/events", "", &json!([])).await;
    assert_eq!(answer.problem(), "unauthenticated", "the alias, too");
}
