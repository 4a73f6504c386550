//! The API through the real binary, over a real socket.

mod bad_input;
mod clients;
mod dashboard;
mod events;
mod idempotency;
mod lineage;
mod listen;
mod many;
mod once;
mod pages;
mod policies;
mod resources;
mod restore;
pub(crate) mod site;
mod stream;
mod subjects;
mod tokens;
