//! Tests of the knowledge of one peer, and of the pages that several peers share.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;

fn location(container: u32, slot: u16) -> ChunkLocation {
    ChunkLocation { container, slot }
}

#[test]
fn each_chunk_has_its_own_bit() {
    let mut knowledge = Knowledge::new(10);
    knowledge.add(location(3, 64));
    assert!(knowledge.has(location(3, 64)));
    let others = [
        location(3, 0),
        location(3, 63),
        location(3, 65),
        location(2, 64),
        location(67, 64),
        location(3, u16::MAX),
    ];
    assert!(others.iter().all(|&other| !knowledge.has(other)));
    knowledge.remove(location(3, 64));
    knowledge.remove(location(9, 9));
    assert!(!knowledge.has(location(3, 64)));
}

/// Beyond the limit the oldest pages are forgotten, and containers that are older than the limit allows are not
/// recorded.
///
/// Method: a limit of 128 containers, which may lie in three pages.
#[test]
fn the_number_of_containers_is_bounded() {
    let mut knowledge = Knowledge::new(128);
    (0..300).for_each(|container| knowledge.add(location(container, 1)));
    assert_eq!(knowledge.containers(), 300 - 128);
    assert!(knowledge.has(location(128, 1)) && !knowledge.has(location(127, 1)));
    knowledge.add(location(127, 1));
    assert!(!knowledge.has(location(127, 1)));
    // The first container of the page after a large gap.
    knowledge.add(location(64_000, 1));
    assert_eq!(knowledge.containers(), 1);
    knowledge.add(location(64_000 - 128, 1));
    knowledge.add(location(64_000 - 129, 1));
    assert_eq!(knowledge.containers(), 2);
}

/// A new epoch of either store clears all bits. The same epoch clears no bit.
#[test]
fn a_new_epoch_clears_the_knowledge() {
    let mut knowledge = Knowledge::new(3);
    for change in [Knowledge::set_own_epoch, Knowledge::set_peer_epoch] {
        change(&mut knowledge, 1);
        knowledge.add(location(0, 0));
        change(&mut knowledge, 1);
        assert!(knowledge.has(location(0, 0)));
        change(&mut knowledge, 2);
        assert!(!knowledge.has(location(0, 0)));
    }
}

#[test]
fn chunks_are_in_order_until_the_peer_reports_another_order() {
    let mut knowledge = Knowledge::new(3);
    assert!(!knowledge.in_order(1), "no chunk of the container is known");
    knowledge.set_disordered(1);
    knowledge.add(location(1, 0));
    assert!(knowledge.in_order(1));
    knowledge.set_disordered(1);
    assert!(!knowledge.in_order(1));
}

/// A copy is returned once for each change. It is returned again if it could not be saved, or if chunks were in
/// containers that were not durable.
#[test]
fn changed_knowledge_is_saved_once() {
    let mut knowledge = Knowledge::new(100);
    assert!(knowledge.take_unsaved(0).is_some());
    assert!(knowledge.take_unsaved(0).is_none());
    knowledge.add(location(7, 0));
    assert!(knowledge.take_unsaved(7).is_some());
    assert!(
        knowledge.take_unsaved(8).is_some(),
        "container 7 is durable"
    );
    assert!(knowledge.take_unsaved(8).is_none());
    knowledge.add(location(7, 0));
    assert!(knowledge.take_unsaved(8).is_none(), "no bit has changed");
    knowledge.set_unsaved();
    assert!(knowledge.take_unsaved(8).is_some());
    knowledge.set_disordered(7);
    assert!(knowledge.take_unsaved(8).is_some());
    knowledge.remove(location(7, 0));
    assert!(knowledge.take_unsaved(8).is_some());
}

/// Fills pages `0..pages` of `peers` peers with equal bits, and shares the pages of each peer after every container.
fn fill(peers: &mut [Knowledge], pages: u32, table: &mut SharedPages) {
    for container in 0..pages * CONTAINERS_PER_PAGE {
        // Otherwise, the pages of one peer would be equal, too.
        let skipped = container / CONTAINERS_PER_PAGE;
        for peer in &mut *peers {
            let slots = (0..114).filter(|slot| u32::from(*slot) != skipped);
            slots.for_each(|slot| peer.add(location(container, slot)));
            peer.share(table);
        }
    }
}

