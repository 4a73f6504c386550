//! The peers: scripts in bench/peers, each with its queue's own fastest way of doing things.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::bed::{Bed, Result};

pub(super) struct Peer {
    pub(super) name: &'static str,
    program: Program,
    mode: Option<&'static str>,
    /// How many jobs it drains: enough for a few seconds.
    pub(super) jobs: u64,
}

enum Program {
    Node(&'static str),
    Python(&'static str),
    /// Built by bench/peers/install.
    Built(&'static str),
}

pub(super) const PEERS: [Peer; 6] = [
    Peer {
        name: "graphile-worker 0.17.3, batched",
        program: Program::Node("graphile.cjs"),
        mode: Some("batched"),
        jobs: 50_000,
    },
    Peer {
        name: "graphile-worker 0.17.3",
        program: Program::Node("graphile.cjs"),
        mode: Some("unbatched"),
        jobs: 3_000,
    },
    Peer { name: "pg-boss 10.4.2", program: Program::Node("pgboss.cjs"), mode: None, jobs: 20_000 },
    Peer { name: "pgqueuer 1.6.0", program: Program::Python("pgqueuer_peer.py"), mode: None, jobs: 20_000 },
    Peer { name: "procrastinate 3.10.0", program: Program::Python("procrastinate_peer.py"), mode: None, jobs: 1_000 },
    Peer { name: "awa 0.6.9", program: Program::Built("awa-peer"), mode: None, jobs: 50_000 },
];

impl Peer {
    /// Runs it in a database of its own; `None`, and a word about it, where it does not run here.
    pub(super) async fn measure(&self, bed: &Bed, command: &str, count: u64) -> Result<Option<f64>> {
        let database = ebb_testkit::empty_database_on(&bed.server).await;
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let installed =
            std::env::var_os("CARGO_TARGET_DIR").map_or(here.join("../target"), Into::into).join("bench-peers");
        let script = |interpreter: &str, script: &str| {
            let mut process = Command::new(interpreter);
            process.arg(here.join("peers").join(script));
            process
        };
        let mut process = match self.program {
            Program::Node(name) => script("node", name),
            Program::Python(name) => script("python3", name),
            Program::Built(name) => Command::new(installed.join("awa/release").join(name)),
        };
        process
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
