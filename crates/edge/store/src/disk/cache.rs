//! The public interface of the disk cache. It selects the device for a key, and reads and writes objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use edgeward_types::{KeyHash, Timestamp, mix64};

use super::counters::{DeviceState, DiskCounters};
use super::device::{Device, FileDevice};
use super::error::{BeginError, Miss, NonBlockingRead, OpenError, SyncError, WriteError};
use super::format::Superblock;
use super::location::Location;
use super::message::{Message, PurgeCallback};
use super::queue::NotQueued;
use super::reader::DiskObject;
use super::recovery::{self, Content, RecoveryReport};
use super::settings::{DeviceSettings, DirectWrites, DiskSettings};
use super::space::check_space;
use super::volume::Volume;
use super::write::DiskWrite;
use super::write_state::WriteState;
use super::writer::state::Writer;
use crate::sync::Mutex;

/// Objects on one or more devices. Cheap to clone; all clones share one cache.
#[derive(Clone, Debug)]
pub struct DiskCache {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    volumes: Vec<Arc<Volume>>,
    writers: Mutex<Vec<JoinHandle<()>>>,
    closed: AtomicBool,
    retired: AtomicBool,
    key_seed: u64,
    object_bytes_max: u64,
    head_bytes_max: u64,
}

/// The probable location of an object, from the index. The device was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    hash: KeyHash,
    volume: u16,
    location: Location,
    /// True if the record was not on the device yet at the lookup.
    unwritten: bool,
}

impl DiskCache {
    /// Opens the devices of the settings, formats those that are blank, and starts a thread for each.
    ///
    /// # Errors
    ///
    /// Fails if a device cannot be used, or contains data that is not a store. Such a device is not changed.
    pub fn open(settings: DiskSettings) -> Result<(Self, RecoveryReport), OpenError> {
        let failed = |device: &DeviceSettings| {
            let path = device.path.clone();
            |source| OpenError::Device { path, source }
        };
        check_space(&settings.devices).map_err(|error| OpenError::Device {
            path: error.path.clone(),
            source: std::io::Error::new(std::io::ErrorKind::StorageFull, error),
        })?;
        let mut files = Vec::new();
        for device in &settings.devices {
            let bytes = device.capacity.map(|capacity| capacity.bytes());
            let opened = FileDevice::open_present(&device.path, bytes);
            files.push((device, bytes, opened.map_err(failed(device))?));
        }
        // All devices are checked before the first one is resized, so that a file that is rejected or damaged
        // is not changed.
        let contents = contents_of(files.iter().map(|(.., file)| file as &dyn Device))?;
        let mut devices: Vec<Arc<dyn Device>> = Vec::new();
        let mut created = Vec::new();
        for ((device, bytes, file), content) in files.into_iter().zip(contents) {
            let file = match content {
                Content::Damaged(_) => file,
                _ => file.grown_to(bytes).map_err(failed(device))?,
            };
            if file.is_created() {
                created.push(file.name());
            }
            devices.push(Arc::new(match settings.direct_writes {
                DirectWrites::Never => file,
                DirectWrites::Auto | DirectWrites::Always => file.writing_directly(),
            }));
        }
        let (cache, mut report) = Self::open_with_devices(settings, devices)?;
        for device in &mut report.devices {
            device.created = created.contains(&device.device);
        }
        Ok((cache, report))
    }