/// A hundred peers with equal chunks take the memory of one, apart from a few pages each. A container takes at most
/// 25 bytes.
#[test]
fn peers_with_equal_chunks_share_memory() {
    let mut table = SharedPages::new(usize::MAX, 100);
    fill(&mut [Knowledge::new(1 << 20)], 20, &mut table);
    let one = table.status().bytes;
    assert!(one > 20 * 16 * 64 && one <= 25 * 16 * 64, "{one} bytes");
    let mut peers = vec![Knowledge::new(1 << 20); 100];
    let mut table = SharedPages::new(usize::MAX, 100);
    fill(&mut peers, 20, &mut table);
    assert_eq!(table.status().bytes, one);
    // A change of one peer copies one page.
    peers[0].remove(location(0, 1));
    assert!(!peers[0].has(location(0, 1)) && peers[1].has(location(0, 1)));
    // Four pages more may stay out of the table.
    (16..20).for_each(|page| peers[0].remove(location(page * 64, 1)));
    (0..5).for_each(|_| peers[0].share(&mut table));
    let page = one / 16;
    assert_eq!(table.status().bytes, one + page);
}

/// At the limit of the bytes of all pages, a peer that learns of further chunks keeps its newest pages: an equal part
/// of half the limit. A peer that learns of no further chunks keeps all.
#[test]
fn the_bytes_of_all_peers_are_bounded() {
    let (peers_max, bytes_max, pages) = (10_u16, 256 << 10, 200);
    let mut table = SharedPages::new(bytes_max, peers_max.into());
    let mut idle = Knowledge::new(1 << 20);
    fill(std::slice::from_mut(&mut idle), 20, &mut table);
    let mut others = vec![Knowledge::new(1 << 20); usize::from(peers_max) - 1];
    for container in 0..pages * CONTAINERS_PER_PAGE {
        for (peer, slot) in others.iter_mut().zip(0..) {
            // No two pages are equal: the peers know different chunks, in containers with different numbers of chunks.
            let number = (container / CONTAINERS_PER_PAGE) as u16;
            (0..2).for_each(|nth| {
                peer.add(location(container, (number + 64 * nth) * peers_max + slot));
            });
            peer.share(&mut table);
        }
        assert!(table.status().bytes <= bytes_max, "container {container}");
    }
    assert!(table.status().forgotten_pages > 0);
    assert_eq!(idle.containers(), 20 * 64);
    let reserved = bytes_max / 2 / usize::from(peers_max);
    for (peer, slot) in others.iter().zip(0..) {
        assert!(peer.has(location(
            pages * 64 - 1,
            (pages as u16 - 1) * peers_max + slot
        )));
        assert!(!peer.has(location(0, slot)));
        let bytes = peer.numbered_pages().map(|(_, page)| page.bytes());
        let bytes: usize = bytes.sum();
        assert!(
            bytes > reserved / 2 && bytes < reserved * 2,
            "{bytes} bytes"
        );
    }
}

/// A peer forgets no more than is above half of the limit, and no other peer forgets pages for those that it has
/// released.
#[test]
fn one_peer_above_half_of_the_limit_does_not_shorten_all_records() {
    let peers_max = 100;
    let mut table = SharedPages::new(1 << 20, peers_max);
    let mut peers = vec![Knowledge::new(1 << 20); 10];
    let learn = |peer: usize, page: u32, known: &mut Knowledge| {
        // No two pages are equal.
        (0..64).for_each(|container| {
            let slots = (0..114).filter(|slot| *slot as usize != peer && *slot as u32 != 20 + page);
            slots.for_each(|slot| known.add(location(page * 64 + container, slot)));
        });
    };
    let mut page = 0;
    while table.status().forgotten_pages == 0 {
        for (number, known) in peers.iter_mut().enumerate() {
            learn(number, page, known);
            known.share(&mut table);
        }
        page += 1;
    }
    for known in &mut peers {
        known.share(&mut table);
    }
    let half = table.status().bytes_max / 2;
    let bytes = |known: &Knowledge| -> usize {
        let pages = known.numbered_pages();
        pages.map(|(_, page)| page.bytes()).sum()
    };
    let all: usize = peers.iter().map(bytes).sum();
    assert!(all > half * 9 / 10, "{all} bytes");
    let least = peers.iter().map(bytes).min().expect("ten peers");
    assert!(least > half / 10 * 8 / 10, "{least} bytes");
}

