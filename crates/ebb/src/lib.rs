//! Ebb, the data-lifecycle engine for PostgreSQL: what came in with the tide also goes out, on time, never early,
//! without disturbing the traffic, and with proof.

pub mod audit;
pub mod config;
pub mod control;
pub mod doctor;
pub mod lineage;
pub mod once;
pub mod partition;
pub mod pg;
pub mod plan;
pub mod policy;
pub mod resources;
pub mod retain;
pub mod schedule;
pub mod spine;
pub mod status;
pub mod token;
pub mod view;

mod engine;
mod error;
mod expire;
mod gate;
mod words;

pub use engine::{Changed, Engine, Keys};
pub(crate) use error::Trouble;
pub use error::{Error, Result};
pub use expire::sandbox::SandboxState;
