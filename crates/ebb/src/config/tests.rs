//! What the configuration promises, on whole files.

use std::time::Duration;

use super::*;
use crate::policy::{Cadence, Pacing};

const KEYS: &str = "[[expire]]\nname = \"old-keys\"\ntable = \"public.keys\"\ncolumn = \"expires_at\"\n";

fn read(text: &str, env: &[(&str, &str)]) -> Result<Config> {
    Config::from_str(text, "ebb.toml", &env.iter().copied().collect())
}

fn refusal(text: &str, env: &[(&str, &str)]) -> String {
    let error = read(text, env).unwrap_err();
    assert!(error.is_config());
    error.to_string()
}

fn cadence(config: &Config) -> Cadence {
    match &config.policies[0].policy {
        Policy::Expire(expire) => expire.cadence.clone(),
        other => panic!("{other:?}"),
    }
}

fn every(seconds: u64) -> Cadence {
    Cadence::Every(Duration::from_secs(seconds))
}

#[test]
fn nothing_configured_means_the_defaults() {
    let config = read("", &[]).unwrap();
    assert_eq!(config.database.url, None);
    assert_eq!(config.database.stop_within, Duration::from_secs(5));
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:7117");
    assert_eq!((config.log.level.as_str(), config.log.format), ("info", None));
    assert_eq!(config.metrics.prefix, "ebb");
    assert_eq!((config.node.lease, config.node.poll), (Duration::from_secs(60), Duration::from_secs(60)));
    assert!(config.policies.is_empty() && config.warnings.is_empty());
}

#[test]
fn the_file_of_the_contract_is_read() {
    let text = r#"
[database]
url = "env:PG"
[http]
listen = "0.0.0.0:80"
public_url = "https://ebb.example.test/"
[log]
level = "debug"
format = "json"
[audit]
signing_key = "file:ebb-audit.key"
[pacing]
max_replica_lag = "off"
[keep]
runs = "7d"
[[expire]]
name = "lineage-keys"
table = "public.lineage_event_idempotency"
column = "expires_at"
batch = { rows = 10000, pause = "100ms", timeout = "30s" }
[once.orders]
ttl = "24h"
"#;
    let config = read(text, &[]).unwrap();
    assert_eq!(config.http.public_url.as_deref(), Some("https://ebb.example.test"));
    assert_eq!(config.log.format, Some(LogFormat::Json));
    let found: Vec<_> = config.policies.iter().map(|p| (p.kind, p.name.as_str(), p.line)).collect();
    assert_eq!(
        found,
        [
            (Kind::Settings, "pacing", Some(12)),
            (Kind::Settings, "keep", Some(14)),
            (Kind::Expire, "lineage-keys", Some(16)),
            (Kind::Once, "orders", Some(21)),
        ]
    );
    let pacing = Pacing { max_replica_lag: None, ..Pacing::default() };
    assert_eq!(config.policies[0].policy, Policy::Pacing(pacing));
    assert!(!config.policies[2].spec.contains_key("name"));
    for stored in &config.policies {
        assert_eq!(Policy::parse(stored.kind, &stored.name, &stored.spec).unwrap(), stored.policy);
    }
}

#[test]
fn an_unknown_key_points_at_its_line() {
    let text = "[[expire]]\nname = \"a\"\ntable = \"t\"\ncolum = \"expires_at\"\n";
    assert_eq!(
        refusal(text, &[]),
        "error: `column` is missing
 --> ebb.toml:1:1
  |
1 | [[expire]]
  | ^^^^^^^^^^ add column = \"expires_at\"

error: unknown key `colum`
 --> ebb.toml:4:1
  |
4 | colum = \"expires_at\"
  | ^^^^^ did you mean `column`?"
    );
    assert!(refusal("[databse]\n", &[]).contains("did you mean `database`?"));
    assert!(refusal("[expire]\nname = 'a'\n", &[]).contains("write [[expire]]"));
    assert!(refusal("once = 1\n", &[]).contains("write [once.NAME]"));
    assert!(refusal("http = 1\n", &[]).contains("write [http]"));
    assert!(refusal("[http]\nlisten = 7117\n", &[]).contains("must be a text in quotes, not the number 7117"));
}

#[test]
fn bad_values_point_at_the_value() {
    for (line, says) in [
        ("every = \"0s\"", "at least 1s"),
        ("every = \"-5m\"", "cannot be negative"),
        ("every = \"99999999999y\"", "1000 years"),
        ("every = \"90\"", "with its unit"),
        ("every = \"5\"", "for example \"5s\" or \"5d\""),
        ("every = 90", "not the number 90"),
        ("at = 02:00", "times are written in quotes"),
        ("batch = { rows = 99999999999999999999 }", "too large"),
    ] {
        let refusal = refusal(&format!("{KEYS}{line}\n"), &[]);
        assert!(refusal.contains(says) && refusal.contains("ebb.toml:5:"), "{refusal}");
    }
}

