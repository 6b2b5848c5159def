//! The methods of balancing: which of several usable servers gets a request.

use super::rendezvous::{LoadBound, score};
use super::server::{Query, Server};

/// A method of balancing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// The servers get requests in turn.
    RoundRobin,
    /// The server with fewer requests under way of two that are chosen at random. A slow server therefore gets fewer
    /// requests. Two choices are nearly as even as all, and do not send all requests to one idle server
    /// (Mitzenmacher, "The Power of Two Choices", 2001).
    #[default]
    LeastRequests,
    /// The same server for the same cache key, by rendezvous hashing, unless the server has more requests under way
    /// than its bound (Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2018). If a server
    /// fails, only its own keys move.
    Hash {
        /// The percentage by which the requests of a server may exceed the mean.
        excess_percent: u32,
    },
}

impl Method {
    /// Returns the index of the server in `servers` that gets the request. `left` has the indexes of the candidates
    /// that are left, and `all` of all candidates. Returns `None` if no candidate that is left may get it.
    pub(crate) fn pick(
        self,
        servers: &[Server],
        all: &[usize],
        left: &[usize],
        virtual_time: u64,
        query: &Query<'_>,
    ) -> Option<usize> {
        match self {
            Self::RoundRobin => left
                .iter()
                .copied()
                .min_by_key(|&index| servers[index].turn.max(virtual_time)),
            Self::LeastRequests => pick_of_two(servers, left, query.random),
            Self::Hash { excess_percent } => {
                let all = || all.iter().map(|&index| &servers[index]);
                let load = all().map(|server| u64::from(server.under_way)).sum();
                let weights = all().map(|server| server.weight).sum();
                let bound = LoadBound::new(load, weights, excess_percent);
                let score = |index: usize| {
                    let server = &servers[index];
                    score(server.key, server.weight, query.hash)
                };
                let has_room = |index: &usize| {
                    let server = &servers[*index];
                    bound.has_room(u64::from(server.under_way), server.weight)
                };
                let below = left.iter().copied().filter(has_room);
                below.max_by(|&a, &b| score(a).total_cmp(&score(b)))
            }
        }
    }
}

/// Picks two different servers at random, each with a probability in proportion to its weight, and returns the one with
/// fewer requests under way in relation to its weight.
fn pick_of_two(servers: &[Server], left: &[usize], random: u64) -> Option<usize> {
    let (low, high) = (random & u64::from(u32::MAX), random >> 32);
    let first = pick_by_weight(servers, left.iter().copied(), low)?;
    let others = left.iter().copied().filter(|&index| index != first);
    let Some(second) = pick_by_weight(servers, others, high) else {
        return Some(first);
    };
    let (a, b) = (&servers[first], &servers[second]);
    if u64::from(b.under_way) * a.weight < u64::from(a.under_way) * b.weight {
        Some(second)
    } else {
        Some(first)
    }
}

/// Returns one of the candidates with a probability in proportion to its weight. `random` has 32 random bits.
fn pick_by_weight(
    servers: &[Server],
    candidates: impl Iterator<Item = usize> + Clone,
    random: u64,
) -> Option<usize> {
    let total: u64 = candidates.clone().map(|index| servers[index].weight).sum();
    // The product fits into 64 bits: see `WEIGHT_MAX`.
    let mut rest = (random * total) >> 32;
    for index in candidates {
        match rest.checked_sub(servers[index].weight) {
            Some(smaller) => rest = smaller,
            None => return Some(index),
        }
    }
    None
}
