//! Throwaway servers. Invariant: no server and no directory outlives the test process, however that ends: a watchdog
//! holds the other end of a pipe to us and cleans up when it closes.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::OnceLock;

use ebb::pg::binaries::{self, ServerUser};

use crate::temp::fresh_path;

const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
max_connections = 300
shared_buffers = 128MB
fsync = off
full_page_writes = off
max_wal_size = 2GB
max_prepared_transactions = 20
log_line_prefix = '%m [%p] %q%a '
timezone = 'UTC'
";

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As after a crash: connections are cut, recovery at the next start.
    Immediate,
    /// Transactions are rolled back, then a clean shutdown.
    Fast,
}

/// A PostgreSQL of the test process.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    bin: PathBuf,
    user: Option<ServerUser>,
    port: u16,
    watchdog: Child,
}

/// The one server that the tests of a process share.
pub fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::launch)
}

/// A server of its own, for tests that restart or reconfigure it.
pub fn own_server() -> Server {
    Server::launch()
}

impl Server {
    fn launch() -> Self {
        let server = Self::place();
        server.initdb();
        server.open()
    }

    /// A directory, and a watchdog over it; nothing in it yet.
    fn place() -> Self {
        let bin = binaries::find().expect("the tests need PostgreSQL; scripts/install-postgres installs it");
        let user = binaries::server_user().expect("the tests need a user to run PostgreSQL as");
        let dir = fresh_path();
        let watchdog = spawn_watchdog(&dir, &bin, user.as_ref());
        std::fs::create_dir(&dir).expect("/tmp is writable");
        if let Some(user) = &user {
            std::os::unix::fs::chown(&dir, Some(user.uid), Some(user.gid)).expect("root may give a directory away");
        }
        Self { dir, bin, user, port: 0, watchdog }
    }

    /// Starts it on a free port; another process can take that port before the server does.
    fn open(mut self) -> Self {
        self.set(&format!("unix_socket_directories = '{}'", self.dir.display()));
        for attempt in 1.. {
            self.port = free_port();
            self.set(&format!("port = {}", self.port));
            match self.try_start() {
                Ok(()) => break,
                Err(log) if attempt == 5 => panic!("PostgreSQL does not start:\n{log}"),
                Err(_) => {}
            }
        }
        self
    }

    /// A hot standby that follows this server from now on. Made from a copy of the stopped server's files, so that it
    /// needs no program that some packages leave out; this server's connections end.
    pub fn standby(&self) -> Server {
        let standby = Self::place();
        self.stop();
        let copied = binaries::command(Path::new("/bin"), "cp", self.user.as_ref())
            .arg("-a")
            .args([self.data(), standby.data()])
            .status()
            .expect("a machine that runs tests has /bin/cp");
        self.start();
        assert!(copied.success(), "the data of a stopped server can be copied");
        let signal = standby.data().join("standby.signal");
        std::fs::write(&signal, "").expect("the copy is ours to change");
        standby.set(&format!(
            "primary_conninfo = 'host=127.0.0.1 port={} user=postgres application_name=standby'",
            self.port
        ));
        standby.open()
    }

    /// The server's address on the loopback interface.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The URL of a database over TCP.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The URL of a database over the Unix socket.
    pub fn socket_url(&self, database: &str) -> String {
        let dir = self.dir.display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{dir}:{}/{database}", self.port)
    }

    /// The directory of psql, pgbench and the like.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The directory of the data and of the log.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Stops and starts it; returns when it answers again.
    pub fn restart(&self, mode: Mode) {
        self.stop_with(mode);
        self.start();
    }

    /// Starts it again after `stop`.
    pub fn start(&self) {
        if let Err(log) = self.try_start() {
            panic!("PostgreSQL does not start:\n{log}");
        }
    }

    /// Stops it in order; returns when it is down.
    pub fn stop(&self) {
        self.stop_with(Mode::Fast);
    }

    /// Stops it; returns when it is down.
    pub fn stop_with(&self, mode: Mode) {
        let mode = match mode {
            Mode::Immediate => "immediate",
            Mode::Fast => "fast",
        };
        let output = self.pg_ctl(&["stop", "-w", "-t", "60", "-m", mode]);
        assert!(output.is_ok(), "PostgreSQL does not stop: {output:?}");
    }

    /// Adds lines to postgresql.conf; in force after `reload` or `restart`, as the setting wants.
    pub fn set(&self, lines: &str) {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(self.data().join("postgresql.conf"))
            .expect("initdb wrote postgresql.conf");
        writeln!(file, "{lines}").expect("postgresql.conf is writable");
    }

    /// Makes the server read its configuration again.
    pub fn reload(&self) {
        self.pg_ctl(&["reload"]).expect("a running server reloads");
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn initdb(&self) {
        let output = binaries::command(&self.bin, "initdb", self.user.as_ref())
            .args(["--no-sync", "--no-instructions", "--auth=trust", "--username=postgres", "--encoding=UTF8"])
            .args(["--locale=C", "-D"])
            .arg(self.data())
            .output()
            .expect("initdb was found");
        assert!(output.status.success(), "initdb failed: {}", String::from_utf8_lossy(&output.stderr));
        self.set(SETTINGS);
    }

    fn try_start(&self) -> Result<(), String> {
        let log = self.dir.join("log").display().to_string();
        self.pg_ctl(&["start", "-w", "-t", "60", "-s", "-l", &log]).map_err(|error| format!("{error}\n{}", self.log()))
    }

    fn pg_ctl(&self, args: &[&str]) -> Result<(), String> {
        // No pipe to the caller: the server would inherit it, and whoever reads it would wait for the server's end.
        let status = binaries::command(&self.bin, "pg_ctl", self.user.as_ref())
            .args(args)
            .arg("-D")
            .arg(self.data())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .status()
            .map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("pg_ctl {args:?}: {status}")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

/// A client program that works with the server whose programs are in `bin`: the one beside it, else one of another
/// version where any will do. Some packages have the server alone.
pub fn client_program(bin: &Path, program: &str) -> Option<PathBuf> {
    // initdb and postgres may be links to where all the programs are.
    let beside = bin.join("postgres").canonicalize().ok()?.with_file_name(program);
    if beside.is_file() {
        return Some(beside);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let dirs = std::env::split_paths(&path).chain(installed.map(|version| version.path().join("bin")));
    // pg_dump refuses a server that is newer than itself; psql speaks to all.
    (program == "psql").then(|| dirs.map(|dir| dir.join(program)).find(|file| file.is_file()))?
}

fn spawn_watchdog(dir: &Path, bin: &Path, user: Option<&ServerUser>) -> Child {
    // Again while something is left: an initdb or a start that lost us half way goes on writing for a moment.
    const SCRIPT: &str = r#"trap '' HUP INT TERM
        cat >/dev/null
        for attempt in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
            "$1/pg_ctl" stop -D "$2/data" -m immediate
            rm -rf "$2" && exit
            sleep 0.2
        done"#;
    // The shell runs as the server's user, which owns everything inside; /tmp's sticky bit lets the owner remove it.
    let mut command = binaries::command(Path::new("/bin"), "sh", user);
    command
        .args(["-c", SCRIPT, "ebb-testkit-watchdog"])
        .arg(bin)
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command.spawn().expect("a machine that runs tests has /bin/sh")
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface has a free port");
    listener.local_addr().expect("a bound listener has an address").port()
}
