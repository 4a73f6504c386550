//! What each process reads for itself: `[database]`, `[http]`, `[log]`, `[metrics]`, `[audit]` and `[node]`.
//! Invariant: a key that this version does not act on is refused, never silently without effect.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::{Network, Secret};
use crate::policy::{At, FieldErrors, Invalid, Reader, Scalar, Spec, Spot, did_you_mean, nearest};

/// `[database]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DatabaseSettings {
    /// Where PostgreSQL is; absent: an embedded server.
    pub url: Option<Secret>,
    /// The way past a transaction pooler.
    pub direct_url: Option<Secret>,
    /// A node ends within this after being asked to.
    pub stop_within: Duration,
}

/// `[http]`.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpSettings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// How people reach it from outside, without a slash at the end.
    pub public_url: Option<String>,
    /// Certificate chain and key, as PEM files; absent: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed.
    pub trusted_proxies: Vec<Network>,
    /// Requests a second that one token may make of one node.
    pub rate_limit: u32,
}

/// `tls_cert` and `tls_key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then those that lead to its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq)]
pub struct LogSettings {
    /// A level, or levels by module: `info`, `info,sqlx=warn`.
    pub level: String,
    /// Absent: pretty on a terminal, JSON elsewhere.
    pub format: Option<LogFormat>,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// A JSON object a line.
    Json,
    /// For people.
    Pretty,
}

/// `[metrics]`.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsSettings {
    /// What every metric's name starts with.
    pub prefix: String,
}

/// `[audit]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditSettings {
    /// Signs seals; outside the database.
    pub signing_key: Option<Secret>,
    /// Makes pseudonyms of subjects; outside the database.
    pub subject_key: Option<Secret>,
    /// Where the keys of sealed snapshots are: a directory outside the database and its backups.
    pub period_keys: Option<PathBuf>,
    /// Where seals are published.
    pub publish: Option<PathBuf>,
    /// When the audit is reviewed, in UTC.
    pub report_at: Option<At>,
}

/// `[node]`.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSettings {
    /// How long a lease holds without a heartbeat.
    pub lease: Duration,
    /// How often to look where no notification arrives.
    pub poll: Duration,
    /// What the node is called in listings; absent: the host's name.
    pub name: Option<String>,
}

/// The sections of this file and the keys that a variable can set.
pub(super) const SECTIONS: [(&str, &[Scalar]); 6] = [
    ("database", &[Scalar::Text("url"), Scalar::Text("direct_url"), Scalar::Text("stop_within")]),
    (
        "http",
        &[
            Scalar::Text("listen"),
            Scalar::Text("public_url"),
            Scalar::Text("tls_cert"),
            Scalar::Text("tls_key"),
            Scalar::Text("trusted_proxies"),
            Scalar::Text("rate_limit"),
        ],
    ),
    ("log", &[Scalar::Text("level"), Scalar::Text("format")]),
    ("metrics", &[Scalar::Text("prefix")]),
    (
        "audit",
        &[
            Scalar::Text("signing_key"),
            Scalar::Text("subject_key"),
            Scalar::Text("period_keys"),
            Scalar::Text("publish"),
            Scalar::Text("report_at"),
        ],
    ),
    ("node", &[Scalar::Text("lease"), Scalar::Text("poll"), Scalar::Text("name")]),
];

const DAY: Duration = Duration::from_secs(86_400);
/// What one token may ask of a node where nothing is configured: more than an application needs, less than a flood.
const RATE_LIMIT: u32 = 10_000;
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7117);

impl DatabaseSettings {
    pub(super) fn parse(section: &Spec, base: &Path) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(section);
        let r = &mut reader;
        let url = database_url(r, "url", base);
        let direct_url = database_url(r, "direct_url", base);
        if r.take("direct_url").is_some() && r.take("url").is_none() {
            let invalid = Invalid::new("`direct_url` is given and `url` is not");
            r.error("direct_url", Spot::Secret, invalid.hint("name the database in `url` as well"));
        }
        let stop_within = r.duration("stop_within", "\"5s\"", Duration::from_millis(1)..=DAY);
        reader.finish()?;
        Ok(Self { url, direct_url, stop_within: stop_within.unwrap_or(Duration::from_secs(5)) })
    }
}

