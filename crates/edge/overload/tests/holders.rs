//! Laws of the choice of the connections that are closed to free memory.

use std::cmp::Reverse;

use edgeward_overload::{Holder, heaviest_first, heaviest_owner};
use proptest::prelude::*;

fn holder(owner: u8, bytes: u64) -> Holder<u8> {
    Holder {
        owner,
        bytes,
        is_last: false,
        since: 0,
    }
}

fn holders() -> impl Strategy<Value = Vec<Holder<u8>>> {
    let one = (0..4_u8, 0..40_u64, any::<bool>(), 0..3_u64);
    let one = one.prop_map(|(owner, bytes, is_last, since)| Holder {
        owner,
        bytes,
        is_last,
        since,
    });
    prop::collection::vec(one, 0..24)
}

/// Closes one connection after the other, and searches all of them each time.
fn searched(holders: &[Holder<u8>], bytes: u64, owner_bytes_min: u64) -> Vec<usize> {
    let mut open: Vec<usize> = (0..holders.len()).collect();
    let (mut closed, mut freed) = (Vec::new(), 0);
    while freed < bytes {
        let held_by = |owner: u8| -> u64 {
            let own = open.iter().filter(|&&at| holders[at].owner == owner);
            own.map(|&at| holders[at].bytes).sum()
        };
        let next = open.iter().copied().min_by_key(|&at| {
            let of = &holders[at];
            let owner = (Reverse(held_by(of.owner)), of.owner);
            (owner, of.is_last, Reverse(of.bytes), of.since, at)
        });
        let Some(next) = next.filter(|&at| held_by(holders[at].owner) >= owner_bytes_min) else {
            break;
        };
        open.retain(|&at| at != next);
        freed += holders[next].bytes;
        closed.push(next);
    }
    closed
}

proptest! {
    #[test]
    fn the_heaviest_connection_of_the_heaviest_owner_is_closed_first(
        holders in holders(), bytes in 0..400_u64, owner_bytes_min in 0..60_u64,
    ) {
        let closed = heaviest_first(&holders, bytes, owner_bytes_min);
        prop_assert_eq!(closed, searched(&holders, bytes, owner_bytes_min));
    }

    /// An owner that loses a connection held at least as much before it as every other owner holds afterwards.
    #[test]
    fn an_owner_below_the_common_level_loses_nothing(holders in holders(), bytes in 0..400_u64) {
        let closed = heaviest_first(&holders, bytes, 0);
        let sum = |owner: u8, skipped: &[usize]| -> u64 {
            let own = holders.iter().enumerate();
            own.filter(|(at, holder)| holder.owner == owner && !skipped.contains(at))
                .map(|(_, holder)| holder.bytes)
                .sum()
        };
        let level = (0..4).map(|owner| sum(owner, &closed)).max().unwrap_or(0);
        for owner in closed.iter().map(|&at| holders[at].owner) {
            prop_assert!(sum(owner, &[]) >= level);
        }
        prop_assert_eq!(heaviest_owner(&holders), (0..4).map(|owner| sum(owner, &[])).max().unwrap_or(0));
    }
}

#[test]
fn a_light_connection_that_makes_progress_is_the_last_of_its_owner() {
    let mut active = holder(1, 30);
    active.is_last = true;
    let holders = [active, holder(1, 20), holder(1, 25), holder(2, 40)];
    assert_eq!(heaviest_first(&holders, 1, 0), [2]);
    assert_eq!(heaviest_first(&holders, u64::MAX, 0), [2, 1, 3, 0]);
}

#[test]
fn an_owner_that_holds_less_than_the_bound_keeps_its_connections() {
    let holders = [holder(1, 30), holder(2, 10), holder(2, 10)];
    assert_eq!(heaviest_first(&holders, u64::MAX, 21), [0]);
    assert_eq!(heaviest_first(&holders, u64::MAX, 20), [0, 1]);
}
