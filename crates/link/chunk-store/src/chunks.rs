//! The store: one open container in memory, and written containers on a device. A container has a trailer, which lists
//! its chunks. This file opens the store, reads trailers and chunks, and writes containers; `operations` has the
//! queries.

mod operations;

use std::io;
use std::ops::{Deref, Range};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use edgeward_types::xxh3::xxh3_64_with_seed;

use edgeward_dedup::codec::Method;
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::{ChunkLocation, Entry};
use edgeward_store::disk::Device;

use crate::access::{Blocked, Reads, Unread, Wait};
use crate::blocks::{Part, Unpacker};
use crate::format::{Layout, SUPERBLOCK_BYTES, Superblock, Trailer};
use crate::format::{VERSION, VERSION_BLOCKS, VERSION_RAW};
use crate::index::Index;
use crate::open::{OpenContainer, Packer};
use crate::recovery::{Checkpoints, Recovery, RecoveryReport, RecoverySource};
use crate::requests::WouldBlock;
use crate::reuse::{ReuseSample, SAMPLED_MAX};
use crate::settings::{ChunkCounters, ChunkSettings, OpenError};
use crate::threads::StoreThreads;
use crate::trailers::{Listing, Sizes, TrailerCache};

/// Chunks on a device, for any number of peers and threads. Clones share the store.
///
/// One lock protects the index and the open container. Containers are written without the lock, and trailers and chunks
/// are read without it. If [`flush`](Self::flush) is not called before the store is dropped, the open
/// container is lost.
///
/// A function that takes or returns chunks may wait for the device, except [`try_answer`](Self::try_answer).
#[derive(Clone, Debug)]
pub struct Chunks(pub(crate) Arc<OpenStore>);

impl Chunks {
    /// Opens the store on the device, and returns when its index is complete. Creates a store if the first block of the
    /// device is all zeroes.
    ///
    /// # Errors
    ///
    /// Fails if the device cannot be used, is not a chunk store, or needs an index that does not fit in memory.
    pub fn open(device: Arc<dyn Device>, settings: ChunkSettings) -> Result<Self, OpenError> {
        let (shared, source) = Shared::open(device, settings)?;
        shared.recover(source);
        let store = if shared.checkpoints.is_enabled() {
            OpenStore::new(shared, Shared::save_checkpoints)?
        } else {
            OpenStore {
                threads: StoreThreads::new(),
                shared: Arc::new(shared),
                thread: None,
            }
        };
        Ok(Self(Arc::new(store)))
    }

    /// Like [`open`](Self::open), but returns before the index is complete, and calls `on_recovered` on another thread
    /// when it is. Until then the store accepts new chunks, and lookups of other chunks may find nothing.
    ///
    /// # Errors
    ///
    /// Fails like [`open`](Self::open).
    pub fn open_in_background(
        device: Arc<dyn Device>,
        settings: ChunkSettings,
        on_recovered: impl FnOnce(RecoveryReport) + Send + 'static,
    ) -> Result<Self, OpenError> {
        let (shared, source) = Shared::open(device, settings)?;
        let store = OpenStore::new(shared, |shared| {
            if let Some(report) = shared.recover(source) {
                on_recovered(report);
                if shared.checkpoints.is_enabled() {
                    shared.save_checkpoints();
                }
            }
        })?;
        Ok(Self(Arc::new(store)))
    }

    /// Writes the open container even if it is not full, and makes all containers durable. Saves the index if it is
    /// complete. Called at shutdown.
    pub fn flush(&self) -> io::Result<()> {
        let sealed = self.0.query_and_write(Wait::Device, |state, reads| {
            if state.open.is_empty() {
                return Ok(Ok(()));
            }
            self.0.seal(state, reads)
        });
        if let Ok((sealed, written)) = sealed {
            sealed.and(written)?;
        }
        self.sync(self.open_container_number())?;
        // Without the checkpoint, the next start takes longer. The failure is counted.
        _ = self.save_checkpoint();
        Ok(())
    }

    /// Saves the index now, if the store has a [checkpoint](ChunkSettings::checkpoint), its index is complete, and a
    /// container was written since the last checkpoint. Returns true if a checkpoint was written.
    pub fn save_checkpoint(&self) -> io::Result<bool> {
        self.0.save_checkpoint()
    }

