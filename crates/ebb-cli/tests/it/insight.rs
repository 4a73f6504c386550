//! plan, status and doctor as an operator meets them: what they say, what they leave alone, how they end.

use std::path::Path;
use std::time::Duration;

use ebb_testkit::{Node, TestDatabase, database, empty_database, empty_database_on, eventually, own_server};
use serde_json::Value;

const EBB: &str = env!("CARGO_BIN_EXE_ebb");
const KEYS: &str = r#"
[http]
listen = "127.0.0.1:0"
[[expire]]
name = "keys"
table = "public.k"
column = "expires_at"
every = "1h"
"#;

/// Runs a command to its end: exit code and output.
async fn ebb(url: &str, config: &str, args: &[&str]) -> (i32, String) {
    let mut node = Node::spawn(Path::new(EBB), url, config, args);
    let status = node.wait_within(Duration::from_secs(60)).await;
    (status.code().unwrap(), node.output())
}

async fn json(url: &str, config: &str, args: &[&str]) -> (i32, Value) {
    let (code, output) = ebb(url, config, args).await;
    let start = output.find("{\n").unwrap_or_else(|| panic!("no JSON in: {output}"));
    let mut parsed = serde_json::Deserializer::from_str(&output[start..]).into_iter::<Value>();
    (code, parsed.next().unwrap().unwrap_or_else(|error| panic!("{error} in: {output}")))
}

/// 300 due rows and 700 that are not.
async fn keys(database: &TestDatabase, index: bool) {
    database
        .execute(
            "CREATE TABLE public.k (id int PRIMARY KEY, expires_at timestamptz NOT NULL, note text);
             INSERT INTO public.k SELECT i, now() + (i - 300.5) * interval '1 minute', repeat('x', 1500)
             FROM generate_series(1, 1000) i",
        )
        .await;
    if index {
        database.execute("CREATE INDEX ON public.k (expires_at)").await;
    }
    database.execute("ANALYZE public.k").await;
}

fn findings<'a>(report: &'a Value, check: &str) -> Vec<&'a Value> {
    report["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check).collect()
}

#[tokio::test]
async fn plan_works_before_anything_was_applied_and_writes_nothing() {
    let database = empty_database().await;
    keys(&database, true).await;
    let (code, plan) = json(database.url(), KEYS, &["plan", "--json"]).await;
    assert_eq!(code, 0, "{plan}");
    assert_eq!(plan["schema_version"], Value::Null);
    assert_eq!(plan["changes"][0]["action"], "create");
    let policy = &plan["policies"][0];
    assert_eq!(
        (&policy["due_rows"], &policy["total_rows"], &policy["exact"]),
        (&300.into(), &1000.into(), &true.into())
    );
    assert!(policy["shape"][0].as_str().unwrap().contains("k_expires_at_idx"), "{policy}");
    let schemas: i64 = database.scalar("SELECT count(*) FROM pg_namespace WHERE nspname = 'ebb'").await;
    assert_eq!(schemas, 0);
}

#[tokio::test]
async fn plan_names_the_brake_the_missing_index_and_what_would_be_refused() {
    let database = database().await;
    keys(&database, false).await;
    let config = format!(
        "{KEYS}brake = {{ rows = 100 }}\n[[expire]]\nname = \"gone\"\ntable = \"public.kk\"\ncolumn = \"expires_at\"\n"
    );
    let (code, plan) = json(database.url(), &config, &["plan", "--json"]).await;
    assert_eq!(code, 3, "a policy whose table is missing is a problem");
    let policy = &plan["policies"][0];
    assert_eq!(policy["brake"], "rows = 100");
    assert_eq!(policy["remedy"], "ebb resume keys --allow 300");
    assert!(policy["problems"][0]["fix"].as_str().unwrap().starts_with("CREATE INDEX CONCURRENTLY"), "{policy}");
    assert_eq!(plan["policies"][1]["problems"][0]["refused"], true);
}

