//! Sealing: one block of the chain in one transaction. Invariants: a block is made from one snapshot, never past a
//! transaction that may still commit; numbers have no gap; each seal covers everything before it.

use std::fmt;

use sha2::{Digest, Sha256};
use sqlx::PgConnection;

use super::merkle::{Hash, root};
use super::record::{Frames, Xid};
use super::{Moment, SigningKey, store};
use crate::Result;

/// How many records a block has at most, unless the caller says otherwise: some 20 ms of work and a proof of 14 hashes.
pub const MAX_RECORDS: usize = 10_000;

/// A link of the chain, as it is stored. The byte strings are whatever the database has; verifying judges them.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Block {
    /// 1, 2, 3 …
    pub number: i64,
    /// The seal of the block before; 32 zero bytes for the first.
    pub previous: Vec<u8>,
    /// The Merkle root over its records.
    pub root: Vec<u8>,
    /// How many records.
    pub records: i64,
    /// When, by the database's clock.
    pub sealed_at: Moment,
    /// Which key signed it.
    pub key_id: String,
    /// Ed25519 over all of the above.
    pub signature: Vec<u8>,
    /// The hash of all of the above.
    pub seal: Vec<u8>,
}

impl Block {
    /// What the first block has for its previous seal.
    pub const GENESIS: Hash = [0; 32];

    /// The bytes that are signed.
    pub fn encode(&self) -> Vec<u8> {
        let mut frames = Frames::new("ebb audit block 1");
        frames.number(self.number);
        frames.field(Some(&self.previous));
        frames.field(Some(&self.root));
        frames.number(self.records);
        frames.number(self.sealed_at.micros());
        frames.text(Some(&self.key_id));
        frames.bytes
    }

    /// What its seal must be.
    pub fn compute_seal(&self) -> Hash {
        let mut frames = Frames::new("ebb audit seal 1");
        frames.field(Some(&self.encode()));
        frames.field(Some(&self.signature));
        Sha256::digest(&frames.bytes).into()
    }

    fn sign(mut self, key: &SigningKey) -> Self {
        key.key_id().clone_into(&mut self.key_id);
        self.signature = key.sign(&self.encode()).to_vec();
        self.seal = self.compute_seal().to_vec();
        self
    }
}

/// What one step of sealing made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// The new block.
    pub block: Block,
    /// Whether another block could be made at once.
    pub more: bool,
}

/// Seals up to `max_records` settled records into the next block; `None` when there are none. Runs inside a transaction
/// that the caller has begun and fenced. When another sealer makes the same block first, the error `is_fenced()` and the
/// transaction is to be rolled back. After the commit, publish.
pub async fn seal_once(tx: &mut PgConnection, key: &SigningKey, max_records: usize) -> Result<Option<Seal>> {
    let max_records = max_records.clamp(1, i32::MAX as usize);
    store::prepare_seal(tx).await?;
    // The tip first: whatever another sealer commits after this look, the number collides.
    let tip = store::tip(tx).await?;
    let mut records = store::sealable(tx, max_records as i64 + 1).await?;
    if records.is_empty() {
        return Ok(None);
    }
    let more = records.len() > max_records;
    records.truncate(max_records);
    debug_assert!(records.is_sorted_by_key(|record| (record.xid, record.id)));

    let hashes: Vec<Hash> = records.iter().map(super::Record::leaf_hash).collect();
    let ids: Vec<i64> = records.iter().map(|record| record.id).collect();
    let (number, previous) = match tip {
        None => (1, Block::GENESIS.to_vec()),
        Some(tip) => (tip.number + 1, tip.seal),
    };
    let block = Block {
        number,
        previous,
        root: root(&hashes).to_vec(),
        records: ids.len() as i64,
        sealed_at: store::clock(tx).await?,
        key_id: String::new(),
        signature: Vec::new(),
        seal: Vec::new(),
    }
    .sign(key);
    store::insert_block(tx, &block, &ids, &hashes).await?;
    Ok(Some(Seal { block, more }))
}

/// How many records wait for a seal, counted up to `limit` (the gauge `ebb_audit_unsealed`).
pub async fn unsealed(tx: &mut PgConnection, limit: i64) -> Result<i64> {
    store::unsealed(tx, limit).await
}

/// What keeps records from being sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// A process or a prepared transaction.
    pub kind: BlockerKind,
    /// Its transaction.
    pub xid: Xid,
    /// The database it is in, where this role may see it.
    pub database: Option<String>,
    /// Whose it is.
    pub role: Option<String>,
    /// What it calls itself.
    pub application: Option<String>,
    /// When the transaction began, or was prepared.
    pub since: Option<Moment>,
    /// The first record that waits behind it.
    pub record: i64,
    /// When that record was made.
    pub record_at: Moment,
}

/// What kind of transaction it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockerKind {
    /// A server process.
    Process(i32),
    /// A prepared transaction, by its name.
    Prepared(String),
    /// Neither could be seen.
    Unknown,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            BlockerKind::Process(pid) => write!(f, "process {pid}")?,
            BlockerKind::Prepared(gid) => write!(f, "the prepared transaction '{gid}'")?,
            BlockerKind::Unknown => write!(f, "transaction {}", self.xid)?,
        }
        if let Some(database) = &self.database {
            write!(f, " in database {database}")?;
        }
        if let Some(since) = self.since {
            write!(f, ", open since {since},")?;
        }
        write!(f, " keeps record {} of {} from being sealed", self.record, self.record_at)
    }
}

/// What holds sealing back, when a record has waited behind it for more than a minute.
pub async fn blocker(tx: &mut PgConnection) -> Result<Option<Blocker>> {
    store::blocker(tx).await
}

#[derive(sqlx::FromRow)]
pub(super) struct BlockerRow {
    pid: Option<i32>,
    gid: Option<String>,
    #[sqlx(try_from = "String")]
    xid: Xid,
    database: Option<String>,
    role: Option<String>,
    application: Option<String>,
    since: Option<Moment>,
    record: i64,
    record_at: Moment,
}

impl From<BlockerRow> for Blocker {
    fn from(row: BlockerRow) -> Self {
        let kind = match (row.pid, row.gid) {
            (Some(pid), _) => BlockerKind::Process(pid),
            (None, Some(gid)) => BlockerKind::Prepared(gid),
            (None, None) => BlockerKind::Unknown,
        };
        Self {
            kind,
            xid: row.xid,
            database: row.database,
            role: row.role,
            application: row.application,
            since: row.since,
            record: row.record,
            record_at: row.record_at,
        }
    }
}
