//! API tokens and the dashboard's sessions. Invariants: a secret exists in the answer that creates it and nowhere
//! else, the database has its hash; a check asks the database every time, so that a revocation counts at once.

mod store;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::PgConnection;

use crate::audit::{Entry, Moment};
use crate::pg::{Database, Warm};
use crate::policy::{Term, did_you_mean, nearest};
use crate::{Error, Result};

pub use store::{Token, close_session, exists, list};

/// What a token lets its holder do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look at everything.
    Read,
    /// What an application does: claim, report lineage, schedule, hold references. It sees little.
    App,
    /// Look, do what applications do, and run the place: pause, resume, trigger, retry, hold.
    Operate,
    /// Everything, policies included.
    Admin,
}

impl Role {
    /// All of them, as they are called.
    pub const ALL: [Role; 4] = [Role::Read, Role::App, Role::Operate, Role::Admin];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::App => "app",
            Role::Operate => "operate",
            Role::Admin => "admin",
        }
    }

    /// Whether it may do what `needed` is for.
    pub fn covers(self, needed: Role) -> bool {
        match self {
            Role::Admin => true,
            Role::Operate => needed != Role::Admin,
            role => role == needed,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str);
            let hint = nearest(word, words).map_or_else(|| format!("it is one of {}", words.join(", ")), did_you_mean);
            Error::usage(format!("{word:?} is no role")).with_hint(hint)
        })
    }
}

/// A token or session as somebody presents it: what names it, and the hash of what proves it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// `ebb_<id>_<secret>`.
    Token {
        /// Its public part.
        id: String,
        /// SHA-256 of its secret part.
        hash: [u8; 32],
    },
    /// What the dashboard's cookie says.
    Session {
        /// SHA-256 of it.
        hash: [u8; 32],
    },
}

/// Who somebody turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The token's public part.
    pub id: String,
    /// What the token is called.
    pub name: String,
    /// What it may do.
    pub role: Role,
}

impl Credential {
    /// Reads what follows `Bearer`; `None` when it cannot be a token.
    pub fn token(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix("ebb_")?.split_once('_')?;
        let is_hex = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if id.len() != ID_BYTES * 2 || secret.len() != SECRET_BYTES * 2 || !is_hex(id) || !is_hex(secret) {
            return None;
        }
        Some(Self::Token { id: id.to_owned(), hash: Sha256::digest(secret).into() })
    }

    /// Reads the value of a session cookie; `None` when it cannot be one.
    pub fn session(text: &str) -> Option<Self> {
        let is_hex = text.len() == SECRET_BYTES * 2 && text.bytes().all(|b| b.is_ascii_hexdigit());
        is_hex.then(|| Self::Session { hash: Sha256::digest(text).into() })
    }

    /// Asks the database who this is; `None` when it does not count (any more).
    pub async fn check(&self, warm: &Warm) -> Result<Option<Caller>> {
        let found = match self {
            Self::Token { id, hash } => store::check_token(warm, id, hash).await?,
            Self::Session { hash } => store::check_session(warm, hash).await?,
        };
        found.map(|(id, name, role)| Ok(Caller { id, name, role: role.parse()? })).transpose()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token { id, .. } => write!(f, "token {id}"),
            Self::Session { .. } => f.write_str("a session"),
        }
    }
}

const ID_BYTES: usize = 6;
const SECRET_BYTES: usize = 32;

/// What was made: the only time that the secret is seen.
#[derive(Debug)]
pub struct Created {
    /// The public part.
    pub id: String,
    /// The whole token.
    pub token: String,
}

/// Makes a token. Needs the schema's owner: a node can check tokens and not make them.
pub async fn create(
    tx: &mut PgConnection,
    name: &str,
    role: Role,
    expires_in: Option<&Term>,
    by: &str,
) -> Result<Created> {
    if name.trim().is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
        return Err(Error::usage("a token's name has 1 to 100 characters")
            .with_hint("call it after who will hold it: --name billing-service"));
    }
    let (id, secret) = (random_hex::<ID_BYTES>()?, random_hex::<SECRET_BYTES>()?);
    let expires_in = expires_in.map(Term::to_interval);
    store::insert(tx, &id, name, role, &Sha256::digest(&secret), expires_in, by).await?;
    let details = serde_json::json!({ "token": id, "name": name, "role": role });
    Entry { details, ..Entry::new("token", by) }.insert(tx).await?;
    Ok(Created { token: format!("ebb_{id}_{secret}"), id })
}

/// Revokes a token: from the commit on no request with it is let in. False when it was revoked before.
pub async fn revoke(tx: &mut PgConnection, id: &str, by: &str) -> Result<bool> {
    match store::revoke(tx, id, by).await? {
        None => Err(Error::usage(format!("there is no token {id:?}")).with_hint("`ebb token list` shows them")),
        Some(false) => Ok(false),
        Some(true) => {
            let details = serde_json::json!({ "token": id, "revoked": true });
            Entry { details, ..Entry::new("token", by) }.insert(tx).await?;
            Ok(true)
        }
    }
}

/// Opens a session for whoever presents a token; what the cookie says, or `None` when the token does not count.
pub async fn open_session(database: &Database, token: &Credential, term: Duration) -> Result<Option<String>> {
    let Credential::Token { id, hash } = token else { return Ok(None) };
    let secret = random_hex::<SECRET_BYTES>()?;
    let opened = store::open_session(database, id, hash, &Sha256::digest(&secret), term).await?;
    Ok(opened.map(|_| secret))
}

/// Whether a token still works at a moment.
pub fn is_alive(token: &Token, now: Moment) -> bool {
    token.revoked_at.is_none() && token.expires_at.is_none_or(|at| at > now)
}

fn random_hex<const BYTES: usize>() -> Result<String> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Error::failed(format!("no randomness: {error}")))?;
    Ok(hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_cover_what_they_should() {
        let covered = |role: Role| Role::ALL.map(|needed| role.covers(needed));
        assert_eq!(covered(Role::Read), [true, false, false, false]);
        assert_eq!(covered(Role::App), [false, true, false, false]);
        assert_eq!(covered(Role::Operate), [true, true, true, false]);
        assert_eq!(covered(Role::Admin), [true, true, true, true]);
        assert_eq!("opreate".parse::<Role>().unwrap_err().hint(), Some("did you mean `operate`?"));
    }

    #[test]
    fn what_cannot_be_a_token_is_not_asked_for() {
        let good = format!("ebb_{}_{}", "0".repeat(12), "a".repeat(64));
        assert!(Credential::token(&good).is_some());
        for bad in ["", "ebb_", "ebb_1_2", &good.to_uppercase(), &format!("{good}0"), &good[4..], "ebb_\u{e9}_x"] {
            assert!(Credential::token(bad).is_none(), "{bad}");
        }
        assert!(!format!("{:?}", Credential::token(&good).unwrap()).contains("aaaa"));
    }
}
