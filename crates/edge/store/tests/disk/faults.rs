//! Tests of device faults: a failure is a miss, is reported once and is counted. A recovered device is used
//! again. A wrong byte is never served.
//!
//! Each test injects one fault. During the fault three conditions must hold: every object is served byte for
//! byte or is a miss, non-blocking calls do not wait for the disk, and no call panics.

use std::sync::Arc;

use bytes::Bytes;
use edgeward_store::disk::{
    BeginError, Device, DeviceState, DiskCache, DiskEvent, DiskSettings, Miss, NonBlockingRead,
    OpenError, SyncError,
};
use edgeward_testkit::Gate;
use edgeward_testkit::disk::{Errno, Fault, Harm, SimulatedDisk};
use edgeward_types::{ByteSize, KeyHash, Seed};

use crate::history::{Version, open};
use crate::workload::{DISK_BYTES, TestCache, open_on, seed, settings};

/// Returns a cache with a hundred durable objects, small and large.
fn filled(seed: Seed) -> TestCache {
    let mut test = TestCache::new(DISK_BYTES, seed);
    for key in 0..OBJECTS {
        let length = if key % 10 == 0 { 150_000 } else { 5_000 };
        assert!(test.store(key, length));
    }
    assert!(test.sync());
    test
}

impl TestCache {
    /// Returns how many of the first [`OBJECTS`] keys are hits. Panics if a hit has wrong bytes.
    fn hits(&self, context: &str) -> u64 {
        let hits = (0..OBJECTS).filter(|&key| self.is_hit(key, context));
        hits.count() as u64
    }

    /// Returns true if a key is a hit. Panics if the hit has wrong bytes.
    fn is_hit(&self, key: u64, context: &str) -> bool {
        // The number of writes and syncs so far.
        let boundary = self.disk.boundary();
        self.history
            .check(&self.cache, key, boundary, context)
            .is_some()
    }

    fn events(&self) -> Vec<DiskEvent> {
        self.events.lock().expect("no thread panics").clone()
    }

    fn count(&self, name: &str) -> u64 {
        let counters = &self.cache.counters().devices[0];
        let found = counters.named().find(|&(other, _)| other == name);
        found
            .unwrap_or_else(|| panic!("no counter with the name {name}"))
            .1
    }

    fn state(&self) -> DeviceState {
        self.cache.counters().devices[0].state
    }
}

/// An object with a flipped bit is a miss. All other objects are hits.
#[test]
fn flipped_bits_are_misses_and_reported_once() {
    let seed = seed();
    let mut test = filled(seed);
    assert_eq!(test.hits("before"), OBJECTS);
    let content = test.disk.content();
    let used: Vec<u64> = (SUPERBLOCKS_BYTES..DISK_BYTES)
        .filter(|&at| content[at] != 0)
        .map(|at| at as u64)
        .collect();
    for _ in 0..60 {
        let at = used[test.random.below(used.len() as u64) as usize];
        let bit = 1 << test.random.below(8);
        test.disk.flip(at, bit);
    }
    let hits = test.hits("with flipped bits");
    let lost = OBJECTS - hits;
    assert!((5..=60).contains(&lost), "{lost} of {OBJECTS} were lost");
    assert!(test.count("checksum_failures") >= lost);
    let events: Vec<_> = test.events();
    assert!(
        matches!(events[..], [DiskEvent::Corrupt { .. }]),
        "{events:?}"
    );
    // A corrupt object is removed from the index, so it is not read again.
    let failures = test.count("checksum_failures");
    assert_eq!(test.hits("again"), hits);
    assert_eq!(test.count("checksum_failures"), failures);
    assert_eq!(test.state(), DeviceState::InService);
    assert!(test.store(0, 5_000) && test.sync() && test.is_hit(0, "stored again"));
}

/// Bits flip while the cache is stopped, at any offset: superblock, checkpoint of the index, headers, footers,
/// records. After the next start no wrong byte is served, and most objects are hits.
///
/// Method: flip one bit at a random offset, open, read all objects, and repeat. A third of the flips are in the
/// first 128 KiB.
#[test]
fn a_start_from_a_damaged_disk_serves_no_wrong_byte() {
    let seed = seed();
    let mut test = filled(seed);
    assert!(test.close());
    let whole = test.disk.content();
    let (mut hits, mut rounds) = (0, 0);
    for _ in 0..120 {
        let limit = match test.random.below(3) {
            0 => 128 << 10,
            _ => DISK_BYTES as u64,
        };
        let at = test.random.below(limit);
        let bit = 1 << test.random.below(8);
        let disk = SimulatedDisk::with_content(whole.clone());
        disk.flip(at, bit);
        // `usize::MAX` is after every write and sync.
        let history = test.history.continued_after(usize::MAX);
        let damaged = TestCache::with_disk(disk, settings(), history, seed);
        hits += damaged.hits(&format!("bit {bit:#x} of byte {at} flipped"));
        rounds += 1;
    }
    // A flipped bit damages at most one object, or the footer of one segment. A segment without a valid footer is
    // searched, so its objects are found.
    assert!(
        hits >= rounds * (OBJECTS - 1),
        "{hits} hits in {rounds} rounds"
    );
}

