//! Receipts: one record with everything that proves it. Invariant: a receipt verifies with the public keys alone, without
//! a database, and stops verifying when any byte of what it says changes.

use std::fmt;

use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::merkle::{Hash, inclusion_proof, verify_inclusion};
use super::record::{Record, Xid};
use super::{Block, Moment, Published, TrustedKeys, store};
use crate::{Error, Result};

/// A record, its block, and the way from one to the other.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Receipt {
    /// The form of this document.
    pub version: u8,
    /// What was done.
    pub record: Entered,
    /// The block that seals it.
    pub block: Published,
    /// Where in the block it is.
    pub position: u64,
    /// The hashes that lead from the record to the block's root, in hex.
    pub proof: Vec<String>,
}

/// Every column of a record, as it is hashed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[expect(missing_docs, reason = "the columns of ebb.audit, explained at Entry")]
pub struct Entered {
    pub id: i64,
    pub xid: u64,
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
    pub by: String,
    pub session_role: String,
    /// In hex.
    pub subject: Option<String>,
    /// The text of the details: they are hashed as they are written.
    pub details: String,
}

/// Why a receipt does not verify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refuted(String);

impl fmt::Display for Refuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Receipt {
    /// Reads a receipt. What it says is written in one way only: a key that was added, left out or renamed would say
    /// something that no hash covers.
    pub fn read(text: &str) -> std::result::Result<Self, Refuted> {
        let no_receipt = |error: serde_json::Error| Refuted(format!("this is no receipt: {error}"));
        let receipt: Self = serde_json::from_str(text).map_err(no_receipt)?;
        let given: serde_json::Value = serde_json::from_str(text).map_err(no_receipt)?;
        if serde_json::to_value(receipt.as_given_out()).map_err(no_receipt)? != given {
            return Err(Refuted(
                "it is not written as it was given out: something was added, left out or renamed".into(),
            ));
        }
        Ok(receipt)
    }

    /// The same as Ebb writes it; as it is where something cannot be read, which [`Receipt::verify`] says.
    fn as_given_out(&self) -> Self {
        let (Some(record), Some(block)) = (self.record.record(), self.block.block()) else { return self.clone() };
        let hashes: Vec<String> = self.proof.iter().map(|hash| hash.to_lowercase()).collect();
        Self { record: Entered::new(&record), block: published(&block), proof: hashes, ..*self }
    }

    /// Recomputes everything; only the given keys are believed.
    pub fn verify(&self, keys: &TrustedKeys) -> std::result::Result<(), Refuted> {
        let refuse = |why: &str| Err(Refuted(why.to_owned()));
        if self.version != 1 {
            return refuse("its version is unknown");
        }
        let Some(block) = self.block.block() else { return refuse("its block cannot be read") };
        let Some(record) = self.record.record() else { return refuse("its record cannot be read") };
        if block.seal[..] != block.compute_seal()[..] {
            return refuse("the block's seal is not the hash of its content");
        }
        if !keys.contains(&block.key_id) {
            return Err(Refuted(format!(
                "the block is signed by key {}, which is not among the given ones",
                block.key_id
            )));
        }
        if !keys.verify(&block.key_id, &block.encode(), &block.signature) {
            return refuse("the signature does not fit the block");
        }
        let Ok(root) = Hash::try_from(block.root.as_slice()) else { return refuse("the block's root cannot be read") };
        let proof: Option<Vec<Hash>> =
            self.proof.iter().map(|hash| hex::decode(hash).ok().and_then(|bytes| bytes.try_into().ok())).collect();
        let Some(proof) = proof else { return refuse("its proof cannot be read") };
        let size = block.records.unsigned_abs();
        if !verify_inclusion(&record.leaf_hash(), self.position, size, &proof, &root) {
            return refuse("the record is not what the block sealed");
        }
        Ok(())
    }
}

impl Entered {
    fn new(record: &Record) -> Self {
        let record = record.clone();
        Self {
            id: record.id,
            xid: record.xid.0,
            at: record.at,
            action: record.action,
            policy: record.policy,
            policy_version: record.policy_version,
            relation: record.relation,
            rows: record.rows,
            cutoff: record.cutoff,
            due_from: record.due_from,
            due_to: record.due_to,
            run: record.run,
            node: record.node,
            by: record.by,
            session_role: record.session_role,
            subject: record.subject.map(hex::encode),
            details: record.details,
        }
    }

    fn record(&self) -> Option<Record> {
        let entered = self.clone();
        Some(Record {
            id: entered.id,
            xid: Xid(entered.xid),
            at: entered.at,
            action: entered.action,
            policy: entered.policy,
            policy_version: entered.policy_version,
            relation: entered.relation,
            rows: entered.rows,
            cutoff: entered.cutoff,
            due_from: entered.due_from,
            due_to: entered.due_to,
            run: entered.run,
            node: entered.node,
            by: entered.by,
            session_role: entered.session_role,
            subject: entered.subject.map(hex::decode).transpose().ok()?,
            details: entered.details,
        })
    }
}

/// Makes the receipt of a record; refused while no block has it.
pub async fn receipt(tx: &mut PgConnection, record: i64) -> Result<Receipt> {
    let Some(block) = store::block_of(tx, record).await? else {
        return Err(match store::exists(tx, record).await? {
            true => Error::refused(format!("record {record} is not sealed yet"))
                .with_hint("a node with the signing key seals within seconds: ebb run"),
            false => Error::unknown(format!("there is no record {record}")).with_hint("`ebb audit list` shows them"),
        });
    };
    let leaves: Vec<store::Leaf> = store::leaves(tx, block.number).try_collect().await?;
    let position = leaves.iter().position(|leaf| leaf.record == record);
    let position =
        position.ok_or_else(|| Error::failed(format!("block {} does not list record {record}", block.number)))?;
    let Some(found) = &leaves[position].found else {
        return Err(Error::failed(format!("record {record} was deleted")));
    };
    let hashes: Vec<Hash> = leaves.iter().map(|leaf| leaf.hash.clone().try_into().unwrap_or_default()).collect();
    let proof = inclusion_proof(&hashes, position).ok_or_else(|| Error::failed("the block lists no such position"))?;
    Ok(Receipt {
        version: 1,
        record: Entered::new(found),
        block: published(&block),
        position: position as u64,
        proof: proof.iter().map(hex::encode).collect(),
    })
}

/// The record of the erasure of a subject, by its pseudonym; the latest one.
pub async fn erasure_of(tx: &mut PgConnection, subject: &Hash) -> Result<Option<i64>> {
    store::erasure_of(tx, subject).await
}

/// Whether any erasure is on record under a pseudonym.
pub async fn any_erasure(tx: &mut PgConnection) -> Result<bool> {
    store::any_erasure(tx).await
}

/// The record of an erasure, by the deletion's id.
pub async fn erasure_by_deletion(tx: &mut PgConnection, deletion: uuid::Uuid) -> Result<Option<i64>> {
    store::erasure_by_deletion(tx, deletion).await
}

fn published(block: &Block) -> Published {
    Published {
        number: block.number,
        previous: hex::encode(&block.previous),
        root: hex::encode(&block.root),
        records: block.records,
        sealed_at: block.sealed_at,
        key_id: block.key_id.clone(),
        signature: hex::encode(&block.signature),
        seal: hex::encode(&block.seal),
    }
}