#[tokio::test]
async fn plan_reckons_with_the_speed_of_earlier_runs() {
    let database = database().await;
    keys(&database, true).await;
    assert_eq!(ebb(database.url(), KEYS, &["apply", "--yes"]).await.0, 0);
    database
        .execute(
            "INSERT INTO ebb.run (unit, chore, policy, policy_version, leaf, node, generation, status, rows, started_at,
                                  finished_at)
             SELECT 'u', 'expire', 'keys', 1, 'public.k', 'n', 1, 'success', 6000, now() - interval '1 hour',
                    now() - interval '1 hour' + interval '60 seconds'",
        )
        .await;
    let (_, plan) = json(database.url(), KEYS, &["plan", "--json"]).await;
    let policy = &plan["policies"][0];
    assert_eq!((&policy["rate_measured"], &policy["rows_per_second"]), (&true.into(), &100.0.into()), "{policy}");
    assert!((policy["estimated_seconds"].as_f64().unwrap() - 3.0).abs() < 0.5, "{policy}");
}

#[tokio::test]
async fn status_answers_the_questions_of_the_runbook() {
    let database = database().await;
    keys(&database, true).await;
    ebb(database.url(), KEYS, &["apply", "--yes"]).await;
    let (_, before) = json(database.url(), KEYS, &["status", "--json"]).await;
    let unit = &before["policies"][0]["units"][0];
    assert_eq!(
        (&unit["pending"], &unit["pending_is"], &unit["total_rows"]),
        (&300.into(), &"counted".into(), &1000.into())
    );
    assert!(unit["table_bytes"].as_u64().unwrap() > 100_000 && unit["index"] == "k_expires_at_idx", "{unit}");
    assert!(unit["oldest_due"].as_str().unwrap() < unit["newest_due"].as_str().unwrap(), "{unit}");

    assert_eq!(ebb(database.url(), KEYS, &["run", "--once"]).await.0, 0);
    let (_, after) = json(database.url(), KEYS, &["status", "--json"]).await;
    let unit = &after["policies"][0]["units"][0];
    assert_eq!(
        (&unit["pending"], &unit["last_run"]["status"], &unit["last_run"]["rows"]),
        (&0.into(), &"success".into(), &300.into())
    );
    assert!(unit["last_success_at"].is_string() && unit["next_run"].is_string() && unit["shape"].is_string(), "{unit}");
    assert!(after["audit"]["unsealed"].as_i64().unwrap() >= 2, "the policy and its batch: {}", after["audit"]);
}

#[tokio::test]
async fn status_tells_every_state_with_the_command_that_ends_it() {
    let database = database().await;
    keys(&database, true).await;
    let more = |name: &str, extra: &str| {
        format!("[[expire]]\nname = \"{name}\"\ntable = \"public.k\"\ncolumn = \"expires_at\"\n{extra}\n")
    };
    let config = [
        KEYS,
        &more("calm", "mode = \"observe\""),
        &more("off", "enabled = false"),
        &more("held", ""),
        &more("broken", ""),
        &more("large", "brake = { rows = 10 }"),
    ]
    .concat();
    assert_eq!(ebb(database.url(), &config, &["apply", "--yes"]).await.0, 0);
    ebb(database.url(), &config, &["run", "--once", "--only", "large"]).await;
    database
        .execute(
            "INSERT INTO ebb.pause (name, reason, paused_by) VALUES ('held', 'a migration', 'ana');
             UPDATE ebb.policy SET stopped = 'its table is gone' WHERE name = 'broken'",
        )
        .await;
    let (_, status) = json(database.url(), &config, &["status", "--json"]).await;
    let of = |name: &str| {
        let found = status["policies"].as_array().unwrap().iter().find(|policy| policy["policy"] == name).unwrap();
        (found["state"].as_str().unwrap(), found["reason"].to_string(), found["remedy"].clone())
    };
    assert_eq!((of("keys").0, of("calm").0, of("off").0), ("active", "observe", "disabled"));
    assert_eq!((of("held").0, of("held").2), ("paused", "ebb resume held".into()));
    assert!(of("held").1.contains("ana") && of("held").1.contains("a migration"));
    assert_eq!((of("large").0, of("large").2), ("braked", "ebb resume large --allow 300".into()));
    assert_eq!(of("broken").0, "stopped");
    assert!(of("broken").1.contains("its table is gone"));
}

