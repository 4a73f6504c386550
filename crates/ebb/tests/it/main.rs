//! Integration tests, one binary: a real PostgreSQL, a database per test.

mod audit;