#[test]
fn two_policies_of_one_name_point_at_both_lines() {
    let refusal = refusal(&format!("{KEYS}\n{KEYS}"), &[]);
    assert!(refusal.contains("two policies are called `old-keys`"));
    assert!(refusal.contains("2 | name = \"old-keys\"\n  |        ---------- first here"), "{refusal}");
    assert!(refusal.contains("7 | name = \"old-keys\"\n  |        ^^^^^^^^^^ and again here"), "{refusal}");
}

#[test]
fn syntax_errors_look_the_same() {
    let refusal = refusal("[http]\nlisten = \n", &[]);
    assert!(refusal.starts_with("error: ") && refusal.contains("ebb.toml:2:"), "{refusal}");
}

#[test]
fn what_makes_no_sense_is_refused_at_its_line() {
    let users = "[[retain]]\nname = \"users\"\ntable = \"users\"\ndeleted_at = \"deleted_at\"\ngrace = \"90d\"\n";
    let said = refusal(&format!("{users}snapshot_for = \"30d\"\n"), &[]);
    assert!(said.contains("and there is none\n --> ebb.toml:6:"), "{said}");
    assert!(refusal("[http]\ntls_cert = \"x\"\n", &[]).contains("`tls_cert` is given and `tls_key` is not"));
    assert!(refusal("[http]\ntrusted_proxies = [\"10.0.0/8\"]\n", &[]).contains("is no address"));
    assert!(refusal("[http]\nrate_limit = \"fast\"\n", &[]).contains("is no rate"));
    assert!(refusal("[audit]\nperiod_keys = 7\n", &[]).contains("must be a text"));
    assert!(refusal("[audit]\nreport_at = \"SOMEDAY\"\n", &[]).contains("is no time of day"));
}

#[test]
fn variables_override_the_file() {
    let env =
        [("EBB_EXPIRE_OLD_KEYS_EVERY", "5m"), ("EBB_EXPIRE_OLD_KEYS_BATCH_ROWS", "100"), ("EBB_NODE_LEASE", "2m")];
    let config = read(&format!("[node]\nlease = \"1h\"\n{KEYS}every = \"1h\"\n"), &env).unwrap();
    assert_eq!(cadence(&config), every(300));
    assert_eq!(config.policies[0].spec["batch"]["rows"], 100);
    assert_eq!(config.node.lease, Duration::from_secs(120));
    let config =
        read("[once.my-orders]\n", &[("EBB_ONCE_MY_ORDERS_TTL", "7d"), ("EBB_PACING_CONNECTIONS", "3")]).unwrap();
    assert_eq!(config.policies[0].spec["ttl"], "7d");
    assert_eq!((config.policies[1].name.as_str(), config.policies[1].line), ("pacing", None));
}

#[test]
fn a_wrong_variable_is_named() {
    let said = refusal(KEYS, &[("EBB_EXPIRE_OLD_KEYS_EVERY", "0s")]);
    assert!(said.contains("at least 1s") && said.contains("--> environment variable EBB_EXPIRE_OLD_KEYS_EVERY"));
    assert!(refusal(KEYS, &[("EBB_EXPIRE_OLDKEYS_EVERY", "1h")]).contains("did you mean `EBB_EXPIRE_OLD_KEYS_EVERY`?"));
    assert!(refusal("", &[("EBB_HTTP_LISTN", "x")]).contains("did you mean `EBB_HTTP_LISTEN`?"));
    let twins = format!("{KEYS}{}", KEYS.replace("old-keys", "old_keys"));
    assert!(read(&twins, &[]).is_ok());
    assert!(refusal(&twins, &[("EBB_EXPIRE_OLD_KEYS_EVERY", "1h")]).contains("could mean"));
}

#[test]
fn the_interval_of_the_environment_is_stored_with_the_policy() {
    let env = [("IDEMPOTENCY_CLEANUP_INTERVAL", "30m0s")];
    let config = read(KEYS, &env).unwrap();
    assert_eq!(cadence(&config), every(1800));
    assert_eq!(config.policies[0].spec["every"], "30m");
    assert_eq!(cadence(&read(&format!("{KEYS}every = \"2h\"\n"), &env).unwrap()), every(7200));
    assert!(matches!(cadence(&read(&format!("{KEYS}at = \"02:00\"\n"), &env).unwrap()), Cadence::At(_)));
    let said = refusal(&format!("{KEYS}{}", KEYS.replace("old", "new")), &[("IDEMPOTENCY_CLEANUP_INTERVAL", "soon")]);
    assert_eq!(said.matches("environment variable IDEMPOTENCY_CLEANUP_INTERVAL").count(), 1, "{said}");
}

