//! The ebb binary.
fn main() {}