    /// Like [`open`](Self::open), with devices that the caller made. The devices of the settings are ignored.
    ///
    /// # Errors
    ///
    /// Like [`open`](Self::open).
    pub fn open_with_devices(
        settings: DiskSettings,
        devices: Vec<Arc<dyn Device>>,
    ) -> Result<(Self, RecoveryReport), OpenError> {
        check_settings(&settings, devices.len())?;
        let mut report = RecoveryReport::default();
        let mut opened: Vec<(Volume, _)> = Vec::new();
        let contents = contents_of(devices.iter().map(|device| &**device))?;
        // The stores on the devices determine the seed of the key hash. Blank devices are formatted with it.
        let stored_seed = contents.iter().find_map(|content| match content {
            Content::Store(superblock) => Some(superblock.key_seed),
            Content::Blank | Content::Damaged(_) => None,
        });
        let key_seed = stored_seed
            .or(settings.key_seed)
            .unwrap_or_else(recovery::random);
        for (device, content) in devices.into_iter().zip(contents) {
            let (superblock, formatted) = match content {
                Content::Store(superblock) => (superblock, false),
                Content::Blank => {
                    let superblock = recovery::format_blank(&*device, &settings, key_seed)?;
                    (superblock, true)
                }
                Content::Damaged(damaged) => {
                    report.damaged.push(damaged);
                    continue;
                }
            };
            let (volume, log, recovered) =
                recovery::recover(device, superblock, settings.clone(), formatted)?;
            report.devices.push(recovered);
            opened.push((volume, log));
        }
        if opened.is_empty() {
            let devices = report.damaged;
            return Err(OpenError::Damaged { devices });
        }
        let smallest = opened.iter().map(|(_, log)| log.object_bytes_max()).min();
        let smallest = smallest.ok_or(OpenError::NoDevice)?;
        let object_bytes_max = settings
            .object_bytes_max
            .map_or(smallest, |size| size.bytes().min(smallest));
        // A record (key, head, body) must fit in a segment, so a head may take at most a quarter of a segment.
        let segment_quarters = opened
            .iter()
            .map(|(volume, _)| volume.shape.segment_bytes / 4);
        let head_bytes_max = segment_quarters.fold(settings.head_bytes_max.bytes(), u64::min);
        let mut volumes = Vec::new();
        let mut writers = Vec::new();
        for (number, (volume, log)) in opened.into_iter().enumerate() {
            let volume = Arc::new(volume);
            let writer = Writer::new(Arc::clone(&volume), log);
            let thread = thread::Builder::new().name(format!("disk-writer-{number}"));
            volumes.push(volume);
            writers.push(
                thread
                    .spawn(move || writer.run())
                    .map_err(OpenError::Thread)?,
            );
        }
        let shared = Shared {
            volumes,
            writers: Mutex::new(writers),
            closed: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            key_seed,
            object_bytes_max,
            head_bytes_max,
        };
        let shared = Arc::new(shared);
        Ok((Self { shared }, report))
    }

    /// Returns the seed with which callers must hash full keys. The seed is stored on the devices, so objects
    /// are found after a restart.
    pub fn key_seed(&self) -> u64 {
        self.shared.key_seed
    }

    /// Returns the probable location of the object under `hash`. Reads no device. The record may belong to
    /// another key.
    pub fn lookup(&self, hash: KeyHash) -> Option<Candidate> {
        let volume = self.route(hash);
        let device = &self.shared.volumes[usize::from(volume)];
        if self.shared.retired.load(Ordering::Relaxed) {
            return None;
        }
        if device.health.state() == DeviceState::OutOfService {
            return None;
        }
        let unwritten = device.unwritten.find(hash);
        let location = match &unwritten {
            Some(waiting) => waiting.location,
            None => device.index.find(hash)?,
        };
        Some(Candidate {
            hash,
            volume,
            location,
            unwritten: unwritten.is_some(),
        })
    }

    /// Returns the candidate's head and length, and the body of a small object, if it can be read without
    /// waiting for the device.
    pub fn read_head_now(&self, candidate: &Candidate, key: &[u8]) -> NonBlockingRead<DiskObject> {
        let volume = &self.shared.volumes[usize::from(candidate.volume)];
        if candidate.unwritten
            && let Some(read) = volume.read_unwritten(candidate.hash, candidate.location, key)
        {
            return match read {
                Ok(object) => NonBlockingRead::Ready(object),
                Err(miss) => NonBlockingRead::Miss(miss),
            };
        }
        volume.read_head_now(candidate.hash, candidate.location, key)
    }

    /// Like [`read_head_now`](Self::read_head_now), but waits for the device if necessary.
    ///
    /// # Errors
    ///
    /// Fails if the candidate belongs to another key, or can no longer be read.
    pub fn read_head(&self, candidate: &Candidate, key: &[u8]) -> Result<DiskObject, Miss> {
        let volume = &self.shared.volumes[usize::from(candidate.volume)];
        if candidate.unwritten
            && let Some(read) = volume.read_unwritten(candidate.hash, candidate.location, key)
        {
            return read;
        }
        volume.read_head(candidate.hash, candidate.location, key)
    }

    /// Like [`read_head`](Self::read_head), but counts neither a read nor a hit of the object, for inspection.
    ///
    /// # Errors
    ///
    /// Fails if the candidate belongs to another key, or can no longer be read.
    pub fn peek_head(&self, candidate: &Candidate, key: &[u8]) -> Result<DiskObject, Miss> {
        let volume = &self.shared.volumes[usize::from(candidate.volume)];
        if candidate.unwritten
            && let Some(read) = volume.peek_unwritten(candidate.hash, candidate.location, key)
        {
            return read;
        }
        volume.peek_head(candidate.hash, candidate.location, key)
    }

