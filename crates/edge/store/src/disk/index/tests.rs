//! Tests of the whole index. A map from identities to locations is the oracle.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use edgeward_types::{ByteSize, KeyHash};

use super::geometry::{Geometry, Identity};
use super::*;
use crate::disk::location::Location;

/// Returns the identity of a key in the index: the lower of its two bases, and its tag. A base is the number of a
/// bucket within a layer of the table (see `geometry`).
fn canonical(index: &Index, key: KeyHash) -> (u64, u64) {
    let Identity { base, tag } = index.geometry.identify(key);
    (base.min(index.geometry.partner(base, tag)), tag)
}

fn location(unit: u64) -> Location {
    Location::from_unit(unit)
}

/// A change of the index. The first number is a key, the second the unit of the new location.
#[derive(Clone, Debug)]
enum Change {
    Insert(u64, u64),
    Touch(u64),
    Relocate(u64, u64),
    Remove(u64),
    /// Removes and relocates the key at a location that it does not have. The index must not change.
    RemoveElsewhere(u64),
    Purge(u64),
    /// Keeps only the entries whose location has an even unit.
    RetainEven,
    /// Writes a checkpoint and continues with the index that is loaded from it.
    SaveAndLoad,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let key = 0_u64..1500;
    let unit = 1_u64..1 << 16;
    let change = prop_oneof![
        30 => (key.clone(), unit.clone()).prop_map(|(key, unit)| Change::Insert(key, unit)),
        5 => key.clone().prop_map(Change::Touch),
        5 => (key.clone(), unit).prop_map(|(key, unit)| Change::Relocate(key, unit)),
        5 => key.clone().prop_map(Change::Remove),
        2 => key.clone().prop_map(Change::RemoveElsewhere),
        2 => key.prop_map(Change::Purge),
        1 => Just(Change::SaveAndLoad),
        1 => Just(Change::RetainEven),
    ];
    prop::collection::vec(change, 1..3000)
}

