//! Keys, all of them files outside the database: the signing key with its public keys beside it, and the key of the
//! pseudonyms. Invariants: a secret that others can read is refused; a public key, once listed, stays listed.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer, VerifyingKey};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::merkle::Hash;
use super::period::ClosingKey;
use crate::{Error, Result};

const SIGNING_HEADER: &str = "# Ebb audit signing key (Ed25519 seed, hex). Secret: keep it out of the database.";
const SUBJECT_HEADER: &str = "# Ebb subject key (HMAC-SHA-256, hex). Secret: whoever has it can test ids for erasure.";
const PUBLIC_HEADER: &str =
    "# Ebb audit public keys: key id, key. Former keys stay, or what they signed cannot verify.";

/// What blocks are signed with.
pub struct SigningKey {
    key: ed25519_dalek::SigningKey,
    key_id: String,
}

impl SigningKey {
    /// Reads the key.
    pub fn load(path: &Path) -> Result<Self> {
        Ok(Self::from_seed(&read_secret(path)?))
    }

    /// Reads the key; where there is none, makes one, and lists its public half in `<path>.pub`.
    pub fn create_if_missing(path: &Path) -> Result<Self> {
        let key = Self::from_seed(&read_or_create(path, SIGNING_HEADER)?);
        key.list_public(&public_path(path))?;
        Ok(key)
    }

    /// Replaces the key by a new one. The former public key stays listed, so that what it signed still verifies.
    pub fn rotate(path: &Path) -> Result<Self> {
        let former = Self::load(path)?;
        let seed = random_bytes()?;
        let key = Self::from_seed(&seed);
        // Listed first: a key that signs and is not listed would make good blocks look forged.
        former.list_public(&public_path(path))?;
        key.list_public(&public_path(path))?;
        write_atomically(path, &secret_text(SIGNING_HEADER, &seed), 0o600)?;
        Ok(key)
    }

    /// Makes the key of a seed.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let key = ed25519_dalek::SigningKey::from_bytes(seed);
        let key_id = key_id(&key.verifying_key());
        Self { key, key_id }
    }

    /// The first 16 hex digits of the SHA-256 of the public key.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// The public half, alone.
    pub fn trusted(&self) -> TrustedKeys {
        TrustedKeys(vec![(self.key_id.clone(), self.key.verifying_key())])
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }

    fn list_public(&self, path: &Path) -> Result<()> {
        let listed = match fs::read_to_string(path) {
            Ok(text) => TrustedKeys::parse(&text, path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => TrustedKeys(Vec::new()),
            Err(error) => return Err(cannot("read", path, error)),
        };
        if listed.get(&self.key_id).is_some() {
            return Ok(());
        }
        let mut text = format!("{PUBLIC_HEADER}\n");
        for (key_id, key) in listed.0.iter().chain(&self.trusted().0) {
            text += &format!("{key_id} {}\n", hex::encode(key.as_bytes()));
        }
        write_atomically(path, &text, 0o644)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.key_id)
    }
}

/// The public keys whose signatures count. They come from a file; keys in the database never count.
#[derive(Debug, Clone, Default)]
pub struct TrustedKeys(Vec<(String, VerifyingKey)>);

impl TrustedKeys {
    /// Reads a file of lines `keyid key`.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|error| cannot("read", path, error))?;
        Self::parse(&text, path)
    }

    /// Reads the public keys beside a signing key, `<path>.pub`.
    pub fn beside(signing_key: &Path) -> Result<Self> {
        Self::load(&public_path(signing_key))
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let mut keys = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || {
                Error::config(format!("{}, line {number}: not a public key", path.display()))
                    .with_hint("a line is the key's id, a space, and 64 hex digits")
            };
            let (id, key) = line.split_once(' ').ok_or_else(wrong)?;
            let mut bytes = [0; 32];
            hex::decode_to_slice(key.trim(), &mut bytes).map_err(|_| wrong())?;
            let key = VerifyingKey::from_bytes(&bytes).map_err(|_| wrong())?;
            if key_id(&key) != id {
                return Err(wrong().context(format!("the id of this key is {}, not {id}", key_id(&key))));
            }
            keys.push((id.to_owned(), key));
        }
        Ok(Self(keys))
    }

    /// Whether the key with this id is among them.
    pub fn contains(&self, key_id: &str) -> bool {
        self.get(key_id).is_some()
    }

    /// Whether the key with this id made this signature.
    pub fn verify(&self, key_id: &str, message: &[u8], signature: &[u8]) -> bool {
        match (self.get(key_id), Signature::from_slice(signature)) {
            (Some(key), Ok(signature)) => key.verify_strict(message, &signature).is_ok(),
            _ => false,
        }
    }

    fn get(&self, key_id: &str) -> Option<&VerifyingKey> {
        self.0.iter().find(|(id, _)| id == key_id).map(|(_, key)| key)
    }
}

