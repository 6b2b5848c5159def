//! The interfaces between a cache, the stream of its fleet, and the driver that connects them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use edgeward_purge::{Purge, Scope, Stamp};

use crate::follower::{Applied, Counts};
use crate::outbox::PublishError;

/// The stream of a fleet's purges, as a cache uses it.
pub trait PurgeStream: fmt::Debug + Send + Sync {
    /// Begins to deliver the purges of the stream to the cache. Only the first call counts.
    fn follow(&self, cache: Arc<dyn FollowingCache>);

    /// Sends purges to the fleet. Calls `done` when the stream has them and the cache has applied them, or with the
    /// reason of a failure. `from` is the client, for logs.
    fn publish(&self, scopes: Vec<Scope>, soft: bool, from: &str, done: PublishDone);

    /// Purges all objects of this cache alone, because it may have missed that other nodes have invalidated some.
    fn purge_own(&self);

    /// Returns true if the cache is not cut off from the stream: it has all purges that were acknowledged before a
    /// bounded time.
    fn is_current(&self) -> bool;

    /// Returns the state, for metrics.
    fn facts(&self) -> StreamFacts;
}

/// The function that gets the result of [`PurgeStream::publish`].
pub type PublishDone = Box<dyn FnOnce(Result<(), PublishError>) + Send>;

/// A cache that follows a stream.
pub trait FollowingCache: Send + Sync {
    /// Returns the persisted position: the stamp of the stream's newest purge that is applied with all before it.
    fn position(&self) -> Option<Stamp>;

    /// Applies purges and persists them with the position, and with the purges that were not persisted before. If
    /// `writes` is false, the cache does not repeat a write that has failed. Calls `done` with the outcome.
    fn apply(&self, purges: Vec<Purge>, position: Stamp, writes: bool, done: ApplyDone);
}

/// The function that gets the result of [`FollowingCache::apply`].
pub type ApplyDone = Box<dyn FnOnce(Applied) + Send>;

/// The state of a cache that follows a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamFacts {
    /// True if the node is connected to the stream.
    pub is_connected: bool,
    /// The connections to the stream that were established.
    pub connections: u64,
    /// The sequence number up to which all purges are applied. `None` before the node has joined.
    pub position: Option<u64>,
    /// The messages of the stream that are not applied yet. `None` if unknown.
    pub behind: Option<u64>,
    /// The time since the node was current. `None` if it never was.
    pub lag: Option<Duration>,
    /// True if the lag is at most the bound.
    pub is_current: bool,
    /// True if applied purges are not persisted, because the log of purges cannot be written.
    pub has_failed_write: bool,
    /// Messages that wait for the stream.
    pub pending: usize,
    /// The bound of `pending`.
    pub pending_max: usize,
    /// The bytes of the messages that wait for the stream.
    pub pending_bytes: usize,
    /// The bytes of the stream's messages that wait to be applied or are being applied.
    pub queued_bytes: usize,
    /// The bound of `pending_bytes` and of `queued_bytes`.
    pub buffer_bytes_max: usize,
    /// Messages that could not be parsed.
    pub unreadable: u64,
    /// The numbers of deliveries, by their handling.
    pub counts: Counts,
    /// The requests to purge that failed, by cause.
    pub refused: [(&'static str, u64); 4],
}
