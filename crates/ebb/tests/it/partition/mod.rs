//! Partitions by time: they exist before they are needed, whatever the column, and leave only when all of them is due.

mod adopt;
mod back;
mod besides;
mod kept;
mod referrers;
mod split;
mod upkeep;