/// What turns the id of a row or a subject into its pseudonym.
pub struct SubjectKey([u8; 32]);

impl SubjectKey {
    /// Reads the key.
    pub fn load(path: &Path) -> Result<Self> {
        read_secret(path).map(Self)
    }

    /// Reads the key; where there is none, makes one.
    pub fn create_if_missing(path: &Path) -> Result<Self> {
        read_or_create(path, SUBJECT_HEADER).map(Self)
    }

    /// Takes a key made elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// What tells it from others and gives nothing away: the first 16 hex digits of what it makes of a text that is no id.
    pub fn key_id(&self) -> String {
        hex::encode(&self.pseudonym(b"ebb subject key\0\0")[..8])
    }

    /// HMAC-SHA-256: the same id always has the same pseudonym, and without the key nobody can tell which.
    pub fn pseudonym(&self, id: &[u8]) -> Hash {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(id);
        mac.finalize().into_bytes().into()
    }

    /// A key for closing what only whoever has this key may read.
    pub(crate) fn closing(&self, purpose: &str) -> ClosingKey {
        ClosingKey::from_bytes(self.pseudonym(format!("ebb closing key\0{purpose}").as_bytes()))
    }

    /// Whether this is what [`SubjectKey::pseudonym`] makes of it; takes as long whatever the answer is.
    pub fn vouches(&self, id: &[u8], mark: &[u8]) -> bool {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(id);
        mac.verify_slice(mark).is_ok()
    }
}

impl fmt::Debug for SubjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SubjectKey")
    }
}

fn key_id(key: &VerifyingKey) -> String {
    hex::encode(&Sha256::digest(key.as_bytes())[..8])
}

fn public_path(signing_key: &Path) -> PathBuf {
    with_suffix(signing_key, ".pub")
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::failed("the system has no randomness").with_source(error.to_string()))?;
    Ok(bytes)
}

fn secret_text(header: &str, bytes: &[u8; 32]) -> String {
    format!("{header}\n{}\n", hex::encode(bytes))
}

pub(super) fn read_or_create(path: &Path, header: &str) -> Result<[u8; 32]> {
    match fs::symlink_metadata(path) {
        Ok(_) => return read_secret(path),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(cannot("read", path, error)),
    }
    // Written whole under another name, then linked: whoever comes second uses the key of whoever came first.
    let temporary = write_temporary(path, &secret_text(header, &random_bytes()?), 0o600)?;
    let linked = fs::hard_link(&temporary, path);
    let _ = fs::remove_file(&temporary);
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(cannot("create", path, error)),
        _ => {
            sync_directory(path);
            read_secret(path)
        }
    }
}

pub(super) fn read_secret(path: &Path) -> Result<[u8; 32]> {
    let metadata = fs::metadata(path).map_err(|error| {
        let missing = error.kind() == ErrorKind::NotFound;
        let error = cannot("read", path, error);
        if missing { error.with_hint("`ebb apply` creates missing keys") } else { error }
    })?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Error::refused(format!("others can read or change the key {} (mode {mode:03o})", path.display()))
            .with_hint(format!("chmod 600 {}", path.display())));
    }
    parse_secret(path)
}

