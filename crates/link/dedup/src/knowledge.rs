//! The chunks that this endpoint and one peer have exchanged, one bit per chunk.
//!
//! The peer has a chunk if it sent or received the chunk. The sender queries the knowledge before it sends a
//! reference to a chunk. The receiver queries it before it resolves a reference: a reference to a chunk that was
//! never exchanged with this peer is refused, even if the store has the chunk from another peer. The knowledge may
//! be wrong, because the peer may have lost a chunk since the exchange. The peer then answers a reference with a NAK.
//!
//! The bits are grouped by container. The number of containers is limited, and the oldest ones are forgotten
//! first. By default, a container has 1 MiB and at most 1,024 chunks, so the bits for a terabyte of containers take
//! at most 128 MB. A forgotten chunk is sent again as bytes. [`Knowledge::encode`] and [`Knowledge::decode`] save and
//! restore the bits of an endpoint that restarts with its store.

mod encoding;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::store::ChunkLocation;

/// The chunks that the peer has, by container.
#[derive(Clone, Debug)]
pub struct Knowledge {
    containers: BTreeMap<u32, KnownChunks>,
    containers_max: usize,
    /// The epoch of our store: its random number. 0 until it is set.
    own_epoch: u64,
    /// The epoch of the peer's store. 0 until it is set.
    peer_epoch: u64,
}

/// The chunks of one container that the peer has.
#[derive(Clone, Debug, Default)]
struct KnownChunks {
    /// The bits: bit `n % 64` of word `n / 64` is for the chunk in slot `n`.
    chunks: Vec<u64>,
    /// True if the peer's store has the chunks in another order than our store. The peer then cannot resolve a run: one
    /// reference to several consecutive chunks.
    disordered: bool,
}

impl Knowledge {
    /// Creates empty knowledge that remembers at most `containers_max` containers (at least 1).
    pub fn new(containers_max: usize) -> Self {
        Self {
            containers: BTreeMap::new(),
            containers_max: containers_max.max(1),
            own_epoch: 0,
            peer_epoch: 0,
        }
    }

    /// Returns true if the chunk at this location was exchanged with the peer.
    pub fn has(&self, location: ChunkLocation) -> bool {
        let (word, bit) = Self::bit(location);
        let known = self.containers.get(&location.container);
        known.is_some_and(|known| known.chunks.get(word).is_some_and(|bits| bits & bit != 0))
    }

    /// Records that the chunk at this location is being exchanged with the peer.
    pub fn add(&mut self, location: ChunkLocation) {
        let (word, bit) = Self::bit(location);
        let known = self.containers.entry(location.container).or_default();
        if known.chunks.len() <= word {
            known.chunks.resize(word + 1, 0);
        }
        known.chunks[word] |= bit;
        while self.containers.len() > self.containers_max {
            self.containers.pop_first();
        }
    }

    /// Records that the peer does not have the chunk at this location.
    pub fn remove(&mut self, location: ChunkLocation) {
        let (word, bit) = Self::bit(location);
        let known = self.containers.get_mut(&location.container);
        if let Some(bits) = known.and_then(|known| known.chunks.get_mut(word)) {
            *bits &= !bit;
        }
    }

    /// Returns true if the peer has chunks of this container, and no NAK has reported that the peer's store has
    /// them in another order than our store.
    pub fn in_order(&self, container: u32) -> bool {
        let known = self.containers.get(&container);
        known.is_some_and(|known| !known.disordered)
    }

    /// Records that the peer has the chunks of this container in another order.
    pub fn set_disordered(&mut self, container: u32) {
        if let Some(known) = self.containers.get_mut(&container) {
            known.disordered = true;
        }
    }

    /// Sets the epoch of our store. If the epoch has changed, the locations have other chunks, and all bits are
    /// cleared.
    pub fn set_own_epoch(&mut self, epoch: u64) {
        if std::mem::replace(&mut self.own_epoch, epoch) != epoch {
            self.containers.clear();
        }
    }

    /// Sets the epoch of the peer's store. If it has changed, the peer has lost its chunks and all bits are
    /// cleared.
    pub fn set_peer_epoch(&mut self, epoch: u64) {
        if std::mem::replace(&mut self.peer_epoch, epoch) != epoch {
            self.containers.clear();
        }
    }

    /// Returns a copy of at most `containers_max` containers with these numbers, the lowest first.
    #[must_use]
    pub fn part(&self, numbers: Range<u32>, containers_max: usize) -> Self {
        let containers = self.containers.range(numbers).take(containers_max);
        Self {
            containers: containers
                .map(|(number, known)| (*number, known.clone()))
                .collect(),
            ..*self
        }
    }

    /// Adds the containers of a later [part](Self::part) of the same knowledge. Returns false if the epoch of a store
    /// has changed since the first part, so that the parts cannot be combined.
    pub fn append(&mut self, mut later: Self) -> bool {
        let epochs = |knowledge: &Self| (knowledge.own_epoch, knowledge.peer_epoch);
        self.containers.append(&mut later.containers);
        epochs(self) == epochs(&later)
    }

    /// Returns the highest number of a remembered container.
    pub fn last_container(&self) -> Option<u32> {
        self.containers.last_key_value().map(|(number, _)| *number)
    }

    /// Returns the maximum number of remembered containers.
    pub fn containers_max(&self) -> usize {
        self.containers_max
    }

    /// Returns the number of remembered containers.
    pub fn containers(&self) -> usize {
        self.containers.len()
    }

    fn bit(location: ChunkLocation) -> (usize, u64) {
        let slot = usize::from(location.slot);
        (slot / 64, 1 << (slot % 64))
    }
}

#[cfg(test)]
mod tests {
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
            location(3, u16::MAX),
        ];
        assert!(others.iter().all(|&other| !knowledge.has(other)));
        knowledge.remove(location(3, 64));
        knowledge.remove(location(9, 9));
        assert!(!knowledge.has(location(3, 64)));
    }

    /// The oldest containers are forgotten beyond the limit.
    #[test]
    fn knowledge_is_bounded() {
        let mut knowledge = Knowledge::new(3);
        (0..10).for_each(|container| knowledge.add(location(container, 1)));
        assert_eq!(knowledge.containers(), 3);
        assert!(knowledge.has(location(7, 1)) && !knowledge.has(location(6, 1)));
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

    /// Parts of the knowledge have together the same encoding as the whole. Parts of different epochs are not combined.
    #[test]
    fn parts_have_the_knowledge_of_the_whole() {
        let mut knowledge = Knowledge::new(100);
        knowledge.set_own_epoch(1);
        knowledge.set_peer_epoch(2);
        (0..50).for_each(|n| knowledge.add(location(n * 3, n as u16)));
        let mut copy = knowledge.part(0..0, 7);
        let mut next = 0;
        loop {
            let part = knowledge.part(next..140, 7);
            next = part.last_container().map_or(140, |last| last + 1);
            let is_last = part.containers() < 7;
            assert!(copy.append(part));
            if is_last {
                break;
            }
        }
        assert_eq!(copy.encode(u32::MAX), knowledge.encode(140));
        knowledge.set_peer_epoch(3);
        assert!(!copy.append(knowledge.part(0..1, 7)));
    }

    #[test]
    fn chunks_are_in_order_until_the_peer_reports_another_order() {
        let mut knowledge = Knowledge::new(3);
        assert!(!knowledge.in_order(1), "no chunk of the container is known");
        knowledge.add(location(1, 0));
        assert!(knowledge.in_order(1));
        knowledge.set_disordered(1);
        assert!(!knowledge.in_order(1));
    }
}
