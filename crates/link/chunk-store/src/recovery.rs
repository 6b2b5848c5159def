//! Recovers the index when a store is opened, and saves it while the store is in use.
//!
//! [`Shared::begin_recovery`] finds the number of the next container with a few reads. The store can then be used. The
//! index is filled by [`Shared::recover`], on another thread if the caller wants so: from the
//! [checkpoint], if there is a valid one, and from the trailers of the containers that the
//! checkpoint does not cover. Without a checkpoint all trailers are read, the newest first. Until the index is
//! complete, lookups may miss stored chunks, which then cost traffic.
//!
//! New containers may overwrite old ones before their entries are in the index. Such entries are skipped: the
//! overwritten positions are those of the containers since the checkpoint, or since the store was opened.

use std::fs::File;
use std::io::{self, BufReader};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use edgeward_types::xxh3::xxh3_64_with_seed;

use crate::checkpoint::{self, CheckpointError, CheckpointHeader};
use crate::chunks::{CONTAINER_NUMBERS_END, Shared, State};
use crate::format::RAW_RATIO_MAX;
use crate::index::{BLOCK_BUCKETS, Index};
use crate::open::OpenContainer;
use crate::reuse::{ReuseSample, SAMPLED_MAX};
use crate::settings::{ChunkSettings, OpenError};
use crate::trailers::Sizes;

/// How the index was recovered.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// True if the index was read from a checkpoint.
    pub from_checkpoint: bool,
    /// Why a checkpoint was not used. `None` if it was used or does not exist.
    pub rejected: Option<CheckpointError>,
    /// The number of containers whose trailer was read.
    pub trailers: u64,
    /// The number of chunks in the index at the end.
    pub chunks: u64,
    /// The time from the start of the recovery until the index was complete.
    pub elapsed: Duration,
}

/// The entries that the index lacks while it is recovered.
///
/// Positions are identified by their distance from the position of `first`: the position at distance `d` is
/// overwritten when the open container has the number `first + d`.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    /// The number of the open container when the store was opened.
    first: u32,
    /// The number of the first container that the checkpoint does not cover, if there is a checkpoint.
    checkpoint_next: Option<u32>,
    /// The sizes of the chunks that the checkpoint covers.
    covered: Sizes,
    /// The distances of the positions whose trailers must be read. The last one is read first.
    unread: Range<u32>,
}

impl Recovery {
    /// Returns false if the sizes of the container that the container `number` overwrites are not counted yet.
    pub(crate) fn is_counted(&self, number: u32) -> bool {
        !self.unread.contains(&number.wrapping_sub(self.first))
    }

    pub(crate) fn unread_trailers(&self) -> u64 {
        self.unread.len() as u64
    }

    /// Returns the distance of the next position to read. `open` is the number of the open container: older containers
    /// up to its position are overwritten.
    fn next_unread(&self, open: u32) -> Option<u32> {
        let overwritten = open.wrapping_sub(self.first);
        let last = self.unread.end.checked_sub(1)?;
        (last >= self.unread.start && last > overwritten).then_some(last)
    }
}

/// The source of the index when a store is opened.
#[derive(Debug, Default)]
pub(crate) struct RecoverySource {
    checkpoint: Option<(CheckpointHeader, BufReader<File>)>,
    rejected: Option<CheckpointError>,
}

/// The file of the checkpoints, and the synchronisation of the thread that writes them.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    path: Option<PathBuf>,
    /// Locked while a checkpoint is written.
    saving: Mutex<()>,
    /// Notified if a checkpoint is due, and when the thread must end. Its lock is the lock of the store.
    due: Condvar,
    /// True if the thread must end.
    is_stopped: AtomicBool,
}

impl Checkpoints {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            saving: Mutex::default(),
            due: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// Returns true if the store has a file for checkpoints.
    pub(crate) fn is_enabled(&self) -> bool {
        self.path.is_some()
    }

