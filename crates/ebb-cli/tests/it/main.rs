//! The real binary on a real PostgreSQL. One test binary, so that every test shares one server.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not marked as tests")]

mod faults;
