//! The `edgeward` binary.
fn main() {}
