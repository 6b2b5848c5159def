//! Executes random operations on a cache with tiny segments. Compares the results with a map that keeps all objects.
//!
//! The property: the cache returns the newest finished object of the key, byte for byte, or a miss. After a purge it
//! returns a miss until the key is written again. The property holds across restarts, with and without the
//! checkpoint.

use std::collections::HashMap;
use std::path::Path;

use edgeward_policy::log::Reinsertion;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Put {
        key: u64,
        bytes: usize,
        /// True if the length of the body is passed when the write begins.
        announced: bool,
    },
    /// Begins a write and drops it before its end.
    Abort {
        key: u64,
        bytes: usize,
    },
    Purge {
        key: u64,
    },
    Read {
        key: u64,
        from: u64,
        bytes: u64,
    },
    UpdateHead {
        key: u64,
    },
    Sync,
    Restart {
        /// True for a restart after a shutdown with a checkpoint, false for a restart after a crash.
        checkpoint: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0_u64..12;
    let bytes = prop_oneof![
        6 => 0_usize..3000,
        3 => 60_000_usize..140_000,
        1 => 140_000_usize..400_000,
    ];
    prop_oneof![
        10 => (key.clone(), bytes.clone(), any::<bool>())
            .prop_map(|(key, bytes, announced)| Step::Put { key, bytes, announced }),
        1 => (key.clone(), bytes).prop_map(|(key, bytes)| Step::Abort { key, bytes }),
        2 => key.clone().prop_map(|key| Step::Purge { key }),
        8 => (key.clone(), 0_u64..300_000, 1_u64..200_000)
            .prop_map(|(key, from, bytes)| Step::Read { key, from, bytes }),
        2 => key.prop_map(|key| Step::UpdateHead { key }),
        4 => Just(Step::Sync),
        1 => any::<bool>().prop_map(|checkpoint| Step::Restart { checkpoint }),
    ]
}

/// The object that the cache may return for a key.
#[derive(Clone, Debug)]
struct Expected {
    head: Vec<u8>,
    body: Vec<u8>,
}

struct TestRun<'a> {
    folder: &'a Path,
    reinsertion: Reinsertion,
    cache: DiskCache,
    expected: HashMap<u64, Expected>,
    /// The number of the last write. Each head and body is made from the number of its write.
    version: u64,
}

fn open_tiny(folder: &Path, reinsertion: Reinsertion) -> DiskCache {
    let settings = DiskSettings {
        segment_bytes: Some(ByteSize::kib(256)),
        reinsertion,
        first_read_bytes: ByteSize(1000),
        ..DiskSettings::new(folder, ByteSize::kib(256 * 9))
    };
    DiskCache::open(settings).expect("the cache opens").0
}

