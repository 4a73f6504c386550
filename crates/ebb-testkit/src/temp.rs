//! Temporary directories with short paths: a socket's path must stay below 107 bytes.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A directory that goes away with its value.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes an empty one.
    pub fn new() -> Self {
        let path = fresh_path();
        std::fs::create_dir(&path).expect("/tmp is writable");
        // Whatever the umask: the user of an embedded server that root starts must get in.
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a fresh directory is ours");
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A path that nobody else uses. Not `std::env::temp_dir()`, which may be long or closed to the server's user.
pub(crate) fn fresh_path() -> PathBuf {
    let id = uuid::Uuid::new_v4().simple().to_string();
    PathBuf::from(format!("/tmp/ebbt-{}", &id[..12]))
}
