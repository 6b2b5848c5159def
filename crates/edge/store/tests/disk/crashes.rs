//! Tests of crashes at any moment: the next start serves no wrong byte, whatever the disk contains.

use std::collections::BTreeMap;

use edgeward_testkit::disk::{Harm, SimulatedDisk};
use edgeward_types::{KeyHash, Seed, SplitMix64};

use crate::history::History;
use crate::workload::{DISK_BYTES, SyncPoint, TestCache, open_on, seed, settings};

/// After a crash at any boundary between two operations of the disk, unsynced bytes may be lost, torn or
/// reordered. Every object that is served is complete, no synced purge is undone, and 99 of 100 synced objects
/// are hits again.
///
/// Method: run a random workload that fills the log more than once and ends with a shutdown. Simulate some hundreds
/// of crashes at random boundaries of this run. With `EDGEWARD_CRASH_SWEEP` every boundary is tested with every
/// kind of damage. After each crash the cache is opened on the remaining bytes and every key is read
/// completely. An object counts as synced if it was stored at the last sync before the crash and at the next sync of
/// the run, and was not changed in between.
#[test]
fn synced_objects_survive_a_crash_and_no_wrong_byte_is_served() {
    let seed = seed();
    let mut test = TestCache::new(DISK_BYTES, seed);
    for _ in 0..STEPS {
        test.step();
    }
    assert!(test.sync());
    let counters = &test.cache.counters().devices[0];
    assert!(
        counters.reclaimed_segments > 10,
        "the log was filled more than once"
    );
    assert!(counters.reinserted_objects > 0, "an object was reinserted");
    assert!(test.close(), "a healthy disk accepts all writes");

    let boundaries = test.disk.boundary();
    let mut random = SplitMix64(seed.0 ^ 1);
    let mut crashes: Vec<(usize, Harm)> = if std::env::var_os("EDGEWARD_CRASH_SWEEP").is_some() {
        let all = (0..=boundaries).flat_map(|at| Harm::ALL.map(|harm| (at, harm)));
        all.collect()
    } else {
        let harm =
            |random: &mut SplitMix64| Harm::ALL[random.below(Harm::ALL.len() as u64) as usize];
        (0..CRASHES)
            .map(|_| {
                (
                    random.below(boundaries as u64 + 1) as usize,
                    harm(&mut random),
                )
            })
            // The shutdown has few operations, so random boundaries would rarely hit them. They are added here.
            .chain((boundaries.saturating_sub(12)..=boundaries).map(|at| (at, Harm::TearSectors)))
            .collect()
    };
    crashes.sort_by_key(|&(at, _)| at);
    eprintln!("{} crashes at {boundaries} boundaries", crashes.len());

    let mut images = test.disk.crashes(seed);
    let (mut expected, mut hits) = (0, 0);
    for (at, harm) in crashes {
        let context = format!("seed {}, crash at {at} of {boundaries}, {harm:?}", seed.0);
        let disk = SimulatedDisk::with_content(images.image(at, harm));
        let cache = match open_on(&disk, settings()) {
            Ok(cache) => cache,
            // A crash during formatting may corrupt the superblock. The disk is then not recognised as a store.
            Err(_) if at <= FORMAT_OPERATIONS && harm == Harm::AddNoise => continue,
            Err(error) => panic!("{context}: {error}"),
        };
        let synced = synced_across(&test.syncs, at);
        for key in test.history.keys() {
            let served = test.history.check(&cache, key, at, &context);
            if synced.contains_key(&key) {
                expected += 1;
                hits += usize::from(served.is_some());
            }
        }
    }
    eprintln!("{hits} of {expected} synced objects were hits again");
    assert!(
        expected > 10_000,
        "more than 10,000 synced objects were checked"
    );
    assert!(
        hits * 100 >= expected * 99,
        "{hits} of {expected} synced objects were hits again"
    );
}

