//! `ebb.toml`, the environment over it, and the defaults under it. Invariant: a `Config` exists only when everything
//! in it makes sense; otherwise all that is wrong is told at once, each at its line.

mod diagnostic;
mod document;
mod entries;
mod env;
mod network;
mod secret;
mod settings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use self::diagnostic::{Diagnostic, Place, render};
use self::document::Document;
use crate::policy::{FieldError, FieldErrors, Kind, Policy, Spec};
use crate::{Error, Result};

pub use self::env::Env;
pub use self::network::Network;
pub use self::secret::Secret;
pub use self::settings::{
    AuditSettings, DatabaseSettings, HttpSettings, LogFormat, LogSettings, MetricsSettings, NodeSettings, TlsFiles,
};

/// Everything configured: what this process reads for itself, and what `ebb apply` brings to the database.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file, when there is one.
    pub path: Option<PathBuf>,
    /// `[database]`.
    pub database: DatabaseSettings,
    /// `[http]`.
    pub http: HttpSettings,
    /// `[log]`.
    pub log: LogSettings,
    /// `[metrics]`.
    pub metrics: MetricsSettings,
    /// `[audit]`.
    pub audit: AuditSettings,
    /// `[node]`.
    pub node: NodeSettings,
    /// Policies, namespaces, `[pacing]` and `[keep]`, as far as they are configured, in the order of the file.
    pub policies: Vec<PolicySpec>,
    /// What works and should be changed.
    pub warnings: Vec<String>,
}

/// A policy of the file: what is stored, and what it means.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicySpec {
    /// What sort it is.
    pub kind: Kind,
    /// What it is called.
    pub name: String,
    /// Its keys, with the environment's overrides and without its name.
    pub spec: Spec,
    /// What they mean.
    pub policy: Policy,
    /// The line of the file on which it starts; absent when only the environment has it.
    pub line: Option<usize>,
    /// The lines of its keys, as far as the file has them.
    pub key_lines: BTreeMap<String, usize>,
}

impl PolicySpec {
    /// The line of a key, or where the policy starts.
    pub fn line_of(&self, key: Option<&str>) -> Option<usize> {
        key.and_then(|key| self.key_lines.get(key).copied()).or(self.line)
    }
}

impl Config {
    /// Reads the file that `path` (`--config`) or `EBB_CONFIG` names, or else `ebb.toml` here, or else nothing.
    pub fn load(path: Option<&Path>, env: &Env) -> Result<Self> {
        let named = path
            .map(Path::to_path_buf)
            .or_else(|| env.get("EBB_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from));
        let file = named.clone().unwrap_or_else(|| PathBuf::from("ebb.toml"));
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                return Self::read("", "ebb.toml", Path::new(""), env);
            }
            Err(error) => {
                return Err(Error::config(format!("{} cannot be read: {error}", file.display()))
                    .with_hint("name the configuration with --config PATH or EBB_CONFIG, or write one: ebb init"));
            }
        };
        let base = file.parent().unwrap_or(Path::new(""));
        let config = Self::read(&text, &file.display().to_string(), base, env)?;
        Ok(Self { path: Some(file), ..config })
    }

    /// Reads a configuration from a text; `label` is what errors call it.
    pub fn from_str(text: &str, label: &str, env: &Env) -> Result<Self> {
        Self::read(text, label, Path::new(""), env)
    }

    fn read(text: &str, label: &str, base: &Path, env: &Env) -> Result<Self> {
        let fail = |wrong: Vec<Diagnostic>| Error::config(render(wrong, label, text));
        let mut document = Document::parse(text).map_err(fail)?;
        let mut wrong = entries::check_sections(&document);

        let (targets, prefixes) = entries::targets(&document);
        let (overrides, unmatched) = env::overrides(env, &targets, &prefixes);
        wrong.extend(unmatched);
        for set in overrides {
            document.set(&set.path, set.value, &set.variable);
        }
        let mut warnings = defaults_from_environment(&mut document, env);
        entries::default_interval(&mut document, env);

        let mut settings = Sections { document: &document, wrong: &mut wrong };
        let database = settings.read("database", |section| DatabaseSettings::parse(section, base));
        let http = settings.read("http", |section| HttpSettings::parse(section, base));
        let log = settings.read("log", LogSettings::parse);
        let metrics = settings.read("metrics", MetricsSettings::parse);
        let audit = settings.read("audit", |section| AuditSettings::parse(section, base));
        let node = settings.read("node", NodeSettings::parse);
        let policies = entries::read(&document, &mut wrong);
        if let Some(node) = &node {
            wrong.extend(entries::check_lease(&document, node, &policies));
        }
        match (database, http, log, metrics, audit, node) {
            (Some(database), Some(http), Some(log), Some(metrics), Some(audit), Some(node)) if wrong.is_empty() => {
                warnings.extend(plain_passwords(&document, label));
                Ok(Self { path: None, database, http, log, metrics, audit, node, policies, warnings })
            }
            _ => Err(fail(wrong)),
        }
    }
}

