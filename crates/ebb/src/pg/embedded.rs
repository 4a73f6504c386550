//! The server Ebb starts itself when no database is configured. Invariants: data survives any end of Ebb or of the
//! server; however many commands use it, there is one server, started by the first and stopped by the last; nobody
//! but its owner can connect. Everything here blocks: call it before the runtime is busy, or with `spawn_blocking`.

mod cluster;
mod place;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use self::cluster::Cluster;
use self::place::Place;
use super::Target;
use crate::{Error, Result};

const USER: &str = "ebb";
const DATABASE: &str = "ebb";
const PORT: u16 = 5432;

/// A use of the embedded server: while one exists, in any process, the server runs.
#[derive(Debug)]
pub struct Embedded {
    place: Place,
    cluster: Cluster,
    socket_dir: PathBuf,
    password: String,
    joined: bool,
    /// Shared by everyone who uses the server; `None` once given back.
    in_use: Option<File>,
}

impl Embedded {
    /// Joins the server under `dir` (usually `./.ebb`), or starts it, or first creates it.
    pub fn start(dir: &Path) -> Result<Self> {
        let place = Place::choose(dir)?;
        let _turn = lock(&place.turn_lock())?;
        let in_use = open_lock(&place.in_use_lock())?;
        let alone = try_lock_alone(&in_use, &place)?;
        // Turns an exclusive lock into a shared one too; nobody can come between, they all wait for their turn.
        in_use.lock_shared().map_err(|error| lock_failed(&place.in_use_lock(), error))?;
        let cluster = Cluster::open(&place)?;
        let password = place.password()?;
        let (socket_dir, joined) = cluster.ensure_running(&place, alone)?;
        tracing::debug!(data = %place.data().display(), joined, "Embedded server is up");
        Ok(Self { place, cluster, socket_dir, password, joined, in_use: Some(in_use) })
    }

    /// Where to connect.
    pub fn target(&self) -> Target {
        let options = PgConnectOptions::new_without_pgpass()
            .socket(&self.socket_dir)
            .port(PORT)
            .username(USER)
            .password(&self.password)
            .database(DATABASE)
            .ssl_mode(PgSslMode::Disable);
        Target::new(options, None)
    }

    /// A URL for psql that may be shown: it names the file of the password, not the password.
    pub fn url(&self) -> String {
        let encode = |path: &Path| percent_encode(&path.to_string_lossy());
        let (host, passfile) = (encode(&self.socket_dir), encode(&self.place.password_file()));
        format!("postgres://{USER}@/{DATABASE}?host={host}&passfile={passfile}")
    }

    /// The directory of psql, pg_dump and the like.
    pub fn bin(&self) -> &Path {
        self.cluster.bin()
    }

    /// Where the data lies: below the directory given to `start`, or in the system's state directory.
    pub fn data_dir(&self) -> PathBuf {
        self.place.data()
    }

    /// Whether the server was already running.
    pub fn joined(&self) -> bool {
        self.joined
    }

    /// Gives the server back; the last one to do so stops it.
    pub fn stop(mut self) -> Result<()> {
        self.release()
    }

    fn release(&mut self) -> Result<()> {
        let Some(in_use) = self.in_use.take() else { return Ok(()) };
        let _turn = lock(&self.place.turn_lock())?;
        in_use.unlock().map_err(|error| lock_failed(&self.place.in_use_lock(), error))?;
        if try_lock_alone(&in_use, &self.place)? {
            self.cluster.stop()?;
            if !self.socket_dir.starts_with(self.place.base()) {
                let _ = std::fs::remove_dir(&self.socket_dir);
            }
        }
        Ok(())
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Err(error) = self.release() {
            tracing::warn!(%error, "Embedded server was not stopped");
        }
    }
}

/// Start and stop take turns, so that two first commands make one server and a stop never meets a start.
fn lock(path: &Path) -> Result<File> {
    let file = open_lock(path)?;
    file.lock().map_err(|error| lock_failed(path, error))?;
    Ok(file)
}

fn try_lock_alone(file: &File, place: &Place) -> Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(lock_failed(&place.in_use_lock(), error)),
    }
}

fn open_lock(path: &Path) -> Result<File> {
    File::options().create(true).truncate(false).write(true).open(path).map_err(|error| lock_failed(path, error))
}

fn lock_failed(path: &Path, error: std::io::Error) -> Error {
    Error::failed(format!("{} cannot be locked: {error}", path.display()))
        .with_hint("the embedded server belongs to the user who first started it; run ebb as that user, or elsewhere")
        .with_source(error)
}

fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
