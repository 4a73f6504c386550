//! Creating, starting and stopping the data directory's server. Invariants: `data` exists only complete (it is made
//! under another name and renamed); a server of another major version never touches it; the server's own interlock
//! against two servers on one directory is never taken away, also when postmaster.pid is stale.

use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::place::{Place, failed, write_private};
use super::{DATABASE, PORT, USER};
use crate::pg::binaries::{self, Binaries, ServerUser};
use crate::{Error, Result};

/// Relative to the base directory.
const LOG: &str = "run/server.log";
/// Recovery after a crash can take its time.
const START_SECONDS: &str = "600";
/// How long processes of a server that was killed may linger before they notice.
const LINGER: Duration = Duration::from_secs(15);

const SETTINGS: &str = "
# Written by ebb. Small, durable and private; change what you like below, listen_addresses and the socket excepted.
max_connections = 100
shared_buffers = 64MB
max_wal_size = 512MB
password_encryption = 'scram-sha-256'
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %q%a '
";

#[derive(Debug)]
pub(super) struct Cluster {
    base: PathBuf,
    data: PathBuf,
    name: String,
    bin: PathBuf,
    user: Option<ServerUser>,
}

impl Cluster {
    /// Opens the data directory with programs of its version, creating it when there is none.
    pub(super) fn open(place: &Place) -> Result<Self> {
        let data = place.data();
        let found = binaries::find_all()?;
        let bin = match fs::read_to_string(data.join("PG_VERSION")) {
            Ok(version) => matching(&found, version.trim(), &data)?,
            Err(_) if data.exists() => {
                return Err(Error::refused(format!("{} is not a PostgreSQL data directory", data.display()))
                    .with_hint("Ebb did not make it; move it away and start again"));
            }
            Err(_) => {
                let bin = binaries::find()?;
                create(place, &bin)?;
                bin
            }
        };
        let base = place.base().to_owned();
        Ok(Self { base, data, name: place.cluster_name(), bin, user: place.user().cloned() })
    }

    pub(super) fn bin(&self) -> &Path {
        &self.bin
    }

    /// Returns the directory of the server's socket, and whether it was running already.
    pub(super) fn ensure_running(&self, place: &Place, alone: bool) -> Result<(PathBuf, bool)> {
        if let Some(postmaster) = self.postmaster() {
            if postmaster.answers() {
                self.wait_until_ready()?;
                return Ok((postmaster.socket_dir, true));
            }
            match postmaster.is_named(&self.name) {
                // It runs but its socket is gone (somebody cleaned up /tmp), or it is only just coming up or going down.
                Some(true) => self.stop()?,
                Some(false) if alone => self.disown_pid()?,
                _ => {}
            }
        }
        let socket_dir = place.socket_dir()?;
        if alone {
            // Left by a server that was killed. The directory is private, so nobody else's can be meant.
            let _ = fs::remove_file(socket_dir.join(format!(".s.PGSQL.{PORT}.lock")));
        }
        self.start(&socket_dir)?;
        Ok((socket_dir, false))
    }

    /// After a crash of the machine or of a container the process id in postmaster.pid may be somebody else's (or a
    /// dead process that nobody reaped), and the server would refuse to start. Puts an id there that no process has:
    /// the rest of the file stays, because by it the server finds out whether processes of the old one still live.
    fn disown_pid(&self) -> Result<()> {
        let path = self.data.join("postmaster.pid");
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
        let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
        write_private(&path, &format!("{}\n{rest}", i32::MAX), self.user.as_ref()).map_err(|error| failed(&path, error))
    }

    pub(super) fn stop(&self) -> Result<()> {
        if self.postmaster().is_none() {
            return Ok(());
        }
        let output = self.pg_ctl(&["stop", "-w", "-t", "60", "-m", "fast"]).output();
        match output {
            Ok(output) if output.status.success() || self.postmaster().is_none() => Ok(()),
            Ok(output) => Err(self.explain(String::from_utf8_lossy(&output.stderr).trim(), "does not stop")),
            Err(error) => Err(failed(&self.bin.join("pg_ctl"), error)),
        }
    }

