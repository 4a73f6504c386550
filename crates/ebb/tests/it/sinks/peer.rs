//! Peers of the sinks: programs of other people, and a receiver that misbehaves exactly as told.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A Python program with the libraries that `scripts/install-test-tools` brings; ends with its value.
pub(crate) struct Python {
    process: Child,
    _stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    pub(crate) port: u16,
}

impl Python {
    /// Starts `sinks/SCRIPT`, which prints its port.
    pub(crate) fn start(script: &str, arguments: &[&str]) -> Self {
        let mut process = python(script).args(arguments).stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let mut python = Self { _stdin: process.stdin.take(), stdout, process, port: 0 };
        let port = python.line().trim().parse();
        python.port = port.unwrap_or_else(|_| panic!("{script} did not start; has scripts/install-test-tools run?"));
        python
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn python(script: &str) -> Command {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/sinks").join(script);
    let libraries: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../test-tools/python");
    let mut command = Command::new("python3");
    command.arg(here).env("PYTHONPATH", libraries).env("PYTHONWARNINGS", "ignore");
    command
}

/// What a receiver does with a call.
#[derive(Debug, Clone)]
pub(crate) enum Behaviour {
    /// Sends these bytes and keeps the connection open.
    Answers(Vec<u8>),
    /// Sends these bytes one by one, with a rest after each, for ever again.
    Trickles(&'static str, &'static str),
    /// Says nothing.
    Silent,
    /// Answers 200 after this time.
    Late(Duration),
    /// Resets the connection.
    Resets,
}

impl Behaviour {
    pub(crate) fn status(status: &str) -> Self {
        Self::Answers(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").into_bytes())
    }

    pub(crate) fn with(status: &str, header: &str, body: &[u8]) -> Self {
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{header}\r\n", body.len());
        Self::Answers([head.as_bytes(), body].concat())
    }
}

/// A call as it came over the wire.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Call {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A receiver that misbehaves as told.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    task: tokio::task::JoinHandle<()>,
}

struct State {
    behaviour: Behaviour,
    calls: Vec<Call>,
    connections: usize,
}

impl Receiver {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { behaviour, calls: Vec::new(), connections: 0 }));
        let shared = state.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.lock().unwrap().connections += 1;
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { address, state, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    pub(crate) fn behave(&self, behaviour: Behaviour) {
        self.state.lock().unwrap().behaviour = behaviour;
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state.lock().unwrap().calls.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    while let Some(call) = read_call(&mut stream).await {
        let behaviour = {
            let mut state = state.lock().unwrap();
            state.calls.push(call);
            state.behaviour.clone()
        };
        match behaviour {
            Behaviour::Answers(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Behaviour::Trickles(first, rest) => {
                let _ = stream.write_all(first.as_bytes()).await;
                for byte in rest.bytes().cycle() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    if stream.write_all(&[byte]).await.is_err() {
                        return;
                    }
                }
            }
            Behaviour::Late(after) => {
                tokio::time::sleep(after).await;
                if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.is_err() {
                    return;
                }
            }
            Behaviour::Silent => {
                // Until the caller gives up.
                let _ = stream.read(&mut [0; 1]).await;
                return;
            }
            Behaviour::Resets => {
                stream.set_zero_linger().unwrap();
                return;
            }
        }
    }
}

async fn read_call(stream: &mut TcpStream) -> Option<Call> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let mut call = Call { head: String::from_utf8(head).unwrap(), body: Vec::new() };
    let length = call.header("content-length").map_or(0, |length| length.parse().unwrap());
    call.body.resize(length, 0);
    stream.read_exact(&mut call.body).await.ok()?;
    Some(call)
}