/// Returns the keys that were stored unchanged from the last sync before boundary `at` to the next one. The values
/// are their numbers of changes.
fn synced_across(syncs: &[SyncPoint], at: usize) -> BTreeMap<u64, usize> {
    let after = syncs.partition_point(|synced| synced.boundary <= at);
    let Some(before) = after.checked_sub(1).map(|at| &syncs[at]) else {
        return BTreeMap::new();
    };
    let after = syncs.get(after).unwrap_or(before);
    let unchanged = |(key, changes): &(&u64, &usize)| after.present.get(key) == Some(changes);
    let both = before.present.iter().filter(unchanged);
    both.map(|(&key, &changes)| (key, changes)).collect()
}

/// After repeated crashes no purged object is served again, no wrong byte is served, and the cache still stores
/// objects.
///
/// Method: open one cache thirty times. Each time (a *life*) begins with the bytes that the previous life left
/// on the disk, makes some operations, and ends with a crash at a random boundary or with a shutdown.
#[test]
fn a_cache_that_crashes_repeatedly_serves_no_wrong_byte() {
    let seed = seed();
    let mut random = SplitMix64(seed.0 ^ 2);
    let mut image = vec![0; DISK_BYTES];
    let mut history = History::default();
    let mut served = 0;
    for life in 0..LIVES {
        let disk = SimulatedDisk::with_content(image);
        let life_seed = Seed(seed.0 ^ (life << 8));
        let mut test = TestCache::with_disk(disk, settings(), history, life_seed);
        let context = format!("seed {}, beginning of life {life}", seed.0);
        for key in 0..test.keys {
            let found = test.history.check(&test.cache, key, 0, &context);
            served += usize::from(found.is_some());
        }
        // Most lives are short; every fifth may fill the log once.
        let steps = if life % 5 == 4 { 600 } else { 80 };
        for _ in 0..random.below(steps) {
            test.step();
        }
        // The last kind, `AddNoise`, is excluded, because it could corrupt the superblock of a new store.
        let harm = Harm::ALL[random.below(Harm::ALL.len() as u64 - 1) as usize];
        let boundary = if random.below(4) == 0 {
            assert!(test.close());
            test.disk.boundary()
        } else {
            random.below(test.disk.boundary() as u64 + 1) as usize
        };
        image = test.disk.crashes(life_seed).image(boundary, harm);
        history = test.history.continued_after(boundary);
    }
    assert!(served > 100, "objects were served: {served}");
}

/// A synced purge is in force after every crash, although the object's record is still in a segment that is
/// read at the next start.
#[test]
fn a_synced_purge_survives_every_later_crash() {
    let seed = seed();
    let mut test = TestCache::new(DISK_BYTES, seed);
    for key in 0..40 {
        assert!(test.store(key, 3_000));
    }
    assert!(test.sync());
    for key in 0..20 {
        let purged = test.cache.purge_synced(KeyHash(key), b"");
        purged.expect("a healthy disk accepts the purge");
    }
    let purged_at = test.disk.boundary();
    for _ in 0..60 {
        let key = 20 + test.random.below(100);
        test.store(key, 30_000);
    }
    assert!(test.sync());
    let mut images = test.disk.crashes(seed);
    for at in purged_at..=*images.boundaries().end() {
        for harm in [
            Harm::LoseUnsynced,
            Harm::TearSectors,
            Harm::LoseWrites,
            Harm::AddNoise,
        ] {
            let disk = SimulatedDisk::with_content(images.image(at, harm));
            let cache = open_on(&disk, settings()).expect("the cache opens");
            for key in 0..20 {
                assert_eq!(cache.lookup(KeyHash(key)), None, "{key} at {at}, {harm:?}");
            }
        }
    }
}

const STEPS: usize = 1200;
const CRASHES: usize = 300;
const LIVES: u64 = 30;

/// The number of operations of formatting: two copies of the superblock, each written and synced.
const FORMAT_OPERATIONS: usize = 4;
