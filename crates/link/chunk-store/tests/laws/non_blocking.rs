//! Tests of non-blocking queries: after their pending reads are performed, they return the same results as blocking
//! queries. Each container on disk ends with a trailer, which lists its chunks; a lookup needs this list.
//!
//! `METHODS` are the compression methods of a store; `METHODS[0]` is no compression.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use edgeward_chunk_store::{ChunkSettings, Chunks, NonBlocking};
use edgeward_chunk_store::{ChunkStore, FingerprintedEntry};
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::{ChunkLocation, Entry};
use edgeward_store::disk::Device;
use edgeward_testkit::disk::{Fault, ObservedDisk, ReadObserver, SimulatedDisk};

use crate::{
    CONTAINER, METHODS, ReadCounter, chunk, disk, key, layout, load_chunk, noise, open, settings,
    store_chunk,
};

/// Repeats a query and performs its pending reads, until no read is pending. Returns the result of the query, and the
/// number of repetitions.
fn repeat<T>(store: &Chunks, query: impl Fn(&mut NonBlocking<'_>) -> T) -> (T, usize) {
    for times in 0..4 {
        let mut non_blocking = store.non_blocking();
        let result = query(&mut non_blocking);
        let is_pending = non_blocking.has_pending_reads();
        let pending = non_blocking.into_pending();
        assert_eq!(is_pending, !pending.is_empty());
        if !is_pending {
            return (result, times);
        }
        store.fetch(&pending);
    }
    panic!("reads are still pending after four attempts");
}

/// A lookup is pending if it needs a trailer that is not in memory. After the read, the repeated lookup returns the
/// result of a blocking lookup. Most lookups need no read, because a trailer serves all chunks of its container.
///
/// Method: fill four containers, with a cache of two trailers and a disk whose bytes are never in the page
/// cache. Look up and load every chunk, and count the pending lookups and loads.
#[test]
fn a_pending_query_succeeds_after_its_reads() {
    for method in METHODS {
        let disk = disk();
        let mut store = open(&disk, method);
        (0..60).for_each(|number| _ = store_chunk(&mut store, number));
        store.flush().expect("the disk has no faults");
        let mut store = open(&disk, method);
        disk.inject(Fault::ReadsWait);
        let (mut trailer_reads, mut pending_loads) = (0, 0);
        for number in 0..60 {
            let bytes = chunk(number);
            let id = key().id(&bytes);
            let (location, times) = repeat(&store, |store| store.locate(&id));
            trailer_reads += times;
            assert_eq!(location, store.locate(&id), "{number}");
            let Some(location) = location else { continue };
            let (inserted, _) = repeat(&store, |store| store.find_or_insert(id, &bytes));
            assert_eq!(inserted, (Some(location), true));
            let (entries, _) = repeat(&store, |store| {
                let mut entries: Vec<Entry> = Vec::new();
                store.entries(location, 1, &mut entries);
                entries
            });
            let mut found = vec![0; bytes.len()];
            // The load is pending, except if the block of the chunk is in the cache of decompressed blocks.
            let mut non_blocking = store.non_blocking();
            let loaded = non_blocking.load(location, &entries, &mut found);
            assert_ne!(loaded, non_blocking.has_pending_reads());
            pending_loads += usize::from(!loaded);
            store.fetch(&non_blocking.into_pending());
            disk.heal();
            let mut non_blocking = store.non_blocking();
            assert!(
                non_blocking.load(location, &entries, &mut found)
                    && !non_blocking.has_pending_reads()
            );
            assert!(found == bytes, "{number}");
            disk.inject(Fault::ReadsWait);
            assert_eq!(load_chunk(&mut store, number), Some(Ok(location)));
        }
        assert!(
            (1..=10).contains(&trailer_reads),
            "{trailer_reads} trailers were read"
        );
        assert!(pending_loads > 5, "{pending_loads} loads were pending");
    }
}

/// A chunk is stored only after all reads have shown that the store does not have it, and then it is stored once.
#[test]
fn a_chunk_is_not_stored_while_its_lookup_is_pending() {
    let disk = disk();
    let mut store = open(&disk, METHODS[0]);
    (0..20).for_each(|number| _ = store_chunk(&mut store, number));
    store.flush().expect("the disk has no faults");
    let store = open(&disk, METHODS[0]);
    disk.inject(Fault::ReadsWait);
    let before = store.counters().raw_bytes;
    let (bytes, other) = (chunk(0), chunk(100));
    let mut non_blocking = store.non_blocking();
    assert_eq!(
        non_blocking.find_or_insert(key().id(&bytes), &bytes),
        (None, false)
    );
    assert!(non_blocking.has_pending_reads());
    // A repeated query is pending again, because no read was performed.
    assert_eq!(
        non_blocking.find_or_insert(key().id(&bytes), &bytes),
        (None, false)
    );
    let entry = Entry {
        id: key().id(&bytes),
        length: bytes.len() as u32,
    };
    // `find_or_list` stores an entry without bytes only after the lookup has shown that the chunk is not stored.
    assert_eq!(non_blocking.find_or_list(entry), (None, false));
    // The pending reads of one query do not affect the next query, whose chunk is stored.
    let (location, found) = non_blocking.find_or_insert(key().id(&other), &other);
    assert!(location.is_some() && !found);
    let added_bytes = store.counters().raw_bytes - before;
    assert_eq!(added_bytes, other.len() as u64);
    assert!(
        store
            .non_blocking()
            .insert(key().id(&bytes), &bytes)
            .is_some()
    );
    assert_eq!(
        store.counters().raw_bytes - before,
        added_bytes,
        "insert waits for the reads, unlike the queries, and finds the chunk"
    );
    let mut entries: Vec<FingerprintedEntry> = Vec::new();
    let location = ChunkLocation {
        container: 0,
        slot: 0,
    };
    store
        .non_blocking()
        .entries_with_fingerprints(location, 100, &mut entries);
    assert!(!entries.is_empty());
}

/// Runs an action once after the next blocking read. This simulates a slow read with a concurrent change.
#[derive(Default)]
struct ActionAfterRead(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl std::fmt::Debug for ActionAfterRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ActionAfterRead")
    }
}