/// Returns the configuration of an index for at most 2000 objects.
fn small() -> IndexConfig {
    IndexConfig {
        device: ByteSize::mib(32),
        objects_max: 2000,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// After any sequence of changes, the index and the map give the same results.
    #[test]
    fn the_index_agrees_with_a_map_of_identities(changes in changes()) {
        let mut index = Index::new(small());
        let mut map: HashMap<(u64, u64), (Location, u8)> = HashMap::new();
        for change in changes {
            match change {
                Change::Insert(key, unit) => {
                    let key = KeyHash(key);
                    let before = map.insert(canonical(&index, key), (location(unit), 0));
                    let expected = before.map_or(InsertOutcome::New, |(at, _)| InsertOutcome::Replaced(at));
                    prop_assert_eq!(index.insert(key, location(unit)), expected);
                }
                Change::Touch(key) => {
                    let key = KeyHash(key);
                    // This touch counts only if the entry has exactly this location.
                    index.touch(key, location(1 << 15));
                    if let Some((at, hits)) = map.get_mut(&canonical(&index, key)) {
                        if *at == Location::from_unit(1 << 15) {
                            *hits = Index::HITS_MAX.min(*hits + 1);
                        }
                        index.touch(key, *at);
                        *hits = Index::HITS_MAX.min(*hits + 1);
                    }
                }
                Change::Relocate(key, unit) => {
                    let key = KeyHash(key);
                    let identity = canonical(&index, key);
                    // For an absent key, any location is wrong: 3 is arbitrary.
                    let from = map.get(&identity).map_or_else(|| location(3), |&(from, _)| from);
                    let done = index.relocate(key, from, location(unit));
                    prop_assert_eq!(done, map.contains_key(&identity));
                    if done {
                        map.insert(identity, (location(unit), 0));
                    }
                }
                Change::Remove(key) => {
                    let key = KeyHash(key);
                    if let Some((at, _)) = map.remove(&canonical(&index, key)) {
                        prop_assert!(index.remove(key, at));
                    }
                }
                Change::RemoveElsewhere(key) => {
                    let key = KeyHash(key);
                    let elsewhere = map.get(&canonical(&index, key)).map_or(5, |(at, _)| at.unit() ^ 1);
                    prop_assert!(!index.remove(key, location(elsewhere)));
                    prop_assert!(!index.relocate(key, location(elsewhere), location(9)));
                    prop_assert_eq!(index.hits(key, location(elsewhere)), None);
                }
                Change::Purge(key) => {
                    let key = KeyHash(key);
                    let gone = map.remove(&canonical(&index, key)).map(|(at, _)| at);
                    prop_assert_eq!(index.purge(key), gone);
                }
                Change::RetainEven => {
                    index.retain(|at| at.unit() % 2 == 0);
                    map.retain(|_, (at, _)| at.unit() % 2 == 0);
                }
                Change::SaveAndLoad => {
                    let mut bytes = Vec::new();
                    // 7 is the epoch, which the checkpoint contains.
                    let saved = index.save(7, &mut bytes).expect("memory can be written");
                    prop_assert_eq!(saved.entries, map.len() as u64);
                    prop_assert_eq!(saved.bytes, bytes.len() as u64);
                    prop_assert!(saved.bytes <= Index::checkpoint_bytes_max(small()));
                    let (loaded, epoch) = Index::load(small(), &mut &bytes[..]).expect("the checkpoint is valid");
                    prop_assert_eq!(epoch, 7);
                    index = loaded;
                }
            }
            prop_assert_eq!(index.len(), map.len() as u64);
        }
        for key in (0..1500).map(KeyHash) {
            let expected = map.get(&canonical(&index, key)).copied();
            prop_assert_eq!(index.find(key), expected.map(|(at, _)| at));
            if let Some((at, hits)) = expected {
                prop_assert_eq!(index.hits(key, at), Some(hits));
            }
        }
        let mut seen = 0;
        index.for_each(|_, _| seen += 1);
        prop_assert_eq!(seen, map.len());
        prop_assert_eq!(index.counts().displaced, 0);
    }
}

/// No entry is displaced until the index has `objects_max` objects. The table starts with one layer of buckets. After
/// this layer is full, an object takes at most 8 bytes.
///
/// Method: grow one index to forty layers, check its size after each insertion, and look up every key at the end.
#[test]
fn a_growing_index_takes_at_most_eight_bytes_per_object() {
    let objects_max = 120_000;
    let index = Index::new(IndexConfig {
        device: ByteSize::gib(3),
        objects_max,
    });
    let mut replaced = 0;
    for n in 0..objects_max {
        match index.insert(KeyHash(n), location(n + 1)) {
            InsertOutcome::New => {}
            InsertOutcome::Replaced(_) => replaced += 1,
            InsertOutcome::Displaced(at) => panic!("object {n} displaced {at}"),
        }
        // A bucket has 64 bytes. The table allocates many buckets at once, so the loop checks the buckets in use, and
        // the end of the test checks the allocated memory.
        let buckets = index.counts().buckets;
        if n > 10_000 {
            assert!(64 * buckets <= 8 * index.len(), "{buckets} for {n}");
        }
    }
    let per_object = index.bytes() as f64 / index.len() as f64;
    assert!(per_object <= 8.0, "{per_object} bytes per object");
    assert!(index.bytes() <= index.bytes_max());
    // The n keys form n² / 2 pairs, and there are (bases / 2) × tags identities. The expected number of pairs with
    // equal identities is the first number divided by the second: well below one.
    assert!(replaced <= 3, "{replaced} equal identities");
    let wrong = (0..objects_max)
        .filter(|&n| index.find(KeyHash(n)) != Some(location(n + 1)))
        .count();
    assert!(wrong <= replaced);
}

/// A full index accepts every new object and displaces the entries whose records the log will overwrite next.
///
/// Method: insert four times as many objects as the limit, in the order in which a log writes them. The
/// remaining entries must be mostly the newest quarter, and each displacement must be returned and counted.
#[test]
fn a_full_index_displaces_the_oldest_and_counts_it() {
    let objects_max = 10_000;
    let index = Index::new(IndexConfig {
        device: ByteSize::gib(1),
        objects_max,
    });
    let mut displaced = 0;
    for n in 0..4 * objects_max {
        if let InsertOutcome::Displaced(gone) = index.insert(KeyHash(n), location(n + 1)) {
            displaced += 1;
            assert!(gone.unit() <= n, "the displaced entry is older");
        }
        assert_eq!(index.find(KeyHash(n)), Some(location(n + 1)));
    }
    assert_eq!(index.counts().displaced, displaced);
    assert_eq!(index.len(), 4 * objects_max - displaced);
    assert!(index.len() >= objects_max);
    assert!(index.bytes() <= index.bytes_max());
    let found = |range: std::ops::Range<u64>| {
        let all = range.end - range.start;
        range.filter(|&n| index.find(KeyHash(n)).is_some()).count() as f64 / all as f64
    };
    let newest = found(3 * objects_max + objects_max / 2..4 * objects_max);
    let oldest = found(0..2 * objects_max);
    assert!(newest > 0.9 && oldest < 0.02, "{newest} and {oldest}");
}

/// No lookup misses an entry because it was moved, or because the table grew.
///
/// Method: two threads look up inserted keys while a third inserts 150 000 objects, which moves entries and grows the
/// table.
#[test]
fn lookups_during_insertions_find_every_entry() {
    let index = Index::new(IndexConfig {
        device: ByteSize::gib(2),
        objects_max: 150_000,
    });
    let inserted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (index, inserted) = (&index, &inserted);
            scope.spawn(move || {
                let mut n = thread;
                loop {
                    let below = inserted.load(Ordering::Acquire);
                    if below >= 150_000 {
                        break;
                    }
                    if below > 0 {
                        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let key = (n >> 20) % below;
                        assert_eq!(
                            index.find(KeyHash(key)),
                            Some(location(key + 1)),
                            "key {key}"
                        );
                        index.touch(KeyHash(key), location(key + 1));
                    }
                }
            });
        }
        for n in 0..150_000 {
            assert_eq!(
                index.insert(KeyHash(n), location(n + 1)),
                InsertOutcome::New,
                "keys with distinct identities"
            );
            inserted.store(n + 1, Ordering::Release);
        }
    });
    assert!(index.counts().moved > 1000, "the test needs moves");
}

