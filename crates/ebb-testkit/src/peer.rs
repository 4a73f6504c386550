//! A child process that is spoken to in lines: one goes in, one comes back. It can be killed and frozen at any moment, and
//! ends by itself when nobody is left to speak to it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::sync::mpsc;

/// Whatever stands before this in a line is not meant for the one who asked.
const ANSWER: &str = "=> ";

/// A process that answers.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    stdin: ChildStdin,
    answers: mpsc::UnboundedReceiver<String>,
}

impl Peer {
    /// Starts a command.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", command.get_program().display()));
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, answers) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some((_, answer)) = line.split_once(ANSWER) {
                    let _ = sender.send(answer.to_owned());
                }
            }
        });
        Self { child, stdin, answers }
    }

    /// The lines that a process hears, one after the other; when nobody is left to speak to it, it ends, whatever hangs.
    pub fn asked() -> mpsc::UnboundedReceiver<String> {
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
            std::process::exit(0);
        });
        lines
    }

    /// What a process says back.
    pub fn answer(text: &str) {
        println!("{ANSWER}{text}");
    }

    /// Says a line; to a dead process, nothing happens.
    pub fn say(&mut self, line: &str) {
        let _ = writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush());
    }

    /// The next answer; `None` when it ended without one.
    pub async fn hear(&mut self) -> Option<String> {
        match tokio::time::timeout(Duration::from_secs(120), self.answers.recv()).await {
            Ok(answer) => answer,
            Err(_) => panic!("process {} does not answer", self.child.id()),
        }
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGSTOP: frozen, as by a long pause of its machine.
    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT: goes on as if nothing had happened.
    pub fn thaw(&mut self) {
        self.signal(Signal::CONT);
    }

    fn signal(&mut self, signal: Signal) {
        // Not reaped yet, so the number is still this child's.
        if matches!(self.child.try_wait(), Ok(None)) {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a child has a process id");
            rustix::process::kill_process(pid, signal).expect("a running child can be signalled");
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill9();
    }
}