impl HttpSettings {
    pub(super) fn parse(section: &Spec, base: &Path) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(section);
        let r = &mut reader;
        let listen = r
            .text("listen", "\"127.0.0.1:7117\"")
            .and_then(|text| listen_address(&text).map_err(|invalid| r.refuse("listen", invalid)).ok());
        let public_url = r.text("public_url", "\"https://ebb.example.test\"").map(|url| {
            if !url.starts_with("https://") && !url.starts_with("http://") {
                let hint = format!("for example \"https://{url}\"");
                r.refuse("public_url", Invalid::new("`public_url` must start with https:// or http://").hint(hint));
            }
            url.trim_end_matches('/').to_owned()
        });
        let cert = r.text("tls_cert", "\"/etc/ebb/tls.crt\"").map(|path| base.join(path));
        let key = r.text("tls_key", "\"/etc/ebb/tls.key\"").map(|path| base.join(path));
        let tls = match (cert, key) {
            (Some(cert), Some(key)) => Some(TlsFiles { cert, key }),
            (None, None) => None,
            (given, _) => {
                let (has, lacks) = if given.is_some() { ("tls_cert", "tls_key") } else { ("tls_key", "tls_cert") };
                r.refuse(has, Invalid::new(format!("`{has}` is given and `{lacks}` is not")).hint("TLS needs both"));
                None
            }
        };
        let trusted_proxies = networks(r, "trusted_proxies");
        let rate_limit = r.text("rate_limit", "\"1000/s\"").and_then(|text| {
            let rate = text.strip_suffix("/s").and_then(|number| number.trim().parse().ok()).filter(|rate| *rate > 0);
            if rate.is_none() {
                let invalid = Invalid::new(format!("{text:?} is no rate"));
                r.refuse("rate_limit", invalid.hint("requests a second for each token, for example \"1000/s\""));
            }
            rate
        });
        reader.finish()?;
        let listen = listen.unwrap_or(LISTEN);
        Ok(Self { listen, public_url, tls, trusted_proxies, rate_limit: rate_limit.unwrap_or(RATE_LIMIT) })
    }
}

impl LogSettings {
    pub(super) fn parse(section: &Spec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(section);
        let r = &mut reader;
        let level = r
            .text("level", "\"info\"")
            .and_then(|text| log_level(&text).map_err(|invalid| r.refuse("level", invalid)).ok());
        let format = r.choice("format", &[("json", LogFormat::Json), ("pretty", LogFormat::Pretty)]);
        reader.finish()?;
        Ok(Self { level: level.unwrap_or_else(|| "info".into()), format })
    }
}

impl MetricsSettings {
    pub(super) fn parse(section: &Spec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(section);
        let prefix = reader.text("prefix", "\"ebb\"").unwrap_or_else(|| "ebb".into());
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !prefix.chars().all(word) || prefix.starts_with(|c: char| c.is_ascii_digit()) {
            let invalid = Invalid::new(format!("{prefix:?} cannot start a metric's name"));
            reader.refuse("prefix", invalid.hint("letters, digits and _, no digit first"));
        }
        reader.finish()?;
        Ok(Self { prefix })
    }
}

impl AuditSettings {
    pub(super) fn parse(section: &Spec, base: &Path) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(section);
        let r = &mut reader;
        let signing_key = secret(r, "signing_key", |text| key_file(text, base));
        let subject_key = secret(r, "subject_key", |text| key_file(text, base));
        let publish = published(r, base);
        let report_at = r.text("report_at", "\"SUN 03:00\"").and_then(|text| match text.parse::<At>() {
            Ok(at) => Some(at),
            Err(invalid) => {
                r.refuse("report_at", invalid);
                None
            }
        });
        let period_keys = r.text("period_keys", "\"ebb-period-keys\"");
        let period_keys = period_keys.map(|path| base.join(path.strip_prefix("file:").unwrap_or(&path)));
        reader.finish()?;
        Ok(Self { signing_key, subject_key, period_keys, publish, report_at })
    }
}

impl NodeSettings {
    pub(super) fn parse(section: &Spec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(section);
        let r = &mut reader;
        let minute = Duration::from_secs(60);
        let lease = r.duration("lease", "\"60s\"", Duration::from_secs(1)..=DAY).unwrap_or(minute);
        let poll = r.duration("poll", "\"60s\"", Duration::from_millis(10)..=DAY).unwrap_or(minute);
        let name = r.text("name", "\"worker-1\"");
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.as_ref().is_some_and(|name| name.len() > 63 || !name.chars().all(fits)) {
            r.refuse("name", Invalid::new("a node's name has up to 63 letters, digits, ., - and _"));
        }
        reader.finish()?;
        Ok(Self { lease, poll, name })
    }
}

/// Keys are created, rotated and checked for their mode: they are files.
fn key_file(text: &str, base: &Path) -> Result<Secret, Invalid> {
    let secret = Secret::parse(text, base)?;
    match secret.path() {
        Some(_) => Ok(secret),
        None => Err(Invalid::new("this is kept in a file").hint("write file:PATH; a path is relative to this file")),
    }
}

