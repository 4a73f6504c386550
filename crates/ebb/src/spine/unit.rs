//! A unit is one (chore, policy, leaf table): the smallest thing a node leases.

use std::fmt;

/// The kinds of work, as metrics (`job_type`) and the command line (`NAME:CHORE`) know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChoreKind {
    /// Removes what is past its time.
    Expire,
    /// Notices what the application deleted softly.
    Mark,
    /// Announces deletions.
    Warn,
    /// Erases subjects.
    Erase,
    /// Chains audit records into signed blocks.
    Seal,
    /// Looks for what should not have happened.
    Audit,
    /// Keeps partitions ahead, and lets expired ones go.
    Partition,
    /// Ends holders whose lease ran out.
    Holders,
    /// Drops resources that nobody refers to.
    Drop,
    /// Finds resources that nobody knows.
    Sweep,
    /// Delivers events.
    Schedule,
}

impl ChoreKind {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            ChoreKind::Expire => "expire",
            ChoreKind::Mark => "mark",
            ChoreKind::Warn => "warn",
            ChoreKind::Erase => "erase",
            ChoreKind::Seal => "seal",
            ChoreKind::Audit => "audit",
            ChoreKind::Partition => "partition",
            ChoreKind::Holders => "holders",
            ChoreKind::Drop => "drop",
            ChoreKind::Sweep => "sweep",
            ChoreKind::Schedule => "schedule",
        }
    }

    /// Its turn among the chores of one policy, where one makes work for the next: a subject is noticed, warned, erased.
    pub(crate) fn turn(self) -> u8 {
        match self {
            ChoreKind::Warn => 1,
            ChoreKind::Erase => 2,
            _ => 0,
        }
    }
}

impl fmt::Display for ChoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One unit. `Display` is its key in the database.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Unit {
    pub(crate) chore: ChoreKind,
    pub(crate) policy: String,
    pub(crate) leaf: String,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.chore, self.policy, self.leaf)
    }
}
