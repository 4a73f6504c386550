//! Pages over very much: ten thousand of everything where `EBB_MANY` says so (`make soak`), a few hundred otherwise. However many
//! there are, a page stays small, fits its window and says nothing to the console.

use ebb::token::Role;

use super::pages::{log_in, look};
use super::site::Site;
use crate::browser::Window;
use crate::shell::Shell;

/// The longest page, and the most elements on one: what a phone still scrolls well.
const MOST_BYTES: i64 = 700_000;
const MOST_ELEMENTS: i64 = 8_000;

fn many() -> u32 {
    std::env::var("EBB_MANY").ok().and_then(|many| many.parse().ok()).unwrap_or(400)
}

/// Much of everything. All is paused, so that it stays.
async fn site(many: u32) -> Site {
    let site = Site::new().await;
    let (policies, partitions) = (many.min(1_000), many.min(1_000));
    site.database
        .execute(&format!(
            "CREATE SCHEMA scratch;
             CREATE TABLE k (at timestamptz);
             CREATE TABLE users (id bigint PRIMARY KEY, deleted_at timestamptz);
             CREATE TABLE m (at timestamptz NOT NULL) PARTITION BY RANGE (at);
             INSERT INTO ebb.pause (name, paused_by, reason) VALUES ('*', 'test', 'much of everything');
             DO $$ BEGIN FOR n IN 0..{partitions} LOOP EXECUTE format('CREATE TABLE m_%s PARTITION OF m FOR VALUES FROM (%L) TO (%L)', n,
                 date_trunc('day', now(), 'UTC') + (10 - n) * interval '1 day', date_trunc('day', now(), 'UTC') + (11 - n) * interval '1 day'); END LOOP; END $$"
        ))
        .await;
    Shell::new(
        &site.database,
        "[[expire]]\nname = \"keys\"\ntable = \"public.k\"\ncolumn = \"at\"\n
         [[retain]]\nname = \"users\"\ntable = \"public.users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n
         [[partition]]\nname = \"m\"\ntable = \"public.m\"\ncolumn = \"at\"\nby = \"day\"\nahead = 3\n
         [[resources]]\nname = \"s\"\ndriver = \"postgres\"\nschema = \"scratch\"\npattern = \"t{snowflake}\"\ngrace = \"1h\"\n
         [sinks.hook]\ntype = \"log\"\n",
    )
    .ok(&["apply", "--yes"]);
    site.database
        .execute(&format!(
            "INSERT INTO ebb.policy (kind, name, spec, source, changed_by)
             SELECT 'expire', 'keys-' || n, p.spec || jsonb_build_object('description', 'Policy ' || n), 'runtime', 'test'
             FROM generate_series(1, {policies}) n, ebb.policy p WHERE p.name = 'keys';
             INSERT INTO ebb.unit (unit, chore, policy, leaf, pending, oldest_due, counted_at)
             SELECT 'expire/keys-' || n || '/public.k', 'expire', 'keys-' || n, 'public.k', n, now() - n * interval '1 min', now()
             FROM generate_series(1, {policies}) n;
             INSERT INTO ebb.run (unit, chore, policy, policy_version, leaf, node, generation, status, rows, error, started_at, finished_at)
             SELECT 'expire/keys-' || n % {policies} || '/public.k', 'expire', 'keys-' || n % {policies}, 1, 'public.k', 'node', 1,
                    CASE WHEN n % 97 = 0 THEN 'failed' ELSE 'success' END, n % 1000, CASE WHEN n % 97 = 0 THEN 'the disk is full' END,
                    now() - n * interval '8 seconds', now() - n * interval '7 seconds'
             FROM generate_series(1, {many}) n;
             INSERT INTO users SELECT n, now() - interval '1 day' FROM generate_series(1, {many}) n;
             INSERT INTO ebb.deletion (policy, subject_id, state, deleted_at, due_at, error, attempts)
             SELECT 'users', n::text, CASE WHEN n % 50 = 0 THEN 'failed' ELSE 'pending' END, now() - interval '1 day',
                    now() + n * interval '1 minute', CASE WHEN n % 50 = 0 THEN 'a row refers to it' END, n % 3
             FROM generate_series(1, {many}) n;
             INSERT INTO ebb.event (id, sink, due_at, ready_at, created_at, attempts, error, body)
             SELECT gen_random_uuid(), 'hook', t, t, now(), (n % 7 = 0)::int, CASE WHEN n % 7 = 0 THEN '500 Internal Server Error' END, '{{\"n\": 1}}'
             FROM generate_series(1, {many}) n, LATERAL (SELECT now() - interval '1 hour' + n * interval '1 min' AS t) AS at;
             INSERT INTO ebb.event_history (id, sink, state, due_at, finished_at, token, attempts, created_at, error, body)
             SELECT gen_random_uuid(), 'hook', CASE WHEN n % 10 = 0 THEN 'dead' ELSE 'done' END, now() - n * interval '1 second',
                    now(), 1, 3, now(), CASE WHEN n % 10 = 0 THEN 'connection refused' END, '{{}}'
             FROM generate_series(1, {many}) n;
             INSERT INTO ebb.holder (name, term, expires_at, collect_at)
             SELECT 'worker-' || n, '1 h', now() + interval '1 h', now() + interval '2 h' FROM generate_series(1, {many}) n;
             INSERT INTO ebb.resource (policy, name, state, created_at)
             SELECT 's', 't' || ((extract(epoch FROM now()) * 1000)::bigint + n) * 4194304, CASE WHEN n % 4 = 0 THEN 'condemned' ELSE 'live' END, now()
             FROM generate_series(1, {many}) n;
             INSERT INTO ebb.reference (resource, holder)
             SELECT r.id, h.id FROM (SELECT id, row_number() OVER () AS n FROM ebb.resource WHERE state = 'live') r
             JOIN (SELECT id, row_number() OVER () AS n FROM ebb.holder) h USING (n);
             INSERT INTO ebb.audit (action, policy, relation, rows, by_name)
             SELECT 'expire', 'keys-' || n % {policies}, 'public.k', n, 'node' FROM generate_series(1, {many}) n;
             INSERT INTO ebb.sample (at, metric, labels, value)
             SELECT now() - n * interval '1 hour', 'throttle_seconds', jsonb_build_object('reason', reason), 60 * n
             FROM generate_series(0, 23) n, unnest(ARRAY['paused', 'replica_lag', 'lock_waiters', 'rows_per_second']) AS reason;
             ANALYZE"
        ))
        .await;
    site
}

