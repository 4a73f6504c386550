//! The API through the real binary, over a real socket.

mod bad_input;
mod dashboard;
mod idempotency;
mod lineage;
mod listen;
mod once;
mod policies;
mod restore;
pub(crate) mod site;
mod stream;
mod tokens;
