//! Keys of a period: files in a directory outside the database, each named after the day on which it is destroyed. What
//! was closed with one is gone everywhere on that day, backups of the database included. Invariants: a key is on disk
//! before anything is closed with it; whoever comes second uses the key of whoever came first; a key whose day has come
//! is overwritten and removed under every name it has, and leaves a note of which key was destroyed here, written before it goes.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};

use super::Moment;
use super::key::{cannot, parse_secret, random_bytes, read_or_create, read_secret, sync_directory};
use crate::{Error, Result};

const HEADER: &str =
    "# Ebb period key (XChaCha20-Poly1305, hex). Secret: keep it out of the database and of every backup.";
const NONCE: usize = 24;
/// Stands between the day and the id of a key in the name of the note that it was destroyed.
const DESTROYED: &str = ".destroyed.";

/// A directory of period keys (`period_keys` of `[audit]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodKeys(PathBuf);

/// The day, in UTC, whose beginning ends a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(Date);

/// The key of a period.
pub struct PeriodKey {
    period: Period,
    key: ClosingKey,
    key_id: String,
}

impl PeriodKeys {
    /// The keys in a directory.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Where they are.
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// Makes the directory where there is none, for its owner alone.
    pub fn create_directory(&self) -> Result<()> {
        match fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0) {
            Ok(()) => self.usable(),
            Err(error) => Err(cannot("create", &self.0, error)),
        }
    }

    /// Reads the key of a period; where there is none, makes one.
    pub fn create_if_missing(&self, period: Period) -> Result<PeriodKey> {
        self.usable()?;
        Ok(PeriodKey::new(period, read_or_create(&self.path(period), HEADER)?))
    }

    /// Reads the key of a period; an error that `is_refused` when it is not there.
    pub fn load(&self, period: Period) -> Result<PeriodKey> {
        self.usable()?;
        let path = self.path(period);
        if !path.exists() {
            return Err(Error::refused(format!("the period key {} is not there", path.display())).with_hint(
                "every node needs the same directory of period keys; a key that is lost opens nothing any more",
            ));
        }
        Ok(PeriodKey::new(period, read_secret(&path)?))
    }

    /// The periods that have a key here.
    pub fn periods(&self) -> Result<Vec<Period>> {
        let mut periods: Vec<Period> = self.files()?.into_iter().map(|(period, _)| period).collect();
        periods.sort_unstable();
        periods.dedup();
        Ok(periods)
    }

    /// Destroys the keys of all periods that have ended by then. Returns every key (period, id) that was ever destroyed in
    /// this directory, by whatever process: an empty file keeps that in mind, which is there before the key is touched.
    pub fn destroy_until(&self, now: Moment) -> Result<Vec<(Period, String)>> {
        let files = self.files()?;
        let ended: Vec<&(Period, PathBuf)> = files.iter().filter(|(period, _)| period.end() <= now).collect();
        // All of them first: a key that has two names is gone under both as soon as one is overwritten.
        for (period, path) in &ended {
            let Ok(bytes) = parse_secret(path) else { continue };
            let note = self.0.join(format!("{period}{DESTROYED}{}", PeriodKey::new(*period, bytes).key_id));
            fs::File::create(&note).map_err(|error| cannot("write", &note, error))?;
        }
        sync_directory(&self.0.join("any"));
        for (_, path) in &ended {
            match destroy(path) {
                // Another node was quicker.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                destroyed => destroyed.map_err(|error| cannot("destroy", path, error))?,
            }
        }
        sync_directory(&self.0.join("any"));
        let mut destroyed: Vec<(Period, String)> = self.named(DESTROYED)?.map(|(period, id, _)| (period, id)).collect();
        destroyed.sort_unstable();
        Ok(destroyed)
    }

    /// Every file that holds a key, also one that a process left behind when it died while making it.
    fn files(&self) -> Result<Vec<(Period, PathBuf)>> {
        Ok(self.named(".key")?.map(|(period, _, path)| (period, path)).collect())
    }

    /// The files whose name is a day, this, and whatever follows. A directory that is not there is an error: keys may be
    /// where it should be mounted.
    fn named(&self, middle: &str) -> Result<impl Iterator<Item = (Period, String, PathBuf)>> {
        let entries = fs::read_dir(&self.0).map_err(|error| match error.kind() {
            ErrorKind::NotFound => self.not_there(),
            _ => cannot("read", &self.0, error),
        })?;
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| cannot("read", &self.0, error))?;
            let name = entry.file_name();
            let parts = name.to_str().and_then(|name| name.split_once(middle));
            let parts = parts.and_then(|(day, rest)| Some((Period(day.parse().ok()?), rest.to_owned())));
            files.extend(parts.map(|(period, rest)| (period, rest, entry.path())));
        }
        Ok(files.into_iter())
    }

    fn path(&self, period: Period) -> PathBuf {
        self.0.join(format!("{period}.key"))
    }

    fn about(&self, what: &str) -> String {
        format!("the directory of period keys, {}, {what}", self.0.display())
    }

    fn not_there(&self) -> Error {
        Error::refused(self.about("is not there")).with_hint("`ebb apply` creates it; a volume has to be mounted first")
    }

    fn usable(&self) -> Result<()> {
        let about = |what: &str| self.about(what);
        let metadata = match fs::metadata(&self.0) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(self.not_there()),
            Err(error) => return Err(cannot("read", &self.0, error)),
        };
        let mode = metadata.permissions().mode() & 0o777;
        match (metadata.is_dir(), mode & 0o022) {
            (false, _) => Err(Error::refused(about("is no directory"))),
            (true, 0) => Ok(()),
            (true, _) => Err(Error::refused(about(&format!("can be changed by others (mode {mode:03o})")))
                .with_hint(format!("chmod 700 {}", self.0.display()))),
        }
    }
}