    /// Makes the containers with numbers below `end` durable. They exist with the same numbers after a crash, except
    /// those whose write has failed. Waits for the write of such a container if it is not written yet, but not for
    /// writes of later containers, which may follow each other without a pause. `end` is at most the [open container's number](Self::open_container_number).
    pub fn sync(&self, end: u32) -> io::Result<()> {
        self.0.wait_written(end);
        self.0.device.sync()
    }

    /// Returns the number of the open container, which is the first that cannot be made [durable](Self::sync) yet.
    pub fn open_container_number(&self) -> u32 {
        self.0.state().open.number
    }

    /// Returns the counters.
    pub fn counters(&self) -> ChunkCounters {
        let state = self.0.state();
        let mut counters = ChunkCounters {
            indexed: state.index.used(),
            dropped: state.index.dropped(),
            index_bytes: state.index.bytes() as u64,
            reuse: state.reuse.counters(),
            skipped: self.0.threads.skipped(),
            recovering: state.recovery.is_some(),
            unread_trailers: state.recovery.as_ref().map_or(0, Recovery::unread_trailers),
            ..state.counters
        };
        counters.count(state.open.sizes(), u64::wrapping_add);
        counters
    }

    /// Returns the number of containers that the store has when it is full. Their numbers are consecutive.
    pub fn containers(&self) -> u32 {
        self.0.containers
    }

    /// Returns the number of bytes of chunks that the device can hold, after compression.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.0.containers) * self.0.layout.container_bytes() as u64
    }
}

/// A store with the thread that recovers its index and then saves it from time to time, and with the threads that
/// perform requests. Dropping this value ends all of them.
#[derive(Debug)]
pub(crate) struct OpenStore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) threads: StoreThreads,
    thread: Option<JoinHandle<()>>,
}

impl OpenStore {
    fn new(shared: Shared, run: impl FnOnce(&Shared) + Send + 'static) -> Result<Self, OpenError> {
        let shared = Arc::new(shared);
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("chunk-index".to_owned());
        let thread = thread.spawn(move || run(&of_thread));
        Ok(Self {
            shared,
            threads: StoreThreads::new(),
            thread: Some(thread.map_err(OpenError::Thread)?),
        })
    }
}

impl Deref for OpenStore {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        self.shared.stop();
        self.threads.stop();
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) layout: Layout,
    /// The number of containers that fit on the device.
    pub(crate) containers: u32,
    state: Mutex<State>,
    /// Notified when a full container is written.
    pub(crate) written: Condvar,
    /// The decompressor. It has its own lock, so that decompression does not delay lookups.
    unpacker: Mutex<Unpacker>,
    /// The saved index.
    pub(crate) checkpoints: Checkpoints,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) superblock: Superblock,
    /// True if the store was created when it was opened.
    is_new: bool,
    pub(crate) index: Index,
    /// The number of chunks that the index was sized for.
    pub(crate) chunks: u64,
    /// The entries that the index still lacks since the store was opened. `None` if it is complete.
    pub(crate) recovery: Option<Recovery>,
    /// The number of containers that were written since the last attempt to save the index began.
    pub(crate) unsaved_containers: u32,
    /// The number of the first container that the last checkpoint does not cover.
    pub(crate) saved_next: Option<u32>,
    pub(crate) trailers: TrailerCache,
    pub(crate) open: OpenContainer,
    /// The container before the open one until it is written.
    pub(crate) unwritten: Option<Arc<FullContainer>>,
    /// The same container, for the query that has filled it and must write it.
    pub(crate) full: Option<Arc<FullContainer>>,
    /// The memory of the container that was written last.
    spare: Vec<u8>,
    pub(crate) packer: Packer,
    pub(crate) counters: ChunkCounters,
    /// A sample of the chunks that were stored since the store was opened.
    pub(crate) reuse: ReuseSample,
}

/// A full container, as it is written.
#[derive(Debug)]
pub(crate) struct FullContainer {
    pub(crate) listing: Arc<Listing>,
    /// The blocks and the trailer.
    pub(crate) bytes: Vec<u8>,
    /// The number of bytes before the trailer.
    pub(crate) trailer_at: usize,
}