    /// Returns the key of a candidate, for callers that have only its hash. Waits for the device if necessary. Returns
    /// `None` if the key cannot be read, or if the object is not written yet.
    pub fn key_of(&self, candidate: &Candidate) -> Option<Box<[u8]>> {
        let volume = &self.shared.volumes[usize::from(candidate.volume)];
        let is_written = !candidate.unwritten;
        is_written.then(|| volume.key_at(candidate.hash, candidate.location))?
    }

    /// Returns true if the queue of the key's device is at most half full, so that a write of up to a quarter of
    /// the queue's bound is not dropped unless other callers write at the same time.
    pub fn has_room(&self, hash: KeyHash) -> bool {
        let queue = &self.volume_of(hash).queue;
        !queue.is_half_full() && queue.len() < queue.messages_max() / 2
    }

    /// Calls `visit` with the key and the head of each object that was written. Waits for the devices. An object that
    /// cannot be read, or is moved meanwhile, may be missing.
    pub fn for_each_head(&self, mut visit: impl FnMut(&[u8], &Bytes)) {
        for volume in &self.shared.volumes {
            volume.for_each_head(&mut visit);
        }
    }

    /// Returns true if lookups find this object, and no write in progress can replace it.
    pub fn is_current(&self, object: &DiskObject) -> bool {
        // The order matters. If a write becomes visible between the two checks, the lookup returns its location,
        // which differs from the location of `object`.
        !object
            .volume()
            .has_write(object.hash(), WriteState::is_hidden)
            && self
                .lookup(object.hash())
                .is_some_and(|found| found.location == object.location())
    }

    /// Returns true if the cache has an object under the hash, or a write of the key is in progress.
    pub fn may_hold(&self, hash: KeyHash) -> bool {
        self.volume_of(hash).has_write(hash, |_| true) || self.lookup(hash).is_some()
    }

    /// Sets the time and releases mapped pages. Call it about once a second. A block that was verified more than
    /// `verify_every` ago is verified again at its next read. Before the first call no block is remembered as verified.
    pub fn tick(&self, now: Timestamp) {
        for volume in &self.shared.volumes {
            volume.verified.tick(now);
            volume.residents.tick(now);
            if let Some(mapping) = volume.device.mapping() {
                mapping.release_pages();
            }
        }
    }

    /// Starts to write an object. `length` is the length of the body, if it is known.
    ///
    /// # Errors
    ///
    /// Fails if the object is too large or the device cannot take a write now.
    pub fn begin(
        &self,
        hash: KeyHash,
        key: &[u8],
        head: Bytes,
        length: Option<u64>,
    ) -> Result<DiskWrite, BeginError> {
        if self.shared.closed.load(Ordering::Relaxed) {
            return Err(BeginError::Closed);
        }
        if !self.key_and_head_fit(key, &head) {
            return Err(BeginError::KeyOrHeadTooLong);
        }
        let length_max = self.shared.object_bytes_max;
        if length.is_some_and(|length| length > length_max) {
            return Err(BeginError::TooLarge);
        }
        let volume = self.volume_of(hash);
        if volume.health.state() != DeviceState::InService {
            volume.counters.dropped_not_writable.increment();
            return Err(BeginError::NotWritable);
        }
        DiskWrite::begin(volume, hash, key, head, length, length_max)
    }

    /// Removes the object under `hash` and stops writes of the key that are in progress. The purge takes effect
    /// at once. It is durable after the next sync, which begins at the latest after the `sync_interval` of the
    /// settings.
    pub fn purge(&self, hash: KeyHash, _key: &[u8]) {
        let volume = self.volume_of(hash);
        volume.remove_key(hash);
        volume.counters.purges.increment();
        volume.purges_pending.fetch_add(1, Ordering::SeqCst);
        if volume
            .queue
            .push_unbounded(Message::Tombstone { hash })
            .is_err()
        {
            volume.count_purge_ended();
            volume.counters.purges_not_durable.increment();
        }
    }