/// A disk that rejects writes is still read. The failure is reported once and counted, and writes resume when
/// the disk recovers.
///
/// Method: inject each kind of write error into a cache with objects. Then let the disk recover, and then let the
/// power fail.
#[test]
fn a_disk_that_rejects_writes_is_read_and_recovers() {
    let seed = seed();
    for fault in [
        Fault::Writes(Errno::NoSpace),
        Fault::Writes(Errno::Io),
        Fault::Writes(Errno::ReadOnly),
        Fault::ShortWrites,
        Fault::Syncs(Errno::Io),
    ] {
        let mut test = filled(seed);
        let context = format!("{fault:?}");
        test.disk.inject(fault);
        // From now on, the history does not expect that accepted writes are stored.
        test.faulty = true;
        for key in OBJECTS..OBJECTS + 50 {
            test.store(key, 20_000);
            if key % 10 == 0 {
                assert_eq!(test.cache.sync(), Err(SyncError::NotWritable), "{context}");
            }
        }
        assert_eq!(test.state(), DeviceState::ReadOnly, "{context}");
        assert_eq!(test.hits(&context), OBJECTS);
        assert!(test.count("write_errors") > 0, "{context}");
        assert!(test.count("dropped_not_writable") > 0, "{context}");
        let events = test.events();
        assert!(
            matches!(events[..], [DiskEvent::ReadOnly { .. }]),
            "{context}: {events:?}"
        );
        // A purge takes effect, and the call returns an error because the purge may not be durable.
        let full_key = Version::full_key(1);
        let purged = test.cache.purge_synced(KeyHash(1), &full_key);
        assert_eq!(purged, Err(SyncError::NotWritable), "{context}");
        test.history.record_purge(1);
        assert_eq!(test.cache.lookup(KeyHash(1)), None, "{context}");

        test.disk.heal();
        assert!(test.sync(), "{context}: the disk has recovered");
        test.faulty = false;
        let events = test.events();
        assert!(
            matches!(
                events[..],
                [DiskEvent::ReadOnly { .. }, DiskEvent::Writable { .. }]
            ),
            "{context}: {events:?}"
        );
        assert!(test.store(200, 20_000), "{context}");
        assert!(test.sync() && test.is_hit(200, &context));
        assert_eq!(test.hits(&context), OBJECTS - 1);

        let boundary = test.disk.boundary();
        let image = test.disk.crashes(seed).image(boundary, Harm::LoseUnsynced);
        let history = test.history.continued_after(boundary);
        let next = TestCache::with_disk(
            SimulatedDisk::with_content(image),
            settings(),
            history,
            seed,
        );
        assert_eq!(
            next.hits(&context),
            OBJECTS - 1,
            "the purge is in force, all other objects are stored"
        );
        assert!(next.is_hit(200, &context));
    }
}

/// Failed reads are misses. A disk whose reads all fail is taken out of service, reported once, and not read
/// again.
#[test]
fn a_disk_that_cannot_be_read_is_taken_out_of_service() {
    for fault in [Fault::Reads(Errno::Io), Fault::ShortReads] {
        let context = format!("{fault:?}");
        let mut test = filled(seed());
        test.disk.inject(fault);
        let candidate = test.cache.lookup(KeyHash(3)).expect("the key is indexed");
        let miss = test.cache.read_head(&candidate, &Version::full_key(3));
        assert!(matches!(miss, Err(Miss::Device(_))), "{context}: {miss:?}");
        assert_eq!(test.hits(&context), 0);
        assert_eq!(test.state(), DeviceState::OutOfService, "{context}");
        assert!(test.count("read_errors") > 0);
        let events = test.events();
        assert!(
            matches!(events[..], [DiskEvent::OutOfService { .. }]),
            "{context}: {events:?}"
        );
        let failures = test.disk.failures();
        assert_eq!(test.hits(&context), 0);
        assert_eq!(
            test.disk.failures(),
            failures,
            "{context}: the disk is not read again"
        );
        assert!(
            !test.store(300, 1_000),
            "{context}: no object is written either"
        );
    }
}

