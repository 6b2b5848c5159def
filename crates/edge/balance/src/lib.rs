//! The choice of a server of an origin, and of the node of a fleet that owns an object.
//!
//! A [`Group`] has the servers of one origin. [`Group::choose`] returns the server for a request: the balancing method
//! decides between the usable servers. A server that fails repeatedly is ejected for a time that grows with each
//! ejection, and gets few requests after it has recovered. A [`RetryBudget`] limits the requests that are sent again
//! to another server.
//!
//! A [`Placement`] has the nodes of a group of a fleet, and returns the owner of a cache key, which [`NodeLoads`] may
//! relieve. [`next_hop`] returns the path of a request. A [`CopyRule`] decides if a node keeps a copy of another node's
//! object, by the rate of requests that the owner measures ([`KeyRates`]), unless the object was just invalidated
//! ([`CopyPause`]).
//!
//! The crate has no clock, no random numbers and no I/O: times and random numbers are arguments.
#![forbid(unsafe_code)]

mod budget;
mod copy_pause;
mod fleet;
mod group;
mod health;
mod hot_copy;
mod key_rates;
mod method;
mod node_id;
mod node_loads;
mod placement;
mod rendezvous;
mod server;

pub use budget::{BudgetSettings, RetryBudget};
pub use copy_pause::CopyPause;
pub use fleet::{Hop, NodeGroup, Sender, Target, next_hop};
pub use group::{AllDown, Group, GroupSettings, Member, Selection, ServerView, WEIGHT_MAX};
pub use health::{HealthSettings, HealthState, Verdict};
pub use hot_copy::{CopyRule, MemoryUse, RequestRate, measured_share};
pub use key_rates::KeyRates;
pub use method::Method;
pub use node_id::NodeId;
pub use node_loads::{LOAD_EXCESS_PERCENT, NodeLoads};
pub use placement::{NODES_MAX, Node, NodeState, OWNERS_MAX, Owner, Placement, PlacementError};
pub use server::{Query, ServerId};
