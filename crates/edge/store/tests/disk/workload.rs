//! Random operations on a cache: objects of all sizes are stored, replaced, read, purged, and get new heads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edgeward_policy::log::Reinsertion;
use edgeward_store::disk::{Device, DiskCache, DiskEvent, DiskSettings, EventSink};
use edgeward_testkit::disk::SimulatedDisk;
use edgeward_types::{ByteSize, KeyHash, Seed, SplitMix64};

use crate::history::{History, Version, open, read};

/// Returns the seed: the environment variable `EDGEWARD_SEED`, or a constant.
pub(crate) fn seed() -> Seed {
    let given = std::env::var("EDGEWARD_SEED").ok();
    let seed = Seed(given.map_or(20_261_121, |text| {
        text.parse().expect("the text is a number")
    }));
    eprintln!("repeat with EDGEWARD_SEED={}", seed.0);
    seed
}

/// Returns settings with small writes and segments, so that a run has many disk operations. No timer
/// triggers a write of objects. A checkpoint of the index is written every 20 ms.
pub(crate) fn settings() -> DiskSettings {
    DiskSettings {
        segment_bytes: Some(ByteSize::kib(512)),
        write_bytes: ByteSize::kib(64),
        flush_interval: HOUR,
        sync_interval: HOUR,
        sync_bytes: ByteSize::kib(700),
        checkpoint_interval: Duration::from_millis(20),
        retry_interval: Duration::ZERO,
        reinsertion: Reinsertion::Hit { hits_min: 1 },
        key_seed: Some(1),
        ..DiskSettings::default()
    }
}

/// A cache on a simulated disk, with the events that it reported and the history of its objects.
pub(crate) struct TestCache {
    pub(crate) disk: Arc<SimulatedDisk>,
    pub(crate) cache: DiskCache,
    pub(crate) events: Arc<Mutex<Vec<DiskEvent>>>,
    pub(crate) history: History,
    pub(crate) random: SplitMix64,
    /// Each operation chooses a key below this number.
    pub(crate) keys: u64,
    /// True while the disk fails. An accepted write may then still be dropped.
    pub(crate) faulty: bool,
    /// The stored objects at each moment at which all changes were durable.
    pub(crate) syncs: Vec<SyncPoint>,
}

/// A moment at which all changes were durable.
#[derive(Clone, Debug)]
pub(crate) struct SyncPoint {
    /// The number of writes and syncs of the disk before this moment.
    pub(crate) boundary: usize,
    /// The stored keys, with the number of changes of each key.
    pub(crate) present: BTreeMap<u64, usize>,
}

impl TestCache {
    /// Returns a new cache on a blank disk of `disk_bytes`.
    pub(crate) fn new(disk_bytes: usize, seed: Seed) -> Self {
        Self::with_disk(
            SimulatedDisk::new(disk_bytes),
            settings(),
            History::default(),
            seed,
        )
    }

    /// Returns a cache on an existing disk.
    pub(crate) fn with_disk(
        disk: Arc<SimulatedDisk>,
        settings: DiskSettings,
        history: History,
        seed: Seed,
    ) -> Self {
        let events: Arc<Mutex<Vec<DiskEvent>>> = Arc::default();
        let received = Arc::clone(&events);
        let settings = DiskSettings {
            on_event: EventSink::new(move |event| {
                received
                    .lock()
                    .expect("no thread panics")
                    .push(event.clone());
            }),
            ..settings
        };
        let cache = open_on(&disk, settings).expect("the disk can be opened");
        Self {
            disk,
            cache,
            events,
            history,
            random: SplitMix64(seed.0),
            keys: 300,
            faulty: false,
            syncs: Vec::new(),
        }
    }

    /// Runs a random operation.
    pub(crate) fn step(&mut self) {
        let key = self.random.below(self.keys);
        match self.random.below(100) {
            0..50 => {
                let length = self.length();
                self.store(key, length);
            }
            50..80 => {
                read(&self.cache, key, "while running");
            }
            80..86 => self.rewrite_head(key),
            86..94 => {
                self.cache.purge(KeyHash(key), &Version::full_key(key));
                self.history.record_purge(key);
            }
            94..96 => {
                let purged = self
                    .cache
                    .purge_synced(KeyHash(key), &Version::full_key(key));
                self.history.record_purge(key);
                if purged.is_ok() {
                    self.history.record_key_sync(key, self.disk.boundary());
                }
            }
            96..98 => self.abandon(key),
            _ => {
                self.sync();
            }
        }
    }

