//! Tests of requests that need the device: they are not answered from memory, and a thread of the store answers them as
//! a blocking query would. Each container on disk ends with a trailer, which lists its chunks; a lookup needs this
//! list.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

use edgeward_chunk_store::{ChunkSettings, Chunks, STORED_BYTES_MAX, WouldBlock};
use edgeward_dedup::buffer::Pool;
use edgeward_dedup::store::{Answer, ChunkLocation, Entry, LocatedChunk, Request};
use edgeward_store::disk::Device;
use edgeward_testkit::Gate as WriteGate;
use edgeward_testkit::disk::{Fault, ObservedDisk, ReadObserver, SimulatedDisk};

use crate::{
    CONTAINER, CONTAINERS, METHODS, chunk, disk, is_stored, key, layout, load_chunk, noise, open,
    settings, store_chunk,
};

/// Lets a thread of the store perform a request.
fn submit(store: &Chunks, request: Request) -> Receiver<Option<Answer>> {
    let (sender, answer) = channel();
    store.submit(request, &key(), &Pool::default(), move |answer| {
        _ = sender.send(answer.expect("no thread panics"));
    });
    answer
}

/// Returns the answer to a request, and true if it needed the device.
fn answer(store: &Chunks, request: &Request) -> (Option<Answer>, bool) {
    match store.try_answer(request, &key(), &Pool::default()) {
        Ok(answer) => (answer, false),
        Err(WouldBlock) => {
            let answer = submit(store, request.clone()).recv();
            (answer.expect("each request is answered"), true)
        }
    }
}

/// A request that needs the device gets the same answer as one that does not. Most requests need no read, because a
/// trailer serves all chunks of its container.
///
/// Method: fill four containers, with a cache of two trailers and a disk whose bytes are never in the page cache.
/// Look up, load and store every chunk, and count the requests that needed the device.
#[test]
fn a_thread_answers_a_request_that_needs_the_device() {
    for method in METHODS {
        let disk = disk();
        let mut store = open(&disk, method);
        (0..60).for_each(|number| _ = store_chunk(&mut store, number));
        store.flush().expect("the disk has no faults");
        let store = open(&disk, method);
        disk.inject(Fault::ReadsWait);
        let before = store.counters().raw_bytes;
        let (mut waiting_lookups, mut waiting_loads) = (0, 0);
        for number in 0..60 {
            let bytes = chunk(number);
            let id = key().id(&bytes);
            let (located, waited) = answer(&store, &Request::Lookup(vec![id]));
            waiting_lookups += usize::from(waited);
            let Some(location) = store.locate(&id) else {
                assert_eq!(located, Some(Answer::Located(Vec::new())));
                continue;
            };
            let length = bytes.len() as u32;
            let located_chunk = LocatedChunk {
                location,
                entry: Entry { id, length },
            };
            assert_eq!(located, Some(Answer::Located(vec![located_chunk])));
            let (loaded, waited) = answer(&store, &Request::Load(vec![located_chunk]));
            waiting_loads += usize::from(waited);
            assert_eq!(
                loaded,
                Some(Answer::Loaded(Some(bytes.clone().into()))),
                "{number}"
            );
            let chunk = Bytes::from(bytes);
            let (stored, _) = answer(&store, &Request::Store { id, chunk });
            assert_eq!(stored, Some(Answer::Stored(Some(location))));
        }
        assert_eq!(
            store.counters().raw_bytes,
            before,
            "no chunk is stored twice"
        );
        assert!(
            (1..=10).contains(&waiting_lookups),
            "{waiting_lookups} lookups waited"
        );
        assert!(waiting_loads > 5, "{waiting_loads} loads waited");
    }
}

/// If trailers are needed in the order of their containers, about half of them are in memory when they are needed.
///
/// Method: fill a store of twenty containers, and open it again with a disk whose bytes are never in the page cache.
/// Look up its chunks in their order; then store as many new chunks, which overwrite the containers in their order.
#[test]
fn the_next_trailer_is_read_ahead() {
    const CONTAINERS: usize = 20;
    let disk = SimulatedDisk::new(4096 + CONTAINERS * (CONTAINER + layout().trailer_bytes()));
    let bytes = |number: usize| Bytes::from(noise(number, 4096));
    let store = open(&disk, METHODS[0]);
    for number in 0..16 * CONTAINERS {
        let chunk = bytes(number);
        assert!(store.insert(key().id(&chunk), &chunk).is_some());
    }
    store.flush().expect("the disk has no faults");
    let settings = ChunkSettings {
        trailers_max: 100,
        ..settings(METHODS[0])
    };
    let count = |request: &dyn Fn(Bytes) -> Request, numbers: std::ops::Range<usize>| {
        let store = Chunks::open(Arc::clone(&disk) as Arc<dyn Device>, settings.clone());
        let store = store.expect("the store opens");
        disk.inject(Fault::ReadsWait);
        let waited = numbers.filter(|&number| answer(&store, &request(bytes(number))).1);
        let waited = waited.count();
        disk.heal();
        waited
    };
    let id = |chunk: &Bytes| key().id(chunk);
    let lookups = count(
        &|chunk| Request::Lookup(vec![id(&chunk)]),
        0..16 * CONTAINERS,
    );
    assert!((5..=12).contains(&lookups), "{lookups} lookups waited");
    let store = |chunk: Bytes| {
        let id = id(&chunk);
        Request::Store { id, chunk }
    };
    let stores = count(&store, 1000..1000 + 16 * CONTAINERS);
    assert!((5..=12).contains(&stores), "{stores} stores waited");
}

