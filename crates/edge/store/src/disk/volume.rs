//! One device with its index, segments, queue, counters and health.
//!
//! The threads that look up and read objects, the threads that push objects, and the device's writer share one
//! volume.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use edgeward_policy::log::LogShape;
use edgeward_types::KeyHash;

use super::counters::{Counters, DeviceCounters, DeviceState};
use super::device::Device;
use super::error::WriteError;
use super::format::Superblock;
use super::heads::MetadataCache;
use super::index::{Index, InsertOutcome};
use super::location::Location;
use super::message::Message;
use super::queue::Queue;
use super::segment::SegmentTable;
use super::settings::{DiskEvent, DiskSettings};
use super::unwritten::UnwrittenTable;
use super::verified::VerifiedBlocks;
use super::write_state::WriteState;
use crate::sync::Mutex;

/// One device with its index, segments, queue, counters and health.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: Superblock,
    /// The sizes of segments, records and pieces.
    pub(crate) shape: LogShape,
    pub(crate) settings: DiskSettings,
    pub(crate) index: Index,
    pub(crate) segments: Arc<SegmentTable>,
    /// Blocks that were compared with their checksums recently.
    pub(crate) verified: VerifiedBlocks,
    /// Blocks that were in the page cache at most two seconds ago. For these blocks a hit skips the query to the
    /// kernel. That query takes a tenth of the time of a hit.
    pub(crate) residents: VerifiedBlocks,
    /// The metadata of records that were read recently.
    pub(crate) metadata_cache: MetadataCache,
    /// Objects whose record is in the write buffer.
    pub(crate) unwritten: UnwrittenTable,
    pub(crate) queue: Queue<Message>,
    pub(crate) counters: Counters,
    pub(crate) health: Health,
    /// A hash of all decisions of the writer since the start: which objects it wrote, reinserted and evicted.
    pub(crate) digest: AtomicU64,
    /// The number of segments that are not free. The writer sets it.
    pub(crate) used_segments: AtomicU64,
    /// The writes in progress, by key, so that a purge can stop them. A thread that publishes an object or
    /// purges a key holds this lock while it changes the index. Therefore a write that was in progress when a
    /// purge began is not published after the purge has returned.
    in_progress: Mutex<HashMap<u64, Vec<Arc<WriteState>>>>,
    /// The number of purges that are not durable yet.
    pub(crate) purges_pending: AtomicU64,
    /// True if segments could not be read when the device was opened. Records in these segments may be found at
    /// the next start.
    pub(crate) has_unreadable_segments: bool,
    /// The id of the next object.
    object_next: AtomicU64,
    /// The id of the first object since the device was opened.
    object_first: u64,
}

/// The components of a volume.
pub(crate) struct VolumeParts {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: Superblock,
    pub(crate) shape: LogShape,
    pub(crate) settings: DiskSettings,
    pub(crate) index: Index,
    pub(crate) segments: SegmentTable,
    /// The next epoch to assign. It is greater than every epoch on the device.
    pub(crate) epoch_next: u64,
    pub(crate) has_unreadable_segments: bool,
}

impl Volume {
    pub(crate) fn new(parts: VolumeParts) -> Self {
        let queue = Queue::new(
            parts.settings.queue_bytes.bytes(),
            parts.settings.queue_messages,
        );
        let seed = parts.superblock.checksum_seed.0;
        let verified = VerifiedBlocks::new(parts.device.len(), parts.settings.verify_every, seed);
        Self {
            verified,
            residents: VerifiedBlocks::for_resident_blocks(seed),
            metadata_cache: MetadataCache::new(seed),
            unwritten: UnwrittenTable::new(),
            device: parts.device,
            superblock: parts.superblock,
            shape: parts.shape,
            settings: parts.settings,
            index: parts.index,
            segments: Arc::new(parts.segments),
            queue,
            counters: Counters::default(),
            health: Health::default(),
            digest: AtomicU64::new(0),
            used_segments: AtomicU64::new(0),
            in_progress: Mutex::default(),
            purges_pending: AtomicU64::new(0),
            has_unreadable_segments: parts.has_unreadable_segments,
            // A segment has fewer than 2^24 records, so a process that writes n objects opens at least n / 2^24
            // segments, each with a new epoch. The first id of the next process is therefore greater than the
            // last id of this process.
            object_next: AtomicU64::new(parts.epoch_next << 24),
            object_first: parts.epoch_next << 24,
        }
    }

