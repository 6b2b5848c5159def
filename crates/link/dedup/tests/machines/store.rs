//! A chunk store in memory that tests can damage, and a simple codec in Rust.

use std::collections::{BTreeMap, BTreeSet};

use edgeward_dedup::codec::{Codec, Method, Undecodable};
use edgeward_dedup::fingerprint::ChunkFingerprint;
use edgeward_dedup::id::{ChunkId, IdKey};
use edgeward_dedup::store::{
    Answer, ChunkLocation, Entry, LocatedChunk, Request, Row, RowChunk, bytes_of,
};

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
    /// The number of fingerprints that were set for the first time.
    pub(crate) fingerprints_set: u64,
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
        }
    }

    /// Returns the entries of each container.
    pub(crate) fn entries_by_container(&self) -> Vec<Vec<Entry>> {
        let containers = self.containers.values();
        containers
            .map(|container| container.entries.clone())
            .collect()
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

impl MemoryStore {
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Performs a request. Returns `None` if the request has no answer.
    pub(crate) fn answer(&mut self, request: Request, id_key: &IdKey) -> Option<Answer> {
        Some(match request {
            Request::Find {
                entry,
                chunk,
                expected,
            } => {
                let before = self.locations.get(&entry.id).copied();
                let (location, was_stored) = match chunk {
                    Some(chunk) => (
                        self.insert(entry.id, &chunk),
                        before.is_some_and(|location| self.has_bytes(location)),
                    ),
                    None => (self.find_or_list(entry), before.is_some()),
                };
                // A chunk whose bytes are stored only now gets another location, or had bytes before.
                let row = (was_stored && location != expected).then(|| self.row(location?));
                Answer::Found {
                    location,
                    was_stored,
                    evicted_bytes: 0,
                    row: row.flatten(),
                }
            }
            Request::List(location) => Answer::Row(self.row(location)),
            Request::Lookup(ids) => {
                Answer::Located(ids.iter().map_while(|id| self.locate(id)).collect())
            }
            Request::LookupRun { first, chunks } => {
                let first = self.locations.get(&first);
                let found = first.map(|location| self.run(*location, chunks));
                Answer::Located(found.unwrap_or_default())
            }
            Request::Load(chunks) => Answer::Loaded(self.load(&chunks, id_key).map(Into::into)),
            Request::Store { id, chunk } => Answer::Stored(self.insert(id, &chunk)),
            Request::SetFingerprint {
                location,
                id,
                fingerprint,
            } => {
                self.set_fingerprint(location, id, fingerprint);
                return None;
            }
        })
    }

    pub(crate) fn locate(&self, id: &ChunkId) -> Option<LocatedChunk> {
        let location = *self.locations.get(id)?;
        let container = self.containers.get(&location.container)?;
        let entry = *container.entries.get(usize::from(location.slot))?;
        (entry.id == *id).then_some(LocatedChunk { location, entry })
    }

    /// Returns the chunks from a location to the end of its container. A container is retained if it is not among the
    /// `containers_max / 8 + 1` containers of a full store that are evicted next.
    fn row(&self, location: ChunkLocation) -> Option<Row> {
        let container = self.containers.get(&location.container)?;
        let slots = usize::from(location.slot)..container.entries.len();
        let newer = self.containers.range(location.container + 1..).count();
        let chunks = slots.map(|slot| RowChunk {
            entry: container.entries[slot],
            fingerprint: container.fingerprints.get(&slot).copied(),
            has_bytes: !container.without_bytes.contains(&slot),
        });
        let chunks: Vec<_> = chunks.collect();
        (!chunks.is_empty()).then(|| Row {
            location,
            chunks: chunks.into(),
            is_retained: newer < self.containers_max - 1 - self.containers_max / 8,
        })
    }

    /// Returns this many consecutive chunks from a location on. They may lie in several containers.
    pub(crate) fn run(&self, mut location: ChunkLocation, chunks: usize) -> Vec<LocatedChunk> {
        let mut found = Vec::new();
        while let Some(container) = self.containers.get(&location.container)
            && found.len() < chunks
        {
            let rest = container.entries.iter().skip(usize::from(location.slot));
            let rest = rest.take(chunks - found.len()).enumerate();
            found.extend(rest.map(|(nth, entry)| LocatedChunk {
                location: location.plus(nth),
                entry: *entry,
            }));
            location = location.next_container();
        }
        found
    }

    /// Loads chunks. Removes corrupt chunks.
    fn load(&mut self, chunks: &[LocatedChunk], id_key: &IdKey) -> Option<Vec<u8>> {
        let (mut loaded, mut is_valid) = (Vec::new(), true);
        for LocatedChunk { location, entry } in chunks {
            let container = self.containers.get(&location.container)?;
            let slot = usize::from(location.slot);
            if container.entries.get(slot) != Some(entry) || container.without_bytes.contains(&slot)
            {
                return None;
            }
            let start = bytes_of(&container.entries[..slot]);
            let bytes = &container.bytes[start..start + entry.length as usize];
            let fingerprint = container.fingerprints.get(&slot).copied();
            loaded.extend_from_slice(bytes);
            if !id_key.verifies(entry.id, fingerprint, bytes) {
                self.locations.retain(|_, listed| listed != location);
                is_valid = false;
            } else if let Some(fingerprint) = id_key.fingerprint(bytes) {
                self.set_fingerprint(*location, entry.id, fingerprint);
            }
        }
        is_valid.then_some(loaded)
    }

    pub(crate) fn insert(&mut self, id: ChunkId, chunk: &[u8]) -> Option<ChunkLocation> {
        match self.locations.get(&id).copied() {
            Some(location) if self.has_bytes(location) => Some(location),
            _ => Some(self.append(id, chunk)),
        }
    }

    fn find_or_list(&mut self, entry: Entry) -> Option<ChunkLocation> {
        if let Some(&location) = self.locations.get(&entry.id) {
            return Some(location);
        }
        let location = self.append(entry.id, &vec![0; entry.length as usize]);
        let newest = self.containers.get_mut(&location.container);
        newest.map(|newest| newest.without_bytes.insert(usize::from(location.slot)));
        Some(location)
    }

    fn has_bytes(&self, location: ChunkLocation) -> bool {
        let container = self.containers.get(&location.container);
        container.is_some_and(|container| {
            !container
                .without_bytes
                .contains(&usize::from(location.slot))
        })
    }

    fn set_fingerprint(
        &mut self,
        location: ChunkLocation,
        id: ChunkId,
        fingerprint: ChunkFingerprint,
    ) {
        let slot = usize::from(location.slot);
        if let Some(container) = self.containers.get_mut(&location.container)
            && container
                .entries
                .get(slot)
                .is_some_and(|entry| entry.id == id)
            && !container.fingerprints.contains_key(&slot)
        {
            container.fingerprints.insert(slot, fingerprint);
            self.fingerprints_set += 1;
        }
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