/// If the bytes of a listed chunk cannot be stored without a read, the chunk stays listed.
///
/// Method: a disk whose bytes are never in the page cache. List a chunk and store its bytes, again and again. In some
/// cases a container must be written first, and the trailer of the container that it overwrites is not in memory.
#[test]
fn a_listed_chunk_is_not_lost_while_its_bytes_wait() {
    let disk = disk();
    let store = open(&disk, METHODS[0]);
    disk.inject(Fault::ReadsWait);
    let mut waited = 0;
    for number in 0..200 {
        let bytes = Bytes::from(chunk(number));
        let (id, length) = (key().id(&bytes), bytes.len() as u32);
        let (listed, _) = store.find_or_list(Entry { id, length });
        let request = Request::Store { id, chunk: bytes };
        if store.try_answer(&request, &key(), &Pool::default()) == Err(WouldBlock) {
            assert_eq!(store.locate(&id), listed, "chunk {number}");
            waited += 1;
        }
        let (stored, _) = answer(&store, &request);
        let Some(Answer::Stored(Some(location))) = stored else {
            panic!("chunk {number}: {stored:?}");
        };
        assert!(is_stored(&store, location), "chunk {number}");
    }
    assert!(waited > 5, "{waited} chunks waited");
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

/// Lets no read end while a test holds the lock.
#[derive(Debug, Default)]
struct Gate(Mutex<()>);

impl ReadObserver for Gate {
    fn after_read(&self) {
        drop(self.0.lock());
    }
}

fn observed<O: ReadObserver + Default + std::fmt::Debug + 'static>(
    disk: &Arc<SimulatedDisk>,
) -> (Arc<ObservedDisk<O>>, Chunks) {
    let device = ObservedDisk::new(Arc::clone(disk) as _, O::default());
    let store = Chunks::open(Arc::clone(&device) as Arc<dyn Device>, settings(METHODS[0]));
    (device, store.expect("the store opens"))
}

