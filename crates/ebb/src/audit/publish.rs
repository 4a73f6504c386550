//! The latest seal, outside the database. Without it a chain whose last blocks were cut off would verify. Invariant: a
//! published seal is replaced only by one of the same chain: whoever cuts the tail off cannot grow a new one over it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::key::{cannot, with_suffix, write_atomically};
use super::{Block, Moment, store};
use crate::pg::Database;
use crate::{Error, Result};

/// Where seals go (`publish` of `[audit]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// A file, written in one step.
    File(PathBuf),
}

impl Destination {
    /// The default: beside the signing key.
    pub fn beside(signing_key: &Path) -> Self {
        Self::File(with_suffix(signing_key, ".seal"))
    }

    /// What was published last.
    pub fn read(&self) -> Result<Option<Published>> {
        let Self::File(path) = self;
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot("read", path, error)),
        };
        let published = serde_json::from_str(&text).map_err(|error| {
            Error::failed(format!("{} is not a published seal: {error}", path.display())).with_source(error)
        })?;
        Ok(Some(published))
    }

    /// Publishes the last committed block, unless the chain is not the one that was published before.
    pub async fn publish(&self, database: &Database) -> Result<Option<Published>> {
        let mut tx = database.read().await?;
        let published = self.publish_tip(&mut tx).await?;
        tx.commit().await?;
        Ok(published)
    }

    /// The last block, where it is not the one that was published: whoever sealed it could not publish it, or did not live to.
    pub async fn behind(&self, connection: &mut PgConnection) -> Result<Option<Published>> {
        // In this order: what is published meanwhile is not behind.
        let published = self.read()?;
        let tip = store::tip(connection).await?.as_ref().map(Published::from);
        Ok(if tip == published { None } else { tip })
    }

    /// Publishes the last block that a transaction sees; it must have committed.
    pub(super) async fn publish_tip(&self, tx: &mut PgConnection) -> Result<Option<Published>> {
        let before = self.read()?;
        let tip = store::tip(tx).await?;
        let same = match &before {
            None => true,
            Some(before) => store::blocks(tx, before.number.saturating_sub(1), before.number, 1)
                .await?
                .first()
                .is_some_and(|block| hex::encode(&block.seal) == before.seal),
        };
        let Self::File(path) = self;
        if !same {
            let number = before.map_or(0, |before| before.number);
            return Err(Error::refused(format!("block {number} of the audit was published and is not in the database"))
                .with_hint(format!(
                    "run `ebb audit verify`; if the database was restored from a backup on purpose, keep {} and move it away",
                    path.display()
                )));
        }
        let Some(tip) = tip else { return Ok(None) };
        let published = Published::from(&tip);
        if before.as_ref() != Some(&published) {
            let mut json = serde_json::to_string_pretty(&published)
                .map_err(|error| Error::failed("a seal cannot be written as JSON").with_source(error))?;
            json.push('\n');
            write_atomically(path, &json, 0o644)?;
        }
        Ok(Some(published))
    }
}

/// A block as it is published: everything that its signature covers, byte strings in hex.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Published {
    /// The block's number.
    pub number: i64,
    /// The seal of the block before.
    pub previous: String,
    /// The Merkle root.
    pub root: String,
    /// How many records the block has.
    pub records: i64,
    /// When it was sealed.
    pub sealed_at: Moment,
    /// Which key signed it.
    pub key_id: String,
    /// The signature.
    pub signature: String,
    /// The seal.
    pub seal: String,
}

impl Published {
    /// The block, where the byte strings are in hex.
    pub fn block(&self) -> Option<Block> {
        Some(Block {
            number: self.number,
            previous: hex::decode(&self.previous).ok()?,
            root: hex::decode(&self.root).ok()?,
            records: self.records,
            sealed_at: self.sealed_at,
            key_id: self.key_id.clone(),
            signature: hex::decode(&self.signature).ok()?,
            seal: hex::decode(&self.seal).ok()?,
        })
    }
}

impl From<&Block> for Published {
    fn from(block: &Block) -> Self {
        Self {
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
}