    /// Like [`purge`](Self::purge), and calls `done` when the purge is durable, or with an error if durability
    /// is not certain. This function does not wait: the device's writer calls `done`, which must not block. All
    /// purges that arrive while the device syncs share the next sync. If the device has no object under the
    /// key, no tombstone is written and `done` is called at once.
    pub fn purge_then(
        &self,
        hash: KeyHash,
        _key: &[u8],
        done: impl FnOnce(Result<(), SyncError>) + Send + 'static,
    ) {
        let volume = self.volume_of(hash);
        volume.counters.purges.increment();
        if !volume.remove_key(hash) {
            done(Ok(()));
            return;
        }
        volume.purges_pending.fetch_add(1, Ordering::SeqCst);
        let done = PurgeCallback::new(done);
        // The message is queued before all waiting messages. Earlier writes of the key are stopped already, so
        // their order relative to the purge does not matter.
        if volume
            .queue
            .push_first(Message::Purge { hash, done })
            .is_err()
        {
            volume.count_purge_ended();
            volume.counters.purges_not_durable.increment();
        }
    }

    /// Like [`purge`](Self::purge), but waits for the device and returns when the purge is durable.
    ///
    /// # Errors
    ///
    /// Fails if durability is not certain. The purge is nevertheless in force until the process ends.
    pub fn purge_synced(&self, hash: KeyHash, key: &[u8]) -> Result<(), SyncError> {
        self.purge(hash, key);
        wait_for_result(&send(self.volume_of(hash), |done| Message::Sync { done })?)
    }

    /// Replaces the head of an object. If the object is in pieces, only the record that lists the pieces is written
    /// again. If it is one record, the whole record is written again.
    ///
    /// # Errors
    ///
    /// Fails if the head is too long or the device cannot take a write now. The old head then remains.
    pub fn update_head(
        &self,
        object: &DiskObject,
        key: &[u8],
        head: Bytes,
    ) -> Result<(), WriteError> {
        if !self.key_and_head_fit(key, &head) {
            return Err(WriteError::KeyOrHeadTooLong);
        }
        let volume = object.volume();
        if volume.health.state() != DeviceState::InService {
            return Err(WriteError::NotWritable);
        }
        let key_and_head_bytes = (key.len() + head.len()) as u64;
        if !volume.queue.reserve_bytes(key_and_head_bytes) {
            volume.counters.dropped_queue_full.increment();
            return Err(WriteError::QueueFull);
        }
        let write = WriteState::new(object.hash(), volume.next_object_id(), key, head);
        volume.register(&write);
        let message = Message::Rewrite {
            write: Arc::clone(&write),
            from: object.location(),
        };
        volume.queue.push(message).map_err(|refused| {
            volume.queue.release_bytes(key_and_head_bytes);
            volume.unregister(&write);
            match refused {
                NotQueued::Full => WriteError::QueueFull,
                NotQueued::Closed => WriteError::Closed,
            }
        })
    }

    /// Waits for all devices, and returns when all writes that finished before the call are visible and durable.
    ///
    /// # Errors
    ///
    /// Fails if durability is not certain for a device. The call waits for all devices even then.
    pub fn sync(&self) -> Result<(), SyncError> {
        self.send_to_all(|done| Message::Sync { done })
    }

    /// Writes all queued messages and the index, and stops the threads. Reads continue to work; later writes
    /// are refused.
    ///
    /// # Errors
    ///
    /// Fails if the data could not be written to a device. The next start then finds the objects of the last
    /// successful sync.
    pub fn close(&self) -> Result<(), SyncError> {
        if self.shared.closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let result = self.send_to_all(|done| Message::Close { done });
        self.shared.stop();
        result
    }

    /// Returns true while a caller reads or writes an object of an open cache.
    pub fn is_in_use(&self) -> bool {
        // The cache and the thread of the device's writer each have a reference to the device's state.
        let own = 1 + usize::from(!self.shared.writers.lock().is_empty());
        let volumes = self.shared.volumes.iter();
        volumes.map(Arc::strong_count).any(|owners| owners > own)
    }

    /// Ends lookups: they find no object from now on. Objects that were found earlier can still be read.
    pub fn retire(&self) {
        self.shared.retired.store(true, Ordering::SeqCst);
    }

    /// Lets another process open the devices of a cache that was closed. From then on, objects must not be read.
    pub fn unlock(&self) {
        for volume in &self.shared.volumes {
            volume.device.unlock();
        }
    }

    /// Returns the counters of all devices.
    pub fn counters(&self) -> DiskCounters {
        let devices = self.shared.volumes.iter();
        DiskCounters {
            devices: devices.map(|volume| volume.counters()).collect(),
        }
    }

    /// Returns the size of the largest object that the cache accepts.
    pub fn object_bytes_max(&self) -> u64 {
        self.shared.object_bytes_max
    }

    fn key_and_head_fit(&self, key: &[u8], head: &[u8]) -> bool {
        u16::try_from(key.len()).is_ok() && head.len() as u64 <= self.shared.head_bytes_max
    }

