//! A chunk store in memory that tests can damage, and a simple codec in Rust.

use std::collections::{BTreeMap, BTreeSet};

use edgeward_dedup::codec::{Codec, Method, Undecodable};
use edgeward_dedup::fingerprint::ChunkFingerprint;
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::{ChunkLocation, ChunkStore, Entry, FingerprintedEntry, bytes_of};

use super::support::Random;

#[derive(Debug, Default)]
struct Container {
    entries: Vec<Entry>,
    fingerprints: BTreeMap<usize, ChunkFingerprint>,
    bytes: Vec<u8>,
    /// The slots of chunks without their bytes; `bytes` has zeroes there.
    without_bytes: BTreeSet<usize>,
}

/// Containers in memory. The oldest ones are evicted beyond a limit.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    epoch: u64,
    containers: BTreeMap<u32, Container>,
    locations: BTreeMap<ChunkId, ChunkLocation>,
    container_bytes: usize,
    containers_max: usize,
    /// The number of the next container.
    next: u32,
    /// The number of calls of `set_fingerprint` that computed a fingerprint.
    pub(crate) fingerprints_set: u64,
    /// On average one in this many lookups reports a pending read, as a store does that must first read from its
    /// device. 0: no lookup does.
    pending_one_in: usize,
    /// True if a lookup has reported a pending read since the last call of `set_pending`.
    has_pending: bool,
    random: Random,
}

impl MemoryStore {
    pub(crate) fn new(epoch: u64, container_bytes: usize, containers_max: usize) -> Self {
        Self {
            epoch,
            containers: BTreeMap::new(),
            locations: BTreeMap::new(),
            container_bytes,
            containers_max,
            next: 0,
            fingerprints_set: 0,
            pending_one_in: 0,
            has_pending: false,
            random: Random(epoch),
        }
    }

    /// Returns the entries of each container.
    pub(crate) fn entries_by_container(&self) -> Vec<Vec<Entry>> {
        let containers = self.containers.values();
        containers
            .map(|container| container.entries.clone())
            .collect()
    }

    /// Makes one in `one_in` lookups report a pending read; 0 makes no lookup do so. Returns true if a lookup
    /// has reported a pending read since the last call.
    pub(crate) fn set_pending(&mut self, one_in: usize) -> bool {
        self.pending_one_in = one_in;
        std::mem::take(&mut self.has_pending)
    }

    /// Decides by chance if the current lookup reports a pending read.
    fn draw_pending(&mut self) -> bool {
        let is_pending = self.pending_one_in > 0 && self.random.below(self.pending_one_in) == 0;
        self.has_pending |= is_pending;
        is_pending
    }

    /// Erases all chunks and changes the epoch.
    pub(crate) fn erase(&mut self) {
        self.epoch += 1;
        self.containers.clear();
        self.locations.clear();
    }

    pub(crate) fn evict_oldest(&mut self) {
        if let Some((number, _)) = self.containers.pop_first() {
            self.locations
                .retain(|_, location| location.container != number);
        }
    }

    /// Removes the newest containers without changing the epoch.
    pub(crate) fn truncate(&mut self, containers: usize) {
        for _ in 0..containers {
            if let Some((number, _)) = self.containers.pop_last() {
                self.locations
                    .retain(|_, location| location.container != number);
            }
        }
    }

    /// Returns the total number of bytes of all chunks.
    pub(crate) fn bytes(&self) -> usize {
        let containers = self.containers.values();
        containers.map(|container| container.bytes.len()).sum()
    }

    /// Flips one bit of one byte. `at` is the offset of the byte in the concatenation of all chunks, modulo their total
    /// number of bytes.
    pub(crate) fn flip(&mut self, at: usize) {
        let mut at = at % self.bytes().max(1);
        for container in self.containers.values_mut() {
            if let Some(byte) = container.bytes.get_mut(at) {
                *byte ^= 1;
                return;
            }
            at -= container.bytes.len();
        }
    }

