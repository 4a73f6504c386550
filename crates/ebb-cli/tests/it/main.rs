//! The `ebb` binary on a real PostgreSQL. One binary, so that every test shares one server.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not marked as tests")]

mod browser;
mod changes;
mod commands;
mod demo;
mod deploy;
mod faults;
mod holds;
mod http;
mod insight;
mod notices;
#[cfg(feature = "otel")]
mod otel;
mod partition;
mod replica;
mod resource;
mod schedule;
mod shell;
mod subjects;