impl ReadObserver for ActionAfterRead {
    fn after_read(&self) {
        let action = self.0.lock().expect("no thread panics").take();
        action.into_iter().for_each(|action| action());
    }
}

/// If a container is overwritten while its trailer is read, the old trailer is not cached, and queries use the new
/// trailer.
#[test]
fn a_trailer_of_an_overwritten_container_is_not_used() {
    let disk = disk();
    let mut store = open(&disk, METHODS[0]);
    (0..20).for_each(|number| _ = store_chunk(&mut store, number));
    store.flush().expect("the disk has no faults");
    let device = ObservedDisk::new(Arc::clone(&disk) as _, ActionAfterRead::default());
    let store = Chunks::open(Arc::clone(&device) as Arc<dyn Device>, settings(METHODS[0]));
    let mut store = store.expect("the store opens");
    disk.inject(Fault::ReadsWait);
    let mut non_blocking = store.non_blocking();
    assert_eq!(non_blocking.locate(&key().id(&chunk(0))), None);
    let pending = non_blocking.into_pending();
    assert!(!pending.is_empty());
    // During the read of the trailer, another clone of the store overwrites all four containers.
    let mut other = store.clone();
    *device.observer().0.lock().expect("no thread panics") = Some(Box::new(move || {
        (100..220).for_each(|number| _ = store_chunk(&mut other, number));
    }));
    store.fetch(&pending);
    disk.heal();
    assert_eq!(load_chunk(&mut store, 0), None);
    let found = (100..220).filter(|number| matches!(load_chunk(&mut store, *number), Some(Ok(_))));
    assert!(found.count() > 40);
    let first = (100..220).find(|number| load_chunk(&mut store, *number).is_some());
    let rest = first.expect("some chunks are found")..220;
    let lost = rest.filter(|number| !matches!(load_chunk(&mut store, *number), Some(Ok(_))));
    assert_eq!(
        lost.count(),
        0,
        "a chunk is lost although an older chunk is stored"
    );
}

/// The store predicts two kinds of trailers. The first kind are the trailers of the containers that are overwritten
/// next. The second kind: if chunks were found in two consecutive containers, the trailer of the next container.
/// With read-ahead, at most three reads of trailers block queries in a whole run; without it, more than ten.
///
/// Method: count the blocking reads of a device. Perform the predicted reads between queries, like a link does
/// between frames. Compare the count with a run without read-ahead. `fetches` is true for the run with read-ahead.
/// `steps` runs the queries on a store, and calls its second parameter once for each query.
#[test]
fn read_ahead_avoids_most_blocking_reads_of_trailers() {
    let blocking_reads = |fetches: bool,
                          containers: usize,
                          steps: &dyn Fn(&mut Chunks, &dyn Fn())| {
        let disk = SimulatedDisk::new(4096 + containers * (CONTAINER + layout().trailer_bytes()));
        let mut store = open(&disk, METHODS[0]);
        (0..20 * containers).for_each(|number| _ = store.insert(id(number), &body(number)));
        store.flush().expect("the disk has no faults");
        let device = ObservedDisk::new(Arc::clone(&disk) as _, ReadCounter::default());
        let store = Chunks::open(
            Arc::clone(&device) as Arc<dyn Device>,
            ChunkSettings {
                trailers_max: 100,
                ..settings(METHODS[0])
            },
        );
        let mut store = store.expect("the store opens");
        disk.inject(Fault::ReadsWait);
        let reads = &device.observer().0;
        reads.store(0, Ordering::Relaxed);
        let other = store.clone();
        steps(&mut store, &|| {
            let before = reads.load(Ordering::Relaxed);
            if fetches && let Some(pending) = other.read_ahead() {
                other.fetch(&pending);
            }
            // `fetch` reads without the lock of the store, so its reads delay no query and do not count.
            reads.store(before, Ordering::Relaxed);
        });
        reads.load(Ordering::Relaxed)
    };
    let overwrite = |store: &mut Chunks, perform_reads: &dyn Fn()| {
        for number in 1000..1300 {
            assert!(store.insert(id(number), &body(number)).is_some());
            perform_reads();
        }
    };
    let find = |store: &mut Chunks, perform_reads: &dyn Fn()| {
        let found = (0..400).filter(|number| {
            perform_reads();
            store.locate(&id(*number)).is_some()
        });
        assert!(found.count() > 250, "most chunks are still stored");
    };
    assert!(blocking_reads(false, 20, &overwrite) > 10);
    assert!(blocking_reads(true, 20, &overwrite) <= 2);
    assert!(blocking_reads(false, 20, &find) > 10);
    assert!(blocking_reads(true, 20, &find) <= 3);
}

fn body(number: usize) -> Vec<u8> {
    noise(number, 4096)
}

fn id(number: usize) -> ChunkId {
    key().id(&body(number))
}
