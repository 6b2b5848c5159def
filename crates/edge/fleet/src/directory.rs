//! The interfaces between an edge, the members of its fleet, and the driver that connects them.

use std::fmt;

use crate::announcement::{NodeProfile, RecordError};
use crate::membership::{Member, UntoldTime};

/// The members of a fleet by their heartbeats, as an edge shows them.
pub trait FleetDirectory: fmt::Debug + Send + Sync {
    /// Returns the state, for metrics.
    fn facts(&self) -> DirectoryFacts;
}

/// An edge that uses a list of members.
pub trait MemberList: Send + Sync {
    /// Returns the reason if the edge cannot ask a node with this profile.
    fn check(&self, profile: &NodeProfile) -> Result<(), String>;

    /// Uses a list, or returns the reason why it cannot. May block for seconds.
    fn apply(&self, members: Vec<Member>) -> Result<(), String>;
}

/// The state of the members, as the driver knows it.
#[derive(Clone, Debug, Default)]
pub struct DirectoryFacts {
    /// True if the heartbeats of this node return to it. Otherwise the list is kept as it is.
    pub is_current: bool,
    /// The members of the list, this node included.
    pub members: Vec<Member>,
    /// The time for which the other nodes may not have told this one of changes. `None` if they may have removed it
    /// from their lists.
    pub told: Option<UntoldTime>,
    /// The URL of the node that has the name of this one, and therefore keeps this node out of the fleet.
    pub rival: Option<Box<str>>,
    /// Heartbeats that the bucket has acknowledged.
    pub heartbeats: u64,
    /// Lists of members that the edge has used since its start.
    pub lists: u64,
    /// Records that were ignored, by [`RecordError::NAMES`].
    pub refused: [u64; RecordError::NAMES.len()],
}