/// Where seals go is no secret, and is written like the keys beside it.
fn published(r: &mut Reader<'_>, base: &Path) -> Option<PathBuf> {
    let text = r.text("publish", "\"file:ebb-audit.seal\"")?;
    match text.strip_prefix("file:") {
        Some(path) if !path.is_empty() => Some(base.join(path)),
        _ => {
            let path = if text.is_empty() || text.contains(':') { "ebb-audit.seal" } else { &text };
            let hint = format!("write \"file:{path}\"; a path is relative to this file");
            r.refuse("publish", Invalid::new("seals are published to a file").hint(hint));
            None
        }
    }
}

fn database_url(r: &mut Reader<'_>, key: &'static str, base: &Path) -> Option<Secret> {
    secret(r, key, |text| {
        let url = Secret::parse_or_inline(text, base)?;
        let postgres = |url: &str| url.starts_with("postgres://") || url.starts_with("postgresql://");
        if url.inline().is_some_and(|url| !postgres(url)) {
            return Err(Invalid::new(format!("`{key}` is no PostgreSQL URL"))
                .hint("it looks like postgres://user@host:5432/database, or names one: env:NAME, file:PATH"));
        }
        Ok(url)
    })
}

fn secret(
    r: &mut Reader<'_>,
    key: &'static str,
    parse: impl FnOnce(&str) -> Result<Secret, Invalid>,
) -> Option<Secret> {
    let parsed = match r.take(key)? {
        Value::String(text) => parse(text.trim()),
        _ => Err(Invalid::new(format!("`{key}` must be a text in quotes")).hint("for example \"env:NAME\"")),
    };
    parsed.map_err(|invalid| r.error(key, Spot::Secret, invalid)).ok()
}

fn listen_address(text: &str) -> Result<SocketAddr, Invalid> {
    let port = |text: &str| text.parse::<u16>().ok();
    if let Some(port) = text.strip_prefix("localhost:").and_then(port) {
        return Ok(SocketAddr::new(LISTEN.ip(), port));
    }
    text.parse().map_err(|_| {
        let invalid = Invalid::new(format!("{text:?} is no address to listen on"));
        match text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
            Ok(port) => {
                invalid.hint(format!("did you mean \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for everybody?"))
            }
            Err(_) => invalid.hint("an IP address and a port, for example \"127.0.0.1:7117\""),
        }
    })
}

/// A list of networks; one of them may stand alone, and a variable separates them by commas.
fn networks(r: &mut Reader<'_>, key: &'static str) -> Vec<Network> {
    let texts: Vec<String> = match r.take(key) {
        None => Vec::new(),
        Some(Value::String(text)) => text.split(',').map(|part| part.trim().to_owned()).collect(),
        Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
        }
        Some(_) => {
            let invalid = Invalid::new(format!("`{key}` must be a list of addresses"));
            r.refuse(key, invalid.hint("for example [\"10.0.0.0/8\", \"127.0.0.1\"]"));
            Vec::new()
        }
    };
    let parsed: Vec<Result<Network, Invalid>> = texts.iter().map(|text| text.parse()).collect();
    parsed.into_iter().filter_map(|network| network.map_err(|invalid| r.refuse(key, invalid)).ok()).collect()
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// A level, or a list of levels by module.
pub(super) fn log_level(text: &str) -> Result<String, Invalid> {
    let level = |word: &str| match word.trim().to_ascii_lowercase().as_str() {
        "warning" => Some("warn"),
        other => LEVELS.into_iter().find(|known| *known == other),
    };
    let parts = text.split(',').map(|part| match part.split_once('=') {
        Some((module, word)) if !module.trim().is_empty() => Some(format!("{}={}", module.trim(), level(word)?)),
        _ => level(part).map(str::to_owned),
    });
    let parts: Option<Vec<String>> = parts.collect();
    parts.map(|parts| parts.join(",")).ok_or_else(|| {
        let hint = nearest(text, LEVELS).map_or_else(|| format!("it is one of {}", LEVELS.join(", ")), did_you_mean);
        Invalid::new(format!("{text:?} is no log level")).hint(hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_mistakes_explained() {
        assert_eq!(listen_address("localhost:80").unwrap().to_string(), "127.0.0.1:80");
        assert_eq!(listen_address("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert!(listen_address(":7117").unwrap_err().hint.unwrap().contains("127.0.0.1:7117"));
        assert!(listen_address("example.test").is_err());
    }

    #[test]
    fn levels_may_differ_by_module() {
        assert_eq!(log_level("INFO").unwrap(), "info");
        assert_eq!(log_level("warning, ebb=debug").unwrap(), "warn,ebb=debug");
        assert_eq!(log_level("inof").unwrap_err().hint.unwrap(), "did you mean `info`?");
        assert!(log_level("").is_err() && log_level("=info").is_err() && log_level("info,,").is_err());
    }
}
