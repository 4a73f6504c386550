//! The peers: scripts in bench/peers, each with its queue's own fastest way of doing things.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::bed::{Bed, Result};

pub(super) struct Peer {
    pub(super) name: &'static str,
    program: &'static str,
    script: &'static str,
    mode: Option<&'static str>,
    /// How many jobs it drains: enough for a few seconds.
    pub(super) jobs: u64,
}

pub(super) const PEERS: [Peer; 5] = [
    Peer {
        name: "graphile-worker 0.17.3, batched",
        program: "node",
        script: "graphile.cjs",
        mode: Some("batched"),
        jobs: 50_000,
    },
    Peer {
        name: "graphile-worker 0.17.3",
        program: "node",
        script: "graphile.cjs",
        mode: Some("unbatched"),
        jobs: 3_000,
    },
    Peer { name: "pg-boss 10.4.2", program: "node", script: "pgboss.cjs", mode: None, jobs: 20_000 },
    Peer { name: "pgqueuer 1.6.0", program: "python3", script: "pgqueuer_peer.py", mode: None, jobs: 20_000 },
    Peer { name: "procrastinate 3.10.0", program: "python3", script: "procrastinate_peer.py", mode: None, jobs: 1_000 },
];

impl Peer {
    /// Runs it in a database of its own; `None`, and a word about it, where it does not run here.
    pub(super) async fn measure(&self, bed: &Bed, command: &str, count: u64) -> Result<Option<f64>> {
        let database = ebb_testkit::empty_database_on(&bed.server).await;
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let installed =
            std::env::var_os("CARGO_TARGET_DIR").map_or(here.join("../target"), Into::into).join("bench-peers");
        let mut process = Command::new(self.program);
        process
            .arg(here.join("peers").join(self.script))
            .args([database.url(), command, &count.to_string()])
            .args(self.mode)
            .env("NODE_PATH", installed.join("node_modules"))
            .env("PYTHONPATH", installed.join("python"))
            .stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || process.output()).await?;
        let said = match &output {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            Ok(output) => {
                eprintln!("{} does not run here: {}", self.name, String::from_utf8_lossy(&output.stderr));
                return Ok(None);
            }
            Err(error) => {
                eprintln!("{} does not run here: {error}", self.name);
                return Ok(None);
            }
        };
        let measured: serde_json::Value = serde_json::from_str(said.trim())?;
        Ok(measured.as_object().and_then(|keys| keys.values().next()?.as_f64()))
    }
}