/// If a container is overwritten while its trailer is read, the old trailer is not cached, and queries use the new
/// trailer.
#[test]
fn a_trailer_of_an_overwritten_container_is_not_used() {
    let disk = disk();
    let mut store = open(&disk, METHODS[0]);
    (0..20).for_each(|number| _ = store_chunk(&mut store, number));
    store.flush().expect("the disk has no faults");
    let (device, mut store) = observed::<ActionAfterRead>(&disk);
    disk.inject(Fault::ReadsWait);
    // During the read of the trailer, another clone of the store overwrites all four containers.
    let mut other = store.clone();
    *device.observer().0.lock().expect("no thread panics") = Some(Box::new(move || {
        (100..220).for_each(|number| _ = store_chunk(&mut other, number));
    }));
    let lookup = Request::Lookup(vec![key().id(&chunk(0))]);
    assert_eq!(
        answer(&store, &lookup),
        (Some(Answer::Located(Vec::new())), true)
    );
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

/// While the disk does not answer, the chunks that wait to be stored take a bounded memory: further ones are answered
/// at once, without being stored. All others are stored when the disk answers again. Short chunks take memory beside
/// their bytes.
#[test]
fn the_chunks_that_wait_to_be_stored_are_bounded() {
    for length in [60_000, 8] {
        chunks_of_a_length_are_bounded(length);
    }
}

fn chunks_of_a_length_are_bounded(length: usize) {
    let disk = disk();
    let mut store = open(&disk, METHODS[0]);
    (0..90).for_each(|number| _ = store_chunk(&mut store, number));
    store.flush().expect("the disk has no faults");
    let (device, store) = observed::<Gate>(&disk);
    disk.inject(Fault::ReadsWait);
    // Each thread waits in the read of the trailer of the container that it would overwrite.
    let gate = device.observer().0.lock().expect("no thread panics");
    let chunk = Bytes::from(noise(7, length));
    let request = |number: u64| Request::Store {
        // The bytes need not match their hash here.
        id: key().id(&number.to_le_bytes()),
        chunk: chunk.clone(),
    };
    let submitted = 2 * STORED_BYTES_MAX / (chunk.len() + 500);
    let answers: Vec<_> = (0..submitted as u64)
        .map(|number| submit(&store, request(number)))
        .collect();
    let skipped = store.counters().skipped;
    drop(gate);
    let stored = answers.iter().map(|answer| answer.recv());
    let stored = stored.map(|answer| answer.expect("each request is answered"));
    let without = stored.filter(|answer| *answer == Some(Answer::Stored(None)));
    assert_eq!(without.count() as u64, skipped);
    assert!(skipped > 0 && skipped < submitted as u64, "{skipped}");
}

/// While a write takes long, and more chunks wait to be stored than the store has threads, chunks are loaded.
///
/// Method: hold the write of a container on a disk whose bytes are never in the page cache. The chunks of the next
/// container are stored, and all further ones wait.
#[test]
fn a_slow_write_delays_no_read() {
    let disk = disk();
    let mut store = open(&disk, METHODS[0]);
    let location = store_chunk(&mut store, 0);
    store.flush().expect("the disk has no faults");
    let loaded = Bytes::from(chunk(0));
    let (id, length) = (key().id(&loaded), loaded.len() as u32);
    let entry = Entry { id, length };
    let gate = WriteGate::new();
    disk.inject(Fault::ReadsWait);
    disk.inject(Fault::WritesWait(gate.clone()));
    let (answered, answers) = channel();
    for number in 100..400 {
        let chunk = Bytes::from(noise(number, 4096));
        let id = key().id(&chunk);
        let request = if number % 2 == 0 {
            Request::Store { id, chunk }
        } else {
            Request::Find {
                entry: Entry { id, length: 4096 },
                chunk: Some(chunk),
                expected: None,
            }
        };
        let answered = answered.clone();
        store.submit(request, &key(), &Pool::default(), move |_| {
            _ = answered.send(());
        });
    }
    // Two containers of 16 chunks, without the chunk whose request writes the first container.
    let stored_without_wait = 2 * 16 - 1;
    for _ in 0..stored_without_wait {
        answers.recv().expect("the requests are answered");
    }
    for _ in 0..50 {
        let load = Request::Load(vec![LocatedChunk { location, entry }]);
        let answer = submit(&store, load).recv_timeout(Duration::from_secs(30));
        assert_eq!(answer, Ok(Some(Answer::Loaded(Some(loaded.clone())))));
    }
    gate.open();
    for _ in stored_without_wait..300 {
        answers.recv().expect("the requests are answered");
    }
}

/// A chunk that waits to be stored does not keep the whole buffer that contains it.
#[test]
fn a_chunk_that_waits_keeps_only_its_own_bytes() {
    struct Buffer(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Buffer {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let disk = disk();
    let mut store = open(&disk, METHODS[0]);
    (0..90).for_each(|number| _ = store_chunk(&mut store, number));
    store.flush().expect("the disk has no faults");
    let (device, store) = observed::<Gate>(&disk);
    disk.inject(Fault::ReadsWait);
    let gate = device.observer().0.lock().expect("no thread panics");
    let kept = Arc::new(noise(7, 60_000));
    let buffer = Bytes::from_owner(Buffer(Arc::clone(&kept)));
    let requests = (0..64).map(|number| Request::Store {
        id: key().id(&[number]),
        chunk: buffer.slice(usize::from(number)..usize::from(number) + 600),
    });
    let answers: Vec<_> = requests.map(|request| submit(&store, request)).collect();
    drop(buffer);
    assert_eq!(Arc::strong_count(&kept), 1, "a job keeps the buffer");
    drop(gate);
    for answer in answers {
        answer.recv().expect("each request is answered");
    }
}

/// A request for the container that the open one overwrites ends, although the device still has its trailer.
#[test]
fn a_request_for_the_container_that_is_overwritten_ends() {
    let disk = disk();
    let mut store = open(&disk, METHODS[0]);
    (0..90).for_each(|number| _ = store_chunk(&mut store, number));
    disk.inject(Fault::ReadsWait);
    let container = store.open_container_number() - CONTAINERS as u32;
    let listed = Request::List(ChunkLocation { container, slot: 0 });
    let (listed, _) = answer(&store, &listed);
    assert_eq!(listed, Some(Answer::Row(None)));
}
