//! Verifying: recomputes every hash, root, link and signature from the stored rows. Invariants: memory stays bounded
//! however long the audit is; sealing may go on meanwhile; only keys and seals from outside the database are believed.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use serde::Serialize;
use sqlx::PgConnection;

use super::merkle::Tree;
use super::{Block, Published, TrustedKeys, store};
use crate::Result;
use crate::pg::{Database, Guard};
use crate::words::plural;

/// No statement of a verification touches more than one block or one page.
const GUARD: Guard = Guard { statement: Duration::from_secs(300), lock: Duration::from_secs(5) };
const BLOCKS_A_TRANSACTION: i64 = 50;
const RECORDS_A_PAGE: i64 = 20_000;
const PROBLEMS_LISTED: usize = 1_000;

/// What a verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// How many blocks were recomputed.
    pub blocks: u64,
    /// How many sealed records were recomputed.
    pub records: u64,
    /// How many records wait for a seal: nothing proves those yet.
    pub unsealed: u64,
    /// The number of the last block.
    pub last_block: Option<i64>,
    /// What is wrong, in the order of the chain; the first thousand.
    pub problems: Vec<Problem>,
    /// How many more there are.
    pub problems_left_out: u64,
}

impl Report {
    /// Whether everything sealed is as it was sealed.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }

    fn add(&mut self, problem: Problem) {
        if self.problems.len() < PROBLEMS_LISTED {
            self.problems.push(problem);
        } else {
            self.problems_left_out += 1;
        }
    }
}

/// One thing that is not as it was sealed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is explained by its message")]
pub enum Problem {
    RecordChanged { record: i64, block: i64 },
    RecordDeleted { record: i64, block: i64 },
    RecordDeletedUnsealed { record: i64 },
    RecordForgotten { record: i64 },
    RecordWaitsSealed { record: i64 },
    RecordRepeated { record: i64 },
    BlockMissing { from: i64, to: i64 },
    BlockUnexpected { block: i64 },
    BlockSealWrong { block: i64 },
    BlockUnlinked { block: i64 },
    BlockKeyUntrusted { block: i64, key_id: String },
    BlockSignatureWrong { block: i64 },
    BlockCountWrong { block: i64, signed: i64, listed: u64 },
    BlockRootWrong { block: i64 },
    EntriesWithoutBlock { block: i64 },
    TailCutOff { published: i64, last: i64 },
    PublishedDiffers { block: i64 },
    PublishedUntrusted { block: i64, key_id: String },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecordChanged { record, block } => {
                write!(f, "record {record} was changed after it was sealed in block {block}")
            }
            Self::RecordDeleted { record, block } => {
                write!(f, "record {record} was deleted after it was sealed in block {block}")
            }
            Self::RecordDeletedUnsealed { record } => write!(f, "record {record} was deleted before it was sealed"),
            Self::RecordForgotten { record } => {
                write!(
                    f,
                    "record {record} is in no block and does not wait for one: it was added past the audit, or its entry was removed"
                )
            }
            Self::RecordWaitsSealed { record } => {
                write!(f, "record {record} waits for a seal although a block has it: nothing can be sealed")
            }
            Self::RecordRepeated { record } => write!(f, "record {record} is listed more than once"),
            Self::BlockMissing { from, to } if from == to => write!(f, "block {from} is missing"),
            Self::BlockMissing { from, to } => write!(f, "blocks {from} to {to} are missing"),
            Self::BlockUnexpected { block } => write!(f, "block {block} comes before the first"),
            Self::BlockSealWrong { block } => {
                write!(f, "block {block} was changed: its seal is not the hash of its content")
            }
            Self::BlockUnlinked { block } => {
                write!(f, "block {block} does not continue the block before: one of them was changed or replaced")
            }
            Self::BlockKeyUntrusted { block, key_id } => {
                write!(f, "block {block} is signed by key {key_id}, which is not among the trusted keys")
            }
            Self::BlockSignatureWrong { block } => write!(f, "the signature of block {block} does not fit its content"),
            Self::BlockCountWrong { block, signed, listed } => {
                write!(f, "block {block} was sealed over {} and lists {listed}", plural(*signed, "record"))
            }
            Self::BlockRootWrong { block } => {
                write!(
                    f,
                    "what block {block} lists is not what was sealed: an entry was changed, moved, added or removed"
                )
            }
            Self::EntriesWithoutBlock { block } => {
                write!(f, "records are listed for block {block}, which does not exist")
            }
            Self::TailCutOff { published, last } => {
                write!(f, "block {published} was published and the chain ends at block {last}: its tail was cut off")
            }
            Self::PublishedDiffers { block } => write!(f, "block {block} is not the one that was published"),
            Self::PublishedUntrusted { block, key_id } => {
                write!(f, "the published seal of block {block} is not signed by a trusted key (it names {key_id})")
            }
        }
    }
}

/// Recomputes the whole audit. `keys` and `published` come from outside the database.
pub async fn verify(database: &Database, keys: &TrustedKeys, published: Option<&Published>) -> Result<Report> {
    let mut report = Report::default();
    let mut tx = database.begin(GUARD).await?;
    report.last_block = store::tip(&mut tx).await?.map(|tip| tip.number);
    tx.commit().await?;

    check_chain(database, keys, published, &mut report).await?;
    check_published(keys, published, &mut report);
    check_membership(database, &mut report).await?;
    Ok(report)
}

