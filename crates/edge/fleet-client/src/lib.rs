//! Follows the stream of a fleet's purges in NATS JetStream, publishes purges to it, and announces the node to the
//! other nodes.
//!
//! A thread has the connection to NATS and carries out the decisions of `edgeward_fleet` about purges: which messages
//! the cache applies, when a subscription begins again, and when a purge is acknowledged. The thread creates the stream
//! if it does not exist. A second thread with a connection of its own writes the heartbeats of the node to a bucket and
//! watches those of the other nodes. All queues are bounded.
#![forbid(unsafe_code)]

mod bucket;
mod connect;
mod connection;
mod driver;
mod faults;
mod members;
mod publishing;
mod settings;

pub use driver::{FleetClient, StartError};
pub use members::{AnnouncedNode, InheritedMembers, MembersClient};
pub use settings::{MemberSettings, NatsCredentials, NatsSettings, NatsTls};
