//! House rules and chores that need the whole workspace.
fn main() {}