/// Reads a key whoever else can: one that is about to be destroyed.
pub(super) fn parse_secret(path: &Path) -> Result<[u8; 32]> {
    let text = fs::read_to_string(path).map_err(|error| cannot("read", path, error))?;
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut bytes = [0; 32];
    match (lines.next(), lines.next()) {
        (Some(line), None) if hex::decode_to_slice(line, &mut bytes).is_ok() => Ok(bytes),
        _ => Err(Error::config(format!("{} is not a key", path.display())).with_hint(
            "a key file has one line of 64 hex digits beside its comments; restore it from where you keep it",
        )),
    }
}

/// Replaces a file in one step: a reader sees the old content or the new, also after a crash.
pub(super) fn write_atomically(path: &Path, content: &str, mode: u32) -> Result<()> {
    let temporary = write_temporary(path, content, mode)?;
    fs::rename(&temporary, path).map_err(|error| {
        let _ = fs::remove_file(&temporary);
        cannot("write", path, error)
    })?;
    sync_directory(path);
    Ok(())
}

fn write_temporary(path: &Path, content: &str, mode: u32) -> Result<PathBuf> {
    let temporary = with_suffix(path, &format!(".{}", uuid::Uuid::new_v4().simple()));
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&temporary);
        cannot("write", path, error)
    })?;
    Ok(temporary)
}

/// Makes the new name durable. Where a directory cannot be synced, the file itself still is.
pub(super) fn sync_directory(path: &Path) {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(directory) = fs::File::open(parent) {
        let _ = directory.sync_all();
    }
}

pub(super) fn cannot(what: &str, path: &Path, error: std::io::Error) -> Error {
    Error::failed(format!("cannot {what} {}: {error}", path.display())).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("ebb-key-{}", uuid::Uuid::new_v4().simple()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_missing_key_is_made_once_and_only_its_owner_can_read_it() {
        let dir = Dir::new();
        let path = dir.file("audit.key");
        assert!(SigningKey::load(&path).unwrap_err().hint().unwrap().contains("ebb apply"));
        let made = SigningKey::create_if_missing(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(SigningKey::create_if_missing(&path).unwrap().key_id(), made.key_id());
        assert_eq!(SigningKey::load(&path).unwrap().key_id(), made.key_id());
        assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 2, "the key and its public keys");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = SigningKey::load(&path).unwrap_err();
        assert!(refused.is_refused());
        assert_eq!(refused.hint().unwrap(), format!("chmod 600 {}", path.display()));
    }

    #[test]
    fn rotation_keeps_former_public_keys() {
        let dir = Dir::new();
        let path = dir.file("audit.key");
        let former = SigningKey::create_if_missing(&path).unwrap();
        let signature = former.sign(b"block");
        let current = SigningKey::rotate(&path).unwrap();
        assert_ne!(former.key_id(), current.key_id());
        assert_eq!(SigningKey::load(&path).unwrap().key_id(), current.key_id());

        let trusted = TrustedKeys::beside(&path).unwrap();
        assert!(trusted.contains(current.key_id()));
        assert!(trusted.verify(former.key_id(), b"block", &signature));
        assert!(!trusted.verify(current.key_id(), b"block", &signature));
        assert!(!trusted.verify(former.key_id(), b"blocc", &signature));
    }

    #[test]
    fn a_public_key_under_a_wrong_id_is_an_error() {
        let key = SigningKey::from_seed(&[1; 32]);
        let line = format!("0000000000000000 {}", hex::encode(key.key.verifying_key().as_bytes()));
        assert!(TrustedKeys::parse(&line, Path::new("x.pub")).unwrap_err().is_config());
    }

    #[test]
    fn a_broken_key_file_is_named() {
        let dir = Dir::new();
        let path = dir.file("subject.key");
        fs::write(&path, "# half a key\n0123\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(SubjectKey::create_if_missing(&path).unwrap_err().is_config());
    }

    #[test]
    fn pseudonyms_are_hmac_sha_256() {
        let key = SubjectKey::from_bytes([0x0b; 32]);
        let expected = "9bd31e296d7062917019111cfde2a3bc4bc59b54ac6017da46a1b1ae273552db";
        assert_eq!(hex::encode(key.pseudonym(b"42")), expected);
        assert_ne!(key.pseudonym(b"42"), key.pseudonym(b"43"));
        assert_ne!(key.pseudonym(b"42"), SubjectKey::from_bytes([0x0c; 32]).pseudonym(b"42"));
    }
}