#[tokio::test]
async fn a_running_node_is_seen_and_keeps_gauges_and_samples_fresh() {
    let database = database().await;
    keys(&database, true).await;
    let config = format!("{KEYS}mode = \"observe\"\n");
    ebb(database.url(), &config, &["apply", "--yes"]).await;
    let mut node = Node::spawn(Path::new(EBB), database.url(), &config, &["run"]);
    node.wait_for_line("Ebb is up", Duration::from_secs(60)).await;
    eventually(Duration::from_secs(30), || async {
        // One series of the policy, one of all together.
        let samples: i64 = database
            .scalar("SELECT count(DISTINCT labels) FROM ebb.sample WHERE metric = 'records_pending' AND value = 300")
            .await;
        samples == 2
    })
    .await;
    let oldest: bool = database
        .scalar("SELECT oldest_due < ebb.now() - interval '290 minutes' FROM ebb.v_backlog WHERE policy = 'keys'")
        .await;
    assert!(oldest);
    let (_, status) = json(database.url(), &config, &["status", "--json"]).await;
    assert_eq!((&status["nodes"][0]["alive"], &status["nodes"][0]["listens"]), (&true.into(), &true.into()));
    node.term();
    assert!(node.wait_within(Duration::from_secs(60)).await.success());
}

#[tokio::test]
async fn doctor_fails_without_a_schema_and_is_content_with_a_healthy_one() {
    let database = empty_database().await;
    keys(&database, true).await;
    let (code, report) = json(database.url(), KEYS, &["doctor", "--json"]).await;
    assert_eq!((code, &findings(&report, "schema")[0]["severity"]), (3, &"fail".into()));
    ebb(database.url(), KEYS, &["apply", "--yes"]).await;
    let (code, report) = json(database.url(), KEYS, &["doctor", "--json"]).await;
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(findings(&report, "schema")[0]["severity"], "ok");

    database.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC").await;
    let (_, report) = json(database.url(), KEYS, &["doctor", "--json"]).await;
    assert!(findings(&report, "schemas").is_empty(), "{report:#}");
    database.execute("GRANT CREATE ON SCHEMA public TO PUBLIC").await;
    let (code, report) = json(database.url(), KEYS, &["doctor", "--json"]).await;
    let fix = &findings(&report, "schemas")[0]["fix"]["text"];
    assert_eq!((code, fix), (0, &"REVOKE CREATE ON SCHEMA \"public\" FROM PUBLIC;".into()), "{report:#}");
}

#[tokio::test]
async fn doctor_fails_on_a_moved_clock_as_soon_as_a_policy_acts_on_it() {
    let database = database().await;
    keys(&database, true).await;
    database.advance("90 days").await;
    let replaced = |report: &Value| {
        let found =
            findings(report, "clock").into_iter().find(|f| f["evidence"].as_str().unwrap().contains("replaced"));
        found.map(|finding| finding["severity"].as_str().unwrap().to_owned())
    };
    let (code, report) = json(database.url(), "", &["doctor", "--json"]).await;
    assert_eq!((code, replaced(&report).as_deref()), (0, Some("warn")), "{report:#}");
    ebb(database.url(), KEYS, &["apply", "--yes"]).await;
    let (code, report) = json(database.url(), KEYS, &["doctor", "--json"]).await;
    assert_eq!((code, replaced(&report).as_deref()), (3, Some("fail")), "{report:#}");
}

#[tokio::test]
async fn doctor_finds_the_missing_index_and_creates_it_when_told() {
    let database = database().await;
    keys(&database, false).await;
    ebb(database.url(), KEYS, &["apply", "--yes"]).await;
    let indexes = "SELECT count(*) FROM pg_index WHERE indrelid = 'public.k'::regclass AND indisvalid";
    let (_, report) = json(database.url(), KEYS, &["doctor", "--json"]).await;
    let fix = &findings(&report, "index")[0]["fix"];
    assert_eq!(fix["text"], "CREATE INDEX CONCURRENTLY ON \"public\".\"k\" (\"expires_at\");");
    assert_eq!(ebb(database.url(), KEYS, &["doctor", "--fix"]).await.0, 2, "without a terminal it needs --yes");
    assert_eq!(database.scalar::<i64>(indexes).await, 1);
    let (code, report) = json(database.url(), KEYS, &["doctor", "--fix", "--yes", "--json"]).await;
    assert_eq!(code, 0, "{report:#}");
    assert!(findings(&report, "index").is_empty(), "{report:#}");
    assert_eq!(database.scalar::<i64>(indexes).await, 2);
}

