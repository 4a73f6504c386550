//! Where an embedded server's files lie, and who owns them. Invariant: the same directory leads every command to the
//! same files, and only the server's user (and the caller) can read them.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sha2::{Digest, Sha256};

use super::{PORT, USER, lock};
use crate::pg::binaries::{self, ServerUser};
use crate::{Error, Result};

/// What fits in `sockaddr_un` on every system, with room for the lock file's suffix.
const SOCKET_PATH_BYTES: usize = 98;

#[derive(Debug)]
pub(super) struct Place {
    base: PathBuf,
    user: Option<ServerUser>,
}

impl Place {
    /// `dir` itself where the server's user can work there, else the system's state directory, named in `location`.
    pub(super) fn choose(dir: &Path) -> Result<Self> {
        make_dir(dir)?;
        let dir = dir.canonicalize().map_err(|error| failed(dir, error))?;
        // One at a time: a trial in the same directory would disturb another.
        let _turn = lock(&dir.join("place.lock"))?;
        let location = dir.join("location");
        let base = match fs::read_to_string(&location) {
            Ok(named) => PathBuf::from(named.trim_end()),
            Err(_) => dir.clone(),
        };
        make_dir(&base)?;
        let here = Self { user: owner(&base)?, base };
        let Err(reason) = here.try_out() else { return Ok(here) };
        if here.data().exists() || here.base != dir {
            return Err(unreachable(&here.base, &reason));
        }
        // What the trial left; it fails where there is nothing, or more than that.
        let _ = fs::remove_dir(here.base.join("run"));
        let state = state_dir()?;
        make_dir(&state)?;
        let base = state.join(short_hash(&dir));
        tracing::debug!(%reason, base = %base.display(), "Embedded server's data goes to the state directory");
        make_dir(&base)?;
        let there = Self { user: here.user, base };
        there.try_out().map_err(|reason| unreachable(&there.base, &reason))?;
        write_private(&location, &format!("{}\n", there.base.display()), None).map_err(|e| failed(&location, e))?;
        Ok(there)
    }

    pub(super) fn user(&self) -> Option<&ServerUser> {
        self.user.as_ref()
    }

    pub(super) fn base(&self) -> &Path {
        &self.base
    }

    pub(super) fn data(&self) -> PathBuf {
        self.base.join("data")
    }

    /// A word on the server's command line that tells it from every other server.
    pub(super) fn cluster_name(&self) -> String {
        format!("ebb-{}", short_hash(&self.base))
    }

    pub(super) fn turn_lock(&self) -> PathBuf {
        self.base.join("turn.lock")
    }

    pub(super) fn in_use_lock(&self) -> PathBuf {
        self.base.join("in-use.lock")
    }

    pub(super) fn password_file(&self) -> PathBuf {
        self.base.join("password")
    }

    /// Reads the password, which `make_password` wrote.
    pub(super) fn password(&self) -> Result<String> {
        let path = self.password_file();
        let text = fs::read_to_string(&path).map_err(|error| {
            failed(&path, error).with_hint(format!(
                "run ebb as the user who first started it here; where the file is lost, move {} away to begin anew",
                self.base.display()
            ))
        })?;
        let password = text.trim_end().rsplit(':').next().unwrap_or_default();
        Ok(password.to_owned())
    }

    /// Writes a random password, in the form of a libpq password file so that psql can be pointed at it.
    pub(super) fn make_password(&self) -> Result<String> {
        let mut random = [0_u8; 24];
        getrandom::fill(&mut random).map_err(|error| Error::failed(format!("no randomness: {error}")))?;
        let password = hex::encode(random);
        let path = self.password_file();
        write_private(&path, &format!("*:*:*:{USER}:{password}\n"), None).map_err(|e| failed(&path, e))?;
        Ok(password)
    }

    /// A directory for the socket whose path is short and plain enough: inside, or a private one under /tmp.
    pub(super) fn socket_dir(&self) -> Result<PathBuf> {
        let inside = self.base.join("run");
        if is_plain(&inside) && inside.join(format!(".s.PGSQL.{PORT}")).as_os_str().len() <= SOCKET_PATH_BYTES {
            return Ok(inside);
        }
        let short = Path::new("/tmp").join(self.cluster_name());
        match make_private_dir(&short, self.user()) {
            Ok(()) => Ok(short),
            Err(error) => {
                Err(failed(&short, error).with_hint("it must be a directory of the server's user with mode 0700"))
            }
        }
    }