/// Block by block from the first to what was the last when the verification began.
async fn check_chain(
    database: &Database,
    keys: &TrustedKeys,
    published: Option<&Published>,
    report: &mut Report,
) -> Result<()> {
    let last = report.last_block.unwrap_or(0);
    let mut after = i64::MIN;
    let mut before = (0, Block::GENESIS.to_vec());
    loop {
        let mut tx = database.begin(GUARD).await?;
        let blocks = store::blocks(&mut tx, after, last, BLOCKS_A_TRANSACTION).await?;
        let Some(page_end) = blocks.last().map(|block| block.number) else { break };
        for block in &blocks {
            check_link(block, &before, keys, report);
            check_leaves(&mut tx, block, report).await?;
            if published
                .is_some_and(|published| published.number == block.number && published.seal != hex::encode(&block.seal))
            {
                report.add(Problem::PublishedDiffers { block: block.number });
            }
            report.blocks += 1;
            if block.number > before.0 {
                before = (block.number, block.seal.clone());
            }
        }
        after = page_end;
        tx.commit().await?;
    }
    Ok(())
}

fn check_link(block: &Block, (number, seal): &(i64, Vec<u8>), keys: &TrustedKeys, report: &mut Report) {
    if block.number < 1 {
        report.add(Problem::BlockUnexpected { block: block.number });
    } else if block.number > number + 1 {
        report.add(Problem::BlockMissing { from: number + 1, to: block.number - 1 });
    } else if block.previous != *seal {
        report.add(Problem::BlockUnlinked { block: block.number });
    }
    if block.seal != block.compute_seal() {
        report.add(Problem::BlockSealWrong { block: block.number });
    }
    if !keys.contains(&block.key_id) {
        report.add(Problem::BlockKeyUntrusted { block: block.number, key_id: block.key_id.clone() });
    } else if !keys.verify(&block.key_id, &block.encode(), &block.signature) {
        report.add(Problem::BlockSignatureWrong { block: block.number });
    }
}

/// Whether the block lists what was signed, and every record it lists is what it was.
async fn check_leaves(tx: &mut PgConnection, block: &Block, report: &mut Report) -> Result<()> {
    let number = block.number;
    let mut tree = Tree::default();
    let mut in_place = true;
    let mut leaves = pin!(store::leaves(tx, number));
    while let Some(leaf) = leaves.try_next().await? {
        in_place &= i64::from(leaf.position) == tree.size() as i64;
        match &leaf.found {
            None => report.add(Problem::RecordDeleted { record: leaf.record, block: number }),
            Some(record) if record.leaf_hash()[..] != leaf.hash[..] => {
                report.add(Problem::RecordChanged { record: leaf.record, block: number });
            }
            Some(_) => report.records += 1,
        }
        // A hash of another length is none; the root then fails.
        tree.push(leaf.hash.try_into().unwrap_or_default());
    }
    if i64::try_from(tree.size()) != Ok(block.records) {
        report.add(Problem::BlockCountWrong { block: number, signed: block.records, listed: tree.size() });
    } else if !in_place || tree.root()[..] != block.root[..] {
        report.add(Problem::BlockRootWrong { block: number });
    }
    Ok(())
}

fn check_published(keys: &TrustedKeys, published: Option<&Published>, report: &mut Report) {
    let Some(published) = published else { return };
    let signed = published.block().is_some_and(|block| {
        block.seal == block.compute_seal() && keys.verify(&block.key_id, &block.encode(), &block.signature)
    });
    if !signed {
        report.add(Problem::PublishedUntrusted { block: published.number, key_id: published.key_id.clone() });
    }
    let last = report.last_block.unwrap_or(0);
    if last < published.number {
        report.add(Problem::TailCutOff { published: published.number, last });
    }
}

/// Whether every record is in one block or waits for one.
async fn check_membership(database: &Database, report: &mut Report) -> Result<()> {
    let mut tx = database.begin(GUARD).await?;
    for block in store::orphaned(&mut tx, report.last_block.unwrap_or(0)).await? {
        report.add(Problem::EntriesWithoutBlock { block });
    }
    for (record, sealed) in store::misplaced(&mut tx).await? {
        report.add(if sealed {
            Problem::RecordWaitsSealed { record }
        } else {
            Problem::RecordDeletedUnsealed { record }
        });
    }
    report.unsealed = store::unsealed(&mut tx, i64::MAX).await?.unsigned_abs();
    tx.commit().await?;

    let mut after = i64::MIN;
    loop {
        let mut tx = database.begin(GUARD).await?;
        let page = store::strays(&mut tx, after, RECORDS_A_PAGE).await?;
        tx.commit().await?;
        page.forgotten.into_iter().for_each(|record| report.add(Problem::RecordForgotten { record }));
        page.repeated.into_iter().for_each(|record| report.add(Problem::RecordRepeated { record }));
        match page.last {
            Some(last) => after = last,
            None => return Ok(()),
        }
    }
}
