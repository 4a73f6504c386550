//! Programs that others wrote, as they are: Schemathesis tries the whole document, the official OpenLineage client sends
//! events. `scripts/install-test-tools` brings both; where they cannot be had this says so.

use std::path::{Path, PathBuf};
use std::process::Output;

use ebb::token::Role;
use tokio::process::Command;

use super::site::Site;
use crate::shell::Shell;

/// Runs Python with a directory of libraries; nothing when it is not there.
async fn python(libraries: &str, args: &[&str]) -> Option<Output> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    let place = target.join("test-tools").join(libraries);
    if !place.exists() {
        eprintln!("{} is not here: not tried; `make test-tools` brings it", place.display());
        return None;
    }
    let hooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/http");
    let path = std::env::join_paths([place, hooks]).unwrap();
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1").args(args).current_dir(std::env::temp_dir());
    Some(command.output().await.unwrap())
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    said
}

const SEND: &str = r#"
import sys
from openlineage.client import OpenLineageClient
from openlineage.client.transport.http import HttpTransport, HttpConfig, ApiKeyTokenProvider, HttpCompression
from openlineage.client.event_v2 import RunEvent, RunState, Run, Job
from openlineage.client.uuid import generate_new_uuid
def client(compression=None):
    auth = ApiKeyTokenProvider({'apiKey': sys.argv[2]})
    return OpenLineageClient(transport=HttpTransport(HttpConfig(url=sys.argv[1], auth=auth, compression=compression)))
events = [RunEvent(eventType=state, eventTime=f'2025-11-15T12:00:{n:02d}.000+00:00', run=Run(runId=str(generate_new_uuid())),
                   job=Job(namespace='etl', name='orders'), producer='https://example.test/etl')
          for n in range(5) for state in (RunState.START, RunState.COMPLETE)]
for each in (client(), client(HttpCompression.GZIP), client()):
    for event in events:
        each.emit(event)
"#;

#[tokio::test]
async fn the_official_openlineage_client_is_understood_and_its_repeats_are_kept_once() {
    let site = Site::new().await;
    let token = site.token(Role::App).await;
    let url = format!("http://{}", site.address);
    let Some(output) = python("openlineage", &["-c", SEND, &url, &token]).await else { return };
    succeeded(&output);
    let kept: i64 = site.database.scalar("SELECT count(*) FROM ebb.lineage_event").await;
    assert_eq!(kept, 10);
}

#[tokio::test]
async fn schemathesis_finds_no_fault_in_the_document() {
    let site = Site::with("rate_limit = \"100000/s\"\n").await;
    site.database.execute("CREATE TABLE public.k (at timestamptz)").await;
    Shell::new(&site.database, "[[expire]]\nname = \"keys\"\ntable = \"public.k\"\ncolumn = \"at\"\n")
        .ok(&["apply", "--yes"]);
    let token = site.token(Role::Admin).await;
    let (url, authorization) =
        (format!("http://{}/openapi.json", site.address), format!("Authorization: Bearer {token}"));
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/http/schemathesis.toml");
    let args = [
        "-m",
        "schemathesis.cli",
        "--config-file",
        config,
        "run",
        &url,
        "-H",
        &authorization,
        "--max-time",
        "60",
        "--seed",
        "7",
    ];
    let Some(output) = python("schemathesis", &args).await else { return };
    succeeded(&output);
}
