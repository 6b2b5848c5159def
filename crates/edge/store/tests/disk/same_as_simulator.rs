//! Tests that the simulator's disk tier and the store make the same decisions. Both use `edgeward_policy::log`.
//!
//! Method: one sequence of requests goes through the store, with real records on a simulated disk, and through
//! `LogTier`, which knows only sizes, with the same admission policy. Both must have equal hits, and equal
//! digests of all objects written, reinserted and evicted, while the log is filled several times.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use edgeward_policy::disk_admission::memory_for_disk;
use edgeward_policy::log::{LogShape, LogTier, LogTierConfig, Reinsertion};
use edgeward_policy::{
    AnyDiskAdmission, DiskAdmissionSpec, DiskVerdict, Hierarchy, HierarchyRules, Object,
};
use edgeward_store::disk::{DiskCache, DiskSettings};
use edgeward_testkit::disk::SimulatedDisk;
use edgeward_types::{ByteSize, KeyHash, SplitMix64};

use crate::workload::{open_on, seed};

#[test]
fn the_store_and_the_simulator_make_the_same_decisions() {
    let seed = seed();
    let requests = traffic(seed.0, 2_000);
    let mut digests = Vec::new();
    for reinsertion in [
        Reinsertion::Never,
        Reinsertion::Hit { hits_min: 1 },
        Reinsertion::Hit { hits_min: 2 },
        Reinsertion::HitsPerByte,
    ] {
        for admission in [DiskAdmissionSpec::Always, DiskAdmissionSpec::SecondHit] {
            let context = format!("seed {}, {reinsertion:?}, {admission}", seed.0);
            let mut store = Store::new(reinsertion);
            let mut log = simulated(&store, reinsertion);
            let served = outcome(&mut store, admission, &requests);
            assert_eq!(outcome(&mut log, admission, &requests), served, "{context}");
            let counters = &store.0.counters().devices[0];
            assert!(
                served.hits > 100 && counters.evicted_objects > 100,
                "{context}"
            );
            assert!(
                counters.reinserted_objects > 5 || reinsertion == Reinsertion::Never,
                "{context}"
            );
            digests.push(served.digest);
        }
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 8, "the digest distinguishes runs");
}

/// A tier under test.
trait Tier {
    /// Returns true and counts a hit if the object is stored.
    fn hit(&mut self, key: u64) -> bool;

    fn insert(&mut self, key: u64, bytes: u64);

    /// Returns the digest of all objects written, reinserted and evicted so far.
    fn digest(&self) -> u64;
}

#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    hits: u64,
    digest: u64,
}

fn outcome(tier: &mut impl Tier, admission: DiskAdmissionSpec, requests: &[(u64, u64)]) -> Outcome {
    let admission = AnyDiskAdmission::new(admission, memory_for_disk(DISK_BYTES as u64));
    let rules = Hierarchy::new(admission, HierarchyRules::default());
    let mut hits = 0;
    // Recent large objects, whose bodies are stored in pieces, each with the number of bytes inserted after it. The
    // store finds such an object only when its last record is written. The simulator has no write buffer and finds the
    // object at once. Requests for the object are therefore skipped until `WRITE_BYTES` were inserted after it.
    let mut unwritten: VecDeque<(u64, u64)> = VecDeque::new();
    for &(key, bytes) in requests {
        if unwritten.iter().any(|&(other, _)| other == key) {
            continue;
        }
        if tier.hit(key) {
            hits += 1;
            continue;
        }
        let object = Object {
            key: KeyHash(key),
            size_bytes: bytes,
        };
        if rules.miss(&object).disk == DiskVerdict::Write {
            tier.insert(key, bytes);
            unwritten.iter_mut().for_each(|(_, since)| *since += bytes);
            while unwritten
                .front()
                .is_some_and(|&(_, since)| since >= WRITE_BYTES)
            {
                unwritten.pop_front();
            }
            if LogShape::new(SEGMENT_BYTES).is_cut(bytes) {
                unwritten.push_back((key, 0));
            }
        }
    }
    Outcome {
        hits,
        digest: tier.digest(),
    }
}

