//! The store itself: one container that fills, a device of those that are full.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::{ChunkStore, Entry, Place};
use edgeward_store::disk::Device;

use crate::format::{Layout, SUPERBLOCK_BYTES, Superblock, SuperblockError, Trailer};
use crate::index::Index;
use crate::trailers::{Listing, Trailers};

/// How chunks are kept.
#[derive(Clone, Copy, Debug)]
pub struct ChunkSettings {
    /// Bytes of a chunk, on average: the index is made for as many as fit the device.
    pub chunk_bytes: u32,
    /// How containers are laid out, if the store is new.
    pub layout: Layout,
    /// The epoch of the store if it is new: random.
    pub epoch: u64,
    /// Trailers kept in memory. Each is 20 bytes a chunk.
    pub trailers_max: usize,
}

impl ChunkSettings {
    /// For chunks of `chunk_bytes`, containers of 1 MiB, and 4096 trailers: 10 MB for chunks of 8 KiB, and 4 GB of bodies whose
    /// chunks are found without reading.
    pub fn new(chunk_bytes: u32, epoch: u64) -> Self {
        Self {
            chunk_bytes,
            layout: Layout::DEFAULT,
            epoch,
            trailers_max: 4096,
        }
    }
}

/// Why a store cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It could not be read or written.
    #[error("the chunk store {name} cannot be used")]
    Device {
        /// What it is called.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// It is none, or not ours.
    #[error("the chunk store {name} is not opened")]
    Superblock {
        /// What it is called.
        name: String,
        /// Why.
        source: SuperblockError,
    },
    /// Two containers are the least: one that is written, and one to read from.
    #[error("the chunk store {name} has {bytes} bytes, which is less than two containers")]
    TooSmall {
        /// What it is called.
        name: String,
        /// What it has.
        bytes: u64,
    },
}

/// What happened, and what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounters {
    /// Containers that were found when the store was opened.
    pub recovered: u64,
    /// Containers written.
    pub written: u64,
    /// Containers overwritten.
    pub evicted: u64,
    /// Trailers read from the device.
    pub trailers_read: u64,
    /// Of those, for a tag that was another chunk's.
    pub misled: u64,
    /// Chunks that were not what their names say.
    pub forgotten: u64,
    /// Reads and writes that failed.
    pub errors: u64,
    /// Chunks the index knows.
    pub indexed: u64,
    /// Chunks the index had to drop.
    pub dropped: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
}

/// Chunks on a device, for any number of peers and threads: clones are the same store.
///
/// One lock guards index and open container; a full container is written and a trailer read under it, chunks are read
/// without it. The open container is lost if [`flush`](Self::flush) is not called before the end.
#[derive(Clone, Debug)]
pub struct Chunks(Arc<Shared>);

impl Chunks {
    /// Opens what is on the device, or begins a new store if it is empty: all zeroes.
    ///
    /// What the last run left is found again by reading the trailers.
    pub fn open(device: Arc<dyn Device>, settings: ChunkSettings) -> Result<Self, OpenError> {
        Shared::open(device, settings).map(|shared| Self(Arc::new(shared)))
    }

    /// Writes the container that is not full yet and makes everything durable: before the end, and when nothing is to do.
    pub fn flush(&self) -> io::Result<()> {
        let mut state = self.0.state();
        if !state.open.bytes.is_empty() {
            self.0.seal(&mut state)?;
        }
        self.0.device.sync()
    }

    /// What happened so far.
    pub fn counters(&self) -> ChunkCounters {
        let state = self.0.state();
        ChunkCounters {
            indexed: state.index.used(),
            dropped: state.index.dropped(),
            index_bytes: state.index.bytes() as u64,
            ..state.counters
        }
    }

    /// Bytes of chunks the device has room for.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.0.containers) * self.0.layout.container_bytes() as u64
    }
}