impl Shared {
    fn open(
        device: Arc<dyn Device>,
        settings: ChunkSettings,
    ) -> Result<(Self, RecoverySource), OpenError> {
        let name = device.name();
        let bytes = device.len();
        let too_small = || OpenError::TooSmall {
            name: name.clone(),
            bytes,
        };
        let device_error = |source| OpenError::Device {
            name: name.clone(),
            source,
        };
        if bytes < SUPERBLOCK_BYTES as u64 {
            return Err(too_small());
        }
        let mut first = [0; SUPERBLOCK_BYTES];
        device.read_at(&mut first, 0).map_err(device_error)?;
        let superblock = Superblock::decode(&first);
        let superblock = superblock.map_err(|source| OpenError::Superblock {
            name: name.clone(),
            source,
        })?;
        let is_new = superblock.is_none();
        let existing = superblock.unwrap_or(Superblock {
            version: VERSION_RAW,
            epoch: settings.epoch,
            layout: settings.layout,
        });
        let packer = Packer::new(settings.compression);
        // A store with compressed blocks gets a higher version, because older programs must refuse it.
        let superblock = Superblock {
            version: if packer.stores_uncompressed() {
                existing.version
            } else {
                existing.version.max(VERSION_BLOCKS)
            },
            ..existing
        };
        let layout = superblock.layout;
        let containers = layout.containers(bytes);
        if containers < 2 {
            return Err(too_small());
        }
        if is_new || superblock != existing {
            device
                .write_at(&superblock.encode(), 0)
                .map_err(device_error)?;
            device.sync().map_err(device_error)?;
        }
        let memory_error = |source| OpenError::Memory {
            name: name.clone(),
            index_bytes: 0,
            source,
        };
        let store = Self {
            device,
            layout,
            containers,
            state: Mutex::new(State {
                superblock,
                is_new,
                index: Index::for_chunks(0).map_err(memory_error)?,
                chunks: 0,
                recovery: None,
                unsaved_containers: 0,
                saved_next: None,
                trailers: TrailerCache::new(settings.trailers_max),
                open: OpenContainer::new(0, layout),
                unwritten: None,
                full: None,
                spare: Vec::new(),
                packer,
                counters: ChunkCounters::default(),
                reuse: ReuseSample::new(containers, 0, SAMPLED_MAX),
            }),
            written: Condvar::new(),
            unpacker: Mutex::new(Unpacker::new()),
            checkpoints: Checkpoints::new(settings.checkpoint.clone()),
        };
        let source = store.begin_recovery(&settings, is_new)?;
        Ok((store, source))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is ignored: after a panic, the index has at worst a wrong entry, which lookups detect.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the position on the device of the container with this number.
    pub(crate) fn position(&self, number: u32) -> u32 {
        number % self.containers
    }

    /// Reads from the device. Returns false if the caller must not wait and the bytes are not in the page cache. A
    /// device that cannot report this always reads, and may wait.
    fn read_at(&self, bytes: &mut [u8], offset: u64, wait: Wait) -> io::Result<bool> {
        if wait == Wait::Never && self.device.supports_read_now() {
            return Ok(self.device.read_now_at(bytes, offset)? == bytes.len());
        }
        self.device.read_at(bytes, offset).map(|()| true)
    }

    /// Reads the trailer at a position, and waits for the device. Returns `None` if the position has no valid trailer.
    pub(crate) fn read_trailer(&self, position: u32, epoch: u64) -> io::Result<Option<Listing>> {
        let read = self.read_trailer_with(position, epoch, Wait::Device);
        read.map(Option::flatten)
    }

    /// Like [`read_trailer`](Self::read_trailer), for the recovery, which counts an error and treats it as an invalid
    /// trailer.
    pub(crate) fn read_valid_trailer(&self, position: u32, state: &mut State) -> Option<Listing> {
        let read = self.read_trailer(position, state.superblock.epoch);
        read.unwrap_or_else(|_| {
            state.counters.errors += 1;
            None
        })
    }

    /// Reads the trailer at a position. The outer `Option` is `None` if the read would wait, the inner one if the
    /// position has no valid trailer.
    fn read_trailer_with(
        &self,
        position: u32,
        epoch: u64,
        wait: Wait,
    ) -> io::Result<Option<Option<Listing>>> {
        let offset = self.layout.offset(position) + self.layout.container_bytes() as u64;
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        if !self.read_at(&mut bytes, offset, wait)? {
            return Ok(None);
        }
        // The first 4 KiB of the trailer are read above. If the trailer is longer, its rest is read too.
        let trailer_bytes = Trailer::bytes(self.layout, &bytes).unwrap_or(0);
        let first = bytes.len();
        if trailer_bytes > first {
            bytes.resize(trailer_bytes, 0);
            if !self.read_at(&mut bytes[first..], offset + first as u64, wait)? {
                return Ok(None);
            }
        }
        let trailer = Trailer::decode(self.layout, epoch, &bytes);
        // If the device had another size before, it has containers at positions that do not belong to their numbers.
        // These containers are ignored.
        let trailer = trailer.filter(|trailer| self.position(trailer.number) == position);
        Ok(Some(trailer.map(Listing::from)))
    }

    /// Returns the trailer at a position, and caches it. Returns `None` if it is not valid.
    fn listing(
        &self,
        position: u32,
        state: &mut State,
        reads: &Reads,
    ) -> Result<Option<Arc<Listing>>, Unread> {
        // The open container is not written, and the one that it overwrites was evicted.
        if position == self.position(state.open.number) {
            return Ok(None);
        }
        if let Some(listing) = state.trailers.get(position) {
            return Ok(Some(listing));
        }
        if let Some(full) = &state.unwritten
            && self.position(full.listing.number) == position
        {
            return Ok(Some(Arc::clone(&full.listing)));
        }
        let listing = match reads.get(position, self, state) {
            Some(listing) => listing,
            None => {
                let epoch = state.superblock.epoch;
                match self.read_trailer_with(position, epoch, Wait::Never) {
                    Ok(Some(listing)) => listing.map(Arc::new),
                    Ok(None) => {
                        let reads_next = position > 0 && state.trailers.contains(position - 1);
                        return Err(Unread {
                            position,
                            reads_next,
                        });
                    }
                    Err(_) => {
                        state.counters.errors += 1;
                        None
                    }
                }
            }
        };
        if let Some(listing) = &listing {
            state.counters.trailers_read += 1;
            state.trailers.insert(position, Arc::clone(listing));
        }
        Ok(listing)
    }

    /// Returns the trailer of the container with this number, or `None` if the container was overwritten.
    fn listing_of(
        &self,
        number: u32,
        state: &mut State,
        reads: &Reads,
    ) -> Result<Option<Arc<Listing>>, Unread> {
        let listing = self.listing(self.position(number), state, reads)?;
        Ok(listing.filter(|listing| listing.number == number))
    }

    /// Removes the chunks at a position, whose trailer is `listing`, from the index. The open container will be written
    /// to this position. If the previous write to the position failed, the counters lose the sizes of `listing` a
    /// second time.
    fn evict(&self, position: u32, listing: Option<Arc<Listing>>, state: &mut State) {
        if let Some(listing) = listing {
            state
                .index
                .prefetch(listing.entries.iter().map(|entry| &entry.id));
            listing
                .entries
                .iter()
                .for_each(|entry| state.index.remove(&entry.id, position));
            let number = state.open.number;
            let is_counted = |recovery: &Recovery| recovery.is_counted(number);
            if state.recovery.as_ref().is_none_or(is_counted) {
                state.counters.evicted += 1;
                state.counters.count(listing.sizes(), u64::saturating_sub);
            }
        }
        state.trailers.remove(position);
    }

    /// Closes the open container and begins the next one. The query then [writes](Self::write_full) the full container.
    /// Removes the chunks of the oldest container from the index, because the next container will overwrite it. If the
    /// trailer of the oldest container is not in memory, or the last full container is not written yet, nothing is
    /// changed.
    fn seal(&self, state: &mut State, reads: &Reads) -> Result<io::Result<()>, Blocked> {
        if state.unwritten.is_some() {
            return Err(Blocked::Unwritten);
        }
        let next = state.open.number + 1;
        // The first containers of a new store overwrite no other.
        let evicted = if state.is_new && next < self.containers {
            None
        } else {
            let evicted = self.listing(self.position(next), state, reads);
            // Containers are overwritten in the order of their positions.
            evicted.map_err(|unread| Unread {
                reads_next: true,
                ..unread
            })?
        };
        // If this fails, the container is not written. It is attempted before anything is changed, because a device may
        // also panic.
        let raised = self.raise_version(state);
        let (blocks, trailer) = state.open.finish(&mut state.packer);
        let full = Arc::new(self.full_container(blocks, trailer, state.superblock.epoch));
        state.open.begin(next, std::mem::take(&mut state.spare));
        state.unsaved_containers += 1;
        self.checkpoints
            .wake_if_due(state.unsaved_containers, self.containers);
        state
            .counters
            .count(full.listing.sizes(), u64::wrapping_add);
        let position = self.position(full.listing.number);
        state.trailers.insert(position, Arc::clone(&full.listing));
        if next == CONTAINER_NUMBERS_END {
            // The new epoch has no containers, so none is evicted, and this one need not be written.
            return Ok(self.start_new_epoch(state));
        }
        self.evict(self.position(next), evicted, state);
        state.unwritten = Some(Arc::clone(&full));
        match raised {
            Ok(()) => state.full = Some(full),
            Err(_) => {
                drop(full);
                self.end_write(false, state);
            }
        }
        Ok(raised)
    }

    /// Returns the bytes of a full container. If the gap between the blocks and the trailer is small, it is filled, so
    /// that one write is enough.
    fn full_container(&self, mut bytes: Vec<u8>, trailer: Trailer, epoch: u64) -> FullContainer {
        let container_bytes = self.layout.container_bytes();
        let filled = bytes.len().next_multiple_of(SUPERBLOCK_BYTES);
        let is_one_write = container_bytes - filled <= GAP_BYTES_MAX;
        let trailer_at = if is_one_write {
            container_bytes
        } else {
            filled
        };
        bytes.resize(trailer_at, 0);
        trailer.encode(self.layout, epoch, &mut bytes);
        FullContainer {
            listing: Arc::new(Listing::from(trailer)),
            bytes,
            trailer_at,
        }
    }

    /// Records that the write of the full container has ended. If it has failed, the bytes at the container's position
    /// are undefined, and its chunks are removed from the index.
    pub(crate) fn end_write(&self, is_written: bool, state: &mut State) {
        let Some(full) = state.unwritten.take() else {
            return;
        };
        if is_written {
            state.counters.written += 1;
        } else {
            let position = self.position(full.listing.number);
            state.counters.errors += 1;
            state
                .counters
                .count(full.listing.sizes(), u64::saturating_sub);
            state.trailers.remove(position);
            let entries = full.listing.entries.iter();
            entries.for_each(|entry| state.index.remove(&entry.id, position));
        }
        // A query that reads a chunk of the container keeps its bytes.
        state.spare = Arc::into_inner(full).map_or_else(Vec::new, |full| full.bytes);
    }

    /// Raises the version of the store if the open container has listed chunks, which have an id but no stored bytes.
    /// Older programs must refuse a store with listed chunks.
    fn raise_version(&self, state: &mut State) -> io::Result<()> {
        if !state.open.has_listed() || state.superblock.version >= VERSION {
            return Ok(());
        }
        let raised = Superblock {
            version: VERSION,
            ..state.superblock
        };
        self.device.write_at(&raised.encode(), 0)?;
        state.superblock = raised;
        Ok(())
    }

    /// Starts a new epoch with container number 0 when all container numbers are used: with containers of 1 MiB,
    /// after four pebibytes. If the numbers were used again in the same epoch, an old location could refer to a
    /// new container.
    fn start_new_epoch(&self, state: &mut State) -> io::Result<()> {
        // The new epoch must differ from the old epoch, so it is a hash of the old epoch.
        let epoch = xxh3_64_with_seed(b"the next epoch", state.superblock.epoch);
        state.superblock.epoch = epoch;
        state.index.clear();
        (state.recovery, state.saved_next) = (None, None);
        state.unsaved_containers = 0;
        state.reuse.clear();
        state.trailers.clear();
        state.open = OpenContainer::new(0, self.layout);
        (state.counters.raw_bytes, state.counters.stored_bytes) = (0, 0);
        state.counters.listed_bytes = 0;
        self.unpacker().clear();
        self.device.write_at(&state.superblock.encode(), 0)?;
        self.device.sync()
    }

    fn unpacker(&self) -> MutexGuard<'_, Unpacker> {
        // A poisoned lock is ignored: after a panic, a block may be missing from the cache, and is unpacked again.
        self.unpacker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads consecutive parts of a container. Returns false if the bytes are not available or a block is corrupt.
    /// The chunks of a corrupt block are removed from the index.
    ///
    /// If the container is overwritten during the read, the bytes are wrong. The caller detects this when it
    /// verifies the hash of each chunk.
    ///
    /// `unwritten` is the container if it is not written yet.
    fn read(
        &self,
        listing: &Listing,
        unwritten: Option<&FullContainer>,
        parts: &[Part],
        out: &mut [u8],
        wait: Wait,
    ) -> Result<bool, WouldBlock> {
        let number = listing.number;
        if let [part] = parts
            && part.method != Method::None
            && self.unpacker().copy_cached(number, part, out)
        {
            return Ok(true);
        }
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            return Ok(true);
        };
        let (start, end) = (first.read_range().start, last.read_range().end);
        let offset = self.layout.offset(self.position(number)) + start as u64;
        let read_chunks = |out: &mut [u8]| match unwritten {
            Some(full) => {
                out.copy_from_slice(&full.bytes[start..end]);
                Ok(true)
            }
            None => self.read_chunks(out, offset, wait),
        };
        if let [part] = parts
            && part.method == Method::None
        {
            return read_chunks(out);
        }
        let mut bytes = vec![0; end - start];
        if !read_chunks(&mut bytes)? {
            return Ok(false);
        }
        let (mut unpacker, mut rest) = (self.unpacker(), out);
        for part in parts {
            let range = part.read_range();
            let read = &bytes[range.start - start..range.end - start];
            let (requested, others) = rest.split_at_mut(part.requested.len());
            rest = others;
            if unpacker.unpack(number, part, read, requested).is_err() {
                drop(unpacker);
                self.forget(number, part.chunks.clone(), wait)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads bytes of a container. Returns false if they cannot be read.
    fn read_chunks(&self, out: &mut [u8], offset: u64, wait: Wait) -> Result<bool, WouldBlock> {
        match self.read_at(out, offset, wait) {
            Ok(true) => Ok(true),
            Ok(false) => Err(WouldBlock),
            Err(_) => {
                self.state().counters.errors += 1;
                Ok(false)
            }
        }
    }

    /// Removes corrupt chunks from the index and counts them.
    pub(crate) fn forget(
        &self,
        number: u32,
        slots: Range<usize>,
        wait: Wait,
    ) -> Result<(), WouldBlock> {
        self.query(wait, |state, reads| {
            let removed = self.remove_entries(number, slots.clone(), state, reads)?;
            state.counters.forgotten += removed;
            Ok(())
        })
    }

    /// Removes the chunks at these indexes of a container (`slots`) from the index. Returns their number.
    fn remove_entries(
        &self,
        number: u32,
        slots: Range<usize>,
        state: &mut State,
        reads: &Reads,
    ) -> Result<u64, Unread> {
        let position = self.position(number);
        let entries = if number == state.open.number {
            state.open.entries.get(slots).map(<[_]>::to_vec)
        } else {
            let listing = self.listing_of(number, state, reads)?;
            listing.and_then(|listing| listing.entries.get(slots).map(<[_]>::to_vec))
        };
        let entries = entries.unwrap_or_default();
        for Entry { id, .. } in &entries {
            if number == state.open.number {
                state.open.slots_by_id.remove(id);
            }
            state.index.remove(id, position);
        }
        Ok(entries.len() as u64)
    }

    /// Returns true if the store has the bytes of a chunk, false if the chunk is only listed.
    fn has_bytes(
        &self,
        location: ChunkLocation,
        state: &mut State,
        reads: &Reads,
    ) -> Result<bool, Unread> {
        let slot = usize::from(location.slot);
        if location.container == state.open.number {
            return Ok(state.open.has_bytes(slot));
        }
        let listing = self.listing_of(location.container, state, reads)?;
        Ok(listing.is_some_and(|listing| listing.has_bytes(slot)))
    }

    /// See [`ReuseSample::evicted_bytes`].
    pub(crate) fn evicted_chunk_bytes(&self, entry: &Entry) -> u64 {
        let state = self.state();
        let (length, container) = (u64::from(entry.length), state.open.number);
        state.reuse.evicted_bytes(&entry.id, length, container)
    }

    /// Adds a chunk of the open container to the index, and returns the chunk's location.
    fn index_chunk(&self, id: &ChunkId, slot: u16, state: &mut State) -> ChunkLocation {
        let container = state.open.number;
        state.index.insert(id, self.position(container));
        let length = state.open.entries[usize::from(slot)].length;
        state.reuse.record(id, u64::from(length), container);
        ChunkLocation { container, slot }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.state().superblock.epoch
    }
}

impl ChunkCounters {
    pub(crate) fn count(&mut self, sizes: Sizes, combine: impl Fn(u64, u64) -> u64) {
        self.raw_bytes = combine(self.raw_bytes, sizes.raw);
        self.stored_bytes = combine(self.stored_bytes, sizes.stored);
        self.listed_bytes = combine(self.listed_bytes, sizes.listed);
    }
}

/// All container numbers are lower than this number.
pub(crate) const CONTAINER_NUMBERS_END: u32 = u32::MAX - 1;

/// The largest gap between chunks and trailer that is filled with zeroes. For a smaller gap, a second write
/// would cost more than writing the zeroes.
const GAP_BYTES_MAX: usize = 64 << 10;
