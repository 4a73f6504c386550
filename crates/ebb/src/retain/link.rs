//! The link in a warning: it names one deletion and is vouched for by a key outside the database, so that nobody who
//! reads the database can make one. Invariants: a link restores what its deletion deleted, once, and ends with it;
//! looking at it changes nothing; what it answers names nobody.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use uuid::Uuid;

use super::store::warnings as store;
use super::subject;
use crate::audit::{Moment, SubjectKey};
use crate::pg::Database;
use crate::{Error, Result};

/// No policy's name begins like this: what vouches for a link is no subject's pseudonym.
const PURPOSE: &[u8] = b"\0restore link\0";

/// What a link is good for.
#[derive(Debug, Clone, PartialEq)]
pub enum Link {
    /// Its deletion is open: it can be taken back.
    Open(Box<Standing>),
    /// It was taken back, by this link or otherwise.
    Used,
    /// It is too late.
    Gone,
    /// Its deletion is open, and its table does not let it be taken back: trying again changes nothing.
    Refused(Box<Standing>),
    /// Nobody vouches for it, or nobody knows its deletion.
    Unknown,
}

/// An open deletion, without a word about whose it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// When it was asked for.
    pub deleted_at: Moment,
    /// When it will be too late.
    pub due_at: Moment,
    /// What time it is there.
    pub now: Moment,
    /// Where dates are read.
    pub zone: String,
    /// The words of the policy and its tenant.
    pub texts: BTreeMap<String, String>,
}

/// The token for a deletion: its id, and what only the key can make of it.
pub(crate) fn token(key: &SubjectKey, deletion: Uuid) -> String {
    let vouched = [PURPOSE, deletion.as_bytes()].concat();
    BASE64_URL_SAFE_NO_PAD.encode([deletion.as_bytes().as_slice(), &key.pseudonym(&vouched)].concat())
}

/// The deletion that a token names, where the key vouches for it.
fn read(key: &SubjectKey, token: &str) -> Option<Uuid> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).ok().filter(|bytes| bytes.len() == 48)?;
    let (id, mark) = bytes.split_at(16);
    let deletion = Uuid::from_slice(id).ok()?;
    key.vouches(&[PURPOSE, deletion.as_bytes()].concat(), mark).then_some(deletion)
}

/// Looks at a link; changes nothing.
pub(crate) async fn look(database: &Database, key: &SubjectKey, token: &str) -> Result<Link> {
    let Some(deletion) = read(key, token) else { return Ok(Link::Unknown) };
    let mut tx = database.read().await?;
    let found = store::link(&mut tx, deletion).await?;
    tx.commit().await?;
    let Some(row) = found else { return Ok(Link::Unknown) };
    Ok(match row.state.as_str() {
        "pending" | "warned" | "failed" => Link::Open(Box::new(Standing {
            deleted_at: row.deleted_at,
            due_at: row.due_at,
            now: row.now,
            zone: row.zone.unwrap_or_else(|| "UTC".into()),
            texts: serde_json::from_value(row.texts).unwrap_or_default(),
        })),
        "restored" => Link::Used,
        _ => Link::Gone,
    })
}

/// Uses a link: true when this call restored the subject, otherwise what the link is by now.
pub(crate) async fn restore(database: &Database, key: &SubjectKey, token: &str) -> Result<(bool, Link)> {
    let Some(deletion) = read(key, token) else { return Ok((false, Link::Unknown)) };
    let became = match restore_deletion(database, deletion).await {
        Err(error) if error.is_refused() => {
            // What the table says may name anybody, and the log outlives them.
            tracing::warn!(%deletion, sqlstate = error.sqlstate(), "A restore link was refused");
            let link = match look(database, key, token).await? {
                Link::Open(standing) => Link::Refused(standing),
                other => other,
            };
            return Ok((false, link));
        }
        became => became?,
    };
    Ok(match became.as_str() {
        "restored" => {
            tracing::info!(%deletion, by = "restore link", "Subject restored");
            (true, Link::Used)
        }
        "used" => (false, Link::Used),
        "gone" => (false, Link::Gone),
        "unknown" => (false, Link::Unknown),
        other => return Err(Error::failed(format!("ebb.restore_deletion answered {other}"))),
    })
}

async fn restore_deletion(database: &Database, deletion: Uuid) -> Result<String> {
    let mut tx = database.read().await?;
    let became = store::restore_deletion(&mut tx, deletion, "restore link").await?;
    subject::commit(tx).await?;
    Ok(became)
}

/// Where the links of warnings lead.
#[derive(Debug, Clone)]
pub(crate) struct Place(String);

impl Place {
    /// The policy's own address, or Ebb's page on this node.
    pub(crate) fn of(restore_url: Option<&str>, public_url: Option<&str>) -> Result<Self> {
        match (restore_url, public_url) {
            (Some(url), _) => Ok(Self(url.to_owned())),
            (None, Some(public)) => Ok(Self(format!("{}/restore/{{token}}", public.trim_end_matches('/')))),
            (None, None) => Err(Error::config("the link in a warning would lead nowhere")
                .with_hint("set public_url in [http] to where people reach this node, or restore_url in the policy")),
        }
    }

    pub(crate) fn link(&self, token: &str) -> String {
        self.0.replace("{token}", token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_makes_links_and_a_changed_one_is_none() {
        let (key, deletion) = (SubjectKey::from_bytes([7; 32]), Uuid::from_u128(42));
        let link = token(&key, deletion);
        assert_eq!((link.len(), read(&key, &link)), (64, Some(deletion)));
        assert_eq!(read(&SubjectKey::from_bytes([8; 32]), &link), None);
        for at in 0..link.len() {
            let mut other = link.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(read(&key, std::str::from_utf8(&other).unwrap()), None, "{at}");
        }
        for wrong in ["", "x", "é", &link[1..], &format!("{link}AAAA"), &format!("{link}="), "../../etc/passwd"] {
            assert_eq!(read(&key, wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_link_leads_to_the_policys_address_or_to_this_node() {
        let at = |url: Option<&str>, public: Option<&str>| Place::of(url, public).map(|place| place.link("T"));
        assert_eq!(
            at(Some("https://a.test/?t={token}&x=1"), Some("https://b.test")).unwrap(),
            "https://a.test/?t=T&x=1"
        );
        assert_eq!(at(None, Some("https://b.test/ebb/")).unwrap(), "https://b.test/ebb/restore/T");
        assert!(at(None, None).unwrap_err().hint().unwrap().contains("public_url"));
    }
}