#[derive(Debug)]
struct Shared {
    device: Arc<dyn Device>,
    layout: Layout,
    containers: u32,
    chunks: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    epoch: u64,
    index: Index,
    trailers: Trailers,
    open: Open,
    counters: ChunkCounters,
}

/// The container that fills.
#[derive(Debug)]
struct Open {
    number: u32,
    listing: Listing,
    bytes: Vec<u8>,
    names: HashMap<ChunkId, u16>,
}

impl Open {
    fn new(number: u32, layout: Layout) -> Self {
        Self {
            number,
            listing: Listing {
                number,
                entries: Vec::new(),
            },
            bytes: Vec::with_capacity(layout.container_bytes() + layout.trailer_bytes()),
            names: HashMap::new(),
        }
    }
}

impl Shared {
    fn open(device: Arc<dyn Device>, settings: ChunkSettings) -> Result<Self, OpenError> {
        let name = device.name();
        let bytes = device.len();
        let too_small = || OpenError::TooSmall {
            name: name.clone(),
            bytes,
        };
        let failed = |source| OpenError::Device {
            name: name.clone(),
            source,
        };
        if bytes < SUPERBLOCK_BYTES as u64 {
            return Err(too_small());
        }
        let mut first = [0; SUPERBLOCK_BYTES];
        device.read_at(&mut first, 0).map_err(failed)?;
        let superblock = Superblock::decode(&first);
        let superblock = superblock.map_err(|source| OpenError::Superblock {
            name: name.clone(),
            source,
        })?;
        let is_new = superblock.is_none();
        let Superblock { epoch, layout } = superblock.unwrap_or(Superblock {
            epoch: settings.epoch,
            layout: settings.layout,
        });
        let containers = layout.containers(bytes);
        if containers < 2 {
            return Err(too_small());
        }
        if is_new {
            let superblock = Superblock { epoch, layout };
            device.write_at(&superblock.encode(), 0).map_err(failed)?;
            device.sync().map_err(failed)?;
        }
        // None is shorter than a quarter of the chunker's average and only bodies' last ones are, so they are an eighth
        // longer (9.3 KB and more at 8 KiB). The index has a tenth to spare, and beyond it old entries give way.
        let chunk_bytes = u64::from(settings.chunk_bytes.max(1)) * 9 / 8;
        let chunks = u64::from(containers) * layout.container_bytes() as u64 / chunk_bytes.max(1);
        let store = Self {
            device,
            layout,
            containers,
            chunks,
            state: Mutex::new(State {
                epoch,
                index: Index::for_chunks(chunks),
                trailers: Trailers::new(settings.trailers_max),
                open: Open::new(0, layout),
                counters: ChunkCounters::default(),
            }),
        };
        if !is_new {
            store.recover();
        }
        Ok(store)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves at worst a hint that leads nowhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all trailers; the containers are those whose number belongs where they are.
    fn recover(&self) {
        let mut state = self.state();
        let mut newest = None;
        for position in 0..self.containers {
            let Some(listing) = self.read_trailer(position, &mut state) else {
                continue;
            };
            for entry in &listing.entries {
                state.index.insert(&entry.id, position);
            }
            newest = newest.max(Some(listing.number));
            state.counters.recovered += 1;
        }
        // The highest number there can be was the last before a new epoch; only harm brings it here.
        let next = newest
            .map_or(0, |newest| newest.saturating_add(1))
            .min(NUMBERS_END - 1);
        state.open = Open::new(next, self.layout);
        self.evict(self.position(next), &mut state);
    }

    fn position(&self, number: u32) -> u32 {
        number % self.containers
    }

    /// What lies at a position, from the device.
    fn read_trailer(&self, position: u32, state: &mut State) -> Option<Listing> {
        let offset = self.layout.offset(position) + self.layout.container_bytes() as u64;
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        let read = self.device.read_at(&mut bytes, offset).and_then(|()| {
            // Chunks of 8 KiB on average and more are all listed in the first 4 KiB.
            let whole = Trailer::bytes(self.layout, &bytes).unwrap_or(0);
            let first = bytes.len();
            if whole > first {
                bytes.resize(whole, 0);
                self.device
                    .read_at(&mut bytes[first..], offset + first as u64)?;
            }
            Ok(())
        });
        if read.is_err() {
            state.counters.errors += 1;
            return None;
        }
        let trailer = Trailer::decode(self.layout, state.epoch, &bytes)?;
        // A device that grew or shrank has containers where their numbers do not belong.
        (self.position(trailer.number) == position).then(|| trailer.into())
    }

    /// What lies at a position, from memory if it is there.
    fn listing(&self, position: u32, state: &mut State) -> Option<Arc<Listing>> {
        if let Some(listing) = state.trailers.of(position) {
            return Some(listing);
        }
        state.counters.trailers_read += 1;
        let listing = Arc::new(self.read_trailer(position, state)?);
        state.trailers.insert(position, Arc::clone(&listing));
        Some(listing)
    }

    /// As [`listing`](Self::listing), if the container is still this one.
    fn listing_of(&self, number: u32, state: &mut State) -> Option<Arc<Listing>> {
        let listing = self.listing(self.position(number), state)?;
        (listing.number == number).then_some(listing)
    }

    /// Takes the chunks at a position out of the index.
    fn evict(&self, position: u32, state: &mut State) {
        if let Some(listing) = self.listing(position, state) {
            listing
                .entries
                .iter()
                .for_each(|entry| state.index.remove(&entry.id, position));
            state.counters.evicted += 1;
        }
        state.trailers.remove(position);
    }

    /// Writes the open container and begins the next, over the oldest.
    fn seal(&self, state: &mut State) -> io::Result<()> {
        let next = state.open.number + 1;
        let Open {
            number,
            listing,
            mut bytes,
            ..
        } = std::mem::replace(&mut state.open, Open::new(next, self.layout));
        let position = self.position(number);
        bytes.resize(self.layout.container_bytes(), 0);
        let trailer = Trailer {
            number,
            entries: listing.entries,
        };
        trailer.encode(self.layout, state.epoch, &mut bytes);
        let written = self.device.write_at(&bytes, self.layout.offset(position));
        if written.is_ok() {
            state.counters.written += 1;
            state.trailers.insert(position, Arc::new(trailer.into()));
        } else {
            // Whatever is there now, nobody shall look for it.
            state.counters.errors += 1;
            trailer
                .entries
                .iter()
                .for_each(|entry| state.index.remove(&entry.id, position));
        }
        if next == NUMBERS_END {
            self.begin_anew(state)?;
        }
        self.evict(self.position(state.open.number), state);
        written
    }

    /// Numbers are used up, after four petabytes: all places would mean something else, so the store is a new one.
    fn begin_anew(&self, state: &mut State) -> io::Result<()> {
        // Any number but the old one; who saw the old one must not be able to tell that nothing was drawn.
        let epoch = xxh3_64_with_seed(b"the next epoch", state.epoch);
        let superblock = Superblock {
            epoch,
            layout: self.layout,
        };
        state.epoch = epoch;
        state.index = Index::for_chunks(self.chunks);
        state.trailers.clear();
        state.open = Open::new(0, self.layout);
        self.device.write_at(&superblock.encode(), 0)?;
        self.device.sync()
    }

    fn locate(&self, id: &ChunkId, state: &mut State) -> Option<Place> {
        if let Some(&slot) = state.open.names.get(id) {
            return Some(Place {
                container: state.open.number,
                slot,
            });
        }
        let open = self.position(state.open.number);
        for position in state.index.candidates(id) {
            if position == open {
                continue;
            }
            let listing = self.listing(position, state);
            if let Some((listing, slot)) =
                listing.and_then(|listing| Some((listing.number, listing.slot(id)?)))
            {
                return Some(Place {
                    container: listing,
                    slot,
                });
            }
            state.counters.misled += 1;
        }
        None
    }
}

/// No container has this number or a higher one.
const NUMBERS_END: u32 = u32::MAX - 1;

impl ChunkStore for Chunks {
    fn epoch(&self) -> u64 {
        self.0.state().epoch
    }