#[tokio::test]
async fn two_policies_on_one_column_get_one_index() {
    let database = database().await;
    keys(&database, false).await;
    let config =
        format!("{KEYS}[[expire]]\nname = \"more\"\ntable = \"k\"\ncolumn = \"expires_at\"\nolder_than = \"1d\"\n");
    ebb(database.url(), &config, &["apply", "--yes"]).await;
    ebb(database.url(), &config, &["doctor", "--fix", "--yes"]).await;
    let indexes: i64 = database.scalar("SELECT count(*) FROM pg_index WHERE indrelid = 'public.k'::regclass").await;
    assert_eq!(indexes, 2, "the key and one more");
}

#[tokio::test]
async fn a_stopped_policy_is_restarted_only_when_its_cause_is_gone() {
    let database = database().await;
    keys(&database, true).await;
    ebb(database.url(), KEYS, &["apply", "--yes"]).await;
    database.execute("ALTER TABLE public.k RENAME TO elsewhere").await;
    ebb(database.url(), KEYS, &["run", "--once"]).await;
    let stopped = "SELECT stopped IS NOT NULL FROM ebb.policy WHERE name = 'keys'";
    assert!(database.scalar::<bool>(stopped).await);
    let (code, report) = json(database.url(), KEYS, &["doctor", "--fix", "--yes", "--json"]).await;
    assert_eq!((code, &findings(&report, "stopped")[0]["severity"]), (3, &"fail".into()));
    assert!(database.scalar::<bool>(stopped).await, "the table is still missing");
    database.execute("ALTER TABLE public.elsewhere RENAME TO k").await;
    let (code, report) = json(database.url(), KEYS, &["doctor", "--fix", "--yes", "--json"]).await;
    assert_eq!(code, 0, "{report:#}");
    assert!(!database.scalar::<bool>(stopped).await);
    let source: String = database.scalar("SELECT source FROM ebb.policy WHERE name = 'keys'").await;
    assert_eq!(source, "file", "the file may go on changing it");
}

#[tokio::test]
async fn doctor_sees_work_that_is_stuck_braked_paused_or_bloated() {
    let database = database().await;
    keys(&database, true).await;
    let config = format!("{KEYS}brake = {{ rows = 10 }}\n");
    ebb(database.url(), &config, &["apply", "--yes"]).await;
    ebb(database.url(), &config, &["run", "--once"]).await;
    database
        .execute(
            "UPDATE ebb.unit SET failures = 4, last_success_at = clock_timestamp() - interval '5 hours' WHERE policy = 'keys';
             ALTER TABLE public.k SET (autovacuum_enabled = false)",
        )
        .await;
    let (code, report) = json(database.url(), &config, &["doctor", "--json"]).await;
    assert_eq!(code, 3);
    assert_eq!(findings(&report, "brake")[0]["fix"]["text"], "ebb resume keys --allow 300");
    assert!(findings(&report, "stuck")[0]["evidence"].as_str().unwrap().contains("4 times in a row"), "{report:#}");
    assert_eq!(findings(&report, "autovacuum").len(), 1);

    database
        .execute(
            "UPDATE ebb.unit SET failures = 0 WHERE policy = 'keys'; DELETE FROM ebb.brake;
             INSERT INTO ebb.pause (name, paused_by) VALUES ('*', 'ana')",
        )
        .await;
    let (code, report) = json(database.url(), &config, &["doctor", "--json"]).await;
    assert_eq!(code, 0, "a pause is somebody's wish: {report:#}");
    assert_eq!(findings(&report, "paused")[0]["fix"]["text"], "ebb resume");

    database.execute("DELETE FROM ebb.pause").await;
    let (code, report) = json(database.url(), &config, &["doctor", "--json"]).await;
    let text = findings(&report, "stuck")[0]["evidence"].as_str().unwrap().to_owned();
    assert_eq!(code, 3);
    assert!(text.contains("three times its interval"), "{text}");
}

#[tokio::test]
async fn doctor_recommends_the_interval_that_the_rate_asks_for() {
    let database = database().await;
    keys(&database, true).await;
    ebb(database.url(), KEYS, &["apply", "--yes"]).await;
    // 750 rows a second for four hours.
    database
        .execute(
            "INSERT INTO ebb.run (unit, chore, policy, policy_version, leaf, node, generation, status, rows, started_at,
                                  finished_at)
             SELECT 'u', 'expire', 'keys', 1, 'public.k', 'n', 1, 'success', 750 * 3600, now() - h * interval '1 hour',
                    now() - h * interval '1 hour' + interval '30 seconds'
             FROM generate_series(4, 0, -1) h",
        )
        .await;
    let (_, report) = json(database.url(), KEYS, &["doctor", "--json"]).await;
    assert!(findings(&report, "interval")[0]["fix"]["text"].as_str().unwrap().contains("15m"), "{report:#}");
}

