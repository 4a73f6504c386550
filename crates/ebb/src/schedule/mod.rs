//! What is due gets done: events, their occurrences and the sinks that they go to.

pub mod sink;