    /// Wakes the thread that writes checkpoints if enough containers were written.
    pub(crate) fn wake_if_due(&self, unsaved_containers: u32, containers: u32) {
        if unsaved_containers >= unsaved_containers_max(containers) {
            self.due.notify_all();
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Returns the number of new containers after which the index is saved. A 64th of the store: an index takes less than
/// a thousandth of its store, so checkpoints add at most a sixteenth to the written bytes; after a crash, the
/// trailers of 1.6 % of the containers are read.
fn unsaved_containers_max(containers: u32) -> u32 {
    (containers / 64).max(64)
}

impl Shared {
    /// Creates the index, and opens the container that follows the newest one. The index may be empty until
    /// [`recover`](Self::recover) has run.
    pub(crate) fn begin_recovery(
        &self,
        settings: &ChunkSettings,
        is_new: bool,
    ) -> Result<RecoverySource, OpenError> {
        let state = &mut *self.state();
        let mut source = RecoverySource::default();
        if !is_new {
            match self.open_checkpoint(state) {
                Ok(checkpoint) => source.checkpoint = checkpoint,
                Err(error) => source.rejected = Some(error),
            }
        }
        let header = source.checkpoint.as_ref().map(|(header, _)| *header);
        let sizes = match header {
            Some(header) => header.sizes(),
            None if is_new => Sizes::default(),
            None => self.sampled_sizes(state),
        };
        let needs = self.chunks_expected(sizes, settings.chunk_bytes, state);
        // An index that is too small drops entries, and one that is too large wastes memory. The tags in the table do
        // not suffice to change its size.
        let header = header.filter(|header| {
            header.chunks + header.chunks / 8 >= needs && header.chunks / 2 <= needs
        });
        if let (Some((rejected, _)), None) = (&source.checkpoint, header) {
            let has = rejected.chunks;
            source.rejected = Some(CheckpointError::Size { has, needs });
            source.checkpoint = None;
        }
        state.chunks = header.map_or(needs, |header| header.chunks);
        state.reuse = ReuseSample::new(self.containers, state.chunks, SAMPLED_MAX);
        let buckets = Index::buckets_for(state.chunks);
        let index_bytes = Index::bytes_for(buckets);
        let index = if index_bytes > settings.index_bytes_max {
            let limit = format!("the limit is {} bytes", settings.index_bytes_max);
            Err(io::Error::new(io::ErrorKind::OutOfMemory, limit))
        } else {
            Index::with_buckets(buckets)
        };
        state.index = index.map_err(|source| OpenError::Memory {
            name: self.device.name(),
            index_bytes,
            source,
        })?;
        if is_new {
            return Ok(source);
        }
        let checkpoint_next = header.map(|header| header.next);
        let first = self.next_number(checkpoint_next, state);
        state.open = OpenContainer::new(first, self.layout);
        let uncovered = checkpoint_next.map_or(self.containers, |next| first - next);
        let covered = header.map_or_else(Sizes::default, |header| {
            self.kept_sizes(header.sizes(), header.next, first)
        });
        state.counters.count(covered, u64::saturating_add);
        state.recovery = Some(Recovery {
            first,
            checkpoint_next,
            covered,
            // The open container has the distance 0.
            unread: self.containers.saturating_sub(uncovered).max(1)..self.containers,
        });
        Ok(source)
    }

    /// Opens the checkpoint and checks that it belongs to the containers of the store.
    fn open_checkpoint(
        &self,
        state: &mut State,
    ) -> Result<Option<(CheckpointHeader, BufReader<File>)>, CheckpointError> {
        let path = self.checkpoints.path.as_deref();
        let Some((header, input)) = path.map_or(Ok(None), checkpoint::open)? else {
            return Ok(None);
        };
        if header.epoch != state.superblock.epoch
            || header.layout != self.layout
            || header.containers != self.containers
            || header.buckets != Index::buckets_for(header.chunks)
        {
            return Err(CheckpointError::OtherStore);
        }
        // The last covered container was durable before the checkpoint. If the store was changed without its
        // checkpoint, for example restored from a copy, this container is missing or another one has its position.
        match header.next.checked_sub(1) {
            Some(last) if self.is_written(last, state) => Ok(Some((header, input))),
            _ => Err(CheckpointError::OtherContainers),
        }
    }

    fn is_written(&self, number: u32, state: &mut State) -> bool {
        let position = self.position(number);
        let listing = self.read_valid_trailer(position, state);
        listing.is_some_and(|listing| listing.number == number)
    }

    /// Returns the number of the container that follows the newest one. All containers below `covered` are written.
    ///
    /// Containers are written in order, so a binary search finds the first number that is not written. A failed write
    /// or a corrupt trailer leaves a gap, and the search may end at it. The numbers after the gap must not be used
    /// again, because peers know their chunks. The search therefore continues if one of the next containers is written.
    fn next_number(&self, covered: Option<u32>, state: &mut State) -> u32 {
        let start = covered.or_else(|| {
            // The containers at the first positions may be incomplete or corrupt.
            let mut positions = 0..self.containers.min(FIRST_TRAILERS_MAX);
            let first = positions.find_map(|position| self.read_valid_trailer(position, state));
            Some(first?.number.saturating_add(1))
        });
        let Some(start) = start else {
            return 0;
        };
        let mut next = self.first_missing(start, state);
        loop {
            let mut after_gap = (1..=GAP_MAX).filter_map(|distance| next.checked_add(distance));
            let Some(written) = after_gap.find(|&number| self.is_written(number, state)) else {
                break;
            };
            next = self.first_missing(written.saturating_add(1), state);
        }
        // After the highest number, a new epoch starts with number 0. `min` keeps the next number valid if a crash
        // prevented the new epoch, or if a trailer has an invalid number.
        next.min(CONTAINER_NUMBERS_END - 1)
    }

    /// Returns a number from `start` on that is not written. The number before it is written, unless it is `start`.
    fn first_missing(&self, start: u32, state: &mut State) -> u32 {
        let number = |distance: u32| start.saturating_add(distance);
        // All distances below `written` are written. The container at the distance `missing` is not.
        let (mut written, mut step) = (0, 1);
        let mut missing = self.containers;
        while step <= self.containers {
            if !self.is_written(number(step - 1), state) {
                missing = step - 1;
                break;
            }
            written = step;
            step *= 2;
        }
        while written < missing {
            let middle = written + (missing - written) / 2;
            if self.is_written(number(middle), state) {
                written = middle + 1;
            } else {
                missing = middle;
            }
        }
        number(written)
    }

    /// Returns the sizes of the covered containers that are not overwritten. The sizes of each overwritten container
    /// are estimated by the mean, because its trailer is gone.
    fn kept_sizes(&self, covered: Sizes, next: u32, first: u32) -> Sizes {
        // A store keeps the containers before the open one, except the one that the open one overwrites.
        let oldest = |open: u32| (open + 1).saturating_sub(self.containers);
        let before = next - oldest(next);
        let kept = next.saturating_sub(oldest(first));
        let scale = |bytes: u64| {
            let scaled = u128::from(bytes) * u128::from(kept) / u128::from(before.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Sizes {
            raw: scale(covered.raw),
            stored: scale(covered.stored),
            listed: scale(covered.listed),
        }
    }

    /// Returns the sizes of a sample of the existing containers.
    fn sampled_sizes(&self, state: &mut State) -> Sizes {
        let mut sum = Sizes::default();
        let step = (self.containers / SAMPLED_TRAILERS_MAX).max(1) as usize;
        for position in (0..self.containers)
            .step_by(step)
            .take(SAMPLED_TRAILERS_MAX as usize)
        {
            if let Some(listing) = self.read_valid_trailer(position, state) {
                let sizes = listing.sizes();
                sum.raw += sizes.raw;
                sum.stored += sizes.stored;
                sum.listed += sizes.listed;
            }
        }
        sum
    }

    /// Returns how many chunks the device is expected to hold. The compression ratio is that of `sizes`; it is at least
    /// two if new chunks are compressed. If the store gets more chunks than expected, the index drops old entries. When
    /// the store is opened again, the index is sized by the new ratio and gets entries for the dropped chunks too.
    fn chunks_expected(&self, sizes: Sizes, chunk_bytes: u32, state: &State) -> u64 {
        let capacity = u64::from(self.containers) * self.layout.container_bytes() as u64;
        let (raw, stored) = (sizes.raw + sizes.listed, sizes.stored + sizes.listed);
        let ratio_min = if state.packer.stores_uncompressed() {
            1.0
        } else {
            2.0
        };
        // The ratio is raised by a tenth, because new chunks may compress better than existing chunks.
        let ratio = 1.1 * raw as f64 / stored.max(1) as f64;
        let ratio = if raw > stored { ratio } else { 1.0 };
        let raw_bytes = (capacity as f64 * ratio.clamp(ratio_min, RAW_RATIO_MAX as f64)) as u64;
        // The chunker cuts no chunk shorter than a quarter of the configured average, except the last chunk of
        // a body. The mean length of the chunks is therefore above the configured average, by about an eighth (9.2
        // KB for 8 KiB). If the store has more chunks than the index has space for, old entries are dropped.
        raw_bytes / (u64::from(chunk_bytes.max(1)) * 9 / 8).max(1)
    }

    /// Fills the index. Returns `None` if the store was closed before the index was complete.
    pub(crate) fn recover(&self, source: RecoverySource) -> Option<RecoveryReport> {
        let start = Instant::now();
        let mut report = RecoveryReport {
            rejected: source.rejected,
            ..RecoveryReport::default()
        };
        if let Some((header, mut input)) = source.checkpoint {
            let loaded = header.read_blocks(&mut input, |start, block| {
                self.load_block(start, block);
                !self.checkpoints.is_stopped()
            });
            match loaded {
                Ok(()) => {
                    report.from_checkpoint = true;
                    self.state().saved_next = Some(header.next);
                }
                Err(error) => {
                    report.rejected = Some(error);
                    self.discard_checkpoint();
                }
            }
        }
        if !report.from_checkpoint {
            self.allocate_index();
        }
        while let Some(position) = self.next_unread() {
            if self.checkpoints.is_stopped() {
                return None;
            }
            report.trailers += u64::from(self.recover_container(position));
        }
        if self.checkpoints.is_stopped() {
            return None;
        }
        report.chunks = self.state().index.used();
        report.elapsed = start.elapsed();
        Some(report)
    }

    /// Adds the entries of a saved block to the index, except those of overwritten containers.
    fn load_block(&self, start: u64, block: &[u8]) {
        let state = &mut *self.state();
        let Some(next) = state.recovery.as_ref().and_then(|r| r.checkpoint_next) else {
            return;
        };
        let overwritten = state.open.number - next;
        let first = self.position(next);
        let containers = self.containers;
        state.index.load_block(start, block, |position| {
            let distance = if position >= first {
                position - first
            } else {
                position + (containers - first)
            };
            position < containers && distance > overwritten
        });
    }

    /// Prepares the recovery from all trailers after a part of the checkpoint was loaded.
    fn discard_checkpoint(&self) {
        let state = &mut *self.state();
        if let Some(recovery) = &mut state.recovery {
            recovery.checkpoint_next = None;
            recovery.unread = 1..self.containers;
            let covered = std::mem::take(&mut recovery.covered);
            state.counters.count(covered, u64::saturating_sub);
        }
    }

    /// Allocates the pages of the index, in small parts, so that other threads do not wait for the lock.
    fn allocate_index(&self) {
        let buckets = self.state().index.buckets();
        for start in (0..buckets).step_by(ALLOCATED_BUCKETS as usize) {
            if self.checkpoints.is_stopped() {
                return;
            }
            self.state()
                .index
                .allocate(start..start + ALLOCATED_BUCKETS);
        }
    }

    /// Returns the next position whose trailer must be read. Ends the recovery if no position is left.
    fn next_unread(&self) -> Option<u32> {
        let state = &mut *self.state();
        let recovery = state.recovery.as_ref()?;
        let Some(distance) = recovery.next_unread(state.open.number) else {
            state.recovery = None;
            return None;
        };
        let position =
            (u64::from(recovery.first) + u64::from(distance)) % u64::from(self.containers);
        u32::try_from(position).ok()
    }

    /// Adds the chunks of the container at this position to the index. Returns true if the position has a container.
    fn recover_container(&self, position: u32) -> bool {
        let epoch = self.epoch();
        let read = self.read_trailer(position, epoch);
        let state = &mut *self.state();
        let Some(recovery) = &mut state.recovery else {
            return false;
        };
        let is_overwritten = recovery.next_unread(state.open.number).is_none();
        recovery.unread.end -= 1;
        let listing = match read {
            Ok(listing) => listing,
            Err(_) => {
                state.counters.errors += 1;
                None
            }
        };
        let Some(listing) = listing.filter(|_| !is_overwritten) else {
            return false;
        };
        let ids = listing.entries.iter().map(|entry| &entry.id);
        state.index.prefetch(ids.clone());
        ids.for_each(|id| state.index.insert_recovered(id, position));
        state.counters.recovered += 1;
        state.counters.count(listing.sizes(), u64::saturating_add);
        true
    }

    /// Ends the thread that recovers and saves the index.
    pub(crate) fn stop(&self) {
        let state = self.state();
        self.checkpoints.is_stopped.store(true, Ordering::Relaxed);
        drop(state);
        self.checkpoints.due.notify_all();
    }

    /// Saves the index whenever enough containers were written, until the store is closed.
    pub(crate) fn save_checkpoints(&self) {
        let unsaved_max = unsaved_containers_max(self.containers);
        let mut state = self.state();
        while !self.checkpoints.is_stopped() {
            if state.unsaved_containers >= unsaved_max {
                drop(state);
                // A failure is counted. The next attempt follows after as many containers again.
                _ = self.save_checkpoint();
                state = self.state();
            } else {
                let waited = self.checkpoints.due.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Saves the index if it is complete and the store has a file for it.
    pub(crate) fn save_checkpoint(&self) -> io::Result<bool> {
        let Some(path) = &self.checkpoints.path else {
            return Ok(false);
        };
        let saving = self.checkpoints.saving.lock();
        let _saving = saving.unwrap_or_else(PoisonError::into_inner);
        let header = {
            let state = &mut *self.state();
            let next = state.open.number;
            if state.recovery.is_some() || next == 0 || state.saved_next == Some(next) {
                return Ok(false);
            }
            state.unsaved_containers = 0;
            self.header(state)
        };
        self.wait_written(header.next);
        let saved = self.device.sync().and_then(|()| {
            checkpoint::write(path, &header, |start, out| {
                let state = &mut *self.state();
                let is_current = state.superblock.epoch == header.epoch;
                is_current && !self.checkpoints.is_stopped() && state.index.save_block(start, out)
            })
        });
        let state = &mut *self.state();
        state.index.end_save();
        match &saved {
            Ok(false) => {}
            Ok(true) => {
                state.counters.checkpoints += 1;
                state.saved_next = Some(header.next);
            }
            Err(_) => state.counters.checkpoint_errors += 1,
        }
        saved
    }

    fn header(&self, state: &State) -> CheckpointHeader {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_nanos());
        CheckpointHeader {
            epoch: state.superblock.epoch,
            layout: self.layout,
            containers: self.containers,
            next: state.open.number,
            chunks: state.chunks,
            buckets: state.index.buckets(),
            raw_bytes: state.counters.raw_bytes,
            stored_bytes: state.counters.stored_bytes,
            listed_bytes: state.counters.listed_bytes,
            seed: xxh3_64_with_seed(&now.to_le_bytes(), state.superblock.epoch),
        }
    }
}

/// The highest number of trailers that are sampled for the compression ratio. Random reads of a hard disk take 8 ms, so
/// the sample takes at most half a second.
const SAMPLED_TRAILERS_MAX: u32 = 64;

/// The highest number of positions that are searched for a first trailer.
const FIRST_TRAILERS_MAX: u32 = 64;

/// The highest number of consecutive containers that may be unreadable before the search for the newest one ends. As
/// many reads as [`SAMPLED_TRAILERS_MAX`].
const GAP_MAX: u32 = 64;

/// The number of buckets whose pages are allocated at once: 2 MiB, the size of a huge page.
const ALLOCATED_BUCKETS: u64 = 32 * BLOCK_BUCKETS;