    fn locate(&mut self, id: &ChunkId) -> Option<Place> {
        self.0.locate(id, &mut self.0.state())
    }

    fn entries(&mut self, place: Place, most: usize, out: &mut Vec<Entry>) {
        let mut state = self.0.state();
        let from = usize::from(place.slot);
        if place.container == state.open.number {
            out.extend(state.open.listing.entries.iter().skip(from).take(most));
        } else if let Some(listing) = self.0.listing_of(place.container, &mut state) {
            out.extend(listing.entries.iter().skip(from).take(most));
        }
    }

    fn load(&mut self, place: Place, entries: &[Entry], out: &mut Vec<u8>) -> bool {
        let slots = usize::from(place.slot)..usize::from(place.slot) + entries.len();
        let bytes: usize = entries.iter().map(|entry| entry.length as usize).sum();
        let mut state = self.0.state();
        if place.container == state.open.number {
            let open = &state.open;
            let there = open.listing.entries.get(slots.clone()) == Some(entries);
            if there {
                let start =
                    usize::try_from(open.listing.offset(slots.start)).expect("within a container");
                out.extend_from_slice(&open.bytes[start..start + bytes]);
            }
            return there;
        }
        let Some(listing) = self.0.listing_of(place.container, &mut state) else {
            return false;
        };
        drop(state);
        if listing.entries.get(slots.clone()) != Some(entries) {
            return false;
        }
        // The container may be overwritten meanwhile; then these are not the bytes, and their hash says so.
        let offset =
            self.0.layout.offset(self.0.position(place.container)) + listing.offset(slots.start);
        let start = out.len();
        out.resize(start + bytes, 0);
        let read = self.0.device.read_at(&mut out[start..], offset);
        if read.is_err() {
            out.truncate(start);
            self.0.state().counters.errors += 1;
        }
        read.is_ok()
    }