/// The store under test. Each write is taken by the writer before the next write begins.
struct Store(DiskCache);

impl Store {
    fn new(reinsertion: Reinsertion) -> Self {
        let settings = DiskSettings {
            segment_bytes: Some(ByteSize(SEGMENT_BYTES)),
            write_bytes: ByteSize(WRITE_BYTES),
            // With these values no timer triggers a write. A checkpoint interval of zero disables the timer.
            flush_interval: HOUR,
            sync_interval: HOUR,
            sync_bytes: ByteSize::gib(1),
            checkpoint_interval: Duration::ZERO,
            reinsertion,
            key_seed: Some(1),
            ..DiskSettings::default()
        };
        Self(open_on(&SimulatedDisk::new(DISK_BYTES), settings).expect("the cache opens"))
    }
}

impl Tier for Store {
    fn hit(&mut self, key: u64) -> bool {
        let candidate = self.0.lookup(KeyHash(key));
        candidate.is_some_and(|candidate| {
            let object = self.0.read_head(&candidate, &key.to_le_bytes());
            object.expect("the disk is healthy");
            true
        })
    }

    fn insert(&mut self, key: u64, bytes: u64) {
        let head = Bytes::from_static(&[7; HEAD_BYTES]);
        let mut write = self
            .0
            .begin(KeyHash(key), &key.to_le_bytes(), head, Some(bytes))
            .expect("the object fits");
        let mut left = bytes;
        while left > 0 {
            let more = left.min(50_000);
            let chunk = vec![key as u8; usize::try_from(more).expect("the number is small")];
            write.push(chunk.into()).expect("the space is sufficient");
            left -= more;
        }
        write.finish().expect("the body is complete");
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.0.counters().total(|device| device.queue_bytes) > 0 {
            assert!(Instant::now() < deadline, "the writer is stuck");
            std::thread::yield_now();
        }
    }

    fn digest(&self) -> u64 {
        self.0.counters().devices[0].digest
    }
}

/// Returns the simulator's tier for the same disk.
fn simulated(store: &Store, reinsertion: Reinsertion) -> LogTier {
    let capacity = store.0.counters().devices[0].capacity_bytes;
    LogTier::new(LogTierConfig {
        shape: LogShape::new(SEGMENT_BYTES),
        segments: u32::try_from(capacity / SEGMENT_BYTES).expect("the number of segments is small"),
        reserve: DiskSettings::default().reserve_segments,
        reinsertion,
        key_and_head_bytes: (size_of::<u64>() + HEAD_BYTES) as u64,
        write_bytes: WRITE_BYTES,
        write_align_bytes: edgeward_store::disk::WRITE_ALIGN,
    })
}

impl Tier for LogTier {
    fn hit(&mut self, key: u64) -> bool {
        self.lookup(KeyHash(key))
    }

    fn insert(&mut self, key: u64, bytes: u64) {
        assert!(Self::insert(self, KeyHash(key), bytes), "the object fits");
    }

    fn digest(&self) -> u64 {
        Self::digest(self)
    }
}

/// Returns random requests, as pairs of key and size. A third of the requests are for new objects, a third for
/// 60 popular objects, and a third for these and 240 others. Some objects are stored in pieces.
fn traffic(seed: u64, requests: u64) -> Vec<(u64, u64)> {
    let mut random = SplitMix64(seed);
    (0..requests)
        .map(|n| {
            let key = match random.below(3) {
                0 => 1_000_000 + n,
                1 => random.below(60),
                _ => random.below(300),
            };
            // The index expects keys that are hashes.
            let key = SplitMix64(key).draw();
            let mut key_random = SplitMix64(key);
            let longest = match key_random.below(20) {
                0 => 1,
                1..10 => 5_000,
                10..18 => 60_000,
                _ => 400_000,
            };
            (key, key_random.below(longest))
        })
        .collect()
}

const DISK_BYTES: usize = 4 << 20;
const SEGMENT_BYTES: u64 = 256 << 10;
const WRITE_BYTES: u64 = 32 << 10;
const HEAD_BYTES: usize = 20;
const HOUR: Duration = Duration::from_secs(3600);