/// Every statement that doctor prints for a role, applied as printed, until it asks for nothing more.
async fn grant_what_doctor_prints(database: &TestDatabase, config: &str, role: &str) -> Value {
    for _ in 0..4 {
        let (_, report) = json(database.url(), config, &["doctor", "--json", "--role", role]).await;
        let missing: Vec<&Value> =
            findings(&report, "privileges").into_iter().filter(|finding| finding["severity"] == "fail").collect();
        if missing.is_empty() {
            return report;
        }
        for finding in missing {
            database.execute(finding["fix"]["text"].as_str().unwrap()).await;
        }
        // The printed comment says so: grants on Ebb's own tables come with a migration.
        assert_eq!(ebb(database.url(), config, &["migrate"]).await.0, 0);
    }
    panic!("doctor goes on asking for grants");
}

#[tokio::test]
async fn the_grants_that_doctor_prints_are_enough_and_no_more_than_asked() {
    let server = own_server();
    let database = empty_database_on(&server).await;
    database
        .execute(&format!(
            "REVOKE ALL ON DATABASE \"{}\" FROM PUBLIC; GRANT CONNECT ON DATABASE \"{}\" TO PUBLIC;
             CREATE SCHEMA shop; CREATE ROLE sweeper LOGIN;
             CREATE TABLE shop.\"Orders\" (id int, \"Expires\" timestamptz NOT NULL, state text) PARTITION BY RANGE (\"Expires\");
             CREATE TABLE shop.past PARTITION OF shop.\"Orders\" FOR VALUES FROM (MINVALUE) TO (now());
             CREATE TABLE shop.coming PARTITION OF shop.\"Orders\" FOR VALUES FROM (now()) TO (MAXVALUE);
             INSERT INTO shop.\"Orders\" SELECT i, now() + (i - 500.5) * interval '1 minute', 'done'
             FROM generate_series(1, 1000) i;
             CREATE INDEX ON shop.\"Orders\" (\"Expires\"); ANALYZE shop.\"Orders\"",
            database.name(),
            database.name()
        ))
        .await;
    let config = r#"
[http]
listen = "127.0.0.1:0"
[[expire]]
name = "orders"
table = 'shop."Orders"'
column = "Expires"
where = "state = 'done'"
"#;
    assert_eq!(ebb(database.url(), config, &["apply", "--yes"]).await.0, 0);
    let report = grant_what_doctor_prints(&database, config, "sweeper").await;
    assert!(!findings(&report, "vacuum").is_empty() || server_is(&database, 17).await, "{report:#}");

    // Somebody holds a due row: it is passed by, which takes the right to lock.
    let mut holder = database.pool().begin().await.unwrap();
    sqlx::query("SELECT FROM shop.past WHERE id = 7 FOR UPDATE").execute(&mut *holder).await.unwrap();
    let url = as_role(database.url(), "sweeper");
    let (code, output) = ebb(&url, config, &["run", "--once", "--only", "orders"]).await;
    assert_eq!(code, 0, "{output}");
    holder.rollback().await.unwrap();
    assert_eq!(
        database
            .scalar::<i64>("SELECT count(*) FROM shop.\"Orders\" WHERE \"Expires\" <= now() - interval '1 minute'")
            .await,
        1
    );
    let may_change: bool = database.scalar("SELECT has_table_privilege('sweeper', 'shop.past', 'UPDATE')").await;
    assert!(!may_change, "one column is enough to lock by");
}

