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
    assert!(alerts >= 7 && pages.len() == alerts, "{pages:?}");
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
