//! The decisions of a node of a fleet about its purges and its members.
//!
//! A stream numbers the purges of a fleet and delivers them to each node. A [`Follower`] decides which deliveries a
//! node applies, when it asks the stream again, and whether it is current. An [`Outbox`] decides when a purge that a
//! client has sent to this node is acknowledged, sent again, or refused.
//!
//! Each node announces itself by heartbeats. [`Membership`] decides when a node sends them, and which nodes are
//! members.
//!
//! [`PurgeStream`], [`FollowingCache`], [`FleetDirectory`] and [`MemberList`] are the interfaces between the edge and
//! the drivers, which do not know each other.
//!
//! The crate has no clock, no sockets and no random numbers: each call gets the time since an arbitrary start. A driver
//! carries out the actions.
#![forbid(unsafe_code)]

mod announcement;
mod directory;
mod follower;
mod membership;
mod outbox;
mod slow_start;
mod stream;

pub use announcement::{
    AnnouncedState, Announcement, LASTS_MAX, LASTS_MIN, MEMBERS_MAX, NodeProfile, RECORD_BYTES_MAX,
    RecordError, key_of,
};
pub use directory::{DirectoryFacts, FleetDirectory, MemberList};
pub use follower::{Action, Applied, Counts, Follower, StreamState, Work};
pub use membership::{Member, Membership, MembershipAction, UntoldTime};
pub use outbox::{Outbox, OutboxSettings, Outcome, PublishError};
pub use stream::{ApplyDone, FollowingCache, PublishDone, PurgeStream, StreamFacts};
