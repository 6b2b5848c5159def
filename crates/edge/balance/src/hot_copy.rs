//! Copies of hot objects: which objects a node keeps in memory although another node owns them.
//!
//! The owner measures the rate of requests for each of its objects ([`RequestRate`]) and states it with its answers; a
//! change proposed for groupcache in 2026 does the same for its hot keys. The asking node expects its share of this
//! rate. It keeps a copy if the copy would save more per byte than the average byte of its memory does ([`CopyRule`]).
//! This is the value per byte of GreedyDual-Size (Cao, Irani, 1997), with the cost of a fetch from a peer instead of
//! the cost of a fetch from the origin.

use std::time::Duration;

use edgeward_types::Timestamp;

/// The rate of events, with exponential decay. It takes 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestRate {
    /// The sum of all events, each decayed since its time.
    events: f64,
    last: Timestamp,
}

impl RequestRate {
    /// Returns a rate without events, which is measured from now on.
    pub const fn from(now: Timestamp) -> Self {
        Self {
            events: 0.0,
            last: now,
        }
    }

    /// Counts an event. Returns the rate per second of the events before it. Without this event, the rate is an
    /// unbiased estimate at the time of a random event: an object with a single request has the rate 0.
    pub fn record(&mut self, now: Timestamp) -> f64 {
        let before = self.decayed(now);
        self.events = before + 1.0;
        self.last = now;
        before * DECAY_PER_SECOND
    }

    /// Counts events that occurred at a constant rate since the last event or, before it, since time 0 or
    /// the time of [`from`](Self::from).
    pub fn record_since_last(&mut self, events: u64, now: Timestamp) {
        let constants = now.since(self.last).as_secs_f64() * DECAY_PER_SECOND;
        // The mean of the decay over the interval. For short intervals, the quotient loses its digits.
        let decay = match constants > 1e-6 {
            true => -(-constants).exp_m1() / constants,
            false => 1.0,
        };
        self.events = self.decayed(now) + events as f64 * decay;
        self.last = now;
    }

    /// Returns the rate per second of all events so far.
    pub fn per_second(&self, now: Timestamp) -> f64 {
        self.decayed(now) * DECAY_PER_SECOND
    }

    fn decayed(&self, now: Timestamp) -> f64 {
        self.events * decay(now.since(self.last).as_secs_f64())
    }
}

/// Returns the share of a constant rate that a measurement of this length shows. The rates of nodes that have measured
/// for different times are comparable after a division by it.
pub fn measured_share(length: Duration) -> f64 {
    // Times are precise to a second.
    let seconds = length.as_secs_f64().max(1.0);
    -(-DECAY_PER_SECOND * seconds).exp_m1()
}

/// Returns the part of an event that is left after this time.
pub(crate) fn decay(seconds: f64) -> f64 {
    (-DECAY_PER_SECOND * seconds).exp()
}

/// The rule that decides about copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyRule {
    /// The cost of a fetch from a peer, as a share of the cost of a fetch from the origin. With 0, no node keeps
    /// copies. With 1, a fetch from a peer is as expensive as one from the origin.
    pub peer_cost: f64,
}

/// The work of a node's memory: the hits that its average byte brings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryUse {
    /// Hits per second.
    pub hits_per_second: f64,
    /// Charged bytes of the objects in memory.
    pub used_bytes: u64,
}

impl CopyRule {
    /// Returns true if an asking node keeps a copy of an object for which memory charges `size_bytes`. `owner_rate` is
    /// the rate of requests for the object at its owner, and `share` the asking node's share of the requests of all
    /// nodes.
    pub fn keeps_copy(
        &self,
        owner_rate: f64,
        share: f64,
        size_bytes: u64,
        memory: MemoryUse,
    ) -> bool {
        let saved_per_second = owner_rate * share * self.peer_cost;
        // Both sides are multiplied by `used_bytes` and `size_bytes`, so nothing is divided by 0. Memory without hits
        // keeps each copy that saves something; memory without objects keeps none.
        saved_per_second * memory.used_bytes as f64 > memory.hits_per_second * size_bytes as f64
    }
}

/// Events decay by the factor e in 300 s. A shorter time forgets objects between their requests, a longer one reacts
/// late to an object that becomes hot.
pub(crate) const DECAY_SECONDS: u64 = 300;

pub(crate) const DECAY_PER_SECOND: f64 = 1.0 / DECAY_SECONDS as f64;
