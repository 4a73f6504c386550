//! `[once.NAME]`: a namespace in which a key counts once for a while. Invariant: both terms are more than nothing, so
//! that a key that was just accepted is known.

use super::field::Invalid;
use super::{FieldErrors, Name, Reader, Scalar, Spec, Term, read_name};

/// How a namespace remembers.
#[derive(Debug, Clone, PartialEq)]
pub struct OnceNamespace {
    /// Its name.
    pub name: Name,
    /// How long a key is remembered.
    pub ttl: Term,
    /// How long a claim in flight blocks others before it may be taken over.
    pub lock: Term,
    /// What it is for, in words.
    pub description: Option<String>,
    /// Whether the file still has it; calls work either way.
    pub enabled: bool,
}

pub(super) const SCALARS: &[Scalar] =
    &[Scalar::Text("ttl"), Scalar::Text("lock"), Scalar::Text("description"), Scalar::Plain("enabled")];

impl OnceNamespace {
    /// How long a key is remembered unless the namespace or the call says otherwise.
    pub const DEFAULT_TTL: Term = Term::seconds(86_400);
    /// How long a claim in flight blocks others by default.
    pub const DEFAULT_LOCK: Term = Term::seconds(60);

    pub(super) fn parse(name: &str, spec: &Spec) -> Result<Self, FieldErrors> {
        let mut reader = Reader::new(spec);
        let r = &mut reader;
        let name = read_name(r, name);
        let ttl = r.term("ttl", "\"24h\"").unwrap_or(Self::DEFAULT_TTL);
        let lock = r.term("lock", "\"1m\"");
        let description = r.text("description", "\"orders from the shop\"");
        let enabled = r.flag("enabled", true);
        if let Some(lock) = lock
            && let (Ok(lock_length), Ok(ttl_length)) = (lock.as_duration(), ttl.as_duration())
            && lock_length > ttl_length
        {
            r.refuse("lock", Invalid::new(format!("`lock` ({lock}) is longer than `ttl` ({ttl})")));
        }
        reader.finish()?;
        let Some(name) = name else { return Err(super::whole("a name is needed".into())) };
        Ok(Self { name, ttl, lock: lock.unwrap_or(Self::DEFAULT_LOCK), description, enabled })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn terms_have_defaults_and_fit_each_other() {
        let parse = |spec: serde_json::Value| OnceNamespace::parse("orders", spec.as_object().unwrap());
        let orders = parse(json!({})).unwrap();
        assert_eq!((orders.ttl.to_string(), orders.lock.to_string()), ("24h".into(), "1m".into()));
        assert_eq!(parse(json!({ "ttl": "7d" })).unwrap().ttl, Term::days(7));
        assert!(parse(json!({ "ttl": "0s" })).unwrap_err().to_string().contains("more than nothing"));
        assert!(parse(json!({ "ttl": "1m", "lock": "5m" })).unwrap_err().to_string().contains("longer than `ttl`"));
        assert!(OnceNamespace::parse("a b", &Spec::new()).unwrap_err().to_string().contains("cannot be a name"));
    }
}
