//! What operators plug in, checked by the programs that read it. A tool that is not here is named, and its part passed by.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a tool; nothing when it is not installed.
fn tool(name: &str, args: &[&str]) -> Option<String> {
    match Command::new(name).args(args).current_dir(root()).output() {
        Ok(output) => {
            let said =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{name} {args:?}\n{said}");
            Some(said)
        }
        Err(error) => {
            eprintln!("{name} is not here ({error}): not checked");
            None
        }
    }
}

#[test]
fn alerts_fire_when_they_should_and_not_before() {
    tool("promtool", &["check", "rules", "deploy/prometheus/ebb.rules.yml"]);
    tool("promtool", &["test", "rules", "deploy/prometheus/ebb.rules.test.yml"]);
}

#[test]
fn every_alert_has_its_page_and_its_test() {
    let rules = std::fs::read_to_string(root().join("deploy/prometheus/ebb.rules.yml")).unwrap();
    let tests = std::fs::read_to_string(root().join("deploy/prometheus/ebb.rules.test.yml")).unwrap();
    let mut alerts = 0;
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        alerts += 1;
        assert!(tests.contains(&format!("alertname: {alert}")), "{alert} has no test");
    }
    let pages: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: ")).collect();
    assert!(alerts >= 13 && pages.len() == alerts, "{pages:?}");
    for page in pages {
        assert!(root().join(page).exists(), "{page} is missing");
    }
}

#[test]
fn units_are_understood_by_systemd() {
    // Only what is wrong with ours: the command does not exist here, and the machine's own units are not our matter.
    let dir = ebb_testkit::TempDir::new();
    let mut names = Vec::new();
    for name in ["ebb.service", "ebb-once.service", "ebb-once.timer"] {
        let unit = std::fs::read_to_string(root().join("deploy/systemd").join(name)).unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, unit.replace("/usr/bin/ebb", "/bin/true")).unwrap();
        names.push(path.display().to_string());
    }
    for name in &names {
        let Ok(output) = Command::new("systemd-analyze").args(["verify", name]).output() else {
            eprintln!("systemd-analyze is not here: not checked");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let ours: Vec<&str> = said.lines().filter(|line| line.contains("/ebb")).collect();
        assert!(ours.is_empty(), "{ours:?}");
    }
}

/// Every metric that the code writes.
fn metrics() -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![root().join("crates/ebb/src"), root().join("crates/ebb-cli/src")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.extend(text.split('"').filter(|word| word.starts_with("ebb_")).map(str::to_owned));
            }
        }
    }
    found
}

/// The names of metrics in an expression.
fn named(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("ebb_")).map(|word| word.strip_suffix("_bucket").unwrap_or(word)).collect()
}

#[test]
fn the_grafana_dashboard_asks_for_metrics_that_there_are() {
    let text = std::fs::read_to_string(root().join("deploy/grafana/ebb.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let (known, mut rules) = (metrics(), String::from("groups:\n- name: panels\n  rules:\n"));
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 8);
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let expression = target["expr"].as_str().unwrap().replace("$__rate_interval", "5m");
        for metric in named(&expression) {
            assert!(known.iter().any(|name| name == metric), "{metric} is written nowhere");
        }
        rules += &format!("  - record: p\n    expr: {expression}\n");
    }
    let dir = ebb_testkit::TempDir::new();
    let file = dir.path().join("panels.yml");
    std::fs::write(&file, rules).unwrap();
    tool("promtool", &["check", "rules", "--lint=none", file.to_str().unwrap()]);
    let alerts = std::fs::read_to_string(root().join("deploy/prometheus/ebb.rules.yml")).unwrap();
    for expression in alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")) {
        for metric in named(expression) {
            assert!(known.iter().any(|name| name == metric), "{metric} is written nowhere");
        }
    }
}

#[test]
fn kubernetes_manifests_are_yaml_with_the_least_privileges() {
    const CHECK: &str = r"
import sys, yaml
kinds = []
for path in sys.argv[1:]:
    for doc in yaml.safe_load_all(open(path)):
        assert doc['apiVersion'] and doc['metadata']['name'], doc
        kinds.append(doc['kind'])
        spec = doc['spec'] if doc['kind'] in ('Deployment', 'CronJob') else None
        if not spec: continue
        pod = (spec if doc['kind'] == 'Deployment' else spec['jobTemplate']['spec'])['template']['spec']
        assert pod['automountServiceAccountToken'] is False and pod['securityContext']['runAsNonRoot'] is True
        volumes = {volume['name'] for volume in pod['volumes']}
        for container in pod['containers']:
            context = container['securityContext']
            assert context['readOnlyRootFilesystem'] and not context['allowPrivilegeEscalation'] and context['capabilities']['drop'] == ['ALL']
            assert {mount['name'] for mount in container['volumeMounts']} == volumes
            if doc['kind'] == 'Deployment':
                assert container['livenessProbe']['httpGet']['path'] == '/healthz' and container['readinessProbe']['httpGet']['path'] == '/readyz'
            else:
                assert '--once' in container['args']
for kind in ('Deployment', 'CronJob', 'NetworkPolicy', 'Service', 'ConfigMap', 'ServiceAccount'):
    assert kind in kinds, kind
";
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let libraries = target.join("test-tools/moto");
    if !libraries.exists() {
        eprintln!("{} is not here: not checked; `make test-tools` brings it", libraries.display());
        return;
    }
    let output = Command::new("python3")
        .env("PYTHONPATH", libraries)
        .args(["-c", CHECK, "deploy/kubernetes/ebb.yaml", "deploy/kubernetes/once.yaml"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let config = std::fs::read_to_string(root().join("deploy/kubernetes/ebb.yaml")).unwrap();
    let config: String = config
        .lines()
        .skip_while(|line| !line.contains("ebb.toml: |"))
        .skip(1)
        .take_while(|line| line.starts_with("    "))
        .map(|line| format!("{}\n", line.trim()))
        .collect();
    let shell = crate::shell::Shell::bare();
    shell.write("ebb.toml", &format!("[database]\nurl = \"postgres://127.0.0.1:1/none\"\n{config}"));
    // It is read, and only then the database is missed.
    let said = shell.fails(1, &["policy", "list"]);
    assert!(!said.contains("ebb.toml"), "{said}");
}
