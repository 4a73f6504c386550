//! What the API and the dashboard read: runs, samples, what changed. Invariant: everything here comes from figures that
//! were kept while the work was done, never from a count over users' tables, so that a look costs milliseconds.

mod store;

pub use store::{Hour, Rest, Run, RunFilter, Sample, activity, changes, hours, rests, runs, samples, upcoming};
