//! One subject over HTTP, and a tenant's own terms: every step audited with the token's name, what destroys rehearsed first.

use ebb::token::Role;
use reqwest::Method;
use serde_json::{Value, json};

use super::site::{Answer, Site};
use crate::shell::Shell;

const TABLES: &str = "
    CREATE TABLE users (id bigint PRIMARY KEY, tenant_id text, deleted_at timestamptz);
    CREATE TABLE sessions (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
    CREATE INDEX ON sessions (user_id);
    INSERT INTO users SELECT n, 'acme', NULL FROM generate_series(1, 5) n;
    INSERT INTO sessions SELECT n, 1 + n % 5 FROM generate_series(1, 20) n";
const USERS: &str = "[[retain]]\nname = \"users\"\ntable = \"public.users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\nfloor = \"30d\"\n\
    tenant = \"tenant_id\"\ntenant_override = true\n";

async fn site() -> Site {
    let site = Site::new().await;
    site.database.execute(TABLES).await;
    Shell::new(&site.database, USERS).ok(&["apply", "--yes"]);
    site
}

async fn post(site: &Site, token: &str, what: &str, body: &Value) -> Answer {
    site.post(&format!("/v1/subjects/users/{what}"), token, body).await
}

#[tokio::test]
async fn a_subject_is_deleted_held_released_and_restored() {
    let site = site().await;
    let (app, operator) = (site.token(Role::App).await, site.token(Role::Operate).await);
    let rehearsed = post(&site, &app, "1/delete?dry_run=true", &json!({})).await.json();
    assert_eq!(rehearsed["dry_run"], true);
    let deleted: i64 = site.database.scalar("SELECT count(*) FROM users WHERE deleted_at IS NOT NULL").await;
    assert_eq!(deleted, 0, "a dry run changes nothing");
    let done = post(&site, &app, "1/delete", &json!({})).await;
    assert_eq!((done.status, &done.json()["dry_run"]), (200, &json!(false)), "{done:?}");
    assert_eq!(done.json()["observes"], false, "{done:?}");
    let shown = site.get("/v1/subjects/users/1", &operator).await.json();
    assert_eq!((&shown["deletion"]["state"], &shown["would_erase"]["public.sessions"]), (&json!("pending"), &json!(4)));
    let missing = post(&site, &operator, "1/hold", &json!({})).await;
    assert_eq!((missing.problem().as_str(), &missing.json()["errors"][0]["field"]), ("invalid", &json!("reason")));
    let held = post(&site, &operator, "1/hold", &json!({ "reason": "court", "until": "2090-01-01T00:00:00Z" })).await;
    assert_eq!(held.status, 204, "{held:?}");
    let shown = site.get("/v1/subjects/users/1", &operator).await.json();
    assert_eq!(shown["deletion"]["hold_reason"], "court");
    let soon = post(&site, &app, "1/erase?dry_run=true", &json!({})).await.json();
    assert!(soon["due_at"].as_str().unwrap().starts_with("2090"), "not before the hold ends: {soon}");
    assert_eq!(soon["waits_for"], "on hold: court");
    assert_eq!(post(&site, &operator, "1/release", &json!({})).await.status, 204);
    assert_eq!(post(&site, &app, "1/restore", &json!({})).await.status, 204);
    assert_eq!(post(&site, &app, "1/restore", &json!({})).await.problem(), "conflict");
    assert_eq!(post(&site, &operator, "1/retry", &json!({})).await.problem(), "conflict");
    let trail: String = site
        .database
        .scalar("SELECT string_agg(action || ' ' || by_name, ', ' ORDER BY id) FROM ebb.audit WHERE policy = 'users' AND action <> 'policy'")
        .await;
    assert_eq!(trail, "delete app, hold operate, release operate, restore app");
    // What stands still erases nobody, whatever the date.
    let shell = Shell::new(&site.database, USERS);
    let waits_for = async |what: &str| post(&site, &app, what, &json!({})).await.json()["waits_for"].clone();
    post(&site, &app, "3/delete", &json!({})).await;
    assert_eq!(waits_for("3/erase?dry_run=true").await, Value::Null);
    for (stop, why, resume) in [
        (vec!["pause", "users", "--by", "ann"], "policy users is paused by ann", vec!["resume", "users"]),
        (vec!["pause", "--by", "ann"], "everything is paused by ann", vec!["resume"]),
        (
            vec!["policy", "set", "users", "enabled=false"],
            "policy users is disabled",
            vec!["apply", "--force", "--yes"],
        ),
    ] {
        shell.ok(&stop);
        assert_eq!(waits_for("3/delete").await, why);
        assert_eq!(waits_for("3/erase?dry_run=true").await, why);
        shell.ok(&resume);
    }
    Shell::new(&site.database, &format!("{USERS}mode = \"observe\"\n")).ok(&["apply", "--force", "--yes"]);
    for what in ["2/delete", "2/erase?dry_run=true"] {
        assert_eq!(post(&site, &app, what, &json!({})).await.json()["observes"], true, "{what}");
    }
}

#[tokio::test]
async fn who_is_not_there_is_told_apart_from_what_cannot_be() {
    let site = site().await;
    let token = site.token(Role::Operate).await;
    for what in ["delete", "erase", "restore", "release", "retry"] {
        assert_eq!(post(&site, &token, &format!("99/{what}"), &json!({})).await.problem(), "not-found", "{what}");
        let answer = post(&site, &token, &format!("x/{what}"), &json!({})).await;
        assert_eq!(answer.problem(), "invalid", "{what}: {answer:?}");
        let nowhere = site.post(&format!("/v1/subjects/nobody/1/{what}"), &token, &json!({})).await;
        assert_eq!(nowhere.problem(), "not-found", "{what}");
    }
    for (body, says) in [
        (json!({ "reason": " " }), "a hold has a reason"),
        (json!({ "reason": "x", "until": "2001-01-01T00:00:00Z" }), "over already"),
        (json!({ "reason": "x", "until": "never" }), "until"),
        (json!({}), "reason"),
    ] {
        let answer = post(&site, &token, "1/hold", &body).await;
        assert!(answer.problem() == "invalid" && answer.body.contains(says), "{body}: {answer:?}");
    }
}

/// On the version of the policy that there is.
async fn put_terms(site: &Site, path: &str, token: &str, body: &Value) -> Answer {
    let version: i64 =
        site.database.scalar("SELECT version FROM ebb.policy WHERE kind = 'retain' AND name = 'users'").await;
    let request = site.request(Method::PUT, path, token).header("if-match", format!("\"{version}\""));
    Answer::of(request.json(body).send().await.unwrap()).await
}

#[tokio::test]
async fn a_tenant_has_terms_of_its_own_above_the_floor() {
    let site = site().await;
    let admin = site.token(Role::Admin).await;
    site.database.execute("UPDATE users SET deleted_at = now() - interval '60 days' WHERE id < 3").await;
    site.database
        .execute("INSERT INTO ebb.deletion (policy, subject_id, tenant, deleted_at, due_at) SELECT 'users', id::text, tenant_id, deleted_at, deleted_at + interval '90 days' FROM users WHERE id < 3")
        .await;
    let path = "/v1/policies/users/tenants/acme";
    let put = |query: &'static str, retention: &'static str| {
        let site = &site;
        let admin = &admin;
        async move { put_terms(site, &format!("{path}{query}"), admin, &json!({ "retention": retention })).await }
    };
    let unsaid = site.send(Method::PUT, path, &admin, &json!({ "retention": "100d" })).await;
    assert_eq!((unsaid.status, unsaid.problem()), (428, "version-missing".into()), "{unsaid:?}");
    assert!(put("", "10d").await.body.contains("below the floor"));
    let rehearsed = put("?dry_run=true", "31d").await.json();
    assert_eq!((&rehearsed["due_before"], &rehearsed["due_after"]), (&json!(0), &json!(2)), "{rehearsed}");
    let refused = put("", "31d").await;
    assert!(refused.problem() == "conflict" && refused.body.contains("confirm=true"), "{refused:?}");
    let stale = json!({ "enabled": true });
    let stale = site.request(Method::PUT, path, &admin).header("if-match", "\"7\"").json(&stale);
    assert_eq!(Answer::of(stale.send().await.unwrap()).await.problem(), "changed-meanwhile");
    let reader = site.token(Role::Read).await;
    assert_eq!(site.get("/v1/policies/users/tenants", &reader).await.json()["tenants"], json!([]));
    assert_eq!(site.get(path, &reader).await.problem(), "not-found");
    let held = put("?confirm=true", "31d").await;
    assert_eq!((&held.json()["version"], held.header("etag")), (&json!(2), "\"2\""));
    let shown = site.get(path, &reader).await;
    assert_eq!((shown.status, shown.header("etag")), (200, "\"2\""), "{shown:?}");
    let own = shown.json();
    assert_eq!(
        (&own["tenant"], &own["retention"], &own["enabled"]),
        (&json!("acme"), &json!("31d"), &json!(true)),
        "{own}"
    );
    assert_eq!(
        (&own["changed_by"], &own["warn_before"], &own["texts"]),
        (&json!("admin"), &json!(null), &json!({})),
        "{own}"
    );
    let listed = site.get("/v1/policies/users/tenants", &reader).await;
    assert_eq!((listed.header("etag"), &listed.json()["tenants"]), ("\"2\"", &json!([own])), "{listed:?}");
    assert_eq!(site.get("/v1/policies/nope/tenants", &reader).await.problem(), "not-found");
    // The same again is no new version.
    let again = put("", "31d").await;
    assert_eq!((&again.json()["version"], again.header("etag")), (&json!(2), "\"2\""));
    // What a request does not speak of stays as it is.
    let terms = || {
        site.database.scalar::<Value>("SELECT jsonb_build_array(spec -> 'retention', enabled) FROM ebb.tenant_override")
    };
    for (body, is) in [
        (json!({ "enabled": false }), json!(["31d", false])),
        (json!({ "retention": "100d" }), json!(["100d", false])),
        (json!({ "retention": null }), json!([null, false])),
        (json!({ "retention": "31d", "enabled": true }), json!(["31d", true])),
    ] {
        let answer = put_terms(&site, &format!("{path}?confirm=true"), &admin, &body).await;
        assert_eq!((answer.status, terms().await), (200, is), "{body}: {answer:?}");
    }
    // One that speaks of nothing makes neither terms nor a version.
    let version = "SELECT max(version) FROM ebb.policy WHERE name = 'users'";
    let before: i64 = site.database.scalar(version).await;
    for path in [path, "/v1/policies/users/tenants/beta?confirm=true"] {
        let silent = put_terms(&site, path, &admin, &json!({})).await;
        assert!(silent.problem() == "invalid" && silent.body.contains("say what the tenant's terms are"), "{silent:?}");
    }
    assert_eq!(site.database.scalar::<i64>(version).await, before);
    assert_eq!(site.database.scalar::<i64>("SELECT count(*) FROM ebb.tenant_override").await, 1);
    let removed = site.send(Method::DELETE, path, &admin, &json!({})).await;
    assert_eq!((removed.status, &removed.json()["due_after"]), (200, &json!(0)), "{removed:?}");
    assert_eq!(site.send(Method::DELETE, path, &admin, &json!({})).await.problem(), "not-found");
}

#[tokio::test]
async fn a_shorter_policy_is_previewed_and_confirmed_and_a_lower_floor_has_a_reason() {
    let site = site().await;
    let admin = site.token(Role::Admin).await;
    site.database.execute("UPDATE users SET deleted_at = now() - interval '60 days' WHERE id < 3").await;
    site.database
        .execute("INSERT INTO ebb.deletion (policy, subject_id, tenant, deleted_at, due_at) SELECT 'users', id::text, tenant_id, deleted_at, deleted_at + interval '90 days' FROM users WHERE id < 3")
        .await;
    let mut spec = site.get("/v1/policies/users", &admin).await.json()["spec"].clone();
    spec["grace"] = "40d".into();
    let put = |query: &'static str, body: Value| {
        let (site, admin) = (&site, &admin);
        async move { site.send(Method::PUT, &format!("/v1/policies/users{query}"), admin, &body).await }
    };
    let previewed = put("?dry_run=true", json!({ "spec": spec })).await.json();
    assert_eq!((&previewed["due_before"], &previewed["due_after"]), (&json!(0), &json!(2)), "{previewed}");
    assert_eq!(previewed["due_more"], 2, "{previewed}");
    let refused = put("", json!({ "spec": spec, "version": 1 })).await;
    assert!(refused.problem() == "conflict" && refused.body.contains("confirm=true"), "{refused:?}");
    assert_eq!(put("?confirm=true", json!({ "spec": spec, "version": 1 })).await.json()["version"], 2);
    spec["floor"] = "20d".into();
    let refused = put("", json!({ "spec": spec, "version": 2 })).await;
    assert!(refused.problem() == "conflict" && refused.body.contains("`reason` in the body"), "{refused:?}");
    let lowered = put("", json!({ "spec": spec, "version": 2, "reason": "the law changed" })).await;
    assert_eq!(lowered.json()["version"], 3, "{lowered:?}");
    let by: String = site.database.scalar("SELECT by_name FROM ebb.audit WHERE action = 'floor'").await;
    assert_eq!(by, "admin");
    let plan = site.get("/v1/plan", &admin).await.json();
    assert_eq!(plan["trees"][0]["policy"], "users", "{plan}");
}