    /// Gives a file or directory to the server's user.
    pub(super) fn give(&self, path: &Path) -> io::Result<()> {
        match self.user() {
            Some(user) => chown(path, Some(user.uid), Some(user.gid)),
            None => Ok(()),
        }
    }

    /// Whether the server's user can work here. Tried, not derived: mounts and access lists have their own ideas.
    fn try_out(&self) -> Result<(), String> {
        let run = self.base.join("run");
        make_private_dir(&run, self.user()).map_err(|error| format!("{}: {error}", run.display()))?;
        let output = binaries::command(Path::new("/bin"), "sh", self.user())
            .args(["-c", "cd \"$1\" && : > probe && rm probe", "sh"])
            .arg(&run)
            .stdout(Stdio::null())
            .output()
            .map_err(|error| format!("/bin/sh: {error}"))?;
        let name = self.user().map_or("its user", |user| &user.name);
        if output.status.success() { Ok(()) } else { Err(format!("{name} cannot write to {}", run.display())) }
    }
}

/// Root lets the owner of existing data go on owning it, whoever that is.
fn owner(base: &Path) -> Result<Option<ServerUser>> {
    let user = binaries::server_user()?;
    Ok(match (user, fs::metadata(base.join("data"))) {
        (Some(_), Ok(data)) if data.uid() != 0 => {
            Some(ServerUser { name: format!("user {}", data.uid()), uid: data.uid(), gid: data.gid() })
        }
        (user, _) => user,
    })
}

fn state_dir() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/ebb"));
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("ebb"))
        .ok_or_else(|| Error::config("neither XDG_STATE_HOME nor HOME is set").with_hint("set [database] url, or HOME"))
}

/// Makes a directory that the server's user can pass through and others cannot list.
fn make_dir(path: &Path) -> Result<()> {
    let fresh = !path.exists();
    fs::create_dir_all(path).map_err(|error| {
        failed(path, error).with_hint("run ebb where it may write, or set [database] url to a server that already runs")
    })?;
    let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    if fresh {
        fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| failed(path, error))?;
        // Whatever lies here is never to be committed.
        let _ = fs::write(path.join(".gitignore"), "*\n");
    }
    Ok(())
}

/// Makes a directory of the server's user alone; refuses one that somebody else prepared.
fn make_private_dir(path: &Path, user: Option<&ServerUser>) -> io::Result<()> {
    let uid = user.map_or_else(|| rustix::process::geteuid().as_raw(), |user| user.uid);
    match fs::create_dir(path) {
        Ok(()) => {
            fs::set_permissions(path, Permissions::from_mode(0o700))?;
            if let Some(user) = user {
                chown(path, Some(user.uid), Some(user.gid))?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let meta = fs::symlink_metadata(path)?;
    if meta.is_dir() && meta.uid() == uid && meta.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("not a private directory of user {uid}")))
    }
}

/// Writes a file of mode 0600, whole or not at all.
pub(super) fn write_private(path: &Path, text: &str, user: Option<&ServerUser>) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".tmp");
    let fresh = PathBuf::from(fresh);
    let _ = fs::remove_file(&fresh);
    let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    if let Some(user) = user {
        chown(&fresh, Some(user.uid), Some(user.gid))?;
    }
    fs::rename(&fresh, path)
}

/// Goes through pg_ctl's shell and the server's own list syntax unquoted.
fn is_plain(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b)))
}

fn short_hash(path: &Path) -> String {
    hex::encode(&Sha256::digest(path.as_os_str().as_encoded_bytes())[..8])
}

pub(super) fn failed(path: &Path, error: io::Error) -> Error {
    Error::failed(format!("{}: {error}", path.display())).with_source(error)
}

fn unreachable(base: &Path, reason: &str) -> Error {
    Error::refused(format!("the embedded server cannot work in {}: {reason}", base.display()))
        .with_hint("run ebb as the directory's owner or in another directory, or set [database] url")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_paths_hold_a_socket() {
        assert!(is_plain(Path::new("/srv/app-1/.ebb/run")));
        for path in ["/home/j d/.ebb", "/a,b", "/it's", "/a$b", "/ü"] {
            assert!(!is_plain(Path::new(path)), "{path}");
        }
    }
}
