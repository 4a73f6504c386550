//! Records: what a chore inserts, what is stored, and the bytes that are hashed. Invariant: the encoding is canonical
//! and framed by length, so no two records share it, and it covers every column, so no column can change unnoticed.

use std::fmt;

use serde::Serialize;
use serde::ser::SerializeStruct;
use sqlx::PgConnection;

use super::merkle::{Hash, leaf_hash};
use super::{Moment, SubjectKey, store};
use crate::{Error, Result};

/// What a chore says about what it did. Inserted in the transaction that did it.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// What was done: expire, policy, pause, …
    pub action: String,
    /// For which policy.
    pub policy: Option<String>,
    /// Which version of it.
    pub policy_version: Option<i64>,
    /// On which table.
    pub relation: Option<String>,
    /// To how many rows.
    pub rows: i64,
    /// What was due before it.
    pub cutoff: Option<Moment>,
    /// The oldest due time among the rows.
    pub due_from: Option<Moment>,
    /// The newest due time among the rows.
    pub due_to: Option<Moment>,
    /// In which run.
    pub run: Option<i64>,
    /// By which node.
    pub node: Option<String>,
    /// Who the caller says it is; the server adds who it knows it is.
    pub by: String,
    /// Whose data it was: an HMAC, never the id itself.
    pub subject: Option<Hash>,
    /// Anything else; an object.
    pub details: serde_json::Value,
}

impl Entry {
    /// An entry that says what was done and who says so.
    pub fn new(action: impl Into<String>, by: impl Into<String>) -> Self {
        Self { action: action.into(), by: by.into(), details: serde_json::json!({}), ..Self::default() }
    }

    /// Inserts it; returns the record's id.
    pub async fn insert(&self, tx: &mut PgConnection) -> Result<i64> {
        self.check()?;
        store::insert(tx, self).await
    }

    /// Inserts one record for each row, all alike but for the row's pseudonym and due time (`audit = "rows"`).
    /// Returns how many.
    pub async fn insert_rows(&self, tx: &mut PgConnection, rows: &[RowEntry]) -> Result<u64> {
        self.check()?;
        if rows.is_empty() {
            return Ok(0);
        }
        store::insert_rows(tx, self, rows).await
    }

    fn check(&self) -> Result<()> {
        match self.details {
            serde_json::Value::Object(_) | serde_json::Value::Null => Ok(()),
            _ => Err(Error::usage("the details of an audit record are an object")),
        }
    }
}

/// One row that was acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowEntry {
    /// The HMAC of its key.
    pub subject: Hash,
    /// When it was due.
    pub due: Option<Moment>,
}

impl RowEntry {
    /// Replaces the row's key, in its text form, by its pseudonym.
    pub fn new(key: &SubjectKey, row_key: &str, due: Option<Moment>) -> Self {
        Self { subject: key.pseudonym(row_key.as_bytes()), due }
    }
}

/// The 64-bit number of the transaction that inserted a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xid(pub u64);

impl TryFrom<String> for Xid {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A record as it is stored, every column.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
#[expect(missing_docs, reason = "the columns of ebb.audit, explained at Entry")]
pub struct Record {
    pub id: i64,
    #[sqlx(try_from = "String")]
    pub xid: Xid,
    pub at: Moment,
    pub action: String,
    pub policy: Option<String>,
    pub policy_version: Option<i64>,
    pub relation: Option<String>,
    pub rows: i64,
    pub cutoff: Option<Moment>,
    pub due_from: Option<Moment>,
    pub due_to: Option<Moment>,
    pub run: Option<i64>,
    pub node: Option<String>,
    #[sqlx(rename = "by_name")]
    pub by: String,
    pub session_role: String,
    pub subject: Option<Vec<u8>>,
    /// The text form of the jsonb.
    pub details: String,
}

impl Record {
    /// The bytes that are hashed: a version, then every column in the table's order, each absent (0) or present (1),
    /// its length in four bytes, its content. Numbers are eight bytes, most significant first.
    pub fn encode(&self) -> Vec<u8> {
        let mut frames = Frames::new("ebb audit record 1");
        frames.number(self.id);
        frames.field(Some(&self.xid.0.to_be_bytes()));
        frames.number(self.at.micros());
        frames.text(Some(&self.action));
        frames.text(self.policy.as_deref());
        frames.optional(self.policy_version);
        frames.text(self.relation.as_deref());
        frames.number(self.rows);
        frames.optional(self.cutoff.map(Moment::micros));
        frames.optional(self.due_from.map(Moment::micros));
        frames.optional(self.due_to.map(Moment::micros));
        frames.optional(self.run);
        frames.text(self.node.as_deref());
        frames.text(Some(&self.by));
        frames.text(Some(&self.session_role));
        frames.field(self.subject.as_deref());
        frames.text(Some(&self.details));
        frames.bytes
    }

