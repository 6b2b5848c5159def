//! Power goes out at any moment; whatever is then on the disk, the next start serves nothing wrong.

use std::collections::BTreeMap;

use edgeward_testkit::disk::{Harm, SimulatedDisk};
use edgeward_types::{KeyHash, Seed, SplitMix64};

use crate::history::History;
use crate::workload::{Bench, DISK_BYTES, Synced, open_on, seed, settings};

/// After a crash at any boundary between two operations of the disk, whatever of the unsynced bytes is lost, torn or
/// reordered: what is served is whole, no purge that was synced is undone, and 99 in 100 objects that were synced
/// are hits again.
///
/// Method: one run of a random workload that goes round the disk more than twice and ends with a shutdown; some
/// hundreds of crashes drawn from all its boundaries, with `EDGEWARD_CRASH_SWEEP` every boundary with every harm;
/// after each the cache is opened on what is left and every key is read whole. An object counts as synced if it was
/// there at the syncs before and after the crash, and nothing was done to it in between.
#[test]
fn after_a_crash_at_any_moment_what_was_synced_is_there_and_nothing_is_wrong() {
    let seed = seed();
    let mut bench = Bench::new(DISK_BYTES, seed);
    for _ in 0..STEPS {
        bench.step();
    }
    assert!(bench.sync());
    let counters = &bench.cache.counters().devices[0];
    assert!(counters.reclaimed_segments > 10, "the log went round");
    assert!(
        counters.reinserted_objects > 0,
        "something was written again"
    );
    assert!(bench.close(), "a healthy disk takes everything");

    let boundaries = bench.disk.boundary();
    let mut draws = SplitMix64(seed.0 ^ 1);
    let mut crashes: Vec<(usize, Harm)> = if std::env::var_os("EDGEWARD_CRASH_SWEEP").is_some() {
        let all = (0..=boundaries).flat_map(|at| Harm::ALL.map(|harm| (at, harm)));
        all.collect()
    } else {
        let harm = |draws: &mut SplitMix64| Harm::ALL[draws.below(Harm::ALL.len() as u64) as usize];
        (0..CRASHES)
            .map(|_| {
                (
                    draws.below(boundaries as u64 + 1) as usize,
                    harm(&mut draws),
                )
            })
            // The shutdown's last operations are few and would seldom be drawn.
            .chain((boundaries.saturating_sub(12)..=boundaries).map(|at| (at, Harm::TearSectors)))
            .collect()
    };
    crashes.sort_by_key(|&(at, _)| at);
    eprintln!("{} crashes at {boundaries} boundaries", crashes.len());

    let mut images = bench.disk.crashes(seed);
    let (mut expected, mut hits) = (0, 0);
    for (at, harm) in crashes {
        let what = format!("seed {}, crash at {at} of {boundaries}, {harm:?}", seed.0);
        let disk = SimulatedDisk::holding(images.image(at, harm));
        let cache = match open_on(&disk, settings()) {
            Ok(cache) => cache,
            // Noise where the superblock is being written for the first time is not ours to recognise.
            Err(_) if at <= FORMAT_OPERATIONS && harm == Harm::Garble => continue,
            Err(error) => panic!("{what}: {error}"),
        };
        let synced = synced_across(&bench.syncs, at);
        for key in bench.history.keys() {
            let served = bench.history.check(&cache, key, at, &what);
            if synced.contains_key(&key) {
                expected += 1;
                hits += usize::from(served.is_some());
            }
        }
    }
    eprintln!("{hits} of {expected} synced objects were hits again");
    assert!(expected > 10_000, "the crashes found something to lose");
    assert!(
        hits * 100 >= expected * 99,
        "{hits} of {expected} synced objects were hits again"
    );
}

/// The keys that were there at the syncs on both sides of `at`, unchanged.
fn synced_across(syncs: &[Synced], at: usize) -> BTreeMap<u64, usize> {
    let after = syncs.partition_point(|synced| synced.boundary <= at);
    let Some(before) = after.checked_sub(1).map(|at| &syncs[at]) else {
        return BTreeMap::new();
    };
    let after = syncs.get(after).unwrap_or(before);
    let unchanged = |(key, changes): &(&u64, &usize)| after.present.get(key) == Some(changes);
    let both = before.present.iter().filter(unchanged);
    both.map(|(&key, &changes)| (key, changes)).collect()
}

/// Crash after crash, each on what the one before left: nothing that was purged comes back, nothing wrong is served,
/// and the cache goes on storing.
///
/// Method: thirty lives of one cache. Each begins with what is left, does a little, and ends at a boundary drawn at
/// random, or with a shutdown.
#[test]
fn a_cache_that_crashes_again_and_again_serves_nothing_wrong() {
    let seed = seed();
    let mut draws = SplitMix64(seed.0 ^ 2);
    let mut image = vec![0; DISK_BYTES];
    let mut history = History::default();
    let mut served = 0;
    for life in 0..LIVES {
        let disk = SimulatedDisk::holding(image);
        let life_seed = Seed(seed.0 ^ (life << 8));
        let mut bench = Bench::on(disk, settings(), history, life_seed);
        let what = format!("seed {}, beginning of life {life}", seed.0);
        for key in 0..bench.keys {
            let found = bench.history.check(&bench.cache, key, 0, &what);
            served += usize::from(found.is_some());
        }
        // Most are short; some go round the disk.
        let steps = if life % 5 == 4 { 600 } else { 80 };
        for _ in 0..draws.below(steps) {
            bench.step();
        }
        let harm = Harm::ALL[draws.below(Harm::ALL.len() as u64 - 1) as usize];
        let boundary = if draws.below(4) == 0 {
            assert!(bench.close());
            bench.disk.boundary()
        } else {
            draws.below(bench.disk.boundary() as u64 + 1) as usize
        };
        image = bench.disk.crashes(life_seed).image(boundary, harm);
        history = bench.history.continued_after(boundary);
    }
    assert!(served > 100, "there was something to serve: {served}");
}

/// A purge that was synced holds, although the object lies on in a segment that is read at the next start.
#[test]
fn a_synced_purge_outlives_every_crash_after_it() {
    let seed = seed();
    let mut bench = Bench::new(DISK_BYTES, seed);
    for key in 0..40 {
        assert!(bench.store(key, 3_000));
    }
    assert!(bench.sync());
    for key in 0..20 {
        let purged = bench.cache.purge_synced(KeyHash(key), b"");
        purged.expect("a healthy disk");
    }
    let purged_at = bench.disk.boundary();
    for _ in 0..60 {
        let key = 20 + bench.draws.below(100);
        bench.store(key, 30_000);
    }
    assert!(bench.sync());
    let mut images = bench.disk.crashes(seed);
    for at in purged_at..=*images.boundaries().end() {
        for harm in [
            Harm::LoseUnsynced,
            Harm::TearSectors,
            Harm::LoseWrites,
            Harm::Garble,
        ] {
            let disk = SimulatedDisk::holding(images.image(at, harm));
            let cache = open_on(&disk, settings()).expect("it opens");
            for key in 0..20 {
                assert_eq!(cache.lookup(KeyHash(key)), None, "{key} at {at}, {harm:?}");
            }
        }
    }
}

const STEPS: usize = 1200;
const CRASHES: usize = 300;
const LIVES: u64 = 30;

/// Two copies of the superblock, each written and synced.
const FORMAT_OPERATIONS: usize = 4;