/// One failed read is one miss: the object is a hit again when the disk recovers.
#[test]
fn a_temporary_read_error_is_one_miss() {
    let test = filled(seed());
    test.disk.inject(Fault::Reads(Errno::Io));
    assert!(!test.is_hit(3, "while reads fail"));
    test.disk.heal();
    assert_eq!(test.hits("after"), OBJECTS);
    assert_eq!(test.state(), DeviceState::InService);
}

/// One of two devices fails: its keys are misses, the keys of the other device are hits as before.
#[test]
fn a_device_that_fails_takes_only_itself_out_of_service() {
    let disks = [
        SimulatedDisk::new(DISK_BYTES),
        SimulatedDisk::new(DISK_BYTES),
    ];
    let devices = disks.iter().map(|disk| Arc::clone(disk) as Arc<dyn Device>);
    let (cache, _) = DiskCache::open_with_devices(settings(), devices.collect())
        .expect("a blank disk can be opened");
    for key in 0..200 {
        put(&cache, key, 2_000).expect("the queue has room for all objects");
    }
    cache.sync().expect("the disk is healthy");
    let hits = |cache: &DiskCache| (0..200).filter(|&key| is_whole(cache, key)).count();
    assert_eq!(hits(&cache), 200);
    let objects = cache.counters().devices[1].objects as usize;
    assert!(
        (50..150).contains(&objects),
        "keys are distributed: {objects}"
    );

    disks[0].inject(Fault::Reads(Errno::Io));
    disks[0].inject(Fault::Writes(Errno::Io));
    assert_eq!(hits(&cache), objects);
    let states: Vec<_> = cache
        .counters()
        .devices
        .iter()
        .map(|device| device.state)
        .collect();
    assert_eq!(states, [DeviceState::OutOfService, DeviceState::InService]);
    let taken = (200..400)
        .filter(|&key| put(&cache, key, 2_000).is_ok())
        .count();
    assert!(
        (50..150).contains(&taken),
        "the other device still stores objects: {taken}"
    );
    _ = cache.sync();
    assert!((200..400).filter(|&key| is_whole(&cache, key)).count() >= taken);
}

/// No call waits for a slow disk. Writes that do not fit the queue are dropped and counted, stored objects are
/// served, and accepted writes are stored when the disk has completed them.
#[test]
fn writes_to_a_slow_disk_are_dropped_and_no_call_waits() {
    let gate = Gate::new();
    let disk = SimulatedDisk::new(DISK_BYTES);
    let settings = DiskSettings {
        queue_bytes: ByteSize::mib(1),
        ..settings()
    };
    let cache = open_on(&disk, settings).expect("a blank disk can be opened");
    for key in 0..20 {
        put(&cache, key, 10_000).expect("the queue of an idle disk has room");
        cache.sync().expect("the disk is healthy");
    }
    disk.inject(Fault::WritesWait(gate.clone()));
    let taken: Vec<u64> = (20..400)
        .filter(|&key| put(&cache, key, 10_000).is_ok())
        .collect();
    gate.wait_reached(1);
    let counters = &cache.counters().devices[0];
    assert!(counters.dropped_queue_full > 200, "{counters:?}");
    assert!(counters.queue_bytes <= 1 << 20, "the queue has a bound");
    assert!((0..20).all(|key| is_whole(&cache, key)), "while it waits");
    gate.open();
    disk.heal();
    cache.sync().expect("the disk is slow but works");
    assert!(taken.len() > 20, "{taken:?}");
    assert!(taken.iter().all(|&key| is_whole(&cache, key)));
    assert_eq!(cache.counters().devices[0].queue_bytes, 0);
}

/// A non-blocking read that would have to wait returns `WouldBlock`, and the object stays stored.
#[test]
fn a_read_that_would_wait_returns_would_block() {
    let test = filled(seed());
    test.disk.inject(Fault::ReadsWait);
    let candidate = test.cache.lookup(KeyHash(10)).expect("the key is indexed");
    let full_key = Version::full_key(10);
    let now = test.cache.read_head_now(&candidate, &full_key);
    assert!(matches!(now, NonBlockingRead::WouldBlock), "{now:?}");
    let object = test
        .cache
        .read_head(&candidate, &full_key)
        .expect("a blocking read succeeds");
    assert!(matches!(
        object.read_now(100_000..110_000),
        NonBlockingRead::WouldBlock
    ));
    assert!(
        !object
            .read(100_000..110_000)
            .expect("a blocking read succeeds")
            .is_empty()
    );
    assert_eq!(test.count("would_block"), 2);
    assert_eq!(test.hits("by waiting"), OBJECTS);
}