/// A writer that inserts into the index while the checkpoint is written.
struct InsertingWriter<'a> {
    bytes: Vec<u8>,
    index: &'a Index,
    next: u64,
}

impl Write for InsertingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend(bytes);
        for _ in 0..400 {
            _ = self
                .index
                .insert(KeyHash(self.next), location(self.next + 1));
            self.next += 1;
        }
        // Some entries are inserted and removed again.
        self.index.purge(KeyHash(self.next - 1));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A checkpoint contains every entry that was inserted before the save, even if many entries move during the
/// save.
///
/// Method: save to a writer that inserts entries into the same index at each write, so that the table grows and
/// entries move from unsaved to saved buckets.
#[test]
fn a_checkpoint_during_insertions_contains_every_earlier_entry() {
    let before = 150_000;
    let config = IndexConfig {
        device: ByteSize::gib(2),
        objects_max: 400_000,
    };
    let index = Index::new(config);
    for n in 0..before {
        assert_eq!(
            index.insert(KeyHash(n), location(n + 1)),
            InsertOutcome::New
        );
    }
    let mut out = InsertingWriter {
        bytes: Vec::new(),
        index: &index,
        next: before,
    };
    let moved = index.counts().moved;
    index.save(3, &mut out).expect("memory can be written");
    assert!(index.counts().moved > moved && out.next > before + 4000);
    let bytes = out.bytes;
    let (loaded, epoch) = Index::load(config, &mut &bytes[..]).expect("the checkpoint is complete");
    assert_eq!(epoch, 3);
    for n in 0..before {
        assert_eq!(loaded.find(KeyHash(n)), Some(location(n + 1)), "key {n}");
    }
    // An entry that moved during the save may be in two buckets of the checkpoint. A purge removes both copies.
    for n in 0..before {
        assert_eq!(loaded.purge(KeyHash(n)), Some(location(n + 1)));
        assert_eq!(loaded.find(KeyHash(n)), None);
    }
}

/// Returns a checkpoint of an index with the first `objects` keys.
fn saved(config: IndexConfig, objects: u64) -> Vec<u8> {
    let index = Index::new(config);
    for n in 0..objects {
        _ = index.insert(KeyHash(n), location(n + 1));
    }
    let mut bytes = Vec::new();
    index.save(1, &mut bytes).expect("memory can be written");
    bytes
}