/// Reads the sections one by one and puts what is wrong where it belongs.
struct Sections<'a> {
    document: &'a Document,
    wrong: &'a mut Vec<Diagnostic>,
}

impl Sections<'_> {
    fn read<T>(&mut self, name: &str, parse: impl FnOnce(&Spec) -> Result<T, FieldErrors>) -> Option<T> {
        let empty = Spec::new();
        let section = match self.document.get(&[name]) {
            Some(Value::Object(section)) => section,
            // Something that is no section was reported as such.
            _ => &empty,
        };
        parse(section).map_err(|errors| self.wrong.extend(located(self.document, &path(&[name]), errors))).ok()
    }
}

/// The errors of an entry, at their places.
fn located(document: &Document, entry: &[String], errors: FieldErrors) -> Vec<Diagnostic> {
    let at = |error: &FieldError| -> Place {
        let full: Vec<String> = entry.iter().chain(&error.path).cloned().collect();
        document.place(&full, error.spot)
    };
    errors.0.into_iter().map(|error| Diagnostic::field(at(&error), error)).collect()
}

fn path(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

/// Variables that other programs read too, and that do not carry our prefix.
fn defaults_from_environment(document: &mut Document, env: &Env) -> Vec<String> {
    let mut warnings = Vec::new();
    if document.get(&["database", "url"]).is_none()
        && let Some(url) = env.get("DATABASE_URL")
    {
        document.set(&path(&["database", "url"]), url.into(), "DATABASE_URL");
    }
    let level = path(&["log", "level"]);
    if document.variable(&level).is_none() {
        if let Some(text) = env.get("EBB_LOG") {
            document.set(&level, text.into(), "EBB_LOG");
        } else if let Some(text) = env.get("LOG_LEVEL") {
            // It may be meant for somebody else, so it cannot stop us.
            match settings::log_level(text) {
                Ok(text) => document.set(&level, text.into(), "LOG_LEVEL"),
                Err(invalid) => warnings.push(format!("LOG_LEVEL is ignored: {invalid}")),
            }
        }
    }
    warnings
}

/// Passwords that stand in the file itself: in the database's addresses, and in those of sinks and stores.
fn plain_passwords(document: &Document, label: &str) -> Vec<String> {
    let mut urls = vec![path(&["database", "url"]), path(&["database", "direct_url"])];
    if let Some(Value::Object(sinks)) = document.get(&["sinks"]) {
        urls.extend(sinks.keys().map(|sink| path(&["sinks", sink, "url"])));
    }
    if let Some(Value::Array(stores)) = document.get(&["resources"]) {
        urls.extend((0..stores.len()).map(|n| path(&["resources", &n.to_string(), "url"])));
    }
    let inline = |url: &Vec<String>| {
        let value = document.get(&url.iter().map(String::as_str).collect::<Vec<_>>());
        let text = value.and_then(Value::as_str).unwrap_or_default();
        !text.starts_with("env:")
            && !text.starts_with("file:")
            && has_password(text)
            && document.variable(url).is_none()
    };
    urls.iter()
        .filter(|url| inline(url))
        .map(|url| {
            let (line, key) = (document.line(url).unwrap_or(1), url.last().map_or("url", String::as_str));
            format!("{label}:{line}: `{key}` contains a password; name where it is instead: env:NAME or file:PATH")
        })
        .collect()
}

fn has_password(url: &str) -> bool {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    let (authority, query) = after.split_once('?').unwrap_or((after, ""));
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
        || query.split('&').any(|pair| pair.starts_with("password="))
}

#[cfg(test)]
mod tests;