#[tokio::test]
async fn pages_stay_small_however_much_there_is() {
    let site = site(many()).await;
    let event: String = site.database.scalar("SELECT id::text FROM ebb.event WHERE error IS NOT NULL LIMIT 1").await;
    for (window, name) in [(Window::DESK, "many-desk"), (Window::PHONE.dark(), "many-phone")] {
        let browser = log_in(&site, window, Role::Admin).await;
        for path in [
            "/",
            "/policies",
            "/policies/keys-7",
            "/subjects",
            "/subjects/users/50",
            "/events",
            "/events?state=failed",
            "/events?state=dead",
            &format!("/events/{event}"),
            "/events/retry",
            "/partitions",
            "/resources",
            "/audit",
            "/audit/report",
        ] {
            look(&browser, &site, path, name).await;
            let file = path.trim_matches('/').replace(['/', '?', '='], "-");
            browser.photograph(&format!("{name}-{file}")).await;
            let size = browser.run("return document.documentElement.outerHTML.length").await.as_i64().unwrap();
            let elements = browser.run("return document.querySelectorAll('*').length").await.as_i64().unwrap();
            assert!(size < MOST_BYTES && elements < MOST_ELEMENTS, "{path} has {size} bytes and {elements} elements");
        }
        assert_eq!(browser.console().await, Vec::<String>::new(), "{name}");
    }
}