#[test]
fn a_truncated_checkpoint_is_rejected() {
    let bytes = saved(small(), 300);
    for end in 0..bytes.len() {
        let error =
            Index::load(small(), &mut &bytes[..end]).expect_err("the checkpoint is truncated");
        assert!(matches!(error, LoadError::Truncated { .. }), "{error}");
    }
}

#[test]
fn a_checkpoint_with_a_flipped_bit_is_rejected() {
    let bytes = saved(small(), 300);
    // One bit of each byte.
    for bit in (0..bytes.len() * 8).filter(|bit| bit % 8 == bit / 8 % 8) {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let outcome = Index::load(small(), &mut &flipped[..]);
        assert!(outcome.is_err(), "bit {bit} was not detected");
    }
}

#[test]
fn a_checkpoint_of_another_index_is_rejected_with_the_cause() {
    let bytes = saved(small(), 300);
    let rejection = |config: IndexConfig, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        Index::load(config, &mut &bytes[..])
            .expect_err("the checkpoint is of another index")
            .to_string()
    };
    let other_device = IndexConfig {
        device: ByteSize::mib(64),
        ..small()
    };
    let smaller = IndexConfig {
        objects_max: 100,
        ..small()
    };
    let grown = saved(small(), 1500);
    for (message, hint) in [
        (
            rejection(small(), &|bytes| bytes[0] = b'x'),
            "not an index checkpoint",
        ),
        (
            rejection(small(), &|bytes| bytes[8] = 9),
            "format version 9",
        ),
        (
            rejection(small(), &|bytes| bytes[17] ^= 1),
            "header: checksum",
        ),
        (
            rejection(small(), &|bytes| bytes[100] ^= 1),
            "buckets from 0 on: checksum",
        ),
        (rejection(other_device, &|_| {}), "device bytes"),
        (
            Index::load(smaller, &mut &grown[..])
                .expect_err("the checkpoint is too large")
                .to_string(),
            "buckets",
        ),
    ] {
        assert!(message.contains(hint), "{message}");
    }
}

/// The current code opens a checkpoint of the first format version.
///
/// Method: the fixture is a checkpoint of 300 objects from that version, `saved(small(), 300)`.
#[test]
fn a_checkpoint_of_version_1_opens() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../fixtures/disk-index-v1.bin"
    );
    let bytes = std::fs::read(path).expect("the fixture is in the repository");
    let (index, epoch) = Index::load(small(), &mut &bytes[..]).expect("the fixture has version 1");
    assert_eq!((index.len(), epoch), (300, 1));
    for n in 0..300 {
        assert_eq!(index.find(KeyHash(n)), Some(location(n + 1)));
    }
}

/// Two concurrent saves would share the list of moved entries, and each would lack the entries of the other.
#[test]
fn a_second_save_at_the_same_time_fails() {
    struct Nested<'a>(&'a Index, u32);
    impl Write for Nested<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let error = self
                .0
                .save(1, &mut Vec::new())
                .expect_err("only one save may run at a time");
            assert!(error.to_string().contains("already"));
            self.1 += 1;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let index = Index::new(small());
    let mut nested = Nested(&index, 0);
    index
        .save(1, &mut nested)
        .expect("the first save continues");
    assert!(nested.1 > 0);
    index
        .save(2, &mut Vec::new())
        .expect("the first save has ended");
}

/// The measured rate of false matches is the stated rate.
///
/// Method: make an index with the tag bits of the largest device and few bases, insert 100 000 entries, and look up
/// 400 000 absent keys.
#[test]
fn false_matches_are_as_frequent_as_stated() {
    let config = IndexConfig {
        device: ByteSize(Location::DEVICE_BYTES_MAX),
        objects_max: 1_000_000,
    };
    let geometry = Geometry {
        bases: 300,
        location_bits: Location::BITS,
    };
    let index = Index::with_geometry(config, geometry);
    for n in 0..100_000 {
        _ = index.insert(KeyHash(n), location(n + 1));
    }
    let absent = 100_000..500_000_u64;
    let looked_up = absent.clone().count() as f64;
    let false_matches = absent.filter(|&n| index.find(KeyHash(n)).is_some()).count() as f64;
    let expected = index.false_match_rate() * looked_up;
    assert!(
        (false_matches - expected).abs() < 4.0 * expected.sqrt() + 1.0,
        "{false_matches} false matches, {expected} expected"
    );
}