    /// Stores the chunks of each container again in reverse order, so that their locations change.
    pub(crate) fn shuffle(&mut self) {
        let old = std::mem::take(&mut self.containers);
        self.locations.clear();
        for (_, container) in old {
            let mut at = container.bytes.len();
            for (slot, entry) in container.entries.iter().enumerate().rev() {
                at -= entry.length as usize;
                let bytes = &container.bytes[at..at + entry.length as usize];
                if container.without_bytes.contains(&slot) {
                    _ = self.find_or_list(*entry);
                } else {
                    _ = self.insert(entry.id, bytes);
                }
            }
        }
    }

    /// Returns the number of different chunks.
    pub(crate) fn chunks(&self) -> usize {
        self.locations.len()
    }

    fn append(&mut self, id: ChunkId, chunk: &[u8]) -> ChunkLocation {
        let is_full =
            |container: &Container| container.bytes.len() + chunk.len() > self.container_bytes;
        if self
            .containers
            .last_key_value()
            .is_none_or(|(_, newest)| is_full(newest))
        {
            self.containers.insert(self.next, Container::default());
            self.next += 1;
        }
        let mut newest = self
            .containers
            .last_entry()
            .expect("the container was just created");
        let slot = u16::try_from(newest.get().entries.len()).expect("containers are small");
        let location = ChunkLocation {
            container: *newest.key(),
            slot,
        };
        let length = u32::try_from(chunk.len()).expect("chunks are small");
        newest.get_mut().entries.push(Entry { id, length });
        newest.get_mut().bytes.extend_from_slice(chunk);
        self.locations.insert(id, location);
        while self.containers.len() > self.containers_max {
            self.evict_oldest();
        }
        location
    }
}

impl ChunkStore for MemoryStore {
    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn has_pending_reads(&self) -> bool {
        self.has_pending
    }

    fn locate(&mut self, id: &ChunkId) -> Option<ChunkLocation> {
        if self.draw_pending() {
            return None;
        }
        self.locations.get(id).copied()
    }

    fn entries(&mut self, location: ChunkLocation, chunks_max: usize, out: &mut Vec<Entry>) {
        if !self.draw_pending()
            && let Some(container) = self.containers.get(&location.container)
        {
            out.extend(
                container
                    .entries
                    .iter()
                    .skip(usize::from(location.slot))
                    .take(chunks_max),
            );
        }
    }

    fn load(&mut self, location: ChunkLocation, entries: &[Entry], out: &mut [u8]) -> bool {
        if self.draw_pending() {
            return false;
        }
        let Some(container) = self.containers.get(&location.container) else {
            return false;
        };
        let slot = usize::from(location.slot);
        if container.entries.get(slot..slot + entries.len()) != Some(entries) {
            return false;
        }
        if (slot..slot + entries.len()).any(|slot| container.without_bytes.contains(&slot)) {
            return false;
        }
        let start = bytes_of(&container.entries[..slot]);
        out.copy_from_slice(&container.bytes[start..start + bytes_of(entries)]);
        true
    }

    fn insert(&mut self, id: ChunkId, chunk: &[u8]) -> Option<ChunkLocation> {
        match self.locations.get(&id).copied() {
            Some(location) if self.has_bytes(location) => Some(location),
            _ => Some(self.append(id, chunk)),
        }
    }

    fn find_or_insert(&mut self, id: ChunkId, chunk: &[u8]) -> (Option<ChunkLocation>, bool) {
        if self.draw_pending() {
            return (None, false);
        }
        let before = self.locations.get(&id).copied();
        let found = before.is_some_and(|location| self.has_bytes(location));
        (self.insert(id, chunk), found)
    }

    fn find_or_list(&mut self, entry: Entry) -> (Option<ChunkLocation>, bool) {
        if self.draw_pending() {
            return (None, false);
        }
        if let Some(&location) = self.locations.get(&entry.id) {
            return (Some(location), true);
        }
        let location = self.append(entry.id, &vec![0; entry.length as usize]);
        let newest = self.containers.get_mut(&location.container);
        newest.map(|newest| newest.without_bytes.insert(usize::from(location.slot)));
        (Some(location), false)
    }

    fn has_bytes(&mut self, location: ChunkLocation) -> bool {
        let container = self.containers.get(&location.container);
        container.is_some_and(|container| {
            !container
                .without_bytes
                .contains(&usize::from(location.slot))
        })
    }

