//! Proof of what was done. Every destructive transaction inserts its own record; the sealing chore chains records into
//! blocks (Merkle root, previous seal, number) signed by a key outside the database; verifying recomputes everything.
//!
//! Invariants: a record is in one block or waiting for one, never both and never neither; a block is never made past a
//! transaction that may still commit; nothing in the database vouches for itself: keys and latest seal come from outside.

mod key;
mod known;
mod merkle;
mod moment;
mod period;
mod publish;
mod receipt;
mod record;
mod seal;
mod store;
mod verify;
pub(crate) mod work;

pub use key::{SigningKey, SubjectKey, TrustedKeys};
pub use known::{known_subject_key, replace_subject_key, same_subject_key, use_subject_key};
pub use merkle::{Hash, Tree, inclusion_proof, leaf_hash, root, verify_inclusion};
pub use moment::Moment;
pub use period::{ClosingKey, Period, PeriodKey, PeriodKeys};
pub use publish::{Destination, Published};
pub use receipt::{Entered, Receipt, Refuted, any_erasure, erasure_by_deletion, erasure_of, receipt};
pub use record::{Entry, Record, RowEntry, Xid};
pub use seal::{Block, Blocker, BlockerKind, MAX_RECORDS, Seal, blocker, seal_once, unsealed};
pub use store::{Filter, ago, list, of_deletion};
pub use verify::{Problem, Report, verify};
