//! Splitting a partition into its periods, online: the parts are filled beside it while a trigger notes what changes, are
//! made equal, compared, and take its place in one short transaction. Invariants: until then the table is what it was,
//! and the parts can be thrown away; from then on the old partition is the copy, and takes no more rows.

mod plan;
mod preflight;
mod run;
mod script;
pub(crate) mod store;

pub use plan::{Act, Plan, Step};
pub use preflight::{Preflight, preflight};
pub use run::{Split, split};
pub(crate) use run::{abandon, finish, prepare_rollback};
pub(crate) use script::{over_script, restore_script, undo_script};
pub use script::{script, script_of_rest};

/// What somebody asks for.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The partitioned table as it was typed.
    pub table: String,
    /// The partition; the oldest that reaches over more than one period when absent.
    pub partition: Option<String>,
    /// Rows from before this moment of the column's calendar share one part.
    pub since: Option<String>,
    /// How long putting very many parts in place may hold the table's lock; 200 ms when absent.
    pub max_lock: Option<std::time::Duration>,
}