    fn start(&self, socket_dir: &Path) -> Result<()> {
        let begun = Instant::now();
        let log = self.log();
        rotate(&log);
        loop {
            let logged = fs::metadata(&log).map_or(0, |meta| meta.len());
            // Only the private socket, whatever postgresql.conf says. pg_ctl puts options and the log's name into a
            // shell command: both are plain, the latter because it is relative.
            let options = format!("-p {PORT} -k {} -h '' -c cluster_name={}", socket_dir.display(), self.name);
            let status = self
                .pg_ctl(&["start", "-w", "-s", "-t", START_SECONDS, "-o", &options, "-l", LOG])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .map_err(|error| failed(&self.bin.join("pg_ctl"), error))?;
            if status.success() {
                return Ok(());
            }
            let said = log_since(&log, logged);
            // Of a server that was killed, the last processes may still hold the shared memory for a moment.
            if !said.contains("is still in use") || begun.elapsed() > LINGER {
                return Err(self.explain(last_words(&said), "does not start"));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn wait_until_ready(&self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(600) {
            match self.postmaster() {
                Some(postmaster) if postmaster.ready => return Ok(()),
                Some(_) => std::thread::sleep(Duration::from_millis(50)),
                None => break,
            }
        }
        Err(self.explain(last_words(&log_since(&self.log(), 0)), "was joined and does not get ready"))
    }

    fn pg_ctl(&self, args: &[&str]) -> Command {
        let mut command = binaries::command(&self.bin, "pg_ctl", self.user.as_ref());
        // A group of its own: Ctrl-C at the terminal is for Ebb, which then stops the server in order.
        // The directory goes by environment, not by -D, which would pass through pg_ctl's shell too.
        command.current_dir(&self.base).env("PGDATA", &self.data).args(args).process_group(0);
        command
    }

    fn log(&self) -> PathBuf {
        self.base.join(LOG)
    }

    fn postmaster(&self) -> Option<Postmaster> {
        Postmaster::parse(&fs::read_to_string(self.data.join("postmaster.pid")).ok()?)
    }

    fn explain(&self, detail: &str, what: &str) -> Error {
        Error::failed(format!("the embedded PostgreSQL {what}: {detail}")).with_hint(format!(
            "its log is {}; or set [database] url to a server that already runs",
            self.log().display()
        ))
    }
}

/// What a running server writes into postmaster.pid.
#[derive(Debug, PartialEq, Eq)]
struct Postmaster {
    pid: u32,
    socket_dir: PathBuf,
    ready: bool,
}

impl Postmaster {
    fn parse(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        let pid = lines.first()?.trim().parse().ok()?;
        let socket_dir = PathBuf::from(lines.get(4).copied().unwrap_or_default().trim());
        Some(Self { pid, socket_dir, ready: lines.get(7).is_some_and(|status| status.trim() == "ready") })
    }

    /// Also true across containers that share the directory, where the process itself cannot be seen.
    fn answers(&self) -> bool {
        UnixStream::connect(self.socket_dir.join(format!(".s.PGSQL.{PORT}"))).is_ok()
    }

    /// Whether the process is the server of this name; `None` where the system does not tell. Asks for the command line,
    /// which anyone may read: in a container even root may not ask for another user's working directory.
    fn is_named(&self, name: &str) -> Option<bool> {
        if !Path::new("/proc/self/cmdline").exists() {
            return None;
        }
        match fs::read(format!("/proc/{}/cmdline", self.pid)) {
            Ok(line) => is_server_named(&line, name),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
            Err(_) => None,
        }
    }
}

fn is_server_named(command_line: &[u8], name: &str) -> Option<bool> {
    let mut args = command_line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let program = args.next().unwrap_or_default();
    if !matches!(program.rsplit('/').next(), Some("postgres" | "postmaster")) {
        return Some(false);
    }
    if args.any(|arg| arg.strip_prefix("cluster_name=") == Some(name)) { Some(true) } else { None }
}

/// The programs for data of a version, or why there are none and what to do.
fn matching(found: &[Binaries], version: &str, data: &Path) -> Result<PathBuf> {
    if let Some(same) = found.iter().find(|found| found.major.to_string() == version) {
        return Ok(same.dir.clone());
    }
    let Some(newest) = found.first() else { return binaries::find() };
    let base = data.parent().unwrap_or(data).display();
    Err(Error::refused(format!(
        "{} was made by PostgreSQL {version}, but the programs in {} are PostgreSQL {}",
        data.display(),
        newest.dir.display(),
        newest.major
    ))
    .with_hint(format!(
        "install PostgreSQL {version} beside it, or set EBB_PG_BIN to the directory of its programs; to move on to \
         {}, dump with the old programs (EBB_PG_BIN=… and pg_dump), move {base} away, and load the dump into the new one",
        newest.major
    )))
}

/// Makes the data directory under another name and renames it when complete: a half-made one is never taken for data.
fn create(place: &Place, bin: &Path) -> Result<()> {
    remove_unfinished(place.base());
    let data = place.data();
    let fresh = place.base().join(format!("data.new-{}", uuid::Uuid::new_v4().simple()));
    let password = place.make_password()?;
    let password_file = place.base().join("data.new-password");
    write_private(&password_file, &password, place.user()).map_err(|error| failed(&password_file, error))?;
    fs::create_dir(&fresh).and_then(|()| place.give(&fresh)).map_err(|error| failed(&fresh, error))?;

    let mut initdb = binaries::command(bin, "initdb", place.user());
    initdb
        .args(["--no-instructions", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256", "--data-checksums"])
        .arg(format!("--username={USER}"))
        .arg(format!("--pwfile={}", password_file.display()))
        .arg("-D")
        .arg(&fresh);
    run(&mut initdb, "")?;
    let conf = fresh.join("postgresql.conf");
    let append = |path: &Path| fs::File::options().append(true).open(path)?.write_all(SETTINGS.as_bytes());
    append(&conf).map_err(|error| failed(&conf, error))?;
    // Without a server, so that the directory is complete before anyone can see it.
    let mut single = binaries::command(bin, "postgres", place.user());
    single.args(["--single", "-D"]).arg(&fresh).arg("postgres");
    // The user and Ebb's schema share a name: "$user" in the search_path would put a person's tables in there.
    run(&mut single, &format!("CREATE DATABASE {DATABASE}\nALTER ROLE {USER} SET search_path = public\n"))?;

    fs::rename(&fresh, &data).map_err(|error| failed(&data, error))?;
    fs::File::open(place.base()).and_then(|dir| dir.sync_all()).map_err(|error| failed(place.base(), error))?;
    remove_unfinished(place.base());
    Ok(())
}

fn remove_unfinished(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("data.new") {
            let path = entry.path();
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

fn run(command: &mut Command, input: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = (|| -> io::Result<_> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        child.wait_with_output()
    })()
    .map_err(|error| failed(Path::new(&program), error))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() && !said.contains("ERROR:") {
        return Ok(());
    }
    Err(Error::failed(format!("{program} failed: {}", said.trim())))
}

/// Keeps the log from growing for ever: one old file.
fn rotate(log: &Path) {
    if fs::metadata(log).is_ok_and(|meta| meta.len() > 8 << 20) {
        let _ = fs::rename(log, log.with_extension("log.1"));
    }
}

fn log_since(log: &Path, offset: u64) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    String::from_utf8_lossy(&bytes[from..]).into_owned()
}

/// The line that says why, or the last one.
fn last_words(log: &str) -> &str {
    let fatal = log.lines().rev().find(|line| line.contains("FATAL:") || line.contains("PANIC:"));
    fatal.or_else(|| log.lines().last()).unwrap_or("no reason in its log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postmaster_pid_is_read_line_by_line() {
        let text = "4711\n/d\n1700000000\n5432\n/d/run\n\n  5432001  3\nready   \n";
        let expected = Postmaster { pid: 4711, socket_dir: "/d/run".into(), ready: true };
        assert_eq!(Postmaster::parse(text), Some(expected));
        assert!(!Postmaster::parse("4711\n/d\n1\n5432\n/d/run\n\n1 2\nstarting\n").unwrap().ready);
        assert_eq!(Postmaster::parse(""), None);
    }

    #[test]
    fn a_process_id_that_went_to_somebody_else_is_told_from_the_server() {
        let named = |line: &str| is_server_named(line.as_bytes(), "ebb-1");
        assert_eq!(named("/usr/bin/postgres\0-F\0-c\0cluster_name=ebb-1\0"), Some(true));
        assert_eq!(named("/usr/bin/vim\0cluster_name=ebb-1\0"), Some(false));
        assert_eq!(named("postgres: ebb-1: checkpointer \0"), Some(false));
        assert_eq!(named(""), Some(false), "a dead process that nobody reaped");
        assert_eq!(named("postgres\0-c\0cluster_name=ebb-2\0"), None);
    }
}