#[test]
fn the_database_comes_from_the_file_or_the_environment() {
    let url = |text: &str, env: &[(&str, &str)]| {
        let set: Env = env.iter().copied().collect();
        read(text, env).unwrap().database.url.unwrap().resolve(&set).unwrap()
    };
    let file = "[database]\nurl = \"postgres://file\"\n";
    assert_eq!(url("", &[("DATABASE_URL", "postgres://env")]), "postgres://env");
    assert_eq!(url(file, &[("DATABASE_URL", "postgres://env")]), "postgres://file");
    assert_eq!(url(file, &[("EBB_DATABASE_URL", "postgres://mine")]), "postgres://mine");
    assert!(refusal("", &[("DATABASE_URL", "mysql://u:hunter2@h")]).contains("environment variable DATABASE_URL"));
    assert!(refusal("[database]\ndirect_url = \"postgres://h\"\n", &[]).contains("`url` is not"));
}

#[test]
fn a_secret_is_never_shown() {
    let config = read("[database]\nurl = \"postgres://u:hunter2@h/d\"\n", &[]).unwrap();
    assert!(config.warnings[0].starts_with("ebb.toml:2: `url` contains a password"), "{:?}", config.warnings);
    assert!(!format!("{config:?}").contains("hunter2"));
    let sink =
        |url: &str| read(&format!("[sinks.n]\ntype = \"nats\"\nurl = \"{url}\"\nsubject = \"s\"\n"), &[]).unwrap();
    assert!(sink("nats://u:hunter2@h").warnings[0].starts_with("ebb.toml:3: `url` contains a password"));
    assert!(sink("nats://h").warnings.is_empty());
    assert!(read("[database]\nurl = \"postgres://u@h/d\"\n", &[("PGPASSWORD", "x")]).unwrap().warnings.is_empty());
    assert!(read("", &[("DATABASE_URL", "postgres://u:hunter2@h/d")]).unwrap().warnings.is_empty());
    for text in [
        "[audit]\nsigning_key = \"hunter2\"\n",
        "[database]\nurl = \"mysql://u:hunter2@h/d\"\n",
        "[database]\nurl = \"postgres://u:hunter2@h/d\n",
        "[database]\nurl = { password = \"hunter2\" }\n",
    ] {
        let said = refusal(text, &[]);
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn the_log_level_has_its_order() {
    let level = |env: &[(&str, &str)]| read("[log]\nlevel = \"error\"\n", env).unwrap().log.level;
    let all = [("EBB_LOG_LEVEL", "trace"), ("EBB_LOG", "debug,sqlx=warn"), ("LOG_LEVEL", "WARN")];
    assert_eq!(level(&all), "trace");
    assert_eq!(level(&all[1..]), "debug,sqlx=warn");
    assert_eq!(level(&all[2..]), "warn");
    assert_eq!(level(&[]), "error");
    let config = read("", &[("LOG_LEVEL", "chatty")]).unwrap();
    assert_eq!(config.log.level, "info");
    assert!(config.warnings[0].contains("LOG_LEVEL is ignored"));
}

#[test]
fn a_batch_ends_before_its_lease() {
    let slow = format!("{KEYS}batch = {{ timeout = \"60s\" }}\n");
    assert!(refusal(&slow, &[]).contains("ebb.toml:5:21"), "{}", refusal(&slow, &[]));
    assert!(refusal(&format!("[node]\nlease = \"30s\"\n{KEYS}"), &[]).contains("ebb.toml:2:9"));
    assert!(read(&slow, &[("EBB_NODE_LEASE", "2m")]).is_ok());
}

#[test]
fn a_file_is_found_by_name_and_a_named_one_must_exist() {
    let dir = std::env::temp_dir().join(format!("ebb-config-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("mine.toml");
    std::fs::write(&file, "[audit]\nsigning_key = \"file:audit.key\"\n").unwrap();
    let env: Env = [("EBB_CONFIG", file.to_str().unwrap())].into_iter().collect();
    let config = Config::load(None, &env).unwrap();
    assert_eq!(config.path.as_deref(), Some(file.as_path()));
    assert_eq!(config.audit.signing_key.unwrap().path(), Some(dir.join("audit.key").as_path()));
    let missing = Config::load(Some(&dir.join("none.toml")), &env).unwrap_err();
    assert!(missing.is_config() && missing.to_string().contains("none.toml cannot be read"));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn where_seals_go_is_no_secret() {
    let told = refusal("[audit]\npublish = \"/var/lib/seals\"\n", &[]);
    assert!(told.contains("write \"file:/var/lib/seals\"") && !told.contains("secret"), "{told}");
    assert!(told.contains("publish = \"/var/lib/seals\""), "nothing is masked: {told}");
    let config = Config::from_str("[audit]\npublish = \"file:a.seal\"\n", "ebb.toml", &Env::default()).unwrap();
    assert_eq!(config.audit.publish.as_deref(), Some(std::path::Path::new("a.seal")));
}
