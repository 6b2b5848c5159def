//! The choice of the connections that an edge closes to free memory.
//!
//! The owner that holds most loses first, and of its connections the heaviest one, until enough is freed. The owners
//! with the largest shares thus come down to one level, and an owner below that level loses nothing. A connection that
//! holds little and makes progress is the last of its owner, because it serves hits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A connection that holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<O> {
    /// The client that is charged: all connections of one owner share its place in the order.
    pub owner: O,
    /// The bytes that closing the connection frees.
    pub bytes: u64,
    /// True if the owner loses this connection only after its others.
    pub is_last: bool,
    /// The time of the connection's last progress. Among equal connections the one that waits longest goes first.
    pub since: u64,
}

/// Returns the indexes of the connections to close, in order, until they free `bytes`. An owner whose other connections
/// hold less than `owner_bytes_min` loses no more.
#[must_use]
pub fn heaviest_first<O: Copy + Ord>(
    holders: &[Holder<O>],
    bytes: u64,
    owner_bytes_min: u64,
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..holders.len()).collect();
    // Each owner's connections in the reverse order of closing, so that the next one is at the end of its range.
    order.sort_unstable_by_key(|&index| {
        let holder = &holders[index];
        let rank = (!holder.is_last, holder.bytes, Reverse(holder.since));
        (holder.owner, rank, Reverse(index))
    });
    let mut owners: BinaryHeap<(u64, Reverse<O>, &[usize])> = order
        .chunk_by(|&a, &b| holders[a].owner == holders[b].owner)
        .map(|range| {
            let held = range.iter().map(|&index| holders[index].bytes).sum();
            (held, Reverse(holders[range[0]].owner), range)
        })
        .collect();
    let (mut closed, mut freed) = (Vec::new(), 0);
    while freed < bytes
        && let Some((held, owner, range)) = owners.pop()
        && held >= owner_bytes_min
        && let Some((&next, rest)) = range.split_last()
    {
        closed.push(next);
        let freed_now = holders[next].bytes;
        freed += freed_now;
        owners.push((held - freed_now, owner, rest));
    }
    closed
}

/// Returns the most bytes that one owner holds.
#[must_use]
pub fn heaviest_owner<O: Copy + Ord>(holders: &[Holder<O>]) -> u64 {
    let mut held = std::collections::BTreeMap::new();
    for holder in holders {
        *held.entry(holder.owner).or_insert(0) += holder.bytes;
    }
    held.into_values().max().unwrap_or(0)
}
