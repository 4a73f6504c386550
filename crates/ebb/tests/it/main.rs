//! The engine on a real PostgreSQL. One binary, so that every test shares one server.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not marked as tests")]

mod audit;
mod bad_input;
mod contention;
mod due;
mod embedded;
mod examples;
mod expire;
mod harness;
mod many;
mod names;
mod once;
mod pacing;
mod partition;
mod pooler;
mod replica;
mod resources;
mod retain;
mod roles;
mod schedule;
mod sinks;
mod sql_files;
mod tls;
