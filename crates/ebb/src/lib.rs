//! Ebb, the data-lifecycle engine for PostgreSQL: what came in with the tide also goes out, on time, never early,
//! without disturbing the traffic, and with proof.

pub mod once;
pub mod pg;

mod error;

pub use error::{Error, Result};
