//! What a node costs before it does anything: time to its first batch, memory at rest, the size of the binary.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bed::{Bed, Goal, Result, median};

const POLICY: &str =
    "[[expire]]\nname = \"start\"\ntable = \"public.k\"\ncolumn = \"expires_at\"\nbrake = { share = 1.0 }";

pub(crate) async fn run() -> Result<Vec<Goal>> {
    let binary = binary()?;
    let bed = Bed::new().await?;
    let dir = ebb_testkit::TempDir::new();
    let config = dir.path().join("ebb.toml");
    std::fs::write(&config, format!("[http]\nlisten = \"127.0.0.1:0\"\n{POLICY}\n"))?;
    let url = bed.server.url(bed.database.name());

    let mut first_batch = Vec::new();
    let mut resident = 0.0;
    for round in 0..5 {
        bed.fill("k", 50_000, 50_000, false).await?;
        if round == 0 {
            bed.apply(POLICY).await?;
        }
        bed.database.execute("UPDATE ebb.unit SET next_at = '-infinity'").await;
        bed.database.execute("TRUNCATE ebb.run").await;
        let began = Instant::now();
        let began_at: f64 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs_f64();
        let mut node = Command::new(&binary)
            .args(["run", "--config"])
            .arg(&config)
            .env("DATABASE_URL", &url)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let at = loop {
            let at: Option<f64> = bed
                .database
                .scalar("SELECT min(extract(epoch FROM at))::float8 FROM ebb.audit WHERE action = 'expire' AND run IN (SELECT id FROM ebb.run)")
                .await;
            match at {
                Some(at) => break at,
                None if began.elapsed() > Duration::from_secs(20) => return Err("no batch within 20 s".into()),
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        first_batch.push((at - began_at) * 1000.0);
        if round == 4 {
            tokio::time::sleep(Duration::from_secs(5)).await;
            resident = resident_mb(node.id())?;
        }
        node.kill()?;
        node.wait()?;
        bed.database.execute("UPDATE ebb.lease SET holder = NULL, expires_at = '-infinity'").await;
    }
    let size = std::fs::metadata(&binary)?.len() as f64 / 1e6;
    println!("footprint: first batches after {first_batch:.0?} ms");
    Ok(vec![
        Goal::at_most("start to first batch on a migrated database, ms", median(first_batch), 200.0),
        Goal::at_most("resident memory of an idle node, MB", resident, 40.0),
        Goal::at_most("release binary, MB", size, 30.0),
    ])
}

fn binary() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let binary = here.with_file_name("ebb");
    if binary.exists() { Ok(binary) } else { Err("build the node first: cargo build --release -p ebb-cli".into()) }
}

pub(crate) fn resident_mb(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kb: f64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kb / 1000.0)
}