#[tokio::test]
async fn grants_for_a_policy_with_a_role_of_its_own_are_enough() {
    let server = own_server();
    let database = empty_database_on(&server).await;
    keys(&database, true).await;
    database.execute("CREATE ROLE sweeper LOGIN; CREATE ROLE worker").await;
    let config = format!("{KEYS}role = \"worker\"\n");
    assert_eq!(ebb(database.url(), &config, &["apply", "--yes"]).await.0, 0);
    grant_what_doctor_prints(&database, &config, "sweeper").await;
    let (code, output) = ebb(&as_role(database.url(), "sweeper"), &config, &["run", "--once", "--only", "keys"]).await;
    assert_eq!(code, 0, "{output}");
    assert_eq!(database.scalar::<i64>("SELECT count(*) FROM public.k").await, 700);
    let may: bool = database.scalar("SELECT has_table_privilege('sweeper', 'public.k', 'DELETE')").await;
    assert!(!may || !server_is(&database, 16).await, "from 16 on only the worker deletes");
}

#[tokio::test]
async fn an_action_that_sets_columns_needs_only_those() {
    let server = own_server();
    let database = empty_database_on(&server).await;
    keys(&database, true).await;
    database.execute("CREATE ROLE sweeper LOGIN").await;
    let config = format!("{KEYS}action = {{ set = {{ note = \"'gone'\" }} }}\n");
    assert_eq!(ebb(database.url(), &config, &["apply", "--yes"]).await.0, 0);
    grant_what_doctor_prints(&database, &config, "sweeper").await;
    let (code, output) = ebb(&as_role(database.url(), "sweeper"), &config, &["run", "--once", "--only", "keys"]).await;
    assert_eq!(code, 0, "{output}");
    assert_eq!(database.scalar::<i64>("SELECT count(*) FROM public.k WHERE note = 'gone'").await, 300);
    let may: bool = database.scalar("SELECT has_table_privilege('sweeper', 'public.k', 'DELETE')").await;
    assert!(!may);
}

#[tokio::test]
async fn the_views_show_policies_runs_backlog_and_proof() {
    let database = database().await;
    keys(&database, true).await;
    ebb(database.url(), KEYS, &["apply", "--yes"]).await;
    ebb(database.url(), KEYS, &["run", "--once"]).await;
    let policy: String =
        database.scalar("SELECT state || ' ' || table_name FROM ebb.v_policies WHERE name = 'keys'").await;
    assert_eq!(policy, "active public.k");
    let run: String = database
        .scalar("SELECT status || ' ' || rows FROM ebb.v_runs WHERE policy = 'keys' AND rows_per_second > 0")
        .await;
    assert_eq!(run, "success 300");
    let pending: i64 =
        database.scalar("SELECT pending FROM ebb.v_backlog WHERE policy = 'keys' AND next_at > now()").await;
    assert_eq!(pending, 0);
    let proof: i64 = database
        .scalar("SELECT sum(rows)::int8 FROM ebb.v_audit WHERE table_name = 'public.k' AND block IS NULL")
        .await;
    assert_eq!(proof, 300);
}

#[tokio::test]
async fn the_two_roles_that_doctor_prints_can_be_set_up_and_run() {
    let server = own_server();
    let database = empty_database_on(&server).await;
    keys(&database, true).await;
    assert_eq!(ebb(database.url(), KEYS, &["apply", "--yes"]).await.0, 0);
    let (_, report) = json(database.url(), KEYS, &["doctor", "--json"]).await;
    let setup = findings(&report, "roles")[0]["fix"]["text"].as_str().unwrap().to_owned();
    database.execute(&setup).await;
    database.execute("CREATE ROLE migrator LOGIN IN ROLE ebb_owner").await;
    assert_eq!(ebb(&as_role(database.url(), "migrator"), KEYS, &["migrate"]).await.0, 0);
    grant_what_doctor_prints(&database, KEYS, "ebb_node").await;
    let (code, output) = ebb(&as_role(database.url(), "ebb_node"), KEYS, &["run", "--once"]).await;
    assert_eq!(code, 0, "{output}");
    assert_eq!(database.scalar::<i64>("SELECT count(*) FROM public.k").await, 700);
    let may: bool = database
        .scalar(
            "SELECT has_table_privilege('ebb_node', 'ebb.v_audit', 'UPDATE')
                     OR has_table_privilege('ebb_node', 'ebb.v_policies', 'UPDATE')",
        )
        .await;
    assert!(!may, "views are for reading");
}

