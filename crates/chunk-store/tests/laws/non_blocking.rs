//! Tests of non-blocking queries: after their pending reads are performed, they return the same results as blocking
//! queries.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use edgeward_chunk_store::{ChunkSettings, Chunks, NonBlocking};
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::{ChunkLocation, ChunkStore, Entry, FingerprintedEntry};
use edgeward_store::disk::Device;
use edgeward_testkit::disk::{Fault, SimulatedDisk};

use crate::{
    CONTAINER, METHODS, chunk, disk, key, layout, load_chunk, noise, open, settings, store_chunk,
};

/// Repeats a query and performs its pending reads, until no read is pending. Returns the result of the query, and the
/// number of repetitions.
fn repeat<T>(store: &Chunks, query: impl Fn(&mut NonBlocking<'_>) -> T) -> (T, usize) {
    for times in 0..4 {
        let mut non_blocking = store.non_blocking();
        let answer = query(&mut non_blocking);
        let is_pending = non_blocking.has_pending_reads();
        let pending = non_blocking.into_pending();
        assert_eq!(is_pending, !pending.is_empty());
        if !is_pending {
            return (answer, times);
        }
        store.fetch(&pending);
    }
    panic!("reads are still pending after four attempts");
}

/// A query is pending once for each trailer that is not in memory. After the read it returns the result of a
/// blocking query.
///
/// Method: fill four containers, with a cache of two trailers and a disk whose bytes are never in the page
/// cache. Look up and load every chunk, and count the pending queries.
#[test]
fn a_pending_query_succeeds_after_its_reads() {
    for method in METHODS {
        let disk = disk();
        let mut store = open(&disk, method);
        (0..60).for_each(|number| _ = store_chunk(&mut store, number));
        store.flush().expect("the disk has no faults");
        let mut store = open(&disk, method);
        disk.inject(Fault::ReadsWait);
        let (mut fetched, mut pending_loads) = (0, 0);
        for number in 0..60 {
            let bytes = chunk(number);
            let id = key().id(&bytes);
            let (place, times) = repeat(&store, |store| store.locate(&id));
            fetched += times;
            assert_eq!(place, store.locate(&id), "{number}");
            let Some(place) = place else { continue };
            let (kept, _) = repeat(&store, |store| store.find_or_insert(id, &bytes));
            assert_eq!(kept, (Some(place), true));
            let (entries, _) = repeat(&store, |store| {
                let mut entries: Vec<Entry> = Vec::new();
                store.entries(place, 1, &mut entries);
                entries
            });
            let mut found = vec![0; bytes.len()];
            // The load is pending, except if the block of the chunk is in the cache of decompressed blocks.
            let mut non_blocking = store.non_blocking();
            let loaded = non_blocking.load(place, &entries, &mut found);
            assert_ne!(loaded, non_blocking.has_pending_reads());
            pending_loads += usize::from(!loaded);
            store.fetch(&non_blocking.into_pending());
            disk.heal();
            let mut non_blocking = store.non_blocking();
            assert!(
                non_blocking.load(place, &entries, &mut found) && !non_blocking.has_pending_reads()
            );
            assert!(found == bytes, "{number}");
            disk.inject(Fault::ReadsWait);
            assert_eq!(load_chunk(&mut store, number), Some(Ok(place)));
        }
        assert!((1..=10).contains(&fetched), "{fetched} trailers fetched");
        assert!(pending_loads > 5, "{pending_loads} loads waited");
    }
}

/// A chunk is stored only after all reads have shown that the store does not have it, and then it is stored once.
#[test]
fn a_chunk_that_may_be_stored_is_not_stored_again() {
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
    assert_eq!(non_blocking.find_or_list(entry), (None, false));
    // The pending reads of one query do not affect the next query, whose chunk is stored.
    let (place, found) = non_blocking.find_or_insert(key().id(&other), &other);
    assert!(place.is_some() && !found);
    let kept = store.counters().raw_bytes - before;
    assert_eq!(kept, other.len() as u64);
    assert!(
        store
            .non_blocking()
            .insert(key().id(&bytes), &bytes)
            .is_some()
    );
    assert_eq!(store.counters().raw_bytes - before, kept, "it blocks");
    let mut familiar: Vec<FingerprintedEntry> = Vec::new();
    let place = ChunkLocation {
        container: 0,
        slot: 0,
    };
    store
        .non_blocking()
        .entries_with_fingerprints(place, 100, &mut familiar);
    assert!(!familiar.is_empty());
}

/// A disk that runs an action during a read. This simulates a slow read with a concurrent change.
struct Slow {
    disk: Arc<SimulatedDisk>,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.disk.fmt(f)
    }
}

