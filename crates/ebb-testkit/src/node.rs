//! The real `ebb` binary as a child process that can be killed, frozen and listened to.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebb::pg::embedded::Embedded;
use rustix::process::{Pid, Signal};

use crate::temp::TempDir;

/// A running `ebb`; killed when dropped.
#[derive(Debug)]
pub struct Node {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<std::thread::JoinHandle<()>>,
    dir: Arc<TempDir>,
}

impl Node {
    /// Runs `bin args…` in a directory of its own with `config` as its ebb.toml and `db_url` as DATABASE_URL (an empty
    /// one: none, so that it starts its embedded server). Tests give `listen = "127.0.0.1:0"` in `[http]`.
    pub fn spawn(bin: &Path, db_url: &str, config: &str, args: &[&str]) -> Self {
        Self::spawn_with(bin, db_url, config, args, &[])
    }

    /// Like `spawn`, with more environment.
    pub fn spawn_with(bin: &Path, db_url: &str, config: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let dir = Arc::new(TempDir::new());
        std::fs::write(dir.path().join("ebb.toml"), config).expect("a fresh directory is writable");
        Self::launch(dir, bin, db_url, args, env)
    }

    /// Another command in the same directory, with the same ebb.toml.
    pub fn beside(&self, bin: &Path, db_url: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::launch(Arc::clone(&self.dir), bin, db_url, args, env)
    }

    fn launch(dir: Arc<TempDir>, bin: &Path, db_url: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(bin);
        command.args(args).current_dir(dir.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let ours = text.starts_with("EBB_") && text != "EBB_PG_BIN";
            if ours || ["DATABASE_URL", "LOG_LEVEL", "IDEMPOTENCY_CLEANUP_INTERVAL"].contains(&&*text) {
                command.env_remove(&name);
            }
        }
        if !db_url.is_empty() {
            command.env("DATABASE_URL", db_url);
        }
        command.envs(env.iter().copied());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => panic!("{} does not start: {error}", bin.display()),
        };
        let lines = Arc::new(Mutex::new(Vec::new()));
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let readers = vec![collect(stdout, &lines), collect(stderr, &lines)];
        Self { child, lines, readers, dir }
    }

    /// The working directory, with ebb.toml in it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM: a graceful stop.
    pub fn term(&mut self) {
        self.signal(Signal::TERM);
    }

    /// SIGSTOP: frozen, as by a long pause of its machine.
    pub fn stop_signal(&mut self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT: goes on as if nothing had happened.
    pub fn continue_signal(&mut self) {
        self.signal(Signal::CONT);
    }

    /// What it has written so far, stdout and stderr as they came.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("nothing panics while holding it").clone()
    }

    /// All of it in one text.
    pub fn output(&self) -> String {
        self.lines().join("\n")
    }

    /// Waits for a line that contains `part` and returns it; panics with the output when there is none in time.
    pub async fn wait_for_line(&mut self, part: &str, timeout: Duration) -> String {
        let start = Instant::now();
        loop {
            let ended = self.ended();
            if let Some(line) = self.lines().into_iter().find(|line| line.contains(part)) {
                return line;
            }
            let late = start.elapsed() > timeout;
            assert!(
                !late && ended.is_none(),
                "no {part:?} after {:?} ({ended:?}):\n{}",
                start.elapsed(),
                self.output()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits for its end. The output is complete afterwards.
    pub async fn wait(&mut self) -> ExitStatus {
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for its end; panics with the output when it is still running after `timeout`.
    pub async fn wait_within(&mut self, timeout: Duration) -> ExitStatus {
        match tokio::time::timeout(timeout, self.wait()).await {
            Ok(status) => status,
            Err(_) => panic!("still running after {timeout:?}:\n{}", self.output()),
        }
    }

    /// Its exit status when it has ended, with its output read to the end.
    fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("a child can be waited for")?;
        // A killed process may leave a child that holds the pipe; only an ordinary end closes it for sure.
        if status.signal().is_none() {
            for reader in self.readers.drain(..) {
                let _ = reader.join();
            }
        }
        Some(status)
    }

    fn signal(&mut self, signal: Signal) {
        // Not reaped yet, so the number is still this child's.
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a child has a process id");
            rustix::process::kill_process(pid, signal).expect("a running child can be signalled");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill9();
        // A killed node leaves its embedded server to the next command; here nobody comes after the last one.
        let ebb = self.dir.path().join(".ebb");
        if Arc::strong_count(&self.dir) == 1
            && ebb.exists()
            && let Ok(server) = Embedded::start(&ebb)
        {
            let _ = server.stop();
        }
    }
}

fn collect(from: impl Read + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) -> std::thread::JoinHandle<()> {
    let lines = Arc::clone(lines);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            lines.lock().expect("nothing panics while holding it").push(line);
        }
    })
}
