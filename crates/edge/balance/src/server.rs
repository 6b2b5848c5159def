//! The state of a server of a group, and the properties of a request that a choice depends on.

use edgeward_types::Timestamp;

use super::health::Health;

/// Identifies a server of a group. A server that leaves a group and joins again has a new id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub u64);

/// The state of a server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) id: ServerId,
    pub(crate) key: u64,
    pub(crate) is_backup: bool,
    pub(crate) weight: u64,
    pub(crate) health: Health,
    pub(crate) under_way: u32,
    /// The next turn of the server in round robin. It grows by `STRIDE` over the weight for each request (stride
    /// scheduling: Waldspurger, Weihl, 1995).
    pub(crate) turn: u64,
}

/// The properties of a request that a choice depends on.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The time.
    pub now: Timestamp,
    /// A random number.
    pub random: u64,
    /// A hash of the cache key. Only [`Method::Hash`](crate::Method::Hash) uses it.
    pub hash: u64,
    /// True if the request may probe a server that failed, because it can be repeated at another server.
    pub may_probe: bool,
    /// The servers that the request was sent to before. They are not chosen again.
    pub tried: &'a [ServerId],
}