    fn insert(&mut self, id: ChunkId, chunk: &[u8]) -> Option<Place> {
        let mut guard = self.0.state();
        let state = &mut *guard;
        if let Some(place) = self.0.locate(&id, state) {
            return Some(place);
        }
        let length = u32::try_from(chunk.len()).ok()?;
        if chunk.is_empty() || chunk.len() > self.0.layout.container_bytes() {
            return None;
        }
        let full = state.open.bytes.len() + chunk.len() > self.0.layout.container_bytes();
        if full || state.open.listing.entries.len() == self.0.layout.chunks_max() {
            // What could not be written is counted and forgotten; the next container may fare better.
            _ = self.0.seal(state);
        }
        let position = self.0.position(state.open.number);
        let open = &mut state.open;
        let slot = u16::try_from(open.listing.entries.len()).expect("16 MiB of chunks of a KiB");
        open.listing.entries.push(Entry { id, length });
        open.bytes.extend_from_slice(chunk);
        open.names.insert(id, slot);
        state.index.insert(&id, position);
        Some(Place {
            container: open.number,
            slot,
        })
    }

    fn forget(&mut self, place: Place) {
        let mut guard = self.0.state();
        let state = &mut *guard;
        let slot = usize::from(place.slot);
        let position = self.0.position(place.container);
        let entry = if place.container == state.open.number {
            state.open.listing.entries.get(slot).copied()
        } else {
            let listing = self.0.listing_of(place.container, state);
            listing.and_then(|listing| listing.entries.get(slot).copied())
        };
        if let Some(Entry { id, .. }) = entry {
            if place.container == state.open.number {
                state.open.names.remove(&id);
            }
            state.index.remove(&id, position);
            state.counters.forgotten += 1;
        }
    }
}