    pub(crate) fn next_object_id(&self) -> u64 {
        self.object_next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of objects that were begun after the device was opened and before this object. The result
    /// is arbitrary for an object of an earlier process.
    pub(crate) fn ordinal_of(&self, object: u64) -> u64 {
        object.wrapping_sub(self.object_first)
    }

    /// Registers a write, so that purges can stop it.
    pub(crate) fn register(&self, write: &Arc<WriteState>) {
        let mut in_progress = self.in_progress.lock();
        let same_key = in_progress.entry(write.hash.0).or_default();
        same_key.push(Arc::clone(write));
    }

    /// Returns true if `predicate` is true for a write of the key that is in progress.
    pub(crate) fn has_write(&self, hash: KeyHash, predicate: impl Fn(&WriteState) -> bool) -> bool {
        let in_progress = self.in_progress.lock();
        let writes = in_progress.get(&hash.0);
        writes.is_some_and(|writes| writes.iter().any(|write| predicate(write)))
    }

    /// Removes a write that has ended.
    pub(crate) fn unregister(&self, write: &WriteState) {
        remove_write(&mut self.in_progress.lock(), write);
    }

    /// Makes written objects visible, except those whose write was dropped meanwhile, for example by a purge.
    pub(crate) fn publish(&self, written: &mut Vec<(Arc<WriteState>, Location)>) {
        if written.is_empty() {
            return;
        }
        let mut in_progress = self.in_progress.lock();
        // The objects are added to the index before they are removed from `unwritten`, so that lookups find an
        // object at every moment.
        for (write, location) in written.drain(..) {
            remove_write(&mut in_progress, &write);
            if let Some(dropped) = write.dropped() {
                self.count_dropped(dropped);
                continue;
            }
            let inserted = self.index.insert(write.hash, location);
            if matches!(inserted, InsertOutcome::Displaced(_)) {
                self.counters.displaced_objects.increment();
            }
            for _ in 0..self.unwritten.hits(write.hash, location) {
                self.index.touch(write.hash, location);
            }
            self.counters.stored_objects.increment();
            self.counters.stored_body_bytes.add(write.body_bytes());
        }
        self.unwritten.clear();
    }

    /// Removes a key from the index and stops writes of the key that are in progress. Returns false if the device
    /// certainly had no object under the key, so that a recovery after a crash cannot find one.
    pub(crate) fn remove_key(&self, hash: KeyHash) -> bool {
        let in_progress = self.in_progress.lock();
        let writes = in_progress.get(&hash.0);
        for write in writes.into_iter().flatten() {
            write.drop_as(WriteError::Purged);
        }
        let was_stored = writes.is_some() || self.index.find(hash).is_some();
        self.index.purge(hash);
        // In three cases the index has no entry although the device may have an object: another purge of the
        // key is not durable yet, a full index dropped the entry for a new one, or the object's segment could not
        // be read.
        was_stored
            || self.purges_pending.load(Ordering::SeqCst) > 0
            || self.index.counts().displaced > 0
            || self.has_unreadable_segments
    }

    /// Ends a pending purge, because it is durable or has failed.
    pub(crate) fn count_purge_ended(&self) {
        self.purges_pending.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn count_dropped(&self, dropped: WriteError) {
        let counters = &self.counters;
        let counter = match dropped {
            WriteError::QueueFull => &counters.dropped_queue_full,
            WriteError::NotWritable | WriteError::Closed => &counters.dropped_not_writable,
            WriteError::TooLong | WriteError::TooShort | WriteError::KeyOrHeadTooLong => {
                &counters.dropped_aborted
            }
            WriteError::Purged => &counters.dropped_purged,
            WriteError::Gone => &counters.dropped_reclaimed,
        };
        counter.increment();
    }

    pub(crate) fn record_read_success(&self) {
        self.health
            .consecutive_read_errors
            .store(0, Ordering::Relaxed);
    }

    /// Counts a failed read. After many consecutive failures the device is out of service.
    pub(crate) fn record_read_failure(&self, error: &io::Error) {
        self.counters.read_errors.increment();
        let consecutive = &self.health.consecutive_read_errors;
        if consecutive.fetch_add(1, Ordering::Relaxed) + 1 >= CONSECUTIVE_READ_ERRORS_MAX
            && self.health.set_state(DeviceState::OutOfService)
        {
            self.settings.on_event.send(&DiskEvent::OutOfService {
                device: self.device.name(),
                error: error.to_string(),
            });
        }
    }

    /// Counts a failed write. A device in service becomes read-only until a later attempt to write succeeds.
    pub(crate) fn record_write_failure(&self, error: &io::Error) {
        self.counters.write_errors.increment();
        if self.health.state() == DeviceState::InService
            && self.health.set_state(DeviceState::ReadOnly)
        {
            self.settings.on_event.send(&DiskEvent::ReadOnly {
                device: self.device.name(),
                error: error.to_string(),
            });
        }
    }

    /// Ends the read-only state after a successful write.
    pub(crate) fn record_write_success(&self) {
        if self.health.state() == DeviceState::ReadOnly
            && self.health.set_state(DeviceState::InService)
        {
            self.settings.on_event.send(&DiskEvent::Writable {
                device: self.device.name(),
            });
        }
    }

    /// Counts corrupt bytes, and reports the first occurrence as an event.
    pub(crate) fn report_corruption(&self, record: impl FnOnce() -> String) {
        self.counters.checksum_failures.increment();
        if !self
            .health
            .corruption_reported
            .swap(true, Ordering::Relaxed)
        {
            self.settings.on_event.send(&DiskEvent::Corrupt {
                device: self.device.name(),
                record: record(),
            });
        }
    }

    pub(crate) fn counters(&self) -> DeviceCounters {
        DeviceCounters {
            device: self.device.name(),
            state: self.health.state(),
            capacity_bytes: u64::from(self.segments.count()) * self.shape.segment_bytes,
            used_bytes: self.used_segments.load(Ordering::Relaxed) * self.shape.segment_bytes,
            objects: self.index.len(),
            index_bytes: self.index.bytes(),
            verified_bytes: self.verified.bytes()
                + self.residents.bytes()
                + self.metadata_cache.bytes(),
            queue_bytes: self.queue.bytes(),
            queue_messages: self.queue.len() as u64,
            digest: self.digest.load(Ordering::Relaxed),
            ..self.counters.snapshot()
        }
    }
}

fn remove_write(in_progress: &mut HashMap<u64, Vec<Arc<WriteState>>>, write: &WriteState) {
    if let Some(same_key) = in_progress.get_mut(&write.hash.0) {
        same_key.retain(|other| other.id != write.id);
        if same_key.is_empty() {
            in_progress.remove(&write.hash.0);
        }
    }
}

/// The state of a device.
#[derive(Debug, Default)]
pub(crate) struct Health {
    state: AtomicU8,
    consecutive_read_errors: AtomicU32,
    corruption_reported: AtomicBool,
}

/// The number of consecutive failed reads after which a device is out of service. A single failed read, for
/// example of a bad sector, is only a miss.
const CONSECUTIVE_READ_ERRORS_MAX: u32 = 16;

impl Health {
    pub(crate) fn state(&self) -> DeviceState {
        match self.state.load(Ordering::Relaxed) {
            0 => DeviceState::InService,
            1 => DeviceState::ReadOnly,
            _ => DeviceState::OutOfService,
        }
    }

    /// Returns true if the state has changed.
    fn set_state(&self, state: DeviceState) -> bool {
        let code = match state {
            DeviceState::InService => 0,
            DeviceState::ReadOnly => 1,
            DeviceState::OutOfService => 2,
        };
        self.state.swap(code, Ordering::Relaxed) != code
    }
}