#[tokio::test]
async fn a_tenant_has_warnings_and_words_of_its_own() {
    let site = Site::new().await;
    site.database.execute(TABLES).await;
    site.database.execute("ALTER TABLE users ADD email text").await;
    let warned = "warn_before = [\"30d\", \"3d\"]\ncontact = { email = \"email\" }\nnotify = \"mail\"\n\
        restore_url = \"https://app.example.test/restore?token={token}\"\n\
        [sinks.mail]\ntype = \"smtp\"\nhost = \"127.0.0.1\"\nfrom = \"no-reply@example.test\"\n";
    Shell::new(&site.database, &format!("{USERS}{warned}")).ok(&["apply", "--yes"]);
    let admin = site.token(Role::Admin).await;
    let path = "/v1/policies/users/tenants/acme";
    let put = |query: &'static str, body: Value| {
        let (site, admin) = (&site, &admin);
        async move { put_terms(site, &format!("{path}{query}"), admin, &body).await }
    };
    let spec = || site.database.scalar::<Value>("SELECT spec FROM ebb.tenant_override WHERE tenant = 'acme'");
    for (body, problem, says) in [
        (json!({ "warn_before": ["2d", "14d"] }), "invalid", "comes not after"),
        (json!({ "warn_before": ["soon"] }), "invalid", "warn_before"),
        (json!({ "warn_before": ["120d"] }), "conflict", "acme"),
        (json!({ "texts": { "service": " " } }), "invalid", "texts"),
        (json!({ "texts": { "servis": "Acme Books" } }), "invalid", "servis"),
    ] {
        let answer = put("", body.clone()).await;
        assert!(answer.problem() == problem && answer.body.contains(says), "{body}: {answer:?}");
    }
    let words = json!({ "warn_before": ["14d", "2d"], "texts": { "service": "Acme Books" } });
    assert_eq!(put("?dry_run=true", words.clone()).await.json()["dry_run"], true);
    assert_eq!(site.database.scalar::<i64>("SELECT count(*) FROM ebb.tenant_override").await, 0, "rehearsed only");
    assert_eq!(put("", words).await.json()["version"], 2);
    assert_eq!(
        spec().await,
        json!({ "retention": null, "enabled": true, "warn_before": ["14d", "2d"], "texts": { "service": "Acme Books" } })
    );
    // What a request does not speak of stays.
    assert_eq!(put("", json!({ "enabled": false, "texts": { "closing": "Sampai jumpa" } })).await.status, 200);
    assert_eq!(
        spec().await,
        json!({ "retention": null, "enabled": false, "warn_before": ["14d", "2d"], "texts": { "closing": "Sampai jumpa" } })
    );
    assert_eq!(put("", json!({ "warn_before": [], "texts": {} })).await.status, 200);
    assert_eq!(
        spec().await,
        json!({ "retention": null, "enabled": false }),
        "the policy's own again, and nobody switched it on"
    );
    let last: Value =
        site.database.scalar("SELECT details FROM ebb.audit WHERE action = 'override' ORDER BY id DESC LIMIT 1").await;
    assert_eq!(last, json!({ "retention": null, "enabled": false, "tenant": "acme" }));
}