/// A disk whose content was erased is formatted again. A disk with another format or other data is rejected
/// with an instruction, and not changed.
#[test]
fn a_foreign_disk_is_rejected_and_an_erased_one_is_formatted() {
    let mut test = filled(seed());
    assert!(test.close());
    let content = test.disk.content();

    let blank = SimulatedDisk::new(DISK_BYTES);
    let formatted = TestCache::with_disk(blank, settings(), test.history.clone(), Seed(1));
    assert_eq!(formatted.hits("deleted"), 0);

    let rejection = |content: Vec<u8>, is_damaged: bool| {
        let disk = SimulatedDisk::with_content(content);
        let Err(error) = open_on(&disk, settings()) else {
            panic!("a foreign disk was opened");
        };
        assert_eq!(disk.boundary(), 0, "the disk was written");
        match is_damaged {
            true => assert!(matches!(error, OpenError::Damaged { .. }), "{error}"),
            false => assert!(matches!(error, OpenError::Superblock { .. }), "{error}"),
        }
        error.to_string()
    };
    // Returns the content with one byte changed in both copies of the superblock.
    let changed = |at: usize, byte: u8| {
        let mut content = content.clone();
        content[at] = byte;
        content[4096 + at] = byte;
        content
    };
    let version = rejection(changed(8, 77), false);
    assert!(
        version.contains("version 77") && version.contains("delete"),
        "{version}"
    );
    let mut other = vec![0; content.len()];
    (other[0], other[4096]) = (b'x', b'x');
    let foreign = rejection(other, false);
    assert!(foreign.contains("not an edgeward store"), "{foreign}");
    // The byte at offset 20 is part of a random number. The test negates it, so that its value certainly changes.
    let damaged = rejection(changed(20, !content[20]), true);
    assert!(damaged.contains("damaged"), "{damaged}");
    // The segment headers show that the device was a store.
    let no_superblock = rejection(changed(0, b'x'), true);
    assert!(no_superblock.contains("damaged"), "{no_superblock}");

    // One valid copy of the superblock is sufficient.
    let mut half = content;
    half[..4096].fill(0xee);
    let half = TestCache::with_disk(
        SimulatedDisk::with_content(half),
        settings(),
        test.history.clone(),
        Seed(1),
    );
    assert_eq!(half.hits("half a superblock"), OBJECTS);
}

/// A truncated disk either cannot be opened, or serves no wrong byte.
#[test]
fn a_truncated_disk_serves_no_wrong_byte() {
    let mut test = filled(seed());
    for key in OBJECTS..3 * OBJECTS {
        assert!(test.store(key, 20_000));
    }
    assert!(test.close());
    let mut content = test.disk.content();
    content.truncate(DISK_BYTES * 3 / 4);
    let disk = SimulatedDisk::with_content(content);
    let Ok(cache) = open_on(&disk, settings()) else {
        return;
    };
    for key in test.history.keys() {
        let boundary = test.disk.boundary();
        test.history.check(&cache, key, boundary, "truncated");
    }
}

fn put(cache: &DiskCache, key: u64, length: u32) -> Result<(), BeginError> {
    let version = version(key, length);
    let full_key = Version::full_key(key);
    let mut write = cache.begin(
        KeyHash(key),
        &full_key,
        version.head_bytes(),
        Some(u64::from(length)),
    )?;
    let pushed = write.push(Bytes::from(version.body_bytes().to_vec()));
    pushed
        .and_then(|()| write.finish())
        .map_err(|_| BeginError::QueueFull)
}

/// Returns a version of the object. `put` stores only one per key, so the numbers of body and head are constant.
fn version(key: u64, length: u32) -> Version {
    Version {
        key,
        body: 1,
        length,
        head: 0,
    }
}

fn is_whole(cache: &DiskCache, key: u64) -> bool {
    let Some(Ok(object)) = open(cache, key) else {
        return false;
    };
    let length = u32::try_from(object.length()).expect("the number is small");
    let body = object.read(0..object.length()).expect("the body is intact");
    assert_eq!(body, version(key, length).body_bytes(), "key {key}");
    true
}

const OBJECTS: u64 = 100;
const SUPERBLOCKS_BYTES: usize = 8192;
