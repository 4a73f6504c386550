//! A directory in which a person types `ebb …`.

use std::io::Write;
use std::process::{Command, Stdio};

use ebb_testkit::{TempDir, TestDatabase};

pub(crate) struct Shell {
    pub(crate) dir: TempDir,
    url: Option<String>,
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Shell {
    /// With DATABASE_URL set, and `config` as ebb.toml.
    pub(crate) fn new(database: &TestDatabase, config: &str) -> Self {
        Self::at(database.url(), config)
    }

    /// With another DATABASE_URL.
    pub(crate) fn at(url: &str, config: &str) -> Self {
        let shell = Self { dir: TempDir::new(), url: Some(url.to_owned()) };
        shell.write("ebb.toml", config);
        shell
    }

    /// Without a database.
    pub(crate) fn bare() -> Self {
        Self { dir: TempDir::new(), url: None }
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("EBB_") && text != "EBB_PG_BIN" || ["DATABASE_URL", "LOG_LEVEL"].contains(&&*text) {
                command.env_remove(&name);
            }
        }
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        if let Some(url) = &self.url {
            command.env("DATABASE_URL", url);
        }
        command
    }

    /// Types a command and reads what it answers.
    pub(crate) fn ebb(&self, args: &[&str]) -> Answer {
        let output = self.command(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Answer { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Types a command that must succeed; returns what it printed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let answer = self.ebb(args);
        assert_eq!(answer.code, 0, "ebb {args:?}\n{}{}", answer.out, answer.err);
        answer.out
    }

    /// Types a command that must fail with this code; returns what it said.
    pub(crate) fn fails(&self, code: i32, args: &[&str]) -> String {
        let answer = self.ebb(args);
        assert_eq!(answer.code, code, "ebb {args:?}\n{}{}", answer.out, answer.err);
        assert!(!answer.err.contains("panicked"), "{}", answer.err);
        format!("{}{}", answer.out, answer.err)
    }

    /// The JSON that a command prints.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let out = self.ok(args);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error} in {out}"))
    }

    /// Types a command whose reader goes away after the first line.
    pub(crate) fn piped_into_head(&self, args: &[&str]) -> Answer {
        let mut child = self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let _ = std::io::stdout().flush();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        Answer { code: output.status.code().unwrap_or(-1), out: String::new(), err }
    }
}