#[tokio::test]
async fn what_the_table_or_a_disabled_policy_refuses_is_a_conflict_that_says_what_helps() {
    let site = site().await;
    let app = site.token(Role::App).await;
    let refused = async |what: &str, detail: &str, hint: &str| {
        let answer = post(&site, &app, what, &json!({})).await;
        let json = answer.json();
        assert_eq!(answer.problem(), "conflict", "{answer:?}");
        assert!(json["detail"].as_str().unwrap().contains(detail), "{answer:?}");
        assert!(json["hint"].as_str().is_some_and(|told| told.contains(hint)), "{answer:?}");
        assert!(!answer.body.contains("@example.test"), "{answer:?}");
    };
    site.database
        .execute(
            "ALTER TABLE users ADD email text; UPDATE users SET email = id || '@example.test';
             CREATE UNIQUE INDEX one_each ON users (email) WHERE deleted_at IS NULL",
        )
        .await;
    assert_eq!(post(&site, &app, "1/delete", &json!({})).await.status, 200);
    site.database.execute("INSERT INTO users (id, tenant_id, email) VALUES (6, 'acme', '1@example.test')").await;
    refused("1/restore", "one_each", "another row has the same value").await;
    let trigger = |does: &str| {
        format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does} END $$;
             CREATE OR REPLACE TRIGGER refuse BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    };
    site.database.execute(&trigger("RAISE EXCEPTION 'not on a Sunday';")).await;
    refused("2/delete", "not on a Sunday", "a trigger of the table").await;
    // Also where it says so by a code that means something else elsewhere.
    site.database.execute(&trigger("RAISE EXCEPTION 'ask legal' USING ERRCODE = '22P02', HINT = 'room 4';")).await;
    refused("2/delete", "ask legal", "room 4").await;
    site.database.execute(&trigger("RETURN NULL;")).await;
    refused("2/delete", "stayed as it was", "a trigger of its table keeps it").await;
    refused("1/restore", "stayed as it was", "a trigger of its table keeps it").await;
    site.database.execute("DROP TRIGGER refuse ON users").await;
    // Also where it waits until the end.
    site.database
        .execute(
            "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not today'; END $$;
             CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON users DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()",
        )
        .await;
    refused("2/delete", "not today", "a trigger of the table").await;
    site.database.execute("DROP TRIGGER late ON users; ALTER TABLE users RENAME deleted_at TO gone_at").await;
    refused("2/delete", "the table is not what policy users says", "ebb apply").await;
    site.database.execute("ALTER TABLE users RENAME gone_at TO deleted_at").await;
    // What is only busy is tried again.
    let mut other = site.database.pool().begin().await.unwrap();
    sqlx::raw_sql("SELECT FROM users WHERE id = 2 FOR UPDATE").execute(&mut *other).await.unwrap();
    assert_eq!(post(&site, &app, "2/delete", &json!({})).await.problem(), "unavailable");
    other.rollback().await.unwrap();
    Shell::new(&site.database, &format!("{USERS}enabled = false\n")).ok(&["apply", "--yes"]);
    refused("2/delete", "policy users is disabled", "ebb policy set users enabled=true").await;
}

#[tokio::test]
async fn a_rehearsal_that_is_written_otherwise_is_none_and_nothing_is_done() {
    let site = site().await;
    let (app, admin) = (site.token(Role::App).await, site.token(Role::Admin).await);
    for what in ["1/delete?dryrun=true", "1/erase?dry-run=true", "1/delete?dry_run=true&x", "1/restore?dry_run=true"] {
        let answer = post(&site, &app, what, &json!({})).await;
        assert_eq!((answer.status, answer.problem().as_str()), (400, "malformed"), "{what}: {answer:?}");
    }
    let answer = post(&site, &app, "1/erase?dry-run=true", &json!({})).await.json();
    assert_eq!(answer["hint"], "it takes dry_run");
    let put = site.request(Method::PUT, "/v1/policies/users?dryrun=true", &admin).json(&json!({ "grace": "80d" }));
    assert_eq!(Answer::of(put.send().await.unwrap()).await.status, 400);
    assert_eq!(site.database.scalar::<i64>("SELECT count(*) FROM ebb.deletion").await, 0);
    assert_eq!(site.database.scalar::<i64>("SELECT version FROM ebb.policy WHERE name = 'users'").await, 1);
}