/// A file system may have copies of what it overwrites; what it can be told to forget, it is told.
fn destroy(path: &Path) -> std::io::Result<()> {
    let length = fs::metadata(path)?.len();
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(&vec![0; length as usize])?;
    file.sync_all()?;
    fs::remove_file(path)
}

impl Period {
    /// The period that ends at a moment, which is a midnight in UTC.
    pub fn ending(moment: Moment) -> Result<Self> {
        let at = moment.timestamp().ok_or_else(|| Error::failed(format!("{moment} is no day")))?;
        Ok(Self(at.to_zoned(TimeZone::UTC).date()))
    }

    /// When its key is destroyed.
    pub fn end(self) -> Moment {
        let midnight = self.0.to_zoned(TimeZone::UTC);
        midnight.map_or(Moment::INFINITY, |midnight| midnight.timestamp().into())
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PeriodKey {
    fn new(period: Period, bytes: [u8; 32]) -> Self {
        let key_id = hex::encode(&Sha256::digest(bytes)[..8]);
        Self { period, key: ClosingKey(bytes), key_id }
    }

    /// Tells the key from others and says nothing about it.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Its period.
    pub fn period(&self) -> Period {
        self.period
    }

    pub(crate) fn wrap(&self, inner: &ClosingKey, place: &str) -> Result<Vec<u8>> {
        self.key.close(&inner.0, &self.place(place))
    }

    /// The key that was wrapped; none when it was wrapped with another key, for another place, or was changed.
    pub(crate) fn unwrap_key(&self, wrapped: &[u8], place: &str) -> Option<ClosingKey> {
        let bytes = self.key.open(wrapped, &self.place(place))?;
        bytes.try_into().ok().map(ClosingKey)
    }

    fn place(&self, place: &str) -> String {
        format!("{}\0{place}", self.period)
    }
}

impl fmt::Debug for PeriodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeriodKey({}, {})", self.period, self.key_id)
    }
}

/// Closes something for one place: elsewhere it does not open.
pub struct ClosingKey([u8; 32]);

impl ClosingKey {
    pub(crate) fn random() -> Result<Self> {
        random_bytes().map(Self)
    }

    /// The key that is made of these.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A nonce of its own, then the ciphertext: the same content closed twice tells nobody that it is the same.
    pub fn close(&self, content: &[u8], place: &str) -> Result<Vec<u8>> {
        let nonce: [u8; NONCE] = random_bytes()?;
        let payload = Payload { msg: content, aad: place.as_bytes() };
        let closed = XChaCha20Poly1305::new(&self.0.into()).encrypt(&XNonce::from(nonce), payload);
        let closed = closed.map_err(|_| Error::failed("it is too large to be sealed"))?;
        Ok([nonce.as_slice(), &closed].concat())
    }

    /// None when the content, the place or the key is another.
    pub fn open(&self, closed: &[u8], place: &str) -> Option<Vec<u8>> {
        let (nonce, closed) = closed.split_first_chunk::<NONCE>()?;
        let payload = Payload { msg: closed, aad: place.as_bytes() };
        XChaCha20Poly1305::new(&self.0.into()).decrypt(&XNonce::from(*nonce), payload).ok()
    }
}