#[tokio::test]
async fn row_security_that_would_hide_due_rows_is_found() {
    let server = own_server();
    let database = empty_database_on(&server).await;
    keys(&database, true).await;
    database.execute("CREATE ROLE sweeper LOGIN; ALTER TABLE public.k ENABLE ROW LEVEL SECURITY").await;
    ebb(database.url(), KEYS, &["apply", "--yes"]).await;
    let (code, report) = json(database.url(), KEYS, &["doctor", "--json", "--role", "sweeper"]).await;
    assert_eq!(code, 3);
    database.execute(findings(&report, "row security")[0]["fix"]["text"].as_str().unwrap()).await;
    let report = grant_what_doctor_prints(&database, KEYS, "sweeper").await;
    assert!(findings(&report, "row security").is_empty());
    let (code, output) = ebb(&as_role(database.url(), "sweeper"), KEYS, &["run", "--once", "--only", "keys"]).await;
    assert_eq!(code, 0, "{output}");
}

/// Whether the server is at least of this major version.
async fn server_is(database: &TestDatabase, major: i32) -> bool {
    database.scalar::<i32>("SELECT current_setting('server_version_num')::int").await >= major * 10_000
}

/// The same database, as another role.
fn as_role(url: &str, role: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, host) = rest.rsplit_once('@').unwrap();
    format!("{scheme}://{role}@{host}")
}

#[tokio::test]
async fn the_forecast_counts_what_falls_due_day_by_day() {
    let database = database().await;
    database
        .execute(
            "CREATE TABLE public.k (id int, created_at timestamptz); CREATE INDEX ON public.k (created_at);
             INSERT INTO public.k SELECT n, now() - interval '10 days' + n * interval '12 hours' + interval '1 minute'
             FROM generate_series(0, 19) n;
             ANALYZE public.k",
        )
        .await;
    let config = "[[expire]]\nname = \"k<b>\"\ntable = \"public.k\"\ncolumn = \"created_at\"\nolder_than = \"5d\"\nwhere = \"id <> 11\"\n"
        .replace("k<b>", "k");
    let (code, plan) = json(database.url(), &config, &["plan", "--days", "3", "--json"]).await;
    assert_eq!(code, 0, "{plan}");
    let forecast = &plan["forecast"][0];
    assert_eq!(forecast["due_rows"], 10, "{forecast}");
    let rows: Vec<u64> = forecast["days"].as_array().unwrap().iter().map(|day| day["rows"].as_u64().unwrap()).collect();
    assert_eq!(rows, [1, 2, 2], "the filter holds, and no row counts twice: {forecast}");
    assert!(forecast["days"][0]["exact"].as_bool().unwrap());
    let (_, later) = json(database.url(), &config, &["plan", "--at", "2d", "--days", "1", "--json"]).await;
    assert_eq!((&later["forecast"][0]["due_rows"], &later["forecast"][0]["days"][0]["rows"]), (&13.into(), &2.into()));
    let (code, page) = ebb(database.url(), &config, &["plan", "--days", "2", "--format", "html"]).await;
    assert!(code == 0 && page.contains("<!doctype html>") && page.contains("Forecast: k"), "{page}");
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<script"), "{page}");
    let (code, told) = ebb(database.url(), &config, &["plan", "--at", "soon"]).await;
    assert!(code == 2 && told.contains("neither a time nor a duration"), "{told}");
    let left: i64 = database.scalar("SELECT count(*) FROM public.k").await;
    assert_eq!(left, 20);
}

#[tokio::test]
async fn storage_is_told_from_kept_figures() {
    let database = database().await;
    keys(&database, true).await;
    database.execute("ANALYZE public.k").await;
    assert_eq!(ebb(database.url(), KEYS, &["apply", "--yes"]).await.0, 0);
    // The only policy's; `json` reads the first object.
    let (code, told) = json(database.url(), KEYS, &["status", "--storage", "--json"]).await;
    let rows: i64 = database.scalar("SELECT count(*) FROM public.k").await;
    let bytes: i64 = database.scalar("SELECT pg_total_relation_size('public.k')").await;
    assert_eq!(
        (code, told["table"].as_str(), told["rows"].as_i64(), told["leaves"].as_i64()),
        (0, Some("public.k"), Some(rows), Some(1))
    );
    assert_eq!(told["table_bytes"].as_i64().unwrap() + told["index_bytes"].as_i64().unwrap(), bytes);
    let (code, table) = ebb(database.url(), KEYS, &["status", "--storage"]).await;
    assert!(code == 0 && table.contains("public.k"), "{table}");
}