    /// What it is in a block's Merkle tree.
    pub fn leaf_hash(&self) -> Hash {
        leaf_hash(&self.encode())
    }
}

impl Serialize for Record {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let details: serde_json::Value = serde_json::from_str(&self.details).map_err(serde::ser::Error::custom)?;
        let mut record = serializer.serialize_struct("Record", 17)?;
        record.serialize_field("id", &self.id)?;
        record.serialize_field("xid", &self.xid.0)?;
        record.serialize_field("at", &self.at)?;
        record.serialize_field("action", &self.action)?;
        record.serialize_field("policy", &self.policy)?;
        record.serialize_field("policy_version", &self.policy_version)?;
        record.serialize_field("relation", &self.relation)?;
        record.serialize_field("rows", &self.rows)?;
        record.serialize_field("cutoff", &self.cutoff)?;
        record.serialize_field("due_from", &self.due_from)?;
        record.serialize_field("due_to", &self.due_to)?;
        record.serialize_field("run", &self.run)?;
        record.serialize_field("node", &self.node)?;
        record.serialize_field("by", &self.by)?;
        record.serialize_field("session_role", &self.session_role)?;
        record.serialize_field("subject", &self.subject.as_ref().map(hex::encode))?;
        record.serialize_field("details", &details)?;
        record.end()
    }
}

/// Fields framed by presence and length: concatenating them cannot be read in two ways.
pub(super) struct Frames {
    pub(super) bytes: Vec<u8>,
}

impl Frames {
    /// Starts with what is being framed and its version, so that one kind can never be taken for another.
    pub(super) fn new(kind: &str) -> Self {
        let mut frames = Self { bytes: Vec::with_capacity(256) };
        frames.text(Some(kind));
        frames
    }

    pub(super) fn field(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.bytes.push(0),
            Some(value) => {
                // A field of PostgreSQL has at most 1 GB.
                debug_assert!(value.len() <= u32::MAX as usize);
                self.bytes.push(1);
                self.bytes.extend_from_slice(&(value.len() as u32).to_be_bytes());
                self.bytes.extend_from_slice(value);
            }
        }
    }

    pub(super) fn number(&mut self, value: i64) {
        self.field(Some(&value.to_be_bytes()));
    }

    pub(super) fn text(&mut self, value: Option<&str>) {
        self.field(value.map(str::as_bytes));
    }

    fn optional(&mut self, value: Option<i64>) {
        self.field(value.map(i64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            id: 17,
            xid: Xid(742),
            at: Moment::from_micros(1_700_000_000_000_000),
            action: "expire".into(),
            policy: Some("sessions".into()),
            policy_version: Some(3),
            relation: Some("public.sessions".into()),
            rows: 500,
            cutoff: Some(Moment::from_micros(1)),
            due_from: Some(Moment::NEG_INFINITY),
            due_to: None,
            run: Some(9),
            node: Some("a".into()),
            by: "ebb".into(),
            session_role: "ebb_node".into(),
            subject: None,
            details: "{}".into(),
        }
    }

    #[test]
    fn the_encoding_does_not_change_between_releases() {
        assert_eq!(
            hex::encode(record().leaf_hash()),
            "2cf524f921f9d8445c3b78ec8e0a5c49d6fcc06ad686e2d59374a1ce71858c33",
            "sealed records would no longer verify: make a version 2 beside it"
        );
    }

    #[test]
    fn moving_bytes_between_neighbours_changes_the_encoding() {
        let moved = Record { policy: Some("sessionspublic".into()), relation: Some(".sessions".into()), ..record() };
        assert_ne!(moved.encode(), record().encode());
        let emptied = Record { node: Some(String::new()), ..record() };
        let absent = Record { node: None, ..record() };
        assert_ne!(emptied.encode(), absent.encode());
    }
}