impl fmt::Debug for ClosingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClosingKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("ebb-period-{}", uuid::Uuid::new_v4().simple()));
            Self(path)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn period(day: &str) -> Period {
        Period(day.parse().unwrap())
    }

    #[test]
    fn a_key_is_made_once_and_destroyed_on_its_day_under_every_name() {
        let dir = Dir::new();
        let keys = PeriodKeys::at(&dir.0);
        assert!(keys.create_if_missing(period("2026-12-17")).unwrap_err().is_refused(), "nobody made the directory");
        keys.create_directory().unwrap();
        keys.create_directory().unwrap();
        assert_eq!(fs::metadata(&dir.0).unwrap().permissions().mode() & 0o777, 0o700);
        let made = keys.create_if_missing(period("2026-12-17")).unwrap();
        assert_eq!(keys.create_if_missing(period("2026-12-17")).unwrap().key_id(), made.key_id());
        assert_eq!(keys.load(period("2026-12-17")).unwrap().key_id(), made.key_id());
        let path = dir.0.join("2026-12-17.key");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A process that dies between linking and removing leaves the key under a second name.
        fs::hard_link(&path, dir.0.join("2026-12-17.key.0a1b")).unwrap();
        keys.create_if_missing(period("2026-12-18")).unwrap();
        fs::write(dir.0.join("README"), "not a key").unwrap();

        let at = |text: &str| Moment::from(text.parse::<jiff::Timestamp>().unwrap());
        assert_eq!(keys.destroy_until(at("2026-12-16T23:59:59.999999Z")).unwrap(), []);
        // Whoever could read it besides: it goes all the same.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let destroyed = [(period("2026-12-17"), made.key_id().to_owned())];
        assert_eq!(keys.destroy_until(at("2026-12-17T00:00:00Z")).unwrap(), destroyed);
        assert_eq!(keys.destroy_until(at("2026-12-17T00:00:00Z")).unwrap(), destroyed, "it is kept in mind");
        assert_eq!(keys.periods().unwrap(), [period("2026-12-18")]);
        let note = format!("2026-12-17.destroyed.{}", made.key_id());
        let names = fs::read_dir(&dir.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: std::collections::BTreeSet<String> = names.collect();
        assert_eq!(names, [note.as_str(), "2026-12-18.key", "README"].map(str::to_owned).into());
        assert!(keys.load(period("2026-12-17")).unwrap_err().is_refused());
    }

    #[test]
    fn a_directory_that_is_not_there_has_destroyed_nothing() {
        let keys = PeriodKeys::at(Dir::new().0.clone());
        let refused = keys.destroy_until(Moment::INFINITY).unwrap_err();
        assert!(refused.is_refused() && refused.hint().unwrap().contains("mounted"), "{refused}");
    }

    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        let dir = Dir::new();
        let keys = PeriodKeys::at(&dir.0);
        keys.create_directory().unwrap();
        fs::set_permissions(&dir.0, fs::Permissions::from_mode(0o770)).unwrap();
        let refused = keys.create_if_missing(period("2026-12-17")).unwrap_err();
        assert!(refused.is_refused() && refused.hint().unwrap().starts_with("chmod 700"), "{refused}");
    }

    #[test]
    fn what_was_closed_opens_with_its_key_in_its_place_and_unchanged_only() {
        let (one, other) =
            (PeriodKey::new(period("2026-12-17"), [1; 32]), PeriodKey::new(period("2026-12-18"), [1; 32]));
        let inner = ClosingKey::random().unwrap();
        let wrapped = one.wrap(&inner, "subject").unwrap();
        let closed = inner.close(b"secret", "part 0").unwrap();
        assert_eq!(one.unwrap_key(&wrapped, "subject").unwrap().open(&closed, "part 0").unwrap(), b"secret");
        assert!(one.unwrap_key(&wrapped, "another").is_none() && other.unwrap_key(&wrapped, "subject").is_none());
        assert!(inner.open(&closed, "part 1").is_none());
        for at in 0..closed.len() {
            let mut changed = closed.clone();
            changed[at] ^= 1;
            assert!(inner.open(&changed, "part 0").is_none(), "byte {at}");
        }
        assert!(inner.open(&closed[..10], "part 0").is_none());
    }
}
