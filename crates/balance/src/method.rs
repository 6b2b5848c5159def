//! The methods of balancing: which of several usable servers gets a request.

use edgeward_types::mix64;

use super::group::{Query, Server};

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
                let bound = load_bound(servers, all, excess_percent);
                let below = left.iter().copied();
                below
                    .filter(|&index| u64::from(servers[index].under_way) < bound)
                    .max_by_key(|&index| mix64(query.hash ^ servers[index].key))
            }
        }
    }
}

fn pick_of_two(servers: &[Server], left: &[usize], random: u64) -> Option<usize> {
    let (first, rest) = (random as u32 as usize, (random >> 32) as usize);
    let count = left.len();
    let first = first.checked_rem(count)?;
    let second = match count {
        1 => first,
        _ => (first + 1 + rest % (count - 1)) % count,
    };
    let (first, second) = (left[first], left[second]);
    if servers[second].under_way < servers[first].under_way {
        Some(second)
    } else {
        Some(first)
    }
}

/// Returns the bound of the requests under way at each of `all`: the mean with this request, plus the excess, rounded
/// up. At least one server is below the bound.
fn load_bound(servers: &[Server], all: &[usize], excess_percent: u32) -> u64 {
    let under_way = |&index: &usize| u64::from(servers[index].under_way);
    let total: u64 = all.iter().map(under_way).sum::<u64>() + 1;
    (total * (100 + u64::from(excess_percent))).div_ceil(100 * all.len().max(1) as u64)
}
