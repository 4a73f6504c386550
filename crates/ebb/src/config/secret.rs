//! Secrets are named, not written: `env:NAME` or `file:PATH`. Invariant: a secret is read only by `resolve`, and
//! nothing that prints a configuration prints one.

use std::fmt;
use std::path::{Path, PathBuf};

use super::Env;
use crate::policy::Invalid;
use crate::{Error, Result};

/// Where a secret is, or, for a database URL alone, the text itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Env(String),
    File(PathBuf),
    Inline(String),
}

impl Secret {
    /// Takes `env:NAME` or `file:PATH`, relative to the directory of the configuration.
    pub fn parse(text: &str, base: &Path) -> Result<Self, Invalid> {
        let source = match text.split_once(':') {
            Some(("env", "")) => {
                return Err(Invalid::new("`env:` names no variable").hint("for example \"env:EBB_KEY\""));
            }
            Some(("file", "")) => {
                return Err(Invalid::new("`file:` names no file").hint("for example \"file:ebb.key\""));
            }
            Some(("env", name)) => Source::Env(name.to_owned()),
            Some(("file", path)) => Source::File(base.join(path)),
            _ => {
                return Err(Invalid::new("a secret is never written here itself")
                    .hint("name where it is: \"env:NAME\" or \"file:PATH\""));
            }
        };
        Ok(Self(source))
    }

    /// Takes a text that may be the secret itself.
    pub fn parse_or_inline(text: &str, base: &Path) -> Result<Self, Invalid> {
        if text.starts_with("env:") || text.starts_with("file:") {
            return Self::parse(text, base);
        }
        Ok(Self(Source::Inline(text.to_owned())))
    }

    /// The text, when it was given inline.
    pub(crate) fn inline(&self) -> Option<&str> {
        match &self.0 {
            Source::Inline(text) => Some(text),
            _ => None,
        }
    }

    /// The file it is in, when it is in one: for those who create a missing key.
    pub fn path(&self) -> Option<&Path> {
        match &self.0 {
            Source::File(path) => Some(path),
            _ => None,
        }
    }

    /// The same, with a relative file below another directory.
    pub fn under(&self, base: &Path) -> Self {
        match &self.0 {
            Source::File(path) => Self(Source::File(base.join(path))),
            _ => self.clone(),
        }
    }

    /// Reads it, without the line's end that editors add to files.
    pub fn resolve(&self, env: &Env) -> Result<String> {
        let text = match &self.0 {
            Source::Inline(text) => text.clone(),
            Source::Env(name) => env.get(name).map(str::to_owned).ok_or_else(|| {
                Error::config(format!("the environment variable {name} is not set"))
                    .with_hint(format!("the configuration reads a secret from it; set {name}"))
            })?,
            Source::File(path) => std::fs::read_to_string(path).map_err(|error| {
                Error::config(format!("the secret in {} cannot be read: {error}", path.display()))
                    .with_hint("the path is relative to the configuration file; Ebb's user must be able to read it")
            })?,
        };
        let text = text.trim_end_matches(['\n', '\r']);
        if text.is_empty() {
            return Err(Error::config(format!("the secret {self} is empty")));
        }
        Ok(text.to_owned())
    }
}

impl fmt::Display for Secret {
    /// Where it is, never what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Env(name) => write!(f, "env:{name}"),
            Source::File(path) => write!(f, "file:{}", path.display()),
            Source::Inline(_) => f.write_str("(inline)"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_from_where_it_is_and_never_printed() {
        let env: Env = [("OPS", "hunter2")].into_iter().collect();
        let base = std::env::temp_dir().join(format!("ebb-secret-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        std::fs::write(base.join("key"), "s3cret\n").unwrap();
        let named = Secret::parse("env:OPS", &base).unwrap();
        let filed = Secret::parse("file:key", &base).unwrap();
        assert_eq!(named.resolve(&env).unwrap(), "hunter2");
        assert_eq!(filed.resolve(&env).unwrap(), "s3cret");
        assert_eq!(filed.path(), Some(base.join("key").as_path()));
        std::fs::remove_dir_all(&base).unwrap();
        assert!(filed.resolve(&env).unwrap_err().to_string().contains("cannot be read"));
        let inline = Secret::parse_or_inline("postgres://u:hunter2@h", &base).unwrap();
        assert!(!format!("{inline:?} {inline} {named:?}").contains("hunter2"));
    }

    #[test]
    fn an_inline_secret_is_refused_without_repeating_it() {
        let refused = Secret::parse("hunter2", Path::new("")).unwrap_err();
        assert!(!format!("{refused:?}").contains("hunter2"));
        assert!(Secret::parse("env:", Path::new("")).is_err());
        let missing = Secret::parse("env:NOPE", Path::new("")).unwrap().resolve(&Env::default()).unwrap_err();
        assert!(missing.to_string().contains("NOPE is not set"));
    }
}