    fn volume_of(&self, hash: KeyHash) -> &Arc<Volume> {
        &self.shared.volumes[usize::from(self.route(hash))]
    }

    /// Returns the device with the lowest score for this key. When a device is added or removed, only its own
    /// keys move (rendezvous hashing).
    fn route(&self, hash: KeyHash) -> u16 {
        let volumes = &self.shared.volumes;
        if volumes.len() == 1 {
            return 0;
        }
        let score = |volume: &Volume| {
            let mixed = mix64(hash.0 ^ volume.superblock.device_id);
            // The probability that a device has the smallest `-ln(u) / weight` is proportional to its weight,
            // the number of its segments.
            let u = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
            -(u + f64::MIN_POSITIVE).ln() / f64::from(volume.segments.count())
        };
        let best =
            (0..volumes.len()).min_by(|&a, &b| score(&volumes[a]).total_cmp(&score(&volumes[b])));
        u16::try_from(best.unwrap_or(0)).expect("a cache has at most 1024 devices")
    }

    fn send_to_all(
        &self,
        message: impl Fn(SyncSender<Result<(), SyncError>>) -> Message,
    ) -> Result<(), SyncError> {
        let sent: Vec<_> = self
            .shared
            .volumes
            .iter()
            .map(|volume| send(volume, &message))
            .collect();
        let results: Vec<_> = sent
            .into_iter()
            .map(|result| wait_for_result(&result?))
            .collect();
        results.into_iter().collect()
    }
}

impl Shared {
    fn stop(&self) {
        for volume in &self.volumes {
            volume.queue.close();
        }
        for writer in self.writers.lock().drain(..) {
            // A writer that panicked has reported it on stderr. Its unwritten data is lost, as in a crash.
            _ = writer.join();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop();
    }
}

type SyncResult = Receiver<Result<(), SyncError>>;

fn send(
    volume: &Volume,
    message: impl Fn(SyncSender<Result<(), SyncError>>) -> Message,
) -> Result<SyncResult, SyncError> {
    let (done, answer) = sync_channel(1);
    volume
        .queue
        .push_unbounded(message(done))
        .map_err(|_| SyncError::Closed)?;
    Ok(answer)
}

fn wait_for_result(answer: &SyncResult) -> Result<(), SyncError> {
    answer.recv().map_err(|_| SyncError::Closed)?
}

/// Returns the content of each device, if the devices may be used together.
fn contents_of<'a>(
    devices: impl Iterator<Item = &'a dyn Device>,
) -> Result<Vec<Content>, OpenError> {
    let mut contents = Vec::new();
    let mut stores: Vec<(String, Superblock)> = Vec::new();
    for device in devices {
        let content = recovery::content_of(device)?;
        if let Content::Store(superblock) = &content {
            let same = |other: &&(String, Superblock)| other.1.device_id == superblock.device_id;
            if let Some((first, _)) = stores.iter().find(same) {
                return Err(OpenError::Twice {
                    device: device.name(),
                    first: first.clone(),
                });
            }
            let first = stores.first();
            if let Some((first, _)) = first.filter(|(_, s)| s.key_seed != superblock.key_seed) {
                return Err(OpenError::SeedMismatch {
                    device: device.name(),
                    first: first.clone(),
                });
            }
            stores.push((device.name(), *superblock));
        }
        contents.push(content);
    }
    Ok(contents)
}

fn check_settings(settings: &DiskSettings, devices: usize) -> Result<(), OpenError> {
    let wrong = |problem| Err(OpenError::Settings(problem));
    if devices == 0 {
        return Err(OpenError::NoDevice);
    }
    if devices > 1024 {
        return wrong("a disk cache has at most 1024 devices");
    }
    if settings.reserve_segments < 2 {
        return wrong(
            "reserve_segments must be at least 2: a segment may be needed while another segment is reclaimed",
        );
    }
    if let Some(size) = settings.segment_bytes
        && !super::format::is_segment_size(size.bytes())
    {
        return wrong("segment_bytes must be a multiple of 4 KiB from 256 KiB to 2 GiB");
    }
    if settings.write_bytes.bytes() > 64 << 20 {
        return wrong("write_bytes must be at most 64 MiB");
    }
    if settings.first_read_bytes.bytes() < 512 || settings.first_read_bytes.bytes() > 16 << 20 {
        return wrong("first_read_bytes must be from 512 B to 16 MiB");
    }
    if settings.read_bytes.bytes() > 16 << 20 {
        return wrong("read_bytes must be at most 16 MiB");
    }
    Ok(())
}
