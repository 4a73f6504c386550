//! Which PostgreSQL programs Ebb may start, and as whom. Invariants: what is found is complete (initdb, pg_ctl,
//! postgres) and of a version Ebb works with; the server never runs as root, which it refuses itself.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Error, Result};

/// The oldest major version that Ebb works with.
pub const OLDEST_MAJOR: u32 = 14;

const PROGRAMS: [&str; 3] = ["initdb", "pg_ctl", "postgres"];

/// Where distributions put them: the part before and after the version.
const PLACES: [(&str, &str, &str); 6] = [
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
    ("/usr/libexec", "postgresql", ""),
    ("/usr/lib", "postgresql", "bin"),
];

/// A directory with a complete set of server programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    /// The directory.
    pub dir: PathBuf,
    /// The major version of the server in it.
    pub major: u32,
}

/// The directory of the programs to start: `EBB_PG_BIN`, else PATH, else the newest in the usual places.
pub fn find() -> Result<PathBuf> {
    find_all()?.into_iter().next().map(|found| found.dir).ok_or_else(missing)
}

/// Every usable directory, the preferred one first. With `EBB_PG_BIN` set, that one and no other.
pub fn find_all() -> Result<Vec<Binaries>> {
    if let Some(dir) = std::env::var_os("EBB_PG_BIN").filter(|dir| !dir.is_empty()) {
        return Ok(vec![named(PathBuf::from(dir))?]);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usable = |dir: PathBuf| look(dir).ok().filter(|found| found.major >= OLDEST_MAJOR);
    let mut found: Vec<Binaries> = std::env::split_paths(&path).filter_map(usable).collect();
    let mut usual: Vec<Binaries> = usual_places().into_iter().filter_map(usable).collect();
    usual.sort_by_key(|place| std::cmp::Reverse(place.major));
    found.extend(usual);
    let mut seen = BTreeSet::new();
    found.retain(|place| seen.insert(place.dir.canonicalize().unwrap_or_else(|_| place.dir.clone())));
    Ok(found)
}

/// The user that the server runs as when Ebb itself is root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUser {
    /// The login name.
    pub name: String,
    /// The user's id.
    pub uid: u32,
    /// The id of the user's group.
    pub gid: u32,
}

/// Whom the server runs as: `None` is the caller. For root it is `postgres`, else `nobody`, else the first user there is.
pub fn server_user() -> Result<Option<ServerUser>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    choose_user(&passwd).map(Some).ok_or_else(|| {
        Error::refused("PostgreSQL refuses to run as root, and /etc/passwd names no other user").with_hint(
            "create one, for example: useradd --system --no-create-home postgres; or run ebb as a user of its own",
        )
    })
}

/// A command for one of the programs, run as `user`, with nothing of the caller's PostgreSQL environment in it.
pub fn command(dir: &Path, program: &str, user: Option<&ServerUser>) -> Command {
    let mut command = Command::new(dir.join(program));
    // The working directory may be closed to the user; the caller's terminal and language are not the server's.
    command.current_dir("/").stdin(Stdio::null()).env("LC_ALL", "C").env_remove("LANGUAGE");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid).env("USER", &user.name).env("HOME", "/");
    }
    command
}

fn named(dir: PathBuf) -> Result<Binaries> {
    let found = look(dir).map_err(|reason| {
        Error::config(format!("EBB_PG_BIN: {reason}"))
            .with_hint("it names the directory of initdb, pg_ctl and postgres, for example /usr/lib/postgresql/17/bin")
    })?;
    if found.major < OLDEST_MAJOR {
        return Err(Error::config(format!("EBB_PG_BIN has PostgreSQL {}: Ebb needs 14 or newer", found.major))
            .with_hint("point it at a newer version, or unset it to let Ebb look by itself"));
    }
    Ok(found)
}

fn look(dir: PathBuf) -> Result<Binaries, String> {
    for program in PROGRAMS {
        let path = dir.join(program);
        let runs = path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        if !runs {
            return Err(format!("there is no program {}", path.display()));
        }
    }
    let postgres = dir.join("postgres");
    let output = Command::new(&postgres)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{} does not start: {error}", postgres.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let major = major_of(&text).ok_or_else(|| format!("{} does not say its version", postgres.display()))?;
    Ok(Binaries { dir: behind_links(dir), major })
}

/// Links to the three programs on PATH lead to the directory that also has psql, pg_dump and the server's own files.
fn behind_links(dir: PathBuf) -> PathBuf {
    let real = dir.join("postgres").canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    match real {
        Some(real) if PROGRAMS.iter().all(|program| real.join(program).is_file()) => real,
        _ => dir,
    }
}

/// `postgres (PostgreSQL) 15.14 (Debian …)` → 15; `18beta1` → 18.
fn major_of(version: &str) -> Option<u32> {
    let (_, after) = version.split_once("(PostgreSQL) ")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn usual_places() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for (parent, prefix, bin) in PLACES {
        let Ok(entries) = std::fs::read_dir(parent) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let version = name.to_str().and_then(|name| name.strip_prefix(prefix)).unwrap_or_default();
            if version.starts_with(|c: char| c.is_ascii_digit()) {
                dirs.push(entry.path().join(bin));
            }
        }
    }
    dirs
}

fn missing() -> Error {
    Error::config("no PostgreSQL server programs (initdb, pg_ctl, postgres) of version 14 or newer were found")
        .with_hint(
            "install them (Debian, Ubuntu: apt-get install postgresql; Fedora, RHEL: dnf install postgresql-server; \
         Alpine: apk add postgresql; macOS: brew install postgresql@17), or name their directory in EBB_PG_BIN, \
         or set [database] url to use a server that already runs",
        )
}

fn choose_user(passwd: &str) -> Option<ServerUser> {
    let users: Vec<ServerUser> = passwd.lines().filter_map(parse_user).filter(|user| user.uid != 0).collect();
    let by_name = |name: &str| users.iter().find(|user| user.name == name);
    by_name("postgres").or_else(|| by_name("nobody")).or_else(|| users.first()).cloned()
}

fn parse_user(line: &str) -> Option<ServerUser> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty() && !name.starts_with('#'))?;
    // macOS writes nobody's id as -2.
    let id = |text: &str| text.parse::<u32>().ok().or_else(|| text.parse::<i32>().ok().map(i32::cast_unsigned));
    let uid = id(fields.nth(1)?)?;
    let gid = id(fields.next()?)?;
    Some(ServerUser { name: name.to_owned(), uid, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_any_release() {
        assert_eq!(major_of("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"), Some(15));
        assert_eq!(major_of("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(major_of("mysqld 8\n"), None);
    }

    #[test]
    fn root_gives_the_server_to_postgres_then_nobody_then_anyone() {
        let name = |passwd: &str| choose_user(passwd).map(|user| (user.name, user.uid, user.gid));
        let root = "root:x:0:0::/root:/bin/sh\n";
        let nobody = format!("{root}daemon:*:1:1::/:/bin/false\nnobody:*:-2:-2::/:/bin/false\n");
        assert_eq!(name(&format!("{nobody}postgres:x:26:27::/:")), Some(("postgres".into(), 26, 27)));
        assert_eq!(name(&nobody), Some(("nobody".into(), 4_294_967_294, 4_294_967_294)));
        assert_eq!(name(&format!("{root}daemon:*:1:2::/:/bin/false\n")), Some(("daemon".into(), 1, 2)));
        assert_eq!(name(root), None);
    }
}