    /// Returns true if the chunks have bytes and their container will not be evicted soon: it must not be among
    /// the `containers_max / 8 + 1` containers of a full store that are evicted next.
    fn is_retained(&mut self, location: ChunkLocation, chunks: usize) -> bool {
        let newer = self.containers.range(location.container + 1..).count();
        newer < self.containers_max - 1 - self.containers_max / 8
            && (0..chunks).all(|nth| self.has_bytes(location.plus(nth)))
    }

    fn entries_with_fingerprints(
        &mut self,
        location: ChunkLocation,
        chunks_max: usize,
        out: &mut Vec<FingerprintedEntry>,
    ) {
        if !self.draw_pending()
            && let Some(container) = self.containers.get(&location.container)
        {
            let entries = container.entries.iter().copied().enumerate();
            let from_slot = entries.skip(usize::from(location.slot)).take(chunks_max);
            out.extend(from_slot.map(|(slot, entry)| {
                let fingerprint = container.fingerprints.get(&slot).copied();
                FingerprintedEntry { entry, fingerprint }
            }));
        }
    }

    fn set_fingerprint(
        &mut self,
        location: ChunkLocation,
        id: &ChunkId,
        fingerprint: impl FnOnce() -> Option<ChunkFingerprint>,
    ) {
        let slot = usize::from(location.slot);
        if let Some(container) = self.containers.get_mut(&location.container)
            && container
                .entries
                .get(slot)
                .is_some_and(|entry| entry.id == *id)
            && let Some(fingerprint) = fingerprint()
        {
            container.fingerprints.entry(slot).or_insert(fingerprint);
            self.fingerprints_set += 1;
        }
    }

    fn forget(&mut self, location: ChunkLocation) {
        self.locations.retain(|_, listed| *listed != location);
    }
}

/// A simple codec: omits the prefix and the suffix that the bytes have in common with the dictionary, and
/// shortens a run of equal bytes before the suffix.
#[derive(Debug, Default)]
pub(crate) struct PatchCodec;

impl Codec for PatchCodec {
    fn compress(
        &mut self,
        method: Method,
        dictionary: &[u8],
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        assert_ne!(method, Method::None, "the sender never compresses with it");
        let same = |pair: &(&u8, &u8)| pair.0 == pair.1;
        let front = dictionary.iter().zip(raw).take_while(same).count();
        let (dictionary, raw_left) = (&dictionary[front..], &raw[front..]);
        let back = dictionary
            .iter()
            .rev()
            .zip(raw_left.iter().rev())
            .take_while(same)
            .count();
        let middle = &raw_left[..raw_left.len() - back];
        let run = middle.last().map_or(0, |last| {
            middle.iter().rev().take_while(|byte| *byte == last).count()
        });
        if front + back + run < 20 {
            return false;
        }
        for number in [front, back, run] {
            out.extend(
                u32::try_from(number)
                    .expect("the length fits")
                    .to_le_bytes(),
            );
        }
        out.extend_from_slice(&middle[..middle.len() - run]);
        out.extend(middle.last().filter(|_| run > 0));
        true
    }

    fn decompress(
        &mut self,
        _: Method,
        dictionary: &[u8],
        packed: &[u8],
        raw_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Undecodable> {
        let number = |at: usize| {
            let bytes = packed.get(at..at + 4).and_then(|bytes| bytes.first_chunk());
            bytes
                .map(|bytes| u32::from_le_bytes(*bytes) as usize)
                .ok_or(Undecodable)
        };
        let (front, back, run) = (number(0)?, number(4)?, number(8)?);
        let middle = &packed[12..];
        let literal = middle.len() - usize::from(run > 0);
        if front + back + run + literal != raw_bytes || front + back > dictionary.len() {
            return Err(Undecodable);
        }
        out.extend_from_slice(&dictionary[..front]);
        out.extend_from_slice(&middle[..literal]);
        out.extend(
            middle
                .last()
                .into_iter()
                .filter(|_| run > 0)
                .cycle()
                .take(run),
        );
        out.extend_from_slice(&dictionary[dictionary.len() - back..]);
        Ok(())
    }
}