/// An operation on the knowledge of one of three peers.
#[derive(Clone, Debug)]
enum Step {
    Add(ChunkLocation),
    Remove(ChunkLocation),
    SetDisordered(u32),
    NewEpoch,
    Save,
    Share,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    // Few slots and containers, so that peers often have equal pages.
    let location = || (0_u32..2000, prop_oneof![0_u16..4, 60_u16..70, any::<u16>()]);
    let location = || location().prop_map(|(container, slot)| ChunkLocation { container, slot });
    let step = prop_oneof![
        12 => location().prop_map(Step::Add),
        3 => location().prop_map(Step::Remove),
        1 => (0_u32..2000).prop_map(Step::SetDisordered),
        1 => any::<u8>().prop_map(|n| if n < 20 { Step::NewEpoch } else { Step::Save }),
        6 => any::<u8>().prop_map(|_| Step::Share),
    ];
    vec((0_usize..3, step), 0..400)
}

/// The knowledge of a peer as a plain set.
#[derive(Clone, Debug, Default)]
struct Oracle {
    chunks: BTreeSet<ChunkLocation>,
    disordered: BTreeSet<u32>,
    epoch: u64,
}

impl Oracle {
    fn has_container(&self, container: u32) -> bool {
        let slots = location(container, 0)..=location(container, u16::MAX);
        self.chunks.range(slots).next().is_some()
    }
}

proptest! {
    /// Three peers that share pages behave like three plain sets. If the table is too small, a peer may have forgotten
    /// chunks, but has none that the set does not have.
    #[test]
    fn knowledge_is_a_set_of_chunks(
        steps in steps(),
        bytes_max in prop_oneof![0_usize..20_000, proptest::strategy::Just(usize::MAX)],
    ) {
        let mut table = SharedPages::new(bytes_max, 3);
        let mut peers = vec![Knowledge::new(2000); 3];
        let mut oracles = vec![Oracle::default(); 3];
        let mut saved: Vec<(Knowledge, Oracle)> = Vec::new();
        for (nth, step) in &steps {
            let (peer, oracle) = (&mut peers[*nth], &mut oracles[*nth]);
            match *step {
                Step::Add(location) => {
                    peer.add(location);
                    oracle.chunks.insert(location);
                    prop_assert!(peer.has(location));
                }
                Step::Remove(location) => {
                    peer.remove(location);
                    oracle.chunks.remove(&location);
                }
                Step::SetDisordered(container) => {
                    peer.set_disordered(container);
                    if oracle.has_container(container) {
                        oracle.disordered.insert(container);
                    }
                }
                Step::NewEpoch => {
                    *oracle = Oracle { epoch: oracle.epoch + 1, ..Oracle::default() };
                    peer.set_peer_epoch(oracle.epoch);
                }
                Step::Save => saved.extend(peer.take_unsaved(u32::MAX).map(|copy| (copy, oracle.clone()))),
                Step::Share => peer.share(&mut table),
            }
        }
        let all_peers = peers.iter().zip(&oracles);
        let is_exact = table.status().forgotten_pages == 0;
        for (peer, oracle) in all_peers.chain(saved.iter().map(|(copy, oracle)| (copy, oracle))) {
            for (_, step) in &steps {
                let (Step::Add(location) | Step::Remove(location)) = *step else {
                    continue;
                };
                let has = peer.has(location);
                prop_assert!(oracle.chunks.contains(&location) || !has);
                if is_exact {
                    prop_assert_eq!(has, oracle.chunks.contains(&location));
                    let container = location.container;
                    let is_disordered = oracle.disordered.contains(&container);
                    prop_assert_eq!(peer.in_order(container), oracle.has_container(container) && !is_disordered);
                }
            }
        }
        // Pages that no peer has any more are removed from the table.
        drop((peers, saved));
        let mut last = Knowledge::new(100);
        (0..1000).for_each(|nth| {
            last.add(location(nth % 70, nth as u16));
            last.share(&mut table);
        });
        let pages = last.numbered_pages().map(|(_, page)| page.bytes());
        prop_assert!(table.status().bytes <= pages.sum::<usize>() + 40_000);
    }
}