impl Device for Slow {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)?;
        let meanwhile = self.meanwhile.lock().expect("no thread panics").take();
        meanwhile.into_iter().for_each(|happen| happen());
        Ok(())
    }

    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.read_now_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn name(&self) -> String {
        self.disk.name()
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
    let device = Arc::new(Slow {
        disk: Arc::clone(&disk),
        meanwhile: Mutex::new(None),
    });
    let store = Chunks::open(Arc::clone(&device) as Arc<dyn Device>, settings(METHODS[0]));
    let mut store = store.expect("the store opens");
    disk.inject(Fault::ReadsWait);
    let mut non_blocking = store.non_blocking();
    assert_eq!(non_blocking.locate(&key().id(&chunk(0))), None);
    let pending = non_blocking.into_pending();
    assert!(!pending.is_empty());
    // During the read of the trailer, another clone overwrites all four containers.
    let mut other = store.clone();
    *device.meanwhile.lock().expect("no thread panics") = Some(Box::new(move || {
        (100..220).for_each(|number| _ = store_chunk(&mut other, number));
    }));
    store.fetch(&pending);
    disk.heal();
    assert_eq!(load_chunk(&mut store, 0), None);
    let there = (100..220).filter(|number| matches!(load_chunk(&mut store, *number), Some(Ok(_))));
    assert!(there.count() > 40);
    let first = (100..220).find(|number| load_chunk(&mut store, *number).is_some());
    let rest = first.expect("some are there")..220;
    let lost = rest.filter(|number| !matches!(load_chunk(&mut store, *number), Some(Ok(_))));
    assert_eq!(lost.count(), 0, "newer ones are there if older ones are");
}

/// With read-ahead, no query blocks on the trailer of a container that is overwritten next, or on the third and later
/// trailers of a body in consecutive containers.
///
/// Method: count the blocking reads of a device. Perform the announced reads after each chunk, like a link does
/// after each frame. Compare the count with a run without read-ahead.
#[test]
fn read_ahead_trailers_block_no_query() {
    let waited = |fetches: bool, containers: usize, steps: &dyn Fn(&mut Chunks, &dyn Fn())| {
        let disk = SimulatedDisk::new(4096 + containers * (CONTAINER + layout().trailer_bytes()));
        let mut store = open(&disk, METHODS[0]);
        (0..20 * containers).for_each(|number| _ = store.insert(id(number), &body(number)));
        store.flush().expect("the disk has no faults");
        let device = Arc::new(BlockingReads {
            disk: Arc::clone(&disk),
            count: AtomicU64::new(0),
        });
        let store = Chunks::open(
            Arc::clone(&device) as Arc<dyn Device>,
            ChunkSettings {
                trailers_max: 100,
                ..settings(METHODS[0])
            },
        );
        let mut store = store.expect("the store opens");
        disk.inject(Fault::ReadsWait);
        device.count.store(0, Ordering::Relaxed);
        let (other, counted) = (store.clone(), Arc::clone(&device));
        steps(&mut store, &|| {
            let before = counted.count.load(Ordering::Relaxed);
            if fetches && let Some(pending) = other.read_ahead() {
                other.fetch(&pending);
            }
            // Reads of `fetch` do not hold the lock, so they do not count.
            counted.count.store(before, Ordering::Relaxed);
        });
        device.count.load(Ordering::Relaxed)
    };
    let overwrite = |store: &mut Chunks, after: &dyn Fn()| {
        for number in 1000..1300 {
            assert!(store.insert(id(number), &body(number)).is_some());
            after();
        }
    };
    let find = |store: &mut Chunks, after: &dyn Fn()| {
        let found = (0..400).filter(|number| {
            after();
            store.locate(&id(*number)).is_some()
        });
        assert!(found.count() > 250, "most are still there");
    };
    assert!(waited(false, 20, &overwrite) > 10);
    assert!(waited(true, 20, &overwrite) <= 2);
    assert!(waited(false, 20, &find) > 10);
    assert!(waited(true, 20, &find) <= 3);
}

fn body(number: usize) -> Vec<u8> {
    noise(number, 4096)
}

fn id(number: usize) -> ChunkId {
    key().id(&body(number))
}

/// Counts blocking reads.
#[derive(Debug)]
struct BlockingReads {
    disk: Arc<SimulatedDisk>,
    count: AtomicU64,
}

impl Device for BlockingReads {
    fn len(&self) -> u64 {
        self.disk.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.disk.read_at(buffer, offset)
    }

    fn read_now_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.read_now_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn name(&self) -> String {
        self.disk.name()
    }
}
