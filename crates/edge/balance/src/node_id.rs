//! The identity of a node of a fleet.

/// Identifies a node of a fleet: a hash of its name. A node that returns under its name gets its keys back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);