    /// Waits until all changes are durable. Returns true on success.
    pub(crate) fn sync(&mut self) -> bool {
        let synced = self.cache.sync().is_ok();
        if synced {
            self.record_sync_point();
        }
        synced
    }

    /// Shuts down the cache, which makes all changes durable. Returns true on success.
    pub(crate) fn close(&mut self) -> bool {
        let closed = self.cache.close().is_ok();
        if closed {
            self.record_sync_point();
        }
        closed
    }

    fn record_sync_point(&mut self) {
        let boundary = self.disk.boundary();
        self.history.record_sync(boundary);
        let keys = self.history.keys();
        let present = keys.filter(|&key| self.cache.lookup(KeyHash(key)).is_some());
        let present = present.map(|key| (key, self.history.changes(key)));
        self.syncs.push(SyncPoint {
            boundary,
            present: present.collect(),
        });
    }

    /// Stores an object. Returns true if the cache accepted it.
    pub(crate) fn store(&mut self, key: u64, length: u32) -> bool {
        let version = self.history.next_version(key, length);
        let announced = (self.random.below(2) == 0).then_some(u64::from(length));
        self.history.record_offer(version);
        let full_key = Version::full_key(key);
        let begun = self
            .cache
            .begin(KeyHash(key), &full_key, version.head_bytes(), announced);
        let Ok(mut write) = begun else { return false };
        let mut body = version.body_bytes();
        while !body.is_empty() {
            let piece = (1 + self.random.below(200_000)).min(body.len() as u64);
            let piece = body.split_to(usize::try_from(piece).expect("the number is small"));
            if write.push(piece).is_err() {
                return false;
            }
        }
        let accepted = write.finish().is_ok();
        if accepted && !self.faulty {
            self.history.record_acceptance(key);
        }
        accepted
    }

    /// Begins an object and drops the write half-way. No part of this object may ever be served.
    fn abandon(&mut self, key: u64) {
        let length = self.length();
        let version = self.history.next_version(key, length);
        let full_key = Version::full_key(key);
        let begun = self
            .cache
            .begin(KeyHash(key), &full_key, version.head_bytes(), None);
        if let Ok(mut write) = begun {
            let half = version.body_bytes().slice(..length as usize / 2);
            _ = write.push(half);
        }
    }

    fn rewrite_head(&mut self, key: u64) {
        // The object must be visible, otherwise the location of the old head is unknown.
        let Some(Ok(object)) = open(&self.cache, key) else {
            return;
        };
        let Some(version) = read(&self.cache, key, "before its head changes") else {
            return;
        };
        let version = Version {
            head: version.head + 1,
            ..version
        };
        self.history.record_offer(version);
        let full_key = Version::full_key(key);
        _ = self
            .cache
            .update_head(&object, &full_key, version.head_bytes());
    }

    /// Returns a random length: mostly small, sometimes several blocks, rarely several pieces.
    fn length(&mut self) -> u32 {
        let longest = match self.random.below(20) {
            0 => 1,
            1..8 => 600,
            8..14 => 9_000,
            14..19 => 90_000,
            _ => 700_000,
        };
        u32::try_from(self.random.below(longest)).expect("the number is small")
    }
}

pub(crate) fn open_on(
    disk: &Arc<SimulatedDisk>,
    settings: DiskSettings,
) -> Result<DiskCache, edgeward_store::disk::OpenError> {
    let device: Arc<dyn Device> = Arc::clone(disk) as Arc<dyn Device>;
    DiskCache::open_with_devices(settings, vec![device]).map(|(cache, _)| cache)
}

/// The size of the disk. It has space for at least a dozen segments.
pub(crate) const DISK_BYTES: usize = 8 << 20;

const HOUR: Duration = Duration::from_secs(3600);
