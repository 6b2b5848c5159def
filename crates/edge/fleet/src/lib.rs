//! The decisions of a node of a fleet about the stream of purges.
//!
//! A stream numbers the purges of a fleet and delivers them to each node. A [`Follower`] decides which deliveries a
//! node applies, when it asks the stream again, and whether it is current. An [`Outbox`] decides when a purge that a
//! client has sent to this node is acknowledged, sent again, or refused.
//!
//! [`PurgeStream`] and [`FollowingCache`] are the interfaces between the cache and the driver, which do not know each
//! other.
//!
//! The crate has no clock, no sockets and no random numbers: each call gets the time since an arbitrary start. A driver
//! carries out the actions.
#![forbid(unsafe_code)]

mod follower;
mod outbox;
mod stream;

pub use follower::{Action, Applied, Counts, Follower, StreamState, Work};
pub use outbox::{Outbox, OutboxSettings, Outcome, PublishError};
pub use stream::{ApplyDone, FollowingCache, PublishDone, PurgeStream, StreamFacts};