impl TestRun<'_> {
    fn execute(&mut self, step: &Step) {
        match *step {
            Step::Put {
                key,
                bytes,
                announced,
            } => {
                self.version += 1;
                let body = pattern(self.version, bytes);
                let head = format!("head {}", self.version).into_bytes();
                let length = announced.then_some(bytes as u64);
                let write = self
                    .cache
                    .begin(KeyHash(key), &name(key), head.clone().into(), length);
                let mut write = write.expect("the queue has room");
                for chunk in body.chunks(30_000) {
                    write
                        .push(chunk.to_vec().into())
                        .expect("the queue has room");
                }
                write.finish().expect("the queue has room");
                // Until the new object is written, the old one may be found. The test waits, so that only one
                // result is correct.
                self.cache.sync().expect("the device accepts all writes");
                self.expected.insert(key, Expected { head, body });
            }
            Step::Abort { key, bytes } => {
                let write = self
                    .cache
                    .begin(KeyHash(key), &name(key), "no".into(), None);
                let mut write = write.expect("the queue has room");
                write
                    .push(pattern(99, bytes).into())
                    .expect("the queue has room");
            }
            Step::Purge { key } => {
                self.cache.purge(KeyHash(key), &name(key));
                self.expected.remove(&key);
                assert_eq!(
                    self.cache.lookup(KeyHash(key)),
                    None,
                    "the purge takes effect at once"
                );
            }
            Step::Read { key, from, bytes } => self.read(key, from, bytes),
            Step::UpdateHead { key } => {
                let Some(object) = self.object(key) else {
                    return;
                };
                self.version += 1;
                let head = format!("newer head {}", self.version).into_bytes();
                let updated = self
                    .cache
                    .update_head(&object, &name(key), head.clone().into());
                updated.expect("the queue has room");
                self.cache.sync().expect("the device accepts all writes");
                // The object may have been evicted meanwhile. If it is stored, it has one of the two heads.
                let expected = self
                    .expected
                    .get_mut(&key)
                    .expect("the object was read before");
                if let Some(candidate) = self.cache.lookup(KeyHash(key)) {
                    let object = self.cache.read_head(&candidate, &name(key));
                    if object.is_ok_and(|object| object.head() == &head) {
                        expected.head = head;
                    }
                }
            }
            Step::Sync => self.cache.sync().expect("the device accepts all writes"),
            Step::Restart { checkpoint } => self.restart(checkpoint),
        }
    }

    fn object(&self, key: u64) -> Option<DiskObject> {
        let candidate = self.cache.lookup(KeyHash(key))?;
        self.cache.read_head(&candidate, &name(key)).ok()
    }

    fn read(&self, key: u64, from: u64, bytes: u64) {
        let Some(object) = self.object(key) else {
            return;
        };
        let expected = self
            .expected
            .get(&key)
            .expect("a purged object is not found");
        assert_eq!(object.head(), &expected.head);
        assert_eq!(object.length(), expected.body.len() as u64);
        let end = (from + bytes).min(object.length());
        let mut at = from;
        while at < end {
            let piece = object.read(at..end).expect("no write is in progress");
            assert!(!piece.is_empty());
            assert!(piece == expected.body[at as usize..][..piece.len()]);
            if let NonBlockingRead::Ready(now) = object.read_now(at..end) {
                assert!(!now.is_empty() && expected.body[at as usize..].starts_with(&now));
            }
            at += piece.len() as u64;
        }
    }

    fn restart(&mut self, checkpoint: bool) {
        let before: Vec<u64> = (0..12).filter(|&key| self.object(key).is_some()).collect();
        if checkpoint {
            self.cache.close().expect("the device accepts all writes");
        } else {
            self.cache.sync().expect("the device accepts all writes");
        }
        // Dropping the cache shuts it down and changes the file. The copy restores the state before the drop.
        let file = self.folder.join(FILE_NAME);
        let copy = std::fs::read(&file).expect("the read succeeds");
        let placeholder = tempfile::tempdir().expect("the folder is created");
        let other = open_tiny(placeholder.path(), self.reinsertion);
        drop(std::mem::replace(&mut self.cache, other));
        std::fs::write(&file, copy).expect("the write succeeds");
        self.cache = open_tiny(self.folder, self.reinsertion);
        for key in before {
            assert!(
                self.object(key).is_some(),
                "{key} was synced and is found again"
            );
        }
    }
}

/// Returns the full key, which is stored with the object. The cache finds the object by `KeyHash(key)`.
fn name(key: u64) -> [u8; 8] {
    key.to_le_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn a_lookup_returns_the_newest_object_or_a_miss(
        steps in prop::collection::vec(step(), 1..120),
        reinsertion in prop_oneof![
            Just(Reinsertion::Never),
            Just(Reinsertion::Hit { hits_min: 1 }),
            Just(Reinsertion::HitsPerByte),
        ],
    ) {
        let folder = tempfile::tempdir().expect("the folder is created");
        let mut run = TestRun {
            folder: folder.path(),
            reinsertion,
            cache: open_tiny(folder.path(), reinsertion),
            expected: HashMap::new(),
            version: 0,
        };
        for step in &steps {
            run.execute(step);
        }
        for key in 0..12 {
            run.read(key, 0, u64::MAX / 2);
        }
        // Pieces of aborted writes may still be queued.
        run.cache.sync().expect("the device accepts all writes");
        let counters = &run.cache.counters().devices[0];
        prop_assert_eq!(counters.checksum_failures, 0);
        prop_assert_eq!(counters.read_errors + counters.write_errors, 0);
        prop_assert_eq!(counters.queue_bytes, 0, "all queued bytes were released");
    }
}
